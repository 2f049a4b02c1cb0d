// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Options::preconditioner_blocks. Blocks that occur only together, merged, have
// to be to PCG what one parameter block of the same parameters is. On the host
// and, where there is one, on a device, real or emulated.

#include <algorithm>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "ceres/autodiff_cost_function.h"
#include "ceres/ceres.h"
#include "ceres_ext/solve.h"
#include "gtest/gtest.h"
#include "tests/common/bal_test_problem.h"
#include "tests/common/functors.h"
#include "tests/common/has_device.h"

namespace ceres_ext {
namespace {

// Parameter blocks of a camera: 9; 6 and 3; 3, 3 and 3.
enum Split { ONE_BLOCK, TWO_BLOCKS, THREE_BLOCKS };

// The BAL model, with a depth in rows of three residuals, which are of any
// shape and no views.
template <int kNumResiduals>
struct Reprojection {
  template <typename T>
  bool operator()(const T* camera, const T* point, T* residuals) const {
    AutodiffReprojection<3>{u, v}(camera, point, residuals);
    if (kNumResiduals == 3) {
      T p[3];
      ceres::AngleAxisRotatePoint(camera, point, p);
      residuals[kNumResiduals - 1] = 10.0 * (p[2] + camera[5] + 4.0);
    }
    return true;
  }
  template <typename T>
  bool operator()(const T* pose,
                  const T* intrinsics,
                  const T* point,
                  T* residuals) const {
    return (*this)(pose, pose + 3, intrinsics, point, residuals);
  }
  template <typename T>
  bool operator()(const T* rotation,
                  const T* translation,
                  const T* intrinsics,
                  const T* point,
                  T* residuals) const {
    T camera[9];
    std::copy_n(rotation, 3, camera);
    std::copy_n(translation, 3, camera + 3);
    std::copy_n(intrinsics, 3, camera + 6);
    return (*this)(camera, point, residuals);
  }

  ceres::CostFunction* Create(Split split) const {
    auto* const functor = new Reprojection(*this);
    switch (split) {
      case ONE_BLOCK:
        return new ceres::
            AutoDiffCostFunction<Reprojection, kNumResiduals, 9, 3>(functor);
      case TWO_BLOCKS:
        return new ceres::
            AutoDiffCostFunction<Reprojection, kNumResiduals, 6, 3, 3>(functor);
      default:
        return new ceres::
            AutoDiffCostFunction<Reprojection, kNumResiduals, 3, 3, 3, 3>(
                functor);
    }
  }

  double u;
  double v;
};

// A row of a pose and a point.
struct Depth {
  template <typename T>
  bool operator()(const T* pose, const T* point, T* residuals) const {
    T p[3];
    ceres::AngleAxisRotatePoint(pose, point, p);
    residuals[0] = p[2] + pose[5] + 4.0;
    return true;
  }
};

struct Scene {
  BalTestProblem bal;
  std::unique_ptr<ceres::Problem> problem;
  ceres::Solver::Options options;

  // The parameter blocks of camera i.
  std::vector<double*> Blocks(Split split, int i) {
    double* const camera = bal.camera(i);
    return split == ONE_BLOCK ? std::vector<double*>{camera}
           : split == TWO_BLOCKS
               ? std::vector<double*>{camera, camera + 6}
               : std::vector<double*>{camera, camera + 3, camera + 6};
  }
};

constexpr int kNumCameras = 24;

template <int kNumResiduals>
Scene MakeScene(Split split) {
  Scene scene;
  scene.bal = MakeBalTestProblem(kNumCameras, 160, 4, 9);
  scene.problem = std::make_unique<ceres::Problem>();
  auto ordering = std::make_shared<ceres::ParameterBlockOrdering>();
  for (size_t k = 0; k < scene.bal.camera_id.size(); ++k) {
    std::vector<double*> blocks = scene.Blocks(split, scene.bal.camera_id[k]);
    for (double* const block : blocks) {
      ordering->AddElementToGroup(block, 1);
    }
    blocks.push_back(scene.bal.point(scene.bal.point_id[k]));
    ordering->AddElementToGroup(blocks.back(), 0);
    scene.problem->AddResidualBlock(
        Reprojection<kNumResiduals>{scene.bal.observations[2 * k],
                                    scene.bal.observations[2 * k + 1]}
            .Create(split),
        nullptr,
        blocks);
  }
  scene.options = TestOptions(&scene.bal, 2);
  scene.options.linear_solver_ordering = ordering;
  scene.options.max_num_iterations = 4;
  scene.options.eta = 1e-3;
  return scene;
}

Scene Make(Split split, bool any_shape) {
  return any_shape ? MakeScene<3>(split) : MakeScene<2>(split);
}

class PreconditionerBlocks : public ::testing::TestWithParam<DeviceType> {
 protected:
  void SetUp() override {
    if (GetParam() == DEVICE_CUDA && !HasDevice()) {
      GTEST_SKIP() << "skipped: no CUDA device";
    }
  }

  Summary SolveScene(PreconditionerBlocksType blocks, Scene* scene) const {
    Options ext_options;
    ext_options.device = GetParam();
    ext_options.fallback = FALLBACK_REFUSE;
    ext_options.preconditioner_blocks = blocks;
    // AUTO is more accurate with merged blocks.
    ext_options.forcing_sequence = FORCING_SEQUENCE_CONSTANT;
    Summary summary;
    Solve(scene->options, ext_options, scene->problem.get(), &summary);
    EXPECT_EQ(summary.path, PATH_FULL) << summary.path_reason;
    EXPECT_TRUE(summary.IsSolutionUsable()) << summary.message;
    return summary;
  }
};

int NumPcgIterations(const Summary& summary) {
  int sum = 0;
  for (const auto& iteration : summary.iterations) {
    sum += iteration.linear_solver_iterations;
  }
  return sum;
}

TEST_P(PreconditionerBlocks, MergedAreAsOneParameterBlock) {
  for (const bool any_shape : {false, true}) {
    for (const ceres::PreconditionerType type :
         {ceres::JACOBI, ceres::SCHUR_JACOBI}) {
      const auto solve = [&](Split split, PreconditionerBlocksType blocks) {
        Scene scene = Make(split, any_shape);
        scene.options.preconditioner_type = type;
        return SolveScene(blocks, &scene);
      };
      SCOPED_TRACE(std::string(any_shape ? "any shape, " : "views, ") +
                   ceres::PreconditionerTypeToString(type));
      const Summary one = solve(ONE_BLOCK, PRECONDITIONER_BLOCKS_MERGED);
      EXPECT_EQ(one.method.find("merged"), std::string::npos) << one.method;
      for (const Split split : {TWO_BLOCKS, THREE_BLOCKS}) {
        const Summary single = solve(split, PRECONDITIONER_BLOCKS_SINGLE);
        const Summary merged = solve(split, PRECONDITIONER_BLOCKS_MERGED);
        EXPECT_EQ(single.method.find("merged"), std::string::npos)
            << single.method;
        EXPECT_NE(merged.method.find("JACOBI with 24 merged blocks"),
                  std::string::npos)
            << merged.method;
        ASSERT_EQ(merged.iterations.size(), one.iterations.size());
        for (size_t i = 0; i < one.iterations.size(); ++i) {
          // PCG may end an iteration earlier or later, as sums have another
          // order.
          EXPECT_NEAR(merged.iterations[i].linear_solver_iterations,
                      one.iterations[i].linear_solver_iterations,
                      1);
          EXPECT_NEAR(merged.iterations[i].cost,
                      one.iterations[i].cost,
                      1e-4 * one.iterations[i].cost);
        }
        EXPECT_LT(NumPcgIterations(merged), NumPcgIterations(single));
      }
    }
  }
}

TEST_P(PreconditionerBlocks, SameBitsInTwoRuns) {
  std::vector<double> first;
  for (int run = 0; run < 2; ++run) {
    Scene scene = Make(TWO_BLOCKS, /*any_shape=*/false);
    SolveScene(PRECONDITIONER_BLOCKS_MERGED, &scene);
    if (run == 0) {
      first = scene.bal.cameras;
    } else {
      EXPECT_EQ(scene.bal.cameras, first);
    }
  }
}

// Rotation and translation are merged, intrinsics are shared by all; a row of F
// blocks alone separates none.
TEST_P(PreconditionerBlocks, SharedIntrinsicsStaySingle) {
  for (const bool any_shape : {false, true}) {
    Scene scene = Make(ONE_BLOCK, any_shape);
    auto problem = std::make_unique<ceres::Problem>();
    auto ordering = std::make_shared<ceres::ParameterBlockOrdering>();
    std::vector<double> intrinsics(scene.bal.camera(0) + 6,
                                   scene.bal.camera(0) + 9);
    ordering->AddElementToGroup(intrinsics.data(), 1);
    for (size_t k = 0; k < scene.bal.camera_id.size(); ++k) {
      double* const camera = scene.bal.camera(scene.bal.camera_id[k]);
      double* const point = scene.bal.point(scene.bal.point_id[k]);
      const double u = scene.bal.observations[2 * k];
      const double v = scene.bal.observations[2 * k + 1];
      problem->AddResidualBlock(
          any_shape ? Reprojection<3>{u, v}.Create(THREE_BLOCKS)
                    : Reprojection<2>{u, v}.Create(THREE_BLOCKS),
          nullptr,
          std::vector<double*>{camera, camera + 3, intrinsics.data(), point});
      ordering->AddElementToGroup(camera, 1);
      ordering->AddElementToGroup(camera + 3, 1);
      ordering->AddElementToGroup(point, 0);
    }
    problem->AddResidualBlock(
        new ceres::AutoDiffCostFunction<Near<3>, 3, 3, 3>(new Near<3>{5.0}),
        nullptr,
        scene.bal.camera(1) + 3,
        scene.bal.camera(2) + 3);
    scene.problem = std::move(problem);
    scene.options.linear_solver_ordering = ordering;
    const Summary summary = SolveScene(PRECONDITIONER_BLOCKS_MERGED, &scene);
    EXPECT_NE(summary.method.find("with 24 merged blocks"), std::string::npos)
        << summary.method;
  }
}

// A residual block of a pose and a point, without the intrinsics, parts the two
// of that camera.
TEST_P(PreconditionerBlocks, ARowOfOneAlonePartsThem) {
  Scene scene = Make(TWO_BLOCKS, /*any_shape=*/true);
  scene.problem->AddResidualBlock(
      new ceres::AutoDiffCostFunction<Depth, 1, 6, 3>(new Depth),
      nullptr,
      scene.bal.camera(7),
      scene.bal.point(0));
  const Summary summary = SolveScene(PRECONDITIONER_BLOCKS_MERGED, &scene);
  EXPECT_NE(summary.method.find("with 23 merged blocks"), std::string::npos)
      << summary.method;
}

// CGNR eliminates nothing, IDENTITY has no blocks.
TEST_P(PreconditionerBlocks, NothingToMerge) {
  for (const auto& [solver, preconditioner] :
       {std::tuple{ceres::CGNR, ceres::JACOBI},
        std::tuple{ceres::ITERATIVE_SCHUR, ceres::IDENTITY}}) {
    std::vector<double> single;
    for (const PreconditionerBlocksType blocks :
         {PRECONDITIONER_BLOCKS_SINGLE, PRECONDITIONER_BLOCKS_MERGED}) {
      Scene scene = Make(TWO_BLOCKS, /*any_shape=*/false);
      scene.options.linear_solver_type = solver;
      scene.options.preconditioner_type = preconditioner;
      scene.options.eta = 0.1;
      const Summary summary = SolveScene(blocks, &scene);
      EXPECT_EQ(summary.method.find("merged"), std::string::npos)
          << summary.method;
      if (blocks == PRECONDITIONER_BLOCKS_SINGLE) {
        single = scene.bal.cameras;
      } else {
        EXPECT_EQ(scene.bal.cameras, single);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Devices,
                         PreconditionerBlocks,
                         ::testing::Values(DEVICE_HOST, DEVICE_CUDA),
                         [](const ::testing::TestParamInfo<DeviceType>& info) {
                           return info.param == DEVICE_CUDA ? "Device" : "Host";
                         });

}  // namespace
}  // namespace ceres_ext
