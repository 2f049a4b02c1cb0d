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

#include <utility>

#include "ceres/internal/port.h"
#include "ceres_ext/device_cost_function.h"
#include "ceres_ext/photogrammetry.h"

namespace ceres_ext {

namespace internal {

// A functor of photogrammetry.h with derivatives, as a model.
template <typename Error>
struct DirectionModel {
  static constexpr int kNumResiduals = Error::kNumResiduals;
  using BlockSizes = typename Error::BlockSizes;
  using Constants = Error;
  static constexpr bool kBlocksAreOpposite = true;

  CERES_HOST_DEVICE static bool Evaluate(const Error& error,
                                         const double* const* blocks,
                                         double* residuals,
                                         double* const* jacobians) {
    if (jacobians != nullptr) {
      return error.Differentiate(BlockSizes(), blocks, residuals, jacobians);
    }
    if constexpr (BlockSizes::size() == 3) {
      return error(blocks[0], blocks[1], blocks[2], residuals);
    } else {
      return error(blocks[0], blocks[1], blocks[2], blocks[3], residuals);
    }
  }
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
