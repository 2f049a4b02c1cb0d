// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Residuals of inertial odometry, as functors with written derivatives for the
// host and for CUDA's device code (photogrammetry.h says how functors are
// used); odometry_cost_functions.h has their cost functions.
//
// Blocks. A keyframe has two:
//
//   world_from_body  a pose, rotation before translation: X_w = R X_b + p
//   speed and biases velocity in the world (3), bias of the gyroscope (3), bias
//                    of the accelerometer (3)
//
// Units: metres, seconds, radians. The body's frame is that of the inertial
// sensor. Quaternions need a manifold (photogrammetry.h).

#ifndef CERES_EXT_ODOMETRY_ERRORS_H_
#define CERES_EXT_ODOMETRY_ERRORS_H_

#include <algorithm>
#include <string>
#include <utility>

#include "ceres/internal/port.h"
#include "ceres/jet.h"
#include "ceres/rotation.h"
#include "ceres_ext/photogrammetry.h"
#include "ceres_ext/preintegration.h"

namespace ceres_ext {

namespace internal {

// to (kRows x kColumns) = a (kRows x kInner) b, row-major.
template <int kRows, int kInner, int kColumns>
CERES_HOST_DEVICE void MatrixProduct(const double* a,
                                     const double* b,
                                     double* to) {
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kColumns; ++j) {
      double sum = 0.0;
      for (int k = 0; k < kInner; ++k) {
        sum += a[kInner * i + k] * b[kColumns * k + j];
      }
      to[kColumns * i + j] = sum;
    }
  }
}

// The conjugate of a quaternion w, x, y, z.
template <typename T>
CERES_HOST_DEVICE void Conjugate(const T* q, T* conjugate) {
  conjugate[0] = q[0];
  for (int i = 1; i < 4; ++i) {
    conjugate[i] = -q[i];
  }
}

// Derivatives by a quaternion from those by its conjugate, 3 x 4.
CERES_HOST_DEVICE inline void DerivativeOfConjugate(double* by_conjugate) {
  for (int i = 0; i < 3; ++i) {
    for (int j = 1; j < 4; ++j) {
      by_conjugate[4 * i + j] = -by_conjugate[4 * i + j];
    }
  }
}

// The matrix, 4 x 4, with which p -> q p multiplies; is_right: p -> p q.
CERES_HOST_DEVICE inline void ProductMatrix(const double* q,
                                            bool is_right,
                                            double* matrix) {
  const double s = is_right ? -1.0 : 1.0;
  const double rows[16] = {q[0],
                           -q[1],
                           -q[2],
                           -q[3],  //
                           q[1],
                           q[0],
                           -s * q[3],
                           s * q[2],  //
                           q[2],
                           s * q[3],
                           q[0],
                           -s * q[1],  //
                           q[3],
                           -s * q[2],
                           s * q[1],
                           q[0]};
  for (int i = 0; i < 16; ++i) {
    matrix[i] = rows[i];
  }
}

// A rotation's quaternion and its derivative by the rotation's values, 4 x
// kSize.
template <typename Rotation>
CERES_HOST_DEVICE void DifferentiateRotation(const double* rotation,
                                             double* wxyz,
                                             double* by_rotation) {
  constexpr int kSize = Rotation::kSize;
  using Jet = ceres::Jet<double, kSize>;
  Jet jets[kSize];
  for (int i = 0; i < kSize; ++i) {
    jets[i] = Jet(rotation[i], i);
  }
  Jet q[4];
  Rotation::ToQuaternion(jets, q);
  for (int i = 0; i < 4; ++i) {
    wxyz[i] = q[i].a;
    for (int j = 0; j < kSize; ++j) {
      by_rotation[kSize * i + j] = q[i].v[j];
    }
  }
}

// R(q)' u and its derivatives by q (3 x 4) and by u, R' (3 x 3), row-major.
CERES_HOST_DEVICE inline void RotateBackJacobian(const double* wxyz,
                                                 const double* u,
                                                 double* rotated,
                                                 double* by_wxyz,
                                                 double* by_u) {
  const double zero[3] = {0.0, 0.0, 0.0};
  double inverse[4];
  Conjugate(wxyz, inverse);
  TransformPointJacobian<Quaternion>(inverse, zero, u, rotated, by_wxyz, by_u);
  DerivativeOfConjugate(by_wxyz);
}

// log R(q) with its derivative by q (3 x 4).
CERES_HOST_DEVICE inline void LogarithmJacobian(const double* wxyz,
                                                double* logarithm,
                                                double* by_wxyz) {
  using Jet = ceres::Jet<double, 4>;
  const Jet q[4] = {
      Jet(wxyz[0], 0), Jet(wxyz[1], 1), Jet(wxyz[2], 2), Jet(wxyz[3], 3)};
  Jet jets[3];
  QuaternionToLogarithm(q, jets);
  for (int i = 0; i < 3; ++i) {
    logarithm[i] = jets[i].a;
    for (int j = 0; j < 4; ++j) {
      by_wxyz[4 * i + j] = jets[i].v[j];
    }
  }
}

// Multiplies the columns of a matrix (kRows x num_columns, row-major) by a
// lower triangular matrix, packed row by row.
template <int kRows, typename T>
CERES_HOST_DEVICE void MultiplyByLower(const double* lower,
                                       int num_columns,
                                       T* matrix) {
#ifdef __CUDA_ARCH__
  // A column at a time, in registers.
#pragma unroll 1
  for (int j = 0; j < num_columns; ++j) {
    T column[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      column[i] = matrix[num_columns * i + j];
    }
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      T sum = lower[i * (i + 1) / 2] * column[0];
#pragma unroll
      for (int k = 1; k <= i; ++k) {
        sum += lower[i * (i + 1) / 2 + k] * column[k];
      }
      matrix[num_columns * i + j] = sum;
    }
  }
#else
  // From the last row on, since each needs those before it.
  for (int i = kRows - 1; i >= 0; --i) {
    const double* const row = lower + i * (i + 1) / 2;
    for (int j = 0; j < num_columns; ++j) {
      T sum = row[0] * matrix[j];
      for (int k = 1; k <= i; ++k) {
        sum += row[k] * matrix[num_columns * k + j];
      }
      matrix[num_columns * i + j] = sum;
    }
  }
#endif
}

}  // namespace internal

// The measurements of an inertial sensor between keyframes i and j
// (preintegration.h): A (r_R, r_p, r_v, r_g, r_a) with A'A the inverse of their
// covariance and
//
//   r_R = log((dR Exp(J_R b))' R_i' R_j)
//   r_p = R_i' (p_j - p_i - v_i T - g T^2 / 2) - (dp + J_p b)
//   r_v = R_i' (v_j - v_i - g T) - (dv + J_v b)
//   r_g = b_g,j - b_g,i,  r_a = b_a,j - b_a,i
//
// where b is the change of the biases of i since the preintegration. Source:
// the residuals, the first order correction for b and those of biases are
// equations (45), (44) and (48) of Forster et al. 2017.
template <typename Rotation>
struct InertialError {
  static constexpr int kNumResiduals = 15;
  static constexpr int kPose = Rotation::kSize + 3;
  // Pose of i, speed and biases of i, the same of j.
  using BlockSizes = std::integer_sequence<int, kPose, 9, kPose, 9>;

  // gravity: in the world, as (0, 0, -9.81). Returns false, changes nothing and
  // says why in *error (may be null) if nothing was added to the
  // preintegration or its covariance is not positive definite, as with a noise
  // of 0.
  bool Set(const Preintegration& increment,
           const double* gravity_in,
           std::string* error) {
    double information[15 * 15];
    if (!SquareRootInformation<15>(
            increment.covariance().data(), information, error)) {
      return false;
    }
    duration = increment.duration();
    const Preintegration::Rotation& q = increment.rotation();
    wxyz[0] = q.w();
    wxyz[1] = q.x();
    wxyz[2] = q.y();
    wxyz[3] = q.z();
    std::copy_n(increment.position().data(), 3, position);
    std::copy_n(increment.velocity().data(), 3, velocity);
    std::copy_n(increment.bias().data(), 6, bias);
    std::copy_n(increment.bias_jacobian().data(), 54, bias_jacobian);
    std::copy_n(gravity_in, 3, gravity);
    for (int i = 0; i < 15; ++i) {
      std::copy_n(
          information + 15 * i, i + 1, sqrt_information + i * (i + 1) / 2);
    }
    return true;
  }

  template <typename T>
  CERES_HOST_DEVICE bool operator()(const T* pose_i,
                                    const T* speed_i,
                                    const T* pose_j,
                                    const T* speed_j,
                                    T* residuals) const {
    T change[9];
    BiasChange(speed_i, change);
    T turn[4];
    ceres::AngleAxisToQuaternion(change, turn);
    const T measured[4] = {T(wxyz[0]), T(wxyz[1]), T(wxyz[2]), T(wxyz[3])};
    T predicted[4];
    ceres::QuaternionProduct(measured, turn, predicted);
    T inverse[4];
    internal::Conjugate(predicted, inverse);
    T q_i[4];
    Rotation::ToQuaternion(pose_i, q_i);
    T q_j[4];
    Rotation::ToQuaternion(pose_j, q_j);
    T inverse_i[4];
    internal::Conjugate(q_i, inverse_i);
    T relative[4];
    ceres::QuaternionProduct(inverse_i, q_j, relative);
    T difference[4];
    ceres::QuaternionProduct(inverse, relative, difference);
    internal::QuaternionToLogarithm(difference, residuals);
    T moved[3];
    T gained[3];
    InWorld(pose_i, speed_i, pose_j, speed_j, moved, gained);
    ceres::UnitQuaternionRotatePoint(inverse_i, moved, residuals + 3);
    ceres::UnitQuaternionRotatePoint(inverse_i, gained, residuals + 6);
    for (int k = 0; k < 3; ++k) {
      residuals[3 + k] -= position[k] + change[3 + k];
      residuals[6 + k] -= velocity[k] + change[6 + k];
    }
    for (int k = 0; k < 6; ++k) {
      residuals[9 + k] = speed_j[3 + k] - speed_i[3 + k];
    }
    internal::MultiplyByLower<15>(sqrt_information, 1, residuals);
    return true;
  }

  // Pose and speed of j for which the residuals are zero: a start where nothing
  // else is known. They may be those of i.
  void Predict(const double* pose_i,
               const double* speed_i,
               double* pose_j,
               double* speed_j) const {
    double change[9];
    BiasChange(speed_i, change);
    double turn[4];
    ceres::AngleAxisToQuaternion(change, turn);
    double q_i[4];
    Rotation::ToQuaternion(pose_i, q_i);
    double relative[4];
    ceres::QuaternionProduct(wxyz, turn, relative);
    double q_j[4];
    ceres::QuaternionProduct(q_i, relative, q_j);
    double moved[3];
    double gained[3];
    for (int k = 0; k < 3; ++k) {
      moved[k] = position[k] + change[3 + k];
      gained[k] = velocity[k] + change[6 + k];
    }
    double turned[3];
    ceres::UnitQuaternionRotatePoint(q_i, moved, turned);
    for (int k = 0; k < 3; ++k) {
      const int p = Rotation::kSize + k;
      pose_j[p] = pose_i[p] + duration * speed_i[k] +
                  0.5 * duration * duration * gravity[k] + turned[k];
    }
    ceres::UnitQuaternionRotatePoint(q_i, gained, turned);
    for (int k = 0; k < 9; ++k) {
      speed_j[k] =
          speed_i[k] + (k < 3 ? duration * gravity[k] + turned[k] : 0.0);
    }
    if constexpr (std::is_same_v<Rotation, AngleAxis>) {
      ceres::QuaternionToAngleAxis(q_j, pose_j);
    } else {
      for (int k = 0; k < 4; ++k) {
        pose_j[std::is_same_v<Rotation, EigenQuaternion> ? (k + 3) % 4 : k] =
            q_j[k];
      }
    }
  }

  using DerivativesOf = InertialError;
  template <typename Sizes>
  CERES_HOST_DEVICE bool Differentiate(Sizes,
                                       const double* const* blocks,
                                       double* residuals,
                                       double* const* jacobians) const {
    if (!(*this)(blocks[0], blocks[1], blocks[2], blocks[3], residuals)) {
      return false;
    }
    DifferentiateAll(blocks, jacobians);
    for (int b = 0; b < 4; ++b) {
      internal::MultiplyByLower<15>(
          sqrt_information, b % 2 == 0 ? kPose : 9, jacobians[b]);
    }
    return true;
  }
  // The derivative by one block; what the others become is of no use.
  using DerivativesByBlockOf = InertialError;
  CERES_HOST_DEVICE bool DifferentiateBlock(int block,
                                            const double* const* blocks,
                                            double* residuals,
                                            double* const* jacobians) const {
    if (!(*this)(blocks[0], blocks[1], blocks[2], blocks[3], residuals)) {
      return false;
    }
    DifferentiateAll(blocks, jacobians);
    internal::MultiplyByLower<15>(
        sqrt_information, block % 2 == 0 ? kPose : 9, jacobians[block]);
    return true;
  }

  double duration;
  double wxyz[4];
  double position[3];
  double velocity[3];
  double bias[6];
  double bias_jacobian[9 * 6];  // of (J_R, J_p, J_v)
  double gravity[3];
  double sqrt_information[120];  // A, packed row by row

 private:
  // J b.
  template <typename T>
  CERES_HOST_DEVICE void BiasChange(const T* speed_i, T* change) const {
    T difference[6];
    for (int k = 0; k < 6; ++k) {
      difference[k] = speed_i[3 + k] - bias[k];
    }
    for (int i = 0; i < 9; ++i) {
      change[i] = bias_jacobian[6 * i] * difference[0];
      for (int k = 1; k < 6; ++k) {
        change[i] += bias_jacobian[6 * i + k] * difference[k];
      }
    }
  }

  // Position and velocity without those at i and without gravity's.
  template <typename T>
  CERES_HOST_DEVICE void InWorld(const T* pose_i,
                                 const T* speed_i,
                                 const T* pose_j,
                                 const T* speed_j,
                                 T* moved,
                                 T* gained) const {
    for (int k = 0; k < 3; ++k) {
      const int p = Rotation::kSize + k;
      moved[k] = pose_j[p] - pose_i[p] - speed_i[k] * duration -
                 0.5 * duration * duration * gravity[k];
      gained[k] = speed_j[k] - speed_i[k] - duration * gravity[k];
    }
  }

  // Without A.
  CERES_HOST_DEVICE void DifferentiateAll(const double* const* blocks,
                                          double* const* jacobians) const {
    for (int b = 0; b < 4; ++b) {
      for (int k = 0; k < 15 * (b % 2 == 0 ? kPose : 9); ++k) {
        jacobians[b][k] = 0.0;
      }
    }
    DifferentiateTurn(blocks, jacobians);
    DifferentiateRest(blocks, jacobians);
  }

  // The derivatives of r_R, of the quaternion e' m' q_i' q_j with e = Exp(J_R
  // b) and m the measured one.
  CERES_HOST_DEVICE void DifferentiateTurn(const double* const* blocks,
                                           double* const* jacobians) const {
    constexpr int kRotation = Rotation::kSize;
    double q_i[4];
    double q_j[4];
    double by_rotation_i[4 * kRotation];
    double by_rotation_j[4 * kRotation];
    internal::DifferentiateRotation<Rotation>(blocks[0], q_i, by_rotation_i);
    internal::DifferentiateRotation<Rotation>(blocks[2], q_j, by_rotation_j);
    double change[9];
    BiasChange(blocks[1], change);
    double e[4];
    double by_turn[12];
    internal::DifferentiateRotation<AngleAxis>(change, e, by_turn);

    double inverse_i[4];
    internal::Conjugate(q_i, inverse_i);
    double inverse_e[4];
    internal::Conjugate(e, inverse_e);
    double inverse_m[4];
    internal::Conjugate(wxyz, inverse_m);
    double relative[4];  // q_i' q_j
    ceres::QuaternionProduct(inverse_i, q_j, relative);
    double rest[4];  // m' q_i' q_j
    ceres::QuaternionProduct(inverse_m, relative, rest);
    double difference[4];
    ceres::QuaternionProduct(inverse_e, rest, difference);
    double logarithm[3];
    double by_difference[12];
    internal::LogarithmJacobian(difference, logarithm, by_difference);
    double inverse[4];  // e' m'
    ceres::QuaternionProduct(inverse_e, inverse_m, inverse);

    double matrix[16];
    double by_relative[12];
    internal::ProductMatrix(inverse, false, matrix);
    internal::MatrixProduct<3, 4, 4>(by_difference, matrix, by_relative);
    double by_q[12];
    double rows[3 * 4];
    internal::ProductMatrix(inverse_i, false, matrix);
    internal::MatrixProduct<3, 4, 4>(by_relative, matrix, by_q);
    internal::MatrixProduct<3, 4, kRotation>(by_q, by_rotation_j, rows);
    Store(rows, kRotation, kPose, jacobians[2]);
    internal::ProductMatrix(q_j, true, matrix);
    internal::MatrixProduct<3, 4, 4>(by_relative, matrix, by_q);
    internal::DerivativeOfConjugate(by_q);
    internal::MatrixProduct<3, 4, kRotation>(by_q, by_rotation_i, rows);
    Store(rows, kRotation, kPose, jacobians[0]);
    internal::ProductMatrix(rest, true, matrix);
    internal::MatrixProduct<3, 4, 4>(by_difference, matrix, by_q);
    internal::DerivativeOfConjugate(by_q);
    double by_change[9];
    internal::MatrixProduct<3, 4, 3>(by_q, by_turn, by_change);
    double by_bias[18];
    internal::MatrixProduct<3, 3, 6>(by_change, bias_jacobian, by_bias);
    Store(by_bias, 6, 9, jacobians[1] + 3);
  }

  // The derivatives of r_p to r_a.
  CERES_HOST_DEVICE void DifferentiateRest(const double* const* blocks,
                                           double* const* jacobians) const {
    constexpr int kRotation = Rotation::kSize;
    double q_i[4];
    double by_rotation[4 * kRotation];
    internal::DifferentiateRotation<Rotation>(blocks[0], q_i, by_rotation);
    double in_world[2][3];
    InWorld(
        blocks[0], blocks[1], blocks[2], blocks[3], in_world[0], in_world[1]);
    double inverse[9];  // R_i'
    for (int part = 0; part < 2; ++part) {
      double in_body[3];
      double by_q[12];
      double rows[3 * 4];
      internal::RotateBackJacobian(q_i, in_world[part], in_body, by_q, inverse);
      internal::MatrixProduct<3, 4, kRotation>(by_q, by_rotation, rows);
      Store(rows, kRotation, kPose, jacobians[0] + (3 + 3 * part) * kPose);
    }
    for (int i = 0; i < 3; ++i) {
      for (int j = 0; j < 3; ++j) {
        const double r = inverse[3 * i + j];
        jacobians[0][(3 + i) * kPose + kRotation + j] = -r;
        jacobians[2][(3 + i) * kPose + kRotation + j] = r;
        jacobians[1][(3 + i) * 9 + j] = -duration * r;
        jacobians[1][(6 + i) * 9 + j] = -r;
        jacobians[3][(6 + i) * 9 + j] = r;
      }
    }
    for (int i = 3; i < 9; ++i) {
      for (int j = 0; j < 6; ++j) {
        jacobians[1][i * 9 + 3 + j] = -bias_jacobian[6 * i + j];
      }
      jacobians[1][(6 + i) * 9 + i] = -1.0;
      jacobians[3][(6 + i) * 9 + i] = 1.0;
    }
  }

  // Copies three rows into a matrix with `stride` columns.
  CERES_HOST_DEVICE static void Store(const double* rows,
                                      int num_columns,
                                      int stride,
                                      double* to) {
    for (int i = 0; i < 3; ++i) {
      for (int j = 0; j < num_columns; ++j) {
        to[stride * i + j] = rows[num_columns * i + j];
      }
    }
  }
};

}  // namespace ceres_ext

#endif  // CERES_EXT_ODOMETRY_ERRORS_H_
