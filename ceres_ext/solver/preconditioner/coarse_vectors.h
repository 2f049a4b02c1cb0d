// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The vectors of a cluster that a block-diagonal preconditioner leaves to PCG:
// those of the lowest eigenvalues of the cluster's own reduced system N (that
// of its rows alone, Neumann) against the block diagonal B, by steps of
// subspace iteration from fixed random vectors.
#ifndef CERES_EXT_SOLVER_PRECONDITIONER_COARSE_VECTORS_H_
#define CERES_EXT_SOLVER_PRECONDITIONER_COARSE_VECTORS_H_

#include <cstdint>
#include <vector>

#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/host_context.h"

namespace ceres_ext::solver {

// A cluster: N, dense, column-major with HostDenseCholesky::Stride(n), of which
// the lower triangle is read and lost; and its blocks of B one after the other,
// each dense, column-major.
struct ClusterSystem {
  int64_t n = 0;
  std::vector<double> matrix;
  std::vector<int32_t> block_size;
  std::vector<double> blocks;
};

// n x m values, row by row, B-orthonormal columns; those for which there are no
// columns left, or no more directions, are zero: all where N and N with a shift
// of 1e-10 of its diagonal are not positive definite.
kernels::Status FindCoarseVectors(int32_t m,
                                  uint64_t seed,
                                  ClusterSystem* system,
                                  std::vector<double>* vectors);

}  // namespace ceres_ext::solver

#endif  // CERES_EXT_SOLVER_PRECONDITIONER_COARSE_VECTORS_H_
