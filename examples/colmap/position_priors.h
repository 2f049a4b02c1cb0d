// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Measured positions of cameras, or of an antenna beside them, as those of GPS.

#ifndef CERES_EXT_EXAMPLES_COLMAP_POSITION_PRIORS_H_
#define CERES_EXT_EXAMPLES_COLMAP_POSITION_PRIORS_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "ceres_ext/photogrammetry.h"

namespace ceres_ext::colmap {

struct PositionPriors {
  struct Prior {
    int32_t image;  // index into Model::images
    double position[3];
    double sqrt_information[9];  // in the world, row-major
  };

  std::vector<Prior> priors;
  // Scale of a Cauchy loss of whitened residuals; 0: none.
  double loss_scale = 0.0;

  // False: positions are those of the cameras. True: of an antenna, of which
  // each frame has one at the same place in its rig.
  bool has_antenna = false;
  // Pose of the antenna; its rotation is constant. Its place, with the axes of
  // the reference camera, is minus the translation.
  double antenna_from_rig[7] = {0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0};
  // The expected place of the antenna, and the standard deviation of each
  // coordinate; 0: the place is constant.
  double expected_place[3] = {0.0, 0.0, 0.0};
  double antenna_sigma = 0.0;

  // For a model that was moved to an origin.
  void MoveOrigin(const double* origin) {
    for (Prior& prior : priors) {
      for (int i = 0; i < 3; ++i) {
        prior.position[i] -= origin[i];
      }
    }
  }
};

// The measured position of a sensor minus its projection centre in the world,
// that of the pose sensor_from_rig * rig_from_world.
struct SensorPositionPrior {
  static constexpr int kNumResiduals = 3;
  using BlockSizes = std::integer_sequence<int, 7, 7>;

  template <typename T>
  bool operator()(const T* sensor_from_rig,
                  const T* rig_from_world,
                  T* residuals) const {
    T place[3];
    ProjectionCenter<EigenQuaternion>(
        sensor_from_rig, sensor_from_rig + 4, place);
    // R_r' (place - t_r)
    T from_place[3];
    for (int i = 0; i < 3; ++i) {
      from_place[i] = rig_from_world[4 + i] - place[i];
    }
    T center[3];
    ProjectionCenter<EigenQuaternion>(rig_from_world, from_place, center);
    for (int i = 0; i < 3; ++i) {
      residuals[i] = position[i] - center[i];
    }
    return true;
  }

  double position[3];
};

}  // namespace ceres_ext::colmap

#endif  // CERES_EXT_EXAMPLES_COLMAP_POSITION_PRIORS_H_
