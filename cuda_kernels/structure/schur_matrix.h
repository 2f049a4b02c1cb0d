// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The Schur complement S as a matrix of its unknowns: which columns of cameras
// they are, and where the elements of S go, in a dense matrix or a sparse one.
//
//   SchurUnknowns<Machine> unknowns;
//   Status status = unknowns.Setup(num_cameras, F, varies, &machine);
//   SchurCsr<Machine> csr;
//   if (status.ok()) status = csr.Setup(couplings.view(), unknowns, &machine);
//   params.unknowns = unknowns.view();
//   params.target = csr.target(values);  // csr.num_values() of them
//
// Columns that don't vary are no unknowns: S has no rows of padding or of
// constant cameras.
#ifndef CERES_EXT_CUDA_KERNELS_STRUCTURE_SCHUR_MATRIX_H_
#define CERES_EXT_CUDA_KERNELS_STRUCTURE_SCHUR_MATRIX_H_

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "cuda_kernels/base/host_device.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/structure/coupling_index.h"

namespace ceres_ext::kernels {

// Passed to kernels by value; owns nothing.
struct SchurUnknownsView {
  int32_t num_unknowns = 0;  // n
  // The unknown that column e of camera c is, at F c + e; -1: none. Ascending
  // where they are not negative.
  const int32_t* id = nullptr;
  // Those of camera c are begin[c] .. begin[c + 1] - 1.
  const int32_t* begin = nullptr;
  // The reverse of id: the place of unknown u in vectors of F values per
  // camera.
  const int64_t* column = nullptr;  // n
};

template <typename Machine>
class SchurUnknowns {
 public:
  // num_columns: F. varies: F values per camera, in host memory, whether the
  // column is an unknown; null: all are. kUnsupported: more than 2^31 - 1
  // unknowns.
  Status Setup(int32_t num_cameras,
               int num_columns,
               const unsigned char* varies,
               Machine* machine) {
    const int64_t size = int64_t{num_cameras} * num_columns;
    if (size > std::numeric_limits<int32_t>::max()) {
      return {StatusCode::kUnsupported,
              "A Schur complement of " + std::to_string(num_cameras) +
                  " cameras of " + std::to_string(num_columns) +
                  " columns; at most 2147483647 columns are supported."};
    }
    std::vector<int32_t> id(static_cast<size_t>(size), -1);
    std::vector<int64_t> column;
    host_begin_.assign(1, 0);
    int32_t next = 0;
    for (size_t at = 0; at < id.size(); ++at) {
      if (varies == nullptr || varies[at] != 0) {
        id[at] = next++;
        column.push_back(static_cast<int64_t>(at));
      }
      if ((at + 1) % static_cast<size_t>(num_columns) == 0) {
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
    return {};
  }

  const SchurUnknownsView& view() const { return view_; }
  // view().begin in host memory.
  const std::vector<int32_t>& host_begin() const { return host_begin_; }

 private:
  SchurUnknownsView view_;
  std::vector<int32_t> host_begin_;
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
};

// The pattern of the lower triangle of S in compressed sparse rows, of which
// every element is written: a full block for two cameras that see one point in
// common, the lower half of one for each camera. Columns ascend. It is what
// cuDSS takes as CUDSS_MTYPE_SPD with the view CUDSS_MVIEW_LOWER and base zero:
// half the values of the full matrix.
//
// Made on the host, which the analysis of a factorisation needs it on as well.
template <typename Machine>
class SchurCsr {
 public:
  Status Setup(const CouplingIndexView& couplings,
               const SchurUnknowns<Machine>& unknowns,
               Machine* machine) {
    const std::vector<int32_t>& begin = unknowns.host_begin();
    const size_t num_cameras = static_cast<size_t>(couplings.num_cameras);
    std::vector<int64_t> block_begin(num_cameras + 1);
    std::vector<int32_t> block_column(
        static_cast<size_t>(couplings.num_blocks));
    CERES_EXT_RETURN_IF_ERROR(
        machine->Download(couplings.num_cameras + int64_t{1},
                          couplings.row_begin,
                          block_begin.data()));
    CERES_EXT_RETURN_IF_ERROR(machine->Download(
        couplings.num_blocks, couplings.column, block_column.data()));
    std::vector<int32_t> block_offset(block_column.size());
    host_row_begin_.assign(1, 0);
    for (size_t i = 0; i < num_cameras; ++i) {
      int32_t offset = 0;
      for (int64_t b = block_begin[i]; b < block_begin[i + 1]; ++b) {
        const int32_t j = block_column[static_cast<size_t>(b)];
        block_offset[static_cast<size_t>(b)] = offset;
        if (j != static_cast<int32_t>(i)) {
          offset += Size(begin, j);
        }
      }
      // Row a of the camera has a + 1 elements of its diagonal block.
      for (int32_t a = 0; a < begin[i + 1] - begin[i]; ++a) {
        host_row_begin_.push_back(host_row_begin_.back() + offset + a + 1);
      }
    }
    num_values_ = host_row_begin_.back();
    host_column_.resize(static_cast<size_t>(num_values_));
    size_t to = 0;
    for (size_t i = 0; i < num_cameras; ++i) {
      for (int32_t u = begin[i]; u < begin[i + 1]; ++u) {
        for (int64_t b = block_begin[i]; b < block_begin[i + 1]; ++b) {
          const size_t j =
              static_cast<size_t>(block_column[static_cast<size_t>(b)]);
          const int32_t end = j == i ? u + 1 : begin[j + 1];
          for (int32_t v = begin[j]; v < end; ++v) {
            host_column_[to++] = v;
          }
        }
      }
    }
    CERES_EXT_RETURN_IF_ERROR(machine->Upload(host_row_begin_, &row_begin_));
    CERES_EXT_RETURN_IF_ERROR(machine->Upload(host_column_, &column_));
    return machine->Upload(block_offset, &block_offset_);
  }

  int64_t num_values() const { return num_values_; }
  // In the machine's memory and in the host's: n + 1, and num_values().
  const int64_t* row_begin() const { return row_begin_.data(); }
  const int32_t* column() const { return column_.data(); }
  const std::vector<int64_t>& host_row_begin() const { return host_row_begin_; }
  const std::vector<int32_t>& host_column() const { return host_column_; }

  // values: num_values() in the machine's memory.
  SchurTarget target(double* values) const {
    SchurTarget target;
    target.values = values;
    target.row_begin = row_begin_.data();
    target.block_offset = block_offset_.data();
    return target;
  }

 private:
  static int32_t Size(const std::vector<int32_t>& begin, int32_t camera) {
    const size_t c = static_cast<size_t>(camera);
    return begin[c + 1] - begin[c];
  }

  int64_t num_values_ = 0;
  std::vector<int64_t> host_row_begin_;
  std::vector<int32_t> host_column_;
  typename Machine::template Buffer<int64_t> row_begin_;
  typename Machine::template Buffer<int32_t> column_;
  typename Machine::template Buffer<int32_t> block_offset_;
};

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_STRUCTURE_SCHUR_MATRIX_H_
