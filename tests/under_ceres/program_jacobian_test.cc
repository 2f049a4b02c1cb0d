// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Evaluator and Jacobian against Ceres's own evaluator on the same Program:
// every number that they hand to the trust-region loop.

#include "ceres_ext/under_ceres/program_jacobian.h"

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "Eigen/Core"
#include "ceres/evaluator.h"
#include "ceres/loss_function.h"
#include "ceres/manifold.h"
#include "ceres/preprocessor.h"
#include "ceres/problem_impl.h"
#include "ceres/program.h"
#include "ceres/sparse_matrix.h"
#include "ceres/sphere_manifold.h"
#include "ceres_ext/bal_cost_functions.h"
#include "ceres_ext/import/import_rows.h"
#include "ceres_ext/plan/solve_plan.h"
#include "ceres_ext/session/kept_machines.h"
#include "ceres_ext/session/session.h"
#include "ceres_ext/under_ceres/ceres_program.h"
#include "ceres_ext/under_ceres/program_evaluator.h"
#include "ceres_ext/under_ceres/program_rows.h"
#include "gtest/gtest.h"
#include "tests/common/bal_test_problem.h"

namespace ceres_ext {
namespace {

using ceres::internal::Evaluator;

constexpr double kEps = std::numeric_limits<double>::epsilon();

// Contents of a problem: each has those before it too.
enum Content { kNothing, kConstants, kManifolds, kLosses };

struct Setting {
  const char* name;
  int camera_size;
  JacobianType jacobian;
  Content content;
  // Ceres evaluates every third residual block, or all.
  enum HostRowsKind { kNone, kSome, kAll } host_rows = kNone;
};

// Both evaluators of one problem.
class Fixture {
 public:
  explicit Fixture(const Setting& setting)
      : bal_(MakeBalTestProblem(7, 40, 4, setting.camera_size)) {
    auto* impl = new ceres::internal::ProblemImpl();
    pp_.gradient_checking_problem.reset(impl);  // owned by the pp
    pp_.problem = impl;
    AddBlocks(setting, impl);
    std::string error;
    pp_.reduced_program = impl->program().CreateReducedProgram(
        &pp_.removed_parameter_blocks, &pp_.fixed_cost, &error);
    EXPECT_NE(pp_.reduced_program, nullptr) << error;
    pp_.options.num_threads = 1;

    Evaluator::Options options;
    options.linear_solver_type = ceres::CGNR;
    options.num_eliminate_blocks = 0;
    options.context = impl->context();
    stock_ = Evaluator::Create(options, pp_.reduced_program.get(), &error);
    EXPECT_NE(stock_, nullptr) << error;

    ImportOptions import_options;
    import_options.batch_evaluation = setting.host_rows != Setting::kAll;
    EXPECT_TRUE(ImportProgram(*pp_.reduced_program,
                              import_options,
                              session_.host_context(),
                              &structure_,
                              &error))
        << error;
    program_ = std::make_unique<CeresProgram>(pp_.reduced_program.get(),
                                              session_.host_context());
    SessionSetup setup;
    setup.host_program = program_.get();
    setup.has_steps = false;
    SolvePlan plan;
    plan.recomputed = setting.jacobian == JACOBIAN_RECOMPUTED;
    const kernels::Status status =
        session_.Setup(plan, setup, &structure_, &summary_);
    EXPECT_TRUE(status.ok()) << status.message;
    EXPECT_EQ(structure_.num_other_rows() > 0,
              setting.host_rows != Setting::kNone);
    ours_ = std::make_unique<ProgramEvaluator<kernels::HostMachine>>(
        &session_, nullptr, &failure_);

    const int n = stock_->NumParameters();
    EXPECT_EQ(ours_->NumParameters(), n);
    state_.resize(n);
    pp_.reduced_program->ParameterBlocksToStateVector(state_.data());
  }

  // Our rows in the order of Ceres's rows.
  Eigen::MatrixXd InCeresOrder(const Eigen::MatrixXd& rows) const {
    Eigen::MatrixXd ordered(rows.rows(), rows.cols());
    std::vector<bool> is_host(pp_.reduced_program->NumResidualBlocks(), false);
    for (const int32_t i : structure_.general_rows) {
      is_host[i] = true;
    }
    for (int64_t k = 0; k < structure_.views.size(); ++k) {
      is_host[structure_.views.row(k)] = true;
    }
    std::vector<int> observations;
    for (size_t i = 0; i < is_host.size(); ++i) {
      if (!is_host[i]) {
        observations.push_back(static_cast<int>(i));
      }
    }
    int64_t at = 0;
    const auto copy = [&](int row) {
      ordered.middleRows(2 * row, 2) = rows.middleRows(at, 2);
      at += 2;
    };
    const auto& problem = session_.problem();
    if (problem.num_observation_batches() > 0) {
      const auto& index = problem.observations(0).index();
      for (int64_t k = 0; k < index.num_observations; ++k) {
        copy(observations[index.input_id()[k]]);
      }
    }
    if (problem.views() != nullptr) {
      const auto& index = problem.views()->index();
      for (int64_t k = 0; k < index.num_observations; ++k) {
        copy(structure_.views.row(index.input_id()[k]));
      }
    }
    if (problem.general_rows() != nullptr) {
      for (const int32_t i : problem.general_rows()->row_order()) {
        copy(structure_.general_rows[i]);
      }
    }
    return ordered;
  }

  Evaluator* stock() { return stock_.get(); }
  Evaluator* ours() { return ours_.get(); }
  const Eigen::VectorXd& state() const { return state_; }

 private:
  void AddBlocks(const Setting& setting, ceres::internal::ProblemImpl* impl) {
    for (size_t k = 0; k < bal_.camera_id.size(); ++k) {
      ceres::LossFunction* loss = nullptr;
      if (setting.content >= kLosses &&
          setting.jacobian == JACOBIAN_RECOMPUTED) {
        loss = ConcaveLoss(static_cast<int>(k % 9));
      } else if (setting.content >= kLosses && k % 3 == 0) {
        // Tukey's rho'' is negative; Tolerant's is positive for some residuals,
        // which takes the other branch of the corrector.
        loss =
            k % 2 == 0
                ? static_cast<ceres::LossFunction*>(new ceres::TukeyLoss(30.0))
                : new ceres::TolerantLoss(50.0, 20.0);
      }
      double* blocks[2] = {bal_.camera(bal_.camera_id[k]),
                           bal_.point(bal_.point_id[k])};
      // The library doesn't know kAutodiff.
      const bool is_known = setting.host_rows != Setting::kSome || k % 3 != 1;
      impl->AddResidualBlock(
          bal_.MakeCost(
              k, is_known ? Derivatives::kAnalytic : Derivatives::kAutodiff),
          loss,
          blocks,
          2);
    }
    if (setting.content >= kConstants) {
      impl->SetParameterBlockConstant(bal_.camera(1));
      impl->SetParameterBlockConstant(bal_.point(3));
      impl->SetParameterBlockConstant(bal_.point(4));
    }
    if (setting.content >= kManifolds) {
      for (int i = 0; i < bal_.num_cameras(); i += 2) {
        if (bal_.camera_size == 10) {
          impl->SetManifold(bal_.camera(i), new BalCameraManifold());
        } else {
          impl->SetManifold(bal_.camera(i),
                            new ceres::SubsetManifold(9, {2, 7}));
        }
      }
      if (setting.jacobian == JACOBIAN_STORED) {
        impl->SetManifold(bal_.point(7), new ceres::SubsetManifold(3, {0}));
        impl->SetManifold(bal_.point(8), new ceres::SphereManifold<3>());
      } else if (setting.host_rows == Setting::kNone) {
        // Each set of coordinates but all three, which is a constant point.
        for (int bits = 0; bits < 7; ++bits) {
          std::vector<int> held;
          for (int j = 0; j < 3; ++j) {
            if ((bits >> j & 1) != 0) {
              held.push_back(j);
            }
          }
          impl->SetManifold(bal_.point(7 + bits),
                            new ceres::SubsetManifold(3, held));
        }
      }
    }
  }

  // Those that a recomputed Jacobian takes, at residuals of some pixels on both
  // sides of their bends; Tukey's gives up some.
  static ceres::LossFunction* ConcaveLoss(int i) {
    using namespace ceres;  // NOLINT: many of its losses.
    switch (i) {
      case 0:
        return new HuberLoss(5.0);
      case 1:
        return new SoftLOneLoss(3.0);
      case 2:
        return new CauchyLoss(10.0);
      case 3:
        return new ArctanLoss(20.0);
      case 4:
        return new TukeyLoss(15.0);
      case 5:
        return new ScaledLoss(new HuberLoss(2.0), 0.3, TAKE_OWNERSHIP);
      case 6:
        return new ScaledLoss(nullptr, 7.0, TAKE_OWNERSHIP);
      case 7:
        return new ComposedLoss(
            new ScaledLoss(new CauchyLoss(4.0), 2.0, TAKE_OWNERSHIP),
            TAKE_OWNERSHIP,
            new HuberLoss(6.0),
            TAKE_OWNERSHIP);
      default:
        return nullptr;
    }
  }

  BalTestProblem bal_;
  ceres::internal::PreprocessedProblem pp_;
  KeptMachines machines_;
  Session<kernels::HostMachine> session_{machines_.GetHost(3)};
  ProblemStructure structure_;
  Summary summary_;
  Failure failure_;
  std::unique_ptr<CeresProgram> program_;
  std::unique_ptr<Evaluator> stock_;
  std::unique_ptr<Evaluator> ours_;
  Eigen::VectorXd state_;
};

class BatchJacobianTest : public ::testing::TestWithParam<Setting> {};

// A residual or Jacobian entry is a few dozen operations on numbers whose
// magnitudes cancel by at most the depth ratio of the test problem (below 10):
// 500 eps of the largest entry of its column (or vector) bounds it.
constexpr double kTolerance = 500 * kEps;

void ExpectClose(const Eigen::MatrixXd& ours,
                 const Eigen::MatrixXd& stock,
                 double tolerance,
                 const char* what) {
  ASSERT_EQ(ours.rows(), stock.rows()) << what;
  ASSERT_EQ(ours.cols(), stock.cols()) << what;
  for (int j = 0; j < stock.cols(); ++j) {
    const double scale = stock.col(j).lpNorm<Eigen::Infinity>();
    EXPECT_LE((ours.col(j) - stock.col(j)).lpNorm<Eigen::Infinity>(),
              tolerance * scale)
        << what << ", column " << j;
  }
}

TEST_P(BatchJacobianTest, EvaluatesAsCeresDoes) {
  Fixture fixture(GetParam());
  const int rows = fixture.stock()->NumResiduals();
  const int columns = fixture.stock()->NumEffectiveParameters();
  ASSERT_EQ(fixture.ours()->NumResiduals(), rows);
  ASSERT_EQ(fixture.ours()->NumEffectiveParameters(), columns);

  auto stock_jacobian = fixture.stock()->CreateJacobian();
  auto our_jacobian = fixture.ours()->CreateJacobian();
  EXPECT_EQ(fixture.ours()->CreateJacobian(), nullptr);
  double stock_cost = 0.0;
  double our_cost = 0.0;
  Eigen::VectorXd stock_residuals(rows), our_residuals(rows);
  Eigen::VectorXd stock_gradient(columns), our_gradient(columns);

  // Twice: the second evaluation overwrites the first.
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(fixture.stock()->Evaluate(fixture.state().data(),
                                          &stock_cost,
                                          stock_residuals.data(),
                                          stock_gradient.data(),
                                          stock_jacobian.get()));
    ASSERT_TRUE(fixture.ours()->Evaluate(fixture.state().data(),
                                         &our_cost,
                                         our_residuals.data(),
                                         our_gradient.data(),
                                         our_jacobian.get()));
  }
  EXPECT_NEAR(our_cost, stock_cost, kTolerance * stock_cost);
  ExpectClose(fixture.InCeresOrder(our_residuals),
              stock_residuals,
              kTolerance,
              "residuals");
  // A gradient entry sums up to 40 products.
  ExpectClose(our_gradient, stock_gradient, 40 * kTolerance, "gradient");

  ceres::Matrix stock_dense;
  ceres::Matrix our_dense;
  stock_jacobian->ToDenseMatrix(&stock_dense);
  our_jacobian->ToDenseMatrix(&our_dense);
  ExpectClose(
      fixture.InCeresOrder(our_dense), stock_dense, kTolerance, "Jacobian");
  EXPECT_EQ(our_jacobian->num_rows(), rows);
  EXPECT_EQ(our_jacobian->num_cols(), columns);
  EXPECT_EQ(our_jacobian->num_nonzeros(), stock_jacobian->num_nonzeros());

  // Without some outputs, and without the loss.
  double cost = 0.0;
  ASSERT_TRUE(fixture.ours()->Evaluate(
      fixture.state().data(), &cost, nullptr, nullptr, nullptr));
  EXPECT_NEAR(cost, our_cost, 4 * kEps * our_cost * rows);
  Eigen::VectorXd gradient(columns);
  ASSERT_TRUE(fixture.ours()->Evaluate(
      fixture.state().data(), &cost, nullptr, gradient.data(), nullptr));
  EXPECT_EQ(gradient, our_gradient);
  Evaluator::EvaluateOptions without_loss;
  without_loss.apply_loss_function = false;
  ASSERT_TRUE(fixture.stock()->Evaluate(without_loss,
                                        fixture.state().data(),
                                        &stock_cost,
                                        nullptr,
                                        nullptr,
                                        nullptr));
  ASSERT_TRUE(fixture.ours()->Evaluate(
      without_loss, fixture.state().data(), &cost, nullptr, nullptr, nullptr));
  EXPECT_NEAR(cost, stock_cost, kTolerance * stock_cost);
}

// As in a search along a step that is then rejected: a gradient alone, which is
// computed in the memory of the Jacobian, changes neither a bit of it nor
// itself depends on it.
TEST_P(BatchJacobianTest, AGradientElsewhereLeavesTheJacobian) {
  Fixture fixture(GetParam());
  const int rows = fixture.ours()->NumResiduals();
  const int columns = fixture.ours()->NumEffectiveParameters();
  auto jacobian = fixture.ours()->CreateJacobian();
  const Eigen::VectorXd step = Eigen::VectorXd::Constant(columns, 1e-3);
  Eigen::VectorXd elsewhere(fixture.ours()->NumParameters());
  ASSERT_TRUE(fixture.ours()->Plus(
      fixture.state().data(), step.data(), elsewhere.data()));
  double cost = 0.0;
  Eigen::VectorXd residuals(rows), gradient(columns), gradient_there(columns);
  const auto evaluate_there = [&](ceres::internal::SparseMatrix* in) {
    ASSERT_TRUE(fixture.ours()->Evaluate(
        elsewhere.data(), &cost, nullptr, gradient_there.data(), in));
  };
  evaluate_there(jacobian.get());
  const Eigen::VectorXd expected_gradient = gradient_there;

  ASSERT_TRUE(fixture.ours()->Evaluate(fixture.state().data(),
                                       &cost,
                                       residuals.data(),
                                       gradient.data(),
                                       jacobian.get()));
  const Eigen::VectorXd scale = Eigen::VectorXd::LinSpaced(columns, 0.5, 2.0);
  jacobian->ScaleColumns(scale.data());
  struct Products {
    Eigen::VectorXd right, left, norms;
    ceres::Matrix dense;
  };
  const Eigen::VectorXd x = Eigen::VectorXd::LinSpaced(columns, -1.0, 1.0);
  const Eigen::VectorXd y = Eigen::VectorXd::LinSpaced(rows, -1.0, 1.0);
  const auto right = [&](Products* products) {
    products->right = Eigen::VectorXd::Zero(rows);
    jacobian->RightMultiplyAndAccumulate(x.data(), products->right.data());
  };
  const auto left = [&](Products* products) {
    products->left = Eigen::VectorXd::Zero(columns);
    jacobian->LeftMultiplyAndAccumulate(y.data(), products->left.data());
  };
  const auto norms = [&](Products* products) {
    products->norms.resize(columns);
    jacobian->SquaredColumnNorm(products->norms.data());
  };
  const auto dense = [&](Products* products) {
    jacobian->ToDenseMatrix(&products->dense);
  };
  const std::vector<std::function<void(Products*)>> operations = {
      right, left, norms, dense};
  Products before;
  for (const auto& operation : operations) {
    operation(&before);
  }
  const Eigen::VectorXd residuals_before = residuals;
  const Eigen::VectorXd gradient_before = gradient;
  // Each of them is the first that asks for the Jacobian.
  for (size_t first = 0; first < operations.size(); ++first) {
    evaluate_there(nullptr);
    EXPECT_EQ(gradient_there, expected_gradient);
    Products after;
    for (size_t i = 0; i < operations.size(); ++i) {
      operations[(first + i) % operations.size()](&after);
    }
    EXPECT_EQ(after.right, before.right);
    EXPECT_EQ(after.left, before.left);
    EXPECT_EQ(after.norms, before.norms);
    EXPECT_EQ(after.dense, before.dense);
    EXPECT_EQ(residuals, residuals_before);
    EXPECT_EQ(gradient, gradient_before);
  }
}

TEST_P(BatchJacobianTest, KeepsTheSparseMatrixContract) {
  Fixture fixture(GetParam());
  const int rows = fixture.ours()->NumResiduals();
  const int columns = fixture.ours()->NumEffectiveParameters();
  auto jacobian = fixture.ours()->CreateJacobian();
  double cost = 0.0;
  Eigen::VectorXd residuals(rows), gradient(columns);
  ASSERT_TRUE(fixture.ours()->Evaluate(fixture.state().data(),
                                       &cost,
                                       residuals.data(),
                                       gradient.data(),
                                       jacobian.get()));
  ceres::Matrix dense;
  jacobian->ToDenseMatrix(&dense);

  std::mt19937 generator(3);
  std::uniform_real_distribution<double> uniform(-1.0, 1.0);
  const auto random = [&](int n) {
    Eigen::VectorXd v(n);
    for (double& x : v) {
      x = uniform(generator);
    }
    return v;
  };
  const Eigen::VectorXd x = random(columns);
  const Eigen::VectorXd y = random(rows);
  // Sums of at most `rows` products, on top of the entries' own rounding.
  const double tolerance = rows * kTolerance;

  // y += J x and x += J' y accumulate.
  Eigen::VectorXd right = y;
  jacobian->RightMultiplyAndAccumulate(x.data(), right.data());
  ExpectClose(right, y + dense * x, tolerance, "y + J x");
  right = y;
  jacobian->RightMultiplyAndAccumulate(x.data(), right.data(), nullptr, 2);
  ExpectClose(right, y + dense * x, tolerance, "y + J x, threads");
  Eigen::VectorXd left = x;
  jacobian->LeftMultiplyAndAccumulate(y.data(), left.data());
  ExpectClose(left, x + dense.transpose() * y, tolerance, "x + J'y");

  Eigen::VectorXd norms(columns);
  jacobian->SquaredColumnNorm(norms.data());
  ExpectClose(norms,
              dense.colwise().squaredNorm().transpose(),
              tolerance,
              "column norms");

  const Eigen::VectorXd scale = random(columns);
  jacobian->ScaleColumns(scale.data());
  ceres::Matrix scaled;
  jacobian->ToDenseMatrix(&scaled);
  ExpectClose(scaled, dense * scale.asDiagonal(), kTolerance, "J diag(s)");

  // The text has one line for each structural value.
  FILE* file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  jacobian->ToTextFile(file);
  std::rewind(file);
  int row = 0;
  int column = 0;
  double value = 0.0;
  int num_lines = 0;
  while (std::fscanf(file, "%d %d %lf", &row, &column, &value) == 3) {
    ++num_lines;
    // "%17f" keeps six decimals.
    EXPECT_NEAR(value, scaled(row, column), 0.5000001e-6);
  }
  std::fclose(file);
  EXPECT_EQ(num_lines, jacobian->num_nonzeros());

  jacobian->SetZero();
  jacobian->ToDenseMatrix(&scaled);
  EXPECT_EQ(scaled.lpNorm<Eigen::Infinity>(), 0.0);
}

INSTANTIATE_TEST_SUITE_P(
    Settings,
    BatchJacobianTest,
    ::testing::Values(
        Setting{"Camera9", 9, JACOBIAN_STORED, kNothing},
        Setting{"Camera9Constants", 9, JACOBIAN_STORED, kConstants},
        Setting{"Camera9Manifolds", 9, JACOBIAN_STORED, kManifolds},
        Setting{"Camera9Losses", 9, JACOBIAN_STORED, kLosses},
        Setting{"Camera9Recomputed", 9, JACOBIAN_RECOMPUTED, kManifolds},
        Setting{"Camera9RecomputedLosses", 9, JACOBIAN_RECOMPUTED, kLosses},
        Setting{"Camera10RecomputedLosses", 10, JACOBIAN_RECOMPUTED, kLosses},
        Setting{"Camera10SomeHostRowsRecomputedLosses",
                10,
                JACOBIAN_RECOMPUTED,
                kLosses,
                Setting::kSome},
        Setting{"Camera10", 10, JACOBIAN_STORED, kConstants},
        Setting{"Camera10Manifolds", 10, JACOBIAN_STORED, kLosses},
        Setting{"Camera10Recomputed", 10, JACOBIAN_RECOMPUTED, kManifolds},
        Setting{
            "Camera9SomeHostRows", 9, JACOBIAN_STORED, kLosses, Setting::kSome},
        Setting{"Camera10SomeHostRowsRecomputed",
                10,
                JACOBIAN_RECOMPUTED,
                kManifolds,
                Setting::kSome},
        Setting{"Camera9HostRows", 9, JACOBIAN_STORED, kLosses, Setting::kAll},
        Setting{
            "Camera10HostRows", 10, JACOBIAN_STORED, kLosses, Setting::kAll}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace ceres_ext
