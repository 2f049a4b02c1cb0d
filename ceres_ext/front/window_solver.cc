// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/window_solver.h"

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <optional>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "ceres/iteration_callback.h"
#include "ceres_ext/base/failure.h"
#include "ceres_ext/base/machines.h"
#include "ceres_ext/base/scoped_seconds.h"
#include "ceres_ext/front/batch_bounds.h"
#include "ceres_ext/front/device_windows.h"
#include "ceres_ext/front/one_of_batch.h"
#include "ceres_ext/front/window_bounds.h"
#include "ceres_ext/front/window_options.h"
#include "ceres_ext/front/window_packer.h"
#include "ceres_ext/front/window_piece.h"
#include "ceres_ext/session/kept_machines.h"
#include "ceres_ext/under_ceres/solve_once.h"
#include "cuda_kernels/machine/host_context.h"

namespace ceres_ext {
namespace {

using kernels::Status;
using Ticket = WindowSolver::Ticket;

// Ends a solve of Ceres's loop as TrustRegionOptions::stop ends a window.
class StopCallback final : public ceres::IterationCallback {
 public:
  explicit StopCallback(const int32_t* stop) : stop_(stop) {}
  ceres::CallbackReturnType operator()(
      const ceres::IterationSummary& /*summary*/) override {
    return __atomic_load_n(stop_, __ATOMIC_RELAXED) != 0
               ? ceres::SOLVER_TERMINATE_SUCCESSFULLY
               : ceres::SOLVER_CONTINUE;
  }

 private:
  const int32_t* const stop_;
};

// Page-locked memory, so that copies are queued.
template <typename Machine>
struct LockedMemory {
  using Buffer =
      std::conditional_t<kIsHost<Machine>, NoDevice, kernels::PageLockedBuffer>;
  Buffer inputs;
  Buffer outputs;
};

// The state of a submission in flight: its batch, memory and, on a device, a
// machine.
struct Lane {
  explicit Lane(const ceres::Solver::Options& options)
      : region_options(OptionsOfRegion(options)), piece(&region_options) {
    region_options.stop = &stop;
  }

  Ticket ticket = 0;  // 0: free
  int32_t stop = 0;
  TrustRegionOptions region_options;
  ProblemBatch batch;
  std::optional<WindowPacker> packer;
  WindowPiece piece;
  BatchSummary summary;
  Clock clock;

  // Numbers of the problems that host threads have to solve, how many of them
  // are begun, and how many are done.
  std::vector<int64_t> tasks;
  size_t num_begun = 0;
  size_t num_done = 0;
  // True if windows are packed and on their way to a device.
  bool is_on_device = false;
  // Error of the device, if the host may not replace it.
  std::string refusal;

  Bytes host_inputs;
  Bytes host_outputs;
  // Outlives the objects on it.
  std::unique_ptr<DeviceMachine> machine;
  std::unique_ptr<DeviceWindows> on_device;
  LockedMemory<DeviceMachine> locked;
};

// Memory of a thread.
struct Workspace {
  WindowPacker::Scratch scratch;
  std::vector<double> memory;
};

// Templates, so that a build without CUDA does not compile their bodies.
template <typename Machine>
Status MakeOnDevice([[maybe_unused]] const Options& ext_options,
                    [[maybe_unused]] const WindowBounds& bounds,
                    [[maybe_unused]] std::unique_ptr<Machine>* machine,
                    [[maybe_unused]] LockedMemory<Machine>* locked,
                    [[maybe_unused]] Lane* lane) {
  if constexpr (kIsHost<Machine>) {
    return {kernels::StatusCode::kUnsupported, "this build has no CUDA"};
  } else {
    const kernels::KeepCurrentContext keep;
    kernels::CudaContextOptions options;
    options.device = ext_options.cuda_device;
    options.stream = static_cast<cudaStream_t>(ext_options.cuda_stream);
    options.memory_limit = ext_options.cuda_memory_limit_bytes;
    CERES_EXT_RETURN_IF_ERROR(Machine::Create(options, machine));
    lane->on_device = std::make_unique<DeviceWindows>(machine->get());
    CERES_EXT_RETURN_IF_ERROR(lane->on_device->Reserve(bounds));
    CERES_EXT_RETURN_IF_ERROR(
        kernels::AllocatePageLocked(bounds.input_bytes, &locked->inputs));
    return kernels::AllocatePageLocked(bounds.output_bytes, &locked->outputs);
  }
}

template <typename Machine>
void UsePageLocked([[maybe_unused]] const LockedMemory<Machine>& locked,
                   [[maybe_unused]] WindowPiece* piece) {
  if constexpr (!kIsHost<Machine>) {
    piece->SetMemory(static_cast<unsigned char*>(locked.inputs.get()),
                     static_cast<unsigned char*>(locked.outputs.get()),
                     /*is_page_locked=*/true);
  }
}

// Frees the lane's memory on the device while the device is current.
void LeaveDevice(Lane* lane) {
  [[maybe_unused]] const KeepCurrentDevice<DeviceMachine> keep;
  lane->on_device.reset();
  lane->machine.reset();
  lane->locked = {};
}

}  // namespace

class WindowSolver::Impl {
 public:
  Impl(const ceres::Solver::Options& options,
       const Options& ext_options,
       const WindowCapacity& capacity)
      : options_(options),
        ext_options_(ext_options),
        capacity_(capacity),
        bounds_(capacity),
        context_(options.num_threads) {}

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
    // Waits in the order of submission.
    std::sort(lanes_.begin(), lanes_.end(), [](const auto& a, const auto& b) {
      return a->ticket < b->ticket;
    });
    for (const auto& lane : lanes_) {
      if (lane->on_device != nullptr && lane->is_on_device) {
        // The result does not matter.
        static_cast<void>(lane->on_device->Wait(&lane->piece));
      }
      LeaveDevice(lane.get());
    }
  }

  // May throw.
  bool Setup(std::string* error) {
    for (int i = 0; i < capacity_.num_submissions; ++i) {
      lanes_.push_back(std::make_unique<Lane>(options_));
      lanes_.back()->summary.problems.reserve(capacity_.num_problems);
      lanes_.back()->tasks.reserve(capacity_.num_problems);
    }
    queue_.reserve(capacity_.num_submissions);
    if (!ChooseDevice(error)) {
      return false;
    }
    const int num_threads = std::max(1, options_.num_threads);
    workspaces_.resize(num_threads);
    for (Workspace& workspace : workspaces_) {
      if (!has_device_) {
        workspace.memory.resize(bounds_.host_size);
      }
    }
    for (int t = 0; t < num_threads; ++t) {
      threads_.emplace_back([this, t] { Work(&workspaces_[t]); });
    }
    return true;
  }

  Ticket Submit(const ProblemBatch& batch, std::string* error) {
    Lane* const lane = TakeLane(error);
    if (lane == nullptr) {
      return 0;
    }
    Failure failure;
    const bool is_begun = failure.Guard(false, [&] {
      if (!Begin(batch, lane, error)) {
        failure.Set(*error);
        return false;
      }
      return true;
    });
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!is_begun) {
      AssignOrShorten(failure.sentence(), error);
      lane->ticket = 0;
      return 0;
    }
    Enqueue(lane);
    return lane->ticket;
  }

  State Poll(Ticket ticket, BatchSummary* summary) {
    Lane* const lane = Find(ticket);
    if (lane == nullptr) {
      return State::kUnknown;
    }
    if (lane->is_on_device) {
      if (!lane->on_device->IsDone()) {
        return State::kRunning;
      }
      Collect(lane->on_device->Wait(&lane->piece), lane);
    }
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (lane->num_done < lane->tasks.size()) {
        return State::kRunning;
      }
    }
    Give(lane, summary);
    return State::kDone;
  }

  bool Wait(Ticket ticket, BatchSummary* summary) {
    Lane* const lane = Find(ticket);
    if (lane == nullptr) {
      return false;
    }
    if (lane->is_on_device) {
      Collect(lane->on_device->Wait(&lane->piece), lane);
    }
    {
      std::unique_lock<std::mutex> lock(mutex_);
      done_.wait(lock, [&] { return lane->num_done == lane->tasks.size(); });
    }
    Give(lane, summary);
    return true;
  }

  void Stop() {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& lane : lanes_) {
      if (lane->ticket != 0) {
        __atomic_store_n(&lane->stop, 1, __ATOMIC_RELAXED);
        if (lane->on_device != nullptr) {
          lane->on_device->Stop();
        }
      }
    }
  }

  std::string device() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return device_;
  }

 private:
  bool ChooseDevice(std::string* error) {
    KeptMachines names;
    device_ = names.GetHost(options_.num_threads)->Name();
    if (ext_options_.device == DEVICE_HOST) {
      return ReserveOnHost();
    }
    if (ext_options_.device == DEVICE_AUTO &&
        capacity_.num_rows * capacity_.num_problems < kMinDeviceRows) {
      device_ += " (fewer than " + std::to_string(kMinDeviceRows) +
                 " residual blocks)";
      return ReserveOnHost();
    }
    for (const auto& lane : lanes_) {
      const Status status = MakeOnDevice(
          ext_options_, bounds_, &lane->machine, &lane->locked, lane.get());
      if (status.ok()) {
        continue;
      }
      for (const auto& made : lanes_) {
        LeaveDevice(made.get());
      }
      if (ext_options_.device == DEVICE_CUDA &&
          ext_options_.fallback == FALLBACK_REFUSE) {
        *error = status.message;
        return false;
      }
      device_ += " (" + status.message + ")";
      return ReserveOnHost();
    }
    has_device_ = true;
    device_ = DeviceName(lanes_[0]->machine.get());
    return true;
  }

  template <typename Machine>
  std::string DeviceName(Machine* machine) const {
    if constexpr (kIsHost<Machine>) {
      return "";
    } else {
      return machine->context()->device_name() + " (CUDA device " +
             std::to_string(machine->context()->device()) + ")";
    }
  }

  bool ReserveOnHost() {
    for (const auto& lane : lanes_) {
      lane->host_inputs.Reserve(bounds_.input_bytes);
      lane->host_outputs.Reserve(bounds_.output_bytes);
    }
    return true;
  }

  Lane* TakeLane(std::string* error) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& lane : lanes_) {
      if (lane->ticket == 0) {
        lane->ticket = ++last_ticket_;
        lane->stop = 0;
        return lane.get();
      }
    }
    AssignOrShorten("as many submissions are in flight as the capacity has",
                    error);
    return nullptr;
  }

  Lane* Find(Ticket ticket) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& lane : lanes_) {
      if (ticket > 0 && lane->ticket == ticket) {
        return lane.get();
      }
    }
    return nullptr;
  }

  // Checks the batch and, on a device, packs and sends it. May throw.
  bool Begin(const ProblemBatch& batch, Lane* lane, std::string* error) {
    lane->clock = Clock();
    lane->is_on_device = false;
    lane->refusal.clear();
    lane->tasks.clear();
    lane->num_begun = 0;
    lane->num_done = 0;
    lane->batch = batch;
    const std::lock_guard<std::mutex> lock(pack_mutex_);
    if (!IsValidBatch(lane->batch, &context_, error)) {
      return false;
    }
    *error = WhyTooLarge(lane->batch, capacity_);
    if (!error->empty()) {
      return false;
    }
    const int64_t n = batch.num_problems;
    lane->packer.emplace(&lane->batch);
    lane->summary.problems.assign(n, ProblemSummary());
    if (!lane->packer->reason().empty()) {
      for (int64_t i = 0; i < n; ++i) {
        lane->summary.problems[i].path_reason = lane->packer->reason();
        lane->tasks.push_back(i);
      }
      return true;
    }
    lane->piece.Setup(&*lane->packer, &lane->summary, 0, n);
    if (lane->piece.input_bytes() > bounds_.input_bytes ||
        lane->piece.output_bytes() > bounds_.output_bytes) {
      *error = "the batch takes " + std::to_string(lane->piece.input_bytes()) +
               " bytes, but the capacity has " +
               std::to_string(bounds_.input_bytes);
      return false;
    }
    if (lane->on_device == nullptr || n == 0) {
      UseHost(lane);
      return true;
    }
    UsePageLocked(lane->locked, &lane->piece);
    std::vector<WindowPacker::Scratch> scratch(context_.num_threads());
    context_.ParallelFor(n, 1, [&](int64_t begin, int64_t end, int slot) {
      for (int64_t i = begin; i < end; ++i) {
        lane->piece.Pack(i, &scratch[slot]);
      }
    });
    lane->piece.ListWindows();
    for (int64_t i = 0; i < n; ++i) {
      if (!lane->summary.problems[i].is_window) {
        lane->tasks.push_back(i);
      }
    }
    if (lane->piece.windows().empty()) {
      return true;
    }
    const Status status =
        lane->on_device->Start(lane->region_options, &lane->piece);
    if (!status.ok()) {
      Fail(status, lane);
      return true;
    }
    lane->is_on_device = true;
    const std::lock_guard<std::mutex> in_flight(mutex_);
    if (lane->stop != 0) {
      // Stopped while it was packed.
      lane->on_device->Stop();
    }
    return true;
  }

  // The host packs and solves all problems of the lane.
  void UseHost(Lane* lane) {
    lane->host_inputs.Reserve(lane->piece.input_bytes());
    lane->host_outputs.Reserve(lane->piece.output_bytes());
    lane->piece.SetMemory(lane->host_inputs.data(), lane->host_outputs.data());
    for (int64_t i = lane->piece.begin(); i < lane->piece.end(); ++i) {
      lane->summary.problems[i].is_window = true;
      lane->tasks.push_back(i);
    }
  }

  // The host solves the windows instead of the device, if it may.
  void Fail(const Status& status, Lane* lane) {
    lane->is_on_device = false;
    if (ext_options_.fallback == FALLBACK_REFUSE) {
      for (const int64_t i : lane->piece.windows()) {
        lane->summary.problems[i].message = status.message;
        lane->summary.problems[i].latency_in_seconds = lane->clock.seconds();
      }
      return;
    }
    const std::vector<int64_t> windows = lane->piece.windows();
    lane->host_inputs.Reserve(lane->piece.input_bytes());
    lane->host_outputs.Reserve(lane->piece.output_bytes());
    const std::lock_guard<std::mutex> lock(mutex_);
    lane->piece.SetMemory(lane->host_inputs.data(), lane->host_outputs.data());
    LeaveDevice(lane);
    device_ += ", then the host (" + status.message + ")";
    lane->tasks.insert(lane->tasks.end(), windows.begin(), windows.end());
  }

  // Writes the results of the device; the host solves the rest.
  void Collect(const Status& status, Lane* lane) {
    lane->is_on_device = false;
    Failure failure;
    failure.Guard(false, [&] {
      if (!status.ok()) {
        Fail(status, lane);
      } else {
        for (const int64_t i : lane->piece.windows()) {
          lane->piece.Finish(i);
          ProblemSummary& summary = lane->summary.problems[i];
          summary.latency_in_seconds = lane->clock.seconds();
          if (!summary.is_window) {
            const std::lock_guard<std::mutex> lock(mutex_);
            lane->tasks.push_back(i);
          }
        }
      }
      return true;
    });
    if (failure.has_happened()) {
      for (const int64_t i : lane->piece.windows()) {
        AssignOrShorten(failure.sentence(), &lane->summary.problems[i].message);
      }
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    Enqueue(lane);
  }

  // The caller holds mutex_.
  void Enqueue(Lane* lane) {
    if (lane->num_begun < lane->tasks.size() &&
        std::find(queue_.begin(), queue_.end(), lane) == queue_.end()) {
      queue_.push_back(lane);
      work_.notify_all();
    }
  }

  void Give(Lane* lane, BatchSummary* summary) {
    const std::lock_guard<std::mutex> lock(mutex_);
    AssignOrShorten(device_.c_str(), &lane->summary.device);
    lane->summary.total_time_in_seconds = lane->clock.seconds();
    lane->summary.num_windows =
        std::count_if(lane->summary.problems.begin(),
                      lane->summary.problems.end(),
                      [](const ProblemSummary& one) { return one.is_window; });
    *summary = std::move(lane->summary);
    lane->summary = BatchSummary();
    lane->packer.reset();
    lane->ticket = 0;
  }

  // The loop of a host thread.
  void Work(Workspace* workspace) {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      work_.wait(lock, [this] { return is_ending_ || !queue_.empty(); });
      if (is_ending_) {
        return;
      }
      Lane* const lane = queue_.front();
      const int64_t i = lane->tasks[lane->num_begun++];
      if (lane->num_begun == lane->tasks.size()) {
        queue_.erase(queue_.begin());
      }
      lock.unlock();
      SolveOnHost(i, lane, workspace);
      lock.lock();
      if (++lane->num_done == lane->tasks.size()) {
        done_.notify_all();
      }
    }
  }

  void SolveOnHost(int64_t i, Lane* lane, Workspace* workspace) {
    ProblemSummary& summary = lane->summary.problems[i];
    Failure failure;
    failure.Guard(false, [&] {
      // Skips problems that are already known not to be windows.
      if (summary.is_window) {
        lane->piece.Pack(i, &workspace->scratch);
      }
      if (summary.is_window) {
        lane->piece.SolveOnHost(i, &workspace->memory);
        lane->piece.Finish(i);
      }
      if (!summary.is_window) {
        ceres::Solver::Options options = options_;
        options.num_threads = 1;
        StopCallback stop(&lane->stop);
        options.callbacks.push_back(&stop);
        SolveOther(options, ext_options_, lane->batch, i, &summary);
      }
      return true;
    });
    if (failure.has_happened()) {
      AssignOrShorten(failure.sentence(), &summary.message);
    }
    summary.latency_in_seconds = lane->clock.seconds();
  }

  const ceres::Solver::Options options_;
  const Options ext_options_;
  const WindowCapacity capacity_;
  const WindowBounds bounds_;
  // Held while a submission is checked and packed.
  std::mutex pack_mutex_;
  kernels::HostContext context_;

  // Guards tickets, tasks, the queue and device_.
  mutable std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable done_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::vector<Lane*> queue_;  // with tasks to begin, in order
  Ticket last_ticket_ = 0;
  bool is_ending_ = false;
  bool has_device_ = false;
  std::string device_;
  std::vector<Workspace> workspaces_;
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
        !options.IsValid(&reason) || !IsValidCapacity(capacity, &reason)) {
      failure.Set(reason);
      return false;
    }
    reason = WhyNoWindows(options, ext_options);
    if (!reason.empty()) {
      failure.Set("no window is solved with these options: " + reason);
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

}  // namespace ceres_ext
