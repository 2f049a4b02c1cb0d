// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "cuda_kernels/machine/host_context.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <limits>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace ceres_ext::kernels {
namespace {

// How long an idle thread polls before it sleeps. A region of a solve follows
// the one before within a few microseconds; a sleeping thread costs tens of
// them to wake.
constexpr std::chrono::microseconds kSpinTime(50);

void Pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

}  // namespace

// A region is published by raising `epoch`: everything the workers read was
// written before it. A worker leaves the region by lowering `num_active`, which
// hands its writes back to the caller.
struct HostContext::Pool {
  // The region in progress, constant while num_active > 0.
  Callback callback = nullptr;
  void* fn = nullptr;
  int64_t n = 0;
  int64_t grain = 1;
  std::atomic<int64_t> next_chunk{0};
  // What a chunk of the region threw, the first one that did, and its begin.
  // Guarded by mutex.
  std::exception_ptr thrown;
  int64_t thrown_at = std::numeric_limits<int64_t>::max();

  std::atomic<uint64_t> epoch{0};
  std::atomic<int> num_active{0};
  std::atomic<bool> stop{false};

  // Spinning takes a core from whoever has work where threads outnumber cores.
  bool spin = true;
  std::mutex mutex;
  std::condition_variable wake;
  int num_sleeping = 0;  // Guarded by mutex.
  std::vector<std::thread> threads;

  void WorkOnChunks(int slot) {
    for (;;) {
      const int64_t begin =
          next_chunk.fetch_add(1, std::memory_order_relaxed) * grain;
      if (begin >= n) {
        return;
      }
      try {
        callback(fn, begin, std::min(begin + grain, n), slot);
      } catch (...) {
        const std::lock_guard<std::mutex> lock(mutex);
        if (begin < thrown_at) {
          thrown_at = begin;
          thrown = std::current_exception();
        }
      }
    }
  }

  // Returns the epoch that differs from `seen`.
  uint64_t AwaitEpoch(uint64_t seen) {
    if (spin) {
      const auto deadline = std::chrono::steady_clock::now() + kSpinTime;
      do {
        for (int i = 0; i < 64; ++i) {
          const uint64_t now = epoch.load(std::memory_order_acquire);
          if (now != seen) {
            return now;
          }
          Pause();
        }
      } while (std::chrono::steady_clock::now() < deadline);
    }
    std::unique_lock<std::mutex> lock(mutex);
    ++num_sleeping;
    wake.wait(lock,
              [&] { return epoch.load(std::memory_order_acquire) != seen; });
    --num_sleeping;
    return epoch.load(std::memory_order_acquire);
  }

  void WorkerLoop(int slot) {
    uint64_t seen = 0;
    for (;;) {
      seen = AwaitEpoch(seen);
      if (stop.load(std::memory_order_relaxed)) {
        return;
      }
      WorkOnChunks(slot);
      num_active.fetch_sub(1, std::memory_order_release);
    }
  }

  void Publish() {
    bool someone_sleeps;
    {
      // Under the mutex, so that no thread goes to sleep between its look at
      // epoch and its wait.
      std::lock_guard<std::mutex> lock(mutex);
      epoch.fetch_add(1, std::memory_order_release);
      someone_sleeps = num_sleeping > 0;
    }
    if (someone_sleeps) {
      wake.notify_all();
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
  const unsigned num_cores = std::thread::hardware_concurrency();
  pool_->spin =
      num_cores == 0 || static_cast<unsigned>(num_threads) <= num_cores;
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
  pool_->stop.store(true, std::memory_order_relaxed);
  pool_->Publish();
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
  pool_->callback = callback;
  pool_->fn = fn;
  pool_->n = n;
  pool_->grain = grain;
  pool_->next_chunk.store(0, std::memory_order_relaxed);
  pool_->num_active.store(num_threads_ - 1, std::memory_order_relaxed);
  pool_->Publish();
  pool_->WorkOnChunks(0);
  // Workers are at most one chunk behind; past that they were descheduled.
  for (int i = 0; pool_->num_active.load(std::memory_order_acquire) != 0; ++i) {
    if (pool_->spin && i < 4096) {
      Pause();
    } else {
      std::this_thread::yield();
    }
  }
  if (pool_->thrown != nullptr) {
    pool_->thrown_at = std::numeric_limits<int64_t>::max();
    std::rethrow_exception(std::exchange(pool_->thrown, nullptr));
  }
}

}  // namespace ceres_ext::kernels
