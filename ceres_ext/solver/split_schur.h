// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// S of the *split problem* of clusters of F blocks: an eliminated block becomes
// one for each cluster that has rows of it, with those rows alone. The rest is
// a reduced system for each cluster by itself (Neumann), without D_f and the
// rows of other batches.
#ifndef CERES_EXT_SOLVER_SPLIT_SCHUR_H_
#define CERES_EXT_SOLVER_SPLIT_SCHUR_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ceres_ext/solver/batch.h"
#include "ceres_ext/solver/explicit_schur.h"
#include "ceres_ext/solver/row_sample.h"
#include "ceres_ext/solver/schur_contribution.h"
#include "ceres_ext/solver/step_options.h"
#include "cuda_kernels/base/breakdown.h"
#include "cuda_kernels/base/status.h"
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

// Takes a sample of the rows of an index whose cameras are F blocks, times the
// factor by which it represents all: vectors of some rows are as good as those
// of all (docs/measurements/preconditioners.md). StoredBatch: of a copy of
// these, with a stored Jacobian. cluster: of each camera; its columns vary
// where `varies` says so. request: where S is wanted. e_diagonal: of the
// points, in the machine's memory; null: zero. Takes memory for a copy of the
// sample's Jacobian and gives it back.
template <typename StoredBatch, typename Machine, typename Source>
kernels::Status FormSplitSchur(const kernels::ObservationIndexRef& index,
                               const Source& jacobian,
                               const std::vector<int32_t>& cluster,
                               const std::vector<unsigned char>& varies,
                               const SplitRequest& request,
                               const double* e_diagonal,
                               Machine* machine,
                               SplitSchur* split) {
  using Shape = typename Source::Shape;
  using Buffer = typename Machine::template Buffer<double>;
  SplitRows<Machine> sample;
  CERES_EXT_RETURN_IF_ERROR(
      sample.Setup(index, NumSampledRows(index.num_cameras), cluster, machine));
  const int64_t n = sample.num_rows;
  split->scale = static_cast<double>(index.num_observations) /
                 static_cast<double>(std::max(n, int64_t{1}));
  if (n == 0) {
    return {};
  }
  const int32_t num_parts = sample.num_points;
  kernels::RowIndex<Machine> rows;
  auto options = kernels::RowIndex<Machine>::Options::For(
      /*recomputed=*/false, /*in_float=*/false);
  options.keep_point_order = true;
  options.max_columns = Shape::kF;
  options.cameras_on_device = options.points_on_device = true;
  CERES_EXT_RETURN_IF_ERROR(rows.Setup({index.num_cameras,
                                        num_parts,
                                        n,
                                        sample.camera.data(),
                                        sample.point.data()},
                                       options,
                                       nullptr,
                                       machine));
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
          sample.row.data(),
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
    CERES_EXT_RETURN_IF_ERROR(
        machine->Allocate(blocks.e.num_values(), &diagonal));
    CERES_EXT_RETURN_IF_ERROR(
        Run(kernels::GatherTuplesParams<Shape::kE>{num_parts,
                                                   sample.point_of_part.data(),
                                                   e_diagonal,
                                                   diagonal.data()},
            machine));
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
