// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Dual numbers over long double: value and N partial derivatives, with what the
// BAL model needs and no more. A reference for derivatives where ceres::Jet,
// over double, is the less exact side.
//
// If long double has the range and digits of x86's 80 bits or more,
// kLongDoubleIsWider is true; elsewhere tests that need the reference skip.
#ifndef CERES_EXT_TESTS_MODEL_DUAL_NUMBER_H_
#define CERES_EXT_TESTS_MODEL_DUAL_NUMBER_H_

#include <array>
#include <cmath>
#include <limits>

namespace ceres_ext {

inline constexpr bool kLongDoubleIsWider =
    std::numeric_limits<long double>::digits >= 64 &&
    std::numeric_limits<long double>::max_exponent >= 16384;

template <int N>
struct Dual {
  long double a = 0.0L;
  std::array<long double, N> v{};

  Dual() = default;
  Dual(long double value) : a(value) {}  // NOLINT: a constant.
  Dual(long double value, int i) : a(value) { v[i] = 1.0L; }
};

// f(x) with derivative slope.
template <int N>
Dual<N> Chain(long double value, long double slope, const Dual<N>& x) {
  Dual<N> y(value);
  for (int i = 0; i < N; ++i) {
    y.v[i] = slope * x.v[i];
  }
  return y;
}

template <int N>
Dual<N> operator+(const Dual<N>& x, const Dual<N>& y) {
  Dual<N> z(x.a + y.a);
  for (int i = 0; i < N; ++i) {
    z.v[i] = x.v[i] + y.v[i];
  }
  return z;
}

template <int N>
Dual<N> operator-(const Dual<N>& x) {
  return Chain(-x.a, -1.0L, x);
}

template <int N>
Dual<N> operator-(const Dual<N>& x, const Dual<N>& y) {
  return x + -y;
}

template <int N>
Dual<N> operator*(const Dual<N>& x, const Dual<N>& y) {
  Dual<N> z(x.a * y.a);
  for (int i = 0; i < N; ++i) {
    z.v[i] = x.v[i] * y.a + x.a * y.v[i];
  }
  return z;
}

template <int N>
Dual<N> operator/(const Dual<N>& x, const Dual<N>& y) {
  return x * Chain(1.0L / y.a, -1.0L / (y.a * y.a), y);
}

template <int N>
Dual<N> sqrt(const Dual<N>& x) {
  const long double root = std::sqrt(x.a);
  return Chain(root, 0.5L / root, x);
}

template <int N>
Dual<N> sin(const Dual<N>& x) {
  return Chain(std::sin(x.a), std::cos(x.a), x);
}

template <int N>
Dual<N> cos(const Dual<N>& x) {
  return Chain(std::cos(x.a), -std::sin(x.a), x);
}

inline long double Value(long double x) { return x; }

template <int N>
long double Value(const Dual<N>& x) {
  return x.a;
}

}  // namespace ceres_ext

#endif  // CERES_EXT_TESTS_MODEL_DUAL_NUMBER_H_
