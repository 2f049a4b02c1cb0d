// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "cuda_kernels/ops/jacobian_products.h"

#include "cuda_kernels/host/host_jacobian.h"
#include "cuda_kernels/structure/host_workspace.h"

namespace ceres_ext::kernels {
namespace {

using namespace host;  // NOLINT: the loops of all bodies.

// to = from, or += .
template <int N>
void Store(const double* from, bool accumulate, double* to) {
  for (int i = 0; i < N; ++i) {
    to[i] = accumulate ? to[i] + from[i] : from[i];
  }
}

}  // namespace

template <typename Source>
Status Run(const RightMultiplyParams<Source>& params, HostMachine* machine) {
  using Jacobian = HostJacobian<Source>;
  constexpr int kLocalDim = Jacobian::kLocalDim;
  const ObservationIndexView& index = params.index;
  const Jacobian jacobian(params.jacobian, index, machine);
  const double* local_x =
      jacobian.MapCameras(index.num_cameras, params.camera_x);
  ForEachPoint(index,
               0,
               machine,
               [&](int32_t p, int64_t first, int64_t last, int /*thread*/) {
                 typename Jacobian::Blocks blocks;
                 for (int64_t k = first; k < last; ++k) {
                   const int32_t c = index.camera_id[k];
                   blocks.Load(jacobian, k, c, p);
                   double y[2];
                   MultiplyCamera<kLocalDim>(
                       blocks.jc, local_x + int64_t{kLocalDim} * c, y);
                   MultiplyPointAndAccumulate(
                       blocks.jp, params.point_x + int64_t{3} * p, y);
                   Store<2>(y, params.accumulate, params.y + 2 * k);
                 }
               });
  return {};
}

template <typename Source>
Status Run(const LeftMultiplyParams<Source>& params, HostMachine* machine) {
  constexpr int C = Source::kCameraDim;
  using Jacobian = HostJacobian<Source>;
  constexpr int kLocalDim = Jacobian::kLocalDim;
  const ObservationIndexView& index = params.index;
  const Jacobian jacobian(params.jacobian, index, machine);
  const int row_size = params.camera_x == nullptr ? 0 : kLocalDim;
  ForEachPoint(index,
               row_size,
               machine,
               [&](int32_t p, int64_t first, int64_t last, int /*thread*/) {
                 typename Jacobian::Blocks blocks;
                 double sum[3] = {};
                 for (int64_t k = first; k < last; ++k) {
                   blocks.Load(jacobian, k, index.camera_id[k], p);
                   const double* y = params.y + 2 * k;
                   TransposeMultiplyPoint(blocks.jp, y, sum);
                   if (row_size > 0) {
                     TransposeMultiplyCamera<kLocalDim>(
                         blocks.jc, y, CameraSum(index, kLocalDim, k));
                   }
                 }
                 if (params.point_x != nullptr) {
                   Store<3>(
                       sum, params.accumulate, params.point_x + int64_t{3} * p);
                 }
               });
  if (params.camera_x == nullptr) {
    return {};
  }
  ForEachCamera<kLocalDim>(
      index, kLocalDim, 0, machine, [&](int32_t c, const double* sum) {
        double mapped[C];
        jacobian.UnmapVector(c, sum, mapped);
        Store<C>(mapped, params.accumulate, params.camera_x + int64_t{C} * c);
      });
  return {};
}

template <typename Source>
Status Run(const SquaredColumnNormsParams<Source>& params,
           HostMachine* machine) {
  using T = typename Source::Value;
  constexpr int C = Source::kCameraDim;
  const ObservationIndexView& index = params.index;
  const int row_size = params.camera_x == nullptr ? 0 : C;
  ForEachPoint(index,
               row_size,
               machine,
               [&](int32_t p, int64_t first, int64_t last, int /*thread*/) {
                 double sum[3] = {};
                 for (int64_t k = first; k < last; ++k) {
                   const int32_t c = index.camera_id[k];
                   T jc[2 * C];
                   T jp[6];
                   params.jacobian.Load(k, c, p, jc, jp);
                   for (int i = 0; i < 6; ++i) {
                     const double value = static_cast<double>(jp[i]);
                     sum[i % 3] += value * value;
                   }
                   if (row_size == 0) {
                     continue;
                   }
                   double* row = CameraSum(index, C, k);
                   for (int i = 0; i < C; ++i) {
                     const double a = static_cast<double>(jc[i]);
                     const double b = static_cast<double>(jc[C + i]);
                     row[i] += a * a + b * b;
                   }
                 }
                 if (params.point_x != nullptr) {
                   Store<3>(sum, false, params.point_x + int64_t{3} * p);
                 }
               });
  if (params.camera_x != nullptr) {
    ForEachCamera<C>(index, C, 0, machine, [&](int32_t c, const double* sum) {
      Store<C>(sum, false, params.camera_x + int64_t{C} * c);
    });
  }
  return {};
}

template <typename T, int C>
Status Run(const ScaleColumnsParams<T, C, kHostLayout>& params,
           HostMachine* machine) {
  const ObservationIndexView& index = params.index;
  ForEachPoint(index,
               0,
               machine,
               [&](int32_t p, int64_t first, int64_t last, int /*thread*/) {
                 const double* point_scale =
                     params.point_scale + int64_t{3} * p;
                 for (int64_t k = first; k < last; ++k) {
                   const double* camera_scale =
                       params.camera_scale + int64_t{C} * index.camera_id[k];
                   T* jc = &params.camera_blocks(k, 0);
                   T* jp = &params.point_blocks(k, 0);
                   for (int i = 0; i < C; ++i) {
                     jc[i] = static_cast<T>(jc[i] * camera_scale[i]);
                     jc[C + i] = static_cast<T>(jc[C + i] * camera_scale[i]);
                   }
                   for (int i = 0; i < 6; ++i) {
                     jp[i] = static_cast<T>(jp[i] * point_scale[i % 3]);
                   }
                 }
               });
  return {};
}

#define CERES_EXT_INSTANTIATE_SOURCE(...)                                     \
  template Status Run(const RightMultiplyParams<__VA_ARGS__>&, HostMachine*); \
  template Status Run(const LeftMultiplyParams<__VA_ARGS__>&, HostMachine*);  \
  template Status Run(const SquaredColumnNormsParams<__VA_ARGS__>&,           \
                      HostMachine*)

#define CERES_EXT_INSTANTIATE_STORED(T, C)                          \
  CERES_EXT_INSTANTIATE_SOURCE(StoredJacobian<T, C, kHostLayout>);  \
  template Status Run(const ScaleColumnsParams<T, C, kHostLayout>&, \
                      HostMachine*)

CERES_EXT_INSTANTIATE_STORED(double, 9);
CERES_EXT_INSTANTIATE_STORED(double, 10);
CERES_EXT_INSTANTIATE_STORED(float, 9);
CERES_EXT_INSTANTIATE_STORED(float, 10);
CERES_EXT_INSTANTIATE_SOURCE(RecomputedJacobian<double, 9>);
CERES_EXT_INSTANTIATE_SOURCE(RecomputedJacobian<double, 10>);

}  // namespace ceres_ext::kernels
