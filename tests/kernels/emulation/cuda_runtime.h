// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Runs the device bodies (.cu.cc) on the host, compiled as plain C++, so that
// machines without a GPU test them too. A block's threads are fibers that
// switch at barriers and shuffles; those that come to none run one after
// another in one fiber, whose stack is in the cache. Blocks run one after
// another, those of a cluster together; shared memory starts as NaN. A kernel
// that runs in clusters has none but the dynamic one, since others are the same
// in all blocks. A barrier that part of a block has left by returning, and a
// shuffle whose mask names a lane that doesn't come, end the program with a
// message. Data races that need real concurrency are not seen here: that is
// the sanitizers' work on a GPU.
//
// Each call, launch and sort fails if tests/kernels/cuda_faults.h says so.
// There is one device; of contexts and resets there is what the library asks
// about.
//
// This folder is before the toolkit's in the include path of the emulated tests
// and of nothing else.
#ifndef CERES_EXT_TESTS_EMULATION_CUDA_RUNTIME_H_
#define CERES_EXT_TESTS_EMULATION_CUDA_RUNTIME_H_

#include <ucontext.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <vector>

#include "tests/kernels/cuda_faults.h"

#define __global__
#define __device__
#define __host__
#define __shared__ static
#define __constant__ static
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) alignas(n)

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
};
struct float2 {
  float x, y;
};
struct float4 {
  float x, y, z, w;
};
struct double2 {
  double x, y;
};
struct int2 {
  int x, y;
};
struct int4 {
  int x, y, z, w;
};
struct uint2 {
  unsigned x, y;
};
struct uint4 {
  unsigned x, y, z, w;
};
inline float4 make_float4(float x, float y, float z, float w) {
  return {x, y, z, w};
}
inline double2 make_double2(double x, double y) { return {x, y}; }
inline int2 make_int2(int x, int y) { return {x, y}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }

inline dim3 threadIdx, blockIdx, blockDim, gridDim;

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
// Leaves no trace on the stack that ThreadSanitizer keeps of calls.
#define CERES_EXT_UNTRACED __attribute__((no_sanitize("thread")))
#else
#define CERES_EXT_UNTRACED
#endif

namespace emulation {

// Tells ThreadSanitizer which stack runs.
class TracedStack {
 public:
  static void Switch(TracedStack* to) {
#if defined(__SANITIZE_THREAD__)
    __tsan_switch_to_fiber(to->fiber_, 0);
#else
    static_cast<void>(to);
#endif
  }
  void Prepare(bool is_current) {
#if defined(__SANITIZE_THREAD__)
    if (fiber_ == nullptr) {
      fiber_ = is_current ? __tsan_get_current_fiber() : __tsan_create_fiber(0);
    }
#else
    static_cast<void>(is_current);
#endif
  }

 private:
#if defined(__SANITIZE_THREAD__)
  void* fiber_ = nullptr;
#endif
};

enum class State {
  kReady,
  kAtWarpBarrier,
  kAtBlockBarrier,
  kAtClusterBarrier,
  kDone
};

constexpr int kMaxClusterBlocks = 4;

#if defined(__x86_64__)
// Saves the registers a call preserves on the stack, *save = stack pointer, and
// the reverse from `load`. ucontext would ask the kernel at each switch, which
// makes tests of thousands of fibers take minutes.
__attribute__((naked, noinline)) static void SwitchStack(void** /*save*/,
                                                         void* /*load*/) {
  __asm__ volatile(
      "pushq %rbp\n\tpushq %rbx\n\tpushq %r12\n\tpushq %r13\n\t"
      "pushq %r14\n\tpushq %r15\n\tmovq %rsp, (%rdi)\n\t"
      "movq %rsi, %rsp\n\tpopq %r15\n\tpopq %r14\n\tpopq %r13\n\t"
      "popq %r12\n\tpopq %rbx\n\tpopq %rbp\n\tret");
}

class Context {
 public:
  static void Switch(Context* from, Context* to) {
    SwitchStack(&from->stack_pointer_, to->stack_pointer_);
  }
  void Prepare(char* stack, size_t num_bytes, void (*entry)()) {
    void** top = reinterpret_cast<void**>(
        reinterpret_cast<uintptr_t>(stack + num_bytes) / 16 * 16);
    // A function begins 8 bytes below a multiple of 16; six registers wait
    // below its address.
    *--top = nullptr;
    *--top = reinterpret_cast<void*>(entry);
    for (int i = 0; i < 6; ++i) {
      *--top = nullptr;
    }
    stack_pointer_ = top;
  }

 private:
  void* stack_pointer_ = nullptr;
};
#else
class Context {
 public:
  static void Switch(Context* from, Context* to) {
    swapcontext(&from->context_, &to->context_);
  }
  void Prepare(char* stack, size_t num_bytes, void (*entry)()) {
    getcontext(&context_);
    context_.uc_stack.ss_sp = stack;
    context_.uc_stack.ss_size = num_bytes;
    context_.uc_link = nullptr;
    makecontext(&context_, entry, 0);
  }

 private:
  ucontext_t context_;
};
#endif

struct Fiber {
  Context context;
  TracedStack traced;
  std::unique_ptr<char[]> stack;
};

// A thread of the cluster that runs.
struct Thread {
  State state = State::kReady;
  Fiber* fiber = nullptr;  // null: it has not begun
  unsigned num_exchanges = 0;
};

constexpr size_t kStackBytes = 256 * 1024;

struct Machine {
  std::vector<std::unique_ptr<Fiber>> fibers;
  std::vector<Fiber*> free_fibers;
  std::vector<Thread> threads;
  int warp_end = 0;  // of the threads of the warp that runs
  Context scheduler;
  TracedStack traced;
  const std::function<void()>* body = nullptr;
  int current = 0;  // of the threads of a cluster
  int block_size = 0;
  int cluster_size = 1;
  int64_t first_block = 0;  // of the cluster
  // One value of up to 16 bytes per thread, for shuffles. They take turns: a
  // thread may begin one while others still read of the one before.
  std::vector<std::array<unsigned char, 16>> exchange[2];
  std::vector<unsigned char> dynamic_shared[kMaxClusterBlocks];
};

inline Machine& machine() {
  static Machine m;
  return m;
}

inline int ClusterSize() { return machine().cluster_size; }
inline int ClusterRank() { return machine().current / machine().block_size; }

inline unsigned char* DynamicShared() {
  unsigned char* p = machine().dynamic_shared[ClusterRank()].data();
  return p + (16 - reinterpret_cast<uintptr_t>(p) % 16) % 16;
}

inline void Fail(const char* what) {
  std::fprintf(stderr,
               "emulated kernel: %s (block %u thread %d)\n",
               what,
               blockIdx.x,
               machine().current);
  std::abort();
}

inline void Trampoline();

// Goes from a stack to thread `to`.
CERES_EXT_UNTRACED inline void Resume(int to, Context* from) {
  Machine& m = machine();
  m.current = to;
  threadIdx.x = static_cast<unsigned>(to % m.block_size);
  blockIdx.x = static_cast<unsigned>(m.first_block + to / m.block_size);
  Fiber*& fiber = m.threads[static_cast<size_t>(to)].fiber;
  if (fiber == nullptr) {
    fiber = m.free_fibers.back();
    m.free_fibers.pop_back();
    fiber->context.Prepare(fiber->stack.get(), kStackBytes, &Trampoline);
    fiber->traced.Prepare(false);
  }
  TracedStack::Switch(&fiber->traced);
  Context::Switch(from, &fiber->context);
}

// Continues with the next thread of the warp, if it waits for nothing.
CERES_EXT_UNTRACED inline void Yield(State state) {
  Machine& m = machine();
  Thread& thread = m.threads[static_cast<size_t>(m.current)];
  Context* const context = &thread.fiber->context;
  thread.state = state;
  const int next = m.current + 1;
  if (next < m.warp_end &&
      m.threads[static_cast<size_t>(next)].state == State::kReady) {
    Resume(next, context);
  } else {
    TracedStack::Switch(&m.traced);
    Context::Switch(context, &m.scheduler);
  }
}

// Runs a thread, and then those after it in its warp that have not begun, up to
// one that comes to a barrier.
CERES_EXT_UNTRACED inline void Trampoline() {
  Machine& m = machine();
  for (;;) {
    (*m.body)();
    Thread* const done = &m.threads[static_cast<size_t>(m.current)];
    Fiber* const fiber = done->fiber;
    const int next = m.current + 1;
    if (next >= m.warp_end || done[1].fiber != nullptr ||
        done[1].state != State::kReady) {
      m.free_fibers.push_back(fiber);
      Yield(State::kDone);
    }
    done->state = State::kDone;
    done[1].fiber = fiber;
    m.current = next;
    threadIdx.x = static_cast<unsigned>(next % m.block_size);
  }
}

// Runs the threads of a warp up to their next barrier.
inline void RunWarp(int begin, int end) {
  Machine& m = machine();
  Thread* const threads = m.threads.data();
  m.warp_end = end;
  for (;;) {
    int num_at_warp_barrier = 0;
    for (int t = begin; t < end; ++t) {
      if (threads[t].state == State::kReady) {
        Resume(t, &m.scheduler);
      }
    }
    for (int t = begin; t < end; ++t) {
      num_at_warp_barrier += threads[t].state == State::kAtWarpBarrier;
    }
    if (num_at_warp_barrier == 0) {
      return;
    }
    if (num_at_warp_barrier != 32) {
      Fail("a full-warp operation that not every lane reaches");
    }
    for (int t = begin; t < end; ++t) {
      threads[t].state = State::kReady;
    }
  }
}

// Runs the threads of a block up to a barrier of the cluster or their end, and
// says which.
inline State RunBlock(int begin, int end) {
  Machine& m = machine();
  for (;;) {
    for (int w = begin; w < end; w += 32) {
      RunWarp(w, w + 32 < end ? w + 32 : end);
    }
    const State state = m.threads[static_cast<size_t>(begin)].state;
    for (int t = begin; t < end; ++t) {
      if (m.threads[static_cast<size_t>(t)].state != state) {
        Fail("a barrier that part of the block has left");
      }
    }
    if (state != State::kAtBlockBarrier) {
      return state;
    }
    for (int t = begin; t < end; ++t) {
      m.threads[static_cast<size_t>(t)].state = State::kReady;
    }
  }
}

inline void RunCluster() {
  Machine& m = machine();
  const int num_threads = m.cluster_size * m.block_size;
  m.traced.Prepare(true);
  m.threads.assign(static_cast<size_t>(num_threads), {});
  for (;;) {
    int num_done = 0;
    for (int t = 0; t < num_threads; t += m.block_size) {
      num_done += RunBlock(t, t + m.block_size) == State::kDone ? 1 : 0;
    }
    if (num_done == m.cluster_size) {
      return;
    }
    if (num_done != 0) {
      Fail("a barrier that part of the cluster has left");
    }
    for (int t = 0; t < num_threads; ++t) {
      m.threads[static_cast<size_t>(t)].state = State::kReady;
    }
  }
}

inline void Run(int64_t num_clusters,
                int cluster_size,
                int block_size,
                int64_t shared_bytes,
                const std::function<void()>& body) {
  Machine& m = machine();
  const auto num_threads = static_cast<size_t>(cluster_size * block_size);
  while (m.fibers.size() < num_threads) {
    m.fibers.push_back(std::make_unique<Fiber>());
    m.fibers.back()->stack.reset(new char[kStackBytes]);
    m.free_fibers.push_back(m.fibers.back().get());
  }
  for (auto& exchange : m.exchange) {
    exchange.resize(m.fibers.size() < 1024 ? 1024 : m.fibers.size());
  }
  m.body = &body;
  m.block_size = block_size;
  m.cluster_size = cluster_size;
  gridDim.x = static_cast<unsigned>(num_clusters * cluster_size);
  blockDim.x = static_cast<unsigned>(block_size);
  for (int64_t c = 0; c < num_clusters; ++c) {
    m.first_block = c * cluster_size;
    for (int b = 0; b < cluster_size; ++b) {
      m.dynamic_shared[b].assign(static_cast<size_t>(shared_bytes) + 16, 0xff);
    }
    RunCluster();
  }
}

// The values of the warp's lanes, until the next exchange but one.
template <typename T>
const std::array<unsigned char, 16>* ExchangeAll(T value) {
  static_assert(sizeof(T) <= 16, "one exchange slot");
  Machine& m = machine();
  const auto self = static_cast<size_t>(m.current);
  auto& exchange = m.exchange[m.threads[self].num_exchanges++ % 2];
  std::memcpy(exchange[self].data(), &value, sizeof(T));
  Yield(State::kAtWarpBarrier);
  return &exchange[self / 32 * 32];
}

template <typename T>
T Exchange(T value, int source_lane) {
  T result;
  std::memcpy(&result, ExchangeAll(value)[source_lane].data(), sizeof(T));
  return result;
}

}  // namespace emulation

inline void __syncthreads() {
  emulation::Yield(emulation::State::kAtBlockBarrier);
}
namespace emulation {
inline void ClusterBarrier() { Yield(State::kAtClusterBarrier); }
}  // namespace emulation
inline void __syncwarp(unsigned = 0xffffffffu) {
  emulation::Yield(emulation::State::kAtWarpBarrier);
}
inline void __threadfence() {}
template <typename T>
T __shfl_xor_sync(unsigned, T value, int lane_mask) {
  return emulation::Exchange(value,
                             (emulation::machine().current % 32) ^ lane_mask);
}
template <typename T>
T __shfl_down_sync(unsigned, T value, int delta) {
  const int lane = emulation::machine().current % 32;
  return emulation::Exchange(value, lane + delta < 32 ? lane + delta : lane);
}
template <typename T>
T __shfl_up_sync(unsigned, T value, int delta) {
  const int lane = emulation::machine().current % 32;
  return emulation::Exchange(value, lane - delta >= 0 ? lane - delta : lane);
}
template <typename T>
T __shfl_sync(unsigned, T value, int lane) {
  return emulation::Exchange(value, lane % 32);
}
inline unsigned __ballot_sync(unsigned, int value) {
  const auto* const values = emulation::ExchangeAll(value);
  unsigned bits = 0;
  for (int lane = 0; lane < 32; ++lane) {
    std::memcpy(&value, values[lane].data(), sizeof(value));
    bits |= value != 0 ? 1U << lane : 0U;
  }
  return bits;
}
template <typename T>
T __ldg(const T* p) {
  return *p;
}
template <typename T>
T __ldcg(const T* p) {
  return *p;
}
template <typename T>
T __ldcs(const T* p) {
  return *p;
}
template <typename T>
void __stcs(T* p, T value) {
  *p = value;
}
template <typename T>
T atomicAdd(T* p, T value) {
  const T old = *p;
  *p += value;
  return old;
}
template <typename T>
T atomicMin(T* p, T value) {
  const T old = *p;
  *p = value < old ? value : old;
  return old;
}
template <typename T>
T atomicMax(T* p, T value) {
  const T old = *p;
  *p = value > old ? value : old;
  return old;
}
template <typename T>
T atomicOr(T* p, T value) {
  const T old = *p;
  *p |= value;
  return old;
}

// The part of the runtime that contexts and buffers use.
typedef struct CUstream_st* cudaStream_t;
typedef struct CUevent_st* cudaEvent_t;
enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInsufficientDriver = 35,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidResourceHandle = 400,
  cudaErrorNotReady = 600,
  cudaErrorLaunchFailure = 719
};
enum cudaMemcpyKind {
  cudaMemcpyHostToDevice,
  cudaMemcpyDeviceToHost,
  cudaMemcpyDeviceToDevice,
  cudaMemcpyDefault
};
constexpr unsigned cudaStreamNonBlocking = 1;
struct cudaDeviceProp {
  char name[256];
  int multiProcessorCount;
  size_t sharedMemPerBlockOptin;
  size_t totalGlobalMem;
};
inline const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "out of memory" : "emulated";
}
namespace emulation {
// Settings of a test: the driver and its report on devices.
struct Driver {
  int version = 13000;
  cudaError_t device_count_error = cudaSuccess;
  int version_of_build = 13000;
  // State of the thread: the context of the device, another one, or null. Work
  // of a thread without one makes the device's current.
  void* current_context = nullptr;
  // The allocations, by address. No two allocations ever have one number.
  struct Allocation {
    uint64_t id = 0;
    size_t num_bytes = 0;
    bool is_on_device = false;  // else it is page-locked memory of the host
  };
  std::map<const void*, Allocation> allocations = {};
  uint64_t num_allocations = 0;
  int64_t num_wrong_frees = 0;
  // Objects that libraries have made from the device (library_util.h), and
  // their destruction.
  std::map<void*, void (*)(void*)> handles = {};
};
inline Driver& driver() {
  static Driver d;
  return d;
}
// The context of the device.
inline void* DeviceContext() { return &driver(); }
// 0: there is no such allocation.
inline uint64_t AllocationId(const void* data) {
  const auto found = driver().allocations.find(data);
  return found == driver().allocations.end() ? 0 : found->second.id;
}
// True if so many bytes from `data` on are part of one allocation of the
// device.
inline bool IsOnDevice(const void* data, size_t num_bytes) {
  const auto& allocations = driver().allocations;
  auto after = allocations.upper_bound(data);
  if (data == nullptr || after == allocations.begin()) {
    return false;
  }
  const auto& [begin, allocation] = *--after;
  const size_t offset = static_cast<size_t>(static_cast<const char*>(data) -
                                            static_cast<const char*>(begin));
  return allocation.is_on_device && offset <= allocation.num_bytes &&
         num_bytes <= allocation.num_bytes - offset;
}
inline cudaError_t Next(const char* call,
                        cudaError_t error = cudaErrorLaunchFailure) {
  return static_cast<cudaError_t>(::ceres_ext::cuda_faults().Next(call, error));
}
// A call that works on the device.
inline cudaError_t NextOnDevice(const char* call,
                                cudaError_t error = cudaErrorLaunchFailure) {
  if (driver().current_context == nullptr) {
    driver().current_context = DeviceContext();
  }
  return driver().current_context != DeviceContext()
             ? cudaErrorInvalidResourceHandle
             : Next(call, error);
}
inline cudaError_t Hold(int change) {
  ::ceres_ext::cuda_faults().Hold(change);
  return cudaSuccess;
}
inline cudaError_t Launch(int64_t num_blocks,
                          int block_size,
                          int64_t shared_bytes,
                          const std::function<void()>& body) {
  const cudaError_t error = NextOnDevice("cudaLaunchKernel");
  if (error == cudaSuccess) {
    Run(num_blocks, 1, block_size, shared_bytes, body);
  }
  return error;
}
inline cudaError_t LaunchClusters(int64_t num_clusters,
                                  int cluster_size,
                                  int block_size,
                                  int64_t shared_bytes,
                                  const std::function<void()>& body) {
  const cudaError_t error = NextOnDevice("cudaLaunchKernel");
  if (error == cudaSuccess) {
    Run(num_clusters, cluster_size, block_size, shared_bytes, body);
  }
  return error;
}
}  // namespace emulation
inline cudaError_t cudaGetLastError() {
  return static_cast<cudaError_t>(::ceres_ext::cuda_faults().LastError(true));
}
inline cudaError_t cudaDriverGetVersion(int* version) {
  *version = emulation::driver().version;
  return emulation::Next("cudaDriverGetVersion");
}
inline cudaError_t cudaGetDeviceCount(int* n) {
  *n = 1;
  const cudaError_t error = emulation::Next("cudaGetDeviceCount");
  return error != cudaSuccess ? error : emulation::driver().device_count_error;
}
inline cudaError_t cudaSetDevice(int) {
  const cudaError_t error = emulation::Next("cudaSetDevice");
  if (error == cudaSuccess) {
    emulation::driver().current_context = emulation::DeviceContext();
  }
  return error;
}
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int) {
  std::strcpy(p->name, "emulated");
  p->multiProcessorCount = 2;
  p->totalGlobalMem = size_t{1} << 40;
  p->sharedMemPerBlockOptin = 64 * 1024;  // The least of those supported.
  return emulation::Next("cudaGetDeviceProperties");
}
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned) {
  *s = nullptr;
  const cudaError_t error =
      emulation::NextOnDevice("cudaStreamCreateWithFlags");
  return error != cudaSuccess ? error : emulation::Hold(1);
}
// Functions that free do so, whatever they return.
inline cudaError_t cudaStreamDestroy(cudaStream_t) {
  emulation::Hold(-1);
  return emulation::Next("cudaStreamDestroy");
}
inline cudaError_t cudaStreamSynchronize(cudaStream_t) {
  return emulation::NextOnDevice("cudaStreamSynchronize");
}
inline cudaError_t cudaStreamQuery(cudaStream_t) {
  return emulation::NextOnDevice("cudaStreamQuery");
}
inline cudaError_t cudaDeviceSynchronize() {
  return emulation::NextOnDevice("cudaDeviceSynchronize");
}
namespace emulation {
inline cudaError_t Allocate(const char* call,
                            bool is_on_device,
                            void** p,
                            size_t n) {
  const cudaError_t error = NextOnDevice(call, cudaErrorMemoryAllocation);
  if (error != cudaSuccess) {
    return error;
  }
  *p = std::aligned_alloc(256, (n + 255) / 256 * 256);
  if (*p == nullptr) {
    return cudaErrorMemoryAllocation;
  }
  try {
    driver().allocations[*p] = {++driver().num_allocations, n, is_on_device};
  } catch (const std::bad_alloc&) {
    std::free(*p);
    return cudaErrorMemoryAllocation;
  }
  std::memset(*p, 0xff, n);
  return Hold(1);
}
inline cudaError_t Free(const char* call, void* p) {
  if (p != nullptr && driver().allocations.erase(p) == 0) {
    ++driver().num_wrong_frees;
    return cudaErrorInvalidValue;
  }
  if (p != nullptr) {
    std::free(p);
    Hold(-1);
  }
  return Next(call);
}
// Takes away all that the device has.
inline void Reset() {
  while (!driver().allocations.empty()) {
    Free("", const_cast<void*>(driver().allocations.begin()->first));
  }
  for (const auto& [handle, destroy] : driver().handles) {
    destroy(handle);
  }
  driver().handles.clear();
  Hold(static_cast<int>(-::ceres_ext::cuda_faults().num_held()));
}
}  // namespace emulation
inline cudaError_t cudaMalloc(void** p, size_t n) {
  return emulation::Allocate("cudaMalloc", true, p, n);
}
inline cudaError_t cudaFree(void* p) { return emulation::Free("cudaFree", p); }
inline cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *free = *total = size_t{1} << 40;
  return emulation::NextOnDevice("cudaMemGetInfo");
}
inline cudaError_t cudaMallocHost(void** p, size_t n) {
  return emulation::Allocate("cudaMallocHost", false, p, n);
}
inline cudaError_t cudaFreeHost(void* p) {
  return emulation::Free("cudaFreeHost", p);
}
inline cudaError_t cudaMemcpyAsync(
    void* to, const void* from, size_t n, cudaMemcpyKind, cudaStream_t) {
  const cudaError_t error = emulation::NextOnDevice("cudaMemcpyAsync");
  if (error == cudaSuccess) {
    std::memcpy(to, from, n);
  }
  return error;
}
inline cudaError_t cudaMemsetAsync(void* p, int v, size_t n, cudaStream_t) {
  const cudaError_t error = emulation::NextOnDevice("cudaMemsetAsync");
  if (error == cudaSuccess) {
    std::memset(p, v, n);
  }
  return error;
}
inline cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = nullptr;
  const cudaError_t error = emulation::NextOnDevice("cudaEventCreate");
  return error != cudaSuccess ? error : emulation::Hold(1);
}
inline cudaError_t cudaEventDestroy(cudaEvent_t) {
  emulation::Hold(-1);
  return emulation::Next("cudaEventDestroy");
}
inline cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) {
  return emulation::NextOnDevice("cudaEventRecord");
}
inline cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) {
  return emulation::NextOnDevice("cudaStreamWaitEvent");
}
inline cudaError_t cudaEventSynchronize(cudaEvent_t) {
  return emulation::NextOnDevice("cudaEventSynchronize");
}
inline cudaError_t cudaEventQuery(cudaEvent_t) {
  return emulation::NextOnDevice("cudaEventQuery");
}
inline cudaError_t cudaEventElapsedTime(float* t, cudaEvent_t, cudaEvent_t) {
  *t = 0.0f;
  return emulation::Next("cudaEventElapsedTime");
}

#endif  // CERES_EXT_TESTS_EMULATION_CUDA_RUNTIME_H_
