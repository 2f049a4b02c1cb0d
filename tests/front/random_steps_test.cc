// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Small random problems of blocks of many sizes, with bounds and without, with
// Levenberg-Marquardt and both kinds of dogleg steps and with each linear
// solver whose steps are exact, against stock Ceres with the same options: the
// same accepted and rejected steps while costs agree to rounding, and callbacks
// that see the same. How to run more cases: random_cases.h.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ceres/ceres.h"
#include "ceres/manifold.h"
#include "ceres_ext/base/ceres_version.h"
#include "ceres_ext/solve.h"
#include "gtest/gtest.h"
#include "tests/common/has_cudss.h"
#include "tests/common/has_device.h"
#include "tests/common/random_cases.h"

namespace ceres_ext {
namespace {

// A device takes longer for a case.
constexpr int kNumCases = 1000;
constexpr int kNumCasesOnDevice = 150;

const bool kIsQuiet = [] {
  SetQuiet(true);
  return true;
}();

// r = A x + wave sin(B x) - y, where x is all blocks of the row.
class WaveRow final : public ceres::CostFunction {
 public:
  WaveRow(const std::vector<int>& sizes,
          int num_residuals,
          double weight,
          double wave,
          Random* random)
      : weight_(weight), wave_(wave) {
    int num_values = 0;
    for (const int size : sizes) {
      mutable_parameter_block_sizes()->push_back(size);
      num_values += size;
    }
    set_num_residuals(num_residuals);
    a_.resize(num_residuals, num_values);
    b_.resize(num_residuals, num_values);
    y_.resize(num_residuals);
    for (int i = 0; i < num_residuals; ++i) {
      y_[i] = random->Uniform(-3.0, 3.0);
      for (int j = 0; j < num_values; ++j) {
        a_(i, j) = random->Uniform(-1.0, 1.0);
        b_(i, j) = random->Uniform(-1.0, 1.0);
      }
    }
  }

  bool Evaluate(double const* const* parameters,
                double* residuals,
                double** jacobians) const final {
    const auto& sizes = parameter_block_sizes();
    ceres::Vector x(a_.cols());
    int begin = 0;
    for (size_t k = 0; k < sizes.size(); begin += sizes[k++]) {
      x.segment(begin, sizes[k]) =
          Eigen::Map<const ceres::Vector>(parameters[k], sizes[k]);
    }
    const ceres::Vector phase = b_ * x;
    for (int i = 0; i < num_residuals(); ++i) {
      residuals[i] =
          weight_ * (a_.row(i).dot(x) + wave_ * std::sin(phase[i]) - y_[i]);
    }
    begin = 0;
    for (size_t k = 0; jacobians != nullptr && k < sizes.size();
         begin += sizes[k++]) {
      for (int i = 0; jacobians[k] != nullptr && i < num_residuals(); ++i) {
        for (int j = 0; j < sizes[k]; ++j) {
          jacobians[k][i * sizes[k] + j] =
              weight_ * (a_(i, begin + j) +
                         wave_ * std::cos(phase[i]) * b_(i, begin + j));
        }
      }
    }
    return true;
  }

 private:
  double weight_;
  double wave_;
  ceres::Matrix a_;
  ceres::Matrix b_;
  ceres::Vector y_;
};

// Keeps what callbacks see of blocks, in order.
class Watcher final : public ceres::IterationCallback,
                      public ceres::EvaluationCallback {
 public:
  struct Iteration {
    int number = 0;
    double cost = 0.0;
    std::vector<double> state;
    size_t num_points = 0;  // evaluated before
  };

  explicit Watcher(const std::vector<std::vector<double>>* blocks)
      : blocks_(blocks) {}

  ceres::CallbackReturnType operator()(
      const ceres::IterationSummary& summary) override {
    iterations.push_back(
        {summary.iteration, summary.cost, State(), points.size()});
    return ceres::SOLVER_CONTINUE;
  }

  // This library evaluates some points once that Ceres evaluates twice.
  void PrepareForEvaluation(bool /*jacobians*/, bool /*is_new*/) override {
    std::vector<double> state = State();
    if (points.empty() || !AreNear(state, points.back(), 1e-12)) {
      points.push_back(std::move(state));
    }
  }

  static bool AreNear(const std::vector<double>& a,
                      const std::vector<double>& b,
                      double tolerance) {
    for (size_t i = 0; i < a.size(); ++i) {
      if (!(std::abs(a[i] - b[i]) <= tolerance * (1.0 + std::abs(b[i])))) {
        return false;
      }
    }
    return a.size() == b.size();
  }

  std::vector<Iteration> iterations;
  std::vector<std::vector<double>> points;

 private:
  std::vector<double> State() const {
    std::vector<double> state;
    for (const auto& block : *blocks_) {
      state.insert(state.end(), block.begin(), block.end());
    }
    return state;
  }

  const std::vector<std::vector<double>>* blocks_;
};

// A problem that can be built several times, of parameters of its own.
class RandomGraph {
 public:
  explicit RandomGraph(Random* random) : seed_(random->generator()()) {
    ceres::Solver::Options& o = options_;
    o.linear_solver_type = random->OneOf({ceres::DENSE_SCHUR,
                                          ceres::SPARSE_SCHUR,
                                          ceres::DENSE_NORMAL_CHOLESKY,
                                          ceres::SPARSE_NORMAL_CHOLESKY});
    o.trust_region_strategy_type = random->OneOf(
        {ceres::LEVENBERG_MARQUARDT, ceres::DOGLEG, ceres::DOGLEG});
    o.dogleg_type =
        random->OneOf({ceres::TRADITIONAL_DOGLEG, ceres::SUBSPACE_DOGLEG});
    o.initial_trust_region_radius = random->OneOf({0.3, 3.0, 30.0, 1e4});
    o.jacobi_scaling = random->Chance(0.7);
    o.use_nonmonotonic_steps = random->Chance(0.2);
    o.max_num_iterations = 20;
    o.num_threads = 1 + random->Below(3);
    o.logging_type = ceres::SILENT;
    o.line_search_interpolation_type = random->OneOf(
        {ceres::CUBIC, ceres::CUBIC, ceres::QUADRATIC, ceres::BISECTION});
    o.max_num_line_search_step_size_iterations =
        random->OneOf({0, 1, 3, 20, 20, 20});
    has_bounds_ = random->Chance(0.3);
    num_blocks_ = 2 + random->Below(10);
    // The last ones are private: one row alone has each.
    const int num_private = random->Chance(0.3) ? 1 + random->Below(12) : 0;
    for (int i = 0; i < num_blocks_ + num_private; ++i) {
      blocks_.emplace_back(
          i < num_blocks_ ? random->OneOf({1, 2, 3, 4, 4, 6, 6, 7, 9, 12, 16})
                          : 1);
      for (double& value : blocks_.back()) {
        value = random->Uniform(-2.0, 2.0);
      }
    }
  }

  bool has_bounds() const { return has_bounds_; }
  bool has_private_blocks() const {
    return static_cast<int>(blocks_.size()) > num_blocks_;
  }

  const ceres::Solver::Options& options() const { return options_; }
  ceres::Solver::Options* mutable_options() { return &options_; }

  ceres::Solver::Summary SolveStock() const {
    auto blocks = blocks_;
    const auto problem = Build(nullptr, &blocks);
    ceres::Solver::Summary summary;
    ceres::Solve(options_, problem.get(), &summary);
    return summary;
  }
  Summary SolveOurs(const Options& ext_options) const {
    auto blocks = blocks_;
    const auto problem = Build(nullptr, &blocks);
    Summary summary;
    ceres_ext::Solve(options_, ext_options, problem.get(), &summary);
    return summary;
  }

  // ext_options.enabled is false: by stock Ceres. Returns what callbacks see,
  // those of evaluations if these are watched.
  Watcher Watch(const Options& ext_options,
                bool watches_evaluations,
                Summary* summary) const {
    auto blocks = blocks_;
    Watcher watcher(&blocks);
    const auto problem =
        Build(watches_evaluations ? &watcher : nullptr, &blocks);
    ceres::Solver::Options options = options_;
    options.callbacks.push_back(&watcher);
    ceres_ext::Solve(options, ext_options, problem.get(), summary);
    return watcher;
  }

 private:
  // Each block has a row of its own, so that no column is zero; other rows are
  // of one to three blocks.
  std::unique_ptr<ceres::Problem> Build(
      ceres::EvaluationCallback* callback,
      std::vector<std::vector<double>>* blocks) const {
    Random random(static_cast<int64_t>(seed_ >> 1));
    ceres::Problem::Options of_problem;
    of_problem.evaluation_callback = callback;
    auto problem = std::make_unique<ceres::Problem>(of_problem);
    const int n = num_blocks_;
    const double wave = random.OneOf({0.0, 0.3, 1.0, 2.0});
    const auto add =
        [&](const std::vector<int>& of_row, int num_residuals, double weight) {
          std::vector<int> sizes;
          std::vector<double*> values;
          for (const int k : of_row) {
            sizes.push_back(static_cast<int>((*blocks)[k].size()));
            values.push_back((*blocks)[k].data());
          }
          problem->AddResidualBlock(
              new WaveRow(sizes, num_residuals, weight, wave, &random),
              random.Chance(0.2) ? new ceres::HuberLoss(2.0) : nullptr,
              values);
        };
    for (int k = 0; k < n; ++k) {
      add({k}, static_cast<int>((*blocks)[k].size()), 0.5);
    }
    for (int i = random.Below(6 * n); i > 0; --i) {
      std::vector<int> of_row;
      for (int k = random.Below(3); k >= 0; --k) {
        const int block = random.Below(n);
        if (std::count(of_row.begin(), of_row.end(), block) == 0) {
          of_row.push_back(block);
        }
      }
      add(of_row, 1 + random.Below(4), 1.0);
    }
    for (int k = n; k < static_cast<int>(blocks->size()); ++k) {
      add({k, random.Below(n)}, 2 + random.Below(3), 1.0);
    }
    for (int k = 0; k < n; ++k) {
      const int size = static_cast<int>((*blocks)[k].size());
      if (size == 4 && random.Chance(0.5)) {
        problem->SetManifold((*blocks)[k].data(),
                             new ceres::QuaternionManifold);
        Eigen::Map<Eigen::Vector4d>((*blocks)[k].data()).normalize();
      } else if (size > 1 && random.Chance(0.15)) {
        problem->SetManifold(
            (*blocks)[k].data(),
            new ceres::SubsetManifold(size, {random.Below(size)}));
      }
      if (k > 0 && random.Chance(0.1)) {
        problem->SetParameterBlockConstant((*blocks)[k].data());
        continue;
      }
      // Around the start, beside it or beyond it.
      double* const values = (*blocks)[k].data();
      const bool moves = problem->GetManifold(values) == nullptr;
      for (int e = 0; has_bounds_ && e < size; ++e) {
        const double middle =
            values[e] + (moves ? random.OneOf({0.0, 0.3, -2.0}) : 0.0);
        if (random.Chance(0.4)) {
          problem->SetParameterLowerBound(
              values, e, middle - random.Uniform(0.01, 1.0));
        }
        if (random.Chance(0.4)) {
          problem->SetParameterUpperBound(
              values, e, middle + random.Uniform(0.01, 1.0));
        }
      }
    }
    return problem;
  }

  uint64_t seed_;
  int num_blocks_ = 0;  // that are not private
  bool has_bounds_ = false;
  std::vector<std::vector<double>> blocks_;
  ceres::Solver::Options options_;
};

// Compares iterations while costs agree to rounding, which grows from step to
// step where steps are long: a difference above kRounding must follow one above
// kNoise. Returns how many agree.
size_t ExpectStepsOfStock(const Summary& ours,
                          const ceres::Solver::Summary& stock) {
  constexpr double kNoise = 1e-12;
  constexpr double kRounding = 1e-9;
  const size_t n = std::min(ours.iterations.size(), stock.iterations.size());
  double largest = 0.0;
  for (size_t i = 0; i < n; ++i) {
    const auto& a = ours.iterations[i];
    const auto& b = stock.iterations[i];
    // A cost near zero is rounding of residuals.
    const double scale = b.cost + kRounding * stock.initial_cost;
    const double difference = std::abs(a.cost - b.cost) / scale;
    if (difference > kRounding) {
      EXPECT_GT(largest, kNoise) << "iteration " << i;
      return i;
    }
    largest = std::max(largest, difference);
    // If a step gains nothing but rounding, the two may differ.
    if (i > 0 && std::abs(b.cost_change) <= kRounding * scale) {
      return i;
    }
    EXPECT_EQ(a.step_is_valid, b.step_is_valid) << "iteration " << i;
    EXPECT_EQ(a.step_is_successful, b.step_is_successful) << "iteration " << i;
    EXPECT_EQ(a.step_is_nonmonotonic, b.step_is_nonmonotonic)
        << "iteration " << i;
    EXPECT_NEAR(a.trust_region_radius,
                b.trust_region_radius,
                1e-6 * b.trust_region_radius)
        << "iteration " << i;
  }
  // A search that finds no descent contracts the projected step until rounding
  // decides.
  const auto ends_without_a_step = [](const auto& summary) {
    return summary.is_constrained &&
           summary.message.rfind("Parameter tolerance reached", 0) == 0;
  };
  if (ours.iterations.size() != stock.iterations.size() &&
      (ends_without_a_step(ours) || ends_without_a_step(stock))) {
    return n;
  }
  EXPECT_EQ(ours.iterations.size(), stock.iterations.size());
  EXPECT_EQ(ours.termination_type, stock.termination_type);
  return n;
}

class RandomSteps : public ::testing::TestWithParam<DeviceType> {};

INSTANTIATE_TEST_SUITE_P(Devices,
                         RandomSteps,
                         ::testing::ValuesIn(kDevices),
                         [](const auto& info) {
                           return std::string(DeviceTypeToString(info.param));
                         });

TEST_P(RandomSteps, AreThoseOfStock) {
  const DeviceType device = GetParam();
  if (device == DEVICE_CUDA && !HasDevice()) {
    GTEST_SKIP() << "skipped: no CUDA device";
  }
  int num_taken = 0;
  int num_dogleg = 0;
  int64_t num_compared = 0;
  int64_t num_iterations = 0;
  int64_t num_rejected = 0;
  const int num_cases = device == DEVICE_CUDA ? kNumCasesOnDevice : kNumCases;
  ForEachCase(num_cases, [&](Random* random) {
    const RandomGraph graph(random);
    Options ext_options;
    ext_options.device = device;
    ext_options.schur_factorization =
        device == DEVICE_CUDA && !HasCudss()
            ? SCHUR_FACTORIZATION_DENSE
            : random->OneOf({SCHUR_FACTORIZATION_DENSE,
                             SCHUR_FACTORIZATION_SPARSE,
                             SCHUR_FACTORIZATION_AUTO});
    if (!ceres::IsSchurType(graph.options().linear_solver_type)) {
      // Stock is as fast for most of them.
      ext_options.fallback = FALLBACK_REFUSE;
    }
    const Summary ours = graph.SolveOurs(ext_options);
    const ceres::Solver::Summary stock = graph.SolveStock();
    ASSERT_EQ(ours.path, PATH_FULL) << ours.path_reason;
    ++num_taken;
    num_dogleg +=
        graph.options().trust_region_strategy_type == ceres::DOGLEG ? 1 : 0;
    EXPECT_EQ(ours.num_pcg_iterations, 0);
    const size_t num_same = ExpectStepsOfStock(ours, stock);
    num_compared += static_cast<int64_t>(num_same);
    num_iterations += static_cast<int64_t>(stock.iterations.size());
    for (size_t i = 0; i < num_same; ++i) {
      num_rejected += ours.iterations[i].step_is_successful ? 0 : 1;
    }
    if (::testing::Test::HasFailure()) {
      std::printf(
          "%s\n%s\n", ours.FullReport().c_str(), stock.FullReport().c_str());
      for (size_t i = 0;
           i < std::min(ours.iterations.size(), stock.iterations.size());
           ++i) {
        const auto& a = ours.iterations[i];
        const auto& b = stock.iterations[i];
        std::printf("%zu %d %d %.17g %.17g %.10g %.10g radius %.10g %.10g\n",
                    i,
                    a.step_is_successful,
                    b.step_is_successful,
                    a.cost,
                    b.cost,
                    a.relative_decrease,
                    b.relative_decrease,
                    a.trust_region_radius,
                    b.trust_region_radius);
      }
    }
  });
  std::printf(
      "%d taken, %d of these with dogleg; %lld of %lld iterations compared, "
      "%lld rejected\n",
      num_taken,
      num_dogleg,
      static_cast<long long>(num_compared),
      static_cast<long long>(num_iterations),
      static_cast<long long>(num_rejected));
  // Unless few cases were asked for.
  if (num_taken > 100) {
    EXPECT_GT(num_compared, num_iterations / 2);
    EXPECT_GT(num_rejected, num_taken / 10);
  }
}

// With bounds, dogleg steps, eliminated blocks of up to 16 columns, normal
// equations as given and private blocks: the same iterations with the same
// states, and between them evaluations at the same points in the same order.
TEST_P(RandomSteps, AreSeenByCallbacksAsThoseOfStock) {
  const DeviceType device = GetParam();
  if (device == DEVICE_CUDA && !HasDevice()) {
    GTEST_SKIP() << "skipped: no CUDA device";
  }
  int64_t num_seen[4] = {};  // of bounds, dogleg, normal, private blocks
  const int num_cases = device == DEVICE_CUDA ? kNumCasesOnDevice : kNumCases;
  ForEachCase(num_cases, [&](Random* random) {
    RandomGraph graph(random);
    ceres::Solver::Options* const options = graph.mutable_options();
    options->update_state_every_iteration = random->Chance(0.7);
    const bool watches_evaluations = random->Chance(0.5);
    Options ext_options;
    ext_options.device = device;
    ext_options.schur_factorization = SCHUR_FACTORIZATION_DENSE;
    ext_options.fallback = FALLBACK_REFUSE;
    Summary ours;
    const Watcher seen = graph.Watch(ext_options, watches_evaluations, &ours);
    Options of_stock;
    of_stock.enabled = false;
    Summary stock;
    const Watcher expected = graph.Watch(of_stock, watches_evaluations, &stock);
    ASSERT_EQ(ours.path, PATH_FULL) << ours.path_reason;
    ASSERT_EQ(stock.path, PATH_CERES);
    ASSERT_EQ(seen.iterations.size(), ours.iterations.size());
    const size_t num_same = ExpectStepsOfStock(ours, stock);
    for (size_t i = 0; i < num_same; ++i) {
      const Watcher::Iteration& a = seen.iterations[i];
      const Watcher::Iteration& b = expected.iterations[i];
      EXPECT_EQ(a.number, b.number);
      EXPECT_EQ(a.cost, ours.iterations[i].cost);
      EXPECT_TRUE(Watcher::AreNear(a.state, b.state, 1e-5))
          << "iteration " << i;
      ASSERT_EQ(a.num_points, b.num_points) << "iteration " << i;
      for (size_t e = i == 0 ? 0 : expected.iterations[i - 1].num_points;
           e < b.num_points;
           ++e) {
        EXPECT_TRUE(Watcher::AreNear(seen.points[e], expected.points[e], 1e-5))
            << "iteration " << i << ", point " << e;
      }
    }
    const auto count = [&](int what, bool is_it) {
      num_seen[what] += is_it ? static_cast<int64_t>(num_same) : 0;
    };
    count(0, graph.has_bounds());
    count(1, options->trust_region_strategy_type == ceres::DOGLEG);
    count(2, !ceres::IsSchurType(options->linear_solver_type));
    count(3, graph.has_private_blocks());
  });
  std::printf(
      "iterations seen with bounds %lld, dogleg %lld, normal equations %lld, "
      "private blocks %lld\n",
      static_cast<long long>(num_seen[0]),
      static_cast<long long>(num_seen[1]),
      static_cast<long long>(num_seen[2]),
      static_cast<long long>(num_seen[3]));
}

#ifndef CERES_EXT_EMULATED
// A path of 200 blocks whose rows reach ten blocks ahead: most tiles of the
// host's dense S are zero in each of many steps, and are left out.
TEST(Band, TakesTheStepsOfStock) {
  constexpr int kNumBlocks = 200;
  constexpr int kSize = 6;
  for (const auto strategy : {ceres::LEVENBERG_MARQUARDT, ceres::DOGLEG}) {
    SCOPED_TRACE(ceres::TrustRegionStrategyTypeToString(strategy));
    Summary ours;
    ceres::Solver::Summary stock;
    for (const bool is_stock : {false, true}) {
      Random random(4);
      std::vector<std::vector<double>> blocks;
      for (int i = 0; i < kNumBlocks; ++i) {
        blocks.emplace_back(kSize, random.Uniform(-1.0, 1.0));
      }
      ceres::Problem problem;
      const auto add = [&](const std::vector<int>& of_row) {
        std::vector<double*> values;
        for (const int k : of_row) {
          values.push_back(blocks[k].data());
        }
        problem.AddResidualBlock(
            new WaveRow(std::vector<int>(of_row.size(), kSize),
                        kSize,
                        1.0,
                        0.5,
                        &random),
            nullptr,
            values);
      };
      for (int i = 0; i < kNumBlocks; ++i) {
        add({i});
        for (const int ahead : {1, 10}) {
          if (i + ahead < kNumBlocks) {
            add({i, i + ahead});
          }
        }
      }
      ceres::Solver::Options options;
      options.linear_solver_type = ceres::SPARSE_NORMAL_CHOLESKY;
      options.trust_region_strategy_type = strategy;
      options.initial_trust_region_radius = 10.0;
      options.max_num_iterations = 10;
      options.num_threads = 2;
      options.logging_type = ceres::SILENT;
      Options ext_options;
      ext_options.device = DEVICE_HOST;
      ext_options.fallback = FALLBACK_REFUSE;
      if (is_stock) {
        ceres::Solve(options, &problem, &stock);
      } else {
        Solve(options, ext_options, &problem, &ours);
      }
    }
    ASSERT_EQ(ours.path, PATH_FULL) << ours.message;
    EXPECT_NE(ours.method.find("of S as a dense matrix"), std::string::npos)
        << ours.method;
    EXPECT_GT(ExpectStepsOfStock(ours, stock), 5u);
  }
}
#endif

}  // namespace
}  // namespace ceres_ext
