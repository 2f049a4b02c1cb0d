// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Every operation on observations of BAL cameras of nine columns, for each
// Jacobian source that a machine has, and whole solves.
#ifndef CERES_EXT_BENCHMARKS_OBSERVATION_OPERATIONS_H_
#define CERES_EXT_BENCHMARKS_OBSERVATION_OPERATIONS_H_

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "benchmarks/benchmark_problems.h"
#include "benchmarks/operation_list.h"
#include "ceres_ext/solver/observation_batch.h"
#include "ceres_ext/solver/step_solver.h"
#include "cuda_kernels/machine/cuda_machine.h"
#include "cuda_kernels/machine/host_machine.h"
#include "cuda_kernels/model/jacobian_source.h"
#include "cuda_kernels/ops/block_rows.h"
#include "cuda_kernels/ops/evaluate.h"
#include "cuda_kernels/ops/jacobian_products.h"
#include "cuda_kernels/ops/normal_blocks.h"
#include "cuda_kernels/ops/schur_complement.h"
#include "cuda_kernels/ops/schur_products.h"
#include "cuda_kernels/ops/vectors.h"
#include "cuda_kernels/structure/coupling_index.h"
#include "cuda_kernels/structure/cuda_coupling_index.h"
#include "cuda_kernels/structure/cuda_observation_index.h"
#include "cuda_kernels/structure/cuda_workspace.h"
#include "cuda_kernels/structure/host_workspace.h"
#include "cuda_kernels/structure/row_index.h"
#include "cuda_kernels/structure/schur_matrix.h"

namespace ceres_ext {

// The work to make an index, on a device.
inline void MeasureIndex(const BenchmarkProblem& problem,
                         kernels::CudaMachine* machine,
                         Report<kernels::CudaMachine>* report) {
  const int64_t n = static_cast<int64_t>(problem.camera.size());
  const double P = problem.num_points;
  kernels::CudaContext* const context = machine->context();
  Arrays<kernels::CudaMachine> arrays(machine);
  const int32_t* const camera = arrays.Upload(problem.camera);
  int32_t* const point = arrays.Upload(problem.point);  // Renumbered below.
  int32_t* const order = arrays.Allocate<int32_t>(problem.num_points);
  int32_t* const rank = arrays.Allocate<int32_t>(problem.num_points);
  kernels::CudaIndexScratch scratch;
  kernels::CudaObservationIndex index;
  OperationList<kernels::CudaMachine> list(machine);
  // 8 B in; two orders, ids, places: 20 B out.
  list.Add("index from pairs, memory taken before", 28.0 * n, [&] {
    return index.Build(
        {problem.num_cameras, problem.num_points, n, camera, point},
        &scratch,
        context);
  });
  list.Add("order of points for tiles", 20.0 * P, [&] {
    return kernels::OrderPointsByCamera(
        index.ref(), order, rank, &scratch, context);
  });
  // Twice the index, the order, and 8 B for new numbers.
  list.Add("index from pairs, points ordered", 64.0 * n + 20.0 * P, [&] {
    return index.BuildOrdered(
        {problem.num_cameras, problem.num_points, n, camera, point},
        point,
        order,
        &scratch,
        context);
  });
  list.Add("tiles for recomputed Jacobians", 16.0 * n, [&] {
    kernels::TileIndex tiles;
    return tiles.Build(
        index.ref(), kernels::kRecomputedTiles, &scratch, context);
  });
  report->Measure(list);
}

// On the host, with all that operations there need.
inline void MeasureIndex(const BenchmarkProblem& problem,
                         kernels::HostMachine* machine,
                         Report<kernels::HostMachine>* report) {
  const int64_t n = static_cast<int64_t>(problem.camera.size());
  kernels::RowIndex<kernels::HostMachine> index;
  OperationList<kernels::HostMachine> list(machine);
  list.Add("index from pairs", 28.0 * n, [&] {
    return index.Setup({problem.num_cameras,
                        problem.num_points,
                        n,
                        problem.camera.data(),
                        problem.point.data()},
                       {},
                       nullptr,
                       machine);
  });
  report->Measure(list);
}

template <typename Machine>
class ObservationBenchmark {
 public:
  ObservationBenchmark(const BenchmarkProblem& problem,
                       Machine* machine,
                       Report<Machine>* report)
      : problem_(problem),
        C_(problem.num_cameras),
        P_(problem.num_points),
        n_(static_cast<int64_t>(problem.camera.size())),
        machine_(machine),
        report_(report),
        arrays_(machine) {}

  void MeasureAll() {
    MeasureIndex(problem_, machine_, report_);
    MakeScene();
    MeasureEvaluation();
    MeasureBlocksOf<double>();
    MeasureBlocksOf<float>();
    MeasureVectors();
  }

 private:
  static constexpr int kC = 9;
  static constexpr kernels::BlockLayout kLayout = Machine::kLayout;
  static constexpr bool kIsCuda = std::is_same_v<Machine, kernels::CudaMachine>;
  template <typename T>
  using Recomputed = kernels::RecomputedJacobian<T, kC>;
  template <typename T>
  using Stored = kernels::StoredJacobian<T, kernels::BalShape<kC>, kLayout>;
  using RowIndex = kernels::RowIndex<Machine>;

  std::unique_ptr<RowIndex> MakeIndex(
      const typename RowIndex::Options& options) {
    auto index = std::make_unique<RowIndex>();
    OK_OR_EXIT(index->Setup({problem_.num_cameras,
                             problem_.num_points,
                             n_,
                             problem_.camera.data(),
                             problem_.point.data()},
                            options,
                            nullptr,
                            machine_));
    if constexpr (!kIsCuda) {
      // All that NormalBlocks gives per camera.
      OK_OR_EXIT(index->ref().host_workspace->ReserveCameraSums(
          2 * (kernels::PackedSize(kC) + kC)));
    }
    return index;
  }
  // As a solve with such a Jacobian has it.
  template <typename Source>
  void SetIndex() {
    if constexpr (kIsCuda) {
      index_.reset();
      index_ = MakeIndex(RowIndex::Options::For(
          kernels::IsRecomputed<Source>::value,
          std::is_same_v<typename Source::Value, float>));
      PrintTiles();
    } else if (index_ == nullptr) {
      index_ = MakeIndex({});
    }
  }
  void PrintTiles() const {
    for (const kernels::TileIndexRef& tiles :
         {index_->ref().cuda_workspace->recomputed_tiles,
          index_->ref().cuda_workspace->stored_tiles}) {
      if (tiles.num_tiles > 0) {
        std::printf("tiles: %d, %.1f cameras each (most %d)\n",
                    tiles.num_tiles,
                    double(tiles.num_tile_cameras) / tiles.num_tiles,
                    tiles.max_tile_cameras);
      }
    }
  }

  void MakeScene() {
    std::mt19937 random(3);
    std::normal_distribution<double> normal;
    const auto draw = [&](int64_t size) {
      std::vector<double> values(static_cast<size_t>(size));
      for (double& x : values) {
        x = normal(random);
      }
      return values;
    };
    std::vector<double> cameras(static_cast<size_t>(kC * C_));
    for (int64_t c = 0; c < C_; ++c) {
      double* x = cameras.data() + kC * c;
      for (int i = 0; i < 6; ++i) {
        x[i] = 0.1 * normal(random);
      }
      x[5] -= 50.0;
      x[6] = 900.0;
      x[7] = -0.05;
      x[8] = 0.01;
    }
    cameras_ = arrays_.Upload(cameras);
    const std::vector<double> points = draw(3 * P_);
    points_ = arrays_.Upload(points);
    float_points_ =
        arrays_.Upload(std::vector<float>(points.begin(), points.end()));
    observations_ = arrays_.Upload(draw(2 * n_));
    std::vector<double> vector = draw(kC * C_ + 3 * P_);
    p_ = arrays_.Upload(vector);
    for (double& x : vector) {
      x = 1.0 + 0.1 * std::fabs(x);
    }
    d_ = arrays_.Upload(vector);
    q_ = arrays_.template Allocate<double>(kC * C_ + 3 * P_);
    g_ = arrays_.template Allocate<double>(kC * C_ + 3 * P_);
    residuals_ = arrays_.template Allocate<double>(2 * n_);
    states_ = arrays_.template Allocate<kernels::CameraState<double>>(C_);
    maps_ = arrays_.template Allocate<double>(9 * kC * C_);
    evaluation_ = arrays_.template Allocate<kernels::Evaluation>(1);
    u_ = arrays_.template Allocate<double>(45 * C_);
    s_ = arrays_.template Allocate<double>(45 * C_);
    v_ = arrays_.template Allocate<double>(6 * P_);
    v_inverse_ = arrays_.template Allocate<double>(6 * P_);
    rhs_ = arrays_.template Allocate<double>(kC * C_);
    breakdown_ = arrays_.template Allocate<kernels::Breakdown>(1);
  }

  void MeasureEvaluation() {
    SetIndex<Recomputed<double>>();
    OperationList<Machine> list(machine_);
    kernels::PrepareCamerasParams<double, kC> prepare;
    prepare.num_cameras = problem_.num_cameras;
    prepare.cameras = cameras_;
    prepare.states = states_;
    prepare.maps = maps_;
    list.Add("prepare cameras", prepare);
    kernels::EvaluateCostParams cost;
    cost.index = index_->ref();
    cost.cameras = states_;
    cost.points = points_;
    cost.observations = observations_;
    cost.residuals = residuals_;
    cost.evaluation = evaluation_;
    list.Add("cost and residuals", cost);
    cost.residuals = nullptr;
    list.Add("cost", cost);
    report_->Measure(list);
  }

  template <typename Source>
  kernels::NormalBlocksParams<Source, kLayout> BlocksParams(
      const Source& source) {
    kernels::NormalBlocksParams<Source, kLayout> params;
    params.index = index_->ref();
    params.jacobian = source;
    params.b = residuals_;
    params.point_diagonal = d_ + kC * C_;
    params.breakdown = breakdown_;
    return params;
  }

  // U, V and g, as the trust-region loop asks for them.
  template <typename Source>
  void AddNormalEquation(const Source& source,
                         const std::string& name,
                         OperationList<Machine>* list) {
    auto params = BlocksParams(source);
    params.v = {v_, P_};
    params.point_gradient = g_ + kC * C_;
    params.u = {u_, C_};
    params.camera_gradient = g_;
    list->Add(name + " U, V, g", params);
  }

  template <typename Source>
  kernels::SchurProductImplicitWParams<Source, kLayout> SchurParams(
      const Source& source, const RowIndex& index) {
    kernels::SchurProductImplicitWParams<Source, kLayout> params;
    params.index = index.ref();
    params.jacobian = source;
    params.v_inverse = {v_inverse_, P_};
    params.p = p_;
    params.q = q_;
    return params;
  }

  template <typename Source>
  void MeasureOperations(const Source& source, const std::string& name) {
    OperationList<Machine> list(machine_);
    {
      auto params = BlocksParams(source);
      params.v = {v_, P_};
      params.v_inverse = {v_inverse_, P_};
      params.point_gradient = g_ + kC * C_;
      list.Add(name + " V, Vi, g_p", params);
    }
    {
      auto params = BlocksParams(source);
      params.u = {u_, C_};
      params.camera_gradient = g_;
      list.Add(name + " U, g_c", params);
    }
    {
      auto params = BlocksParams(source);
      params.v_inverse = {v_inverse_, P_};
      params.schur_diagonal = {s_, C_};
      params.schur_rhs = rhs_;
      list.Add(name + " Vi, S_c, s", params);
      params.schur_diagonal = {};
      list.Add(name + " Vi, s", params);
    }
    auto schur = SchurParams(source, *index_);
    schur.camera_diagonal = d_;
    list.Add(name + " S p", schur);
    kernels::BackSubstituteImplicitWParams<Source, kLayout> back;
    back.index = index_->ref();
    back.jacobian = source;
    back.b = residuals_;
    back.v_inverse = {v_inverse_, P_};
    back.z = p_;
    back.y = q_ + kC * C_;
    list.Add(name + " back-substitution", back);
    kernels::NormalProductImplicitWParams<Source> normal;
    normal.index = index_->ref();
    normal.jacobian = source;
    normal.camera_diagonal = d_;
    normal.point_diagonal = d_ + kC * C_;
    normal.camera_p = p_;
    normal.point_p = p_ + kC * C_;
    normal.camera_q = q_;
    normal.point_q = q_ + kC * C_;
    list.Add(name + " (J'J + D^2) p", normal);
    kernels::RightMultiplyParams<Source> right;
    right.index = index_->ref();
    right.jacobian = source;
    right.camera_x = p_;
    right.point_x = p_ + kC * C_;
    right.y = residuals_;
    list.Add(name + " J x", right);
    kernels::LeftMultiplyParams<Source> left;
    left.index = index_->ref();
    left.jacobian = source;
    left.y = residuals_;
    left.camera_x = q_;
    left.point_x = q_ + kC * C_;
    list.Add(name + " J'y", left);
    kernels::SquaredColumnNormsParams<Source> norms;
    norms.index = index_->ref();
    norms.jacobian = source;
    norms.camera_x = q_;
    norms.point_x = q_ + kC * C_;
    list.Add(name + " column norms", norms);
    report_->Measure(list);
  }

  // S as a matrix, after MeasureOperations, which leaves Vi and S_c. Larger
  // ones than kMaxMatrixBytes are left out.
  template <typename Source>
  void MeasureSchurComplement(const Source& source, const std::string& name) {
    using Couplings = std::conditional_t<kIsCuda,
                                         kernels::CudaCouplingIndex,
                                         kernels::CouplingIndex>;
    constexpr kernels::CouplingList kCouplings =
        kernels::kCouplings<Source, kLayout>;
    constexpr double kMaxMatrixBytes = 32e9;
    const kernels::ObservationIndexRef& index = index_->ref();
    kernels::CouplingForecast forecast;
    OK_OR_EXIT(
        kernels::ForecastCouplings(index, kCouplings, machine_, &forecast));
    const double block_bytes = 8.0 * kC * kC;
    std::printf("%lld couplings, at most %lld blocks of S, %.3f GB\n",
                static_cast<long long>(forecast.num_couplings),
                static_cast<long long>(forecast.max_num_blocks),
                1e-9 * forecast.bytes);
    if (static_cast<double>(forecast.bytes + forecast.build_bytes) >
            kMaxMatrixBytes ||
        block_bytes * forecast.max_num_blocks > kMaxMatrixBytes) {
      std::printf("S as a matrix: left out, too large.\n");
      return;
    }
    Couplings couplings;
    OperationList<Machine> list(machine_);
    // Each coupling is written, and sorted with its key.
    list.Add(name + " couplings from the index",
             32.0 * forecast.num_couplings,
             [&] { return couplings.Build(index, kCouplings, machine_); });
    report_->Measure(list);
    kernels::SchurUnknowns<Machine> unknowns;
    kernels::BlockFamilies families;
    families.Add(kC, problem_.num_cameras);
    OK_OR_EXIT(unknowns.Setup(families, nullptr, machine_));
    kernels::SchurCsr<Machine> csr;
    OK_OR_EXIT(csr.Setup(couplings.ref(), unknowns, machine_));
    const int64_t n = unknowns.ref().num_unknowns;
    std::printf("%lld blocks of S, %.1f %% of it, %lld chunks\n",
                static_cast<long long>(couplings.ref().num_blocks),
                200.0 * csr.num_values() / (double(n) * (n + 1)),
                static_cast<long long>(couplings.ref().num_chunks));

    Arrays<Machine> arrays(machine_);
    kernels::SchurComplementParams<Source, kLayout> params;
    params.index = index;
    params.couplings = couplings.ref();
    params.unknowns = unknowns.ref();
    params.jacobian = source;
    params.v_inverse = {v_inverse_, P_};
    params.schur_diagonal = {s_, C_};
    params.camera_diagonal = d_;
    kernels::HostSchurRows rows;
    if constexpr (!kIsCuda) {
      OK_OR_EXIT(rows.Setup(index,
                            couplings.ref(),
                            nullptr,
                            kernels::internal::CouplingScratch<Source>::kLocalF,
                            machine_));
      params.rows = rows.ref();
    }
    if constexpr (kIsCuda) {
      params.scratch = arrays.template Allocate<unsigned char>(
          kernels::ScratchBytes<Source>(n_, couplings.ref().num_chunks));
    }
    OperationList<Machine> matrices(machine_);
    const auto add = [&](const char* form) {
      matrices.Add(
          name + form,
          static_cast<double>(GetBytes(params)),
          [params, machine = machine_] { return Run(params, machine); },
          static_cast<double>(GetFlops(params)));
    };
    params.target =
        csr.target(arrays.template Allocate<double>(csr.num_values()));
    add(" S, sparse");
    if (8.0 * n * n <= kMaxMatrixBytes) {
      params.target = {};
      params.target.values = arrays.template Allocate<double>(n * n);
      params.target.stride = n;
      add(" S, dense");
    }
    report_->Measure(matrices);
  }

  // S p with other tiles, on a device.
  template <typename Source>
  void MeasureTiles(const Source& source, const std::string& name) {
    for (const kernels::TileOptions& tiles :
         {kernels::TileOptions{256, 1024, 5},
          kernels::TileOptions{256, 1024, 7},
          kernels::TileOptions{256, 1280, 5},
          kernels::TileOptions{256, 1280, 7},
          kernels::TileOptions{256, 1536, 5},
          kernels::TileOptions{256, 1536, 6},
          kernels::TileOptions{256, 1536, 7},
          kernels::TileOptions{256, 1536, 9},
          kernels::TileOptions{320, 2048, 7}}) {
      typename RowIndex::Options options;
      options.stored_tiles = false;
      options.recomputed = tiles;
      const auto index = MakeIndex(options);
      OperationList<Machine> list(machine_);
      list.Add(name + " S p, tiles " + std::to_string(tiles.max_points) +
                   " / " + std::to_string(tiles.max_observations) +
                   ", segments " + std::to_string(tiles.segment_length),
               SchurParams(source, *index));
      report_->Measure(list);
    }
  }

  // All with blocks of type T. The host has no recomputed float.
  template <typename T>
  void MeasureBlocksOf() {
    constexpr bool kDouble = std::is_same_v<T, double>;
    constexpr bool kHasRecomputed = kDouble || kIsCuda;
    const std::string type = kDouble ? "double" : "mixed";
    Arrays<Machine> arrays(machine_);
    kernels::PrepareCamerasParams<T, kC> prepare;
    prepare.num_cameras = problem_.num_cameras;
    prepare.cameras = cameras_;
    prepare.states = arrays.template Allocate<kernels::CameraState<T>>(C_);
    prepare.maps = arrays.template Allocate<double>(9 * kC * C_);
    OK_OR_EXIT(Run(prepare, machine_));
    Recomputed<T> recomputed;
    recomputed.cameras = prepare.states;
    recomputed.camera_maps = prepare.maps;
    if constexpr (kDouble) {
      recomputed.points = points_;
    } else {
      recomputed.points = float_points_;
    }
    SetIndex<Recomputed<T>>();
    if constexpr (kHasRecomputed) {
      MeasureOperations(recomputed, type + " recomputed");
      MeasureSchurComplement(recomputed, type + " recomputed");
    }
    if constexpr (kIsCuda) {
      MeasureTiles(recomputed, type + " recomputed");
    }

    OperationList<Machine> evaluation(machine_);
    kernels::EvaluateJacobianParams<T, kC, kLayout> evaluate;
    evaluate.index = index_->ref();
    evaluate.cameras = states_;
    evaluate.camera_maps = maps_;
    evaluate.points = points_;
    evaluate.observations = observations_;
    evaluate.residuals = residuals_;
    evaluate.camera_blocks = {arrays.template Allocate<T>(2 * kC * n_), n_};
    evaluate.point_blocks = {arrays.template Allocate<T>(6 * n_), n_};
    evaluate.evaluation = evaluation_;
    evaluation.Add(type + " Jacobian, residuals, cost", evaluate);
    evaluate.camera_gradient = g_;
    evaluate.point_gradient = g_ + kC * C_;
    evaluation.Add(type + " Jacobian, residuals, cost, gradient", evaluate);
    if constexpr (kHasRecomputed) {
      AddNormalEquation(recomputed, type + " recomputed", &evaluation);
    }
    report_->Measure(evaluation);
    if constexpr (kHasRecomputed) {
      MeasureSolver(recomputed, type + " recomputed");
    }

    const Stored<T> stored{evaluate.camera_blocks, evaluate.point_blocks};
    SetIndex<Stored<T>>();
    MeasureOperations(stored, type + " stored");
    MeasureSchurComplement(stored, type + " stored");
    OperationList<Machine> sums(machine_);
    AddNormalEquation(stored, type + " stored", &sums);
    report_->Measure(sums);
    MeasureSolver(stored, type + " stored");
  }

  // Whole solves of 30 iterations.
  template <typename Source>
  void MeasureSolver(const Source& source, const std::string& name) {
    constexpr int kNumIterations = 30;
    for (const bool use_schur : {true, false}) {
      solver::StepOptions options;
      options.use_schur = use_schur;
      options.preconditioner = use_schur
                                   ? solver::PreconditionerType::kSchurJacobi
                                   : solver::PreconditionerType::kJacobi;
      options.min_num_iterations = kNumIterations;
      options.max_num_iterations = kNumIterations;
      solver::ProblemBlocks blocks;
      blocks.e.Add(3, problem_.num_points);
      blocks.f.Add(kC, problem_.num_cameras);
      blocks.e_owner = {0};
      blocks.f_owner = {0};
      solver::ObservationBatch<Machine, Source> batch;
      batch.Setup(index_->ref(), 0, 0, machine_);
      batch.SetJacobian(source);
      solver::StepSolver<Machine> solver;
      OK_OR_EXIT(solver.Setup(options, blocks, {&batch}, machine_));
      solver::StepSummary summary;
      for (int i = 0; i < 2; ++i) {
        summary =
            solver.Solve({residuals_, d_ + kC * C_, d_}, {}, q_ + kC * C_, q_);
      }
      const std::string row =
          name + (use_schur ? ", with" : ", without") + " Schur, implicit W";
      const double iteration_ms =
          1e3 * summary.pcg_seconds / summary.num_iterations;
      std::printf(
          "%s: blocks %.3f ms, %d iterations, %.4f ms each, "
          "back-substitution %.3f ms. %s\n",
          row.c_str(),
          1e3 * summary.normal_blocks_seconds,
          summary.num_iterations,
          iteration_ms,
          1e3 * summary.back_substitution_seconds,
          summary.message.c_str());
      std::fflush(stdout);
      char text[512];
      std::snprintf(text,
                    sizeof(text),
                    "\"name\": \"%s\", \"blocks_ms\": %.4f, "
                    "\"iteration_ms\": %.5f, \"back_substitution_ms\": %.4f",
                    row.c_str(),
                    1e3 * summary.normal_blocks_seconds,
                    iteration_ms,
                    1e3 * summary.back_substitution_seconds);
      report_->Add(text);
    }
  }

  void MeasureVectors() {
    OperationList<Machine> list(machine_);
    Arrays<Machine> arrays(machine_);
    for (const int64_t n : {kC * C_, kC * C_ + 3 * P_}) {
      list.Add(
          "dot of " + std::to_string(n),
          kernels::DotParams{n, p_, d_, arrays.template Allocate<double>(1)});
    }
    const kernels::BlockFamily cameras{kC, static_cast<int32_t>(C_)};
    kernels::InvertBlocksParams<kC> invert;
    invert.n = C_;
    invert.a = kernels::PackedBlocks<const double>(cameras, kLayout, u_);
    invert.diagonal = d_;
    invert.inverse = kernels::PackedBlocks(cameras, kLayout, s_);
    invert.may_be_diagonal = true;
    invert.first_breakdown =
        arrays.Upload(std::vector<int32_t>{kernels::Breakdown::kNone});
    list.Add("invert 9 x 9 blocks", invert);
    kernels::ApplyBlocksParams<kC> apply;
    apply.n = C_;
    apply.a = kernels::PackedBlocks<const double>(cameras, kLayout, s_);
    apply.r = p_;
    apply.z = q_;
    list.Add("apply 9 x 9 blocks", apply);
    report_->Measure(list);
  }

  const BenchmarkProblem& problem_;
  const int64_t C_;
  const int64_t P_;
  const int64_t n_;
  Machine* machine_;
  Report<Machine>* report_;
  Arrays<Machine> arrays_;
  std::unique_ptr<RowIndex> index_;
  double *cameras_, *points_, *observations_, *p_, *d_, *q_, *residuals_,
      *maps_, *u_, *s_, *v_, *v_inverse_, *g_, *rhs_;
  float* float_points_;
  kernels::CameraState<double>* states_;
  kernels::Evaluation* evaluation_;
  kernels::Breakdown* breakdown_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_BENCHMARKS_OBSERVATION_OPERATIONS_H_
