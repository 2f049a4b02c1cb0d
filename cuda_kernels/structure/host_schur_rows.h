// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// How the host sums the Schur complement row of blocks by row of blocks
// (host/schur_rows.h): the tasks, and the memory that they work in.
//
//   HostSchurRows rows;
//   Status status = rows.Setup(index, couplings, sizes, &machine);
//   params.rows = rows.ref();
#ifndef CERES_EXT_CUDA_KERNELS_STRUCTURE_HOST_SCHUR_ROWS_H_
#define CERES_EXT_CUDA_KERNELS_STRUCTURE_HOST_SCHUR_ROWS_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cuda_kernels/base/buffer.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/host_machine.h"
#include "cuda_kernels/structure/coupling_index.h"
#include "cuda_kernels/structure/observation_index.h"

namespace ceres_ext::kernels {

// Rows of a block that are summed together.
inline constexpr int kSchurRowGroup = 4;
constexpr int NumSchurRowGroups(int num_rows) {
  return (num_rows + kSchurRowGroup - 1) / kSchurRowGroup;
}

struct HostSchurRowsRef {
  // A row, or a part of the observations of a long one.
  struct Part {
    int32_t row;
    int64_t begin;  // in ObservationIndexRef::camera_entry
    int64_t end;
    int64_t sums;  // in `partial`; -1: the whole row
  };
  int64_t num_parts = 0;
  int64_t most_values = 0;  // of a row
  const Part* parts = nullptr;
  const int32_t* sizes = nullptr;  // of each camera; null: common_size
  int32_t common_size = 0;
  double* partial = nullptr;
  double* sums = nullptr;      // most_values per thread
  int64_t* offsets = nullptr;  // one per camera and thread

  int32_t size(int32_t camera) const {
    return sizes == nullptr ? common_size : sizes[camera];
  }
  // Calls fn(b, j, place of its values) for the blocks of row i beside the
  // diagonal; the number of values.
  template <typename Function>
  int64_t ForEachBlock(const CouplingIndexRef& couplings,
                       int32_t i,
                       const Function& fn) const {
    const int64_t stride = int64_t{kSchurRowGroup} * NumSchurRowGroups(size(i));
    int64_t at = 0;
    for (int64_t b = couplings.row_begin[i]; b + 1 < couplings.row_begin[i + 1];
         ++b) {
      const int32_t j = couplings.column[b];
      fn(b, j, at);
      at += stride * size(j);
    }
    return at;
  }
  int64_t NumValues(const CouplingIndexRef& couplings, int32_t i) const {
    return ForEachBlock(couplings, i, [](int64_t, int32_t, int64_t) {});
  }
};

class HostSchurRows {
 public:
  // sizes: columns of each camera, which outlive the object; null if all have
  // common_size.
  Status Setup(const ObservationIndexRef& index,
               const CouplingIndexRef& couplings,
               const int32_t* sizes,
               int32_t common_size,
               HostMachine* machine) {
    // Parts of a row hold at least so many observations, and all rows have some
    // kMostParts more parts than there are rows, at most.
    constexpr int64_t kLeastPart = 1024;
    constexpr int64_t kMostParts = 64;
    const int64_t part_size =
        std::max(kLeastPart, index.num_observations / kMostParts);
    view_ = {};
    view_.sizes = sizes;
    view_.common_size = common_size;
    parts_.clear();
    int64_t num_partial = 0;
    for (int32_t i = 0; i < index.num_cameras; ++i) {
      const int64_t num_values = view_.NumValues(couplings, i);
      if (num_values == 0) {
        continue;
      }
      view_.most_values = std::max(view_.most_values, num_values);
      const int64_t begin = index.camera_begin[i];
      const int64_t end = index.camera_begin[i + 1];
      if (end - begin <= part_size) {
        parts_.push_back({i, begin, end, -1});
        continue;
      }
      for (int64_t first = begin; first < end; first += part_size) {
        parts_.push_back(
            {i, first, std::min(end, first + part_size), num_partial});
        num_partial += num_values;
      }
    }
    const int64_t num_threads = machine->context()->num_threads();
    CERES_EXT_RETURN_IF_ERROR(machine->Allocate(num_partial, &partial_));
    CERES_EXT_RETURN_IF_ERROR(
        machine->Allocate(num_threads * view_.most_values, &sums_));
    CERES_EXT_RETURN_IF_ERROR(
        machine->Allocate(num_threads * index.num_cameras, &offsets_));
    view_.num_parts = static_cast<int64_t>(parts_.size());
    view_.parts = parts_.data();
    view_.partial = partial_.data();
    view_.sums = sums_.data();
    view_.offsets = offsets_.data();
    return {};
  }

  // Valid until the next Setup or the end of the object.
  const HostSchurRowsRef& ref() const { return view_; }

 private:
  HostSchurRowsRef view_;
  std::vector<HostSchurRowsRef::Part> parts_;
  HostBuffer<double> partial_;
  HostBuffer<double> sums_;
  HostBuffer<int64_t> offsets_;
};

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_STRUCTURE_HOST_SCHUR_ROWS_H_
