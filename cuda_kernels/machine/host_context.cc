// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "cuda_kernels/machine/host_context.h"

#include <semaphore.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <exception>
#include <limits>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "cuda_kernels/machine/host_processors.h"

namespace ceres_ext::kernels {
namespace {

// How long a thread polls before it sleeps. A region of a solve follows the one
// before within a few microseconds; a sleeping thread costs tens of them to
// wake.
constexpr std::chrono::microseconds kSpinTime(50);

// Work for which one more thread is woken.
constexpr double kSecondsPerThread = 30e-6;

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
      .count();
}

void Pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

// Returns whether is_true() became true within kSpinTime.
template <typename Condition>
bool SpinUntil(const Condition& is_true) {
  const auto deadline = std::chrono::steady_clock::now() + kSpinTime;
  do {
    for (int i = 0; i < 64; ++i) {
      if (is_true()) {
        return true;
      }
      Pause();
    }
  } while (std::chrono::steady_clock::now() < deadline);
  return false;
}

// Threads that sleep and are woken one by one: each Post ends one Wait.
class Semaphore {
 public:
  Semaphore() { sem_init(&semaphore_, 0, 0); }
  ~Semaphore() { sem_destroy(&semaphore_); }
  Semaphore(const Semaphore&) = delete;
  Semaphore& operator=(const Semaphore&) = delete;

  void Post() { sem_post(&semaphore_); }
  void Wait() {
    while (sem_wait(&semaphore_) != 0 && errno == EINTR) {
    }
  }

 private:
  sem_t semaphore_;
};

}  // namespace

// A region ends when all its chunks are done, by any thread. The caller
// waits for no thread that has no chunk. The description of the region is
// therefore read only by threads that have taken a chunk of it: the region
// can't end, and no other can begin, before that chunk is done. A thread that
// comes late finds no chunk, or one of a later region, which it then works on
// as any other.
struct HostContext::Pool {
  // The region in progress.
  Callback callback = nullptr;
  void* fn = nullptr;
  int64_t n = 0;
  int64_t grain = 1;
  int64_t num_chunks = 0;
  // The exception of a chunk of the region, the first one that threw, and its
  // begin. Guarded by mutex.
  std::mutex mutex;
  std::exception_ptr thrown;
  int64_t thrown_at = std::numeric_limits<int64_t>::max();

  // Chunks that are not taken; negative after threads found none. Storing it
  // publishes a region.
  alignas(64) std::atomic<int64_t> num_left{0};
  // Chunks that are not done, plus kCallerSleeps.
  alignas(64) std::atomic<int64_t> num_pending{0};
  static constexpr int64_t kCallerSleeps = int64_t{1} << 62;
  Semaphore done;

  // Workers that sleep, or are about to, and that have not been woken yet.
  alignas(64) std::atomic<int> num_sleeping{0};
  Semaphore wake;
  std::atomic<bool> stop{false};

  // Spinning takes a processor from threads with work where threads outnumber
  // processors.
  bool spin = true;
  std::vector<std::thread> threads;

  // Times of function calls; of the caller. Two functions may share a place,
  // and take turns.
  struct Cost {
    Callback callback = nullptr;
    double seconds_per_element = 0.0;
  };
  static constexpr int kNumCosts = 256;
  Cost costs[kNumCosts];

  Cost* CostOf(Callback of) {
    // Functions begin at multiples of 16.
    return &costs[(reinterpret_cast<uintptr_t>(of) >> 4) % kNumCosts];
  }
  // Seconds of elements that one thread has worked on.
  void NoteCost(int64_t num_elements, double seconds) {
    if (num_elements == 0) {
      return;
    }
    Cost* const cost = CostOf(callback);
    const double per_element = seconds / static_cast<double>(num_elements);
    *cost = {callback,
             cost->callback == callback
                 ? 0.5 * (cost->seconds_per_element + per_element)
                 : per_element};
  }
  // Threads beside the caller's that the region seems to have work for.
  int NumHelpers() {
    const auto most = static_cast<int>(std::min<int64_t>(
        num_chunks - 1, static_cast<int64_t>(threads.size())));
    const Cost& cost = *CostOf(callback);
    if (cost.callback != callback) {
      return most;
    }
    const double wanted =
        cost.seconds_per_element * static_cast<double>(n) / kSecondsPerThread;
    return wanted < most ? static_cast<int>(wanted) : most;
  }

  // Returns how many elements the thread has worked on.
  int64_t WorkOnChunks(int slot) {
    int64_t num_elements = 0;
    while (num_left.load(std::memory_order_relaxed) > 0) {
      const int64_t left = num_left.fetch_sub(1, std::memory_order_acquire);
      if (left <= 0) {
        break;
      }
      const int64_t begin = (num_chunks - left) * grain;
      const int64_t end = std::min(begin + grain, n);
      num_elements += end - begin;
      try {
        callback(fn, begin, end, slot);
      } catch (...) {
        const std::lock_guard<std::mutex> lock(mutex);
        if (begin < thrown_at) {
          thrown_at = begin;
          thrown = std::current_exception();
        }
      }
      // Hands what the chunk wrote to the caller. The region may be gone then.
      if (num_pending.fetch_sub(1, std::memory_order_acq_rel) ==
          kCallerSleeps + 1) {
        done.Post();
      }
    }
    return num_elements;
  }

  bool HasWork() const {
    return num_left.load(std::memory_order_seq_cst) > 0 ||
           stop.load(std::memory_order_seq_cst);
  }

  // Returns when there may be chunks to take, or the pool is to end.
  void AwaitWork() {
    if (spin && SpinUntil([this] { return HasWork(); })) {
      return;
    }
    // Either this thread sees the region here, or Publish sees that it sleeps.
    num_sleeping.fetch_add(1, std::memory_order_seq_cst);
    if (HasWork() && TakeSleepers(1) == 1) {
      return;
    }
    wake.Wait();
  }

  // Lowers num_sleeping by up to max_num; each is owed a Post. Returns by how
  // much.
  int TakeSleepers(int max_num) {
    int num = num_sleeping.load(std::memory_order_seq_cst);
    while (num > 0 && max_num > 0 &&
           !num_sleeping.compare_exchange_weak(num,
                                               num - std::min(num, max_num))) {
    }
    return std::max(std::min(num, max_num), 0);
  }

  int NumAwake() const {
    return static_cast<int>(threads.size()) -
           num_sleeping.load(std::memory_order_seq_cst);
  }
  void WakeUpTo(int max_num) {
    for (int num = TakeSleepers(max_num); num > 0; --num) {
      wake.Post();
    }
  }

  void WorkerLoop(int slot) {
    for (;;) {
      AwaitWork();
      if (stop.load(std::memory_order_relaxed)) {
        return;
      }
      WorkOnChunks(slot);
    }
  }

  void AwaitEnd() {
    const auto is_done = [this] {
      return num_pending.load(std::memory_order_acquire) == 0;
    };
    if (is_done() || (spin && SpinUntil(is_done))) {
      return;
    }
    if (num_pending.fetch_add(kCallerSleeps, std::memory_order_acq_rel) != 0) {
      done.Wait();
    }
  }

  // wakes_all: each chunk has a thread of its own, however short the work.
  void Run(int64_t n_in,
           int64_t grain_in,
           int64_t num_chunks_in,
           bool wakes_all,
           Callback callback_in,
           void* fn_in) {
    callback = callback_in;
    fn = fn_in;
    n = n_in;
    grain = grain_in;
    num_chunks = num_chunks_in;
    num_pending.store(num_chunks, std::memory_order_relaxed);
    num_left.store(num_chunks, std::memory_order_seq_cst);
    // Threads that are awake come by themselves.
    WakeUpTo((wakes_all ? static_cast<int>(num_chunks) - 1 : NumHelpers()) -
             NumAwake());
    const auto start = std::chrono::steady_clock::now();
    const int64_t num_own = WorkOnChunks(0);
    NoteCost(num_own, SecondsSince(start));
    AwaitEnd();
    if (thrown != nullptr) {
      thrown_at = std::numeric_limits<int64_t>::max();
      std::rethrow_exception(std::exchange(thrown, nullptr));
    }
  }
};

HostContext::HostContext(int num_threads) {
  if (num_threads <= 1) {
    return;
  }
  // More than the processors of any host.
  num_threads = std::min(num_threads, 1024);
  pool_ = std::make_unique<Pool>();
  pool_->spin = num_threads <= NumUsableProcessors();
  try {
    pool_->threads.reserve(num_threads - 1);
    for (int slot = 1; slot < num_threads; ++slot) {
      pool_->threads.emplace_back(
          [pool = pool_.get(), slot] { pool->WorkerLoop(slot); });
    }
  } catch (const std::system_error&) {
    // Fewer threads, same results.
  } catch (const std::bad_alloc&) {
    // Fewer threads, same results.
  }
  num_threads_ = 1 + static_cast<int>(pool_->threads.size());
}

HostContext::~HostContext() {
  if (pool_ == nullptr) {
    return;
  }
  pool_->stop.store(true, std::memory_order_seq_cst);
  pool_->WakeUpTo(num_threads_);
  for (std::thread& thread : pool_->threads) {
    thread.join();
  }
}

void HostContext::Run(int64_t n, int64_t grain, Callback callback, void* fn) {
  const int64_t num_chunks = (n - 1) / grain + 1;
  if (num_threads_ == 1 || num_chunks == 1) {
    for (int64_t begin = 0; begin < n; begin += grain) {
      callback(fn, begin, std::min(begin + grain, n), 0);
    }
    return;
  }
  pool_->Run(n, grain, num_chunks, /*wakes_all=*/false, callback, fn);
}

void HostContext::RunAtOnce(int n, Callback callback, void* fn) {
  if (n == 1) {
    callback(fn, 0, 1, 0);
    return;
  }
  pool_->Run(n, /*grain=*/1, n, /*wakes_all=*/true, callback, fn);
}

}  // namespace ceres_ext::kernels
