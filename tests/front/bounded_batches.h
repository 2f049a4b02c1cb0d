// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Batches whose values have random bounds, against stock Ceres.
#ifndef CERES_EXT_TESTS_FRONT_BOUNDED_BATCHES_H_
#define CERES_EXT_TESTS_FRONT_BOUNDED_BATCHES_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "batch_cases.h"
#include "ceres/cost_function.h"
#include "ceres/loss_function.h"
#include "ceres/manifold.h"
#include "ceres/problem.h"
#include "ceres/solver.h"
#include "ceres_ext/batch.h"
#include "gtest/gtest.h"
#include "tests/common/random_cases.h"

namespace ceres_ext {
inline namespace bounded_batches {

// Problem i of a batch, on its values.
class StockProblem {
 public:
  StockProblem(const ProblemBatch& batch, int64_t i) {
    ceres::Problem::Options options;
    options.cost_function_ownership = ceres::DO_NOT_TAKE_OWNERSHIP;
    options.loss_function_ownership = ceres::DO_NOT_TAKE_OWNERSHIP;
    options.manifold_ownership = ceres::DO_NOT_TAKE_OWNERSHIP;
    problem_ = std::make_unique<ceres::Problem>(options);
    const auto& all = batch.problem.residuals();
    for (size_t r = 0; r < all.size(); ++r) {
      for (int64_t k = batch.residual_begin[r][i];
           k < batch.residual_begin[r][i + 1];
           ++k) {
        if (batch.residual_is_active.empty() ||
            batch.residual_is_active[r] == nullptr ||
            batch.residual_is_active[r][k] != 0) {
          Add(batch, all[r], k);
        }
      }
    }
  }

  ceres::Problem* get() { return problem_.get(); }

 private:
  void Add(const ProblemBatch& batch,
           const ArrayProblem::Residuals& residuals,
           int64_t k) {
    ceres::CostFunction* cost = nullptr;
    if (residuals.cost_functions != nullptr) {
      cost = residuals.cost_functions[k];
    } else {
      costs_.emplace_back(residuals.make_cost_function(
          static_cast<const char*>(residuals.constants) +
          k * residuals.constants_bytes));
      cost = costs_.back().get();
    }
    losses_.push_back(std::make_unique<ceres::ScaledLoss>(
        residuals.loss,
        residuals.weights != nullptr ? residuals.weights[k] : 1.0,
        ceres::DO_NOT_TAKE_OWNERSHIP));
    std::vector<double*> blocks;
    for (const ArrayProblem::Index& index : residuals.blocks) {
      const auto& p = batch.problem.parameters()[index.parameters];
      blocks.push_back(p.values + p.size * index.BlockOf(k));
    }
    problem_->AddResidualBlock(cost, losses_.back().get(), blocks);
    for (size_t b = 0; b < blocks.size(); ++b) {
      const ArrayProblem::Index& index = residuals.blocks[b];
      const auto& p = batch.problem.parameters()[index.parameters];
      const int64_t block = index.BlockOf(k);
      if (p.ManifoldOf(block) != nullptr) {
        problem_->SetManifold(blocks[b], p.ManifoldOf(block));
      }
      if (p.is_constant != nullptr && p.is_constant[block] != 0) {
        problem_->SetParameterBlockConstant(blocks[b]);
      }
      for (int j = 0; p.MayHaveBounds() && j < p.size; ++j) {
        problem_->SetParameterLowerBound(
            blocks[b], j, p.LowerBoundOf(block, j));
        problem_->SetParameterUpperBound(
            blocks[b], j, p.UpperBoundOf(block, j));
      }
    }
  }

  std::vector<std::unique_ptr<ceres::CostFunction>> costs_;
  std::vector<std::unique_ptr<ceres::LossFunction>> losses_;
  std::unique_ptr<ceres::Problem> problem_;
};

// Gives the blocks of a batch intervals around, beside and beyond the start,
// from narrow to wide, some of one side, some blocks none; or one for all
// blocks of an array. Blocks that are constant or have a manifold start within.
class RandomBounds {
 public:
  RandomBounds(ProblemBatch* batch, Random* random) {
    ArrayProblem bounded;
    for (const auto& p : batch->problem.parameters()) {
      bounded.AddParameters(random->Chance(0.3)   ? p
                            : random->Chance(0.3) ? WithOne(p, random)
                                                  : WithEach(p, random));
    }
    for (const auto& residuals : batch->problem.residuals()) {
      bounded.AddResiduals(residuals);
    }
    batch->problem = bounded;
  }

 private:
  using Parameters = ArrayProblem::Parameters;
  static constexpr double kInfinity = std::numeric_limits<double>::infinity();

  double* Keep(size_t n, double value) {
    kept_.push_back(std::make_unique<std::vector<double>>(n, value));
    return kept_.back()->data();
  }

  Parameters WithOne(Parameters p, Random* random) {
    double* const lower = Keep(p.size, -kInfinity);
    double* const upper = Keep(p.size, kInfinity);
    for (int j = 0; j < p.size; ++j) {
      if (random->Chance(0.5)) {
        continue;
      }
      double least = kInfinity;
      double most = -kInfinity;
      for (int64_t i = 0; i < p.num_blocks; ++i) {
        least = std::min(least, p.values[i * p.size + j]);
        most = std::max(most, p.values[i * p.size + j]);
      }
      const double width = random->OneOf({1e-4, 1e-2, 0.3});
      lower[j] = least - width * (1.0 + std::abs(least));
      upper[j] = most + width * (1.0 + std::abs(most));
    }
    p.lower_bound = lower;
    p.upper_bound = upper;
    return p;
  }

  Parameters WithEach(Parameters p, Random* random) {
    const auto n = static_cast<size_t>(p.num_blocks * p.size);
    double* const lower = Keep(n, -kInfinity);
    double* const upper = Keep(n, kInfinity);
    const double share = random->OneOf({0.1, 0.5, 1.0});
    for (int64_t i = 0; i < p.num_blocks; ++i) {
      const bool moves = (p.is_constant == nullptr || p.is_constant[i] == 0) &&
                         p.ManifoldOf(i) == nullptr;
      if (random->Chance(1.0 - share)) {
        continue;
      }
      for (int j = 0; j < p.size; ++j) {
        const double x = p.values[i * p.size + j];
        const double width =
            random->OneOf({1e-4, 1e-2, 0.3}) * (1.0 + std::abs(x));
        double least = x - random->Uniform() * width;
        double most = x + random->Uniform() * width;
        if (moves && random->Chance(0.2)) {
          (random->Chance(0.5) ? least : most) = x;
        } else if (moves && random->Chance(0.2)) {
          const double away = random->OneOf({-2.0, 2.0}) * width;
          least += away;
          most += away;
        }
        if (!(least < most)) {
          most = least + width;
        }
        if (random->Chance(0.7)) {
          lower[i * p.size + j] = least;
        }
        if (random->Chance(0.7)) {
          upper[i * p.size + j] = most;
        }
      }
    }
    p.lower_bounds = random->Chance(0.1) ? nullptr : lower;
    p.upper_bounds = random->Chance(0.1) ? nullptr : upper;
    return p;
  }

  std::vector<std::unique_ptr<std::vector<double>>> kept_;
};

// Counts of problems and steps that were compared.
struct BoundedCounts {
  int64_t num_problems = 0;
  int64_t num_whole = 0;  // windows or fits with bounds
  int64_t num_decided = 0;
  int64_t num_line_search_steps = 0;  // of stock, in those
  int64_t num_rejected = 0;
};

inline std::vector<std::vector<double>> ValuesOf(const ProblemBatch& batch) {
  std::vector<std::vector<double>> values;
  for (const auto& p : batch.problem.parameters()) {
    values.emplace_back(p.values, p.values + p.num_blocks * p.size);
  }
  return values;
}

inline void SetValues(const std::vector<std::vector<double>>& values,
                      ProblemBatch* batch) {
  for (size_t a = 0; a < values.size(); ++a) {
    std::copy(values[a].begin(),
              values[a].end(),
              batch->problem.parameters()[a].values);
  }
}

inline ceres::Solver::Options RandomSearch(ceres::Solver::Options options,
                                           Random* random) {
  options.line_search_interpolation_type = random->OneOf(
      {ceres::CUBIC, ceres::CUBIC, ceres::QUADRATIC, ceres::BISECTION});
  options.max_num_line_search_step_size_iterations =
      random->OneOf({0, 1, 3, 20, 20, 20});
  options.min_line_search_step_size = random->OneOf({1e-9, 1e-9, 1e-2});
  return options;
}

// The same steps and ends as stock Ceres where rounding does not decide, and no
// value beyond its bounds.
inline void ExpectBoundedAsCeres(const ceres::Solver::Options& options,
                                 ProblemBatch* batch,
                                 BoundedCounts* counts) {
  const auto start = ValuesOf(*batch);
  std::vector<ceres::Solver::Summary> stock(batch->num_problems);
  for (int64_t i = 0; i < batch->num_problems; ++i) {
    StockProblem problem(*batch, i);
    ceres::Solve(options, problem.get(), &stock[i]);
  }
  SetValues(start, batch);
  BatchSummary summary;
  std::vector<Summary> full;
  std::string error;
  ASSERT_TRUE(SolveBatch(options, OnMachine(), batch, &summary, &error, &full))
      << error;
  const auto values = ValuesOf(*batch);
  for (size_t a = 0; a < values.size(); ++a) {
    const auto& p = batch->problem.parameters()[a];
    for (size_t k = 0; k < values[a].size(); ++k) {
      const int64_t b = static_cast<int64_t>(k) / p.size;
      const int j = static_cast<int>(k) % p.size;
      ASSERT_TRUE((values[a][k] >= p.LowerBoundOf(b, j) &&
                   values[a][k] <= p.UpperBoundOf(b, j)) ||
                  values[a][k] == start[a][k])
          << "parameters " << a << ", value " << k;
    }
  }
  for (int64_t i = 0; i < batch->num_problems; ++i) {
    SCOPED_TRACE(i);
    const ProblemSummary& ours = summary.problems[i];
    const ceres::Solver::Summary& ceres = stock[i];
    SCOPED_TRACE(ours.path_reason + " / " + ours.message + " / " +
                 ceres.FullReport());
    ++counts->num_problems;
    ASSERT_EQ(ours.IsSolutionUsable(), ceres.IsSolutionUsable());
    if (!ours.IsSolvedWhole() || !ceres.IsSolutionUsable()) {
      continue;
    }
    EXPECT_EQ(full[i].is_constrained, ceres.is_constrained);
    counts->num_whole += ceres.is_constrained ? 1 : 0;
    EXPECT_NEAR(
        ours.initial_cost, ceres.initial_cost, 1e-12 * ceres.initial_cost);
    // Only damping holds the steps of a problem with more columns than
    // residuals, so that rounding decides where bounds end them.
    if (IsNearATie(ceres, options) ||
        ceres.num_residuals_reduced < ceres.num_effective_parameters_reduced) {
      continue;
    }
    ++counts->num_decided;
    counts->num_line_search_steps += ceres.num_line_search_steps;
    counts->num_rejected += ceres.num_unsuccessful_steps;
    EXPECT_EQ(ours.termination_type, ceres.termination_type);
    EXPECT_EQ(ours.num_successful_steps, ceres.num_successful_steps);
    EXPECT_EQ(ours.num_unsuccessful_steps, ceres.num_unsuccessful_steps);
    EXPECT_NEAR(ours.final_cost,
                ceres.final_cost,
                1e-6 * ceres.final_cost + 1e-9 * ceres.initial_cost);
  }
}

// Nearly all are windows or fits, many have no tie, and some are searched.
inline void ExpectCompared(const BoundedCounts& counts) {
  std::printf(
      "%lld problems, %lld bounded, %lld compared, %lld steps of searches, "
      "%lld rejected\n",
      static_cast<long long>(counts.num_problems),
      static_cast<long long>(counts.num_whole),
      static_cast<long long>(counts.num_decided),
      static_cast<long long>(counts.num_line_search_steps),
      static_cast<long long>(counts.num_rejected));
  EXPECT_GT(counts.num_whole, counts.num_problems / 3);
  EXPECT_GT(counts.num_decided, counts.num_problems / 4);
  EXPECT_GT(counts.num_line_search_steps, 0);
}

}  // namespace bounded_batches
}  // namespace ceres_ext

#endif  // CERES_EXT_TESTS_FRONT_BOUNDED_BATCHES_H_
