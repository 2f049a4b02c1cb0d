// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The exact solution of S z = s by a Cholesky factorisation of S as a matrix
// (explicit_schur.h), on a machine that has one.
//
//   SchurCholesky<Machine> cholesky;
//   Status status =
//       cholesky.Setup(options, blocks, batches, varies, sparse, &machine);
//   // per solve, after SchurComplement::Update with WantedBlocks():
//   if (status.ok()) status = cholesky.Write(system, schur.e_matrices());
//   if (status.ok()) status = cholesky.Solve(rhs, z);
//   if (status.ok()) status = cholesky.CheckFactor();
//   if (cholesky.ShouldReplace()) status = cholesky.Replace();
//   // or, for columns of S^-1:
//   if (status.ok()) status = cholesky.Factorize();
//   if (status.ok()) status = cholesky.Invert();  // where it ShouldInvert
//   if (status.ok()) status = cholesky.SolveColumns(n, false, x, work);
#ifndef CERES_EXT_SOLVER_CHOLESKY_SCHUR_CHOLESKY_H_
#define CERES_EXT_SOLVER_CHOLESKY_SCHUR_CHOLESKY_H_

#include <memory>
#include <type_traits>
#include <vector>

#include "ceres_ext/solver/batch.h"
#include "ceres_ext/solver/cholesky/device_schur_cholesky.h"
#include "ceres_ext/solver/cholesky/host_schur_cholesky.h"
#include "ceres_ext/solver/cholesky/sparse_factorization.h"
#include "ceres_ext/solver/explicit_schur.h"
#include "ceres_ext/solver/operator/linear_operator.h"
#include "ceres_ext/solver/schur_matrix_size.h"
#include "ceres_ext/solver/step_options.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/cuda_machine.h"
#include "cuda_kernels/machine/host_machine.h"

namespace ceres_ext::solver {

// None for machines that replace operations of the device.
template <typename Machine>
class NoSchurCholesky {
 public:
  kernels::Status Setup(const StepOptions& /*options*/,
                        const ProblemBlocks& /*blocks*/,
                        const std::vector<Batch*>& /*batches*/,
                        const std::vector<unsigned char>& /*f_varies*/,
                        const std::shared_ptr<SparseFactorization>& /*sparse*/,
                        Machine* /*machine*/,
                        kernels::HostContext* /*context*/) {
    return {kernels::StatusCode::kUnsupported,
            "This machine has no factorisation."};
  }
  NormalBlocksRequest WantedBlocks() { return {}; }
  const SchurMatrixSize& size() const { return size_; }
  kernels::Status Write(const LinearSystem& /*system*/,
                        const double* /*v_inverse*/) {
    return {};
  }
  void Forget() {}
  bool waits() const { return false; }
  kernels::Status Factorize() { return {}; }
  kernels::Status SolveColumns(int64_t /*num_columns*/,
                               bool /*only_from_first*/,
                               double* /*x*/,
                               double* /*work*/) {
    return {};
  }
  bool NeedsWork() const { return false; }
  bool ShouldInvert(int64_t /*num_blocks*/) const { return false; }
  kernels::Status Invert() { return {}; }
  int64_t inversion_bytes() const { return 0; }
  SchurInverse inverse() const { return {}; }
  const ExplicitSchur<Machine>& schur() const { return schur_; }
  ExplicitSchur<Machine>* mutable_schur() { return &schur_; }
  kernels::Status Solve(const double* /*rhs*/, double* /*z*/) { return {}; }
  kernels::Status CheckFactor() { return {}; }
  bool ShouldReplace() const { return false; }
  kernels::Status Replace() { return {}; }

 private:
  SchurMatrixSize size_;
  ExplicitSchur<Machine> schur_;
};

template <typename Machine>
using SchurCholesky = std::conditional_t<
    std::is_same_v<Machine, kernels::HostMachine>,
    HostSchurCholesky,
    std::conditional_t<std::is_same_v<Machine, kernels::CudaMachine>,
                       DeviceSchurCholesky,
                       NoSchurCholesky<Machine>>>;

}  // namespace ceres_ext::solver

#endif  // CERES_EXT_SOLVER_CHOLESKY_SCHUR_CHOLESKY_H_
