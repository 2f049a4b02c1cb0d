// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// One CUDA device, one stream and the account of the memory taken on it.
//
//   std::unique_ptr<CudaContext> context;
//   Status status = CudaContext::Create({}, &context);
//   DeviceBuffer<double> x;
//   if (status.ok()) status = x.Allocate(context.get(), n);
//
// Stream contract: whatever takes a stream queues its work there and returns;
// the caller synchronises. Functions here that copy from or to pageable host
// memory return when the host memory may be reused.
// Thread safety: one thread uses a context at a time; concurrent solves own one
// each. Create makes its device current for the calling thread, and so does
// Activate; KeepCurrentContext undoes that. CUDA's errors become a Status and
// are not left for the next caller. Host-includable: needs no CUDA toolkit.
#ifndef CERES_EXT_CUDA_KERNELS_MACHINE_CUDA_CONTEXT_H_
#define CERES_EXT_CUDA_KERNELS_MACHINE_CUDA_CONTEXT_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/cuda_launch_buffer.h"

typedef struct CUstream_st* cudaStream_t;
typedef struct CUevent_st* cudaEvent_t;

namespace ceres_ext::kernels {

// How many CUDA devices can be used, 0 with the reason in *why_none where the
// driver or the device is missing. why_none may be null.
int NumCudaDevices(std::string* why_none);

struct CudaContextOptions {
  int device = 0;
  // A caller's stream, which must outlive the context; if null, the context
  // makes a non-blocking stream.
  cudaStream_t stream = nullptr;
  // Most bytes that those of all contexts of the process on the device may grow
  // to by this one; 0: no limit but the device's memory. Beyond: kOutOfMemory.
  int64_t memory_limit = 0;
};

// Every call of CUDA is in the life of one on its thread. Its end restores what
// was current for the thread, another device, a context of the caller or
// nothing.
// Until then the thread's capture mode is relaxed. In CUDA's default mode,
// calls fail while another thread of the process captures a stream, and break
// its capture. This library's calls are on streams of their own and not part of
// it.
class KeepCurrentContext {
 public:
  KeepCurrentContext();
  ~KeepCurrentContext();
  KeepCurrentContext(const KeepCurrentContext&) = delete;
  KeepCurrentContext& operator=(const KeepCurrentContext&) = delete;

  // Relaxes the mode if the driver was not started when the thread's outermost
  // object began.
  static void RelaxCaptureMode();

 private:
  static constexpr int kNotExchanged = -1;
  void* const saved_;
  int saved_mode_ = kNotExchanged;
};

// Page-locked host memory, so that copies to it can be queued. kOutOfMemory
// where the host has no more.
struct FreePageLocked {
  void operator()(void* data) const;
};
using PageLockedBuffer = std::unique_ptr<void, FreePageLocked>;
Status AllocatePageLocked(int64_t num_bytes, PageLockedBuffer* buffer);

// Marks in the work of a stream.
class CudaEvents {
 public:
  CudaEvents() = default;
  ~CudaEvents();
  CudaEvents(const CudaEvents&) = delete;
  CudaEvents& operator=(const CudaEvents&) = delete;

  Status Setup(int num_events);
  Status Record(int event, cudaStream_t stream);
  // The same, where launches wait behind these (cuda_launch_buffer.h).
  Status RecordLater(int event, cudaStream_t stream);
  // Until the work before the event is done.
  Status Wait(int event);
  // True if it is, or has failed.
  bool IsDone(int event);
  // Time between two events that are done; 0 where one was never recorded.
  double SecondsBetween(int first, int last);
  // There are none any more: CUDA has destroyed them.
  void Forget() { events_.clear(); }

 private:
  std::vector<cudaEvent_t> events_;
};

// A byte of a device, by which a reset of the device shows.
class CudaBeacon {
 public:
  // On the current device.
  Status Place();
  bool IsPlaced() const { return data_ != nullptr; }
  // Makes the device current. False: it can't, or there is no byte.
  bool MakeCurrent() const;
  // True if what was made on the device can still be used: not after a reset,
  // nor after an error of anybody's kernel. The device is current.
  bool IsThere() const;
  // Frees it. After a reset it is left, because its address may be in use.
  void Remove();

 private:
  void* data_ = nullptr;
  uint64_t id_ = 0;          // the driver's number of the allocation
  void* context_ = nullptr;  // the driver's
};

class CudaContext;

// While it lives the context counts: memory requested from it, and from kernels
// and sorts on this thread, is not allocated, copied or used, and results that
// would come to the host are zero. So a set-up says what it will take.
// Everything that is made goes before it.
class CountMemory {
 public:
  explicit CountMemory(CudaContext* context);
  ~CountMemory();
  CountMemory(const CountMemory&) = delete;
  CountMemory& operator=(const CountMemory&) = delete;

  // The most bytes in use so far, what was in use before included.
  int64_t peak_bytes() const;
  // The arrays so far, in order: what was taken, above 0, and given back,
  // below.
  const std::vector<int64_t>& changes() const;

 private:
  CudaContext* const context_;
  const int64_t peak_before_;
};
// True if this thread is in the life of one.
bool IsCountingMemory();

// Its end is that of a choice by CudaContext::PageLockFrom.
class EndOfPageLocks {
 public:
  explicit EndOfPageLocks(CudaContext* context) : context_(context) {}
  ~EndOfPageLocks();
  EndOfPageLocks(const EndOfPageLocks&) = delete;
  EndOfPageLocks& operator=(const EndOfPageLocks&) = delete;

 private:
  CudaContext* const context_;
};

class CudaContext {
 public:
  // kUnsupported: no usable device. kInvalidArgument: no device of that number.
  static Status Create(const CudaContextOptions& options,
                       std::unique_ptr<CudaContext>* context);
  ~CudaContext();
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;

  // Makes the device current for the calling thread.
  Status Activate() const;
  // From now on there may be a launch buffer (cuda_launch_buffer.h).
  void EnableLaunchBuffer() {
    launch_buffer_ = std::make_unique<LaunchBuffer>(stream_);
  }
  // If true, and there may be one, launches in a BufferLaunches wait, also
  // beyond its end. False: those that wait start.
  void SetBuffersLaunches(bool buffers) {
    buffers_launches_ = buffers && launch_buffer_ != nullptr && !watch_;
    FlushLater();
  }
  // Null: launches don't wait.
  LaunchBuffer* launch_buffer() const {
    return buffers_launches_ ? launch_buffer_.get() : nullptr;
  }
  // Starts launches that wait.
  Status Flush() const {
    return launch_buffer_ == nullptr || launch_buffer_->empty()
               ? Status()
               : launch_buffer_->Flush();
  }
  // The same; if false, a launch has failed, and the next Flush or wait returns
  // the error.
  bool TryFlush() const {
    FlushLater();
    return launch_buffer_ == nullptr || launch_buffer_->empty();
  }
  // Waits for the stream and returns the first error of its work.
  Status Synchronize() const;
  // The same of the work before an event of the stream.
  Status Wait(int event, CudaEvents* events) const;
  // Waits for all streams of the device.
  Status SynchronizeDevice() const;
  // For work that may never end because it is of other devices too: `watch` is
  // called again and again while the host waits, `begin` before. An error ends
  // that work, and is then that of the wait. `agree` is AllAgree below. Empty:
  // not called.
  void SetWatch(std::function<Status()> watch,
                std::function<void()> begin,
                std::function<bool(bool)> agree) {
    watch_ = std::move(watch);
    begin_watch_ = std::move(begin);
    agree_ = std::move(agree);
  }
  // Waits for the hosts of the other devices of a SetWatch, which ask too:
  // whether all say yes.
  bool AllAgree(bool mine) const { return agree_ ? agree_(mine) : mine; }

  // True if what the context has made is still there and can be used: not after
  // a reset of the device, nor after an error of anybody's kernel, which ends
  // all of the process's work on it. Makes the device current.
  bool IsAlive() const;
  // For one that is not alive: nothing is freed from now on, because its
  // addresses may be in use by others.
  void Forget();

  // kOutOfMemory where the context can't come to hold so many bytes, what it
  // has kept included, by the limit or the device. Takes nothing.
  Status CheckLimit(int64_t num_bytes) const;
  // If arrays do not fit on the device, the largest of them may stay in
  // page-locked memory of the host, which kernels read and write over the bus.
  // So few that a set-up which begins with so many bytes held, makes these
  // changes (CountMemory) and then takes so many more fits with a tenth to
  // spare: arrays of at least *least bytes, at most *page_locked at a time.
  // *least is 0 if none need to, or if that is not enough.
  void FindPageLocked(const std::vector<int64_t>& changes,
                      int64_t num_held_bytes,
                      int64_t num_more_bytes,
                      int64_t* least,
                      int64_t* page_locked) const;
  // Arrays of at least so many bytes are there from now on; 0: none. A
  // set-up's choice ends with it (EndOfPageLocks).
  void PageLockFrom(int64_t least) { page_locked_least_ = least; }
  // True if it may come to an end of memory where it is to hold so many bytes.
  bool MayRunShort(int64_t num_bytes) const;
  Status Allocate(int64_t num_bytes, void** data);
  void Free(void* data, int64_t num_bytes);
  // If true, freed memory stays with the context for the next request of as
  // many bytes, or is released if another request finds no memory; it counts
  // for memory_limit. False: what is freed goes back to the device, all but
  // kAlwaysKept bytes of a context without a limit.
  void KeepMemory(bool keep) { keeps_memory_ = keep; }
  static constexpr int64_t kAlwaysKept = int64_t{64} << 20;
  // Gives back what was kept and has not been asked for, all but max_bytes.
  void ReleaseKeptMemory(int64_t max_bytes = 0);

  // Room for a record of at most kResultBytes in page-locked memory, which
  // kernels write and ReadResult copies after all queued work: a third of the
  // time of a copy from the device (docs/measurements/gpu.md).
  static constexpr int64_t kResultBytes = 64;
  Status AllocateResult(void** data);
  void FreeResult(void* data);
  Status ReadResult(const void* data, int64_t num_bytes, void* to) const;

  // Large arrays pass through page-locked memory on several threads, small ones
  // wait there until the stream takes them. One thread at a time may copy.
  Status CopyToDevice(void* device, const void* host, int64_t num_bytes) const;
  Status CopyToHost(void* host, const void* device, int64_t num_bytes) const;
  Status SetBytes(void* device, int value, int64_t num_bytes) const;
  // Queued, not waited for: between arrays of the device, and to page-locked
  // host memory.
  Status CopyOnDevice(void* to, const void* from, int64_t num_bytes) const;
  Status QueueCopyToHost(void* page_locked,
                         const void* device,
                         int64_t num_bytes) const;

  // kInvalidArgument unless `data` is memory that kernels of this device may
  // use: its own, or managed memory. The message is a clause about the memory.
  Status CheckPointer(const void* data) const;

  int device() const { return options_.device; }
  // Launches that wait (cuda_launch_buffer.h) start first, unless those of the
  // calling thread may wait too.
  cudaStream_t stream() const {
    if (CurrentLaunchBuffer() != launch_buffer_.get()) {
      FlushLater();
    }
    return stream_;
  }
  int num_multiprocessors() const { return num_multiprocessors_; }
  // Bytes that a kernel may ask for.
  int64_t shared_memory_per_block() const { return shared_memory_per_block_; }
  const std::string& device_name() const { return device_name_; }
  int64_t used_bytes() const { return used_bytes_; }
  // The most bytes in use since the last ResetPeak.
  int64_t peak_bytes() const { return peak_bytes_; }
  void ResetPeak() { peak_bytes_ = used_bytes_; }
  // Bytes that this context has copied from host to device or back.
  int64_t copied_bytes() const { return copied_bytes_; }

 private:
  CudaContext() = default;

  // The limit of the options, or the device's memory.
  int64_t Limit() const;
  // The bytes that the context, which holds so many, can come to hold by the
  // limit.
  int64_t RoomOfLimit(int64_t num_held_bytes) const;
  // The same by the device too; so many are in use.
  int64_t Room(int64_t num_used_bytes) const;
  Status AllocateOnHost(int64_t num_bytes, void** data);
  // kind: cudaMemcpyKind of arrays that are all on the device.
  Status QueueCopy(void* to,
                   const void* from,
                   int64_t num_bytes,
                   int kind) const;
  // An end of a copy may be an array on the host.
  bool HasArraysOnHost() const { return !page_locked_.empty(); }
  // kOutOfMemory where the limit or the device has no more.
  Status AllocateNew(int64_t num_bytes, void** data);
  // The memory and events of a staged copy, taken at the first one. Returns
  // false if they are not available.
  bool HasStages() const;
  // A place in page-locked memory for a copy of so many bytes, or null if there
  // is none.
  void* WaitingRoom(int64_t num_bytes) const;
  Status CopyStaged(char* device, const char* host, int64_t num_bytes) const;

  // The same of a caller that can't report: the next Flush returns the error.
  void FlushLater() const {
    if (launch_buffer_ != nullptr && !launch_buffer_->empty()) {
      launch_buffer_->FlushLater();
    }
  }
  // True if launches of this thread wait.
  bool MayWait() const {
    return launch_buffer_ != nullptr &&
           CurrentLaunchBuffer() == launch_buffer_.get();
  }
  // Until is_done() is true; the error of the watch, if there is one.
  Status WatchUntil(const std::function<bool()>& is_done) const;
  // With a watch, until the stream has done its work.
  Status WatchStream() const;

  friend class CountMemory;

  CudaContextOptions options_;
  int64_t device_bytes_ = 0;  // that the device has
  CudaBeacon beacon_;
  bool is_forgotten_ = false;
  cudaStream_t stream_ = nullptr;
  bool owns_stream_ = false;
  std::unique_ptr<LaunchBuffer> launch_buffer_;  // null: not enabled
  bool buffers_launches_ = false;
  int num_multiprocessors_ = 0;
  int64_t shared_memory_per_block_ = 0;
  std::string device_name_;
  std::function<Status()> watch_;
  std::function<void()> begin_watch_;
  std::function<bool(bool)> agree_;
  bool keeps_memory_ = false;
  std::multimap<int64_t, void*> kept_memory_;  // by bytes
  int64_t kept_bytes_ = 0;
  std::map<void*, PageLockedBuffer> page_locked_;  // arrays on the host
  int64_t page_locked_least_ = 0;
  std::vector<int64_t> counted_changes_;  // CountMemory
  int64_t used_bytes_ = 0;
  int64_t peak_bytes_ = 0;
  mutable int64_t copied_bytes_ = 0;
  std::vector<PageLockedBuffer> result_pages_;
  std::vector<void*> free_results_;  // with room for all that there are
  mutable PageLockedBuffer stages_;
  mutable CudaEvents stage_events_;
  // Copies that wait, one after the other until the stream is waited for.
  mutable PageLockedBuffer waiting_;
  mutable int64_t waiting_bytes_ = 0;
};

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_MACHINE_CUDA_CONTEXT_H_
