// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The device bodies of the project with block-contiguous arrays, double and 9
// columns: the same code as in the library, another view. The library itself
// holds instances of kDeviceLayout alone.
#include "cuda_kernels/cuda/evaluate_impl.cuh"
#include "cuda_kernels/cuda/jacobian_products_impl.cuh"
#include "cuda_kernels/cuda/normal_blocks_impl.cuh"
#include "cuda_kernels/cuda/preconditioner_impl.cuh"
#include "cuda_kernels/cuda/schur_products_impl.cuh"

namespace ceres_ext::kernels::cuda {

namespace {
constexpr BlockLayout kLayout = BlockLayout::kBlockContiguous;
using Source = StoredJacobian<double, 9, kLayout>;
}  // namespace

// The library's, for the gradient of EvaluateJacobian.
extern template Status NormalBlocks(
    const NormalBlocksParams<RecomputedJacobian<double, 9>, kDeviceLayout>&,
    const CudaWorkspaceView&,
    cudaStream_t);

template Status EvaluateJacobian(
    const EvaluateJacobianParams<double, 9, kLayout>&,
    const CudaWorkspaceView&,
    cudaStream_t);
template Status RightMultiply(const RightMultiplyParams<Source>&,
                              const CudaWorkspaceView&,
                              cudaStream_t);
template Status LeftMultiply(const LeftMultiplyParams<Source>&,
                             const CudaWorkspaceView&,
                             cudaStream_t);
template Status SquaredColumnNorms(const SquaredColumnNormsParams<Source>&,
                                   const CudaWorkspaceView&,
                                   cudaStream_t);
template Status ScaleColumns(const ScaleColumnsParams<double, 9, kLayout>&,
                             cudaStream_t);
template Status NormalBlocks(const NormalBlocksParams<Source, kLayout>&,
                             const CudaWorkspaceView&,
                             cudaStream_t);
template Status SchurRightHandSide(const NormalBlocksParams<Source, kLayout>&,
                                   const CudaWorkspaceView&,
                                   cudaStream_t);
template Status SchurProductImplicitW(
    const SchurProductImplicitWParams<Source, kLayout>&,
    const CudaWorkspaceView&,
    cudaStream_t);
template Status SchurProductExplicitW(
    const SchurProductExplicitWParams<double, 9, kLayout>&,
    const CudaWorkspaceView&,
    cudaStream_t);
template Status BackSubstituteImplicitW(
    const BackSubstituteImplicitWParams<Source, kLayout>&,
    const CudaWorkspaceView&,
    cudaStream_t);
template Status BackSubstituteExplicitW(
    const BackSubstituteExplicitWParams<double, 9, kLayout>&,
    const CudaWorkspaceView&,
    cudaStream_t);
template Status NormalProductImplicitW(
    const NormalProductImplicitWParams<Source>&,
    const CudaWorkspaceView&,
    cudaStream_t);
template Status NormalProductExplicitW(
    const NormalProductExplicitWParams<double, 9, kLayout>&,
    const CudaWorkspaceView&,
    cudaStream_t);
template Status InvertBlockDiagonal(
    const InvertBlockDiagonalParams<3, kLayout>&, cudaStream_t);
template Status InvertBlockDiagonal(
    const InvertBlockDiagonalParams<9, kLayout>&, cudaStream_t);
template Status ApplyBlockDiagonal(const ApplyBlockDiagonalParams<3, kLayout>&,
                                   cudaStream_t);
template Status ApplyBlockDiagonal(const ApplyBlockDiagonalParams<9, kLayout>&,
                                   cudaStream_t);

}  // namespace ceres_ext::kernels::cuda
