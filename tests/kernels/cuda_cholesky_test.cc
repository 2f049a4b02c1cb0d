// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The dense factorisation on a device, against bounds (cholesky_test_util.h).
// Elements above the diagonal of a matrix are NaN.
#include "cuda_kernels/machine/cuda_cholesky.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "cuda_kernels/machine/cuda_small_cholesky.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kernels/cholesky_test_util.h"
#include "tests/kernels/cuda_faults.h"
#include "tests/kernels/cuda_test_util.h"

#ifdef CERES_EXT_EMULATED
#include "tests/kernels/emulation/cuda_runtime.h"
#include "tests/kernels/emulation/spoiler.h"
#endif

namespace ceres_ext::kernels {
namespace {

using Options = CudaDenseCholesky::Options;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Those up to 224 are factorised by one block of threads, in blocks of 16.
constexpr int64_t kSizes[] = {
    1, 2, 15, 16, 17, 31, 33, 64, 144, 145, 224, 225, 257};

// B D B', B = I except for elements 0 or +-1 of the second half of the rows and
// the first half of the columns, D = I except for element k, which is `pivot`.
// The pivots of Cholesky's factorisation are D's, computed with integers alone.
Matrix WithPivot(int64_t n, int64_t k, double pivot) {
  std::mt19937 random(static_cast<unsigned>(n + k));
  const int64_t half = n / 2;
  const auto d = [&](int64_t i) { return i == k ? pivot : 1.0; };
  std::vector<double> b(static_cast<size_t>(n * n), 0.0);
  const auto at = [&](int64_t i, int64_t j) -> double& {
    return b[static_cast<size_t>(i * n + j)];
  };
  for (int64_t i = 0; i < n; ++i) {
    at(i, i) = 1.0;
    for (int64_t j = 0; i >= half && j < half; ++j) {
      at(i, j) = static_cast<double>(random() % 3) - 1.0;
    }
  }
  Matrix matrix(n);
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = j; i < n; ++i) {
      for (int64_t l = 0; l <= j; ++l) {
        matrix.At(i, j) += at(i, l) * d(l) * at(j, l);
      }
    }
  }
  return matrix;
}

TEST(CudaDenseCholeskyLibraries, AreThereOrMissed) {
  const Status status = CudaDenseCholesky::Available();
  if (status.ok()) {
    EXPECT_TRUE(CudaDenseCholesky::Available().ok());
  } else {
    EXPECT_EQ(status.code, StatusCode::kUnsupported);
    EXPECT_TRUE(status.message.find("cuSOLVER") != std::string::npos ||
                status.message.find("cuBLAS") != std::string::npos)
        << status.message;
    EXPECT_EQ(CudaDenseCholesky::Available().message, status.message);
  }
}

// With Stride(n) values from column to column, NaN behind each column, and
// back.
std::vector<double> Strided(const Matrix& matrix) {
  const int64_t stride = CudaDenseCholesky::Stride(matrix.n);
  std::vector<double> a(static_cast<size_t>(matrix.n * stride),
                        std::numeric_limits<double>::quiet_NaN());
  for (int64_t j = 0; j < matrix.n; ++j) {
    std::copy_n(
        matrix.a.begin() + j * matrix.n, matrix.n, a.begin() + j * stride);
  }
  return a;
}
std::vector<double> Unstrided(int64_t n, const std::vector<double>& a) {
  std::vector<double> matrix;
  for (int64_t j = 0; j < n; ++j) {
    const auto column = a.begin() + j * CudaDenseCholesky::Stride(n);
    matrix.insert(matrix.end(), column, column + n);
  }
  return matrix;
}

class CudaDenseCholeskyTest : public FactorizationTest<CudaDenseCholesky> {
 protected:
  // Each call of a solution of n rows fails in turn.
  void MayFail(int64_t n);

  // The factor in *l, which may be null, the solution in *x, which may be null
  // if there is none.
  int64_t FactorizeAndSolve(const Matrix& matrix,
                            const std::vector<double>& b,
                            CudaDenseCholesky* cholesky,
                            std::vector<double>* l,
                            std::vector<double>* x) {
    DeviceBuffer<double> a = Upload(Strided(matrix));
    int64_t failed_order = -1;
    const Status status = cholesky->Factorize(a.data(), &failed_order);
    EXPECT_TRUE(status.ok()) << status.message;
    if (status.ok() && failed_order == 0 && x != nullptr) {
      DeviceBuffer<double> rhs = Upload(b);
      DeviceBuffer<double> solution = Poisoned<double>(matrix.n);
      const Status solved = cholesky->Solve(rhs.data(), solution.data());
      EXPECT_TRUE(solved.ok()) << solved.message;
      *x = Download(solution);
      EXPECT_TRUE(SameBits(Download(rhs), b));
      // In place.
      const Status again = cholesky->Solve(rhs.data(), rhs.data());
      EXPECT_TRUE(again.ok()) << again.message;
      EXPECT_TRUE(SameBits(Download(rhs), *x));
      const Status checked = cholesky->CheckSolution();
      const bool is_finite = std::all_of(b.begin(), b.end(), [](double value) {
        return std::isfinite(value);
      });
      EXPECT_EQ(checked.code,
                is_finite ? StatusCode::kOk : StatusCode::kNumericalFailure)
          << checked.message;
    }
    if (l != nullptr) {
      *l = Unstrided(matrix.n, Download(a));
    }
    return failed_order;
  }
};

constexpr CudaDenseCholesky::Options kGradients{true, 0, true};

TEST_F(CudaDenseCholeskyTest, SolvesToRounding) {
  CudaDenseCholesky cholesky;  // one for all
  for (const int64_t n : kSizes) {
    SCOPED_TRACE(n);
    const Matrix a = PositiveDefinite(n, 1);
    const std::vector<double> expected = Solution(n);
    const std::vector<double> b = RightHandSide(a, expected);
    ASSERT_OK(cholesky.Setup(n, {}, machine_.get()));
    std::vector<double> l;
    std::vector<double> x;
    ASSERT_EQ(FactorizeAndSolve(a, b, &cholesky, &l, &x), 0);
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t i = j; i < n; ++i) {
        long double difference = a(i, j);
        long double size = 0.0L;
        for (int64_t k = 0; k <= j; ++k) {
          const long double term =
              static_cast<long double>(l[static_cast<size_t>(k * n + i)]) *
              l[static_cast<size_t>(k * n + j)];
          difference -= term;
          size += std::fabs(term);
        }
        ASSERT_LE(std::fabs(difference), FactorError<double>(n) * size)
            << i << ", " << j;
      }
    }
    ExpectSolves(a, b, expected, static_cast<double>(n), x);
  }
}

TEST_F(CudaDenseCholeskyTest, NoRows) {
  for (const bool mixed_precision : {false, true}) {
    CudaDenseCholesky cholesky;
    int64_t num_bytes = -1;
    ASSERT_OK(cholesky.ForecastBytes(
        0, {mixed_precision, 2}, machine_.get(), &num_bytes));
    EXPECT_EQ(num_bytes, 0);
    ASSERT_OK(cholesky.Setup(0, {mixed_precision, 2}, machine_.get()));
    int64_t failed_order = -1;
    ASSERT_OK(cholesky.Factorize(nullptr, &failed_order));
    EXPECT_EQ(failed_order, 0);
    ASSERT_OK(cholesky.Solve(nullptr, nullptr));
  }
}

TEST_F(CudaDenseCholeskyTest, SameBitsTwice) {
  constexpr int64_t n = 257;
  const Matrix a = PositiveDefinite(n, 2);
  const std::vector<double> b = RandomVector(n, 3);
  for (const Options& options :
       {Options{false, 0}, Options{true, 0}, Options{true, 2}, kGradients}) {
    std::vector<double> first_l;
    std::vector<double> first_x;
    for (int object = 0; object < 2; ++object) {
      CudaDenseCholesky cholesky;
      for (int run = 0; run < 2; ++run) {
        ASSERT_OK(cholesky.Setup(n, options, machine_.get()));
        std::vector<double> l;
        std::vector<double> x;
        ASSERT_EQ(FactorizeAndSolve(a, b, &cholesky, &l, &x), 0);
        if (first_x.empty()) {
          first_l = l;
          first_x = x;
        }
        EXPECT_TRUE(SameBits(l, first_l));
        EXPECT_TRUE(SameBits(x, first_x));
        // A is kept for residuals.
        EXPECT_EQ(SameBits(l, a.a), options.mixed_precision);
      }
    }
  }
}

// X = A^-1 from L has errors of rounding alone, with blocks and products in any
// order: |A X - I| <= c n u |A| |X| |L^-1| |L| and the like, in norms (Du Croz
// and Higham 1992, section 4), here c = 8 and all norms of one of the two
// factors. The condition of A is at most trace / n.
TEST_F(CudaDenseCholeskyTest, Inverts) {
  CudaDenseCholesky cholesky;
  std::vector<int64_t> sizes(std::begin(kSizes), std::end(kSizes));
  // Beyond kInversionBlock, with rows behind it in half a pair of tiles.
  sizes.push_back(CudaDenseCholesky::kInversionBlock + 41);
#ifndef CERES_EXT_EMULATED
  sizes.push_back(2 * CudaDenseCholesky::kInversionBlock + 700);
#endif
  for (const int64_t n : sizes) {
    SCOPED_TRACE(n);
    const Matrix a = PositiveDefinite(n, 6);
    ASSERT_OK(cholesky.Setup(n, {}, machine_.get()));
    std::vector<double> first;
    for (int run = 0; run < 2; ++run) {
      DeviceBuffer<double> values = Upload(Strided(a));
      int64_t failed_order = -1;
      EXPECT_EQ(cholesky.Invert().code, StatusCode::kInvalidArgument);
      ASSERT_OK(cholesky.Factorize(values.data(), &failed_order));
      ASSERT_EQ(failed_order, 0);
      ASSERT_OK(cholesky.Invert());
      EXPECT_EQ(cholesky.Invert().code, StatusCode::kInvalidArgument);
      const std::vector<double> inverse = Unstrided(n, Download(values));
      const auto x = [&](int64_t i, int64_t j) {
        return inverse[static_cast<size_t>(j * n + i)];
      };
      if (run > 0) {
        EXPECT_TRUE(SameBits(inverse, first));
        break;
      }
      first = inverse;
      double norm = 0.0;
      for (int64_t j = 0; j < n; ++j) {
        for (int64_t i = 0; i < n; ++i) {
          ASSERT_EQ(x(i, j), x(j, i)) << i << ", " << j;
          norm += x(i, j) * x(i, j);
        }
      }
      const double condition = a.trace() / static_cast<double>(n);
      const double bound = 8.0 * static_cast<double>(n) *
                           kUnitRoundoff<double> * a.trace() * std::sqrt(norm) *
                           condition;
      // A column is enough of a large one.
      for (int64_t j = 0; j<n; j += n> 300 ? 97 : 1) {
        for (int64_t i = 0; i < n; ++i) {
          double sum = i == j ? -1.0 : 0.0;
          for (int64_t k = 0; k < n; ++k) {
            sum += a(i, k) * x(k, j);
          }
          ASSERT_LE(std::fabs(sum), bound) << i << ", " << j;
        }
      }
      // By it.
      const std::vector<double> b = RandomVector(2 * n, 7);
      DeviceBuffer<double> rhs = Upload(b);
      DeviceBuffer<double> solution = Poisoned<double>(2 * n);
      ASSERT_OK(cholesky.SolveColumns(2, rhs.data(), solution.data()));
      const std::vector<double> solved = Download(solution);
      for (int64_t c = 0; c < 2; ++c) {
        for (int64_t i = 0; i < n; ++i) {
          double sum = 0.0;
          double size = 0.0;
          for (int64_t k = 0; k < n; ++k) {
            const double term = x(i, k) * b[static_cast<size_t>(c * n + k)];
            sum += term;
            size += std::fabs(term);
          }
          ASSERT_LE(std::fabs(solved[static_cast<size_t>(c * n + i)] - sum),
                    2.0 * Gamma<double>(n) * size);
        }
      }
      EXPECT_EQ(cholesky.SolveColumns(1, rhs.data(), rhs.data()).code,
                StatusCode::kInvalidArgument);
      EXPECT_EQ(cholesky.Solve(rhs.data(), rhs.data()).code,
                StatusCode::kInvalidArgument);
    }
  }
}

TEST_F(CudaDenseCholeskyTest, NamesTheMinorThatIsNotPositive) {
  CudaDenseCholesky cholesky;
  for (const bool mixed_precision : {false, true}) {
    for (const int64_t n : {1, 2, 33, 257}) {
      ASSERT_OK(cholesky.Setup(n, {mixed_precision, 1}, machine_.get()));
      for (const int64_t k : {int64_t{0}, n / 2, n - 1}) {
        for (const double pivot : {-1.0, 0.0}) {
          SCOPED_TRACE(testing::Message()
                       << n << " rows, pivot " << k << " is " << pivot);
          EXPECT_EQ(
              FactorizeAndSolve(
                  WithPivot(n, k, pivot), {}, &cholesky, nullptr, nullptr),
              k + 1);
          const Status status = cholesky.Solve(nullptr, nullptr);
          EXPECT_EQ(status.code, StatusCode::kInvalidArgument);
        }
      }
      // It works again.
      std::vector<double> x;
      EXPECT_EQ(
          FactorizeAndSolve(WithPivot(n, n / 2, 1.0),
                            std::vector<double>(static_cast<size_t>(n), 1.0),
                            &cholesky,
                            nullptr,
                            &x),
          0);
    }
  }
}

TEST_F(CudaDenseCholeskyTest, FindsWhatIsNotFinite) {
  CudaDenseCholesky cholesky;
  for (const bool mixed_precision : {false, true}) {
    for (const int64_t n : {1, 2, 33, 257}) {
      ASSERT_OK(cholesky.Setup(n, {mixed_precision, 1}, machine_.get()));
      const Matrix good = PositiveDefinite(n, 4);
      std::vector<double> values = {kNaN, kInfinity, -kInfinity};
      if (mixed_precision) {
        values.push_back(1e300);  // infinite in float
      }
      for (const double value : values) {
        for (const auto& [i, j] : {std::pair{int64_t{0}, int64_t{0}},
                                   {n / 2, n / 2},
                                   {n / 2, n / 3},
                                   {n - 1, int64_t{0}},
                                   {n - 1, n - 1}}) {
          SCOPED_TRACE(testing::Message() << n << " rows, (" << i << ", " << j
                                          << ") is " << value);
          Matrix a = good;
          a.At(i, j) = value;
          const int64_t failed_order =
              FactorizeAndSolve(a, {}, &cholesky, nullptr, nullptr);
          EXPECT_GE(failed_order, 1);
          EXPECT_LE(failed_order, i + 1);
        }
      }
    }
  }
}

TEST_F(CudaDenseCholeskyTest, MixedPrecisionIsRefined) {
  CudaDenseCholesky cholesky;
  // Between two floats.
  const double part = std::ldexp(1.0, -26);
  for (const int64_t n : kSizes) {
    const Matrix a = PositiveDefinite(n, 5);
    const std::vector<double> expected = Solution(n, part);
    const std::vector<double> b = RightHandSide(a, expected);
    const double least = static_cast<double>(n);  // eigenvalue
    // A is exact in float. For the error of x, r = b - A x:
    //   x_0 = (A + E)^-1 (b + c), |c| <= u_f |b|
    //   e_i+1 = (A + E)^-1 (E e_i + c_i + g_i) + h_i
    // where |c_i| <= u_f (|A| |e_i| + |g_i|) is r's rounding to float, |g_i| <=
    // g(n + 2) (|A| |x_i| + |b|) that of r in double and |h_i| <= u |x_i+1|
    // that of the sum. |x_i| <= 2 |x|.
    const double norm = a.trace();
    const double e = SolveError<float>(n) * norm;
    const double inverse = 1.0 / (least - e);
    ASSERT_GT(inverse, 0.0);
    constexpr double kFloat = kUnitRoundoff<float>;
    const double shrink = inverse * (e + kFloat * norm);
    ASSERT_LT(shrink, 0.1);
    const double floor = inverse * (1.0 + kFloat) * Gamma<double>(n + 2) *
                             (2.0 * norm * Norm(expected) + Norm(b)) +
                         kUnitRoundoff<double> * 2.0 * Norm(expected);
    double bound = inverse * (e * Norm(expected) + kFloat * Norm(b));
    for (int i = 0; i <= 10; ++i, bound = shrink * bound + floor) {
      SCOPED_TRACE(testing::Message() << n << " rows, refined " << i);
      ASSERT_OK(cholesky.Setup(n, {true, i}, machine_.get()));
      std::vector<double> x;
      ASSERT_EQ(FactorizeAndSolve(a, b, &cholesky, nullptr, &x), 0);
      const double error = Distance(x, expected);
      EXPECT_LE(error, bound);
      if (i == 0) {
        // Every element is a float.
        EXPECT_GE(error, 0.999 * part * std::sqrt(static_cast<double>(n)));
        for (const double value : x) {
          EXPECT_EQ(static_cast<double>(static_cast<float>(value)), value);
        }
      }
    }
    EXPECT_LT(bound, 0.5 * part * std::sqrt(static_cast<double>(n)));
  }
}

// Conjugate gradients end where r'M^-1 r is kTolerance^2 of b'M^-1 b, M = A + S
// (1 + rounding), S = s diag(A). As M is at least A, and at most (1 + t) A
// where t is the most of S against A,
//   e'A e = r'A^-1 r <= (1 + t) r'M^-1 r <= (1 + t) kTolerance^2 x'A x
// with 1 / 2 for rounding, by which M is off by less than S.
void ExpectGradientsSolve(const Matrix& a,
                          double least,  // eigenvalue of A
                          const std::vector<double>& expected,
                          const std::vector<double>& x) {
  const int64_t n = a.n;
  double most = 0.0;
  for (int64_t i = 0; i < n; ++i) {
    most = std::max(most, a(i, i));
  }
  const double shift = CudaDenseCholesky::kShift * kUnitRoundoff<float> *
                       std::sqrt(static_cast<double>(n));
  const auto square = [&](const std::vector<double>& v) {
    const std::vector<long double> product = Product(a, v);
    return static_cast<double>(
        std::inner_product(v.begin(), v.end(), product.begin(), 0.0L));
  };
  std::vector<double> error = expected;
  for (int64_t i = 0; i < n; ++i) {
    error[static_cast<size_t>(i)] -= x[static_cast<size_t>(i)];
  }
  constexpr double kTolerance = CudaDenseCholesky::kTolerance;
  EXPECT_LE(square(error),
            1.5 * (1.0 + 1.5 * shift * most / least) * kTolerance * kTolerance *
                square(expected));
}

TEST_F(CudaDenseCholeskyTest, ConjugateGradientsSolve) {
  CudaDenseCholesky cholesky;
  for (const int64_t n : kSizes) {
    SCOPED_TRACE(n);
    const Matrix a = PositiveDefinite(n, 5);
    const std::vector<double> expected = Solution(n);
    ASSERT_OK(cholesky.Setup(n, kGradients, machine_.get()));
    std::vector<double> x;
    ASSERT_EQ(FactorizeAndSolve(
                  a, RightHandSide(a, expected), &cholesky, nullptr, &x),
              0);
    ExpectGradientsSolve(a, static_cast<double>(n), expected, x);
    // Zero has the solution zero.
    const std::vector<double> zero(static_cast<size_t>(n), 0.0);
    ASSERT_EQ(FactorizeAndSolve(a, zero, &cholesky, nullptr, &x), 0);
    EXPECT_EQ(x, zero);
  }
}

// All but seven directions, as those of a gauge, bend by n or more, and those
// by 1e-9 of the diagonal: float has no digit of them, and a factor without a
// shift is one of rounding or does not exist.
TEST_F(CudaDenseCholeskyTest, ConjugateGradientsSolveWithAGauge) {
  constexpr int kGauge = 7;
  for (const int64_t n : {40, 150}) {
    SCOPED_TRACE(n);
    const int64_t k = n - kGauge;
    std::mt19937 random(static_cast<unsigned>(n));
    std::vector<double> rows(static_cast<size_t>(n * k));
    for (double& value : rows) {
      value = static_cast<double>(random() % 2049) / 1024.0 - 1.0;
    }
    Matrix a(n);
    double most = 0.0;
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t i = j; i < n; ++i) {
        a.At(i, j) = std::inner_product(rows.begin() + i * k,
                                        rows.begin() + (i + 1) * k,
                                        rows.begin() + j * k,
                                        0.0);
      }
      most = std::max(most, a(j, j));
    }
    const double least = std::ldexp(1.0, std::ilogb(1e-9 * most));
    for (int64_t i = 0; i < n; ++i) {
      a.At(i, i) += least;
    }
    const std::vector<double> expected = Solution(n);
    CudaDenseCholesky cholesky;
    ASSERT_OK(cholesky.Setup(n, kGradients, machine_.get()));
    std::vector<double> x;
    ASSERT_EQ(FactorizeAndSolve(
                  a, RightHandSide(a, expected), &cholesky, nullptr, &x),
              0);
    ExpectGradientsSolve(a, least, expected, x);
  }
}

// A matrix that is not positive definite has no factor, and a right-hand side
// that is not finite no solution.
TEST_F(CudaDenseCholeskyTest, ConjugateGradientsFailOrFindTheMinor) {
  for (const int64_t n : {2, 33}) {
    CudaDenseCholesky cholesky;
    ASSERT_OK(cholesky.Setup(n, kGradients, machine_.get()));
    DeviceBuffer<double> a = Upload(Strided(WithPivot(n, n - 1, -1.0)));
    int64_t failed_order = 0;
    ASSERT_OK(cholesky.Factorize(a.data(), &failed_order));
    EXPECT_EQ(failed_order, n);
    a = Upload(Strided(WithPivot(n, n - 1, 1.0)));
    ASSERT_OK(cholesky.Factorize(a.data(), &failed_order));
    ASSERT_EQ(failed_order, 0);
    std::vector<double> b(static_cast<size_t>(n), kNaN);
    DeviceBuffer<double> x = Upload(b);
    EXPECT_EQ(cholesky.Solve(x.data(), x.data()).code,
              StatusCode::kNumericalFailure);
  }
}

TEST_F(CudaDenseCholeskyTest, ARightHandSideThatIsNotFinite) {
  constexpr int64_t n = 33;
  for (const Options& options : {Options{false, 0}, Options{true, 2}}) {
    CudaDenseCholesky cholesky;
    ASSERT_OK(cholesky.Setup(n, options, machine_.get()));
    for (const double value : {kNaN, kInfinity}) {
      std::vector<double> b(n, 1.0);
      b[n - 1] = value;
      std::vector<double> x;
      ASSERT_EQ(
          FactorizeAndSolve(PositiveDefinite(n, 6), b, &cholesky, nullptr, &x),
          0);
      EXPECT_FALSE(std::isfinite(x[n - 1]));
    }
  }
}

// The check is one of the backward error, which no condition makes larger.
TEST_F(CudaDenseCholeskyTest, SolutionsOfAnyConditionAreRight) {
  CudaDenseCholesky cholesky;
  for (const Matrix& a : IllConditioned()) {
    SCOPED_TRACE(a.n);
    ASSERT_OK(cholesky.Setup(a.n, {}, machine_.get()));
    for (const unsigned seed : {1, 2, 3}) {
      std::vector<double> x;
      ASSERT_EQ(
          FactorizeAndSolve(a, RandomVector(a.n, seed), &cholesky, nullptr, &x),
          0);
    }
    // A right-hand side of zero, and one next to the least double.
    for (const double value : {0.0, 1e-308}) {
      std::vector<double> x;
      ASSERT_EQ(FactorizeAndSolve(
                    a,
                    std::vector<double>(static_cast<size_t>(a.n), value),
                    &cholesky,
                    nullptr,
                    &x),
                0);
    }
  }
}

TEST_F(CudaDenseCholeskyTest, TakesWhatItForecasts) {
  constexpr int64_t n = 129;
  int64_t at_least = 0;
  for (const Options& options :
       {Options{false, 0}, Options{true, 0}, Options{true, 3}}) {
    ASSERT_NO_FATAL_FAILURE(SetUpMachine({}));
    const int64_t before = context_->used_bytes();
    int64_t num_bytes = 0;
    {
      CudaDenseCholesky cholesky;
      ASSERT_OK(cholesky.ForecastBytes(n, options, machine_.get(), &num_bytes));
      EXPECT_EQ(context_->used_bytes(), before);
      for (int run = 0; run < 2; ++run) {
        ASSERT_OK(cholesky.Setup(n, options, machine_.get()));
        EXPECT_EQ(context_->used_bytes(), before + num_bytes);
      }
      EXPECT_GT(num_bytes, at_least);
      at_least = num_bytes;
      // The memory of a smaller one.
      ASSERT_OK(cholesky.Setup(2, {}, machine_.get()));
      EXPECT_LT(context_->used_bytes(), before + num_bytes);
    }
    EXPECT_EQ(context_->used_bytes(), before);

    CudaContextOptions limited;
    for (const int64_t less : {0, 1}) {
      limited.memory_limit = before + num_bytes - less;
      ASSERT_NO_FATAL_FAILURE(SetUpMachine(limited));
      CudaDenseCholesky cholesky;
      const Status status = cholesky.Setup(n, options, machine_.get());
      if (less == 0) {
        EXPECT_TRUE(status.ok()) << status.message;
        EXPECT_EQ(context_->used_bytes(), limited.memory_limit);
      } else {
        EXPECT_EQ(status.code, StatusCode::kOutOfMemory);
        EXPECT_EQ(context_->used_bytes(), before);
        int64_t failed_order = 0;
        EXPECT_EQ(cholesky.Factorize(nullptr, &failed_order).code,
                  StatusCode::kInvalidArgument);
      }
    }
  }
}

TEST_F(CudaDenseCholeskyTest, WrongCallsAreRefused) {
  CudaDenseCholesky cholesky;
  int64_t failed_order = 0;
  EXPECT_EQ(cholesky.Factorize(nullptr, &failed_order).code,
            StatusCode::kInvalidArgument);
  EXPECT_EQ(cholesky.Solve(nullptr, nullptr).code,
            StatusCode::kInvalidArgument);
  for (const int64_t n : {int64_t{-1}, CudaDenseCholesky::kMaxSize + 1}) {
    EXPECT_EQ(cholesky.Setup(n, {}, machine_.get()).code,
              StatusCode::kInvalidArgument);
    int64_t num_bytes = 0;
    EXPECT_EQ(cholesky.ForecastBytes(n, {}, machine_.get(), &num_bytes).code,
              StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(cholesky.Setup(3, {true, -1}, machine_.get()).code,
            StatusCode::kInvalidArgument);
  // The largest one's bytes are a number.
  int64_t num_bytes = 0;
  const Status status = cholesky.ForecastBytes(
      CudaDenseCholesky::kMaxSize, {true, 1}, machine_.get(), &num_bytes);
  if (status.ok()) {
    EXPECT_GT(num_bytes, int64_t{1} << 60);
  }
  ASSERT_OK(cholesky.Setup(3, {}, machine_.get()));
  EXPECT_EQ(cholesky.Solve(nullptr, nullptr).code,
            StatusCode::kInvalidArgument);
}

#ifdef CERES_EXT_EMULATED

// The output of a library that reports success.
TEST_F(CudaDenseCholeskyTest, WrongSolutionsAreSeen) {
  constexpr int64_t n = 129;
  const Matrix a = PositiveDefinite(n, 8);
  for (const Options& options :
       {Options{false, 0}, Options{true, 0}, Options{true, 2}}) {
    CudaDenseCholesky cholesky;
    ASSERT_OK(cholesky.Setup(n, options, machine_.get()));
    DeviceBuffer<double> matrix = Upload(Strided(a));
    for (const Spoiled& kind : SpoiledSolutions()) {
      SCOPED_TRACE(testing::Message() << kind.name << ", refined "
                                      << options.max_num_refinement_iterations);
      DeviceBuffer<double> x = Upload(RightHandSide(a, Solution(n)));
      ASSERT_OK(machine_->Upload(static_cast<int64_t>(Strided(a).size()),
                                 Strided(a).data(),
                                 matrix.data()));
      ASSERT_OK(cholesky.QueueFactorization(matrix.data()));
      emulation::spoiler() = [&kind](
                                 const char* library, int64_t i, double value) {
        EXPECT_STREQ(library, "cuSOLVER");
        return kind.spoil(i, value);
      };
      ASSERT_OK(cholesky.Solve(x.data(), x.data()));
      emulation::spoiler() = nullptr;
      int64_t failed_order = -1;
      ASSERT_OK(cholesky.ReadFailedOrder(&failed_order));
      EXPECT_EQ(failed_order, 0);
      const Status status = cholesky.CheckSolution();
      EXPECT_EQ(status.code, StatusCode::kDeviceError);
      EXPECT_EQ(status.message.find("cuSOLVER 999.0.0 reported success, but "
                                    "its solution of 129 equations is "),
                0)
          << status.message;
      // The next one is right.
      ASSERT_OK(cholesky.Solve(x.data(), x.data()));
    }
  }
}

TEST_F(CudaDenseCholeskyTest, NoLibraries) {
  if (std::getenv("CERES_EXT_TEST_NO_LIBRARIES") == nullptr) {
    GTEST_SKIP() << "skipped: the libraries are there; another run is of this";
  }
  const Status status = CudaDenseCholesky::Available();
  EXPECT_EQ(status.code, StatusCode::kUnsupported);
  EXPECT_NE(status.message.find("libcusolver.so.999"), std::string::npos)
      << status.message;
  CudaDenseCholesky cholesky;
  int64_t num_bytes = 0;
  EXPECT_EQ(cholesky.ForecastBytes(3, {}, machine_.get(), &num_bytes).message,
            status.message);
  EXPECT_EQ(cholesky.Setup(3, {}, machine_.get()).message, status.message);
  int64_t failed_order = 0;
  EXPECT_EQ(cholesky.Factorize(nullptr, &failed_order).code,
            StatusCode::kInvalidArgument);
}

// Each call of CUDA and of the libraries fails in turn, alone or with all that
// follow: an error, nothing is left behind, and the next try works.
TEST_F(CudaDenseCholeskyTest, EveryCallMayFail) {
  for (const int64_t n : {5, 225}) {
    SCOPED_TRACE(n);
    MayFail(n);
  }
}

void CudaDenseCholeskyTest::MayFail(int64_t n) {
  const Matrix matrix = PositiveDefinite(n, 7);
  const std::vector<double> expected = Solution(n);
  const std::vector<double> rhs = RightHandSide(matrix, expected);
  const std::vector<double> values = Strided(matrix);
  DeviceBuffer<double> a = Upload(values);
  DeviceBuffer<double> b = Upload(rhs);
  DeviceBuffer<double> x = Poisoned<double>(n);
  context_->ReleaseKeptMemory();
  ReleaseLibraryHandles();
  const int64_t num_held = cuda_faults().num_held();
  for (const Options& options :
       {Options{false, 0}, Options{true, 2}, kGradients}) {
    for (const bool and_all_later : {false, true}) {
      std::vector<std::string> failed_calls;
      for (int64_t i = 1;; ++i) {
        ASSERT_OK(machine_->Upload(a.size(), values.data(), a.data()));
        bool has_failed = false;
        {
          CudaDenseCholesky cholesky;
          const auto run = [&]() -> Status {
            int64_t num_bytes = 0;
            CERES_EXT_RETURN_IF_ERROR(
                cholesky.ForecastBytes(n, options, machine_.get(), &num_bytes));
            CERES_EXT_RETURN_IF_ERROR(
                cholesky.Setup(n, options, machine_.get()));
            int64_t failed_order = 0;
            CERES_EXT_RETURN_IF_ERROR(
                cholesky.Factorize(a.data(), &failed_order));
            EXPECT_EQ(failed_order, 0);
            CERES_EXT_RETURN_IF_ERROR(cholesky.Solve(b.data(), x.data()));
            CERES_EXT_RETURN_IF_ERROR(cholesky.CheckSolution());
            return machine_->Synchronize();
          };
          cuda_faults().Start(i, and_all_later);
          const Status status = run();
          has_failed = !cuda_faults().failed_call().empty();
          failed_calls.push_back(cuda_faults().failed_call());
          cuda_faults().Stop();
          EXPECT_EQ(status.ok(), !has_failed) << failed_calls.back();
          if (has_failed) {
            EXPECT_TRUE(status.code == StatusCode::kDeviceError ||
                        status.code == StatusCode::kOutOfMemory)
                << status.message;
            EXPECT_FALSE(status.message.empty());
          }
          ASSERT_OK(machine_->Upload(a.size(), values.data(), a.data()));
          ASSERT_OK(run());
          EXPECT_LT(Distance(Download(x), expected), 1e-4);
        }
        context_->ReleaseKeptMemory();
        ReleaseLibraryHandles();
        EXPECT_EQ(cuda_faults().num_held(), num_held);
        if (!has_failed) {
          break;
        }
      }
      // The libraries' calls are among them.
      for (const char* name : {"cudaMalloc",
                               "cusolverDnCreate",
                               "cusolverDnCreateParams",
                               "cusolverDnSetStream",
                               "cusolverDnXpotrf_bufferSize"}) {
        EXPECT_THAT(failed_calls, testing::Contains(name));
      }
      if (options.mixed_precision || n > MostRowsOfSmallCholesky(*context_)) {
        for (const char* name : {"cusolverDnXpotrf", "cusolverDnXpotrs"}) {
          EXPECT_THAT(failed_calls, testing::Contains(name));
        }
      }
      if (options.mixed_precision) {
        for (const char* name : {"cublasCreate",
                                 "cublasSetStream",
                                 "cublasSetAtomicsMode",
                                 "cublasDsymv_64"}) {
          EXPECT_THAT(failed_calls, testing::Contains(name));
        }
      }
    }
  }
}

TEST_F(CudaDenseCholeskyTest, OfALostDeviceNothingIsFreed) {
  const int64_t num_wrong_frees = emulation::driver().num_wrong_frees;
  {
    CudaDenseCholesky cholesky;
    ASSERT_OK(cholesky.Setup(5, {true, 1}, machine_.get()));
    emulation::Reset();
    machine_->ForgetIfLost();
  }
  machine_.reset();
  context_.reset();
  EXPECT_EQ(emulation::driver().num_wrong_frees, num_wrong_frees);
  EXPECT_EQ(cuda_faults().num_held(), 0);
}

#else

// Beyond what 32 bits can number, with 17 GB.
TEST_F(CudaDenseCholeskyTest, MoreThan46340Rows) {
  constexpr int64_t n = 46401;
  constexpr int64_t stride = CudaDenseCholesky::Stride(n);
  DeviceBuffer<double> a;
  const Status status = a.Allocate(context_.get(), n * stride);
  if (status.code == StatusCode::kOutOfMemory) {
    GTEST_SKIP() << "skipped: " << status.message;
  }
  ASSERT_OK(status);
  CudaDenseCholesky cholesky;
  const Status setup = cholesky.Setup(n, {}, machine_.get());
  if (setup.code == StatusCode::kOutOfMemory) {
    GTEST_SKIP() << "skipped: " << setup.message;
  }
  ASSERT_OK(setup);
  for (const double last : {4.0, -4.0}) {
    // 4 I with `last` at its end, and 2 in a corner.
    ASSERT_OK(a.SetZero());
    for (int64_t i = 0; i < n; ++i) {
      const double diagonal = i == n - 1 ? last : 4.0;
      ASSERT_OK(machine_->Upload(1, &diagonal, a.data() + i * stride + i));
    }
    const double corner = 2.0;
    ASSERT_OK(machine_->Upload(1, &corner, a.data() + n - 1));
    int64_t failed_order = -1;
    ASSERT_OK(cholesky.Factorize(a.data(), &failed_order));
    if (last < 0.0) {
      EXPECT_EQ(failed_order, n);
      continue;
    }
    ASSERT_EQ(failed_order, 0);
    // 4 x_0 + 2 x_n-1 = 6, 2 x_0 + 4 x_n-1 = 6, 4 x_i = 4.
    std::vector<double> b(static_cast<size_t>(n), 4.0);
    b.front() = b.back() = 6.0;
    DeviceBuffer<double> x = Upload(b);
    ASSERT_OK(cholesky.Solve(x.data(), x.data()));
    for (const double value : Download(x)) {
      ASSERT_NEAR(value, 1.0, 64 * kUnitRoundoff<double>);
    }
  }
}

#endif

}  // namespace
}  // namespace ceres_ext::kernels
