// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Changes of a problem's parameters that keep or disturb its geometry.

#ifndef EXAMPLES_BAL_BAL_GEOMETRY_H_
#define EXAMPLES_BAL_BAL_GEOMETRY_H_

#include <cstdint>
#include <vector>

#include "problem_io/bal_problem.h"

namespace ceres_ext::bal {

// Turns 9-parameter cameras into 10-parameter ones (unit quaternion w x y z
// first) and back. A rotation comes back with an angle of at most pi. Nothing
// happens if the cameras have the wanted form.
void ToQuaternions(BalProblem* problem);
void ToAngleAxes(BalProblem* problem);

// The points -R't where the cameras stand, 3 per camera.
std::vector<double> CameraCenters(const BalProblem& problem);

// The change of frame X' = scale (X - origin); projections stay as they are.
struct Similarity {
  double scale = 1.0;
  double origin[3] = {0.0, 0.0, 0.0};
};

// Moves points and cameras to a frame whose origin is the median of the points,
// coordinate by coordinate, and in which the median of the points' L1 distances
// from it is 100. Returns that frame. A problem whose distances have a median
// that is 0 or not finite stays as it is.
Similarity Normalize(BalProblem* problem);

// The way back from the frame of Normalize.
void Undo(const Similarity& similarity, BalProblem* problem);

// Adds independent normal numbers: rotation_sigma (radians) to the angle-axis
// vector of each camera, which turns about its center; then translation_sigma
// to its translation; point_sigma to each point. The same seed gives the same
// numbers on every machine. The sigmas are not negative.
void Perturb(double rotation_sigma,
             double translation_sigma,
             double point_sigma,
             uint32_t seed,
             BalProblem* problem);

}  // namespace ceres_ext::bal

#endif  // EXAMPLES_BAL_BAL_GEOMETRY_H_
