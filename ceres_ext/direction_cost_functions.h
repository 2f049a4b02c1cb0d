// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Cost functions of global positioning (DirectionError and its kinds for rigs,
// photogrammetry.h) with analytic derivatives, evaluated in batches on the host
// and, without a .cu file of the program, on a device.
//
//   ceres::Problem problem;
//   for (each direction d from camera i to point j) {
//     problem.AddResidualBlock(
//         new ceres_ext::DirectionCost({d[0], d[1], d[2]}),
//         new ceres::HuberLoss(0.1), center_i, point_j, &scale_ij);
//     problem.SetParameterLowerBound(&scale_ij, 0, 1e-5);
//   }
//   ceres_ext::Solve(options, ext_options, &problem, &summary);
//
// Thread safety: as ceres_ext/device_cost_function.h.

#ifndef CERES_EXT_DIRECTION_COST_FUNCTIONS_H_
#define CERES_EXT_DIRECTION_COST_FUNCTIONS_H_

#include "ceres_ext/device_cost_function.h"
#include "ceres_ext/photogrammetry.h"
#include "ceres_ext/written_model.h"

namespace ceres_ext {

namespace internal {

template <typename Error>
struct DirectionModel : WrittenModel<Error> {
  static constexpr bool kBlocksAreOpposite = true;
};

template <typename Error>
class DirectionCostFunction final
    : public DeviceCostFunction<DirectionModel<Error>> {
 public:
  explicit DirectionCostFunction(const Error& error)
      : DeviceCostFunction<DirectionModel<Error>>(error) {}

  // The model of this library, which has the device form.
  const BatchModel& batch_model() const override;
};

}  // namespace internal

using DirectionCost = internal::DirectionCostFunction<DirectionError>;
using RigDirectionCost = internal::DirectionCostFunction<RigDirectionError>;
using SensorDirectionCost =
    internal::DirectionCostFunction<SensorDirectionError>;

}  // namespace ceres_ext

#endif  // CERES_EXT_DIRECTION_COST_FUNCTIONS_H_
