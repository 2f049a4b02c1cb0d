// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The exact solution of S z = s on a device (schur_cholesky.h): of a dense S by
// cuSOLVER, of a sparse one by cuDSS.
//
// Setup takes all memory. Two things come later: what cuDSS takes with the
// first factor, for which Setup makes sure that there is room, and a dense
// matrix that replaces a sparse one.
#ifndef CERES_EXT_SOLVER_CHOLESKY_DEVICE_SCHUR_CHOLESKY_H_
#define CERES_EXT_SOLVER_CHOLESKY_DEVICE_SCHUR_CHOLESKY_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ceres_ext/solver/batch.h"
#include "ceres_ext/solver/cholesky/factorization_cost.h"
#include "ceres_ext/solver/cholesky/factorized_schur.h"
#include "ceres_ext/solver/cholesky/sparse_factorization.h"
#include "ceres_ext/solver/step_options.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/cuda_cholesky.h"
#include "cuda_kernels/machine/cuda_machine.h"
#include "cuda_kernels/machine/cuda_sparse_cholesky.h"
#include "cuda_kernels/ops/vectors.h"

namespace ceres_ext::solver {

class DeviceSchurCholesky : public FactorizedSchur<kernels::CudaMachine> {
 public:
  // f_varies: of each value of F, in host memory, whether it is an unknown. The
  // library for sparse matrices of the host has no use here. context: whose
  // threads list pairs, or null. kUnsupported: a
  // library is missing, or ExplicitSchur does not support the problem.
  // kOutOfMemory: with kAuto, neither matrix has room.
  kernels::Status Setup(const StepOptions& options,
                        const ProblemBlocks& blocks,
                        const std::vector<Batch*>& batches,
                        const std::vector<unsigned char>& f_varies,
                        const std::shared_ptr<SparseFactorization>& /*sparse*/,
                        kernels::CudaMachine* machine,
                        kernels::HostContext* context) {
    CERES_EXT_RETURN_IF_ERROR(SetupDiagonal(blocks, machine));
    CERES_EXT_RETURN_IF_ERROR(Prepare(batches, f_varies, context));
    is_float_ = false;
    is_rough_ = false;
    if (options.factorization == Factorization::kSparse) {
      return SetupSparse(f_varies);
    }
    const bool may_be_sparse = options.factorization == Factorization::kAuto &&
                               !options.use_mixed_precision_solves &&
                               kernels::CudaSparseCholesky::Available().ok();
    kernels::Status status = SetupFaster(options, f_varies, may_be_sparse);
    if (!may_be_sparse || (status.code != kernels::StatusCode::kOutOfMemory &&
                           status.code != kernels::StatusCode::kUnsupported)) {
      return status;
    }
    values_.Release();
    is_float_ = false;
    return SetupSparse(f_varies);
  }
  // The memory of the first factorisation: cuDSS takes a factor's memory with
  // the first one.
  int64_t bytes_to_come() const { return bytes_to_come_; }

  // True if Solve looks at S; else it only queues.
  bool waits() const { return size_.is_sparse || is_float_; }
  // True if the factor of the next step is of float.
  bool is_float() const { return is_float_; }
  // z = S^-1 s, vectors of F; columns that don't vary have step zero. Before z
  // is used CheckFactor is to say that it is the solution.
  kernels::Status Solve(const double* rhs, double* z) {
    if (size_.is_sparse) {
      int64_t failed_order = 0;
      CERES_EXT_RETURN_IF_ERROR(
          sparse_.Factorize(values_.data(), &failed_order));
      CERES_EXT_RETURN_IF_ERROR(CheckOrder(failed_order));
    } else if (is_float_) {
      int64_t failed_order = 0;
      CERES_EXT_RETURN_IF_ERROR(
          dense_.Factorize(values_.data(), &failed_order));
      is_rough_ = failed_order > 0;
      CERES_EXT_RETURN_IF_ERROR(CheckOrder(failed_order));
    } else {
      CERES_EXT_RETURN_IF_ERROR(dense_.QueueFactorization(values_.data()));
    }
    CERES_EXT_RETURN_IF_ERROR(Gather(rhs));
    const kernels::Status status = size_.is_sparse
                                       ? sparse_.Solve(x_.data(), x_.data())
                                       : dense_.Solve(x_.data(), x_.data());
    is_rough_ =
        is_float_ && status.code == kernels::StatusCode::kNumericalFailure;
    return status.ok() ? Scatter(z) : status;
  }
  // As HostSchurCholesky's. Waits. kDeviceError: also where a solution with the
  // factor, of ones, is wrong, as CheckFactor has it.
  kernels::Status Factorize() {
    is_inverted_ = false;
    int64_t failed_order = 0;
    CERES_EXT_RETURN_IF_ERROR(
        size_.is_sparse ? sparse_.Factorize(values_.data(), &failed_order)
                        : dense_.Factorize(values_.data(), &failed_order));
    CERES_EXT_RETURN_IF_ERROR(CheckOrder(failed_order));
    const std::vector<double> ones(static_cast<size_t>(num_unknowns_), 1.0);
    CERES_EXT_RETURN_IF_ERROR(
        machine_->Upload(num_unknowns_, ones.data(), x_.data()));
    if (size_.is_sparse) {
      CERES_EXT_RETURN_IF_ERROR(sparse_.Solve(x_.data(), x_.data()));
      return sparse_.CheckSolution();
    }
    CERES_EXT_RETURN_IF_ERROR(dense_.Solve(x_.data(), x_.data()));
    return dense_.CheckSolution();
  }
  kernels::Status SolveColumns(int64_t num_columns,
                               bool /*only_from_first*/,
                               double* x,
                               double* work) {
    if (!NeedsWork()) {
      return dense_.SolveColumns(num_columns, x, x);
    }
    CERES_EXT_RETURN_IF_ERROR(Run(
        kernels::CopyParams{num_unknowns_ * num_columns, x, work}, machine_));
    if (!size_.is_sparse) {
      return dense_.SolveColumns(num_columns, work, x);
    }
    return sparse_.SolveColumns(num_columns, work, x);
  }
  bool NeedsWork() const { return size_.is_sparse || is_inverted_; }
  // True if Invert is at least as fast for that many blocks of S^-1.
  bool ShouldInvert(int64_t /*num_blocks*/) const { return !size_.is_sparse; }
  // S^-1 replaces a dense factor, until S is factorised again.
  kernels::Status Invert() {
    is_inverted_ = true;
    return dense_.Invert();
  }
  // Memory of Invert until it is done.
  int64_t inversion_bytes() const {
    return size_.is_sparse
               ? 0
               : kernels::CudaDenseCholesky::InversionBytes(num_unknowns_);
  }
  // Null where Invert was not called.
  SchurInverse inverse() const {
    return is_inverted_
               ? SchurInverse{values_.data(),
                              kernels::CudaDenseCholesky::Stride(num_unknowns_)}
               : SchurInverse();
  }
  // After queued work. kNumericalFailure names the column where S is not
  // positive definite. kDeviceError: also where z is not the solution, which
  // the library has not noticed.
  kernels::Status CheckFactor() {
    if (size_.is_sparse) {
      return sparse_.CheckSolution();
    }
    int64_t failed_order = 0;
    CERES_EXT_RETURN_IF_ERROR(dense_.ReadFailedOrder(&failed_order));
    CERES_EXT_RETURN_IF_ERROR(CheckOrder(failed_order));
    return dense_.CheckSolution();
  }
  // True if CheckFactor has found that of a sparse matrix, or Solve that a
  // factor of float won't do.
  bool ShouldReplace() const {
    return is_rough_ || (size_.is_sparse && sparse_.solution_is_wrong());
  }
  // Factorises a dense matrix in double from now on, in place of a sparse one
  // or of one in float. S is to be written again. kUnsupported: it was such a
  // one. After an error there is no matrix.
  kernels::Status Replace() {
    if (is_float_) {
      is_float_ = false;
      is_rough_ = false;
      size_.is_float = false;
      return dense_.Setup(num_unknowns_, {}, machine_);
    }
    if (!size_.is_sparse) {
      return {kernels::StatusCode::kUnsupported,
              "There is no sparse matrix to replace."};
    }
    const int64_t stride = kernels::CudaDenseCholesky::Stride(num_unknowns_);
    sparse_.Release();
    values_.Release();
    schur_.SetupDense(stride);
    // It counts for the limit.
    machine_->context()->ReleaseKeptMemory();
    int64_t of_factor = 0;
    CERES_EXT_RETURN_IF_ERROR(
        dense_.ForecastBytes(num_unknowns_, {}, machine_, &of_factor));
    CERES_EXT_RETURN_IF_ERROR(machine_->context()->CheckLimit(
        machine_->bytes() + of_factor + kDouble * stride * num_unknowns_));
    return SetupDense({});
  }

 private:
  static constexpr int64_t kDouble = sizeof(double);

  // Dense, where there is room, unless `may_be_sparse` and that is faster.
  kernels::Status SetupFaster(const StepOptions& options,
                              const std::vector<unsigned char>& f_varies,
                              bool may_be_sparse) {
    kernels::CudaDenseCholesky::Options of_cholesky;
    of_cholesky.mixed_precision = options.use_mixed_precision_solves;
    of_cholesky.max_num_refinement_iterations =
        options.max_num_refinement_iterations;
    is_float_ = options.prefers_float_factor && !options.wants_columns &&
                !of_cholesky.mixed_precision;
    if (is_float_) {
      of_cholesky.mixed_precision = true;
      of_cholesky.conjugate_gradients = true;
    }
    const int64_t n = num_unknowns_;
    const int64_t stride = kernels::CudaDenseCholesky::Stride(n);
    int64_t of_factor = 0;
    CERES_EXT_RETURN_IF_ERROR(
        dense_.ForecastBytes(n, of_cholesky, machine_, &of_factor));
    if (options.wants_columns) {
      of_factor += kernels::CudaDenseCholesky::InversionBytes(n);
    }
    const int64_t of_matrix = kDouble * stride * n;
    CERES_EXT_RETURN_IF_ERROR(CheckRoom(of_matrix, of_factor));
    CERES_EXT_RETURN_IF_ERROR(schur_.Setup(f_varies.data()));
    if (may_be_sparse && !options.wants_columns &&
        SparseMayBeFaster(n, schur_.EstimateNumValues(), options.rates)) {
      kernels::Status status = AnalyzeSparse();
      if (status.ok() && SparseIsFaster(n,
                                        sparse_.num_factor_values(),
                                        sparse_.num_flops(),
                                        options.rates)) {
        status = MakeRoomForFactor();
        if (status.ok()) {
          is_float_ = false;
          return {};
        }
      }
      // If cuDSS does not support something, a dense factorisation replaces it.
      if (!status.ok() && !machine_->context()->IsAlive()) {
        return status;
      }
      sparse_.Release();
      values_.Release();
    }
    return SetupDense(of_cholesky);
  }
  kernels::Status SetupDense(
      const kernels::CudaDenseCholesky::Options& of_cholesky) {
    const int64_t n = num_unknowns_;
    const int64_t stride = kernels::CudaDenseCholesky::Stride(n);
    schur_.SetupDense(stride);
    CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(stride * n, &values_));
    SetSize();
    size_.is_float = of_cholesky.mixed_precision;
    return dense_.Setup(n, of_cholesky, machine_);
  }

  kernels::Status SetupSparse(const std::vector<unsigned char>& f_varies) {
    CERES_EXT_RETURN_IF_ERROR(kernels::CudaSparseCholesky::Available());
    if (schur_.is_prepared()) {
      CERES_EXT_RETURN_IF_ERROR(CheckRoom(0, 0));
      CERES_EXT_RETURN_IF_ERROR(schur_.Setup(f_varies.data()));
    }
    CERES_EXT_RETURN_IF_ERROR(AnalyzeSparse());
    return MakeRoomForFactor();
  }
  // When what S is summed from is there.
  kernels::Status AnalyzeSparse() {
    kernels::LowerCsr pattern;
    CERES_EXT_RETURN_IF_ERROR(SetupPattern(&pattern));
    bytes_before_analysis_ = machine_->bytes();
    CERES_EXT_RETURN_IF_ERROR(
        sparse_.Analyze(pattern, values_.data(), machine_));
    SetSize();
    size_.num_factor_values = sparse_.num_factor_values();
    return {};
  }
  // Makes sure that the memory is available that is needed beside the memory of
  // the analysis.
  kernels::Status MakeRoomForFactor() {
    bytes_to_come_ =
        std::max(int64_t{0},
                 bytes_before_analysis_ + sparse_.peak_device_bytes() -
                     machine_->bytes());
    Buffer<unsigned char> room;
    return machine_->Allocate(bytes_to_come_, &room);
  }

  // kOutOfMemory where the limit is below what matrix and factor need, or what
  // they are summed from while that is listed.
  kernels::Status CheckRoom(int64_t of_matrix, int64_t of_factor) {
    int64_t of_schur = 0;
    int64_t of_building = 0;
    CERES_EXT_RETURN_IF_ERROR(schur_.ForecastBytes(&of_schur, &of_building));
    const kernels::Status status = machine_->context()->CheckLimit(
        machine_->bytes() + of_schur +
        std::max(of_matrix + of_factor, of_building));
    if (status.ok()) {
      return {};
    }
    return {status.code,
            status.message.substr(0, status.message.size() - 1) + "; " +
                std::to_string(of_matrix) +
                " are for the Schur complement as a matrix of " +
                std::to_string(num_unknowns_) + " columns, " +
                std::to_string(of_schur) + " for what it is summed from and " +
                std::to_string(of_building) + " more until that is listed, " +
                std::to_string(of_factor) + " for its factor."};
  }

  int64_t bytes_to_come_ = 0;
  int64_t bytes_before_analysis_ = 0;
  bool is_inverted_ = false;
  bool is_float_ = false;  // StepOptions::prefers_float_factor
  bool is_rough_ = false;  // The factor of float won't do.
  kernels::CudaDenseCholesky dense_;
  kernels::CudaSparseCholesky sparse_;
};

}  // namespace ceres_ext::solver

#endif  // CERES_EXT_SOLVER_CHOLESKY_DEVICE_SCHUR_CHOLESKY_H_
