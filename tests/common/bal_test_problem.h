// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A small random bundle adjustment problem for tests of whole solves: cameras
// on a ring look at points in a unit cube, image noise of a pixel, a perturbed
// start. The same seed gives the same problem.

#ifndef CERES_EXT_TESTS_COMMON_BAL_TEST_PROBLEM_H_
#define CERES_EXT_TESTS_COMMON_BAL_TEST_PROBLEM_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "ceres/cost_function.h"
#include "ceres/internal/port.h"
#include "ceres/loss_function.h"
#include "ceres/problem.h"
#include "ceres/rotation.h"
#include "ceres/solver.h"
#include "ceres_ext/array_problem.h"

namespace ceres_ext {

// The BAL model through Ceres's rotations, for autodiff: an implementation of
// its own, which shares nothing with bal_model.h.
template <int kRotationSize>
struct AutodiffReprojection {
  template <typename T>
  CERES_HOST_DEVICE bool operator()(const T* camera,
                                    const T* point,
                                    T* residuals) const {
    T p[3];
    if constexpr (kRotationSize == 3) {
      ceres::AngleAxisRotatePoint(camera, point, p);
    } else {
      ceres::QuaternionRotatePoint(camera, point, p);
    }
    const T* rest = camera + kRotationSize;
    const T x = -(p[0] + rest[0]) / (p[2] + rest[2]);
    const T y = -(p[1] + rest[1]) / (p[2] + rest[2]);
    const T r2 = x * x + y * y;
    const T scale = rest[3] * (1.0 + r2 * (rest[4] + r2 * rest[5]));
    residuals[0] = scale * x - u;
    residuals[1] = scale * y - v;
    return true;
  }
  double u;
  double v;
};

enum class Derivatives { kAnalytic, kAutodiff };

struct BalTestProblem {
  int camera_size = 9;  // 9 (angle-axis) or 10 (quaternion)
  std::vector<double> cameras;
  std::vector<double> points;
  std::vector<int> camera_id;
  std::vector<int> point_id;
  std::vector<double> observations;

  int num_cameras() const {
    return static_cast<int>(cameras.size()) / camera_size;
  }
  int num_points() const { return static_cast<int>(points.size()) / 3; }
  // All parameters: cameras, then points.
  std::vector<double> Values() const {
    std::vector<double> values = cameras;
    values.insert(values.end(), points.begin(), points.end());
    return values;
  }
  // A cost function of observation k.
  ceres::CostFunction* MakeCost(
      size_t k, Derivatives derivatives = Derivatives::kAnalytic) const;
  double* camera(int i) { return &cameras[camera_size * i]; }
  double* point(int i) { return &points[3 * i]; }
};

BalTestProblem MakeBalTestProblem(int num_cameras,
                                  int num_points,
                                  int views_per_point,
                                  int camera_size,
                                  unsigned seed = 5);

// Adds all residual blocks; `bal` owns the parameters and must outlive the
// ceres::Problem. `loss` may be null and is owned by the problem.
std::unique_ptr<ceres::Problem> BuildProblem(
    BalTestProblem* bal,
    Derivatives derivatives,
    bool use_manifold = false,
    ceres::LossFunction* loss = nullptr);

// The same as arrays: cameras, then points. loss is the caller's. The last two
// have a byte per camera and per point, as ArrayProblem::Parameters has.
ArrayProblem ArraysOf(BalTestProblem* bal,
                      ceres::LossFunction* loss = nullptr,
                      const uint8_t* camera_is_constant = nullptr,
                      const uint8_t* point_is_constant = nullptr);

// ITERATIVE_SCHUR with SCHUR_JACOBI, points first, quiet.
ceres::Solver::Options TestOptions(BalTestProblem* bal, int num_threads = 1);

}  // namespace ceres_ext

#endif  // CERES_EXT_TESTS_COMMON_BAL_TEST_PROBLEM_H_
