// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The state of one PCG solve that is not a vector. It lives where the vectors
// live; the host copies it out now and then.
#ifndef CERES_EXT_CUDA_KERNELS_PCG_SCALARS_H_
#define CERES_EXT_CUDA_KERNELS_PCG_SCALARS_H_

#include <cstdint>

namespace ceres_ext::kernels {

// Why a solve ended, in the order in which one iteration tests them.
enum class PcgEnd : int32_t {
  kRunning = 0,
  kZeroRightHandSide,  // |b| = 0
  kInitialResidual,    // |r| <= tol_r at once, where no iteration is required
  kRhoBreakdown,       // rho = r'z is zero or infinite
  kBetaBreakdown,      // rho / last_rho is zero or infinite
  kIndefinite,         // p'q is not positive, or infinite
  kAlphaBreakdown,     // rho / p'q is infinite
  kQuadraticModel,     // zeta < q_tolerance
  kResidual,           // |r| <= tol_r
  kMaxNumIterations,
};

struct PcgScalars {
  // Settings, written by PcgStart.
  double q_tolerance = 0.0;
  double tol_r = 0.0;  // r_tolerance |b|
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

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_PCG_SCALARS_H_
