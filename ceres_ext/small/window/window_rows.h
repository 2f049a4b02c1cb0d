// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Recognises the cost functions that windows have: those of BAL, and functors
// of ceres_ext/photogrammetry.h in ceres::AutoDiffCostFunction or
// DeviceAutoDiffCostFunction, with poses in one block, and MarginalPrior; and
// the models that rows of other small problems have.

#ifndef CERES_EXT_SMALL_WINDOW_WINDOW_ROWS_H_
#define CERES_EXT_SMALL_WINDOW_WINDOW_ROWS_H_

#include <cstdint>
#include <memory>
#include <string>

#include "ceres/cost_function.h"
#include "ceres_ext/array_problem.h"
#include "ceres_ext/batchable_cost_function.h"
#include "ceres_ext/marginal_prior.h"
#include "ceres_ext/small/window/window.h"

namespace ceres_ext {

enum class WindowRowKind {
  kBal,           // of a camera and a point
  kReprojection,  // of a point, a pose and intrinsics
  kPrior,         // of one or two poses
  kMarginal,      // of any number of poses: MarginalPrior
};
enum class PoseRotation { kAngleAxis, kQuaternion, kEigenQuaternion };

// Properties of the residual blocks of one cost function type.
struct WindowRows {
  WindowRowKind kind = WindowRowKind::kBal;
  int num_residuals = 2;
  int camera_size = 0;  // values of a camera or pose
  PoseRotation rotation = PoseRotation::kAngleAxis;
  // kReprojection alone has these.
  int camera_model = -1;
  int num_params = 0;
  PriorKind prior = PriorKind::kPosition;  // of kPrior
  // Constants of a residual block: a measurement of num_measured doubles, then
  // num_scales doubles: none, a weight, or a matrix of num_residuals rows.
  int num_measured = 2;
  int num_scales = 0;
  // The constants of a cost function; null for BAL and marginal priors.
  const double* (*constants)(const ceres::CostFunction& cost_function) =
      nullptr;

  static constexpr int kMaxConstants =
      7 + WindowPrior::kSize * WindowPrior::kSize;
  int num_constants() const { return num_measured + num_scales; }
  bool has_poses() const { return kind != WindowRowKind::kBal; }
  bool has_point() const {
    return kind == WindowRowKind::kBal || kind == WindowRowKind::kReprojection;
  }
  // Numbers of their parameter blocks.
  int camera_block() const {
    return kind == WindowRowKind::kReprojection ? 1 : 0;
  }
  int point_block() const { return kind == WindowRowKind::kBal ? 1 : 0; }
  static constexpr int kParamsBlock = 2;
  static constexpr int kMaxBlocks = 3;  // except of marginal priors
};

// Null if windows do not have this cost function. The result is valid for the
// life of the process.
const WindowRows* FindWindowRows(const ceres::CostFunction& cost_function);

// The first cost function of an array that is not empty; null if it has none.
// *owner owns it if it was made for the call.
const ceres::CostFunction* FirstCostFunction(
    const ArrayProblem::Residuals& residuals,
    std::unique_ptr<const ceres::CostFunction>* owner);

// Sets *model to that of an array of the problem that is not empty. Returns why
// it has none whose constants and parameter blocks the array has, or an empty
// string.
std::string ReadModel(const ArrayProblem& problem,
                      const ArrayProblem::Residuals& residuals,
                      const BatchModel** model);

// FindWindowRows by the first cost function of an array that is not empty.
const WindowRows* FindWindowRows(const ArrayProblem::Residuals& residuals);

// Copies the constants of residual block k from its cost function. False if it
// is of another type.
bool CopyConstants(const WindowRows& rows,
                   const ArrayProblem::Residuals& residuals,
                   int64_t k,
                   double* constants);

// Residual block k of an array of marginal priors. Null if its cost function
// has another type, or not as many poses as the array has blocks or residuals
// as given. *owner owns it if it was made for the call.
const BlockMarginalPrior* FindMarginalPrior(
    const WindowRows& rows,
    const ArrayProblem::Residuals& residuals,
    int64_t k,
    int num_residuals,
    std::unique_ptr<const ceres::CostFunction>* owner);

// The constants of residual block k: those of the array, or a copy in `buffer`
// (kMaxConstants). Null if its cost function is of another type.
inline const double* ReadConstants(const WindowRows& rows,
                                   const ArrayProblem::Residuals& residuals,
                                   int64_t k,
                                   double* buffer) {
  if (residuals.constants_are_of_model) {
    return static_cast<const double*>(residuals.constants) +
           rows.num_constants() * k;
  }
  return CopyConstants(rows, residuals, k, buffer) ? buffer : nullptr;
}

}  // namespace ceres_ext

#endif  // CERES_EXT_SMALL_WINDOW_WINDOW_ROWS_H_
