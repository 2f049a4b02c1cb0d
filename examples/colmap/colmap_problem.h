// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// From a model of COLMAP to the ceres::Problem that its bundle_adjuster makes
// of one whose images are no rigs.

#ifndef EXAMPLES_COLMAP_COLMAP_PROBLEM_H_
#define EXAMPLES_COLMAP_COLMAP_PROBLEM_H_

#include <vector>

#include "ceres/problem.h"
#include "problem_io/colmap_model.h"

namespace ceres_ext::colmap {

enum LossType { LOSS_TRIVIAL, LOSS_CAUCHY };

struct ProblemOptions {
  // Each pose as two blocks, quaternion (4) and translation (3), as up to
  // COLMAP 3.13; else as one block of 7. The tangent space has 6 dimensions
  // either way.
  bool split_pose = false;

  // What of a camera varies. A block of which nothing does is constant.
  bool refine_focal_length = true;
  bool refine_principal_point = false;
  bool refine_extra_params = true;

  // Whether blocks are held as said below; else nothing holds the gauge.
  bool fix_gauge = true;

  LossType loss = LOSS_TRIVIAL;
  double loss_scale = 1.0;  // pixels
};

// Adds a residual block per 2D point that sees a point: 2 residuals in pixels,
// differentiated by ceres::Jet, or 0 where the point lies behind the camera.
// Blocks are the quaternions, normalised where they are not, and translations
// of *model's images, the parameters of its cameras and its points; *model has
// to outlive *problem and to stay where it is. What nobody observes has no
// block and stays as it is.
//
// The gauge: of the images that have observations, the pose of the one with the
// smallest id is constant, and of the next one that stands elsewhere the
// component of the translation along which the two are farthest apart.
void BuildProblem(const ProblemOptions& options,
                  Model* model,
                  ceres::Problem* problem);

// Where the cameras of all images stand, -R't.
std::vector<double> CameraCenters(const Model& model);

// Sets the mean reprojection error of each point, -1 where none is seen by a
// camera in front of it.
void UpdateErrors(Model* model);

}  // namespace ceres_ext::colmap

#endif  // EXAMPLES_COLMAP_COLMAP_PROBLEM_H_
