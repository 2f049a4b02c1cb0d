// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Random problems of arrays of all kinds of rows, blocks, losses, weights and
// manifolds: without a ceres::Problem they are solved as the ceres::Problem of
// the same blocks is, bit for bit. How to run more cases: random_cases.h.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ceres/ceres.h"
#include "ceres/rotation.h"
#include "ceres_ext/array_problem.h"
#include "ceres_ext/bal_cost_functions.h"
#include "ceres_ext/import/problem_of_arrays.h"
#include "ceres_ext/solve.h"
#include "glog/logging.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/front/any_problem_functors.h"
#include "tests/front/bal_test_problem.h"
#include "tests/front/has_device.h"
#include "tests/front/own_manifold.h"
#include "tests/front/random_cases.h"

namespace ceres_ext {
namespace {

#ifdef CERES_EXT_EMULATED
constexpr int kNumCases = 40;
#else
constexpr int kNumCases = 300;
#endif

const bool kIsQuiet = [] {
  FLAGS_minloglevel = google::GLOG_FATAL;
  return true;
}();

using Parameters = ArrayProblem::Parameters;
using Residuals = ArrayProblem::Residuals;
using Index = ArrayProblem::Index;

class OwnLoss final : public ceres::LossFunction {
 public:
  void Evaluate(double s, double rho[3]) const final {
    rho[0] = std::log1p(s);
    rho[1] = 1.0 / (1.0 + s);
    rho[2] = -rho[1] * rho[1];
  }
};

template <typename Functor, int... kSizes>
using Cost = DeviceAutoDiffCostFunction<Functor, kSizes...>;

// With constants that are not a model's: x and y, negated.
ceres::CostFunction* MakeOfNegated(const void* constants) {
  const double* const xy = static_cast<const double*>(constants);
  return new Cost<SplitReprojection, 2, 6, 3, 3>(
      SplitReprojection{-xy[0], -xy[1]});
}
ceres::CostFunction* MakeOfCeres(const void* constants) {
  const double* const xy = static_cast<const double*>(constants);
  return new ceres::AutoDiffCostFunction<SplitReprojection, 2, 4, 3, 3, 3>(
      new SplitReprojection{xy[0], xy[1]});
}

// A problem and all that its arrays point to.
class RandomArrays {
 public:
  explicit RandomArrays(Random* random)
      : random_(*random),
        nine_(MakeBalTestProblem(2 + random->Below(6),
                                 8 + random->Below(40),
                                 2 + random->Below(3),
                                 9,
                                 1 + random->Below(1000))),
        ten_(MakeBalTestProblem(nine_.num_cameras(),
                                nine_.num_points(),
                                2 + random->Below(2),
                                10,
                                1 + random->Below(1000))) {
    // Points that all see; kinds of cameras.
    points_ = AddParameters(nine_.points, 3);
    const int num_kinds = 1 + random_.Below(3);
    for (int i = 0; i < num_kinds; ++i) {
      AddKind();
    }
    // Other points, and blocks that no row names.
    if (random_.Chance(0.2)) {
      AddParameters(std::vector<double>(12, 0.5), 4);
    }
  }

  ArrayProblem* problem() { return &problem_; }

  std::string Describe() const {
    std::string text;
    for (const Parameters& p : problem_.parameters()) {
      text += "parameters " + std::to_string(p.num_blocks) + " x " +
              std::to_string(p.size) + (p.is_constant != nullptr ? " c" : "") +
              (p.manifold != nullptr ? " m" : "") +
              (p.manifolds != nullptr ? " ms" : "") + "\n";
    }
    for (const Residuals& r : problem_.residuals()) {
      text += "residuals " + std::to_string(r.num_blocks) + " of";
      for (const Index& index : r.blocks) {
        text += " " + std::to_string(index.parameters);
      }
      text += r.loss == &own_     ? " own loss"
              : r.loss == &huber_ ? " huber"
              : r.loss != nullptr ? " cauchy"
                                  : "";
      text += r.weights != nullptr ? " weights" : "";
      text += r.cost_functions != nullptr ? " objects"
              : r.constants_are_of_model  ? " model"
                                          : " made";
      text += "\n";
    }
    return text;
  }

  std::vector<std::vector<double>> Values() const {
    std::vector<std::vector<double>> values;
    for (const auto& array : values_) {
      values.push_back(*array);
    }
    return values;
  }
  void SetValues(const std::vector<std::vector<double>>& values) {
    for (size_t i = 0; i < values.size(); ++i) {
      std::copy(values[i].begin(), values[i].end(), values_[i]->begin());
    }
  }

 private:
  template <typename T>
  T* Keep(std::vector<T> values,
          std::vector<std::unique_ptr<std::vector<T>>>* to) {
    to->push_back(std::make_unique<std::vector<T>>(std::move(values)));
    return to->back()->data();
  }

  int AddParameters(const std::vector<double>& values, int size) {
    Parameters p;
    p.values = Keep(values, &values_);
    p.num_blocks = static_cast<int64_t>(values.size()) / size;
    p.size = size;
    const auto n = static_cast<size_t>(p.num_blocks);
    if (random_.Chance(0.3)) {
      std::vector<uint8_t> is_constant(n, 0);
      const double share = random_.OneOf({0.1, 0.5, 1.0});
      for (uint8_t& one : is_constant) {
        one = random_.Chance(share) ? 1 : 0;
      }
      p.is_constant = Keep(is_constant, &bytes_);
    }
    if (size == 4) {
      p.manifold = &quaternion_;
    } else if (random_.Chance(0.15)) {
      p.manifold = Manifold(size);
    }
    if (random_.Chance(0.1)) {
      std::vector<ceres::Manifold*> manifolds(n, p.manifold);
      for (auto*& one : manifolds) {
        one = random_.Chance(0.3) ? Manifold(size) : one;
      }
      p.manifolds = Keep(manifolds, &manifold_arrays_);
    }
    return problem_.AddParameters(p);
  }
  ceres::Manifold* Manifold(int size) {
    std::unique_ptr<ceres::Manifold> manifold;
    switch (random_.Below(4)) {
      case 0:
        manifold = std::make_unique<OwnManifold>(size);
        break;
      case 1: {  // Nothing varies.
        std::vector<int> all;
        for (int i = 0; i < size; ++i) {
          all.push_back(i);
        }
        manifold = std::make_unique<ceres::SubsetManifold>(size, all);
        break;
      }
      default:
        manifold = std::make_unique<ceres::SubsetManifold>(
            size, std::vector<int>{random_.Below(size)});
    }
    manifolds_.push_back(std::move(manifold));
    return manifolds_.back().get();
  }

  // Loss and weights, and adds it.
  void Add(Residuals residuals) {
    switch (random_.Below(6)) {
      case 0:
        residuals.loss = &huber_;
        break;
      case 1:
        residuals.loss = &cauchy_;
        break;
      case 2:
        residuals.loss = random_.Chance(0.3) ? &own_ : nullptr;
        break;
      default:
        break;
    }
    if (random_.Chance(0.4)) {
      std::vector<double> weights;
      const int kinds = random_.OneOf({1, 3, 100000});
      for (int64_t k = 0; k < residuals.num_blocks; ++k) {
        weights.push_back(0.01 * random_.Below(kinds) + 0.5);
      }
      residuals.weights = Keep(weights, &values_of_rows_);
    }
    problem_.AddResiduals(residuals);
  }
  // As the template of ArrayProblem does, by its means.
  template <typename CostFunction>
  void Add(int64_t n, const double* constants, std::vector<Index> blocks) {
    ArrayProblem other;
    other.AddResiduals<CostFunction>(n, constants, std::move(blocks));
    AddInParts(other.residuals()[0]);
  }
  // In one array or two.
  void AddInParts(const Residuals& all) {
    const bool has_index =
        std::all_of(all.blocks.begin(), all.blocks.end(), [](const Index& i) {
          return i.block != nullptr;
        });
    if (all.num_blocks < 2 || !has_index || random_.Chance(0.6)) {
      Add(all);
      return;
    }
    Residuals first = all;
    Residuals second = all;
    first.num_blocks = all.num_blocks / 3;
    second.num_blocks -= first.num_blocks;
    for (Index& index : second.blocks) {
      index.block += first.num_blocks;
    }
    if (all.cost_functions != nullptr) {
      second.cost_functions += first.num_blocks;
    } else {
      second.constants = static_cast<const char*>(all.constants) +
                         first.num_blocks * all.constants_bytes;
    }
    Add(first);
    Add(second);
  }

  // Columns begin .. begin + size - 1 of the cameras, as an array.
  static std::vector<double> Columns(const BalTestProblem& bal,
                                     int begin,
                                     int size) {
    std::vector<double> values;
    for (int i = 0; i < bal.num_cameras(); ++i) {
      const double* const camera = bal.cameras.data() + bal.camera_size * i;
      values.insert(values.end(), camera + begin, camera + begin + size);
    }
    return values;
  }
  std::vector<int32_t> Zeros(size_t n) const { return std::vector<int32_t>(n); }

  // Intrinsics: of each camera, or of all.
  Index Intrinsics(const BalTestProblem& bal) {
    const int begin = bal.camera_size - 3;
    if (random_.Chance(0.5)) {
      return {AddParameters(Columns(bal, begin, 3), 3), bal.camera_id.data()};
    }
    std::vector<double> first = Columns(bal, begin, 3);
    first.resize(3);
    return {AddParameters(first, 3),
            Keep(Zeros(bal.camera_id.size()), &indices_)};
  }

  void AddKind() {
    const BalTestProblem& nine = nine_;
    const BalTestProblem& ten = ten_;
    const auto n9 = static_cast<int64_t>(nine.camera_id.size());
    const auto n10 = static_cast<int64_t>(ten.camera_id.size());
    const Index point9 = {points_, nine.point_id.data()};
    const Index point10 = {points_, ten.point_id.data()};
    const int kind = random_.Below(9);
    switch (kind) {
      case 0:
      case 1: {
        const int cameras = AddParameters(nine.cameras, 9);
        const Index camera = {cameras, nine.camera_id.data()};
        Add<BalReprojectionError>(
            n9, nine.observations.data(), {camera, point9});
        if (kind == 1) {
          // Beside observations of the same blocks.
          AddDepths(camera, point9);
        }
        if (random_.Chance(0.4)) {
          AddPriors<9>(cameras);
        }
        return;
      }
      case 2:
        Add<BalQuaternionReprojectionError>(
            n10,
            ten.observations.data(),
            {{AddParameters(ten.cameras, 10), ten.camera_id.data()}, point10});
        return;
      case 3:
      case 4: {
        const int poses = AddParameters(Columns(nine, 0, 6), 6);
        const Index pose = {poses, nine.camera_id.data()};
        Add<Cost<SplitReprojection, 2, 6, 3, 3>>(
            n9, nine.observations.data(), {pose, Intrinsics(nine), point9});
        if (kind == 4) {
          AddBetween(poses);
          AddPriors<6>(poses);
        }
        return;
      }
      case 5: {  // Ceres's cost functions, made of constants.
        Residuals residuals;
        residuals.num_blocks = n10;
        residuals.blocks = SplitBlocks();
        residuals.constants = ten.observations.data();
        residuals.constants_bytes = 16;
        residuals.make_cost_function = &MakeOfCeres;
        AddInParts(residuals);
        return;
      }
      case 6: {  // Those of a model, made of other constants.
        std::vector<double> negated = nine.observations;
        for (double& value : negated) {
          value = -value;
        }
        Residuals residuals;
        residuals.num_blocks = n9;
        residuals.blocks = {
            {AddParameters(Columns(nine, 0, 6), 6), nine.camera_id.data()},
            Intrinsics(nine),
            point9};
        residuals.constants = Keep(negated, &values_of_rows_);
        residuals.constants_bytes = 16;
        residuals.make_cost_function = &MakeOfNegated;
        AddInParts(residuals);
        return;
      }
      case 7: {  // Objects: Ceres's and this library's by turns.
        std::vector<ceres::CostFunction*> cost_functions;
        for (int64_t k = 0; k < n9; ++k) {
          const double* const xy = &nine.observations[2 * k];
          if (k % 3 != 0) {
            owned_.emplace_back(
                new ceres::
                    AutoDiffCostFunction<AutodiffReprojection<3>, 2, 9, 3>(
                        new AutodiffReprojection<3>{xy[0], xy[1]}));
          } else {
            owned_.emplace_back(CreateBalReprojectionError(xy[0], xy[1]));
          }
          cost_functions.push_back(owned_.back().get());
        }
        Residuals residuals;
        residuals.num_blocks = n9;
        residuals.blocks = {
            {AddParameters(nine.cameras, 9), nine.camera_id.data()}, point9};
        residuals.cost_functions = Keep(cost_functions, &function_arrays_);
        AddInParts(residuals);
        return;
      }
      default:
        Add<Cost<SplitReprojection, 2, 4, 3, 3, 3>>(
            n10, ten.observations.data(), SplitBlocks());
        AddPriors<3>(points_);
    }
  }

  std::vector<Index> SplitBlocks() {
    return {{AddParameters(Columns(ten_, 0, 4), 4), ten_.camera_id.data()},
            {AddParameters(Columns(ten_, 4, 3), 3), ten_.camera_id.data()},
            Intrinsics(ten_),
            {points_, ten_.point_id.data()}};
  }
  void AddDepths(const Index& camera, const Index& point) {
    std::vector<double> depths(1 + random_.Below(5), -4.0);
    Add<Cost<Depth, 1, 9, 3>>(static_cast<int64_t>(depths.size()),
                              Keep(depths, &values_of_rows_),
                              {camera, point});
  }
  // One for each block, without an index.
  template <int N>
  void AddPriors(int parameters) {
    const Parameters& p = problem_.parameters()[parameters];
    std::vector<double> constants;
    for (int64_t i = 0; i < p.num_blocks; ++i) {
      constants.push_back(2.0);
      constants.insert(
          constants.end(), p.values + N * i, p.values + N * (i + 1));
      constants.back() += 0.01;
    }
    Add<Cost<Prior<N>, N, N>>(p.num_blocks,
                              Keep(constants, &values_of_rows_),
                              {{parameters, nullptr}});
  }
  void AddBetween(int poses) {
    const Parameters& p = problem_.parameters()[poses];
    std::vector<int32_t> from;
    std::vector<int32_t> to;
    std::vector<double> constants;
    for (int32_t i = 1; i < p.num_blocks; ++i) {
      from.push_back(i - 1);
      to.push_back(i);
      for (int j = 0; j < 6; ++j) {
        constants.push_back(p.values[6 * i + j] - p.values[6 * i - 6 + j]);
      }
    }
    Add<Cost<Between, 6, 6, 6>>(
        static_cast<int64_t>(from.size()),
        Keep(constants, &values_of_rows_),
        {{poses, Keep(from, &indices_)}, {poses, Keep(to, &indices_)}});
  }

  Random& random_;
  const BalTestProblem nine_;
  const BalTestProblem ten_;
  int points_ = 0;
  ArrayProblem problem_;
  ceres::HuberLoss huber_{1.0};
  ceres::CauchyLoss cauchy_{0.5};
  OwnLoss own_;
  ceres::QuaternionManifold quaternion_;
  std::vector<std::unique_ptr<ceres::Manifold>> manifolds_;
  std::vector<std::unique_ptr<ceres::CostFunction>> owned_;
  std::vector<std::unique_ptr<std::vector<double>>> values_;
  std::vector<std::unique_ptr<std::vector<double>>> values_of_rows_;
  std::vector<std::unique_ptr<std::vector<uint8_t>>> bytes_;
  std::vector<std::unique_ptr<std::vector<int32_t>>> indices_;
  std::vector<std::unique_ptr<std::vector<ceres::Manifold*>>> manifold_arrays_;
  std::vector<std::unique_ptr<std::vector<ceres::CostFunction*>>>
      function_arrays_;
};

void ExpectSameSummary(const Summary& summary, const Summary& expected) {
  EXPECT_EQ(summary.termination_type, expected.termination_type);
  EXPECT_EQ(summary.message, expected.message);
  EXPECT_EQ(summary.initial_cost, expected.initial_cost);
  EXPECT_EQ(summary.final_cost, expected.final_cost);
  EXPECT_EQ(summary.fixed_cost, expected.fixed_cost);
  // A weight alone is not a loss that the host would have to call, as
  // ceres::ScaledLoss is beside a user-defined one.
  EXPECT_LE(summary.num_host_losses, expected.num_host_losses);
  EXPECT_EQ(summary.num_host_manifolds, expected.num_host_manifolds);
  ASSERT_EQ(summary.iterations.size(), expected.iterations.size());
  for (size_t i = 0; i < expected.iterations.size(); ++i) {
    const ceres::IterationSummary& a = summary.iterations[i];
    const ceres::IterationSummary& b = expected.iterations[i];
    EXPECT_EQ(a.cost, b.cost);
    EXPECT_EQ(a.gradient_norm, b.gradient_norm);
    EXPECT_EQ(a.step_norm, b.step_norm);
    EXPECT_EQ(a.trust_region_radius, b.trust_region_radius);
    EXPECT_EQ(a.linear_solver_iterations, b.linear_solver_iterations);
  }
  using Stock = ceres::Solver::Summary;
  for (const auto member : {&Stock::num_parameter_blocks,
                            &Stock::num_parameters,
                            &Stock::num_effective_parameters,
                            &Stock::num_residual_blocks,
                            &Stock::num_residuals,
                            &Stock::num_parameter_blocks_reduced,
                            &Stock::num_parameters_reduced,
                            &Stock::num_effective_parameters_reduced,
                            &Stock::num_residual_blocks_reduced,
                            &Stock::num_residuals_reduced}) {
    EXPECT_EQ(summary.*member, expected.*member);
  }
  EXPECT_EQ(summary.linear_solver_ordering_used,
            expected.linear_solver_ordering_used);
  EXPECT_EQ(summary.schur_structure_used, expected.schur_structure_used);
}

// Those that this library leaves to stock Ceres are few.
TEST(ArrayKinds, SameBitsAsAProblem) {
  int num_cases = 0;
  int num_problems = 0;
  ForEachCase(kNumCases, [&](Random* random) {
    RandomArrays arrays(random);
    ceres::Solver::Options options;
    options.linear_solver_type =
        random->Chance(0.8) ? ceres::ITERATIVE_SCHUR : ceres::CGNR;
    options.preconditioner_type =
        options.linear_solver_type == ceres::CGNR ? ceres::JACOBI
        : random->Chance(0.5)                     ? ceres::SCHUR_JACOBI
                              : ceres::SCHUR_POWER_SERIES_EXPANSION;
    options.max_num_iterations = 4;
    options.logging_type = ceres::SILENT;
    options.num_threads = 1 + random->Below(3);
    Options ext_options;
    ext_options.device =
        HasDevice() && random->Chance(0.8) ? DEVICE_CUDA : DEVICE_HOST;
    ext_options.batch_evaluation = random->Chance(0.85);
    SCOPED_TRACE(arrays.Describe());
    const auto start = arrays.Values();

    ProblemOfArrays of_arrays(*arrays.problem());
    Summary expected;
    Solve(options, ext_options, of_arrays.problem(), &expected);
    const auto expected_values = arrays.Values();

    arrays.SetValues(start);
    Summary summary;
    Solve(options, ext_options, arrays.problem(), &summary);
    SCOPED_TRACE(summary.path_reason);
    EXPECT_EQ(summary.path, expected.path);
    EXPECT_EQ(summary.termination_type, expected.termination_type);
    // The sums of stock Ceres differ from run to run where it has threads.
    if (expected.path == PATH_FULL) {
      EXPECT_EQ(arrays.Values(), expected_values);
      ExpectSameSummary(summary, expected);
    }
    ++num_cases;
    if (summary.path_reason.find("a ceres::Problem was built") !=
        std::string::npos) {
      ++num_problems;
      // If this library does not take the ceres::Problem either.
      EXPECT_TRUE(expected.path != PATH_FULL ||
                  summary.path_reason.find("no parameter block varies") !=
                      std::string::npos)
          << summary.path_reason;
    } else {
      EXPECT_EQ(summary.path_reason, expected.path_reason);
    }
  });
  if (num_cases >= kNumCases) {
    EXPECT_LT(num_problems, num_cases / 5);
  }
}

// A residual is the difference of coordinates of some 1e3 pixels, each after
// some hundred roundings: 1e-11 of pixels that differ by more than 0.01. So far
// may numbers that two ways of evaluating have found differ, by the largest.
void ExpectClose(const std::vector<double>& a, const std::vector<double>& b) {
  ASSERT_EQ(a.size(), b.size());
  double largest = 0.0;
  for (const double value : b) {
    largest = std::max(largest, std::abs(value));
  }
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_NEAR(a[i], b[i], 1e-9 * largest) << i;
  }
}

TEST(ArrayKinds, EvaluatesAsCeresDoes) {
  ForEachCase(kNumCases, [&](Random* random) {
    RandomArrays arrays(random);
    EvaluateOptions options;
    options.apply_loss_function = random->Chance(0.7);
    options.num_threads = 1 + random->Below(3);
    Options ext_options;
    ext_options.device =
        HasDevice() && random->Chance(0.8) ? DEVICE_CUDA : DEVICE_HOST;
    ext_options.batch_evaluation = random->Chance(0.85);
    ext_options.enabled = random->Chance(0.9);
    SCOPED_TRACE(arrays.Describe());
    const auto start = arrays.Values();

    ProblemOfArrays of_arrays(*arrays.problem());
    ceres::Problem::EvaluateOptions of_ceres;
    of_ceres.apply_loss_function = options.apply_loss_function;
    double expected_cost = 0.0;
    std::vector<double> expected_residuals;
    std::vector<double> expected_gradient;
    // With derivatives, autodiff computes residuals in another way.
    ASSERT_TRUE(of_arrays.problem()->Evaluate(
        of_ceres, &expected_cost, &expected_residuals, nullptr, nullptr));
    ASSERT_TRUE(of_arrays.problem()->Evaluate(
        of_ceres, nullptr, nullptr, &expected_gradient, nullptr));

    ArraySolver solver;
    double first_cost = 0.0;
    for (const bool all : {true, false}) {
      double cost = 0.0;
      std::vector<double> residuals;
      std::vector<double> gradient;
      std::string error;
      ASSERT_TRUE(solver.Evaluate(options,
                                  ext_options,
                                  *arrays.problem(),
                                  &cost,
                                  all ? &residuals : nullptr,
                                  all ? &gradient : nullptr,
                                  &error))
          << error;
      EXPECT_EQ(arrays.Values(), start);
      EXPECT_NEAR(cost, expected_cost, 1e-9 * expected_cost);
      if (all) {
        first_cost = cost;
        // These are the same functions.
        EXPECT_EQ(residuals, expected_residuals);
        ExpectClose(gradient, expected_gradient);
      }
    }
    if (!options.apply_loss_function || !ext_options.enabled) {
      return;
    }
    ceres::Solver::Options solver_options;
    solver_options.linear_solver_type = ceres::CGNR;
    solver_options.preconditioner_type = ceres::IDENTITY;
    solver_options.max_num_iterations = 0;
    solver_options.num_threads = options.num_threads;
    solver_options.logging_type = ceres::SILENT;
    Summary summary;
    Solve(solver_options, ext_options, arrays.problem(), &summary);
    if (summary.path == PATH_FULL) {
      EXPECT_EQ(summary.initial_cost, first_cost);
    }
  });
}

// Collects what is logged.
class Log final : public google::LogSink {
 public:
  Log() {
    FLAGS_minloglevel = google::GLOG_INFO;
    google::AddLogSink(this);
  }
  ~Log() override {
    google::RemoveLogSink(this);
    FLAGS_minloglevel = google::GLOG_FATAL;
  }
  void send(google::LogSeverity /*severity*/,
            const char* /*full_filename*/,
            const char* /*base_filename*/,
            int /*line*/,
            const struct ::tm* /*time*/,
            const char* message,
            size_t length) override {
    lines.emplace_back(message, length);
  }
  std::vector<std::string> lines;
};

TEST(Evaluate, SaysWhatIsWrong) {
  const Log log;
  BalTestProblem bal = MakeBalTestProblem(3, 20, 2, 9, 1);
  ArrayProblem problem;
  const int cameras = problem.AddParameters(
      {bal.cameras.data(), static_cast<int64_t>(bal.num_cameras()), 9});
  const int points = problem.AddParameters(
      {bal.points.data(), static_cast<int64_t>(bal.num_points()), 3});
  problem.AddResiduals<BalReprojectionError>(
      static_cast<int64_t>(bal.camera_id.size()),
      bal.observations.data(),
      {{cameras, bal.camera_id.data()}, {points, bal.point_id.data()}});
  Options ext_options;
  ext_options.device = DEVICE_HOST;
  const auto error_of = [&](const EvaluateOptions& options) {
    double cost = 0.0;
    std::vector<double> residuals;
    std::string error;
    EXPECT_FALSE(Evaluate(options,
                          ext_options,
                          problem,
                          &cost,
                          &residuals,
                          /*gradient=*/nullptr,
                          &error));
    double only_cost = 0.0;
    std::string of_cost;
    EXPECT_FALSE(Evaluate(options,
                          ext_options,
                          problem,
                          &only_cost,
                          /*residuals=*/nullptr,
                          /*gradient=*/nullptr,
                          &of_cost));
    EXPECT_FALSE(of_cost.empty());
    return error;
  };
  EvaluateOptions options;
  options.num_threads = 0;
  EXPECT_EQ(error_of(options),
            "EvaluateOptions::num_threads is 0; expected 1 or more");
  options.num_threads = 2;
  // R X + t = 0.
  const int32_t camera = bal.camera_id[7];
  const int32_t point = bal.point_id[7];
  std::fill_n(&bal.cameras[9 * camera], 6, 0.0);
  std::fill_n(&bal.points[3 * point], 3, 0.0);
  EXPECT_EQ(error_of(options).find("residuals[0]: residual block "), 0u);
  bal.points[3 * point] = std::nan("");
  EXPECT_NE(error_of(options).find("nan"), std::string::npos);
  ext_options.cuda_device = -1;
  EXPECT_EQ(error_of(options).find("ceres_ext::Options is not valid"), 0u);
  EXPECT_THAT(log.lines, ::testing::IsEmpty());
}

// A returned error is not logged.
TEST(Evaluate, LogsNothing) {
  BalTestProblem bal = MakeBalTestProblem(3, 20, 2, 9, 1);
  ArrayProblem problem;
  const int cameras = problem.AddParameters(
      {bal.cameras.data(), static_cast<int64_t>(bal.num_cameras()), 9});
  const int points = problem.AddParameters(
      {bal.points.data(), static_cast<int64_t>(bal.num_points()), 3});
  problem.AddResiduals<BalReprojectionError>(
      static_cast<int64_t>(bal.camera_id.size()),
      bal.observations.data(),
      {{cameras, bal.camera_id.data()}, {points, bal.point_id.data()}});
  Options ext_options;
  ext_options.device = HasDevice() ? DEVICE_CUDA : DEVICE_HOST;
  const auto evaluate = [&](bool want_gradient, std::string* error) {
    double cost = 0.0;
    std::vector<double> gradient;
    return Evaluate(EvaluateOptions(),
                    ext_options,
                    problem,
                    &cost,
                    /*residuals=*/nullptr,
                    want_gradient ? &gradient : nullptr,
                    error);
  };
  const Log log;
  std::string error;
  for (const bool want_gradient : {false, true}) {
    EXPECT_TRUE(evaluate(want_gradient, &error)) << error;
  }
  // R X + t = 0.
  std::fill_n(&bal.cameras[9 * bal.camera_id[7]], 6, 0.0);
  std::fill_n(&bal.points[3 * bal.point_id[7]], 3, 0.0);
  for (const bool want_gradient : {false, true}) {
    EXPECT_FALSE(evaluate(want_gradient, &error));
    EXPECT_NE(error.find("finite"), std::string::npos) << error;
  }
  bal.points[0] = std::nan("");
  Summary summary;
  Solve(ceres::Solver::Options(), ext_options, &problem, &summary);
  EXPECT_EQ(summary.termination_type, ceres::FAILURE);
  EXPECT_NE(summary.message.find("nan"), std::string::npos) << summary.message;
  EXPECT_THAT(log.lines, ::testing::IsEmpty());
}

}  // namespace
}  // namespace ceres_ext
