// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The rates of a real device: plausible, the same again, as CUDA says, and
// measured in less than 0.3 s.

#include "cuda_kernels/machine/cuda_rates.h"

#include <chrono>
#include <cstdio>
#include <memory>

#include "cuda_kernels/machine/cuda_context.h"
#include "cuda_kernels/machine/cuda_process.h"
#include "gtest/gtest.h"
#include "tests/kernels/cuda_test_util.h"

namespace ceres_ext::kernels {
namespace {

// The factor between rungs (OnRungs).
constexpr double kRung = 1.4142135623730951;

class CudaRatesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (NumCudaDevices(nullptr) == 0) {
      GTEST_SKIP() << "skipped: no CUDA device";
    }
    if (IsUnderTool()) {
      GTEST_SKIP() << "skipped: a tool runs the test";
    }
    ASSERT_OK(CudaContext::Create({}, &context_));
  }
  MachineRates Measure() {
    MachineRates rates;
    const auto begin = std::chrono::steady_clock::now();
    const Status status = MeasureDeviceRates(context_.get(), &rates);
    seconds_ =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin)
            .count();
    EXPECT_TRUE(status.ok()) << status.message;
    std::printf(
        "%s: copy %.4g GB/s, launch %.3g us, float %.4g, double %.4g e12 "
        "products/s, %.3g s\n",
        context_->device_name().c_str(),
        1e-9 * rates.bytes_per_second,
        1e6 * rates.launch_seconds,
        1e-12 * rates.float_fmas_per_second,
        1e-12 * rates.double_fmas_per_second,
        seconds_);
    return rates;
  }

  std::unique_ptr<CudaContext> context_;
  double seconds_ = 0.0;
};

TEST_F(CudaRatesTest, ArePlausible) {
  const MachineRates rates = Measure();
  EXPECT_LT(seconds_, 0.3);
  // From a Jetson Nano to some times a B200.
  EXPECT_GT(rates.bytes_per_second, 1e10);
  EXPECT_LT(rates.bytes_per_second, 4e13);
  EXPECT_GT(rates.launch_seconds, 3e-7);
  EXPECT_LT(rates.launch_seconds, 1e-4);
  // 128 units at most, at 3 GHz at most; a tenth at a fifth of the clock.
  const double most = context_->num_multiprocessors() * 128 * 3e9;
  EXPECT_GT(rates.float_fmas_per_second, 0.05 * most);
  EXPECT_LT(rates.float_fmas_per_second, most);
  // CUDA says 2 of an H200 and 64 of most cards for displays.
  const double ratio = FloatToDouble(rates) / FloatToDoubleRatio(0);
  EXPECT_GT(ratio, 0.7);
  EXPECT_LT(ratio, 1.4);
}

// Two measurements are within half a rung, unless the device is shared; those
// of launches, which are the host's too, within one.
TEST_F(CudaRatesTest, AreTheSameAgain) {
  const MachineRates first = Measure();
  const MachineRates again = Measure();
  const auto expect_near = [](double a, double b, const char* what) {
    EXPECT_GT(a / b, 0.85) << what;
    EXPECT_LT(a / b, 1.18) << what;
  };
  expect_near(first.bytes_per_second, again.bytes_per_second, "copy");
  const double launches = first.launch_seconds / again.launch_seconds;
  EXPECT_GT(launches, 1.0 / kRung);
  EXPECT_LT(launches, kRung);
  expect_near(
      first.float_fmas_per_second, again.float_fmas_per_second, "float");
  expect_near(
      first.double_fmas_per_second, again.double_fmas_per_second, "double");
}

// The machine of the constants chooses as they do.
TEST_F(CudaRatesTest, AnH200HasTheRatesOfTheConstants) {
  if (context_->device_name() != "NVIDIA H200") {
    GTEST_SKIP() << "skipped: no NVIDIA H200";
  }
  const MachineRates rates = OnRungs(Measure());
  const MachineRates of;
  EXPECT_EQ(rates.bytes_per_second, of.bytes_per_second);
  // The host's part of a launch differs from machine to machine.
  EXPECT_GT(rates.launch_seconds, of.launch_seconds / (1.01 * kRung));
  EXPECT_LT(rates.launch_seconds, of.launch_seconds * (1.01 * kRung));
  EXPECT_EQ(rates.float_fmas_per_second, of.float_fmas_per_second);
  EXPECT_EQ(rates.double_fmas_per_second, of.double_fmas_per_second);
}

// A limit below what is taken: an error, and nothing is changed.
TEST_F(CudaRatesTest, NeedsRoom) {
  CudaContextOptions options;
  options.memory_limit = kBytesForRates / 2;
  ASSERT_OK(CudaContext::Create(options, &context_));
  MachineRates rates;
  rates.launch_seconds = 7.0;
  EXPECT_EQ(MeasureDeviceRates(context_.get(), &rates).code,
            StatusCode::kOutOfMemory);
  EXPECT_EQ(rates.launch_seconds, 7.0);
}

}  // namespace
}  // namespace ceres_ext::kernels
