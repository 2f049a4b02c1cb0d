// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/bal_cost_functions.h"

#include "cuda_kernels/model/bal_model.h"

namespace ceres_ext {
namespace {

constexpr BatchModel kAngleAxisModel = {
    "BAL, angle-axis cameras",
    BatchModelKind::kBalAngleAxis,
    kernels::kBalResidualDim,
    2,
    {kernels::kBalAngleAxisCameraDim, kernels::kBalPointDim},
    2};

constexpr BatchModel kQuaternionModel = {
    "BAL, quaternion cameras",
    BatchModelKind::kBalQuaternion,
    kernels::kBalResidualDim,
    2,
    {kernels::kBalQuaternionCameraDim, kernels::kBalPointDim},
    2};

// A problem deletes a manifold that it owns once, however many blocks share it.
void SetSharedManifold(const std::vector<double*>& cameras,
                       ceres::Problem* problem) {
  if (cameras.empty()) {
    return;
  }
  // Not destroyed: a problem may outlive any static object.
  static ceres::Manifold* const immortal = new BalCameraManifold;
  ceres::Manifold* const manifold =
      problem->options().manifold_ownership == ceres::TAKE_OWNERSHIP
          ? new BalCameraManifold
          : immortal;
  for (double* camera : cameras) {
    problem->SetManifold(camera, manifold);
  }
}

}  // namespace

namespace internal {

template <int kRotationDim>
BalCostFunction<kRotationDim>::BalCostFunction(double observed_x,
                                               double observed_y)
    : observation_{observed_x, observed_y} {
  set_num_residuals(kernels::kBalResidualDim);
  *mutable_parameter_block_sizes() = {kRotationDim + 6, kernels::kBalPointDim};
}

template <int kRotationDim>
bool BalCostFunction<kRotationDim>::Evaluate(double const* const* parameters,
                                             double* residuals,
                                             double** jacobians) const {
  constexpr int kCameraDim = kRotationDim + 6;
  double* camera_jacobian = jacobians != nullptr ? jacobians[0] : nullptr;
  double* point_jacobian = jacobians != nullptr ? jacobians[1] : nullptr;

  double rotation_map[3 * kRotationDim];
  const auto camera = kernels::PrepareBalCamera<kRotationDim>(
      parameters[0], camera_jacobian != nullptr ? rotation_map : nullptr);
  const kernels::Projection<double> projection =
      kernels::Project(camera, parameters[1]);

  kernels::Residual(camera, projection, observation_, residuals);
  bool finite = kernels::AllFinite(residuals, kernels::kBalResidualDim);
  if (camera_jacobian != nullptr) {
    double local[kernels::kBalResidualDim * kernels::kBalLocalCameraDim];
    kernels::CameraJacobian(camera, projection, local);
    kernels::MapCameraJacobianByBlocks<kRotationDim, kCameraDim, kRotationDim>(
        local, rotation_map, camera_jacobian);
    finite =
        finite && kernels::AllFinite(camera_jacobian,
                                     kernels::kBalResidualDim * kCameraDim);
  }
  if (point_jacobian != nullptr) {
    kernels::PointJacobian(camera, projection, point_jacobian);
    finite = finite && kernels::AllFinite(
                           point_jacobian,
                           kernels::kBalResidualDim * kernels::kBalPointDim);
  }
  return finite;
}

template <int kRotationDim>
const BatchModel& BalCostFunction<kRotationDim>::batch_model() const {
  return kRotationDim == 3 ? kAngleAxisModel : kQuaternionModel;
}

template <int kRotationDim>
void BalCostFunction<kRotationDim>::CopyConstants(double* constants) const {
  constants[0] = observation_[0];
  constants[1] = observation_[1];
}

template class BalCostFunction<3>;
template class BalCostFunction<4>;

}  // namespace internal

ceres::CostFunction* CreateBalReprojectionError(double observed_x,
                                                double observed_y) {
  return new BalReprojectionError(observed_x, observed_y);
}

ceres::CostFunction* CreateBalReprojectionErrorQuaternion(double observed_x,
                                                          double observed_y) {
  return new BalQuaternionReprojectionError(observed_x, observed_y);
}

bool SetBalCameraManifolds(const std::vector<double*>& cameras,
                           ceres::Problem* problem,
                           std::string* error) {
  for (size_t i = 0; i < cameras.size(); ++i) {
    if (!problem->HasParameterBlock(cameras[i]) ||
        problem->ParameterBlockSize(cameras[i]) !=
            kernels::kBalQuaternionCameraDim) {
      if (error != nullptr) {
        *error = "camera " + std::to_string(i) +
                 " is not a parameter block of 10 values of this problem";
      }
      return false;
    }
  }
  SetSharedManifold(cameras, problem);
  return true;
}

void SetBalCameraManifolds(ceres::Problem* problem) {
  std::vector<double*> cameras;
  problem->GetParameterBlocks(&cameras);
  const auto is_no_camera = [problem](const double* block) {
    return problem->ParameterBlockSize(block) !=
           kernels::kBalQuaternionCameraDim;
  };
  cameras.erase(std::remove_if(cameras.begin(), cameras.end(), is_no_camera),
                cameras.end());
  SetSharedManifold(cameras, problem);
}

}  // namespace ceres_ext
