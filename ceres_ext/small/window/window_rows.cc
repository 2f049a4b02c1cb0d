// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/small/window/window_rows.h"

#include <algorithm>
#include <memory>
#include <string>
#include <type_traits>
#include <typeindex>
#include <typeinfo>
#include <unordered_map>

#include "ceres/autodiff_cost_function.h"
#include "ceres_ext/camera_models.h"
#include "ceres_ext/device_cost_function.h"
#include "ceres_ext/import/array_rows.h"
#include "ceres_ext/marginal_prior.h"
#include "ceres_ext/photogrammetry.h"

namespace ceres_ext {
namespace {

using WindowRowsByType = std::unordered_map<std::type_index, WindowRows>;

template <typename CostFunction>
const double* FunctorOf(const ceres::CostFunction& cost_function) {
  return reinterpret_cast<const double*>(
      &static_cast<const CostFunction&>(cost_function).functor());
}

template <typename Error>
void AddRows(WindowRows rows, int num_scales, WindowRowsByType* all) {
  static_assert(sizeof(Error) % sizeof(double) == 0 &&
                    sizeof(Error) <= sizeof(double) * WindowRows::kMaxConstants,
                "functors consist of doubles");
  rows.num_residuals = Error::kNumResiduals;
  rows.num_scales = num_scales;
  rows.num_measured =
      static_cast<int>(sizeof(Error) / sizeof(double)) - num_scales;
  using OfCeres = CostFunctionFor<ceres::AutoDiffCostFunction, Error>;
  using OfDevice = CostFunctionFor<DeviceAutoDiffCostFunction, Error>;
  rows.constants = &FunctorOf<OfCeres>;
  all->emplace(typeid(OfCeres), rows);
  rows.constants = &FunctorOf<OfDevice>;
  all->emplace(typeid(OfDevice), rows);
}

template <typename Error>
void AddPriorRows(WindowRows rows, PriorKind prior, WindowRowsByType* all) {
  rows.kind = WindowRowKind::kPrior;
  rows.prior = prior;
  AddRows<Error>(rows, 0, all);
  AddRows<WeightedError<Error>>(rows, 1, all);
  AddRows<WhitenedError<Error>>(
      rows, Error::kNumResiduals * Error::kNumResiduals, all);
}

template <typename Rotation>
void AddRotation(PoseRotation rotation, WindowRowsByType* all) {
  WindowRows rows;
  rows.camera_size = Rotation::kSize + 3;
  rows.rotation = rotation;
  ForEachCameraModel([&](auto camera) {
    using Camera = decltype(camera);
    // Errors of a panorama depend on the side of the seam (PoseRows do not).
    if constexpr (!std::is_same_v<Camera, EquirectangularCamera>) {
      using Error = ReprojectionError<Camera, Rotation>;
      WindowRows of_camera = rows;
      of_camera.kind = WindowRowKind::kReprojection;
      of_camera.camera_model = Camera::kModelId;
      of_camera.num_params = Camera::kNumParams;
      AddRows<Error>(of_camera, 0, all);
      AddRows<WeightedError<Error>>(of_camera, 1, all);
    }
  });
  AddPriorRows<PositionPrior<Rotation>>(rows, PriorKind::kPosition, all);
  AddPriorRows<PosePrior<Rotation>>(rows, PriorKind::kPose, all);
  AddPriorRows<RelativePosePrior<Rotation>>(
      rows, PriorKind::kRelativePose, all);
  rows.kind = WindowRowKind::kMarginal;
  all->emplace(typeid(MarginalPrior<Rotation>), rows);
}

WindowRowsByType MakeWindowRows() {
  WindowRowsByType all;
  AddRotation<AngleAxis>(PoseRotation::kAngleAxis, &all);
  AddRotation<Quaternion>(PoseRotation::kQuaternion, &all);
  AddRotation<EigenQuaternion>(PoseRotation::kEigenQuaternion, &all);
  return all;
}

// True if all blocks differ as poses of this rotation do.
template <typename Rotation>
bool IsOnPoses(const BlockMarginalPrior& prior) {
  const internal::BlockDifference pose =
      MarginalPrior<Rotation>::DifferenceOfPose();
  for (int k = 0; k < prior.num_blocks(); ++k) {
    const auto& parts = prior.difference(k).parts();
    if (!std::equal(parts.begin(),
                    parts.end(),
                    pose.parts().begin(),
                    pose.parts().end(),
                    [](const auto& a, const auto& b) {
                      return a.kind == b.kind && a.size == b.size;
                    })) {
      return false;
    }
  }
  return true;
}

// The type of priors on poses that a prior is like.
std::type_index TypeOfPrior(const BlockMarginalPrior& prior) {
  return IsOnPoses<EigenQuaternion>(prior)
             ? typeid(MarginalPrior<EigenQuaternion>)
         : IsOnPoses<Quaternion>(prior) ? typeid(MarginalPrior<Quaternion>)
         : IsOnPoses<AngleAxis>(prior)  ? typeid(MarginalPrior<AngleAxis>)
                                        : typeid(BlockMarginalPrior);
}

WindowRows BalWindowRows(int camera_size) {
  WindowRows rows;
  rows.camera_size = camera_size;
  return rows;
}

}  // namespace

const WindowRows* FindWindowRows(const ceres::CostFunction& cost_function) {
  static const WindowRows& bal = *new WindowRows(BalWindowRows(9));
  static const WindowRows& bal_quaternion = *new WindowRows(BalWindowRows(10));
  static const auto& others = *new WindowRowsByType(MakeWindowRows());
  const auto* const batchable =
      dynamic_cast<const BatchableCostFunction*>(&cost_function);
  if (batchable != nullptr &&
      batchable->batch_model().kind != BatchModelKind::kOther) {
    return batchable->batch_model().kind == BatchModelKind::kBalAngleAxis
               ? &bal
               : &bal_quaternion;
  }
  std::type_index type(typeid(cost_function));
  if (type == typeid(BlockMarginalPrior)) {
    type = TypeOfPrior(static_cast<const BlockMarginalPrior&>(cost_function));
  }
  const auto found = others.find(type);
  return found == others.end() ? nullptr : &found->second;
}

const ceres::CostFunction* FirstCostFunction(
    const ArrayProblem::Residuals& residuals,
    std::unique_ptr<const ceres::CostFunction>* owner) {
  return residuals.cost_functions != nullptr ||
                 (residuals.constants != nullptr &&
                  residuals.make_cost_function != nullptr)
             ? CostFunctionOf(residuals, 0, owner)
             : nullptr;
}

std::string ReadModel(const ArrayProblem& problem,
                      const ArrayProblem::Residuals& residuals,
                      const BatchModel** model) {
  std::unique_ptr<const ceres::CostFunction> owner;
  const auto* const first = dynamic_cast<const BatchableCostFunction*>(
      FirstCostFunction(residuals, &owner));
  if (!residuals.constants_are_of_model || residuals.constants == nullptr) {
    return "cost functions are objects, and not constants of a model";
  }
  if (first == nullptr || first->batch_model().version != kBatchModelVersion) {
    return "a cost function has no model of this version";
  }
  *model = &first->batch_model();
  bool fits = residuals.constants_bytes == (*model)->constants_bytes &&
              static_cast<int>(residuals.blocks.size()) ==
                  (*model)->num_parameter_blocks;
  for (int s = 0; fits && s < (*model)->num_parameter_blocks; ++s) {
    const auto& p = problem.parameters()[residuals.blocks[s].parameters];
    fits = p.size == (*model)->parameter_block_sizes[s] && p.values != nullptr;
  }
  return fits ? "" : "the sizes of constants or parameter blocks do not fit";
}

const WindowRows* FindWindowRows(const ArrayProblem::Residuals& residuals) {
  std::unique_ptr<const ceres::CostFunction> owner;
  const ceres::CostFunction* const first = FirstCostFunction(residuals, &owner);
  const WindowRows* const rows =
      first == nullptr ? nullptr : FindWindowRows(*first);
  const bool fits =
      rows != nullptr &&
      residuals.blocks.size() == first->parameter_block_sizes().size() &&
      (residuals.constants_are_of_model
           ? residuals.constants_bytes ==
                 rows->num_constants() * static_cast<int>(sizeof(double))
           : rows->has_poses());
  return fits ? rows : nullptr;
}

const BlockMarginalPrior* FindMarginalPrior(
    const WindowRows& rows,
    const ArrayProblem::Residuals& residuals,
    int64_t k,
    int num_residuals,
    std::unique_ptr<const ceres::CostFunction>* owner) {
  const ceres::CostFunction* const cost_function =
      CostFunctionOf(residuals, k, owner);
  if (cost_function == nullptr || FindWindowRows(*cost_function) != &rows) {
    return nullptr;
  }
  const auto* const prior =
      static_cast<const BlockMarginalPrior*>(cost_function);
  return prior->num_blocks() == static_cast<int>(residuals.blocks.size()) &&
                 prior->num_residuals() == num_residuals
             ? prior
             : nullptr;
}

bool CopyConstants(const WindowRows& rows,
                   const ArrayProblem::Residuals& residuals,
                   int64_t k,
                   double* constants) {
  std::unique_ptr<const ceres::CostFunction> owner;
  const ceres::CostFunction* const cost_function =
      CostFunctionOf(residuals, k, &owner);
  if (cost_function == nullptr || FindWindowRows(*cost_function) != &rows) {
    return false;
  }
  std::copy_n(rows.constants(*cost_function), rows.num_constants(), constants);
  return true;
}

}  // namespace ceres_ext
