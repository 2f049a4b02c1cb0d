// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The vector steps of the power series of the inverse of S = B - A, with
// B = F'F + D_f^2 (its diagonal blocks) and A = F'E (E'E + D_e^2)^-1 E'F:
//
//   z = sum_i t_i,   t_0 = B^-1 r,   t_i = B^-1 A t_{i-1}
//
// Vector operations: ops/vector_operation.h.
#ifndef CERES_EXT_CUDA_KERNELS_OPS_POWER_SERIES_H_
#define CERES_EXT_CUDA_KERNELS_OPS_POWER_SERIES_H_

#include <cmath>
#include <cstdint>

#include "cuda_kernels/base/host_device.h"
#include "cuda_kernels/base/pcg_scalars.h"
#include "cuda_kernels/base/vector_sums.h"
#include "cuda_kernels/ops/vector_operation.h"

namespace ceres_ext::kernels {

// t = z, which is t_0, and the scalars of a series that ends by its tolerance:
// tol_r = tolerance |t_0|.
struct PowerSeriesStartParams {
  int64_t n = 0;
  double tolerance = 0.0;
  const double* z = nullptr;
  double* t = nullptr;
  PcgScalars* scalars = nullptr;
  PcgScalars* published = nullptr;  // PcgScalars::published

  CERES_EXT_HOST_DEVICE TwoSums Term(int64_t i) const {
    const double value = z[i];
    t[i] = value;
    return {value * value, 0.0};
  }
  CERES_EXT_HOST_DEVICE void Set(const TwoSums& sums) const {
    PcgScalars s;
    s.norm_r = sqrt(sums.first);
    s.tol_r = tolerance * s.norm_r;
    s.published = published;
    *scalars = s;
    PublishPcg(s);
  }
};

// t = -t, which makes it t_i, and z += t. If the series has separate scalars,
// norm_r = |t_i|, and it ends if that is below tol_r.
struct PowerSeriesTermParams {
  int64_t n = 0;
  double* t = nullptr;
  double* z = nullptr;
  const PcgScalars* scalars = nullptr;  // ended: nothing is done
  PcgScalars* series = nullptr;

  CERES_EXT_HOST_DEVICE bool Begin() const { return !PcgHasEnded(scalars); }
  CERES_EXT_HOST_DEVICE TwoSums Term(int64_t i) const {
    const double value = -t[i];
    t[i] = value;
    z[i] += value;
    return {value * value, 0.0};
  }
  CERES_EXT_HOST_DEVICE void Set(const TwoSums& sums) const {
    if (series != nullptr) {
      ++series->num_iterations;
      series->norm_r = sqrt(sums.first);
      if (series->norm_r < series->tol_r) {
        series->end = PcgEnd::kResidual;
      }
      PublishPcg(*series);
    }
  }
};

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_OPS_POWER_SERIES_H_
