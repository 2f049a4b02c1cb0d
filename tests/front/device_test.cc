// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Whole solves on a CUDA device against the same solves on the host. Also built
// with the device emulated (tests/kernels/emulation), which has neither streams
// nor graphs and supports one thread.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ceres/ceres.h"
#include "ceres/manifold.h"
#include "ceres/product_manifold.h"
#include "ceres_ext/bal_cost_functions.h"
#include "ceres_ext/plan/device_choice.h"
#include "ceres_ext/plan/kept_rates.h"
#include "ceres_ext/solve.h"
#include "cuda_kernels/machine/cuda_process.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/bal_test_problem.h"
#include "tests/common/has_device.h"
#include "tests/common/own_loss.h"
#include "tests/common/own_manifold.h"
#include "tests/common/state_of_iterations.h"

#ifdef CERES_EXT_WITH_CUDA
#include <cuda_runtime.h>

#include <cstdint>

#include "cuda_kernels/machine/cuda_context.h"
#endif

namespace ceres_ext {
namespace {

using ::testing::HasSubstr;

#define SKIP_WITHOUT_DEVICE()                  \
  if (!HasDevice()) {                          \
    GTEST_SKIP() << "skipped: no CUDA device"; \
  }

struct Result {
  Summary summary;
  std::vector<double> parameters;
};

template <typename Modify>
Result SolveModified(const BalTestProblem& start,
                     const Options& ext_options,
                     bool use_manifold,
                     Modify&& modify,
                     Derivatives derivatives = Derivatives::kAnalytic) {
  BalTestProblem bal = start;
  auto problem = BuildProblem(&bal, derivatives, use_manifold);
  ceres::Solver::Options options = TestOptions(&bal, 2);
  modify(&bal, problem.get(), &options);
  Result result;
  Solve(options, ext_options, problem.get(), &result.summary);
  result.parameters = bal.Values();
  return result;
}

const auto kUnchanged =
    [](BalTestProblem*, ceres::Problem*, ceres::Solver::Options*) {};

// As long as PCG takes as many iterations, costs agree to 1e-9 in double: the
// two machines differ in the order of sums and in fused products alone.
void ExpectSameSteps(const Summary& device,
                     const Summary& host,
                     double tolerance) {
  const size_t n = std::min(device.iterations.size(), host.iterations.size());
  size_t compared = 0;
  for (; compared < n; ++compared) {
    const auto& d = device.iterations[compared];
    const auto& h = host.iterations[compared];
    if (d.linear_solver_iterations != h.linear_solver_iterations) {
      break;
    }
    EXPECT_NEAR(d.cost, h.cost, tolerance * h.cost) << "iteration " << compared;
    EXPECT_EQ(d.step_is_successful, h.step_is_successful)
        << "iteration " << compared;
  }
  EXPECT_GE(compared, 3u);
  EXPECT_NEAR(device.final_cost, host.final_cost, 1e-6 * host.final_cost);
}

struct Case {
  const char* name;
  int camera_size;
  ceres::PreconditionerType preconditioner;
  JacobianType jacobian;
  bool use_manifold = false;
  bool use_spse_initialization = false;
  ceres::LinearSolverType linear_solver = ceres::ITERATIVE_SCHUR;
};

class DeviceAgainstHost : public ::testing::TestWithParam<Case> {};

TEST_P(DeviceAgainstHost, SameStepsAndSameBits) {
  SKIP_WITHOUT_DEVICE();
  const Case& c = GetParam();
  const BalTestProblem start = MakeBalTestProblem(12, 400, 6, c.camera_size);
  const auto modify =
      [&c](BalTestProblem*, ceres::Problem*, ceres::Solver::Options* options) {
        options->linear_solver_type = c.linear_solver;
        options->preconditioner_type = c.preconditioner;
        options->use_spse_initialization = c.use_spse_initialization;
      };
  Options ext_options;
  ext_options.jacobian = c.jacobian;
  ext_options.device = DEVICE_HOST;
  const Result host = SolveModified(start, ext_options, c.use_manifold, modify);

  ext_options.device = DEVICE_CUDA;
  ext_options.fallback = FALLBACK_REFUSE;
  const Result device =
      SolveModified(start, ext_options, c.use_manifold, modify);
  ASSERT_EQ(device.summary.path, PATH_FULL) << device.summary.message;
  EXPECT_NE(device.summary.device.find("CUDA device 0"), std::string::npos);
  ExpectSameSteps(device.summary, host.summary, 1e-9);

  ext_options.precision = PRECISION_MIXED;
  const Result mixed =
      SolveModified(start, ext_options, c.use_manifold, modify);
  ASSERT_EQ(mixed.summary.path, PATH_FULL) << mixed.summary.message;
  EXPECT_NE(mixed.summary.method.find("mixed"), std::string::npos);
  EXPECT_LE(mixed.summary.final_cost, device.summary.final_cost * (1.0 + 1e-4));

  for (PrecisionType precision : {PRECISION_DOUBLE, PRECISION_MIXED}) {
    ext_options.precision = precision;
    const Result& first = precision == PRECISION_DOUBLE ? device : mixed;
    for (int run = 1; run < kNumRuns; ++run) {
      const Result again =
          SolveModified(start, ext_options, c.use_manifold, modify);
      ASSERT_EQ(again.parameters, first.parameters) << "run " << run;
    }
  }

  // Ceres evaluates, the device solves.
  if (c.jacobian == JACOBIAN_STORED) {
    ext_options.precision = PRECISION_DOUBLE;
    const Result rows = SolveModified(
        start, ext_options, c.use_manifold, modify, Derivatives::kAutodiff);
    ASSERT_EQ(rows.summary.path, PATH_FULL) << rows.summary.message;
    EXPECT_NE(rows.summary.device.find("CUDA device 0"), std::string::npos);
    ExpectSameSteps(rows.summary, host.summary, 1e-6);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cases,
    DeviceAgainstHost,
    ::testing::Values(
        Case{"Schur", 9, ceres::SCHUR_JACOBI, JACOBIAN_STORED},
        Case{"SchurJacobi", 9, ceres::JACOBI, JACOBIAN_STORED},
        Case{"SchurRecomputed", 9, ceres::SCHUR_JACOBI, JACOBIAN_RECOMPUTED},
        Case{"QuaternionManifoldRecomputed",
             10,
             ceres::SCHUR_JACOBI,
             JACOBIAN_RECOMPUTED,
             true},
        Case{"QuaternionManifold",
             10,
             ceres::SCHUR_JACOBI,
             JACOBIAN_STORED,
             true},
        Case{"Quaternion", 10, ceres::JACOBI, JACOBIAN_STORED},
        Case{"PowerSeries",
             9,
             ceres::SCHUR_POWER_SERIES_EXPANSION,
             JACOBIAN_STORED,
             false,
             true},
        Case{"PowerSeriesRecomputed",
             10,
             ceres::SCHUR_POWER_SERIES_EXPANSION,
             JACOBIAN_RECOMPUTED,
             true},
        Case{"SpseInitialization",
             9,
             ceres::SCHUR_JACOBI,
             JACOBIAN_RECOMPUTED,
             false,
             true},
        Case{"Normal",
             9,
             ceres::JACOBI,
             JACOBIAN_STORED,
             false,
             false,
             ceres::CGNR}),
    [](const auto& info) { return std::string(info.param.name); });

Options DeviceOptions() {
  Options options;
  options.device = DEVICE_CUDA;
  options.fallback = FALLBACK_REFUSE;
  return options;
}

template <typename Modify>
void CompareModified(Modify&& modify, int camera_size = 9) {
  const BalTestProblem start = MakeBalTestProblem(10, 300, 5, camera_size, 9);
  Options host_options;
  host_options.device = DEVICE_HOST;
  const Result host = SolveModified(start, host_options, false, modify);
  const Result device = SolveModified(start, DeviceOptions(), false, modify);
  ASSERT_EQ(device.summary.path, PATH_FULL) << device.summary.message;
  ExpectSameSteps(device.summary, host.summary, 1e-9);
}

TEST(Device, AGraphGivesTheSameBits) {
  SKIP_WITHOUT_DEVICE();
  const BalTestProblem start = MakeBalTestProblem(20, 4000, 5, 9);
  Options ext_options = DeviceOptions();
  for (JacobianType jacobian : {JACOBIAN_STORED, JACOBIAN_RECOMPUTED}) {
    ext_options.jacobian = jacobian;
    ext_options.cuda_graph = CUDA_GRAPH_OFF;
    const Result ahead = SolveModified(start, ext_options, false, kUnchanged);
    ext_options.cuda_graph = CUDA_GRAPH_ON;
    const Result graph = SolveModified(start, ext_options, false, kUnchanged);
    EXPECT_EQ(graph.summary.path, PATH_FULL) << graph.summary.message;
    EXPECT_EQ(graph.parameters, ahead.parameters);
  }
}

TEST(Device, ConstantBlocksAndSubsetManifolds) {
  SKIP_WITHOUT_DEVICE();
  CompareModified([](BalTestProblem* bal,
                     ceres::Problem* problem,
                     ceres::Solver::Options*) {
    problem->SetParameterBlockConstant(bal->camera(0));
    for (int j = 0; j < bal->num_points(); j += 7) {
      problem->SetParameterBlockConstant(bal->point(j));
    }
    for (int i = 1; i < bal->num_cameras(); ++i) {
      problem->SetManifold(bal->camera(i),
                           i % 2 == 0 ? new ceres::SubsetManifold(9, {6, 7, 8})
                                      : new ceres::SubsetManifold(9, {0, 8}));
    }
  });
}

// For cameras and points, in double and mixed precision. The default:
// recomputed, if the device gains by it and supports it.
TEST(Device, JacobianOfDefaultOptions) {
  SKIP_WITHOUT_DEVICE();
  const BalTestProblem start = MakeBalTestProblem(8, 60, 5, 9);
  const auto method = [&start](DeviceType device, auto&& modify) {
    Options ext_options;
    ext_options.device = device;
    ext_options.fallback = FALLBACK_REFUSE;
    const Result result = SolveModified(start, ext_options, false, modify);
    EXPECT_EQ(result.summary.path, PATH_FULL) << result.summary.message;
    return result.summary.method;
  };
  const char* const stored = "stored Jacobian (double)";
  const char* const recomputed =
      RecomputedIsFaster(PRECISION_DOUBLE, RatesOf(Options()))
          ? "recomputed Jacobian (double)"
          : stored;
  EXPECT_THAT(method(DEVICE_HOST, kUnchanged), HasSubstr(stored));
  EXPECT_THAT(method(DEVICE_CUDA, kUnchanged), HasSubstr(recomputed));
  EXPECT_THAT(method(DEVICE_CUDA,
                     [](BalTestProblem* bal,
                        ceres::Problem* problem,
                        ceres::Solver::Options*) {
                       problem->AddResidualBlock(
                           CreateBalReprojectionError(1.0, 2.0),
                           new ceres::TolerantLoss(4.0, 2.0),
                           bal->camera(0),
                           bal->point(0));
                     }),
              HasSubstr(stored));
  EXPECT_THAT(method(DEVICE_CUDA,
                     [](BalTestProblem* bal,
                        ceres::Problem* problem,
                        ceres::Solver::Options*) {
                       problem->SetManifold(bal->point(3),
                                            new ceres::SphereManifold<3>());
                     }),
              HasSubstr(stored));
  EXPECT_THAT(method(DEVICE_CUDA,
                     [](BalTestProblem* bal,
                        ceres::Problem* problem,
                        ceres::Solver::Options*) {
                       problem->SetManifold(bal->point(3),
                                            new ceres::SubsetManifold(3, {1}));
                       problem->AddResidualBlock(
                           CreateBalReprojectionError(1.0, 2.0),
                           new ceres::HuberLoss(1.0),
                           bal->camera(0),
                           bal->point(0));
                     }),
              HasSubstr(recomputed));
}

// With losses that differ by observation, constant blocks and held coordinates:
// the steps of stored blocks on the host.
TEST(Device, RecomputedWithLossesAndHeldCoordinates) {
  SKIP_WITHOUT_DEVICE();
  using namespace ceres;  // NOLINT: many of its losses.
  const auto modify = [](BalTestProblem* bal,
                         Problem* problem,
                         Solver::Options*) {
    std::vector<ResidualBlockId> ids;
    problem->GetResidualBlocks(&ids);
    const auto loss = [](size_t i) -> LossFunction* {
      switch (i % 7) {
        case 0:
          return new HuberLoss(1.0);
        case 1:
          return new SoftLOneLoss(1.5);
        case 2:
          return new CauchyLoss(2.0);
        case 3:
          return new ArctanLoss(4.0);
        case 4:
          return new TukeyLoss(50.0);
        case 5:
          return new ScaledLoss(nullptr, 0.5, TAKE_OWNERSHIP);
        default:
          return new ScaledLoss(new HuberLoss(2.0), 3.0, TAKE_OWNERSHIP);
      }
    };
    // Each third residual block again, some far off.
    for (size_t i = 0; i < ids.size(); i += 3) {
      std::vector<double*> blocks;
      problem->GetParameterBlocksForResidualBlock(ids[i], &blocks);
      const double x = 1.0 + static_cast<double>(i % 50);
      problem->AddResidualBlock(
          bal->camera_size == 9 ? CreateBalReprojectionError(x, 2.0)
                                : CreateBalReprojectionErrorQuaternion(x, 2.0),
          loss(i / 3),
          blocks);
    }
    problem->SetParameterBlockConstant(bal->camera(2));
    for (int j = 0; j < bal->num_points(); j += 7) {
      problem->SetParameterBlockConstant(bal->point(j));
      const std::vector<int> held =
          j % 2 == 0 ? std::vector<int>{1} : std::vector<int>{0, 2};
      problem->SetManifold(bal->point(j + 1), new SubsetManifold(3, held));
    }
  };
  for (const int camera_size : {9, 10}) {
    SCOPED_TRACE(camera_size);
    const BalTestProblem start = MakeBalTestProblem(10, 300, 5, camera_size, 9);
    const bool use_manifold = camera_size == 10;
    Options ext_options;
    ext_options.device = DEVICE_HOST;
    ext_options.jacobian = JACOBIAN_STORED;
    const Result stored =
        SolveModified(start, ext_options, use_manifold, modify);
    ext_options.jacobian = JACOBIAN_RECOMPUTED;
    const Result host = SolveModified(start, ext_options, use_manifold, modify);
    ASSERT_EQ(host.summary.path, PATH_FULL) << host.summary.path_reason;
    ExpectSameSteps(host.summary, stored.summary, 1e-9);

    ext_options = DeviceOptions();
    ext_options.jacobian = JACOBIAN_RECOMPUTED;
    const Result device =
        SolveModified(start, ext_options, use_manifold, modify);
    ASSERT_EQ(device.summary.path, PATH_FULL) << device.summary.message;
    EXPECT_THAT(device.summary.method,
                HasSubstr("recomputed Jacobian (double)"));
    ExpectSameSteps(device.summary, stored.summary, 1e-9);
    EXPECT_EQ(
        SolveModified(start, ext_options, use_manifold, modify).parameters,
        device.parameters);
    // Held values keep their bits.
    const size_t points = start.cameras.size();
    for (int j = 0; j < start.num_points(); j += 7) {
      for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(device.parameters[points + 3 * j + i],
                  start.points[3 * j + i]);
        EXPECT_EQ(device.parameters[points + 3 * (j + 1) + i] ==
                      start.points[3 * (j + 1) + i],
                  (i == 1) == (j % 2 == 0));
      }
    }

    ext_options.precision = PRECISION_MIXED;
    const Result mixed =
        SolveModified(start, ext_options, use_manifold, modify);
    ASSERT_EQ(mixed.summary.path, PATH_FULL) << mixed.summary.message;
    EXPECT_LE(mixed.summary.final_cost,
              device.summary.final_cost * (1.0 + 1e-4));
    EXPECT_EQ(
        SolveModified(start, ext_options, use_manifold, modify).parameters,
        mixed.parameters);
  }
}

TEST(Device, Manifolds) {
  SKIP_WITHOUT_DEVICE();
  bool of_points = true;
  const auto set_manifolds = [&of_points](BalTestProblem* bal,
                                          ceres::Problem* problem,
                                          ceres::Solver::Options*) {
    for (int i = 1; i < bal->num_cameras(); ++i) {
      problem->SetManifold(
          bal->camera(i),
          i == 3 ? static_cast<ceres::Manifold*>(new OwnManifold(9))
                 : new ceres::ProductManifold<ceres::EuclideanManifold<3>,
                                              ceres::SphereManifold<3>,
                                              ceres::EuclideanManifold<3>>());
    }
    for (int j = 0; of_points && j < bal->num_points(); j += 2) {
      problem->SetManifold(bal->point(j), new ceres::SphereManifold<3>());
    }
    if (of_points) {
      problem->SetManifold(bal->point(5), new OwnManifold(3));
    }
  };
  CompareModified(set_manifolds);
  const BalTestProblem start = MakeBalTestProblem(10, 300, 5, 9, 9);
  Options ext_options = DeviceOptions();
  const Result exact = SolveModified(start, ext_options, false, set_manifolds);
  ext_options.precision = PRECISION_MIXED;
  const Result mixed = SolveModified(start, ext_options, false, set_manifolds);
  ASSERT_EQ(mixed.summary.path, PATH_FULL) << mixed.summary.message;
  EXPECT_LE(mixed.summary.final_cost, exact.summary.final_cost * (1.0 + 1e-4));
  const Result again = SolveModified(start, ext_options, false, set_manifolds);
  EXPECT_EQ(again.parameters, mixed.parameters);

  // Cameras alone, with recomputed Jacobians.
  of_points = false;
  Options host_options;
  host_options.device = DEVICE_HOST;
  const Result host = SolveModified(start, host_options, false, set_manifolds);
  ext_options.precision = PRECISION_DOUBLE;
  ext_options.jacobian = JACOBIAN_RECOMPUTED;
  const Result recomputed =
      SolveModified(start, ext_options, false, set_manifolds);
  ASSERT_EQ(recomputed.summary.path, PATH_FULL) << recomputed.summary.message;
  ExpectSameSteps(recomputed.summary, host.summary, 1e-9);
}

TEST(Device, LossFunctions) {
  SKIP_WITHOUT_DEVICE();
  std::vector<ceres::LossFunction* (*)()> losses = {
      []() -> ceres::LossFunction* { return new ceres::TrivialLoss; },
      []() -> ceres::LossFunction* { return new ceres::HuberLoss(1.0); },
      []() -> ceres::LossFunction* { return new ceres::SoftLOneLoss(1.5); },
      []() -> ceres::LossFunction* { return new ceres::CauchyLoss(2.0); },
      []() -> ceres::LossFunction* { return new ceres::ArctanLoss(4.0); },
      []() -> ceres::LossFunction* {
        return new ceres::TolerantLoss(4.0, 2.0);
      },
      []() -> ceres::LossFunction* { return new ceres::TukeyLoss(50.0); },
      []() -> ceres::LossFunction* {
        return new ceres::ScaledLoss(nullptr, 0.5, ceres::TAKE_OWNERSHIP);
      },
      []() -> ceres::LossFunction* {
        return new ceres::ComposedLoss(
            new ceres::ArctanLoss(9.0),
            ceres::TAKE_OWNERSHIP,
            new ceres::ScaledLoss(
                new ceres::HuberLoss(2.0), 1.5, ceres::TAKE_OWNERSHIP),
            ceres::TAKE_OWNERSHIP);
      }};
  CompareModified([&losses](BalTestProblem*,
                            ceres::Problem* problem,
                            ceres::Solver::Options*) {
    // Every third residual block again, with a loss.
    std::vector<ceres::ResidualBlockId> ids;
    problem->GetResidualBlocks(&ids);
    for (size_t i = 0; i < ids.size(); i += 3) {
      std::vector<double*> blocks;
      problem->GetParameterBlocksForResidualBlock(ids[i], &blocks);
      problem->AddResidualBlock(CreateBalReprojectionError(1.0 + i % 50, 2.0),
                                losses[i / 3 % losses.size()](),
                                blocks);
    }
  });
}

// The existing residual blocks keep no loss; every third is added again, every
// other of those with the user-defined loss.
const auto kAddLosses =
    [](BalTestProblem*, ceres::Problem* problem, ceres::Solver::Options*) {
      auto* own = new OwnLoss;
      auto* cauchy = new ceres::CauchyLoss(2.0);
      std::vector<ceres::ResidualBlockId> ids;
      problem->GetResidualBlocks(&ids);
      for (size_t i = 0; i < ids.size(); i += 3) {
        std::vector<double*> blocks;
        problem->GetParameterBlocksForResidualBlock(ids[i], &blocks);
        ceres::LossFunction* loss = cauchy;
        if (i % 2 == 0) {
          loss = own;
        }
        problem->AddResidualBlock(
            CreateBalReprojectionError(1.0 + i % 50, 2.0), loss, blocks);
      }
    };

TEST(Device, LossFunctionsOfAUser) {
  SKIP_WITHOUT_DEVICE();
  CompareModified(kAddLosses);
  const BalTestProblem start = MakeBalTestProblem(10, 300, 5, 9);
  Options options = DeviceOptions();
  const Result device = SolveModified(start, options, false, kAddLosses);
  EXPECT_EQ(device.summary.num_host_losses, 500);
  EXPECT_NE(device.summary.host_loss_type.find("OwnLoss"), std::string::npos);
  EXPECT_EQ(SolveModified(start, options, false, kAddLosses).parameters,
            device.parameters);
  options.precision = PRECISION_MIXED;
  const Result mixed = SolveModified(start, options, false, kAddLosses);
  ASSERT_EQ(mixed.summary.path, PATH_FULL) << mixed.summary.message;
  EXPECT_LE(mixed.summary.final_cost, device.summary.final_cost * (1.0 + 1e-4));
}

// |r|^2 goes down and rho comes up in each evaluation: 32 bytes a row.
TEST(Device, OfAUsersLossOnlyRhoCrosses) {
  SKIP_WITHOUT_DEVICE();
  const BalTestProblem start = MakeBalTestProblem(20, 3000, 5, 9);
  int64_t bytes[2];
  int64_t num_evaluations[2];
  int64_t num_iterations[2];
  int64_t num_pcg_iterations[2];
  int64_t num_rows = 0;
  for (int i = 0; i < 2; ++i) {
    const Result result = SolveModified(
        start,
        DeviceOptions(),
        false,
        [&](BalTestProblem* bal, ceres::Problem* problem, auto* options) {
          kAddLosses(bal, problem, options);
          options->max_num_iterations = i == 0 ? 2 : 6;
          options->function_tolerance = 0.0;
          num_rows = problem->NumResidualBlocks();
        });
    const Summary& summary = result.summary;
    ASSERT_EQ(summary.path, PATH_FULL) << summary.message;
    bytes[i] = summary.transfer_bytes;
    num_evaluations[i] =
        summary.num_residual_evaluations + summary.num_jacobian_evaluations;
    num_iterations[i] = static_cast<int64_t>(summary.iterations.size());
    num_pcg_iterations[i] = summary.num_pcg_iterations;
  }
  const int64_t iterations = num_iterations[1] - num_iterations[0];
  ASSERT_GT(iterations, 2);
  const int64_t rho = 32 * num_rows * (num_evaluations[1] - num_evaluations[0]);
  EXPECT_GE(bytes[1] - bytes[0], rho);
  // As in OnlyScalarsCrossInAnIteration.
  EXPECT_LE(bytes[1] - bytes[0],
            rho + 1024 * iterations +
                256 * (num_pcg_iterations[1] - num_pcg_iterations[0] +
                       8 * iterations));
}

TEST(Device, WhatItCannotDoIsDoneOnTheHostOrRefused) {
  SKIP_WITHOUT_DEVICE();
  const auto use_inner_iterations =
      [](BalTestProblem*, ceres::Problem*, ceres::Solver::Options* options) {
        options->use_inner_iterations = true;
        options->max_num_iterations = 2;
      };
  const BalTestProblem start = MakeBalTestProblem(8, 60, 4, 9);
  const Result refused =
      SolveModified(start, DeviceOptions(), false, use_inner_iterations);
  EXPECT_EQ(refused.summary.termination_type, ceres::FAILURE);
  EXPECT_NE(refused.summary.message.find("nner iterations"), std::string::npos)
      << refused.summary.message;

  Options options = DeviceOptions();
  options.fallback = FALLBACK_TO_CERES;
  const Result on_host =
      SolveModified(start, options, false, use_inner_iterations);
  EXPECT_EQ(on_host.summary.path, PATH_FULL);
  EXPECT_NE(on_host.summary.device.find("nner iterations"), std::string::npos)
      << on_host.summary.device;

  options.cuda_memory_limit_bytes = 1000;
  const Result too_large = SolveModified(start, options, false, kUnchanged);
  EXPECT_EQ(too_large.summary.path, PATH_FULL);
  EXPECT_EQ(too_large.summary.device.find("host"), 0u);
  EXPECT_TRUE(too_large.summary.IsSolutionUsable());
}

// The point of the first observation 1e-9 before its camera's plane and 1e-3
// off its axis: df/dz is 5 f k2 r^4 x / z^2 = 7e39.
void PlaceBeyondFloat(BalTestProblem* bal) {
  double* camera = bal->camera(bal->camera_id[0]);
  const double* point = bal->point(bal->point_id[0]);
  for (int i = 0; i < 3; ++i) {
    camera[i] = 0.0;
    camera[3 + i] = -point[i];
  }
  camera[3] += 1e-3;
  camera[5] -= 1e-9;
  camera[8] = 0.003;
}

// A depth of 1e-9 is rounding to Jacobians that float recomputes.
void SetFocalLengthBeyondFloat(BalTestProblem* bal) {
  bal->camera(bal->camera_id[0])[6] = 1e39;
}

TEST(Device, DerivativesBeyondFloatAreSolvedInDouble) {
  SKIP_WITHOUT_DEVICE();
  struct Rows {
    const char* name;
    JacobianType jacobian;
    Derivatives derivatives;
    void (*spoil)(BalTestProblem*);
  };
  for (const Rows& rows : {Rows{"stored",
                                JACOBIAN_STORED,
                                Derivatives::kAnalytic,
                                PlaceBeyondFloat},
                           Rows{"views of Ceres's rows",
                                JACOBIAN_STORED,
                                Derivatives::kAutodiff,
                                PlaceBeyondFloat},
                           Rows{"recomputed",
                                JACOBIAN_RECOMPUTED,
                                Derivatives::kAnalytic,
                                SetFocalLengthBeyondFloat}}) {
    SCOPED_TRACE(rows.name);
    BalTestProblem start = MakeBalTestProblem(8, 60, 4, 9);
    rows.spoil(&start);
    Options ext_options;
    ext_options.device = DEVICE_CUDA;
    ext_options.jacobian = rows.jacobian;
    const auto solve = [&](auto&& modify) {
      return SolveModified(start, ext_options, false, modify, rows.derivatives);
    };
    const Result exact = solve(kUnchanged);
    ASSERT_TRUE(exact.summary.IsSolutionUsable()) << exact.summary.message;

    ext_options.precision = PRECISION_MIXED;
    const auto expect_in_double = [&exact](const Result& result) {
      EXPECT_EQ(result.summary.termination_type,
                exact.summary.termination_type);
      EXPECT_EQ(result.parameters, exact.parameters);
      EXPECT_EQ(result.summary.final_cost, exact.summary.final_cost);
      EXPECT_EQ(result.summary.method, exact.summary.method);
      EXPECT_THAT(
          result.summary.path_reason,
          HasSubstr("; in double, since the solve failed in mixed precision"));
    };
    const auto expect_failure = [&](const Result& result) {
      EXPECT_EQ(result.summary.termination_type, ceres::FAILURE);
      EXPECT_THAT(result.summary.message,
                  HasSubstr("Mixed precision keeps the Jacobian in float"));
      EXPECT_THAT(result.summary.message, HasSubstr("precision = double"));
    };
    expect_in_double(solve(kUnchanged));

    // Before the callback is called a solve can still be repeated.
    class Callback final : public ceres::IterationCallback {
      ceres::CallbackReturnType operator()(
          const ceres::IterationSummary& /*summary*/) override {
        return ceres::SOLVER_CONTINUE;
      }
    };
    Callback callback;
    const Result with_callback = solve(
        [&](BalTestProblem*, ceres::Problem*, ceres::Solver::Options* options) {
          options->callbacks.push_back(&callback);
        });
    if (rows.jacobian == JACOBIAN_STORED) {
      expect_in_double(with_callback);
    } else {
      expect_failure(with_callback);
    }

    ext_options.fallback = FALLBACK_REFUSE;
    expect_failure(solve(kUnchanged));
  }
}

TEST(Device, ArraysBeyondFloatAreSolvedInDouble) {
  SKIP_WITHOUT_DEVICE();
  std::vector<double> parameters[2];
  std::vector<double> gradients[2];
  double costs[2];
  for (const bool mixed : {false, true}) {
    BalTestProblem bal = MakeBalTestProblem(8, 60, 4, 9);
    PlaceBeyondFloat(&bal);
    ArrayProblem problem = ArraysOf(&bal);
    Options ext_options;
    ext_options.device = DEVICE_CUDA;
    ext_options.jacobian = JACOBIAN_STORED;
    ext_options.precision = mixed ? PRECISION_MIXED : PRECISION_DOUBLE;
    std::string error;
    ArraySolver solver;
    EXPECT_TRUE(solver.Evaluate(EvaluateOptions(),
                                ext_options,
                                problem,
                                &costs[mixed],
                                /*residuals=*/nullptr,
                                &gradients[mixed],
                                &error))
        << error;
    Summary summary;
    ceres::Solver::Options options = TestOptions(&bal, 2);
    options.linear_solver_ordering.reset();
    solver.Solve(options, ext_options, &problem, &summary);
    EXPECT_TRUE(summary.IsSolutionUsable()) << summary.message;
    EXPECT_EQ(summary.path_reason.find("mixed precision") != std::string::npos,
              mixed);
    parameters[mixed] = bal.Values();
  }
  EXPECT_EQ(costs[1], costs[0]);
  EXPECT_EQ(gradients[1], gradients[0]);
  EXPECT_EQ(parameters[1], parameters[0]);
}

TEST(Device, NumberOutOfRangeIsRefusedOrDoneOnTheHost) {
  SKIP_WITHOUT_DEVICE();
  const BalTestProblem start = MakeBalTestProblem(8, 60, 4, 9);
  Options options = DeviceOptions();
  options.cuda_device = 1000;
  const Result refused = SolveModified(start, options, false, kUnchanged);
  EXPECT_EQ(refused.summary.termination_type, ceres::FAILURE);
  EXPECT_NE(refused.summary.message.find("1000"), std::string::npos)
      << refused.summary.message;
  options.fallback = FALLBACK_TO_CERES;
  const Result on_host = SolveModified(start, options, false, kUnchanged);
  EXPECT_EQ(on_host.summary.path, PATH_FULL);
  EXPECT_TRUE(on_host.summary.IsSolutionUsable());
  EXPECT_NE(on_host.summary.device.find("host"), std::string::npos)
      << on_host.summary.device;
  EXPECT_NE(on_host.summary.device.find("1000"), std::string::npos)
      << on_host.summary.device;
}

#if defined(CERES_EXT_WITH_CUDA) && !defined(CERES_EXT_EMULATED)
// Blocks a stream until it may continue, or its patience ends.
struct Gate {
  explicit Gate(int patience_in_ms) : patience(patience_in_ms) {}
  static void Wait(void* data) {
    auto* gate = static_cast<Gate*>(data);
    const auto end = std::chrono::steady_clock::now() + gate->patience;
    while (!gate->release && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    gate->opened = true;
  }
  const std::chrono::milliseconds patience;
  std::atomic<bool> release{false};
  std::atomic<bool> opened{false};
};

// Closes the gate after the second iteration, and looks at it after the third.
// Between the two nothing is allocated or freed, so that only work on the
// gate's stream waits for it.
class GateAnIteration : public ceres::IterationCallback {
 public:
  GateAnIteration(Gate* gate, cudaStream_t stream)
      : gate_(gate), stream_(stream) {}
  ceres::CallbackReturnType operator()(
      const ceres::IterationSummary& summary) override {
    if (summary.iteration == 2) {
      EXPECT_EQ(cudaLaunchHostFunc(stream_, Gate::Wait, gate_), cudaSuccess);
    } else if (summary.iteration == 3) {
      looked = true;
      iteration_waited = gate_->opened;
      gate_->release = true;
    }
    return ceres::SOLVER_CONTINUE;
  }
  bool looked = false;
  bool iteration_waited = false;

 private:
  Gate* gate_;
  cudaStream_t stream_;
};

// The work of a solve waits for what the caller has queued on the stream,
// computes the same bits, and leaves a stream that takes further work.
TEST(Device, WorkIsQueuedOnTheCallersStream) {
  SKIP_WITHOUT_DEVICE();
  const BalTestProblem start = MakeBalTestProblem(10, 500, 5, 9);
  const Result own = SolveModified(start, DeviceOptions(), false, kUnchanged);
  ASSERT_EQ(own.summary.path, PATH_FULL) << own.summary.message;

  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
            cudaSuccess);
  for (const bool on_callers_stream : {true, false}) {
    Options options = DeviceOptions();
    options.cuda_stream = on_callers_stream ? stream : nullptr;
    // Work that should wait sits out the first; work that should not is far
    // from needing the second.
    Gate gate(on_callers_stream ? 200 : 10000);
    GateAnIteration callback(&gate, stream);
    const Result result = SolveModified(
        start,
        options,
        false,
        [&callback](BalTestProblem*, ceres::Problem*, auto* solver_options) {
          solver_options->callbacks.push_back(&callback);
        });
    gate.release = true;
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    EXPECT_EQ(result.summary.path, PATH_FULL) << result.summary.message;
    EXPECT_EQ(result.parameters, own.parameters);
    EXPECT_TRUE(callback.looked);
    EXPECT_EQ(callback.iteration_waited, on_callers_stream);
  }

  Gate gate(0);
  EXPECT_EQ(cudaLaunchHostFunc(stream, Gate::Wait, &gate), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_TRUE(gate.opened);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}
#endif  // defined(CERES_EXT_WITH_CUDA) && !defined(CERES_EXT_EMULATED)

TEST(Device, OnlyScalarsCrossInAnIteration) {
  SKIP_WITHOUT_DEVICE();
  const BalTestProblem start = MakeBalTestProblem(20, 4000, 5, 9);
  const auto few = [](BalTestProblem*, ceres::Problem*, auto* options) {
    options->max_num_iterations = 2;
    options->function_tolerance = 0.0;
  };
  const auto more = [](BalTestProblem*, ceres::Problem*, auto* options) {
    options->max_num_iterations = 8;
    options->function_tolerance = 0.0;
  };
  const Result short_solve = SolveModified(start, DeviceOptions(), false, few);
  const Result long_solve = SolveModified(start, DeviceOptions(), false, more);
  const int iterations =
      static_cast<int>(long_solve.summary.iterations.size()) -
      static_cast<int>(short_solve.summary.iterations.size());
  ASSERT_GT(iterations, 2);
  const int64_t pcg_iterations = long_solve.summary.num_pcg_iterations -
                                 short_solve.summary.num_pcg_iterations;
  // An iteration of the loop reads a few records of scalars (below 1 kB); one
  // of PCG copies its scalars (below 256 bytes), some beyond the end.
  EXPECT_LE(
      long_solve.summary.transfer_bytes - short_solve.summary.transfer_bytes,
      1024 * iterations + 256 * (pcg_iterations + 8 * iterations));
}

// Ceres's manifolds run on the device; of user-defined ones only their blocks
// cross.
TEST(Device, OnlyBlocksOfAUsersManifoldCrossInAnIteration) {
  SKIP_WITHOUT_DEVICE();
  const BalTestProblem start = MakeBalTestProblem(20, 1000, 5, 9);
  constexpr int kNumOwn = 3;
  for (const bool own : {false, true}) {
    const auto solve = [&](int num_iterations) {
      return SolveModified(
          start,
          DeviceOptions(),
          false,
          [&](BalTestProblem* bal, ceres::Problem* problem, auto* options) {
            options->max_num_iterations = num_iterations;
            options->function_tolerance = 0.0;
            for (int j = 0; j < bal->num_points(); j += 2) {
              problem->SetManifold(bal->point(j),
                                   new ceres::SphereManifold<3>());
            }
            for (int i = kNumOwn; i < bal->num_cameras(); ++i) {
              problem->SetManifold(
                  bal->camera(i),
                  new ceres::ProductManifold<ceres::EuclideanManifold<3>,
                                             ceres::SphereManifold<6>>());
            }
            for (int i = 0; own && i < kNumOwn; ++i) {
              problem->SetManifold(bal->camera(i), new OwnManifold(9));
            }
          });
    };
    const Result short_solve = solve(2);
    const Result long_solve = solve(8);
    ASSERT_EQ(long_solve.summary.path, PATH_FULL) << long_solve.summary.message;
    EXPECT_EQ(long_solve.summary.num_host_manifolds, own ? kNumOwn : 0);
    const int iterations =
        static_cast<int>(long_solve.summary.iterations.size()) -
        static_cast<int>(short_solve.summary.iterations.size());
    ASSERT_GT(iterations, 2);
    const int64_t pcg_iterations = long_solve.summary.num_pcg_iterations -
                                   short_solve.summary.num_pcg_iterations;
    // As above; and x, delta and x (+) delta once, or twice for the norm of the
    // projected gradient, x and a derivative.
    const int64_t of_manifolds =
        own ? 8 * kNumOwn * (2 * (9 + 9 + 9) + 9 + 81) : 0;
    EXPECT_LE(
        long_solve.summary.transfer_bytes - short_solve.summary.transfer_bytes,
        (1024 + of_manifolds) * iterations +
            256 * (pcg_iterations + 8 * iterations));
  }
}

TEST(Device, StateComesBackWhenTheUserAsks) {
  SKIP_WITHOUT_DEVICE();
  ExpectStateOfEachIteration(DeviceOptions(), 1e-11);
}

TEST(Device, SolvesAtOnceFromSeveralThreads) {
  SKIP_WITHOUT_DEVICE();
  const BalTestProblem start = MakeBalTestProblem(10, 500, 5, 9);
  const Result alone = SolveModified(start, DeviceOptions(), false, kUnchanged);
  std::vector<Result> results(4);
  std::vector<std::thread> threads;
  for (Result& result : results) {
    threads.emplace_back([&start, &result] {
      for (int round = 0; round < 3; ++round) {
        result = SolveModified(start, DeviceOptions(), false, kUnchanged);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const Result& result : results) {
    EXPECT_EQ(result.parameters, alone.parameters);
  }
}

// DEVICE_AUTO by the work that a solve seems to be. (Here the second ends after
// its first evaluation.)
TEST(Device, AutoTakesTheDeviceWhereItGains) {
  SKIP_WITHOUT_DEVICE();
  const BalTestProblem small = MakeBalTestProblem(8, 60, 4, 9);
  const Result on_host = SolveModified(small, Options(), false, kUnchanged);
  EXPECT_EQ(on_host.summary.path, PATH_FULL);
  EXPECT_EQ(
      on_host.summary.device.find("host, 2 threads (device = AUTO estimates "),
      0u)
      << on_host.summary.device;

  class End : public ceres::IterationCallback {
   public:
    ceres::CallbackReturnType operator()(
        const ceres::IterationSummary&) override {
      return ceres::SOLVER_TERMINATE_SUCCESSFULLY;
    }
  };
  End end;
  const BalTestProblem large = MakeBalTestProblem(10, 8000, 5, 9);
  const Result on_device = SolveModified(
      large, Options(), false, [&end](auto*, auto*, auto* options) {
        options->num_threads = 1;
        options->callbacks.push_back(&end);
      });
  EXPECT_EQ(on_device.summary.path, PATH_FULL);
  EXPECT_NE(on_device.summary.device.find("CUDA device 0"), std::string::npos)
      << on_device.summary.device;
#if defined(CERES_EXT_WITH_CUDA) && !defined(CERES_EXT_EMULATED)
  EXPECT_TRUE(kernels::HasRuntimeContext(0));
  EXPECT_GE(kernels::FloatToDoubleRatio(0), 1);
#endif
}

// The limit is one for all solves of the process.
TEST(Device, SolvesAtOnceShareTheLimitOfMemory) {
  SKIP_WITHOUT_DEVICE();
  const BalTestProblem start = MakeBalTestProblem(10, 500, 5, 9);
  Options options = DeviceOptions();
  options.fallback = FALLBACK_TO_CERES;
  const Result alone = SolveModified(start, options, false, kUnchanged);
  // Room for one of the two, and not for the index of the other.
  options.cuda_memory_limit_bytes = alone.summary.memory_bytes * 21 / 20;
  class SolveAnother : public ceres::IterationCallback {
   public:
    SolveAnother(const BalTestProblem& start, const Options& options)
        : start_(start), options_(options) {}
    ceres::CallbackReturnType operator()(
        const ceres::IterationSummary& summary) override {
      if (summary.iteration == 1) {
        result = SolveModified(start_, options_, false, kUnchanged);
      }
      return ceres::SOLVER_CONTINUE;
    }
    Result result;

   private:
    const BalTestProblem& start_;
    const Options options_;
  };
  SolveAnother another(start, options);
  const Result first = SolveModified(
      start, options, false, [&another](auto*, auto*, auto* solver_options) {
        solver_options->callbacks.push_back(&another);
      });
  EXPECT_NE(first.summary.device.find("CUDA device 0"), std::string::npos)
      << first.summary.device;
  EXPECT_EQ(first.parameters, alone.parameters);
  EXPECT_EQ(another.result.summary.path, PATH_FULL);
  EXPECT_EQ(another.result.summary.device.find("host"), 0u)
      << another.result.summary.device;
  EXPECT_NE(another.result.summary.device.find("the process has in use"),
            std::string::npos)
      << another.result.summary.device;
}

TEST(Device, NoDeviceIsSaidAndTheHostUsed) {
  if (HasDevice()) {
    GTEST_SKIP() << "skipped: there is a CUDA device";
  }
  std::string why = "this build has no CUDA";
#ifdef CERES_EXT_WITH_CUDA
  kernels::NumCudaDevices(&why);
#endif
  const BalTestProblem start = MakeBalTestProblem(8, 60, 4, 9);
  Options options = DeviceOptions();
  const Result refused = SolveModified(start, options, false, kUnchanged);
  EXPECT_EQ(refused.summary.termination_type, ceres::FAILURE);
  EXPECT_NE(refused.summary.message.find("CUDA"), std::string::npos)
      << refused.summary.message;
  options.fallback = FALLBACK_TO_CERES;
  for (DeviceType device : {DEVICE_CUDA, DEVICE_AUTO}) {
    options.device = device;
    const Result on_host = SolveModified(start, options, false, kUnchanged);
    EXPECT_EQ(on_host.summary.path, PATH_FULL);
    EXPECT_TRUE(on_host.summary.IsSolutionUsable());
    EXPECT_NE(on_host.summary.device.find("host"), std::string::npos);
    if (device == DEVICE_CUDA) {
      // The sentence of the device, once.
      EXPECT_EQ(on_host.summary.device, "host, 2 threads (" + why + ")");
      EXPECT_EQ(refused.summary.message,
                "Ceres Ext refuses the problem: device = CUDA is not "
                "available, because " +
                    why + ".");
    }
  }
}

#ifdef CERES_EXT_EMULATED

// The reason is one fact, said once, in each kind of solve.
TEST(Device, WithoutADriverTheReasonIsOneFact) {
  emulation::driver().version = 0;
  emulation::driver().device_count_error = cudaErrorInsufficientDriver;
  const BalTestProblem start = MakeBalTestProblem(8, 60, 4, 9);
  for (const DeviceType device : {DEVICE_CUDA, DEVICE_AUTO}) {
    Options options;
    options.device = device;
    if (device == DEVICE_AUTO && kernels::HasDriverFiles()) {
      continue;  // Then the estimate is the reason, and no driver is loaded.
    }
    const Result on_host = SolveModified(start, options, false, kUnchanged);
    EXPECT_EQ(on_host.summary.device,
              "host, 2 threads (no CUDA driver is installed)");
    const Result dense = SolveModified(
        start, options, false, [](auto*, auto*, auto* solver_options) {
          solver_options->linear_solver_type = ceres::DENSE_SCHUR;
        });
    EXPECT_EQ(dense.summary.path, PATH_FULL) << dense.summary.path_reason;
    EXPECT_EQ(dense.summary.device,
              "host, 2 threads (no CUDA driver is installed)");
    EXPECT_TRUE(dense.summary.IsSolutionUsable()) << dense.summary.message;
  }
  emulation::driver().version = 13000;
  emulation::driver().device_count_error = cudaSuccess;
}

#endif

}  // namespace
}  // namespace ceres_ext
