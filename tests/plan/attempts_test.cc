// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The order of attempts: how one has ended against the part that the next one
// leaves.

#include "ceres_ext/plan/attempts.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ceres_ext {
namespace {

using kernels::Status;
using kernels::StatusCode;
using ::testing::ElementsAre;
using Part = AttemptPart;

Outcome On(bool on_device, StatusCode code, Outcome::Stage stage) {
  Outcome outcome(Status(code, "Something failed."), stage);
  outcome.on_device = on_device;
  outcome.in_float = on_device;
  return outcome;
}

Part Left(const Outcome& outcome, const Options& options = {}) {
  return PartToLeave(options, {}, outcome);
}

TEST(PartToLeave, IsWhatHasFailed) {
  EXPECT_EQ(Left(Outcome()), nullptr);
  for (const auto stage : {Outcome::kSetup, Outcome::kRun}) {
    EXPECT_EQ(Left(On(true, StatusCode::kDeviceError, stage)),
              &Attempt::why_host);
    EXPECT_EQ(Left(On(true, StatusCode::kOutOfMemory, stage)),
              &Attempt::why_host);
    for (const auto code :
         {StatusCode::kOutOfMemory, StatusCode::kNumericalFailure}) {
      EXPECT_EQ(Left(On(false, code, stage)), nullptr);
    }
  }
  // A value that is not finite may be so in float, not on a device alone.
  Outcome outcome = On(true, StatusCode::kNumericalFailure, Outcome::kRun);
  EXPECT_EQ(Left(outcome), &Attempt::why_double);
  outcome.in_float = false;
  EXPECT_EQ(Left(outcome), nullptr);
  // Exact steps go before the device does, for want of memory alone.
  for (const bool on_device : {true, false}) {
    outcome = On(on_device, StatusCode::kOutOfMemory, Outcome::kSetup);
    outcome.is_exact = true;
    EXPECT_EQ(Left(outcome), &Attempt::why_pcg);
  }
  outcome = On(true, StatusCode::kDeviceError, Outcome::kSetup);
  outcome.is_exact = true;
  EXPECT_EQ(Left(outcome), &Attempt::why_host);
}

TEST(PartToLeave, IsNoneWhereNothingMayFollow) {
  Options refuses;
  refuses.fallback = FALLBACK_REFUSE;
  Outcome outcome = On(true, StatusCode::kDeviceError, Outcome::kRun);
  EXPECT_EQ(Left(outcome, refuses), nullptr);
  outcome.may_repeat = false;
  EXPECT_EQ(Left(outcome), nullptr);
  // Decide knows whether the set-up of a device may be left.
  outcome = On(true, StatusCode::kDeviceError, Outcome::kSetup);
  EXPECT_EQ(Left(outcome, refuses), &Attempt::why_host);
  // Nor is Ceres a fallback for what it alone has.
  EXPECT_EQ(Left({Outcome::kDeclined, "it has bounds"}, refuses), nullptr);
  for (const auto stage : {Outcome::kNeedsProblem, Outcome::kDeclined}) {
    EXPECT_EQ(Left({stage, "it has bounds"}), &Attempt::why_problem);
    Attempt attempt;
    attempt.why_problem = "it has bounds";
    EXPECT_EQ(PartToLeave({}, attempt, {stage, "it has bounds"}), nullptr);
  }
  EXPECT_EQ(Left({Outcome::kNeedsProblem, "it has bounds"}, refuses),
            &Attempt::why_problem);
  // One device solves what several can't start, but not what they began.
  outcome = Outcome::NotBySeveral("it names one");
  EXPECT_EQ(Left(outcome, refuses), &Attempt::why_one);
  outcome.stage = Outcome::kRun;
  EXPECT_EQ(Left(outcome, refuses), nullptr);
  EXPECT_EQ(Left(outcome), &Attempt::why_one);
}

TEST(TryEach, GoesFromSeveralDevicesToTheHost) {
  Options options;
  options.cuda_devices = "2+1";
  options.device = DEVICE_CUDA;
  options.precision = PRECISION_MIXED;
  Attempts attempts(options);
  std::vector<std::string> tried;
  const Outcome outcome = TryEach(&attempts, [&](const Attempt& attempt) {
    const Options applied = attempt.Apply(options);
    EXPECT_EQ(attempts.is_first(), tried.empty());
    EXPECT_EQ(applied.cuda_devices, "");
    EXPECT_EQ(applied.cuda_device, 2);
    if (attempts.by_several()) {
      tried.emplace_back("several");
      return Outcome::NotBySeveral("there is no CUDA device 2");
    }
    if (applied.device == DEVICE_HOST) {
      tried.emplace_back("host");
      return Outcome();
    }
    const bool mixed = applied.precision == PRECISION_MIXED;
    tried.emplace_back(mixed ? "mixed" : "double");
    return On(true,
              mixed ? StatusCode::kNumericalFailure : StatusCode::kDeviceError,
              Outcome::kRun);
  });
  EXPECT_TRUE(outcome.status.ok());
  EXPECT_THAT(tried, ElementsAre("several", "mixed", "double", "host"));
  EXPECT_EQ(attempts.now().why_one, "there is no CUDA device 2");
  EXPECT_EQ(attempts.now().why_double, "something failed");
  EXPECT_EQ(attempts.now().why_host, "the device failed: something failed");
}

TEST(TryEach, ADeviceWithoutRoomForAFactorMayHaveSomeForPcg) {
  const Options options;
  Attempts attempts(options);
  std::vector<std::string> tried;
  const Outcome outcome = TryEach(&attempts, [&](const Attempt& attempt) {
    const bool on_device = attempt.why_host.empty();
    const bool by_pcg = !attempt.why_pcg.empty();
    tried.push_back(std::string(by_pcg ? "PCG" : "exact") +
                    (on_device ? " on a device" : " on the host"));
    Outcome end =
        On(on_device,
           on_device ? StatusCode::kUnsupported : StatusCode::kOutOfMemory,
           Outcome::kSetup);
    end.is_exact = !by_pcg && !on_device;  // The host first.
    return end;
  });
  EXPECT_EQ(outcome.status.code, StatusCode::kOutOfMemory);
  EXPECT_THAT(tried,
              ElementsAre("exact on a device",
                          "exact on the host",
                          "PCG on a device",
                          "PCG on the host"));
}

}  // namespace
}  // namespace ceres_ext
