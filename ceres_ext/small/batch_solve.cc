// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/small/batch_solve.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>
#include <thread>
#include <utility>

#include "ceres_ext/base/machines.h"
#include "ceres_ext/plan/device_choice.h"
#include "ceres_ext/session/idle_machines.h"
#include "ceres_ext/small/batch_summary.h"
#include "ceres_ext/small/kind.h"
#include "ceres_ext/small/queue.h"
#include "ceres_ext/small/window_options.h"
#include "cuda_kernels/machine/host_context.h"

namespace ceres_ext {

using kernels::Status;

void BatchCall::Prepare(int64_t n) const {
  *summary = BatchSummary();
  summary->problems.resize(n);
  if (full_summaries != nullptr) {
    full_summaries->assign(n, Summary());
  }
}

void BatchCall::Fail(int64_t i, const char* why) const {
  ProblemSummary& problem = summary->problems[i];
  // ceres_ext::Solve does not try it.
  if (!problem.IsSolvedWhole()) {
    problem.solved_as = SOLVED_AS_WINDOW;
  }
  AssignOrShorten(why, &problem.message);
  if (full_summaries != nullptr) {
    AssignOrShorten(why, &(*full_summaries)[i].message);
  }
}

namespace {

// The problems of a batch on one device.
class BatchSolve {
 public:
  BatchSolve(const BatchCall& call,
             const Options& ext_options,
             const ProblemBatch& batch,
             KeptMachines* machines)
      : call_(call),
        ext_options_(ext_options),
        region_options_(OptionsOfRegion(call.options, call.stop_value())),
        batch_(batch),
        machines_(machines),
        context_(machines->host_context(call.options.num_threads)),
        queue_(ext_options,
               machines->GetHost(call.options.num_threads)->Name(),
               /*shares_device=*/true) {}
  // Frees the device's memory while the device is current.
  ~BatchSolve() { LeaveDevices(); }
  BatchSolve(const BatchSolve&) = delete;
  BatchSolve& operator=(const BatchSolve&) = delete;

  bool Run(std::string* error) {
    Failure failure;
    const bool is_done = failure.Guard(false, [&] { return TryRun(error); });
    if (!failure.has_happened()) {
      return is_done;
    }
    if (summary().num_windows == 0) {
      *error = failure.sentence();
      return false;
    }
    for (int64_t i = 0; i < batch_.num_problems; ++i) {
      ProblemSummary& problem = summary().problems[i];
      if (problem.message.empty() && !problem.IsSolutionUsable()) {
        problem.latency_in_seconds = call_.clock.seconds();
        call_.Fail(i, failure.sentence());
      }
    }
    return true;
  }

 private:
  static constexpr int64_t kMostLanes = 4;

  BatchSummary& summary() { return *call_.summary; }
  int64_t limit() const { return ext_options_.cuda_memory_limit_bytes; }

  bool TryRun(std::string* error) {
    const std::string reason = WhyNoWindows(call_.options, ext_options_);
    if (!reason.empty()) {
      GiveReason(reason);
      return true;
    }
    int first = 0;
    while (first < kNumSmallKinds && !Make(first)) {
      ++first;
    }
    if (first == kNumSmallKinds) {
      GiveReason(WhyOfNoKind({kinds_[0].get(), kinds_[1].get()}));
      return true;
    }
    if (!ChooseDevice(error)) {
      return false;
    }
    const double start = call_.clock.seconds();
    is_taken_.assign(batch_.num_problems, 0);
    for (int k = first; k < kNumSmallKinds; ++k) {
      const bool are_all_taken =
          std::find(is_taken_.begin(), is_taken_.end(), 0) == is_taken_.end();
      if (!are_all_taken && Make(k)) {
        RunKind(k);
      }
    }
    NameDevice();
    summary().window_time_in_seconds =
        call_.clock.seconds() - start - summary().pack_time_in_seconds;
    return true;
  }

  // True if some problems may be of this kind.
  bool Make(int k) {
    if (kinds_[k] == nullptr) {
      kinds_[k] = MakeSmallKind(k, &batch_);
    }
    return kinds_[k]->reason().empty();
  }

  void NameDevice() {
    const auto& problems = summary().problems;
    const bool are_fits =
        std::all_of(problems.begin(), problems.end(), [](const auto& problem) {
          return problem.solved_as == SOLVED_AS_FIT;
        });
    summary().device = host_of_fits_.empty() ? queue_.device()
                       : are_fits
                           ? host_of_fits_
                           : queue_.device() + ", fits: " + host_of_fits_;
  }

  void GiveReason(const std::string& reason) {
    for (ProblemSummary& problem : summary().problems) {
      problem.path_reason = reason;
    }
  }

  bool ChooseDevice(std::string* error) {
    int64_t num_rows = 0;
    for (const auto& residuals : batch_.problem.residuals()) {
      num_rows += residuals.num_blocks;
    }
    const auto open = [&](std::string* name) {
      std::shared_ptr<KeptMachines::Device> device;
      CERES_EXT_RETURN_IF_ERROR(machines_->GetDevice(
          ext_options_, call_.options.num_threads, &device));
      device->KeepMemory(true);
      *name = device->Name();
      devices_.push_back(std::move(device));
      return Status();
    };
    return queue_.ChooseDevice(num_rows, open, error);
  }

  // Makes streams for so many lanes at most, so that they run at once. There is
  // one if the caller has given it, or limits the memory.
  void OpenDevices(int64_t num_lanes) {
    if (ext_options_.cuda_stream != nullptr || limit() > 0) {
      return;
    }
    while (static_cast<int64_t>(devices_.size()) <
           std::min(num_lanes, kMostLanes)) {
      std::shared_ptr<KeptMachines::Device> device;
      if (!machines_
               ->GetOtherDevice(ext_options_,
                                call_.options.num_threads,
                                devices_.size() - 1,
                                &device)
               .ok()) {
        return;
      }
      device->KeepMemory(true);
      devices_.push_back(std::move(device));
    }
  }

  // The end of the piece that begins with a problem: the last one with which it
  // is not too large.
  int64_t EndOfPiece(int k, int64_t begin) const {
    const PieceSize size = kinds_[k]->piece_size();
    const int64_t bytes =
        limit() > 0 ? std::min(size.bytes, limit() / size.part_of_limit)
                    : size.bytes;
    int64_t end = begin + 1;
    int64_t too_far = batch_.num_problems + 1;
    while (too_far - end > 1) {
      const int64_t middle = end + (too_far - end) / 2;
      (kinds_[k]->NumBytes(begin, middle) <= bytes ? end : too_far) = middle;
    }
    return end;
  }

  int64_t CountPieces(int k) const {
    int64_t num_pieces = 0;
    for (int64_t begin = 0;
         begin < batch_.num_problems && num_pieces < kMostLanes;
         begin = EndOfPiece(k, begin)) {
      ++num_pieces;
    }
    return num_pieces;
  }

  // Returns the number of lanes that solve problems of the kind.
  size_t PrepareLanes(int k) {
    size_t num_lanes = 1;
    if (queue_.has_device()) {
      const int64_t num_pieces = CountPieces(k);
      OpenDevices(num_pieces);
      num_lanes =
          std::max(devices_.size(),
                   static_cast<size_t>(std::min<int64_t>(
                       num_pieces, kinds_[k]->piece_size().num_in_flight)));
      is_one_piece_ = num_pieces == 1;
    }
    while (queue_.lanes().size() < num_lanes) {
      queue_.AddLane(&region_options_);
    }
    for (size_t l = 0; l < num_lanes; ++l) {
      SmallLane* const lane = queue_.lanes()[l].get();
      lane->LeaveDevice();
      if (queue_.has_device()) {
        // Allocates nothing without a capacity.
        static_cast<void>(lane->Use(devices_[l % devices_.size()],
                                    /*may_lock=*/num_lanes == devices_.size()));
      }
    }
    if (workspaces_.empty()) {
      workspaces_.resize(context_->num_threads());
      for (SmallWorkspaces& of_thread : workspaces_) {
        of_thread = queue_.lanes()[0]->MakeWorkspaces();
      }
    }
    return num_lanes;
  }

  // Solves the problems of a kind that are not taken.
  void RunKind(int k) {
    const size_t num_lanes = PrepareLanes(k);
    int64_t begin = 0;
    for (size_t number = 0; begin < batch_.num_problems && !call_.IsStopped();
         ++number) {
      SmallLane* const lane = queue_.lanes()[number % num_lanes].get();
      Finish(lane);
      const int64_t end = EndOfPiece(k, begin);
      Submit(k, begin, end, lane);
      begin = end;
    }
    for (const auto& lane : queue_.lanes()) {
      Finish(lane.get());
    }
  }

  void Submit(int k, int64_t begin, int64_t end, SmallLane* lane) {
    {
      const ScopedSeconds time(&summary().pack_time_in_seconds);
      SmallKinds kinds{};
      kinds[k] = kinds_[k].get();
      lane->Read(kinds,
                 begin,
                 end,
                 &is_taken_,
                 queue_.may_leave(),
                 context_,
                 &summary());
      for (const bool of_device : {false, true}) {
        for (const int64_t i : lane->Numbers(of_device)) {
          is_taken_[i] = 1;
        }
      }
      lane->Place();
      lane->Pack(context_, &workspaces_);
    }
    if (!lane->host_reason().empty()) {
      host_of_fits_ = queue_.DeviceOf(*lane);
    }
    queue_.Start(/*may_share=*/is_one_piece_, lane);
    LeaveLostDevices();
  }

  // Passes the stop flag, which a device cannot read, to all lanes.
  void WaitForStop(const SmallLane& lane) {
    // A piece takes milliseconds.
    constexpr auto kInterval = std::chrono::microseconds(50);
    while (call_.stop != nullptr && !lane.IsDone()) {
      if (call_.IsStopped()) {
        queue_.Stop();
        return;
      }
      std::this_thread::sleep_for(kInterval);
    }
  }

  // Waits for the lane and writes its results.
  void Finish(SmallLane* lane) {
    WaitForStop(*lane);
    queue_.Collect(lane);
    LeaveLostDevices();
    std::vector<int64_t> numbers = lane->Numbers(/*of_device=*/false);
    if (!lane->refusal().empty()) {
      for (const int64_t i : numbers) {
        summary().problems[i].latency_in_seconds = call_.clock.seconds();
        ++summary().num_windows;
        call_.Fail(i, lane->refusal().c_str());
      }
      lane->Clear();
      return;
    }
    ForEach(numbers, 1, [&](int64_t i, int slot) {
      lane->SolveOnHost(i, &workspaces_[slot]);
    });
    const std::vector<int64_t> of_device = lane->Numbers(/*of_device=*/true);
    numbers.insert(numbers.end(), of_device.begin(), of_device.end());
    ForEach(numbers, 64, [&](int64_t i, int /*slot*/) { lane->Finish(i); });
    const double latency = numbers.empty() ? 0.0 : call_.clock.seconds();
    for (const int64_t i : numbers) {
      ProblemSummary& problem = summary().problems[i];
      problem.latency_in_seconds = latency;
      if (problem.IsSolvedWhole()) {
        ++summary().num_windows;
        DescribeInFull(i, *lane);
      }
    }
    lane->Clear();
  }

  // Calls function(i, slot) for each number, on all threads.
  template <typename Function>
  void ForEach(const std::vector<int64_t>& numbers,
               int64_t grain,
               const Function& function) {
    context_->ParallelFor(static_cast<int64_t>(numbers.size()),
                          grain,
                          [&](int64_t begin, int64_t end, int slot) {
                            for (int64_t e = begin; e < end; ++e) {
                              function(numbers[e], slot);
                            }
                          });
  }

  // Results that are written stay, if there is no memory for the full summary.
  void DescribeInFull(int64_t i, const SmallLane& lane) {
    Summary* const full = call_.full_summary(i);
    if (full != nullptr) {
      TryOrSay(
          [&] {
            SummarizeInFull(summary().problems[i],
                            lane.PieceOf(i)->SizeOf(i),
                            call_.options,
                            queue_.DeviceOf(lane),
                            full);
          },
          &full->message);
    }
  }

  // After an error, devices may be in any state.
  void LeaveLostDevices() {
    if (!devices_.empty() && !queue_.has_device()) {
      LeaveDevices();
      machines_->ClearDevice();
    }
  }
  void LeaveDevices() {
    for (const auto& lane : queue_.lanes()) {
      lane->LeaveDevice();
    }
    for (const auto& device : devices_) {
      device->KeepMemory(false);
    }
    devices_.clear();
  }

  const BatchCall& call_;
  const Options& ext_options_;
  const TrustRegionOptions region_options_;
  const ProblemBatch& batch_;
  KeptMachines* const machines_;
  kernels::HostContext* const context_;
  std::unique_ptr<SmallKind> kinds_[kNumSmallKinds];
  std::vector<uint8_t> is_taken_;  // of problems: they are of some kind
  // With a stream each.
  std::vector<std::shared_ptr<KeptMachines::Device>> devices_;
  SmallQueue queue_;
  std::vector<SmallWorkspaces> workspaces_;  // of threads
  bool is_one_piece_ = false;
  // The host, if it solves fits that the device does not support.
  std::string host_of_fits_;
};

// A part of a batch that one device solves.
struct PartOfBatch {
  int64_t begin = 0;
  int64_t end = 0;
  Options ext_options;
  BatchSummary summary;
  std::vector<Summary> full_summaries;
  bool is_done = false;
  std::string reason;
};

void SolvePart(const BatchCall& call,
               const ProblemBatch& batch,
               int num_threads,
               PartOfBatch* part) {
  TryOrSay(
      [&] {
        ProblemBatch problems = batch;
        problems.num_problems = part->end - part->begin;
        for (auto* const begins :
             {&problems.parameter_begin, &problems.residual_begin}) {
          for (const int64_t*& first : *begins) {
            first += part->begin;
          }
        }
        ceres::Solver::Options options = call.options;
        options.num_threads = num_threads;
        const BatchCall of_part{
            options,
            part->ext_options,
            call.clock,
            call.stop,
            &part->summary,
            call.full_summaries != nullptr ? &part->full_summaries : nullptr};
        of_part.Prepare(problems.num_problems);
        BorrowedMachines machines(part->ext_options);
        BatchSolve solve(of_part, part->ext_options, problems, machines.get());
        part->is_done = solve.Run(&part->reason);
      },
      &part->reason);
}

// Moves the results of a part to the call's.
void TakeResults(const BatchCall& call, PartOfBatch* part) {
  BatchSummary& summary = *call.summary;
  for (int64_t i = part->begin; i < part->end; ++i) {
    const auto k = static_cast<size_t>(i - part->begin);
    if (!part->is_done) {
      call.Fail(i, part->reason.c_str());
      continue;
    }
    summary.problems[i] = std::move(part->summary.problems[k]);
    if (call.full_summaries != nullptr) {
      *call.full_summary(i) = std::move(part->full_summaries[k]);
    }
  }
  if (!part->summary.device.empty()) {
    summary.device +=
        (summary.device.empty() ? "" : ", ") + part->summary.device;
  }
  summary.num_windows += part->summary.num_windows;
  summary.pack_time_in_seconds = std::max(summary.pack_time_in_seconds,
                                          part->summary.pack_time_in_seconds);
  summary.window_time_in_seconds = std::max(
      summary.window_time_in_seconds, part->summary.window_time_in_seconds);
}

// Deals the problems out over devices, a thread for each, by numbers of
// residual blocks.
bool SolveByDevices(const BatchCall& call,
                    const ProblemBatch& batch,
                    const std::vector<int>& devices,
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
  const int num_threads =
      std::max(1, call.options.num_threads / static_cast<int>(num_devices));
  std::vector<PartOfBatch> parts(devices.size());
  int64_t at = 0;
  for (int64_t d = 0; d < num_devices; ++d) {
    PartOfBatch& part = parts[static_cast<size_t>(d)];
    part.ext_options = call.ext_options;
    part.ext_options.cuda_devices.clear();
    part.ext_options.cuda_device = devices[static_cast<size_t>(d)];
    part.begin = at;
    while (at < n &&
           (d + 1 == num_devices ||
            rows_before(at) < rows_before(n) / num_devices * (d + 1))) {
      ++at;
    }
    part.end = at;
  }
  const auto run = [&](size_t d) {
    SolvePart(call, batch, num_threads, &parts[d]);
  };
  std::vector<std::thread> threads;
  threads.reserve(devices.size());
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
  if (std::none_of(parts.begin(), parts.end(), [](const PartOfBatch& part) {
        return part.is_done;
      })) {
    *reason = parts[0].reason;
    return false;
  }
  for (PartOfBatch& part : parts) {
    TakeResults(call, &part);
  }
  return true;
}

}  // namespace

bool SolveKinds(const BatchCall& call,
                const ProblemBatch& batch,
                KeptMachines* machines,
                std::string* error) {
  std::vector<int> devices;
  if (!ReadDevices(call.ext_options.cuda_devices, &devices, error)) {
    return false;
  }
  if (devices.size() > 1 && call.ext_options.device != DEVICE_HOST &&
      call.ext_options.cuda_stream == nullptr) {
    return SolveByDevices(call, batch, devices, error);
  }
  const Options of_one = WithOneDevice(call.ext_options);
  BatchSolve solve(call, of_one, batch, machines);
  return solve.Run(error);
}

}  // namespace ceres_ext
