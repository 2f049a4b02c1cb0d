// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The steps of PCG on every machine, by hand. Their sums, and the host's bits
// on a device: vectors_test.cc.
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "cuda_kernels/ops/pcg.h"
#include "cuda_kernels/ops/power_series.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kernels/machine_test.h"

namespace ceres_ext::kernels {
namespace {

using testing::ElementsAre;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

using Doubles = std::vector<double>;

class PcgTest : public MachineTest {
 protected:
  // Numbers in the memory of the machine.
  class Vector {
   public:
    Vector(PcgTest* test, const Doubles& values)
        : test_(test), buffer_(test->Upload(values)) {}
    void operator=(const Doubles& values) {
      ASSERT_OK(test_->machine()->Upload(
          buffer_.size(), values.data(), buffer_.data()));
    }
    Doubles operator*() { return test_->Download(buffer_); }
    double* data() { return buffer_.data(); }

   private:
    PcgTest* test_;
    Buffer<double> buffer_;
  };
  Vector Make(const Doubles& values) { return {this, values}; }

  void SetUp() override {
    MachineTest::SetUp();
    if (!IsSkipped()) {
      machine_scalars_ = Upload(std::vector<PcgScalars>(1));
    }
  }
  PcgScalars* scalars() { return machine_scalars_.data(); }
  // On scalars_, which the operation finds in scalars().
  template <typename Params>
  void RunOk(const Params& params) {
    ASSERT_OK(machine()->Upload(1, &scalars_, scalars()));
    MachineTest::RunOk(params);
    ASSERT_OK(machine()->Download(1, scalars(), &scalars_));
  }

  // From x = 0, at most 7 iterations.
  PcgStartParams StartParams(Vector* rhs, Vector* x, Vector* r) {
    PcgStartParams params;
    params.n = static_cast<int64_t>((**rhs).size());
    params.max_num_iterations = 7;
    params.rhs = rhs->data();
    params.x = x->data();
    params.r = r->data();
    params.scalars = scalars();
    return params;
  }

  PcgScalars scalars_;

 private:
  Buffer<PcgScalars> machine_scalars_;
};

TEST_F(PcgTest, StartByHand) {
  Vector rhs = Make({3, 0, 4});
  Vector x = Make({1, 1, 1});
  Vector r = Make({1, 1, 1});
  PcgStartParams params = StartParams(&rhs, &x, &r);
  params.q_tolerance = 0.25;
  params.r_tolerance = 0.1;
  params.min_num_iterations = 1;
  scalars_.num_iterations = 12;
  RunOk(params);
  EXPECT_THAT(*x, ElementsAre(0, 0, 0));
  EXPECT_EQ(*r, *rhs);
  EXPECT_EQ(scalars_.norm_rhs, 5);
  EXPECT_EQ(scalars_.norm_r, 5);
  EXPECT_EQ(scalars_.tol_r, 0.5);
  EXPECT_EQ(scalars_.q_tolerance, 0.25);
  EXPECT_EQ(scalars_.rho, 1);
  EXPECT_EQ(scalars_.num_iterations, 0);
  EXPECT_EQ(scalars_.end, PcgEnd::kRunning);

  // |r| = |b| <= 2 |b|, but only where no iteration is required.
  params.r_tolerance = 2;
  RunOk(params);
  EXPECT_EQ(scalars_.end, PcgEnd::kRunning);
  params.min_num_iterations = 0;
  RunOk(params);
  EXPECT_EQ(scalars_.end, PcgEnd::kInitialResidual);
  // A tolerance below zero is met by an exact solution only.
  params.r_tolerance = -1;
  RunOk(params);
  EXPECT_EQ(scalars_.end, PcgEnd::kRunning);
  EXPECT_EQ(scalars_.tol_r, 0);

  Vector zero = Make(Doubles(3, 0.0));
  params.rhs = zero.data();
  RunOk(params);
  EXPECT_EQ(scalars_.end, PcgEnd::kZeroRightHandSide);
  params.n = 0;
  RunOk(params);
  EXPECT_EQ(scalars_.end, PcgEnd::kZeroRightHandSide);
}

TEST_F(PcgTest, StartsNotWhereABlockHasNoInverse) {
  Vector rhs = Make({3, 0, 4});
  Vector x = Make(Doubles(3));
  Vector r = Make(Doubles(3));
  // Two records of one array, three of another.
  std::vector<Breakdown> breakdowns(5);
  auto machine_breakdowns = Upload(breakdowns);
  PcgStartParams params = StartParams(&rhs, &x, &r);
  params.breakdowns.Add(machine_breakdowns.data(), 2);
  params.breakdowns.Add(nullptr, 0);
  params.breakdowns.Add(machine_breakdowns.data() + 2, 3);
  const auto run = [&] {
    ASSERT_OK(
        machine()->Upload(5, breakdowns.data(), machine_breakdowns.data()));
    RunOk(params);
  };
  run();
  EXPECT_EQ(scalars_.end, PcgEnd::kRunning);
  for (Breakdown& breakdown : breakdowns) {
    breakdown.first_block = 0;
    run();
    EXPECT_EQ(scalars_.end, PcgEnd::kBlockBreakdown);
    EXPECT_EQ(scalars_.num_iterations, 0);
    breakdown = Breakdown();
  }
  // Before all other ends.
  breakdowns[3].first_block = 41;
  Vector zero = Make(Doubles(3, 0.0));
  params.rhs = zero.data();
  run();
  EXPECT_EQ(scalars_.end, PcgEnd::kBlockBreakdown);
}

TEST_F(PcgTest, ForcingSequenceByHand) {
  // The first linearisation, then a gradient that falls by 4, one that grows,
  // and one that falls by 1e6.
  EXPECT_EQ(ForcedQTolerance({}, 8.0, 0.1), 0.1);
  EXPECT_EQ(ForcedQTolerance({80.0, 0.1}, 2.0, 0.1), 0.9 * 2.0 / 80.0);
  EXPECT_EQ(ForcedQTolerance({2.0, 0.1}, 8.0, 0.1), 0.1);
  EXPECT_EQ(ForcedQTolerance({2.0, 0.1}, 2e-6, 0.1), 0.01 * 0.1);
  // Not below 0.9 of the last one, if that is over 0.1.
  EXPECT_EQ(ForcedQTolerance({2.0, 0.5}, 2e-6, 0.5), 0.9 * 0.5);
  EXPECT_EQ(ForcedQTolerance({2.0, 0.11}, 2e-6, 0.5), 0.01 * 0.5);
  // A condition that never ends a solve does not, and a norm that is NaN is not
  // used.
  EXPECT_EQ(ForcedQTolerance({2.0, -1.0}, 1.0, -1.0), -1.0);
  EXPECT_EQ(ForcedQTolerance({2.0, 0.1}, kNaN, 0.1), 0.1);

  Vector rhs = Make({3, 0, 4});
  Vector x = Make(Doubles(3));
  Vector r = Make(Doubles(3));
  PcgStartParams params{
      3, 0.25, -1, 0, 7, rhs.data(), x.data(), r.data(), scalars()};
  params.forcing = {50.0, 0.1};
  params.model_cost_tolerance = 7.0;
  RunOk(params);
  EXPECT_EQ(scalars_.q_tolerance, 0.9 * 5.0 / 50.0);
  EXPECT_EQ(scalars_.model_cost_tolerance, 7.0);
}

// From an x that is given: r = b, then r = b - A x, A = 2 I.
TEST_F(PcgTest, StartFromXByHand) {
  Vector rhs = Make({3, 0, 4});
  Vector q = Make({2, 2, 4});
  Vector x = Make({1, 1, 2});
  Vector r = Make(Doubles(3, kNaN));
  PcgStartParams start{
      3, -1, 2, 0, 7, rhs.data(), x.data(), r.data(), scalars(), true};
  PcgResidualParams residual{
      3, true, rhs.data(), q.data(), x.data(), r.data(), scalars()};
  RunOk(start);
  EXPECT_THAT(*x, ElementsAre(1, 1, 2));
  EXPECT_EQ(*r, *rhs);
  // |b| <= 2 |b| is not the residual of x.
  EXPECT_EQ(scalars_.end, PcgEnd::kRunning);
  // r = (1, -2, 0), x'(b + r) = 4 - 2 + 8, |r|^2 = 5
  start.r_tolerance = 0.25;
  RunOk(start);
  RunOk(residual);
  EXPECT_THAT(*r, ElementsAre(1, -2, 0));
  EXPECT_EQ(scalars_.q0, -10);
  EXPECT_EQ(scalars_.norm_r, std::sqrt(5.0));
  EXPECT_EQ(scalars_.num_iterations, 0);
  EXPECT_EQ(scalars_.end, PcgEnd::kRunning);
  // |r| <= |b| / 2, but only where no iteration is required.
  start.r_tolerance = 0.5;
  RunOk(start);
  RunOk(residual);
  EXPECT_EQ(scalars_.end, PcgEnd::kInitialResidual);
  start.min_num_iterations = 1;
  RunOk(start);
  RunOk(residual);
  EXPECT_EQ(scalars_.end, PcgEnd::kRunning);
  // An exact solution needs no iteration, whatever is required.
  start.r_tolerance = -1;
  residual.q = rhs.data();
  RunOk(start);
  RunOk(residual);
  EXPECT_EQ(scalars_.end, PcgEnd::kInitialResidual);
  EXPECT_EQ(scalars_.norm_r, 0);
}

TEST_F(PcgTest, PowerSeriesByHand) {
  Vector z = Make({3, 4});
  Vector t = Make({kNaN, kNaN});
  scalars_.end = PcgEnd::kResidual;
  scalars_.num_iterations = 12;
  RunOk(PowerSeriesStartParams{2, 0.2, z.data(), t.data(), scalars()});
  EXPECT_THAT(*z, ElementsAre(3, 4));
  EXPECT_EQ(*t, *z);
  EXPECT_EQ(scalars_.tol_r, 1);
  EXPECT_EQ(scalars_.num_iterations, 0);
  EXPECT_EQ(scalars_.end, PcgEnd::kRunning);
  const PowerSeriesTermParams add{2, t.data(), z.data(), scalars(), scalars()};
  // |t| = tol_r is not yet below it.
  t = {0, -1};
  RunOk(add);
  EXPECT_THAT(*t, ElementsAre(0, 1));
  EXPECT_THAT(*z, ElementsAre(3, 5));
  EXPECT_EQ(scalars_.end, PcgEnd::kRunning);
  t = {-0.5, 0};
  RunOk(add);
  EXPECT_THAT(*z, ElementsAre(3.5, 5));
  EXPECT_EQ(scalars_.norm_r, 0.5);
  EXPECT_EQ(scalars_.end, PcgEnd::kResidual);
  RunOk(add);
  EXPECT_THAT(*t, ElementsAre(0.5, 0));
  EXPECT_THAT(*z, ElementsAre(3.5, 5));
  // A series without separate scalars continues.
  RunOk(PowerSeriesTermParams{2, t.data(), z.data()});
  EXPECT_THAT(*z, ElementsAre(3, 5));
}

TEST_F(PcgTest, RhoAndDirectionByHand) {
  Vector r = Make({1, 2});
  Vector z = Make({3, 4});
  Vector p = Make({-1, -1});
  const auto run = [&] {
    RunOk(PcgRhoParams{2, r.data(), z.data(), scalars()});
    RunOk(PcgDirectionParams{2, z.data(), p.data(), scalars()});
  };
  run();
  EXPECT_EQ(scalars_.num_iterations, 1);
  EXPECT_EQ(scalars_.rho, 11);
  EXPECT_EQ(scalars_.last_rho, 1);
  EXPECT_THAT(*p, ElementsAre(3, 4));
  r = {22, 0};
  z = {2, 1};
  run();
  EXPECT_EQ(scalars_.rho, 44);
  EXPECT_EQ(scalars_.beta, 4);
  EXPECT_THAT(*p, ElementsAre(2 + 12, 1 + 16));

  // Ends, with p as it was.
  const PcgScalars running = scalars_;
  const Doubles p_before = *p;
  const auto expect_end = [&](PcgEnd end, int num_iterations) {
    run();
    EXPECT_EQ(scalars_.end, end);
    EXPECT_EQ(scalars_.num_iterations, num_iterations);
    EXPECT_EQ(*p, p_before);
  };
  for (const double bad : {kInfinity, -kInfinity}) {
    scalars_ = running;
    r = {bad, 0};
    expect_end(PcgEnd::kRhoBreakdown, 3);
  }
  // Zero is as far as an iteration gets, but not the first one.
  r = {0, 0};
  scalars_ = running;
  expect_end(PcgEnd::kUnderflow, 3);
  scalars_ = {};
  expect_end(PcgEnd::kRhoBreakdown, 1);
  // 1e-200 * 1e-200 is zero too.
  r = {1e-200, 0};
  z = {1e-200, 0};
  scalars_ = running;
  expect_end(PcgEnd::kUnderflow, 3);
  // 1e300 / 1e-300 is infinite, 1e-300 / 1e300 is zero.
  z = {1, 0};
  for (const double exponent : {300.0, -300.0}) {
    scalars_ = running;
    scalars_.rho = std::pow(10.0, -exponent);
    r = {std::pow(10.0, exponent), 0};
    expect_end(exponent > 0 ? PcgEnd::kBetaBreakdown : PcgEnd::kUnderflow, 3);
  }
  // NaN does not end.
  scalars_ = running;
  r = {kNaN, 0};
  run();
  EXPECT_EQ(scalars_.end, PcgEnd::kRunning);
  // An ended solve stays ended.
  scalars_ = running;
  scalars_.end = PcgEnd::kResidual;
  p = p_before;
  run();
  EXPECT_EQ(scalars_.num_iterations, 2);
  EXPECT_EQ(*p, p_before);
}

TEST_F(PcgTest, AlphaAndAdvanceByHand) {
  Vector p = Make({1, 2});
  Vector q = Make({2, 1});
  Vector x = Make({10, 20});
  const auto run = [&] {
    RunOk(PcgAlphaParams{2, p.data(), q.data(), scalars()});
    RunOk(PcgAdvanceParams{2, p.data(), x.data(), scalars()});
  };
  scalars_.rho = 2;
  run();
  EXPECT_EQ(scalars_.pq, 4);
  EXPECT_EQ(scalars_.alpha, 0.5);
  EXPECT_THAT(*x, ElementsAre(10.5, 21));

  const PcgScalars running = scalars_;
  const Doubles x_before = *x;
  for (const double bad : {-1.0, 0.0, kInfinity, -kInfinity}) {
    scalars_ = running;
    q = {bad, 0};
    run();
    EXPECT_EQ(scalars_.end, PcgEnd::kIndefinite);
    EXPECT_EQ(*x, x_before);
  }
  scalars_ = running;
  scalars_.rho = 1e300;
  q = {1e-300, 0};
  run();
  EXPECT_EQ(scalars_.end, PcgEnd::kAlphaBreakdown);
  EXPECT_EQ(*x, x_before);
  run();  // has ended
  EXPECT_EQ(*x, x_before);
  scalars_ = running;
  q = {kNaN, 0};
  run();
  EXPECT_EQ(scalars_.end, PcgEnd::kRunning);
}

TEST_F(PcgTest, ResidualByHand) {
  Vector rhs = Make({5, 2});
  Vector q = Make({1, 1});
  Vector x = Make({1, 2});
  Vector r = Make({4, 5});
  PcgResidualParams params;
  params.n = 2;
  params.rhs = rhs.data();
  params.q = q.data();
  params.x = x.data();
  params.r = r.data();
  params.scalars = scalars();
  PcgScalars running;
  running.alpha = 1;
  running.q0 = -8;
  running.q_tolerance = -1;
  running.tol_r = -1;
  running.num_iterations = 3;
  running.max_num_iterations = 10;
  running.min_num_iterations = 3;

  // r = (3, 4), q1 = -(8 + 12) = -20, zeta = 3 (-20 + 8) / -20 = 1.8
  scalars_ = running;
  RunOk(params);
  EXPECT_THAT(*r, ElementsAre(3, 4));
  EXPECT_EQ(scalars_.q1, -20);
  EXPECT_EQ(scalars_.q0, -20);
  EXPECT_EQ(scalars_.norm_r, 5);
  EXPECT_DOUBLE_EQ(scalars_.zeta, 1.8);
  EXPECT_EQ(scalars_.end, PcgEnd::kRunning);

  // r = (5, 2) - (1, 1) = (4, 1)
  scalars_ = running;
  params.reset = true;
  RunOk(params);
  EXPECT_THAT(*r, ElementsAre(4, 1));
  EXPECT_EQ(scalars_.q1, -(9 + 6));

  // The order of the tests: zeta, |r|, the number of iterations. zeta of the
  // reset residual is 3 (-15 + 8) / -15 = 1.4.
  scalars_ = running;
  scalars_.q_tolerance = 1.5;
  scalars_.tol_r = 100;
  scalars_.max_num_iterations = 3;
  const PcgScalars all = scalars_;
  RunOk(params);
  EXPECT_EQ(scalars_.end, PcgEnd::kQuadraticModel);
  scalars_ = all;
  scalars_.q_tolerance = 1.3;
  RunOk(params);
  EXPECT_EQ(scalars_.end, PcgEnd::kResidual);
  scalars_ = all;
  scalars_.min_num_iterations = 4;
  RunOk(params);
  EXPECT_EQ(scalars_.end, PcgEnd::kMaxNumIterations);

  // |r| = 0 is an end whatever is required and left: r = (1, 1) - (1, 1).
  for (const int max_num_iterations : {3, 10}) {
    scalars_ = running;
    scalars_.tol_r = 0;
    scalars_.min_num_iterations = 5;
    scalars_.max_num_iterations = max_num_iterations;
    params.reset = false;
    r = {1, 1};
    RunOk(params);
    EXPECT_EQ(scalars_.end, PcgEnd::kResidual);
    EXPECT_EQ(scalars_.norm_r, 0);
  }
}

}  // namespace
}  // namespace ceres_ext::kernels
