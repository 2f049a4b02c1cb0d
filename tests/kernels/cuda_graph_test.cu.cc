// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// On a GPU only: operations captured in a graph on the caller's stream give the
// bits of the eager run, again and again.
#include <cuda_runtime.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "cuda_kernels/ops/evaluate.h"
#include "cuda_kernels/ops/normal_blocks.h"
#include "cuda_kernels/ops/pcg.h"
#include "cuda_kernels/ops/schur_products.h"
#include "tests/kernels/cuda_test_util.h"

namespace ceres_ext::kernels {
namespace {

class CudaGraphTest : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped()) {
      return;
    }
    // A caller's stream.
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

  // fn queues work that writes `out`. Eager, then three replays.
  void ExpectReplayLikeEager(DeviceBuffer<double>* out,
                             const std::function<Status()>& fn) {
    ASSERT_OK(context_->SetBytes(out->data(), 0xff, out->bytes()));
    ASSERT_OK(fn());
    ASSERT_OK(context_->Synchronize());
    const std::vector<double> eager = Download(*out);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal),
              cudaSuccess);
    const Status status = fn();
    ASSERT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
    ASSERT_TRUE(status.ok()) << status.message;
    ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
    for (int i = 0; i < 3; ++i) {
      ASSERT_OK(context_->SetBytes(out->data(), 0xff, out->bytes()));
      ASSERT_EQ(cudaGraphLaunch(executable, stream_), cudaSuccess);
      ASSERT_OK(context_->Synchronize());
      EXPECT_TRUE(SameBits(Download(*out), eager));
    }
    EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  }

  cudaStream_t stream_ = nullptr;
};

TEST_F(CudaGraphTest, Operations) {
  constexpr int C = 9;
  using Source = RecomputedJacobian<double, C>;
  using Stored = StoredJacobian<double, BalShape<C>, kDeviceLayout>;
  const PairList pairs = MakeEdgePairs();
  const int64_t n = static_cast<int64_t>(pairs.camera.size());
  CudaIndexScratch scratch;
  CudaObservationIndex index;
  CudaWorkspace workspace;
  const auto camera = Upload(pairs.camera);
  const auto point = Upload(pairs.point);
  ASSERT_OK(index.Build(
      {pairs.num_cameras, pairs.num_points, n, camera.data(), point.data()},
      &scratch,
      context_.get()));
  ASSERT_OK(workspace.Setup(index.ref(), {}, &scratch, context_.get()));
  const DeviceScene scene = MakeDeviceScene(pairs, 7);
  auto residuals = Poisoned<double>(2 * n);
  auto jc = Poisoned<double>(18 * n);
  auto jp = Poisoned<double>(6 * n);
  auto evaluation = Poisoned<Evaluation>(1);
  EvaluateJacobianParams<double, C, kDeviceLayout> evaluate;
  evaluate.index = workspace.index();
  evaluate.cameras = scene.states.data();
  evaluate.camera_maps = scene.maps.data();
  evaluate.points = scene.points.data();
  evaluate.observations = scene.observations.data();
  evaluate.residuals = residuals.data();
  evaluate.camera_blocks = {jc.data(), n};
  evaluate.point_blocks = {jp.data(), n};
  evaluate.evaluation = evaluation.data();
  ExpectReplayLikeEager(&residuals,
                        [&] { return kernels::Run(evaluate, machine_.get()); });
  const Source source{
      scene.states.data(), scene.maps.data(), scene.points.data(), nullptr};
  const Stored stored{{jc.data(), n}, {jp.data(), n}};

  const auto d = Upload(
      std::vector<double>(C * pairs.num_cameras + 3 * pairs.num_points, 0.5));
  auto v_inverse = Poisoned<double>(6 * pairs.num_points);
  auto rhs = Poisoned<double>(C * pairs.num_cameras);
  auto schur = Poisoned<double>(45 * pairs.num_cameras);
  auto breakdown = Poisoned<Breakdown>(1);
  const auto blocks = [&](auto jacobian) {
    NormalBlocksParams<decltype(jacobian), kDeviceLayout> params;
    params.index = workspace.index();
    params.jacobian = jacobian;
    params.b = residuals.data();
    params.point_diagonal = d.data();
    params.v_inverse = {v_inverse.data(), pairs.num_points};
    params.schur_rhs = rhs.data();
    params.schur_diagonal = {schur.data(), pairs.num_cameras};
    params.breakdown = breakdown.data();
    return kernels::Run(params, machine_.get());
  };
  ExpectReplayLikeEager(&rhs, [&] { return blocks(stored); });
  ExpectReplayLikeEager(&rhs, [&] { return blocks(source); });
  ExpectReplayLikeEager(&schur, [&] { return blocks(source); });

  const auto p = Upload(RandomVector(C * pairs.num_cameras, 9));
  auto q = Poisoned<double>(C * pairs.num_cameras);
  const auto product = [&](auto jacobian) {
    SchurProductImplicitWParams<decltype(jacobian), kDeviceLayout> params;
    params.index = workspace.index();
    params.jacobian = jacobian;
    params.v_inverse = {v_inverse.data(), pairs.num_points};
    params.camera_diagonal = d.data();
    params.p = p.data();
    params.q = q.data();
    return kernels::Run(params, machine_.get());
  };
  ExpectReplayLikeEager(&q, [&] { return product(source); });
  ExpectReplayLikeEager(&q, [&] { return product(stored); });

  // A PCG iteration from the start.
  auto x = Poisoned<double>(C * pairs.num_cameras);
  auto r = Poisoned<double>(C * pairs.num_cameras);
  auto direction = Poisoned<double>(C * pairs.num_cameras);
  auto scalars = Poisoned<PcgScalars>(1);
  ExpectReplayLikeEager(&x, [&] {
    const int64_t size = C * pairs.num_cameras;
    PcgStartParams start;
    start.n = size;
    start.max_num_iterations = 5;
    start.rhs = rhs.data();
    start.x = x.data();
    start.r = r.data();
    start.scalars = scalars.data();
    CERES_EXT_RETURN_IF_ERROR(kernels::Run(start, machine_.get()));
    CERES_EXT_RETURN_IF_ERROR(
        kernels::Run(PcgRhoParams{size, r.data(), r.data(), scalars.data()},
                     machine_.get()));
    CERES_EXT_RETURN_IF_ERROR(kernels::Run(
        PcgDirectionParams{size, r.data(), direction.data(), scalars.data()},
        machine_.get()));
    SchurProductImplicitWParams<Source, kDeviceLayout> params;
    params.index = workspace.index();
    params.jacobian = source;
    params.v_inverse = {v_inverse.data(), pairs.num_points};
    params.camera_diagonal = d.data();
    params.p = direction.data();
    params.q = q.data();
    params.scalars = scalars.data();
    CERES_EXT_RETURN_IF_ERROR(kernels::Run(params, machine_.get()));
    CERES_EXT_RETURN_IF_ERROR(kernels::Run(
        PcgAlphaParams{size, direction.data(), q.data(), scalars.data()},
        machine_.get()));
    CERES_EXT_RETURN_IF_ERROR(kernels::Run(
        PcgAdvanceParams{size, direction.data(), x.data(), scalars.data()},
        machine_.get()));
    return kernels::Run(PcgResidualParams{size,
                                          false,
                                          rhs.data(),
                                          q.data(),
                                          x.data(),
                                          r.data(),
                                          scalars.data()},
                        machine_.get());
  });
}

}  // namespace
}  // namespace ceres_ext::kernels
