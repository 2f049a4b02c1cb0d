// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/under_ceres/machine_solve.h"

#include <optional>
#include <utility>

#include "ceres_ext/session/session.h"
#include "ceres_ext/under_ceres/ceres_program.h"
#include "ceres_ext/under_ceres/loop_vectors.h"
#include "ceres_ext/under_ceres/program_evaluator.h"
#include "ceres_ext/under_ceres/program_linear_solver.h"
#include "ceres_ext/under_ceres/sparse_factorization.h"

namespace ceres_ext {
namespace {

using ceres::internal::PreprocessedProblem;
using kernels::Status;

template <typename Machine>
class MachineSolveImpl final : public MachineSolve {
 public:
  explicit MachineSolveImpl(std::shared_ptr<KeptMachine<Machine>> kept)
      : session_(std::move(kept)) {}

  Status Setup(const SolvePlan& plan,
               ProblemStructure* structure,
               PreprocessedProblem* pp,
               Failure* failure,
               Summary* record,
               ProgramObjects* objects) final {
    using Vectors = LoopVectors<Machine>;
    typename Vectors::Sizes sizes;
    sizes.num_parameters = structure->num_parameters;
    sizes.num_effective_parameters = structure->num_columns;
    sizes.num_residuals = structure->num_residuals;
    sizes.keeps_best = plan.keeps_best;
    sizes.is_monotonic = !pp->options.use_nonmonotonic_steps;
    sizes.searches = structure->is_constrained &&
                     pp->options.max_num_line_search_step_size_iterations > 0;
    sizes.is_dogleg = pp->options.trust_region_strategy_type == ceres::DOGLEG;
    sizes.is_subspace =
        sizes.is_dogleg && pp->options.dogleg_type == ceres::SUBSPACE_DOGLEG;
    sizes.own_parameters = structure->own_state;
    sizes.own_effective_parameters = structure->own_columns;
    SessionSetup setup;
    setup.communicator = plan.communicator;
    setup.may_want_gradient =
        sizes.searches &&
        pp->options.line_search_interpolation_type == ceres::CUBIC;
    setup.caller_bytes = [sizes](bool has_scratch) {
      return Vectors::NumBytes(sizes, /*shares=*/true, has_scratch);
    };
    record_ = record;
    // The Program of arrays is a shell without their blocks.
    if (structure->caller_state == nullptr) {
      setup.host_program =
          &program_.emplace(pp->reduced_program.get(), session_.host_context());
    }
    if (kIsHost<Machine> && plan.step.may_factorize()) {
      setup.sparse_factorization = CreateSparseFactorization(pp->options);
    }
    CERES_EXT_RETURN_IF_ERROR(session_.Setup(plan, setup, structure, record));
    if (objects == nullptr) {
      return {};
    }
    auto vectors = std::make_shared<Vectors>(session_.machine(),
                                             session_.caller_state(),
                                             session_.host_context(),
                                             session_.ranks(),
                                             failure);
    auto evaluator = std::make_unique<ProgramEvaluator<Machine>>(
        &session_, vectors.get(), failure);
    auto linear_solver = std::make_unique<ProgramLinearSolver<Machine>>(
        &session_, evaluator->jacobian(), failure);
    // Dogleg computes with a step as soon as it is there.
    if (session_.ranks() == nullptr && !sizes.is_dogleg) {
      linear_solver->QueueSteps();
      vectors->SetFinishStep(
          [solver = linear_solver.get()] { return solver->FinishStep(); });
    }
    sizes.nan_fails = session_.has_float_blocks();
    {
      const CurrentMachine<Machine> current(session_.machine());
      CERES_EXT_RETURN_IF_ERROR(current.status());
      CERES_EXT_RETURN_IF_ERROR(
          vectors->Setup(sizes, session_.scratch_residuals()));
      session_.BorrowResiduals(vectors->model_residuals());
    }
    session_.FinishSetup();
    objects->evaluator = std::move(evaluator);
    objects->linear_solver = std::move(linear_solver);
    objects->vectors = std::move(vectors);
    return {};
  }

  Status ComputeCovariance(const CovarianceWanted& wanted,
                           CovarianceFound* found) final {
    return ComputeCovarianceBlocks(wanted, *record_, &session_, found);
  }

  Status FindRunawayResiduals(std::vector<RunawayResidual>* worst) final {
    return session_.FindRunawayResiduals(worst);
  }

  int64_t copied_bytes() const final { return session_.copied_bytes(); }
  bool IsAlive() const final { return session_.IsAlive(); }
  bool has_float_blocks() const final { return session_.has_float_blocks(); }
  const std::set<std::string>& notes() const final { return session_.notes(); }
  std::vector<int> NumBlocks() const final { return session_.NumBlocks(); }
  int64_t num_host_rows() const final {
    return session_.evaluator().num_host_rows();
  }

 private:
  std::optional<CeresProgram> program_;
  Session<Machine> session_;
  const Summary* record_ = nullptr;
};

}  // namespace

template <typename Machine>
std::unique_ptr<MachineSolve> CreateMachineSolve(
    std::shared_ptr<KeptMachine<Machine>> kept) {
  return std::make_unique<MachineSolveImpl<Machine>>(std::move(kept));
}

#define CERES_EXT_INSTANTIATE(Machine)                       \
  template std::unique_ptr<MachineSolve> CreateMachineSolve( \
      std::shared_ptr<KeptMachine<Machine>> kept);
CERES_EXT_FOR_EACH_MACHINE(CERES_EXT_INSTANTIATE)
#undef CERES_EXT_INSTANTIATE

}  // namespace ceres_ext
