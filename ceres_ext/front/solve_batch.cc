// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <numeric>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "ceres_ext/base/failure.h"
#include "ceres_ext/base/machines.h"
#include "ceres_ext/batch.h"
#include "ceres_ext/front/window_packer.h"
#include "ceres_ext/session/idle_machines.h"
#include "ceres_ext/session/kept_machines.h"
#include "ceres_ext/solve.h"
#include "ceres_ext/solver/window/window_host.h"
#include "ceres_ext/under_ceres/solve_once.h"
#include "cuda_kernels/machine/host_context.h"
#ifdef CERES_EXT_WITH_CUDA
#include "ceres_ext/solver/window/window_cuda.h"
#endif

namespace ceres_ext {
namespace {

using kernels::Status;
using Residuals = ArrayProblem::Residuals;

double Now() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Adds the seconds of its life.
class Stopwatch {
 public:
  explicit Stopwatch(double* seconds) : seconds_(seconds), start_(Now()) {}
  ~Stopwatch() { *seconds_ += Now() - start_; }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  double* const seconds_;
  const double start_;
};

// Of options that windows are not solved with, the first; empty: they are.
std::string WhyNoWindows(const ceres::Solver::Options& options,
                         const Options& ext_options) {
  if (!ext_options.enabled) {
    return "Options::enabled is false";
  }
  if (options.minimizer_type != ceres::TRUST_REGION) {
    return "minimizer_type is LINE_SEARCH";
  }
  if (options.trust_region_strategy_type != ceres::LEVENBERG_MARQUARDT) {
    return "trust_region_strategy_type is DOGLEG";
  }
  const bool is_exact = options.linear_solver_type != ceres::CGNR &&
                        options.linear_solver_type != ceres::ITERATIVE_SCHUR;
  if (ext_options.linear_solver == LINEAR_SOLVER_AS_GIVEN
          ? !is_exact
          : ext_options.linear_solver != LINEAR_SOLVER_AUTO) {
    return "the linear solver is iterative";
  }
  if (ext_options.precision != PRECISION_DOUBLE) {
    return "windows are solved in double precision";
  }
  if (options.use_nonmonotonic_steps) {
    return "use_nonmonotonic_steps is true";
  }
  if (options.use_inner_iterations) {
    return "use_inner_iterations is true";
  }
  if (options.use_mixed_precision_solves) {
    return "use_mixed_precision_solves is true";
  }
  if (options.linear_solver_ordering != nullptr) {
    return "linear_solver_ordering is given";
  }
  if (!options.callbacks.empty() || options.update_state_every_iteration) {
    return "there are callbacks";
  }
  if (options.check_gradients ||
      !options.trust_region_minimizer_iterations_to_dump.empty()) {
    return "gradients are checked or problems are dumped";
  }
  if (options.minimizer_progress_to_stdout) {
    return "minimizer_progress_to_stdout is true";
  }
  if (options.max_solver_time_in_seconds <
      ceres::Solver::Options().max_solver_time_in_seconds) {
    return "max_solver_time_in_seconds is limited";
  }
  return "";
}

TrustRegionOptions OptionsOfRegion(const ceres::Solver::Options& options) {
  TrustRegionOptions region;
  region.max_num_iterations = options.max_num_iterations;
  region.max_num_consecutive_invalid_steps =
      options.max_num_consecutive_invalid_steps;
  region.initial_radius = options.initial_trust_region_radius;
  region.max_radius = options.max_trust_region_radius;
  region.min_radius = options.min_trust_region_radius;
  region.min_relative_decrease = options.min_relative_decrease;
  region.min_lm_diagonal = options.min_lm_diagonal;
  region.max_lm_diagonal = options.max_lm_diagonal;
  region.function_tolerance = options.function_tolerance;
  region.gradient_tolerance = options.gradient_tolerance;
  region.parameter_tolerance = options.parameter_tolerance;
  region.jacobi_scaling = options.jacobi_scaling;
  return region;
}

std::string Format(const char* format, double a, double b) {
  char text[256];
  std::snprintf(text, sizeof(text), format, a, b);
  return text;
}

// Ceres's sentences for what ends a window.
std::string MessageOf(const TrustRegion& region,
                      const TrustRegionOptions& options) {
  switch (region.end()) {
    case TrustRegionEnd::kInvalidSteps:
      return "Number of consecutive invalid steps more than "
             "Solver::Options::max_num_consecutive_invalid_steps: " +
             std::to_string(options.max_num_consecutive_invalid_steps);
    case TrustRegionEnd::kMaxIterations:
      return "Maximum number of iterations reached. Number of iterations: " +
             std::to_string(region.iteration()) + ".";
    case TrustRegionEnd::kGradientTolerance:
      return Format("Gradient tolerance reached. Gradient max norm: %e <= %e",
                    region.end_value(),
                    options.gradient_tolerance);
    case TrustRegionEnd::kMinRadius:
      return Format(
          "Minimum trust region radius reached. Trust region radius: %e <= %e",
          region.end_value(),
          options.min_radius);
    case TrustRegionEnd::kParameterTolerance:
      return Format(
          "Parameter tolerance reached. Relative step_norm: %e <= %e.",
          region.end_value(),
          options.parameter_tolerance);
    case TrustRegionEnd::kFunctionTolerance:
      return Format("Function tolerance reached. |cost_change|/cost: %e <= %e",
                    region.end_value(),
                    options.function_tolerance);
    case TrustRegionEnd::kNone:
    case TrustRegionEnd::kInitialEvaluation:
    case TrustRegionEnd::kEvaluation:
      break;
  }
  return "The window was not solved.";
}

void Summarize(const TrustRegion& region,
               const TrustRegionOptions& options,
               double fixed_cost,
               ProblemSummary* summary) {
  const TrustRegionEnd end = region.end();
  summary->termination_type =
      end <= TrustRegionEnd::kInvalidSteps    ? ceres::FAILURE
      : end == TrustRegionEnd::kMaxIterations ? ceres::NO_CONVERGENCE
                                              : ceres::CONVERGENCE;
  summary->message = MessageOf(region, options);
  summary->fixed_cost = fixed_cost;
  summary->initial_cost = region.initial_cost() + fixed_cost;
  summary->final_cost = region.final_cost() + fixed_cost;
  summary->num_successful_steps = region.num_successful_steps();
  summary->num_unsuccessful_steps = region.num_unsuccessful_steps();
  summary->is_window = true;
}

// One problem of a batch as a problem by itself, with arrays of its own except
// for the values of the parameters.
class OneOfBatch {
 public:
  OneOfBatch(const ProblemBatch& batch, int64_t i) {
    const auto& parameters = batch.problem.parameters();
    for (size_t a = 0; a < parameters.size(); ++a) {
      ArrayProblem::Parameters p = parameters[a];
      const int64_t begin = batch.parameter_begin[a][i];
      p.num_blocks = batch.parameter_begin[a][i + 1] - begin;
      p.values += p.values != nullptr ? begin * p.size : 0;
      p.manifolds += p.manifolds != nullptr ? begin : 0;
      p.is_constant += p.is_constant != nullptr ? begin : 0;
      problem_.AddParameters(p);
    }
    const auto& residuals = batch.problem.residuals();
    arrays_.resize(residuals.size());
    for (size_t r = 0; r < residuals.size(); ++r) {
      Add(batch, i, r, &arrays_[r]);
    }
  }

  ArrayProblem* problem() { return &problem_; }

 private:
  struct Arrays {
    std::vector<std::vector<int32_t>> blocks;
    std::vector<double> weights;
    std::vector<char> constants;
    std::vector<ceres::CostFunction*> cost_functions;
  };

  static bool IsActive(const std::vector<const uint8_t*>& flags,
                       size_t array,
                       int64_t k,
                       int64_t size) {
    return flags.empty() || flags[array] == nullptr || k < 0 || k >= size ||
           flags[array][k] != 0;
  }

  void Add(const ProblemBatch& batch, int64_t i, size_t r, Arrays* arrays) {
    Residuals residuals = batch.problem.residuals()[r];
    const size_t num_slots = residuals.blocks.size();
    arrays->blocks.resize(num_slots);
    const auto* const constants = static_cast<const char*>(residuals.constants);
    int64_t n = 0;
    for (int64_t k = batch.residual_begin[r][i];
         k < batch.residual_begin[r][i + 1];
         ++k) {
      bool is_active =
          IsActive(batch.residual_is_active, r, k, residuals.num_blocks);
      for (const ArrayProblem::Index& index : residuals.blocks) {
        is_active =
            is_active &&
            IsActive(batch.parameter_is_active,
                     index.parameters,
                     index.BlockOf(k),
                     batch.problem.parameters()[index.parameters].num_blocks);
      }
      if (!is_active) {
        continue;
      }
      ++n;
      for (size_t b = 0; b < num_slots; ++b) {
        const ArrayProblem::Index& index = residuals.blocks[b];
        arrays->blocks[b].push_back(static_cast<int32_t>(
            index.BlockOf(k) - batch.parameter_begin[index.parameters][i]));
      }
      if (residuals.weights != nullptr) {
        arrays->weights.push_back(residuals.weights[k]);
      }
      if (constants != nullptr) {
        const char* const begin = constants + k * residuals.constants_bytes;
        arrays->constants.insert(
            arrays->constants.end(), begin, begin + residuals.constants_bytes);
      }
      if (residuals.cost_functions != nullptr) {
        arrays->cost_functions.push_back(residuals.cost_functions[k]);
      }
    }
    if (n == 0) {
      return;
    }
    residuals.num_blocks = n;
    for (size_t b = 0; b < num_slots; ++b) {
      residuals.blocks[b].block = arrays->blocks[b].data();
    }
    if (residuals.weights != nullptr) {
      residuals.weights = arrays->weights.data();
    }
    if (constants != nullptr) {
      residuals.constants = arrays->constants.data();
    }
    if (residuals.cost_functions != nullptr) {
      residuals.cost_functions = arrays->cost_functions.data();
    }
    problem_.AddResiduals(residuals);
  }

  ArrayProblem problem_;
  std::vector<Arrays> arrays_;
};

void SolveOther(const ceres::Solver::Options& options,
                const Options& ext_options,
                const ProblemBatch& batch,
                int64_t i,
                ProblemSummary* summary) {
  OneOfBatch one(batch, i);
  Summary of_one;
  Solve(options, ext_options, one.problem(), &of_one);
  summary->termination_type = of_one.termination_type;
  summary->message = of_one.message;
  summary->initial_cost = of_one.initial_cost;
  summary->final_cost = of_one.final_cost;
  summary->fixed_cost = of_one.fixed_cost;
  summary->num_successful_steps = of_one.num_successful_steps;
  summary->num_unsuccessful_steps = of_one.num_unsuccessful_steps;
}

// Bytes that are not set.
class Bytes {
 public:
  void Reserve(int64_t n) {
    if (n > size_) {
      data_.reset(new double[(n + 7) / 8]);
      size_ = n;
    }
  }
  unsigned char* data() {
    return reinterpret_cast<unsigned char*>(data_.get());
  }

 private:
  std::unique_ptr<double[]> data_;
  int64_t size_ = 0;
};

#ifdef CERES_EXT_WITH_CUDA
// The windows of a piece on a device.
class DeviceWindows {
 public:
  // What one launch solves.
  struct Group : WindowGroup {
    WindowKind kind;
    bool has_schur = false;
    std::vector<int64_t> windows;
    WindowGrid grid;
  };

  explicit DeviceWindows(DeviceMachine* machine) : machine_(machine) {}

  // Sends the windows and queues their solution; the host goes on.
  Status Start(const TrustRegionOptions& options,
               const std::vector<PackedWindow>& packed,
               const std::vector<int64_t>& windows,
               const std::vector<kernels::RobustLoss>& losses,
               int64_t input_bytes,
               const unsigned char* inputs,
               int64_t output_bytes) {
    const CurrentMachine<DeviceMachine> current(machine_);
    CERES_EXT_RETURN_IF_ERROR(current.status());
    const std::vector<Group> groups = MakeGroups(packed, windows);
    std::vector<WindowRecord> records;
    int64_t scratch_size = 0;
    for (const Group& group : groups) {
      for (const int64_t i : group.windows) {
        records.push_back(packed[i].record);
      }
      scratch_size = std::max(scratch_size,
                              group.grid.scratch_size * group.grid.num_teams);
    }
    CERES_EXT_RETURN_IF_ERROR(machine_->Upload(losses, &losses_));
    CERES_EXT_RETURN_IF_ERROR(machine_->Upload(records, &records_));
    CERES_EXT_RETURN_IF_ERROR(machine_->Upload(input_bytes, inputs, &inputs_));
    CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(output_bytes, &outputs_));
    CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(scratch_size, &scratch_));
    CERES_EXT_RETURN_IF_ERROR(
        machine_->Allocate(static_cast<int64_t>(groups.size()), &queues_));
    CERES_EXT_RETURN_IF_ERROR(
        machine_->SetZero(queues_.size(), queues_.data()));
    SolveWindowsParams params;
    params.options = options;
    params.losses = losses_.data();
    params.inputs = inputs_.data();
    params.outputs = outputs_.data();
    params.scratch = scratch_.data();
    params.records = records_.data();
    params.queue = queues_.data();
    for (const Group& group : groups) {
      params.has_schur = group.has_schur;
      params.num_windows = group.num_windows;
      params.scratch_size = group.grid.scratch_size;
      CERES_EXT_RETURN_IF_ERROR(SolveWindows(group.kind,
                                             params,
                                             group.grid,
                                             group.num_threads,
                                             group.team_bytes,
                                             machine_->stream()));
      params.records += group.windows.size();
      ++params.queue;
    }
    return {};
  }

  // Waits for the solution and fetches it.
  Status Wait(unsigned char* outputs) {
    const CurrentMachine<DeviceMachine> current(machine_);
    CERES_EXT_RETURN_IF_ERROR(current.status());
    return machine_->Download(outputs_.size(), outputs_.data(), outputs);
  }

 private:
  std::vector<Group> MakeGroups(const std::vector<PackedWindow>& packed,
                                const std::vector<int64_t>& windows) const {
    std::vector<Group> groups;
    for (const int64_t i : windows) {
      const PackedWindow& window = packed[i];
      const WindowCounts& counts = window.record.counts;
      const int num_threads = WindowThreads(counts.num_cameras);
      auto group =
          std::find_if(groups.begin(), groups.end(), [&](const Group& g) {
            return g.kind == window.kind && g.has_schur == window.has_schur &&
                   g.num_threads == num_threads;
          });
      if (group == groups.end()) {
        group = groups.insert(group, Group());
        group->kind = window.kind;
        group->has_schur = window.has_schur;
        group->num_threads = num_threads;
      }
      const int64_t team_size = TeamLayout(window.kind.num_columns,
                                           counts.num_cameras,
                                           counts.chunk_rows,
                                           counts.chunk_words,
                                           window.has_schur)
                                    .size;
      const auto scratch_size = [&](bool is_shared) {
        return WindowScratch(window.kind.camera_size,
                             window.kind.num_columns,
                             counts,
                             window.has_schur,
                             is_shared)
            .size;
      };
      group->team_bytes = std::max<int64_t>(
          group->team_bytes, team_size * static_cast<int64_t>(sizeof(double)));
      group->scratch_size = std::max(group->scratch_size, scratch_size(false));
      group->shared_scratch_size =
          std::max(group->shared_scratch_size, scratch_size(true));
      group->max_chunks = std::max(group->max_chunks, counts.num_chunks);
      ++group->num_windows;
      group->windows.push_back(i);
    }
    // The longest first, so that none begins when others are done.
    for (Group& group : groups) {
      std::stable_sort(group.windows.begin(),
                       group.windows.end(),
                       [&](int64_t a, int64_t b) {
                         return packed[a].record.counts.num_rows >
                                packed[b].record.counts.num_rows;
                       });
      group.grid = ChooseGrid(group.kind,
                              group,
                              machine_->context()->num_multiprocessors(),
                              MaxSharedScratch());
    }
    return groups;
  }

  // In doubles: 512 MB, and at most a quarter of what the machine may hold.
  int64_t MaxSharedScratch() const {
    int64_t size = int64_t{64} << 20;
    while (size > 0 &&
           !machine_->context()
                ->CheckLimit(4 * size * static_cast<int64_t>(sizeof(double)))
                .ok()) {
      size /= 2;
    }
    return size;
  }

  DeviceMachine* const machine_;
  kernels::DeviceBuffer<kernels::RobustLoss> losses_;
  kernels::DeviceBuffer<WindowRecord> records_;
  kernels::DeviceBuffer<unsigned char> inputs_;
  kernels::DeviceBuffer<unsigned char> outputs_;
  kernels::DeviceBuffer<double> scratch_;
  kernels::DeviceBuffer<int32_t> queues_;
};
#endif

class BatchSolve {
 public:
  BatchSolve(const ceres::Solver::Options& options,
             const Options& ext_options,
             const ProblemBatch* batch,
             KeptMachines* machines,
             BatchSummary* summary)
      : options_(options),
        ext_options_(ext_options),
        region_options_(OptionsOfRegion(options)),
        batch_(batch),
        machines_(machines),
        context_(machines->host_context(options.num_threads)),
        packer_(batch),
        summary_(summary) {}

  // What is on a device goes while it is current.
  ~BatchSolve() {
#ifdef CERES_EXT_WITH_CUDA
    const KeepCurrentDevice<DeviceMachine> keep;
    for (Piece& piece : pieces_) {
      piece.on_device.reset();
    }
    second_machine_.reset();
#endif
  }
  BatchSolve(const BatchSolve&) = delete;
  BatchSolve& operator=(const BatchSolve&) = delete;

  // Solves the windows. False where a device was asked for, the host may not
  // replace it, and *error says what is wrong with it.
  bool RunWindows(std::string* error) {
    std::string reason = WhyNoWindows(options_, ext_options_);
    if (reason.empty()) {
      reason = packer_.reason();
    }
    if (!reason.empty()) {
      for (ProblemSummary& problem : summary_->problems) {
        problem.path_reason = reason;
      }
      return true;
    }
    if (!ChooseDevice(error)) {
      return false;
    }
    const double start = Now();
    const int64_t n = batch_->num_problems;
    packed_.resize(n);
    // While a device solves one piece the host packs and sends the next.
    for (int64_t begin = 0, piece = 0; begin < n; ++piece) {
      Piece* const next = &pieces_[piece % 2];
      Finish(next);
      next->begin = begin;
      next->end = EndOfPiece(begin);
      begin = next->end;
      Pack(next);
      if (!StartOnDevice(next)) {
        SolveOnHost(next);
      }
    }
    Finish(&pieces_[0]);
    Finish(&pieces_[1]);
    summary_->window_time_in_seconds =
        Now() - start - summary_->pack_time_in_seconds;
    return true;
  }

  // Solves all others.
  void RunOthers() {
    const Stopwatch time(&summary_->other_time_in_seconds);
    for (int64_t i = 0; i < batch_->num_problems; ++i) {
      if (!summary_->problems[i].is_window) {
        SolveOther(options_, ext_options_, *batch_, i, &summary_->problems[i]);
      }
    }
  }

 private:
  // What is packed, sent and solved at a time.
  static constexpr int64_t kPieceBytes = int64_t{64} << 20;
  static constexpr int64_t kWindowsPerTask = 4;
  // With fewer residual blocks in the batch DEVICE_AUTO is the host.
  static constexpr int64_t kMinDeviceRows = 15000;

  bool ChooseDevice(std::string* error) {
    const std::string host =
        "host, " + std::to_string(options_.num_threads) +
        (options_.num_threads == 1 ? " thread" : " threads");
    summary_->device = host;
    if (ext_options_.device == DEVICE_HOST) {
      return true;
    }
    int64_t num_rows = 0;
    for (const Residuals& residuals : batch_->problem.residuals()) {
      num_rows += residuals.num_blocks;
    }
    if (ext_options_.device == DEVICE_AUTO && num_rows < kMinDeviceRows) {
      summary_->device += " (fewer than " + std::to_string(kMinDeviceRows) +
                          " residual blocks)";
      return true;
    }
    std::shared_ptr<KeptMachines::Device> device;
    const Status status =
        machines_->GetDevice(ext_options_, options_.num_threads, &device);
    if (!status.ok()) {
      if (ext_options_.device == DEVICE_CUDA &&
          ext_options_.fallback == FALLBACK_REFUSE) {
        *error = status.message;
        return false;
      }
      summary_->device = host + " (" + status.message + ")";
      return true;
    }
#ifdef CERES_EXT_WITH_CUDA
    device_ = std::move(device);
    pieces_[0].on_device =
        std::make_unique<DeviceWindows>(device_->machine.get());
    summary_->device = device_->Name();
    MakeSecondMachine();
#endif
    return true;
  }

  // Windows that are packed together.
  struct Piece {
    int64_t begin = 0;
    int64_t end = 0;
    std::vector<int64_t> windows;
    int64_t input_bytes = 0;
    int64_t output_bytes = 0;
    Bytes inputs;
    Bytes outputs;
    bool is_running = false;  // on the device
#ifdef CERES_EXT_WITH_CUDA
    std::unique_ptr<DeviceWindows> on_device;
#endif
  };

#ifdef CERES_EXT_WITH_CUDA
  // A stream for every other piece, where the caller has not given one and does
  // not limit the memory. Without it pieces follow each other.
  void MakeSecondMachine() {
    DeviceMachine* machine = device_->machine.get();
    if (EndOfPiece(0) < batch_->num_problems &&
        ext_options_.cuda_stream == nullptr &&
        ext_options_.cuda_memory_limit_bytes == 0) {
      const KeepCurrentDevice<DeviceMachine> keep;
      kernels::CudaContextOptions options;
      options.device = ext_options_.cuda_device;
      if (DeviceMachine::Create(options, &second_machine_).ok()) {
        machine = second_machine_.get();
      }
    }
    pieces_[1].on_device = std::make_unique<DeviceWindows>(machine);
  }
#endif

  int64_t EndOfPiece(int64_t begin) const {
    const int64_t limit = ext_options_.cuda_memory_limit_bytes;
    const int64_t piece_bytes =
        limit > 0 ? std::min(kPieceBytes, limit / 4) : kPieceBytes;
    int64_t end = begin + 1;
    while (end < batch_->num_problems &&
           packer_.input_begin(end + 1) - packer_.input_begin(begin) <=
               piece_bytes) {
      ++end;
    }
    return end;
  }

  void PackOne(int64_t i, Piece* piece, WindowPacker::Scratch* scratch) {
    ProblemSummary& summary = summary_->problems[i];
    WindowRecord& record = packed_[i].record;
    record.input_begin =
        packer_.input_begin(i) - packer_.input_begin(piece->begin);
    record.output_begin =
        packer_.output_begin(i) - packer_.output_begin(piece->begin);
    Failure failure;
    summary.is_window = failure.Guard(false, [&] {
      summary.path_reason = packer_.Pack(
          i, scratch, piece->inputs.data() + record.input_begin, &packed_[i]);
      if (summary.path_reason.empty()) {
        // Until it is solved.
        *ResultOf(i, piece) = WindowResult();
      }
      return summary.path_reason.empty();
    });
    if (failure.has_happened()) {
      summary.path_reason = failure.sentence();
    }
  }

  WindowResult* ResultOf(int64_t i, Piece* piece) {
    return reinterpret_cast<WindowResult*>(piece->outputs.data() +
                                           packed_[i].record.output_begin);
  }

  void Pack(Piece* piece) {
    const Stopwatch time(&summary_->pack_time_in_seconds);
    piece->input_bytes =
        packer_.input_begin(piece->end) - packer_.input_begin(piece->begin);
    piece->output_bytes =
        packer_.output_begin(piece->end) - packer_.output_begin(piece->begin);
    piece->inputs.Reserve(piece->input_bytes);
    piece->outputs.Reserve(piece->output_bytes);
    std::vector<WindowPacker::Scratch> scratch(context_->num_threads());
    context_->ParallelFor(piece->end - piece->begin,
                          kWindowsPerTask,
                          [&](int64_t first, int64_t last, int slot) {
                            for (int64_t e = first; e < last; ++e) {
                              PackOne(piece->begin + e, piece, &scratch[slot]);
                            }
                          });
    piece->windows.clear();
    for (int64_t i = piece->begin; i < piece->end; ++i) {
      if (summary_->problems[i].is_window) {
        piece->windows.push_back(i);
      }
    }
  }

  // False where the host has to solve it.
  bool StartOnDevice([[maybe_unused]] Piece* piece) {
#ifdef CERES_EXT_WITH_CUDA
    if (piece->on_device != nullptr && !piece->windows.empty()) {
      const KeepCurrentDevice<DeviceMachine> keep;
      const Status status = piece->on_device->Start(region_options_,
                                                    packed_,
                                                    piece->windows,
                                                    packer_.losses(),
                                                    piece->input_bytes,
                                                    piece->inputs.data(),
                                                    piece->output_bytes);
      piece->is_running = status.ok();
      if (!status.ok()) {
        LeaveDevice(status);
      }
      return status.ok();
    }
#endif
    return false;
  }

#ifdef CERES_EXT_WITH_CUDA
  // The host solves what is not solved yet.
  void LeaveDevice(const Status& status) {
    if (device_ == nullptr) {
      return;
    }
    summary_->device =
        device_->Name() + ", then the host (" + status.message + ")";
    for (Piece& piece : pieces_) {
      piece.on_device.reset();
      if (piece.is_running) {
        piece.is_running = false;
        SolveOnHost(&piece);
      }
    }
    second_machine_.reset();
    device_.reset();
    machines_->ClearDevice();
  }
#endif

  // Waits for the piece and writes its results.
  void Finish(Piece* piece) {
#ifdef CERES_EXT_WITH_CUDA
    if (piece->is_running) {
      const KeepCurrentDevice<DeviceMachine> keep;
      const Status status = piece->on_device->Wait(piece->outputs.data());
      if (status.ok()) {
        piece->is_running = false;
      } else {
        LeaveDevice(status);
      }
    }
#endif
    context_->ParallelFor(static_cast<int64_t>(piece->windows.size()),
                          kWindowsPerTask,
                          [&](int64_t first, int64_t last) {
                            for (int64_t e = first; e < last; ++e) {
                              FinishOne(piece->windows[e], piece);
                            }
                          });
    for (const int64_t i : piece->windows) {
      summary_->num_windows += summary_->problems[i].is_window ? 1 : 0;
    }
    piece->windows.clear();
  }

  void SolveOnHost(Piece* piece) {
    const std::vector<int64_t>& windows = piece->windows;
    std::vector<std::vector<double>> memory(context_->num_threads());
    context_->ParallelFor(static_cast<int64_t>(windows.size()),
                          1,
                          [&](int64_t first, int64_t last, int slot) {
                            for (int64_t e = first; e < last; ++e) {
                              const PackedWindow& window = packed_[windows[e]];
                              // Without memory it stays as it is, not solved.
                              Failure failure;
                              failure.Guard(false, [&] {
                                SolveWindowOnHost(window.kind,
                                                  window.has_schur,
                                                  region_options_,
                                                  window.record,
                                                  packer_.losses().data(),
                                                  piece->inputs.data(),
                                                  piece->outputs.data(),
                                                  &memory[slot]);
                                return true;
                              });
                            }
                          });
  }

  void FinishOne(int64_t i, Piece* piece) {
    ProblemSummary& summary = summary_->problems[i];
    const TrustRegion& region = ResultOf(i, piece)->region;
    if (region.end() <= TrustRegionEnd::kEvaluation) {
      // ceres_ext::Solve says which observations.
      summary.is_window = false;
      summary.path_reason = region.end() == TrustRegionEnd::kNone
                                ? "there was no memory for the window"
                                : "an evaluation of the window failed";
      return;
    }
    Failure failure;
    failure.Guard(false, [&] {
      Summarize(region, region_options_, packed_[i].fixed_cost, &summary);
      return true;
    });
    if (summary.IsSolutionUsable()) {
      packer_.Unpack(i,
                     packed_[i],
                     piece->outputs.data() + packed_[i].record.output_begin);
    }
  }

  const ceres::Solver::Options& options_;
  const Options& ext_options_;
  const TrustRegionOptions region_options_;
  const ProblemBatch* const batch_;
  KeptMachines* const machines_;
  kernels::HostContext* const context_;
  WindowPacker packer_;
  BatchSummary* const summary_;
  std::vector<PackedWindow> packed_;
#ifdef CERES_EXT_WITH_CUDA
  // Outlive what is on them.
  std::shared_ptr<KeptMachines::Device> device_;
  std::unique_ptr<DeviceMachine> second_machine_;
#endif
  Piece pieces_[2];
};

}  // namespace

bool SolveBatch(const ceres::Solver::Options& options,
                const Options& ext_options,
                ProblemBatch* batch,
                BatchSummary* summary,
                std::string* error) {
  std::string unused;
  error = error != nullptr ? error : &unused;
  Failure failure;
  const bool is_done = failure.Guard(false, [&] {
    const double start = Now();
    *summary = BatchSummary();
    std::string reason;
    if (batch == nullptr) {
      failure.Set("batch is null; expected a ceres_ext::ProblemBatch");
      return false;
    }
    if (!CanSolve(options, ext_options, /*problem=*/nullptr, &reason) ||
        !options.IsValid(&reason)) {
      failure.Set(reason);
      return false;
    }
    BorrowedMachines machines(ext_options);
    if (!IsValidBatch(
            *batch, machines->host_context(options.num_threads), &reason)) {
      failure.Set(reason);
      return false;
    }
    summary->problems.resize(batch->num_problems);
    if (batch->num_problems == 0) {
      return true;
    }
    {
      BatchSolve solve(options, ext_options, batch, machines.get(), summary);
      if (!solve.RunWindows(&reason)) {
        failure.Set(reason);
        return false;
      }
      solve.RunOthers();
    }
    summary->total_time_in_seconds = Now() - start;
    return true;
  });
  if (!is_done) {
    AssignOrShorten(failure.sentence(), error);
  }
  return is_done;
}

std::string BatchSummary::BriefReport() const {
  std::ostringstream report;
  int64_t num_usable = 0;
  for (const ProblemSummary& problem : problems) {
    num_usable += problem.IsSolutionUsable() ? 1 : 0;
  }
  report << problems.size() << " problems, " << num_usable
         << " with a usable solution, " << num_windows << " solved as windows";
  if (!device.empty()) {
    report << " on " << device;
  }
  report << "; " << total_time_in_seconds << " s, " << problems_per_second()
         << " problems a second (packing " << pack_time_in_seconds
         << " s, windows " << window_time_in_seconds << " s, others "
         << other_time_in_seconds << " s)";
  return report.str();
}

}  // namespace ceres_ext
