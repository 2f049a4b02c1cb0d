// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#ifndef CERES_EXT_CUDA_KERNELS_MACHINE_CUDA_WARP_CUH_
#define CERES_EXT_CUDA_KERNELS_MACHINE_CUDA_WARP_CUH_

namespace ceres_ext::kernels {

inline constexpr int kWarpSize = 32;
inline constexpr unsigned kFullWarp = 0xffffffffu;

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_MACHINE_CUDA_WARP_CUH_
