// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "cuda_kernels/cuda/normal_blocks_impl.cuh"

namespace ceres_ext::kernels {

#define CERES_EXT_INSTANTIATE(...)                                           \
  template Status Run(const NormalBlocksParams<__VA_ARGS__, kDeviceLayout>&, \
                      CudaMachine*);
CERES_EXT_INSTANTIATE_ON_DEVICE()
#undef CERES_EXT_INSTANTIATE

}  // namespace ceres_ext::kernels
