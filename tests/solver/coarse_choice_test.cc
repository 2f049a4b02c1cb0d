// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/solver/coarse_choice.h"

#include "gtest/gtest.h"

namespace ceres_ext::solver {
namespace {

TEST(CoarseChoice, IsOffUnlessAskedFor) {
  CoarseChoice choice;
  EXPECT_FALSE(choice.MayBeOn());
  EXPECT_FALSE(choice.IsOn());
  EXPECT_EQ(choice.MaxNumIterations(500), 500);
}

TEST(CoarseChoice, ZeroIsOnFromTheStart) {
  CoarseChoice choice;
  choice.Setup(0, 15);
  EXPECT_TRUE(choice.IsOn());
  EXPECT_EQ(choice.MaxNumIterations(500), 500);
  // Whatever is rejected.
  for (int step = 0; step < 5; ++step) {
    choice.NoteStep(10, true);
    EXPECT_TRUE(choice.IsOn());
  }
}

// All steps without cost at most what the second level costs.
TEST(CoarseChoice, SwitchesOnWhereStepsCostAsMuch) {
  CoarseChoice choice;
  choice.Setup(60, 15);
  EXPECT_TRUE(choice.MayBeOn());
  EXPECT_FALSE(choice.IsOn());
  EXPECT_EQ(choice.MaxNumIterations(500), 60);
  EXPECT_EQ(choice.MaxNumIterations(20), 20);
  EXPECT_FALSE(choice.NoteStepWithout(20, true));
  EXPECT_FALSE(choice.IsOn());
  EXPECT_EQ(choice.MaxNumIterations(500), 40);
  EXPECT_TRUE(choice.NoteStepWithout(40, false));
  EXPECT_TRUE(choice.IsOn());
}

// A step that ends with the last of them does not have to continue.
TEST(CoarseChoice, TheNextStepBeginsWithIt) {
  CoarseChoice choice;
  choice.Setup(60, 15);
  EXPECT_FALSE(choice.NoteStepWithout(60, true));
  EXPECT_TRUE(choice.IsOn());
}

TEST(CoarseChoice, RenewsVectorsWhenIterationsHaveDoubled) {
  CoarseChoice choice;
  choice.Setup(0, 15);
  EXPECT_FALSE(choice.NoteStep(10, false));
  EXPECT_FALSE(choice.NoteStep(19, false));
  EXPECT_TRUE(choice.NoteStep(20, false));
  // The next step is the first with its vectors.
  EXPECT_FALSE(choice.NoteStep(40, false));
  EXPECT_FALSE(choice.NoteStep(79, false));
  EXPECT_TRUE(choice.NoteStep(80, false));
}

// Twice as many iterations as one or two do not count.
TEST(CoarseChoice, FewIterationsAreNotCompared) {
  CoarseChoice choice;
  choice.Setup(0, 15);
  EXPECT_FALSE(choice.NoteStep(1, false));
  EXPECT_FALSE(choice.NoteStep(2 * CoarseChoice::kLeastIterations - 1, false));
  EXPECT_TRUE(choice.NoteStep(2 * CoarseChoice::kLeastIterations, false));
}

TEST(CoarseChoice, SwitchesOffWhereStepsAreRejected) {
  CoarseChoice choice;
  choice.Setup(60, 15);
  choice.NoteStepWithout(60, false);
  EXPECT_FALSE(choice.NoteStep(10, false));
  EXPECT_FALSE(choice.NoteStep(10, true));
  EXPECT_TRUE(choice.IsOn());
  // One that is accepted between begins the count again.
  EXPECT_FALSE(choice.NoteStep(10, false));
  EXPECT_FALSE(choice.NoteStep(10, true));
  EXPECT_TRUE(choice.IsOn());
  EXPECT_FALSE(choice.NoteStep(10, true));
  EXPECT_FALSE(choice.IsOn());
  // It comes back where a step takes more iterations than it costs.
  EXPECT_EQ(choice.MaxNumIterations(500), 15);
  EXPECT_FALSE(choice.NoteStepWithout(14, true));
  EXPECT_FALSE(choice.IsOn());
  EXPECT_TRUE(choice.NoteStepWithout(15, false));
  EXPECT_TRUE(choice.IsOn());
}

TEST(CoarseChoice, DisabledIsNeverOn) {
  CoarseChoice choice;
  choice.Setup(0, 15);
  choice.Disable();
  EXPECT_FALSE(choice.MayBeOn());
  EXPECT_FALSE(choice.IsOn());
  EXPECT_EQ(choice.MaxNumIterations(500), 500);
}

}  // namespace
}  // namespace ceres_ext::solver
