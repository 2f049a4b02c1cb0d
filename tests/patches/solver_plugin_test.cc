// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The seam for solver plugins in the patched Ceres: who gets a plugin and who
// doesn't, what the plugin is asked, and what happens when it or the solve
// fails. Wrapped stock parts must give stock's bits.

#include "ceres/solver_plugin.h"

#include <string>
#include <thread>
#include <vector>

#include "ceres/iteration_callback.h"
#include "ceres/parameter_block.h"
#include "ceres/program.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/patches/patch_test_problem.h"
#include "tests/patches/wrapping_plugin.h"

namespace ceres_ext {
namespace {

using ceres::internal::PreprocessedProblem;
using ceres::internal::ScopedSolverPlugin;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

SolveResult SolveStock(ceres::LinearSolverType type) {
  PatchTestProblem problem;
  return Solve(problem, problem.Options(type));
}

SolveResult SolveWith(WrappingPlugin* plugin, ceres::LinearSolverType type) {
  PatchTestProblem problem;
  ScopedSolverPlugin scoped_plugin(plugin);
  return Solve(problem, problem.Options(type));
}

class WrappedPartsTest
    : public ::testing::TestWithParam<ceres::LinearSolverType> {};

TEST_P(WrappedPartsTest, GiveBitsOfStock) {
  const SolveResult stock = SolveStock(GetParam());
  EXPECT_GT(stock.summary.num_successful_steps, 3);
  EXPECT_LT(stock.summary.final_cost, 0.1 * stock.summary.initial_cost);

  for (bool wrap_jacobian : {false, true}) {
    PluginRecord record;
    WrappingPlugin plugin(&record);
    plugin.wrap_jacobian = wrap_jacobian;
    const SolveResult wrapped = SolveWith(&plugin, GetParam());
    ExpectSameBits(stock, wrapped);
    EXPECT_EQ(record.num_solves, stock.summary.num_linear_solves);
    EXPECT_EQ(record.num_solves, wrapped.summary.num_linear_solves);
    EXPECT_EQ(record.num_evaluations,
              wrapped.summary.num_residual_evaluations +
                  wrapped.summary.num_jacobian_evaluations);
    EXPECT_EQ(record.num_finishes, 1);
    // DetectStructure needs a BlockSparseMatrix and has one here unless the
    // Jacobian is wrapped.
    if (wrap_jacobian) {
      EXPECT_THAT(wrapped.summary.schur_structure_given, IsEmpty());
      EXPECT_THAT(wrapped.summary.schur_structure_used, IsEmpty());
    } else {
      EXPECT_EQ(wrapped.summary.schur_structure_given,
                stock.summary.schur_structure_given);
      EXPECT_EQ(wrapped.summary.schur_structure_used,
                stock.summary.schur_structure_used);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(LinearSolvers,
                         WrappedPartsTest,
                         ::testing::Values(ceres::ITERATIVE_SCHUR,
                                           ceres::DENSE_SCHUR,
                                           ceres::CGNR,
                                           ceres::DENSE_QR),
                         [](const auto& info) {
                           return std::string(
                               ceres::LinearSolverTypeToString(info.param));
                         });

TEST(SolverPlugin, SchurStructureOfStock) {
  const SolveResult stock = SolveStock(ceres::DENSE_SCHUR);
  EXPECT_EQ(stock.summary.schur_structure_given, "2,3,9");
}

TEST(SolverPlugin, DefaultsLeaveEverythingToCeres) {
  const SolveResult stock = SolveStock(ceres::ITERATIVE_SCHUR);
  ceres::internal::SolverPlugin plugin;
  PatchTestProblem problem;
  ScopedSolverPlugin scoped_plugin(&plugin);
  ExpectSameBits(stock,
                 Solve(problem, problem.Options(ceres::ITERATIVE_SCHUR)));
}

TEST(SolverPlugin, MayMakeOnlyOnePart) {
  const SolveResult stock = SolveStock(ceres::ITERATIVE_SCHUR);
  {
    PluginRecord record;
    WrappingPlugin plugin(&record);
    plugin.make_evaluator = false;
    ExpectSameBits(stock, SolveWith(&plugin, ceres::ITERATIVE_SCHUR));
    EXPECT_GT(record.num_solves, 0);
  }
  {
    PluginRecord record;
    WrappingPlugin plugin(&record);
    plugin.make_linear_solver = false;
    ExpectSameBits(stock, SolveWith(&plugin, ceres::ITERATIVE_SCHUR));
    EXPECT_GT(record.num_evaluations, 0);
  }
}

TEST(SolverPlugin, IsAskedInOrderAndOutlivesWhatItMakes) {
  PluginRecord record;
  {
    WrappingPlugin plugin(&record);
    SolveWith(&plugin, ceres::ITERATIVE_SCHUR);
  }
  EXPECT_THAT(record.events,
              ElementsAre("OwnsOrdering",
                          "SetupLinearSolver",
                          "SetupEvaluator",
                          "Finish",
                          "~LinearSolver",
                          "~Evaluator",
                          "~Plugin"));
}

TEST(SolverPlugin, HandOverServesOneSolve) {
  const SolveResult stock = SolveStock(ceres::DENSE_SCHUR);
  PluginRecord record;
  WrappingPlugin plugin(&record);
  ScopedSolverPlugin scoped_plugin(&plugin);
  PatchTestProblem first;
  ExpectSameBits(stock, Solve(first, first.Options(ceres::DENSE_SCHUR)));
  const int num_solves = record.num_solves;
  EXPECT_GT(num_solves, 0);

  PatchTestProblem second;
  ExpectSameBits(stock, Solve(second, second.Options(ceres::DENSE_SCHUR)));
  EXPECT_EQ(record.num_solves, num_solves);
  EXPECT_EQ(record.num_finishes, 1);
}

TEST(SolverPlugin, InvalidOptionsUseUpTheHandOver) {
  PluginRecord record;
  WrappingPlugin plugin(&record);
  ScopedSolverPlugin scoped_plugin(&plugin);
  PatchTestProblem problem;
  ceres::Solver::Options options = problem.Options(ceres::DENSE_SCHUR);
  options.max_num_iterations = -1;
  const SolveResult result = Solve(problem, options);
  EXPECT_EQ(result.summary.termination_type, ceres::FAILURE);
  EXPECT_THAT(record.events, IsEmpty());

  Solve(problem, problem.Options(ceres::DENSE_SCHUR));
  EXPECT_THAT(record.events, IsEmpty());
}

TEST(SolverPlugin, UnusedHandOverEndsWithItsScope) {
  PluginRecord outer_record;
  PluginRecord inner_record;
  WrappingPlugin outer(&outer_record);
  WrappingPlugin inner(&inner_record);
  {
    ScopedSolverPlugin scoped_outer(&outer);
    { ScopedSolverPlugin scoped_inner(&inner); }
    PatchTestProblem problem;
    Solve(problem, problem.Options(ceres::DENSE_SCHUR));
    EXPECT_EQ(outer_record.num_finishes, 1);
    EXPECT_EQ(inner_record.num_finishes, 0);
  }
  { ScopedSolverPlugin scoped_outer(&outer); }
  PatchTestProblem problem;
  Solve(problem, problem.Options(ceres::DENSE_SCHUR));
  EXPECT_EQ(outer_record.num_finishes, 1);
  EXPECT_EQ(inner_record.num_finishes, 0);
}

TEST(SolverPlugin, NullHidesAnOuterHandOver) {
  PluginRecord record;
  WrappingPlugin plugin(&record);
  ScopedSolverPlugin scoped_plugin(&plugin);
  {
    ScopedSolverPlugin none(nullptr);
    PatchTestProblem problem;
    Solve(problem, problem.Options(ceres::DENSE_SCHUR));
  }
  EXPECT_THAT(record.events, IsEmpty());
  PatchTestProblem problem;
  Solve(problem, problem.Options(ceres::DENSE_SCHUR));
  EXPECT_EQ(record.num_finishes, 1);
}

// Solves another problem, with a plugin of its own, in the first iteration.
class NestedSolve final : public ceres::IterationCallback {
 public:
  explicit NestedSolve(ceres::internal::SolverPlugin* plugin)
      : plugin_(plugin) {}
  ceres::CallbackReturnType operator()(
      const ceres::IterationSummary& summary) override {
    if (summary.iteration == 0) {
      PatchTestProblem problem;
      ScopedSolverPlugin scoped_plugin(plugin_);
      result = Solve(problem, problem.Options(ceres::DENSE_SCHUR));
    }
    return ceres::SOLVER_CONTINUE;
  }
  SolveResult result;

 private:
  ceres::internal::SolverPlugin* plugin_;
};

TEST(SolverPlugin, SolveNestedInACallbackIsStock) {
  // A callback that hands nothing over.
  class Callback final : public ceres::IterationCallback {
   public:
    ceres::CallbackReturnType operator()(
        const ceres::IterationSummary& summary) override {
      if (summary.iteration == 0) {
        PatchTestProblem problem;
        result = Solve(problem, problem.Options(ceres::DENSE_SCHUR));
      }
      return ceres::SOLVER_CONTINUE;
    }
    SolveResult result;
  };
  const SolveResult stock = SolveStock(ceres::DENSE_SCHUR);
  PluginRecord record;
  WrappingPlugin plugin(&record);
  Callback nested;
  PatchTestProblem problem;
  ceres::Solver::Options options = problem.Options(ceres::DENSE_SCHUR);
  options.callbacks.push_back(&nested);
  ScopedSolverPlugin scoped_plugin(&plugin);
  const SolveResult outer = Solve(problem, options);
  ExpectSameBits(stock, nested.result);
  ExpectSameBits(stock, outer);
  EXPECT_EQ(record.num_finishes, 1);
  EXPECT_EQ(record.num_solves, stock.summary.num_linear_solves);
}

TEST(SolverPlugin, NestedSolveMayHaveItsOwn) {
  const SolveResult stock = SolveStock(ceres::DENSE_SCHUR);
  PluginRecord outer_record;
  PluginRecord inner_record;
  WrappingPlugin outer(&outer_record);
  WrappingPlugin inner(&inner_record);
  NestedSolve nested(&inner);
  PatchTestProblem problem;
  ceres::Solver::Options options = problem.Options(ceres::DENSE_SCHUR);
  options.callbacks.push_back(&nested);
  ScopedSolverPlugin scoped_plugin(&outer);
  ExpectSameBits(stock, Solve(problem, options));
  ExpectSameBits(stock, nested.result);
  EXPECT_EQ(outer_record.num_finishes, 1);
  EXPECT_EQ(inner_record.num_finishes, 1);
  EXPECT_EQ(outer_record.num_solves, inner_record.num_solves);
}

TEST(SolverPlugin, HandOverBelongsToItsThread) {
  PluginRecord record;
  WrappingPlugin plugin(&record);
  ScopedSolverPlugin scoped_plugin(&plugin);
  std::thread([] {
    PatchTestProblem problem;
    Solve(problem, problem.Options(ceres::DENSE_SCHUR));
  }).join();
  EXPECT_THAT(record.events, IsEmpty());
  PatchTestProblem problem;
  Solve(problem, problem.Options(ceres::DENSE_SCHUR));
  EXPECT_EQ(record.num_finishes, 1);
}

TEST(SolverPlugin, ThreadsUseTheirOwnAtOnce) {
  constexpr int kNumThreads = 3;
  constexpr int kNumRounds = 5;
  const ceres::LinearSolverType types[kNumThreads] = {
      ceres::ITERATIVE_SCHUR, ceres::DENSE_SCHUR, ceres::CGNR};
  std::vector<SolveResult> stock;
  for (ceres::LinearSolverType type : types) {
    stock.push_back(SolveStock(type));
  }
  PluginRecord records[kNumThreads][kNumRounds];
  SolveResult results[kNumThreads][kNumRounds];
  std::vector<std::thread> threads;
  for (int t = 0; t < kNumThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int r = 0; r < kNumRounds; ++r) {
        WrappingPlugin plugin(&records[t][r]);
        plugin.wrap_jacobian = t != 1;
        results[t][r] = SolveWith(&plugin, types[t]);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (int t = 0; t < kNumThreads; ++t) {
    for (int r = 0; r < kNumRounds; ++r) {
      ExpectSameBits(stock[t], results[t][r]);
      EXPECT_EQ(records[t][r].num_finishes, 1);
      EXPECT_EQ(records[t][r].num_solves, stock[t].summary.num_linear_solves);
    }
  }
}

// Takes the ordering and solves with CGNR, which needs none.
class OrderingPlugin final : public WrappingPlugin {
 public:
  explicit OrderingPlugin(PluginRecord* record) : WrappingPlugin(record) {
    owns_ordering = true;
  }

  bool SetupLinearSolver(PreprocessedProblem* pp) override {
    for (auto* block : pp->reduced_program->parameter_blocks()) {
      order.push_back(block->user_state());
    }
    pp->linear_solver_options.type = ceres::CGNR;
    pp->linear_solver_options.preconditioner_type = ceres::JACOBI;
    return WrappingPlugin::SetupLinearSolver(pp);
  }
  bool SetupEvaluator(PreprocessedProblem* pp) override {
    pp->evaluator_options.linear_solver_type = ceres::CGNR;
    pp->evaluator_options.num_eliminate_blocks = 0;
    return WrappingPlugin::SetupEvaluator(pp);
  }

  std::vector<const double*> order;
};

TEST(SolverPlugin, OwnerOfTheOrderingFindsTheOrderOfTheUser) {
  PatchTestProblem problem;
  PluginRecord record;
  OrderingPlugin plugin(&record);
  SolveResult result;
  {
    ScopedSolverPlugin scoped_plugin(&plugin);
    result = Solve(problem, problem.Options(ceres::ITERATIVE_SCHUR));
  }
  std::vector<const double*> order;
  for (int c = 0; c < PatchTestProblem::kNumCameras; ++c) {
    order.push_back(problem.camera(c));
  }
  for (int p = 0; p < PatchTestProblem::kNumPoints; ++p) {
    order.push_back(problem.point(p));
  }
  EXPECT_EQ(plugin.order, order);
  // CGNR doesn't reorder either, so these are its bits.
  ExpectSameBits(SolveStock(ceres::CGNR), result);
}

// The default ordering is made for Ceres alone, and the summary is the same.
TEST(SolverPlugin, IsAskedBeforeTheDefaultOrderingIsMade) {
  class AskedPlugin final : public WrappingPlugin {
   public:
    using WrappingPlugin::WrappingPlugin;
    bool OwnsOrdering(PreprocessedProblem* pp) override {
      has_ordering = pp->options.linear_solver_ordering != nullptr;
      return WrappingPlugin::OwnsOrdering(pp);
    }
    bool has_ordering = true;
  };
  PatchTestProblem stock_problem;
  ceres::Solver::Options options = stock_problem.Options(ceres::CGNR);
  options.linear_solver_ordering = nullptr;
  const SolveResult stock = Solve(stock_problem, options);
  EXPECT_THAT(stock.summary.linear_solver_ordering_used,
              ElementsAre(PatchTestProblem::kNumCameras +
                          PatchTestProblem::kNumPoints));
  for (const bool owns_ordering : {false, true}) {
    PatchTestProblem problem;
    PluginRecord record;
    AskedPlugin plugin(&record);
    plugin.owns_ordering = owns_ordering;
    ScopedSolverPlugin scoped_plugin(&plugin);
    const SolveResult result = Solve(problem, options);
    EXPECT_FALSE(plugin.has_ordering);
    ExpectSameBits(stock, result);
    EXPECT_EQ(result.summary.linear_solver_ordering_used,
              stock.summary.linear_solver_ordering_used);
  }
}

TEST(SolverPlugin, OwnerOfTheOrderingMustMakeBothParts) {
  const std::vector<uint64_t> start = Bits(PatchTestProblem().State());
  {
    PluginRecord record;
    OrderingPlugin plugin(&record);
    plugin.make_linear_solver = false;
    const SolveResult result = SolveWith(&plugin, ceres::ITERATIVE_SCHUR);
    EXPECT_EQ(result.summary.termination_type, ceres::FAILURE);
    EXPECT_THAT(result.summary.message, HasSubstr("made no linear solver"));
    EXPECT_EQ(result.state, start);
    EXPECT_EQ(record.num_finishes, 1);
  }
  {
    PluginRecord record;
    OrderingPlugin plugin(&record);
    plugin.make_evaluator = false;
    const SolveResult result = SolveWith(&plugin, ceres::ITERATIVE_SCHUR);
    EXPECT_EQ(result.summary.termination_type, ceres::FAILURE);
    EXPECT_THAT(result.summary.message, HasSubstr("made no evaluator"));
    EXPECT_EQ(result.state, start);
    EXPECT_EQ(record.num_finishes, 1);
  }
}

TEST(SolverPlugin, ItsErrorsEndTheSolve) {
  const std::vector<uint64_t> start = Bits(PatchTestProblem().State());
  {
    PluginRecord record;
    WrappingPlugin plugin(&record);
    plugin.linear_solver_error = "no such solver";
    const SolveResult result = SolveWith(&plugin, ceres::DENSE_SCHUR);
    EXPECT_EQ(result.summary.termination_type, ceres::FAILURE);
    EXPECT_EQ(result.summary.message, "no such solver");
    EXPECT_EQ(plugin.message_at_finish, "no such solver");
    EXPECT_EQ(result.state, start);
    EXPECT_THAT(record.events,
                ElementsAre("OwnsOrdering", "SetupLinearSolver", "Finish"));
  }
  {
    // The linear solver is of Schur type and there is no Jacobian.
    PluginRecord record;
    WrappingPlugin plugin(&record);
    plugin.evaluator_error = "no such evaluator";
    const SolveResult result = SolveWith(&plugin, ceres::DENSE_SCHUR);
    EXPECT_EQ(result.summary.termination_type, ceres::FAILURE);
    EXPECT_EQ(result.summary.message, "no such evaluator");
    EXPECT_EQ(result.state, start);
    EXPECT_THAT(record.events,
                ElementsAre("OwnsOrdering",
                            "SetupLinearSolver",
                            "SetupEvaluator",
                            "Finish",
                            "~LinearSolver"));
  }
}

TEST(SolverPlugin, FinishesWhenTheMinimizerFails) {
  PluginRecord record;
  WrappingPlugin plugin(&record);
  plugin.fail_at_evaluation = 1;
  const SolveResult result = SolveWith(&plugin, ceres::DENSE_SCHUR);
  EXPECT_EQ(result.summary.termination_type, ceres::FAILURE);
  EXPECT_EQ(result.state, Bits(PatchTestProblem().State()));
  EXPECT_EQ(record.num_finishes, 1);
}

// Threads publish the result in parallel. The user gets the final cost except
// for rounding: a sum of n terms, none of them negative, is within n * 2^-53 of
// the exact one, in whatever order.
TEST(SolverPlugin, PublishesTheResultWithAllThreads) {
  PatchTestProblem problem;
  problem.problem()->SetParameterBlockConstant(problem.camera(0));
  ceres::Solver::Options options = problem.Options(ceres::DENSE_SCHUR);
  options.num_threads = 4;
  PluginRecord record;
  WrappingPlugin plugin(&record);
  ScopedSolverPlugin scoped_plugin(&plugin);
  const SolveResult result = Solve(problem, options);
  EXPECT_LT(result.summary.final_cost, 0.1 * result.summary.initial_cost);
  double cost = 0.0;
  ASSERT_TRUE(problem.problem()->Evaluate(
      ceres::Problem::EvaluateOptions(), &cost, nullptr, nullptr, nullptr));
  const double rounding = result.summary.num_residual_blocks * 0x1p-52;
  EXPECT_NEAR(cost, result.summary.final_cost, rounding * cost);
}

TEST(SolverPlugin, FinishesWhenParametersAreNotFinite) {
  PatchTestProblem problem;
  problem.camera(0)[0] = NAN;
  PluginRecord record;
  WrappingPlugin plugin(&record);
  ScopedSolverPlugin scoped_plugin(&plugin);
  const SolveResult result =
      Solve(problem, problem.Options(ceres::DENSE_SCHUR));
  EXPECT_EQ(result.summary.termination_type, ceres::FAILURE);
  EXPECT_THAT(record.events, ElementsAre("Finish"));
}

TEST(SolverPlugin, FinishesWhenNothingVaries) {
  PatchTestProblem problem;
  for (int c = 0; c < PatchTestProblem::kNumCameras; ++c) {
    problem.problem()->SetParameterBlockConstant(problem.camera(c));
  }
  for (int p = 0; p < PatchTestProblem::kNumPoints; ++p) {
    problem.problem()->SetParameterBlockConstant(problem.point(p));
  }
  PluginRecord record;
  WrappingPlugin plugin(&record);
  ScopedSolverPlugin scoped_plugin(&plugin);
  const SolveResult result =
      Solve(problem, problem.Options(ceres::DENSE_SCHUR));
  EXPECT_EQ(result.summary.termination_type, ceres::CONVERGENCE);
  EXPECT_THAT(record.events, ElementsAre("Finish"));
}

TEST(SolverPlugin, IsOnlyToldOfALineSearch) {
  PatchTestProblem stock_problem;
  ceres::Solver::Options options = stock_problem.Options(ceres::DENSE_SCHUR);
  options.minimizer_type = ceres::LINE_SEARCH;
  const SolveResult stock = Solve(stock_problem, options);

  PatchTestProblem problem;
  PluginRecord record;
  WrappingPlugin plugin(&record);
  ScopedSolverPlugin scoped_plugin(&plugin);
  options = problem.Options(ceres::DENSE_SCHUR);
  options.minimizer_type = ceres::LINE_SEARCH;
  ExpectSameBits(stock, Solve(problem, options));
  EXPECT_THAT(record.events, ElementsAre("Finish"));
}

// Ceres then solves another problem than the user's, with wrapped cost
// functions.
TEST(SolverPlugin, ServesAGradientCheckedSolve) {
  SolveResult results[2];
  PluginRecord record;
  WrappingPlugin plugin(&record);
  for (bool with_plugin : {false, true}) {
    PatchTestProblem problem;
    ceres::Solver::Options options = problem.Options(ceres::DENSE_SCHUR);
    options.check_gradients = true;
    // Numeric derivatives are bad for points close to a camera.
    options.gradient_check_relative_precision = 100.0;
    ScopedSolverPlugin scoped_plugin(with_plugin ? &plugin : nullptr);
    results[with_plugin] = Solve(problem, options);
  }
  ExpectSameBits(results[0], results[1]);
  EXPECT_GT(record.num_solves, 0);
}

}  // namespace
}  // namespace ceres_ext
