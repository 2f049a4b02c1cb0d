// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "ceres_ext/solver/pcg.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "Eigen/Dense"
#include "cuda_kernels/machine/host_machine.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ceres_ext::solver {
namespace {

using Eigen::MatrixXd;
using Eigen::VectorXd;
using kernels::HostMachine;
using testing::HasSubstr;

constexpr double kEpsilon = std::numeric_limits<double>::epsilon();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

struct Result {
  Termination termination = Termination::kFatalError;
  int num_iterations = 0;
  VectorXd x;
  std::string message;
};

// The algorithm and the stopping rules of Ceres 2.2.0, written down once more
// with dense matrices and a Ceres-like order of tests; and an exact solution,
// or one beyond the range of numbers, is a success.
Result DenseConjugateGradients(const MatrixXd& a,
                               const VectorXd& b,
                               const MatrixXd& preconditioner,
                               const StepOptions& options,
                               const StepPerSolveOptions& per_solve,
                               const VectorXd& x0 = {},
                               double model_constant = kInfinity) {
  Result result;
  VectorXd& x = result.x;
  x = x0.size() > 0 ? x0 : VectorXd::Zero(b.size());
  if (b.norm() == 0.0) {
    result.termination = Termination::kSuccess;
    return result;
  }
  const double tol_r = std::max(per_solve.r_tolerance, 0.0) * b.norm();
  VectorXd r = x0.size() > 0 ? b - a * x : b;
  if ((options.min_num_iterations == 0 && r.norm() <= tol_r) ||
      r.norm() == 0.0) {
    result.termination = Termination::kSuccess;
    return result;
  }
  VectorXd p;
  double rho = 1.0;
  double q0 = -x.dot(b + r);
  for (int i = 1;; ++i) {
    result.num_iterations = i;
    const VectorXd z = preconditioner * r;
    const double last_rho = rho;
    rho = r.dot(z);
    if (rho == 0.0 || std::isinf(rho)) {
      result.termination =
          rho == 0.0 && i > 1 ? Termination::kSuccess : Termination::kFailure;
      return result;
    }
    if (i == 1) {
      p = z;
    } else {
      const double beta = rho / last_rho;
      if (beta == 0.0 || std::isinf(beta)) {
        result.termination =
            beta == 0.0 ? Termination::kSuccess : Termination::kFailure;
        return result;
      }
      p = z + beta * p;
    }
    const VectorXd q = a * p;
    const double pq = p.dot(q);
    if (pq <= 0.0 || std::isinf(pq)) {
      result.termination = Termination::kNoConvergence;
      return result;
    }
    const double alpha = rho / pq;
    if (std::isinf(alpha)) {
      result.termination = Termination::kFailure;
      return result;
    }
    x += alpha * p;
    if (i % options.residual_reset_period == 0) {
      r = b - a * x;
    } else {
      r -= alpha * q;
    }
    const double q1 = -x.dot(b + r);
    const bool may_stop = i >= options.min_num_iterations;
    // A fraction of the decrease so far, and of the model's cost that is left;
    // the latter at most 1e4 times as accurate.
    const double model_cost = std::max(model_constant + q1, -1e-4 * q1);
    const double least =
        per_solve.use_model_cost && model_cost < -q1 ? model_cost : -q1;
    if (i * (q0 - q1) / least < per_solve.q_tolerance && may_stop) {
      result.termination = Termination::kSuccess;
      return result;
    }
    if (per_solve.model_cost_tolerance > 0.0 && may_stop &&
        i * (q1 - q0) / q1 < 0.1 &&
        i * (q0 - q1) / 2.0 < per_solve.model_cost_tolerance) {
      result.termination = Termination::kSuccess;
      return result;
    }
    q0 = q1;
    if ((r.norm() <= tol_r && may_stop) || r.norm() == 0.0) {
      result.termination = Termination::kSuccess;
      return result;
    }
    if (i >= options.max_num_iterations) {
      result.termination = Termination::kNoConvergence;
      return result;
    }
  }
}

// Looks at the scalars only when it must: steps after the end have to be
// no-ops.
class QueueingMachine : public HostMachine {
 public:
  using HostMachine::HostMachine;
  bool ShouldPoll(int) const { return false; }
};

// Repeats whole periods until the end, as a graph on a device does, after
// kNumQueued of them.
template <int kNumQueued>
class LoopingMachine : public QueueingMachine {
 public:
  using QueueingMachine::QueueingMachine;
  bool QueueToEnd(int i,
                  int period,
                  int max_num_iterations,
                  const std::function<kernels::Status(int)>& iterate,
                  const kernels::PcgScalars* scalars,
                  PcgLoop* /*loop*/) {
    if (i != kNumQueued * period || i >= max_num_iterations) {
      return false;
    }
    do {
      for (int k = 0; k < period; ++k) {
        EXPECT_TRUE(iterate(k).ok());
      }
    } while (scalars->end == kernels::PcgEnd::kRunning);
    return true;
  }
};

// Has an operation of its own, which is found before the host's.
class CountingMachine : public HostMachine {
 public:
  using HostMachine::HostMachine;
  int num_residuals = 0;
  int num_resets = 0;
};
kernels::Status Run(const kernels::PcgResidualParams& params,
                    CountingMachine* machine) {
  ++machine->num_residuals;
  machine->num_resets += params.reset;
  return Run(params, static_cast<HostMachine*>(machine));
}

template <typename Machine>
Result Solve(const std::function<VectorXd(const VectorXd&)>& a,
             const VectorXd& b,
             const std::function<VectorXd(const VectorXd&)>& preconditioner,
             const StepOptions& options,
             const StepPerSolveOptions& per_solve,
             Machine* machine,
             const VectorXd& x0 = {},
             double model_constant = kNaN) {
  const int64_t n = b.size();
  Result result;
  // Whatever was in the vectors must not matter.
  result.x = x0.size() > 0 ? x0 : VectorXd::Constant(n, kNaN);
  VectorXd p = VectorXd::Constant(n, kNaN);
  VectorXd r = p;
  VectorXd z = p;
  // As a solve before has left them.
  kernels::PcgScalars device_scalars;
  device_scalars.num_iterations = 7;
  device_scalars.end = kernels::PcgEnd::kResidual;
  device_scalars.model_constant = model_constant;
  PcgVectors vectors;
  vectors.space.num_f = n;
  vectors.rhs = b.data();
  vectors.x = result.x.data();
  vectors.p = p.data();
  vectors.r = r.data();
  vectors.z = z.data();
  vectors.scalars = &device_scalars;
  vectors.x_is_given = x0.size() > 0;
  const auto apply = [n](const auto& f) {
    return [&f, n](const double* from, double* to) {
      VectorXd::Map(to, n) = f(VectorXd::Map(from, n));
      return kernels::Status();
    };
  };
  kernels::PcgScalars scalars;
  typename Machine::PcgLoop loop;
  EXPECT_TRUE(ConjugateGradients(
                  options,
                  per_solve,
                  /*forcing=*/{},
                  /*breakdowns=*/{},
                  vectors,
                  apply(a),
                  apply(preconditioner),
                  [] { return kernels::Status(); },
                  &loop,
                  machine,
                  &scalars)
                  .ok());
  result.termination = PcgTermination(scalars.end);
  result.num_iterations = scalars.num_iterations;
  result.message = PcgMessage(scalars);
  return result;
}

template <typename Machine>
Result Solve(const std::function<VectorXd(const VectorXd&)>& a,
             const VectorXd& b,
             const std::function<VectorXd(const VectorXd&)>& preconditioner,
             const StepOptions& options,
             const StepPerSolveOptions& per_solve,
             const VectorXd& x0 = {},
             double model_constant = kNaN) {
  Machine machine(2);
  return Solve(
      a, b, preconditioner, options, per_solve, &machine, x0, model_constant);
}

class ConjugateGradientsTest : public testing::Test {
 protected:
  explicit ConjugateGradientsTest(int n = 60) {
    std::mt19937 generator(5);
    std::normal_distribution<double> normal;
    const MatrixXd j =
        MatrixXd::NullaryExpr(2 * n, n, [&] { return normal(generator); });
    a_ = j.transpose() * j;
    // Columns of unequal size, so that the preconditioner matters.
    const VectorXd scale =
        VectorXd::NullaryExpr(n, [&] { return std::exp(normal(generator)); });
    a_ = scale.asDiagonal() * a_ * scale.asDiagonal();
    b_ = VectorXd::NullaryExpr(n, [&] { return normal(generator); });
    m_ = a_.diagonal().cwiseInverse().asDiagonal();
    options_.min_num_iterations = 0;
    options_.max_num_iterations = 500;
    per_solve_.q_tolerance = -1.0;
    per_solve_.r_tolerance = -1.0;
  }

  // The two follow the same path until rounding has grown to matter: the same
  // ending, number of iterations and x.
  void ExpectSamePath(Termination termination, const std::string& message) {
    const Result expected = DenseConjugateGradients(
        a_, b_, m_, options_, per_solve_, x0_, model_constant_);
    EXPECT_EQ(expected.termination, termination);
    const auto a = [this](const VectorXd& x) -> VectorXd { return a_ * x; };
    const auto m = [this](const VectorXd& x) -> VectorXd { return m_ * x; };
    for (const Result& result :
         {Solve<HostMachine>(
              a, b_, m, options_, per_solve_, x0_, model_constant_),
          Solve<QueueingMachine>(
              a, b_, m, options_, per_solve_, x0_, model_constant_),
          Solve<LoopingMachine<0>>(
              a, b_, m, options_, per_solve_, x0_, model_constant_),
          Solve<LoopingMachine<1>>(
              a, b_, m, options_, per_solve_, x0_, model_constant_)}) {
      EXPECT_EQ(result.termination, expected.termination) << result.message;
      EXPECT_EQ(result.num_iterations, expected.num_iterations);
      EXPECT_THAT(result.message, HasSubstr(message));
      // Each iteration makes n roundings of products and sums, and CG amplifies
      // them by at most the condition of the preconditioned matrix.
      const VectorXd d = m_.diagonal().cwiseSqrt();
      const VectorXd values = Eigen::SelfAdjointEigenSolver<MatrixXd>(
                                  d.asDiagonal() * a_ * d.asDiagonal())
                                  .eigenvalues();
      const double bound = result.num_iterations * b_.size() * kEpsilon *
                           values[values.size() - 1] / values[0];
      // In the norm of the preconditioner.
      const double size = expected.x.cwiseQuotient(d).norm() +
                          (x0_.size() > 0 ? x0_.cwiseQuotient(d).norm() : 0.0);
      EXPECT_LE((result.x - expected.x).cwiseQuotient(d).norm(), bound * size);
    }
  }

  MatrixXd a_;
  VectorXd b_;
  VectorXd x0_;  // empty: zero
  double model_constant_ = kInfinity;
  MatrixXd m_;
  StepOptions options_;
  StepPerSolveOptions per_solve_;
};

TEST_F(ConjugateGradientsTest, QuadraticModel) {
  for (const double q_tolerance : {0.9, 0.1, 1e-2, 1e-4, 1e-8}) {
    per_solve_.q_tolerance = q_tolerance;
    ExpectSamePath(Termination::kSuccess, "zeta");
  }
}

// A model that can be fitted well is fitted better than eta asks, and one that
// fits exactly not without end.
TEST_F(ConjugateGradientsTest, CostThatIsLeft) {
  const double gain = b_.dot(a_.llt().solve(b_));
  const auto iterations = [&](double least_cost) {
    model_constant_ = gain * (1.0 + least_cost);
    ExpectSamePath(Termination::kSuccess, "zeta");
    return DenseConjugateGradients(
               a_, b_, m_, options_, per_solve_, x0_, model_constant_)
        .num_iterations;
  };
  for (const double q_tolerance : {0.1, 1e-2}) {
    per_solve_.q_tolerance = q_tolerance;
    per_solve_.use_model_cost = false;
    const int as_ceres = iterations(0.0);
    per_solve_.use_model_cost = true;
    // More than half of the cost stays: Ceres's rule alone.
    EXPECT_EQ(iterations(10.0), as_ceres);
    EXPECT_EQ(iterations(1.0), as_ceres);
    // As much more accurate as little is left, down to 1e-4.
    const int hundredth = iterations(1e-2);
    const int exact_fit = iterations(0.0);
    EXPECT_GT(hundredth, as_ceres);
    EXPECT_GT(exact_fit, hundredth);
    per_solve_.q_tolerance = 0.5e-4 * q_tolerance;
    per_solve_.use_model_cost = false;
    EXPECT_LE(exact_fit, iterations(0.0));
  }
}

// A looser end than q_tolerance, where it costs less than is asked for: what is
// left to gain is at most twice the estimate here.
TEST_F(ConjugateGradientsTest, ModelCost) {
  per_solve_.q_tolerance = 1e-8;
  const VectorXd solution = a_.ldlt().solve(b_);
  const auto a = [this](const VectorXd& x) -> VectorXd { return a_ * x; };
  const auto m = [this](const VectorXd& x) -> VectorXd { return m_ * x; };
  int last_num_iterations = 500;
  for (const double tolerance : {1e-6, 1e-4, 1e-2}) {
    per_solve_.model_cost_tolerance = tolerance * b_.dot(solution) / 2.0;
    ExpectSamePath(Termination::kSuccess, "is left of the model's cost");
    const Result result = Solve<HostMachine>(
        a, b_, m, options_, per_solve_, x0_, model_constant_);
    const VectorXd error = result.x - solution;
    EXPECT_LE(error.dot(a_ * error) / 2.0,
              2.0 * per_solve_.model_cost_tolerance);
    EXPECT_LT(result.num_iterations, last_num_iterations);
    last_num_iterations = result.num_iterations;
  }
  // Never before zeta < 0.1.
  per_solve_.q_tolerance = 0.1;
  const int at_most =
      Solve<HostMachine>(a, b_, m, options_, per_solve_, x0_, model_constant_)
          .num_iterations;
  per_solve_.q_tolerance = 1e-8;
  per_solve_.model_cost_tolerance = b_.dot(solution);
  EXPECT_EQ(
      Solve<HostMachine>(a, b_, m, options_, per_solve_, x0_, model_constant_)
          .num_iterations,
      at_most);
}

TEST_F(ConjugateGradientsTest, Residual) {
  for (const double r_tolerance : {0.5, 1e-2, 1e-5, 1e-9}) {
    per_solve_.r_tolerance = r_tolerance;
    ExpectSamePath(Termination::kSuccess, "|r|");
  }
}

TEST_F(ConjugateGradientsTest, ResidualOfZeroMatrixProducts) {
  per_solve_.r_tolerance = 1.0;
  ExpectSamePath(Termination::kSuccess, "Convergence. |r|");
  options_.min_num_iterations = 1;
  ExpectSamePath(Termination::kSuccess, "Iteration:");
}

// More iterations than the residual reset period.
TEST_F(ConjugateGradientsTest, MaxNumIterations) {
  for (const int n : {1, 2, 9, 10, 11, 20, 25}) {
    options_.max_num_iterations = n;
    ExpectSamePath(Termination::kNoConvergence, "Maximum number");
  }
  // As in Ceres, there is one iteration at least.
  options_.max_num_iterations = 0;
  ExpectSamePath(Termination::kNoConvergence, "Maximum number");
}

TEST_F(ConjugateGradientsTest, ResidualResetPeriod) {
  for (const int period : {1, 2, 3, 1000}) {
    options_.residual_reset_period = period;
    options_.max_num_iterations = 12;
    ExpectSamePath(Termination::kNoConvergence, "Maximum number");
  }
}

// From a start that is nearly a solution, and from one that is worse than zero.
TEST_F(ConjugateGradientsTest, StartsFromX) {
  const VectorXd solution = a_.llt().solve(b_);
  for (const double factor : {0.999, 5.0, -3.0}) {
    x0_ = factor * solution;
    per_solve_ = {-kInfinity, -1.0};
    for (const int n : {1, 2, 9, 10, 11, 25}) {
      options_.max_num_iterations = n;
      ExpectSamePath(Termination::kNoConvergence, "Maximum number");
    }
    options_.max_num_iterations = 500;
    for (const double q_tolerance : {0.1, 1e-4}) {
      per_solve_ = {q_tolerance, -1.0};
      ExpectSamePath(Termination::kSuccess, "zeta");
    }
    per_solve_ = {-kInfinity, 1e-6};
    ExpectSamePath(Termination::kSuccess, "Iteration:");
    options_.min_num_iterations = 60;
    ExpectSamePath(Termination::kSuccess, "Iteration: 60 ");
    options_.min_num_iterations = 0;
  }
  // The residual of x, not that of zero, may end a solve at once.
  x0_ = 0.999 * solution;
  per_solve_.r_tolerance = 0.01;
  ExpectSamePath(Termination::kSuccess, "Convergence. |r|");
  x0_ = -solution;
  per_solve_.r_tolerance = 1.5;
  ExpectSamePath(Termination::kSuccess, "Iteration:");
  // An exact solution ends it whatever is required.
  a_ = 2.0 * MatrixXd::Identity(4, 4);
  m_ = a_.inverse();
  b_ = VectorXd::Constant(4, 2.0);
  x0_ = VectorXd::Ones(4);
  options_.min_num_iterations = 5;
  per_solve_.r_tolerance = -1.0;
  ExpectSamePath(Termination::kSuccess, "Convergence. |r| = 0");
}

// One product per iteration, one per reset of the residual and one for a start
// that is given.
TEST_F(ConjugateGradientsTest, CountsProducts) {
  options_.max_num_iterations = 20;
  int num_products = 0;
  const auto a = [&](const VectorXd& x) -> VectorXd {
    ++num_products;
    return a_ * x;
  };
  const auto m = [this](const VectorXd& x) -> VectorXd { return m_ * x; };
  const Result result = Solve<HostMachine>(a, b_, m, options_, per_solve_);
  EXPECT_EQ(result.num_iterations, 20);
  EXPECT_EQ(num_products, 20 + 2);
  num_products = 0;
  Solve<HostMachine>(a, b_, m, options_, per_solve_, VectorXd::Zero(b_.size()));
  EXPECT_EQ(num_products, 20 + 2 + 1);
}

TEST_F(ConjugateGradientsTest, OperationsOfAMachineOfOnesOwn) {
  options_.max_num_iterations = 25;
  const auto a = [this](const VectorXd& x) -> VectorXd { return a_ * x; };
  const auto m = [this](const VectorXd& x) -> VectorXd { return m_ * x; };
  CountingMachine machine(2);
  const Result result = Solve(a, b_, m, options_, per_solve_, &machine);
  EXPECT_EQ(machine.num_residuals, 25);
  EXPECT_EQ(machine.num_resets, 2);
  EXPECT_EQ(result.x, Solve<HostMachine>(a, b_, m, options_, per_solve_).x);
}

TEST_F(ConjugateGradientsTest, MinNumIterations) {
  // zeta is one after the first iteration.
  per_solve_.q_tolerance = 1.5;
  for (const int n : {1, 5, 15}) {
    options_.min_num_iterations = n;
    ExpectSamePath(Termination::kSuccess,
                   "Iteration: " + std::to_string(n) + " ");
  }
}

TEST_F(ConjugateGradientsTest, ZeroRightHandSide) {
  b_.setZero();
  const Result result = Solve<HostMachine>(
      [this](const VectorXd& x) -> VectorXd { return a_ * x; },
      b_,
      [this](const VectorXd& x) -> VectorXd { return m_ * x; },
      options_,
      per_solve_);
  EXPECT_EQ(result.termination, Termination::kSuccess);
  EXPECT_EQ(result.num_iterations, 0);
  EXPECT_EQ(result.x, VectorXd::Zero(b_.size()));
  EXPECT_EQ(result.message, "Convergence. |b| = 0.");
}

TEST_F(ConjugateGradientsTest, Indefinite) {
  a_ = -a_;
  ExpectSamePath(Termination::kNoConvergence, "not positive definite");
  // Indefinite only after some iterations.
  a_ = -a_;
  a_(3, 3) = -a_(3, 3);
  const Result expected =
      DenseConjugateGradients(a_, b_, m_, options_, per_solve_);
  EXPECT_EQ(expected.termination, Termination::kNoConvergence);
  const Result result = Solve<QueueingMachine>(
      [this](const VectorXd& x) -> VectorXd { return a_ * x; },
      b_,
      [this](const VectorXd& x) -> VectorXd { return m_ * x; },
      options_,
      per_solve_);
  EXPECT_EQ(result.termination, expected.termination);
  EXPECT_EQ(result.num_iterations, expected.num_iterations);
}

TEST_F(ConjugateGradientsTest, SolvedExactly) {
  // After one iteration r is zero.
  a_ = MatrixXd::Identity(4, 4);
  m_ = a_;
  b_ = VectorXd::Constant(4, 2.0);
  ExpectSamePath(Termination::kSuccess, "Iteration: 1 Convergence. |r|");
  // There is no iteration after it, whatever is asked for.
  options_.min_num_iterations = 5;
  ExpectSamePath(Termination::kSuccess, "Iteration: 1 Convergence. |r|");
}

// The second direction is along elements of b that are so small that r'z is
// zero though r is not, or is a number whose quotient by the first is zero.
TEST_F(ConjugateGradientsTest, Underflow) {
  for (const double small : {1e-170, 1e-158}) {
    for (const double large : {1.0, 1e10}) {
      a_ = MatrixXd::Identity(2, 2);
      a_(1, 1) = 2.0;
      m_ = MatrixXd::Identity(2, 2);
      b_ = VectorXd::Constant(2, large);
      b_[1] = small;
      ExpectSamePath(Termination::kSuccess, "Convergence");
    }
  }
}

TEST_F(ConjugateGradientsTest, NotFinite) {
  struct Case {
    double a, b, m;
    Termination termination;
  };
  // Infinity ends a solve, NaN runs on, as in Ceres.
  for (const Case& c : {Case{1, kInfinity, 1, Termination::kFailure},
                        Case{kInfinity, 1, 1, Termination::kNoConvergence},
                        Case{1, 1, kInfinity, Termination::kFailure},
                        Case{1, kNaN, 1, Termination::kNoConvergence},
                        Case{kNaN, 1, 1, Termination::kNoConvergence},
                        Case{1, 1, kNaN, Termination::kNoConvergence},
                        Case{1e-300, 1e200, 1, Termination::kFailure},
                        // Solved exactly, by an alpha of one.
                        Case{1e-200, 1, 1e200, Termination::kSuccess},
                        Case{1, 1, 0, Termination::kFailure}}) {
    options_.max_num_iterations = 25;
    a_ = MatrixXd::Constant(1, 1, c.a);
    b_ = VectorXd::Constant(1, c.b);
    m_ = MatrixXd::Constant(1, 1, c.m);
    const Result expected =
        DenseConjugateGradients(a_, b_, m_, options_, per_solve_);
    EXPECT_EQ(expected.termination, c.termination);
    const Result result = Solve<QueueingMachine>(
        [this](const VectorXd& x) -> VectorXd { return a_ * x; },
        b_,
        [this](const VectorXd& x) -> VectorXd { return m_ * x; },
        options_,
        per_solve_);
    EXPECT_EQ(result.termination, c.termination) << result.message;
    EXPECT_EQ(result.num_iterations, expected.num_iterations);
  }
}

TEST(StepOptions, Validate) {
  StepOptions options;
  std::string error;
  EXPECT_TRUE(options.Validate(&error));
  options.use_schur = false;
  EXPECT_FALSE(options.Validate(&error));
  EXPECT_THAT(error, HasSubstr("SCHUR_JACOBI"));
  options.preconditioner = PreconditionerType::kJacobi;
  EXPECT_TRUE(options.Validate(&error));
  options.min_num_iterations = -1;
  EXPECT_FALSE(options.Validate(&error));
  EXPECT_THAT(error, HasSubstr("min_num_iterations = -1"));
  options.min_num_iterations = 10;
  options.max_num_iterations = 9;
  EXPECT_FALSE(options.Validate(&error));
  EXPECT_THAT(error, HasSubstr("max_num_iterations = 9"));
  options.max_num_iterations = 10;
  EXPECT_TRUE(options.Validate(&error));
  options.residual_reset_period = 0;
  EXPECT_FALSE(options.Validate(&error));
  EXPECT_THAT(error, HasSubstr("residual_reset_period = 0"));
  options.residual_reset_period = 10;

  // The settings of power series matter where there is one.
  options.max_num_spse_iterations = 0;
  options.spse_tolerance = kNaN;
  EXPECT_TRUE(options.Validate(&error));
  for (const bool initialization : {false, true}) {
    options = {};
    if (initialization) {
      options.use_spse_initialization = true;
    } else {
      options.preconditioner = PreconditionerType::kSchurPowerSeriesExpansion;
    }
    options.spse_tolerance = 0.0;
    options.max_num_spse_iterations = 1;
    EXPECT_TRUE(options.Validate(&error));
    options.max_num_spse_iterations = 0;
    EXPECT_FALSE(options.Validate(&error));
    EXPECT_THAT(error, HasSubstr("max_num_spse_iterations = 0"));
    options.max_num_spse_iterations = 1;
    for (const double tolerance : {-1e-3, kNaN}) {
      options.spse_tolerance = tolerance;
      EXPECT_FALSE(options.Validate(&error));
      EXPECT_THAT(error, HasSubstr("spse_tolerance = "));
    }
    options.spse_tolerance = 0.1;
    options.use_schur = false;
    if (initialization) {
      options.preconditioner = PreconditionerType::kJacobi;
    }
    EXPECT_FALSE(options.Validate(&error));
    EXPECT_THAT(error, HasSubstr("SCHUR_POWER_SERIES_EXPANSION"));
  }
}

}  // namespace
}  // namespace ceres_ext::solver
