// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "cuda_kernels/cuda/normal_blocks_impl.cuh"

namespace ceres_ext::kernels {

#define CERES_EXT_INSTANTIATE(...)                                           \
  template Status Run(const NormalBlocksParams<__VA_ARGS__, kDeviceLayout>&, \
                      CudaMachine*)

#define CERES_EXT_INSTANTIATE_STORED(C)                                      \
  CERES_EXT_INSTANTIATE(StoredJacobian<double, BalShape<C>, kDeviceLayout>); \
  CERES_EXT_INSTANTIATE(StoredJacobian<float, BalShape<C>, kDeviceLayout>);
CERES_EXT_FOR_EACH_STORED_COLUMNS(CERES_EXT_INSTANTIATE_STORED)
#undef CERES_EXT_INSTANTIATE_STORED
#define CERES_EXT_INSTANTIATE_RECOMPUTED(...) \
  CERES_EXT_INSTANTIATE(RecomputedJacobian<__VA_ARGS__>);
CERES_EXT_FOR_EACH_RECOMPUTED(CERES_EXT_INSTANTIATE_RECOMPUTED)
#undef CERES_EXT_INSTANTIATE_RECOMPUTED
#undef CERES_EXT_INSTANTIATE

}  // namespace ceres_ext::kernels
