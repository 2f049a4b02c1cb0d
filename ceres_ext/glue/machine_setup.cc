// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/glue/machine_setup.h"

#include <type_traits>
#include <utility>

#include "ceres_ext/glue/batch_shape.h"
#include "ceres_ext/glue/evaluator.h"
#include "ceres_ext/glue/linear_solver.h"
#include "ceres_ext/glue/machines.h"
#include "ceres_ext/glue/row_linear_solver.h"
#include "ceres_ext/glue/trust_region_vectors.h"
#include "cuda_kernels/model/jacobian_source.h"
#include "cuda_kernels/structure/row_index.h"

namespace ceres_ext {
namespace {

using ceres::internal::PreprocessedProblem;
using kernels::Status;

// Tiles for the Jacobian that the solve will use. They are cut before the
// columns of a camera are known, and do not depend on them.
template <typename Machine>
typename kernels::RowIndex<Machine>::Options IndexOptions(
    const Options& options) {
  if constexpr (kIsHost<Machine>) {
    static_cast<void>(options);
    return {};
  } else {
    using IndexOptions = typename kernels::RowIndex<Machine>::Options;
    const bool explicit_w = options.w_product == W_EXPLICIT;
    if (options.jacobian == JACOBIAN_STORED) {
      return IndexOptions::template For<
          kernels::
              StoredJacobian<double, kernels::BalShape<9>, Machine::kLayout>>(
          explicit_w);
    }
    return options.precision == PRECISION_MIXED
               ? IndexOptions::template For<
                     kernels::RecomputedJacobian<float, 9>>(explicit_w)
               : IndexOptions::template For<
                     kernels::RecomputedJacobian<double, 9>>(explicit_w);
  }
}

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

  std::string device() const final { return device_; }
  int64_t copied_bytes() const final { return machine_->copied_bytes(); }
  int num_points() const final { return shape_.points().NumVarying(); }
  int num_cameras() const final { return shape_.cameras().NumVarying(); }
  std::string schur_structure() const final {
    return "2," + std::to_string(shape_.points().MaxTangentSize()) + "," +
           std::to_string(shape_.cameras().MaxTangentSize());
  }

  Status SetupBatch(const BatchStructure& batch,
                    PreprocessedProblem* pp,
                    SolveRecord* record,
                    BatchObjects* objects) final {
    CERES_EXT_RETURN_IF_ERROR(
        shape_.Setup(pp->reduced_program->NumEffectiveParameters(),
                     pp->reduced_program->NumParameters(),
                     batch,
                     IndexOptions<Machine>(options_),
                     host_context(),
                     machine_.get()));
    const bool nine = batch.cameras.padded_size == 9;
    if constexpr (!kIsHost<Machine>) {
      if (options_.precision == PRECISION_MIXED) {
        return nine ? CreateObjects<float, 9>(batch, pp, record, objects)
                    : CreateObjects<float, 10>(batch, pp, record, objects);
      }
    }
    return nine ? CreateObjects<double, 9>(batch, pp, record, objects)
                : CreateObjects<double, 10>(batch, pp, record, objects);
  }

  std::unique_ptr<ceres::internal::LinearSolver> CreateRowLinearSolver(
      const PreprocessedProblem& pp,
      SolveRecord* record,
      std::string* reason) final {
    return ceres_ext::CreateRowLinearSolver(options_,
                                            pp.linear_solver_options,
                                            *pp.reduced_program,
                                            IndexOptions<Machine>(options_),
                                            host_context(),
                                            machine_.get(),
                                            record,
                                            reason);
  }

 private:
  kernels::HostContext* host_context() {
    if constexpr (kIsHost<Machine>) {
      return machine_->context();
    } else {
      return host_context_.get();
    }
  }

  template <typename T, int C>
  Status CreateObjects(const BatchStructure& batch,
                       PreprocessedProblem* pp,
                       SolveRecord* record,
                       BatchObjects* objects) {
    Status status;
    auto evaluator = BatchEvaluator<Machine, T, C>::Create(
        options_.jacobian, batch, &shape_, pp, &status);
    CERES_EXT_RETURN_IF_ERROR(status);
    ceres::internal::LinearSolver::Options linear_solver_options;
    linear_solver_options.type = pp->options.linear_solver_type;
    linear_solver_options.preconditioner_type = pp->options.preconditioner_type;
    linear_solver_options.min_num_iterations =
        pp->options.min_linear_solver_iterations;
    linear_solver_options.max_num_iterations =
        pp->options.max_linear_solver_iterations;
    auto linear_solver = BatchLinearSolver<Machine, T, C>::Create(
        options_, linear_solver_options, &shape_, record, &status);
    CERES_EXT_RETURN_IF_ERROR(status);
    auto vectors = std::make_shared<LoopVectors<Machine>>(machine_.get());
    CERES_EXT_RETURN_IF_ERROR(
        vectors->Setup(evaluator->NumParameters(),
                       evaluator->NumEffectiveParameters(),
                       evaluator->NumResiduals()));
    // A device counts what is on it.
    record->memory_bytes = kIsHost<Machine>
                               ? shape_.bytes() + evaluator->bytes() +
                                     linear_solver->bytes() + vectors->bytes()
                               : machine_->bytes();
    objects->evaluator = std::move(evaluator);
    objects->linear_solver = std::move(linear_solver);
    objects->vectors = std::move(vectors);
    return status;
  }

  const Options options_;
  const std::string device_;
  // Before the shape, whose buffers are freed through it.
  const std::unique_ptr<Machine> machine_;
  const std::unique_ptr<kernels::HostContext> host_context_;
  BatchShape<Machine> shape_;
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
