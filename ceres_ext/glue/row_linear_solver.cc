// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/glue/row_linear_solver.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "ceres/block_sparse_matrix.h"
#include "ceres/block_structure.h"
#include "ceres_ext/glue/bundle_structure.h"
#include "ceres_ext/glue/step_vectors.h"
#include "ceres_ext/solver/host_backend.h"
#include "ceres_ext/solver/inexact_solver_host.h"
#include "cuda_kernels/buffer.h"
#include "cuda_kernels/observation_index.h"
#include "cuda_kernels/status.h"

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

template <int C>
class RowLinearSolver final
    : public ceres::internal::TypedLinearSolver<BlockSparseMatrix> {
 public:
  RowLinearSolver(BundleStructure structure,
                  kernels::HostContext* context,
                  SolveRecord* record)
      : structure_(std::move(structure)), context_(context), record_(record) {}

  Status Setup(const ceres_ext::Options& ext_options,
               const LinearSolver::Options& options) {
    CERES_EXT_RETURN_IF_ERROR(index_.Build(structure_.cameras.size(),
                                           structure_.points.size(),
                                           structure_.num_observations(),
                                           structure_.camera_id.data(),
                                           structure_.point_id.data()));
    CERES_EXT_RETURN_IF_ERROR(backend_.Setup(index_.view(), context_));
    const int64_t n = structure_.num_observations();
    CERES_EXT_RETURN_IF_ERROR(camera_blocks_.Allocate(2 * C * n, 0.0));
    CERES_EXT_RETURN_IF_ERROR(point_blocks_.Allocate(6 * n, 0.0));
    CERES_EXT_RETURN_IF_ERROR(b_.Allocate(2 * n));
    CERES_EXT_RETURN_IF_ERROR(camera_position_.Allocate(n, kNone));
    CERES_EXT_RETURN_IF_ERROR(point_position_.Allocate(n, kNone));
    CERES_EXT_RETURN_IF_ERROR(
        vectors_.Allocate(&structure_.cameras, &structure_.points, context_));
    CERES_EXT_RETURN_IF_ERROR(
        solver_.Setup(ToInexactSolverOptions(ext_options, options), &backend_));
    record_->method = MethodName(ext_options, options);
    record_->memory_bytes = index_.bytes() + backend_.workspace()->bytes() +
                            camera_blocks_.bytes() + point_blocks_.bytes() +
                            b_.bytes() + camera_position_.bytes() +
                            point_position_.bytes() + vectors_.memory_bytes() +
                            solver_.bytes() + structure_.cameras.MemoryBytes() +
                            structure_.points.MemoryBytes();
    return {};
  }

 private:
  using Source = solver::HostStoredJacobian<double, C>;
  // The position of a block that the matrix does not have.
  static constexpr int32_t kNone = -1;

  LinearSolver::Summary SolveImpl(
      BlockSparseMatrix* A,
      const double* b,
      const LinearSolver::PerSolveOptions& per_solve_options,
      double* x) final {
    {
      ScopedSeconds timer(&record_->import_time_in_seconds);
      const Status status = ReadStructure(*A->block_structure());
      if (!status.ok()) {
        LinearSolver::Summary summary;
        summary.termination_type =
            ceres::internal::LinearSolverTerminationType::FATAL_ERROR;
        summary.message = status.message;
        return summary;
      }
      Import(A->values(), b);
      vectors_.SetDiagonal(per_solve_options.D);
    }
    const int64_t n = structure_.num_observations();
    const solver::LinearSystem<Source> system{
        {{camera_blocks_.data(), n}, {point_blocks_.data(), n}},
        b_.data(),
        vectors_.camera_diagonal(),
        vectors_.point_diagonal()};
    const solver::InexactSolverSummary summary = solver_.Solve(
        system,
        {per_solve_options.q_tolerance, per_solve_options.r_tolerance},
        vectors_.camera_step(),
        vectors_.point_step());
    vectors_.GetStep(x);
    return ToCeresSummary(summary, record_);
  }

  // Where the cells of an observation stand in the values of the matrix. Rows
  // are residual blocks; columns are known by their first column.
  Status ReadStructure(const CompressedRowBlockStructure& structure) {
    if (has_positions_) {
      return {};
    }
    const kernels::ObservationIndexView& index = index_.view();
    if (static_cast<int64_t>(structure.rows.size()) != index.num_observations) {
      return {StatusCode::kInvalidArgument,
              "The Jacobian has " + std::to_string(structure.rows.size()) +
                  " row blocks for " + std::to_string(index.num_observations) +
                  " residual blocks."};
    }
    for (int64_t k = 0; k < index.num_observations; ++k) {
      const auto& row = structure.rows[index.input_id[k]];
      const int camera_column =
          structure_.cameras.tangent_offset[index.camera_id[k]];
      const int point_column =
          structure_.points.tangent_offset[index.point_id[k]];
      bool known =
          row.block.size == 2 && row.block.position == 2 * index.input_id[k];
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
                "Row block " + std::to_string(index.input_id[k]) +
                    " of the Jacobian is not that of its residual block."};
      }
    }
    has_positions_ = true;
    return {};
  }

  void Import(const double* values, const double* b) {
    const kernels::ObservationIndexView& index = index_.view();
    // 2 x columns values, row-major, into 2 x padded.
    const auto copy =
        [values](int32_t position, int columns, int padded, double* block) {
          if (position != kNone) {
            std::copy_n(values + position, columns, block);
            std::copy_n(values + position + columns, columns, block + padded);
          }
        };
    context_->ParallelFor(
        index.num_observations, kGrain, [&](int64_t begin, int64_t end) {
          for (int64_t k = begin; k < end; ++k) {
            copy(camera_position_.data()[k],
                 structure_.cameras.tangent_size[index.camera_id[k]],
                 C,
                 camera_blocks_.data() + 2 * C * k);
            copy(point_position_.data()[k],
                 structure_.points.tangent_size[index.point_id[k]],
                 3,
                 point_blocks_.data() + 6 * k);
            std::copy_n(
                b + 2 * int64_t{index.input_id[k]}, 2, b_.data() + 2 * k);
          }
        });
  }

  BundleStructure structure_;
  kernels::HostContext* context_;
  SolveRecord* record_;
  kernels::ObservationIndex index_;
  solver::HostBackend backend_;
  bool has_positions_ = false;
  kernels::HostBuffer<int32_t> camera_position_;
  kernels::HostBuffer<int32_t> point_position_;
  kernels::HostBuffer<double> camera_blocks_;
  kernels::HostBuffer<double> point_blocks_;
  kernels::HostBuffer<double> b_;
  StepVectors vectors_;
  solver::InexactSolver<solver::HostBackend, Source> solver_;
};

template <int C>
std::unique_ptr<LinearSolver> Create(BundleStructure structure,
                                     const Options& ext_options,
                                     const LinearSolver::Options& options,
                                     kernels::HostContext* context,
                                     SolveRecord* record,
                                     std::string* reason) {
  auto linear_solver = std::make_unique<RowLinearSolver<C>>(
      std::move(structure), context, record);
  const Status status = linear_solver->Setup(ext_options, options);
  if (!status.ok()) {
    *reason = status.message;
    return nullptr;
  }
  return linear_solver;
}

}  // namespace

std::unique_ptr<LinearSolver> CreateRowLinearSolver(
    const Options& ext_options,
    const LinearSolver::Options& options,
    const Program& program,
    kernels::HostContext* context,
    SolveRecord* record,
    std::string* reason) {
  BundleStructure structure;
  const int num_eliminate_blocks = options.type == ceres::ITERATIVE_SCHUR
                                       ? options.elimination_groups[0]
                                       : 0;
  if (!ImportRows(program, num_eliminate_blocks, &structure, reason)) {
    return nullptr;
  }
  return structure.cameras.padded_size == 9 ? Create<9>(std::move(structure),
                                                        ext_options,
                                                        options,
                                                        context,
                                                        record,
                                                        reason)
                                            : Create<10>(std::move(structure),
                                                         ext_options,
                                                         options,
                                                         context,
                                                         record,
                                                         reason);
}

}  // namespace ceres_ext
