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

void AddRow(Kind kind,
            Derivatives derivatives,
            size_t k,
            ceres::LossFunction* loss,
            BalTestProblem* bal,
            ceres::Problem* problem) {
  double* const camera = bal->camera(bal->camera_id[k]);
  double* const point = bal->point(bal->point_id[k]);
  if (kind == Kind::kViews) {
    problem->AddResidualBlock(
        new ceres::AutoDiffCostFunction<SplitReprojection, 2, 6, 3, 3>(
            new SplitReprojection{bal->observations[2 * k],
                                  bal->observations[2 * k + 1]}),
        loss,
        camera,
        bal->camera(0) + 6,
        point);
  } else {
    problem->AddResidualBlock(
        bal->MakeCost(k, derivatives), loss, camera, point);
  }
}

void AddTie(int i,
            int j,
            ceres::LossFunction* loss,
            BalTestProblem* bal,
            ceres::Problem* problem) {
  auto* const near = new Near<4>{0.01};
  ceres::CostFunction* cost = nullptr;
  if (bal->camera_size == 9) {
    cost = new ceres::AutoDiffCostFunction<Near<4>, 4, 9, 9>(near);
  } else {
    cost = new ceres::AutoDiffCostFunction<Near<4>, 4, 10, 10>(near);
  }
  problem->AddResidualBlock(cost, loss, bal->camera(i), bal->camera(j));
}

Case::Case(Kind kind, int num_threads, BalTestProblem start)
    : bal(std::move(start)) {
  options = TestOptions(&bal, num_threads);
  if (kind == Kind::kViews) {
    problem = std::make_unique<ceres::Problem>();
    options.linear_solver_ordering = nullptr;
    for (size_t k = 0; k < bal.camera_id.size(); ++k) {
      AddRow(kind, Derivatives::kAutodiff, k, nullptr, &bal, problem.get());
    }
  } else {
    problem = BuildProblem(&bal, Derivatives::kAnalytic);
  }
  if (kind == Kind::kGeneralRows) {
    AddTie(0, 1, new ceres::HuberLoss(1.0), &bal, problem.get());
  }
  if (kind == Kind::kStock) {
    options.linear_solver_type = ceres::DENSE_QR;
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
