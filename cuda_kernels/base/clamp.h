// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#ifndef CERES_EXT_CUDA_KERNELS_BASE_CLAMP_H_
#define CERES_EXT_CUDA_KERNELS_BASE_CLAMP_H_

#include "cuda_kernels/base/host_device.h"

namespace ceres_ext::kernels {

// The value within its bounds, as ceres::ParameterBlock::Plus has it: NaN stays
// NaN.
CERES_EXT_HOST_DEVICE inline double Clamp(double value,
                                          double lower,
                                          double upper) {
  const double raised = value < lower ? lower : value;
  return upper < raised ? upper : raised;
}

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_BASE_CLAMP_H_
