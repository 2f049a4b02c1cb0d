// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The state of one PCG solve that is not a vector, and the rules by which it
// goes on or ends: those of Ceres's ConjugateGradientsSolver, and one more,
// that an exact solution is a solution. The state lives where the vectors live;
// the host copies it out now and then. The operations of ops/pcg.h sum, these
// functions decide.
#ifndef CERES_EXT_CUDA_KERNELS_BASE_PCG_SCALARS_H_
#define CERES_EXT_CUDA_KERNELS_BASE_PCG_SCALARS_H_

#include <cmath>
#include <cstdint>

#include "cuda_kernels/base/host_device.h"

namespace ceres_ext::kernels {

// Why a solve ended, in the order in which one iteration tests them.
enum class PcgEnd : int32_t {
  kRunning = 0,
  kZeroRightHandSide,  // |b| = 0
  // |r| <= tol_r at once where no iteration is required, or |r| = 0 at once.
  kInitialResidual,
  kRhoBreakdown,    // rho = r'z is infinite, or zero at once
  kBetaBreakdown,   // rho / last_rho is infinite
  kUnderflow,       // rho or rho / last_rho is zero after some iterations
  kIndefinite,      // p'q is not positive, or infinite
  kAlphaBreakdown,  // rho / p'q is infinite
  kQuadraticModel,  // zeta < q_tolerance
  kResidual,        // |r| <= tol_r or |r| = 0
  kMaxNumIterations,
};

struct PcgScalars {
  // Settings, written by PcgStart.
  double q_tolerance = 0.0;
  double tol_r = 0.0;  // max(r_tolerance, 0) |b|
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
};

// Null scalars never end.
CERES_EXT_HOST_DEVICE inline bool PcgHasEnded(const PcgScalars* scalars) {
  return scalars != nullptr && scalars->end != PcgEnd::kRunning;
}

CERES_EXT_HOST_DEVICE inline bool IsInfinite(double x) {
  return x == INFINITY || x == -INFINITY;
}

// The scalars of a solve with |b|^2 = squared_norm_rhs, from x = 0 or from an x
// that is given, whose residual is SetPcgResidual's first one.
// Ends: kZeroRightHandSide where |b| = 0; kInitialResidual where x = 0,
// min_num_iterations = 0 and |b| <= tol_r.
CERES_EXT_HOST_DEVICE inline PcgScalars StartPcg(double squared_norm_rhs,
                                                 double q_tolerance,
                                                 double r_tolerance,
                                                 int32_t min_num_iterations,
                                                 int32_t max_num_iterations,
                                                 bool x_is_given) {
  PcgScalars s;
  s.norm_rhs = sqrt(squared_norm_rhs);
  s.norm_r = s.norm_rhs;
  s.q_tolerance = q_tolerance;
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
// zeta = i (q1 - q0) / q1, then q0 = q1.
// Ends: kQuadraticModel where zeta < q_tolerance and i >= min_num_iterations;
// kResidual where |r| <= tol_r and i >= min_num_iterations, and where |r| = 0,
// from where there is no way on; kMaxNumIterations where
// i >= max_num_iterations.
// Before the first iteration it takes the x that is given: q0 = q1.
// Ends: kInitialResidual where |r| <= tol_r and min_num_iterations = 0, and
// where |r| = 0.
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
  const bool may_stop = s->num_iterations >= s->min_num_iterations;
  if (s->zeta < s->q_tolerance && may_stop) {
    s->end = PcgEnd::kQuadraticModel;
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
