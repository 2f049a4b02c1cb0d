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
  using Shape = typename Source::Shape;
  using Jacobian = HostJacobian<Source>;
  using Local = typename Jacobian::Local;
  const ObservationIndexRef& index = params.index;
  const Jacobian jacobian(params.jacobian, index, machine);
  const double* local_x =
      jacobian.MapCameras(index.num_cameras, params.camera_x);
  ForEachPoint(
      index,
      0,
      machine,
      [&](int32_t p, int64_t first, int64_t last, int /*thread*/) {
        typename Jacobian::Blocks blocks;
        for (int64_t k = first; k < last; ++k) {
          const int32_t c = index.camera_id[k];
          blocks.Load(jacobian, k, c, p);
          double y[Shape::kNumResiduals];
          MultiplyCamera<Local>(blocks.jc, local_x + int64_t{Local::kF} * c, y);
          MultiplyPointAndAccumulate<Local>(
              blocks.jp, params.point_x + int64_t{Shape::kE} * p, y);
          Store<Shape::kNumResiduals>(
              y, params.accumulate, params.y + Shape::kNumResiduals * k);
        }
      });
  return {};
}

template <typename Source>
Status Run(const LeftMultiplyParams<Source>& params, HostMachine* machine) {
  using Shape = typename Source::Shape;
  constexpr int C = Shape::kF;
  using Jacobian = HostJacobian<Source>;
  using Local = typename Jacobian::Local;
  const ObservationIndexRef& index = params.index;
  const Jacobian jacobian(params.jacobian, index, machine);
  const int row_size = params.camera_x == nullptr ? 0 : Local::kF;
  ForEachPoint(index,
               row_size,
               machine,
               [&](int32_t p, int64_t first, int64_t last, int /*thread*/) {
                 typename Jacobian::Blocks blocks;
                 double sum[Shape::kE] = {};
                 for (int64_t k = first; k < last; ++k) {
                   blocks.Load(jacobian, k, index.camera_id[k], p);
                   const double* y = params.y + Shape::kNumResiduals * k;
                   TransposeMultiplyPoint<Local>(blocks.jp, y, sum);
                   if (row_size > 0) {
                     TransposeMultiplyCamera<Local>(
                         blocks.jc, y, CameraSum(index, Local::kF, k));
                   }
                 }
                 if (params.point_x != nullptr) {
                   Store<Shape::kE>(sum,
                                    params.accumulate,
                                    params.point_x + int64_t{Shape::kE} * p);
                 }
               });
  if (params.camera_x == nullptr) {
    return {};
  }
  ForEachCamera<Local::kF>(
      index, Local::kF, 0, machine, [&](int32_t c, const double* sum) {
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
  using Shape = typename Source::Shape;
  constexpr int C = Shape::kF;
  const ObservationIndexRef& index = params.index;
  const int row_size = params.camera_x == nullptr ? 0 : C;
  ForEachPoint(index,
               row_size,
               machine,
               [&](int32_t p, int64_t first, int64_t last, int /*thread*/) {
                 double sum[Shape::kE] = {};
                 for (int64_t k = first; k < last; ++k) {
                   const int32_t c = index.camera_id[k];
                   T jc[Shape::kFSize];
                   T jp[Shape::kESize];
                   params.jacobian.Load(k, c, p, jc, jp);
                   for (int i = 0; i < Shape::kESize; ++i) {
                     const double value = static_cast<double>(jp[i]);
                     sum[i % Shape::kE] += value * value;
                   }
                   if (row_size == 0) {
                     continue;
                   }
                   double* row = CameraSum(index, C, k);
                   for (int i = 0; i < C; ++i) {
                     double square = 0.0;
                     for (int r = 0; r < Shape::kNumResiduals; ++r) {
                       const double value = static_cast<double>(jc[C * r + i]);
                       square += value * value;
                     }
                     row[i] += square;
                   }
                 }
                 if (params.point_x != nullptr) {
                   Store<Shape::kE>(
                       sum, false, params.point_x + int64_t{Shape::kE} * p);
                 }
               });
  if (params.camera_x != nullptr) {
    ForEachCamera<C>(index, C, 0, machine, [&](int32_t c, const double* sum) {
      Store<C>(sum, false, params.camera_x + int64_t{C} * c);
    });
  }
  return {};
}

#define CERES_EXT_INSTANTIATE(...)                                            \
  template Status Run(const RightMultiplyParams<__VA_ARGS__>&, HostMachine*); \
  template Status Run(const LeftMultiplyParams<__VA_ARGS__>&, HostMachine*);  \
  template Status Run(const SquaredColumnNormsParams<__VA_ARGS__>&,           \
                      HostMachine*);
CERES_EXT_INSTANTIATE_ON_HOST()
CERES_EXT_INSTANTIATE(NestedJacobian<kHostLayout>)

}  // namespace ceres_ext::kernels
