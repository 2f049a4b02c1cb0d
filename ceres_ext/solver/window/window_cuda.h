// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Windows on a device: a thread block solves one and takes the next from a
// queue, so that one launch solves all.
#ifndef CERES_EXT_SOLVER_WINDOW_WINDOW_CUDA_H_
#define CERES_EXT_SOLVER_WINDOW_WINDOW_CUDA_H_

#include <cstdint>

#include "ceres_ext/solver/trust_region.h"
#include "ceres_ext/solver/window/window.h"
#include "ceres_ext/solver/window/window_arena.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/cuda_context.h"
#include "cuda_kernels/model/robust_loss.h"

namespace ceres_ext {

// Threads of a window's block. A property of the window alone, since its sums
// depend on it.
inline int WindowThreads(int num_cameras) {
  return num_cameras <= 2 ? 64 : num_cameras <= 12 ? 256 : 512;
}

// All pointers are the device's.
struct SolveWindowsParams {
  TrustRegionOptions options;
  bool has_schur = false;
  int64_t num_windows = 0;
  const WindowRecord* records = nullptr;
  const kernels::RobustLoss* losses = nullptr;
  const unsigned char* inputs = nullptr;
  unsigned char* outputs = nullptr;
  double* scratch = nullptr;  // scratch_size doubles a block
  int64_t scratch_size = 0;
  int32_t* queue = nullptr;  // 0
};

// Queues the solution of windows of one kind, in the order of their records,
// by num_blocks blocks of num_threads threads with team_bytes of shared memory.
kernels::Status SolveWindows(const WindowKind& kind,
                             const SolveWindowsParams& params,
                             int64_t num_blocks,
                             int num_threads,
                             int64_t team_bytes,
                             cudaStream_t stream);

}  // namespace ceres_ext

#endif  // CERES_EXT_SOLVER_WINDOW_WINDOW_CUDA_H_
