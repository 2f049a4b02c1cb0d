// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A batch of rows of any shape (cuda_kernels/structure/block_rows.h), with a
// stored Jacobian in double. It owns no family: it adds.
//
// Operations: cuda_kernels/ops/block_rows.h. A product with S reads the cells
// of E and F twice.
#ifndef CERES_EXT_SOLVER_GENERAL_BATCH_H_
#define CERES_EXT_SOLVER_GENERAL_BATCH_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ceres_ext/solver/batch.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/ops/block_rows.h"
#include "cuda_kernels/structure/block_rows.h"

namespace ceres_ext::solver {

template <typename Machine>
class GeneralBatch final : public Batch {
 public:
  // *rows and the machine must outlive the batch. values: num_values of the
  // rows, which everything works on.
  kernels::Status Setup(const kernels::BlockRows<Machine>* rows,
                        const ProblemBlocks& blocks,
                        double* values,
                        Machine* machine) {
    rows_ = rows;
    blocks_ = blocks;
    values_ = values;
    machine_ = machine;
    if (blocks.e.size() > kernels::kMaxEliminatedFamilies) {
      return {kernels::StatusCode::kUnsupported,
              "There are too many sizes of eliminated blocks."};
    }
    CERES_EXT_RETURN_IF_ERROR(machine->Allocate(num_residuals(), &y_));
    return ReservePartialSums(/*matrices=*/false);
  }

  int64_t num_residuals() const final { return rows_->view().num_residuals; }

  kernels::Status SetupSolver(const InexactSolverOptions& /*options*/,
                              const ProblemBlocks& /*blocks*/) final {
    return ReservePartialSums(/*matrices=*/true);
  }

  kernels::Status RightMultiply(const double* e,
                                const double* f,
                                bool accumulate,
                                double* y) final {
    return Product(e, f, accumulate ? y : nullptr, y, nullptr);
  }

  kernels::Status LeftMultiplyAndAccumulate(const double* y,
                                            double* e,
                                            double* f) final {
    return TransposeProduct(y, e, f, nullptr);
  }

  kernels::Status SquaredColumnNorms(double* e, double* f) final {
    const kernels::SquaredColumns formula{values_, rows_->view().row_begin};
    CERES_EXT_RETURN_IF_ERROR(SumVectors(true, formula, e, nullptr));
    return SumVectors(false, formula, f, nullptr);
  }

  // J = J diag(scale).
  kernels::Status ScaleColumns(const double* e, const double* f) {
    return Run(kernels::ScaleRowsParams{rows_->view(), values_, e, f},
               machine_);
  }

  kernels::Status EliminatedBlocks(const NormalBlocksRequest& request) final {
    CERES_EXT_RETURN_IF_ERROR(SumMatrices(true, squares(), request.v));
    return TransposeProduct(request.b, request.e_gradient, nullptr, nullptr);
  }

  kernels::Status OtherBlocks(const NormalBlocksRequest& request) final {
    CERES_EXT_RETURN_IF_ERROR(SumMatrices(false, squares(), request.u));
    CERES_EXT_RETURN_IF_ERROR(
        TransposeProduct(request.b, nullptr, request.f_gradient, nullptr));
    // S_c = F'F - W (V + D_e^2)^-1 W'
    CERES_EXT_RETURN_IF_ERROR(
        SumMatrices(false, squares(), request.schur_diagonal));
    if (request.schur_diagonal != nullptr && !rows_->e_lists().empty()) {
      kernels::EliminatedBlocks formula;
      formula.values = values_;
      formula.row_begin = rows_->view().row_begin;
      formula.eliminated = rows_->eliminated();
      for (int i = 0; i < blocks_.e.size(); ++i) {
        formula.v_inverse[i] = kernels::PackedBlocks<const double>(
            blocks_.e[i], Machine::kLayout, request.v_inverse);
      }
      CERES_EXT_RETURN_IF_ERROR(
          SumMatrices(false, formula, request.schur_diagonal));
    }
    if (request.schur_rhs == nullptr) {
      return {};
    }
    // rhs += F'(b + E motion)
    CERES_EXT_RETURN_IF_ERROR(
        Product(request.e_motion, nullptr, request.b, y_.data(), nullptr));
    return TransposeProduct(y_.data(), nullptr, request.schur_rhs, nullptr);
  }

  kernels::Status MultiplyToEliminated(
      const double* f_p, double* s, const kernels::PcgScalars* scalars) final {
    if (rows_->e_lists().empty()) {
      return {};
    }
    CERES_EXT_RETURN_IF_ERROR(
        Product(nullptr, f_p, nullptr, y_.data(), scalars));
    return TransposeProduct(y_.data(), s, nullptr, scalars);
  }

  // q += F'(F p + E motion)
  kernels::Status MultiplySchur(const ProductRequest& request) final {
    CERES_EXT_RETURN_IF_ERROR(Product(
        request.e_motion, request.f_p, nullptr, y_.data(), request.scalars));
    return TransposeProduct(y_.data(), nullptr, request.f_q, request.scalars);
  }

  // q += J'J p
  kernels::Status MultiplyNormal(const ProductRequest& request) final {
    CERES_EXT_RETURN_IF_ERROR(
        Product(request.e_p, request.f_p, nullptr, y_.data(), request.scalars));
    return TransposeProduct(
        y_.data(), request.e_q, request.f_q, request.scalars);
  }

  // Its E families are shared: the step solver does it.
  kernels::Status BackSubstitute(const double* /*b*/,
                                 const double* /*v_inverse*/,
                                 const double* /*z*/,
                                 double* /*y*/) final {
    return {};
  }

  void AppendOperands(std::vector<const void*>* operands) const final {
    operands->push_back(values_);
  }

  int64_t bytes() const final { return y_.bytes() + partial_.bytes(); }

 private:
  using Buffer = typename Machine::template Buffer<double>;

  kernels::SquaredBlocks squares() const {
    return {values_, rows_->view().row_begin};
  }

  kernels::Status ReservePartialSums(bool matrices) {
    int64_t most = 0;
    for (const auto* lists : {&rows_->e_lists(), &rows_->f_lists()}) {
      for (const auto& list : *lists) {
        const int size = list.view.size;
        most = std::max(most,
                        kernels::NumPartialSums(
                            list, matrices ? kernels::PackedSize(size) : size));
      }
    }
    return partial_.size() >= most ? kernels::Status()
                                   : machine_->Allocate(most, &partial_);
  }

  // y = start + E e + F f
  kernels::Status Product(const double* e,
                          const double* f,
                          const double* start,
                          double* y,
                          const kernels::PcgScalars* scalars) {
    kernels::RowProductParams params;
    params.rows = rows_->view();
    params.values = values_;
    params.e = e;
    params.f = f;
    params.start = start;
    params.y = y;
    params.scalars = scalars;
    return Run(params, machine_);
  }

  // e += E'y, f += F'y; null: not wanted.
  kernels::Status TransposeProduct(const double* y,
                                   double* e,
                                   double* f,
                                   const kernels::PcgScalars* scalars) {
    const kernels::TransposeProduct formula{
        values_, rows_->view().row_begin, y};
    CERES_EXT_RETURN_IF_ERROR(SumVectors(true, formula, e, scalars));
    return SumVectors(false, formula, f, scalars);
  }

  template <typename Formula>
  kernels::Status SumVectors(bool eliminated,
                             const Formula& formula,
                             double* vector,
                             const kernels::PcgScalars* scalars) {
    if (vector == nullptr) {
      return {};
    }
    const kernels::BlockFamilies& families = eliminated ? blocks_.e : blocks_.f;
    for (const auto& list : eliminated ? rows_->e_lists() : rows_->f_lists()) {
      CERES_EXT_RETURN_IF_ERROR(kernels::SumOverBlocks(
          list,
          formula,
          kernels::VectorBlocks(families[list.family], vector),
          scalars,
          partial_.data(),
          machine_));
    }
    return {};
  }

  template <typename Formula>
  kernels::Status SumMatrices(bool eliminated,
                              const Formula& formula,
                              double* packed) {
    if (packed == nullptr) {
      return {};
    }
    const kernels::BlockFamilies& families = eliminated ? blocks_.e : blocks_.f;
    for (const auto& list : eliminated ? rows_->e_lists() : rows_->f_lists()) {
      CERES_EXT_RETURN_IF_ERROR(kernels::SumOverBlocks(
          list,
          formula,
          kernels::PackedBlocks(
              families[list.family], Machine::kLayout, packed),
          nullptr,
          partial_.data(),
          machine_));
    }
    return {};
  }

  const kernels::BlockRows<Machine>* rows_ = nullptr;
  ProblemBlocks blocks_;
  double* values_ = nullptr;
  Machine* machine_ = nullptr;
  Buffer y_;
  Buffer partial_;
};

}  // namespace ceres_ext::solver

#endif  // CERES_EXT_SOLVER_GENERAL_BATCH_H_
