// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The options of a solve, as far as they concern windows.

#ifndef CERES_EXT_SMALL_WINDOW_OPTIONS_H_
#define CERES_EXT_SMALL_WINDOW_OPTIONS_H_

#include <cstdint>
#include <string>

#include "ceres/solver.h"
#include "ceres_ext/options.h"
#include "ceres_ext/solver/trust_region.h"

namespace ceres_ext {

// Reason why windows are not solved with these options; empty if they are.
std::string WhyNoWindows(const ceres::Solver::Options& options,
                         const Options& ext_options);

// stop: TrustRegionOptions::stop.
TrustRegionOptions OptionsOfRegion(const ceres::Solver::Options& options,
                                   const int32_t* stop);

}  // namespace ceres_ext

#endif  // CERES_EXT_SMALL_WINDOW_OPTIONS_H_
