// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Converts a COLMAP model to the ceres::Problem that COLMAP's bundle_adjuster
// builds for a model without rigs.

#ifndef EXAMPLES_COLMAP_COLMAP_PROBLEM_H_
#define EXAMPLES_COLMAP_COLMAP_PROBLEM_H_

#include <vector>

#include "ceres/problem.h"
#include "problem_io/colmap_model.h"

namespace ceres_ext::colmap {

enum LossType { LOSS_TRIVIAL, LOSS_CAUCHY };

struct ProblemOptions {
  // True: each pose is two blocks, quaternion (4) and translation (3), as up to
  // COLMAP 3.13. False: it is one block of 7. The tangent space has 6
  // dimensions either way.
  bool split_pose = false;

  // Parameters of cameras that vary. A block without any is constant.
  bool refine_focal_length = true;
  bool refine_principal_point = false;
  bool refine_extra_params = true;

  // True: blocks are held constant as described below. False: the gauge is
  // free.
  bool fix_gauge = true;

  LossType loss = LOSS_TRIVIAL;
  double loss_scale = 1.0;  // pixels
};

// Adds a residual block per 2D point that sees a point. It has 2 residuals in
// pixels, differentiated by ceres::Jet, or 0 if the point is behind the camera.
// Blocks are the quaternions and translations of *model's images, the
// parameters of its cameras and its points. Quaternions are normalised if
// necessary. *model must outlive *problem and must not move. Images, cameras
// and points without observations have no block and are not changed.
//
// Gauge: among the images that have observations, the pose of the one with the
// smallest id is constant. One component of the translation of the next image
// at another position is constant too: that along which the two are farthest
// apart.
void BuildProblem(const ProblemOptions& options,
                  Model* model,
                  ceres::Problem* problem);

// Positions of the cameras of all images, -R't.
std::vector<double> CameraCenters(const Model& model);

// Sets the mean reprojection error of each point, or -1 if no camera that sees
// the point has it in front.
void UpdateErrors(Model* model);

}  // namespace ceres_ext::colmap

#endif  // EXAMPLES_COLMAP_COLMAP_PROBLEM_H_
