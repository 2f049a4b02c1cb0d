// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/solver/loose_steps.h"

#include <string>

#include "gtest/gtest.h"

namespace ceres_ext::solver {
namespace {

// The loose ones (L) of steps that are accepted (a) or rejected (r).
std::string Loose(int num_first, int num_loose, const std::string& steps) {
  LooseSteps loose;
  loose.Setup(num_first, num_loose);
  std::string result;
  bool is_rejected = false;
  for (const char step : steps) {
    result += loose.IsNext(is_rejected) ? 'L' : '.';
    is_rejected = step == 'r';
  }
  return result;
}

TEST(LooseSteps, FollowARejectedOneOfTheFirst) {
  EXPECT_EQ(Loose(4, 3, "raaaaaa"), ".LLL...");
  EXPECT_EQ(Loose(4, 3, "aaaraaaaa"), "....LLL..");
  EXPECT_EQ(Loose(4, 3, "arraaaaa"), "..LLLL..");
}

TEST(LooseSteps, AreCountedByLinearisations) {
  EXPECT_EQ(Loose(4, 3, "rrrrrraraaaa"), ".LLLLLLLLL..");
}

TEST(LooseSteps, DoNotFollowALaterOne) {
  EXPECT_EQ(Loose(4, 3, "aaaaraaaa"), std::string(9, '.'));
  EXPECT_EQ(Loose(4, 0, "raaa"), "....");
  EXPECT_EQ(Loose(0, 3, "raaa"), "....");
}

TEST(LooseSteps, ComeOnce) { EXPECT_EQ(Loose(4, 1, "raraa"), ".L..."); }

}  // namespace
}  // namespace ceres_ext::solver
