// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The decisions of Ceres 2.2's DoglegStrategy without the work: a strategy of
// TrustRegion (trust_region.h), which has the radius and decides the rest. With
// E^2 as SquaredDamping has it for a radius of 1, the region is |E s| <=
// radius. The caller computes with vectors of all columns:
//
//   p = E^-2 J'r, the gradient       d = -(J'J + mu E^2)^-1 J'r
//
//   Next next = dogleg.Begin();
//   while (next == Next::kFactorize && !(d can be computed and is finite))
//     next = dogleg.RaiseDamping();
//   // kFailed: TrustRegion::RejectInvalidStep. After a factorisation:
//   dogleg.SetPoints(...), and of a subspace SetPlane(...), unless all is zero
//   dogleg.Choose(radius); // step() is a combination of two vectors
//
// After a rejected step the same vectors are combined again.
#ifndef CERES_EXT_SOLVER_DOGLEG_REGION_H_
#define CERES_EXT_SOLVER_DOGLEG_REGION_H_

#include <cmath>
#include <cstdint>

#include "cuda_kernels/base/host_device.h"

namespace ceres_ext {

// The steps of a loop: Levenberg-Marquardt, or as ceres::DoglegType.
enum class DoglegType : int32_t { kNone, kTraditional, kSubspace };

class DoglegRegion {
 public:
  enum class Next : int32_t { kChoose, kFactorize, kFailed };

  // a p + b d, or a u + b v of the plane's basis.
  struct Combination {
    double a = 0.0;
    double b = 0.0;
    bool is_of_basis = false;
  };

  DoglegRegion() = default;
  CERES_EXT_HOST_DEVICE explicit DoglegRegion(DoglegType type) : type_(type) {}

  CERES_EXT_HOST_DEVICE bool HasPlane() const {
    return type_ == DoglegType::kSubspace;
  }
  // The multiple of E^2 that is added to J'J.
  CERES_EXT_HOST_DEVICE double mu() const { return mu_; }

  // A step is wanted.
  CERES_EXT_HOST_DEVICE Next Begin() {
    if (has_points_) {
      return Next::kChoose;
    }
    has_points_ = true;
    return MayFactorize();
  }
  // d cannot be computed with mu().
  CERES_EXT_HOST_DEVICE Next RaiseDamping() {
    mu_ *= kIncrease;
    return MayFactorize();
  }

  // |E p|^2, |J p|^2, |E d|^2, and p'E^2 d = r'J d.
  CERES_EXT_HOST_DEVICE void SetPoints(double p_p,
                                       double p_h_p,
                                       double d_d,
                                       double p_d) {
    using std::sqrt;
    p_norm_ = sqrt(p_p);
    d_norm_ = sqrt(d_d);
    p_d_ = p_d;
    alpha_ = p_p / p_h_p;
    is_line_ = true;
  }
  // p and d are not on one line. u and v: vectors that span the same plane,
  // with u'E^2 u = v'E^2 v = 1 and u'E^2 v = 0. gradient: r'J [u v]. hessian:
  // u'J'J u, u'J'J v, v'J'J v.
  CERES_EXT_HOST_DEVICE void SetPlane(const double (&gradient)[2],
                                      const double (&hessian)[3]) {
    for (int i = 0; i < 2; ++i) {
      gradient_[i] = gradient[i];
    }
    for (int i = 0; i < 3; ++i) {
      hessian_[i] = hessian[i];
    }
    is_line_ = false;
  }

  CERES_EXT_HOST_DEVICE void Choose(double radius) {
    step_ = Combination();
    step_norm_ = radius;
    if (d_norm_ <= radius) {
      step_norm_ = d_norm_;
      step_.b = 1.0;
    } else if (HasPlane() && is_line_) {
      step_.a = -(radius / p_norm_);
    } else if (!HasPlane() || !ChooseInPlane(radius)) {
      ChooseOnPath(radius);
    }
  }
  CERES_EXT_HOST_DEVICE const Combination& step() const { return step_; }

  // A strategy of TrustRegion.
  CERES_EXT_HOST_DEVICE void Accept(double quality,
                                    double /*max_radius*/,
                                    double* radius) {
    using std::fmax;
    if (quality < kDecreaseThreshold) {
      *radius *= 0.5;
    }
    if (quality > kIncreaseThreshold) {
      *radius = fmax(*radius, 3.0 * step_norm_);
    }
    mu_ = fmax(kMinMu, 2.0 * mu_ / kIncrease);
    has_points_ = false;
  }
  CERES_EXT_HOST_DEVICE void Reject(double* radius) { *radius *= 0.5; }
  CERES_EXT_HOST_DEVICE void RejectInvalid(double* /*radius*/) {
    mu_ *= kIncrease;
    has_points_ = false;
  }

 private:
  // Constants of Ceres.
  static constexpr double kMinMu = 1e-8;
  static constexpr double kMaxMu = 1.0;
  static constexpr double kIncrease = 10.0;
  static constexpr double kIncreaseThreshold = 0.75;
  static constexpr double kDecreaseThreshold = 0.25;
  static constexpr double kCosineThreshold = 0.99;

  CERES_EXT_HOST_DEVICE Next MayFactorize() const {
    return mu_ < kMaxMu ? Next::kFactorize : Next::kFailed;
  }

  // The end of the region on the path from 0 to -alpha p and then to d, which
  // is outside.
  CERES_EXT_HOST_DEVICE void ChooseOnPath(double radius) {
    using std::sqrt;
    step_ = Combination();
    if (p_norm_ * alpha_ >= radius) {
      step_.a = -(radius / p_norm_);
      return;
    }
    const double b_a = -alpha_ * p_d_;
    const double a_a = alpha_ * p_norm_ * (alpha_ * p_norm_);
    const double d_d = d_norm_ * d_norm_;
    const double square = a_a - 2.0 * b_a + d_d;
    const double c = b_a - a_a;
    const double root = sqrt(c * c + square * (radius * radius - a_a));
    const double beta =
        c <= 0.0 ? (root - c) / square : (radius * radius - a_a) / (root + c);
    const double a = -alpha_ * (1.0 - beta);
    step_.a = a;
    step_.b = beta;
    step_norm_ = sqrt(a * a * (p_norm_ * p_norm_) + 2.0 * a * beta * p_d_ +
                      beta * beta * d_d);
  }

  // The largest root y of the quartic (r s t)^2 - (g t)^2 - (h s)^2, with
  // s = y + l and t = y + m. Beyond it the quartic is convex and rises, so
  // Newton's method falls to the root from where each term of
  // (g / s)^2 + (h / t)^2 = r^2 is half of the right side at most.
  CERES_EXT_HOST_DEVICE static double LargestRoot(
      double r, double l, double m, double g, double h) {
    using std::fabs;
    using std::fmax;
    using std::sqrt;
    double y = fmax(sqrt(2.0) * fabs(g) / r - l, sqrt(2.0) * fabs(h) / r - m);
    for (int i = 0; i < kMostRootSteps; ++i) {
      const double s = y + l;
      const double t = y + m;
      const double value =
          r * s * t * (r * s * t) - g * t * (g * t) - h * s * (h * s);
      const double slope =
          2.0 * (r * r * s * t * (s + t) - g * g * t - h * h * s);
      const double next = y - value / slope;
      if (!(next < y)) {
        break;
      }
      y = next;
    }
    return y;
  }

  // The least x'B x / 2 + g'x on |x| = radius. Ceres compares the model at all
  // roots of the quartic of (B + y I) x = -g; the least is that of the largest.
  // False if x is not a minimum, as Ceres tests it.
  CERES_EXT_HOST_DEVICE bool ChooseInPlane(double radius) {
    using std::atan2;
    using std::cos;
    using std::sin;
    using std::sqrt;
    const double(&b)[3] = hessian_;
    const double(&g)[2] = gradient_;
    // B = Q diag(l, m) Q'.
    const double angle = 0.5 * atan2(2.0 * b[1], b[0] - b[2]);
    const double c = cos(angle);
    const double s = sin(angle);
    const double l = c * c * b[0] + 2.0 * c * s * b[1] + s * s * b[2];
    const double m = s * s * b[0] - 2.0 * c * s * b[1] + c * c * b[2];
    const double g_l = c * g[0] + s * g[1];
    const double g_m = c * g[1] - s * g[0];
    const double y = LargestRoot(radius, l, m, g_l, g_m);
    const double x_l = -g_l / (y + l);
    const double x_m = -g_m / (y + m);
    // The angle of -x and the gradient of the model.
    const double slope_l = l * x_l + g_l;
    const double slope_m = m * x_m + g_m;
    const double cosine = -(x_l * slope_l + x_m * slope_m) /
                          (sqrt(x_l * x_l + x_m * x_m) *
                           sqrt(slope_l * slope_l + slope_m * slope_m));
    step_.a = c * x_l - s * x_m;
    step_.b = s * x_l + c * x_m;
    step_.is_of_basis = true;
    return cosine >= kCosineThreshold;
  }

  // The start is at most sqrt(2) times as far from a pole as the root is.
  static constexpr int kMostRootSteps = 50;

  DoglegType type_ = DoglegType::kNone;
  bool has_points_ = false;
  bool is_line_ = true;
  double mu_ = kMinMu;
  double alpha_ = 0.0;
  double p_norm_ = 0.0;
  double d_norm_ = 0.0;
  double p_d_ = 0.0;
  Combination step_;
  double step_norm_ = 0.0;  // |E step|
  double gradient_[2] = {};
  double hessian_[3] = {};
};

}  // namespace ceres_ext

#endif  // CERES_EXT_SOLVER_DOGLEG_REGION_H_
