// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "cuda_kernels/structure/cuda_coupling_index.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <vector>

#include "cuda_kernels/base/vector_sums.h"
#include "cuda_kernels/machine/cuda_launch.cuh"
#include "cuda_kernels/machine/cuda_sort.h"

namespace ceres_ext::kernels {
namespace {

constexpr int kForecastBlock = 256;

// counts[2 b] = the couplings of cameras b, b + gridDim, ..., counts[2 b + 1] =
// those of the one that has most.
// Mapping: one block sums the entries of a camera.
__global__ void __launch_bounds__(kForecastBlock)
    CountCouplingsKernel(ObservationIndexRef index, int64_t* counts) {
  int64_t total = 0;
  int64_t most = 0;
  for (int64_t i = blockIdx.x; i < index.num_cameras; i += gridDim.x) {
    int64_t mine = 0;
    for (int64_t e = index.camera_begin[i] + threadIdx.x;
         e < index.camera_begin[i + 1];
         e += kForecastBlock) {
      mine += NumCouplingsWithEarlier(index, index.camera_entry[e]);
    }
    const int64_t row = BlockSum<kForecastBlock>(mine);
    total += row;
    most = row > most ? row : most;
  }
  if (threadIdx.x == 0) {
    counts[2 * blockIdx.x] = total;
    counts[2 * blockIdx.x + 1] = most;
  }
}

}  // namespace

Status ForecastCouplings(const ObservationIndexRef& index,
                         CouplingList list,
                         CudaMachine* machine,
                         CouplingForecast* forecast) {
  *forecast = {};
  // Two words per block, as sums over vectors have.
  const int64_t num_blocks =
      std::min<int64_t>(index.num_cameras, kMaxSumBlocks);
  static_assert(sizeof(int64_t) == sizeof(double));
  int64_t* const counts = reinterpret_cast<int64_t*>(machine->sum_partial());
  CERES_EXT_RETURN_IF_ERROR(Launch("CountCouplings",
                                   CountCouplingsKernel,
                                   {num_blocks, kForecastBlock},
                                   machine->stream(),
                                   index,
                                   counts));
  std::vector<int64_t> host(static_cast<size_t>(2 * num_blocks));
  CERES_EXT_RETURN_IF_ERROR(
      machine->Download(2 * num_blocks, counts, host.data()));
  for (size_t b = 0; b < host.size(); b += 2) {
    forecast->num_couplings += host[b];
    forecast->row_couplings = std::max(forecast->row_couplings, host[b + 1]);
  }
  ForecastBytes(index, list, true, forecast);
  return {};
}

namespace {

// The beginning of the couplings and of the entries of each row of S, on the
// host.
struct CouplingRows {
  // On the device: how many couplings the entries of cameras up to e have.
  DeviceBuffer<int64_t> entry_end;
  std::vector<int64_t> coupling;  // [num_cameras + 1]
  std::vector<int64_t> entry;     // [num_cameras + 1]
};

// The blocks of rows `first` .. `last` - 1 of S, the diagonal ones left out.
struct CouplingSlab {
  int32_t first = 0;
  int32_t last = 0;
  int64_t num_blocks = 0;
  DeviceBuffer<int32_t> row;
  DeviceBuffer<int32_t> column;
  DeviceBuffer<int64_t> coupling_begin;
};

// The working memory that sorts the couplings of one slab.
struct SlabSort {
  DeviceBuffer<uint64_t> keys_in;
  DeviceBuffer<uint64_t> keys_out;
  DeviceBuffer<int64_t> values;
  int column_bits = 0;

  // values as those of a list of points.
  int32_t* point_values() { return reinterpret_cast<int32_t*>(values.data()); }
};

// The arrays of all blocks of S.
struct CouplingBlocks {
  int64_t* row_begin;
  int32_t* row;
  int32_t* column;
  int64_t* coupling_begin;
};

Status CountEntryCouplings(const ObservationIndexRef& index,
                           CudaMachine* machine,
                           CouplingRows* rows,
                           int64_t* num_couplings,
                           DeviceBuffer<unsigned char>* memory) {
  const int64_t n = index.num_observations;
  CERES_EXT_RETURN_IF_ERROR(machine->Allocate(n, &rows->entry_end));
  int64_t* const entry_end = rows->entry_end.data();
  CERES_EXT_RETURN_IF_ERROR(ForEach(
      "CountCouplings", n, machine->stream(), [=] __device__(int64_t e) {
        entry_end[e] = NumCouplingsWithEarlier(index, index.camera_entry[e]);
      }));
  return InclusiveSum(n, entry_end, num_couplings, memory, machine->context());
}

Status DownloadRows(const ObservationIndexRef& index,
                    CudaMachine* machine,
                    CouplingRows* rows) {
  const int64_t* const entry_end = rows->entry_end.data();
  const int64_t size = int64_t{index.num_cameras} + 1;
  rows->coupling.resize(static_cast<size_t>(size));
  rows->entry.resize(static_cast<size_t>(size));
  DeviceBuffer<int64_t> buffer;
  CERES_EXT_RETURN_IF_ERROR(machine->Allocate(size, &buffer));
  int64_t* const row_begin = buffer.data();
  CERES_EXT_RETURN_IF_ERROR(ForEach(
      "RowCouplings", size, machine->stream(), [=] __device__(int64_t i) {
        const int64_t e = index.camera_begin[i];
        row_begin[i] = e == 0 ? 0 : entry_end[e - 1];
      }));
  CERES_EXT_RETURN_IF_ERROR(
      machine->Download(size, row_begin, rows->coupling.data()));
  return machine->Download(size, index.camera_begin, rows->entry.data());
}

// Cuts the rows into slabs of at most slab_size couplings, or of one row.
std::vector<CouplingSlab> CutSlabs(const std::vector<int64_t>& row_coupling,
                                   int64_t slab_size) {
  const int32_t num_cameras = static_cast<int32_t>(row_coupling.size()) - 1;
  std::vector<CouplingSlab> slabs;
  for (int32_t first = 0; first < num_cameras;) {
    int32_t last = first + 1;
    while (last < num_cameras &&
           row_coupling[static_cast<size_t>(last) + 1] -
                   row_coupling[static_cast<size_t>(first)] <=
               slab_size) {
      ++last;
    }
    slabs.emplace_back();
    slabs.back().first = first;
    slabs.back().last = last;
    first = last;
  }
  return slabs;
}

// Room for the largest slab.
Status AllocateSort(const std::vector<CouplingSlab>& slabs,
                    const CouplingRows& rows,
                    CudaMachine* machine,
                    SlabSort* sort,
                    DeviceBuffer<unsigned char>* memory) {
  int64_t largest = 0;
  for (const CouplingSlab& slab : slabs) {
    largest = std::max(largest,
                       rows.coupling[static_cast<size_t>(slab.last)] -
                           rows.coupling[static_cast<size_t>(slab.first)]);
  }
  CERES_EXT_RETURN_IF_ERROR(machine->Allocate(largest, &sort->keys_in));
  CERES_EXT_RETURN_IF_ERROR(machine->Allocate(largest, &sort->keys_out));
  CERES_EXT_RETURN_IF_ERROR(machine->Allocate(largest, &sort->values));
  // The memory of a sort of many pairs; one of few takes less, which the
  // forecast does not know.
  return memory->Allocate(machine->context(),
                          2 * static_cast<int64_t>(sizeof(uint64_t)) * largest);
}

// Writes the couplings of the slab, of which the first of all is `begin`, by
// (k, l). Key: (row in the slab, column).
Status MakeCouplings(const ObservationIndexRef& index,
                     const CouplingRows& rows,
                     CouplingList list,
                     const CouplingSlab& slab,
                     CudaMachine* machine,
                     SlabSort* sort) {
  const bool points = list == CouplingList::kPoints;
  const int64_t* const entry_end = rows.entry_end.data();
  const int32_t first_row = slab.first;
  const int64_t begin = rows.coupling[static_cast<size_t>(slab.first)];
  const int64_t first_entry = rows.entry[static_cast<size_t>(slab.first)];
  const int column_bits = sort->column_bits;
  uint64_t* const keys = sort->keys_in.data();
  int64_t* const values = sort->values.data();
  int32_t* const point_values = sort->point_values();
  return ForEach(
      "MakeCouplings",
      rows.entry[static_cast<size_t>(slab.last)] - first_entry,
      machine->stream(),
      [=] __device__(int64_t at) {
        const int64_t e = first_entry + at;
        const int64_t k = index.camera_entry[e];
        const int64_t point_begin = index.point_begin[index.point_id[k]];
        const int64_t end = entry_end[e] - begin;
        const int64_t row_key =
            static_cast<int64_t>(index.camera_id[k] - first_row) << column_bits;
        int64_t to = e == 0 ? -begin : entry_end[e - 1] - begin;
        for (int64_t l = point_begin; to < end; ++l, ++to) {
          keys[to] = static_cast<uint64_t>(row_key | index.camera_id[l]);
          if (points) {
            point_values[to] = index.point_id[k];
          } else {
            values[to] = MakeCoupling(k, l);
          }
        }
      });
}

// Lists the blocks of the slab's `size` couplings, which are sorted and of
// which the first of all is `begin`.
Status ListBlocks(int64_t begin,
                  int64_t size,
                  CudaMachine* machine,
                  SlabSort* sort,
                  DeviceBuffer<unsigned char>* memory,
                  CouplingSlab* slab) {
  const cudaStream_t stream = machine->stream();
  const uint64_t* const sorted = sort->keys_out.data();
  // The number of each coupling's block in the slab, from one on, in the memory
  // of the values, which are sorted.
  int64_t* const values = sort->values.data();
  CERES_EXT_RETURN_IF_ERROR(
      ForEach("MarkBlocks", size, stream, [=] __device__(int64_t t) {
        values[t] = t == 0 || sorted[t] != sorted[t - 1] ? 1 : 0;
      }));
  CERES_EXT_RETURN_IF_ERROR(InclusiveSum(
      size, values, &slab->num_blocks, memory, machine->context()));
  CERES_EXT_RETURN_IF_ERROR(machine->Allocate(slab->num_blocks, &slab->row));
  CERES_EXT_RETURN_IF_ERROR(machine->Allocate(slab->num_blocks, &slab->column));
  CERES_EXT_RETURN_IF_ERROR(
      machine->Allocate(slab->num_blocks, &slab->coupling_begin));
  const int32_t first_row = slab->first;
  const int column_bits = sort->column_bits;
  int32_t* const row = slab->row.data();
  int32_t* const column = slab->column.data();
  int64_t* const coupling_begin = slab->coupling_begin.data();
  return ForEach("WriteBlocks", size, stream, [=] __device__(int64_t t) {
    if (t > 0 && sorted[t] == sorted[t - 1]) {
      return;
    }
    const int64_t b = values[t] - 1;
    const int64_t key = static_cast<int64_t>(sorted[t]);
    row[b] = first_row + static_cast<int32_t>(key >> column_bits);
    column[b] = static_cast<int32_t>(key & ((int64_t{1} << column_bits) - 1));
    coupling_begin[b] = begin + t;
  });
}

// Writes the couplings of all slabs, sorted, to `coupling` or `point`, as the
// list says, and lists their blocks.
Status SortSlabs(const ObservationIndexRef& index,
                 const CouplingRows& rows,
                 CouplingList list,
                 CudaMachine* machine,
                 int64_t* coupling,
                 int32_t* point,
                 DeviceBuffer<unsigned char>* memory,
                 std::vector<CouplingSlab>* slabs) {
  SlabSort sort;
  sort.column_bits = NumBits(index.num_cameras);
  CERES_EXT_RETURN_IF_ERROR(AllocateSort(*slabs, rows, machine, &sort, memory));
  for (CouplingSlab& slab : *slabs) {
    const int64_t begin = rows.coupling[static_cast<size_t>(slab.first)];
    const int64_t size = rows.coupling[static_cast<size_t>(slab.last)] - begin;
    if (size == 0) {
      continue;
    }
    CERES_EXT_RETURN_IF_ERROR(
        MakeCouplings(index, rows, list, slab, machine, &sort));
    const auto sort_pairs = [&](const auto* from, auto* to) {
      return SortPairs(size,
                       sort.column_bits + NumBits(slab.last - slab.first),
                       sort.keys_in.data(),
                       sort.keys_out.data(),
                       from,
                       to,
                       memory,
                       machine->context());
    };
    CERES_EXT_RETURN_IF_ERROR(
        list == CouplingList::kPoints
            ? sort_pairs(sort.point_values(), point + begin)
            : sort_pairs(sort.values.data(), coupling + begin));
    CERES_EXT_RETURN_IF_ERROR(
        ListBlocks(begin, size, machine, &sort, memory, &slab));
  }
  return {};
}

// Puts the blocks of all slabs into one list. Block q of those beside the
// diagonal, of row i, has i diagonal ones before it.
Status PlaceSlabs(const std::vector<CouplingSlab>& slabs,
                  const CouplingBlocks& blocks,
                  CudaMachine* machine) {
  int64_t first_block = 0;
  for (const CouplingSlab& slab : slabs) {
    const int32_t first = slab.first;
    const int32_t last = slab.last;
    const int64_t slab_blocks = slab.num_blocks;
    const int32_t* const slab_row = slab.row.data();
    const int32_t* const slab_column = slab.column.data();
    const int64_t* const slab_begin = slab.coupling_begin.data();
    // Thread q writes its block and where the rows begin that come after the
    // block before it, up to its own.
    CERES_EXT_RETURN_IF_ERROR(
        ForEach("PlaceBlocks",
                slab_blocks + 1,
                machine->stream(),
                [=] __device__(int64_t q) {
                  const int64_t previous = q == 0 ? first - 1 : slab_row[q - 1];
                  const int64_t own = q == slab_blocks ? last - 1 : slab_row[q];
                  for (int64_t i = previous + 1; i <= own; ++i) {
                    blocks.row_begin[i] = first_block + q + i;
                  }
                  if (q < slab_blocks) {
                    const int64_t b = first_block + q + own;
                    blocks.row[b] = slab_row[q];
                    blocks.column[b] = slab_column[q];
                    blocks.coupling_begin[b] = slab_begin[q];
                  }
                }));
    first_block += slab_blocks;
  }
  return {};
}

// A diagonal block begins where the couplings of its row end.
Status PlaceDiagonal(const ObservationIndexRef& index,
                     const CouplingRows& rows,
                     const CouplingBlocks& blocks,
                     CudaMachine* machine) {
  const int64_t* const entry_end = rows.entry_end.data();
  return ForEach("PlaceDiagonal",
                 index.num_cameras,
                 machine->stream(),
                 [=] __device__(int64_t i) {
                   const int64_t b = blocks.row_begin[i + 1] - 1;
                   const int64_t e = index.camera_begin[i + 1];
                   blocks.row[b] = blocks.column[b] = static_cast<int32_t>(i);
                   blocks.coupling_begin[b] = e == 0 ? 0 : entry_end[e - 1];
                 });
}

// Fills the arrays of all blocks.
Status PlaceBlocks(const ObservationIndexRef& index,
                   const CouplingRows& rows,
                   const std::vector<CouplingSlab>& slabs,
                   int64_t num_blocks,
                   int64_t num_couplings,
                   const CouplingBlocks& blocks,
                   CudaMachine* machine) {
  const cudaStream_t stream = machine->stream();
  CERES_EXT_RETURN_IF_ERROR(PlaceSlabs(slabs, blocks, machine));
  CERES_EXT_RETURN_IF_ERROR(SetValue(
      "EndRows", blocks.row_begin + index.num_cameras, num_blocks, stream));
  CERES_EXT_RETURN_IF_ERROR(SetValue("EndCouplings",
                                     blocks.coupling_begin + num_blocks,
                                     num_couplings,
                                     stream));
  return PlaceDiagonal(index, rows, blocks, machine);
}

// Cuts the couplings of blocks of more than chunk_size into chunks.
Status CutChunks(int64_t num_blocks,
                 int64_t chunk_size,
                 const int64_t* coupling_begin,
                 CudaMachine* machine,
                 int64_t* num_chunks,
                 DeviceBuffer<CouplingChunk>* chunks,
                 DeviceBuffer<unsigned char>* memory) {
  const cudaStream_t stream = machine->stream();
  // chunk_end[b] = how many chunks the blocks up to b have.
  DeviceBuffer<int64_t> chunk_end_buffer;
  CERES_EXT_RETURN_IF_ERROR(machine->Allocate(num_blocks, &chunk_end_buffer));
  int64_t* const chunk_end = chunk_end_buffer.data();
  CERES_EXT_RETURN_IF_ERROR(
      ForEach("CountChunks", num_blocks, stream, [=] __device__(int64_t b) {
        const int64_t size = coupling_begin[b + 1] - coupling_begin[b];
        chunk_end[b] = size > chunk_size ? CeilDivide(size, chunk_size) : 0;
      }));
  CERES_EXT_RETURN_IF_ERROR(InclusiveSum(
      num_blocks, chunk_end, num_chunks, memory, machine->context()));
  CERES_EXT_RETURN_IF_ERROR(machine->Allocate(*num_chunks, chunks));
  CouplingChunk* const chunk = chunks->data();
  return ForEach("PlaceChunks", num_blocks, stream, [=] __device__(int64_t b) {
    int64_t begin = coupling_begin[b];
    for (int64_t c = b == 0 ? 0 : chunk_end[b - 1]; c < chunk_end[b]; ++c) {
      chunk[c].block = b;
      chunk[c].begin = begin;
      begin += chunk_size;
    }
  });
}

}  // namespace

Status CudaCouplingIndex::Build(const ObservationIndexRef& index,
                                CouplingList list,
                                CudaMachine* machine,
                                int64_t slab_size) {
  view_ = {};
  const int32_t num_cameras = index.num_cameras;
  DeviceBuffer<unsigned char> memory;  // of sorts and sums
  CouplingRows rows;
  int64_t num_couplings = 0;
  CERES_EXT_RETURN_IF_ERROR(
      CountEntryCouplings(index, machine, &rows, &num_couplings, &memory));
  CERES_EXT_RETURN_IF_ERROR(DownloadRows(index, machine, &rows));
  const bool points = list == CouplingList::kPoints;
  CERES_EXT_RETURN_IF_ERROR(
      machine->Allocate(points ? 0 : num_couplings, &coupling_));
  CERES_EXT_RETURN_IF_ERROR(
      machine->Allocate(points ? num_couplings : 0, &point_));
  std::vector<CouplingSlab> slabs = CutSlabs(rows.coupling, slab_size);
  CERES_EXT_RETURN_IF_ERROR(SortSlabs(index,
                                      rows,
                                      list,
                                      machine,
                                      coupling_.data(),
                                      point_.data(),
                                      &memory,
                                      &slabs));
  int64_t num_blocks = num_cameras;
  for (const CouplingSlab& slab : slabs) {
    num_blocks += slab.num_blocks;
  }
  CERES_EXT_RETURN_IF_ERROR(
      machine->Allocate(int64_t{num_cameras} + 1, &row_begin_));
  CERES_EXT_RETURN_IF_ERROR(machine->Allocate(num_blocks, &row_));
  CERES_EXT_RETURN_IF_ERROR(machine->Allocate(num_blocks, &column_));
  CERES_EXT_RETURN_IF_ERROR(
      machine->Allocate(num_blocks + 1, &coupling_begin_));
  const CouplingBlocks blocks{
      row_begin_.data(), row_.data(), column_.data(), coupling_begin_.data()};
  CERES_EXT_RETURN_IF_ERROR(PlaceBlocks(
      index, rows, slabs, num_blocks, num_couplings, blocks, machine));
  int64_t num_chunks = 0;
  CERES_EXT_RETURN_IF_ERROR(CutChunks(num_blocks,
                                      CouplingChunkSize(num_couplings),
                                      blocks.coupling_begin,
                                      machine,
                                      &num_chunks,
                                      &chunk_,
                                      &memory));
  view_.num_cameras = num_cameras;
  view_.num_blocks = num_blocks;
  view_.num_couplings = num_couplings;
  view_.num_chunks = num_chunks;
  view_.row_begin = row_begin_.data();
  view_.row = row_.data();
  view_.column = column_.data();
  view_.coupling_begin = coupling_begin_.data();
  view_.coupling = coupling_.data();
  view_.point = point_.data();
  view_.chunk = chunk_.data();
  return {};
}

}  // namespace ceres_ext::kernels
