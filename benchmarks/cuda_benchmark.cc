// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Times the device bodies on a problem of final-13682's size (13,682 cameras,
// 4,456,117 points, 28,987,644 observations), with points and pairs in random
// order.
//
//   cuda_benchmark [fraction [output.json [sequence|city]]]
//
// fraction (default 1) scales the three counts. sequence (default): points are
// clustered as those of a long sequence are; city: those of bal_generate, seen
// in up to eight laps. Each line: median of kRuns runs
// between events, bytes that must cross device memory (each input read once,
// each output written once), and their rate as a share of a device-to-device
// copy measured in the same run.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "benchmarks/inexact_solver.h"
#include "cuda_kernels/machine/cuda_machine.h"
#include "cuda_kernels/model/jacobian_source.h"
#include "cuda_kernels/ops/evaluate.h"
#include "cuda_kernels/ops/jacobian_products.h"
#include "cuda_kernels/ops/normal_blocks.h"
#include "cuda_kernels/ops/preconditioner.h"
#include "cuda_kernels/ops/schur_products.h"
#include "cuda_kernels/ops/vectors.h"
#include "cuda_kernels/structure/cuda_observation_index.h"
#include "cuda_kernels/structure/cuda_workspace.h"
#ifdef CERES_EXT_WITH_BAL_SYNTHETIC
#include "examples/bal/bal_synthetic.h"
#endif

namespace ceres_ext {
namespace {

using namespace kernels;  // NOLINT: the whole file is about them.

constexpr int kRuns = 9;

#define OK_OR_EXIT(expression)                                                 \
  do {                                                                         \
    const Status status_ = (expression);                                       \
    if (!status_.ok()) {                                                       \
      std::fprintf(                                                            \
          stderr, "%s:%d: %s\n", __FILE__, __LINE__, status_.message.c_str()); \
      std::exit(1);                                                            \
    }                                                                          \
  } while (false)

struct Problem {
  int32_t num_cameras = 0;
  int32_t num_points = 0;
  std::vector<int32_t> camera;
  std::vector<int32_t> point;
};

// A sequence: a point belongs to one of num_cameras / 70 places and is seen
// from cameras around it, 2 to 60 of them with a heavy tail.
Problem MakeSequence(double fraction) {
  Problem problem;
  problem.num_cameras = std::max(200, static_cast<int>(13682 * fraction));
  problem.num_points = static_cast<int>(4456117 * fraction);
  const int64_t num_observations = static_cast<int64_t>(28987644 * fraction);
  std::mt19937 random(7);
  std::uniform_real_distribution<double> uniform(0, 1);
  const int num_places = problem.num_cameras / 70;
  std::vector<int32_t> label(static_cast<size_t>(problem.num_points));
  for (int32_t i = 0; i < problem.num_points; ++i) {
    label[static_cast<size_t>(i)] = i;
  }
  std::shuffle(label.begin(), label.end(), random);
  std::vector<int> length(static_cast<size_t>(problem.num_points));
  int64_t total = 0;
  for (int& n : length) {
    n = std::min(60,
                 2 + static_cast<int>(
                         2.3 * std::pow(uniform(random) + 1e-4, -0.62) - 0.5));
    total += n;
  }
  while (total != num_observations) {
    int& n = length[random() % length.size()];
    const int change = total < num_observations ? 1 : -1;
    if (n + change >= 2 && n + change <= 60) {
      n += change;
      total += change;
    }
  }
  std::vector<std::pair<int32_t, int32_t>> pairs;
  pairs.reserve(static_cast<size_t>(num_observations));
  std::vector<int32_t> track;
  for (int32_t i = 0; i < problem.num_points; ++i) {
    const int n = length[static_cast<size_t>(i)];
    const int place =
        static_cast<int>(int64_t{i} * num_places / problem.num_points);
    const int base = place * 70 + static_cast<int>(uniform(random) * 30);
    track.clear();
    while (static_cast<int>(track.size()) < n) {
      int32_t c = base + static_cast<int>(uniform(random) * (40 + n));
      if (c >= problem.num_cameras) {
        c = problem.num_cameras - 1 -
            static_cast<int>(uniform(random) * (40 + n));
      }
      if (std::find(track.begin(), track.end(), c) == track.end()) {
        track.push_back(c);
      }
    }
    for (const int32_t c : track) {
      pairs.emplace_back(c, label[static_cast<size_t>(i)]);
    }
  }
  std::shuffle(pairs.begin(), pairs.end(), random);
  problem.camera.reserve(pairs.size());
  problem.point.reserve(pairs.size());
  for (const auto& [c, p] : pairs) {
    problem.camera.push_back(c);
    problem.point.push_back(p);
  }
  return problem;
}

Problem MakeCity(double fraction) {
#ifdef CERES_EXT_WITH_BAL_SYNTHETIC
  bal::SyntheticOptions options;
  bal::FindBalSize("final-13682", &options);
  options.num_cameras = static_cast<int32_t>(options.num_cameras * fraction);
  options.num_points = static_cast<int32_t>(options.num_points * fraction);
  options.num_observations =
      static_cast<int64_t>(options.num_observations * fraction);
  options.shuffle_points = true;
  options.order = bal::ORDER_SHUFFLED;
  bal::SyntheticProblem city;
  std::string error;
  if (!bal::GenerateSynthetic(options, &city, &error)) {
    std::fprintf(stderr, "%s\n", error.c_str());
    std::exit(2);
  }
  return {options.num_cameras,
          options.num_points,
          std::move(city.start.camera_index),
          std::move(city.start.point_index)};
#else
  static_cast<void>(fraction);
  std::fprintf(stderr, "The problem city needs the examples to be built.\n");
  std::exit(2);
#endif
}

class Benchmark {
 public:
  Benchmark(double fraction, const char* json_path, bool city)
      : json_path_(json_path) {
    OK_OR_EXIT(CudaMachine::Create({}, &machine_));
    context_ = machine_->context();
    std::printf("%s, fraction %g\n", context_->device_name().c_str(), fraction);
    problem_ = city ? MakeCity(fraction) : MakeSequence(fraction);
  }

  void MeasureAll() {
    MeasureCopy();
    BuildIndex();
    MakeScene();
    MeasureSource<double>();
    MeasureSource<float>();
    MeasureVectors();
    WriteJson();
  }

 private:
  // Median in ms of kRuns runs after one.
  double Measure(const std::string& name,
                 double bytes,
                 const std::function<Status()>& fn) {
    OK_OR_EXIT(fn());
    OK_OR_EXIT(context_->Synchronize());
    std::vector<double> times;
    for (int i = 0; i < kRuns; ++i) {
      OK_OR_EXIT(machine_->RecordMark(0));
      OK_OR_EXIT(fn());
      OK_OR_EXIT(machine_->RecordMark(1));
      OK_OR_EXIT(context_->Synchronize());
      times.push_back(1e3 * machine_->SecondsBetweenMarks(0, 1));
    }
    std::sort(times.begin(), times.end());
    const double ms = times[times.size() / 2];
    const double rate = 1e-9 * bytes / ms;  // TB/s
    const double share = copy_rate_ > 0 ? 100 * rate / copy_rate_ : 100;
    std::printf("%-52s %9.4f ms (%.4f to %.4f) %7.3f GB %5.2f TB/s %4.0f %%\n",
                name.c_str(),
                ms,
                times.front(),
                times.back(),
                1e-9 * bytes,
                rate,
                share);
    std::fflush(stdout);
    char line[512];
    std::snprintf(line,
                  sizeof(line),
                  "    {\"name\": \"%s\", \"ms\": %.5f, \"min_ms\": %.5f, "
                  "\"max_ms\": %.5f, \"bytes\": %.0f, \"percent_of_copy\": "
                  "%.1f}",
                  name.c_str(),
                  ms,
                  times.front(),
                  times.back(),
                  bytes,
                  share);
    json_.push_back(line);
    return ms;
  }
  template <typename Params>
  double MeasureRun(const std::string& name, const Params& params) {
    return Measure(name, static_cast<double>(GetBytes(params)), [&] {
      return Run(params, machine_.get());
    });
  }

  void MeasureCopy() {
    const int64_t n = int64_t{1} << 30;
    DeviceBuffer<unsigned char> a;
    DeviceBuffer<unsigned char> b;
    OK_OR_EXIT(a.Allocate(context_, n));
    OK_OR_EXIT(b.Allocate(context_, n));
    OK_OR_EXIT(a.SetZero());
    const double ms = Measure("copy 1 GiB", 2.0 * n, [&] {
      return context_->CopyOnDevice(b.data(), a.data(), n);
    });
    copy_rate_ = 1e-9 * 2.0 * n / ms;
  }

  template <typename T>
  DeviceBuffer<T> Upload(const std::vector<T>& host) {
    DeviceBuffer<T> buffer;
    OK_OR_EXIT(buffer.Assign(context_, host));
    return buffer;
  }
  template <typename T>
  DeviceBuffer<T> Allocate(int64_t n) {
    DeviceBuffer<T> buffer;
    OK_OR_EXIT(buffer.Allocate(context_, n));
    return buffer;
  }

  void BuildIndex() {
    C_ = problem_.num_cameras;
    P_ = problem_.num_points;
    n_ = static_cast<int64_t>(problem_.camera.size());
    std::printf("%d cameras, %d points, %lld observations\n",
                problem_.num_cameras,
                problem_.num_points,
                static_cast<long long>(n_));
    const DeviceBuffer<int32_t> camera = Upload(problem_.camera);
    DeviceBuffer<int32_t> point = Upload(problem_.point);
    // 8 B in; two orders, ids, places: 20 B out.
    Measure("index from pairs, memory taken before", 28.0 * n_, [&] {
      return index_.Build(problem_.num_cameras,
                          problem_.num_points,
                          n_,
                          camera.data(),
                          point.data(),
                          &scratch_,
                          context_);
    });
    DeviceBuffer<int32_t> order = Allocate<int32_t>(P_);
    DeviceBuffer<int32_t> rank = Allocate<int32_t>(P_);
    Measure("order of points for tiles", 20.0 * P_, [&] {
      return OrderPointsByCamera(
          index_.view(), order.data(), rank.data(), &scratch_, context_);
    });
    // Twice the index, the order, and 8 B for new numbers.
    Measure("index from pairs, points ordered", 64.0 * n_ + 20.0 * P_, [&] {
      return index_.BuildOrdered(problem_.num_cameras,
                                 problem_.num_points,
                                 n_,
                                 camera.data(),
                                 point.data(),
                                 order.data(),
                                 &scratch_,
                                 context_);
    });
    Measure("tiles for recomputed Jacobians", 16.0 * n_, [&] {
      TileIndex tiles;
      return tiles.Build(index_.view(), kRecomputedTiles, &scratch_, context_);
    });
    OK_OR_EXIT(workspace_.Setup(index_.view(), {}, &scratch_, context_));
    const TileIndexView& r = workspace_.view().recomputed_tiles;
    const TileIndexView& s = workspace_.view().stored_tiles;
    std::printf(
        "recomputed tiles: %d, %.1f cameras each (most %d), %.2f observations "
        "per segment, most segments %d\n",
        r.num_tiles,
        double(r.num_tile_cameras) / r.num_tiles,
        r.max_tile_cameras,
        double(n_) / r.num_segments,
        r.max_tile_segments);
    std::printf("stored tiles: %d, %.1f cameras each (most %d)\n",
                s.num_tiles,
                double(s.num_tile_cameras) / s.num_tiles,
                s.max_tile_cameras);
  }

  void MakeScene() {
    std::mt19937 random(3);
    std::normal_distribution<double> normal;
    std::vector<double> cameras(static_cast<size_t>(9 * C_));
    for (int64_t c = 0; c < C_; ++c) {
      double* x = cameras.data() + 9 * c;
      for (int i = 0; i < 6; ++i) {
        x[i] = 0.1 * normal(random);
      }
      x[5] -= 50.0;
      x[6] = 900.0;
      x[7] = -0.05;
      x[8] = 0.01;
    }
    std::vector<double> points(static_cast<size_t>(3 * P_));
    for (double& x : points) {
      x = normal(random);
    }
    std::vector<double> observations(static_cast<size_t>(2 * n_));
    for (double& x : observations) {
      x = normal(random);
    }
    std::vector<double> vector(static_cast<size_t>(9 * C_ + 3 * P_));
    for (double& x : vector) {
      x = normal(random);
    }
    cameras_ = Upload(cameras);
    points_ = Upload(points);
    float_points_ = Upload(std::vector<float>(points.begin(), points.end()));
    observations_ = Upload(observations);
    p_ = Upload(vector);
    for (double& x : vector) {
      x = 1.0 + 0.1 * std::fabs(x);
    }
    d_ = Upload(vector);
    q_ = Allocate<double>(9 * C_ + 3 * P_);
    residuals_ = Allocate<double>(2 * n_);
    double_states_ = Allocate<CameraState<double>>(C_);
    double_maps_ = Allocate<double>(81 * C_);
    evaluation_ = Allocate<Evaluation>(1);
    PrepareCamerasParams<double, 9> prepare;
    prepare.num_cameras = problem_.num_cameras;
    prepare.cameras = cameras_.data();
    prepare.states = double_states_.data();
    prepare.maps = double_maps_.data();
    MeasureRun("prepare cameras", prepare);
    EvaluateCostParams cost;
    cost.index = workspace_.index();
    cost.cameras = double_states_.data();
    cost.points = points_.data();
    cost.observations = observations_.data();
    cost.residuals = residuals_.data();
    cost.evaluation = evaluation_.data();
    MeasureRun("cost and residuals", cost);
    cost.residuals = nullptr;
    MeasureRun("cost", cost);
    u_ = Allocate<double>(45 * C_);
    s_ = Allocate<double>(45 * C_);
    v_ = Allocate<double>(6 * P_);
    v_inverse_ = Allocate<double>(6 * P_);
    g_ = Allocate<double>(9 * C_ + 3 * P_);
    rhs_ = Allocate<double>(9 * C_);
    breakdown_ = Allocate<Breakdown>(1);
  }

  template <typename Source>
  NormalBlocksParams<Source, kDeviceLayout> BlocksParams(const Source& source) {
    NormalBlocksParams<Source, kDeviceLayout> params;
    params.index = workspace_.index();
    params.jacobian = source;
    params.b = residuals_.data();
    params.point_diagonal = d_.data() + 9 * C_;
    params.breakdown = breakdown_.data();
    return params;
  }

  template <typename Source>
  void MeasureOperations(const Source& source, const std::string& name) {
    OK_OR_EXIT(workspace_.Setup(index_.view(),
                                CudaWorkspace::Options::For<Source>(),
                                &scratch_,
                                context_));
    {
      auto params = BlocksParams(source);
      params.v = {v_.data(), P_};
      params.v_inverse = {v_inverse_.data(), P_};
      params.point_gradient = g_.data() + 9 * C_;
      MeasureRun(name + " V, Vi, g_p", params);
    }
    {
      auto params = BlocksParams(source);
      params.u = {u_.data(), C_};
      params.camera_gradient = g_.data();
      MeasureRun(name + " U, g_c", params);
    }
    {
      auto params = BlocksParams(source);
      params.v_inverse = {v_inverse_.data(), P_};
      params.schur_diagonal = {s_.data(), C_};
      params.schur_rhs = rhs_.data();
      MeasureRun(name + " Vi, S_c, s", params);
      params.schur_diagonal = {};
      MeasureRun(name + " Vi, s", params);
    }
    SchurProductImplicitWParams<Source, kDeviceLayout> schur;
    schur.index = workspace_.index();
    schur.jacobian = source;
    schur.v_inverse = {v_inverse_.data(), P_};
    schur.camera_diagonal = d_.data();
    schur.p = p_.data();
    schur.q = q_.data();
    MeasureRun(name + " S p", schur);
    BackSubstituteImplicitWParams<Source, kDeviceLayout> back;
    back.index = workspace_.index();
    back.jacobian = source;
    back.b = residuals_.data();
    back.v_inverse = {v_inverse_.data(), P_};
    back.z = p_.data();
    back.y = q_.data() + 9 * C_;
    MeasureRun(name + " back-substitution", back);
    NormalProductImplicitWParams<Source> normal;
    normal.index = workspace_.index();
    normal.jacobian = source;
    normal.camera_diagonal = d_.data();
    normal.point_diagonal = d_.data() + 9 * C_;
    normal.camera_p = p_.data();
    normal.point_p = p_.data() + 9 * C_;
    normal.camera_q = q_.data();
    normal.point_q = q_.data() + 9 * C_;
    MeasureRun(name + " (J'J + D^2) p", normal);
    RightMultiplyParams<Source> right;
    right.index = workspace_.index();
    right.jacobian = source;
    right.camera_x = p_.data();
    right.point_x = p_.data() + 9 * C_;
    right.y = residuals_.data();
    MeasureRun(name + " J x", right);
    LeftMultiplyParams<Source> left;
    left.index = workspace_.index();
    left.jacobian = source;
    left.y = residuals_.data();
    left.camera_x = q_.data();
    left.point_x = q_.data() + 9 * C_;
    MeasureRun(name + " J'y", left);
    SquaredColumnNormsParams<Source> norms;
    norms.index = workspace_.index();
    norms.jacobian = source;
    norms.camera_x = q_.data();
    norms.point_x = q_.data() + 9 * C_;
    MeasureRun(name + " column norms", norms);
  }

  // S p with other tiles.
  template <typename Source>
  void MeasureTiles(const Source& source, const std::string& name) {
    for (const TileOptions& tiles : {TileOptions{256, 1024, 5},
                                     TileOptions{256, 1024, 7},
                                     TileOptions{256, 1280, 5},
                                     TileOptions{256, 1280, 7},
                                     TileOptions{256, 1536, 5},
                                     TileOptions{256, 1536, 6},
                                     TileOptions{256, 1536, 7},
                                     TileOptions{256, 1536, 9},
                                     TileOptions{320, 2048, 7}}) {
      CudaWorkspace workspace;
      CudaWorkspace::Options options;
      options.stored_tiles = false;
      options.recomputed = tiles;
      OK_OR_EXIT(workspace.Setup(index_.view(), options, &scratch_, context_));
      SchurProductImplicitWParams<Source, kDeviceLayout> schur;
      schur.index = workspace.index();
      schur.jacobian = source;
      schur.v_inverse = {v_inverse_.data(), P_};
      schur.p = p_.data();
      schur.q = q_.data();
      char text[100];
      std::snprintf(text,
                    sizeof(text),
                    "%s S p, tiles %d / %d, segments %d",
                    name.c_str(),
                    tiles.max_points,
                    tiles.max_observations,
                    tiles.segment_length);
      MeasureRun(text, schur);
    }
  }

  template <typename T>
  void MeasureSource() {
    constexpr bool kDouble = std::is_same_v<T, double>;
    const std::string type = kDouble ? "double" : "mixed";
    DeviceBuffer<CameraState<T>> states = Allocate<CameraState<T>>(C_);
    DeviceBuffer<T> maps = Allocate<T>(81 * C_);
    PrepareCamerasParams<T, 9> prepare;
    prepare.num_cameras = problem_.num_cameras;
    prepare.cameras = cameras_.data();
    prepare.states = states.data();
    prepare.maps = maps.data();
    OK_OR_EXIT(Run(prepare, machine_.get()));
    const T* points;
    if constexpr (kDouble) {
      points = points_.data();
    } else {
      points = float_points_.data();
    }
    const RecomputedJacobian<T, 9> recomputed{
        states.data(), maps.data(), points, nullptr};
    MeasureOperations(recomputed, type + " recomputed");
    MeasureTiles(recomputed, type + " recomputed");

    DeviceBuffer<T> jc = Allocate<T>(18 * n_);
    DeviceBuffer<T> jp = Allocate<T>(6 * n_);
    EvaluateJacobianParams<T, 9, kDeviceLayout> evaluate;
    evaluate.index = workspace_.index();
    evaluate.cameras = double_states_.data();
    evaluate.camera_maps = double_maps_.data();
    evaluate.points = points_.data();
    evaluate.observations = observations_.data();
    evaluate.residuals = residuals_.data();
    evaluate.camera_blocks = {jc.data(), n_};
    evaluate.point_blocks = {jp.data(), n_};
    evaluate.evaluation = evaluation_.data();
    const double evaluate_ms =
        MeasureRun(type + " Jacobian, residuals, cost", evaluate);
    evaluate.camera_gradient = g_.data();
    evaluate.point_gradient = g_.data() + 9 * C_;
    MeasureRun(type + " Jacobian, residuals, cost, gradient", evaluate);
    {
      auto params = BlocksParams(recomputed);
      params.v = {v_.data(), P_};
      params.point_gradient = g_.data() + 9 * C_;
      params.u = {u_.data(), C_};
      params.camera_gradient = g_.data();
      const double ms = MeasureRun(type + " recomputed U, V, g", params);
      std::printf("%s normal equation, recomputed sums: %.3f ms\n",
                  type.c_str(),
                  evaluate_ms + ms);
    }
    const StoredJacobian<T, BalShape<9>, kDeviceLayout> stored{{jc.data(), n_},
                                                               {jp.data(), n_}};
    MeasureOperations(stored, type + " stored");
    {
      auto params = BlocksParams(stored);
      params.v = {v_.data(), P_};
      params.point_gradient = g_.data() + 9 * C_;
      params.u = {u_.data(), C_};
      params.camera_gradient = g_.data();
      const double ms = MeasureRun(type + " stored U, V, g", params);
      std::printf("%s normal equation, stored sums: %.3f ms\n",
                  type.c_str(),
                  evaluate_ms + ms);
    }

    MeasureSolver(recomputed, type + " recomputed");
    MeasureSolver(stored, type + " stored");
  }

  // Whole solves of 30 iterations.
  template <typename Source>
  void MeasureSolver(const Source& source, const std::string& name) {
    for (const bool use_schur : {true, false}) {
      CudaWorkspace workspace;
      OK_OR_EXIT(workspace.Setup(index_.view(),
                                 CudaWorkspace::Options::For<Source>(),
                                 &scratch_,
                                 context_));
      solver::InexactSolverOptions options;
      options.use_schur = use_schur;
      options.preconditioner = use_schur
                                   ? solver::PreconditionerType::kSchurJacobi
                                   : solver::PreconditionerType::kJacobi;
      options.min_num_iterations = 30;
      options.max_num_iterations = 30;
      solver::InexactSolver<CudaMachine, Source> solver;
      OK_OR_EXIT(solver.Setup(options, workspace.index(), machine_.get()));
      solver::ObservationSystem<Source> system;
      system.jacobian = source;
      system.b = residuals_.data();
      system.camera_diagonal = d_.data();
      system.point_diagonal = d_.data() + 9 * C_;
      solver::InexactSolverSummary summary;
      for (int i = 0; i < 2; ++i) {
        summary = solver.Solve(system, {}, q_.data(), q_.data() + 9 * C_);
      }
      std::printf(
          "%s, %s Schur: blocks %.3f ms, %d iterations, %.4f ms each, "
          "back-substitution %.3f ms. %s\n",
          name.c_str(),
          use_schur ? "with" : "without",
          1e3 * summary.normal_blocks_seconds,
          summary.num_iterations,
          1e3 * summary.pcg_seconds / summary.num_iterations,
          1e3 * summary.back_substitution_seconds,
          summary.message.c_str());
      std::fflush(stdout);
      char line[512];
      std::snprintf(line,
                    sizeof(line),
                    "    {\"name\": \"%s, %s Schur\", \"blocks_ms\": %.4f, "
                    "\"iteration_ms\": %.5f, \"back_substitution_ms\": %.4f}",
                    name.c_str(),
                    use_schur ? "with" : "without",
                    1e3 * summary.normal_blocks_seconds,
                    1e3 * summary.pcg_seconds / summary.num_iterations,
                    1e3 * summary.back_substitution_seconds);
      json_.push_back(line);
    }
  }

  void MeasureVectors() {
    for (const int64_t n : {9 * C_, 9 * C_ + 3 * P_}) {
      DeviceBuffer<double> dot = Allocate<double>(1);
      DotParams params{n, p_.data(), d_.data(), dot.data()};
      MeasureRun("dot of " + std::to_string(n), params);
    }
    InvertBlockDiagonalParams<9, kDeviceLayout> invert;
    DeviceBuffer<int32_t> first = Allocate<int32_t>(1);
    invert.num_blocks = C_;
    invert.a = {u_.data(), C_};
    invert.diagonal = d_.data();
    invert.inverse = {s_.data(), C_};
    invert.first_breakdown = first.data();
    MeasureRun("invert 9 x 9 blocks", invert);
    ApplyBlockDiagonalParams<9, kDeviceLayout> apply;
    apply.num_blocks = C_;
    apply.inverse = {s_.data(), C_};
    apply.r = p_.data();
    apply.z = q_.data();
    MeasureRun("apply 9 x 9 blocks", apply);
  }

  void WriteJson() {
    if (json_path_ == nullptr) {
      return;
    }
    std::FILE* file = std::fopen(json_path_, "w");
    if (file == nullptr) {
      std::fprintf(stderr, "Can't write %s.\n", json_path_);
      std::exit(1);
    }
    std::fprintf(file,
                 "{\n  \"device\": \"%s\",\n  \"cameras\": %lld,\n"
                 "  \"points\": %lld,\n  \"observations\": %lld,\n"
                 "  \"results\": [\n",
                 context_->device_name().c_str(),
                 static_cast<long long>(C_),
                 static_cast<long long>(P_),
                 static_cast<long long>(n_));
    for (size_t i = 0; i < json_.size(); ++i) {
      std::fprintf(
          file, "%s%s\n", json_[i].c_str(), i + 1 < json_.size() ? "," : "");
    }
    std::fprintf(file, "  ]\n}\n");
    std::fclose(file);
  }

  const char* json_path_;
  std::vector<std::string> json_;
  double copy_rate_ = 0.0;
  std::unique_ptr<CudaMachine> machine_;
  CudaContext* context_ = nullptr;
  Problem problem_;
  int64_t C_ = 0;
  int64_t P_ = 0;
  int64_t n_ = 0;
  CudaIndexScratch scratch_;
  CudaObservationIndex index_;
  CudaWorkspace workspace_;
  DeviceBuffer<double> cameras_, points_, observations_, p_, d_, q_, residuals_,
      double_maps_, u_, s_, v_, v_inverse_, g_, rhs_;
  DeviceBuffer<float> float_points_;
  DeviceBuffer<CameraState<double>> double_states_;
  DeviceBuffer<Evaluation> evaluation_;
  DeviceBuffer<Breakdown> breakdown_;
};

}  // namespace
}  // namespace ceres_ext

int main(int argc, char** argv) {
  std::string why_none;
  if (ceres_ext::kernels::NumCudaDevices(&why_none) == 0) {
    std::printf("skipped: no CUDA device (%s)\n", why_none.c_str());
    return 0;
  }
  const double fraction = argc > 1 ? std::atof(argv[1]) : 1.0;
  if (!(fraction > 0.0 && fraction <= 4.0)) {
    std::fprintf(
        stderr, "A fraction from 0 to 4 was expected, not %s.\n", argv[1]);
    return 2;
  }
  const std::string problem = argc > 3 ? argv[3] : "sequence";
  if (problem != "sequence" && problem != "city") {
    std::fprintf(
        stderr, "sequence or city was expected, not %s.\n", problem.c_str());
    return 2;
  }
  ceres_ext::Benchmark(
      fraction, argc > 2 ? argv[2] : nullptr, problem == "city")
      .MeasureAll();
  return 0;
}
