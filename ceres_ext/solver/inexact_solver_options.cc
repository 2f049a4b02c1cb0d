// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "ceres_ext/solver/inexact_solver_options.h"

namespace ceres_ext::solver {

bool InexactSolverOptions::Validate(std::string* error) const {
  if (preconditioner == PreconditionerType::kSchurJacobi && !use_schur) {
    *error = "The preconditioner SCHUR_JACOBI needs the Schur complement.";
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

}  // namespace ceres_ext::solver
