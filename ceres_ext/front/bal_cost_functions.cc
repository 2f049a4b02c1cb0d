// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/bal_cost_functions.h"

namespace ceres_ext {
namespace {

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
const BatchModel& BalCostFunction<kRotationDim>::batch_model() const {
  return DeviceCostFunction<BalModel<kRotationDim>>::batch_model();
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
