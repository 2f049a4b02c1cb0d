// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Largest amount of memory for windows of a capacity, and a check of the
// capacity.

#ifndef CERES_EXT_SMALL_WINDOW_WINDOW_BOUNDS_H_
#define CERES_EXT_SMALL_WINDOW_WINDOW_BOUNDS_H_

#include <cstdint>
#include <string>

#include "ceres_ext/batch.h"
#include "ceres_ext/small/kind.h"
#include "ceres_ext/window_solver.h"

namespace ceres_ext {

// Bounds for windows of any kind, with losses and weights.
struct WindowBounds {
  explicit WindowBounds(const WindowCapacity& capacity);

  // For all problems of a submission.
  int64_t num_problems;
  SmallBytes bytes;
  // Doubles that a host thread needs to solve one window.
  int64_t host_size;
  // Doubles that a busy device needs per multiprocessor, for all thread blocks
  // that share it.
  int64_t scratch_per_multiprocessor;
  // Doubles for a window that several thread blocks share.
  int64_t shared_scratch;
};

// Returns what of the batch is too large, or an empty string. The batch is
// valid.
std::string WhyTooLarge(const ProblemBatch& batch,
                        const WindowCapacity& capacity);

// False, with a sentence in *error, if a number is less than 1 or too large.
bool IsValidCapacity(const WindowCapacity& capacity, std::string* error);

}  // namespace ceres_ext

#endif  // CERES_EXT_SMALL_WINDOW_WINDOW_BOUNDS_H_
