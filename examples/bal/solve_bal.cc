// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "examples/bal/solve_bal.h"

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "ceres/loss_function.h"
#include "ceres/ordered_groups.h"
#include "ceres/problem.h"
#include "ceres/solver.h"
#include "ceres_ext/array_problem.h"
#include "ceres_ext/bal_cost_functions.h"
#include "ceres_ext/solve.h"
#include "examples/bal/autodiff_cost_functions.h"
#include "examples/bal/seconds_since.h"
#include "problem_io/progress_line.h"

namespace ceres_ext::bal {
namespace {

template <template <typename, int, int...> class CostFunction>
ceres::CostFunction* CreateAutodiff(int camera_size, double x, double y) {
  return camera_size == 10
             ? AutodiffReprojectionError<10>::Create<CostFunction>(x, y)
             : AutodiffReprojectionError<9>::Create<CostFunction>(x, y);
}

ceres::CostFunction* CreateCostFunction(CostFunctionType type,
                                        int camera_size,
                                        double x,
                                        double y) {
  if (type == COST_FUNCTION_AUTODIFF) {
    return CreateAutodiff<ceres::AutoDiffCostFunction>(camera_size, x, y);
  }
  if (type == COST_FUNCTION_DEVICE_AUTODIFF) {
    return CreateAutodiff<DeviceAutoDiffCostFunction>(camera_size, x, y);
  }
  return camera_size == 10 ? CreateBalReprojectionErrorQuaternion(x, y)
                           : CreateBalReprojectionError(x, y);
}

// A negative group leaves that kind of block out.
std::shared_ptr<ceres::ParameterBlockOrdering> CreateOrdering(
    int camera_group, int point_group, BalProblem* problem) {
  auto ordering = std::make_shared<ceres::ParameterBlockOrdering>();
  if (point_group >= 0) {
    for (int64_t i = 0; i < problem->num_points(); ++i) {
      ordering->AddElementToGroup(problem->points.data() + 3 * i, point_group);
    }
  }
  if (camera_group >= 0) {
    for (int64_t i = 0; i < problem->num_cameras(); ++i) {
      ordering->AddElementToGroup(
          problem->cameras.data() + i * problem->camera_size, camera_group);
    }
  }
  return ordering;
}

std::shared_ptr<ceres::ParameterBlockOrdering> CreateInnerOrdering(
    InnerIterationBlocks blocks, BalProblem* problem) {
  switch (blocks) {
    case INNER_CAMERAS:
      return CreateOrdering(0, -1, problem);
    case INNER_POINTS:
      return CreateOrdering(-1, 0, problem);
    case INNER_CAMERAS_POINTS:
      return CreateOrdering(0, 1, problem);
    case INNER_POINTS_CAMERAS:
      return CreateOrdering(1, 0, problem);
    case INNER_AUTOMATIC:
      break;
  }
  return nullptr;
}

bool TakesArrays(const SolveBalOptions& options) {
  return options.problem == PROBLEM_ARRAYS && options.ext_options.enabled &&
         options.cost_function == COST_FUNCTION_ANALYTIC &&
         !options.solver_options.use_inner_iterations;
}

}  // namespace

void BuildCeresProblem(const SolveBalOptions& options,
                       BalProblem* problem,
                       ceres::Problem* ceres_problem) {
  // Owned, and deleted once, by ceres_problem.
  ceres::LossFunction* loss =
      options.robustify ? new ceres::HuberLoss(1.0) : nullptr;
  double* cameras = problem->cameras.data();
  double* points = problem->points.data();
  // Includes blocks without observations: the orderings name every block.
  for (int64_t i = 0; i < problem->num_cameras(); ++i) {
    ceres_problem->AddParameterBlock(cameras + i * problem->camera_size,
                                     problem->camera_size);
  }
  for (int64_t i = 0; i < problem->num_points(); ++i) {
    ceres_problem->AddParameterBlock(points + 3 * i, 3);
  }
  const int64_t n = problem->num_observations();
  std::optional<ProgressLine> progress;
  if (options.progress != nullptr) {
    progress.emplace("building the ceres::Problem",
                     n,
                     /*is_at_most=*/false,
                     options.progress);
  }
  constexpr int64_t kStep = 1 << 16;
  for (int64_t i = 0; i < n; ++i) {
    if (i > 0 && i % kStep == 0 && progress.has_value()) {
      progress->Add(kStep);
    }
    ceres_problem->AddResidualBlock(
        CreateCostFunction(options.cost_function,
                           problem->camera_size,
                           problem->observations[2 * i],
                           problem->observations[2 * i + 1]),
        loss,
        cameras + static_cast<int64_t>(problem->camera_index[i]) *
                      problem->camera_size,
        points + static_cast<int64_t>(problem->point_index[i]) * 3);
  }
  if (options.use_manifolds && problem->camera_size == 10) {
    SetBalCameraManifolds(ceres_problem);
  }
}

ArrayProblem BuildArrayProblem(ceres::LossFunction* loss,
                               ceres::Manifold* manifold,
                               BalProblem* problem,
                               const BalPart* part) {
  ArrayProblem arrays;
  ArrayProblem::Parameters points = {
      problem->points.data(), problem->num_points(), 3};
  if (part != nullptr) {
    points.values += int64_t{3} * part->first_point;
    points.num_blocks = part->num_points;
    points.is_own = true;
  }
  const std::vector<ArrayProblem::Index> blocks = {
      {arrays.AddParameters({problem->cameras.data(),
                             problem->num_cameras(),
                             problem->camera_size,
                             manifold}),
       problem->camera_index.data()},
      {arrays.AddParameters(points), problem->point_index.data()}};
  const int64_t n = problem->num_observations();
  const double* const observations = problem->observations.data();
  if (problem->camera_size == 10) {
    arrays.AddResiduals<BalQuaternionReprojectionError>(
        n, observations, blocks, loss);
  } else {
    arrays.AddResiduals<BalReprojectionError>(n, observations, blocks, loss);
  }
  return arrays;
}

void SolveBal(const SolveBalOptions& options,
              BalProblem* problem,
              ceres_ext::Summary* summary,
              double* build_time_in_seconds) {
  if (TakesArrays(options)) {
    ceres::HuberLoss huber(1.0);
    BalCameraManifold manifold;
    ArrayProblem arrays = BuildArrayProblem(
        options.robustify ? &huber : nullptr,
        options.use_manifolds && problem->camera_size == 10 ? &manifold
                                                            : nullptr,
        problem);
    *build_time_in_seconds = 0.0;
    Solve(options.solver_options, options.ext_options, &arrays, summary);
    return;
  }
  const auto start = std::chrono::steady_clock::now();
  ceres::Problem ceres_problem;
  BuildCeresProblem(options, problem, &ceres_problem);
  ceres::Solver::Options solver_options = options.solver_options;
  if (options.ordering == ORDERING_USER) {
    solver_options.linear_solver_ordering = CreateOrdering(1, 0, problem);
  }
  if (solver_options.use_inner_iterations) {
    solver_options.inner_iteration_ordering =
        CreateInnerOrdering(options.inner_iteration_blocks, problem);
  }
  *build_time_in_seconds = SecondsSince(start);
  Solve(solver_options, options.ext_options, &ceres_problem, summary);
}

}  // namespace ceres_ext::bal
