// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The state of a batch of observations: from Ceres's state vector to cameras,
// points and the derivatives of their manifolds.

#ifndef CERES_EXT_ROWS_STATE_MODEL_H_
#define CERES_EXT_ROWS_STATE_MODEL_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ceres_ext/batchable_cost_function.h"
#include "ceres_ext/blocks/block_manifolds.h"
#include "ceres_ext/blocks/machine_problem.h"
#include "ceres_ext/import/block_table.h"
#include "ceres_ext/rows/observation_jacobian.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/ops/block_table.h"

namespace ceres_ext {

template <typename Machine>
class StateModel {
 public:
  // *observations outlive the model.
  kernels::Status Setup(BatchModelKind kind,
                        const ObservationBlocks<Machine>* observations) {
    observations_ = observations;
    parameters_ = kind == BatchModelKind::kBalAngleAxis
                      ? kernels::CameraParameters::kAngleAxis
                      : kernels::CameraParameters::kQuaternion;
    const BlockTable& cameras = observations->cameras();
    const BlockTable& points = observations->points();
    Machine* machine = observations->machine;
    const int64_t num_points = points.size();
    CERES_EXT_RETURN_IF_ERROR(machine->Allocate(
        int64_t{cameras.ambient_size} * cameras.size(), &cameras_));
    if (points.HasPadding()) {
      std::vector<double> scale(3 * num_points, 1.0);
      for (int64_t p = 0; p < num_points; ++p) {
        if (points.constant_value(p) != nullptr) {
          std::fill_n(&scale[3 * p], 3, 0.0);
        }
        for (int j = 0; j < 3; ++j) {
          if (points.IsHeld(p, j)) {
            scale[3 * p + j] = 0.0;
          }
        }
      }
      CERES_EXT_RETURN_IF_ERROR(
          machine->Upload(3 * num_points, scale.data(), &point_scale_));
    }
    std::vector<BlockManifold> blocks;
    if (cameras.HasTangents()) {
      AppendBlocks(cameras, &blocks);
    }
    first_point_ = static_cast<int64_t>(blocks.size());
    has_point_tangents_ = points.NeedsTangents();
    if (has_point_tangents_) {
      AppendBlocks(points, &blocks);
    }
    return manifolds_.Setup(blocks, /*wants_tangents=*/true, machine);
  }

  // Reads a state and, where they are wanted, the derivatives of manifolds.
  // kNumericalFailure where a manifold fails.
  kernels::Status Update(const double* state, bool want_tangents) {
    Machine* machine = observations_->machine;
    CERES_EXT_RETURN_IF_ERROR(kernels::Run(
        kernels::GatherStateParams{
            observations_->camera_table(), state, cameras_.data()},
        machine));
    CERES_EXT_RETURN_IF_ERROR(kernels::Run(
        kernels::GatherStateParams{
            observations_->point_table(), state, observations_->working_points},
        machine));
    return want_tangents ? manifolds_.UpdateTangents(state) : kernels::Status();
  }

  // The output of Update; the points until the linear solver is asked for a
  // step.
  BatchState state() const {
    return {parameters_,
            cameras_.data(),
            first_point_ > 0 ? manifolds_.tangents() : nullptr,
            observations_->working_points,
            point_scale_.data()};
  }

  // 3 x 3 per point, padded by zero columns; null: points have no manifolds but
  // such as hold values.
  const double* point_tangents() const {
    return has_point_tangents_
               ? manifolds_.tangents() + manifolds_.tangent_begin(first_point_)
               : nullptr;
  }

 private:
  template <typename T>
  using Buffer = typename Machine::template Buffer<T>;

  // Appends all blocks of a table, each with a matrix of ambient x padded.
  static void AppendBlocks(const BlockTable& table,
                           std::vector<BlockManifold>* blocks) {
    for (int32_t i = 0; i < table.size(); ++i) {
      blocks->push_back({table.manifold(i),
                         table.state_offset(i),
                         table.tangent_offset(i),
                         table.ambient_size,
                         table.tangent_size(i),
                         table.padded_size});
    }
  }

  const ObservationBlocks<Machine>* observations_ = nullptr;
  kernels::CameraParameters parameters_ = kernels::CameraParameters::kAngleAxis;

  Buffer<double> cameras_;  // ambient
  // 0 for values that are constant or held; empty: all one.
  Buffer<double> point_scale_;
  // All cameras, or none where their derivatives are the identity, and all
  // points, or none where they have no manifold that needs them.
  BlockManifolds<Machine> manifolds_;
  int64_t first_point_ = 0;
  bool has_point_tangents_ = false;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_ROWS_STATE_MODEL_H_
