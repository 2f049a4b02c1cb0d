// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The Jacobian of rows of directions, in the order of their index: stored with
// the private column as the last one of the camera's block
// (cuda_kernels/model/nested_jacobian.h), in double. If the rows are opposite,
// models write the derivatives by the point over those by the camera.

#ifndef CERES_EXT_ROWS_NESTED_ROWS_JACOBIAN_H_
#define CERES_EXT_ROWS_NESTED_ROWS_JACOBIAN_H_

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "ceres_ext/blocks/machine_problem.h"
#include "ceres_ext/rows/batch_evaluator.h"
#include "ceres_ext/rows/observation_jacobian.h"
#include "ceres_ext/solver/nested_batch.h"
#include "cuda_kernels/base/block_ref.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/model/nested_jacobian.h"
#include "cuda_kernels/ops/nested_rows.h"
#include "cuda_kernels/ops/vectors.h"

namespace ceres_ext {

template <typename Machine>
class NestedRowsJacobian final : public BatchJacobian {
 public:
  using StoredShape = kernels::NestedStorage;
  using StoredValue = double;

  // kOutOfMemory where the Jacobian doesn't fit. are_opposite: the rows are,
  // and a row's model writes the point's derivatives last.
  kernels::Status Setup(const ObservationBlocks<Machine>* rows,
                        const solver::ProblemBlocks& blocks,
                        bool are_opposite) {
    rows_ = rows;
    n_ = rows->index().num_observations;
    private_begin_ = blocks.e[rows->private_family].value_begin;
    Machine* machine = rows->machine;
    CERES_EXT_RETURN_IF_ERROR(
        machine->Allocate(StoredShape::kFSize * n_, &camera_values_));
    if (are_opposite) {
      CERES_EXT_RETURN_IF_ERROR(SetupOpposite());
    } else {
      CERES_EXT_RETURN_IF_ERROR(
          machine->Allocate(StoredShape::kESize * n_, &point_values_));
    }
    return batch_.Setup(
        {rows->index(), camera_blocks(), rows->private_place.data()},
        Plain(camera_values_.data(),
              point_values_.data(),
              camera_factors_.data(),
              rows->index().camera_id,
              point_factors_.data(),
              rows->index().point_id),
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
    rows->f = CellsOf(camera_blocks(), StoredShape::kF);
    rows->e =
        are_opposite() ? rows->f : CellsOf(point_blocks(), StoredShape::kE);
    rows->stores_float = false;
  }
  // After models have evaluated the Jacobian.
  kernels::Status ResetFactors() {
    if (!are_opposite()) {
      return {};
    }
    CERES_EXT_RETURN_IF_ERROR(Run(
        kernels::CopyParams{
            opposite_.size(), opposite_.data(), camera_factors_.data()},
        rows_->machine));
    return Run(
        kernels::SetConstantParams{
            point_factors_.size(), 1.0, point_factors_.data()},
        rows_->machine);
  }

  kernels::Status ScaleColumns(const double* e, const double* f) final {
    kernels::ScaleNestedParams<Machine::kLayout> params;
    params.index = rows_->index();
    params.camera_blocks = camera_blocks();
    params.point_blocks = point_blocks();
    params.place = rows_->private_place.data();
    params.private_scale = e + private_begin_;
    if (!are_opposite()) {
      CERES_EXT_RETURN_IF_ERROR(batch_.GatherColumns(f, &params.camera_scale));
      params.point_scale = e;
      return kernels::Run(params, rows_->machine);
    }
    CERES_EXT_RETURN_IF_ERROR(kernels::Run(params, rows_->machine));
    const auto scale = [&](const double* by, auto* factors) {
      return Run(
          kernels::MultiplyParams{
              factors->size(), factors->data(), by, factors->data()},
          rows_->machine);
    };
    const double* of_cameras = nullptr;
    CERES_EXT_RETURN_IF_ERROR(batch_.GatherColumns(f, &of_cameras));
    CERES_EXT_RETURN_IF_ERROR(scale(of_cameras, &camera_factors_));
    return scale(e, &point_factors_);
  }
  kernels::Status SetZero() final {
    CERES_EXT_RETURN_IF_ERROR(
        rows_->machine->SetZero(camera_values_.size(), camera_values_.data()));
    CERES_EXT_RETURN_IF_ERROR(
        rows_->machine->SetZero(point_values_.size(), point_values_.data()));
    return ResetFactors();
  }
  kernels::Status ForEachValue(const Visit& visit) const final {
    std::vector<double> f;
    std::vector<double> e;
    std::vector<double> camera_factors;
    std::vector<double> point_factors;
    std::vector<int32_t> view;
    std::vector<int32_t> point_id;
    std::vector<int32_t> place;
    const auto download = [&](int64_t n, const auto* from, auto* to) {
      to->resize(static_cast<size_t>(n));
      return rows_->machine->Download(n, from, to->data());
    };
    for (const auto& [from, to] :
         {std::pair{&camera_values_, &f},
          std::pair{&point_values_, &e},
          std::pair{&camera_factors_, &camera_factors},
          std::pair{&point_factors_, &point_factors}}) {
      CERES_EXT_RETURN_IF_ERROR(download(from->size(), from->data(), to));
    }
    CERES_EXT_RETURN_IF_ERROR(download(n_, rows_->index().camera_id, &view));
    CERES_EXT_RETURN_IF_ERROR(download(n_, rows_->index().point_id, &point_id));
    CERES_EXT_RETURN_IF_ERROR(
        download(n_, rows_->private_place.data(), &place));
    const auto plain = Plain(f.data(),
                             e.data(),
                             are_opposite() ? camera_factors.data() : nullptr,
                             view.data(),
                             point_factors.data(),
                             point_id.data());
    const BlockTable& points = rows_->points();
    for (int64_t k = 0; k < n_; ++k) {
      const std::vector<int> columns = rows_->Columns(view[k]);
      for (int r = 0; r < StoredShape::kNumResiduals; ++r) {
        const int64_t row = StoredShape::kNumResiduals * k + r;
        for (int j = 0; j < points.tangent_size(point_id[k]); ++j) {
          visit(row,
                points.tangent_offset(point_id[k]) + j,
                plain.point_blocks(k, kColumns * r + j));
        }
        for (size_t j = 0; j < columns.size(); ++j) {
          visit(row,
                columns[j],
                plain.camera_blocks(k, kColumns * r + static_cast<int>(j)));
        }
        if (place[k] >= 0) {
          visit(row,
                rows_->private_family_table->table().tangent_offset(place[k]),
                plain.camera_blocks.Private(k, r));
        }
      }
    }
    return {};
  }

 private:
  static constexpr int kColumns = kernels::kPrivateColumn;

  bool are_opposite() const { return opposite_.size() > 0; }

  // J of these arrays; camera_factors null: the rows are not opposite.
  kernels::NestedJacobian<Machine::kLayout> Plain(
      const double* camera_values,
      const double* point_values,
      const double* camera_factors,
      const int32_t* camera_id,
      const double* point_factors,
      const int32_t* point_id) const {
    kernels::OppositeFactors of_cameras;
    kernels::OppositeFactors of_points;
    if (camera_factors != nullptr) {
      of_cameras = {camera_factors, camera_id};
      of_points = {point_factors, point_id};
    }
    return kernels::PlainJacobian<Machine::kLayout>(
        {camera_values, n_}, {point_values, n_}, of_cameras, of_points);
  }

  kernels::Status SetupOpposite() {
    const auto num_views = static_cast<size_t>(rows_->views.num_views());
    std::vector<double> factors(kColumns * num_views, 0.0);
    for (size_t v = 0; v < num_views; ++v) {
      // A constant block has no columns.
      std::fill_n(factors.begin() + static_cast<int64_t>(kColumns * v),
                  rows_->view_columns[v].size(),
                  -1.0);
    }
    CERES_EXT_RETURN_IF_ERROR(rows_->machine->Upload(factors, &opposite_));
    CERES_EXT_RETURN_IF_ERROR(
        rows_->machine->Allocate(opposite_.size(), &camera_factors_));
    return rows_->machine->Allocate(
        int64_t{StoredShape::kE} * rows_->index().num_points, &point_factors_);
  }

  const ObservationBlocks<Machine>* rows_ = nullptr;
  int64_t n_ = 0;
  int64_t private_begin_ = 0;
  typename Machine::template Buffer<double> camera_values_;
  typename Machine::template Buffer<double> point_values_;
  // Factors of opposite rows; the first are those before columns are scaled.
  typename Machine::template Buffer<double> opposite_;
  typename Machine::template Buffer<double> camera_factors_;
  typename Machine::template Buffer<double> point_factors_;
  solver::NestedBatch<Machine> batch_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_ROWS_NESTED_ROWS_JACOBIAN_H_
