// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The same Levenberg-Marquardt iteration on every machine of the study: the
// paper's two forms and the kernels of the project against the host.

#include "studies/study_machines.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "cuda_kernels/machine/cuda_machine.h"
#include "cuda_kernels/machine/host_machine.h"
#include "cuda_kernels/structure/cuda_observation_index.h"
#include "cuda_kernels/structure/cuda_workspace.h"
#include "cuda_kernels/structure/host_workspace.h"
#include "gtest/gtest.h"
#include "studies/levenberg_marquardt.h"
#include "tests/bal/synthetic_scene.h"

namespace ceres_ext::bal {
namespace {

using kernels::BlockLayout;
using kernels::CudaMachine;
using kernels::DeviceBuffer;

// Vectors of blocks of n values in the layout of a PaperMachine, from those of
// the host, and back.
std::vector<double> ToContinuous(const std::vector<double>& x, int n) {
  const size_t num_blocks = x.size() / n;
  std::vector<double> result(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    result[i % n * num_blocks + i / n] = x[i];
  }
  return result;
}
std::vector<double> FromContinuous(const std::vector<double>& x, int n) {
  const size_t num_blocks = x.size() / n;
  std::vector<double> result(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    result[i] = x[i % n * num_blocks + i / n];
  }
  return result;
}

template <typename Machine>
constexpr bool HasContinuousVectors() {
  return IsPaperMachine<Machine>::value &&
         Machine::kLayout == BlockLayout::kContinuousElement;
}

struct Outcome {
  StudyResult result;
  std::vector<double> step;  // cameras, then points
};

// The problem in the order of its observation index, in host memory.
class StudyMachines : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    bal_ = MakeScene(OptionsOfSize(7, 120, 600)).start;
    ASSERT_EQ(bal_.num_observations(), 600);
    ASSERT_TRUE(index_
                    .Build({bal_.num_cameras(),
                            bal_.num_points(),
                            bal_.num_observations(),
                            bal_.camera_index.data(),
                            bal_.point_index.data()})
                    .ok());
    for (int64_t k = 0; k < bal_.num_observations(); ++k) {
      const int64_t i = index_.ref().input_id()[k];
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
    const auto append = [&](int64_t num_blocks, int size, const double* step) {
      std::vector<double> own(size * num_blocks);
      EXPECT_TRUE(machine->Download(size * num_blocks, step, own.data()).ok());
      if (HasContinuousVectors<Machine>()) {
        own = FromContinuous(own, size);
      }
      outcome.step.insert(outcome.step.end(), own.begin(), own.end());
    };
    append(bal_.num_cameras(), 9, lm.camera_step());
    append(bal_.num_points(), 3, lm.point_step());
    return outcome;
  }

  Outcome RunOnHost() {
    kernels::HostMachine machine(1);
    kernels::HostWorkspace workspace;
    EXPECT_TRUE(workspace.Setup(index_.ref(), &machine).ok());
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
    const auto in_layout = [](const std::vector<double>& x, int size) {
      return HasContinuousVectors<Machine>() ? ToContinuous(x, size) : x;
    };
    ASSERT_TRUE(cameras.Assign(context.get(), in_layout(bal_.cameras, 9)).ok());
    ASSERT_TRUE(points.Assign(context.get(), in_layout(bal_.points, 3)).ok());
    ASSERT_TRUE(
        observations.Assign(context.get(), in_layout(observations_, 2)).ok());
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
        workspace.Setup(index.ref(), options, &scratch, context.get()).ok());
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
    // With blocks in float that is above one: a step that differs by a tenth
    // would be another step.
    using Value = typename Source::Value;
    const double tolerance =
        std::min(4.0 * static_cast<double>(bal_.num_observations()) * 9e4 *
                     static_cast<double>(std::numeric_limits<Value>::epsilon()),
                 0.1);
    // Costs are sums of double in any case.
    const double cost_tolerance = 2.0 *
                                  static_cast<double>(bal_.num_observations()) *
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
                cost_tolerance * expected.result.initial_cost);
    EXPECT_NEAR(outcome.result.final_cost,
                expected.result.final_cost,
                tolerance * expected.result.initial_cost);
    EXPECT_EQ(outcome.result.num_accepted, expected.result.num_accepted);
    EXPECT_EQ(outcome.result.num_pcg_iterations,
              expected.result.num_pcg_iterations);
  }

  template <PaperForm F, typename T, BlockLayout L>
  void CheckPaper() {
    using Machine = PaperMachine<F, T, L>;
    CheckOnDevice<typename Machine::Source, Machine>();
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
  CheckPaper<PaperForm::kNaive, double, BlockLayout::kBlockContiguous>();
}

TEST_P(StudyMachines, NaiveContinuousElementIsHost) {
  CheckPaper<PaperForm::kNaive, double, BlockLayout::kContinuousElement>();
}

TEST_P(StudyMachines, NaiveFloatBlockContiguousIsHost) {
  CheckPaper<PaperForm::kNaive, float, BlockLayout::kBlockContiguous>();
}

TEST_P(StudyMachines, NaiveFloatContinuousElementIsHost) {
  CheckPaper<PaperForm::kNaive, float, BlockLayout::kContinuousElement>();
}

TEST_P(StudyMachines, PaperBlockContiguousIsHost) {
  CheckPaper<PaperForm::kOptimized, double, BlockLayout::kBlockContiguous>();
}

TEST_P(StudyMachines, PaperContinuousElementIsHost) {
  CheckPaper<PaperForm::kOptimized, double, BlockLayout::kContinuousElement>();
}

TEST_P(StudyMachines, PaperFloatBlockContiguousIsHost) {
  CheckPaper<PaperForm::kOptimized, float, BlockLayout::kBlockContiguous>();
}

TEST_P(StudyMachines, PaperFloatContinuousElementIsHost) {
  CheckPaper<PaperForm::kOptimized, float, BlockLayout::kContinuousElement>();
}

INSTANTIATE_TEST_SUITE_P(FourConfigurations,
                         StudyMachines,
                         testing::Values(0, 1, 2, 3));

}  // namespace
}  // namespace ceres_ext::bal
