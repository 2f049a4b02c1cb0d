// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Requests to the step solver and its answers. Meanings are those of Ceres's
// linear solvers of the same names.
#ifndef CERES_EXT_SOLVER_STEP_OPTIONS_H_
#define CERES_EXT_SOLVER_STEP_OPTIONS_H_

#include <cstdint>
#include <string>

#include "cuda_kernels/base/machine_rates.h"

namespace ceres_ext::solver {

enum class PreconditionerType {
  kIdentity,
  // Block diagonal of F'F + D_f^2 and, without Schur complement, E'E + D_e^2.
  kJacobi,
  // Block diagonal of the Schur complement.
  kSchurJacobi,
  // Power series of the inverse of the Schur complement, of
  // 1 + max_num_spse_iterations terms.
  kSchurPowerSeriesExpansion,
};

// How the system that is left is solved.
enum class Factorization {
  // By PCG.
  kNone,
  // Exactly, by Cholesky's factorisation of S as a matrix (Ceres's DENSE_SCHUR
  // and SPARSE_SCHUR). Needs use_schur. kAuto: of those that have room the one
  // that should take less time (factorization_cost.h).
  kAuto,
  kDense,
  kSparse,
};

struct StepOptions {
  // True: eliminate the points and iterate on the cameras (Ceres's
  // ITERATIVE_SCHUR). False: iterate on all unknowns (Ceres's CGNR).
  bool use_schur = true;
  PreconditionerType preconditioner = PreconditionerType::kSchurJacobi;

  Factorization factorization = Factorization::kNone;
  // For the choice of kAuto on a device.
  kernels::MachineRates rates;
  // Columns of S^-1 are wanted (SchurCholesky::SolveColumns). With kAuto a
  // device then has a sparse S only where a dense one has no room, since cuDSS
  // solves for a column at a time: 87 s in place of 0.3 with 10,788 columns
  // (H200).
  bool wants_columns = false;
  // With kAuto or kDense, on the host: a small problem of general rows has no
  // lists of pairs (cholesky/small_schur.h).
  bool may_be_small = false;
  // With a factorisation: 0: every step is exact, and what is said of PCG below
  // has no meaning. Above: a step is by PCG unless that takes more iterations
  // than an exact step is worth (step_choice.h). This is the cost of an exact
  // step in iterations of PCG, and what S as a matrix costs to set up.
  int64_t exact_step_cost = 0;
  int64_t exact_setup_cost = 0;
  // The factor of a dense matrix is of float, and its solution is refined so
  // many times.
  bool use_mixed_precision_solves = false;
  int max_num_refinement_iterations = 0;  // at least 0
  // The factor of a dense matrix on a device is of float and preconditions
  // conjugate gradients, until these fail in a step; that step and all that
  // follow have a factor of double. Has no meaning beside
  // use_mixed_precision_solves and wants_columns.
  bool prefers_float_factor = false;

  // S as a matrix is summed of pairs of blocks (structure/schur_pairs.h), also
  // by a batch that could write it from pairs of its rows: these are many more.
  // Needs a stored Jacobian.
  bool sums_pairs = false;

  // Products of PCG are by S as a sparse matrix. Needs use_schur and
  // kSchurJacobi, and no power series.
  bool use_explicit_schur_complement = false;

  // The iterations of PCG in all steps together after which it gets a second
  // level (coarse_choice.h); 0 if all steps have it; below 0: none. Those that
  // it costs in each step. Needs kSchurJacobi, and no other use of S as a
  // matrix.
  int coarse_after = -1;
  int coarse_again = 0;

  // 0 <= min_num_iterations <= max_num_iterations. There is at least one
  // iteration, unless the right-hand side is zero.
  int min_num_iterations = 0;
  // Each of the first steps by PCG takes at least min_num_first_iterations, or
  // max_num_iterations if these are fewer.
  int num_first_steps = 0;
  int min_num_first_iterations = 0;
  int max_num_iterations = 500;
  // Interval, in iterations, at which r = b - A x is recomputed; at least 1.
  int residual_reset_period = 10;

  // True if PCG starts from the power series for the right-hand side, of at
  // most 1 + max_num_spse_iterations terms, the last one being the first that
  // is smaller than spse_tolerance times the first one; else it starts from
  // zero.
  bool use_spse_initialization = false;
  int max_num_spse_iterations = 5;  // at least 1
  double spse_tolerance = 0.1;      // at least 0

  bool has_power_series() const {
    return use_spse_initialization ||
           preconditioner == PreconditionerType::kSchurPowerSeriesExpansion;
  }
  // True if some steps may be exact, if both kinds of steps are used, and if
  // all steps are exact.
  bool may_factorize() const { return factorization != Factorization::kNone; }
  bool is_mixture() const { return may_factorize() && exact_step_cost > 0; }
  bool factorizes() const { return may_factorize() && !is_mixture(); }
  bool may_be_coarse() const { return coarse_after >= 0; }
  bool needs_schur_matrix() const {
    return may_factorize() || use_explicit_schur_complement || may_be_coarse();
  }
  // True if a solver needs the blocks of F'F, and those of S.
  bool needs_u() const {
    return has_power_series() || preconditioner == PreconditionerType::kJacobi;
  }
  bool needs_schur_diagonal() const {
    return may_factorize() ||
           preconditioner == PreconditionerType::kSchurJacobi;
  }

  // True if steps read matrices of the F blocks.
  bool needs_f_blocks() const {
    return needs_u() || needs_schur_diagonal() || needs_schur_matrix();
  }

  // False and a sentence in *error where a field or combination has no meaning:
  // kSchurJacobi and power series need use_schur.
  bool Validate(std::string* error) const {
    if (may_factorize() && !use_schur) {
      *error = "A factorisation needs the Schur complement.";
    } else if (exact_step_cost < 0 || exact_setup_cost < 0) {
      *error = "The costs of an exact step are below zero.";
    } else if (factorization == Factorization::kSparse &&
               use_mixed_precision_solves) {
      *error =
          "The sparse factorisation does not support "
          "use_mixed_precision_solves.";
    } else if (max_num_refinement_iterations < 0) {
      *error = "max_num_refinement_iterations = " +
               std::to_string(max_num_refinement_iterations) +
               ", expected at least 0.";
    } else if (use_explicit_schur_complement &&
               (!use_schur || use_spse_initialization || may_factorize() ||
                preconditioner != PreconditionerType::kSchurJacobi)) {
      *error =
          "use_explicit_schur_complement needs the Schur complement and the "
          "preconditioner SCHUR_JACOBI, without a power series.";
    } else if (may_be_coarse() &&
               (!use_schur || has_power_series() || may_factorize() ||
                use_explicit_schur_complement ||
                preconditioner != PreconditionerType::kSchurJacobi)) {
      *error =
          "A second level needs the Schur complement and the preconditioner "
          "SCHUR_JACOBI, without a power series or a factorisation.";
    } else if (preconditioner == PreconditionerType::kSchurJacobi &&
               !use_schur) {
      *error = "The preconditioner SCHUR_JACOBI needs the Schur complement.";
    } else if (has_power_series() && !use_schur) {
      *error =
          "SCHUR_POWER_SERIES_EXPANSION, as a preconditioner or an "
          "initialization, needs the Schur complement.";
    } else if (has_power_series() && max_num_spse_iterations < 1) {
      *error = "max_num_spse_iterations = " +
               std::to_string(max_num_spse_iterations) +
               ", expected at least 1.";
    } else if (has_power_series() && !(spse_tolerance >= 0.0)) {
      *error = "spse_tolerance = " + std::to_string(spse_tolerance) +
               ", expected at least 0.";
    } else if (min_num_iterations < 0) {
      *error = "min_num_iterations = " + std::to_string(min_num_iterations) +
               ", expected at least 0.";
    } else if (max_num_iterations < min_num_iterations) {
      *error = "max_num_iterations = " + std::to_string(max_num_iterations) +
               ", expected at least min_num_iterations = " +
               std::to_string(min_num_iterations) + ".";
    } else if (residual_reset_period < 1) {
      *error =
          "residual_reset_period = " + std::to_string(residual_reset_period) +
          ", expected at least 1.";
    } else {
      return true;
    }
    return false;
  }
};

// Values below zero never end a solve; an exact solution always does.
struct StepPerSolveOptions {
  // Ends when i (Q_i - Q_{i-1}) / Q_i < q_tolerance, Q = x'Ax - 2 b'x. As in
  // Ceres, the quotient is below zero where Q_i > 0, as it may be after a start
  // by use_spse_initialization; minus infinity never ends a solve.
  double q_tolerance = 0.0;
  // Ends when |b - A x| <= r_tolerance |b|.
  double r_tolerance = -1.0;
  // If zeta < 0.1 and less than this is left of the model's cost to gain, PCG
  // also ends (cuda_kernels/base/pcg_scalars.h); 0 for never.
  double model_cost_tolerance = 0.0;
  // Compares what PCG can still gain with what is left of the model's cost too
  // (SetPcgResidual).
  bool use_model_cost = false;
  // q_tolerance is the largest value of a forcing sequence, with an element for
  // each linearisation (PcgForcing).
  bool use_forcing_sequence = false;
  // The blocks of the preconditioner are not merged.
  bool use_single_blocks = false;
  // True if the Jacobian is that of the solve before, which was of no use.
  bool is_same_linearization = false;
  // An exact step may only be queued, and StepSolver::FinishQueued then says
  // how the solve ended.
  bool may_queue = false;
};

enum class Termination {
  kSuccess,        // a tolerance is met
  kNoConvergence,  // the step is usable, no tolerance is met
  kFailure,        // numerical: there is no step; another damping may help
  kFatalError,     // memory or device: there is no step, nothing will help
};

struct StepSummary {
  // |b - A x| of the system that was iterated on, -1 where there was none.
  double residual_norm = -1.0;
  int num_iterations = 0;         // of PCG; 1 where there is none
  int num_pcg_iterations = 0;     // without the 1
  int num_coarse_iterations = 0;  // of these with a second level
  bool is_exact = false;
  bool is_at_limit = false;  // PCG's step, which ended at max_num_iterations
  bool is_queued = false;    // FinishQueued is to be called
  Termination termination = Termination::kFatalError;
  std::string message;

  double normal_blocks_seconds = 0.0;  // blocks, factors and right-hand side
  double schur_seconds = 0.0;          // S as a matrix
  double coarse_seconds = 0.0;         // the second level, S included
  double factorization_seconds = 0.0;  // its factor, and the solution with it
  double pcg_seconds = 0.0;
  double back_substitution_seconds = 0.0;
};

}  // namespace ceres_ext::solver

#endif  // CERES_EXT_SOLVER_STEP_OPTIONS_H_
