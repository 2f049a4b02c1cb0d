// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The device bodies of the project with block-contiguous arrays, double and 9
// columns: the same code as in the library, another view. The library itself
// holds instances of kDeviceLayout alone.
#include "cuda_kernels/cuda/evaluate_impl.cuh"
#include "cuda_kernels/cuda/jacobian_products_impl.cuh"
#include "cuda_kernels/cuda/normal_blocks_impl.cuh"
#include "cuda_kernels/cuda/schur_products_impl.cuh"
#include "studies/explicit_w_impl.cuh"

namespace ceres_ext::kernels {

namespace {
constexpr BlockLayout kLayout = BlockLayout::kBlockContiguous;
using Source = StoredJacobian<double, kernels::BalShape<9>, kLayout>;
}  // namespace

// The library's, for the gradient of EvaluateJacobian.
extern template Status Run(
    const NormalBlocksParams<RecomputedJacobian<double, 9>, kDeviceLayout>&,
    CudaMachine*);

template Status Run(const EvaluateJacobianParams<double, 9, kLayout>&,
                    CudaMachine*);
template Status Run(const RightMultiplyParams<Source>&, CudaMachine*);
template Status Run(const LeftMultiplyParams<Source>&, CudaMachine*);
template Status Run(const SquaredColumnNormsParams<Source>&, CudaMachine*);
template Status Run(const NormalBlocksParams<Source, kLayout>&, CudaMachine*);
template Status Run(const SchurProductImplicitWParams<Source, kLayout>&,
                    CudaMachine*);
template Status Run(const BackSubstituteImplicitWParams<Source, kLayout>&,
                    CudaMachine*);
template Status Run(const NormalProductImplicitWParams<Source>&, CudaMachine*);

}  // namespace ceres_ext::kernels

namespace ceres_ext::bal {

namespace {
constexpr kernels::BlockLayout kLayout = kernels::BlockLayout::kBlockContiguous;
using Shape = kernels::BalShape<9>;
using Source = kernels::StoredJacobian<double, Shape, kLayout>;
}  // namespace

template kernels::Status Run(const ExplicitBlocksParams<Source, kLayout>&,
                             kernels::CudaMachine*);
template kernels::Status Run(
    const SchurProductExplicitWParams<double, Shape, kLayout>&,
    kernels::CudaMachine*);
template kernels::Status Run(
    const BackSubstituteExplicitWParams<double, Shape, kLayout>&,
    kernels::CudaMachine*);
template kernels::Status Run(
    const NormalProductExplicitWParams<double, Shape, kLayout>&,
    kernels::CudaMachine*);

}  // namespace ceres_ext::bal
