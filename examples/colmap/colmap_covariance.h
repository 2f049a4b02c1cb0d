// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Covariances of a model that was solved.

#ifndef EXAMPLES_COLMAP_COLMAP_COVARIANCE_H_
#define EXAMPLES_COLMAP_COLMAP_COVARIANCE_H_

#include <string>

#include "ceres_ext/covariance.h"
#include "examples/bal/covariance_file.h"
#include "examples/colmap/colmap_problem.h"
#include "examples/colmap/survey.h"
#include "problem_io/colmap_model.h"

namespace ceres_ext::colmap {

// Computes the covariances of all blocks that *model's problem has, at its
// values, with their ids:
//
//   images          6 x 6: w and t, where R becomes exp([w]x) R, w in radians;
//                   not of images of other sensors than the reference of a rig
//   centers         3 x 3: -R't
//   points          3 x 3
//   cameras_MODEL   of the parameters, an array each camera model
//
// If `survey` is not null, its control is in the problem, and its standard
// deviations are set.
//
// origin: the origin of *model's coordinates in those of its file; null: zero.
// "images" are in the file's coordinates. Positions are not set. False with
// *error.
bool ComputeModelCovariance(const CovarianceOptions& options,
                            const ProblemOptions& problem_options,
                            const double* origin,
                            Model* model,
                            Survey* survey,
                            bal::CovarianceReport* report,
                            std::string* error);

// Sets the positions of centers and points, by the values of `model`.
void SetPositions(const Model& model, bal::CovarianceReport* report);

}  // namespace ceres_ext::colmap

#endif  // EXAMPLES_COLMAP_COLMAP_COVARIANCE_H_
