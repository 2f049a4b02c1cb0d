// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The solve of windows of poses, with constant intrinsics or their own, on the
// host and on a device.
#ifndef CERES_EXT_SMALL_WINDOW_POSE_WINDOWS_H_
#define CERES_EXT_SMALL_WINDOW_POSE_WINDOWS_H_

#include "ceres_ext/small/window/window.h"
#include "ceres_ext/small/window/window_arena.h"
#include "ceres_ext/small/window/window_cuda.h"
#include "ceres_ext/solver/step_search.h"

namespace ceres_ext {

class HostTeam;

// A RunWindow (small/window/window_host.h).
void RunPoseWindow(const WindowRecord& record,
                   const unsigned char* inputs,
                   const Window& window,
                   bool has_schur,
                   const LoopOptions& options,
                   double* memory,
                   HostTeam* team);

void RunOwnIntrinsicsWindow(const WindowRecord& record,
                            const unsigned char* inputs,
                            const Window& window,
                            bool has_schur,
                            const LoopOptions& options,
                            double* memory,
                            HostTeam* team);

// In a build with CUDA.
WindowKernel PoseWindowKernel();
WindowKernel OwnIntrinsicsWindowKernel();

}  // namespace ceres_ext

#endif  // CERES_EXT_SMALL_WINDOW_POSE_WINDOWS_H_
