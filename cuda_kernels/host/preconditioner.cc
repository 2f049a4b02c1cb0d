// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "cuda_kernels/ops/preconditioner.h"

#include <algorithm>

#include "cuda_kernels/machine/host_machine.h"
#include "cuda_kernels/ops/normal_blocks.h"

namespace ceres_ext::kernels {
namespace {

// Elements of a vector per task.
constexpr int64_t kGrain = 4096;

}  // namespace

template <int N>
Status Run(const InvertBlockDiagonalParams<N, kHostLayout>& params,
           HostMachine* machine) {
  std::atomic<int32_t> first_breakdown{Breakdown::kNone};
  machine->context()->ParallelFor(
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
  return {};
}

template <int N>
Status Run(const ApplyBlockDiagonalParams<N, kHostLayout>& params,
           HostMachine* machine) {
  if (PcgHasEnded(params.scalars)) {
    return {};
  }
  machine->context()->ParallelFor(
      params.num_blocks, kGrain / N, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          SymmetricMultiply<N>(
              &params.inverse(i, 0), params.r + N * i, params.z + N * i);
        }
      });
  return {};
}

#define CERES_EXT_INSTANTIATE(N)                                        \
  template Status Run(const InvertBlockDiagonalParams<N, kHostLayout>&, \
                      HostMachine*);                                    \
  template Status Run(const ApplyBlockDiagonalParams<N, kHostLayout>&,  \
                      HostMachine*)

CERES_EXT_INSTANTIATE(3);
CERES_EXT_INSTANTIATE(9);
CERES_EXT_INSTANTIATE(10);

}  // namespace ceres_ext::kernels
