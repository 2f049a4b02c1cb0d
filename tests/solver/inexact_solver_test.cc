// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "benchmarks/inexact_solver.h"

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "Eigen/Dense"
#include "cuda_kernels/machine/host_machine.h"
#include "cuda_kernels/ops/jacobian_products.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kernels/bal_problem.h"
#include "tests/kernels/dense_problem.h"
#include "tests/kernels/run_ok.h"
#include "tests/kernels/solver_configurations.h"
#include "tests/solver/allocation_counter.h"

namespace ceres_ext::solver {
namespace {

using Eigen::MatrixXd;
using Eigen::VectorXd;
using kernels::DenseProblem;
using kernels::EdgeStructures;
using kernels::kEpsilon;
using kernels::RandomStructure;
using kernels::Structure;
using testing::HasSubstr;

// A solver on a problem, and the step as one vector in the columns of J.
template <typename T, int C>
class Solution {
 public:
  using Problem = DenseProblem<T, C>;
  using Source = typename Problem::Source;

  Solution(Problem* problem, const StepOptions& options)
      : problem_(problem), step(problem->num_columns()) {
    const kernels::Status status =
        solver_.Setup(options, problem->index(), &problem->machine);
    EXPECT_TRUE(status.ok()) << status.message;
  }

  void Solve(bool camera_damped,
             bool point_damped,
             const StepPerSolveOptions& per_solve) {
    ObservationSystem<Source> system;
    system.jacobian = problem_->source();
    system.b = problem_->b.data();
    if (camera_damped) {
      system.camera_diagonal = problem_->camera_diagonal.data();
    }
    if (point_damped) {
      system.point_diagonal = problem_->point_diagonal.data();
    }
    step.setConstant(std::numeric_limits<double>::quiet_NaN());
    summary = solver_.Solve(
        system, per_solve, step.data() + problem_->num_e(), step.data());
  }

 private:
  Problem* problem_;
  InexactSolver<kernels::HostMachine, Source> solver_;

 public:
  VectorXd step;
  StepSummary summary;
};

// The matrix J'J + D^2 with ones on the diagonal of zero columns, whose
// solution is then zero there.
MatrixXd NormalMatrix(const MatrixXd& j,
                      const MatrixXd& damping_e,
                      const MatrixXd& damping_f) {
  MatrixXd a = j.transpose() * j;
  const int64_t num_e = damping_e.rows();
  a.topLeftCorner(num_e, num_e) += damping_e;
  a.bottomRightCorner(damping_f.rows(), damping_f.rows()) += damping_f;
  for (int64_t i = 0; i < a.rows(); ++i) {
    if (a(i, i) == 0.0) {
      a(i, i) = 1.0;
    }
  }
  return a;
}

// How far a step whose residual in its own system is what the summary says may
// be from the exact one:  |x - x*| <= |A^-1| (|r| + rounding |A| |x|).
template <typename T, int C>
void ExpectDenseSolution(DenseProblem<T, C>* problem,
                         const StepOptions& options,
                         bool damped,
                         const Solution<T, C>& solution,
                         bool point_damped) {
  const MatrixXd j = problem->J();
  const MatrixXd a = NormalMatrix(
      j, problem->DampingE(point_damped), problem->DampingF(damped));
  const VectorXd x = a.ldlt().solve(j.transpose() * problem->b);
  if (x.size() == 0) {
    return;
  }
  const VectorXd values =
      Eigen::SelfAdjointEigenSolver<MatrixXd>(a, Eigen::EigenvaluesOnly)
          .eigenvalues();
  const double smallest = values[0];
  const double largest = values[values.size() - 1];
  ASSERT_GT(smallest, 0.0);
  // S^-1 is a block of A^-1, so 1 / smallest bounds both. Back-substitution
  // adds |V^-1 W'| <= sqrt(largest / smallest) times the error of z.
  const double back_substitution =
      options.use_schur ? 1.0 + std::sqrt(largest / smallest) : 1.0;
  // Sums of up to 2 num_observations terms, on both sides.
  const double rounding = (4 * problem->num_observations() + 8 * C) * kEpsilon;
  const double bound = back_substitution / smallest *
                       (std::max(0.0, solution.summary.residual_norm) +
                        rounding * largest * (x.norm() + problem->b.norm()));
  EXPECT_LE((solution.step - x).norm(), bound);
  // A bound that says nothing would be no test.
  EXPECT_LT(bound, 0.1 * std::max(1.0, x.norm()));
}

class InexactSolverTest
    : public testing::TestWithParam<std::tuple<StepOptions, bool>> {
 protected:
  // A solve to the last digits, on every structure.
  template <typename T, int C>
  void MatchesDense() {
    auto [options, damped] = GetParam();
    options.max_num_iterations = 2000;
    StepPerSolveOptions per_solve;
    per_solve.q_tolerance = -1.0;
    per_solve.r_tolerance = 1e-12;
    for (const Structure& structure : EdgeStructures()) {
      for (const bool padded : {false, true}) {
        SCOPED_TRACE(structure.name + (padded ? " padded" : ""));
        DenseProblem<T, C> problem(structure, 71);
        if (padded) {
          problem.Pad(C - 2);
        }
        // Undamped cameras need more rows than columns.
        const bool enough_rows =
            2 * problem.num_observations() > 2 * problem.num_columns();
        if (!damped && !enough_rows && problem.num_observations() > 0) {
          continue;
        }
        const bool point_damped = damped || problem.HasPointSeenOnce();
        Solution<T, C> solution(&problem, options);
        solution.Solve(damped, point_damped, per_solve);
        EXPECT_EQ(solution.summary.termination, Termination::kSuccess)
            << solution.summary.message;
        ExpectDenseSolution(&problem, options, damped, solution, point_damped);
        if (padded) {
          ExpectInactiveColumnsAtZero(problem, solution.step);
        }
        // Twice on one object.
        const VectorXd first = solution.step;
        solution.Solve(damped, point_damped, per_solve);
        EXPECT_EQ(solution.step, first);
      }
    }
  }

  template <typename T, int C>
  void ExpectInactiveColumnsAtZero(const DenseProblem<T, C>& problem,
                                   const VectorXd& step) {
    const MatrixXd j = problem.J();
    for (int64_t i = 0; i < j.cols(); ++i) {
      if (j.col(i).isZero(0.0)) {
        EXPECT_EQ(step[i], 0.0) << "column " << i;
      }
    }
  }
};

TEST_P(InexactSolverTest, Double9) { MatchesDense<double, 9>(); }
TEST_P(InexactSolverTest, Double10) { MatchesDense<double, 10>(); }
TEST_P(InexactSolverTest, Float9) { MatchesDense<float, 9>(); }
TEST_P(InexactSolverTest, Float10) { MatchesDense<float, 10>(); }

// Another system of the same structure on one object gives what a new object
// gives.
TEST_P(InexactSolverTest, OneObjectSolvesSeveralSystems) {
  const auto& [options, damped] = GetParam();
  const Structure structure = RandomStructure("random", 5, 200, 4, 1);
  DenseProblem<double, 9> problem(structure, 1);
  StepPerSolveOptions per_solve;
  per_solve.q_tolerance = 0.01;
  Solution<double, 9> reused(&problem, options);
  for (int i = 0; i < 3; ++i) {
    problem.b = problem.RandomVector(problem.b.size());
    for (double& value : problem.jc) {
      value = problem.Normal();
    }
    reused.Solve(damped, i != 1 || damped, per_solve);
    Solution<double, 9> fresh(&problem, options);
    fresh.Solve(damped, i != 1 || damped, per_solve);
    EXPECT_EQ(reused.step, fresh.step);
    EXPECT_EQ(reused.summary.num_iterations, fresh.summary.num_iterations);
    EXPECT_EQ(reused.summary.message, fresh.summary.message);
  }
}

TEST_P(InexactSolverTest, SameBitsForAnyNumberOfThreads) {
  const auto& [options, damped] = GetParam();
  const Structure structure = RandomStructure("random", 30, 2000, 4, 2);
  StepPerSolveOptions per_solve;
  per_solve.q_tolerance = 1e-4;
  VectorXd expected;
  for (const int num_threads : {1, 2, 3, 7, 16}) {
    DenseProblem<double, 9> problem(structure, 3, num_threads);
    Solution<double, 9> solution(&problem, options);
    solution.Solve(damped, true, per_solve);
    EXPECT_EQ(solution.summary.termination, Termination::kSuccess);
    if (expected.size() == 0) {
      expected = solution.step;
    }
    EXPECT_TRUE(solution.step == expected) << num_threads << " threads";
  }
}

TEST_P(InexactSolverTest, RefusesOptions) {
  StepOptions options = std::get<0>(GetParam());
  options.max_num_iterations = -1;
  DenseProblem<double, 9> problem(RandomStructure("random", 2, 3, 2, 2), 3);
  InexactSolver<kernels::HostMachine, DenseProblem<double, 9>::Source> solver;
  EXPECT_EQ(solver.Setup(options, problem.index(), &problem.machine).code,
            kernels::StatusCode::kInvalidArgument);
}

// NaN anywhere ends the solve as a numerical failure that names the camera,
// whose step is unspecified, or lets it run out of iterations, and the caller
// sees it in the step.
TEST_P(InexactSolverTest, NotANumber) {
  StepOptions options = std::get<0>(GetParam());
  options.max_num_iterations = 25;
  DenseProblem<double, 9> problem(RandomStructure("random", 4, 60, 3, 4), 5);
  problem.jc[100] = std::numeric_limits<double>::quiet_NaN();
  Solution<double, 9> solution(&problem, options);
  solution.Solve(true, true, {});
  if (solution.summary.termination == Termination::kFailure) {
    // Jc has 18 values an observation.
    EXPECT_EQ(solution.summary.message,
              "Preconditioner update failed at camera " +
                  std::to_string(problem.index().camera_id[100 / 18]) + ".");
    EXPECT_EQ(solution.summary.num_iterations, 0);
  } else {
    EXPECT_EQ(solution.summary.termination, Termination::kNoConvergence);
    EXPECT_FALSE(solution.step.allFinite());
  }
}

INSTANTIATE_TEST_SUITE_P(
    Configurations,
    InexactSolverTest,
    testing::Combine(testing::ValuesIn(SolverConfigurations()),
                     testing::Bool()),
    [](const auto& info) {
      return ConfigurationName(std::get<0>(info.param)) +
             (std::get<1>(info.param) ? "_damped" : "_undamped");
    });

// One camera of two columns: SCHUR_JACOBI is S itself, and the first iteration
// solves the system, often without any rest.
TEST(InexactSolver, PreconditionerIsTheMatrix) {
  int num_exact = 0;
  for (unsigned seed = 0; seed < 50; ++seed) {
    DenseProblem<double, 9> problem(
        RandomStructure("one_camera", 1, 25, 1, seed), seed);
    problem.camera_diagonal.setOnes();
    for (size_t i = 0; i < problem.jc.size(); ++i) {
      if (i % 9 >= 2) {
        problem.jc[i] = 0.0;
      }
    }
    StepPerSolveOptions per_solve;
    per_solve.q_tolerance = 0.1;
    Solution<double, 9> solution(&problem, {});
    solution.Solve(true, true, per_solve);
    EXPECT_EQ(solution.summary.termination, Termination::kSuccess)
        << solution.summary.message;
    EXPECT_LE(solution.summary.num_iterations, 2);
    num_exact += solution.summary.residual_norm == 0.0;
    ExpectDenseSolution(&problem, {}, true, solution, true);
  }
  EXPECT_GT(num_exact, 0);
}

// Recomputed blocks are those that were evaluated, up to rounding.
template <int C>
void RecomputedFollowsStored() {
  kernels::BalProblem<double, C> bal(RandomStructure("random", 8, 200, 4, 6),
                                     8);
  // Rotation and translation only: focal length and distortion of so few
  // random observations would make a badly conditioned system.
  for (int64_t c = 0; c < bal.problem.num_cameras(); ++c) {
    for (int i = 0; i < C * C; ++i) {
      bal.tangent[C * C * c + i] = i % (C + 1) == 0 && i % C < C - 3 ? 1 : 0;
    }
  }
  bal.Prepare();
  kernels::RunOk(bal.JacobianParams(), &bal.problem.machine);
  // Columns of unit size.
  kernels::SquaredColumnNormsParams<HostStoredJacobian<double, C>> norms;
  norms.index = bal.problem.index();
  norms.jacobian = bal.problem.source();
  norms.camera_x = bal.camera_gradient.data();
  norms.point_x = bal.point_gradient.data();
  kernels::RunOk(norms, &bal.problem.machine);
  const auto rescale = [](const VectorXd& squared_norm, VectorXd* scale) {
    for (int64_t i = 0; i < scale->size(); ++i) {
      (*scale)[i] /= 1.0 + std::sqrt(squared_norm[i]);
    }
  };
  rescale(bal.camera_gradient, &bal.camera_scale);
  rescale(bal.point_gradient, &bal.point_scale);
  bal.Prepare();
  kernels::RunOk(bal.JacobianParams(), &bal.problem.machine);

  kernels::RecomputedJacobian<double, C> recomputed;
  recomputed.cameras = bal.states.data();
  recomputed.camera_maps = bal.maps.data();
  recomputed.points = bal.points.data();
  recomputed.point_scale = bal.point_scale.data();

  const auto solve = [&](const auto& jacobian,
                         const StepOptions& options,
                         VectorXd* step) {
    using Source = std::decay_t<decltype(jacobian)>;
    InexactSolver<kernels::HostMachine, Source> solver;
    EXPECT_TRUE(
        solver.Setup(options, bal.problem.index(), &bal.problem.machine).ok());
    ObservationSystem<Source> system;
    system.jacobian = jacobian;
    system.b = bal.residuals.data();
    system.camera_diagonal = bal.problem.camera_diagonal.data();
    system.point_diagonal = bal.problem.point_diagonal.data();
    step->resize(bal.problem.num_columns());
    StepPerSolveOptions per_solve;
    per_solve.q_tolerance = 1e-3;
    return solver.Solve(
        system, per_solve, step->data() + bal.problem.num_e(), step->data());
  };
  for (const StepOptions& options : SolverConfigurations()) {
    SCOPED_TRACE(ConfigurationName(options));
    VectorXd stored_step;
    VectorXd recomputed_step;
    const StepSummary stored =
        solve(bal.problem.source(), options, &stored_step);
    const StepSummary again = solve(recomputed, options, &recomputed_step);
    EXPECT_EQ(stored.termination, Termination::kSuccess);
    EXPECT_EQ(stored.num_iterations, again.num_iterations);
    // Unit columns with D around one: a condition of at most the number of
    // columns that meet in a row times their scale, below 1e3; and sums of
    // 2 num_observations terms of blocks that carry some 60 roundings.
    const double bound = 1e3 * stored.num_iterations *
                         (60 + 4 * bal.problem.num_observations()) * kEpsilon;
    EXPECT_LE((stored_step - recomputed_step).norm(),
              bound * stored_step.norm());
  }
}

TEST(InexactSolver, RecomputedFollowsStored9) { RecomputedFollowsStored<9>(); }
TEST(InexactSolver, RecomputedFollowsStored10) {
  RecomputedFollowsStored<10>();
}

// Notes which loops are used, and whether they have been reset for it.
class LoopRecorder : public kernels::HostMachine {
 public:
  using HostMachine::HostMachine;
  struct PcgLoop {
    void Reset() { ++num_resets; }
    int num_resets = 0;
  };
  bool QueueToEnd(int i,
                  int,
                  int,
                  const std::function<kernels::Status(int)>&,
                  const kernels::PcgScalars*,
                  PcgLoop* loop) {
    if (i == 0) {
      last = loop;
      was_reset = loop->num_resets > resets[loop];
      resets[loop] = loop->num_resets;
    }
    return false;
  }
  PcgLoop* last = nullptr;
  bool was_reset = false;
  std::map<PcgLoop*, int> resets;
};

// A loop is used for the same arrays only. It outlives a solve on other ones,
// so that two sets of arrays may take turns.
TEST(InexactSolver, LoopsBelongToArrays) {
  using Problem = DenseProblem<double, 9>;
  Problem problem(RandomStructure("random", 4, 30, 3, 4), 5);
  LoopRecorder machine(2);
  InexactSolver<LoopRecorder, Problem::Source> solver;
  ASSERT_TRUE(solver.Setup({}, problem.index(), &machine).ok());
  std::vector<VectorXd> steps(3, VectorXd(problem.num_columns()));
  ObservationSystem<Problem::Source> system;
  system.jacobian = problem.source();
  system.b = problem.b.data();
  system.camera_diagonal = problem.camera_diagonal.data();
  system.point_diagonal = problem.point_diagonal.data();
  const auto solve = [&](VectorXd* step) {
    const StepSummary summary =
        solver.Solve(system, {}, step->data() + problem.num_e(), step->data());
    EXPECT_NE(summary.termination, Termination::kFatalError);
    return machine.last;
  };
  const auto* first = solve(&steps[0]);
  EXPECT_TRUE(machine.was_reset);
  EXPECT_EQ(solve(&steps[0]), first);
  EXPECT_FALSE(machine.was_reset);
  const auto* second = solve(&steps[1]);
  EXPECT_NE(second, first);
  EXPECT_TRUE(machine.was_reset);
  EXPECT_EQ(solve(&steps[0]), first);
  EXPECT_FALSE(machine.was_reset);
  EXPECT_EQ(solve(&steps[1]), second);
  EXPECT_FALSE(machine.was_reset);
  // In place of the one used least recently.
  EXPECT_EQ(solve(&steps[2]), first);
  EXPECT_TRUE(machine.was_reset);
  EXPECT_EQ(solve(&steps[1]), second);
  EXPECT_FALSE(machine.was_reset);

  // Each array counts.
  system.camera_diagonal = nullptr;
  solve(&steps[1]);
  EXPECT_TRUE(machine.was_reset);
  system.point_diagonal = nullptr;
  solve(&steps[1]);
  EXPECT_TRUE(machine.was_reset);
  const std::vector<double> copy(
      system.jacobian.point_blocks.data,
      system.jacobian.point_blocks.data + system.jacobian.point_blocks.size());
  system.jacobian.point_blocks.data = copy.data();
  solve(&steps[1]);
  EXPECT_TRUE(machine.was_reset);
  // b takes no part in the iterations.
  const std::vector<double> b(problem.b.data(),
                              problem.b.data() + problem.b.size());
  system.b = b.data();
  solve(&steps[1]);
  EXPECT_FALSE(machine.was_reset);

  ASSERT_TRUE(solver.Setup({}, problem.index(), &machine).ok());
  solve(&steps[1]);
  EXPECT_TRUE(machine.was_reset);
}

// All memory is taken by Setup; a message may take some bytes.
TEST(InexactSolver, SolveAllocatesNothing) {
  for (const StepOptions& options : SolverConfigurations()) {
    DenseProblem<double, 9> problem(RandomStructure("random", 8, 900, 3, 4), 5);
    Solution<double, 9> solution(&problem, options);
    ResetLargestAllocation();
    solution.Solve(true, true, {});
    EXPECT_LT(LargestAllocation(), 256u) << ConfigurationName(options);
  }
}

TEST(InexactSolver, UndampedPointOfRankTwoIsAFailure) {
  Structure structure = RandomStructure("random", 4, 60, 3, 4);
  DenseProblem<double, 9> problem(structure, 5);
  // Point 17: all rows of Jp equal.
  for (int64_t k = problem.index().point_begin[17];
       k < problem.index().point_begin[18];
       ++k) {
    std::fill_n(problem.jp.begin() + 6 * k, 6, 1.0);
  }
  Solution<double, 9> solution(&problem, StepOptions());
  solution.Solve(true, false, {});
  EXPECT_EQ(solution.summary.termination, Termination::kFailure);
  EXPECT_THAT(solution.summary.message, HasSubstr("point 17"));
  EXPECT_EQ(solution.summary.num_iterations, 0);
  solution.Solve(true, true, {});
  EXPECT_NE(solution.summary.termination, Termination::kFailure);
}

TEST(InexactSolver, ZeroResidualsGiveAZeroStep) {
  for (const StepOptions& options : SolverConfigurations()) {
    DenseProblem<double, 9> problem(RandomStructure("random", 4, 60, 3, 4), 5);
    problem.b.setZero();
    Solution<double, 9> solution(&problem, options);
    solution.Solve(true, true, {});
    EXPECT_EQ(solution.summary.termination, Termination::kSuccess);
    EXPECT_EQ(solution.summary.num_iterations, 0);
    EXPECT_EQ(solution.step, VectorXd::Zero(solution.step.size()));
  }
}

TEST(InexactSolver, TimesAndMemory) {
  DenseProblem<double, 9> problem(RandomStructure("random", 4, 60, 3, 4), 5);
  StepOptions options;
  const int64_t bytes = problem.machine.bytes();
  Solution<double, 9> solution(&problem, options);
  solution.Solve(true, true, {});
  EXPECT_GT(solution.summary.normal_blocks_seconds, 0.0);
  EXPECT_GT(solution.summary.pcg_seconds, 0.0);
  EXPECT_GT(solution.summary.back_substitution_seconds, 0.0);
  // 4 cameras: 45 of the preconditioner and 4 vectors of 9; 60 points: 6 of
  // V's inverse; a record of PCG, of points and of the preconditioner, and of
  // degenerate blocks one for each of the two families.
  EXPECT_EQ(problem.machine.bytes() - bytes,
            8 * (4 * (45 + 4 * 9) + 60 * 6) +
                static_cast<int64_t>(
                    sizeof(kernels::PcgScalars) + sizeof(kernels::Breakdown) +
                    sizeof(int32_t) + 2 * sizeof(kernels::DegenerateRecord)));
}

}  // namespace
}  // namespace ceres_ext::solver
