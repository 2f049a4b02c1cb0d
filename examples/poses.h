// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The cameras of a Scene as ceres_ext/photogrammetry.h has them.

#ifndef EXAMPLES_POSES_H_
#define EXAMPLES_POSES_H_

#include <vector>

#include "ceres/rotation.h"

namespace examples {

// cam_from_world of each camera: quaternion x, y, z, w, then translation. Here
// a camera looks along +z, with y down: half a turn about x from BAL's.
inline std::vector<double> PosesOf(const std::vector<double>& cameras) {
  const double half_turn[] = {0.0, 1.0, 0.0, 0.0};  // w, x, y, z
  std::vector<double> poses;
  for (size_t i = 0; i < cameras.size(); i += 9) {
    const double* camera = &cameras[i];
    double rotation[4];
    double q[4];
    ceres::AngleAxisToQuaternion(camera, rotation);
    ceres::QuaternionProduct(half_turn, rotation, q);
    poses.insert(poses.end(), {q[1], q[2], q[3], q[0]});
    poses.insert(poses.end(), {camera[3], -camera[4], -camera[5]});
  }
  return poses;
}

}  // namespace examples

#endif  // EXAMPLES_POSES_H_
