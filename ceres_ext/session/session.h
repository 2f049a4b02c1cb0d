// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A problem on a machine: everything that a loop, an evaluation or a covariance
// asks of it. Knows no loop; Ceres's is one client (under_ceres/).
//
//   Session<Machine> session(kept_machine);
//   Status status = session.Setup(plan, setup, &structure, &record);
//   status = session.Evaluate({state, ..., session.linearization()}, &cost);
//   status = session.Step({residuals, D, ...}, step, &summary);
//   status = session.Plus(state, step, candidate);
//
// Vectors (states, steps, residuals) are in the machine's memory. Setup takes
// all memory. Every method makes the machine's device current while it works,
// and leaves the caller's. Not thread safe. Exceptions of user code leave every
// method, and so does std::bad_alloc.

#ifndef CERES_EXT_SESSION_SESSION_H_
#define CERES_EXT_SESSION_SESSION_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "ceres_ext/base/machines.h"
#include "ceres_ext/blocks/machine_problem.h"
#include "ceres_ext/import/caller_state.h"
#include "ceres_ext/import/problem_structure.h"
#include "ceres_ext/plan/solve_plan.h"
#include "ceres_ext/session/host_program.h"
#include "ceres_ext/session/kept_machines.h"
#include "ceres_ext/session/linearization.h"
#include "ceres_ext/session/problem_evaluator.h"
#include "ceres_ext/session/runaway_trials.h"
#include "ceres_ext/solver/cholesky/sparse_factorization.h"
#include "ceres_ext/solver/rank_sums.h"
#include "ceres_ext/solver/step_options.h"
#include "ceres_ext/solver/step_solver.h"
#include "ceres_ext/summary.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/communicator.h"
#include "cuda_kernels/machine/host_context.h"

namespace ceres_ext {

// The inputs of a session in addition to its plan.
struct SessionSetup {
  // Null: the state is that of structure->caller_state. Outlives the session.
  HostProgram* host_program = nullptr;
  // False: there is no Step, and no memory for one.
  bool has_steps = true;
  // True: a gradient without a Jacobian may be asked for, and its memory is
  // counted.
  bool may_want_gradient = false;
  // For a sparse Schur complement that the host factorises; null if there is no
  // library for that.
  std::shared_ptr<solver::SparseFactorization> sparse_factorization;
  // The ranks that solve; null: there is one. Outlives the session.
  kernels::Communicator* communicator = nullptr;
  // Bytes of the machine that the caller will take, to be counted, where
  // residuals have a scratch of the session's or not; empty: none.
  std::function<int64_t(bool has_scratch)> caller_bytes;
};

// The linear problem of a step (solver/step_solver.h).
struct StepWanted {
  const double* residuals = nullptr;  // b
  const double* diagonal = nullptr;   // D; null: zero
  // Ceres's LinearSolver::PerSolveOptions.
  double q_tolerance = 0.0;
  double r_tolerance = -1.0;
  // The step may only be queued, and FinishStep then says how it ended.
  bool may_queue = false;
};

template <typename Machine>
class Session {
 public:
  explicit Session(std::shared_ptr<KeptMachine<Machine>> kept)
      : kept_(std::move(kept)),
        machine_(kept_->machine.get()),
        host_context_(kept_->host_context) {}

  // Once, before anything else. *structure is used up. kUnsupported for what
  // the machine doesn't know. Sets device, method and memory of *record, which
  // outlives the session; steps add to other fields.
  kernels::Status Setup(const SolvePlan& plan,
                        const SessionSetup& setup,
                        ProblemStructure* structure,
                        Summary* record);
  // Memory that only the set-up needs returns to the device, after the caller
  // has taken its memory too.
  void FinishSetup();

  // kNumericalFailure where a row can't be evaluated or isn't finite, or a
  // manifold fails.
  kernels::Status Evaluate(const EvaluationWanted<Machine>& wanted,
                           double* cost);
  // Finds residuals of runaway trials (Summary), at the end of a solve.
  kernels::Status FindRunawayResiduals(std::vector<RunawayResidual>* worst) {
    constexpr int kMost = 5;
    return runaway_trials_.FindWorst(
        kMost,
        *linearization(),
        problem_,
        [this](int state_offset) { return ValuesAt(state_offset); },
        worst);
  }
  kernels::Status Plus(const double* state,
                       const double* delta,
                       double* state_plus_delta) {
    return parts_.evaluator.Plus(state, delta, state_plus_delta);
  }
  // The end of a Step whose summary says is_queued; waits for it.
  void FinishStep(solver::StepSummary* summary);
  // The Jacobian that steps are of.
  Linearization<Machine>* linearization() { return parts_.linearization.get(); }
  // The step of the linearization, with the sign of Ceres's linear solvers.
  // Numerical failures are in the summary.
  kernels::Status Step(const StepWanted& wanted,
                       double* step,
                       solver::StepSummary* summary);
  // The caller's values of the block at this offset of the state.
  const double* ValuesAt(int state_offset) const {
    return host_program_ != nullptr ? host_program_->Values(state_offset)
                                    : caller_state_->Find(state_offset);
  }
  // The solver of steps.
  solver::StepSolver<Machine>* solver() { return &parts_.solver; }
  // Notes in the record which blocks are degenerate. The first step does it.
  kernels::Status FindDegenerateBlocks();
  // Copies n values of the machine's memory to the host.
  kernels::Status Download(int64_t n, const double* x, double* host_x) {
    const CurrentMachine<Machine> current(machine_);
    CERES_EXT_RETURN_IF_ERROR(current.status());
    return machine_->Download(n, x, host_x);
  }

  // Sizes of state, step and residuals.
  int num_parameters() const { return problem_.num_parameters(); }
  int num_columns() const { return problem_.num_columns(); }
  int num_residuals() const { return problem_.num_residuals(); }

  const MachineProblem<Machine>& problem() const { return problem_; }
  solver::RankSums<Machine>* ranks() const { return ranks_.get(); }
  const ProblemEvaluator<Machine>& evaluator() const {
    return parts_.evaluator;
  }
  Machine* machine() const { return machine_; }
  kernels::HostContext* host_context() const { return host_context_; }
  const CallerState* caller_state() const { return caller_state_; }
  // Memory for all residuals that an evaluation or a step may use; null: none.
  double* scratch_residuals() { return parts_.ScratchResiduals(); }
  // Memory for all residuals that is free while an evaluation runs.
  void BorrowResiduals(double* residuals) {
    parts_.evaluator.BorrowResiduals(residuals);
    runaway_trials_.BorrowResiduals(residuals);
  }
  bool IsAlive() const { return kept_->IsAlive(); }
  // True if blocks of the Jacobian are float.
  bool has_float_blocks() const { return has_float_blocks_; }
  // Facts about the user's problem, for the summary's reason.
  const std::set<std::string>& notes() const { return notes_; }
  // The most memory so far, and what was copied between host and machine.
  int64_t peak_bytes() const;
  int64_t copied_bytes() const { return machine_->copied_bytes(); }
  // Blocks that vary, eliminated and others.
  std::vector<int> NumBlocks() const;

 private:
  // The possible forms of a structure's rows on the machine.
  struct Forms {
    std::vector<std::string> why_no_form;  // of each model
    bool recomputed_views = false;
  };

  // State that is set up once the problem is on the machine.
  struct Parts {
    ProblemEvaluator<Machine> evaluator;
    std::unique_ptr<Linearization<Machine>> linearization;
    solver::StepSolver<Machine> solver;

    double* ScratchResiduals() {
      const auto batches = linearization->batches();
      return evaluator.scratch_residuals() != nullptr
                 ? evaluator.scratch_residuals()
             : batches.size() == 1 ? batches[0]->scratch_residuals()
                                   : nullptr;
    }
  };

  kernels::Status FindForms(const SolvePlan& plan,
                            ProblemStructure* structure,
                            Forms* forms);
  // kOutOfMemory where the rest would not fit.
  kernels::Status CheckMemory(const SolvePlan& plan,
                              const SessionSetup& setup,
                              const Forms& forms,
                              const ProblemStructure& structure,
                              Summary* record,
                              bool* page_locks);
  // Evaluators of the batches, the Jacobian and the solver of steps.
  kernels::Status SetupRest(const SolvePlan& plan,
                            const SessionSetup& setup,
                            const Forms& forms,
                            const ProblemStructure& structure,
                            Summary* record,
                            Parts* parts);
  kernels::Status SetupSteps(const SolvePlan& plan,
                             const SessionSetup& setup,
                             const Forms& forms,
                             Summary* record,
                             Parts* parts);
  // For each value of F, true if it is an unknown.
  kernels::Status FindUnknowns(std::vector<unsigned char>* f_varies) const;
  void AddSeconds(const solver::StepSummary& summary);
  // Says in the record what S is since an exact step, why it has become a dense
  // matrix, and why there is none.
  void NoteMatrix();
  DegenerateBlocks Named(
      const solver::DegenerateBlocks& degenerate,
      const std::vector<FamilyTable<Machine>>& families) const;

  // Before the blocks, whose buffers are freed through it.
  const std::shared_ptr<KeptMachine<Machine>> kept_;
  Machine* const machine_;
  kernels::HostContext* const host_context_;
  std::unique_ptr<solver::RankSums<Machine>> ranks_;  // null: there is one
  MachineProblem<Machine> problem_;
  Parts parts_;
  RunawayTrials<Machine> runaway_trials_;
  const HostProgram* host_program_ = nullptr;
  const CallerState* caller_state_ = nullptr;
  Summary* record_ = nullptr;
  std::set<std::string> notes_;
  bool has_float_blocks_ = false;

  // Counts of steps.
  double model_cost_tolerance_ = 0.0;  // of the cost
  double most_q_tolerance_ = 1.0;
  ForcingSequenceType forcing_sequence_ = FORCING_SEQUENCE_CONSTANT;
  // The linearization of the last solve; 0 if there was none.
  int last_evaluation_ = 0;
  bool has_stepped_ = false;
  // The part of the record's method that names S, where it is factorised.
  std::string matrix_name_;
  bool has_named_matrix_ = false;
  bool has_noted_why_not_exact_ = false;
  bool has_noted_why_not_coarse_ = false;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_SESSION_SESSION_H_
