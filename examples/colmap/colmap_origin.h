// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The origin of the coordinates in which a model is refined. Far from zero, as
// in the coordinates of maps, steps become short (ceres_ext/photogrammetry.h
// says why). The model is therefore moved to zero and back.

#ifndef EXAMPLES_COLMAP_COLMAP_ORIGIN_H_
#define EXAMPLES_COLMAP_COLMAP_ORIGIN_H_

#include <functional>
#include <vector>

#include "ceres/problem.h"
#include "problem_io/colmap_model.h"

namespace ceres_ext::colmap {

// True if the scene is far from zero: the distance of its centre, the median of
// points and cameras, is more than 20 times the median of their distances from
// the centre. Then origin[3] is set to the centre.
bool IsFar(const Model& model, double* origin);

// Moves a model to an origin and back:
//
//   MovedModel moved(origin, &model);
//   ...  // Builds and solves the problem.
//   moved.MoveBack(problem, &model);
class MovedModel {
 public:
  // Points X become X - origin, translations t become t + R origin.
  MovedModel(const double* origin, Model* model);

  // The way back, of poses that SetPosesOfSensors has set. Points and
  // translations that are not in the problem, or constant in it, get the bits
  // that they had.
  void MoveBack(const ceres::Problem& problem, Model* model) const;
  // The same of any problem: varies(block) is true if a block at that address
  // of the model is in the problem and varies.
  void MoveBack(const std::function<bool(const double*)>& varies,
                Model* model) const;

 private:
  double origin_[3];
  // As they were: points; translations of images, then of frames.
  std::vector<double> points_;
  std::vector<double> translations_;
};

}  // namespace ceres_ext::colmap

#endif  // EXAMPLES_COLMAP_COLMAP_ORIGIN_H_
