// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Covariances against ceres::Covariance, by DENSE_SVD and SPARSE_QR, and
// against a dense pseudo-inverse of the Jacobian: rows of all kinds, losses,
// manifolds and constant blocks, gauges and scales, arrays, and what is
// refused. On the host and on a device, real or emulated.

#include "ceres_ext/covariance.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "Eigen/Core"
#include "Eigen/Dense"
#include "ceres/autodiff_cost_function.h"
#include "ceres/ceres.h"
#include "ceres/manifold.h"
#include "ceres/normal_prior.h"
#include "ceres/parameter_block.h"
#include "ceres/problem_impl.h"
#include "ceres/product_manifold.h"
#include "ceres/program.h"
#include "ceres_ext/array_problem.h"
#include "ceres_ext/bal_cost_functions.h"
#include "ceres_ext/batch.h"
#include "ceres_ext/solve.h"
#include "gtest/gtest.h"
#include "tests/common/bal_test_problem.h"
#include "tests/common/bits.h"
#include "tests/common/has_cudss.h"
#include "tests/common/has_device.h"
#include "tests/common/row_kinds.h"

#ifdef CERES_EXT_EMULATED
#include "tests/kernels/emulation/spoiler.h"
#endif

namespace ceres_ext {
namespace {

using Eigen::MatrixXd;
using Eigen::VectorXd;
using RowMajor =
    Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

constexpr double kEpsilon = std::numeric_limits<double>::epsilon();

class OnDevices : public ::testing::TestWithParam<DeviceType> {
 protected:
  void SetUp() override {
    if (GetParam() == DEVICE_CUDA && !HasDevice()) {
      GTEST_SKIP() << "There is no device for a factorisation.";
    }
    options_.ext.device = GetParam();
  }
  void TearDown() override {
    // The host has solved nothing.
    if (GetParam() == DEVICE_CUDA && !device_.empty()) {
      EXPECT_EQ(device_.find("host"), std::string::npos) << device_;
    }
  }
  void Note(const Covariance& covariance) {
    device_ = covariance.summary().device;
  }

  CovarianceOptions options_;
  std::string device_;
};

std::string DeviceName(const ::testing::TestParamInfo<DeviceType>& info) {
  return DeviceTypeToString(info.param);
}
INSTANTIATE_TEST_SUITE_P(Covariances,
                         OnDevices,
                         ::testing::ValuesIn(kDevices),
                         DeviceName);

// J of blocks that vary, in their tangent spaces.
MatrixXd DenseJacobian(ceres::Problem* problem,
                       const std::vector<double*>& blocks,
                       bool apply_loss = true,
                       double* cost = nullptr) {
  ceres::Problem::EvaluateOptions options;
  options.apply_loss_function = apply_loss;
  options.parameter_blocks = blocks;
  ceres::CRSMatrix crs;
  double ignored = 0.0;
  EXPECT_TRUE(problem->Evaluate(
      options, cost == nullptr ? &ignored : cost, nullptr, nullptr, &crs));
  MatrixXd j = MatrixXd::Zero(crs.num_rows, crs.num_cols);
  for (int r = 0; r < crs.num_rows; ++r) {
    for (int k = crs.rows[r]; k < crs.rows[r + 1]; ++k) {
      j(r, crs.cols[k]) += crs.values[k];
    }
  }
  return j;
}

std::vector<double*> VaryingBlocks(const ceres::Problem& problem) {
  std::vector<double*> all;
  problem.GetParameterBlocks(&all);
  std::vector<double*> varying;
  for (double* block : all) {
    std::vector<ceres::ResidualBlockId> rows;
    const_cast<ceres::Problem&>(problem).GetResidualBlocksForParameterBlock(
        block, &rows);
    if (!problem.IsParameterBlockConstant(block) &&
        problem.ParameterBlockTangentSize(block) > 0 && !rows.empty()) {
      varying.push_back(block);
    }
  }
  return varying;
}

// Blocks in the order in which they were added.
std::vector<double*> AllBlocks(ceres::Problem* problem) {
  std::vector<double*> all;
  for (auto* block :
       problem->mutable_impl()->mutable_program()->parameter_blocks()) {
    all.push_back(block->mutable_user_state());
  }
  return all;
}

std::vector<const double*> Const(const std::vector<double*>& blocks) {
  return {blocks.begin(), blocks.end()};
}

// (J'J)^+ of `rank`, by the singular values of J with columns of unit length;
// of units that matter: without.
MatrixXd PseudoInverse(const MatrixXd& j, int nullity) {
  const Eigen::JacobiSVD<MatrixXd> svd(j, Eigen::ComputeThinV);
  const Eigen::Index rank = j.cols() - nullity;
  const VectorXd inverse =
      svd.singularValues().head(rank).cwiseInverse().cwiseAbs2();
  return svd.matrixV().leftCols(rank) * inverse.asDiagonal() *
         svd.matrixV().leftCols(rank).transpose();
}

// Checks that all elements agree, relative to the standard deviations of their
// row and column.
::testing::AssertionResult AreNear(const MatrixXd& a,
                                   const MatrixXd& expected,
                                   double tolerance) {
  if (a.rows() != expected.rows() || a.cols() != expected.cols()) {
    return ::testing::AssertionFailure() << "sizes differ";
  }
  double worst = 0.0;
  for (Eigen::Index i = 0; i < a.rows(); ++i) {
    for (Eigen::Index j = 0; j < a.cols(); ++j) {
      const double scale = std::sqrt(expected(i, i) * expected(j, j));
      const double error = std::abs(a(i, j) - expected(i, j));
      worst = std::max(worst, scale > 0.0 ? error / scale : error);
    }
  }
  if (worst <= tolerance) {
    return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure()
         << "differs by " << worst << " of the standard deviations, tolerance "
         << tolerance;
}

// Relative error of the inverse of normal equations of n unknowns, scaled to a
// unit diagonal. It is a few n u times their condition, which is at most n over
// the smallest eigenvalue. Real errors are far less than this worst case, so
// sqrt(n) is enough for the first n.
double Tolerance(const CovarianceSummary& summary) {
  const double n = static_cast<double>(summary.num_columns);
  return 10.0 * std::sqrt(n) * n * kEpsilon / summary.smallest_eigenvalue;
}

bool IsPositiveSemidefinite(const MatrixXd& a) {
  const VectorXd scale = a.diagonal().cwiseMax(1e-300).cwiseSqrt();
  const MatrixXd scaled =
      scale.cwiseInverse().asDiagonal() * a * scale.cwiseInverse().asDiagonal();
  const Eigen::SelfAdjointEigenSolver<MatrixXd> eigen(scaled);
  return eigen.eigenvalues()(0) >=
         -10.0 * kEpsilon * static_cast<double>(a.rows());
}

// Compares all pairs of the blocks with ceres::Covariance.
void ExpectAsCeres(const CovarianceOptions& options,
                   const std::vector<double*>& blocks,
                   ceres::Problem* problem,
                   std::string* device) {
  Covariance covariance(options);
  ASSERT_TRUE(covariance.Compute(Const(blocks), problem)) << covariance.error();
  *device = covariance.summary().device;
  const double tolerance = Tolerance(covariance.summary());
  EXPECT_LE(tolerance, 1e-6);
  int ambient = 0;
  int tangent = 0;
  for (double* block : blocks) {
    ambient += problem->ParameterBlockSize(block);
    tangent += problem->ParameterBlockTangentSize(block);
  }
  RowMajor lifted(ambient, ambient);
  RowMajor unlifted(tangent, tangent);
  ASSERT_TRUE(covariance.GetCovarianceMatrix(Const(blocks), lifted.data()));
  ASSERT_TRUE(covariance.GetCovarianceMatrixInTangentSpace(Const(blocks),
                                                           unlifted.data()));
  EXPECT_TRUE(IsPositiveSemidefinite(unlifted));
  EXPECT_EQ((unlifted - unlifted.transpose()).cwiseAbs().maxCoeff(), 0.0);
  for (const auto type : {ceres::DENSE_SVD, ceres::SPARSE_QR}) {
    SCOPED_TRACE(ceres::CovarianceAlgorithmTypeToString(type));
    ceres::Covariance::Options of_ceres;
    of_ceres.algorithm_type = type;
    of_ceres.sparse_linear_algebra_library_type = ceres::EIGEN_SPARSE;
    of_ceres.apply_loss_function = options.apply_loss_function;
    of_ceres.min_reciprocal_condition_number = 1e-16;
    ceres::Covariance reference(of_ceres);
    ASSERT_TRUE(reference.Compute(Const(blocks), problem));
    RowMajor expected(ambient, ambient);
    ASSERT_TRUE(reference.GetCovarianceMatrix(Const(blocks), expected.data()));
    EXPECT_TRUE(AreNear(lifted, expected, tolerance));
    expected.resize(tangent, tangent);
    ASSERT_TRUE(reference.GetCovarianceMatrixInTangentSpace(Const(blocks),
                                                            expected.data()));
    EXPECT_TRUE(AreNear(unlifted, expected, tolerance));
  }
}

// Two cameras hold the gauge.
void HoldTwo(const std::vector<double*>& cameras, ceres::Problem* problem) {
  problem->SetParameterBlockConstant(cameras[0]);
  problem->SetParameterBlockConstant(cameras[1]);
}

// Some cameras and points of a case, with those that are constant.
std::vector<double*> Some(Case* of) {
  BalTestProblem* const bal = &of->bal;
  return {bal->camera(1),
          bal->camera(2),
          bal->point(0),
          bal->camera(4),
          bal->point(7),
          bal->point(1)};
}

TEST_P(OnDevices, RowsAndLossesAsCeres) {
  for (const Kind kind :
       {Kind::kObservations, Kind::kViews, Kind::kGeneralRows}) {
    for (const char* const loss : {"none", "Huber", "Cauchy", "Tolerant"}) {
      for (const bool apply_loss : {true, false}) {
        if (!apply_loss && loss != std::string("Cauchy")) {
          continue;
        }
        SCOPED_TRACE(std::string(Name(kind)) + " " + loss);
        Case of(kind, 1, MakeBalTestProblem(7, 60, 4, 9, 3));
        // With another loss the problem is built again.
        auto problem = std::make_unique<ceres::Problem>();
        std::vector<ceres::ResidualBlockId> rows;
        of.problem->GetResidualBlocks(&rows);
        ceres::Problem::Options sharing;
        sharing.cost_function_ownership = ceres::DO_NOT_TAKE_OWNERSHIP;
        problem = std::make_unique<ceres::Problem>(sharing);
        for (const auto row : rows) {
          std::vector<double*> blocks;
          of.problem->GetParameterBlocksForResidualBlock(row, &blocks);
          ceres::LossFunction* function = nullptr;
          if (loss == std::string("Huber")) {
            function = new ceres::HuberLoss(2.0);
          } else if (loss == std::string("Cauchy")) {
            function = new ceres::CauchyLoss(5.0);
          } else if (loss == std::string("Tolerant")) {
            function = new ceres::TolerantLoss(3.0, 1.0);
          }
          problem->AddResidualBlock(
              const_cast<ceres::CostFunction*>(
                  of.problem->GetCostFunctionForResidualBlock(row)),
              function,
              blocks);
        }
        HoldTwo({of.bal.camera(0), of.bal.camera(1)}, problem.get());
        options_.apply_loss_function = apply_loss;
        ExpectAsCeres(options_, Some(&of), problem.get(), &device_);
      }
    }
  }
}

// Covariances are in double whatever the precision of solves.
TEST_P(OnDevices, MixedPrecisionIsDouble) {
  for (const Kind kind : {Kind::kObservations, Kind::kViews}) {
    SCOPED_TRACE(Name(kind));
    Case of(kind, 1, MakeBalTestProblem(7, 60, 4, 9, 3));
    HoldTwo({of.bal.camera(0), of.bal.camera(1)}, of.problem.get());
    const std::vector<double*> blocks = VaryingBlocks(*of.problem);
    Eigen::Index n = 0;
    for (double* const block : blocks) {
      n += of.problem->ParameterBlockTangentSize(block);
    }
    const auto compute = [&](PrecisionType precision) {
      options_.ext.precision = precision;
      Covariance covariance(options_);
      EXPECT_TRUE(covariance.Compute(Const(blocks), of.problem.get()))
          << covariance.error();
      Note(covariance);
      MatrixXd values(n, n);
      EXPECT_TRUE(covariance.GetCovarianceMatrixInTangentSpace(Const(blocks),
                                                               values.data()));
      return values;
    };
    EXPECT_TRUE(compute(PRECISION_MIXED) == compute(PRECISION_DOUBLE));
  }
}

TEST_P(OnDevices, SparseFactor) {
  if (GetParam() == DEVICE_CUDA && !HasCudss()) {
    GTEST_SKIP() << "There is no cuDSS for sparse matrices.";
  }
  options_.ext.schur_factorization = SCHUR_FACTORIZATION_SPARSE;
  for (const Kind kind :
       {Kind::kObservations, Kind::kViews, Kind::kGeneralRows}) {
    SCOPED_TRACE(Name(kind));
    Case of(kind, 2, MakeBalTestProblem(12, 150, 4, 9, 4));
    HoldTwo({of.bal.camera(0), of.bal.camera(1)}, of.problem.get());
    ExpectAsCeres(options_, Some(&of), of.problem.get(), &device_);
  }
}

// S x = e to a relative residual r is off by r over the smallest eigenvalue of
// S, scaled as PCG's preconditioner almost has it.
TEST_P(OnDevices, PcgAsFactorization) {
  for (const Kind kind :
       {Kind::kObservations, Kind::kViews, Kind::kGeneralRows}) {
    SCOPED_TRACE(Name(kind));
    Case of(kind, 1, MakeBalTestProblem(7, 60, 4, 9, 3));
    const std::vector<const double*> free = {of.bal.camera(2)};
    options_.method = COVARIANCE_METHOD_PCG;
    Covariance of_nothing(options_);
    EXPECT_FALSE(of_nothing.Compute(free, of.problem.get()));
    EXPECT_NE(of_nothing.error().find("PCG does not reach"), std::string::npos)
        << of_nothing.error();

    HoldTwo({of.bal.camera(0), of.bal.camera(1)}, of.problem.get());
    const std::vector<const double*> blocks = Const(Some(&of));
    std::vector<std::pair<const double*, const double*>> pairs;
    for (const double* left : blocks) {
      for (const double* right : blocks) {
        pairs.emplace_back(left, right);
      }
    }
    options_.method = COVARIANCE_METHOD_FACTORIZATION;
    Covariance by_factor(options_);
    ASSERT_TRUE(by_factor.Compute(pairs, of.problem.get()))
        << by_factor.error();
    options_.method = COVARIANCE_METHOD_PCG;
    options_.pcg_tolerance = 1e-12;
    Covariance by_pcg(options_);
    ASSERT_TRUE(by_pcg.Compute(pairs, of.problem.get())) << by_pcg.error();
    Note(by_pcg);
    EXPECT_GT(by_pcg.summary().num_pcg_iterations, 0);
    EXPECT_EQ(by_pcg.summary().smallest_eigenvalue, -1.0);
    int size = 0;
    for (const double* block : blocks) {
      size += of.problem->ParameterBlockSize(block);
    }
    RowMajor expected(size, size);
    RowMajor matrix(size, size);
    ASSERT_TRUE(by_factor.GetCovarianceMatrix(blocks, expected.data()));
    ASSERT_TRUE(by_pcg.GetCovarianceMatrix(blocks, matrix.data()));
    EXPECT_TRUE(AreNear(matrix,
                        expected,
                        10.0 * options_.pcg_tolerance /
                            by_factor.summary().smallest_eigenvalue));

    // Too few iterations.
    options_.max_num_pcg_iterations = 3;
    Covariance too_few(options_);
    EXPECT_FALSE(too_few.Compute(pairs, of.problem.get()));
    options_.max_num_pcg_iterations = 10000;
  }
  options_.gauge = COVARIANCE_GAUGE_INNER;
  Case of(Kind::kObservations, 1, MakeBalTestProblem(7, 60, 4, 9, 3));
  Covariance inner(options_);
  EXPECT_FALSE(inner.Compute(std::vector<const double*>{of.bal.camera(2)},
                             of.problem.get()));
  EXPECT_NE(inner.error().find("has no inner constraints"), std::string::npos)
      << inner.error();
}

TEST_P(OnDevices, ManifoldsAndConstantBlocks) {
  Case of(Kind::kObservations, 1, MakeBalTestProblem(7, 60, 5, 10, 6));
  ceres::Problem* const problem = of.problem.get();
  using Pose = ceres::ProductManifold<ceres::QuaternionManifold,
                                      ceres::EuclideanManifold<6>>;
  for (int i = 0; i < of.bal.num_cameras(); ++i) {
    problem->SetManifold(of.bal.camera(i), new Pose);
  }
  // One camera has intrinsics of which only the focal length is unknown.
  problem->SetManifold(
      of.bal.camera(2),
      new ceres::ProductManifold<ceres::QuaternionManifold,
                                 ceres::SubsetManifold>(
          ceres::QuaternionManifold(), ceres::SubsetManifold(6, {4, 5})));
  problem->SetManifold(of.bal.point(0), new ceres::SubsetManifold(3, {1}));
  problem->SetManifold(of.bal.point(7), new ceres::SphereManifold<3>);
  problem->SetManifold(of.bal.point(8),
                       new ceres::SubsetManifold(3, {0, 1, 2}));
  problem->SetParameterBlockConstant(of.bal.point(1));
  HoldTwo({of.bal.camera(0), of.bal.camera(1)}, problem);
  std::vector<double*> blocks = Some(&of);
  ExpectAsCeres(options_, blocks, problem, &device_);
  // Covariance of a block without tangent columns.
  Covariance covariance(options_);
  ASSERT_TRUE(covariance.Compute(
      std::vector<const double*>{of.bal.point(8), of.bal.camera(2)}, problem))
      << covariance.error();
  double block[3 * 10];
  std::fill_n(block, 30, 1.0);
  ASSERT_TRUE(
      covariance.GetCovarianceBlock(of.bal.point(8), of.bal.camera(2), block));
  EXPECT_EQ(std::count(block, block + 30, 0.0), 30);
}

// Rows without an eliminated block, with blocks of any size, and no eliminated
// block at all.
TEST_P(OnDevices, PriorsAlone) {
  std::mt19937 generator(3);
  std::normal_distribution<double> normal;
  std::vector<std::vector<double>> values;
  ceres::Problem problem;
  for (const int size : {1, 2, 5, 12, 20}) {
    values.emplace_back(static_cast<size_t>(size), 1.0);
    MatrixXd a(size + 1, size);
    for (Eigen::Index i = 0; i < a.size(); ++i) {
      a(i) = normal(generator);
    }
    problem.AddResidualBlock(new ceres::NormalPrior(a, VectorXd::Zero(size)),
                             nullptr,
                             values.back().data());
  }
  std::vector<double*> blocks;
  blocks.reserve(values.size());
  for (auto& block : values) {
    blocks.push_back(block.data());
  }
  // Vectors have moved, but not what they hold.
  Covariance covariance(options_);
  ASSERT_TRUE(covariance.Compute(Const(blocks), &problem))
      << covariance.error();
  RowMajor matrix(40, 40);
  ASSERT_TRUE(covariance.GetCovarianceMatrix(Const(blocks), matrix.data()));
  const MatrixXd j = DenseJacobian(&problem, blocks);
  EXPECT_TRUE(AreNear(matrix, (j.transpose() * j).inverse(), 1e-9));
}

TEST_P(OnDevices, FreeGaugeIsRefused) {
  for (const Kind kind : {Kind::kObservations, Kind::kViews}) {
    SCOPED_TRACE(Name(kind));
    Case of(kind, 1, MakeBalTestProblem(7, 60, 5, 9, 6));
    Covariance covariance(options_);
    EXPECT_FALSE(covariance.Compute(
        std::vector<const double*>{of.bal.camera(2)}, of.problem.get()));
    EXPECT_NE(covariance.error().find("leave 7 directions free"),
              std::string::npos)
        << covariance.error();
    EXPECT_NE(covariance.error().find("parameter block"), std::string::npos)
        << covariance.error();
    double block[81];
    EXPECT_FALSE(covariance.GetCovarianceBlock(
        of.bal.camera(2), of.bal.camera(2), block));
    // A camera leaves the scale.
    of.problem->SetParameterBlockConstant(of.bal.camera(0));
    EXPECT_FALSE(covariance.Compute(
        std::vector<const double*>{of.bal.camera(2)}, of.problem.get()));
    EXPECT_NE(covariance.error().find("leave 1 directions free"),
              std::string::npos)
        << covariance.error();
  }
}

TEST_P(OnDevices, InnerConstraints) {
  options_.gauge = COVARIANCE_GAUGE_INNER;
  for (const Kind kind :
       {Kind::kObservations, Kind::kViews, Kind::kGeneralRows}) {
    for (const int num_constant : {0, 1, 2}) {
      SCOPED_TRACE(std::string(Name(kind)) + " " +
                   std::to_string(num_constant));
      // Points all around, so that J is far from a lower rank.
      Case of(kind, 1, MakeBalTestProblem(6, 40, 6, 9, 8));
      for (int i = 0; i < num_constant; ++i) {
        of.problem->SetParameterBlockConstant(of.bal.camera(i));
      }
      if (kind == Kind::kGeneralRows && num_constant < 2) {
        continue;  // Little holds the scale beside rows that are near.
      }
      const int expected_free = num_constant == 0   ? 7
                                : num_constant == 1 ? 1
                                                    : 0;
      const std::vector<double*> blocks = VaryingBlocks(*of.problem);
      Covariance covariance(options_);
      ASSERT_TRUE(covariance.Compute(Const(blocks), of.problem.get()))
          << covariance.error();
      Note(covariance);
      const MatrixXd j = DenseJacobian(of.problem.get(), blocks);
      const MatrixXd expected =
          PseudoInverse(j, covariance.summary().num_free_directions);
      RowMajor matrix(j.cols(), j.cols());
      ASSERT_TRUE(covariance.GetCovarianceMatrixInTangentSpace(Const(blocks),
                                                               matrix.data()));
      // B, C and N are off by as much, and N is a factor on both sides.
      const double tolerance = 10.0 * Tolerance(covariance.summary());
      EXPECT_LE(tolerance, 1e-5);
      EXPECT_TRUE(AreNear(matrix, expected, tolerance));
      EXPECT_TRUE(IsPositiveSemidefinite(matrix));
      if (kind == Kind::kGeneralRows) {
        continue;  // A row depends on two cameras that may be constant.
      }
      EXPECT_EQ(covariance.summary().num_free_directions, expected_free);
      EXPECT_EQ(covariance.summary().redundancy,
                j.rows() - j.cols() + expected_free);
    }
  }
}

TEST_P(OnDevices, MoreThanSevenFreeDirections) {
  // Two scenes that have nothing in common.
  BalTestProblem one = MakeBalTestProblem(5, 40, 5, 9, 6);
  BalTestProblem other = MakeBalTestProblem(5, 40, 5, 9, 7);
  ceres::Problem problem;
  for (BalTestProblem* bal : {&one, &other}) {
    for (size_t k = 0; k < bal->camera_id.size(); ++k) {
      problem.AddResidualBlock(
          CreateBalReprojectionError(bal->observations[2 * k],
                                     bal->observations[2 * k + 1]),
          nullptr,
          bal->camera(bal->camera_id[k]),
          bal->point(bal->point_id[k]));
    }
  }
  options_.gauge = COVARIANCE_GAUGE_INNER;
  Covariance covariance(options_);
  EXPECT_FALSE(
      covariance.Compute(std::vector<const double*>{one.camera(0)}, &problem));
  EXPECT_NE(covariance.error().find("leave 14 directions free"),
            std::string::npos)
      << covariance.error();
}

TEST_P(OnDevices, Damping) {
  Case of(Kind::kObservations, 1, MakeBalTestProblem(6, 40, 4, 9, 8));
  of.problem->SetParameterBlockConstant(of.bal.camera(0));
  const std::vector<double*> all = AllBlocks(of.problem.get());
  std::mt19937 generator(3);
  std::uniform_real_distribution<double> uniform(0.5, 2.0);
  std::vector<double> of_varying;
  int at = 0;
  for (double* block : all) {
    for (int i = 0; i < of.problem->ParameterBlockSize(block); ++i, ++at) {
      // Some columns have none.
      options_.damping.push_back(at % 5 == 0 ? 0.0 : uniform(generator));
      if (!of.problem->IsParameterBlockConstant(block)) {
        of_varying.push_back(options_.damping.back());
      }
    }
  }
  options_.gauge = COVARIANCE_GAUGE_DAMPED;
  std::vector<double*> blocks;
  std::copy_if(
      all.begin(), all.end(), std::back_inserter(blocks), [&](double* block) {
        return !of.problem->IsParameterBlockConstant(block);
      });
  Covariance covariance(options_);
  ASSERT_TRUE(covariance.Compute(Const(blocks), of.problem.get()))
      << covariance.error();
  Note(covariance);
  const MatrixXd j = DenseJacobian(of.problem.get(), blocks);
  const VectorXd d = Eigen::Map<const VectorXd>(
      of_varying.data(), static_cast<Eigen::Index>(of_varying.size()));
  const MatrixXd a = j.transpose() * j + MatrixXd(d.cwiseAbs2().asDiagonal());
  RowMajor matrix(j.cols(), j.cols());
  ASSERT_TRUE(covariance.GetCovarianceMatrix(Const(blocks), matrix.data()));
  EXPECT_TRUE(AreNear(matrix, a.inverse(), 1e-7));
  EXPECT_EQ(covariance.summary().redundancy,
            j.rows() - j.cols() + (d.array() != 0.0).count());

  options_.damping.pop_back();
  Covariance wrong(options_);
  EXPECT_FALSE(wrong.Compute(Const(blocks), of.problem.get()));
  EXPECT_NE(wrong.error().find("damping has"), std::string::npos)
      << wrong.error();
}

TEST_P(OnDevices, ScaleAPosteriori) {
  Case of(Kind::kObservations, 1, MakeBalTestProblem(6, 40, 4, 9, 8));
  HoldTwo({of.bal.camera(0), of.bal.camera(1)}, of.problem.get());
  const std::vector<const double*> blocks = {of.bal.camera(2), of.bal.point(3)};
  Covariance priori(options_);
  ASSERT_TRUE(priori.Compute(blocks, of.problem.get())) << priori.error();
  options_.scale = COVARIANCE_SCALE_A_POSTERIORI;
  Covariance posteriori(options_);
  ASSERT_TRUE(posteriori.Compute(blocks, of.problem.get()))
      << posteriori.error();
  Note(posteriori);
  double cost = 0.0;
  const MatrixXd j = DenseJacobian(
      of.problem.get(), VaryingBlocks(*of.problem), /*apply_loss=*/true, &cost);
  const double factor = 2.0 * cost / static_cast<double>(j.rows() - j.cols());
  EXPECT_NEAR(posteriori.summary().variance_factor, factor, 1e-9 * factor);
  RowMajor one(12, 12);
  RowMajor other(12, 12);
  ASSERT_TRUE(priori.GetCovarianceMatrix(blocks, one.data()));
  ASSERT_TRUE(posteriori.GetCovarianceMatrix(blocks, other.data()));
  EXPECT_TRUE(AreNear(other, factor * one, 1e-12));
}

// Bits don't depend on threads or runs.
TEST_P(OnDevices, SameBits) {
  Case of(Kind::kGeneralRows, 1, MakeBalTestProblem(9, 90, 4, 9, 8));
  HoldTwo({of.bal.camera(0), of.bal.camera(1)}, of.problem.get());
  const std::vector<double*> blocks = VaryingBlocks(*of.problem);
  std::vector<double> first;
  for (int run = 0; run < kNumRuns; ++run) {
    options_.num_threads = 1 + run % 3;
    Covariance covariance(options_);
    ASSERT_TRUE(covariance.Compute(Const(blocks), of.problem.get()))
        << covariance.error();
    const MatrixXd j = DenseJacobian(of.problem.get(), blocks);
    std::vector<double> values(static_cast<size_t>(j.cols() * j.cols()));
    ASSERT_TRUE(covariance.GetCovarianceMatrixInTangentSpace(Const(blocks),
                                                             values.data()));
    if (run == 0) {
      first = values;
    }
    EXPECT_EQ(HashOfBits(values), HashOfBits(first));
  }
}

// Arrays are only read: covariances and evaluations of several threads at once
// have the bits of one alone. TSan sees it.
TEST_P(OnDevices, SeveralThreadsReadOneArrayProblem) {
  constexpr int kThreads = 4;
  BalTestProblem bal = MakeBalTestProblem(7, 60, 4, 9, 3);
  auto loss = std::make_unique<ceres::HuberLoss>(2.0);
  std::vector<uint8_t> is_constant(7, 0);
  is_constant[0] = is_constant[1] = 1;
  const ArrayProblem arrays = ArraysOf(&bal, loss.get(), is_constant.data());
  const std::vector<const double*> blocks = {bal.camera(2), bal.point(3)};
  EvaluateOptions evaluate_options;
  Options ext_options;
  ext_options.device = options_.ext.device;
  std::vector<double> values[kThreads];
  std::vector<std::thread> threads;
  for (std::vector<double>& of_thread : values) {
    threads.emplace_back([&] {
      Covariance covariance(options_);
      std::vector<double> gradient;
      std::string error;
      of_thread.resize(12 * 12);
      EXPECT_TRUE(covariance.Compute(blocks, arrays)) << covariance.error();
      EXPECT_TRUE(covariance.GetCovarianceMatrix(blocks, of_thread.data()));
      double cost = 0.0;
      EXPECT_TRUE(Evaluate(evaluate_options,
                           ext_options,
                           arrays,
                           &cost,
                           nullptr,
                           &gradient,
                           &error))
          << error;
      of_thread.push_back(cost);
      of_thread.insert(of_thread.end(), gradient.begin(), gradient.end());
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const std::vector<double>& of_thread : values) {
    EXPECT_EQ(HashOfBits(of_thread), HashOfBits(values[0]));
  }
}

TEST_P(OnDevices, ArraysAsProblem) {
  BalTestProblem bal = MakeBalTestProblem(7, 60, 4, 9, 3);
  // A point without observations.
  bal.points.insert(bal.points.end(), {0.1, 0.2, 0.3});
  auto* const loss = new ceres::HuberLoss(2.0);
  const auto problem =
      BuildProblem(&bal, Derivatives::kAnalytic, /*use_manifold=*/false, loss);
  HoldTwo({bal.camera(0), bal.camera(1)}, problem.get());
  std::vector<uint8_t> is_constant(7, 0);
  is_constant[0] = is_constant[1] = 1;
  const ArrayProblem arrays = ArraysOf(&bal, loss, is_constant.data());
  const std::vector<const double*> blocks = {
      bal.camera(2), bal.point(3), bal.camera(0), bal.point(7)};
  Covariance of_problem(options_);
  ASSERT_TRUE(of_problem.Compute(blocks, problem.get())) << of_problem.error();
  Covariance of_arrays(options_);
  ASSERT_TRUE(of_arrays.Compute(blocks, arrays)) << of_arrays.error();
  Note(of_arrays);
  std::vector<double> expected(24 * 24);
  std::vector<double> values(24 * 24);
  ASSERT_TRUE(of_problem.GetCovarianceMatrix(blocks, expected.data()));
  ASSERT_TRUE(of_arrays.GetCovarianceMatrix(blocks, values.data()));
  EXPECT_EQ(values, expected);

  Covariance diagonals(options_);
  ASSERT_TRUE(diagonals.ComputeDiagonals(
      {0, 1}, {{bal.point(3), bal.camera(2)}}, arrays))
      << diagonals.error();
  std::vector<double> cameras(7 * 81, 1.0);
  std::vector<double> points(61 * 9, 1.0);
  ASSERT_TRUE(diagonals.GetDiagonalBlocks(0, cameras.data()));
  ASSERT_TRUE(diagonals.GetDiagonalBlocks(1, points.data()));
  EXPECT_FALSE(diagonals.GetDiagonalBlocks(2, points.data()));
  double block[81];
  for (const int i : {0, 2}) {
    ASSERT_TRUE(
        of_problem.GetCovarianceBlock(bal.camera(i), bal.camera(i), block));
    EXPECT_TRUE(
        AreNear(Eigen::Map<const RowMajor>(cameras.data() + 81 * i, 9, 9),
                Eigen::Map<const RowMajor>(block, 9, 9),
                1e-12));
  }
  for (const int i : {3, 7}) {
    ASSERT_TRUE(
        of_problem.GetCovarianceBlock(bal.point(i), bal.point(i), block));
    EXPECT_TRUE(AreNear(Eigen::Map<const RowMajor>(points.data() + 9 * i, 3, 3),
                        Eigen::Map<const RowMajor>(block, 3, 3),
                        1e-12));
  }
  // The covariance of this point is unknown.
  EXPECT_TRUE(std::isnan(points[60 * 9]));
  double expected_block[27];
  ASSERT_TRUE(diagonals.GetCovarianceBlock(bal.camera(2), bal.point(3), block));
  ASSERT_TRUE(of_problem.GetCovarianceBlock(
      bal.camera(2), bal.point(3), expected_block));
  for (int i = 0; i < 27; ++i) {
    EXPECT_NEAR(block[i], expected_block[i], 1e-9 * std::abs(block[i]));
  }
}

// Angle-axis and translation of the second camera after the inverse of the
// first one.
struct RelativePose {
  template <typename T>
  bool operator()(const T* camera0, const T* camera1, T* pose) const {
    T q0[4];
    T q1[4];
    T inverse[4];
    T q[4];
    ceres::AngleAxisToQuaternion(camera0, q0);
    ceres::AngleAxisToQuaternion(camera1, q1);
    inverse[0] = q0[0];
    for (int i = 1; i < 4; ++i) {
      inverse[i] = -q0[i];
    }
    ceres::QuaternionProduct(q1, inverse, q);
    ceres::QuaternionToAngleAxis(q, pose);
    T turned[3];
    ceres::QuaternionRotatePoint(q, camera0 + 3, turned);
    for (int i = 0; i < 3; ++i) {
      pose[3 + i] = camera1[3 + i] - turned[i];
    }
    return true;
  }
};

// The relative rotation of two cameras does not change with a similarity, and
// so does not depend on how the gauge is held.
TEST_P(OnDevices, RelativeRotationsDoNotDependOnTheGauge) {
  const ceres::AutoDiffCostFunction<RelativePose, 6, 9, 9> relative(
      new RelativePose);
  RowMajor poses[2];
  for (const bool inner : {false, true}) {
    Case of(Kind::kObservations, 1, MakeBalTestProblem(6, 60, 6, 9, 8));
    ceres::Problem* const problem = of.problem.get();
    CovarianceOptions options = options_;
    if (inner) {
      options.gauge = COVARIANCE_GAUGE_INNER;
    } else {
      // The pose of one camera, and a coordinate of another.
      problem->SetManifold(of.bal.camera(0),
                           new ceres::SubsetManifold(9, {0, 1, 2, 3, 4, 5}));
      problem->SetManifold(of.bal.camera(3), new ceres::SubsetManifold(9, {5}));
    }
    const std::vector<const double*> blocks = {of.bal.camera(1),
                                               of.bal.camera(4)};
    Covariance covariance(options);
    ASSERT_TRUE(covariance.Compute(blocks, problem)) << covariance.error();
    poses[inner ? 1 : 0].resize(6, 6);
    ASSERT_TRUE(covariance.GetCovarianceOfFunction(
        relative, blocks, poses[inner ? 1 : 0].data()));
    EXPECT_FALSE(covariance.GetCovarianceOfFunction(
        relative, {of.bal.camera(1)}, poses[0].data()));
  }
  EXPECT_TRUE(AreNear(
      poses[1].topLeftCorner(3, 3), poses[0].topLeftCorner(3, 3), 1e-6));
}

TEST_P(OnDevices, WhatIsRefused) {
  Case of(Kind::kObservations, 1, MakeBalTestProblem(7, 60, 4, 9, 3));
  ceres::Problem* const problem = of.problem.get();
  HoldTwo({of.bal.camera(0), of.bal.camera(1)}, problem);
  const std::vector<double> before = of.bal.cameras;
  const auto error = [&](const std::vector<const double*>& blocks) {
    Covariance covariance(options_);
    EXPECT_FALSE(covariance.Compute(blocks, problem));
    return covariance.error();
  };
  const double stranger = 0.0;
  EXPECT_NE(error({&stranger}).find("not in the problem"), std::string::npos);
  double unused[3] = {};
  problem->AddParameterBlock(unused, 3);
  EXPECT_NE(error({unused}).find("no residual block depends on"),
            std::string::npos);
  Covariance null(options_);
  EXPECT_FALSE(null.Compute(std::vector<const double*>{&stranger},
                            static_cast<ceres::Problem*>(nullptr)));
  EXPECT_NE(null.error().find("problem is null"), std::string::npos);

  // Options.
  CovarianceOptions wrong = options_;
  wrong.num_threads = 0;
  Covariance threads(wrong);
  EXPECT_FALSE(
      threads.Compute(std::vector<const double*>{of.bal.camera(2)}, problem));
  EXPECT_NE(threads.error().find("num_threads"), std::string::npos);
  wrong = options_;
  wrong.damping = {1.0};
  Covariance damping(wrong);
  EXPECT_FALSE(
      damping.Compute(std::vector<const double*>{of.bal.camera(2)}, problem));
  EXPECT_NE(damping.error().find("needs gauge"), std::string::npos);

  // A block that was not asked for.
  Covariance covariance(options_);
  ASSERT_TRUE(
      covariance.Compute(std::vector<const double*>{of.bal.camera(2)}, problem))
      << covariance.error();
  double block[81];
  EXPECT_FALSE(
      covariance.GetCovarianceBlock(of.bal.camera(2), of.bal.camera(3), block));

  // Values that are not finite.
  const double kept = of.bal.point(5)[0];
  of.bal.point(5)[0] = std::nan("");
  EXPECT_FALSE(error({of.bal.camera(2)}).empty());
  of.bal.point(5)[0] = kept;
  EXPECT_EQ(of.bal.cameras, before);
  // The problem can be used afterwards.
  ceres::Solver::Summary summary;
  ceres::Solver::Options stock;
  stock.logging_type = ceres::SILENT;
  ceres::Solve(stock, problem, &summary);
  EXPECT_TRUE(summary.IsSolutionUsable()) << summary.message;
}

TEST_P(OnDevices, DegenerateBlocksAreNamed) {
  // Only one camera sees point 5, which is the seventh block of the problem or
  // some other one.
  BalTestProblem bal = MakeBalTestProblem(7, 60, 4, 9, 3);
  BalTestProblem one = bal;
  one.camera_id.clear();
  one.point_id.clear();
  one.observations.clear();
  bool has_one = false;
  for (size_t k = 0; k < bal.camera_id.size(); ++k) {
    if (bal.point_id[k] == 5 && has_one) {
      continue;
    }
    has_one = has_one || bal.point_id[k] == 5;
    one.camera_id.push_back(bal.camera_id[k]);
    one.point_id.push_back(bal.point_id[k]);
    one.observations.insert(
        one.observations.end(),
        {bal.observations[2 * k], bal.observations[2 * k + 1]});
  }
  const auto problem = BuildProblem(&one, Derivatives::kAnalytic);
  HoldTwo({one.camera(0), one.camera(1)}, problem.get());
  const std::vector<double*> all = AllBlocks(problem.get());
  const auto number =
      std::find(all.begin(), all.end(), one.point(5)) - all.begin();
  for (const CovarianceGauge gauge :
       {COVARIANCE_GAUGE_AS_GIVEN, COVARIANCE_GAUGE_INNER}) {
    options_.gauge = gauge;
    Covariance covariance(options_);
    EXPECT_FALSE(covariance.Compute(std::vector<const double*>{one.camera(2)},
                                    problem.get()));
    EXPECT_NE(covariance.error().find("parameter block " +
                                      std::to_string(number) + " worst"),
              std::string::npos)
        << covariance.error();
  }
}

class ThrowingCost final : public ceres::SizedCostFunction<2, 9> {
 public:
  bool Evaluate(double const* const* /*parameters*/,
                double* /*residuals*/,
                double** /*jacobians*/) const final {
    throw std::runtime_error("no more");
  }
};

TEST_P(OnDevices, CostFunctionThrows) {
  Case of(Kind::kObservations, 1, MakeBalTestProblem(7, 60, 4, 9, 3));
  HoldTwo({of.bal.camera(0), of.bal.camera(1)}, of.problem.get());
  of.problem->AddResidualBlock(new ThrowingCost, nullptr, of.bal.camera(2));
  Covariance covariance(options_);
  EXPECT_FALSE(covariance.Compute(std::vector<const double*>{of.bal.camera(2)},
                                  of.problem.get()));
  EXPECT_FALSE(covariance.error().empty());
}

#ifndef CERES_EXT_EMULATED
// The spread of solutions for noisy observations, by windows. The variance of n
// samples is off by sqrt(2 / n) of itself.
TEST(Covariance, AgreesWithTheSpreadOfNoisySolves) {
  constexpr int kSolves = 2000;
  constexpr double kNoise = 1e-2;  // pixels, so that all is nearly linear
  constexpr int kCameras = 5;
  constexpr int kPoints = 30;
  BalTestProblem truth = MakeBalTestProblem(kCameras, kPoints, 5, 9, 8);
  const size_t num_rows = truth.camera_id.size();
  for (size_t k = 0; k < num_rows; ++k) {
    AutodiffReprojection<3>{0.0, 0.0}(truth.camera(truth.camera_id[k]),
                                      truth.point(truth.point_id[k]),
                                      &truth.observations[2 * k]);
  }
  std::mt19937 generator(9);
  std::normal_distribution<double> normal(0.0, kNoise);
  std::vector<double> cameras;
  std::vector<double> points;
  std::vector<double> observations;
  std::vector<int32_t> camera_id;
  std::vector<int32_t> point_id;
  std::vector<uint8_t> is_constant;
  std::vector<int64_t> camera_begin;
  std::vector<int64_t> point_begin;
  std::vector<int64_t> row_begin;
  for (int i = 0; i <= kSolves; ++i) {
    camera_begin.push_back(int64_t{kCameras} * i);
    point_begin.push_back(int64_t{kPoints} * i);
    row_begin.push_back(static_cast<int64_t>(num_rows) * i);
    if (i == kSolves) {
      break;
    }
    cameras.insert(
        cameras.end(), truth.camera(0), truth.camera(0) + 9 * kCameras);
    points.insert(points.end(), truth.point(0), truth.point(0) + 3 * kPoints);
    for (int c = 0; c < kCameras; ++c) {
      is_constant.push_back(c < 2 ? 1 : 0);
    }
    for (size_t k = 0; k < num_rows; ++k) {
      camera_id.push_back(kCameras * i + truth.camera_id[k]);
      point_id.push_back(kPoints * i + truth.point_id[k]);
      observations.push_back(truth.observations[2 * k] + normal(generator));
      observations.push_back(truth.observations[2 * k + 1] + normal(generator));
    }
  }
  ProblemBatch batch;
  ArrayProblem::Parameters of_cameras = {
      cameras.data(), int64_t{kCameras} * kSolves, 9};
  of_cameras.is_constant = is_constant.data();
  const int camera_array = batch.problem.AddParameters(of_cameras);
  const int point_array = batch.problem.AddParameters(
      {points.data(), int64_t{kPoints} * kSolves, 3});
  batch.problem.AddResiduals<BalReprojectionError>(
      row_begin.back(),
      observations.data(),
      {{camera_array, camera_id.data()}, {point_array, point_id.data()}});
  batch.num_problems = kSolves;
  batch.parameter_begin = {camera_begin.data(), point_begin.data()};
  batch.residual_begin = {row_begin.data()};
  ceres::Solver::Options solver_options;
  solver_options.max_num_iterations = 5;
  Options on_host;
  on_host.device = DEVICE_HOST;
  BatchSummary summary;
  std::string error;
  ASSERT_TRUE(SolveBatch(solver_options, on_host, &batch, &summary, &error))
      << error;
  EXPECT_EQ(summary.num_windows, kSolves);

  VectorXd sum = VectorXd::Zero(12);
  MatrixXd squares = MatrixXd::Zero(12, 12);
  for (int i = 0; i < kSolves; ++i) {
    VectorXd of_solve(12);
    for (int j = 0; j < 9; ++j) {
      of_solve(j) = cameras[static_cast<size_t>(9 * (kCameras * i + 2) + j)] -
                    truth.camera(2)[j];
    }
    for (int j = 0; j < 3; ++j) {
      of_solve(9 + j) = points[static_cast<size_t>(3 * (kPoints * i + 3) + j)] -
                        truth.point(3)[j];
    }
    sum += of_solve;
    squares += of_solve * of_solve.transpose();
  }
  const auto problem = BuildProblem(&truth, Derivatives::kAnalytic);
  HoldTwo({truth.camera(0), truth.camera(1)}, problem.get());
  CovarianceOptions options;
  options.ext.device = DEVICE_HOST;
  Covariance covariance(options);
  const std::vector<const double*> blocks = {truth.camera(2), truth.point(3)};
  ASSERT_TRUE(covariance.Compute(blocks, problem.get())) << covariance.error();
  RowMajor matrix(12, 12);
  ASSERT_TRUE(covariance.GetCovarianceMatrix(blocks, matrix.data()));
  matrix *= kNoise * kNoise;
  const VectorXd mean = sum / kSolves;
  const MatrixXd spread = squares / kSolves - MatrixXd(mean * mean.transpose());
  const double five_sigma = 5.0 * std::sqrt(2.0 / kSolves);
  EXPECT_TRUE(AreNear(spread, matrix, five_sigma));
}
#endif

// A device without memory, or with a wrong factor, leaves it to the host, which
// has the same blocks.
TEST_P(OnDevices, TheHostServesWhereADeviceDoesNot) {
  if (GetParam() != DEVICE_CUDA) {
    GTEST_SKIP() << "Of a device.";
  }
  // More columns than are factorised without a library.
  Case of(Kind::kObservations, 1, MakeBalTestProblem(28, 280, 4, 9, 3));
  HoldTwo({of.bal.camera(0), of.bal.camera(1)}, of.problem.get());
  const std::vector<const double*> blocks = {of.bal.camera(2), of.bal.point(3)};
  const auto compute = [&](const CovarianceOptions& options, bool is_on_host) {
    Covariance covariance(options);
    EXPECT_TRUE(covariance.Compute(blocks, of.problem.get()))
        << covariance.error();
    EXPECT_EQ(covariance.summary().device.find("host") == 0, is_on_host)
        << covariance.summary().device;
    RowMajor matrix = RowMajor::Zero(12, 12);
    covariance.GetCovarianceMatrix(blocks, matrix.data());
    return matrix;
  };
  CovarianceOptions on_host = options_;
  on_host.ext.device = DEVICE_HOST;
  const RowMajor expected = compute(on_host, true);
  CovarianceOptions limited = options_;
  limited.ext.cuda_memory_limit_bytes = 1000;
  EXPECT_EQ(compute(limited, true), expected);
  limited.ext.fallback = FALLBACK_REFUSE;
  Covariance refused(limited);
  EXPECT_FALSE(refused.Compute(blocks, of.problem.get()));
#ifdef CERES_EXT_EMULATED
  emulation::spoiler() = [](const char* /*library*/, int64_t /*i*/, double x) {
    return 0.5 * x;
  };
  EXPECT_EQ(compute(options_, true), expected);
  emulation::spoiler() = nullptr;
#endif
  EXPECT_TRUE(AreNear(compute(options_, false), expected, 1e-9));
}

// The forecast is the most that is held, within the memory of right-hand sides
// of the decision on the rank. With a limit below it the host computes before S
// is factorised, and the message has W and the inverse.
TEST_P(OnDevices, ForecastsMemory) {
  if (GetParam() != DEVICE_CUDA) {
    GTEST_SKIP() << "Of a device.";
  }
  for (const Kind kind : {Kind::kObservations, Kind::kViews}) {
    Case of(kind, 1, MakeBalTestProblem(9, 400, 8, 9, 3));
    HoldTwo({of.bal.camera(0), of.bal.camera(1)}, of.problem.get());
    const std::vector<double*> blocks = VaryingBlocks(*of.problem);
    std::vector<std::pair<const double*, const double*>> pairs;
    for (const double* block : blocks) {
      pairs.emplace_back(block, block);
    }
    Covariance covariance(options_);
    ASSERT_TRUE(covariance.Compute(pairs, of.problem.get()))
        << covariance.error();
    const CovarianceSummary& summary = covariance.summary();
    EXPECT_GE(summary.memory_forecast_bytes, summary.memory_bytes);
    EXPECT_LE(static_cast<double>(summary.memory_forecast_bytes),
              1.1 * static_cast<double>(summary.memory_bytes));
    CovarianceOptions limited = options_;
    limited.ext.cuda_memory_limit_bytes = summary.memory_bytes - 1;
    Covariance on_host(limited);
    ASSERT_TRUE(on_host.Compute(pairs, of.problem.get())) << on_host.error();
    EXPECT_EQ(on_host.summary().device.find("host"), 0)
        << on_host.summary().device;
    EXPECT_EQ(on_host.summary().memory_forecast_bytes, 0);
  }
}

// Then the Schur complement has no unknowns.
TEST_P(OnDevices, PointsAlone) {
  Case of(Kind::kObservations, 1, MakeBalTestProblem(4, 20, 4, 9, 3));
  for (int i = 0; i < of.bal.num_cameras(); ++i) {
    of.problem->SetParameterBlockConstant(of.bal.camera(i));
  }
  const std::vector<double*> blocks = {
      of.bal.point(0), of.bal.point(1), of.bal.camera(2)};
  Covariance covariance(options_);
  ASSERT_TRUE(covariance.Compute(Const(blocks), of.problem.get()))
      << covariance.error();
  Note(covariance);
  RowMajor matrix(15, 15);
  ASSERT_TRUE(covariance.GetCovarianceMatrix(Const(blocks), matrix.data()));
  const MatrixXd j =
      DenseJacobian(of.problem.get(), {of.bal.point(0), of.bal.point(1)});
  MatrixXd expected = MatrixXd::Zero(15, 15);
  expected.topLeftCorner(6, 6) = (j.transpose() * j).inverse();
  EXPECT_TRUE(AreNear(matrix, expected, 1e-10));
}

TEST_P(OnDevices, NothingVaries) {
  Case of(Kind::kObservations, 1, MakeBalTestProblem(3, 20, 3, 9, 3));
  std::vector<double*> all;
  of.problem->GetParameterBlocks(&all);
  for (double* block : all) {
    of.problem->SetParameterBlockConstant(block);
  }
  Covariance covariance(options_);
  ASSERT_TRUE(covariance.Compute(std::vector<const double*>{of.bal.camera(2)},
                                 of.problem.get()))
      << covariance.error();
  double block[81];
  std::fill_n(block, 81, 1.0);
  ASSERT_TRUE(
      covariance.GetCovarianceBlock(of.bal.camera(2), of.bal.camera(2), block));
  EXPECT_EQ(std::count(block, block + 81, 0.0), 81);
}

}  // namespace
}  // namespace ceres_ext
