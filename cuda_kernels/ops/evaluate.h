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
#include <string>

#include "cuda_kernels/base/block_view.h"
#include "cuda_kernels/base/host_device.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/base/vector_sums.h"
#include "cuda_kernels/model/bal_model.h"
#include "cuda_kernels/model/shape.h"
#include "cuda_kernels/ops/vector_operation.h"
#include "cuda_kernels/structure/observation_index.h"

namespace ceres_ext::kernels {

class CudaMachine;
class HostMachine;

// How the parameters of a camera are kept. The value is their number.
enum class CameraParameters : int32_t {
  kAngleAxis = kBalAngleAxisCameraDim,    // rotation vector, t, f, k1, k2
  kQuaternion = kBalQuaternionCameraDim,  // w x y z, t, f, k1, k2
};

// state_c and map_c = L_c T_c diag(s_c): L_c (9 x A) derives the local
// coordinates by the A parameters, T_c (A x C) is the tangent matrix.
// Order: one thread owns a camera.
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

// A vector operation (ops/vector_operation.h) on the observations.
struct EvaluateCostParams {
  ObservationIndexView index;
  const CameraState<double>* cameras = nullptr;
  const double* points = nullptr;        // 3 per point
  const double* observations = nullptr;  // measured x, y per observation
  double* residuals = nullptr;           // 2 per observation; null: not wanted
  Evaluation* evaluation = nullptr;      // set; lives where the outputs live

  static constexpr int kUnroll = 1;

  int64_t size() const { return index.num_observations; }
  CERES_EXT_HOST_DEVICE TwoSums Term(int64_t k) const {
    const CameraState<double> camera = cameras[index.camera_id[k]];
    const double* point = points + int64_t{3} * index.point_id[k];
    const double x[3] = {point[0], point[1], point[2]};
    double residual[2];
    Residual(camera, Project(camera, x), observations + 2 * k, residual);
    if (residuals != nullptr) {
      residuals[2 * k] = residual[0];
      residuals[2 * k + 1] = residual[1];
    }
    return {residual[0] * residual[0] + residual[1] * residual[1],
            AllFinite(residual, 2) ? 0.0 : 1.0};
  }
  CERES_EXT_HOST_DEVICE void Set(const TwoSums& sums) const {
    evaluation->cost = 0.5 * sums.first;
    evaluation->num_not_finite = static_cast<int64_t>(sums.second);
  }
};

// Order of the gradient: a fixed order of the machine's own.
template <typename T, int C, BlockLayout kLayout>
struct EvaluateJacobianParams {
  ObservationIndexView index;
  const CameraState<double>* cameras = nullptr;
  const double* camera_maps = nullptr;   // 9 x C per camera, row-major
  const double* points = nullptr;        // 3 per point
  const double* point_scale = nullptr;   // s_p, 3 per point; null: one
  const double* observations = nullptr;  // measured x, y per observation
  double* residuals = nullptr;           // 2 per observation; null: not wanted
  BlockView<T, BalShape<C>::kFSize, kLayout> camera_blocks;  // Jc
  BlockView<T, BalShape<C>::kESize, kLayout> point_blocks;   // Jp
  // J'r from unrounded blocks; null: not wanted.
  double* camera_gradient = nullptr;  // C per camera
  double* point_gradient = nullptr;   // 3 per point
  Evaluation* evaluation = nullptr;   // set; lives where the outputs live
};

// ---------------------------------------------------------------------------
// What the bodies of both machines are made of.

// kInvalidArgument as said at `tangent`.
template <typename T, int C>
Status Validate(const PrepareCamerasParams<T, C>& params) {
  const int num_parameters = static_cast<int>(params.parameters);
  if (params.tangent == nullptr && params.maps != nullptr &&
      C < num_parameters) {
    return {StatusCode::kInvalidArgument,
            "Cameras of " + std::to_string(num_parameters) +
                " parameters need tangent matrices for " + std::to_string(C) +
                " columns."};
  }
  return {};
}

// State and map of camera c. Order: sums from 0 on.
template <CameraParameters kParameters, typename T, int C>
CERES_EXT_HOST_DEVICE inline void PrepareCamera(
    const PrepareCamerasParams<T, C>& params, int64_t c) {
  constexpr int A = static_cast<int>(kParameters);
  constexpr int kRotationDim = A - 6;
  double rotation_map[3 * kRotationDim];
  CameraState<double> state;
  if constexpr (kParameters == CameraParameters::kAngleAxis) {
    state = PrepareAngleAxisCamera(params.cameras + A * c, rotation_map);
  } else {
    state = PrepareQuaternionCamera(params.cameras + A * c, rotation_map);
  }
  params.states[c] = CameraStateCast<T>(state);
  if (params.maps == nullptr) {
    return;
  }
  double local[kBalLocalCameraDim * A];
  ExpandCameraMap<kRotationDim>(rotation_map, local);
  const double* tangent =
      params.tangent == nullptr ? nullptr : params.tangent + A * C * c;
  for (int i = 0; i < kBalLocalCameraDim; ++i) {
    for (int j = 0; j < C; ++j) {
      double sum = 0.0;
      if (tangent == nullptr) {
        sum = j < A ? local[i * A + j] : 0.0;
      } else {
        for (int a = 0; a < A; ++a) {
          sum += local[i * A + a] * tangent[a * C + j];
        }
      }
      if (params.camera_scale != nullptr) {
        sum *= params.camera_scale[C * c + j];
      }
      params.maps[kBalLocalCameraDim * C * c + i * C + j] = static_cast<T>(sum);
    }
  }
}

// Bits for what all camera maps of an evaluation are not (IsInMapBlocks).
inline constexpr int32_t kNotBlocksOfThree = 1;  // rotation_dim 3
inline constexpr int32_t kNotBlocksOfAll = 2;    // rotation_dim C - 6

// The bits that value `at` of the maps sets.
template <int C>
CERES_EXT_HOST_DEVICE inline int32_t ClassifyMapValue(const double* maps,
                                                      int64_t at) {
  if (maps[at] == 0.0) {
    return 0;
  }
  const int i = static_cast<int>(at / C % kBalLocalCameraDim);
  const int j = static_cast<int>(at % C);
  return (IsInMapBlocks(3, i, j) ? 0 : kNotBlocksOfThree) |
         (IsInMapBlocks(C - 6, i, j) ? 0 : kNotBlocksOfAll);
}

// r, Jc and Jp of observation k in double; map_bits: those of all maps.
template <typename T, int C, BlockLayout kLayout>
CERES_EXT_HOST_DEVICE inline void EvaluateObservation(
    const EvaluateJacobianParams<T, C, kLayout>& params,
    int32_t map_bits,
    int64_t k,
    double* residual,
    double* jc,
    double* jp) {
  const int64_t c = params.index.camera_id[k];
  const int64_t p = params.index.point_id[k];
  const CameraState<double> camera = params.cameras[c];
  const double x[3] = {
      params.points[3 * p], params.points[3 * p + 1], params.points[3 * p + 2]};
  const Projection<double> projection = Project(camera, x);
  Residual(camera, projection, params.observations + 2 * k, residual);
  double local[2 * kBalLocalCameraDim];
  CameraJacobian(camera, projection, local);
  const double* map = params.camera_maps + kBalLocalCameraDim * C * c;
  if ((map_bits & kNotBlocksOfAll) == 0) {
    MapCameraJacobianByBlocks<C - 6, C>(local, map, jc);
  } else if ((map_bits & kNotBlocksOfThree) == 0) {
    MapCameraJacobianByBlocks<3, C>(local, map, jc);
  } else {
    MapCameraJacobian<C>(local, map, jc);
  }
  PointJacobian(camera, projection, jp);
  if (params.point_scale != nullptr) {
    for (int i = 0; i < 6; ++i) {
      jp[i] *= params.point_scale[3 * p + i % 3];
    }
  }
}

// T = double or float, C = 9 or 10. PrepareCameras: kInvalidArgument as said at
// `tangent`. EvaluateJacobian on a device: kInvalidArgument where a gradient is
// wanted and residuals are not.
template <typename T, int C>
Status Run(const PrepareCamerasParams<T, C>& params, HostMachine* machine);
template <typename T, int C>
Status Run(const PrepareCamerasParams<T, C>& params, CudaMachine* machine);
template <typename T, int C>
Status Run(const EvaluateJacobianParams<T, C, kHostLayout>& params,
           HostMachine* machine);
template <typename T, int C, BlockLayout kLayout>
Status Run(const EvaluateJacobianParams<T, C, kLayout>& params,
           CudaMachine* machine);

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_OPS_EVALUATE_H_
