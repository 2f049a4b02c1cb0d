// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Residuals, cost and Jacobian of a batch of BAL observations (bal_model.h).
//
//   PrepareCameras    parameters -> camera states and camera maps, once a state
//   EvaluateCost      states, points -> 1/2 sum |residual|^2
//   EvaluateJacobian  the same and Jc = J_c map_c, Jp = J_p diag(s_p), J'r
//
// State, cost and sums are double; the blocks of the Jacobian have type T.
#ifndef CERES_EXT_CUDA_KERNELS_OPS_EVALUATE_H_
#define CERES_EXT_CUDA_KERNELS_OPS_EVALUATE_H_

#include <cstdint>

#include "cuda_kernels/model/bal_model.h"
#include "cuda_kernels/base/block_view.h"
#include "cuda_kernels/structure/observation_index.h"
#include "cuda_kernels/base/status.h"

namespace ceres_ext::kernels {

class HostContext;
class HostWorkspace;

// How the parameters of a camera are kept. The value is their number.
enum class CameraParameters : int32_t {
  kAngleAxis = kBalAngleAxisCameraDim,    // rotation vector, t, f, k1, k2
  kQuaternion = kBalQuaternionCameraDim,  // w x y z, t, f, k1, k2
};

// state_c and map_c = L_c T_c diag(s_c): L_c (9 x A) derives the local
// coordinates by the A parameters, T_c (A x C) is the tangent matrix.
// Order: one thread owns a camera.
// Traffic per camera: 8 A + 8 A C B in, (15 + 9 C) sizeof(T) B out.
template <typename T, int C>
struct PrepareCamerasParams {
  int32_t num_cameras = 0;
  CameraParameters parameters = CameraParameters::kAngleAxis;
  const double* cameras = nullptr;  // A per camera
  // A x C per camera, row-major; null: identity padded by zero columns (C < A
  // is kInvalidArgument then).
  const double* tangent = nullptr;
  const double* camera_scale = nullptr;  // s_c, C per camera; null: one
  CameraState<T>* states = nullptr;      // one per camera
  T* maps = nullptr;  // 9 x C per camera, row-major; null: not wanted
};

// What an evaluation says beside its arrays.
struct Evaluation {
  // 1/2 sum |residual|^2. Not a number or infinite where a residual is.
  double cost = 0.0;
  // Observations that have a residual or Jacobian element that isn't finite.
  int64_t num_not_finite = 0;
};

// Order of cost: a fixed order of the machine's own.
// Traffic per observation: 16 B of measurement, 4 B of id, 16 B of residual
// where wanted; 24 B per point.
struct EvaluateCostParams {
  ObservationIndexView index;
  const CameraState<double>* cameras = nullptr;
  const double* points = nullptr;        // 3 per point
  const double* observations = nullptr;  // measured x, y per observation
  double* residuals = nullptr;           // 2 per observation; null: not wanted
  Evaluation* evaluation = nullptr;      // set; lives where the outputs live
};

// Order of cost and gradient: a fixed order of the machine's own.
// Traffic per observation: 16 B of measurement, 8 B of ids, 16 B of residual,
// 2 C + 6 values of Jacobian out; 24 B per point.
template <typename T, int C, BlockLayout kLayout>
struct EvaluateJacobianParams {
  ObservationIndexView index;
  const CameraState<double>* cameras = nullptr;
  const double* camera_maps = nullptr;   // 9 x C per camera, row-major
  const double* points = nullptr;        // 3 per point
  const double* point_scale = nullptr;   // s_p, 3 per point; null: one
  const double* observations = nullptr;  // measured x, y per observation
  double* residuals = nullptr;           // 2 per observation; null: not wanted
  BlockView<T, 2 * C, kLayout> camera_blocks;  // Jc
  BlockView<T, 6, kLayout> point_blocks;       // Jp
  // J'r from unrounded blocks; null: not wanted.
  double* camera_gradient = nullptr;  // C per camera
  double* point_gradient = nullptr;   // 3 per point
  Evaluation* evaluation = nullptr;   // set; lives where the outputs live
};

// Host bodies.
namespace host {

// T = double or float, C = 9 or 10. kInvalidArgument as said at `tangent`.
template <typename T, int C>
Status PrepareCameras(const PrepareCamerasParams<T, C>& params,
                      HostContext* context);

void EvaluateCost(const EvaluateCostParams& params, HostWorkspace* workspace);

template <typename T, int C>
void EvaluateJacobian(const EvaluateJacobianParams<T, C, kHostLayout>& params,
                      HostWorkspace* workspace);

}  // namespace host

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_OPS_EVALUATE_H_
