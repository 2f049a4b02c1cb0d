// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The state machine against Ceres's own minimizer on scripted sequences: a cost
// function of one residual and one parameter says, call by call, what a script
// holds, and so does the loop below. Its steps are of Levenberg-Marquardt or
// dogleg.

#include "ceres_ext/solver/trust_region.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "Eigen/Dense"
#include "ceres/problem.h"
#include "ceres/sized_cost_function.h"
#include "ceres/solver.h"
#include "ceres_ext/solver/dogleg_region.h"
#include "gtest/gtest.h"

namespace ceres_ext {
namespace {

struct Answer {
  double residual = 0.0;
  double jacobian = 0.0;
  bool is_evaluated = true;
};

struct Script {
  std::vector<Answer> answers;
  double start = 1.0;
  // The loop is stopped in this iteration.
  int stop_iteration = std::numeric_limits<int>::max();

  // The answer to call i; the last one is given for ever.
  const Answer& At(size_t i) const {
    return answers[std::min(i, answers.size() - 1)];
  }
};

class Scripted final : public ceres::SizedCostFunction<1, 1> {
 public:
  explicit Scripted(const Script* script) : script_(script) {}
  bool Evaluate(double const* const*,
                double* residuals,
                double** jacobians) const override {
    const Answer& answer = script_->At(call_++);
    residuals[0] = answer.residual;
    if (jacobians != nullptr && jacobians[0] != nullptr) {
      jacobians[0][0] = answer.jacobian;
    }
    return answer.is_evaluated;
  }

 private:
  const Script* script_;
  mutable size_t call_ = 0;
};

// The log of a loop: for each finished iteration the radius and whether the
// step was accepted, and the end.
struct Course {
  std::vector<double> radius;
  std::vector<bool> is_successful;
  ceres::TerminationType type = ceres::NO_CONVERGENCE;
  std::string message;  // Its first words.
  int num_successful_steps = 0;
  int num_unsuccessful_steps = 0;
  double initial_cost = 0.0;
  double final_cost = 0.0;
};

class StopAt final : public ceres::IterationCallback {
 public:
  explicit StopAt(int iteration) : iteration_(iteration) {}
  ceres::CallbackReturnType operator()(
      const ceres::IterationSummary& summary) override {
    return summary.iteration >= iteration_
               ? ceres::SOLVER_TERMINATE_SUCCESSFULLY
               : ceres::SOLVER_CONTINUE;
  }

 private:
  const int iteration_;
};

Course CourseOfCeres(ceres::Solver::Options options, const Script& script) {
  StopAt stop(script.stop_iteration);
  options.callbacks.push_back(&stop);
  double x = script.start;
  ceres::Problem problem;
  problem.AddResidualBlock(new Scripted(&script), nullptr, &x);
  ceres::Solver::Summary summary;
  ceres::Solve(options, &problem, &summary);
  Course course;
  for (const ceres::IterationSummary& iteration : summary.iterations) {
    course.radius.push_back(iteration.trust_region_radius);
    course.is_successful.push_back(iteration.step_is_successful);
  }
  course.type = summary.termination_type;
  course.message = summary.message.substr(0, summary.message.find('.'));
  course.num_successful_steps = summary.num_successful_steps;
  course.num_unsuccessful_steps = summary.num_unsuccessful_steps;
  course.initial_cost = summary.initial_cost;
  course.final_cost = summary.final_cost;
  return course;
}

std::pair<ceres::TerminationType, std::string> Ending(TrustRegionEnd end) {
  switch (end) {
    case TrustRegionEnd::kInitialEvaluation:
      return {ceres::FAILURE,
              "Initial residual and Jacobian evaluation failed"};
    case TrustRegionEnd::kEvaluation:
      return {ceres::FAILURE, "Residual and Jacobian evaluation failed"};
    case TrustRegionEnd::kInvalidSteps:
      return {ceres::FAILURE,
              "Number of consecutive invalid steps more than "
              "Solver::Options::max_num_consecutive_invalid_steps: 5"};
    case TrustRegionEnd::kMaxIterations:
      return {ceres::NO_CONVERGENCE, "Maximum number of iterations reached"};
    case TrustRegionEnd::kGradientTolerance:
      return {ceres::CONVERGENCE, "Gradient tolerance reached"};
    case TrustRegionEnd::kMinRadius:
      return {ceres::CONVERGENCE, "Minimum trust region radius reached"};
    case TrustRegionEnd::kParameterTolerance:
      return {ceres::CONVERGENCE, "Parameter tolerance reached"};
    case TrustRegionEnd::kFunctionTolerance:
      return {ceres::CONVERGENCE, "Function tolerance reached"};
    case TrustRegionEnd::kStopped:
      return {ceres::USER_SUCCESS,
              "User callback returned SOLVER_TERMINATE_SUCCESSFULLY"};
    case TrustRegionEnd::kMaxTime:
      return {ceres::NO_CONVERGENCE, "Maximum solver time reached"};
    case TrustRegionEnd::kNone:
      break;
  }
  return {ceres::USER_FAILURE, ""};
}

DoglegType DoglegOf(const ceres::Solver::Options& options) {
  return options.trust_region_strategy_type != ceres::DOGLEG ? DoglegType::kNone
         : options.dogleg_type == ceres::SUBSPACE_DOGLEG
             ? DoglegType::kSubspace
             : DoglegType::kTraditional;
}

// The step of one column with the squared norm `squared` and this gradient, by
// the strategies in turn. False if there is none.
bool FindStep(double gradient,
              double squared,
              double scale,
              const TrustRegion& region,
              DampingRadius* /*strategy*/,
              double* step) {
  *step = -gradient / (squared + region.SquaredDamping(squared, scale));
  return true;
}
bool FindStep(double gradient,
              double squared,
              double scale,
              const TrustRegion& region,
              DoglegRegion* dogleg,
              double* step) {
  const double length = region.SquaredDamping(squared, scale, 1.0);
  const double p = gradient / length;
  const auto d = [&] { return -gradient / (squared + dogleg->mu() * length); };
  DoglegRegion::Next next = dogleg->Begin();
  if (next == DoglegRegion::Next::kFactorize) {
    while (next == DoglegRegion::Next::kFactorize && !std::isfinite(d())) {
      next = dogleg->RaiseDamping();
    }
    dogleg->SetPoints(
        p * gradient, p * squared * p, d() * length * d(), d() * gradient);
  }
  dogleg->Choose(region.radius());
  *step = dogleg->step().a * p + dogleg->step().b * d();
  return next != DoglegRegion::Next::kFailed;
}

// strategy(&region) returns the strategy.
template <typename Strategy>
Course CourseOfStateMachine(const ceres::Solver::Options& options,
                            const Script& script,
                            const Strategy& strategy) {
  TrustRegionOptions of_region;
  of_region.max_num_iterations = options.max_num_iterations;
  of_region.max_num_consecutive_invalid_steps =
      options.max_num_consecutive_invalid_steps;
  of_region.initial_radius = options.initial_trust_region_radius;
  of_region.max_radius = options.max_trust_region_radius;
  of_region.min_radius = options.min_trust_region_radius;
  of_region.gradient_tolerance = options.gradient_tolerance;
  of_region.jacobi_scaling = options.jacobi_scaling;
  int32_t stop = 0;
  of_region.stop = &stop;
  // Before what may finish an iteration.
  const auto finish = [&](int iteration) {
    stop = iteration >= script.stop_iteration ? 1 : 0;
  };
  TrustRegion region(of_region);
  size_t call = 0;
  double x = script.start;
  Answer at_x;
  Course course;
  // Ceres finishes an iteration wherever a function of the state machine that
  // may end the loop does not end it, or ends it by a test of all iterations.
  const auto record = [&](bool is_successful, int num_before) {
    if (region.num_successful_steps() + region.num_unsuccessful_steps() >
        num_before) {
      course.radius.push_back(region.radius());
      course.is_successful.push_back(is_successful);
    }
  };
  const auto count = [&] {
    return region.num_successful_steps() + region.num_unsuccessful_steps();
  };
  const auto evaluate = [&](Answer* answer, double* cost) {
    *answer = script.At(call++);
    *cost = 0.5 * answer->residual * answer->residual;
    return answer->is_evaluated && std::isfinite(answer->residual) &&
           std::isfinite(answer->jacobian);
  };
  // As Ceres has it: what the gradient changes of x.
  const auto gradient_norm = [&] {
    return std::abs(x - (x - at_x.jacobian * at_x.residual));
  };
  double cost = 0.0;
  bool is_evaluated = evaluate(&at_x, &cost);
  finish(0);
  bool goes_on = region.Begin(is_evaluated, cost, gradient_norm());
  record(true, 0);
  const double scale = region.Scale(at_x.jacobian * at_x.jacobian);
  while (goes_on) {
    const int before = count();
    finish(region.iteration() + 1);
    const double squared_norm = at_x.jacobian * at_x.jacobian;
    double step = 0.0;
    const bool has_step = FindStep(at_x.jacobian * at_x.residual,
                                   squared_norm,
                                   scale,
                                   region,
                                   strategy(&region),
                                   &step);
    const double change = at_x.jacobian * step;
    const double model_cost_change = -change * (at_x.residual + change / 2.0);
    if (!has_step || !(model_cost_change > 0.0)) {
      goes_on = region.RejectInvalidStep(strategy(&region));
      record(false, before);
      continue;
    }
    Answer candidate = script.At(call++);
    const bool has_candidate =
        candidate.is_evaluated && std::isfinite(candidate.residual);
    const double candidate_cost =
        has_candidate ? 0.5 * candidate.residual * candidate.residual : DBL_MAX;
    const TrustRegion::Verdict verdict = region.Judge(model_cost_change,
                                                      candidate_cost,
                                                      std::abs(x),
                                                      std::abs(step),
                                                      strategy(&region));
    if (verdict == TrustRegion::Verdict::kAccepted) {
      x += step;
      is_evaluated = evaluate(&at_x, &cost);
      goes_on = region.Linearize(is_evaluated, cost, gradient_norm());
      record(true, before);
    } else {
      goes_on = verdict == TrustRegion::Verdict::kRejected;
      record(false, before);
    }
  }
  std::tie(course.type, course.message) = Ending(region.end());
  course.num_successful_steps = region.num_successful_steps();
  course.num_unsuccessful_steps = region.num_unsuccessful_steps();
  course.initial_cost = region.initial_cost();
  course.final_cost = region.final_cost();
  return course;
}

ceres::Solver::Options SomeOptions() {
  ceres::Solver::Options options;
  options.linear_solver_type = ceres::DENSE_QR;
  options.logging_type = ceres::SILENT;
  return options;
}

// Radii are products of a few factors, each of rounding: their steps differ by
// the rounding of a division and a square root, a step of relative size 1e-3
// below the tie makes that 1e-13 in a radius.
void ExpectSameCourse(const Course& ours, const Course& ceres) {
  EXPECT_EQ(ours.type, ceres.type);
  EXPECT_EQ(ours.message, ceres.message);
  EXPECT_EQ(ours.num_successful_steps, ceres.num_successful_steps);
  EXPECT_EQ(ours.num_unsuccessful_steps, ceres.num_unsuccessful_steps);
  EXPECT_EQ(ours.initial_cost, ceres.initial_cost);
  EXPECT_EQ(ours.final_cost, ceres.final_cost);
  ASSERT_EQ(ours.is_successful, ceres.is_successful);
  ASSERT_EQ(ours.radius.size(), ceres.radius.size());
  for (size_t i = 0; i < ours.radius.size(); ++i) {
    EXPECT_NEAR(ours.radius[i], ceres.radius[i], 1e-9 * ceres.radius[i]) << i;
  }
}

void ExpectAsCeres(const ceres::Solver::Options& options,
                   const Script& script,
                   std::map<std::string, int>* endings) {
  const Course ceres = CourseOfCeres(options, script);
  DoglegRegion dogleg(DoglegOf(options));
  const auto of_dogleg = [&](TrustRegion*) { return &dogleg; };
  const auto damping = [](TrustRegion* region) { return region->damping(); };
  ExpectSameCourse(DoglegOf(options) == DoglegType::kNone
                       ? CourseOfStateMachine(options, script, damping)
                       : CourseOfStateMachine(options, script, of_dogleg),
                   ceres);
  ++(*endings)[ceres.message];
}

// Returns how many scripts end with each message.
std::map<std::string, int> RunRandomScripts(const ceres::Solver::Options& all) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> uniform(0.0, 1.0);
  std::map<std::string, int> endings;
  for (int i = 0; i < 5000; ++i) {
    Script script;
    script.start = std::pow(10.0, 4.0 * uniform(random) - 2.0);
    // Costs that mostly fall, at different rates; some rise, some can't be
    // evaluated, some have no slope.
    const double rate = uniform(random);
    double residual = std::pow(10.0, 6.0 * uniform(random) - 3.0);
    const double p_bad = uniform(random) < 0.3 ? 0.3 * uniform(random) : 0.0;
    const double p_flat = uniform(random) < 0.3 ? 0.5 * uniform(random) : 0.0;
    // With a slope of 1e-200 there is a gradient, and a model that stays.
    const double flat = uniform(random) < 0.5 ? 0.0 : 1e-200;
    script.start = flat > 0.0 ? 0.0 : script.start;
    const double p_rise = 0.5 * uniform(random);
    const int num_answers = 2 + static_cast<int>(40 * uniform(random));
    for (int k = 0; k < num_answers; ++k) {
      Answer answer;
      const bool rises = uniform(random) < p_rise;
      answer.residual = residual * (rises ? 1.0 + uniform(random) : 1.0);
      residual *= rises ? 1.0 : 1.0 - rate * uniform(random);
      answer.jacobian = uniform(random) < p_flat
                            ? flat
                            : std::pow(10.0, 3.0 * uniform(random) - 1.5);
      answer.is_evaluated = !(uniform(random) < p_bad);
      script.answers.push_back(answer);
    }
    ceres::Solver::Options options = all;
    options.max_num_iterations = static_cast<int>(60 * uniform(random));
    options.jacobi_scaling = uniform(random) < 0.5;
    options.initial_trust_region_radius =
        std::pow(10.0, 8.0 * uniform(random) - 4.0);
    options.max_trust_region_radius = 1e6;
    options.gradient_tolerance = flat > 0.0 ? 0.0 : 1e-10;
    options.min_trust_region_radius = uniform(random) < 0.2 ? 1e-5 : 1e-32;
    if (uniform(random) < 0.2) {
      script.stop_iteration = static_cast<int>(10 * uniform(random));
    }
    SCOPED_TRACE(i);
    ExpectAsCeres(options, script, &endings);
    if (testing::Test::HasFailure()) {
      break;
    }
  }
  return endings;
}

TEST(TrustRegion, DecidesAsCeresOnRandomScripts) {
  const std::map<std::string, int> endings = RunRandomScripts(SomeOptions());
  // Each ending was seen.
  EXPECT_EQ(endings.size(), 9) << testing::PrintToString(endings);
}

TEST(TrustRegion, TakesDoglegStepsAsCeresOnRandomScripts) {
  ceres::Solver::Options options = SomeOptions();
  options.trust_region_strategy_type = ceres::DOGLEG;
  for (const auto type : {ceres::TRADITIONAL_DOGLEG, ceres::SUBSPACE_DOGLEG}) {
    options.dogleg_type = type;
    const std::map<std::string, int> endings = RunRandomScripts(options);
    EXPECT_EQ(endings.size(), 9) << testing::PrintToString(endings);
  }
}

TEST(TrustRegion, EndsWhenItsTimeIsOver) {
  TrustRegion region{TrustRegionOptions()};
  ASSERT_TRUE(region.Begin(/*is_evaluated=*/true, 1.0, 1.0));
  region.EndInTime(2.0);
  EXPECT_FALSE(region.RejectInvalidStep());
  EXPECT_EQ(region.end(), TrustRegionEnd::kMaxTime);
  EXPECT_EQ(region.end_value(), 2.0);
}

TEST(TrustRegion, EndsAtOnceWithoutGradientAndWithoutIterations) {
  std::map<std::string, int> endings;
  ceres::Solver::Options options = SomeOptions();
  ExpectAsCeres(options, {{{0.0, 1.0, true}}}, &endings);
  ExpectAsCeres(options, {{{1.0, 0.0, true}}}, &endings);
  options.max_num_iterations = 0;
  ExpectAsCeres(options, {{{1.0, 1.0, true}}}, &endings);
}

TEST(TrustRegion, DampsWithinCeressBounds) {
  TrustRegionOptions options;
  options.initial_radius = 100.0;
  const TrustRegion region(options);
  // In scaled columns min(max(scale^2 q, 1e-6), 1e32) / radius.
  EXPECT_DOUBLE_EQ(region.Scale(9.0), 0.25);
  EXPECT_DOUBLE_EQ(region.SquaredDamping(4.0, 0.5), 1.0 / 25.0);
  EXPECT_DOUBLE_EQ(region.SquaredDamping(0.0, 0.5), 1e-6 / 25.0);
  EXPECT_DOUBLE_EQ(region.SquaredDamping(1e40, 1.0), 1e30);
}

TEST(DoglegRegion, FactorizesAgainWhereCeresDoes) {
  using Next = DoglegRegion::Next;
  double radius = 1.0;
  DoglegRegion dogleg(DoglegType::kTraditional);
  EXPECT_EQ(dogleg.Begin(), Next::kFactorize);
  EXPECT_EQ(dogleg.RaiseDamping(), Next::kFactorize);
  EXPECT_EQ(dogleg.mu(), 1e-8 * 10.0);
  dogleg.Reject(&radius);
  EXPECT_EQ(dogleg.Begin(), Next::kChoose);
  dogleg.Accept(0.5, 1.0, &radius);
  EXPECT_EQ(dogleg.Begin(), Next::kFactorize);
  EXPECT_DOUBLE_EQ(dogleg.mu(), 2e-8);
  dogleg.RejectInvalid(&radius);
  EXPECT_EQ(radius, 0.5);
  EXPECT_DOUBLE_EQ(dogleg.mu(), 2e-7);
  EXPECT_EQ(dogleg.Begin(), Next::kFactorize);
  int num_raised = 0;
  while (dogleg.RaiseDamping() == Next::kFactorize) {
    ++num_raised;
  }
  EXPECT_EQ(num_raised, 6);
  dogleg.RejectInvalid(&radius);
  EXPECT_EQ(dogleg.Begin(), Next::kFailed);
}

// A step of the subspace against the model at many angles of the circle. The
// root of the quartic is above mu, 1e-8, of which rounding of B is 1e-8.
TEST(DoglegRegion, FindsTheMinimumOfThePlane) {
  std::mt19937 random(2);
  std::uniform_real_distribution<double> uniform(-1.0, 1.0);
  for (int i = 0; i < 100; ++i) {
    SCOPED_TRACE(i);
    Eigen::Matrix2d root;
    root << uniform(random), uniform(random), 0.0,
        std::pow(10.0, 4.0 * uniform(random) - 4.0);
    const Eigen::Matrix2d b = root.transpose() * root;
    const Eigen::Vector2d g =
        root.transpose() * Eigen::Vector2d(uniform(random), uniform(random));
    const Eigen::Vector2d d =
        -(b + 1e-8 * Eigen::Matrix2d::Identity()).ldlt().solve(g);
    const double radius =
        d.norm() * std::pow(10.0, 3.0 * uniform(random) - 3.0);
    DoglegRegion dogleg(DoglegType::kSubspace);
    ASSERT_EQ(dogleg.Begin(), DoglegRegion::Next::kFactorize);
    dogleg.SetPoints(g.dot(g), g.dot(b * g), d.dot(d), g.dot(d));
    const double gradient[] = {g[0], g[1]};
    const double hessian[] = {b(0, 0), b(0, 1), b(1, 1)};
    dogleg.SetPlane(gradient, hessian);
    dogleg.Choose(radius);
    ASSERT_TRUE(dogleg.step().is_of_basis);
    const Eigen::Vector2d x(dogleg.step().a, dogleg.step().b);
    EXPECT_NEAR(x.norm(), radius, 1e-7 * radius);
    const auto model = [&](const Eigen::Vector2d& at) {
      return 0.5 * at.dot(b * at) + g.dot(at);
    };
    double least = 0.0;
    constexpr int kAngles = 20000;
    for (int k = 0; k < kAngles; ++k) {
      const double angle = 2.0 * M_PI * k / kAngles;
      least = std::min(
          least,
          model(radius * Eigen::Vector2d(std::cos(angle), std::sin(angle))));
    }
    const double size = radius * (g.norm() + b.norm() * radius);
    EXPECT_LE(model(radius / x.norm() * x), least + 1e-14 * size);
  }
}

}  // namespace
}  // namespace ceres_ext
