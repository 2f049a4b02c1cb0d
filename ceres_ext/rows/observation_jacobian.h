// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The part of the Jacobian that a batch of observations, or of rows of views,
// is, in the order of their index; blocks are padded (block_table.h), and
// padded columns are zero.
//
// The blocks are stored as T, or recomputed from a copy of the state that they
// belong to (Options::jacobian): of observations in T, of the rows of views,
// where all are of one model, in double by the kernels of its module.

#ifndef CERES_EXT_ROWS_OBSERVATION_JACOBIAN_H_
#define CERES_EXT_ROWS_OBSERVATION_JACOBIAN_H_

#include <cstdint>
#include <type_traits>
#include <vector>

#include "ceres_ext/batchable_cost_function.h"
#include "ceres_ext/blocks/machine_problem.h"
#include "ceres_ext/rows/batch_evaluator.h"
#include "ceres_ext/rows/model_evaluator.h"
#include "ceres_ext/solver/observation_batch.h"
#include "ceres_ext/solver/view_batch.h"
#include "cuda_kernels/base/block_ref.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/model/bal_model.h"
#include "cuda_kernels/model/jacobian_source.h"
#include "cuda_kernels/model/model_jacobian.h"
#include "cuda_kernels/ops/evaluate.h"
#include "cuda_kernels/ops/jacobian_products.h"
#include "cuda_kernels/ops/vectors.h"

namespace ceres_ext {

// A state of the batch in the Machine's memory, as the evaluator holds it.
struct BatchState {
  kernels::CameraParameters parameters = kernels::CameraParameters::kAngleAxis;
  const double* cameras = nullptr;   // ambient, one after the other
  const double* tangents = nullptr;  // ambient x C per camera; null: identity
  const double* points = nullptr;    // 3 per point
  const double* point_scale = nullptr;  // 3 per point; null: one
};

// The output of models to stored blocks of so many columns, by the strides of
// BlockRef's layout.
template <typename Blocks>
RowCells CellsOf(const Blocks& blocks, int columns) {
  constexpr bool kContinuous =
      Blocks::kLayout == kernels::BlockLayout::kContinuousElement;
  const int64_t element = kContinuous ? blocks.num_blocks : 1;
  return RowCells{blocks.data,
                  kContinuous ? 1 : Blocks::kBlockSize,
                  columns * element,
                  element};
}

// The base class of both kinds. BatchType: solver::ObservationBatch or
// solver::ViewBatch.
template <typename Machine, typename BatchType>
class IndexedJacobian : public BatchJacobian {
 public:
  using Source = typename BatchType::Source;

  BatchType* batch() final { return &batch_; }

 protected:
  using T = typename Source::Value;
  using Shape = typename Source::Shape;
  template <typename Value>
  using Buffer = typename Machine::template Buffer<Value>;
  static constexpr bool kHasViews =
      std::is_same_v<BatchType, solver::ViewBatch<Machine, Source>>;

  // *rows outlives the Jacobian; source: what the algebra works on.
  kernels::Status SetupBatch(const ObservationBlocks<Machine>* rows,
                             const solver::ProblemBlocks& blocks,
                             const Source& source) {
    rows_ = rows;
    machine_ = rows->machine;
    // Points are the first family (import/problem_structure.h).
    if constexpr (kHasViews) {
      return batch_.Setup(
          rows->index(), &rows->views, 0, blocks, source, machine_);
    } else {
      f_begin_ = blocks.f[rows->camera_family].value_begin;
      batch_.Setup(rows->index(), 0, rows->camera_family, machine_);
      batch_.SetJacobian(source);
      return batch_.SetBlocks(blocks);
    }
  }

  // The part of cameras or views of a vector over F.
  kernels::Status CameraColumns(const double* f, const double** columns) {
    if constexpr (kHasViews) {
      return batch_.GatherColumns(f, columns);
    } else {
      *columns = f + f_begin_;
      return {};
    }
  }

  template <typename Value>
  kernels::Status Download(int64_t n,
                           const Value* from,
                           std::vector<Value>* to) const {
    to->resize(n);
    return machine_->Download(n, from, to->data());
  }

  // All values of a buffer: = from, = 1, *= by, = 0.
  kernels::Status CopyTo(const double* from, Buffer<double>* to) {
    return kernels::Run(kernels::CopyParams{to->size(), from, to->data()},
                        machine_);
  }
  template <typename Value>
  kernels::Status SetOne(Buffer<Value>* to) {
    return kernels::Run(
        kernels::SetConstantParams<Value>{to->size(), Value(1), to->data()},
        machine_);
  }
  template <typename Value>
  kernels::Status MultiplyBy(const double* by, Buffer<Value>* x) {
    return kernels::Run(kernels::ScaleParams<Value>{x->size(), by, x->data()},
                        machine_);
  }
  template <typename Value>
  kernels::Status SetBufferToZero(Buffer<Value>* x) {
    return machine_->SetZero(x->size(), x->data());
  }

  // As ForEachValue. blocks: a source in host memory.
  template <typename Blocks>
  kernels::Status VisitBlocks(const Blocks& blocks, const Visit& visit) const {
    const kernels::ObservationIndexRef& index = rows_->index();
    const int64_t n = index.num_observations;
    const BlockTable& points = rows_->points();
    std::vector<int32_t> camera_id;
    std::vector<int32_t> point_id;
    CERES_EXT_RETURN_IF_ERROR(Download(n, index.camera_id, &camera_id));
    CERES_EXT_RETURN_IF_ERROR(Download(n, index.point_id, &point_id));
    for (int64_t k = 0; k < n; ++k) {
      const int32_t point = point_id[k];
      T jc[Shape::kFSize];
      T jp[Shape::kESize];
      blocks.Load(k, camera_id[k], point, jc, jp);
      const std::vector<int> columns = rows_->Columns(camera_id[k]);
      for (int r = 0; r < Shape::kNumResiduals; ++r) {
        const int64_t row = Shape::kNumResiduals * k + r;
        int column = points.tangent_offset(point);
        const int end = column + points.tangent_size(point);
        for (int j = 0; column < end; ++j) {
          if (!points.IsHeld(point, j)) {
            visit(row, column++, jp[Shape::kE * r + j]);
          }
        }
        for (size_t j = 0; j < columns.size(); ++j) {
          visit(row, columns[j], jc[Shape::kF * r + j]);
        }
      }
    }
    return {};
  }

  const ObservationBlocks<Machine>* rows_ = nullptr;
  Machine* machine_ = nullptr;

 private:
  BatchType batch_;
  int64_t f_begin_ = 0;
};

template <typename Machine, typename BatchType>
class StoredBatchJacobian final : public IndexedJacobian<Machine, BatchType> {
  using Base = IndexedJacobian<Machine, BatchType>;
  using typename Base::Shape;
  using typename Base::Source;
  using typename Base::T;
  using typename BatchJacobian::Visit;

 public:
  using StoredShape = Shape;
  using StoredValue = T;

  // kOutOfMemory where the Jacobian doesn't fit.
  kernels::Status Setup(const ObservationBlocks<Machine>* rows,
                        const solver::ProblemBlocks& blocks) {
    n_ = rows->index().num_observations;
    CERES_EXT_RETURN_IF_ERROR(
        rows->machine->Allocate(Shape::kFSize * n_, &camera_blocks_));
    CERES_EXT_RETURN_IF_ERROR(
        rows->machine->Allocate(Shape::kESize * n_, &point_blocks_));
    return this->SetupBatch(rows, blocks, source());
  }

  // The output of the evaluator.
  kernels::BlockRef<T, Shape::kFSize, Machine::kLayout> camera_blocks() {
    return {camera_blocks_.data(), n_};
  }
  kernels::BlockRef<T, Shape::kESize, Machine::kLayout> point_blocks() {
    return {point_blocks_.data(), n_};
  }
  Source source() const {
    return {{camera_blocks_.data(), n_}, {point_blocks_.data(), n_}};
  }
  void SetCells(RowBatch* rows) {
    rows->e = CellsOf(point_blocks(), Shape::kE);
    rows->f = CellsOf(camera_blocks(), Shape::kF);
    rows->stores_float = std::is_same_v<T, float>;
  }

  kernels::Status ScaleColumns(const double* e, const double* f) final {
    kernels::ScaleColumnsParams<T, Shape, Machine::kLayout> params;
    params.index = this->rows_->index();
    params.camera_blocks = camera_blocks();
    params.point_blocks = point_blocks();
    CERES_EXT_RETURN_IF_ERROR(this->CameraColumns(f, &params.camera_scale));
    params.point_scale = e;
    return kernels::Run(params, this->machine_);
  }
  kernels::Status SetZero() final {
    CERES_EXT_RETURN_IF_ERROR(this->SetBufferToZero(&camera_blocks_));
    return this->SetBufferToZero(&point_blocks_);
  }
  kernels::Status ForEachValue(const Visit& visit) const final {
    std::vector<T> f;
    std::vector<T> e;
    CERES_EXT_RETURN_IF_ERROR(
        this->Download(camera_blocks_.size(), camera_blocks_.data(), &f));
    CERES_EXT_RETURN_IF_ERROR(
        this->Download(point_blocks_.size(), point_blocks_.data(), &e));
    return this->VisitBlocks(Source{{f.data(), n_}, {e.data(), n_}}, visit);
  }

 private:
  int64_t n_ = 0;
  typename Base::template Buffer<T> camera_blocks_;
  typename Base::template Buffer<T> point_blocks_;
};

template <typename Machine, typename T, int C, bool kScaledRows>
class RecomputedObservationJacobian final
    : public IndexedJacobian<
          Machine,
          solver::ObservationBatch<
              Machine,
              kernels::RecomputedJacobian<T, C, kScaledRows>>> {
  using typename BatchJacobian::Visit;

 public:
  // kOutOfMemory where the Jacobian doesn't fit.
  kernels::Status Setup(const ObservationBlocks<Machine>* rows,
                        const solver::ProblemBlocks& blocks) {
    Machine* machine = rows->machine;
    const int64_t num_cameras = rows->cameras().size();
    const int64_t num_points = rows->points().size();
    const int64_t ambient = rows->cameras().ambient_size;
    CERES_EXT_RETURN_IF_ERROR(
        machine->Allocate(ambient * num_cameras, &cameras_));
    CERES_EXT_RETURN_IF_ERROR(machine->Allocate(
        rows->cameras().HasTangents() ? ambient * C * num_cameras : 0,
        &tangents_));
    CERES_EXT_RETURN_IF_ERROR(
        machine->Allocate(C * num_cameras, &camera_scale_));
    CERES_EXT_RETURN_IF_ERROR(machine->Allocate(num_cameras, &camera_states_));
    CERES_EXT_RETURN_IF_ERROR(machine->Allocate(
        kernels::kBalLocalCameraDim * C * num_cameras, &camera_maps_));
    CERES_EXT_RETURN_IF_ERROR(machine->Allocate(kHasOrigin ? 3 : 0, &origin_));
    CERES_EXT_RETURN_IF_ERROR(machine->Allocate(3 * num_points, &points_));
    CERES_EXT_RETURN_IF_ERROR(machine->Allocate(3 * num_points, &point_scale_));
    CERES_EXT_RETURN_IF_ERROR(machine->Allocate(
        kScaledRows ? rows->index().num_observations : 0, &row_scale_));
    return this->SetupBatch(rows,
                            blocks,
                            {camera_states_.data(),
                             camera_maps_.data(),
                             points_.data(),
                             point_scale_.data(),
                             row_scale_.data()});
  }

  // For kScaledRows: one factor per observation, at the state that SetState
  // receives.
  T* row_scale() { return row_scale_.data(); }

  // Takes a copy of the state that the Jacobian belongs to.
  kernels::Status SetState(const BatchState& state) {
    state_ = state;
    CERES_EXT_RETURN_IF_ERROR(this->CopyTo(state.cameras, &cameras_));
    state_.cameras = cameras_.data();
    if (state.tangents != nullptr) {
      CERES_EXT_RETURN_IF_ERROR(this->CopyTo(state.tangents, &tangents_));
      state_.tangents = tangents_.data();
    }
    CERES_EXT_RETURN_IF_ERROR(state.point_scale != nullptr
                                  ? Cast(state.point_scale, &point_scale_)
                                  : this->SetOne(&point_scale_));
    CERES_EXT_RETURN_IF_ERROR(this->SetOne(&camera_scale_));
    if constexpr (kHasOrigin) {
      if (!has_origin_) {
        CERES_EXT_RETURN_IF_ERROR(kernels::Run(
            kernels::LocalOriginParams{this->rows_->cameras().size(),
                                       state_.parameters,
                                       state_.cameras,
                                       origin_.data()},
            this->machine_));
        has_origin_ = true;
      }
      CERES_EXT_RETURN_IF_ERROR(kernels::Run(
          kernels::MovePointsParams<T>{
              points_.size() / 3, state.points, origin_.data(), points_.data()},
          this->machine_));
    } else {
      CERES_EXT_RETURN_IF_ERROR(Cast(state.points, &points_));
    }
    return PrepareCameras();
  }

  kernels::Status ScaleColumns(const double* e, const double* f) final {
    const double* cameras = nullptr;
    CERES_EXT_RETURN_IF_ERROR(this->CameraColumns(f, &cameras));
    CERES_EXT_RETURN_IF_ERROR(this->MultiplyBy(cameras, &camera_scale_));
    CERES_EXT_RETURN_IF_ERROR(this->MultiplyBy(e, &point_scale_));
    return PrepareCameras();
  }
  kernels::Status SetZero() final {
    CERES_EXT_RETURN_IF_ERROR(this->SetBufferToZero(&camera_scale_));
    CERES_EXT_RETURN_IF_ERROR(this->SetBufferToZero(&point_scale_));
    return this->SetBufferToZero(&camera_maps_);
  }
  kernels::Status ForEachValue(const Visit& visit) const final {
    std::vector<kernels::CameraState<T>> states;
    std::vector<double> maps;
    std::vector<T> points;
    std::vector<T> scale;
    std::vector<T> row_scale;
    const auto download = [this](const auto& buffer, auto* to) {
      return this->Download(buffer.size(), buffer.data(), to);
    };
    CERES_EXT_RETURN_IF_ERROR(download(camera_states_, &states));
    CERES_EXT_RETURN_IF_ERROR(download(camera_maps_, &maps));
    CERES_EXT_RETURN_IF_ERROR(download(points_, &points));
    CERES_EXT_RETURN_IF_ERROR(download(point_scale_, &scale));
    CERES_EXT_RETURN_IF_ERROR(download(row_scale_, &row_scale));
    return this->VisitBlocks(
        kernels::RecomputedJacobian<T, C, kScaledRows>{states.data(),
                                                       maps.data(),
                                                       points.data(),
                                                       scale.data(),
                                                       row_scale.data()},
        visit);
  }

 private:
  // Double has digits enough for places that are far away.
  static constexpr bool kHasOrigin = std::is_same_v<T, float>;

  template <typename Value>
  using Buffer = typename Machine::template Buffer<Value>;

  kernels::Status Cast(const double* from, Buffer<T>* to) {
    return kernels::Run(kernels::CastParams<T>{to->size(), from, to->data()},
                        this->machine_);
  }

  // The input of products, from the state and its scale.
  kernels::Status PrepareCameras() {
    kernels::PrepareCamerasParams<T, C> params;
    params.num_cameras = this->rows_->cameras().size();
    params.parameters = state_.parameters;
    params.cameras = state_.cameras;
    params.tangent = state_.tangents;
    params.camera_scale = camera_scale_.data();
    params.origin = kHasOrigin ? origin_.data() : nullptr;
    params.states = camera_states_.data();
    params.maps = camera_maps_.data();
    return kernels::Run(params, this->machine_);
  }

  // The state and its scale.
  BatchState state_;
  Buffer<double> cameras_;
  Buffer<double> tangents_;
  Buffer<double> camera_scale_;
  // The input of products. The scale of points is zero or one until columns are
  // scaled, once per state in Ceres's loop, so that float rounds it once.
  Buffer<kernels::CameraState<T>> camera_states_;
  Buffer<double> camera_maps_;
  // In the middle of the cameras of the first state.
  Buffer<double> origin_;
  bool has_origin_ = false;
  Buffer<T> points_;
  Buffer<T> point_scale_;
  Buffer<T> row_scale_;
};

template <typename Machine, int F>
class RecomputedModelJacobian final
    : public IndexedJacobian<
          Machine,
          solver::ViewBatch<Machine, kernels::ModelJacobian<F>>> {
  using typename BatchJacobian::Visit;

 public:
  // *blocks outlives the Jacobian. state, tangents: how many values SetState
  // copies.
  kernels::Status Setup(const ObservationBlocks<Machine>* rows,
                        const solver::ProblemBlocks& blocks,
                        const BatchModel& model,
                        int64_t state,
                        int64_t tangents) {
    Machine* machine = rows->machine;
    blocks_ = &blocks;
    model_ = &model;
    CERES_EXT_RETURN_IF_ERROR(machine->Allocate(state, &state_));
    CERES_EXT_RETURN_IF_ERROR(machine->Allocate(tangents, &tangents_));
    CERES_EXT_RETURN_IF_ERROR(machine->Allocate(1, &machine_batch_));
    CERES_EXT_RETURN_IF_ERROR(
        machine->Allocate(rows->views.num_values(), &view_scale_));
    CERES_EXT_RETURN_IF_ERROR(
        machine->Allocate(int64_t{3} * rows->points().size(), &point_scale_));
    return this->SetupBatch(rows,
                            blocks,
                            {model.GetForm(FormKind::kRecomputed),
                             machine_batch_.data(),
                             rows->index().camera_id,
                             view_scale_.data(),
                             point_scale_.data()});
  }

  // Takes a copy of the state that the Jacobian belongs to. batch: what has
  // been evaluated there.
  kernels::Status SetState(const RowBatch& batch) {
    CERES_EXT_RETURN_IF_ERROR(this->CopyTo(batch.state, &state_));
    CERES_EXT_RETURN_IF_ERROR(this->CopyTo(batch.tangents, &tangents_));
    CERES_EXT_RETURN_IF_ERROR(this->SetOne(&view_scale_));
    CERES_EXT_RETURN_IF_ERROR(this->SetOne(&point_scale_));
    // All else of a batch stays for as long as a solve.
    if (batch_.num_rows > 0 && batch_.apply_loss == batch.apply_loss) {
      return {};
    }
    batch_ = batch;
    batch_.state = state_.data();
    batch_.tangents = tangents_.data();
    batch_.residuals = nullptr;
    return this->machine_->Upload(1, &batch_, machine_batch_.data());
  }

  kernels::Status ScaleColumns(const double* e, const double* f) final {
    const double* views = nullptr;
    CERES_EXT_RETURN_IF_ERROR(this->CameraColumns(f, &views));
    CERES_EXT_RETURN_IF_ERROR(this->MultiplyBy(views, &view_scale_));
    return this->MultiplyBy(e, &point_scale_);
  }
  kernels::Status SetZero() final {
    CERES_EXT_RETURN_IF_ERROR(this->SetBufferToZero(&view_scale_));
    return this->SetBufferToZero(&point_scale_);
  }
  // Stores them, in memory that is taken for it.
  kernels::Status ForEachValue(const Visit& visit) const final {
    using Shape = kernels::BalShape<F>;
    StoredBatchJacobian<
        Machine,
        solver::ViewBatch<
            Machine,
            kernels::StoredJacobian<double, Shape, Machine::kLayout>>>
        stored;
    CERES_EXT_RETURN_IF_ERROR(stored.Setup(this->rows_, *blocks_));
    CERES_EXT_RETURN_IF_ERROR(stored.SetZero());
    if (batch_.num_rows > 0) {
      Buffer<RowSums> sums;
      CERES_EXT_RETURN_IF_ERROR(this->machine_->Allocate(1, &sums));
      RowBatch batch = batch_;
      stored.SetCells(&batch);
      CERES_EXT_RETURN_IF_ERROR(EvaluateRows(
          *model_, batch, /*jacobian=*/true, this->machine_, sums.data()));
      CERES_EXT_RETURN_IF_ERROR(kernels::Run(
          kernels::ScaleColumnsParams<double, Shape, Machine::kLayout>{
              this->rows_->index(),
              stored.camera_blocks(),
              stored.point_blocks(),
              view_scale_.data(),
              point_scale_.data()},
          this->machine_));
    }
    return stored.ForEachValue(visit);
  }

 private:
  template <typename Value>
  using Buffer = typename Machine::template Buffer<Value>;

  const solver::ProblemBlocks* blocks_ = nullptr;
  const BatchModel* model_ = nullptr;
  // The rows at the state, and where kernels read them.
  RowBatch batch_;
  Buffer<RowBatch> machine_batch_;
  Buffer<double> state_;
  Buffer<double> tangents_;
  Buffer<double> view_scale_;
  Buffer<double> point_scale_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_ROWS_OBSERVATION_JACOBIAN_H_
