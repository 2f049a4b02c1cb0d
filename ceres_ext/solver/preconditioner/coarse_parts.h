// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// E = P'S P of rows that have their points to themselves, without S: by the
// parts of their points (cuda_kernels/ops/coarse_rows.h). It takes what two
// passes over the rows take, and 300 to 400 bytes a part. It clusters the units
// of the rows' cameras, or views (coarse_units.h). The rows of E of shared
// blocks are products with S: one for each of their columns.
//
//   CoarseParts<Machine> parts;
//   bool takes = false;
//   Status status = parts.Setup(
//       batches, blocks, varies, &schur, ranks, &machine, &takes);
//   if (status.ok()) status = parts.SetClusters(cluster, num_clusters, place);
//   if (status.ok()) status = parts.Form(system, v_inverse, p, stride, e);
#ifndef CERES_EXT_SOLVER_PRECONDITIONER_COARSE_PARTS_H_
#define CERES_EXT_SOLVER_PRECONDITIONER_COARSE_PARTS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "ceres_ext/solver/batch.h"
#include "ceres_ext/solver/operator/linear_operator.h"
#include "ceres_ext/solver/operator/schur_complement.h"
#include "ceres_ext/solver/part_list.h"
#include "ceres_ext/solver/preconditioner/clusters.h"
#include "ceres_ext/solver/preconditioner/coarse_matrix.h"
#include "ceres_ext/solver/preconditioner/coarse_units.h"
#include "ceres_ext/solver/rank_sums.h"
#include "ceres_ext/solver/schur_contribution.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/ops/coarse_rows.h"
#include "cuda_kernels/ops/coarse_space.h"
#include "cuda_kernels/ops/views.h"
#include "cuda_kernels/structure/block_families.h"
#include "cuda_kernels/structure/index_builder.h"
#include "cuda_kernels/structure/observation_index.h"
#include "cuda_kernels/structure/schur_pairs.h"

namespace ceres_ext::solver {

template <typename Machine>
class CoarseParts final : public CoarseMatrix<Machine> {
 public:
  // By all ranks. f_varies: of each value of F whether it is an unknown.
  // *schur: S of the systems. ranks: null if there is one. *schur and the
  // machine outlive the object. *takes: E can be formed so, the same on all
  // ranks.
  kernels::Status Setup(const std::vector<Batch*>& batches,
                        const ProblemBlocks& blocks,
                        const std::vector<unsigned char>& f_varies,
                        SchurComplement<Machine>* schur,
                        RankSums<Machine>* ranks,
                        Machine* machine,
                        bool* takes) {
    *takes = false;
    CoarseRows* const rows =
        batches.size() == 1 ? batches[0]->coarse_rows() : nullptr;
    rows_ = rows == nullptr ? nullptr : rows->part_rows();
    std::vector<int32_t> column;
    kernels::Status status;
    int32_t columns = 0;
    if (rows_ != nullptr) {
      columns = rows_->part_columns();
      status = rows_->ListPartColumns(&column);
    }
    if (ranks != nullptr) {
      bool are_alike = false;
      CERES_EXT_RETURN_IF_ERROR(ranks->Agree(status));
      CERES_EXT_RETURN_IF_ERROR(
          ranks->AreEqual(static_cast<uint64_t>(columns), &are_alike));
      columns = are_alike ? columns : 0;
    }
    CERES_EXT_RETURN_IF_ERROR(status);
    if (columns == 0) {
      return {};
    }
    coarse_rows_ = rows;
    num_f_ = blocks.f.num_values();
    schur_ = schur;
    machine_ = machine;
    cameras_ = {};
    cameras_.Add(columns, rows_->part_index().num_cameras);
    if (ranks == nullptr) {
      units_ = MakeUnits(blocks.f, f_varies, columns, std::move(column));
    } else {
      // Exact in double.
      std::vector<double> all(column.begin(), column.end());
      int64_t begin = 0;
      CERES_EXT_RETURN_IF_ERROR(ranks->Concatenate(&all, &begin));
      units_ = MakeUnitsOfRank(blocks.f,
                               f_varies,
                               columns,
                               std::vector<int32_t>(all.begin(), all.end()),
                               begin / columns,
                               rows_->part_index().num_cameras);
    }
    // A chain of views, each with a block of the one before, is one unit.
    constexpr int32_t kMostColumns = 512;
    *takes = units_.largest() <= kMostColumns &&
             units_.num_shared_columns() <= kMostSharedColumns;
    return {};
  }

  const CoarseBlocks& blocks() const final { return units_.blocks; }

  kernels::Status ListCouplings(std::vector<Coupling>* couplings) final {
    CERES_EXT_RETURN_IF_ERROR(rows_->ListCouplings(couplings));
    if (!units_.are_views) {
      size_t to = 0;
      for (const Coupling& c : *couplings) {
        const int32_t i = units_.of_view[c.i];
        const int32_t j = units_.of_view[c.j];
        if (i != j) {
          (*couplings)[to++] = {std::min(i, j), std::max(i, j), c.weight};
        }
      }
      couplings->resize(to);
    }
    return {};
  }

  kernels::Status SetClusters(const std::vector<int32_t>& cluster,
                              int32_t num_clusters,
                              const int32_t* place) final {
    // Shared blocks, which are the last, have no couplings.
    num_clusters_ = num_clusters - units_.num_shared();
    std::vector<int32_t> of_camera(units_.of_view.size());
    for (size_t c = 0; c < of_camera.size(); ++c) {
      of_camera[c] = cluster[units_.of_view[c]];
    }
    CERES_EXT_RETURN_IF_ERROR(ListCameras(of_camera));
    CERES_EXT_RETURN_IF_ERROR(ListParts(of_camera));
    CERES_EXT_RETURN_IF_ERROR(ListPlaces(place));
    return SetupBlocks(num_clusters);
  }

  kernels::Status Form(const LinearSystem& system,
                       const double* v_inverse,
                       const kernels::ProlongationRef& p,
                       int64_t stride,
                       double* e) final {
    PartVectorsRequest vectors;
    vectors.num_parts = parts_.ref().num_observations;
    vectors.row = row_.data();
    vectors.part_begin = part_begin_.data();
    vectors.part_point = parts_.ref().point_id;
    vectors.p = p.values;
    vectors.place = place_.data();
    vectors.v_inverse = v_inverse;
    vectors.t = t_.data();
    CERES_EXT_RETURN_IF_ERROR(rows_->PartVectors(vectors));
    CERES_EXT_RETURN_IF_ERROR(rows_->PartBlocks(u_.data()));
    return SumBlocks(system, p.values, stride, e);
  }

  // The rows of E of shared blocks, P'(S p) of each column p of P.
  kernels::Status FormRest(const kernels::ProlongationRef& p,
                           int64_t stride,
                           double* e) final {
    const std::vector<int32_t>& begin = units_.blocks.begin;
    const int64_t n = coarse_.size();
    int64_t row = int64_t{kernels::kCoarseVectors} * num_clusters_;
    for (int32_t i = units_.num_units; i < units_.blocks.size(); ++i) {
      for (int32_t a = 0; a < kernels::kCoarseVectors; ++a, ++row) {
        CERES_EXT_RETURN_IF_ERROR(
            Run(kernels::UnitVectorParams{n, row, coarse_.data()}, machine_));
        // Other columns are zero.
        if (a < begin[i + 1] - begin[i]) {
          CERES_EXT_RETURN_IF_ERROR(machine_->SetZero(num_f_, f_p_.data()));
          CERES_EXT_RETURN_IF_ERROR(Run(
              kernels::ProlongParams{
                  begin.back(), p, coarse_.data(), f_p_.data(), nullptr},
              machine_));
          CERES_EXT_RETURN_IF_ERROR(
              schur_->Multiply(f_p_.data(), f_q_.data(), nullptr));
          CERES_EXT_RETURN_IF_ERROR(Run(
              kernels::RestrictParams{p, f_q_.data(), lanes_.data(), nullptr},
              machine_));
          CERES_EXT_RETURN_IF_ERROR(Run(
              kernels::SumLanesParams{
                  n, lanes_.data(), coarse_.data(), nullptr},
              machine_));
        }
        CERES_EXT_RETURN_IF_ERROR(
            Run(kernels::CoarseRowParams{row + 1, stride, coarse_.data(), e},
                machine_));
      }
    }
    return {};
  }

  CoarseRows* only_rows() final {
    return units_.are_views ? coarse_rows_ : nullptr;
  }

 private:
  template <typename T>
  using Buffer = typename Machine::template Buffer<T>;
  using Index = typename kernels::IndexBuilder<Machine>::Index;

  kernels::Status ListCameras(const std::vector<int32_t>& cluster) {
    std::vector<int32_t> begin(static_cast<size_t>(num_clusters_) + 1, 0);
    for (const int32_t of_camera : cluster) {
      ++begin[of_camera + 1];
    }
    for (int32_t c = 0; c < num_clusters_; ++c) {
      begin[c + 1] += begin[c];
    }
    std::vector<int32_t> next(begin.begin(), begin.end() - 1);
    std::vector<int32_t> camera(cluster.size());
    for (size_t i = 0; i < cluster.size(); ++i) {
      camera[next[cluster[i]]++] = static_cast<int32_t>(i);
    }
    CERES_EXT_RETURN_IF_ERROR(machine_->Upload(begin, &camera_begin_));
    return machine_->Upload(camera, &camera_);
  }

  // The parts of all rows, then as observations of points by clusters.
  kernels::Status ListParts(const std::vector<int32_t>& cluster) {
    const kernels::ObservationIndexRef& index = rows_->part_index();
    const int64_t n = index.num_observations;
    kernels::IndexBuilder<Machine> builder(machine_);
    PartList<Machine> list;
    {
      Buffer<int32_t> of_camera;
      Buffer<int32_t> number;
      CERES_EXT_RETURN_IF_ERROR(machine_->Upload(cluster, &of_camera));
      CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(n, &number));
      CERES_EXT_RETURN_IF_ERROR(Run(
          kernels::GatherIdsParams{
              n, index.camera_id, of_camera.data(), number.data()},
          machine_));
      CERES_EXT_RETURN_IF_ERROR(list.Setup(num_clusters_,
                                           index.num_points,
                                           n,
                                           number.data(),
                                           index.point_id,
                                           &builder,
                                           machine_));
    }
    CERES_EXT_RETURN_IF_ERROR(builder.Build({num_clusters_,
                                             index.num_points,
                                             list.num_parts,
                                             list.cluster.data(),
                                             list.point.data()},
                                            &parts_));
    row_ = std::move(list.row);
    part_begin_ = std::move(list.begin);
    return couplings_.Build(
        parts_.ref(), kernels::CouplingList::kObservations, machine_);
  }

  // place: of each value of F.
  kernels::Status ListPlaces(const int32_t* place) {
    CERES_EXT_RETURN_IF_ERROR(
        machine_->Upload(units_.first_column, &first_column_));
    Buffer<int32_t> column;
    CERES_EXT_RETURN_IF_ERROR(machine_->Upload(units_.column, &column));
    CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(column.size(), &place_));
    CERES_EXT_RETURN_IF_ERROR(Run(
        kernels::GatherIdsParams{
            column.size(), column.data(), place, place_.data()},
        machine_));
    return machine_->Synchronize();
  }

  // num_clusters: those of shared blocks included.
  kernels::Status SetupBlocks(int64_t num_clusters) {
    constexpr int64_t kVectors = kernels::kCoarseVectors;
    CERES_EXT_RETURN_IF_ERROR(
        machine_->Allocate(cameras_.num_values(), &camera_diagonal_));
    if (units_.num_shared() > 0) {
      const int64_t n = kVectors * num_clusters;
      for (Buffer<double>* vector : {&f_p_, &f_q_}) {
        CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(num_f_, vector));
      }
      CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(n, &coarse_));
      CERES_EXT_RETURN_IF_ERROR(
          machine_->Allocate(kernels::kCoarseLanes * n, &lanes_));
    }
    CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(
        kVectors * kernels::kPartColumns * parts_.ref().num_observations, &t_));
    CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(cameras_.num_packed(), &u_));
    CERES_EXT_RETURN_IF_ERROR(
        machine_->Allocate(kernels::CoarseDiagonalParams::kLanes *
                               kernels::FinishCoarseDiagonalParams::kOfCluster *
                               int64_t{num_clusters_},
                           &diagonal_));
    return machine_->Allocate(kVectors * kVectors * couplings_.ref().num_chunks,
                              &partial_);
  }

  kernels::Status SumBlocks(const LinearSystem& system,
                            const double* p,
                            int64_t stride,
                            double* e) {
    const kernels::PartCouplings of = {couplings_.ref(), t_.data()};
    CERES_EXT_RETURN_IF_ERROR(
        Run(kernels::PartChunksParams{of, partial_.data()}, machine_));
    CERES_EXT_RETURN_IF_ERROR(
        Run(kernels::OtherCoarseBlocksParams{of, partial_.data(), stride, e},
            machine_));
    const bool has_diagonal = system.f_diagonal != nullptr;
    if (has_diagonal) {
      CERES_EXT_RETURN_IF_ERROR(
          Run(kernels::GatherColumnsParams{camera_diagonal_.size(),
                                           first_column_.data(),
                                           system.f_diagonal,
                                           camera_diagonal_.data(),
                                           nullptr},
              machine_));
    }
    kernels::CoarseDiagonalParams diagonal;
    diagonal.num_clusters = num_clusters_;
    diagonal.part_begin = parts_.ref().camera_begin;
    diagonal.part = parts_.ref().camera_entry;
    diagonal.t = t_.data();
    diagonal.camera_begin = camera_begin_.data();
    diagonal.camera = camera_.data();
    diagonal.columns = cameras_[0].size;
    diagonal.place = place_.data();
    diagonal.p = p;
    diagonal.u = kernels::PackedBlocks<const double>(
        cameras_[0], Machine::kLayout, u_.data());
    diagonal.diagonal = has_diagonal ? camera_diagonal_.data() : nullptr;
    diagonal.partial = diagonal_.data();
    CERES_EXT_RETURN_IF_ERROR(Run(diagonal, machine_));
    return Run(
        kernels::FinishCoarseDiagonalParams{
            num_clusters_, stride, diagonal_.data(), e},
        machine_);
  }

  CoarseRows* coarse_rows_ = nullptr;
  PartRows* rows_ = nullptr;  // the same
  int64_t num_f_ = 0;         // values of F
  SchurComplement<Machine>* schur_ = nullptr;
  Machine* machine_ = nullptr;
  CoarseUnits units_;
  kernels::BlockFamilies cameras_;  // of the rows, one family
  int32_t num_clusters_ = 0;        // those of shared blocks left out
  // For each column of each camera.
  Buffer<int32_t> place_;
  Buffer<int32_t> first_column_;
  Buffer<double> camera_diagonal_;
  Buffer<int32_t> camera_begin_;  // of each cluster in camera_
  Buffer<int32_t> camera_;
  Buffer<int32_t> row_;  // of the index, by parts
  Buffer<int32_t> part_begin_;
  Index parts_;
  kernels::CouplingIndexOf<Machine> couplings_;
  Buffer<double> t_;
  Buffer<double> partial_;
  Buffer<double> u_;
  Buffer<double> diagonal_;
  // A column of P, S times it, and P' times that.
  Buffer<double> f_p_;
  Buffer<double> f_q_;
  Buffer<double> lanes_;
  Buffer<double> coarse_;
};

}  // namespace ceres_ext::solver

#endif  // CERES_EXT_SOLVER_PRECONDITIONER_COARSE_PARTS_H_
