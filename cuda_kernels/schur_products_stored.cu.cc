// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Schur and normal products, back-substitution and J'y with stored
// Jacobians or stored W.
#include "cuda_kernels/cuda_operations.h"
#include "cuda_kernels/cuda_stored_tiles.h"

namespace ceres_ext::kernels::cuda {

template <typename T, int C>
Status StoredSchurProduct(
    const SchurProductImplicitWParams<StoredJacobian<T, C, kDeviceLayout>,
                                      kDeviceLayout>& params,
    const CudaWorkspaceView& workspace,
    cudaStream_t stream) {
  TileOperands operands;
  operands.v_inverse = params.v_inverse;
  operands.scalars = params.scalars;
  CameraSumTerms<C> terms;
  terms.diagonal = params.camera_diagonal;
  terms.p = params.p;
  terms.out = params.q;
  return StoredTileOperation<JacobianBlocks<T, C>, kSchurProductMode>(
      params.index,
      params.jacobian,
      params.p,
      operands,
      terms,
      workspace,
      stream);
}

template <typename T, int C>
Status StoredBackSubstitute(
    const BackSubstituteImplicitWParams<StoredJacobian<T, C, kDeviceLayout>,
                                        kDeviceLayout>& params,
    const CudaWorkspaceView& workspace,
    cudaStream_t stream) {
  TileOperands operands;
  operands.b = params.b;
  operands.v_inverse = params.v_inverse;
  operands.point_out = params.y;
  return StoredTileOperation<JacobianBlocks<T, C>, kBackSubstituteMode>(
      params.index,
      params.jacobian,
      params.z,
      operands,
      CameraSumTerms<C>(),
      workspace,
      stream);
}

template <typename T, int C>
Status StoredNormalProduct(const NormalProductImplicitWParams<
                               StoredJacobian<T, C, kDeviceLayout>>& params,
                           const CudaWorkspaceView& workspace,
                           cudaStream_t stream) {
  TileOperands operands;
  operands.point_x = params.point_p;
  operands.point_diagonal = params.point_diagonal;
  operands.point_out = params.point_q;
  operands.scalars = params.scalars;
  CameraSumTerms<C> terms;
  terms.diagonal = params.camera_diagonal;
  terms.p = params.camera_p;
  terms.out = params.camera_q;
  return StoredTileOperation<JacobianBlocks<T, C>, kNormalProductMode>(
      params.index,
      params.jacobian,
      params.camera_p,
      operands,
      terms,
      workspace,
      stream);
}

template <typename T, int C>
Status StoredLeftMultiply(
    const LeftMultiplyParams<StoredJacobian<T, C, kDeviceLayout>>& params,
    const CudaWorkspaceView& workspace,
    cudaStream_t stream) {
  TileOperands operands;
  operands.b = params.y;
  operands.point_out = params.point_x;
  operands.accumulate = params.accumulate;
  CameraSumTerms<C> terms;
  terms.accumulate = params.accumulate;
  terms.out = params.camera_x;
  return StoredTileOperation<JacobianBlocks<T, C>, kLeftMultiplyMode>(
      params.index,
      params.jacobian,
      nullptr,
      operands,
      terms,
      workspace,
      stream);
}

template <typename T, int C>
Status StoredSchurRightHandSide(
    const NormalBlocksParams<StoredJacobian<T, C, kDeviceLayout>,
                             kDeviceLayout>& params,
    const CudaWorkspaceView& workspace,
    cudaStream_t stream) {
  TileOperands operands;
  operands.b = params.b;
  operands.v_inverse = params.v_inverse;
  CameraSumTerms<C> terms;
  terms.out = params.schur_rhs;
  return StoredTileOperation<JacobianBlocks<T, C>,
                             kUseB | kEliminate | kCameraOut>(params.index,
                                                              params.jacobian,
                                                              nullptr,
                                                              operands,
                                                              terms,
                                                              workspace,
                                                              stream);
}

template <typename T, int C>
Status SchurProductExplicitW(
    const SchurProductExplicitWParams<T, C, kDeviceLayout>& params,
    const CudaWorkspaceView& workspace,
    cudaStream_t stream) {
  TileOperands operands;
  operands.v_inverse = params.v_inverse;
  operands.scalars = params.scalars;
  CameraSumTerms<C> terms;
  terms.diagonal = params.camera_diagonal;
  terms.u = params.u;
  terms.p = params.p;
  terms.out = params.q;
  return StoredTileOperation<CouplingBlocks<T, C>, kSchurProductMode>(
      params.index, params.w, params.p, operands, terms, workspace, stream);
}

template <typename T, int C>
Status BackSubstituteExplicitW(
    const BackSubstituteExplicitWParams<T, C, kDeviceLayout>& params,
    const CudaWorkspaceView& workspace,
    cudaStream_t stream) {
  TileOperands operands;
  operands.v_inverse = params.v_inverse;
  operands.point_gradient = params.point_gradient;
  operands.point_out = params.y;
  return StoredTileOperation<CouplingBlocks<T, C>,
                             kUseCamera | kEliminate | kPointOut>(
      params.index,
      params.w,
      params.z,
      operands,
      CameraSumTerms<C>(),
      workspace,
      stream);
}

template <typename T, int C>
Status NormalProductExplicitW(
    const NormalProductExplicitWParams<T, C, kDeviceLayout>& params,
    const CudaWorkspaceView& workspace,
    cudaStream_t stream) {
  TileOperands operands;
  operands.point_x = params.point_p;
  operands.point_diagonal = params.point_diagonal;
  operands.v = params.v;
  operands.point_out = params.point_q;
  operands.scalars = params.scalars;
  CameraSumTerms<C> terms;
  terms.diagonal = params.camera_diagonal;
  terms.u = params.u;
  terms.p = params.camera_p;
  terms.out = params.camera_q;
  return StoredTileOperation<CouplingBlocks<T, C>, kNormalProductMode>(
      params.index,
      params.w,
      params.camera_p,
      operands,
      terms,
      workspace,
      stream);
}

#define CERES_EXT_INSTANTIATE(T, C)                                            \
  template <>                                                                  \
  Status SchurProductImplicitW(                                                \
      const SchurProductImplicitWParams<StoredJacobian<T, C, kDeviceLayout>,   \
                                        kDeviceLayout>& params,                \
      const CudaWorkspaceView& workspace,                                      \
      cudaStream_t stream) {                                                   \
    return StoredSchurProduct(params, workspace, stream);                      \
  }                                                                            \
  template <>                                                                  \
  Status BackSubstituteImplicitW(                                              \
      const BackSubstituteImplicitWParams<StoredJacobian<T, C, kDeviceLayout>, \
                                          kDeviceLayout>& params,              \
      const CudaWorkspaceView& workspace,                                      \
      cudaStream_t stream) {                                                   \
    return StoredBackSubstitute(params, workspace, stream);                    \
  }                                                                            \
  template <>                                                                  \
  Status NormalProductImplicitW(                                               \
      const NormalProductImplicitWParams<StoredJacobian<T, C, kDeviceLayout>>& \
          params,                                                              \
      const CudaWorkspaceView& workspace,                                      \
      cudaStream_t stream) {                                                   \
    return StoredNormalProduct(params, workspace, stream);                     \
  }                                                                            \
  template <>                                                                  \
  Status LeftMultiply(                                                         \
      const LeftMultiplyParams<StoredJacobian<T, C, kDeviceLayout>>& params,   \
      const CudaWorkspaceView& workspace,                                      \
      cudaStream_t stream) {                                                   \
    return StoredLeftMultiply(params, workspace, stream);                      \
  }                                                                            \
  template <>                                                                  \
  Status SchurRightHandSide(                                                   \
      const NormalBlocksParams<StoredJacobian<T, C, kDeviceLayout>,            \
                               kDeviceLayout>& params,                         \
      const CudaWorkspaceView& workspace,                                      \
      cudaStream_t stream) {                                                   \
    return StoredSchurRightHandSide(params, workspace, stream);                \
  }                                                                            \
  template Status SchurProductExplicitW(                                       \
      const SchurProductExplicitWParams<T, C, kDeviceLayout>&,                 \
      const CudaWorkspaceView&,                                                \
      cudaStream_t);                                                           \
  template Status BackSubstituteExplicitW(                                     \
      const BackSubstituteExplicitWParams<T, C, kDeviceLayout>&,               \
      const CudaWorkspaceView&,                                                \
      cudaStream_t);                                                           \
  template Status NormalProductExplicitW(                                      \
      const NormalProductExplicitWParams<T, C, kDeviceLayout>&,                \
      const CudaWorkspaceView&,                                                \
      cudaStream_t);

CERES_EXT_INSTANTIATE(double, 9)
CERES_EXT_INSTANTIATE(double, 10)
CERES_EXT_INSTANTIATE(float, 9)
CERES_EXT_INSTANTIATE(float, 10)
#undef CERES_EXT_INSTANTIATE

}  // namespace ceres_ext::kernels::cuda
