// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// ceres::Solver::Summary with additional fields: which path solved the problem
// and why, where it ran, the time of each stage, the work of the linear solver
// and its memory.
//
//   ceres_ext::Summary summary;
//   ceres_ext::Solve(options, ext_options, &problem, &summary);
//   std::cout << summary.FullReport();

#ifndef CERES_EXT_SUMMARY_H_
#define CERES_EXT_SUMMARY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ceres/solver.h"

namespace ceres_ext {

// The solver that was used.
enum SolvePath {
  // Stock Ceres.
  PATH_CERES,
  // This library: linear solver, vectors of the loop, and evaluation of its
  // cost functions. Ceres evaluates other cost functions.
  PATH_FULL,
};

const char* SolvePathToString(SolvePath path);

// Parameter blocks with linearly dependent columns of the Jacobian, so that
// only the damping of the trust region determines one of their directions.
// Blocks of more than 32 tangent dimensions are not judged.
struct DegenerateBlocks {
  int64_t count = 0;

  // The worst block has the smallest relative pivot: the part of a column's
  // square outside the span of the other columns, at most 1e-12. Among equals
  // it is the same one in every run on the same machine. If blocks are merged
  // (Options::preconditioner_blocks), it is the first of them.

  // Its values, null if there is none.
  const double* worst = nullptr;
  // In a problem of arrays the number of its parameter array, otherwise -1.
  int worst_parameters = -1;
  // Its number in that array, or in the order in which the blocks were added to
  // the ceres::Problem; -1 if there is none.
  int64_t worst_block = -1;
  double worst_relative_pivot = 1.0;
};

// A residual that costs most in the last runaway trial of a solve (Summary).
struct RunawayResidual {
  // A varying parameter block that it depends on.
  struct Block {
    // Its values, and its number as DegenerateBlocks has it.
    const double* values = nullptr;
    int parameters = -1;
    int64_t block = -1;
    bool is_eliminated = false;
  };

  double value = 0.0;  // before the trial
  double trial = 0.0;  // in the trial; may be infinite or NaN
  // The eliminated block, as a point is, first.
  std::vector<Block> blocks;
};

struct Summary : public ceres::Solver::Summary {
  SolvePath path = PATH_CERES;

  // The reason for this path, one sentence, never empty after a solve.
  std::string path_reason;

  // The machine of the linear solver, for example "host, 16 threads" or "NVIDIA
  // H200 (CUDA device 0)", with the reason if the host was used without being
  // asked for. Empty on PATH_CERES.
  std::string device;

  // The method, e.g. "Schur, implicit W, stored Jacobian (double),
  // SCHUR_JACOBI"; empty on PATH_CERES.
  std::string method;

  // Number of residual blocks whose loss runs on the host because it is
  // user-defined, and the class of the first such loss. If a cost function of
  // this library has a user-defined loss, num_threads host threads call the
  // losses of all its residual blocks in each evaluation. The same holds if
  // there are more than about 100 different losses, not counting the scales of
  // ceres::ScaledLoss.
  int64_t num_host_losses = 0;
  std::string host_loss_type;

  // Number of PCG iterations, summed over all linear solves.
  int64_t num_pcg_iterations = 0;

  // Number of linear solves by a factorisation: all with an exact solver, some
  // with LINEAR_SOLVER_AUTO.
  int64_t num_exact_steps = 0;

  // The second level of the preconditioner (Options::preconditioner): number of
  // PCG iterations with it, number of its clusters of parameter blocks and of
  // its columns, and seconds spent forming it, including S as a matrix. All are
  // 0 if no step used it.
  int64_t num_coarse_iterations = 0;
  int32_t num_clusters = 0;
  int64_t num_coarse_columns = 0;
  double coarse_time_in_seconds = 0.0;

  // Number of linear solves that ended at max_linear_solver_iterations, less
  // accurate than Solver::Options::eta asks.
  int64_t num_solves_at_pcg_limit = 0;

  // Seconds spent starting CUDA in this process; 0 if it was started before or
  // there is no device. Included in preprocessor_time_in_seconds, not in the
  // other fields of this struct.
  double context_time_in_seconds = 0.0;

  // Seconds, summed over the solve. Evaluation times are in
  // ceres::Solver::Summary. Setup: structure, index and allocation. Import:
  // waiting for the upload of rows that Ceres evaluates.
  double setup_time_in_seconds = 0.0;
  double import_time_in_seconds = 0.0;
  // Schur: forming S as a matrix. Factorization: the factor of S and the
  // solution.
  double normal_blocks_time_in_seconds = 0.0;
  double schur_time_in_seconds = 0.0;
  double factorization_time_in_seconds = 0.0;
  double pcg_time_in_seconds = 0.0;
  double back_substitution_time_in_seconds = 0.0;

  // Peak bytes that this library held: index, Jacobian, normal blocks and
  // vectors; on a device, of device memory.
  int64_t memory_bytes = 0;

  // Forecast of memory_bytes after the set-up: the bytes allocated, plus those
  // of the first factor of a sparse factorisation. 0 on the host. If
  // Options::cuda_memory_limit_bytes or the device may be too small, the set-up
  // is counted before it allocates more than its index. If it does not fit, its
  // largest arrays stay in page-locked memory of the host, which are not
  // counted here, or it leaves the device; Summary::device has the numbers
  // (docs/options.md).
  int64_t memory_forecast_bytes = 0;

  // Bytes transferred between host and device after the set-up; 0 on the host.
  int64_t transfer_bytes = 0;

  // Number of parameter blocks whose manifold runs on the host because it is
  // user-defined, and the type of the first; 0 and empty on the host.
  int num_host_manifolds = 0;
  std::string host_manifold_type;

  // Degenerate blocks at the start of the solve, among the eliminated blocks
  // (points) and the others (cameras). None on PATH_CERES
  // (docs/reliability.md).
  DegenerateBlocks degenerate_eliminated_blocks;
  DegenerateBlocks degenerate_other_blocks;

  // Number of runaway trials: steps to a state whose cost is not finite, or
  // more than 10 times as high as before, because residuals are not finite or
  // grow by more than 1e3, as those of a point do that a step throws to the
  // plane of a camera. Ceres rejects such a step. num_runaway_residuals: how
  // many they are in the last such trial. Not counted, and 0, on PATH_CERES and
  // if several ranks solve.
  int64_t num_runaway_trials = 0;
  int64_t num_runaway_residuals = 0;

  // If the solve has ended with CONVERGENCE at a state that is not a minimum:
  // what happened, and what to do. Ceres's tolerances are then met only because
  // rejected steps have made the trust region tiny. Otherwise empty
  // (docs/reliability.md).
  std::string no_minimum;
  // The residuals of the last runaway trial that cost most, at most 5 and each
  // of other blocks, if no_minimum is not empty.
  std::vector<RunawayResidual> runaway_residuals;

  // ceres::Solver::Summary::FullReport followed by a section on these fields.
  std::string FullReport() const;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_SUMMARY_H_
