// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Generated problems with degenerate cameras and points: what a solve finds and
// what RemoveDegenerate removes, against singular values by Eigen of Jacobians
// by Ceres's autodiff; and where a solve ends, with them and without, beside
// stock Ceres. Prints the table of docs/reliability.md.
//
// Compiled for the host and for an emulated device (CERES_EXT_EMULATED).

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "Eigen/Dense"
#include "ceres/autodiff_cost_function.h"
#include "ceres/problem.h"
#include "ceres/solver.h"
#include "ceres_ext/array_problem.h"
#include "ceres_ext/bal_cost_functions.h"
#include "ceres_ext/solve.h"
#include "examples/bal/degenerate.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "problem_io/bal_problem.h"
#include "problem_io/bal_synthetic.h"
#include "tests/bal/synthetic_scene.h"
#include "tests/common/bal_test_problem.h"
#include "tests/common/has_device.h"

namespace ceres_ext::bal {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

double* Camera(BalProblem* problem, int32_t c) {
  return &problem->cameras[9 * c];
}
double* Point(BalProblem* problem, int32_t p) {
  return &problem->points[3 * p];
}

// The image of point p in camera c, and another number within a pixel.
void Observe(int32_t c, int32_t p, BalProblem* problem) {
  double xy[2];
  AutodiffReprojection<3>{0.0, 0.0}(Camera(problem, c), Point(problem, p), xy);
  problem->camera_index.push_back(c);
  problem->point_index.push_back(p);
  const auto k = static_cast<double>(problem->num_observations());
  problem->observations.push_back(xy[0] + std::sin(k));
  problem->observations.push_back(xy[1] + std::cos(k));
}

// Leaves out the observations for which is_out(camera, point).
template <typename IsOut>
void LeaveOut(IsOut&& is_out, BalProblem* problem) {
  int64_t left = 0;
  for (int64_t k = 0; k < problem->num_observations(); ++k) {
    const int32_t c = problem->camera_index[k];
    const int32_t p = problem->point_index[k];
    if (!is_out(c, p)) {
      problem->camera_index[left] = c;
      problem->point_index[left] = p;
      problem->observations[2 * left] = problem->observations[2 * k];
      problem->observations[2 * left + 1] = problem->observations[2 * k + 1];
      ++left;
    }
  }
  problem->camera_index.resize(left);
  problem->point_index.resize(left);
  problem->observations.resize(2 * left);
}

// Camera c is left with n observations.
void Starve(int32_t c, int n, BalProblem* problem) {
  LeaveOut(
      [&](int32_t camera, int32_t /*p*/) { return camera == c && n-- <= 0; },
      problem);
}

// A point at R'(x - t), x being in the frame of camera c.
int32_t AddPoint(int32_t c, const double* x, BalProblem* problem) {
  const double* camera = Camera(problem, c);
  const double back[3] = {-camera[0], -camera[1], -camera[2]};
  const double moved[3] = {
      x[0] - camera[3], x[1] - camera[4], x[2] - camera[5]};
  double point[3];
  ceres::AngleAxisRotatePoint(back, moved, point);
  problem->points.insert(problem->points.end(), point, point + 3);
  return problem->num_points() - 1;
}

// In place of what it sees, camera 3 is given 20 points start + i step of its
// own frame, which the cameras beside it see as well.
void ShowCamera3(const double* start, const double* step, BalProblem* problem) {
  LeaveOut([](int32_t c, int32_t /*p*/) { return c == 3; }, problem);
  for (int i = 0; i < 20; ++i) {
    double x[3];
    for (int j = 0; j < 3; ++j) {
      x[j] = start[j] + i * step[j];
    }
    const int32_t p = AddPoint(3, x, problem);
    for (const int32_t c : {2, 3, 4}) {
      Observe(c, p, problem);
    }
  }
}

// How far above stock Ceres's cost a solve may end.
constexpr double kCostTolerance = 1e-3;

struct DegenerateSet {
  const char* name;
  void (*make)(BalProblem* problem);
  // The end of a solve depends on rounding.
  bool has_valley = false;
};

const DegenerateSet kSets[] = {
    {"nothing degenerate", [](BalProblem* /*problem*/) {}},
    {"a camera with 1 observation", [](BalProblem* p) { Starve(5, 1, p); }},
    {"a camera with 2 observations", [](BalProblem* p) { Starve(5, 2, p); }},
    {"a camera with 4 observations", [](BalProblem* p) { Starve(5, 4, p); }},
    {"a camera with 5 observations", [](BalProblem* p) { Starve(5, 5, p); }},
    {"three cameras with 1, 2 and 3 observations",
     [](BalProblem* p) {
       Starve(2, 1, p);
       Starve(5, 2, p);
       Starve(8, 3, p);
     }},
    {"10 points with one observation",
     [](BalProblem* problem) {
       std::set<int32_t> seen;
       LeaveOut([&](int32_t /*c*/,
                    int32_t p) { return p < 10 && !seen.insert(p).second; },
                problem);
     }},
    {"all points with one observation",
     [](BalProblem* problem) {
       std::set<int32_t> seen;
       LeaveOut(
           [&](int32_t /*c*/, int32_t p) { return !seen.insert(p).second; },
           problem);
     }},
    {"10 points without parallax",
     [](BalProblem* problem) {
       // Two cameras at one place, which alone see them.
       std::copy_n(Camera(problem, 0), 9, Camera(problem, 1));
       LeaveOut([](int32_t c, int32_t p) { return c == 1 || p < 10; }, problem);
       for (int i = 0; i < 40; ++i) {
         const double x[3] = {0.1 * (i % 7), 0.1 * (i % 5), -5.0 - i % 3};
         const int32_t p = i < 10 ? i : AddPoint(0, x, problem);
         if (i < 10) {
           const int32_t at = AddPoint(0, x, problem);
           std::copy_n(Point(problem, at), 3, Point(problem, p));
           problem->points.resize(3 * at);
         }
         for (const int32_t c : {0, 1, 2}) {
           if (i >= 10 || c < 2) {
             Observe(c, p, problem);
           }
         }
       }
     }},
    {"points 1e12 times as far away",
     [](BalProblem* problem) {
       for (int i = 0; i < 15; ++i) {
         problem->points[i] *= 1e12;
       }
     }},
    {"a camera whose points coincide",
     [](BalProblem* problem) {
       const double start[] = {0.3, 0.2, -6.0};
       const double step[] = {0.0, 0.0, 0.0};
       ShowCamera3(start, step, problem);
     }},
    {"a camera whose points lie on one ray",
     [](BalProblem* problem) {
       const double start[] = {0.3, 0.2, -6.0};
       const double step[] = {0.03, 0.02, -0.6};
       ShowCamera3(start, step, problem);
     }},
    {"a camera whose points lie on one line",
     [](BalProblem* problem) {
       const double start[] = {-1.0, 0.2, -6.0};
       const double step[] = {0.1, 0.03, -0.1};
       ShowCamera3(start, step, problem);
     }},
    {"two cameras in one place with the same observations",
     [](BalProblem* problem) {
       std::copy_n(Camera(problem, 0), 9, Camera(problem, 1));
       LeaveOut([](int32_t c, int32_t /*p*/) { return c == 1; }, problem);
       const int64_t n = problem->num_observations();
       for (int64_t k = 0; k < n; ++k) {
         if (problem->camera_index[k] == 0) {
           problem->camera_index.push_back(1);
           problem->point_index.push_back(int32_t{problem->point_index[k]});
           for (int j = 0; j < 2; ++j) {
             problem->observations.push_back(
                 double{problem->observations[2 * k + j]});
           }
         }
       }
     }},
    {"a camera with a focal length of 0",
     [](BalProblem* problem) { Camera(problem, 4)[6] = 0.0; }},
    {"a camera with a point close to its plane",
     [](BalProblem* problem) {
       const double x[] = {0.5, 0.3, -1e-4};
       const int32_t p = AddPoint(4, x, problem);
       Observe(4, p, problem);
       for (const int32_t c : {4, 5, 6}) {
         Observe(c, p, problem);
       }
     },
     /*has_valley=*/true},
};

BalProblem MakeProblem(const DegenerateSet& set) {
  SyntheticOptions options = OptionsOfSize(12, 300, 1500);
  options.outlier_fraction = 0.0;
  SyntheticProblem synthetic = MakeScene(options);
  set.make(&synthetic.start);
  return synthetic.start;
}

// The blocks, of those that somebody sees, that have a column of no length or,
// with columns of unit length, a singular value of at most 1e-6. None is near.
struct Reference {
  std::set<int64_t> cameras;
  std::set<int64_t> points;

  explicit Reference(const BalProblem& problem) {
    std::vector<std::vector<double>> camera_rows(problem.num_cameras());
    std::vector<std::vector<double>> point_rows(problem.num_points());
    for (int64_t k = 0; k < problem.num_observations(); ++k) {
      ceres::AutoDiffCostFunction<AutodiffReprojection<3>, 2, 9, 3> cost(
          new AutodiffReprojection<3>{problem.observations[2 * k],
                                      problem.observations[2 * k + 1]});
      const int32_t c = problem.camera_index[k];
      const int32_t p = problem.point_index[k];
      const double* parameters[] = {&problem.cameras[9 * c],
                                    &problem.points[3 * p]};
      double residuals[2];
      double jc[18];
      double jp[6];
      double* jacobians[] = {jc, jp};
      EXPECT_TRUE(cost.Evaluate(parameters, residuals, jacobians));
      camera_rows[c].insert(camera_rows[c].end(), jc, jc + 18);
      point_rows[p].insert(point_rows[p].end(), jp, jp + 6);
    }
    Judge(camera_rows, 9, &cameras);
    Judge(point_rows, 3, &points);
  }

 private:
  static void Judge(const std::vector<std::vector<double>>& rows,
                    int columns,
                    std::set<int64_t>* degenerate) {
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto m = static_cast<int64_t>(rows[i].size()) / columns;
      if (m == 0) {
        continue;
      }
      Eigen::MatrixXd j = Eigen::Map<
          const Eigen::
              Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>>(
          rows[i].data(), m, columns);
      const Eigen::VectorXd norms = j.colwise().norm();
      double least = 0.0;
      if (m >= columns && norms.minCoeff() > 1e-11) {
        least = (j * norms.cwiseInverse().asDiagonal())
                    .jacobiSvd()
                    .singularValues()
                    .minCoeff();
      }
      EXPECT_FALSE(least > 1e-7 && least < 1e-5) << i << ": " << least;
      if (least < 1e-6) {
        degenerate->insert(static_cast<int64_t>(i));
      }
    }
  }
};

// An emulated device takes 40 ms an iteration. The host's test follows the
// valleys to their ends.
#ifdef CERES_EXT_EMULATED
constexpr int kMaxNumIterations = 50;
#else
constexpr int kMaxNumIterations = 500;
#endif

ceres::Solver::Options SolverOptions() {
  ceres::Solver::Options options;
  options.linear_solver_type = ceres::ITERATIVE_SCHUR;
  options.preconditioner_type = ceres::SCHUR_JACOBI;
  options.max_num_iterations = kMaxNumIterations;
  options.logging_type = ceres::SILENT;
  return options;
}

Summary SolveArrays(const ceres::Solver::Options& options,
                    BalProblem* problem,
                    Options ext_options = Options()) {
  ArrayProblem arrays;
  const int cameras = arrays.AddParameters(
      {problem->cameras.data(), problem->num_cameras(), 9});
  const int points =
      arrays.AddParameters({problem->points.data(), problem->num_points(), 3});
  arrays.AddResiduals<BalReprojectionError>(
      problem->num_observations(),
      problem->observations.data(),
      {{cameras, problem->camera_index.data()},
       {points, problem->point_index.data()}});
  ext_options.device = kDevice;
  Summary summary;
  Solve(options, ext_options, &arrays, &summary);
  EXPECT_EQ(summary.path, PATH_FULL) << summary.path_reason;
  return summary;
}

void Build(BalProblem* problem, bool analytic, ceres::Problem* ceres_problem) {
  for (int32_t c = 0; c < problem->num_cameras(); ++c) {
    ceres_problem->AddParameterBlock(Camera(problem, c), 9);
  }
  for (int32_t p = 0; p < problem->num_points(); ++p) {
    ceres_problem->AddParameterBlock(Point(problem, p), 3);
  }
  for (int64_t k = 0; k < problem->num_observations(); ++k) {
    const double x = problem->observations[2 * k];
    const double y = problem->observations[2 * k + 1];
    ceres_problem->AddResidualBlock(
        analytic
            ? CreateBalReprojectionError(x, y)
            : new ceres::AutoDiffCostFunction<AutodiffReprojection<3>, 2, 9, 3>(
                  new AutodiffReprojection<3>{x, y}),
        nullptr,
        Camera(problem, problem->camera_index[k]),
        Point(problem, problem->point_index[k]));
  }
}

std::shared_ptr<ceres::ParameterBlockOrdering> PointsFirst(
    BalProblem* problem) {
  auto ordering = std::make_shared<ceres::ParameterBlockOrdering>();
  for (int32_t p = 0; p < problem->num_points(); ++p) {
    ordering->AddElementToGroup(Point(problem, p), 0);
  }
  for (int32_t c = 0; c < problem->num_cameras(); ++c) {
    ordering->AddElementToGroup(Camera(problem, c), 1);
  }
  return ordering;
}

// The end of stock Ceres, with autodiff.
ceres::Solver::Summary SolveStock(BalProblem* problem) {
  ceres::Problem ceres_problem;
  Build(problem, /*analytic=*/false, &ceres_problem);
  ceres::Solver::Options options = SolverOptions();
  options.linear_solver_ordering = PointsFirst(problem);
  ceres::Solver::Summary summary;
  ceres::Solve(options, &ceres_problem, &summary);
  return summary;
}

// True if stock Ceres ends at most 0.1 % below `cost` from one of 300 starts
// that differ from `start` by rounding.
bool StockMayEndAt(double cost, const BalProblem& start) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> factor(1.0 - 1e-12, 1.0 + 1e-12);
  for (int i = 0; i < 300; ++i) {
    BalProblem problem = start;
    for (double& value : problem.points) {
      value *= factor(random);
    }
    if (cost <= (1.0 + kCostTolerance) * SolveStock(&problem).final_cost) {
      return true;
    }
  }
  return false;
}

class DegenerateSets : public ::testing::TestWithParam<DegenerateSet> {};

// All doors, kinds of rows and solvers find the blocks that Eigen finds, and
// say what the user calls the worst.
TEST_P(DegenerateSets, AreFound) {
  const BalProblem start = MakeProblem(GetParam());
  const Reference reference(start);
  const auto expect_found = [](const DegenerateBlocks& found,
                               const std::set<int64_t>& expected,
                               int64_t first) {
    EXPECT_EQ(found.count, static_cast<int64_t>(expected.size()));
    if (expected.empty()) {
      EXPECT_EQ(found.worst, nullptr);
      EXPECT_EQ(found.worst_block, -1);
      EXPECT_EQ(found.worst_relative_pivot, 1.0);
    } else {
      EXPECT_EQ(expected.count(found.worst_block - first), 1)
          << found.worst_block;
      EXPECT_GE(found.worst_relative_pivot, 0.0);
      EXPECT_LE(found.worst_relative_pivot, 1e-12);
    }
  };
  ceres::Solver::Options options = SolverOptions();
  options.max_num_iterations = 1;
  struct Configuration {
    ceres::PreconditionerType preconditioner;
    JacobianType jacobian;
    PrecisionType precision;
  };
  for (const Configuration& configuration :
       {Configuration{ceres::SCHUR_JACOBI, JACOBIAN_STORED, PRECISION_DOUBLE},
        {ceres::IDENTITY, JACOBIAN_STORED, PRECISION_DOUBLE},
        {ceres::SCHUR_JACOBI, JACOBIAN_STORED, PRECISION_MIXED},
        {ceres::JACOBI, JACOBIAN_RECOMPUTED, PRECISION_DOUBLE}}) {
    options.preconditioner_type = configuration.preconditioner;
    Options ext_options;
    ext_options.jacobian = configuration.jacobian;
    ext_options.precision = configuration.precision;
    BalProblem ours = start;
    const Summary summary = SolveArrays(options, &ours, ext_options);
    SCOPED_TRACE(summary.method);
    const DegenerateBlocks& points = summary.degenerate_eliminated_blocks;
    const DegenerateBlocks& cameras = summary.degenerate_other_blocks;
    expect_found(points, reference.points, 0);
    expect_found(cameras, reference.cameras, 0);
    const std::string report = summary.FullReport();
    if (points.count > 0) {
      EXPECT_EQ(points.worst_parameters, 1);
      EXPECT_EQ(points.worst, ours.points.data() + 3 * points.worst_block);
      EXPECT_THAT(
          report,
          HasSubstr("Degenerate blocks    " + std::to_string(points.count) +
                    " eliminated, the worst block " +
                    std::to_string(points.worst_block) +
                    " of array 1, relative pivot "));
    }
    if (cameras.count > 0) {
      EXPECT_EQ(cameras.worst_parameters, 0);
      EXPECT_EQ(cameras.worst, ours.cameras.data() + 9 * cameras.worst_block);
      EXPECT_THAT(
          report,
          HasSubstr("Degenerate blocks    " + std::to_string(cameras.count) +
                    " not eliminated, the worst block " +
                    std::to_string(cameras.worst_block) +
                    " of array 0, relative pivot "));
    }
    if (points.count + cameras.count == 0) {
      EXPECT_THAT(report, Not(HasSubstr("Degenerate")));
    }
  }
  for (const auto type : {ceres::ITERATIVE_SCHUR, ceres::CGNR}) {
    for (const bool analytic : {true, false}) {
      BalProblem ours = start;
      ceres::Problem problem;
      Build(&ours, analytic, &problem);
      options.linear_solver_type = type;
      options.linear_solver_ordering = PointsFirst(&ours);
      options.preconditioner_type = ceres::JACOBI;
      Options ext_options;
      ext_options.device = kDevice;
      Summary summary;
      Solve(options, ext_options, &problem, &summary);
      EXPECT_EQ(summary.path, PATH_FULL) << summary.path_reason;
      const DegenerateBlocks& e = summary.degenerate_eliminated_blocks;
      const DegenerateBlocks& f = summary.degenerate_other_blocks;
      if (!analytic && type == ceres::CGNR) {
        // Without elimination both are rows of any shape of one family each.
        EXPECT_EQ(e.count + f.count,
                  static_cast<int64_t>(reference.points.size() +
                                       reference.cameras.size()));
        continue;
      }
      expect_found(e, reference.points, ours.num_cameras());
      expect_found(f, reference.cameras, 0);
      EXPECT_EQ(e.worst_parameters, -1);
      EXPECT_EQ(f.worst_parameters, -1);
      // Cameras were added first.
      if (e.count > 0) {
        EXPECT_EQ(
            e.worst,
            ours.points.data() + 3 * (e.worst_block - ours.num_cameras()));
      }
      if (f.count > 0) {
        EXPECT_EQ(f.worst, ours.cameras.data() + 9 * f.worst_block);
      }
    }
  }
}

// The rest has no degenerate block, the removed ones are those that Eigen finds
// round after round, and everything else is unchanged.
TEST_P(DegenerateSets, AreRemoved) {
  const BalProblem start = MakeProblem(GetParam());
  BalProblem left = start;
  const std::vector<DegenerateBlock> removed = RemoveDegenerate(&left);
  const Reference reference(left);
  EXPECT_TRUE(reference.cameras.empty());
  EXPECT_TRUE(reference.points.empty());

  const Reference at_start(start);
  std::set<int64_t> cameras;
  std::set<int64_t> points;
  for (const DegenerateBlock& block : removed) {
    EXPECT_LE(block.relative_pivot, 1e-12);
    EXPECT_TRUE((block.is_camera ? cameras : points).insert(block.id).second);
    const auto& index =
        block.is_camera ? start.camera_index : start.point_index;
    const int64_t num_observations =
        std::count(index.begin(), index.end(), block.id);
    if (block.round == 1) {
      EXPECT_EQ(block.num_observations, num_observations);
      EXPECT_TRUE(num_observations == 0 ||
                  (block.is_camera ? at_start.cameras : at_start.points)
                          .count(block.id) == 1);
    } else {
      EXPECT_LE(block.num_observations, num_observations);
    }
  }
  EXPECT_TRUE(std::includes(cameras.begin(),
                            cameras.end(),
                            at_start.cameras.begin(),
                            at_start.cameras.end()));
  EXPECT_TRUE(std::includes(points.begin(),
                            points.end(),
                            at_start.points.begin(),
                            at_start.points.end()));

  const auto is_left = [&](int64_t k) {
    return cameras.count(start.camera_index[k]) == 0 &&
           points.count(start.point_index[k]) == 0;
  };
  ASSERT_EQ(left.num_cameras() + cameras.size(), start.num_cameras());
  ASSERT_EQ(left.num_points() + points.size(), start.num_points());
  int64_t at = 0;
  for (int64_t k = 0; k < start.num_observations(); ++k) {
    if (!is_left(k)) {
      continue;
    }
    ASSERT_LT(at, left.num_observations());
    EXPECT_TRUE(std::equal(&start.observations[2 * k],
                           &start.observations[2 * k] + 2,
                           &left.observations[2 * at]));
    EXPECT_TRUE(std::equal(&start.cameras[9 * start.camera_index[k]],
                           &start.cameras[9 * start.camera_index[k]] + 9,
                           &left.cameras[9 * left.camera_index[at]]));
    EXPECT_TRUE(std::equal(&start.points[3 * start.point_index[k]],
                           &start.points[3 * start.point_index[k]] + 3,
                           &left.points[3 * left.point_index[at]]));
    ++at;
  }
  EXPECT_EQ(at, left.num_observations());
}

// As they are and after RemoveDegenerate, with the steps of stock Ceres.
TEST_P(DegenerateSets, AreSolved) {
  const BalProblem start = MakeProblem(GetParam());
  BalProblem filtered = start;
  RemoveDegenerate(&filtered);
  std::string line = "| " + std::string(GetParam().name) + " |";
  for (const BalProblem* problem : {&start, &std::as_const(filtered)}) {
    if (problem->num_observations() == 0) {
      line += " 0, 0 | – | – | – |";
      continue;
    }
    BalProblem stock = *problem;
    const ceres::Solver::Summary stock_summary = SolveStock(&stock);

    BalProblem ours = *problem;
    const Summary summary = SolveArrays(SolverOptions(), &ours);
    EXPECT_TRUE(summary.IsSolutionUsable()) << summary.message;
    EXPECT_TRUE(std::all_of(ours.cameras.begin(),
                            ours.cameras.end(),
                            [](double x) { return std::isfinite(x); }));
    EXPECT_LT(summary.final_cost, summary.initial_cost);
    // Costs of 1e-12 of the first are rounding.
    EXPECT_TRUE(
        summary.final_cost <=
            (1.0 + kCostTolerance) * stock_summary.final_cost +
                1e-12 * summary.initial_cost ||
        (GetParam().has_valley && StockMayEndAt(summary.final_cost, *problem)))
        << summary.final_cost << ", " << summary.message << " | "
        << stock_summary.final_cost << ", " << stock_summary.message;
    char text[256];
    std::snprintf(
        text,
        sizeof(text),
        " %lld, %lld | %.4g | %.6g | %.6g |",
        static_cast<long long>(summary.degenerate_other_blocks.count),
        static_cast<long long>(summary.degenerate_eliminated_blocks.count),
        summary.initial_cost,
        stock_summary.final_cost,
        summary.final_cost);
    line += problem == &start
                ? text
                : " " + std::to_string(problem->num_cameras()) + ", " +
                      std::to_string(problem->num_points()) +
                      std::string(text).substr(std::string(text).find(" |"));
  }
  std::printf("%s\n", line.c_str());
}

// With almost no damping, rounding decides whether a degenerate block has an
// inverse: a step that is not available shrinks the radius.
TEST_P(DegenerateSets, AreSolvedFromTheLargestRadius) {
  BalProblem problem = MakeProblem(GetParam());
  ceres::Solver::Options options = SolverOptions();
  options.initial_trust_region_radius = options.max_trust_region_radius;
  const Summary summary = SolveArrays(options, &problem);
  EXPECT_TRUE(summary.IsSolutionUsable()) << summary.message;
  EXPECT_LT(summary.final_cost, summary.initial_cost);
}

INSTANTIATE_TEST_SUITE_P(Table,
                         DegenerateSets,
                         ::testing::ValuesIn(kSets),
                         [](const auto& info) {
                           std::string name = info.param.name;
                           std::replace_if(
                               name.begin(),
                               name.end(),
                               [](char c) { return std::isalnum(c) == 0; },
                               '_');
                           return name;
                         });

}  // namespace
}  // namespace ceres_ext::bal
