// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "cuda_kernels/ops/schur_products.h"

#include "cuda_kernels/host/host_jacobian.h"
#include "cuda_kernels/structure/host_workspace.h"

namespace ceres_ext::kernels {
namespace {

using namespace host;  // NOLINT: the loops of all bodies.

// q = sum + D^2 p, where D may be null.
template <int N>
void AddDamping(const double* diagonal, const double* p, double* q) {
  if (diagonal != nullptr) {
    for (int i = 0; i < N; ++i) {
      q[i] += diagonal[i] * diagonal[i] * p[i];
    }
  }
}

// The block of a vector with N values per block, null where the vector is.
template <int N, typename T>
T* Block(T* vector, int64_t block) {
  return vector == nullptr ? nullptr : vector + N * block;
}

// e += W' p, W is C x 3.
template <int C>
void TransposeMultiplyW(const double* w, const double* p, double* e) {
  double e0 = e[0];
  double e1 = e[1];
  double e2 = e[2];
  for (int i = 0; i < C; ++i) {
    e0 += w[3 * i] * p[i];
    e1 += w[3 * i + 1] * p[i];
    e2 += w[3 * i + 2] * p[i];
  }
  e[0] = e0;
  e[1] = e1;
  e[2] = e2;
}

// q += W e.
template <int C>
void MultiplyW(const double* w, const double* e, double* q) {
  for (int i = 0; i < C; ++i) {
    q[i] += w[3 * i] * e[0] + w[3 * i + 1] * e[1] + w[3 * i + 2] * e[2];
  }
}

}  // namespace

template <typename Source>
Status Run(const SchurProductImplicitWParams<Source, kHostLayout>& params,
           HostMachine* machine) {
  if (PcgHasEnded(params.scalars)) {
    return {};
  }
  constexpr int C = Source::kCameraDim;
  using Jacobian = HostJacobian<Source>;
  constexpr int kLocalDim = Jacobian::kLocalDim;
  const ObservationIndexView& index = params.index;
  const Jacobian jacobian(params.jacobian, index, machine);
  const double* local_p = jacobian.MapCameras(index.num_cameras, params.p);

  ForEachPoint(index,
               kLocalDim,
               machine,
               [&](int32_t p, int64_t first, int64_t last, int thread) {
                 typename Jacobian::Blocks blocks;
                 // Per observation y_k, then room for its blocks.
                 constexpr int kStride = 2 + Jacobian::kBlocksSize;
                 static_assert(kStride <= HostWorkspace::kPointScratch);
                 double* scratch = index.host_workspace->point_scratch(thread);
                 // y_k = Jc p_c, e = Vi sum_k Jp' y_k
                 double sum[3] = {};
                 for (int64_t k = first; k < last; ++k) {
                   const int32_t c = index.camera_id[k];
                   double* y_k = scratch + kStride * (k - first);
                   blocks.Keep(jacobian, k, c, p, y_k + 2);
                   MultiplyCamera<kLocalDim>(
                       blocks.jc, local_p + int64_t{kLocalDim} * c, y_k);
                   TransposeMultiplyPoint(blocks.jp, y_k, sum);
                 }
                 double e[3];
                 SymmetricMultiply<3>(&params.v_inverse(p, 0), sum, e);
                 const double minus_e[3] = {-e[0], -e[1], -e[2]};
                 // q_c += Jc' (y_k - Jp e)
                 for (int64_t k = first; k < last; ++k) {
                   double* y_k = scratch + kStride * (k - first);
                   blocks.Reload(jacobian, k, y_k + 2);
                   MultiplyPointAndAccumulate(blocks.jp, minus_e, y_k);
                   TransposeMultiplyCamera<kLocalDim>(
                       blocks.jc, y_k, CameraSum(index, kLocalDim, k));
                 }
               });
  ForEachCamera<kLocalDim>(
      index, kLocalDim, 0, machine, [&](int32_t c, const double* sum) {
        double* q = params.q + int64_t{C} * c;
        jacobian.UnmapVector(c, sum, q);
        AddDamping<C>(
            Block<C>(params.camera_diagonal, c), params.p + int64_t{C} * c, q);
      });
  return {};
}

template <typename T, int C>
Status Run(const SchurProductExplicitWParams<T, C, kHostLayout>& params,
           HostMachine* machine) {
  if (PcgHasEnded(params.scalars)) {
    return {};
  }
  const ObservationIndexView& index = params.index;
  ForEachPoint(index,
               C,
               machine,
               [&](int32_t p, int64_t first, int64_t last, int /*thread*/) {
                 double storage[3 * C];
                 // e = -Vi sum_k W_k' p_c
                 double sum[3] = {};
                 for (int64_t k = first; k < last; ++k) {
                   TransposeMultiplyW<C>(
                       AsDouble<C, 3>(&params.w(k, 0), storage),
                       params.p + int64_t{C} * index.camera_id[k],
                       sum);
                 }
                 double e[3];
                 SymmetricMultiply<3>(&params.v_inverse(p, 0), sum, e);
                 const double minus_e[3] = {-e[0], -e[1], -e[2]};
                 for (int64_t k = first; k < last; ++k) {
                   MultiplyW<C>(AsDouble<C, 3>(&params.w(k, 0), storage),
                                minus_e,
                                CameraSum(index, C, k));
                 }
               });
  ForEachCamera<C>(index, C, 0, machine, [&](int32_t c, const double* sum) {
    const double* p = params.p + int64_t{C} * c;
    double* q = params.q + int64_t{C} * c;
    SymmetricMultiply<C>(&params.u(c, 0), p, q);
    for (int i = 0; i < C; ++i) {
      q[i] += sum[i];
    }
    AddDamping<C>(Block<C>(params.camera_diagonal, c), p, q);
  });
  return {};
}

template <typename Source>
Status Run(const BackSubstituteImplicitWParams<Source, kHostLayout>& params,
           HostMachine* machine) {
  using Jacobian = HostJacobian<Source>;
  constexpr int kLocalDim = Jacobian::kLocalDim;
  const ObservationIndexView& index = params.index;
  const Jacobian jacobian(params.jacobian, index, machine);
  const double* local_z = jacobian.MapCameras(index.num_cameras, params.z);
  ForEachPoint(index,
               0,
               machine,
               [&](int32_t p, int64_t first, int64_t last, int /*thread*/) {
                 typename Jacobian::Blocks blocks;
                 double sum[3] = {};
                 for (int64_t k = first; k < last; ++k) {
                   const int32_t c = index.camera_id[k];
                   blocks.Load(jacobian, k, c, p);
                   double y[2];
                   MultiplyCamera<kLocalDim>(
                       blocks.jc, local_z + int64_t{kLocalDim} * c, y);
                   y[0] = params.b[2 * k] - y[0];
                   y[1] = params.b[2 * k + 1] - y[1];
                   TransposeMultiplyPoint(blocks.jp, y, sum);
                 }
                 SymmetricMultiply<3>(
                     &params.v_inverse(p, 0), sum, params.y + int64_t{3} * p);
               });
  return {};
}

template <typename T, int C>
Status Run(const BackSubstituteExplicitWParams<T, C, kHostLayout>& params,
           HostMachine* machine) {
  const ObservationIndexView& index = params.index;
  ForEachPoint(index,
               0,
               machine,
               [&](int32_t p, int64_t first, int64_t last, int /*thread*/) {
                 double storage[3 * C];
                 double sum[3] = {};
                 for (int64_t k = first; k < last; ++k) {
                   TransposeMultiplyW<C>(
                       AsDouble<C, 3>(&params.w(k, 0), storage),
                       params.z + int64_t{C} * index.camera_id[k],
                       sum);
                 }
                 for (int i = 0; i < 3; ++i) {
                   sum[i] = params.point_gradient[int64_t{3} * p + i] - sum[i];
                 }
                 SymmetricMultiply<3>(
                     &params.v_inverse(p, 0), sum, params.y + int64_t{3} * p);
               });
  return {};
}

template <typename Source>
Status Run(const NormalProductImplicitWParams<Source>& params,
           HostMachine* machine) {
  if (PcgHasEnded(params.scalars)) {
    return {};
  }
  constexpr int C = Source::kCameraDim;
  using Jacobian = HostJacobian<Source>;
  constexpr int kLocalDim = Jacobian::kLocalDim;
  const ObservationIndexView& index = params.index;
  const Jacobian jacobian(params.jacobian, index, machine);
  const double* local_p =
      jacobian.MapCameras(index.num_cameras, params.camera_p);
  ForEachPoint(index,
               kLocalDim,
               machine,
               [&](int32_t p, int64_t first, int64_t last, int /*thread*/) {
                 typename Jacobian::Blocks blocks;
                 const double* p_p = params.point_p + int64_t{3} * p;
                 double sum[3] = {};
                 for (int64_t k = first; k < last; ++k) {
                   const int32_t c = index.camera_id[k];
                   blocks.Load(jacobian, k, c, p);
                   double y[2];
                   MultiplyCamera<kLocalDim>(
                       blocks.jc, local_p + int64_t{kLocalDim} * c, y);
                   MultiplyPointAndAccumulate(blocks.jp, p_p, y);
                   TransposeMultiplyPoint(blocks.jp, y, sum);
                   TransposeMultiplyCamera<kLocalDim>(
                       blocks.jc, y, CameraSum(index, kLocalDim, k));
                 }
                 AddDamping<3>(Block<3>(params.point_diagonal, p), p_p, sum);
                 std::copy_n(sum, 3, params.point_q + int64_t{3} * p);
               });
  ForEachCamera<kLocalDim>(
      index, kLocalDim, 0, machine, [&](int32_t c, const double* sum) {
        double* q = params.camera_q + int64_t{C} * c;
        jacobian.UnmapVector(c, sum, q);
        AddDamping<C>(Block<C>(params.camera_diagonal, c),
                      params.camera_p + int64_t{C} * c,
                      q);
      });
  return {};
}

template <typename T, int C>
Status Run(const NormalProductExplicitWParams<T, C, kHostLayout>& params,
           HostMachine* machine) {
  if (PcgHasEnded(params.scalars)) {
    return {};
  }
  const ObservationIndexView& index = params.index;
  ForEachPoint(
      index,
      C,
      machine,
      [&](int32_t p, int64_t first, int64_t last, int /*thread*/) {
        double storage[3 * C];
        const double* p_p = params.point_p + int64_t{3} * p;
        double* q_p = params.point_q + int64_t{3} * p;
        double sum[3];
        SymmetricMultiply<3>(&params.v(p, 0), p_p, sum);
        AddDamping<3>(Block<3>(params.point_diagonal, p), p_p, sum);
        for (int64_t k = first; k < last; ++k) {
          const double* w = AsDouble<C, 3>(&params.w(k, 0), storage);
          TransposeMultiplyW<C>(
              w, params.camera_p + int64_t{C} * index.camera_id[k], sum);
          MultiplyW<C>(w, p_p, CameraSum(index, C, k));
        }
        std::copy_n(sum, 3, q_p);
      });
  ForEachCamera<C>(index, C, 0, machine, [&](int32_t c, const double* sum) {
    const double* p = params.camera_p + int64_t{C} * c;
    double* q = params.camera_q + int64_t{C} * c;
    SymmetricMultiply<C>(&params.u(c, 0), p, q);
    for (int i = 0; i < C; ++i) {
      q[i] += sum[i];
    }
    AddDamping<C>(Block<C>(params.camera_diagonal, c), p, q);
  });
  return {};
}

#define CERES_EXT_INSTANTIATE_SOURCE(...)                               \
  template Status Run(                                                  \
      const SchurProductImplicitWParams<__VA_ARGS__, kHostLayout>&,     \
      HostMachine*);                                                    \
  template Status Run(                                                  \
      const BackSubstituteImplicitWParams<__VA_ARGS__, kHostLayout>&,   \
      HostMachine*);                                                    \
  template Status Run(const NormalProductImplicitWParams<__VA_ARGS__>&, \
                      HostMachine*)

#define CERES_EXT_INSTANTIATE_STORED(T, C)                                     \
  CERES_EXT_INSTANTIATE_SOURCE(StoredJacobian<T, C, kHostLayout>);             \
  template Status Run(const SchurProductExplicitWParams<T, C, kHostLayout>&,   \
                      HostMachine*);                                           \
  template Status Run(const BackSubstituteExplicitWParams<T, C, kHostLayout>&, \
                      HostMachine*);                                           \
  template Status Run(const NormalProductExplicitWParams<T, C, kHostLayout>&,  \
                      HostMachine*)

CERES_EXT_INSTANTIATE_STORED(double, 9);
CERES_EXT_INSTANTIATE_STORED(double, 10);
CERES_EXT_INSTANTIATE_STORED(float, 9);
CERES_EXT_INSTANTIATE_STORED(float, 10);
CERES_EXT_INSTANTIATE_SOURCE(RecomputedJacobian<double, 9>);
CERES_EXT_INSTANTIATE_SOURCE(RecomputedJacobian<double, 10>);

}  // namespace ceres_ext::kernels
