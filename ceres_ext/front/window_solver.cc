// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/window_solver.h"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ceres_ext/base/failure.h"
#include "ceres_ext/base/scoped_seconds.h"
#include "ceres_ext/front/ranks.h"
#include "ceres_ext/plan/device_choice.h"
#include "ceres_ext/plan/solver_choice.h"
#include "ceres_ext/session/kept_machines.h"
#include "ceres_ext/small/batch_bounds.h"
#include "ceres_ext/small/kind.h"
#include "ceres_ext/small/marginal.h"
#include "ceres_ext/small/one_of_batch.h"
#include "ceres_ext/small/queue.h"
#include "ceres_ext/small/window/window_bounds.h"
#include "ceres_ext/under_ceres/solve_once.h"
#include "cuda_kernels/machine/host_context.h"

namespace ceres_ext {
namespace {

using Ticket = WindowSolver::Ticket;

// A submission in flight.
struct Submission {
  Submission(const Options& ext_options, const ceres::Solver::Options& options)
      : region_options(OptionsOfRegion(ext_options, options, &stop, 0.0)) {}

  Ticket ticket = 0;  // 0: free
  int32_t stop = 0;
  const LoopOptions region_options;
  SmallLane* lane = nullptr;
  ProblemBatch batch;
  std::array<std::unique_ptr<SmallKind>, kNumSmallKinds> kinds;
  BatchSummary summary;
  Clock clock;

  // Numbers of the problems that host threads have to solve, how many of them
  // are begun, and how many are done.
  std::vector<int64_t> tasks;
  // 1 for each problem that the device has solved, of which the prior is left.
  std::vector<uint8_t> is_solved;
  size_t num_begun = 0;
  size_t num_done = 0;
};

}  // namespace

class WindowSolver::Impl {
 public:
  Impl(const ceres::Solver::Options& options,
       const Options& ext_options,
       const WindowCapacity& capacity)
      : options_(options),
        options_of_others_(WithOneDevice(ext_options)),
        capacity_(capacity),
        queue_(ext_options, options.num_threads, &machines_, &capacity_) {}

  ~Impl() {
    Stop();
    {
      std::unique_lock<std::mutex> lock(mutex_);
      is_ending_ = true;
    }
    work_.notify_all();
    for (std::thread& thread : threads_) {
      thread.join();
    }
    // Waits in the order of submission. The results do not matter.
    std::sort(
        submissions_.begin(),
        submissions_.end(),
        [](const auto& a, const auto& b) { return a->ticket < b->ticket; });
    for (const auto& submission : submissions_) {
      static_cast<void>(submission->lane->Wait());
      submission->lane->LeaveDevice();
    }
  }

  // May throw.
  bool Setup(std::string* error) {
    submissions_.reserve(capacity_.num_submissions);
    for (int s = 0; s < capacity_.num_submissions; ++s) {
      auto submission =
          std::make_unique<Submission>(options_of_others_, options_);
      submission->summary.problems.reserve(capacity_.num_problems);
      submission->tasks.reserve(capacity_.num_problems);
      submission->lane = queue_.AddLane(&submission->region_options);
      submissions_.push_back(std::move(submission));
    }
    to_begin_.reserve(capacity_.num_submissions);
    if (!queue_.ChooseDevice(capacity_.num_rows * capacity_.num_problems,
                             submissions_.size(),
                             error)) {
      return false;
    }
    const int num_threads = std::max(1, options_.num_threads);
    for (int t = 0; t < num_threads; ++t) {
      workspaces_.push_back(queue_.lanes()[0]->MakeWorkspaces());
    }
    for (int t = 0; t < num_threads; ++t) {
      threads_.emplace_back([this, t] { Work(&workspaces_[t]); });
    }
    return true;
  }

  Ticket Submit(const ProblemBatch& batch, std::string* error) {
    Submission* const one = Take(error);
    if (one == nullptr) {
      return 0;
    }
    Failure failure;
    const bool is_begun = failure.Guard(false, [&] {
      if (!Begin(batch, one, error)) {
        failure.Set(*error);
        return false;
      }
      return true;
    });
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!is_begun) {
      AssignOrShorten(failure.sentence(), error);
      one->ticket = 0;
      return 0;
    }
    Enqueue(one);
    return one->ticket;
  }

  State Poll(Ticket ticket, BatchSummary* summary) {
    Submission* const one = Find(ticket);
    if (one == nullptr) {
      return State::kUnknown;
    }
    if (!one->lane->IsDone()) {
      return State::kRunning;
    }
    Collect(one);
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (one->num_done < one->tasks.size()) {
        return State::kRunning;
      }
    }
    Give(one, summary);
    return State::kDone;
  }

  bool Wait(Ticket ticket, BatchSummary* summary) {
    Submission* const one = Find(ticket);
    if (one == nullptr) {
      return false;
    }
    Collect(one);
    {
      std::unique_lock<std::mutex> lock(mutex_);
      done_.wait(lock, [&] { return one->num_done == one->tasks.size(); });
    }
    Give(one, summary);
    return true;
  }

  void Stop() {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& one : submissions_) {
      if (one->ticket != 0) {
        __atomic_store_n(&one->stop, 1, __ATOMIC_RELAXED);
      }
    }
    queue_.Stop();
  }

  const WindowCapacity& capacity() const { return capacity_; }
  std::string device() const { return queue_.device(); }

 private:
  Submission* Take(std::string* error) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& one : submissions_) {
      if (one->ticket == 0) {
        one->ticket = ++last_ticket_;
        one->stop = 0;
        return one.get();
      }
    }
    AssignOrShorten("as many submissions are in flight as the capacity has",
                    error);
    return nullptr;
  }

  Submission* Find(Ticket ticket) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& one : submissions_) {
      if (ticket > 0 && one->ticket == ticket) {
        return one.get();
      }
    }
    return nullptr;
  }

  // Checks the batch and submits it. May throw.
  bool Begin(const ProblemBatch& batch, Submission* one, std::string* error) {
    SmallLane* const lane = one->lane;
    one->clock = Clock();
    one->tasks.clear();
    one->num_begun = 0;
    one->num_done = 0;
    one->batch = batch;
    lane->Clear();
    const std::lock_guard<std::mutex> lock(pack_mutex_);
    kernels::HostContext* const context =
        machines_.host_context(options_.num_threads);
    if (!IsValidBatch(one->batch, context, error)) {
      return false;
    }
    if (!one->batch.covariance_is_wanted.empty()) {
      *error =
          "covariance_is_wanted: a WindowSolver finds no covariance, as "
          "SolveBatch does; expected an empty vector";
      return false;
    }
    *error = WhyTooLarge(one->batch, capacity_);
    if (!error->empty()) {
      return false;
    }
    const int64_t n = batch.num_problems;
    one->summary.problems.assign(n, ProblemSummary());
    one->summary.marginals.assign(batch.drop.any() ? n : 0, Marginal());
    one->is_solved.assign(n, 0);
    one->summary.pack_time_in_seconds = 0.0;
    SmallRange range;
    range.end = n;
    range.may_share = true;
    range.summary = &one->summary;
    bool has_kind = false;
    for (int k = 0; k < kNumReservedKinds; ++k) {
      one->kinds[k] = MakeSmallKind(k, &one->batch);
      range.kinds[k] = one->kinds[k].get();
      has_kind |= range.kinds[k]->reason().empty();
    }
    for (int64_t i = 0; i < n && !has_kind; ++i) {
      one->summary.problems[i].path_reason = WhyOfNoKind(range.kinds);
    }
    if (!queue_.Submit(range, lane, error)) {
      return false;
    }
    EndRefused(one);
    for (int64_t i = 0; i < n; ++i) {
      if (!one->summary.problems[i].IsSolvedWhole()) {
        one->tasks.push_back(i);
      }
    }
    const std::vector<int64_t> of_host = lane->Numbers(SmallLane::kOfHost);
    one->tasks.insert(one->tasks.end(), of_host.begin(), of_host.end());
    const std::lock_guard<std::mutex> in_flight(mutex_);
    if (one->stop != 0) {
      lane->Stop();  // It was stopped while it was packed.
    }
    return true;
  }

  // The device has failed, and the host may not replace it.
  static void EndRefused(Submission* one) {
    for (const int64_t i : one->lane->Numbers(SmallLane::kRefused)) {
      one->summary.problems[i].message = one->lane->refusal();
      if (!one->summary.marginals.empty()) {
        MarginalMemory memory;
        MarginalizeSolved(one->batch,
                          i,
                          one->summary.problems[i],
                          &memory,
                          &one->summary.marginals[i]);
      }
      one->summary.problems[i].latency_in_seconds = one->clock.seconds();
    }
  }

  // Writes the results of the device; the host solves the rest.
  void Collect(Submission* one) {
    SmallLane* const lane = one->lane;
    if (!lane->IsRunning()) {
      return;
    }
    Failure failure;
    failure.Guard(false, [&] {
      const std::vector<int64_t> numbers = lane->Numbers(SmallLane::kOfDevice);
      queue_.Collect(lane);
      for (const int64_t i : lane->Numbers(SmallLane::kOfDevice)) {
        lane->Finish(i);
        one->summary.problems[i].latency_in_seconds = one->clock.seconds();
      }
      EndRefused(one);
      const bool has_failed = lane->Numbers(SmallLane::kOfDevice).empty();
      const std::lock_guard<std::mutex> lock(mutex_);
      for (const int64_t i : numbers) {
        const bool is_solved = !(has_failed && lane->refusal().empty()) &&
                               one->summary.problems[i].IsSolvedWhole();
        one->is_solved[i] = is_solved ? 1 : 0;
        if (!is_solved || !one->summary.marginals.empty()) {
          one->tasks.push_back(i);
        }
      }
      return true;
    });
    if (failure.has_happened()) {
      for (ProblemSummary& problem : one->summary.problems) {
        if (problem.IsSolvedWhole() && !problem.IsSolutionUsable()) {
          AssignOrShorten(failure.sentence(), &problem.message);
        }
      }
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    Enqueue(one);
  }

  // The caller holds mutex_.
  void Enqueue(Submission* one) {
    if (one->num_begun < one->tasks.size() &&
        std::find(to_begin_.begin(), to_begin_.end(), one) == to_begin_.end()) {
      to_begin_.push_back(one);
      work_.notify_all();
    }
  }

  void Give(Submission* one, BatchSummary* summary) {
    const std::lock_guard<std::mutex> lock(mutex_);
    AssignOrShorten(queue_.DeviceOf(*one->lane).c_str(), &one->summary.device);
    one->summary.total_time_in_seconds = one->clock.seconds();
    one->summary.num_windows = std::count_if(
        one->summary.problems.begin(),
        one->summary.problems.end(),
        [](const ProblemSummary& problem) { return problem.IsSolvedWhole(); });
    *summary = std::move(one->summary);
    one->summary = BatchSummary();
    one->lane->Clear();
    one->kinds = {};
    one->ticket = 0;
  }

  // The loop of a host thread.
  void Work(SmallWorkspaces* workspaces) {
    MarginalMemory memory;
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      work_.wait(lock, [this] { return is_ending_ || !to_begin_.empty(); });
      if (is_ending_) {
        return;
      }
      Submission* const one = to_begin_.front();
      const int64_t i = one->tasks[one->num_begun++];
      if (one->num_begun == one->tasks.size()) {
        to_begin_.erase(to_begin_.begin());
      }
      lock.unlock();
      SolveOnHost(i, one, workspaces, &memory);
      lock.lock();
      if (++one->num_done == one->tasks.size()) {
        done_.notify_all();
      }
    }
  }

  void SolveOnHost(int64_t i,
                   Submission* one,
                   SmallWorkspaces* workspaces,
                   MarginalMemory* memory) {
    ProblemSummary& summary = one->summary.problems[i];
    Failure failure;
    failure.Guard(false, [&] {
      if (one->is_solved[i] != 0) {
        return true;
      }
      if (summary.IsSolvedWhole()) {
        one->lane->SolveOnHost(i, workspaces);
        one->lane->Finish(i);
      }
      if (!summary.IsSolvedWhole()) {
        StoppableOptions stoppable(options_, &one->stop);
        stoppable.options().num_threads = 1;
        SolveOther(
            stoppable.options(), options_of_others_, one->batch, i, &summary);
      }
      return true;
    });
    if (failure.has_happened()) {
      AssignOrShorten(failure.sentence(), &summary.message);
    }
    if (!one->summary.marginals.empty()) {
      MarginalizeSolved(
          one->batch, i, summary, memory, &one->summary.marginals[i]);
    }
    summary.latency_in_seconds = one->clock.seconds();
  }

  const ceres::Solver::Options options_;
  const Options options_of_others_;  // of other problems than windows
  const WindowCapacity capacity_;
  // Held while a submission is checked and packed.
  std::mutex pack_mutex_;
  KeptMachines machines_;

  // Guards tickets, tasks and to_begin_.
  std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable done_;
  std::vector<std::unique_ptr<Submission>> submissions_;
  SmallQueue queue_;                   // a lane of each
  std::vector<Submission*> to_begin_;  // with tasks, in order
  Ticket last_ticket_ = 0;
  bool is_ending_ = false;
  std::vector<SmallWorkspaces> workspaces_;  // of threads_
  std::vector<std::thread> threads_;
};

WindowSolver::WindowSolver(std::unique_ptr<Impl> impl)
    : impl_(std::move(impl)) {}
WindowSolver::~WindowSolver() = default;

std::unique_ptr<WindowSolver> WindowSolver::Create(
    const ceres::Solver::Options& options,
    const Options& ext_options,
    const WindowCapacity& capacity,
    std::string* error) {
  std::string unused;
  error = error != nullptr ? error : &unused;
  Failure failure;
  std::unique_ptr<WindowSolver> solver;
  failure.Guard(false, [&] {
    std::string reason;
    if (!CanSolve(options, ext_options, /*problem=*/nullptr, &reason) ||
        !HasNoRanks(ext_options, "a window", &reason) ||
        !options.IsValid(&reason) || !IsValidCapacity(capacity, &reason)) {
      failure.Set(reason);
      return false;
    }
    reason = WhyNotSmall(ext_options, options, SmallLoop::kPlain);
    if (!reason.empty()) {
      failure.Set("windows and fits do not support these options: " + reason);
      return false;
    }
    auto impl = std::make_unique<Impl>(options, ext_options, capacity);
    if (!impl->Setup(&reason)) {
      failure.Set(reason);
      return false;
    }
    solver.reset(new WindowSolver(std::move(impl)));
    return true;
  });
  if (solver == nullptr) {
    AssignOrShorten(failure.sentence(), error);
  }
  return solver;
}

WindowSolver::Ticket WindowSolver::Submit(const ProblemBatch& batch,
                                          std::string* error) {
  std::string unused;
  return impl_->Submit(batch, error != nullptr ? error : &unused);
}

WindowSolver::State WindowSolver::Poll(Ticket ticket, BatchSummary* summary) {
  return impl_->Poll(ticket, summary);
}

bool WindowSolver::Wait(Ticket ticket, BatchSummary* summary) {
  return impl_->Wait(ticket, summary);
}

void WindowSolver::Stop() { impl_->Stop(); }

std::string WindowSolver::device() const { return impl_->device(); }

const WindowCapacity& WindowSolver::capacity() const {
  return impl_->capacity();
}

}  // namespace ceres_ext
