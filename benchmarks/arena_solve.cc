// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Solves a problem of benchmarks/arena that bundle_adjuster does not read, by
// this library or by stock Ceres:
//
//   arena_solve --kind=poses --input=graph.npz --output=state.npz
//       --report_json=report.json --solver=ceres_ext --settings=device=cuda
//
// poses: a graph of poses (RelativePoseError), the first one constant;
// SPARSE_NORMAL_CHOLESKY.
// positions: images and points by directions (DirectionCost), Huber's loss, a
// scale for each direction, which is bounded; SPARSE_SCHUR.
// windows: problems of BAL end to end, each by itself; DENSE_SCHUR. Its
// iterations are solves of all windows from their start that end there.
// covariance: the blocks of all poses of a BAL problem at its values, with
// constant intrinsics and the first two cameras constant.
//
// Files are arrays of numpy; benchmarks/arena/arena_kinds.py describes them.
// The report has the fields of bundle_adjuster's that the arena reads. On a
// device, all is computed twice, and what the first time takes more counts as
// the start of CUDA: it loads libraries and kernels too.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "Eigen/Core"
#include "benchmarks/arena_functors.h"
#include "benchmarks/benchmark.h"
#include "ceres/ceres.h"
#include "ceres_ext/array_problem.h"
#include "ceres_ext/bal_cost_functions.h"
#include "ceres_ext/batch.h"
#include "ceres_ext/covariance.h"
#include "ceres_ext/direction_cost_functions.h"
#include "ceres_ext/solve.h"
#include "gflags/gflags.h"
#include "problem_io/bal_writer.h"
#include "problem_io/byte_stream.h"
#include "problem_io/npz_file.h"

DEFINE_string(kind, "", "poses, positions, windows or covariance.");
DEFINE_string(input, "", "The arrays of the problem, .npz.");
DEFINE_string(output, "", "The arrays of the solution, .npz.");
DEFINE_string(report_json, "", "The report.");
DEFINE_string(solver, "ceres_ext", "ceres_ext or ceres.");
DEFINE_string(settings, "", "Options of this library: name=value,...");
DEFINE_int32(num_iterations, 50, "Iterations at most.");
DEFINE_int32(num_threads, 1, "Threads of the host.");
DEFINE_double(max_solver_time, 1e9, "Seconds after which no iteration begins.");
DEFINE_double(initial_trust_region_radius, 1e4, "As in Ceres's options.");

namespace ceres_ext {
namespace {

using Matrix3 = Eigen::Matrix<double, 3, 3, Eigen::RowMajor>;
using Matrix6 = Eigen::Matrix<double, 6, 6, Eigen::RowMajor>;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

[[noreturn]] void Die(const std::string& sentence) {
  std::fprintf(stderr, "arena_solve: %s\n", sentence.c_str());
  std::exit(1);
}

// The arrays of a file by name.
class Arrays {
 public:
  explicit Arrays(const std::string& path) {
    std::string error;
    const auto file = bal::OpenFile(path, &error);
    std::vector<bal::NpyMember> members;
    if (file == nullptr || !bal::ReadNpzMembers(*file, &members, &error)) {
      Die(path + ": " + error);
    }
    for (const bal::NpyMember& member : members) {
      const std::string name = member.name.substr(0, member.name.find('.'));
      const auto read = [&](auto* values) {
        values->resize(member.size / sizeof((*values)[0]));
        return file->ReadAt(member.begin,
                            reinterpret_cast<char*>(values->data()),
                            member.size,
                            &error) == static_cast<size_t>(member.size);
      };
      const bool is_read = member.dtype == "<f8"   ? read(&doubles_[name])
                           : member.dtype == "<i4" ? read(&numbers_[name])
                           : member.dtype == "<i8" ? read(&offsets_[name])
                                                   : false;
      if (!is_read) {
        Die(path + ": " + member.name + " could not be read. " + error);
      }
    }
  }
  std::vector<double>& doubles(const std::string& name) {
    return Find(name, &doubles_);
  }
  const std::vector<int32_t>& numbers(const std::string& name) {
    return Find(name, &numbers_);
  }
  const std::vector<int64_t>& offsets(const std::string& name) {
    return Find(name, &offsets_);
  }

 private:
  template <typename T>
  T& Find(const std::string& name, std::map<std::string, T>* arrays) {
    const auto found = arrays->find(name);
    if (found == arrays->end()) {
      Die("expected an array " + name + ", found none");
    }
    return found->second;
  }

  std::map<std::string, std::vector<double>> doubles_;
  std::map<std::string, std::vector<int32_t>> numbers_;
  std::map<std::string, std::vector<int64_t>> offsets_;
};

// The solution, as arrays of so many values a row, and the report.
struct Result {
  std::vector<std::pair<const char*, int64_t>> arrays;
  double build_seconds = 0.0;
  double context_seconds = 0.0;
  int64_t num_pcg_iterations = 0;
  int64_t num_exact_steps = 0;
  bool is_usable = false;
  std::string message;
  // Not a number if it is not that of the audit.
  double initial_cost = kNan;
  bool is_whole = true;
  std::string reason;
  std::string device = "stock";
  std::string method;
  Json iterations = Json::array();

  void AddIteration(int number, double cost, double seconds) {
    iterations.push_back({{"iteration", number},
                          {"step_is_successful", true},
                          {"cost", cost},
                          {"cumulative_time_in_seconds", seconds}});
  }
};

bool IsStock() { return FLAGS_solver == "ceres"; }

ceres::Solver::Options SolverOptions(ceres::LinearSolverType type) {
  ceres::Solver::Options options;
  options.linear_solver_type = type;
  options.max_num_iterations = FLAGS_num_iterations;
  options.num_threads = FLAGS_num_threads;
  options.initial_trust_region_radius = FLAGS_initial_trust_region_radius;
  options.logging_type = ceres::SILENT;
  // As bundle_adjuster: iterations and seconds are the limits.
  options.function_tolerance = 1e-16;
  options.gradient_tolerance = 1e-16;
  options.parameter_tolerance = 1e-16;
  return options;
}

Options ExtOptions() {
  Options options;
  std::string error;
  if (!ParseOptions(FLAGS_settings, &options, &error)) {
    Die("--settings: " + error);
  }
  return options;
}

// The solve, of arrays by this library, of `stock` otherwise. values: those
// that it changes.
void SolveFrom(const std::vector<std::vector<double>*>& values,
               ceres::Solver::Options options,
               ArrayProblem* arrays,
               ceres::Problem* stock,
               Result* result) {
  options.max_solver_time_in_seconds = FLAGS_max_solver_time;
  Summary summary;
  double before = 0.0;  // of the start of CUDA, which the iterations don't have
  if (IsStock()) {
    ceres::Solve(options, stock, &summary);
  } else {
    std::vector<std::vector<double>> start;
    start.reserve(values.size());
    for (const std::vector<double>* one : values) {
      start.push_back(*one);
    }
    Solve(options, ExtOptions(), arrays, &summary);
    result->context_seconds = summary.context_time_in_seconds;
    result->num_pcg_iterations = summary.num_pcg_iterations;
    result->num_exact_steps = summary.num_exact_steps;
    if (summary.device.rfind("host", 0) != 0) {
      const double first = summary.total_time_in_seconds;
      for (size_t i = 0; i < values.size(); ++i) {
        std::copy(start[i].begin(), start[i].end(), values[i]->begin());
      }
      summary = Summary();
      Solve(options, ExtOptions(), arrays, &summary);
      before = std::max(0.0, first - summary.total_time_in_seconds);
      result->context_seconds = before;
    }
    result->is_whole = summary.path == PATH_FULL;
    result->reason = summary.path_reason;
    result->device = summary.device;
    result->method = summary.method;
  }
  result->is_usable = summary.IsSolutionUsable();
  result->message = summary.message;
  result->initial_cost = summary.initial_cost;
  for (const ceres::IterationSummary& one : summary.iterations) {
    if (one.step_is_successful) {
      result->AddIteration(
          one.iteration, one.cost, one.cumulative_time_in_seconds + before);
    }
  }
}

ceres::Problem::Options WithoutOwnership() {
  ceres::Problem::Options options;
  options.manifold_ownership = ceres::DO_NOT_TAKE_OWNERSHIP;
  options.loss_function_ownership = ceres::DO_NOT_TAKE_OWNERSHIP;
  return options;
}

// poses (n, 7), edges (m, 2), measurements (m, 7), weights (2): of rotations
// and of positions.
Result SolvePoses(Arrays* arrays) {
  std::vector<double>& poses = arrays->doubles("poses");
  const std::vector<int32_t>& edges = arrays->numbers("edges");
  const std::vector<double>& measured = arrays->doubles("measurements");
  const std::vector<double>& weights = arrays->doubles("weights");
  const auto num_poses = static_cast<int64_t>(poses.size() / 7);
  const auto num_edges = static_cast<int64_t>(edges.size() / 2);
  Result result;
  result.arrays = {{"poses", 7}};
  ceres::ProductManifold<ceres::QuaternionManifold, ceres::EuclideanManifold<3>>
      manifold;
  std::vector<RelativePoseError> rows(num_edges);
  for (int64_t i = 0; i < num_edges; ++i) {
    std::copy_n(&measured[7 * i], 7, rows[i].measured);
    rows[i].rotation_weight = weights[0];
    rows[i].position_weight = weights[1];
  }
  const double begin = Seconds();
  ArrayProblem problem;
  ceres::Problem stock(WithoutOwnership());
  std::vector<int32_t> ends[2];
  std::vector<uint8_t> is_constant(num_poses, 0);
  is_constant[0] = 1;
  if (IsStock()) {
    for (int64_t i = 0; i < num_edges; ++i) {
      stock.AddResidualBlock(
          new ceres::AutoDiffCostFunction<RelativePoseError, 6, 7, 7>(
              new RelativePoseError(rows[i])),
          nullptr,
          &poses[7 * int64_t{edges[2 * i]}],
          &poses[7 * int64_t{edges[2 * i + 1]}]);
    }
    for (int64_t i = 0; i < num_poses; ++i) {
      stock.SetManifold(&poses[7 * i], &manifold);
    }
    stock.SetParameterBlockConstant(poses.data());
  } else {
    for (int64_t i = 0; i < 2 * num_edges; ++i) {
      ends[i % 2].push_back(edges[i]);
    }
    ArrayProblem::Parameters blocks{poses.data(), num_poses, 7};
    blocks.manifold = &manifold;
    blocks.is_constant = is_constant.data();
    const int array = problem.AddParameters(blocks);
    problem.AddResiduals<RelativePoseCost>(
        num_edges,
        rows.data(),
        {{array, ends[0].data()}, {array, ends[1].data()}});
  }
  result.build_seconds = Seconds() - begin;
  SolveFrom({&poses},
            SolverOptions(ceres::SPARSE_NORMAL_CHOLESKY),
            &problem,
            &stock,
            &result);
  return result;
}

// centers (n, 3), points (m, 3), image_index and point_index (r), directions
// (r, 3), loss (1), least_scale (1).
Result SolvePositions(Arrays* arrays) {
  std::vector<double>& centers = arrays->doubles("centers");
  std::vector<double>& points = arrays->doubles("points");
  const std::vector<int32_t>& image = arrays->numbers("image_index");
  const std::vector<int32_t>& point = arrays->numbers("point_index");
  const std::vector<double>& directions = arrays->doubles("directions");
  const double least_scale = arrays->doubles("least_scale")[0];
  const auto num_rows = static_cast<int64_t>(image.size());
  Result result;
  result.arrays = {{"centers", 3}, {"points", 3}};
  ceres::HuberLoss loss(arrays->doubles("loss")[0]);
  std::vector<double> scales(num_rows, 1.0);
  ceres::Solver::Options options = SolverOptions(ceres::SPARSE_SCHUR);
  const double begin = Seconds();
  ArrayProblem problem;
  ceres::Problem stock(WithoutOwnership());
  if (IsStock()) {
    // The order of the eliminations as COLMAP's global positioning has it.
    auto ordering = std::make_shared<ceres::ParameterBlockOrdering>();
    for (int64_t i = 0; i < num_rows; ++i) {
      double* const center = &centers[3 * int64_t{image[i]}];
      double* const seen = &points[3 * int64_t{point[i]}];
      const double* const d = &directions[3 * i];
      stock.AddResidualBlock(new DirectionCost({d[0], d[1], d[2]}),
                             &loss,
                             center,
                             seen,
                             &scales[i]);
      stock.SetParameterLowerBound(&scales[i], 0, least_scale);
      ordering->AddElementToGroup(&scales[i], 0);
      ordering->AddElementToGroup(seen, 1);
      ordering->AddElementToGroup(center, 2);
    }
    options.linear_solver_ordering = ordering;
  } else {
    const int of_centers = problem.AddParameters(
        {centers.data(), static_cast<int64_t>(centers.size() / 3), 3});
    ArrayProblem::Parameters blocks{
        points.data(), static_cast<int64_t>(points.size() / 3), 3};
    blocks.is_eliminated = true;
    const int of_points = problem.AddParameters(blocks);
    ArrayProblem::Parameters of_rows{scales.data(), num_rows, 1};
    of_rows.lower_bound = &least_scale;
    const int of_scales = problem.AddParameters(of_rows);
    problem.AddResiduals<DirectionCost>(num_rows,
                                        directions.data(),
                                        {{of_centers, image.data()},
                                         {of_points, point.data()},
                                         {of_scales, nullptr}},
                                        &loss);
  }
  result.build_seconds = Seconds() - begin;
  SolveFrom({&centers, &points, &scales}, options, &problem, &stock, &result);
  // The audit has the best scale of each direction, and this one starts at 1.
  result.initial_cost = kNan;
  return result;
}

// A BAL problem, or several end to end.
struct Bal {
  explicit Bal(Arrays* arrays)
      : cameras(arrays->doubles("cameras")),
        points(arrays->doubles("points")),
        observations(arrays->doubles("observations")),
        camera(arrays->numbers("camera_index")),
        point(arrays->numbers("point_index")) {}

  int64_t num_cameras() const { return cameras.size() / 9; }
  int64_t num_points() const { return points.size() / 3; }
  void AddRow(int64_t row, ceres::Problem* problem) {
    problem->AddResidualBlock(
        new BalReprojectionError(observations[2 * row],
                                 observations[2 * row + 1]),
        nullptr,
        &cameras[9 * int64_t{camera[row]}],
        &points[3 * int64_t{point[row]}]);
  }
  void AddTo(const ArrayProblem::Parameters& of_cameras,
             ArrayProblem* problem) {
    const int c = problem->AddParameters(of_cameras);
    const int p = problem->AddParameters({points.data(), num_points(), 3});
    problem->AddResiduals<BalReprojectionError>(
        static_cast<int64_t>(camera.size()),
        observations.data(),
        {{c, camera.data()}, {p, point.data()}});
  }

  std::vector<double>& cameras;
  std::vector<double>& points;
  std::vector<double>& observations;
  const std::vector<int32_t>& camera;
  const std::vector<int32_t>& point;
};

// Arrays of BAL, and camera_begin, point_begin, row_begin (n + 1).
class Windows {
 public:
  explicit Windows(Arrays* arrays)
      : bal_(arrays),
        row_begin_(arrays->offsets("row_begin")),
        start_{bal_.cameras, bal_.points} {
    const double begin = Seconds();
    batch_.num_problems = static_cast<int64_t>(row_begin_.size()) - 1;
    if (IsStock()) {
      problems_.resize(batch_.num_problems);
      ForEachOnThreads(
          batch_.num_problems, FLAGS_num_threads, [this](int64_t i) {
            problems_[i] = std::make_unique<ceres::Problem>();
            for (int64_t k = row_begin_[i]; k < row_begin_[i + 1]; ++k) {
              bal_.AddRow(k, problems_[i].get());
            }
          });
    } else {
      bal_.AddTo({bal_.cameras.data(), bal_.num_cameras(), 9}, &batch_.problem);
      batch_.parameter_begin = {arrays->offsets("camera_begin").data(),
                                arrays->offsets("point_begin").data()};
      batch_.residual_begin = {row_begin_.data()};
    }
    result_.build_seconds = Seconds() - begin;
    result_.arrays = {{"cameras", 9}, {"points", 3}};
  }

  Result Run() {
    const double begin = Seconds();
    result_.is_usable = true;
    std::vector<int> counts;
    for (int k = 1; k < FLAGS_num_iterations; k = std::max(k + 1, k * 4 / 3)) {
      counts.push_back(k);
    }
    const double first = IsStock() ? 0.0 : SolveAll(FLAGS_num_iterations);
    std::vector<std::pair<double, double>> found;
    for (const int k : counts) {
      if (Seconds() - begin < FLAGS_max_solver_time) {
        const double seconds = SolveAll(k);
        found.emplace_back(seconds, cost_);
      }
    }
    // The last one leaves the state.
    const double seconds = SolveAll(FLAGS_num_iterations);
    result_.context_seconds = std::max(0.0, first - seconds);
    result_.AddIteration(0, result_.initial_cost, result_.context_seconds);
    for (size_t i = 0; i < found.size(); ++i) {
      result_.AddIteration(
          counts[i], found[i].second, found[i].first + result_.context_seconds);
    }
    result_.AddIteration(
        FLAGS_num_iterations, cost_, seconds + result_.context_seconds);
    return result_;
  }

 private:
  // Seconds; the sum of the final costs is cost_.
  double SolveAll(int iterations) {
    bal_.cameras = start_[0];
    bal_.points = start_[1];
    ceres::Solver::Options options = SolverOptions(ceres::DENSE_SCHUR);
    options.max_num_iterations = iterations;
    std::vector<ProblemSummary> of(batch_.num_problems);
    const double begin = Seconds();
    double seconds = 0.0;
    if (IsStock()) {
      options.num_threads = 1;
      ForEachOnThreads(batch_.num_problems, FLAGS_num_threads, [&](int64_t i) {
        ceres::Solver::Summary summary;
        ceres::Solve(options, problems_[i].get(), &summary);
        of[i].termination_type = summary.termination_type;
        of[i].message = summary.message;
        of[i].initial_cost = summary.initial_cost;
        of[i].final_cost = summary.final_cost;
      });
      seconds = Seconds() - begin;
    } else {
      BatchSummary summary;
      std::string error;
      if (!SolveBatch(options, ExtOptions(), &batch_, &summary, &error)) {
        Die(error);
      }
      seconds = Seconds() - begin;
      result_.device = summary.device;
      of = summary.problems;
    }
    cost_ = result_.initial_cost = 0.0;
    for (const ProblemSummary& one : of) {
      cost_ += one.final_cost;
      result_.initial_cost += one.initial_cost;
      if (!one.IsSolutionUsable()) {
        result_.is_usable = false;
        result_.message = one.message;
      }
      if (!IsStock() && !one.IsSolvedWhole()) {
        result_.is_whole = false;
        result_.reason = one.path_reason;
      }
    }
    return seconds;
  }

  Bal bal_;
  const std::vector<int64_t>& row_begin_;
  const std::vector<double> start_[2];
  ProblemBatch batch_;
  std::vector<std::unique_ptr<ceres::Problem>> problems_;
  double cost_ = 0.0;
  Result result_;
};

// The derivative of w by a, where exp([a + da]x) = exp([w]x) exp([a]x).
Matrix3 LeftJacobian(const Eigen::Vector3d& a) {
  const double angle = a.norm();
  Matrix3 cross;
  cross << 0.0, -a[2], a[1], a[2], 0.0, -a[0], -a[1], a[0], 0.0;
  const double square = angle * angle;
  const double first =
      angle < 1e-4 ? 0.5 - square / 24.0 : (1.0 - std::cos(angle)) / square;
  const double second = angle < 1e-4
                            ? 1.0 / 6.0 - square / 120.0
                            : (angle - std::sin(angle)) / (square * angle);
  return Matrix3::Identity() + first * cross + second * cross * cross;
}

// Arrays of BAL. covariances (n, 6, 6): of w and t, where R becomes exp([w]x)
// R.
Result ComputeCovariance(Arrays* arrays) {
  Bal bal(arrays);
  const int64_t n = bal.num_cameras();
  ceres::SubsetManifold poses(9, {6, 7, 8});
  std::vector<uint8_t> is_constant(n, 0);
  is_constant[0] = is_constant[1] = 1;
  std::vector<double> blocks(81 * n, 0.0);
  Result result;
  result.arrays = {{"covariances", 36}};
  double seconds = 0.0;
  double begin = Seconds();
  if (IsStock()) {
    ceres::Problem problem(WithoutOwnership());
    for (size_t k = 0; k < bal.camera.size(); ++k) {
      bal.AddRow(static_cast<int64_t>(k), &problem);
    }
    std::vector<std::pair<const double*, const double*>> wanted;
    for (int64_t i = 0; i < n; ++i) {
      double* const camera = &bal.cameras[9 * i];
      problem.SetManifold(camera, &poses);
      if (is_constant[i] != 0) {
        problem.SetParameterBlockConstant(camera);
      } else {
        wanted.emplace_back(camera, camera);
      }
    }
    result.build_seconds = Seconds() - begin;
    ceres::Covariance::Options options;
    options.algorithm_type = ceres::SPARSE_QR;
    options.num_threads = FLAGS_num_threads;
    ceres::Covariance covariance(options);
    begin = Seconds();
    result.is_usable = covariance.Compute(wanted, &problem);
    seconds = Seconds() - begin;
    result.message = result.is_usable ? "" : "ceres::Covariance failed";
    for (size_t i = 0; result.is_usable && i < wanted.size(); ++i) {
      const double* const camera = wanted[i].first;
      covariance.GetCovarianceBlock(
          camera, camera, &blocks[9 * (camera - bal.cameras.data())]);
    }
  } else {
    ArrayProblem problem;
    ArrayProblem::Parameters of_cameras{bal.cameras.data(), n, 9};
    of_cameras.manifold = &poses;
    of_cameras.is_constant = is_constant.data();
    bal.AddTo(of_cameras, &problem);
    result.build_seconds = Seconds() - begin;
    CovarianceOptions options;
    options.num_threads = FLAGS_num_threads;
    options.ext = ExtOptions();
    const auto compute = [&] {
      Covariance covariance(options);
      begin = Seconds();
      result.is_usable = covariance.ComputeDiagonals({0}, {}, problem) &&
                         covariance.GetDiagonalBlocks(0, blocks.data());
      seconds = Seconds() - begin;
      result.message = covariance.error();
      result.device = covariance.summary().device;
    };
    compute();
    const double first = seconds;
    compute();
    result.context_seconds = std::max(0.0, first - seconds);
  }
  std::vector<double>& covariances = arrays->doubles("covariances");
  for (int64_t i = 0; i < n; ++i) {
    Matrix6 turn = Matrix6::Identity();
    turn.topLeftCorner<3, 3>() =
        LeftJacobian(Eigen::Vector3d(&bal.cameras[9 * i]));
    const Eigen::Map<const Eigen::Matrix<double, 9, 9, Eigen::RowMajor>> block(
        &blocks[81 * i]);
    Eigen::Map<Matrix6> covariance(&covariances[36 * i]);
    covariance = turn * block.topLeftCorner<6, 6>() * turn.transpose();
  }
  result.AddIteration(0, kNan, seconds + result.context_seconds);
  return result;
}

void Write(const Result& result, double read_seconds, Arrays* arrays) {
  std::vector<bal::NpyArray> out;
  for (const auto& [name, width] : result.arrays) {
    const std::vector<double>& values = arrays->doubles(name);
    std::vector<int64_t> shape = {static_cast<int64_t>(values.size()) / width,
                                  width};
    if (width == 36) {
      shape = {shape[0], 6, 6};
    }
    out.push_back({name,
                   "<f8",
                   shape,
                   {reinterpret_cast<const char*>(values.data()),
                    values.size() * sizeof(double)}});
  }
  std::string error;
  const Json report = {{"problem",
                        {{"read_time_in_seconds", read_seconds},
                         {"build_time_in_seconds", result.build_seconds}}},
                       {"summary",
                        {{"is_solution_usable", result.is_usable},
                         {"message", result.message},
                         {"initial_cost", result.initial_cost}}},
                       {"ceres_ext",
                        {{"path", result.is_whole ? "FULL" : "PARTIAL"},
                         {"path_reason", result.reason},
                         {"device", result.device},
                         {"method", result.method},
                         {"pcg_iterations", result.num_pcg_iterations},
                         {"exact_steps", result.num_exact_steps},
                         {"context_time_in_seconds", result.context_seconds}}},
                       {"iterations", result.iterations}};
  if (!bal::WriteNpz(FLAGS_output, out, &error) ||
      !bal::WriteTextFile(FLAGS_report_json, report.dump(1) + "\n", &error)) {
    Die(error);
  }
}

int Main() {
  const double begin = Seconds();
  Arrays arrays(FLAGS_input);
  const double read_seconds = Seconds() - begin;
  Result result;
  if (FLAGS_kind == "poses") {
    result = SolvePoses(&arrays);
  } else if (FLAGS_kind == "positions") {
    result = SolvePositions(&arrays);
  } else if (FLAGS_kind == "windows") {
    result = Windows(&arrays).Run();
  } else if (FLAGS_kind == "covariance") {
    result = ComputeCovariance(&arrays);
  } else {
    Die("--kind: expected poses, positions, windows or covariance, found " +
        FLAGS_kind);
  }
  Write(result, read_seconds, &arrays);
  return 0;
}

}  // namespace
}  // namespace ceres_ext

int main(int argc, char** argv) {
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  return ceres_ext::Main();
}
