// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The device bodies of the operations, under the names of the host bodies and
// with their parameters, which point to device memory here.
//
// Each queues its work on `stream` and returns; allocates nothing, waits for
// nothing and can be captured in a graph. A status other than OK means that a
// launch was refused; errors of the work itself come from the synchronisation.
// Two calls with the same input give the same bits, eager or replayed.
//
// Instances: T double and float, C 9 and 10, kDeviceLayout. Sources:
// StoredJacobian<T, C, kDeviceLayout> and RecomputedJacobian<T, C>. With T
// float, blocks and their products are float; sums over points and over
// cameras, and every vector, are double. Other layouts are instantiated from
// the *_impl.h by who wants them (benchmarks/study).
// Host-includable.
#ifndef CERES_EXT_CUDA_KERNELS_OPS_CUDA_OPERATIONS_H_
#define CERES_EXT_CUDA_KERNELS_OPS_CUDA_OPERATIONS_H_

#include "cuda_kernels/base/block_view.h"
#include "cuda_kernels/machine/cuda_context.h"
#include "cuda_kernels/structure/cuda_workspace.h"
#include "cuda_kernels/ops/evaluate.h"
#include "cuda_kernels/ops/jacobian_products.h"
#include "cuda_kernels/model/jacobian_source.h"
#include "cuda_kernels/ops/normal_blocks.h"
#include "cuda_kernels/ops/pcg.h"
#include "cuda_kernels/ops/preconditioner.h"
#include "cuda_kernels/ops/schur_products.h"
#include "cuda_kernels/base/status.h"

namespace ceres_ext::kernels::cuda {

// ops/evaluate.h.
template <typename T, int C>
Status PrepareCameras(const PrepareCamerasParams<T, C>& params,
                      cudaStream_t stream);

Status EvaluateCost(const EvaluateCostParams& params,
                    const CudaWorkspaceView& workspace,
                    cudaStream_t stream);

// camera_gradient needs residuals.
template <typename T, int C, BlockLayout kLayout>
Status EvaluateJacobian(const EvaluateJacobianParams<T, C, kLayout>& params,
                        const CudaWorkspaceView& workspace,
                        cudaStream_t stream);

// ops/normal_blocks.h.
template <typename Source, BlockLayout kLayout>
Status NormalBlocks(const NormalBlocksParams<Source, kLayout>& params,
                    const CudaWorkspaceView& workspace,
                    cudaStream_t stream);

// s alone, on tiles, from v_inverse and b: the part of NormalBlocks that reads
// stored blocks in their order where nothing else needs the camera order.
// Sources: StoredJacobian.
template <typename Source, BlockLayout kLayout>
Status SchurRightHandSide(const NormalBlocksParams<Source, kLayout>& params,
                          const CudaWorkspaceView& workspace,
                          cudaStream_t stream);

// ops/jacobian_products.h.
template <typename Source>
Status RightMultiply(const RightMultiplyParams<Source>& params,
                     const CudaWorkspaceView& workspace,
                     cudaStream_t stream);

template <typename Source>
Status LeftMultiply(const LeftMultiplyParams<Source>& params,
                    const CudaWorkspaceView& workspace,
                    cudaStream_t stream);

template <typename Source>
Status SquaredColumnNorms(const SquaredColumnNormsParams<Source>& params,
                          const CudaWorkspaceView& workspace,
                          cudaStream_t stream);

template <typename T, int C, BlockLayout kLayout>
Status ScaleColumns(const ScaleColumnsParams<T, C, kLayout>& params,
                    cudaStream_t stream);

// ops/schur_products.h.
template <typename Source, BlockLayout kLayout>
Status SchurProductImplicitW(
    const SchurProductImplicitWParams<Source, kLayout>& params,
    const CudaWorkspaceView& workspace,
    cudaStream_t stream);

template <typename T, int C, BlockLayout kLayout>
Status SchurProductExplicitW(
    const SchurProductExplicitWParams<T, C, kLayout>& params,
    const CudaWorkspaceView& workspace,
    cudaStream_t stream);

template <typename Source, BlockLayout kLayout>
Status BackSubstituteImplicitW(
    const BackSubstituteImplicitWParams<Source, kLayout>& params,
    const CudaWorkspaceView& workspace,
    cudaStream_t stream);

template <typename T, int C, BlockLayout kLayout>
Status BackSubstituteExplicitW(
    const BackSubstituteExplicitWParams<T, C, kLayout>& params,
    const CudaWorkspaceView& workspace,
    cudaStream_t stream);

template <typename Source>
Status NormalProductImplicitW(
    const NormalProductImplicitWParams<Source>& params,
    const CudaWorkspaceView& workspace,
    cudaStream_t stream);

template <typename T, int C, BlockLayout kLayout>
Status NormalProductExplicitW(
    const NormalProductExplicitWParams<T, C, kLayout>& params,
    const CudaWorkspaceView& workspace,
    cudaStream_t stream);

// ops/preconditioner.h. N is 3, 9 or 10.
template <int N, BlockLayout kLayout>
Status InvertBlockDiagonal(const InvertBlockDiagonalParams<N, kLayout>& params,
                           cudaStream_t stream);

template <int N, BlockLayout kLayout>
Status ApplyBlockDiagonal(const ApplyBlockDiagonalParams<N, kLayout>& params,
                          cudaStream_t stream);

// ops/pcg.h.
Status PcgStart(const PcgStartParams& params,
                const CudaWorkspaceView& workspace,
                cudaStream_t stream);
Status PcgDirection(const PcgDirectionParams& params,
                    const CudaWorkspaceView& workspace,
                    cudaStream_t stream);
Status PcgAdvance(const PcgAdvanceParams& params,
                  const CudaWorkspaceView& workspace,
                  cudaStream_t stream);
Status PcgResidual(const PcgResidualParams& params,
                   const CudaWorkspaceView& workspace,
                   cudaStream_t stream);
Status Dot(const DotParams& params,
           const CudaWorkspaceView& workspace,
           cudaStream_t stream);

}  // namespace ceres_ext::kernels::cuda

#endif  // CERES_EXT_CUDA_KERNELS_OPS_CUDA_OPERATIONS_H_
