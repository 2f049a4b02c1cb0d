// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// E = P'S P of S as a matrix, by *cells*: a block's rows of S and a cluster
// that they are coupled with (cuda_kernels/ops/coarse_space.h). For rows of any
// kind.
//
//   CoarseCells<Machine> cells;
//   Status status = cells.Setup(
//       batches, blocks, varies, diagonal, ranks, &context, &machine);
//   if (status.ok()) status = cells.Update(system, v_inverse);
//   if (status.ok()) status = cells.SetClusters(cluster, num_clusters, place);
//   if (status.ok()) status = cells.Form(system, v_inverse, p, stride, e);
#ifndef CERES_EXT_SOLVER_PRECONDITIONER_COARSE_CELLS_H_
#define CERES_EXT_SOLVER_PRECONDITIONER_COARSE_CELLS_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include "ceres_ext/solver/batch.h"
#include "ceres_ext/solver/explicit_schur.h"
#include "ceres_ext/solver/operator/linear_operator.h"
#include "ceres_ext/solver/preconditioner/clusters.h"
#include "ceres_ext/solver/preconditioner/coarse_matrix.h"
#include "ceres_ext/solver/preconditioner/coarse_units.h"
#include "ceres_ext/solver/rank_sums.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/host_context.h"
#include "cuda_kernels/ops/coarse_space.h"
#include "cuda_kernels/structure/schur_matrix.h"

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
class CoarseCells final : public CoarseMatrix<Machine> {
 public:
  // f_varies: of each value of F whether it is an unknown. diagonal: the blocks
  // of S of F blocks, packed, which each Update reads. ranks: null if there is
  // one; the first adds the diagonal. Batches, *diagonal, *context and *machine
  // outlive the object. kUnsupported: S can't be formed.
  kernels::Status Setup(const std::vector<Batch*>& batches,
                        const ProblemBlocks& blocks,
                        const std::vector<unsigned char>& f_varies,
                        const double* diagonal,
                        RankSums<Machine>* ranks,
                        kernels::HostContext* context,
                        Machine* machine) {
    machine_ = machine;
    diagonal_ = diagonal;
    is_first_ = ranks == nullptr || ranks->is_first();
    if (!is_first_) {
      const int64_t n = blocks.f.num_packed();
      CERES_EXT_RETURN_IF_ERROR(machine->Allocate(n, &zero_));
      CERES_EXT_RETURN_IF_ERROR(machine->SetZero(n, zero_.data()));
      diagonal_ = zero_.data();
    }
    CERES_EXT_RETURN_IF_ERROR(schur_.Prepare(
        blocks, batches, machine, context, /*keeps_order=*/ranks != nullptr));
    CERES_EXT_RETURN_IF_ERROR(schur_.Setup(f_varies.data()));
    CERES_EXT_RETURN_IF_ERROR(schur_.SetupSparse());
    unknowns_ = {schur_.unknowns().host_begin(),
                 schur_.unknowns().host_column()};
    return machine->Allocate(schur_.csr().num_values(), &values_);
  }

  const CoarseBlocks& blocks() const final { return unknowns_; }
  void Forget() final { schur_.Forget(); }

  kernels::Status Update(const LinearSystem& system,
                         const double* v_inverse) final {
    ExplicitSchurRequest request;
    request.v_inverse = v_inverse;
    request.schur_diagonal = diagonal_;
    request.f_diagonal = is_first_ ? system.f_diagonal : nullptr;
    request.is_same_linearization = system.is_same_linearization;
    return schur_.Write(request, values_.data());
  }

  // The squared norms of S's blocks, diagonal ones included.
  kernels::Status ListCouplings(std::vector<Coupling>* couplings) final {
    blocks_ = {};
    blocks_.List(schur_);
    const auto n = static_cast<int64_t>(blocks_.row.size());
    std::vector<double> norm(blocks_.row.size());
    {
      Buffer<int32_t> rows;
      Buffer<int32_t> columns;
      Buffer<int32_t> offsets;
      Buffer<double> norms;
      CERES_EXT_RETURN_IF_ERROR(machine_->Upload(blocks_.row, &rows));
      CERES_EXT_RETURN_IF_ERROR(machine_->Upload(blocks_.column, &columns));
      CERES_EXT_RETURN_IF_ERROR(machine_->Upload(blocks_.offset, &offsets));
      CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(n, &norms));
      CERES_EXT_RETURN_IF_ERROR(
          Run(kernels::SchurBlockNormsParams{n,
                                             Values(),
                                             rows.data(),
                                             columns.data(),
                                             offsets.data(),
                                             norms.data()},
              machine_));
      CERES_EXT_RETURN_IF_ERROR(
          machine_->Download(n, norms.data(), norm.data()));
    }
    couplings->clear();
    for (size_t b = 0; b < norm.size(); ++b) {
      couplings->push_back({blocks_.row[b], blocks_.column[b], norm[b]});
    }
    return {};
  }

  int32_t WeighCouplings(std::vector<Coupling>* couplings) final {
    std::vector<double> diagonal(schur_.unknowns().host_begin().size(), 1.0);
    for (const Coupling& c : *couplings) {
      if (c.i == c.j) {
        diagonal[c.i] = c.weight;
      }
    }
    size_t to = 0;
    for (const Coupling& c : *couplings) {
      const double weight =
          std::sqrt(c.weight / std::sqrt(diagonal[c.i] * diagonal[c.j]));
      if (c.i != c.j && weight > 0.0) {
        (*couplings)[to++] = {c.i, c.j, weight};
      }
    }
    couplings->resize(to);
    return MostNeighbors(diagonal.size() - 1, *couplings);
  }

  kernels::Status SetClusters(const std::vector<int32_t>& cluster,
                              int32_t /*num_clusters*/,
                              const int32_t* /*place*/) final {
    struct Entry {
      int32_t row;
      int32_t cluster;
      int32_t column;
      int32_t offset;
    };
    std::vector<std::vector<Entry>> of_row(cluster.size());
    for (size_t b = 0; b < blocks_.row.size(); ++b) {
      const int32_t i = blocks_.row[b];
      const int32_t j = blocks_.column[b];
      of_row[i].push_back({i, cluster[j], j, blocks_.offset[b]});
      if (i != j) {
        of_row[j].push_back({j, cluster[i], i, blocks_.offset[b]});
      }
    }
    const std::vector<int32_t>& begin = schur_.unknowns().host_begin();
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
    blocks_ = {};
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

  kernels::Status Form(const LinearSystem& /*system*/,
                       const double* /*v_inverse*/,
                       const kernels::ProlongationRef& p,
                       int64_t stride,
                       double* e) final {
    const kernels::SchurValuesRef values = Values();
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

  kernels::SchurValuesRef Values() const {
    return {values_.data(),
            schur_.unknowns().ref().begin,
            schur_.csr().row_begin()};
  }

  // Blocks that are coupled with far more others than most stay alone.
  static int32_t MostNeighbors(size_t num_blocks,
                               const std::vector<Coupling>& couplings) {
    constexpr int32_t kFarMore = 8;
    constexpr int32_t kLeastNeighbors = 64;
    std::vector<int32_t> num_neighbors(num_blocks, 0);
    for (const Coupling& c : couplings) {
      ++num_neighbors[c.i];
      ++num_neighbors[c.j];
    }
    std::nth_element(num_neighbors.begin(),
                     num_neighbors.begin() + num_neighbors.size() / 2,
                     num_neighbors.end());
    return std::max(kLeastNeighbors,
                    num_blocks == 0
                        ? 0
                        : kFarMore * num_neighbors[num_neighbors.size() / 2]);
  }

  Machine* machine_ = nullptr;
  bool is_first_ = true;  // of the ranks
  const double* diagonal_ = nullptr;
  Buffer<double> zero_;  // the diagonal of other ranks
  ExplicitSchur<Machine> schur_;
  Buffer<double> values_;
  CoarseBlocks unknowns_;
  SchurBlocks blocks_;  // between ListCouplings and SetClusters
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
