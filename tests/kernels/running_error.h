// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Bounds on rounding, for each element by itself.
//
// A Running number carries what any order of the same operations may differ by
// (running error analysis, Higham, Accuracy and Stability of Numerical
// Algorithms, 3.3):
//   value  as the host has it
//   size   the sum of the absolute values of the terms that it is made of,
//          every product multiplied out
//   error  to first order. An operation adds one rounding of its size (not of
//          its value: where terms cancel, another order has larger sums on the
//          way), and hands on the errors of its operands:
//            x + y: e_x + e_y,  x y: |x| e_y + |y| e_x,  x / y: (e_x + |x / y|
//            e_y) / |y|, with sizes in place of absolute values
// The unit roundoff of an operation is T's. Fused multiply-adds round less
// often. Two machines differ by at most the sum of their errors, 2 error.
#ifndef CERES_EXT_TESTS_KERNELS_RUNNING_ERROR_H_
#define CERES_EXT_TESTS_KERNELS_RUNNING_ERROR_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "cuda_kernels/base/small_matrix.h"
#include "cuda_kernels/model/bal_model.h"
#include "gtest/gtest.h"

namespace ceres_ext::kernels {

template <typename T>
struct Running {
  static constexpr double kUnit = kUnitRoundoff<T>;

  double value = 0.0;
  double size = 0.0;
  double error = 0.0;

  Running() = default;
  // NOLINTNEXTLINE: exact numbers are used in formulas.
  Running(double exact) : value(exact), size(std::fabs(exact)) {}
  Running(double v, double s, double e) : value(v), size(s), error(e) {}
  // A number that a machine may round to T first.
  static Running Input(double x) { return Running(x).RoundTo(kUnit); }

  Running RoundTo(double unit) const {
    return {value, size, error + unit * size};
  }
  Running operator-() const { return {-value, size, error}; }
  Running& operator+=(const Running& y) { return *this = *this + y; }
  Running& operator*=(const Running& y) { return *this = *this * y; }
  Running& operator/=(const Running& y) { return *this = *this / y; }

  friend Running operator+(const Running& x, const Running& y) {
    return Running(x.value + y.value, x.size + y.size, x.error + y.error)
        .RoundTo(kUnit);
  }
  friend Running operator-(const Running& x, const Running& y) {
    return x + -y;
  }
  friend Running operator*(const Running& x, const Running& y) {
    return Running(x.value * y.value,
                   x.size * y.size,
                   x.size * y.error + y.size * x.error)
        .RoundTo(kUnit);
  }
  friend Running operator/(const Running& x, const Running& y) {
    const double size = x.size / std::fabs(y.value);
    return Running(x.value / y.value,
                   size,
                   (x.error + size * y.error) / std::fabs(y.value))
        .RoundTo(kUnit);
  }
  friend bool operator<(const Running& x, const Running& y) {
    return x.value < y.value;
  }
  friend bool operator>(const Running& x, const Running& y) { return y < x; }
  friend Running fabs(const Running& x) {
    return {std::fabs(x.value), x.size, x.error};
  }
  friend Running sqrt(const Running& x) {
    const double root = std::sqrt(x.value);
    return Running(root, root, root > 0.0 ? x.error / (2.0 * root) : 0.0)
        .RoundTo(kUnit);
  }
  // Within 2 units in the last place, 4 roundings.
  friend Running sin(const Running& x) {
    return Running(std::sin(x.value), 1.0, x.error).RoundTo(4.0 * kUnit);
  }
  friend Running cos(const Running& x) {
    return Running(std::cos(x.value), 1.0, x.error).RoundTo(4.0 * kUnit);
  }
};

// A state without errors.
template <typename T>
CameraState<Running<T>> ToRunning(const CameraState<double>& from) {
  CameraState<Running<T>> to;
  std::copy_n(from.R, 9, to.R);
  std::copy_n(from.t, 3, to.t);
  to.f = from.f;
  to.k1 = from.k1;
  to.k2 = from.k2;
  return to;
}

// A sum of any number of terms in any order, in double: every addition rounds
// at most the size of the whole. It may be kept in T.
template <typename T>
class RunningSum {
 public:
  void Add(const Running<T>& term) {
    sum_.value += term.value;
    sum_.size += term.size;
    sum_.error += term.error;
    ++num_terms_;
  }
  Running<T> Get() const {
    return sum_.RoundTo(static_cast<double>(num_terms_) *
                            kUnitRoundoff<double> +
                        Running<T>::kUnit);
  }

 private:
  Running<T> sum_;
  int64_t num_terms_ = 0;
};

// The inverse X = A^-1 of a symmetric positive definite N x N matrix, packed,
// where elements of A are off by relative_error sqrt(a_ii a_jj) at most. With
// d_i = sqrt(a_ii), A = diag(d) B diag(d): L D L' and what follows commute with
// this scaling, so errors are those of B, whose elements are at most one:
//   |X - A^-1|_ij <= N (relative_error + 3 (N + 2) u) |B^-1|^2 / (d_i d_j)
// to first order: factoring, inverting the factor and multiplying round N + 2
// times each, and |B^-1| is at most the trace of B^-1, sum d_i^2 x_ii.
// diagonal: a_ii, or more.
template <int N, typename T>
void RunningInverse(const double* x,
                    const double* diagonal,
                    double relative_error,
                    Running<T>* inverse) {
  double trace = 0.0;
  for (int i = 0; i < N; ++i) {
    trace += diagonal[i] * std::fabs(x[PackedIndex(i, i)]);
  }
  const double error =
      N * (relative_error + 3 * (N + 2) * kUnitRoundoff<double>)*trace * trace;
  for (int i = 0; i < N; ++i) {
    for (int j = 0; j <= i; ++j) {
      const int at = PackedIndex(i, j);
      inverse[at] = {x[at],
                     std::fabs(x[at]),
                     error / std::sqrt(diagonal[i] * diagonal[j])};
    }
  }
}

// |actual - expected| <= bound, element by element.
inline ::testing::AssertionResult Close(const std::vector<double>& actual,
                                        const std::vector<double>& expected,
                                        const std::vector<double>& bound) {
  if (actual.size() != expected.size() || actual.size() != bound.size()) {
    return ::testing::AssertionFailure()
           << "sizes " << actual.size() << ", " << expected.size() << " and "
           << bound.size();
  }
  for (size_t i = 0; i < actual.size(); ++i) {
    if (!(std::fabs(actual[i] - expected[i]) <= bound[i])) {
      return ::testing::AssertionFailure()
             << "element " << i << ": " << actual[i] << " instead of "
             << expected[i] << ", difference "
             << std::fabs(actual[i] - expected[i]) << ", allowed " << bound[i];
    }
  }
  return ::testing::AssertionSuccess();
}

// Also at most `tolerance` times the largest element, which is less than the
// worst case of large elements: roundings of long sums mostly cancel.
template <typename T>
::testing::AssertionResult Close(
    const std::vector<double>& actual,
    const std::vector<double>& expected,
    const std::vector<Running<T>>& running,
    double tolerance = std::numeric_limits<double>::infinity()) {
  double largest = 0.0;
  for (const double x : expected) {
    largest = std::max(largest, std::fabs(x));
  }
  std::vector<double> bound;
  for (const Running<T>& x : running) {
    bound.push_back(largest == 0.0
                        ? 2.0 * x.error
                        : std::min(2.0 * x.error, tolerance * largest));
  }
  return Close(actual, expected, bound);
}

// tolerance times the largest of the elements of the same kind: values are
// blocks of block_size, and elements at one place of their blocks are of one
// kind (the focal lengths of cameras, say).
inline std::vector<double> BoundsByKind(const std::vector<double>& values,
                                        int block_size,
                                        double tolerance) {
  std::vector<double> largest(static_cast<size_t>(block_size), 0.0);
  for (size_t i = 0; i < values.size(); ++i) {
    double& x = largest[i % largest.size()];
    x = std::max(x, std::fabs(values[i]));
  }
  std::vector<double> bound;
  for (size_t i = 0; i < values.size(); ++i) {
    bound.push_back(tolerance * largest[i % largest.size()]);
  }
  return bound;
}

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_TESTS_KERNELS_RUNNING_ERROR_H_
