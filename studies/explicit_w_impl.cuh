// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The device bodies of explicit_w.h for any layout: tiles
// (cuda_kernels/cuda/stored_tiles.cuh) whose blocks are those of W. Included by
// .cu.cc files that instantiate them.
#ifndef STUDIES_EXPLICIT_W_IMPL_CUH_
#define STUDIES_EXPLICIT_W_IMPL_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda_kernels/base/small_matrix.h"
#include "cuda_kernels/cuda/stored_tiles.cuh"
#include "cuda_kernels/machine/cuda_launch.cuh"
#include "studies/explicit_w.h"

namespace ceres_ext::bal {

inline constexpr int kCouplingBlock = 128;

// W_k = Jc' Jp.
// Mapping: one thread per observation, in point order. Order: no sums.
// Traffic per observation: the Jacobian in, F E values out.
template <typename Source, kernels::BlockLayout kLayout>
__global__ void __launch_bounds__(kCouplingBlock)
    CouplingKernel(ExplicitBlocksParams<Source, kLayout> p) {
  using T = typename Source::Value;
  using Shape = typename Source::Shape;
  constexpr int E = Shape::kE;
  constexpr int F = Shape::kF;
  const kernels::ObservationIndexRef& index = p.normal.index;
  const int64_t k = int64_t{blockIdx.x} * kCouplingBlock + threadIdx.x;
  if (k >= index.num_observations) {
    return;  // No barrier follows.
  }
  T jc[Shape::kFSize];
  T jp[Shape::kESize];
  p.normal.jacobian.Load(k, index.camera_id[k], index.point_id[k], jc, jp);
#pragma unroll
  for (int i = 0; i < F; ++i) {
#pragma unroll
    for (int j = 0; j < E; ++j) {
      T sum = jc[i] * jp[j];
#pragma unroll
      for (int r = 1; r < Shape::kNumResiduals; ++r) {
        sum += jc[F * r + i] * jp[E * r + j];
      }
      p.w(k, E * i + j) = sum;
    }
  }
}

// W as a source of blocks.
template <typename T, typename ShapeIn, kernels::BlockLayout kLayoutIn>
struct CouplingSource {
  using Value = T;
  using Shape = ShapeIn;
  static constexpr kernels::BlockLayout kLayout = kLayoutIn;

  kernels::BlockRef<const T, Shape::kWSize, kLayoutIn> w;
};

// With U_c p_c added to the sum of a camera.
template <int kPackedF, kernels::BlockLayout kLayout>
struct ExplicitCameraTerms : kernels::CameraSumTerms {
  kernels::BlockRef<const double, kPackedF, kLayout> u;  // null: zero

  template <int F>
  __device__ double Term(int32_t c, int64_t at) const {
    using kernels::PackedIndex;
    double value = kernels::CameraSumTerms::Term<F>(c, at);
    if (u.data != nullptr) {
      const int64_t first = int64_t{F} * c;
      const int e = static_cast<int>(at - first);
      for (int i = 0; i < F; ++i) {
        value +=
            u(c, i <= e ? PackedIndex(e, i) : PackedIndex(i, e)) * p[first + i];
      }
    }
    return value;
  }
};

// s_p is replaced by g_p - s_p; out += V_p x_p. Null: not.
template <int E, kernels::BlockLayout kLayout>
struct ExplicitTileOperands : kernels::TileOperands<E, kLayout> {
  const double* point_gradient = nullptr;
  kernels::BlockRef<const double, kernels::PackedSize(E), kLayout> v;
};

// In place of that of TileOperands.
template <int kMode, int E, kernels::BlockLayout kLayout>
__device__ __forceinline__ void FinishPoint(
    const ExplicitTileOperands<E, kLayout>& operands,
    int64_t point,
    const double* v,
    int stride,
    double* s,
    double* x) {
  using kernels::PackedIndex;
  if (operands.point_gradient != nullptr) {
#pragma unroll
    for (int i = 0; i < E; ++i) {
      s[i] = operands.point_gradient[E * point + i] - s[i];
    }
  }
  if constexpr ((kMode & kernels::kUsePoint) != 0) {
    if (operands.v.data != nullptr) {
#pragma unroll
      for (int i = 0; i < E; ++i) {
        for (int j = 0; j < E; ++j) {
          s[i] += operands.v(point,
                             j <= i ? PackedIndex(i, j) : PackedIndex(j, i)) *
                  operands.point_x[E * point + j];
        }
      }
    }
  }
  const kernels::TileOperands<E, kLayout>& base = operands;
  kernels::FinishPoint<kMode>(base, point, v, stride, s, x);
}

// W_k alone: s_p = sum W_k' p_c, q_c = sum W_k x_p. U and V come in through
// Terms and Operands.
template <typename SourceIn>
struct CouplingBlocks {
  using Source = SourceIn;
  using Value = typename Source::Value;
  using T = Value;
  using Shape = typename Source::Shape;
  static constexpr kernels::BlockLayout kLayout = Source::kLayout;
  static constexpr int E = Shape::kE;
  static constexpr int F = Shape::kF;
  static constexpr int kMinBlocks = kernels::kStoredMinBlocks<T, F>;
  using Operands = ExplicitTileOperands<E, kLayout>;
  using Terms = ExplicitCameraTerms<Shape::kPackedF, kLayout>;

  T w[Shape::kWSize];
  T s_k[E];
  T given[E];

  __device__ __forceinline__ void Load(const Source& source, int64_t k) {
#pragma unroll
    for (int i = 0; i < Shape::kWSize; ++i) {
      w[i] = __ldcs(&source.w(k, i));
    }
  }

  template <int kMode>
  __device__ __forceinline__ void Forward(const T* p,
                                          const T* u,
                                          const double*) {
#pragma unroll
    for (int j = 0; j < E; ++j) {
      s_k[j] = T(0);
      if constexpr ((kMode & kernels::kUsePoint) != 0) {
        given[j] = u[j];
      }
    }
#pragma unroll
    for (int i = 0; i < F; ++i) {
#pragma unroll
      for (int j = 0; j < E; ++j) {
        s_k[j] += w[E * i + j] * p[i];
      }
    }
  }

  template <typename A>
  __device__ __forceinline__ void ToPoint(A* s) const {
#pragma unroll
    for (int j = 0; j < E; ++j) {
      s[j] += s_k[j];
    }
  }

  template <int kMode, typename A>
  __device__ __forceinline__ void ToCamera(const T* u, A* q) {
    const T* x = (kMode & kernels::kEliminate) != 0 ? u : given;
#pragma unroll
    for (int i = 0; i < F; ++i) {
      T sum = w[E * i] * x[0];
#pragma unroll
      for (int j = 1; j < E; ++j) {
        sum += w[E * i + j] * x[j];
      }
      q[i] += sum;
    }
  }
};

// Forms W after the normal blocks.
template <typename Source, kernels::BlockLayout kLayout>
kernels::Status Run(const ExplicitBlocksParams<Source, kLayout>& params,
                    kernels::CudaMachine* machine) {
  CERES_EXT_RETURN_IF_ERROR(Run(params.normal, machine));
  return kernels::Launch(
      "Coupling",
      CouplingKernel<Source, kLayout>,
      {kernels::CeilDivide(params.normal.index.num_observations,
                           kCouplingBlock),
       kCouplingBlock},
      machine->stream(),
      params);
}

// TileOperation on W.
template <int kMode, typename T, typename Shape, kernels::BlockLayout kLayout>
kernels::Status TilesOfW(
    const kernels::ObservationIndexRef& index,
    const kernels::BlockRef<const T, Shape::kWSize, kLayout>& w,
    const double* camera_p,
    const ExplicitTileOperands<Shape::kE, kLayout>& operands,
    const ExplicitCameraTerms<Shape::kPackedF, kLayout>& terms,
    kernels::CudaMachine* machine) {
  using Source = CouplingSource<T, Shape, kLayout>;
  return kernels::TileOperation<kMode, Source, CouplingBlocks<Source>>(
      index, Source{w}, camera_p, operands, terms, machine);
}

template <typename T, typename Shape, kernels::BlockLayout kLayout>
kernels::Status Run(
    const SchurProductExplicitWParams<T, Shape, kLayout>& params,
    kernels::CudaMachine* machine) {
  ExplicitTileOperands<Shape::kE, kLayout> operands;
  operands.v_inverse = params.v_inverse;
  operands.scalars = params.scalars;
  ExplicitCameraTerms<Shape::kPackedF, kLayout> terms;
  terms.diagonal = params.camera_diagonal;
  terms.u = params.u;
  terms.p = params.p;
  terms.out = params.q;
  return TilesOfW<kernels::kSchurProductMode, T, Shape, kLayout>(
      params.index, params.w, params.p, operands, terms, machine);
}

template <typename T, typename Shape, kernels::BlockLayout kLayout>
kernels::Status Run(
    const BackSubstituteExplicitWParams<T, Shape, kLayout>& params,
    kernels::CudaMachine* machine) {
  ExplicitTileOperands<Shape::kE, kLayout> operands;
  operands.v_inverse = params.v_inverse;
  operands.point_gradient = params.point_gradient;
  operands.point_out = params.y;
  constexpr int kMode =
      kernels::kUseCamera | kernels::kEliminate | kernels::kPointOut;
  return TilesOfW<kMode, T, Shape, kLayout>(
      params.index, params.w, params.z, operands, {}, machine);
}

template <typename T, typename Shape, kernels::BlockLayout kLayout>
kernels::Status Run(
    const NormalProductExplicitWParams<T, Shape, kLayout>& params,
    kernels::CudaMachine* machine) {
  ExplicitTileOperands<Shape::kE, kLayout> operands;
  operands.point_x = params.point_p;
  operands.point_diagonal = params.point_diagonal;
  operands.v = params.v;
  operands.point_out = params.point_q;
  operands.scalars = params.scalars;
  ExplicitCameraTerms<Shape::kPackedF, kLayout> terms;
  terms.diagonal = params.camera_diagonal;
  terms.u = params.u;
  terms.p = params.camera_p;
  terms.out = params.camera_q;
  return TilesOfW<kernels::kNormalProductMode, T, Shape, kLayout>(
      params.index, params.w, params.camera_p, operands, terms, machine);
}

}  // namespace ceres_ext::bal

#endif  // STUDIES_EXPLICIT_W_IMPL_CUH_
