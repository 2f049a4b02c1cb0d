// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// S of the *split problem* of clusters of F blocks: an eliminated block becomes
// one for each cluster that has rows of it, with those rows alone. What is left
// is a reduced system for each cluster by itself (Neumann), without D_f and the
// rows of other batches.
#ifndef CERES_EXT_SOLVER_SPLIT_SCHUR_H_
#define CERES_EXT_SOLVER_SPLIT_SCHUR_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "ceres_ext/solver/batch.h"
#include "ceres_ext/solver/explicit_schur.h"
#include "ceres_ext/solver/observation_batch.h"
#include "ceres_ext/solver/schur_contribution.h"
#include "ceres_ext/solver/step_options.h"
#include "cuda_kernels/base/breakdown.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/model/jacobian_source.h"
#include "cuda_kernels/ops/block_table.h"
#include "cuda_kernels/ops/coarse_space.h"
#include "cuda_kernels/structure/observation_index.h"
#include "cuda_kernels/structure/row_index.h"

namespace ceres_ext::solver {

// The rows of an index whose cameras are F blocks. cluster: of each camera; its
// columns vary where `varies` says so. e_diagonal: of the points, in the
// machine's memory; null: zero. Takes memory for a copy of the Jacobian and
// gives it back.
template <typename Machine, typename Source>
kernels::Status FormSplitSchur(const kernels::ObservationIndexRef& index,
                               const Source& jacobian,
                               const std::vector<int32_t>& cluster,
                               const std::vector<unsigned char>& varies,
                               const double* e_diagonal,
                               Machine* machine,
                               SplitSchur* split) {
  using Shape = typename Source::Shape;
  using Stored = kernels::StoredJacobian<double, Shape, Machine::kLayout>;
  using Buffer = typename Machine::template Buffer<double>;
  const int64_t n = index.num_observations;
  std::vector<int32_t> camera(static_cast<size_t>(n));
  std::vector<int32_t> point(static_cast<size_t>(n));
  CERES_EXT_RETURN_IF_ERROR(
      machine->Download(n, index.camera_id, camera.data()));
  CERES_EXT_RETURN_IF_ERROR(machine->Download(n, index.point_id, point.data()));
  // Rows of a point stand together; of each cluster it gets one more.
  std::vector<int32_t> point_of_part;
  std::vector<std::pair<int32_t, int32_t>> parts;  // of the point, by cluster
  int32_t last_point = -1;
  for (size_t k = 0; k < static_cast<size_t>(n); ++k) {
    if (point[k] != last_point) {
      last_point = point[k];
      parts.clear();
    }
    const int32_t of_row = cluster[camera[k]];
    size_t part = 0;
    while (part < parts.size() && parts[part].first != of_row) {
      ++part;
    }
    if (part == parts.size()) {
      parts.emplace_back(of_row, static_cast<int32_t>(point_of_part.size()));
      point_of_part.push_back(last_point);
    }
    point[k] = parts[part].second;
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
  camera = {};
  point = {};
  Buffer camera_blocks;
  Buffer point_blocks;
  CERES_EXT_RETURN_IF_ERROR(
      machine->Allocate(Shape::kFSize * n, &camera_blocks));
  CERES_EXT_RETURN_IF_ERROR(
      machine->Allocate(Shape::kESize * n, &point_blocks));
  CERES_EXT_RETURN_IF_ERROR(Run(
      kernels::CopyRowsParams<Source, Machine::kLayout>{
          n,
          jacobian,
          index,
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
  NormalBlocksRequest request;
  request.b = b.data();
  request.e_diagonal = diagonal.data();
  request.v_inverse = v_inverse.data();
  request.schur_diagonal = schur_diagonal.data();
  request.schur_rhs = rhs.data();
  request.breakdown = breakdown.data();
  CERES_EXT_RETURN_IF_ERROR(batch.EliminatedBlocks(request));

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
  split->values.resize(static_cast<size_t>(num_values));
  return machine->Download(num_values, values.data(), split->values.data());
}

}  // namespace ceres_ext::solver

#endif  // CERES_EXT_SOLVER_SPLIT_SCHUR_H_
