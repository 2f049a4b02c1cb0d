// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The adapter of SolveSetup that Ceres asks for its linear solver, evaluator
// and loop vectors during one solve. A solve takes one of two paths:
//
//   PATH_FULL   ProgramEvaluator, ProgramLinearSolver, LoopVectors:
//               observations are evaluated by this library, other rows by it or
//               by Ceres;
//   PATH_CERES  nothing: the reason says why.
//
// Options::linear_solver and preconditioner take effect in OwnsOrdering: Ceres
// reads its options again after it. If they differ from the program's, the
// plugin solves there, or it leaves order and options unchanged and stock Ceres
// continues as if it had never been asked.
//
// A problem of arrays (import/array_import.h) comes with an empty shell of a
// Program, which is never solved: where the first path isn't taken, Ceres's
// solve ends, and IsTaken says so.
//
// An object is for one solve and outlives everything that it makes. Not thread
// safe; solves that run at once have one each. No exception leaves it or what
// it makes: it ends the solve with FAILURE and a sentence in the summary's
// message. So does host memory that runs out: stock Ceres would need more of
// it.

#ifndef CERES_EXT_UNDER_CERES_BUNDLE_PLUGIN_H_
#define CERES_EXT_UNDER_CERES_BUNDLE_PLUGIN_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ceres/iteration_callback.h"
#include "ceres/preprocessor.h"
#include "ceres/solver_plugin.h"
#include "ceres/trust_region_vectors.h"
#include "ceres_ext/base/failure.h"
#include "ceres_ext/base/scoped_seconds.h"
#include "ceres_ext/import/array_import.h"
#include "ceres_ext/options.h"
#include "ceres_ext/plan/attempts.h"
#include "ceres_ext/session/idle_machines.h"
#include "ceres_ext/session/kept_machines.h"
#include "ceres_ext/summary.h"
#include "ceres_ext/under_ceres/solve_setup.h"

namespace ceres_ext {

// " [Ceres Ext: path ..., reason.]", for the message of a summary whose reader
// sees no more.
std::string PathInBrackets(const Summary& summary, const std::string& reason);

class BundlePlugin final : public ceres::internal::SolverPlugin {
 public:
  // append_to_message: the caller sees only a ceres::Solver::Summary, so Finish
  // adds path and reason to its message.
  BundlePlugin(const Options& options, bool append_to_message);
  // arrays: what is to be solved in place of what Ceres is given, by
  // num_threads threads; kept: what this solve may use and leaves for the next
  // one. Both outlive the plugin.
  BundlePlugin(const Options& options,
               int num_threads,
               ArrayImport* arrays,
               KeptMachines* kept);
  ~BundlePlugin() override;

  bool OwnsOrdering(ceres::internal::PreprocessedProblem* pp) override;
  bool SetupLinearSolver(ceres::internal::PreprocessedProblem* pp) override;
  bool SetupEvaluator(ceres::internal::PreprocessedProblem* pp) override;
  std::shared_ptr<ceres::internal::TrustRegionVectors> CreateTrustRegionVectors(
      ceres::internal::PreprocessedProblem* pp) override;
  void Finish(const ceres::internal::PreprocessedProblem& pp,
              ceres::Solver::Summary* summary) override;

  // True if this library has taken the problem.
  bool IsTaken() const { return record_.path == PATH_FULL; }
  void SetAttempt(const Attempt& attempt) { attempt_ = attempt; }
  // The caller makes the next attempt. leaves_no_trace: nothing that the caller
  // sees changes before the solve has ended.
  void MayBeRepeated(bool leaves_no_trace) {
    may_solve_again_ = true;
    leaves_no_trace_ = leaves_no_trace;
  }
  // How the solve has ended, for the next attempt.
  Outcome End() const;
  // True if the solve has ended for a reason that no other way of solving has
  // an answer to.
  bool HasFailed() const { return failure_.has_happened(); }
  // The reason why the path, with what became of a chosen linear solver and
  // what ended the solve.
  std::string Reason() const;
  // The same, and why several devices are not used.
  std::string FullReason() const;
  // Once, when the solve has ended: reports it if Ceres has not called Finish.
  // failure: what ended the solve outside of this object, or nothing.
  void FinishIfCeresDidNot(const Failure& failure,
                           const ceres::Solver::Summary& summary);
  // Then: moves what this solve adds to Ceres's summary.
  void FillSummary(Summary* summary);

 private:
  // Comes after the callbacks of the user and looks what they have left.
  class Watch final : public ceres::IterationCallback {
   public:
    explicit Watch(BundlePlugin* plugin) : plugin_(plugin) {}
    ceres::CallbackReturnType operator()(
        const ceres::IterationSummary&) override;

   private:
    BundlePlugin* plugin_;
  };

  // Replaces the user's callbacks, which rank 0 calls, and the limit of time,
  // which rank 0 watches: all ranks end with its decision.
  class RankWatch final : public ceres::IterationCallback {
   public:
    explicit RankWatch(BundlePlugin* plugin) : plugin_(plugin) {}
    void TakeOver(ceres::Solver::Options* options);
    ceres::CallbackReturnType operator()(
        const ceres::IterationSummary& summary) override;
    // If the limit of time has ended the solve, says so as Ceres does.
    void Finish(ceres::Solver::Summary* summary) const;

   private:
    BundlePlugin* plugin_;
    std::vector<ceres::IterationCallback*> callbacks_;
    double max_seconds_ = 0.0;
    double seconds_ = 0.0;
    bool has_timed_out_ = false;
  };

  bool Take(ceres::internal::PreprocessedProblem* pp);
  void FinishUnguarded(const ceres::internal::PreprocessedProblem& pp,
                       ceres::Solver::Summary* summary);
  void Decline(const std::string& reason);
  void NameWorst(const ceres::internal::PreprocessedProblem& pp,
                 DegenerateBlocks* degenerate) const;
  // Fills the record of a solve that has ended away from a minimum.
  void NameNoMinimum(const ceres::internal::PreprocessedProblem& pp,
                     const ceres::Solver::Summary& summary);
  // Null if nothing was set up.
  MachineSolve* machine() const {
    return setup_.has_value() ? setup_->machine() : nullptr;
  }
  bool IsSmall() const { return setup_.has_value() && setup_->is_small(); }
  // True if mixed precision may be why the solve failed.
  bool HasFailedInFloat() const;
  void Report(const ceres::Solver::Summary& summary);

  Options options_;
  const bool append_to_message_;
  ArrayImport* const arrays_;
  // The additions of this solve to Ceres's summary, also on PATH_CERES.
  Summary record_;
  Summary nothing_;
  Failure failure_;
  const Clock clock_;
  int num_threads_ = 0;  // 0: not known yet
  bool may_solve_again_ = false;
  bool leaves_no_trace_ = false;
  Attempt attempt_;

  // How the solve has ended; its message where HasFailedInFloat.
  bool is_finished_ = false;
  bool has_result_ = false;
  bool has_failed_ = false;
  bool has_iterations_ = false;
  std::string message_;

  // Null if the caller has some.
  std::unique_ptr<BorrowedMachines> own_machines_;
  KeptMachines* const kept_;
  std::optional<SolveSetup> setup_;
  Watch watch_{this};
  RankWatch rank_watch_{this};
};

}  // namespace ceres_ext

#endif  // CERES_EXT_UNDER_CERES_BUNDLE_PLUGIN_H_
