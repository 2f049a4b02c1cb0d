// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The device bodies of Schur and normal products, back-substitution and J'y:
// what each gives to TileOperation, for any source and layout. Included by
// .cu.cc files that instantiate them.
#ifndef CERES_EXT_CUDA_KERNELS_CUDA_SCHUR_PRODUCTS_IMPL_CUH_
#define CERES_EXT_CUDA_KERNELS_CUDA_SCHUR_PRODUCTS_IMPL_CUH_

#include <cuda_runtime.h>

#include "cuda_kernels/base/block_ref.h"
#include "cuda_kernels/cuda/recomputed_tiles.cuh"
#include "cuda_kernels/cuda/stored_tiles.cuh"
#include "cuda_kernels/machine/cuda_machine.h"
#include "cuda_kernels/ops/jacobian_products.h"
#include "cuda_kernels/ops/normal_blocks.h"
#include "cuda_kernels/ops/schur_products.h"

namespace ceres_ext::kernels {

// The layout of the blocks beside a source.
template <typename Source>
inline constexpr BlockLayout kLayoutOf = Source::kLayout;
template <typename T, int C, bool kScaledRows>
inline constexpr BlockLayout kLayoutOf<RecomputedJacobian<T, C, kScaledRows>> =
    kDeviceLayout;

template <typename Source, BlockLayout kLayout>
Status Run(const SchurProductImplicitWParams<Source, kLayout>& params,
           CudaMachine* machine) {
  TileOperands<Source::Shape::kE, kLayout> operands;
  operands.v_inverse = params.v_inverse;
  operands.scalars = params.scalars;
  CameraSumTerms terms;
  terms.diagonal = params.camera_diagonal;
  terms.p = params.p;
  terms.out = params.q;
  if (params.eliminated_part) {
    return TileOperation<kEliminatedPartMode>(
        params.index, params.jacobian, params.p, operands, terms, machine);
  }
  return TileOperation<kSchurProductMode>(
      params.index, params.jacobian, params.p, operands, terms, machine);
}

template <typename Source>
Status Run(const NormalProductImplicitWParams<Source>& params,
           CudaMachine* machine) {
  TileOperands<Source::Shape::kE, kLayoutOf<Source>> operands;
  operands.point_x = params.point_p;
  operands.point_diagonal = params.point_diagonal;
  operands.point_out = params.point_q;
  operands.scalars = params.scalars;
  CameraSumTerms terms;
  terms.diagonal = params.camera_diagonal;
  terms.p = params.camera_p;
  terms.out = params.camera_q;
  return TileOperation<kNormalProductMode>(
      params.index, params.jacobian, params.camera_p, operands, terms, machine);
}

template <typename Source, BlockLayout kLayout>
Status Run(const BackSubstituteImplicitWParams<Source, kLayout>& params,
           CudaMachine* machine) {
  TileOperands<Source::Shape::kE, kLayout> operands;
  operands.b = params.b;
  operands.v_inverse = params.v_inverse;
  operands.point_out = params.y;
  return TileOperation<kBackSubstituteMode>(
      params.index, params.jacobian, params.z, operands, {}, machine);
}

template <typename Source>
Status Run(const LeftMultiplyParams<Source>& params, CudaMachine* machine) {
  TileOperands<Source::Shape::kE, kLayoutOf<Source>> operands;
  operands.b = params.y;
  operands.point_out = params.point_x;
  operands.accumulate = params.accumulate;
  CameraSumTerms terms;
  terms.accumulate = params.accumulate;
  terms.out = params.camera_x;
  return TileOperation<kLeftMultiplyMode>(
      params.index, params.jacobian, nullptr, operands, terms, machine);
}

// These operations of a source.
#define CERES_EXT_INSTANTIATE_PRODUCTS(...)                             \
  template Status Run(                                                  \
      const SchurProductImplicitWParams<__VA_ARGS__, kDeviceLayout>&,   \
      CudaMachine*);                                                    \
  template Status Run(                                                  \
      const BackSubstituteImplicitWParams<__VA_ARGS__, kDeviceLayout>&, \
      CudaMachine*);                                                    \
  template Status Run(const NormalProductImplicitWParams<__VA_ARGS__>&, \
                      CudaMachine*);                                    \
  template Status Run(const LeftMultiplyParams<__VA_ARGS__>&, CudaMachine*);

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_CUDA_SCHUR_PRODUCTS_IMPL_CUH_
