// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Windows on a device: a thread block, or a cluster of them where there are few
// windows, solves one and takes the next from a queue, so that one launch
// solves all.
#ifndef CERES_EXT_SMALL_WINDOW_WINDOW_CUDA_H_
#define CERES_EXT_SMALL_WINDOW_WINDOW_CUDA_H_

#include <cstdint>

#include "ceres_ext/small/window/window.h"
#include "ceres_ext/small/window/window_arena.h"
#include "ceres_ext/solver/step_search.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/cuda_context.h"
#include "cuda_kernels/model/robust_loss.h"

namespace ceres_ext {

// Windows of one kind, whose blocks have the same number of threads and S in
// the same memory.
struct WindowGroup {
  int64_t num_windows = 0;
  int num_threads = 0;
  int32_t max_chunks = 0;
  int64_t team_bytes = 0;    // of a block: TeamLayout
  int64_t scratch_size = 0;  // in doubles: WindowScratch
  int64_t shared_scratch_size = 0;
};

// Teams that work at once, each with scratch_size doubles.
struct WindowGrid {
  int64_t num_teams = 0;
  int blocks_per_team = 1;
  int64_t scratch_size = 0;
};

struct SolveWindowsParams;
// The kernel of a class of rows (window_kernel.cuh).
using WindowKernel = void (*)(SolveWindowsParams);

// The kernel of a kind without poses.
WindowKernel BalWindowKernel(const WindowKind& kind);

// As many as the current device runs at once. Several blocks share a window
// where there are not enough windows for all multiprocessors, and the scratch
// of all that are shared has at most max_shared_scratch doubles. If that is
// negative, they share none.
WindowGrid ChooseGrid(WindowKernel kernel,
                      const WindowGroup& group,
                      int num_multiprocessors,
                      int64_t max_shared_scratch);

// All pointers are the device's.
struct SolveWindowsParams {
  LoopOptions options;
  bool has_schur = false;
  int64_t num_windows = 0;
  const WindowRecord* records = nullptr;
  const kernels::RobustLoss* losses = nullptr;
  const unsigned char* inputs = nullptr;
  unsigned char* outputs = nullptr;
  double* scratch = nullptr;  // scratch_size doubles a team
  int64_t scratch_size = 0;
  int32_t* queue = nullptr;  // 0
};

// Queues the solution of windows of one kind, in the order of their records.
kernels::Status SolveWindows(WindowKernel kernel,
                             const SolveWindowsParams& params,
                             const WindowGrid& grid,
                             int num_threads,
                             int64_t team_bytes,
                             cudaStream_t stream);

}  // namespace ceres_ext

#endif  // CERES_EXT_SMALL_WINDOW_WINDOW_CUDA_H_
