// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include <cuda_runtime.h>

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "cuda_kernels/machine/cuda_launch.cuh"
#include "cuda_kernels/machine/cuda_sort.h"
#include "cuda_kernels/structure/shared_rows.h"

namespace ceres_ext::kernels {
namespace {

// A cell of a view's rows.
struct SlotCell {
  int64_t value;
  int32_t size;
  int32_t listed;  // number of its block among the listed ones; -1: no cell
};

// The cells of one family: `per_view` slots for each view.
struct FamilySlots {
  int64_t per_view = 0;
  std::vector<SlotCell> slots;
  std::vector<int64_t> begin;  // cells of each block of the family, and the end
};

// rows_begin: the rows of each view, summed.
FamilySlots FindSlots(const BlockFamilies& families,
                      int family,
                      const SharedCells& shared,
                      const std::vector<int64_t>& rows_begin) {
  FamilySlots found;
  std::vector<int64_t>& begin = found.begin;
  begin.assign(static_cast<size_t>(families[family].num_blocks) + 1, 0);
  const size_t num_views = rows_begin.size() - 1;
  const auto for_each = [&](size_t view, auto&& fn) {
    for (int32_t c = shared.view_begin[view]; c < shared.view_begin[view + 1];
         ++c) {
      const FamilyCell& cell = shared.cells[static_cast<size_t>(c)];
      if (cell.family == family) {
        fn(cell);
      }
    }
  };
  for (size_t v = 0; v < num_views; ++v) {
    int64_t num_cells = 0;
    for_each(v, [&](const FamilyCell& cell) {
      ++num_cells;
      begin[static_cast<size_t>(cell.block) + 1] +=
          rows_begin[v + 1] - rows_begin[v];
    });
    found.per_view = std::max(found.per_view, num_cells);
  }
  std::vector<int32_t> listed(begin.size() - 1);
  int32_t num_listed = 0;
  for (size_t b = 0; b < listed.size(); ++b) {
    listed[b] = begin[b + 1] > 0 ? num_listed++ : -1;
    begin[b + 1] += begin[b];
  }
  found.slots.assign(num_views * static_cast<size_t>(found.per_view),
                     {0, 0, -1});
  for (size_t v = 0; v < num_views; ++v) {
    SlotCell* slot = found.slots.data() + v * found.per_view;
    for_each(v, [&](const FamilyCell& cell) {
      *slot++ = {cell.cell.value,
                 cell.cell.size,
                 listed[static_cast<size_t>(cell.block)]};
    });
  }
  return found;
}

// Cells in the order of their blocks and rows: a stable sort by block. T: of
// the number of a slot of a row.
template <typename T>
Status SortCells(const FamilySlots& family,
                 int32_t num_listed,
                 const ObservationIndexRef& index,
                 CudaMachine* machine,
                 DeviceBuffer<unsigned char>* memory,
                 DeviceBuffer<BlockCell>* cells) {
  const int64_t per_view = family.per_view;
  const int64_t n = index.num_observations * per_view;
  const cudaStream_t stream = machine->stream();
  DeviceBuffer<SlotCell> slots_buffer;
  DeviceBuffer<uint64_t> keys_in;
  DeviceBuffer<uint64_t> keys_out;
  DeviceBuffer<T> values_in;
  DeviceBuffer<T> values_out;
  CERES_EXT_RETURN_IF_ERROR(machine->Upload(family.slots, &slots_buffer));
  CERES_EXT_RETURN_IF_ERROR(machine->Allocate(n, &keys_in));
  CERES_EXT_RETURN_IF_ERROR(machine->Allocate(n, &keys_out));
  CERES_EXT_RETURN_IF_ERROR(machine->Allocate(n, &values_in));
  CERES_EXT_RETURN_IF_ERROR(machine->Allocate(n, &values_out));
  const SlotCell* const slots = slots_buffer.data();
  uint64_t* const keys = keys_in.data();
  T* const values = values_in.data();
  CERES_EXT_RETURN_IF_ERROR(
      ForEach("MakeSharedKeys", n, stream, [=] __device__(int64_t i) {
        const int64_t k = i / per_view;
        const int32_t listed =
            slots[index.camera_id[k] * per_view + (i - k * per_view)].listed;
        // Slots without a cell come last.
        keys[i] = static_cast<uint64_t>(listed < 0 ? num_listed : listed);
        values[i] = static_cast<T>(i);
      }));
  CERES_EXT_RETURN_IF_ERROR(SortPairs(n,
                                      NumBits(int64_t{num_listed} + 1),
                                      keys,
                                      keys_out.data(),
                                      values,
                                      values_out.data(),
                                      memory,
                                      machine->context()));
  const T* const sorted = values_out.data();
  BlockCell* const to = cells->data();
  return ForEach(
      "WriteSharedCells", cells->size(), stream, [=] __device__(int64_t i) {
        const int64_t k = sorted[i] / per_view;
        const SlotCell slot =
            slots[index.camera_id[k] * per_view + (sorted[i] - k * per_view)];
        to[i] = {slot.value, static_cast<int32_t>(k), slot.size};
      });
}

// As CutBlockList.
Status CutCells(const BlockListCuts& cuts,
                const int32_t* pair_of_row,
                CudaMachine* machine,
                DeviceBuffer<unsigned char>* memory,
                MachineBlockList<CudaMachine>* list) {
  const cudaStream_t stream = machine->stream();
  const int64_t num_places = cuts.first_place.back();
  const auto num_listed = static_cast<int64_t>(cuts.block.size());
  DeviceBuffer<int64_t> block_begin_buffer;
  DeviceBuffer<int64_t> first_place_buffer;
  DeviceBuffer<int64_t> at_buffer;
  DeviceBuffer<int64_t> number_buffer;
  DeviceBuffer<int64_t> sums_buffer;
  CERES_EXT_RETURN_IF_ERROR(
      machine->Upload(cuts.block_begin, &block_begin_buffer));
  CERES_EXT_RETURN_IF_ERROR(
      machine->Upload(cuts.first_place, &first_place_buffer));
  CERES_EXT_RETURN_IF_ERROR(machine->Allocate(num_places, &at_buffer));
  CERES_EXT_RETURN_IF_ERROR(machine->Allocate(num_places, &number_buffer));
  CERES_EXT_RETURN_IF_ERROR(machine->Allocate(num_listed, &sums_buffer));
  const int64_t* const block_begin = block_begin_buffer.data();
  const int64_t* const first_place = first_place_buffer.data();
  const BlockCell* const cells = list->cells.data();
  const int64_t segment = cuts.segment;
  int64_t* const at = at_buffer.data();
  int64_t* const number = number_buffer.data();
  CERES_EXT_RETURN_IF_ERROR(
      ForEach("FindSegments", num_places, stream, [=] __device__(int64_t i) {
        // The last block whose first place is not above i.
        int64_t b = 0;
        for (int64_t end = num_listed; end - b > 1;) {
          const int64_t middle = b + (end - b) / 2;
          (first_place[middle] <= i ? b : end) = middle;
        }
        at[i] = SegmentAt(cells,
                          pair_of_row,
                          block_begin[b] + (i - first_place[b]) * segment,
                          block_begin[b],
                          block_begin[b + 1],
                          segment);
        number[i] = at[i] == kNoSegment ? 0 : 1;
      }));
  int64_t num_segments = 0;
  CERES_EXT_RETURN_IF_ERROR(InclusiveSum(
      num_places, number, &num_segments, memory, machine->context()));
  CERES_EXT_RETURN_IF_ERROR(
      machine->Allocate(num_segments + 1, &list->segment_begin));
  int64_t* const segment_begin = list->segment_begin.data();
  CERES_EXT_RETURN_IF_ERROR(
      ForEach("WriteSegments", num_places, stream, [=] __device__(int64_t i) {
        if (at[i] != kNoSegment) {
          segment_begin[number[i] - 1] = at[i];
        }
      }));
  CERES_EXT_RETURN_IF_ERROR(SetValue(
      "EndSegments", segment_begin + num_segments, list->cells.size(), stream));
  int64_t* const sums_end = sums_buffer.data();
  CERES_EXT_RETURN_IF_ERROR(
      ForEach("CountSegments", num_listed, stream, [=] __device__(int64_t b) {
        sums_end[b] = number[first_place[b + 1] - 1];
      }));
  std::vector<int64_t> sums(static_cast<size_t>(num_listed) + 1, 0);
  CERES_EXT_RETURN_IF_ERROR(
      machine->Download(num_listed, sums_end, sums.data() + 1));
  CERES_EXT_RETURN_IF_ERROR(machine->Upload(cuts.block, &list->block));
  list->view.num_blocks = static_cast<int32_t>(num_listed);
  list->view.num_segments = num_segments;
  return list->SetAddresses(MakeSumLevels(std::move(sums)), machine);
}

}  // namespace

Status ListSharedRows(const BlockFamilies& families,
                      const SharedCells& shared,
                      const ObservationIndexRef& index,
                      CudaMachine* machine,
                      std::vector<MachineBlockList<CudaMachine>>* lists) {
  lists->clear();
  if (shared.cells.empty()) {
    return {};
  }
  std::vector<int64_t> rows_begin(static_cast<size_t>(index.num_cameras) + 1);
  CERES_EXT_RETURN_IF_ERROR(
      machine->Download(static_cast<int64_t>(rows_begin.size()),
                        index.camera_begin,
                        rows_begin.data()));
  DeviceBuffer<unsigned char> memory;  // of sorts and sums
  for (int f = 0; f < families.size(); ++f) {
    const FamilySlots family = FindSlots(families, f, shared, rows_begin);
    if (family.begin.back() == 0) {
      continue;
    }
    const BlockListCuts cuts = MakeBlockListCuts(family.begin);
    const auto num_listed = static_cast<int32_t>(cuts.block.size());
    MachineBlockList<CudaMachine> list;
    list.family = f;
    list.view.size = families[f].size;
    CERES_EXT_RETURN_IF_ERROR(
        machine->Allocate(family.begin.back(), &list.cells));
    constexpr int64_t kMaxInt = std::numeric_limits<int32_t>::max();
    const auto sort = index.num_observations * family.per_view > kMaxInt
                          ? SortCells<int64_t>
                          : SortCells<int32_t>;
    CERES_EXT_RETURN_IF_ERROR(
        sort(family, num_listed, index, machine, &memory, &list.cells));
    CERES_EXT_RETURN_IF_ERROR(
        CutCells(cuts, index.point_id, machine, &memory, &list));
    lists->push_back(std::move(list));
  }
  return {};
}

}  // namespace ceres_ext::kernels
