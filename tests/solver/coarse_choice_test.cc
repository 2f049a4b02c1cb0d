// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/solver/coarse_choice.h"

#include "gtest/gtest.h"

namespace ceres_ext::solver {
namespace {

using Due = CoarseChoice::Due;

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
}

// All steps without cost at most what the second level costs.
TEST(CoarseChoice, SwitchesOnWhereStepsCostAsMuch) {
  CoarseChoice choice;
  choice.Setup(160, 15);
  EXPECT_TRUE(choice.MayBeOn());
  EXPECT_FALSE(choice.IsOn());
  EXPECT_EQ(choice.MaxNumIterations(500), 160);
  EXPECT_EQ(choice.MaxNumIterations(20), 20);
  EXPECT_FALSE(choice.NoteStepWithout(100, true));
  EXPECT_FALSE(choice.IsOn());
  EXPECT_EQ(choice.MaxNumIterations(500), 60);
  EXPECT_TRUE(choice.NoteStepWithout(60, false));
  EXPECT_TRUE(choice.IsOn());
}

TEST(CoarseChoice, StaysOffIfNoStepIsHard) {
  CoarseChoice choice;
  choice.Setup(160, 15);
  for (int step = 0; step < 100; ++step) {
    EXPECT_GE(choice.MaxNumIterations(500), 30);
    EXPECT_FALSE(choice.NoteStepWithout(29, true));
    EXPECT_FALSE(choice.IsOn());
  }
  EXPECT_EQ(choice.MaxNumIterations(500), 30);
  EXPECT_TRUE(choice.NoteStepWithout(30, false));
  EXPECT_TRUE(choice.IsOn());
}

// Steps take so many beyond the first one: 9 + 5 < 15 <= 9 + 5 + 1.
TEST(CoarseChoice, FormsTheMatrixAgainWhenKeepingItHasCostAsMuch) {
  CoarseChoice choice;
  choice.Setup(0, 15);
  EXPECT_EQ(choice.NoteStep(10), Due::kNothing);
  EXPECT_EQ(choice.NoteStep(19), Due::kNothing);
  EXPECT_EQ(choice.NoteStep(15), Due::kNothing);
  EXPECT_EQ(choice.NoteStep(8), Due::kNothing);
  EXPECT_EQ(choice.NoteStep(11), Due::kMatrix);
  // The next step is the first with its matrix.
  EXPECT_EQ(choice.NoteStep(12), Due::kNothing);
  EXPECT_EQ(choice.NoteStep(26), Due::kNothing);
  EXPECT_EQ(choice.NoteStep(13), Due::kMatrix);
}

// 60 more than the first step, and a new matrix alone takes twice as many.
TEST(CoarseChoice, RenewsVectorsWhenANewMatrixDoesNotHelp) {
  CoarseChoice choice;
  choice.Setup(0, 15);
  EXPECT_EQ(choice.NoteStep(10), Due::kNothing);
  EXPECT_EQ(choice.NoteStep(60), Due::kMatrix);
  EXPECT_EQ(choice.NoteStep(19), Due::kNothing);
  EXPECT_EQ(choice.NoteStep(34), Due::kMatrix);
  EXPECT_EQ(choice.NoteStep(20), Due::kVectors);
  // The next step is the first with its vectors.
  EXPECT_EQ(choice.NoteStep(40), Due::kNothing);
  EXPECT_EQ(choice.NoteStep(54), Due::kNothing);
  EXPECT_EQ(choice.NoteStep(41), Due::kMatrix);
}

// Twice as many iterations as one or two do not count.
TEST(CoarseChoice, FewIterationsAreNotCompared) {
  CoarseChoice choice;
  choice.Setup(0, 1);
  EXPECT_EQ(choice.NoteStep(1), Due::kNothing);
  EXPECT_EQ(choice.NoteStep(CoarseChoice::kLeastIterations), Due::kNothing);
  EXPECT_EQ(choice.NoteStep(CoarseChoice::kLeastIterations + 1), Due::kMatrix);
}

// With an E that is not positive definite a step takes so many without it
// before it is tried again.
TEST(CoarseChoice, StaysOnAfterAStepThatCouldNotHaveIt) {
  CoarseChoice choice;
  choice.Setup(0, 15);
  EXPECT_EQ(choice.MaxNumIterations(500), 15);
  EXPECT_FALSE(choice.NoteStepWithout(14, true));
  EXPECT_TRUE(choice.IsOn());
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
