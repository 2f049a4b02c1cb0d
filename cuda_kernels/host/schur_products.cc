// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "cuda_kernels/ops/schur_products.h"

#include <algorithm>

#include "cuda_kernels/host/host_jacobian.h"
#include "cuda_kernels/structure/host_workspace.h"

namespace ceres_ext::kernels {

using namespace host;  // NOLINT: the loops of all bodies.

namespace {

template <bool kEliminatedPart, typename Source>
void SchurProduct(
    const SchurProductImplicitWParams<Source, kHostLayout>& params,
    HostMachine* machine) {
  using Shape = typename Source::Shape;
  constexpr int C = Shape::kF;
  using Jacobian = HostJacobian<Source>;
  using Local = typename Jacobian::Local;
  const ObservationIndexRef& index = params.index;
  const Jacobian jacobian(params.jacobian, index, machine);
  const double* local_p = jacobian.MapCameras(index.num_cameras, params.p);

  ForEachPoint(
      index,
      Local::kF,
      machine,
      [&](int32_t p, int64_t first, int64_t last, int thread) {
        typename Jacobian::Blocks blocks;
        // Per observation y_k, then room for its blocks.
        constexpr int R = Shape::kNumResiduals;
        constexpr int kStride = R + Jacobian::kBlocksSize;
        static_assert(kStride <= HostWorkspace::PointScratch(Local::kF));
        double* scratch = index.host_workspace->point_scratch(thread);
        // y_k = Jc p_c, e = Vi sum_k Jp' y_k
        double sum[Shape::kE] = {};
        for (int64_t k = first; k < last; ++k) {
          const int32_t c = index.camera_id[k];
          double* y_k = scratch + kStride * (k - first);
          blocks.Keep(jacobian, k, c, p, y_k + R);
          MultiplyCamera<Local>(
              blocks.jc, local_p + int64_t{Local::kF} * c, y_k);
          TransposeMultiplyPoint<Local>(blocks.jp, y_k, sum);
        }
        double minus_e[Shape::kE];
        SymmetricMultiply<Shape::kE>(&params.v_inverse(p, 0), sum, minus_e);
        for (double& x : minus_e) {
          x = -x;
        }
        // q_c += Jc' (y_k - Jp e)
        for (int64_t k = first; k < last; ++k) {
          double* y_k = scratch + kStride * (k - first);
          blocks.Reload(jacobian, k, y_k + R);
          if constexpr (kEliminatedPart) {
            std::fill_n(y_k, R, 0.0);
          }
          MultiplyPointAndAccumulate<Local>(blocks.jp, minus_e, y_k);
          TransposeMultiplyCamera<Local>(
              blocks.jc, y_k, CameraSum(index, Local::kF, k));
        }
      });
  ForEachCamera<Local::kF>(
      index, Local::kF, 0, machine, [&](int32_t c, const double* sum) {
        double* q = params.q + int64_t{C} * c;
        jacobian.UnmapVector(c, sum, q);
        AddDamping<C>(params.camera_diagonal, c, params.p + int64_t{C} * c, q);
      });
}

}  // namespace

template <typename Source>
Status Run(const SchurProductImplicitWParams<Source, kHostLayout>& params,
           HostMachine* machine) {
  if (PcgHasEnded(params.scalars)) {
    return {};
  }
  if (params.eliminated_part) {
    SchurProduct<true>(params, machine);
  } else {
    SchurProduct<false>(params, machine);
  }
  return {};
}

template <typename Source>
Status Run(const BackSubstituteImplicitWParams<Source, kHostLayout>& params,
           HostMachine* machine) {
  using Shape = typename Source::Shape;
  constexpr int R = Shape::kNumResiduals;
  using Jacobian = HostJacobian<Source>;
  using Local = typename Jacobian::Local;
  const ObservationIndexRef& index = params.index;
  const Jacobian jacobian(params.jacobian, index, machine);
  const double* local_z = jacobian.MapCameras(index.num_cameras, params.z);
  ForEachPoint(
      index,
      0,
      machine,
      [&](int32_t p, int64_t first, int64_t last, int /*thread*/) {
        typename Jacobian::Blocks blocks;
        double sum[Shape::kE] = {};
        for (int64_t k = first; k < last; ++k) {
          const int32_t c = index.camera_id[k];
          blocks.Load(jacobian, k, c, p);
          double y[R];
          MultiplyCamera<Local>(blocks.jc, local_z + int64_t{Local::kF} * c, y);
          for (int r = 0; r < R; ++r) {
            y[r] = params.b[R * k + r] - y[r];
          }
          TransposeMultiplyPoint<Local>(blocks.jp, y, sum);
        }
        SymmetricMultiply<Shape::kE>(
            &params.v_inverse(p, 0), sum, params.y + int64_t{Shape::kE} * p);
      });
  return {};
}

template <typename Source>
Status Run(const NormalProductImplicitWParams<Source>& params,
           HostMachine* machine) {
  if (PcgHasEnded(params.scalars)) {
    return {};
  }
  using Shape = typename Source::Shape;
  constexpr int C = Shape::kF;
  using Jacobian = HostJacobian<Source>;
  using Local = typename Jacobian::Local;
  const ObservationIndexRef& index = params.index;
  const Jacobian jacobian(params.jacobian, index, machine);
  const double* local_p =
      jacobian.MapCameras(index.num_cameras, params.camera_p);
  ForEachPoint(
      index,
      Local::kF,
      machine,
      [&](int32_t p, int64_t first, int64_t last, int /*thread*/) {
        typename Jacobian::Blocks blocks;
        const double* p_p = params.point_p + int64_t{Shape::kE} * p;
        double sum[Shape::kE] = {};
        for (int64_t k = first; k < last; ++k) {
          const int32_t c = index.camera_id[k];
          blocks.Load(jacobian, k, c, p);
          double y[Shape::kNumResiduals];
          MultiplyCamera<Local>(blocks.jc, local_p + int64_t{Local::kF} * c, y);
          MultiplyPointAndAccumulate<Local>(blocks.jp, p_p, y);
          TransposeMultiplyPoint<Local>(blocks.jp, y, sum);
          TransposeMultiplyCamera<Local>(
              blocks.jc, y, CameraSum(index, Local::kF, k));
        }
        if (params.point_q != nullptr) {
          AddDamping<Shape::kE>(params.point_diagonal, p, p_p, sum);
          std::copy_n(sum, Shape::kE, params.point_q + int64_t{Shape::kE} * p);
        }
      });
  ForEachCamera<Local::kF>(
      index, Local::kF, 0, machine, [&](int32_t c, const double* sum) {
        double* q = params.camera_q + int64_t{C} * c;
        jacobian.UnmapVector(c, sum, q);
        AddDamping<C>(
            params.camera_diagonal, c, params.camera_p + int64_t{C} * c, q);
      });
  return {};
}

#define CERES_EXT_INSTANTIATE(...)                                      \
  template Status Run(                                                  \
      const SchurProductImplicitWParams<__VA_ARGS__, kHostLayout>&,     \
      HostMachine*);                                                    \
  template Status Run(                                                  \
      const BackSubstituteImplicitWParams<__VA_ARGS__, kHostLayout>&,   \
      HostMachine*);                                                    \
  template Status Run(const NormalProductImplicitWParams<__VA_ARGS__>&, \
                      HostMachine*);
CERES_EXT_INSTANTIATE_ON_HOST()
CERES_EXT_INSTANTIATE(NestedJacobian<kHostLayout>)

}  // namespace ceres_ext::kernels
