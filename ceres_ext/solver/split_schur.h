// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// S of the *split problem* of clusters of F blocks: an eliminated block becomes
// one for each cluster that has rows of it, with those rows alone. The rest is
// a reduced system for each cluster by itself (Neumann), without D_f and the
// rows of other batches.
#ifndef CERES_EXT_SOLVER_SPLIT_SCHUR_H_
#define CERES_EXT_SOLVER_SPLIT_SCHUR_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "ceres_ext/solver/batch.h"
#include "ceres_ext/solver/explicit_schur.h"
#include "ceres_ext/solver/row_sample.h"
#include "ceres_ext/solver/schur_contribution.h"
#include "ceres_ext/solver/step_options.h"
#include "cuda_kernels/base/breakdown.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/host_context.h"
#include "cuda_kernels/ops/block_table.h"
#include "cuda_kernels/ops/coarse_space.h"
#include "cuda_kernels/structure/observation_index.h"
#include "cuda_kernels/structure/row_index.h"
#include "cuda_kernels/structure/schur_matrix.h"

namespace ceres_ext::solver {

// S of a batch as the matrices of clusters, which are zero.
template <typename Machine, typename Batch>
kernels::Status WriteClusterMatrices(const SplitRequest& request,
                                     const ProblemBlocks& blocks,
                                     const std::vector<unsigned char>& varies,
                                     const double* v_inverse,
                                     const double* schur_diagonal,
                                     Machine* machine,
                                     Batch* batch) {
  kernels::SchurUnknowns<Machine> unknowns;
  CERES_EXT_RETURN_IF_ERROR(unknowns.Setup(blocks.f, varies.data(), machine));
  int64_t num_values = 0;
  CERES_EXT_RETURN_IF_ERROR(batch->SetupSchur(&num_values));
  kernels::SchurBlockList list;
  CERES_EXT_RETURN_IF_ERROR(batch->ListSchurBlocks(&list));
  std::vector<int64_t> row_begin;
  for (const int64_t column : unknowns.host_column()) {
    row_begin.push_back((*request.row_begin)[column]);
  }
  std::vector<int32_t> offset;
  for (const int32_t block : list.column) {
    const int32_t first = unknowns.host_begin()[block];
    offset.push_back(first < unknowns.host_begin()[block + 1]
                         ? (*request.place)[unknowns.host_column()[first]]
                         : 0);
  }
  typename Machine::template Buffer<int64_t> row_begins;
  typename Machine::template Buffer<int32_t> offsets;
  CERES_EXT_RETURN_IF_ERROR(machine->Upload(row_begin, &row_begins));
  CERES_EXT_RETURN_IF_ERROR(machine->Upload(offset, &offsets));
  SchurBlocksRequest write;
  write.v_inverse = v_inverse;
  write.schur_diagonal = schur_diagonal;
  write.unknowns = unknowns.OfFamily(0);
  write.target.values = request.matrices->values;
  write.target.row_begin = row_begins.data();
  write.target.block_offset = offsets.data();
  CERES_EXT_RETURN_IF_ERROR(batch->WriteSchur(write));
  return machine->Synchronize();
}

// S of a batch as compressed sparse rows.
template <typename Machine>
kernels::Status WriteSplitSchur(const ProblemBlocks& blocks,
                                const std::vector<unsigned char>& varies,
                                const ExplicitSchurRequest& request,
                                Machine* machine,
                                Batch* batch,
                                SplitSchur* split) {
  ExplicitSchur<Machine> schur;
  CERES_EXT_RETURN_IF_ERROR(schur.Prepare(blocks, {batch}, machine));
  CERES_EXT_RETURN_IF_ERROR(schur.Setup(varies.data()));
  CERES_EXT_RETURN_IF_ERROR(schur.SetupSparse());
  const kernels::SchurCsr<Machine>& csr = schur.csr();
  typename Machine::template Buffer<double> values;
  CERES_EXT_RETURN_IF_ERROR(machine->Allocate(csr.num_values(), &values));
  CERES_EXT_RETURN_IF_ERROR(schur.Write(request, values.data()));
  split->begin = schur.unknowns().host_begin();
  split->column = schur.unknowns().host_column();
  split->block_begin = csr.block_begin();
  split->block_column = csr.block_column();
  split->row_begin = csr.host_row_begin();
  CERES_EXT_RETURN_IF_ERROR(split->values.Allocate(csr.num_values()));
  return machine->Download(
      csr.num_values(), values.data(), split->values.data());
}

// The rows of a split problem: points by the clusters of the cameras that they
// were chosen for, each of which is one point here.
struct SplitRows {
  std::vector<int32_t> row;
  std::vector<int32_t> camera;         // of each row
  std::vector<int32_t> point;          // of each row, of the split problem
  std::vector<int32_t> point_of_part;  // of each of these, of the problem
};

inline void ListSplitRows(const RowSample& sample,
                          const std::vector<int32_t>& cluster,
                          kernels::HostContext* context,
                          SplitRows* rows) {
  const size_t num_points = sample.point.size();
  // The clusters that each point was chosen for.
  std::vector<int64_t> begin(num_points + 1, 0);
  std::vector<int32_t> of_point;
  for (const bool is_counting : {true, false}) {
    for (size_t c = 0; c < cluster.size(); ++c) {
      for (int32_t i = 0; cluster[c] >= 0 && i < sample.per_camera; ++i) {
        const int32_t at =
            sample.of_camera[static_cast<size_t>(sample.per_camera) * c + i];
        if (at < 0) {
          break;
        }
        if (is_counting) {
          ++begin[at + 1];
        } else {
          of_point[begin[at]++] = cluster[c];
        }
      }
    }
    if (is_counting) {
      std::partial_sum(begin.begin(), begin.end(), begin.begin());
      of_point.resize(static_cast<size_t>(begin.back()));
    } else {
      std::rotate(begin.begin(), begin.end() - 1, begin.end());
      begin[0] = 0;
    }
  }
  // A camera may see a point thousands of times: S sums pairs of rows.
  constexpr int64_t kMostOfCamera = 16;
  using OfCluster = std::pair<int32_t, int64_t>;  // a row and its cluster
  // function(begin, end) of the rows of each part, in their order. scratch:
  // the rows of the point.
  const auto for_each_part = [&](int64_t at,
                                 std::vector<OfCluster>* scratch,
                                 auto&& function) {
    scratch->clear();
    int64_t of_camera = 0;
    for (int64_t k = sample.row_begin[at]; k < sample.row_begin[at + 1]; ++k) {
      of_camera =
          k > sample.row_begin[at] && sample.camera[k] == sample.camera[k - 1]
              ? of_camera + 1
              : 0;
      if (of_camera < kMostOfCamera) {
        scratch->emplace_back(cluster[sample.camera[k]], k);
      }
    }
    std::sort(scratch->begin(), scratch->end());
    auto next = scratch->begin();
    for (int64_t i = begin[at]; i < begin[at + 1]; ++i) {
      if (i > begin[at] && of_point[i] == of_point[i - 1]) {
        continue;
      }
      const auto is_before = [](const OfCluster& row, int32_t value) {
        return row.first < value;
      };
      const auto first =
          std::lower_bound(next, scratch->end(), of_point[i], is_before);
      next =
          std::lower_bound(first, scratch->end(), of_point[i] + 1, is_before);
      // One row alone says nothing once its point is eliminated.
      if (next - first >= 2) {
        function(first, next);
      }
    }
  };
  constexpr int64_t kGrain = 1024;
  const auto n = static_cast<int64_t>(num_points);
  const int64_t num_chunks = (n + kGrain - 1) / kGrain;
  // Parts and rows of the chunks before each.
  std::vector<int64_t> first_part(static_cast<size_t>(num_chunks) + 1, 0);
  std::vector<int64_t> first_row(first_part.size(), 0);
  context->ParallelFor(n, kGrain, [&](int64_t first, int64_t last) {
    int64_t num_parts = 0;
    int64_t num_rows = 0;
    std::vector<OfCluster> scratch;
    for (int64_t at = first; at < last; ++at) {
      std::sort(of_point.begin() + begin[at], of_point.begin() + begin[at + 1]);
      for_each_part(at, &scratch, [&](auto begin_of, auto end_of) {
        ++num_parts;
        num_rows += end_of - begin_of;
      });
    }
    first_part[first / kGrain + 1] = num_parts;
    first_row[first / kGrain + 1] = num_rows;
  });
  std::partial_sum(first_part.begin(), first_part.end(), first_part.begin());
  std::partial_sum(first_row.begin(), first_row.end(), first_row.begin());
  rows->point_of_part.resize(static_cast<size_t>(first_part.back()));
  for (std::vector<int32_t>* of_rows :
       {&rows->row, &rows->camera, &rows->point}) {
    of_rows->resize(static_cast<size_t>(first_row.back()));
  }
  context->ParallelFor(n, kGrain, [&](int64_t first, int64_t last) {
    int64_t part = first_part[first / kGrain];
    int64_t row = first_row[first / kGrain];
    std::vector<OfCluster> scratch;
    for (int64_t at = first; at < last; ++at) {
      for_each_part(at, &scratch, [&](auto begin_of, auto end_of) {
        for (auto of = begin_of; of != end_of; ++of) {
          rows->row[row] = sample.row[of->second];
          rows->camera[row] = sample.camera[of->second];
          rows->point[row++] = static_cast<int32_t>(part);
        }
        rows->point_of_part[part++] = sample.point[at];
      });
    }
  });
}

// Takes a sample of the rows of an index whose cameras are F blocks, times the
// factor by which it represents all: vectors of some rows are as good as those
// of all (docs/measurements/preconditioners.md). StoredBatch: of a copy of
// these, with a stored Jacobian. cluster: of each camera; its columns vary
// where `varies` says so. request: where S is wanted. e_diagonal: of the
// points, in the machine's memory; null: zero. Takes memory for a copy of the
// sample's Jacobian and gives it back.
template <typename StoredBatch, typename Machine, typename Source>
kernels::Status FormSplitSchur(const kernels::ObservationIndexRef& index,
                               const RowSample& sample,
                               const Source& jacobian,
                               const std::vector<int32_t>& cluster,
                               const std::vector<unsigned char>& varies,
                               const SplitRequest& request,
                               const double* e_diagonal,
                               Machine* machine,
                               SplitSchur* split) {
  using Shape = typename Source::Shape;
  using Buffer = typename Machine::template Buffer<double>;
  SplitRows rows_of_parts;
  ListSplitRows(sample, cluster, request.context, &rows_of_parts);
  const std::vector<int32_t>& row = rows_of_parts.row;
  const std::vector<int32_t>& camera = rows_of_parts.camera;
  const std::vector<int32_t>& point = rows_of_parts.point;
  const std::vector<int32_t>& point_of_part = rows_of_parts.point_of_part;
  split->scale = static_cast<double>(index.num_observations) /
                 static_cast<double>(std::max(row.size(), size_t{1}));
  const auto n = static_cast<int64_t>(row.size());
  if (n == 0) {
    return {};
  }
  const auto num_parts = static_cast<int32_t>(point_of_part.size());
  kernels::RowIndex<Machine> rows;
  auto options = kernels::RowIndex<Machine>::Options::For(
      /*recomputed=*/false, /*in_float=*/false);
  options.keep_point_order = true;
  options.max_columns = Shape::kF;
  CERES_EXT_RETURN_IF_ERROR(
      rows.Setup({index.num_cameras, num_parts, n, camera.data(), point.data()},
                 options,
                 nullptr,
                 machine));
  Buffer camera_blocks;
  Buffer point_blocks;
  CERES_EXT_RETURN_IF_ERROR(
      machine->Allocate(Shape::kFSize * n, &camera_blocks));
  CERES_EXT_RETURN_IF_ERROR(
      machine->Allocate(Shape::kESize * n, &point_blocks));
  typename Machine::template Buffer<int32_t> taken;
  CERES_EXT_RETURN_IF_ERROR(machine->Upload(row, &taken));
  CERES_EXT_RETURN_IF_ERROR(Run(
      kernels::CopyRowsParams<Source, Machine::kLayout>{
          n,
          jacobian,
          index,
          taken.data(),
          rows.ref().input_id(),
          {camera_blocks.data(), n},
          {point_blocks.data(), n}},
      machine));

  ProblemBlocks blocks;
  blocks.e.Add(Shape::kE, num_parts);
  blocks.f.Add(Shape::kF, index.num_cameras);
  blocks.e_owner = {0};
  blocks.f_owner = {0};
  Buffer diagonal;
  if (e_diagonal != nullptr) {
    typename Machine::template Buffer<int32_t> source;
    CERES_EXT_RETURN_IF_ERROR(machine->Upload(point_of_part, &source));
    CERES_EXT_RETURN_IF_ERROR(
        machine->Allocate(blocks.e.num_values(), &diagonal));
    CERES_EXT_RETURN_IF_ERROR(Run(
        kernels::GatherTuplesParams<Shape::kE>{
            num_parts, source.data(), e_diagonal, diagonal.data()},
        machine));
    CERES_EXT_RETURN_IF_ERROR(machine->Synchronize());
  }
  StoredBatch batch;
  batch.Setup(rows.ref(), 0, 0, machine);
  batch.SetJacobian({{camera_blocks.data(), n}, {point_blocks.data(), n}});
  StepOptions step_options;
  step_options.preconditioner = PreconditionerType::kSchurJacobi;
  CERES_EXT_RETURN_IF_ERROR(batch.SetupSolver(step_options, blocks));
  Buffer v_inverse;
  Buffer schur_diagonal;
  Buffer rhs;
  Buffer b;
  typename Machine::template Buffer<kernels::Breakdown> breakdown;
  CERES_EXT_RETURN_IF_ERROR(
      machine->Allocate(blocks.e.num_packed(), &v_inverse));
  CERES_EXT_RETURN_IF_ERROR(
      machine->Allocate(blocks.f.num_packed(), &schur_diagonal));
  CERES_EXT_RETURN_IF_ERROR(machine->Allocate(blocks.f.num_values(), &rhs));
  CERES_EXT_RETURN_IF_ERROR(machine->Allocate(batch.num_residuals(), &b));
  CERES_EXT_RETURN_IF_ERROR(machine->SetZero(b.size(), b.data()));
  CERES_EXT_RETURN_IF_ERROR(machine->Allocate(1, &breakdown));
  NormalBlocksRequest wanted;
  wanted.b = b.data();
  wanted.e_diagonal = diagonal.data();
  wanted.v_inverse = v_inverse.data();
  wanted.schur_diagonal = schur_diagonal.data();
  wanted.schur_rhs = rhs.data();
  wanted.breakdown = breakdown.data();
  CERES_EXT_RETURN_IF_ERROR(batch.EliminatedBlocks(wanted));

  if (request.matrices != nullptr) {
    return WriteClusterMatrices(request,
                                blocks,
                                varies,
                                v_inverse.data(),
                                schur_diagonal.data(),
                                machine,
                                &batch);
  }
  ExplicitSchurRequest write;
  write.v_inverse = v_inverse.data();
  write.schur_diagonal = schur_diagonal.data();
  return WriteSplitSchur(blocks, varies, write, machine, &batch, split);
}

}  // namespace ceres_ext::solver

#endif  // CERES_EXT_SOLVER_SPLIT_SCHUR_H_
