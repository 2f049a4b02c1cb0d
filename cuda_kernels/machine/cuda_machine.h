// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A CUDA device as a machine; what a machine is: host_machine.h.
//
//   std::unique_ptr<CudaMachine> machine;
//   Status status = CudaMachine::Create({}, &machine);
//
// Everything is queued on the context's stream. PCG is issued ahead: each
// iteration writes its scalars to page-locked memory, and the host looks at
// those of kLookBehind iterations ago, so the device never waits for the host,
// and at most kLookBehind iterations that do nothing follow the end.
//
// With EnableLoops PCG is a graph that repeats as many iterations as there are
// to a reset of the residual, until the scalars have ended; less than that many
// that do nothing follow the end. Measurements, and what doesn't follow a
// graph: docs/measurements/gpu.md. Host-includable: needs no CUDA toolkit.
#ifndef CERES_EXT_CUDA_KERNELS_MACHINE_CUDA_MACHINE_H_
#define CERES_EXT_CUDA_KERNELS_MACHINE_CUDA_MACHINE_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include "cuda_kernels/base/block_ref.h"
#include "cuda_kernels/base/pcg_scalars.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/base/vector_sums.h"
#include "cuda_kernels/machine/cuda_context.h"
#include "cuda_kernels/machine/cuda_graph.h"
#include "cuda_kernels/machine/device_buffer.h"

namespace ceres_ext::kernels {

class CudaMachine {
 public:
  static constexpr BlockLayout kLayout = kDeviceLayout;
  static constexpr int kNumMarks = 8;
  static constexpr int kLookBehind = kNumPublishedPcg - 1;
  // Most iterations in a graph. 10 are recorded in 0.3 ms; where residuals are
  // reset less often than this, a graph is not used.
  static constexpr int kMaxLoopPeriod = 20;
  template <typename T>
  using Buffer = DeviceBuffer<T>;
  template <typename T>
  using Result = DeviceResult<T>;

  CudaMachine() = default;
  CudaMachine(const CudaMachine&) = delete;
  CudaMachine& operator=(const CudaMachine&) = delete;

  // With a context of its own. Errors: those of CudaContext::Create.
  static Status Create(const CudaContextOptions& options,
                       std::unique_ptr<CudaMachine>* machine);
  // With a caller's context, which outlives the machine.
  Status Setup(CudaContext* context);

  // Frees nothing if the context is not alive any more, the buffers of
  // others that go later included.
  void ForgetIfLost();

  CudaContext* context() const { return context_; }
  cudaStream_t stream() const { return context_->stream(); }

  // Scratch of sums over vectors (cuda/vector_sums.cuh): two values per block;
  // an integer that is zero between kernels; one for the operation that runs.
  double* sum_partial() { return sum_partial_.data(); }
  int32_t* sum_ticket() { return integers_.data(); }
  int32_t* flag() { return integers_.data() + 1; }

  template <typename T>
  Status Allocate(int64_t n, DeviceBuffer<T>* buffer) {
    return buffer->Allocate(context_, n);
  }
  template <typename T>
  Status Upload(int64_t n, const T* host, T* to) {
    return context_->CopyToDevice(
        to, host, n * static_cast<int64_t>(sizeof(T)));
  }
  template <typename T>
  Status Upload(int64_t n, const T* host, DeviceBuffer<T>* buffer) {
    return buffer->Assign(context_, host, n);
  }
  template <typename T>
  Status Upload(const std::vector<T>& host, DeviceBuffer<T>* buffer) {
    return Upload(static_cast<int64_t>(host.size()), host.data(), buffer);
  }
  // From and to the caller's memory, which may be on the device. Copies on the
  // device are queued, not waited for.
  template <typename T>
  Status CopyFrom(int64_t n, const T* from, bool on_device, T* to) {
    return on_device ? context_->CopyOnDevice(
                           to, from, n * static_cast<int64_t>(sizeof(T)))
                     : Upload(n, from, to);
  }
  template <typename T>
  Status CopyTo(int64_t n, const T* from, bool on_device, T* to) {
    return on_device ? context_->CopyOnDevice(
                           to, from, n * static_cast<int64_t>(sizeof(T)))
                     : Download(n, from, to);
  }
  template <typename T>
  Status Download(int64_t n, const T* from, T* host) {
    return context_->CopyToHost(
        host, from, n * static_cast<int64_t>(sizeof(T)));
  }
  template <typename T>
  Status SetZero(int64_t n, T* x) {
    return context_->SetBytes(x, 0, n * static_cast<int64_t>(sizeof(T)));
  }
  template <typename T>
  Status AllocateResult(DeviceResult<T>* result) {
    return result->Allocate(context_);
  }
  template <typename T>
  Status ReadResult(const DeviceResult<T>& result, T* to) {
    return context_->ReadResult(result.data(), sizeof(T), to);
  }
  Status Synchronize() { return context_->Synchronize(); }

  PcgScalars* published_scalars() {
    return static_cast<PcgScalars*>(published_.get());
  }
  // An error here shows again, as a Status, at the ReadScalars that true asks
  // for.
  bool ShouldPoll(int iteration);
  // State of the last solve that has begun.
  Status ReadScalars(const PcgScalars* scalars, PcgScalars* to);

  // The iterations of PCG on some operands as a graph. Reset if others are to
  // use it.
  struct PcgLoop {
    void Reset() {
      graph.Clear();
      num_iterations = 0;
    }
    CudaGraph graph;
    // Queued one by one so far.
    int64_t num_iterations = 0;
  };

  // Queues iterations i, i + 1, ... until the scalars have ended, as a graph of
  // iterate(0) .. iterate(period - 1). False: nothing is queued, and iteration
  // i is to be queued by itself:
  //   - loops are not enabled, or too few of this one's iterations have been
  //     queued one by one;
  //   - i is not a multiple of period, which is at most kMaxLoopPeriod;
  //   - less than half a period is allowed: 5 iterations in a graph of 10 took
  //     227 us against 299 us one by one (trafalgar-21), 425 against 489
  //     (venice-245), 1478 against 1526 (venice-1778), 9.01 against 8.95 ms
  //     (final-13682) on an H200;
  //   - CUDA has refused a graph, from then on.
  bool QueueToEnd(int i,
                  int period,
                  int max_num_iterations,
                  const std::function<Status(int)>& iterate,
                  const PcgScalars* scalars,
                  PcgLoop* loop);

  // The state of graphs so far.
  struct LoopRecord {
    // The reason why there are none, where not ok.
    Status status{StatusCode::kUnsupported, "Not enabled."};
    int64_t num_recordings = 0;
    int64_t num_launches = 0;
  };
  const LoopRecord& loop_record() const { return loop_record_; }
  // After Setup. Off until asked for; then a loop becomes a graph when
  // min_num_iterations of it, at least one, have been queued one by one.
  // Everything that an operation does in PCG's iterations must go through
  // kernels::Launch or CudaContext::CopyOnDevice.
  void EnableLoops(int min_num_iterations = 1);

  Status RecordMark(int mark) { return events_.RecordLater(mark, stream()); }
  double SecondsBetweenMarks(int first, int last) {
    return events_.SecondsBetween(first, last);
  }

  // Scratch of the machine itself.
  static constexpr int64_t kOwnBytes =
      2 * kMaxSumBlocks * sizeof(double) + 2 * sizeof(int32_t);
  int64_t bytes() const { return context_->used_bytes(); }
  int64_t copied_bytes() const { return context_->copied_bytes(); }

 private:
  // Destroyed after the buffers, which free their memory through it.
  std::unique_ptr<CudaContext> owned_context_;
  CudaContext* context_ = nullptr;
  CudaEvents events_;
  PageLockedBuffer published_;
  DeviceBuffer<double> sum_partial_;
  DeviceBuffer<int32_t> integers_;
  LoopRecord loop_record_;
  int min_num_loop_iterations_ = std::numeric_limits<int>::max();  // off
};

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_MACHINE_CUDA_MACHINE_H_
