// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Evaluates a problem on a machine: each batch its rows (rows/
// batch_evaluator.h), and the state x (+) delta, projected onto bounds.
//
// Cost and gradient are sums over the batches in their order.

#ifndef CERES_EXT_SESSION_PROBLEM_EVALUATOR_H_
#define CERES_EXT_SESSION_PROBLEM_EVALUATOR_H_

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ceres_ext/base/failure.h"
#include "ceres_ext/base/machines.h"
#include "ceres_ext/blocks/block_manifolds.h"
#include "ceres_ext/blocks/machine_problem.h"
#include "ceres_ext/import/block_table.h"
#include "ceres_ext/import/problem_structure.h"
#include "ceres_ext/rows/batch_evaluator.h"
#include "ceres_ext/session/host_program.h"
#include "ceres_ext/session/linearization.h"
#include "cuda_kernels/base/buffer.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/ops/block_table.h"
#include "cuda_kernels/ops/vectors.h"

namespace ceres_ext {

// The requested outputs of an evaluation, in the machine's memory.
template <typename Machine>
struct EvaluationWanted {
  const double* state = nullptr;
  bool is_new_point = true;  // For HostProgram::Publish.
  bool apply_loss = true;
  double* residuals = nullptr;  // corrected for the loss; null: not wanted
  double* gradient = nullptr;   // J'r; null: not wanted
  Linearization<Machine>* jacobian = nullptr;  // null: not wanted
};

template <typename Machine>
class ProblemEvaluator {
 public:
  // Once, before anything else. rows: the evaluators of the batches in their
  // order. host_program: null if the problem has none. All memory of
  // evaluations but that of a Jacobian is taken here. *problem and
  // *host_program outlive the evaluator.
  kernels::Status Setup(const MachineProblem<Machine>* problem,
                        std::vector<std::unique_ptr<BatchEvaluator>> rows,
                        const StateBounds& bounds,
                        HostProgram* host_program) {
    problem_ = problem;
    rows_ = std::move(rows);
    host_program_ = host_program;
    CERES_EXT_RETURN_IF_ERROR(ChoosePlus(bounds));
    for (const auto& part : rows_) {
      if (part->CostTakesScratch()) {
        CERES_EXT_RETURN_IF_ERROR(AllocateScratch());
      }
    }
    needs_host_state_ = host_program != nullptr && host_program->ReadsStates();
    for (const auto& part : rows_) {
      needs_host_state_ |= part->num_host_rows() > 0;
    }
    if (!kIsHost<Machine>) {
      if (needs_host_state_) {
        CERES_EXT_RETURN_IF_ERROR(
            host_state_.Allocate(problem->num_parameters()));
      }
    }
    return {};
  }

  // Makes the problem's Jacobian. A gradient without one is computed in its
  // memory, so that the Jacobian is evaluated again if it is asked for after
  // that: by a search along a step that is then rejected. The state and the
  // residuals of its evaluation are there until then.
  kernels::Status CreateLinearization(
      std::unique_ptr<Linearization<Machine>>* linearization) {
    CERES_EXT_RETURN_IF_ERROR(MakeLinearization(linearization));
    linearization_ = linearization->get();
    return {};
  }
  // Takes the memory of a gradient without a Jacobian where it has its own,
  // which is otherwise taken when it is first asked for: a program that reads
  // states would see that of the Jacobian once more.
  kernels::Status ReserveGradient() {
    return needs_host_state_ && own_linearization_ == nullptr
               ? MakeLinearization(&own_linearization_)
               : kernels::Status();
  }
  // Residuals that an evaluation may write where it has no memory of its own
  // for those that are needed but not requested.
  void BorrowResiduals(double* residuals) { borrowed_residuals_ = residuals; }

  // Rows that the host evaluates.
  int64_t num_host_rows() const {
    int64_t sum = 0;
    for (const auto& part : rows_) {
      sum += part->num_host_rows();
    }
    return sum;
  }
  // Blocks that vary and whose manifold a device leaves to the host, and the
  // type of the first.
  int num_host_manifolds() const {
    return kIsHost<Machine> ? 0 : manifolds_.num_called();
  }
  std::string host_manifold_type() const {
    return kIsHost<Machine> ? "" : manifolds_.called_type();
  }
  // Room for all residuals that an evaluation may use; null: none. Data that is
  // not kept over an evaluation may be there too.
  double* scratch_residuals() { return scratch_residuals_.data(); }

  // kNumericalFailure where a row can't be evaluated or isn't finite: of no use
  // is then what has been written.
  kernels::Status Evaluate(const EvaluationWanted<Machine>& wanted,
                           double* cost) {
    Linearization<Machine>* jacobian = wanted.jacobian;
    kernels::Status status;
    if (jacobian == nullptr && wanted.gradient != nullptr) {
      const CurrentMachine<Machine> current(machine());
      status = current.status().ok() ? ReserveGradient() : current.status();
      if (status.ok()) {
        jacobian =
            needs_host_state_ ? own_linearization_.get() : linearization_;
        jacobian->Lend();
      }
    }
    CERES_EXT_RETURN_IF_ERROR(
        EvaluateInto(jacobian, wanted, status, /*scatters=*/true, cost));
    if (wanted.jacobian != nullptr) {
      wanted.jacobian->NoteEvaluation(*cost);
      of_linearization_ = wanted;
    }
    return {};
  }

  // state_plus_delta = state (+) delta, projected onto the bounds.
  // kNumericalFailure where a manifold fails.
  kernels::Status Plus(const double* state,
                       const double* delta,
                       double* state_plus_delta) {
    const CurrentMachine<Machine> current(machine());
    CERES_EXT_RETURN_IF_ERROR(current.status());
    if (plus_by_ == PlusBy::kProgram) {
      return PlusByProgram(state, delta, state_plus_delta);
    }
    CERES_EXT_RETURN_IF_ERROR(
        plus_by_ == PlusBy::kBlocks
            ? PlusOfBlocks(state, delta, state_plus_delta)
            : kernels::Run(kernels::AddVectorsParams{problem_->num_parameters(),
                                                     state,
                                                     delta,
                                                     state_plus_delta},
                           machine()));
    if (clamp_.n == 0) {
      return {};
    }
    kernels::ClampToBoundsParams clamp = clamp_;
    clamp.x = state_plus_delta;
    return kernels::Run(clamp, machine());
  }

 private:
  using Buffer = typename Machine::template Buffer<double>;
  // How x (+) delta is computed: as a sum of vectors, block by block, or by the
  // host's program.
  enum class PlusBy { kSum, kBlocks, kProgram };

  Machine* machine() const { return problem_->machine(); }

  kernels::Status MakeLinearization(
      std::unique_ptr<Linearization<Machine>>* linearization) {
    std::vector<std::unique_ptr<BatchJacobian>> parts(rows_.size());
    for (size_t i = 0; i < rows_.size(); ++i) {
      CERES_EXT_RETURN_IF_ERROR(rows_[i]->CreateJacobian(&parts[i]));
    }
    *linearization = std::make_unique<Linearization<Machine>>(
        problem_, std::move(parts), [this] {
          double cost = 0.0;
          return EvaluateInto(linearization_,
                              of_linearization_,
                              kernels::Status(),
                              /*scatters=*/false,
                              &cost);
        });
    return {};
  }

  // jacobian: null if neither it nor a gradient is wanted. status: of what this
  // rank has done for the evaluation; others hear of a failure. scatters: the
  // gradient leaves the families.
  kernels::Status EvaluateInto(Linearization<Machine>* jacobian,
                               const EvaluationWanted<Machine>& wanted,
                               kernels::Status status,
                               bool scatters,
                               double* cost) {
    if (status.ok()) {
      status = PrepareHostState(wanted, jacobian != nullptr);
    }
    const CurrentMachine<Machine> current(machine());
    CERES_EXT_RETURN_IF_ERROR(current.status());
    if (status.ok()) {
      status = EvaluateRows(wanted, jacobian);
    }
    double* const gradient = scatters ? wanted.gradient : nullptr;
    if (problem_->ranks() == nullptr) {
      CERES_EXT_RETURN_IF_ERROR(status);
      CERES_EXT_RETURN_IF_ERROR(ScatterGradient(gradient));
      return Finish(cost);
    }
    // A failure on one rank is one on all.
    status = status.ok() ? Finish(cost) : status;
    CERES_EXT_RETURN_IF_ERROR(problem_->ranks()->Agree(status));
    CERES_EXT_RETURN_IF_ERROR(problem_->ranks()->SumOnHost(1, cost));
    return ScatterGradient(gradient);
  }

  // If there are manifolds, the host's program does all of it on the host,
  // bounds included. Without any, a sum of vectors does not read its objects.
  kernels::Status ChoosePlus(const StateBounds& bounds) {
    std::vector<BlockManifold> blocks;
    for (const auto* families : {&problem_->e(), &problem_->f()}) {
      for (const auto& family : *families) {
        if (family.table().HasManifold()) {
          AppendBlocks(family.table(), &blocks);
        } else {
          plain_families_.push_back(&family.ref());
        }
      }
    }
    plus_by_ =
        blocks.empty() && problem_->num_parameters() == problem_->num_columns()
            ? PlusBy::kSum
        : kIsHost<Machine> && host_program_ != nullptr ? PlusBy::kProgram
                                                       : PlusBy::kBlocks;
    if (plus_by_ == PlusBy::kProgram) {
      return {};
    }
    CERES_EXT_RETURN_IF_ERROR(SetupBounds(bounds));
    return manifolds_.Setup(blocks, /*wants_tangents=*/false, machine());
  }

  // Values side by side need no list, and if all have the same bounds, one pair
  // is enough: the scales of directions are both.
  kernels::Status SetupBounds(const StateBounds& bounds) {
    clamp_ = {};
    clamp_.n = static_cast<int64_t>(bounds.index.size());
    if (clamp_.n == 0) {
      return {};
    }
    clamp_.first = bounds.index.front();
    bool is_range = true;
    bool is_same = true;
    for (size_t i = 0; i < bounds.index.size(); ++i) {
      is_range &= bounds.index[i] == clamp_.first + static_cast<int32_t>(i);
      is_same &= bounds.lower[i] == bounds.lower.front() &&
                 bounds.upper[i] == bounds.upper.front();
    }
    clamp_.stride = is_same ? 0 : 1;
    const int64_t num_bounds = is_same ? 1 : clamp_.n;
    CERES_EXT_RETURN_IF_ERROR(
        machine()->Upload(num_bounds, bounds.lower.data(), &lower_));
    CERES_EXT_RETURN_IF_ERROR(
        machine()->Upload(num_bounds, bounds.upper.data(), &upper_));
    if (!is_range) {
      CERES_EXT_RETURN_IF_ERROR(machine()->Upload(bounds.index, &bounded_));
    }
    clamp_.index = bounded_.data();
    clamp_.lower = lower_.data();
    clamp_.upper = upper_.data();
    return {};
  }

  static void AppendBlocks(const BlockTable& table,
                           std::vector<BlockManifold>* blocks) {
    for (int32_t i = 0; i < table.size(); ++i) {
      if (table.state_offset(i) >= 0) {
        const ceres::Manifold* manifold = table.manifold(i);
        blocks->push_back({manifold,
                           table.state_offset(i),
                           table.tangent_offset(i),
                           manifold != nullptr ? manifold->AmbientSize()
                                               : table.tangent_size(i),
                           table.tangent_size(i)});
      }
    }
  }

  // Publishes the state where somebody on the host reads it. A user's code
  // finds that device current which its program left.
  kernels::Status PrepareHostState(const EvaluationWanted<Machine>& wanted,
                                   bool want_jacobian) {
    if (!needs_host_state_) {
      return {};
    }
    if constexpr (!kIsHost<Machine>) {
      const CurrentMachine<Machine> current(machine());
      CERES_EXT_RETURN_IF_ERROR(current.status());
      CERES_EXT_RETURN_IF_ERROR(machine()->Download(
          problem_->num_parameters(), wanted.state, host_state_.data()));
    }
    const bool is_taken =
        host_program_ == nullptr || !host_program_->ReadsStates() ||
        host_program_->Publish(
            HostState(wanted.state), want_jacobian, wanted.is_new_point);
    return is_taken
               ? kernels::Status()
               : kernels::Status(kernels::StatusCode::kNumericalFailure,
                                 "The state can't be copied to the program.");
  }

  const double* HostState(const double* state) const {
    return kIsHost<Machine> ? state : host_state_.data();
  }

  kernels::Status AllocateScratch() {
    return scratch_residuals_.size() == 0
               ? machine()->Allocate(problem_->num_residuals(),
                                     &scratch_residuals_)
               : kernels::Status();
  }

  kernels::Status EvaluateRows(const EvaluationWanted<Machine>& wanted,
                               Linearization<Machine>* jacobian) {
    EvaluationRequest request;
    request.state = wanted.state;
    request.host_state = HostState(wanted.state);
    request.apply_loss = wanted.apply_loss;
    request.want_gradient = wanted.gradient != nullptr;
    if (request.want_gradient) {
      request.e_gradient = problem_->working().e;
      request.f_gradient = problem_->working().f;
      CERES_EXT_RETURN_IF_ERROR(
          problem_->SetSharedToZero(request.e_gradient, request.f_gradient));
    }
    double* scratch = scratch_residuals_.size() > 0 ? scratch_residuals_.data()
                                                    : borrowed_residuals_;
    if (jacobian != nullptr && wanted.residuals == nullptr &&
        scratch == nullptr) {
      CERES_EXT_RETURN_IF_ERROR(AllocateScratch());
      scratch = scratch_residuals_.data();
    }
    int64_t begin = 0;
    for (size_t i = 0; i < rows_.size(); ++i) {
      request.residuals =
          wanted.residuals == nullptr ? nullptr : wanted.residuals + begin;
      request.scratch_residuals =
          scratch == nullptr ? nullptr : scratch + begin;
      request.jacobian =
          jacobian == nullptr ? nullptr : jacobian->part(static_cast<int>(i));
      CERES_EXT_RETURN_IF_ERROR(rows_[i]->Evaluate(request));
      begin += rows_[i]->num_residuals();
    }
    return {};
  }

  // From the families into the gradient, if it is not null.
  kernels::Status ScatterGradient(double* gradient) {
    if (gradient == nullptr) {
      return {};
    }
    const auto working = problem_->working();
    CERES_EXT_RETURN_IF_ERROR(problem_->SumOverRanks(working.f));
    return problem_->Scatter(working.e, working.f, gradient);
  }

  // Reads the evaluations.
  kernels::Status Finish(double* cost) {
    kernels::Evaluation sum;
    for (const auto& rows : rows_) {
      kernels::Evaluation evaluation;
      CERES_EXT_RETURN_IF_ERROR(rows->Read(&evaluation));
      sum.cost += evaluation.cost;
      sum.num_not_finite += evaluation.num_not_finite;
    }
    *cost = sum.cost;
    if (sum.num_not_finite > 0) {
      return {kernels::StatusCode::kNumericalFailure,
              "Residual or Jacobian of " + std::to_string(sum.num_not_finite) +
                  " observations is not finite: a point is at the optical "
                  "centre of a camera, or a parameter is out of range."};
    }
    if (!std::isfinite(sum.cost)) {
      return {kernels::StatusCode::kNumericalFailure,
              "Accumulated cost = " + std::to_string(sum.cost) +
                  " is not a finite number. Evaluation failed."};
    }
    return {};
  }

  kernels::Status PlusOfBlocks(const double* state,
                               const double* delta,
                               double* state_plus_delta) {
    for (const kernels::BlockTableRef* family : plain_families_) {
      CERES_EXT_RETURN_IF_ERROR(kernels::Run(
          kernels::PlusParams{*family, state, delta, state_plus_delta},
          machine()));
    }
    return manifolds_.Plus(state, delta, state_plus_delta);
  }

  kernels::Status PlusByProgram(const double* state,
                                const double* delta,
                                double* state_plus_delta) {
    std::string what;
    return Succeeds(
               [&] {
                 return host_program_->Plus(state, delta, state_plus_delta);
               },
               &what)
               ? kernels::Status()
               : kernels::Status(kernels::StatusCode::kNumericalFailure,
                                 "Manifold::Plus " + what);
  }

  const MachineProblem<Machine>* problem_ = nullptr;
  HostProgram* host_program_ = nullptr;
  std::vector<std::unique_ptr<BatchEvaluator>> rows_;
  // By rows or by the program.
  bool needs_host_state_ = false;
  PlusBy plus_by_ = PlusBy::kSum;
  // Families without manifolds, and the blocks of others.
  std::vector<const kernels::BlockTableRef*> plain_families_;
  BlockManifolds<Machine> manifolds_;
  // StateBounds, and where they are.
  kernels::ClampToBoundsParams clamp_;
  typename Machine::template Buffer<int32_t> bounded_;
  Buffer lower_;
  Buffer upper_;

  Buffer scratch_residuals_;
  // The state, where it isn't on the host.
  kernels::HostBuffer<double> host_state_;
  double* borrowed_residuals_ = nullptr;
  // The Jacobian of the problem, and its last evaluation.
  Linearization<Machine>* linearization_ = nullptr;
  EvaluationWanted<Machine> of_linearization_;
  // Null, or for gradients without a Jacobian alone.
  std::unique_ptr<Linearization<Machine>> own_linearization_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_SESSION_PROBLEM_EVALUATOR_H_
