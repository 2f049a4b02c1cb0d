// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/small/window/window_cuda.h"

#include <algorithm>
#include <cstdint>

#include "ceres_ext/small/window/bal_rows.h"
#include "ceres_ext/small/window/window_kernel.cuh"
#include "cuda_kernels/machine/cuda_cluster.cuh"

namespace ceres_ext {

WindowKernel BalWindowKernel(const WindowKind& kind) {
  return kind.camera_size == 9
             ? (kind.num_columns == 9 ? &SolveWindowsKernel<BalRows<3, 9>>
                                      : &SolveWindowsKernel<BalRows<3, 6>>)
         : kind.num_columns == 10 ? &SolveWindowsKernel<BalRows<4, 10>>
         : kind.num_columns == 9  ? &SolveWindowsKernel<BalRows<4, 9>>
                                  : &SolveWindowsKernel<BalRows<4, 6>>;
}

WindowGrid ChooseGrid(WindowKernel kernel,
                      const WindowGroup& group,
                      int num_multiprocessors,
                      int64_t max_shared_scratch) {
  WindowGrid grid;
  for (int blocks = WindowScratch::kMaxBlocks; blocks > 1; blocks /= 2) {
    // A cluster has a block for each chunk at most.
    if (blocks < 2 * group.max_chunks &&
        group.num_windows * blocks <= num_multiprocessors &&
        group.num_windows * group.shared_scratch_size <= max_shared_scratch &&
        kernels::CanLaunchClusters(kernel,
                                   group.num_windows,
                                   blocks,
                                   group.num_threads,
                                   group.team_bytes + kHeadBytes)) {
      grid.num_teams = group.num_windows;
      grid.blocks_per_team = blocks;
      grid.scratch_size = group.shared_scratch_size;
      return grid;
    }
  }
  const int64_t per_multiprocessor =
      std::max<int64_t>(1,
                        std::min<int64_t>(kMaxWindowThreads / group.num_threads,
                                          (kMaxTeamBytes + kHeadBytes) /
                                              (group.team_bytes + kHeadBytes)));
  grid.num_teams =
      std::min(group.num_windows, per_multiprocessor * num_multiprocessors);
  grid.scratch_size = group.scratch_size;
  return grid;
}

kernels::Status SolveWindows(WindowKernel kernel,
                             const SolveWindowsParams& params,
                             const WindowGrid& grid,
                             int num_threads,
                             int64_t team_bytes,
                             cudaStream_t stream) {
  return kernels::LaunchClusters("SolveWindowsKernel",
                                 kernel,
                                 grid.num_teams,
                                 grid.blocks_per_team,
                                 num_threads,
                                 team_bytes + kHeadBytes,
                                 stream,
                                 params);
}

}  // namespace ceres_ext
