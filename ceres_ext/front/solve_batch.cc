// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ceres_ext/base/failure.h"
#include "ceres_ext/base/machines.h"
#include "ceres_ext/base/scoped_seconds.h"
#include "ceres_ext/batch.h"
#include "ceres_ext/front/batch_bounds.h"
#include "ceres_ext/front/batch_of_problems.h"
#include "ceres_ext/front/batch_summary.h"
#include "ceres_ext/front/device_fits.h"
#include "ceres_ext/front/device_windows.h"
#include "ceres_ext/front/fit_batch.h"
#include "ceres_ext/front/fit_host.h"
#include "ceres_ext/front/fit_piece.h"
#include "ceres_ext/front/one_of_batch.h"
#include "ceres_ext/front/ranks.h"
#include "ceres_ext/front/window_options.h"
#include "ceres_ext/front/window_packer.h"
#include "ceres_ext/front/window_piece.h"
#include "ceres_ext/front/window_rows.h"
#include "ceres_ext/plan/device_choice.h"
#include "ceres_ext/session/idle_machines.h"
#include "ceres_ext/session/kept_machines.h"
#include "ceres_ext/solve.h"
#include "ceres_ext/under_ceres/solve_once.h"
#include "cuda_kernels/machine/host_context.h"

namespace ceres_ext {
namespace {

using kernels::Status;

bool IsStopped(const StopFlag* stop) {
  return stop != nullptr && stop->IsStopped();
}

const int32_t* ValueOf(const StopFlag* stop) {
  return stop != nullptr ? stop->value() : nullptr;
}

// Calls fn(). If it throws, *message says so.
template <typename Function>
void TryOrSay(const Function& fn, std::string* message) {
  Failure failure;
  failure.Guard(false, [&] {
    fn();
    return true;
  });
  if (failure.has_happened()) {
    AssignOrShorten(failure.sentence(), message);
  }
}

// Window i was not solved. full_summaries: or null.
void FailWindow(int64_t i,
                const char* why,
                BatchSummary* summary,
                std::vector<Summary>* full_summaries) {
  summary->problems[i].is_window = true;
  AssignOrShorten(why, &summary->problems[i].message);
  if (full_summaries != nullptr) {
    AssignOrShorten(why, &(*full_summaries)[i].message);
  }
}

class BatchSolve {
 public:
  BatchSolve(const ceres::Solver::Options& options,
             const Options& ext_options,
             const ProblemBatch* batch,
             KeptMachines* machines,
             const Clock* clock,
             BatchSummary* summary,
             std::vector<Summary>* full_summaries,
             const StopFlag* stop)
      : options_(options),
        ext_options_(ext_options),
        region_options_(OptionsOfRegion(options, ValueOf(stop))),
        stop_(stop),
        batch_(batch),
        machines_(machines),
        context_(machines->host_context(options.num_threads)),
        clock_(clock),
        summary_(summary),
        full_summaries_(full_summaries) {}

  // Frees the device's memory while the device is current.
  ~BatchSolve() {
    [[maybe_unused]] const KeepCurrentDevice<DeviceMachine> keep;
    LeavePieces();
  }
  BatchSolve(const BatchSolve&) = delete;
  BatchSolve& operator=(const BatchSolve&) = delete;

  // Solves fits and windows. False, with a sentence in *error, if nothing was
  // solved: the device that was asked for cannot be used and the host may not
  // replace it, or there was no memory. If memory ends later, the problems that
  // are not solved end with that sentence.
  bool RunWindows(std::string* error) {
    Failure failure;
    const bool is_done =
        failure.Guard(false, [&] { return TryWindows(error); });
    if (!failure.has_happened()) {
      return is_done;
    }
    if (summary_->num_windows == 0) {
      *error = failure.sentence();
      return false;
    }
    for (int64_t i = 0; i < batch_->num_problems; ++i) {
      ProblemSummary& problem = summary_->problems[i];
      if (problem.message.empty() && !problem.IsSolutionUsable()) {
        problem.latency_in_seconds = clock_->seconds();
        FailWindow(i, failure.sentence(), summary_, full_summaries_);
      }
    }
    return true;
  }

  // Solves all problems that are not windows.
  void RunOthers() {
    const ScopedSeconds time(&summary_->other_time_in_seconds);
    for (int64_t i = 0; i < batch_->num_problems; ++i) {
      ProblemSummary& summary = summary_->problems[i];
      if (!summary.is_window) {
        Summary* const full =
            full_summaries_ != nullptr ? &(*full_summaries_)[i] : nullptr;
        TryOrSay(
            [&] {
              if (IsStopped(stop_)) {
                SummarizeUnbegun(&summary, full);
              } else {
                StoppableOptions stoppable(options_, ValueOf(stop_));
                SolveOther(stoppable.options(),
                           ext_options_,
                           *batch_,
                           i,
                           &summary,
                           full);
              }
            },
            &summary.message);
        summary.latency_in_seconds = clock_->seconds();
      }
    }
  }

 private:
  bool TryWindows(std::string* error) {
    std::string reason = WhyNoWindows(options_, ext_options_);
    if (!reason.empty()) {
      for (ProblemSummary& problem : summary_->problems) {
        problem.path_reason = reason;
      }
      return true;
    }
    fits_.emplace(batch_);
    if (!fits_->reason().empty()) {
      packer_.emplace(batch_);
      if (!packer_->reason().empty()) {
        for (ProblemSummary& problem : summary_->problems) {
          problem.path_reason =
              fits_->has_other_model() && !packer_->has_known_rows()
                  ? fits_->reason()
                  : packer_->reason();
        }
        return true;
      }
    }
    if (!ChooseDevice(error)) {
      return false;
    }
    const double start = clock_->seconds();
    const std::string device = summary_->device;
    if (fits_->reason().empty()) {
      RunFits();
    }
    if (is_fit_.empty() ||
        std::find(is_fit_.begin(), is_fit_.end(), 0) != is_fit_.end()) {
      if (device_ != nullptr && summary_->device != device) {
        summary_->device = device + ", fits: " + summary_->device;
      }
      RunPacked();
    }
    for (Fits& piece : fit_pieces_) {
      FinishFits(&piece);
    }
    summary_->window_time_in_seconds =
        clock_->seconds() - start - summary_->pack_time_in_seconds;
    return true;
  }

  // Bytes of input that are packed, sent and solved at a time.
  static constexpr int64_t kPieceBytes = int64_t{48} << 20;
  // Pieces in flight.
  static constexpr int64_t kMostPieces = 4;
  static constexpr int64_t kWindowsPerTask = 4;

  // The same for fits. Buffers of all pieces stay with the process
  // (BorrowedMachines::kMostIdleBytes).
  static constexpr int64_t kFitPieceBytes = int64_t{8} << 20;
  static constexpr int64_t kFitsPerTask = 64;

  struct Fits {
    explicit Fits(const TrustRegionOptions* options) : fits(options) {}

    FitPiece fits;
    Bytes outputs;
    bool is_running = false;  // on the device
    KeptMachines::Device* device = nullptr;
    std::unique_ptr<DeviceFits> on_device;
  };

  struct Piece {
    explicit Piece(const TrustRegionOptions* options) : windows(options) {}

    WindowPiece windows;
    Bytes inputs;
    Bytes outputs;
    bool is_running = false;  // on the device
    // Has page-locked memory for this piece alone; null: none has.
    KeptMachines::Device* device = nullptr;
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
    device_->KeepMemory(true);
    devices_.push_back(device_);
    summary_->device = device_->Name();
    return true;
  }

  // Makes streams for so many pieces at most, so that they run at once. There
  // is one if the caller has given it, or limits the memory.
  void OpenDevices(int64_t num_pieces) {
    if (ext_options_.cuda_stream != nullptr ||
        ext_options_.cuda_memory_limit_bytes > 0) {
      return;
    }
    while (static_cast<int64_t>(devices_.size()) <
           std::min(num_pieces, kMostPieces)) {
      std::shared_ptr<KeptMachines::Device> device;
      if (!machines_
               ->GetOtherDevice(ext_options_,
                                options_.num_threads,
                                devices_.size() - 1,
                                &device)
               .ok()) {
        return;
      }
      device->KeepMemory(true);
      devices_.push_back(std::move(device));
    }
  }

  // Number of pieces, kMostPieces at most. end_of(begin): where a piece ends.
  template <typename Function>
  int64_t CountPieces(const Function& end_of) const {
    int64_t num_pieces = 0;
    for (int64_t begin = 0;
         begin < batch_->num_problems && num_pieces < kMostPieces;
         begin = end_of(begin)) {
      ++num_pieces;
    }
    return num_pieces;
  }

  // Solves the problems that are fits.
  void RunFits() {
    bool is_on_device = device_ != nullptr;
    std::string host_reason;
    if (is_on_device && !fits_->HasKernels()) {
      const std::string reason = FitBatch::kWhyNoKernels;
      if (ext_options_.fallback == FALLBACK_REFUSE) {
        for (ProblemSummary& problem : summary_->problems) {
          problem.path_reason = reason;
        }
        return;
      }
      is_on_device = false;
      host_reason = " (" + reason + ")";
    }
    const int64_t n = batch_->num_problems;
    // On the host pieces follow each other.
    int64_t num_pieces = 1;
    if (is_on_device) {
      OpenDevices(CountPieces([&](int64_t begin) { return EndOfFits(begin); }));
      num_pieces = static_cast<int64_t>(devices_.size());
      for (int64_t p = 0; p < num_pieces; ++p) {
        fit_pieces_[p].device = devices_[p].get();
        fit_pieces_[p].on_device =
            std::make_unique<DeviceFits>(devices_[p]->machine.get());
      }
    }
    is_fit_.assign(n, 0);
    int64_t begin = 0;
    for (int64_t number = 0; begin < n && !IsStopped(stop_); ++number) {
      Fits* const piece = &fit_pieces_[number % num_pieces];
      FinishFits(piece);
      const int64_t end = EndOfFits(begin);
      ReadFits(begin, end, piece);
      begin = end;
      if (!piece->fits.fit_numbers().empty() && !StartFits(piece)) {
        if (!host_reason.empty()) {
          summary_->device =
              machines_->GetHost(options_.num_threads)->Name() + host_reason;
        }
        SolveFitsOnHost(piece);
      }
    }
    // Windows use the same devices. Results of the host wait for the windows,
    // so that nothing is written before the memory of a piece is there.
    for (Fits& piece : fit_pieces_) {
      if (piece.is_running) {
        FinishFits(&piece);
      }
    }
  }

  int64_t EndOfFits(int64_t begin) const {
    const int64_t limit = ext_options_.cuda_memory_limit_bytes;
    const int64_t piece_bytes =
        limit > 0 ? std::min(kFitPieceBytes, limit / 8) : kFitPieceBytes;
    // The last end whose piece is not too large.
    int64_t end = begin + 1;
    int64_t too_far = batch_->num_problems + 1;
    while (too_far - end > 1) {
      const int64_t middle = end + (too_far - end) / 2;
      (fits_->NumBytes(begin, middle) <= piece_bytes ? end : too_far) = middle;
    }
    return end;
  }

  void ReadFits(int64_t begin, int64_t end, Fits* piece) {
    const ScopedSeconds time(&summary_->pack_time_in_seconds);
    piece->fits.Setup(&*fits_, summary_, begin, end);
    ForEach(end - begin, kFitsPerTask, [&](int64_t e, int /*slot*/) {
      piece->fits.Read(begin + e);
    });
    piece->fits.ListFits();
    for (const int64_t i : piece->fits.fit_numbers()) {
      is_fit_[i] = 1;
    }
  }

  // False if the host has to solve the piece.
  bool StartFits(Fits* piece) {
    if (piece->on_device == nullptr) {
      return false;
    }
    [[maybe_unused]] const KeepCurrentDevice<DeviceMachine> keep;
    auto& inputs = piece->device->locked_inputs;
    auto& outputs = piece->device->locked_outputs;
    // Memory of the size of most pieces is allocated once for all.
    constexpr int64_t kInputBytes = kFitPieceBytes + (int64_t{1} << 20);
    constexpr int64_t kOutputBytes = kFitPieceBytes / 2;
    Status status = ext_options_.cuda_memory_limit_bytes == 0
                        ? piece->on_device->Reserve(kInputBytes, kOutputBytes)
                        : Status();
    if (status.ok()) {
      status = inputs.Reserve(std::max(piece->fits.input_bytes(), kInputBytes));
    }
    if (status.ok()) {
      status =
          outputs.Reserve(std::max(piece->fits.output_bytes(), kOutputBytes));
    }
    if (status.ok()) {
      piece->fits.SetMemory(inputs.data(), outputs.data());
      {
        const ScopedSeconds time(&summary_->pack_time_in_seconds);
        ForEach(piece->fits.num_tasks(), 1, [&](int64_t task, int /*slot*/) {
          piece->fits.Fill(task);
        });
      }
      status = piece->on_device->Start(&piece->fits);
    }
    piece->is_running = status.ok();
    if (!status.ok()) {
      LeaveDevice(status);
    }
    return status.ok();
  }

  void SolveFitsOnHost(Fits* piece) {
    const std::vector<int64_t>& numbers = piece->fits.fit_numbers();
    if (!refusal_.empty()) {
      Refuse(numbers);
      piece->fits.Clear();
      return;
    }
    piece->outputs.Reserve(piece->fits.output_bytes());
    piece->fits.SetMemory(nullptr, piece->outputs.data());
    std::vector<FitWorkspace> workspaces(context_->num_threads());
    ForEach(static_cast<int64_t>(numbers.size()),
            kWindowsPerTask,
            [&](int64_t e, int slot) {
              piece->fits.SolveOnHost(numbers[e], &workspaces[slot]);
            });
  }

  // Waits until the device has solved the piece. Passes the stop flag, which a
  // device cannot read, to all pieces.
  template <typename OnDevice>
  void PassStop(const OnDevice& on_device) {
    // A piece takes milliseconds.
    constexpr auto kInterval = std::chrono::microseconds(50);
    while (stop_ != nullptr && !on_device.IsDone()) {
      if (stop_->IsStopped()) {
        for (Fits& piece : fit_pieces_) {
          if (piece.is_running) {
            piece.on_device->Stop();
          }
        }
        for (Piece& piece : pieces_) {
          if (piece.is_running) {
            piece.on_device->Stop();
          }
        }
        return;
      }
      std::this_thread::sleep_for(kInterval);
    }
  }

  void FinishFits(Fits* piece) {
    if (piece->is_running) {
      [[maybe_unused]] const KeepCurrentDevice<DeviceMachine> keep;
      PassStop(*piece->on_device);
      const Status status = piece->on_device->Wait();
      if (status.ok()) {
        piece->is_running = false;
      } else {
        LeaveDevice(status);
      }
    }
    const std::vector<int64_t>& numbers = piece->fits.fit_numbers();
    ForEach(static_cast<int64_t>(numbers.size()),
            kFitsPerTask,
            [&](int64_t e, int /*slot*/) { piece->fits.Finish(numbers[e]); });
    const double latency = numbers.empty() ? 0.0 : clock_->seconds();
    for (const int64_t i : numbers) {
      ProblemSummary& summary = summary_->problems[i];
      summary_->num_windows += summary.is_window ? 1 : 0;
      summary.latency_in_seconds = latency;
      if (full_summaries_ != nullptr && summary.is_window) {
        DescribeInFull(i, ReducedSize(piece->fits, i));
      }
    }
    piece->fits.Clear();
  }

  // Results that are written stay, if there is no memory for the full summary.
  void DescribeInFull(int64_t i, const ReducedSize& size) {
    Summary& full = (*full_summaries_)[i];
    TryOrSay(
        [&] {
          SummarizeInFull(
              summary_->problems[i], size, options_, summary_->device, &full);
        },
        &full.message);
  }

  // Solves the problems that are windows and no fits.
  void RunPacked() {
    if (!packer_.has_value()) {
      packer_.emplace(batch_);
    }
    if (!packer_->reason().empty()) {
      return;  // Their reasons are those of fits.
    }
    int64_t num_pieces = 1;
    if (device_ != nullptr) {
      const int64_t num_wanted =
          CountPieces([&](int64_t begin) { return EndOfPiece(begin); });
      OpenDevices(num_wanted);
      const auto num_devices = static_cast<int64_t>(devices_.size());
      // The host packs a piece while the device solves another, even if they
      // follow each other.
      num_pieces = std::max(num_devices, std::min<int64_t>(num_wanted, 2));
      is_one_piece_ = num_wanted == 1;
      for (int64_t p = 0; p < num_pieces; ++p) {
        KeptMachines::Device* const device = devices_[p % num_devices].get();
        pieces_[p].device = num_pieces == num_devices ? device : nullptr;
        pieces_[p].on_device =
            std::make_unique<DeviceWindows>(device->machine.get());
      }
    }
    int64_t begin = 0;
    for (int64_t piece = 0; begin < batch_->num_problems && !IsStopped(stop_);
         ++piece) {
      Piece* const next = &pieces_[piece % num_pieces];
      Finish(next);
      const int64_t end = EndOfPiece(begin);
      Pack(begin, end, next);
      begin = end;
      if (!StartOnDevice(next)) {
        SolveOnHost(next);
      }
    }
    for (Piece& piece : pieces_) {
      Finish(&piece);
    }
  }

  int64_t EndOfPiece(int64_t begin) const {
    const int64_t limit = ext_options_.cuda_memory_limit_bytes;
    const int64_t piece_bytes =
        limit > 0 ? std::min(kPieceBytes, limit / 4) : kPieceBytes;
    int64_t end = begin + 1;
    while (end < batch_->num_problems &&
           packer_->input_begin(end + 1) - packer_->input_begin(begin) <=
               piece_bytes) {
      ++end;
    }
    return end;
  }

  void Pack(int64_t begin, int64_t end, Piece* piece) {
    const ScopedSeconds time(&summary_->pack_time_in_seconds);
    WindowPiece& windows = piece->windows;
    windows.Setup(&*packer_, summary_, begin, end);
    if (!UsePageLocked(piece)) {
      piece->inputs.Reserve(windows.input_bytes());
      piece->outputs.Reserve(windows.output_bytes());
      windows.SetMemory(piece->inputs.data(), piece->outputs.data());
    }
    std::vector<int64_t> numbers;
    for (int64_t i = begin; i < end; ++i) {
      if (is_fit_.empty() || is_fit_[i] == 0) {
        numbers.push_back(i);
      }
    }
    PackWindows(numbers, &windows);
    windows.ListWindows();
  }

  void PackWindows(const std::vector<int64_t>& numbers, WindowPiece* windows) {
    std::vector<WindowPacker::Scratch> scratch(context_->num_threads());
    ForEach(static_cast<int64_t>(numbers.size()),
            kWindowsPerTask,
            [&](int64_t e, int slot) {
              windows->Pack(numbers[e], &scratch[slot]);
            });
  }

  // False if there is no page-locked memory; then copies pass through stages.
  bool UsePageLocked(Piece* piece) {
    if (piece->device == nullptr) {
      return false;
    }
    [[maybe_unused]] const KeepCurrentDevice<DeviceMachine> keep;
    auto& inputs = piece->device->locked_inputs;
    auto& outputs = piece->device->locked_outputs;
    WindowPiece& windows = piece->windows;
    if (!inputs.Reserve(windows.input_bytes()).ok() ||
        !outputs.Reserve(windows.output_bytes()).ok()) {
      return false;
    }
    windows.SetMemory(inputs.data(), outputs.data(), /*is_page_locked=*/true);
    return true;
  }

  // False if the host has to solve the piece.
  bool StartOnDevice(Piece* piece) {
    if (piece->on_device == nullptr || piece->windows.windows().empty()) {
      return false;
    }
    [[maybe_unused]] const KeepCurrentDevice<DeviceMachine> keep;
    const Status status = piece->on_device->Start(
        region_options_, &piece->windows, /*may_share=*/is_one_piece_);
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
    for (Fits& piece : fit_pieces_) {
      if (piece.is_running) {
        piece.is_running = false;
        piece.on_device.reset();
        SolveFitsOnHost(&piece);
      }
    }
    for (Piece& piece : pieces_) {
      if (piece.is_running) {
        piece.is_running = false;
        piece.on_device.reset();
        SolveOnHost(&piece);
      }
    }
    LeavePieces();
    device_.reset();
    machines_->ClearDevice();
  }
  void LeavePieces() {
    for (const auto& device : devices_) {
      // A piece may be running if there was no memory for another.
      static_cast<void>(device->machine->Synchronize());
    }
    for (Fits& piece : fit_pieces_) {
      piece.on_device.reset();
      piece.device = nullptr;
    }
    for (Piece& piece : pieces_) {
      piece.on_device.reset();
      piece.device = nullptr;
    }
    for (const auto& device : devices_) {
      device->KeepMemory(false);
    }
    devices_.clear();
  }

  // Waits for the piece and writes its results.
  void Finish(Piece* piece) {
    if (piece->is_running) {
      [[maybe_unused]] const KeepCurrentDevice<DeviceMachine> keep;
      PassStop(*piece->on_device);
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
        DescribeInFull(
            i,
            ReducedSize(window,
                        piece->windows.inputs() + window.record.input_begin));
      }
    }
    piece->windows.Clear();
  }

  void SolveOnHost(Piece* piece) {
    const std::vector<int64_t>& windows = piece->windows.windows();
    if (!refusal_.empty()) {
      Refuse(windows);
      piece->windows.Clear();
      return;
    }
    if (piece->windows.is_page_locked()) {
      // That memory goes with the device.
      piece->inputs.Reserve(piece->windows.input_bytes());
      piece->outputs.Reserve(piece->windows.output_bytes());
      piece->windows.SetMemory(piece->inputs.data(), piece->outputs.data());
      PackWindows(windows, &piece->windows);
    }
    std::vector<std::vector<double>> memory(context_->num_threads());
    ForEach(static_cast<int64_t>(windows.size()), 1, [&](int64_t e, int slot) {
      piece->windows.SolveOnHost(windows[e], &memory[slot]);
    });
  }

  // They end with the error of the device.
  void Refuse(const std::vector<int64_t>& numbers) {
    for (const int64_t i : numbers) {
      summary_->problems[i].latency_in_seconds = clock_->seconds();
      ++summary_->num_windows;
      FailWindow(i, refusal_.c_str(), summary_, full_summaries_);
    }
  }

  const ceres::Solver::Options& options_;
  const Options& ext_options_;
  const TrustRegionOptions region_options_;
  const StopFlag* const stop_;  // or null
  const ProblemBatch* const batch_;
  KeptMachines* const machines_;
  kernels::HostContext* const context_;
  std::optional<FitBatch> fits_;
  std::vector<uint8_t> is_fit_;  // of problems, or empty: none is
  std::optional<WindowPacker> packer_;
  const Clock* const clock_;
  BatchSummary* const summary_;
  std::vector<Summary>* const full_summaries_;  // or null
  // Outlive the objects on them.
  std::shared_ptr<KeptMachines::Device> device_;
  // device_ and others, with a stream each.
  std::vector<std::shared_ptr<KeptMachines::Device>> devices_;
  bool is_one_piece_ = false;
  // The error of the device, if the host may not replace the device.
  std::string refusal_;
  Fits fit_pieces_[kMostPieces] = {Fits(&region_options_),
                                   Fits(&region_options_),
                                   Fits(&region_options_),
                                   Fits(&region_options_)};
  Piece pieces_[kMostPieces] = {Piece(&region_options_),
                                Piece(&region_options_),
                                Piece(&region_options_),
                                Piece(&region_options_)};
};

// Residuals of a residual block of each array; 0 if it has no cost function,
// which windows and fits have.
std::vector<int> NumResiduals(const ArrayProblem& problem) {
  std::vector<int> num_residuals;
  for (const ArrayProblem::Residuals& residuals : problem.residuals()) {
    std::unique_ptr<const ceres::CostFunction> owner;
    const ceres::CostFunction* const first =
        residuals.num_blocks > 0 ? FirstCostFunction(residuals, &owner)
                                 : nullptr;
    num_residuals.push_back(first != nullptr ? first->num_residuals() : 0);
  }
  return num_residuals;
}

// Counts the blocks and residual blocks of problem i as they were given.
void CountAll(const ProblemBatch& batch,
              int64_t i,
              const std::vector<int>& num_residuals_of_row,
              Summary* summary) {
  const auto& parameters = batch.problem.parameters();
  const auto& residuals = batch.problem.residuals();
  int64_t num_blocks = 0;
  int64_t num_parameters = 0;
  int64_t num_rows = 0;
  int64_t num_residuals = 0;
  for (size_t a = 0; a < parameters.size(); ++a) {
    const int64_t n =
        batch.parameter_begin[a][i + 1] - batch.parameter_begin[a][i];
    num_blocks += n;
    num_parameters += n * parameters[a].size;
  }
  for (size_t r = 0; r < residuals.size(); ++r) {
    const int64_t n =
        batch.residual_begin[r][i + 1] - batch.residual_begin[r][i];
    num_rows += n;
    num_residuals += n * num_residuals_of_row[r];
  }
  summary->num_parameter_blocks = static_cast<int>(num_blocks);
  summary->num_parameters = static_cast<int>(num_parameters);
  summary->num_residual_blocks = static_cast<int>(num_rows);
  summary->num_residuals = static_cast<int>(num_residuals);
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
        !HasNoRanks(ext_options, "a batch", &reason) ||
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

// The windows and fits of a batch, with what RunOthers is of.
struct SolvedWindows {
  BatchSummary summary;
  std::vector<Summary> full_summaries;
  bool is_done = false;
  std::string reason;
};

// Solves the windows of problems [begin, end) by one device.
void RunWindowsOf(const ceres::Solver::Options& options,
                  const Options& ext_options,
                  const ProblemBatch& batch,
                  int64_t begin,
                  int64_t end,
                  const Clock* clock,
                  bool in_full,
                  const StopFlag* stop,
                  SolvedWindows* solved) {
  TryOrSay(
      [&] {
        ProblemBatch part = batch;
        part.num_problems = end - begin;
        for (auto* const begins :
             {&part.parameter_begin, &part.residual_begin}) {
          for (const int64_t*& first : *begins) {
            first += begin;
          }
        }
        std::vector<Summary>* const full =
            in_full ? &solved->full_summaries : nullptr;
        Prepare(part.num_problems, &solved->summary, full);
        BorrowedMachines machines(ext_options);
        BatchSolve solve(options,
                         ext_options,
                         &part,
                         machines.get(),
                         clock,
                         &solved->summary,
                         full,
                         stop);
        solved->is_done = solve.RunWindows(&solved->reason);
      },
      &solved->reason);
}

// Deals the windows of the batch out over devices, a thread for each, by
// numbers of residual blocks. False, with a sentence in *reason: nothing was
// solved.
bool RunWindowsByDevices(const ceres::Solver::Options& options,
                         const Options& ext_options,
                         const std::vector<int>& devices,
                         const ProblemBatch& batch,
                         const Clock* clock,
                         BatchSummary* summary,
                         std::vector<Summary>* full_summaries,
                         const StopFlag* stop,
                         std::string* reason) {
  const auto rows_before = [&](int64_t i) {
    int64_t num_rows = 0;
    for (const int64_t* const begin : batch.residual_begin) {
      num_rows += begin[i];
    }
    return num_rows;
  };
  const int64_t n = batch.num_problems;
  const auto num_devices = static_cast<int64_t>(devices.size());
  std::vector<int64_t> begin(devices.size() + 1, 0);
  begin.back() = n;
  for (int64_t d = 1; d < num_devices; ++d) {
    int64_t& at = begin[static_cast<size_t>(d)];
    at = begin[static_cast<size_t>(d - 1)];
    while (at < n && rows_before(at) < rows_before(n) / num_devices * d) {
      ++at;
    }
  }
  ceres::Solver::Options of_device = options;
  of_device.num_threads =
      std::max(1, options.num_threads / static_cast<int>(num_devices));
  std::vector<Options> ext_of_devices(devices.size(), ext_options);
  std::vector<SolvedWindows> solved(devices.size());
  const auto run = [&](size_t d) {
    RunWindowsOf(of_device,
                 ext_of_devices[d],
                 batch,
                 begin[d],
                 begin[d + 1],
                 clock,
                 full_summaries != nullptr,
                 stop,
                 &solved[d]);
  };
  std::vector<std::thread> threads;
  threads.reserve(devices.size());
  for (size_t d = 0; d < devices.size(); ++d) {
    ext_of_devices[d].cuda_devices.clear();
    ext_of_devices[d].cuda_device = devices[d];
  }
  for (size_t d = 1; d < devices.size(); ++d) {
    try {
      threads.emplace_back(run, d);
    } catch (const std::exception&) {
      run(d);  // No more threads, or memory for them, are available.
    }
  }
  run(0);
  for (std::thread& thread : threads) {
    thread.join();
  }
  if (std::none_of(solved.begin(), solved.end(), [](const SolvedWindows& s) {
        return s.is_done;
      })) {
    *reason = solved[0].reason;
    return false;
  }
  for (size_t d = 0; d < devices.size(); ++d) {
    SolvedWindows& part = solved[d];
    for (int64_t i = begin[d]; i < begin[d + 1]; ++i) {
      const auto k = static_cast<size_t>(i - begin[d]);
      ProblemSummary& problem = summary->problems[i];
      if (part.is_done) {
        problem = std::move(part.summary.problems[k]);
        if (full_summaries != nullptr) {
          (*full_summaries)[i] = std::move(part.full_summaries[k]);
        }
      } else {
        FailWindow(i, part.reason.c_str(), summary, full_summaries);
      }
    }
    if (!part.summary.device.empty()) {
      summary->device +=
          (summary->device.empty() ? "" : ", ") + part.summary.device;
    }
    summary->num_windows += part.summary.num_windows;
    summary->pack_time_in_seconds = std::max(summary->pack_time_in_seconds,
                                             part.summary.pack_time_in_seconds);
    summary->window_time_in_seconds = std::max(
        summary->window_time_in_seconds, part.summary.window_time_in_seconds);
  }
  return true;
}

// The same by all devices that the options name, or by one.
bool RunAllWindows(const ceres::Solver::Options& options,
                   const Options& ext_options,
                   const ProblemBatch& batch,
                   KeptMachines* machines,
                   const Clock* clock,
                   BatchSummary* summary,
                   std::vector<Summary>* full_summaries,
                   const StopFlag* stop,
                   std::string* reason) {
  std::vector<int> devices;
  if (!ReadDevices(ext_options.cuda_devices, &devices, reason)) {
    return false;
  }
  if (devices.size() > 1 && ext_options.device != DEVICE_HOST &&
      ext_options.cuda_stream == nullptr) {
    return RunWindowsByDevices(options,
                               ext_options,
                               devices,
                               batch,
                               clock,
                               summary,
                               full_summaries,
                               stop,
                               reason);
  }
  const Options of_one = WithOneDevice(ext_options);
  BatchSolve solve(
      options, of_one, &batch, machines, clock, summary, full_summaries, stop);
  return solve.RunWindows(reason);
}

// Solves a part of a list. False, with a sentence in *reason, or an exception:
// nothing has changed.
bool SolvePart(const ceres::Solver::Options& options,
               const Options& ext_options,
               const std::vector<ceres::Problem*>& problems,
               const BatchOfProblems::Part& of_list,
               KeptMachines* machines,
               const Clock* clock,
               BatchSummary* summary,
               std::vector<Summary>* full_summaries,
               const StopFlag* stop,
               std::string* reason) {
  const std::vector<int64_t>& numbers = of_list.numbers;
  const auto m = static_cast<int64_t>(numbers.size());
  BatchSummary part;
  std::vector<Summary> full_part;
  std::vector<Summary>* const full =
      full_summaries != nullptr ? &full_part : nullptr;
  Prepare(m, &part, full);
  if (!RunAllWindows(options,
                     ext_options,
                     of_list.table->batch(),
                     machines,
                     clock,
                     &part,
                     full,
                     stop,
                     reason)) {
    return false;
  }
  for (int64_t k = 0; k < m; ++k) {
    const int64_t i = numbers[k];
    if (part.problems[k].IsSolutionUsable()) {
      of_list.table->Write(k);
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
  if (!part.device.empty()) {
    AssignOrShorten(part.device.c_str(), &summary->device);
  }
  summary->num_windows += part.num_windows;
  summary->pack_time_in_seconds += part.pack_time_in_seconds;
  summary->window_time_in_seconds += part.window_time_in_seconds;
  return true;
}

}  // namespace

bool SolveBatch(const ceres::Solver::Options& options,
                const Options& ext_options,
                ProblemBatch* batch,
                BatchSummary* summary,
                std::string* error,
                std::vector<Summary>* full_summaries,
                const StopFlag* stop) {
  const auto run = [&](std::string* reason) {
    const Clock clock;
    Prepare(0, summary, full_summaries);
    if (batch == nullptr) {
      *reason = "batch is null; expected a ceres_ext::ProblemBatch";
      return false;
    }
    const Options of_one = WithOneDevice(ext_options);
    BorrowedMachines machines(ext_options);
    if (!IsValidBatch(
            *batch, machines->host_context(options.num_threads), reason)) {
      return false;
    }
    Prepare(batch->num_problems, summary, full_summaries);
    if (batch->num_problems == 0) {
      return true;
    }
    // Takes memory, and nothing has been solved yet.
    const std::vector<int> num_residuals = full_summaries == nullptr
                                               ? std::vector<int>()
                                               : NumResiduals(batch->problem);
    if (!RunAllWindows(options,
                       ext_options,
                       *batch,
                       machines.get(),
                       &clock,
                       summary,
                       full_summaries,
                       stop,
                       reason)) {
      return false;
    }
    BatchSolve solve(options,
                     of_one,
                     batch,
                     machines.get(),
                     &clock,
                     summary,
                     full_summaries,
                     stop);
    solve.RunOthers();
    for (int64_t i = 0; i < batch->num_problems && full_summaries != nullptr;
         ++i) {
      if (summary->problems[i].is_window) {
        CountAll(*batch, i, num_residuals, &(*full_summaries)[i]);
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
                std::vector<Summary>* full_summaries,
                const StopFlag* stop) {
  const auto run = [&](std::string* reason) {
    const Clock clock;
    Prepare(0, summary, full_summaries);
    const Options of_one = WithOneDevice(ext_options);
    BorrowedMachines machines(ext_options);
    kernels::HostContext* const context =
        machines->host_context(options.num_threads);
    BatchOfProblems batches(&problems, context);
    if (!batches.AreApart(reason)) {
      return false;
    }
    const auto n = static_cast<int64_t>(problems.size());
    Prepare(n, summary, full_summaries);
    for (const BatchOfProblems::Part& part : batches.MakeParts()) {
      Failure failure;
      const bool is_done = failure.Guard(false, [&] {
        return SolvePart(options,
                         ext_options,
                         problems,
                         part,
                         machines.get(),
                         &clock,
                         summary,
                         full_summaries,
                         stop,
                         reason);
      });
      if (is_done) {
        continue;
      }
      if (!failure.has_happened()) {
        failure.Set(*reason);
      }
      if (summary->num_windows == 0) {
        *reason = failure.sentence();
        return false;
      }
      // Problems of other parts are solved.
      for (const int64_t i : part.numbers) {
        FailWindow(i, failure.sentence(), summary, full_summaries);
      }
    }
    {
      const ScopedSeconds time(&summary->other_time_in_seconds);
      for (int64_t i = 0; i < n; ++i) {
        ProblemSummary& of_one = summary->problems[i];
        if (!of_one.is_window) {
          TryOrSay(
              [&] {
                if (IsStopped(stop)) {
                  SummarizeUnbegun(&of_one,
                                   full_summaries != nullptr
                                       ? &(*full_summaries)[i]
                                       : nullptr);
                  return;
                }
                if (of_one.path_reason.empty()) {
                  of_one.path_reason = batches.reason(i);
                }
                StoppableOptions stoppable(options, ValueOf(stop));
                Summary full;
                Solve(stoppable.options(), ext_options, problems[i], &full);
                Summarize(full, &of_one);
                if (full_summaries != nullptr) {
                  (*full_summaries)[i] = std::move(full);
                }
              },
              &of_one.message);
          of_one.latency_in_seconds = clock.seconds();
        }
      }
    }
    summary->total_time_in_seconds = clock.seconds();
    return true;
  };
  return SolveAll(options, ext_options, run, error);
}

}  // namespace ceres_ext
