// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The passes over all blocks that Ceres makes before and after a solve, made
// with several threads in the patched Ceres: what they find is what one thread
// finds.

#include <algorithm>
#include <array>
#include <cstdio>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "ceres/context_impl.h"
#include "ceres/loss_function.h"
#include "ceres/manifold.h"
#include "ceres/parameter_block.h"
#include "ceres/problem.h"
#include "ceres/problem_impl.h"
#include "ceres/program.h"
#include "ceres/residual_block.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/patches/difference_cost_function.h"

namespace ceres_ext {
namespace {

using ceres::internal::ContextImpl;
using ceres::internal::ParameterBlock;
using ceres::internal::Program;
using ceres::internal::ResidualBlock;
using ::testing::HasSubstr;

// More than several tasks' worth (4096 blocks each), and no multiple of it.
constexpr int kNumBlocks = 21001;
constexpr int kNumRows = 40003;

enum class Fixed { kNothing, kSome, kLate, kAll };

// Even blocks have 3 values, odd ones 2. Some blocks are in no row, constant,
// on a manifold, or on one without a tangent.
class RandomProblem {
 public:
  RandomProblem(Fixed fixed, unsigned seed)
      : values_(3 * kNumBlocks),
        hold_first_(3, {0}),
        hold_all_(2, {0, 1}),
        problem_(Options()) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<double> uniform(-1.0, 1.0);
    for (double& value : values_) {
      value = uniform(random);
    }
    for (int i = 0; i < kNumBlocks; ++i) {
      problem_.AddParameterBlock(block(i), i % 2 == 0 ? 3 : 2);
      if (fixed == Fixed::kNothing) {
        continue;
      }
      const bool late = fixed == Fixed::kLate && i < kNumBlocks - 50;
      if (fixed == Fixed::kAll || i >= kNumBlocks - 2 ||
          (!late && random() % 3 == 0)) {
        problem_.SetParameterBlockConstant(block(i));
      } else if (random() % 5 == 0) {
        if (i % 2 == 0) {
          problem_.SetManifold(block(i), &hold_first_);
        } else if (!late) {
          problem_.SetManifold(block(i), &hold_all_);
        }
      }
    }
    const auto pick = [&] { return static_cast<int>(random() % kNumBlocks); };
    for (int i = 0; i < kNumRows; ++i) {
      const int a = pick() / 2 * 2;
      const int b = std::min(pick() / 2 * 2 + 1, kNumBlocks - 2);
      problem_.AddResidualBlock(
          &cost_function_, i % 7 == 0 ? &loss_ : nullptr, block(a), block(b));
    }
    // The last three rows are those of the last blocks.
    for (int i = 1; i <= 3; ++i) {
      problem_.AddResidualBlock(&cost_function_,
                                nullptr,
                                block(kNumBlocks - 1),
                                block(kNumBlocks - 2));
    }
  }

  double* block(int i) { return &values_[3 * i]; }
  ceres::Problem* problem() { return &problem_; }
  Program* program() { return problem_.mutable_impl()->mutable_program(); }
  ContextImpl* context() { return problem_.mutable_impl()->context(); }

 private:
  static ceres::Problem::Options Options() {
    ceres::Problem::Options options;
    options.cost_function_ownership = ceres::DO_NOT_TAKE_OWNERSHIP;
    options.loss_function_ownership = ceres::DO_NOT_TAKE_OWNERSHIP;
    options.manifold_ownership = ceres::DO_NOT_TAKE_OWNERSHIP;
    return options;
  }

  std::vector<double> values_;
  Difference cost_function_;
  ceres::HuberLoss loss_{0.3};
  ceres::SubsetManifold hold_first_;
  ceres::SubsetManifold hold_all_;
  ceres::Problem problem_;
};

// All that the passes say about a program and its reduced one.
struct Findings {
  std::array<int, 5> sizes{};
  std::array<int, 5> reduced_sizes{};
  std::vector<ParameterBlock*> blocks;
  std::vector<ResidualBlock*> rows;
  std::vector<double*> removed;
  // For each block of the problem: index and offsets while the reduced program
  // is in use, if it is in there, and -1.
  std::vector<std::array<int, 3>> places;
  std::vector<double> state;
  double fixed_cost = 0.0;
  bool is_bounded = false;

  auto Tie() const {
    return std::tie(sizes,
                    reduced_sizes,
                    blocks,
                    rows,
                    removed,
                    places,
                    state,
                    fixed_cost,
                    is_bounded);
  }
};

std::array<int, 5> Sizes(const Program& program) {
  return {program.NumParameterBlocks(),
          program.NumParameters(),
          program.NumEffectiveParameters(),
          program.NumResidualBlocks(),
          program.NumResiduals()};
}

Findings Find(RandomProblem* problem, int num_threads) {
  problem->context()->EnsureMinimumThreads(num_threads - 1);
  Program* const program = problem->program();
  program->SetThreads(problem->context(), num_threads);
  Findings findings;
  EXPECT_TRUE(program->SetParameterBlockStatePtrsToUserStatePtrs());
  findings.sizes = Sizes(*program);
  std::string error;
  EXPECT_TRUE(program->ParameterBlocksAreFinite(&error)) << error;
  EXPECT_TRUE(program->IsFeasible(&error)) << error;
  const std::unique_ptr<Program> reduced = program->CreateReducedProgram(
      &findings.removed, &findings.fixed_cost, &error);
  if (reduced == nullptr) {
    ADD_FAILURE() << error;
    return findings;
  }
  findings.reduced_sizes = Sizes(*reduced);
  findings.blocks = reduced->parameter_blocks();
  findings.rows = reduced->residual_blocks();
  for (const ParameterBlock* block : program->parameter_blocks()) {
    findings.places.push_back({-1, -1, -1});
    if (block->index() != -1) {
      findings.places.back() = {
          block->index(), block->state_offset(), block->delta_offset()};
    }
  }
  findings.state.resize(reduced->NumParameters());
  reduced->ParameterBlocksToStateVector(findings.state.data());
  findings.is_bounded = reduced->IsBoundsConstrained();
  // As a solve ends.
  program->NumberParameterBlocks();
  EXPECT_TRUE(program->IsValid());
  program->SetThreads(nullptr, 1);
  return findings;
}

class PassesTest : public ::testing::TestWithParam<Fixed> {};

TEST_P(PassesTest, FindTheSameWithSeveralThreads) {
  for (const unsigned seed : {1u, 2u, 3u}) {
    RandomProblem problem(GetParam(), seed);
    const Findings one = Find(&problem, 1);
    EXPECT_EQ(one.sizes[0], kNumBlocks);
    if (GetParam() == Fixed::kAll) {
      EXPECT_TRUE(one.blocks.empty());
      EXPECT_GT(one.fixed_cost, 0.0);
    } else if (GetParam() == Fixed::kNothing) {
      // Some blocks are in no row.
      EXPECT_FALSE(one.removed.empty());
      EXPECT_EQ(one.rows.size(), kNumRows + 3u);
    } else {
      EXPECT_LT(one.rows.size(), kNumRows + 3u);
      EXPECT_GT(one.fixed_cost, 0.0);
    }
    for (const int num_threads : {2, 7}) {
      EXPECT_TRUE(one.Tie() == Find(&problem, num_threads).Tie())
          << num_threads << " threads, seed " << seed;
    }
    problem.problem()->SetParameterLowerBound(
        problem.block(kNumBlocks - 1), 1, -5.0);
    EXPECT_EQ(Find(&problem, 1).is_bounded, Find(&problem, 7).is_bounded);
  }
}

INSTANTIATE_TEST_SUITE_P(FixedBlocks,
                         PassesTest,
                         ::testing::Values(Fixed::kNothing,
                                           Fixed::kSome,
                                           Fixed::kLate,
                                           Fixed::kAll));

TEST(Passes, NameTheFirstBadBlock) {
  RandomProblem problem(Fixed::kNothing, 5);
  const auto expect_same = [&](auto&& check) {
    std::string of_one;
    std::string of_seven;
    EXPECT_FALSE(check(&of_one));
    problem.context()->EnsureMinimumThreads(6);
    problem.program()->SetThreads(problem.context(), 7);
    EXPECT_FALSE(check(&of_seven));
    problem.program()->SetThreads(nullptr, 1);
    EXPECT_EQ(of_one, of_seven);
    return of_one;
  };
  // Three tasks have one each.
  for (const int i : {20000, 9000, 5000}) {
    problem.problem()->SetParameterLowerBound(problem.block(i), 1, 3.0 + i);
    problem.problem()->SetParameterUpperBound(problem.block(i), 1, 2.0);
  }
  EXPECT_THAT(expect_same([&](std::string* message) {
                return problem.program()->IsFeasible(message);
              }),
              HasSubstr("Lower bound: 5.003000e+03"));
  for (const int i : {20000, 4500, 9000}) {
    problem.block(i)[1] = std::numeric_limits<double>::quiet_NaN();
  }
  char address[32];
  std::snprintf(
      address, sizeof(address), "%p", static_cast<void*>(problem.block(4500)));
  EXPECT_THAT(expect_same([&](std::string* message) {
                return problem.program()->ParameterBlocksAreFinite(message);
              }),
              HasSubstr(address));
}

}  // namespace
}  // namespace ceres_ext
