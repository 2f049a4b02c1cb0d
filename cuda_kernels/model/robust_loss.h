// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Ceres's robust losses as one small tagged value, for host and device:
//
//   const RobustLoss loss(RobustLossKind::kHuber, 1.0);
//   double rho[3];
//   loss.Evaluate(squared_norm, rho);
//   const LossCorrector corrector(squared_norm, rho);
//   corrector.CorrectJacobian<2, 9>(residual, jacobian);  // before residual
//   corrector.CorrectResidual<2>(residual);
//
// rho[0..2] are rho(s), rho'(s) and rho''(s) at s = |r|^2 >= 0; the cost is
// rho(s) / 2. Values agree with ceres::LossFunction's to rounding; where Ceres
// subtracts nearly equal numbers (small s) these are the more exact ones. As in
// Ceres, rho' never underflows to zero except for Tukey's loss.
//
// A LossRef refers to the losses of a batch's rows, user-defined ones included.
#ifndef CERES_EXT_CUDA_KERNELS_MODEL_ROBUST_LOSS_H_
#define CERES_EXT_CUDA_KERNELS_MODEL_ROBUST_LOSS_H_

#include <cfloat>
#include <cmath>
#include <cstdint>

#include "cuda_kernels/base/host_device.h"

namespace ceres_ext::kernels {

// With x = s / a^2:
enum class RobustLossKind : int32_t {
  kTrivial,   // s
  kHuber,     // s for s <= a^2, else 2 a sqrt(s) - a^2
  kSoftLOne,  // 2 a^2 (sqrt(1 + x) - 1)
  kCauchy,    // a^2 log(1 + x)
  kArctan,    // a atan(s / a)
  kTolerant,  // b log(1 + e^((s - a) / b)) - b log(1 + e^(-a / b))
  kTukey,     // a^2 / 3 (1 - (1 - x)^3) for s <= a^2, else a^2 / 3
  kScale,     // a s: what ceres::ScaledLoss does to the loss before it
};

// Parameters have the meaning and the range of the constructors in
// ceres/loss_function.h: a > 0, in residual units (squared for arctan and
// tolerant); b > 0 for tolerant, whose a may be 0.
struct RobustLoss {
  RobustLossKind kind = RobustLossKind::kTrivial;
  double a = 0.0;
  double b = 0.0;
  // kTolerant: b log(1 + e^(-a / b)).
  double offset = 0.0;
  // The loss that is applied to this one's value, as an index into the table
  // that both are in, or -1: ceres::ComposedLoss(f, g) is g with next f.
  int32_t next = -1;

  RobustLoss() = default;
  CERES_EXT_HOST_DEVICE RobustLoss(RobustLossKind kind_in,
                                   double a_in,
                                   double b_in = 0.0)
      : kind(kind_in), a(a_in), b(b_in) {
    if (kind == RobustLossKind::kTolerant) {
      offset = b * LogOnePlusExp(-a / b);
    }
  }

  CERES_EXT_HOST_DEVICE void Evaluate(double s, double* rho) const {
    using std::atan2;
    using std::exp;
    using std::log1p;
    using std::sqrt;

    const double a2 = a * a;
    rho[0] = s;
    rho[1] = 1.0;
    rho[2] = 0.0;
    switch (kind) {
      case RobustLossKind::kTrivial:
        return;
      case RobustLossKind::kHuber:
        if (s > a2) {
          const double r = sqrt(s);
          rho[0] = 2.0 * a * r - a2;
          rho[1] = Positive(a / r);
          rho[2] = -0.5 * rho[1] / s;
        }
        return;
      case RobustLossKind::kSoftLOne: {
        // 2 a^2 (t - 1) = 2 s / (t + 1), t = sqrt(1 + x).
        const double sum = 1.0 + s / a2;
        const double t = sqrt(sum);
        rho[0] = 2.0 * s / (t + 1.0);
        rho[1] = Positive(1.0 / t);
        rho[2] = -0.5 * rho[1] / (a2 * sum);
        return;
      }
      case RobustLossKind::kCauchy: {
        const double x = s / a2;
        const double inverse = 1.0 / (1.0 + x);
        rho[0] = a2 * log1p(x);
        rho[1] = Positive(inverse);
        rho[2] = -inverse * inverse / a2;
        return;
      }
      case RobustLossKind::kArctan: {
        const double inverse = 1.0 / (1.0 + s * s / a2);
        rho[0] = a * atan2(s, a);
        rho[1] = Positive(inverse);
        rho[2] = -2.0 * (s * inverse) * inverse / a2;
        return;
      }
      case RobustLossKind::kTolerant: {
        // rho' is the logistic function of x, rho'' = rho'(x) rho'(-x) / b.
        const double x = (s - a) / b;
        const double up = 1.0 / (1.0 + exp(-x));
        const double down = 1.0 / (1.0 + exp(x));
        rho[0] = b * LogOnePlusExp(x) - offset;
        rho[1] = Positive(up);
        rho[2] = up * down / b;
        return;
      }
      case RobustLossKind::kTukey: {
        if (s > a2) {
          rho[0] = a2 / 3.0;
          rho[1] = 0.0;
          return;
        }
        // a^2 / 3 (1 - (1 - x)^3) = s (1 - x + x^2 / 3).
        const double x = s / a2;
        rho[0] = s * (1.0 - x * (1.0 - x / 3.0));
        rho[1] = (1.0 - x) * (1.0 - x);
        rho[2] = -2.0 * (1.0 - x) / a2;
        return;
      }
      case RobustLossKind::kScale:
        rho[0] = a * s;
        rho[1] = a;
        return;
    }
  }

  // rho' >= 0 and rho'' <= 0 at all s; this holds for chains of these too.
  // Ceres reduces one to the factor sqrt(rho') alone (LossCorrector). A factor
  // of kScale below zero, or NaN, is not.
  bool IsConcave() const {
    return kind != RobustLossKind::kTolerant &&
           (kind != RobustLossKind::kScale || a >= 0.0);
  }

  // The chain that begins with losses[id]:
  //   h = f(g(s)),  h' = f'(g) g',  h'' = f''(g) g'^2 + f'(g) g''
  CERES_EXT_HOST_DEVICE static void EvaluateChain(const RobustLoss* losses,
                                                  int32_t id,
                                                  double s,
                                                  double* rho) {
    losses[id].Evaluate(s, rho);
    for (id = losses[id].next; id >= 0; id = losses[id].next) {
      double f[3];
      losses[id].Evaluate(rho[0], f);
      rho[2] = f[2] * rho[1] * rho[1] + f[1] * rho[2];
      rho[1] = f[1] * rho[1];
      rho[0] = f[0];
    }
  }

 private:
  // The corrector divides by rho'.
  CERES_EXT_HOST_DEVICE static double Positive(double slope) {
    return slope > DBL_MIN ? slope : DBL_MIN;
  }

  // log(1 + e^x) without overflow: max(x, 0) + log(1 + e^-|x|).
  CERES_EXT_HOST_DEVICE static double LogOnePlusExp(double x) {
    using std::exp;
    using std::fabs;
    using std::log1p;
    return (x > 0.0 ? x : 0.0) + log1p(exp(-fabs(x)));
  }
};

// loss_id of a row without loss.
inline constexpr uint8_t kNoLoss = 255;

// The losses of the rows of a batch, by pointers that live where it is used.
struct LossRef {
  // Chains of losses, and per row the number of the first of its chain, or
  // kNoLoss; loss_id null: no row has one.
  const RobustLoss* losses = nullptr;
  const uint8_t* loss_id = nullptr;
  // If losses are user-defined: rho, rho' and rho'' of each row at its |r|^2,
  // filled beforehand; otherwise null.
  const double* rho = nullptr;
  // The factor of all three, row by row: ceres::ScaledLoss; null for 1.
  const double* weights = nullptr;

  // rho, rho' and rho'' of row k at s = |r_k|^2; {s, 1, 0} without a loss.
  CERES_EXT_HOST_DEVICE void Evaluate(int64_t k,
                                      double s,
                                      double* rho_out) const {
    EvaluateUnweighted(k, s, rho_out);
    if (weights != nullptr) {
      for (int i = 0; i < 3; ++i) {
        rho_out[i] *= weights[k];
      }
    }
  }

 private:
  CERES_EXT_HOST_DEVICE void EvaluateUnweighted(int64_t k,
                                                double s,
                                                double* rho_out) const {
    if (rho != nullptr) {
      for (int i = 0; i < 3; ++i) {
        rho_out[i] = rho[3 * k + i];
      }
      return;
    }
    rho_out[0] = s;
    rho_out[1] = 1.0;
    rho_out[2] = 0.0;
    const int id = loss_id == nullptr ? kNoLoss : loss_id[k];
    if (id != kNoLoss) {
      RobustLoss::EvaluateChain(losses, id, s, rho_out);
    }
  }
};

// Turns r and J into the residual and Jacobian of a plain least squares problem
// with the gradient and, about, the Hessian of rho(|r|^2) / 2, as Ceres does
// (Triggs et al., "Bundle Adjustment - A Modern Synthesis", eq. 11):
//
//   r~ = sqrt(rho') / (1 - alpha) r
//   J~ = sqrt(rho') (I - alpha / s r r') J,   alpha^2 / 2 - alpha = s rho'' /
//   rho'
//
// so that J~'r~ = rho' J'r and J~'J~ = rho' J'J + 2 rho'' J'r r'J. If rho'' <=
// 0 the second term is omitted (alpha = 0): J~'J~ stays positive semidefinite.
// rho'' > 0 requires rho' > 0, as all losses here have; with a user-defined
// loss that breaks this, or yields NaN, r~ or J~ is not finite.
class LossCorrector {
 public:
  LossCorrector() = default;  // Corrects nothing.
  CERES_EXT_HOST_DEVICE LossCorrector(double squared_norm, const double* rho) {
    using std::sqrt;
    sqrt_slope_ = sqrt(rho[1]);
    residual_scale_ = sqrt_slope_;
    alpha_over_s_ = 0.0;
    if (squared_norm > 0.0 && !(rho[2] <= 0.0)) {
      // The smaller root, negative.
      const double root = sqrt(1.0 + 2.0 * squared_norm * rho[2] / rho[1]);
      residual_scale_ = sqrt_slope_ / root;
      alpha_over_s_ = (1.0 - root) / squared_norm;
    }
  }

  // False if one of these would not be finite at s > 0. GCC 12 takes
  // "b <= 0 || (b > 0 && a > 0)" as true for a > 0 if b is NaN.
  CERES_EXT_HOST_DEVICE static bool HasRoot(const double* rho) {
    return rho[2] > 0.0 ? rho[1] > 0.0 : rho[1] >= 0.0 && rho[2] <= 0.0;
  }

  // True if one of these would correct nothing.
  CERES_EXT_HOST_DEVICE static bool IsIdentity(const double* rho) {
    return rho[1] == 1.0 && rho[2] <= 0.0;
  }

  // jacobian, kRows x kCols, row-major; residual is the uncorrected one.
  template <int kRows, int kCols>
  CERES_EXT_HOST_DEVICE void CorrectJacobian(const double* residual,
                                             double* jacobian) const {
    for (int j = 0; j < kCols; ++j) {
      double rJ = 0.0;
      for (int i = 0; i < kRows; ++i) {
        rJ += residual[i] * jacobian[i * kCols + j];
      }
      for (int i = 0; i < kRows; ++i) {
        jacobian[i * kCols + j] =
            sqrt_slope_ *
            (jacobian[i * kCols + j] - alpha_over_s_ * residual[i] * rJ);
      }
    }
  }

  template <int kRows>
  CERES_EXT_HOST_DEVICE void CorrectResidual(double* residual) const {
    for (int i = 0; i < kRows; ++i) {
      residual[i] *= residual_scale_;
    }
  }

 private:
  double sqrt_slope_ = 1.0;
  double residual_scale_ = 1.0;
  double alpha_over_s_ = 0.0;
};

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_MODEL_ROBUST_LOSS_H_
