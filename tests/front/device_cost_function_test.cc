// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Batched evaluation of users' cost functions: against stock Ceres, on the host
// and, where there is one, on a device, real or emulated.

#include "ceres_ext/device_cost_function.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "ceres/ceres.h"
#include "ceres_ext/bal_cost_functions.h"
#include "ceres_ext/solve.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/functors.h"
#include "tests/common/has_device.h"
#include "tests/common/random_cases.h"
#include "tests/common/random_problem.h"
#include "tests/common/random_rows.h"
#include "tests/front/unoptimized_cost_function.h"

#ifdef CERES_EXT_EMULATED
#include "tests/front/device_cost_function_functors.cu"
#endif

namespace ceres_ext {
namespace {

using ::testing::HasSubstr;

std::vector<DeviceType> Devices() {
  std::vector<DeviceType> devices{DEVICE_HOST};
  if (HasDevice()) {
    devices.push_back(DEVICE_CUDA);
  }
  return devices;
}

ceres::Solver::Options TestOptions() {
  ceres::Solver::Options options;
  options.linear_solver_type = ceres::ITERATIVE_SCHUR;
  options.preconditioner_type = ceres::SCHUR_JACOBI;
  options.logging_type = ceres::SILENT;
  options.num_threads = 2;
  options.eta = 1e-6;
  options.max_linear_solver_iterations = 1000;
  // So much damping that PCG gets to rounding.
  options.initial_trust_region_radius = 10.0;
  return options;
}

Options TestExtOptions(DeviceType device) {
  Options options;
  options.device = device;
  options.fallback = FALLBACK_REFUSE;
  return options;
}

// Ceres's, of a model.
template <typename Model>
struct PlainCost : public ceres::SizedCostFunction<Model::kNumResiduals, 4, 3> {
  explicit PlainCost(const typename Model::Constants& constants_in)
      : constants(constants_in) {}
  bool Evaluate(double const* const* parameters,
                double* residuals,
                double** jacobians) const override {
    double values[7 * Model::kNumResiduals];
    double* all[] = {values, values + 4 * Model::kNumResiduals};
    Model::Evaluate(
        constants, parameters, residuals, jacobians == nullptr ? nullptr : all);
    for (int b = 0; jacobians != nullptr && b < 2; ++b) {
      if (jacobians[b] != nullptr) {
        std::copy_n(
            all[b], Model::kNumResiduals * (b == 0 ? 4 : 3), jacobians[b]);
      }
    }
    return true;
  }
  typename Model::Constants constants;
};

// Which rows are there, of the kinds of RandomProblem.
enum Rows : unsigned {
  kPoses = 1 << 0,        // pose, camera, point
  kCurvedPoses = 1 << 1,  // point, pose with a manifold, camera
  kAnchors = 1 << 2,      // point and anchor in either order
  kWide = 1 << 3,         // twelve values, some of them held, and point
  kPriors = 1 << 4,       // pose
  kBetween = 1 << 5,      // two poses
  kTall = 1 << 6,         // five residuals
  kWritten = 1 << 7,      // a Jacobian by hand
  kWithConstants = 1 << 8,
  kCeres = 1 << 9,  // evaluated by Ceres whatever happens
  kAll = (1 << 10) - 1,
};

// Blocks of all kinds, some of them constant, and rows among them. The same
// numbers for the same arguments.
struct RandomProblem {
  RandomProblem(unsigned seed,
                unsigned kinds,
                int rows_per_kind,
                bool batched) {
    Random random(seed);
    const auto fill = [&](int count, int size) {
      return RandomBlocks(count, size, &random);
    };
    points = fill(12, 3);
    poses = fill(5, 6);
    curved = fill(4, 7);
    cameras = fill(3, 4);
    anchors = fill(3, 3);
    wide = fill(2, 12);
    const auto any = [&](auto& blocks) {
      return blocks[random.Below(static_cast<int>(blocks.size()))].data();
    };
    const auto loss = [&]() -> ceres::LossFunction* {
      return random.Chance(0.1)
                 ? new ceres::ComposedLoss(new ceres::CauchyLoss(1.5),
                                           ceres::TAKE_OWNERSHIP,
                                           new ceres::HuberLoss(0.6),
                                           ceres::TAKE_OWNERSHIP)
                 : RandomLoss(&random);
    };
    for (int i = 0; i < rows_per_kind; ++i) {
      // Drawn whether or not they are wanted, one after the other.
      const double a = Normal(&random);
      const double b = Normal(&random);
      double* const point = any(points);
      double* const pose = any(poses);
      double* const other_pose =
          pose == poses[0].data() ? poses[1].data() : poses[0].data();
      double* const curved_pose = any(curved);
      double* const camera = any(cameras);
      double* const anchor = any(anchors);
      double* const wide_block = any(wide);
      const bool swapped = random.Chance(0.5);
      const auto add = [&](unsigned kind,
                           ceres::CostFunction* cost,
                           std::vector<double*> blocks) {
        ceres::LossFunction* const its_loss = loss();
        if ((kinds & kind) != 0) {
          problem.AddResidualBlock(cost, its_loss, blocks);
          ++num_rows;
        } else {
          delete cost;
          delete its_loss;
        }
      };
      using Swapped = std::vector<double*>;
      add(kPoses,
          CostOf<2, 6, 4, 3>(batched, Smooth<2, 6, 4, 3>{a, b}),
          {pose, camera, point});
      add(kCurvedPoses,
          CostOf<2, 3, 7, 4>(batched, Smooth<2, 3, 7, 4>{a, b}),
          {point, curved_pose, camera});
      add(kAnchors,
          CostOf<2, 3, 3>(batched, Smooth<2, 3, 3>{a, b}),
          swapped ? Swapped{anchor, point} : Swapped{point, anchor});
      add(kWide,
          CostOf<2, 12, 3>(batched, Smooth<2, 12, 3>{a, b}),
          {wide_block, point});
      add(kPriors, CostOf<3, 6>(batched, Smooth<3, 6>{a, b}), {pose});
      add(kBetween,
          CostOf<1, 6, 6>(batched, Smooth<1, 6, 6>{a, b}),
          {pose, other_pose});
      add(kTall,
          CostOf<5, 3, 12>(batched, Smooth<5, 3, 12>{a, b}),
          {point, wide_block});
      const Written::Constants constants{1.0 + 0.1 * a};
      add(kWritten,
          batched ? static_cast<ceres::CostFunction*>(
                        new DeviceCostFunction<Written>(constants))
                  : new PlainCost<Written>(constants),
          {camera, point});
      add(kWithConstants,
          CostOf<3, 6>(
              batched,
              WithConstants(std::vector<float>{
                  static_cast<float>(a), static_cast<float>(b), 0.5f})),
          {pose});
      add(kCeres,
          CostOf<2, 6, 3>(false, Smooth<2, 6, 3, 0, 1>{a, b}),
          {pose, point});
    }
    const auto set = [&](double* block, auto&& f) {
      if (problem.HasParameterBlock(block)) {
        f(block);
      }
    };
    // Several constants among the blocks of one view.
    for (double* block : {points[3].data(),
                          cameras[0].data(),
                          cameras[1].data(),
                          anchors[1].data()}) {
      set(block, [&](double* x) { problem.SetParameterBlockConstant(x); });
    }
    for (auto& pose : curved) {
      set(pose.data(), [&](double* x) { MakePose(x, &problem); });
    }
    set(wide[0].data(), [&](double* x) {
      problem.SetManifold(x, new ceres::SubsetManifold(12, {3, 7, 11}));
    });
    set(poses[2].data(), [&](double* x) {
      problem.SetManifold(x, new ceres::SubsetManifold(6, {0}));
    });
    ordering = std::make_shared<ceres::ParameterBlockOrdering>();
    for (const auto* blocks :
         {&points, &poses, &curved, &cameras, &anchors, &wide}) {
      for (const auto& block : *blocks) {
        double* const x = const_cast<double*>(block.data());
        if (problem.HasParameterBlock(x)) {
          ordering->AddElementToGroup(x, blocks == &points ? 0 : 1);
        }
      }
    }
  }

  std::vector<double> State() const {
    std::vector<double> state;
    for (const auto* blocks :
         {&points, &poses, &curved, &cameras, &anchors, &wide}) {
      for (const auto& block : *blocks) {
        state.insert(state.end(), block.begin(), block.end());
      }
    }
    return state;
  }

  Blocks points, poses, curved, cameras, anchors, wide;
  int num_rows = 0;
  std::shared_ptr<ceres::ParameterBlockOrdering> ordering;
  ceres::Problem problem;
};

struct Setting {
  unsigned kinds;
  int rows_per_kind;
};

class RandomRows
    : public ::testing::TestWithParam<std::tuple<int, Setting, bool>> {};

// Cost and gradient at the start are those of stock Ceres to rounding; so is
// the first step, which an exact solve makes a function of the Jacobian.
TEST_P(RandomRows, GiveWhatStockGives) {
  const auto& [seed, setting, elimination] = GetParam();
  RandomProblem stock(seed, setting.kinds, setting.rows_per_kind, false);
  ceres::Solver::Options options = TestOptions();
  options.max_num_iterations = 1;
  options.linear_solver_ordering = stock.ordering;
  options.linear_solver_type = ceres::SPARSE_NORMAL_CHOLESKY;
  ceres::Solver::Summary expected;
  ceres::Solve(options, &stock.problem, &expected);
  ASSERT_TRUE(expected.IsSolutionUsable()) << expected.FullReport();

  for (const DeviceType device : Devices()) {
    std::vector<double> first;
    for (const int num_threads : {1, 3}) {
      RandomProblem ours(seed, setting.kinds, setting.rows_per_kind, true);
      options = TestOptions();
      options.max_num_iterations = 1;
      options.num_threads = num_threads;
      // Solved as far as rounding lets PCG.
      options.eta = 1e-15;
      if (elimination) {
        options.linear_solver_ordering = ours.ordering;
      } else {
        options.linear_solver_type = ceres::CGNR;
        options.preconditioner_type = ceres::JACOBI;
      }
      Summary summary;
      Solve(options, TestExtOptions(device), &ours.problem, &summary);
      ASSERT_EQ(summary.path, PATH_FULL) << summary.path_reason;
      const bool has_ceres_rows =
          (setting.kinds & kCeres) != 0 && setting.rows_per_kind > 0;
      EXPECT_THAT(summary.path_reason,
                  HasSubstr(!has_ceres_rows
                                ? "all residual blocks are evaluated by this "
                                  "library"
                            : setting.kinds == kCeres
                                ? "all residual blocks are evaluated by Ceres"
                                : " by Ceres"));
      ASSERT_EQ(summary.iterations.size(), expected.iterations.size());
      const auto expect_near = [](double x, double y, double tolerance) {
        EXPECT_NEAR(x, y, tolerance * std::abs(y));
      };
      // Sums of some thousand terms.
      expect_near(summary.initial_cost, expected.initial_cost, 1e-13);
      for (size_t i = 0; i < expected.iterations.size(); ++i) {
        const auto& a = summary.iterations[i];
        const auto& b = expected.iterations[i];
        // The step is an inverse's, of a damped matrix.
        const double tolerance = i == 0 ? 1e-12 : 1e-6;
        expect_near(a.cost, b.cost, tolerance);
        expect_near(a.gradient_max_norm, b.gradient_max_norm, tolerance);
        expect_near(a.gradient_norm, b.gradient_norm, tolerance);
        expect_near(a.step_norm, b.step_norm, 1e-6);
      }
      if (first.empty()) {
        first = ours.State();
      } else {
        EXPECT_EQ(ours.State(), first) << "other bits with other threads";
      }
    }
  }
}

std::string RandomRowsName(
    const ::testing::TestParamInfo<RandomRows::ParamType>& info) {
  return "Seed" + std::to_string(std::get<0>(info.param)) + "_Kinds" +
         std::to_string(std::get<1>(info.param).kinds) + "_Rows" +
         std::to_string(std::get<1>(info.param).rows_per_kind) +
         (std::get<2>(info.param) ? "_Schur" : "_Cgnr");
}

INSTANTIATE_TEST_SUITE_P(
    Rows,
    RandomRows,
    ::testing::Combine(::testing::Values(1, 2),
                       ::testing::Values(Setting{kAll, 60},
                                         Setting{kAll & ~kCeres, 33},
                                         Setting{kPoses, 1},
                                         Setting{kPoses | kPriors, 31},
                                         Setting{kCurvedPoses, 32},
                                         Setting{kAnchors, 60},
                                         Setting{kWide, 33},
                                         Setting{kWide | kTall, 60},
                                         Setting{kPriors | kBetween, 20},
                                         Setting{kWritten, 60},
                                         Setting{kWithConstants, 20},
                                         Setting{kPoses | kCeres, 60},
                                         Setting{kPriors | kCeres | kBetween,
                                                 40}),
                       ::testing::Bool()),
    RandomRowsName);

// Blocks in floats have 24 bits: the first step is the same to about as many,
// times what the damped matrix (condition below 100) makes of them.
TEST(DeviceCostFunction, MixedPrecisionTakesNearlyTheSameStep) {
  if (!HasDevice()) {
    GTEST_SKIP() << "skipped: no CUDA device";
  }
  Summary summary[2];
  for (const bool mixed : {false, true}) {
    RandomProblem problem(3, kPoses | kPriors | kWide, 100, true);
    ceres::Solver::Options options = TestOptions();
    options.linear_solver_ordering = problem.ordering;
    options.max_num_iterations = 1;
    Options ext_options = TestExtOptions(DEVICE_CUDA);
    ext_options.precision = mixed ? PRECISION_MIXED : PRECISION_DOUBLE;
    Solve(options, ext_options, &problem.problem, &summary[mixed ? 1 : 0]);
    ASSERT_EQ(summary[0].path, PATH_FULL) << summary[0].path_reason;
  }
  ASSERT_EQ(summary[1].iterations.size(), summary[0].iterations.size());
  EXPECT_EQ(summary[1].initial_cost, summary[0].initial_cost);
  for (size_t i = 0; i < summary[0].iterations.size(); ++i) {
    const auto& a = summary[1].iterations[i];
    const auto& b = summary[0].iterations[i];
    const double tolerance = std::ldexp(i == 0 ? 1.0 : 100.0, -20);
    EXPECT_NEAR(a.cost, b.cost, tolerance * b.cost);
    EXPECT_NEAR(a.gradient_norm, b.gradient_norm, tolerance * b.gradient_norm);
    EXPECT_NEAR(a.step_norm, b.step_norm, tolerance * b.step_norm);
  }
  EXPECT_NE(summary[1].iterations[0].gradient_norm,
            summary[0].iterations[0].gradient_norm);
}

// ---------------------------------------------------------------------------
// As ceres::AutoDiffCostFunction.

TEST(DeviceAutoDiffCostFunction, EvaluatesAsCeresDoes) {
  using Functor = Smooth<2, 6, 4, 3>;
  const Functor functor{0.25, 0.5};
  const ceres::AutoDiffCostFunction<Functor, 2, 6, 4, 3> plain(
      new Functor(functor));
  const DeviceAutoDiffCostFunction<Functor, 2, 6, 4, 3> ours(functor);
  EXPECT_EQ(ours.num_residuals(), plain.num_residuals());
  EXPECT_EQ(ours.parameter_block_sizes(), plain.parameter_block_sizes());
  EXPECT_EQ(ours.functor().offset, 0.25);
  double x[13];
  for (int i = 0; i < 13; ++i) {
    x[i] = 0.1 * i;
  }
  const double* parameters[] = {x, x + 6, x + 10};
  for (unsigned wanted = 0; wanted < 16; ++wanted) {
    double residuals[2][2];
    double jacobian[2][26] = {};
    double* jacobians[2][3];
    for (int k = 0; k < 2; ++k) {
      for (int b = 0; b < 3; ++b) {
        const int begin[] = {0, 12, 20};
        jacobians[k][b] =
            (wanted >> b) % 2 != 0 ? jacobian[k] + begin[b] : nullptr;
      }
      const ceres::CostFunction& cost =
          k == 0 ? static_cast<const ceres::CostFunction&>(plain) : ours;
      ASSERT_TRUE(cost.Evaluate(
          parameters, residuals[k], wanted >= 8 ? jacobians[k] : nullptr));
    }
    EXPECT_THAT(residuals[1], ::testing::ElementsAreArray(residuals[0]));
    EXPECT_THAT(jacobian[1], ::testing::ElementsAreArray(jacobian[0]));
  }
}

TEST(DeviceAutoDiffCostFunction, OwnsItsFunctorOrNot) {
  Fragile functor{FunctorFault::kNone, 1.0};
  const double x[3] = {0.0, 0.0, 0.0};
  const double* parameters[] = {x};
  double residual = 0.0;
  {
    const DeviceAutoDiffCostFunction<Fragile, 1, 3> cost(
        &functor, ceres::DO_NOT_TAKE_OWNERSHIP);
    EXPECT_TRUE(cost.Evaluate(parameters, &residual, nullptr));
    EXPECT_EQ(&cost.functor(), &functor);
    // Constants are those of the moment.
    functor.limit = 7.0;
    Fragile constants{};
    cost.CopyConstants(&constants);
    EXPECT_EQ(constants.limit, 7.0);
  }
  const DeviceAutoDiffCostFunction<Fragile, 1, 3> owner(
      new Fragile{FunctorFault::kNone, 1.0});
  EXPECT_TRUE(owner.Evaluate(parameters, &residual, nullptr));
  EXPECT_EQ(residual, -2.0);
}

TEST(DeviceCostFunction, LeavesOutDerivativesThatNobodyWants) {
  const DeviceCostFunction<Written> cost(Written::Constants{2.0});
  const double a[4] = {1.0, 2.0, 3.0, 4.0};
  const double p[3] = {5.0, 6.0, 7.0};
  const double* parameters[] = {a, p};
  double residuals[2];
  double jacobian[6];
  double* jacobians[] = {nullptr, jacobian};
  ASSERT_TRUE(cost.Evaluate(parameters, residuals, jacobians));
  EXPECT_DOUBLE_EQ(residuals[0], 2.0 * (5.0 + 6.0 - 2.0 + 0.4));
  EXPECT_THAT(jacobian, ::testing::ElementsAre(2.0, 2.0, 0.0, 0.0, 2.0, 2.0));
}

// ---------------------------------------------------------------------------
// What goes wrong.

TEST(DeviceCostFunction, AStepThatCannotBeEvaluatedIsRejected) {
  for (const DeviceType device : Devices()) {
    for (const FunctorFault fault : {FunctorFault::kFalse,
                                     FunctorFault::kNotANumber,
                                     FunctorFault::kDerivative,
                                     FunctorFault::kThrows}) {
      if (fault == FunctorFault::kThrows && device == DEVICE_CUDA) {
        continue;  // There are no exceptions.
      }
      double x[3] = {0.0, 0.0, 0.0};
      ceres::Problem problem;
      problem.AddResidualBlock(
          new DeviceAutoDiffCostFunction<Fragile, 1, 3>(Fragile{fault, 1.0}),
          nullptr,
          x);
      Summary summary;
      ::testing::internal::CaptureStderr();
      Solve(TestOptions(), TestExtOptions(device), &problem, &summary);
      const std::string log = ::testing::internal::GetCapturedStderr();
      ASSERT_EQ(summary.path, PATH_FULL) << summary.path_reason;
      if (fault == FunctorFault::kDerivative) {
        // The cost is finite, so the step has been taken.
        EXPECT_EQ(summary.termination_type, ceres::FAILURE);
      } else {
        EXPECT_GT(summary.num_unsuccessful_steps, 0);
        EXPECT_LE(x[0], 1.0);
      }
      EXPECT_THAT(log, HasSubstr("Fragile"));
      EXPECT_THAT(log, HasSubstr("1 of its 1 residual blocks"));
    }
  }
}

// Sets what a functor of another owner reads.
struct SetLimit : public ceres::EvaluationCallback {
  explicit SetLimit(Fragile* functor_in) : functor(functor_in) {}
  void PrepareForEvaluation(bool /*evaluate_jacobians*/,
                            bool /*new_evaluation_point*/) override {
    functor->limit = 1e9;
    ++num_calls;
  }
  Fragile* functor;
  int num_calls = 0;
};

TEST(DeviceCostFunction, WithAnEvaluationCallbackCeresEvaluates) {
  for (const DeviceType device : Devices()) {
    Fragile functor{FunctorFault::kFalse, -1.0};
    SetLimit callback(&functor);
    ceres::Problem::Options problem_options;
    problem_options.evaluation_callback = &callback;
    double x[3] = {0.0, 0.0, 0.0};
    ceres::Problem problem(problem_options);
    problem.AddResidualBlock(new DeviceAutoDiffCostFunction<Fragile, 1, 3>(
                                 &functor, ceres::DO_NOT_TAKE_OWNERSHIP),
                             nullptr,
                             x);
    Summary summary;
    Solve(TestOptions(), TestExtOptions(device), &problem, &summary);
    EXPECT_EQ(summary.path, PATH_FULL) << summary.path_reason;
    EXPECT_THAT(summary.path_reason,
                HasSubstr("all residual blocks are evaluated by Ceres; with an "
                          "EvaluationCallback"));
    EXPECT_GT(callback.num_calls, 0);
    EXPECT_NEAR(x[0], 2.0, 1e-2);
  }
}

TEST(DeviceCostFunction, AStartThatCannotBeEvaluatedFails) {
  for (const DeviceType device : Devices()) {
    double x[3] = {0.5, 0.0, 0.0};
    ceres::Problem problem;
    for (int i = 0; i < 40; ++i) {
      problem.AddResidualBlock(
          new DeviceAutoDiffCostFunction<Fragile, 1, 3>(
              Fragile{FunctorFault::kNotANumber, i % 4 == 0 ? 0.0 : 1.0}),
          nullptr,
          x);
    }
    Summary summary;
    ::testing::internal::CaptureStderr();
    Solve(TestOptions(), TestExtOptions(device), &problem, &summary);
    EXPECT_THAT(::testing::internal::GetCapturedStderr(),
                HasSubstr("10 of its 40 residual blocks"));
    EXPECT_EQ(summary.termination_type, ceres::FAILURE);
    EXPECT_EQ(x[0], 0.5);
  }
}

template <int kReason>
using UnwillingCost = DeviceAutoDiffCostFunction<Unwilling<kReason>, 1, 3>;

// Solves one row of the type on a device and returns why Ceres evaluates it.
template <int kReason>
std::string WhyCeres() {
  double x[3] = {0.0, 0.0, 0.0};
  ceres::Problem problem;
  problem.AddResidualBlock(
      new UnwillingCost<kReason>(Unwilling<kReason>{3.0}), nullptr, x);
  Summary summary;
  Solve(TestOptions(), TestExtOptions(DEVICE_CUDA), &problem, &summary);
  EXPECT_EQ(summary.path, PATH_FULL) << summary.path_reason;
  EXPECT_NEAR(x[0], 3.0, 1e-4);
  EXPECT_THAT(summary.path_reason,
              HasSubstr("all residual blocks are evaluated by Ceres; "));
  EXPECT_THAT(summary.path_reason,
              HasSubstr("Unwilling<" + std::to_string(kReason) + ">"));
  return summary.path_reason;
}

template <int kReason>
void SetForm(const kernels::ModelForm* form) {
  internal::BatchForms<typename UnwillingCost<kReason>::Model>::forms
      [static_cast<int>(FormKind::kRows)] = form;
}

const char* NameOfError(int /*error*/) { return "no kernel image"; }

TEST(DeviceForm, OnesThatDoNotFitLeaveTheirRowsToCeres) {
  if (!HasDevice()) {
    GTEST_SKIP() << "skipped: no CUDA device";
  }
  EXPECT_THAT(WhyCeres<0>(), HasSubstr("has no device form"));
  using Form = kernels::ModelForm;

  const Form good = {kBatchModelVersion,
                     sizeof(RowBatch),
                     0,
                     0,
                     [](int, Form::Facts* facts) {
                       facts->max_threads = 1024;
                       return 0;
                     },
                     [](const kernels::ModelLaunch&) { return 0; },
                     &NameOfError};
  Form old = good;
  old.version = kBatchModelVersion + 1;
  SetForm<1>(&old);
  EXPECT_THAT(WhyCeres<1>(), HasSubstr("of another version of this library"));

  Form other_size = good;
  other_size.params_size -= 8;
  SetForm<2>(&other_size);
  EXPECT_THAT(WhyCeres<2>(), HasSubstr("of another version of this library"));

  Form other_device = good;
  other_device.get_facts = [](int, Form::Facts*) { return 209; };
  SetForm<3>(&other_device);
  EXPECT_THAT(WhyCeres<3>(),
              HasSubstr("has no code for this device: no kernel image"));

  Form large = good;
  large.get_facts = [](int, Form::Facts* facts) {
    facts->num_registers = 300;
    facts->max_threads = 128;
    return 0;
  };
  SetForm<4>(&large);
  EXPECT_THAT(WhyCeres<4>(), HasSubstr("needs 300 registers"));

  Form failing = good;
  failing.launch = [](const kernels::ModelLaunch&) { return 2; };
  SetForm<5>(&failing);
  EXPECT_THAT(WhyCeres<5>(), HasSubstr("can't be launched"));
}

// A cost function that was compiled with other headers.
class OtherVersion : public BatchableCostFunction {
 public:
  OtherVersion() {
    set_num_residuals(1);
    mutable_parameter_block_sizes()->push_back(1);
  }
  bool Evaluate(double const* const* x,
                double* residuals,
                double** jacobians) const override {
    residuals[0] = x[0][0] - 1.0;
    if (jacobians != nullptr && jacobians[0] != nullptr) {
      jacobians[0][0] = 1.0;
    }
    return true;
  }
  const BatchModel& batch_model() const override {
    static const BatchModel model = {kBatchModelVersion + 1,
                                     BatchModelKind::kOther,
                                     1,
                                     1,
                                     nullptr,
                                     8,
                                     nullptr,
                                     nullptr,
                                     false,
                                     false};
    return model;
  }
  void CopyConstants(void* /*constants*/) const override {}
};

TEST(BatchModel, OfAnotherVersionIsLeftToCeres) {
  for (const DeviceType device : Devices()) {
    double x = 0.0;
    ceres::Problem problem;
    problem.AddResidualBlock(new OtherVersion, nullptr, &x);
    Summary summary;
    ::testing::internal::CaptureStderr();
    Solve(TestOptions(), TestExtOptions(device), &problem, &summary);
    EXPECT_THAT(::testing::internal::GetCapturedStderr(),
                HasSubstr("was compiled for version"));
    EXPECT_EQ(summary.path, PATH_FULL) << summary.path_reason;
    EXPECT_THAT(summary.path_reason, HasSubstr("by Ceres"));
    EXPECT_NEAR(x, 1.0, 1e-4);
  }
}

// x - target, times kScale.
template <int kScale>
struct Scaled {
  template <typename T>
  CERES_HOST_DEVICE bool operator()(const T* x, T* residuals) const {
    residuals[0] = double{kScale} * (x[0] - target);
    return true;
  }
  double target;
};

// Its model is that of another cost function, as of one out of a library that
// was loaded.
class Loaded final : public BatchableCostFunction {
 public:
  explicit Loaded(std::unique_ptr<BatchableCostFunction> loaded)
      : loaded_(std::move(loaded)) {
    set_num_residuals(loaded_->num_residuals());
    *mutable_parameter_block_sizes() = loaded_->parameter_block_sizes();
  }
  bool Evaluate(double const* const* x,
                double* residuals,
                double** jacobians) const override {
    return loaded_->Evaluate(x, residuals, jacobians);
  }
  const BatchModel& batch_model() const override {
    return loaded_->batch_model();
  }
  void CopyConstants(void* constants) const override {
    loaded_->CopyConstants(constants);
  }

 private:
  std::unique_ptr<BatchableCostFunction> loaded_;
};

template <int kScale>
ceres::CostFunction* LoadScaled(double target) {
  using Cost = DeviceAutoDiffCostFunction<Scaled<kScale>, 1, 1>;
  return new Loaded(std::make_unique<Cost>(Scaled<kScale>{target}));
}

TEST(BatchModel, SeveralOfOneType) {
  for (const DeviceType device : Devices()) {
    double x = 0.5;
    ceres::Problem problem;
    for (int i = 0; i < 40; ++i) {
      problem.AddResidualBlock(LoadScaled<1>(i), nullptr, &x);
      problem.AddResidualBlock(LoadScaled<3>(2 * i), nullptr, &x);
    }
    Summary summary;
    Solve(TestOptions(), TestExtOptions(device), &problem, &summary);
    EXPECT_EQ(summary.path, PATH_FULL) << summary.path_reason;
    // Sums of integers and halves are exact.
    double cost = 0.0;
    for (int i = 0; i < 40; ++i) {
      cost += 0.5 * ((0.5 - i) * (0.5 - i) + 9 * (0.5 - 2 * i) * (0.5 - 2 * i));
    }
    EXPECT_EQ(summary.initial_cost, cost);
    // The mean of i and of 2 i nine times as often. The cost rises by 200 d^2
    // at a distance d, and may change by 1e-6 of itself in the last step.
    EXPECT_NEAR(
        x, 19.5 * (1 + 2 * 9) / 10, std::sqrt(1e-6 * summary.final_cost / 200));
  }
}

TEST(BatchModel, OneCompiledWithoutOptimisationIsNamed) {
  if (kIsUnoptimized) {
    GTEST_SKIP() << "skipped: a build without optimisation";
  }
  using OptimizedCost = DeviceAutoDiffCostFunction<Smooth<1, 1>, 1, 1>;
  const char kHint[] =
      "cost functions of the program are compiled without optimisation";
  for (const DeviceType device : Devices()) {
    for (const bool is_optimized : {false, true}) {
      double x = 0.0;
      ceres::Problem problem;
      problem.AddResidualBlock(is_optimized ? new OptimizedCost(Smooth<1, 1>())
                                            : CreateUnoptimizedCostFunction(),
                               nullptr,
                               &x);
      Summary summary;
      Solve(TestOptions(), TestExtOptions(device), &problem, &summary);
      EXPECT_EQ(summary.path, PATH_FULL) << summary.path_reason;
      EXPECT_EQ(summary.path_reason.find(kHint) != std::string::npos,
                !is_optimized)
          << summary.path_reason;
    }
  }
}

}  // namespace
}  // namespace ceres_ext
