// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Functors of global positioning; ceres_ext/photogrammetry.h says how functors
// are used, and includes this header.

#ifndef CERES_EXT_DIRECTION_ERRORS_H_
#define CERES_EXT_DIRECTION_ERRORS_H_

#include <utility>

#include "ceres/internal/port.h"

namespace ceres_ext {

namespace internal {

// Residual i of a direction, d - s u, and its derivatives by the first three
// blocks of the functors below: u is the difference of point and centre.
CERES_HOST_DEVICE inline void DifferentiateDirection(int i,
                                                     double direction,
                                                     double scale,
                                                     double difference,
                                                     double* residuals,
                                                     double* const* jacobians) {
  residuals[i] = direction - scale * difference;
  for (int j = 0; j < 3; ++j) {
    jacobians[0][3 * i + j] = i == j ? scale : 0.0;
    jacobians[1][3 * i + j] = i == j ? -scale : 0.0;
  }
  jacobians[2][i] = -difference;
}

}  // namespace internal

// Global positioning: a measured direction, of norm 1 in the world, minus s
// times the difference X - c of a point and the centre of a camera. Each
// residual block has a scale s of its own, which wants a lower bound above 0
// (1e-5) if the direction must not be turned round. Such blocks of one value
// are eliminated within their rows, and then the points.
struct DirectionError {
  static constexpr int kNumResiduals = 3;
  // Center, point, scale.
  using BlockSizes = std::integer_sequence<int, 3, 3, 1>;

  template <typename T>
  CERES_HOST_DEVICE bool operator()(const T* center,
                                    const T* point,
                                    const T* scale,
                                    T* residuals) const {
    for (int i = 0; i < 3; ++i) {
      residuals[i] = direction[i] - scale[0] * (point[i] - center[i]);
    }
    return true;
  }

  using DerivativesOf = DirectionError;
  template <typename Sizes>
  CERES_HOST_DEVICE bool Differentiate(Sizes,
                                       const double* const* blocks,
                                       double* residuals,
                                       double* const* jacobians) const {
    const double scale = blocks[2][0];
    for (int i = 0; i < 3; ++i) {
      internal::DifferentiateDirection(i,
                                       direction[i],
                                       scale,
                                       blocks[1][i] - blocks[0][i],
                                       residuals,
                                       jacobians);
    }
    return true;
  }

  double direction[3];
};

// The same of a camera in a rig, at c + g o: the centre c of the rig, the
// camera's known place o from there with the axes of the world, and a scale g
// of all rigs, constant if lengths are known.
struct RigDirectionError {
  static constexpr int kNumResiduals = 3;
  // Center of the rig, point, scale, scale of the rigs.
  using BlockSizes = std::integer_sequence<int, 3, 3, 1, 1>;

  template <typename T>
  CERES_HOST_DEVICE bool operator()(const T* center,
                                    const T* point,
                                    const T* scale,
                                    const T* rig_scale,
                                    T* residuals) const {
    for (int i = 0; i < 3; ++i) {
      residuals[i] = direction[i] - scale[0] * (point[i] - center[i] -
                                                rig_scale[0] * offset[i]);
    }
    return true;
  }

  using DerivativesOf = RigDirectionError;
  template <typename Sizes>
  CERES_HOST_DEVICE bool Differentiate(Sizes,
                                       const double* const* blocks,
                                       double* residuals,
                                       double* const* jacobians) const {
    const double scale = blocks[2][0];
    for (int i = 0; i < 3; ++i) {
      const double difference =
          blocks[1][i] - blocks[0][i] - blocks[3][0] * offset[i];
      internal::DifferentiateDirection(
          i, direction[i], scale, difference, residuals, jacobians);
      jacobians[3][i] = scale * offset[i];
    }
    return true;
  }

  double direction[3];
  double offset[3];
};

// The same with the camera's place p in the frame of its rig unknown, at c + R
// p, R = world_from_rig, row-major.
struct SensorDirectionError {
  static constexpr int kNumResiduals = 3;
  // Center of the rig, point, scale, place in the rig.
  using BlockSizes = std::integer_sequence<int, 3, 3, 1, 3>;

  template <typename T>
  CERES_HOST_DEVICE bool operator()(const T* center,
                                    const T* point,
                                    const T* scale,
                                    const T* place,
                                    T* residuals) const {
    for (int i = 0; i < 3; ++i) {
      const double* row = world_from_rig + 3 * i;
      residuals[i] =
          direction[i] - scale[0] * (point[i] - center[i] - row[0] * place[0] -
                                     row[1] * place[1] - row[2] * place[2]);
    }
    return true;
  }

  using DerivativesOf = SensorDirectionError;
  template <typename Sizes>
  CERES_HOST_DEVICE bool Differentiate(Sizes,
                                       const double* const* blocks,
                                       double* residuals,
                                       double* const* jacobians) const {
    const double scale = blocks[2][0];
    const double* place = blocks[3];
    for (int i = 0; i < 3; ++i) {
      const double* row = world_from_rig + 3 * i;
      const double difference = blocks[1][i] - blocks[0][i] -
                                row[0] * place[0] - row[1] * place[1] -
                                row[2] * place[2];
      internal::DifferentiateDirection(
          i, direction[i], scale, difference, residuals, jacobians);
      for (int j = 0; j < 3; ++j) {
        jacobians[3][3 * i + j] = scale * row[j];
      }
    }
    return true;
  }

  double direction[3];
  double world_from_rig[9];
};

}  // namespace ceres_ext

#endif  // CERES_EXT_DIRECTION_ERRORS_H_
