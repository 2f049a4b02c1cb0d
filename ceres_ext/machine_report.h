// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The rates of this machine and the choices that follow from them, for a
// person:
//
//   std::cout << ceres_ext::MachineReport(ceres_ext::Options());
//
// ceres_ext_run --machine prints it.

#ifndef CERES_EXT_MACHINE_REPORT_H_
#define CERES_EXT_MACHINE_REPORT_H_

#include <string>

#include "ceres_ext/options.h"

namespace ceres_ext {

// Lines of text: the rates of the host and of the options' device, measured if
// they are not known (Options::machine_rates), the folder where they are kept,
// and what device = DEVICE_AUTO and jacobian = JACOBIAN_AUTO would choose for
// bundle adjustments of several sizes, with the estimated seconds. If there is
// no device, or a rate is not measured, it says why. Takes about 0.5 s at the
// first call. Thread safe.
std::string MachineReport(const Options& options);

}  // namespace ceres_ext

#endif  // CERES_EXT_MACHINE_REPORT_H_
