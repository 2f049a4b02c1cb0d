// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/plan/attempts.h"

#include "ceres_ext/base/ceres_version.h"
#include "ceres_ext/plan/device_choice.h"
#include "ceres_ext/plan/solve_plan.h"

namespace ceres_ext {

using kernels::Status;
using kernels::StatusCode;

bool MayFallBack(const Options& options) {
  return options.fallback == FALLBACK_TO_CERES;
}

Options Attempt::Apply(const Options& options) const {
  Options applied = WithOneDevice(options);
  if (!why_host.empty()) {
    applied.device = DEVICE_HOST;
  }
  if (!why_double.empty()) {
    applied.precision = PRECISION_DOUBLE;
  }
  return applied;
}

std::string AsReason(const Status& status) {
  return (status.code == StatusCode::kDeviceError ? "the device failed: "
                                                  : "") +
         AsClause(status.message);
}

AttemptPart PartToLeave(const Options& options,
                        const Attempt& attempt,
                        const Outcome& outcome) {
  const StatusCode code = outcome.status.code;
  const bool has_run = outcome.stage == Outcome::kRun;
  const bool is_declined = outcome.stage == Outcome::kDeclined;
  if (outcome.status.ok() || !outcome.may_repeat) {
    return nullptr;
  }
  if (outcome.is_exact &&
      (code == StatusCode::kOutOfMemory || code == StatusCode::kUnsupported)) {
    return &Attempt::why_pcg;
  }
  // Decide knows about other set-ups, and about several devices that were not
  // started.
  if ((has_run || (is_declined && !outcome.by_several)) &&
      !MayFallBack(options)) {
    return nullptr;
  }
  if (outcome.is_chosen) {
    return &Attempt::why_given;
  }
  if (outcome.by_several) {
    return &Attempt::why_one;
  }
  if (is_declined || outcome.stage == Outcome::kNeedsProblem) {
    return attempt.why_problem.empty() ? &Attempt::why_problem : nullptr;
  }
  // A value that is not finite on a device is not finite on the host either.
  if (has_run && code == StatusCode::kNumericalFailure) {
    return outcome.in_float ? &Attempt::why_double : nullptr;
  }
  return outcome.on_device ? &Attempt::why_host : nullptr;
}

bool Attempts::Next(const Outcome& outcome) {
  const AttemptPart part = PartToLeave(options_, now_, outcome);
  if (part == nullptr) {
    return false;
  }
  is_first_ = false;
  std::string& why = now_.*part;
  why = part == &Attempt::why_problem ? outcome.status.message
                                      : AsReason(outcome.status);
  if (why.empty()) {
    why = "it failed";  // An empty reason would not leave it.
  }
  if (part == &Attempt::why_host) {
    lacks_room_ = outcome.status.code != StatusCode::kDeviceError;
  } else if (part == &Attempt::why_pcg && lacks_room_) {
    now_.why_host.clear();  // PCG may have room there.
  }
  const char* const how = part == &Attempt::why_one
                              ? "by one device, because several failed: "
                          : part == &Attempt::why_host ? "on the host, because "
                          : part == &Attempt::why_double
                              ? "in double, because mixed precision failed: "
                              : "by PCG, because exact steps failed: ";
  LOG_IF(WARNING, outcome.stage == Outcome::kRun)
      << done_ << " again " << how << why << ".";
  return true;
}

}  // namespace ceres_ext
