// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Matrices, bounds and right-hand sides for the tests of factorisations.
// Matrices are of small integers, so that they and their products with
// solutions are exact.
//
// Bounds (Higham, Accuracy and Stability of Numerical Algorithms, 10.1), with
// u the unit roundoff, g(k) = k u / (1 - k u), any order of rows and of sums:
//   |A - L L'| <= g(n + 5) |L| |L'|
//   (A + E) x = b, |E| <= g(3 n + 7) |L| |L'|
//   (|L| |L'|)_ij <= sqrt(a_ii a_jj) / (1 - g(n + 5))
// so that |E| <= e d d', e = g(3 n + 7) / (1 - g(n + 5)), d_i = sqrt(a_ii), and
// in norms of 2, |E| <= e trace(A).
//
// With roots and quotients that are rounded once it is n + 1 and 3 n + 1. A
// device multiplies: with r = p^(-1/2) (1 + d) of pivot p, where |d| <= 2 u
// (CUDA's rsqrt is within one unit in the last place), l_jj = p r (1 + u) and
// l_ij = s r (1 + u) have a product of s (1 + d)^2 (1 + u)^2, six roundings in
// place of two; and each of the two solutions has a reciprocal and a product in
// place of a quotient.
#ifndef CERES_EXT_TESTS_KERNELS_CHOLESKY_TEST_UTIL_H_
#define CERES_EXT_TESTS_KERNELS_CHOLESKY_TEST_UTIL_H_

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "cuda_kernels/machine/cuda_library_handles.h"
#include "gtest/gtest.h"
#include "tests/kernels/cuda_test_util.h"
#include "tests/kernels/running_error.h"

namespace ceres_ext::kernels {

template <typename T>
double Gamma(int64_t k) {
  const double ku = static_cast<double>(k) * kUnitRoundoff<T>;
  return ku / (1.0 - ku);
}
// The error of L L', relative to |L| |L'|.
template <typename T>
double FactorError(int64_t n) {
  return Gamma<T>(n + 5);
}
// e above.
template <typename T>
double SolveError(int64_t n) {
  return Gamma<T>(3 * n + 7) / (1.0 - FactorError<T>(n));
}

// On a device, with the libraries that Cholesky is made of: an emulated device
// has them unless the environment says that it is to be without.
template <typename Cholesky>
class FactorizationTest : public CudaTest {
 protected:
  // A sanitizer would call handles that wait for their next user leaks.
  static void TearDownTestSuite() { ReleaseLibraryHandles(); }

  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped()) {
      return;
    }
    const Status status = Cholesky::Available();
#ifdef CERES_EXT_EMULATED
    if (std::getenv("CERES_EXT_TEST_NO_LIBRARIES") == nullptr) {
      ASSERT_OK(status);
    }
#else
    if (!status.ok()) {
      GTEST_SKIP() << "skipped: " << status.message;
    }
#endif
  }
};

// A symmetric matrix by its lower triangle, column-major; NaN above it.
struct Matrix {
  explicit Matrix(int64_t n_in)
      : n(n_in),
        a(static_cast<size_t>(n_in * n_in),
          std::numeric_limits<double>::quiet_NaN()) {
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t i = j; i < n; ++i) {
        At(i, j) = 0.0;
      }
    }
  }
  double& At(int64_t i, int64_t j) { return a[static_cast<size_t>(j * n + i)]; }
  double operator()(int64_t i, int64_t j) const {
    return a[static_cast<size_t>(i >= j ? j * n + i : i * n + j)];
  }
  double trace() const {
    double sum = 0.0;
    for (int64_t i = 0; i < n; ++i) {
      sum += (*this)(i, i);
    }
    return sum;
  }

  int64_t n;
  std::vector<double> a;
};

// M M' + n I.
inline Matrix FromFactor(int64_t n, const std::vector<double>& m) {
  Matrix matrix(n);
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = j; i < n; ++i) {
      double sum = i == j ? static_cast<double>(n) : 0.0;
      for (int64_t k = 0; k < n; ++k) {
        sum += m[static_cast<size_t>(i * n + k)] *
               m[static_cast<size_t>(j * n + k)];
      }
      matrix.At(i, j) = sum;
    }
  }
  return matrix;
}

// M M' + n I, elements of M 0 or +-1. No eigenvalue is below n, and |A| is at
// most the trace.
inline Matrix PositiveDefinite(int64_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<double> m(static_cast<size_t>(n * n));
  for (double& x : m) {
    x = static_cast<double>(random() % 3) - 1.0;
  }
  return FromFactor(n, m);
}

// Matrices of a condition up to 1 / u, with factors: Hilbert's, of 12 rows, and
// unit lower triangular B D B' with D from 1 to 2^-45. Then the same scaled by
// powers of two, so that elements differ by 2^120.
inline std::vector<Matrix> IllConditioned() {
  std::vector<Matrix> matrices;
  matrices.emplace_back(12);
  for (int64_t j = 0; j < 12; ++j) {
    for (int64_t i = j; i < 12; ++i) {
      matrices.back().At(i, j) = 1.0 / static_cast<double>(i + j + 1);
    }
  }
  constexpr int64_t n = 70;
  std::mt19937 random(9);
  std::vector<double> b(n * n, 0.0);
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < i; ++j) {
      b[static_cast<size_t>(i * n + j)] =
          random() % 8 == 0 ? static_cast<double>(random() % 3) - 1.0 : 0.0;
    }
    b[static_cast<size_t>(i * n + i)] = 1.0;
  }
  matrices.emplace_back(n);
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = j; i < n; ++i) {
      for (int64_t k = 0; k <= j; ++k) {
        matrices.back().At(i, j) +=
            std::ldexp(b[static_cast<size_t>(i * n + k)] *
                           b[static_cast<size_t>(j * n + k)],
                       -static_cast<int>(45 * k / n));
      }
    }
  }
  for (const Matrix& a : std::vector<Matrix>(matrices)) {
    matrices.push_back(a);
    for (int64_t j = 0; j < a.n; ++j) {
      for (int64_t i = j; i < a.n; ++i) {
        matrices.back().At(i, j) =
            std::ldexp(a(i, j), static_cast<int>(i % 61 + j % 61) - 60);
      }
    }
  }
  return matrices;
}

// Integers from 1 to 8, and a part that makes them more than float can hold.
inline std::vector<double> Solution(int64_t n, double part = 0.0) {
  std::mt19937 random(static_cast<unsigned>(n));
  std::vector<double> x(static_cast<size_t>(n));
  for (double& value : x) {
    value = static_cast<double>(random() % 8 + 1) + part;
  }
  return x;
}

// A x, exactly in long double where it is not in double.
inline std::vector<long double> Product(const Matrix& a,
                                        const std::vector<double>& x) {
  std::vector<long double> y(x.size(), 0.0L);
  for (int64_t i = 0; i < a.n; ++i) {
    for (int64_t j = 0; j < a.n; ++j) {
      y[static_cast<size_t>(i)] +=
          static_cast<long double>(a(i, j)) * x[static_cast<size_t>(j)];
    }
  }
  return y;
}
inline std::vector<double> RightHandSide(const Matrix& a,
                                         const std::vector<double>& x) {
  const std::vector<long double> y = Product(a, x);
  std::vector<double> b(y.begin(), y.end());
  for (size_t i = 0; i < b.size(); ++i) {
    EXPECT_EQ(static_cast<long double>(b[i]), y[i]) << "not exact";
  }
  return b;
}

inline double Norm(const std::vector<double>& x) {
  double sum = 0.0;
  for (const double value : x) {
    sum += value * value;
  }
  return std::sqrt(sum);
}
inline double Distance(std::vector<double> x, const std::vector<double>& y) {
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] -= y[i];
  }
  return Norm(x);
}

// True if x solves A x = b as well as a factorisation in double must: the bound
// of the residual, element by element, and with it that of the solution where
// no eigenvalue of A is below `least`.
inline void ExpectSolves(const Matrix& a,
                         const std::vector<double>& b,
                         const std::vector<double>& expected,
                         double least,
                         const std::vector<double>& x) {
  double sum = 0.0;
  for (int64_t j = 0; j < a.n; ++j) {
    sum += std::sqrt(a(j, j)) * std::fabs(x[static_cast<size_t>(j)]);
  }
  const std::vector<long double> ax = Product(a, x);
  std::vector<double> bound;
  for (int64_t i = 0; i < a.n; ++i) {
    const size_t at = static_cast<size_t>(i);
    bound.push_back(SolveError<double>(a.n) * std::sqrt(a(i, i)) * sum);
    ASSERT_LE(std::fabs(ax[at] - b[at]), bound.back()) << "row " << i;
  }
  EXPECT_LE(Distance(x, expected), Norm(bound) / least);
}

// Wrong solutions of a library that reports success.
struct Spoiled {
  const char* name;
  std::function<double(int64_t i, double x)> spoil;
};
inline std::vector<Spoiled> SpoiledSolutions() {
  return {
      {"zeros", [](int64_t, double) { return 0.0; }},
      {"half", [](int64_t, double x) { return 0.5 * x; }},
      {"not finite",
       [](int64_t i, double x) {
         return i == 7 ? std::numeric_limits<double>::quiet_NaN() : x;
       }},
      {"one element", [](int64_t i, double x) { return i == 7 ? -x : x; }},
  };
}

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_TESTS_KERNELS_CHOLESKY_TEST_UTIL_H_
