// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The plugin of a program that calls ceres::Solve itself, for options with
// several devices: these solve the whole problem while Ceres sets up its loop,
// which then has nothing left to do. If they can't, one device, or the host,
// solves in Ceres's loop.

#ifndef CERES_EXT_UNDER_CERES_WHOLE_SOLVE_PLUGIN_H_
#define CERES_EXT_UNDER_CERES_WHOLE_SOLVE_PLUGIN_H_

#include <functional>
#include <memory>
#include <string>

#include "ceres/preprocessor.h"
#include "ceres/solver_plugin.h"
#include "ceres/trust_region_vectors.h"
#include "ceres_ext/base/failure.h"
#include "ceres_ext/import/table_of_problem.h"
#include "ceres_ext/options.h"
#include "ceres_ext/plan/attempts.h"
#include "ceres_ext/summary.h"
#include "ceres_ext/under_ceres/bundle_plugin.h"

namespace ceres_ext {

// An attempt by several devices that writes the solution to the problem that
// *arrays are of.
using SolveWhole = std::function<Outcome(const ceres::Solver::Options& options,
                                         const Options& ext_options,
                                         TableOfProblem* arrays,
                                         Summary* summary)>;

class WholeSolvePlugin final : public ceres::internal::SolverPlugin {
 public:
  WholeSolvePlugin(const Options& options, SolveWhole solve);

  bool OwnsOrdering(ceres::internal::PreprocessedProblem* pp) override;
  bool SetupLinearSolver(ceres::internal::PreprocessedProblem* pp) override;
  bool SetupEvaluator(ceres::internal::PreprocessedProblem* pp) override;
  std::shared_ptr<ceres::internal::TrustRegionVectors> CreateTrustRegionVectors(
      ceres::internal::PreprocessedProblem* pp) override;
  void Finish(const ceres::internal::PreprocessedProblem& pp,
              ceres::Solver::Summary* summary) override;

 private:
  Outcome Solve(const ceres::internal::PreprocessedProblem& pp);

  const Options options_;
  const SolveWhole solve_;
  Attempts attempts_{options_};
  Failure failure_;
  bool is_solved_ = false;
  Summary summary_;
  BundlePlugin plugin_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_UNDER_CERES_WHOLE_SOLVE_PLUGIN_H_
