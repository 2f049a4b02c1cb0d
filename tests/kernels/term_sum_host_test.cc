// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Sums of floats by pairs of floats against sums in long double.
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "cuda_kernels/base/term_sum.h"
#include "gtest/gtest.h"

namespace ceres_ext::kernels {
namespace {

constexpr double kUnit = std::numeric_limits<float>::epsilon() / 2;

template <typename T>
TermSum<T> SumOf(const std::vector<T>& terms) {
  TermSum<T> sum;
  for (const T term : terms) {
    sum.Add(term);
  }
  return sum;
}

// Random terms of all sizes; every second time they cancel up to their last
// bits.
TEST(TermSum, OfFloatIsWithinItsBound) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> mantissa(-1.0f, 1.0f);
  std::uniform_int_distribution<int> exponent(-20, 20);
  for (int n = 1; n <= 4096; n *= 2) {
    for (int k = 0; k < 50; ++k) {
      std::vector<float> terms(n);
      for (float& term : terms) {
        term = std::ldexp(mantissa(random), exponent(random));
      }
      if (k % 2 == 1) {
        for (int i = n / 2; i < n; ++i) {
          terms[i] = -terms[i - n / 2] * (1.0f + 4.0f * mantissa(random) *
                                                     static_cast<float>(kUnit));
        }
      }
      long double exact = 0.0L;
      long double size = 0.0L;
      for (const float term : terms) {
        exact += term;
        size += std::fabs(term);
      }
      const TermSum<float> sum = SumOf(terms);
      const double bound = (kUnit + (n - 1.0) * (n - 1.0) * kUnit * kUnit) *
                           static_cast<double>(size);
      EXPECT_NEAR(sum.value(), static_cast<double>(exact), bound) << n;
      EXPECT_NEAR(sum.rounded(),
                  static_cast<double>(exact),
                  bound + kUnit * std::fabs(static_cast<double>(exact)))
          << n;
    }
  }
}

TEST(TermSum, OfManyTermsIsNotThatOfFloat) {
  const std::vector<float> terms(16384, 0.1f);
  float in_float = 0.0f;
  for (const float term : terms) {
    in_float += term;
  }
  const double n = 16384.0;
  const double exact = n * static_cast<double>(0.1f);
  const double bound = (kUnit + n * n * kUnit * kUnit) * exact;
  EXPECT_GT(std::fabs(in_float - exact), 10.0 * bound);
  EXPECT_NEAR(SumOf(terms).value(), exact, bound);
}

TEST(TermSum, OfNothingIsZero) {
  EXPECT_EQ(TermSum<float>().value(), 0.0);
  EXPECT_EQ(TermSum<double>().value(), 0.0);
}

TEST(TermSum, OfDoubleIsThatOfDouble) {
  const std::vector<double> terms = {1.0, 1e-17, 1e-17, -1.0, 3.0};
  double expected = 0.0;
  for (const double term : terms) {
    expected += term;
  }
  EXPECT_EQ(SumOf(terms).value(), expected);
  EXPECT_EQ(SumOf(terms).rounded(), expected);
}

// Sums of infinity and NaN are not finite.
TEST(TermSum, KeepsWhatIsNotFinite) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  for (const float term : {kInfinity, -kInfinity, kNaN}) {
    const TermSum<float> sum = SumOf<float>({1.0f, term, 2.0f});
    EXPECT_FALSE(std::isfinite(sum.value()));
    EXPECT_FALSE(std::isfinite(sum.rounded()));
  }
}

}  // namespace
}  // namespace ceres_ext::kernels
