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
// A problem whose residual blocks are all BAL reprojection errors, or
// reprojection errors of ceres_ext/photogrammetry.h and priors on poses (also
// ceres_ext/marginal_prior.h), is a *window*. One
// thread block of a device, or one thread of the host, solves it from start to
// end by exact steps with Ceres's trust region. The steps are those of
// ceres_ext::Solve with DENSE_SCHUR, apart from rounding. So is a small problem
// of any cost functions that this library evaluates in batches: windows of
// odometry, and curve fits, which a part of a warp solves (docs/batch.md).
// ceres_ext::Solve solves all other problems one after the other, and their
// summaries say why (docs/batch.md).
//
// Determinism: a window's result does not depend on the size of the batch, its
// place in it, or the number of threads. Device and host differ by rounding.
//
// Thread safety: batches that are solved at the same time must not share
// parameter blocks that vary in one of them, nor a `ceres::Problem`.

#ifndef CERES_EXT_BATCH_H_
#define CERES_EXT_BATCH_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ceres/problem.h"
#include "ceres/solver.h"
#include "ceres_ext/array_problem.h"
#include "ceres_ext/marginalize.h"
#include "ceres_ext/options.h"
#include "ceres_ext/summary.h"

namespace ceres_ext {

struct ProblemBatch {
  // The arrays of all problems. Residual blocks of problem i name parameter
  // blocks of problem i by their numbers in the whole arrays.
  ArrayProblem problem;
  int64_t num_problems = 0;

  // First block of each problem in each parameter array, and in each array of
  // residual blocks, then the number of blocks: num_problems + 1 numbers from 0
  // to num_blocks that do not fall.
  std::vector<const int64_t*> parameter_begin;
  std::vector<const int64_t*> residual_begin;

  // For each array, 1 if a block takes part in the solve and 0 if not; null, or
  // an empty vector: all blocks do. A residual block is left out if it is not
  // active or depends on a parameter block that is not. The flags may change
  // from solve to solve.
  std::vector<const uint8_t*> parameter_is_active;
  std::vector<const uint8_t*> residual_is_active;

  // Blocks of each problem that are dropped at its solution, with the prior
  // that they leave in BatchSummary::marginals. Their values are those of the
  // solution too. Residual blocks that take no part in the solve are not in the
  // prior.
  BlocksToDrop drop;

  // For each parameter array, 1 for each block whose covariance at the solution
  // is wanted in BatchSummary::covariances; null, or an empty vector: none.
  std::vector<const uint8_t*> covariance_is_wanted;
};

// Ends SolveBatch from another thread.
//
//   ceres_ext::StopFlag stop;
//   std::thread thread([&] {
//     ceres_ext::SolveBatch(
//         options, ext_options, &batch, &summary, &error, nullptr, &stop);
//   });
//   stop.Stop();
//
// Thread safety: any thread, and a signal handler, may call Stop and IsStopped
// at any time. One flag may end any number of batches.
class StopFlag {
 public:
  // Each problem in flight ends with its current iteration, at least iteration
  // zero, and with USER_SUCCESS, as a callback would end it. Problems that have
  // not begun keep their start and end with USER_FAILURE. Later batches are
  // ended too, until Reset.
  void Stop() { __atomic_store_n(&value_, 1, __ATOMIC_RELAXED); }
  // No batch may be using the flag.
  void Reset() { __atomic_store_n(&value_, 0, __ATOMIC_RELAXED); }
  bool IsStopped() const {
    return __atomic_load_n(&value_, __ATOMIC_RELAXED) != 0;
  }
  // 0 until Stop. Solvers read it after each iteration.
  const int32_t* value() const { return &value_; }

 private:
  int32_t value_ = 0;
};

// How a problem of a batch was solved.
enum SolvedAsType {
  SOLVED_AS_PROBLEM,  // ceres_ext::Solve
  SOLVED_AS_WINDOW,
  SOLVED_AS_FIT,  // a small dense problem
};

// Members have the meaning of those of ceres::Solver::Summary.
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

  // If it is SOLVED_AS_PROBLEM, path_reason is the reason; it is empty if a
  // StopFlag was set before the problem began.
  SolvedAsType solved_as = SOLVED_AS_PROBLEM;
  std::string path_reason;

  // True if one team of threads solved it from start to end.
  bool IsSolvedWhole() const { return solved_as != SOLVED_AS_PROBLEM; }
  bool IsSolutionUsable() const {
    return termination_type == ceres::CONVERGENCE ||
           termination_type == ceres::NO_CONVERGENCE ||
           termination_type == ceres::USER_SUCCESS;
  }
};

// The covariance of the blocks of a problem that is wanted, at its solution:
// these rows and columns of (J'J)^-1, where J is corrected for losses and has
// the columns of all blocks that vary, as of ceres::Covariance. A window of any
// model has it with the solve; other problems take the time of
// ceres_ext::Covariance (covariance.h) beside it.
struct BlockCovariance {
  // In the order of the arrays. Constant blocks are left out.
  std::vector<Marginal::Block> blocks;
  // n x n, row-major, where n is the sum of the tangent sizes of the blocks.
  std::vector<double> values;
  // The reason if there is none: no usable solution, a block that no residual
  // block depends on, or directions in which nothing holds the blocks.
  std::string message;
};

struct BatchSummary {
  std::vector<ProblemSummary> problems;
  // The prior of each problem, if ProblemBatch::drop has flags; otherwise
  // empty. If a problem has no usable solution, or a prior fails,
  // Marginal::message is the reason, and nothing else changes.
  std::vector<Marginal> marginals;
  // The covariance of each problem, if ProblemBatch::covariance_is_wanted has
  // flags; otherwise empty.
  std::vector<BlockCovariance> covariances;

  // Device for windows and fits, such as "host, 16 threads" or "NVIDIA H200
  // (CUDA device 0)", and the reason if the host replaced a device. Empty if no
  // problem could be one.
  std::string device;
  // Problems that were solved whole, as windows or fits.
  int64_t num_windows = 0;
  // Seconds of the whole call. The next three are parts of it: reading the
  // arrays into windows, solving windows and fits (transfers included), and
  // ceres_ext::Solve. The rest are mostly priors.
  double total_time_in_seconds = 0.0;
  double pack_time_in_seconds = 0.0;
  double window_time_in_seconds = 0.0;
  double other_time_in_seconds = 0.0;

  double problems_per_second() const {
    return total_time_in_seconds > 0.0
               ? static_cast<double>(problems.size()) / total_time_in_seconds
               : 0.0;
  }
  // Latency in seconds that `percent` of the problems do not exceed, by nearest
  // rank; 0 if there are no problems. Range: 0 < percent <= 100.
  double LatencyPercentile(double percent) const;
  // Returns a few lines of text.
  std::string BriefReport() const;
};

// Solves all problems of the batch with the same options. options.num_threads
// host threads solve windows at once, or one window together. If a device
// cannot solve windows, the host does. Returns false, with a sentence in *error
// (may be null) and no values changed, if options are not valid, offsets do not
// fit the arrays, residual blocks of one problem name a block of another, or
// memory runs out before the first problem is solved. A problem that is not
// valid ends with FAILURE and the message of ceres_ext::Solve, and does not
// affect the others. Throws nothing.
//
// full_summaries, if not null, gets the summary of ceres_ext::Solve for each
// problem. The summary of a window or fit has no Summary::iterations, no times
// except the total, and path PATH_FULL; path_reason and method say which it is.
//
// stop, if not null, outlives the call and ends it early. SolveBatch then
// returns true, and each summary says how its problem ended.
bool SolveBatch(const ceres::Solver::Options& options,
                const Options& ext_options,
                ProblemBatch* batch,
                BatchSummary* summary,
                std::string* error = nullptr,
                std::vector<Summary>* full_summaries = nullptr,
                const StopFlag* stop = nullptr);

// Solves a list of `ceres::Problem`s, instead of a loop of ceres_ext::Solve.
// Problems with the same types of residual blocks are copied into one batch;
// windows and fits are found as in arrays. Also returns false if a problem is
// null or in the list twice. The same holds if a problem changes a parameter
// block that overlaps a block of another problem, because the result would
// depend on the order. Blocks that are constant in all problems may be shared.
bool SolveBatch(const ceres::Solver::Options& options,
                const Options& ext_options,
                const std::vector<ceres::Problem*>& problems,
                BatchSummary* summary,
                std::string* error = nullptr,
                std::vector<Summary>* full_summaries = nullptr,
                const StopFlag* stop = nullptr);

}  // namespace ceres_ext

#endif  // CERES_EXT_BATCH_H_
