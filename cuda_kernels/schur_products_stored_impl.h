// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The device bodies of Schur and normal products, back-substitution and J'y
// with stored Jacobians or stored W, for any layout. Included by .cu.cc files
// that instantiate them; recomputed sources are specialisations elsewhere.
#ifndef CERES_EXT_CUDA_KERNELS_SCHUR_PRODUCTS_STORED_IMPL_H_
#define CERES_EXT_CUDA_KERNELS_SCHUR_PRODUCTS_STORED_IMPL_H_

#include <cuda_runtime.h>

#include "cuda_kernels/block_view.h"
#include "cuda_kernels/cuda_operations.h"
#include "cuda_kernels/cuda_stored_tiles.h"

namespace ceres_ext::kernels::cuda {

template <typename Source, BlockLayout kLayout>
Status SchurProductImplicitW(
    const SchurProductImplicitWParams<Source, kLayout>& params,
    const CudaWorkspaceView& workspace,
    cudaStream_t stream) {
  TileOperandsIn<kLayout> operands;
  operands.v_inverse = params.v_inverse;
  operands.scalars = params.scalars;
  CameraSumTerms<Source::kCameraDim, kLayout> terms;
  terms.diagonal = params.camera_diagonal;
  terms.p = params.p;
  terms.out = params.q;
  return StoredTileOperation<JacobianBlocks<Source>, kSchurProductMode>(
      params.index,
      params.jacobian,
      params.p,
      operands,
      terms,
      workspace,
      stream);
}

template <typename Source, BlockLayout kLayout>
Status BackSubstituteImplicitW(
    const BackSubstituteImplicitWParams<Source, kLayout>& params,
    const CudaWorkspaceView& workspace,
    cudaStream_t stream) {
  TileOperandsIn<kLayout> operands;
  operands.b = params.b;
  operands.v_inverse = params.v_inverse;
  operands.point_out = params.y;
  return StoredTileOperation<JacobianBlocks<Source>, kBackSubstituteMode>(
      params.index,
      params.jacobian,
      params.z,
      operands,
      CameraSumTerms<Source::kCameraDim, kLayout>(),
      workspace,
      stream);
}

template <typename Source>
Status NormalProductImplicitW(
    const NormalProductImplicitWParams<Source>& params,
    const CudaWorkspaceView& workspace,
    cudaStream_t stream) {
  TileOperandsIn<Source::kLayout> operands;
  operands.point_x = params.point_p;
  operands.point_diagonal = params.point_diagonal;
  operands.point_out = params.point_q;
  operands.scalars = params.scalars;
  CameraSumTerms<Source::kCameraDim, Source::kLayout> terms;
  terms.diagonal = params.camera_diagonal;
  terms.p = params.camera_p;
  terms.out = params.camera_q;
  return StoredTileOperation<JacobianBlocks<Source>, kNormalProductMode>(
      params.index,
      params.jacobian,
      params.camera_p,
      operands,
      terms,
      workspace,
      stream);
}

template <typename Source>
Status LeftMultiply(const LeftMultiplyParams<Source>& params,
                    const CudaWorkspaceView& workspace,
                    cudaStream_t stream) {
  TileOperandsIn<Source::kLayout> operands;
  operands.b = params.y;
  operands.point_out = params.point_x;
  operands.accumulate = params.accumulate;
  CameraSumTerms<Source::kCameraDim, Source::kLayout> terms;
  terms.accumulate = params.accumulate;
  terms.out = params.camera_x;
  return StoredTileOperation<JacobianBlocks<Source>, kLeftMultiplyMode>(
      params.index,
      params.jacobian,
      nullptr,
      operands,
      terms,
      workspace,
      stream);
}

template <typename Source, BlockLayout kLayout>
Status SchurRightHandSide(const NormalBlocksParams<Source, kLayout>& params,
                          const CudaWorkspaceView& workspace,
                          cudaStream_t stream) {
  TileOperandsIn<kLayout> operands;
  operands.b = params.b;
  operands.v_inverse = params.v_inverse;
  CameraSumTerms<Source::kCameraDim, kLayout> terms;
  terms.out = params.schur_rhs;
  return StoredTileOperation<JacobianBlocks<Source>,
                             kUseB | kEliminate | kCameraOut>(params.index,
                                                              params.jacobian,
                                                              nullptr,
                                                              operands,
                                                              terms,
                                                              workspace,
                                                              stream);
}

template <typename T, int C, BlockLayout kLayout>
Status SchurProductExplicitW(
    const SchurProductExplicitWParams<T, C, kLayout>& params,
    const CudaWorkspaceView& workspace,
    cudaStream_t stream) {
  TileOperandsIn<kLayout> operands;
  operands.v_inverse = params.v_inverse;
  operands.scalars = params.scalars;
  CameraSumTerms<C, kLayout> terms;
  terms.diagonal = params.camera_diagonal;
  terms.u = params.u;
  terms.p = params.p;
  terms.out = params.q;
  return StoredTileOperation<CouplingBlocks<T, C, kLayout>, kSchurProductMode>(
      params.index, params.w, params.p, operands, terms, workspace, stream);
}

template <typename T, int C, BlockLayout kLayout>
Status BackSubstituteExplicitW(
    const BackSubstituteExplicitWParams<T, C, kLayout>& params,
    const CudaWorkspaceView& workspace,
    cudaStream_t stream) {
  TileOperandsIn<kLayout> operands;
  operands.v_inverse = params.v_inverse;
  operands.point_gradient = params.point_gradient;
  operands.point_out = params.y;
  return StoredTileOperation<CouplingBlocks<T, C, kLayout>,
                             kUseCamera | kEliminate | kPointOut>(
      params.index,
      params.w,
      params.z,
      operands,
      CameraSumTerms<C, kLayout>(),
      workspace,
      stream);
}

template <typename T, int C, BlockLayout kLayout>
Status NormalProductExplicitW(
    const NormalProductExplicitWParams<T, C, kLayout>& params,
    const CudaWorkspaceView& workspace,
    cudaStream_t stream) {
  TileOperandsIn<kLayout> operands;
  operands.point_x = params.point_p;
  operands.point_diagonal = params.point_diagonal;
  operands.v = params.v;
  operands.point_out = params.point_q;
  operands.scalars = params.scalars;
  CameraSumTerms<C, kLayout> terms;
  terms.diagonal = params.camera_diagonal;
  terms.u = params.u;
  terms.p = params.camera_p;
  terms.out = params.camera_q;
  return StoredTileOperation<CouplingBlocks<T, C, kLayout>, kNormalProductMode>(
      params.index,
      params.w,
      params.camera_p,
      operands,
      terms,
      workspace,
      stream);
}

}  // namespace ceres_ext::kernels::cuda

#endif  // CERES_EXT_CUDA_KERNELS_SCHUR_PRODUCTS_STORED_IMPL_H_
