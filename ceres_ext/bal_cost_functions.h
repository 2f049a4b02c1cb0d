// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Reprojection errors of the camera model of Bundle Adjustment in the Large,
// with analytic derivatives: drop-in replacements for the autodiff functors of
// Ceres's examples/snavely_reprojection_error.h. ceres_ext::Solve evaluates all
// of them as one batch, ceres::Solve one by one.
//
//   ceres::Problem problem;
//   for (each observation of point j in camera i at (x, y)) {
//     problem.AddResidualBlock(
//         ceres_ext::CreateBalReprojectionError(x, y), loss, camera_i,
//         point_j);
//   }
//   ceres_ext::Solve(options, ext_options, &problem, &summary);
//
// Model. The camera looks along its negative z axis; there is no principal
// point. With P = R X + t:
//
//   p = -P / P.z,   residual = f (1 + k1 |p|^2 + k2 |p|^4) p - (x, y)
//
// Distortion applies to normalised coordinates, as in BAL's files, not to
// pixels as in the tests inside Ceres.
//
// At and behind the camera. A point behind the camera (P.z > 0) has a finite
// residual and correct derivatives, as in Ceres's examples. At the optical
// centre (P.z = 0, or so close to it that a residual or a requested derivative
// is not finite) Evaluate returns false: Ceres rejects the step, or fails at
// the starting point. Autodiff also has non-finite values there, for which
// Ceres additionally logs a warning. Evaluate also returns false if a parameter
// is NaN, and for the quaternion 0, which is not a rotation.
//
// Exactness. Derivatives are exact to rounding at every rotation angle,
// including 0 and its neighbourhood, where autodiff of the angle-axis rotation
// loses digits (near 1e-8) or gives NaN (below 1e-154).
//
// Thread safety: Evaluate may be called from any number of threads. Results
// depend on the arguments alone.

#ifndef CERES_EXT_BAL_COST_FUNCTIONS_H_
#define CERES_EXT_BAL_COST_FUNCTIONS_H_

#include <string>
#include <utility>
#include <vector>

#include "ceres/manifold.h"
#include "ceres/problem.h"
#include "ceres/product_manifold.h"
#include "ceres_ext/batchable_cost_function.h"
#include "ceres_ext/device_cost_function.h"
#include "cuda_kernels/model/bal_model.h"

namespace ceres_ext {

namespace internal {

// kRotationDim: parameters of the rotation, 3 or 4. Evaluate returns false if a
// residual or derivative is not finite.
template <int kRotationDim>
struct BalModel {
  static constexpr int kCameraDim = kRotationDim + 6;
  static constexpr int kNumResiduals = kernels::kBalResidualDim;
  static constexpr BatchModelKind kKind = kRotationDim == 3
                                              ? BatchModelKind::kBalAngleAxis
                                              : BatchModelKind::kBalQuaternion;
  using BlockSizes =
      std::integer_sequence<int, kCameraDim, kernels::kBalPointDim>;
  struct Constants {
    double x;
    double y;
  };

  CERES_HOST_DEVICE static bool Evaluate(const Constants& observed,
                                         const double* const* parameters,
                                         double* residuals,
                                         double* const* jacobians) {
    double rotation_map[3 * kRotationDim];
    const auto camera = kernels::PrepareBalCamera<kRotationDim>(
        parameters[0], jacobians != nullptr ? rotation_map : nullptr);
    const kernels::Projection<double> projection =
        kernels::Project(camera, parameters[1]);
    const double observation[2] = {observed.x, observed.y};
    kernels::Residual(camera, projection, observation, residuals);
    bool finite = kernels::AllFinite(residuals, kNumResiduals);
    if (jacobians != nullptr) {
      double local[kNumResiduals * kernels::kBalLocalCameraDim];
      kernels::CameraJacobian(camera, projection, local);
      kernels::
          MapCameraJacobianByBlocks<kRotationDim, kCameraDim, kRotationDim>(
              local, rotation_map, jacobians[0]);
      kernels::PointJacobian(camera, projection, jacobians[1]);
      finite = finite &&
               kernels::AllFinite(jacobians[0], kNumResiduals * kCameraDim) &&
               kernels::AllFinite(jacobians[1],
                                  kNumResiduals * kernels::kBalPointDim);
    }
    return finite;
  }
};

// The base class of the two cost functions below.
template <int kRotationDim>
class BalCostFunction : public DeviceCostFunction<BalModel<kRotationDim>> {
 public:
  BalCostFunction(double observed_x, double observed_y)
      : DeviceCostFunction<BalModel<kRotationDim>>({observed_x, observed_y}) {}
  explicit BalCostFunction(
      const typename BalModel<kRotationDim>::Constants& observed)
      : DeviceCostFunction<BalModel<kRotationDim>>(observed) {}

  // The model of this library, which has the device form.
  const BatchModel& batch_model() const override;
};

}  // namespace internal

// Camera of 9 parameters: rotation vector (axis times angle in radians), t, f,
// k1, k2. Point of 3. Two residuals, in pixels.
class BalReprojectionError final : public internal::BalCostFunction<3> {
 public:
  using BalCostFunction::BalCostFunction;
};

// Camera of 10 parameters: quaternion (w, x, y, z), t, f, k1, k2. Point of 3.
// Two residuals, in pixels. The quaternion may have any norm but zero: it is
// normalised first, so the derivatives are those of a function that does not
// depend on the norm. Use with or without a manifold.
class BalQuaternionReprojectionError final
    : public internal::BalCostFunction<4> {
 public:
  using BalCostFunction::BalCostFunction;
};

// The caller, or the ceres::Problem it is given to, owns the result.
ceres::CostFunction* CreateBalReprojectionError(double observed_x,
                                                double observed_y);
ceres::CostFunction* CreateBalReprojectionErrorQuaternion(double observed_x,
                                                          double observed_y);

// The manifold of a 10-parameter camera, 9 tangent coordinates.
using BalCameraManifold = ceres::ProductManifold<ceres::QuaternionManifold,
                                                 ceres::EuclideanManifold<6>>;

// Sets one shared BalCameraManifold on the given 10-parameter cameras,
// replacing their manifolds. The problem owns it if its
// Options::manifold_ownership is TAKE_OWNERSHIP; otherwise the manifold lives
// as long as the process. Returns false and changes nothing if a camera is not
// a parameter block of 10 values of this problem; *error (may be nullptr) names
// the camera.
bool SetBalCameraManifolds(const std::vector<double*>& cameras,
                           ceres::Problem* problem,
                           std::string* error);

// The same for all parameter blocks of 10 values of the problem. For problems
// whose blocks of that size are all cameras.
void SetBalCameraManifolds(ceres::Problem* problem);

}  // namespace ceres_ext

#endif  // CERES_EXT_BAL_COST_FUNCTIONS_H_
