// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The exact solution of S z = s by a Cholesky factorisation of S as a matrix
// (explicit_schur.h), on a device, of a dense one by cuSOLVER or of a sparse
// one by cuDSS.
//
//   SchurCholesky<CudaMachine> cholesky;
//   Status status = cholesky.Setup(options, blocks, batches, varies, &machine);
//   // per solve, after SchurComplement::Update with WantedBlocks():
//   if (status.ok()) status = cholesky.Write(system, schur.e_matrices());
//   if (status.ok()) status = cholesky.Solve(rhs, z);
//   if (status.ok()) status = cholesky.CheckFactor();
//   if (cholesky.sparse_is_wrong()) status = cholesky.ReplaceSparse();
//
// Setup takes all memory, but for what cuDSS takes with the first factor, for
// which Setup makes sure that there is room, and for a dense matrix that
// replaces a sparse one.
#ifndef CERES_EXT_SOLVER_SCHUR_CHOLESKY_H_
#define CERES_EXT_SOLVER_SCHUR_CHOLESKY_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "ceres_ext/solver/batch.h"
#include "ceres_ext/solver/explicit_schur.h"
#include "ceres_ext/solver/factorization_cost.h"
#include "ceres_ext/solver/inexact_solver_options.h"
#include "ceres_ext/solver/linear_operator.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/cuda_cholesky.h"
#include "cuda_kernels/machine/cuda_machine.h"
#include "cuda_kernels/machine/cuda_process.h"
#include "cuda_kernels/machine/cuda_sparse_cholesky.h"
#include "cuda_kernels/ops/manifolds.h"

namespace ceres_ext::solver {

template <typename Machine>
class SchurCholesky {
 public:
  // f_varies: of each value of F, in host memory, whether it is an unknown.
  // kUnsupported: the host, a library that is not there, or what ExplicitSchur
  // can't do. kOutOfMemory: with kAuto, neither matrix has room.
  kernels::Status Setup(const InexactSolverOptions& options,
                        const ProblemBlocks& blocks,
                        const std::vector<Batch*>& batches,
                        const std::vector<unsigned char>& f_varies,
                        Machine* machine) {
    if constexpr (!kHasFactorization) {
      return {kernels::StatusCode::kUnsupported,
              "There is no factorisation on the host."};
    } else {
      machine_ = machine;
      blocks_ = blocks;
      bytes_before_ = machine->bytes();
      CERES_EXT_RETURN_IF_ERROR(schur_.Prepare(blocks, batches, machine));
      CERES_EXT_RETURN_IF_ERROR(
          machine->Allocate(blocks.f.num_packed(), &schur_diagonal_));
      num_unknowns_ = std::count(
          f_varies.begin(), f_varies.end(), static_cast<unsigned char>(1));
      CERES_EXT_RETURN_IF_ERROR(machine->Allocate(num_unknowns_, &x_));
      if (options.factorization == Factorization::kSparse) {
        return SetupSparse(f_varies);
      }
      const bool may_be_sparse =
          options.factorization == Factorization::kAuto &&
          !options.use_mixed_precision_solves &&
          kernels::CudaSparseCholesky::Available().ok();
      const kernels::Status status =
          SetupFaster(options, f_varies, may_be_sparse);
      if (!may_be_sparse ||
          (status.code != kernels::StatusCode::kOutOfMemory &&
           status.code != kernels::StatusCode::kUnsupported)) {
        return status;
      }
      values_.Release();
      return SetupSparse(f_varies);
    }
  }
  // What Setup has come to hold, as it was known before most of it was taken.
  int64_t forecast_bytes() const { return forecast_bytes_; }
  // In all, while Setup lists what S is summed from.
  int64_t build_forecast_bytes() const { return build_forecast_bytes_; }

  // The diagonal blocks of S.
  NormalBlocksRequest WantedBlocks() {
    NormalBlocksRequest wanted;
    wanted.schur_diagonal = schur_diagonal_.data();
    return wanted;
  }

  const SchurMatrixSize& size() const { return size_; }

  // Forms S.
  kernels::Status Write(const LinearSystem& system, const double* v_inverse) {
    if constexpr (kHasFactorization) {
      ExplicitSchurRequest request;
      request.v_inverse = v_inverse;
      request.schur_diagonal = schur_diagonal_.data();
      request.f_diagonal = system.f_diagonal;
      request.is_same_linearization = system.is_same_linearization;
      CERES_EXT_RETURN_IF_ERROR(schur_.Write(request, values_.data()));
    }
    return {};
  }
  // There is another Jacobian.
  void Forget() {
    if constexpr (kHasFactorization) {
      schur_.Forget();
    }
  }

  // z = S^-1 s, vectors of F; columns that don't vary have step zero. Before z
  // is used CheckFactor is to say that it is the solution.
  kernels::Status Solve(const double* rhs, double* z) {
    if constexpr (!kHasFactorization) {
      return {};
    } else {
      if (size_.is_sparse) {
        int64_t failed_order = 0;
        CERES_EXT_RETURN_IF_ERROR(
            sparse_.Factorize(values_.data(), &failed_order));
        CERES_EXT_RETURN_IF_ERROR(CheckOrder(failed_order));
      } else {
        CERES_EXT_RETURN_IF_ERROR(dense_.QueueFactorization(values_.data()));
      }
      const int64_t n = num_unknowns_;
      const int64_t* const column = schur_.unknowns().view().column;
      CERES_EXT_RETURN_IF_ERROR(Run(
          kernels::GatherValuesParams{n, column, rhs, x_.data()}, machine_));
      CERES_EXT_RETURN_IF_ERROR(size_.is_sparse
                                    ? sparse_.Solve(x_.data(), x_.data())
                                    : dense_.Solve(x_.data(), x_.data()));
      CERES_EXT_RETURN_IF_ERROR(machine_->SetZero(blocks_.f.num_values(), z));
      return Run(kernels::ScatterValuesParams{n, column, x_.data(), z},
                 machine_);
    }
  }
  // After queued work. kNumericalFailure names the column where S is not
  // positive definite. kDeviceError: also where z is not the solution, which
  // the library has not noticed.
  kernels::Status CheckFactor() {
    if constexpr (kHasFactorization) {
      if (size_.is_sparse) {
        return sparse_.CheckSolution();
      }
      int64_t failed_order = 0;
      CERES_EXT_RETURN_IF_ERROR(dense_.ReadFailedOrder(&failed_order));
      CERES_EXT_RETURN_IF_ERROR(CheckOrder(failed_order));
      return dense_.CheckSolution();
    }
    return {};
  }
  // Whether CheckFactor has found that of a sparse matrix.
  bool sparse_is_wrong() const {
    if constexpr (kHasFactorization) {
      return size_.is_sparse && sparse_.solution_is_wrong();
    }
    return false;
  }
  // Factorises a dense matrix from now on, in place of a sparse one. S is to be
  // written again. kUnsupported: it was dense. After an error there is no
  // matrix.
  kernels::Status ReplaceSparse() {
    if constexpr (kHasFactorization) {
      if (size_.is_sparse) {
        const int64_t stride =
            kernels::CudaDenseCholesky::Stride(num_unknowns_);
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
    }
    return {kernels::StatusCode::kUnsupported,
            "There is no sparse matrix to replace."};
  }

 private:
  // Not of machines that replace operations of the device.
  static constexpr bool kHasFactorization =
      std::is_same_v<Machine, kernels::CudaMachine>;
  struct None {};
  template <typename T>
  using IfAny = std::conditional_t<kHasFactorization, T, None>;
  template <typename T>
  using Buffer = typename Machine::template Buffer<T>;
  static constexpr int64_t kDouble = sizeof(double);

  // Dense, where there is room, unless `may_be_sparse` and that is faster.
  kernels::Status SetupFaster(const InexactSolverOptions& options,
                              const std::vector<unsigned char>& f_varies,
                              bool may_be_sparse) {
    kernels::CudaDenseCholesky::Options of_cholesky;
    of_cholesky.mixed_precision = options.use_mixed_precision_solves;
    of_cholesky.max_num_refinement_iterations =
        options.max_num_refinement_iterations;
    const int64_t n = num_unknowns_;
    const int64_t stride = kernels::CudaDenseCholesky::Stride(n);
    int64_t of_factor = 0;
    CERES_EXT_RETURN_IF_ERROR(
        dense_.ForecastBytes(n, of_cholesky, machine_, &of_factor));
    const int64_t of_matrix = kDouble * stride * n;
    CERES_EXT_RETURN_IF_ERROR(CheckRoom(of_matrix, of_factor));
    CERES_EXT_RETURN_IF_ERROR(SetupSums(f_varies));
    forecast_bytes_ = of_sums_ + of_matrix + of_factor;
    const int ratio =
        kernels::FloatToDoubleRatio(machine_->context()->device());
    if (may_be_sparse &&
        SparseMayBeFaster(n, schur_.EstimateNumValues(), ratio)) {
      const int64_t of_dense = forecast_bytes_;
      kernels::Status status = AnalyzeSparse();
      if (status.ok() &&
          SparseIsFaster(
              n, sparse_.num_factor_values(), sparse_.num_flops(), ratio)) {
        status = MakeRoomForFactor();
        if (status.ok()) {
          return {};
        }
      }
      // Whatever cuDSS does not do, a dense one does without it.
      if (!status.ok() && !machine_->context()->IsAlive()) {
        return status;
      }
      sparse_.Release();
      values_.Release();
      forecast_bytes_ = of_dense;
    }
    return SetupDense(of_cholesky);
  }
  kernels::Status SetupDense(
      const kernels::CudaDenseCholesky::Options& of_cholesky) {
    const int64_t n = num_unknowns_;
    const int64_t stride = kernels::CudaDenseCholesky::Stride(n);
    schur_.SetupDense(stride);
    CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(stride * n, &values_));
    size_ = schur_.size();
    size_.is_factorized = true;
    return dense_.Setup(n, of_cholesky, machine_);
  }

  kernels::Status SetupSparse(const std::vector<unsigned char>& f_varies) {
    CERES_EXT_RETURN_IF_ERROR(kernels::CudaSparseCholesky::Available());
    if (schur_.is_prepared()) {
      CERES_EXT_RETURN_IF_ERROR(CheckRoom(0, 0));
      CERES_EXT_RETURN_IF_ERROR(SetupSums(f_varies));
    }
    CERES_EXT_RETURN_IF_ERROR(AnalyzeSparse());
    return MakeRoomForFactor();
  }
  // What S is summed from, of which CheckRoom knew the most bytes.
  kernels::Status SetupSums(const std::vector<unsigned char>& f_varies) {
    CERES_EXT_RETURN_IF_ERROR(schur_.Setup(f_varies.data()));
    of_sums_ = machine_->bytes() - bytes_before_;
    return {};
  }
  // After SetupSums.
  kernels::Status AnalyzeSparse() {
    CERES_EXT_RETURN_IF_ERROR(schur_.SetupSparse());
    CERES_EXT_RETURN_IF_ERROR(schur_.SetupColumns());
    const auto& csr = schur_.csr();
    CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(csr.num_values(), &values_));
    CERES_EXT_RETURN_IF_ERROR(
        machine_->SetZero(values_.size(), values_.data()));
    kernels::LowerCsr pattern;
    pattern.n = num_unknowns_;
    pattern.num_values = csr.num_values();
    pattern.row_begin = csr.row_begin();
    pattern.column = csr.column();
    bytes_before_analysis_ = machine_->bytes();
    CERES_EXT_RETURN_IF_ERROR(
        sparse_.Analyze(pattern, values_.data(), machine_));
    size_ = schur_.size();
    size_.is_factorized = true;
    size_.num_factor_values = sparse_.num_factor_values();
    // The matrix, its pattern, and what the factor will take.
    forecast_bytes_ = of_sums_ + kDouble * values_.size() + csr.num_bytes() +
                      sparse_.peak_device_bytes();
    return {};
  }
  // What is to come beside what the analysis keeps: makes sure that it is
  // there.
  kernels::Status MakeRoomForFactor() {
    Buffer<unsigned char> room;
    return machine_->Allocate(
        std::max(int64_t{0},
                 bytes_before_analysis_ + sparse_.peak_device_bytes() -
                     machine_->bytes()),
        &room);
  }

  // kOutOfMemory where the limit is below what matrix and factor need, or what
  // they are summed from while that is listed.
  kernels::Status CheckRoom(int64_t of_matrix, int64_t of_factor) {
    int64_t of_schur = 0;
    int64_t of_building = 0;
    CERES_EXT_RETURN_IF_ERROR(schur_.ForecastBytes(&of_schur, &of_building));
    build_forecast_bytes_ = machine_->bytes() + of_schur + of_building;
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

  // failed_order: of a factorisation; 0: it has worked.
  kernels::Status CheckOrder(int64_t failed_order) const {
    if (failed_order == 0) {
      return {};
    }
    const int64_t unknown = failed_order - 1;
    std::string where;
    if (unknown >= 0) {
      const auto place =
          blocks_.f.PlaceOf(schur_.unknowns().host_column()[unknown]);
      where = " at column " + std::to_string(place.column) + " of block " +
              std::to_string(place.block) +
              " of those that are not eliminated and have " +
              std::to_string(blocks_.f[place.family].size) + " columns";
    }
    return {kernels::StatusCode::kNumericalFailure,
            "The Schur complement is not positive definite" + where + "."};
  }

  Machine* machine_ = nullptr;
  ProblemBlocks blocks_;
  IfAny<ExplicitSchur<Machine>> schur_;
  SchurMatrixSize size_;
  int64_t num_unknowns_ = 0;
  int64_t bytes_before_ = 0;
  int64_t of_sums_ = 0;  // bytes, of all but matrix and factor
  int64_t forecast_bytes_ = 0;
  int64_t build_forecast_bytes_ = 0;
  int64_t bytes_before_analysis_ = 0;
  Buffer<double> schur_diagonal_;
  Buffer<double> x_;       // of the unknowns
  Buffer<double> values_;  // S, of a dense one then its factor
  IfAny<kernels::CudaDenseCholesky> dense_;
  IfAny<kernels::CudaSparseCholesky> sparse_;
};

}  // namespace ceres_ext::solver

#endif  // CERES_EXT_SOLVER_SCHUR_CHOLESKY_H_
