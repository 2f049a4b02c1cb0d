// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The losses of a batch against Ceres's own objects: the cost, and the effect
// of the corrected residuals and blocks,
//   J~'r~ = rho' J'r,   J~'J~ = rho' J'J + 2 max(rho'', 0) J'r r'J;
// and whole solves with user-defined losses against stock Ceres.

#include "ceres_ext/blocks/loss_model.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "Eigen/Core"
#include "ceres/loss_function.h"
#include "ceres/problem_impl.h"
#include "ceres_ext/bal_cost_functions.h"
#include "ceres_ext/solve.h"
#include "cuda_kernels/ops/robust_losses.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/bal_test_problem.h"
#include "tests/common/on_machine.h"
#include "tests/common/own_loss.h"

namespace ceres_ext {
namespace {

// rho = s (1 + s / 1000): rho'' > 0 everywhere.
class UsersOwnLoss final : public ceres::LossFunction {
 public:
  void Evaluate(double s, double rho[3]) const final {
    rho[0] = s + 1e-3 * s * s;
    rho[1] = 1.0 + 2e-3 * s;
    rho[2] = 2e-3;
  }
};

// One that has one of Ceres inside.
class TwiceHuber final : public ceres::LossFunction {
 public:
  void Evaluate(double s, double rho[3]) const final {
    huber_.Evaluate(s, rho);
    for (int i = 0; i < 3; ++i) {
      rho[i] *= 2.0;
    }
  }

 private:
  const ceres::HuberLoss huber_{1.0};
};

// s, except for faults that a test requests.
class Fragile final : public ceres::LossFunction {
 public:
  enum Fault { kNone, kThrow, kThrowANumber, kNaNCost, kNaNSlope, kNaNSecond };
  void Evaluate(double s, double rho[3]) const final {
    rho[0] = s;
    rho[1] = 1.0;
    rho[2] = 0.0;
    if (std::isnan(s)) {
      saw_nan = true;
    }
    if (s < from) {
      return;
    }
    switch (fault) {
      case kNone:
        return;
      case kThrow:
        throw std::runtime_error("no rho at " + std::to_string(s));
      case kThrowANumber:
        throw 7;
      case kNaNCost:
      case kNaNSlope:
      case kNaNSecond:
        rho[fault - kNaNCost] = std::numeric_limits<double>::quiet_NaN();
    }
  }
  std::atomic<Fault> fault{kNone};
  double from = 0.0;  // the least s of a fault
  mutable std::atomic<bool> saw_nan{false};
};

class Losses : public OnMachine {
 protected:
  using Shape = kernels::BalShape<9>;
  static constexpr kernels::BlockLayout kLayout = TestMachine::kLayout;

  void MakeProblem(const std::vector<const ceres::LossFunction*>& kinds) {
    bal_ = MakeBalTestProblem(6, 250, 3, 9);
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
  void Check(const std::vector<const ceres::LossFunction*>& kinds,
             bool calls_user) {
    MakeProblem(kinds);
    const ObservationBlocks<TestMachine>& observations =
        blocks_.observations(0);
    const int64_t n = observations.index().num_observations;
    LossModel<TestMachine> model;
    const kernels::Status status = model.Setup(
        structure_.observations[0].loss, &host_context_, observations);
    ASSERT_TRUE(status.ok()) << status.message;
    ASSERT_FALSE(model.empty());
    EXPECT_EQ(model.calls_user(), calls_user);
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
    if (calls_user) {
      Buffer<double> squared_norms = Upload(std::vector<double>(n));
      ASSERT_TRUE(
          kernels::Run(
              kernels::SquaredNormsParams{n, 2, r.data(), squared_norms.data()},
              machine_.get())
              .ok());
      ASSERT_TRUE(
          model.UpdateRho(squared_norms.data(), /*corrects=*/true).ok());
    }
    kernels::CorrectForLossParams<double, Shape, kLayout> params;
    params.n = n;
    params.loss = model.ref();
    params.residuals = r.data();
    params.corrected_residuals = r.data();
    params.correction = {{jc.data(), n}, {jp.data(), n}};
    params.evaluation = evaluation.data();
    ASSERT_TRUE(kernels::Run(params, machine_.get()).ok());
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
        const kernels::BlockRef<double, 2 * kN, kLayout> from{before->data(),
                                                              n};
        const kernels::BlockRef<double, 2 * kN, kLayout> to{after->data(), n};
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
  Check(kinds, /*calls_user=*/false);
}

TEST_F(AllLosses, OfAUserBesideThoseOfCeres) {
  const ceres::HuberLoss huber(1.0);
  const UsersOwnLoss own;
  const OwnLoss another;
  const TwiceHuber twice;
  Check({&huber, &own, nullptr, &twice, &another}, /*calls_user=*/true);
}

// More than loss_id can number.
TEST_F(AllLosses, TooManyOfCeres) {
  std::vector<std::unique_ptr<ceres::LossFunction>> losses;
  std::vector<const ceres::LossFunction*> kinds;
  for (int i = 0; i < 256; ++i) {
    losses.push_back(std::make_unique<ceres::HuberLoss>(1.0 + i));
    kinds.push_back(losses.back().get());
  }
  Check(kinds, /*calls_user=*/true);
}

// Scales of which there are too many to number are weights, with the same bits
// as stages of a chain: only those that come first are stages.
TEST_F(AllLosses, AnyNumberOfScales) {
  const ceres::HuberLoss huber(1.0);
  const ceres::CauchyLoss cauchy(2.0);
  const ceres::LossFunction* const inner[] = {&huber, nullptr, &cauchy};
  std::vector<std::unique_ptr<ceres::LossFunction>> losses;
  std::vector<const ceres::LossFunction*> kinds;
  for (int i = 0; i < 600; ++i) {
    losses.push_back(
        std::make_unique<ceres::ScaledLoss>(inner[i % 3],
                                            i == 7 ? 0.0 : 0.3 + 0.01 * i,
                                            ceres::DO_NOT_TAKE_OWNERSHIP));
    kinds.push_back(losses.back().get());
  }
  kinds.push_back(&huber);
  kinds.push_back(nullptr);
  Check(kinds, /*calls_user=*/false);

  std::vector<kernels::RobustLoss> chains[2];
  std::vector<uint8_t> ids[2];
  std::vector<double> weights[2];
  const std::vector<const ceres::LossFunction*> few(kinds.begin(),
                                                    kinds.begin() + 100);
  ASSERT_EQ(FindChains(few, &chains[0], &ids[0], &weights[0]), nullptr);
  ASSERT_EQ(FindChains(kinds, &chains[1], &ids[1], &weights[1]), nullptr);
  EXPECT_TRUE(weights[0].empty());
  ASSERT_EQ(weights[1].size(), kinds.size());
  for (size_t i = 0; i < few.size(); ++i) {
    for (const double s : {0.0, 1e-9, 0.5, 1.0, 37.0, 1e12}) {
      double rho[2][3];
      for (int j = 0; j < 2; ++j) {
        const kernels::LossRef view = {chains[j].data(),
                                       ids[j].data(),
                                       nullptr,
                                       j == 0 ? nullptr : weights[j].data()};
        view.Evaluate(static_cast<int64_t>(i), s, rho[j]);
      }
      for (int k = 0; k < 3; ++k) {
        EXPECT_EQ(rho[0][k], rho[1][k]) << i << " " << s;
      }
    }
  }
}

// Threads look for the end of the rows that have the loss of the first, each of
// them its own object, as programs make them.
TEST_F(AllLosses, ThreadsFindTheSameChains) {
  constexpr size_t kMany = 30000;
  std::vector<std::unique_ptr<ceres::LossFunction>> same;
  for (size_t i = 0; i < kMany; ++i) {
    same.push_back(std::make_unique<ceres::HuberLoss>(0.5));
  }
  const ceres::CauchyLoss cauchy(2.0);
  const ceres::HuberLoss huber(0.25);
  const std::vector<const ceres::LossFunction*> others = {
      nullptr, &cauchy, &huber};
  for (const size_t n : {size_t{0}, size_t{1}, size_t{2}, kMany}) {
    for (const size_t first : {size_t{0}, size_t{1}, n / 2, n - 1, n}) {
      for (const ceres::LossFunction* const other : others) {
        std::vector<const ceres::LossFunction*> rows;
        for (size_t i = 0; i < n; ++i) {
          rows.push_back(i % 7 == 3 && i > 0 ? rows.back() : same[i].get());
        }
        // Later ones than the first are others too.
        for (size_t i = first; i < n; i += 5000) {
          rows[i] = other;
        }
        std::vector<kernels::RobustLoss> chains[2];
        std::vector<uint8_t> ids[2];
        std::vector<double> weights[2];
        ASSERT_EQ(FindChains(rows, &chains[0], &ids[0], &weights[0]), nullptr);
        ASSERT_EQ(
            FindChains(rows, &chains[1], &ids[1], &weights[1], &host_context_),
            nullptr);
        EXPECT_EQ(ids[0], ids[1]) << n << " " << first;
        ASSERT_EQ(chains[0].size(), chains[1].size());
        for (size_t i = 0; i < chains[0].size(); ++i) {
          EXPECT_EQ(chains[0][i].kind, chains[1][i].kind);
          EXPECT_EQ(chains[0][i].a, chains[1][i].a);
          EXPECT_EQ(chains[0][i].next, chains[1][i].next);
        }
        EXPECT_EQ(weights[0], weights[1]);
      }
    }
  }
}

TEST_F(Losses, NoneIsEmpty) {
  MakeProblem({nullptr});
  LossModel<TestMachine> model;
  ASSERT_TRUE(model
                  .Setup(structure_.observations[0].loss,
                         &host_context_,
                         blocks_.observations(0))
                  .ok());
  EXPECT_TRUE(model.empty());
}

// Losses in the order of their rows, which batches other than observations
// have.
class LossesInOrder : public OnMachine {
 protected:
  // The results of the losses for these squared norms.
  void Update(const std::vector<const ceres::LossFunction*>& losses,
              const std::vector<double>& squared_norms,
              std::vector<double>* rho) {
    LossModel<TestMachine> model;
    ASSERT_TRUE(model.Setup(losses, &host_context_, machine_.get()).ok());
    ASSERT_TRUE(model.calls_user());
    const Buffer<double> s = Upload(squared_norms);
    // The second overwrites the first.
    for (int round = 0; round < 2; ++round) {
      const kernels::Status status =
          model.UpdateRho(s.data(), /*corrects=*/false);
      ASSERT_TRUE(status.ok()) << status.message;
      const std::vector<double> values =
          Download(static_cast<int64_t>(3 * losses.size()), model.ref().rho);
      EXPECT_TRUE(round == 0 || std::memcmp(values.data(),
                                            rho->data(),
                                            sizeof(double) * rho->size()) == 0);
      *rho = values;
    }
  }
  kernels::Status Fail(const std::vector<const ceres::LossFunction*>& losses,
                       const std::vector<double>& squared_norms,
                       bool corrects = false) {
    LossModel<TestMachine> model;
    EXPECT_TRUE(model.Setup(losses, &host_context_, machine_.get()).ok());
    return model.UpdateRho(Upload(squared_norms).data(), corrects);
  }
};

// Around warps, tasks and what crosses at a time: the very values that the
// losses yield.
TEST_F(LossesInOrder, AnyNumberOfRows) {
  const ceres::HuberLoss huber(1.0);
  const UsersOwnLoss own;
  const OwnLoss another;
  const ceres::LossFunction* const kinds[] = {
      &own, &huber, nullptr, &another, nullptr};
  for (const int64_t n : {1, 31, 32, 33, 2049, (1 << 18) + 33}) {
    SCOPED_TRACE(n);
    std::vector<const ceres::LossFunction*> losses;
    std::vector<double> s;
    for (int64_t k = 0; k < n; ++k) {
      losses.push_back(kinds[k % 5]);
      s.push_back(std::pow(1.1, static_cast<double>(k % 100)) - 1.0);
    }
    std::vector<double> rho;
    Update(losses, s, &rho);
    ASSERT_EQ(rho.size(), 3 * losses.size());
    for (int64_t k = 0; k < n; ++k) {
      double expected[3] = {s[k], 1.0, 0.0};
      if (losses[k] != nullptr) {
        losses[k]->Evaluate(s[k], expected);
      }
      ASSERT_TRUE(std::equal(expected, expected + 3, &rho[3 * k])) << k;
    }
  }
}

TEST_F(LossesInOrder, WithoutLossesThereIsNothing) {
  for (const size_t n : {0, 1, 33}) {
    LossModel<TestMachine> model;
    ASSERT_TRUE(model
                    .Setup(std::vector<const ceres::LossFunction*>(n),
                           &host_context_,
                           machine_.get())
                    .ok());
    EXPECT_TRUE(model.empty());
    EXPECT_FALSE(model.calls_user());
    EXPECT_EQ(model.ref().loss_id, nullptr);
    EXPECT_EQ(model.ref().rho, nullptr);
    Summary summary;
    model.Report(&summary);
    EXPECT_EQ(summary.num_host_losses, 0);
  }
}

// The first is named, for any number of threads.
TEST_F(LossesInOrder, ThatAreNotConcave) {
  const auto losses = CeresLosses();
  const ceres::LossFunction* const huber = losses[1].get();
  const ceres::LossFunction* const tolerant = losses[5].get();
  const UsersOwnLoss own;
  std::vector<const ceres::LossFunction*> rows;
  EXPECT_EQ(FindNotConcave(rows, &host_context_), nullptr);
  for (size_t i = 0; i < losses.size(); ++i) {
    // Tolerant's, and the last, which has one inside.
    const bool is_concave = i != 5 && i != 9;
    EXPECT_EQ(FindNotConcave({nullptr, losses[i].get(), huber}, &host_context_),
              is_concave ? nullptr : losses[i].get())
        << i;
  }
  rows.assign(100000, huber);
  EXPECT_EQ(FindNotConcave(rows, &host_context_), nullptr);
  for (const size_t first : {99999, 70000, 1}) {
    rows[first] = first == 70000 ? &own : tolerant;
    EXPECT_EQ(FindNotConcave(rows, &host_context_), rows[first]);
  }
}

// The first row that throws is named, for any number of threads.
TEST_F(LossesInOrder, ThatThrowEndInAStatus) {
  const std::string name = "ceres_ext::(anonymous namespace)::Fragile";
  Fragile fragile;
  fragile.fault = Fragile::kThrow;
  fragile.from = 5.0;
  std::vector<const ceres::LossFunction*> losses(300000, &fragile);
  std::vector<double> s(300000, 1.0);
  std::vector<double> rho;
  for (const int64_t first : {299999, 262144, 262143, 6000, 0}) {
    s[first] = 6.0 + static_cast<double>(first);
    for (int round = 0; round < 3; ++round) {
      const kernels::Status status = Fail(losses, s);
      EXPECT_EQ(status.code, kernels::StatusCode::kNumericalFailure);
      EXPECT_EQ(status.message,
                "The loss function " + name + " threw: no rho at " +
                    std::to_string(s[first]));
    }
  }
  fragile.fault = Fragile::kThrowANumber;
  EXPECT_EQ(Fail(losses, s).message,
            "The loss function " + name +
                " threw: something that is not a std::exception");
  fragile.fault = Fragile::kNone;
  Update(losses, s, &rho);
}

// Products of factors below zero or NaN, as stages and as weights; the first
// row's loss is named.
TEST_F(LossesInOrder, WithNegativeFactors) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const ceres::HuberLoss huber(1.0);
  const auto scale = [](const ceres::LossFunction* loss, double factor) {
    return std::make_unique<ceres::ScaledLoss>(
        loss, factor, ceres::DO_NOT_TAKE_OWNERSHIP);
  };
  const auto check = [&](std::vector<const ceres::LossFunction*> losses,
                         const char* factor) {
    LossModel<TestMachine> model;
    ASSERT_TRUE(
        model.Setup(std::move(losses), &host_context_, machine_.get()).ok());
    ASSERT_FALSE(model.calls_user());
    EXPECT_EQ(model.CheckFactors().ok(), factor == nullptr);
    if (factor != nullptr) {
      EXPECT_EQ(model.CheckFactors().message,
                std::string("The loss function ceres::ScaledLoss has the "
                            "factor ") +
                    factor + "; expected 0 or more.");
    }
  };
  const auto negative = scale(&huber, -3.0);
  const auto positive = scale(negative.get(), -2.0);
  const auto zero = scale(&huber, 0.0);
  const auto unknown = scale(nullptr, nan);
  check({nullptr, &huber, zero.get(), positive.get()}, nullptr);
  check({nullptr, zero.get(), negative.get(), unknown.get()}, "-3");
  check({&huber, unknown.get()}, "nan");
  // Too many chains: weights.
  std::vector<std::unique_ptr<ceres::ScaledLoss>> many;
  std::vector<const ceres::LossFunction*> rows;
  for (int i = 0; i < 600; ++i) {
    many.push_back(scale(&huber, 1.0 + i));
    rows.push_back(many.back().get());
  }
  check(rows, nullptr);
  many[400] = scale(&huber, -7.0);
  rows[400] = many[400].get();
  check(rows, "-7");
}

// If residuals are to be corrected, a user-defined loss must have a root of
// rho'; the first row is named.
TEST_F(LossesInOrder, WithoutARoot) {
  Fragile fragile;
  fragile.from = 5.0;
  fragile.fault = Fragile::kNaNSlope;
  std::vector<const ceres::LossFunction*> losses(5000, &fragile);
  std::vector<double> s(5000, 1.0);
  EXPECT_TRUE(Fail(losses, s, /*corrects=*/true).ok());
  s[4999] = 7.0;
  s[4000] = 6.0;
  EXPECT_TRUE(Fail(losses, s, /*corrects=*/false).ok());
  EXPECT_EQ(Fail(losses, s, /*corrects=*/true).message,
            "The loss function ceres_ext::(anonymous namespace)::Fragile has "
            "rho' = nan and rho'' = 0 at |r|^2 = 6; expected rho' >= 0, and "
            "rho' > 0 if rho'' > 0.");
}

TEST_F(LossesInOrder, NaNStaysNaN) {
  Fragile fragile;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  std::vector<double> rho;
  for (int i = 0; i < 3; ++i) {
    fragile.fault = static_cast<Fragile::Fault>(Fragile::kNaNCost + i);
    Update({&fragile, nullptr}, {4.0, 9.0}, &rho);
    for (int j = 0; j < 3; ++j) {
      EXPECT_EQ(std::isnan(rho[j]), i == j);
    }
    EXPECT_EQ(rho[3], 9.0);
  }
  // Ceres does not ask a loss about residuals that aren't numbers.
  fragile.fault = Fragile::kNone;
  Update({&fragile, nullptr}, {nan, nan}, &rho);
  EXPECT_TRUE(std::isnan(rho[0]));
  EXPECT_TRUE(std::isnan(rho[3]));
  EXPECT_FALSE(fragile.saw_nan);
}

TEST_F(LossesInOrder, AreReported) {
  const ceres::HuberLoss huber(1.0);
  const UsersOwnLoss own;
  const ceres::LossFunctionWrapper wrapper(new ceres::HuberLoss(1.0),
                                           ceres::TAKE_OWNERSHIP);
  const ceres::ScaledLoss scaled(&own, 2.0, ceres::DO_NOT_TAKE_OWNERSHIP);
  const ceres::ComposedLoss composed(
      &own, ceres::DO_NOT_TAKE_OWNERSHIP, &huber, ceres::DO_NOT_TAKE_OWNERSHIP);
  Summary summary;
  const auto report = [&](std::vector<const ceres::LossFunction*> losses) {
    LossModel<TestMachine> model;
    ASSERT_TRUE(
        model.Setup(std::move(losses), &host_context_, machine_.get()).ok());
    model.Report(&summary);
  };
  report({&huber, &huber});
  EXPECT_EQ(summary.num_host_losses, 0);
  EXPECT_EQ(summary.host_loss_type, "");
  const std::string name = "ceres_ext::(anonymous namespace)::UsersOwnLoss";
  for (const ceres::LossFunction* loss :
       {static_cast<const ceres::LossFunction*>(&scaled),
        static_cast<const ceres::LossFunction*>(&composed)}) {
    summary = Summary();
    report({nullptr, &huber, loss, &wrapper});
    EXPECT_EQ(summary.num_host_losses, 3);
    EXPECT_EQ(summary.host_loss_type, name);
  }
  // Batches add up.
  report({&wrapper});
  EXPECT_EQ(summary.num_host_losses, 4);
  EXPECT_EQ(summary.host_loss_type, name);
  summary = Summary();
  report({&wrapper});
  EXPECT_EQ(summary.host_loss_type, "ceres::LossFunctionWrapper");
}

// Whole solves of a problem whose rows have losses[k % size] in turn.
class SolvesWithLosses : public OnMachine {
 protected:
  struct Result {
    Summary summary;
    std::vector<double> parameters;
  };
  Result SolveWith(const std::vector<const ceres::LossFunction*>& losses,
                   const Options& ext_options,
                   ceres::IterationCallback* callback = nullptr) {
    BalTestProblem bal = MakeBalTestProblem(10, 120, 5, 9);
    ceres::Problem::Options problem_options;
    problem_options.loss_function_ownership = ceres::DO_NOT_TAKE_OWNERSHIP;
    ceres::Problem problem(problem_options);
    for (size_t k = 0; k < bal.camera_id.size(); ++k) {
      // A row in ten is an outlier.
      const double error = k % 10 == 3 ? 20.0 : 0.0;
      problem.AddResidualBlock(
          CreateBalReprojectionError(bal.observations[2 * k] + error,
                                     bal.observations[2 * k + 1]),
          const_cast<ceres::LossFunction*>(losses[k % losses.size()]),
          bal.camera(bal.camera_id[k]),
          bal.point(bal.point_id[k]));
    }
    ceres::Solver::Options options = TestOptions(&bal, 2);
    if (callback != nullptr) {
      options.callbacks.push_back(callback);
    }
    Result result;
    Solve(options, ext_options, &problem, &result.summary);
    result.parameters = bal.Values();
    return result;
  }
  Result Stock(const std::vector<const ceres::LossFunction*>& losses,
               ceres::IterationCallback* callback = nullptr) {
    Options options;
    options.enabled = false;
    return SolveWith(losses, options, callback);
  }
  Result Ours(const std::vector<const ceres::LossFunction*>& losses,
              ceres::IterationCallback* callback = nullptr) {
    Options options;
#ifdef CERES_EXT_TEST_ON_CUDA
    options.device = DEVICE_CUDA;
#else
    options.device = DEVICE_HOST;
#endif
    options.fallback = FALLBACK_REFUSE;
    return SolveWith(losses, options, callback);
  }

  // Costs agree as long as linear solvers take as many iterations, as in
  // solve_test.cc; the first two before any rounding has been amplified.
  static void ExpectSameCosts(const Summary& ours, const Summary& stock) {
    ASSERT_EQ(ours.path, PATH_FULL) << ours.message;
    EXPECT_EQ(ours.termination_type, stock.termination_type) << ours.message;
    EXPECT_NEAR(
        ours.initial_cost, stock.initial_cost, 1e-12 * stock.initial_cost);
    const size_t n = std::min(ours.iterations.size(), stock.iterations.size());
    size_t compared = 0;
    for (; compared < n; ++compared) {
      const auto& a = ours.iterations[compared];
      const auto& b = stock.iterations[compared];
      if (a.linear_solver_iterations != b.linear_solver_iterations) {
        break;
      }
      EXPECT_NEAR(a.cost, b.cost, 1e-6 * b.cost) << "iteration " << compared;
      EXPECT_EQ(a.step_is_successful, b.step_is_successful);
    }
    EXPECT_GE(compared, 3u);
    EXPECT_NEAR(ours.final_cost, stock.final_cost, 1e-5 * stock.final_cost);
  }
};

TEST_F(SolvesWithLosses, OfAUserAsStockCeres) {
  const ceres::HuberLoss huber(1.0);
  const UsersOwnLoss own;
  const OwnLoss another;
  const TwiceHuber twice;
  const ceres::ScaledLoss scaled(&another, 0.5, ceres::DO_NOT_TAKE_OWNERSHIP);
  const std::pair<std::vector<const ceres::LossFunction*>, int64_t> cases[] = {
      {{&own}, 600},
      {{&another}, 600},
      {{&twice}, 600},
      {{&huber, &another, nullptr, &scaled}, 450},
      {{nullptr, nullptr, nullptr, nullptr, &twice}, 120},
  };
  for (const auto& [losses, num_host_losses] : cases) {
    SCOPED_TRACE(TypeName(*losses.back()));
    const Result stock = Stock(losses);
    const Result ours = Ours(losses);
    ExpectSameCosts(ours.summary, stock.summary);
    EXPECT_EQ(ours.summary.num_host_losses, num_host_losses);
    EXPECT_THAT(ours.summary.FullReport(),
                testing::HasSubstr(
                    "Losses on the host   " + std::to_string(num_host_losses) +
                    " residual blocks, " + ours.summary.host_loss_type + "\n"));
    EXPECT_EQ(Ours(losses).parameters, ours.parameters);
#ifdef CERES_EXT_TEST_ON_CUDA
    EXPECT_THAT(ours.summary.device, testing::HasSubstr("CUDA device"));
#endif
  }
}

// The same loss by a class that is not Ceres's.
TEST_F(SolvesWithLosses, OfCeresInAWrapper) {
  const ceres::CauchyLoss cauchy(2.0);
  const ceres::LossFunctionWrapper wrapper(new ceres::CauchyLoss(2.0),
                                           ceres::TAKE_OWNERSHIP);
  const Result chains = Ours({&cauchy, nullptr});
  const Result called = Ours({&wrapper, nullptr});
  ExpectSameCosts(called.summary, chains.summary);
  EXPECT_EQ(chains.summary.num_host_losses, 0);
  EXPECT_EQ(chains.summary.FullReport().find("Losses on"), std::string::npos);
  EXPECT_EQ(called.summary.num_host_losses, 300);
}

TEST_F(SolvesWithLosses, FaultAtTheStartEndsTheSolve) {
  for (const Fragile::Fault fault :
       {Fragile::kThrow, Fragile::kThrowANumber, Fragile::kNaNCost}) {
    Fragile fragile;
    fragile.fault = fault;
    const Result ours = Ours({nullptr, &fragile});
    EXPECT_EQ(ours.summary.path, PATH_FULL) << ours.summary.message;
    EXPECT_EQ(ours.summary.termination_type, ceres::FAILURE);
    if (fault == Fragile::kNaNCost) {
      const Result stock = Stock({nullptr, &fragile});
      EXPECT_EQ(ours.summary.termination_type, stock.summary.termination_type);
      // And why.
      EXPECT_EQ(ours.summary.message.find(stock.summary.message), 0u)
          << ours.summary.message;
      EXPECT_GT(ours.summary.message.size(), stock.summary.message.size());
    }
  }
}

// Stock Ceres ends in CONVERGENCE: a gradient of NaN is below its tolerance.
TEST_F(SolvesWithLosses, NaNInDerivativesIsAFailure) {
  for (const Fragile::Fault fault : {Fragile::kNaNSlope, Fragile::kNaNSecond}) {
    Fragile fragile;
    fragile.fault = fault;
    const Result ours = Ours({nullptr, &fragile});
    EXPECT_EQ(ours.summary.path, PATH_FULL) << ours.summary.message;
    EXPECT_EQ(ours.summary.termination_type, ceres::FAILURE);
    EXPECT_NE(ours.summary.message.find("::Fragile has rho' = "),
              std::string::npos)
        << ours.summary.message;
  }
}

// One trial step can't be evaluated: it is rejected, and the solve continues.
TEST_F(SolvesWithLosses, FaultOnTheWayRejectsTheStep) {
  class FaultAfterIteration2 : public ceres::IterationCallback {
   public:
    FaultAfterIteration2(Fragile* fragile, Fragile::Fault fault)
        : fragile_(fragile), fault_(fault) {}
    ceres::CallbackReturnType operator()(
        const ceres::IterationSummary& summary) override {
      fragile_->fault = summary.iteration == 2 ? fault_ : Fragile::kNone;
      return ceres::SOLVER_CONTINUE;
    }

   private:
    Fragile* fragile_;
    const Fragile::Fault fault_;
  };
  for (const Fragile::Fault fault :
       {Fragile::kThrow, Fragile::kThrowANumber, Fragile::kNaNCost}) {
    Fragile fragile;
    FaultAfterIteration2 callback(&fragile, fault);
    const Result ours = Ours({nullptr, &fragile}, &callback);
    ASSERT_EQ(ours.summary.path, PATH_FULL) << ours.summary.message;
    EXPECT_TRUE(ours.summary.IsSolutionUsable()) << ours.summary.message;
    ASSERT_GT(ours.summary.iterations.size(), 4u);
    EXPECT_FALSE(ours.summary.iterations[3].step_is_successful);
    EXPECT_TRUE(ours.summary.iterations[4].step_is_successful);
    fragile.fault = Fragile::kNone;
    if (fault == Fragile::kNaNCost) {
      ExpectSameCosts(ours.summary,
                      Stock({nullptr, &fragile}, &callback).summary);
    }
  }
}

}  // namespace
}  // namespace ceres_ext
