// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The Schur complement S as a matrix of its unknowns: which columns of F they
// are, and where the elements of S go, in a dense matrix or a sparse one.
//
//   SchurUnknowns<Machine> unknowns;
//   Status status = unknowns.Setup(f_families, varies, &machine);
//   SchurCsr<Machine> csr;
//   if (status.ok()) status = csr.Setup(lists_of_blocks, unknowns, &machine);
//   params.unknowns = unknowns.OfFamily(family);
//   params.target = csr.target(values, list);  // csr.num_values() of them
//
// Columns that don't vary are no unknowns: S has no rows of padding or of
// constant blocks. The blocks of F are counted through, family by family.
#ifndef CERES_EXT_CUDA_KERNELS_STRUCTURE_SCHUR_MATRIX_H_
#define CERES_EXT_CUDA_KERNELS_STRUCTURE_SCHUR_MATRIX_H_

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "cuda_kernels/base/host_device.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/structure/block_families.h"
#include "cuda_kernels/structure/coupling_index.h"

namespace ceres_ext::kernels {

// Passed to kernels by value; owns nothing.
struct SchurUnknownsView {
  int32_t num_unknowns = 0;  // n
  // The unknown that each value of a vector of F is; -1: none. Ascending where
  // they are not negative.
  const int32_t* id = nullptr;
  // Those of block c are begin[c] .. begin[c + 1] - 1.
  const int32_t* begin = nullptr;
  // The reverse of id: the place of unknown u in vectors of F.
  const int64_t* column = nullptr;  // n
};

// Blocks of the lower triangle of S, in host memory: block b of row i, where
// row_begin[i] <= b < row_begin[i + 1], is (i, column[b]), columns ascending.
// Rows and columns are counted from first_block on.
struct SchurBlockList {
  int32_t first_block = 0;
  std::vector<int64_t> row_begin{0};
  std::vector<int32_t> column;
};

template <typename Machine>
Status DownloadBlocks(const CouplingIndexView& couplings,
                      int32_t first_block,
                      Machine* machine,
                      SchurBlockList* list) {
  list->first_block = first_block;
  list->row_begin.resize(static_cast<size_t>(couplings.num_cameras) + 1);
  list->column.resize(static_cast<size_t>(couplings.num_blocks));
  CERES_EXT_RETURN_IF_ERROR(
      machine->Download(couplings.num_cameras + int64_t{1},
                        couplings.row_begin,
                        list->row_begin.data()));
  return machine->Download(
      couplings.num_blocks, couplings.column, list->column.data());
}

template <typename Machine>
class SchurUnknowns {
 public:
  // varies: of each value of F, in host memory, whether it is an unknown; null:
  // all are. kUnsupported: more than 2^31 - 1 values.
  Status Setup(const BlockFamilies& families,
               const unsigned char* varies,
               Machine* machine) {
    families_ = families;
    if (families.num_values() > std::numeric_limits<int32_t>::max()) {
      return {StatusCode::kUnsupported,
              "A Schur complement of " + std::to_string(families.num_values()) +
                  " columns; at most 2147483647 are supported."};
    }
    std::vector<int32_t> id(static_cast<size_t>(families.num_values()), -1);
    std::vector<int64_t> column;
    host_begin_.assign(1, 0);
    first_block_.clear();
    int32_t next = 0;
    size_t at = 0;
    for (const BlockFamily& family : families) {
      first_block_.push_back(static_cast<int32_t>(host_begin_.size()) - 1);
      for (int32_t block = 0; block < family.num_blocks; ++block) {
        for (int32_t a = 0; a < family.size; ++a, ++at) {
          if (varies == nullptr || varies[at] != 0) {
            id[at] = next++;
            column.push_back(static_cast<int64_t>(at));
          }
        }
        host_begin_.push_back(next);
      }
    }
    CERES_EXT_RETURN_IF_ERROR(machine->Upload(id, &id_));
    CERES_EXT_RETURN_IF_ERROR(machine->Upload(host_begin_, &begin_));
    CERES_EXT_RETURN_IF_ERROR(machine->Upload(column, &column_));
    view_.num_unknowns = next;
    view_.id = id_.data();
    view_.begin = begin_.data();
    view_.column = column_.data();
    host_column_ = std::move(column);
    return {};
  }

  const SchurUnknownsView& view() const { return view_; }
  // With id and begin from the family's first block on.
  SchurUnknownsView OfFamily(int family) const {
    SchurUnknownsView view = view_;
    view.id += families_[family].value_begin;
    view.begin += first_block(family);
    return view;
  }
  int32_t first_block(int family) const {
    return first_block_[static_cast<size_t>(family)];
  }
  const BlockFamilies& families() const { return families_; }
  // view().begin and view().column in host memory.
  const std::vector<int32_t>& host_begin() const { return host_begin_; }
  const std::vector<int64_t>& host_column() const { return host_column_; }

 private:
  BlockFamilies families_;
  SchurUnknownsView view_;
  std::vector<int32_t> first_block_;  // of each family
  std::vector<int32_t> host_begin_;
  std::vector<int64_t> host_column_;
  typename Machine::template Buffer<int32_t> id_;
  typename Machine::template Buffer<int32_t> begin_;
  typename Machine::template Buffer<int64_t> column_;
};

// Where the elements (u, v), u >= v, of S go.
struct SchurTarget {
  double* values = nullptr;
  // Dense, column-major, stride n values: those of a column, at least n. The
  // lower triangle is written, and zeros above it and behind each column.
  int64_t stride = 0;
  // CSR of the lower triangle; null: dense. Block b of S has its first column
  // block_offset[b] places behind the begin of each of its rows.
  const int64_t* row_begin = nullptr;
  const int32_t* block_offset = nullptr;

  // Of block `block`, whose columns begin with unknown `first`.
  CERES_EXT_HOST_DEVICE double& At(int64_t u,
                                   int64_t v,
                                   int64_t block,
                                   int64_t first) const {
    return values[row_begin == nullptr
                      ? v * stride + u
                      : row_begin[u] + block_offset[block] + (v - first)];
  }
  // Of a diagonal block, which ends its rows.
  CERES_EXT_HOST_DEVICE double& AtDiagonal(int64_t u, int64_t v) const {
    return values[row_begin == nullptr ? v * stride + u
                                       : row_begin[u + 1] - 1 - (u - v)];
  }
};

// The pattern of the lower triangle of S in compressed sparse rows: a full
// block for each that any of some lists has, the lower half of one for each
// block of F. Columns ascend. It is what cuDSS takes as CUDSS_MTYPE_SPD with
// the view CUDSS_MVIEW_LOWER and base zero: half the values of the full matrix.
//
// Made on the host, which the analysis of a factorisation needs it on as well.
template <typename Machine>
class SchurCsr {
 public:
  Status Setup(const std::vector<SchurBlockList>& lists,
               const SchurUnknowns<Machine>& unknowns,
               Machine* machine) {
    const std::vector<int32_t>& begin = unknowns.host_begin();
    const int32_t num_rows = static_cast<int32_t>(begin.size()) - 1;
    std::vector<std::vector<int32_t>> offsets;
    for (const SchurBlockList& list : lists) {
      offsets.emplace_back(list.column.size());
    }
    host_row_begin_.assign(1, 0);
    host_column_.clear();
    num_blocks_ = 0;
    std::vector<int32_t> columns;    // of the row, below the diagonal
    std::vector<int32_t> offset_of;  // of each of them, then of the diagonal
    for (int32_t i = 0; i < num_rows; ++i) {
      columns.clear();
      ForEachBlock(lists, i, [&](size_t /*list*/, int64_t /*b*/, int32_t j) {
        if (j != i) {
          columns.push_back(j);
        }
      });
      std::sort(columns.begin(), columns.end());
      columns.erase(std::unique(columns.begin(), columns.end()), columns.end());
      offset_of.assign(1, 0);
      for (const int32_t j : columns) {
        offset_of.push_back(offset_of.back() + begin[j + 1] - begin[j]);
      }
      ForEachBlock(lists, i, [&](size_t list, int64_t b, int32_t j) {
        const auto at = std::lower_bound(columns.begin(), columns.end(), j);
        offsets[list][b] = offset_of[at - columns.begin()];
      });
      num_blocks_ += static_cast<int64_t>(columns.size()) + 1;
      for (int32_t u = begin[i]; u < begin[i + 1]; ++u) {
        for (const int32_t j : columns) {
          for (int32_t v = begin[j]; v < begin[j + 1]; ++v) {
            host_column_.push_back(v);
          }
        }
        for (int32_t v = begin[i]; v <= u; ++v) {
          host_column_.push_back(v);
        }
        host_row_begin_.push_back(static_cast<int64_t>(host_column_.size()));
      }
    }
    CERES_EXT_RETURN_IF_ERROR(machine->Upload(host_row_begin_, &row_begin_));
    CERES_EXT_RETURN_IF_ERROR(machine->Upload(host_column_, &column_));
    block_offset_.clear();
    for (const std::vector<int32_t>& offset : offsets) {
      block_offset_.emplace_back();
      CERES_EXT_RETURN_IF_ERROR(machine->Upload(offset, &block_offset_.back()));
    }
    return {};
  }

  // Of one list.
  Status Setup(const CouplingIndexView& couplings,
               const SchurUnknowns<Machine>& unknowns,
               Machine* machine) {
    std::vector<SchurBlockList> lists(1);
    CERES_EXT_RETURN_IF_ERROR(DownloadBlocks(couplings, 0, machine, &lists[0]));
    return Setup(lists, unknowns, machine);
  }

  int64_t num_values() const { return host_row_begin_.back(); }
  // Of the lower triangle, diagonal ones included.
  int64_t num_blocks() const { return num_blocks_; }
  // In the machine's memory and in the host's: n + 1, and num_values().
  const int64_t* row_begin() const { return row_begin_.data(); }
  const int32_t* column() const { return column_.data(); }
  const std::vector<int64_t>& host_row_begin() const { return host_row_begin_; }
  const std::vector<int32_t>& host_column() const { return host_column_; }

  // For the blocks of a list. values: num_values() in the machine's memory.
  SchurTarget target(double* values, size_t list = 0) const {
    SchurTarget target;
    target.values = values;
    target.row_begin = row_begin_.data();
    target.block_offset = block_offset_[list].data();
    return target;
  }

 private:
  // Calls fn(list, b, j) for the blocks of row i.
  template <typename Function>
  static void ForEachBlock(const std::vector<SchurBlockList>& lists,
                           int32_t i,
                           Function&& fn) {
    for (size_t q = 0; q < lists.size(); ++q) {
      const SchurBlockList& list = lists[q];
      const int32_t row = i - list.first_block;
      if (row < 0 || row + 1 >= static_cast<int32_t>(list.row_begin.size())) {
        continue;
      }
      for (int64_t b = list.row_begin[row]; b < list.row_begin[row + 1]; ++b) {
        fn(q, b, list.first_block + list.column[b]);
      }
    }
  }

  int64_t num_blocks_ = 0;
  std::vector<int64_t> host_row_begin_{0};
  std::vector<int32_t> host_column_;
  typename Machine::template Buffer<int64_t> row_begin_;
  typename Machine::template Buffer<int32_t> column_;
  std::vector<typename Machine::template Buffer<int32_t>> block_offset_;
};

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_STRUCTURE_SCHUR_MATRIX_H_
