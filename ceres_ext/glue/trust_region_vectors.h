// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The vectors of Ceres's trust-region loop in the memory of a Machine. Sums
// have an order of their own (cuda_kernels/ops/vectors.h), so that neither
// threads nor runs change a bit.

#ifndef CERES_EXT_GLUE_TRUST_REGION_VECTORS_H_
#define CERES_EXT_GLUE_TRUST_REGION_VECTORS_H_

#include <cstdint>
#include <map>
#include <utility>

#include "ceres/trust_region_vectors.h"
#include "ceres_ext/glue/caller_state.h"
#include "ceres_ext/glue/machines.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/ops/vectors.h"
#include "glog/logging.h"

namespace ceres_ext {

template <typename Machine>
class LoopVectors final : public ceres::internal::TrustRegionVectors {
 public:
  // *machine outlives the vectors. caller_state: where the state comes from and
  // goes to in place of Ceres's memory, and then outlives them too; or null.
  LoopVectors(Machine* machine, const CallerState* caller_state)
      : machine_(machine), caller_state_(caller_state) {}

  // Once, before anything else. Takes the memory of all vectors that the loop
  // will ask for, so that a lack of it shows while there is another way.
  //   num_parameters: of x; num_effective_parameters: of a step
  kernels::Status Setup(int num_parameters,
                        int num_effective_parameters,
                        int num_residuals) {
    CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(1, &scalars_));
    // An operation sets some of them, and all are read.
    CERES_EXT_RETURN_IF_ERROR(machine_->SetZero(1, scalars_.data()));
    // TrustRegionMinimizer: x, the best x, the candidate and the projected
    // gradient step; gradient and its negative, step, scaled step and scaling;
    // residuals and model residuals. LevenbergMarquardtStrategy: two diagonals.
    for (const auto& [count, n] : {std::pair{4, num_parameters},
                                   {7, num_effective_parameters},
                                   {2, num_residuals}}) {
      for (int i = 0; i < count; ++i) {
        Buffer<double> buffer;
        CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(n, &buffer));
        free_.emplace(n, std::move(buffer));
      }
    }
    return {};
  }

  // What is the caller's is no memory of Ceres.
  bool IsHost() const final {
    return kIsHost<Machine> && caller_state_ == nullptr;
  }

  // The smallest free vector that is large enough; new memory where there is
  // none.
  double* Allocate(int n) final {
    Buffer<double> buffer;
    const auto found = free_.lower_bound(n);
    if (found != free_.end()) {
      buffer = std::move(found->second);
      free_.erase(found);
    } else {
      const kernels::Status status = machine_->Allocate(n, &buffer);
      if (!status.ok()) {
        LOG(ERROR) << status.message;
        return nullptr;
      }
    }
    double* data = buffer.data();
    if (data != nullptr) {
      used_.emplace(data, std::move(buffer));
    }
    return data;
  }

  void Free(double* x) final {
    const auto found = used_.find(x);
    if (found != used_.end()) {
      free_.emplace(found->second.size(), std::move(found->second));
      used_.erase(found);
    }
  }

  bool CopyFromHost(int n, const double* host_x, double* y) final {
    return Ok(caller_state_ != nullptr
                  ? caller_state_->CopyToMachine(y, machine_)
                  : machine_->Upload(n, host_x, y));
  }
  bool CopyToHost(int n, const double* x, double* host_y) final {
    return Ok(caller_state_ != nullptr
                  ? caller_state_->CopyFromMachine(x, machine_)
                  : machine_->Download(n, x, host_y));
  }
  void Copy(int n, const double* x, double* y) final {
    Run(kernels::CopyParams{n, x, y});
  }
  void SetZero(int n, double* x) final {
    Run(kernels::SetConstantParams{n, 0.0, x});
  }
  void SetOne(int n, double* x) final {
    Run(kernels::SetConstantParams{n, 1.0, x});
  }
  void Negate(int n, const double* x, double* y) final {
    Run(kernels::NegateParams{n, x, y});
  }
  void Multiply(int n, const double* x, const double* y, double* z) final {
    Run(kernels::MultiplyParams{n, x, y, z});
  }
  void JacobiScaling(int n, double* x) final {
    Run(kernels::JacobiScalingParams{n, x});
  }
  void Clamp(int n, double min_value, double max_value, double* x) final {
    Run(kernels::ClampParams{n, min_value, max_value, x});
  }
  void LevenbergMarquardtDiagonal(int n,
                                  const double* x,
                                  double radius,
                                  double* y) final {
    Run(kernels::LevenbergMarquardtDiagonalParams{n, radius, x, y});
  }
  void Invalidate(int n, double* x) final {
    Run(kernels::SetConstantParams{n, kernels::kImpossibleValue, x});
  }

  bool NegateIfValid(int n, double* x) final {
    if (!failed_) {
      Run(kernels::CountInvalidParams{n, x, scalars_.data()});
    }
    kernels::LoopScalars scalars;
    return RunAndRead(kernels::NegateIfValidParams{n, x}, &scalars) &&
           scalars.num_invalid == 0;
  }

  bool ProjectedGradientNorms(int n,
                              const double* x,
                              const double* projected_x,
                              double* max_norm,
                              double* norm) final {
    kernels::LoopScalars scalars;
    const bool ok = RunAndRead(
        kernels::ProjectedGradientNormsParams{n, x, projected_x}, &scalars);
    *max_norm = scalars.max_norm;
    *norm = scalars.norm;
    return ok;
  }

  bool StepNorms(int n,
                 const double* x,
                 const double* candidate_x,
                 double* x_norm,
                 double* step_norm) final {
    kernels::LoopScalars scalars;
    const bool ok =
        RunAndRead(kernels::StepNormsParams{n, x, candidate_x}, &scalars);
    *x_norm = scalars.x_norm;
    *step_norm = scalars.step_norm;
    return ok;
  }

  bool ModelCostChange(int n,
                       const double* residuals,
                       const double* model_residuals,
                       double* model_cost_change) final {
    kernels::LoopScalars scalars;
    const bool ok = RunAndRead(
        kernels::ModelCostChangeParams{n, residuals, model_residuals},
        &scalars);
    *model_cost_change = scalars.model_cost_change;
    return ok;
  }

 private:
  template <typename T>
  using Buffer = typename Machine::template Buffer<T>;

  // Remembers the first error; methods that can't report it leave that to the
  // next one that can. False: there has been one.
  bool Ok(const kernels::Status& status) {
    if (!status.ok() && !failed_) {
      failed_ = true;
      LOG(ERROR) << "A vector operation failed: " << status.message;
    }
    return !failed_;
  }

  template <typename Params>
  void Run(const Params& params) {
    Ok(kernels::Run(params, machine_));
  }

  // Runs an operation that sets some of the scalars and reads them.
  template <typename Params>
  bool RunAndRead(Params params, kernels::LoopScalars* scalars) {
    params.scalars = scalars_.data();
    return !failed_ && Ok(kernels::Run(params, machine_)) &&
           Ok(machine_->Read(scalars_.data(), scalars));
  }

  Machine* machine_;
  const CallerState* caller_state_;
  bool failed_ = false;
  Buffer<kernels::LoopScalars> scalars_;
  std::multimap<int64_t, Buffer<double>> free_;  // by size
  std::map<const double*, Buffer<double>> used_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_GLUE_TRUST_REGION_VECTORS_H_
