// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// One observation by the parts of model/bal_model.h, for tests.
#ifndef CERES_EXT_TESTS_MODEL_BAL_EVALUATE_H_
#define CERES_EXT_TESTS_MODEL_BAL_EVALUATE_H_

#include "cuda_kernels/model/bal_model.h"

namespace ceres_ext::kernels {

// Residual, camera Jacobian and point Jacobian. map_jacobian(local, jacobian)
// takes the camera's from local coordinates to tangent columns.
template <typename T, typename MapJacobian>
void EvaluateObservation(const CameraState<T>& camera,
                         const T* point,
                         const T* observation,
                         const MapJacobian& map_jacobian,
                         T* residual,
                         T* camera_jacobian,
                         T* point_jacobian) {
  const Projection<T> p = Project(camera, point);
  T local[2 * kBalLocalCameraDim];
  Residual(camera, p, observation, residual);
  CameraJacobian(camera, p, local);
  map_jacobian(local, camera_jacobian);
  PointJacobian(camera, p, point_jacobian);
}

// For any 9 x kDim camera map.
template <int kDim, typename T>
void Evaluate(const CameraState<T>& camera,
              const T* camera_map,
              const T* point,
              const T* observation,
              T* residual,
              T* camera_jacobian,
              T* point_jacobian) {
  EvaluateObservation(
      camera,
      point,
      observation,
      [&](const T* local, T* jacobian) {
        MapCameraJacobian<kDim>(local, camera_map, jacobian);
      },
      residual,
      camera_jacobian,
      point_jacobian);
}

// For camera_map = blockdiag(rotation_map, I_6).
template <int kRotationDim, typename T>
void EvaluateByRotation(const CameraState<T>& camera,
                        const T* rotation_map,
                        const T* point,
                        const T* observation,
                        T* residual,
                        T* camera_jacobian,
                        T* point_jacobian) {
  EvaluateObservation(
      camera,
      point,
      observation,
      [&](const T* local, T* jacobian) {
        MapCameraJacobianByBlocks<kRotationDim, kRotationDim + 6, kRotationDim>(
            local, rotation_map, jacobian);
      },
      residual,
      camera_jacobian,
      point_jacobian);
}

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_TESTS_MODEL_BAL_EVALUATE_H_
