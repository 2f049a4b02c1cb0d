// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// All functions of ceres/jet.h and ceres/rotation.h, on numbers and on Jets:
// prints every bit of every result. Compiled against the headers of stock and
// of patched Ceres, it prints the same.

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <random>
#include <type_traits>

#include "ceres/jet.h"
#include "ceres/rotation.h"

namespace {

using ceres::Jet;

void Print(double x) {
  uint64_t bits = 0;
  std::memcpy(&bits, &x, sizeof(bits));
  // A sign of NaN has no meaning.
  std::printf(
      "%016llx\n",
      x != x ? 0x7ff8000000000000ull : static_cast<unsigned long long>(bits));
}
void Print(float x) { Print(static_cast<double>(x)); }
void Print(bool x) { Print(x ? 1.0 : 0.0); }
template <typename T, int N>
void Print(const Jet<T, N>& x) {
  Print(x.a);
  for (int i = 0; i < N; ++i) {
    Print(x.v[i]);
  }
}
template <typename T>
void Print(int n, const T* x) {
  for (int i = 0; i < n; ++i) {
    Print(x[i]);
  }
}

// x: three numbers.
template <typename T>
void Rotations(const T* x) {
  using namespace ceres;  // NOLINT: all of its functions.
  T q[4];
  AngleAxisToQuaternion(x, q);
  Print(4, q);
  T angle_axis[3];
  QuaternionToAngleAxis(q, angle_axis);
  Print(3, angle_axis);
  T R[9];
  AngleAxisToRotationMatrix(x, R);
  Print(9, R);
  T back[4];
  RotationMatrixToQuaternion(R, back);
  Print(4, back);
  RotationMatrixToAngleAxis(R, angle_axis);
  Print(3, angle_axis);
  T euler[3];
  RotationMatrixToEulerAngles<ExtrinsicXYZ>(R, euler);
  Print(3, euler);
  RotationMatrixToEulerAngles<IntrinsicZYZ>(R, euler);
  Print(3, euler);
  EulerAnglesToRotation<IntrinsicZYX>(x, R);
  Print(9, R);
  EulerAnglesToRotationMatrix(x, 3, R);
  Print(9, R);
  q[0] *= T(1.5);
  QuaternionToScaledRotation(q, R);
  Print(9, R);
  QuaternionToRotation(q, R);
  Print(9, R);
  T point[3];
  UnitQuaternionRotatePoint(back, x, point);
  Print(3, point);
  QuaternionRotatePoint(q, x, point);
  Print(3, point);
  T y[3];
  AngleAxisRotatePoint(x, point, y);
  Print(3, y);
  T product[4];
  QuaternionProduct(q, back, product);
  Print(4, product);
  T cross[3];
  CrossProduct(x, y, cross);
  Print(3, cross);
  Print(DotProduct(x, y));
}

template <typename J>
void Functions(const J* x) {
  using namespace ceres;  // NOLINT: all of its functions.
  using T = typename J::Scalar;
  const J &a = x[0], &b = x[1], &c = x[2];
  for (const J& value : {abs(a),
                         copysign(a, b),
                         log(a),
                         log10(a),
                         log1p(a),
                         exp(a),
                         expm1(a),
                         sqrt(a),
                         cos(a),
                         acos(a),
                         sin(a),
                         asin(a),
                         tan(a),
                         atan(a),
                         sinh(a),
                         cosh(a),
                         tanh(a),
                         floor(a),
                         ceil(a),
                         cbrt(a),
                         exp2(a),
                         log2(a),
                         hypot(a, b),
                         hypot(a, b, c),
                         fma(a, b, c),
                         fmax(a, b),
                         fmin(a, b),
                         fmax(a, T(0.5)),
                         fmin(T(0.5), a),
                         fdim(a, b),
                         erf(a),
                         erfc(a),
                         atan2(a, b),
                         norm(a),
                         pow(a, 2.0),
                         pow(a, b),
                         pow(T(2), a),
                         a + b,
                         a - b,
                         a * b,
                         a / b,
                         a + T(2),
                         T(2) - a,
                         T(2) / a,
                         a / T(2),
                         -a,
                         +a}) {
    Print(value);
  }
  for (const bool value : {isfinite(a),
                           isinf(a),
                           isnan(a),
                           isnormal(a),
                           signbit(a),
                           fpclassify(a) == FP_ZERO,
                           a<b, a <= b, a> b,
                           a >= b,
                           a == b,
                           a != b,
                           isless(a, b),
                           islessequal(a, b),
                           isgreater(a, b),
                           isgreaterequal(a, b),
                           islessgreater(a, b),
                           isunordered(a, b)}) {
    Print(value);
  }
  J sum = a;
  sum += b;
  sum -= c;
  sum *= a;
  sum /= b;
  sum += T(1);
  sum -= T(2);
  sum *= T(3);
  sum /= T(4);
  Print(sum);
}

template <typename T>
void All(const double (&values)[3]) {
  using J = Jet<T, 3>;
  T numbers[3];
  J jets[3];
  for (int i = 0; i < 3; ++i) {
    numbers[i] = static_cast<T>(values[i]);
    jets[i] = J(numbers[i], i);
  }
  Rotations(numbers);
  Functions(jets);
  // Ceres's Euler angles don't compile for Jets of float.
  if constexpr (std::is_same_v<T, double>) {
    Rotations(jets);
  }
}

}  // namespace

int main() {
  std::printf("%zu %zu %zu\n",
              sizeof(Jet<double, 4>),
              alignof(Jet<double, 4>),
              sizeof(Jet<float, 3>));
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  const double special[] = {
      0.0, -0.0, 1.0, -1.0, 1e-300, -1e-310, 3.2, kInfinity, -kInfinity, kNaN};
  for (const double a : special) {
    for (const double b : special) {
      All<double>({a, b, 0.25});
      All<double>({a, b, 0.0});
    }
  }
  std::mt19937 generator(1);
  std::uniform_real_distribution<double> uniform(-4.0, 4.0);
  for (int i = 0; i < 1000; ++i) {
    const double x = uniform(generator);
    const double y = uniform(generator);
    const double z = uniform(generator);
    All<double>({x, y, z});
    All<float>({x, y, z});
  }
}
