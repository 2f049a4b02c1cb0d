// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// E = P'S P of S as a matrix, by *cells*: a block's rows of S and a cluster
// that they are coupled with (cuda_kernels/ops/coarse_space.h). For rows of any
// kind.
//
//   CoarseCells<Machine> cells;
//   Status status = cells.Setup(schur, blocks, cluster, &machine);
//   if (status.ok()) status = cells.Form(values, prolongation, stride, e);
#ifndef CERES_EXT_SOLVER_PRECONDITIONER_COARSE_CELLS_H_
#define CERES_EXT_SOLVER_PRECONDITIONER_COARSE_CELLS_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include "ceres_ext/solver/explicit_schur.h"
#include "ceres_ext/solver/preconditioner/clusters.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/ops/coarse_space.h"

namespace ceres_ext::solver {

// The stored blocks of a sparse S.
struct SchurBlocks {
  std::vector<int32_t> row;
  std::vector<int32_t> column;
  std::vector<int32_t> offset;  // SchurRowBlock::offset

  template <typename Machine>
  void List(const ExplicitSchur<Machine>& schur) {
    const std::vector<int32_t>& begin = schur.unknowns().host_begin();
    const auto& csr = schur.csr();
    for (size_t i = 0; i + 1 < begin.size(); ++i) {
      int32_t at = 0;
      for (int64_t b = csr.block_begin()[i]; b < csr.block_begin()[i + 1];
           ++b) {
        const int32_t j = csr.block_column()[b];
        row.push_back(static_cast<int32_t>(i));
        column.push_back(j);
        offset.push_back(at);
        at += begin[j + 1] - begin[j];
      }
    }
  }
};

template <typename Machine>
kernels::SchurValuesRef SchurValues(const ExplicitSchur<Machine>& schur,
                                    const double* values) {
  return {values, schur.unknowns().ref().begin, schur.csr().row_begin()};
}

// *couplings: of the blocks of S, by the norms of those between them.
template <typename Machine>
kernels::Status ListCouplings(const ExplicitSchur<Machine>& schur,
                              const double* values,
                              const SchurBlocks& blocks,
                              Machine* machine,
                              std::vector<Coupling>* couplings) {
  const auto n = static_cast<int64_t>(blocks.row.size());
  std::vector<double> norm(blocks.row.size());
  {
    typename Machine::template Buffer<int32_t> rows;
    typename Machine::template Buffer<int32_t> columns;
    typename Machine::template Buffer<int32_t> offsets;
    typename Machine::template Buffer<double> norms;
    CERES_EXT_RETURN_IF_ERROR(machine->Upload(blocks.row, &rows));
    CERES_EXT_RETURN_IF_ERROR(machine->Upload(blocks.column, &columns));
    CERES_EXT_RETURN_IF_ERROR(machine->Upload(blocks.offset, &offsets));
    CERES_EXT_RETURN_IF_ERROR(machine->Allocate(n, &norms));
    CERES_EXT_RETURN_IF_ERROR(
        Run(kernels::SchurBlockNormsParams{n,
                                           SchurValues(schur, values),
                                           rows.data(),
                                           columns.data(),
                                           offsets.data(),
                                           norms.data()},
            machine));
    CERES_EXT_RETURN_IF_ERROR(machine->Download(n, norms.data(), norm.data()));
  }
  std::vector<double> diagonal(schur.unknowns().host_begin().size(), 1.0);
  for (size_t b = 0; b < norm.size(); ++b) {
    if (blocks.row[b] == blocks.column[b]) {
      diagonal[blocks.row[b]] = norm[b];
    }
  }
  couplings->clear();
  for (size_t b = 0; b < norm.size(); ++b) {
    const int32_t i = blocks.row[b];
    const int32_t j = blocks.column[b];
    const double weight =
        std::sqrt(norm[b] / std::sqrt(diagonal[i] * diagonal[j]));
    if (i != j && weight > 0.0) {
      couplings->push_back({i, j, weight});
    }
  }
  return {};
}

template <typename Machine>
class CoarseCells {
 public:
  // cluster: of each block of S. Takes all memory.
  kernels::Status Setup(const ExplicitSchur<Machine>& schur,
                        const SchurBlocks& blocks,
                        const std::vector<int32_t>& cluster,
                        Machine* machine) {
    machine_ = machine;
    struct Entry {
      int32_t row;
      int32_t cluster;
      int32_t column;
      int32_t offset;
    };
    std::vector<std::vector<Entry>> of_row(cluster.size());
    for (size_t b = 0; b < blocks.row.size(); ++b) {
      const int32_t i = blocks.row[b];
      const int32_t j = blocks.column[b];
      of_row[i].push_back({i, cluster[j], j, blocks.offset[b]});
      if (i != j) {
        of_row[j].push_back({j, cluster[i], i, blocks.offset[b]});
      }
    }
    const std::vector<int32_t>& begin = schur.unknowns().host_begin();
    width_ = 0;
    std::vector<int32_t> cell_row;
    std::vector<int32_t> cell_cluster;
    std::vector<int64_t> entry_begin;
    std::vector<int32_t> entry_column;
    std::vector<int32_t> entry_offset;
    for (size_t i = 0; i < of_row.size(); ++i) {
      width_ = std::max(width_, begin[i + 1] - begin[i]);
      std::sort(of_row[i].begin(),
                of_row[i].end(),
                [](const Entry& a, const Entry& b) {
                  return std::tie(a.cluster, a.column) <
                         std::tie(b.cluster, b.column);
                });
      for (size_t e = 0; e < of_row[i].size(); ++e) {
        const Entry& entry = of_row[i][e];
        if (e == 0 || entry.cluster != of_row[i][e - 1].cluster) {
          cell_row.push_back(entry.row);
          cell_cluster.push_back(entry.cluster);
          entry_begin.push_back(static_cast<int64_t>(entry_column.size()));
        }
        entry_column.push_back(entry.column);
        entry_offset.push_back(entry.offset);
      }
      of_row[i] = {};
    }
    entry_begin.push_back(static_cast<int64_t>(entry_column.size()));
    num_cells_ = static_cast<int64_t>(cell_row.size());
    std::vector<int32_t> cells;
    for (int32_t c = 0; c < num_cells_; ++c) {
      if (cluster[cell_row[c]] >= cell_cluster[c]) {
        cells.push_back(c);
      }
    }
    const auto pair_of = [&](int32_t c) {
      return std::pair(cluster[cell_row[c]], cell_cluster[c]);
    };
    std::stable_sort(cells.begin(), cells.end(), [&](int32_t a, int32_t b) {
      return pair_of(a) < pair_of(b);
    });
    std::vector<int32_t> pair_row;
    std::vector<int32_t> pair_column;
    std::vector<int64_t> cell_begin;
    for (size_t c = 0; c < cells.size(); ++c) {
      if (c == 0 || pair_of(cells[c]) != pair_of(cells[c - 1])) {
        pair_row.push_back(pair_of(cells[c]).first);
        pair_column.push_back(pair_of(cells[c]).second);
        cell_begin.push_back(static_cast<int64_t>(c));
      }
    }
    cell_begin.push_back(static_cast<int64_t>(cells.size()));
    num_pairs_ = static_cast<int64_t>(pair_row.size());
    CERES_EXT_RETURN_IF_ERROR(machine_->Upload(cell_row, &cell_row_));
    CERES_EXT_RETURN_IF_ERROR(machine_->Upload(entry_begin, &entry_begin_));
    CERES_EXT_RETURN_IF_ERROR(machine_->Upload(entry_column, &entry_column_));
    CERES_EXT_RETURN_IF_ERROR(machine_->Upload(entry_offset, &entry_offset_));
    CERES_EXT_RETURN_IF_ERROR(machine_->Upload(cells, &pair_cell_));
    CERES_EXT_RETURN_IF_ERROR(machine_->Upload(pair_row, &pair_row_));
    CERES_EXT_RETURN_IF_ERROR(machine_->Upload(pair_column, &pair_column_));
    CERES_EXT_RETURN_IF_ERROR(machine_->Upload(cell_begin, &cell_begin_));
    return machine_->Allocate(num_cells_ * width_ * kernels::kCoarseVectors,
                              &t_);
  }
  // The lower triangle of E, column-major, whose memory is zero.
  kernels::Status Form(const kernels::SchurValuesRef& values,
                       const kernels::ProlongationRef& p,
                       int64_t stride,
                       double* e) {
    CERES_EXT_RETURN_IF_ERROR(
        Run(kernels::MultiplyByProlongationParams{num_cells_,
                                                  width_,
                                                  values,
                                                  p,
                                                  cell_row_.data(),
                                                  entry_begin_.data(),
                                                  entry_column_.data(),
                                                  entry_offset_.data(),
                                                  t_.data()},
            machine_));
    return Run(kernels::CoarseMatrixParams{num_pairs_,
                                           width_,
                                           stride,
                                           p,
                                           values.begin,
                                           pair_row_.data(),
                                           pair_column_.data(),
                                           cell_begin_.data(),
                                           pair_cell_.data(),
                                           cell_row_.data(),
                                           t_.data(),
                                           e},
               machine_);
  }

 private:
  template <typename T>
  using Buffer = typename Machine::template Buffer<T>;

  Machine* machine_ = nullptr;
  // T = S P.
  int32_t width_ = 0;
  int64_t num_cells_ = 0;
  int64_t num_pairs_ = 0;
  Buffer<int32_t> cell_row_;
  Buffer<int64_t> entry_begin_;
  Buffer<int32_t> entry_column_;
  Buffer<int32_t> entry_offset_;
  Buffer<int32_t> pair_row_;
  Buffer<int32_t> pair_column_;
  Buffer<int64_t> cell_begin_;
  Buffer<int32_t> pair_cell_;
  Buffer<double> t_;
};

}  // namespace ceres_ext::solver

#endif  // CERES_EXT_SOLVER_PRECONDITIONER_COARSE_CELLS_H_
