// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The rule of DEVICE_AUTO: what is counted, and what decides.

#include "ceres_ext/plan/device_choice.h"

#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "ceres/problem_impl.h"
#include "ceres/program.h"
#include "ceres_ext/under_ceres/program_rows.h"
#include "cuda_kernels/machine/cuda_process.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/bal_test_problem.h"

namespace ceres_ext {
namespace {

using ::testing::HasSubstr;

// A solve of so many observations of a camera of nine columns.
SolveWork Observations(int64_t n, int num_threads) {
  SolveWork work;
  work.num_values = 24 * n;
  work.num_steps = 10;
  work.num_pcg_iterations = 20;
  work.num_threads = num_threads;
  return work;
}

const DeviceState kCold = {false, {}};
const DeviceState kWarm = {true, {}};

TEST(DeviceChoice, SmallSolvesDoNotPayForAContext) {
  EXPECT_EQ(WhyHost(Observations(1000, 2), kCold),
            "device = AUTO estimates about 0.008 s of work, and CUDA takes 0.2 "
            "s to start");
  EXPECT_EQ(WhyHost(Observations(10, 2), kCold),
            "device = AUTO estimates about 0.004 s of work, and CUDA takes 0.2 "
            "s to start");
  EXPECT_EQ(WhyHost(Observations(1000000, 2), kCold), "");
  // With an existing context, less is enough.
  EXPECT_NE(WhyHost(Observations(30000, 2), kCold), "");
  EXPECT_EQ(WhyHost(Observations(30000, 2), kWarm), "");
  EXPECT_THAT(WhyHost(Observations(1000, 2), kWarm),
              HasSubstr("about 0.008 s on the host, about 0.01 s on a device"));
}

// More work never goes back to the host, and more threads keep more there.
TEST(DeviceChoice, OneCrossover) {
  int64_t last = 0;
  for (const int num_threads : {1, 2, 16, 64}) {
    int64_t crossover = 0;
    for (int64_t n = 100; n < 100000000; n = n * 5 / 4) {
      const bool on_host =
          !WhyHost(Observations(n, num_threads), kCold).empty();
      if (!on_host && crossover == 0) {
        crossover = n;
      }
      EXPECT_EQ(on_host, crossover == 0) << n;
    }
    EXPECT_GT(crossover, last);
    last = crossover;
  }
}

TEST(DeviceChoice, SlowDoubleCountsWhereArithmeticDecides) {
  SolveWork work = Observations(10000000, 64);
  work.recomputed = true;
  const DeviceState slow = {true, kernels::RatesOfRatio(64)};
  EXPECT_GT(EstimateDeviceSeconds(work, slow),
            5.0 * EstimateDeviceSeconds(work, kWarm));
  // Unknown is taken for fast.
  EXPECT_EQ(EstimateDeviceSeconds(work, {true, kernels::RatesOfRatio(0)}),
            EstimateDeviceSeconds(work, kWarm));
  work.mixed = true;
  EXPECT_EQ(EstimateDeviceSeconds(work, slow),
            EstimateDeviceSeconds(work, kWarm));
  // Stored blocks are read, which takes longer than what is done with them.
  work.mixed = false;
  work.recomputed = false;
  EXPECT_LT(EstimateDeviceSeconds(work, slow),
            1.5 * EstimateDeviceSeconds(work, kWarm));
  work.recomputed = true;
  work.num_threads = 100;
  EXPECT_EQ(WhyHost(work, kWarm), "");
  EXPECT_THAT(WhyHost(work, slow),
              HasSubstr("on a device with double at 1/64 of the rate"));
}

// Threads of the host evaluate rows of Ceres whichever machine solves, at the
// start and in each step; a device is also sent them.
TEST(DeviceChoice, RowsOfCeresCostMore) {
  SolveWork work = Observations(1000000, 2);
  const double device = EstimateDeviceSeconds(work, kWarm);
  const double host = EstimateHostSeconds(work, {});
  work.num_host_values = work.num_values;
  const double evaluation = 11 * 24e6 * 2.4e-8 / std::pow(2.0, 0.8);
  EXPECT_NEAR(EstimateHostSeconds(work, {}) - host, evaluation, 1e-9);
  EXPECT_NEAR(EstimateDeviceSeconds(work, kWarm) - device,
              evaluation + 10 * 24e6 * 8e-10,
              1e-9);
}

// Rows of any shape take longer on the host: 15,754 directions of three
// residuals and seven columns by users' functors are worth a device.
TEST(DeviceChoice, RowsOfAnyShapeCostMore) {
  SolveWork work = Observations(0, 2);
  work.num_values = 21 * 15754;
  const double without = EstimateHostSeconds(work, {});
  EXPECT_NE(WhyHost(work, kCold), "");
  work.num_general_rows = 15754;
  EXPECT_NEAR(EstimateHostSeconds(work, {}) - without,
              10 * 30 * 1.3e-7 * 15754 / std::pow(2.0, 0.8),
              1e-9);
  work.num_host_values = work.num_values;
  EXPECT_EQ(WhyHost(work, kCold), "");
}

// Directions to points: S of 1,839 columns has few values, and a sparse factor
// of it is what an exact step costs, not n^3 / 3.
TEST(DeviceChoice, ExactStepsOfASparseMatrixAreCheap) {
  SolveWork work = Observations(0, 1);
  work.num_values = 21 * 2155;
  work.num_general_rows = 2155;
  work.num_factorized_columns = 1839;
  work.has_pairs = true;
  work.num_coupling_products = 16 * 2155;
  const double sparse =
      EstimateExactStepCost(work, {}, /*on_device=*/false).step;
  EXPECT_LT(sparse, 20.0);
  // Every pair of columns is coupled.
  work.num_coupling_products = 1839.0 * 1839.0;
  EXPECT_GT(EstimateExactStepCost(work, {}, false).step, 10.0 * sparse);
}

// A device is set up for exact steps once, where the host lists pairs.
TEST(DeviceChoice, SetupOfExactStepsCounts) {
  SolveWork work = Observations(30000, 16);
  work.num_factorized_columns = 440;
  work.num_coupling_products = 8.5e6;
  const double without = EstimateDeviceSeconds(work, kWarm);
  work.has_pairs = true;
  EXPECT_NEAR(EstimateDeviceSeconds(work, kWarm) - without,
              1e-8 * static_cast<double>(work.num_values),
              1e-9);
}

// A graph of 10,000 poses on a sphere, half of them eliminated: a device with
// cuDSS took 0.07 to 0.1 s to set up exact steps, 8.5 ms each, and 16 threads
// of the host 0.14 s each, on one machine. A dense factor takes 0.2 s.
TEST(DeviceChoice, SparseFactorsOfADeviceCount) {
  SolveWork work = Observations(0, 8);
  work.num_values = 72 * 19899;
  work.num_general_rows = 19899;
  work.num_factorized_columns = 30000;
  work.num_coupling_products = 81.0 * 60000.0;
  work.has_pairs = true;
  work.factor = {{6e6, 6e9}, 2000.0, 10000.0};
  const double dense = EstimateDeviceSeconds(work, kWarm);
  EXPECT_GT(dense, 2.0);
  work.may_be_sparse = true;
  const double sparse = EstimateDeviceSeconds(work, kWarm);
  EXPECT_GT(sparse, 0.1);
  EXPECT_LT(sparse, 0.3);
  // By exact steps and what they take once.
  const ExactStepCost cost =
      EstimateExactStepCost(work, {}, /*on_device=*/true);
  EXPECT_GT(cost.step, 100.0);
  EXPECT_LT(cost.step, 200.0);
  EXPECT_GT(cost.setup, 1500.0);
  EXPECT_LT(cost.setup, 4000.0);
  // A factor with as many operations as a dense one is not sparse.
  work.factor.sparse = {4.5e8, 9e12};
  EXPECT_EQ(EstimateDeviceSeconds(work, kWarm), dense);
}

// A problem that is too large for a device stays there while its arrays pass
// over the bus sooner than the host solves: 24 values of eight bytes each an
// observation, all of them on the host, where one thread takes 1e-9 s a value.
TEST(DeviceChoice, ArraysStayOnTheHostWhileThatIsFaster) {
  SolveWork work = Observations(100000000, 1);
  const int64_t all = 8 * work.num_values;
  EXPECT_GT(MostPageLockedBytes(work, kWarm), all);
  work.num_threads = 64;
  const int64_t part = MostPageLockedBytes(work, kWarm);
  EXPECT_LT(part, all / 2);
  EXPECT_GT(part, 0);
  // Recomputed Jacobians leave them alone in iterations of PCG.
  work.recomputed = true;
  EXPECT_GT(MostPageLockedBytes(work, kWarm), 2 * part);
  // Nothing where the host is faster.
  EXPECT_EQ(MostPageLockedBytes(Observations(10, 1), kWarm), 0);
}

// Measured with one thread or two (plan/device_choice.cc).
TEST(DeviceChoice, StocksNormalEquationsAreAsFastForFewRows) {
  struct Row {
    NormalWork work;
    bool stock;
  };
  const double kUnknown = -1.0;
  for (const Row& row : {// Chains of 2, 10, 100 and 200 blocks of 3 columns.
                         Row{{false, 3, 9, 6, kUnknown, 1}, true},
                         Row{{false, 19, 57, 30, kUnknown, 1}, true},
                         Row{{false, 2099, 6297, 300, 2250, 1}, true},
                         Row{{false, 4199, 12597, 600, 4300, 1}, true},
                         Row{{true, 209, 627, 30, kUnknown, 1}, true},
                         Row{{true, 419, 1257, 60, kUnknown, 1}, false},
                         Row{{true, 99, 297, 150, kUnknown, 1}, false},
                         // Rotations and poses of a graph.
                         Row{{false, 11959, 35877, 2997, 5e5, 2}, false},
                         Row{{false, 4949, 29694, 14994, 4.5e5, 1}, false},
                         Row{{false, 4949, 29694, 14994, 4.5e5, 16}, false}}) {
    EXPECT_EQ(StockNormalIsAsFast(row.work), row.stock)
        << row.work.num_rows << " rows, " << row.work.num_columns << " columns";
  }
}

TEST(DeviceChoice, WorkIsCounted) {
  // Below, at and beyond the rows that are all looked at.
  for (const int num_points : {40, 1024, 5000}) {
    BalTestProblem bal = MakeBalTestProblem(8, num_points, 4, 9);
    auto problem = BuildProblem(&bal, Derivatives::kAnalytic);
    const auto program = [&problem] {
      std::vector<double*> removed;
      double fixed_cost = 0.0;
      std::string error;
      return problem->mutable_impl()->mutable_program()->CreateReducedProgram(
          &removed, &fixed_cost, &error);
    };
    ceres::Solver::Options options = TestOptions(&bal, 3);
    Options ext_options;
    const auto estimate = [&] {
      const auto reduced = program();
      return EstimateWork(ProgramRows(*reduced), options, ext_options);
    };
    SolveWork work = estimate();
    // The last stride of rows may be short.
    EXPECT_NEAR(work.num_values, 24 * 4 * num_points, 24 * 5);
    EXPECT_EQ(work.num_host_values, 0);
    EXPECT_EQ(work.num_threads, 3);
    EXPECT_EQ(work.num_steps, 10);
    EXPECT_EQ(work.num_pcg_iterations, 20);
    EXPECT_FALSE(IsSmallFactorization(program()->NumEffectiveParameters()) &&
                 num_points > 40);

    ext_options.batch_evaluation = false;
    options.max_num_iterations = 3;
    options.max_linear_solver_iterations = 2;
    work = estimate();
    EXPECT_EQ(work.num_host_values, work.num_values);
    EXPECT_EQ(work.num_steps, 3);
    EXPECT_EQ(work.num_pcg_iterations, 2);

    for (int i = 0; i < bal.num_cameras(); ++i) {
      problem->SetParameterBlockConstant(bal.camera(i));
    }
    work = estimate();
    EXPECT_NEAR(work.num_values, 6 * 4 * num_points, 6 * 5);
  }
}

// At the rates of an H200 and of devices for displays; 0: not known.
TEST(DeviceChoice, RecomputedWhereArithmeticIsCheap) {
  const auto is_faster = [](PrecisionType precision, int ratio) {
    return RecomputedIsFaster(precision, kernels::RatesOfRatio(ratio));
  };
  EXPECT_TRUE(is_faster(PRECISION_DOUBLE, 0));
  EXPECT_TRUE(is_faster(PRECISION_DOUBLE, 2));
  EXPECT_FALSE(is_faster(PRECISION_DOUBLE, 32));
  EXPECT_FALSE(is_faster(PRECISION_DOUBLE, 64));
  EXPECT_TRUE(is_faster(PRECISION_MIXED, 64));
}

// A process that has no driver has no context and knows no rates, and asking
// changes nothing. (On a GPU the process may be linked to start one.)
TEST(CudaProcess, WithoutADriver) {
  EXPECT_FALSE(kernels::HasRuntimeContext(1000));
  EXPECT_EQ(kernels::FloatToDoubleRatio(1000), 0);
  EXPECT_EQ(kernels::DriverDeviceName(1000), "");
  EXPECT_FALSE(kernels::HasRuntimeContext(0));
}

// The result of IsUnderTool in a child that has called prepare(), 0 or 1.
template <typename Prepare>
int FoundInChild(Prepare&& prepare) {
  const pid_t child = fork();
  if (child == 0) {
    prepare();
    _exit(kernels::IsUnderTool() ? 1 : 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(CudaProcess, ToolsAreFound) {
  // Sanitizers and debuggers of this process.
  if (!kernels::IsUnderTool()) {
    EXPECT_EQ(FoundInChild([] {}), 0);
  }
  EXPECT_EQ(FoundInChild([] { setenv("CUDA_INJECTION64_PATH", "x", 1); }), 1);
  EXPECT_EQ(FoundInChild([] { setenv("NV_TPS_LAUNCH_TOKEN", "", 1); }), 1);
  const int found = FoundInChild([] {
    if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) {
      _exit(2);  // Not allowed here.
    }
  });
  EXPECT_TRUE(found == 1 || found == 2) << found;
}

}  // namespace
}  // namespace ceres_ext
