// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The Schur complement as an operator that multiplies by its matrix
// (explicit_schur.h), sparse, by blocks: Ceres's use_explicit_schur_complement.
// Its products read S, and not the Jacobian.
//
//   ExplicitSchurComplement<Machine> schur(varies);
//   Status status = schur.Setup(options, blocks, batches, &machine);
//   // per solve:
//   if (status.ok()) status = schur.Update(system, wanted, rhs);
//   if (status.ok()) status = schur.Write(system, wanted.schur_diagonal);
//   if (status.ok()) status = schur.Multiply(p, q, nullptr);
#ifndef CERES_EXT_SOLVER_OPERATOR_EXPLICIT_SCHUR_COMPLEMENT_H_
#define CERES_EXT_SOLVER_OPERATOR_EXPLICIT_SCHUR_COMPLEMENT_H_

#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "ceres_ext/solver/batch.h"
#include "ceres_ext/solver/explicit_schur.h"
#include "ceres_ext/solver/operator/schur_complement.h"
#include "ceres_ext/solver/step_options.h"
#include "cuda_kernels/base/pcg_scalars.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/host_machine.h"
#include "cuda_kernels/ops/schur_terms.h"
#include "cuda_kernels/structure/schur_matrix.h"

namespace ceres_ext::solver {

template <typename Machine>
class ExplicitSchurComplement final : public SchurComplement<Machine> {
 public:
  using Base = SchurComplement<Machine>;

  // f_varies: of each value of F whether it is an unknown; products are zero
  // where it isn't.
  explicit ExplicitSchurComplement(std::vector<unsigned char> f_varies)
      : f_varies_(std::move(f_varies)) {}

  // kUnsupported: what ExplicitSchur can't do, or merged blocks.
  kernels::Status Setup(const StepOptions& options,
                        const ProblemBlocks& blocks,
                        const std::vector<Batch*>& batches,
                        Machine* machine) override {
    if (!blocks.merged.empty()) {
      return {kernels::StatusCode::kUnsupported,
              "The Schur complement as a matrix has no merged blocks."};
    }
    CERES_EXT_RETURN_IF_ERROR(Base::Setup(options, blocks, batches, machine));
    CERES_EXT_RETURN_IF_ERROR(schur_.Prepare(blocks, batches, machine));
    int64_t of_schur = 0;  // at most
    int64_t of_building = 0;
    CERES_EXT_RETURN_IF_ERROR(schur_.ForecastBytes(&of_schur, &of_building));
    CERES_EXT_RETURN_IF_ERROR(CheckLimit(of_schur + of_building));
    CERES_EXT_RETURN_IF_ERROR(schur_.Setup(f_varies_.data()));
    CERES_EXT_RETURN_IF_ERROR(schur_.SetupSparse());
    CERES_EXT_RETURN_IF_ERROR(
        rows_.Setup(schur_.csr(), schur_.unknowns(), machine));
    size_ = schur_.size();
    const int64_t num_partial = rows_.ref().num_chunks * rows_.ref().width;
    const int64_t of_matrix =
        static_cast<int64_t>(sizeof(double)) * (size_.num_values + num_partial);
    CERES_EXT_RETURN_IF_ERROR(CheckLimit(of_matrix));
    CERES_EXT_RETURN_IF_ERROR(machine->Allocate(size_.num_values, &values_));
    return machine->Allocate(num_partial, &partial_);
  }

  const SchurMatrixSize* matrix_size() const final { return &size_; }

  kernels::Status Update(const LinearSystem& system,
                         const NormalBlocksRequest& wanted,
                         double* rhs) override {
    if (!system.is_same_linearization) {
      schur_.Forget();
    }
    return Base::Update(system, wanted, rhs);
  }
  kernels::Status FormMatrix(const LinearSystem& system,
                             const double* schur_diagonal) final {
    ExplicitSchurRequest request;
    request.v_inverse = Base::e_matrices();
    request.schur_diagonal = schur_diagonal;
    request.f_diagonal = system.f_diagonal;
    request.is_same_linearization = system.is_same_linearization;
    return schur_.Write(request, values_.data());
  }

  kernels::Status Multiply(const double* p,
                           double* q,
                           const kernels::PcgScalars* scalars) override {
    CERES_EXT_RETURN_IF_ERROR(Run(
        kernels::SchurRowChunksParams{
            rows_.ref(), values_.data(), p, partial_.data(), scalars},
        machine_));
    return Run(
        kernels::SchurRowSumsParams{rows_.ref(), partial_.data(), q, scalars},
        machine_);
  }

 private:
  using Base::machine_;
  template <typename T>
  using Buffer = typename Machine::template Buffer<T>;

  // Memory that is still to be allocated.
  kernels::Status CheckLimit(int64_t num_bytes) {
    if constexpr (std::is_same_v<Machine, kernels::HostMachine>) {
      return {};
    } else {
      return machine_->context()->CheckLimit(machine_->bytes() + num_bytes);
    }
  }

  const std::vector<unsigned char> f_varies_;
  ExplicitSchur<Machine> schur_;
  kernels::SchurRows<Machine> rows_;
  SchurMatrixSize size_;
  Buffer<double> values_;   // of S
  Buffer<double> partial_;  // of a product
};

}  // namespace ceres_ext::solver

#endif  // CERES_EXT_SOLVER_OPERATOR_EXPLICIT_SCHUR_COMPLEMENT_H_
