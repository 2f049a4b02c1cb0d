// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/small/window/pose_rows.h"
#include "ceres_ext/small/window/pose_windows.h"
#include "ceres_ext/small/window/window_on_host.h"

namespace ceres_ext {

CERES_EXT_RUN_WINDOW(RunOwnIntrinsicsWindow, OwnIntrinsicsRows)

}  // namespace ceres_ext
