// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/marginalize.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ceres/ceres.h"
#include "ceres_ext/batch.h"
#include "ceres_ext/window_solver.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/own_manifold.h"
#include "tests/common/random_cases.h"
#include "tests/front/marginal_windows.h"

namespace ceres_ext {
namespace {

// r_i = scale (c_i'x + 0.3 sin(d_i'x) + e_i) of the values x of all blocks.
class RandomRow final : public ceres::CostFunction {
 public:
  RandomRow(int num_residuals,
            const std::vector<int>& sizes,
            double scale,
            Random* random)
      : scale_(scale) {
    set_num_residuals(num_residuals);
    int n = 0;
    for (const int size : sizes) {
      mutable_parameter_block_sizes()->push_back(size);
      n += size;
    }
    for (int e = 0; e < num_residuals * (2 * n + 1); ++e) {
      c_.push_back(random->Uniform(-1.0, 1.0));
    }
  }

  bool Evaluate(double const* const* x,
                double* residuals,
                double** jacobians) const override {
    const double* c = c_.data();
    for (int i = 0; i < num_residuals(); ++i) {
      double linear = *c++;
      double turn = 0.0;
      const double* const begin = c;
      for (size_t b = 0; b < parameter_block_sizes().size(); ++b) {
        for (int e = 0; e < parameter_block_sizes()[b]; ++e) {
          linear += *c++ * x[b][e];
          turn += *c++ * x[b][e];
        }
      }
      residuals[i] = scale_ * (linear + 0.3 * std::sin(turn));
      c = begin;
      for (size_t b = 0; b < parameter_block_sizes().size(); ++b) {
        const int size = parameter_block_sizes()[b];
        for (int e = 0; e < size; ++e, c += 2) {
          if (jacobians != nullptr && jacobians[b] != nullptr) {
            jacobians[b][size * i + e] =
                scale_ * (c[0] + 0.3 * std::cos(turn) * c[1]);
          }
        }
      }
    }
    return true;
  }

 private:
  const double scale_;
  std::vector<double> c_;
};

class Manifolds {
 public:
  PoseManifold pose;
  ceres::QuaternionManifold quaternion;
  ceres::SubsetManifold subset{5, {1, 3}};
  ceres::SphereManifold<3> sphere;
  OwnManifold own{6};
};

void Normalise(int size, double* q) {
  double norm = 0.0;
  for (int e = 0; e < size; ++e) {
    norm += q[e] * q[e];
  }
  for (int e = 0; e < size; ++e) {
    q[e] /= std::sqrt(norm);
  }
}

Window MakeRandomWindow(Manifolds* manifolds,
                        const std::vector<ceres::LossFunction*>& losses,
                        Random* random) {
  Window window;
  window.blocks = {{3, nullptr, {}, {}, {}},
                   {1, nullptr, {}, {}, {}},
                   {7, &manifolds->pose, {}, {}, {}},
                   {9, nullptr, {}, {}, {}},
                   {4, &manifolds->quaternion, {}, {}, {}},
                   {5, &manifolds->subset, {}, {}, {}},
                   {3, &manifolds->sphere, {}, {}, {}},
                   {6, &manifolds->own, {}, {}, {}},
                   {16, nullptr, {}, {}, {}}};
  for (Window::Blocks& b : window.blocks) {
    const int n = 1 + random->Below(b.size == 3 || b.size == 1 ? 4 : 2);
    for (int i = 0; i < n; ++i) {
      std::vector<double> x;
      for (int e = 0; e < b.size; ++e) {
        x.push_back(random->Uniform(-1.0, 1.0));
      }
      if (b.size == 7 || b.size == 4) {
        Normalise(4, x.data());
      }
      if (b.manifold == &manifolds->sphere) {
        Normalise(3, x.data());
      }
      b.values.insert(b.values.end(), x.begin(), x.end());
      b.is_constant.push_back(random->Chance(0.1) ? 1 : 0);
      b.is_dropped.push_back(random->Chance(0.4) ? 1 : 0);
    }
  }
  const int num_arrays = 1 + random->Below(3);
  for (int a = 0; a < num_arrays; ++a) {
    Window::Rows r;
    const int num_slots = 1 + random->Below(4);
    std::vector<int> sizes;
    for (int s = 0; s < num_slots; ++s) {
      // A row may not name a block twice.
      int array = 0;
      do {
        array = random->Below(static_cast<int>(window.blocks.size()));
      } while (std::count(r.arrays.begin(), r.arrays.end(), array) > 0);
      r.arrays.push_back(array);
      sizes.push_back(window.blocks[array].size);
    }
    const int num_residuals = 1 + random->Below(random->Chance(0.2) ? 15 : 4);
    r.loss = losses[random->Below(static_cast<int>(losses.size()))];
    const bool has_weights = random->Chance(0.3);
    const bool has_cuts = random->Chance(0.2);
    const double scale = std::pow(10.0, random->Uniform(-2.0, 2.0));
    const int n = 1 + random->Below(12);
    for (int k = 0; k < n; ++k) {
      std::vector<int32_t> of_slots;
      for (const int array : r.arrays) {
        of_slots.push_back(
            random->Below(static_cast<int>(window.blocks[array].n())));
      }
      window.AddRow(
          &r,
          of_slots,
          std::make_shared<RandomRow>(num_residuals, sizes, scale, random));
      if (has_weights) {
        r.weights.push_back(random->Uniform(0.0, 2.0));
      }
      if (has_cuts) {
        r.is_cut.push_back(random->Chance(0.2) ? 1 : 0);
      }
    }
    window.rows.push_back(std::move(r));
  }
  return window;
}

void ExpectMarginal(const Expected& expected, const Marginal& marginal) {
  EXPECT_EQ(marginal.num_rows, expected.num_rows);
  EXPECT_EQ(marginal.num_dropped_columns, expected.num_dropped_columns);
  if (!expected.has_rows) {
    EXPECT_EQ(marginal.prior, nullptr);
    return;
  }
  const QuadMarginal& of_quad = *expected.marginal;
  EXPECT_EQ(marginal.dropped_rank, static_cast<int>(of_quad.rank));
  const size_t n = of_quad.num_columns();
  double cost = marginal.least_cost;
  // The place in the prior of each column, and of r; -1: nothing is left of the
  // rows of its block.
  std::vector<int> place;
  size_t next = 0;
  for (size_t k = 0; k < expected.kept.size(); ++k) {
    const bool is_left =
        next < marginal.blocks.size() &&
        BlockName(marginal.blocks[next].parameters,
                  static_cast<int32_t>(marginal.blocks[next].block)) ==
            expected.kept[k];
    const int first =
        is_left ? marginal.prior->column_begin(static_cast<int>(next)) : -1;
    for (int c = 0; c < expected.kept_columns[k]; ++c) {
      place.push_back(is_left ? first + c : -1);
    }
    next += is_left ? 1 : 0;
  }
  ASSERT_EQ(next, marginal.blocks.size());
  ASSERT_EQ(place.size(), n);
  const int num_rows =
      marginal.prior == nullptr ? 0 : marginal.prior->num_residuals();
  EXPECT_LE(num_rows, static_cast<int>(n));
  const auto element = [&](int row, size_t c) {
    const BlockMarginalPrior& prior = *marginal.prior;
    return c == n ? prior.offset()[row]
           : place[c] == -1
               ? 0.0
               : prior.matrix()[prior.num_columns() * row + place[c]];
  };
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j <= n; ++j) {
      double sum = 0.0;
      for (int row = 0; row < num_rows; ++row) {
        sum += element(row, i) * element(row, j);
      }
      ASSERT_NEAR(sum, of_quad.Product(i, j), of_quad.Tolerance(i, j))
          << "element " << i << ", " << j << " of " << n;
    }
  }
  for (int row = 0; row < num_rows; ++row) {
    cost += 0.5 * element(row, n) * element(row, n);
  }
  EXPECT_NEAR(2.0 * cost, of_quad.Product(n, n), of_quad.Tolerance(n, n));
}

TEST(Marginalize, RandomWindowsAreThoseOfQuadruplePrecision) {
  Manifolds manifolds;
  ceres::HuberLoss huber(0.7);
  ceres::CauchyLoss cauchy(1.5);
  ceres::TukeyLoss tukey(3.0);
  const std::vector<ceres::LossFunction*> losses = {
      nullptr, nullptr, &huber, &cauchy, &tukey};
  int64_t num_priors = 0;
  int64_t num_deficient = 0;
  int64_t num_again = 0;
  ForEachCase(500, [&](Random* random) {
    Window window = MakeRandomWindow(&manifolds, losses, random);
    Marginal marginal;
    std::string error;
    ASSERT_TRUE(
        Marginalize(window.MakeArrays(), window.Drop(), &marginal, &error))
        << error;
    ExpectMarginal(Expected(window, {}), marginal);
    num_deficient += marginal.dropped_rank < marginal.num_dropped_columns;
    if (marginal.prior == nullptr) {
      return;
    }
    ++num_priors;
    // The rest with the prior, elsewhere, without another block.
    std::map<BlockName, std::vector<double>> references;
    Window::Rows prior;
    std::vector<int32_t> of_slots;
    for (size_t k = 0; k < marginal.blocks.size(); ++k) {
      const auto& [array, block] = marginal.blocks[k];
      const int size = window.blocks[array].size;
      const double* const x = &window.blocks[array].values[size * block];
      references[{array, static_cast<int32_t>(block)}].assign(x, x + size);
      prior.arrays.push_back(array);
      of_slots.push_back(static_cast<int32_t>(block));
    }
    for (Window::Rows& r : window.rows) {
      Window::Rows rest = r;
      rest.blocks.assign(r.blocks.size(), {});
      rest.owned.clear();
      rest.cost_functions.clear();
      rest.weights.clear();
      rest.is_cut.clear();
      for (size_t k = 0; k < r.cost_functions.size(); ++k) {
        if (window.DependsOnDropped(r, k)) {
          continue;
        }
        std::vector<int32_t> of_row;
        for (const auto& of_slot : r.blocks) {
          of_row.push_back(of_slot[k]);
        }
        window.AddRow(&rest, of_row, r.owned[k]);
        if (!r.weights.empty()) {
          rest.weights.push_back(r.weights[k]);
        }
      }
      r = std::move(rest);
    }
    window.AddRow(&prior, of_slots, marginal.prior);
    window.rows.push_back(std::move(prior));
    for (Window::Blocks& b : window.blocks) {
      for (int64_t i = 0; i < b.n(); ++i) {
        double* const x = &b.values[b.size * i];
        std::vector<double> start(x, x + b.size);
        std::vector<double> delta(b.size);
        for (double& d : delta) {
          d = random->Uniform(-0.1, 0.1);
        }
        if (b.is_constant[i] == 0) {
          if (b.manifold == nullptr) {
            for (int e = 0; e < b.size; ++e) {
              x[e] += delta[e];
            }
          } else {
            b.manifold->Plus(start.data(), delta.data(), x);
          }
        }
        b.is_dropped[i] = b.is_dropped[i] == 0 && random->Chance(0.4) ? 1 : 0;
      }
    }
    ASSERT_TRUE(
        Marginalize(window.MakeArrays(), window.Drop(), &marginal, &error))
        << error;
    ExpectMarginal(Expected(window, references), marginal);
    num_again += marginal.prior != nullptr;
  });
  std::printf("%lld priors, %lld of a prior, %lld of dependent columns\n",
              static_cast<long long>(num_priors),
              static_cast<long long>(num_again),
              static_cast<long long>(num_deficient));
  EXPECT_GT(num_priors, 0);
}

// A pose, a speed and bias, and a point with rows of each pair.
struct SmallWindow {
  SmallWindow() : random(7) {
    window.blocks = {
        {7, &manifolds.pose, {0.1, 0.2, 0.3, 0.9, 1, 2, 3}, {0}, {0}},
        {9, nullptr, {1, 2, 3, 4, 5, 6, 7, 8, 9}, {0}, {0}},
        {3, nullptr, {1, -1, 2}, {0}, {0}}};
    Normalise(4, window.blocks[0].values.data());
    Add({0, 1}, 15);
    Add({0, 2}, 2);
    Add({1}, 9);
  }
  void Add(const std::vector<int>& arrays, int num_residuals) {
    Window::Rows r;
    r.arrays = arrays;
    std::vector<int> sizes;
    for (const int array : arrays) {
      sizes.push_back(window.blocks[array].size);
    }
    window.AddRow(
        &r,
        std::vector<int32_t>(arrays.size(), 0),
        std::make_shared<RandomRow>(num_residuals, sizes, 1.0, &random));
    window.rows.push_back(std::move(r));
  }
  bool Run() {
    return Marginalize(window.MakeArrays(), window.Drop(), &marginal, &error);
  }

  Random random;
  Manifolds manifolds;
  Window window;
  Marginal marginal;
  std::string error;
};

TEST(Marginalize, HasNoPriorIfNothingRemains) {
  SmallWindow small;
  for (Window::Blocks& b : small.window.blocks) {
    b.is_dropped[0] = 1;
  }
  ASSERT_TRUE(small.Run()) << small.error;
  EXPECT_EQ(small.marginal.prior, nullptr);
  EXPECT_EQ(small.marginal.num_rows, 3);
  EXPECT_EQ(small.marginal.num_dropped_columns, 18);
}

TEST(Marginalize, HasNoPriorIfNothingIsDropped) {
  SmallWindow small;
  ASSERT_TRUE(small.Run()) << small.error;
  EXPECT_EQ(small.marginal.prior, nullptr);
  EXPECT_EQ(small.marginal.num_rows, 0);
  ASSERT_TRUE(Marginalize(
      small.window.MakeArrays(), BlocksToDrop(), &small.marginal, nullptr));
  EXPECT_EQ(small.marginal.prior, nullptr);
}

// A row of a constant block says the same about the others without it.
TEST(Marginalize, KeepsRowsOfAConstantDroppedBlock) {
  SmallWindow small;
  small.window.blocks[0].is_constant[0] = 1;
  small.window.blocks[0].is_dropped[0] = 1;
  ASSERT_TRUE(small.Run()) << small.error;
  ASSERT_NE(small.marginal.prior, nullptr);
  EXPECT_EQ(small.marginal.num_rows, 2);  // Not that of the speed alone.
  EXPECT_EQ(small.marginal.num_dropped_columns, 0);
  ASSERT_EQ(small.marginal.blocks.size(), 2);
  EXPECT_EQ(small.marginal.blocks[0].parameters, 1);
  EXPECT_EQ(small.marginal.blocks[1].parameters, 2);
  EXPECT_EQ(small.marginal.prior->num_residuals(), 9 + 2);
  ExpectMarginal(Expected(small.window, {}), small.marginal);
}

TEST(Marginalize, DropsABlockThatIsNotObserved) {
  // Two residuals are fewer than the point's columns, and say nothing else.
  SmallWindow small;
  small.window.blocks[2].is_dropped[0] = 1;
  ASSERT_TRUE(small.Run()) << small.error;
  EXPECT_EQ(small.marginal.prior, nullptr);
  EXPECT_EQ(small.marginal.num_rows, 1);
  EXPECT_EQ(small.marginal.num_dropped_columns, 3);
  EXPECT_EQ(small.marginal.dropped_rank, 2);
}

TEST(Marginalize, KeepsOutRowsThatDoNotTouchDroppedBlocks) {
  SmallWindow small;
  small.window.blocks[1].is_dropped[0] = 1;
  ASSERT_TRUE(small.Run()) << small.error;
  ASSERT_NE(small.marginal.prior, nullptr);
  EXPECT_EQ(small.marginal.num_rows, 2);
  ASSERT_EQ(small.marginal.blocks.size(), 1);
  EXPECT_EQ(small.marginal.blocks[0].parameters, 0);
  // 24 residuals of 9 and 6 columns.
  EXPECT_EQ(small.marginal.prior->num_residuals(), 6);
  ExpectMarginal(Expected(small.window, {}), small.marginal);
}

// Constant values have no column in a prior of all kinds of manifolds, and its
// cost at x_0 (+) delta is |A delta + b|^2 / 2.
TEST(Marginalize, TakesTheTangentsOfManifolds) {
  SmallWindow small;
  small.window.blocks.push_back(
      {5, &small.manifolds.subset, {1, 2, 3, 4, 5}, {0}, {0}});
  small.window.blocks.push_back(
      {3, &small.manifolds.sphere, {0.6, 0.0, 0.8}, {0}, {0}});
  small.window.blocks.push_back(
      {6, &small.manifolds.own, {1, 2, 3, 4, 5, 6}, {0}, {0}});
  small.window.blocks.push_back(
      {4, &small.manifolds.quaternion, {0.5, -0.5, 0.5, 0.5}, {0}, {0}});
  small.Add({1, 3, 4}, 15);
  small.Add({1, 5, 6}, 15);
  small.window.blocks[1].is_dropped[0] = 1;
  ASSERT_TRUE(small.Run()) << small.error;
  ASSERT_NE(small.marginal.prior, nullptr);
  const BlockMarginalPrior& prior = *small.marginal.prior;
  ASSERT_EQ(prior.num_blocks(), 5);
  const std::vector<int> columns = {6, 3, 2, 6, 3};
  EXPECT_EQ(prior.num_columns(), 20);
  std::vector<double> delta(20);
  for (size_t c = 0; c < delta.size(); ++c) {
    delta[c] = 0.1 * std::sin(3.0 + static_cast<double>(c));
  }
  std::vector<std::vector<double>> moved;
  std::vector<const double*> x;
  std::vector<const ceres::Manifold*> of_blocks;
  for (int k = 0; k < 5; ++k) {
    const int array = small.marginal.blocks[k].parameters;
    const Window::Blocks& b = small.window.blocks[array];
    ASSERT_EQ(prior.difference(k).num_columns(), columns[k]);
    moved.emplace_back(b.size);
    b.manifold->Plus(
        b.values.data(), &delta[prior.column_begin(k)], moved.back().data());
    of_blocks.push_back(b.manifold);
  }
  for (const auto& values : moved) {
    x.push_back(values.data());
  }
  std::vector<double> r(prior.num_residuals());
  ASSERT_TRUE(prior.Evaluate(x.data(), r.data(), nullptr));
  for (int i = 0; i < prior.num_residuals(); ++i) {
    double expected = prior.offset()[i];
    double size = std::fabs(expected);
    for (int c = 0; c < 20; ++c) {
      expected += prior.matrix()[20 * i + c] * delta[c];
      size += std::fabs(prior.matrix()[20 * i + c]);
    }
    // 20 products, and a few roundings in each difference.
    EXPECT_NEAR(r[i], expected, 40 * 1.2e-16 * size);
  }
  ceres::GradientChecker checker(
      &prior, &of_blocks, ceres::NumericDiffOptions());
  ceres::GradientChecker::ProbeResults results;
  // Numeric differences have errors of some 1e-10.
  EXPECT_TRUE(checker.Probe(x.data(), 1e-8, &results)) << results.error_log;
}

TEST(Marginalize, IsTheSameOfACeresProblem) {
  SmallWindow small;
  Window& window = small.window;
  ceres::HuberLoss huber(0.5);
  window.rows[0].loss = &huber;
  window.blocks[1].is_dropped[0] = 1;
  ASSERT_TRUE(small.Run()) << small.error;
  ceres::Problem::Options options;
  options.cost_function_ownership = ceres::DO_NOT_TAKE_OWNERSHIP;
  options.loss_function_ownership = ceres::DO_NOT_TAKE_OWNERSHIP;
  options.manifold_ownership = ceres::DO_NOT_TAKE_OWNERSHIP;
  ceres::Problem problem(options);
  double* const pose = window.blocks[0].values.data();
  double* const speed = window.blocks[1].values.data();
  double* const point = window.blocks[2].values.data();
  problem.AddResidualBlock(
      window.rows[0].cost_functions[0], &huber, pose, speed);
  problem.AddResidualBlock(
      window.rows[1].cost_functions[0], nullptr, pose, point);
  problem.AddResidualBlock(window.rows[2].cost_functions[0], nullptr, speed);
  problem.SetManifold(pose, &small.manifolds.pose);
  Marginal marginal;
  std::vector<double*> blocks;
  ASSERT_TRUE(Marginalize(problem, {speed}, &marginal, &blocks, &small.error))
      << small.error;
  EXPECT_THAT(blocks, testing::ElementsAre(pose));
  ASSERT_NE(marginal.prior, nullptr);
  EXPECT_EQ(marginal.prior->matrix(), small.marginal.prior->matrix());
  EXPECT_EQ(marginal.prior->offset(), small.marginal.prior->offset());
  // The prior is folded in.
  problem.RemoveParameterBlock(speed);
  problem.AddResidualBlock(marginal.prior.get(), nullptr, blocks);
  Marginal second;
  ASSERT_TRUE(Marginalize(problem, {pose}, &second, &blocks, &small.error))
      << small.error;
  EXPECT_EQ(second.num_rows, 2);
  EXPECT_THAT(blocks, testing::ElementsAre(point));
  double other[3] = {};
  EXPECT_FALSE(Marginalize(problem, {other}, &second, &blocks, &small.error));
  EXPECT_EQ(small.error, "block 0 to drop is not in the problem");
}

TEST(Marginalize, SaysWhatIsNotValid) {
  const auto error_of = [](const auto& change) {
    SmallWindow small;
    small.window.blocks[1].is_dropped[0] = 1;
    BlocksToDrop drop = small.window.Drop();
    ArrayProblem problem = small.window.MakeArrays();
    change(&small, &problem, &drop);
    EXPECT_FALSE(Marginalize(problem, drop, &small.marginal, &small.error));
    return small.error;
  };
  EXPECT_EQ(error_of([](auto*, auto*, BlocksToDrop* drop) {
              drop->parameter_is_dropped.pop_back();
            }),
            "parameter_is_dropped has 2 arrays, expected 3");
  EXPECT_EQ(error_of([](auto*, auto*, BlocksToDrop* drop) {
              drop->residual_is_cut.push_back(nullptr);
            }),
            "residual_is_cut has 4 arrays, expected 3");
  for (const double tolerance :
       {0.0, 1.0, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THAT(error_of([&](auto*, auto*, BlocksToDrop* drop) {
                  drop->rank_tolerance = tolerance;
                }),
                testing::EndsWith(", expected 0 < rank_tolerance < 1"));
  }
  EXPECT_THAT(error_of([](SmallWindow* small, auto*, auto*) {
                small->window.blocks[2].values[1] =
                    std::numeric_limits<double>::infinity();
              }),
              testing::HasSubstr("finite"));
  EXPECT_EQ(error_of([](auto*, ArrayProblem* problem, auto*) {
              problem->mutable_residuals(0)->weights_on_device = true;
            }),
            "an array of the problem is on a device, expected host memory");
  class Fails final : public ceres::SizedCostFunction<9, 9> {
   public:
    bool Evaluate(double const* const*, double*, double**) const override {
      return false;
    }
  };
  Fails fails;
  ceres::CostFunction* const failing[] = {&fails};
  EXPECT_EQ(error_of([&](auto*, ArrayProblem* problem, auto*) {
              problem->mutable_residuals(2)->cost_functions = failing;
            }),
            "residuals[2]: residual block 0 can't be evaluated: its cost "
            "function failed");
  class Falls final : public ceres::LossFunction {
   public:
    void Evaluate(double s, double* rho) const override {
      rho[0] = -s;
      rho[1] = -1.0;
      rho[2] = 0.0;
    }
  };
  Falls falls;
  EXPECT_THAT(error_of([&](auto*, ArrayProblem* problem, auto*) {
                problem->mutable_residuals(0)->loss = &falls;
              }),
              testing::HasSubstr("has rho' = -1"));
  Fault fault = Fault::kFails;
  OwnManifold own(9, &fault);
  EXPECT_THAT(error_of([&](SmallWindow* small, ArrayProblem* problem, auto*) {
                small->window.blocks[1].manifold = &own;
                *problem = small->window.MakeArrays();
              }),
              testing::HasSubstr("manifold"));
}

TEST(BlockMarginalPrior, SaysWhatIsNotValid) {
  const std::vector<double> values(16, 0.0);
  ceres::QuaternionManifold quaternion;
  std::string error;
  const auto create =
      [&](const std::vector<BlockMarginalPrior::Block>& blocks) {
        return BlockMarginalPrior::Create(
            blocks, values.data(), 1, values.data(), values.data(), &error);
      };
  EXPECT_NE(create({{3}, {9}}), nullptr);
  EXPECT_EQ(create({}), nullptr);
  EXPECT_EQ(error,
            "a marginal prior has 0 blocks and 1 residuals; expected at least "
            "one of each");
  EXPECT_EQ(create({{3}, {0}}), nullptr);
  EXPECT_EQ(error,
            "a marginal prior has 0 values in block 1; expected at least one");
  EXPECT_EQ(create({{3, &quaternion}}), nullptr);
  EXPECT_EQ(error,
            "a marginal prior has 3 values in block 0, but its manifold has 4");
  EXPECT_EQ(create({{3}, {4, &quaternion}}), nullptr);
  EXPECT_EQ(error, "a marginal prior has a zero quaternion in reference 1");
}

}  // namespace
}  // namespace ceres_ext
