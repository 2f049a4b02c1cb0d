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
//   if (status.ok()) status = coarse.Setup(batches, varies, &s, ranks, &c);
//   // per system, once S's diagonal blocks are in diagonal():
//   if (status.ok()) status = coarse.Update(system, schur.e_matrices());
//   // in PCG, z = M^-1 r:
//   if (status.ok()) status = coarse.Add(r, z, scalars);
//
// E and P may be those of an earlier system: P E^-1 P' is positive semidefinite
// with any. E is formed by the rows where they have their points to themselves
// (coarse_parts.h), else of S as a matrix (coarse_cells.h). Update takes memory
// the first time, and when vectors are made again.
#ifndef CERES_EXT_SOLVER_PRECONDITIONER_COARSE_SPACE_H_
#define CERES_EXT_SOLVER_PRECONDITIONER_COARSE_SPACE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "ceres_ext/solver/batch.h"
#include "ceres_ext/solver/operator/linear_operator.h"
#include "ceres_ext/solver/operator/schur_complement.h"
#include "ceres_ext/solver/preconditioner/clusters.h"
#include "ceres_ext/solver/preconditioner/coarse_cells.h"
#include "ceres_ext/solver/preconditioner/coarse_matrix.h"
#include "ceres_ext/solver/preconditioner/coarse_parts.h"
#include "ceres_ext/solver/preconditioner/coarse_solver.h"
#include "ceres_ext/solver/preconditioner/coarse_units.h"
#include "ceres_ext/solver/preconditioner/coarse_vectors.h"
#include "ceres_ext/solver/rank_sums.h"
#include "ceres_ext/solver/schur_contribution.h"
#include "ceres_ext/solver/schur_diagonal.h"
#include "cuda_kernels/base/pcg_scalars.h"
#include "cuda_kernels/base/small_matrix.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/host_cholesky.h"
#include "cuda_kernels/machine/host_context.h"
#include "cuda_kernels/ops/cluster_vectors.h"
#include "cuda_kernels/ops/coarse_space.h"
#include "cuda_kernels/structure/block_families.h"

namespace ceres_ext::solver {

template <typename Machine>
class CoarseSpace {
 public:
  static constexpr int32_t kNumVectors = kernels::kCoarseVectors;
  // Columns that a cluster has on average, for few and for many columns in all
  // (docs/measurements/preconditioners.md).
  static constexpr int32_t kColumns = 180;
  static constexpr int32_t kColumnsOfMany = 360;
  static constexpr int64_t kMany = 18000;
  // Fewer do not need it.
  static constexpr int32_t kLeastClusters = 2;

  // Takes memory for diagonal() alone.
  kernels::Status SetupDiagonal(const ProblemBlocks& blocks, Machine* machine) {
    machine_ = machine;
    blocks_ = blocks;
    return diagonal_.Setup(blocks, machine);
  }
  // The diagonal blocks of S, packed, over ProblemBlocks::f_matrices().
  double* diagonal() { return diagonal_.source(); }
  // After SetupDiagonal. f_varies: of each value of F whether it is an unknown.
  // *schur: S of the systems. Both outlive the object. kUnsupported: S can't be
  // formed, or the machine has no factorisation.
  kernels::Status Setup(const std::vector<Batch*>& batches,
                        const std::vector<unsigned char>& f_varies,
                        SchurComplement<Machine>* schur,
                        RankSums<Machine>* ranks,
                        kernels::HostContext* context) {
    batches_ = batches;
    ranks_ = ranks;
    context_ = context;
    num_clusters_ = 0;
    CERES_EXT_RETURN_IF_ERROR(Agree(CoarseSolver<Machine>::Available()));
    auto parts = std::make_unique<CoarseParts<Machine>>();
    bool takes = false;
    CERES_EXT_RETURN_IF_ERROR(parts->Setup(
        batches, blocks_, f_varies, schur, ranks, machine_, &takes));
    if (takes) {
      matrix_ = std::move(parts);
      return {};
    }
    auto cells = std::make_unique<CoarseCells<Machine>>();
    CERES_EXT_RETURN_IF_ERROR(Agree(cells->Setup(batches,
                                                 blocks_,
                                                 f_varies,
                                                 diagonal_.data(),
                                                 ranks,
                                                 context,
                                                 machine_)));
    matrix_ = std::move(cells);
    return {};
  }
  // There is another Jacobian.
  void Forget() {
    if (matrix_ != nullptr) {
      matrix_->Forget();
    }
  }

  // Does nothing if the E of an earlier system is kept, with which Add is still
  // positive definite. kUnsupported: there are too few clusters, or no rows to
  // make vectors of. kNumericalFailure: E is not positive definite.
  kernels::Status Update(const LinearSystem& system, const double* v_inverse) {
    if (!needs_matrix_) {
      return {};
    }
    kernels::Status status = diagonal_.Update();
    if (status.ok()) {
      status = matrix_->Update(system, v_inverse);
    }
    CERES_EXT_RETURN_IF_ERROR(Agree(status));
    if (num_clusters_ == 0) {
      CERES_EXT_RETURN_IF_ERROR(FindClusters());
      needs_vectors_ = true;
    }
    if (needs_vectors_) {
      CERES_EXT_RETURN_IF_ERROR(FindVectors(system));
      needs_vectors_ = false;
    }
    return FormCoarseMatrix(system, v_inverse);
  }
  // The next Update forms E again, with new vectors or the same.
  void RenewVectors() { needs_vectors_ = needs_matrix_ = true; }
  void RenewMatrix() { needs_matrix_ = true; }

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

  const CoarseBlocks& unknowns() const { return matrix_->blocks(); }

  // After work that a rank does by itself: an error of one is one of all.
  kernels::Status Agree(const kernels::Status& status) {
    return ranks_ == nullptr ? status : ranks_->Agree(status);
  }

  // The couplings of all ranks, those of the same blocks as one.
  kernels::Status ShareCouplings(std::vector<Coupling>* couplings) {
    std::vector<double> x;
    for (const Coupling& c : *couplings) {
      x.insert(x.end(),
               {static_cast<double>(c.i), static_cast<double>(c.j), c.weight});
    }
    int64_t begin = 0;
    CERES_EXT_RETURN_IF_ERROR(ranks_->Concatenate(&x, &begin));
    std::vector<Coupling> all;
    for (size_t i = 0; i < x.size(); i += 3) {
      all.push_back({static_cast<int32_t>(x[i]),
                     static_cast<int32_t>(x[i + 1]),
                     x[i + 2]});
    }
    std::stable_sort(
        all.begin(), all.end(), [](const Coupling& a, const Coupling& b) {
          return std::tie(a.i, a.j) < std::tie(b.i, b.j);
        });
    couplings->clear();
    for (const Coupling& c : all) {
      if (!couplings->empty() && couplings->back().i == c.i &&
          couplings->back().j == c.j) {
        couplings->back().weight += c.weight;
      } else {
        couplings->push_back(c);
      }
    }
    return {};
  }

  // Clusters of the blocks of F, and the order of P.
  kernels::Status FindClusters() {
    const std::vector<int32_t>& begin = unknowns().begin;
    std::vector<int32_t> size(begin.size() - 1);
    for (size_t i = 0; i < size.size(); ++i) {
      size[i] = begin[i + 1] - begin[i];
    }
    std::vector<Coupling> couplings;
    CERES_EXT_RETURN_IF_ERROR(Agree(matrix_->ListCouplings(&couplings)));
    if (ranks_ != nullptr) {
      CERES_EXT_RETURN_IF_ERROR(ShareCouplings(&couplings));
    }
    const int32_t max_neighbors = matrix_->WeighCouplings(&couplings);
    return Agree(UseCouplings(size, std::move(couplings), max_neighbors));
  }

  kernels::Status UseCouplings(const std::vector<int32_t>& size,
                               std::vector<Coupling> couplings,
                               int32_t max_neighbors) {
    std::vector<int32_t> cluster = MakeClusters(
        size,
        std::move(couplings),
        unknowns().begin.back() > kMany ? kColumnsOfMany : kColumns,
        max_neighbors,
        &num_clusters_);
    if (num_clusters_ < kLeastClusters) {
      num_clusters_ = 0;
      return {kernels::StatusCode::kUnsupported,
              "The problem has fewer than " + std::to_string(kLeastClusters) +
                  " clusters."};
    }
    CERES_EXT_RETURN_IF_ERROR(SetOrder(cluster));
    FindAlone();
    CERES_EXT_RETURN_IF_ERROR(
        matrix_->SetClusters(cluster, num_clusters_, place_of_f_.data()));
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

  // cluster: of each block.
  kernels::Status SetOrder(const std::vector<int32_t>& cluster) {
    const std::vector<int32_t>& begin = unknowns().begin;
    std::vector<std::vector<int32_t>> of_cluster(
        static_cast<size_t>(num_clusters_));
    for (size_t i = 0; i < cluster.size(); ++i) {
      for (int32_t u = begin[i]; u < begin[i + 1]; ++u) {
        of_cluster[cluster[i]].push_back(u);
      }
    }
    cluster_begin_.assign(1, 0);
    order_.clear();
    std::vector<int32_t> cluster_of;
    std::vector<int64_t> place_in_f;
    std::vector<int32_t> place(static_cast<size_t>(begin.back()), 0);
    std::vector<int32_t> place_of_f(static_cast<size_t>(blocks_.f.num_values()),
                                    -1);
    for (int32_t c = 0; c < num_clusters_; ++c) {
      for (const int32_t u : of_cluster[c]) {
        place[u] = static_cast<int32_t>(order_.size());
        place_of_f[unknowns().column[u]] = place[u];
        order_.push_back(u);
        cluster_of.push_back(c);
        place_in_f.push_back(unknowns().column[u]);
      }
      cluster_begin_.push_back(static_cast<int32_t>(order_.size()));
    }
    CERES_EXT_RETURN_IF_ERROR(
        machine_->Upload(cluster_begin_, &machine_cluster_begin_));
    CERES_EXT_RETURN_IF_ERROR(machine_->Upload(cluster_of, &cluster_of_));
    CERES_EXT_RETURN_IF_ERROR(machine_->Upload(place_in_f, &column_));
    CERES_EXT_RETURN_IF_ERROR(machine_->Upload(place, &machine_place_));
    CERES_EXT_RETURN_IF_ERROR(machine_->Upload(place_of_f, &place_of_f_));
    return machine_->Allocate(kNumVectors * static_cast<int64_t>(order_.size()),
                              &p_);
  }

  // The clusters of one block of F have no part in the split problem: a block
  // that all views share would be the larger part of their columns.
  void FindAlone() {
    is_alone_.assign(static_cast<size_t>(num_clusters_), 1);
    for (int32_t c = 0; c < num_clusters_; ++c) {
      if (cluster_begin_[c] == cluster_begin_[c + 1]) {
        continue;
      }
      const auto place = [&](int32_t t) {
        return blocks_.f.PlaceOf(unknowns().column[order_[t]]);
      };
      const auto first = place(cluster_begin_[c]);
      for (int32_t t = cluster_begin_[c]; t < cluster_begin_[c + 1]; ++t) {
        const auto other = place(t);
        if (other.family != first.family || other.block != first.block) {
          is_alone_[c] = 0;
          break;
        }
      }
    }
  }

  // P, of the split problem of the system.
  kernels::Status FindVectors(const LinearSystem& system) {
    if constexpr (std::is_same_v<Machine, kernels::CudaMachine>) {
      CoarseRows* const rows = matrix_->only_rows();
      const bool fits = rows != nullptr &&
                        LargestCluster() <= kernels::MaxClusterSize(machine_);
      bool are_equal = true;
      if (ranks_ != nullptr) {
        CERES_EXT_RETURN_IF_ERROR(ranks_->AreEqual(fits ? 1 : 0, &are_equal));
      }
      if (fits && are_equal) {
        return FindVectorsOnDevice(system, rows);
      }
    }
    return FindVectorsOnHost(system);
  }

  int32_t LargestCluster() const {
    int32_t largest = 0;
    for (int32_t c = 0; c < num_clusters_; ++c) {
      largest = std::max(largest, cluster_begin_[c + 1] - cluster_begin_[c]);
    }
    return largest;
  }

  kernels::Status FindVectorsOnDevice(const LinearSystem& system,
                                      CoarseRows* rows) {
    std::vector<int64_t> matrix_begin(1, 0);
    for (int32_t c = 0; c < num_clusters_; ++c) {
      const int64_t n = cluster_begin_[c + 1] - cluster_begin_[c];
      matrix_begin.push_back(matrix_begin.back() + n * n);
    }
    ClustersOnDevice of;
    CERES_EXT_RETURN_IF_ERROR(
        Agree(FormClusters(system, matrix_begin, rows, &of)));
    if (ranks_ != nullptr) {
      CERES_EXT_RETURN_IF_ERROR(
          ranks_->Sum(of.values.size(), of.values.data()));
    }
    return Agree(FindVectorsOf(system, &of));
  }

  struct ClustersOnDevice {
    Buffer<int64_t> begins;
    Buffer<double> values;
    kernels::ClusterMatricesRef matrices;
  };

  // N of the rows of this rank, without D_f^2.
  kernels::Status FormClusters(const LinearSystem& system,
                               const std::vector<int64_t>& matrix_begin,
                               CoarseRows* rows,
                               ClustersOnDevice* of) {
    const auto num_unknowns = static_cast<int64_t>(order_.size());
    CERES_EXT_RETURN_IF_ERROR(machine_->Upload(matrix_begin, &of->begins));
    CERES_EXT_RETURN_IF_ERROR(
        machine_->Allocate(matrix_begin.back(), &of->values));
    CERES_EXT_RETURN_IF_ERROR(
        machine_->SetZero(of->values.size(), of->values.data()));
    of->matrices = {num_clusters_,
                    machine_cluster_begin_.data(),
                    of->begins.data(),
                    of->values.data()};
    const auto num_f = static_cast<size_t>(blocks_.f.num_values());
    std::vector<int32_t> cluster(num_f, -1);
    std::vector<int32_t> place(num_f, 0);
    std::vector<int64_t> row_begin(num_f, 0);
    for (int32_t c = 0; c < num_clusters_; ++c) {
      const int64_t n = cluster_begin_[c + 1] - cluster_begin_[c];
      for (int32_t i = 0; i < n; ++i) {
        const int64_t column = unknowns().column[order_[cluster_begin_[c] + i]];
        cluster[column] = is_alone_[c] != 0 ? -1 : c;
        place[column] = i;
        row_begin[column] = matrix_begin[c] + n * i;
      }
    }
    SplitRequest request;
    request.cluster = &cluster;
    request.e_diagonal = system.e_diagonal;
    request.matrices = &of->matrices;
    request.row_begin = &row_begin;
    request.place = &place;
    SplitSchur split;
    CERES_EXT_RETURN_IF_ERROR(rows->FormSplit(request, &split));
    return Run(
        kernels::CompleteClustersParams{
            num_unknowns, cluster_of_.data(), split.scale, of->matrices},
        machine_);
  }

  // P of N, which is overwritten.
  kernels::Status FindVectorsOf(const LinearSystem& system,
                                ClustersOnDevice* of) {
    const kernels::BlockFamilies& f = blocks_.f;
    const auto num_unknowns = static_cast<int64_t>(order_.size());
    Buffer<int32_t> first;
    Buffer<int32_t> size;
    Buffer<double> b;
    CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(num_unknowns, &first));
    CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(num_unknowns, &size));
    CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(
        kernels::ClusterBlocksParams::kWidth * num_unknowns, &b));
    for (const kernels::BlockFamily& family : f) {
      const int64_t at = family.value_begin;
      CERES_EXT_RETURN_IF_ERROR(Run(
          kernels::ClusterBlocksParams{
              family.num_blocks,
              family.size,
              place_of_f_.data() + at,
              cluster_of_.data(),
              kernels::PackedBlocks<const double>(
                  family, Machine::kLayout, diagonal_.data()),
              system.f_diagonal == nullptr ? nullptr : system.f_diagonal + at,
              of->matrices,
              first.data(),
              size.data(),
              b.data()},
          machine_));
    }
    CERES_EXT_RETURN_IF_ERROR(
        Run(kernels::ClusterVectorsParams{of->matrices,
                                          LargestCluster(),
                                          first.data(),
                                          size.data(),
                                          b.data(),
                                          p_.data()},
            machine_));
    return machine_->Synchronize();
  }

  // Adds S of the split problem to the matrices. place: of each value of F in
  // its cluster. *has_rows: one if there are rows.
  kernels::Status AddSplitRows(const SplitRequest& request,
                               const std::vector<int32_t>& place,
                               std::vector<ClusterSystem>* systems,
                               double* has_rows) {
    for (Batch* batch : batches_) {
      SplitSchur split;
      if (CoarseRows* const of_batch = batch->coarse_rows()) {
        CERES_EXT_RETURN_IF_ERROR(of_batch->FormSplit(request, &split));
      }
      std::vector<std::vector<size_t>> rows(systems->size());
      for (size_t i = 0; i + 1 < split.begin.size(); ++i) {
        if (split.begin[i + 1] > split.begin[i]) {
          rows[(*request.cluster)[split.column[split.begin[i]]]].push_back(i);
          *has_rows = 1.0;
        }
      }
      context_->ParallelFor(
          num_clusters_, /*grain=*/1, [&](int64_t begin, int64_t end) {
            for (int64_t c = begin; c < end; ++c) {
              ClusterSystem& of = (*systems)[c];
              const int64_t stride = kernels::HostDenseCholesky::Stride(of.n);
              for (const size_t i : rows[c]) {
                split.ForEachElement(
                    i, [&](int64_t u, int64_t v, double value) {
                      const int32_t a = std::max(place[u], place[v]);
                      const int32_t b = std::min(place[u], place[v]);
                      of.matrix[static_cast<size_t>(stride * b + a)] +=
                          split.scale * value;
                    });
              }
            }
          });
    }
    return {};
  }

  kernels::Status FindVectorsOnHost(const LinearSystem& system) {
    const kernels::BlockFamilies& f = blocks_.f;
    const auto num_f = static_cast<size_t>(f.num_values());
    std::vector<int32_t> cluster(num_f, -1);
    std::vector<int32_t> place(num_f, -1);  // in the cluster
    std::vector<ClusterSystem> systems(static_cast<size_t>(num_clusters_));
    const std::vector<int64_t>& f_column = unknowns().column;
    for (int32_t c = 0; c < num_clusters_; ++c) {
      systems[c].n = cluster_begin_[c + 1] - cluster_begin_[c];
      systems[c].matrix.assign(
          static_cast<size_t>(kernels::HostDenseCholesky::Stride(systems[c].n) *
                              systems[c].n),
          0.0);
      for (int32_t t = cluster_begin_[c]; t < cluster_begin_[c + 1]; ++t) {
        cluster[f_column[order_[t]]] = is_alone_[c] != 0 ? -1 : c;
        place[f_column[order_[t]]] = t - cluster_begin_[c];
      }
    }
    SplitRequest request;
    request.cluster = &cluster;
    request.e_diagonal = system.e_diagonal;
    double has_rows = 0.0;
    CERES_EXT_RETURN_IF_ERROR(
        Agree(AddSplitRows(request, place, &systems, &has_rows)));
    if (ranks_ != nullptr) {
      CERES_EXT_RETURN_IF_ERROR(ranks_->SumOnHost(1, &has_rows));
      for (ClusterSystem& of : systems) {
        CERES_EXT_RETURN_IF_ERROR(ranks_->SumOnHost(
            static_cast<int64_t>(of.matrix.size()), of.matrix.data()));
      }
    }
    if (has_rows == 0.0) {
      return {kernels::StatusCode::kUnsupported,
              "No rows have their eliminated blocks to themselves."};
    }
    return Agree(FindVectorsOf(system, &systems));
  }

  // P of N, which are overwritten.
  kernels::Status FindVectorsOf(const LinearSystem& system,
                                std::vector<ClusterSystem>* of) {
    const kernels::BlockFamilies& f = blocks_.f;
    const std::vector<int64_t>& f_column = unknowns().column;
    std::vector<ClusterSystem>& systems = *of;
    std::vector<double> diagonal(static_cast<size_t>(f.num_values()), 0.0);
    if (system.f_diagonal != nullptr) {
      CERES_EXT_RETURN_IF_ERROR(machine_->Download(
          f.num_values(), system.f_diagonal, diagonal.data()));
    }
    std::vector<double> packed(static_cast<size_t>(f.num_packed()));
    CERES_EXT_RETURN_IF_ERROR(
        machine_->Download(f.num_packed(), diagonal_.data(), packed.data()));
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
    // Vectors of all its directions.
    if (system->block_size.size() == 1) {
      for (int64_t j = 0; j < system->n; ++j) {
        std::copy_n(system->blocks.begin() + system->n * j,
                    system->n,
                    system->matrix.begin() + stride * j);
      }
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

  kernels::Status FormCoarseMatrix(const LinearSystem& system,
                                   const double* v_inverse) {
    CERES_EXT_RETURN_IF_ERROR(
        machine_->SetZero(coarse_.size(), coarse_.data()));
    const kernels::ProlongationRef p = Prolongation();
    CERES_EXT_RETURN_IF_ERROR(
        Agree(matrix_->Form(system, v_inverse, p, stride_, coarse_.data())));
    if (ranks_ != nullptr) {
      CERES_EXT_RETURN_IF_ERROR(ranks_->Sum(coarse_.size(), coarse_.data()));
    }
    CERES_EXT_RETURN_IF_ERROR(matrix_->FormRest(p, stride_, coarse_.data()));
    CERES_EXT_RETURN_IF_ERROR(
        Run(kernels::UnitDiagonalParams{num_coarse(), stride_, coarse_.data()},
            machine_));
    int64_t failed_order = 0;
    CERES_EXT_RETURN_IF_ERROR(solver_.Factorize(coarse_.data(), &failed_order));
    needs_matrix_ = failed_order != 0;
    return failed_order == 0
               ? kernels::Status()
               : kernels::Status(kernels::StatusCode::kNumericalFailure,
                                 "The coarse matrix is not positive definite.");
  }

  Machine* machine_ = nullptr;
  ProblemBlocks blocks_;
  SchurDiagonal<Machine> diagonal_;
  std::vector<Batch*> batches_;
  kernels::HostContext* context_ = nullptr;
  RankSums<Machine>* ranks_ = nullptr;  // null: there is one
  int32_t num_clusters_ = 0;            // 0: they are not known
  bool needs_vectors_ = true;
  bool needs_matrix_ = true;
  std::unique_ptr<CoarseMatrix<Machine>> matrix_;
  std::vector<int32_t> order_;  // the unknowns by clusters
  std::vector<int32_t> cluster_begin_;
  std::vector<unsigned char> is_alone_;  // of each cluster: it is one block
  Buffer<int32_t> machine_cluster_begin_;
  Buffer<int32_t> machine_place_;
  Buffer<int32_t> place_of_f_;
  Buffer<int32_t> cluster_of_;
  Buffer<int64_t> column_;
  Buffer<double> p_;
  int64_t stride_ = 0;  // of E
  Buffer<double> coarse_;
  CoarseSolver<Machine> solver_;
  Buffer<double> partial_;
  Buffer<double> v_;
  Buffer<double> w_;
};

}  // namespace ceres_ext::solver

#endif  // CERES_EXT_SOLVER_PRECONDITIONER_COARSE_SPACE_H_
