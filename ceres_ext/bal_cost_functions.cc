// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/bal_cost_functions.h"

#include <cstdint>

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

std::vector<int32_t> ParameterBlockSizes(const BatchModel& model) {
  return std::vector<int32_t>(
      model.parameter_block_sizes,
      model.parameter_block_sizes + model.num_parameter_blocks);
}

// kRotationDim 3: angle-axis, 4: quaternion.
template <int kRotationDim>
bool EvaluateBal(double const* const* parameters,
                 const double* observation,
                 double* residuals,
                 double** jacobians) {
  constexpr int kCameraDim = kRotationDim + 6;
  double* camera_jacobian = jacobians != nullptr ? jacobians[0] : nullptr;
  double* point_jacobian = jacobians != nullptr ? jacobians[1] : nullptr;

  double rotation_map[3 * kRotationDim];
  const auto camera = kernels::PrepareBalCamera<kRotationDim>(
      parameters[0], camera_jacobian != nullptr ? rotation_map : nullptr);
  const kernels::Projection<double> projection =
      kernels::Project(camera, parameters[1]);

  kernels::Residual(camera, projection, observation, residuals);
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

// A problem deletes a manifold that it owns once, however many blocks share it.
void SetSharedManifold(const std::vector<double*>& cameras,
                       ceres::Problem* problem) {
  if (cameras.empty()) {
    return;
  }
  ceres::Manifold* manifold = nullptr;
  if (problem->options().manifold_ownership == ceres::TAKE_OWNERSHIP) {
    manifold = new BalCameraManifold;
  } else {
    // Not destroyed: a problem may outlive any static object.
    static ceres::Manifold* const immortal = new BalCameraManifold;
    manifold = immortal;
  }
  for (double* camera : cameras) {
    problem->SetManifold(camera, manifold);
  }
}

}  // namespace

BalReprojectionError::BalReprojectionError(double observed_x, double observed_y)
    : observation_{observed_x, observed_y} {
  set_num_residuals(kAngleAxisModel.num_residuals);
  *mutable_parameter_block_sizes() = ParameterBlockSizes(kAngleAxisModel);
}

bool BalReprojectionError::Evaluate(double const* const* parameters,
                                    double* residuals,
                                    double** jacobians) const {
  return EvaluateBal<3>(parameters, observation_, residuals, jacobians);
}

const BatchModel& BalReprojectionError::batch_model() const {
  return kAngleAxisModel;
}

void BalReprojectionError::CopyConstants(double* constants) const {
  constants[0] = observation_[0];
  constants[1] = observation_[1];
}

BalQuaternionReprojectionError::BalQuaternionReprojectionError(
    double observed_x, double observed_y)
    : observation_{observed_x, observed_y} {
  set_num_residuals(kQuaternionModel.num_residuals);
  *mutable_parameter_block_sizes() = ParameterBlockSizes(kQuaternionModel);
}

bool BalQuaternionReprojectionError::Evaluate(double const* const* parameters,
                                              double* residuals,
                                              double** jacobians) const {
  return EvaluateBal<4>(parameters, observation_, residuals, jacobians);
}

const BatchModel& BalQuaternionReprojectionError::batch_model() const {
  return kQuaternionModel;
}

void BalQuaternionReprojectionError::CopyConstants(double* constants) const {
  constants[0] = observation_[0];
  constants[1] = observation_[1];
}

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
  std::vector<double*> blocks;
  problem->GetParameterBlocks(&blocks);
  std::vector<double*> cameras;
  for (double* block : blocks) {
    if (problem->ParameterBlockSize(block) ==
        kernels::kBalQuaternionCameraDim) {
      cameras.push_back(block);
    }
  }
  SetSharedManifold(cameras, problem);
}

}  // namespace ceres_ext
