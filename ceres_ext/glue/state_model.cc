// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/glue/state_model.h"

#include <algorithm>
#include <string>
#include <vector>

#include "ceres/manifold.h"
#include "ceres_ext/bal_cost_functions.h"
#include "ceres_ext/glue/machines.h"
#include "cuda_kernels/ops/block_table.h"

namespace ceres_ext {
namespace {

using kernels::Status;
using kernels::StatusCode;

// Writes the derivative of block i's manifold at `value` into the first columns
// of `tangent` (ambient x padded, zero beyond). False if the manifold fails.
bool WriteTangent(const BlockTable& table,
                  int32_t i,
                  const double* value,
                  double* tangent) {
  const int rows = table.ambient_size;
  const int columns = table.tangent_size[i];
  const int stride = table.padded_size;
  if (table.manifold[i] == nullptr) {
    for (int j = 0; j < columns; ++j) {
      tangent[j * stride + j] = 1.0;
    }
    return true;
  }
  double plus_jacobian[10 * 10];
  if (!table.manifold[i]->PlusJacobian(value, plus_jacobian)) {
    return false;
  }
  for (int j = 0; j < rows; ++j) {
    std::copy_n(plus_jacobian + j * columns, columns, tangent + j * stride);
  }
  return true;
}

Status ManifoldFailed(const char* what, int32_t i) {
  return {StatusCode::kNumericalFailure,
          std::string("Manifold::PlusJacobian failed for ") + what + " " +
              std::to_string(i) + "."};
}

}  // namespace

template <typename Machine>
Status StateModel<Machine>::Setup(
    BatchModelKind kind, const ObservationBlocks<Machine>* observations) {
  observations_ = observations;
  parameters_ = kind == BatchModelKind::kBalAngleAxis
                    ? kernels::CameraParameters::kAngleAxis
                    : kernels::CameraParameters::kQuaternion;
  const BlockTable& cameras = observations->cameras();
  const BlockTable& points = observations->points();
  Machine* machine = observations->machine;
  const int64_t num_cameras = cameras.size();
  const int64_t num_points = points.size();
  CERES_EXT_RETURN_IF_ERROR(
      machine->Allocate(cameras.ambient_size * num_cameras, &cameras_));
  CERES_EXT_RETURN_IF_ERROR(machine->Allocate(3 * num_points, &points_));
  if (cameras.HasManifold() || cameras.HasPadding() ||
      cameras.ambient_size != cameras.padded_size) {
    const int64_t size =
        cameras.ambient_size * cameras.padded_size * num_cameras;
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
  return SetupTangents();
}

template <typename Machine>
Status StateModel<Machine>::SetupTangents() {
  if constexpr (kIsHost<Machine>) {
    return observations_->points().HasManifold()
               ? point_tangents_.Allocate(
                     9 * int64_t{observations_->points().size()}, 0.0)
               : Status();
  } else {
    return SetupDeviceTangents();
  }
}

template <typename Machine>
Status StateModel<Machine>::SetupDeviceTangents() {
  const BlockTable& cameras = observations_->cameras();
  const BlockTable& points = observations_->points();
  if (points.HasManifold()) {
    return {StatusCode::kUnsupported, "a point has a manifold"};
  }
  if (tangents_.size() == 0) {
    return {};
  }
  // The matrices of linear manifolds are the same everywhere; those of
  // quaternions are overwritten by every Update.
  std::vector<double> tangents(tangents_.size(), 0.0);
  std::vector<kernels::ManifoldKind> kinds(cameras.size(),
                                           kernels::ManifoldKind::kLinear);
  const int64_t size = int64_t{cameras.ambient_size} * cameras.padded_size;
  std::vector<double> somewhere(cameras.ambient_size, 0.0);
  somewhere[0] = 1.0;
  for (int32_t c = 0; c < cameras.size(); ++c) {
    const ceres::Manifold* manifold = cameras.manifold[c];
    if (manifold != nullptr) {
      if (dynamic_cast<const BalCameraManifold*>(manifold) != nullptr &&
          parameters_ == kernels::CameraParameters::kQuaternion) {
        kinds[c] = kernels::ManifoldKind::kQuaternion;
      } else if (dynamic_cast<const ceres::SubsetManifold*>(manifold) ==
                 nullptr) {
        return {StatusCode::kUnsupported,
                "camera " + std::to_string(c) +
                    " has a manifold that the device doesn't know"};
      }
    }
    double* tangent = tangents.data() + size * c;
    if (!WriteTangent(cameras, c, somewhere.data(), tangent)) {
      return ManifoldFailed("camera", c);
    }
    if (kinds[c] == kernels::ManifoldKind::kQuaternion) {
      std::fill_n(tangent, 4 * cameras.padded_size, 0.0);
    }
  }
  Machine* machine = observations_->machine;
  CERES_EXT_RETURN_IF_ERROR(
      machine->Upload(tangents_.size(), tangents.data(), tangents_.data()));
  if (std::find(kinds.begin(),
                kinds.end(),
                kernels::ManifoldKind::kQuaternion) != kinds.end()) {
    CERES_EXT_RETURN_IF_ERROR(
        machine->Upload(cameras.size(), kinds.data(), &camera_kinds_));
  }
  return {};
}

template <typename Machine>
Status StateModel<Machine>::Update(const double* state, bool want_tangents) {
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

// Serially: a user's manifold need not be thread safe.
template <typename Machine>
Status StateModel<Machine>::UpdateHostTangents() {
  const BlockTable& cameras = observations_->cameras();
  const BlockTable& points = observations_->points();
  if (tangents_.size() > 0) {
    const int64_t size = int64_t{cameras.ambient_size} * cameras.padded_size;
    for (int32_t c = 0; c < cameras.size(); ++c) {
      if (!WriteTangent(cameras,
                        c,
                        cameras_.data() + int64_t{cameras.ambient_size} * c,
                        tangents_.data() + size * c)) {
        return ManifoldFailed("camera", c);
      }
    }
  }
  if (has_point_tangents()) {
    for (int32_t p = 0; p < points.size(); ++p) {
      if (!WriteTangent(points,
                        p,
                        points_.data() + int64_t{3} * p,
                        point_tangents_.data() + int64_t{9} * p)) {
        return ManifoldFailed("point", p);
      }
    }
  }
  return {};
}

template <typename Machine>
kernels::PlusParams StateModel<Machine>::PlusCameras() const {
  kernels::PlusParams params;
  params.table = observations_->camera_table();
  params.kind = camera_kinds_.data();
  params.linear = tangents_.data();
  return params;
}

template <typename Machine>
BatchState StateModel<Machine>::state() const {
  BatchState state;
  state.parameters = parameters_;
  state.cameras = cameras_.data();
  state.tangents = tangents_.data();
  state.points = points_.data();
  state.point_scale = point_scale_.data();
  return state;
}

template <typename Machine>
int64_t StateModel<Machine>::bytes() const {
  return cameras_.bytes() + tangents_.bytes() + points_.bytes() +
         point_scale_.bytes() + point_tangents_.bytes() + camera_kinds_.bytes();
}

#define CERES_EXT_INSTANTIATE(Machine) template class StateModel<Machine>;
CERES_EXT_FOR_EACH_MACHINE(CERES_EXT_INSTANTIATE)
#undef CERES_EXT_INSTANTIATE

}  // namespace ceres_ext
