// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// PCG with a second level, on the host and on a device, real or emulated: the
// end of exact steps and of SCHUR_JACOBI, in far fewer iterations.

#include <cstdint>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "ceres/ceres.h"
#include "ceres/manifold.h"
#include "ceres_ext/solve.h"
#include "gtest/gtest.h"
#include "tests/common/bal_test_problem.h"
#include "tests/common/bits.h"
#include "tests/common/has_device.h"
#include "tests/common/row_kinds.h"
#include "tests/common/same_steps.h"

namespace ceres_ext {
namespace {

#define SKIP_WITHOUT(device)                                    \
  if ((device) == DEVICE_CUDA && !HasDevice()) {                \
    GTEST_SKIP() << "There is no device for the second level."; \
  }

// A street: each camera sees what its neighbours see, and no other does.
BalTestProblem MakeStreet(int num_cameras, unsigned seed) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<double> uniform(-1.0, 1.0);
  std::normal_distribution<double> normal;
  BalTestProblem street;
  for (int i = 0; i < num_cameras; ++i) {
    // A camera at x = i looks along -z.
    for (const double value : {0.02 * uniform(generator),
                               0.02 * uniform(generator),
                               0.02 * uniform(generator),
                               -1.0 * i,
                               0.05 * uniform(generator),
                               0.05 * uniform(generator),
                               500.0,
                               -0.01,
                               0.0}) {
      street.cameras.push_back(value);
    }
  }
  constexpr int kPointsPerCamera = 12;
  constexpr int kViews = 3;
  for (int j = 0; j < num_cameras * kPointsPerCamera; ++j) {
    const int first = j / kPointsPerCamera;
    const double point[3] = {first + 1.0 + uniform(generator),
                             uniform(generator),
                             -4.0 + uniform(generator)};
    if (first + kViews > num_cameras) {
      break;
    }
    street.points.insert(street.points.end(), point, point + 3);
    for (int i = first; i < first + kViews; ++i) {
      double prediction[2];
      AutodiffReprojection<3>{0.0, 0.0}(street.camera(i), point, prediction);
      street.camera_id.push_back(i);
      street.point_id.push_back(j);
      for (const double value : prediction) {
        street.observations.push_back(value + 0.3 * normal(generator));
      }
    }
  }
  for (double& value : street.points) {
    value += 0.02 * normal(generator);
  }
  for (int i = 0; i < num_cameras; ++i) {
    for (int k = 3; k < 6; ++k) {
      street.camera(i)[k] += 0.02 * normal(generator);
    }
  }
  return street;
}

// Emulated devices are slow.
#ifdef CERES_EXT_EMULATED
constexpr int kNumCameras = 48;
constexpr int kNumIterations = 2;
#else
constexpr int kNumCameras = 60;
constexpr int kNumIterations = 6;
#endif

Case MakeCase(Kind kind, PreconditionerChoice preconditioner, unsigned seed) {
  Case made(kind, 1, MakeStreet(kNumCameras, seed));
  made.options.eta = 1e-9;
  made.options.max_num_iterations = kNumIterations;
  made.options.max_linear_solver_iterations = 5000;
  made.ext_options.preconditioner = preconditioner;
  made.ext_options.forcing_sequence = FORCING_SEQUENCE_CONSTANT;
  return made;
}

Summary SolveOn(DeviceType device, Case* solved) {
  solved->ext_options.device = device;
  Summary summary;
  Solve(solved->options, solved->ext_options, solved->problem.get(), &summary);
  return summary;
}

class TwoLevel : public ::testing::TestWithParam<
                     std::tuple<Kind, JacobianType, DeviceType>> {};

INSTANTIATE_TEST_SUITE_P(
    Kinds,
    TwoLevel,
    ::testing::Combine(::testing::Values(Kind::kObservations,
                                         Kind::kViews,
                                         Kind::kGeneralRows),
                       ::testing::Values(JACOBIAN_STORED, JACOBIAN_RECOMPUTED),
                       ::testing::ValuesIn(kDevices)),
    [](const auto& info) {
      return std::string(Name(std::get<0>(info.param))) + "_" +
             JacobianTypeToString(std::get<1>(info.param)) + "_" +
             DeviceTypeToString(std::get<2>(info.param));
    });

TEST_P(TwoLevel, EndsAsExactStepsInFarFewerIterations) {
  const auto [kind, jacobian, device] = GetParam();
  SKIP_WITHOUT(device);
  if (kind == Kind::kViews && jacobian == JACOBIAN_RECOMPUTED) {
    GTEST_SKIP() << "Views have no Jacobian to recompute.";
  }
  for (const PreconditionerBlocksType blocks :
       {PRECONDITIONER_BLOCKS_SINGLE, PRECONDITIONER_BLOCKS_MERGED}) {
    SCOPED_TRACE(PreconditionerBlocksTypeToString(blocks));
    Case two_level = MakeCase(kind, PRECONDITIONER_TWO_LEVEL, 1);
    Case one_level = MakeCase(kind, PRECONDITIONER_SCHUR_JACOBI, 1);
    for (Case* solved : {&two_level, &one_level}) {
      solved->ext_options.jacobian = jacobian;
      solved->ext_options.preconditioner_blocks = blocks;
    }
    const Summary summary = SolveOn(device, &two_level);
    ASSERT_EQ(summary.path, PATH_FULL) << summary.path_reason;
    const Summary of_one = SolveOn(device, &one_level);
    if (kind == Kind::kGeneralRows && jacobian == JACOBIAN_RECOMPUTED) {
      EXPECT_EQ(summary.num_coarse_iterations, 0);
      EXPECT_NE(summary.path_reason.find("no second level since"),
                std::string::npos)
          << summary.path_reason;
      ExpectSameEnd(summary, of_one);
      continue;
    }
    EXPECT_EQ(summary.num_coarse_iterations, summary.num_pcg_iterations)
        << summary.path_reason;
    EXPECT_GE(summary.num_clusters, 2);
    EXPECT_EQ(summary.num_coarse_columns, 12 * summary.num_clusters);
    EXPECT_NE(summary.method.find("and a second level"), std::string::npos)
        << summary.method;
    EXPECT_NE(summary.FullReport().find("Second level"), std::string::npos);
    EXPECT_EQ(of_one.num_coarse_iterations, 0);
    EXPECT_EQ(of_one.num_coarse_columns, 0);
    EXPECT_LT(3 * summary.num_pcg_iterations, of_one.num_pcg_iterations);
    Case exact = MakeCase(kind, PRECONDITIONER_AS_GIVEN, 1);
    exact.options.linear_solver_type = ceres::DENSE_SCHUR;
    ceres::Solver::Summary stock;
    ceres::Solve(exact.options, exact.problem.get(), &stock);
    ExpectSameEnd(summary, stock);
  }
}

// Steps begin without, and have it once they have taken as many iterations as
// it costs.
TEST_P(TwoLevel, AutoHasItWhereItPays) {
  const auto [kind, jacobian, device] = GetParam();
  SKIP_WITHOUT(device);
  if (kind != Kind::kObservations) {
    GTEST_SKIP() << "One kind of rows is enough.";
  }
  // On a device the set-up takes 35 ms, hundreds of iterations of such a small
  // problem.
  constexpr int kEnough = 12;
  Case chosen = MakeCase(kind, PRECONDITIONER_AUTO, 2);
  chosen.ext_options.jacobian = jacobian;
  chosen.options.max_num_iterations = kEnough;
  const Summary summary = SolveOn(device, &chosen);
  ASSERT_EQ(summary.path, PATH_FULL) << summary.path_reason;
  EXPECT_GT(summary.num_coarse_iterations, 0);
  EXPECT_LT(summary.num_coarse_iterations, summary.num_pcg_iterations);
  EXPECT_NE(summary.method.find(", a second level after "), std::string::npos)
      << summary.method;
  Case two_level = MakeCase(kind, PRECONDITIONER_TWO_LEVEL, 2);
  two_level.options.max_num_iterations = kEnough;
  ExpectSameEnd(summary, SolveOn(device, &two_level));
}

// In several runs, on the host with another number of threads each, and in a
// process of its own.
TEST_P(TwoLevel, HasTheSameBits) {
  const auto [kind, jacobian, device] = GetParam();
  SKIP_WITHOUT(device);
  if (jacobian == JACOBIAN_RECOMPUTED && kind != Kind::kObservations) {
    GTEST_SKIP() << "There is no second level.";
  }
  uint64_t first = 0;
  for (int run = 0; run < 4; ++run) {
    Case solved = MakeCase(
        kind, run == 3 ? PRECONDITIONER_AUTO : PRECONDITIONER_TWO_LEVEL, 3);
    solved.options.max_num_iterations = 3;
    solved.options.eta = 1e-2;
    solved.options.num_threads = 1 + run;
    solved.ext_options.jacobian = jacobian;
    const Summary summary = SolveOn(device, &solved);
    ASSERT_EQ(summary.path, PATH_FULL) << summary.path_reason;
    std::vector<double> bits = solved.bal.Values();
    bits.push_back(summary.final_cost);
    const uint64_t hash = HashOfBits(bits);
    if (run == 0) {
      if (IsAnotherProcess(hash)) {
        return;
      }
      first = hash;
      EXPECT_EQ(HashOfAnotherProcess(), first);
    }
    if (run < 3) {
      EXPECT_EQ(hash, first) << "run " << run;
    }
  }
}

class TwoLevelProblems : public ::testing::TestWithParam<DeviceType> {};

INSTANTIATE_TEST_SUITE_P(Devices,
                         TwoLevelProblems,
                         ::testing::ValuesIn(kDevices),
                         [](const auto& info) {
                           return std::string(DeviceTypeToString(info.param));
                         });

// Constant cameras and values held by manifolds are not unknowns of S.
TEST_P(TwoLevelProblems, HoldsWhatIsConstant) {
  SKIP_WITHOUT(GetParam());
  const auto make = [](PreconditionerChoice preconditioner) {
    Case made = MakeCase(Kind::kObservations, preconditioner, 4);
    for (int i = 0; i < kNumCameras; ++i) {
      if (i % 7 == 3) {
        made.problem->SetParameterBlockConstant(made.bal.camera(i));
      } else if (i % 2 == 0) {
        made.problem->SetManifold(made.bal.camera(i),
                                  new ceres::SubsetManifold(9, {6, 7, 8}));
      }
    }
    return made;
  };
  Case two_level = make(PRECONDITIONER_TWO_LEVEL);
  const BalTestProblem start = two_level.bal;
  const Summary summary = SolveOn(GetParam(), &two_level);
  ASSERT_EQ(summary.path, PATH_FULL) << summary.path_reason;
  EXPECT_GT(summary.num_coarse_iterations, 0);
  for (int i = 0; i < kNumCameras; ++i) {
    for (int k = i % 7 == 3 ? 0 : 6; k < 9 && (i % 7 == 3 || i % 2 == 0); ++k) {
      EXPECT_EQ(two_level.bal.cameras[9 * i + k], start.cameras[9 * i + k]);
    }
  }
  Case exact = make(PRECONDITIONER_AS_GIVEN);
  exact.options.linear_solver_type = ceres::DENSE_SCHUR;
  ceres::Solver::Summary stock;
  ceres::Solve(exact.options, exact.problem.get(), &stock);
  ExpectSameEnd(summary, stock);
}

// A solve that cannot have it continues with SCHUR_JACOBI, and says so.
TEST_P(TwoLevelProblems, SaysWhereThereIsNone) {
  SKIP_WITHOUT(GetParam());
  for (const char* const which :
       {"few cameras", "power series", "explicit", "CGNR"}) {
    SCOPED_TRACE(which);
    const std::string name = which;
    Case solved(Kind::kObservations, 1, MakeBalTestProblem(5, 60, 3, 9));
    if (name != "few cameras") {
      solved = MakeCase(Kind::kObservations, PRECONDITIONER_TWO_LEVEL, 5);
    }
    solved.options.max_num_iterations = 3;
    solved.options.eta = 1e-2;
    solved.options.use_spse_initialization = name == "power series";
    solved.options.use_explicit_schur_complement = name == "explicit";
    if (name == "CGNR") {
      solved.options.linear_solver_type = ceres::CGNR;
      solved.options.preconditioner_type = ceres::JACOBI;
    }
    solved.ext_options.preconditioner = PRECONDITIONER_TWO_LEVEL;
    const Summary summary = SolveOn(GetParam(), &solved);
    EXPECT_EQ(summary.num_coarse_iterations, 0);
    EXPECT_GT(summary.num_successful_steps, 1);
    if (name == "CGNR") {
      EXPECT_FALSE(summary.path_reason.empty());
    } else {
      EXPECT_NE(summary.path_reason.find("no second level since"),
                std::string::npos)
          << summary.path_reason;
    }
  }
}

}  // namespace
}  // namespace ceres_ext
