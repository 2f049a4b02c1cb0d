// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A dense prior on any number of poses, as a SLAM window that marginalises old
// keyframes and their points leaves it: a Gaussian of the other poses x,
// linearised at their values x_0 of that time.
//
//   cost 1/2 |A d + b|^2,  d = x (-) x_0
//
// d stacks 6 values of each pose, those of the rotation first: the difference
// in the tangent space in which Ceres's manifold marginalises. x_0 and A stay
// as they are in later solves, since values at another linearisation would add
// information that no measurement has (Dong-Si and Mourikis 2011, Leutenegger
// et al. 2015). With H and g the Schur complement of J'J and J'r at x_0:
//
//   H = L L',  A = L',  b = L^-1 g
//
//   std::string error;
//   // n poses of 7 values; A: m x 6 n, row-major; b: m
//   auto prior = ceres_ext::MarginalPrior<ceres_ext::EigenQuaternion>::Create(
//       n, x_0, m, A, b, &error);
//   problem.AddResidualBlock(prior.release(), nullptr, poses);  // n addresses
//
// SolveBatch and WindowSolver solve windows of poses with such priors whole, if
// they have no loss (docs/batch.md). All other solves evaluate them on the
// host.
//
// Thread safety: const member functions may be called from any thread.

#ifndef CERES_EXT_MARGINAL_PRIOR_H_
#define CERES_EXT_MARGINAL_PRIOR_H_

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ceres/cost_function.h"
#include "ceres/jet.h"
#include "ceres/rotation.h"
#include "ceres_ext/photogrammetry.h"

namespace ceres_ext {

namespace internal {

// y (-) x of quaternions w, x, y, z as Ceres's manifolds have it, half the
// logarithm of y x^-1, except that y and -y have the same.
template <typename T>
CERES_HOST_DEVICE void QuaternionDifference(const T* y,
                                            const double* x,
                                            T* difference) {
  const T inverse[4] = {T(x[0]), T(-x[1]), T(-x[2]), T(-x[3])};
  T turn[4];
  ceres::QuaternionProduct(y, inverse, turn);
  QuaternionToLogarithm(turn, difference);
  for (int i = 0; i < 3; ++i) {
    difference[i] *= T(0.5);
  }
}

// The part of MarginalPrior that does not depend on the rotation.
class MarginalPriorBase : public ceres::CostFunction {
 public:
  int num_poses() const { return num_poses_; }
  // Rotation and translation of each pose.
  const std::vector<double>& references() const { return references_; }
  // num_residuals() x 6 num_poses(), row-major.
  const std::vector<double>& matrix() const { return matrix_; }
  const std::vector<double>& offset() const { return offset_; }

 protected:
  int num_poses_ = 0;
  std::vector<double> references_;
  std::vector<double> matrix_;
  std::vector<double> offset_;
};

}  // namespace internal

// Residuals A d + b of n poses, each one block: the values of its Rotation
// (photogrammetry.h), then the translation. The difference d of a pose is
//
//   quaternions  Minus of ceres::QuaternionManifold or EigenQuaternionManifold:
//                half the rotation vector of R R_0', in radians; q and -q have
//                the same
//   AngleAxis    the difference of the rotation vectors
//
// and t - t_0, in the unit of the points. Derivatives are exact to rounding at
// turns of less than pi.
template <typename Rotation>
class MarginalPrior final : public internal::MarginalPriorBase {
 public:
  static constexpr int kPoseSize = Rotation::kSize + 3;
  static constexpr int kTangentSize = 6;

  // references: num_poses x kPoseSize; a: num_residuals x kTangentSize *
  // num_poses, row-major; b: num_residuals. All are copied. Returns null, with
  // a sentence in *error (may be null), if a number is less than 1, a value is
  // not finite or a quaternion is zero.
  static std::unique_ptr<MarginalPrior> Create(int num_poses,
                                               const double* references,
                                               int num_residuals,
                                               const double* a,
                                               const double* b,
                                               std::string* error) {
    const auto refuse = [error](const std::string& what) {
      if (error != nullptr) {
        *error = "a marginal prior " + what;
      }
      return nullptr;
    };
    if (num_poses < 1 || num_residuals < 1) {
      return refuse("has " + std::to_string(num_poses) + " poses and " +
                    std::to_string(num_residuals) +
                    " residuals; expected at least one of each");
    }
    const auto copy = [](const double* from, int64_t n) {
      return std::vector<double>(from, from + n);
    };
    std::unique_ptr<MarginalPrior> prior(new MarginalPrior());
    prior->num_poses_ = num_poses;
    prior->references_ = copy(references, int64_t{kPoseSize} * num_poses);
    prior->matrix_ = copy(a, int64_t{kTangentSize} * num_poses * num_residuals);
    prior->offset_ = copy(b, num_residuals);
    for (const auto& [name, values] :
         {std::make_pair("references", &prior->references_),
          std::make_pair("A", &prior->matrix_),
          std::make_pair("b", &prior->offset_)}) {
      for (size_t i = 0; i < values->size(); ++i) {
        if (!std::isfinite((*values)[i])) {
          return refuse(std::string("has ") + name + "[" + std::to_string(i) +
                        "] = " + std::to_string((*values)[i]) +
                        "; expected a finite value");
        }
      }
    }
    for (int k = 0; Rotation::kSize == 4 && k < num_poses; ++k) {
      const double* const q = &prior->references_[kPoseSize * k];
      if (q[0] == 0.0 && q[1] == 0.0 && q[2] == 0.0 && q[3] == 0.0) {
        return refuse("has a zero quaternion in reference " +
                      std::to_string(k));
      }
    }
    prior->set_num_residuals(num_residuals);
    prior->mutable_parameter_block_sizes()->assign(num_poses, kPoseSize);
    return prior;
  }

  bool Evaluate(double const* const* poses,
                double* residuals,
                double** jacobians) const override {
    const int num_columns = kTangentSize * num_poses_;
    for (int i = 0; i < num_residuals(); ++i) {
      residuals[i] = offset_[i];
    }
    for (int k = 0; k < num_poses_; ++k) {
      double d[kTangentSize];
      double by_rotation[3 * Rotation::kSize];
      Difference(poses[k], &references_[kPoseSize * k], d, by_rotation);
      const bool has_jacobian = jacobians != nullptr && jacobians[k] != nullptr;
      for (int i = 0; i < num_residuals(); ++i) {
        const double* const a =
            &matrix_[int64_t{num_columns} * i + kTangentSize * k];
        for (int e = 0; e < kTangentSize; ++e) {
          residuals[i] += a[e] * d[e];
        }
        if (!has_jacobian) {
          continue;
        }
        double* const row = jacobians[k] + int64_t{kPoseSize} * i;
        for (int e = 0; e < Rotation::kSize; ++e) {
          row[e] = a[0] * by_rotation[e] +
                   a[1] * by_rotation[Rotation::kSize + e] +
                   a[2] * by_rotation[2 * Rotation::kSize + e];
        }
        for (int e = 0; e < 3; ++e) {
          row[Rotation::kSize + e] = a[3 + e];
        }
      }
    }
    return true;
  }

 private:
  MarginalPrior() = default;

  // by_rotation: the derivative of the first 3 values, 3 x Rotation::kSize.
  static void Difference(const double* pose,
                         const double* reference,
                         double* d,
                         double* by_rotation) {
    constexpr int kSize = Rotation::kSize;
    if constexpr (kSize == 3) {
      for (int e = 0; e < 3; ++e) {
        d[e] = pose[e] - reference[e];
        for (int c = 0; c < 3; ++c) {
          by_rotation[3 * e + c] = e == c ? 1.0 : 0.0;
        }
      }
    } else {
      using Jet = ceres::Jet<double, kSize>;
      Jet rotation[kSize];
      for (int e = 0; e < kSize; ++e) {
        rotation[e] = Jet(pose[e], e);
      }
      Jet q[4];
      Rotation::ToQuaternion(rotation, q);
      double of_reference[4];
      Rotation::ToQuaternion(reference, of_reference);
      Jet turn[3];
      internal::QuaternionDifference(q, of_reference, turn);
      for (int e = 0; e < 3; ++e) {
        d[e] = turn[e].a;
        for (int c = 0; c < kSize; ++c) {
          by_rotation[kSize * e + c] = turn[e].v[c];
        }
      }
    }
    for (int e = 0; e < 3; ++e) {
      d[3 + e] = pose[kSize + e] - reference[kSize + e];
    }
  }
};

}  // namespace ceres_ext

#endif  // CERES_EXT_MARGINAL_PRIOR_H_
