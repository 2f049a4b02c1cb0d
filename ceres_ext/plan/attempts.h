// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The attempts at a request in their order, and the only place that goes from
// one to the next:
//
//   a chosen solver      then  the program's, then stock Ceres
//   several devices      then  one device, or the host
//   a device             then  the host
//   mixed precision      then  double
//   exact steps          then  PCG
//   arrays               then  a ceres::Problem, or Ceres
//
//   Attempts attempts(options);
//   const Outcome outcome = TryEach(&attempts, [&](const Attempt& attempt) {
//     request.attempt = attempt;
//     ... Decide(request, rows, machines) ...
//     return Outcome(...);
//   });
//
// Decide (plan/solve_plan.h) makes the plan of an attempt from the request
// without the parts that earlier attempts have left.

#ifndef CERES_EXT_PLAN_ATTEMPTS_H_
#define CERES_EXT_PLAN_ATTEMPTS_H_

#include <string>
#include <utility>

#include "ceres_ext/options.h"
#include "cuda_kernels/base/status.h"

namespace ceres_ext {

// True if the options allow another way than the one that they ask for. The
// only reader of Options::fallback.
bool MayFallBack(const Options& options);

// The parts of a request that an attempt has left, with the reason, a clause;
// empty for those that it may use.
struct Attempt {
  std::string why_given;    // the linear solver that the options choose
  std::string why_one;      // several devices
  std::string why_host;     // a device
  std::string why_double;   // mixed precision
  std::string why_pcg;      // exact steps
  std::string why_problem;  // arrays without a ceres::Problem

  // The options of an attempt by one machine.
  Options Apply(const Options& options) const;
};

// How an attempt has ended.
struct Outcome {
  enum Stage {
    kNeedsProblem,  // Only a ceres::Problem has what was asked for.
    kDeclined,      // This library does not support it. Nothing was done.
    kSetup,
    kRun,
  };

  Outcome() = default;
  explicit Outcome(kernels::Status status_in, Stage stage_in = kRun)
      : status(std::move(status_in)), stage(stage_in) {}
  // why: a clause.
  Outcome(Stage stage_in, const std::string& why)
      : Outcome({kernels::StatusCode::kUnsupported, why}, stage_in) {}
  // Several devices were not started.
  static Outcome NotBySeveral(const std::string& why) {
    Outcome outcome(kDeclined, why);
    outcome.by_several = true;
    return outcome;
  }

  kernels::Status status;
  Stage stage = kRun;
  // Parts that the attempt has used.
  bool is_chosen = false;  // a linear solver
  bool by_several = false;
  bool on_device = false;
  bool in_float = false;
  bool is_exact = false;  // and PCG would do
  // The caller sees nothing of it.
  bool may_repeat = true;
};

// The reason of an attempt that the next one has in addition; null: there is no
// next one.
using AttemptPart = std::string Attempt::*;
AttemptPart PartToLeave(const Options& options,
                        const Attempt& attempt,
                        const Outcome& outcome);

// A failure as a reason, a clause: "the device failed: CUDA says no".
std::string AsReason(const kernels::Status& status);

class Attempts {
 public:
  // The options outlive the object. first: the first attempt. done: for
  // the log. Takes no memory.
  explicit Attempts(const Options& options,
                    Attempt first = {},
                    const char* done = "The problem is solved")
      : options_(options), now_(std::move(first)), done_(done) {}

  const Attempt& now() const { return now_; }
  bool is_first() const { return is_first_; }
  // True if the attempt is one by all devices of cuda_devices.
  bool by_several() const {
    return !options_.cuda_devices.empty() && now_.why_one.empty();
  }
  // After an attempt: true if another one follows. One that has begun to run is
  // logged.
  bool Next(const Outcome& outcome);

 private:
  const Options& options_;
  Attempt now_;
  const char* const done_;
  bool is_first_ = true;
  // A device was left that may do with less memory.
  bool lacks_room_ = false;
};

// Makes attempts until one succeeds or nothing is left to try. work(attempt)
// returns an Outcome. The result is the last one's.
template <typename Work>
Outcome TryEach(Attempts* attempts, const Work& work) {
  while (true) {
    Outcome outcome = work(attempts->now());
    if (!attempts->Next(outcome)) {
      return outcome;
    }
  }
}

}  // namespace ceres_ext

#endif  // CERES_EXT_PLAN_ATTEMPTS_H_
