// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/small/window/pose_rows.h"
#include "ceres_ext/small/window/pose_windows.h"
#include "ceres_ext/small/window/window_kernel.cuh"

namespace ceres_ext {

WindowKernel OwnIntrinsicsWindowKernel() {
  return &SolveWindowsKernel<OwnIntrinsicsRows>;
}

}  // namespace ceres_ext
