// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The host as a machine.
//
//   HostMachine machine(num_threads);
//   HostMachine::Buffer<double> x;
//   Status status = machine.Allocate(n, &x);
//   if (status.ok()) status = Run(NegateParams{n, x.data(), y}, &machine);
//
// A machine is where arrays live and operations run (ops/), a type with
//   kLayout, Buffer<T>       layout of block arrays, owner of an array
//   Allocate(n, &buffer)     memory, in a set-up only; the machine outlives it
//   Upload(n, host, to)      from host memory; to a pointer, or a buffer, which
//                            is allocated; or Upload(vector, &buffer)
//   Download(n, from, host)  to host memory, after all queued work
//   CopyFrom(n, from, on_device, to), CopyTo(n, from, on_device, to)
//                            the same with the caller's memory, which may be
//                            that of the device
//   SetZero(n, x)            every byte
//   Result<T>, AllocateResult(&result)  one record that operations write and
//                            the host reads:
//   ReadResult(result, &to)  after all queued work
//   Synchronize()            waits for queued work
//   RecordMark(m), SecondsBetweenMarks(m, n), m < kNumMarks: the time of what
//                            was queued between two marks, after that work
//   bytes(), copied_bytes()  held now; copied between host and machine so far
// and, for PCG (ceres_ext/solver/pcg.h),
//   published_scalars()      PcgScalars::published
//   ShouldPoll(i)            whether to look at the scalars after iteration i
//   ReadScalars(scalars, &to)  after all queued work
//   PcgLoop                  what it keeps of PCG's iterations between solves
//   QueueToEnd(...)          queues all iterations that are left, or false
// if whatever may fail returns a Status. Marks 0 to 4 are the solver's, the
// others the caller's.
//
// One caller uses a machine at a time; concurrent solves own one each.
#ifndef CERES_EXT_CUDA_KERNELS_MACHINE_HOST_MACHINE_H_
#define CERES_EXT_CUDA_KERNELS_MACHINE_HOST_MACHINE_H_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

#include "cuda_kernels/base/block_ref.h"
#include "cuda_kernels/base/buffer.h"
#include "cuda_kernels/base/pcg_scalars.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/host_context.h"

namespace ceres_ext::kernels {

class HostMachine {
 public:
  static constexpr BlockLayout kLayout = kHostLayout;
  static constexpr int kNumMarks = 8;
  template <typename T>
  using Buffer = HostBuffer<T>;
  template <typename T>
  using Result = HostBuffer<T>;

  explicit HostMachine(int num_threads) : context_(num_threads) {}

  HostContext* context() { return &context_; }

  template <typename T>
  Status Allocate(int64_t n, HostBuffer<T>* buffer) {
    return buffer->Allocate(n, &bytes_);
  }
  template <typename T>
  Status Upload(int64_t n, const T* host, T* to) {
    context_.ParallelFor(n, Grain<T>(), [host, to](int64_t begin, int64_t end) {
      std::copy(host + begin, host + end, to + begin);
    });
    return {};
  }
  template <typename T>
  Status Upload(int64_t n, const T* host, HostBuffer<T>* buffer) {
    CERES_EXT_RETURN_IF_ERROR(Allocate(n, buffer));
    return Upload(n, host, buffer->data());
  }
  template <typename T>
  Status Upload(const std::vector<T>& host, HostBuffer<T>* buffer) {
    return Upload(static_cast<int64_t>(host.size()), host.data(), buffer);
  }
  template <typename T>
  Status Download(int64_t n, const T* from, T* host) {
    return Upload(n, from, host);
  }
  template <typename T>
  Status CopyFrom(int64_t n, const T* from, bool /*on_device*/, T* to) {
    return Upload(n, from, to);
  }
  template <typename T>
  Status CopyTo(int64_t n, const T* from, bool /*on_device*/, T* to) {
    return Upload(n, from, to);
  }
  template <typename T>
  Status SetZero(int64_t n, T* x) {
    context_.ParallelFor(n, Grain<T>(), [x](int64_t begin, int64_t end) {
      std::memset(static_cast<void*>(x + begin),
                  0,
                  static_cast<size_t>(end - begin) * sizeof(T));
    });
    return {};
  }
  template <typename T>
  Status AllocateResult(HostBuffer<T>* result) {
    CERES_EXT_RETURN_IF_ERROR(Allocate(1, result));
    *result->data() = T();
    return {};
  }
  template <typename T>
  Status ReadResult(const HostBuffer<T>& result, T* to) {
    *to = *result.data();
    return {};
  }
  Status Synchronize() { return {}; }

  PcgScalars* published_scalars() { return nullptr; }
  bool ShouldPoll(int /*iteration*/) const { return true; }
  Status ReadScalars(const PcgScalars* scalars, PcgScalars* to) {
    *to = *scalars;
    return {};
  }
  struct PcgLoop {
    void Reset() {}
  };
  bool QueueToEnd(int /*i*/,
                  int /*period*/,
                  int /*max_num_iterations*/,
                  const std::function<Status(int)>& /*iterate*/,
                  const PcgScalars* /*scalars*/,
                  PcgLoop* /*loop*/) {
    return false;
  }

  Status RecordMark(int mark) {
    marks_[mark] = std::chrono::steady_clock::now();
    return {};
  }
  double SecondsBetweenMarks(int first, int last) const {
    return std::chrono::duration<double>(marks_[last] - marks_[first]).count();
  }

  int64_t bytes() const { return bytes_; }
  int64_t* account() { return &bytes_; }      // for buffers made elsewhere
  int64_t copied_bytes() const { return 0; }  // Nothing has a way to go.

 private:
  // Values of one thread at a time: pages that were never touched come faster
  // to several threads.
  template <typename T>
  static constexpr int64_t Grain() {
    return (int64_t{1} << 20) / static_cast<int64_t>(sizeof(T)) + 1;
  }

  int64_t bytes_ = 0;
  HostContext context_;
  std::chrono::steady_clock::time_point marks_[kNumMarks];
};

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_MACHINE_HOST_MACHINE_H_
