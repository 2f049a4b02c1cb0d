// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// How fast a device and its host are, for estimates of time. Estimates have
// constants that were measured on one machine, an H200 and its host; those of
// another machine are in the proportion of these rates.
//
//   seconds = kSecondsThere * SlowerMemory(rates);
#ifndef CERES_EXT_CUDA_KERNELS_BASE_MACHINE_RATES_H_
#define CERES_EXT_CUDA_KERNELS_BASE_MACHINE_RATES_H_

#include <algorithm>
#include <cmath>

namespace ceres_ext::kernels {

// The defaults are those of the machine of the constants.
struct MachineRates {
  // Device memory, read plus written by a large copy
  // (docs/measurements/gpu.md).
  double bytes_per_second = 4.24e12;
  // From one launch to the next of kernels that do nothing.
  double launch_seconds = 4.8e-6;
  // Fused products of all multiprocessors: 128 of float and 64 of double in
  // each of 132 a cycle of 1.98 GHz.
  double float_fmas_per_second = 3.3e13;
  double double_fmas_per_second = 1.65e13;
  // Values of a stored Jacobian in the caches, by one thread
  // (host_rates.h).
  double host_values_per_second = 1.34e9;
  // Host memory, read by all processors together; 0: no limit is known.
  double host_bytes_per_second = 0.0;
};

// How many times as long as on the machine of the constants something takes.
inline double SlowerMemory(const MachineRates& rates) {
  return MachineRates().bytes_per_second / rates.bytes_per_second;
}
inline double SlowerLaunch(const MachineRates& rates) {
  return rates.launch_seconds / MachineRates().launch_seconds;
}
inline double SlowerFloat(const MachineRates& rates) {
  return MachineRates().float_fmas_per_second / rates.float_fmas_per_second;
}
inline double SlowerDouble(const MachineRates& rates) {
  return MachineRates().double_fmas_per_second / rates.double_fmas_per_second;
}
inline double SlowerHost(const MachineRates& rates) {
  return MachineRates().host_values_per_second / rates.host_values_per_second;
}
// How many times the rate of float is that of double.
inline double FloatToDouble(const MachineRates& rates) {
  return rates.float_fmas_per_second / rates.double_fmas_per_second;
}

// A device of which only this ratio is known, as CUDA has it: 2, 32, 64; 0: not
// known.
inline MachineRates RatesOfRatio(int float_to_double_ratio) {
  MachineRates rates;
  rates.double_fmas_per_second =
      rates.float_fmas_per_second / std::max(2, float_to_double_ratio);
  return rates;
}

// The rate's step of a ladder that goes through `of` and has two rungs for each
// factor of two. Two measurements of a machine differ by a few parts in a
// hundred and should not choose.
inline double RungOf(double rate, double of) {
  return of * std::exp2(0.5 * std::round(2.0 * std::log2(rate / of)));
}
// All rates on ladders through those of the defaults, with double by its ratio
// to float.
inline MachineRates OnRungs(const MachineRates& rates) {
  const MachineRates of;
  constexpr double kHostBytes = 1e11;
  MachineRates rungs;
  rungs.bytes_per_second = RungOf(rates.bytes_per_second, of.bytes_per_second);
  rungs.launch_seconds = RungOf(rates.launch_seconds, of.launch_seconds);
  rungs.float_fmas_per_second =
      RungOf(rates.float_fmas_per_second, of.float_fmas_per_second);
  rungs.double_fmas_per_second =
      rungs.float_fmas_per_second / RungOf(FloatToDouble(rates), 2.0);
  rungs.host_values_per_second =
      RungOf(rates.host_values_per_second, of.host_values_per_second);
  rungs.host_bytes_per_second =
      rates.host_bytes_per_second > 0.0
          ? RungOf(rates.host_bytes_per_second, kHostBytes)
          : 0.0;
  return rungs;
}

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_BASE_MACHINE_RATES_H_
