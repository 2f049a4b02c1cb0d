// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// For comparison only: the operations written the obvious way, one thread per
// observation and double atomics into whatever an observation adds to. With
// BlockLayout::kBlockContiguous this is the naive implementation of the study;
// with kContinuousElement the same code shows what the layout alone brings.
//
// Order: none. Atomics add in any order, so two runs may differ in the last
// bits. 9-parameter cameras, double.
#ifndef BENCHMARKS_STUDY_NAIVE_KERNELS_H_
#define BENCHMARKS_STUDY_NAIVE_KERNELS_H_

#include "cuda_kernels/ops/evaluate.h"
#include "cuda_kernels/ops/jacobian_products.h"
#include "cuda_kernels/model/jacobian_source.h"
#include "cuda_kernels/ops/normal_blocks.h"
#include "cuda_kernels/ops/preconditioner.h"
#include "cuda_kernels/ops/schur_products.h"
#include "cuda_kernels/base/status.h"

typedef struct CUstream_st* cudaStream_t;

namespace ceres_ext::bal::naive {

template <kernels::BlockLayout kLayout>
using Source = kernels::StoredJacobian<double, 9, kLayout>;

// Device memory for sums over the observations of a point.
struct Scratch {
  double* v = nullptr;               // 6 per point, in the layout in use
  double* point_gradient = nullptr;  // 3 per point
  double* point_vector = nullptr;    // 3 per point
};

// Blocks only: residuals, gradient, point scale and evaluation must be null.
template <kernels::BlockLayout kLayout>
kernels::Status EvaluateJacobian(
    const kernels::EvaluateJacobianParams<double, 9, kLayout>& params,
    cudaStream_t stream);

template <kernels::BlockLayout kLayout>
kernels::Status SquaredColumnNorms(
    const kernels::SquaredColumnNormsParams<Source<kLayout>>& params,
    cudaStream_t stream);

// All outputs but schur_diagonal, which must be null.
template <kernels::BlockLayout kLayout>
kernels::Status NormalBlocks(
    const kernels::NormalBlocksParams<Source<kLayout>, kLayout>& params,
    const Scratch& scratch,
    cudaStream_t stream);

template <kernels::BlockLayout kLayout>
kernels::Status SchurProductImplicitW(
    const kernels::SchurProductImplicitWParams<Source<kLayout>, kLayout>&
        params,
    const Scratch& scratch,
    cudaStream_t stream);

template <kernels::BlockLayout kLayout>
kernels::Status SchurProductExplicitW(
    const kernels::SchurProductExplicitWParams<double, 9, kLayout>& params,
    const Scratch& scratch,
    cudaStream_t stream);

template <kernels::BlockLayout kLayout>
kernels::Status BackSubstituteImplicitW(
    const kernels::BackSubstituteImplicitWParams<Source<kLayout>, kLayout>&
        params,
    const Scratch& scratch,
    cudaStream_t stream);

template <kernels::BlockLayout kLayout>
kernels::Status BackSubstituteExplicitW(
    const kernels::BackSubstituteExplicitWParams<double, 9, kLayout>& params,
    const Scratch& scratch,
    cudaStream_t stream);

template <kernels::BlockLayout kLayout>
kernels::Status NormalProductImplicitW(
    const kernels::NormalProductImplicitWParams<Source<kLayout>>& params,
    cudaStream_t stream);

template <kernels::BlockLayout kLayout>
kernels::Status NormalProductExplicitW(
    const kernels::NormalProductExplicitWParams<double, 9, kLayout>& params,
    cudaStream_t stream);

// N is 3 or 9. A block without a Cholesky factor is a breakdown here.
template <int N, kernels::BlockLayout kLayout>
kernels::Status InvertBlockDiagonal(
    const kernels::InvertBlockDiagonalParams<N, kLayout>& params,
    cudaStream_t stream);

template <int N, kernels::BlockLayout kLayout>
kernels::Status ApplyBlockDiagonal(
    const kernels::ApplyBlockDiagonalParams<N, kLayout>& params,
    cudaStream_t stream);

}  // namespace ceres_ext::bal::naive

#endif  // BENCHMARKS_STUDY_NAIVE_KERNELS_H_
