// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "benchmarks/study/naive_kernels.h"

#include <cstdint>

#include "cuda_kernels/base/small_matrix.h"
#include "cuda_kernels/machine/cuda_launch.cuh"
#include "cuda_kernels/structure/cuda_workspace.h"

namespace ceres_ext::bal {
namespace {

using kernels::BlockLayout;
using kernels::BlockView;
using kernels::Breakdown;
using kernels::CeilDivide;
using kernels::Launch;
using kernels::ObservationIndexView;
using kernels::PackedIndex;
using kernels::PackedSize;
using kernels::PcgEnd;
using kernels::PcgScalars;
using kernels::Status;
using kernels::StatusCode;

constexpr int kBlock = 256;
constexpr int C = 9;

__device__ __forceinline__ int64_t Thread() {
  return int64_t{blockIdx.x} * kBlock + threadIdx.x;
}

__device__ __forceinline__ bool Ended(const PcgScalars* scalars) {
  return scalars != nullptr && scalars->end != PcgEnd::kRunning;
}

// Sums over the observations of a point, in the workspace.
struct PointScratch {
  explicit PointScratch(const ObservationIndexView& index)
      : v(index.cuda_workspace->point_records),
        gradient(v + 6 * int64_t{index.num_points}),
        vector(v) {}

  double* v;         // 6 per point, in the layout in use
  double* gradient;  // 3 per point
  double* vector;    // 3 per point, in the place of v
};

// One thread per element: kernel(args) with n threads.
template <typename... Parameters, typename... Arguments>
Status LaunchFor(const char* name,
                 void (*kernel)(Parameters...),
                 int64_t n,
                 cudaStream_t stream,
                 Arguments... arguments) {
  return Launch(
      name, kernel, CeilDivide(n, kBlock), kBlock, 0, stream, arguments...);
}

// x = 0, where x is not null.
Status Clear(double* x, int64_t n, cudaStream_t stream) {
  if (x == nullptr || n == 0) {
    return Status();
  }
  CERES_EXT_RETURN_IF_CUDA_ERROR(
      cudaMemsetAsync(x, 0, static_cast<size_t>(n) * sizeof(double), stream));
  return Status();
}

template <BlockLayout L>
__global__ void NaiveJacobianKernel(
    kernels::EvaluateJacobianParams<double, C, L> p) {
  const int64_t k = Thread();
  if (k >= p.index.num_observations) {
    return;
  }
  const int64_t camera = p.index.camera_id[k];
  const int64_t point = p.index.point_id[k];
  double residual[2];
  double jc[2 * C];
  double jp[6];
  const kernels::CameraState<double>& state = p.cameras[camera];
  const auto projection = kernels::Project(state, p.points + 3 * point);
  double local[2 * kernels::kBalLocalCameraDim];
  kernels::Residual(state, projection, p.observations + 2 * k, residual);
  kernels::CameraJacobian(state, projection, local);
  kernels::MapCameraJacobian<C>(local, p.camera_maps + 81 * camera, jc);
  kernels::PointJacobian(state, projection, jp);
#pragma unroll
  for (int i = 0; i < 2 * C; ++i) {
    p.camera_blocks(k, i) = jc[i];
  }
#pragma unroll
  for (int i = 0; i < 6; ++i) {
    p.point_blocks(k, i) = jp[i];
  }
}

template <BlockLayout L>
__global__ void NaiveColumnNormsKernel(
    kernels::SquaredColumnNormsParams<NaiveSource<L>> p) {
  const int64_t k = Thread();
  if (k >= p.index.num_observations) {
    return;
  }
  const int32_t camera = p.index.camera_id[k];
  const int32_t point = p.index.point_id[k];
  double jc[2 * C];
  double jp[6];
  p.jacobian.Load(k, camera, point, jc, jp);
  if (p.camera_x != nullptr) {
    for (int i = 0; i < C; ++i) {
      atomicAdd(p.camera_x + int64_t{C} * camera + i,
                jc[i] * jc[i] + jc[C + i] * jc[C + i]);
    }
  }
  if (p.point_x != nullptr) {
    for (int i = 0; i < 3; ++i) {
      atomicAdd(p.point_x + int64_t{3} * point + i,
                jp[i] * jp[i] + jp[3 + i] * jp[3 + i]);
    }
  }
}

template <BlockLayout L>
struct BlockSums {
  BlockView<double, PackedSize(C), L> u;
  BlockView<double, 6, L> v;
  BlockView<double, 3 * C, L> w;
  double* camera_gradient;
  double* point_gradient;
};

// U, V, g by atomics; W.
template <BlockLayout L>
__global__ void NaiveNormalBlocksKernel(ObservationIndexView index,
                                        NaiveSource<L> jacobian,
                                        const double* b,
                                        BlockSums<L> out) {
  const int64_t k = Thread();
  if (k >= index.num_observations) {
    return;
  }
  const int32_t camera = index.camera_id[k];
  const int32_t point = index.point_id[k];
  double jc[2 * C];
  double jp[6];
  jacobian.Load(k, camera, point, jc, jp);
  if (out.u.data != nullptr) {
#pragma unroll
    for (int i = 0; i < C; ++i) {
#pragma unroll
      for (int j = 0; j <= i; ++j) {
        atomicAdd(&out.u(camera, PackedIndex(i, j)),
                  jc[i] * jc[j] + jc[C + i] * jc[C + j]);
      }
    }
  }
  if (out.v.data != nullptr) {
#pragma unroll
    for (int i = 0; i < 3; ++i) {
#pragma unroll
      for (int j = 0; j <= i; ++j) {
        atomicAdd(&out.v(point, PackedIndex(i, j)),
                  jp[i] * jp[j] + jp[3 + i] * jp[3 + j]);
      }
    }
  }
  if (out.w.data != nullptr) {
#pragma unroll
    for (int i = 0; i < C; ++i) {
#pragma unroll
      for (int j = 0; j < 3; ++j) {
        out.w(k, 3 * i + j) = jc[i] * jp[j] + jc[C + i] * jp[3 + j];
      }
    }
  }
  if (out.camera_gradient != nullptr) {
    for (int i = 0; i < C; ++i) {
      atomicAdd(out.camera_gradient + int64_t{C} * camera + i,
                jc[i] * b[2 * k] + jc[C + i] * b[2 * k + 1]);
    }
  }
  if (out.point_gradient != nullptr) {
    for (int i = 0; i < 3; ++i) {
      atomicAdd(out.point_gradient + int64_t{3} * point + i,
                jp[i] * b[2 * k] + jp[3 + i] * b[2 * k + 1]);
    }
  }
}

// inverse_i = (A_i + D_i^2)^-1
template <int N>
__global__ void NaiveInvertKernel(kernels::InvertBlocksParams<N> p) {
  const int64_t i = Thread();
  if (i >= p.n) {
    return;
  }
  double a[PackedSize(N)];
  for (int e = 0; e < PackedSize(N); ++e) {
    a[e] = p.a(i, e);
  }
  if (p.diagonal != nullptr) {
    kernels::AddSquaredDiagonal<N>(p.diagonal + N * i, a);
  }
  if (!kernels::InvertSymmetric<N>(a)) {
    atomicMin(p.first_breakdown, static_cast<int32_t>(i));
  }
  for (int e = 0; e < PackedSize(N); ++e) {
    p.inverse(i, e) = a[e];
  }
}

__global__ void NaiveResetBreakdownKernel(int32_t* breakdown) {
  *breakdown = Breakdown::kNone;
}

// z_i = A_i r_i, or s_i = A_i s_i in place.
template <int N, BlockLayout L>
__global__ void NaiveApplyKernel(int64_t num_blocks,
                                 BlockView<const double, PackedSize(N), L> a,
                                 const double* r,
                                 double* z,
                                 const PcgScalars* scalars) {
  const int64_t i = Thread();
  if (i >= num_blocks || Ended(scalars)) {
    return;
  }
  double block[PackedSize(N)];
  for (int e = 0; e < PackedSize(N); ++e) {
    block[e] = a(i, e);
  }
  double x[N];
  double y[N];
  for (int e = 0; e < N; ++e) {
    x[e] = r[N * i + e];
  }
  kernels::SymmetricMultiply<N>(block, x, y);
  for (int e = 0; e < N; ++e) {
    z[N * i + e] = y[e];
  }
}

// q = D^2 p, or (A + D^2) p where A is given.
template <int N, BlockLayout L>
__global__ void NaiveDiagonalKernel(int64_t num_blocks,
                                    BlockView<const double, PackedSize(N), L> a,
                                    const double* diagonal,
                                    const double* p,
                                    double* q,
                                    const PcgScalars* scalars) {
  const int64_t i = Thread();
  if (i >= num_blocks || Ended(scalars)) {
    return;
  }
  double x[N];
  double y[N] = {};
  for (int e = 0; e < N; ++e) {
    x[e] = p[N * i + e];
  }
  if (a.data != nullptr) {
    double block[PackedSize(N)];
    for (int e = 0; e < PackedSize(N); ++e) {
      block[e] = a(i, e);
    }
    kernels::SymmetricMultiply<N>(block, x, y);
  }
  for (int e = 0; e < N; ++e) {
    const double d = diagonal == nullptr ? 0.0 : diagonal[N * i + e];
    q[N * i + e] = y[e] + d * d * x[e];
  }
}

// s_p += Jp' (sign_b b - sign_z Jc z); with b null: s_p += Jp' Jc z.
template <BlockLayout L>
__global__ void NaiveToPointsKernel(ObservationIndexView index,
                                    NaiveSource<L> jacobian,
                                    const double* b,
                                    const double* z,
                                    double* s,
                                    const PcgScalars* scalars) {
  const int64_t k = Thread();
  if (k >= index.num_observations || Ended(scalars)) {
    return;
  }
  const int32_t camera = index.camera_id[k];
  const int32_t point = index.point_id[k];
  double jc[2 * C];
  double jp[6];
  jacobian.Load(k, camera, point, jc, jp);
  double y[2] = {0.0, 0.0};
#pragma unroll
  for (int i = 0; i < C; ++i) {
    const double zi = z[int64_t{C} * camera + i];
    y[0] += jc[i] * zi;
    y[1] += jc[C + i] * zi;
  }
  if (b != nullptr) {
    y[0] = b[2 * k] - y[0];
    y[1] = b[2 * k + 1] - y[1];
  }
  for (int i = 0; i < 3; ++i) {
    atomicAdd(s + int64_t{3} * point + i, jp[i] * y[0] + jp[3 + i] * y[1]);
  }
}

// q_c += Jc' (Jc p_c - Jp e_p); with p null: q_c -= Jc' Jp e_p.
template <BlockLayout L>
__global__ void NaiveToCamerasKernel(ObservationIndexView index,
                                     NaiveSource<L> jacobian,
                                     const double* p,
                                     const double* e,
                                     double* q,
                                     const PcgScalars* scalars) {
  const int64_t k = Thread();
  if (k >= index.num_observations || Ended(scalars)) {
    return;
  }
  const int32_t camera = index.camera_id[k];
  const int32_t point = index.point_id[k];
  double jc[2 * C];
  double jp[6];
  jacobian.Load(k, camera, point, jc, jp);
  double y[2] = {0.0, 0.0};
  if (p != nullptr) {
#pragma unroll
    for (int i = 0; i < C; ++i) {
      const double pi = p[int64_t{C} * camera + i];
      y[0] += jc[i] * pi;
      y[1] += jc[C + i] * pi;
    }
  }
  for (int i = 0; i < 3; ++i) {
    const double ei = e[int64_t{3} * point + i];
    y[0] -= jp[i] * ei;
    y[1] -= jp[3 + i] * ei;
  }
#pragma unroll
  for (int i = 0; i < C; ++i) {
    atomicAdd(q + int64_t{C} * camera + i, jc[i] * y[0] + jc[C + i] * y[1]);
  }
}

// y = Jc p_c + Jp p_p, q_c += Jc' y, q_p += Jp' y.
template <BlockLayout L>
__global__ void NaiveNormalProductKernel(
    kernels::NormalProductImplicitWParams<NaiveSource<L>> p) {
  const int64_t k = Thread();
  if (k >= p.index.num_observations || Ended(p.scalars)) {
    return;
  }
  const int32_t camera = p.index.camera_id[k];
  const int32_t point = p.index.point_id[k];
  double jc[2 * C];
  double jp[6];
  p.jacobian.Load(k, camera, point, jc, jp);
  double y[2] = {0.0, 0.0};
#pragma unroll
  for (int i = 0; i < C; ++i) {
    const double pi = p.camera_p[int64_t{C} * camera + i];
    y[0] += jc[i] * pi;
    y[1] += jc[C + i] * pi;
  }
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    const double pi = p.point_p[int64_t{3} * point + i];
    y[0] += jp[i] * pi;
    y[1] += jp[3 + i] * pi;
  }
#pragma unroll
  for (int i = 0; i < C; ++i) {
    atomicAdd(p.camera_q + int64_t{C} * camera + i,
              jc[i] * y[0] + jc[C + i] * y[1]);
  }
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    atomicAdd(p.point_q + int64_t{3} * point + i,
              jp[i] * y[0] + jp[3 + i] * y[1]);
  }
}

// s_p += W' z_c where s is not null; q_c += sign W e_p where q is not null.
template <BlockLayout L>
__global__ void NaiveCouplingKernel(ObservationIndexView index,
                                    BlockView<const double, 3 * C, L> w,
                                    const double* z,
                                    double* s,
                                    double sign,
                                    const double* e,
                                    double* q,
                                    const PcgScalars* scalars) {
  const int64_t k = Thread();
  if (k >= index.num_observations || Ended(scalars)) {
    return;
  }
  const int64_t camera = index.camera_id[k];
  const int64_t point = index.point_id[k];
  double wk[3 * C];
#pragma unroll
  for (int i = 0; i < 3 * C; ++i) {
    wk[i] = w(k, i);
  }
  if (s != nullptr) {
    double sum[3] = {0.0, 0.0, 0.0};
#pragma unroll
    for (int i = 0; i < C; ++i) {
      const double zi = z[C * camera + i];
#pragma unroll
      for (int j = 0; j < 3; ++j) {
        sum[j] += wk[3 * i + j] * zi;
      }
    }
    for (int j = 0; j < 3; ++j) {
      atomicAdd(s + 3 * point + j, sum[j]);
    }
  }
  if (q != nullptr) {
    double x[3];
    for (int j = 0; j < 3; ++j) {
      x[j] = sign * e[3 * point + j];
    }
#pragma unroll
    for (int i = 0; i < C; ++i) {
      atomicAdd(q + C * camera + i,
                wk[3 * i] * x[0] + wk[3 * i + 1] * x[1] + wk[3 * i + 2] * x[2]);
    }
  }
}

// y_p = Vi_p (g_p - s_p), g null: zero and plus.
template <BlockLayout L>
__global__ void NaivePointSolveKernel(int64_t num_points,
                                      BlockView<const double, 6, L> v_inverse,
                                      const double* g,
                                      const double* s,
                                      double* y) {
  const int64_t point = Thread();
  if (point >= num_points) {
    return;
  }
  double v[6];
  double x[3];
  double out[3];
  for (int e = 0; e < 6; ++e) {
    v[e] = v_inverse(point, e);
  }
  for (int i = 0; i < 3; ++i) {
    x[i] =
        g == nullptr ? s[3 * point + i] : g[3 * point + i] - s[3 * point + i];
  }
  kernels::SymmetricMultiply<3>(v, x, out);
  for (int i = 0; i < 3; ++i) {
    y[3 * point + i] = out[i];
  }
}

}  // namespace

template <BlockLayout L>
Status Run(const kernels::EvaluateJacobianParams<double, C, L>& params,
           NaiveMachine<L>* machine) {
  const cudaStream_t stream = machine->stream();
  if (params.residuals != nullptr || params.point_scale != nullptr ||
      params.camera_gradient != nullptr || params.point_gradient != nullptr) {
    return Status(StatusCode::kUnsupported,
                  "The naive variant evaluates Jacobian blocks only.");
  }
  return LaunchFor("NaiveJacobian",
                   NaiveJacobianKernel<L>,
                   params.index.num_observations,
                   stream,
                   params);
}

template <BlockLayout L>
Status Run(const kernels::SquaredColumnNormsParams<NaiveSource<L>>& params,
           NaiveMachine<L>* machine) {
  const cudaStream_t stream = machine->stream();
  CERES_EXT_RETURN_IF_ERROR(
      Clear(params.camera_x, int64_t{C} * params.index.num_cameras, stream));
  CERES_EXT_RETURN_IF_ERROR(
      Clear(params.point_x, int64_t{3} * params.index.num_points, stream));
  return LaunchFor("NaiveColumnNorms",
                   NaiveColumnNormsKernel<L>,
                   params.index.num_observations,
                   stream,
                   params);
}

namespace {

template <BlockLayout L>
Status NormalBlocks(
    const kernels::NormalBlocksParams<NaiveSource<L>, L>& params,
    const BlockView<double, 3 * C, L>& w,
    NaiveMachine<L>* machine) {
  const cudaStream_t stream = machine->stream();
  if (params.schur_diagonal.data != nullptr) {
    return Status(StatusCode::kUnsupported,
                  "The naive variant has no diagonal blocks of S.");
  }
  const ObservationIndexView& index = params.index;
  const PointScratch scratch(index);
  const bool schur = params.v_inverse.data != nullptr;
  BlockSums<L> sums;
  sums.u = params.u;
  sums.v = params.v;
  sums.w = w;
  sums.camera_gradient = params.camera_gradient;
  sums.point_gradient = params.point_gradient;
  if (schur) {
    if (sums.v.data == nullptr) {
      sums.v = {scratch.v, index.num_points};
    }
    if (sums.point_gradient == nullptr) {
      sums.point_gradient = scratch.gradient;
    }
    if (sums.camera_gradient == nullptr) {
      sums.camera_gradient = params.schur_rhs;
    }
  }
  CERES_EXT_RETURN_IF_ERROR(Clear(sums.u.data, sums.u.size(), stream));
  CERES_EXT_RETURN_IF_ERROR(Clear(sums.v.data, sums.v.size(), stream));
  CERES_EXT_RETURN_IF_ERROR(
      Clear(sums.camera_gradient, int64_t{C} * index.num_cameras, stream));
  CERES_EXT_RETURN_IF_ERROR(
      Clear(sums.point_gradient, int64_t{3} * index.num_points, stream));
  CERES_EXT_RETURN_IF_ERROR(LaunchFor("NaiveNormalBlocks",
                                      NaiveNormalBlocksKernel<L>,
                                      index.num_observations,
                                      stream,
                                      index,
                                      params.jacobian,
                                      params.b,
                                      sums));
  if (!schur) {
    return Status();
  }
  const kernels::BlockFamily points{3, static_cast<int32_t>(index.num_points)};
  kernels::InvertBlocksParams<3> invert;
  invert.n = index.num_points;
  invert.a = kernels::PackedBlocks<const double>(points, L, sums.v.data);
  invert.diagonal = params.point_diagonal;
  invert.inverse = kernels::PackedBlocks(points, L, params.v_inverse.data);
  invert.first_breakdown = &params.breakdown->first_point;
  CERES_EXT_RETURN_IF_ERROR(Run(invert, machine));
  if (params.schur_rhs == nullptr) {
    return Status();
  }
  // s_c = g_c - sum Jc' Jp Vi g_p
  CERES_EXT_RETURN_IF_ERROR(
      LaunchFor("NaiveApply",
                NaiveApplyKernel<3, L>,
                index.num_points,
                stream,
                index.num_points,
                BlockView<const double, 6, L>(params.v_inverse),
                sums.point_gradient,
                scratch.vector,
                static_cast<const PcgScalars*>(nullptr)));
  if (sums.camera_gradient != params.schur_rhs) {
    CERES_EXT_RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(
        params.schur_rhs,
        sums.camera_gradient,
        sizeof(double) * C * static_cast<size_t>(index.num_cameras),
        cudaMemcpyDeviceToDevice,
        stream));
  }
  return LaunchFor("NaiveToCameras",
                   NaiveToCamerasKernel<L>,
                   index.num_observations,
                   stream,
                   index,
                   params.jacobian,
                   static_cast<const double*>(nullptr),
                   scratch.vector,
                   params.schur_rhs,
                   static_cast<const PcgScalars*>(nullptr));
}

}  // namespace

template <BlockLayout L>
Status Run(const kernels::NormalBlocksParams<NaiveSource<L>, L>& params,
           NaiveMachine<L>* machine) {
  return NormalBlocks(params, {}, machine);
}

template <BlockLayout L>
Status Run(const ExplicitBlocksParams<NaiveSource<L>, L>& params,
           NaiveMachine<L>* machine) {
  return NormalBlocks(params.normal, params.w, machine);
}

template <BlockLayout L>
Status Run(
    const kernels::SchurProductImplicitWParams<NaiveSource<L>, L>& params,
    NaiveMachine<L>* machine) {
  const cudaStream_t stream = machine->stream();
  const ObservationIndexView& index = params.index;
  const PointScratch scratch(index);
  CERES_EXT_RETURN_IF_ERROR(
      Clear(scratch.vector, int64_t{3} * index.num_points, stream));
  CERES_EXT_RETURN_IF_ERROR(LaunchFor("NaiveToPoints",
                                      NaiveToPointsKernel<L>,
                                      index.num_observations,
                                      stream,
                                      index,
                                      params.jacobian,
                                      static_cast<const double*>(nullptr),
                                      params.p,
                                      scratch.vector,
                                      params.scalars));
  CERES_EXT_RETURN_IF_ERROR(LaunchFor("NaiveApply",
                                      NaiveApplyKernel<3, L>,
                                      index.num_points,
                                      stream,
                                      index.num_points,
                                      params.v_inverse,
                                      scratch.vector,
                                      scratch.vector,
                                      params.scalars));
  CERES_EXT_RETURN_IF_ERROR(
      LaunchFor("NaiveDiagonal",
                NaiveDiagonalKernel<C, L>,
                index.num_cameras,
                stream,
                index.num_cameras,
                BlockView<const double, PackedSize(C), L>(),
                params.camera_diagonal,
                params.p,
                params.q,
                params.scalars));
  return LaunchFor("NaiveToCameras",
                   NaiveToCamerasKernel<L>,
                   index.num_observations,
                   stream,
                   index,
                   params.jacobian,
                   params.p,
                   scratch.vector,
                   params.q,
                   params.scalars);
}

template <BlockLayout L>
Status Run(
    const SchurProductExplicitWParams<double, kernels::BalShape<C>, L>& params,
    NaiveMachine<L>* machine) {
  const cudaStream_t stream = machine->stream();
  const ObservationIndexView& index = params.index;
  const PointScratch scratch(index);
  CERES_EXT_RETURN_IF_ERROR(
      Clear(scratch.vector, int64_t{3} * index.num_points, stream));
  CERES_EXT_RETURN_IF_ERROR(LaunchFor("NaiveCoupling",
                                      NaiveCouplingKernel<L>,
                                      index.num_observations,
                                      stream,
                                      index,
                                      params.w,
                                      params.p,
                                      scratch.vector,
                                      0.0,
                                      static_cast<const double*>(nullptr),
                                      static_cast<double*>(nullptr),
                                      params.scalars));
  CERES_EXT_RETURN_IF_ERROR(LaunchFor("NaiveApply",
                                      NaiveApplyKernel<3, L>,
                                      index.num_points,
                                      stream,
                                      index.num_points,
                                      params.v_inverse,
                                      scratch.vector,
                                      scratch.vector,
                                      params.scalars));
  CERES_EXT_RETURN_IF_ERROR(LaunchFor("NaiveDiagonal",
                                      NaiveDiagonalKernel<C, L>,
                                      index.num_cameras,
                                      stream,
                                      index.num_cameras,
                                      params.u,
                                      params.camera_diagonal,
                                      params.p,
                                      params.q,
                                      params.scalars));
  return LaunchFor("NaiveCoupling",
                   NaiveCouplingKernel<L>,
                   index.num_observations,
                   stream,
                   index,
                   params.w,
                   static_cast<const double*>(nullptr),
                   static_cast<double*>(nullptr),
                   -1.0,
                   scratch.vector,
                   params.q,
                   params.scalars);
}

template <BlockLayout L>
Status Run(
    const kernels::BackSubstituteImplicitWParams<NaiveSource<L>, L>& params,
    NaiveMachine<L>* machine) {
  const cudaStream_t stream = machine->stream();
  const ObservationIndexView& index = params.index;
  const PointScratch scratch(index);
  CERES_EXT_RETURN_IF_ERROR(
      Clear(scratch.vector, int64_t{3} * index.num_points, stream));
  CERES_EXT_RETURN_IF_ERROR(LaunchFor("NaiveToPoints",
                                      NaiveToPointsKernel<L>,
                                      index.num_observations,
                                      stream,
                                      index,
                                      params.jacobian,
                                      params.b,
                                      params.z,
                                      scratch.vector,
                                      static_cast<const PcgScalars*>(nullptr)));
  return LaunchFor("NaivePointSolve",
                   NaivePointSolveKernel<L>,
                   index.num_points,
                   stream,
                   index.num_points,
                   params.v_inverse,
                   static_cast<const double*>(nullptr),
                   scratch.vector,
                   params.y);
}

template <BlockLayout L>
Status Run(const BackSubstituteExplicitWParams<double, kernels::BalShape<C>, L>&
               params,
           NaiveMachine<L>* machine) {
  const cudaStream_t stream = machine->stream();
  const ObservationIndexView& index = params.index;
  const PointScratch scratch(index);
  CERES_EXT_RETURN_IF_ERROR(
      Clear(scratch.vector, int64_t{3} * index.num_points, stream));
  CERES_EXT_RETURN_IF_ERROR(LaunchFor("NaiveCoupling",
                                      NaiveCouplingKernel<L>,
                                      index.num_observations,
                                      stream,
                                      index,
                                      params.w,
                                      params.z,
                                      scratch.vector,
                                      0.0,
                                      static_cast<const double*>(nullptr),
                                      static_cast<double*>(nullptr),
                                      static_cast<const PcgScalars*>(nullptr)));
  return LaunchFor("NaivePointSolve",
                   NaivePointSolveKernel<L>,
                   index.num_points,
                   stream,
                   index.num_points,
                   params.v_inverse,
                   params.point_gradient,
                   scratch.vector,
                   params.y);
}

template <BlockLayout L>
Status Run(const kernels::NormalProductImplicitWParams<NaiveSource<L>>& params,
           NaiveMachine<L>* machine) {
  const cudaStream_t stream = machine->stream();
  const ObservationIndexView& index = params.index;
  CERES_EXT_RETURN_IF_ERROR(
      LaunchFor("NaiveDiagonal",
                NaiveDiagonalKernel<C, L>,
                index.num_cameras,
                stream,
                index.num_cameras,
                BlockView<const double, PackedSize(C), L>(),
                params.camera_diagonal,
                params.camera_p,
                params.camera_q,
                params.scalars));
  CERES_EXT_RETURN_IF_ERROR(LaunchFor("NaiveDiagonal",
                                      NaiveDiagonalKernel<3, L>,
                                      index.num_points,
                                      stream,
                                      index.num_points,
                                      BlockView<const double, 6, L>(),
                                      params.point_diagonal,
                                      params.point_p,
                                      params.point_q,
                                      params.scalars));
  return LaunchFor("NaiveNormalProduct",
                   NaiveNormalProductKernel<L>,
                   index.num_observations,
                   stream,
                   params);
}

template <BlockLayout L>
Status Run(
    const NormalProductExplicitWParams<double, kernels::BalShape<C>, L>& params,
    NaiveMachine<L>* machine) {
  const cudaStream_t stream = machine->stream();
  const ObservationIndexView& index = params.index;
  CERES_EXT_RETURN_IF_ERROR(LaunchFor("NaiveDiagonal",
                                      NaiveDiagonalKernel<C, L>,
                                      index.num_cameras,
                                      stream,
                                      index.num_cameras,
                                      params.u,
                                      params.camera_diagonal,
                                      params.camera_p,
                                      params.camera_q,
                                      params.scalars));
  CERES_EXT_RETURN_IF_ERROR(LaunchFor("NaiveDiagonal",
                                      NaiveDiagonalKernel<3, L>,
                                      index.num_points,
                                      stream,
                                      index.num_points,
                                      params.v,
                                      params.point_diagonal,
                                      params.point_p,
                                      params.point_q,
                                      params.scalars));
  return LaunchFor("NaiveCoupling",
                   NaiveCouplingKernel<L>,
                   index.num_observations,
                   stream,
                   index,
                   params.w,
                   params.camera_p,
                   params.point_q,
                   1.0,
                   params.point_p,
                   params.camera_q,
                   params.scalars);
}

template <int N, BlockLayout L>
std::enable_if_t<N != kernels::kDynamic, Status> Run(
    const kernels::InvertBlocksParams<N>& params, NaiveMachine<L>* machine) {
  const cudaStream_t stream = machine->stream();
  CERES_EXT_RETURN_IF_ERROR(Launch("NaiveResetBreakdown",
                                   NaiveResetBreakdownKernel,
                                   1,
                                   1,
                                   0,
                                   stream,
                                   params.first_breakdown));
  return LaunchFor(
      "NaiveInvert", NaiveInvertKernel<N>, params.n, stream, params);
}

template <int N, BlockLayout L>
std::enable_if_t<N != kernels::kDynamic, Status> Run(
    const kernels::ApplyBlocksParams<N>& params, NaiveMachine<L>* machine) {
  const cudaStream_t stream = machine->stream();
  return LaunchFor(
      "NaiveApply",
      NaiveApplyKernel<N, L>,
      params.n,
      stream,
      params.n,
      BlockView<const double, PackedSize(N), L>{params.a.data, params.n},
      params.r,
      params.z,
      params.scalars);
}

#define CERES_EXT_INSTANTIATE(L)                                               \
  template Status Run(const kernels::EvaluateJacobianParams<double, C, L>&,    \
                      NaiveMachine<L>*);                                       \
  template Status Run(                                                         \
      const kernels::SquaredColumnNormsParams<NaiveSource<L>>&,                \
      NaiveMachine<L>*);                                                       \
  template Status Run(const kernels::NormalBlocksParams<NaiveSource<L>, L>&,   \
                      NaiveMachine<L>*);                                       \
  template Status Run(const ExplicitBlocksParams<NaiveSource<L>, L>&,          \
                      NaiveMachine<L>*);                                       \
  template Status Run(                                                         \
      const kernels::SchurProductImplicitWParams<NaiveSource<L>, L>&,          \
      NaiveMachine<L>*);                                                       \
  template Status Run(                                                         \
      const SchurProductExplicitWParams<double, kernels::BalShape<C>, L>&,     \
      NaiveMachine<L>*);                                                       \
  template Status Run(                                                         \
      const kernels::BackSubstituteImplicitWParams<NaiveSource<L>, L>&,        \
      NaiveMachine<L>*);                                                       \
  template Status Run(                                                         \
      const BackSubstituteExplicitWParams<double, kernels::BalShape<C>, L>&,   \
      NaiveMachine<L>*);                                                       \
  template Status Run(                                                         \
      const kernels::NormalProductImplicitWParams<NaiveSource<L>>&,            \
      NaiveMachine<L>*);                                                       \
  template Status Run(                                                         \
      const NormalProductExplicitWParams<double, kernels::BalShape<C>, L>&,    \
      NaiveMachine<L>*);                                                       \
  template Status Run(const kernels::InvertBlocksParams<3>&,                   \
                      NaiveMachine<L>*);                                       \
  template Status Run(const kernels::InvertBlocksParams<9>&,                   \
                      NaiveMachine<L>*);                                       \
  template Status Run(const kernels::InvertBlocksParams<10>&,                  \
                      NaiveMachine<L>*);                                       \
  template Status Run(const kernels::ApplyBlocksParams<3>&, NaiveMachine<L>*); \
  template Status Run(const kernels::ApplyBlocksParams<9>&, NaiveMachine<L>*); \
  template Status Run(const kernels::ApplyBlocksParams<10>&, NaiveMachine<L>*);

CERES_EXT_INSTANTIATE(BlockLayout::kContinuousElement)
CERES_EXT_INSTANTIATE(BlockLayout::kBlockContiguous)
#undef CERES_EXT_INSTANTIATE

}  // namespace ceres_ext::bal
