// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include <atomic>
#include <chrono>
#include <limits>
#include <thread>
#include <vector>

#include "cuda_kernels/base/buffer.h"
#include "cuda_kernels/machine/host_context.h"
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
