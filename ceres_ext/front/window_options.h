// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// What options of a solve are to windows.

#ifndef CERES_EXT_FRONT_WINDOW_OPTIONS_H_
#define CERES_EXT_FRONT_WINDOW_OPTIONS_H_

#include <cstdint>
#include <string>

#include "ceres/solver.h"
#include "ceres_ext/options.h"
#include "ceres_ext/solver/trust_region.h"

namespace ceres_ext {

// With fewer residual blocks in a batch DEVICE_AUTO is the host.
inline constexpr int64_t kMinDeviceRows = 15000;

// Of options that windows are not solved with, the first; empty: they are.
std::string WhyNoWindows(const ceres::Solver::Options& options,
                         const Options& ext_options);

TrustRegionOptions OptionsOfRegion(const ceres::Solver::Options& options);

}  // namespace ceres_ext

#endif  // CERES_EXT_FRONT_WINDOW_OPTIONS_H_
