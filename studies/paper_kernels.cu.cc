// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "studies/paper_kernels.h"

#include <cstdint>

#include "cuda_kernels/machine/cuda_launch.cuh"

namespace ceres_ext::bal {
namespace {

using kernels::BlockLayout;
using kernels::BlockRef;
using kernels::CeilDivide;
using kernels::Launch;
using kernels::ObservationIndexRef;
using kernels::PackedIndex;
using kernels::PackedSize;
using kernels::PcgScalars;
using kernels::Status;
using kernels::StatusCode;

// The paper gives none of these numbers.
constexpr int kThreads = 256;        // of a block, one per point or projection
constexpr int kCameraThreads = 64;   // of a block that is one camera
constexpr int kPointsPerThread = 2;  // one after the other
constexpr int C = 9;
constexpr int kPackedC = PackedSize(C);

template <typename T, BlockLayout L>
using Stored = kernels::StoredJacobian<T, kernels::BalShape<C>, L>;

__device__ __forceinline__ int64_t Thread() {
  return int64_t{blockIdx.x} * kThreads + threadIdx.x;
}

__device__ __forceinline__ bool Ended(const PcgScalars* scalars) {
  return kernels::PcgHasEnded(scalars);
}

// One thread per element.
template <typename... Parameters, typename... Arguments>
Status LaunchFor(const char* name,
                 void (*kernel)(Parameters...),
                 int64_t n,
                 cudaStream_t stream,
                 Arguments... arguments) {
  return Launch(
      name, kernel, {CeilDivide(n, kThreads), kThreads}, stream, arguments...);
}

// kPointsPerThread points per thread, those of a block next to each other.
template <typename... Parameters, typename... Arguments>
Status LaunchForPoints(const char* name,
                       void (*kernel)(Parameters...),
                       int64_t num_points,
                       cudaStream_t stream,
                       Arguments... arguments) {
  return Launch(name,
                kernel,
                {CeilDivide(num_points, kThreads * kPointsPerThread), kThreads},
                stream,
                arguments...);
}

// One block per camera, with room for N partial sums of each thread.
template <int N, typename... Parameters, typename... Arguments>
Status LaunchForCameras(const char* name,
                        void (*kernel)(Parameters...),
                        int64_t num_cameras,
                        cudaStream_t stream,
                        Arguments... arguments) {
  return Launch(name,
                kernel,
                {num_cameras, kCameraThreads, int64_t{8} * N * kCameraThreads},
                stream,
                arguments...);
}

// The point of turn `turn` of this thread.
__device__ __forceinline__ int64_t PointOfTurn(int turn) {
  return (int64_t{blockIdx.x} * kPointsPerThread + turn) * kThreads +
         threadIdx.x;
}

// Every thread's N sums into shared memory; thread 0 adds them in the order of
// the threads and is the one with the result. Ends the block's work.
template <int N>
__device__ __forceinline__ bool AddOnOneThread(double* sums) {
  CERES_EXT_DYNAMIC_SHARED(shared);
  double* const partial = reinterpret_cast<double*>(shared);
#pragma unroll
  for (int i = 0; i < N; ++i) {
    partial[threadIdx.x * N + i] = sums[i];
  }
  __syncthreads();
  if (threadIdx.x != 0) {
    return false;  // No barrier follows.
  }
  for (int t = 1; t < kCameraThreads; ++t) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      sums[i] += partial[t * N + i];
    }
  }
  return true;
}

// x = 0, where x is not null.
template <int N, BlockLayout L>
Status Clear(const BlockRef<double, N, L>& x, cudaStream_t stream) {
  if (x.data == nullptr || x.size() == 0) {
    return Status();
  }
  CERES_EXT_RETURN_IF_CUDA_ERROR(cudaMemsetAsync(
      x.data, 0, static_cast<size_t>(x.size()) * sizeof(double), stream));
  return Status();
}

// The values of a block, as double.
template <typename T, int N, BlockLayout L>
__device__ __forceinline__ void LoadBlock(const BlockRef<const T, N, L>& view,
                                          int64_t block,
                                          double* to) {
#pragma unroll
  for (int i = 0; i < N; ++i) {
    to[i] = view(block, i);
  }
}

// ---------------------------------------------------------------------------
// Evaluation, of both forms: one thread per projection.

template <typename T, BlockLayout L>
__device__ __forceinline__ kernels::CameraState<T> PrepareCamera(
    const BlockRef<const T, C, L>& cameras, int64_t camera, T* rotation_map) {
  T parameters[C];
#pragma unroll
  for (int i = 0; i < C; ++i) {
    parameters[i] = cameras(camera, i);
  }
  return kernels::PrepareBalCamera<3>(parameters, rotation_map);
}

template <BlockLayout L>
__global__ void PaperResidualsKernel(PaperResidualsParams<L> p) {
  const int64_t k = Thread();
  if (k >= p.index.num_observations) {
    return;
  }
  const auto state = PrepareCamera<double, L>(
      p.cameras, p.index.camera_id[k], static_cast<double*>(nullptr));
  double point[3];
  double observation[2];
  double residual[2];
  LoadBlock(p.points, p.index.point_id[k], point);
  LoadBlock(p.observations, k, observation);
  kernels::Residual(
      state, kernels::Project(state, point), observation, residual);
  p.residuals(k, 0) = residual[0];
  p.residuals(k, 1) = residual[1];
}

template <typename T, BlockLayout L>
__global__ void PaperJacobianKernel(PaperJacobianParams<T, L> p) {
  const int64_t k = Thread();
  if (k >= p.index.num_observations) {
    return;
  }
  T rotation_map[9];
  const auto state =
      PrepareCamera<T, L>(p.cameras, p.index.camera_id[k], rotation_map);
  const int64_t id = p.index.point_id[k];
  const T point[3] = {p.points(id, 0), p.points(id, 1), p.points(id, 2)};
  kernels::Projection<T> projection;
  kernels::ProjectForProducts(state, point, &projection);
  T local[2 * kernels::kBalLocalCameraDim];
  T jc[2 * C];
  T jp[6];
  kernels::CameraJacobian(state, projection, local);
  kernels::MapCameraJacobianByBlocks<3, C, 3>(local, rotation_map, jc);
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

// ---------------------------------------------------------------------------
// What an observation adds to sums. jc, jp: its blocks.

// Squared norms of its columns.
template <int N>
__device__ __forceinline__ void AddColumnNorms(const double* j, double* sum) {
#pragma unroll
  for (int i = 0; i < N; ++i) {
    sum[i] += j[i] * j[i] + j[N + i] * j[N + i];
  }
}

// J'J, packed.
template <int N>
__device__ __forceinline__ void AddSquare(const double* j, double* sum) {
#pragma unroll
  for (int a = 0; a < N; ++a) {
#pragma unroll
    for (int b = 0; b <= a; ++b) {
      sum[PackedIndex(a, b)] += j[a] * j[b] + j[N + a] * j[N + b];
    }
  }
}

// J'y.
template <int N>
__device__ __forceinline__ void AddTransposed(const double* j,
                                              const double* y,
                                              double* sum) {
#pragma unroll
  for (int i = 0; i < N; ++i) {
    sum[i] += j[i] * y[0] + j[N + i] * y[1];
  }
}

// y = J x.
template <int N>
__device__ __forceinline__ void MultiplyRows(const double* j,
                                             const double* x,
                                             double* y) {
  y[0] = 0.0;
  y[1] = 0.0;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    y[0] += j[i] * x[i];
    y[1] += j[N + i] * x[i];
  }
}

// sum += W_k' z_c.
template <bool kExplicit, typename T, BlockLayout L>
__device__ __forceinline__ void AddToPoint(const PaperCouplingParams<T, L>& p,
                                           int64_t k,
                                           double* sum) {
  double z[C];
  LoadBlock(p.z, p.index.camera_id[k], z);
  if constexpr (kExplicit) {
#pragma unroll
    for (int i = 0; i < C; ++i) {
#pragma unroll
      for (int j = 0; j < 3; ++j) {
        sum[j] += static_cast<double>(p.w(k, 3 * i + j)) * z[i];
      }
    }
  } else {
    double jc[2 * C];
    double jp[6];
    double y[2];
    LoadBlock(p.jacobian.camera_blocks, k, jc);
    LoadBlock(p.jacobian.point_blocks, k, jp);
    MultiplyRows<C>(jc, z, y);
    AddTransposed<3>(jp, y, sum);
  }
}

// sum += W_k e_p: 27 multiplications and additions explicit, 6 and 18 implicit.
template <bool kExplicit, typename T, BlockLayout L>
__device__ __forceinline__ void AddToCamera(const PaperCouplingParams<T, L>& p,
                                            int64_t k,
                                            double* sum) {
  double e[3];
  LoadBlock(p.e, p.index.point_id[k], e);
  if constexpr (kExplicit) {
#pragma unroll
    for (int i = 0; i < C; ++i) {
#pragma unroll
      for (int j = 0; j < 3; ++j) {
        sum[i] += static_cast<double>(p.w(k, 3 * i + j)) * e[j];
      }
    }
  } else {
    double jc[2 * C];
    double jp[6];
    double y[2];
    LoadBlock(p.jacobian.camera_blocks, k, jc);
    LoadBlock(p.jacobian.point_blocks, k, jp);
    MultiplyRows<3>(jp, e, y);
    AddTransposed<C>(jc, y, sum);
  }
}

template <typename T, BlockLayout L>
__device__ __forceinline__ void StoreCoupling(
    const PaperNormalBlocksParams<T, L>& p,
    int64_t k,
    const double* jc,
    const double* jp) {
#pragma unroll
  for (int i = 0; i < C; ++i) {
#pragma unroll
    for (int j = 0; j < 3; ++j) {
      p.w(k, 3 * i + j) = static_cast<T>(jc[i] * jp[j] + jc[C + i] * jp[3 + j]);
    }
  }
}

// ---------------------------------------------------------------------------
// Naive: one thread per observation, atomics.

template <int N, BlockLayout L>
__device__ __forceinline__ void AtomicAdd(const BlockRef<double, N, L>& out,
                                          int64_t block,
                                          double factor,
                                          const double* sum) {
#pragma unroll
  for (int i = 0; i < N; ++i) {
    atomicAdd(&out(block, i), factor * sum[i]);
  }
}

template <typename T, BlockLayout L>
__global__ void NaiveColumnNormsKernel(PaperColumnNormsParams<T, L> p) {
  const int64_t k = Thread();
  if (k >= p.index.num_observations) {
    return;
  }
  double jc[2 * C];
  double jp[6];
  LoadBlock(p.jacobian.camera_blocks, k, jc);
  LoadBlock(p.jacobian.point_blocks, k, jp);
  double camera[C] = {};
  double point[3] = {};
  AddColumnNorms<C>(jc, camera);
  AddColumnNorms<3>(jp, point);
  AtomicAdd(p.cameras, p.index.camera_id[k], 1.0, camera);
  AtomicAdd(p.points, p.index.point_id[k], 1.0, point);
}

template <typename T, BlockLayout L>
__global__ void NaiveNormalBlocksKernel(PaperNormalBlocksParams<T, L> p) {
  const int64_t k = Thread();
  if (k >= p.index.num_observations) {
    return;
  }
  const int32_t camera = p.index.camera_id[k];
  const int32_t point = p.index.point_id[k];
  double jc[2 * C];
  double jp[6];
  double b[2];
  LoadBlock(p.jacobian.camera_blocks, k, jc);
  LoadBlock(p.jacobian.point_blocks, k, jp);
  LoadBlock(p.b, k, b);
  double u[kPackedC] = {};
  double v[6] = {};
  double camera_gradient[C] = {};
  double point_gradient[3] = {};
  AddSquare<C>(jc, u);
  AddSquare<3>(jp, v);
  AddTransposed<C>(jc, b, camera_gradient);
  AddTransposed<3>(jp, b, point_gradient);
  AtomicAdd(p.u, camera, 1.0, u);
  AtomicAdd(p.v, point, 1.0, v);
  AtomicAdd(p.camera_gradient, camera, 1.0, camera_gradient);
  AtomicAdd(p.point_gradient, point, 1.0, point_gradient);
  if (p.w.data != nullptr) {
    StoreCoupling(p, k, jc, jp);
  }
}

template <bool kExplicit, typename T, BlockLayout L>
__global__ void NaiveCouplingKernel(PaperCouplingParams<T, L> p) {
  const int64_t k = Thread();
  if (k >= p.index.num_observations || Ended(p.scalars)) {
    return;
  }
  if (p.s.data != nullptr) {
    double sum[3] = {};
    AddToPoint<kExplicit>(p, k, sum);
    AtomicAdd(p.s, p.index.point_id[k], 1.0, sum);
  }
  if (p.q.data != nullptr) {
    double sum[C] = {};
    AddToCamera<kExplicit>(p, k, sum);
    AtomicAdd(p.q, p.index.camera_id[k], p.sign, sum);
  }
}

// ---------------------------------------------------------------------------
// Optimised: one thread per point.

template <typename T, BlockLayout L>
__global__ void PaperPointNormsKernel(PaperColumnNormsParams<T, L> p) {
  for (int turn = 0; turn < kPointsPerThread; ++turn) {
    const int64_t point = PointOfTurn(turn);
    if (point >= p.index.num_points) {
      return;
    }
    double sum[3] = {};
    for (int64_t k = p.index.point_begin[point];
         k < p.index.point_begin[point + 1];
         ++k) {
      double jp[6];
      LoadBlock(p.jacobian.point_blocks, k, jp);
      AddColumnNorms<3>(jp, sum);
    }
    for (int i = 0; i < 3; ++i) {
      p.points(point, i) = sum[i];
    }
  }
}

template <typename T, BlockLayout L>
__global__ void PaperPointBlocksKernel(PaperNormalBlocksParams<T, L> p) {
  for (int turn = 0; turn < kPointsPerThread; ++turn) {
    const int64_t point = PointOfTurn(turn);
    if (point >= p.index.num_points) {
      return;
    }
    double v[6] = {};
    double gradient[3] = {};
    for (int64_t k = p.index.point_begin[point];
         k < p.index.point_begin[point + 1];
         ++k) {
      double jp[6];
      double b[2];
      LoadBlock(p.jacobian.point_blocks, k, jp);
      LoadBlock(p.b, k, b);
      AddSquare<3>(jp, v);
      AddTransposed<3>(jp, b, gradient);
    }
    for (int i = 0; i < 6; ++i) {
      p.v(point, i) = v[i];
    }
    for (int i = 0; i < 3; ++i) {
      p.point_gradient(point, i) = gradient[i];
    }
  }
}

template <bool kExplicit, typename T, BlockLayout L>
__global__ void PaperPointCouplingKernel(PaperCouplingParams<T, L> p) {
  if (Ended(p.scalars)) {
    return;
  }
  for (int turn = 0; turn < kPointsPerThread; ++turn) {
    const int64_t point = PointOfTurn(turn);
    if (point >= p.index.num_points) {
      return;
    }
    double sum[3];
    for (int i = 0; i < 3; ++i) {
      sum[i] = p.s(point, i);
    }
    for (int64_t k = p.index.point_begin[point];
         k < p.index.point_begin[point + 1];
         ++k) {
      AddToPoint<kExplicit>(p, k, sum);
    }
    for (int i = 0; i < 3; ++i) {
      p.s(point, i) = sum[i];
    }
  }
}

// One thread per projection: W.
template <typename T, BlockLayout L>
__global__ void PaperFormCouplingKernel(PaperNormalBlocksParams<T, L> p) {
  const int64_t k = Thread();
  if (k >= p.index.num_observations) {
    return;
  }
  double jc[2 * C];
  double jp[6];
  LoadBlock(p.jacobian.camera_blocks, k, jc);
  LoadBlock(p.jacobian.point_blocks, k, jp);
  StoreCoupling(p, k, jc, jp);
}

// One block per camera.

template <typename T, BlockLayout L>
__global__ void PaperCameraNormsKernel(PaperColumnNormsParams<T, L> p) {
  const int64_t camera = blockIdx.x;
  double sum[C] = {};
  for (int64_t j = p.index.camera_begin[camera] + threadIdx.x;
       j < p.index.camera_begin[camera + 1];
       j += kCameraThreads) {
    double jc[2 * C];
    LoadBlock(p.jacobian.camera_blocks, p.index.camera_entry[j], jc);
    AddColumnNorms<C>(jc, sum);
  }
  if (AddOnOneThread<C>(sum)) {
    for (int i = 0; i < C; ++i) {
      p.cameras(camera, i) = sum[i];
    }
  }
}

// U, packed, then g_c.
constexpr int kCameraBlockSums = kPackedC + C;

template <typename T, BlockLayout L>
__global__ void __launch_bounds__(kCameraThreads)
    PaperCameraBlocksKernel(PaperNormalBlocksParams<T, L> p) {
  const int64_t camera = blockIdx.x;
  double sum[kCameraBlockSums] = {};
  for (int64_t j = p.index.camera_begin[camera] + threadIdx.x;
       j < p.index.camera_begin[camera + 1];
       j += kCameraThreads) {
    const int64_t k = p.index.camera_entry[j];
    double jc[2 * C];
    double b[2];
    LoadBlock(p.jacobian.camera_blocks, k, jc);
    LoadBlock(p.b, k, b);
    AddSquare<C>(jc, sum);
    AddTransposed<C>(jc, b, sum + kPackedC);
  }
  if (AddOnOneThread<kCameraBlockSums>(sum)) {
    for (int i = 0; i < kPackedC; ++i) {
      p.u(camera, i) = sum[i];
    }
    for (int i = 0; i < C; ++i) {
      p.camera_gradient(camera, i) = sum[kPackedC + i];
    }
  }
}

template <bool kExplicit, typename T, BlockLayout L>
__global__ void PaperCameraCouplingKernel(PaperCouplingParams<T, L> p) {
  if (Ended(p.scalars)) {
    return;  // The whole block.
  }
  const int64_t camera = blockIdx.x;
  double sum[C] = {};
  for (int64_t j = p.index.camera_begin[camera] + threadIdx.x;
       j < p.index.camera_begin[camera + 1];
       j += kCameraThreads) {
    AddToCamera<kExplicit>(p, p.index.camera_entry[j], sum);
  }
  if (AddOnOneThread<C>(sum)) {
    for (int i = 0; i < C; ++i) {
      p.q(camera, i) += p.sign * sum[i];
    }
  }
}

// ---------------------------------------------------------------------------
// Of both forms: one thread per block.

template <int N, BlockLayout L>
__global__ void PaperDampedProductKernel(PaperDampedProductParams<N, L> p) {
  const int64_t i = Thread();
  if (i >= p.q.num_blocks || Ended(p.scalars)) {
    return;
  }
  double a[PackedSize(N)];
  double d[N] = {};
  double x[N];
  double y[N];
  LoadBlock(p.a, i, a);
  LoadBlock(p.p, i, x);
  if (p.diagonal.data != nullptr) {
    LoadBlock(p.diagonal, i, d);
  }
  kernels::AddSquaredDiagonal<N>(d, a);
  kernels::SymmetricMultiply<N>(a, x, y);
  for (int e = 0; e < N; ++e) {
    p.q(i, e) = y[e];
  }
}

template <BlockLayout L>
__global__ void PaperPointSolveKernel(PaperPointSolveParams<L> p) {
  const int64_t point = Thread();
  if (point >= p.y.num_blocks || Ended(p.scalars)) {
    return;
  }
  double v[6];
  double x[3];
  double y[3];
  LoadBlock(p.v_inverse, point, v);
  LoadBlock(p.s, point, x);
  if (p.g.data != nullptr) {
    for (int i = 0; i < 3; ++i) {
      x[i] = p.g(point, i) - x[i];
    }
  }
  kernels::SymmetricMultiply<3>(v, x, y);
  for (int i = 0; i < 3; ++i) {
    p.y(point, i) = y[i];
  }
}

// inverse_i = (A_i + D_i^2)^-1, or that of its diagonal where that is allowed.
template <int N, BlockLayout L>
__global__ void PaperInvertKernel(kernels::InvertBlocksParams<N> p) {
  const int64_t i = Thread();
  if (i >= p.n) {
    return;
  }
  const BlockRef<const double, N, L> diagonal{p.diagonal, p.n};
  double d[N] = {};
  if (p.diagonal != nullptr) {
    LoadBlock(diagonal, i, d);
  }
  double a[PackedSize(N)];
  const auto load = [&] {
    for (int e = 0; e < PackedSize(N); ++e) {
      a[e] = p.a(i, e);
    }
    kernels::AddSquaredDiagonal<N>(d, a);
  };
  load();
  bool ok = kernels::InvertSymmetric<N>(a);
  if (!ok && p.may_be_diagonal) {
    load();
    ok = kernels::InvertDiagonal<N>(d, a);
  }
  if (!ok) {
    atomicMin(p.first_breakdown, static_cast<int32_t>(i));
  }
  for (int e = 0; e < PackedSize(N); ++e) {
    p.inverse(i, e) = a[e];
  }
}

template <int N, BlockLayout L>
__global__ void PaperApplyKernel(kernels::ApplyBlocksParams<N> p) {
  const int64_t i = Thread();
  if (i >= p.n || Ended(p.scalars)) {
    return;
  }
  double a[PackedSize(N)];
  for (int e = 0; e < PackedSize(N); ++e) {
    a[e] = p.a(i, e);
  }
  const BlockRef<const double, N, L> r{p.r, p.n};
  const BlockRef<double, N, L> z{p.z, p.n};
  double x[N];
  double y[N];
  LoadBlock(r, i, x);
  kernels::SymmetricMultiply<N>(a, x, y);
  for (int e = 0; e < N; ++e) {
    z(i, e) = p.scale * y[e];
  }
}

template <int N, BlockLayout L>
__global__ void ToLayoutKernel(ToLayoutParams<N, L> p) {
  const int64_t i = Thread();
  if (i < p.to.num_blocks) {
    for (int e = 0; e < N; ++e) {
      p.to(i, e) = p.from[N * i + e];
    }
  }
}

// Non-negative doubles are ordered as their bits are, so a maximum does not
// depend on the order of the atomics.
template <BlockLayout L>
__global__ void LargestDifferenceKernel(LargestDifferenceParams<L> p) {
  const int64_t k = Thread();
  if (k >= p.a.num_blocks) {
    return;
  }
  const double dx = p.a(k, 0) - p.b[2 * k];
  const double dy = p.a(k, 1) - p.b[2 * k + 1];
  const double distance = sqrt(dx * dx + dy * dy);
  union {
    double value;
    unsigned long long bits;  // NOLINT(google-runtime-int): of atomicMax
  } largest;
  largest.value = distance < INFINITY ? distance : INFINITY;
  auto* const at = reinterpret_cast<unsigned long long*>(p.largest);
  if (largest.bits > *at) {
    atomicMax(at, largest.bits);
  }
}

}  // namespace

template <PaperForm F, typename T, BlockLayout L>
Status Run(const PaperResidualsParams<L>& params,
           PaperMachine<F, T, L>* machine) {
  return LaunchFor("PaperResiduals",
                   PaperResidualsKernel<L>,
                   params.index.num_observations,
                   machine->stream(),
                   params);
}

template <PaperForm F, typename T, BlockLayout L>
Status Run(const PaperJacobianParams<T, L>& params,
           PaperMachine<F, T, L>* machine) {
  return LaunchFor("PaperJacobian",
                   PaperJacobianKernel<T, L>,
                   params.index.num_observations,
                   machine->stream(),
                   params);
}

template <PaperForm F, typename T, BlockLayout L>
Status Run(const PaperColumnNormsParams<T, L>& params,
           PaperMachine<F, T, L>* machine) {
  const cudaStream_t stream = machine->stream();
  if constexpr (F == PaperForm::kNaive) {
    CERES_EXT_RETURN_IF_ERROR(Clear(params.cameras, stream));
    CERES_EXT_RETURN_IF_ERROR(Clear(params.points, stream));
    return LaunchFor("NaiveColumnNorms",
                     NaiveColumnNormsKernel<T, L>,
                     params.index.num_observations,
                     stream,
                     params);
  } else {
    CERES_EXT_RETURN_IF_ERROR(LaunchForPoints("PaperPointNorms",
                                              PaperPointNormsKernel<T, L>,
                                              params.index.num_points,
                                              stream,
                                              params));
    return LaunchForCameras<C>("PaperCameraNorms",
                               PaperCameraNormsKernel<T, L>,
                               params.index.num_cameras,
                               stream,
                               params);
  }
}

template <PaperForm F, typename T, BlockLayout L>
Status Run(const PaperNormalBlocksParams<T, L>& params,
           PaperMachine<F, T, L>* machine) {
  const cudaStream_t stream = machine->stream();
  if constexpr (F == PaperForm::kNaive) {
    CERES_EXT_RETURN_IF_ERROR(Clear(params.u, stream));
    CERES_EXT_RETURN_IF_ERROR(Clear(params.v, stream));
    CERES_EXT_RETURN_IF_ERROR(Clear(params.camera_gradient, stream));
    CERES_EXT_RETURN_IF_ERROR(Clear(params.point_gradient, stream));
    return LaunchFor("NaiveNormalBlocks",
                     NaiveNormalBlocksKernel<T, L>,
                     params.index.num_observations,
                     stream,
                     params);
  } else {
    CERES_EXT_RETURN_IF_ERROR(LaunchForPoints("PaperPointBlocks",
                                              PaperPointBlocksKernel<T, L>,
                                              params.index.num_points,
                                              stream,
                                              params));
    if (params.w.data != nullptr) {
      CERES_EXT_RETURN_IF_ERROR(LaunchFor("PaperFormCoupling",
                                          PaperFormCouplingKernel<T, L>,
                                          params.index.num_observations,
                                          stream,
                                          params));
    }
    return LaunchForCameras<kCameraBlockSums>("PaperCameraBlocks",
                                              PaperCameraBlocksKernel<T, L>,
                                              params.index.num_cameras,
                                              stream,
                                              params);
  }
}

namespace {

template <bool kExplicit, PaperForm F, typename T, BlockLayout L>
Status Coupling(const PaperCouplingParams<T, L>& params,
                PaperMachine<F, T, L>* machine) {
  const cudaStream_t stream = machine->stream();
  if constexpr (F == PaperForm::kNaive) {
    return LaunchFor("NaiveCoupling",
                     NaiveCouplingKernel<kExplicit, T, L>,
                     params.index.num_observations,
                     stream,
                     params);
  } else {
    if (params.s.data != nullptr) {
      CERES_EXT_RETURN_IF_ERROR(
          LaunchForPoints("PaperPointCoupling",
                          PaperPointCouplingKernel<kExplicit, T, L>,
                          params.index.num_points,
                          stream,
                          params));
    }
    if (params.q.data != nullptr) {
      CERES_EXT_RETURN_IF_ERROR(
          LaunchForCameras<C>("PaperCameraCoupling",
                              PaperCameraCouplingKernel<kExplicit, T, L>,
                              params.index.num_cameras,
                              stream,
                              params));
    }
    return Status();
  }
}

}  // namespace

template <PaperForm F, typename T, BlockLayout L>
Status Run(const PaperCouplingParams<T, L>& params,
           PaperMachine<F, T, L>* machine) {
  return params.w.data == nullptr ? Coupling<false>(params, machine)
                                  : Coupling<true>(params, machine);
}

template <int N, PaperForm F, typename T, BlockLayout L>
Status Run(const PaperDampedProductParams<N, L>& params,
           PaperMachine<F, T, L>* machine) {
  return LaunchFor("PaperDampedProduct",
                   PaperDampedProductKernel<N, L>,
                   params.q.num_blocks,
                   machine->stream(),
                   params);
}

template <PaperForm F, typename T, BlockLayout L>
Status Run(const PaperPointSolveParams<L>& params,
           PaperMachine<F, T, L>* machine) {
  return LaunchFor("PaperPointSolve",
                   PaperPointSolveKernel<L>,
                   params.y.num_blocks,
                   machine->stream(),
                   params);
}

template <PaperForm F, typename T, BlockLayout L>
Status Run(const LargestDifferenceParams<L>& params,
           PaperMachine<F, T, L>* machine) {
  CERES_EXT_RETURN_IF_CUDA_ERROR(cudaMemsetAsync(
      params.largest, 0, sizeof(*params.largest), machine->stream()));
  return LaunchFor("LargestDifference",
                   LargestDifferenceKernel<L>,
                   params.a.num_blocks,
                   machine->stream(),
                   params);
}

template <int N, PaperForm F, typename T, BlockLayout L>
Status Run(const ToLayoutParams<N, L>& params, PaperMachine<F, T, L>* machine) {
  return LaunchFor("ToLayout",
                   ToLayoutKernel<N, L>,
                   params.to.num_blocks,
                   machine->stream(),
                   params);
}

template <int N, PaperForm F, typename T, BlockLayout L>
std::enable_if_t<N != kernels::kDynamic, Status> Run(
    const kernels::InvertBlocksParams<N>& params,
    PaperMachine<F, T, L>* machine) {
  return LaunchFor("PaperInvert",
                   PaperInvertKernel<N, L>,
                   params.n,
                   machine->stream(),
                   params);
}

template <int N, PaperForm F, typename T, BlockLayout L>
std::enable_if_t<N != kernels::kDynamic, Status> Run(
    const kernels::ApplyBlocksParams<N>& params,
    PaperMachine<F, T, L>* machine) {
  return LaunchFor("PaperApply",
                   PaperApplyKernel<N, L>,
                   params.n,
                   machine->stream(),
                   params);
}

#define CERES_EXT_INSTANTIATE_SIZE(N, F, T, L)               \
  template Status Run(const kernels::InvertBlocksParams<N>&, \
                      PaperMachine<F, T, L>*);               \
  template Status Run(const kernels::ApplyBlocksParams<N>&,  \
                      PaperMachine<F, T, L>*);
#define CERES_EXT_INSTANTIATE(F, T, L)                                         \
  template Status Run(const PaperResidualsParams<L>&, PaperMachine<F, T, L>*); \
  template Status Run(const PaperJacobianParams<T, L>&,                        \
                      PaperMachine<F, T, L>*);                                 \
  template Status Run(const PaperColumnNormsParams<T, L>&,                     \
                      PaperMachine<F, T, L>*);                                 \
  template Status Run(const PaperNormalBlocksParams<T, L>&,                    \
                      PaperMachine<F, T, L>*);                                 \
  template Status Run(const PaperCouplingParams<T, L>&,                        \
                      PaperMachine<F, T, L>*);                                 \
  template Status Run(const PaperPointSolveParams<L>&,                         \
                      PaperMachine<F, T, L>*);                                 \
  template Status Run(const LargestDifferenceParams<L>&,                       \
                      PaperMachine<F, T, L>*);                                 \
  template Status Run(const PaperDampedProductParams<3, L>&,                   \
                      PaperMachine<F, T, L>*);                                 \
  template Status Run(const PaperDampedProductParams<9, L>&,                   \
                      PaperMachine<F, T, L>*);                                 \
  template Status Run(const ToLayoutParams<2, L>&, PaperMachine<F, T, L>*);    \
  template Status Run(const ToLayoutParams<3, L>&, PaperMachine<F, T, L>*);    \
  template Status Run(const ToLayoutParams<9, L>&, PaperMachine<F, T, L>*);    \
  CERES_EXT_INSTANTIATE_SIZE(3, F, T, L)                                       \
  CERES_EXT_INSTANTIATE_SIZE(9, F, T, L)                                       \
  CERES_EXT_INSTANTIATE_SIZE(10, F, T, L)
#define CERES_EXT_INSTANTIATE_TYPES(F, L) \
  CERES_EXT_INSTANTIATE(F, double, L)     \
  CERES_EXT_INSTANTIATE(F, float, L)
#define CERES_EXT_INSTANTIATE_LAYOUTS(F)                          \
  CERES_EXT_INSTANTIATE_TYPES(F, BlockLayout::kContinuousElement) \
  CERES_EXT_INSTANTIATE_TYPES(F, BlockLayout::kBlockContiguous)

CERES_EXT_INSTANTIATE_LAYOUTS(PaperForm::kNaive)
CERES_EXT_INSTANTIATE_LAYOUTS(PaperForm::kOptimized)
#undef CERES_EXT_INSTANTIATE_SIZE
#undef CERES_EXT_INSTANTIATE
#undef CERES_EXT_INSTANTIATE_TYPES
#undef CERES_EXT_INSTANTIATE_LAYOUTS

}  // namespace ceres_ext::bal
