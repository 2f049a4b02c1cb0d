// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Ceres's manifolds as products of factors: x (+) delta and its derivative by
// delta at zero, with Ceres's formulas. No product is fused with a sum, so that
// machines differ in sines and cosines alone. The bits of kConstant, kEuclidean
// and the derivatives of quaternions are Ceres's; those of quaternions too, if
// sine and cosine are those of Ceres's C++ library; those of kSphere and kLine
// differ in rounding, because Eigen sums in another order.
#ifndef CERES_EXT_CUDA_KERNELS_MODEL_MANIFOLD_H_
#define CERES_EXT_CUDA_KERNELS_MODEL_MANIFOLD_H_

#include <cmath>
#include <cstdint>
#include <limits>

#include "cuda_kernels/base/host_device.h"

namespace ceres_ext::kernels {

enum class ManifoldKind : uint8_t {
  kConstant,         // x
  kEuclidean,        // x + delta
  kQuaternion,       // ceres::QuaternionManifold, w x y z
  kEigenQuaternion,  // ceres::EigenQuaternionManifold, x y z w
  kSphere,           // ceres::SphereManifold
  kLine              // ceres::LineManifold, origin and direction
};

// ceres::SubsetManifold is factors kConstant and kEuclidean in turn.
struct ManifoldFactor {
  ManifoldKind kind = ManifoldKind::kConstant;
  int32_t size = 0;  // values of x

  CERES_EXT_HOST_DEVICE int tangent_size() const {
    return kind == ManifoldKind::kConstant    ? 0
           : kind == ManifoldKind::kEuclidean ? size
           : kind == ManifoldKind::kLine      ? size - 2
                                              : size - 1;
  }
  // True if its derivative is the same everywhere.
  CERES_EXT_HOST_DEVICE bool is_linear() const {
    return kind == ManifoldKind::kConstant || kind == ManifoldKind::kEuclidean;
  }
};

// y = q_delta x, q_delta = (cos |d|, sin |d| d / |d|). kW, kX, kY and kZ are
// where the parts of a quaternion stand. y may be x.
template <int kW, int kX, int kY, int kZ>
CERES_EXT_HOST_DEVICE inline void PlusQuaternion(const double* x,
                                                 const double* delta,
                                                 double* y) {
  // |d|, scaled by the largest element so that nothing overflows; NaN if an
  // element is.
  const double d[3] = {fabs(delta[0]), fabs(delta[1]), fabs(delta[2])};
  const double largest = fmax(d[0], fmax(d[1], d[2]));
  double norm = d[0] + d[1] + d[2];  // Zero, or NaN, if `largest` is zero.
  if (largest != 0.0) {
    const double a = d[0] / largest;
    const double b = d[1] / largest;
    const double c = d[2] / largest;
    norm = UnfusedProduct(largest,
                          sqrt(UnfusedProduct(a, a) + UnfusedProduct(b, b) +
                               UnfusedProduct(c, c)));
  }
  const double xw = x[kW];
  const double xx = x[kX];
  const double xy = x[kY];
  const double xz = x[kZ];
  if (norm == 0.0) {
    y[kW] = xw;
    y[kX] = xx;
    y[kY] = xy;
    y[kZ] = xz;
    return;
  }
  const double scale = sin(norm) / norm;
  const double qw = cos(norm);
  const double qx = UnfusedProduct(scale, delta[0]);
  const double qy = UnfusedProduct(scale, delta[1]);
  const double qz = UnfusedProduct(scale, delta[2]);
  y[kW] = UnfusedProduct(qw, xw) - UnfusedProduct(qx, xx) -
          UnfusedProduct(qy, xy) - UnfusedProduct(qz, xz);
  y[kX] = UnfusedProduct(qw, xx) + UnfusedProduct(qx, xw) +
          UnfusedProduct(qy, xz) - UnfusedProduct(qz, xy);
  y[kY] = UnfusedProduct(qw, xy) - UnfusedProduct(qx, xz) +
          UnfusedProduct(qy, xw) + UnfusedProduct(qz, xx);
  y[kZ] = UnfusedProduct(qw, xz) + UnfusedProduct(qx, xy) -
          UnfusedProduct(qy, xx) + UnfusedProduct(qz, xw);
}

// Its derivative at x, 4 x 3, in rows of `stride` values.
template <int kW, int kX, int kY, int kZ>
CERES_EXT_HOST_DEVICE inline void PlusJacobianQuaternion(const double* x,
                                                         int stride,
                                                         double* jacobian) {
  double* const w = jacobian + kW * stride;
  w[0] = -x[kX];
  w[1] = -x[kY];
  w[2] = -x[kZ];
  double* const i = jacobian + kX * stride;
  i[0] = x[kW];
  i[1] = x[kZ];
  i[2] = -x[kY];
  double* const j = jacobian + kY * stride;
  j[0] = -x[kZ];
  j[1] = x[kW];
  j[2] = x[kX];
  double* const k = jacobian + kZ * stride;
  k[0] = x[kY];
  k[1] = -x[kX];
  k[2] = x[kW];
}

// H = I - beta v v' with H x = |x| e_(n-1) and v_(n-1) = 1, as
// ceres/internal/householder_vector.h makes it; n > 1.
struct Householder {
  CERES_EXT_HOST_DEVICE Householder(const double* x_in, int n_in)
      : x(x_in), n(n_in) {
    double sigma = 0.0;
    for (int i = 0; i + 1 < n; ++i) {
      sigma += UnfusedProduct(x[i], x[i]);
    }
    const double last = x[n - 1];
    const double last_squared = UnfusedProduct(last, last);
    norm = sqrt(sigma + last_squared);
    if (sigma <= kZeroSigma) {
      beta = last < 0.0 ? 2.0 : 0.0;
      return;
    }
    const double mu = sqrt(last_squared + sigma);
    pivot = last <= 0.0 ? last - mu : -sigma / (last + mu);
    beta = UnfusedProduct(2.0 * pivot, pivot) /
           (sigma + UnfusedProduct(pivot, pivot));
  }

  CERES_EXT_HOST_DEVICE double v(int i) const {
    return i + 1 < n ? x[i] / pivot : 1.0;
  }
  // beta v'y for y = (scale d, last).
  CERES_EXT_HOST_DEVICE double Project(double scale,
                                       const double* d,
                                       double last) const {
    double sum = 0.0;
    for (int i = 0; i + 1 < n; ++i) {
      sum += UnfusedProduct(v(i), UnfusedProduct(scale, d[i]));
    }
    return UnfusedProduct(beta, sum + last);
  }
  // Element i of H y, with `projection` what Project has made of y.
  CERES_EXT_HOST_DEVICE double Reflect(int i,
                                       double y_i,
                                       double projection) const {
    return y_i - UnfusedProduct(v(i), projection);
  }

  // Below it x is along e_(n-1). A constant, because device code can't call
  // std::numeric_limits's functions.
  static constexpr double kZeroSigma = std::numeric_limits<double>::epsilon();

  const double* x;
  int n;
  double norm;  // |x|
  double pivot = 1.0;
  double beta = 0.0;
};

CERES_EXT_HOST_DEVICE inline double Norm(const double* x, int n) {
  double sum = 0.0;
  for (int i = 0; i < n; ++i) {
    sum += UnfusedProduct(x[i], x[i]);
  }
  return sqrt(sum);
}

// y = |x| H (sin |d| d / |d|, cos |d|). y may be x.
CERES_EXT_HOST_DEVICE inline void PlusSphere(const double* x,
                                             int n,
                                             const double* delta,
                                             double* y) {
  const double norm_delta = Norm(delta, n - 1);
  if (norm_delta == 0.0) {
    for (int i = 0; i < n; ++i) {
      y[i] = x[i];
    }
    return;
  }
  const Householder h(x, n);
  const double scale = sin(norm_delta) / norm_delta;
  const double last = cos(norm_delta);
  const double projection = h.Project(scale, delta, last);
  for (int i = 0; i < n; ++i) {
    const double y_i = i + 1 < n ? UnfusedProduct(scale, delta[i]) : last;
    y[i] = UnfusedProduct(h.norm, h.Reflect(i, y_i, projection));
  }
}

// The first n - 1 columns of |x| H, in rows of `stride` values.
CERES_EXT_HOST_DEVICE inline void PlusJacobianSphere(const double* x,
                                                     int n,
                                                     int stride,
                                                     double* jacobian) {
  const Householder h(x, n);
  for (int i = 0; i < n; ++i) {
    const double v_i = h.v(i);
    for (int j = 0; j + 1 < n; ++j) {
      const double element =
          (i == j ? 1.0 : 0.0) -
          UnfusedProduct(UnfusedProduct(h.beta, h.v(j)), v_i);
      jacobian[i * stride + j] = UnfusedProduct(element, h.norm);
    }
  }
}

// The direction moves as on a sphere, the origin by H (delta_o, 0), n values
// each. y may be x.
CERES_EXT_HOST_DEVICE inline void PlusLine(const double* x,
                                           int n,
                                           const double* delta,
                                           double* y) {
  const double* const direction = x + n;
  const double* const delta_direction = delta + n - 1;
  bool moves = Norm(delta_direction, n - 1) != 0.0;
  for (int i = 0; i + 1 < n; ++i) {
    moves |= delta[i] != 0.0;
  }
  if (moves) {
    const Householder h(direction, n);
    const double projection = h.Project(1.0, delta, 0.0);
    for (int i = 0; i < n; ++i) {
      y[i] = x[i] + h.Reflect(i, i + 1 < n ? delta[i] : 0.0, projection);
    }
  } else {
    for (int i = 0; i < n; ++i) {
      y[i] = x[i];
    }
  }
  PlusSphere(direction, n, delta_direction, y + n);
}

// y = x (+) delta. y may be x.
CERES_EXT_HOST_DEVICE inline void Plus(const ManifoldFactor& factor,
                                       const double* x,
                                       const double* delta,
                                       double* y) {
  switch (factor.kind) {
    case ManifoldKind::kConstant:
      for (int i = 0; i < factor.size; ++i) {
        y[i] = x[i];
      }
      break;
    case ManifoldKind::kEuclidean:
      for (int i = 0; i < factor.size; ++i) {
        y[i] = x[i] + delta[i];
      }
      break;
    case ManifoldKind::kQuaternion:
      PlusQuaternion<0, 1, 2, 3>(x, delta, y);
      break;
    case ManifoldKind::kEigenQuaternion:
      PlusQuaternion<3, 0, 1, 2>(x, delta, y);
      break;
    case ManifoldKind::kSphere:
      PlusSphere(x, factor.size, delta, y);
      break;
    case ManifoldKind::kLine:
      PlusLine(x, factor.size / 2, delta, y);
      break;
  }
}

// The derivative of x (+) delta by delta at zero, in rows of `stride` values.
// Elements that are zero everywhere, such as off the diagonal of kEuclidean,
// are not written.
CERES_EXT_HOST_DEVICE inline void PlusJacobian(const ManifoldFactor& factor,
                                               const double* x,
                                               int stride,
                                               double* jacobian) {
  switch (factor.kind) {
    case ManifoldKind::kConstant:
      break;
    case ManifoldKind::kEuclidean:
      for (int i = 0; i < factor.size; ++i) {
        jacobian[i * stride + i] = 1.0;
      }
      break;
    case ManifoldKind::kQuaternion:
      PlusJacobianQuaternion<0, 1, 2, 3>(x, stride, jacobian);
      break;
    case ManifoldKind::kEigenQuaternion:
      PlusJacobianQuaternion<3, 0, 1, 2>(x, stride, jacobian);
      break;
    case ManifoldKind::kSphere:
      PlusJacobianSphere(x, factor.size, stride, jacobian);
      break;
    case ManifoldKind::kLine: {
      const int n = factor.size / 2;
      PlusJacobianSphere(x + n, n, stride, jacobian);
      PlusJacobianSphere(
          x + n, n, stride, jacobian + int64_t{n} * stride + n - 1);
      break;
    }
  }
}

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_MODEL_MANIFOLD_H_
