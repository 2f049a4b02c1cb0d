// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Batches against stock Ceres with DENSE_SCHUR, problem by problem; the same
// bits wherever in a batch a window is; bad problems beside good ones. With
// CERES_EXT_TEST_ON_CUDA on a device.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "batch_cases.h"
#include "ceres/loss_function.h"
#include "ceres/manifold.h"
#include "ceres/normal_prior.h"
#include "ceres/problem.h"
#include "ceres/solver.h"
#include "ceres_ext/bal_cost_functions.h"
#include "ceres_ext/batch.h"
#include "ceres_ext/solve.h"
#include "gtest/gtest.h"
#include "tests/common/exact_covariance.h"
#include "tests/common/own_loss.h"

namespace ceres_ext {
namespace {

// Stock Ceres on a copy; returns the refined values as ValuesOf does.
std::vector<double> SolveByCeres(Case one,
                                 ceres::LossFunction* loss,
                                 const ceres::Solver::Options& options,
                                 ceres::Solver::Summary* summary) {
  const auto problem = MakeProblem(&one, loss);
  ceres::Solve(options, problem.get(), summary);
  std::vector<double> values = one.problem.Values();
  return values;
}

// A window goes the way of stock Ceres: the same ending after the same steps.
// Costs differ by rounding in the steps, of which ten or so follow each other,
// each at a minimum of a condition of 1e6 or so in the model: 1e-9 is seen.
constexpr double kNothing = 1e-12;
void ExpectAsCeres(const std::vector<Case>& cases,
                   ceres::LossFunction* loss,
                   const ceres::Solver::Options& options) {
  Batch batch(cases, loss);
  BatchSummary summary;
  std::string error;
  ASSERT_TRUE(SolveBatch(options, OnMachine(), &batch.batch, &summary, &error))
      << error;
  ASSERT_EQ(summary.problems.size(), cases.size());
  EXPECT_EQ(summary.num_windows, cases.size());
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(i);
    const ProblemSummary& ours = summary.problems[i];
    ceres::Solver::Summary ceres;
    SolveByCeres(cases[i], loss, options, &ceres);
    EXPECT_TRUE(ours.IsSolvedWhole()) << ours.path_reason;
    EXPECT_EQ(ours.termination_type, ceres.termination_type)
        << ours.message << " / " << ceres.message;
    EXPECT_EQ(ours.message.substr(0, 20), ceres.message.substr(0, 20));
    EXPECT_EQ(ours.num_successful_steps, ceres.num_successful_steps);
    EXPECT_EQ(ours.num_unsuccessful_steps, ceres.num_unsuccessful_steps);
    EXPECT_NEAR(
        ours.initial_cost, ceres.initial_cost, 1e-12 * ceres.initial_cost);
    // If the images have no noise to fit, only rounding is left.
    EXPECT_NEAR(
        ours.final_cost, ceres.final_cost, 1e-6 * ceres.final_cost + kNothing);
    EXPECT_NEAR(ours.fixed_cost, ceres.fixed_cost, 1e-12 * ceres.fixed_cost);
    EXPECT_NEAR(ours.final_cost,
                CostAt(cases[i], batch.ValuesOf(static_cast<int>(i)), loss),
                1e-9 * ceres.final_cost + kNothing);
  }
}

TEST(SolveBatch, SolvesAsCeresByKind) {
  for (const int camera_size : {9, 10}) {
    SCOPED_TRACE(camera_size);
    ExpectAsCeres(SomeCases(camera_size), nullptr, SomeOptions());
  }
}

// A pose of points that are known: nothing is eliminated.
TEST(SolveBatch, RefinesPosesAsCeres) {
  ceres::SubsetManifold pose(9, {6, 7, 8});
  std::vector<Case> cases;
  for (unsigned seed = 0; seed < 20; ++seed) {
    cases.push_back(MakeCase(1, 50, 1, 9, 200 + seed));
    cases.back().point_is_constant.assign(50, 1);
    cases.back().manifold = &pose;
  }
  ExpectAsCeres(cases, nullptr, SomeOptions());
}

// Points of 0, 1, 31, 32, 33 and 200 rows, of which most are of constant
// cameras; and a chunk's limits of 64 points.
TEST(SolveBatch, SolvesLongTracksAsCeres) {
  std::vector<Case> cases;
  for (const int views : {1, 31, 32, 33, 200}) {
    cases.push_back(MakeCase(std::max(views, 3), 70, views, 9, 300 + views));
    for (int i = 2; i < std::max(views, 3); ++i) {
      cases.back().camera_is_constant[i] = 1;
    }
    cases.back().camera_is_constant[0] = 1;
    // Point 0 is in no row.
    for (int k = 0; k < views; ++k) {
      cases.back().row_is_active[k] = 0;
    }
  }
  ceres::Solver::Options options = SomeOptions();
  options.max_num_iterations = 5;
  ExpectAsCeres(cases, nullptr, options);
}

// Cameras that see few points together: a ring, a chain, two chains, and a
// first camera that sees all points, with which the factorisation fills all
// blocks in. With 70 cameras the pattern has two words a column.
TEST(SolveBatch, SolvesSparseWindowsAsCeres) {
  enum Form { kRing, kChain, kTwoChains, kStar };
  std::vector<Case> cases;
  for (const int num_cameras : {12, 33, 70}) {
    for (const Form form : {kRing, kChain, kTwoChains, kStar}) {
      if (form == kStar && num_cameras > 33) {
        continue;
      }
      constexpr int kSeen = 4;
      const int views = form == kStar ? num_cameras : kSeen;
      const int num_points = 12 * num_cameras;
      Case one = MakeCase(num_cameras, num_points, views, 9, 500 + form);
      const int middle = form == kTwoChains ? num_cameras / 2 : num_cameras;
      for (int p = 0; p < num_points; ++p) {
        const int32_t* const cameras = &one.problem.camera_id[p * views];
        const bool is_whole =
            cameras[0] <= cameras[kSeen - 1] &&
            (cameras[0] < middle) == (cameras[kSeen - 1] < middle);
        for (int v = 0; v < views; ++v) {
          const bool is_seen = form == kStar ? v < kSeen || cameras[v] == 1
                                             : form == kRing || is_whole;
          one.row_is_active[p * views + v] = is_seen ? 1 : 0;
        }
      }
      // Each chain is held by its first camera.
      one.camera_is_constant[0] = 1;
      one.camera_is_constant[middle % num_cameras] = 1;
      cases.push_back(one);
    }
  }
  ceres::Solver::Options options = SomeOptions();
  options.max_num_iterations = 5;
  ExpectAsCeres(cases, nullptr, options);
}

TEST(SolveBatch, EndsAsCeresForEachReason) {
  ceres::Solver::Options options = SomeOptions();
  std::vector<Case> cases = SomeCases(9);
  options.max_num_iterations = 0;
  ExpectAsCeres(cases, nullptr, options);
  options.max_num_iterations = 50;
  options.function_tolerance = 1e-2;
  ExpectAsCeres(cases, nullptr, options);
  options.function_tolerance = 1e-16;
  options.parameter_tolerance = 1e-3;
  ExpectAsCeres(cases, nullptr, options);
  options.parameter_tolerance = 1e-16;
  options.gradient_tolerance = 1e3;
  ExpectAsCeres(cases, nullptr, options);
  options.gradient_tolerance = 1e-10;
  options.initial_trust_region_radius = 1e-20;
  options.min_trust_region_radius = 1e-20;
  ExpectAsCeres(cases, nullptr, options);
  options.initial_trust_region_radius = 1e2;
  options.min_trust_region_radius = 1e-32;
  options.jacobi_scaling = false;
  options.max_num_iterations = 6;
  ExpectAsCeres(cases, nullptr, options);
}

TEST(SolveBatch, MixedPrecisionEndsAtTheCostOfDouble) {
  ceres::HuberLoss huber(0.5);
  for (const int camera_size : {9, 10}) {
    SCOPED_TRACE(camera_size);
    std::vector<Case> cases = SomeCases(camera_size);
    // S in main memory.
    cases.push_back(MakeCase(30, 300, 5, camera_size, 50));
    cases.back().camera_is_constant[0] = 1;
    // No camera holds the gauge.
    cases.push_back(MakeCase(10, 200, 5, camera_size, 51));
    ExpectMixedAsDouble(
        [&] { return std::make_unique<Batch>(cases, nullptr); });
    ExpectMixedAsDouble([&] { return std::make_unique<Batch>(cases, &huber); });
  }
}

// The bits of a window are those that it has alone, wherever in a batch it is
// and however many threads there are.
// On a device one window alone is solved by a cluster of blocks, and of many
// each by a block.
TEST(SolveBatch, HasTheSameBitsInAnyBatch) {
  std::vector<Case> cases = SomeCases(9);
  // S in main memory, sparse and dense.
  cases.push_back(MakeCase(30, 300, 5, 9, 50));
  cases.back().camera_is_constant[0] = 1;
  cases.push_back(MakeCase(30, 100, 30, 9, 51));
  cases.back().camera_is_constant[0] = 1;
  const auto solve = [](const std::vector<Case>& some, int num_threads) {
    Batch batch(some, nullptr);
    ceres::Solver::Options options = SomeOptions();
    options.num_threads = num_threads;
    BatchSummary summary;
    EXPECT_TRUE(SolveBatch(options, OnMachine(), &batch.batch, &summary));
    EXPECT_EQ(summary.num_windows, some.size());
    std::vector<std::vector<double>> values;
    for (size_t i = 0; i < some.size(); ++i) {
      values.push_back(batch.ValuesOf(static_cast<int>(i)));
    }
    return values;
  };
  std::vector<Case> many;
  many.reserve(40);
  for (int i = 0; i < 40; ++i) {
    many.push_back(cases[(i * 3) % cases.size()]);
  }
  const auto of_many = solve(many, 2);
  const auto again = solve(many, 1);
  for (size_t i = 0; i < cases.size(); ++i) {
    const auto alone = solve({cases[i]}, 1)[0];
    // Several threads of the host solve it together.
    for (const int num_threads : {2, 3}) {
      const auto together = solve({cases[i]}, num_threads)[0];
      EXPECT_EQ(
          std::memcmp(
              alone.data(), together.data(), alone.size() * sizeof(double)),
          0);
    }
    for (size_t k = 0; k < many.size(); ++k) {
      if ((k * 3) % cases.size() == i) {
        EXPECT_EQ(
            std::memcmp(
                alone.data(), of_many[k].data(), alone.size() * sizeof(double)),
            0);
        EXPECT_EQ(
            std::memcmp(
                alone.data(), again[k].data(), alone.size() * sizeof(double)),
            0);
      }
    }
  }
}

// Each bad problem ends as ceres_ext::Solve ends it, and the good ones beside
// them as without them.
TEST(SolveBatch, KeepsBadProblemsToThemselves) {
  std::vector<Case> cases;
  for (int i = 0; i < 8; ++i) {
    cases.push_back(MakeCase(3, 30, 3, 9, 400 + i));
    cases.back().camera_is_constant[0] = 1;
  }
  const std::vector<Case> good = cases;
  cases[1].problem.observations[4] = std::numeric_limits<double>::quiet_NaN();
  cases[2].problem.points[5] = std::numeric_limits<double>::infinity();
  cases[3].row_is_active.assign(cases[3].row_is_active.size(), 0);
  cases[4].camera_is_constant.assign(3, 1);
  cases[4].point_is_constant.assign(30, 1);
  // A camera sees a point twice.
  cases[5].problem.camera_id[1] = cases[5].problem.camera_id[0];
  // A point at the optical centre of camera 0.
  for (int e = 0; e < 6; ++e) {
    cases[6].problem.cameras[e] = 0.0;
  }
  std::fill_n(cases[6].problem.points.begin(), 3, 0.0);
  Batch batch(cases, nullptr);
  Batch unspoilt(good, nullptr);
  BatchSummary summary;
  BatchSummary of_good;
  const ceres::Solver::Options options = SomeOptions();
  ASSERT_TRUE(SolveBatch(options, OnMachine(), &batch.batch, &summary));
  ASSERT_TRUE(SolveBatch(options, OnMachine(), &unspoilt.batch, &of_good));
  EXPECT_EQ(of_good.num_windows, 8);
  // The host solves problem 5 as a window.
  const bool is_on_host = summary.device.rfind("host", 0) == 0;
  EXPECT_EQ(summary.num_windows, is_on_host ? 3 : 2);
  for (int i = 0; i < 8; ++i) {
    SCOPED_TRACE(i);
    const ProblemSummary& ours = summary.problems[i];
    EXPECT_EQ(ours.IsSolvedWhole(), i == 0 || i == 7 || (i == 5 && is_on_host))
        << ours.path_reason;
    if (i == 0 || i == 7) {
      EXPECT_EQ(batch.ValuesOf(i), unspoilt.ValuesOf(i));
      continue;
    }
    EXPECT_NE(ours.IsSolvedWhole(), !ours.path_reason.empty());
    // The problem by itself.
    std::vector<Case> one = {cases[i]};
    for (size_t k = one[0].row_is_active.size(); k-- > 0;) {
      if (one[0].row_is_active[k] == 0) {
        one[0].problem.camera_id.erase(one[0].problem.camera_id.begin() + k);
        one[0].problem.point_id.erase(one[0].problem.point_id.begin() + k);
      }
    }
    Batch alone(one, nullptr);
    Summary of_alone;
    Solve(options, OnMachine(), &alone.batch.problem, &of_alone);
    if (ours.IsSolvedWhole()) {
      EXPECT_NEAR(
          ours.final_cost, of_alone.final_cost, 1e-9 * of_alone.final_cost);
      continue;
    }
    EXPECT_EQ(ours.termination_type, of_alone.termination_type);
    EXPECT_EQ(ours.message, of_alone.message);
    EXPECT_EQ(ours.num_successful_steps, of_alone.num_successful_steps);
    if (ours.termination_type == ceres::FAILURE) {
      EXPECT_EQ(ours.initial_cost, -1.0);
      const std::vector<double> values = batch.ValuesOf(i);
      EXPECT_TRUE(std::equal(cases[i].problem.cameras.begin(),
                             cases[i].problem.cameras.end(),
                             values.begin()));
    } else {
      EXPECT_NEAR(ours.final_cost, of_alone.final_cost, 1e-9);
    }
  }
}

// ceres_ext::Solve solves problems that windows do not support, and the
// summaries say why.
TEST(SolveBatch, SolvesOthersOneByOne) {
  std::vector<Case> cases = {MakeCase(3, 30, 3, 9, 1),
                             MakeCase(3, 30, 3, 9, 2)};
  const auto expect_others = [&](const ceres::Solver::Options& options,
                                 ceres::LossFunction* loss,
                                 const std::string& reason) {
    Batch batch(cases, loss);
    BatchSummary summary;
    ASSERT_TRUE(SolveBatch(options, OnMachine(), &batch.batch, &summary));
    EXPECT_EQ(summary.num_windows, 0);
    for (const ProblemSummary& problem : summary.problems) {
      EXPECT_FALSE(problem.IsSolvedWhole());
      EXPECT_NE(problem.path_reason.find(reason), std::string::npos)
          << problem.path_reason;
      EXPECT_TRUE(problem.IsSolutionUsable()) << problem.message;
      EXPECT_LT(problem.final_cost, problem.initial_cost);
    }
  };
  ceres::Solver::Options options = SomeOptions();
  options.linear_solver_type = ceres::ITERATIVE_SCHUR;
  expect_others(options, nullptr, "iterative");
  options = SomeOptions();
  options.use_nonmonotonic_steps = true;
  expect_others(options, nullptr, "nonmonotonic");
  options = SomeOptions();
  options.trust_region_strategy_type = ceres::DOGLEG;
  expect_others(options, nullptr, "DOGLEG");
  OwnLoss own;
  expect_others(SomeOptions(), &own, "user-defined");
  cases = {MakeCase(130, 200, 4, 9, 1)};
  options = SomeOptions();
  options.max_num_iterations = 3;
  expect_others(options, nullptr, "at most 128 cameras");
}

// A camera alone varies in the last problem, and the second cannot be solved.
TEST(SolveBatch, HasTheCovarianceThatIsWanted) {
  std::vector<Case> cases = {MakeCase(4, 40, 4, 9, 1),
                             MakeCase(3, 30, 3, 9, 2),
                             MakeCase(5, 50, 4, 9, 3),
                             MakeCase(1, 40, 1, 9, 4)};
  for (Case& one : cases) {
    one.camera_is_constant[0] = 1;
  }
  // The gauge is held: two cameras are constant.
  cases[0].camera_is_constant[1] = 1;
  cases[2].camera_is_constant[1] = 1;
  cases[3].camera_is_constant[0] = 0;
  cases[3].point_is_constant.assign(40, 1);
  cases[1].problem.observations[0] = std::numeric_limits<double>::quiet_NaN();
  Batch all(cases, nullptr);
  std::vector<uint8_t> of_cameras(all.camera_is_constant.size(), 0);
  std::vector<uint8_t> of_points(all.point_is_constant.size(), 0);
  // The first and last camera of each, and a point of the third problem.
  for (size_t i = 0; i < cases.size(); ++i) {
    of_cameras[all.camera_begin[i]] = 1;
    of_cameras[all.camera_begin[i + 1] - 1] = 1;
  }
  of_points[all.point_begin[2] + 7] = 1;
  all.batch.covariance_is_wanted = {of_cameras.data(), of_points.data()};
  BatchSummary summary;
  std::string error;
  ASSERT_TRUE(
      SolveBatch(SomeOptions(), OnMachine(), &all.batch, &summary, &error))
      << error;
  ASSERT_EQ(summary.covariances.size(), cases.size());
  EXPECT_NE(summary.covariances[1].message.find("no usable solution"),
            std::string::npos)
      << summary.covariances[1].message;
  for (const size_t i : {0, 2, 3}) {
    SCOPED_TRACE(i);
    const BlockCovariance& found = summary.covariances[i];
    ASSERT_EQ(found.message, "");
    Case one = cases[i];
    std::copy_n(all.cameras.begin() + 9 * all.camera_begin[i],
                one.problem.cameras.size(),
                one.problem.cameras.begin());
    std::copy_n(all.points.begin() + 3 * all.point_begin[i],
                one.problem.points.size(),
                one.problem.points.begin());
    const std::unique_ptr<ceres::Problem> problem = MakeProblem(&one, nullptr);
    std::vector<double*> wanted = {
        one.problem.camera(one.problem.num_cameras() - 1)};
    if (i == 2) {
      wanted.push_back(one.problem.point(7));
    }
    ASSERT_EQ(found.blocks.size(), wanted.size());
    EXPECT_EQ(found.blocks[0].block, all.camera_begin[i + 1] - 1);
    double tolerance = 0.0;
    const Eigen::MatrixXd expected =
        CovarianceOf(wanted, problem.get(), &tolerance);
    ASSERT_LT(tolerance, 1e-3);
    ASSERT_EQ(static_cast<int64_t>(found.values.size()), expected.size());
    const auto n = expected.rows();
    for (Eigen::Index a = 0; a < n; ++a) {
      for (Eigen::Index b = 0; b < n; ++b) {
        EXPECT_NEAR(found.values[n * a + b],
                    expected(a, b),
                    tolerance * std::sqrt(expected(a, a) * expected(b, b)));
      }
    }
  }
}

TEST(SolveBatch, RefusesBatchesThatDoNotFit) {
  const std::vector<Case> cases = {MakeCase(3, 30, 3, 9, 1),
                                   MakeCase(3, 30, 3, 9, 2)};
  const auto expect_refused = [&](const std::function<void(Batch*)>& spoil,
                                  const std::string& part) {
    Batch batch(cases, nullptr);
    spoil(&batch);
    const std::vector<double> before = batch.cameras;
    BatchSummary summary;
    std::string error;
    EXPECT_FALSE(
        SolveBatch(SomeOptions(), OnMachine(), &batch.batch, &summary, &error));
    EXPECT_NE(error.find(part), std::string::npos) << error;
    EXPECT_EQ(batch.cameras, before);
  };
  expect_refused([](Batch* b) { b->camera_id[0] = 3; }, "another problem's");
  expect_refused([](Batch* b) { b->row_begin[1] = -1; }, "residual_begin[0]");
  expect_refused([](Batch* b) { b->camera_begin[2] = 5; },
                 "parameter_begin[0]");
  expect_refused([](Batch* b) { b->batch.parameter_begin.pop_back(); },
                 "parameter_begin has 1 arrays, expected 2");
  expect_refused([](Batch* b) { b->batch.num_problems = -1; },
                 "num_problems is -1");
  expect_refused([](Batch* b) { b->batch.residual_is_active.push_back({}); },
                 "residual_is_active has 2 arrays");
  expect_refused([](Batch* b) { b->batch.covariance_is_wanted.resize(3); },
                 "covariance_is_wanted has 3 arrays, expected 2");
  BatchSummary summary;
  std::string error;
  EXPECT_FALSE(
      SolveBatch(SomeOptions(), OnMachine(), nullptr, &summary, &error));
  EXPECT_NE(error.find("null"), std::string::npos);
}

// Bounds that are not valid end their problem with the sentence of Solve, and
// do not touch the others.
TEST(SolveBatch, RefusesBoundsThatCanNotBe) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  std::vector<Case> cases = {MakeCase(3, 30, 3, 9, 1),
                             MakeCase(3, 30, 3, 9, 2)};
  ceres::SubsetManifold pose(9, {6, 7, 8});
  for (Case& one : cases) {
    one.camera_is_constant[0] = 1;
    one.manifold = &pose;
  }
  // Bounds value j of camera 3 + c, a camera of the second problem.
  const auto solve = [&](int c, int j, double from, double to) {
    Batch batch(cases, nullptr);
    std::vector<double> lower(batch.cameras.size(), -kInfinity);
    std::vector<double> upper(batch.cameras.size(), kInfinity);
    const double x = batch.cameras[9 * (3 + c) + j];
    lower[9 * (3 + c) + j] = x + from;
    upper[9 * (3 + c) + j] = x + to;
    ArrayProblem bounded;
    for (auto p : batch.batch.problem.parameters()) {
      if (p.size == 9) {
        p.lower_bounds = lower.data();
        p.upper_bounds = upper.data();
      }
      bounded.AddParameters(p);
    }
    for (const auto& residuals : batch.batch.problem.residuals()) {
      bounded.AddResiduals(residuals);
    }
    batch.batch.problem = bounded;
    const std::vector<double> start = batch.ValuesOf(1);
    BatchSummary summary;
    EXPECT_TRUE(SolveBatch(SomeOptions(), OnMachine(), &batch.batch, &summary));
    EXPECT_TRUE(summary.problems[0].IsSolvedWhole());
    EXPECT_TRUE(summary.problems[0].IsSolutionUsable());
    if (!summary.problems[1].IsSolutionUsable()) {
      EXPECT_EQ(batch.ValuesOf(1), start);
      return summary.problems[1].message;
    }
    return std::string(summary.problems[1].solved_as == SOLVED_AS_WINDOW
                           ? "window"
                           : "problem");
  };
  const auto expect = [](const std::string& message, const char* part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  expect(solve(1, 0, std::nan(""), 1.0), "expected numbers");
  expect(solve(1, 0, 0.1, 0.1), "expected the first to be smaller");
  expect(solve(1, 0, 0.2, 0.1), "expected the first to be smaller");
  expect(solve(0, 0, 0.1, 0.2), "because the block is constant");
  expect(solve(1, 7, 0.1, 0.2), "because its manifold keeps it constant");
  // Held within its bounds, and bounds of a constant block.
  EXPECT_EQ(solve(1, 7, -0.1, 0.2), "window");
  EXPECT_EQ(solve(0, 0, -0.1, 0.2), "window");
}

TEST(SolveBatch, ReturnsAtOnceFromAnEmptyBatch) {
  Batch batch({}, nullptr);
  BatchSummary summary;
  EXPECT_TRUE(SolveBatch(SomeOptions(), OnMachine(), &batch.batch, &summary));
  EXPECT_TRUE(summary.problems.empty());
  EXPECT_FALSE(summary.BriefReport().empty());
}

// In pieces, where memory is limited.
TEST(SolveBatch, SolvesInPieces) {
  std::vector<Case> cases;
  cases.reserve(30);
  for (int i = 0; i < 30; ++i) {
    cases.push_back(MakeCase(3, 60, 3, 9, 500 + i));
  }
  Batch whole(cases, nullptr);
  Batch pieces(cases, nullptr);
  BatchSummary summary;
  Options ext_options = OnMachine();
  ASSERT_TRUE(SolveBatch(SomeOptions(), ext_options, &whole.batch, &summary));
  EXPECT_EQ(summary.num_windows, 30);
  // A few windows a piece, with room for the results and the machine.
  ext_options.cuda_memory_limit_bytes = int64_t{1} << 19;
  ASSERT_TRUE(SolveBatch(SomeOptions(), ext_options, &pieces.batch, &summary));
  EXPECT_EQ(summary.num_windows, 30);
#ifndef CERES_EXT_TEST_ON_CUDA
  EXPECT_EQ(whole.cameras, pieces.cameras);
#endif
}

// Windows of both kinds, and what is none, in one list.
TEST(SolveBatch, SolvesAListOfProblems) {
  ceres::HuberLoss huber(1.0);
  OwnLoss own;
  BalCameraManifold turn;
  std::vector<Case> cases;
  for (int i = 0; i < 10; ++i) {
    cases.push_back(MakeCase(5, 50, 4, i % 3 == 2 ? 10 : 9, 600 + i));
    Case& one = cases.back();
    one.camera_is_constant[0] = 1;
    one.point_is_constant[3] = 1;
    one.row_is_active[7] = 0;
    for (size_t k = 0; k < one.weights.size(); ++k) {
      // More different scales than there are numbers of chains.
      one.weights[k] = 0.5 + 1e-3 * static_cast<double>((17 * i + k) % 400);
    }
    one.manifold = one.problem.camera_size == 10 ? &turn : nullptr;
  }
  std::vector<Case> ours = cases;
  std::vector<std::unique_ptr<ceres::Problem>> owned;
  std::vector<ceres::Problem*> problems;
  for (size_t i = 0; i < ours.size(); ++i) {
    ceres::LossFunction* const loss =
        i == 4 ? static_cast<ceres::LossFunction*>(&own) : &huber;
    owned.push_back(MakeProblem(&ours[i], loss));
    problems.push_back(owned.back().get());
  }
  owned[6]->SetParameterLowerBound(ours[6].problem.camera(1), 6, 1.0);
  const ceres::Solver::Options options = SomeOptions();
  BatchSummary summary;
  std::vector<Summary> full;
  std::string error;
  ASSERT_TRUE(
      SolveBatch(options, OnMachine(), problems, &summary, &error, &full))
      << error;
  EXPECT_EQ(summary.num_windows, 9);
  ASSERT_EQ(full.size(), 10u);
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(i);
    const ProblemSummary& one = summary.problems[i];
    EXPECT_EQ(one.IsSolvedWhole(), i != 4) << one.path_reason;
    EXPECT_NE(one.IsSolvedWhole(), !one.path_reason.empty());
    EXPECT_GT(one.latency_in_seconds, 0.0);
    ceres::Solver::Summary ceres;
    ceres::LossFunction* const loss =
        i == 4 ? static_cast<ceres::LossFunction*>(&own) : &huber;
    EXPECT_EQ(full[i].is_constrained, i == 6);
    Case of_ceres = cases[i];
    const auto problem = MakeProblem(&of_ceres, loss);
    if (i == 6) {
      problem->SetParameterLowerBound(of_ceres.problem.camera(1), 6, 1.0);
    }
    ceres::Solve(options, problem.get(), &ceres);
    const std::vector<double> values = of_ceres.problem.Values();
    EXPECT_EQ(one.termination_type, ceres.termination_type);
    EXPECT_EQ(one.num_successful_steps, ceres.num_successful_steps);
    EXPECT_NEAR(one.final_cost, ceres.final_cost, 1e-6 * ceres.final_cost);
    for (size_t e = 0; e < ours[i].problem.cameras.size(); ++e) {
      EXPECT_NEAR(ours[i].problem.cameras[e],
                  values[e],
                  1e-3 * (1.0 + std::abs(values[e])));
    }
    // The full summary, except times and members that a window does not have.
    const Summary& all = full[i];
    EXPECT_EQ(all.termination_type, ceres.termination_type);
    EXPECT_EQ(all.final_cost, one.final_cost);
    EXPECT_EQ(all.num_parameter_blocks, ceres.num_parameter_blocks);
    EXPECT_EQ(all.num_parameters, ceres.num_parameters);
    EXPECT_EQ(all.num_residual_blocks, ceres.num_residual_blocks);
    EXPECT_EQ(all.num_residuals, ceres.num_residuals);
    EXPECT_EQ(all.num_parameter_blocks_reduced,
              ceres.num_parameter_blocks_reduced);
    EXPECT_EQ(all.num_parameters_reduced, ceres.num_parameters_reduced);
    EXPECT_EQ(all.num_effective_parameters_reduced,
              ceres.num_effective_parameters_reduced);
    EXPECT_EQ(all.num_residual_blocks_reduced,
              ceres.num_residual_blocks_reduced);
    EXPECT_EQ(all.num_residuals_reduced, ceres.num_residuals_reduced);
    if (one.IsSolvedWhole()) {
      EXPECT_EQ(all.path_reason, "solved as a window of a batch");
      EXPECT_EQ(all.method, "window, exact steps (double)");
    }
    EXPECT_FALSE(all.path_reason.empty());
    EXPECT_FALSE(all.FullReport().empty());
  }
  EXPECT_LE(summary.LatencyPercentile(50.0), summary.LatencyPercentile(99.0));
  EXPECT_EQ(summary.LatencyPercentile(100.0), [&] {
    double most = 0.0;
    for (const ProblemSummary& one : summary.problems) {
      most = std::max(most, one.latency_in_seconds);
    }
    return most;
  }());
}

TEST(SolveBatch, AListSaysWhyAProblemIsNoWindow) {
  Case one = MakeCase(5, 50, 4, 9, 600);
  const auto problem = MakeProblem(&one, nullptr);
  problem->AddResidualBlock(
      new ceres::NormalPrior(ceres::Matrix::Identity(3, 3),
                             ceres::Vector::Zero(3)),
      nullptr,
      one.problem.point(0));
  BatchSummary summary;
  std::string error;
  ASSERT_TRUE(SolveBatch(SomeOptions(),
                         OnMachine(),
                         std::vector<ceres::Problem*>{problem.get()},
                         &summary,
                         &error))
      << error;
  EXPECT_FALSE(summary.problems[0].IsSolvedWhole());
  EXPECT_EQ(summary.problems[0].path_reason,
            "windows have reprojection errors of BAL cameras with an array of "
            "constants, or of poses in one block, with priors on poses");
  EXPECT_EQ(summary.num_windows, 0);
}

void ExpectUnbegun(const ProblemSummary& problem) {
  EXPECT_EQ(problem.termination_type, ceres::USER_FAILURE);
  EXPECT_EQ(problem.message, "Stopped from another thread before it began.");
  EXPECT_FALSE(problem.IsSolvedWhole());
  EXPECT_EQ(problem.path_reason, "");
  EXPECT_EQ(problem.num_successful_steps, -1);
}

// Windows, and problems of other linear solvers, in arrays and in a list.
TEST(SolveBatch, StopsBeforeItBegins) {
  StopFlag stop;
  stop.Stop();
  for (const auto type : {ceres::DENSE_SCHUR, ceres::ITERATIVE_SCHUR}) {
    ceres::Solver::Options options = SomeOptions();
    options.linear_solver_type = type;
    std::vector<Case> cases = SomeCases(9);
    Batch batch(cases, nullptr);
    const Batch start(cases, nullptr);
    BatchSummary summary;
    std::vector<Summary> full;
    std::string error;
    ASSERT_TRUE(SolveBatch(
        options, OnMachine(), &batch.batch, &summary, &error, &full, &stop))
        << error;
    EXPECT_EQ(summary.num_windows, 0);
    EXPECT_EQ(batch.cameras, start.cameras);
    EXPECT_EQ(batch.points, start.points);
    ASSERT_EQ(full.size(), cases.size());
    for (size_t i = 0; i < cases.size(); ++i) {
      ExpectUnbegun(summary.problems[i]);
      EXPECT_EQ(full[i].termination_type, ceres::USER_FAILURE);
      EXPECT_EQ(full[i].message, summary.problems[i].message);
    }

    std::vector<std::unique_ptr<ceres::Problem>> owned;
    std::vector<ceres::Problem*> problems;
    for (Case& one : cases) {
      owned.push_back(MakeProblem(&one, nullptr));
      problems.push_back(owned.back().get());
    }
    ASSERT_TRUE(SolveBatch(
        options, OnMachine(), problems, &summary, &error, nullptr, &stop))
        << error;
    for (size_t i = 0; i < cases.size(); ++i) {
      ExpectUnbegun(summary.problems[i]);
      EXPECT_EQ(cases[i].problem.cameras, SomeCases(9)[i].problem.cameras);
    }
  }
  stop.Reset();
  Batch batch(SomeCases(9), nullptr);
  BatchSummary summary;
  ASSERT_TRUE(SolveBatch(SomeOptions(),
                         OnMachine(),
                         &batch.batch,
                         &summary,
                         nullptr,
                         nullptr,
                         &stop));
  for (const ProblemSummary& problem : summary.problems) {
    EXPECT_TRUE(problem.IsSolvedWhole());
    EXPECT_TRUE(problem.IsSolutionUsable());
    EXPECT_NE(problem.termination_type, ceres::USER_SUCCESS);
  }
}

// Each window has either ended by itself, or with the values of its last
// iteration, or it has its start.
TEST(SolveBatch, StopsWindowsInFlight) {
  std::vector<Case> cases(60, MakeCase(5, 60, 5, 9, 1));
  for (Case& one : cases) {
    one.camera_is_constant[0] = 1;
  }
  ceres::Solver::Options options = SomeOptions();
  options.max_num_iterations = 8;
  options.function_tolerance = 0.0;
  options.gradient_tolerance = 0.0;
  options.parameter_tolerance = 0.0;
  // Some windows a piece, with room for the results and the machine.
  Options ext_options = OnMachine();
  ext_options.cuda_memory_limit_bytes = int64_t{1} << 19;
  // The values after each number of iterations.
  std::vector<std::vector<double>> values_after;
  for (int i = 0; i <= options.max_num_iterations; ++i) {
    Batch one({cases[0]}, nullptr);
    ceres::Solver::Options few = options;
    few.max_num_iterations = i;
    BatchSummary summary;
    ASSERT_TRUE(SolveBatch(few, ext_options, &one.batch, &summary));
    ASSERT_TRUE(summary.problems[0].IsSolvedWhole());
    values_after.push_back(one.ValuesOf(0));
  }
  const Batch start(cases, nullptr);
  // An emulated device solves a piece before it can be stopped.
#ifdef CERES_EXT_EMULATED
  const bool may_stop_in_flight = false;
#else
  const bool may_stop_in_flight = true;
#endif
  // A batch that is not stopped takes this long, with memory of the ones above.
  std::chrono::microseconds duration(0);
  {
    Batch batch(cases, nullptr);
    BatchSummary summary;
    const auto begin = std::chrono::steady_clock::now();
    ASSERT_TRUE(SolveBatch(options, ext_options, &batch.batch, &summary));
    duration = std::chrono::duration_cast<std::chrono::microseconds>(
        std::chrono::steady_clock::now() - begin);
  }
  int num_stopped = 0;
  int num_unbegun = 0;
  for (int attempt = 0;
       attempt < 100 &&
       (num_unbegun == 0 || (may_stop_in_flight && num_stopped == 0));
       ++attempt) {
    Batch batch(cases, nullptr);
    StopFlag stop;
    std::thread stopper([&] {
      std::this_thread::sleep_for(duration * (attempt % 20) / 20);
      stop.Stop();
    });
    BatchSummary summary;
    ASSERT_TRUE(SolveBatch(
        options, ext_options, &batch.batch, &summary, nullptr, nullptr, &stop));
    stopper.join();
    for (int i = 0; i < 60; ++i) {
      SCOPED_TRACE(i);
      const ProblemSummary& problem = summary.problems[i];
      if (problem.termination_type == ceres::USER_FAILURE) {
        ExpectUnbegun(problem);
        EXPECT_EQ(batch.ValuesOf(i), start.ValuesOf(i));
        ++num_unbegun;
        continue;
      }
      ASSERT_TRUE(problem.IsSolvedWhole()) << problem.path_reason;
      // Ceres counts iteration zero as a successful step.
      const int num_iterations =
          problem.num_successful_steps + problem.num_unsuccessful_steps - 1;
      if (problem.termination_type == ceres::USER_SUCCESS) {
        EXPECT_EQ(problem.message, "Stopped from another thread.");
        ++num_stopped;
      }
      ASSERT_LT(num_iterations, values_after.size());
      EXPECT_EQ(batch.ValuesOf(i), values_after[num_iterations]);
    }
  }
  EXPECT_GT(num_unbegun, 0);
  if (may_stop_in_flight) {
    EXPECT_GT(num_stopped, 0);
  }
}

// A loss function sets the flag while ceres_ext::Solve solves the second
// problem.
TEST(SolveBatch, StopsOthersInFlight) {
  class StoppingLoss final : public ceres::LossFunction {
   public:
    void Evaluate(double s, double* rho) const override {
      if (++num_calls == last) {
        stop.Stop();
      }
      rho[0] = s;
      rho[1] = 1.0;
      rho[2] = 0.0;
    }
    mutable std::atomic<int> num_calls{0};
    int last = 0;
    mutable StopFlag stop;
  } loss;
  ceres::Solver::Options options = SomeOptions();
  const std::vector<Case> cases(3, MakeCase(3, 30, 3, 9, 1));
  const auto solve = [&](Batch* batch) {
    loss.num_calls = 0;
    BatchSummary summary;
    EXPECT_TRUE(SolveBatch(options,
                           OnMachine(),
                           &batch->batch,
                           &summary,
                           nullptr,
                           nullptr,
                           &loss.stop));
    return summary;
  };
  Batch whole(cases, &loss);
  const BatchSummary of_whole = solve(&whole);
  EXPECT_FALSE(of_whole.problems[0].IsSolvedWhole());
  // In the second iteration of the second problem.
  const auto num_rows = static_cast<int>(whole.row_begin[1]);
  loss.last = loss.num_calls / 3 + 4 * num_rows;
  Batch batch(cases, &loss);
  const BatchSummary summary = solve(&batch);
  EXPECT_EQ(batch.ValuesOf(0), whole.ValuesOf(0));
  EXPECT_EQ(summary.problems[0].message, of_whole.problems[0].message);
  const ProblemSummary& second = summary.problems[1];
  EXPECT_EQ(second.termination_type, ceres::USER_SUCCESS) << second.message;
  EXPECT_GT(second.num_successful_steps, 1);
  EXPECT_LT(second.num_successful_steps,
            of_whole.problems[1].num_successful_steps);
  EXPECT_LT(second.final_cost, second.initial_cost);
  ExpectUnbegun(summary.problems[2]);
  EXPECT_EQ(batch.ValuesOf(2), Batch(cases, nullptr).ValuesOf(2));
}

TEST(SolveBatch, RefusesProblemsThatShareWhatTheyChange) {
  Case a = MakeCase(3, 30, 3, 9, 1);
  Case b = MakeCase(3, 30, 3, 9, 2);
  const auto of_a = MakeProblem(&a, nullptr);
  const auto of_b = MakeProblem(&b, nullptr);
  // The second also sees a point of the first one's.
  of_b->AddResidualBlock(CreateBalReprojectionError(1.0, 2.0),
                         nullptr,
                         b.problem.camera(0),
                         a.problem.point(4));
  const std::vector<double> before = a.problem.cameras;
  BatchSummary summary;
  std::string error;
  const auto solve = [&](const std::vector<ceres::Problem*>& problems) {
    return SolveBatch(SomeOptions(), OnMachine(), problems, &summary, &error);
  };
  EXPECT_FALSE(solve({of_a.get(), of_b.get()}));
  EXPECT_NE(error.find("problems 0 and 1 share a parameter block"),
            std::string::npos)
      << error;
  of_a->SetParameterBlockConstant(a.problem.point(4));
  EXPECT_FALSE(solve({of_a.get(), of_b.get()}));
  EXPECT_FALSE(solve({of_a.get(), of_a.get()}));
  EXPECT_FALSE(solve({of_a.get(), nullptr}));
  EXPECT_EQ(error, "problem 1 is null");
  EXPECT_EQ(a.problem.cameras, before);
  of_b->SetParameterBlockConstant(a.problem.point(4));
  EXPECT_TRUE(solve({of_a.get(), of_b.get()})) << error;
  EXPECT_NE(a.problem.cameras, before);
  EXPECT_TRUE(solve({}));
  EXPECT_TRUE(summary.problems.empty());
}

}  // namespace
}  // namespace ceres_ext
