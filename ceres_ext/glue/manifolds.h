// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The state of a batch of observations: from Ceres's state vector to cameras,
// points and the derivatives of their manifolds, and, on a device, x (+) delta
// of the cameras.
//
// On the host every ceres::Manifold is called. A device knows blocks without
// manifold, constant blocks, ceres::SubsetManifold and, for cameras, the
// product of QuaternionManifold and EuclideanManifold<6>; others are refused.

#ifndef CERES_EXT_GLUE_MANIFOLDS_H_
#define CERES_EXT_GLUE_MANIFOLDS_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "ceres/manifold.h"
#include "ceres_ext/bal_cost_functions.h"
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
    CERES_EXT_RETURN_IF_ERROR(machine->Allocate(3 * num_points, &points_));
    if (cameras.HasManifold() || cameras.HasPadding() ||
        cameras.ambient_size != cameras.padded_size) {
      const int64_t size = TangentSize() * cameras.size();
      CERES_EXT_RETURN_IF_ERROR(machine->Allocate(size, &tangents_));
      CERES_EXT_RETURN_IF_ERROR(machine->SetZero(size, tangents_.data()));
    }
    if (points.HasPadding()) {
      std::vector<double> scale(3 * num_points, 1.0);
      for (int64_t p = 0; p < num_points; ++p) {
        if (points.constant_value[p] != nullptr) {
          std::fill_n(&scale[3 * p], 3, 0.0);
        }
      }
      CERES_EXT_RETURN_IF_ERROR(
          machine->Upload(3 * num_points, scale.data(), &point_scale_));
    }
    if constexpr (kIsHost<Machine>) {
      const int64_t size = points.HasManifold() ? 9 * num_points : 0;
      CERES_EXT_RETURN_IF_ERROR(machine->Allocate(size, &point_tangents_));
      return machine->SetZero(size, point_tangents_.data());
    } else {
      return SetupDeviceTangents();
    }
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
            observations_->point_table(), state, points_.data()},
        machine));
    if (!want_tangents) {
      return {};
    }
    if constexpr (kIsHost<Machine>) {
      return UpdateHostTangents();
    } else {
      if (camera_kinds_.size() == 0) {
        return {};
      }
      kernels::CameraTangentsParams params;
      params.num_cameras = observations_->cameras().size();
      params.ambient_size = observations_->cameras().ambient_size;
      params.padded_size = observations_->cameras().padded_size;
      params.kind = camera_kinds_.data();
      params.cameras = cameras_.data();
      params.tangents = tangents_.data();
      return kernels::Run(params, machine);
    }
  }

  // What Update wrote.
  BatchState state() const {
    return {parameters_,
            cameras_.data(),
            tangents_.data(),
            points_.data(),
            point_scale_.data()};
  }

  // The operation that moves the cameras; state, delta and result are the
  // caller's. On a device alone.
  kernels::PlusParams PlusCameras() const {
    kernels::PlusParams params;
    params.table = observations_->camera_table();
    params.kind = camera_kinds_.data();
    params.linear = tangents_.data();
    return params;
  }

  // Whether points have manifolds. Their derivatives, 3 x 3 per point, padded
  // by zero columns, are in host memory.
  bool has_point_tangents() const { return point_tangents_.size() > 0; }
  const double* point_tangents() const { return point_tangents_.data(); }

 private:
  template <typename T>
  using Buffer = typename Machine::template Buffer<T>;

  // Values in the matrix of a camera.
  int64_t TangentSize() const {
    const BlockTable& cameras = observations_->cameras();
    return int64_t{cameras.ambient_size} * cameras.padded_size;
  }

  // Writes the derivative of block i's manifold at `value` into the first
  // columns of `tangent` (ambient x padded, zero beyond).
  static kernels::Status WriteTangent(const char* what,
                                      const BlockTable& table,
                                      int32_t i,
                                      const double* value,
                                      double* tangent) {
    const int columns = table.tangent_size[i];
    const int stride = table.padded_size;
    if (table.manifold[i] == nullptr) {
      for (int j = 0; j < columns; ++j) {
        tangent[j * stride + j] = 1.0;
      }
      return {};
    }
    double plus_jacobian[10 * 10];
    if (!table.manifold[i]->PlusJacobian(value, plus_jacobian)) {
      return {kernels::StatusCode::kNumericalFailure,
              std::string("Manifold::PlusJacobian failed for ") + what + " " +
                  std::to_string(i) + "."};
    }
    for (int j = 0; j < table.ambient_size; ++j) {
      std::copy_n(plus_jacobian + j * columns, columns, tangent + j * stride);
    }
    return {};
  }

  kernels::Status SetupDeviceTangents() {
    using kernels::ManifoldKind;
    const BlockTable& cameras = observations_->cameras();
    if (observations_->points().HasManifold()) {
      return {kernels::StatusCode::kUnsupported, "a point has a manifold"};
    }
    if (tangents_.size() == 0) {
      return {};
    }
    // The matrices of linear manifolds are the same everywhere; those of
    // quaternions are overwritten by every Update.
    std::vector<double> tangents(tangents_.size(), 0.0);
    std::vector<ManifoldKind> kinds(cameras.size(), ManifoldKind::kLinear);
    bool has_quaternion = false;
    std::vector<double> somewhere(cameras.ambient_size, 0.0);
    somewhere[0] = 1.0;
    for (int32_t c = 0; c < cameras.size(); ++c) {
      const ceres::Manifold* manifold = cameras.manifold[c];
      const bool is_quaternion =
          parameters_ == kernels::CameraParameters::kQuaternion &&
          dynamic_cast<const BalCameraManifold*>(manifold) != nullptr;
      if (manifold != nullptr && !is_quaternion &&
          dynamic_cast<const ceres::SubsetManifold*>(manifold) == nullptr) {
        return {kernels::StatusCode::kUnsupported,
                "camera " + std::to_string(c) +
                    " has a manifold that the device doesn't know"};
      }
      double* tangent = tangents.data() + TangentSize() * c;
      CERES_EXT_RETURN_IF_ERROR(
          WriteTangent("camera", cameras, c, somewhere.data(), tangent));
      if (is_quaternion) {
        kinds[c] = ManifoldKind::kQuaternion;
        has_quaternion = true;
        std::fill_n(tangent, 4 * cameras.padded_size, 0.0);
      }
    }
    Machine* machine = observations_->machine;
    CERES_EXT_RETURN_IF_ERROR(
        machine->Upload(tangents_.size(), tangents.data(), tangents_.data()));
    return has_quaternion
               ? machine->Upload(cameras.size(), kinds.data(), &camera_kinds_)
               : kernels::Status();
  }

  // Serially: a user's manifold need not be thread safe.
  kernels::Status UpdateHostTangents() {
    const BlockTable& cameras = observations_->cameras();
    const BlockTable& points = observations_->points();
    for (int32_t c = 0; tangents_.size() > 0 && c < cameras.size(); ++c) {
      CERES_EXT_RETURN_IF_ERROR(
          WriteTangent("camera",
                       cameras,
                       c,
                       cameras_.data() + int64_t{cameras.ambient_size} * c,
                       tangents_.data() + TangentSize() * c));
    }
    for (int32_t p = 0; has_point_tangents() && p < points.size(); ++p) {
      CERES_EXT_RETURN_IF_ERROR(
          WriteTangent("point",
                       points,
                       p,
                       points_.data() + int64_t{3} * p,
                       point_tangents_.data() + int64_t{9} * p));
    }
    return {};
  }

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

#endif  // CERES_EXT_GLUE_MANIFOLDS_H_
