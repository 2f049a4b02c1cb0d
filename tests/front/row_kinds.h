// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A BAL problem as rows of each kind that this library knows, and one that it
// leaves to stock Ceres.
#ifndef CERES_EXT_TESTS_FRONT_ROW_KINDS_H_
#define CERES_EXT_TESTS_FRONT_ROW_KINDS_H_

#include <algorithm>
#include <memory>

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

const char* Name(Kind kind);

// A problem of the kind, which has its parameters on the heap: it may move.
struct Case {
  Case(Kind kind, int num_threads, BalTestProblem start);

  // NaN if it cannot be evaluated.
  double Cost() const;

  BalTestProblem bal;
  std::unique_ptr<ceres::Problem> problem;
  ceres::Solver::Options options;
  Options ext_options;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_TESTS_FRONT_ROW_KINDS_H_
