// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#ifndef CERES_EXT_CUDA_KERNELS_BASE_SPARSE_ORDERING_H_
#define CERES_EXT_CUDA_KERNELS_BASE_SPARSE_ORDERING_H_

#include <cstdint>
#include <vector>

namespace ceres_ext::kernels {

// How a symmetric permutation of a sparse matrix is found that its factor gains
// by.
struct SparseOrdering {
  enum class Algorithm {
    kLibrarys,  // cuDSS's own choice
    kApproximateMinimumDegree,
    kNestedDissection,
  };
  Algorithm algorithm = Algorithm::kLibrarys;
  // Null: rows are ordered one by one. Else the graph of blocks of rows, in
  // host memory, which is ordered in their place: block b has the rows begin[b]
  // .. begin[b + 1] - 1, and elements in common with the blocks
  // column[row_begin[b]] .. column[row_begin[b + 1] - 1], which ascend and end
  // with b.
  const std::vector<int32_t>* begin = nullptr;
  const std::vector<int64_t>* row_begin = nullptr;
  const std::vector<int32_t>* column = nullptr;
};

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_BASE_SPARSE_ORDERING_H_
