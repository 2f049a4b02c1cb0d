// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The vector steps of preconditioned conjugate gradients on A x = b with
// x = 0 at the start. When a solve ends: pcg_scalars.h. One iteration is
//
//   z = M^-1 r                        (ops/preconditioner.h)
//   PcgDirection   rho = r'z, p = z + beta p
//   q = A p                           (ops/schur_products.h)
//   PcgAdvance     alpha = rho / p'q, x += alpha p
//   PcgResidual    r -= alpha q, or r = b - A x; tests
//
// A step on scalars that have ended does nothing: a machine may queue steps
// ahead and look at the scalars later.
// Order: dot products are sums over chunks of fixed size, added in their order.
// q may be the array of z.
#ifndef CERES_EXT_CUDA_KERNELS_OPS_PCG_H_
#define CERES_EXT_CUDA_KERNELS_OPS_PCG_H_

#include <cstdint>

#include "cuda_kernels/base/pcg_scalars.h"

namespace ceres_ext::kernels {

class HostWorkspace;

// x = 0, r = b, *scalars = StartPcg(|b|^2, ...).
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

// SetPcgRho(r'z); in the first iteration p = z, else p = z + beta p. Where that
// ends the solve, p is as it was.
// Traffic: 40 B per element.
struct PcgDirectionParams {
  int64_t n = 0;
  const double* r = nullptr;
  const double* z = nullptr;
  double* p = nullptr;
  PcgScalars* scalars = nullptr;
};

// SetPcgAlpha(p'q), x += alpha p. Where the former ends the solve, x is as it
// was.
// Traffic: 40 B per element.
struct PcgAdvanceParams {
  int64_t n = 0;
  const double* p = nullptr;
  const double* q = nullptr;
  double* x = nullptr;
  PcgScalars* scalars = nullptr;
};

// r -= alpha q, or r = b - q where reset (q = A x);
// SetPcgResidual(x'(b + r), |r|^2).
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
namespace host {

void PcgStart(const PcgStartParams& params, HostWorkspace* workspace);
void PcgDirection(const PcgDirectionParams& params, HostWorkspace* workspace);
void PcgAdvance(const PcgAdvanceParams& params, HostWorkspace* workspace);
void PcgResidual(const PcgResidualParams& params, HostWorkspace* workspace);
void Dot(const DotParams& params, HostWorkspace* workspace);

}  // namespace host

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_OPS_PCG_H_
