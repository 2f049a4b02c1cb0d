// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "studies/host_study.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "cuda_kernels/machine/host_machine.h"
#include "cuda_kernels/structure/cuda_observation_index.h"
#include "cuda_kernels/structure/row_index.h"

namespace ceres_ext::bal {
namespace {

using kernels::HostMachine;
using kernels::Status;
using Source =
    kernels::StoredJacobian<double, kernels::BalShape<9>, kernels::kHostLayout>;

// A second pass, with all memory touched as on a device, is worth its time up
// to here.
constexpr double kRepeatSeconds = 20.0;

std::string What(const StudyProblem& problem,
                 const Configuration& configuration) {
  return "host, " + problem.name + ", " + ConfigurationName(configuration);
}

// A problem in the order of its observation index, and a machine of one thread
// for it.
class HostProblem {
 public:
  Status Setup(const BalProblem& bal) {
    const std::vector<int32_t> order = DeviceOrder(bal);
    std::vector<int32_t> rank(order.size());
    points_.resize(bal.points.size());
    for (size_t i = 0; i < order.size(); ++i) {
      rank[order[i]] = static_cast<int32_t>(i);
      std::copy_n(&bal.points[3 * int64_t{order[i]}], 3, &points_[3 * i]);
    }
    std::vector<int32_t> point_ids(bal.point_index.size());
    for (size_t k = 0; k < point_ids.size(); ++k) {
      point_ids[k] = rank[bal.point_index[k]];
    }
    CERES_EXT_RETURN_IF_ERROR(index_.Setup({bal.num_cameras(),
                                            bal.num_points(),
                                            bal.num_observations(),
                                            bal.camera_index.data(),
                                            point_ids.data()},
                                           {},
                                           nullptr,
                                           &machine_));
    CERES_EXT_RETURN_IF_ERROR(
        observations_.Allocate(2 * bal.num_observations()));
    for (int64_t k = 0; k < bal.num_observations(); ++k) {
      std::copy_n(&bal.observations[2 * int64_t{index_.ref().input_id()[k]}],
                  2,
                  observations_.data() + 2 * k);
    }
    arrays_ = {
        index_.ref(), bal.cameras.data(), points_.data(), observations_.data()};
    return {};
  }

  Status Run(const StudyOptions& options, bool repeat, StudyResult* result) {
    LevenbergMarquardt<HostMachine, Source> lm;
    CERES_EXT_RETURN_IF_ERROR(lm.Setup(options, arrays_, &machine_));
    CERES_EXT_RETURN_IF_ERROR(lm.Optimize(result));
    if (repeat && result->total_seconds < kRepeatSeconds) {
      CERES_EXT_RETURN_IF_ERROR(lm.Optimize(result));
    }
    residuals_.assign(lm.residuals(),
                      lm.residuals() + 2 * arrays_.index.num_observations);
    return {};
  }
  // State of the last run.
  const std::vector<double>& residuals() const { return residuals_; }

 private:
  HostMachine machine_{1};
  kernels::RowIndex<HostMachine> index_;
  kernels::HostBuffer<double> observations_;
  std::vector<double> points_;
  ProblemArrays arrays_;
  std::vector<double> residuals_;
};

// The largest distance of residuals from those in a file, in pixels; negative
// where there is no such file.
double LargestDifference(const std::vector<double>& residuals,
                         const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  std::vector<double> other(residuals.size());
  stream.read(reinterpret_cast<char*>(other.data()),
              static_cast<std::streamsize>(sizeof(double) * other.size()));
  if (file.empty() || !stream) {
    return -1.0;
  }
  double largest = 0.0;
  for (size_t i = 0; i < other.size(); i += 2) {
    const double distance =
        std::hypot(residuals[i] - other[i], residuals[i + 1] - other[i + 1]);
    largest = std::max(largest,
                       std::isfinite(distance)
                           ? distance
                           : std::numeric_limits<double>::infinity());
  }
  return largest;
}

}  // namespace

std::vector<int32_t> DeviceOrder(const BalProblem& bal) {
  struct Seen {
    int32_t first = 0;
    int32_t last = 0;
    int64_t length = 0;
  };
  std::vector<Seen> seen(bal.num_points());
  for (int64_t k = 0; k < bal.num_observations(); ++k) {
    Seen& point = seen[bal.point_index[k]];
    const int32_t camera = bal.camera_index[k];
    point.first = point.length == 0 ? camera : std::min(point.first, camera);
    point.last = std::max(point.last, camera);
    ++point.length;
  }
  constexpr int64_t kLongest = 1023;
  int bits = 1;
  while ((int64_t{1} << bits) <
         int64_t{bal.num_cameras()} / kernels::kPointOrderGroup + 2) {
    ++bits;
  }
  std::vector<std::pair<uint64_t, int64_t>> keys(seen.size());
  for (size_t i = 0; i < seen.size(); ++i) {
    uint64_t place = (uint64_t{1} << (2 * bits)) - 1;
    if (seen[i].length > 0) {
      place = kernels::HilbertIndex(
          static_cast<uint32_t>(seen[i].first / kernels::kPointOrderGroup),
          static_cast<uint32_t>(seen[i].last / kernels::kPointOrderGroup),
          bits);
    }
    keys[i] = {place, -std::min(seen[i].length, kLongest)};
  }
  std::vector<int32_t> order(seen.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return keys[a] < keys[b];
  });
  return order;
}

Status TimeOneByOneOnHost(const StudyProblem& problem, StudyRecord* record) {
  HostProblem host;
  bool is_set_up = false;
  for (const Configuration& configuration : FourConfigurations()) {
    if (record->out_of_time()) {
      record->Skip(What(problem, configuration), "out of time");
      continue;
    }
    if (!is_set_up) {
      CERES_EXT_RETURN_IF_ERROR(host.Setup(problem.bal));
      is_set_up = true;
    }
    StudyResult result;
    const StudyOptions options = MakeStudyOptions(configuration, 1, 1);
    CERES_EXT_RETURN_IF_ERROR(host.Run(options, /*repeat=*/true, &result));
    record->Size(problem)["runs"].push_back(
        RunRow("host", "stored double", configuration, options, result));
  }
  return {};
}

Status TimeRunsOnHost(const StudyProblem& problem, StudyRecord* record) {
  const StudySettings& settings = record->settings();
  HostProblem host;
  bool is_set_up = false;
  for (const Configuration& configuration : FourConfigurations()) {
    if (record->out_of_time()) {
      record->Skip(What(problem, configuration) + ", whole run", "out of time");
      continue;
    }
    if (!is_set_up) {
      CERES_EXT_RETURN_IF_ERROR(host.Setup(problem.bal));
      is_set_up = true;
    }
    StudyResult result;
    const StudyOptions options =
        record->WholeRun(configuration, settings.host_run_seconds);
    CERES_EXT_RETURN_IF_ERROR(host.Run(options, /*repeat=*/false, &result));
    Json row = RunRow("host", "stored double", configuration, options, result);
    const double difference =
        result.end == StudyEnd::kTime
            ? -1.0
            : LargestDifference(
                  host.residuals(),
                  ResidualsFile(settings, problem, configuration));
    if (difference >= 0.0) {
      row["pixel_difference"] = Rounded(difference);
    }
    record->Size(problem)["runs"].push_back(row);
  }
  return {};
}

}  // namespace ceres_ext::bal
