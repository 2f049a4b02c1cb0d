// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Times the host bodies and one PCG iteration.
//
//   host_benchmark [--benchmark_filter=...]
//
// Arguments of a benchmark: problem (0: dubrovnik-16's size, 1: ladybug-1723's)
// and threads. bytes_per_second of an operation counts each array that it must
// read or write once.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "benchmark/benchmark.h"
#include "benchmarks/inexact_solver.h"
#include "cuda_kernels/machine/host_machine.h"
#include "cuda_kernels/ops/evaluate.h"
#include "cuda_kernels/ops/jacobian_products.h"
#include "cuda_kernels/ops/schur_products.h"
#include "cuda_kernels/structure/row_index.h"

namespace ceres_ext {
namespace {

using namespace kernels;  // NOLINT: the whole file is about them.

constexpr int C = 9;

struct Size {
  int32_t num_cameras;
  int32_t num_points;
  double mean_observations;  // per point
};
constexpr Size kSizes[] = {{16, 22106, 3.79}, {1723, 156502, 4.34}};

// Points along a sequence of cameras, seen by neighbouring cameras: 2 and a
// geometric number more.
template <typename T>
class Problem {
 public:
  using Source = solver::HostStoredJacobian<T, C>;

  Problem(const Size& size, int num_threads)
      : num_cameras(size.num_cameras),
        num_points(size.num_points),
        machine(num_threads) {
    std::mt19937 generator(1);
    std::geometric_distribution<int> more(1.0 / (size.mean_observations - 1.0));
    std::vector<int32_t> camera;
    std::vector<int32_t> point;
    for (int32_t p = 0; p < num_points; ++p) {
      const int length = std::min(num_cameras, 2 + more(generator));
      const int64_t first =
          int64_t{p} * (num_cameras - length + 1) / num_points;
      for (int j = 0; j < length; ++j) {
        camera.push_back(static_cast<int32_t>(first + j));
        point.push_back(p);
      }
    }
    n = static_cast<int64_t>(camera.size());
    std::vector<int32_t> point_order;
    Check(index_.Setup(num_cameras,
                       num_points,
                       n,
                       camera.data(),
                       point.data(),
                       {},
                       &point_order,
                       &machine));

    std::normal_distribution<double> normal;
    for (int32_t c = 0; c < num_cameras; ++c) {
      const double parameters[C] = {0.1 * normal(generator),
                                    0.1 * normal(generator),
                                    0.1 * normal(generator),
                                    normal(generator),
                                    normal(generator),
                                    -10.0,
                                    500.0,
                                    0.0,
                                    0.0};
      cameras.insert(cameras.end(), parameters, parameters + C);
    }
    const auto fill = [&](int64_t size_in, std::vector<double>* values) {
      values->resize(size_in);
      for (double& value : *values) {
        value = normal(generator);
      }
    };
    fill(3 * num_points, &points);
    fill(2 * n, &observations);
    states.resize(num_cameras);
    maps.resize(9 * C * num_cameras);
    jc.resize(2 * C * n);
    jp.resize(6 * n);
    residuals.resize(2 * n);
    camera_vector.resize(C * num_cameras);
    point_vector.resize(3 * num_points);
    // Any symmetric matrices do as inverses.
    v_inverse.assign(6 * num_points, 0.1);
    product.resize(C * num_cameras);

    PrepareCamerasParams<double, C> prepare;
    prepare.num_cameras = num_cameras;
    prepare.cameras = cameras.data();
    prepare.states = states.data();
    prepare.maps = maps.data();
    Check(Run(prepare, &machine));
    Check(Run(JacobianParams(), &machine));
    // Columns of about unit size, and the damping of a radius of 1e4.
    SquaredColumnNormsParams<Source> norms;
    norms.index = index();
    norms.jacobian = source();
    norms.camera_x = camera_vector.data();
    norms.point_x = point_vector.data();
    Check(Run(norms, &machine));
    ScaleColumnsParams<T, BalShape<C>, kHostLayout> scale;
    scale.index = index();
    scale.camera_blocks = {jc.data(), n};
    scale.point_blocks = {jp.data(), n};
    for (std::vector<double>* norm : {&camera_vector, &point_vector}) {
      for (double& value : *norm) {
        value = 1.0 / (1.0 + std::sqrt(value));
      }
    }
    scale.camera_scale = camera_vector.data();
    scale.point_scale = point_vector.data();
    Check(Run(scale, &machine));
    camera_diagonal.assign(C * num_cameras, 0.01);
    point_diagonal.assign(3 * num_points, 0.01);
  }

  void Check(const Status& status) { ok = ok && status.ok(); }
  // The bytes of an operation that has been run.
  template <typename Params>
  int64_t RunAndCount(const Params& params) {
    Check(Run(params, &machine));
    return GetBytes(params);
  }
  const ObservationIndexView& index() const { return index_.view(); }
  Source source() const { return {{jc.data(), n}, {jp.data(), n}}; }

  EvaluateJacobianParams<T, C, kHostLayout> JacobianParams() {
    EvaluateJacobianParams<T, C, kHostLayout> params;
    params.index = index();
    params.cameras = states.data();
    params.camera_maps = maps.data();
    params.points = points.data();
    params.observations = observations.data();
    params.residuals = residuals.data();
    params.camera_blocks = {jc.data(), n};
    params.point_blocks = {jp.data(), n};
    params.camera_gradient = camera_vector.data();
    params.point_gradient = point_vector.data();
    params.evaluation = &evaluation;
    return params;
  }

  int32_t num_cameras;
  int32_t num_points;
  int64_t n = 0;
  bool ok = true;
  HostMachine machine;
  std::vector<double> cameras, points, observations, maps, residuals;
  std::vector<double> camera_vector, point_vector, v_inverse, product;
  std::vector<double> camera_diagonal, point_diagonal;
  std::vector<CameraState<double>> states;
  std::vector<T> jc, jp;
  Evaluation evaluation;

 private:
  RowIndex<HostMachine> index_;
};

// Times fn(problem), which returns its bytes.
template <typename T, typename Function>
void Time(benchmark::State& state, Function&& fn) {
  const auto problem = std::make_unique<Problem<T>>(
      kSizes[state.range(0)], static_cast<int>(state.range(1)));
  if (!problem->ok) {
    state.SkipWithError("set-up failed");
    return;
  }
  int64_t bytes = 0;
  for (auto _ : state) {
    bytes = fn(problem.get());
  }
  if (!problem->ok) {
    state.SkipWithError("an operation failed");
  }
  state.SetBytesProcessed(bytes * static_cast<int64_t>(state.iterations()));
  state.counters["observations"] = static_cast<double>(problem->n);
}

void EvaluateCost(benchmark::State& state) {
  Time<double>(state, [](Problem<double>* problem) {
    EvaluateCostParams params;
    params.index = problem->index();
    params.cameras = problem->states.data();
    params.points = problem->points.data();
    params.observations = problem->observations.data();
    params.residuals = problem->residuals.data();
    params.evaluation = &problem->evaluation;
    return problem->RunAndCount(params);
  });
}

template <typename T>
void EvaluateJacobian(benchmark::State& state) {
  Time<T>(state, [](Problem<T>* problem) {
    return problem->RunAndCount(problem->JacobianParams());
  });
}

// A solver of one configuration, on its problem.
template <typename T>
class Configured {
 public:
  Configured(const solver::InexactSolverOptions& options, Problem<T>* problem)
      : problem_(problem) {
    ok = solver_.Setup(options, problem->index(), &problem->machine).ok();
    camera_step_.resize(C * problem->num_cameras);
    point_step_.resize(3 * problem->num_points);
  }

  solver::InexactSolverSummary Solve() {
    const solver::ObservationSystem<typename Problem<T>::Source> system{
        problem_->source(),
        problem_->residuals.data(),
        problem_->camera_diagonal.data(),
        problem_->point_diagonal.data()};
    solver::InexactSolverPerSolveOptions per_solve;
    per_solve.q_tolerance = -1.0;
    return solver_.Solve(
        system, per_solve, camera_step_.data(), point_step_.data());
  }

  bool ok = false;

 private:
  Problem<T>* problem_;
  solver::InexactSolver<HostMachine, typename Problem<T>::Source> solver_;
  std::vector<double> camera_step_;
  std::vector<double> point_step_;
};

enum Stage { kNormalBlocks, kPcgIteration, kBackSubstitution };

// Times one stage of a solve by the solver's own clock. A PCG iteration is a
// ninth of nine, none of which resets the residual.
template <typename T, bool kSchur, Stage kStage>
void SolveStage(benchmark::State& state) {
  constexpr int kNumIterations = 9;
  const auto problem = std::make_unique<Problem<T>>(
      kSizes[state.range(0)], static_cast<int>(state.range(1)));
  solver::InexactSolverOptions options;
  options.use_schur = kSchur;
  options.preconditioner = kSchur ? solver::PreconditionerType::kSchurJacobi
                                  : solver::PreconditionerType::kJacobi;
  options.min_num_iterations = kNumIterations;
  options.max_num_iterations = kNumIterations;
  Configured<T> configured(options, problem.get());
  if (!problem->ok || !configured.ok) {
    state.SkipWithError("set-up failed");
    return;
  }
  for (auto _ : state) {
    const solver::InexactSolverSummary summary = configured.Solve();
    if (summary.num_iterations != kNumIterations) {
      state.SkipWithError(summary.message.c_str());
      return;
    }
    switch (kStage) {
      case kNormalBlocks:
        state.SetIterationTime(summary.normal_blocks_seconds);
        break;
      case kPcgIteration:
        state.SetIterationTime(summary.pcg_seconds / kNumIterations);
        break;
      case kBackSubstitution:
        state.SetIterationTime(summary.back_substitution_seconds);
        break;
    }
  }
  state.counters["observations"] = static_cast<double>(problem->n);
}

template <typename T, typename Source>
int64_t RunSchurProduct(const Source& source, Problem<T>* problem) {
  SchurProductImplicitWParams<Source, kHostLayout> params;
  params.index = problem->index();
  params.jacobian = source;
  params.v_inverse = {problem->v_inverse.data(), problem->num_points};
  params.camera_diagonal = problem->camera_diagonal.data();
  params.p = problem->camera_vector.data();
  params.q = problem->product.data();
  return problem->RunAndCount(params);
}

template <typename T>
void SchurProductImplicitW(benchmark::State& state) {
  Time<T>(state, [](Problem<T>* problem) {
    return RunSchurProduct(problem->source(), problem);
  });
}

void SchurProductRecomputed(benchmark::State& state) {
  Time<double>(state, [](Problem<double>* problem) {
    return RunSchurProduct(RecomputedJacobian<double, C>{problem->states.data(),
                                                         problem->maps.data(),
                                                         problem->points.data(),
                                                         nullptr},
                           problem);
  });
}

void Sizes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"problem", "threads"});
  for (const int64_t problem : {0, 1}) {
    for (const int64_t threads : {1, 2}) {
      benchmark->Args({problem, threads});
    }
  }
  benchmark->Unit(benchmark::kMillisecond);
}

void Operation(benchmark::internal::Benchmark* benchmark) {
  Sizes(benchmark);
  benchmark->UseRealTime();
}

void StageOfSolve(benchmark::internal::Benchmark* benchmark) {
  Sizes(benchmark);
  benchmark->UseManualTime();
}

BENCHMARK(EvaluateCost)->Apply(Operation);
BENCHMARK(EvaluateJacobian<double>)->Apply(Operation);
BENCHMARK(EvaluateJacobian<float>)->Apply(Operation);
BENCHMARK(SchurProductImplicitW<double>)->Apply(Operation);
BENCHMARK(SchurProductImplicitW<float>)->Apply(Operation);
BENCHMARK(SchurProductRecomputed)->Apply(Operation);

#define CERES_EXT_BENCHMARK_STAGES(schur)                                   \
  BENCHMARK(SolveStage<double, schur, kNormalBlocks>)->Apply(StageOfSolve); \
  BENCHMARK(SolveStage<double, schur, kPcgIteration>)->Apply(StageOfSolve); \
  BENCHMARK(SolveStage<double, schur, kBackSubstitution>)->Apply(StageOfSolve)

CERES_EXT_BENCHMARK_STAGES(true);
CERES_EXT_BENCHMARK_STAGES(false);

}  // namespace
}  // namespace ceres_ext

BENCHMARK_MAIN();
