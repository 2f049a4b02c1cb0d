// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Whole solves through the front door against stock Ceres on small random
// problems. Stock differentiates an independent functor with Jets.

#include "ceres_ext/solve.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "ceres/ceres.h"
#include "ceres/manifold.h"
#include "ceres/normal_prior.h"
#include "ceres_ext/bal_cost_functions.h"
#include "gtest/gtest.h"
#include "tests/common/bal_test_problem.h"
#include "tests/common/own_loss.h"
#include "tests/common/state_of_iterations.h"

namespace ceres_ext {
namespace {

// Costs of two solves agree as long as their linear solvers took the same
// number of iterations. Rounding of one PCG iteration is about
// eps * condition; a step that differs by a relative 1e-8 changes the cost by
// its square near a minimum and by 1e-8 far from it. 1e-6 is the bound that the
// product states.
void ExpectSameCosts(const ceres::Solver::Summary& ours,
                     const ceres::Solver::Summary& stock) {
  const size_t n = std::min(ours.iterations.size(), stock.iterations.size());
  ASSERT_GE(n, 2u);
  size_t compared = 0;
  for (; compared < n; ++compared) {
    if (ours.iterations[compared].linear_solver_iterations !=
        stock.iterations[compared].linear_solver_iterations) {
      break;
    }
    EXPECT_NEAR(ours.iterations[compared].cost,
                stock.iterations[compared].cost,
                1e-6 * stock.iterations[compared].cost)
        << "iteration " << compared;
  }
  EXPECT_GE(compared, 3u) << "PCG iteration counts part too early to compare.";
  EXPECT_NEAR(ours.final_cost, stock.final_cost, 1e-5 * stock.final_cost);
}

struct Case {
  int camera_size;
  bool use_manifold;
  ceres::LinearSolverType linear_solver;
  ceres::PreconditionerType preconditioner;
  JacobianType jacobian;
};

std::string CaseName(const ::testing::TestParamInfo<Case>& info) {
  const Case& c = info.param;
  return std::string("Camera") + std::to_string(c.camera_size) +
         (c.use_manifold ? "Manifold" : "") + "_" +
         ceres::LinearSolverTypeToString(c.linear_solver) + "_" +
         ceres::PreconditionerTypeToString(c.preconditioner) + "_" +
         JacobianTypeToString(c.jacobian);
}

// A device where there is one, however small the problem is.
Options OnDevice() {
  Options options;
  options.device = DEVICE_CUDA;
  return options;
}

class SolveAgainstStock : public ::testing::TestWithParam<Case> {};

TEST_P(SolveAgainstStock, SameCosts) {
  const Case& c = GetParam();
  BalTestProblem stock_bal = MakeBalTestProblem(12, 150, 6, c.camera_size);
  BalTestProblem our_bal = stock_bal;

  ceres::Solver::Options options = TestOptions(&stock_bal, 2);
  options.linear_solver_type = c.linear_solver;
  options.preconditioner_type = c.preconditioner;
  auto stock_problem =
      BuildProblem(&stock_bal, Derivatives::kAutodiff, c.use_manifold);
  ceres::Solver::Summary stock;
  ceres::Solve(options, stock_problem.get(), &stock);
  ASSERT_TRUE(stock.IsSolutionUsable()) << stock.message;

  options.linear_solver_ordering = TestOptions(&our_bal).linear_solver_ordering;
  Options ext_options = OnDevice();
  ext_options.jacobian = c.jacobian;
  Summary ours;

  // The whole of it: our cost functions, evaluation and linear solver.
  auto our_problem =
      BuildProblem(&our_bal, Derivatives::kAnalytic, c.use_manifold);
  Solve(options, ext_options, our_problem.get(), &ours);
  EXPECT_EQ(ours.path, PATH_FULL) << ours.path_reason;
  ASSERT_TRUE(ours.IsSolutionUsable()) << ours.message;
  EXPECT_NEAR(
      ours.initial_cost, stock.initial_cost, 1e-12 * stock.initial_cost);
  ExpectSameCosts(ours, stock);
  EXPECT_EQ(ours.linear_solver_ordering_used,
            stock.linear_solver_ordering_used);
  EXPECT_EQ(ours.num_effective_parameters_reduced,
            stock.num_effective_parameters_reduced);

  // The same rows evaluated by Ceres.
  if (c.jacobian == JACOBIAN_STORED) {
    BalTestProblem row_bal = MakeBalTestProblem(12, 150, 6, c.camera_size);
    options.linear_solver_ordering =
        TestOptions(&row_bal).linear_solver_ordering;
    auto row_problem =
        BuildProblem(&row_bal, Derivatives::kAutodiff, c.use_manifold);
    Solve(options, ext_options, row_problem.get(), &ours);
    EXPECT_EQ(ours.path, PATH_FULL) << ours.path_reason;
    ASSERT_TRUE(ours.IsSolutionUsable()) << ours.message;
    EXPECT_NEAR(
        ours.initial_cost, stock.initial_cost, 1e-12 * stock.initial_cost);
    ExpectSameCosts(ours, stock);
  }
}

std::vector<Case> AllCases() {
  std::vector<Case> cases;
  struct Parameterisation {
    int camera_size;
    bool use_manifold;
  };
  for (const Parameterisation& p : {Parameterisation{9, false},
                                    Parameterisation{10, true},
                                    Parameterisation{10, false}}) {
    for (const auto& [solver, preconditioner] :
         {std::pair{ceres::ITERATIVE_SCHUR, ceres::JACOBI},
          std::pair{ceres::ITERATIVE_SCHUR, ceres::SCHUR_JACOBI},
          std::pair{ceres::ITERATIVE_SCHUR,
                    ceres::SCHUR_POWER_SERIES_EXPANSION},
          std::pair{ceres::CGNR, ceres::JACOBI}}) {
      for (const JacobianType jacobian :
           {JACOBIAN_STORED, JACOBIAN_RECOMPUTED}) {
        cases.push_back(
            {p.camera_size, p.use_manifold, solver, preconditioner, jacobian});
      }
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(AllCases,
                         SolveAgainstStock,
                         ::testing::ValuesIn(AllCases()),
                         CaseName);

// Solves the same problem with stock and with ours after `modify` has changed
// problem and options (the same way for both), and compares.
template <typename Modify>
void CompareModified(Modify&& modify,
                     SolvePath expected_path,
                     int camera_size = 9,
                     Derivatives our_derivatives = Derivatives::kAnalytic) {
  const BalTestProblem start = MakeBalTestProblem(10, 120, 5, camera_size, 9);
  ceres::Solver::Summary stock;
  Summary ours;
  for (bool use_ours : {false, true}) {
    BalTestProblem bal = start;
    auto problem =
        BuildProblem(&bal, use_ours ? our_derivatives : Derivatives::kAutodiff);
    ceres::Solver::Options options = TestOptions(&bal);
    modify(&bal, problem.get(), &options);
    if (use_ours) {
      Solve(options, OnDevice(), problem.get(), &ours);
    } else {
      ceres::Solve(options, problem.get(), &stock);
    }
  }
  EXPECT_EQ(ours.path, expected_path) << ours.path_reason;
  EXPECT_EQ(ours.IsSolutionUsable(), stock.IsSolutionUsable()) << ours.message;
  EXPECT_NEAR(ours.fixed_cost, stock.fixed_cost, 1e-12 * stock.fixed_cost);
  ExpectSameCosts(ours, stock);
}

// PCG from the power series, of all terms or of those that the tolerance asks
// for, before each preconditioner; and a preconditioner of other lengths.
TEST(Solve, PowerSeries) {
  for (const ceres::PreconditionerType preconditioner :
       {ceres::IDENTITY,
        ceres::JACOBI,
        ceres::SCHUR_JACOBI,
        ceres::SCHUR_POWER_SERIES_EXPANSION}) {
    for (const auto& [use_spse_initialization, num_iterations, tolerance] :
         {std::tuple{true, 1, 0.1},
          std::tuple{true, 30, 0.3},
          std::tuple{true, 8, 0.0},
          std::tuple{false, 2, 0.9}}) {
      SCOPED_TRACE(
          std::string(ceres::PreconditionerTypeToString(preconditioner)) +
          ", " + std::to_string(num_iterations));
      CompareModified(
          [=,
           initialization = use_spse_initialization,
           n = num_iterations,
           t = tolerance](BalTestProblem*, ceres::Problem*, auto* options) {
            options->preconditioner_type = preconditioner;
            options->use_spse_initialization = initialization;
            options->max_num_spse_iterations = n;
            options->spse_tolerance = t;
          },
          PATH_FULL);
    }
  }
}

TEST(Solve, ConstantCamerasAndPoints) {
  const auto set_constant = [](BalTestProblem* bal,
                               ceres::Problem* problem,
                               ceres::Solver::Options*) {
    for (int i : {0, 3}) {
      problem->SetParameterBlockConstant(bal->camera(i));
    }
    for (int j = 0; j < bal->num_points(); j += 7) {
      problem->SetParameterBlockConstant(bal->point(j));
    }
  };
  CompareModified(set_constant, PATH_FULL);
  CompareModified(set_constant, PATH_FULL, 9, Derivatives::kAutodiff);
}

TEST(Solve, AllCamerasConstant) {
  const auto set_constant = [](BalTestProblem* bal,
                               ceres::Problem* problem,
                               ceres::Solver::Options*) {
    for (int i = 0; i < bal->num_cameras(); ++i) {
      problem->SetParameterBlockConstant(bal->camera(i));
    }
  };
  CompareModified(set_constant, PATH_FULL);
  CompareModified(set_constant, PATH_FULL, 9, Derivatives::kAutodiff);
}

TEST(Solve, AllPointsConstant) {
  CompareModified(
      [](BalTestProblem* bal,
         ceres::Problem* problem,
         ceres::Solver::Options*) {
        for (int j = 0; j < bal->num_points(); ++j) {
          problem->SetParameterBlockConstant(bal->point(j));
        }
      },
      PATH_FULL);
}

TEST(Solve, SubsetManifolds) {
  const auto fix_intrinsics = [](BalTestProblem* bal,
                                 ceres::Problem* problem,
                                 ceres::Solver::Options*) {
    for (int i = 0; i < bal->num_cameras(); ++i) {
      problem->SetManifold(bal->camera(i),
                           i % 2 == 0 ? new ceres::SubsetManifold(9, {6, 7, 8})
                                      : new ceres::SubsetManifold(9, {0, 8}));
    }
    for (int j = 0; j < bal->num_points(); j += 5) {
      problem->SetManifold(bal->point(j), new ceres::SubsetManifold(3, {1}));
    }
  };
  CompareModified(fix_intrinsics, PATH_FULL);
  CompareModified(fix_intrinsics, PATH_FULL, 9, Derivatives::kAutodiff);
}

TEST(Solve, LossFunctions) {
  CompareModified(
      [](BalTestProblem*, ceres::Problem* problem, ceres::Solver::Options*) {
        // Some residual blocks keep none: they are added a second time.
        std::vector<ceres::ResidualBlockId> ids;
        problem->GetResidualBlocks(&ids);
        for (size_t i = 0; i < ids.size(); i += 3) {
          std::vector<double*> blocks;
          problem->GetParameterBlocksForResidualBlock(ids[i], &blocks);
          problem->AddResidualBlock(
              CreateBalReprojectionError(1.0 * i, 2.0),
              i % 2 == 0
                  ? static_cast<ceres::LossFunction*>(new ceres::HuberLoss(1.0))
                  : new ceres::CauchyLoss(2.0),
              blocks);
        }
      },
      PATH_FULL);
}

TEST(Solve, NonmonotonicStepsAndNoJacobiScaling) {
  CompareModified(
      [](BalTestProblem*, ceres::Problem*, ceres::Solver::Options* options) {
        options->use_nonmonotonic_steps = true;
        options->jacobi_scaling = false;
        options->initial_trust_region_radius = 1.0;
      },
      PATH_FULL);
}

TEST(Solve, InnerIterations) {
  CompareModified(
      [](BalTestProblem*, ceres::Problem*, ceres::Solver::Options* options) {
        options->use_inner_iterations = true;
        options->max_num_iterations = 4;
      },
      PATH_FULL);
}

TEST(Solve, OrderingLeftToCeres) {
  CompareModified(
      [](BalTestProblem*, ceres::Problem*, ceres::Solver::Options* options) {
        options->linear_solver_ordering = nullptr;
      },
      PATH_FULL);
}

TEST(Solve, CamerasAreEliminatedFirst) {
  const BalTestProblem start = MakeBalTestProblem(8, 60, 4, 9);
  BalTestProblem bal = start;
  auto problem = BuildProblem(&bal, Derivatives::kAnalytic);
  ceres::Solver::Options options = TestOptions(&bal);
  auto ordering = std::make_shared<ceres::ParameterBlockOrdering>();
  for (int i = 0; i < bal.num_cameras(); ++i) {
    ordering->AddElementToGroup(bal.camera(i), 0);
  }
  for (int j = 0; j < bal.num_points(); ++j) {
    ordering->AddElementToGroup(bal.point(j), 1);
  }
  options.linear_solver_ordering = ordering;
  Summary summary;
  Solve(options, OnDevice(), problem.get(), &summary);
  EXPECT_EQ(summary.path, PATH_FULL) << summary.path_reason;
  EXPECT_EQ(summary.linear_solver_ordering_used, (std::vector<int>{8, 60}));
  EXPECT_TRUE(summary.IsSolutionUsable());
}

TEST(Solve, EvaluationCallbackSeesTheState) {
  class Callback : public ceres::EvaluationCallback {
   public:
    explicit Callback(const double* watched) : watched_(watched) {}
    void PrepareForEvaluation(bool jacobians, bool) override {
      (jacobians ? num_jacobians : num_costs) += 1;
      values.push_back(*watched_);
    }
    int num_jacobians = 0;
    int num_costs = 0;
    std::vector<double> values;

   private:
    const double* watched_;
  };

  std::vector<double> values[2];
  for (int use_ours = 0; use_ours < 2; ++use_ours) {
    BalTestProblem bal = MakeBalTestProblem(8, 60, 4, 9);
    Callback callback(bal.camera(2));
    ceres::Problem::Options problem_options;
    problem_options.evaluation_callback = &callback;
    ceres::Problem problem(problem_options);
    for (size_t k = 0; k < bal.camera_id.size(); ++k) {
      problem.AddResidualBlock(
          CreateBalReprojectionError(bal.observations[2 * k],
                                     bal.observations[2 * k + 1]),
          nullptr,
          bal.camera(bal.camera_id[k]),
          bal.point(bal.point_id[k]));
    }
    Options ext_options = OnDevice();
    ext_options.enabled = use_ours == 1;
    Summary summary;
    Solve(TestOptions(&bal), ext_options, &problem, &summary);
    EXPECT_EQ(summary.path, use_ours == 1 ? PATH_FULL : PATH_CERES);
    EXPECT_GT(callback.num_jacobians, 1);
    EXPECT_GT(callback.num_costs, 1);
    values[use_ours] = callback.values;
  }
  ASSERT_EQ(values[0].size(), values[1].size());
  for (size_t i = 0; i < values[0].size(); ++i) {
    EXPECT_NEAR(values[0][i], values[1][i], 1e-6);
  }
}

// With a user's order; Ceres's own depends on addresses.
TEST(Solve, SameBitsWithInnerIterations) {
  const BalTestProblem start = MakeBalTestProblem(8, 60, 4, 9);
  std::vector<std::vector<double>> results;
  // Each has its parameters somewhere else.
  std::vector<BalTestProblem> problems(4, start);
  for (size_t i = 0; i < problems.size(); ++i) {
    BalTestProblem& bal = problems[i];
    auto problem = BuildProblem(&bal, Derivatives::kAnalytic);
    ceres::Solver::Options options = TestOptions(&bal, static_cast<int>(i) + 1);
    options.use_inner_iterations = true;
    options.inner_iteration_ordering = options.linear_solver_ordering;
    options.max_num_iterations = 4;
    Summary summary;
    Solve(options, OnDevice(), problem.get(), &summary);
    ASSERT_EQ(summary.path, PATH_FULL);
    EXPECT_GT(summary.num_inner_iteration_steps, 0);
    results.push_back(bal.cameras);
    results.back().insert(
        results.back().end(), bal.points.begin(), bal.points.end());
    EXPECT_EQ(results.front(), results.back()) << i + 1 << " threads";
  }
}

TEST(Solve, TwoThreadsWithDifferentSettingsAndAStockSolveBeside) {
  constexpr int kRounds = 3;
  const auto run = [](bool plain, JacobianType jacobian, bool* ok) {
    for (int round = 0; round < kRounds; ++round) {
      BalTestProblem bal = MakeBalTestProblem(10, 200, 5, 9);
      auto problem = BuildProblem(&bal, Derivatives::kAnalytic);
      if (plain) {
        ceres::Solver::Summary summary;
        ceres::Solve(TestOptions(&bal, 2), problem.get(), &summary);
        *ok = *ok && summary.schur_structure_used == "2,3,9" &&
              summary.message.find("Ceres Ext") == std::string::npos;
        continue;
      }
      Options ext_options = OnDevice();
      ext_options.jacobian = jacobian;
      Summary summary;
      Solve(TestOptions(&bal, 2), ext_options, problem.get(), &summary);
      const char* name = jacobian == JACOBIAN_STORED ? "stored" : "recomputed";
      *ok = *ok && summary.path == PATH_FULL &&
            summary.method.find(name) != std::string::npos;
    }
  };
  bool ok[3] = {true, true, true};
  std::thread stored_solves(run, false, JACOBIAN_STORED, &ok[0]);
  std::thread recomputed_solves(run, false, JACOBIAN_RECOMPUTED, &ok[1]);
  std::thread stock_solves(run, true, JACOBIAN_STORED, &ok[2]);
  stored_solves.join();
  recomputed_solves.join();
  stock_solves.join();
  EXPECT_TRUE(ok[0]);
  EXPECT_TRUE(ok[1]);
  EXPECT_TRUE(ok[2]);
}

TEST(Solve, NestedSolveInACallbackIsStock) {
  class NestedSolve : public ceres::IterationCallback {
   public:
    ceres::CallbackReturnType operator()(
        const ceres::IterationSummary&) override {
      BalTestProblem bal = MakeBalTestProblem(5, 30, 3, 9);
      auto problem = BuildProblem(&bal, Derivatives::kAnalytic);
      ceres::Solver::Options options = TestOptions(&bal);
      options.linear_solver_type = ceres::DENSE_SCHUR;
      ceres::Solve(options, problem.get(), &summary);
      return ceres::SOLVER_CONTINUE;
    }
    ceres::Solver::Summary summary;
  };
  BalTestProblem bal = MakeBalTestProblem(8, 60, 4, 9);
  auto problem = BuildProblem(&bal, Derivatives::kAnalytic);
  NestedSolve nested;
  ceres::Solver::Options options = TestOptions(&bal);
  options.callbacks.push_back(&nested);
  Summary summary;
  Solve(options, OnDevice(), problem.get(), &summary);
  EXPECT_EQ(summary.path, PATH_FULL);
  EXPECT_TRUE(nested.summary.IsSolutionUsable());
  EXPECT_EQ(nested.summary.schur_structure_used, "2,3,9");
}

TEST(Solve, StateIsUpdatedEveryIterationWhenAsked) {
  ExpectStateOfEachIteration(OnDevice(), 1e-12);
}

TEST(Solve, OpticalCentreAtTheStartIsAFailureNotACrash) {
  BalTestProblem bal = MakeBalTestProblem(8, 60, 4, 9);
  // Move a camera so that the point of observation 0 is at its centre: with
  // no rotation, X + t = 0.
  double* camera = bal.camera(bal.camera_id[0]);
  const double* point = bal.point(bal.point_id[0]);
  for (int i = 0; i < 3; ++i) {
    camera[i] = 0.0;
    camera[3 + i] = -point[i];
  }
  auto problem = BuildProblem(&bal, Derivatives::kAnalytic);
  Summary summary;
  Solve(TestOptions(&bal), OnDevice(), problem.get(), &summary);
  EXPECT_EQ(summary.path, PATH_FULL);
  EXPECT_FALSE(summary.device.empty());
  EXPECT_EQ(summary.termination_type, ceres::FAILURE);
  EXPECT_EQ(summary.message,
            "Initial residual and Jacobian evaluation failed. Residual or "
            "Jacobian of 1 observations is not finite: a point is at the "
            "optical centre of a camera, or a parameter is out of range.");
}

// However early a solve ends, its summary says where it ran.
TEST(Solve, PathAndDeviceOfASolveThatACallbackEnds) {
  class End : public ceres::IterationCallback {
   public:
    End(int iteration, ceres::CallbackReturnType type)
        : iteration_(iteration), type_(type) {}
    ceres::CallbackReturnType operator()(
        const ceres::IterationSummary& summary) override {
      return summary.iteration == iteration_ ? type_ : ceres::SOLVER_CONTINUE;
    }

   private:
    const int iteration_;
    const ceres::CallbackReturnType type_;
  };
  for (const int iteration : {0, 1, 3}) {
    for (const auto type :
         {ceres::SOLVER_ABORT, ceres::SOLVER_TERMINATE_SUCCESSFULLY}) {
      const BalTestProblem start = MakeBalTestProblem(8, 60, 4, 9);
      BalTestProblem bal = start;
      auto problem = BuildProblem(&bal, Derivatives::kAnalytic);
      End end(iteration, type);
      ceres::Solver::Options options = TestOptions(&bal, 2);
      options.callbacks.push_back(&end);
      Summary summary;
      Solve(options, OnDevice(), problem.get(), &summary);
      EXPECT_EQ(summary.path, PATH_FULL);
      EXPECT_FALSE(summary.device.empty());
      EXPECT_FALSE(summary.method.empty());
      EXPECT_EQ(summary.path_reason,
                "all residual blocks are evaluated by this library");
      EXPECT_EQ(summary.iterations.size(), iteration + 1u);
      EXPECT_EQ(summary.termination_type,
                type == ceres::SOLVER_ABORT ? ceres::USER_FAILURE
                                            : ceres::USER_SUCCESS);
      EXPECT_EQ(bal.points == start.points,
                type == ceres::SOLVER_ABORT || iteration == 0);
    }
  }
}

template <typename Modify>
Summary SolveRecomputed(Modify&& modify) {
  BalTestProblem bal = MakeBalTestProblem(8, 60, 4, 9);
  auto problem = BuildProblem(&bal, Derivatives::kAnalytic);
  modify(&bal, problem.get());
  Options ext_options;
  ext_options.device = DEVICE_HOST;
  ext_options.jacobian = JACOBIAN_RECOMPUTED;
  Summary summary;
  Solve(TestOptions(&bal), ext_options, problem.get(), &summary);
  EXPECT_TRUE(summary.IsSolutionUsable()) << summary.message;
  return summary;
}

TEST(Solve, ARecomputedJacobianNamesTheLossThatItDoesNotTake) {
  using namespace ceres;  // NOLINT: many of its losses.
  const auto with_loss = [](LossFunction* loss) {
    return SolveRecomputed([&](BalTestProblem* bal, Problem* problem) {
      problem->AddResidualBlock(CreateBalReprojectionError(1.0, 2.0),
                                new HuberLoss(1.0),
                                bal->camera(1),
                                bal->point(2));
      problem->AddResidualBlock(CreateBalReprojectionError(1.0, 2.0),
                                loss,
                                bal->camera(0),
                                bal->point(0));
    });
  };
  const auto scaled = [](LossFunction* loss, double a) {
    return new ScaledLoss(loss, a, TAKE_OWNERSHIP);
  };
  for (LossFunction* loss : {
           static_cast<LossFunction*>(scaled(new TukeyLoss(9.0), 2.0)),
           static_cast<LossFunction*>(new ComposedLoss(scaled(nullptr, 0.0),
                                                       TAKE_OWNERSHIP,
                                                       new ArctanLoss(2.0),
                                                       TAKE_OWNERSHIP)),
       }) {
    const Summary summary = with_loss(loss);
    EXPECT_EQ(summary.path, PATH_FULL) << summary.path_reason;
    EXPECT_NE(summary.method.find("recomputed Jacobian (double)"),
              std::string::npos)
        << summary.method;
  }
  for (const auto& [loss, type] :
       {std::pair<LossFunction*, std::string>{new TolerantLoss(4.0, 2.0),
                                              "ceres::TolerantLoss"},
        {scaled(new TolerantLoss(4.0, 2.0), 2.0), "ceres::ScaledLoss"},
        {new ComposedLoss(
             new HuberLoss(2.0), TAKE_OWNERSHIP, new OwnLoss, TAKE_OWNERSHIP),
         "ceres::ComposedLoss"},
        {new OwnLoss, "ceres_ext::OwnLoss"}}) {
    const Summary summary = with_loss(loss);
    EXPECT_EQ(summary.path, PATH_CERES);
    EXPECT_EQ(summary.path_reason,
              "jacobian RECOMPUTED supports only losses of Ceres with rho' >= "
              "0 and rho'' <= 0, but not " +
                  type);
  }
}

TEST(Solve, ARecomputedJacobianTakesSubsetManifoldsOnPoints) {
  const auto hold = [](BalTestProblem* bal, ceres::Problem* problem) {
    problem->SetManifold(bal->point(3), new ceres::SubsetManifold(3, {1}));
  };
  EXPECT_EQ(SolveRecomputed(hold).path, PATH_FULL);
  EXPECT_EQ(SolveRecomputed([&](BalTestProblem* bal, ceres::Problem* problem) {
              hold(bal, problem);
              problem->SetManifold(bal->point(4),
                                   new ceres::SphereManifold<3>());
            }).path_reason,
            "jacobian RECOMPUTED supports only ceres::SubsetManifold on "
            "points, but not ceres::SphereManifold<3>");
  EXPECT_EQ(SolveRecomputed([&](BalTestProblem* bal, ceres::Problem* problem) {
              hold(bal, problem);
              problem->AddResidualBlock(
                  new ceres::NormalPrior(ceres::Matrix::Identity(3, 3),
                                         ceres::Vector::Zero(3)),
                  nullptr,
                  bal->point(3));
            }).path_reason,
            "jacobian RECOMPUTED supports no manifolds on points beside "
            "residual blocks of other cost functions");
}

TEST(Solve, InvalidExtOptionsAreRefusedByName) {
  BalTestProblem bal = MakeBalTestProblem(5, 30, 3, 9);
  auto problem = BuildProblem(&bal, Derivatives::kAnalytic);
  Options ext_options;
  ext_options.jacobian = JACOBIAN_RECOMPUTED;
  ext_options.batch_evaluation = false;
  Summary summary;
  Solve(TestOptions(&bal), ext_options, problem.get(), &summary);
  EXPECT_EQ(summary.termination_type, ceres::FAILURE);
  EXPECT_NE(summary.message.find("batch_evaluation"), std::string::npos);
  ceres::Solver::Summary plain;
  Solve(TestOptions(&bal), ext_options, problem.get(), &plain);
  EXPECT_EQ(plain.termination_type, ceres::FAILURE);
  EXPECT_NE(plain.message.find("batch_evaluation"), std::string::npos);
}

TEST(Solve, InvalidCeresOptionsAreCeressOwnError) {
  BalTestProblem bal = MakeBalTestProblem(5, 30, 3, 9);
  auto problem = BuildProblem(&bal, Derivatives::kAnalytic);
  ceres::Solver::Options options = TestOptions(&bal);
  options.eta = -1.0;
  Summary summary;
  Solve(options, OnDevice(), problem.get(), &summary);
  EXPECT_EQ(summary.termination_type, ceres::FAILURE);
  EXPECT_NE(summary.message.find("eta"), std::string::npos);
  EXPECT_FALSE(summary.path_reason.empty());
}

// Residuals of one block of n values: the sum of every 41st of them less a
// number, two of 40 in each row.
class WideCostFunction final : public ceres::CostFunction {
 public:
  WideCostFunction(int n, int row) : n_(n), row_(row) {
    set_num_residuals(2);
    mutable_parameter_block_sizes()->push_back(n);
  }
  bool Evaluate(const double* const* x,
                double* residuals,
                double** jacobians) const final {
    for (int i = 0; i < 2; ++i) {
      residuals[i] = -1.0 - row_ - i;
      for (int k = 0; k < n_; ++k) {
        const double a = k % 41 == 2 * row_ + i ? 1.0 : 0.0;
        residuals[i] += a * x[0][k];
        if (jacobians != nullptr && jacobians[0] != nullptr) {
          jacobians[0][int64_t{i} * n_ + k] = a;
        }
      }
    }
    return true;
  }

 private:
  const int n_;
  const int row_;
};

Summary SolveWide(int n,
                  ceres::PreconditionerType preconditioner,
                  bool enabled) {
  std::vector<double> x(n, 0.0);
  ceres::Problem problem;
  for (int row = 0; row < 20; ++row) {
    problem.AddResidualBlock(new WideCostFunction(n, row), nullptr, x.data());
  }
  ceres::Solver::Options options;
  options.linear_solver_type = ceres::CGNR;
  options.preconditioner_type = preconditioner;
  options.logging_type = ceres::SILENT;
  options.max_num_iterations = 3;
  Options ext_options;
  ext_options.enabled = enabled;
  ext_options.device = DEVICE_HOST;
  Summary summary;
  Solve(options, ext_options, &problem, &summary);
  EXPECT_TRUE(summary.IsSolutionUsable()) << summary.message;
  return summary;
}

// A parameter block of many columns: a matrix of it is formed if the
// preconditioner inverts it, and only then.
TEST(Solve, WideBlocks) {
  const struct {
    int n;
    ceres::PreconditionerType preconditioner;
  } cases[] = {{2000, ceres::IDENTITY},
               {32767, ceres::IDENTITY},
               {127, ceres::JACOBI},
               {300, ceres::JACOBI}};
  for (const auto& [n, preconditioner] : cases) {
    SCOPED_TRACE(n);
    const Summary ours = SolveWide(n, preconditioner, true);
    const Summary stock = SolveWide(n, preconditioner, false);
    EXPECT_EQ(ours.path, PATH_FULL) << ours.path_reason;
    EXPECT_NEAR(ours.final_cost, stock.final_cost, 1e-6 * stock.initial_cost);
    // The Jacobian and some vectors.
    const int64_t linear = 8 * int64_t{n} * (40 + 30) + 100000;
    const int64_t square = 8 * int64_t{n} * n;
    EXPECT_LT(ours.memory_bytes,
              linear + (preconditioner == ceres::IDENTITY ? 0 : 3 * square));
    // They are too wide to be judged.
    EXPECT_EQ(ours.degenerate_other_blocks.count, 0);
  }
}

TEST(Solve, BlocksOfTooManyColumnsAreLeftToCeres) {
  for (const int n : {32768, 40000, 65536}) {
    const Summary ours = SolveWide(n, ceres::IDENTITY, true);
    const Summary stock = SolveWide(n, ceres::IDENTITY, false);
    EXPECT_EQ(ours.path, PATH_CERES);
    EXPECT_EQ(ours.path_reason,
              "parameter block 0 has " + std::to_string(n) +
                  " tangent dimensions; this library takes at most 32767");
    EXPECT_EQ(ours.final_cost, stock.final_cost);
  }
}

TEST(Solve, EmptyAndConstantProblems) {
  ceres::Problem empty;
  Summary summary;
  Solve(ceres::Solver::Options(), OnDevice(), &empty, &summary);
  EXPECT_EQ(summary.termination_type, ceres::CONVERGENCE);

  BalTestProblem bal = MakeBalTestProblem(5, 30, 3, 9);
  auto problem = BuildProblem(&bal, Derivatives::kAnalytic);
  for (int i = 0; i < bal.num_cameras(); ++i) {
    problem->SetParameterBlockConstant(bal.camera(i));
  }
  for (int j = 0; j < bal.num_points(); ++j) {
    problem->SetParameterBlockConstant(bal.point(j));
  }
  Solve(TestOptions(&bal), OnDevice(), problem.get(), &summary);
  EXPECT_EQ(summary.termination_type, ceres::CONVERGENCE);
  EXPECT_EQ(summary.final_cost, summary.fixed_cost);
}

TEST(Solve, SummaryIsFilled) {
  BalTestProblem bal = MakeBalTestProblem(10, 200, 5, 9);
  auto problem = BuildProblem(&bal, Derivatives::kAnalytic);
  // Few iterations, so that the solve does not end on a tolerance: Ceres does
  // not report the iteration that does.
  ceres::Solver::Options options = TestOptions(&bal, 2);
  options.max_num_iterations = 3;
  Options ext_options;
  ext_options.device = DEVICE_HOST;
  Summary summary;
  Solve(options, ext_options, problem.get(), &summary);
  EXPECT_EQ(summary.path, PATH_FULL);
  EXPECT_EQ(summary.schur_structure_used, "2,3,9");
  EXPECT_GT(summary.num_linear_solves, 0);
  EXPECT_GT(summary.num_residual_evaluations, 0);
  EXPECT_GT(summary.num_jacobian_evaluations, 0);
  EXPECT_GT(summary.linear_solver_time_in_seconds, 0.0);
  EXPECT_GT(summary.pcg_time_in_seconds, 0.0);
  EXPECT_GT(summary.normal_blocks_time_in_seconds, 0.0);
  EXPECT_GT(summary.setup_time_in_seconds, 0.0);
  int pcg_iterations = 0;
  for (const auto& iteration : summary.iterations) {
    pcg_iterations += iteration.linear_solver_iterations;
  }
  EXPECT_EQ(summary.num_pcg_iterations, pcg_iterations);
  // At least the Jacobian: 24 doubles per observation.
  EXPECT_GT(summary.memory_bytes,
            static_cast<int64_t>(bal.camera_id.size() * 24 * sizeof(double)));
  const std::string report = summary.FullReport();
  for (const char* text : {"Ceres Ext", "FULL", "host, 2 threads"}) {
    EXPECT_NE(report.find(text), std::string::npos) << report;
  }
}

TEST(Solve, PlainSummaryNamesThePathInItsMessage) {
  BalTestProblem bal = MakeBalTestProblem(10, 200, 5, 9);
  auto problem = BuildProblem(&bal, Derivatives::kAnalytic);
  ceres::Solver::Summary summary;
  Solve(TestOptions(&bal), OnDevice(), problem.get(), &summary);
  EXPECT_NE(summary.message.find("[Ceres Ext: path FULL"), std::string::npos)
      << summary.message;
}

}  // namespace
}  // namespace ceres_ext
