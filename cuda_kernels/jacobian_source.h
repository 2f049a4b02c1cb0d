// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Where the Jacobian of an observation comes from. Operators are templates over
// one of these, passed by value.
//
// A source is a type with
//   Value              storage and arithmetic type of the blocks
//   kCameraDim         C, columns of a camera
//   LoadCamera(k, camera, point, jc)   Jc, 2 x C, row-major
//   LoadPoint(k, camera, point, jp)    Jp, 2 x 3, row-major
//   Load(k, camera, point, jc, jp)     both
// where k is the place of the observation in the index.
#ifndef CERES_EXT_CUDA_KERNELS_JACOBIAN_SOURCE_H_
#define CERES_EXT_CUDA_KERNELS_JACOBIAN_SOURCE_H_

#include <cstdint>

#include "cuda_kernels/block_view.h"
#include "cuda_kernels/host_device.h"

namespace ceres_ext::kernels {

// Blocks kept in memory: T double or float.
template <typename T, int C, BlockLayout kLayoutIn>
struct StoredJacobian {
  using Value = T;
  static constexpr int kCameraDim = C;
  static constexpr BlockLayout kLayout = kLayoutIn;

  BlockView<const T, 2 * C, kLayoutIn> camera_blocks;
  BlockView<const T, 6, kLayoutIn> point_blocks;

  CERES_EXT_HOST_DEVICE void LoadCamera(int64_t k,
                                        int32_t /*camera*/,
                                        int32_t /*point*/,
                                        T* jc) const {
    for (int i = 0; i < 2 * C; ++i) {
      jc[i] = camera_blocks(k, i);
    }
  }

  CERES_EXT_HOST_DEVICE void LoadPoint(int64_t k,
                                       int32_t /*camera*/,
                                       int32_t /*point*/,
                                       T* jp) const {
    for (int i = 0; i < 6; ++i) {
      jp[i] = point_blocks(k, i);
    }
  }

  CERES_EXT_HOST_DEVICE void Load(
      int64_t k, int32_t camera, int32_t point, T* jc, T* jp) const {
    LoadCamera(k, camera, point, jc);
    LoadPoint(k, camera, point, jp);
  }
};

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_JACOBIAN_SOURCE_H_
