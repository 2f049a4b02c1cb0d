// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// PCG with a second level, on the host and on a device, real or emulated: the
// end of exact steps and of SCHUR_JACOBI, in far fewer iterations.

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "ceres/ceres.h"
#include "ceres/manifold.h"
#include "ceres/rotation.h"
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
  if (device == DEVICE_CUDA && summary.path == PATH_FULL) {
    EXPECT_NE(summary.device.rfind("host", 0), 0u) << summary.device;
  }
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

// The BAL model with intrinsics of more columns than a pose: focal lengths,
// principal point, two radial and two tangential distortions.
struct WideReprojection {
  template <typename T>
  bool operator()(const T* pose,
                  const T* intrinsics,
                  const T* point,
                  T* residuals) const {
    T p[3];
    ceres::AngleAxisRotatePoint(pose, point, p);
    const T x = -(p[0] + pose[3]) / (p[2] + pose[5]);
    const T y = -(p[1] + pose[4]) / (p[2] + pose[5]);
    const T r2 = x * x + y * y;
    const T radial = T(1.0) + r2 * (intrinsics[4] + intrinsics[5] * r2);
    const T& t1 = intrinsics[6];
    const T& t2 = intrinsics[7];
    residuals[0] = intrinsics[2] - T(u) +
                   intrinsics[0] * (x * radial + T(2.0) * t1 * x * y +
                                    t2 * (r2 + T(2.0) * x * x));
    residuals[1] = intrinsics[3] - T(v) +
                   intrinsics[1] * (y * radial + T(2.0) * t2 * x * y +
                                    t1 * (r2 + T(2.0) * y * y));
    return true;
  }
  double u;
  double v;
};

// The pose of a frame and that of a sensor on it.
struct RigReprojection {
  template <typename T>
  bool operator()(const T* frame,
                  const T* sensor,
                  const T* point,
                  T* residuals) const {
    T p[3];
    ceres::AngleAxisRotatePoint(frame, point, p);
    for (int i = 0; i < 3; ++i) {
      p[i] += frame[3 + i];
    }
    const T camera[9] = {sensor[0],
                         sensor[1],
                         sensor[2],
                         sensor[3],
                         sensor[4],
                         sensor[5],
                         T(500.0),
                         T(-0.01),
                         T(0.0)};
    return AutodiffReprojection<3>{u, v}(camera, p, residuals);
  }
  double u;
  double v;
};

enum class Shared { kIntrinsics, kSensors };

// A street whose images share a few cameras, or whose frames have two sensors
// each.
struct SharedCase {
  SharedCase(Shared kind, PreconditionerChoice preconditioner, unsigned seed)
      : of(MakeCase(Kind::kViews, preconditioner, seed)) {
    std::mt19937 generator(seed);
    std::uniform_real_distribution<double> uniform(-1.0, 1.0);
    constexpr int kNumShared = 3;
    for (int i = 0; i < kNumShared; ++i) {
      if (kind == Shared::kIntrinsics) {
        shared.insert(shared.end(),
                      {505.0 + i, 495.0, 0.0, 0.0, -0.01, 0.0, 0.0, 0.0});
      } else {
        for (int k = 0; k < 6; ++k) {
          shared.push_back(0.002 * uniform(generator));
        }
      }
    }
    of.problem = std::make_unique<ceres::Problem>();
    for (size_t k = 0; k < of.bal.camera_id.size(); ++k) {
      const int i = of.bal.camera_id[k];
      const double u = of.bal.observations[2 * k];
      const double v = of.bal.observations[2 * k + 1];
      double* const point = of.bal.point(of.bal.point_id[k]);
      if (kind == Shared::kIntrinsics) {
        of.problem->AddResidualBlock(
            new ceres::AutoDiffCostFunction<WideReprojection, 2, 6, 8, 3>(
                new WideReprojection{u, v}),
            nullptr,
            of.bal.camera(i),
            shared.data() + 8 * (i % kNumShared),
            point);
      } else {
        of.problem->AddResidualBlock(
            new ceres::AutoDiffCostFunction<RigReprojection, 2, 6, 6, 3>(
                new RigReprojection{u, v}),
            nullptr,
            of.bal.camera(i),
            shared.data() + 6 * (k % 2),
            point);
      }
    }
  }
  Case of;
  std::vector<double> shared;
};

class TwoLevelShared
    : public ::testing::TestWithParam<std::tuple<Shared, DeviceType>> {};

INSTANTIATE_TEST_SUITE_P(
    Kinds,
    TwoLevelShared,
    ::testing::Combine(::testing::Values(Shared::kIntrinsics, Shared::kSensors),
                       ::testing::ValuesIn(kDevices)),
    [](const auto& info) {
      return std::string(std::get<0>(info.param) == Shared::kIntrinsics
                             ? "Intrinsics"
                             : "Sensors") +
             "_" + DeviceTypeToString(std::get<1>(info.param));
    });

// Blocks that all images share are columns of the second level.
TEST_P(TwoLevelShared, EndsAsExactStepsInFarFewerIterations) {
  const auto [kind, device] = GetParam();
  SKIP_WITHOUT(device);
  for (const unsigned seed : {1u, 2u}) {
    SCOPED_TRACE(seed);
    SharedCase two_level(kind, PRECONDITIONER_TWO_LEVEL, seed);
    SharedCase one_level(kind, PRECONDITIONER_SCHUR_JACOBI, seed);
    const Summary summary = SolveOn(device, &two_level.of);
    ASSERT_EQ(summary.path, PATH_FULL) << summary.path_reason;
    const Summary of_one = SolveOn(device, &one_level.of);
    EXPECT_EQ(summary.num_coarse_iterations, summary.num_pcg_iterations)
        << summary.path_reason;
    // Poses follow a change of eight intrinsics less well than one of sensors:
    // 1.6 to 2.4 times and more than 3 times fewer.
    const double factor = kind == Shared::kIntrinsics ? 1.5 : 3.0;
    EXPECT_LT(factor * static_cast<double>(summary.num_pcg_iterations),
              static_cast<double>(of_one.num_pcg_iterations));
    SharedCase exact(kind, PRECONDITIONER_AS_GIVEN, seed);
    exact.of.options.linear_solver_type = ceres::DENSE_SCHUR;
    ceres::Solver::Summary stock;
    ceres::Solve(exact.of.options, exact.of.problem.get(), &stock);
    ExpectSameEnd(summary, stock);
  }
}

TEST_P(TwoLevelShared, HasTheSameBits) {
  const auto [kind, device] = GetParam();
  SKIP_WITHOUT(device);
  uint64_t first = 0;
  for (int run = 0; run < 3; ++run) {
    SharedCase solved(kind, PRECONDITIONER_TWO_LEVEL, 3);
    solved.of.options.max_num_iterations = 3;
    solved.of.options.eta = 1e-2;
    solved.of.options.num_threads = 1 + run;
    const Summary summary = SolveOn(device, &solved.of);
    ASSERT_EQ(summary.path, PATH_FULL) << summary.path_reason;
    EXPECT_GT(summary.num_coarse_iterations, 0);
    std::vector<double> bits = solved.of.bal.Values();
    bits.insert(bits.end(), solved.shared.begin(), solved.shared.end());
    bits.push_back(summary.final_cost);
    const uint64_t hash = HashOfBits(bits);
    first = run == 0 ? hash : first;
    EXPECT_EQ(hash, first) << "run " << run;
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
