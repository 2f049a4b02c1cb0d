// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Products by the blocks of W on the host, against dense matrices and, in the
// solver, against those without.
#include "studies/explicit_w.h"

#include <limits>
#include <tuple>
#include <type_traits>
#include <vector>

#include "benchmarks/inexact_solver.h"
#include "gtest/gtest.h"
#include "studies/explicit_w_batch.h"
#include "tests/kernels/dense_problem.h"
#include "tests/kernels/run_ok.h"
#include "tests/kernels/solver_configurations.h"

namespace ceres_ext::bal {
namespace {

using kernels::DenseProblem;
using kernels::ExpectWithin;
using kernels::kEpsilon;
using kernels::kFloatEpsilon;
using kernels::kHostLayout;
using kernels::MatrixXd;
using kernels::PackedSize;
using kernels::RunOk;
using kernels::Structure;
using kernels::VectorXd;

constexpr int C = 9;
using Shape = kernels::BalShape<C>;

template <typename T>
class AgainstDense {
 public:
  using Source = typename DenseProblem<T, C>::Source;

  AgainstDense(const Structure& structure, bool damped, bool padded)
      : problem_(structure, 31) {
    if (padded) {
      problem_.Pad(C - 2);
    }
    // Points seen once need damping to be full rank.
    const bool point_damped = damped || problem_.HasPointSeenOnce();
    camera_diagonal_ = damped ? problem_.camera_diagonal.data() : nullptr;
    point_diagonal_ = point_damped ? problem_.point_diagonal.data() : nullptr;

    e_ = problem_.E();
    f_ = problem_.F();
    const MatrixXd e_abs = e_.cwiseAbs();
    const MatrixXd f_abs = f_.cwiseAbs();
    u_ = f_.transpose() * f_ + problem_.DampingF(damped);
    v_ = e_.transpose() * e_ + problem_.DampingE(point_damped);
    w_ = f_.transpose() * e_;
    vi_ = kernels::InversePointBlocks(v_, &vi_bound_);
    u_abs_ = f_abs.transpose() * f_abs + problem_.DampingF(damped);
    v_abs_ = e_abs.transpose() * e_abs + problem_.DampingE(point_damped);
    w_abs_ = f_abs.transpose() * e_abs;

    // A product has at most that many roundings on the way to an element: a
    // sum over rows, one over blocks of a row, and a few products. W is rounded
    // to T when it is stored, and used twice.
    bound_ = (4 * problem_.num_observations() + 2 * C + 16) * kEpsilon +
             (std::is_same_v<T, double> ? 0.0 : 2 * kFloatEpsilon);
    ComputeBlocks();
  }

  void Run() {
    Coupling();
    for (int i = 0; i < 2; ++i) {  // Twice on one object.
      Schur();
      BackSubstitute();
      Normal();
    }
  }

 private:
  void ComputeBlocks() {
    packed_u_.resize(PackedSize(C) * problem_.num_cameras());
    packed_v_.resize(6 * problem_.num_points());
    packed_vi_.resize(6 * problem_.num_points());
    stored_w_.resize(3 * C * problem_.num_observations());
    point_gradient_.resize(3 * problem_.num_points());
    kernels::Breakdown breakdown;
    ExplicitBlocksParams<Source, kHostLayout> params;
    params.normal.index = problem_.index();
    params.normal.jacobian = problem_.source();
    params.normal.b = problem_.b.data();
    params.normal.point_diagonal = point_diagonal_;
    params.normal.u = {packed_u_.data(), problem_.num_cameras()};
    params.normal.v = {packed_v_.data(), problem_.num_points()};
    params.normal.v_inverse = {packed_vi_.data(), problem_.num_points()};
    params.normal.point_gradient = point_gradient_.data();
    params.normal.breakdown = &breakdown;
    params.w = {stored_w_.data(), problem_.num_observations()};
    RunOk(params, &problem_.machine);
    ASSERT_EQ(breakdown.first_block, kernels::Breakdown::kNone);
  }

  void Coupling() {
    const double rounding =
        std::is_same_v<T, double> ? 3 * kEpsilon : kFloatEpsilon;
    const kernels::ObservationIndexRef& index = problem_.index();
    for (int64_t k = 0; k < problem_.num_observations(); ++k) {
      const MatrixXd jc = f_.block(2 * k, C * index.camera_id[k], 2, C);
      const MatrixXd jp = e_.block(2 * k, 3 * index.point_id[k], 2, 3);
      const MatrixXd expected = jc.transpose() * jp;
      const MatrixXd scale = jc.transpose().cwiseAbs() * jp.cwiseAbs();
      for (int i = 0; i < 3 * C; ++i) {
        EXPECT_LE(std::abs(stored_w_[3 * C * k + i] - expected(i / 3, i % 3)),
                  rounding * scale(i / 3, i % 3));
      }
    }
  }

  void Schur() {
    const VectorXd p = problem_.RandomVector(problem_.num_f());
    VectorXd q = problem_.RandomVector(problem_.num_f());
    const VectorXd before = q;
    SchurProductExplicitWParams<T, Shape, kHostLayout> params;
    params.index = problem_.index();
    params.u = {packed_u_.data(), problem_.num_cameras()};
    params.w = {stored_w_.data(), problem_.num_observations()};
    params.v_inverse = {packed_vi_.data(), problem_.num_points()};
    params.camera_diagonal = camera_diagonal_;
    params.p = p.data();
    params.q = q.data();
    // Scalars that have ended stop a product.
    kernels::PcgScalars scalars;
    scalars.end = kernels::PcgEnd::kResidual;
    params.scalars = &scalars;
    RunOk(params, &problem_.machine);
    EXPECT_EQ(q, before);
    params.scalars = nullptr;
    RunOk(params, &problem_.machine);
    ExpectWithin(
        q,
        u_ * p - w_ * (vi_ * (w_.transpose() * p)),
        bound_ * (u_abs_ * p.cwiseAbs() +
                  w_abs_ * (vi_bound_ * (w_abs_.transpose() * p.cwiseAbs()))));
  }

  void BackSubstitute() {
    const VectorXd z = problem_.RandomVector(problem_.num_f());
    VectorXd y = problem_.RandomVector(problem_.num_e());
    BackSubstituteExplicitWParams<T, Shape, kHostLayout> params;
    params.index = problem_.index();
    params.w = {stored_w_.data(), problem_.num_observations()};
    params.v_inverse = {packed_vi_.data(), problem_.num_points()};
    params.point_gradient = point_gradient_.data();
    params.z = z.data();
    params.y = y.data();
    RunOk(params, &problem_.machine);
    ExpectWithin(y,
                 vi_ * (e_.transpose() * problem_.b - w_.transpose() * z),
                 bound_ * (vi_bound_ *
                           (e_.transpose().cwiseAbs() * problem_.b.cwiseAbs() +
                            w_abs_.transpose() * z.cwiseAbs())));
  }

  void Normal() {
    const int64_t n = problem_.num_columns();
    const VectorXd p = problem_.RandomVector(n);
    VectorXd q = problem_.RandomVector(n);
    MatrixXd a(n, n);
    a << v_, w_.transpose(), w_, u_;
    MatrixXd a_abs(n, n);
    a_abs << v_abs_, w_abs_.transpose(), w_abs_, u_abs_;
    NormalProductExplicitWParams<T, Shape, kHostLayout> params;
    params.index = problem_.index();
    params.u = {packed_u_.data(), problem_.num_cameras()};
    params.v = {packed_v_.data(), problem_.num_points()};
    params.w = {stored_w_.data(), problem_.num_observations()};
    params.camera_diagonal = camera_diagonal_;
    params.point_diagonal = point_diagonal_;
    params.point_p = p.data();
    params.camera_p = p.data() + problem_.num_e();
    params.point_q = q.data();
    params.camera_q = q.data() + problem_.num_e();
    RunOk(params, &problem_.machine);
    ExpectWithin(q, a * p, bound_ * (a_abs * p.cwiseAbs()));
  }

  DenseProblem<T, C> problem_;
  const double* camera_diagonal_;
  const double* point_diagonal_;
  MatrixXd e_, f_, u_, v_, w_, vi_, vi_bound_;
  MatrixXd u_abs_, v_abs_, w_abs_;
  double bound_;
  std::vector<double> packed_u_, packed_v_, packed_vi_, point_gradient_;
  std::vector<T> stored_w_;
};

class ExplicitW
    : public testing::TestWithParam<std::tuple<Structure, bool, bool>> {
 protected:
  template <typename T>
  void Run() {
    const auto& [structure, damped, padded] = GetParam();
    AgainstDense<T>(structure, damped, padded).Run();
  }
};

TEST_P(ExplicitW, Double) { Run<double>(); }
TEST_P(ExplicitW, Float) { Run<float>(); }

INSTANTIATE_TEST_SUITE_P(
    Edges,
    ExplicitW,
    testing::Combine(testing::ValuesIn(kernels::EdgeStructures()),
                     testing::Bool(),
                     testing::Bool()),
    [](const auto& info) {
      return std::get<0>(info.param).name +
             (std::get<1>(info.param) ? "_damped" : "_undamped") +
             (std::get<2>(info.param) ? "_padded" : "");
    });

// Implicit and explicit products are the same system to PCG: it takes the same
// path, with the same number of iterations.
TEST(ExplicitWBatch, FollowsImplicit) {
  using Problem = DenseProblem<double, C>;
  using Source = Problem::Source;
  using kernels::HostMachine;
  const Structure structure = kernels::RandomStructure("random", 8, 200, 4, 6);
  for (const solver::StepOptions& options : solver::SolverConfigurations()) {
    SCOPED_TRACE(ConfigurationName(options));
    if (options.use_explicit_schur_complement) {
      continue;  // It has no products with W.
    }
    Problem problem(structure, 7);
    if (options.has_power_series()) {
      ExplicitWBatch<HostMachine, Source> batch;
      EXPECT_EQ(batch.SetupSolver(options, {}).code,
                kernels::StatusCode::kUnsupported);
      continue;
    }
    solver::ObservationSystem<Source> system;
    system.jacobian = problem.source();
    system.b = problem.b.data();
    system.camera_diagonal = problem.camera_diagonal.data();
    system.point_diagonal = problem.point_diagonal.data();
    solver::StepPerSolveOptions per_solve;
    per_solve.q_tolerance = 1e-3;
    const auto solve = [&](auto* solver, VectorXd* step) {
      const kernels::Status status =
          solver->Setup(options, problem.index(), &problem.machine);
      EXPECT_TRUE(status.ok()) << status.message;
      step->setConstant(problem.num_columns(),
                        std::numeric_limits<double>::quiet_NaN());
      const solver::StepSummary summary = solver->Solve(
          system, per_solve, step->data() + problem.num_e(), step->data());
      EXPECT_EQ(summary.termination, solver::Termination::kSuccess)
          << summary.message;
      return summary.num_iterations;
    };
    solver::InexactSolver<HostMachine, Source> implicit_solver;
    solver::
        InexactSolver<HostMachine, Source, ExplicitWBatch<HostMachine, Source>>
            explicit_solver;
    VectorXd implicit_step;
    VectorXd explicit_step;
    const int num_iterations = solve(&implicit_solver, &implicit_step);
    EXPECT_EQ(solve(&explicit_solver, &explicit_step), num_iterations);
    EXPECT_GT(num_iterations, 2);
    // Products of sums of 2 num_observations terms, and what the iterations
    // make of it: the condition of J'J + D^2, well below 1e3 here.
    const double bound =
        1e3 * num_iterations * 4 * problem.num_observations() * kEpsilon;
    EXPECT_LE((implicit_step - explicit_step).norm(),
              bound * implicit_step.norm());
  }
}

}  // namespace
}  // namespace ceres_ext::bal
