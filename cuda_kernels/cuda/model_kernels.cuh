// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The contract between the library and the module of a model
// (model/model_jacobian.h): the kernels, and their parameters. Included by
// .cu.cc files and by ceres_ext/device/recomputed_form.cuh.
#ifndef CERES_EXT_CUDA_KERNELS_CUDA_MODEL_KERNELS_CUH_
#define CERES_EXT_CUDA_KERNELS_CUDA_MODEL_KERNELS_CUH_

#include <cstdint>

#include "cuda_kernels/cuda/camera_chunks.cuh"
#include "cuda_kernels/cuda/camera_sums.cuh"
#include "cuda_kernels/cuda/jacobian_products_impl.cuh"
#include "cuda_kernels/cuda/normal_blocks_impl.cuh"
#include "cuda_kernels/cuda/point_tasks.cuh"
#include "cuda_kernels/cuda/stored_tiles.cuh"
#include "cuda_kernels/model/model_jacobian.h"
#include "cuda_kernels/ops/jacobian_products.h"
#include "cuda_kernels/ops/normal_blocks.h"

namespace ceres_ext::kernels {

inline constexpr int kSchurRhsMode = kUseB | kEliminate | kCameraOut;

constexpr ModelKernel TileKernelOfModel(int mode) {
  return mode == kSchurProductMode     ? ModelKernel::kSchurProduct
         : mode == kEliminatedPartMode ? ModelKernel::kEliminatedPart
         : mode == kBackSubstituteMode ? ModelKernel::kBackSubstitute
         : mode == kNormalProductMode  ? ModelKernel::kNormalProduct
         : mode == kLeftMultiplyMode   ? ModelKernel::kLeftMultiply
                                       : ModelKernel::kSchurRhs;
}

// Terms of sums over the chunks of a camera.
template <typename Source>
using ModelU = NormalTerm<double, typename Source::Shape, true, false>;
template <typename Source>
using ModelSchurDiagonal =
    NormalTerm<double, typename Source::Shape, true, true>;

// Source: ModelJacobian, or what a module derives from it without adding a
// value. Blocks: those of its tiles.
template <typename Source, typename Blocks>
constexpr int32_t SizeOfModelParams() {
  return static_cast<int32_t>(
      sizeof(StoredTileParams<Blocks>) +
      sizeof(NormalBlocksParams<Source, kDeviceLayout>) +
      sizeof(RightMultiplyParams<Source>) +
      sizeof(SquaredColumnNormsParams<Source>) + sizeof(ModelU<Source>) +
      sizeof(ModelSchurDiagonal<Source>) + sizeof(CameraNormTerm<Source>) +
      sizeof(PointTasks) + sizeof(PointRecord<Source::Shape::kE>));
}

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_CUDA_MODEL_KERNELS_CUH_
