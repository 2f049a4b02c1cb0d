// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/plan/attempts.h"

#include "ceres_ext/plan/device_choice.h"
#include "ceres_ext/plan/solve_plan.h"
#include "glog/logging.h"

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

bool LacksRoom(const Status& status) {
  return status.code == StatusCode::kOutOfMemory ||
         status.code == StatusCode::kUnsupported;
}

std::string AsReason(const Status& status) {
  return (status.code == StatusCode::kDeviceError ? "the device failed: "
                                                  : "") +
         AsClause(status.message);
}

AttemptPart PartToLeave(const Options& options,
                        const Attempt& attempt,
                        const Outcome& outcome) {
  const bool is_declined = outcome.stage == Outcome::kDeclined;
  // Other set-ups, and one device for several that were not started, are the
  // plan's to choose.
  const bool needs_fallback =
      outcome.stage == Outcome::kRun || (is_declined && !outcome.by_several);
  if (outcome.status.ok() || !outcome.may_repeat ||
      (needs_fallback && !MayFallBack(options))) {
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
  if (outcome.is_exact && LacksRoom(outcome.status)) {
    return &Attempt::why_pcg;
  }
  // A value that is not finite on a device is not finite on the host either.
  const bool is_numerical =
      outcome.stage == Outcome::kRun &&
      outcome.status.code == StatusCode::kNumericalFailure;
  if (outcome.on_device && !is_numerical) {
    return &Attempt::why_host;
  }
  return outcome.in_float && is_numerical ? &Attempt::why_double : nullptr;
}

bool Attempts::Next(const Outcome& outcome) {
  const AttemptPart part = PartToLeave(options_, now_, outcome);
  if (part == nullptr) {
    return false;
  }
  const char* how = "";
  if (part == &Attempt::why_one) {
    how = "by one device, because several failed: ";
  } else if (part == &Attempt::why_host) {
    how = "on the host, because ";
    lacks_room_ = outcome.status.code != StatusCode::kDeviceError;
  } else if (part == &Attempt::why_double) {
    how = "in double, because mixed precision failed: ";
  } else if (part == &Attempt::why_pcg && lacks_room_) {
    now_.why_host.clear();  // PCG may have room there.
  }
  now_.*part = part == &Attempt::why_problem ? outcome.status.message
                                             : AsReason(outcome.status);
  if ((now_.*part).empty()) {
    now_.*part = "it failed";  // An empty reason would not leave it.
  }
  is_first_ = false;
  LOG_IF(WARNING, outcome.stage == Outcome::kRun)
      << done_ << " again " << how << now_.*part << ".";
  return true;
}

}  // namespace ceres_ext
