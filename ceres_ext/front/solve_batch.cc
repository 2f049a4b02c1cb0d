// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ceres_ext/base/failure.h"
#include "ceres_ext/base/machines.h"
#include "ceres_ext/base/scoped_seconds.h"
#include "ceres_ext/batch.h"
#include "ceres_ext/front/batch_bounds.h"
#include "ceres_ext/front/batch_of_problems.h"
#include "ceres_ext/front/batch_summary.h"
#include "ceres_ext/front/device_windows.h"
#include "ceres_ext/front/one_of_batch.h"
#include "ceres_ext/front/window_options.h"
#include "ceres_ext/front/window_packer.h"
#include "ceres_ext/front/window_piece.h"
#include "ceres_ext/session/idle_machines.h"
#include "ceres_ext/session/kept_machines.h"
#include "ceres_ext/solve.h"
#include "ceres_ext/under_ceres/solve_once.h"
#include "cuda_kernels/machine/host_context.h"

namespace ceres_ext {
namespace {

using kernels::Status;

class BatchSolve {
 public:
  BatchSolve(const ceres::Solver::Options& options,
             const Options& ext_options,
             const ProblemBatch* batch,
             KeptMachines* machines,
             const Clock* clock,
             BatchSummary* summary,
             std::vector<Summary>* full_summaries)
      : options_(options),
        ext_options_(ext_options),
        region_options_(OptionsOfRegion(options)),
        batch_(batch),
        machines_(machines),
        context_(machines->host_context(options.num_threads)),
        packer_(batch),
        clock_(clock),
        summary_(summary),
        full_summaries_(full_summaries) {}

  // Frees the device's memory while the device is current.
  ~BatchSolve() {
    [[maybe_unused]] const KeepCurrentDevice<DeviceMachine> keep;
    for (Piece& piece : pieces_) {
      piece.on_device.reset();
    }
    second_machine_.reset();
  }
  BatchSolve(const BatchSolve&) = delete;
  BatchSolve& operator=(const BatchSolve&) = delete;

  // Solves the windows. False, with a sentence in *error, if the device that
  // was asked for cannot be used and the host may not replace it.
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
    const double start = clock_->seconds();
    // While a device solves one piece, the host packs and sends the next.
    int64_t begin = 0;
    for (int64_t piece = 0; begin < batch_->num_problems; ++piece) {
      Piece* const next = &pieces_[piece % 2];
      Finish(next);
      const int64_t end = EndOfPiece(begin);
      Pack(begin, end, next);
      begin = end;
      if (!StartOnDevice(next)) {
        SolveOnHost(next);
      }
    }
    Finish(&pieces_[0]);
    Finish(&pieces_[1]);
    summary_->window_time_in_seconds =
        clock_->seconds() - start - summary_->pack_time_in_seconds;
    return true;
  }

  // Solves all problems that are not windows.
  void RunOthers() {
    const ScopedSeconds time(&summary_->other_time_in_seconds);
    for (int64_t i = 0; i < batch_->num_problems; ++i) {
      ProblemSummary& summary = summary_->problems[i];
      if (!summary.is_window) {
        SolveOther(
            options_,
            ext_options_,
            *batch_,
            i,
            &summary,
            full_summaries_ != nullptr ? &(*full_summaries_)[i] : nullptr);
        summary.latency_in_seconds = clock_->seconds();
      }
    }
  }

 private:
  // Bytes of input that are packed, sent and solved at a time.
  static constexpr int64_t kPieceBytes = int64_t{64} << 20;
  static constexpr int64_t kWindowsPerTask = 4;

  struct Piece {
    explicit Piece(const TrustRegionOptions* options) : windows(options) {}

    WindowPiece windows;
    Bytes inputs;
    Bytes outputs;
    bool is_running = false;  // on the device
    std::unique_ptr<DeviceWindows> on_device;
  };

  // Calls function(i, slot) for windows, or problems, on all threads.
  template <typename Function>
  void ForEach(int64_t n, int64_t grain, const Function& function) {
    context_->ParallelFor(n, grain, [&](int64_t begin, int64_t end, int slot) {
      for (int64_t e = begin; e < end; ++e) {
        function(e, slot);
      }
    });
  }

  bool ChooseDevice(std::string* error) {
    summary_->device = machines_->GetHost(options_.num_threads)->Name();
    if (ext_options_.device == DEVICE_HOST) {
      return true;
    }
    int64_t num_rows = 0;
    for (const ArrayProblem::Residuals& residuals :
         batch_->problem.residuals()) {
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
      summary_->device += " (" + status.message + ")";
      return true;
    }
    device_ = std::move(device);
    pieces_[0].on_device =
        std::make_unique<DeviceWindows>(device_->machine.get());
    summary_->device = device_->Name();
    MakeSecondMachine<DeviceMachine>();
    return true;
  }

  // Adds a stream for every other piece, unless the caller has given one or
  // limits the memory. Without it pieces follow each other.
  template <typename Machine>
  void MakeSecondMachine() {
    Machine* machine = device_->machine.get();
    if constexpr (!kIsHost<Machine>) {
      if (EndOfPiece(0) < batch_->num_problems &&
          ext_options_.cuda_stream == nullptr &&
          ext_options_.cuda_memory_limit_bytes == 0) {
        const KeepCurrentDevice<Machine> keep;
        kernels::CudaContextOptions options;
        options.device = ext_options_.cuda_device;
        if (Machine::Create(options, &second_machine_).ok()) {
          machine = second_machine_.get();
        }
      }
    }
    pieces_[1].on_device = std::make_unique<DeviceWindows>(machine);
  }

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

  void Pack(int64_t begin, int64_t end, Piece* piece) {
    const ScopedSeconds time(&summary_->pack_time_in_seconds);
    WindowPiece& windows = piece->windows;
    windows.Setup(&packer_, summary_, begin, end);
    piece->inputs.Reserve(windows.input_bytes());
    piece->outputs.Reserve(windows.output_bytes());
    windows.SetMemory(piece->inputs.data(), piece->outputs.data());
    std::vector<WindowPacker::Scratch> scratch(context_->num_threads());
    ForEach(end - begin, kWindowsPerTask, [&](int64_t e, int slot) {
      windows.Pack(begin + e, &scratch[slot]);
    });
    windows.ListWindows();
  }

  // False if the host has to solve the piece.
  bool StartOnDevice(Piece* piece) {
    if (piece->on_device == nullptr || piece->windows.windows().empty()) {
      return false;
    }
    [[maybe_unused]] const KeepCurrentDevice<DeviceMachine> keep;
    const Status status =
        piece->on_device->Start(region_options_, &piece->windows);
    piece->is_running = status.ok();
    if (!status.ok()) {
      LeaveDevice(status);
    }
    return status.ok();
  }

  // The host solves the remaining windows, if it may.
  void LeaveDevice(const Status& status) {
    if (device_ == nullptr) {
      return;
    }
    refusal_ = ext_options_.fallback == FALLBACK_REFUSE ? status.message : "";
    summary_->device = device_->Name() +
                       (refusal_.empty() ? ", then the host (" : " (") +
                       status.message + ")";
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

  // Waits for the piece and writes its results.
  void Finish(Piece* piece) {
    if (piece->is_running) {
      [[maybe_unused]] const KeepCurrentDevice<DeviceMachine> keep;
      const Status status = piece->on_device->Wait(&piece->windows);
      if (status.ok()) {
        piece->is_running = false;
      } else {
        LeaveDevice(status);
      }
    }
    const std::vector<int64_t>& windows = piece->windows.windows();
    ForEach(
        static_cast<int64_t>(windows.size()),
        kWindowsPerTask,
        [&](int64_t e, int /*slot*/) { piece->windows.Finish(windows[e]); });
    for (const int64_t i : windows) {
      ProblemSummary& summary = summary_->problems[i];
      summary_->num_windows += summary.is_window ? 1 : 0;
      summary.latency_in_seconds = clock_->seconds();
      if (full_summaries_ != nullptr && summary.is_window) {
        const PackedWindow& window = piece->windows.packed(i);
        SummarizeInFull(summary,
                        window,
                        piece->windows.inputs() + window.record.input_begin,
                        options_,
                        summary_->device,
                        &(*full_summaries_)[i]);
      }
    }
    piece->windows.Clear();
  }

  void SolveOnHost(Piece* piece) {
    const std::vector<int64_t>& windows = piece->windows.windows();
    if (!refusal_.empty()) {
      for (const int64_t i : windows) {
        summary_->problems[i].message = refusal_;
        ++summary_->num_windows;
      }
      piece->windows.Clear();
      return;
    }
    std::vector<std::vector<double>> memory(context_->num_threads());
    ForEach(static_cast<int64_t>(windows.size()), 1, [&](int64_t e, int slot) {
      piece->windows.SolveOnHost(windows[e], &memory[slot]);
    });
  }

  const ceres::Solver::Options& options_;
  const Options& ext_options_;
  const TrustRegionOptions region_options_;
  const ProblemBatch* const batch_;
  KeptMachines* const machines_;
  kernels::HostContext* const context_;
  WindowPacker packer_;
  const Clock* const clock_;
  BatchSummary* const summary_;
  std::vector<Summary>* const full_summaries_;  // or null
  // Outlive the objects on them.
  std::shared_ptr<KeptMachines::Device> device_;
  std::unique_ptr<DeviceMachine> second_machine_;
  // The error of the device, if the host may not replace the device.
  std::string refusal_;
  Piece pieces_[2] = {Piece(&region_options_), Piece(&region_options_)};
};

// Counts the blocks and residual blocks of problem i as they were given.
void CountAll(const ProblemBatch& batch, int64_t i, Summary* summary) {
  const auto& parameters = batch.problem.parameters();
  const auto& residuals = batch.problem.residuals();
  int64_t num_blocks = 0;
  int64_t num_parameters = 0;
  int64_t num_rows = 0;
  for (size_t a = 0; a < parameters.size(); ++a) {
    const int64_t n =
        batch.parameter_begin[a][i + 1] - batch.parameter_begin[a][i];
    num_blocks += n;
    num_parameters += n * parameters[a].size;
  }
  for (size_t r = 0; r < residuals.size(); ++r) {
    num_rows += batch.residual_begin[r][i + 1] - batch.residual_begin[r][i];
  }
  summary->num_parameter_blocks = static_cast<int>(num_blocks);
  summary->num_parameters = static_cast<int>(num_parameters);
  summary->num_residual_blocks = static_cast<int>(num_rows);
  summary->num_residuals = static_cast<int>(2 * num_rows);
}

// Checks the options, calls run and sets *error, for both kinds of batches.
// run(failure) returns false, with the failure set, if nothing was solved.
template <typename Function>
bool SolveAll(const ceres::Solver::Options& options,
              const Options& ext_options,
              const Function& run,
              std::string* error) {
  Failure failure;
  const bool is_done = failure.Guard(false, [&] {
    std::string reason;
    if (!CanSolve(options, ext_options, /*problem=*/nullptr, &reason) ||
        !options.IsValid(&reason) || !run(&reason)) {
      failure.Set(reason);
      return false;
    }
    return true;
  });
  if (!is_done && error != nullptr) {
    AssignOrShorten(failure.sentence(), error);
  }
  return is_done;
}

// Prepares empty summaries for n problems.
void Prepare(int64_t n,
             BatchSummary* summary,
             std::vector<Summary>* full_summaries) {
  *summary = BatchSummary();
  summary->problems.resize(n);
  if (full_summaries != nullptr) {
    full_summaries->assign(n, Summary());
  }
}

}  // namespace

bool SolveBatch(const ceres::Solver::Options& options,
                const Options& ext_options,
                ProblemBatch* batch,
                BatchSummary* summary,
                std::string* error,
                std::vector<Summary>* full_summaries) {
  const auto run = [&](std::string* reason) {
    const Clock clock;
    Prepare(0, summary, full_summaries);
    if (batch == nullptr) {
      *reason = "batch is null; expected a ceres_ext::ProblemBatch";
      return false;
    }
    BorrowedMachines machines(ext_options);
    if (!IsValidBatch(
            *batch, machines->host_context(options.num_threads), reason)) {
      return false;
    }
    Prepare(batch->num_problems, summary, full_summaries);
    if (batch->num_problems == 0) {
      return true;
    }
    {
      BatchSolve solve(options,
                       ext_options,
                       batch,
                       machines.get(),
                       &clock,
                       summary,
                       full_summaries);
      if (!solve.RunWindows(reason)) {
        return false;
      }
      solve.RunOthers();
    }
    for (int64_t i = 0; i < batch->num_problems && full_summaries != nullptr;
         ++i) {
      if (summary->problems[i].is_window) {
        CountAll(*batch, i, &(*full_summaries)[i]);
      }
    }
    summary->total_time_in_seconds = clock.seconds();
    return true;
  };
  return SolveAll(options, ext_options, run, error);
}

bool SolveBatch(const ceres::Solver::Options& options,
                const Options& ext_options,
                const std::vector<ceres::Problem*>& problems,
                BatchSummary* summary,
                std::string* error,
                std::vector<Summary>* full_summaries) {
  const auto run = [&](std::string* reason) {
    const Clock clock;
    Prepare(0, summary, full_summaries);
    BorrowedMachines machines(ext_options);
    kernels::HostContext* const context =
        machines->host_context(options.num_threads);
    BatchOfProblems batches(&problems, context);
    if (!batches.AreApart(reason)) {
      return false;
    }
    const auto n = static_cast<int64_t>(problems.size());
    Prepare(n, summary, full_summaries);
    // Solves one batch for each kind of window.
    for (const auto kind :
         {BatchModelKind::kBalAngleAxis, BatchModelKind::kBalQuaternion}) {
      const std::unique_ptr<BatchOfKind> of_kind = batches.Make(kind);
      if (of_kind == nullptr) {
        continue;
      }
      const std::vector<int64_t>& numbers = of_kind->numbers();
      const auto m = static_cast<int64_t>(numbers.size());
      BatchSummary part;
      std::vector<Summary> full_part;
      std::vector<Summary>* const full =
          full_summaries != nullptr ? &full_part : nullptr;
      Prepare(m, &part, full);
      {
        BatchSolve solve(options,
                         ext_options,
                         of_kind->batch(),
                         machines.get(),
                         &clock,
                         &part,
                         full);
        if (!solve.RunWindows(reason)) {
          return false;
        }
      }
      for (int64_t k = 0; k < m; ++k) {
        const int64_t i = numbers[k];
        if (part.problems[k].IsSolutionUsable()) {
          of_kind->Write(k);
        }
        summary->problems[i] = std::move(part.problems[k]);
        if (full != nullptr && summary->problems[i].is_window) {
          Summary& of_one = (*full_summaries)[i];
          of_one = std::move(full_part[k]);
          of_one.num_parameter_blocks = problems[i]->NumParameterBlocks();
          of_one.num_parameters = problems[i]->NumParameters();
          of_one.num_residual_blocks = problems[i]->NumResidualBlocks();
          of_one.num_residuals = problems[i]->NumResiduals();
        }
      }
      summary->device = part.device;
      summary->num_windows += part.num_windows;
      summary->pack_time_in_seconds += part.pack_time_in_seconds;
      summary->window_time_in_seconds += part.window_time_in_seconds;
    }
    {
      const ScopedSeconds time(&summary->other_time_in_seconds);
      for (int64_t i = 0; i < n; ++i) {
        ProblemSummary& of_one = summary->problems[i];
        if (!of_one.is_window) {
          if (of_one.path_reason.empty()) {
            of_one.path_reason = batches.reason(i);
          }
          Summary full;
          Solve(options, ext_options, problems[i], &full);
          Summarize(full, &of_one);
          of_one.latency_in_seconds = clock.seconds();
          if (full_summaries != nullptr) {
            (*full_summaries)[i] = std::move(full);
          }
        }
      }
    }
    summary->total_time_in_seconds = clock.seconds();
    return true;
  };
  return SolveAll(options, ext_options, run, error);
}

}  // namespace ceres_ext
