// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Small random problems with random degeneracies, against stock Ceres with the
// same linear solver, preconditioner and eta: the same kind of end, and no
// higher cost. How to run more cases: random_cases.h.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ceres/ceres.h"
#include "ceres_ext/base/ceres_version.h"
#include "ceres_ext/solve.h"
#include "gtest/gtest.h"
#include "tests/common/bal_test_problem.h"
#include "tests/common/has_device.h"
#include "tests/common/random_cases.h"
#include "tests/common/random_problem.h"
#include "tests/common/row_kinds.h"

namespace ceres_ext {
namespace {

#ifdef CERES_EXT_EMULATED
constexpr int kNumCases = 60;
#else
constexpr int kNumCases = 600;
#endif

const bool kIsQuiet = [] {
  SetQuiet(true);
  return true;
}();

// The changes that make a problem degenerate, applied to the numbers.
void Degenerate(Random* random, BalTestProblem* bal) {
  const int camera = random->Below(bal->num_cameras());
  const int point = random->Below(bal->num_points());
  const auto first = [bal](int k) { return bal->camera_size - 6 + k; };
  switch (random->Below(9)) {
    case 0:  // coincident cameras
      std::copy_n(bal->camera(0), bal->camera_size, bal->camera(camera));
      break;
    case 1:  // coincident points
      for (int i = random->Below(bal->num_points()); i >= 0; --i) {
        std::copy_n(bal->point(point), 3, bal->point(i));
      }
      break;
    case 2: {  // an observation many times
      const size_t k = random->Below(static_cast<int>(bal->camera_id.size()));
      for (int i = random->OneOf({1, 2, 30}); i > 0; --i) {
        bal->camera_id.push_back(bal->camera_id[k]);
        bal->point_id.push_back(bal->point_id[k]);
        bal->observations.push_back(bal->observations[2 * k]);
        bal->observations.push_back(bal->observations[2 * k + 1]);
      }
      break;
    }
    case 3:  // columns of zeros: no focal length
      bal->camera(camera)[first(3)] = 0.0;
      break;
    case 4:  // far away
      for (int i = 0; i < 3; ++i) {
        bal->point(point)[i] *= random->OneOf({1e3, 1e6});
      }
      break;
    case 5:  // an outlier
      bal->observations[random->Below(static_cast<int>(
          bal->observations.size()))] += random->OneOf({100.0, -1e4, 1e6});
      break;
    case 6: {  // observations of half the points, or cameras, are left out
      BalTestProblem rest = *bal;
      rest.camera_id.clear();
      rest.point_id.clear();
      rest.observations.clear();
      const bool by_point = random->Chance(0.5);
      for (size_t k = 0; k < bal->camera_id.size(); ++k) {
        if (k == 0 ||
            (by_point ? bal->point_id[k] : bal->camera_id[k]) % 2 == 0) {
          rest.camera_id.push_back(bal->camera_id[k]);
          rest.point_id.push_back(bal->point_id[k]);
          rest.observations.push_back(bal->observations[2 * k]);
          rest.observations.push_back(bal->observations[2 * k + 1]);
        }
      }
      *bal = rest;
      break;
    }
    case 7:  // a point on the axis of a camera: no derivative by distortion
      std::fill_n(bal->camera(camera), bal->camera_size - 6, 0.0);
      if (bal->camera_size == 10) {
        bal->camera(camera)[0] = 1.0;
      }
      for (int i = 0; i < 3; ++i) {
        bal->camera(camera)[first(i)] =
            -bal->point(point)[i] - (i == 2 ? 4.0 : 0.0);
      }
      break;
    default:  // all measurements are fulfilled from the start
      for (size_t k = 0; k < bal->camera_id.size(); ++k) {
        double prediction[2];
        const double* x = bal->camera(bal->camera_id[k]);
        const double* y = bal->point(bal->point_id[k]);
        if (bal->camera_size == 9) {
          AutodiffReprojection<3>{0.0, 0.0}(x, y, prediction);
        } else {
          AutodiffReprojection<4>{0.0, 0.0}(x, y, prediction);
        }
        std::copy_n(prediction, 2, &bal->observations[2 * k]);
      }
      break;
  }
}

// A problem that can be built several times, of parameters of its own.
class RandomProblem {
 public:
  explicit RandomProblem(Random* given) {
    Random& random = *given;
    const int num_cameras = 1 + random.Below(6);
    const int num_points = 1 + random.Below(25);
    bal_ = MakeBalTestProblem(num_cameras,
                              num_points,
                              1 + random.Below(num_cameras),
                              random.Chance(0.7) ? 9 : 10,
                              static_cast<unsigned>(random.Below(1 << 30)));
    for (int i = random.Below(4); i > 0; --i) {
      Degenerate(&random, &bal_);
    }
    seed_of_blocks_ = random.generator()();
    rows_.kind = bal_.camera_size == 9 && random.Chance(0.33)
                     ? Kind::kViews
                     : Kind::kObservations;
    rows_.derivatives =
        random.OneOf({Derivatives::kAnalytic, Derivatives::kAutodiff});
    rows_.ties = rows_.kind == Kind::kViews ? 0.0 : 0.15;
    if (kDevice == DEVICE_CUDA && random.Chance(0.4)) {
      // Which the host leaves to stock Ceres.
      SetRandomSolver(
          {ceres::DENSE_SCHUR, ceres::SPARSE_SCHUR}, &random, &options_);
    } else {
      SetRandomSolver(
          {ceres::ITERATIVE_SCHUR, ceres::ITERATIVE_SCHUR, ceres::CGNR},
          &random,
          &options_);
    }
    // The host leaves this to stock Ceres too.
    options_.use_explicit_schur_complement =
        options_.use_explicit_schur_complement && kDevice == DEVICE_CUDA;
    // Stock aborts on this preconditioner where no point varies.
    rows_.keeps_points =
        options_.preconditioner_type == ceres::SCHUR_POWER_SERIES_EXPANSION;
    options_.eta = random.OneOf({1e-1, 1e-2, 1e-6, 1e-12});
    options_.num_threads = 1 + random.Below(3);
    options_.max_num_iterations = random.OneOf({1, 5, 30});
    options_.jacobi_scaling = random.Chance(0.8);
    options_.use_nonmonotonic_steps = random.Chance(0.1);
    options_.initial_trust_region_radius = random.OneOf({1.0, 1e2, 1e4});
    options_.max_linear_solver_iterations = random.OneOf({20, 500, 500});
    options_.logging_type = ceres::SILENT;
    has_ordering_ = random.Chance(0.8);
  }

  bool has_ordering() const { return has_ordering_; }
  const BalTestProblem& bal() const { return bal_; }

  // The same rows, by stock's or by our cost functions.
  std::unique_ptr<ceres::Problem> Build(bool is_stock,
                                        BalTestProblem* bal,
                                        ceres::Solver::Options* options) const {
    Random random(seed_of_blocks_);
    auto problem = std::make_unique<ceres::Problem>();
    RandomRows rows = rows_;
    rows.derivatives = is_stock ? Derivatives::kAutodiff : rows_.derivatives;
    AddRandomRows(rows, &random, bal, problem.get());
    *options = options_;
    if (has_ordering_) {
      auto ordering = std::make_shared<ceres::ParameterBlockOrdering>();
      std::vector<double*> blocks;
      problem->GetParameterBlocks(&blocks);
      for (double* const block : blocks) {
        const bool is_point = block >= bal->points.data() &&
                              block < bal->points.data() + bal->points.size();
        ordering->AddElementToGroup(block, is_point ? 0 : 1);
      }
      options->linear_solver_ordering = ordering;
    }
    return problem;
  }

  // The end of a solve of stock, or of this library.
  struct Solved {
    BalTestProblem bal;
    Summary summary;
  };
  Solved Solve(bool is_stock,
               const Options& ext_options,
               const BalTestProblem& start) const {
    Solved solved;
    solved.bal = start;
    ceres::Solver::Options options;
    auto problem = Build(is_stock, &solved.bal, &options);
    if (is_stock) {
      ceres::Solver::Summary& of_ceres = solved.summary;
      ceres::Solve(options, problem.get(), &of_ceres);
    } else {
      ceres_ext::Solve(options, ext_options, problem.get(), &solved.summary);
    }
    return solved;
  }

  // The fault of our end compared with stock's; otherwise empty. Ceres's
  // conjugate gradients fail on systems of few columns that they have solved
  // exactly and take another step on; ours stop.
  static std::string WhyWorse(const Summary& ours,
                              const Summary& stock,
                              double rounding) {
    if (!ours.IsSolutionUsable()) {
      return stock.IsSolutionUsable() ? ours.message + " | " + stock.message
                                      : "";
    }
    if (!stock.IsSolutionUsable()) {
      return stock.message.find("consecutive invalid steps") !=
                         std::string::npos &&
                     ours.final_cost <= ours.initial_cost
                 ? ""
                 : ours.message + " | " + stock.message;
    }
    return ours.final_cost <= 1.001 * stock.final_cost + rounding
               ? ""
               : "cost " + std::to_string(ours.final_cost) + ", of stock " +
                     std::to_string(stock.final_cost);
  }

  // True if stock ends so from a start that differs by rounding: where a
  // problem is ill-conditioned, rounding is all that steps are made of.
  bool MayEndSo(const Summary& ours, double rounding, Random* random) const {
    for (int i = 0; i < 3000; ++i) {
      BalTestProblem start = bal_;
      for (std::vector<double>* values : {&start.cameras, &start.points}) {
        for (double& value : *values) {
          value *= 1.0 + random->Uniform(-1e-12, 1e-12);
        }
      }
      if (WhyWorse(ours, Solve(true, {}, start).summary, rounding).empty()) {
        return true;
      }
    }
    return false;
  }

 private:
  uint64_t seed_of_blocks_;
  RandomRows rows_;
  bool has_ordering_;
  BalTestProblem bal_;
  ceres::Solver::Options options_;
};

TEST(RandomProblems, EndAsInStockCeres) {
  int num_taken = 0;
  int num_failed = 0;
  int num_by_rounding = 0;
  int num_lower = 0;
  int num_compared = 0;
  ForEachCase(kNumCases, [&](Random* random) {
    const RandomProblem problem(random);
    Options ext_options;
    ext_options.device = kDevice;
    ext_options.preconditioner_blocks = PRECONDITIONER_BLOCKS_SINGLE;
    ext_options.schur_factorization =
        random->OneOf({SCHUR_FACTORIZATION_DENSE, SCHUR_FACTORIZATION_SPARSE});
    const auto stock = problem.Solve(true, {}, problem.bal());
    const auto ours = problem.Solve(false, ext_options, problem.bal());
    const Summary& summary = ours.summary;
    num_taken += summary.path == PATH_FULL ? 1 : 0;
    num_failed += summary.IsSolutionUsable() ? 0 : 1;
    EXPECT_FALSE(summary.message.empty());
    EXPECT_TRUE(IsFinite(ours.bal.cameras) && IsFinite(ours.bal.points));
    if (!summary.IsSolutionUsable()) {
      EXPECT_EQ(ours.bal.cameras, problem.bal().cameras);
      EXPECT_EQ(ours.bal.points, problem.bal().points);
    }
    const double initial_cost = stock.summary.initial_cost;
    // Rounding of a sum of squares, each the difference of two numbers.
    double rounding = 1e-9 * initial_cost + 1e-15;
    for (const double value : problem.bal().observations) {
      rounding += 1e-23 * value * value;
    }
    EXPECT_NEAR(summary.initial_cost, initial_cost, rounding);
    // If Ceres has one group left to choose from, the two may eliminate
    // different blocks.
    const std::vector<int>& ordering = summary.linear_solver_ordering_used;
    if (!problem.has_ordering() || ordering.size() < 2 ||
        ordering != stock.summary.linear_solver_ordering_used) {
      return;
    }
    ++num_compared;
    num_lower +=
        RandomProblem::WhyWorse(stock.summary, summary, rounding).empty() ? 0
                                                                          : 1;
    const std::string why =
        RandomProblem::WhyWorse(summary, stock.summary, rounding);
    if (!why.empty()) {
      ++num_by_rounding;
      EXPECT_TRUE(problem.MayEndSo(summary, rounding, random))
          << why << "\n"
          << summary.FullReport() << stock.summary.FullReport();
    }
  });
  std::printf(
      "%d taken, %d failed; of %d compared %d are worse than stock by "
      "rounding, "
      "%d better\n",
      num_taken,
      num_failed,
      num_compared,
      num_by_rounding,
      num_lower);
}

}  // namespace
}  // namespace ceres_ext
