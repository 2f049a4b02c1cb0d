// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The Schur complement S as a matrix of its unknowns: which columns of F they
// are, and where the elements of S go, in a dense matrix or a sparse one.
//
//   SchurUnknowns<Machine> unknowns;
//   Status status = unknowns.Setup(f_families, varies, &machine);
//   SchurCsr<Machine> csr;
//   if (status.ok()) status = csr.Setup(lists_of_blocks, unknowns, &machine);
//   SchurRows<Machine> rows;  // for products
//   if (status.ok()) status = rows.Setup(csr, unknowns, &machine);
//   params.unknowns = unknowns.OfFamily(family);
//   params.target = csr.target(values, list);  // csr.num_values() of them
//
// Columns that do not vary are not unknowns: S has no rows of padding or of
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
struct SchurUnknownsRef {
  int32_t num_unknowns = 0;  // n
  // The unknown that each value of a vector of F is; -1: none.
  const int32_t* id = nullptr;
  // Block c has the unknowns begin[c] .. begin[c + 1] - 1.
  const int32_t* begin = nullptr;
  // The reverse of id: the place of unknown u in vectors of F.
  const int64_t* column = nullptr;  // n
  // The blocks that are meant have the unknowns family_begin .. family_end - 1.
  int32_t family_begin = 0;
  int32_t family_end = 0;
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
Status DownloadBlocks(const CouplingIndexRef& couplings,
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
    own_id_ = {};
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
    view_.num_unknowns = view_.family_end = next;
    view_.id = id_.data();
    view_.begin = begin_.data();
    view_.column = column_.data();
    host_column_ = std::move(column);
    return {};
  }

  // The same in the order of other blocks that hold F's values, each once, as
  // views do: OfFamily and first_block are of their families. columns: of each
  // of their values the place in vectors of F, -1: none.
  Status Setup(const BlockFamilies& families,
               const std::vector<int32_t>& columns,
               const unsigned char* varies,
               int64_t num_values,
               Machine* machine) {
    std::vector<unsigned char> own_varies(columns.size());
    for (size_t at = 0; at < columns.size(); ++at) {
      own_varies[at] =
          columns[at] >= 0 && (varies == nullptr || varies[columns[at]] != 0)
              ? 1
              : 0;
    }
    CERES_EXT_RETURN_IF_ERROR(Setup(families, own_varies.data(), machine));
    std::vector<int32_t> id(static_cast<size_t>(num_values), -1);
    for (size_t u = 0; u < host_column_.size(); ++u) {
      host_column_[u] = columns[static_cast<size_t>(host_column_[u])];
      id[static_cast<size_t>(host_column_[u])] = static_cast<int32_t>(u);
    }
    std::swap(id_, own_id_);
    CERES_EXT_RETURN_IF_ERROR(machine->Upload(id, &id_));
    CERES_EXT_RETURN_IF_ERROR(machine->Upload(host_column_, &column_));
    view_.id = id_.data();
    view_.column = column_.data();
    return {};
  }

  const SchurUnknownsRef& ref() const { return view_; }
  // With id and begin from the family's first block on.
  SchurUnknownsRef OfFamily(int family) const {
    SchurUnknownsRef view = view_;
    if (own_id_.size() > 0) {
      view.id = own_id_.data();
    }
    view.id += families_[family].value_begin;
    const int32_t first = first_block(family);
    view.begin += first;
    view.family_begin = host_begin_[static_cast<size_t>(first)];
    view.family_end =
        host_begin_[static_cast<size_t>(first) + families_[family].num_blocks];
    return view;
  }
  int32_t first_block(int family) const {
    return first_block_[static_cast<size_t>(family)];
  }
  const BlockFamilies& families() const { return families_; }
  int64_t num_values() const { return id_.size(); }  // of a vector of F
  // ref().begin and ref().column in host memory.
  const std::vector<int32_t>& host_begin() const { return host_begin_; }
  const std::vector<int64_t>& host_column() const { return host_column_; }

 private:
  BlockFamilies families_;
  SchurUnknownsRef view_;
  std::vector<int32_t> first_block_;  // of each family
  std::vector<int32_t> host_begin_;
  std::vector<int64_t> host_column_;
  typename Machine::template Buffer<int32_t> id_;
  typename Machine::template Buffer<int32_t> own_id_;  // of other blocks
  typename Machine::template Buffer<int32_t> begin_;
  typename Machine::template Buffer<int64_t> column_;
};

// The place of the elements (u, v), u >= v, of S.
struct SchurTarget {
  double* values = nullptr;
  // Dense, column-major, stride n values: those of a column, at least n. The
  // lower triangle is written, and zeros behind each column; what is above it
  // stays.
  int64_t stride = 0;
  // CSR of the lower triangle; null: dense. Block b of S has its first column
  // block_offset[b] places behind the begin of each of its rows.
  const int64_t* row_begin = nullptr;
  const int32_t* block_offset = nullptr;

  // For block `block`, whose columns begin with unknown `first`.
  CERES_EXT_HOST_DEVICE double& At(int64_t u,
                                   int64_t v,
                                   int64_t block,
                                   int64_t first) const {
    return values[row_begin == nullptr
                      ? v * stride + u
                      : row_begin[u] + block_offset[block] + (v - first)];
  }
  // For a diagonal block, which ends its rows.
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
  // All but the columns, which products by blocks don't need.
  Status Setup(const std::vector<SchurBlockList>& lists,
               const SchurUnknowns<Machine>& unknowns,
               Machine* machine) {
    begin_ = unknowns.host_begin();
    const int32_t num_rows = static_cast<int32_t>(begin_.size()) - 1;
    std::vector<std::vector<int32_t>> offsets(lists.size());
    for (size_t i = 0; i < lists.size(); ++i) {
      offsets[i].resize(lists[i].column.size());
    }
    host_row_begin_.assign(1, 0);
    block_begin_.assign(1, 0);
    block_column_.clear();
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
        offset_of.push_back(offset_of.back() + begin_[j + 1] - begin_[j]);
      }
      ForEachBlock(lists, i, [&](size_t list, int64_t b, int32_t j) {
        const auto at = std::lower_bound(columns.begin(), columns.end(), j);
        offsets[list][b] = offset_of[at - columns.begin()];
      });
      block_column_.insert(block_column_.end(), columns.begin(), columns.end());
      block_column_.push_back(i);
      block_begin_.push_back(static_cast<int64_t>(block_column_.size()));
      for (int32_t u = begin_[i]; u < begin_[i + 1]; ++u) {
        host_row_begin_.push_back(host_row_begin_.back() + offset_of.back() +
                                  (u - begin_[i]) + 1);
      }
    }
    CERES_EXT_RETURN_IF_ERROR(machine->Upload(host_row_begin_, &row_begin_));
    block_offset_.clear();
    for (const std::vector<int32_t>& offset : offsets) {
      block_offset_.emplace_back();
      CERES_EXT_RETURN_IF_ERROR(machine->Upload(offset, &block_offset_.back()));
    }
    return {};
  }
  // The columns, after Setup.
  Status SetupColumns(Machine* machine) {
    std::vector<int32_t> column;
    column.reserve(static_cast<size_t>(num_values()));
    for (size_t i = 0; i + 1 < begin_.size(); ++i) {
      for (int32_t u = begin_[i]; u < begin_[i + 1]; ++u) {
        for (int64_t b = block_begin_[i]; b < block_begin_[i + 1]; ++b) {
          const int32_t j = block_column_[b];
          const int32_t end = std::min(begin_[j + 1], u + 1);
          for (int32_t v = begin_[j]; v < end; ++v) {
            column.push_back(v);
          }
        }
      }
    }
    return machine->Upload(column, &column_);
  }

  // For one list.
  Status Setup(const CouplingIndexRef& couplings,
               const SchurUnknowns<Machine>& unknowns,
               Machine* machine) {
    std::vector<SchurBlockList> lists(1);
    CERES_EXT_RETURN_IF_ERROR(DownloadBlocks(couplings, 0, machine, &lists[0]));
    return Setup(lists, unknowns, machine);
  }

  int64_t num_values() const { return host_row_begin_.back(); }
  // In the lower triangle, including diagonal ones.
  int64_t num_blocks() const { return block_begin_.back(); }
  // In the machine's memory.
  int64_t num_bytes() const {
    int64_t num_bytes = 8 * row_begin_.size() + 4 * column_.size();
    for (const auto& offset : block_offset_) {
      num_bytes += 4 * offset.size();
    }
    return num_bytes;
  }
  // The blocks of row i are (i, block_column()[b]), block_begin()[i] <= b <
  // block_begin()[i + 1], columns ascending, the diagonal one last. In host
  // memory.
  const std::vector<int64_t>& block_begin() const { return block_begin_; }
  const std::vector<int32_t>& block_column() const { return block_column_; }
  // In the machine's memory: n + 1, and num_values() after SetupColumns.
  const int64_t* row_begin() const { return row_begin_.data(); }
  const int32_t* column() const { return column_.data(); }
  const std::vector<int64_t>& host_row_begin() const { return host_row_begin_; }

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

  std::vector<int32_t> begin_;  // of each block's unknowns
  std::vector<int64_t> block_begin_{0};
  std::vector<int32_t> block_column_;
  std::vector<int64_t> host_row_begin_{0};
  typename Machine::template Buffer<int64_t> row_begin_;
  typename Machine::template Buffer<int32_t> column_;
  std::vector<typename Machine::template Buffer<int32_t>> block_offset_;
};

// A block of the full symmetric S, in the row of another one.
struct SchurRowBlock {
  int32_t column = 0;  // the block of F
  // The place of the first column behind the begin of each row, of the block as
  // it is stored: (i, column) or, above the diagonal, its transpose (column,
  // i).
  int32_t offset = 0;
};

// Passed to kernels by value; owns nothing.
struct SchurRowsRef {
  SchurUnknownsRef unknowns;
  int64_t num_values = 0;  // of a vector of F
  int32_t width = 0;       // unknowns of the widest block
  int64_t num_chunks = 0;
  const int32_t* row_of = nullptr;       // the block of each unknown
  const int64_t* row_begin = nullptr;    // of SchurCsr
  const SchurRowBlock* block = nullptr;  // by row, columns ascending
  const int64_t* chunk_begin = nullptr;  // num_chunks + 1, in block
  const int32_t* chunk_row = nullptr;    // num_chunks
  const int64_t* first_chunk = nullptr;  // of each row of blocks, and the end
};

// Both triangles of a SchurCsr by rows of blocks, in chunks of at most
// kSchurRowChunk blocks: what its products go by (ops/schur_terms.h). No value
// is stored twice.
inline constexpr int64_t kSchurRowChunk = 16;
template <typename Machine>
class SchurRows {
 public:
  // Both must outlive the object.
  Status Setup(const SchurCsr<Machine>& csr,
               const SchurUnknowns<Machine>& unknowns,
               Machine* machine) {
    const std::vector<int32_t>& begin = unknowns.host_begin();
    const size_t num_rows = begin.size() - 1;
    // For each row the number of its blocks, later on the place of the next
    // one.
    std::vector<int64_t> next(num_rows);
    for (size_t i = 0; i < num_rows; ++i) {
      for (int64_t b = csr.block_begin()[i]; b < csr.block_begin()[i + 1];
           ++b) {
        ++next[i];
        const auto j = static_cast<size_t>(csr.block_column()[b]);
        next[j] += j != i ? 1 : 0;
      }
    }
    std::vector<int64_t> chunk_begin;
    std::vector<int32_t> chunk_row;
    std::vector<int64_t> first_chunk;
    std::vector<int32_t> row_of;
    int64_t num_blocks = 0;
    view_.width = 0;
    for (size_t i = 0; i < num_rows; ++i) {
      first_chunk.push_back(static_cast<int64_t>(chunk_row.size()));
      for (int64_t b = 0; b < next[i]; b += kSchurRowChunk) {
        chunk_begin.push_back(num_blocks + b);
        chunk_row.push_back(static_cast<int32_t>(i));
      }
      num_blocks += std::exchange(next[i], num_blocks);
      row_of.insert(row_of.end(),
                    static_cast<size_t>(begin[i + 1] - begin[i]),
                    static_cast<int32_t>(i));
      view_.width = std::max(view_.width, begin[i + 1] - begin[i]);
    }
    chunk_begin.push_back(num_blocks);
    first_chunk.push_back(static_cast<int64_t>(chunk_row.size()));
    std::vector<SchurRowBlock> blocks(static_cast<size_t>(num_blocks));
    // Rows ascend, so that those above the diagonal come behind the others.
    for (size_t i = 0; i < num_rows; ++i) {
      int32_t offset = 0;
      for (int64_t b = csr.block_begin()[i]; b < csr.block_begin()[i + 1];
           ++b) {
        const int32_t j = csr.block_column()[b];
        blocks[next[i]++] = {j, offset};
        if (static_cast<size_t>(j) != i) {
          blocks[next[j]++] = {static_cast<int32_t>(i), offset};
        }
        offset += begin[j + 1] - begin[j];
      }
    }
    CERES_EXT_RETURN_IF_ERROR(machine->Upload(blocks, &block_));
    CERES_EXT_RETURN_IF_ERROR(machine->Upload(chunk_begin, &chunk_begin_));
    CERES_EXT_RETURN_IF_ERROR(machine->Upload(chunk_row, &chunk_row_));
    CERES_EXT_RETURN_IF_ERROR(machine->Upload(first_chunk, &first_chunk_));
    CERES_EXT_RETURN_IF_ERROR(machine->Upload(row_of, &row_of_));
    view_.unknowns = unknowns.ref();
    view_.num_values = unknowns.num_values();
    view_.num_chunks = static_cast<int64_t>(chunk_row.size());
    view_.row_of = row_of_.data();
    view_.row_begin = csr.row_begin();
    view_.block = block_.data();
    view_.chunk_begin = chunk_begin_.data();
    view_.chunk_row = chunk_row_.data();
    view_.first_chunk = first_chunk_.data();
    return {};
  }

  const SchurRowsRef& ref() const { return view_; }
  // In the machine's memory.
  int64_t num_bytes() const {
    return 8 * (block_.size() + chunk_begin_.size() + first_chunk_.size()) +
           4 * (chunk_row_.size() + row_of_.size());
  }

 private:
  template <typename T>
  using Buffer = typename Machine::template Buffer<T>;

  SchurRowsRef view_;
  Buffer<SchurRowBlock> block_;
  Buffer<int64_t> chunk_begin_;
  Buffer<int32_t> chunk_row_;
  Buffer<int64_t> first_chunk_;
  Buffer<int32_t> row_of_;
};

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_STRUCTURE_SCHUR_MATRIX_H_
