// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A BAL problem as rows of each kind that this library knows, and one that it
// leaves to stock Ceres.
#ifndef CERES_EXT_TESTS_FRONT_ROW_KINDS_H_
#define CERES_EXT_TESTS_FRONT_ROW_KINDS_H_

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "ceres/autodiff_cost_function.h"
#include "ceres/loss_function.h"
#include "ceres/problem.h"
#include "ceres/solver.h"
#include "ceres_ext/options.h"
#include "tests/front/bal_test_problem.h"

namespace ceres_ext {

// A view: pose, intrinsics that all share, point.
struct ViewError {
  template <typename T>
  bool operator()(const T* pose,
                  const T* intrinsics,
                  const T* point,
                  T* residuals) const {
    T camera[9];
    std::copy_n(pose, 6, camera);
    std::copy_n(intrinsics, 3, camera + 6);
    return AutodiffReprojection<3>{u, v}(camera, point, residuals);
  }
  double u;
  double v;
};

// A row of another shape: two cameras are near to each other.
struct NearError {
  template <typename T>
  bool operator()(const T* camera0, const T* camera1, T* residuals) const {
    for (int i = 0; i < 4; ++i) {
      residuals[i] = 0.01 * (camera0[i] - camera1[i]);
    }
    return true;
  }
};

// The evaluator of the rows, and their shape.
enum class Kind { kObservations, kViews, kGeneralRows, kStock };

inline const char* Name(Kind kind) {
  switch (kind) {
    case Kind::kObservations:
      return "Observations";
    case Kind::kViews:
      return "Views";
    case Kind::kGeneralRows:
      return "GeneralEvaluator";
    case Kind::kStock:
      return "Stock";
  }
  return "";
}

// A problem of the kind, which has its parameters on the heap: it may move.
struct Case {
  Case(Kind kind, int num_threads, BalTestProblem start)
      : bal(std::move(start)) {
    options = TestOptions(&bal, num_threads);
    if (kind == Kind::kViews) {
      problem = std::make_unique<ceres::Problem>();
      options.linear_solver_ordering = nullptr;
      for (size_t k = 0; k < bal.camera_id.size(); ++k) {
        double* camera = bal.camera(bal.camera_id[k]);
        problem->AddResidualBlock(
            new ceres::AutoDiffCostFunction<ViewError, 2, 6, 3, 3>(
                new ViewError{bal.observations[2 * k],
                              bal.observations[2 * k + 1]}),
            nullptr,
            camera,
            bal.camera(0) + 6,
            bal.point(bal.point_id[k]));
      }
    } else {
      problem = BuildProblem(&bal, Derivatives::kAnalytic);
    }
    if (kind == Kind::kGeneralRows) {
      problem->AddResidualBlock(
          new ceres::AutoDiffCostFunction<NearError, 4, 9, 9>(new NearError),
          new ceres::HuberLoss(1.0),
          bal.camera(0),
          bal.camera(1));
    }
    if (kind == Kind::kStock) {
      options.linear_solver_type = ceres::DENSE_NORMAL_CHOLESKY;
    }
  }

  double Cost() const {
    double cost = 0.0;
    ceres::Problem::EvaluateOptions evaluate_options;
    return problem->Evaluate(evaluate_options, &cost, nullptr, nullptr, nullptr)
               ? cost
               : std::nan("");
  }

  BalTestProblem bal;
  std::unique_ptr<ceres::Problem> problem;
  ceres::Solver::Options options;
  Options ext_options;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_TESTS_FRONT_ROW_KINDS_H_
