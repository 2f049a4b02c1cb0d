// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The vector steps of preconditioned conjugate gradients on A x = b. When a
// solve ends: base/pcg_scalars.h. A solve starts with
//
//   PcgStart       x = 0, r = b
//
// or, from an x that is given, with PcgStart (r = b), q = A x and PcgResidual
// (r = b - A x). One iteration is
//
//   z = M^-1 r                        (ops/block_rows.h)
//   PcgRho         rho = r'z
//   PcgDirection   p = z + beta p
//   q = A p                           (ops/schur_products.h)
//   PcgAlpha       alpha = rho / p'q
//   PcgAdvance     x += alpha p
//   PcgResidual    r -= alpha q, or r = b - A x; tests
//
// A step on scalars that have ended does nothing: a machine may queue steps
// ahead and look at the scalars later. q may be the array of z.
// Vector operations: ops/vector_operation.h.
#ifndef CERES_EXT_CUDA_KERNELS_OPS_PCG_H_
#define CERES_EXT_CUDA_KERNELS_OPS_PCG_H_

#include <cstdint>

#include "cuda_kernels/base/breakdown.h"
#include "cuda_kernels/base/host_device.h"
#include "cuda_kernels/base/pcg_scalars.h"
#include "cuda_kernels/base/vector_sums.h"
#include "cuda_kernels/ops/vector_operation.h"

namespace ceres_ext::kernels {

// x = 0 unless it is given, r = b, *scalars = StartPcg(|b|^2, ...), and where
// one of `breakdowns` is a block the end is kBlockBreakdown.
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
  bool x_is_given = false;
  double model_cost_tolerance = 0.0;
  PcgForcing forcing = {};
  PcgScalars* published = nullptr;  // PcgScalars::published
  BreakdownArrays breakdowns = {};  // of A and of M
  bool has_model_constant = false;  // scalars->model_constant is there before

  CERES_EXT_HOST_DEVICE TwoSums Term(int64_t i) const {
    const double b = rhs[i];
    if (!x_is_given) {
      x[i] = 0.0;
    }
    r[i] = b;
    return {b * b, 0.0};
  }
  CERES_EXT_HOST_DEVICE void Set(const TwoSums& sums) const {
    *scalars =
        StartPcg(sums.first,
                 forcing,
                 q_tolerance,
                 r_tolerance,
                 model_cost_tolerance,
                 min_num_iterations,
                 max_num_iterations,
                 x_is_given,
                 has_model_constant ? scalars->model_constant : INFINITY);
    if (breakdowns.Any()) {
      scalars->end = PcgEnd::kBlockBreakdown;
    }
    scalars->published = published;
    PublishPcg(*scalars);
  }
};

// SetPcgRho(r'z).
struct PcgRhoParams {
  int64_t n = 0;
  const double* r = nullptr;
  const double* z = nullptr;
  PcgScalars* scalars = nullptr;

  CERES_EXT_HOST_DEVICE bool Begin() const { return !PcgHasEnded(scalars); }
  CERES_EXT_HOST_DEVICE TwoSums Term(int64_t i) const {
    return {r[i] * z[i], 0.0};
  }
  CERES_EXT_HOST_DEVICE void Set(const TwoSums& sums) const {
    SetPcgRho(sums.first, scalars);
    if (PcgHasEnded(scalars)) {
      PublishPcg(*scalars);
    }
  }
};

// p = z + beta p; in the first iteration, where p has no value yet, p = z.
struct PcgDirectionParams {
  int64_t n = 0;
  const double* z = nullptr;
  double* p = nullptr;
  const PcgScalars* scalars = nullptr;

  // Set by Begin.
  bool first = false;
  double beta = 0.0;

  CERES_EXT_HOST_DEVICE bool Begin() {
    first = scalars->num_iterations == 1;
    beta = scalars->beta;
    return !PcgHasEnded(scalars);
  }
  CERES_EXT_HOST_DEVICE void Apply(int64_t i) const {
    p[i] = first ? z[i] : z[i] + beta * p[i];
  }
};

// SetPcgAlpha(p'q).
struct PcgAlphaParams {
  int64_t n = 0;
  const double* p = nullptr;
  const double* q = nullptr;
  PcgScalars* scalars = nullptr;

  CERES_EXT_HOST_DEVICE bool Begin() const { return !PcgHasEnded(scalars); }
  CERES_EXT_HOST_DEVICE TwoSums Term(int64_t i) const {
    return {p[i] * q[i], 0.0};
  }
  CERES_EXT_HOST_DEVICE void Set(const TwoSums& sums) const {
    SetPcgAlpha(sums.first, scalars);
    if (PcgHasEnded(scalars)) {
      PublishPcg(*scalars);
    }
  }
};

// x += alpha p.
struct PcgAdvanceParams {
  int64_t n = 0;
  const double* p = nullptr;
  double* x = nullptr;
  const PcgScalars* scalars = nullptr;

  double alpha = 0.0;  // set by Begin

  CERES_EXT_HOST_DEVICE bool Begin() {
    alpha = scalars->alpha;
    return !PcgHasEnded(scalars);
  }
  CERES_EXT_HOST_DEVICE void Apply(int64_t i) const { x[i] += alpha * p[i]; }
};

// r -= alpha q, or r = b - q where reset (q = A x);
// SetPcgResidual(x'(b + r), |r|^2).
struct PcgResidualParams {
  int64_t n = 0;
  bool reset = false;
  const double* rhs = nullptr;
  const double* q = nullptr;
  const double* x = nullptr;
  double* r = nullptr;
  PcgScalars* scalars = nullptr;

  double alpha = 0.0;  // set by Begin

  CERES_EXT_HOST_DEVICE bool Begin() {
    alpha = scalars->alpha;
    return !PcgHasEnded(scalars);
  }
  CERES_EXT_HOST_DEVICE TwoSums Term(int64_t i) const {
    const double b = rhs[i];
    const double residual = reset ? b - q[i] : r[i] - alpha * q[i];
    r[i] = residual;
    return {x[i] * (b + residual), residual * residual};
  }
  CERES_EXT_HOST_DEVICE void Set(const TwoSums& sums) const {
    SetPcgResidual(sums.first, sums.second, scalars);
    PublishPcg(*scalars);
  }
};

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_OPS_PCG_H_
