// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Problems with bounds, on the host and on a device, real or emulated, against
// stock Ceres with the same options: the same accepted and rejected steps and
// the same costs, and no value beyond its bounds. How to run more cases:
// random_cases.h.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "ceres/ceres.h"
#include "ceres_ext/base/ceres_version.h"
#include "ceres_ext/import/problem_of_arrays.h"
#include "ceres_ext/solve.h"
#include "gtest/gtest.h"
#include "tests/common/has_device.h"
#include "tests/common/random_arrays.h"
#include "tests/common/random_cases.h"
#include "tests/common/same_summary.h"

namespace ceres_ext {
namespace {

constexpr int kNumCases = 400;

const bool kIsQuiet = [] {
  SetQuiet(true);
  return true;
}();

ceres::Solver::Options RandomOptions(Random* random) {
  ceres::Solver::Options options;
  options.linear_solver_type = ceres::DENSE_SCHUR;
  options.max_num_iterations = random->OneOf({3, 12});
  options.logging_type = ceres::SILENT;
  options.num_threads = 1;
  options.jacobi_scaling = random->Chance(0.8);
  options.use_nonmonotonic_steps = random->Chance(0.1);
  options.initial_trust_region_radius = random->OneOf({1.0, 1e4, 1e8});
  options.line_search_interpolation_type = random->OneOf(
      {ceres::CUBIC, ceres::CUBIC, ceres::QUADRATIC, ceres::BISECTION});
  options.max_num_line_search_step_size_iterations =
      random->OneOf({0, 1, 3, 20, 20, 20});
  options.min_line_search_step_size = random->OneOf({1e-9, 1e-9, 1e-2});
  return options;
}

// How much of the solves was compared.
struct Compared {
  int64_t num_iterations = 0;  // of stock
  int64_t num_compared = 0;
  int64_t num_rejected = 0;
  int64_t num_line_search_steps = 0;
  int num_solves = 0;
};

std::string Steps(const ceres::Solver::Summary& summary) {
  std::string text = summary.message;
  char line[200];
  for (const ceres::IterationSummary& step : summary.iterations) {
    std::snprintf(line,
                  sizeof(line),
                  "\n%3d %s cost %.17g change %.3e gradient %.3e radius %.3e",
                  step.iteration,
                  step.step_is_successful ? "accepted" : "rejected",
                  step.cost,
                  step.cost_change,
                  step.gradient_max_norm,
                  step.trust_region_radius);
    text += line;
  }
  return text;
}

bool EndsWithoutAStep(const ceres::Solver::Summary& summary) {
  return summary.message.rfind("Parameter tolerance reached", 0) == 0;
}

// The difference of two solves' decisions, or "". Decisions are the same while
// costs agree to rounding. Steps of systems that are all but singular drift
// apart, and there the comparison ends.
std::string Difference(const ceres::Solver::Summary& ours,
                       const ceres::Solver::Summary& stock,
                       Compared* compared) {
  constexpr double kRounding = 1e-9;
  const std::string steps =
      "\nours: " + Steps(ours) + "\nstock: " + Steps(stock);
  const auto n = std::min(ours.iterations.size(), stock.iterations.size());
  ++compared->num_solves;
  compared->num_iterations += static_cast<int64_t>(stock.iterations.size());
  for (size_t i = 0; i < n; ++i) {
    const ceres::IterationSummary& a = ours.iterations[i];
    const ceres::IterationSummary& b = stock.iterations[i];
    if (!(std::abs(a.cost - b.cost) <= kRounding * b.cost) ||
        (i > 0 && std::abs(b.cost_change) <= kRounding * b.cost)) {
      return "";
    }
    if (a.step_is_valid != b.step_is_valid ||
        a.step_is_successful != b.step_is_successful) {
      return "iteration " + std::to_string(i) + steps;
    }
    ++compared->num_compared;
    compared->num_rejected += b.step_is_successful ? 0 : 1;
  }
  // A search that finds no descent along the projected step contracts it until
  // costs differ by rounding alone. It then ends without success, or with a
  // step that is so short that it ends the solve.
  if (ours.iterations.size() != stock.iterations.size() &&
      (EndsWithoutAStep(ours) || EndsWithoutAStep(stock))) {
    return "";
  }
  if (ours.iterations.size() != stock.iterations.size() ||
      ours.termination_type != stock.termination_type) {
    return "the end" + steps;
  }
  // A step that ends a solve may gain nothing but rounding.
  if (stock.termination_type == ceres::NO_CONVERGENCE) {
    if (ours.num_line_search_steps != stock.num_line_search_steps) {
      return "steps of searches" + steps;
    }
    compared->num_line_search_steps += stock.num_line_search_steps;
  }
  return "";
}

// Values that are beyond their bounds are as they were: their blocks are in no
// residual block.
void ExpectWithinBounds(const ArrayProblem& arrays,
                        const std::vector<std::vector<double>>& start) {
  for (size_t a = 0; a < arrays.parameters().size(); ++a) {
    const ArrayProblem::Parameters& p = arrays.parameters()[a];
    for (int64_t k = 0; k < p.num_blocks * p.size; ++k) {
      const auto j = static_cast<int>(k % p.size);
      const double x = p.values[k];
      ASSERT_TRUE((x >= p.LowerBoundOf(k / p.size, j) &&
                   x <= p.UpperBoundOf(k / p.size, j)) ||
                  x == start[a][k])
          << "parameters " << a << ", value " << k;
    }
  }
}

// Also as arrays, with the bits of the ceres::Problem.
TEST(Bounds, DecidesAsStockDoes) {
  Compared compared;
  int num_ours = 0;
  int num_as_wanted = 0;
  int num_cases = 0;
  int num_by_qr = 0;
  ForEachCase(kNumCases, [&](Random* random) {
    RandomArrays arrays(random);
    arrays.AddBounds();
    const ceres::Solver::Options options = RandomOptions(random);
    Options ext_options;
    const bool on_device =
        kDevice == DEVICE_CUDA || (HasDevice() && random->Chance(0.5));
    ext_options.device = on_device ? DEVICE_CUDA : DEVICE_HOST;
    ext_options.linear_solver = LINEAR_SOLVER_AS_GIVEN;
    SCOPED_TRACE(arrays.Describe());
    ProblemOfArrays of_arrays(*arrays.problem());
    const auto start = arrays.Values();

    ceres::Solver::Summary stock;
    ceres::Solve(options, of_arrays.problem(), &stock);

    arrays.SetValues(start);
    Summary summary;
    Solve(options, ext_options, of_arrays.problem(), &summary);
    SCOPED_TRACE(summary.path_reason);
    SCOPED_TRACE(summary.device);
    ++num_cases;
    if (summary.path != PATH_FULL) {
      return;
    }
    ++num_ours;
    num_as_wanted +=
        (summary.device.rfind("host", 0) != 0) == on_device ? 1 : 0;
    EXPECT_EQ(summary.device.find("bounds"), std::string::npos);
    EXPECT_EQ(summary.is_constrained, stock.is_constrained);
    if (summary.IsSolutionUsable()) {
      ExpectWithinBounds(*arrays.problem(), start);
    }
    const auto values = arrays.Values();
    const std::string difference = Difference(summary, stock, &compared);
    if (!difference.empty()) {
      // The step that ends a solve is in no list of iterations, and may be
      // another one where stock's solvers differ.
      ceres::Solver::Options by_qr = options;
      by_qr.linear_solver_type = ceres::DENSE_QR;
      arrays.SetValues(start);
      ceres::Solver::Summary other;
      ceres::Solve(by_qr, of_arrays.problem(), &other);
      ++num_by_qr;
      EXPECT_EQ(Difference(summary, other, &compared), "") << difference;
    }

    arrays.SetValues(start);
    Summary of_table;
    Solve(options, ext_options, arrays.problem(), &of_table);
    EXPECT_EQ(of_table.path, PATH_FULL);
    EXPECT_EQ(of_table.is_constrained, stock.is_constrained);
    EXPECT_EQ(arrays.Values(), values);
    ExpectSameSummary(of_table, summary);
  });
  std::printf(
      "%d of %d solved here, %d as by stock's DENSE_QR alone; %lld of %lld "
      "iterations compared, %lld rejected, %lld steps of searches\n",
      num_ours,
      num_cases,
      num_by_qr,
      static_cast<long long>(compared.num_compared),
      static_cast<long long>(compared.num_iterations),
      static_cast<long long>(compared.num_rejected),
      static_cast<long long>(compared.num_line_search_steps));
  EXPECT_LE(num_by_qr, num_cases / 100);
  if (num_cases >= kNumCases) {
    EXPECT_GT(num_ours, num_cases / 2);
    EXPECT_EQ(num_as_wanted, num_ours);
    EXPECT_GT(compared.num_compared, compared.num_iterations / 2);
    EXPECT_GT(compared.num_rejected, num_cases / 10);
    EXPECT_GT(compared.num_line_search_steps, num_cases / 2);
  }
}

}  // namespace
}  // namespace ceres_ext
