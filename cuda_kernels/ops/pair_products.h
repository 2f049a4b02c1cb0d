// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The host's part of the Schur complement of rows of any kind
// (structure/schur_pairs.h), for i > j:
//
//   S_ij -= sum over eliminated blocks p of W_ip Vi_p W_jp'
//
// in place of PairInverse, CouplingChunks and SubtractCouplings
// (ops/schur_terms.h), which are for devices.
// Order: host/schur_rows.h.
#ifndef CERES_EXT_CUDA_KERNELS_OPS_PAIR_PRODUCTS_H_
#define CERES_EXT_CUDA_KERNELS_OPS_PAIR_PRODUCTS_H_

#include <cstdint>

#include "cuda_kernels/base/block_ref.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/host_machine.h"
#include "cuda_kernels/structure/coupling_index.h"
#include "cuda_kernels/structure/host_schur_rows.h"
#include "cuda_kernels/structure/observation_index.h"
#include "cuda_kernels/structure/schur_matrix.h"

namespace ceres_ext::kernels {

// For the pairs of a family of E.
struct PairProductsParams {
  ObservationIndexRef index;   // of pairs
  CouplingIndexRef couplings;  // of that
  HostSchurRowsRef rows;       // of blocks of block_size columns
  int32_t e_size = 0;
  const int64_t* w_begin = nullptr;     // of each pair
  const int32_t* block_size = nullptr;  // columns of each F block
  BlockArray<const double> v_inverse;
  const double* w = nullptr;  // F x E each, row-major
  SchurUnknownsRef unknowns;
  const int64_t* value_begin = nullptr;  // of each F block in a vector of F
  SchurTarget target;
};

Status Run(const PairProductsParams& params, HostMachine* machine);

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_OPS_PAIR_PRODUCTS_H_
