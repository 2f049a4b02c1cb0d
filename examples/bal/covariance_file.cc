// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "examples/bal/covariance_file.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <sstream>
#include <string_view>
#include <utility>

#include "Eigen/Eigenvalues"
#include "ceres/autodiff_cost_function.h"
#include "ceres/loss_function.h"
#include "ceres/rotation.h"
#include "examples/bal/bal_geometry.h"
#include "nlohmann/json.hpp"
#include "problem_io/npz_file.h"
#include "problem_io/text_writer.h"

namespace ceres_ext::bal {
namespace {

constexpr size_t kNumWorst = 10;

// The standard deviation of value i of a block.
double StandardDeviation(const CovarianceArray& array, int64_t block, int i) {
  const int64_t n = array.size;
  return std::sqrt(array.values[static_cast<size_t>((block * n + i) * n + i)]);
}
double Largest(const CovarianceArray& array, int64_t block) {
  double largest = 0.0;
  for (int i = 0; i < array.size; ++i) {
    const double value = StandardDeviation(array, block, i);
    // NaN stays.
    largest = value <= largest ? largest : value;
  }
  return largest;
}

int64_t IdOf(const CovarianceArray& array, int64_t block) {
  return array.ids.empty() ? block : array.ids[static_cast<size_t>(block)];
}

// The largest standard deviation of each block that has one, descending.
struct Ranking {
  explicit Ranking(const CovarianceArray& array) {
    for (int64_t b = 0; b < array.num_blocks; ++b) {
      const double largest = Largest(array, b);
      if (std::isfinite(largest)) {
        blocks.emplace_back(largest, b);
      }
    }
    std::sort(blocks.begin(), blocks.end(), [](const auto& a, const auto& b) {
      return a.first != b.first ? a.first > b.first : a.second < b.second;
    });
  }
  double median() const { return blocks[blocks.size() / 2].first; }

  std::vector<std::pair<double, int64_t>> blocks;
};

// -R't of the first six values of a camera.
struct CameraCenter {
  template <typename T>
  bool operator()(const T* camera, T* center) const {
    const T inverse[3] = {-camera[0], -camera[1], -camera[2]};
    const T opposite[3] = {-camera[3], -camera[4], -camera[5]};
    ceres::AngleAxisRotatePoint(inverse, opposite, center);
    return true;
  }
};

}  // namespace

bool AddFunctionArray(const std::string& name,
                      const Covariance& covariance,
                      const ceres::CostFunction& function,
                      const std::vector<std::vector<const double*>>& blocks,
                      CovarianceReport* report,
                      std::string* error) {
  CovarianceArray array;
  array.name = name;
  array.num_blocks = static_cast<int64_t>(blocks.size());
  array.size = function.num_residuals();
  const auto size = static_cast<size_t>(array.size);
  const size_t square = size * size;
  array.values.resize(square * blocks.size());
  for (size_t b = 0; b < blocks.size(); ++b) {
    if (!covariance.GetCovarianceOfFunction(
            function, blocks[b], array.values.data() + square * b)) {
      *error = "the covariance of " + name + " can't be computed";
      return false;
    }
  }
  report->arrays.push_back(std::move(array));
  return true;
}

bool ComputeBalCovariance(const SolveBalOptions& options,
                          CovarianceScale scale,
                          BalProblem* problem,
                          CovarianceReport* report,
                          std::string* error) {
  CovarianceOptions covariance_options;
  covariance_options.num_threads = options.solver_options.num_threads;
  covariance_options.gauge = COVARIANCE_GAUGE_INNER;
  covariance_options.scale = scale;
  covariance_options.ext = options.ext_options;
  ceres::HuberLoss huber(1.0);
  const ArrayProblem of_arrays = BuildArrayProblem(
      options.robustify ? &huber : nullptr, /*manifold=*/nullptr, problem);
  Covariance covariance(covariance_options);
  const bool is_done = covariance.ComputeDiagonals({0, 1}, {}, of_arrays);
  report->arrays.clear();
  report->summary = covariance.summary();
  if (!is_done) {
    *error = covariance.error();
    return false;
  }
  for (const char* const name : {"cameras", "points"}) {
    const auto i = static_cast<int>(report->arrays.size());
    const auto& parameters = of_arrays.parameters()[static_cast<size_t>(i)];
    CovarianceArray array;
    array.name = name;
    array.num_blocks = parameters.num_blocks;
    array.size = parameters.size;
    array.values.resize(
        static_cast<size_t>(array.num_blocks * array.size * array.size));
    covariance.GetDiagonalBlocks(i, array.values.data());
    report->arrays.push_back(std::move(array));
  }
  report->arrays.back().positions = problem->points;
  const auto& cameras = of_arrays.parameters()[0];
  std::vector<std::vector<const double*>> blocks;
  for (int64_t i = 0; i < cameras.num_blocks; ++i) {
    blocks.push_back({cameras.values + i * cameras.size});
  }
  const ceres::AutoDiffCostFunction<CameraCenter, 3, 9> center(
      new CameraCenter);
  if (!AddFunctionArray("centers", covariance, center, blocks, report, error)) {
    return false;
  }
  report->arrays.back().positions = CameraCenters(*problem);
  return true;
}

bool WriteCovarianceFile(const std::string& path,
                         const CovarianceReport& report,
                         std::string* error) {
  if (EndsWith(path, ".npz")) {
    std::vector<NpyArray> members;
    for (const CovarianceArray& array : report.arrays) {
      members.push_back({array.name,
                         "<f8",
                         {array.num_blocks, array.size, array.size},
                         {reinterpret_cast<const char*>(array.values.data()),
                          array.values.size() * sizeof(double)}});
      if (!array.ids.empty()) {
        members.push_back({array.name + "_id",
                           "<i8",
                           {array.num_blocks},
                           {reinterpret_cast<const char*>(array.ids.data()),
                            array.ids.size() * sizeof(int64_t)}});
      }
    }
    return WriteNpz(path, members, error);
  }
  TextWriter writer(path);
  for (const CovarianceArray& array : report.arrays) {
    for (int64_t b = 0; b < array.num_blocks; ++b) {
      writer << array.name << " ";
      writer.Number(IdOf(array, b));
      for (int i = 0; i < array.size; ++i) {
        writer << " ";
        writer.Number(StandardDeviation(array, b, i));
      }
      writer << "\n";
    }
  }
  return writer.Close(error);
}

std::string CovarianceText(const CovarianceReport& report) {
  const CovarianceSummary& summary = report.summary;
  std::ostringstream text;
  text.precision(4);
  text << "Covariance on " << summary.device << ": "
       << summary.num_free_directions << " free directions, redundancy "
       << summary.redundancy << ", variance factor " << summary.variance_factor
       << ", in " << summary.total_time_in_seconds << " s\n";
  for (const CovarianceArray& array : report.arrays) {
    const Ranking ranking(array);
    text << "Standard deviations of " << array.name << ": ";
    if (ranking.blocks.empty()) {
      text << "none\n";
      continue;
    }
    const auto& [largest, block] = ranking.blocks[0];
    text << "median " << ranking.median() << ", largest " << largest
         << " (number " << IdOf(array, block) << ")\n";
  }
  return text.str();
}

std::string CovarianceJson(const CovarianceReport& report) {
  const CovarianceSummary& summary = report.summary;
  nlohmann::ordered_json json;
  json["device"] = summary.device;
  json["num_residuals"] = summary.num_residuals;
  json["num_columns"] = summary.num_columns;
  json["num_free_directions"] = summary.num_free_directions;
  json["redundancy"] = summary.redundancy;
  json["variance_factor"] = summary.variance_factor;
  json["smallest_eigenvalue"] = summary.smallest_eigenvalue;
  json["total_time_in_seconds"] = summary.total_time_in_seconds;
  for (const CovarianceArray& array : report.arrays) {
    const Ranking ranking(array);
    auto& of_array = json["standard_deviations"][array.name];
    of_array["num_blocks"] = array.num_blocks;
    of_array["num_finite"] = ranking.blocks.size();
    of_array["worst"] = nlohmann::ordered_json::array();
    if (!ranking.blocks.empty()) {
      of_array["median"] = ranking.median();
    }
    for (size_t i = 0; i < std::min(kNumWorst, ranking.blocks.size()); ++i) {
      const auto& [largest, block] = ranking.blocks[i];
      of_array["worst"].push_back(
          {{"id", IdOf(array, block)}, {"largest", largest}});
    }
  }
  return json.dump();
}

std::vector<Ellipsoid> Ellipsoids(const CovarianceReport& report,
                                  double num_sigmas) {
  constexpr size_t kMost = 1000;
  std::vector<Ellipsoid> ellipsoids;
  for (const CovarianceArray& array : report.arrays) {
    if (array.positions.empty()) {
      continue;
    }
    const Ranking ranking(array);
    for (size_t i = 0; i < std::min(kMost, ranking.blocks.size()); ++i) {
      const int64_t block = ranking.blocks[i].second;
      const Eigen::Map<const Eigen::Matrix3d> covariance(array.values.data() +
                                                         9 * block);
      const Eigen::SelfAdjointEigenSolver<Eigen::Matrix3d> eigen(covariance);
      Ellipsoid ellipsoid;
      std::copy_n(array.positions.data() + 3 * block, 3, ellipsoid.center);
      // A column after the other.
      Eigen::Map<Eigen::Matrix3d>(ellipsoid.semi_axes) =
          num_sigmas * eigen.eigenvectors() *
          eigen.eigenvalues().cwiseMax(0.0).cwiseSqrt().asDiagonal();
      ellipsoids.push_back(ellipsoid);
    }
  }
  return ellipsoids;
}

}  // namespace ceres_ext::bal
