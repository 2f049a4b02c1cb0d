// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "cuda_kernels/structure/cuda_coupling_index.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <vector>

#include "cuda_kernels/base/vector_sums.h"
#include "cuda_kernels/machine/cuda_launch.cuh"
#include "cuda_kernels/machine/cuda_sort.h"
#include "cuda_kernels/machine/cuda_wide_sort.h"

namespace ceres_ext::kernels {
namespace {

constexpr int kForecastBlock = 256;

// counts[2 b] = the couplings of cameras b, b + gridDim, ..., counts[2 b + 1] =
// those of the one that has most.
// Mapping: one block sums the entries of a camera.
__global__ void __launch_bounds__(kForecastBlock)
    CountCouplingsKernel(ObservationIndexView index, int64_t* counts) {
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

Status ForecastCouplings(const ObservationIndexView& index,
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
                                   num_blocks,
                                   kForecastBlock,
                                   0,
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

// The blocks of rows `first` .. `last` - 1 of S, the diagonal ones left out.
struct CudaCouplingIndex::Slab {
  int32_t first = 0;
  int32_t last = 0;
  int64_t num_blocks = 0;
  DeviceBuffer<int32_t> row;
  DeviceBuffer<int32_t> column;
  DeviceBuffer<int64_t> coupling_begin;
};

Status CudaCouplingIndex::Build(const ObservationIndexView& index,
                                CouplingList list,
                                CudaMachine* machine,
                                int64_t slab_size) {
  view_ = {};
  CudaContext* const context = machine->context();
  const cudaStream_t stream = machine->stream();
  const int32_t num_cameras = index.num_cameras;
  const int64_t n = index.num_observations;
  DeviceBuffer<unsigned char> memory;

  // entry_end[e] = how many couplings the entries of cameras up to e have.
  DeviceBuffer<int64_t> entry_end_buffer;
  CERES_EXT_RETURN_IF_ERROR(machine->Allocate(n, &entry_end_buffer));
  int64_t* const entry_end = entry_end_buffer.data();
  CERES_EXT_RETURN_IF_ERROR(
      ForEach("CountCouplings", n, stream, [=] __device__(int64_t e) {
        entry_end[e] = NumCouplingsWithEarlier(index, index.camera_entry[e]);
      }));
  int64_t num_couplings = 0;
  CERES_EXT_RETURN_IF_ERROR(
      InclusiveSum(n, entry_end, &num_couplings, &memory, context));
  // Where the couplings of each row begin; rows and their entries on the host.
  std::vector<int64_t> row_coupling(static_cast<size_t>(num_cameras) + 1);
  std::vector<int64_t> row_entry(static_cast<size_t>(num_cameras) + 1);
  {
    DeviceBuffer<int64_t> buffer;
    CERES_EXT_RETURN_IF_ERROR(
        machine->Allocate(int64_t{num_cameras} + 1, &buffer));
    int64_t* const row_begin = buffer.data();
    CERES_EXT_RETURN_IF_ERROR(ForEach("RowCouplings",
                                      int64_t{num_cameras} + 1,
                                      stream,
                                      [=] __device__(int64_t i) {
                                        const int64_t e = index.camera_begin[i];
                                        row_begin[i] =
                                            e == 0 ? 0 : entry_end[e - 1];
                                      }));
    CERES_EXT_RETURN_IF_ERROR(machine->Download(
        int64_t{num_cameras} + 1, row_begin, row_coupling.data()));
    CERES_EXT_RETURN_IF_ERROR(machine->Download(
        int64_t{num_cameras} + 1, index.camera_begin, row_entry.data()));
  }
  const bool points = list == CouplingList::kPoints;
  CERES_EXT_RETURN_IF_ERROR(
      machine->Allocate(points ? 0 : num_couplings, &coupling_));
  CERES_EXT_RETURN_IF_ERROR(
      machine->Allocate(points ? num_couplings : 0, &point_));

  // Slabs, and room for the largest.
  std::vector<Slab> slabs;
  int64_t largest = 0;
  for (int32_t first = 0; first < num_cameras;) {
    int32_t last = first + 1;
    while (last < num_cameras &&
           row_coupling[static_cast<size_t>(last) + 1] -
                   row_coupling[static_cast<size_t>(first)] <=
               slab_size) {
      ++last;
    }
    largest = std::max(largest,
                       row_coupling[static_cast<size_t>(last)] -
                           row_coupling[static_cast<size_t>(first)]);
    slabs.emplace_back();
    slabs.back().first = first;
    slabs.back().last = last;
    first = last;
  }
  const int column_bits = NumBits(num_cameras);
  int64_t num_off_diagonal = 0;
  {
    DeviceBuffer<uint64_t> keys_in_buffer;
    DeviceBuffer<uint64_t> keys_out_buffer;
    DeviceBuffer<int64_t> values_buffer;
    CERES_EXT_RETURN_IF_ERROR(machine->Allocate(largest, &keys_in_buffer));
    CERES_EXT_RETURN_IF_ERROR(machine->Allocate(largest, &keys_out_buffer));
    CERES_EXT_RETURN_IF_ERROR(machine->Allocate(largest, &values_buffer));
    // What a sort of many pairs takes; one of few takes less, which the
    // forecast does not know.
    CERES_EXT_RETURN_IF_ERROR(memory.Allocate(
        context, 2 * static_cast<int64_t>(sizeof(uint64_t)) * largest));
    uint64_t* const keys = keys_in_buffer.data();
    const uint64_t* const sorted = keys_out_buffer.data();
    int64_t* const values = values_buffer.data();
    int32_t* const point_values = reinterpret_cast<int32_t*>(values);
    for (Slab& slab : slabs) {
      const int32_t first_row = slab.first;
      const int64_t begin = row_coupling[static_cast<size_t>(slab.first)];
      const int64_t size = row_coupling[static_cast<size_t>(slab.last)] - begin;
      if (size == 0) {
        continue;
      }
      const int64_t first_entry = row_entry[static_cast<size_t>(slab.first)];
      // Key: (row in the slab, column), by (k, l) before the stable sort.
      CERES_EXT_RETURN_IF_ERROR(ForEach(
          "MakeCouplings",
          row_entry[static_cast<size_t>(slab.last)] - first_entry,
          stream,
          [=] __device__(int64_t at) {
            const int64_t e = first_entry + at;
            const int64_t k = index.camera_entry[e];
            const int64_t point_begin = index.point_begin[index.point_id[k]];
            const int64_t end = entry_end[e] - begin;
            const int64_t row_key =
                static_cast<int64_t>(index.camera_id[k] - first_row)
                << column_bits;
            int64_t to = e == 0 ? -begin : entry_end[e - 1] - begin;
            for (int64_t l = point_begin; to < end; ++l, ++to) {
              keys[to] = static_cast<uint64_t>(row_key | index.camera_id[l]);
              if (points) {
                point_values[to] = index.point_id[k];
              } else {
                values[to] = MakeCoupling(k, l);
              }
            }
          }));
      const auto sort = [&](const auto* from, auto* to) {
        return SortPairs(size,
                         column_bits + NumBits(slab.last - slab.first),
                         keys,
                         keys_out_buffer.data(),
                         from,
                         to,
                         &memory,
                         context);
      };
      CERES_EXT_RETURN_IF_ERROR(points
                                    ? sort(point_values, point_.data() + begin)
                                    : sort(values, coupling_.data() + begin));
      // The number of each coupling's block in the slab, from one on, in the
      // memory of the values, which are sorted.
      CERES_EXT_RETURN_IF_ERROR(
          ForEach("MarkBlocks", size, stream, [=] __device__(int64_t t) {
            values[t] = t == 0 || sorted[t] != sorted[t - 1] ? 1 : 0;
          }));
      CERES_EXT_RETURN_IF_ERROR(
          InclusiveSum(size, values, &slab.num_blocks, &memory, context));
      CERES_EXT_RETURN_IF_ERROR(machine->Allocate(slab.num_blocks, &slab.row));
      CERES_EXT_RETURN_IF_ERROR(
          machine->Allocate(slab.num_blocks, &slab.column));
      CERES_EXT_RETURN_IF_ERROR(
          machine->Allocate(slab.num_blocks, &slab.coupling_begin));
      int32_t* const row = slab.row.data();
      int32_t* const column = slab.column.data();
      int64_t* const coupling_begin = slab.coupling_begin.data();
      CERES_EXT_RETURN_IF_ERROR(
          ForEach("WriteBlocks", size, stream, [=] __device__(int64_t t) {
            if (t > 0 && sorted[t] == sorted[t - 1]) {
              return;
            }
            const int64_t b = values[t] - 1;
            const int64_t key = static_cast<int64_t>(sorted[t]);
            row[b] = first_row + static_cast<int32_t>(key >> column_bits);
            column[b] =
                static_cast<int32_t>(key & ((int64_t{1} << column_bits) - 1));
            coupling_begin[b] = begin + t;
          }));
      num_off_diagonal += slab.num_blocks;
    }
  }

  // Block q of those beside the diagonal, of row i, has i diagonal ones before
  // it.
  const int64_t num_blocks = num_off_diagonal + num_cameras;
  CERES_EXT_RETURN_IF_ERROR(
      machine->Allocate(int64_t{num_cameras} + 1, &row_begin_));
  CERES_EXT_RETURN_IF_ERROR(machine->Allocate(num_blocks, &row_));
  CERES_EXT_RETURN_IF_ERROR(machine->Allocate(num_blocks, &column_));
  CERES_EXT_RETURN_IF_ERROR(
      machine->Allocate(num_blocks + 1, &coupling_begin_));
  int64_t* const row_begin = row_begin_.data();
  int32_t* const row = row_.data();
  int32_t* const column = column_.data();
  int64_t* const coupling_begin = coupling_begin_.data();
  int64_t first_block = 0;
  for (const Slab& slab : slabs) {
    const int32_t first = slab.first;
    const int32_t last = slab.last;
    const int64_t slab_blocks = slab.num_blocks;
    const int32_t* const slab_row = slab.row.data();
    const int32_t* const slab_column = slab.column.data();
    const int64_t* const slab_begin = slab.coupling_begin.data();
    // Thread q writes its block and where the rows begin that come after the
    // block before it, up to its own.
    CERES_EXT_RETURN_IF_ERROR(ForEach(
        "PlaceBlocks", slab_blocks + 1, stream, [=] __device__(int64_t q) {
          const int64_t previous = q == 0 ? first - 1 : slab_row[q - 1];
          const int64_t own = q == slab_blocks ? last - 1 : slab_row[q];
          for (int64_t i = previous + 1; i <= own; ++i) {
            row_begin[i] = first_block + q + i;
          }
          if (q < slab_blocks) {
            const int64_t b = first_block + q + own;
            row[b] = slab_row[q];
            column[b] = slab_column[q];
            coupling_begin[b] = slab_begin[q];
          }
        }));
    first_block += slab_blocks;
  }
  CERES_EXT_RETURN_IF_ERROR(
      SetValue("EndRows", row_begin + num_cameras, num_blocks, stream));
  CERES_EXT_RETURN_IF_ERROR(SetValue(
      "EndCouplings", coupling_begin + num_blocks, num_couplings, stream));
  // A diagonal block begins where the couplings of its row end.
  CERES_EXT_RETURN_IF_ERROR(
      ForEach("PlaceDiagonal", num_cameras, stream, [=] __device__(int64_t i) {
        const int64_t b = row_begin[i + 1] - 1;
        const int64_t e = index.camera_begin[i + 1];
        row[b] = column[b] = static_cast<int32_t>(i);
        coupling_begin[b] = e == 0 ? 0 : entry_end[e - 1];
      }));

  // chunk_end[b] = how many chunks the blocks up to b have.
  DeviceBuffer<int64_t> chunk_end_buffer;
  CERES_EXT_RETURN_IF_ERROR(machine->Allocate(num_blocks, &chunk_end_buffer));
  int64_t* const chunk_end = chunk_end_buffer.data();
  CERES_EXT_RETURN_IF_ERROR(
      ForEach("CountChunks", num_blocks, stream, [=] __device__(int64_t b) {
        const int64_t size = coupling_begin[b + 1] - coupling_begin[b];
        chunk_end[b] =
            size > kCouplingChunk ? CeilDivide(size, kCouplingChunk) : 0;
      }));
  int64_t num_chunks = 0;
  CERES_EXT_RETURN_IF_ERROR(
      InclusiveSum(num_blocks, chunk_end, &num_chunks, &memory, context));
  CERES_EXT_RETURN_IF_ERROR(machine->Allocate(num_chunks, &chunk_));
  CouplingChunk* const chunk = chunk_.data();
  CERES_EXT_RETURN_IF_ERROR(
      ForEach("PlaceChunks", num_blocks, stream, [=] __device__(int64_t b) {
        int64_t begin = coupling_begin[b];
        for (int64_t c = b == 0 ? 0 : chunk_end[b - 1]; c < chunk_end[b]; ++c) {
          chunk[c].block = b;
          chunk[c].begin = begin;
          begin += kCouplingChunk;
        }
      }));
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
