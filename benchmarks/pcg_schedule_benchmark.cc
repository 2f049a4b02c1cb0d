// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Ways of having a device run the iterations of PCG: those of InexactSolver, on
// S z = s with SCHUR_JACOBI, implicit W and recomputed double Jacobians, on
// synthetic problems of sizes of the BAL data set (bal_synthetic.h).
//
//   pcg_schedule_benchmark [--quick] [output.json]
//
// --quick: the two smallest problems.
//
// PCG is timed by the host's clock, with the stream idle at its start, until
// the host holds the scalars of the end: what InexactSolver waits for before it
// substitutes back. The device ends the solve after a fixed number of
// iterations; the host, as in a solve that a tolerance ends, doesn't know the
// number. Median of the runs after one. The cameras' step and |r| of every run
// must be the bits of InexactSolver on CudaBackend, else the line says so and
// the exit status is 1.
//
// A schedule that CUDA refuses is reported, and the rest goes on.
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "benchmarks/pcg_schedule_kernels.h"
#include "ceres_ext/solver/cuda_backend.h"
#include "ceres_ext/solver/inexact_solver.h"
#include "cuda_kernels/cuda_operations.h"
#include "examples/bal/bal_synthetic.h"

namespace ceres_ext {
namespace {

using namespace kernels;  // NOLINT: the whole file is about them.
using solver::CudaBackend;
using solver::InexactSolver;
using solver::InexactSolverOptions;
using Source = RecomputedJacobian<double, 9>;
using Iterate = std::function<Status(int)>;

// Ceres's period, and iterations per graph.
constexpr int kResetPeriod = 10;

double Seconds() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

[[gnu::format(printf, 1, 2)]] std::string Format(const char* format, ...) {
  char text[400];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  return text;
}

struct Schedule {
  enum Form {
    kIssuedAhead,  // iterations one by one
    kLoop,         // a graph with a WHILE node around kResetPeriod of them
    kGraph,        // a graph of kResetPeriod of them, launched again and again
  };
  const char* name;
  Form form;
  // How many iterations or graphs before the last one queued the host asks
  // about; of CudaBackend::kLookBehind it is CudaBackend that asks.
  int look_behind;
  bool fuses_vector_steps;
};

constexpr Schedule kSchedules[] = {
    {"issued ahead, look-behind 3",
     Schedule::kIssuedAhead,
     CudaBackend::kLookBehind,
     false},
    {"host asked after each iteration", Schedule::kIssuedAhead, 0, false},
    {"graph, WHILE 10 iterations", Schedule::kLoop, 0, false},
    {"graph of 10 iterations, one launched ahead", Schedule::kGraph, 1, false},
    {"vector steps in one kernel, WHILE 10", Schedule::kLoop, 0, true},
};
static_assert(CudaBackend::kLookBehind == 3, "named so above");

// CudaBackend with a schedule for the iterations of PCG, which it times, and a
// number of iterations that only the device knows.
class ScheduleBackend : public CudaBackend {
 public:
  Status Setup(const ObservationIndexView& index,
               CudaIndexScratch* scratch,
               CudaContext* context) {
    CERES_EXT_RETURN_IF_ERROR(events_.Setup(kNumSlots));
    CERES_EXT_RETURN_IF_ERROR(seen_.Allocate(kNumSlots * sizeof(PcgScalars)));
    CERES_EXT_RETURN_IF_ERROR(
        partial_.Allocate(context, kPcgVectorStepsPartialSize));
    return CudaBackend::Setup(
        index, CudaWorkspace::Options::For<Source>(false), scratch, context);
  }

  // For the solves that follow.
  void SetSchedule(const Schedule& schedule) {
    schedule_ = schedule;
    graph_.Clear();
    status_ = {};
    advance_.reset();
  }
  void set_num_iterations(int n) { num_iterations_ = n; }
  // In place of the iterations, where not null.
  void set_measurement(std::function<Status(const Iterate&)> measurement) {
    measurement_ = std::move(measurement);
  }

  // Of graph and measurement.
  const Status& status() const { return status_; }
  // Of the last solve.
  double pcg_seconds() const { return pcg_seconds_; }
  double graph_seconds() const { return graph_seconds_; }

  // The hooks of InexactSolver and ConjugateGradients.

  using CudaBackend::Run;
  Status Run(const PcgStartParams& given) {
    PcgStartParams params = given;
    params.min_num_iterations = num_iterations_;
    params.max_num_iterations = num_iterations_;
    scalars_ = params.scalars;
    CERES_EXT_RETURN_IF_ERROR(context()->Synchronize());
    pcg_seconds_ = -1.0;
    begin_seconds_ = Seconds();
    return CudaBackend::Run(params);
  }
  Status Run(const ApplyBlockDiagonalParams<9, kDeviceLayout>& params) {
    fused_.inverse = params.inverse;
    fused_.z = params.z;
    return steps_ == kFused ? Status() : CudaBackend::Run(params);
  }
  Status Run(const PcgDirectionParams& params) {
    fused_.p = params.p;
    return steps_ == kFused ? Status() : CudaBackend::Run(params);
  }
  template <BlockLayout L>
  Status Run(const SchurProductImplicitWParams<Source, L>& params) {
    if (steps_ == kDirectionOnly) {
      return {};
    }
    if (advance_) {
      // The second product of an iteration is with the new x.
      CERES_EXT_RETURN_IF_ERROR(CudaBackend::Run(*advance_));
      advance_.reset();
    }
    return CudaBackend::Run(params);
  }
  Status Run(const PcgAdvanceParams& params) {
    fused_.x = params.x;
    if (steps_ == kFused) {
      advance_ = params;
    }
    return steps_ == kApart ? CudaBackend::Run(params) : Status();
  }
  Status Run(const PcgResidualParams& params) {
    if (steps_ != kFused) {
      return steps_ == kApart ? CudaBackend::Run(params) : Status();
    }
    fused_.n = params.n;
    fused_.advance = advance_.has_value();
    fused_.reset = params.reset;
    fused_.rhs = params.rhs;
    fused_.q = params.q;
    fused_.r = params.r;
    fused_.scalars = params.scalars;
    fused_.partial = partial_.data();
    advance_.reset();
    return PcgVectorSteps(fused_, stream());
  }

  template <typename T>
  Status Read(const T* from, T* to) {
    const Status status = CudaBackend::Read(from, to);
    if constexpr (std::is_same_v<T, PcgScalars>) {
      if (pcg_seconds_ < 0.0 && to->end != PcgEnd::kRunning) {
        pcg_seconds_ = Seconds() - begin_seconds_;
      }
    }
    return status;
  }

  bool ShouldPoll(int i) {
    if (schedule_.look_behind == kLookBehind) {
      return CudaBackend::ShouldPoll(i);
    }
    auto* seen = static_cast<PcgScalars*>(seen_.data());
    const int slot = i % kNumSlots;
    if (!context()
             ->QueueCopyToHost(seen + slot, scalars_, sizeof(*seen))
             .ok() ||
        !events_.Record(slot, stream()).ok()) {
      return true;
    }
    if (i < schedule_.look_behind) {
      return false;
    }
    const int past = (i - schedule_.look_behind) % kNumSlots;
    return !events_.Wait(past).ok() || seen[past].end != PcgEnd::kRunning;
  }

  // After an error the scalars have not ended.
  template <typename Function>
  bool QueueToEnd(
      int i, int period, int /*max*/, const Function& iterate, PcgLoop*) {
    if (i > 0 || (!measurement_ && schedule_.form == Schedule::kIssuedAhead)) {
      return false;
    }
    status_ =
        measurement_ ? measurement_(iterate) : QueueGraph(period, iterate);
    steps_ = kApart;
    return true;
  }

 private:
  static constexpr int kNumSlots = 2;
  // Which steps of an iteration are run. kFused: the products, and a kernel for
  // all vector steps from one to the next; the first direction comes before.
  enum Steps { kApart, kDirectionOnly, kFused };

  cudaStream_t stream() const { return context()->stream(); }

  Status QueueGraph(int period, const Iterate& iterate) {
    if (schedule_.fuses_vector_steps) {
      steps_ = kDirectionOnly;
      CERES_EXT_RETURN_IF_ERROR(iterate(0));
      steps_ = kFused;
    }
    if (graph_.empty()) {
      const auto queue = [&]() -> Status {
        for (int i = 0; i < period; ++i) {
          CERES_EXT_RETURN_IF_ERROR(iterate(i));
        }
        return {};
      };
      // The second time, when CUDA has loaded what it needs.
      for (int i = 0; i < 2; ++i) {
        const double begin = Seconds();
        CERES_EXT_RETURN_IF_ERROR(schedule_.form == Schedule::kLoop
                                      ? graph_.RecordLoop(queue, scalars_)
                                      : graph_.Capture(queue, stream()));
        graph_seconds_ = Seconds() - begin;
      }
    }
    if (schedule_.form == Schedule::kLoop) {
      return graph_.Launch(stream());
    }
    for (int i = 0; !ShouldPoll(i); ++i) {
      CERES_EXT_RETURN_IF_ERROR(graph_.Launch(stream()));
    }
    return {};
  }

  Schedule schedule_ = kSchedules[0];
  std::function<Status(const Iterate&)> measurement_;
  Status status_;
  ScheduleGraph graph_;
  double graph_seconds_ = 0.0;
  double begin_seconds_ = 0.0;
  double pcg_seconds_ = 0.0;
  int num_iterations_ = 0;
  CudaEvents events_;
  PageLockedBuffer seen_;
  const PcgScalars* scalars_ = nullptr;
  Steps steps_ = kApart;
  std::optional<PcgAdvanceParams> advance_;  // not yet run
  PcgVectorStepsParams fused_;
  DeviceBuffer<double> partial_;
};

// What a solve leaves: the cameras' step, then |r|.
using Outcome = std::vector<double>;

bool SameBits(const Outcome& a, const Outcome& b) {
  return a.size() == b.size() &&
         std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0;
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
    DeviceBuffer<double> cameras, points, observations, maps;
    DeviceBuffer<CameraState<double>> states;
    CERES_EXT_RETURN_IF_ERROR(Upload(bal.cameras, &cameras));
    CERES_EXT_RETURN_IF_ERROR(Upload(bal.points, &points));
    // Already in the order of the index: ORDER_BY_POINT.
    CERES_EXT_RETURN_IF_ERROR(Upload(bal.observations, &observations));
    CERES_EXT_RETURN_IF_ERROR(states.Allocate(context_.get(), num_cameras_));
    CERES_EXT_RETURN_IF_ERROR(maps.Allocate(context_.get(), 81 * num_cameras_));
    PrepareCamerasParams<double, 9> prepare;
    prepare.num_cameras = static_cast<int32_t>(num_cameras_);
    prepare.cameras = cameras.data();
    prepare.states = states.data();
    prepare.maps = maps.data();
    CERES_EXT_RETURN_IF_ERROR(
        cuda::PrepareCameras(prepare, context_->stream()));
    CERES_EXT_RETURN_IF_ERROR(
        camera_step_.Allocate(context_.get(), 9 * num_cameras_));
    CERES_EXT_RETURN_IF_ERROR(
        point_step_.Allocate(context_.get(), 3 * num_points_));

    ScheduleBackend backend;
    CERES_EXT_RETURN_IF_ERROR(
        backend.Setup(index.view(), &scratch_, context_.get()));
    system_.jacobian = {states.data(), maps.data(), points.data(), nullptr};
    CERES_EXT_RETURN_IF_ERROR(SetSystem(backend, observations));
    return MeasureSystem(&backend);
  }

  // b, and D with D^2 a hundredth of diag(J'J).
  Status SetSystem(const ScheduleBackend& backend,
                   const DeviceBuffer<double>& observations) {
    DeviceBuffer<Evaluation> evaluation;
    CERES_EXT_RETURN_IF_ERROR(evaluation.Allocate(context_.get(), 1));
    CERES_EXT_RETURN_IF_ERROR(
        residuals_.Allocate(context_.get(), 2 * num_observations_));
    EvaluateCostParams cost;
    cost.index = backend.index();
    cost.cameras = system_.jacobian.cameras;
    cost.points = system_.jacobian.points;
    cost.observations = observations.data();
    cost.residuals = residuals_.data();
    cost.evaluation = evaluation.data();
    CERES_EXT_RETURN_IF_ERROR(
        cuda::EvaluateCost(cost, backend.workspace(), context_->stream()));
    const int64_t n = 9 * num_cameras_ + 3 * num_points_;
    CERES_EXT_RETURN_IF_ERROR(diagonal_.Allocate(context_.get(), n));
    SquaredColumnNormsParams<Source> norms;
    norms.index = backend.index();
    norms.jacobian = system_.jacobian;
    norms.camera_x = diagonal_.data();
    norms.point_x = diagonal_.data() + 9 * num_cameras_;
    CERES_EXT_RETURN_IF_ERROR(cuda::SquaredColumnNorms(
        norms, backend.workspace(), context_->stream()));
    std::vector<double> d;
    CERES_EXT_RETURN_IF_ERROR(diagonal_.CopyToHost(&d));
    for (double& x : d) {
      x = 0.1 * std::sqrt(x);
    }
    CERES_EXT_RETURN_IF_ERROR(Upload(d, &diagonal_));
    system_.b = residuals_.data();
    system_.camera_diagonal = diagonal_.data();
    system_.point_diagonal = diagonal_.data() + 9 * num_cameras_;
    return {};
  }

  Status MeasureSystem(ScheduleBackend* backend) {
    std::map<int, Outcome> expected;
    InexactSolverOptions options;
    options.residual_reset_period = kResetPeriod;
    for (const int n : counts_) {
      InexactSolver<CudaBackend, Source> solver;
      options.min_num_iterations = n;
      options.max_num_iterations = n;
      CERES_EXT_RETURN_IF_ERROR(solver.Setup(options, backend));
      CERES_EXT_RETURN_IF_ERROR(Solve(n, &solver, &expected[n]));
    }
    InexactSolver<ScheduleBackend, Source> solver;
    options.min_num_iterations = 0;
    options.max_num_iterations = std::numeric_limits<int>::max();
    CERES_EXT_RETURN_IF_ERROR(solver.Setup(options, backend));

    std::printf("\n  %-44s", kSourceName);
    for (const int n : counts_) {
      std::printf("%20d", n);
    }
    std::printf("\n");
    for (const Schedule& schedule : kSchedules) {
      const Status status =
          MeasureSchedule(schedule, expected, backend, &solver);
      if (!status.ok()) {
        Report(schedule.name, status);
      }
    }
    // Nothing ends while kernels are repeated.
    backend->SetSchedule(kSchedules[0]);
    backend->set_num_iterations(std::numeric_limits<int>::max());
    backend->set_measurement(
        [=](const Iterate& iterate) { return MeasureKernels(iterate); });
    solver.Solve(
        system_, {-1.0, -1.0}, camera_step_.data(), point_step_.data());
    return backend->status();
  }

  // kNumericalFailure: the solve has not ended after n iterations.
  template <typename Backend>
  Status Solve(int n,
               InexactSolver<Backend, Source>* solver,
               Outcome* outcome) {
    const solver::InexactSolverSummary summary = solver->Solve(
        system_, {-1.0, -1.0}, camera_step_.data(), point_step_.data());
    if (summary.termination != solver::Termination::kNoConvergence ||
        summary.num_iterations != n) {
      return Status(StatusCode::kNumericalFailure,
                    "Ended after " + std::to_string(summary.num_iterations) +
                        " iterations, not " + std::to_string(n) + ". " +
                        summary.message);
    }
    CERES_EXT_RETURN_IF_ERROR(camera_step_.CopyToHost(outcome));
    outcome->push_back(summary.residual_norm);
    return {};
  }

  Status MeasureSchedule(const Schedule& schedule,
                         const std::map<int, Outcome>& expected,
                         ScheduleBackend* backend,
                         InexactSolver<ScheduleBackend, Source>* solver) {
    backend->SetSchedule(schedule);
    const bool has_graph = schedule.form != Schedule::kIssuedAhead;
    std::string line;
    bool same_bits = true;
    for (const int n : counts_) {
      constexpr double kEnough = 0.03;
      backend->set_num_iterations(n);
      std::vector<double> times;
      double total = 0.0;
      // The first run is not counted.
      for (int run = 0; run < 4 || (total < kEnough && times.size() < 25);
           ++run) {
        Outcome outcome;
        const Status status = Solve(n, solver, &outcome);
        CERES_EXT_RETURN_IF_ERROR(backend->status());
        CERES_EXT_RETURN_IF_ERROR(status);
        same_bits = same_bits && SameBits(outcome, expected.at(n));
        if (run > 0) {
          times.push_back(backend->pcg_seconds());
          total += times.back();
        }
      }
      std::sort(times.begin(), times.end());
      const double us = 1e6 * times[times.size() / 2];
      line += Format("%11.1f (%6.2f)", us, us / n);
      AddJson(
          Format("\"schedule\": \"%s\", \"iterations\": %d, "
                 "\"solve_us\": %.2f, \"min_us\": %.2f, "
                 "\"max_us\": %.2f, \"iteration_us\": %.3f, "
                 "\"prepare_ms\": %.3f, \"same_bits\": %s",
                 schedule.name,
                 n,
                 us,
                 1e6 * times.front(),
                 1e6 * times.back(),
                 us / n,
                 has_graph ? 1e3 * backend->graph_seconds() : 0.0,
                 same_bits ? "true" : "false"));
    }
    if (has_graph) {
      line += Format("  made in %.2f ms", 1e3 * backend->graph_seconds());
    }
    if (!same_bits) {
      failed_ = true;
      line += "  BITS DIFFER FROM INEXACTSOLVER'S";
    }
    std::printf("  %-44s%s\n", schedule.name, line.c_str());
    std::fflush(stdout);
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
  Status MeasureKernels(const Iterate& iterate) {
    const cudaStream_t stream = context_->stream();
    CERES_EXT_RETURN_IF_ERROR(iterate(0));
    CERES_EXT_RETURN_IF_ERROR(context_->Synchronize());

    const auto capture = [=](const Iterate& queue) {
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
    CERES_EXT_RETURN_IF_ERROR(TimeInGraph(
        capture(iterate), kResetPeriod, 3 * kResetPeriod, &graph_us));

    // Each kernel of an iteration alone, again and again.
    ScheduleGraph iteration;
    ScheduleGraph resetting;
    std::vector<ScheduleGraph::Kernel> iteration_kernels;
    std::vector<ScheduleGraph::Kernel> resetting_kernels;
    CERES_EXT_RETURN_IF_ERROR(
        iteration.Capture([&] { return iterate(0); }, stream));
    CERES_EXT_RETURN_IF_ERROR(iteration.Kernels(&iteration_kernels));
    CERES_EXT_RETURN_IF_ERROR(
        resetting.Capture([&] { return iterate(kResetPeriod - 1); }, stream));
    CERES_EXT_RETURN_IF_ERROR(resetting.Kernels(&resetting_kernels));
    const auto count = [](const std::vector<ScheduleGraph::Kernel>& kernels,
                          const std::string& name) {
      return std::count_if(
          kernels.begin(), kernels.end(), [&](const ScheduleGraph::Kernel& k) {
            return k.name == name;
          });
    };
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
      const bool in_product = count(resetting_kernels, kernel.name) >
                              count(iteration_kernels, kernel.name);
      sum_us += us * (in_product ? 1.0 + 1.0 / kResetPeriod : 1.0);
      each += Format(
          "%s%s %.2f", each.empty() ? "" : ", ", kernel.name.c_str(), us);
    }
    const double num_kernels = static_cast<double>(iteration_kernels.size()) +
                               static_cast<double>(resetting_kernels.size() -
                                                   iteration_kernels.size()) /
                                   kResetPeriod;

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
    AddJson(
        Format("\"kernels_per_iteration\": %.1f, \"kernels_us\": %.3f, "
               "\"empty_kernel_us\": %.3f, "
               "\"graph_iteration_us\": %.3f, \"barrier_us\": %.3f, "
               "\"barrier_blocks\": %lld, "
               "\"persistent_bound_us\": %.3f",
               num_kernels,
               sum_us,
               empty_us,
               graph_us,
               barrier_us,
               static_cast<long long>(num_blocks),
               bound_us));
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
                    "\", \"source\": \"" + kSourceName + "\", " + fields + "}");
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

  static constexpr const char* kSourceName = "double recomputed";

  const char* json_path_;
  std::vector<std::string> json_;
  bool failed_ = false;
  std::unique_ptr<CudaContext> context_;
  CudaEvents events_;
  std::string problem_name_;
  int64_t num_cameras_ = 0;
  int64_t num_points_ = 0;
  int64_t num_observations_ = 0;
  std::vector<int> counts_;
  CudaIndexScratch scratch_;
  solver::LinearSystem<Source> system_;
  DeviceBuffer<double> residuals_, diagonal_, camera_step_, point_step_;
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
