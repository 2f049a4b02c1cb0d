// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// For comparison only: the operations written the obvious way, one thread per
// observation and double atomics into whatever an observation adds to. With
// BlockLayout::kBlockContiguous this is the naive implementation of the study;
// with kContinuousElement the same code shows what the layout alone brings.
//
// Order: none. Atomics add in any order, so two runs may differ in the last
// bits. 9-parameter cameras, double. Sums over the observations of a point are
// in the scratch of the index's workspace.
#ifndef BENCHMARKS_STUDY_NAIVE_KERNELS_H_
#define BENCHMARKS_STUDY_NAIVE_KERNELS_H_

#include <type_traits>

#include "benchmarks/study/explicit_w.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/cuda_machine.h"
#include "cuda_kernels/model/jacobian_source.h"
#include "cuda_kernels/ops/block_rows.h"
#include "cuda_kernels/ops/evaluate.h"
#include "cuda_kernels/ops/jacobian_products.h"
#include "cuda_kernels/ops/normal_blocks.h"
#include "cuda_kernels/ops/schur_products.h"

namespace ceres_ext::bal {

template <kernels::BlockLayout kLayout>
using NaiveSource =
    kernels::StoredJacobian<double, kernels::BalShape<9>, kLayout>;

// Vector steps, cameras and cost are those of CudaMachine.
template <kernels::BlockLayout kLayoutIn>
class NaiveMachine : public kernels::CudaMachine {
 public:
  static constexpr kernels::BlockLayout kLayout = kLayoutIn;
  using Source = NaiveSource<kLayout>;
};

// Blocks only: residuals, gradient and point scale must be null. The evaluation
// is not set.
template <kernels::BlockLayout L>
kernels::Status Run(const kernels::EvaluateJacobianParams<double, 9, L>& params,
                    NaiveMachine<L>* machine);
template <kernels::BlockLayout L>
kernels::Status Run(
    const kernels::SquaredColumnNormsParams<NaiveSource<L>>& params,
    NaiveMachine<L>* machine);
// All outputs but schur_diagonal, which must be null.
template <kernels::BlockLayout L>
kernels::Status Run(
    const kernels::NormalBlocksParams<NaiveSource<L>, L>& params,
    NaiveMachine<L>* machine);
// W is formed in the same pass.
template <kernels::BlockLayout L>
kernels::Status Run(const ExplicitBlocksParams<NaiveSource<L>, L>& params,
                    NaiveMachine<L>* machine);
template <kernels::BlockLayout L>
kernels::Status Run(
    const kernels::SchurProductImplicitWParams<NaiveSource<L>, L>& params,
    NaiveMachine<L>* machine);
template <kernels::BlockLayout L>
kernels::Status Run(
    const SchurProductExplicitWParams<double, kernels::BalShape<9>, L>& params,
    NaiveMachine<L>* machine);
template <kernels::BlockLayout L>
kernels::Status Run(
    const kernels::BackSubstituteImplicitWParams<NaiveSource<L>, L>& params,
    NaiveMachine<L>* machine);
template <kernels::BlockLayout L>
kernels::Status Run(
    const BackSubstituteExplicitWParams<double, kernels::BalShape<9>, L>&
        params,
    NaiveMachine<L>* machine);
template <kernels::BlockLayout L>
kernels::Status Run(
    const kernels::NormalProductImplicitWParams<NaiveSource<L>>& params,
    NaiveMachine<L>* machine);
template <kernels::BlockLayout L>
kernels::Status Run(
    const NormalProductExplicitWParams<double, kernels::BalShape<9>, L>& params,
    NaiveMachine<L>* machine);
// N is 3 or 9. A block without a Cholesky factor is a breakdown here.
template <int N, kernels::BlockLayout L>
std::enable_if_t<N != kernels::kDynamic, kernels::Status> Run(
    const kernels::InvertBlocksParams<N>& params, NaiveMachine<L>* machine);
template <int N, kernels::BlockLayout L>
std::enable_if_t<N != kernels::kDynamic, kernels::Status> Run(
    const kernels::ApplyBlocksParams<N>& params, NaiveMachine<L>* machine);

}  // namespace ceres_ext::bal

#endif  // BENCHMARKS_STUDY_NAIVE_KERNELS_H_
