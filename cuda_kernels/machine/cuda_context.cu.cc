// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "cuda_kernels/machine/cuda_context.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <iterator>
#include <limits>
#include <new>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "cuda_kernels/machine/cuda_launch.cuh"
#include "cuda_kernels/machine/cuda_process.h"

namespace ceres_ext::kernels {
namespace {

// Arrays of at least this many bytes are copied to the device in pieces, each
// by way of a stage of page-locked memory, one thread per stage. Measurement:
// docs/measurements/gpu.md.
constexpr int64_t kStagedBytes = int64_t{16} << 20;
constexpr int64_t kStageBytes = int64_t{2} << 20;
constexpr int kNumStages = 4;
// A copy that waits, at most, and all of them.
constexpr int64_t kMostWaiting = int64_t{1} << 20;
constexpr int64_t kWaitingRoom = int64_t{4} << 20;

// Results that are made at once.
constexpr int kResultsPerPage = 64;

constexpr char kNoDevice[] = "no CUDA device was found";

// The CUDA of the build, as CudaOfDriver.
int CudaOfBuild() {
#ifdef CUDART_VERSION
  return CUDART_VERSION;
#else
  return emulation::driver().version_of_build;
#endif
}

// The driver's newest CUDA, 13000 for 13.0; 0: no driver is installed; below 0:
// it does not say.
int CudaOfDriver() {
  int version = 0;
  const cudaError_t error = cudaDriverGetVersion(&version);
  if (error != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return -1;
  }
  return version;
}

std::string VersionName(int version) {
  return std::to_string(version / 1000) + "." +
         std::to_string(version % 1000 / 10);
}

// Empty if the driver is new enough or does not say its version. A driver of
// the runtime's first version is new enough (CUDA's minor version
// compatibility), except that graphs that loop need one of 12.4 (cuda_graph.h).
std::string WhyDriverTooOld() {
  constexpr int kCudaOfLoops = 12040;
  const int build = CudaOfBuild();
  const int needed =
      std::max(build / 1000 * 1000, std::min(build, kCudaOfLoops));
  const int version = CudaOfDriver();
  if (version <= 0 || version >= needed) {
    return "";
  }
  return "the driver is of CUDA " + VersionName(version) +
         ", and this build needs one of CUDA " + VersionName(needed) +
         " or later: update the driver" +
         (version >= kCudaOfLoops ? ", or use a build for CUDA 12" : "");
}

// The reason why cudaGetDeviceCount failed. If no driver is installed or it is
// too old, the version says so better than the error.
std::string WhyNoDevice(cudaError_t error) {
  if (error == cudaErrorNoDevice) {
    return kNoDevice;
  }
  if (CudaOfDriver() == 0) {
    return kNoCudaDriver;
  }
  const std::string why = WhyDriverTooOld();
  return why.empty()
             ? std::string("CUDA finds no device, ") + cudaGetErrorString(error)
             : why;
}

// True if `data` is managed memory, or memory of this device.
#ifdef __CUDACC__
cudaError_t FindMemory(const void* data, int device, bool* is_found) {
  cudaPointerAttributes attributes = {};
  const cudaError_t error = cudaPointerGetAttributes(&attributes, data);
  *is_found =
      attributes.type == cudaMemoryTypeManaged ||
      (attributes.type == cudaMemoryTypeDevice && attributes.device == device);
  return error;
}
#else
cudaError_t FindMemory(const void* data, int /*device*/, bool* is_found) {
  *is_found = emulation::IsOnDevice(data, 1);
  return cudaSuccess;
}
#endif

#ifdef __CUDACC__
void* CurrentContext() { return CurrentDriverContext(); }
void SetCurrentContext(void* context) { SetCurrentDriverContext(context); }
bool ExchangeMode(int* mode) { return ExchangeCaptureMode(mode); }
uint64_t AllocationId(const void* data) { return DriverAllocationId(data); }
#else
void* CurrentContext() { return emulation::driver().current_context; }
void SetCurrentContext(void* context) {
  emulation::driver().current_context = context;
}
bool ExchangeMode(int* mode) {
  std::swap(*mode, ::ceres_ext::CudaFaults::CaptureMode());
  return true;
}
uint64_t AllocationId(const void* data) {
  return emulation::AllocationId(data);
}
#endif

// For frees: a failure repeats an earlier one that has been reported.
void Ignore(cudaError_t error) {
  if (error != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
  }
}
// The answer of a query, which is not left behind as an error of the thread.
bool IsReady(cudaError_t error) {
  if (error != cudaErrorNotReady) {
    return true;
  }
  Ignore(error);
  return false;
}

// State of this thread.
thread_local bool is_counting_memory = false;
thread_local KeepCurrentContext* outermost = nullptr;

}  // namespace

bool IsCountingMemory() { return is_counting_memory; }

CountMemory::CountMemory(CudaContext* context)
    : context_(context), peak_before_(context->peak_bytes_) {
  is_counting_memory = true;
  context->peak_bytes_ = context->used_bytes_;
  context->counted_changes_.clear();
}

CountMemory::~CountMemory() {
  is_counting_memory = false;
  context_->peak_bytes_ = peak_before_;
}

int64_t CountMemory::peak_bytes() const { return context_->peak_bytes_; }
const std::vector<int64_t>& CountMemory::changes() const {
  return context_->counted_changes_;
}

EndOfPageLocks::~EndOfPageLocks() { context_->PageLockFrom(0); }

bool HasCudaDriver() { return CudaOfDriver() != 0; }

int NumCudaDevices(std::string* why_none) {
  int num_devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&num_devices);
  std::string why;
  if (error != cudaSuccess) {
    why = WhyNoDevice(error);
    static_cast<void>(cudaGetLastError());
  } else if (num_devices == 0) {
    why = kNoDevice;
  } else {
    why = WhyDriverTooOld();
  }
  if (why.empty()) {
    return num_devices;
  }
  if (why_none != nullptr) {
    *why_none = why;
  }
  return 0;
}

Status CudaContext::Create(const CudaContextOptions& options,
                           std::unique_ptr<CudaContext>* context) {
  std::string why_none;
  const int num_devices = NumCudaDevices(&why_none);
  if (num_devices == 0) {
    why_none[0] = static_cast<char>(std::toupper(why_none[0]));
    return Status(StatusCode::kUnsupported, why_none + ".");
  }
  if (options.device < 0 || options.device >= num_devices) {
    return Status(StatusCode::kInvalidArgument,
                  "CUDA device " + std::to_string(options.device) +
                      " does not exist; there are devices 0 to " +
                      std::to_string(num_devices - 1) + ".");
  }
  std::unique_ptr<CudaContext> result(new CudaContext);
  result->options_ = options;
  CERES_EXT_RETURN_IF_CUDA_ERROR(cudaSetDevice(options.device));
  KeepCurrentContext::RelaxCaptureMode();
  cudaDeviceProp properties;
  CERES_EXT_RETURN_IF_CUDA_ERROR(
      cudaGetDeviceProperties(&properties, options.device));
  result->device_name_ = properties.name;
  result->device_bytes_ = static_cast<int64_t>(properties.totalGlobalMem);
  result->num_multiprocessors_ = properties.multiProcessorCount;
  result->shared_memory_per_block_ =
      static_cast<int64_t>(properties.sharedMemPerBlockOptin);
  if (options.stream != nullptr) {
    result->stream_ = options.stream;
  } else {
    CERES_EXT_RETURN_IF_CUDA_ERROR(
        cudaStreamCreateWithFlags(&result->stream_, cudaStreamNonBlocking));
    result->owns_stream_ = true;
  }
  CERES_EXT_RETURN_IF_ERROR(result->beacon_.Place());
  *context = std::move(result);
  return Status();
}

CudaContext::~CudaContext() {
  if (waiting_bytes_ > 0) {
    static_cast<void>(Synchronize());  // Copies of what is freed now.
  }
  launch_buffer_.reset();
  ReleaseKeptMemory();
  if (is_forgotten_) {
    return;
  }
  beacon_.Remove();
  if (owns_stream_) {
    Ignore(cudaStreamDestroy(stream_));
  }
}

KeepCurrentContext::KeepCurrentContext() : saved_(CurrentContext()) {
  if (outermost == nullptr) {
    outermost = this;
    RelaxCaptureMode();
  }
}

void KeepCurrentContext::RelaxCaptureMode() {
  if (outermost != nullptr && outermost->saved_mode_ == kNotExchanged) {
    constexpr int kRelaxed = 2;
    int mode = kRelaxed;
    if (ExchangeMode(&mode)) {
      outermost->saved_mode_ = mode;
    }
  }
}

KeepCurrentContext::~KeepCurrentContext() {
  if (outermost == this) {
    outermost = nullptr;
    if (saved_mode_ != kNotExchanged) {
      static_cast<void>(ExchangeMode(&saved_mode_));
    }
  }
  if (CurrentContext() != saved_) {
    SetCurrentContext(saved_);
  }
}

Status CudaContext::Activate() const {
  if (beacon_.MakeCurrent()) {
    return Status();
  }
  CERES_EXT_RETURN_IF_CUDA_ERROR(cudaSetDevice(options_.device));
  return Status();
}

bool CudaContext::IsAlive() const {
  return !is_forgotten_ && Activate().ok() && beacon_.IsThere();
}

Status CudaBeacon::Place() {
  const cudaError_t error = cudaMalloc(&data_, 1);
  if (error != cudaSuccess) {
    data_ = nullptr;
    return CudaError("cudaMalloc", error);
  }
  id_ = AllocationId(data_);
  context_ = CurrentContext();
  return {};
}

bool CudaBeacon::MakeCurrent() const {
  if (context_ == nullptr) {
    return false;
  }
  if (CurrentContext() != context_) {
    SetCurrentContext(context_);
  }
  return CurrentContext() == context_;
}

bool CudaBeacon::IsThere() const { return AllocationId(data_) == id_; }

void CudaBeacon::Remove() {
  if (data_ != nullptr) {
    Ignore(cudaFree(data_));
    data_ = nullptr;
  }
}

void CudaContext::Forget() {
  is_forgotten_ = true;
  if (launch_buffer_ != nullptr) {
    launch_buffer_->Forget();
  }
  static_cast<void>(stages_.release());
  static_cast<void>(waiting_.release());
  waiting_bytes_ = 0;
  for (PageLockedBuffer& page : result_pages_) {
    static_cast<void>(page.release());
  }
  for (auto& [data, array] : page_locked_) {
    static_cast<void>(array.release());  // Free looks for it.
  }
  stage_events_.Forget();
}

Status CudaContext::SynchronizeDevice() const {
  CERES_EXT_RETURN_IF_ERROR(Flush());
  CERES_EXT_RETURN_IF_CUDA_ERROR(cudaDeviceSynchronize());
  return Status();
}

Status CudaContext::Synchronize() const {
  CERES_EXT_RETURN_IF_ERROR(Flush());
  CERES_EXT_RETURN_IF_ERROR(WatchStream());
  CERES_EXT_RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(stream_));
  waiting_bytes_ = 0;
  return Status();
}

Status CudaContext::Wait(int event, CudaEvents* events) const {
  CERES_EXT_RETURN_IF_ERROR(Flush());
  if (watch_) {
    CERES_EXT_RETURN_IF_ERROR(
        WatchUntil([&] { return events->IsDone(event); }));
  }
  return events->Wait(event);
}

Status CudaContext::WatchUntil(const std::function<bool()>& is_done) const {
  // A look at others may take a system call; the work mostly ends sooner.
  constexpr std::chrono::microseconds kBetweenLooks{200};
  begin_watch_();
  auto next_look = std::chrono::steady_clock::now() + kBetweenLooks;
  while (!is_done()) {
    if (std::chrono::steady_clock::now() >= next_look) {
      CERES_EXT_RETURN_IF_ERROR(watch_());
      next_look = std::chrono::steady_clock::now() + kBetweenLooks;
    }
  }
  return {};
}

Status CudaContext::WatchStream() const {
  return watch_
             ? WatchUntil([this] { return IsReady(cudaStreamQuery(stream_)); })
             : Status();
}

Status CudaContext::CheckLimit(int64_t num_bytes) const {
  const int64_t room = RoomOfLimit(used_bytes_ + kept_bytes_);
  if (num_bytes <= room) {
    return {};
  }
  const int64_t others = Limit() - room;
  return {StatusCode::kOutOfMemory,
          "The solve takes " + std::to_string(num_bytes) +
              " bytes of device memory, the limit is " +
              std::to_string(Limit()) + " bytes" +
              (others > 0 ? ", " + std::to_string(others) +
                                " of which the process has in use."
                          : ".")};
}

int64_t CudaContext::Limit() const {
  return options_.memory_limit > 0
             ? std::min(options_.memory_limit, device_bytes_)
             : device_bytes_;
}

bool CudaContext::MayRunShort(int64_t num_bytes) const {
  // Kept memory may be of other sizes.
  return num_bytes > RoomOfLimit(used_bytes_);
}

int64_t CudaContext::RoomOfLimit(int64_t num_held_bytes) const {
  return Limit() - (ProcessBytes(options_.device) - num_held_bytes);
}

int64_t CudaContext::Room(int64_t num_used_bytes) const {
  const int64_t held = num_used_bytes + kept_bytes_;
  int64_t room = RoomOfLimit(held);
  size_t free = 0;
  size_t total = 0;
  const cudaError_t error = cudaMemGetInfo(&free, &total);
  Ignore(error);
  if (error == cudaSuccess) {
    room = std::min(room, held + static_cast<int64_t>(free));
  }
  return room;
}

void CudaContext::FindPageLocked(const std::vector<int64_t>& changes,
                                 int64_t num_held_bytes,
                                 int64_t num_more_bytes,
                                 int64_t* least,
                                 int64_t* page_locked) const {
  constexpr double kPart = 0.9;
  constexpr int64_t kLeast = 4096;
  const int64_t room = Room(num_held_bytes);
  // The most bytes on device and host.
  const auto peaks = [&](int64_t from) {
    int64_t device = num_held_bytes;
    int64_t host = 0;
    int64_t most_of_device = device;
    int64_t most_of_host = 0;
    for (const int64_t change : changes) {
      (std::abs(change) >= from ? host : device) += change;
      most_of_device = std::max(most_of_device, device);
      most_of_host = std::max(most_of_host, host);
    }
    return std::make_pair(std::max(most_of_device, device + num_more_bytes),
                          most_of_host);
  };
  *least = 0;
  *page_locked = 0;
  if (peaks(std::numeric_limits<int64_t>::max()).first <= room) {
    return;
  }
  std::set<int64_t, std::greater<>> sizes;
  for (const int64_t change : changes) {
    if (change >= kLeast) {
      sizes.insert(change);
    }
  }
  for (const int64_t size : sizes) {
    const auto [on_device, on_host] = peaks(size);
    if (static_cast<double>(on_device) <= kPart * static_cast<double>(room)) {
      *least = size;
      *page_locked = on_host;
      return;
    }
  }
}

Status CudaContext::AllocateOnHost(int64_t num_bytes, void** data) {
  PageLockedBuffer array;
  CERES_EXT_RETURN_IF_ERROR(AllocatePageLocked(num_bytes, &array));
  *data = array.get();
  page_locked_.emplace(*data, std::move(array));
  return {};
}

Status CudaContext::Allocate(int64_t num_bytes, void** data) {
  *data = nullptr;
  if (num_bytes <= 0) {
    return Status();
  }
  if (is_counting_memory) {
    // An address that is never used.
    *data = reinterpret_cast<void*>(uintptr_t{1} << 20);
    // Each array is freed at most once, which must not throw.
    const size_t num_changes = 2 * (counted_changes_.size() + 1);
    if (counted_changes_.capacity() < num_changes) {
      counted_changes_.reserve(2 * num_changes);
    }
    counted_changes_.push_back(num_bytes);
    used_bytes_ += num_bytes;
    peak_bytes_ = std::max(peak_bytes_, used_bytes_);
    return Status();
  }
  if (page_locked_least_ > 0 && num_bytes >= page_locked_least_) {
    return AllocateOnHost(num_bytes, data);
  }
  const auto kept = kept_memory_.find(num_bytes);
  if (kept != kept_memory_.end()) {
    *data = kept->second;
    kept_memory_.erase(kept);
    kept_bytes_ -= num_bytes;
  } else {
    Status status = AllocateNew(num_bytes, data);
    if (status.code == StatusCode::kOutOfMemory && !kept_memory_.empty()) {
      ReleaseKeptMemory();
      status = AllocateNew(num_bytes, data);
    }
    CERES_EXT_RETURN_IF_ERROR(status);
  }
  used_bytes_ += num_bytes;
  peak_bytes_ = std::max(peak_bytes_, used_bytes_);
  return Status();
}

Status CudaContext::AllocateNew(int64_t num_bytes, void** data) {
  std::atomic<int64_t>& account = ProcessBytes(options_.device);
  int64_t held = account;
  do {
    if (options_.memory_limit > 0 && num_bytes > options_.memory_limit - held) {
      return Status(StatusCode::kOutOfMemory,
                    std::to_string(num_bytes) +
                        " bytes of device memory would "
                        "exceed the limit of " +
                        std::to_string(options_.memory_limit) + " bytes, " +
                        std::to_string(held) +
                        " of which the process has in use.");
    }
  } while (!account.compare_exchange_weak(held, held + num_bytes));
  const cudaError_t error = cudaMalloc(data, static_cast<size_t>(num_bytes));
  if (error == cudaSuccess) {
    return Status();
  }
  account -= num_bytes;
  *data = nullptr;
  Status status = CudaError("cudaMalloc", error);
  if (error == cudaErrorMemoryAllocation) {
    status = {StatusCode::kOutOfMemory,
              "The device refused " + std::to_string(num_bytes) +
                  " bytes, with " + std::to_string(used_bytes_) +
                  " bytes in use by this context."};
  }
  return status;
}

void CudaContext::Free(void* data, int64_t num_bytes) {
  if (data == nullptr) {
    return;
  }
  if (is_counting_memory) {
    used_bytes_ -= num_bytes;
    counted_changes_.push_back(-num_bytes);
    return;
  }
  if (const auto array = page_locked_.find(data); array != page_locked_.end()) {
    if (!is_forgotten_) {
      FlushLater();
      Ignore(cudaStreamSynchronize(stream_));  // Kernels use it, and copies.
    }
    page_locked_.erase(array);
    return;
  }
  used_bytes_ -= num_bytes;
  if (keeps_memory_ ||
      (options_.memory_limit == 0 && kept_bytes_ + num_bytes <= kAlwaysKept)) {
    try {
      kept_memory_.emplace(num_bytes, data);
      kept_bytes_ += num_bytes;
      return;
    } catch (const std::bad_alloc&) {
      // There is nowhere to write it down.
    }
  }
  if (!is_forgotten_) {
    FlushLater();
    Ignore(cudaFree(data));
  }
  ProcessBytes(options_.device) -= num_bytes;
}

void CudaContext::ReleaseKeptMemory(int64_t max_bytes) {
  FlushLater();
  // The largest first: it takes as long to get a small one back.
  while (kept_bytes_ > max_bytes) {
    const auto last = std::prev(kept_memory_.end());
    if (!is_forgotten_) {
      Ignore(cudaFree(last->second));
    }
    kept_bytes_ -= last->first;
    ProcessBytes(options_.device) -= last->first;
    kept_memory_.erase(last);
  }
}

Status CudaContext::AllocateResult(void** data) {
  if (free_results_.empty()) {
    PageLockedBuffer page;
    CERES_EXT_RETURN_IF_ERROR(
        AllocatePageLocked(kResultsPerPage * kResultBytes, &page));
    result_pages_.reserve(result_pages_.size() + 1);
    free_results_.reserve((result_pages_.size() + 1) * kResultsPerPage);
    for (int i = 0; i < kResultsPerPage; ++i) {
      free_results_.push_back(static_cast<char*>(page.get()) +
                              i * kResultBytes);
    }
    result_pages_.push_back(std::move(page));
  }
  *data = free_results_.back();
  free_results_.pop_back();
  return Status();
}

void CudaContext::FreeResult(void* data) { free_results_.push_back(data); }

Status CudaContext::ReadResult(const void* data,
                               int64_t num_bytes,
                               void* to) const {
  if (is_counting_memory) {
    std::memset(to, 0, static_cast<size_t>(num_bytes));
    return Status();
  }
  CERES_EXT_RETURN_IF_ERROR(Synchronize());
  std::memcpy(to, data, static_cast<size_t>(num_bytes));
  copied_bytes_ += num_bytes;
  return Status();
}

bool CudaContext::HasStages() const {
  if (stages_ != nullptr) {
    return true;
  }
  if (stage_events_.Setup(kNumStages).ok() &&
      AllocatePageLocked(kNumStages * kStageBytes, &stages_).ok()) {
    return true;
  }
  return false;  // There is another way.
}

void* CudaContext::WaitingRoom(int64_t num_bytes) const {
  if (num_bytes > kMostWaiting ||
      (waiting_ == nullptr &&
       !AllocatePageLocked(kWaitingRoom, &waiting_).ok()) ||
      (waiting_bytes_ + num_bytes > kWaitingRoom && !Synchronize().ok())) {
    return nullptr;
  }
  void* const room = static_cast<char*>(waiting_.get()) + waiting_bytes_;
  waiting_bytes_ += num_bytes;
  return room;
}

// Piece i goes through stage i % kNumStages, which one thread owns.
Status CudaContext::CopyStaged(char* device,
                               const char* host,
                               int64_t num_bytes) const {
  constexpr int64_t kStride = kNumStages * kStageBytes;
  if (watch_) {
    CERES_EXT_RETURN_IF_ERROR(Synchronize());  // Stages wait without a watch.
  }
  Status statuses[kNumStages];
  const auto copy_pieces = [&](int stage) -> Status {
    char* const memory =
        static_cast<char*>(stages_.get()) + stage * kStageBytes;
    const KeepCurrentContext keep;
    CERES_EXT_RETURN_IF_ERROR(Activate());
    for (int64_t at = stage * kStageBytes; at < num_bytes; at += kStride) {
      const int64_t size = std::min(kStageBytes, num_bytes - at);
      if (at >= kStride) {
        CERES_EXT_RETURN_IF_ERROR(stage_events_.Wait(stage));
      }
      std::memcpy(memory, host + at, static_cast<size_t>(size));
      CERES_EXT_RETURN_IF_ERROR(
          QueueCopy(device + at, memory, size, cudaMemcpyHostToDevice));
      CERES_EXT_RETURN_IF_ERROR(stage_events_.Record(stage, stream_));
    }
    return Status();
  };
  const auto run = [&](int stage) {
    try {
      statuses[stage] = copy_pieces(stage);
    } catch (const std::bad_alloc&) {  // of an error's message
      statuses[stage] = {StatusCode::kOutOfMemory, "Out of memory."};
    }
  };
  std::vector<std::thread> threads;
  for (int stage = 1; stage < kNumStages; ++stage) {
    try {
      threads.emplace_back(run, stage);
    } catch (const std::exception&) {
      run(stage);  // No more threads, or memory for them, are available.
    }
  }
  run(0);
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const Status& status : statuses) {
    CERES_EXT_RETURN_IF_ERROR(status);
  }
  return Status();
}

Status CudaContext::QueueCopy(void* to,
                              const void* from,
                              int64_t num_bytes,
                              int kind) const {
  if (num_bytes <= 0) {
    return {};
  }
  if (HasArraysOnHost()) {
    kind = cudaMemcpyDefault;
    // A copy from host to host waits for the stream, without a watch.
    CERES_EXT_RETURN_IF_ERROR(WatchStream());
  }
  CERES_EXT_RETURN_IF_CUDA_ERROR(
      cudaMemcpyAsync(to,
                      from,
                      static_cast<size_t>(num_bytes),
                      static_cast<cudaMemcpyKind>(kind),
                      stream_));
  return {};
}

Status CudaContext::CopyToDevice(void* device,
                                 const void* host,
                                 int64_t num_bytes) const {
  if (num_bytes <= 0 || is_counting_memory) {
    return Status();
  }
  CERES_EXT_RETURN_IF_ERROR(Flush());
  if (void* const room = WaitingRoom(num_bytes); room != nullptr) {
    std::memcpy(room, host, static_cast<size_t>(num_bytes));
    copied_bytes_ += num_bytes;
    return QueueCopy(device, room, num_bytes, cudaMemcpyHostToDevice);
  }
  // Several threads copy by way of stages, and only one may watch.
  const Status status =
      num_bytes >= kStagedBytes && !HasArraysOnHost() && HasStages()
          ? CopyStaged(static_cast<char*>(device),
                       static_cast<const char*>(host),
                       num_bytes)
          : QueueCopy(device, host, num_bytes, cudaMemcpyHostToDevice);
  copied_bytes_ += num_bytes;
  // The host memory, or stages, are in use until the stream has done its work.
  const Status end = Synchronize();
  return status.ok() ? end : status;
}

Status CudaContext::CopyToHost(void* host,
                               const void* device,
                               int64_t num_bytes) const {
  if (num_bytes <= 0) {
    return Status();
  }
  if (is_counting_memory) {
    std::memset(host, 0, static_cast<size_t>(num_bytes));
    return Status();
  }
  if (void* const room = WaitingRoom(num_bytes); room != nullptr) {
    if (MayWait() && num_bytes <= LaunchBuffer::kMostBytes) {
      // A kernel writes there sooner than a copy would.
      CERES_EXT_RETURN_IF_ERROR(
          launch_buffer_->AddCopy(room, device, num_bytes));
      copied_bytes_ += num_bytes;
    } else {
      CERES_EXT_RETURN_IF_ERROR(QueueCopyToHost(room, device, num_bytes));
    }
    CERES_EXT_RETURN_IF_ERROR(Synchronize());
    std::memcpy(host, room, static_cast<size_t>(num_bytes));
    return Status();
  }
  CERES_EXT_RETURN_IF_ERROR(QueueCopyToHost(host, device, num_bytes));
  return Synchronize();
}

Status CudaContext::SetBytes(void* device, int value, int64_t num_bytes) const {
  if (num_bytes <= 0 || is_counting_memory) {
    return Status();
  }
  if (MayWait() && num_bytes <= LaunchBuffer::kMostBytes) {
    return launch_buffer_->AddSetBytes(device, value, num_bytes);
  }
  CERES_EXT_RETURN_IF_ERROR(Flush());
  CERES_EXT_RETURN_IF_CUDA_ERROR(
      cudaMemsetAsync(device, value, static_cast<size_t>(num_bytes), stream_));
  return Status();
}

Status CudaContext::CopyOnDevice(void* to,
                                 const void* from,
                                 int64_t num_bytes) const {
  if (is_counting_memory) {
    return Status();
  }
#ifdef __CUDACC__
  GraphRecording* const recording = CurrentGraphRecording();
  if (recording != nullptr && num_bytes > 0) {
    const cudaGraphNode_t previous = recording->last;
    CERES_EXT_RETURN_IF_CUDA_ERROR(cudaGraphAddMemcpyNode1D(
        &recording->last,
        recording->graph,
        &previous,
        previous == nullptr ? 0 : 1,
        to,
        from,
        static_cast<size_t>(num_bytes),
        HasArraysOnHost() ? cudaMemcpyDefault : cudaMemcpyDeviceToDevice));
    return Status();
  }
#endif
  if (num_bytes > 0 && MayWait() && num_bytes <= LaunchBuffer::kMostBytes) {
    return launch_buffer_->AddCopy(to, from, num_bytes);
  }
  CERES_EXT_RETURN_IF_ERROR(Flush());
  return QueueCopy(to, from, num_bytes, cudaMemcpyDeviceToDevice);
}

Status CudaContext::QueueCopyToHost(void* page_locked,
                                    const void* device,
                                    int64_t num_bytes) const {
  CERES_EXT_RETURN_IF_ERROR(Flush());
  CERES_EXT_RETURN_IF_ERROR(
      QueueCopy(page_locked, device, num_bytes, cudaMemcpyDeviceToHost));
  copied_bytes_ += num_bytes;
  return Status();
}

Status CudaContext::CheckPointer(const void* data) const {
  bool is_found = false;
  CERES_EXT_RETURN_IF_CUDA_ERROR(FindMemory(data, options_.device, &is_found));
  return is_found ? Status()
                  : Status(StatusCode::kInvalidArgument,
                           "is not memory of CUDA device " +
                               std::to_string(options_.device));
}

void FreePageLocked::operator()(void* data) const {
  Ignore(cudaFreeHost(data));
}

Status AllocatePageLocked(int64_t num_bytes, PageLockedBuffer* buffer) {
  void* data = nullptr;
  const cudaError_t error =
      cudaMallocHost(&data, static_cast<size_t>(num_bytes));
  if (error == cudaErrorMemoryAllocation) {
    Ignore(error);
    return {StatusCode::kOutOfMemory,
            "The host refused " + std::to_string(num_bytes) +
                " bytes of page-locked memory for the device."};
  }
  CERES_EXT_RETURN_IF_CUDA_ERROR(error);
  buffer->reset(data);
  return Status();
}

CudaEvents::~CudaEvents() {
  for (const cudaEvent_t event : events_) {
    Ignore(cudaEventDestroy(event));
  }
}

Status CudaEvents::Setup(int num_events) {
  while (static_cast<int>(events_.size()) < num_events) {
    cudaEvent_t event = nullptr;
    CERES_EXT_RETURN_IF_CUDA_ERROR(cudaEventCreate(&event));
    events_.push_back(event);
  }
  return Status();
}

Status CudaEvents::Record(int event, cudaStream_t stream) {
  CERES_EXT_RETURN_IF_CUDA_ERROR(cudaEventRecord(events_[event], stream));
  return Status();
}

Status CudaEvents::RecordLater(int event, cudaStream_t stream) {
  LaunchBuffer* const buffer = CurrentLaunchBuffer();
  return buffer != nullptr && buffer->stream() == stream
             ? buffer->AddEvent(events_[event])
             : Record(event, stream);
}

Status CudaEvents::Wait(int event) {
  CERES_EXT_RETURN_IF_CUDA_ERROR(cudaEventSynchronize(events_[event]));
  return Status();
}

bool CudaEvents::IsDone(int event) {
  return IsReady(cudaEventQuery(events_[event]));
}

double CudaEvents::SecondsBetween(int first, int last) {
  float milliseconds = 0.0f;
  const cudaError_t error =
      cudaEventElapsedTime(&milliseconds, events_[first], events_[last]);
  if (error != cudaSuccess) {
    Ignore(error);  // Not recorded, or not done: no time.
    return 0.0;
  }
  return 1e-3 * static_cast<double>(milliseconds);
}

}  // namespace ceres_ext::kernels
