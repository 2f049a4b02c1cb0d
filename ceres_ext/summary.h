// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// ceres::Solver::Summary and what this library adds to it: which path solved
// the problem and why, where it ran, the time of each stage, the work of the
// linear solver and its memory.
//
//   ceres_ext::Summary summary;
//   ceres_ext::Solve(options, ext_options, &problem, &summary);
//   std::cout << summary.FullReport();

#ifndef CERES_EXT_SUMMARY_H_
#define CERES_EXT_SUMMARY_H_

#include <cstdint>
#include <string>

#include "ceres/solver.h"

namespace ceres_ext {

// What part of the solve ran in this library.
enum SolvePath {
  // Nothing: stock Ceres.
  PATH_CERES,
  // The linear solver, the vectors of the loop and the evaluation: of this
  // library's cost functions by this library, of others by Ceres.
  PATH_FULL,
};

const char* SolvePathToString(SolvePath path);

// Parameter blocks whose columns of the Jacobian depend on each other, so that
// nothing but the damping of the trust region holds a direction of theirs.
struct DegenerateBlocks {
  int64_t count = 0;

  // Of the worst, that of the smallest relative pivot, the part of a column's
  // square that lies outside of the span of the others, at most 1e-12; among
  // equals one, the same in every run on the same machine. Its values, in a
  // problem of arrays the array and the block, else the place in the order in
  // which the ceres::Problem was given its blocks. Where blocks are merged
  // (Options::preconditioner_blocks) the first of them.
  const double* worst = nullptr;
  int worst_parameters = -1;
  int64_t worst_block = -1;
  double worst_relative_pivot = 1.0;
};

struct Summary : public ceres::Solver::Summary {
  SolvePath path = PATH_CERES;

  // Why this path was taken: one sentence, never empty after a solve.
  std::string path_reason;

  // Where the linear solver ran, e.g. "host, 16 threads" or "NVIDIA H200 (CUDA
  // device 0)", and why on the host where it was not asked for; empty on
  // PATH_CERES.
  std::string device;

  // The method, e.g. "Schur, implicit W, stored Jacobian (double),
  // SCHUR_JACOBI"; empty on PATH_CERES.
  std::string method;

  // Where a loss function of a user's own stands on a cost function of this
  // library, the host calls the losses of all residual blocks of that cost
  // function, in each evaluation and by Solver::Options::num_threads threads:
  // of how many residual blocks, and the class of the first of a user's own (or
  // the first of Ceres's beyond what a device keeps, some 100 different ones,
  // whatever the scales of a ceres::ScaledLoss around them are).
  int64_t num_host_losses = 0;
  std::string host_loss_type;

  // Number of PCG iterations, summed over all linear solves.
  int64_t num_pcg_iterations = 0;

  // Number of linear solves that were exact, by a factorisation: all with
  // DENSE_SCHUR and SPARSE_SCHUR, some where LINEAR_SOLVER_AUTO takes both.
  int64_t num_exact_steps = 0;

  // Of the PCG iterations those with a second level
  // (Options::preconditioner), its clusters of parameter blocks and its
  // columns, a few for each, 0: no step has had it, and the seconds of forming
  // it, S as a matrix included.
  int64_t num_coarse_iterations = 0;
  int32_t num_clusters = 0;
  int64_t num_coarse_columns = 0;
  double coarse_time_in_seconds = 0.0;

  // Number of linear solves that ended at max_linear_solver_iterations, less
  // accurate than Solver::Options::eta asks.
  int64_t num_solves_at_pcg_limit = 0;

  // Seconds that it took to start CUDA in this process; 0 where that was done
  // before, or there is no device. Not in the other fields of this struct, but
  // in the preprocessor's time.
  double context_time_in_seconds = 0.0;

  // Seconds, summed over the solve. Setup: structure, index and allocation.
  // Import: waiting for what Ceres evaluates to be on the device. Evaluation
  // times are in ceres::Solver::Summary.
  double setup_time_in_seconds = 0.0;
  double import_time_in_seconds = 0.0;
  // Schur: S as a matrix, where one is formed. Factorization: its factor, and
  // the solution with that.
  double normal_blocks_time_in_seconds = 0.0;
  double schur_time_in_seconds = 0.0;
  double factorization_time_in_seconds = 0.0;
  double pcg_time_in_seconds = 0.0;
  double back_substitution_time_in_seconds = 0.0;

  // Bytes that this library held at its peak: index, Jacobian, normal blocks
  // and vectors; of a device, of its memory.
  int64_t memory_bytes = 0;

  // What memory_bytes comes to, as the set-up says: what it has taken, and what
  // a sparse factorisation takes with its first factor. 0 on the host. Where
  // Options::cuda_memory_limit_bytes or the device may be too small, the set-up
  // is counted before it takes more than its index; what doesn't fit leaves the
  // device alone from there on, and Summary::device has both numbers
  // (docs/options.md).
  int64_t memory_forecast_bytes = 0;

  // Bytes that crossed between host and device after the set-up; 0 on the host.
  int64_t transfer_bytes = 0;

  // Parameter blocks whose manifold a device leaves to the host, since it is a
  // user's own, and the type of the first; 0 and empty on the host.
  int num_host_manifolds = 0;
  std::string host_manifold_type;

  // At the start of the solve, of the blocks that are eliminated (points) and
  // of others (cameras): docs/reliability.md. None on PATH_CERES.
  DegenerateBlocks degenerate_eliminated_blocks;
  DegenerateBlocks degenerate_other_blocks;

  // ceres::Solver::Summary::FullReport and a section on the fields above.
  std::string FullReport() const;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_SUMMARY_H_
