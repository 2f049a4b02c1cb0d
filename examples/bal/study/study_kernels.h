// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The vector steps of the study's Levenberg-Marquardt driver, and what it takes
// to bring a problem into the order of an observation index on the device.
#ifndef EXAMPLES_BAL_STUDY_STUDY_KERNELS_H_
#define EXAMPLES_BAL_STUDY_STUDY_KERNELS_H_

#include <cmath>
#include <cstdint>

#include "cuda_kernels/host_device.h"
#include "cuda_kernels/status.h"

typedef struct CUstream_st* cudaStream_t;

namespace ceres_ext::bal {

// out = x - step: the step minimises |J step - residual|.
struct SubtractParams {
  int64_t n = 0;
  const double* x = nullptr;
  const double* step = nullptr;
  double* out = nullptr;
};

// diagonal_i = sqrt(clamp(squared_norms_i, 1e-6, 1e32) / radius): Marquardt's
// damping with the bounds of Ceres's Levenberg-Marquardt strategy.
struct DampingParams {
  int64_t n = 0;
  const double* squared_norms = nullptr;
  double radius = 0.0;
  double* diagonal = nullptr;
};

CERES_EXT_HOST_DEVICE inline double DampingOf(double squared_norm,
                                              double radius) {
  const double clamped =
      squared_norm < 1e-6 ? 1e-6 : (squared_norm > 1e32 ? 1e32 : squared_norm);
  return std::sqrt(clamped / radius);
}

// out = x rounded to float.
struct RoundParams {
  int64_t n = 0;
  const double* x = nullptr;
  float* out = nullptr;
};

// Device bodies, one thread per element.
namespace cuda {

kernels::Status Subtract(const SubtractParams& params, cudaStream_t stream);
kernels::Status Damping(const DampingParams& params, cudaStream_t stream);
kernels::Status Round(const RoundParams& params, cudaStream_t stream);

// out_k = in_input_id[k], pairs of doubles.
kernels::Status GatherPairs(int64_t n,
                            const int32_t* input_id,
                            const double* in,
                            double* out,
                            cudaStream_t stream);
// ids_i = rank[ids_i].
kernels::Status Relabel(int64_t n,
                        const int32_t* rank,
                        int32_t* ids,
                        cudaStream_t stream);

}  // namespace cuda

}  // namespace ceres_ext::bal

#endif  // EXAMPLES_BAL_STUDY_STUDY_KERNELS_H_
