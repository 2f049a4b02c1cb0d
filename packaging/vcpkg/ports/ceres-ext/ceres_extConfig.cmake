# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
# Leads to the package in the folder of its own, which finds the patched Ceres
# beside itself.
include(
  "${CMAKE_CURRENT_LIST_DIR}/../../lib/ceres_ext/lib/cmake/ceres_ext/ceres_extConfig.cmake")
