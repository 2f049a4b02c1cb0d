// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "tests/common/row_kinds.h"

#include <cmath>
#include <cstddef>
#include <utility>

#include "ceres/autodiff_cost_function.h"
#include "ceres/loss_function.h"

namespace ceres_ext {

const char* Name(Kind kind) {
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

Case::Case(Kind kind, int num_threads, BalTestProblem start)
    : bal(std::move(start)) {
  options = TestOptions(&bal, num_threads);
  if (kind == Kind::kViews) {
    problem = std::make_unique<ceres::Problem>();
    options.linear_solver_ordering = nullptr;
    for (size_t k = 0; k < bal.camera_id.size(); ++k) {
      double* camera = bal.camera(bal.camera_id[k]);
      problem->AddResidualBlock(
          new ceres::AutoDiffCostFunction<SplitReprojection, 2, 6, 3, 3>(
              new SplitReprojection{bal.observations[2 * k],
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
        new ceres::AutoDiffCostFunction<Near<4>, 4, 9, 9>(new Near<4>{0.01}),
        new ceres::HuberLoss(1.0),
        bal.camera(0),
        bal.camera(1));
  }
  if (kind == Kind::kStock) {
    options.linear_solver_type = ceres::SPARSE_NORMAL_CHOLESKY;
    options.dynamic_sparsity = true;
  }
}

double Case::Cost() const {
  double cost = 0.0;
  ceres::Problem::EvaluateOptions evaluate_options;
  return problem->Evaluate(evaluate_options, &cost, nullptr, nullptr, nullptr)
             ? cost
             : std::nan("");
}

}  // namespace ceres_ext
