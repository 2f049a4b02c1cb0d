// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Products that are added to something are kept apart from the addition
// (Product) wherever the host's bits are promised. Quotients and square roots
// are the correctly rounded ones of double precision.
#include "cuda_kernels/ops/loop.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "cuda_kernels/machine/cuda_launch.cuh"
#include "cuda_kernels/cuda/vector_sums.cuh"
#include "cuda_kernels/structure/cuda_workspace.h"

namespace ceres_ext::kernels::cuda {
namespace {

// SumOverBlocks then adds in the loop order.
static_assert(kLoopLanes == kVectorBlock && kMaxLoopSumBlocks == kVectorBlocks,
              "the loop order is that of SumOverBlocks");

__device__ __forceinline__ int64_t FirstElement() {
  return int64_t{blockIdx.x} * kVectorBlock + threadIdx.x;
}
__device__ __forceinline__ int64_t ElementStride() {
  return int64_t{gridDim.x} * kVectorBlock;
}

// a b, never fused with an addition.
__device__ __forceinline__ double Product(double a, double b) {
#ifdef __CUDACC__
  return __dmul_rn(a, b);
#else
  return a * b;
#endif
}

// ---------------------------------------------------------------------------
// Element by element: Apply(params, i) does element, or block, i.

__device__ __forceinline__ void Apply(const GatherTangentParams& p, int64_t i) {
  const int64_t block = i / p.table.padded_size;
  const int element = static_cast<int>(i - block * p.table.padded_size);
  p.padded[i] = element < p.table.tangent_size[block]
                    ? p.vector[p.table.tangent_offset[block] + element]
                    : p.padding;
}

__device__ __forceinline__ void Apply(const ScatterTangentParams& p,
                                      int64_t i) {
  const int64_t block = i / p.table.padded_size;
  const int element = static_cast<int>(i - block * p.table.padded_size);
  if (element < p.table.tangent_size[block]) {
    p.vector[p.table.tangent_offset[block] + element] = p.padded[i];
  }
}

__device__ __forceinline__ void Apply(const GatherStateParams& p, int64_t i) {
  const int64_t block = i / p.table.ambient_size;
  const int element = static_cast<int>(i - block * p.table.ambient_size);
  const int32_t offset = p.table.state_offset[block];
  p.ambient[i] =
      offset < 0 ? p.table.constant_values[i] : p.state[offset + element];
}

__device__ __forceinline__ void Apply(const SetPaddingParams& p, int64_t i) {
  const int64_t block = i / p.table.padded_size;
  const int element = static_cast<int>(i - block * p.table.padded_size);
  p.padded[i] =
      element < p.table.tangent_size[block] ? p.active_value : p.padding;
}

__device__ __forceinline__ void Apply(const GatherPairsParams& p, int64_t k) {
  const int64_t i = p.source[k];
  p.out[2 * k] = p.in[2 * i];
  p.out[2 * k + 1] = p.in[2 * i + 1];
}

__device__ __forceinline__ void Apply(const CameraTangentsParams& p,
                                      int64_t c) {
  if (p.kind[c] != ManifoldKind::kQuaternion) {
    return;  // No barrier follows.
  }
  const double* q = p.cameras + p.ambient_size * c;
  double* row = p.tangents + int64_t{p.ambient_size} * p.padded_size * c;
  row[0] = -q[1];
  row[1] = -q[2];
  row[2] = -q[3];
  row += p.padded_size;
  row[0] = q[0];
  row[1] = q[3];
  row[2] = -q[2];
  row += p.padded_size;
  row[0] = -q[3];
  row[1] = q[0];
  row[2] = q[1];
  row += p.padded_size;
  row[0] = q[2];
  row[1] = -q[1];
  row[2] = q[0];
}

// |(x, y, z)|, scaled by the largest so that nothing overflows. NaN where one
// of them is.
__device__ __forceinline__ double Hypot(double x, double y, double z) {
  x = fabs(x);
  y = fabs(y);
  z = fabs(z);
  const double largest = fmax(x, fmax(y, z));
  if (largest == 0.0) {
    return x + y + z;  // Zero, or NaN.
  }
  x /= largest;
  y /= largest;
  z /= largest;
  return Product(largest, sqrt(Product(x, x) + Product(y, y) + Product(z, z)));
}

// y = q_delta x, q_delta = (cos |d|, sin |d| d / |d|), w first.
__device__ __forceinline__ void PlusQuaternion(const double* state,
                                               const double* delta,
                                               double* y) {
  const double norm = Hypot(delta[0], delta[1], delta[2]);
  const double x0 = state[0];
  const double x1 = state[1];
  const double x2 = state[2];
  const double x3 = state[3];
  if (norm == 0.0) {
    y[0] = x0;
    y[1] = x1;
    y[2] = x2;
    y[3] = x3;
    return;  // No barrier follows.
  }
  const double scale = sin(norm) / norm;
  const double q0 = cos(norm);
  const double q1 = Product(scale, delta[0]);
  const double q2 = Product(scale, delta[1]);
  const double q3 = Product(scale, delta[2]);
  y[0] = Product(q0, x0) - Product(q1, x1) - Product(q2, x2) - Product(q3, x3);
  y[1] = Product(q0, x1) + Product(q1, x0) + Product(q2, x3) - Product(q3, x2);
  y[2] = Product(q0, x2) - Product(q1, x3) + Product(q2, x0) + Product(q3, x1);
  y[3] = Product(q0, x3) + Product(q1, x2) - Product(q2, x1) + Product(q3, x0);
}

__device__ __forceinline__ void Apply(const PlusParams& p, int64_t block) {
  const int32_t state_offset = p.table.state_offset[block];
  if (state_offset < 0) {
    return;  // No barrier follows.
  }
  const int columns = p.table.tangent_size[block];
  const double* x = p.state + state_offset;
  const double* delta =
      columns > 0 ? p.delta + p.table.tangent_offset[block] : nullptr;
  double* y = p.state_plus_delta + state_offset;
  int row = 0;
  int column = 0;
  if (p.kind != nullptr && p.kind[block] == ManifoldKind::kQuaternion) {
    PlusQuaternion(x, delta, y);
    row = 4;
    column = 3;
  }
  const int shift = row - column;
  for (; row < p.table.ambient_size; ++row) {
    double sum = x[row];
    if (p.linear == nullptr) {
      if (row - shift < columns) {
        sum += delta[row - shift];
      }
    } else {
      const double* linear =
          p.linear + (block * p.table.ambient_size + row) * p.table.padded_size;
      for (int j = column; j < columns; ++j) {
        if (linear[j] != 0.0) {
          sum += Product(linear[j], delta[j]);
        }
      }
    }
    y[row] = sum;
  }
}

__device__ __forceinline__ void Apply(const SetConstantParams& p, int64_t i) {
  p.x[i] = p.value;
}

__device__ __forceinline__ void Apply(const NegateParams& p, int64_t i) {
  p.y[i] = -p.x[i];
}

__device__ __forceinline__ void Apply(const AddVectorsParams& p, int64_t i) {
  p.z[i] = p.x[i] + p.y[i];
}

__device__ __forceinline__ void Apply(const MultiplyParams& p, int64_t i) {
  p.z[i] = p.x[i] * p.y[i];
}

template <typename T>
__device__ __forceinline__ void Apply(const CastParams<T>& p, int64_t i) {
  p.y[i] = static_cast<T>(p.x[i]);
}

__device__ __forceinline__ void Apply(const JacobiScalingParams& p, int64_t i) {
  p.x[i] = 1.0 / (1.0 + sqrt(p.x[i]));
}

__device__ __forceinline__ void Apply(const ClampParams& p, int64_t i) {
  double x = p.x[i];
  x = x < p.min_value ? p.min_value : x;
  p.x[i] = p.max_value < x ? p.max_value : x;
}

__device__ __forceinline__ void Apply(const LevenbergMarquardtDiagonalParams& p,
                                      int64_t i) {
  p.y[i] = sqrt(p.x[i] / p.radius);
}

__device__ __forceinline__ void Apply(const NegateIfValidParams& p, int64_t i) {
  if (p.scalars->num_invalid == 0) {
    p.x[i] = -p.x[i];
  }
}

template <typename Params>
__global__ void __launch_bounds__(kVectorBlock)
    ForEachKernel(Params params, int64_t n) {
#pragma unroll 4
  for (int64_t i = FirstElement(); i < n; i += ElementStride()) {
    Apply(params, i);
  }
}

// Apply for 0 <= i < n.
template <typename Params>
Status ForEach(const char* name,
               int64_t n,
               const Params& params,
               cudaStream_t stream) {
  return Launch(name,
                ForEachKernel<Params>,
                std::min<int64_t>(kVectorBlocks, CeilDivide(n, kVectorBlock)),
                kVectorBlock,
                0,
                stream,
                params,
                n);
}

// ---------------------------------------------------------------------------
// Sums: threads stride over the elements, the last block sets the scalars.

__device__ __forceinline__ bool IsValid(double x) {
  return fabs(x) < INFINITY && x != kImpossibleValue;
}

__global__ void __launch_bounds__(kVectorBlock)
    CountInvalidKernel(CountInvalidParams p, double* partial, int32_t* ticket) {
  double num_invalid = 0.0;
#pragma unroll 4
  for (int64_t i = FirstElement(); i < p.n; i += ElementStride()) {
    num_invalid += IsValid(p.x[i]) ? 0.0 : 1.0;
  }
  TwoSums sum;
  if (SumOverBlocks({num_invalid, 0.0}, partial, ticket, &sum)) {
    p.scalars->num_invalid = static_cast<int64_t>(sum.first);
  }
}

// Non-negative doubles, and NaN above them all, have the order of their bits.
__device__ __forceinline__ unsigned long long OrderedBits(double x) {
  x = fabs(x);
  unsigned long long bits;
  memcpy(&bits, &x, sizeof(bits));
  return bits;
}

// scalars->max_norm is zero before. The maximum over the warps is an atomic one
// of integers: the same in any order.
__global__ void __launch_bounds__(kVectorBlock)
    ProjectedGradientNormsKernel(ProjectedGradientNormsParams p,
                                 double* partial,
                                 int32_t* ticket) {
  unsigned long long max_bits = 0;
  double squared_norm = 0.0;
#pragma unroll 4
  for (int64_t i = FirstElement(); i < p.n; i += ElementStride()) {
    const double difference = p.x[i] - p.projected_x[i];
    const unsigned long long bits = OrderedBits(difference);
    max_bits = bits > max_bits ? bits : max_bits;
    squared_norm += difference * difference;
  }
  for (int offset = kWarpSize / 2; offset > 0; offset /= 2) {
    const unsigned long long other =
        __shfl_xor_sync(kFullWarp, max_bits, offset);
    max_bits = other > max_bits ? other : max_bits;
  }
  if (threadIdx.x % kWarpSize == 0) {
    static_assert(sizeof(double) == sizeof(unsigned long long), "64 bits");
    atomicMax(reinterpret_cast<unsigned long long*>(&p.scalars->max_norm),
              max_bits);
  }
  TwoSums sum;
  if (SumOverBlocks({squared_norm, 0.0}, partial, ticket, &sum)) {
    p.scalars->norm = sqrt(sum.first);
  }
}

__global__ void __launch_bounds__(kVectorBlock)
    StepNormsKernel(StepNormsParams p, double* partial, int32_t* ticket) {
  TwoSums value{0.0, 0.0};
#pragma unroll 4
  for (int64_t i = FirstElement(); i < p.n; i += ElementStride()) {
    const double x = p.x[i];
    const double difference = x - p.candidate_x[i];
    value.first += x * x;
    value.second += difference * difference;
  }
  TwoSums sum;
  if (SumOverBlocks(value, partial, ticket, &sum)) {
    p.scalars->x_norm = sqrt(sum.first);
    p.scalars->step_norm = sqrt(sum.second);
  }
}

__global__ void __launch_bounds__(kVectorBlock)
    ModelCostChangeKernel(ModelCostChangeParams p,
                          double* partial,
                          int32_t* ticket) {
  double change = 0.0;
#pragma unroll 4
  for (int64_t i = FirstElement(); i < p.n; i += ElementStride()) {
    const double m = p.model_residuals[i];
    change += m * (p.residuals[i] + 0.5 * m);
  }
  TwoSums sum;
  if (SumOverBlocks({change, 0.0}, partial, ticket, &sum)) {
    p.scalars->model_cost_change = -sum.first;
  }
}

// Corrects block k of 2 x N / 2 elements in place.
template <int N, typename T>
__device__ __forceinline__ void CorrectBlock(
    const LossCorrector& corrector,
    const double* residual,
    int64_t k,
    const BlockView<T, N, kDeviceLayout>& blocks) {
  if (blocks.data == nullptr) {
    return;  // No barrier follows.
  }
  double jacobian[N];
#pragma unroll
  for (int i = 0; i < N; ++i) {
    jacobian[i] = blocks(k, i);
  }
  corrector.template CorrectJacobian<2, N / 2>(residual, jacobian);
#pragma unroll
  for (int i = 0; i < N; ++i) {
    blocks(k, i) = static_cast<T>(jacobian[i]);
  }
}

// Two blocks of a multiprocessor at least: without the bound it would be one,
// of up to 210 registers a thread.
template <typename T, int C>
__global__ void __launch_bounds__(kVectorBlock, 2)
    CorrectForLossKernel(CorrectForLossParams<T, C, kDeviceLayout> p,
                         double* partial,
                         int32_t* ticket) {
  double cost = 0.0;
  for (int64_t k = FirstElement(); k < p.num_observations;
       k += ElementStride()) {
    double residual[2] = {p.residuals[2 * k], p.residuals[2 * k + 1]};
    const double s = residual[0] * residual[0] + residual[1] * residual[1];
    double rho[3] = {s, 1.0, 0.0};
    const int id = p.loss_id == nullptr ? 0 : p.loss_id[k];
    if (id != kNoLoss) {
      RobustLoss::EvaluateChain(p.losses, id, s, rho);
    }
    cost += rho[0];
    // Elsewhere the correction is the identity.
    if (rho[1] != 1.0 || rho[2] > 0.0) {
      const LossCorrector corrector(s, rho);
      CorrectBlock<2 * C>(corrector, residual, k, p.camera_blocks);
      CorrectBlock<6>(corrector, residual, k, p.point_blocks);
      corrector.template CorrectResidual<2>(residual);
    }
    if (p.corrected_residuals != nullptr) {
      p.corrected_residuals[2 * k] = residual[0];
      p.corrected_residuals[2 * k + 1] = residual[1];
    }
  }
  TwoSums sum;
  if (SumOverBlocks({cost, 0.0}, partial, ticket, &sum)) {
    p.evaluation->cost = 0.5 * sum.first;
  }
}

// Queues a kernel over n elements that sums in the loop order.
template <typename Params>
Status LaunchSum(const char* name,
                 void (*kernel)(Params, double*, int32_t*),
                 int64_t n,
                 const Params& params,
                 const CudaWorkspaceView& workspace,
                 cudaStream_t stream) {
  return Launch(name,
                kernel,
                LoopSumBlocks(n),
                kVectorBlock,
                0,
                stream,
                params,
                workspace.vector_partial,
                workspace.ticket);
}

int64_t NumPaddedValues(const BlockTableView& table) {
  return int64_t{table.num_blocks} * table.padded_size;
}

}  // namespace

Status GatherTangent(const GatherTangentParams& params, cudaStream_t stream) {
  return ForEach(
      "GatherTangent", NumPaddedValues(params.table), params, stream);
}

Status ScatterTangent(const ScatterTangentParams& params, cudaStream_t stream) {
  return ForEach(
      "ScatterTangent", NumPaddedValues(params.table), params, stream);
}

Status GatherState(const GatherStateParams& params, cudaStream_t stream) {
  return ForEach("GatherState",
                 int64_t{params.table.num_blocks} * params.table.ambient_size,
                 params,
                 stream);
}

Status SetPadding(const SetPaddingParams& params, cudaStream_t stream) {
  return ForEach("SetPadding", NumPaddedValues(params.table), params, stream);
}

Status GatherPairs(const GatherPairsParams& params, cudaStream_t stream) {
  return ForEach("GatherPairs", params.n, params, stream);
}

Status CameraTangents(const CameraTangentsParams& params, cudaStream_t stream) {
  return ForEach("CameraTangents", params.num_cameras, params, stream);
}

Status Plus(const PlusParams& params, cudaStream_t stream) {
  return ForEach("Plus", params.table.num_blocks, params, stream);
}

Status Copy(const CopyParams& params, cudaStream_t stream) {
  if (params.n <= 0 || params.x == params.y) {
    return Status();  // Nothing to move.
  }
  CERES_EXT_RETURN_IF_CUDA_ERROR(
      cudaMemcpyAsync(params.y,
                      params.x,
                      static_cast<size_t>(params.n) * sizeof(double),
                      cudaMemcpyDeviceToDevice,
                      stream));
  return Status();
}

Status SetConstant(const SetConstantParams& params, cudaStream_t stream) {
  return ForEach("SetConstant", params.n, params, stream);
}

Status Negate(const NegateParams& params, cudaStream_t stream) {
  return ForEach("Negate", params.n, params, stream);
}

Status AddVectors(const AddVectorsParams& params, cudaStream_t stream) {
  return ForEach("AddVectors", params.n, params, stream);
}

Status Multiply(const MultiplyParams& params, cudaStream_t stream) {
  return ForEach("Multiply", params.n, params, stream);
}

template <typename T>
Status Cast(const CastParams<T>& params, cudaStream_t stream) {
  return ForEach("Cast", params.n, params, stream);
}
template Status Cast<double>(const CastParams<double>&, cudaStream_t);
template Status Cast<float>(const CastParams<float>&, cudaStream_t);

Status JacobiScaling(const JacobiScalingParams& params, cudaStream_t stream) {
  return ForEach("JacobiScaling", params.n, params, stream);
}

Status Clamp(const ClampParams& params, cudaStream_t stream) {
  return ForEach("Clamp", params.n, params, stream);
}

Status LevenbergMarquardtDiagonal(
    const LevenbergMarquardtDiagonalParams& params, cudaStream_t stream) {
  return ForEach("LevenbergMarquardtDiagonal", params.n, params, stream);
}

Status Invalidate(const InvalidateParams& params, cudaStream_t stream) {
  return SetConstant({params.n, kImpossibleValue, params.x}, stream);
}

Status CountInvalid(const CountInvalidParams& params,
                    const CudaWorkspaceView& workspace,
                    cudaStream_t stream) {
  return LaunchSum(
      "CountInvalid", CountInvalidKernel, params.n, params, workspace, stream);
}

Status NegateIfValid(const NegateIfValidParams& params,
                     const CudaWorkspaceView& workspace,
                     cudaStream_t stream) {
  CERES_EXT_RETURN_IF_ERROR(
      CountInvalid({params.n, params.x, params.scalars}, workspace, stream));
  return ForEach("NegateIfValid", params.n, params, stream);
}

Status ProjectedGradientNorms(const ProjectedGradientNormsParams& params,
                              const CudaWorkspaceView& workspace,
                              cudaStream_t stream) {
  CERES_EXT_RETURN_IF_CUDA_ERROR(cudaMemsetAsync(
      &params.scalars->max_norm, 0, sizeof(params.scalars->max_norm), stream));
  return LaunchSum("ProjectedGradientNorms",
                   ProjectedGradientNormsKernel,
                   params.n,
                   params,
                   workspace,
                   stream);
}

Status StepNorms(const StepNormsParams& params,
                 const CudaWorkspaceView& workspace,
                 cudaStream_t stream) {
  return LaunchSum(
      "StepNorms", StepNormsKernel, params.n, params, workspace, stream);
}

Status ModelCostChange(const ModelCostChangeParams& params,
                       const CudaWorkspaceView& workspace,
                       cudaStream_t stream) {
  return LaunchSum("ModelCostChange",
                   ModelCostChangeKernel,
                   params.n,
                   params,
                   workspace,
                   stream);
}

template <typename T, int C>
Status CorrectForLoss(const CorrectForLossParams<T, C, kDeviceLayout>& params,
                      const CudaWorkspaceView& workspace,
                      cudaStream_t stream) {
  return LaunchSum("CorrectForLoss",
                   CorrectForLossKernel<T, C>,
                   params.num_observations,
                   params,
                   workspace,
                   stream);
}

#define CERES_EXT_INSTANTIATE(T, C)                     \
  template Status CorrectForLoss(                       \
      const CorrectForLossParams<T, C, kDeviceLayout>&, \
      const CudaWorkspaceView&,                         \
      cudaStream_t)

CERES_EXT_INSTANTIATE(double, 9);
CERES_EXT_INSTANTIATE(double, 10);
CERES_EXT_INSTANTIATE(float, 9);
CERES_EXT_INSTANTIATE(float, 10);
#undef CERES_EXT_INSTANTIATE

}  // namespace ceres_ext::kernels::cuda
