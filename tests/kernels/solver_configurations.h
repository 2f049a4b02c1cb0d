// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Every configuration of the inexact-step solver, for tests that go through
// all.
#ifndef CERES_EXT_TESTS_KERNELS_SOLVER_CONFIGURATIONS_H_
#define CERES_EXT_TESTS_KERNELS_SOLVER_CONFIGURATIONS_H_

#include <string>
#include <vector>

#include "ceres_ext/solver/inexact_solver_options.h"

namespace ceres_ext::solver {

inline std::vector<InexactSolverOptions> SolverConfigurations() {
  std::vector<InexactSolverOptions> all;
  for (const bool use_schur : {true, false}) {
    for (const PreconditionerType preconditioner :
         {PreconditionerType::kIdentity,
          PreconditionerType::kJacobi,
          PreconditionerType::kSchurJacobi}) {
      InexactSolverOptions options;
      options.use_schur = use_schur;
      options.preconditioner = preconditioner;
      std::string error;
      if (options.Validate(&error)) {
        all.push_back(options);
      }
    }
  }
  return all;
}

inline std::string ConfigurationName(const InexactSolverOptions& options) {
  std::string name = options.use_schur ? "schur" : "full";
  switch (options.preconditioner) {
    case PreconditionerType::kIdentity:
      return name + "_identity";
    case PreconditionerType::kJacobi:
      return name + "_jacobi";
    case PreconditionerType::kSchurJacobi:
      return name + "_schur_jacobi";
  }
  return name;
}

}  // namespace ceres_ext::solver

#endif  // CERES_EXT_TESTS_KERNELS_SOLVER_CONFIGURATIONS_H_
