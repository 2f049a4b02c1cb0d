// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/machine_report.h"

#include <cstdint>
#include <cstdio>

#include "ceres_ext/plan/device_choice.h"
#include "ceres_ext/plan/kept_rates.h"
#include "cuda_kernels/base/machine_rates.h"
#include "cuda_kernels/machine/host_processors.h"

namespace ceres_ext {
namespace {

template <typename... Values>
std::string Line(const char* format, Values... values) {
  char text[256];
  std::snprintf(text, sizeof(text), format, values...);
  return std::string(text) + "\n";
}

std::string NotMeasured(const std::string& why) {
  return why.empty() ? "" : "  built in, because " + why + "\n";
}

}  // namespace

std::string MachineReport(const Options& options) {
  const RatesReport report = ReportRates(options);
  const kernels::MachineRates& measured = report.rates;
  std::string text = "host: " + report.host + "\n";
  text += NotMeasured(report.why_not_host);
  text +=
      Line("  a thread passes over %.3g values of a stored Jacobian per second",
           measured.host_values_per_second);
  if (measured.host_bytes_per_second > 0.0) {
    text += Line("  all threads read %.3g GB/s",
                 1e-9 * measured.host_bytes_per_second);
  }
  if (report.device.empty()) {
    return text + "device: none, because " + report.why_not_device + "\n";
  }
  text += "device " + std::to_string(options.cuda_device) + ": " +
          report.device + ", driver " + report.driver + "\n";
  text += NotMeasured(report.why_not_device);
  text += Line("  memory copies %.4g GB/s, read plus written",
               1e-9 * measured.bytes_per_second);
  text += Line("  a launch takes %.3g us", 1e6 * measured.launch_seconds);
  text +=
      Line("  %.4g float and %.4g double fused products per second, in 1e12",
           1e-12 * measured.float_fmas_per_second,
           1e-12 * measured.double_fmas_per_second);
  if (!report.folder.empty()) {
    text += "kept in " + report.folder + "\n";
  }
  if (options.machine_rates == MACHINE_RATES_BUILT_IN) {
    text += "choices are by the built-in rates (machine_rates = built_in)\n";
  }
  DeviceState state;
  state.rates = RatesOf(options);
  text += "jacobian = auto on the device: " +
          std::string(RecomputedIsFaster(PRECISION_DOUBLE, state.rates)
                          ? "recomputed"
                          : "stored") +
          " in double, " +
          (RecomputedIsFaster(PRECISION_MIXED, state.rates) ? "recomputed"
                                                            : "stored") +
          " in mixed precision\n";
  // As docs/options.md counts: 24 values an observation, ten steps of twenty
  // iterations.
  SolveWork work;
  work.num_steps = 10;
  work.num_pcg_iterations = 20;
  work.num_threads = kernels::NumUsableProcessors();
  text += "device = auto, ITERATIVE_SCHUR, " +
          std::to_string(work.num_threads) +
          " threads, a process without a CUDA context:\n";
  text += Line(
      "  %12s %10s %10s  %s", "observations", "host s", "device s", "choice");
  for (const int64_t n : {1000, 10000, 100000, 1000000, 10000000}) {
    work.num_values = 24 * n;
    work.recomputed = RecomputedIsFaster(options.precision, state.rates);
    work.mixed = options.precision == PRECISION_MIXED;
    const double host = EstimateHostSeconds(work, state.rates);
    const double device = EstimateDeviceSeconds(work, state);
    text += Line("  %12lld %10.3g %10.3g  %s",
                 static_cast<long long>(n),
                 host,
                 device,
                 device < host ? "device" : "host");
  }
  return text;
}

}  // namespace ceres_ext
