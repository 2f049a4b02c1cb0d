// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Problems whose arrays are in the memory of a device: solved as those on the
// host are, bit for bit, in any mixture of both; copied if the host has to read
// them; refused with a sentence that names the array.

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "ceres/ceres.h"
#include "ceres_ext/array_problem.h"
#include "ceres_ext/bal_cost_functions.h"
#include "ceres_ext/batch.h"
#include "ceres_ext/solve.h"
#include "cuda_kernels/machine/cuda_context.h"
#include "cuda_kernels/machine/device_buffer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/bal_test_problem.h"
#include "tests/common/has_device.h"

namespace ceres_ext {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Arrays that may be on a device, by bit.
enum Array {
  kCameras = 1,
  kPoints = 2,
  kCameraIds = 4,
  kPointIds = 8,
  kObservations = 16,
  kWeights = 32,
  kAll = 63,
};

// A vector, or its copy on the device.
template <typename T>
class Copy {
 public:
  Copy(std::vector<T> values, bool on_device, kernels::CudaContext* context)
      : values_(std::move(values)), on_device_(on_device) {
    if (on_device) {
      EXPECT_TRUE(buffer_.Assign(context, values_).ok());
    }
  }
  T* data() { return on_device_ ? buffer_.data() : values_.data(); }
  std::vector<T> Read() const {
    std::vector<T> values = values_;
    if (on_device_) {
      EXPECT_TRUE(buffer_.CopyToHost(&values).ok());
    }
    return values;
  }

 private:
  std::vector<T> values_;
  bool on_device_;
  kernels::DeviceBuffer<T> buffer_;
};

class DeviceArrays : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!HasDevice()) {
      GTEST_SKIP() << "skipped: no CUDA device";
    }
    ASSERT_TRUE(kernels::CudaContext::Create({}, &context_).ok());
    bal_ = MakeBalTestProblem(12, 150, 6, 9);
    options_ = TestOptions(&bal_, 2);
    options_.linear_solver_ordering.reset();
    ext_options_.device = DEVICE_CUDA;
  }

  struct Result {
    Summary summary;
    std::vector<double> cameras;
    std::vector<double> points;
  };

  // The arrays of a problem.
  struct Problem {
    std::unique_ptr<Copy<double>> cameras;
    std::unique_ptr<Copy<double>> points;
    std::unique_ptr<Copy<int32_t>> camera_ids;
    std::unique_ptr<Copy<int32_t>> point_ids;
    std::unique_ptr<Copy<double>> observations;
    std::unique_ptr<Copy<double>> weights;
    std::unique_ptr<Copy<double>> unused;
    ArrayProblem arrays;
  };

  template <typename T>
  std::unique_ptr<Copy<T>> Put(const std::vector<T>& values, bool on_device) {
    return std::make_unique<Copy<T>>(values, on_device, context_.get());
  }

  void Make(int on_device, Problem* problem) {
    if (has_unused_) {
      problem->unused = Put(std::vector<double>(9 * 5, 7.0), on_device != 0);
      ArrayProblem::Parameters unused;
      unused.values = problem->unused->data();
      unused.num_blocks = 5;
      unused.size = 9;
      unused.on_device = on_device != 0;
      problem->arrays.AddParameters(unused);
    }
    const auto is = [on_device](Array array) {
      return (on_device & array) != 0;
    };
    const auto n = static_cast<int64_t>(bal_.camera_id.size());
    std::vector<double> weights(bal_.camera_id.size());
    for (size_t i = 0; i < weights.size(); ++i) {
      weights[i] = 0.5 + 0.25 * static_cast<double>(i % 5);
    }
    if (bad_weight_ >= 0) {
      weights[bad_weight_] = -1.0;
    }
    problem->cameras = Put(bal_.cameras, is(kCameras));
    problem->points = Put(bal_.points, is(kPoints));
    problem->camera_ids = Put(bal_.camera_id, is(kCameraIds));
    problem->point_ids = Put(bal_.point_id, is(kPointIds));
    problem->observations = Put(bal_.observations, is(kObservations));
    problem->weights = Put(weights, is(kWeights));
    ArrayProblem::Parameters cameras = of_cameras_;
    cameras.values = problem->cameras->data();
    cameras.num_blocks = bal_.num_cameras();
    cameras.size = bal_.camera_size;
    cameras.on_device = is(kCameras);
    ArrayProblem::Parameters points;
    points.values = problem->points->data();
    points.num_blocks = bal_.num_points();
    points.size = 3;
    points.on_device = is(kPoints);
    ArrayProblem& arrays = problem->arrays;
    const int of_cameras = arrays.AddParameters(cameras);
    const int of_points = arrays.AddParameters(points);
    const std::vector<ArrayProblem::Index> blocks = {
        {of_cameras, problem->camera_ids->data(), is(kCameraIds)},
        {of_points, problem->point_ids->data(), is(kPointIds)}};
    if (bal_.camera_size == 10) {
      arrays.AddResiduals<BalQuaternionReprojectionError>(
          n, problem->observations->data(), blocks, &huber_);
    } else {
      arrays.AddResiduals<BalReprojectionError>(
          n, problem->observations->data(), blocks, &huber_);
    }
    ArrayProblem::Residuals* const residuals = arrays.mutable_residuals(0);
    residuals->weights = problem->weights->data();
    residuals->weights_on_device = is(kWeights);
    residuals->constants_on_device = is(kObservations);
  }

  Result Solve(int on_device) {
    Problem problem;
    Make(on_device, &problem);
    Result result;
    ceres_ext::Solve(options_, ext_options_, &problem.arrays, &result.summary);
    result.cameras = problem.cameras->Read();
    result.points = problem.points->Read();
    return result;
  }

  void ExpectSame(const Result& result, const Result& expected) {
    EXPECT_EQ(result.cameras, expected.cameras);
    EXPECT_EQ(result.points, expected.points);
    ASSERT_EQ(result.summary.iterations.size(),
              expected.summary.iterations.size());
    for (size_t i = 0; i < result.summary.iterations.size(); ++i) {
      EXPECT_EQ(result.summary.iterations[i].cost,
                expected.summary.iterations[i].cost);
    }
    EXPECT_EQ(result.summary.path, PATH_FULL);
  }

  void ExpectFails(int on_device, const std::string& why) {
    const Result result = Solve(on_device);
    EXPECT_EQ(result.summary.termination_type, ceres::FAILURE);
    EXPECT_THAT(result.summary.message, HasSubstr(why));
  }

  std::unique_ptr<kernels::CudaContext> context_;
  BalTestProblem bal_;
  ceres::Solver::Options options_;
  Options ext_options_;
  ceres::HuberLoss huber_{1.0};
  ArrayProblem::Parameters of_cameras_;
  int bad_weight_ = -1;
  // Parameters before the others, which no residual block names.
  bool has_unused_ = false;
};

const char kCopied[] = "arrays on the device were copied to the host and back";

TEST_F(DeviceArrays, AnyMixtureHasTheBitsOfTheHosts) {
  const Result expected = Solve(0);
  ASSERT_TRUE(expected.summary.IsSolutionUsable());
  for (const int on_device : {int{kAll},
                              kCameras | kPoints,
                              int{kPoints},
                              int{kCameras},
                              kCameraIds | kPointIds,
                              int{kCameraIds},
                              int{kPointIds},
                              int{kObservations},
                              int{kWeights},
                              kAll - kPoints,
                              kAll - kCameraIds,
                              kAll - kWeights}) {
    SCOPED_TRACE(on_device);
    const Result result = Solve(on_device);
    ExpectSame(result, expected);
    EXPECT_THAT(result.summary.path_reason, Not(HasSubstr(kCopied)));
  }
  // The choice of a device that gains would be the host here.
  ext_options_.device = DEVICE_AUTO;
  ExpectSame(Solve(kAll), expected);
}

TEST_F(DeviceArrays, OtherSolversAndOptions) {
  for (const auto type : {ceres::DENSE_SCHUR, ceres::CGNR}) {
    options_.linear_solver_type = type;
    if (type == ceres::CGNR) {
      options_.preconditioner_type = ceres::JACOBI;
    }
    ExpectSame(Solve(kAll), Solve(0));
  }
  options_.linear_solver_type = ceres::ITERATIVE_SCHUR;
  options_.preconditioner_type = ceres::SCHUR_JACOBI;
  ext_options_.linear_solver = LINEAR_SOLVER_AUTO;
  ext_options_.jacobian = JACOBIAN_RECOMPUTED;
  ExpectSame(Solve(kAll), Solve(0));
}

TEST_F(DeviceArrays, WhatNoResidualBlockNamesIsConstant) {
  const Result expected = Solve(0);
  has_unused_ = true;
  for (const int on_device : {0, int{kAll}}) {
    Problem problem;
    Make(on_device, &problem);
    Result result;
    ceres_ext::Solve(options_, ext_options_, &problem.arrays, &result.summary);
    result.cameras = problem.cameras->Read();
    result.points = problem.points->Read();
    ExpectSame(result, expected);
    EXPECT_EQ(result.summary.num_effective_parameters_reduced,
              expected.summary.num_effective_parameters_reduced);
    EXPECT_EQ(problem.unused->Read(), std::vector<double>(9 * 5, 7.0));
  }
}

TEST_F(DeviceArrays, CamerasWithAManifold) {
  bal_ = MakeBalTestProblem(12, 150, 6, 10);
  BalCameraManifold manifold;
  of_cameras_.manifold = &manifold;
  const Result result = Solve(kAll);
  ExpectSame(result, Solve(0));
  EXPECT_THAT(result.summary.path_reason, Not(HasSubstr(kCopied)));
}

TEST_F(DeviceArrays, ASolverKeepsItsMachine) {
  const Result expected = Solve(0);
  ArraySolver solver;
  for (int i = 0; i < 3; ++i) {
    Problem problem;
    Make(kAll, &problem);
    Result result;
    solver.Solve(options_, ext_options_, &problem.arrays, &result.summary);
    result.cameras = problem.cameras->Read();
    result.points = problem.points->Read();
    ExpectSame(result, expected);
  }
}

TEST_F(DeviceArrays, AreCopiedWhereTheHostReads) {
  ext_options_.device = DEVICE_HOST;
  Result result = Solve(kAll);
  ExpectSame(result, Solve(0));
  EXPECT_THAT(result.summary.path_reason, HasSubstr(kCopied));
  EXPECT_THAT(result.summary.path_reason, HasSubstr("device = host"));

  ext_options_.device = DEVICE_CUDA;
  std::vector<uint8_t> is_constant(bal_.num_cameras(), 0);
  is_constant[3] = 1;
  of_cameras_.is_constant = is_constant.data();
  result = Solve(kAll);
  ExpectSame(result, Solve(0));
  EXPECT_THAT(result.summary.path_reason,
              HasSubstr("a block of parameters 0 is constant"));
  of_cameras_.is_constant = nullptr;

  // A point without observations.
  bal_.points.insert(bal_.points.end(), {1.0, 2.0, 3.0});
  result = Solve(kAll);
  ExpectSame(result, Solve(0));
  EXPECT_THAT(result.summary.path_reason,
              HasSubstr("a block of parameters 1 is in no residual block"));
  bal_.points.resize(bal_.points.size() - 3);

  options_.use_inner_iterations = true;
  result = Solve(kAll);
  const Result expected = Solve(0);
  // Inner iterations are Ceres's, whose sums depend on threads.
  EXPECT_NEAR(result.summary.final_cost,
              expected.summary.final_cost,
              1e-8 * expected.summary.final_cost);
  EXPECT_THAT(result.summary.path_reason, HasSubstr("inner iterations"));
  EXPECT_THAT(result.summary.path_reason, HasSubstr(kCopied));
}

TEST_F(DeviceArrays, WithDoglegSteps) {
  options_.trust_region_strategy_type = ceres::DOGLEG;
  options_.linear_solver_type = ceres::DENSE_SCHUR;
  for (const ceres::DoglegType type :
       {ceres::TRADITIONAL_DOGLEG, ceres::SUBSPACE_DOGLEG}) {
    options_.dogleg_type = type;
    const Result result = Solve(kAll);
    ExpectSame(result, Solve(0));
    EXPECT_THAT(result.summary.path_reason, Not(HasSubstr(kCopied)));
  }
}

TEST_F(DeviceArrays, BadContentsAreNamed) {
  bal_.points[3 * 70 + 1] = std::numeric_limits<double>::quiet_NaN();
  ExpectFails(kAll,
              "parameters 1: value 1 of block 70 is nan, expected a finite "
              "number");
  bal_.points[3 * 70 + 1] = 0.0;
  bal_.observations[2 * 9] = -std::numeric_limits<double>::infinity();
  ExpectFails(kAll, "residuals 0: value 0 of observation 9 is -inf");
  bal_.observations[2 * 9] = 0.0;
  const int32_t kept = bal_.point_id[17];
  for (const int32_t id : {-1, 150, 1 << 30}) {
    bal_.point_id[17] = id;
    ExpectFails(kAll,
                "residuals 0, blocks[1]: block[17] is " + std::to_string(id) +
                    ", expected 0 <= block < 150");
  }
  bal_.point_id[17] = kept;
  bad_weight_ = 5;
  ExpectFails(kAll, "residuals 0: weights[5] is -1");
}

TEST_F(DeviceArrays, MemoryOfTheHostIsNotTheDevices) {
  Problem problem;
  Make(0, &problem);
  problem.arrays.mutable_residuals(0)->weights_on_device = true;
  Summary summary;
  ceres_ext::Solve(options_, ext_options_, &problem.arrays, &summary);
  EXPECT_EQ(summary.termination_type, ceres::FAILURE);
  EXPECT_THAT(summary.message,
              HasSubstr("residuals 0: weights is not memory of CUDA device 0"));
}

TEST_F(DeviceArrays, ASolveThatFailsChangesNothing) {
  // The camera's centre: its residual is not finite.
  options_.max_num_consecutive_invalid_steps = 0;
  for (int i = 0; i < 3; ++i) {
    bal_.cameras[i] = bal_.cameras[3 + i] = 0.0;
  }
  const int32_t point = bal_.point_id[0];
  bal_.camera_id[0] = 0;
  for (int i = 0; i < 3; ++i) {
    bal_.points[3 * point + i] = 0.0;
  }
  const Result result = Solve(kAll);
  EXPECT_EQ(result.summary.termination_type, ceres::FAILURE);
  EXPECT_EQ(result.cameras, bal_.cameras);
  EXPECT_EQ(result.points, bal_.points);
}

TEST_F(DeviceArrays, Evaluate) {
  const auto evaluate = [&](int on_device,
                            double* cost,
                            std::vector<double>* residuals,
                            std::vector<double>* gradient) {
    Problem problem;
    Make(on_device, &problem);
    std::string error;
    EXPECT_TRUE(ceres_ext::Evaluate(EvaluateOptions(),
                                    ext_options_,
                                    problem.arrays,
                                    cost,
                                    residuals,
                                    gradient,
                                    &error))
        << error;
  };
  double cost = 0.0;
  double expected = 0.0;
  std::vector<double> residuals[2];
  std::vector<double> gradient[2];
  evaluate(kAll, &cost, &residuals[0], &gradient[0]);
  evaluate(0, &expected, &residuals[1], &gradient[1]);
  EXPECT_EQ(cost, expected);
  EXPECT_EQ(residuals[0], residuals[1]);
  EXPECT_EQ(gradient[0], gradient[1]);
}

TEST_F(DeviceArrays, BatchesReadTheHost) {
  Problem problem;
  Make(kObservations, &problem);
  ProblemBatch batch;
  batch.problem = problem.arrays;
  batch.num_problems = 1;
  const int64_t cameras[] = {0, bal_.num_cameras()};
  const int64_t points[] = {0, bal_.num_points()};
  const int64_t rows[] = {0, static_cast<int64_t>(bal_.camera_id.size())};
  batch.parameter_begin = {cameras, points};
  batch.residual_begin = {rows};
  BatchSummary summary;
  std::string error;
  EXPECT_FALSE(SolveBatch(options_, ext_options_, &batch, &summary, &error));
  EXPECT_EQ(error,
            "an array of the batch is on a device, expected host memory");
}

TEST_F(DeviceArrays, IsValidReadsTheHost) {
  Problem problem;
  Make(kPointIds, &problem);
  std::string error;
  EXPECT_FALSE(problem.arrays.IsValid(1, &error));
  EXPECT_EQ(error,
            "residuals 0, blocks[1]: block is on a device, where this function "
            "does not read it; expected host memory");
}

}  // namespace
}  // namespace ceres_ext
