// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Choices by the rates of made-up cards and hosts.

#include "cuda_kernels/base/machine_rates.h"

#include <cmath>
#include <cstdint>
#include <vector>

#include "ceres_ext/plan/device_choice.h"
#include "gtest/gtest.h"

namespace ceres_ext {
namespace {

using kernels::MachineRates;
using kernels::OnRungs;

// A card of so many multiprocessors of 128 float units at 2 GHz.
MachineRates Card(int num_multiprocessors, int ratio, double bytes_per_second) {
  MachineRates rates;
  rates.float_fmas_per_second = num_multiprocessors * 128 * 2e9;
  rates.double_fmas_per_second = rates.float_fmas_per_second / ratio;
  rates.bytes_per_second = bytes_per_second;
  return rates;
}

SolveWork Work(int64_t n, int num_threads, bool recomputed) {
  SolveWork work;
  work.num_values = 24 * n;
  work.num_steps = 10;
  work.num_pcg_iterations = 20;
  work.num_threads = num_threads;
  work.recomputed = recomputed;
  return work;
}

void ExpectSame(const MachineRates& a, const MachineRates& b) {
  EXPECT_EQ(a.bytes_per_second, b.bytes_per_second);
  EXPECT_EQ(a.launch_seconds, b.launch_seconds);
  EXPECT_EQ(a.float_fmas_per_second, b.float_fmas_per_second);
  EXPECT_EQ(a.double_fmas_per_second, b.double_fmas_per_second);
  EXPECT_EQ(a.host_values_per_second, b.host_values_per_second);
}

// A rate may be wrong by half a rung, a factor of 2^(1/4) = 1.19. A ratio of
// two may be wrong by that too, so each of them by its root, 1.09.
TEST(MachineRates, MeasurementsOfTheSameMachineAreOnOneRung) {
  const MachineRates of;
  ExpectSame(OnRungs(of), of);
  for (const double noise : {0.92, 0.97, 1.03, 1.08}) {
    MachineRates measured;
    measured.bytes_per_second *= noise;
    measured.launch_seconds /= noise;
    measured.float_fmas_per_second *= noise;
    measured.double_fmas_per_second /= noise;
    measured.host_values_per_second *= noise;
    // More than any solve below asks for.
    measured.host_bytes_per_second = 1e13;
    ExpectSame(OnRungs(measured), of);
    // So an H200 chooses as the constants do.
    for (const int threads : {1, 2, 16, 64}) {
      for (int64_t n = 100; n < 100000000; n *= 2) {
        const SolveWork work = Work(n, threads, n % 3 == 0);
        EXPECT_EQ(WhyHost(work, {false, OnRungs(measured)}),
                  WhyHost(work, {false, of}));
      }
    }
    EXPECT_TRUE(RecomputedIsFaster(PRECISION_DOUBLE, OnRungs(measured)));
  }
  EXPECT_EQ(OnRungs(of).host_bytes_per_second, 0.0);
}

TEST(MachineRates, RatiosOfCardsAreRungs) {
  for (const int ratio : {2, 4, 8, 32, 64}) {
    for (const int num : {1, 2, 14, 28, 46, 80, 132}) {
      const MachineRates rates = OnRungs(Card(num, ratio, 1e11 * num));
      EXPECT_NEAR(FloatToDouble(rates), ratio, 1e-12 * ratio);
      const MachineRates exact = Card(num, ratio, 1e11 * num);
      for (const double times :
           {rates.float_fmas_per_second / exact.float_fmas_per_second,
            rates.bytes_per_second / exact.bytes_per_second}) {
        EXPECT_GT(times, std::exp2(-0.2501));
        EXPECT_LT(times, std::exp2(0.2501));
      }
    }
  }
}

// From one multiprocessor to 80, with memory in proportion: each card is faster
// than the one before, more of its own sizes go to it, and there is one
// crossover.
TEST(MachineRates, LargerCardsTakeSmallerProblems) {
  for (const int ratio : {2, 32, 64}) {
    for (const bool recomputed : {false, true}) {
      double last_seconds = 1e300;
      int64_t last = INT64_MAX;
      for (const int num : {1, 2, 5, 10, 20, 40, 80}) {
        const DeviceState state = {false,
                                   OnRungs(Card(num, ratio, 1.2e10 * num))};
        int64_t crossover = INT64_MAX;
        for (int64_t n = 100; n < 100000000; n = n * 5 / 4) {
          const bool on_host = !WhyHost(Work(n, 16, recomputed), state).empty();
          if (!on_host && crossover == INT64_MAX) {
            crossover = n;
          }
          EXPECT_EQ(on_host, crossover == INT64_MAX) << num << ", " << n;
        }
        EXPECT_LE(crossover, last) << num << " multiprocessors, 1:" << ratio;
        last = crossover;
        const double seconds =
            EstimateDeviceSeconds(Work(10000000, 16, recomputed), state);
        EXPECT_LT(seconds, last_seconds);
        last_seconds = seconds;
      }
    }
  }
  // One multiprocessor never beats 16 threads, 80 do.
  const SolveWork large = Work(10000000, 16, false);
  EXPECT_NE(WhyHost(large, {true, OnRungs(Card(1, 32, 1.2e10))}), "");
  EXPECT_EQ(WhyHost(large, {true, OnRungs(Card(80, 32, 1e12))}), "");
}

// Double at 1/32 and 1/64 stores what it can read faster than compute.
TEST(MachineRates, JacobianByMemoryAndArithmetic) {
  // As many bytes for a fused product as an H200: 0.13.
  const auto recomputes =
      [](int num, int ratio, double bytes, PrecisionType precision) {
        return RecomputedIsFaster(precision, OnRungs(Card(num, ratio, bytes)));
      };
  for (const int num : {1, 10, 80}) {
    const double bytes = num * 3.2e10;
    EXPECT_TRUE(recomputes(num, 2, bytes, PRECISION_DOUBLE));
    EXPECT_FALSE(recomputes(num, 32, bytes, PRECISION_DOUBLE));
    EXPECT_FALSE(recomputes(num, 64, bytes, PRECISION_DOUBLE));
    EXPECT_TRUE(recomputes(num, 64, bytes, PRECISION_MIXED));
  }
  // A card with a sixteenth of the memory's rate computes even at 1/32.
  EXPECT_TRUE(recomputes(80, 32, 80 * 2e9, PRECISION_DOUBLE));
}

TEST(MachineRates, TheHostCountsToo) {
  const SolveWork work = Work(1000000, 16, false);
  MachineRates slow;
  slow.host_values_per_second /= 4.0;
  // Steps of threads take the same.
  const double of_steps = 10 * 2.5e-4 * 4.0;
  EXPECT_NEAR(EstimateHostSeconds(work, slow) - of_steps,
              4.0 * (EstimateHostSeconds(work, {}) - of_steps),
              1e-12);
  // 16 threads read 192 MB in a pass, 30 passes a step.
  MachineRates narrow;
  narrow.host_bytes_per_second = 1e10;
  EXPECT_NEAR(
      EstimateHostSeconds(work, narrow), of_steps + 10 * 30 * 0.0192, 1e-12);
  // Rates must not choose how the host solves: its bits would depend on them.
  for (const MachineRates& rates : {slow, narrow, Card(1, 64, 1e10)}) {
    EXPECT_EQ(EstimateExactStepCost(work, rates, false).step,
              EstimateExactStepCost(work, {}, false).step);
    EXPECT_EQ(EstimateCoarseCost(work, false, rates, false).setup,
              EstimateCoarseCost(work, false, {}, false).setup);
  }
}

// An exact step costs more iterations where double is slow or launches are
// fast.
TEST(MachineRates, ExactStepsByTheDevice) {
  SolveWork work = Work(30000, 16, false);
  work.num_factorized_columns = 2000;
  work.num_coupling_products = 8.5e6;
  const double cost = EstimateExactStepCost(work, {}, true).step;
  EXPECT_GT(EstimateExactStepCost(work, Card(80, 64, 1e12), true).step,
            2.0 * cost);
  MachineRates slow_launches;
  slow_launches.launch_seconds *= 4.0;
  EXPECT_LT(EstimateExactStepCost(work, slow_launches, true).step, cost);
}

}  // namespace
}  // namespace ceres_ext
