// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// On a GPU only: PCG as a graph that repeats itself gives the bits of PCG
// issued ahead, wherever it ends, and a graph is used for the arrays that it
// was recorded with and no others.
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "benchmarks/inexact_solver.h"
#include "cuda_kernels/machine/cuda_graph.h"
#include "cuda_kernels/machine/cuda_machine.h"
#include "cuda_kernels/ops/block_rows.h"
#include "cuda_kernels/ops/evaluate.h"
#include "cuda_kernels/ops/vectors.h"
#include "tests/kernels/cuda_test_util.h"
#include "tests/kernels/solver_configurations.h"

namespace ceres_ext::kernels {
namespace {

constexpr int C = 9;
using Recomputed = RecomputedJacobian<double, C>;
using Stored = StoredJacobian<float, BalShape<C>, kDeviceLayout>;
using solver::InexactSolver;
using solver::ObservationSystem;
using solver::PcgVectors;
using solver::StepOptions;
using solver::StepPerSolveOptions;
using solver::StepSummary;
using solver::Termination;

// Ends a solve after min_num_iterations.
constexpr StepPerSolveOptions kEndAtMinimum{1e300, -1.0};
constexpr StepPerSolveOptions kEndAtMaximum{-1.0, -1.0};

// The results of a solve.
struct Outcome {
  StepSummary summary;
  std::vector<double> camera;
  std::vector<double> point;
};

void ExpectSame(const Outcome& actual, const Outcome& expected) {
  EXPECT_EQ(actual.summary.termination, expected.summary.termination);
  EXPECT_EQ(actual.summary.num_iterations, expected.summary.num_iterations);
  EXPECT_EQ(actual.summary.message, expected.summary.message);
  EXPECT_EQ(actual.summary.residual_norm, expected.summary.residual_norm);
  EXPECT_TRUE(SameBits(actual.camera, expected.camera));
  EXPECT_TRUE(SameBits(actual.point, expected.point));
}

// A problem in the memory of one context, and two machines for it: one that may
// use graphs and one that may not.
class Problem {
 public:
  Status Setup(const Structure& pairs, CudaContext* context) {
    context_ = context;
    const int64_t n = static_cast<int64_t>(pairs.camera.size());
    num_camera_values_ = int64_t{C} * pairs.num_cameras;
    num_point_values_ = int64_t{3} * pairs.num_points;
    DeviceBuffer<int32_t> camera, point;
    CERES_EXT_RETURN_IF_ERROR(camera.Assign(context, pairs.camera));
    CERES_EXT_RETURN_IF_ERROR(point.Assign(context, pairs.point));
    CERES_EXT_RETURN_IF_ERROR(index_.Build(
        {pairs.num_cameras, pairs.num_points, n, camera.data(), point.data()},
        &scratch_,
        context));
    CERES_EXT_RETURN_IF_ERROR(
        workspace_.Setup(index_.ref(), {}, &scratch_, context));
    CERES_EXT_RETURN_IF_ERROR(graphs_.Setup(context));
    graphs_.EnableLoops();
    CERES_EXT_RETURN_IF_ERROR(ahead_.Setup(context));

    std::vector<double> cameras, points, observations;
    MakeScene(pairs, 5, &cameras, &points, &observations);
    CERES_EXT_RETURN_IF_ERROR(cameras_.Assign(context, cameras));
    CERES_EXT_RETURN_IF_ERROR(points_.Assign(context, points));
    CERES_EXT_RETURN_IF_ERROR(states_.Allocate(context, pairs.num_cameras));
    CERES_EXT_RETURN_IF_ERROR(
        maps_.Allocate(context, int64_t{81} * pairs.num_cameras));
    PrepareCamerasParams<double, C> prepare;
    prepare.num_cameras = pairs.num_cameras;
    prepare.cameras = cameras_.data();
    prepare.states = states_.data();
    prepare.maps = maps_.data();
    CERES_EXT_RETURN_IF_ERROR(Run(prepare, &graphs_));
    const auto random_blocks = [&](int64_t size, unsigned seed, auto* buffer) {
      const std::vector<double> values = RandomVector(size, seed);
      return buffer->Assign(context,
                            std::vector<float>(values.begin(), values.end()));
    };
    CERES_EXT_RETURN_IF_ERROR(random_blocks(2 * C * n, 8, &jc_));
    CERES_EXT_RETURN_IF_ERROR(random_blocks(6 * n, 9, &jp_));
    CERES_EXT_RETURN_IF_ERROR(b_.Assign(context, RandomVector(2 * n, 6)));
    CERES_EXT_RETURN_IF_ERROR(AllocateStep(&camera_step, &point_step));
    return SetDamping(0.5, &camera_diagonal, &point_diagonal);
  }
  const ObservationIndexRef& index() const { return workspace_.index(); }

  // D, in the same memory at each call.
  Status SetDamping(double d,
                    DeviceBuffer<double>* camera,
                    DeviceBuffer<double>* point) {
    CERES_EXT_RETURN_IF_ERROR(
        camera->Assign(context_, std::vector<double>(num_camera_values_, d)));
    return point->Assign(context_, std::vector<double>(num_point_values_, d));
  }
  Status AllocateStep(DeviceBuffer<double>* camera,
                      DeviceBuffer<double>* point) {
    CERES_EXT_RETURN_IF_ERROR(camera->Allocate(context_, num_camera_values_));
    return point->Allocate(context_, num_point_values_);
  }
  Status SetRightHandSide(const std::vector<double>& b) {
    return b_.Assign(context_, b);
  }
  int64_t num_residuals() const { return b_.size(); }

  template <typename Source>
  ObservationSystem<Source> System() {
    ObservationSystem<Source> system;
    if constexpr (std::is_same_v<Source, Recomputed>) {
      system.jacobian = {states_.data(), maps_.data(), points_.data(), nullptr};
    } else {
      const int64_t n = index().num_observations;
      system.jacobian = {{jc_.data(), n}, {jp_.data(), n}};
    }
    system.b = b_.data();
    system.camera_diagonal = camera_diagonal.data();
    system.point_diagonal = point_diagonal.data();
    return system;
  }

  template <typename Source>
  Outcome Solve(const ObservationSystem<Source>& system,
                const StepPerSolveOptions& per_solve,
                InexactSolver<CudaMachine, Source>* solver,
                DeviceBuffer<double>* camera,
                DeviceBuffer<double>* point) {
    Outcome outcome;
    for (DeviceBuffer<double>* step : {camera, point}) {
      EXPECT_TRUE(context_->SetBytes(step->data(), 0, step->bytes()).ok());
    }
    outcome.summary =
        solver->Solve(system, per_solve, camera->data(), point->data());
    EXPECT_TRUE(camera->CopyToHost(&outcome.camera).ok());
    EXPECT_TRUE(point->CopyToHost(&outcome.point).ok());
    return outcome;
  }
  template <typename Source>
  Outcome Solve(const StepPerSolveOptions& per_solve,
                InexactSolver<CudaMachine, Source>* solver) {
    return Solve(
        System<Source>(), per_solve, solver, &camera_step, &point_step);
  }
  // Issued ahead.
  template <typename Source>
  Outcome Expected(const StepOptions& options,
                   const StepPerSolveOptions& per_solve,
                   const ObservationSystem<Source>& system) {
    InexactSolver<CudaMachine, Source> solver;
    const Status status = solver.Setup(options, index(), &ahead_);
    EXPECT_TRUE(status.ok()) << status.message;
    return Solve(system, per_solve, &solver, &camera_step, &point_step);
  }
  template <typename Source>
  Outcome Expected(const StepOptions& options,
                   const StepPerSolveOptions& per_solve) {
    return Expected(options, per_solve, System<Source>());
  }

  CudaMachine* graphs() { return &graphs_; }
  const CudaMachine::LoopRecord& record() const {
    return graphs_.loop_record();
  }

  DeviceBuffer<double> camera_diagonal, point_diagonal, camera_step, point_step;

 private:
  CudaContext* context_ = nullptr;
  int64_t num_camera_values_ = 0;
  int64_t num_point_values_ = 0;
  CudaIndexScratch scratch_;
  CudaObservationIndex index_;
  CudaWorkspace workspace_;
  CudaMachine graphs_;
  CudaMachine ahead_;
  DeviceBuffer<double> cameras_, points_, maps_, b_;
  DeviceBuffer<CameraState<double>> states_;
  DeviceBuffer<float> jc_, jp_;
};

Structure SmallPairs() { return MakePairs(12, 300, {4, 6, 3, 8}, 77); }

class CudaPcgLoopTest : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (!IsSkipped()) {
      ASSERT_OK(problem_.Setup(SmallPairs(), context_.get()));
    }
  }

  // Three solves by one solver: the first queues its iterations at least up to
  // the first reset, the others are a graph from the start.
  template <typename Source>
  void ExpectLikeIssuedAhead(const StepOptions& options,
                             const StepPerSolveOptions& per_solve,
                             bool uses_graph = true) {
    const Outcome expected = problem_.Expected<Source>(options, per_solve);
    EXPECT_NE(expected.summary.termination, Termination::kFatalError)
        << expected.summary.message;
    const CudaMachine::LoopRecord before = problem_.record();
    InexactSolver<CudaMachine, Source> solver;
    ASSERT_OK(solver.Setup(options, problem_.index(), problem_.graphs()));
    for (int i = 0; i < 3; ++i) {
      SCOPED_TRACE(i);
      ExpectSame(problem_.Solve(per_solve, &solver), expected);
    }
    const CudaMachine::LoopRecord& after = problem_.record();
    EXPECT_TRUE(after.status.ok()) << after.status.message;
    EXPECT_EQ(after.num_recordings,
              before.num_recordings + (uses_graph ? 1 : 0));
    if (uses_graph) {
      EXPECT_GE(after.num_launches, before.num_launches + 2);
    } else {
      EXPECT_EQ(after.num_launches, before.num_launches);
    }
  }

  Problem problem_;
};

TEST_F(CudaPcgLoopTest, EndsByTolerance) {
  for (const int n : {1, 2, 9, 10, 11, 19, 20, 21, 35}) {
    SCOPED_TRACE(n);
    StepOptions options;
    options.min_num_iterations = n;
    ExpectLikeIssuedAhead<Recomputed>(options, kEndAtMinimum);
    ExpectLikeIssuedAhead<Stored>(options, kEndAtMinimum);
  }
  // Before the first iteration.
  ExpectLikeIssuedAhead<Recomputed>({}, {-1.0, 1.0});
  EXPECT_EQ(
      problem_.Expected<Recomputed>({}, {-1.0, 1.0}).summary.num_iterations, 0);
}

TEST_F(CudaPcgLoopTest, EndsAtMaxNumIterations) {
  for (const int n : {1, 4, 5, 9, 10, 11, 15, 20, 25}) {
    SCOPED_TRACE(n);
    StepOptions options;
    options.max_num_iterations = n;
    ExpectLikeIssuedAhead<Recomputed>(options, kEndAtMaximum, n >= 5);
  }
}

TEST_F(CudaPcgLoopTest, ResetPeriods) {
  for (const int period : {1, 2, 7, 20, 21, 1000}) {
    SCOPED_TRACE(period);
    StepOptions options;
    options.residual_reset_period = period;
    options.max_num_iterations = 30;
    ExpectLikeIssuedAhead<Recomputed>(options, kEndAtMaximum, period <= 20);
  }
}

TEST_F(CudaPcgLoopTest, Configurations) {
  for (const StepOptions& options : solver::SolverConfigurations()) {
    SCOPED_TRACE(solver::ConfigurationName(options));
    ExpectLikeIssuedAhead<Recomputed>(options, {-1.0, 1e-8});
    ExpectLikeIssuedAhead<Stored>(options, {-1.0, 1e-8});
  }
}

TEST_F(CudaPcgLoopTest, ZeroRightHandSide) {
  ASSERT_OK(problem_.SetRightHandSide(
      std::vector<double>(problem_.num_residuals(), 0.0)));
  ExpectLikeIssuedAhead<Recomputed>({}, kEndAtMaximum);
  EXPECT_EQ(problem_.Expected<Recomputed>({}, kEndAtMaximum).summary.message,
            "Convergence. |b| = 0.");
}

// Another trust-region radius and another right-hand side, other tolerances:
// the arrays are the same, and so is the graph.
TEST_F(CudaPcgLoopTest, OneGraphForAllRadii) {
  InexactSolver<CudaMachine, Recomputed> solver;
  ASSERT_OK(solver.Setup({}, problem_.index(), problem_.graphs()));
  unsigned seed = 20;
  for (const double d : {0.5, 0.05, 3.0, 0.5}) {
    for (const double tolerance : {1e-2, 1e-9}) {
      SCOPED_TRACE(::testing::Message() << d << " " << tolerance);
      ASSERT_OK(problem_.SetDamping(
          d, &problem_.camera_diagonal, &problem_.point_diagonal));
      ASSERT_OK(problem_.SetRightHandSide(
          RandomVector(problem_.num_residuals(), ++seed)));
      const Outcome expected =
          problem_.Expected<Recomputed>({}, {-1.0, tolerance});
      ExpectSame(problem_.Solve({-1.0, tolerance}, &solver), expected);
    }
  }
  EXPECT_TRUE(problem_.record().status.ok())
      << problem_.record().status.message;
  EXPECT_EQ(problem_.record().num_recordings, 1);
  EXPECT_GE(problem_.record().num_launches, 7);
}

// Two graphs are kept; a third replaces one.
TEST_F(CudaPcgLoopTest, OtherArrays) {
  constexpr StepPerSolveOptions kPerSolve{-1.0, 1e-8};
  DeviceBuffer<double> camera_diagonal[3], point_diagonal[3];
  DeviceBuffer<double> camera_step[3], point_step[3];
  Outcome expected[3];
  ObservationSystem<Recomputed> system[3];
  for (int i = 0; i < 3; ++i) {
    ASSERT_OK(problem_.SetDamping(
        0.1 + 0.3 * i, &camera_diagonal[i], &point_diagonal[i]));
    ASSERT_OK(problem_.AllocateStep(&camera_step[i], &point_step[i]));
    system[i] = problem_.System<Recomputed>();
    system[i].camera_diagonal = camera_diagonal[i].data();
    system[i].point_diagonal = point_diagonal[i].data();
    expected[i] = problem_.Expected({}, kPerSolve, system[i]);
  }
  InexactSolver<CudaMachine, Recomputed> solver;
  ASSERT_OK(solver.Setup({}, problem_.index(), problem_.graphs()));
  const auto solve = [&](int i) {
    SCOPED_TRACE(i);
    ExpectSame(
        problem_.Solve(
            system[i], kPerSolve, &solver, &camera_step[i], &point_step[i]),
        expected[i]);
  };
  for (int round = 0; round < 3; ++round) {
    solve(0);
    solve(1);
  }
  EXPECT_EQ(problem_.record().num_recordings, 2);
  for (const int i : {2, 2, 1, 2}) {
    solve(i);
  }
  EXPECT_EQ(problem_.record().num_recordings, 3);
  for (const int i : {0, 0, 2, 0}) {
    solve(i);
  }
  EXPECT_EQ(problem_.record().num_recordings, 4);
  EXPECT_TRUE(problem_.record().status.ok())
      << problem_.record().status.message;

  // Other options, with the same arrays.
  StepOptions options;
  options.residual_reset_period = 4;
  ASSERT_OK(solver.Setup(options, problem_.index(), problem_.graphs()));
  expected[0] = problem_.Expected(options, kPerSolve, system[0]);
  solve(0);
  solve(0);
  EXPECT_EQ(problem_.record().num_recordings, 5);
}

// A graph is made in the second of four solves.
TEST_F(CudaPcgLoopTest, AfterManyIterations) {
  StepOptions options;
  options.max_num_iterations = 30;
  const Outcome expected =
      problem_.Expected<Recomputed>(options, kEndAtMaximum);
  ASSERT_EQ(expected.summary.num_iterations, options.max_num_iterations);
  CudaMachine machine;
  ASSERT_OK(machine.Setup(context_.get()));
  // The first solve asks for one more than there are.
  machine.EnableLoops(options.max_num_iterations + 3);
  InexactSolver<CudaMachine, Recomputed> solver;
  ASSERT_OK(solver.Setup(options, problem_.index(), &machine));
  for (int i = 0; i < 4; ++i) {
    ExpectSame(problem_.Solve(kEndAtMaximum, &solver), expected);
    EXPECT_EQ(machine.loop_record().num_recordings, i == 0 ? 0 : 1);
    EXPECT_EQ(machine.loop_record().num_launches, i);
  }
  EXPECT_TRUE(machine.loop_record().status.ok());
}

// Machine and solver are set up again, for a larger problem and back.
TEST_F(CudaPcgLoopTest, OtherSizes) {
  constexpr StepPerSolveOptions kPerSolve{-1.0, 1e-8};
  Problem larger;
  ASSERT_OK(larger.Setup(MakeEdgePairs(), context_.get()));
  InexactSolver<CudaMachine, Recomputed> solver;
  CudaMachine machine;
  ASSERT_OK(machine.Setup(context_.get()));
  machine.EnableLoops();
  for (Problem* problem : {&problem_, &larger, &problem_}) {
    ASSERT_OK(machine.Setup(context_.get()));
    ASSERT_OK(solver.Setup({}, problem->index(), &machine));
    const Outcome expected = problem->Expected<Recomputed>({}, kPerSolve);
    for (int i = 0; i < 2; ++i) {
      ExpectSame(problem->Solve(kPerSolve, &solver), expected);
    }
  }
  EXPECT_TRUE(machine.loop_record().status.ok());
  EXPECT_EQ(machine.loop_record().num_recordings, 3);
}

// A of 3 x 3 blocks that need not be positive, M = I.
class CudaPcgLoopMatrixTest : public CudaPcgLoopTest {
 protected:
  // diagonal: of A. The end of the first solve.
  void Solve(const std::vector<double>& diagonal,
             const std::vector<double>& rhs,
             PcgEnd end,
             int num_iterations,
             const BreakdownArrays& breakdowns = {}) {
    const int64_t n = static_cast<int64_t>(diagonal.size());
    const int64_t num_blocks = n / 3;
    std::vector<double> packed(6 * num_blocks, 0.0);
    for (int64_t i = 0; i < n; ++i) {
      packed[6 * (i / 3) + PackedIndex(i % 3, i % 3)] = diagonal[i];
    }
    const auto a = Upload(ToDeviceLayout<double>(packed, 6));
    const auto b = Upload(rhs);
    auto x = Poisoned<double>(n), p = Poisoned<double>(n),
         r = Poisoned<double>(n), z = Poisoned<double>(n);
    auto scalars = Poisoned<PcgScalars>(1);
    PcgVectors v;
    v.space.num_f = n;
    v.rhs = b.data();
    v.x = x.data();
    v.p = p.data();
    v.r = r.data();
    v.z = z.data();
    v.scalars = scalars.data();
    StepOptions options;
    options.max_num_iterations = 50;
    std::vector<double> first_x;
    CudaMachine ahead;
    ASSERT_OK(ahead.Setup(context_.get()));
    CudaMachine::PcgLoop loop;
    const int64_t num_launches = problem_.record().num_launches;
    for (CudaMachine* machine :
         {&ahead, problem_.graphs(), problem_.graphs(), problem_.graphs()}) {
      PcgScalars result;
      ASSERT_OK(solver::ConjugateGradients(
          options,
          kEndAtMaximum,
          /*forcing=*/{},
          breakdowns,
          v,
          [&](const double* from, double* to) {
            ApplyBlocksParams<3> params;
            params.n = num_blocks;
            params.a = PackedBlocks<const double>(
                {3, static_cast<int32_t>(num_blocks)}, kDeviceLayout, a.data());
            params.r = from;
            params.z = to;
            params.scalars = v.scalars;
            return kernels::Run(params, machine);
          },
          [&](const double* from, double* to) {
            return kernels::Run(CopyParams{n, from, to}, machine);
          },
          [] { return kernels::Status(); },
          &loop,
          machine,
          &result));
      EXPECT_EQ(result.end, end);
      EXPECT_EQ(result.num_iterations, num_iterations);
      if (machine == &ahead) {
        first_x = Download(x);
      } else {
        EXPECT_TRUE(SameBits(Download(x), first_x));
      }
    }
    EXPECT_TRUE(problem_.record().status.ok())
        << problem_.record().status.message;
    EXPECT_GE(problem_.record().num_launches, num_launches + 2);
  }
};

TEST_F(CudaPcgLoopMatrixTest, Breakdown) {
  const int n = 30;
  std::vector<double> diagonal(n), rhs(n, 1.0);
  for (int i = 0; i < n; ++i) {
    diagonal[i] = -1.0 - i;
  }
  Solve(diagonal, rhs, PcgEnd::kIndefinite, 1);
  // p'A p is the sum of the diagonal where p = b is all ones.
  for (int i = 0; i < n; ++i) {
    diagonal[i] = i == 0 ? -0.5 * n * (n - 1) : i;
  }
  Solve(diagonal, rhs, PcgEnd::kIndefinite, 1);
  // Solved exactly: r = 0 after an iteration.
  Solve(std::vector<double>(n, 2.0), rhs, PcgEnd::kResidual, 1);
  Solve(std::vector<double>(n, 2.0),
        std::vector<double>(n, 0.0),
        PcgEnd::kZeroRightHandSide,
        0);
}

TEST_F(CudaPcgLoopMatrixTest, BlocksWithoutInverse) {
  constexpr int kOf[] = {1, 3};
  const std::vector<double> diagonal(30, 2.0), rhs(30, 1.0);
  for (int broken = -1; broken < kOf[0] + kOf[1]; ++broken) {
    SCOPED_TRACE(broken);
    std::vector<Breakdown> records(kOf[0] + kOf[1]);
    if (broken >= 0) {
      records[broken].first_block = 0;
    }
    const auto device = Upload(records);
    BreakdownArrays breakdowns;
    breakdowns.Add(device.data(), kOf[0]);
    breakdowns.Add(device.data() + kOf[0], kOf[1]);
    Solve(diagonal,
          rhs,
          broken < 0 ? PcgEnd::kResidual : PcgEnd::kBlockBreakdown,
          broken < 0 ? 1 : 0,
          breakdowns);
  }
}

// Two eigenvalues, one of them negative: the first direction is nearly along
// the positive one, and the second, conjugate to it, has p'A p < 0.
TEST_F(CudaPcgLoopMatrixTest, IndefiniteLater) {
  std::vector<double> diagonal(30, 1.0), rhs(30, 1.0);
  diagonal[7] = -1.0;
  Solve(diagonal, rhs, PcgEnd::kIndefinite, 2);
}

TEST_F(CudaPcgLoopTest, StreamsOfTheCaller) {
  constexpr StepPerSolveOptions kPerSolve{-1.0, 1e-8};
  const Outcome expected = problem_.Expected<Recomputed>({}, kPerSolve);
  cudaStream_t non_blocking = nullptr;
  cudaStream_t blocking = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&non_blocking, cudaStreamNonBlocking),
            cudaSuccess);
  ASSERT_EQ(cudaStreamCreate(&blocking), cudaSuccess);
  for (const cudaStream_t stream :
       {non_blocking, blocking, cudaStreamLegacy, cudaStreamPerThread}) {
    SCOPED_TRACE(stream == non_blocking ? "non-blocking" : "blocking");
    CudaContextOptions options;
    options.stream = stream;
    std::unique_ptr<CudaContext> context;
    ASSERT_OK(CudaContext::Create(options, &context));
    Problem problem;
    ASSERT_OK(problem.Setup(SmallPairs(), context.get()));
    InexactSolver<CudaMachine, Recomputed> solver;
    ASSERT_OK(solver.Setup({}, problem.index(), problem.graphs()));
    for (int i = 0; i < 3; ++i) {
      ExpectSame(problem.Solve(kPerSolve, &solver), expected);
    }
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
    EXPECT_EQ(problem.record().num_recordings, 1);
    EXPECT_TRUE(problem.record().status.ok())
        << problem.record().status.message;
    EXPECT_GE(problem.record().num_launches, 2);
  }
  EXPECT_EQ(cudaStreamDestroy(non_blocking), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(blocking), cudaSuccess);
}

// Whatever goes wrong, there is no graph and the stream takes work.
TEST_F(CudaPcgLoopTest, FailedRecordings) {
  const cudaStream_t stream = context_->stream();
  auto scalars = Upload(std::vector<PcgScalars>(1));
  CudaGraph graph;
  const Status status = graph.RecordLoop(
      [] { return Status(StatusCode::kNumericalFailure, "The queue's own."); },
      scalars.data());
  EXPECT_EQ(status.code, StatusCode::kNumericalFailure) << status.message;
  EXPECT_TRUE(graph.empty());
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(Download(scalars)[0].end, PcgEnd::kRunning);

  // And a loop without a body ends when the scalars have ended.
  PcgScalars ended;
  ended.end = PcgEnd::kResidual;
  ASSERT_OK(scalars.Assign(context_.get(), {ended}));
  ASSERT_OK(graph.RecordLoop([] { return Status(); }, scalars.data()));
  for (int i = 0; i < 2; ++i) {
    ASSERT_OK(graph.Launch(stream));
  }
  ASSERT_OK(context_->Synchronize());
}

// Work of other threads during a recording neither fails nor ends it, and their
// launches do not become part of it.
TEST_F(CudaPcgLoopTest, OtherThreadsDuringARecording) {
  PcgScalars ended;
  ended.end = PcgEnd::kResidual;
  const auto scalars = Upload(std::vector<PcgScalars>{ended});
  CudaGraph graph;
  ASSERT_OK(graph.RecordLoop(
      [this]() -> Status {
        std::thread([this] {
          auto value = Upload(std::vector<double>{1.0});
          RunOk(NegateParams{1, value.data(), value.data()}, machine_.get());
          EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
          EXPECT_EQ(Download(value), std::vector<double>{-1.0});
        }).join();
        return {};
      },
      scalars.data()));
  ASSERT_OK(graph.Launch(context_->stream()));
  ASSERT_OK(context_->Synchronize());
}

TEST_F(CudaPcgLoopTest, SolvesAtOnce) {
  constexpr StepPerSolveOptions kPerSolve{-1.0, 1e-8};
  const Outcome expected = problem_.Expected<Recomputed>({}, kPerSolve);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&expected, kPerSolve] {
      for (int round = 0; round < 5; ++round) {
        std::unique_ptr<CudaContext> context;
        ASSERT_OK(CudaContext::Create({}, &context));
        Problem problem;
        ASSERT_OK(problem.Setup(SmallPairs(), context.get()));
        InexactSolver<CudaMachine, Recomputed> solver;
        ASSERT_OK(solver.Setup({}, problem.index(), problem.graphs()));
        for (int i = 0; i < 4; ++i) {
          ExpectSame(problem.Solve(kPerSolve, &solver), expected);
        }
        EXPECT_TRUE(problem.record().status.ok())
            << problem.record().status.message;
        EXPECT_EQ(problem.record().num_recordings, 1);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

}  // namespace
}  // namespace ceres_ext::kernels
