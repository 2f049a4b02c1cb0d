// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "tests/common/random_problem.h"

#include <cstddef>
#include <vector>

#include "ceres/manifold.h"
#include "ceres/normal_prior.h"
#include "ceres_ext/bal_cost_functions.h"

namespace ceres_ext {

ceres::LossFunction* RandomLoss(Random* random) {
  switch (random->Below(12)) {
    case 0:
      return new ceres::HuberLoss(random->OneOf({0.1, 1.0, 10.0}));
    case 1:
      return new ceres::CauchyLoss(random->OneOf({0.5, 2.0}));
    case 2:
      return new ceres::SoftLOneLoss(1.0);
    case 3:
      return new ceres::ArctanLoss(20.0);
    case 4:
      return new ceres::TolerantLoss(2.0, 1.0);
    case 5:
      return new ceres::TukeyLoss(random->OneOf({5.0, 100.0}));
    case 6:
      return new ceres::ScaledLoss(new ceres::HuberLoss(2.0),
                                   random->OneOf({0.0, 1e-6, 3.0}),
                                   ceres::TAKE_OWNERSHIP);
    case 7:
      return new ceres::ScaledLoss(nullptr, 0.5, ceres::TAKE_OWNERSHIP);
    case 8:
      return new ceres::TrivialLoss;
    default:
      return nullptr;
  }
}

void AddRandomRows(const RandomRows& rows,
                   Random* random,
                   BalTestProblem* bal,
                   ceres::Problem* problem) {
  const double autodiff = random->OneOf({0.0, 0.0, 0.2});
  const double own_loss = random->OneOf({0.0, 0.0, 0.3, 1.0});
  ceres::LossFunction* const shared =
      own_loss == 0.0 ? RandomLoss(random) : nullptr;
  for (size_t k = 0; k < bal->camera_id.size(); ++k) {
    const bool is_autodiff = random->Chance(autodiff);
    AddRow(rows.kind,
           is_autodiff ? Derivatives::kAutodiff : rows.derivatives,
           k,
           random->Chance(own_loss) ? RandomLoss(random) : shared,
           bal,
           problem);
  }
  for (int i = 1; i < bal->num_cameras(); ++i) {
    if (random->Chance(rows.ties)) {
      AddTie(0, i, RandomLoss(random), bal, problem);
    }
  }
  const double priors = random->OneOf({0.0, 0.05, 0.5});
  for (int i = 0; i < bal->num_points(); ++i) {
    if (random->Chance(priors)) {
      // Some have no weight.
      const ceres::Matrix weight =
          random->OneOf({0.0, 1e-3, 1.0, 1e3}) * ceres::Matrix::Identity(3, 3);
      problem->AddResidualBlock(
          new ceres::NormalPrior(weight, ceres::Vector::Constant(3, 0.25)),
          nullptr,
          bal->point(i));
    }
  }
  const double constant_cameras = random->OneOf({0.0, 0.0, 0.3, 1.0});
  const double constant_points =
      rows.keeps_points ? 0.0 : random->OneOf({0.0, 0.0, 0.2, 1.0});
  const double subsets =
      rows.keeps_points ? 0.0 : random->OneOf({0.0, 0.0, 0.5});
  const auto change = [&](double* block, double constants) {
    if (!problem->HasParameterBlock(block)) {
      return;
    }
    const int size = problem->ParameterBlockSize(block);
    if (size == 10 && random->Chance(rows.turns)) {
      problem->SetManifold(block, new BalCameraManifold);
    } else if (size != 10 && random->Chance(subsets)) {
      std::vector<int> constant;
      for (int i = 0; i < size; ++i) {
        if (random->Chance(random->OneOf({0.3, 1.0}))) {
          constant.push_back(i);
        }
      }
      problem->SetManifold(block, new ceres::SubsetManifold(size, constant));
    }
    if (random->Chance(constants)) {
      problem->SetParameterBlockConstant(block);
    }
  };
  for (int i = 0; i < bal->num_cameras(); ++i) {
    change(bal->camera(i), constant_cameras);
  }
  if (rows.kind == Kind::kViews) {
    change(bal->camera(0) + 6, constant_cameras);
  }
  for (int i = 0; i < bal->num_points(); ++i) {
    change(bal->point(i), constant_points);
  }
}

void SetRandomSolver(std::initializer_list<ceres::LinearSolverType> types,
                     Random* random,
                     ceres::Solver::Options* options) {
  options->linear_solver_type = random->OneOf(types);
  options->preconditioner_type =
      options->linear_solver_type == ceres::CGNR
          ? random->OneOf({ceres::IDENTITY, ceres::JACOBI})
          : random->OneOf({ceres::IDENTITY,
                           ceres::JACOBI,
                           ceres::SCHUR_JACOBI,
                           ceres::SCHUR_POWER_SERIES_EXPANSION});
  options->use_explicit_schur_complement =
      options->linear_solver_type == ceres::ITERATIVE_SCHUR &&
      options->preconditioner_type == ceres::SCHUR_JACOBI &&
      random->Chance(0.5);
}

}  // namespace ceres_ext
