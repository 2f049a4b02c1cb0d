// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The same Levenberg-Marquardt iteration on every machine of the study: the
// naive variant and the kernels of the project against the host.

#include "benchmarks/study/study_machines.h"

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "benchmarks/study/levenberg_marquardt.h"
#include "cuda_kernels/machine/cuda_machine.h"
#include "cuda_kernels/machine/host_machine.h"
#include "cuda_kernels/structure/cuda_observation_index.h"
#include "cuda_kernels/structure/cuda_workspace.h"
#include "cuda_kernels/structure/host_workspace.h"
#include "gtest/gtest.h"
#include "tests/study/small_problem.h"

namespace ceres_ext::bal {
namespace {

using kernels::BlockLayout;
using kernels::CudaMachine;
using kernels::DeviceBuffer;

struct Outcome {
  StudyResult result;
  std::vector<double> step;  // cameras, then points
};

// The problem in the order of its observation index, in host memory.
class StudyMachines : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    bal_ = MakeSmallProblem(7, 120, 600);
    ASSERT_EQ(bal_.num_observations(), 600);
    ASSERT_TRUE(index_
                    .Build({bal_.num_cameras(),
                            bal_.num_points(),
                            bal_.num_observations(),
                            bal_.camera_index.data(),
                            bal_.point_index.data()})
                    .ok());
    for (int64_t k = 0; k < bal_.num_observations(); ++k) {
      const int64_t i = index_.view().input_id()[k];
      observations_.push_back(bal_.observations[2 * i]);
      observations_.push_back(bal_.observations[2 * i + 1]);
    }
    options_.solver.use_schur = GetParam() >= 2;
    options_.explicit_w = GetParam() % 2 != 0;
    options_.solver.preconditioner = solver::PreconditionerType::kJacobi;
    options_.solver.max_num_iterations = 2;
    options_.num_lm_iterations = 1;
  }

  template <typename Source, typename Machine>
  Outcome Optimize(const ProblemArrays& arrays, Machine* machine) {
    Outcome outcome;
    LevenbergMarquardt<Machine, Source> lm;
    kernels::Status status = lm.Setup(options_, arrays, machine);
    EXPECT_TRUE(status.ok()) << status.message;
    // Twice on one object.
    for (int i = 0; i < 2; ++i) {
      status = lm.Optimize(&outcome.result);
      EXPECT_TRUE(status.ok()) << status.message;
    }
    const int64_t num_camera_values = 9 * bal_.num_cameras();
    const int64_t num_point_values = 3 * bal_.num_points();
    outcome.step.resize(num_camera_values + num_point_values);
    EXPECT_TRUE(
        machine
            ->Download(num_camera_values, lm.camera_step(), outcome.step.data())
            .ok());
    EXPECT_TRUE(machine
                    ->Download(num_point_values,
                               lm.point_step(),
                               outcome.step.data() + num_camera_values)
                    .ok());
    return outcome;
  }

  Outcome RunOnHost() {
    kernels::HostMachine machine(1);
    kernels::HostWorkspace workspace;
    EXPECT_TRUE(workspace.Setup(index_.view(), &machine).ok());
    return Optimize<kernels::StoredJacobian<double,
                                            kernels::BalShape<9>,
                                            kernels::kHostLayout>>(
        ProblemArrays{workspace.index(),
                      bal_.cameras.data(),
                      bal_.points.data(),
                      observations_.data()},
        &machine);
  }

  template <typename Source, typename Machine>
  void CheckOnDevice() {
    std::string why_none;
    if (kernels::NumCudaDevices(&why_none) == 0) {
      GTEST_SKIP() << "skipped: no CUDA device (" << why_none << ")";
    }
    std::unique_ptr<kernels::CudaContext> context;
    ASSERT_TRUE(kernels::CudaContext::Create({}, &context).ok());
    kernels::CudaIndexScratch scratch;
    kernels::CudaObservationIndex index;
    DeviceBuffer<int32_t> camera_ids;
    DeviceBuffer<int32_t> point_ids;
    DeviceBuffer<double> cameras;
    DeviceBuffer<double> points;
    DeviceBuffer<double> observations;
    const int64_t n = bal_.num_observations();
    ASSERT_TRUE(
        camera_ids.Assign(context.get(), bal_.camera_index.data(), n).ok());
    ASSERT_TRUE(
        point_ids.Assign(context.get(), bal_.point_index.data(), n).ok());
    ASSERT_TRUE(cameras.Assign(context.get(), bal_.cameras).ok());
    ASSERT_TRUE(points.Assign(context.get(), bal_.points).ok());
    ASSERT_TRUE(observations.Assign(context.get(), observations_).ok());
    ASSERT_TRUE(index
                    .Build({bal_.num_cameras(),
                            bal_.num_points(),
                            bal_.num_observations(),
                            camera_ids.data(),
                            point_ids.data()},
                           &scratch,
                           context.get())
                    .ok());
    Machine machine;
    kernels::CudaWorkspace workspace;
    ASSERT_TRUE(machine.Setup(context.get()).ok());
    auto options = kernels::CudaWorkspace::Options::For(
        kernels::IsRecomputed<Source>::value,
        std::is_same_v<typename Source::Value, float>);
    options.stored_tiles |= options_.explicit_w;
    ASSERT_TRUE(
        workspace.Setup(index.view(), options, &scratch, context.get()).ok());
    const Outcome outcome = Optimize<Source>(ProblemArrays{workspace.index(),
                                                           cameras.data(),
                                                           points.data(),
                                                           observations.data()},
                                             &machine);
    const Outcome expected = RunOnHost();

    // Sums over at most n observations, through V + D^2 (and U + D^2), whose
    // condition number after scaling by the diagonal is at most 3 (9) times the
    // radius of 1e4: relative differences of n eps 9e4, for each of two
    // iterations and both directions.
    const double tolerance = 4.0 * bal_.num_observations() * 9e4 *
                             std::numeric_limits<double>::epsilon();
    double difference = 0.0;
    double norm = 0.0;
    for (size_t i = 0; i < expected.step.size(); ++i) {
      difference += std::pow(outcome.step[i] - expected.step[i], 2);
      norm += std::pow(expected.step[i], 2);
    }
    EXPECT_GT(norm, 0.0);
    EXPECT_LE(std::sqrt(difference), tolerance * std::sqrt(norm));
    EXPECT_NEAR(outcome.result.initial_cost,
                expected.result.initial_cost,
                tolerance * expected.result.initial_cost);
    EXPECT_NEAR(outcome.result.final_cost,
                expected.result.final_cost,
                tolerance * expected.result.initial_cost);
    EXPECT_EQ(outcome.result.num_accepted, expected.result.num_accepted);
    EXPECT_EQ(outcome.result.num_pcg_iterations,
              expected.result.num_pcg_iterations);
  }

  BalProblem bal_;
  kernels::ObservationIndex index_;
  std::vector<double> observations_;
  StudyOptions options_;
};

TEST_P(StudyMachines, CudaIsHost) {
  CheckOnDevice<kernels::StoredJacobian<double,
                                        kernels::BalShape<9>,
                                        kernels::kDeviceLayout>,
                CudaMachine>();
}

TEST_P(StudyMachines, BlockContiguousIsHost) {
  CheckOnDevice<BlockContiguousMachine::Source, BlockContiguousMachine>();
}

TEST_P(StudyMachines, RecomputedIsHost) {
  CheckOnDevice<kernels::RecomputedJacobian<double, 9>, CudaMachine>();
}

TEST_P(StudyMachines, NaiveBlockContiguousIsHost) {
  using Machine = NaiveMachine<BlockLayout::kBlockContiguous>;
  CheckOnDevice<Machine::Source, Machine>();
}

TEST_P(StudyMachines, NaiveContinuousElementIsHost) {
  using Machine = NaiveMachine<BlockLayout::kContinuousElement>;
  CheckOnDevice<Machine::Source, Machine>();
}

INSTANTIATE_TEST_SUITE_P(FourConfigurations,
                         StudyMachines,
                         testing::Values(0, 1, 2, 3));

}  // namespace
}  // namespace ceres_ext::bal
