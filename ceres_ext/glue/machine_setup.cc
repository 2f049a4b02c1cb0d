// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/glue/machine_setup.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "ceres/program.h"
#include "ceres_ext/glue/batch_rows.h"
#include "ceres_ext/glue/device_choice.h"
#include "ceres_ext/glue/evaluator.h"
#include "ceres_ext/glue/linear_solver.h"
#include "ceres_ext/glue/machines.h"
#include "ceres_ext/glue/memory_forecast.h"
#include "ceres_ext/glue/observation_evaluator.h"
#include "ceres_ext/glue/program_blocks.h"
#include "ceres_ext/glue/trust_region_vectors.h"
#include "cuda_kernels/machine/cuda_process.h"
#include "cuda_kernels/structure/row_index.h"

namespace ceres_ext {
namespace {

using ceres::internal::PreprocessedProblem;
using kernels::Status;

// A machine, and the index that it has made of observations. The machine goes
// last.
template <typename Machine>
struct KeptMachine {
  KeptMachine() = default;
  KeptMachine(const KeptMachine&) = delete;
  KeptMachine& operator=(const KeptMachine&) = delete;
  // A device may have been reset since.
  ~KeptMachine() {
    [[maybe_unused]] const KeepCurrentDevice<Machine> keep;
    if constexpr (!kIsHost<Machine>) {
      if (machine != nullptr) {
        machine->ForgetIfLost();
      }
    }
    index = {};
    machine.reset();
  }

  // What it was made for.
  Options options;
  int num_threads = 0;
  std::unique_ptr<Machine> machine;
  KeptIndex<Machine> index;
};

template <typename Machine>
class MachineSetupImpl final : public MachineSetup {
 public:
  // host_context: threads for what is put in order on the host, of the machine
  // or of somebody who outlives this object.
  MachineSetupImpl(const Options& options,
                   std::string device,
                   std::shared_ptr<KeptMachine<Machine>> kept,
                   kernels::HostContext* host_context)
      : options_(options),
        device_(std::move(device)),
        kept_(std::move(kept)),
        machine_(kept_->machine.get()),
        host_context_(host_context) {}

  int64_t copied_bytes() const final { return machine_->copied_bytes(); }

  Status Download(int64_t n, const double* x, double* host_x) final {
    const CurrentMachine<Machine> current(machine_);
    return current.status().ok() ? machine_->Download(n, x, host_x)
                                 : current.status();
  }

  bool IsAlive() const final {
    [[maybe_unused]] const KeepCurrentDevice<Machine> keep;
    if constexpr (!kIsHost<Machine>) {
      return machine_->context()->IsAlive();
    }
    return true;
  }

  Status SetupProgram(ProgramStructure* structure,
                      PreprocessedProblem* pp,
                      Failure* failure,
                      Summary* summary,
                      ProgramObjects* objects) final {
    const CurrentMachine<Machine> current(machine_);
    CERES_EXT_RETURN_IF_ERROR(current.status());
    if constexpr (!kIsHost<Machine>) {
      // What the set-up frees goes back to the device.
      machine_->context()->KeepMemory(false);
      machine_->context()->ResetPeak();
    }
    summary->device = device_;
    summary->memory_forecast_bytes = 0;
    summary->num_host_losses = 0;
    summary->host_loss_type.clear();
    ceres::internal::Program* program = pp->reduced_program.get();
    objects->schur_structure = SchurStructure(*structure);
    // Without elimination, or without blocks, there is nothing to merge.
    const bool merge_blocks =
        options_.preconditioner_blocks == PRECONDITIONER_BLOCKS_MERGED &&
        pp->options.linear_solver_type == ceres::ITERATIVE_SCHUR &&
        !pp->options.use_explicit_schur_complement &&
        (pp->options.preconditioner_type == ceres::JACOBI ||
         pp->options.preconditioner_type == ceres::SCHUR_JACOBI);
    Options options = options_;
    // S as a matrix takes recomputed blocks of observations that are by
    // themselves alone.
    const bool wants_stored =
        NeedsSchurMatrix(pp->options) && (structure->observations.size() != 1 ||
                                          structure->num_other_rows() > 0);
    if (wants_stored && options.jacobian == JACOBIAN_RECOMPUTED) {
      objects->notes.insert(
          "the Jacobian is stored, since the Schur complement as a matrix is "
          "formed of a recomputed one only of observations of one kind without "
          "other residual blocks");
    }
    if (wants_stored) {
      options.jacobian = JACOBIAN_STORED;
    } else if (options.jacobian == JACOBIAN_AUTO) {
      options.jacobian =
          RecomputesFaster() && WhyObservationsAreStored(*structure).empty()
              ? JACOBIAN_RECOMPUTED
              : JACOBIAN_STORED;
    } else if (options.jacobian == JACOBIAN_RECOMPUTED) {
      const std::string why_stored = WhyObservationsAreStored(*structure);
      if (!why_stored.empty()) {
        return {kernels::StatusCode::kUnsupported,
                "jacobian RECOMPUTED takes " + why_stored};
      }
    }
    options.model_cost_tolerance = std::max(0.0, options.model_cost_tolerance);
    std::vector<std::string> why_no_form;
    if (structure->num_other_rows() > 0) {
      for (const BatchModel* model : structure->models) {
        why_no_form.push_back(WhyNoForm(*model, machine_));
        const bool is_on_host = kIsHost<Machine> || !why_no_form.back().empty();
        // A library without optimisation is slow itself.
        if (is_on_host && model->is_unoptimized && !kIsUnoptimized) {
          objects->notes.insert(
              "cost functions of the program are compiled without "
              "optimisation, "
              "which makes them slow; compile it with -O2 "
              "(CMAKE_BUILD_TYPE=Release)");
        }
      }
    }
    bool recomputed_views = false;
    if (options.jacobian == JACOBIAN_RECOMPUTED && !why_no_form.empty()) {
      const std::string why_stored = WhyStored(
          *structure, why_no_form, machine_, &structure->views.columns);
      recomputed_views = why_stored.empty();
      if (!recomputed_views) {
        objects->notes.insert(
            "the Jacobian of users' cost functions is stored, since " +
            why_stored);
      }
    }
    ceres::internal::LinearSolver::Options linear_solver_options;
    linear_solver_options.type = pp->options.linear_solver_type;
    linear_solver_options.preconditioner_type = pp->options.preconditioner_type;
    linear_solver_options.min_num_iterations =
        pp->options.min_linear_solver_iterations;
    linear_solver_options.max_num_iterations =
        pp->options.max_linear_solver_iterations;
    linear_solver_options.use_spse_initialization =
        pp->options.use_spse_initialization;
    linear_solver_options.max_num_spse_iterations =
        pp->options.max_num_spse_iterations;
    linear_solver_options.spse_tolerance = pp->options.spse_tolerance;
    linear_solver_options.use_explicit_schur_complement =
        pp->options.use_explicit_schur_complement;
    linear_solver_options.use_mixed_precision_solves =
        pp->options.use_mixed_precision_solves;
    linear_solver_options.max_num_refinement_iterations =
        pp->options.max_num_refinement_iterations;
    const bool has_host_vectors =
        kIsHost<Machine> && structure->caller_state == nullptr;
    const bool keeps_best =
        !has_host_vectors && !pp->options.update_state_every_iteration;
    MemoryForecast forecast;
    if constexpr (!kIsHost<Machine>) {
      ForecastInput of_solve;
      of_solve.structure = structure;
      of_solve.recomputed = options.jacobian == JACOBIAN_RECOMPUTED;
      of_solve.recomputed_views = recomputed_views;
      of_solve.mixed = options.precision == PRECISION_MIXED;
      of_solve.index_is_kept = kept_->index.row_index != nullptr;
      of_solve.why_no_form = why_no_form;
      of_solve.solver = ToInexactSolverOptions(options, linear_solver_options);
      of_solve.keeps_best = keeps_best;
      of_solve.host_context = host_context_;
      forecast = ForecastMemory(of_solve);
      int64_t of_schur = 0;
      // A sparse one is known later.
      const solver::Factorization how = of_solve.solver.factorization;
      if (how == solver::Factorization::kDense ||
          (how == solver::Factorization::kAuto &&
           !WhyNoFactorization(SCHUR_FACTORIZATION_SPARSE).empty())) {
        int64_t n = 0;
        for (const BlockTable& table : structure->f) {
          n += table.NumColumns();
        }
        of_schur = 8 * n * n;
      }
      CERES_EXT_RETURN_IF_ERROR(machine_->context()->CheckLimit(
          Machine::kOwnBytes + forecast.blocks_at_least + forecast.rest +
          of_schur));
    }
    CERES_EXT_RETURN_IF_ERROR(
        program_blocks_.Setup(merge_blocks,
                              structure,
                              options.jacobian == JACOBIAN_RECOMPUTED,
                              options.precision == PRECISION_MIXED,
                              &kept_->index,
                              host_context_,
                              machine_));
    if constexpr (!kIsHost<Machine>) {
      summary->memory_forecast_bytes = std::max(
          machine_->context()->peak_bytes(), machine_->bytes() + forecast.rest);
      CERES_EXT_RETURN_IF_ERROR(
          machine_->context()->CheckLimit(summary->memory_forecast_bytes));
    }
    objects->num_blocks = {NumVarying(program_blocks_.e()),
                           NumVarying(program_blocks_.f())};
    if (objects->num_blocks.back() == 0) {
      objects->num_blocks.pop_back();  // Ceres leaves out what is empty.
    }
    std::vector<std::unique_ptr<RowsEvaluator>> rows;
    for (size_t i = 0; i < structure->observations.size(); ++i) {
      CERES_EXT_RETURN_IF_ERROR(CreateObservationEvaluator(
          options,
          structure->observations[i],
          &program_blocks_.observations(static_cast<int>(i)),
          program_blocks_.blocks(),
          host_context_,
          summary,
          &rows.emplace_back()));
    }
    objects->has_float_blocks =
        options.precision == PRECISION_MIXED &&
        (!structure->observations.empty() ||
         (program_blocks_.views() != nullptr && !recomputed_views));
    const BatchRowsInput<Machine> input = {structure,
                                           &program_blocks_,
                                           host_context_,
                                           summary,
                                           why_no_form,
                                           &objects->notes,
                                           options.precision == PRECISION_MIXED,
                                           recomputed_views};
    if (program_blocks_.views() != nullptr) {
      CERES_EXT_RETURN_IF_ERROR(CreateViewRows(input, &rows.emplace_back()));
    }
    if (program_blocks_.general_rows() != nullptr) {
      CERES_EXT_RETURN_IF_ERROR(CreateGeneralRows(input, &rows.emplace_back()));
    }
    for (const auto& part : rows) {
      objects->num_host_rows += part->num_host_rows();
    }
    auto evaluator = std::make_unique<ProgramEvaluator<Machine>>(
        &program_blocks_,
        structure->caller_state != nullptr,
        pp,
        host_context_,
        failure);
    CERES_EXT_RETURN_IF_ERROR(evaluator->Setup(std::move(rows)));
    auto linear_solver =
        std::make_unique<ProgramLinearSolver<Machine>>(&program_blocks_,
                                                       evaluator->jacobian(),
                                                       program,
                                                       structure->caller_state,
                                                       failure,
                                                       summary);
    CERES_EXT_RETURN_IF_ERROR(
        linear_solver->Setup(options, recomputed_views, linear_solver_options));
    auto vectors = std::make_shared<LoopVectors<Machine>>(
        machine_, structure->caller_state, host_context_, failure);
    CERES_EXT_RETURN_IF_ERROR(
        vectors->Setup({evaluator->NumParameters(),
                        evaluator->NumEffectiveParameters(),
                        evaluator->NumResiduals(),
                        keeps_best,
                        objects->has_float_blocks},
                       evaluator->scratch_residuals()));
    if constexpr (!kIsHost<Machine>) {
      // So does what the solve before had and this one has not asked for; what
      // it has taken serves the next one.
      machine_->context()->ReleaseKeptMemory();
      machine_->context()->KeepMemory(true);
    }
    summary->memory_bytes = PeakBytes();
    summary->num_host_manifolds = evaluator->num_host_manifolds();
    summary->host_manifold_type = evaluator->host_manifold_type();
    objects->evaluator = std::move(evaluator);
    objects->linear_solver = std::move(linear_solver);
    objects->vectors = std::move(vectors);
    return {};
  }

 private:
  // WhyNotRecomputed of the first observations for which there is a reason.
  std::string WhyObservationsAreStored(
      const ProgramStructure& structure) const {
    for (const ObservationRows& rows : structure.observations) {
      const std::string why = WhyNotRecomputed(
          rows, structure.e[0], structure.num_other_rows() > 0, host_context_);
      if (!why.empty()) {
        return why;
      }
    }
    return "";
  }
  bool RecomputesFaster() const {
    if constexpr (kIsHost<Machine>) {
      return false;  // On the host it takes twice the time.
    } else {
      return RecomputedIsFaster(
          options_.precision,
          kernels::FloatToDoubleRatio(machine_->context()->device()));
    }
  }

  int64_t PeakBytes() const {
    if constexpr (kIsHost<Machine>) {
      return machine_->bytes();
    } else {
      return machine_->context()->peak_bytes();
    }
  }

  static int NumVarying(const std::vector<FamilyTable<Machine>>& families) {
    int sum = 0;
    for (const auto& family : families) {
      sum += family.table().NumVarying();
    }
    return sum;
  }

  // Sizes of residuals, of eliminated and of other blocks in the rows that have
  // an eliminated block, as Ceres detects them; "d" where they differ.
  static std::string SchurStructure(const ProgramStructure& structure) {
    std::set<int> residuals;
    std::set<int> e;
    std::set<int> f;
    if (structure.num_observations() + structure.views.size() > 0) {
      residuals.insert(2);
      structure.e[0].InsertTangentSizes(&e);
    }
    for (const ObservationRows& rows : structure.observations) {
      structure.f[rows.camera_family].InsertTangentSizes(&f);
    }
    for (const std::vector<int32_t>& view : structure.views.blocks) {
      for (const int32_t b : view) {
        f.insert(structure.rows->block(b).tangent_size);
      }
    }
    for (const int32_t i : structure.general_rows) {
      std::set<int> eliminated;
      std::set<int> others;
      for (int j = 0; j < structure.rows->NumBlocks(i); ++j) {
        const int32_t block = structure.rows->Block(i, j).index;
        if (block != BlockOfRow::kConstant) {
          (structure.is_eliminated[block] != 0 ? eliminated : others)
              .insert(structure.rows->block(block).tangent_size);
        }
      }
      if (!eliminated.empty()) {
        residuals.insert(structure.rows->NumResiduals(i));
        e.merge(eliminated);
        f.merge(others);
      }
    }
    std::string text;
    for (std::set<int>* sizes : {&residuals, &e, &f}) {
      sizes->erase(0);  // Constant blocks.
      text += (text.empty() ? "" : ",") +
              (sizes->size() > 1
                   ? std::string("d")
                   : std::to_string(sizes->empty() ? 0 : *sizes->begin()));
    }
    return text;
  }

  const Options options_;
  const std::string device_;
  // Before the blocks, whose buffers are freed through it.
  const std::shared_ptr<KeptMachine<Machine>> kept_;
  Machine* const machine_;
  kernels::HostContext* const host_context_;
  ProgramBlocks<Machine> program_blocks_;
};

// The machine that was kept, if it is such a one; else null.
template <typename Machine>
std::shared_ptr<KeptMachine<Machine>> Find(const std::shared_ptr<void>& kept,
                                           const Options& options,
                                           int num_threads) {
  auto found = std::static_pointer_cast<KeptMachine<Machine>>(kept);
  return found != nullptr && found->num_threads == num_threads &&
                 found->options.cuda_device == options.cuda_device &&
                 found->options.cuda_stream == options.cuda_stream &&
                 found->options.cuda_memory_limit_bytes ==
                     options.cuda_memory_limit_bytes &&
                 found->options.cuda_graph == options.cuda_graph
             ? found
             : nullptr;
}

// A template, so that a build without CUDA leaves it out.
template <typename Machine>
Status CreateDeviceSetup(const Options& options,
                         int num_threads,
                         kernels::HostContext* host_context,
                         std::shared_ptr<void>* kept,
                         std::unique_ptr<MachineSetup>* setup) {
  if constexpr (!kHasCuda) {
    return {kernels::StatusCode::kUnsupported, "this build has no CUDA"};
  } else {
    const kernels::KeepCurrentContext keep;
    auto machine = Find<Machine>(*kept, options, num_threads);
    if (machine == nullptr || !machine->machine->context()->IsAlive()) {
      machine.reset();
      kept->reset();  // Its memory first.
      kernels::CudaContextOptions context_options;
      context_options.device = options.cuda_device;
      context_options.stream = static_cast<cudaStream_t>(options.cuda_stream);
      context_options.memory_limit = options.cuda_memory_limit_bytes;
      machine = std::make_shared<KeptMachine<Machine>>();
      machine->options = options;
      machine->num_threads = num_threads;
      CERES_EXT_RETURN_IF_ERROR(
          Machine::Create(context_options, &machine->machine));
      if (options.cuda_graph == CUDA_GRAPH_ON) {
        machine->machine->EnableLoops();
      } else if (options.cuda_graph == CUDA_GRAPH_AUTO &&
                 !kernels::IsUnderTool()) {
        // Making a graph takes as long as it then saves in so many iterations.
        machine->machine->EnableLoops(/*min_num_iterations=*/100);
      }
      *kept = machine;
    }
    const kernels::CudaContext& context = *machine->machine->context();
    *setup = std::make_unique<MachineSetupImpl<Machine>>(
        options,
        context.device_name() + " (CUDA device " +
            std::to_string(context.device()) + ")",
        std::move(machine),
        host_context);
    return {};
  }
}

}  // namespace

kernels::HostContext* KeptMachines::host_context(int num_threads) {
  if (host_context_ == nullptr || num_threads_ != num_threads) {
    host_context_ = std::make_shared<kernels::HostContext>(num_threads);
    num_threads_ = num_threads;
  }
  return host_context_.get();
}

std::unique_ptr<MachineSetup> CreateHostSetup(const Options& options,
                                              int num_threads,
                                              KeptMachines* kept) {
  using Machine = kernels::HostMachine;
  Options host_options = options;
  // The host computes in double; MethodName says so.
  host_options.precision = PRECISION_DOUBLE;
  auto machine = Find<Machine>(kept->host_, options, num_threads);
  if (machine == nullptr) {
    machine = std::make_shared<KeptMachine<Machine>>();
    machine->options = options;
    machine->num_threads = num_threads;
    machine->machine = std::make_unique<Machine>(num_threads);
    kept->host_ = machine;
  }
  kernels::HostContext* const context = machine->machine->context();
  const int n = context->num_threads();
  const std::string device =
      "host, " + std::to_string(n) + (n == 1 ? " thread" : " threads");
  return std::make_unique<MachineSetupImpl<Machine>>(
      host_options, device, std::move(machine), context);
}

Status CreateCudaSetup(const Options& options,
                       int num_threads,
                       KeptMachines* kept,
                       std::unique_ptr<MachineSetup>* setup) {
  return CreateDeviceSetup<kernels::CudaMachine>(
      options,
      num_threads,
      kept->host_context(num_threads),
      &kept->device_,
      setup);
}

}  // namespace ceres_ext
