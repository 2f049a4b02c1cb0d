// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The index built on the device has the host's bits; tiles keep their promises.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "cuda_kernels/machine/cuda_process.h"
#include "cuda_kernels/machine/cuda_sort.h"
#include "cuda_kernels/ops/vectors.h"
#include "cuda_kernels/structure/coupling_index.h"
#include "cuda_kernels/structure/cuda_coupling_index.h"
#include "cuda_kernels/structure/row_index.h"
#include "cuda_kernels/structure/shared_rows.h"
#include "cuda_kernels/structure/tile_index.h"
#include "tests/kernels/cuda_test_util.h"

namespace ceres_ext::kernels {
namespace {

class CudaIndexTest : public CudaProblemTest {
 protected:
  template <typename T>
  std::vector<T> Read(const T* device, int64_t n) {
    std::vector<T> host(static_cast<size_t>(n));
    EXPECT_TRUE(context_
                    ->CopyToHost(host.data(),
                                 device,
                                 n * static_cast<int64_t>(sizeof(T)))
                    .ok());
    return host;
  }

  template <typename T>
  void ExpectSame(const T* host, const T* device, int64_t n, const char* what) {
    EXPECT_EQ(std::vector<T>(host, host + n), Read(device, n)) << what;
  }

  void ExpectSameAsHost() { ExpectSameAsHost(index_.ref()); }
  void ExpectSameAsHost(const ObservationIndexRef& b) {
    const ObservationIndexRef& a = host_index_.ref();
    const int64_t n = a.num_observations;
    ASSERT_EQ(n, b.num_observations);
    ExpectSame(a.point_begin, b.point_begin, a.num_points + 1, "point_begin");
    ExpectSame(
        a.camera_begin, b.camera_begin, a.num_cameras + 1, "camera_begin");
    ExpectSame(a.camera_id, b.camera_id, n, "camera_id");
    ExpectSame(a.point_id, b.point_id, n, "point_id");
    ExpectSame(a.input_id(), b.input_id(), n, "input_id");
    ExpectSame(a.camera_entry, b.camera_entry, n, "camera_entry");
  }

  void ExpectGoodTiles(const TileOptions& options);

  // The couplings of pairs, built by several slabs, twice on one object.
  void ExpectCouplingsLikeHost(const Structure& pairs) {
    BuildIndex(pairs);
    for (const CouplingList list :
         {CouplingList::kObservations, CouplingList::kPoints}) {
      ExpectCouplingsLikeHost(list);
    }
  }
  void ExpectCouplingsLikeHost(CouplingList list) {
    CouplingForecast expected;
    CouplingForecast forecast;
    ASSERT_OK(
        ForecastCouplings(host_index_.ref(), list, &host_machine_, &expected));
    const int64_t before = context_->used_bytes();
    ASSERT_OK(ForecastCouplings(index_.ref(), list, machine_.get(), &forecast));
    EXPECT_EQ(context_->used_bytes(), before);
    EXPECT_EQ(forecast.num_couplings, expected.num_couplings);
    EXPECT_EQ(forecast.row_couplings, expected.row_couplings);
    EXPECT_EQ(forecast.max_num_blocks, expected.max_num_blocks);
    EXPECT_EQ(forecast.bytes, expected.bytes);
    CouplingIndex host;
    ASSERT_OK(host.Build(host_index_.ref(), list, &host_machine_));
    const CouplingIndexRef& a = host.ref();
    EXPECT_EQ(a.num_couplings, expected.num_couplings);
    CudaCouplingIndex couplings;
    for (const int64_t slab : {kCouplingSlab, int64_t{1}, int64_t{1000}}) {
      ASSERT_OK(couplings.Build(index_.ref(), list, machine_.get(), slab));
      EXPECT_LE(context_->used_bytes() - before, forecast.bytes);
      const CouplingIndexRef& b = couplings.ref();
      ASSERT_EQ(a.num_cameras, b.num_cameras);
      ASSERT_EQ(a.num_blocks, b.num_blocks);
      ASSERT_EQ(a.num_couplings, b.num_couplings);
      ASSERT_EQ(a.num_chunks, b.num_chunks);
      ExpectSame(a.row_begin, b.row_begin, a.num_cameras + 1, "row_begin");
      ExpectSame(a.row, b.row, a.num_blocks, "row");
      ExpectSame(a.column, b.column, a.num_blocks, "column");
      ExpectSame(a.coupling_begin,
                 b.coupling_begin,
                 a.num_blocks + 1,
                 "coupling_begin");
      if (list == CouplingList::kPoints) {
        EXPECT_EQ(b.coupling, nullptr);
        ExpectSame(a.point, b.point, a.num_couplings, "point");
      } else {
        EXPECT_EQ(b.point, nullptr);
        ExpectSame(a.coupling, b.coupling, a.num_couplings, "coupling");
      }
      const auto chunks = Read(b.chunk, b.num_chunks);
      for (int64_t c = 0; c < b.num_chunks; ++c) {
        const CouplingChunk& chunk = chunks[static_cast<size_t>(c)];
        EXPECT_EQ(chunk.block, a.chunk[c].block);
        EXPECT_EQ(chunk.begin, a.chunk[c].begin);
      }
    }
  }
};

// Views of no cell, of one, and of several in one family, with blocks of one
// view's rows alone, of all views, and of none.
TEST_F(CudaIndexTest, SharedRowsLikeHost) {
  for (const Structure& pairs : {MakeEdgePairs(),
                                 MakeLongPairs(),
                                 MakePairs(300, 60000, {5, 4, 6}, 9),
                                 Structure{"", 3, 5, {}, {}},
                                 Structure()}) {
    BuildIndex(pairs);
    BlockFamilies families;
    families.Add(6, pairs.num_cameras);
    families.Add(4, 3);
    families.Add(9, 1);
    families.Add(1, 40);
    std::mt19937 generator(7);
    const auto draw = [&](int n) {
      return static_cast<int32_t>(generator() % n);
    };
    SharedCells shared;
    for (int32_t v = 0; v < pairs.num_cameras; ++v) {
      const auto add = [&](int32_t family, int32_t block) {
        const int32_t size = 1 + draw(families[family].size);
        shared.cells.push_back({family, block, {draw(100), -1, size}});
      };
      if (v % 5 != 4) {
        add(1, v % 3 == 0 ? 0 : 2);
      }
      if (v % 2 == 0) {
        add(2, 0);
      }
      for (int32_t j = draw(4); j > 0; --j) {
        add(3, 10 * draw(3) + j);
      }
      shared.view_begin.push_back(static_cast<int32_t>(shared.cells.size()));
    }
    std::vector<MachineBlockList<HostMachine>> expected;
    std::vector<MachineBlockList<CudaMachine>> lists;
    ASSERT_OK(ListSharedRows(
        families, shared, host_index_.ref(), &host_machine_, &expected));
    for (int i = 0; i < 2; ++i) {
      ASSERT_OK(ListSharedRows(
          families, shared, index_.ref(), machine_.get(), &lists));
    }
    ASSERT_EQ(lists.size(), expected.size());
    ASSERT_EQ(lists.size(), pairs.camera.empty() ? 0u : 3u);
    for (size_t l = 0; l < lists.size(); ++l) {
      const BlockListRef& a = expected[l].view;
      const BlockListRef& b = lists[l].view;
      EXPECT_EQ(lists[l].family, expected[l].family);
      EXPECT_EQ(b.size, a.size);
      ASSERT_EQ(b.num_blocks, a.num_blocks);
      ASSERT_EQ(b.num_segments, a.num_segments);
      ExpectSame(a.block, b.block, a.num_blocks, "block");
      ExpectSame(a.segment_begin,
                 b.segment_begin,
                 a.num_segments + 1,
                 "segment_begin");
      const int64_t num_cells = a.segment_begin[a.num_segments];
      ASSERT_EQ(lists[l].cells.size(), num_cells);
      const auto cells = Read(b.cells, num_cells);
      for (int64_t c = 0; c < num_cells; ++c) {
        const BlockCell& cell = cells[static_cast<size_t>(c)];
        ASSERT_EQ(cell.value, a.cells[c].value) << c;
        ASSERT_EQ(cell.row, a.cells[c].row) << c;
        ASSERT_EQ(cell.size, a.cells[c].size) << c;
      }
      ASSERT_EQ(lists[l].levels.size(), expected[l].levels.size());
      for (size_t i = 0; i < lists[l].levels.size(); ++i) {
        const int64_t num_sums = expected[l].levels[i].num_sums;
        ASSERT_EQ(lists[l].levels[i].num_sums, num_sums);
        ExpectSame(expected[l].levels[i].begin,
                   lists[l].levels[i].begin,
                   num_sums + 1,
                   "level");
      }
    }
  }
}

TEST_F(CudaIndexTest, CouplingsLikeHost) {
  ExpectCouplingsLikeHost(MakeEdgePairs());
  // Repeated pairs in one track of 1,700 observations.
  ExpectCouplingsLikeHost(MakeLongPairs());
  // Cameras that see a point hundreds of times.
  ExpectCouplingsLikeHost(MakePairs(5, 3, {0, 700}, 7));
  ExpectCouplingsLikeHost(Structure{"", 3, 5, {}, {}});
  ExpectCouplingsLikeHost(Structure());
}

// Blocks that are cut into chunks.
TEST_F(CudaIndexTest, CouplingsOfFewCamerasLikeHost) {
  ExpectCouplingsLikeHost(MakePairs(4, 2000, {3}, 23));
}

// A point that 2,406 cameras see.
TEST_F(CudaIndexTest, CouplingsOfALongTrackLikeHost) {
  Structure pairs{"", 2406, 2, {}, {}};
  for (int32_t c = 0; c < pairs.num_cameras; ++c) {
    pairs.Add(c, 1);
  }
  BuildIndex(pairs);
  CouplingIndex host;
  ASSERT_OK(host.Build(
      host_index_.ref(), CouplingList::kObservations, &host_machine_));
  CudaCouplingIndex couplings;
  ASSERT_OK(couplings.Build(index_.ref(),
                            CouplingList::kObservations,
                            machine_.get(),
                            int64_t{1} << 20));
  const CouplingIndexRef& a = host.ref();
  const CouplingIndexRef& b = couplings.ref();
  ASSERT_EQ(b.num_couplings, int64_t{2406} * 2405 / 2);
  ASSERT_EQ(a.num_blocks, b.num_blocks);
  ExpectSame(a.column, b.column, a.num_blocks, "column");
  ExpectSame(a.coupling, b.coupling, a.num_couplings, "coupling");
}

TEST_F(CudaIndexTest, EdgesLikeHost) {
  BuildIndex(MakeEdgePairs());
  ExpectSameAsHost();
}

TEST_F(CudaIndexTest, LongTracksLikeHost) {
  BuildIndex(MakeLongPairs());
  ExpectSameAsHost();
}

TEST_F(CudaIndexTest, NoObservationsLikeHost) {
  BuildIndex(Structure{"", 3, 5, {}, {}});
  ExpectSameAsHost();
}

TEST_F(CudaIndexTest, NothingAtAllLikeHost) {
  BuildIndex(Structure());
  ExpectSameAsHost();
}

TEST_F(CudaIndexTest, OneOfEachLikeHost) {
  BuildIndex(Structure{"", 1, 1, {0, 0}, {0, 0}});
  ExpectSameAsHost();
}

TEST_F(CudaIndexTest, TwiceOnOneObject) {
  BuildIndex(MakeLongPairs());
  BuildIndex(MakeEdgePairs());
  ExpectSameAsHost();
}

TEST_F(CudaIndexTest, FirstIdOutOfRangeIsNamed) {
  const std::vector<int32_t> camera = {0, 1, 3, 0, -1};
  const std::vector<int32_t> point = {0, 1, 1, 7, 0};
  const auto device_camera = Upload(camera);
  const auto device_point = Upload(point);
  const Status status =
      index_.Build({3, 2, 5, device_camera.data(), device_point.data()},
                   &scratch_,
                   context_.get());
  EXPECT_EQ(status.code, StatusCode::kInvalidArgument);
  EXPECT_NE(status.message.find("Observation 2"), std::string::npos)
      << status.message;
}

TEST(HilbertIndex, VisitsEveryCellByStepsOfOne) {
  for (int bits = 1; bits <= 6; ++bits) {
    const uint32_t side = 1u << bits;
    constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();
    std::vector<uint32_t> x(size_t{side} * side, kNone);
    std::vector<uint32_t> y = x;
    for (uint32_t i = 0; i < side; ++i) {
      for (uint32_t j = 0; j < side; ++j) {
        const size_t at = HilbertIndex(i, j, bits);
        ASSERT_LT(at, x.size());
        ASSERT_EQ(x[at], kNone) << "twice: " << at;
        x[at] = i;
        y[at] = j;
      }
    }
    for (size_t k = 1; k < x.size(); ++k) {
      const int64_t dx = int64_t{x[k]} - x[k - 1];
      const int64_t dy = int64_t{y[k]} - y[k - 1];
      EXPECT_EQ(dx * dx + dy * dy, 1) << bits << " bits, step " << k;
    }
    EXPECT_EQ(x.front() + y.front(), 0u);
    EXPECT_EQ(x.back(), side - 1);
    EXPECT_EQ(y.back(), 0u);
  }
}

TEST_F(CudaIndexTest, PointOrder) {
  BuildIndex(MakeEdgePairs());
  const ObservationIndexRef& view = host_index_.ref();
  const int64_t n = view.num_points;
  DeviceBuffer<int32_t> order;
  DeviceBuffer<int32_t> rank;
  ASSERT_OK(order.Allocate(context_.get(), n));
  ASSERT_OK(rank.Allocate(context_.get(), n));
  ASSERT_OK(OrderPointsByCamera(
      index_.ref(), order.data(), rank.data(), &scratch_, context_.get()));
  const auto length = [&](int32_t p) {
    return view.point_begin[p + 1] - view.point_begin[p];
  };
  // Along the curve, then by decreasing length; points without observations
  // last.
  const int bits = NumBits(view.num_cameras / kPointOrderGroup + 2);
  const auto key = [&](int32_t p) {
    const auto group = [&](int64_t k) {
      return static_cast<uint32_t>(view.camera_id[k] / kPointOrderGroup);
    };
    const uint64_t place =
        length(p) == 0 ? std::numeric_limits<uint64_t>::max()
                       : HilbertIndex(group(view.point_begin[p]),
                                      group(view.point_begin[p + 1] - 1),
                                      bits);
    return std::pair<uint64_t, int64_t>(place,
                                        -std::min<int64_t>(length(p), 1023));
  };
  std::vector<int32_t> expected(static_cast<size_t>(n));
  std::iota(expected.begin(), expected.end(), 0);
  std::stable_sort(expected.begin(), expected.end(), [&](int32_t a, int32_t b) {
    return key(a) < key(b);
  });
  const std::vector<int32_t> actual = Download(order);
  EXPECT_EQ(expected, actual);
  const std::vector<int32_t> ranks = Download(rank);
  for (int64_t r = 0; r < n; ++r) {
    EXPECT_EQ(ranks[static_cast<size_t>(actual[static_cast<size_t>(r)])], r);
  }
}

// The index of pairs with renamed points, twice on one object: an order that
// stands is kept.
TEST_F(CudaIndexTest, OrderedLikeHost) {
  for (const Structure& pairs : {MakeEdgePairs(),
                                 MakeLongPairs(),
                                 Structure{"", 3, 5, {}, {}},
                                 Structure()}) {
    BuildIndex(pairs);
    const int64_t num_points = pairs.num_points;
    auto order = Poisoned<int32_t>(num_points);
    auto rank = Poisoned<int32_t>(num_points);
    ASSERT_OK(OrderPointsByCamera(
        index_.ref(), order.data(), rank.data(), &scratch_, context_.get()));
    const std::vector<int32_t> expected_order = Download(order);
    const std::vector<int32_t> host_rank = Download(rank);
    std::vector<int32_t> renamed = pairs.point;
    for (int32_t& p : renamed) {
      p = host_rank[static_cast<size_t>(p)];
    }
    ASSERT_OK(host_index_.Build({pairs.num_cameras,
                                 pairs.num_points,
                                 n_,
                                 pairs.camera.data(),
                                 renamed.data()}));
    const auto camera = Upload(pairs.camera);
    auto point = Upload(pairs.point);
    std::vector<int32_t> identity(expected_order.size());
    std::iota(identity.begin(), identity.end(), 0);
    for (const std::vector<int32_t>& expected : {expected_order, identity}) {
      order = Poisoned<int32_t>(num_points);
      ASSERT_OK(index_.BuildOrdered({pairs.num_cameras,
                                     pairs.num_points,
                                     n_,
                                     camera.data(),
                                     point.data()},
                                    point.data(),
                                    order.data(),
                                    &scratch_,
                                    context_.get()));
      EXPECT_EQ(Download(order), expected);
      EXPECT_EQ(Download(point), renamed);
      ExpectSameAsHost();
    }
  }
}

// The index of pairs in host memory is that of the points it says.
TEST_F(CudaIndexTest, RowIndexLikeHost) {
  for (const Structure& pairs : {MakeEdgePairs(),
                                 MakeLongPairs(),
                                 Structure{"", 3, 5, {}, {}},
                                 Structure()}) {
    RowIndex<CudaMachine> index;
    std::vector<int32_t> order = {7};
    ASSERT_OK(index.Setup(pairs.pairs(), {}, &order, machine_.get()));
    ASSERT_EQ(order.size(), static_cast<size_t>(pairs.num_points));
    std::vector<int32_t> rank(order.size(), -1);
    for (size_t r = 0; r < order.size(); ++r) {
      rank[static_cast<size_t>(order[r])] = static_cast<int32_t>(r);
    }
    Structure renamed = pairs;
    for (int32_t& p : renamed.point) {
      p = rank[static_cast<size_t>(p)];
    }
    BuildIndex(renamed);
    ExpectSameAsHost(index.ref());
    ASSERT_NE(index.ref().cuda_workspace, nullptr);
    EXPECT_EQ(index.ref().cuda_workspace->recomputed_tiles.num_tiles > 0,
              pairs.num_points > 0);
  }
  RowIndex<CudaMachine> index;
  std::vector<int32_t> order;
  const std::vector<int32_t> ids = {0, 3};
  EXPECT_EQ(
      index.Setup({2, 4, 2, ids.data(), ids.data()}, {}, &order, machine_.get())
          .code,
      StatusCode::kInvalidArgument);
}

// Recomputes every array of a tile index from its definition.
void CudaIndexTest::ExpectGoodTiles(const TileOptions& options) {
  TileIndex index;
  ASSERT_OK(index.Build(index_.ref(), options, &scratch_, context_.get()));
  const TileIndexRef& view = index.ref();
  const ObservationIndexRef& o = host_index_.ref();
  const int32_t num_tiles = view.num_tiles;
  std::vector<int32_t> tile_point;
  std::vector<int32_t> tile_segment;
  std::vector<int32_t> tile_camera;
  for (const TileHeader& header : Read(view.header, num_tiles + 1)) {
    tile_point.push_back(header.point_begin);
    tile_segment.push_back(header.segment_begin);
    tile_camera.push_back(header.camera_begin);
  }
  const auto segment = Read(view.segment, int64_t{view.num_segments} + 1);
  const auto task = Read(view.task, options.tasks ? view.num_segments : 0);
  const auto slot = Read(view.slot, o.num_observations);
  const auto camera_id = Read(view.tile_camera_id, view.num_tile_cameras);
  const auto camera_segment =
      Read(view.tile_camera_segment, int64_t{view.num_tile_cameras} + 1);
  const auto row_begin = Read(view.row_begin, o.num_cameras + 1);
  const auto row = Read(view.row, view.num_tile_cameras);

  int32_t next_segment = 0;
  int32_t next_camera = 0;
  int32_t max_segments = 0;
  int32_t max_cameras = 0;
  std::vector<std::vector<int32_t>> rows(static_cast<size_t>(o.num_cameras));
  ASSERT_EQ(tile_point[0], 0);
  ASSERT_EQ(tile_point[static_cast<size_t>(num_tiles)], o.num_points);
  for (int32_t t = 0; t < num_tiles; ++t) {
    const size_t at = static_cast<size_t>(t);
    const int32_t p0 = tile_point[at];
    const int32_t p1 = tile_point[at + 1];
    ASSERT_LT(p0, p1);
    const int64_t begin = o.point_begin[p0];
    const int64_t end = o.point_begin[p1];
    const bool is_long = end - begin > options.max_observations;
    ASSERT_TRUE(!is_long || p1 == p0 + 1);
    ASSERT_LE(p1 - p0, options.max_points);
    ASSERT_EQ(tile_segment[at], next_segment);
    ASSERT_EQ(tile_camera[at], next_camera);
    std::vector<int64_t> order;
    for (int64_t k = begin; k < end; ++k) {
      order.push_back(k);
    }
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return o.camera_id[a] < o.camera_id[b];
    });
    int32_t run = 0;
    for (size_t s = 0; s < order.size(); ++s) {
      const int64_t k = order[s];
      const int64_t place = begin + static_cast<int64_t>(s);
      const int32_t c = o.camera_id[k];
      const bool first = s == 0 || o.camera_id[order[s - 1]] != c;
      run = first ? 0 : run + 1;
      if (run % options.segment_length == 0) {
        ASSERT_LT(next_segment, view.num_segments);
        const TileSegment& found = segment[static_cast<size_t>(next_segment)];
        ASSERT_EQ(found.camera, c);
        ASSERT_EQ(found.slot_begin, place);
        if (first) {
          ASSERT_LT(next_camera, view.num_tile_cameras);
          ASSERT_EQ(camera_id[static_cast<size_t>(next_camera)], c);
          ASSERT_EQ(camera_segment[static_cast<size_t>(next_camera)],
                    next_segment);
          rows[static_cast<size_t>(c)].push_back(next_camera);
          ++next_camera;
        }
        ++next_segment;
      }
      const uint32_t expected =
          is_long ? 0u
                  : static_cast<uint32_t>(o.point_id[k] - p0) << 16 |
                        static_cast<uint32_t>(k - begin);
      ASSERT_EQ(slot[static_cast<size_t>(place)], expected);
    }
    if (options.tasks) {
      // Threads take the longest segments first, unless there are too many.
      std::vector<int32_t> task_order;
      for (int32_t g = tile_segment[at]; g < next_segment; ++g) {
        task_order.push_back(g);
      }
      const auto length = [&](int32_t g) {
        const size_t i = static_cast<size_t>(g);
        return segment[i + 1].slot_begin - segment[i].slot_begin;
      };
      if (static_cast<int32_t>(task_order.size()) <= view.round_segments) {
        std::stable_sort(
            task_order.begin(), task_order.end(), [&](int32_t a, int32_t b) {
              return length(a) > length(b);
            });
      }
      for (size_t i = 0; i < task_order.size(); ++i) {
        const int32_t g = task_order[i];
        const TileTask& found = task[static_cast<size_t>(tile_segment[at]) + i];
        ASSERT_EQ(found.segment, g - tile_segment[at]);
        ASSERT_EQ(found.camera, segment[static_cast<size_t>(g)].camera);
        ASSERT_EQ(found.slot_begin, segment[static_cast<size_t>(g)].slot_begin);
        ASSERT_EQ(found.slot_end, found.slot_begin + length(g));
      }
    }
    if (!is_long) {
      max_segments = std::max(max_segments, next_segment - tile_segment[at]);
      max_cameras = std::max(max_cameras, next_camera - tile_camera[at]);
    }
  }
  EXPECT_EQ(next_segment, view.num_segments);
  EXPECT_EQ(next_camera, view.num_tile_cameras);
  EXPECT_EQ(tile_segment.back(), next_segment);
  EXPECT_EQ(tile_camera.back(), next_camera);
  EXPECT_EQ(segment.back().slot_begin, o.num_observations);
  EXPECT_EQ(camera_segment.back(), next_segment);
  EXPECT_EQ(max_segments, view.max_tile_segments);
  EXPECT_EQ(max_cameras, view.max_tile_cameras);
  std::vector<int32_t> expected_row;
  for (size_t c = 0; c < rows.size(); ++c) {
    EXPECT_EQ(row_begin[c], static_cast<int32_t>(expected_row.size()));
    expected_row.insert(expected_row.end(), rows[c].begin(), rows[c].end());
  }
  EXPECT_EQ(row_begin.back(), static_cast<int32_t>(expected_row.size()));
  EXPECT_EQ(expected_row, row);
}

TEST_F(CudaIndexTest, Tiles) {
  BuildIndex(MakeEdgePairs());
  ExpectGoodTiles(kRecomputedTiles);
  ExpectGoodTiles(kStoredTiles);
  ExpectGoodTiles({4, 40, 3});
  ExpectGoodTiles({1, 1, 1});
}

TEST_F(CudaIndexTest, TilesOfLongTracks) {
  BuildIndex(MakeLongPairs());
  ExpectGoodTiles(kRecomputedTiles);
  ExpectGoodTiles(kStoredTiles);
}

TEST_F(CudaIndexTest, TilesOfManyPoints) {
  // More points than one chunk of the cutting kernel has.
  BuildIndex(MakePairs(50, 20000, {2, 1, 3, 0}, 9));
  ExpectSameAsHost();
  ExpectGoodTiles(kRecomputedTiles);
}

TEST_F(CudaIndexTest, TilesOfNoObservations) {
  BuildIndex(Structure{"", 3, 600, {}, {}});
  ExpectGoodTiles(kRecomputedTiles);
}

// The largest arrays go to the host first, and no more than have to.
TEST_F(CudaIndexTest, FindsWhatStaysOnTheHost) {
  CudaContextOptions options;
  options.memory_limit = ProcessBytes(0) + 1000000;
  std::unique_ptr<CudaContext> context;
  ASSERT_OK(CudaContext::Create(options, &context));
  const auto find = [&](const std::vector<int64_t>& changes, int64_t more) {
    int64_t least = -1;
    int64_t page_locked = -1;
    context->FindPageLocked(changes, 0, more, &least, &page_locked);
    return std::make_pair(least, page_locked);
  };
  using Found = std::pair<int64_t, int64_t>;
  EXPECT_EQ(find({}, 0), Found(0, 0));
  EXPECT_EQ(find({500000, 400000}, 100000), Found(0, 0));  // It fits.
  EXPECT_EQ(find({500000, -500000, 500000}, 500000), Found(0, 0));
  EXPECT_EQ(find({500000, 400000, 100001}, 0), Found(500000, 500000));
  // Freed arrays make room for later ones, on the host too.
  EXPECT_EQ(find({700000, -700000, 600000, 700000}, 0), Found(700000, 700000));
  // With a tenth to spare, what comes later included.
  EXPECT_EQ(find({500000, 300000, 100000}, 500000), Found(500000, 500000));
  EXPECT_EQ(find({500000, 300000, 100000}, 500001), Found(300000, 800000));
  // Small arrays stay, and what comes later.
  EXPECT_EQ(find({4000, 4000}, 995000), Found(0, 0));
  EXPECT_EQ(find({500000}, 950000), Found(0, 0));
}

// An array on the host is like any other, beside the device's account.
TEST_F(CudaIndexTest, ArraysOnTheHostAreArrays) {
  CudaContext* const context = machine_->context();
  const int64_t used = context->used_bytes();
  constexpr int64_t kSize = 3 << 20;  // Copies of so much have stages.
  std::vector<double> values(kSize);
  std::iota(values.begin(), values.end(), 1.0);
  context->PageLockFrom(8 * kSize);
  DeviceBuffer<double> on_host;
  DeviceBuffer<double> copy;
  DeviceBuffer<double> small;
  ASSERT_OK(on_host.Allocate(context, kSize));
  ASSERT_OK(small.Allocate(context, kSize - 1));
  context->PageLockFrom(0);
  ASSERT_OK(copy.Allocate(context, kSize));
  EXPECT_EQ(context->used_bytes(), used + 8 * (2 * kSize - 1));
  ASSERT_OK(machine_->Upload(kSize, values.data(), on_host.data()));
  std::vector<double> back(kSize);
  ASSERT_OK(machine_->Download(kSize, on_host.data(), back.data()));
  EXPECT_EQ(back, values);
  // By a kernel, and by a copy within the device.
  ASSERT_OK(kernels::Run(CopyParams{kSize, on_host.data(), copy.data()},
                         machine_.get()));
  ASSERT_OK(machine_->Download(kSize, copy.data(), back.data()));
  EXPECT_EQ(back, values);
  ASSERT_OK(on_host.SetZero());
  ASSERT_OK(machine_->Download(kSize, on_host.data(), back.data()));
  EXPECT_EQ(back, std::vector<double>(kSize, 0.0));
  ASSERT_OK(context->CopyOnDevice(on_host.data(), copy.data(), 8 * kSize));
  ASSERT_OK(machine_->Download(kSize, on_host.data(), back.data()));
  EXPECT_EQ(back, values);
  on_host.Release();
  EXPECT_EQ(context->used_bytes(), used + 8 * (2 * kSize - 1));
}

TEST_F(CudaIndexTest, MemoryLimitIsAStatus) {
  // The limit is one for all contexts of the process.
  const int64_t held = ProcessBytes(0);
  CudaContextOptions options;
  options.memory_limit = held + 1000;
  std::unique_ptr<CudaContext> context;
  ASSERT_OK(CudaContext::Create(options, &context));
  DeviceBuffer<double> buffer;
  const Status status = buffer.Allocate(context.get(), 126);
  EXPECT_EQ(status.code, StatusCode::kOutOfMemory);
  EXPECT_EQ(context->used_bytes(), 0);
  EXPECT_EQ(ProcessBytes(0), held);
  ASSERT_OK(buffer.Allocate(context.get(), 125));
  EXPECT_EQ(context->used_bytes(), 1000);
  EXPECT_EQ(ProcessBytes(0), held + 1000);

  // Memory that a context has is part of its possible total.
  EXPECT_TRUE(context->CheckLimit(1000).ok());
  EXPECT_EQ(context->CheckLimit(1001).code, StatusCode::kOutOfMemory);

  std::unique_ptr<CudaContext> other;
  ASSERT_OK(CudaContext::Create(options, &other));
  EXPECT_TRUE(other->CheckLimit(0).ok());
  const Status forecast = other->CheckLimit(7);
  EXPECT_EQ(forecast.code, StatusCode::kOutOfMemory);
  for (const int64_t number : {int64_t{7}, held + 1000}) {
    EXPECT_NE(forecast.message.find(" " + std::to_string(number) + " bytes"),
              std::string::npos)
        << forecast.message;
  }
  DeviceBuffer<double> other_buffer;
  EXPECT_EQ(other_buffer.Allocate(other.get(), 1).code,
            StatusCode::kOutOfMemory);
  buffer.Release();
  EXPECT_EQ(ProcessBytes(0), held);
  ASSERT_OK(other_buffer.Allocate(other.get(), 125));
  // Other devices have accounts of their own.
  EXPECT_EQ(ProcessBytes(1), 0);
}

}  // namespace
}  // namespace ceres_ext::kernels
