// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include <pthread.h>
#include <semaphore.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <limits>
#include <thread>
#include <vector>

#include "cuda_kernels/base/buffer.h"
#include "cuda_kernels/machine/host_context.h"
#include "cuda_kernels/machine/host_processors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ceres_ext::kernels {
namespace {

class HostContextTest : public testing::TestWithParam<int> {};

TEST_P(HostContextTest, VisitsEveryElementOnce) {
  HostContext context(GetParam());
  EXPECT_EQ(context.num_threads(), GetParam());
  for (const int64_t n : {0, 1, 2, 31, 32, 33, 1000}) {
    for (const int64_t grain : {1, 7, 32, 2000}) {
      std::vector<int> visits(n, 0);
      std::atomic<int> num_chunks{0};
      context.ParallelFor(n, grain, [&](int64_t begin, int64_t end) {
        EXPECT_EQ(begin % grain, 0);
        EXPECT_EQ(end, std::min(n, begin + grain));
        for (int64_t i = begin; i < end; ++i) {
          ++visits[i];
        }
        ++num_chunks;
      });
      EXPECT_THAT(visits, testing::Each(1));
      EXPECT_EQ(num_chunks, (n + grain - 1) / grain);
    }
  }
}

TEST_P(HostContextTest, SlotsBelongToOneThread) {
  HostContext context(GetParam());
  std::vector<std::atomic<int>> users(context.num_threads());
  context.ParallelFor(500, 1, [&](int64_t, int64_t, int slot) {
    ASSERT_GE(slot, 0);
    ASSERT_LT(slot, context.num_threads());
    EXPECT_EQ(users[slot].fetch_add(1), 0);
    std::this_thread::yield();
    EXPECT_EQ(users[slot].fetch_sub(1), 1);
  });
}

// However short the calls before were, for which no thread was woken.
TEST_P(HostContextTest, CallsMayWaitForEachOther) {
  HostContext context(GetParam());
  for (int i = 0; i < 50; ++i) {
    for (int n = 1; n <= context.num_threads(); ++n) {
      std::atomic<int> num_here{0};
      std::vector<int> visits(n, 0);
      context.RunTogether(n, [&](int64_t begin, int64_t end) {
        EXPECT_EQ(end, begin + 1);
        ++visits[begin];
        ++num_here;
        while (num_here < n) {
          std::this_thread::yield();
        }
      });
      EXPECT_THAT(visits, testing::Each(1));
    }
    if (i % 10 == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
}

// Regions that follow at once and after the workers went to sleep.
TEST_P(HostContextTest, ManyRegions) {
  HostContext context(GetParam());
  std::atomic<int64_t> sum{0};
  for (int i = 0; i < 300; ++i) {
    context.ParallelFor(16, 1, [&](int64_t begin, int64_t) { sum += begin; });
    if (i % 100 == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  EXPECT_EQ(sum, 300 * 120);
}

// Threads that a signal handler delays, as a busy machine may.
class StoppedThreads {
 public:
  StoppedThreads() {
    sem_init(&num_stopped_, 0, 0);
    EXPECT_EQ(pipe(pipe_), 0);
    struct sigaction action = {};
    action.sa_handler = &Stop;
    action.sa_flags = SA_RESTART;
    EXPECT_EQ(sigaction(SIGUSR1, &action, &old_action_), 0);
  }
  ~StoppedThreads() {
    Release();
    sigaction(SIGUSR1, &old_action_, nullptr);
    close(pipe_[0]);
    sem_destroy(&num_stopped_);
  }
  // Returns when the thread has stopped.
  void Add(pthread_t thread) {
    ++num_threads_;
    ASSERT_EQ(pthread_kill(thread, SIGUSR1), 0);
    while (sem_wait(&num_stopped_) != 0 && errno == EINTR) {
    }
  }
  // Returns when all have left the handler.
  void Release() {
    if (pipe_[1] >= 0) {
      close(pipe_[1]);  // the end of file that they read
      pipe_[1] = -1;
      for (; num_threads_ > 0; --num_threads_) {
        while (sem_wait(&num_stopped_) != 0 && errno == EINTR) {
        }
      }
    }
  }

 private:
  static void Stop(int /*signal*/) {
    const int old_errno = errno;
    sem_post(&num_stopped_);
    char byte;
    while (read(pipe_[0], &byte, 1) < 0 && errno == EINTR) {
    }
    sem_post(&num_stopped_);
    errno = old_errno;
  }

  static sem_t num_stopped_;
  static int pipe_[2];
  struct sigaction old_action_;
  int num_threads_ = 0;
};
sem_t StoppedThreads::num_stopped_;
int StoppedThreads::pipe_[2];

// The threads of the context without the caller's.
std::vector<pthread_t> Workers(HostContext* context) {
  const int num_threads = context->num_threads();
  std::vector<pthread_t> threads(num_threads);
  std::vector<std::atomic<bool>> seen(num_threads);
  std::atomic<int> num_seen{0};
  // Each thread stays in its chunk until all have one.
  context->ParallelFor(num_threads, 1, [&](int64_t, int64_t, int slot) {
    threads[slot] = pthread_self();
    ++num_seen;
    while (num_seen < num_threads) {
      std::this_thread::yield();
    }
  });
  return {threads.begin() + 1, threads.end()};
}

// A region waits for chunks: threads that do not come, at first one of them, at
// last all, do not keep it from its end, and do no harm when they come late.
TEST_P(HostContextTest, EndsWithoutThreadsThatDoNotCome) {
  HostContext context(GetParam());
  const std::vector<pthread_t> workers = Workers(&context);
  // A region that waits for stopped threads fails in a minute; it does not
  // hang.
  std::atomic<bool> is_over{false};
  std::atomic<bool> hangs{false};
  {
    StoppedThreads stopped;
    std::thread watchdog([&] {
      for (int i = 0; i < 600 && !is_over; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
      }
      if (!is_over) {
        hangs = true;
        stopped.Release();
      }
    });
    for (const pthread_t worker : workers) {
      if (!hangs) {
        stopped.Add(worker);
      }
      for (int i = 0; i < 100; ++i) {
        std::atomic<int64_t> sum{0};
        context.ParallelFor(
            16, 1, [&](int64_t begin, int64_t) { sum += begin; });
        EXPECT_EQ(sum, 120);
      }
    }
    is_over = true;
    watchdog.join();
  }
  EXPECT_FALSE(hangs);
  for (int i = 0; i < 1000; ++i) {
    std::vector<int> visits(16, 0);
    context.ParallelFor(
        16, 1, [&](int64_t begin, int64_t) { ++visits[begin]; });
    ASSERT_THAT(visits, testing::Each(1));
  }
}

// A chunk that takes long is waited for, by a caller that has gone to sleep.
TEST_P(HostContextTest, WaitsForEveryChunk) {
  HostContext context(GetParam());
  const int num_threads = context.num_threads();
  for (int i = 0; i < 10; ++i) {
    std::vector<int> done(num_threads, 0);
    std::atomic<int> num_taken{0};
    context.ParallelFor(num_threads, 1, [&](int64_t begin, int64_t, int slot) {
      ++num_taken;
      while (num_taken < num_threads) {
        std::this_thread::yield();
      }
      // So long that the next call wakes all threads too.
      std::this_thread::sleep_for(std::chrono::milliseconds(slot != 0 ? 3 : 1));
      done[begin] = 1;
    });
    EXPECT_THAT(done, testing::Each(1));
  }
}

// Threads that sleep are left alone by calls that take less time than waking
// one does, and are woken again where the same function has more to do.
TEST_P(HostContextTest, WakesNobodyForAShortCall) {
  HostContext context(GetParam());
  const int num_threads = context.num_threads();
  std::atomic<int> num_by_others{0};
  const auto call = [&](int64_t n, int milliseconds) {
    num_by_others = 0;
    // Workers spin for less than that.
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    context.ParallelFor(n, 1, [&](int64_t, int64_t, int slot) {
      if (milliseconds > 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
      }
      num_by_others += slot != 0 ? 1 : 0;
    });
  };
  // One call may be held up by other processes, and each by threads that share
  // a processor with the caller.
  int num_calls = 0;
  do {
    call(2 * num_threads, 0);
  } while (num_by_others > 0 && ++num_calls < 100);
  EXPECT_TRUE(num_calls < 100 || num_threads > NumUsableProcessors());
  // The first call can't know that it takes long.
  call(2 * num_threads, 20);
  call(2 * num_threads, 20);
  EXPECT_GE(num_by_others, num_threads - 1);
}

INSTANTIATE_TEST_SUITE_P(Threads,
                         HostContextTest,
                         testing::Values(1, 2, 3, 7, 16));

TEST(HostContext, FewerThanOneThreadIsOne) {
  EXPECT_EQ(HostContext(0).num_threads(), 1);
  EXPECT_EQ(HostContext(-5).num_threads(), 1);
}

TEST(HostContext, TwoContextsAtOnce) {
  std::vector<int64_t> sums(2, 0);
  const auto work = [&](int id) {
    HostContext context(2);
    std::atomic<int64_t> sum{0};
    for (int i = 0; i < 100; ++i) {
      context.ParallelFor(
          100, 10, [&](int64_t begin, int64_t end) { sum += end - begin; });
    }
    sums[id] = sum;
  };
  std::thread other(work, 1);
  work(0);
  other.join();
  EXPECT_THAT(sums, testing::Each(10000));
}

TEST(HostContext, ThrowsWhatTheFirstChunkThrows) {
  for (const int num_threads : {1, 2, 5}) {
    HostContext context(num_threads);
    for (int i = 0; i < 100; ++i) {
      int64_t thrown = -1;
      try {
        context.ParallelFor(1000, 10, [&](int64_t begin, int64_t /*end*/) {
          if (begin >= 370) {
            throw begin;
          }
        });
      } catch (const int64_t begin) {
        thrown = begin;
      }
      EXPECT_EQ(thrown, 370);
      // The context is as good as before.
      std::atomic<int64_t> sum{0};
      context.ParallelFor(
          100, 10, [&](int64_t begin, int64_t end) { sum += end - begin; });
      EXPECT_EQ(sum, 100);
    }
  }
}

TEST(HostBuffer, RefusesInsteadOfThrowing) {
  HostBuffer<double> buffer;
  ASSERT_TRUE(buffer.Allocate(3, 1.5).ok());
  EXPECT_EQ(buffer.data()[2], 1.5);
  EXPECT_EQ(buffer.size(), 3);
  EXPECT_EQ(buffer.Allocate(-1).code, StatusCode::kInvalidArgument);
  EXPECT_EQ(buffer.Allocate(std::numeric_limits<int64_t>::max()).code,
            StatusCode::kOutOfMemory);
  EXPECT_EQ(buffer.size(), 0);
  EXPECT_EQ(buffer.data(), nullptr);
}

TEST(HostBuffer, Moves) {
  HostBuffer<int> a;
  ASSERT_TRUE(a.Allocate(2, 7).ok());
  HostBuffer<int> b(std::move(a));
  EXPECT_EQ(b.size(), 2);
  a = std::move(b);
  EXPECT_EQ(a.data()[1], 7);
}

TEST(HostBuffer, CountsWhatItHolds) {
  int64_t bytes = 0;
  {
    HostBuffer<double> a;
    ASSERT_TRUE(a.Allocate(3, &bytes).ok());
    EXPECT_EQ(bytes, 24);
    ASSERT_TRUE(a.Allocate(2, &bytes).ok());
    EXPECT_EQ(bytes, 16);
    HostBuffer<double> b;
    ASSERT_TRUE(b.Allocate(1, &bytes).ok());
    b = std::move(a);
    EXPECT_EQ(bytes, 16);
  }
  EXPECT_EQ(bytes, 0);
}

}  // namespace
}  // namespace ceres_ext::kernels
