// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "cuda_kernels/ops/evaluate.h"

#include <algorithm>
#include <atomic>

#include "cuda_kernels/host/host_jacobian.h"
#include "cuda_kernels/machine/host_machine.h"
#include "cuda_kernels/structure/host_workspace.h"

namespace ceres_ext::kernels {
namespace {

using namespace host;  // NOLINT: the loops of all bodies.

// Converts and stores; false if a stored value is not finite.
template <int N, typename T>
bool StoreBlock(const double* from, T* to) {
  // 0 * value is zero or, where the value is not finite, not a number.
  T zero = 0;
  for (int i = 0; i < N; ++i) {
    to[i] = static_cast<T>(from[i]);
  }
#pragma omp simd reduction(+ : zero)
  for (int i = 0; i < N; ++i) {
    zero += T(0) * to[i];
  }
  return zero == T(0);
}

template <int C>
int32_t ClassifyMaps(int64_t num_values,
                     const double* maps,
                     HostContext* context) {
  std::atomic<int32_t> bits{0};
  context->ParallelFor(num_values, kSumGrain, [&](int64_t begin, int64_t end) {
    int32_t chunk = 0;
    for (int64_t at = begin; at < end; ++at) {
      chunk |= ClassifyMapValue<C>(maps, at);
    }
    bits |= chunk;
  });
  return bits;
}

}  // namespace

template <typename T, int C>
Status Run(const PrepareCamerasParams<T, C>& params, HostMachine* machine) {
  CERES_EXT_RETURN_IF_ERROR(Validate(params));
  machine->context()->ParallelFor(
      params.num_cameras, kCameraGrain, [&](int64_t begin, int64_t end) {
        for (int64_t c = begin; c < end; ++c) {
          if (params.parameters == CameraParameters::kAngleAxis) {
            PrepareCamera<CameraParameters::kAngleAxis>(params, c);
          } else {
            PrepareCamera<CameraParameters::kQuaternion>(params, c);
          }
        }
      });
  return {};
}

// Order: sums per chunk of points, then the chunks from the first on.
template <typename T, int C>
Status Run(const EvaluateJacobianParams<T, C, kHostLayout>& params,
           HostMachine* machine) {
  using Shape = BalShape<C>;
  const ObservationIndexRef& index = params.index;
  const int row_size = params.camera_gradient == nullptr ? 0 : C;
  const int32_t map_bits =
      ClassifyMaps<C>(int64_t{kBalLocalCameraDim * C} * index.num_cameras,
                      params.camera_maps,
                      machine->context());
  double* sums = index.host_workspace->chunk_sums();
  ForEachChunk(
      index,
      row_size,
      machine,
      [&](int64_t chunk, int32_t begin, int32_t end, int /*thread*/) {
        double squared_norm = 0.0;
        double num_not_finite = 0.0;
        for (int32_t p = begin; p < end; ++p) {
          double point_gradient[Shape::kE] = {};
          for (int64_t k = index.point_begin[p]; k < index.point_begin[p + 1];
               ++k) {
            double residual[Shape::kNumResiduals];
            double jc[Shape::kFSize];
            double jp[Shape::kESize];
            EvaluateObservation(params, map_bits, k, residual, jc, jp);
            squared_norm +=
                residual[0] * residual[0] + residual[1] * residual[1];
            const bool jc_finite =
                StoreBlock<Shape::kFSize>(jc, &params.camera_blocks(k, 0));
            const bool jp_finite =
                StoreBlock<Shape::kESize>(jp, &params.point_blocks(k, 0));
            const bool finite =
                AllFinite(residual, 2) && jc_finite && jp_finite;
            num_not_finite += finite ? 0.0 : 1.0;
            if (params.residuals != nullptr) {
              std::copy_n(residual, 2, params.residuals + 2 * k);
            }
            TransposeMultiplyPoint<Shape>(jp, residual, point_gradient);
            if (row_size > 0) {
              TransposeMultiplyCamera<Shape>(
                  jc, residual, CameraSum(index, C, k));
            }
          }
          if (params.point_gradient != nullptr) {
            std::copy_n(point_gradient,
                        Shape::kE,
                        params.point_gradient + int64_t{Shape::kE} * p);
          }
        }
        sums[2 * chunk] = squared_norm;
        sums[2 * chunk + 1] = num_not_finite;
      });
  TwoSums total;
  for (int64_t i = 0; i < index.host_workspace->num_chunks(); ++i) {
    total.first += sums[2 * i];
    total.second += sums[2 * i + 1];
  }
  *params.evaluation = {0.5 * total.first, static_cast<int64_t>(total.second)};
  if (row_size > 0) {
    ForEachCamera<C>(index, C, 0, machine, [&](int32_t c, const double* sum) {
      std::copy_n(sum, C, params.camera_gradient + int64_t{C} * c);
    });
  }
  return {};
}

#define CERES_EXT_INSTANTIATE(T, C)                                     \
  template Status Run(const PrepareCamerasParams<T, C>&, HostMachine*); \
  template Status Run(const EvaluateJacobianParams<T, C, kHostLayout>&, \
                      HostMachine*)

CERES_EXT_INSTANTIATE(double, 9);
CERES_EXT_INSTANTIATE(double, 10);
CERES_EXT_INSTANTIATE(float, 9);
CERES_EXT_INSTANTIATE(float, 10);

}  // namespace ceres_ext::kernels
