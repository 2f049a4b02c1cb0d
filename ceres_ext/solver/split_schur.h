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
#include <memory>
#include <utility>
#include <vector>

#include "ceres_ext/solver/batch.h"
#include "ceres_ext/solver/explicit_schur.h"
#include "ceres_ext/solver/observation_batch.h"
#include "ceres_ext/solver/row_sample.h"
#include "ceres_ext/solver/schur_contribution.h"
#include "ceres_ext/solver/step_options.h"
#include "cuda_kernels/base/breakdown.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/model/jacobian_source.h"
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
  CERES_EXT_RETURN_IF_ERROR(batch->SetupSchur());
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

// Takes a sample of the rows of an index whose cameras are F blocks, times the
// factor by which it represents all: vectors of some rows are as good as those
// of all (docs/measurements/preconditioners.md). cluster: of each camera; its
// columns vary where `varies` says so. request: where S is wanted. e_diagonal:
// of the points, in the machine's memory; null: zero. Takes memory for a copy
// of the sample's Jacobian and gives it back.
template <typename Machine, typename Source>
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
  using Stored = kernels::StoredJacobian<double, Shape, Machine::kLayout>;
  using Buffer = typename Machine::template Buffer<double>;
  // Points by the clusters of the cameras that they were chosen for: each is
  // one point here.
  std::vector<std::pair<int32_t, int32_t>> parts;
  parts.reserve(sample.of_camera.size());
  for (size_t c = 0; c < cluster.size(); ++c) {
    for (int32_t i = 0; i < sample.per_camera; ++i) {
      const int32_t of_camera =
          sample.of_camera[static_cast<size_t>(sample.per_camera) * c + i];
      if (of_camera >= 0 && cluster[c] >= 0) {
        parts.emplace_back(of_camera, cluster[c]);
      }
    }
  }
  std::sort(parts.begin(), parts.end());
  parts.erase(std::unique(parts.begin(), parts.end()), parts.end());
  std::vector<int32_t> row;
  std::vector<int32_t> camera;
  std::vector<int32_t> point;
  std::vector<int32_t> point_of_part;
  size_t at = 0;
  for (const auto& [of_point, of_cluster] : parts) {
    while (sample.point[at] < of_point) {
      ++at;
    }
    const size_t before = row.size();
    for (int64_t k = sample.row_begin[at]; k < sample.row_begin[at + 1]; ++k) {
      if (cluster[sample.camera[k]] == of_cluster) {
        row.push_back(sample.row[k]);
        camera.push_back(sample.camera[k]);
        point.push_back(static_cast<int32_t>(point_of_part.size()));
      }
    }
    // One row alone says nothing once its point is eliminated.
    if (row.size() - before < 2) {
      row.resize(before);
      camera.resize(before);
      point.resize(before);
    } else {
      point_of_part.push_back(of_point);
    }
  }
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
  ObservationBatch<Machine, Stored> batch;
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
  ExplicitSchur<Machine> schur;
  CERES_EXT_RETURN_IF_ERROR(schur.Prepare(blocks, {&batch}, machine));
  CERES_EXT_RETURN_IF_ERROR(schur.Setup(varies.data()));
  CERES_EXT_RETURN_IF_ERROR(schur.SetupSparse());
  Buffer values;
  const int64_t num_values = schur.csr().num_values();
  CERES_EXT_RETURN_IF_ERROR(machine->Allocate(num_values, &values));
  ExplicitSchurRequest write;
  write.v_inverse = v_inverse.data();
  write.schur_diagonal = schur_diagonal.data();
  CERES_EXT_RETURN_IF_ERROR(schur.Write(write, values.data()));
  split->begin = schur.unknowns().host_begin();
  split->column = schur.unknowns().host_column();
  split->block_begin = schur.csr().block_begin();
  split->block_column = schur.csr().block_column();
  split->row_begin = schur.csr().host_row_begin();
  CERES_EXT_RETURN_IF_ERROR(split->values.Allocate(num_values));
  return machine->Download(num_values, values.data(), split->values.data());
}

}  // namespace ceres_ext::solver

#endif  // CERES_EXT_SOLVER_SPLIT_SCHUR_H_
