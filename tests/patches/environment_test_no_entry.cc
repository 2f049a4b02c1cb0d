// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A library that is linked to Ceres but lacks CeresCreateSolverPlugin.

#include "ceres/solver_plugin.h"

extern "C" __attribute__((visibility("default"))) ceres::internal::SolverPlugin*
NotTheEntryPoint() {
  return new ceres::internal::SolverPlugin;
}
