// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include <array>
#include <cmath>
#include <cstdio>
#include <string>
#include <tuple>

#include "ceres/ceres.h"
#include "ceres/rotation.h"
#include "ceres_ext/solve.h"
#include "gtest/gtest.h"
#include "tests/glue/bal_test_problem.h"
#include "tests/glue/has_device.h"

namespace ceres_ext {
namespace {

BalTestProblem MakeFarProblem(int camera_size, double distance) {
  BalTestProblem bal = MakeBalTestProblem(12, 400, 5, camera_size);
  const double origin[3] = {0.6 * distance, -0.8 * distance, 0.01 * distance};
  for (double& value : bal.points) {
    value *= 100.0;
  }
  for (int i = 0; i < bal.num_cameras(); ++i) {
    double* t = bal.camera(i) + camera_size - 6;
    double turned[3];
    if (camera_size == 9) {
      ceres::AngleAxisRotatePoint(bal.camera(i), origin, turned);
    } else {
      ceres::QuaternionRotatePoint(bal.camera(i), origin, turned);
    }
    for (int k = 0; k < 3; ++k) {
      t[k] = 100.0 * t[k] - turned[k];
    }
  }
  for (int j = 0; j < bal.num_points(); ++j) {
    for (int k = 0; k < 3; ++k) {
      bal.point(j)[k] += origin[k];
    }
  }
  return bal;
}

TEST(FarOrigin, Explore) {
  for (const int camera_size : {9, 10}) {
    for (const double distance : {0.0, 1e4, 1e5, 1e6, 1e7, 1e8}) {
      const BalTestProblem start = MakeFarProblem(camera_size, distance);
      std::string line;
      const auto add = [&](const char* name, const ceres::Solver::Summary& s) {
        char text[128];
        std::snprintf(text, sizeof text, "  %s %.8g (%d%s)", name, s.final_cost, int(s.iterations.size()) - 1, s.IsSolutionUsable() ? "" : " FAILED");
        line += text;
      };
      {
        BalTestProblem bal = start;
        auto problem = BuildProblem(&bal, Derivatives::kAnalytic, camera_size == 10);
        auto options = TestOptions(&bal);
        options.max_num_iterations = 50;
        options.function_tolerance = 1e-8;
        ceres::Solver::Summary s;
        ceres::Solve(options, problem.get(), &s);
        add("stock", s);
        options.linear_solver_type = ceres::DENSE_SCHUR;
        BalTestProblem bal2 = start;
        auto problem2 = BuildProblem(&bal2, Derivatives::kAnalytic, camera_size == 10);
        auto options2 = TestOptions(&bal2);
        options2.max_num_iterations = 50;
        options2.function_tolerance = 1e-8;
        options2.linear_solver_type = ceres::DENSE_SCHUR;
        ceres::Solve(options2, problem2.get(), &s);
        add("dense", s);
      }
      for (int which = 0; which < 5; ++which) {
        BalTestProblem bal = start;
        auto problem = BuildProblem(&bal, Derivatives::kAnalytic, camera_size == 10);
        auto options = TestOptions(&bal);
        options.max_num_iterations = 50;
        options.function_tolerance = 1e-8;
        Options ext;
        ext.device = which == 0 ? DEVICE_HOST : DEVICE_CUDA;
        ext.precision = which > 2 ? PRECISION_MIXED : PRECISION_DOUBLE;
        ext.jacobian = which % 2 == 0 ? JACOBIAN_RECOMPUTED : JACOBIAN_STORED;
        if (which == 0) ext.jacobian = JACOBIAN_STORED;
        Summary s;
        Solve(options, ext, problem.get(), &s);
        const char* names[] = {"host", "st", "re", "mixst", "mixre"};
        add(names[which], s);
      }
      std::printf("%d %g:%s\n", camera_size, distance, line.c_str());
    }
  }
}

}  // namespace
}  // namespace ceres_ext
