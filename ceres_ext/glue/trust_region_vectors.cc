// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/glue/trust_region_vectors.h"

#include <type_traits>
#include <utility>

#include "glog/logging.h"

namespace ceres_ext {

using kernels::Status;

template <typename Machine>
void LoopVectors<Machine>::Run(const Status& status) {
  if (!status.ok() && !failed_) {
    failed_ = true;
    LOG(ERROR) << "A vector operation failed: " << status.message;
  }
}

template <typename Machine>
template <typename Params>
bool LoopVectors<Machine>::RunAndRead(Params params,
                                      kernels::LoopScalars* scalars) {
  if (!failed_) {
    params.scalars = scalars_.data();
    Run(kernels::Run(params, machine_));
  }
  if (!failed_) {
    Run(machine_->Read(scalars_.data(), scalars));
  }
  return !failed_;
}

template <typename Machine>
bool LoopVectors<Machine>::IsHost() const {
  return kIsHost<Machine>;
}

template <typename Machine>
Status LoopVectors<Machine>::Setup(int num_parameters,
                                   int num_effective_parameters,
                                   int num_residuals) {
  CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(1, &scalars_));
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

template <typename Machine>
int64_t LoopVectors<Machine>::bytes() const {
  int64_t sum = scalars_.bytes();
  for (const auto& [size, buffer] : free_) {
    sum += buffer.bytes();
  }
  for (const auto& [data, buffer] : used_) {
    sum += buffer.bytes();
  }
  return sum;
}

// The smallest free vector that is large enough; new memory where there is
// none.
template <typename Machine>
double* LoopVectors<Machine>::Allocate(int n) {
  Buffer<double> buffer;
  const auto found = free_.lower_bound(n);
  if (found != free_.end()) {
    buffer = std::move(found->second);
    free_.erase(found);
  } else {
    const Status status = machine_->Allocate(n, &buffer);
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

template <typename Machine>
void LoopVectors<Machine>::Free(double* x) {
  const auto found = used_.find(x);
  if (found != used_.end()) {
    free_.emplace(found->second.size(), std::move(found->second));
    used_.erase(found);
  }
}

template <typename Machine>
bool LoopVectors<Machine>::CopyFromHost(int n,
                                        const double* host_x,
                                        double* y) {
  Run(machine_->Upload(n, host_x, y));
  return !failed_;
}

template <typename Machine>
bool LoopVectors<Machine>::CopyToHost(int n, const double* x, double* host_y) {
  Run(machine_->Download(n, x, host_y));
  return !failed_;
}

template <typename Machine>
void LoopVectors<Machine>::Copy(int n, const double* x, double* y) {
  Run(kernels::Run(kernels::CopyParams{n, x, y}, machine_));
}

template <typename Machine>
void LoopVectors<Machine>::SetZero(int n, double* x) {
  Run(kernels::Run(kernels::SetConstantParams{n, 0.0, x}, machine_));
}

template <typename Machine>
void LoopVectors<Machine>::SetOne(int n, double* x) {
  Run(kernels::Run(kernels::SetConstantParams{n, 1.0, x}, machine_));
}

template <typename Machine>
void LoopVectors<Machine>::Negate(int n, const double* x, double* y) {
  Run(kernels::Run(kernels::NegateParams{n, x, y}, machine_));
}

template <typename Machine>
void LoopVectors<Machine>::Multiply(int n,
                                    const double* x,
                                    const double* y,
                                    double* z) {
  Run(kernels::Run(kernels::MultiplyParams{n, x, y, z}, machine_));
}

template <typename Machine>
void LoopVectors<Machine>::JacobiScaling(int n, double* x) {
  Run(kernels::Run(kernels::JacobiScalingParams{n, x}, machine_));
}

template <typename Machine>
void LoopVectors<Machine>::Clamp(int n,
                                 double min_value,
                                 double max_value,
                                 double* x) {
  Run(kernels::Run(kernels::ClampParams{n, min_value, max_value, x}, machine_));
}

template <typename Machine>
void LoopVectors<Machine>::LevenbergMarquardtDiagonal(int n,
                                                      const double* x,
                                                      double radius,
                                                      double* y) {
  Run(kernels::Run(kernels::LevenbergMarquardtDiagonalParams{n, radius, x, y},
                   machine_));
}

template <typename Machine>
void LoopVectors<Machine>::Invalidate(int n, double* x) {
  Run(kernels::Run(kernels::SetConstantParams{n, kernels::kImpossibleValue, x},
                   machine_));
}

template <typename Machine>
bool LoopVectors<Machine>::NegateIfValid(int n, double* x) {
  if (!failed_) {
    Run(kernels::Run(kernels::CountInvalidParams{n, x, scalars_.data()},
                     machine_));
  }
  kernels::LoopScalars scalars;
  kernels::NegateIfValidParams params{n, x};
  return RunAndRead(params, &scalars) && scalars.num_invalid == 0;
}

template <typename Machine>
bool LoopVectors<Machine>::ProjectedGradientNorms(int n,
                                                  const double* x,
                                                  const double* projected_x,
                                                  double* max_norm,
                                                  double* norm) {
  kernels::LoopScalars scalars;
  const bool ok = RunAndRead(
      kernels::ProjectedGradientNormsParams{n, x, projected_x}, &scalars);
  *max_norm = scalars.max_norm;
  *norm = scalars.norm;
  return ok;
}

template <typename Machine>
bool LoopVectors<Machine>::StepNorms(int n,
                                     const double* x,
                                     const double* candidate_x,
                                     double* x_norm,
                                     double* step_norm) {
  kernels::LoopScalars scalars;
  const bool ok =
      RunAndRead(kernels::StepNormsParams{n, x, candidate_x}, &scalars);
  *x_norm = scalars.x_norm;
  *step_norm = scalars.step_norm;
  return ok;
}

template <typename Machine>
bool LoopVectors<Machine>::ModelCostChange(int n,
                                           const double* residuals,
                                           const double* model_residuals,
                                           double* model_cost_change) {
  kernels::LoopScalars scalars;
  const bool ok = RunAndRead(
      kernels::ModelCostChangeParams{n, residuals, model_residuals}, &scalars);
  *model_cost_change = scalars.model_cost_change;
  return ok;
}

#define CERES_EXT_INSTANTIATE(Machine) template class LoopVectors<Machine>;
CERES_EXT_FOR_EACH_MACHINE(CERES_EXT_INSTANTIATE)
#undef CERES_EXT_INSTANTIATE

}  // namespace ceres_ext
