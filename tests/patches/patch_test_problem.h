// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The problem of the patches' tests: cameras on a ring around a unit cube of
// points, BAL's model through Ceres's autodiff. It is far from its solution, so
// that the trust region also rejects steps.

#ifndef CERES_EXT_TESTS_PATCHES_PATCH_TEST_PROBLEM_H_
#define CERES_EXT_TESTS_PATCHES_PATCH_TEST_PROBLEM_H_

#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "ceres/autodiff_cost_function.h"
#include "ceres/ordered_groups.h"
#include "ceres/problem.h"
#include "ceres/rotation.h"
#include "ceres/solver.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ceres_ext {

class PatchTestProblem {
 public:
  static constexpr int kNumCameras = 5;
  static constexpr int kNumPoints = 40;

  PatchTestProblem() : cameras_(9 * kNumCameras), points_(3 * kNumPoints) {
    for (double& x : points_) {
      x = Random();
    }
    for (int c = 0; c < kNumCameras; ++c) {
      double* camera = &cameras_[9 * c];
      camera[1] = 2.0 * M_PI * c / kNumCameras;
      camera[5] = -2.0;
      camera[6] = 500.0;
    }
    // Cameras first, so that a Schur ordering has to move them.
    for (int c = 0; c < kNumCameras; ++c) {
      problem_.AddParameterBlock(&cameras_[9 * c], 9);
    }
    for (int c = 0; c < kNumCameras; ++c) {
      for (int p = 0; p < kNumPoints; ++p) {
        Reprojection exact{0.0, 0.0};
        double observation[2];
        exact(&cameras_[9 * c], &points_[3 * p], observation);
        auto* cost_function =
            new ceres::AutoDiffCostFunction<Reprojection, 2, 9, 3>(
                new Reprojection{observation[0] + Random(),
                                 observation[1] + Random()});
        problem_.AddResidualBlock(
            cost_function, nullptr, &cameras_[9 * c], &points_[3 * p]);
      }
    }
    for (double& x : points_) {
      x += 1.5 * Random();
    }
    for (int c = 0; c < kNumCameras; ++c) {
      for (int i = 0; i < 6; ++i) {
        cameras_[9 * c + i] += 0.8 * Random();
      }
    }
  }

  ceres::Problem* problem() { return &problem_; }
  double* camera(int c) { return &cameras_[9 * c]; }
  double* point(int p) { return &points_[3 * p]; }

  std::vector<double> State() const {
    std::vector<double> state = cameras_;
    state.insert(state.end(), points_.begin(), points_.end());
    return state;
  }

  // One thread: with more, Ceres adds costs in the order in which they finish.
  ceres::Solver::Options Options(ceres::LinearSolverType type) {
    ceres::Solver::Options options;
    options.linear_solver_type = type;
    options.preconditioner_type =
        type == ceres::ITERATIVE_SCHUR ? ceres::SCHUR_JACOBI : ceres::JACOBI;
    options.num_threads = 1;
    options.max_num_iterations = 30;
    options.eta = 1e-3;
    options.initial_trust_region_radius = 1e8;
    options.logging_type = ceres::SILENT;
    options.linear_solver_ordering =
        std::make_shared<ceres::ParameterBlockOrdering>();
    for (int p = 0; p < kNumPoints; ++p) {
      options.linear_solver_ordering->AddElementToGroup(point(p), 0);
    }
    for (int c = 0; c < kNumCameras; ++c) {
      options.linear_solver_ordering->AddElementToGroup(camera(c), 1);
    }
    return options;
  }

 private:
  struct Reprojection {
    template <typename T>
    bool operator()(const T* camera, const T* point, T* residuals) const {
      T p[3];
      ceres::AngleAxisRotatePoint(camera, point, p);
      const T x = -(p[0] + camera[3]) / (p[2] + camera[5]);
      const T y = -(p[1] + camera[4]) / (p[2] + camera[5]);
      const T r2 = x * x + y * y;
      const T scale = camera[6] * (1.0 + r2 * (camera[7] + r2 * camera[8]));
      residuals[0] = scale * x - u;
      residuals[1] = scale * y - v;
      return true;
    }
    double u;
    double v;
  };

  // In [-0.5, 0.5), the same on every machine.
  double Random() {
    seed_ = seed_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<double>(seed_ >> 11) * 0x1p-53 - 0.5;
  }

  uint64_t seed_ = 1;
  std::vector<double> cameras_;
  std::vector<double> points_;
  ceres::Problem problem_;
};

inline std::vector<uint64_t> Bits(const std::vector<double>& x) {
  std::vector<uint64_t> bits(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    std::memcpy(&bits[i], &x[i], sizeof(double));
  }
  return bits;
}

// All numbers of the iterations, without times.
inline std::vector<double> IterationNumbers(
    const ceres::Solver::Summary& summary) {
  std::vector<double> numbers;
  for (const ceres::IterationSummary& it : summary.iterations) {
    for (double number : {static_cast<double>(it.iteration),
                          it.step_is_valid ? 1.0 : 0.0,
                          it.step_is_nonmonotonic ? 1.0 : 0.0,
                          it.step_is_successful ? 1.0 : 0.0,
                          it.cost,
                          it.cost_change,
                          it.gradient_max_norm,
                          it.gradient_norm,
                          it.step_norm,
                          it.relative_decrease,
                          it.trust_region_radius,
                          it.eta,
                          static_cast<double>(it.linear_solver_iterations)}) {
      numbers.push_back(number);
    }
  }
  return numbers;
}

// The result of a solve, comparable bit for bit.
struct SolveResult {
  ceres::Solver::Summary summary;
  std::vector<uint64_t> iterations;
  std::vector<uint64_t> state;
};

inline SolveResult FinishedSolve(const ceres::Solver::Summary& summary,
                                 const PatchTestProblem& problem) {
  return {summary, Bits(IterationNumbers(summary)), Bits(problem.State())};
}

inline SolveResult Solve(PatchTestProblem& problem,
                         const ceres::Solver::Options& options) {
  ceres::Solver::Summary summary;
  ceres::Solve(options, problem.problem(), &summary);
  return FinishedSolve(summary, problem);
}

inline void ExpectSameBits(const SolveResult& expected,
                           const SolveResult& actual) {
  EXPECT_EQ(expected.summary.termination_type, actual.summary.termination_type);
  EXPECT_EQ(expected.summary.final_cost, actual.summary.final_cost);
  EXPECT_EQ(expected.iterations, actual.iterations);
  EXPECT_EQ(expected.state, actual.state);
}

}  // namespace ceres_ext

#endif  // CERES_EXT_TESTS_PATCHES_PATCH_TEST_PROBLEM_H_
