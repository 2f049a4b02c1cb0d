// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The index of couplings against its definition, on the host.
#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "cuda_kernels/machine/host_machine.h"
#include "cuda_kernels/structure/coupling_index.h"
#include "cuda_kernels/structure/observation_index.h"
#include "gtest/gtest.h"
#include "tests/kernels/structures.h"

namespace ceres_ext::kernels {
namespace {

// A structure whose blocks are cut into chunks: three cameras see all points,
// of which every third one sees camera 1 twice.
Structure LongBlocks() {
  Structure structure{"long_blocks", 3, 1100, {}, {}};
  for (int32_t p = 0; p < structure.num_points; ++p) {
    for (int32_t c = 0; c < 3; ++c) {
      structure.Add(c, p);
      if (c == 1 && p % 3 == 0) {
        structure.Add(c, p);
      }
    }
  }
  structure.Shuffle(9);
  return structure;
}

class CouplingIndexTest : public testing::TestWithParam<Structure> {};

TEST_P(CouplingIndexTest, LikeItsDefinition) {
  const Structure& structure = GetParam();
  HostMachine machine(1);
  ObservationIndex observations;
  ASSERT_TRUE(observations.Build(structure.pairs()).ok());
  const ObservationIndexRef& index = observations.ref();
  // Blocks by (i, j), their couplings by (k, l).
  std::map<std::pair<int32_t, int32_t>,
           std::vector<std::pair<int64_t, int64_t>>>
      expected;
  int64_t num_couplings = 0;
  std::vector<int64_t> row_couplings(
      static_cast<size_t>(structure.num_cameras) + 1);
  for (int32_t c = 0; c < structure.num_cameras; ++c) {
    expected[{c, c}];
  }
  for (int64_t k = 0; k < index.num_observations; ++k) {
    for (int64_t l = 0; l < index.num_observations; ++l) {
      const int32_t i = index.camera_id[k];
      const int32_t j = index.camera_id[l];
      if (i > j && index.point_id[k] == index.point_id[l]) {
        expected[{i, j}].emplace_back(k, l);
        ++num_couplings;
        ++row_couplings[static_cast<size_t>(i)];
      }
    }
  }
  CouplingForecast forecast;
  ASSERT_TRUE(
      ForecastCouplings(index, CouplingList::kObservations, &machine, &forecast)
          .ok());
  EXPECT_EQ(forecast.num_couplings, num_couplings);
  EXPECT_EQ(forecast.row_couplings,
            *std::max_element(row_couplings.begin(), row_couplings.end()));
  EXPECT_GE(forecast.max_num_blocks, static_cast<int64_t>(expected.size()));
  EXPECT_EQ(machine.bytes(), 0);

  CouplingIndex couplings;
  // Twice on one object.
  ASSERT_TRUE(
      couplings.Build(index, CouplingList::kObservations, &machine).ok());
  ASSERT_TRUE(
      couplings.Build(index, CouplingList::kObservations, &machine).ok());
  EXPECT_LE(machine.bytes(), forecast.bytes);
  const CouplingIndexRef& view = couplings.ref();
  ASSERT_EQ(view.num_cameras, structure.num_cameras);
  ASSERT_EQ(view.num_blocks, static_cast<int64_t>(expected.size()));
  ASSERT_EQ(view.num_couplings, num_couplings);
  int64_t b = 0;
  int64_t begin = 0;
  int64_t chunk = 0;
  for (const auto& [cameras, list] : expected) {
    ASSERT_EQ(view.row[b], cameras.first);
    ASSERT_EQ(view.column[b], cameras.second);
    ASSERT_EQ(view.coupling_begin[b], begin);
    if (cameras.first == cameras.second) {
      EXPECT_EQ(view.row_begin[cameras.first + 1], b + 1);
    }
    for (size_t at = 0; at < list.size(); ++at) {
      const int64_t coupling = view.coupling[begin + static_cast<int64_t>(at)];
      ASSERT_EQ(FirstOfCoupling(coupling), list[at].first);
      ASSERT_EQ(SecondOfCoupling(coupling), list[at].second);
      if (static_cast<int64_t>(list.size()) > view.chunk_size() &&
          static_cast<int64_t>(at) % view.chunk_size() == 0) {
        ASSERT_LT(chunk, view.num_chunks);
        EXPECT_EQ(view.chunk[chunk].block, b);
        EXPECT_EQ(view.chunk[chunk].begin, begin + static_cast<int64_t>(at));
        ++chunk;
      }
    }
    begin += static_cast<int64_t>(list.size());
    ++b;
  }
  // Their points.
  CouplingIndex points;
  ASSERT_TRUE(points.Build(index, CouplingList::kPoints, &machine).ok());
  ASSERT_EQ(points.ref().num_couplings, num_couplings);
  EXPECT_EQ(points.ref().coupling, nullptr);
  for (int64_t at = 0; at < num_couplings; ++at) {
    ASSERT_EQ(points.ref().point[at],
              index.point_id[FirstOfCoupling(view.coupling[at])]);
  }
  EXPECT_EQ(view.row_begin[0], 0);
  EXPECT_EQ(view.coupling_begin[b], begin);
  EXPECT_EQ(view.num_chunks, chunk);
  EXPECT_EQ(chunk > 0, structure.name == "long_blocks");
}

// Going through the rows of a camera and a point for each of them would take
// days.
TEST(CouplingIndexTest, OfACameraThatSeesAPointAMillionTimes) {
  constexpr int64_t kRows = 1 << 20;
  std::vector<int32_t> camera(kRows, 1);
  camera[kRows / 2] = 0;
  const std::vector<int32_t> point(kRows, 0);
  HostMachine machine(1);
  ObservationIndex observations;
  ASSERT_TRUE(
      observations.Build({2, 1, kRows, camera.data(), point.data()}).ok());
  CouplingForecast forecast;
  ASSERT_TRUE(
      ForecastCouplings(
          observations.ref(), CouplingList::kBlocks, &machine, &forecast)
          .ok());
  EXPECT_EQ(forecast.num_couplings, kRows - 1);
  CouplingIndex couplings;
  ASSERT_TRUE(
      couplings.Build(observations.ref(), CouplingList::kBlocks, &machine)
          .ok());
  EXPECT_EQ(couplings.ref().num_couplings, kRows - 1);
  EXPECT_EQ(couplings.ref().num_blocks, 3);
}

std::vector<Structure> AllStructures() {
  std::vector<Structure> all = EdgeStructures();
  all.push_back(LongBlocks());
  return all;
}
INSTANTIATE_TEST_SUITE_P(Edges,
                         CouplingIndexTest,
                         testing::ValuesIn(AllStructures()),
                         StructureName);

TEST(Couplings, OfLargePlaces) {
  const int64_t coupling = MakeCoupling(2147483646, 2147483645);
  EXPECT_EQ(FirstOfCoupling(coupling), 2147483646);
  EXPECT_EQ(SecondOfCoupling(coupling), 2147483645);
}

}  // namespace
}  // namespace ceres_ext::kernels
