// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Whatever the options, the settings of the environment and the arrays: a solve
// ends, with FAILURE and one sentence where they can't be used, the parameters
// as they were. How to run more cases: random_cases.h.

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "ceres/autodiff_cost_function.h"
#include "ceres/ceres.h"
#include "ceres/manifold.h"
#include "ceres_ext/array_problem.h"
#include "ceres_ext/bal_cost_functions.h"
#include "ceres_ext/base/ceres_version.h"
#include "ceres_ext/front/option_table.h"
#include "ceres_ext/options.h"
#include "ceres_ext/solve.h"
#include "cuda_kernels/base/enum_value.h"
#include "gtest/gtest.h"
#include "tests/common/bal_test_problem.h"
#include "tests/common/functors.h"
#include "tests/common/random_cases.h"

namespace ceres_ext {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr int kIntMax = std::numeric_limits<int>::max();
constexpr int64_t kInt64Max = std::numeric_limits<int64_t>::max();
// A million solves would log as many errors.
const bool kIsQuiet = [] {
  SetQuiet(true);
  return true;
}();

// One sentence: a line of printable characters.
void ExpectSentence(const std::string& text) {
  EXPECT_GT(text.size(), 8u) << text;
  EXPECT_TRUE(std::all_of(text.begin(), text.end(), [](char c) {
    return c >= ' ' && c <= '~';
  })) << text;
}

// Ends a solve that would not end.
class Enough : public ceres::IterationCallback {
 public:
  ceres::CallbackReturnType operator()(
      const ceres::IterationSummary& summary) final {
    return summary.iteration < 15 ? ceres::SOLVER_CONTINUE
                                  : ceres::SOLVER_TERMINATE_SUCCESSFULLY;
  }
};

// Gives a field, with some probability, an unusual value.
class Spoiler {
 public:
  Spoiler(double probability, Random* random)
      : probability_(probability), random_(random) {}

  void operator()(bool* value) {
    if (random_->Chance(2.0 * probability_)) {
      *value = random_->Chance(0.5);
    }
  }
  void operator()(int* value) {
    if (random_->Chance(probability_)) {
      *value = random_->OneOf(
          {-kIntMax - 1, -1, 0, 1, 2, 3, 7, 100, 1 << 20, kIntMax});
    }
  }
  void operator()(int64_t* value) {
    if (random_->Chance(probability_)) {
      *value = random_->OneOf<int64_t>(
          {-kInt64Max - 1, -1, 0, 1, 4096, int64_t{1} << 31, kInt64Max});
    }
  }
  void operator()(double* value) {
    if (random_->Chance(probability_)) {
      *value = random_->OneOf({kNan,
                               kInfinity,
                               -kInfinity,
                               -1.0,
                               -0.0,
                               0.0,
                               5e-324,
                               1e-300,
                               1e-16,
                               1e-3,
                               0.5,
                               1.0,
                               2.0,
                               1e16,
                               1e300,
                               std::numeric_limits<double>::max()});
    }
  }
  // A value of an enum whose values are those below num_values.
  template <typename Enum>
  void operator()(Enum* value, int num_values) {
    if (random_->Chance(probability_)) {
      *value = static_cast<Enum>(
          random_->Chance(0.8)
              ? random_->Below(num_values)
              : random_->OneOf({-1, num_values, 77, kIntMax, -kIntMax - 1}));
    }
  }

 private:
  const double probability_;
  Random* random_;
};

void Spoil(Spoiler spoil, ceres::Solver::Options* options) {
  spoil(&options->minimizer_type, 2);
  spoil(&options->line_search_direction_type, 4);
  spoil(&options->line_search_type, 2);
  spoil(&options->nonlinear_conjugate_gradient_type, 3);
  spoil(&options->max_lbfgs_rank);
  spoil(&options->use_approximate_eigenvalue_bfgs_scaling);
  spoil(&options->line_search_interpolation_type, 3);
  spoil(&options->min_line_search_step_size);
  spoil(&options->line_search_sufficient_function_decrease);
  spoil(&options->max_line_search_step_contraction);
  spoil(&options->min_line_search_step_contraction);
  spoil(&options->max_num_line_search_step_size_iterations);
  spoil(&options->max_num_line_search_direction_restarts);
  spoil(&options->line_search_sufficient_curvature_decrease);
  spoil(&options->max_line_search_step_expansion);
  spoil(&options->trust_region_strategy_type, 2);
  spoil(&options->dogleg_type, 2);
  spoil(&options->use_nonmonotonic_steps);
  spoil(&options->max_consecutive_nonmonotonic_steps);
  spoil(&options->max_num_iterations);
  spoil(&options->max_solver_time_in_seconds);
  spoil(&options->num_threads);
  spoil(&options->initial_trust_region_radius);
  spoil(&options->max_trust_region_radius);
  spoil(&options->min_trust_region_radius);
  spoil(&options->min_relative_decrease);
  spoil(&options->min_lm_diagonal);
  spoil(&options->max_lm_diagonal);
  spoil(&options->max_num_consecutive_invalid_steps);
  spoil(&options->function_tolerance);
  spoil(&options->gradient_tolerance);
  spoil(&options->parameter_tolerance);
  spoil(&options->linear_solver_type, 7);
  spoil(&options->preconditioner_type, 7);
  spoil(&options->visibility_clustering_type, 2);
  spoil(&options->dense_linear_algebra_library_type, 3);
  spoil(&options->sparse_linear_algebra_library_type, 5);
  spoil(&options->linear_solver_ordering_type, 2);
  spoil(&options->use_explicit_schur_complement);
  spoil(&options->dynamic_sparsity);
  spoil(&options->use_mixed_precision_solves);
  spoil(&options->max_num_refinement_iterations);
  spoil(&options->min_linear_solver_iterations);
  spoil(&options->max_linear_solver_iterations);
  spoil(&options->max_num_spse_iterations);
  spoil(&options->use_spse_initialization);
  spoil(&options->spse_tolerance);
  spoil(&options->eta);
  spoil(&options->jacobi_scaling);
  spoil(&options->use_inner_iterations);
  spoil(&options->inner_iteration_tolerance);
  spoil(&options->logging_type, 2);
  spoil(&options->trust_region_problem_dump_format_type, 2);
  spoil(&options->check_gradients);
  spoil(&options->gradient_check_relative_precision);
  spoil(&options->gradient_check_numeric_derivative_relative_step_size);
  spoil(&options->update_state_every_iteration);
}

// All but texts, of which any is a report's path.
void Spoil(Spoiler spoil, Options* options) {
  for (const OptionRow& row : OptionTable()) {
    std::visit(
        [&](const auto& field) {
          using Field = std::decay_t<decltype(field)>;
          if constexpr (std::is_same_v<Field, EnumField>) {
            int value = field.get(*options);
            spoil(&value, static_cast<int>(field.names.size()));
            field.set(value, options);
          } else if constexpr (!std::is_same_v<Field, std::string Options::*>) {
            spoil(&(options->*field));
          }
        },
        row.field);
  }
}

// A random ordering, often one that misses blocks or has others.
std::shared_ptr<ceres::ParameterBlockOrdering> RandomOrdering(
    BalTestProblem* bal, Random* random) {
  static double other = 0.0;
  auto ordering = std::make_shared<ceres::ParameterBlockOrdering>();
  const double probability = random->OneOf({0.0, 0.5, 1.0, 1.0, 1.0});
  const int num_groups = 1 + random->Below(3);
  const bool is_by_kind = random->Chance(0.5);
  const auto add = [&](double* block, int group) {
    if (random->Chance(probability)) {
      ordering->AddElementToGroup(
          block, is_by_kind ? group : random->Below(num_groups) - 1);
    }
  };
  for (int i = 0; i < bal->num_cameras(); ++i) {
    add(bal->camera(i), 1);
  }
  for (int i = 0; i < bal->num_points(); ++i) {
    add(bal->point(i), 0);
  }
  if (random->Chance(0.1)) {
    ordering->AddElementToGroup(&other, 0);
  }
  return ordering;
}

TEST(RandomOptions, EndInASentence) {
  ForEachCase(400, [](Random* random) {
    BalTestProblem bal = MakeBalTestProblem(3, 8, 3, 9);
    const BalTestProblem start = bal;
    auto problem = BuildProblem(
        &bal,
        random->Chance(0.5) ? Derivatives::kAnalytic : Derivatives::kAutodiff);
    if (random->Chance(0.1)) {
      problem->SetParameterLowerBound(bal.point(0), 1, -3.0);
    }
    ceres::Solver::Options options;
    options.max_num_iterations = 8;
    options.num_threads = 1 + random->Below(3);
    options.linear_solver_type =
        static_cast<ceres::LinearSolverType>(random->Below(7));
    options.logging_type = ceres::SILENT;
    const Spoiler spoil(random->OneOf({0.0, 0.01, 0.02, 0.05, 0.2}), random);
    Spoil(spoil, &options);
    // A request for 2^31 - 1 of them is granted.
    for (int* number : {&options.max_num_refinement_iterations,
                        &options.max_linear_solver_iterations,
                        &options.max_num_spse_iterations,
                        &options.max_num_line_search_step_size_iterations,
                        &options.max_num_line_search_direction_restarts}) {
      *number = std::min(*number, 1000);
    }
    if (random->Chance(0.2)) {
      options.linear_solver_ordering = RandomOrdering(&bal, random);
    }
    if (random->Chance(0.1)) {
      options.inner_iteration_ordering = RandomOrdering(&bal, random);
    }
    Enough enough;
    options.callbacks.push_back(&enough);
    if (random->Chance(0.01)) {
      options.callbacks.push_back(nullptr);
    }
    Options ext_options;
    Spoil(spoil, &ext_options);

    Summary summary;
    Solve(options, ext_options, problem.get(), &summary);
    EXPECT_FALSE(summary.message.empty());
    EXPECT_FALSE(summary.path_reason.empty());
    std::string error;
    if (!ext_options.IsValid(&error)) {
      ExpectSentence(summary.message);
      EXPECT_EQ(summary.termination_type, ceres::FAILURE);
      EXPECT_NE(summary.message.find(error), std::string::npos);
    }
    if (!summary.IsSolutionUsable()) {
      EXPECT_EQ(bal.cameras, start.cameras) << summary.message;
      EXPECT_EQ(bal.points, start.points) << summary.message;
    }
    EXPECT_TRUE(IsFinite(bal.cameras) && IsFinite(bal.points));
    // The problem is as good as before.
    double cost = 0.0;
    EXPECT_TRUE(problem->Evaluate({}, &cost, nullptr, nullptr, nullptr));
  });
}

// Every linear solver with every preconditioner and library, some of which end
// the process in Ceres: by this library's Solve, on the host and on a device
// where there is one, and by a program that knows nothing of it.
TEST(AllSolvers, SolveOrEndInASentence) {
  const std::string library = CERES_EXT_TEST_LIBRARY;
  const char* const settings[] = {"device=host",
                                  "device=cuda",
                                  "enabled=false",
                                  "fallback=refuse",
                                  "linear_solver=cgnr",
                                  "linear_solver=iterative_schur,"
                                  "preconditioner=schur_jacobi"};
  int num_solved = 0;
  int num_refused = 0;
  for (int type = 0; type <= ceres::CGNR; ++type) {
    for (int preconditioner = 0; preconditioner <= ceres::SUBSET;
         ++preconditioner) {
      for (int sparse = 0; sparse <= ceres::NO_SPARSE; ++sparse) {
        for (const char* const setting : settings) {
          for (const bool from_environment : {false, true}) {
            // Here Ceres starts CUDA before it asks a plugin.
            if (from_environment &&
                (library.empty() ||
                 (type == ceres::CGNR && sparse == ceres::CUDA_SPARSE))) {
              continue;
            }
            for (const bool has_points : {true, false}) {
              BalTestProblem bal = MakeBalTestProblem(3, 8, 3, 9);
              const BalTestProblem start = bal;
              auto problem = BuildProblem(&bal, Derivatives::kAnalytic);
              ceres::Solver::Options options = TestOptions(&bal);
              // Without points that vary Ceres takes another linear solver.
              for (int i = 0; !has_points && i < bal.num_points(); ++i) {
                problem->SetParameterBlockConstant(bal.point(i));
              }
              options.max_num_iterations = 3;
              options.linear_solver_type =
                  static_cast<ceres::LinearSolverType>(type);
              options.preconditioner_type =
                  static_cast<ceres::PreconditionerType>(preconditioner);
              options.sparse_linear_algebra_library_type =
                  static_cast<ceres::SparseLinearAlgebraLibraryType>(sparse);
              SCOPED_TRACE(std::string(ceres::LinearSolverTypeToString(
                               options.linear_solver_type)) +
                           ", " +
                           ceres::PreconditionerTypeToString(
                               options.preconditioner_type) +
                           ", " +
                           ceres::SparseLinearAlgebraLibraryTypeToString(
                               options.sparse_linear_algebra_library_type) +
                           ", " + setting +
                           (from_environment ? ", environment" : "") +
                           (has_points ? "" : ", points are constant"));
              Summary summary;
              if (from_environment) {
                setenv("CERES_SOLVER_PLUGIN",
                       (library + ":" + setting).c_str(),
                       /*overwrite=*/1);
                ceres::Solve(options, problem.get(), &summary);
                unsetenv("CERES_SOLVER_PLUGIN");
              } else {
                Options ext_options;
                std::string error;
                ASSERT_TRUE(ParseOptions(setting, &ext_options, &error))
                    << error;
                Solve(options, ext_options, problem.get(), &summary);
              }
              if (summary.IsSolutionUsable()) {
                ++num_solved;
                EXPECT_LT(summary.final_cost, summary.initial_cost);
              } else {
                ++num_refused;
                ExpectSentence(summary.message);
                EXPECT_EQ(summary.termination_type, ceres::FAILURE);
                EXPECT_EQ(bal.cameras, start.cameras);
                EXPECT_EQ(bal.points, start.points);
              }
            }
          }
        }
      }
    }
  }
  EXPECT_GT(num_solved, 0);
  EXPECT_GT(num_refused, 0);
}

// Combinations with CUDA_SPARSE that Ceres does not support are reported, and
// those that this library supports are solved.
TEST(AllSolvers, CudaSparseIsRefusedByName) {
  for (const ceres::LinearSolverType type : {ceres::SPARSE_NORMAL_CHOLESKY,
                                             ceres::SPARSE_SCHUR,
                                             ceres::DENSE_SCHUR,
                                             ceres::ITERATIVE_SCHUR}) {
    for (const bool is_own : {false, true}) {
      BalTestProblem bal = MakeBalTestProblem(3, 8, 3, 9);
      auto problem = BuildProblem(&bal, Derivatives::kAnalytic);
      ceres::Solver::Options options = TestOptions(&bal);
      options.linear_solver_type = type;
      options.sparse_linear_algebra_library_type = ceres::CUDA_SPARSE;
      Options ext_options;
      ext_options.enabled = is_own;
      ext_options.device = DEVICE_HOST;
      Summary summary;
      Solve(options, ext_options, problem.get(), &summary);
#if defined(CERES_EXT_CERES_HAS_ABSEIL)
      // Without cuDSS, with which scripts/setup does not build it, the next
      // Ceres refuses the options before it asks any plugin.
      if (type == ceres::SPARSE_NORMAL_CHOLESKY ||
          type == ceres::SPARSE_SCHUR) {
        EXPECT_EQ(summary.termination_type, ceres::FAILURE);
        EXPECT_NE(summary.message.find("was not enabled"), std::string::npos)
            << summary.message;
        continue;
      }
#endif
      if (is_own) {
        EXPECT_EQ(summary.path, PATH_FULL) << summary.path_reason;
        EXPECT_TRUE(summary.IsSolutionUsable()) << summary.message;
        continue;
      }
      EXPECT_EQ(summary.termination_type, ceres::FAILURE);
      const std::string name = ceres::LinearSolverTypeToString(type);
      // A Ceres without CUDA says it in its own words.
      EXPECT_TRUE(summary.message ==
                      "Solver::Options::sparse_linear_algebra_library_"
                      "type = CUDA_SPARSE, with which Ceres has no " +
                          name + "; expected SUITE_SPARSE or EIGEN_SPARSE." ||
                  summary.message.find("was not enabled") != std::string::npos)
          << summary.message;
    }
  }
}

// Settings of some sense and with typing errors, or none at all.
std::string RandomSettings(Random* random) {
  std::vector<const char*> keys = {"cuda_stream", "Device"};
  for (const OptionRow& row : OptionTable()) {
    keys.push_back(row.name);
  }
  static const char* const kValues[] = {
      "true",      "false",   "auto",   "host",
      "cuda",      "stored",  "mixed",  "recomputed",
      "double",    "single",  "merged", "iterative_schur",
      "identity",  "jacobi",  "cgnr",   "schur_power_series_expansion",
      "0",         "1",       "-1",     "99999999999999999999",
      "0x10",      " 1",      "1e3",    "2147483648",
      "as_given",  "refuse",  "",       "/dev/null",
      "on",        "off",     "1e-7",   "eisenstat_walker",
      "two_level", "stderr ", "a/b/c",  "\n",
      "to_ceres"};
  std::string text;
  for (int i = random->Below(5); i > 0; --i) {
    text += keys[random->Below(static_cast<int>(keys.size()))];
    text += '=';
    text += kValues[random->Below(std::size(kValues))];
    if (i > 1) {
      text += ',';
    }
  }
  for (int i = random->Chance(0.5) ? 0 : random->Below(4); i > 0; --i) {
    const auto c = static_cast<char>(
        random->Chance(0.5) ? 1 + random->Below(255)
                            : random->OneOf({',', '=', ':', ' ', '/', '%'}));
    const size_t place = random->Below(static_cast<int>(text.size()) + 1);
    if (place < text.size() && random->Chance(0.5)) {
      random->Chance(0.5) ? text.erase(place, 1) : text.replace(place, 1, 1, c);
    } else {
      text.insert(place, 1, c);
    }
  }
  return text;
}

TEST(RandomSettings, AreParsedOrRefusedInALine) {
  ForEachCase(20000, [](Random* random) {
    const std::string settings = RandomSettings(random);
    Options options;
    options.device = DEVICE_HOST;
    options.cuda_device = 5;
    std::string error;
    if (ParseOptions(settings, &options, &error)) {
      EXPECT_TRUE(error.empty()) << error;
      EXPECT_TRUE(options.IsValid(nullptr)) << settings;
    } else {
      EXPECT_GT(error.size(), 8u) << settings;
      EXPECT_EQ(options.device, DEVICE_HOST);
      EXPECT_EQ(options.cuda_device, 5);
    }
  });
}

// A program that knows nothing of this library solves, whatever the variable.
TEST(RandomEnvironment, SolvesOrEndsInASentence) {
  namespace fs = std::filesystem;
  const fs::path before = fs::current_path();
  // For reports in files of any name.
  const fs::path folder = fs::path(::testing::TempDir()) /
                          ("random_environment_" + std::to_string(getpid()));
  fs::create_directories(folder);
  fs::current_path(folder);
  ForEachCase(300, [](Random* random) {
    std::string value = random->Chance(0.9) ? CERES_EXT_TEST_LIBRARY : "";
    if (random->Chance(0.1)) {
      value += random->OneOf({"", "x", "/", ".so:.so", "\x01", "%s%n"});
    }
    if (random->Chance(0.95)) {
      value += ':';
    }
    value += RandomSettings(random);
    ASSERT_EQ(setenv("CERES_SOLVER_PLUGIN", value.c_str(), 1), 0);
    BalTestProblem bal = MakeBalTestProblem(3, 8, 3, 9);
    const BalTestProblem start = bal;
    auto problem = BuildProblem(&bal, Derivatives::kAnalytic);
    ceres::Solver::Options options = TestOptions(&bal, 1 + random->Below(2));
    options.max_num_iterations = 3;
    if (random->Chance(0.5)) {
      options.linear_solver_type = ceres::DENSE_SCHUR;
    }
    ceres::Solver::Summary summary;
    ceres::Solve(options, problem.get(), &summary);
    unsetenv("CERES_SOLVER_PLUGIN");
    if (!summary.IsSolutionUsable()) {
      // It was asked to refuse.
      EXPECT_NE(value.find("refuse"), std::string::npos) << value;
      ExpectSentence(summary.message);
      EXPECT_EQ(bal.cameras, start.cameras);
      EXPECT_EQ(bal.points, start.points);
    } else {
      EXPECT_LT(summary.final_cost, summary.initial_cost) << value;
    }
  });
  fs::current_path(before);
  fs::remove_all(folder);
}

// Arrays of a small problem, with room behind them for more than they hold, and
// what was changed of them.
class RandomArrays {
 public:
  explicit RandomArrays(Random* random)
      : random_(random),
        bal_(MakeBalTestProblem(3, 8, 3, 9)),
        num_observations_(static_cast<int>(bal_.camera_id.size())) {
    cameras_ = WithRoom(bal_.cameras, 0.5);
    points_ = WithRoom(bal_.points, 0.5);
    observations_ = WithRoom(bal_.observations, 0.5);
    camera_id_ = WithRoom(bal_.camera_id, 0);
    point_id_ = WithRoom(bal_.point_id, 0);
    weights_.assign(kRoom, 1.0);
    is_constant_.assign(kRoom, 0);
    manifolds_.assign(kRoom, nullptr);
    cost_functions_.assign(kRoom, nullptr);
    for (int i = 0; i < num_observations_; ++i) {
      made_.emplace_back(CreateBalReprojectionError(
          bal_.observations[2 * i], bal_.observations[2 * i + 1]));
      cost_functions_[i] = made_.back().get();
    }
    near_ = {0, 1, 1, 2};
  }

  ArrayProblem Make() {
    ArrayProblem problem;
    ArrayProblem::Parameters cameras;
    cameras.values = cameras_.data();
    cameras.num_blocks = 3;
    cameras.size = 9;
    ArrayProblem::Parameters points;
    points.values = points_.data();
    points.num_blocks = 8;
    points.size = 3;
    ArrayProblem::Residuals observations;
    observations.num_blocks = num_observations_;
    observations.blocks = {{0, camera_id_.data()}, {1, point_id_.data()}};
    if (random_->Chance(0.5)) {
      // As AddResiduals<BalReprojectionError> says it.
      ArrayProblem of_type;
      of_type.AddResiduals<BalReprojectionError>(
          num_observations_, observations_.data(), observations.blocks);
      observations = of_type.residuals()[0];
    } else {
      observations.cost_functions = cost_functions_.data();
    }
    std::vector<ArrayProblem::Parameters*> parameters = {&cameras, &points};
    std::vector<ArrayProblem::Residuals*> residuals = {&observations};
    ArrayProblem::Residuals near;
    if (random_->Chance(0.3)) {
      near.num_blocks = 2;
      near.blocks = {{0, near_.data()}, {0, near_.data() + 2}};
      near.cost_functions = near_cost_functions_;
      residuals.push_back(&near);
    }
    for (int i = random_->Below(4); i > 0; --i) {
      if (random_->Chance(0.4)) {
        Spoil(parameters[random_->Below(2)]);
      } else {
        Spoil(residuals[random_->Below(static_cast<int>(residuals.size()))]);
      }
    }
    for (ArrayProblem::Parameters* p : parameters) {
      // A refused array has no place in memory; any other has to have one.
      const double num_values = static_cast<double>(p->num_blocks) * p->size;
      if (num_values > kRoom && num_values < 2147483648.0) {
        p->size = 3;
        p->num_blocks = 8;
      }
      problem.AddParameters(*p);
    }
    for (const ArrayProblem::Residuals* r : residuals) {
      problem.AddResiduals(*r);
    }
    return problem;
  }

  // The values that a solve may write, and all the rest.
  std::vector<double> Parameters() const {
    std::vector<double> values = cameras_;
    values.insert(values.end(), points_.begin(), points_.end());
    return values;
  }

 private:
  static constexpr int kRoom = 4096;

  template <typename T>
  static std::vector<T> WithRoom(std::vector<T> values, T value) {
    values.resize(kRoom, value);
    return values;
  }
  double OddNumber() {
    return random_->OneOf(
        {kNan, kInfinity, -kInfinity, -1.0, 0.0, 5e-324, 1e200, 1e308});
  }
  int64_t OddCount(int64_t count) {
    return random_->OneOf<int64_t>({-kInt64Max - 1,
                                    -1,
                                    0,
                                    1,
                                    count - 1,
                                    int64_t{1} << 31,
                                    (int64_t{1} << 62) + 1,
                                    kInt64Max});
  }

  void Spoil(ArrayProblem::Parameters* p) {
    switch (random_->Below(8)) {
      case 0:
        p->values = nullptr;
        break;
      case 1:
        p->num_blocks = OddCount(p->num_blocks);
        break;
      case 2:
        p->size = random_->OneOf({-kIntMax - 1, -1, 0, 1, 4, 10, kIntMax});
        break;
      case 3:
        p->manifold = random_->OneOf<ceres::Manifold*>(
            {&quaternion_, &subset_, &camera_subset_, nullptr});
        break;
      case 4:
        manifolds_[random_->Below(8)] = random_->OneOf<ceres::Manifold*>(
            {&quaternion_, &subset_, &camera_subset_});
        p->manifolds = manifolds_.data();
        break;
      case 5:
        is_constant_[random_->Below(8)] =
            static_cast<uint8_t>(random_->Below(256));
        if (random_->Chance(0.3)) {
          std::fill(is_constant_.begin(), is_constant_.end(), 1);
        }
        p->is_constant = is_constant_.data();
        break;
      case 6:
        if (p->values != nullptr) {
          p->values[random_->Below(24)] = OddNumber();
        }
        break;
      default:
        // In the midst of the other array, of the observations or the weights.
        p->values = random_->OneOf<double*>({cameras_.data() + 5,
                                             points_.data() + 3,
                                             observations_.data() + 2,
                                             weights_.data()});
        break;
    }
  }

  void Spoil(ArrayProblem::Residuals* r) {
    switch (random_->Below(11)) {
      case 0:
        r->num_blocks = OddCount(r->num_blocks);
        break;
      case 1:
        r->blocks.resize(random_->Below(4));
        break;
      case 2:
        if (!r->blocks.empty()) {
          r->blocks[0].parameters =
              random_->OneOf({-kIntMax - 1, -1, 0, 1, 2, kIntMax});
        }
        break;
      case 3:
        if (!r->blocks.empty()) {
          r->blocks.back().block = nullptr;
        }
        break;
      case 4: {
        std::vector<int32_t>& index = *random_->OneOf<std::vector<int32_t>*>(
            {&camera_id_, &point_id_, &near_});
        index[random_->Below(4)] =
            random_->OneOf({-kIntMax - 1, -1, 0, 1, 2, 3, 7, 8, kIntMax});
        break;
      }
      case 5:
        r->loss = random_->OneOf<ceres::LossFunction*>({&huber_, &tukey_});
        break;
      case 6:
        weights_[random_->Below(6)] = OddNumber();
        r->weights = weights_.data();
        break;
      case 7:
        r->constants = nullptr;
        break;
      case 8:
        r->constants_bytes = random_->OneOf<int64_t>(
            {-kInt64Max - 1, -1, 0, 16, int64_t{1} << 31, kInt64Max});
        break;
      case 9:
        r->make_cost_function = nullptr;
        r->cost_functions =
            random_->Chance(0.5) ? nullptr : cost_functions_.data();
        cost_functions_[random_->Below(6)] =
            random_->OneOf<ceres::CostFunction*>(
                {nullptr, near_cost_functions_[0]});
        break;
      default:
        observations_[random_->Below(8)] = OddNumber();
        break;
    }
  }

  Random* random_;
  BalTestProblem bal_;
  const int num_observations_;
  std::vector<double> cameras_, points_, observations_, weights_;
  std::vector<int32_t> camera_id_, point_id_, near_;
  std::vector<uint8_t> is_constant_;
  std::vector<ceres::Manifold*> manifolds_;
  std::vector<ceres::CostFunction*> cost_functions_;
  std::vector<std::unique_ptr<ceres::CostFunction>> made_;
  ceres::AutoDiffCostFunction<Near<4>, 4, 9, 9> near_cost_function_{
      new Near<4>{1.0}};
  ceres::CostFunction* near_cost_functions_[2] = {&near_cost_function_,
                                                  &near_cost_function_};
  ceres::QuaternionManifold quaternion_;
  ceres::SubsetManifold subset_{3, {1}};
  ceres::SubsetManifold camera_subset_{9, {0, 7, 8}};
  ceres::HuberLoss huber_{1.0};
  ceres::TukeyLoss tukey_{1.0};
};

TEST(RandomArrays, AreSolvedOrRefusedInASentence) {
  ForEachCase(1000, [](Random* random) {
    RandomArrays arrays(random);
    ArrayProblem problem = arrays.Make();
    const std::vector<double> start = arrays.Parameters();
    ceres::Solver::Options options;
    options.linear_solver_type = random->OneOf(
        {ceres::ITERATIVE_SCHUR, ceres::CGNR, ceres::DENSE_SCHUR});
    options.max_num_iterations = 3;
    options.num_threads = 1 + random->Below(2);
    options.logging_type = ceres::SILENT;
    Summary summary;
    Solve(options, Options(), &problem, &summary);
    const std::vector<double> end = arrays.Parameters();
    std::string error;
    if (!problem.IsValid(1, &error)) {
      ExpectSentence(error);
      EXPECT_EQ(summary.termination_type, ceres::FAILURE);
      EXPECT_EQ(summary.message, error);
      EXPECT_EQ(std::memcmp(start.data(), end.data(), 8 * start.size()), 0);
      return;
    }
    EXPECT_FALSE(summary.message.empty());
    // A value that is not finite does not belong to the problem.
    for (size_t i = 0; i < end.size(); ++i) {
      EXPECT_TRUE(std::isfinite(end[i]) || !std::isfinite(start[i]));
    }
    if (!summary.IsSolutionUsable()) {
      EXPECT_EQ(std::memcmp(start.data(), end.data(), 8 * start.size()), 0)
          << summary.message;
    }
  });
}

}  // namespace
}  // namespace ceres_ext
