// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The rates of this host and of its devices, measured once and kept in files of
// the user's cache folder, so that all runs choose by the same numbers:
//
//   const kernels::MachineRates rates = RatesOf(options);
//
// A file belongs to a card, a driver, a host and a version of this library; a
// broken one is replaced. Processes that come at the same time wait for the one
// that measures. Within a process rates never change. Thread safe.

#ifndef CERES_EXT_PLAN_KEPT_RATES_H_
#define CERES_EXT_PLAN_KEPT_RATES_H_

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "ceres_ext/options.h"
#include "cuda_kernels/base/machine_rates.h"

namespace ceres_ext {

// The rates of the options' device and of the host, on rungs (OnRungs). If they
// are not known they are measured, which makes a CUDA context. If they can't be
// measured or kept, or MACHINE_RATES_BUILT_IN is asked for: the rates of the
// constants, with the device's ratio of float to double.
kernels::MachineRates RatesOf(const Options& options);

// The same of the host alone, with the default for the device, where the host
// is estimated to take so long by the default rates: if it is far from taking
// as long as CUDA takes to start, or there is no driver, nothing is measured.
kernels::MachineRates HostRatesOf(const Options& options, double host_seconds);

// For a person: as measured, and why not, a clause.
struct RatesReport {
  std::string host;
  std::string device;  // empty: there is none
  std::string driver;
  kernels::MachineRates rates;
  std::string why_not_host;
  std::string why_not_device;
  std::string folder;  // of the files
};
RatesReport ReportRates(const Options& options);

// "/home/me/.cache/ceres_ext": below XDG_CACHE_HOME if that is absolute,
// otherwise below HOME; empty if neither is.
std::string CacheFolder();

// The numbers of the file for this key, or those of `measure`, which are then
// written. measure: false with a clause in *why, and then this too. False also
// if the file can't be written; *numbers is empty then.
bool KeepNumbers(const std::string& folder,
                 const std::string& key,
                 size_t count,
                 const std::function<bool(std::vector<double>* numbers,
                                          std::string* why)>& measure,
                 std::vector<double>* numbers,
                 std::string* why);

}  // namespace ceres_ext

#endif  // CERES_EXT_PLAN_KEPT_RATES_H_
