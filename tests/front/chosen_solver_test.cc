// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Options::linear_solver and preconditioner: a program that asks for one linear
// solver is solved as one that asks for another, to the bit, and where that
// can't be, as if nothing had been chosen. Also with an emulated device.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "ceres/autodiff_cost_function.h"
#include "ceres/ordered_groups.h"
#include "ceres/parameter_block.h"
#include "ceres/problem_impl.h"
#include "ceres/program.h"
#include "ceres/rotation.h"
#include "ceres_ext/array_problem.h"
#include "ceres_ext/bal_cost_functions.h"
#include "ceres_ext/solve.h"
#include "ceres_ext/under_ceres/program_rows.h"
#include "ceres_ext/under_ceres/sparse_factorization.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/bal_test_problem.h"
#include "tests/common/functors.h"
#include "tests/common/has_device.h"
#include "tests/common/same_steps.h"

namespace ceres_ext {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Options Chosen(LinearSolverChoice linear_solver,
               PreconditionerChoice preconditioner) {
  Options options;
  options.device = kDevice;
  options.linear_solver = linear_solver;
  options.preconditioner = preconditioner;
  // AUTO is more accurate where PCG replaces a factorisation.
  options.forcing_sequence = FORCING_SEQUENCE_CONSTANT;
  return options;
}

struct Result {
  Summary summary;
  std::vector<double> parameters;
};

// Solves the same problem each time. modify(bal, problem, options).
template <typename Modify>
Result SolveModified(const Options& ext_options,
                     Derivatives derivatives,
                     Modify&& modify) {
  BalTestProblem bal = MakeBalTestProblem(10, 150, 5, 9);
  auto problem = BuildProblem(&bal, derivatives);
  ceres::Solver::Options options = TestOptions(&bal);
  modify(&bal, problem.get(), &options);
  Result result;
  Solve(options, ext_options, problem.get(), &result.summary);
  result.parameters = bal.Values();
  return result;
}

using Case = std::tuple<ceres::LinearSolverType, Derivatives, bool>;

class Replaces : public ::testing::TestWithParam<Case> {
 protected:
  // As the program has it, or with another linear solver.
  template <typename Modify>
  static auto WithOrdering(Modify&& modify) {
    return [modify](BalTestProblem*, ceres::Problem*, auto* options) {
      if (!std::get<2>(GetParam())) {
        options->linear_solver_ordering = nullptr;
      }
      options->preconditioner_type = ceres::JACOBI;
      modify(options);
    };
  }
  static void GivenSolver(ceres::Solver::Options* options) {
    options->linear_solver_type = std::get<0>(GetParam());
    // For a replaced choice: products by S have other bits.
    options->use_explicit_schur_complement = true;
    // For factorisations alone.
    if (options->linear_solver_type == ceres::SPARSE_NORMAL_CHOLESKY) {
      options->dynamic_sparsity = true;
    }
  }
};

TEST_P(Replaces, IterativeSchurToTheBit) {
  const Derivatives derivatives = std::get<1>(GetParam());
  const auto schur = WithOrdering([](ceres::Solver::Options* options) {
    options->linear_solver_type = ceres::ITERATIVE_SCHUR;
    options->preconditioner_type = ceres::SCHUR_JACOBI;
  });
  const Result chosen = SolveModified(
      Chosen(LINEAR_SOLVER_ITERATIVE_SCHUR, PRECONDITIONER_SCHUR_JACOBI),
      derivatives,
      WithOrdering(GivenSolver));
  const Result asked =
      SolveModified(Chosen(LINEAR_SOLVER_AS_GIVEN, PRECONDITIONER_AS_GIVEN),
                    derivatives,
                    schur);
  ASSERT_EQ(chosen.summary.path, PATH_FULL) << chosen.summary.path_reason;
  EXPECT_GT(chosen.summary.num_pcg_iterations, 0);
  EXPECT_EQ(chosen.parameters, asked.parameters);
  EXPECT_EQ(chosen.summary.linear_solver_type_given, std::get<0>(GetParam()));
  EXPECT_EQ(chosen.summary.linear_solver_type_used, ceres::ITERATIVE_SCHUR);
  EXPECT_EQ(chosen.summary.preconditioner_type_used, ceres::SCHUR_JACOBI);
  EXPECT_THAT(
      chosen.summary.path_reason,
      HasSubstr(std::string("ITERATIVE_SCHUR with SCHUR_JACOBI was chosen in "
                            "place of ") +
                ceres::LinearSolverTypeToString(std::get<0>(GetParam()))));
  EXPECT_THAT(chosen.summary.FullReport(), HasSubstr("was chosen in place"));

  // Structure and order are those of stock Ceres.
  Options stock_options;
  stock_options.enabled = false;
  const Result stock = SolveModified(stock_options, derivatives, schur);
  EXPECT_EQ(chosen.summary.schur_structure_given,
            stock.summary.schur_structure_given);
  EXPECT_EQ(chosen.summary.linear_solver_ordering_used,
            stock.summary.linear_solver_ordering_used);
  EXPECT_NEAR(chosen.summary.final_cost,
              stock.summary.final_cost,
              1e-6 * stock.summary.final_cost);
}

TEST_P(Replaces, CgnrToTheBit) {
  const Derivatives derivatives = std::get<1>(GetParam());
  const Result chosen =
      SolveModified(Chosen(LINEAR_SOLVER_CGNR, PRECONDITIONER_AS_GIVEN),
                    derivatives,
                    WithOrdering(GivenSolver));
  const Result asked =
      SolveModified(Chosen(LINEAR_SOLVER_AS_GIVEN, PRECONDITIONER_AS_GIVEN),
                    derivatives,
                    WithOrdering([](ceres::Solver::Options* options) {
                      options->linear_solver_type = ceres::CGNR;
                    }));
  ASSERT_EQ(chosen.summary.path, PATH_FULL) << chosen.summary.path_reason;
  EXPECT_GT(chosen.summary.num_pcg_iterations, 0);
  EXPECT_EQ(chosen.parameters, asked.parameters);
  EXPECT_EQ(chosen.summary.linear_solver_type_used, ceres::CGNR);
  EXPECT_THAT(chosen.summary.path_reason, HasSubstr("CGNR with JACOBI"));
}

INSTANTIATE_TEST_SUITE_P(
    Given,
    Replaces,
    ::testing::Combine(::testing::Values(ceres::SPARSE_SCHUR,
                                         ceres::DENSE_SCHUR,
                                         ceres::SPARSE_NORMAL_CHOLESKY,
                                         ceres::DENSE_NORMAL_CHOLESKY,
                                         ceres::DENSE_QR),
                       ::testing::Values(Derivatives::kAnalytic,
                                         Derivatives::kAutodiff),
                       ::testing::Bool()),
    [](const auto& info) {
      return std::string(
                 ceres::LinearSolverTypeToString(std::get<0>(info.param))) +
             (std::get<1>(info.param) == Derivatives::kAnalytic ? "_analytic"
                                                                : "_autodiff") +
             (std::get<2>(info.param) ? "_ordered" : "_free");
    });

struct Unmet {
  const char* name;
  LinearSolverChoice linear_solver;
  PreconditionerChoice preconditioner;
  void (*modify)(BalTestProblem*, ceres::Problem*, ceres::Solver::Options*);
  const char* reason;
};

class CantBeHad : public ::testing::TestWithParam<Unmet> {};

TEST_P(CantBeHad, LeavesAllAsItWasAndSaysWhy) {
  const Unmet& c = GetParam();
  Options ext_options = Chosen(c.linear_solver, c.preconditioner);
  const Result chosen =
      SolveModified(ext_options, Derivatives::kAnalytic, c.modify);
  EXPECT_THAT(chosen.summary.path_reason, HasSubstr("is not available"));
  EXPECT_THAT(chosen.summary.path_reason, HasSubstr(c.reason));
  // Stock Ceres, or this library if it supports the given solver.
  ext_options = Chosen(LINEAR_SOLVER_AS_GIVEN, PRECONDITIONER_AS_GIVEN);
  const Result given =
      SolveModified(ext_options, Derivatives::kAnalytic, c.modify);
  EXPECT_EQ(chosen.summary.path, given.summary.path);
  EXPECT_EQ(chosen.parameters, given.parameters);
  EXPECT_EQ(chosen.summary.linear_solver_type_used,
            given.summary.linear_solver_type_used);
  EXPECT_EQ(chosen.summary.preconditioner_type_used,
            given.summary.preconditioner_type_used);

  ext_options = Chosen(c.linear_solver, c.preconditioner);
  ext_options.fallback = FALLBACK_REFUSE;
  const Result refused =
      SolveModified(ext_options, Derivatives::kAnalytic, c.modify);
  EXPECT_EQ(refused.summary.termination_type, ceres::FAILURE);
  EXPECT_THAT(refused.summary.message, HasSubstr(c.reason));
}

std::vector<double>& Seven() {
  static auto* const seven = new std::vector<double>(7, 0.1);
  return *seven;
}

INSTANTIATE_TEST_SUITE_P(
    Reasons,
    CantBeHad,
    ::testing::Values(
        Unmet{"Dogleg",
              LINEAR_SOLVER_ITERATIVE_SCHUR,
              PRECONDITIONER_AS_GIVEN,
              [](auto*, auto*, ceres::Solver::Options* options) {
                options->linear_solver_type = ceres::DENSE_SCHUR;
                options->trust_region_strategy_type = ceres::DOGLEG;
              },
              "DOGLEG"},
        Unmet{"PreconditionerOfCgnr",
              LINEAR_SOLVER_CGNR,
              PRECONDITIONER_AS_GIVEN,
              [](auto*, auto*, ceres::Solver::Options* options) {
                options->linear_solver_type = ceres::SPARSE_SCHUR;
              },
              "SCHUR_JACOBI"},
        Unmet{"ServedAsGiven",
              LINEAR_SOLVER_CGNR,
              PRECONDITIONER_AS_GIVEN,
              [](auto*, auto*, auto*) {},
              "SCHUR_JACOBI"},
        Unmet{"FirstGroupIsNotIndependent",
              LINEAR_SOLVER_ITERATIVE_SCHUR,
              PRECONDITIONER_JACOBI,
              [](BalTestProblem* bal,
                 ceres::Problem*,
                 ceres::Solver::Options* options) {
                options->linear_solver_type = ceres::SPARSE_NORMAL_CHOLESKY;
                for (int i = 1; i < bal->num_cameras(); ++i) {
                  options->linear_solver_ordering->AddElementToGroup(
                      bal->camera(i), 0);
                }
              },
              "independent"}),
    [](const auto& info) { return std::string(info.param.name); });

// Ceres's ordering eliminates the block of seven columns; the point is one of
// observations and of another row.
TEST(ChosenSolver, EliminatesBlocksOfSevenColumns) {
  const Result result = SolveModified(
      Chosen(LINEAR_SOLVER_ITERATIVE_SCHUR, PRECONDITIONER_JACOBI),
      Derivatives::kAnalytic,
      [](BalTestProblem* bal,
         ceres::Problem* problem,
         ceres::Solver::Options* options) {
        Seven().assign(7, 0.1);
        options->linear_solver_type = ceres::SPARSE_NORMAL_CHOLESKY;
        options->linear_solver_ordering = nullptr;
        problem->AddResidualBlock(
            new ceres::AutoDiffCostFunction<AutodiffReprojection<3>, 2, 9, 3>(
                new AutodiffReprojection<3>{0.0, 0.0}),
            nullptr,
            bal->camera(0),
            bal->point(0));
        for (size_t i = 0; i < 2 * bal->camera_id.size() + 1; ++i) {
          problem->AddResidualBlock(
              new ceres::AutoDiffCostFunction<Near<7>, 7, 9, 7>(
                  new Near<7>{0.1}),
              nullptr,
              bal->camera(0),
              Seven().data());
        }
      });
  EXPECT_EQ(result.summary.path, PATH_FULL) << result.summary.path_reason;
  EXPECT_TRUE(result.summary.IsSolutionUsable()) << result.summary.message;
  EXPECT_LT(result.summary.final_cost, result.summary.initial_cost);
}

TEST(ChosenPreconditioner, ReplacesThatOfAnIterativeSolverAlone) {
  for (const bool iterative : {true, false}) {
    const Result result = SolveModified(
        Chosen(LINEAR_SOLVER_AS_GIVEN, PRECONDITIONER_SCHUR_JACOBI),
        Derivatives::kAnalytic,
        [iterative](auto*, auto*, ceres::Solver::Options* options) {
          options->linear_solver_type =
              iterative ? ceres::ITERATIVE_SCHUR : ceres::DENSE_QR;
          options->preconditioner_type = ceres::CLUSTER_JACOBI;
        });
    EXPECT_EQ(result.summary.path, iterative ? PATH_FULL : PATH_CERES);
    EXPECT_THAT(result.summary.path_reason,
                HasSubstr(iterative ? "in place of ITERATIVE_SCHUR with "
                                      "CLUSTER_JACOBI"
                                    : "DENSE_QR is not supported"));
    if (!iterative) {
      EXPECT_THAT(result.summary.path_reason, Not(HasSubstr("chosen")));
    }
  }
}

TEST(ChosenSolver, WhatIsGivenAlreadyIsNotNamed) {
  const Result result = SolveModified(
      Chosen(LINEAR_SOLVER_ITERATIVE_SCHUR, PRECONDITIONER_SCHUR_JACOBI),
      Derivatives::kAnalytic,
      [](auto*, auto*, auto*) {});
  EXPECT_EQ(result.summary.path, PATH_FULL);
  EXPECT_THAT(result.summary.path_reason, Not(HasSubstr("chosen")));
}

// AUTO may choose the solver that the program has.
TEST(ChosenSolver, AutoNamesOneSolverOnce) {
  for (const auto given : {ceres::DENSE_SCHUR, ceres::SPARSE_SCHUR}) {
    const Result result =
        SolveModified(Chosen(LINEAR_SOLVER_AUTO, PRECONDITIONER_AS_GIVEN),
                      Derivatives::kAnalytic,
                      [given](auto*, auto*, ceres::Solver::Options* options) {
                        options->linear_solver_type = given;
                      });
    ASSERT_EQ(result.summary.path, PATH_FULL) << result.summary.path_reason;
    ASSERT_EQ(result.summary.linear_solver_type_used, ceres::DENSE_SCHUR);
    EXPECT_THAT(
        result.summary.path_reason,
        HasSubstr(given == ceres::DENSE_SCHUR
                      ? "linear_solver = auto chose DENSE_SCHUR as given; "
                      : "DENSE_SCHUR was chosen in place of SPARSE_SCHUR; "));
  }
}

// The way from one block of six to another.
struct Way {
  template <typename T>
  bool operator()(const T* a, const T* b, T* residuals) const {
    for (int i = 0; i < 6; ++i) {
      residuals[i] = b[i] - a[i] - T(length) + T(0.1) * a[i] * a[(i + 1) % 6];
    }
    return true;
  }
  double length;
};

// A path with closures: S is a band, and exact steps of it cost little, though
// it has more than 3,000 columns.
TEST(ChosenSolver, AutoTakesExactStepsOfAPath) {
  constexpr int kBlocks = 1000;
  constexpr int kBack = 50;
  std::mt19937 random(5);
  std::normal_distribution<double> noise;
  std::vector<double> values(6 * kBlocks);
  const auto solve = [&](bool is_stock) {
    random.seed(5);
    noise.reset();
    ceres::Problem problem;
    for (int i = 0; i < kBlocks; ++i) {
      for (int k = 0; k < 6; ++k) {
        values[6 * i + k] = 0.05 * noise(random);
      }
      for (const int back : {1, kBack}) {
        if (i >= back) {
          problem.AddResidualBlock(
              new ceres::AutoDiffCostFunction<Way, 6, 6, 6>(
                  new Way{0.02 * noise(random)}),
              nullptr,
              &values[6 * (i - back)],
              &values[6 * i]);
        }
      }
    }
    problem.SetParameterBlockConstant(values.data());
    ceres::Solver::Options options;
    options.linear_solver_type = ceres::SPARSE_NORMAL_CHOLESKY;
    options.logging_type = ceres::SILENT;
    Options ext_options;
    ext_options.enabled = !is_stock;
    ext_options.device = DEVICE_HOST;
    ext_options.linear_solver = LINEAR_SOLVER_AUTO;
    Summary summary;
    Solve(options, ext_options, &problem, &summary);
    return summary;
  };
  const Summary stock = solve(/*is_stock=*/true);
  const Summary summary = solve(/*is_stock=*/false);
  ASSERT_EQ(summary.path, PATH_FULL) << summary.path_reason;
  EXPECT_GT(summary.num_linear_solves, 0);
  EXPECT_EQ(summary.num_exact_steps, summary.num_linear_solves);
  EXPECT_EQ(summary.num_successful_steps, stock.num_successful_steps);
  // The same steps to rounding, of which costs keep nine digits.
  EXPECT_NEAR(summary.final_cost, stock.final_cost, 1e-9 * stock.final_cost);
}

struct Line {
  template <typename T>
  bool operator()(const T* x, T* residual) const {
    residual[0] = x[0] + t * x[1] + t * t - exp(x[2] * t);
    return true;
  }
  double t;
};

// All blocks are eliminated, and nothing is left for PCG.
TEST(ChosenSolver, OneBlockOfDenseQr) {
  double x[3][3];
  for (int i = 0; i < 3; ++i) {
    const bool is_kept = i == 2;
    double* const state = x[i];
    state[0] = state[1] = state[2] = 0.1;
    ceres::Problem problem;
    for (int t = 0; t < 20; ++t) {
      problem.AddResidualBlock(
          new ceres::AutoDiffCostFunction<Line, 1, 3>(new Line{0.1 * t}),
          nullptr,
          state);
    }
    ceres::Solver::Options options;
    options.linear_solver_type = ceres::DENSE_QR;
    options.logging_type = ceres::SILENT;
    options.function_tolerance = 1e-14;
    Options ext_options =
        Chosen(LINEAR_SOLVER_ITERATIVE_SCHUR, PRECONDITIONER_AS_GIVEN);
    ext_options.device = i == 0 ? kDevice : DEVICE_AUTO;
    ext_options.fallback = is_kept ? FALLBACK_TO_CERES : FALLBACK_REFUSE;
    Summary summary;
    Solve(options, ext_options, &problem, &summary);
    EXPECT_EQ(summary.termination_type, ceres::CONVERGENCE) << summary.message;
    // DEVICE_AUTO keeps what is as fast where it may.
    EXPECT_EQ(summary.path, is_kept ? PATH_CERES : PATH_FULL);
    EXPECT_THAT(summary.path_reason,
                HasSubstr(is_kept ? "DENSE_QR, which is as fast (device = auto)"
                                  : "chosen in place of DENSE_QR; "));
  }
  for (int i = 0; i < 3; ++i) {
    EXPECT_NEAR(x[0][i], x[2][i], 1e-6);
    EXPECT_NEAR(x[1][i], x[2][i], 1e-6);
  }
}

// A rotation by a quaternion and a translation that take points to others.
struct Motion {
  double from[3];
  double to[3];
  template <typename T>
  bool operator()(const T* q, const T* t, T* residuals) const {
    const T point[3] = {T(from[0]), T(from[1]), T(from[2])};
    T moved[3];
    ceres::QuaternionRotatePoint(q, point, moved);
    for (int i = 0; i < 3; ++i) {
      residuals[i] = moved[i] + t[i] - to[i];
    }
    return true;
  }
};
struct Thrower {
  template <typename T>
  bool operator()(const T* /*q*/, const T* /*t*/, T* /*residuals*/) const {
    throw std::runtime_error("no such point");
  }
};

// Motions of num_points points, three residuals each.
struct SmallProblem {
  explicit SmallProblem(int num_points) {
    problem = std::make_unique<ceres::Problem>();
    problem->AddParameterBlock(q, 4, new ceres::QuaternionManifold);
    for (int i = 0; i < num_points; ++i) {
      const double x = std::sin(1.0 + i);
      const double y = std::cos(2.0 * i);
      const double z = std::sin(3.0 * i);
      problem->AddResidualBlock(
          new ceres::AutoDiffCostFunction<Motion, 3, 4, 3>(
              new Motion{{x, y, z}, {0.3 * y, x + 0.1, 0.9 * z + 0.2 * x}}),
          nullptr,
          q,
          t);
    }
    options.linear_solver_type = ceres::DENSE_QR;
    options.logging_type = ceres::SILENT;
    ext_options.linear_solver = LINEAR_SOLVER_AUTO;
    ext_options.fallback = FALLBACK_REFUSE;
  }
  Summary Solve() {
    Summary summary;
    ceres_ext::Solve(options, ext_options, problem.get(), &summary);
    return summary;
  }

  double q[4] = {1.0, 0.01, 0.0, 0.0};
  double t[3] = {0.0, 0.0, 0.0};
  std::unique_ptr<ceres::Problem> problem;
  ceres::Solver::Options options;
  Options ext_options;
};

constexpr char kSmallMethod[] = "QR of the Jacobian as a dense matrix (double)";

// Steps, costs and ends of stock's DENSE_QR, also with what a loop can have.
TEST(SmallSolve, TakesTheStepsOfDenseQr) {
  struct Variant {
    const char* name;
    void (*modify)(SmallProblem*);
  };
  const Variant kVariants[] = {
      {"plain", [](SmallProblem*) {}},
      {"dogleg",
       [](SmallProblem* small) {
         small->options.trust_region_strategy_type = ceres::DOGLEG;
       }},
      {"a bound",
       [](SmallProblem* small) {
         small->problem->SetParameterUpperBound(small->t, 1, 0.05);
       }},
      {"a constant block",
       [](SmallProblem* small) {
         small->problem->SetParameterBlockConstant(small->t);
       }},
      {"nonmonotonic steps",
       [](SmallProblem* small) {
         small->options.use_nonmonotonic_steps = true;
       }},
      {"another solver", [](SmallProblem* small) {
         small->options.linear_solver_type = ceres::SPARSE_SCHUR;
       }}};
  for (const Variant& variant : kVariants) {
    SCOPED_TRACE(variant.name);
    SmallProblem ours(7);
    SmallProblem stock(7);
    variant.modify(&ours);
    variant.modify(&stock);
    ceres::Solver::Summary of_stock;
    stock.options.linear_solver_type = ceres::DENSE_QR;
    ceres::Solve(stock.options, stock.problem.get(), &of_stock);
    const Summary summary = ours.Solve();
    EXPECT_EQ(summary.path, PATH_FULL) << summary.path_reason;
    EXPECT_EQ(summary.method, kSmallMethod);
    EXPECT_EQ(summary.device, "host, 1 thread");
    EXPECT_THAT(summary.path_reason,
                HasSubstr("all residual blocks are evaluated by Ceres"));
    EXPECT_EQ(summary.linear_solver_type_used, ceres::DENSE_QR);
    EXPECT_GT(ExpectSameSteps(summary, of_stock), 3u);
    EXPECT_EQ(summary.iterations.size(), of_stock.iterations.size());
    EXPECT_NEAR(
        summary.final_cost, of_stock.final_cost, 1e-12 * of_stock.final_cost);
    for (int i = 0; i < 4; ++i) {
      EXPECT_NEAR(ours.q[i], stock.q[i], 1e-9);
    }
    EXPECT_EQ(summary.num_exact_steps, summary.num_linear_solves);
  }
}

TEST(SmallSolve, HasTheSameBitsForAnyNumberOfThreads) {
  SmallProblem one(7);
  one.Solve();
  SmallProblem four(7);
  four.options.num_threads = 4;
  four.Solve();
  EXPECT_EQ(std::memcmp(one.q, four.q, sizeof(one.q)), 0);
  EXPECT_EQ(std::memcmp(one.t, four.t, sizeof(one.t)), 0);
}

// At most 6,000 values of the Jacobian; what names another way of solving has
// it.
TEST(SmallSolve, IsForFewResiduals) {
  const auto method = [](int num_points, auto modify) {
    SmallProblem small(num_points);
    modify(&small);
    return small.Solve().method;
  };
  const auto nothing = [](SmallProblem*) {};
  EXPECT_EQ(method(333, nothing), kSmallMethod);
  EXPECT_THAT(method(334, nothing), HasSubstr("Schur"));
  EXPECT_THAT(method(3,
                     [](SmallProblem* small) {
                       small->ext_options.schur_factorization =
                           SCHUR_FACTORIZATION_DENSE;
                     }),
              HasSubstr("S as a dense matrix"));
}

// The rotation about the axis of all points moves none of them: damping alone
// makes the block definite, and both ways of solving say so.
TEST(SmallSolve, NamesDegenerateBlocks) {
  for (const auto factorization :
       {SCHUR_FACTORIZATION_AUTO, SCHUR_FACTORIZATION_DENSE}) {
    SmallProblem small(0);
    small.ext_options.schur_factorization = factorization;
    for (const double x : {-1.0, 0.5, 2.0}) {
      small.problem->AddResidualBlock(
          new ceres::AutoDiffCostFunction<Motion, 3, 4, 3>(
              new Motion{{x, 0.0, 0.0}, {0.0, x, 0.1}}),
          nullptr,
          small.q,
          small.t);
    }
    const Summary summary = small.Solve();
    EXPECT_EQ(summary.degenerate_eliminated_blocks.count +
                  summary.degenerate_other_blocks.count,
              1);
    EXPECT_EQ(summary.degenerate_eliminated_blocks.count == 1
                  ? summary.degenerate_eliminated_blocks.worst
                  : summary.degenerate_other_blocks.worst,
              small.q);
  }
}

// Two cameras that see constant points: 18 columns, 300 residuals.
TEST(SmallSolve, ArraysHaveTheBitsOfTheirProblem) {
  constexpr int kNumCameras = 12;
  BalTestProblem bal = MakeBalTestProblem(kNumCameras, 150, 6, 9);
  BalTestProblem same = bal;
  std::vector<uint8_t> is_constant(kNumCameras, 1);
  is_constant[3] = is_constant[7] = 0;
  const std::vector<uint8_t> all_constant(bal.num_points(), 1);
  ArrayProblem arrays =
      ArraysOf(&bal, nullptr, is_constant.data(), all_constant.data());

  ceres::Problem problem;
  for (int i = 0; i < kNumCameras; ++i) {
    problem.AddParameterBlock(same.camera(i), 9);
    if (is_constant[i] != 0) {
      problem.SetParameterBlockConstant(same.camera(i));
    }
  }
  for (size_t k = 0; k < same.camera_id.size(); ++k) {
    double* const point = same.point(same.point_id[k]);
    problem.AddResidualBlock(
        CreateBalReprojectionError(same.observations[2 * k],
                                   same.observations[2 * k + 1]),
        nullptr,
        same.camera(same.camera_id[k]),
        point);
    problem.SetParameterBlockConstant(point);
  }

  ceres::Solver::Options options;
  options.logging_type = ceres::SILENT;
  options.linear_solver_type = ceres::ITERATIVE_SCHUR;
  Options ext_options;
  ext_options.linear_solver = LINEAR_SOLVER_AUTO;
  Summary of_arrays;
  Solve(options, ext_options, &arrays, &of_arrays);
  Summary of_problem;
  Solve(options, ext_options, &problem, &of_problem);
  EXPECT_EQ(of_arrays.method, kSmallMethod);
  EXPECT_EQ(of_problem.method, kSmallMethod);
  EXPECT_THAT(of_arrays.path_reason,
              HasSubstr("a ceres::Problem was built from the arrays"));
  EXPECT_GT(of_arrays.num_successful_steps, 2);
  EXPECT_EQ(of_arrays.final_cost, of_problem.final_cost);
  EXPECT_EQ(bal.cameras, same.cameras);
}

TEST(SmallSolve, AnExceptionIsAFailure) {
  SmallProblem small(4);
  small.problem->AddResidualBlock(
      new ceres::AutoDiffCostFunction<Thrower, 3, 4, 3>(new Thrower),
      nullptr,
      small.q,
      small.t);
  const Summary summary = small.Solve();
  EXPECT_EQ(summary.termination_type, ceres::FAILURE);
  EXPECT_THAT(summary.message,
              HasSubstr("An exception ended the solve: no such point"));
  EXPECT_EQ(small.q[1], 0.01);
}

// The factor of a chain, a ring and a full matrix of blocks, by hand.
TEST(SparseFactorization, EstimatesItsFactor) {
  struct Graph {
    std::vector<std::set<int>> below;  // of each block, itself left out
    double num_cells = 0.0;            // of the factor below the diagonal
  };
  constexpr int kNumBlocks = 9;
  constexpr int kSize = 4;
  Graph chain;
  Graph full;
  for (int i = 0; i < kNumBlocks; ++i) {
    chain.below.emplace_back();
    full.below.emplace_back();
    for (int j = 0; j < i; ++j) {
      if (j + 1 == i) {
        chain.below[i].insert(j);
      }
      full.below[i].insert(j);
    }
  }
  Graph ring = chain;
  ring.below[kNumBlocks - 1].insert(0);
  chain.num_cells = kNumBlocks - 1;
  ring.num_cells = 2 * kNumBlocks - 3;  // Any order fills all but three.
  full.num_cells = kNumBlocks * (kNumBlocks - 1) / 2;
  for (const Graph& graph : {chain, ring, full}) {
    std::vector<int64_t> row_begin = {0};
    std::vector<int32_t> column;
    // The third has no unknowns.
    std::vector<int32_t> block_begin = {0, kSize, 2 * kSize, 2 * kSize};
    for (int i = 0; i < kNumBlocks; ++i) {
      for (int r = 0; r < kSize; ++r) {
        for (const int j : graph.below[i]) {
          for (int c = 0; c < kSize; ++c) {
            column.push_back(kSize * j + c);
          }
        }
        for (int c = 0; c <= r; ++c) {
          column.push_back(kSize * i + c);
        }
        row_begin.push_back(static_cast<int64_t>(column.size()));
      }
      if (i > 1) {
        block_begin.push_back(kSize * (i + 1));
      }
    }
    ceres::Solver::Options options;
    options.sparse_linear_algebra_library_type = ceres::EIGEN_SPARSE;
    const auto factorization = CreateSparseFactorization(options);
    ASSERT_NE(factorization, nullptr);
    const kernels::LowerCsr csr = {
        kNumBlocks * kSize, row_begin.back(), row_begin.data(), column.data()};
    ASSERT_TRUE(factorization->Analyze(csr, block_begin).ok());
    const solver::FactorSize size = factorization->EstimateSize();
    EXPECT_EQ(
        size.num_values,
        kNumBlocks * kSize * (kSize + 1) / 2 + graph.num_cells * kSize * kSize);
    // Between those of columns of mean height and of the highest.
    const double n = kNumBlocks * kSize;
    EXPECT_GE(size.num_flops, size.num_values * size.num_values / n);
    EXPECT_LE(size.num_flops, size.num_values * n);
  }
}

// Ceres writes what it eliminates into the ordering of one group that it is
// given.
TEST(Elimination, IsCeressOwn) {
  std::mt19937 random(3);
  for (const int num_rows : {1, 20, 40, 200, 2000}) {
    constexpr int kBlocks = 40;
    std::vector<double> x(3 * kBlocks, 0.0);
    ceres::Problem problem;
    for (int i = 0; i < kBlocks; ++i) {
      problem.AddParameterBlock(&x[3 * i], 3);
    }
    for (int i = 0; i < num_rows; ++i) {
      const int a = static_cast<int>(random() % kBlocks);
      const int b =
          (a + 1 + static_cast<int>(random() % (kBlocks - 1))) % kBlocks;
      problem.AddResidualBlock(
          new ceres::AutoDiffCostFunction<Near<3>, 3, 3, 3>(new Near<3>{1.0}),
          nullptr,
          &x[3 * a],
          &x[3 * b]);
    }
    problem.SetParameterBlockConstant(x.data());
    // Blocks without rows are not in the reduced program.
    std::vector<double*> removed;
    double fixed_cost = 0.0;
    std::string error;
    const auto program =
        problem.mutable_impl()->mutable_program()->CreateReducedProgram(
            &removed, &fixed_cost, &error);
    ASSERT_NE(program, nullptr) << error;
    const ceres::ParameterBlockOrdering ordering;
    kernels::HostContext context(3);
    std::vector<uint8_t> is_eliminated;
    std::string note;
    std::string reason;
    ASSERT_TRUE(ChooseEliminatedBlocks(*program,
                                       &ordering,
                                       std::numeric_limits<int>::max(),
                                       /*takes_private=*/false,
                                       &context,
                                       &is_eliminated,
                                       &note,
                                       &reason));
    std::set<double*> chosen;
    for (int i = 0; i < program->NumParameterBlocks(); ++i) {
      if (is_eliminated[i] != 0) {
        chosen.insert(
            const_cast<double*>(program->parameter_blocks()[i]->user_state()));
      }
    }

    ceres::Solver::Options options;
    options.linear_solver_type = ceres::ITERATIVE_SCHUR;
    options.max_num_iterations = 0;
    options.logging_type = ceres::SILENT;
    options.linear_solver_ordering =
        std::make_shared<ceres::ParameterBlockOrdering>();
    for (int i = 0; i < kBlocks; ++i) {
      options.linear_solver_ordering->AddElementToGroup(&x[3 * i], 0);
    }
    ceres::Solver::Summary summary;
    ceres::Solve(options, &problem, &summary);
    EXPECT_EQ(chosen, options.linear_solver_ordering->group_to_elements().at(0))
        << num_rows;
  }
}

}  // namespace
}  // namespace ceres_ext
