// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The second level of a two-level preconditioner: P E^-1 P', E = P'S P, to be
// added to a block-diagonal M^-1, which sees one block of F at a time. P has a
// few vectors for each cluster of F blocks, those that the block diagonal is
// worst at (coarse_vectors.h). (B. Smith, P. Bjorstad, W. Gropp, "Domain
// Decomposition", 1996; the vectors by Neumann problems are those of N.
// Spillane et al., "Abstract robust coarse spaces for systems of PDEs via
// generalized eigenproblems in the overlaps", Numer. Math. 126, 2014.)
//
//   CoarseSpace<Machine> coarse;
//   Status status = coarse.SetupDiagonal(blocks, &machine);
//   if (status.ok()) status = coarse.Setup(batches, varies, &context);
//   // per system, after SchurComplement::Update with WantedBlocks():
//   if (status.ok()) status = coarse.Update(system, schur.e_matrices());
//   // in PCG, z = M^-1 r:
//   if (status.ok()) status = coarse.Add(r, z, scalars);
//
// S is formed as a matrix for it, by what rows there are (explicit_schur.h).
// Update takes memory the first time, and when vectors are made again.
#ifndef CERES_EXT_SOLVER_PRECONDITIONER_COARSE_SPACE_H_
#define CERES_EXT_SOLVER_PRECONDITIONER_COARSE_SPACE_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "ceres_ext/solver/batch.h"
#include "ceres_ext/solver/cholesky/factorized_schur.h"
#include "ceres_ext/solver/operator/linear_operator.h"
#include "ceres_ext/solver/preconditioner/clusters.h"
#include "ceres_ext/solver/preconditioner/coarse_solver.h"
#include "ceres_ext/solver/preconditioner/coarse_vectors.h"
#include "ceres_ext/solver/schur_contribution.h"
#include "cuda_kernels/base/pcg_scalars.h"
#include "cuda_kernels/base/small_matrix.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/host_cholesky.h"
#include "cuda_kernels/machine/host_context.h"
#include "cuda_kernels/ops/coarse_space.h"

namespace ceres_ext::solver {

template <typename Machine>
class CoarseSpace : public FactorizedSchur<Machine> {
 public:
  // Vectors of a cluster; columns that it has on average, for few and for many
  // columns in all (docs/measurements/preconditioners.md).
  static constexpr int32_t kNumVectors = 12;
  static constexpr int32_t kColumns = 180;
  static constexpr int32_t kColumnsOfMany = 360;
  static constexpr int64_t kMany = 18000;
  // Fewer do not need it.
  static constexpr int32_t kLeastClusters = 2;

  // Takes memory for WantedBlocks alone.
  using FactorizedSchur<Machine>::SetupDiagonal;
  // After that. f_varies: of each value of F whether it is an unknown. *context
  // outlives the object. kUnsupported: S can't be formed, or the machine has no
  // factorisation.
  kernels::Status Setup(const std::vector<Batch*>& batches,
                        const std::vector<unsigned char>& f_varies,
                        kernels::HostContext* context) {
    batches_ = batches;
    context_ = context;
    num_clusters_ = 0;
    CERES_EXT_RETURN_IF_ERROR(CoarseSolver<Machine>::Available());
    CERES_EXT_RETURN_IF_ERROR(this->Prepare(batches, f_varies));
    CERES_EXT_RETURN_IF_ERROR(schur_.Setup(f_varies.data()));
    CERES_EXT_RETURN_IF_ERROR(schur_.SetupSparse());
    this->SetSize();
    return machine_->Allocate(schur_.csr().num_values(), &values_);
  }

  // kUnsupported: there are too few clusters, or no rows to make vectors of.
  // kNumericalFailure: E is not positive definite.
  kernels::Status Update(const LinearSystem& system, const double* v_inverse) {
    CERES_EXT_RETURN_IF_ERROR(this->Write(system, v_inverse));
    if (num_clusters_ == 0) {
      CERES_EXT_RETURN_IF_ERROR(FindClusters());
      needs_vectors_ = true;
    }
    if (needs_vectors_) {
      CERES_EXT_RETURN_IF_ERROR(FindVectors(system));
      needs_vectors_ = false;
    }
    return FormCoarseMatrix();
  }
  // Its vectors are made again by the next Update.
  void RenewVectors() { needs_vectors_ = true; }

  // z += P E^-1 P'r, vectors of F.
  kernels::Status Add(const double* r,
                      double* z,
                      const kernels::PcgScalars* scalars) {
    CERES_EXT_RETURN_IF_ERROR(Run(
        kernels::RestrictParams{Prolongation(), r, partial_.data(), scalars},
        machine_));
    CERES_EXT_RETURN_IF_ERROR(Run(
        kernels::SumLanesParams{
            num_coarse(), partial_.data(), v_.data(), scalars},
        machine_));
    CERES_EXT_RETURN_IF_ERROR(solver_.Solve(v_.data(), w_.data(), scalars));
    return Run(kernels::ProlongParams{static_cast<int64_t>(order_.size()),
                                      Prolongation(),
                                      w_.data(),
                                      z,
                                      scalars},
               machine_);
  }
  int32_t num_clusters() const { return num_clusters_; }
  int64_t num_coarse() const { return int64_t{kNumVectors} * num_clusters_; }

 private:
  template <typename T>
  using Buffer = typename Machine::template Buffer<T>;
  using Base = FactorizedSchur<Machine>;
  using Base::machine_;
  using Base::schur_;
  using Base::values_;

  kernels::SchurValuesRef Values() const {
    return {values_.data(),
            schur_.unknowns().ref().begin,
            schur_.csr().row_begin()};
  }
  // fn(row, column, offset) of each stored block of S.
  template <typename Function>
  void ForEachBlock(Function&& fn) const {
    const std::vector<int32_t>& begin = schur_.unknowns().host_begin();
    const auto& csr = schur_.csr();
    for (size_t i = 0; i + 1 < begin.size(); ++i) {
      int32_t offset = 0;
      for (int64_t b = csr.block_begin()[i]; b < csr.block_begin()[i + 1];
           ++b) {
        const int32_t j = csr.block_column()[b];
        fn(static_cast<int32_t>(i), j, offset);
        offset += begin[j + 1] - begin[j];
      }
    }
  }

  // Clusters of the blocks of S, by the norms of those between them; the order
  // of P.
  kernels::Status FindClusters() {
    std::vector<int32_t> row;
    std::vector<int32_t> column;
    std::vector<int32_t> offset;
    ForEachBlock([&](int32_t i, int32_t j, int32_t at) {
      row.push_back(i);
      column.push_back(j);
      offset.push_back(at);
    });
    std::vector<double> norm(row.size());
    {
      Buffer<int32_t> rows;
      Buffer<int32_t> columns;
      Buffer<int32_t> offsets;
      Buffer<double> norms;
      CERES_EXT_RETURN_IF_ERROR(machine_->Upload(row, &rows));
      CERES_EXT_RETURN_IF_ERROR(machine_->Upload(column, &columns));
      CERES_EXT_RETURN_IF_ERROR(machine_->Upload(offset, &offsets));
      const auto n = static_cast<int64_t>(row.size());
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
    const std::vector<int32_t>& begin = schur_.unknowns().host_begin();
    const size_t num_blocks = begin.size() - 1;
    std::vector<int32_t> size(num_blocks);
    for (size_t i = 0; i < num_blocks; ++i) {
      size[i] = begin[i + 1] - begin[i];
    }
    std::vector<double> diagonal(num_blocks, 1.0);
    for (size_t b = 0; b < row.size(); ++b) {
      if (row[b] == column[b]) {
        diagonal[row[b]] = norm[b];
      }
    }
    std::vector<Coupling> couplings;
    std::vector<int32_t> num_neighbors(num_blocks, 0);
    for (size_t b = 0; b < row.size(); ++b) {
      const double weight = std::sqrt(
          norm[b] / std::sqrt(diagonal[row[b]] * diagonal[column[b]]));
      if (row[b] != column[b] && weight > 0.0) {
        couplings.push_back({row[b], column[b], weight});
        ++num_neighbors[row[b]];
        ++num_neighbors[column[b]];
      }
    }
    // Blocks that are coupled with far more others than most stay alone.
    constexpr int32_t kFarMore = 8;
    constexpr int32_t kLeastNeighbors = 64;
    std::vector<int32_t> sorted = num_neighbors;
    std::nth_element(
        sorted.begin(), sorted.begin() + sorted.size() / 2, sorted.end());
    const int32_t max_neighbors =
        std::max(kLeastNeighbors,
                 sorted.empty() ? 0 : kFarMore * sorted[sorted.size() / 2]);
    std::vector<int32_t> cluster =
        MakeClusters(size,
                     std::move(couplings),
                     this->num_unknowns_ > kMany ? kColumnsOfMany : kColumns,
                     max_neighbors,
                     &num_clusters_);
    if (num_clusters_ < kLeastClusters) {
      num_clusters_ = 0;
      return {kernels::StatusCode::kUnsupported,
              "The problem has fewer than " + std::to_string(kLeastClusters) +
                  " clusters."};
    }
    // The order.
    std::vector<std::vector<int32_t>> unknowns(
        static_cast<size_t>(num_clusters_));
    for (size_t i = 0; i < num_blocks; ++i) {
      for (int32_t u = begin[i]; u < begin[i + 1]; ++u) {
        unknowns[cluster[i]].push_back(u);
      }
    }
    cluster_begin_.assign(1, 0);
    order_.clear();
    std::vector<int32_t> cluster_of;
    std::vector<int64_t> place_in_f;
    place_.assign(static_cast<size_t>(this->num_unknowns_), 0);
    for (int32_t c = 0; c < num_clusters_; ++c) {
      for (const int32_t u : unknowns[c]) {
        place_[u] = static_cast<int32_t>(order_.size());
        order_.push_back(u);
        cluster_of.push_back(c);
        place_in_f.push_back(schur_.unknowns().host_column()[u]);
      }
      cluster_begin_.push_back(static_cast<int32_t>(order_.size()));
    }
    CERES_EXT_RETURN_IF_ERROR(
        machine_->Upload(cluster_begin_, &machine_cluster_begin_));
    CERES_EXT_RETURN_IF_ERROR(machine_->Upload(cluster_of, &cluster_of_));
    CERES_EXT_RETURN_IF_ERROR(machine_->Upload(place_in_f, &column_));
    CERES_EXT_RETURN_IF_ERROR(machine_->Upload(place_, &machine_place_));
    CERES_EXT_RETURN_IF_ERROR(ListCells(cluster, row, column, offset));
    CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(
        kNumVectors * static_cast<int64_t>(order_.size()), &p_));
    stride_ = CoarseSolver<Machine>::Stride(num_coarse());
    CERES_EXT_RETURN_IF_ERROR(
        machine_->Allocate(stride_ * num_coarse(), &coarse_));
    for (Buffer<double>* vector : {&v_, &w_}) {
      CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(num_coarse(), vector));
    }
    CERES_EXT_RETURN_IF_ERROR(
        machine_->Allocate(kernels::kCoarseLanes * num_coarse(), &partial_));
    return solver_.Setup(num_coarse(), machine_);
  }

  // The blocks of each row of S by clusters, and these by pairs of clusters.
  kernels::Status ListCells(const std::vector<int32_t>& cluster,
                            const std::vector<int32_t>& row,
                            const std::vector<int32_t>& column,
                            const std::vector<int32_t>& offset) {
    struct Entry {
      int32_t row;
      int32_t cluster;
      int32_t column;
      int32_t offset;
    };
    std::vector<std::vector<Entry>> of_row(cluster.size());
    for (size_t b = 0; b < row.size(); ++b) {
      const int32_t i = row[b];
      const int32_t j = column[b];
      of_row[i].push_back({i, cluster[j], j, offset[b]});
      if (i != j) {
        of_row[j].push_back({j, cluster[i], i, offset[b]});
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
    return machine_->Allocate(num_cells_ * width_ * kNumVectors, &t_);
  }

  // P, of the split problem of the system.
  kernels::Status FindVectors(const LinearSystem& system) {
    const kernels::BlockFamilies& f = this->blocks_.f;
    const auto num_f = static_cast<size_t>(f.num_values());
    std::vector<int32_t> cluster(num_f, -1);
    std::vector<int32_t> place(num_f, -1);  // in the cluster
    std::vector<ClusterSystem> systems(static_cast<size_t>(num_clusters_));
    const std::vector<int64_t>& f_column = schur_.unknowns().host_column();
    for (int32_t c = 0; c < num_clusters_; ++c) {
      systems[c].n = cluster_begin_[c + 1] - cluster_begin_[c];
      systems[c].matrix.assign(
          static_cast<size_t>(kernels::HostDenseCholesky::Stride(systems[c].n) *
                              systems[c].n),
          0.0);
      for (int32_t t = cluster_begin_[c]; t < cluster_begin_[c + 1]; ++t) {
        cluster[f_column[order_[t]]] = c;
        place[f_column[order_[t]]] = t - cluster_begin_[c];
      }
    }
    SplitRequest request;
    request.cluster = &cluster;
    request.e_diagonal = system.e_diagonal;
    bool has_rows = false;
    for (Batch* batch : batches_) {
      SplitSchur split;
      CERES_EXT_RETURN_IF_ERROR(
          batch->schur_contribution()->FormSplit(request, &split));
      for (size_t i = 0; i + 1 < split.begin.size(); ++i) {
        has_rows = true;
        split.ForEachElement(i, [&](int64_t u, int64_t v, double value) {
          ClusterSystem& of = systems[cluster[u]];
          const int64_t stride = kernels::HostDenseCholesky::Stride(of.n);
          const int32_t a = std::max(place[u], place[v]);
          const int32_t b = std::min(place[u], place[v]);
          of.matrix[static_cast<size_t>(stride * b + a)] += value;
        });
      }
    }
    if (!has_rows) {
      return {kernels::StatusCode::kUnsupported,
              "No rows have their eliminated blocks to themselves."};
    }
    std::vector<double> diagonal(num_f, 0.0);
    if (system.f_diagonal != nullptr) {
      CERES_EXT_RETURN_IF_ERROR(machine_->Download(
          f.num_values(), system.f_diagonal, diagonal.data()));
    }
    std::vector<double> packed(static_cast<size_t>(f.num_packed()));
    CERES_EXT_RETURN_IF_ERROR(machine_->Download(
        f.num_packed(), this->schur_diagonal_.data(), packed.data()));
    for (int32_t c = 0; c < num_clusters_; ++c) {
      AddBlocks(f, f_column, diagonal, packed.data(), c, &systems[c]);
    }
    std::vector<double> p(order_.size() * kNumVectors);
    std::vector<kernels::Status> statuses(systems.size());
    context_->ParallelFor(
        num_clusters_, /*grain=*/1, [&](int64_t begin, int64_t end) {
          for (int64_t c = begin; c < end; ++c) {
            std::vector<double> vectors;
            statuses[c] = FindCoarseVectors(
                kNumVectors, static_cast<uint64_t>(c), &systems[c], &vectors);
            std::copy(vectors.begin(),
                      vectors.end(),
                      p.begin() + int64_t{kNumVectors} * cluster_begin_[c]);
          }
        });
    for (const kernels::Status& status : statuses) {
      CERES_EXT_RETURN_IF_ERROR(status);
    }
    return machine_->Upload(
        static_cast<int64_t>(p.size()), p.data(), p_.data());
  }

  // Adds D_f^2 to the matrix, and lists the blocks of the block diagonal.
  void AddBlocks(const kernels::BlockFamilies& f,
                 const std::vector<int64_t>& f_column,
                 const std::vector<double>& diagonal,
                 const double* packed,
                 int32_t c,
                 ClusterSystem* system) const {
    const int64_t stride = kernels::HostDenseCholesky::Stride(system->n);
    for (int64_t at = 0; at < system->n;) {
      const auto column = [&](int64_t i) {
        return f_column[order_[cluster_begin_[c] + i]];
      };
      const auto first = f.PlaceOf(column(at));
      int64_t end = at + 1;
      while (end < system->n) {
        const auto place = f.PlaceOf(column(end));
        if (place.family != first.family || place.block != first.block) {
          break;
        }
        ++end;
      }
      const auto blocks =
          kernels::PackedBlocks(f[first.family], Machine::kLayout, packed);
      for (int64_t j = at; j < end; ++j) {
        for (int64_t i = at; i < end; ++i) {
          const int32_t a = f.PlaceOf(column(i)).column;
          const int32_t b = f.PlaceOf(column(j)).column;
          double value =
              blocks(first.block,
                     kernels::PackedIndex(std::max(a, b), std::min(a, b)));
          if (i == j) {
            const double d = diagonal[column(i)];
            value += d * d;
            system->matrix[static_cast<size_t>(stride * i + i)] += d * d;
          }
          system->blocks.push_back(value);
        }
      }
      system->block_size.push_back(static_cast<int32_t>(end - at));
      at = end;
    }
  }

  kernels::ProlongationRef Prolongation() const {
    return {kNumVectors,
            num_clusters_,
            machine_cluster_begin_.data(),
            cluster_of_.data(),
            column_.data(),
            machine_place_.data(),
            p_.data()};
  }

  kernels::Status FormCoarseMatrix() {
    CERES_EXT_RETURN_IF_ERROR(
        Run(kernels::MultiplyByProlongationParams{num_cells_,
                                                  width_,
                                                  Values(),
                                                  Prolongation(),
                                                  cell_row_.data(),
                                                  entry_begin_.data(),
                                                  entry_column_.data(),
                                                  entry_offset_.data(),
                                                  t_.data()},
            machine_));
    CERES_EXT_RETURN_IF_ERROR(
        machine_->SetZero(coarse_.size(), coarse_.data()));
    CERES_EXT_RETURN_IF_ERROR(
        Run(kernels::CoarseMatrixParams{num_pairs_,
                                        width_,
                                        stride_,
                                        Prolongation(),
                                        Values().begin,
                                        pair_row_.data(),
                                        pair_column_.data(),
                                        cell_begin_.data(),
                                        pair_cell_.data(),
                                        cell_row_.data(),
                                        t_.data(),
                                        coarse_.data()},
            machine_));
    int64_t failed_order = 0;
    CERES_EXT_RETURN_IF_ERROR(solver_.Factorize(coarse_.data(), &failed_order));
    return failed_order == 0
               ? kernels::Status()
               : kernels::Status(kernels::StatusCode::kNumericalFailure,
                                 "The coarse matrix is not positive definite.");
  }

  std::vector<Batch*> batches_;
  kernels::HostContext* context_ = nullptr;
  int32_t num_clusters_ = 0;  // 0: they are not known
  bool needs_vectors_ = true;
  // The unknowns by clusters, and of each its place there.
  std::vector<int32_t> order_;
  std::vector<int32_t> place_;
  std::vector<int32_t> cluster_begin_;
  Buffer<int32_t> machine_cluster_begin_;
  Buffer<int32_t> machine_place_;
  Buffer<int32_t> cluster_of_;
  Buffer<int64_t> column_;
  Buffer<double> p_;
  // T = S P and E.
  int32_t width_ = 0;
  int64_t num_cells_ = 0;
  int64_t num_pairs_ = 0;
  int64_t stride_ = 0;
  Buffer<int32_t> cell_row_;
  Buffer<int64_t> entry_begin_;
  Buffer<int32_t> entry_column_;
  Buffer<int32_t> entry_offset_;
  Buffer<int32_t> pair_row_;
  Buffer<int32_t> pair_column_;
  Buffer<int64_t> cell_begin_;
  Buffer<int32_t> pair_cell_;
  Buffer<double> t_;
  Buffer<double> coarse_;
  CoarseSolver<Machine> solver_;
  Buffer<double> partial_;
  Buffer<double> v_;
  Buffer<double> w_;
};

}  // namespace ceres_ext::solver

#endif  // CERES_EXT_SOLVER_PRECONDITIONER_COARSE_SPACE_H_
