// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The state of a batch of observations: from Ceres's state vector to cameras,
// points and the derivatives of their manifolds, and, on a device, x (+) delta
// of the cameras.
//
// On the host every ceres::Manifold is called. A device knows blocks without
// manifold, constant blocks, ceres::SubsetManifold and, for cameras, the
// product of QuaternionManifold and EuclideanManifold<6>; others are refused.

#ifndef CERES_EXT_GLUE_STATE_MODEL_H_
#define CERES_EXT_GLUE_STATE_MODEL_H_

#include <cstdint>

#include "ceres_ext/glue/machines.h"
#include "ceres_ext/glue/observation_jacobian.h"
#include "ceres_ext/glue/program_blocks.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/ops/block_table.h"

namespace ceres_ext {

template <typename Machine>
class StateModel {
 public:
  // *observations outlive the model. kUnsupported, with the reason, for a
  // manifold that the Machine doesn't know.
  kernels::Status Setup(BatchModelKind kind,
                        const ObservationBlocks<Machine>* observations);

  // Reads a state and, where they are wanted, the derivatives of manifolds.
  // kNumericalFailure where a manifold fails.
  kernels::Status Update(const double* state, bool want_tangents);
  // What Update wrote.
  BatchState state() const;

  // The operation that moves the cameras; state, delta and result are the
  // caller's. On a device alone.
  kernels::PlusParams PlusCameras() const;

  // Whether points have manifolds. Their derivatives, 3 x 3 per point, padded
  // by zero columns, are in host memory.
  bool has_point_tangents() const { return point_tangents_.size() > 0; }
  const double* point_tangents() const { return point_tangents_.data(); }

  int64_t bytes() const;

 private:
  template <typename T>
  using Buffer = typename Machine::template Buffer<T>;

  kernels::Status SetupTangents();
  kernels::Status SetupDeviceTangents();
  kernels::Status UpdateHostTangents();

  const ObservationBlocks<Machine>* observations_ = nullptr;
  kernels::CameraParameters parameters_ = kernels::CameraParameters::kAngleAxis;

  Buffer<double> cameras_;      // ambient
  Buffer<double> tangents_;     // ambient x C per camera; empty: identity
  Buffer<double> points_;       // 3 per point
  Buffer<double> point_scale_;  // 0 for constant points; empty: all one
  // Host only.
  kernels::HostBuffer<double> point_tangents_;
  // Device only; empty: all kLinear.
  Buffer<kernels::ManifoldKind> camera_kinds_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_GLUE_STATE_MODEL_H_
