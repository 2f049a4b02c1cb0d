// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/small/batch_solve.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include "ceres_ext/plan/solver_choice.h"
#include "ceres_ext/small/batch_summary.h"
#include "ceres_ext/small/kind.h"
#include "ceres_ext/small/queue.h"
#include "cuda_kernels/machine/host_context.h"

namespace ceres_ext {

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

// Pieces of a batch in lanes that take turns.
class BatchSolve {
 public:
  BatchSolve(const BatchCall& call,
             const ProblemBatch& batch,
             KeptMachines* machines)
      : call_(call),
        region_options_(OptionsOfRegion(call.ext_options,
                                        call.options,
                                        call.stop_value(),
                                        call.clock.seconds())),
        batch_(batch),
        context_(machines->host_context(call.options.num_threads)),
        queue_(call.ext_options,
               call.options.num_threads,
               machines,
               /*capacity=*/nullptr) {}

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
  int64_t most_lanes() const {
    return 4 * std::max<int64_t>(1, static_cast<int64_t>(queue_.num_devices()));
  }

  BatchSummary& summary() { return *call_.summary; }
  int64_t limit() const { return call_.ext_options.cuda_memory_limit_bytes; }

  bool TryRun(std::string* error) {
    const std::string reason = WhyNot(SmallLoop::kAny);
    if (!reason.empty()) {
      GiveReason(reason);
      return true;
    }
    int first = 0;
    while (first < kNumSmallKinds && !Make(first)) {
      ++first;
    }
    if (first == kNumSmallKinds) {
      SmallKinds all{};
      std::transform(
          std::begin(kinds_), std::end(kinds_), all.begin(), [](const auto& k) {
            return k.get();
          });
      GiveReason(WhyOfNoKind(all));
      return true;
    }
    int64_t num_rows = 0;
    for (const auto& residuals : batch_.problem.residuals()) {
      num_rows += residuals.num_blocks;
    }
    if (!queue_.ChooseDevice(num_rows,
                             std::min(queue_.num_devices(),
                                      static_cast<size_t>(batch_.num_problems)),
                             error)) {
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
    summary().device = queue_.device() + host_of_others_;
    summary().window_time_in_seconds =
        call_.clock.seconds() - start - summary().pack_time_in_seconds;
    return true;
  }

  // True if some problems may be of this kind.
  bool Make(int k) {
    if (kinds_[k] == nullptr) {
      kinds_[k] = MakeSmallKind(k, &batch_);
      kinds_[k]->Refuse(WhyNot(kinds_[k]->loop()));
    }
    return kinds_[k]->reason().empty();
  }

  std::string WhyNot(SmallLoop loop) const {
    return WhyNotSmall(call_.ext_options, call_.options, loop);
  }

  void GiveReason(const std::string& reason) {
    for (ProblemSummary& problem : summary().problems) {
      problem.path_reason = reason;
    }
  }

  // The end of the piece that begins with a problem: the last one with which it
  // is not too large.
  int64_t EndOfPiece(int k, int64_t begin) const {
    const PieceSize size = kinds_[k]->piece_size();
    int64_t bytes = size.bytes;
    if (limit() > 0) {
      bytes = std::min(bytes, limit() / size.part_of_limit);
    }
    const auto num_devices = static_cast<int64_t>(queue_.num_devices());
    if (queue_.has_device() && num_devices > 1) {
      // Each device has a piece.
      bytes = std::min(
          bytes, kinds_[k]->NumBytes(0, batch_.num_problems) / num_devices + 1);
    }
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
         begin < batch_.num_problems && num_pieces < most_lanes();
         begin = EndOfPiece(k, begin)) {
      ++num_pieces;
    }
    return num_pieces;
  }

  // Solves the problems of a kind that are not taken.
  void RunKind(int k) {
    const int64_t num_pieces = queue_.has_device() ? CountPieces(k) : 0;
    const size_t num_lanes = queue_.DealLanes(
        num_pieces, kinds_[k]->piece_size().num_in_flight, &region_options_);
    SmallRange range;
    range.kinds[k] = kinds_[k].get();
    range.is_taken = &is_taken_;
    range.may_share = num_pieces == 1;
    range.summary = &summary();
    for (size_t number = 0;
         range.begin < batch_.num_problems && !call_.IsStopped();
         ++number) {
      SmallLane* const lane = queue_.lanes()[number % num_lanes].get();
      Finish(lane);
      range.end = EndOfPiece(k, range.begin);
      Submit(range, lane);
      range.begin = range.end;
    }
    for (const auto& lane : queue_.lanes()) {
      Finish(lane.get());
    }
  }

  void Submit(const SmallRange& range, SmallLane* lane) {
    std::string unused;  // There is no capacity to exceed.
    queue_.Submit(range, lane, &unused);
    for (int64_t i = range.begin; i < range.end; ++i) {
      const SmallPiece* const piece = lane->PieceOf(i);
      // One that could not be packed may be of another kind.
      if (piece != nullptr && piece->Has(i)) {
        is_taken_[i] = 1;
      }
    }
    if (!lane->host_reason().empty()) {
      host_of_others_ =
          ", " + lane->host_plural() + ": " + queue_.DeviceOf(*lane);
    }
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
    for (const int64_t i : lane->Numbers(SmallLane::kRefused)) {
      summary().problems[i].latency_in_seconds = call_.clock.seconds();
      ++summary().num_windows;
      call_.Fail(i, lane->refusal().c_str());
    }
    queue_.SolveOnHost(lane);
    std::vector<int64_t> numbers = lane->Numbers(SmallLane::kOfHost);
    const std::vector<int64_t> of_device = lane->Numbers(SmallLane::kOfDevice);
    numbers.insert(numbers.end(), of_device.begin(), of_device.end());
    ForEach(context_,
            static_cast<int64_t>(numbers.size()),
            [&](int64_t e, int /*slot*/) { lane->Finish(numbers[e]); });
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

  const BatchCall& call_;
  const LoopOptions region_options_;
  const ProblemBatch& batch_;
  kernels::HostContext* const context_;
  std::unique_ptr<SmallKind> kinds_[kNumSmallKinds];
  std::vector<uint8_t> is_taken_;  // of problems: they are of some kind
  SmallQueue queue_;
  // ", fits: " and the host, if it solves those that the device does not.
  std::string host_of_others_;
};

}  // namespace

bool SolveKinds(const BatchCall& call,
                const ProblemBatch& batch,
                KeptMachines* machines,
                std::string* error) {
  return BatchSolve(call, batch, machines).Run(error);
}

}  // namespace ceres_ext
