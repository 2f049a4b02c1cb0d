// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A batch of rows of directions: three residuals, a point, another block and a
// private block, which is eliminated within the row
// (cuda_kernels/model/nested_jacobian.h). All algebra on J is that of a
// ViewBatch of J, that of the eliminated system a ViewBatch of L J, with L b in
// place of b. EliminatedBlocks makes L and L b for the system's D.
//
// Memory of a device per row, with five rows a point: J 168 B, or 101 B with
// factors if the rows are opposite; c 8 B, L b 24 B, which the loop's residuals
// of the model share, the place of the private block 4 B; constants 24 B, index
// and scratch of points 58 B, tables of blocks 8 B, residuals 24 B, inverse
// blocks 18 B, and 1.6 values, 13 B, in each of nine vectors; 385 B in all for
// opposite rows (tests/front/positions_test.cc). Bounds take a tenth vector,
// and 16 B more unless all private blocks have the same; a gradient along a
// projected step takes another J. A GeneralBatch takes J and L J, three cells
// a row and four lists of cells.
#ifndef CERES_EXT_SOLVER_NESTED_BATCH_H_
#define CERES_EXT_SOLVER_NESTED_BATCH_H_

#include <cstdint>
#include <vector>

#include "ceres_ext/solver/batch.h"
#include "ceres_ext/solver/view_batch.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/model/nested_jacobian.h"
#include "cuda_kernels/ops/nested_rows.h"
#include "cuda_kernels/structure/block_families.h"
#include "cuda_kernels/structure/views.h"

namespace ceres_ext::solver {

template <typename Machine>
class NestedBatch final : public Batch {
 public:
  static constexpr kernels::BlockLayout kLayout = Machine::kLayout;
  using Rows = kernels::NestedRows<kLayout>;
  using Source = kernels::NestedJacobian<kLayout>;

  // rows and J, of views of three columns. Points are the first family of E and
  // have no other rows. *views and the machine outlive the batch.
  kernels::Status Setup(const Rows& rows,
                        const Source& jacobian,
                        const kernels::Views<Machine>* views,
                        int private_family,
                        const ProblemBlocks& blocks,
                        Machine* machine) {
    rows_ = rows;
    private_begin_ = blocks.e[private_family].value_begin;
    private_packed_begin_ = blocks.e[private_family].packed_begin;
    machine_ = machine;
    CERES_EXT_RETURN_IF_ERROR(machine->Allocate(rows.size(), &c_));
    jacobian_ = jacobian;
    CERES_EXT_RETURN_IF_ERROR(
        plain_.Setup(rows.index, views, 0, blocks, jacobian, machine));
    return nested_.Setup(rows.index,
                         views,
                         0,
                         blocks,
                         kernels::NestJacobian(jacobian, c_.data()),
                         machine);
  }

  int64_t num_residuals() const final { return plain_.num_residuals(); }
  double* scratch_residuals() final { return nested_b_.data(); }

  kernels::Status SetupSolver(const StepOptions& options,
                              const ProblemBlocks& blocks) final {
    CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(num_residuals(), &nested_b_));
    CERES_EXT_RETURN_IF_ERROR(plain_.SetupSolver(options, blocks));
    return nested_.SetupSolver(options, blocks);
  }

  kernels::Status RightMultiply(const double* e,
                                const double* f,
                                bool accumulate,
                                double* y) final {
    CERES_EXT_RETURN_IF_ERROR(plain_.RightMultiply(e, f, accumulate, y));
    return Run(
        kernels::NestedProductParams<kLayout>{rows_, e + private_begin_, y},
        machine_);
  }
  kernels::Status LeftMultiplyAndAccumulate(const double* y,
                                            double* e,
                                            double* f) final {
    CERES_EXT_RETURN_IF_ERROR(plain_.LeftMultiplyAndAccumulate(y, e, f));
    return AddSums<kernels::CellProduct::kVector>(
        y, e == nullptr ? nullptr : e + private_begin_);
  }
  kernels::Status SquaredColumnNorms(double* e, double* f) final {
    CERES_EXT_RETURN_IF_ERROR(plain_.SquaredColumnNorms(e, f));
    return AddSums<kernels::CellProduct::kSquares>(nullptr, e + private_begin_);
  }

  // The values of `f` at the columns of the views.
  kernels::Status GatherColumns(const double* f, const double** out) {
    return plain_.GatherColumns(f, out);
  }

  kernels::Status EliminatedBlocks(const NormalBlocksRequest& request) final {
    if (!request.eliminate) {
      CERES_EXT_RETURN_IF_ERROR(plain_.EliminatedBlocks(request));
      return AddSums<kernels::CellProduct::kMatrix>(
          nullptr,
          request.v == nullptr ? nullptr : request.v + private_packed_begin_);
    }
    kernels::NestRowsParams<kLayout> nest;
    nest.rows = rows_;
    nest.diagonal = request.e_diagonal == nullptr
                        ? nullptr
                        : request.e_diagonal + private_begin_;
    nest.b = request.b;
    nest.c = c_.data();
    nest.h_inverse = request.v_inverse + private_packed_begin_;
    nest.out = nested_b_.data();
    nest.gradient = request.e_gradient == nullptr
                        ? nullptr
                        : request.e_gradient + private_begin_;
    CERES_EXT_RETURN_IF_ERROR(Run(nest, machine_));
    NormalBlocksRequest of_nested = request;
    of_nested.b = nested_b_.data();
    return nested_.EliminatedBlocks(of_nested);
  }
  // The points are this batch's: EliminatedBlocks has done it all.
  kernels::Status OtherBlocks(const NormalBlocksRequest& /*request*/) final {
    return {};
  }
  kernels::Status MultiplyToEliminated(
      const double* /*f_p*/,
      double* /*s*/,
      const kernels::PcgScalars* /*scalars*/) final {
    return {};
  }
  // Private blocks are unknowns of no system that PCG solves.
  kernels::Status Multiply(const ProductRequest& request) final {
    return nested_.Multiply(request);
  }
  kernels::Status BackSubstitute(const double* /*b*/,
                                 const double* v_inverse,
                                 const double* z,
                                 double* y) final {
    return nested_.BackSubstitute(nested_b_.data(), v_inverse, z, y);
  }
  kernels::Status BackSubstitutePrivate(const double* b,
                                        const double* v_inverse,
                                        const double* f,
                                        double* e) final {
    kernels::BackSubstituteNestedParams<kLayout> params;
    CERES_EXT_RETURN_IF_ERROR(GatherColumns(f, &params.camera_x));
    params.rows = rows_;
    params.jacobian = jacobian_;
    params.h_inverse = v_inverse + private_packed_begin_;
    params.b = b;
    params.point_x = e;
    params.s = e + private_begin_;
    return Run(params, machine_);
  }

  SchurWriter* schur_writer() final { return nested_.schur_writer(); }
  kernels::Status ListRows(int batch,
                           kernels::SchurPairsBuilder* builder) final {
    return nested_.ListRows(batch, builder);
  }
  kernels::Status SetupPairs(int batch,
                             const kernels::SchurPairsBuilder& builder) final {
    return nested_.SetupPairs(batch, builder);
  }
  kernels::Status AddPairs(double* w, double* u) final {
    return nested_.AddPairs(w, u);
  }
  void AppendOperands(std::vector<const void*>* operands) const final {
    nested_.AppendOperands(operands);
  }

 private:
  using Buffer = typename Machine::template Buffer<double>;

  // out: of the family of private blocks; null: not wanted.
  template <kernels::CellProduct kProduct>
  kernels::Status AddSums(const double* y, double* out) {
    return out == nullptr ? kernels::Status()
                          : Run(
                                kernels::NestedSumsParams<kProduct, kLayout>{
                                    rows_, y, out},
                                machine_);
  }

  Rows rows_;
  Source jacobian_;
  int64_t private_begin_ = 0;
  int64_t private_packed_begin_ = 0;
  Machine* machine_ = nullptr;
  ViewBatch<Machine, Source> plain_;
  ViewBatch<Machine, Source> nested_;
  Buffer c_;
  Buffer nested_b_;  // L b
};

}  // namespace ceres_ext::solver

#endif  // CERES_EXT_SOLVER_NESTED_BATCH_H_
