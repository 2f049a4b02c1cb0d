// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A solve on disk. docs/bundle_adjuster.md describes the format.

#ifndef EXAMPLES_BAL_CHECKPOINT_H_
#define EXAMPLES_BAL_CHECKPOINT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "examples/bal/bal_geometry.h"
#include "examples/bal/bal_problem.h"
#include "examples/bal/segmented_solve.h"

namespace ceres_ext::bal {

struct Checkpoint {
  SolveProgress progress;
  // The frame of cameras and points, as Normalize returns it.
  Similarity frame;
  int camera_size = 9;
  std::vector<double> cameras;  // num_cameras x camera_size
  std::vector<double> points;   // num_points x 3
};

// CRC-32 of camera and point indices and observations, and of cameras and
// points.
uint32_t ObservationsChecksum(const BalProblem& problem);
uint32_t ParametersChecksum(const BalProblem& problem);

// Of `problem`, sizes and observations are noted, by which ReadCheckpoint knows
// it again. See safe_file.h. On failure returns false and sets *error to one
// line.
bool WriteCheckpoint(const std::string& path,
                     const BalProblem& problem,
                     const Checkpoint& checkpoint,
                     std::string* error);

// Returns false, with one line in *error, unless the file is whole and belongs
// to sizes, form of cameras and observations of `problem`.
bool ReadCheckpoint(const std::string& path,
                    const BalProblem& problem,
                    Checkpoint* checkpoint,
                    std::string* error);

}  // namespace ceres_ext::bal

#endif  // EXAMPLES_BAL_CHECKPOINT_H_
