// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Exceptions of user code during a solve. Solve throws nothing: it ends with
// FAILURE and the exception's text in its message and unchanged parameters, or
// continues with a smaller step.

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "ceres/autodiff_cost_function.h"
#include "ceres/evaluation_callback.h"
#include "ceres/iteration_callback.h"
#include "ceres/loss_function.h"
#include "ceres/sized_cost_function.h"
#include "ceres_ext/bal_cost_functions.h"
#include "ceres_ext/device_cost_function.h"
#include "ceres_ext/solve.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/bal_test_problem.h"
#include "tests/common/has_device.h"
#include "tests/common/own_manifold.h"

namespace ceres_ext {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Throws in call num_calls, and from then on.
class Fuse {
 public:
  explicit Fuse(int num_calls) : num_calls_(num_calls) {}
  void Burn() {
    if (--num_calls_ <= 0) {
      throw std::runtime_error("the fuse has blown");
    }
  }

 private:
  int num_calls_;
};

class ThrowingCallback : public ceres::IterationCallback {
 public:
  explicit ThrowingCallback(int num_calls) : fuse_(num_calls) {}
  ceres::CallbackReturnType operator()(
      const ceres::IterationSummary& /*summary*/) override {
    fuse_.Burn();
    return ceres::SOLVER_CONTINUE;
  }

 private:
  Fuse fuse_;
};

class ThrowingEvaluationCallback : public ceres::EvaluationCallback {
 public:
  explicit ThrowingEvaluationCallback(int num_calls) : fuse_(num_calls) {}
  void PrepareForEvaluation(bool /*evaluate_jacobians*/,
                            bool /*new_evaluation_point*/) override {
    fuse_.Burn();
  }

 private:
  Fuse fuse_;
};

// One residual per camera.
class ThrowingCost : public ceres::SizedCostFunction<1, 9> {
 public:
  explicit ThrowingCost(Fuse* fuse) : fuse_(fuse) {}
  bool Evaluate(double const* const* x,
                double* residuals,
                double** jacobians) const override {
    fuse_->Burn();
    residuals[0] = x[0][0];
    if (jacobians != nullptr && jacobians[0] != nullptr) {
      std::fill_n(jacobians[0], 9, 0.0);
      jacobians[0][0] = 1.0;
    }
    return true;
  }

 private:
  Fuse* fuse_;
};

class Exceptions : public ::testing::TestWithParam<int> {
 protected:
  Exceptions() : bal_(MakeBalTestProblem(8, 60, 4, 9)), start_(bal_) {
    options_ = TestOptions(&bal_, GetParam());
    ext_options_.device = kDevice;
  }

  static bool IsFinite(const std::vector<double>& values) {
    return std::all_of(values.begin(), values.end(), [](double value) {
      return std::isfinite(value);
    });
  }

  // The parameters are those of the start, and the problem can be solved.
  void ExpectAsBefore(ceres::Problem* problem) {
    EXPECT_EQ(bal_.cameras, start_.cameras);
    EXPECT_EQ(bal_.points, start_.points);
    EXPECT_TRUE(problem->Evaluate({}, nullptr, nullptr, nullptr, nullptr));
    options_.callbacks.clear();
    Summary again;
    Solve(options_, ext_options_, problem, &again);
    EXPECT_TRUE(again.IsSolutionUsable()) << again.message;
  }

  BalTestProblem bal_;
  const BalTestProblem start_;
  ceres::Solver::Options options_;
  Options ext_options_;
};

INSTANTIATE_TEST_SUITE_P(Threads, Exceptions, ::testing::Values(1, 3));

TEST_P(Exceptions, OfAnIterationCallback) {
  for (const bool is_stock : {false, true}) {
    for (const bool update_state : {false, true}) {
      bal_ = start_;
      auto problem = BuildProblem(&bal_, Derivatives::kAnalytic);
      options_.linear_solver_type =
          is_stock ? ceres::SPARSE_NORMAL_CHOLESKY : ceres::ITERATIVE_SCHUR;
      // Which this library leaves to stock.
      options_.dynamic_sparsity = is_stock;
      options_.update_state_every_iteration = update_state;
      ThrowingCallback callback(3);
      options_.callbacks = {&callback};
      Summary summary;
      Solve(options_, ext_options_, problem.get(), &summary);
      EXPECT_EQ(summary.termination_type, ceres::FAILURE);
      EXPECT_THAT(summary.message, HasSubstr("the fuse has blown"));
      EXPECT_THAT(summary.path_reason, HasSubstr("the fuse has blown"));
      EXPECT_EQ(summary.path, is_stock ? PATH_CERES : PATH_FULL);
      EXPECT_EQ(summary.device.empty(), is_stock);
      EXPECT_EQ(summary.iterations.size(), 3u);
      ExpectAsBefore(problem.get());
    }
  }
}

TEST_P(Exceptions, OfAnIterationCallbackInCeresSummary) {
  auto problem = BuildProblem(&bal_, Derivatives::kAnalytic);
  ThrowingCallback callback(2);
  options_.callbacks = {&callback};
  ceres::Solver::Summary summary;
  Solve(options_, ext_options_, problem.get(), &summary);
  EXPECT_EQ(summary.termination_type, ceres::FAILURE);
  EXPECT_THAT(summary.message, HasSubstr("the fuse has blown"));
  ExpectAsBefore(problem.get());
}

// The user's blocks hold a candidate when it is called.
TEST_P(Exceptions, OfAnEvaluationCallback) {
  for (int num_calls = 1; num_calls < 6; ++num_calls) {
    bal_ = start_;
    ThrowingEvaluationCallback callback(num_calls);
    ceres::Problem::Options problem_options;
    problem_options.evaluation_callback = &callback;
    ceres::Problem problem(problem_options);
    for (size_t k = 0; k < bal_.camera_id.size(); ++k) {
      problem.AddResidualBlock(
          CreateBalReprojectionError(bal_.observations[2 * k],
                                     bal_.observations[2 * k + 1]),
          nullptr,
          bal_.camera(bal_.camera_id[k]),
          bal_.point(bal_.point_id[k]));
    }
    Summary summary;
    Solve(options_, ext_options_, &problem, &summary);
    EXPECT_EQ(summary.termination_type, ceres::FAILURE);
    EXPECT_THAT(summary.message, HasSubstr("the fuse has blown"));
    EXPECT_EQ(bal_.cameras, start_.cameras);
    EXPECT_EQ(bal_.points, start_.points);
  }
}

// A row of its own thread: the step is rejected, or the solve fails.
TEST_P(Exceptions, OfACostFunction) {
  for (int num_calls = 1; num_calls < 6; ++num_calls) {
    bal_ = start_;
    auto problem = BuildProblem(&bal_, Derivatives::kAnalytic);
    Fuse fuse(num_calls);
    problem->AddResidualBlock(new ThrowingCost(&fuse), nullptr, bal_.camera(0));
    Summary summary;
    Solve(options_, ext_options_, problem.get(), &summary);
    EXPECT_EQ(summary.path, PATH_FULL);
    if (num_calls == 1) {
      EXPECT_EQ(summary.termination_type, ceres::FAILURE);
      EXPECT_THAT(summary.message, HasSubstr("the fuse has blown"));
    }
    if (summary.termination_type == ceres::FAILURE) {
      EXPECT_EQ(bal_.cameras, start_.cameras);
      EXPECT_EQ(bal_.points, start_.points);
    }
    EXPECT_TRUE(IsFinite(bal_.cameras) && IsFinite(bal_.points));
  }
}

// rho' = -1 up to s = 1, then 1 with rho'' > 0.
class FallingLoss final : public ceres::LossFunction {
 public:
  void Evaluate(double s, double* rho) const final {
    const bool falls = s <= 1.0;
    rho[0] = falls ? -s : s - 2.0;
    rho[1] = falls ? -1.0 : 1.0;
    rho[2] = falls ? 0.0 : 1e-3;
  }
};

// One row of each kind that this library or Ceres evaluates. With Huber's loss
// inside rho'' > 0, for which Ceres ends the process.
TEST_P(Exceptions, OfALossNameTheLoss) {
  using Error = AutodiffReprojection<3>;
  using ModelCost = DeviceAutoDiffCostFunction<Error, 2, 9, 3>;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  // The first kind of row that Ceres evaluates. A device has no kernels of
  // Error.
#ifdef CERES_EXT_EMULATED
  constexpr int kByCeres = 1;
#else
  constexpr int kByCeres = 2;
#endif
  struct Loss {
    double factor;
    ceres::LossFunction* inner;
    const char* found;
  };
  for (int kind = 0; kind < 3; ++kind) {
    const Loss losses[] = {
        {-1.0, nullptr, "ceres::ScaledLoss has the factor -1;"},
        {-2.0,
         new ceres::HuberLoss(0.01),
         "ceres::ScaledLoss has the factor -2;"},
        {nan, nullptr, "ceres::ScaledLoss has the factor nan;"},
        {1.0, new FallingLoss, "FallingLoss has rho' = -1 and rho'' = 0 at"}};
    for (const Loss& loss : losses) {
      SCOPED_TRACE(std::string(loss.found) + " " + std::to_string(kind));
      bal_ = start_;
      auto problem = BuildProblem(&bal_, Derivatives::kAnalytic);
      // The residual of the row is (0.1, 0).
      const double* const blocks[] = {bal_.camera(0), bal_.point(0)};
      double r[2];
      BalReprojectionError(0.0, 0.0).Evaluate(blocks, r, nullptr);
      const double u = r[0] - 0.1;
      const double v = r[1];
      ceres::CostFunction* const cost_function =
          kind == 0   ? CreateBalReprojectionError(u, v)
          : kind == 1 ? new ModelCost(Error{u, v})
                      : static_cast<ceres::CostFunction*>(
                            new ceres::AutoDiffCostFunction<Error, 2, 9, 3>(
                                new Error{u, v}));
      problem->AddResidualBlock(
          cost_function,
          loss.factor == 1.0
              ? loss.inner
              : new ceres::ScaledLoss(
                    loss.inner, loss.factor, ceres::TAKE_OWNERSHIP),
          bal_.camera(0),
          bal_.point(0));
      Summary summary;
      Solve(options_, ext_options_, problem.get(), &summary);
      EXPECT_EQ(summary.path, PATH_FULL) << summary.path_reason;
      EXPECT_EQ(summary.termination_type, ceres::FAILURE);
      EXPECT_THAT(summary.message,
                  kind >= kByCeres && loss.factor != 1.0
                      ? HasSubstr("The loss function ceres::ScaledLoss has "
                                  "rho' = ")
                      : HasSubstr(loss.found));
      EXPECT_THAT(summary.message, Not(HasSubstr("cost function")));
      EXPECT_EQ(bal_.cameras, start_.cameras);
      EXPECT_EQ(bal_.points, start_.points);
    }
  }
}

// On whichever thread of Ceres's.
TEST_P(Exceptions, OfACostFunctionOfStockCeres) {
  for (int num_calls = 1; num_calls < 6; ++num_calls) {
    bal_ = start_;
    auto problem = BuildProblem(&bal_, Derivatives::kAnalytic);
    Fuse fuse(num_calls);
    problem->AddResidualBlock(new ThrowingCost(&fuse), nullptr, bal_.camera(0));
    options_.linear_solver_type = ceres::SPARSE_NORMAL_CHOLESKY;
    options_.dynamic_sparsity = true;
    Summary summary;
    Solve(options_, ext_options_, problem.get(), &summary);
    EXPECT_EQ(summary.path, PATH_CERES);
    EXPECT_EQ(summary.termination_type, ceres::FAILURE);
    EXPECT_THAT(summary.message, HasSubstr("the fuse has blown"));
    EXPECT_EQ(bal_.cameras, start_.cameras);
    EXPECT_EQ(bal_.points, start_.points);
  }
}

// A plain solve of Ceres's throws to its caller, as with one thread.
TEST_P(Exceptions, OfACostFunctionLeavesPlainCeres) {
  auto problem = BuildProblem(&bal_, Derivatives::kAnalytic);
  Fuse fuse(3);
  problem->AddResidualBlock(new ThrowingCost(&fuse), nullptr, bal_.camera(0));
  options_.linear_solver_type = ceres::DENSE_NORMAL_CHOLESKY;
  ceres::Solver::Summary summary;
  EXPECT_THROW(ceres::Solve(options_, problem.get(), &summary),
               std::runtime_error);
}

// Exceptions of Plus and of PlusJacobian, before the solve and within it.
TEST_P(Exceptions, OfAManifold) {
  for (const auto derivatives :
       {Derivatives::kAnalytic, Derivatives::kAutodiff}) {
    bal_ = start_;
    Fault fault = Fault::kNone;
    auto problem = BuildProblem(&bal_, derivatives);
    problem->SetManifold(bal_.camera(1), new OwnManifold(9, &fault));
    fault = Fault::kThrows;
    Summary summary;
    Solve(options_, ext_options_, problem.get(), &summary);
    EXPECT_EQ(summary.termination_type, ceres::FAILURE);
    EXPECT_THAT(summary.message, HasSubstr("no way on"));
    fault = Fault::kNone;
    ExpectAsBefore(problem.get());
  }
}

// A caller that can't be changed gets Ceres's own exceptions, but none of this
// library's.
TEST_P(Exceptions, OfCeresWithThePluginOfTheEnvironment) {
  auto problem = BuildProblem(&bal_, Derivatives::kAnalytic);
  Fuse fuse(1);
  problem->AddResidualBlock(new ThrowingCost(&fuse), nullptr, bal_.camera(0));
  ASSERT_EQ(
      setenv("CERES_SOLVER_PLUGIN", CERES_EXT_TEST_LIBRARY ":device=host", 1),
      0);
  ceres::Solver::Summary summary;
  EXPECT_NO_THROW(ceres::Solve(options_, problem.get(), &summary));
  unsetenv("CERES_SOLVER_PLUGIN");
  EXPECT_EQ(summary.termination_type, ceres::FAILURE);
  EXPECT_THAT(summary.message, HasSubstr("the fuse has blown"));
  EXPECT_THAT(summary.message, HasSubstr("[Ceres Ext: path FULL on host"));
}

// Options that end the process in Ceres, which does not check them or checks
// them with an abort.
TEST(OptionsThatEndCeres, AreRefused) {
  static double other = 0.0;
  struct {
    void (*set)(ceres::Solver::Options*);
    const char* message;
  } const kCases[] = {
      {[](ceres::Solver::Options* o) {
         o->linear_solver_type = static_cast<ceres::LinearSolverType>(77);
       },
       "Solver::Options::linear_solver_type = 77; expected a value that its "
       "type names"},
      {[](ceres::Solver::Options* o) {
         o->minimizer_type = static_cast<ceres::MinimizerType>(-1);
       },
       "Solver::Options::minimizer_type = -1; expected a value that its type "
       "names"},
      {[](ceres::Solver::Options* o) { o->min_lm_diagonal = 0.0; },
       "Solver::Options::min_lm_diagonal = 0; expected a positive number"},
      {[](ceres::Solver::Options* o) { o->callbacks.push_back(nullptr); },
       "Solver::Options::callbacks[0] is null; expected a callback"},
      {[](ceres::Solver::Options* o) {
         o->linear_solver_ordering =
             std::make_shared<ceres::ParameterBlockOrdering>();
         o->linear_solver_ordering->AddElementToGroup(&other, 0);
       },
       "Solver::Options::linear_solver_ordering has no parameter block that "
       "varies; expected all of the problem's"},
      {[](ceres::Solver::Options* o) {
         // Replaces a block, so that the number is right.
         auto& ordering = *o->linear_solver_ordering;
         ordering.Remove(*ordering.group_to_elements().at(0).begin());
         ordering.AddElementToGroup(&other, 0);
       },
       "Solver::Options::linear_solver_ordering has a block that is not in the "
       "problem"},
      {[](ceres::Solver::Options* o) {
         o->use_inner_iterations = true;
         o->inner_iteration_ordering =
             std::make_shared<ceres::ParameterBlockOrdering>();
         o->inner_iteration_ordering->AddElementToGroup(&other, 0);
       },
       "Solver::Options::inner_iteration_ordering has a block that is not in "
       "the problem"},
  };
  for (const auto& c : kCases) {
    BalTestProblem bal = MakeBalTestProblem(3, 8, 3, 9);
    const BalTestProblem start = bal;
    auto problem = BuildProblem(&bal, Derivatives::kAnalytic);
    ceres::Solver::Options options;
    options.linear_solver_type = ceres::ITERATIVE_SCHUR;
    options.linear_solver_ordering =
        std::make_shared<ceres::ParameterBlockOrdering>();
    std::vector<double*> blocks;
    problem->GetParameterBlocks(&blocks);
    for (double* const block : blocks) {
      options.linear_solver_ordering->AddElementToGroup(block, 0);
    }
    c.set(&options);
    Summary summary;
    Solve(options, Options(), problem.get(), &summary);
    EXPECT_EQ(summary.termination_type, ceres::FAILURE);
    EXPECT_EQ(summary.message, c.message);
    EXPECT_EQ(summary.path_reason, c.message);
    EXPECT_EQ(bal.cameras, start.cameras);
  }
}

TEST(OptionsThatEndCeres, AnyNumberOfThreadsIsAnswered) {
  BalTestProblem bal = MakeBalTestProblem(3, 8, 3, 9);
  for (const auto derivatives :
       {Derivatives::kAnalytic, Derivatives::kAutodiff}) {
    auto problem = BuildProblem(&bal, derivatives);
    ceres::Solver::Options options = TestOptions(&bal, 2147483647);
    Summary summary;
    Solve(options, Options(), problem.get(), &summary);
    EXPECT_TRUE(summary.IsSolutionUsable()) << summary.message;
  }
}

TEST(NoProblem, IsOneClearSentence) {
  Summary summary;
  ceres::Problem* const problem = nullptr;
  Solve(ceres::Solver::Options(), Options(), problem, &summary);
  EXPECT_EQ(summary.termination_type, ceres::FAILURE);
  EXPECT_EQ(summary.message, "problem is null; expected a ceres::Problem");
  EXPECT_EQ(summary.path_reason, summary.message);

  ArrayProblem* const arrays = nullptr;
  Solve(ceres::Solver::Options(), Options(), arrays, &summary);
  EXPECT_EQ(summary.termination_type, ceres::FAILURE);
  EXPECT_EQ(summary.message,
            "problem is null; expected a ceres_ext::ArrayProblem");
  EXPECT_EQ(summary.path_reason, summary.message);
}

}  // namespace
}  // namespace ceres_ext
