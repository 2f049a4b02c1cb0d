// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "studies/explicit_w.h"

#include <algorithm>

#include "cuda_kernels/base/small_matrix.h"
#include "cuda_kernels/host/host_jacobian.h"
#include "cuda_kernels/model/jacobian_source.h"

namespace ceres_ext::bal {

using namespace kernels;        // NOLINT: the bodies are those of a kernel.
using namespace kernels::host;  // NOLINT

namespace {

// e += W' p.
template <typename Shape>
void TransposeMultiplyW(const double* w, const double* p, double* e) {
  constexpr int E = Shape::kE;
  double sum[E];
  std::copy_n(e, E, sum);
  for (int i = 0; i < Shape::kF; ++i) {
    for (int j = 0; j < E; ++j) {
      sum[j] += w[E * i + j] * p[i];
    }
  }
  std::copy_n(sum, E, e);
}

// q += W e.
template <typename Shape>
void MultiplyW(const double* w, const double* e, double* q) {
  MatrixMultiplyAndAccumulate<Shape::kF, Shape::kE>(w, e, q);
}

// q_c = (U_c + D_c^2) p_c + the sum of a camera.
template <typename Shape, typename Params>
void SumCameras(const Params& params,
                const double* vector,
                double* out,
                HostMachine* machine) {
  constexpr int C = Shape::kF;
  ForEachCamera<C>(
      params.index, C, 0, machine, [&](int32_t c, const double* sum) {
        const double* p = vector + int64_t{C} * c;
        double* q = out + int64_t{C} * c;
        SymmetricMultiply<C>(&params.u(c, 0), p, q);
        for (int i = 0; i < C; ++i) {
          q[i] += sum[i];
        }
        AddDamping<C>(params.camera_diagonal, c, p, q);
      });
}

}  // namespace

template <typename Source>
Status Run(const ExplicitBlocksParams<Source, kHostLayout>& params,
           HostMachine* machine) {
  using Shape = typename Source::Shape;
  using T = typename Source::Value;
  constexpr int E = Shape::kE;
  constexpr int F = Shape::kF;
  CERES_EXT_RETURN_IF_ERROR(Run(params.normal, machine));
  const ObservationIndexRef& index = params.normal.index;
  const HostJacobian<Source> jacobian(params.normal.jacobian, index, machine);
  ForEachPoint(index,
               0,
               machine,
               [&](int32_t p, int64_t first, int64_t last, int /*thread*/) {
                 typename HostJacobian<Source>::Blocks blocks;
                 for (int64_t k = first; k < last; ++k) {
                   blocks.Load(jacobian, k, index.camera_id[k], p);
                   for (int i = 0; i < F; ++i) {
                     for (int j = 0; j < E; ++j) {
                       double sum = blocks.jc[i] * blocks.jp[j];
                       for (int r = 1; r < Shape::kNumResiduals; ++r) {
                         sum += blocks.jc[F * r + i] * blocks.jp[E * r + j];
                       }
                       params.w(k, E * i + j) = static_cast<T>(sum);
                     }
                   }
                 }
               });
  return {};
}

template <typename T, typename Shape>
Status Run(const SchurProductExplicitWParams<T, Shape, kHostLayout>& params,
           HostMachine* machine) {
  constexpr int C = Shape::kF;
  constexpr int E = Shape::kE;
  if (PcgHasEnded(params.scalars)) {
    return {};
  }
  const ObservationIndexRef& index = params.index;
  ForEachPoint(index,
               C,
               machine,
               [&](int32_t p, int64_t first, int64_t last, int /*thread*/) {
                 double storage[Shape::kWSize];
                 // e = -Vi sum_k W_k' p_c
                 double sum[E] = {};
                 for (int64_t k = first; k < last; ++k) {
                   TransposeMultiplyW<Shape>(
                       AsDouble<C, E>(&params.w(k, 0), storage),
                       params.p + int64_t{C} * index.camera_id[k],
                       sum);
                 }
                 double minus_e[E];
                 SymmetricMultiply<E>(&params.v_inverse(p, 0), sum, minus_e);
                 for (double& x : minus_e) {
                   x = -x;
                 }
                 for (int64_t k = first; k < last; ++k) {
                   MultiplyW<Shape>(AsDouble<C, E>(&params.w(k, 0), storage),
                                    minus_e,
                                    CameraSum(index, C, k));
                 }
               });
  SumCameras<Shape>(params, params.p, params.q, machine);
  return {};
}

template <typename T, typename Shape>
Status Run(const BackSubstituteExplicitWParams<T, Shape, kHostLayout>& params,
           HostMachine* machine) {
  constexpr int C = Shape::kF;
  constexpr int E = Shape::kE;
  const ObservationIndexRef& index = params.index;
  ForEachPoint(index,
               0,
               machine,
               [&](int32_t p, int64_t first, int64_t last, int /*thread*/) {
                 double storage[Shape::kWSize];
                 double sum[E] = {};
                 for (int64_t k = first; k < last; ++k) {
                   TransposeMultiplyW<Shape>(
                       AsDouble<C, E>(&params.w(k, 0), storage),
                       params.z + int64_t{C} * index.camera_id[k],
                       sum);
                 }
                 for (int i = 0; i < E; ++i) {
                   sum[i] = params.point_gradient[int64_t{E} * p + i] - sum[i];
                 }
                 SymmetricMultiply<E>(
                     &params.v_inverse(p, 0), sum, params.y + int64_t{E} * p);
               });
  return {};
}

template <typename T, typename Shape>
Status Run(const NormalProductExplicitWParams<T, Shape, kHostLayout>& params,
           HostMachine* machine) {
  constexpr int C = Shape::kF;
  constexpr int E = Shape::kE;
  if (PcgHasEnded(params.scalars)) {
    return {};
  }
  const ObservationIndexRef& index = params.index;
  ForEachPoint(
      index,
      C,
      machine,
      [&](int32_t p, int64_t first, int64_t last, int /*thread*/) {
        double storage[Shape::kWSize];
        const double* p_p = params.point_p + int64_t{E} * p;
        double sum[E];
        SymmetricMultiply<E>(&params.v(p, 0), p_p, sum);
        AddDamping<E>(params.point_diagonal, p, p_p, sum);
        for (int64_t k = first; k < last; ++k) {
          const double* w = AsDouble<C, E>(&params.w(k, 0), storage);
          TransposeMultiplyW<Shape>(
              w, params.camera_p + int64_t{C} * index.camera_id[k], sum);
          MultiplyW<Shape>(w, p_p, CameraSum(index, C, k));
        }
        std::copy_n(sum, E, params.point_q + int64_t{E} * p);
      });
  SumCameras<Shape>(params, params.camera_p, params.camera_q, machine);
  return {};
}

#define CERES_EXT_INSTANTIATE(T)                                              \
  template Status Run(                                                        \
      const ExplicitBlocksParams<StoredJacobian<T, BalShape<9>, kHostLayout>, \
                                 kHostLayout>&,                               \
      HostMachine*);                                                          \
  template Status Run(                                                        \
      const SchurProductExplicitWParams<T, BalShape<9>, kHostLayout>&,        \
      HostMachine*);                                                          \
  template Status Run(                                                        \
      const BackSubstituteExplicitWParams<T, BalShape<9>, kHostLayout>&,      \
      HostMachine*);                                                          \
  template Status Run(                                                        \
      const NormalProductExplicitWParams<T, BalShape<9>, kHostLayout>&,       \
      HostMachine*)

CERES_EXT_INSTANTIATE(double);
CERES_EXT_INSTANTIATE(float);

}  // namespace ceres_ext::bal
