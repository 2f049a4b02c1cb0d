// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The part of the Jacobian that a batch of observations is, in the order of
// their index; blocks are padded (block_table.h), and padded columns are zero.
//
// The blocks are stored as T, or recomputed in T from a copy of the cameras and
// points that they belong to (Options::jacobian).

#ifndef CERES_EXT_GLUE_OBSERVATION_JACOBIAN_H_
#define CERES_EXT_GLUE_OBSERVATION_JACOBIAN_H_

#include <cstdint>
#include <memory>

#include "ceres_ext/glue/program_blocks.h"
#include "ceres_ext/glue/rows.h"
#include "ceres_ext/options.h"
#include "ceres_ext/solver/observation_batch.h"
#include "cuda_kernels/base/block_view.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/model/bal_model.h"
#include "cuda_kernels/model/jacobian_source.h"
#include "cuda_kernels/ops/evaluate.h"

namespace ceres_ext {

// A state of the batch in the Machine's memory, as the evaluator holds it.
struct BatchState {
  kernels::CameraParameters parameters = kernels::CameraParameters::kAngleAxis;
  const double* cameras = nullptr;   // ambient, one after the other
  const double* tangents = nullptr;  // ambient x C per camera; null: identity
  const double* points = nullptr;    // 3 per point
  const double* point_scale = nullptr;  // 3 per point; null: one
};

template <typename Machine, typename T, int C>
class ObservationJacobian final : public RowsJacobian {
 public:
  static constexpr kernels::BlockLayout kLayout = Machine::kLayout;
  using Stored = kernels::StoredJacobian<T, kernels::BalShape<C>, kLayout>;
  using Recomputed = kernels::RecomputedJacobian<T, C>;

  // kOutOfMemory where the Jacobian doesn't fit.
  static std::unique_ptr<ObservationJacobian> Create(
      JacobianType type,
      const ObservationBlocks<Machine>* observations,
      const solver::ProblemBlocks& blocks,
      kernels::Status* status);

  JacobianType type() const { return type_; }
  // Whether no other batch has rows of the points, and if not, scratch for what
  // is to be added to them.
  bool owns_points() const {
    return type_ == JACOBIAN_STORED ? stored_batch_.owns_points()
                                    : recomputed_batch_.owns_points();
  }
  double* point_scratch() {
    return type_ == JACOBIAN_STORED ? stored_batch_.point_scratch()
                                    : recomputed_batch_.point_scratch();
  }

  // JACOBIAN_STORED: the blocks, written by the evaluator.
  kernels::BlockView<T, 2 * C, kLayout> camera_blocks() {
    return {camera_blocks_.data(), observations_->index().num_observations};
  }
  kernels::BlockView<T, 6, kLayout> point_blocks() {
    return {point_blocks_.data(), observations_->index().num_observations};
  }

  // JACOBIAN_RECOMPUTED: takes a copy of the state that the Jacobian belongs
  // to.
  kernels::Status SetState(const BatchState& state);

  // Calls visit with the Stored or Recomputed source of the blocks.
  template <typename Visit>
  auto WithSource(Visit&& visit) const {
    return type_ == JACOBIAN_STORED ? visit(stored()) : visit(recomputed());
  }

  solver::Batch* batch() final {
    return type_ == JACOBIAN_STORED
               ? static_cast<solver::Batch*>(&stored_batch_)
               : &recomputed_batch_;
  }
  kernels::Status ScaleColumns(const double* e, const double* f) final;
  kernels::Status SetZero() final;
  kernels::Status ForEachValue(const Visit& visit) const final;
  int64_t num_nonzeros() const final { return num_nonzeros_; }
  int64_t bytes() const final;

 private:
  template <typename Value>
  using Buffer = typename Machine::template Buffer<Value>;

  ObservationJacobian(JacobianType type,
                      const ObservationBlocks<Machine>* observations)
      : type_(type), observations_(observations) {}

  kernels::Status Setup(const solver::ProblemBlocks& blocks);
  kernels::Status CountNonzeros();
  // camera_states_ and camera_maps_ from the state, the scale and zero_.
  kernels::Status PrepareRecomputed();
  Stored stored() const;
  Recomputed recomputed() const;

  const JacobianType type_;
  const ObservationBlocks<Machine>* observations_;
  int64_t num_nonzeros_ = 0;
  int64_t e_begin_ = 0;
  int64_t f_begin_ = 0;

  // One of them is used.
  solver::ObservationBatch<Machine, Stored> stored_batch_;
  solver::ObservationBatch<Machine, Recomputed> recomputed_batch_;

  // JACOBIAN_STORED.
  Buffer<T> camera_blocks_;
  Buffer<T> point_blocks_;

  // JACOBIAN_RECOMPUTED: the state, its scale, and what products need.
  BatchState state_;
  Buffer<double> cameras_;
  Buffer<double> tangents_;
  Buffer<double> camera_scale_;
  Buffer<double> point_scale_;
  Buffer<kernels::CameraState<T>> camera_states_;
  Buffer<T> camera_maps_;
  Buffer<T> points_;
  Buffer<T> point_scale_in_t_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_GLUE_OBSERVATION_JACOBIAN_H_
