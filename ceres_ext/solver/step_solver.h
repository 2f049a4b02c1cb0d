// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The step solver: an approximate minimiser, by preconditioned conjugate
// gradients, or the exact one, by a factorisation, of
//
//   1/2 |J x - b|^2 + 1/2 |D x|^2,   J = [E F], x = (y, z)
//
// where the rows of J are those of a list of batches (batch.h).
//
// With Schur complement, y is eliminated:
//   S z = F'b - F'E (E'E + D_e^2)^-1 E'b
//   S   = F'F + D_f^2 - F'E (E'E + D_e^2)^-1 E'F
//   y   = (E'E + D_e^2)^-1 (E'b - E'F z)
// Without, PCG works on (J'J + D^2) x = J'b. Both start at zero, or, with Schur
// complement and use_spse_initialization, at the power series for s.
//
//   StepSolver<HostMachine> solver;
//   Status status = solver.Setup(options, blocks, {&batch}, &machine);
//   StepSummary summary =
//       solver.Solve({b, e_diagonal, f_diagonal}, per_solve, e_step, f_step);
//
// It composes an operator (operator/) with a preconditioner (preconditioner/)
// and PCG (pcg.h), or with a factorisation of S as a matrix (cholesky/), or
// with both, of which it chooses one for each step (step_choice.h). The sign is
// Ceres's: b is the residual, and the trust-region loop negates the step
// itself. PCG gives an undamped zero column step zero, a factorisation fails on
// it.
//
// Setup takes all memory, and Solve takes none, with three exceptions: a dense
// S that replaces a sparse one whose factorisation is wrong; S as a matrix if
// steps are by PCG or exact (StepOptions::is_mixture), which the first exact
// step sets up; and a graph (cuda_graph.h), which all solves on the same arrays
// use. A solver runs one Solve at a time. The same input gives the same bits,
// for any number of threads.
#ifndef CERES_EXT_SOLVER_STEP_SOLVER_H_
#define CERES_EXT_SOLVER_STEP_SOLVER_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ceres_ext/solver/batch.h"
#include "ceres_ext/solver/cholesky/schur_cholesky.h"
#include "ceres_ext/solver/cholesky/small_schur.h"
#include "ceres_ext/solver/cholesky/sparse_factorization.h"
#include "ceres_ext/solver/degenerate_blocks.h"
#include "ceres_ext/solver/operator/create_operator.h"
#include "ceres_ext/solver/operator/linear_operator.h"
#include "ceres_ext/solver/pcg.h"
#include "ceres_ext/solver/preconditioner/create_preconditioner.h"
#include "ceres_ext/solver/rank_sums.h"
#include "ceres_ext/solver/schur_matrix_size.h"
#include "ceres_ext/solver/step_choice.h"
#include "ceres_ext/solver/step_options.h"
#include "cuda_kernels/base/breakdown.h"
#include "cuda_kernels/base/pcg_scalars.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/host_context.h"
#include "cuda_kernels/ops/vectors.h"
#include "cuda_kernels/structure/block_families.h"

namespace ceres_ext::solver {

template <typename Machine>
class StepSolver {
 public:
  // Batches and machine must outlive the solver. f_varies: of each value of F,
  // in host memory, whether it is an unknown of S as a matrix; empty: all
  // are. sparse: for a sparse S on the host. ranks: of a solve by several,
  // whose F is the same and whose steps are PCG's of S, or null; outlives the
  // solver. kInvalidArgument: options.Validate fails. kOutOfMemory.
  // kUnsupported: what a batch, or the machine, can't do.
  kernels::Status Setup(const StepOptions& options,
                        const ProblemBlocks& blocks,
                        const std::vector<Batch*>& batches,
                        Machine* machine,
                        std::vector<unsigned char> f_varies = {},
                        std::shared_ptr<SparseFactorization> sparse = {},
                        kernels::HostContext* context = nullptr,
                        RankSums<Machine>* ranks = nullptr) {
    std::string error;
    if (!options.Validate(&error)) {
      return {kernels::StatusCode::kInvalidArgument, error};
    }
    options_ = options;
    num_first_steps_left_ = options.num_first_steps;
    batches_ = batches;
    machine_ = machine;
    if (f_varies.empty() && options.needs_schur_matrix()) {
      f_varies.assign(static_cast<size_t>(blocks.f.num_values()), 1);
    }
    SchurComplement<Machine>* schur = nullptr;
    CERES_EXT_RETURN_IF_ERROR(
        CreateOperator(options, f_varies, &operator_, &schur));
    operator_->SetRanks(ranks);
    ranks_ = ranks;
    CERES_EXT_RETURN_IF_ERROR(
        operator_->Setup(options, blocks, batches, machine));
    const int64_t n = operator_->space().size();
    CERES_EXT_RETURN_IF_ERROR(machine->Allocate(n, &rhs_));
    f_varies_ = std::move(f_varies);
    sparse_ = std::move(sparse);
    choice_.Setup(options.exact_step_cost,
                  options.exact_setup_cost,
                  options.max_num_iterations);
    if (!options.is_mixture()) {
      choice_.UsePcgAlone();
    }
    context_ = context;
    small_.reset();
    if (options.factorizes()) {
      CERES_EXT_RETURN_IF_ERROR(SetupSmall());
      if (small_ == nullptr) {
        CERES_EXT_RETURN_IF_ERROR(SetupCholesky());
      }
    } else {
      preconditioner_ = CreatePreconditioner<Machine>(
          options_, batches_, f_varies_, schur, ranks, context);
      CERES_EXT_RETURN_IF_ERROR(
          preconditioner_->Setup(blocks, options.use_schur, machine));
      CERES_EXT_RETURN_IF_ERROR(
          machine->Allocate(options.use_schur ? 0 : n, &x_));
      for (Buffer<double>* vector : {&p_, &r_, &z_}) {
        CERES_EXT_RETURN_IF_ERROR(machine->Allocate(n, vector));
      }
    }
    CERES_EXT_RETURN_IF_ERROR(
        judge_.Setup(operator_.get(), WantedBlocks(), machine));
    // Solve is to take no memory.
    ListOperands({}, nullptr);
    operands_.push_back(nullptr);
    for (PcgIterations& iterations : iterations_) {
      iterations.loop.Reset();
      iterations.operands.clear();
      iterations.operands.reserve(operands_.size());
    }
    return machine->Allocate(1, &scalars_);
  }

  // After Setup, by all ranks: all have a second level with the same choices,
  // or none has.
  kernels::Status AgreeOnSecondLevel() {
    struct Record {
      int32_t after;
      int32_t again;
    };
    std::vector<Record> all;
    CERES_EXT_RETURN_IF_ERROR(ranks_->Gather(
        second_level() == nullptr
            ? Record{-1, 0}
            : Record{options_.coarse_after, options_.coarse_again},
        &all));
    Record agreed = {0, 0};
    std::string why_not;
    for (size_t rank = 0; rank < all.size(); ++rank) {
      if (all[rank].after < 0 && why_not.empty()) {
        why_not = "Rank " + std::to_string(rank) + " has none.";
      }
      agreed.after = std::max(agreed.after, all[rank].after);
      agreed.again = std::max(agreed.again, all[rank].again);
    }
    if (preconditioner_ != nullptr) {
      preconditioner_->SetSecondLevel(
          why_not.empty() ? agreed.after : -1, agreed.again, why_not);
    }
    return {};
  }

  // Judges the Jacobian as it is, in one pass, independently of any Solve.
  // e_padding, f_padding: one on columns that are not unknowns, otherwise zero;
  // merged blocks have none of these.
  kernels::Status FindDegenerateBlocks(const double* e_padding,
                                       const double* f_padding,
                                       DegenerateBlocks* e,
                                       DegenerateBlocks* f) {
    return judge_.Find(
        operator_.get(), WantedBlocks(), e_padding, f_padding, e, f);
  }

  // Null: no step has been exact.
  const SchurCholesky<Machine>* cholesky() const { return cholesky_.get(); }
  // If all steps are exact: forms and factorises S of a system without solving
  // it, so that columns of its inverse are available. kNumericalFailure: an
  // eliminated block, or S, is not positive definite.
  kernels::Status FactorizeSystem(const LinearSystem& system) {
    if (!system.is_same_linearization) {
      cholesky_->Forget();
    }
    CERES_EXT_RETURN_IF_ERROR(
        operator_->Update(system, cholesky_->WantedBlocks(), rhs_.data()));
    CERES_EXT_RETURN_IF_ERROR(
        cholesky_->Write(system, operator_->e_matrices()));
    CERES_EXT_RETURN_IF_ERROR(operator_->CheckUpdate());
    return cholesky_->Factorize();
  }
  SchurCholesky<Machine>* mutable_cholesky() { return cholesky_.get(); }
  // Prepares a system for SolveReduced, if PCG takes steps.
  kernels::Status PrepareSystem(const LinearSystem& system) {
    CERES_EXT_RETURN_IF_ERROR(operator_->Update(
        system, preconditioner_->WantedBlocks(), rhs_.data()));
    CERES_EXT_RETURN_IF_ERROR(preconditioner_->Update(system));
    CERES_EXT_RETURN_IF_ERROR(operator_->CheckUpdate());
    return preconditioner_->CheckUpdate();
  }
  // x = S^-1 rhs of that system, vectors of F, with |rhs - S x| <= r_tolerance
  // |rhs|. kNumericalFailure: max_num_iterations of the options have not got
  // there, or S is not positive definite. Adds to *num_iterations.
  kernels::Status SolveReduced(const LinearSystem& system,
                               const double* rhs,
                               double r_tolerance,
                               double* x,
                               int64_t* num_iterations) {
    CERES_EXT_RETURN_IF_ERROR(
        Run(kernels::CopyParams{operator_->space().size(), rhs, rhs_.data()},
            machine_));
    PcgVectors vectors = VectorsOfPcg(x);
    StepPerSolveOptions per_solve;
    // Zeta is never below it.
    per_solve.q_tolerance = -std::numeric_limits<double>::max();
    per_solve.r_tolerance = r_tolerance;
    ListOperands(system, x);
    kernels::PcgScalars scalars;
    CERES_EXT_RETURN_IF_ERROR(RunPcg(
        options_,
        per_solve,
        /*forcing=*/{},
        /*breakdowns=*/{},
        vectors,
        [] { return kernels::Status(); },
        &scalars));
    *num_iterations += scalars.num_iterations;
    // Written so that NaN is an error.
    return scalars.norm_r <= r_tolerance * scalars.norm_rhs
               ? kernels::Status()
               : kernels::Status(kernels::StatusCode::kNumericalFailure,
                                 PcgMessage(scalars));
  }
  // (E'E + D_e^2)^-1 of the system that was factorised last, packed.
  double* e_inverses() { return operator_->e_matrices(); }
  // The kind of matrix or of factor that has replaced that of Setup, and why, a
  // clause; empty if none has.
  const std::string& why_replaced() const { return why_replaced_; }
  // The second level of PCG; null: it has none.
  const SecondLevel* second_level() const {
    return preconditioner_ == nullptr ? nullptr
                                      : preconditioner_->second_level();
  }
  // The reason why PCG takes steps that should be exact, a sentence; empty if
  // it doesn't.
  const std::string& why_not_exact() const { return why_not_exact_; }
  // For S as a matrix that is factorised; null if there is none, or none yet.
  const SchurMatrixSize* factorized_size() const {
    return small_ != nullptr      ? &small_->size()
           : cholesky_ != nullptr ? &cholesky_->size()
                                  : nullptr;
  }
  // The same, or what is multiplied by.
  const SchurMatrixSize* matrix_size() const {
    const SchurMatrixSize* const factorized = factorized_size();
    return factorized != nullptr ? factorized : operator_->matrix_size();
  }

  // e_step, f_step: values of E and of F. Both hold the step where the
  // termination is kSuccess or kNoConvergence and are unspecified otherwise.
  StepSummary Solve(LinearSystem system,
                    const StepPerSolveOptions& per_solve,
                    double* e_step,
                    double* f_step) {
    system.is_same_linearization = per_solve.is_same_linearization;
    StepSummary summary;
    NoteFailure(SolveOrFail(system, per_solve, e_step, f_step, &summary),
                &summary);
    return summary;
  }

  // How a Solve ended whose summary says is_queued: sets termination and
  // message, and adds seconds. Waits.
  void FinishQueued(StepSummary* summary) {
    summary->is_queued = false;
    kernels::Status status = CheckFactorization();
    if (status.ok()) {
      status = machine_->Synchronize();
    }
    NoteFailure(status, summary);
    AddSeconds(summary);
  }

 private:
  template <typename T>
  using Buffer = typename Machine::template Buffer<T>;

  enum Mark { kBegin, kSchurBegin, kSchurDone, kBlocksDone, kPcgDone, kEnd };

  // PCG's loop and what its iterations read and write beside the buffers below.
  struct PcgIterations {
    std::vector<const void*> operands;
    typename Machine::PcgLoop loop;
    int64_t last_use = 0;
  };

  kernels::Status SolveOrFail(const LinearSystem& system,
                              const StepPerSolveOptions& per_solve,
                              double* e_step,
                              double* f_step,
                              StepSummary* summary) {
    if (cholesky_ != nullptr && !system.is_same_linearization) {
      cholesky_->Forget();
    }
    if (small_ != nullptr) {
      return FactorizeSmall(system, e_step, f_step, summary);
    }
    if (options_.factorizes()) {
      return Factorize(system, per_solve.may_queue, e_step, f_step, summary);
    }
    if (choice_.IsExact()) {
      choice_.NoteExact();
      return Factorize(system, per_solve.may_queue, e_step, f_step, summary);
    }
    CERES_EXT_RETURN_IF_ERROR(
        Iterate(system, per_solve, e_step, f_step, summary));
    if (!options_.is_mixture() ||
        !choice_.NotePcg(summary->num_pcg_iterations, summary->is_at_limit)) {
      return {};
    }
    if (cholesky_ == nullptr) {
      kernels::Status status = SetupCholesky();
      if (!status.ok()) {
        if (status.code == kernels::StatusCode::kDeviceError) {
          return status;
        }
        cholesky_.reset();
        why_not_exact_ = status.message;
        choice_.UsePcgAlone();
        return Iterate(system, per_solve, e_step, f_step, summary);
      }
    }
    choice_.NoteExact();
    return Factorize(system, per_solve.may_queue, e_step, f_step, summary);
  }

  static void NoteFailure(const kernels::Status& status, StepSummary* summary) {
    if (!status.ok()) {
      summary->termination =
          status.code == kernels::StatusCode::kNumericalFailure
              ? Termination::kFailure
              : Termination::kFatalError;
      summary->message = status.message;
      summary->is_queued = false;
    }
  }

  kernels::Status SetupCholesky() {
    cholesky_ = std::make_unique<SchurCholesky<Machine>>();
    return cholesky_->Setup(options_,
                            operator_->blocks(),
                            batches_,
                            f_varies_,
                            std::move(sparse_),
                            machine_,
                            context_);
  }

  // Sets small_ if the problem is one for it.
  kernels::Status SetupSmall() {
    if constexpr (std::is_same_v<Machine, kernels::HostMachine>) {
      const double* values = nullptr;
      const kernels::BlockRowsRef* const rows =
          options_.may_be_small && batches_.size() == 1
              ? batches_[0]->general_rows(&values)
              : nullptr;
      if (rows != nullptr) {
        small_ = std::make_unique<SmallSchur>();
        return small_->Setup(*rows,
                             values,
                             operator_->blocks().e,
                             operator_->blocks().f,
                             f_varies_,
                             machine_);
      }
    }
    return {};
  }

  // The operator and the preconditioner of a system that PCG solves.
  kernels::Status UpdateForPcg(const LinearSystem& system,
                               const StepPerSolveOptions& per_solve) {
    CERES_EXT_RETURN_IF_ERROR(machine_->RecordMark(kBegin));
    CERES_EXT_RETURN_IF_ERROR(operator_->Update(
        system, preconditioner_->WantedBlocks(), rhs_.data()));
    if (per_solve.use_model_cost) {
      CERES_EXT_RETURN_IF_ERROR(
          operator_->ModelConstant(&scalars_.data()->model_constant));
    }
    if (operator_->matrix_size() != nullptr) {
      // Before the diagonal blocks are inverted in place.
      CERES_EXT_RETURN_IF_ERROR(machine_->RecordMark(kSchurBegin));
      CERES_EXT_RETURN_IF_ERROR(operator_->FormMatrix(
          system, preconditioner_->WantedBlocks().schur_diagonal));
      CERES_EXT_RETURN_IF_ERROR(machine_->RecordMark(kSchurDone));
    }
    CERES_EXT_RETURN_IF_ERROR(
        preconditioner_->SplitMergedBlocks(per_solve.use_single_blocks));
    CERES_EXT_RETURN_IF_ERROR(preconditioner_->Update(system));
    return machine_->RecordMark(kBlocksDone);
  }

  // PCG on operands_.
  template <typename Finish>
  kernels::Status RunPcg(const StepOptions& options,
                         const StepPerSolveOptions& per_solve,
                         const kernels::PcgForcing& forcing,
                         const kernels::BreakdownArrays& breakdowns,
                         const PcgVectors& vectors,
                         const Finish& finish,
                         kernels::PcgScalars* scalars) {
    operands_.push_back(preconditioner_->variant());
    return ConjugateGradients(
        options,
        per_solve,
        forcing,
        breakdowns,
        vectors,
        [&](const double* p, double* q) {
          return operator_->Multiply(p, q, vectors.scalars);
        },
        [&](const double* r, double* z) {
          return preconditioner_->Apply(r, z, vectors.scalars);
        },
        finish,
        FindLoop(),
        machine_,
        scalars);
  }

  kernels::Status Iterate(LinearSystem system,
                          const StepPerSolveOptions& per_solve,
                          double* e_step,
                          double* f_step,
                          StepSummary* summary) {
    if (per_solve.use_model_cost) {
      system.e_gradient = e_step;  // which has no value yet
    }
    CERES_EXT_RETURN_IF_ERROR(UpdateForPcg(system, per_solve));
    PcgVectors vectors = VectorsOfPcg(options_.use_schur ? f_step : x_.data());
    vectors.x_is_given = options_.use_spse_initialization;
    if (vectors.x_is_given) {
      CERES_EXT_RETURN_IF_ERROR(
          preconditioner_->Initialize(rhs_.data(), vectors.x));
    }
    // PCG looks at these where they are, and the host need not wait for them.
    kernels::BreakdownArrays breakdowns;
    operator_->ListBreakdowns(&breakdowns);
    preconditioner_->ListBreakdowns(&breakdowns);
    kernels::PcgScalars scalars;
    StepPerSolveOptions of_solve = per_solve;
    kernels::PcgForcing forcing;
    if (per_solve.use_forcing_sequence && per_solve.is_same_linearization &&
        forcing_.last_q_tolerance > 0.0) {
      of_solve.q_tolerance = forcing_.last_q_tolerance;
    } else if (per_solve.use_forcing_sequence) {
      forcing = forcing_;
    }
    StepOptions options = options_;
    int left = choice_.MaxNumIterations();
    const int least = LeastIterations();
    for (bool has_changed = true; has_changed;) {
      ListOperands(system, vectors.x);
      options.min_num_iterations =
          std::max(least, preconditioner_->LeastIterations());
      options.max_num_iterations = std::max(
          options.min_num_iterations, preconditioner_->MostIterations(left));
      CERES_EXT_RETURN_IF_ERROR(RunPcg(
          options,
          of_solve,
          forcing,
          breakdowns,
          vectors,
          [&]() -> kernels::Status {
            CERES_EXT_RETURN_IF_ERROR(machine_->RecordMark(kPcgDone));
            CERES_EXT_RETURN_IF_ERROR(
                operator_->Finish(vectors.x, e_step, f_step));
            return machine_->RecordMark(kEnd);
          },
          &scalars));
      summary->num_iterations += scalars.num_iterations;
      summary->num_pcg_iterations += scalars.num_iterations;
      left -= scalars.num_iterations;
      CERES_EXT_RETURN_IF_ERROR(preconditioner_->NoteIterations(
          scalars.num_iterations,
          left <= 0 || scalars.end != kernels::PcgEnd::kMaxNumIterations,
          &has_changed));
      // From where it is, to the same accuracy.
      if (has_changed) {
        vectors.x_is_given = true;
        forcing = {};
        of_solve.q_tolerance = scalars.q_tolerance;
      }
    }
    if (SecondLevel* const level = preconditioner_->second_level()) {
      summary->coarse_seconds += std::exchange(level->seconds, 0.0);
      summary->num_coarse_iterations += std::exchange(level->num_iterations, 0);
    }

    if (scalars.end == kernels::PcgEnd::kBlockBreakdown) {
      // The block by its name.
      CERES_EXT_RETURN_IF_ERROR(operator_->CheckUpdate());
      CERES_EXT_RETURN_IF_ERROR(preconditioner_->CheckUpdate());
    }
    if (!per_solve.is_same_linearization) {
      forcing_ = {scalars.norm_rhs, scalars.q_tolerance};
    }
    return SummarizePcg(scalars, summary);
  }

  // Iterations of the next step by PCG at least.
  int LeastIterations() {
    if (num_first_steps_left_ == 0) {
      return options_.min_num_iterations;
    }
    --num_first_steps_left_;
    return std::max(options_.min_num_iterations,
                    std::min(options_.min_num_first_iterations,
                             options_.max_num_iterations));
  }

  kernels::Status SummarizePcg(const kernels::PcgScalars& scalars,
                               StepSummary* summary) {
    summary->residual_norm = scalars.norm_r;
    summary->is_at_limit = scalars.end == kernels::PcgEnd::kMaxNumIterations;
    summary->termination = PcgTermination(scalars.end);
    summary->message = PcgMessage(scalars);
    CERES_EXT_RETURN_IF_ERROR(machine_->Synchronize());
    summary->normal_blocks_seconds +=
        machine_->SecondsBetweenMarks(kBegin, kBlocksDone);
    if (operator_->matrix_size() != nullptr) {
      const double of_schur =
          machine_->SecondsBetweenMarks(kSchurBegin, kSchurDone);
      summary->schur_seconds += of_schur;
      summary->normal_blocks_seconds -= of_schur;
    }
    summary->pcg_seconds +=
        machine_->SecondsBetweenMarks(kBlocksDone, kPcgDone);
    summary->back_substitution_seconds +=
        machine_->SecondsBetweenMarks(kPcgDone, kEnd);
    return {};
  }

  PcgVectors VectorsOfPcg(double* x) {
    PcgVectors vectors;
    vectors.space = operator_->space();
    vectors.rhs = rhs_.data();
    vectors.x = x;
    vectors.p = p_.data();
    vectors.r = r_.data();
    vectors.z = z_.data();
    vectors.scalars = scalars_.data();
    vectors.waits_for_ranks = ranks_ != nullptr;
    vectors.can_record = ranks_ == nullptr || ranks_->CanRecord();
    return vectors;
  }

  kernels::Status FactorizeSmall(const LinearSystem& system,
                                 double* e_step,
                                 double* f_step,
                                 StepSummary* summary) {
    CERES_EXT_RETURN_IF_ERROR(machine_->RecordMark(kBegin));
    CERES_EXT_RETURN_IF_ERROR(machine_->RecordMark(kBlocksDone));
    CERES_EXT_RETURN_IF_ERROR(small_->Form(system));
    CERES_EXT_RETURN_IF_ERROR(machine_->RecordMark(kSchurDone));
    CERES_EXT_RETURN_IF_ERROR(small_->Solve(f_step));
    CERES_EXT_RETURN_IF_ERROR(machine_->RecordMark(kPcgDone));
    small_->BackSubstitute(e_step);
    CERES_EXT_RETURN_IF_ERROR(machine_->RecordMark(kEnd));
    NoteExact(summary);
    AddSeconds(summary);
    return {};
  }

  void NoteExact(StepSummary* summary) {
    ++summary->num_iterations;
    summary->is_exact = true;
    summary->is_at_limit = false;
    summary->residual_norm = -1.0;
    summary->termination = Termination::kSuccess;
    summary->message = "Success.";
    // Has no meaning for the sequence with which PCG continues.
    forcing_ = {};
  }

  kernels::Status Factorize(const LinearSystem& system,
                            bool may_queue,
                            double* e_step,
                            double* f_step,
                            StepSummary* summary) {
    CERES_EXT_RETURN_IF_ERROR(machine_->RecordMark(kBegin));
    CERES_EXT_RETURN_IF_ERROR(
        operator_->Update(system, cholesky_->WantedBlocks(), rhs_.data()));
    CERES_EXT_RETURN_IF_ERROR(machine_->RecordMark(kBlocksDone));
    summary->is_queued = may_queue && !cholesky_->waits();
    kernels::Status status =
        FactorizeOnce(system, summary->is_queued, e_step, f_step);
    if (cholesky_->ShouldReplace()) {
      const bool is_float = cholesky_->size().is_float;
      const kernels::Status replaced = cholesky_->Replace();
      if (!replaced.ok()) {
        status.message += " A dense matrix can't replace it: ";
        status.message += replaced.message;
        return status;
      }
      const std::string why = status.message;
      why_replaced_ = (is_float ? "the factor is in double since "
                                : "the Schur complement is a dense matrix "
                                  "since ") +
                      why.substr(0, why.size() - 1);
      status = FactorizeOnce(system, /*queues=*/false, e_step, f_step);
      if (status.code == kernels::StatusCode::kDeviceError) {
        status.message = why + " " + status.message;
      }
    }
    CERES_EXT_RETURN_IF_ERROR(status);
    NoteExact(summary);
    if (!summary->is_queued) {
      CERES_EXT_RETURN_IF_ERROR(machine_->Synchronize());
      AddSeconds(summary);
    }
    return {};
  }

  // Adds the seconds of an exact step that is done.
  void AddSeconds(StepSummary* summary) {
    summary->normal_blocks_seconds +=
        machine_->SecondsBetweenMarks(kBegin, kBlocksDone);
    summary->schur_seconds +=
        machine_->SecondsBetweenMarks(kBlocksDone, kSchurDone);
    summary->factorization_seconds +=
        machine_->SecondsBetweenMarks(kSchurDone, kPcgDone);
    summary->back_substitution_seconds +=
        machine_->SecondsBetweenMarks(kPcgDone, kEnd);
  }

  // From the blocks to a step that solves the system. queues: unless the
  // factorisation waits, CheckFactorization is left to the caller.
  kernels::Status FactorizeOnce(const LinearSystem& system,
                                bool queues,
                                double* e_step,
                                double* f_step) {
    CERES_EXT_RETURN_IF_ERROR(
        cholesky_->Write(system, operator_->e_matrices()));
    CERES_EXT_RETURN_IF_ERROR(machine_->RecordMark(kSchurDone));
    const bool waits = cholesky_->waits();
    if (waits) {
      CERES_EXT_RETURN_IF_ERROR(operator_->CheckUpdate());
    }
    CERES_EXT_RETURN_IF_ERROR(cholesky_->Solve(rhs_.data(), f_step));
    CERES_EXT_RETURN_IF_ERROR(machine_->RecordMark(kPcgDone));
    CERES_EXT_RETURN_IF_ERROR(operator_->Finish(f_step, e_step, f_step));
    CERES_EXT_RETURN_IF_ERROR(machine_->RecordMark(kEnd));
    if (waits) {
      return cholesky_->CheckFactor();
    }
    return queues ? kernels::Status() : CheckFactorization();
  }
  kernels::Status CheckFactorization() {
    CERES_EXT_RETURN_IF_ERROR(operator_->CheckUpdate());
    return cholesky_->CheckFactor();
  }

  NormalBlocksRequest WantedBlocks() const {
    return preconditioner_ != nullptr ? preconditioner_->WantedBlocks()
           : cholesky_ != nullptr     ? cholesky_->WantedBlocks()
                                      : NormalBlocksRequest();
  }

  // Fills operands_.
  void ListOperands(const LinearSystem& system, const double* x) {
    operands_.clear();
    operands_.push_back(system.e_diagonal);
    operands_.push_back(system.f_diagonal);
    operands_.push_back(x);
    for (const Batch* batch : batches_) {
      batch->AppendOperands(&operands_);
    }
  }

  // The loop for operands_, in place of the one used least recently.
  typename Machine::PcgLoop* FindLoop() {
    PcgIterations* found = &iterations_[0];
    const int num_loops = options_.may_be_coarse() ? 4 : 2;
    for (int i = 0; i < num_loops; ++i) {
      PcgIterations& iterations = iterations_[i];
      if (iterations.operands == operands_) {
        found = &iterations;
        break;
      }
      if (iterations.last_use < found->last_use) {
        found = &iterations;
      }
    }
    if (found->operands != operands_) {
      found->operands = operands_;
      found->loop.Reset();
    }
    found->last_use = ++num_uses_;
    return &found->loop;
  }

  StepOptions options_;
  std::vector<Batch*> batches_;
  Machine* machine_ = nullptr;
  std::unique_ptr<LinearOperator<Machine>> operator_;
  // Null if all steps are exact.
  std::unique_ptr<Preconditioner<Machine>> preconditioner_;
  std::unique_ptr<SchurCholesky<Machine>> cholesky_;
  std::unique_ptr<SmallSchur> small_;  // takes all steps; null: there is none
  StepChoice choice_;
  // The setup of cholesky_.
  std::vector<unsigned char> f_varies_;
  std::shared_ptr<SparseFactorization> sparse_;
  std::string why_replaced_;
  std::string why_not_exact_;
  kernels::HostContext* context_ = nullptr;
  RankSums<Machine>* ranks_ = nullptr;  // null: there is one rank

  Buffer<double> rhs_;
  Buffer<double> x_;  // without Schur complement
  Buffer<double> p_;
  Buffer<double> r_;
  Buffer<double> z_;
  Buffer<kernels::PcgScalars> scalars_;

  BlockJudge<Machine> judge_;

  // Two, for callers that swap a state and a candidate; two more where steps
  // may have a second level.
  std::vector<const void*> operands_;
  PcgIterations iterations_[4];
  int64_t num_uses_ = 0;

  // State of the last linearisation that was solved.
  kernels::PcgForcing forcing_;
  int num_first_steps_left_ = 0;  // StepOptions::num_first_steps
};

}  // namespace ceres_ext::solver

#endif  // CERES_EXT_SOLVER_STEP_SOLVER_H_
