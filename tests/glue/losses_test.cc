// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The losses of a batch against Ceres's own objects: the cost, and what the
// corrected residuals and blocks stand for,
//   J~'r~ = rho' J'r,   J~'J~ = rho' J'J + 2 max(rho'', 0) J'r r'J.

#include "ceres_ext/glue/losses.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "Eigen/Core"
#include "ceres/loss_function.h"
#include "ceres/problem_impl.h"
#include "ceres_ext/bal_cost_functions.h"
#include "gtest/gtest.h"
#include "tests/glue/bal_test_problem.h"
#include "tests/glue/on_machine.h"

namespace ceres_ext {
namespace {

constexpr double kEpsilon = std::numeric_limits<double>::epsilon();

// rho = s (1 + s / 1000): rho'' > 0 everywhere.
class UsersOwnLoss final : public ceres::LossFunction {
 public:
  void Evaluate(double s, double rho[3]) const final {
    rho[0] = s + 1e-3 * s * s;
    rho[1] = 1.0 + 2e-3 * s;
    rho[2] = 2e-3;
  }
};

class Losses : public OnMachine {
 protected:
  using Shape = kernels::BalShape<9>;
  static constexpr kernels::BlockLayout kLayout = TestMachine::kLayout;

  void MakeProblem(const std::vector<const ceres::LossFunction*>& kinds) {
    bal_ = MakeBalTestProblem(6, 50, 3, 9);
    for (size_t k = 0; k < bal_.camera_id.size(); ++k) {
      problem_.AddResidualBlock(
          CreateBalReprojectionError(bal_.observations[2 * k],
                                     bal_.observations[2 * k + 1]),
          const_cast<ceres::LossFunction*>(kinds[k % kinds.size()]),
          bal_.camera(bal_.camera_id[k]),
          bal_.point(bal_.point_id[k]));
    }
    Import(&problem_);
  }

  static ceres::Problem::Options KeepLosses() {
    ceres::Problem::Options options;
    options.loss_function_ownership = ceres::DO_NOT_TAKE_OWNERSHIP;
    return options;
  }

  BalTestProblem bal_;
  ceres::internal::ProblemImpl problem_{KeepLosses()};
};

std::vector<std::unique_ptr<const ceres::LossFunction>> CeresLosses() {
  using namespace ceres;  // NOLINT: all of its losses.
  std::vector<std::unique_ptr<const LossFunction>> losses;
  const auto add = [&](LossFunction* loss) { losses.emplace_back(loss); };
  add(new TrivialLoss());
  add(new HuberLoss(1.3));
  add(new SoftLOneLoss(0.7));
  add(new CauchyLoss(2.0));
  add(new ArctanLoss(1.1));
  add(new TolerantLoss(1.5, 0.4));
  add(new TukeyLoss(2.5));
  add(new ScaledLoss(new CauchyLoss(0.5), 3.0, TAKE_OWNERSHIP));
  add(new ScaledLoss(nullptr, 0.25, TAKE_OWNERSHIP));
  add(new ComposedLoss(new HuberLoss(0.8),
                       TAKE_OWNERSHIP,
                       new TolerantLoss(0.5, 0.3),
                       TAKE_OWNERSHIP));
  return losses;
}

class AllLosses : public Losses {
 protected:
  void Check(const std::vector<const ceres::LossFunction*>& kinds) {
    MakeProblem(kinds);
    const ObservationBlocks<TestMachine>& observations =
        blocks_.observations(0);
    const int64_t n = observations.index().num_observations;
    LossModel<TestMachine> model;
    const kernels::Status status =
        model.Setup(structure_.observations[0].loss, &observations);
    ASSERT_TRUE(status.ok()) << status.message;
    ASSERT_FALSE(model.empty());
    const std::vector<int32_t> input_id =
        Download(n, observations.index().input_id());

    // Residuals of all magnitudes, some zero.
    std::mt19937 generator(5);
    std::uniform_real_distribution<double> uniform(-1.0, 1.0);
    std::vector<double> residuals(2 * n);
    std::vector<double> camera_blocks(Shape::kFSize * n);
    std::vector<double> point_blocks(Shape::kESize * n);
    for (int64_t k = 0; k < n; ++k) {
      const double scale =
          k % 11 == 0 ? 0.0 : std::pow(10.0, 3 * uniform(generator));
      residuals[2 * k] = scale * uniform(generator);
      residuals[2 * k + 1] = scale * uniform(generator);
    }
    for (auto* blocks : {&camera_blocks, &point_blocks}) {
      for (double& value : *blocks) {
        value = uniform(generator);
      }
    }
    Buffer<double> r = Upload(residuals);
    Buffer<double> jc = Upload(camera_blocks);
    Buffer<double> jp = Upload(point_blocks);
    Buffer<kernels::Evaluation> evaluation =
        Upload(std::vector<kernels::Evaluation>(1));
    kernels::LossCorrection<double, Shape, kLayout> correction;
    correction.camera_blocks = {jc.data(), n};
    correction.point_blocks = {jp.data(), n};
    ASSERT_TRUE((model.template Correct<double, kernels::BalShape<9>>(
                     correction, true, r.data(), evaluation.data()))
                    .ok());
    std::vector<double> corrected = Download(2 * n, r.data());
    std::vector<double> corrected_jc = Download(Shape::kFSize * n, jc.data());
    std::vector<double> corrected_jp = Download(Shape::kESize * n, jp.data());

    double cost = 0.0;
    for (int64_t k = 0; k < n; ++k) {
      SCOPED_TRACE("observation " + std::to_string(k));
      const Eigen::Vector2d r0(residuals[2 * k], residuals[2 * k + 1]);
      const Eigen::Vector2d r1(corrected[2 * k], corrected[2 * k + 1]);
      const double s = r0.squaredNorm();
      double rho[3] = {s, 1.0, 0.0};
      const ceres::LossFunction* loss = kinds[input_id[k] % kinds.size()];
      if (loss != nullptr) {
        loss->Evaluate(s, rho);
      }
      cost += 0.5 * rho[0];
      const double second = std::fmax(rho[2], 0.0);
      const auto check = [&](auto columns, auto* before, auto* after) {
        constexpr int kN = decltype(columns)::value;
        Eigen::Matrix<double, 2, kN> j0;
        Eigen::Matrix<double, 2, kN> j1;
        const kernels::BlockView<double, 2 * kN, kLayout> from{before->data(),
                                                               n};
        const kernels::BlockView<double, 2 * kN, kLayout> to{after->data(), n};
        for (int i = 0; i < 2; ++i) {
          for (int j = 0; j < kN; ++j) {
            j0(i, j) = from(k, kN * i + j);
            j1(i, j) = to(k, kN * i + j);
          }
        }
        // Blocks are below 1. Some dozen operations on values of these
        // magnitudes; rho itself, and with it the square root of 1 + 2 s rho''
        // / rho', carries the difference between Ceres's formula and ours,
        // a few roundings of numbers of order one (model/robust_loss.h).
        const double gradient = rho[1] * r0.norm();
        const double square = rho[1] + 2.0 * second * s;
        EXPECT_LE((j1.transpose() * r1 - rho[1] * (j0.transpose() * r0))
                      .cwiseAbs()
                      .maxCoeff(),
                  200 * kEpsilon * gradient);
        EXPECT_LE((j1.transpose() * j1 - rho[1] * j0.transpose() * j0 -
                   2.0 * second * (j0.transpose() * r0) * (r0.transpose() * j0))
                      .cwiseAbs()
                      .maxCoeff(),
                  200 * kEpsilon * square);
      };
      check(std::integral_constant<int, 9>(), &camera_blocks, &corrected_jc);
      check(std::integral_constant<int, 3>(), &point_blocks, &corrected_jp);
    }
    EXPECT_NEAR(Download(1, evaluation.data())[0].cost,
                cost,
                (n + 20) * kEpsilon * cost);
  }
};

TEST_F(AllLosses, OfCeresAndNone) {
  const auto losses = CeresLosses();
  std::vector<const ceres::LossFunction*> kinds = {nullptr};
  for (const auto& loss : losses) {
    kinds.push_back(loss.get());
  }
  Check(kinds);
}

TEST_F(Losses, NoneIsEmpty) {
  MakeProblem({nullptr});
  LossModel<TestMachine> model;
  ASSERT_TRUE(
      model.Setup(structure_.observations[0].loss, &blocks_.observations(0))
          .ok());
  EXPECT_TRUE(model.empty());
}

#ifdef CERES_EXT_TEST_ON_CUDA
TEST_F(Losses, ADeviceRefusesAUsersOwnAndNamesIt) {
  const ceres::HuberLoss huber(1.0);
  const UsersOwnLoss own;
  MakeProblem({&huber, &own});
  LossModel<TestMachine> model;
  const kernels::Status status =
      model.Setup(structure_.observations[0].loss, &blocks_.observations(0));
  EXPECT_EQ(status.code, kernels::StatusCode::kUnsupported);
  EXPECT_EQ(
      status.message,
      "residual block 1 has a loss function that the device doesn't know");
}

TEST_F(Losses, ADeviceRefusesTooMany) {
  std::vector<std::unique_ptr<ceres::LossFunction>> losses;
  std::vector<const ceres::LossFunction*> kinds;
  for (int i = 0; i < 150; ++i) {
    losses.push_back(std::make_unique<ceres::ScaledLoss>(
        new ceres::HuberLoss(1.0 + i), 2.0 + i, ceres::TAKE_OWNERSHIP));
    kinds.push_back(losses.back().get());
  }
  MakeProblem(kinds);
  LossModel<TestMachine> model;
  const kernels::Status status =
      model.Setup(structure_.observations[0].loss, &blocks_.observations(0));
  EXPECT_EQ(status.code, kernels::StatusCode::kUnsupported);
  EXPECT_EQ(status.message,
            "there are too many different loss functions for the device");
}
#else
TEST_F(AllLosses, OfAUserBesideThoseOfCeres) {
  const ceres::HuberLoss huber(1.0);
  const UsersOwnLoss own;
  Check({&own, &huber, nullptr});
}
#endif

}  // namespace
}  // namespace ceres_ext
