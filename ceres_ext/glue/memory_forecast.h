// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The memory of a device that a solve will take, from what is known of it
// before anything is allocated: counts of rows and blocks, sizes and options.
//
// Everything is counted but what only the device finds out: how many tiles
// (cuda_kernels/structure/tile_index.h) its order of points leaves, with their
// cameras and segments. These are in ProgramBlocks, which is made first, so the
// forecast has two parts. The sum is at least what a solve takes; as soon as
// the blocks are there, their bytes take the place of `blocks_at_least`.
//
// Counting takes a pass on all threads over rows of views and rows of any
// shape, and none over observations unless these have losses of their own.

#ifndef CERES_EXT_GLUE_MEMORY_FORECAST_H_
#define CERES_EXT_GLUE_MEMORY_FORECAST_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ceres_ext/glue/program_import.h"
#include "ceres_ext/solver/inexact_solver_options.h"
#include "cuda_kernels/machine/host_context.h"

namespace ceres_ext {

struct ForecastInput {
  // As ProgramBlocks::Setup is given it.
  const ProgramStructure* structure = nullptr;
  bool recomputed = false;        // of observations
  bool recomputed_views = false;  // of rows of views
  bool mixed = false;
  // The index of the only batch of observations is there from a solve before.
  bool index_is_kept = false;
  // Of each model of the structure (BatchRowsInput); or empty.
  std::vector<std::string> why_no_form;
  solver::InexactSolverOptions solver;
  // The loop keeps the best state in a vector of its own.
  bool keeps_best = true;
  kernels::HostContext* host_context = nullptr;
};

// In bytes.
struct MemoryForecast {
  // Index, tables of blocks and working vectors: ProgramBlocks.
  int64_t blocks_at_least = 0;
  // Evaluators, Jacobian, linear solver and vectors of Ceres's loop.
  int64_t rest = 0;
};

MemoryForecast ForecastMemory(const ForecastInput& input);

}  // namespace ceres_ext

#endif  // CERES_EXT_GLUE_MEMORY_FORECAST_H_
