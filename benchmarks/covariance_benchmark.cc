// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Seconds of covariances on host and device, beside ceres::Covariance:
//
//   covariance_benchmark --cameras=400 --methods=host,cuda,ceres
//   covariance_benchmark --like=venice-1778 --methods=cuda --points=true
//
// A generated problem, at its truth; cameras 0 and 1 are constant, so that
// nothing is free. All diagonal blocks of cameras, with --points of points too.
// The time of a method is that of one call, from the arrays to the blocks; for
// stock Ceres without the time of building a ceres::Problem. A line of JSON a
// method: the median over --repetitions without the first one, which loads
// libraries and code, the least and the most, the stages of the last one, and
// the largest difference to the first method, in standard deviations.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/benchmark.h"
#include "ceres/ceres.h"
#include "ceres_ext/bal_cost_functions.h"
#include "ceres_ext/covariance.h"
#include "ceres_ext/solve.h"
#include "gflags/gflags.h"
#include "problem_io/bal_synthetic.h"

DEFINE_string(like, "", "Sizes of this set of BAL, in place of --cameras.");
DEFINE_int32(cameras, 400, "So many, 150 points each, 5 observations a point.");
DEFINE_bool(poses, true, "Poses of 6 parameters vary, and no intrinsics.");
DEFINE_bool(points, false, "Blocks of all points too.");
DEFINE_string(methods, "host,cuda", "In this order: host, cuda, ceres.");
DEFINE_string(factorization, "auto", "auto, dense, sparse.");
DEFINE_int32(threads, 2, "Threads of the host.");
DEFINE_int32(repetitions, 3, "Calls of a method.");

namespace ceres_ext::bal {
namespace {

struct Result {
  std::vector<double> seconds;
  std::vector<double> cameras;  // num_cameras x 9 x 9
  CovarianceSummary summary;
  std::string error;
};

class Benchmark {
 public:
  explicit Benchmark(BalProblem problem) : problem_(std::move(problem)) {
    is_constant_.assign(static_cast<size_t>(problem_.num_cameras()), 0);
    is_constant_[0] = is_constant_[1] = 1;
    ArrayProblem::Parameters cameras = {
        problem_.cameras.data(), problem_.num_cameras(), 9};
    cameras.manifold = FLAGS_poses ? &poses_ : nullptr;
    cameras.is_constant = is_constant_.data();
    const int camera_array = arrays_.AddParameters(cameras);
    const int point_array = arrays_.AddParameters(
        {problem_.points.data(), problem_.num_points(), 3});
    arrays_.AddResiduals<BalReprojectionError>(
        problem_.num_observations(),
        problem_.observations.data(),
        {{camera_array, problem_.camera_index.data()},
         {point_array, problem_.point_index.data()}});
  }

  Result Run(const std::string& method) {
    Result result;
    result.cameras.resize(
        static_cast<size_t>(81 * int64_t{problem_.num_cameras()}));
    for (int i = 0; i < FLAGS_repetitions && result.error.empty(); ++i) {
      method == "ceres" ? RunCeres(&result) : RunOurs(method, &result);
    }
    return result;
  }

 private:
  void RunOurs(const std::string& method, Result* result) {
    CovarianceOptions options;
    options.num_threads = FLAGS_threads;
    options.ext.device = method == "cuda" ? DEVICE_CUDA : DEVICE_HOST;
    options.ext.fallback = FALLBACK_REFUSE;
    options.ext.schur_factorization =
        FLAGS_factorization == "dense"    ? SCHUR_FACTORIZATION_DENSE
        : FLAGS_factorization == "sparse" ? SCHUR_FACTORIZATION_SPARSE
                                          : SCHUR_FACTORIZATION_AUTO;
    Covariance covariance(options);
    std::vector<int> wanted = {0};
    if (FLAGS_points) {
      wanted.push_back(1);
    }
    const double start = Seconds();
    const bool is_done = covariance.ComputeDiagonals(wanted, {}, arrays_);
    result->seconds.push_back(Seconds() - start);
    result->summary = covariance.summary();
    if (!is_done) {
      result->error = covariance.error();
      return;
    }
    covariance.GetDiagonalBlocks(0, result->cameras.data());
  }

  void RunCeres(Result* result) {
    ceres::Problem::Options problem_options;
    problem_options.manifold_ownership = ceres::DO_NOT_TAKE_OWNERSHIP;
    ceres::Problem problem(problem_options);
    double* const cameras = problem_.cameras.data();
    double* const points = problem_.points.data();
    for (int64_t k = 0; k < problem_.num_observations(); ++k) {
      const auto at = static_cast<size_t>(k);
      problem.AddResidualBlock(
          CreateBalReprojectionError(problem_.observations[2 * at],
                                     problem_.observations[2 * at + 1]),
          nullptr,
          cameras + 9 * int64_t{problem_.camera_index[at]},
          points + 3 * int64_t{problem_.point_index[at]});
    }
    std::vector<std::pair<const double*, const double*>> blocks;
    for (int64_t i = 0; i < problem_.num_cameras(); ++i) {
      double* const camera = cameras + 9 * i;
      if (is_constant_[static_cast<size_t>(i)] != 0) {
        problem.SetParameterBlockConstant(camera);
      } else if (FLAGS_poses) {
        problem.SetManifold(camera, &poses_);
      }
      blocks.emplace_back(camera, camera);
    }
    for (int64_t i = 0; FLAGS_points && i < problem_.num_points(); ++i) {
      blocks.emplace_back(points + 3 * i, points + 3 * i);
    }
    ceres::Covariance::Options options;
    options.algorithm_type = ceres::SPARSE_QR;
    options.num_threads = FLAGS_threads;
    ceres::Covariance covariance(options);
    const double start = Seconds();
    const bool is_done = covariance.Compute(blocks, &problem);
    result->seconds.push_back(Seconds() - start);
    if (!is_done) {
      result->error = "ceres::Covariance failed";
      return;
    }
    for (int64_t i = 0; i < problem_.num_cameras(); ++i) {
      covariance.GetCovarianceBlock(
          cameras + 9 * i, cameras + 9 * i, result->cameras.data() + 81 * i);
    }
  }

  BalProblem problem_;
  ceres::SubsetManifold poses_{9, {6, 7, 8}};
  std::vector<uint8_t> is_constant_;
  ArrayProblem arrays_;
};

double Difference(const std::vector<double>& a, const std::vector<double>& b) {
  double worst = 0.0;
  for (size_t block = 0; block < a.size(); block += 81) {
    for (size_t i = 0; i < 9; ++i) {
      for (size_t j = 0; j < 9; ++j) {
        const double scale = std::sqrt(b[block + 10 * i] * b[block + 10 * j]);
        if (scale > 0.0) {
          worst = std::max(
              worst,
              std::abs(a[block + 9 * i + j] - b[block + 9 * i + j]) / scale);
        }
      }
    }
  }
  return worst;
}

int Main() {
  SyntheticOptions options;
  if (FLAGS_like.empty()) {
    options.num_cameras = FLAGS_cameras;
    options.num_points = 150 * FLAGS_cameras;
    options.num_observations = int64_t{5} * options.num_points;
  } else if (!FindBalSize(FLAGS_like, &options)) {
    std::fprintf(stderr, "--like: there is no %s\n", FLAGS_like.c_str());
    return 1;
  }
  SyntheticProblem synthetic;
  std::string error;
  if (!GenerateSynthetic(options, &synthetic, &error)) {
    std::fprintf(stderr, "%s\n", error.c_str());
    return 1;
  }
  synthetic.start.cameras = synthetic.true_cameras;
  synthetic.start.points = synthetic.true_points;
  Benchmark benchmark(std::move(synthetic.start));
  Result first;
  for (const std::string& method : SplitAtCommas(FLAGS_methods)) {
    if (method != "host" && method != "cuda" && method != "ceres") {
      std::fprintf(stderr, "--methods: there is no %s\n", method.c_str());
      return 1;
    }
    const Result result = benchmark.Run(method);
    if (!result.error.empty()) {
      PrintLine({{"method", method}, {"error", result.error}});
      continue;
    }
    if (first.cameras.empty()) {
      first = result;
    }
    const std::vector<double> seconds(
        result.seconds.begin() + (result.seconds.size() > 1 ? 1 : 0),
        result.seconds.end());
    const CovarianceSummary& summary = result.summary;
    PrintLine(
        {{"method", method},
         {"cameras", options.num_cameras},
         {"points", options.num_points},
         {"device", summary.device},
         {"columns", summary.num_columns},
         {"seconds", Rounded(Median(seconds))},
         {"least", Rounded(Percentile(seconds, 0.0))},
         {"most", Rounded(Percentile(seconds, 1.0))},
         {"evaluation", Rounded(summary.evaluation_time_in_seconds)},
         {"factorization", Rounded(summary.factorization_time_in_seconds)},
         {"blocks", Rounded(summary.blocks_time_in_seconds)},
         {"smallest_eigenvalue", Rounded(summary.smallest_eigenvalue)},
         {"difference", Rounded(Difference(result.cameras, first.cameras))}});
  }
  return 0;
}

}  // namespace
}  // namespace ceres_ext::bal

int main(int argc, char** argv) {
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  return ceres_ext::bal::Main();
}
