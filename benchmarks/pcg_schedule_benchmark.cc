// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Ways of having a device run the iterations of PCG, on S z = s with
// SCHUR_JACOBI and implicit W, on synthetic problems of sizes of the BAL data
// set (bal_synthetic.h).
//
//   pcg_schedule_benchmark [--quick] [output.json]
//
// --quick: the two smallest problems.
//
// A solve is timed by the host's clock, with the stream idle at its start, from
// the call until the host holds the scalars of the end: what InexactSolver
// waits for before it substitutes back. The device ends the solve after a fixed
// number of iterations; the host, as in a solve that a tolerance ends, doesn't
// know the number. Median of the runs after one. x and |r| of the first and of
// the last run must be the bits of InexactSolver's, else the line says so and
// the exit status is 1. Two lines are of one schedule, look-behind 3: what they
// differ by is noise.
//
// A schedule that CUDA refuses is reported, and the rest goes on.
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/pcg_schedule_kernels.h"
#include "ceres_ext/solver/conjugate_gradients.h"
#include "ceres_ext/solver/cuda_backend.h"
#include "ceres_ext/solver/inexact_solver.h"
#include "cuda_kernels/cuda_operations.h"
#include "examples/bal/bal_synthetic.h"

namespace ceres_ext {
namespace {

using namespace kernels;  // NOLINT: the whole file is about them.
using solver::InexactSolver;
using solver::InexactSolverOptions;
using solver::LinearSystem;

// Ceres's period, and iterations per graph.
constexpr int kResetPeriod = 10;

// CudaBackend with another look-behind and a number of iterations that only the
// device knows.
class ScheduleBackend : public solver::CudaBackend {
 public:
  static constexpr int kAsCudaBackend = -1;
  static constexpr int kMaxLookBehind = 8;

  Status Setup(const ObservationIndexView& index,
               const CudaWorkspace::Options& options,
               CudaIndexScratch* scratch,
               CudaContext* context) {
    CERES_EXT_RETURN_IF_ERROR(events_.Setup(kNumSlots));
    CERES_EXT_RETURN_IF_ERROR(seen_.Allocate(kNumSlots * sizeof(PcgScalars)));
    return CudaBackend::Setup(index, options, scratch, context);
  }
  void set_look_behind(int look_behind) { look_behind_ = look_behind; }
  void set_num_iterations(int n) { num_iterations_ = n; }

  using CudaBackend::Run;
  Status Run(const PcgStartParams& given) {
    PcgStartParams params = given;
    params.min_num_iterations = num_iterations_;
    params.max_num_iterations = num_iterations_;
    scalars_ = params.scalars;
    return CudaBackend::Run(params);
  }

  bool ShouldPoll(int iteration) {
    if (look_behind_ == kAsCudaBackend) {
      return CudaBackend::ShouldPoll(iteration);
    }
    auto* seen = static_cast<PcgScalars*>(seen_.data());
    const int slot = iteration % kNumSlots;
    if (!context()
             ->QueueCopyToHost(seen + slot, scalars_, sizeof(*seen))
             .ok() ||
        !events_.Record(slot, context()->stream()).ok()) {
      return true;
    }
    if (iteration < look_behind_) {
      return false;
    }
    const int past = (iteration - look_behind_) % kNumSlots;
    return !events_.Wait(past).ok() || seen[past].end != PcgEnd::kRunning;
  }

 private:
  static constexpr int kNumSlots = kMaxLookBehind + 1;

  CudaEvents events_;
  PageLockedBuffer seen_;
  const PcgScalars* scalars_ = nullptr;
  int look_behind_ = kAsCudaBackend;
  int num_iterations_ = 0;
};

// The steps of PCG as InexactSolver queues them.
template <typename Source>
class SchurPcg {
 public:
  // Vi, s, M^-1 and memory. The backend must outlive this object.
  Status Setup(const LinearSystem<Source>& system, ScheduleBackend* backend) {
    system_ = system;
    backend_ = backend;
    num_cameras_ = backend->index().num_cameras;
    num_points_ = backend->index().num_points;
    const int64_t n = 9 * num_cameras_;
    CERES_EXT_RETURN_IF_ERROR(backend->Allocate(6 * num_points_, &v_inverse_));
    CERES_EXT_RETURN_IF_ERROR(
        backend->Allocate(45 * num_cameras_, &preconditioner_));
    for (DeviceBuffer<double>* vector : {&rhs_, &x_, &p_, &r_, &z_}) {
      CERES_EXT_RETURN_IF_ERROR(backend->Allocate(n, vector));
    }
    CERES_EXT_RETURN_IF_ERROR(
        backend->Allocate(kPcgVectorStepsPartialSize, &partial_));
    CERES_EXT_RETURN_IF_ERROR(backend->Allocate(1, &scalars_));
    CERES_EXT_RETURN_IF_ERROR(backend->Allocate(1, &breakdown_));
    vectors_.n = n;
    vectors_.rhs = rhs_.data();
    vectors_.x = x_.data();
    vectors_.p = p_.data();
    vectors_.r = r_.data();
    vectors_.z = z_.data();
    vectors_.scalars = scalars_.data();

    NormalBlocksParams<Source, kDeviceLayout> blocks;
    blocks.index = backend->index();
    blocks.jacobian = system.jacobian;
    blocks.b = system.b;
    blocks.point_diagonal = system.point_diagonal;
    blocks.breakdown = breakdown_.data();
    blocks.v_inverse = {v_inverse_.data(), num_points_};
    blocks.schur_rhs = rhs_.data();
    blocks.schur_diagonal = {preconditioner_.data(), num_cameras_};
    CERES_EXT_RETURN_IF_ERROR(backend->Run(blocks));
    InvertBlockDiagonalParams<9, kDeviceLayout> invert;
    invert.num_blocks = num_cameras_;
    invert.a = {preconditioner_.data(), num_cameras_};
    invert.diagonal = system.camera_diagonal;
    invert.inverse = {preconditioner_.data(), num_cameras_};
    invert.first_breakdown = &breakdown_.data()->first_camera;
    CERES_EXT_RETURN_IF_ERROR(backend->Run(invert));
    return backend->context()->Synchronize();
  }

  const solver::PcgVectors& vectors() const { return vectors_; }
  const DeviceBuffer<double>& x() const { return x_; }

  Status Start() {
    PcgStartParams start;
    start.n = vectors_.n;
    start.q_tolerance = -1.0;
    start.r_tolerance = -1.0;
    start.rhs = vectors_.rhs;
    start.x = vectors_.x;
    start.r = vectors_.r;
    start.scalars = vectors_.scalars;
    return backend_->Run(start);
  }
  // z = M^-1 r
  Status Precondition(const double* r, double* z) {
    ApplyBlockDiagonalParams<9, kDeviceLayout> params;
    params.num_blocks = num_cameras_;
    params.inverse = {preconditioner_.data(), num_cameras_};
    params.r = r;
    params.z = z;
    params.scalars = vectors_.scalars;
    return backend_->Run(params);
  }
  // q = S p
  Status Multiply(const double* p, double* q) {
    SchurProductImplicitWParams<Source, kDeviceLayout> params;
    params.index = backend_->index();
    params.jacobian = system_.jacobian;
    params.v_inverse = {v_inverse_.data(), num_points_};
    params.camera_diagonal = system_.camera_diagonal;
    params.p = p;
    params.q = q;
    params.scalars = vectors_.scalars;
    return backend_->Run(params);
  }
  // z = M^-1 r, rho, p
  Status Direction() {
    CERES_EXT_RETURN_IF_ERROR(Precondition(vectors_.r, vectors_.z));
    PcgDirectionParams params;
    params.n = vectors_.n;
    params.r = vectors_.r;
    params.z = vectors_.z;
    params.p = vectors_.p;
    params.scalars = vectors_.scalars;
    return backend_->Run(params);
  }
  // alpha, x
  Status Advance() {
    PcgAdvanceParams params;
    params.n = vectors_.n;
    params.p = vectors_.p;
    params.q = vectors_.z;
    params.x = vectors_.x;
    params.scalars = vectors_.scalars;
    return backend_->Run(params);
  }
  // r, tests
  Status Residual(bool reset) {
    if (reset) {
      CERES_EXT_RETURN_IF_ERROR(Multiply(vectors_.x, vectors_.z));
    }
    PcgResidualParams params;
    params.n = vectors_.n;
    params.reset = reset;
    params.rhs = vectors_.rhs;
    params.q = vectors_.z;
    params.x = vectors_.x;
    params.r = vectors_.r;
    params.scalars = vectors_.scalars;
    return backend_->Run(params);
  }

  // An iteration up to the choice of its residual.
  Status FirstHalf() {
    CERES_EXT_RETURN_IF_ERROR(Direction());
    CERES_EXT_RETURN_IF_ERROR(Multiply(vectors_.p, vectors_.z));
    return Advance();
  }
  // Iteration i, counted from 0.
  Status Iterate(int i) {
    CERES_EXT_RETURN_IF_ERROR(FirstHalf());
    return Residual((i + 1) % kResetPeriod == 0);
  }
  // The same from product to product, its vector steps in one kernel. Direction
  // comes before the first.
  Status IterateWithVectorSteps(int i) {
    PcgVectorStepsParams params;
    params.n = vectors_.n;
    params.inverse = {preconditioner_.data(), num_cameras_};
    params.rhs = vectors_.rhs;
    params.q = vectors_.z;
    params.x = vectors_.x;
    params.r = vectors_.r;
    params.z = vectors_.z;
    params.p = vectors_.p;
    params.scalars = vectors_.scalars;
    params.partial = partial_.data();
    params.reset = (i + 1) % kResetPeriod == 0;
    params.advance = !params.reset;
    CERES_EXT_RETURN_IF_ERROR(Multiply(vectors_.p, vectors_.z));
    if (params.reset) {
      CERES_EXT_RETURN_IF_ERROR(Advance());
      CERES_EXT_RETURN_IF_ERROR(Multiply(vectors_.x, vectors_.z));
    }
    return PcgVectorSteps(params, backend_->context()->stream());
  }

 private:
  LinearSystem<Source> system_;
  ScheduleBackend* backend_ = nullptr;
  int64_t num_cameras_ = 0;
  int64_t num_points_ = 0;
  solver::PcgVectors vectors_;
  DeviceBuffer<double> v_inverse_, preconditioner_, rhs_, x_, p_, r_, z_,
      partial_;
  DeviceBuffer<PcgScalars> scalars_;
  DeviceBuffer<Breakdown> breakdown_;
};

// What a solve leaves: x, then |r|.
using Outcome = std::vector<double>;

bool SameBits(const Outcome& a, const Outcome& b) {
  return a.size() == b.size() &&
         std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0;
}

struct Schedule {
  std::string name;
  // Of the graph; null where there is none.
  std::function<Status()> prepare;
  // From the start to the scalars of the end on the host.
  std::function<Status(PcgScalars*)> solve;
};

double Seconds() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

class Benchmark {
 public:
  explicit Benchmark(const char* json_path) : json_path_(json_path) {}

  // Whether all that CUDA took gave the bits expected.
  bool Run(bool quick) {
    Status status = CudaContext::Create({}, &context_);
    if (status.ok()) {
      status = events_.Setup(2);
    }
    if (!status.ok()) {
      std::fprintf(stderr, "%s\n", status.message.c_str());
      return false;
    }
    int driver = 0;
    int runtime = 0;
    if (cudaDriverGetVersion(&driver) != cudaSuccess ||
        cudaRuntimeGetVersion(&runtime) != cudaSuccess) {
      ClearCudaError();
    }
    std::printf(
        "%s, driver for CUDA %d.%d, runtime %d.%d.\n"
        "Microseconds of the host's clock from the call of a solve to the "
        "scalars of its end\non the host, by number of iterations; in brackets "
        "per iteration.\n",
        context_->device_name().c_str(),
        driver / 1000,
        driver % 1000 / 10,
        runtime / 1000,
        runtime % 1000 / 10);
    std::vector<const char*> names = {"trafalgar-21", "dubrovnik-88"};
    if (!quick) {
      names.insert(names.end(), {"venice-245", "venice-1778", "final-13682"});
    }
    status = LoadScheduleKernels();
    if (status.ok()) {
      status = WarmUp();
    }
    if (!status.ok()) {
      Report("warm-up", status);
    }
    for (const char* name : names) {
      status = MeasureProblem(name);
      if (!status.ok()) {
        Report(name, status);
      }
    }
    return WriteJson() && !failed_;
  }

 private:
  void Report(const std::string& what, const Status& status) {
    failed_ = true;
    std::printf("  %-44s failed: %s: %s\n",
                what.c_str(),
                StatusCodeToString(status.code),
                status.message.c_str());
    // What is queued still must not meet what comes next.
    static_cast<void>(context_->Synchronize().ok());
    ClearCudaError();
  }

  template <typename T>
  Status Upload(const std::vector<T>& host, DeviceBuffer<T>* buffer) {
    return buffer->Assign(context_.get(), host);
  }

  Status MeasureProblem(const std::string& name) {
    bal::SyntheticOptions options;
    bal::SyntheticProblem synthetic;
    std::string error;
    const double begin = Seconds();
    if (!bal::FindBalSize(name, &options) ||
        !bal::GenerateSynthetic(options, &synthetic, &error)) {
      return Status(StatusCode::kInvalidArgument, "No such problem. " + error);
    }
    const bal::BalProblem& bal = synthetic.start;
    problem_name_ = name;
    num_cameras_ = options.num_cameras;
    num_points_ = options.num_points;
    num_observations_ = options.num_observations;
    std::printf(
        "\n%s: %lld cameras, %lld points, %lld observations (made in %.1f s)\n",
        name.c_str(),
        static_cast<long long>(num_cameras_),
        static_cast<long long>(num_points_),
        static_cast<long long>(num_observations_),
        Seconds() - begin);
    // At the largest size an iteration outweighs all schedules.
    counts_ = num_observations_ > 10000000 ? std::vector<int>{5, 20}
                                           : std::vector<int>{5, 20, 100};

    DeviceBuffer<int32_t> camera, point;
    CERES_EXT_RETURN_IF_ERROR(Upload(bal.camera_index, &camera));
    CERES_EXT_RETURN_IF_ERROR(Upload(bal.point_index, &point));
    CudaObservationIndex index;
    CERES_EXT_RETURN_IF_ERROR(index.Build(options.num_cameras,
                                          options.num_points,
                                          num_observations_,
                                          camera.data(),
                                          point.data(),
                                          &scratch_,
                                          context_.get()));
    DeviceBuffer<double> cameras, points, observations;
    DeviceBuffer<float> float_points;
    CERES_EXT_RETURN_IF_ERROR(Upload(bal.cameras, &cameras));
    CERES_EXT_RETURN_IF_ERROR(Upload(bal.points, &points));
    CERES_EXT_RETURN_IF_ERROR(
        Upload(std::vector<float>(bal.points.begin(), bal.points.end()),
               &float_points));
    // Already in the order of the index: ORDER_BY_POINT.
    CERES_EXT_RETURN_IF_ERROR(Upload(bal.observations, &observations));
    DeviceBuffer<CameraState<double>> states;
    DeviceBuffer<CameraState<float>> float_states;
    DeviceBuffer<double> maps;
    DeviceBuffer<float> float_maps;
    CERES_EXT_RETURN_IF_ERROR(PrepareCameras(cameras, &states, &maps));
    CERES_EXT_RETURN_IF_ERROR(
        PrepareCameras(cameras, &float_states, &float_maps));

    const RecomputedJacobian<double, 9> recomputed{
        states.data(), maps.data(), points.data(), nullptr};
    CERES_EXT_RETURN_IF_ERROR(EvaluateResiduals(
        index.view(), recomputed, observations, &residuals_, &diagonal_));
    Measure("double recomputed", index.view(), recomputed);
    Measure("mixed recomputed",
            index.view(),
            RecomputedJacobian<float, 9>{float_states.data(),
                                         float_maps.data(),
                                         float_points.data(),
                                         nullptr});

    DeviceBuffer<double> jc, jp, residuals;
    DeviceBuffer<Evaluation> evaluation;
    const int64_t n = num_observations_;
    CERES_EXT_RETURN_IF_ERROR(jc.Allocate(context_.get(), 18 * n));
    CERES_EXT_RETURN_IF_ERROR(jp.Allocate(context_.get(), 6 * n));
    CERES_EXT_RETURN_IF_ERROR(residuals.Allocate(context_.get(), 2 * n));
    CERES_EXT_RETURN_IF_ERROR(evaluation.Allocate(context_.get(), 1));
    {
      CudaWorkspace workspace;
      CERES_EXT_RETURN_IF_ERROR(workspace.Setup(
          index.view(),
          CudaWorkspace::Options::For<StoredJacobian<double, 9, kDeviceLayout>>(
              false),
          &scratch_,
          context_.get()));
      EvaluateJacobianParams<double, 9, kDeviceLayout> evaluate;
      evaluate.index = index.view();
      evaluate.cameras = states.data();
      evaluate.camera_maps = maps.data();
      evaluate.points = points.data();
      evaluate.observations = observations.data();
      evaluate.residuals = residuals.data();
      evaluate.camera_blocks = {jc.data(), n};
      evaluate.point_blocks = {jp.data(), n};
      evaluate.evaluation = evaluation.data();
      CERES_EXT_RETURN_IF_ERROR(cuda::EvaluateJacobian(
          evaluate, workspace.view(), context_->stream()));
      CERES_EXT_RETURN_IF_ERROR(context_->Synchronize());
    }
    Measure("double stored",
            index.view(),
            StoredJacobian<double, 9, kDeviceLayout>{{jc.data(), n},
                                                     {jp.data(), n}});
    return {};
  }

  template <typename T>
  Status PrepareCameras(const DeviceBuffer<double>& cameras,
                        DeviceBuffer<CameraState<T>>* states,
                        DeviceBuffer<T>* maps) {
    CERES_EXT_RETURN_IF_ERROR(states->Allocate(context_.get(), num_cameras_));
    CERES_EXT_RETURN_IF_ERROR(
        maps->Allocate(context_.get(), 81 * num_cameras_));
    PrepareCamerasParams<T, 9> prepare;
    prepare.num_cameras = static_cast<int32_t>(num_cameras_);
    prepare.cameras = cameras.data();
    prepare.states = states->data();
    prepare.maps = maps->data();
    return cuda::PrepareCameras(prepare, context_->stream());
  }

  // b, and D with D^2 a hundredth of diag(J'J): no column is without damping
  // that the rounding of float products leaves positive.
  Status EvaluateResiduals(const ObservationIndexView& index,
                           const RecomputedJacobian<double, 9>& source,
                           const DeviceBuffer<double>& observations,
                           DeviceBuffer<double>* residuals,
                           DeviceBuffer<double>* diagonal) {
    using Source = RecomputedJacobian<double, 9>;
    CudaWorkspace workspace;
    CERES_EXT_RETURN_IF_ERROR(
        workspace.Setup(index,
                        CudaWorkspace::Options::For<Source>(false),
                        &scratch_,
                        context_.get()));
    DeviceBuffer<Evaluation> evaluation;
    CERES_EXT_RETURN_IF_ERROR(evaluation.Allocate(context_.get(), 1));
    CERES_EXT_RETURN_IF_ERROR(
        residuals->Allocate(context_.get(), 2 * num_observations_));
    EvaluateCostParams cost;
    cost.index = index;
    cost.cameras = source.cameras;
    cost.points = source.points;
    cost.observations = observations.data();
    cost.residuals = residuals->data();
    cost.evaluation = evaluation.data();
    CERES_EXT_RETURN_IF_ERROR(
        cuda::EvaluateCost(cost, workspace.view(), context_->stream()));
    const int64_t n = 9 * num_cameras_ + 3 * num_points_;
    CERES_EXT_RETURN_IF_ERROR(diagonal->Allocate(context_.get(), n));
    SquaredColumnNormsParams<Source> norms;
    norms.index = index;
    norms.jacobian = source;
    norms.camera_x = diagonal->data();
    norms.point_x = diagonal->data() + 9 * num_cameras_;
    CERES_EXT_RETURN_IF_ERROR(
        cuda::SquaredColumnNorms(norms, workspace.view(), context_->stream()));
    std::vector<double> d;
    CERES_EXT_RETURN_IF_ERROR(diagonal->CopyToHost(&d));
    for (double& x : d) {
      x = 0.1 * std::sqrt(x);
    }
    return diagonal->Assign(context_.get(), d);
  }

  template <typename Source>
  void Measure(const std::string& name,
               const ObservationIndexView& index,
               const Source& source) {
    source_name_ = name;
    const Status status = MeasureSource(index, source);
    if (!status.ok()) {
      Report(name, status);
    }
  }

  template <typename Source>
  Status MeasureSource(const ObservationIndexView& index,
                       const Source& source) {
    LinearSystem<Source> system;
    system.jacobian = source;
    system.b = residuals_.data();
    system.camera_diagonal = diagonal_.data();
    system.point_diagonal = diagonal_.data() + 9 * num_cameras_;
    ScheduleBackend backend;
    CERES_EXT_RETURN_IF_ERROR(
        backend.Setup(index,
                      CudaWorkspace::Options::For<Source>(false),
                      &scratch_,
                      context_.get()));
    std::map<int, Outcome> expected;
    CERES_EXT_RETURN_IF_ERROR(
        SolveByInexactSolver(system, &backend, &expected));
    SchurPcg<Source> pcg;
    CERES_EXT_RETURN_IF_ERROR(pcg.Setup(system, &backend));

    std::printf("\n  %-44s", source_name_.c_str());
    for (const int n : counts_) {
      std::printf("%20d", n);
    }
    std::printf("\n");
    ScheduleGraph graph;
    for (const Schedule& schedule : Schedules(&pcg, &backend, &graph)) {
      MeasureSchedule(schedule, expected, pcg.x(), &backend);
    }
    return MeasureKernels(&pcg, &backend);
  }

  // The outcomes to compare with.
  template <typename Source>
  Status SolveByInexactSolver(const LinearSystem<Source>& system,
                              ScheduleBackend* backend,
                              std::map<int, Outcome>* expected) {
    DeviceBuffer<double> camera_step, point_step;
    CERES_EXT_RETURN_IF_ERROR(
        camera_step.Allocate(context_.get(), 9 * num_cameras_));
    CERES_EXT_RETURN_IF_ERROR(
        point_step.Allocate(context_.get(), 3 * num_points_));
    InexactSolver<solver::CudaBackend, Source> inexact_solver;
    for (const int n : counts_) {
      InexactSolverOptions options;
      options.min_num_iterations = n;
      options.max_num_iterations = n;
      options.residual_reset_period = kResetPeriod;
      CERES_EXT_RETURN_IF_ERROR(inexact_solver.Setup(options, backend));
      const solver::InexactSolverSummary summary = inexact_solver.Solve(
          system, {-1.0, -1.0}, camera_step.data(), point_step.data());
      if (summary.termination != solver::Termination::kNoConvergence ||
          summary.num_iterations != n) {
        return Status(StatusCode::kNumericalFailure,
                      "InexactSolver ended after " +
                          std::to_string(summary.num_iterations) +
                          " iterations. " + summary.message);
      }
      Outcome& outcome = (*expected)[n];
      CERES_EXT_RETURN_IF_ERROR(camera_step.CopyToHost(&outcome));
      outcome.push_back(summary.residual_norm);
    }
    return {};
  }

  // Those of the graphs share *graph: only one is there at a time.
  template <typename Source>
  std::vector<Schedule> Schedules(SchurPcg<Source>* pcg,
                                  ScheduleBackend* backend,
                                  ScheduleGraph* graph) {
    const cudaStream_t stream = context_->stream();
    const PcgScalars* device_scalars = pcg->vectors().scalars;
    std::vector<Schedule> schedules;

    for (const int look_behind :
         {ScheduleBackend::kAsCudaBackend, 0, 1, 3, 8}) {
      Schedule schedule;
      schedule.name =
          look_behind == ScheduleBackend::kAsCudaBackend
              ? "issued ahead, as CudaBackend without graphs"
          : look_behind == 0
              ? std::string("host asked after each iteration")
              : "issued ahead, look-behind " + std::to_string(look_behind);
      schedule.solve = [=](PcgScalars* scalars) {
        backend->set_look_behind(look_behind);
        ScheduleBackend::PcgLoop loop;
        InexactSolverOptions options;
        options.max_num_iterations = std::numeric_limits<int>::max();
        options.residual_reset_period = kResetPeriod;
        return solver::ConjugateGradients(
            options,
            {-1.0, -1.0},
            pcg->vectors(),
            [=](const double* p, double* q) { return pcg->Multiply(p, q); },
            [=](const double* r, double* z) { return pcg->Precondition(r, z); },
            &loop,
            backend,
            scalars);
      };
      schedules.push_back(schedule);
    }

    const auto ten = [=](auto iterate) {
      return [=]() -> Status {
        for (int i = 0; i < kResetPeriod; ++i) {
          CERES_EXT_RETURN_IF_ERROR(iterate(i));
        }
        return {};
      };
    };
    const auto iterate = [=](int i) { return pcg->Iterate(i); };
    const auto iterate_fused = [=](int i) {
      return pcg->IterateWithVectorSteps(i);
    };
    // Queues issue(0), issue(1), ... until the scalars have ended.
    const auto issue_ahead = [=](int look_behind,
                                 const std::function<Status(int)>& issue,
                                 PcgScalars* scalars) -> Status {
      backend->set_look_behind(look_behind);
      for (int i = 0;; ++i) {
        if (backend->ShouldPoll(i)) {
          CERES_EXT_RETURN_IF_ERROR(backend->Read(device_scalars, scalars));
          if (scalars->end != PcgEnd::kRunning) {
            return {};
          }
        }
        CERES_EXT_RETURN_IF_ERROR(issue(i));
      }
    };

    Schedule loop;
    loop.name = "graph, WHILE 10 iterations";
    loop.prepare = [=] {
      return graph->RecordLoop(ten(iterate), device_scalars);
    };
    loop.solve = [=](PcgScalars* scalars) -> Status {
      CERES_EXT_RETURN_IF_ERROR(pcg->Start());
      CERES_EXT_RETURN_IF_ERROR(graph->Launch(stream));
      return backend->Read(device_scalars, scalars);
    };
    schedules.push_back(loop);

    loop.name = "graph, WHILE 1 iteration, IF for the reset";
    loop.prepare = [=] {
      return graph->CaptureBranchingLoop([=] { return pcg->FirstHalf(); },
                                         [=] { return pcg->Residual(true); },
                                         [=] { return pcg->Residual(false); },
                                         kResetPeriod,
                                         device_scalars,
                                         stream);
    };
    schedules.push_back(loop);

    Schedule plain;
    plain.name = "graph of 10 iterations, one launched ahead";
    plain.prepare = [=] { return graph->Capture(ten(iterate), stream); };
    plain.solve = [=](PcgScalars* scalars) -> Status {
      CERES_EXT_RETURN_IF_ERROR(pcg->Start());
      return issue_ahead(
          1, [=](int) { return graph->Launch(stream); }, scalars);
    };
    schedules.push_back(plain);

    Schedule fused;
    fused.name = "vector steps in one kernel, issued ahead 3";
    fused.solve = [=](PcgScalars* scalars) -> Status {
      CERES_EXT_RETURN_IF_ERROR(pcg->Start());
      CERES_EXT_RETURN_IF_ERROR(pcg->Direction());
      return issue_ahead(3, iterate_fused, scalars);
    };
    schedules.push_back(fused);

    fused.name = "vector steps in one kernel, WHILE 10";
    fused.prepare = [=] {
      return graph->RecordLoop(ten(iterate_fused), device_scalars);
    };
    fused.solve = [=](PcgScalars* scalars) -> Status {
      CERES_EXT_RETURN_IF_ERROR(pcg->Start());
      CERES_EXT_RETURN_IF_ERROR(pcg->Direction());
      CERES_EXT_RETURN_IF_ERROR(graph->Launch(stream));
      return backend->Read(device_scalars, scalars);
    };
    schedules.push_back(fused);
    return schedules;
  }

  void MeasureSchedule(const Schedule& schedule,
                       const std::map<int, Outcome>& expected,
                       const DeviceBuffer<double>& x,
                       ScheduleBackend* backend) {
    double prepare_ms = 0.0;
    if (schedule.prepare) {
      // The second time, when CUDA has loaded what it needs.
      for (int i = 0; i < 2; ++i) {
        const double begin = Seconds();
        const Status status = schedule.prepare();
        if (!status.ok()) {
          Report(schedule.name, status);
          return;
        }
        prepare_ms = 1e3 * (Seconds() - begin);
      }
    }
    std::string line;
    bool same_bits = true;
    for (const int n : counts_) {
      backend->set_num_iterations(n);
      std::vector<double> times;
      const Status status =
          TimeSolves(schedule, n, expected.at(n), x, &times, &same_bits);
      if (!status.ok()) {
        Report(schedule.name, status);
        return;
      }
      const double us = 1e6 * times[times.size() / 2];
      char text[400];
      std::snprintf(text, sizeof(text), "%11.1f (%6.2f)", us, us / n);
      line += text;
      std::snprintf(text,
                    sizeof(text),
                    "\"schedule\": \"%s\", \"iterations\": %d, \"solve_us\": "
                    "%.2f, \"min_us\": %.2f, \"max_us\": %.2f, "
                    "\"iteration_us\": %.3f, \"prepare_ms\": %.3f, "
                    "\"same_bits\": %s",
                    schedule.name.c_str(),
                    n,
                    us,
                    1e6 * times.front(),
                    1e6 * times.back(),
                    us / n,
                    prepare_ms,
                    same_bits ? "true" : "false");
      AddJson(text);
    }
    std::printf("  %-44s%s", schedule.name.c_str(), line.c_str());
    if (schedule.prepare) {
      std::printf("  made in %.2f ms", prepare_ms);
    }
    if (!same_bits) {
      failed_ = true;
      std::printf("  BITS DIFFER FROM INEXACTSOLVER'S");
    }
    std::printf("\n");
    std::fflush(stdout);
  }

  // times: sorted. *same_bits: left or false.
  Status TimeSolves(const Schedule& schedule,
                    int n,
                    const Outcome& expected,
                    const DeviceBuffer<double>& x,
                    std::vector<double>* times,
                    bool* same_bits) {
    constexpr double kEnough = 0.03;
    PcgScalars scalars;
    CERES_EXT_RETURN_IF_ERROR(schedule.solve(&scalars));
    CERES_EXT_RETURN_IF_ERROR(Check(scalars, x, n, expected, same_bits));
    double total = 0.0;
    while (times->size() < 3 || (total < kEnough && times->size() < 25)) {
      CERES_EXT_RETURN_IF_ERROR(context_->Synchronize());
      const double begin = Seconds();
      CERES_EXT_RETURN_IF_ERROR(schedule.solve(&scalars));
      times->push_back(Seconds() - begin);
      total += times->back();
    }
    std::sort(times->begin(), times->end());
    // What the last run left, too.
    return Check(scalars, x, n, expected, same_bits);
  }

  // kNumericalFailure: a solve has not ended after n iterations.
  static Status Check(const PcgScalars& scalars,
                      const DeviceBuffer<double>& x,
                      int n,
                      const Outcome& expected,
                      bool* same_bits) {
    Outcome outcome;
    CERES_EXT_RETURN_IF_ERROR(x.CopyToHost(&outcome));
    outcome.push_back(scalars.norm_r);
    if (scalars.end != PcgEnd::kMaxNumIterations ||
        scalars.num_iterations != n) {
      return Status(StatusCode::kNumericalFailure,
                    "Ended after " + std::to_string(scalars.num_iterations) +
                        " iterations, not " + std::to_string(n) + ". " +
                        solver::PcgMessage(scalars));
    }
    *same_bits = *same_bits && SameBits(outcome, expected);
    return {};
  }

  // Median of device seconds of fn.
  Status DeviceTime(const std::function<Status()>& fn, double* seconds) {
    CERES_EXT_RETURN_IF_ERROR(fn());
    std::vector<double> times;
    for (int i = 0; i < 3; ++i) {
      CERES_EXT_RETURN_IF_ERROR(context_->Synchronize());
      CERES_EXT_RETURN_IF_ERROR(events_.Record(0, context_->stream()));
      CERES_EXT_RETURN_IF_ERROR(fn());
      CERES_EXT_RETURN_IF_ERROR(events_.Record(1, context_->stream()));
      CERES_EXT_RETURN_IF_ERROR(context_->Synchronize());
      times.push_back(events_.SecondsBetween(0, 1));
    }
    std::sort(times.begin(), times.end());
    *seconds = times[1];
    return {};
  }

  // Device time of one piece of a graph of n pieces, from the difference of two
  // such graphs: without what a launch of a graph costs.
  Status TimeInGraph(const std::function<Status(int, ScheduleGraph*)>& make,
                     int few,
                     int many,
                     double* us) {
    double seconds[2];
    for (const bool is_many : {false, true}) {
      ScheduleGraph graph;
      CERES_EXT_RETURN_IF_ERROR(make(is_many ? many : few, &graph));
      CERES_EXT_RETURN_IF_ERROR(
          DeviceTime([&] { return graph.Launch(context_->stream()); },
                     &seconds[is_many ? 1 : 0]));
    }
    *us = std::max(0.0, 1e6 * (seconds[1] - seconds[0]) / (many - few));
    return {};
  }

  // What the device needs without the host, and a bound for a kernel that stays
  // for the whole solve.
  template <typename Source>
  Status MeasureKernels(SchurPcg<Source>* pcg, ScheduleBackend* backend) {
    const cudaStream_t stream = context_->stream();
    // Nothing ends while kernels are repeated.
    backend->set_num_iterations(std::numeric_limits<int>::max());
    CERES_EXT_RETURN_IF_ERROR(pcg->Start());
    CERES_EXT_RETURN_IF_ERROR(pcg->Iterate(0));
    CERES_EXT_RETURN_IF_ERROR(context_->Synchronize());

    const auto capture = [=](const std::function<Status(int)>& queue) {
      return [=](int n, ScheduleGraph* graph) {
        return graph->Capture(
            [=]() -> Status {
              for (int i = 0; i < n; ++i) {
                CERES_EXT_RETURN_IF_ERROR(queue(i));
              }
              return {};
            },
            stream);
      };
    };
    double empty_us = 0.0;
    CERES_EXT_RETURN_IF_ERROR(TimeInGraph(
        capture([=](int) { return EmptyKernel(stream); }), 20, 220, &empty_us));
    double graph_us = 0.0;
    CERES_EXT_RETURN_IF_ERROR(
        TimeInGraph(capture([=](int i) { return pcg->Iterate(i); }),
                    kResetPeriod,
                    3 * kResetPeriod,
                    &graph_us));

    // Each kernel of an iteration alone, again and again.
    ScheduleGraph iteration;
    ScheduleGraph product;
    std::vector<ScheduleGraph::Kernel> iteration_kernels;
    std::vector<ScheduleGraph::Kernel> product_kernels;
    CERES_EXT_RETURN_IF_ERROR(
        iteration.Capture([=] { return pcg->Iterate(0); }, stream));
    CERES_EXT_RETURN_IF_ERROR(iteration.Kernels(&iteration_kernels));
    CERES_EXT_RETURN_IF_ERROR(product.Capture(
        [=] { return pcg->Multiply(pcg->vectors().p, pcg->vectors().z); },
        stream));
    CERES_EXT_RETURN_IF_ERROR(product.Kernels(&product_kernels));
    double sum_us = 0.0;
    std::string each;
    for (const ScheduleGraph::Kernel& kernel : iteration_kernels) {
      double us = 0.0;
      CERES_EXT_RETURN_IF_ERROR(TimeInGraph(
          [&](int n, ScheduleGraph* graph) {
            return graph->Repeat(kernel.node, n);
          },
          5,
          25,
          &us));
      us = std::max(0.0, us - empty_us);
      // Those of the product are there once more every tenth time.
      const bool in_product = std::any_of(product_kernels.begin(),
                                          product_kernels.end(),
                                          [&](const ScheduleGraph::Kernel& k) {
                                            return k.name == kernel.name;
                                          });
      sum_us += us * (in_product ? 1.0 + 1.0 / kResetPeriod : 1.0);
      char text[120];
      std::snprintf(text,
                    sizeof(text),
                    "%s%s %.2f",
                    each.empty() ? "" : ", ",
                    kernel.name.c_str(),
                    us);
      each += text;
    }
    const double num_kernels =
        static_cast<double>(iteration_kernels.size()) +
        static_cast<double>(product_kernels.size()) / kResetPeriod;

    // A grid as large as the tiles can use. They are the kernel with most
    // shared memory.
    const ScheduleGraph::Kernel& tiles =
        *std::max_element(iteration_kernels.begin(),
                          iteration_kernels.end(),
                          [](const auto& a, const auto& b) {
                            return a.shared_bytes < b.shared_bytes;
                          });
    const int64_t num_blocks =
        std::min<int64_t>(tiles.num_blocks,
                          int64_t{tiles.blocks_per_multiprocessor} *
                              context_->num_multiprocessors());
    constexpr int kBarriers = 1000;
    double seconds[2];
    for (const bool is_many : {false, true}) {
      CERES_EXT_RETURN_IF_ERROR(DeviceTime(
          [&] {
            return GridBarriers(num_blocks,
                                tiles.block_size,
                                is_many ? 1 + kBarriers : 1,
                                stream);
          },
          &seconds[is_many ? 1 : 0]));
    }
    const double barrier_us = 1e6 * (seconds[1] - seconds[0]) / kBarriers;
    const double bound_us = sum_us + num_kernels * barrier_us;

    std::printf(
        "  measured, us on the device:\n"
        "    %.2f  an iteration's kernels in a graph (%.1f with the resets)\n"
        "    %.2f  an empty kernel in a graph\n"
        "    %.2f  a barrier over a grid of %lld x %d, resident with the "
        "tiles\n"
        "    %.2f  the iteration's kernels, each alone, less an empty one: %s\n"
        "  bound, not measured: %.2f us per iteration of a persistent kernel, "
        "those kernels and a barrier for each\n",
        graph_us,
        num_kernels,
        empty_us,
        barrier_us,
        static_cast<long long>(num_blocks),
        tiles.block_size,
        sum_us,
        each.c_str(),
        bound_us);
    std::fflush(stdout);
    char text[400];
    std::snprintf(text,
                  sizeof(text),
                  "\"kernels_per_iteration\": %.1f, \"kernels_us\": %.3f, "
                  "\"empty_kernel_us\": %.3f, \"graph_iteration_us\": %.3f, "
                  "\"barrier_us\": %.3f, \"barrier_blocks\": %lld, "
                  "\"persistent_bound_us\": %.3f",
                  num_kernels,
                  sum_us,
                  empty_us,
                  graph_us,
                  barrier_us,
                  static_cast<long long>(num_blocks),
                  bound_us);
    AddJson(text);
    return {};
  }

  // The clocks of a device that has idled rise within some tenths of a second.
  Status WarmUp() {
    const double begin = Seconds();
    while (Seconds() - begin < 0.5) {
      CERES_EXT_RETURN_IF_ERROR(GridBarriers(
          context_->num_multiprocessors(), 128, 1000, context_->stream()));
      CERES_EXT_RETURN_IF_ERROR(context_->Synchronize());
    }
    return {};
  }

  void AddJson(const std::string& fields) {
    json_.push_back("    {\"problem\": \"" + problem_name_ +
                    "\", \"source\": \"" + source_name_ + "\", " + fields +
                    "}");
  }

  bool WriteJson() {
    if (json_path_ == nullptr) {
      return true;
    }
    std::FILE* file = std::fopen(json_path_, "w");
    if (file == nullptr) {
      std::fprintf(stderr, "Can't write %s.\n", json_path_);
      return false;
    }
    std::fprintf(file,
                 "{\n  \"device\": \"%s\",\n  \"results\": [\n",
                 context_->device_name().c_str());
    for (size_t i = 0; i < json_.size(); ++i) {
      std::fprintf(
          file, "%s%s\n", json_[i].c_str(), i + 1 < json_.size() ? "," : "");
    }
    std::fprintf(file, "  ]\n}\n");
    return std::fclose(file) == 0;
  }

  const char* json_path_;
  std::vector<std::string> json_;
  bool failed_ = false;
  std::unique_ptr<CudaContext> context_;
  CudaEvents events_;
  std::string problem_name_;
  std::string source_name_;
  int64_t num_cameras_ = 0;
  int64_t num_points_ = 0;
  int64_t num_observations_ = 0;
  std::vector<int> counts_;
  CudaIndexScratch scratch_;
  DeviceBuffer<double> residuals_, diagonal_;
};

}  // namespace
}  // namespace ceres_ext

int main(int argc, char** argv) {
  bool quick = false;
  const char* json_path = nullptr;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--quick") == 0) {
      quick = true;
    } else if (argv[i][0] != '-' && json_path == nullptr) {
      json_path = argv[i];
    } else {
      std::fprintf(
          stderr, "Expected [--quick] [output.json], not %s.\n", argv[i]);
      return 2;
    }
  }
  std::string why_none;
  if (ceres_ext::kernels::NumCudaDevices(&why_none) == 0) {
    std::printf("skipped: no CUDA device (%s)\n", why_none.c_str());
    return 0;
  }
  return ceres_ext::Benchmark(json_path).Run(quick) ? 0 : 1;
}
