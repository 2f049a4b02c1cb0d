// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include <algorithm>

#include "cuda_kernels/base/host_atomic.h"
#include "cuda_kernels/machine/host_context.h"
#include "cuda_kernels/ops/normal_blocks.h"
#include "cuda_kernels/ops/preconditioner.h"

namespace ceres_ext::kernels::host {
namespace {

// Elements of a vector per task.
constexpr int64_t kGrain = 4096;

}  // namespace

template <int N>
void InvertBlockDiagonal(
    const InvertBlockDiagonalParams<N, kHostLayout>& params,
    HostContext* context) {
  std::atomic<int32_t> first_breakdown{Breakdown::kNone};
  context->ParallelFor(
      params.num_blocks,
      std::max<int64_t>(1, kGrain / (N * N * N)),
      [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          double damped[PackedSize(N)];
          std::copy_n(&params.a(i, 0), PackedSize(N), damped);
          if (params.diagonal != nullptr) {
            AddSquaredDiagonal<N>(params.diagonal + N * i, damped);
          }
          double inverse[PackedSize(N)];
          std::copy_n(damped, PackedSize(N), inverse);
          if (!InvertSymmetric<N>(inverse)) {
            std::copy_n(damped, PackedSize(N), inverse);
            const double* d =
                params.diagonal == nullptr ? nullptr : params.diagonal + N * i;
            if (!InvertDiagonal<N>(d, inverse)) {
              AtomicMinimum(static_cast<int32_t>(i), &first_breakdown);
            }
          }
          std::copy_n(inverse, PackedSize(N), &params.inverse(i, 0));
        }
      });
  *params.first_breakdown = first_breakdown.load();
}

template <int N>
void ApplyBlockDiagonal(const ApplyBlockDiagonalParams<N, kHostLayout>& params,
                        HostContext* context) {
  if (params.scalars != nullptr && params.scalars->end != PcgEnd::kRunning) {
    return;
  }
  context->ParallelFor(
      params.num_blocks, kGrain / N, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          SymmetricMultiply<N>(
              &params.inverse(i, 0), params.r + N * i, params.z + N * i);
        }
      });
}

#define CERES_EXT_INSTANTIATE(N)                                       \
  template void InvertBlockDiagonal(                                   \
      const InvertBlockDiagonalParams<N, kHostLayout>&, HostContext*); \
  template void ApplyBlockDiagonal(                                    \
      const ApplyBlockDiagonalParams<N, kHostLayout>&, HostContext*)

CERES_EXT_INSTANTIATE(3);
CERES_EXT_INSTANTIATE(9);
CERES_EXT_INSTANTIATE(10);

}  // namespace ceres_ext::kernels::host
