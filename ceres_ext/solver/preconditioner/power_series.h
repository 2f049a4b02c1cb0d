// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// SCHUR_POWER_SERIES_EXPANSION, and what PCG starts from.
#ifndef CERES_EXT_SOLVER_PRECONDITIONER_POWER_SERIES_H_
#define CERES_EXT_SOLVER_PRECONDITIONER_POWER_SERIES_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "ceres_ext/solver/batch.h"
#include "ceres_ext/solver/operator/schur_complement.h"
#include "ceres_ext/solver/preconditioner/block_diagonal.h"
#include "ceres_ext/solver/preconditioner/preconditioner.h"
#include "ceres_ext/solver/step_options.h"
#include "cuda_kernels/base/breakdown.h"
#include "cuda_kernels/base/pcg_scalars.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/ops/power_series.h"
#include "cuda_kernels/ops/vectors.h"

namespace ceres_ext::solver {

// The power series of the inverse of S = B - A
// (cuda_kernels/ops/power_series.h), as M^-1 (SCHUR_POWER_SERIES_EXPANSION), as
// what PCG starts from, or as both. As a preconditioner it ignores the
// tolerance, so that M stays the same.
template <typename Machine>
class PowerSeriesExpansion final : public Preconditioner<Machine> {
 public:
  // *schur outlives it. preconditioner: what is M instead where the series is
  // but what PCG starts from; null: B (JACOBI), or the series, by the options.
  PowerSeriesExpansion(const StepOptions& options,
                       std::unique_ptr<Preconditioner<Machine>> preconditioner,
                       SchurComplement<Machine>* schur)
      : options_(options),
        preconditioner_(std::move(preconditioner)),
        schur_(schur) {}

  kernels::Status Setup(const ProblemBlocks& blocks,
                        bool use_schur,
                        Machine* machine) final {
    this->machine_ = machine;
    n_ = blocks.f.num_values();
    CERES_EXT_RETURN_IF_ERROR(b_.Setup(blocks, use_schur, machine));
    if (preconditioner_ != nullptr) {
      CERES_EXT_RETURN_IF_ERROR(
          preconditioner_->Setup(blocks, use_schur, machine));
    }
    CERES_EXT_RETURN_IF_ERROR(machine->Allocate(n_, &t_));
    CERES_EXT_RETURN_IF_ERROR(machine->Allocate(n_, &q_));
    return machine->Allocate(1, &scalars_);
  }

  NormalBlocksRequest WantedBlocks() final {
    NormalBlocksRequest wanted;
    if (preconditioner_ != nullptr) {
      wanted = preconditioner_->WantedBlocks();
    }
    wanted.u = b_.WantedBlocks().u;
    return wanted;
  }

  kernels::Status Update(const LinearSystem& system) final {
    CERES_EXT_RETURN_IF_ERROR(b_.Update(system));
    return preconditioner_ == nullptr ? kernels::Status()
                                      : preconditioner_->Update(system);
  }

  void ListBreakdowns(kernels::BreakdownArrays* arrays) const final {
    b_.ListBreakdowns(arrays);
    if (preconditioner_ != nullptr) {
      preconditioner_->ListBreakdowns(arrays);
    }
  }

  kernels::Status CheckUpdate() final {
    CERES_EXT_RETURN_IF_ERROR(b_.CheckUpdate());
    return preconditioner_ == nullptr ? kernels::Status()
                                      : preconditioner_->CheckUpdate();
  }

  kernels::Status Apply(const double* r,
                        double* z,
                        const kernels::PcgScalars* scalars) final {
    if (preconditioner_ != nullptr) {
      return preconditioner_->Apply(r, z, scalars);
    }
    CERES_EXT_RETURN_IF_ERROR(b_.Apply(r, z, scalars));
    if (options_.preconditioner == PreconditionerType::kJacobi) {
      return {};
    }
    CERES_EXT_RETURN_IF_ERROR(
        Run(kernels::CopyParams{n_, z, t_.data()}, this->machine_));
    for (int i = 1; i <= options_.max_num_spse_iterations; ++i) {
      CERES_EXT_RETURN_IF_ERROR(AddTerm(z, scalars, nullptr));
    }
    return {};
  }

  kernels::Status Initialize(const double* rhs, double* x) final {
    CERES_EXT_RETURN_IF_ERROR(b_.Apply(rhs, x, nullptr));
    CERES_EXT_RETURN_IF_ERROR(Run(
        kernels::PowerSeriesStartParams{n_,
                                        options_.spse_tolerance,
                                        x,
                                        t_.data(),
                                        scalars_.data(),
                                        this->machine_->published_scalars()},
        this->machine_));
    for (int i = 1; i <= options_.max_num_spse_iterations; ++i) {
      CERES_EXT_RETURN_IF_ERROR(AddTerm(x, scalars_.data(), scalars_.data()));
      // Terms after the end are none.
      if (this->machine_->ShouldPoll(i - 1)) {
        kernels::PcgScalars scalars;
        CERES_EXT_RETURN_IF_ERROR(
            this->machine_->ReadScalars(scalars_.data(), &scalars));
        if (kernels::PcgHasEnded(&scalars)) {
          break;
        }
      }
    }
    return {};
  }

 private:
  template <typename T>
  using Buffer = typename Machine::template Buffer<T>;

  // t = B^-1 A t, z += t
  kernels::Status AddTerm(double* z,
                          const kernels::PcgScalars* scalars,
                          kernels::PcgScalars* series) {
    CERES_EXT_RETURN_IF_ERROR(
        schur_->MultiplyEliminatedPart(t_.data(), q_.data(), scalars));
    CERES_EXT_RETURN_IF_ERROR(b_.Apply(q_.data(), t_.data(), scalars));
    return Run(
        kernels::PowerSeriesTermParams{n_, t_.data(), z, scalars, series},
        this->machine_);
  }

  const StepOptions options_;
  std::unique_ptr<Preconditioner<Machine>> preconditioner_;
  SchurComplement<Machine>* schur_;
  BlockDiagonalPreconditioner<Machine> b_{/*of_schur_complement=*/false};
  int64_t n_ = 0;
  Buffer<double> t_;
  Buffer<double> q_;
  Buffer<kernels::PcgScalars> scalars_;  // of the initialization
};

}  // namespace ceres_ext::solver

#endif  // CERES_EXT_SOLVER_PRECONDITIONER_POWER_SERIES_H_
