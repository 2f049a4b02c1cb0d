// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// E = P'S P of rows that have their points to themselves, without S: by the
// parts of their points (cuda_kernels/ops/coarse_rows.h). It takes what two
// passes over the rows take, and 300 to 400 bytes a part.
//
//   CoarseParts<Machine> parts;
//   Status status = parts.Setup(batch, blocks, varies, &context, &machine);
//   if (status.ok()) status = parts.SetClusters(cluster, num_clusters, place);
//   if (status.ok()) status = parts.Form(system, v_inverse, p, stride, e);
#ifndef CERES_EXT_SOLVER_PRECONDITIONER_COARSE_PARTS_H_
#define CERES_EXT_SOLVER_PRECONDITIONER_COARSE_PARTS_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "ceres_ext/solver/batch.h"
#include "ceres_ext/solver/operator/linear_operator.h"
#include "ceres_ext/solver/preconditioner/clusters.h"
#include "ceres_ext/solver/preconditioner/coarse_matrix.h"
#include "ceres_ext/solver/row_sample.h"
#include "ceres_ext/solver/schur_contribution.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/cuda_sort.h"
#include "cuda_kernels/machine/host_context.h"
#include "cuda_kernels/machine/host_machine.h"
#include "cuda_kernels/ops/coarse_rows.h"
#include "cuda_kernels/ops/coarse_space.h"
#include "cuda_kernels/structure/cuda_observation_index.h"
#include "cuda_kernels/structure/observation_index.h"
#include "cuda_kernels/structure/schur_matrix.h"
#include "cuda_kernels/structure/schur_pairs.h"

namespace ceres_ext::solver {

template <typename Machine>
class CoarseParts final : public CoarseMatrix<Machine> {
 public:
  // True if E can be formed so: one batch whose cameras are all of F.
  static bool Takes(const ProblemBlocks& blocks,
                    const std::vector<Batch*>& batches) {
    return batches.size() == 1 && blocks.f.size() == 1 &&
           blocks.e.size() == 1 && blocks.merged.empty() &&
           batches[0]->coarse_rows() != nullptr &&
           batches[0]->coarse_rows()->part_rows() != nullptr;
  }

  // f_varies: of each value of F whether it is an unknown. *context outlives
  // the object.
  kernels::Status Setup(Batch* batch,
                        const ProblemBlocks& blocks,
                        const std::vector<unsigned char>& f_varies,
                        kernels::HostContext* context,
                        Machine* machine) {
    batch_ = batch;
    rows_ = batch->coarse_rows()->part_rows();
    blocks_ = blocks;
    context_ = context;
    machine_ = machine;
    return unknowns_.Setup(blocks.f, f_varies.data(), machine);
  }

  const kernels::SchurUnknowns<Machine>& unknowns() const final {
    return unknowns_;
  }

  kernels::Status ListCouplings(std::vector<Coupling>* couplings,
                                int32_t* max_neighbors) final {
    *max_neighbors = std::numeric_limits<int32_t>::max();
    const RowSample* sample = nullptr;
    CERES_EXT_RETURN_IF_ERROR(rows_->SampleOfRows(&sample));
    return ListSampledCouplings(
        rows_->part_index(), *sample, context_, machine_, couplings);
  }

  kernels::Status SetClusters(const std::vector<int32_t>& cluster,
                              int32_t num_clusters,
                              const int32_t* place) final {
    num_clusters_ = num_clusters;
    place_ = place;
    CERES_EXT_RETURN_IF_ERROR(ListCameras(cluster));
    CERES_EXT_RETURN_IF_ERROR(ListParts(cluster));
    return SetupBlocks();
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
    vectors.place = place_;
    vectors.v_inverse = v_inverse;
    vectors.t = t_.data();
    CERES_EXT_RETURN_IF_ERROR(rows_->PartVectors(vectors));
    NormalBlocksRequest request;
    request.eliminate = false;
    request.u = u_.data();
    CERES_EXT_RETURN_IF_ERROR(batch_->EliminatedBlocks(request));
    return SumBlocks(system, p.values, stride, e);
  }

  CoarseRows* only_rows() final { return batch_->coarse_rows(); }

 private:
  template <typename T>
  using Buffer = typename Machine::template Buffer<T>;
  static constexpr bool kIsHost =
      std::is_base_of_v<kernels::HostMachine, Machine>;
  using Index = std::conditional_t<kIsHost,
                                   kernels::ObservationIndex,
                                   kernels::CudaObservationIndex>;
  struct NoScratch {};
  using Scratch =
      std::conditional_t<kIsHost, NoScratch, kernels::CudaIndexScratch>;

  kernels::Status Build(const kernels::ObservationPairs& pairs, Index* index) {
    if constexpr (kIsHost) {
      return index->Build(pairs, machine_->account());
    } else {
      return index->Build(pairs, &scratch_, machine_->context());
    }
  }

  // *total: the last of the sums.
  kernels::Status Sum(int64_t n, int32_t* x, int32_t* total) {
    if constexpr (kIsHost) {
      *total = 0;
      for (int64_t i = 0; i < n; ++i) {
        x[i] = *total += x[i];
      }
      return {};
    } else {
      return kernels::InclusiveSum(
          n, x, total, &scratch_.sort, machine_->context());
    }
  }

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

  // Rows in the order of (point, cluster), then the parts as observations of
  // points by clusters.
  kernels::Status ListParts(const std::vector<int32_t>& cluster) {
    const kernels::ObservationIndexRef& index = rows_->part_index();
    const int64_t n = index.num_observations;
    Buffer<int32_t> number;  // of each row its cluster, then its part
    int32_t num_parts = 0;
    Index rows;
    {
      Buffer<int32_t> of_camera;
      CERES_EXT_RETURN_IF_ERROR(machine_->Upload(cluster, &of_camera));
      CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(n, &number));
      CERES_EXT_RETURN_IF_ERROR(Run(
          kernels::GatherIdsParams{
              n, index.camera_id, of_camera.data(), number.data()},
          machine_));
      CERES_EXT_RETURN_IF_ERROR(Build(
          {num_clusters_, index.num_points, n, number.data(), index.point_id},
          &rows));
      CERES_EXT_RETURN_IF_ERROR(machine_->Synchronize());
    }
    CERES_EXT_RETURN_IF_ERROR(Run(
        kernels::FirstOfPartParams{n, rows.ref(), number.data()}, machine_));
    CERES_EXT_RETURN_IF_ERROR(Sum(n, number.data(), &num_parts));
    CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(n, &row_));
    CERES_EXT_RETURN_IF_ERROR(
        machine_->Allocate(int64_t{num_parts} + 1, &part_begin_));
    Buffer<int32_t> part_cluster;
    Buffer<int32_t> part_point;
    CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(num_parts, &part_cluster));
    CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(num_parts, &part_point));
    CERES_EXT_RETURN_IF_ERROR(
        Run(kernels::ListPartsParams{n,
                                     rows.ref(),
                                     rows.ref().input_id(),
                                     number.data(),
                                     row_.data(),
                                     part_begin_.data(),
                                     part_cluster.data(),
                                     part_point.data()},
            machine_));
    CERES_EXT_RETURN_IF_ERROR(Build({num_clusters_,
                                     index.num_points,
                                     num_parts,
                                     part_cluster.data(),
                                     part_point.data()},
                                    &parts_));
    CERES_EXT_RETURN_IF_ERROR(couplings_.Build(
        parts_.ref(), kernels::CouplingList::kObservations, machine_));
    scratch_ = {};
    return {};
  }

  kernels::Status SetupBlocks() {
    constexpr int64_t kVectors = kernels::kCoarseVectors;
    CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(
        kVectors * kernels::kPartColumns * parts_.ref().num_observations, &t_));
    CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(blocks_.f.num_packed(), &u_));
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
    kernels::CoarseDiagonalParams diagonal;
    diagonal.num_clusters = num_clusters_;
    diagonal.part_begin = parts_.ref().camera_begin;
    diagonal.part = parts_.ref().camera_entry;
    diagonal.t = t_.data();
    diagonal.camera_begin = camera_begin_.data();
    diagonal.camera = camera_.data();
    diagonal.columns = blocks_.f[0].size;
    diagonal.place = place_;
    diagonal.p = p;
    diagonal.u = kernels::PackedBlocks<const double>(
        blocks_.f[0], Machine::kLayout, u_.data());
    diagonal.diagonal = system.f_diagonal;
    diagonal.partial = diagonal_.data();
    CERES_EXT_RETURN_IF_ERROR(Run(diagonal, machine_));
    return Run(
        kernels::FinishCoarseDiagonalParams{
            num_clusters_, stride, diagonal_.data(), e},
        machine_);
  }

  Batch* batch_ = nullptr;
  PartRows* rows_ = nullptr;  // the same
  ProblemBlocks blocks_;
  kernels::HostContext* context_ = nullptr;
  Machine* machine_ = nullptr;
  int32_t num_clusters_ = 0;
  Scratch scratch_;  // of a device, while it is set up
  kernels::SchurUnknowns<Machine> unknowns_;
  const int32_t* place_ = nullptr;
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
};

}  // namespace ceres_ext::solver

#endif  // CERES_EXT_SOLVER_PRECONDITIONER_COARSE_PARTS_H_
