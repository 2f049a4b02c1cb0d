// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/window_solver.h"

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "ceres_ext/base/failure.h"
#include "ceres_ext/base/machines.h"
#include "ceres_ext/base/scoped_seconds.h"
#include "ceres_ext/front/ranks.h"
#include "ceres_ext/plan/device_choice.h"
#include "ceres_ext/session/kept_machines.h"
#include "ceres_ext/small/batch_bounds.h"
#include "ceres_ext/small/fit/device_fits.h"
#include "ceres_ext/small/fit/fit_batch.h"
#include "ceres_ext/small/fit/fit_host.h"
#include "ceres_ext/small/fit/fit_piece.h"
#include "ceres_ext/small/one_of_batch.h"
#include "ceres_ext/small/window/device_windows.h"
#include "ceres_ext/small/window/window_bounds.h"
#include "ceres_ext/small/window/window_packer.h"
#include "ceres_ext/small/window/window_piece.h"
#include "ceres_ext/small/window_options.h"
#include "ceres_ext/under_ceres/solve_once.h"
#include "cuda_kernels/machine/host_context.h"

namespace ceres_ext {
namespace {

using kernels::Status;
using Ticket = WindowSolver::Ticket;

// The state of a submission in flight: its batch, memory and, on a device, a
// machine.
struct Lane {
  explicit Lane(const ceres::Solver::Options& options)
      : region_options(OptionsOfRegion(options, &stop)),
        fits(&region_options),
        piece(&region_options) {}

  Ticket ticket = 0;  // 0: free
  int32_t stop = 0;
  const TrustRegionOptions region_options;
  ProblemBatch batch;
  // Problems that are fits, and windows.
  std::optional<FitBatch> fit_batch;
  FitPiece fits;
  std::optional<WindowPacker> packer;
  WindowPiece piece;
  // 1 for each problem that is a fit.
  std::vector<uint8_t> is_fit;
  BatchSummary summary;
  Clock clock;

  // Numbers of the problems that host threads have to solve, how many of them
  // are begun, and how many are done.
  std::vector<int64_t> tasks;
  size_t num_begun = 0;
  size_t num_done = 0;
  // True if fits or windows are on their way to a device.
  bool has_fits_on_device = false;
  bool has_windows_on_device = false;
  bool is_on_device() const {
    return has_fits_on_device || has_windows_on_device;
  }
  // The reason why the host solves fits and windows although there is a device.
  std::string host_reason;

  Bytes host_inputs;
  Bytes host_outputs;
  Bytes host_fits;
  // Outlives the objects on it.
  std::unique_ptr<DeviceMachine> machine;
  std::unique_ptr<DeviceFits> fits_on_device;
  std::unique_ptr<DeviceWindows> on_device;
  LockedMemory<DeviceMachine> inputs;
  LockedMemory<DeviceMachine> outputs;
  LockedMemory<DeviceMachine> fit_inputs;
  LockedMemory<DeviceMachine> fit_outputs;
};

// Memory of a thread.
struct Workspace {
  WindowPacker::Scratch scratch;
  std::vector<double> memory;
  FitWorkspace of_fit;
};

// A template, so that a build without CUDA does not compile its body.
template <typename Machine>
Status MakeOnDevice([[maybe_unused]] const Options& ext_options,
                    [[maybe_unused]] const WindowBounds& bounds,
                    [[maybe_unused]] std::unique_ptr<Machine>* machine,
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
    lane->fits_on_device = std::make_unique<DeviceFits>(machine->get());
    CERES_EXT_RETURN_IF_ERROR(lane->fits_on_device->Reserve(
        bounds.fit_input_bytes, bounds.fit_output_bytes));
    lane->on_device = std::make_unique<DeviceWindows>(machine->get());
    CERES_EXT_RETURN_IF_ERROR(lane->on_device->Reserve(bounds));
    CERES_EXT_RETURN_IF_ERROR(lane->fit_inputs.Reserve(bounds.fit_input_bytes));
    CERES_EXT_RETURN_IF_ERROR(
        lane->fit_outputs.Reserve(bounds.fit_output_bytes));
    CERES_EXT_RETURN_IF_ERROR(lane->inputs.Reserve(bounds.input_bytes));
    return lane->outputs.Reserve(bounds.output_bytes);
  }
}

// Frees the lane's memory on the device while the device is current.
void LeaveDevice(Lane* lane) {
  [[maybe_unused]] const KeepCurrentDevice<DeviceMachine> keep;
  lane->fits_on_device.reset();
  lane->on_device.reset();
  lane->machine.reset();
  lane->inputs = {};
  lane->outputs = {};
  lane->fit_inputs = {};
  lane->fit_outputs = {};
}

}  // namespace

class WindowSolver::Impl {
 public:
  Impl(const ceres::Solver::Options& options,
       const Options& ext_options,
       const WindowCapacity& capacity)
      : options_(options),
        ext_options_(ext_options),
        options_of_others_(WithOneDevice(ext_options)),
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
      // The result does not matter.
      static_cast<void>(WaitForDevice(lane.get()));
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
    if (lane->is_on_device()) {
      if ((lane->has_fits_on_device && !lane->fits_on_device->IsDone()) ||
          (lane->has_windows_on_device && !lane->on_device->IsDone())) {
        return State::kRunning;
      }
      Collect(WaitForDevice(lane), lane);
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
    if (lane->is_on_device()) {
      Collect(WaitForDevice(lane), lane);
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
        StopOnDevice(lane.get());
      }
    }
  }

  const WindowCapacity& capacity() const { return capacity_; }

  std::string device() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return device_;
  }

 private:
  static Status WaitForDevice(Lane* lane) {
    Status status;
    if (lane->has_fits_on_device) {
      status = lane->fits_on_device->Wait();
    }
    if (lane->has_windows_on_device) {
      const Status of_windows = lane->on_device->Wait(&lane->piece);
      status = status.ok() ? of_windows : status;
    }
    return status;
  }

  static void StopOnDevice(Lane* lane) {
    if (lane->on_device != nullptr) {
      lane->fits_on_device->Stop();
      lane->on_device->Stop();
    }
  }

  bool ChooseDevice(std::string* error) {
    KeptMachines names;
    host_ = names.GetHost(options_.num_threads)->Name();
    device_ = host_;
    if (ext_options_.device == DEVICE_HOST) {
      return ReserveOnHost();
    }
    if (ext_options_.device == DEVICE_AUTO &&
        capacity_.num_rows * capacity_.num_problems < kMinDeviceRows) {
      device_ += " (fewer than " + std::to_string(kMinDeviceRows) +
                 " residual blocks)";
      return ReserveOnHost();
    }
    // Lanes are dealt out over the devices.
    std::vector<int> devices;
    if (!ReadDevices(ext_options_.cuda_devices, &devices, error)) {
      return false;
    }
    if (devices.empty()) {
      devices.push_back(ext_options_.cuda_device);
    } else if (ext_options_.cuda_stream != nullptr) {
      devices.resize(1);  // The stream is of one device.
    }
    std::string all_names;
    for (size_t i = 0; i < lanes_.size(); ++i) {
      Lane* const lane = lanes_[i].get();
      Options of_lane = ext_options_;
      of_lane.cuda_device = devices[i % devices.size()];
      const Status status =
          MakeOnDevice(of_lane, bounds_, &lane->machine, lane);
      if (status.ok()) {
        if (i < devices.size()) {
          all_names += (i > 0 ? ", " : "") + DeviceName(lane->machine.get());
        }
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
    device_ = std::move(all_names);
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
      lane->host_fits.Reserve(bounds_.fit_output_bytes);
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
    lane->has_fits_on_device = false;
    lane->has_windows_on_device = false;
    lane->host_reason.clear();
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
    lane->summary.problems.assign(n, ProblemSummary());
    lane->is_fit.assign(n, 0);
    lane->fit_batch.emplace(&lane->batch);
    lane->packer.emplace(&lane->batch);
    if (!ReadFits(lane, error) || !SetupWindows(lane, error)) {
      return false;
    }
    if (lane->on_device != nullptr && !lane->fits.fit_numbers().empty() &&
        !lane->fit_batch->HasKernels()) {
      if (ext_options_.fallback == FALLBACK_REFUSE) {
        LeaveFits(lane);
      } else {
        lane->host_reason = FitBatch::kWhyNoKernels;
      }
    }
    if (lane->on_device == nullptr || n == 0 || !lane->host_reason.empty()) {
      UseHost(lane);
      return true;
    }
    if (lane->packer->reason().empty()) {
      PackWindows(lane);
    }
    for (int64_t i = 0; i < n; ++i) {
      if (!lane->summary.problems[i].is_window) {
        lane->tasks.push_back(i);
      }
    }
    const Status status = StartOnDevice(lane);
    if (!status.ok()) {
      Fail(status, lane);
      return true;
    }
    const std::lock_guard<std::mutex> in_flight(mutex_);
    if (lane->stop != 0) {
      // Stopped while it was packed.
      StopOnDevice(lane);
    }
    return true;
  }

  // Finds the problems that are fits.
  bool ReadFits(Lane* lane, std::string* error) {
    lane->fits.Clear();
    const FitBatch& batch = *lane->fit_batch;
    const int64_t n = lane->batch.num_problems;
    if (!batch.reason().empty() || n == 0) {
      return true;
    }
    lane->fits.Setup(&batch, &lane->summary, 0, n);
    context_.ParallelFor(n, 64, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        lane->fits.Read(i);
        lane->is_fit[i] = lane->summary.problems[i].is_window ? 1 : 0;
      }
    });
    lane->fits.ListFits();
    return lane->fits.fit_numbers().empty() ||
           FitsInto("problems without points",
                    lane->fits.input_bytes(),
                    bounds_.fit_input_bytes,
                    error);
  }

  // The fits become problems for ceres_ext::Solve.
  static void LeaveFits(Lane* lane) {
    for (const int64_t i : lane->fits.fit_numbers()) {
      lane->is_fit[i] = 0;
      lane->summary.problems[i].is_window = false;
      lane->summary.problems[i].path_reason = FitBatch::kWhyNoKernels;
    }
    lane->fits.Clear();
  }

  // False, with a sentence in *error, if the memory is too small.
  static bool FitsInto(const char* what,
                       int64_t num_bytes,
                       int64_t capacity,
                       std::string* error) {
    if (num_bytes > capacity) {
      *error = std::string("the ") + what + " of the batch take " +
               std::to_string(num_bytes) + " bytes, but the capacity has " +
               std::to_string(capacity);
    }
    return num_bytes <= capacity;
  }

  bool SetupWindows(Lane* lane, std::string* error) {
    const int64_t n = lane->batch.num_problems;
    const bool has_fits = lane->fit_batch->reason().empty();
    if (!lane->packer->reason().empty()) {
      for (int64_t i = 0; i < n && !has_fits; ++i) {
        lane->summary.problems[i].path_reason =
            lane->fit_batch->has_other_model() &&
                    !lane->packer->has_known_rows()
                ? lane->fit_batch->reason()
                : lane->packer->reason();
      }
      lane->piece.Clear();
      return true;
    }
    lane->piece.Setup(&*lane->packer, &lane->summary, 0, n);
    return FitsInto("windows",
                    lane->piece.input_bytes(),
                    bounds_.input_bytes,
                    error) &&
           FitsInto("results",
                    lane->piece.output_bytes(),
                    bounds_.output_bytes,
                    error);
  }

  void PackWindows(Lane* lane) {
    lane->piece.SetMemory(lane->inputs.data(),
                          lane->outputs.data(),
                          /*is_page_locked=*/true);
    std::vector<WindowPacker::Scratch> scratch(context_.num_threads());
    context_.ParallelFor(
        lane->batch.num_problems, 1, [&](int64_t begin, int64_t end, int slot) {
          for (int64_t i = begin; i < end; ++i) {
            if (lane->is_fit[i] == 0) {
              lane->piece.Pack(i, &scratch[slot]);
            }
          }
        });
    lane->piece.ListWindows();
  }

  Status StartOnDevice(Lane* lane) {
    if (!lane->fits.fit_numbers().empty()) {
      lane->fits.SetMemory(lane->fit_inputs.data(), lane->fit_outputs.data());
      context_.ParallelFor(
          lane->fits.num_tasks(), 1, [&](int64_t begin, int64_t end) {
            for (int64_t t = begin; t < end; ++t) {
              lane->fits.Fill(t);
            }
          });
      CERES_EXT_RETURN_IF_ERROR(lane->fits_on_device->Start(&lane->fits));
      lane->has_fits_on_device = true;
    }
    if (!lane->piece.windows().empty()) {
      CERES_EXT_RETURN_IF_ERROR(
          lane->on_device->Start(lane->region_options, &lane->piece));
      lane->has_windows_on_device = true;
    }
    return {};
  }

  // The host packs and solves all problems of the lane.
  void UseHost(Lane* lane) {
    SetHostMemory(lane);
    const bool has_windows = lane->packer->reason().empty();
    for (int64_t i = 0; i < lane->batch.num_problems; ++i) {
      ProblemSummary& summary = lane->summary.problems[i];
      summary.is_window = has_windows || lane->is_fit[i] != 0;
      lane->tasks.push_back(i);
    }
  }

  static void SetHostMemory(Lane* lane) {
    if (lane->packer->reason().empty()) {
      lane->host_inputs.Reserve(lane->piece.input_bytes());
      lane->host_outputs.Reserve(lane->piece.output_bytes());
      lane->piece.SetMemory(lane->host_inputs.data(),
                            lane->host_outputs.data());
    }
    if (!lane->fits.fit_numbers().empty()) {
      lane->host_fits.Reserve(lane->fits.output_bytes());
      lane->fits.SetMemory(nullptr, lane->host_fits.data());
    }
  }

  // Numbers of the fits and windows of the lane.
  static std::vector<int64_t> SolvedWhole(const Lane& lane) {
    std::vector<int64_t> numbers = lane.fits.fit_numbers();
    numbers.insert(numbers.end(),
                   lane.piece.windows().begin(),
                   lane.piece.windows().end());
    return numbers;
  }

  // The host solves the windows instead of the device, if it may.
  void Fail(const Status& status, Lane* lane) {
    // The work that was queued before the failure uses page-locked memory.
    static_cast<void>(WaitForDevice(lane));
    lane->has_fits_on_device = false;
    lane->has_windows_on_device = false;
    const std::vector<int64_t> numbers = SolvedWhole(*lane);
    if (ext_options_.fallback == FALLBACK_REFUSE) {
      for (const int64_t i : numbers) {
        lane->summary.problems[i].message = status.message;
        lane->summary.problems[i].latency_in_seconds = lane->clock.seconds();
      }
      return;
    }
    SetHostMemory(lane);
    const std::lock_guard<std::mutex> lock(mutex_);
    LeaveDevice(lane);
    device_ += ", then the host (" + status.message + ")";
    lane->tasks.insert(lane->tasks.end(), numbers.begin(), numbers.end());
  }

  // Writes the results of the device; the host solves the rest.
  void Collect(const Status& status, Lane* lane) {
    Failure failure;
    failure.Guard(false, [&] {
      if (!status.ok()) {
        Fail(status, lane);
      } else {
        lane->has_fits_on_device = false;
        lane->has_windows_on_device = false;
        for (const int64_t i : SolvedWhole(*lane)) {
          if (lane->is_fit[i] != 0) {
            lane->fits.Finish(i);
          } else {
            lane->piece.Finish(i);
          }
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
      for (const int64_t i : SolvedWhole(*lane)) {
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
    const std::string device = lane->host_reason.empty()
                                   ? device_
                                   : host_ + " (" + lane->host_reason + ")";
    AssignOrShorten(device.c_str(), &lane->summary.device);
    lane->summary.total_time_in_seconds = lane->clock.seconds();
    lane->summary.num_windows =
        std::count_if(lane->summary.problems.begin(),
                      lane->summary.problems.end(),
                      [](const ProblemSummary& one) { return one.is_window; });
    *summary = std::move(lane->summary);
    lane->summary = BatchSummary();
    lane->packer.reset();
    lane->fit_batch.reset();
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
      if (summary.is_window && lane->is_fit[i] != 0) {
        lane->fits.SolveOnHost(i, &workspace->of_fit);
        lane->fits.Finish(i);
      } else if (summary.is_window) {
        lane->piece.Pack(i, &workspace->scratch);
        if (summary.is_window) {
          lane->piece.SolveOnHost(i, &workspace->memory);
          lane->piece.Finish(i);
        }
      }
      if (!summary.is_window) {
        StoppableOptions stoppable(options_, &lane->stop);
        stoppable.options().num_threads = 1;
        SolveOther(
            stoppable.options(), options_of_others_, lane->batch, i, &summary);
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
  const Options options_of_others_;  // of other problems than windows
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
  std::string host_;
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
        !HasNoRanks(ext_options, "a window", &reason) ||
        !options.IsValid(&reason) || !IsValidCapacity(capacity, &reason)) {
      failure.Set(reason);
      return false;
    }
    reason = WhyNoWindows(options, ext_options);
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
