// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A persistent pool of threads for the host bodies of the kernels.
//
//   HostContext context(num_threads);
//   context.ParallelFor(n, grain, [&](int64_t begin, int64_t end) { ... });
//
// Results never depend on the number of threads: [0, n) is cut into chunks of
// `grain` elements, the caller stores what a chunk sums under the chunk's
// number, begin / grain, and adds the chunks in that order. Threads only decide
// who works on which chunk.
//
// Waking a thread takes longer than a short call. So a context remembers how
// long the calls of a function took, and wakes no more threads than the next
// one has work for.
//
// Thread safety: one caller uses a HostContext at a time. Solves that run at
// once own one each. Calls of ParallelFor must not be nested.
#ifndef CERES_EXT_CUDA_KERNELS_MACHINE_HOST_CONTEXT_H_
#define CERES_EXT_CUDA_KERNELS_MACHINE_HOST_CONTEXT_H_

#include <cstdint>
#include <memory>
#include <type_traits>

namespace ceres_ext::kernels {

class HostContext {
 public:
  // The caller is one of the num_threads threads; values below 1 mean 1. If the
  // system refuses a thread, or more than 1024 are requested, the pool is
  // smaller: num_threads() says so and results are the same.
  explicit HostContext(int num_threads);
  ~HostContext();
  HostContext(const HostContext&) = delete;
  HostContext& operator=(const HostContext&) = delete;

  int num_threads() const { return num_threads_; }

  // Calls fn(begin, end) or fn(begin, end, slot) once for each chunk
  // [i * grain, min(n, (i + 1) * grain)), on any thread and in any order, and
  // returns when all are done. slot in [0, num_threads()) belongs to one thread
  // for the length of the call: an index into per-thread scratch. An exception
  // of fn leaves ParallelFor: if several chunks throw, that of the first one,
  // for any number of threads. Which chunks are done then is open.
  template <typename Function>
  void ParallelFor(int64_t n, int64_t grain, Function&& fn) {
    if (n <= 0) {
      return;
    }
    using F = std::remove_reference_t<Function>;
    Run(n,
        grain < 1 ? 1 : grain,
        &Invoke<F>,
        const_cast<void*>(static_cast<const void*>(&fn)));
  }

  // Calls fn(begin, end) for [0, 1), [1, 2), ... [n - 1, n), each on its own
  // thread, so that the calls may wait for each other. Range: 1 <= n <=
  // num_threads(). fn throws nothing.
  template <typename Function>
  void RunTogether(int n, Function&& fn) {
    using F = std::remove_reference_t<Function>;
    RunAtOnce(n, &Invoke<F>, const_cast<void*>(static_cast<const void*>(&fn)));
  }

 private:
  using Callback = void (*)(void* fn, int64_t begin, int64_t end, int slot);

  template <typename F>
  static void Invoke(void* fn, int64_t begin, int64_t end, int slot) {
    if constexpr (std::is_invocable_v<F&, int64_t, int64_t, int>) {
      (*static_cast<F*>(fn))(begin, end, slot);
    } else {
      static_cast<void>(slot);
      (*static_cast<F*>(fn))(begin, end);
    }
  }

  void Run(int64_t n, int64_t grain, Callback callback, void* fn);
  void RunAtOnce(int n, Callback callback, void* fn);

  struct Pool;
  std::unique_ptr<Pool> pool_;  // Null with one thread.
  int num_threads_ = 1;
};

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_MACHINE_HOST_CONTEXT_H_
