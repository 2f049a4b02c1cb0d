// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// What Ceres's trust region loop does between evaluations and linear solves,
// so that its vectors need not leave the machine they live on:
//
//   GatherTangent, ScatterTangent   Ceres's tangent vector <-> padded blocks
//   GatherState, SetPadding         state -> blocks; a constant padded vector
//   GatherPairs                     measurements -> order of an index
//   CameraTangents, Plus            manifolds
//   Copy .. NegateIfValid           the loop's arithmetic, element by element
//   ProjectedGradientNorms ..       its sums
//   CorrectForLoss                  robust losses, after the evaluation
//
// Operations without a sum give the same bits on host and device, the sines and
// cosines of quaternions excepted. Sums have one order for both machines, the
// *loop order*, a function of n alone:
//   G = LoopSumBlocks(n) blocks of 256 lanes; lane t of block b adds elements
//   256 b + t, then + 256 G, + 512 G, ...; each 32 lanes are added as a
//   butterfly (16, 8, 4, 2, 1 apart) and the eight results from the first on;
//   the G results are lanes 0, 1, .. of one more such block.
// There the machines differ in the rounding of fused products only.
#ifndef CERES_EXT_CUDA_KERNELS_OPS_LOOP_H_
#define CERES_EXT_CUDA_KERNELS_OPS_LOOP_H_

#include <cstdint>

#include "cuda_kernels/base/block_view.h"
#include "cuda_kernels/ops/evaluate.h"
#include "cuda_kernels/model/robust_loss.h"
#include "cuda_kernels/base/status.h"

// As the CUDA runtime declares it.
typedef struct CUstream_st* cudaStream_t;

namespace ceres_ext::kernels {

class HostContext;
struct CudaWorkspaceView;

// The loop order.
inline constexpr int kLoopLanes = 256;
inline constexpr int kMaxLoopSumBlocks = 1024;
inline int64_t LoopSumBlocks(int64_t n) {
  const int64_t blocks = (n + 2 * kLoopLanes - 1) / (2 * kLoopLanes);
  return blocks < 1                   ? 1
         : blocks > kMaxLoopSumBlocks ? kMaxLoopSumBlocks
                                      : blocks;
}

// ---------------------------------------------------------------------------
// Blocks in Ceres's vectors.

// Where the blocks of one kind (cameras, or points) stand in Ceres's vectors.
// Block i has tangent_size[i] <= padded_size values at tangent_offset[i] of a
// tangent vector and ambient_size values at state_offset[i] of a state. A block
// without columns has tangent_size 0, a constant block state_offset -1 as well;
// offsets of what isn't there are not read. *Padding* are the places of a
// padded vector (num_blocks x padded_size, row-major) beyond tangent_size[i].
struct BlockTableView {
  int32_t num_blocks = 0;
  int32_t padded_size = 0;
  int32_t ambient_size = 0;
  const int32_t* tangent_offset = nullptr;  // num_blocks
  const int32_t* tangent_size = nullptr;    // num_blocks
  const int32_t* state_offset = nullptr;    // num_blocks
  // ambient_size per block, read where state_offset < 0; null: nowhere.
  const double* constant_values = nullptr;
};

// padded = vector, and `padding` where the vector has no value.
// Mapping: a thread per padded value. Traffic: 16 B per value.
struct GatherTangentParams {
  BlockTableView table;
  const double* vector = nullptr;
  double padding = 0.0;
  double* padded = nullptr;
};

// The values of `padded` that have a place in the vector go there; nothing else
// in the vector changes.
// Mapping, traffic: as GatherTangent.
struct ScatterTangentParams {
  BlockTableView table;
  const double* padded = nullptr;
  double* vector = nullptr;
};

// ambient (num_blocks x ambient_size, row-major) = the blocks' values in
// `state`, or their constant values.
// Mapping: a thread per value. Traffic: 16 B per value.
struct GatherStateParams {
  BlockTableView table;
  const double* state = nullptr;
  double* ambient = nullptr;
};

// padded = active_value, and `padding` in the padding.
// Mapping: a thread per padded value. Traffic: 8 B per value.
struct SetPaddingParams {
  BlockTableView table;
  double active_value = 0.0;
  double padding = 0.0;
  double* padded = nullptr;
};

// Pair k of `out` = pair source[k] of `in`.
// Mapping: a thread per pair. Traffic: 36 B per pair.
struct GatherPairsParams {
  int64_t n = 0;
  const int32_t* source = nullptr;  // n
  const double* in = nullptr;       // 2 per pair
  double* out = nullptr;            // 2 n
};

// ---------------------------------------------------------------------------
// Manifolds.

// How a block moves, with P its ambient_size x padded_size matrix, row-major.
enum class ManifoldKind : uint8_t {
  // x + P d: Euclidean, ceres::SubsetManifold, constant blocks.
  kLinear = 0,
  // Parameters 0 to 3 are a unit quaternion w x y z, moved by d_0 to d_2 as by
  // ceres::QuaternionManifold; parameter i > 3 moves by sum_j P_ij d_j, j > 2.
  // With P the identity there, P_i,i-1 = 1, that is QuaternionManifold x
  // EuclideanManifold<6>; fewer columns fix parameters.
  kQuaternion = 1,
};

// Rows 0 to 3, columns 0 to 2 of the matrices of cameras of kind kQuaternion:
// the derivative of Plus at the camera. Everything else in `tangents` is
// constant, set once by its owner: all of P for kLinear, rows 4 on for
// kQuaternion, zeros in the padding and in columns 3 on of rows 0 to 3.
// `tangents` is then what PrepareCameras calls tangent.
// Mapping: a thread per camera. Traffic: 128 B per quaternion, 1 B else.
struct CameraTangentsParams {
  int32_t num_cameras = 0;
  int32_t ambient_size = 0;  // A >= 4
  int32_t padded_size = 0;   // C >= 3
  const ManifoldKind* kind = nullptr;
  const double* cameras = nullptr;  // A per camera
  double* tangents = nullptr;       // A x C per camera, row-major
};

// state_plus_delta = Plus(state, delta) for the blocks that have a place in the
// state; nothing else in state_plus_delta changes. It may be `state`.
// x_i + sum_j P_ij d_j is added from the left and leaves out P_ij = 0, so that
// it is what ceres::SubsetManifold computes, bit by bit.
// Mapping: a thread per block.
struct PlusParams {
  BlockTableView table;
  const ManifoldKind* kind = nullptr;  // null: all kLinear
  // P of each block, ambient_size x padded_size; columns below tangent_size are
  // read. Null: P_ii = 1 for kLinear, P_i,i-1 = 1 for kQuaternion.
  const double* linear = nullptr;
  const double* state = nullptr;
  const double* delta = nullptr;  // a tangent vector
  double* state_plus_delta = nullptr;
};

// ---------------------------------------------------------------------------
// Vectors of n >= 0 elements, as in ceres/trust_region_vectors.h. Outputs may
// be inputs. Pointers may be null where n is 0.
// Mapping: threads stride over the elements. Traffic: 8 B per element and
// pointer, 16 B where a vector is changed in place.

// y = x
struct CopyParams {
  int64_t n = 0;
  const double* x = nullptr;
  double* y = nullptr;
};

// x = value
struct SetConstantParams {
  int64_t n = 0;
  double value = 0.0;
  double* x = nullptr;
};

// y = -x
struct NegateParams {
  int64_t n = 0;
  const double* x = nullptr;
  double* y = nullptr;
};

// z = x + y
struct AddVectorsParams {
  int64_t n = 0;
  const double* x = nullptr;
  const double* y = nullptr;
  double* z = nullptr;
};

// z = x .* y
struct MultiplyParams {
  int64_t n = 0;
  const double* x = nullptr;
  const double* y = nullptr;
  double* z = nullptr;
};

// y = x, rounded to T.
template <typename T>
struct CastParams {
  int64_t n = 0;
  const double* x = nullptr;
  T* y = nullptr;
};

// x = 1 / (1 + sqrt(x))
struct JacobiScalingParams {
  int64_t n = 0;
  double* x = nullptr;
};

// x = min(max(x, min_value), max_value); NaN stays NaN.
struct ClampParams {
  int64_t n = 0;
  double min_value = 0.0;
  double max_value = 0.0;
  double* x = nullptr;
};

// y = sqrt(x / radius)
struct LevenbergMarquardtDiagonalParams {
  int64_t n = 0;
  double radius = 0.0;
  const double* x = nullptr;
  double* y = nullptr;
};

// The value of elements that nobody has written: Ceres's kImpossibleValue.
inline constexpr double kImpossibleValue = 1e302;

// x = kImpossibleValue
struct InvalidateParams {
  int64_t n = 0;
  double* x = nullptr;
};

// ---------------------------------------------------------------------------
// Sums of the loop.

// What the sums return. It lives where the vectors live; each operation sets
// the fields it names, so that the host may read what it needs with one copy.
struct LoopScalars {
  double max_norm = 0.0;
  double norm = 0.0;
  double x_norm = 0.0;
  double step_norm = 0.0;
  double model_cost_change = 0.0;
  int64_t num_invalid = 0;
};

// num_invalid = number of elements that aren't finite or are kImpossibleValue.
// Traffic: 8 B per element.
struct CountInvalidParams {
  int64_t n = 0;
  const double* x = nullptr;
  LoopScalars* scalars = nullptr;
};

// num_invalid as CountInvalid says; x = -x if it is zero.
// Traffic: 24 B per element.
struct NegateIfValidParams {
  int64_t n = 0;
  double* x = nullptr;
  LoopScalars* scalars = nullptr;
};

// max_norm = max |x_i - y_i| (NaN if one is NaN, 0 if n is 0),
// norm = |x - y|_2.
// Traffic: 16 B per element.
struct ProjectedGradientNormsParams {
  int64_t n = 0;
  const double* x = nullptr;
  const double* projected_x = nullptr;  // y
  LoopScalars* scalars = nullptr;
};

// x_norm = |x|_2, step_norm = |x - y|_2
// Traffic: 16 B per element.
struct StepNormsParams {
  int64_t n = 0;
  const double* x = nullptr;
  const double* candidate_x = nullptr;  // y
  LoopScalars* scalars = nullptr;
};

// model_cost_change = -m'(f + m / 2)
// Traffic: 16 B per element.
struct ModelCostChangeParams {
  int64_t n = 0;
  const double* residuals = nullptr;        // f
  const double* model_residuals = nullptr;  // m
  LoopScalars* scalars = nullptr;
};

// ---------------------------------------------------------------------------
// Robust losses.

// loss_id of an observation without loss.
inline constexpr uint8_t kNoLoss = 255;

// After EvaluateCost or EvaluateJacobian: with rho_k the loss of observation k
// (s without one) and s_k = |r_k|^2,
//   cost = 1/2 sum rho_k(s_k)
// and, where wanted, residuals and blocks corrected as Ceres does
// (LossCorrector); corrections are double and rounded to T once.
// Leaves evaluation->num_not_finite alone. Residuals that aren't finite give
// values without meaning, but no error.
// Order: the loop order over observations. Mapping: a thread per observation.
// Traffic per observation: 17 B; where rho' isn't 1, 16 B of corrected residual
// and 4 (C + 3) sizeof(T) B of blocks.
template <typename T, int C, BlockLayout kLayout>
struct CorrectForLossParams {
  int64_t num_observations = 0;
  const RobustLoss* losses = nullptr;
  // Per observation, the number in `losses` of the loss that its chain begins
  // with, or kNoLoss; null: all begin with losses[0].
  const uint8_t* loss_id = nullptr;
  const double* residuals = nullptr;  // 2 per observation
  // 2 per observation; null: not wanted. May be `residuals`, nothing else.
  double* corrected_residuals = nullptr;
  BlockView<T, 2 * C, kLayout> camera_blocks;  // in place; null: not wanted
  BlockView<T, 6, kLayout> point_blocks;       // in place; null: not wanted
  Evaluation* evaluation = nullptr;            // cost is set
};

// Host bodies.
namespace host {

void GatherTangent(const GatherTangentParams& params, HostContext* context);
void ScatterTangent(const ScatterTangentParams& params, HostContext* context);
void GatherState(const GatherStateParams& params, HostContext* context);
void SetPadding(const SetPaddingParams& params, HostContext* context);
void GatherPairs(const GatherPairsParams& params, HostContext* context);

void CameraTangents(const CameraTangentsParams& params, HostContext* context);
void Plus(const PlusParams& params, HostContext* context);

void Copy(const CopyParams& params, HostContext* context);
void SetConstant(const SetConstantParams& params, HostContext* context);
void Negate(const NegateParams& params, HostContext* context);
void AddVectors(const AddVectorsParams& params, HostContext* context);
void Multiply(const MultiplyParams& params, HostContext* context);
// T = double or float.
template <typename T>
void Cast(const CastParams<T>& params, HostContext* context);
void JacobiScaling(const JacobiScalingParams& params, HostContext* context);
void Clamp(const ClampParams& params, HostContext* context);
void LevenbergMarquardtDiagonal(const LevenbergMarquardtDiagonalParams& params,
                                HostContext* context);
void Invalidate(const InvalidateParams& params, HostContext* context);

void CountInvalid(const CountInvalidParams& params, HostContext* context);
void NegateIfValid(const NegateIfValidParams& params, HostContext* context);
void ProjectedGradientNorms(const ProjectedGradientNormsParams& params,
                            HostContext* context);
void StepNorms(const StepNormsParams& params, HostContext* context);
void ModelCostChange(const ModelCostChangeParams& params, HostContext* context);

// T = double or float, C = 9 or 10.
template <typename T, int C>
void CorrectForLoss(const CorrectForLossParams<T, C, kHostLayout>& params,
                    HostContext* context);

}  // namespace host

// Device bodies: cuda_operations.h says what they promise. Those with a
// workspace use its vector_partial and ticket alone.
namespace cuda {

Status GatherTangent(const GatherTangentParams& params, cudaStream_t stream);
Status ScatterTangent(const ScatterTangentParams& params, cudaStream_t stream);
Status GatherState(const GatherStateParams& params, cudaStream_t stream);
Status SetPadding(const SetPaddingParams& params, cudaStream_t stream);
Status GatherPairs(const GatherPairsParams& params, cudaStream_t stream);

Status CameraTangents(const CameraTangentsParams& params, cudaStream_t stream);
Status Plus(const PlusParams& params, cudaStream_t stream);

Status Copy(const CopyParams& params, cudaStream_t stream);
Status SetConstant(const SetConstantParams& params, cudaStream_t stream);
Status Negate(const NegateParams& params, cudaStream_t stream);
Status AddVectors(const AddVectorsParams& params, cudaStream_t stream);
Status Multiply(const MultiplyParams& params, cudaStream_t stream);
template <typename T>
Status Cast(const CastParams<T>& params, cudaStream_t stream);
Status JacobiScaling(const JacobiScalingParams& params, cudaStream_t stream);
Status Clamp(const ClampParams& params, cudaStream_t stream);
Status LevenbergMarquardtDiagonal(
    const LevenbergMarquardtDiagonalParams& params, cudaStream_t stream);
Status Invalidate(const InvalidateParams& params, cudaStream_t stream);

Status CountInvalid(const CountInvalidParams& params,
                    const CudaWorkspaceView& workspace,
                    cudaStream_t stream);
Status NegateIfValid(const NegateIfValidParams& params,
                     const CudaWorkspaceView& workspace,
                     cudaStream_t stream);
Status ProjectedGradientNorms(const ProjectedGradientNormsParams& params,
                              const CudaWorkspaceView& workspace,
                              cudaStream_t stream);
Status StepNorms(const StepNormsParams& params,
                 const CudaWorkspaceView& workspace,
                 cudaStream_t stream);
Status ModelCostChange(const ModelCostChangeParams& params,
                       const CudaWorkspaceView& workspace,
                       cudaStream_t stream);

// T = double or float, C = 9 or 10.
template <typename T, int C>
Status CorrectForLoss(const CorrectForLossParams<T, C, kDeviceLayout>& params,
                      const CudaWorkspaceView& workspace,
                      cudaStream_t stream);

}  // namespace cuda

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_OPS_LOOP_H_
