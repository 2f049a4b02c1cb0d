// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Problems that ranks solve together, each a part of the points and their rows.

#ifndef CERES_EXT_TESTS_FRONT_RANK_PROBLEM_H_
#define CERES_EXT_TESTS_FRONT_RANK_PROBLEM_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <type_traits>
#include <vector>

#include "ceres/ceres.h"
#include "ceres/manifold.h"
#include "ceres_ext/array_problem.h"
#include "ceres_ext/bal_cost_functions.h"
#include "ceres_ext/solve.h"
#include "gtest/gtest.h"
#include "tests/common/bal_test_problem.h"
#include "tests/common/functors.h"

namespace ceres_ext {

inline constexpr double kEta = 1e-13;

// The rows of a problem.
enum class Rows { kBal, kSplit };

// Values of a problem, of which a rank has some points and their observations.
struct Values {
  std::vector<double> cameras;     // 9 values, or 6 without intrinsics
  std::vector<double> intrinsics;  // of every fourth camera; empty for BAL
  std::vector<double> points;
};

struct Case {
  Rows rows = Rows::kBal;
  bool has_loss = false;
  bool has_weights = false;
  bool has_constants = false;  // a camera and a point
  bool has_manifold = false;   // of the cameras
  bool has_priors = false;     // of poses, on the last rank
  bool is_shuffled = false;    // rows
  ceres::PreconditionerType preconditioner = ceres::SCHUR_JACOBI;
};

// The problem of a rank, and its arrays.
struct Part {
  Values values;
  std::vector<double> observations;
  std::vector<double> weights;
  std::vector<int32_t> camera;
  std::vector<int32_t> intrinsics;
  std::vector<int32_t> point;
  std::vector<uint8_t> camera_is_constant;
  std::vector<uint8_t> point_is_constant;
  std::vector<double> priors;
  std::unique_ptr<ceres::LossFunction> loss;
  std::unique_ptr<ceres::Manifold> manifold;
  ArrayProblem problem;
  Summary summary;
};

class RankProblem {
 public:
  RankProblem() : RankProblem(12, 160) {}
  RankProblem(int num_cameras, int num_points)
      : bal_(MakeBalTestProblem(num_cameras, num_points, 4, 9)) {}

  Values Start(const Case& c) const {
    Values start;
    start.points = bal_.points;
    if (c.rows == Rows::kBal) {
      start.cameras = bal_.cameras;
      return start;
    }
    for (int i = 0; i < bal_.num_cameras(); ++i) {
      const double* const camera = bal_.cameras.data() + 9 * i;
      start.cameras.insert(start.cameras.end(), camera, camera + 6);
      if (i % 4 == 0) {
        start.intrinsics.insert(start.intrinsics.end(), camera + 6, camera + 9);
      }
    }
    return start;
  }

  static ceres::Solver::Options SomeOptions(const Case& c) {
    ceres::Solver::Options options;
    options.linear_solver_type = ceres::ITERATIVE_SCHUR;
    options.preconditioner_type = c.preconditioner;
    options.max_num_iterations = 8;
    options.eta = kEta;
    options.max_linear_solver_iterations = 1000;
    options.logging_type = ceres::SILENT;
    return options;
  }
  static Options OnHost() {
    Options options;
    options.device = DEVICE_HOST;
    // As ranks have it.
    options.preconditioner_blocks = PRECONDITIONER_BLOCKS_SINGLE;
    return options;
  }

  // The first point of a rank.
  int PointBegin(int rank, int size) const {
    return bal_.num_points() * rank / size;
  }

  void Make(const Case& c, int rank, int size, Part* part) const {
    const int first = PointBegin(rank, size);
    const int last = PointBegin(rank + 1, size);
    part->values = Start(c);
    std::vector<double>& points = part->values.points;
    points = {points.begin() + 3 * first, points.begin() + 3 * last};
    std::vector<size_t> order(bal_.point_id.size());
    std::iota(order.begin(), order.end(), size_t{0});
    if (c.is_shuffled) {
      std::shuffle(order.begin(), order.end(), std::mt19937(17));
    }
    for (const size_t k : order) {
      if (bal_.point_id[k] >= first && bal_.point_id[k] < last) {
        part->observations.insert(part->observations.end(),
                                  bal_.observations.begin() + 2 * k,
                                  bal_.observations.begin() + 2 * k + 2);
        part->weights.push_back(0.5 + 0.01 * static_cast<double>(k % 100));
        part->camera.push_back(bal_.camera_id[k]);
        part->intrinsics.push_back(bal_.camera_id[k] / 4);
        part->point.push_back(bal_.point_id[k] - first);
      }
    }
    if (c.has_loss) {
      part->loss = std::make_unique<ceres::HuberLoss>(0.5);
    }
    const int size_of_camera = c.rows == Rows::kBal ? 9 : 6;
    if (c.has_manifold) {
      part->manifold = std::make_unique<ceres::SubsetManifold>(
          size_of_camera, std::vector<int>{2});
    }
    part->camera_is_constant.assign(bal_.num_cameras(), 0);
    part->point_is_constant.assign(last - first, 0);
    if (c.has_constants) {
      part->camera_is_constant[3] = 1;
      if (first <= 17 && 17 < last) {
        part->point_is_constant[17 - first] = 1;
      }
    }
    ArrayProblem::Parameters cameras = {
        part->values.cameras.data(), bal_.num_cameras(), size_of_camera};
    cameras.manifold = part->manifold.get();
    cameras.is_constant =
        c.has_constants ? part->camera_is_constant.data() : nullptr;
    const int camera = part->problem.AddParameters(cameras);
    int intrinsics = -1;
    if (c.rows == Rows::kSplit) {
      intrinsics = part->problem.AddParameters(
          {part->values.intrinsics.data(),
           static_cast<int64_t>(part->values.intrinsics.size()) / 3,
           3});
    }
    ArrayProblem::Parameters of_points = {points.data(), last - first, 3};
    of_points.is_constant =
        c.has_constants ? part->point_is_constant.data() : nullptr;
    of_points.is_own = true;
    const int point = part->problem.AddParameters(of_points);
    const auto n = static_cast<int64_t>(part->camera.size());
    const double* const weights =
        c.has_weights ? part->weights.data() : nullptr;
    if (c.rows == Rows::kBal) {
      part->problem.AddResiduals<BalReprojectionError>(
          n,
          part->observations.data(),
          {{camera, part->camera.data()}, {point, part->point.data()}},
          part->loss.get(),
          weights);
    } else {
      part->problem.AddResiduals<
          DeviceAutoDiffCostFunction<SplitReprojection, 2, 6, 3, 3>>(
          n,
          reinterpret_cast<const SplitReprojection*>(part->observations.data()),
          {{camera, part->camera.data()},
           {intrinsics, part->intrinsics.data()},
           {point, part->point.data()}},
          part->loss.get(),
          weights);
    }
    if (c.has_priors && rank == size - 1) {
      for (int i = 0; i < bal_.num_cameras(); ++i) {
        part->priors.push_back(3.0);
        part->priors.insert(
            part->priors.end(),
            part->values.cameras.begin() + size_of_camera * i,
            part->values.cameras.begin() + size_of_camera * (i + 1));
        part->priors.back() += 0.01;
      }
      AddPriors(size_of_camera, camera, part);
    }
  }
  static void AddPriors(int size, int camera, Part* part) {
    const auto add = [&](auto n) {
      using Cost = DeviceAutoDiffCostFunction<Prior<n>, n, n>;
      part->problem.AddResiduals<Cost>(
          static_cast<int64_t>(part->priors.size()) / (n + 1),
          reinterpret_cast<const Prior<n>*>(part->priors.data()),
          {{camera, nullptr}});
    };
    if (size == 9) {
      add(std::integral_constant<int, 9>());
    } else {
      add(std::integral_constant<int, 6>());
    }
  }

 protected:
  const BalTestProblem bal_;
};

inline std::vector<Case> AllCases() {
  std::vector<Case> cases(1);
  for (const Rows rows : {Rows::kBal, Rows::kSplit}) {
    for (const auto preconditioner : {ceres::IDENTITY,
                                      ceres::JACOBI,
                                      ceres::SCHUR_JACOBI,
                                      ceres::SCHUR_POWER_SERIES_EXPANSION}) {
      Case c;
      c.rows = rows;
      c.preconditioner = preconditioner;
      cases.push_back(c);
      c.has_loss = c.has_weights = c.has_constants = c.has_manifold = true;
      cases.push_back(c);
      c.has_priors = true;
      cases.push_back(c);
    }
  }
  return cases;
}

// Sums over ranks are rounded in another order than sums over all rows: by
// 1,280 epsilon / 2 at the start. PCG ends with a part of eta of the model's
// gain left, wherever rounding leads it, so a step is that of the minimum up to
// sqrt(eta) of its length in the norm of the model, and so are the gain and the
// gradient behind it.
inline void ExpectAsAlone(const Summary& summary, const Summary& alone) {
  ASSERT_EQ(summary.iterations.size(), alone.iterations.size());
  const ceres::IterationSummary& start = alone.iterations[0];
  for (size_t i = 0; i < summary.iterations.size(); ++i) {
    const ceres::IterationSummary& one = summary.iterations[i];
    const ceres::IterationSummary& other = alone.iterations[i];
    const double tolerance = i == 0 ? 3e-13 : std::sqrt(kEta);
    EXPECT_NEAR(one.cost, other.cost, tolerance * start.cost);
    EXPECT_NEAR(one.gradient_norm,
                other.gradient_norm,
                tolerance * start.gradient_norm);
    EXPECT_NEAR(one.gradient_max_norm,
                other.gradient_max_norm,
                tolerance * start.gradient_norm);
    EXPECT_EQ(one.step_is_successful, other.step_is_successful);
  }
}

}  // namespace ceres_ext

#endif  // CERES_EXT_TESTS_FRONT_RANK_PROBLEM_H_
