// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Clusters of blocks that are strongly coupled, by heavy-edge matching
// (G. Karypis, V. Kumar, "A fast and high quality multilevel scheme for
// partitioning irregular graphs", SIAM J. Sci. Comput. 20, 1998).
#ifndef CERES_EXT_SOLVER_PRECONDITIONER_CLUSTERS_H_
#define CERES_EXT_SOLVER_PRECONDITIONER_CLUSTERS_H_

#include <cstdint>
#include <vector>

namespace ceres_ext::solver {

// Two blocks, i != j, and how strongly they are coupled, above 0.
struct Coupling {
  int32_t i;
  int32_t j;
  double weight;
};

// The cluster of each block, 0 .. num_clusters - 1. size: columns of each
// block. Clusters grow until they have mean_size columns on average, and none
// of several blocks has more than twice that. A block that is coupled with more
// than max_neighbors others, as intrinsics that all images share, stays alone.
// The same input gives the same clusters.
std::vector<int32_t> MakeClusters(const std::vector<int32_t>& size,
                                  std::vector<Coupling> couplings,
                                  int32_t mean_size,
                                  int32_t max_neighbors,
                                  int32_t* num_clusters);

}  // namespace ceres_ext::solver

#endif  // CERES_EXT_SOLVER_PRECONDITIONER_CLUSTERS_H_
