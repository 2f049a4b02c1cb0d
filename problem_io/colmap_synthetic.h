// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The scenes of bal_synthetic.h as models of COLMAP:
//
//   SyntheticProblem scene;
//   GenerateSynthetic(options, &scene, &error);
//   colmap::Model model;
//   MakeModel(scene, options.seed, colmap_options, VALUES_AT_START, &model);
//
// The same cameras, points, observations and errors of the observations, seen
// through another camera model. A camera has the focal length of the BAL camera
// that it stands for (the second one, fy, up to 2 % off), the principal point
// in the middle of its image, and k1, k2 of that camera; further coefficients
// are at most 0.001. At the start focal lengths are off as those of BAL are and
// all coefficients are 0. The coefficients of FOV and EUCM, whose derivatives
// are 0 without distortion, have 0.6 and (0.5, 1) in place of 0. A panorama has
// the size at which its middle has the focal length.
//
// Same scene and seed, same bits, as in bal_synthetic.h.

#ifndef PROBLEM_IO_COLMAP_SYNTHETIC_H_
#define PROBLEM_IO_COLMAP_SYNTHETIC_H_

#include <cstdint>
#include <string>

#include "problem_io/bal_synthetic.h"
#include "problem_io/colmap_model.h"

namespace ceres_ext::colmap {

struct SyntheticModelOptions {
  const CameraModelInfo* camera_model = nullptr;

  // Image i has camera i modulo this number; 0: each has its own. At most the
  // number of images.
  int32_t num_shared_cameras = 0;
};

enum SyntheticValues { VALUES_AT_START, VALUES_OF_TRUTH };

// Poses, cameras and points have the values asked for; ids count from 1. False,
// with one line in *error, if memory runs out.
bool MakeModel(const bal::SyntheticProblem& scene,
               uint64_t seed,
               const SyntheticModelOptions& options,
               SyntheticValues values,
               Model* model,
               std::string* error);

}  // namespace ceres_ext::colmap

#endif  // PROBLEM_IO_COLMAP_SYNTHETIC_H_
