// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Finds a way to solve a problem that Ceres has preprocessed, and sets it up:
// the linear solver that the options choose, else the program's; an order of
// elimination; a machine. If most rows are observations, only their points are
// eliminated; otherwise the blocks that Ceres would eliminate
// (import/elimination.h). Ceres orders nothing then. The plan
// (plan/solve_plan.h) chooses machine and solver, and what follows a set-up
// that fails (plan/attempts.h).

#ifndef CERES_EXT_UNDER_CERES_SOLVE_SETUP_H_
#define CERES_EXT_UNDER_CERES_SOLVE_SETUP_H_

#include <memory>
#include <string>

#include "ceres/preprocessor.h"
#include "ceres_ext/base/failure.h"
#include "ceres_ext/import/array_import.h"
#include "ceres_ext/import/import_rows.h"
#include "ceres_ext/options.h"
#include "ceres_ext/plan/attempts.h"
#include "ceres_ext/plan/device_choice.h"
#include "ceres_ext/plan/solve_plan.h"
#include "ceres_ext/session/kept_machines.h"
#include "ceres_ext/summary.h"
#include "ceres_ext/under_ceres/machine_solve.h"

namespace ceres_ext {

// The inputs of a solve. All outlive the set-up.
struct SolveInput {
  Options options;
  int num_threads = 1;
  Attempt attempt;
  Purpose purpose = Purpose::kSolve;
  // The problem that is solved instead of Ceres's; or null.
  ArrayImport* arrays = nullptr;
  KeptMachines* kept = nullptr;
  Failure* failure = nullptr;
  Summary* record = nullptr;
};

class SolveSetup {
 public:
  explicit SolveSetup(const SolveInput& input) : input_(input) {}

  // True if this library takes the problem; the record's path and path_reason
  // say so. pp->options are then those of the solver that is used, else they
  // and the order of the blocks are what they were.
  bool Take(ceres::internal::PreprocessedProblem* pp);

  // The outcome of the linear solver that the options choose, to be put before
  // the reason; otherwise empty.
  const std::string& choice() const { return choice_; }
  // Null if nothing was set up.
  MachineSolve* machine() const { return machine_.get(); }
  ProgramObjects* objects() { return &objects_; }
  bool is_on_device() const { return is_on_device_; }
  // Taken without a machine (under_ceres/small_solve.h).
  bool is_small() const { return is_small_; }
  // For Ceres's summary.
  const std::string& schur_structure() const { return schur_structure_; }

 private:
  // A problem of few columns and residuals.
  void TakeSmall(ceres::internal::PreprocessedProblem* pp);
  // With pp->options, in either order.
  bool TakeInAnyOrder(ceres::internal::PreprocessedProblem* pp);
  // The problem as it is ordered now.
  bool TakeAsOrdered(ImportOptions import_options,
                     ceres::internal::PreprocessedProblem* pp);
  // With the blocks first that ITERATIVE_SCHUR eliminates.
  bool TakeEliminated(ImportOptions import_options,
                      ceres::internal::PreprocessedProblem* pp);
  // With the linear solver that was chosen in pp->options in place of the given
  // one.
  Outcome TakeChosen(const ceres::Solver::Options& given,
                     ceres::internal::PreprocessedProblem* pp);
  // The reason why the solve is Ceres's whatever the problem is, a clause;
  // empty: it isn't.
  std::string WhyCeres(const ceres::internal::PreprocessedProblem& pp) const;
  SolveWork Work(const ceres::internal::PreprocessedProblem& pp) const;
  bool Import(const ImportOptions& import_options,
              const ceres::internal::PreprocessedProblem& pp,
              ProblemStructure* structure);
  // The facts that Decide needs.
  RowFacts CountRows(const PlanRequest& request,
                     const ProblemStructure& structure,
                     const ceres::internal::PreprocessedProblem& pp) const;
  // Sets up the first plan that can be. False with the record's reason.
  bool SetupPlan(const ImportOptions& import_options,
                 ProblemStructure* structure,
                 ceres::internal::PreprocessedProblem* pp);
  bool Decline(const std::string& reason) {
    input_.record->path_reason = reason;
    return false;
  }

  SolveInput input_;
  std::string choice_;
  // The blocks that were to be eliminated and are not, a clause; empty: none.
  std::string elimination_note_;
  bool replaces_factorization_ = false;
  // Work that no machine supports in one order is not supported in another.
  bool is_final_ = false;
  bool is_on_device_ = false;
  bool is_small_ = false;
  std::string schur_structure_;
  std::unique_ptr<MachineSolve> machine_;
  ProgramObjects objects_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_UNDER_CERES_SOLVE_SETUP_H_
