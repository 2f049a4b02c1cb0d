// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A batch of rows of any shape (cuda_kernels/structure/block_rows.h), with a
// stored Jacobian in double. It owns no family: it adds.
//
// If rows have private blocks, all that eliminates works on L J and L b, which
// are rows without these (cuda_kernels/ops/private_blocks.h). EliminatedBlocks
// makes them for the system's D. S, its products and its blocks are those of L
// J, U included.
//
// Operations: cuda_kernels/ops/block_rows.h. A product with S reads the cells
// of E and F twice.
#ifndef CERES_EXT_SOLVER_GENERAL_BATCH_H_
#define CERES_EXT_SOLVER_GENERAL_BATCH_H_

#include <cstdint>
#include <vector>

#include "ceres_ext/solver/batch.h"
#include "ceres_ext/solver/schur_contribution.h"
#include "ceres_ext/solver/schur_sums.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/ops/block_rows.h"
#include "cuda_kernels/ops/degenerate_blocks.h"
#include "cuda_kernels/ops/private_blocks.h"
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
    for (const kernels::BlockFamily& family : blocks.e) {
      has_wide_e_ |= family.size > kernels::kFewEliminatedColumns;
    }
    CERES_EXT_RETURN_IF_ERROR(machine->Allocate(num_residuals(), &y_));
    return ReserveSums(/*packed=*/false);
  }

  int64_t num_residuals() const final { return rows_->ref().num_residuals; }
  const kernels::BlockRowsRef* general_rows(const double** values) const final {
    *values = values_;
    return has_private() ? nullptr : &rows_->ref();
  }

  kernels::Status SetupSolver(const StepOptions& options,
                              const ProblemBlocks& /*blocks*/) final {
    const bool nests = has_private() && options.use_schur;
    CERES_EXT_RETURN_IF_ERROR(
        machine_->Allocate(nests ? rows_->num_values() : 0, &nested_values_));
    CERES_EXT_RETURN_IF_ERROR(
        machine_->Allocate(nests ? num_residuals() : 0, &nested_b_));
    CERES_EXT_RETURN_IF_ERROR(
        machine_->Allocate(nests ? rows_->ref().num_rows : 0, &private_c_));
    return ReserveSums(/*packed=*/true,
                       options.needs_f_blocks() ? kernels::kAnyColumns
                                                : kernels::kMaxJudgedColumns);
  }

  kernels::Status RightMultiply(const double* e,
                                const double* f,
                                bool accumulate,
                                double* y) final {
    return Product(values_, e, f, accumulate ? y : nullptr, y, nullptr);
  }

  kernels::Status LeftMultiplyAndAccumulate(const double* y,
                                            double* e,
                                            double* f) final {
    return TransposeProduct(values_, y, e, f, nullptr);
  }

  kernels::Status SquaredColumnNorms(double* e, double* f) final {
    return Sum<kernels::CellProduct::kSquares>(values_, e, f);
  }

  // J = J diag(scale).
  kernels::Status ScaleColumns(const double* e, const double* f) {
    return Run(kernels::ScaleRowsParams{rows_->ref(), values_, e, f}, machine_);
  }

  kernels::Status EliminatedBlocks(const NormalBlocksRequest& request) final {
    const bool nests = request.eliminate && has_private();
    if (nests) {
      CERES_EXT_RETURN_IF_ERROR(
          Run(kernels::EliminatePrivateParams{private_rows(),
                                              request.e_diagonal,
                                              nested_values_.data(),
                                              private_c_.data(),
                                              PrivatePart(request.v_inverse)},
              machine_));
      CERES_EXT_RETURN_IF_ERROR(
          Run(kernels::ApplyPrivateParams{private_rows(),
                                          private_c_.data(),
                                          request.b,
                                          nested_b_.data(),
                                          request.e_gradient},
              machine_));
    }
    const double* const values = Values(request.eliminate);
    CERES_EXT_RETURN_IF_ERROR(
        Sum<kernels::CellProduct::kMatrix>(values, request.v, nullptr));
    return TransposeProduct(
        values, B(request), request.e_gradient, nullptr, nullptr);
  }

  kernels::Status OtherBlocks(const NormalBlocksRequest& request) final {
    // S_c = F'F - W (V + D_e^2)^-1 W'
    const double* const values = Values(request.eliminate);
    const kernels::SquaredBlocks squares{values, rows_->ref().row_begin};
    CERES_EXT_RETURN_IF_ERROR(
        AddToF(squares, request.u, nullptr, request.max_u_columns));
    CERES_EXT_RETURN_IF_ERROR(AddToF(squares, request.schur_diagonal, nullptr));
    CERES_EXT_RETURN_IF_ERROR(
        has_wide_e_
            ? AddEliminated<kernels::kMaxEliminatedSize>(values, request)
            : AddEliminated<kernels::kFewEliminatedColumns>(values, request));
    CERES_EXT_RETURN_IF_ERROR(TransposeProduct(
        values, B(request), nullptr, request.f_gradient, nullptr));
    if (request.schur_rhs == nullptr) {
      return {};
    }
    // rhs += F'(b + E motion)
    CERES_EXT_RETURN_IF_ERROR(Product(
        values, request.e_motion, nullptr, B(request), y_.data(), nullptr));
    return TransposeProduct(
        values, y_.data(), nullptr, request.schur_rhs, nullptr);
  }

  kernels::Status MultiplyToEliminated(
      const double* f_p, double* s, const kernels::PcgScalars* scalars) final {
    if (rows_->e_lists().empty()) {
      return {};
    }
    const double* const values = Values(/*eliminate=*/true);
    CERES_EXT_RETURN_IF_ERROR(
        Product(values, nullptr, f_p, nullptr, y_.data(), scalars));
    return TransposeProduct(values, y_.data(), s, nullptr, scalars);
  }

  // q += J'J p
  kernels::Status Multiply(const ProductRequest& request) final {
    const double* const values = Values(request.eliminate);
    CERES_EXT_RETURN_IF_ERROR(
        Product(values,
                request.e_p,
                request.eliminated_part ? nullptr : request.f_p,
                nullptr,
                y_.data(),
                request.scalars));
    return TransposeProduct(
        values, y_.data(), request.e_q, request.f_q, request.scalars);
  }

  kernels::Status BackSubstitutePrivate(const double* b,
                                        const double* v_inverse,
                                        const double* f,
                                        double* e) final {
    if (!has_private()) {
      return {};
    }
    CERES_EXT_RETURN_IF_ERROR(
        Product(values_, e, f, nullptr, y_.data(), nullptr));
    return Run(
        kernels::BackSubstitutePrivateParams{
            private_rows(), PrivatePart(v_inverse), b, y_.data(), e},
        machine_);
  }

  kernels::Status ListRows(int batch,
                           kernels::SchurPairsBuilder* builder) final {
    const kernels::BlockRowsRef& view = rows_->ref();
    std::vector<int32_t> cell_begin(static_cast<size_t>(view.num_rows) + 1);
    CERES_EXT_RETURN_IF_ERROR(machine_->Download(
        view.num_rows + 1, view.cell_begin, cell_begin.data()));
    std::vector<kernels::RowCell> cells(static_cast<size_t>(cell_begin.back()));
    CERES_EXT_RETURN_IF_ERROR(
        machine_->Download(cell_begin.back(), view.cells, cells.data()));
    std::vector<kernels::SchurPairsBuilder::Cell> f_cells;
    for (int32_t i = 0; i < view.num_rows; ++i) {
      kernels::SchurPairsBuilder::Eliminated e;
      f_cells.clear();
      for (int32_t c = cell_begin[i]; c < cell_begin[i + 1]; ++c) {
        const kernels::RowCell& cell = cells[c];
        if (cell.size == 0 || cell.eliminated == kernels::kPrivateCell) {
          continue;
        }
        if (cell.eliminated != 0) {
          const auto place = blocks_.e.PlaceOf(cell.column);
          e = {place.family, place.block};
        } else {
          const auto place = blocks_.f.PlaceOf(cell.column);
          f_cells.push_back({place.family, place.block, c, cell.size});
        }
      }
      builder->AddRow(batch, i, e, f_cells);
    }
    return {};
  }

  kernels::Status SetupPairs(int batch,
                             const kernels::SchurPairsBuilder& builder) final {
    return schur_sums_.Setup(batch, builder, machine_);
  }

  kernels::Status AddPairs(double* w, double* u) final {
    kernels::GeneralPairSums pairs;
    pairs.rows = rows_->ref();
    pairs.values = Values(/*eliminate=*/true);
    pairs.eliminated = rows_->eliminated();
    for (int i = 0; i < blocks_.e.size(); ++i) {
      pairs.e_size[i] = blocks_.e[i].size;
    }
    CERES_EXT_RETURN_IF_ERROR(schur_sums_.AddPairs(pairs, w, machine_));
    return schur_sums_.AddCrossings(
        kernels::GeneralCrossingSums{rows_->ref(), pairs.values}, u, machine_);
  }

  void AppendOperands(std::vector<const void*>* operands) const final {
    operands->push_back(values_);
  }

 private:
  kernels::Status ReserveSums(bool packed,
                              int max_columns = kernels::kAnyColumns) {
    return sums_.Reserve(
        {&rows_->e_lists(), &rows_->f_lists(), &rows_->merged_lists()},
        packed,
        machine_,
        max_columns);
  }

  bool has_private() const { return rows_->private_family() >= 0; }
  kernels::PrivateRows private_rows() const {
    return {rows_->ref(), rows_->private_cells(), values_};
  }
  // The part of private blocks of packed matrices of E.
  template <typename T>
  T* PrivatePart(T* packed) const {
    return packed == nullptr
               ? nullptr
               : packed + blocks_.e[rows_->private_family()].packed_begin;
  }
  // J, or L J. Without private blocks, and until a solver is set up, J.
  const double* Values(bool eliminate) const {
    return eliminate && nested_values_.size() > 0 ? nested_values_.data()
                                                  : values_;
  }
  const double* B(const NormalBlocksRequest& request) const {
    return request.eliminate && has_private() ? nested_b_.data() : request.b;
  }

  // y = start + E e + F f
  kernels::Status Product(const double* values,
                          const double* e,
                          const double* f,
                          const double* start,
                          double* y,
                          const kernels::PcgScalars* scalars) {
    return Run(
        kernels::RowProductParams{
            rows_->ref(), values, e, f, start, y, scalars},
        machine_);
  }

  // e += E'y, f += F'y; null: not wanted.
  kernels::Status TransposeProduct(const double* values,
                                   const double* y,
                                   double* e,
                                   double* f,
                                   const kernels::PcgScalars* scalars) {
    return Sum<kernels::CellProduct::kVector>(values, e, f, y, scalars);
  }

  // The cells of private blocks in L J are zero and add nothing.
  template <kernels::CellProduct kProduct>
  kernels::Status Sum(const double* values,
                      double* e,
                      double* f,
                      const double* y = nullptr,
                      const kernels::PcgScalars* scalars = nullptr) {
    const kernels::CellProducts<kProduct> formula{
        values, rows_->ref().row_begin, y};
    CERES_EXT_RETURN_IF_ERROR(
        sums_.Add(rows_->e_lists(), blocks_.e, formula, e, scalars, machine_));
    if (has_private() && e != nullptr && values == values_) {
      double* const out =
          kProduct == kernels::CellProduct::kMatrix ? PrivatePart(e) : e;
      CERES_EXT_RETURN_IF_ERROR(Run(
          kernels::PrivateProductsParams<kProduct>{
              private_rows(), y, out, scalars},
          machine_));
    }
    return AddToF(formula, f, scalars);
  }

  // The part of eliminated blocks, and all of merged blocks.
  template <int kMost>
  kernels::Status AddEliminated(const double* values,
                                const NormalBlocksRequest& request) {
    kernels::MergedRows<kMost> merged;
    merged.rows = rows_->ref();
    merged.values = values;
    merged.column = rows_->merged_column();
    CERES_EXT_RETURN_IF_ERROR(AddToMerged(merged, request.u));
    if (request.schur_diagonal != nullptr && !rows_->e_lists().empty()) {
      kernels::EliminatedBlocks<kMost> formula;
      formula.values = values;
      formula.row_begin = rows_->ref().row_begin;
      formula.eliminated = merged.eliminated = rows_->eliminated();
      for (int i = 0; i < blocks_.e.size(); ++i) {
        formula.v_inverse[i] = merged.v_inverse[i] =
            kernels::PackedBlocks<const double>(
                blocks_.e[i], Machine::kLayout, request.v_inverse);
      }
      CERES_EXT_RETURN_IF_ERROR(
          AddToF(formula, request.schur_diagonal, nullptr));
    }
    return AddToMerged(merged, request.schur_diagonal);
  }

  template <typename Formula>
  kernels::Status AddToF(const Formula& formula,
                         double* f,
                         const kernels::PcgScalars* scalars,
                         int max_columns = kernels::kAnyColumns) {
    return sums_.Add(rows_->f_lists(),
                     Formula::kPacked ? blocks_.f_matrices() : blocks_.f,
                     formula,
                     f,
                     scalars,
                     machine_,
                     max_columns);
  }

  template <typename Formula>
  kernels::Status AddToMerged(const Formula& formula, double* packed) {
    return sums_.Add(rows_->merged_lists(),
                     blocks_.f_matrices(),
                     formula,
                     packed,
                     nullptr,
                     machine_);
  }

  const kernels::BlockRows<Machine>* rows_ = nullptr;
  ProblemBlocks blocks_;
  double* values_ = nullptr;
  // True if an eliminated block has more than kFewEliminatedColumns columns.
  bool has_wide_e_ = false;
  Machine* machine_ = nullptr;
  typename Machine::template Buffer<double> y_;
  // L J, L b and c of L, of private blocks.
  typename Machine::template Buffer<double> nested_values_;
  typename Machine::template Buffer<double> nested_b_;
  typename Machine::template Buffer<double> private_c_;
  kernels::BlockSums<Machine> sums_;
  SchurSums<Machine> schur_sums_;
};

}  // namespace ceres_ext::solver

#endif  // CERES_EXT_SOLVER_GENERAL_BATCH_H_
