// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The projection model of Bundle Adjustment in the Large (BAL) and its
// analytic derivatives; long, as the only copy for host, device and all types.
//
// Model. A camera is a rotation R, a translation t, a focal length f and two
// distortion coefficients k1, k2; it looks along its negative z axis.
//
//   Xc = R X + t
//   x  = -Xc.x / Xc.z,  y = -Xc.y / Xc.z          r2 = x^2 + y^2
//   d  = 1 + r2 (k1 + k2 r2)                      distortion
//   residual = f d (x, y) - observation
//
// Local coordinates of a camera, 9 of them: (w, t, f, k1, k2), where w turns
// the camera frame, R' = Exp(w) R, hence d(R X) = w x (R X). With
//
//   M = -f / Xc.z (d I + d' (x, y) (x, y)'),  d' = 2 (k1 + 2 k2 r2)
//   P = M [1 0 x; 0 1 y]                      d residual / d Xc, 2 x 3
//   r = R X
//
// the local Jacobians are
//
//   2 x 3, point:   J_p = P R
//   2 x 9, camera:  J_c = [ -P [r]x | P | d (x, y) | f r2 (x, y) |
//                           f r2^2 (x, y) ]
//
// They take one division (1 / Xc.z) and no transcendental function once R is
// known. How a camera was parameterised is the business of its *camera map*
// alone: the 9 x C derivative of the local coordinates with respect to the C
// parameters or tangent coordinates, so that the Jacobian a solver sees is
// J_c * map. For the two BAL parameterisations the map is
// blockdiag(rotation map, I_6), rotation map 3 x 3 or 3 x 4.
//
// At and behind the optical centre.
//  - Behind (Xc.z > 0) the formulas continue, as in Ceres's examples: residual
//    and Jacobian are finite and correct derivatives.
//  - At the centre, that is wherever 1 / Xc.z or a power of (x, y) leaves the
//    range of T, the evaluating functions (Project, Residual) return what IEEE
//    arithmetic gives, and at least one residual or Jacobian entry is not
//    finite. Xc.z == 0 is always such a case. The caller must check with
//    AllFinite and fail the evaluation, which makes Ceres refuse the step: so
//    no state that Ceres accepts contains one.
//  - ProjectForProducts is for operators that recompute Jacobians, where a
//    single NaN would spoil every entry of a vector. It replaces such an
//    observation by one whose Jacobian is zero. In double this never happens in
//    an accepted state, so recomputed and evaluated Jacobians agree. In float
//    it also leaves out observations whose depth has no correct digit, |Xc.z|
//    <= 4 eps (|r.z| + |t.z|): cameras and points rounded to float may meet at
//    the centre although they don't in double. Leaving an observation out keeps
//    J'J <= its value in double, so that a Schur complement with V in double
//    and products in float stays positive semidefinite.
//
// All matrices are row-major. Every function is pure and thread-safe.

#ifndef CERES_EXT_CUDA_KERNELS_MODEL_BAL_MODEL_H_
#define CERES_EXT_CUDA_KERNELS_MODEL_BAL_MODEL_H_

#include <cmath>
#include <limits>
#include <type_traits>

#include "cuda_kernels/base/host_device.h"

namespace ceres_ext::kernels {

inline constexpr int kBalResidualDim = 2;
inline constexpr int kBalPointDim = 3;
inline constexpr int kBalLocalCameraDim = 9;
inline constexpr int kBalAngleAxisCameraDim = 9;
inline constexpr int kBalQuaternionCameraDim = 10;

// A camera ready for use: what every observation needs of it.
template <typename T>
struct CameraState {
  T R[9];
  T t[3];
  T f;
  T k1;
  T k2;
};

// The values from which an observation's residual and Jacobians are computed.
template <typename T>
struct Projection {
  T r[3];  // R X.
  T x;
  T y;
  T r2;
  T distortion;
  // M, symmetric.
  T m00;
  T m01;
  T m11;
};

namespace internal {

// Constants, because device code can't call std::numeric_limits's functions.
template <typename T>
struct Limits {
  static constexpr T kMax = std::numeric_limits<T>::max();
  static constexpr T kEpsilon = std::numeric_limits<T>::epsilon();
};

}  // namespace internal

// True if all n values are finite. Without branches, which makes a whole
// evaluation 1.2 to 1.5 times as fast on the host.
template <typename T>
CERES_EXT_HOST_DEVICE inline bool AllFinite(const T* values, int n) {
  using std::fabs;
  constexpr T kMax = internal::Limits<T>::kMax;
  bool finite = true;
  for (int i = 0; i < n; ++i) {
    finite &= fabs(values[i]) <= kMax;
  }
  return finite;
}

// ---------------------------------------------------------------------------
// Preparation: parameters to state, with the rotation part of the camera map.

// From a rotation vector w with angle theta = |w|:
//
//   R   = I + a [w]x + b [w]x^2            a = sin(theta) / theta
//   J_l = a I + b [w]x + c w w'            b = (1 - cos(theta)) / theta^2
//                                          c = (theta - sin(theta)) / theta^3
//
// J_l is the left Jacobian of SO(3), Exp(w + dw) = Exp(J_l dw) Exp(w): the
// rotation map. It may be nullptr when only R is asked for.
//
// Below an angle of 1 the coefficients come from their power series, all of
// whose terms fall by a factor of 12 at least: no cancellation, no special
// case at zero, and exact when theta^2 underflows. Above, they come from the
// half angle on the unit axis: 1 - cos = 2 sin^2(theta / 2), also free of
// cancellation (1 - sin(theta) / theta loses less than 3 bits for theta >= 1).
template <typename T>
CERES_EXT_HOST_DEVICE inline void PrepareAngleAxis(const T* w,
                                                   T* R,
                                                   T* rotation_map) {
  using std::cos;
  using std::fabs;
  using std::sin;
  using std::sqrt;

  // With u = w or the unit axis:
  //   R   = I + alpha [u]x + beta (u u' - u'u I)
  //   J_l = delta I + epsilon [u]x + gamma u u'
  T u[3] = {w[0], w[1], w[2]};
  T alpha;
  T beta;
  T gamma;
  T delta;
  T epsilon;

  const T theta2 = w[0] * w[0] + w[1] * w[1] + w[2] * w[2];
  if (theta2 < T(1)) {
    // b = sum_k (-theta2)^k / (2 k + 2)!, c = sum_k (-theta2)^k / (2 k + 3)!.
    // The first term left out is below 1e-18 of the sum.
    beta = T(1) / T(6402373705728000);     // 1 / 18!
    gamma = T(1) / T(121645100408832000);  // 1 / 19!
    beta = T(1) / T(20922789888000) - theta2 * beta;
    gamma = T(1) / T(355687428096000) - theta2 * gamma;
    beta = T(1) / T(87178291200) - theta2 * beta;
    gamma = T(1) / T(1307674368000) - theta2 * gamma;
    beta = T(1) / T(479001600) - theta2 * beta;
    gamma = T(1) / T(6227020800) - theta2 * gamma;
    beta = T(1) / T(3628800) - theta2 * beta;
    gamma = T(1) / T(39916800) - theta2 * gamma;
    beta = T(1) / T(40320) - theta2 * beta;
    gamma = T(1) / T(362880) - theta2 * gamma;
    beta = T(1) / T(720) - theta2 * beta;
    gamma = T(1) / T(5040) - theta2 * gamma;
    beta = T(1) / T(24) - theta2 * beta;
    gamma = T(1) / T(120) - theta2 * gamma;
    beta = T(1) / T(2) - theta2 * beta;
    gamma = T(1) / T(6) - theta2 * gamma;
    alpha = T(1) - theta2 * gamma;
    delta = alpha;
    epsilon = beta;
  } else {
    // Scaled by the largest component, so that theta is finite if w is.
    T scale = fabs(w[0]);
    scale = fabs(w[1]) > scale ? fabs(w[1]) : scale;
    scale = fabs(w[2]) > scale ? fabs(w[2]) : scale;
    for (int i = 0; i < 3; ++i) {
      u[i] = w[i] / scale;
    }
    const T length = sqrt(u[0] * u[0] + u[1] * u[1] + u[2] * u[2]);
    const T theta = scale * length;
    for (int i = 0; i < 3; ++i) {
      u[i] /= length;
    }
    const T half_sin = sin(theta / T(2));
    const T half_cos = cos(theta / T(2));
    alpha = T(2) * half_sin * half_cos;
    beta = T(2) * half_sin * half_sin;
    delta = alpha / theta;
    epsilon = beta / theta;
    gamma = T(1) - delta;
  }

  const T uu[6] = {u[0] * u[0],
                   u[0] * u[1],
                   u[0] * u[2],
                   u[1] * u[1],
                   u[1] * u[2],
                   u[2] * u[2]};
  R[0] = T(1) - beta * (uu[3] + uu[5]);
  R[1] = beta * uu[1] - alpha * u[2];
  R[2] = beta * uu[2] + alpha * u[1];
  R[3] = beta * uu[1] + alpha * u[2];
  R[4] = T(1) - beta * (uu[0] + uu[5]);
  R[5] = beta * uu[4] - alpha * u[0];
  R[6] = beta * uu[2] - alpha * u[1];
  R[7] = beta * uu[4] + alpha * u[0];
  R[8] = T(1) - beta * (uu[0] + uu[3]);
  if (rotation_map == nullptr) {
    return;
  }
  rotation_map[0] = delta + gamma * uu[0];
  rotation_map[1] = gamma * uu[1] - epsilon * u[2];
  rotation_map[2] = gamma * uu[2] + epsilon * u[1];
  rotation_map[3] = gamma * uu[1] + epsilon * u[2];
  rotation_map[4] = delta + gamma * uu[3];
  rotation_map[5] = gamma * uu[4] - epsilon * u[0];
  rotation_map[6] = gamma * uu[2] - epsilon * u[1];
  rotation_map[7] = gamma * uu[4] + epsilon * u[0];
  rotation_map[8] = delta + gamma * uu[5];
}

// From a quaternion q = (q0, v), scalar first, of any norm but zero; it is
// normalised first, as ceres::QuaternionRotatePoint does. With u = q / |q|:
//
//   R = I + 2 u0 [u_v]x + 2 [u_v]x^2
//   rotation map, 3 x 4:  w = 2 Im(dq conj(q)) / |q|^2
//                           = 2 / |q|^2 [ -v | q0 I + [v]x ] dq
//
// The map's null vector is q itself: a change of norm turns nothing. A zero
// quaternion gives NaN.
template <typename T>
CERES_EXT_HOST_DEVICE inline void PrepareQuaternion(const T* q,
                                                    T* R,
                                                    T* rotation_map) {
  using std::sqrt;

  const T scale =
      T(1) / sqrt(q[0] * q[0] + q[1] * q[1] + q[2] * q[2] + q[3] * q[3]);
  const T u[4] = {scale * q[0], scale * q[1], scale * q[2], scale * q[3]};
  R[0] = T(1) - T(2) * (u[2] * u[2] + u[3] * u[3]);
  R[1] = T(2) * (u[1] * u[2] - u[0] * u[3]);
  R[2] = T(2) * (u[1] * u[3] + u[0] * u[2]);
  R[3] = T(2) * (u[1] * u[2] + u[0] * u[3]);
  R[4] = T(1) - T(2) * (u[1] * u[1] + u[3] * u[3]);
  R[5] = T(2) * (u[2] * u[3] - u[0] * u[1]);
  R[6] = T(2) * (u[1] * u[3] - u[0] * u[2]);
  R[7] = T(2) * (u[2] * u[3] + u[0] * u[1]);
  R[8] = T(1) - T(2) * (u[1] * u[1] + u[2] * u[2]);
  if (rotation_map == nullptr) {
    return;
  }
  const T s = T(2) * scale;
  const T m[4] = {s * u[0], s * u[1], s * u[2], s * u[3]};
  rotation_map[0] = -m[1];
  rotation_map[1] = m[0];
  rotation_map[2] = -m[3];
  rotation_map[3] = m[2];
  rotation_map[4] = -m[2];
  rotation_map[5] = m[3];
  rotation_map[6] = m[0];
  rotation_map[7] = -m[1];
  rotation_map[8] = -m[3];
  rotation_map[9] = -m[2];
  rotation_map[10] = m[1];
  rotation_map[11] = m[0];
}

// Parameters: a rotation of kRotationDim values, 3: w, 4: q, then t, f, k1, k2.
// rotation_map is 3 x kRotationDim or nullptr.
template <int kRotationDim, typename T>
CERES_EXT_HOST_DEVICE inline CameraState<T> PrepareBalCamera(const T* camera,
                                                             T* rotation_map) {
  CameraState<T> state;
  if constexpr (kRotationDim == 3) {
    PrepareAngleAxis(camera, state.R, rotation_map);
  } else {
    PrepareQuaternion(camera, state.R, rotation_map);
  }
  for (int i = 0; i < 3; ++i) {
    state.t[i] = camera[kRotationDim + i];
  }
  state.f = camera[kRotationDim + 3];
  state.k1 = camera[kRotationDim + 4];
  state.k2 = camera[kRotationDim + 5];
  return state;
}

// A state prepared in one precision, rounded to another.
template <typename To, typename From>
CERES_EXT_HOST_DEVICE inline CameraState<To> CameraStateCast(
    const CameraState<From>& from) {
  CameraState<To> to;
  for (int i = 0; i < 9; ++i) {
    to.R[i] = static_cast<To>(from.R[i]);
  }
  for (int i = 0; i < 3; ++i) {
    to.t[i] = static_cast<To>(from.t[i]);
  }
  to.f = static_cast<To>(from.f);
  to.k1 = static_cast<To>(from.k1);
  to.k2 = static_cast<To>(from.k2);
  return to;
}

// camera_map = blockdiag(rotation_map, I_6), 9 x (kRotationDim + 6).
template <int kRotationDim, typename T>
CERES_EXT_HOST_DEVICE inline void ExpandCameraMap(const T* rotation_map,
                                                  T* camera_map) {
  constexpr int kDim = kRotationDim + 6;
  for (int i = 0; i < kBalLocalCameraDim * kDim; ++i) {
    camera_map[i] = T(0);
  }
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < kRotationDim; ++j) {
      camera_map[i * kDim + j] = rotation_map[i * kRotationDim + j];
    }
  }
  for (int i = 0; i < 6; ++i) {
    camera_map[(3 + i) * kDim + kRotationDim + i] = T(1);
  }
}

// local = camera_map tangent: 9 from kDim.
template <int kDim, typename T>
CERES_EXT_HOST_DEVICE inline void CameraMapMultiply(const T* camera_map,
                                                    const T* tangent,
                                                    T* local) {
  for (int i = 0; i < kBalLocalCameraDim; ++i) {
    T sum = T(0);
    for (int j = 0; j < kDim; ++j) {
      sum += camera_map[i * kDim + j] * tangent[j];
    }
    local[i] = sum;
  }
}

// tangent = camera_map' local: kDim from 9.
template <int kDim, typename T>
CERES_EXT_HOST_DEVICE inline void CameraMapTransposeMultiply(
    const T* camera_map, const T* local, T* tangent) {
  for (int j = 0; j < kDim; ++j) {
    T sum = T(0);
    for (int i = 0; i < kBalLocalCameraDim; ++i) {
      sum += camera_map[i * kDim + j] * local[i];
    }
    tangent[j] = sum;
  }
}

// ---------------------------------------------------------------------------
// Projection.

// The results of IEEE arithmetic, see "At and behind the optical centre".
template <typename T>
CERES_EXT_HOST_DEVICE inline Projection<T> Project(const CameraState<T>& camera,
                                                   const T* point) {
  const T* R = camera.R;
  Projection<T> p;
  p.r[0] = R[0] * point[0] + R[1] * point[1] + R[2] * point[2];
  p.r[1] = R[3] * point[0] + R[4] * point[1] + R[5] * point[2];
  p.r[2] = R[6] * point[0] + R[7] * point[1] + R[8] * point[2];
  const T inverse_depth = T(-1) / (p.r[2] + camera.t[2]);
  p.x = (p.r[0] + camera.t[0]) * inverse_depth;
  p.y = (p.r[1] + camera.t[1]) * inverse_depth;
  p.r2 = p.x * p.x + p.y * p.y;
  p.distortion = T(1) + p.r2 * (camera.k1 + camera.k2 * p.r2);
  const T slope = T(2) * (camera.k1 + T(2) * camera.k2 * p.r2);
  const T scale = camera.f * inverse_depth;
  p.m00 = scale * (p.distortion + slope * p.x * p.x);
  p.m01 = scale * slope * p.x * p.y;
  p.m11 = scale * (p.distortion + slope * p.y * p.y);
  return p;
}

// As Project for operators: where the Jacobian is not finite (or comes within a
// factor of 10 or so of overflow) or, in float, where the depth has no correct
// digit, *p has a zero Jacobian (both J_c and J_p) and false is returned.
template <typename T>
CERES_EXT_HOST_DEVICE inline bool ProjectForProducts(
    const CameraState<T>& camera, const T* point, Projection<T>* p) {
  using std::fabs;
  // r.z sums three products of rounded factors, each product off by 3 eps / 2
  // at most, and two roundings of the sum; t.z and the last sum add one
  // rounding each: 4 eps bounds them all where r's terms don't cancel.
  constexpr T kDepthNoise =
      std::is_same_v<T, float> ? 4 * internal::Limits<T>::kEpsilon : T(0);
  *p = Project(camera, point);
  // Finite bounds on all entries: of P and P [r]x and P R, of the columns of f
  // and of k1 and k2.
  const T xy = fabs(p->x) + fabs(p->y);
  const T bounds[3] = {(fabs(p->m00) + fabs(p->m01) + fabs(p->m11)) * (1 + xy) *
                           (1 + fabs(p->r[0]) + fabs(p->r[1]) + fabs(p->r[2])),
                       p->distortion * xy,
                       camera.f * (1 + p->r2 * p->r2) * xy};
  const T depth = p->r[2] + camera.t[2];
  if (fabs(depth) > kDepthNoise * (fabs(p->r[2]) + fabs(camera.t[2])) &&
      AllFinite(bounds, 3)) {
    return true;
  }
  *p = Projection<T>{};
  return false;
}

template <typename T>
CERES_EXT_HOST_DEVICE inline void Residual(const CameraState<T>& camera,
                                           const Projection<T>& p,
                                           const T* observation,
                                           T* residual) {
  const T scale = camera.f * p.distortion;
  residual[0] = scale * p.x - observation[0];
  residual[1] = scale * p.y - observation[1];
}

// ---------------------------------------------------------------------------
// Jacobians as matrices.

// jacobian = J_p, 2 x 3.
template <typename T>
CERES_EXT_HOST_DEVICE inline void PointJacobian(const CameraState<T>& camera,
                                                const Projection<T>& p,
                                                T* jacobian) {
  const T* R = camera.R;
  for (int j = 0; j < 3; ++j) {
    // Column of [1 0 x; 0 1 y] R.
    const T a = R[j] + p.x * R[6 + j];
    const T b = R[3 + j] + p.y * R[6 + j];
    jacobian[j] = p.m00 * a + p.m01 * b;
    jacobian[3 + j] = p.m01 * a + p.m11 * b;
  }
}

// jacobian = J_c in local coordinates, 2 x 9.
template <typename T>
CERES_EXT_HOST_DEVICE inline void CameraJacobian(const CameraState<T>& camera,
                                                 const Projection<T>& p,
                                                 T* jacobian) {
  const T fr2 = camera.f * p.r2;
  const T m[4] = {p.m00, p.m01, p.m01, p.m11};
  const T xy[2] = {p.x, p.y};
  for (int i = 0; i < 2; ++i) {
    T* row = jacobian + kBalLocalCameraDim * i;
    // Row i of P.
    const T p0 = m[2 * i];
    const T p1 = m[2 * i + 1];
    const T p2 = p0 * p.x + p1 * p.y;
    // P (w x r) = w . (r x P_i).
    row[0] = p.r[1] * p2 - p.r[2] * p1;
    row[1] = p.r[2] * p0 - p.r[0] * p2;
    row[2] = p.r[0] * p1 - p.r[1] * p0;
    row[3] = p0;
    row[4] = p1;
    row[5] = p2;
    row[6] = p.distortion * xy[i];
    row[7] = fr2 * xy[i];
    row[8] = fr2 * p.r2 * xy[i];
  }
}

// jacobian = local_jacobian camera_map, 2 x kDim = 2 x 9 times 9 x kDim.
template <int kDim, typename T>
CERES_EXT_HOST_DEVICE inline void MapCameraJacobian(const T* local_jacobian,
                                                    const T* camera_map,
                                                    T* jacobian) {
  for (int i = 0; i < 2; ++i) {
    CameraMapTransposeMultiply<kDim>(camera_map,
                                     local_jacobian + kBalLocalCameraDim * i,
                                     jacobian + kDim * i);
  }
}

// True if element (i, j) of a camera map lies in one of its blocks where it is
// [blockdiag(3 x rotation_dim, diagonal 6), 0]: cameras without a manifold, or
// with a full one for the rotation, scaled, padded or with constants.
CERES_EXT_HOST_DEVICE constexpr bool IsInMapBlocks(int rotation_dim,
                                                   int i,
                                                   int j) {
  return i < 3 ? j < rotation_dim : j - rotation_dim == i - 3;
}

// As MapCameraJacobian, for a map of that form: 3 kRotationDim + 6 of its 9
// kDim values are read. kMapDim = kRotationDim: the map is its rotation map
// alone, the six are one.
template <int kRotationDim, int kDim, int kMapDim = kDim, typename T>
CERES_EXT_HOST_DEVICE inline void MapCameraJacobianByBlocks(
    const T* local_jacobian, const T* camera_map, T* jacobian) {
  static_assert(kRotationDim + 6 <= kDim);
  for (int j = 0; j < kRotationDim; ++j) {
    const T m0 = camera_map[j];
    const T m1 = camera_map[kMapDim + j];
    const T m2 = camera_map[2 * kMapDim + j];
    for (int i = 0; i < 2; ++i) {
      const T* local = local_jacobian + kBalLocalCameraDim * i;
      jacobian[kDim * i + j] = local[0] * m0 + local[1] * m1 + local[2] * m2;
    }
  }
  for (int j = 0; j < 6; ++j) {
    const T m = kMapDim == kRotationDim
                    ? T(1)
                    : camera_map[(3 + j) * kMapDim + kRotationDim + j];
    for (int i = 0; i < 2; ++i) {
      jacobian[kDim * i + kRotationDim + j] =
          local_jacobian[kBalLocalCameraDim * i + 3 + j] * m;
    }
  }
  for (int j = kRotationDim + 6; j < kDim; ++j) {
    jacobian[j] = T(0);
    jacobian[kDim + j] = T(0);
  }
}

// ---------------------------------------------------------------------------
// Jacobian products that never form the Jacobian. y and g have 2 entries.

// y = J_c local, 9 local coordinates.
template <typename T>
CERES_EXT_HOST_DEVICE inline void CameraMultiply(const CameraState<T>& camera,
                                                 const Projection<T>& p,
                                                 const T* local,
                                                 T* y) {
  // v = d Xc = w x r + dt; then [1 0 x; 0 1 y] v.
  const T v0 = local[1] * p.r[2] - local[2] * p.r[1] + local[3];
  const T v1 = local[2] * p.r[0] - local[0] * p.r[2] + local[4];
  const T v2 = local[0] * p.r[1] - local[1] * p.r[0] + local[5];
  const T a = v0 + p.x * v2;
  const T b = v1 + p.y * v2;
  // d (f distortion) at fixed (x, y).
  const T e =
      local[6] * p.distortion + camera.f * p.r2 * (local[7] + p.r2 * local[8]);
  y[0] = p.m00 * a + p.m01 * b + p.x * e;
  y[1] = p.m01 * a + p.m11 * b + p.y * e;
}

// y = J_p u.
template <typename T>
CERES_EXT_HOST_DEVICE inline void PointMultiply(const CameraState<T>& camera,
                                                const Projection<T>& p,
                                                const T* u,
                                                T* y) {
  const T* R = camera.R;
  const T v0 = R[0] * u[0] + R[1] * u[1] + R[2] * u[2];
  const T v1 = R[3] * u[0] + R[4] * u[1] + R[5] * u[2];
  const T v2 = R[6] * u[0] + R[7] * u[1] + R[8] * u[2];
  const T a = v0 + p.x * v2;
  const T b = v1 + p.y * v2;
  y[0] = p.m00 * a + p.m01 * b;
  y[1] = p.m01 * a + p.m11 * b;
}

// local += J_c' g. Sums in the wider type A where A is double and T float.
template <typename T, typename A>
CERES_EXT_HOST_DEVICE inline void CameraTransposeMultiplyAndAccumulate(
    const CameraState<T>& camera,
    const Projection<T>& p,
    const T* g,
    A* local) {
  // P' g, then (r x P' g, P' g, ...).
  const T a0 = p.m00 * g[0] + p.m01 * g[1];
  const T a1 = p.m01 * g[0] + p.m11 * g[1];
  const T a2 = p.x * a0 + p.y * a1;
  const T e = p.x * g[0] + p.y * g[1];
  const T fr2e = camera.f * p.r2 * e;
  local[0] += p.r[1] * a2 - p.r[2] * a1;
  local[1] += p.r[2] * a0 - p.r[0] * a2;
  local[2] += p.r[0] * a1 - p.r[1] * a0;
  local[3] += a0;
  local[4] += a1;
  local[5] += a2;
  local[6] += p.distortion * e;
  local[7] += fr2e;
  local[8] += p.r2 * fr2e;
}

// u += J_p' g. Sums in the wider type A where A is double and T float.
template <typename T, typename A>
CERES_EXT_HOST_DEVICE inline void PointTransposeMultiplyAndAccumulate(
    const CameraState<T>& camera, const Projection<T>& p, const T* g, A* u) {
  const T* R = camera.R;
  const T a0 = p.m00 * g[0] + p.m01 * g[1];
  const T a1 = p.m01 * g[0] + p.m11 * g[1];
  const T a2 = p.x * a0 + p.y * a1;
  u[0] += R[0] * a0 + R[3] * a1 + R[6] * a2;
  u[1] += R[1] * a0 + R[4] * a1 + R[7] * a2;
  u[2] += R[2] * a0 + R[5] * a1 + R[8] * a2;
}

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_MODEL_BAL_MODEL_H_
