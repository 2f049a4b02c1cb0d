// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The vectors of the trust-region loop against plain loops.

#include "ceres_ext/under_ceres/loop_vectors.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/common/on_machine.h"

namespace ceres_ext {
namespace {

class TrustRegionVectors : public OnMachine {
 protected:
  void SetUp() override {
    OnMachine::SetUp();
    if (machine_ != nullptr) {
      SetUpVectors();
    }
  }
  void SetUpVectors() {
    vectors_ =
        std::make_unique<LoopVectors<TestMachine>>(machine_.get(),
                                                   /*caller_state=*/nullptr,
                                                   /*host_context=*/nullptr,
                                                   /*ranks=*/nullptr,
                                                   &failure_);
  }

  std::vector<double> Random(int n) {
    std::uniform_real_distribution<double> uniform(-2.0, 2.0);
    std::vector<double> x(n);
    for (double& value : x) {
      value = uniform(generator_);
    }
    return x;
  }
  double* New(const std::vector<double>& x) {
    double* data = vectors_->Allocate(static_cast<int>(x.size()));
    EXPECT_TRUE(
        vectors_->CopyFromHost(static_cast<int>(x.size()), x.data(), data));
    return data;
  }
  std::vector<double> Get(int n, const double* x) {
    std::vector<double> values(n);
    EXPECT_TRUE(vectors_->CopyToHost(n, x, values.data()));
    return values;
  }

  std::mt19937 generator_{7};
  Failure failure_;
  std::unique_ptr<LoopVectors<TestMachine>> vectors_;
};

// Edge sizes of warps and blocks, and one of several blocks.
const int kSizes[] = {0, 1, 31, 32, 33, 255, 257, 70001};

TEST_F(TrustRegionVectors, ElementByElement) {
  for (const int n : kSizes) {
    SCOPED_TRACE("n " + std::to_string(n));
    ASSERT_TRUE(vectors_->Setup({n, n, n}, nullptr).ok());
    const std::vector<double> x = Random(n);
    const std::vector<double> y = Random(n);
    double* a = New(x);
    double* b = New(y);
    double* c = vectors_->Allocate(n);
    const auto expect = [&](const double* result, auto&& formula) {
      const std::vector<double> values = Get(n, result);
      for (int i = 0; i < n; ++i) {
        ASSERT_EQ(values[i], formula(i)) << "element " << i;
      }
    };
    vectors_->Copy(n, a, c);
    expect(c, [&](int i) { return x[i]; });
    vectors_->Negate(n, a, c);
    expect(c, [&](int i) { return -x[i]; });
    vectors_->Multiply(n, a, b, c);
    expect(c, [&](int i) { return x[i] * y[i]; });
    vectors_->Scale(n, 0.3, a, c);
    expect(c, [&](int i) { return 0.3 * x[i]; });
    vectors_->Scale(n, 0.7, c, c);
    expect(c, [&](int i) { return 0.7 * (0.3 * x[i]); });
    vectors_->Copy(n, a, c);
    vectors_->Clamp(n, -0.5, 1.0, c);
    expect(c, [&](int i) { return std::min(std::max(x[i], -0.5), 1.0); });
    vectors_->Multiply(n, a, a, c);
    vectors_->JacobiScaling(n, c);
    expect(c, [&](int i) { return 1.0 / (1.0 + std::sqrt(x[i] * x[i])); });
    vectors_->Multiply(n, a, a, c);
    vectors_->LevenbergMarquardtDiagonal(n, c, 3.0, b);
    expect(b, [&](int i) { return std::sqrt(x[i] * x[i] / 3.0); });
    vectors_->Divide(n, a, b, c);
    expect(c, [&](int i) { return x[i] / std::sqrt(x[i] * x[i] / 3.0); });
    vectors_->Scale(n, -1.5, a, c);
    expect(c, [&](int i) { return -1.5 * x[i]; });
    // A device may round once less; powers of two do not round.
    vectors_->Negate(n, a, b);
    vectors_->LinearCombination(n, 2.0, a, 0.5, b, c);
    expect(c, [&](int i) { return 2.0 * x[i] - 0.5 * x[i]; });
    vectors_->SetOne(n, c);
    expect(c, [&](int) { return 1.0; });
    vectors_->SetZero(n, c);
    expect(c, [&](int) { return 0.0; });
    for (double* vector : {a, b, c}) {
      vectors_->Free(vector);
    }
  }
}

// A sum of n products of at most 4 in any order is within n eps of the sum of
// their magnitudes.
TEST_F(TrustRegionVectors, Sums) {
  for (const int n : kSizes) {
    SCOPED_TRACE("n " + std::to_string(n));
    ASSERT_TRUE(vectors_->Setup({n, n, n}, nullptr).ok());
    const std::vector<double> x = Random(n);
    const std::vector<double> y = Random(n);
    double* a = New(x);
    double* b = New(y);
    long double xx = 0, dd = 0, change = 0, magnitude = 0;
    long double product = 0, magnitude_of_product = 0;
    double largest = 0.0, largest_y = 0.0;
    for (int i = 0; i < n; ++i) {
      product += static_cast<long double>(x[i]) * y[i];
      magnitude_of_product += std::fabs(x[i] * y[i]);
      largest_y = std::fmax(largest_y, std::fabs(y[i]));
      const long double d = static_cast<long double>(x[i]) - y[i];
      xx += static_cast<long double>(x[i]) * x[i];
      dd += d * d;
      largest = std::fmax(largest, std::fabs(x[i] - y[i]));
      // y = J step, x = f.
      const long double term =
          y[i] * (x[i] + y[i] / static_cast<long double>(2));
      change -= term;
      magnitude += std::fabs(static_cast<double>(term));
    }
    const double relative = (n + 4) * kEpsilon;
    double max_norm = -1, norm = -1, x_norm = -1, step_norm = -1, model = -1;
    ASSERT_TRUE(vectors_->ProjectedGradientNorms(n, a, b, &max_norm, &norm));
    EXPECT_EQ(max_norm, largest);
    EXPECT_NEAR(norm, std::sqrt(dd), relative * std::sqrt(dd));
    ASSERT_TRUE(vectors_->StepNorms(n, a, b, &x_norm, &step_norm));
    EXPECT_NEAR(x_norm, std::sqrt(xx), relative * std::sqrt(xx));
    EXPECT_NEAR(step_norm, std::sqrt(dd), relative * std::sqrt(dd));
    ASSERT_TRUE(vectors_->ModelCostChange(n, a, b, &model));
    EXPECT_NEAR(model, change, relative * static_cast<double>(magnitude));
    double derivative = -1, max_norm_of_y = -1;
    ASSERT_TRUE(
        vectors_->DirectionalDerivative(n, a, b, &derivative, &max_norm_of_y));
    EXPECT_NEAR(derivative,
                product,
                relative * static_cast<double>(magnitude_of_product));
    EXPECT_EQ(max_norm_of_y, largest_y);
    long double xy = 0;
    double products = 0.0;
    for (int i = 0; i < n; ++i) {
      xy += static_cast<long double>(x[i]) * y[i];
      products += std::fabs(x[i] * y[i]);
    }
    double step_dot = -1, residual_dot = -1;
    ASSERT_TRUE(vectors_->StepDot(n, a, b, &step_dot));
    EXPECT_NEAR(step_dot, xy, relative * products);
    ASSERT_TRUE(vectors_->ResidualDot(n, a, b, &residual_dot));
    EXPECT_EQ(residual_dot, step_dot);
    // The same bits once more.
    double again = -1;
    ASSERT_TRUE(vectors_->ModelCostChange(n, a, b, &again));
    EXPECT_EQ(model, again);
    vectors_->Free(a);
    vectors_->Free(b);
  }
}

// A step is taken where every element is finite and has been written. A device
// says so when it is asked for the model's cost.
TEST_F(TrustRegionVectors, NegateIfValidFindsEveryElement) {
  for (const int n : {1, 33, 70001}) {
    ASSERT_TRUE(vectors_->Setup({n, n, n}, nullptr).ok());
    const std::vector<double> x = Random(n);
    double* a = New(x);
    double* b = New(x);
    const auto is_taken = [&] {
      double change = 0.0;
      if (!vectors_->NegateIfValid(n, a)) {
        return false;
      }
      EXPECT_TRUE(vectors_->ModelCostChange(n, b, b, &change));
      return !std::isnan(change);
    };
    ASSERT_TRUE(is_taken());
    const std::vector<double> negated = Get(n, a);
    for (int i = 0; i < n; ++i) {
      ASSERT_EQ(negated[i], -x[i]);
    }
    for (const double bad : {std::numeric_limits<double>::quiet_NaN(),
                             std::numeric_limits<double>::infinity()}) {
      for (const int at : {0, n / 2, n - 1}) {
        std::vector<double> with_bad = x;
        with_bad[at] = bad;
        ASSERT_TRUE(vectors_->CopyFromHost(n, with_bad.data(), a));
        EXPECT_FALSE(is_taken()) << bad << " at " << at;
      }
    }
    // Everything but one element is written.
    for (const int at : {0, n - 1}) {
      vectors_->Invalidate(n, a);
      std::vector<double> values = Get(n, a);
      const double left = values[at];
      values = x;
      values[at] = left;
      ASSERT_TRUE(vectors_->CopyFromHost(n, values.data(), a));
      EXPECT_FALSE(is_taken()) << "unwritten " << at;
    }
    ASSERT_TRUE(vectors_->CopyFromHost(n, x.data(), a));
    EXPECT_TRUE(is_taken());
    // The linear solver finds that there is no step.
    bool has_step = false;
    vectors_->SetFinishStep([&has_step] { return has_step; });
    EXPECT_FALSE(is_taken());
    has_step = true;
    EXPECT_TRUE(is_taken());
    vectors_->SetFinishStep(nullptr);
    vectors_->Free(a);
    vectors_->Free(b);
  }
}

// Dogleg computes with a step before it asks for the model's cost.
TEST_F(TrustRegionVectors, NegateIfValidAnswersDoglegAtOnce) {
  for (const int n : {1, 70001}) {
    LoopVectors<TestMachine>::Sizes sizes = {n, n, n};
    sizes.is_dogleg = true;
    ASSERT_TRUE(vectors_->Setup(sizes, nullptr).ok());
    std::vector<double> x = Random(n);
    double* a = New(x);
    EXPECT_TRUE(vectors_->NegateIfValid(n, a));
    EXPECT_EQ(Get(n, a)[n - 1], -x[n - 1]);
    x[n - 1] = std::numeric_limits<double>::quiet_NaN();
    ASSERT_TRUE(vectors_->CopyFromHost(n, x.data(), a));
    EXPECT_FALSE(vectors_->NegateIfValid(n, a));
    vectors_->Free(a);
  }
}

// Norms that are computed with Plus are those of the vectors as they are.
TEST_F(TrustRegionVectors, StepNormsAfterPlus) {
  constexpr int n = 70001;
  ASSERT_TRUE(vectors_->Setup({n, n, n}, nullptr).ok());
  double* a = New(Random(n));
  double* b = New(Random(n));
  double* c = New(Random(n));
  const auto expect = [&](double x_norm, double step_norm) {
    double x = -1, step = -1;
    ASSERT_TRUE(vectors_->StepNorms(n, a, b, &x, &step));
    EXPECT_EQ(x, x_norm);
    EXPECT_EQ(step, step_norm);
  };
  double x_norm = -1, step_norm = -1;
  ASSERT_TRUE(vectors_->StepNorms(n, a, b, &x_norm, &step_norm));
  vectors_->Multiply(n, b, c, c);
  vectors_->NotePlus(n, a, b);
  expect(x_norm, step_norm);
  vectors_->Scale(n, 0.5, c, c);
  vectors_->NotePlus(n, a, b);
  double derivative = -1, max_norm = -1;  // It changes no vector.
  ASSERT_TRUE(vectors_->DirectionalDerivative(n, c, c, &derivative, &max_norm));
  expect(x_norm, step_norm);
  // Other vectors, and another candidate since.
  vectors_->Multiply(n, b, c, c);
  vectors_->NotePlus(n, b, a);
  expect(x_norm, step_norm);
  vectors_->Multiply(n, b, c, c);
  vectors_->NotePlus(n, a, b);
  vectors_->Copy(n, a, b);
  expect(x_norm, 0.0);
  vectors_->Multiply(n, b, c, c);
  vectors_->NotePlus(n, a, b);
  vectors_->SetZero(n, b);
  vectors_->NotePlus(n, a, b);  // of no step that was scaled
  expect(x_norm, x_norm);
  for (double* vector : {a, b, c}) {
    vectors_->Free(vector);
  }
}

// Setup takes what the loop will ask for. Off the host's own memory some of it
// is shared by vectors that never hold something at the same time.
TEST_F(TrustRegionVectors, MemoryOfTheLoopIsTakenOnce) {
  constexpr int kX = 50;
  constexpr int kStep = 40;
  constexpr int kResiduals = 60;
  const bool shares = !vectors_->IsHost();
  // Without dogleg, with a traditional one, with a subspace; all of it twice.
  for (int which = 0; which < 24; ++which) {
    SCOPED_TRACE(which);
    const bool is_monotonic = which / 12 > 0;
    const bool keeps_best = which % 2 == 0;
    const bool searches = which / 2 % 2 == 1;
    const bool is_dogleg = which / 4 % 3 > 0;
    const bool is_subspace = which / 4 % 3 > 1;
    std::vector<int> sizes = {kX};
    if (keeps_best) {
      sizes.push_back(kX);
    }
    // Residuals, step, scaled step, candidate, gradient, model residuals,
    // negative gradient, projected step, scaling, damping and its root.
    const size_t first = sizes.size();
    sizes.insert(sizes.end(),
                 {kResiduals,
                  kStep,
                  kStep,
                  kX,
                  kStep,
                  kResiduals,
                  kStep,
                  kX,
                  kStep,
                  kStep,
                  kStep});
    if (is_dogleg) {
      // Gradient, Gauss-Newton step, J times a step.
      sizes.insert(sizes.end(), {kStep, kStep, kResiduals});
    }
    if (is_subspace) {
      sizes.insert(sizes.end(), {kStep, kStep, kResiduals});
    }
    std::vector<std::pair<size_t, size_t>> shared = {{first + 2, first + 6},
                                                     {first + 2, first + 10},
                                                     {first + 6, first + 10},
                                                     {first + 3, first + 7},
                                                     {first + 5, first + 13}};
    if (!searches) {
      shared.emplace_back(first + 1, first + 4);
    }
    if (keeps_best && is_monotonic) {
      shared.emplace_back(0, 1);
    }
    vectors_.reset();
    SetUpVectors();
    const int64_t before = machine_->bytes();
    const LoopVectors<TestMachine>::Sizes loop = {kX,
                                                  kStep,
                                                  kResiduals,
                                                  keeps_best,
                                                  is_monotonic,
                                                  searches,
                                                  is_dogleg,
                                                  is_subspace};
    ASSERT_TRUE(vectors_->Setup(loop, nullptr).ok());
    const int64_t bytes = machine_->bytes();
    // The host counts the scalars and the norms too, which a device has in
    // page-locked memory.
    const int64_t scalars =
        kIsHost<TestMachine> ? 2 * int64_t{sizeof(kernels::LoopScalars)} : 0;
    EXPECT_EQ(bytes - before - scalars,
              LoopVectors<TestMachine>::NumBytes(
                  loop, shares, /*has_scratch=*/false));
    std::vector<double*> first_round;
    for (int round = 0; round < 2; ++round) {
      std::vector<double*> taken;
      for (const int n : sizes) {
        taken.push_back(vectors_->Allocate(n));
        ASSERT_NE(taken.back(), nullptr);
      }
      EXPECT_EQ(machine_->bytes(), bytes);
      for (size_t j = 0; j < sizes.size(); ++j) {
        for (size_t i = 0; i < j; ++i) {
          const bool same =
              shares &&
              std::find(shared.begin(), shared.end(), std::pair(i, j)) !=
                  shared.end();
          EXPECT_EQ(taken[i] == taken[j], same) << i << " and " << j;
        }
      }
      if (round == 0) {
        first_round = taken;
      }
      EXPECT_EQ(taken, first_round);
      for (double* vector : taken) {
        vectors_->Free(vector);
      }
    }
    // A vector that the loop does not have is one of its own.
    double* const other = vectors_->Allocate(kX + 1);
    EXPECT_EQ(std::count(first_round.begin(), first_round.end(), other), 0);
    vectors_->Free(other);
  }
}

// The model's residuals may stand where an evaluation has scratch.
TEST_F(TrustRegionVectors, ModelResidualsStandInScratch) {
  Buffer<double> scratch;
  ASSERT_TRUE(machine_->Allocate(60, &scratch).ok());
  ASSERT_TRUE(vectors_->Setup({50, 40, 60}, scratch.data()).ok());
  std::vector<double*> residuals;
  for (const int n : {50, 50, 60, 40, 40, 50, 40, 60}) {
    double* const vector = vectors_->Allocate(n);
    if (n == 60) {
      residuals.push_back(vector);
    }
  }
  ASSERT_EQ(residuals.size(), 2);
  EXPECT_NE(residuals[0], scratch.data());
  EXPECT_EQ(residuals[1], scratch.data());
}

}  // namespace
}  // namespace ceres_ext
