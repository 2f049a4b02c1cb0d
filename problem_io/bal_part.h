// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The parts of a problem that several processes solve together: consecutive
// points with their observations, and all cameras.

#ifndef PROBLEM_IO_BAL_PART_H_
#define PROBLEM_IO_BAL_PART_H_

#include <cstdint>

#include "problem_io/bal_problem.h"

namespace ceres_ext::bal {

struct BalPart {
  int32_t first_point = 0;
  int32_t num_points = 0;
  int64_t num_observations = 0;
};

// Part 0 ... num_parts - 1, with about as many observations as another. Every
// point belongs to one. Reads point_index and num_points() alone.
BalPart CutPart(const BalProblem& problem, int part, int num_parts);

// Keeps the observations of a part, in their order; point_index counts from
// part.first_point then. All cameras and points stay.
void KeepPart(const BalPart& part, BalProblem* problem);

}  // namespace ceres_ext::bal

#endif  // PROBLEM_IO_BAL_PART_H_
