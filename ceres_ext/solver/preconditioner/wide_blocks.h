// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Inverses of wide blocks of a block diagonal preconditioner. InvertBlocks
// (cuda_kernels/ops/block_rows.h) inverts a block by one thread, element by
// element; the host factorises wide ones by tiles, on all threads. Decide keeps
// wide blocks from devices (plan/solve_plan.cc).
#ifndef CERES_EXT_SOLVER_PRECONDITIONER_WIDE_BLOCKS_H_
#define CERES_EXT_SOLVER_PRECONDITIONER_WIDE_BLOCKS_H_

#include <algorithm>
#include <cstdint>
#include <map>

#include "cuda_kernels/base/buffer.h"
#include "cuda_kernels/base/small_matrix.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/host_cholesky.h"
#include "cuda_kernels/machine/host_machine.h"
#include "cuda_kernels/ops/block_rows.h"

namespace ceres_ext::solver {

template <typename Machine>
class WideBlocks {
 public:
  static constexpr bool IsWide(int /*columns*/) { return false; }
  kernels::Status Reserve(int /*columns*/, Machine* /*machine*/) { return {}; }
  kernels::Status Invert(
      const kernels::InvertBlocksParams<kernels::kDynamic>& /*params*/) {
    return {};
  }
};

template <>
class WideBlocks<kernels::HostMachine> {
 public:
  static constexpr bool IsWide(int columns) { return columns > kMostNarrow; }

  // Takes the memory for wide blocks of a size.
  kernels::Status Reserve(int columns, kernels::HostMachine* machine) {
    machine_ = machine;
    const int64_t size = columns * Cholesky::Stride(columns);
    if (matrix_.size() < size) {
      CERES_EXT_RETURN_IF_ERROR(machine->Allocate(size, &matrix_));
    }
    const auto [cholesky, is_new] = cholesky_.try_emplace(columns);
    return is_new ? cholesky->second.Setup(columns, machine)
                  : kernels::Status();
  }

  // Does what Run(params) does, except for rounding, for a reserved size.
  // may_be_diagonal is set, and inverse is not A.
  kernels::Status Invert(
      const kernels::InvertBlocksParams<kernels::kDynamic>& params) {
    Cholesky& cholesky = cholesky_.at(params.columns);
    for (int64_t block = 0; block < params.n; ++block) {
      const double* const d = params.diagonal == nullptr
                                  ? nullptr
                                  : params.diagonal + block * params.columns;
      Unpack(params, block, d);
      int64_t failed_order = 0;
      CERES_EXT_RETURN_IF_ERROR(cholesky.QueueFactorization(matrix_.data()));
      CERES_EXT_RETURN_IF_ERROR(cholesky.ReadFailedOrder(&failed_order));
      if (failed_order == 0) {
        CERES_EXT_RETURN_IF_ERROR(cholesky.Invert());
        Pack(params, block);
      } else if (!InvertDiagonal(params, block, d)) {
        *params.first_breakdown =
            std::min(*params.first_breakdown, static_cast<int32_t>(block));
      }
    }
    return {};
  }

 private:
  using Cholesky = kernels::HostDenseCholesky;
  // Threads take narrow blocks one each. On one thread (Xeon) a block of 128
  // columns takes 1.0 ms, and 0.19 by tiles; one of 400 takes 33, and 2.9.
  static constexpr int kMostNarrow = 128;
  static constexpr int64_t kColumnsPerTask = 16;

  // A + D^2, the lower triangle column by column, with ones for columns that
  // are zero.
  void Unpack(const kernels::InvertBlocksParams<kernels::kDynamic>& params,
              int64_t block,
              const double* d) {
    const int n = params.columns;
    const int64_t stride = Cholesky::Stride(n);
    const kernels::StridedMatrix<const double> a = params.a.Matrix(block);
    machine_->context()->ParallelFor(
        n, kColumnsPerTask, [&](int64_t begin, int64_t end) {
          const auto first = static_cast<int>(begin);
          const auto last = static_cast<int>(end);
          for (int i = first; i < n; ++i) {
            for (int j = first; j < std::min(i + 1, last); ++j) {
              matrix_.data()[j * stride + i] = a[kernels::PackedIndex(i, j)];
            }
          }
          for (int j = first; j < last; ++j) {
            double* const column = matrix_.data() + j * stride;
            std::fill(column + n, column + stride, 0.0);
            column[j] += d == nullptr ? 0.0 : d[j] * d[j];
            column[j] = column[j] == 0.0 ? 1.0 : column[j];
          }
        });
  }

  void Pack(const kernels::InvertBlocksParams<kernels::kDynamic>& params,
            int64_t block) {
    const int64_t stride = Cholesky::Stride(params.columns);
    const kernels::StridedMatrix<double> to = params.inverse.Matrix(block);
    machine_->context()->ParallelFor(
        params.columns, kColumnsPerTask, [&](int64_t begin, int64_t end) {
          for (auto i = static_cast<int>(begin); i < end; ++i) {
            // Both triangles are there; this one's rows are contiguous.
            const double* const row = matrix_.data() + i * stride;
            for (int j = 0; j <= i; ++j) {
              to[kernels::PackedIndex(i, j)] = row[j];
            }
          }
        });
  }

  static bool InvertDiagonal(
      const kernels::InvertBlocksParams<kernels::kDynamic>& params,
      int64_t block,
      const double* d) {
    const kernels::StridedMatrix<double> to = params.inverse.Matrix(block);
    for (int i = 0; i < params.columns; ++i) {
      const int at = kernels::PackedIndex(i, i);
      to[at] = params.a(block, at) + (d == nullptr ? 0.0 : d[i] * d[i]);
    }
    return kernels::InvertDiagonal<kernels::kDynamic>(d, to, params.columns);
  }

  kernels::HostMachine* machine_ = nullptr;
  kernels::HostMachine::Buffer<double> matrix_;  // of the widest block
  std::map<int, Cholesky> cholesky_;             // by columns
};

}  // namespace ceres_ext::solver

#endif  // CERES_EXT_SOLVER_PRECONDITIONER_WIDE_BLOCKS_H_
