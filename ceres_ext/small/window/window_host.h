// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Windows on the host: one or several threads solve one.
#ifndef CERES_EXT_SMALL_WINDOW_WINDOW_HOST_H_
#define CERES_EXT_SMALL_WINDOW_WINDOW_HOST_H_

#include <vector>

#include "ceres_ext/small/window/window.h"
#include "ceres_ext/small/window/window_arena.h"
#include "ceres_ext/solver/step_search.h"
#include "cuda_kernels/machine/host_context.h"
#include "cuda_kernels/model/robust_loss.h"

namespace ceres_ext {

class HostTeam;

// The solve of a class of rows: solves the window of a record in `inputs`.
using RunWindow = void (*)(const WindowRecord& record,
                           const unsigned char* inputs,
                           const Window& window,
                           bool has_schur,
                           const LoopOptions& options,
                           double* memory,
                           HostTeam* team);

// The solve of a kind without poses.
RunWindow RunBalWindow(const WindowKind& kind);

// Solves the window that *record describes, on the threads of `context` or, if
// it is null, on this one, with the same bits. *memory is this thread's, for
// this and later windows. Throws std::bad_alloc where it can't grow.
void SolveWindowOnHost(RunWindow run,
                       const WindowKind& kind,
                       bool has_schur,
                       const LoopOptions& options,
                       const WindowRecord& record,
                       const kernels::RobustLoss* losses,
                       const unsigned char* inputs,
                       unsigned char* outputs,
                       kernels::HostContext* context,
                       std::vector<double>* memory);

}  // namespace ceres_ext

#endif  // CERES_EXT_SMALL_WINDOW_WINDOW_HOST_H_
