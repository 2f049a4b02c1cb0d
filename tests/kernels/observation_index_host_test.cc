// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include <vector>

#include "cuda_kernels/structure/host_workspace.h"
#include "cuda_kernels/structure/observation_index.h"
#include "cuda_kernels/structure/row_index.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kernels/dense_problem.h"

namespace ceres_ext::kernels {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

template <typename T>
std::vector<T> Copy(const T* values, int64_t n) {
  return {values, values + n};
}

TEST(ObservationIndex, SortsByPointCameraAndInput) {
  // Input:                   0  1  2  3  4  5
  const int32_t camera[] = {2, 0, 2, 0, 2, 1};
  const int32_t point[] = {1, 3, 1, 1, 3, 0};
  int64_t bytes = 0;
  ObservationIndex index;
  ASSERT_TRUE(index.Build({3, 4, 6, camera, point}, &bytes).ok());
  const ObservationIndexRef& view = index.ref();
  EXPECT_EQ(view.num_cameras, 3);
  EXPECT_EQ(view.num_points, 4);
  EXPECT_EQ(view.num_observations, 6);
  EXPECT_THAT(Copy(view.point_begin, 5), ElementsAre(0, 1, 4, 4, 6));
  EXPECT_THAT(Copy(view.point_id, 6), ElementsAre(0, 1, 1, 1, 3, 3));
  EXPECT_THAT(Copy(view.camera_id, 6), ElementsAre(1, 0, 2, 2, 0, 2));
  EXPECT_THAT(Copy(view.input_id(), 6), ElementsAre(5, 3, 0, 2, 1, 4));
  EXPECT_THAT(Copy(view.camera_begin, 4), ElementsAre(0, 2, 3, 6));
  EXPECT_THAT(Copy(view.camera_entry, 6), ElementsAre(1, 4, 0, 2, 3, 5));
  EXPECT_EQ(bytes, 5 * 8 + 4 * 8 + 4 * 6 * 4);
}

TEST(ObservationIndex, Empty) {
  ObservationIndex index;
  ASSERT_TRUE(index.Build({0, 0, 0, nullptr, nullptr}).ok());
  EXPECT_EQ(index.ref().point_begin[0], 0);
  EXPECT_EQ(index.ref().camera_begin[0], 0);
}

TEST(ObservationIndex, BuildsTwice) {
  const int32_t camera[] = {1, 0};
  const int32_t point[] = {0, 0};
  ObservationIndex index;
  ASSERT_TRUE(index.Build({2, 1, 2, camera, point}).ok());
  ASSERT_TRUE(index.Build({2, 3, 1, camera, point}).ok());
  EXPECT_THAT(Copy(index.ref().point_begin, 4), ElementsAre(0, 1, 1, 1));
  EXPECT_THAT(Copy(index.ref().camera_begin, 3), ElementsAre(0, 0, 1));
}

TEST(ObservationIndex, NamesTheFirstIdOutOfRange) {
  const int32_t camera[] = {0, 1, 5, -1};
  const int32_t point[] = {0, 1, 0, 9};
  ObservationIndex index;
  Status status = index.Build({2, 2, 4, camera, point});
  EXPECT_EQ(status.code, StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message,
            "Observation 2 has camera id 5, expected 0 <= id < 2.");
  status = index.Build({6, 1, 4, camera, point});
  EXPECT_EQ(status.message,
            "Observation 1 has point id 1, expected 0 <= id < 1.");
  status = index.Build({6, 2, 4, camera, point});
  EXPECT_EQ(status.message,
            "Observation 3 has camera id -1, expected 0 <= id < 6.");
  EXPECT_EQ(index.ref().num_observations, 0);
}

TEST(ObservationIndex, RefusesBadSizes) {
  ObservationIndex index;
  EXPECT_EQ(index.Build({-1, 0, 0, nullptr, nullptr}).code,
            StatusCode::kInvalidArgument);
  const Status status = index.Build({1, 1, int64_t{1} << 31, nullptr, nullptr});
  EXPECT_EQ(status.code, StatusCode::kUnsupported);
  EXPECT_THAT(status.message, HasSubstr("2147483648 observations"));
}

TEST(RowIndex, IsTheIndexWithAWorkspace) {
  const int32_t camera[] = {2, 0, 2, 0, 2, 1};
  const int32_t point[] = {1, 3, 1, 1, 3, 0};
  HostMachine machine(1);
  RowIndex<HostMachine> index;
  std::vector<int32_t> point_order = {7};
  ASSERT_TRUE(
      index.Setup({3, 4, 6, camera, point}, {}, &point_order, &machine).ok());
  EXPECT_THAT(point_order, testing::IsEmpty());
  EXPECT_THAT(Copy(index.ref().point_begin, 5), ElementsAre(0, 1, 4, 4, 6));
  EXPECT_THAT(Copy(index.ref().input_id(), 6), ElementsAre(5, 3, 0, 2, 1, 4));
  ASSERT_NE(index.ref().host_workspace, nullptr);
  EXPECT_EQ(index.ref().host_workspace->num_chunks(), 1);
  // The index, and the workspace.
  EXPECT_GT(machine.bytes(), 5 * 8 + 4 * 8 + 4 * 6 * 4);
  EXPECT_EQ(
      index.Setup({3, 2, 6, camera, point}, {}, &point_order, &machine).code,
      StatusCode::kInvalidArgument);
}

class HostWorkspaceTest : public testing::TestWithParam<Structure> {};

// Every point is in one chunk, every observation in a slot of its chunk and
// camera, every slot once in its camera's list.
TEST_P(HostWorkspaceTest, CutsPointsIntoChunksAndSlots) {
  DenseProblem<double, 9> problem(GetParam(), 1);
  const HostWorkspace& workspace = problem.workspace;
  const ObservationIndexRef& index = problem.index();
  EXPECT_EQ(index.host_workspace, &workspace);
  const int64_t num_chunks = workspace.num_chunks();
  EXPECT_EQ(num_chunks == 0, index.num_points == 0);
  EXPECT_EQ(workspace.slot_begin()[0], 0);
  EXPECT_EQ(workspace.slot_begin()[num_chunks], workspace.num_slots());
  EXPECT_EQ(workspace.chunk_begin()[num_chunks], index.num_points);
  int32_t point = 0;
  for (int64_t i = 0; i < num_chunks; ++i) {
    EXPECT_EQ(workspace.chunk_begin()[i], point);
    EXPECT_LT(point, workspace.chunk_begin()[i + 1]);
    std::vector<int32_t> slot_of_camera(index.num_cameras, -1);
    for (; point < workspace.chunk_begin()[i + 1]; ++point) {
      for (int64_t k = index.point_begin[point];
           k < index.point_begin[point + 1];
           ++k) {
        const int32_t slot = workspace.observation_slot()[k];
        EXPECT_GE(slot, workspace.slot_begin()[i]);
        EXPECT_LT(slot, workspace.slot_begin()[i + 1]);
        int32_t& expected = slot_of_camera[index.camera_id[k]];
        EXPECT_TRUE(expected == -1 || expected == slot);
        expected = slot;
      }
    }
    for (int32_t c = 0; c < index.num_cameras; ++c) {
      int num_found = 0;
      for (int32_t j = workspace.camera_slot_begin()[c];
           j < workspace.camera_slot_begin()[c + 1];
           ++j) {
        num_found += workspace.camera_slot()[j] == slot_of_camera[c];
        EXPECT_TRUE(j == workspace.camera_slot_begin()[c] ||
                    workspace.camera_slot()[j - 1] <
                        workspace.camera_slot()[j]);
      }
      EXPECT_EQ(num_found, slot_of_camera[c] < 0 ? 0 : 1);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Edges,
                         HostWorkspaceTest,
                         testing::ValuesIn(EdgeStructures()),
                         StructureName);

TEST(HostWorkspace, ManyObservationsMakeABoundedNumberOfChunks) {
  Structure structure{"large", 3, 70000, {}, {}};
  for (int32_t p = 0; p < structure.num_points; ++p) {
    for (int32_t c = 0; c < 3; ++c) {
      structure.Add(c, p);
    }
  }
  ObservationIndex index;
  ASSERT_TRUE(index.Build(structure.pairs()).ok());
  HostMachine machine(1);
  HostWorkspace workspace;
  ASSERT_TRUE(workspace.Setup(index.ref(), &machine).ok());
  EXPECT_GE(workspace.num_chunks(), 200);
  EXPECT_LE(workspace.num_chunks(), 512);
}

}  // namespace
}  // namespace ceres_ext::kernels
