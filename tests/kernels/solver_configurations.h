// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Every configuration of the inexact-step solver, for tests that go through
// all.
#ifndef CERES_EXT_TESTS_KERNELS_SOLVER_CONFIGURATIONS_H_
#define CERES_EXT_TESTS_KERNELS_SOLVER_CONFIGURATIONS_H_

#include <string>
#include <vector>

#include "ceres_ext/solver/step_options.h"

namespace ceres_ext::solver {

inline std::vector<StepOptions> SolverConfigurations() {
  std::vector<StepOptions> all;
  for (const bool use_schur : {true, false}) {
    for (const PreconditionerType preconditioner :
         {PreconditionerType::kIdentity,
          PreconditionerType::kJacobi,
          PreconditionerType::kSchurJacobi,
          PreconditionerType::kSchurPowerSeriesExpansion}) {
      for (const bool use_spse_initialization : {false, true}) {
        StepOptions options;
        options.use_schur = use_schur;
        options.preconditioner = preconditioner;
        options.use_spse_initialization = use_spse_initialization;
        for (const bool use_explicit : {false, true}) {
          options.use_explicit_schur_complement = use_explicit;
          std::string error;
          if (options.Validate(&error)) {
            all.push_back(options);
          }
        }
      }
    }
  }
  return all;
}

inline std::string ConfigurationName(const StepOptions& options) {
  std::string name = options.use_schur ? "schur" : "full";
  switch (options.preconditioner) {
    case PreconditionerType::kIdentity:
      name += "_identity";
      break;
    case PreconditionerType::kJacobi:
      name += "_jacobi";
      break;
    case PreconditionerType::kSchurJacobi:
      name += "_schur_jacobi";
      break;
    case PreconditionerType::kSchurPowerSeriesExpansion:
      name += "_power_series";
      break;
  }
  name += options.use_spse_initialization ? "_spse_initialization" : "";
  return name + (options.use_explicit_schur_complement ? "_explicit" : "");
}

}  // namespace ceres_ext::solver

#endif  // CERES_EXT_TESTS_KERNELS_SOLVER_CONFIGURATIONS_H_
