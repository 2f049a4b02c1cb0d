// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Residuals, cost and Jacobian of a batch of BAL observations (bal_model.h).
//
//   PrepareCameras    parameters -> camera states and maps, once per state
//   LocalOrigin,      an origin among the cameras, and points from there, for
//   MovePoints        products in float
//   EvaluateCost      states, points -> 1/2 sum |residual|^2
//   EvaluateJacobian  the same and Jc = J_c map_c, Jp = J_p diag(s_p), J'r
//
// State, cost and sums are double; the blocks of the Jacobian have type T.
#ifndef CERES_EXT_CUDA_KERNELS_OPS_EVALUATE_H_
#define CERES_EXT_CUDA_KERNELS_OPS_EVALUATE_H_

#include <cstdint>
#include <string>

#include "cuda_kernels/base/block_ref.h"
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
// coordinates by the A parameters, T_c (A x C) is the tangent matrix. With an
// origin o the state is that of points X - o, which t + R o projects as t does
// X, and t + R o replaces t as the local coordinate. Its derivative by the
// rotation cancels against that by t, which double bears and float does not:
// maps are double for either. Order: one thread owns a camera.
template <typename T, int C>
struct PrepareCamerasParams {
  int32_t num_cameras = 0;
  CameraParameters parameters = CameraParameters::kAngleAxis;
  const double* cameras = nullptr;  // A per camera
  // A x C per camera, row-major; null: identity padded by zero columns (C < A
  // is kInvalidArgument then).
  const double* tangent = nullptr;
  const double* camera_scale = nullptr;  // s_c, C per camera; null: one
  const double* origin = nullptr;        // o, 3; null: zero
  CameraState<T>* states = nullptr;      // one per camera
  double* maps = nullptr;  // 9 x C per camera, row-major; null: not wanted
};

// origin = the centre of the cameras, component by component the median of
// nine of them, where it is ten times as far from zero as these are from it (in
// the median again); else zero, so that what is near keeps its bits. Far away
// float has no digits left for what is between a camera and a point: 1 m at 1e7
// m, where maps are projected (UTM, ECEF).
struct LocalOriginParams {
  int32_t num_cameras = 0;
  CameraParameters parameters = CameraParameters::kAngleAxis;
  const double* cameras = nullptr;  // A per camera
  double* origin = nullptr;         // 3

  static constexpr int kUnroll = 1;
  static constexpr int kSamples = 9;
  static constexpr double kFar = 10.0;

  int64_t size() const { return 1; }
  CERES_EXT_HOST_DEVICE void Apply(int64_t /*i*/) const {
    const int n = num_cameras < kSamples ? num_cameras : kSamples;
    const int64_t num_values = static_cast<int64_t>(parameters);
    double centers[3][kSamples] = {};
    for (int s = 0; s < n; ++s) {
      const double* camera =
          cameras + num_values * (int64_t{s} * num_cameras / n);
      const CameraState<double> state =
          parameters == CameraParameters::kAngleAxis
              ? PrepareBalCamera<3, double>(camera, nullptr)
              : PrepareBalCamera<4, double>(camera, nullptr);
      for (int k = 0; k < 3; ++k) {
        centers[k][s] =
            -(state.R[k] * state.t[0] + state.R[3 + k] * state.t[1] +
              state.R[6 + k] * state.t[2]);
      }
    }
    double middle[3] = {};
    double distances[kSamples] = {};
    double far = 0.0;
    for (int k = 0; k < 3 && n > 0; ++k) {
      middle[k] = Median(centers[k], n);
      far = fabs(middle[k]) > far ? fabs(middle[k]) : far;
      for (int s = 0; s < n; ++s) {
        const double distance = fabs(centers[k][s] - middle[k]);
        distances[s] = distance > distances[s] ? distance : distances[s];
      }
    }
    const bool is_far = far > kFar * (n > 0 ? Median(distances, n) : 0.0) &&
                        AllFinite(middle, 3);
    for (int k = 0; k < 3; ++k) {
      origin[k] = is_far ? middle[k] : 0.0;
    }
  }

 private:
  // The upper one of two.
  CERES_EXT_HOST_DEVICE static double Median(const double* values, int n) {
    double sorted[kSamples];
    for (int i = 0; i < n; ++i) {
      int at = i;
      for (; at > 0 && sorted[at - 1] > values[i]; --at) {
        sorted[at] = sorted[at - 1];
      }
      sorted[at] = values[i];
    }
    return sorted[n / 2];
  }
};

// moved = points - origin.
template <typename T>
struct MovePointsParams {
  int64_t num_points = 0;
  const double* points = nullptr;  // 3 per point
  const double* origin = nullptr;  // 3
  T* moved = nullptr;              // 3 per point

  int64_t size() const { return 3 * num_points; }
  CERES_EXT_HOST_DEVICE void Apply(int64_t i) const {
    moved[i] = static_cast<T>(points[i] - origin[i % 3]);
  }
};

// Results of an evaluation beside its arrays.
struct Evaluation {
  // 1/2 sum |residual|^2. Not a number or infinite where a residual is.
  double cost = 0.0;
  // Observations that have a residual or Jacobian element that isn't finite.
  int64_t num_not_finite = 0;
};

// A vector operation (ops/vector_operation.h) on the observations.
struct EvaluateCostParams {
  ObservationIndexRef index;
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
  ObservationIndexRef index;
  const CameraState<double>* cameras = nullptr;
  const double* camera_maps = nullptr;   // 9 x C per camera, row-major
  const double* points = nullptr;        // 3 per point
  const double* point_scale = nullptr;   // s_p, 3 per point; null: one
  const double* observations = nullptr;  // measured x, y per observation
  double* residuals = nullptr;           // 2 per observation; null: not wanted
  BlockRef<T, BalShape<C>::kFSize, kLayout> camera_blocks;  // Jc
  BlockRef<T, BalShape<C>::kESize, kLayout> point_blocks;   // Jp
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
  auto state =
      PrepareBalCamera<kRotationDim>(params.cameras + A * c, rotation_map);
  double moved[3] = {};  // R o
  if (params.origin != nullptr) {
    for (int i = 0; i < 3; ++i) {
      for (int k = 0; k < 3; ++k) {
        moved[i] += state.R[3 * i + k] * params.origin[k];
      }
      state.t[i] += moved[i];
    }
  }
  params.states[c] = CameraStateCast<T>(state);
  if (params.maps == nullptr) {
    return;
  }
  double local[kBalLocalCameraDim * A];
  ExpandCameraMap<kRotationDim>(rotation_map, local);
  if (params.origin != nullptr) {  // d (R o) = w x (R o)
    for (int j = 0; j < kRotationDim; ++j) {
      const double w[3] = {local[j], local[A + j], local[2 * A + j]};
      local[3 * A + j] += w[1] * moved[2] - w[2] * moved[1];
      local[4 * A + j] += w[2] * moved[0] - w[0] * moved[2];
      local[5 * A + j] += w[0] * moved[1] - w[1] * moved[0];
    }
  }
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
      params.maps[kBalLocalCameraDim * C * c + i * C + j] = sum;
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
