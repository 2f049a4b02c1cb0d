// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Ranks that are threads: exchanges, sums whose bits are those of the order of
// the ranks, and failures that end all ranks with one sentence.

#include "cuda_kernels/machine/communicator.h"

#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ceres_ext::kernels {
namespace {

using std::chrono::milliseconds;
using ::testing::Each;
using ::testing::HasSubstr;
using Communicators = std::vector<std::unique_ptr<Communicator>>;

constexpr milliseconds kLong{60000};

// Calls fn(communicator) on a thread for each rank.
void OnAllRanks(const Communicators& communicators,
                const std::function<void(Communicator*)>& fn) {
  std::vector<std::thread> threads;
  for (const auto& communicator : communicators) {
    threads.emplace_back([&fn, one = communicator.get()] { fn(one); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

TEST(Communicator, Gathers) {
  for (const int size : {1, 2, 3, 7}) {
    const Communicators all = MakeThreadCommunicators(size, kLong);
    OnAllRanks(all, [size](Communicator* one) {
      std::string error;
      for (int32_t round = 0; round < 50; ++round) {
        const int32_t mine[] = {one->rank(), round};
        std::vector<int32_t> found(static_cast<size_t>(2 * size));
        ASSERT_TRUE(one->AllGather(mine, sizeof(mine), found.data(), &error));
        std::vector<int32_t> to(static_cast<size_t>(size));
        std::vector<int32_t> from;
        for (int32_t rank = 0; rank < size; ++rank) {
          EXPECT_EQ(found[static_cast<size_t>(2 * rank)], rank);
          EXPECT_EQ(found[static_cast<size_t>(2 * rank + 1)], round);
          from.push_back(100 * one->rank() + rank);
        }
        ASSERT_TRUE(
            one->AllToAll(from.data(), sizeof(int32_t), to.data(), &error));
        for (int32_t rank = 0; rank < size; ++rank) {
          EXPECT_EQ(to[static_cast<size_t>(rank)], 100 * rank + one->rank());
        }
      }
    });
  }
}

TEST(Communicator, SumsHaveTheBitsOfTheOrderOfTheRanks) {
  for (const int size : {1, 2, 3, 4, 7}) {
    for (const int64_t n : {0, 1, 5, 1000}) {
      std::mt19937 random(static_cast<uint32_t>(100 * size + n));
      std::normal_distribution<double> normal;
      std::vector<std::vector<double>> x(static_cast<size_t>(size));
      std::vector<double> expected;
      for (auto& of_rank : x) {
        for (int64_t i = 0; i < n; ++i) {
          of_rank.push_back(std::ldexp(normal(random), 20 * (i % 3)));
        }
        if (expected.empty()) {
          expected = of_rank;
          continue;
        }
        for (int64_t i = 0; i < n; ++i) {
          expected[static_cast<size_t>(i)] += of_rank[static_cast<size_t>(i)];
        }
      }
      const Communicators all = MakeThreadCommunicators(size, kLong);
      OnAllRanks(all, [&](Communicator* one) {
        std::vector<double> scratch;
        auto& mine = x[static_cast<size_t>(one->rank())];
        EXPECT_TRUE(SumOverRanks(n, mine.data(), &scratch, one).ok());
      });
      EXPECT_THAT(x, Each(expected)) << size << " ranks, n = " << n;
    }
  }
}

// The sentence of each rank's next call.
std::vector<std::string> Errors(const Communicators& communicators,
                                const std::function<bool(int)>& calls) {
  std::vector<std::string> errors(communicators.size());
  OnAllRanks(communicators, [&](Communicator* one) {
    if (calls(one->rank())) {
      std::vector<char> all(communicators.size());
      EXPECT_FALSE(one->AllGather(
          "", 1, all.data(), &errors[static_cast<size_t>(one->rank())]));
    }
  });
  return errors;
}

TEST(Communicator, AnAbortEndsAllRanks) {
  const Communicators all = MakeThreadCommunicators(3, kLong);
  const auto errors = Errors(all, [&](int rank) {
    if (rank == 1) {
      std::this_thread::sleep_for(milliseconds(20));
      all[1]->Abort("there is no memory.");
      all[1]->Abort("the second one does not count.");
    }
    return rank != 1;
  });
  EXPECT_EQ(errors[0], "Rank 1: there is no memory.");
  EXPECT_EQ(errors[2], errors[0]);
  EXPECT_THAT(Errors(all, [](int) { return true; }), Each(errors[0]));
}

TEST(Communicator, ARankThatDoesNotComeIsWaitedForInVain) {
  const Communicators all = MakeThreadCommunicators(3, milliseconds(50));
  const auto errors = Errors(all, [](int rank) { return rank != 2; });
  EXPECT_THAT(errors[0], HasSubstr("waited 50 ms for 1 of 3 ranks"));
  EXPECT_EQ(errors[1], errors[0]);
}

TEST(Communicator, ARankThatEndsEndsTheOthers) {
  Communicators all = MakeThreadCommunicators(3, kLong);
  std::vector<std::string> errors(3);
  std::thread ends([&] { all[2].reset(); });
  std::thread waits([&] {
    char found[3];
    EXPECT_FALSE(all[0]->AllGather("", 1, found, &errors[0]));
  });
  ends.join();
  waits.join();
  EXPECT_EQ(errors[0], "Rank 2 has ended.");
}

TEST(Communicator, SizesThatDifferAreNamed) {
  const Communicators all = MakeThreadCommunicators(2, kLong);
  std::vector<std::string> errors(2);
  OnAllRanks(all, [&](Communicator* one) {
    const std::vector<char> mine(8);
    std::vector<char> found(16, 'x');
    const int64_t bytes = one->rank() == 0 ? 4 : 8;
    EXPECT_FALSE(one->AllGather(mine.data(),
                                bytes,
                                found.data(),
                                &errors[static_cast<size_t>(one->rank())]));
    EXPECT_THAT(found, Each('x'));
  });
  EXPECT_THAT(errors[0], HasSubstr("bytes, and rank"));
  EXPECT_EQ(errors[1], errors[0]);
}

}  // namespace
}  // namespace ceres_ext::kernels
