// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Options::model_cost_tolerance and forcing_sequence, which say how accurate
// PCG is. Also with an emulated device.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "ceres/autodiff_cost_function.h"
#include "ceres/loss_function.h"
#include "ceres/manifold.h"
#include "ceres/problem.h"
#include "ceres/rotation.h"
#include "ceres/solver.h"
#include "ceres_ext/solve.h"
#include "gtest/gtest.h"
#include "tests/common/bal_test_problem.h"
#include "tests/common/has_device.h"

namespace ceres_ext {
namespace {

struct Result {
  Summary summary;
  std::vector<double> parameters;
};

Result SolveWith(const Options& ext_options,
                 double eta,
                 double function_tolerance,
                 int num_iterations) {
  // A chain that closes once: many iterations of PCG.
  BalTestProblem bal = MakeBalTestProblem(40, 300, 3, 9);
  auto problem = BuildProblem(&bal, Derivatives::kAnalytic);
  ceres::Solver::Options options = TestOptions(&bal);
  options.eta = eta;
  options.function_tolerance = function_tolerance;
  options.gradient_tolerance = 0.0;
  options.parameter_tolerance = 0.0;
  options.max_num_iterations = num_iterations;
  Result result;
  Options on_device = ext_options;
  on_device.device = kDevice;
  Solve(options, on_device, problem.get(), &result.summary);
  EXPECT_EQ(result.summary.path, PATH_FULL) << result.summary.path_reason;
  result.parameters = bal.Values();
  return result;
}

TEST(ModelCostTolerance, SparesWhatTheSolveWouldEndFor) {
  for (const double function_tolerance : {1e-3, 1e-6}) {
    const Result all = SolveWith({}, 1e-8, function_tolerance, 50);
    Options tenth;
    tenth.model_cost_tolerance = 0.1 * function_tolerance;
    const Result spared = SolveWith(tenth, 1e-8, function_tolerance, 50);
    ASSERT_EQ(all.summary.termination_type, ceres::CONVERGENCE);
    ASSERT_EQ(spared.summary.termination_type, ceres::CONVERGENCE);
    EXPECT_LT(spared.summary.num_pcg_iterations,
              all.summary.num_pcg_iterations);
    // Both end where a step gains less than the tolerance; a step leaves out
    // a tenth of it at most, by an estimate.
    EXPECT_NEAR(spared.summary.final_cost,
                all.summary.final_cost,
                2.0 * function_tolerance * all.summary.final_cost);
  }
}

TEST(ModelCostTolerance, IsOfNoAccountWhereEtaIsCeressOwn) {
  Options constant;
  constant.forcing_sequence = FORCING_SEQUENCE_CONSTANT;
  Options large = constant;
  large.model_cost_tolerance = 1.0;
  EXPECT_EQ(SolveWith(large, 0.1, 1e-6, 20).parameters,
            SolveWith(constant, 0.1, 1e-6, 20).parameters);
}

TEST(ForcingSequence, FollowsTheGradientFromEtaOn) {
  Options walker;
  walker.forcing_sequence = FORCING_SEQUENCE_EISENSTAT_WALKER;
  Options ceres_rule;
  ceres_rule.forcing_sequence = FORCING_SEQUENCE_CONSTANT;
  const Result constant = SolveWith(ceres_rule, 0.1, 0.0, 8);
  const Result forced = SolveWith(walker, 0.1, 0.0, 8);
  const auto steps = [](const Result& result, size_t i) {
    return result.summary.iterations.at(i).linear_solver_iterations;
  };
  // The same steps until a gradient is so much smaller that the tolerance is
  // too, which takes more iterations of PCG.
  size_t i = 1;
  while (i < 8 && steps(forced, i) == steps(constant, i)) {
    EXPECT_EQ(forced.summary.iterations[i].cost,
              constant.summary.iterations[i].cost);
    ++i;
  }
  EXPECT_GT(i, 1u);  // The first step has no gradient before it.
  EXPECT_GT(steps(forced, i), steps(constant, i));
  EXPECT_EQ(forced.parameters, SolveWith(walker, 0.1, 0.0, 8).parameters);
}

// A strip of images by four cameras that share their intrinsics, with
// positions from GPS, outliers and Huber's loss: PCG gains 98 % of the first
// step's model decrease in two iterations, and the rest decides where the solve
// ends.
class Survey {
 public:
  Survey() {
    std::mt19937 generator(7);
    std::normal_distribution<double> normal;
    std::uniform_real_distribution<double> uniform(-1.0, 1.0);
    const auto draw = [&] { return normal(generator); };
    for (int i = 0; i < kCameras; ++i) {
      intrinsics_[i] = {1000.0 + 10.0 * i, 640.0, 480.0, -0.05};
    }
    for (auto& point : points_) {
      point = {uniform(generator) * kImages,
               uniform(generator) * 10.0,
               uniform(generator) * 2.0};
    }
    std::array<std::array<double, 3>, kImages> centers;
    for (int i = 0; i < kImages; ++i) {
      const double rotation[3] = {0.05 * draw(), 0.05 * draw(), 0.05 * draw()};
      ceres::AngleAxisToQuaternion(rotation, rotations_[i].data());
      const double center[3] = {(2.0 * i / kImages - 1.0) * kImages,
                                4.0 * uniform(generator),
                                -12.0 + uniform(generator)};
      double rotated[3];
      ceres::QuaternionRotatePoint(rotations_[i].data(), center, rotated);
      for (int k = 0; k < 3; ++k) {
        translations_[i][k] = -rotated[k];
        centers[i][k] = center[k] + 0.05 * draw();
      }
    }
    for (auto& point : points_) {
      std::vector<std::pair<int, std::array<double, 2>>> track;
      for (int i = 0; i < kImages; ++i) {
        std::array<double, 2> x;
        Pinhole{0.0, 0.0}(rotations_[i].data(),
                          translations_[i].data(),
                          Intrinsics(i),
                          point.data(),
                          x.data());
        if (std::min(x[0], x[1]) < 0.0 || x[0] > 1280.0 || x[1] > 960.0) {
          continue;
        }
        const double noise = uniform(generator) > 0.96 ? 30.0 : 0.5;
        track.push_back({i, {x[0] + noise * draw(), x[1] + noise * draw()}});
      }
      if (track.size() > 2) {
        for (const auto& [i, x] : track) {
          problem_.AddResidualBlock(
              new ceres::AutoDiffCostFunction<Pinhole, 2, 4, 3, 4, 3>(
                  new Pinhole{x[0], x[1]}),
              &huber_,
              rotations_[i].data(),
              translations_[i].data(),
              Intrinsics(i),
              point.data());
        }
      }
    }
    for (int i = 0; i < kImages; ++i) {
      problem_.AddResidualBlock(
          new ceres::AutoDiffCostFunction<Position, 3, 4, 3>(
              new Position{centers[i]}),
          nullptr,
          rotations_[i].data(),
          translations_[i].data());
      problem_.SetManifold(rotations_[i].data(), &quaternion_);
    }
    problem_.SetParameterBlockConstant(rotations_[0].data());
    problem_.SetParameterBlockConstant(translations_[0].data());
    for (auto& point : points_) {
      for (double& value : point) {
        value += 0.1 * draw();
      }
    }
    for (int i = 1; i < kImages; ++i) {
      for (double& value : translations_[i]) {
        value += 0.2 * draw();
      }
    }
    for (auto& camera : intrinsics_) {
      camera[0] *= 1.01;
      camera[3] = 0.0;
    }
  }

  ceres::Problem* problem() { return &problem_; }

 private:
  static constexpr int kImages = 30;
  static constexpr int kPoints = 20 * kImages;
  static constexpr int kCameras = 4;

  struct Pinhole {
    template <typename T>
    bool operator()(
        const T* q, const T* t, const T* f, const T* x, T* r) const {
      T p[3];
      ceres::QuaternionRotatePoint(q, x, p);
      const T u = (p[0] + t[0]) / (p[2] + t[2]);
      const T v = (p[1] + t[1]) / (p[2] + t[2]);
      const T d = f[0] * (1.0 + (u * u + v * v) * f[3]);
      r[0] = d * u + f[1] - observed_x;
      r[1] = d * v + f[2] - observed_y;
      return true;
    }
    double observed_x;
    double observed_y;
  };
  struct Position {
    template <typename T>
    bool operator()(const T* q, const T* t, T* r) const {
      const T inverse[4] = {q[0], -q[1], -q[2], -q[3]};
      ceres::QuaternionRotatePoint(inverse, t, r);
      for (int k = 0; k < 3; ++k) {
        r[k] = (-r[k] - center[k]) / 0.05;
      }
      return true;
    }
    std::array<double, 3> center;
  };

  double* Intrinsics(int image) { return intrinsics_[image % kCameras].data(); }

  ceres::HuberLoss huber_{1.0};
  ceres::QuaternionManifold quaternion_;
  std::array<std::array<double, 4>, kCameras> intrinsics_;
  std::array<std::array<double, 4>, kImages> rotations_;
  std::array<std::array<double, 3>, kImages> translations_;
  std::array<std::array<double, 3>, kPoints> points_;
  ceres::Problem problem_ = ceres::Problem(Unowned());

  static ceres::Problem::Options Unowned() {
    ceres::Problem::Options options;
    options.loss_function_ownership = ceres::DO_NOT_TAKE_OWNERSHIP;
    options.manifold_ownership = ceres::DO_NOT_TAKE_OWNERSHIP;
    return options;
  }
};

TEST(ForcingSequence, ModelCostEndsWhereTheExactStepDoes) {
  const auto stock = std::make_unique<Survey>();
  ceres::Solver::Options options;
  options.linear_solver_type = ceres::DENSE_SCHUR;
  options.function_tolerance = 1e-9;
  options.max_num_iterations = 100;
  options.num_threads = 2;
  options.logging_type = ceres::SILENT;
  ceres::Solver::Summary expected;
  ceres::Solve(options, stock->problem(), &expected);
  const auto expect_same = [&](ceres::LinearSolverType given,
                               const Options& ext_options) {
    options.linear_solver_type = given;
    options.preconditioner_type = ceres::SCHUR_JACOBI;
    const auto survey = std::make_unique<Survey>();
    Summary summary;
    Solve(options, ext_options, survey->problem(), &summary);
    EXPECT_EQ(summary.path, PATH_FULL) << summary.path_reason;
    EXPECT_GT(summary.num_pcg_iterations, 0);
    // By eta alone PCG ends at 2.3 and, with single blocks, 3.1 times this
    // cost.
    EXPECT_LE(summary.final_cost, (1.0 + 1e-6) * expected.final_cost);
    EXPECT_GT(summary.final_cost, (1.0 - 1e-6) * expected.final_cost);
  };
  Options ext_options;
  ext_options.device = kDevice;
  // Merged blocks.
  expect_same(ceres::ITERATIVE_SCHUR, ext_options);
  // In place of a factorisation.
  ext_options.preconditioner_blocks = PRECONDITIONER_BLOCKS_SINGLE;
  ext_options.linear_solver = LINEAR_SOLVER_ITERATIVE_SCHUR;
  ext_options.preconditioner = PRECONDITIONER_SCHUR_JACOBI;
  expect_same(ceres::DENSE_SCHUR, ext_options);
  // By name.
  ext_options.linear_solver = LINEAR_SOLVER_AS_GIVEN;
  ext_options.preconditioner = PRECONDITIONER_AS_GIVEN;
  ext_options.forcing_sequence = FORCING_SEQUENCE_MODEL_COST;
  expect_same(ceres::ITERATIVE_SCHUR, ext_options);
}

TEST(ForcingSequence, AutoIsCeressWhereTheStepsAreItsOwn) {
  Options constant;
  constant.forcing_sequence = FORCING_SEQUENCE_CONSTANT;
  EXPECT_EQ(SolveWith({}, 0.1, 0.0, 8).parameters,
            SolveWith(constant, 0.1, 0.0, 8).parameters);
}

// With this eta one or two iterations are enough for a step.
TEST(FirstSteps, TakeTenIterationsWhereThisLibraryChoosesPcg) {
  Options chosen;
  chosen.linear_solver = LINEAR_SOLVER_AUTO;
  const auto iterations = [](const Options& ext_options, size_t step) {
    const Summary summary = SolveWith(ext_options, 0.9, 0.0, 4).summary;
    return summary.iterations.at(step).linear_solver_iterations;
  };
  for (size_t step = 1; step <= 4; ++step) {
    EXPECT_GE(iterations(chosen, step), 10) << step;
  }
  EXPECT_LT(iterations({}, 1), 10);
}

TEST(FirstSteps, TakeNoMoreIterationsThanThereMayBe) {
  BalTestProblem bal = MakeBalTestProblem(40, 300, 3, 9);
  auto problem = BuildProblem(&bal, Derivatives::kAnalytic);
  ceres::Solver::Options options = TestOptions(&bal);
  options.max_num_iterations = 1;
  options.max_linear_solver_iterations = 3;
  Options ext_options;
  ext_options.device = kDevice;
  ext_options.linear_solver = LINEAR_SOLVER_AUTO;
  Summary summary;
  Solve(options, ext_options, problem.get(), &summary);
  EXPECT_GT(summary.num_pcg_iterations, 0);
  EXPECT_LE(summary.num_pcg_iterations, 3);
}

TEST(Summary, CountsSolvesAtTheLimitOfPcg) {
  BalTestProblem bal = MakeBalTestProblem(40, 300, 3, 9);
  auto problem = BuildProblem(&bal, Derivatives::kAnalytic);
  ceres::Solver::Options options = TestOptions(&bal);
  options.eta = 1e-8;
  options.max_num_iterations = 4;
  options.max_linear_solver_iterations = 3;
  Options ext_options;
  ext_options.device = kDevice;
  Summary summary;
  Solve(options, ext_options, problem.get(), &summary);
  EXPECT_GT(summary.num_solves_at_pcg_limit, 0);
  EXPECT_EQ(3 * summary.num_solves_at_pcg_limit, summary.num_pcg_iterations);
  EXPECT_NE(summary.FullReport().find("PCG at its limit"), std::string::npos);
  EXPECT_EQ(SolveWith({}, 0.1, 1e-6, 4).summary.num_solves_at_pcg_limit, 0);
}

}  // namespace
}  // namespace ceres_ext
