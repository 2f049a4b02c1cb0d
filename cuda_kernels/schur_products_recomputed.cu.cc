// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Schur and normal products, back-substitution and J'y with recomputed
// Jacobians.
#include "cuda_kernels/cuda_operations.h"
#include "cuda_kernels/cuda_recomputed_tiles.h"

namespace ceres_ext::kernels::cuda {

template <typename T, int C>
Status RecomputedSchurProduct(
    const SchurProductImplicitWParams<RecomputedJacobian<T, C>, kDeviceLayout>&
        params,
    const CudaWorkspaceView& workspace,
    cudaStream_t stream) {
  TileOperands operands;
  operands.v_inverse = params.v_inverse;
  operands.scalars = params.scalars;
  CameraSumTerms<C> terms;
  terms.diagonal = params.camera_diagonal;
  terms.p = params.p;
  terms.out = params.q;
  return RecomputedTileOperation<kSchurProductMode>(params.index,
                                                    params.jacobian,
                                                    params.p,
                                                    operands,
                                                    terms,
                                                    workspace,
                                                    stream);
}

template <typename T, int C>
Status RecomputedBackSubstitute(
    const BackSubstituteImplicitWParams<RecomputedJacobian<T, C>,
                                        kDeviceLayout>& params,
    const CudaWorkspaceView& workspace,
    cudaStream_t stream) {
  TileOperands operands;
  operands.b = params.b;
  operands.v_inverse = params.v_inverse;
  operands.point_out = params.y;
  return RecomputedTileOperation<kBackSubstituteMode>(params.index,
                                                      params.jacobian,
                                                      params.z,
                                                      operands,
                                                      CameraSumTerms<C>(),
                                                      workspace,
                                                      stream);
}

template <typename T, int C>
Status RecomputedNormalProduct(
    const NormalProductImplicitWParams<RecomputedJacobian<T, C>>& params,
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
  return RecomputedTileOperation<kNormalProductMode>(params.index,
                                                     params.jacobian,
                                                     params.camera_p,
                                                     operands,
                                                     terms,
                                                     workspace,
                                                     stream);
}

template <typename T, int C>
Status RecomputedLeftMultiply(
    const LeftMultiplyParams<RecomputedJacobian<T, C>>& params,
    const CudaWorkspaceView& workspace,
    cudaStream_t stream) {
  TileOperands operands;
  operands.b = params.y;
  operands.point_out = params.point_x;
  operands.accumulate = params.accumulate;
  CameraSumTerms<C> terms;
  terms.accumulate = params.accumulate;
  terms.out = params.camera_x;
  return RecomputedTileOperation<kLeftMultiplyMode>(params.index,
                                                    params.jacobian,
                                                    nullptr,
                                                    operands,
                                                    terms,
                                                    workspace,
                                                    stream);
}

#define CERES_EXT_INSTANTIATE(T, C)                                         \
  template <>                                                               \
  Status SchurProductImplicitW(                                             \
      const SchurProductImplicitWParams<RecomputedJacobian<T, C>,           \
                                        kDeviceLayout>& params,             \
      const CudaWorkspaceView& workspace,                                   \
      cudaStream_t stream) {                                                \
    return RecomputedSchurProduct(params, workspace, stream);               \
  }                                                                         \
  template <>                                                               \
  Status BackSubstituteImplicitW(                                           \
      const BackSubstituteImplicitWParams<RecomputedJacobian<T, C>,         \
                                          kDeviceLayout>& params,           \
      const CudaWorkspaceView& workspace,                                   \
      cudaStream_t stream) {                                                \
    return RecomputedBackSubstitute(params, workspace, stream);             \
  }                                                                         \
  template <>                                                               \
  Status NormalProductImplicitW(                                            \
      const NormalProductImplicitWParams<RecomputedJacobian<T, C>>& params, \
      const CudaWorkspaceView& workspace,                                   \
      cudaStream_t stream) {                                                \
    return RecomputedNormalProduct(params, workspace, stream);              \
  }                                                                         \
  template <>                                                               \
  Status LeftMultiply(                                                      \
      const LeftMultiplyParams<RecomputedJacobian<T, C>>& params,           \
      const CudaWorkspaceView& workspace,                                   \
      cudaStream_t stream) {                                                \
    return RecomputedLeftMultiply(params, workspace, stream);               \
  }

CERES_EXT_INSTANTIATE(double, 9)
CERES_EXT_INSTANTIATE(double, 10)
CERES_EXT_INSTANTIATE(float, 9)
CERES_EXT_INSTANTIATE(float, 10)
#undef CERES_EXT_INSTANTIATE

}  // namespace ceres_ext::kernels::cuda
