// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/solver/step_choice.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace ceres_ext::solver {
namespace {

// The costs of steps that PCG would solve in so many iterations each, including
// S as a matrix, and the exact ones among them.
struct Spent {
  int64_t cost = 0;
  std::vector<bool> is_exact;
};
Spent Solve(const std::vector<int>& needed,
            int64_t exact,
            int64_t setup,
            int limit,
            StepChoice* choice) {
  Spent spent;
  bool has_matrix = false;
  const auto take_exact = [&] {
    spent.cost += exact + (has_matrix ? 0 : setup);
    has_matrix = true;
    choice->NoteExact();
    spent.is_exact.back() = true;
  };
  for (const int n : needed) {
    spent.is_exact.push_back(false);
    if (choice->IsExact()) {
      take_exact();
      continue;
    }
    const int most = choice->MaxNumIterations();
    EXPECT_GT(most, 0);
    EXPECT_LE(most, limit);
    spent.cost += std::min(n, most);
    // One that needs just as many ends by its tolerance.
    if (choice->NotePcg(std::min(n, most), n > most)) {
      take_exact();
    }
  }
  return spent;
}
Spent Solve(const std::vector<int>& needed,
            int64_t exact,
            int64_t setup,
            int limit) {
  StepChoice choice;
  choice.Setup(exact, setup, limit);
  return Solve(needed, exact, setup, limit, &choice);
}

TEST(StepChoice, PcgWhereItIsFaster) {
  const Spent spent = Solve({20, 3, 20, 7}, 20, 5, 500);
  EXPECT_EQ(spent.is_exact, std::vector<bool>(4, false));
  EXPECT_EQ(spent.cost, 50);
}

// The set-up is paid for once: by iterations beyond the cost of exact steps.
TEST(StepChoice, ExactWherePcgTakesLonger) {
  const Spent spent = Solve({23, 22, 21, 9, 9, 9, 9, 9}, 20, 5, 500);
  EXPECT_EQ(
      spent.is_exact,
      (std::vector<bool>{false, false, true, true, true, true, false, false}));
  EXPECT_EQ(spent.cost, 23 + 22 + 20 + 4 * 20 + 5 + 2 * 9);
}

// PCG is tried again after 4, 8, 16, ... exact steps.
TEST(StepChoice, PcgIsTriedLessAndLess) {
  const Spent spent = Solve(std::vector<int>(1000, 100), 10, 0, 500);
  EXPECT_EQ(spent.is_exact, std::vector<bool>(1000, true));
  // After 0, 4, 12, 28, 60, 124, 252 and 508 steps.
  EXPECT_EQ(spent.cost, 1000 * 10 + 8 * 10);
}

// PCG's own limit is below the cost: its steps are taken until they have cost
// as much.
TEST(StepChoice, StepsAtTheLimitCount) {
  const Spent spent = Solve(std::vector<int>(8, 1000), 250, 50, 100);
  EXPECT_EQ(
      spent.is_exact,
      (std::vector<bool>{false, false, true, true, true, true, false, false}));
  // One that meets its tolerance in time does not.
  EXPECT_EQ(Solve(std::vector<int>(20, 100), 250, 50, 100).is_exact,
            std::vector<bool>(20, false));
}

TEST(StepChoice, PcgAloneWhereNothingElseCanBeHad) {
  StepChoice choice;
  choice.Setup(10, 0, 500);
  EXPECT_EQ(choice.MaxNumIterations(), 10);
  EXPECT_TRUE(choice.NotePcg(10, true));
  choice.UsePcgAlone();
  EXPECT_EQ(choice.MaxNumIterations(), 500);
  EXPECT_EQ(Solve({600, 600}, 10, 0, 500, &choice).is_exact,
            std::vector<bool>(2, false));
}

// If PCG has no separate limit: never more than the cost of exact steps alone,
// S once more, and one failure of PCG in at least four exact steps.
TEST(StepChoice, CostsAtMostTwice) {
  std::mt19937 random(1);
  const auto uniform = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  for (int i = 0; i < 1000; ++i) {
    const int exact = uniform(1, 300);
    const int setup = uniform(0, 1000);
    std::vector<int> needed(static_cast<size_t>(uniform(1, 60)));
    for (int& n : needed) {
      n = uniform(1, 1 << uniform(1, 12));
    }
    const Spent spent = Solve(needed, exact, setup, 1 << 20);
    const auto num_exact =
        std::count(spent.is_exact.begin(), spent.is_exact.end(), true);
    const auto n = static_cast<int64_t>(needed.size());
    EXPECT_LE(spent.cost, n * exact + (num_exact / 4 + 1) * exact + 2 * setup);
  }
}

}  // namespace
}  // namespace ceres_ext::solver
