// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The vector steps of preconditioned conjugate gradients on A x = b with
// x = 0 at the start, Ceres's stopping rules included. One iteration is
//
//   z = M^-1 r                        (preconditioner_kernels.h)
//   PcgDirection   rho = r'z, p = z + beta p
//   q = A p                           (schur_products_kernels.h)
//   PcgAdvance     alpha = rho / p'q, x += alpha p
//   PcgResidual    r -= alpha q, or r = b - A x; tests
//
// A step on scalars that have ended does nothing: a machine may queue steps
// ahead and look at the scalars later.
// Order: dot products are sums over chunks of fixed size, added in their order.
// q may be the array of z.
#ifndef CERES_EXT_CUDA_KERNELS_PCG_KERNELS_H_
#define CERES_EXT_CUDA_KERNELS_PCG_KERNELS_H_

#include <cstdint>

#include "cuda_kernels/pcg_scalars.h"

namespace ceres_ext::kernels {

class HostWorkspace;

// x = 0, r = b, *scalars set for the first iteration.
// Ends: kZeroRightHandSide where |b| = 0; kInitialResidual where
// min_num_iterations = 0 and |b| <= r_tolerance |b|.
// Traffic: 24 B per element.
struct PcgStartParams {
  int64_t n = 0;
  double q_tolerance = 0.0;
  double r_tolerance = 0.0;
  int32_t min_num_iterations = 0;
  int32_t max_num_iterations = 0;
  const double* rhs = nullptr;  // b
  double* x = nullptr;
  double* r = nullptr;
  PcgScalars* scalars = nullptr;
};

// ++num_iterations, last_rho = rho, rho = r'z; in the first iteration p = z,
// else beta = rho / last_rho, p = z + beta p.
// Ends: kRhoBreakdown where rho is zero or infinite, kBetaBreakdown where beta
// is; p is then as it was.
// Traffic: 40 B per element.
struct PcgDirectionParams {
  int64_t n = 0;
  const double* r = nullptr;
  const double* z = nullptr;
  double* p = nullptr;
  PcgScalars* scalars = nullptr;
};

// pq = p'q, alpha = rho / pq, x += alpha p.
// Ends: kIndefinite where pq <= 0 or pq is infinite, kAlphaBreakdown where
// alpha is infinite; x is then as it was. NaN ends nothing, as in Ceres.
// Traffic: 40 B per element.
struct PcgAdvanceParams {
  int64_t n = 0;
  const double* p = nullptr;
  const double* q = nullptr;
  double* x = nullptr;
  PcgScalars* scalars = nullptr;
};

// r -= alpha q, or r = b - q where reset (q = A x);
// q1 = -x'(b + r), zeta = i (q1 - q0) / q1, |r|.
// Ends: kQuadraticModel where zeta < q_tolerance and i >= min_num_iterations;
// then q0 = q1; kResidual where |r| <= tol_r and i >= min_num_iterations;
// kMaxNumIterations where i >= max_num_iterations.
// Traffic: 40 B per element.
struct PcgResidualParams {
  int64_t n = 0;
  bool reset = false;
  const double* rhs = nullptr;
  const double* q = nullptr;
  const double* x = nullptr;
  double* r = nullptr;
  PcgScalars* scalars = nullptr;
};

// *result = x'y.
// Traffic: 16 B per element.
struct DotParams {
  int64_t n = 0;
  const double* x = nullptr;
  const double* y = nullptr;
  double* result = nullptr;
};

// Host bodies. The workspace needs vector sums for n elements.
namespace reference {

void PcgStart(const PcgStartParams& params, HostWorkspace* workspace);
void PcgDirection(const PcgDirectionParams& params, HostWorkspace* workspace);
void PcgAdvance(const PcgAdvanceParams& params, HostWorkspace* workspace);
void PcgResidual(const PcgResidualParams& params, HostWorkspace* workspace);
void Dot(const DotParams& params, HostWorkspace* workspace);

}  // namespace reference

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_PCG_KERNELS_H_
