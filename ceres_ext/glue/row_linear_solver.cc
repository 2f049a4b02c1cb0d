// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/glue/row_linear_solver.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "ceres/block_sparse_matrix.h"
#include "ceres/block_structure.h"
#include "ceres_ext/glue/batch_shape.h"
#include "ceres_ext/glue/step_vectors.h"
#include "ceres_ext/solver/inexact_solver.h"
#include "cuda_kernels/base/buffer.h"
#include "cuda_kernels/model/jacobian_source.h"

namespace ceres_ext {
namespace {

using ceres::internal::BlockSparseMatrix;
using ceres::internal::CompressedRowBlockStructure;
using ceres::internal::LinearSolver;
using ceres::internal::Program;
using kernels::Status;
using kernels::StatusCode;

// Observations that a thread imports at a time.
constexpr int64_t kGrain = 2048;

template <typename Machine, typename T, int C>
class RowLinearSolver final
    : public ceres::internal::TypedLinearSolver<BlockSparseMatrix> {
 public:
  RowLinearSolver(kernels::HostContext* host_context,
                  Machine* machine,
                  SolveRecord* record)
      : host_context_(host_context), machine_(machine), record_(record) {}

  Status Setup(
      const ceres_ext::Options& ext_options,
      const LinearSolver::Options& options,
      const Program& program,
      const BundleStructure& structure,
      const typename kernels::RowIndex<Machine>::Options& index_options) {
    CERES_EXT_RETURN_IF_ERROR(shape_.Setup(program.NumEffectiveParameters(),
                                           program.NumParameters(),
                                           structure,
                                           index_options,
                                           host_context_,
                                           machine_));
    const int64_t n = shape_.index().num_observations;
    const auto download = [this, n](const int32_t* from,
                                    kernels::HostBuffer<int32_t>* to) {
      const Status status = to->Allocate(n);
      return status.ok() ? machine_->Download(n, from, to->data()) : status;
    };
    CERES_EXT_RETURN_IF_ERROR(download(shape_.index().camera_id, &camera_id_));
    CERES_EXT_RETURN_IF_ERROR(download(shape_.index().point_id, &point_id_));
    CERES_EXT_RETURN_IF_ERROR(download(shape_.index().input_id, &input_id_));
    CERES_EXT_RETURN_IF_ERROR(camera_position_.Allocate(n, kNone));
    CERES_EXT_RETURN_IF_ERROR(point_position_.Allocate(n, kNone));

    CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(2 * C * n, &camera_blocks_));
    CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(6 * n, &point_blocks_));
    CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(2 * n, &b_));
    // Blocks that a row does not have stay zero.
    CERES_EXT_RETURN_IF_ERROR(
        machine_->SetZero(2 * C * n, camera_blocks_.data()));
    CERES_EXT_RETURN_IF_ERROR(machine_->SetZero(6 * n, point_blocks_.data()));
    if constexpr (!kIsHost<Machine>) {
      CERES_EXT_RETURN_IF_ERROR(staged_camera_blocks_.Allocate(2 * C * n, T()));
      CERES_EXT_RETURN_IF_ERROR(staged_point_blocks_.Allocate(6 * n, T()));
      CERES_EXT_RETURN_IF_ERROR(staged_b_.Allocate(2 * n));
      CERES_EXT_RETURN_IF_ERROR(
          machine_->Allocate(shape_.num_columns(), &diagonal_));
      CERES_EXT_RETURN_IF_ERROR(
          machine_->Allocate(shape_.num_columns(), &step_));
    }
    CERES_EXT_RETURN_IF_ERROR(vectors_.Allocate(&shape_));
    CERES_EXT_RETURN_IF_ERROR(
        solver_.Setup(ToInexactSolverOptions(ext_options, options),
                      shape_.index(),
                      machine_));
    record_->method = MethodName(ext_options, options);
    record_->memory_bytes = kIsHost<Machine>
                                ? shape_.bytes() + camera_blocks_.bytes() +
                                      point_blocks_.bytes() + b_.bytes() +
                                      vectors_.bytes() + solver_.bytes()
                                : machine_->bytes();
    return {};
  }

 private:
  // The position of a block that the matrix does not have.
  static constexpr int32_t kNone = -1;
  template <typename Value>
  using Buffer = typename Machine::template Buffer<Value>;
  using Source =
      kernels::StoredJacobian<T, kernels::BalShape<C>, Machine::kLayout>;

  LinearSolver::Summary SolveImpl(
      BlockSparseMatrix* A,
      const double* b,
      const LinearSolver::PerSolveOptions& per_solve_options,
      double* x) final {
    {
      ScopedSeconds timer(&record_->import_time_in_seconds);
      const Status status = Import(*A, b, per_solve_options.D);
      if (!status.ok()) {
        return FatalError(status);
      }
    }
    const int64_t n = shape_.index().num_observations;
    const solver::ObservationSystem<Source> system{
        {{camera_blocks_.data(), n}, {point_blocks_.data(), n}},
        b_.data(),
        vectors_.camera_diagonal(),
        vectors_.point_diagonal()};
    const solver::InexactSolverSummary summary = solver_.Solve(
        system,
        {per_solve_options.q_tolerance, per_solve_options.r_tolerance},
        vectors_.camera_step(),
        vectors_.point_step());
    const auto result = ToCeresSummary(summary, record_);
    const Status status = Export(x);
    return status.ok() ? result : FatalError(status);
  }

  // Where the cells of an observation stand in the values of the matrix. Rows
  // are residual blocks; columns are known by their first column.
  Status ReadStructure(const CompressedRowBlockStructure& structure) {
    if (has_positions_) {
      return {};
    }
    const int64_t n = shape_.index().num_observations;
    if (static_cast<int64_t>(structure.rows.size()) != n) {
      return {StatusCode::kInvalidArgument,
              "The Jacobian has " + std::to_string(structure.rows.size()) +
                  " row blocks for " + std::to_string(n) + " residual blocks."};
    }
    for (int64_t k = 0; k < n; ++k) {
      const int32_t input = input_id_.data()[k];
      const auto& row = structure.rows[input];
      const int camera_column =
          shape_.cameras().tangent_offset[camera_id_.data()[k]];
      const int point_column =
          shape_.points().tangent_offset[point_id_.data()[k]];
      bool known = row.block.size == 2 && row.block.position == 2 * input;
      for (const auto& cell : row.cells) {
        const auto& column = structure.cols[cell.block_id];
        if (column.position == camera_column) {
          camera_position_.data()[k] = cell.position;
        } else if (column.position == point_column) {
          point_position_.data()[k] = cell.position;
        } else {
          known = false;
        }
      }
      if (!known) {
        return {StatusCode::kInvalidArgument,
                "Row block " + std::to_string(input) +
                    " of the Jacobian is not that of its residual block."};
      }
    }
    has_positions_ = true;
    return {};
  }

  // Blocks and right-hand side into point order, D into padded vectors.
  Status Import(const BlockSparseMatrix& A, const double* b, const double* D) {
    CERES_EXT_RETURN_IF_ERROR(ReadStructure(*A.block_structure()));
    const int64_t n = shape_.index().num_observations;
    if constexpr (kIsHost<Machine>) {
      Pack(A.values(),
           b,
           {camera_blocks_.data(), n},
           {point_blocks_.data(), n},
           b_.data());
      return vectors_.SetDiagonal(D);
    } else {
      Pack(A.values(),
           b,
           {staged_camera_blocks_.data(), n},
           {staged_point_blocks_.data(), n},
           staged_b_.data());
      const auto upload = [this](const auto& staged, auto* buffer) {
        return machine_->Upload(staged.size(), staged.data(), buffer->data());
      };
      CERES_EXT_RETURN_IF_ERROR(upload(staged_camera_blocks_, &camera_blocks_));
      CERES_EXT_RETURN_IF_ERROR(upload(staged_point_blocks_, &point_blocks_));
      CERES_EXT_RETURN_IF_ERROR(upload(staged_b_, &b_));
      if (D == nullptr) {
        return vectors_.SetDiagonal(nullptr);
      }
      CERES_EXT_RETURN_IF_ERROR(
          machine_->Upload(shape_.num_columns(), D, diagonal_.data()));
      return vectors_.SetDiagonal(diagonal_.data());
    }
  }

  void Pack(const double* values,
            const double* b,
            kernels::BlockView<T, 2 * C, Machine::kLayout> camera_blocks,
            kernels::BlockView<T, 6, Machine::kLayout> point_blocks,
            double* packed_b) {
    // 2 x columns values, row-major, into 2 x padded.
    const auto copy = [values](int32_t position,
                               int columns,
                               int padded,
                               int64_t k,
                               const auto& blocks) {
      if (position == kNone) {
        return;
      }
      for (int row = 0; row < 2; ++row) {
        for (int j = 0; j < columns; ++j) {
          blocks(k, row * padded + j) =
              static_cast<T>(values[position + row * columns + j]);
        }
      }
    };
    host_context_->ParallelFor(
        shape_.index().num_observations,
        kGrain,
        [&](int64_t begin, int64_t end) {
          for (int64_t k = begin; k < end; ++k) {
            copy(camera_position_.data()[k],
                 shape_.cameras().tangent_size[camera_id_.data()[k]],
                 C,
                 k,
                 camera_blocks);
            copy(point_position_.data()[k],
                 shape_.points().tangent_size[point_id_.data()[k]],
                 3,
                 k,
                 point_blocks);
            std::copy_n(
                b + 2 * int64_t{input_id_.data()[k]}, 2, packed_b + 2 * k);
          }
        });
  }

  Status Export(double* x) {
    if constexpr (kIsHost<Machine>) {
      return vectors_.GetStep(x);
    } else {
      CERES_EXT_RETURN_IF_ERROR(vectors_.GetStep(step_.data()));
      return machine_->Download(shape_.num_columns(), step_.data(), x);
    }
  }

  kernels::HostContext* host_context_;
  Machine* machine_;
  SolveRecord* record_;
  BatchShape<Machine> shape_;
  bool has_positions_ = false;
  // Per observation of the index, in host memory.
  kernels::HostBuffer<int32_t> camera_id_;
  kernels::HostBuffer<int32_t> point_id_;
  kernels::HostBuffer<int32_t> input_id_;
  kernels::HostBuffer<int32_t> camera_position_;
  kernels::HostBuffer<int32_t> point_position_;
  Buffer<T> camera_blocks_;
  Buffer<T> point_blocks_;
  Buffer<double> b_;
  // What crosses to a device and back.
  kernels::HostBuffer<T> staged_camera_blocks_;
  kernels::HostBuffer<T> staged_point_blocks_;
  kernels::HostBuffer<double> staged_b_;
  Buffer<double> diagonal_;
  Buffer<double> step_;
  StepVectors<Machine> vectors_;
  solver::InexactSolver<Machine, Source> solver_;
};

}  // namespace

template <typename Machine>
std::unique_ptr<LinearSolver> CreateRowLinearSolver(
    const Options& ext_options,
    const LinearSolver::Options& options,
    const Program& program,
    const typename kernels::RowIndex<Machine>::Options& index_options,
    kernels::HostContext* host_context,
    Machine* machine,
    SolveRecord* record,
    std::string* reason) {
  BundleStructure structure;
  const int num_eliminate_blocks = options.type == ceres::ITERATIVE_SCHUR
                                       ? options.elimination_groups[0]
                                       : 0;
  if (!ImportRows(
          program, num_eliminate_blocks, host_context, &structure, reason)) {
    return nullptr;
  }
  const auto create = [&](auto value,
                          auto columns) -> std::unique_ptr<LinearSolver> {
    auto linear_solver = std::make_unique<
        RowLinearSolver<Machine, decltype(value), decltype(columns)::value>>(
        host_context, machine, record);
    const Status status = linear_solver->Setup(
        ext_options, options, program, structure, index_options);
    if (!status.ok()) {
      *reason = status.message;
      return nullptr;
    }
    return linear_solver;
  };
  using Nine = std::integral_constant<int, 9>;
  using Ten = std::integral_constant<int, 10>;
  const bool nine = structure.cameras.padded_size == 9;
  if constexpr (!kIsHost<Machine>) {
    if (ext_options.precision == PRECISION_MIXED) {
      return nine ? create(float(), Nine()) : create(float(), Ten());
    }
  }
  return nine ? create(double(), Nine()) : create(double(), Ten());
}

#define CERES_EXT_INSTANTIATE(Machine)                                   \
  template std::unique_ptr<LinearSolver> CreateRowLinearSolver<Machine>( \
      const Options& ext_options,                                        \
      const LinearSolver::Options& options,                              \
      const Program& program,                                            \
      const kernels::RowIndex<Machine>::Options& index_options,          \
      kernels::HostContext* host_context,                                \
      Machine* machine,                                                  \
      SolveRecord* record,                                               \
      std::string* reason);
CERES_EXT_FOR_EACH_MACHINE(CERES_EXT_INSTANTIATE)
#undef CERES_EXT_INSTANTIATE

}  // namespace ceres_ext
