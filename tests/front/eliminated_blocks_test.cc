// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Which blocks are eliminated, against stock Ceres: blocks of 1 to 17 columns
// in the first group of an ordering, and a window of inertial odometry, whose
// speeds and biases Ceres's own ordering puts first.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "Eigen/Dense"
#include "ceres/autodiff_cost_function.h"
#include "ceres/ceres.h"
#include "ceres_ext/solve.h"
#include "gtest/gtest.h"
#include "tests/common/has_device.h"

namespace ceres_ext {
namespace {

using Eigen::VectorXd;

// r = sum of M_b x_b + curvature sin(x_b[0]) - c, M and c random.
class RandomCost final : public ceres::CostFunction {
 public:
  RandomCost(int num_residuals,
             const std::vector<int>& sizes,
             std::mt19937* random) {
    std::normal_distribution<double> normal;
    set_num_residuals(num_residuals);
    for (const int size : sizes) {
      mutable_parameter_block_sizes()->push_back(size);
      matrices_.push_back(Matrix::NullaryExpr(
          num_residuals, size, [&] { return normal(*random); }));
    }
    c_ = VectorXd::NullaryExpr(num_residuals, [&] { return normal(*random); });
  }
  bool Evaluate(double const* const* x,
                double* residuals,
                double** jacobians) const final {
    constexpr double kCurvature = 0.3;
    Eigen::Map<VectorXd> r(residuals, num_residuals());
    r = -c_;
    for (size_t b = 0; b < matrices_.size(); ++b) {
      const Matrix& m = matrices_[b];
      r += m * Eigen::Map<const VectorXd>(x[b], m.cols());
      r[0] += kCurvature * std::sin(x[b][0]);
      if (jacobians != nullptr && jacobians[b] != nullptr) {
        Eigen::Map<Matrix> j(jacobians[b], m.rows(), m.cols());
        j = m;
        j(0, 0) += kCurvature * std::cos(x[b][0]);
      }
    }
    return true;
  }

 private:
  using Matrix =
      Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  std::vector<Matrix> matrices_;
  VectorXd c_;
};

// Blocks of one size in the first group, of 3 and 6 in the second.
struct Mixed {
  Mixed(int size, int num_eliminated, unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal;
    constexpr int kOthers = 6;
    auto ordering = std::make_shared<ceres::ParameterBlockOrdering>();
    values.reserve(num_eliminated + kOthers);
    const auto add = [&](int of, int group) {
      values.emplace_back(of);
      for (double& value : values.back()) {
        value = normal(random);
      }
      problem.AddParameterBlock(values.back().data(), of);
      ordering->AddElementToGroup(values.back().data(), group);
    };
    for (int i = 0; i < num_eliminated; ++i) {
      add(size, 0);
    }
    for (int i = 0; i < kOthers; ++i) {
      add(i % 2 == 0 ? 3 : 6, 1);
    }
    for (int i = 0; i < num_eliminated; ++i) {
      // Together more residuals than columns.
      for (int k = 0; k < 3; ++k) {
        const auto a = static_cast<size_t>(num_eliminated + random() % kOthers);
        size_t b = num_eliminated + random() % kOthers;
        b = b == a ? num_eliminated + (a + 1 - num_eliminated) % kOthers : b;
        problem.AddResidualBlock(
            new RandomCost(size / 2 + 2,
                           {static_cast<int>(values[a].size()),
                            size,
                            static_cast<int>(values[b].size())},
                           &random),
            k == 0 ? new ceres::HuberLoss(1.0) : nullptr,
            values[a].data(),
            values[i].data(),
            values[b].data());
      }
    }
    for (int i = 0; i < kOthers; ++i) {
      const size_t a = num_eliminated + i;
      problem.AddResidualBlock(
          new RandomCost(3, {static_cast<int>(values[a].size())}, &random),
          nullptr,
          values[a].data());
    }
    options.linear_solver_ordering = ordering;
    options.linear_solver_type = ceres::DENSE_SCHUR;
    options.max_num_iterations = 300;
    options.function_tolerance = 1e-14;
    options.logging_type = ceres::SILENT;
  }
  std::vector<std::vector<double>> values;
  ceres::Problem problem;
  ceres::Solver::Options options;
};

TEST(EliminatedBlocks, OfEverySizeEndWhereStockEnds) {
  constexpr int kMost = 16;
  for (const int size : {1, 2, 3, 6, 7, 9, 15, 16, 17}) {
    for (const int num_eliminated : {1, 25}) {
      Mixed stock(size, num_eliminated, size);
      ceres::Solver::Summary expected;
      ceres::Solve(stock.options, &stock.problem, &expected);
      for (const DeviceType device : {DEVICE_HOST, DEVICE_CUDA}) {
        if (device == DEVICE_CUDA && !HasDevice()) {
          continue;
        }
        for (const auto type : {ceres::DENSE_SCHUR, ceres::ITERATIVE_SCHUR}) {
          SCOPED_TRACE(std::to_string(size) + " columns, " +
                       std::to_string(num_eliminated) + " blocks, device " +
                       std::to_string(device));
          Mixed ours(size, num_eliminated, size);
          ours.options.linear_solver_type = type;
          ours.options.preconditioner_type = ceres::SCHUR_JACOBI;
          ours.options.eta = 1e-8;
          Options ext_options;
          ext_options.device = device;
          ext_options.fallback = FALLBACK_REFUSE;
          Summary summary;
          Solve(ours.options, ext_options, &ours.problem, &summary);
          if (device == DEVICE_CUDA && summary.path != PATH_FULL) {
            // A factorisation needs libraries.
            EXPECT_EQ(type, ceres::DENSE_SCHUR) << summary.path_reason;
            continue;
          }
          ASSERT_EQ(summary.path, PATH_FULL) << summary.path_reason;
          // A cost near zero is rounding of residuals.
          EXPECT_NEAR(
              summary.final_cost,
              expected.final_cost,
              1e-9 * (expected.final_cost + 1e-6 * expected.initial_cost));
          const std::string note =
              std::to_string(num_eliminated) +
              " parameter blocks of the first group of linear_solver_ordering "
              "have more than 16 tangent dimensions and are not eliminated";
          EXPECT_EQ(summary.path_reason.find(note) != std::string::npos,
                    size > kMost)
              << summary.path_reason;
        }
      }
    }
  }
}

template <typename T>
using V3 = Eigen::Matrix<T, 3, 1>;

// Positions and velocities between two frames, and constant biases.
struct Inertial {
  double move[3];
  template <typename T>
  bool operator()(
      const T* a, const T* sa, const T* b, const T* sb, T* r) const {
    for (int i = 0; i < 3; ++i) {
      r[i] = T(100) *
             (b[i] - a[i] - T(0.2) * sa[i] - T(0.02) * sa[3 + i] - T(move[i]));
      r[3 + i] = T(50) * (sb[i] - sa[i] - T(0.2) * sa[3 + i]);
      r[6 + i] = T(200) * (sb[3 + i] - sa[3 + i]);
      r[9 + i] = T(300) * (sb[6 + i] - sa[6 + i]);
      r[12 + i] = T(80) * (b[3 + i] - a[3 + i] - T(0.2) * sa[6 + i]);
    }
    return true;
  }
};

// An inverse depth along a ray of one frame, seen by another.
struct Projection {
  double ray[2];
  double seen[2];
  template <typename T>
  bool operator()(const T* a, const T* b, const T* depth, T* r) const {
    const T z = T(1) / depth[0];
    const T x[3] = {z * ray[0] + a[0], z * ray[1] + a[1], z + a[2]};
    // Turned by a small angle.
    const T c[3] = {x[0] - b[0] + b[5] * x[1] - b[4] * x[2],
                    x[1] - b[1] - b[5] * x[0] + b[3] * x[2],
                    x[2] - b[2] + b[4] * x[0] - b[3] * x[1]};
    r[0] = T(300) * (c[0] / c[2] - T(seen[0]));
    r[1] = T(300) * (c[1] / c[2] - T(seen[1]));
    return true;
  }
};

template <int N>
struct At {
  double weight;
  template <typename T>
  bool operator()(const T* x, T* r) const {
    for (int i = 0; i < N; ++i) {
      r[i] = T(weight) * x[i];
    }
    return true;
  }
};

struct Window {
  explicit Window(unsigned seed) {
    constexpr int kFrames = 11;
    constexpr int kFeatures = 60;
    std::mt19937 random(seed);
    std::normal_distribution<double> normal;
    std::uniform_real_distribution<double> uniform;
    pose.assign(kFrames, std::vector<double>(6));
    speed.assign(kFrames, std::vector<double>(9));
    depth.assign(kFeatures, 0.0);
    std::vector<double> place(kFrames);
    for (int i = 0; i < kFrames; ++i) {
      place[i] = 0.3 * i + 0.1 * std::sin(i);
      for (double& value : pose[i]) {
        value = 0.01 * normal(random);
      }
      pose[i][0] += place[i];
      for (double& value : speed[i]) {
        value = 0.02 * normal(random);
      }
    }
    for (int i = 0; i + 1 < kFrames; ++i) {
      problem.AddResidualBlock(
          new ceres::AutoDiffCostFunction<Inertial, 15, 6, 9, 6, 9>(
              new Inertial{{place[i + 1] - place[i], 0.0, 0.0}}),
          nullptr,
          pose[i].data(),
          speed[i].data(),
          pose[i + 1].data(),
          speed[i + 1].data());
    }
    problem.AddResidualBlock(
        new ceres::AutoDiffCostFunction<At<6>, 6, 6>(new At<6>{100.0}),
        nullptr,
        pose[0].data());
    problem.AddResidualBlock(
        new ceres::AutoDiffCostFunction<At<9>, 9, 9>(new At<9>{10.0}),
        nullptr,
        speed[0].data());
    for (int f = 0; f < kFeatures; ++f) {
      const int a = static_cast<int>(uniform(random) * (kFrames - 2));
      const double z = 4.0 + 8.0 * uniform(random);
      Projection projection;
      projection.ray[0] = uniform(random) - 0.5;
      projection.ray[1] = uniform(random) - 0.5;
      depth[f] = 1.0 / z * (1.0 + 0.05 * normal(random));
      for (int j = a + 1; j < std::min(kFrames, a + 6); ++j) {
        projection.seen[0] = (z * projection.ray[0] + place[a] - place[j]) / z +
                             0.002 * normal(random);
        projection.seen[1] = projection.ray[1] + 0.002 * normal(random);
        problem.AddResidualBlock(
            new ceres::AutoDiffCostFunction<Projection, 2, 6, 6, 1>(
                new Projection(projection)),
            new ceres::HuberLoss(1.0),
            pose[a].data(),
            pose[j].data(),
            &depth[f]);
      }
    }
    options.linear_solver_type = ceres::DENSE_SCHUR;
    options.max_num_iterations = 10;
    options.logging_type = ceres::SILENT;
  }
  std::vector<double> All() const {
    std::vector<double> all = depth;
    for (const auto* blocks : {&pose, &speed}) {
      for (const auto& block : *blocks) {
        all.insert(all.end(), block.begin(), block.end());
      }
    }
    return all;
  }
  std::vector<std::vector<double>> pose;
  std::vector<std::vector<double>> speed;
  std::vector<double> depth;
  ceres::Problem problem;
  ceres::Solver::Options options;
};

// As DENSE_SCHUR and SPARSE_SCHUR are given, by auto, and with all speeds and
// depths in the first group but those of two neighbours.
TEST(EliminatedBlocks, AnInertialWindowTakesTheStepsOfStock) {
  for (unsigned seed = 1; seed <= 8; ++seed) {
    SCOPED_TRACE(seed);
    Window stock(seed);
    ceres::Solver::Summary expected;
    ceres::Solve(stock.options, &stock.problem, &expected);
    std::vector<double> first;
    for (const int num_threads : {1, 3}) {
      for (const auto type : {ceres::DENSE_SCHUR, ceres::SPARSE_SCHUR}) {
        for (const auto choice : {LINEAR_SOLVER_AS_GIVEN, LINEAR_SOLVER_AUTO}) {
          Window ours(seed);
          ours.options.num_threads = num_threads;
          ours.options.linear_solver_type = type;
          Options ext_options;
          ext_options.device = DEVICE_HOST;
          ext_options.linear_solver = choice;
          ext_options.fallback = FALLBACK_REFUSE;
          Summary summary;
          Solve(ours.options, ext_options, &ours.problem, &summary);
          ASSERT_EQ(summary.path, PATH_FULL) << summary.path_reason;
          EXPECT_GT(summary.num_exact_steps, 0);
          ASSERT_EQ(summary.iterations.size(), expected.iterations.size());
          for (size_t i = 0; i < expected.iterations.size(); ++i) {
            EXPECT_EQ(summary.iterations[i].step_is_successful,
                      expected.iterations[i].step_is_successful);
            EXPECT_NEAR(summary.iterations[i].cost,
                        expected.iterations[i].cost,
                        1e-9 * expected.iterations[0].cost);
          }
          if (first.empty()) {
            first = ours.All();
          }
          EXPECT_TRUE(ours.All() == first)
              << "other bits with " << num_threads << " threads";
        }
      }
    }
  }
}

}  // namespace
}  // namespace ceres_ext
