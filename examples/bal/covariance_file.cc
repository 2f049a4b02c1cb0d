// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "examples/bal/covariance_file.h"

#include <algorithm>
#include <cmath>
#include <sstream>
#include <string_view>
#include <utility>

#include "ceres/loss_function.h"
#include "problem_io/npz_file.h"
#include "problem_io/text_writer.h"

namespace ceres_ext::bal {
namespace {

// The name of value i of a block.
double StandardDeviation(const CovarianceArray& array, int64_t block, int i) {
  const int64_t n = array.size;
  return std::sqrt(array.values[static_cast<size_t>((block * n + i) * n + i)]);
}

int64_t IdOf(const CovarianceArray& array, int64_t block) {
  return array.ids.empty() ? block : array.ids[static_cast<size_t>(block)];
}

}  // namespace

bool ComputeBalCovariance(const SolveBalOptions& options,
                          CovarianceScale scale,
                          BalProblem* problem,
                          std::vector<CovarianceArray>* arrays,
                          CovarianceSummary* summary,
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
  *summary = covariance.summary();
  if (!is_done) {
    *error = covariance.error();
    return false;
  }
  arrays->clear();
  for (const char* const name : {"cameras", "points"}) {
    const auto i = static_cast<int>(arrays->size());
    const auto& parameters = of_arrays.parameters()[static_cast<size_t>(i)];
    CovarianceArray array;
    array.name = name;
    array.num_blocks = parameters.num_blocks;
    array.size = parameters.size;
    array.values.resize(
        static_cast<size_t>(array.num_blocks * array.size * array.size));
    covariance.GetDiagonalBlocks(i, array.values.data());
    arrays->push_back(std::move(array));
  }
  return true;
}

bool WriteCovarianceFile(const std::string& path,
                         const std::vector<CovarianceArray>& arrays,
                         std::string* error) {
  if (EndsWith(path, ".npz")) {
    std::vector<NpyArray> members;
    for (const CovarianceArray& array : arrays) {
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
  for (const CovarianceArray& array : arrays) {
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

std::string CovarianceText(const std::vector<CovarianceArray>& arrays,
                           const CovarianceSummary& summary) {
  std::ostringstream text;
  text.precision(4);
  text << "Covariance on " << summary.device << ": "
       << summary.num_free_directions << " free directions, redundancy "
       << summary.redundancy << ", variance factor " << summary.variance_factor
       << ", in " << summary.total_time_in_seconds << " s\n";
  for (const CovarianceArray& array : arrays) {
    std::vector<std::pair<double, int64_t>> largest;
    for (int64_t b = 0; b < array.num_blocks; ++b) {
      double of_block = 0.0;
      for (int i = 0; i < array.size; ++i) {
        of_block = std::max(of_block, StandardDeviation(array, b, i));
      }
      if (std::isfinite(StandardDeviation(array, b, 0))) {
        largest.emplace_back(of_block, IdOf(array, b));
      }
    }
    text << "Standard deviations of " << array.name << ": ";
    if (largest.empty()) {
      text << "none\n";
      continue;
    }
    std::sort(largest.begin(), largest.end());
    text << "median " << largest[largest.size() / 2].first << ", largest "
         << largest.back().first << " (number " << largest.back().second
         << ")\n";
  }
  return text.str();
}

}  // namespace ceres_ext::bal
