// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Many small problems in one call: the windows of a SLAM system, the local
// adjustments and pose refinements of a mapper, a calibration from many starts.
//
//   ceres_ext::ProblemBatch batch;   // arrays of all problems, end to end
//   const int cameras = batch.problem.AddParameters({camera_values, 2000, 9});
//   const int points = batch.problem.AddParameters({point_values, 100000, 3});
//   batch.problem.AddResiduals<ceres_ext::BalReprojectionError>(
//       500000, observations, {{cameras, camera_index}, {points,
//       point_index}});
//   batch.num_problems = 200;
//   batch.parameter_begin = {camera_begin, point_begin};  // 201 numbers each
//   batch.residual_begin = {residual_begin};
//   ceres_ext::BatchSummary summary;
//   ceres_ext::SolveBatch(options, ext_options, &batch, &summary);
//
// A problem whose residual blocks are all BAL reprojection errors is a *window*
// and is solved from start to end by one thread block of a device, or one
// thread of the host, by exact steps with Ceres's trust region: the same steps
// as ceres_ext::Solve with DENSE_SCHUR, apart from rounding. All other problems
// are solved one after the other by ceres_ext::Solve, and their summaries say
// why (docs/batch.md).
//
// Determinism: a window's result does not depend on the size of the batch, its
// place in it, or the number of threads. Device and host differ by rounding.
//
// Thread safety: batches that are solved at once have parameters of their own.

#ifndef CERES_EXT_BATCH_H_
#define CERES_EXT_BATCH_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ceres/problem.h"
#include "ceres/solver.h"
#include "ceres_ext/array_problem.h"
#include "ceres_ext/options.h"
#include "ceres_ext/summary.h"

namespace ceres_ext {

struct ProblemBatch {
  // The arrays of all problems. Residual blocks of problem i name parameter
  // blocks of problem i by their numbers in the whole arrays.
  ArrayProblem problem;
  int64_t num_problems = 0;

  // Of each parameter array, and of each array of residual blocks, the first
  // block of each problem and the number of all: num_problems + 1 numbers that
  // do not fall, from 0 to num_blocks.
  std::vector<const int64_t*> parameter_begin;
  std::vector<const int64_t*> residual_begin;

  // Of each array, or empty: whether a block takes part in the solve; null: all
  // do. A residual block is left out if it is not active or depends on a
  // parameter block that isn't. May change from solve to solve.
  std::vector<const uint8_t*> parameter_is_active;
  std::vector<const uint8_t*> residual_is_active;
};

// What ceres::Solver::Summary says of the same name.
struct ProblemSummary {
  ceres::TerminationType termination_type = ceres::FAILURE;
  std::string message;
  double initial_cost = -1.0;
  double final_cost = -1.0;
  double fixed_cost = 0.0;
  int num_successful_steps = -1;
  int num_unsuccessful_steps = -1;

  // Seconds from the call to the result.
  double latency_in_seconds = 0.0;

  // Solved as a window; else by ceres_ext::Solve, for this reason.
  bool is_window = false;
  std::string path_reason;

  bool IsSolutionUsable() const {
    return termination_type == ceres::CONVERGENCE ||
           termination_type == ceres::NO_CONVERGENCE ||
           termination_type == ceres::USER_SUCCESS;
  }
};

struct BatchSummary {
  std::vector<ProblemSummary> problems;

  // Where windows were solved: "host, 16 threads", "NVIDIA H200 (CUDA device
  // 0)", and why on the host where it was not asked for; empty: there were
  // none.
  std::string device;
  int64_t num_windows = 0;
  // Seconds of the whole call; of these: reading the arrays into windows,
  // solving the windows (transfers included), and ceres_ext::Solve.
  double total_time_in_seconds = 0.0;
  double pack_time_in_seconds = 0.0;
  double window_time_in_seconds = 0.0;
  double other_time_in_seconds = 0.0;

  double problems_per_second() const {
    return total_time_in_seconds > 0.0
               ? static_cast<double>(problems.size()) / total_time_in_seconds
               : 0.0;
  }
  // Of the problems' latencies that which `percent` of them do not exceed, by
  // nearest rank; 0 of no problem. 0 < percent <= 100.
  double LatencyPercentile(double percent) const;
  // A few lines.
  std::string BriefReport() const;
};

// Solves all problems of the batch. options and ext_options hold for each;
// options.num_threads solve windows at once. False, with a sentence in *error
// (may be null), and nothing changed where offsets do not fit the arrays,
// residual blocks of one problem name a block of another, or memory runs out
// before the first problem is solved. A problem that is not valid in itself
// ends with FAILURE and the message that ceres_ext::Solve has for it, and does
// not touch the others. Throws nothing. What a device can't do the host does.
//
// full_summaries (null: not wanted): of each problem what ceres_ext::Solve
// would say; that of a window has no Summary::iterations, no times but the
// total, and path PATH_FULL.
bool SolveBatch(const ceres::Solver::Options& options,
                const Options& ext_options,
                ProblemBatch* batch,
                BatchSummary* summary,
                std::string* error = nullptr,
                std::vector<Summary>* full_summaries = nullptr);

// The same for problems that are there already, in place of a loop of
// ceres_ext::Solve. Those whose residual blocks are all BalReprojectionError,
// or all BalQuaternionReprojectionError, are copied into windows; others are
// solved by ceres_ext::Solve as they are. Also false where a problem is null or
// in the list twice, and where a parameter block that is not constant in one of
// them is, or overlaps, a block of another: a loop would give the second what
// the first has made of it. Blocks that are constant in all may be shared.
bool SolveBatch(const ceres::Solver::Options& options,
                const Options& ext_options,
                const std::vector<ceres::Problem*>& problems,
                BatchSummary* summary,
                std::string* error = nullptr,
                std::vector<Summary>* full_summaries = nullptr);

}  // namespace ceres_ext

#endif  // CERES_EXT_BATCH_H_
