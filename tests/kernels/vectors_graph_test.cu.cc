// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// On a GPU only: vector operations captured in one graph on the caller's
// stream give the bits of the eager run, again and again.
#include <cuda_runtime.h>

#include <cstdint>
#include <vector>

#include "cuda_kernels/ops/block_table.h"
#include "cuda_kernels/ops/manifolds.h"
#include "cuda_kernels/ops/robust_losses.h"
#include "cuda_kernels/ops/vectors.h"
#include "tests/kernels/cuda_test_util.h"
#include "tests/kernels/vectors_test_util.h"

namespace ceres_ext::kernels {
namespace {

constexpr int32_t kBlocks = 1000;
constexpr int kPadded = 9;
constexpr int kAmbient = 10;
constexpr int64_t kVector = 20000;

// All that the operations write.
struct Outputs {
  DeviceBuffer<double> padded;      // kPadded kBlocks
  DeviceBuffer<double> ones;        // the same
  DeviceBuffer<double> scattered;   // tangent vector
  DeviceBuffer<double> ambient;     // kAmbient kBlocks
  DeviceBuffer<double> tangents;    // kAmbient kPadded kBlocks
  DeviceBuffer<double> state;       // state
  DeviceBuffer<double> vectors[3];  // kVector
  DeviceBuffer<double> residuals;   // 2 kVector
  DeviceBuffer<float> camera_blocks;
  DeviceBuffer<float> point_blocks;
  DeviceBuffer<LoopScalars> scalars;
  DeviceBuffer<Evaluation> evaluation;
};

class VectorsGraphTest : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) {
      return;
    }
    ASSERT_EQ(cudaStreamCreate(&stream_), cudaSuccess);
    CudaContextOptions options;
    options.stream = stream_;
    SetUpMachine(options);
  }
  void TearDown() override {
    CudaTest::TearDown();
    machine_.reset();
    context_.reset();
    if (stream_ != nullptr) {
      EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
    }
  }

  // Every byte of every output 0xff.
  Status Poison(Outputs* out) {
    const auto poison = [&](auto& buffer) {
      return context_->SetBytes(buffer.data(), 0xff, buffer.bytes());
    };
    CERES_EXT_RETURN_IF_ERROR(poison(out->padded));
    CERES_EXT_RETURN_IF_ERROR(poison(out->ones));
    CERES_EXT_RETURN_IF_ERROR(poison(out->scattered));
    CERES_EXT_RETURN_IF_ERROR(poison(out->ambient));
    CERES_EXT_RETURN_IF_ERROR(poison(out->tangents));
    CERES_EXT_RETURN_IF_ERROR(poison(out->state));
    for (DeviceBuffer<double>& vector : out->vectors) {
      CERES_EXT_RETURN_IF_ERROR(poison(vector));
    }
    CERES_EXT_RETURN_IF_ERROR(poison(out->residuals));
    CERES_EXT_RETURN_IF_ERROR(poison(out->scalars));
    return poison(out->evaluation);
  }

  // Blocks of the Jacobian are changed in place: the caller puts them back.
  std::vector<unsigned char> Bytes(Outputs* out) {
    std::vector<unsigned char> bytes;
    const auto append = [&](const auto& buffer) {
      const auto values = Download(buffer);
      const auto* begin = reinterpret_cast<const unsigned char*>(values.data());
      bytes.insert(bytes.end(), begin, begin + buffer.bytes());
    };
    append(out->padded);
    append(out->ones);
    append(out->scattered);
    append(out->ambient);
    append(out->tangents);
    append(out->state);
    for (const DeviceBuffer<double>& vector : out->vectors) {
      append(vector);
    }
    append(out->residuals);
    append(out->camera_blocks);
    append(out->point_blocks);
    append(out->scalars);
    append(out->evaluation);
    return bytes;
  }

  cudaStream_t stream_ = nullptr;
};

TEST_F(VectorsGraphTest, ReplayIsLikeEager) {
  const TestTable table(kBlocks, kPadded, kAmbient);
  const auto tangent_offset = Upload(table.tangent_offset);
  const auto tangent_size = Upload(table.tangent_size);
  const auto state_offset = Upload(table.state_offset);
  const auto constant_values = Upload(table.constant_values);
  BlockTableRef view = table.ref();
  view.tangent_offset = tangent_offset.data();
  view.tangent_size = tangent_size.data();
  view.state_offset = state_offset.data();
  view.constant_values = constant_values.data();
  // Quaternions and what else there is, where a block has enough columns.
  const auto factors = Upload(
      std::vector<ManifoldFactor>{{ManifoldKind::kQuaternion, 4},
                                  {ManifoldKind::kConstant, kAmbient - 4},
                                  {ManifoldKind::kSphere, 3},
                                  {ManifoldKind::kConstant, kAmbient - 3}});
  std::vector<ManifoldBlock> host_blocks;
  for (int32_t i = 0; i < kBlocks; ++i) {
    if (table.tangent_size[i] >= 3) {
      host_blocks.push_back({table.state_offset[i],
                             table.tangent_offset[i],
                             i % 2 * 2,
                             2,
                             kPadded,
                             int64_t{kAmbient} * kPadded * i});
    }
  }
  const auto blocks = Upload(host_blocks);
  const auto delta = Upload(RandomVector(table.tangent_values, 1));
  const auto state = Upload(RandomVector(table.state_values, 2));
  const auto x = Upload(RandomVector(kVector, 3));
  const auto y = Upload(RandomVector(kVector, 4));
  const LossProblem<float, 9> losses(kVector);
  const auto loss_table = Upload(losses.losses);
  const auto loss_id = Upload(losses.loss_id);
  const auto residuals = Upload(losses.residuals);
  const auto camera_blocks = ToDeviceLayout<float>(losses.camera_blocks, 18);
  const auto point_blocks = ToDeviceLayout<float>(losses.point_blocks, 6);

  Outputs out;
  out.padded = Poisoned<double>(kPadded * kBlocks);
  out.ones = Poisoned<double>(kPadded * kBlocks);
  out.scattered = Poisoned<double>(table.tangent_values);
  out.ambient = Poisoned<double>(kAmbient * kBlocks);
  out.tangents = Poisoned<double>(kAmbient * kPadded * kBlocks);
  out.state = Poisoned<double>(table.state_values);
  for (DeviceBuffer<double>& vector : out.vectors) {
    vector = Poisoned<double>(kVector);
  }
  out.residuals = Poisoned<double>(2 * kVector);
  out.scalars = Poisoned<LoopScalars>(1);
  out.evaluation = Poisoned<Evaluation>(1);
  const auto reset = [&]() -> Status {
    CERES_EXT_RETURN_IF_ERROR(
        out.camera_blocks.Assign(context_.get(), camera_blocks));
    CERES_EXT_RETURN_IF_ERROR(
        out.point_blocks.Assign(context_.get(), point_blocks));
    return Poison(&out);
  };
  ASSERT_OK(reset());

  CudaMachine* const machine = machine_.get();
  const auto queue = [&]() -> Status {
    CERES_EXT_RETURN_IF_ERROR(kernels::Run(
        GatherTangentParams{view, delta.data(), 0.5, out.padded.data()},
        machine));
    CERES_EXT_RETURN_IF_ERROR(kernels::Run(
        GatherTangentParams{view, nullptr, 1.0, out.ones.data()}, machine));
    CERES_EXT_RETURN_IF_ERROR(kernels::Run(
        ScatterTangentParams{view, out.padded.data(), out.scattered.data()},
        machine));
    CERES_EXT_RETURN_IF_ERROR(kernels::Run(
        GatherStateParams{view, state.data(), out.ambient.data()}, machine));
    CERES_EXT_RETURN_IF_ERROR(kernels::Run(
        SetConstantParams{out.tangents.size(), 0.5, out.tangents.data()},
        machine));
    CERES_EXT_RETURN_IF_ERROR(
        kernels::Run(ManifoldTangentsParams{blocks.size(),
                                            blocks.data(),
                                            factors.data(),
                                            /*linear=*/false,
                                            state.data(),
                                            out.tangents.data()},
                     machine));
    CERES_EXT_RETURN_IF_ERROR(kernels::Run(
        PlusParams{view, state.data(), delta.data(), out.state.data()},
        machine));
    CERES_EXT_RETURN_IF_ERROR(
        kernels::Run(PlusManifoldsParams{blocks.size(),
                                         blocks.data(),
                                         factors.data(),
                                         state.data(),
                                         delta.data(),
                                         out.state.data()},
                     machine));
    double* a = out.vectors[0].data();
    double* b = out.vectors[1].data();
    double* c = out.vectors[2].data();
    LoopScalars* s = out.scalars.data();
    CERES_EXT_RETURN_IF_ERROR(
        kernels::Run(CopyParams{kVector, x.data(), a}, machine));
    CERES_EXT_RETURN_IF_ERROR(
        kernels::Run(MultiplyParams{kVector, a, a, b}, machine));
    CERES_EXT_RETURN_IF_ERROR(
        kernels::Run(JacobiScalingParams{kVector, b}, machine));
    CERES_EXT_RETURN_IF_ERROR(
        kernels::Run(ClampParams{kVector, 0.3, 0.9, b}, machine));
    CERES_EXT_RETURN_IF_ERROR(kernels::Run(
        LevenbergMarquardtDiagonalParams{kVector, 1e4, b, c}, machine));
    CERES_EXT_RETURN_IF_ERROR(
        kernels::Run(NegateParams{kVector, c, c}, machine));
    CERES_EXT_RETURN_IF_ERROR(kernels::Run(
        SetConstantParams{kVector / 2, kImpossibleValue, b}, machine));
    CERES_EXT_RETURN_IF_ERROR(
        kernels::Run(CountInvalidParams{kVector, a, s}, machine));
    CERES_EXT_RETURN_IF_ERROR(kernels::Run(
        NegateIfValidParams{kVector, a, &s->num_invalid}, machine));
    CERES_EXT_RETURN_IF_ERROR(
        kernels::Run(CountInvalidParams{kVector, b, s}, machine));
    CERES_EXT_RETURN_IF_ERROR(kernels::Run(
        ProjectedGradientNormsParams{kVector, a, y.data(), s}, machine));
    CERES_EXT_RETURN_IF_ERROR(
        kernels::Run(StepNormsParams{kVector, a, c, s}, machine));
    CERES_EXT_RETURN_IF_ERROR(
        kernels::Run(ModelCostChangeParams{kVector, a, c, s}, machine));
    CorrectForLossParams<float, BalShape<9>, kDeviceLayout> params;
    params.n = kVector;
    params.loss = {loss_table.data(), loss_id.data()};
    params.residuals = residuals.data();
    params.corrected_residuals = out.residuals.data();
    params.correction.camera_blocks = {out.camera_blocks.data(), kVector};
    params.correction.point_blocks = {out.point_blocks.data(), kVector};
    params.evaluation = out.evaluation.data();
    return kernels::Run(params, machine);
  };

  ASSERT_OK(queue());
  ASSERT_OK(context_->Synchronize());
  const std::vector<unsigned char> eager = Bytes(&out);
  EXPECT_EQ(Download(out.scalars)[0].num_invalid, kVector / 2);

  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal),
            cudaSuccess);
  const Status status = queue();
  ASSERT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
  ASSERT_TRUE(status.ok()) << status.message;
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  for (int i = 0; i < 3; ++i) {
    ASSERT_OK(reset());
    ASSERT_EQ(cudaGraphLaunch(executable, stream_), cudaSuccess);
    ASSERT_OK(context_->Synchronize());
    EXPECT_TRUE(Bytes(&out) == eager);
  }
  EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

}  // namespace
}  // namespace ceres_ext::kernels
