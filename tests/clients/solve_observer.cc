// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A library for LD_PRELOAD that observes the solves of a program: what the
// program calls as ceres::Solve is the function below. It appends one line to
// the file that CERES_EXT_SOLVES names, of fields between tabs:
//
//   linear solver of the options, linear solver used, termination,
//   number of iterations, final cost, message

#include <cstdio>
#include <cstdlib>

#include "ceres/problem.h"
#include "ceres/solver.h"
#include "ceres/types.h"

namespace ceres {

void Solve(const Solver::Options& options,
           Problem* problem,
           Solver::Summary* summary) {
  Solver solver;
  solver.Solve(options, problem, summary);
  const char* name = std::getenv("CERES_EXT_SOLVES");
  std::FILE* file = name != nullptr ? std::fopen(name, "a") : nullptr;
  if (file == nullptr) {
    return;
  }
  std::fprintf(file,
               "%s\t%s\t%s\t%d\t%.17g\t%s\n",
               LinearSolverTypeToString(options.linear_solver_type),
               LinearSolverTypeToString(summary->linear_solver_type_used),
               TerminationTypeToString(summary->termination_type),
               static_cast<int>(summary->iterations.size()),
               summary->final_cost,
               summary->message.c_str());
  std::fclose(file);
}

}  // namespace ceres
