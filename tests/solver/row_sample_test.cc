// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The neighbours of cameras and the rows of a split problem by a sample,
// against maps over the same sample.
//
// Compiled for the host and, with CERES_EXT_TEST_ON_CUDA, for a device, real or
// emulated.
#include "ceres_ext/solver/row_sample.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <random>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "cuda_kernels/structure/index_builder.h"
#include "cuda_kernels/structure/observation_index.h"
#include "gtest/gtest.h"
#include "tests/kernels/machine_test.h"
#include "tests/kernels/structures.h"

namespace ceres_ext::solver {
namespace {

using kernels::Machine;
using kernels::ObservationIndexRef;
using kernels::Structure;

class RowSampleTest : public kernels::MachineTest {
 protected:
  // The index on the machine and, with the same order, on the host.
  void Build(const Structure& structure) {
    camera_ = Upload(structure.camera);
    point_ = Upload(structure.point);
    kernels::ObservationPairs pairs = structure.pairs();
    ASSERT_TRUE(host_index_.Build(pairs).ok());
    pairs.camera = camera_.data();
    pairs.point = point_.data();
    kernels::IndexBuilder<Machine> builder(machine());
    ASSERT_TRUE(builder.Build(pairs, &index_).ok());
  }
  const ObservationIndexRef& host() const { return host_index_.ref(); }

  // The points sampled for each camera.
  std::vector<std::vector<int32_t>> Sampled(int32_t per_camera) {
    PointSample<Machine> sample;
    EXPECT_TRUE(sample.Setup(index_.ref(), per_camera, machine()).ok());
    const std::vector<int32_t> camera = Download(sample.camera);
    const std::vector<int32_t> point = Download(sample.point);
    std::vector<std::vector<int32_t>> of_camera(
        static_cast<size_t>(host().num_cameras));
    for (size_t at = 0; at < point.size(); ++at) {
      EXPECT_EQ(camera[at], static_cast<int32_t>(at) / per_camera);
      if (point[at] < host().num_points) {
        of_camera[camera[at]].push_back(point[at]);
      } else {
        EXPECT_EQ(point[at], host().num_points);
      }
    }
    return of_camera;
  }
  int64_t NumRows(int32_t point) const {
    return host().point_begin[point + 1] - host().point_begin[point];
  }

  void ExpectCouplings(int32_t per_camera);
  void ExpectSplitRows(int32_t per_camera, const std::vector<int32_t>& cluster);

 private:
  Buffer<int32_t> camera_;
  Buffer<int32_t> point_;
  kernels::ObservationIndex host_index_;
  kernels::IndexBuilder<Machine>::Index index_;
};

void RowSampleTest::ExpectCouplings(int32_t per_camera) {
  constexpr int64_t kMostRows = 32;
  constexpr size_t kStrongest = 8;
  const auto sampled = Sampled(per_camera);
  std::vector<Coupling> expected;
  for (int32_t c = 0; c < host().num_cameras; ++c) {
    std::map<int32_t, double> weight;
    for (const int32_t point : sampled[c]) {
      const int64_t n = NumRows(point);
      const int64_t every = (n + kMostRows - 1) / kMostRows;
      for (int64_t k = 0; k < n; k += every) {
        weight[host().camera_id[host().point_begin[point] + k]] +=
            1.0 / static_cast<double>(std::max<int64_t>(n - 1, 1));
      }
    }
    const double scale =
        static_cast<double>(host().camera_begin[c + 1] -
                            host().camera_begin[c]) /
        static_cast<double>(std::max<size_t>(sampled[c].size(), 1));
    using Neighbor = std::tuple<double, int32_t, int32_t>;
    std::vector<Neighbor> neighbors;
    for (const auto& [other, sum] : weight) {
      if (other != c) {
        neighbors.emplace_back(-(scale * sum), std::abs(other - c), other);
      }
    }
    std::sort(neighbors.begin(), neighbors.end());
    neighbors.resize(std::min(neighbors.size(), kStrongest));
    for (const auto& [negative, distance, other] : neighbors) {
      expected.push_back({std::min(c, other), std::max(c, other), -negative});
    }
  }
  std::vector<Coupling> couplings;
  ASSERT_TRUE(
      ListSampledCouplings(index_.ref(), per_camera, machine(), &couplings)
          .ok());
  ASSERT_EQ(couplings.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(couplings[i].i, expected[i].i) << i;
    EXPECT_EQ(couplings[i].j, expected[i].j) << i;
    EXPECT_EQ(couplings[i].weight, expected[i].weight) << i;
  }
}

void RowSampleTest::ExpectSplitRows(int32_t per_camera,
                                    const std::vector<int32_t>& cluster) {
  constexpr int kMostOfCamera = 16;
  const auto sampled = Sampled(per_camera);
  std::set<std::pair<int32_t, int32_t>> parts;
  for (int32_t c = 0; c < host().num_cameras; ++c) {
    for (const int32_t point : sampled[c]) {
      if (cluster[c] >= 0) {
        parts.insert({point, cluster[c]});
      }
    }
  }
  std::vector<int32_t> row;
  std::vector<int32_t> camera;
  std::vector<int32_t> point;
  std::vector<int32_t> point_of_part;
  for (const auto& [of_point, of_cluster] : parts) {
    std::map<int32_t, int> num_of_camera;
    std::vector<int32_t> rows;
    for (int64_t k = host().point_begin[of_point];
         k < host().point_begin[of_point + 1];
         ++k) {
      const int32_t c = host().camera_id[k];
      if (cluster[c] == of_cluster && num_of_camera[c]++ < kMostOfCamera) {
        rows.push_back(static_cast<int32_t>(k));
      }
    }
    if (rows.size() < 2) {
      continue;
    }
    for (const int32_t k : rows) {
      row.push_back(k);
      camera.push_back(host().camera_id[k]);
      point.push_back(static_cast<int32_t>(point_of_part.size()));
    }
    point_of_part.push_back(of_point);
  }
  SplitRows<Machine> rows;
  ASSERT_TRUE(rows.Setup(index_.ref(), per_camera, cluster, machine()).ok());
  EXPECT_EQ(rows.num_rows, static_cast<int64_t>(row.size()));
  EXPECT_EQ(rows.num_points, static_cast<int32_t>(point_of_part.size()));
  EXPECT_EQ(Download(rows.row), row);
  EXPECT_EQ(Download(rows.camera), camera);
  EXPECT_EQ(Download(rows.point), point);
  EXPECT_EQ(Download(rows.point_of_part), point_of_part);
}

// Points that the camera sees, as many as it has rows or as are asked for.
TEST_F(RowSampleTest, PointsOfEachCamera) {
  for (const int32_t per_camera : {1, 2, 16, 128}) {
    SCOPED_TRACE(per_camera);
    ASSERT_NO_FATAL_FAILURE(Build(kernels::MakeEdgePairs()));
    const auto sampled = Sampled(per_camera);
    for (int32_t c = 0; c < host().num_cameras; ++c) {
      std::set<int32_t> seen;
      for (int64_t j = host().camera_begin[c]; j < host().camera_begin[c + 1];
           ++j) {
        seen.insert(host().point_id[host().camera_entry[j]]);
      }
      EXPECT_EQ(
          static_cast<int64_t>(sampled[c].size()),
          std::min<int64_t>(
              per_camera, host().camera_begin[c + 1] - host().camera_begin[c]));
      for (const int32_t point : sampled[c]) {
        EXPECT_EQ(seen.count(point), 1u);
      }
    }
  }
}

TEST_F(RowSampleTest, CouplingsAndRowsOfRandomStructures) {
  std::mt19937 random(3);
  for (const Structure& structure :
       {kernels::MakeEdgePairs(),
        kernels::MakeLongPairs(),
        kernels::RandomStructure("short", 60, 5000, 5, 1),
        kernels::RandomStructure("all see all", 40, 300, 40, 2),
        kernels::RandomStructure("one camera", 1, 20, 1, 3),
        kernels::RandomStructure("one point", 9, 1, 9, 4)}) {
    SCOPED_TRACE(structure.name);
    ASSERT_NO_FATAL_FAILURE(Build(structure));
    for (const int32_t per_camera : {1, 16, 100}) {
      SCOPED_TRACE(per_camera);
      ExpectCouplings(per_camera);
      for (const int num_clusters : {1, 6}) {
        std::vector<int32_t> cluster;
        for (int32_t c = 0; c < structure.num_cameras; ++c) {
          cluster.push_back(
              c % 7 == 5 ? -1 : static_cast<int32_t>(random() % num_clusters));
        }
        ExpectSplitRows(per_camera, cluster);
      }
    }
  }
}

// No camera is in a cluster, or there is none.
TEST_F(RowSampleTest, OfNothing) {
  ASSERT_NO_FATAL_FAILURE(Build(kernels::MakeEdgePairs()));
  ExpectSplitRows(
      16, std::vector<int32_t>(static_cast<size_t>(host().num_cameras), -1));
  Structure none;
  none.num_points = 3;
  ASSERT_NO_FATAL_FAILURE(Build(none));
  ExpectCouplings(16);
  ExpectSplitRows(16, {});
}

// If a camera sees a point thousands of times, 16 rows are taken: pairs of rows
// are summed.
TEST_F(RowSampleTest, FewRowsOfACameraAndAPoint) {
  constexpr int32_t kRows = 5000;
  Structure structure;
  structure.num_cameras = 2;
  structure.num_points = 8;
  for (int32_t k = 0; k < 2 * kRows; ++k) {
    structure.Add(k / kRows, 7);
  }
  ASSERT_NO_FATAL_FAILURE(Build(structure));
  ExpectSplitRows(1, {0, 0});
  ExpectCouplings(1);
}

}  // namespace
}  // namespace ceres_ext::solver
