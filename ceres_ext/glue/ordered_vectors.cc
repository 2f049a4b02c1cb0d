// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/glue/ordered_vectors.h"

#include <cstdint>
#include <numeric>

namespace ceres_ext {
namespace {

constexpr int64_t kChunk = 4096;

}  // namespace

OrderedVectors::OrderedVectors(ceres::internal::ContextImpl* ceres_context,
                               int num_threads,
                               int max_size,
                               kernels::HostContext* context)
    : HostTrustRegionVectors(ceres_context, num_threads),
      context_(context),
      partial_sums_(max_size / kChunk + 1) {}

bool OrderedVectors::ModelCostChange(int n,
                                     const double* residuals,
                                     const double* model_residuals,
                                     double* model_cost_change) {
  context_->ParallelFor(n, kChunk, [&](int64_t begin, int64_t end) {
    double sum = 0.0;
    for (int64_t i = begin; i < end; ++i) {
      sum += model_residuals[i] * (residuals[i] + model_residuals[i] / 2.0);
    }
    partial_sums_[begin / kChunk] = sum;
  });
  const int64_t num_chunks = (n + kChunk - 1) / kChunk;
  *model_cost_change = -std::accumulate(
      partial_sums_.begin(), partial_sums_.begin() + num_chunks, 0.0);
  return true;
}

}  // namespace ceres_ext
