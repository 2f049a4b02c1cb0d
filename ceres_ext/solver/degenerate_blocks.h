// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Blocks of E and F that are rank-deficient without damping.
#ifndef CERES_EXT_SOLVER_DEGENERATE_BLOCKS_H_
#define CERES_EXT_SOLVER_DEGENERATE_BLOCKS_H_

#include <cstdint>
#include <vector>

#include "ceres_ext/solver/batch.h"
#include "ceres_ext/solver/operator/linear_operator.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/ops/degenerate_blocks.h"
#include "cuda_kernels/structure/block_families.h"

namespace ceres_ext::solver {

// Blocks of E, or of F in the form of a preconditioner (ProblemBlocks::merged),
// that are rank-deficient without damping (cuda_kernels/base/relative_pivot.h),
// of those of at most kernels::kMaxJudgedColumns columns.
struct DegenerateBlocks {
  int64_t count = 0;
  // The block of the smallest relative pivot, among equals the first in the
  // order of the machine's blocks; of merged blocks of F the first.
  int family = 0;
  int32_t block = 0;
  double relative_pivot = 1.0;
};

// Judges the Jacobian of an operator, in one pass.
template <typename Machine>
class BlockJudge {
 public:
  // Takes all memory. wanted: packed matrices that an Update of the operator
  // fills later on, which have room for those that are judged.
  kernels::Status Setup(LinearOperator<Machine>* linear_operator,
                        const NormalBlocksRequest& wanted,
                        Machine* machine) {
    machine_ = machine;
    const ProblemBlocks& blocks = linear_operator->blocks();
    records_.resize(blocks.e.size() + blocks.f_matrices().size());
    CERES_EXT_RETURN_IF_ERROR(machine->Allocate(records_.size(), &record_));
    CERES_EXT_RETURN_IF_ERROR(machine->Allocate(
        EMatrices(linear_operator, wanted) == nullptr ? blocks.e.num_packed()
                                                      : 0,
        &v_));
    return machine->Allocate(
        FMatrices(wanted) == nullptr ? NumJudged(blocks.f_matrices()) : 0, &u_);
  }

  // wanted: as in Setup. e_padding, f_padding: one on columns that are not
  // unknowns, otherwise zero; merged blocks have none of these.
  kernels::Status Find(LinearOperator<Machine>* linear_operator,
                       const NormalBlocksRequest& wanted,
                       const double* e_padding,
                       const double* f_padding,
                       DegenerateBlocks* e,
                       DegenerateBlocks* f) {
    double* const v = EMatrices(linear_operator, wanted);
    double* const u = FMatrices(wanted);
    const ProblemBlocks& blocks = linear_operator->blocks();
    const kernels::BlockFamilies& f_matrices = blocks.f_matrices();
    CERES_EXT_RETURN_IF_ERROR(linear_operator->UndampedBlocks(
        kernels::kMaxJudgedColumns, NumJudged(f_matrices), v, u));
    kernels::DegenerateRecord* const record = record_.data();
    CERES_EXT_RETURN_IF_ERROR(Judge(blocks.e, v, blocks.e, e_padding, record));
    CERES_EXT_RETURN_IF_ERROR(
        Judge(f_matrices, u, blocks.f, f_padding, record + blocks.e.size()));
    CERES_EXT_RETURN_IF_ERROR(
        machine_->Download(record_.size(), record, records_.data()));
    *e = Worst(records_.data(), blocks.e.size());
    *f = Worst(records_.data() + blocks.e.size(), f_matrices.size());
    if (f->count > 0) {
      const auto first =
          blocks.merged.FirstBlock(blocks.f, {f->family, f->block});
      f->family = first.family;
      f->block = first.block;
    }
    return {};
  }

 private:
  template <typename T>
  using Buffer = typename Machine::template Buffer<T>;

  double* EMatrices(LinearOperator<Machine>* linear_operator,
                    const NormalBlocksRequest& wanted) {
    double* const matrices =
        wanted.v != nullptr ? wanted.v : linear_operator->e_matrices();
    return matrices != nullptr ? matrices : v_.data();
  }
  double* FMatrices(const NormalBlocksRequest& wanted) {
    double* const matrices =
        wanted.u != nullptr ? wanted.u : wanted.schur_diagonal;
    return matrices != nullptr ? matrices : u_.data();
  }

  // The values of u up to the last family that is judged. Families of F come by
  // size, behind those of cameras (import/import_rows.cc).
  static int64_t NumJudged(const kernels::BlockFamilies& families) {
    int64_t result = 0;
    for (const kernels::BlockFamily& family : families) {
      if (family.size <= kernels::kMaxJudgedColumns) {
        result = family.packed_begin + family.num_packed();
      }
    }
    return result;
  }

  // Queues one record per family of matrices. The first of these are `padded`,
  // over which padding is; those behind have none.
  kernels::Status Judge(const kernels::BlockFamilies& families,
                        double* packed,
                        const kernels::BlockFamilies& padded,
                        const double* padding,
                        kernels::DegenerateRecord* record) {
    for (int i = 0; i < families.size(); ++i) {
      const kernels::BlockFamily& family = families[i];
      kernels::JudgeBlocksParams judge;
      judge.columns = family.size;
      // The record of others is that of no blocks.
      if (family.size <= kernels::kMaxJudgedColumns) {
        judge.n = family.num_blocks;
        judge.a = kernels::PackedBlocks(family, Machine::kLayout, packed);
      }
      judge.padding =
          i < padded.size() ? padding + padded[i].value_begin : nullptr;
      judge.record = record + i;
      CERES_EXT_RETURN_IF_ERROR(Run(judge, machine_));
      CERES_EXT_RETURN_IF_ERROR(Run(
          kernels::FindWorstBlockParams{
              judge.n,
              {judge.a.data, judge.a.block_stride, judge.a.element_stride},
              judge.record},
          machine_));
    }
    return {};
  }

  static DegenerateBlocks Worst(const kernels::DegenerateRecord* records,
                                int num_families) {
    DegenerateBlocks result;
    double severity = 0.0;
    for (int i = 0; i < num_families; ++i) {
      result.count += records[i].count;
      if (records[i].severity > severity) {
        severity = records[i].severity;
        result.family = i;
        result.block = records[i].block;
        result.relative_pivot = records[i].relative_pivot();
      }
    }
    return result;
  }

  Machine* machine_ = nullptr;
  Buffer<kernels::DegenerateRecord> record_;  // one per family of matrices
  std::vector<kernels::DegenerateRecord> records_;
  // Matrices, if nothing else has room for them.
  Buffer<double> v_;
  Buffer<double> u_;
};

}  // namespace ceres_ext::solver

#endif  // CERES_EXT_SOLVER_DEGENERATE_BLOCKS_H_
