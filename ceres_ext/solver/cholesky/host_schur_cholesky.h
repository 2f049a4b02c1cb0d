// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The exact solution of S z = s on the host, with the members of
// DeviceSchurCholesky: of a dense S by HostDenseCholesky, of a sparse one by a
// library that the caller brings (sparse_factorization.h).
#ifndef CERES_EXT_SOLVER_CHOLESKY_HOST_SCHUR_CHOLESKY_H_
#define CERES_EXT_SOLVER_CHOLESKY_HOST_SCHUR_CHOLESKY_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "ceres_ext/solver/batch.h"
#include "ceres_ext/solver/cholesky/factorization_cost.h"
#include "ceres_ext/solver/cholesky/factorized_schur.h"
#include "ceres_ext/solver/cholesky/sparse_factorization.h"
#include "ceres_ext/solver/step_options.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/host_cholesky.h"
#include "cuda_kernels/machine/host_machine.h"
#include "cuda_kernels/ops/vectors.h"

namespace ceres_ext::solver {

class HostSchurCholesky : public FactorizedSchur<kernels::HostMachine> {
 public:
  // f_varies: of each value of F whether it is an unknown. sparse: null if
  // there is no library. context: whose threads list pairs, or null.
  // kUnsupported: what ExplicitSchur can't do, or a sparse
  // matrix without a library.
  kernels::Status Setup(const StepOptions& options,
                        const ProblemBlocks& blocks,
                        const std::vector<Batch*>& batches,
                        const std::vector<unsigned char>& f_varies,
                        std::shared_ptr<SparseFactorization> sparse,
                        kernels::HostMachine* machine,
                        kernels::HostContext* context) {
    sparse_ = std::move(sparse);
    if (options.factorization == Factorization::kSparse && sparse_ == nullptr) {
      return {kernels::StatusCode::kUnsupported,
              "There is no library for a sparse factorisation on the host."};
    }
    CERES_EXT_RETURN_IF_ERROR(SetupDiagonal(blocks, machine));
    CERES_EXT_RETURN_IF_ERROR(Prepare(batches, f_varies, context));
    CERES_EXT_RETURN_IF_ERROR(schur_.Setup(f_varies.data()));
    kernels::HostDenseCholesky::Tiles tiles;
    if (sparse_ != nullptr && num_unknowns_ > 0) {
      const bool is_chosen = options.factorization == Factorization::kSparse;
      if (is_chosen || MayBeSparse(options)) {
        kernels::LowerCsr pattern;
        CERES_EXT_RETURN_IF_ERROR(SetupPattern(&pattern));
        CERES_EXT_RETURN_IF_ERROR(
            sparse_->Analyze(pattern, schur_.unknowns().host_begin()));
        const FactorSize factor = sparse_->EstimateSize();
        if (is_chosen || SparseIsFaster(factor, pattern, &tiles)) {
          SetSize();
          size_.num_factor_values = static_cast<int64_t>(factor.num_values);
          return machine_->Allocate(num_unknowns_, &rhs_);
        }
        values_ = {};
      }
    }
    sparse_ = nullptr;
    const int64_t stride = kernels::HostDenseCholesky::Stride(num_unknowns_);
    schur_.SetupDense(stride, tiles);
    CERES_EXT_RETURN_IF_ERROR(
        machine->Allocate(stride * num_unknowns_, &values_));
    SetSize();
    return dense_.Setup(num_unknowns_, machine, std::move(tiles));
  }

  bool waits() const { return true; }
  // z = S^-1 s, vectors of F. kNumericalFailure: S is not positive definite.
  kernels::Status Solve(const double* rhs, double* z) {
    CERES_EXT_RETURN_IF_ERROR(Gather(rhs));
    CERES_EXT_RETURN_IF_ERROR(Factorize());
    if (sparse_ != nullptr) {
      std::swap(x_, rhs_);
      CERES_EXT_RETURN_IF_ERROR(sparse_->Solve(rhs_.data(), x_.data()));
    } else {
      CERES_EXT_RETURN_IF_ERROR(dense_.Solve(x_.data(), x_.data()));
    }
    return Scatter(z);
  }
  // The first half of Solve, for columns of S^-1.
  kernels::Status Factorize() {
    is_inverted_ = false;
    if (sparse_ != nullptr) {
      bool failed = false;
      CERES_EXT_RETURN_IF_ERROR(sparse_->Factorize(values_.data(), &failed));
      return CheckOrder(failed ? -1 : 0);
    }
    CERES_EXT_RETURN_IF_ERROR(dense_.QueueFactorization(values_.data()));
    int64_t failed_order = 0;
    CERES_EXT_RETURN_IF_ERROR(dense_.ReadFailedOrder(&failed_order));
    return CheckOrder(failed_order);
  }
  // x = S^-1 x of unknowns, num_unknowns() x num_columns values, column-major.
  // work: as many, of no meaning afterwards; null if NeedsWork is false.
  // only_from_first: HostDenseCholesky::SolveColumns.
  kernels::Status SolveColumns(int64_t num_columns,
                               bool only_from_first,
                               double* x,
                               double* work) {
    if (sparse_ == nullptr) {
      return dense_.SolveColumns(num_columns, only_from_first, x);
    }
    CERES_EXT_RETURN_IF_ERROR(Run(
        kernels::CopyParams{num_unknowns_ * num_columns, x, work}, machine_));
    for (int64_t c = 0; c < num_columns; ++c) {
      CERES_EXT_RETURN_IF_ERROR(
          sparse_->Solve(work + num_unknowns_ * c, x + num_unknowns_ * c));
    }
    return {};
  }
  bool NeedsWork() const { return sparse_ != nullptr; }
  // True if Invert is at least as fast for that many blocks of S^-1, of some 8
  // columns each. It takes 2/3 n^3 flops, solving for a column 2 n^2.
  bool ShouldInvert(int64_t num_blocks) const {
    return sparse_ == nullptr && 24 * num_blocks >= num_unknowns_;
  }
  // S^-1 replaces a dense factor, until S is factorised again.
  kernels::Status Invert() {
    CERES_EXT_RETURN_IF_ERROR(dense_.Invert());
    is_inverted_ = true;
    return {};
  }
  // Memory of Invert until it is done.
  int64_t inversion_bytes() const { return 0; }
  // Null where Invert was not called.
  SchurInverse inverse() const {
    return is_inverted_
               ? SchurInverse{values_.data(),
                              kernels::HostDenseCholesky::Stride(num_unknowns_)}
               : SchurInverse();
  }
  // Solve has said it.
  kernels::Status CheckFactor() { return {}; }
  bool ShouldReplace() const { return false; }
  kernels::Status Replace() {
    return {kernels::StatusCode::kUnsupported,
            "There is no sparse matrix to replace."};
  }

 private:
  // Before the pattern is listed. For covariances the inverse of a dense S of
  // fewer columns is faster than solving for columns by a sparse factor.
  bool MayBeSparse(const StepOptions& options) const {
    constexpr int64_t kDenseForColumns = 2000;
    return options.factorization == Factorization::kAuto &&
           !(options.wants_columns && num_unknowns_ <= kDenseForColumns) &&
           SparseMayBeFasterOnHost(num_unknowns_, schur_.EstimateNumValues());
  }
  // tiles: HostDenseSeconds.
  static bool SparseIsFaster(const FactorSize& factor,
                             const kernels::LowerCsr& pattern,
                             kernels::HostDenseCholesky::Tiles* tiles) {
    const double seconds = HostSparseSeconds(factor);
    return seconds < HostDenseSeconds(pattern, /*enough=*/seconds, tiles);
  }

  kernels::HostDenseCholesky dense_;
  bool is_inverted_ = false;
  std::shared_ptr<SparseFactorization> sparse_;  // null: dense
  Buffer<double> rhs_;                           // with sparse_
};

}  // namespace ceres_ext::solver

#endif  // CERES_EXT_SOLVER_CHOLESKY_HOST_SCHUR_CHOLESKY_H_
