// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The Jacobian of rows of directions, in the order of their index: stored with
// the private column as the last one of the camera's block
// (cuda_kernels/model/nested_jacobian.h), in double.

#ifndef CERES_EXT_ROWS_NESTED_ROWS_JACOBIAN_H_
#define CERES_EXT_ROWS_NESTED_ROWS_JACOBIAN_H_

#include <cstdint>
#include <vector>

#include "ceres_ext/blocks/machine_problem.h"
#include "ceres_ext/rows/batch_evaluator.h"
#include "ceres_ext/rows/observation_jacobian.h"
#include "ceres_ext/solver/nested_batch.h"
#include "cuda_kernels/base/block_ref.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/model/nested_jacobian.h"
#include "cuda_kernels/ops/nested_rows.h"

namespace ceres_ext {

template <typename Machine>
class NestedRowsJacobian final : public BatchJacobian {
 public:
  using StoredShape = kernels::NestedStorage;
  using StoredValue = double;

  // kOutOfMemory where the Jacobian doesn't fit.
  kernels::Status Setup(const ObservationBlocks<Machine>* rows,
                        const solver::ProblemBlocks& blocks) {
    rows_ = rows;
    n_ = rows->index().num_observations;
    private_begin_ = blocks.e[rows->private_family].value_begin;
    Machine* machine = rows->machine;
    CERES_EXT_RETURN_IF_ERROR(
        machine->Allocate(StoredShape::kFSize * n_, &camera_values_));
    CERES_EXT_RETURN_IF_ERROR(
        machine->Allocate(StoredShape::kESize * n_, &point_values_));
    return batch_.Setup({rows->index(),
                         camera_blocks(),
                         point_blocks(),
                         rows->private_place.data()},
                        &rows->views,
                        rows->private_family,
                        blocks,
                        machine);
  }

  solver::Batch* batch() final { return &batch_; }

  // The output of the evaluator.
  kernels::BlockRef<double, StoredShape::kFSize, Machine::kLayout>
  camera_blocks() {
    return {camera_values_.data(), n_};
  }
  kernels::BlockRef<double, StoredShape::kESize, Machine::kLayout>
  point_blocks() {
    return {point_values_.data(), n_};
  }
  void SetCells(RowBatch* rows) {
    rows->e = CellsOf(point_blocks(), StoredShape::kE);
    rows->f = CellsOf(camera_blocks(), StoredShape::kF);
    rows->stores_float = false;
  }

  kernels::Status ScaleColumns(const double* e, const double* f) final {
    kernels::ScaleNestedParams<Machine::kLayout> params;
    params.index = rows_->index();
    params.camera_blocks = camera_blocks();
    params.point_blocks = point_blocks();
    params.place = rows_->private_place.data();
    CERES_EXT_RETURN_IF_ERROR(batch_.GatherColumns(f, &params.camera_scale));
    params.point_scale = e;
    params.private_scale = e + private_begin_;
    return kernels::Run(params, rows_->machine);
  }
  kernels::Status SetZero() final {
    CERES_EXT_RETURN_IF_ERROR(
        rows_->machine->SetZero(camera_values_.size(), camera_values_.data()));
    return rows_->machine->SetZero(point_values_.size(), point_values_.data());
  }
  kernels::Status ForEachValue(const Visit& visit) const final {
    std::vector<double> f;
    std::vector<double> e;
    std::vector<int32_t> view;
    std::vector<int32_t> point_id;
    std::vector<int32_t> place;
    const auto download = [&](int64_t n, const auto* from, auto* to) {
      to->resize(static_cast<size_t>(n));
      return rows_->machine->Download(n, from, to->data());
    };
    CERES_EXT_RETURN_IF_ERROR(
        download(camera_values_.size(), camera_values_.data(), &f));
    CERES_EXT_RETURN_IF_ERROR(
        download(point_values_.size(), point_values_.data(), &e));
    CERES_EXT_RETURN_IF_ERROR(download(n_, rows_->index().camera_id, &view));
    CERES_EXT_RETURN_IF_ERROR(download(n_, rows_->index().point_id, &point_id));
    CERES_EXT_RETURN_IF_ERROR(
        download(n_, rows_->private_place.data(), &place));
    const kernels::BlockRef<const double, StoredShape::kFSize, Machine::kLayout>
        of_view{f.data(), n_};
    const kernels::BlockRef<const double, StoredShape::kESize, Machine::kLayout>
        of_point{e.data(), n_};
    const BlockTable& points = rows_->points();
    for (int64_t k = 0; k < n_; ++k) {
      const std::vector<int> columns = rows_->Columns(view[k]);
      for (int r = 0; r < StoredShape::kNumResiduals; ++r) {
        const int64_t row = StoredShape::kNumResiduals * k + r;
        for (int j = 0; j < points.tangent_size(point_id[k]); ++j) {
          visit(row,
                points.tangent_offset(point_id[k]) + j,
                of_point(k, StoredShape::kE * r + j));
        }
        for (size_t j = 0; j < columns.size(); ++j) {
          visit(row,
                columns[j],
                of_view(k, StoredShape::kF * r + static_cast<int>(j)));
        }
        if (place[k] >= 0) {
          visit(row,
                rows_->private_family_table->table().tangent_offset(place[k]),
                of_view(k, StoredShape::kF * r + kernels::kPrivateColumn));
        }
      }
    }
    return {};
  }

 private:
  const ObservationBlocks<Machine>* rows_ = nullptr;
  int64_t n_ = 0;
  int64_t private_begin_ = 0;
  typename Machine::template Buffer<double> camera_values_;
  typename Machine::template Buffer<double> point_values_;
  solver::NestedBatch<Machine> batch_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_ROWS_NESTED_ROWS_JACOBIAN_H_
