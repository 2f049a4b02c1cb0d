// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The state of one PCG solve that is not a vector, and the rules by which it
// continues or ends: those of Ceres's ConjugateGradientsSolver, and one more,
// that an exact solution is a solution. The state lives where the vectors live;
// operations publish it where the host sees it (PublishPcg). The operations of
// ops/pcg.h sum, these functions decide.
#ifndef CERES_EXT_CUDA_KERNELS_BASE_PCG_SCALARS_H_
#define CERES_EXT_CUDA_KERNELS_BASE_PCG_SCALARS_H_

#include <cmath>
#include <cstdint>

#include "cuda_kernels/base/host_device.h"

namespace ceres_ext::kernels {

// The reason why a solve ended, in the order in which one iteration tests them.
enum class PcgEnd : int32_t {
  kRunning = 0,
  kBlockBreakdown,     // a block that A or M is made of has no inverse
  kZeroRightHandSide,  // |b| = 0
  // |r| <= tol_r at once where no iteration is required, or |r| = 0 at once.
  kInitialResidual,
  kRhoBreakdown,    // rho = r'z is infinite, or zero at once
  kBetaBreakdown,   // rho / last_rho is infinite
  kUnderflow,       // rho or rho / last_rho is zero after some iterations
  kIndefinite,      // p'q is not positive, or infinite
  kAlphaBreakdown,  // rho / p'q is infinite
  kQuadraticModel,  // zeta < q_tolerance
  kModelCost,       // there is next to nothing left to gain: SetPcgResidual
  kResidual,        // |r| <= tol_r or |r| = 0
  kMaxNumIterations,
};

// The host's view: the scalars after iterations i, i - 1, ... at i modulo this,
// and behind these the scalars of the end.
constexpr int kNumPublishedPcg = 2;

struct PcgScalars {
  // kNumPublishedPcg + 1 in memory that the host reads; null: the host reads
  // these scalars.
  PcgScalars* published = nullptr;

  // Settings, written by PcgStart.
  double q_tolerance = 0.0;
  double model_cost_tolerance = 0.0;  // 0: never an end
  double tol_r = 0.0;                 // max(r_tolerance, 0) |b|
  int32_t min_num_iterations = 0;
  int32_t max_num_iterations = 0;

  // Iterations begun. Iteration i sets rho, beta, pq, alpha, then q1, zeta and
  // norm_r.
  int32_t num_iterations = 0;
  PcgEnd end = PcgEnd::kRunning;

  double norm_rhs = 0.0;
  double norm_r = 0.0;
  double rho = 1.0;
  double last_rho = 1.0;
  double beta = 0.0;
  double pq = 0.0;
  double alpha = 0.0;
  // The quadratic model x'Ax - 2 b'x after the last and after this iteration.
  double q0 = 0.0;
  double q1 = 0.0;
  double zeta = 0.0;
  double zeta_tolerance = 0.0;  // what zeta is compared with

  // A setting: the least |J x - b|^2 + |D x|^2 where the unknowns of A are
  // zero. With q1 it is twice the cost of the linear model. Infinite: unknown.
  double model_constant = INFINITY;
};

// How far below q_tolerance the model's cost takes zeta_tolerance. A model that
// fits exactly would have no end of it; in mixed precision the blocks of
// model_constant are wrong by 6e-8 of it, a thousandth of this.
inline constexpr double kLeastModelCostRatio = 1e-4;

// Called where an iteration, or a solve, has begun or ended.
CERES_EXT_HOST_DEVICE inline void PublishPcg(const PcgScalars& s) {
  if (s.published == nullptr) {
    return;
  }
  if (s.num_iterations == 0) {
    for (int i = 0; i <= kNumPublishedPcg; ++i) {
      s.published[i] = s;
    }
    return;
  }
  s.published[(s.num_iterations - 1) % kNumPublishedPcg] = s;
  if (s.end != PcgEnd::kRunning) {
    s.published[kNumPublishedPcg] = s;
  }
}

// Null scalars never end.
CERES_EXT_HOST_DEVICE inline bool PcgHasEnded(const PcgScalars* scalars) {
  return scalars != nullptr && scalars->end != PcgEnd::kRunning;
}

CERES_EXT_HOST_DEVICE inline bool IsInfinite(double x) {
  return x == INFINITY || x == -INFINITY;
}

// A q_tolerance that asks for accuracy as fast as the gradient falls: the
// second choice of S. C. Eisenstat, H. F. Walker, "Choosing the forcing terms
// in an inexact Newton method", SIAM J. Sci. Comput. 17, 1996, with the
// exponent 1,
//   eta_k = 0.9 |b_k| / |b_{k-1}|, at least 0.9 eta_{k-1} where that is over
//   0.1
struct PcgForcing {
  // |b| and q_tolerance of the linearisation before; 0 if there is none, or the
  // tolerance is constant.
  double last_norm_rhs = 0.0;
  double last_q_tolerance = 0.0;
};

// From q_tolerance / 100 to q_tolerance, which it is where there is no
// linearisation before.
CERES_EXT_HOST_DEVICE inline double ForcedQTolerance(const PcgForcing& forcing,
                                                     double norm_rhs,
                                                     double q_tolerance) {
  if (!(forcing.last_norm_rhs > 0.0)) {
    return q_tolerance;
  }
  double eta = 0.9 * norm_rhs / forcing.last_norm_rhs;
  const double safeguard = 0.9 * forcing.last_q_tolerance;
  if (safeguard > 0.1 && eta < safeguard) {
    eta = safeguard;
  }
  if (eta < 0.01 * q_tolerance) {
    eta = 0.01 * q_tolerance;
  }
  return eta < q_tolerance ? eta : q_tolerance;
}

// The scalars of a solve with |b|^2 = squared_norm_rhs, from x = 0 or from an x
// that is given, whose residual is SetPcgResidual's first one.
// Ends: kZeroRightHandSide where |b| = 0; kInitialResidual where x = 0,
// min_num_iterations = 0 and |b| <= tol_r.
CERES_EXT_HOST_DEVICE inline PcgScalars StartPcg(double squared_norm_rhs,
                                                 const PcgForcing& forcing,
                                                 double q_tolerance,
                                                 double r_tolerance,
                                                 double model_cost_tolerance,
                                                 int32_t min_num_iterations,
                                                 int32_t max_num_iterations,
                                                 bool x_is_given,
                                                 double model_constant) {
  PcgScalars s;
  s.model_constant = model_constant;
  s.norm_rhs = sqrt(squared_norm_rhs);
  s.norm_r = s.norm_rhs;
  s.q_tolerance = ForcedQTolerance(forcing, s.norm_rhs, q_tolerance);
  s.model_cost_tolerance = model_cost_tolerance;
  s.tol_r = r_tolerance > 0.0 ? r_tolerance * s.norm_rhs : 0.0;
  s.min_num_iterations = min_num_iterations;
  s.max_num_iterations = max_num_iterations;
  if (s.norm_rhs == 0.0) {
    s.end = PcgEnd::kZeroRightHandSide;
  } else if (!x_is_given && min_num_iterations == 0 && s.norm_r <= s.tol_r) {
    s.end = PcgEnd::kInitialResidual;
  }
  return s;
}

// Begins an iteration with rho = r'z: beta = rho / last rho from the second one
// on.
// Ends: kRhoBreakdown and kBetaBreakdown where a quotient is of no use. After
// the first iteration a zero is none: M is positive definite and r is not zero
// (SetPcgResidual), so r'z, or what is left of it, is smaller than any number,
// and x is the solution as far as numbers go: kUnderflow.
CERES_EXT_HOST_DEVICE inline void SetPcgRho(double rho, PcgScalars* s) {
  ++s->num_iterations;
  s->last_rho = s->rho;
  s->rho = rho;
  const bool first = s->num_iterations == 1;
  if (rho == 0.0) {
    s->end = first ? PcgEnd::kRhoBreakdown : PcgEnd::kUnderflow;
    return;
  }
  if (IsInfinite(rho)) {
    s->end = PcgEnd::kRhoBreakdown;
    return;
  }
  if (first) {
    return;
  }
  s->beta = rho / s->last_rho;
  if (s->beta == 0.0) {
    s->end = PcgEnd::kUnderflow;
  } else if (IsInfinite(s->beta)) {
    s->end = PcgEnd::kBetaBreakdown;
  }
}

// pq = p'q, alpha = rho / pq.
// Ends: kIndefinite where pq <= 0 or pq is infinite, kAlphaBreakdown where
// alpha is infinite. NaN ends nothing, as in Ceres.
CERES_EXT_HOST_DEVICE inline void SetPcgAlpha(double pq, PcgScalars* s) {
  s->pq = pq;
  if (pq <= 0.0 || IsInfinite(pq)) {
    s->end = PcgEnd::kIndefinite;
    return;
  }
  s->alpha = s->rho / pq;
  if (IsInfinite(s->alpha)) {
    s->end = PcgEnd::kAlphaBreakdown;
  }
}

// Ends an iteration with x'(b + r) and |r|^2: q1 = -x'(b + r),
// zeta = i (q1 - q0) / q1, then q0 = q1. zeta estimates what is still to be
// gained, relative to what has been gained, -q1. If the model has lost more
// than half of its cost, c = model_constant + q1 is left, and the possible gain
// is compared with that: zeta_tolerance = q_tolerance min(1, c / -q1). A linear
// model that can be fitted well is worth it: Gauss-Newton converges fast there,
// and a step that leaves a part of a cost that need not be left can lead into
// another valley. (Stopping by the residual that is left is the second rule of
// C. C. Paige, M. A. Saunders, "LSQR", ACM Trans. Math. Softw. 8, 1982.) Ends:
// kQuadraticModel if zeta < zeta_tolerance and i >= min_num_iterations;
// kModelCost if zeta < 0.1, Ceres's default, is enough, because the remaining
// decrease of the model's cost, (1/2) x'Ax - b'x, is estimated, as zeta does,
// as i (q0 - q1) / 2 < model_cost_tolerance, and i >= min_num_iterations;
// kResidual if |r| <= tol_r and i >= min_num_iterations, and if |r| = 0, from
// which it cannot continue; kMaxNumIterations if i >= max_num_iterations.
// Before the first iteration it takes the x that is given: q0 = q1. Ends:
// kInitialResidual where |r| <= tol_r and min_num_iterations = 0, and where |r|
// = 0.
CERES_EXT_HOST_DEVICE inline void SetPcgResidual(double x_b_plus_r,
                                                 double squared_norm_r,
                                                 PcgScalars* s) {
  s->q1 = -x_b_plus_r;
  s->norm_r = sqrt(squared_norm_r);
  if (s->num_iterations == 0) {
    s->q0 = s->q1;
    if ((s->norm_r <= s->tol_r && s->min_num_iterations == 0) ||
        s->norm_r == 0.0) {
      s->end = PcgEnd::kInitialResidual;
    }
    return;
  }
  s->zeta = s->num_iterations * (s->q1 - s->q0) / s->q1;
  s->zeta_tolerance = s->q_tolerance;
  const double model_cost = s->model_constant + s->q1;
  if (model_cost < -s->q1) {
    const double ratio = model_cost / -s->q1;
    s->zeta_tolerance *=
        ratio > kLeastModelCostRatio ? ratio : kLeastModelCostRatio;
  }
  const bool may_stop = s->num_iterations >= s->min_num_iterations;
  if (s->zeta < s->zeta_tolerance && may_stop) {
    s->end = PcgEnd::kQuadraticModel;
    return;
  }
  if (s->model_cost_tolerance > 0.0 && s->zeta < 0.1 && may_stop &&
      0.5 * s->num_iterations * (s->q0 - s->q1) < s->model_cost_tolerance) {
    s->end = PcgEnd::kModelCost;
    return;
  }
  s->q0 = s->q1;
  if ((s->norm_r <= s->tol_r && may_stop) || s->norm_r == 0.0) {
    s->end = PcgEnd::kResidual;
  } else if (s->num_iterations >= s->max_num_iterations) {
    s->end = PcgEnd::kMaxNumIterations;
  }
}

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_BASE_PCG_SCALARS_H_
