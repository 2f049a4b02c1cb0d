// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "examples/bal/problem_report.h"

#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "examples/bal/bal_geometry.h"
#include "nlohmann/json.hpp"

namespace ceres_ext::bal {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kNumWorstBlocks = 10;
constexpr int64_t kMaxPoints = 20000;
constexpr int64_t kMaxCameras = 5000;

// Bins of residuals: quarters of decades, with all that is smaller or larger in
// the outermost.
constexpr int kBinsPerDecade = 4;
constexpr int kSmallestDecade = -4;
constexpr int kNumBins = 9 * kBinsPerDecade;

template <typename... Arrays>
uint32_t Checksum(const Arrays&... arrays) {
  uint32_t sum = 0;
  ((sum = crc32_z(sum,
                  reinterpret_cast<const Bytef*>(arrays.data()),
                  arrays.size() * sizeof(arrays[0]))),
   ...);
  return sum;
}

// |r| of the observations of one state.
Json ResidualJson(std::vector<double> squared_norms) {
  const size_t n = squared_norms.size();
  squared_norms.erase(
      std::remove_if(squared_norms.begin(),
                     squared_norms.end(),
                     [](double norm2) { return !std::isfinite(norm2); }),
      squared_norms.end());
  const size_t size = squared_norms.size();
  Json json;
  json["rms"] = std::sqrt(
      std::accumulate(squared_norms.begin(), squared_norms.end(), 0.0) /
      static_cast<double>(size));
  for (const auto& [name, part] : {std::pair("median", 0.5),
                                   std::pair("percentile_90", 0.9),
                                   std::pair("percentile_99", 0.99),
                                   std::pair("largest", 1.0)}) {
    json[name] = nullptr;
    if (size > 0) {
      const auto place =
          squared_norms.begin() +
          static_cast<int64_t>(part * static_cast<double>(size - 1));
      std::nth_element(squared_norms.begin(), place, squared_norms.end());
      json[name] = std::sqrt(*place);
    }
  }
  json["num_not_finite"] = n - size;
  std::vector<int64_t> bins(kNumBins);
  for (const double norm2 : squared_norms) {
    const double bin =
        kBinsPerDecade * (0.5 * std::log10(norm2) - kSmallestDecade);
    ++bins[static_cast<int>(std::clamp(std::floor(bin), 0.0, kNumBins - 1.0))];
  }
  json["histogram"] = bins;
  return json;
}

// The blocks that `index` names for each observation: the worst by their RMS,
// those that are not finite first, and how many have how many observations.
Json BlocksJson(const BalArray<int32_t>& index,
                int64_t num_blocks,
                const std::vector<double>& squared_norms) {
  std::vector<int64_t> counts(num_blocks);
  for (const int32_t block : index) {
    ++counts[block];
  }
  std::vector<double> means(num_blocks);
  for (size_t i = 0; i < index.size(); ++i) {
    means[index[i]] += squared_norms[i] / static_cast<double>(counts[index[i]]);
  }
  std::vector<int64_t> worst(num_blocks);
  std::iota(worst.begin(), worst.end(), 0);
  const auto badness = [&means](int64_t id) {
    return std::isnan(means[id]) ? std::numeric_limits<double>::infinity()
                                 : means[id];
  };
  const size_t size = std::min(kNumWorstBlocks, worst.size());
  std::partial_sort(worst.begin(),
                    worst.begin() + static_cast<int64_t>(size),
                    worst.end(),
                    [&](int64_t a, int64_t b) {
                      return badness(a) != badness(b) ? badness(a) > badness(b)
                                                      : a < b;
                    });
  Json json;
  json["worst"] = Json::array();
  for (size_t i = 0; i < size; ++i) {
    json["worst"].push_back({{"id", worst[i]},
                             {"num_observations", counts[worst[i]]},
                             {"rms", std::sqrt(means[worst[i]])}});
  }
  constexpr int64_t kFirst[] = {
      0,    1,     2,     3,     4,      5,      6,      8,      10,
      15,   20,    30,    50,    100,    200,    500,    1000,   2000,
      5000, 10000, 20000, 50000, 100000, 200000, 500000, 1000000};
  std::vector<int64_t> bins(std::size(kFirst));
  for (const int64_t count : counts) {
    ++bins[std::upper_bound(std::begin(kFirst), std::end(kFirst), count) -
           kFirst - 1];
  }
  json["first_num_observations"] = kFirst;
  json["num_blocks"] = bins;
  json["most_observations"] = *std::max_element(counts.begin(), counts.end());
  return json;
}

// At most max_size of the positions (3 each), evenly spread over their order,
// without those that no axis of a plot can show.
std::vector<double> Sample(const std::vector<double>& positions,
                           int64_t max_size) {
  const int64_t n = static_cast<int64_t>(positions.size()) / 3;
  const int64_t size = std::min(n, max_size);
  std::vector<double> sample;
  for (int64_t k = 0; k < size; ++k) {
    const double* position = positions.data() + 3 * (k * n / size);
    if (std::all_of(position, position + 3, [](double x) {
          return std::abs(x) <= 1e300;
        })) {
      sample.insert(sample.end(), position, position + 3);
    }
  }
  return sample;
}

}  // namespace

ProblemChecksums ChecksumsOf(const BalProblem& problem) {
  return {
      Checksum(problem.camera_index, problem.point_index, problem.observations),
      Checksum(problem.cameras, problem.points)};
}

std::string ProblemReportJson(const BalProblem& problem,
                              const ProblemChecksums& checksums,
                              const ReprojectionErrors& before,
                              const ReprojectionErrors* after) {
  const std::vector<double>& norms =
      (after != nullptr ? *after : before).squared_norms;
  Json json;
  json["observations_crc32"] = checksums.observations;
  json["parameters_crc32"] = checksums.parameters;
  json["before"] = ResidualJson(before.squared_norms);
  if (after != nullptr) {
    json["after"] = ResidualJson(after->squared_norms);
  }
  json["cameras"] =
      BlocksJson(problem.camera_index, problem.num_cameras(), norms);
  json["points"] = BlocksJson(problem.point_index, problem.num_points(), norms);
  json["camera_positions"] = Sample(CameraCenters(problem), kMaxCameras);
  json["point_positions"] = Sample(problem.points, kMaxPoints);
  return json.dump();
}

}  // namespace ceres_ext::bal
