// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "cuda_kernels/structure/coupling_index.h"

#include <algorithm>

#include "cuda_kernels/machine/host_machine.h"
#include "cuda_kernels/structure/cuda_coupling_index.h"

namespace ceres_ext::kernels {
namespace {

// Calls fn(k, l) for the couplings of camera i, sorted by (k, l).
template <typename Function>
void ForEachCoupling(const ObservationIndexRef& index,
                     int32_t i,
                     Function&& fn) {
  for (int64_t e = index.camera_begin[i]; e < index.camera_begin[i + 1]; ++e) {
    const int64_t k = index.camera_entry[e];
    const int64_t begin = index.point_begin[index.point_id[k]];
    const int64_t end = begin + NumCouplingsWithEarlier(index, k);
    for (int64_t l = begin; l < end; ++l) {
      fn(k, l);
    }
  }
}

}  // namespace

void ForecastBytes(const ObservationIndexRef& index,
                   CouplingList list,
                   bool on_device,
                   CouplingForecast* forecast) {
  constexpr int64_t kWord = sizeof(int64_t);
  constexpr int64_t kBlock = 2 * sizeof(int32_t) + kWord;
  const int64_t num_cameras = index.num_cameras;
  const int64_t n = forecast->num_couplings;
  const int64_t off_diagonal = std::min(n, num_cameras * (num_cameras - 1) / 2);
  forecast->max_num_blocks = off_diagonal + num_cameras;
  // A block that is cut has at most two chunks per CouplingChunkSize couplings.
  forecast->bytes =
      kBlock * forecast->max_num_blocks + kWord * (num_cameras + 2);
  if (list != CouplingList::kBlocks) {
    forecast->bytes +=
        (list == CouplingList::kPoints ? int64_t{sizeof(int32_t)} : kWord) * n +
        static_cast<int64_t>(sizeof(CouplingChunk)) *
            (2 * n / CouplingChunkSize(n));
  }
  if (on_device) {
    // Sums over entries; keys before and after the sort of a slab, values, and
    // as much of both as CUB takes; the slabs' blocks, and sums over blocks.
    const int64_t slab =
        std::min(n, std::max(forecast->row_couplings, kCouplingSlab));
    forecast->build_bytes = kWord * index.num_observations + 5 * kWord * slab +
                            kBlock * off_diagonal +
                            kWord * forecast->max_num_blocks +
                            2 * kWord * (num_cameras + 1);
  } else {
    forecast->build_bytes = (kWord + sizeof(int32_t)) * num_cameras;
  }
}

Status ForecastCouplings(const ObservationIndexRef& index,
                         CouplingList list,
                         HostMachine* /*machine*/,
                         CouplingForecast* forecast) {
  *forecast = {};
  for (int32_t i = 0; i < index.num_cameras; ++i) {
    int64_t row = 0;
    for (int64_t e = index.camera_begin[i]; e < index.camera_begin[i + 1];
         ++e) {
      row += NumCouplingsWithEarlier(index, index.camera_entry[e]);
    }
    forecast->num_couplings += row;
    forecast->row_couplings = std::max(forecast->row_couplings, row);
  }
  ForecastBytes(index, list, false, forecast);
  return {};
}

Status CouplingIndex::Build(const ObservationIndexRef& index,
                            CouplingList list,
                            HostMachine* machine) {
  view_ = {};
  const int32_t num_cameras = index.num_cameras;
  CERES_EXT_RETURN_IF_ERROR(
      machine->Allocate(int64_t{num_cameras} + 1, &row_begin_));
  // How many couplings of the row have camera j, then where the next one goes.
  HostBuffer<int64_t> place;
  CERES_EXT_RETURN_IF_ERROR(place.Allocate(num_cameras, int64_t{0}));
  HostBuffer<int32_t> seen;  // The cameras of the row.
  CERES_EXT_RETURN_IF_ERROR(seen.Allocate(num_cameras));
  int64_t num_blocks = 0;
  int64_t num_couplings = 0;
  int64_t num_chunks = 0;
  const bool is_cut = list != CouplingList::kBlocks;
  for (int64_t k = 0; is_cut && k < index.num_observations; ++k) {
    num_couplings += NumCouplingsWithEarlier(index, k);
  }
  const int64_t chunk_size = CouplingChunkSize(num_couplings);
  // Counts, then fills.
  for (const bool fill : {false, true}) {
    if (fill) {
      CERES_EXT_RETURN_IF_ERROR(machine->Allocate(num_blocks, &row_));
      CERES_EXT_RETURN_IF_ERROR(machine->Allocate(num_blocks, &column_));
      CERES_EXT_RETURN_IF_ERROR(
          machine->Allocate(num_blocks + 1, &coupling_begin_));
      const auto if_listed = [&](CouplingList what) {
        return list == what ? num_couplings : 0;
      };
      CERES_EXT_RETURN_IF_ERROR(machine->Allocate(
          if_listed(CouplingList::kObservations), &coupling_));
      CERES_EXT_RETURN_IF_ERROR(
          machine->Allocate(if_listed(CouplingList::kPoints), &point_));
      CERES_EXT_RETURN_IF_ERROR(machine->Allocate(num_chunks, &chunk_));
    }
    num_blocks = num_couplings = num_chunks = 0;
    for (int32_t i = 0; i < num_cameras; ++i) {
      int32_t num_seen = 0;
      ForEachCoupling(index, i, [&](int64_t /*k*/, int64_t l) {
        const int32_t j = index.camera_id[l];
        if (place.data()[j]++ == 0) {
          seen.data()[num_seen++] = j;
        }
      });
      row_begin_.data()[i] = num_blocks;
      std::sort(seen.data(), seen.data() + num_seen);
      for (int32_t s = 0; s <= num_seen; ++s) {
        // The diagonal block comes last.
        const int32_t j = s < num_seen ? seen.data()[s] : i;
        const int64_t count = s < num_seen ? place.data()[j] : 0;
        if (fill) {
          row_.data()[num_blocks] = i;
          column_.data()[num_blocks] = j;
          coupling_begin_.data()[num_blocks] = num_couplings;
          place.data()[j] = num_couplings;
        }
        if (is_cut && count > chunk_size) {
          for (int64_t begin = 0; begin < count; begin += chunk_size) {
            if (fill) {
              chunk_.data()[num_chunks] = {num_blocks, num_couplings + begin};
            }
            ++num_chunks;
          }
        }
        ++num_blocks;
        num_couplings += count;
      }
      if (fill && list != CouplingList::kBlocks) {
        ForEachCoupling(index, i, [&](int64_t k, int64_t l) {
          const int64_t to = place.data()[index.camera_id[l]]++;
          if (list == CouplingList::kPoints) {
            point_.data()[to] = index.point_id[k];
          } else {
            coupling_.data()[to] = MakeCoupling(k, l);
          }
        });
      }
      place.data()[i] = 0;
      for (int32_t s = 0; s < num_seen; ++s) {
        place.data()[seen.data()[s]] = 0;
      }
    }
  }
  row_begin_.data()[num_cameras] = num_blocks;
  coupling_begin_.data()[num_blocks] = num_couplings;
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
