// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The common part of factorisations of S as a matrix (explicit_schur.h) on all
// machines: S, its unknowns, and their part of a right-hand side.
#ifndef CERES_EXT_SOLVER_CHOLESKY_FACTORIZED_SCHUR_H_
#define CERES_EXT_SOLVER_CHOLESKY_FACTORIZED_SCHUR_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "ceres_ext/solver/batch.h"
#include "ceres_ext/solver/explicit_schur.h"
#include "ceres_ext/solver/operator/linear_operator.h"
#include "ceres_ext/solver/schur_diagonal.h"
#include "ceres_ext/solver/schur_matrix_size.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/cuda_sparse_cholesky.h"
#include "cuda_kernels/ops/manifolds.h"

namespace ceres_ext::solver {

template <typename Machine>
class FactorizedSchur {
 public:
  // The diagonal blocks of S, single or merged.
  NormalBlocksRequest WantedBlocks() {
    NormalBlocksRequest wanted;
    wanted.schur_diagonal = schur_diagonal_.source();
    return wanted;
  }

  const SchurMatrixSize& size() const { return size_; }

  // Forms S.
  kernels::Status Write(const LinearSystem& system, const double* v_inverse) {
    CERES_EXT_RETURN_IF_ERROR(schur_diagonal_.Update());
    ExplicitSchurRequest request;
    request.v_inverse = v_inverse;
    request.schur_diagonal = schur_diagonal_.data();
    request.f_diagonal = system.f_diagonal;
    request.is_same_linearization = system.is_same_linearization;
    return schur_.Write(request, values_.data());
  }
  // There is another Jacobian.
  void Forget() { schur_.Forget(); }
  // S itself, with its unknowns and pairs.
  const ExplicitSchur<Machine>& schur() const { return schur_; }
  ExplicitSchur<Machine>* mutable_schur() { return &schur_; }

 protected:
  template <typename T>
  using Buffer = typename Machine::template Buffer<T>;

  // The memory of WantedBlocks.
  kernels::Status SetupDiagonal(const ProblemBlocks& blocks, Machine* machine) {
    machine_ = machine;
    blocks_ = blocks;
    return schur_diagonal_.Setup(blocks, machine);
  }
  // After SetupDiagonal.
  kernels::Status Prepare(const std::vector<Batch*>& batches,
                          const std::vector<unsigned char>& f_varies,
                          kernels::HostContext* context) {
    CERES_EXT_RETURN_IF_ERROR(
        schur_.Prepare(blocks_, batches, machine_, context));
    num_unknowns_ = std::count(
        f_varies.begin(), f_varies.end(), static_cast<unsigned char>(1));
    return machine_->Allocate(num_unknowns_, &x_);
  }
  void SetSize() {
    size_ = schur_.size();
    size_.is_factorized = true;
  }
  // A sparse S: its pattern and memory for its values, which are zero.
  kernels::Status SetupPattern(kernels::LowerCsr* pattern) {
    CERES_EXT_RETURN_IF_ERROR(schur_.SetupSparse());
    CERES_EXT_RETURN_IF_ERROR(schur_.SetupColumns());
    const auto& csr = schur_.csr();
    CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(csr.num_values(), &values_));
    CERES_EXT_RETURN_IF_ERROR(
        machine_->SetZero(values_.size(), values_.data()));
    pattern->n = num_unknowns_;
    pattern->num_values = csr.num_values();
    pattern->row_begin = csr.row_begin();
    pattern->column = csr.column();
    return {};
  }

  // x_ of the unknowns from a vector of F, and back; columns that don't vary
  // become zero.
  kernels::Status Gather(const double* rhs) {
    return Run(
        kernels::GatherValuesParams{
            num_unknowns_, schur_.unknowns().ref().column, rhs, x_.data()},
        machine_);
  }
  kernels::Status Scatter(double* z) {
    CERES_EXT_RETURN_IF_ERROR(machine_->SetZero(blocks_.f.num_values(), z));
    return Run(
        kernels::ScatterValuesParams{
            num_unknowns_, schur_.unknowns().ref().column, x_.data(), z},
        machine_);
  }

  // failed_order: of a factorisation; 0 if it has worked, below 0: it hasn't,
  // and the library doesn't say where.
  kernels::Status CheckOrder(int64_t failed_order) const {
    if (failed_order == 0) {
      return {};
    }
    return NoFactor(blocks_.f,
                    failed_order < 0
                        ? -1
                        : schur_.unknowns().host_column()[failed_order - 1]);
  }

  Machine* machine_ = nullptr;
  ProblemBlocks blocks_;
  ExplicitSchur<Machine> schur_;
  SchurMatrixSize size_;
  int64_t num_unknowns_ = 0;
  SchurDiagonal<Machine> schur_diagonal_;
  Buffer<double> x_;       // of the unknowns
  Buffer<double> values_;  // S, of a dense one then its factor
};

}  // namespace ceres_ext::solver

#endif  // CERES_EXT_SOLVER_CHOLESKY_FACTORIZED_SCHUR_H_
