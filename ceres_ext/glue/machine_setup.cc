// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/glue/machine_setup.h"

#include <set>
#include <utility>
#include <vector>

#include "ceres/program.h"
#include "ceres/residual_block.h"
#include "ceres_ext/glue/batch_rows.h"
#include "ceres_ext/glue/evaluator.h"
#include "ceres_ext/glue/linear_solver.h"
#include "ceres_ext/glue/machines.h"
#include "ceres_ext/glue/observation_evaluator.h"
#include "ceres_ext/glue/program_blocks.h"
#include "ceres_ext/glue/trust_region_vectors.h"
#include "cuda_kernels/structure/row_index.h"

namespace ceres_ext {
namespace {

using ceres::internal::PreprocessedProblem;
using kernels::Status;

template <typename Machine>
class MachineSetupImpl final : public MachineSetup {
 public:
  // host_context: threads for what is put in order on the host; *machine or
  // this object owns it.
  MachineSetupImpl(const Options& options,
                   std::string device,
                   std::unique_ptr<Machine> machine,
                   std::unique_ptr<kernels::HostContext> host_context)
      : options_(options),
        device_(std::move(device)),
        machine_(std::move(machine)),
        host_context_(std::move(host_context)) {}

  int64_t copied_bytes() const final { return machine_->copied_bytes(); }

  Status SetupProgram(ProgramStructure* structure,
                      PreprocessedProblem* pp,
                      Failure* failure,
                      Summary* summary,
                      ProgramObjects* objects) final {
    summary->device = device_;
    summary->num_host_losses = 0;
    summary->host_loss_type.clear();
    ceres::internal::Program* program = pp->reduced_program.get();
    objects->schur_structure = SchurStructure(*program, *structure);
    // Without elimination, or without blocks, there is nothing to merge.
    const bool merge_blocks =
        options_.preconditioner_blocks == PRECONDITIONER_BLOCKS_MERGED &&
        pp->options.linear_solver_type == ceres::ITERATIVE_SCHUR &&
        (pp->options.preconditioner_type == ceres::JACOBI ||
         pp->options.preconditioner_type == ceres::SCHUR_JACOBI);
    CERES_EXT_RETURN_IF_ERROR(
        program_blocks_.Setup(*program,
                              merge_blocks,
                              structure,
                              kernels::RowIndex<Machine>::Options::For(
                                  options_.jacobian == JACOBIAN_RECOMPUTED,
                                  options_.precision == PRECISION_MIXED),
                              host_context(),
                              machine_.get()));
    objects->num_blocks = {NumVarying(program_blocks_.e()),
                           NumVarying(program_blocks_.f())};
    if (objects->num_blocks.back() == 0) {
      objects->num_blocks.pop_back();  // Ceres leaves out what is empty.
    }
    std::vector<std::unique_ptr<RowsEvaluator>> rows;
    for (size_t i = 0; i < structure->observations.size(); ++i) {
      CERES_EXT_RETURN_IF_ERROR(CreateObservationEvaluator(
          options_,
          structure->observations[i],
          &program_blocks_.observations(static_cast<int>(i)),
          program_blocks_.blocks(),
          host_context(),
          summary,
          &rows.emplace_back()));
    }
    std::vector<std::string> why_no_form;
    if (structure->num_other_rows() > 0) {
      for (const BatchModel* model : structure->models) {
        why_no_form.push_back(WhyNoForm(*model, machine_.get()));
      }
    }
    const BatchRowsInput<Machine> input = {
        program,
        structure,
        &program_blocks_,
        host_context(),
        summary,
        why_no_form,
        &objects->notes,
        options_.precision == PRECISION_MIXED};
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
        &program_blocks_, pp, host_context(), failure);
    CERES_EXT_RETURN_IF_ERROR(evaluator->Setup(std::move(rows)));
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
    auto linear_solver = std::make_unique<ProgramLinearSolver<Machine>>(
        &program_blocks_, evaluator->jacobian(), failure, summary);
    CERES_EXT_RETURN_IF_ERROR(
        linear_solver->Setup(options_, linear_solver_options));
    auto vectors =
        std::make_shared<LoopVectors<Machine>>(machine_.get(), failure);
    CERES_EXT_RETURN_IF_ERROR(
        vectors->Setup(evaluator->NumParameters(),
                       evaluator->NumEffectiveParameters(),
                       evaluator->NumResiduals()));
    summary->memory_bytes = machine_->bytes();
    summary->num_host_manifolds = evaluator->num_host_manifolds();
    summary->host_manifold_type = evaluator->host_manifold_type();
    objects->evaluator = std::move(evaluator);
    objects->linear_solver = std::move(linear_solver);
    objects->vectors = std::move(vectors);
    return {};
  }

 private:
  kernels::HostContext* host_context() {
    if constexpr (kIsHost<Machine>) {
      return machine_->context();
    } else {
      return host_context_.get();
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
  static std::string SchurStructure(const ceres::internal::Program& program,
                                    const ProgramStructure& structure) {
    std::set<int> residuals;
    std::set<int> e;
    std::set<int> f;
    const auto insert = [](const BlockTable& table, std::set<int>* sizes) {
      sizes->insert(table.tangent_size.begin(), table.tangent_size.end());
    };
    if (structure.num_observations() + structure.views.size() > 0) {
      residuals.insert(2);
      insert(structure.e[0], &e);
    }
    for (const ObservationRows& rows : structure.observations) {
      insert(structure.f[rows.camera_family], &f);
    }
    for (const std::vector<int32_t>& view : structure.views.blocks) {
      for (const int32_t b : view) {
        f.insert(program.parameter_blocks()[b]->TangentSize());
      }
    }
    for (const int32_t i : structure.general_rows) {
      const auto& row = *program.residual_blocks()[i];
      std::set<int> eliminated;
      std::set<int> others;
      for (int j = 0; j < row.NumParameterBlocks(); ++j) {
        const auto& block = *row.parameter_blocks()[j];
        if (!block.IsConstant()) {
          (structure.is_eliminated[block.index()] != 0 ? eliminated : others)
              .insert(block.TangentSize());
        }
      }
      if (!eliminated.empty()) {
        residuals.insert(row.NumResiduals());
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
  const std::unique_ptr<Machine> machine_;
  const std::unique_ptr<kernels::HostContext> host_context_;
  ProgramBlocks<Machine> program_blocks_;
};

// A template, so that a build without CUDA leaves it out.
template <typename Machine>
Status CreateDeviceSetup(const Options& options,
                         int num_threads,
                         std::unique_ptr<MachineSetup>* setup) {
  if constexpr (!kHasCuda) {
    return {kernels::StatusCode::kUnsupported, "this build has no CUDA"};
  } else {
    kernels::CudaContextOptions context_options;
    context_options.device = options.cuda_device;
    context_options.stream = static_cast<cudaStream_t>(options.cuda_stream);
    context_options.memory_limit = options.cuda_memory_limit_bytes;
    std::unique_ptr<Machine> machine;
    CERES_EXT_RETURN_IF_ERROR(Machine::Create(context_options, &machine));
    if (options.cuda_graph) {
      machine->EnableLoops();
    }
    const std::string device =
        machine->context()->device_name() + " (CUDA device " +
        std::to_string(machine->context()->device()) + ")";
    *setup = std::make_unique<MachineSetupImpl<Machine>>(
        options,
        device,
        std::move(machine),
        std::make_unique<kernels::HostContext>(num_threads));
    return {};
  }
}

}  // namespace

std::unique_ptr<MachineSetup> CreateHostSetup(const Options& options,
                                              int num_threads) {
  Options host_options = options;
  // The host computes in double; MethodName says so.
  host_options.precision = PRECISION_DOUBLE;
  auto machine = std::make_unique<kernels::HostMachine>(num_threads);
  const std::string device =
      "host, " + std::to_string(machine->context()->num_threads()) + " threads";
  return std::make_unique<MachineSetupImpl<kernels::HostMachine>>(
      host_options, device, std::move(machine), nullptr);
}

Status CreateCudaSetup(const Options& options,
                       int num_threads,
                       std::unique_ptr<MachineSetup>* setup) {
  return CreateDeviceSetup<kernels::CudaMachine>(options, num_threads, setup);
}

}  // namespace ceres_ext
