// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// How the host sums the blocks of the Schur complement beside the diagonal: row
// of blocks by row of blocks. A task has a row, or a part of the observations
// of a long one. It adds the products of each of these with those before it in
// their point, which are next to each other in memory, to the blocks of the
// row, which stay in a cache.
//
// A block is kept column by column, each of whole groups of kRowGroup rows, so
// that all columns are sums of vectors.
//
// Order: an element adds its couplings by (k, l), parts of long rows ascending,
// for any number of threads.
#ifndef CERES_EXT_CUDA_KERNELS_HOST_SCHUR_ROWS_H_
#define CERES_EXT_CUDA_KERNELS_HOST_SCHUR_ROWS_H_

#include <algorithm>
#include <cstdint>

#include "cuda_kernels/base/simd.h"
#include "cuda_kernels/machine/host_machine.h"
#include "cuda_kernels/structure/coupling_index.h"
#include "cuda_kernels/structure/host_schur_rows.h"
#include "cuda_kernels/structure/observation_index.h"

namespace ceres_ext::kernels::host {

inline constexpr int kRowGroup = kSchurRowGroup;
// Some rows of a block.
typedef double RowGroup __attribute__((vector_size(32), aligned(8), may_alias));

CERES_EXT_SIMD_INLINE RowGroup& GroupAt(double* x) {
  return *reinterpret_cast<RowGroup*>(x);
}
constexpr int NumGroups(int num_rows) { return NumSchurRowGroups(num_rows); }

// The observations of a task, and where it adds their products.
struct SchurRowTask {
  ObservationIndexRef index;
  int64_t entry_begin = 0;  // in index.camera_entry
  int64_t entry_end = 0;
  // For each camera with a block in the row, its place in `sums`.
  const int64_t* offset = nullptr;
  double* sums = nullptr;
};

// add(i, task) adds the products of a task of row i to zeros. store(b, i, j,
// sums) gets the sum of each block (i, j), i > j, b its number among
// `couplings`.
template <typename Add, typename Store>
void SumSchurRows(const ObservationIndexRef& index,
                  const CouplingIndexRef& couplings,
                  const HostSchurRowsRef& rows,
                  const Add& add,
                  const Store& store,
                  HostMachine* machine) {
  using Part = HostSchurRowsRef::Part;
  const auto store_row = [&](int32_t i, const double* values) {
    rows.ForEachBlock(couplings, i, [&](int64_t b, int32_t j, int64_t at) {
      store(b, i, j, values + at);
    });
  };
  machine->context()->ParallelFor(
      rows.num_parts, 1, [&](int64_t begin, int64_t end, int slot) {
        for (int64_t p = begin; p < end; ++p) {
          const Part& part = rows.parts[p];
          int64_t* const offset =
              rows.offsets + int64_t{index.num_cameras} * slot;
          double* const values = part.sums < 0
                                     ? rows.sums + rows.most_values * slot
                                     : rows.partial + part.sums;
          const int64_t num_values = rows.ForEachBlock(
              couplings, part.row, [&](int64_t /*b*/, int32_t j, int64_t at) {
                offset[j] = at;
              });
          std::fill_n(values, num_values, 0.0);
          add(part.row,
              SchurRowTask{index, part.begin, part.end, offset, values});
          if (part.sums < 0) {
            store_row(part.row, values);
          }
        }
      });
  // Long rows, whose parts are next to each other.
  machine->context()->ParallelFor(
      rows.num_parts, 1, [&](int64_t begin, int64_t end) {
        for (int64_t p = begin; p < end; ++p) {
          const Part& first = rows.parts[p];
          if (first.sums < 0 || (p > 0 && rows.parts[p - 1].row == first.row)) {
            continue;
          }
          double* const total = rows.partial + first.sums;
          const int64_t num_values = rows.NumValues(couplings, first.row);
          for (int64_t q = p + 1;
               q < rows.num_parts && rows.parts[q].row == first.row;
               ++q) {
            const double* const other = rows.partial + rows.parts[q].sums;
            for (int64_t v = 0; v < num_values; ++v) {
              total[v] += other[v];
            }
          }
          store_row(first.row, total);
        }
      });
}

}  // namespace ceres_ext::kernels::host

#endif  // CERES_EXT_CUDA_KERNELS_HOST_SCHUR_ROWS_H_
