// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/glue/trust_region_vectors.h"

#include <type_traits>
#include <utility>

#include "glog/logging.h"

namespace ceres_ext {

using kernels::Status;

template <typename Backend>
void LoopVectors<Backend>::Run(const Status& status) {
  if (!status.ok() && !failed_) {
    failed_ = true;
    LOG(ERROR) << "A vector operation failed: " << status.message;
  }
}

template <typename Backend>
template <typename Params>
bool LoopVectors<Backend>::RunAndRead(Params params,
                                      kernels::LoopScalars* scalars) {
  if (!failed_) {
    params.scalars = scalars_.data();
    Run(backend_->Run(params));
  }
  if (!failed_) {
    Run(backend_->Read(scalars_.data(), scalars));
  }
  return !failed_;
}

template <typename Backend>
bool LoopVectors<Backend>::IsHost() const {
  return std::is_same_v<Backend, HostMachine>;
}

template <typename Backend>
Status LoopVectors<Backend>::Setup(int num_parameters,
                                   int num_effective_parameters,
                                   int num_residuals) {
  CERES_EXT_RETURN_IF_ERROR(backend_->Allocate(1, &scalars_));
  // TrustRegionMinimizer: x, the best x, the candidate and the projected
  // gradient step; gradient and its negative, step, scaled step and scaling;
  // residuals and model residuals. LevenbergMarquardtStrategy: two diagonals.
  for (const auto& [count, n] : {std::pair{4, num_parameters},
                                 {7, num_effective_parameters},
                                 {2, num_residuals}}) {
    for (int i = 0; i < count; ++i) {
      Buffer<double> buffer;
      CERES_EXT_RETURN_IF_ERROR(backend_->Allocate(n, &buffer));
      free_.emplace(n, std::move(buffer));
    }
  }
  return {};
}

template <typename Backend>
int64_t LoopVectors<Backend>::bytes() const {
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
template <typename Backend>
double* LoopVectors<Backend>::Allocate(int n) {
  Buffer<double> buffer;
  const auto found = free_.lower_bound(n);
  if (found != free_.end()) {
    buffer = std::move(found->second);
    free_.erase(found);
  } else {
    const Status status = backend_->Allocate(n, &buffer);
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

template <typename Backend>
void LoopVectors<Backend>::Free(double* x) {
  const auto found = used_.find(x);
  if (found != used_.end()) {
    free_.emplace(found->second.size(), std::move(found->second));
    used_.erase(found);
  }
}

template <typename Backend>
bool LoopVectors<Backend>::CopyFromHost(int n,
                                        const double* host_x,
                                        double* y) {
  Run(backend_->Upload(n, host_x, y));
  return !failed_;
}

template <typename Backend>
bool LoopVectors<Backend>::CopyToHost(int n, const double* x, double* host_y) {
  Run(backend_->Download(n, x, host_y));
  return !failed_;
}

template <typename Backend>
void LoopVectors<Backend>::Copy(int n, const double* x, double* y) {
  Run(backend_->Run(kernels::CopyParams{n, x, y}));
}

template <typename Backend>
void LoopVectors<Backend>::SetZero(int n, double* x) {
  Run(backend_->Run(kernels::SetConstantParams{n, 0.0, x}));
}

template <typename Backend>
void LoopVectors<Backend>::SetOne(int n, double* x) {
  Run(backend_->Run(kernels::SetConstantParams{n, 1.0, x}));
}

template <typename Backend>
void LoopVectors<Backend>::Negate(int n, const double* x, double* y) {
  Run(backend_->Run(kernels::NegateParams{n, x, y}));
}

template <typename Backend>
void LoopVectors<Backend>::Multiply(int n,
                                    const double* x,
                                    const double* y,
                                    double* z) {
  Run(backend_->Run(kernels::MultiplyParams{n, x, y, z}));
}

template <typename Backend>
void LoopVectors<Backend>::JacobiScaling(int n, double* x) {
  Run(backend_->Run(kernels::JacobiScalingParams{n, x}));
}

template <typename Backend>
void LoopVectors<Backend>::Clamp(int n,
                                 double min_value,
                                 double max_value,
                                 double* x) {
  Run(backend_->Run(kernels::ClampParams{n, min_value, max_value, x}));
}

template <typename Backend>
void LoopVectors<Backend>::LevenbergMarquardtDiagonal(int n,
                                                      const double* x,
                                                      double radius,
                                                      double* y) {
  Run(backend_->Run(
      kernels::LevenbergMarquardtDiagonalParams{n, radius, x, y}));
}

template <typename Backend>
void LoopVectors<Backend>::Invalidate(int n, double* x) {
  Run(backend_->Run(kernels::InvalidateParams{n, x}));
}

template <typename Backend>
bool LoopVectors<Backend>::NegateIfValid(int n, double* x) {
  kernels::LoopScalars scalars;
  return RunAndRead(kernels::NegateIfValidParams{n, x}, &scalars) &&
         scalars.num_invalid == 0;
}

template <typename Backend>
bool LoopVectors<Backend>::ProjectedGradientNorms(int n,
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

template <typename Backend>
bool LoopVectors<Backend>::StepNorms(int n,
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

template <typename Backend>
bool LoopVectors<Backend>::ModelCostChange(int n,
                                           const double* residuals,
                                           const double* model_residuals,
                                           double* model_cost_change) {
  kernels::LoopScalars scalars;
  const bool ok = RunAndRead(
      kernels::ModelCostChangeParams{n, residuals, model_residuals}, &scalars);
  *model_cost_change = scalars.model_cost_change;
  return ok;
}

template class LoopVectors<HostMachine>;
#ifdef CERES_EXT_WITH_CUDA
template class LoopVectors<CudaMachine>;
#endif

}  // namespace ceres_ext
