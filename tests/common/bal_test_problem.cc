// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "tests/common/bal_test_problem.h"

#include <algorithm>
#include <cstddef>
#include <random>

#include "ceres/autodiff_cost_function.h"
#include "ceres/manifold.h"
#include "ceres/ordered_groups.h"
#include "ceres/product_manifold.h"
#include "ceres_ext/bal_cost_functions.h"

namespace ceres_ext {

BalTestProblem MakeBalTestProblem(int num_cameras,
                                  int num_points,
                                  int views_per_point,
                                  int camera_size,
                                  unsigned seed) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<double> uniform(-1.0, 1.0);
  std::normal_distribution<double> normal;
  BalTestProblem problem;
  problem.camera_size = camera_size;
  for (int i = 0; i < num_cameras; ++i) {
    // Looking at the origin from a ring of radius 4.
    const double angle = 6.28 * i / num_cameras;
    const double aa[3] = {
        0.1 * uniform(generator), angle, 0.1 * uniform(generator)};
    if (camera_size == 9) {
      problem.cameras.insert(problem.cameras.end(), aa, aa + 3);
    } else {
      double q[4];
      ceres::AngleAxisToQuaternion(aa, q);
      problem.cameras.insert(problem.cameras.end(), q, q + 4);
    }
    for (double value : {0.1 * uniform(generator),
                         0.1 * uniform(generator),
                         -4.0 + 0.2 * uniform(generator),
                         500.0 + 20.0 * uniform(generator),
                         -0.05 + 0.01 * uniform(generator),
                         0.01 * uniform(generator)}) {
      problem.cameras.push_back(value);
    }
  }
  for (int i = 0; i < 3 * num_points; ++i) {
    problem.points.push_back(uniform(generator));
  }
  for (int j = 0; j < num_points; ++j) {
    const int first = static_cast<int>(generator() % num_cameras);
    for (int v = 0; v < std::min(views_per_point, num_cameras); ++v) {
      const int i = (first + v) % num_cameras;
      double prediction[2];
      if (camera_size == 9) {
        AutodiffReprojection<3>{0.0, 0.0}(
            problem.camera(i), problem.point(j), prediction);
      } else {
        AutodiffReprojection<4>{0.0, 0.0}(
            problem.camera(i), problem.point(j), prediction);
      }
      problem.camera_id.push_back(i);
      problem.point_id.push_back(j);
      problem.observations.push_back(prediction[0] + normal(generator));
      problem.observations.push_back(prediction[1] + normal(generator));
    }
  }
  for (double& value : problem.points) {
    value += 0.05 * normal(generator);
  }
  for (int i = 0; i < num_cameras; ++i) {
    for (int j = 0; j < 3; ++j) {
      problem.camera(i)[camera_size - 6 + j] += 0.02 * normal(generator);
    }
  }
  return problem;
}

ceres::CostFunction* BalTestProblem::MakeCost(size_t k,
                                              Derivatives derivatives) const {
  const double u = observations[2 * k];
  const double v = observations[2 * k + 1];
  if (derivatives == Derivatives::kAnalytic) {
    return camera_size == 9 ? CreateBalReprojectionError(u, v)
                            : CreateBalReprojectionErrorQuaternion(u, v);
  }
  if (camera_size == 9) {
    return new ceres::AutoDiffCostFunction<AutodiffReprojection<3>, 2, 9, 3>(
        new AutodiffReprojection<3>{u, v});
  }
  return new ceres::AutoDiffCostFunction<AutodiffReprojection<4>, 2, 10, 3>(
      new AutodiffReprojection<4>{u, v});
}

std::unique_ptr<ceres::Problem> BuildProblem(BalTestProblem* bal,
                                             Derivatives derivatives,
                                             bool use_manifold,
                                             ceres::LossFunction* loss) {
  auto problem = std::make_unique<ceres::Problem>();
  for (size_t k = 0; k < bal->camera_id.size(); ++k) {
    problem->AddResidualBlock(bal->MakeCost(k, derivatives),
                              loss,
                              bal->camera(bal->camera_id[k]),
                              bal->point(bal->point_id[k]));
  }
  if (use_manifold) {
    auto* manifold = new ceres::ProductManifold<ceres::QuaternionManifold,
                                                ceres::EuclideanManifold<6>>();
    for (int i = 0; i < bal->num_cameras(); ++i) {
      problem->SetManifold(bal->camera(i), manifold);
    }
  }
  return problem;
}

ArrayProblem ArraysOf(BalTestProblem* bal,
                      ceres::LossFunction* loss,
                      const uint8_t* camera_is_constant,
                      const uint8_t* point_is_constant) {
  ArrayProblem arrays;
  ArrayProblem::Parameters cameras = {
      bal->cameras.data(), bal->num_cameras(), bal->camera_size};
  cameras.is_constant = camera_is_constant;
  ArrayProblem::Parameters points = {bal->points.data(), bal->num_points(), 3};
  points.is_constant = point_is_constant;
  const std::vector<ArrayProblem::Index> blocks = {
      {arrays.AddParameters(cameras), bal->camera_id.data()},
      {arrays.AddParameters(points), bal->point_id.data()}};
  const auto n = static_cast<int64_t>(bal->camera_id.size());
  if (bal->camera_size == 9) {
    arrays.AddResiduals<BalReprojectionError>(
        n, bal->observations.data(), blocks, loss);
  } else {
    arrays.AddResiduals<BalQuaternionReprojectionError>(
        n, bal->observations.data(), blocks, loss);
  }
  return arrays;
}

ceres::Solver::Options TestOptions(BalTestProblem* bal, int num_threads) {
  ceres::Solver::Options options;
  options.linear_solver_type = ceres::ITERATIVE_SCHUR;
  options.preconditioner_type = ceres::SCHUR_JACOBI;
  options.num_threads = num_threads;
  options.max_num_iterations = 10;
  options.logging_type = ceres::SILENT;
  options.function_tolerance = 1e-12;
  auto ordering = std::make_shared<ceres::ParameterBlockOrdering>();
  for (int j = 0; j < bal->num_points(); ++j) {
    ordering->AddElementToGroup(bal->point(j), 0);
  }
  for (int i = 0; i < bal->num_cameras(); ++i) {
    ordering->AddElementToGroup(bal->camera(i), 1);
  }
  options.linear_solver_ordering = ordering;
  return options;
}

}  // namespace ceres_ext
