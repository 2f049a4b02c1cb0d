// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Random numbers and elementary functions with the same bits on every machine.
//
// Integers are exact, and IEEE 754 fixes the bits of + - * / sqrt, frexp and
// floor; nothing else is used (the mathematical library's sin or log differ
// from one version to the next). The remaining risk is the compiler: a * b + c
// must not become one fused operation, so code that includes this and promises
// bits is compiled with -ffp-contract=off.

#ifndef PROBLEM_IO_PORTABLE_MATH_H_
#define PROBLEM_IO_PORTABLE_MATH_H_

#ifdef __FAST_MATH__
#error "portable_math.h needs IEEE arithmetic: compile without -ffast-math"
#endif

#include <cmath>
#include <cstdint>

namespace ceres_ext::bal {

inline constexpr double kPi = 3.141592653589793;

// A bijection of the 64-bit integers whose output bits look independent
// (the finalizer of SplitMix64).
inline uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// log x for a normal x > 0: x = 2^e m with m around 1, t = (m - 1) / (m + 1),
// log x = e log 2 + 2 (t + t^3/3 + ... + t^23/23); |t| <= 0.172, so the first
// term left out is below 0.172^25 / 25 = 4e-21.
inline double PortableLog(double x) {
  int exponent;
  double m = std::frexp(x, &exponent);
  if (m < 0.70710678118654752) {
    m *= 2.0;
    --exponent;
  }
  const double t = (m - 1.0) / (m + 1.0);
  const double t2 = t * t;
  double series = 1.0 / 23.0;
  for (int n = 21; n >= 1; n -= 2) {
    series = series * t2 + 1.0 / n;
  }
  return exponent * 0.6931471805599453 + 2.0 * t * series;
}

// sin x and cos x for |x| < 1e5: x = k pi/2 + r with pi/2 in two parts, then
// the Taylor series to r^17; |r| <= 0.786, first term left out below 1e-19.
inline void PortableSinCos(double x, double* sine, double* cosine) {
  const double k = std::floor(x * (2.0 / kPi) + 0.5);
  // 33 bits of pi/2, so that k * kHigh is exact, and the rest.
  constexpr double kHigh = 1.57079632673412561417e+00;
  constexpr double kLow = 6.07710050650619224932e-11;
  const double r = (x - k * kHigh) - k * kLow;
  const double r2 = r * r;
  double s = 1.0;
  double c = 1.0;
  for (int n = 16; n >= 2; n -= 2) {
    s = 1.0 - s * r2 / (n * (n + 1));
    c = 1.0 - c * r2 / (n * (n - 1));
  }
  s *= r;
  switch (static_cast<int64_t>(k) & 3) {
    case 0:
      *sine = s;
      *cosine = c;
      break;
    case 1:
      *sine = c;
      *cosine = -s;
      break;
    case 2:
      *sine = -s;
      *cosine = -c;
      break;
    default:
      *sine = -c;
      *cosine = s;
      break;
  }
}

// The angle of (x, y) with y >= 0 and x > 0: atan a = 2 atan(a / (1 + sqrt(1 +
// a^2))) twice, then a - a^3/3 + ... - a^23/23; a <= 0.199, first term left out
// below 0.199^25 / 25 = 1e-19.
inline double PortableAtan2(double y, double x) {
  const bool steep = y > x;
  double a = steep ? x / y : y / x;
  a = a / (1.0 + std::sqrt(1.0 + a * a));
  a = a / (1.0 + std::sqrt(1.0 + a * a));
  const double a2 = a * a;
  double series = 1.0 / 23.0;
  for (int n = 21; n >= 1; n -= 2) {
    series = 1.0 / n - series * a2;
  }
  const double angle = 4.0 * a * series;
  return steep ? 0.5 * kPi - angle : angle;
}

// A sequence of random numbers that depends on its three keys alone, so that
// item number `index` draws the same numbers whichever thread makes it.
class PortableRandom {
 public:
  PortableRandom(uint64_t seed, uint64_t purpose, uint64_t index)
      : state_(Mix(Mix(Mix(seed) + purpose) + index)) {}

  uint64_t Next() {
    state_ += 0x9e3779b97f4a7c15u;
    return Mix(state_);
  }

  // In (0, 1): the middles of 2^52 equal cells.
  double Uniform() {
    return (static_cast<double>(Next() >> 12) + 0.5) * 0x1p-52;
  }

  double Uniform(double min, double max) {
    return min + (max - min) * Uniform();
  }

  // In 0 ... n - 1, for n < 2^32; the bias is below 2^-32.
  int64_t Below(int64_t n) {
    return static_cast<int64_t>((Next() >> 32) * static_cast<uint64_t>(n) >>
                                32);
  }

  // Mean 0, deviation 1: the polar method of Marsaglia.
  double Normal() {
    for (;;) {
      const double x = Uniform(-1.0, 1.0);
      const double y = Uniform(-1.0, 1.0);
      const double r2 = x * x + y * y;
      if (r2 < 1.0 && r2 > 0.0) {
        return x * std::sqrt(-2.0 * PortableLog(r2) / r2);
      }
    }
  }

 private:
  uint64_t state_;
};

}  // namespace ceres_ext::bal

#endif  // PROBLEM_IO_PORTABLE_MATH_H_
