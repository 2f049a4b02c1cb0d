// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Batches of bundle adjustment problems of which something is constant, left
// out or weighted. With CERES_EXT_TEST_ON_CUDA they are a device's.
#ifndef CERES_EXT_TESTS_FRONT_BATCH_CASES_H_
#define CERES_EXT_TESTS_FRONT_BATCH_CASES_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ceres/loss_function.h"
#include "ceres/manifold.h"
#include "ceres/problem.h"
#include "ceres/solver.h"
#include "ceres_ext/bal_cost_functions.h"
#include "ceres_ext/batch.h"
#include "ceres_ext/options.h"
#include "gtest/gtest.h"
#include "tests/common/bal_test_problem.h"

namespace ceres_ext {
// row_kinds.h has other types of these names.
inline namespace batch_cases {

// A problem and what of it is constant or left out.
struct Case {
  BalTestProblem problem;
  std::vector<uint8_t> camera_is_constant;
  std::vector<uint8_t> point_is_constant;
  std::vector<uint8_t> row_is_active;
  std::vector<double> weights;
  ceres::Manifold* manifold = nullptr;  // of the cameras
};

inline Case MakeCase(int num_cameras,
                     int num_points,
                     int views_per_point,
                     int camera_size,
                     unsigned seed) {
  Case one;
  one.problem = MakeBalTestProblem(
      num_cameras, num_points, views_per_point, camera_size, seed);
  one.camera_is_constant.assign(num_cameras, 0);
  one.point_is_constant.assign(num_points, 0);
  one.row_is_active.assign(one.problem.camera_id.size(), 1);
  one.weights.assign(one.problem.camera_id.size(), 1.0);
  return one;
}

// The case as a problem that refers to it, with a loss object of each row.
inline std::unique_ptr<ceres::Problem> MakeProblem(Case* one,
                                                   ceres::LossFunction* loss) {
  ceres::Problem::Options of_problem;
  of_problem.manifold_ownership = ceres::DO_NOT_TAKE_OWNERSHIP;
  auto problem = std::make_unique<ceres::Problem>(of_problem);
  BalTestProblem& bal = one->problem;
  for (size_t k = 0; k < bal.camera_id.size(); ++k) {
    if (one->row_is_active[k] == 0) {
      continue;
    }
    problem->AddResidualBlock(
        bal.MakeCost(k),
        new ceres::ScaledLoss(
            loss, one->weights[k], ceres::DO_NOT_TAKE_OWNERSHIP),
        bal.camera(bal.camera_id[k]),
        bal.point(bal.point_id[k]));
  }
  for (int i = 0; i < bal.num_cameras(); ++i) {
    if (problem->HasParameterBlock(bal.camera(i))) {
      if (one->manifold != nullptr) {
        problem->SetManifold(bal.camera(i), one->manifold);
      }
      if (one->camera_is_constant[i] != 0) {
        problem->SetParameterBlockConstant(bal.camera(i));
      }
    }
  }
  for (int i = 0; i < bal.num_points(); ++i) {
    if (problem->HasParameterBlock(bal.point(i)) &&
        one->point_is_constant[i] != 0) {
      problem->SetParameterBlockConstant(bal.point(i));
    }
  }
  return problem;
}

// The cost of a case at these values of its cameras and points.
inline double CostAt(Case one,
                     const std::vector<double>& values,
                     ceres::LossFunction* loss) {
  const auto points =
      values.begin() + static_cast<int64_t>(one.problem.cameras.size());
  one.problem.cameras.assign(values.begin(), points);
  one.problem.points.assign(points, values.end());
  const auto problem = MakeProblem(&one, loss);
  double cost = 0.0;
  problem->Evaluate({}, &cost, nullptr, nullptr, nullptr);
  return cost;
}

// Cases end to end.
struct Batch {
  std::vector<double> cameras;
  std::vector<double> points;
  std::vector<int32_t> camera_id;
  std::vector<int32_t> point_id;
  std::vector<double> observations;
  std::vector<double> weights;
  std::vector<uint8_t> camera_is_constant;
  std::vector<uint8_t> point_is_constant;
  std::vector<uint8_t> row_is_active;
  std::vector<ceres::Manifold*> manifolds;
  std::vector<int64_t> camera_begin{0};
  std::vector<int64_t> point_begin{0};
  std::vector<int64_t> row_begin{0};
  ProblemBatch batch;
  int camera_size = 9;

  Batch(const std::vector<Case>& cases, ceres::LossFunction* loss)
      : camera_size(cases.empty() ? 9 : cases[0].problem.camera_size) {
    const auto append = [](const auto& from, auto* to) {
      to->insert(to->end(), from.begin(), from.end());
    };
    for (const Case& one : cases) {
      for (size_t k = 0; k < one.problem.camera_id.size(); ++k) {
        camera_id.push_back(static_cast<int32_t>(camera_begin.back()) +
                            one.problem.camera_id[k]);
        point_id.push_back(static_cast<int32_t>(point_begin.back()) +
                           one.problem.point_id[k]);
      }
      append(one.problem.cameras, &cameras);
      append(one.problem.points, &points);
      append(one.problem.observations, &observations);
      append(one.weights, &weights);
      append(one.camera_is_constant, &camera_is_constant);
      append(one.point_is_constant, &point_is_constant);
      append(one.row_is_active, &row_is_active);
      manifolds.resize(cameras.size() / camera_size, one.manifold);
      camera_begin.push_back(static_cast<int64_t>(cameras.size()) /
                             camera_size);
      point_begin.push_back(static_cast<int64_t>(points.size()) / 3);
      row_begin.push_back(static_cast<int64_t>(camera_id.size()));
    }
    ArrayProblem::Parameters of_cameras;
    of_cameras.values = cameras.data();
    of_cameras.num_blocks = camera_begin.back();
    of_cameras.size = camera_size;
    of_cameras.manifolds = manifolds.data();
    of_cameras.is_constant = camera_is_constant.data();
    ArrayProblem::Parameters of_points;
    of_points.values = points.data();
    of_points.num_blocks = point_begin.back();
    of_points.size = 3;
    of_points.is_constant = point_is_constant.data();
    const int c = batch.problem.AddParameters(of_cameras);
    const int p = batch.problem.AddParameters(of_points);
    const std::vector<ArrayProblem::Index> blocks = {{c, camera_id.data()},
                                                     {p, point_id.data()}};
    if (camera_size == 9) {
      batch.problem.AddResiduals<BalReprojectionError>(
          row_begin.back(), observations.data(), blocks, loss, weights.data());
    } else {
      batch.problem.AddResiduals<BalQuaternionReprojectionError>(
          row_begin.back(), observations.data(), blocks, loss, weights.data());
    }
    batch.num_problems = static_cast<int64_t>(cases.size());
    batch.parameter_begin = {camera_begin.data(), point_begin.data()};
    batch.residual_begin = {row_begin.data()};
    batch.residual_is_active = {row_is_active.data()};
  }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  std::vector<double> ValuesOf(int i) const {
    std::vector<double> values(
        cameras.begin() + camera_begin[i] * camera_size,
        cameras.begin() + camera_begin[i + 1] * camera_size);
    values.insert(values.end(),
                  points.begin() + point_begin[i] * 3,
                  points.begin() + point_begin[i + 1] * 3);
    return values;
  }
};

inline ceres::Solver::Options SomeOptions() {
  ceres::Solver::Options options;
  options.linear_solver_type = ceres::DENSE_SCHUR;
  options.max_num_iterations = 20;
  options.num_threads = 2;
  options.logging_type = ceres::SILENT;
  return options;
}

inline Options OnMachine() {
  Options ext_options;
#ifdef CERES_EXT_TEST_ON_CUDA
  ext_options.device = DEVICE_CUDA;
#else
  ext_options.device = DEVICE_HOST;
#endif
  return ext_options;
}

inline std::vector<Case> SomeCases(int camera_size) {
  std::vector<Case> cases;
  unsigned seed = 1;
  for (const int num_cameras : {1, 2, 3, 10, 13, 21, 22}) {
    const int views = std::min(num_cameras, 5);
    cases.push_back(MakeCase(num_cameras,
                             std::max(30, 10 * num_cameras),
                             views,
                             camera_size,
                             ++seed));
    // Gauge freedom is held by the first camera.
    cases.back().camera_is_constant[0] = num_cameras > 1 ? 1 : 0;
  }
  // Poses of known points, which are fits.
  for (const int num_points : {40, 100}) {
    cases.push_back(MakeCase(1, num_points, 1, camera_size, ++seed));
    cases.back().point_is_constant.assign(num_points, 1);
  }
  return cases;
}

// Solves batches that `make` makes in double and in mixed precision, the latter
// twice. On the host both are in double. On a device windows in mixed precision
// end in double, so that the costs differ as those of two solves in double: by
// what is left in a valley at function_tolerance.
template <typename MakeBatch>
void ExpectMixedAsDouble(const MakeBatch& make) {
  ceres::Solver::Options options = SomeOptions();
  options.max_num_iterations = 100;
  options.function_tolerance = 1e-9;
  const auto solve = [&](PrecisionType precision, BatchSummary* summary) {
    Options ext_options = OnMachine();
    ext_options.precision = precision;
    const auto batch = make();
    std::string error;
    std::vector<Summary> full;
    EXPECT_TRUE(
        SolveBatch(options, ext_options, &batch->batch, summary, &error, &full))
        << error;
    for (size_t i = 0; i < full.size(); ++i) {
      // A test of a device without one is solved on the host.
      const bool is_mixed = precision == PRECISION_MIXED &&
                            summary->device.rfind("host", 0) != 0 &&
                            summary->problems[i].solved_as == SOLVED_AS_WINDOW;
      EXPECT_NE(full[i].method.find(is_mixed ? "(mixed)" : "(double)"),
                std::string::npos)
          << full[i].method;
    }
    std::vector<std::vector<double>> values;
    for (int i = 0; i < batch->batch.num_problems; ++i) {
      values.push_back(batch->ValuesOf(i));
    }
    return values;
  };
  BatchSummary in_double;
  BatchSummary mixed;
  BatchSummary again;
  solve(PRECISION_DOUBLE, &in_double);
  const auto values = solve(PRECISION_MIXED, &mixed);
  EXPECT_EQ(values, solve(PRECISION_MIXED, &again));
  ASSERT_EQ(mixed.problems.size(), in_double.problems.size());
  for (size_t i = 0; i < mixed.problems.size(); ++i) {
    SCOPED_TRACE(i);
    const ProblemSummary& ours = mixed.problems[i];
    const ProblemSummary& other = in_double.problems[i];
    EXPECT_TRUE(ours.IsSolvedWhole()) << ours.path_reason;
    EXPECT_EQ(ours.termination_type, other.termination_type)
        << ours.message << " / " << other.message;
    EXPECT_NEAR(
        ours.initial_cost, other.initial_cost, 1e-12 * other.initial_cost);
    // If the images have no noise to fit, only rounding is left.
    EXPECT_NEAR(ours.final_cost,
                other.final_cost,
                1e-6 * other.final_cost + 1e-12 * other.initial_cost);
    // In a long valley more of them differ.
    EXPECT_LE(std::abs(ours.num_successful_steps - other.num_successful_steps),
              2 + other.num_successful_steps / 10)
        << ours.num_successful_steps << " / " << other.num_successful_steps;
  }
}

// True if rounding may decide an iteration: its change of the cost is that of
// rounding, or at a threshold, or the residuals are fitted to rounding.
inline bool IsNearATie(const ceres::Solver::Summary& ceres,
                       const ceres::Solver::Options& options) {
  if (!(ceres.final_cost > 1e-12 * ceres.initial_cost)) {
    return true;
  }
  for (size_t i = 1; i < ceres.iterations.size(); ++i) {
    const ceres::IterationSummary& iteration = ceres.iterations[i];
    const double change =
        std::abs(iteration.cost_change) / ceres.iterations[i - 1].cost;
    const double threshold = change / options.function_tolerance;
    if (!(change > 1e-9) || (threshold > 0.99 && threshold < 1.01) ||
        std::abs(iteration.relative_decrease - options.min_relative_decrease) <
            1e-6) {
      return true;
    }
  }
  return false;
}

// Costs of the start, and the decisions of all iterations unless rounding may
// decide one; false if it may.
inline bool ExpectSameDecisions(const ProblemSummary& ours,
                                const ceres::Solver::Summary& ceres,
                                const ceres::Solver::Options& options) {
  EXPECT_NEAR(
      ours.initial_cost, ceres.initial_cost, 1e-12 * ceres.initial_cost);
  EXPECT_NEAR(ours.fixed_cost, ceres.fixed_cost, 1e-12 * ceres.fixed_cost);
  if (IsNearATie(ceres, options)) {
    return false;
  }
  EXPECT_EQ(ours.termination_type, ceres.termination_type)
      << ours.message << " / " << ceres.message;
  EXPECT_EQ(ours.num_successful_steps, ceres.num_successful_steps);
  EXPECT_EQ(ours.num_unsuccessful_steps, ceres.num_unsuccessful_steps);
  return true;
}

}  // namespace batch_cases
}  // namespace ceres_ext

#endif  // CERES_EXT_TESTS_FRONT_BATCH_CASES_H_
