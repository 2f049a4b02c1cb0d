// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A solve without a plugin that asks for CUDA where there is no device fails
// with a message. CTest hides the devices that there are.

#include <vector>

#include "ceres/ceres.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/patches/patch_test_problem.h"

namespace ceres_ext {
namespace {

void ExpectFails(const ceres::Solver::Options& options,
                 PatchTestProblem* problem) {
  const std::vector<double> before = problem->State();
  ceres::Solver::Summary summary;
  ceres::Solve(options, problem->problem(), &summary);
  EXPECT_EQ(summary.termination_type, ceres::FAILURE);
  EXPECT_THAT(summary.message,
              ::testing::StartsWith("CUDA initialization failed because there "
                                    "is no device that can be used: "));
  EXPECT_EQ(problem->State(), before);
}

TEST(NoDeviceTest, DenseCuda) {
  if (!ceres::IsDenseLinearAlgebraLibraryTypeAvailable(ceres::CUDA)) {
    GTEST_SKIP() << "Ceres was built without CUDA.";
  }
  PatchTestProblem problem;
  ceres::Solver::Options options = problem.Options(ceres::DENSE_SCHUR);
  options.dense_linear_algebra_library_type = ceres::CUDA;
  ExpectFails(options, &problem);
  // Once more: what failed is tried again, and the problem is as it was.
  ExpectFails(options, &problem);
  options.dense_linear_algebra_library_type = ceres::EIGEN;
  ceres::Solver::Summary summary;
  ceres::Solve(options, problem.problem(), &summary);
  EXPECT_TRUE(summary.IsSolutionUsable()) << summary.message;
}

TEST(NoDeviceTest, CudaSparse) {
  if (!ceres::IsSparseLinearAlgebraLibraryTypeAvailable(ceres::CUDA_SPARSE)) {
    GTEST_SKIP() << "Ceres was built without CUDA.";
  }
  PatchTestProblem problem;
  ceres::Solver::Options options = problem.Options(ceres::CGNR);
  options.sparse_linear_algebra_library_type = ceres::CUDA_SPARSE;
  ExpectFails(options, &problem);
}

}  // namespace
}  // namespace ceres_ext
