// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The state of a batch: from Ceres's state vector to cameras, points and the
// derivatives of their manifolds, and x (+) delta.
//
// On the host every ceres::Manifold is called. A device knows blocks without
// manifold, constant blocks, ceres::SubsetManifold and, for cameras, the
// product of QuaternionManifold and EuclideanManifold<6>; bounds and other
// manifolds are refused.

#ifndef CERES_EXT_GLUE_STATE_MODEL_H_
#define CERES_EXT_GLUE_STATE_MODEL_H_

#include <cstdint>
#include <string>

#include "ceres/preprocessor.h"
#include "ceres_ext/glue/batch_shape.h"
#include "ceres_ext/glue/jacobian.h"
#include "ceres_ext/glue/machines.h"
#include "ceres_ext/glue/program_import.h"
#include "cuda_kernels/base/status.h"

namespace ceres_ext {

template <typename Machine>
class StateModel {
 public:
  // *shape and *pp outlive the model. kUnsupported, with the reason, for a
  // manifold or bounds that the Machine doesn't know.
  kernels::Status Setup(BatchModelKind kind,
                        const BatchShape<Machine>* shape,
                        ceres::internal::PreprocessedProblem* pp);

  // Reads a state and, where they are wanted, the derivatives of manifolds.
  // kNumericalFailure where a manifold fails.
  kernels::Status Update(const double* state, bool want_tangents);
  // What Update wrote.
  BatchState state() const;

  kernels::Status Plus(const double* state,
                       const double* delta,
                       double* state_plus_delta) const;

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

  const BatchShape<Machine>* shape_ = nullptr;
  ceres::internal::Program* program_ = nullptr;
  ceres::internal::ContextImpl* ceres_context_ = nullptr;
  int num_threads_ = 1;
  // No manifold anywhere: the state and its tangents have the same coordinates.
  bool is_euclidean_ = false;
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
