// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Solves that need the Schur complement as a matrix, DENSE_SCHUR, SPARSE_SCHUR,
// normal equations and use_explicit_schur_complement, on the host and on a
// device, real or emulated, against stock Ceres with the same options: the same
// end, and for exact steps the same accepted and rejected ones and the same
// costs.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "ceres/ceres.h"
#include "ceres/manifold.h"
#include "ceres/normal_prior.h"
#include "ceres_ext/solve.h"
#include "ceres_ext/solver/cholesky/factorization_cost.h"
#include "gtest/gtest.h"
#include "tests/common/bal_test_problem.h"
#include "tests/common/bits.h"
#include "tests/common/has_cudss.h"
#include "tests/common/has_device.h"
#include "tests/common/row_kinds.h"
#include "tests/common/same_steps.h"

#ifdef CERES_EXT_EMULATED
#include "tests/kernels/emulation/spoiler.h"
#endif

namespace ceres_ext {
namespace {

#define SKIP_WITHOUT_DEVICE()                                  \
  if (!HasDevice()) {                                          \
    GTEST_SKIP() << "There is no device for a factorisation."; \
  }

#define SKIP_WITHOUT_CUDSS(type)                              \
  if ((type) == ceres::SPARSE_SCHUR && !HasCudss()) {         \
    GTEST_SKIP() << "There is no cuDSS for sparse matrices."; \
  }

#define SKIP_WITHOUT(device, type) \
  if ((device) == DEVICE_CUDA) {   \
    SKIP_WITHOUT_DEVICE();         \
    SKIP_WITHOUT_CUDSS(type);      \
  }

// A sparse matrix for SPARSE_SCHUR.
Summary SolveOn(DeviceType device, Case* solved) {
  solved->ext_options.device = device;
  if (solved->options.linear_solver_type == ceres::SPARSE_SCHUR) {
    solved->ext_options.schur_factorization = SCHUR_FACTORIZATION_SPARSE;
  }
  Summary summary;
  Solve(solved->options, solved->ext_options, solved->problem.get(), &summary);
  return summary;
}

Summary SolveOnDevice(Case* solved) { return SolveOn(DEVICE_CUDA, solved); }
Summary SolveOnHost(Case* solved) { return SolveOn(DEVICE_HOST, solved); }

ceres::Solver::Summary SolveStock(Case* solved) {
  ceres::Solver::Summary summary;
  ceres::Solve(solved->options, solved->problem.get(), &summary);
  return summary;
}

std::string SolverName(ceres::LinearSolverType type) {
  return ceres::LinearSolverTypeToString(type);
}

class ExactStep
    : public ::testing::TestWithParam<
          std::tuple<Kind, ceres::LinearSolverType, JacobianType, DeviceType>> {
};

INSTANTIATE_TEST_SUITE_P(
    Kinds,
    ExactStep,
    ::testing::Combine(::testing::Values(Kind::kObservations,
                                         Kind::kViews,
                                         Kind::kGeneralRows),
                       ::testing::Values(ceres::DENSE_SCHUR,
                                         ceres::SPARSE_SCHUR,
                                         ceres::SPARSE_NORMAL_CHOLESKY),
                       ::testing::Values(JACOBIAN_STORED, JACOBIAN_RECOMPUTED),
                       ::testing::ValuesIn(kDevices)),
    [](const auto& info) {
      return std::string(Name(std::get<0>(info.param))) + "_" +
             SolverName(std::get<1>(info.param)) + "_" +
             JacobianTypeToString(std::get<2>(info.param)) + "_" +
             DeviceTypeToString(std::get<3>(info.param));
    });

TEST_P(ExactStep, EndsWhereStockEnds) {
  const auto [kind, type, jacobian, device] = GetParam();
  SKIP_WITHOUT(device, type);
  for (unsigned seed = 1; seed <= 3; ++seed) {
    SCOPED_TRACE(seed);
    for (const int camera_size : {9, 10}) {
      if (camera_size == 10 && kind != Kind::kObservations) {
        continue;
      }
      SCOPED_TRACE(camera_size);
      const BalTestProblem start =
          MakeBalTestProblem(7, 60, 3, camera_size, seed);
      Case ours(kind, 1, start);
      Case stock(kind, 1, start);
      ours.options.linear_solver_type = type;
      stock.options.linear_solver_type = type;
      ours.ext_options.jacobian = jacobian;
      if (kind == Kind::kViews && jacobian == JACOBIAN_RECOMPUTED) {
        // There is none to recompute, which is said.
        ours.ext_options.fallback = FALLBACK_REFUSE;
        const Summary summary = SolveOn(device, &ours);
        EXPECT_EQ(summary.termination_type, ceres::FAILURE);
        EXPECT_NE(summary.message.find("RECOMPUTED"), std::string::npos)
            << summary.message;
        continue;
      }
      const Summary summary = SolveOn(device, &ours);
      ASSERT_EQ(summary.path, PATH_FULL) << summary.path_reason;
      EXPECT_EQ(summary.linear_solver_type_used, type);
      EXPECT_EQ(summary.num_pcg_iterations, 0);
      EXPECT_NE(summary.FullReport().find("\nFactorization"),
                std::string::npos);
      EXPECT_NE(
          summary.method.find(type == ceres::SPARSE_SCHUR
                                  ? "Cholesky (double) of S as a sparse matrix"
                                  : "Cholesky (double) of S as a dense matrix"),
          std::string::npos)
          << summary.method;
      const bool recomputes =
          jacobian == JACOBIAN_RECOMPUTED && kind == Kind::kObservations;
      EXPECT_NE(summary.method.find(recomputes ? "recomputed" : "stored"),
                std::string::npos)
          << summary.method;
      ExpectSameSteps(summary, SolveStock(&stock));
    }
  }
}

// A point that three cameras see thousands of times each: time and memory are
// linear. By pairs of rows the host would take hours, and a device 8 bytes for
// each of them.
TEST_P(ExactStep, OfAPointThatIsSeenThousandsOfTimes) {
  const auto [kind, type, jacobian, device] = GetParam();
  SKIP_WITHOUT(device, type);
  if (kind != Kind::kObservations && jacobian == JACOBIAN_RECOMPUTED) {
    GTEST_SKIP() << "The Jacobian is stored in any case.";
  }
#ifdef CERES_EXT_EMULATED
  constexpr int kRepeats = 2000;
#else
  constexpr int kRepeats = 100000;
#endif
  std::vector<int64_t> bytes;
  for (const int repeats : {kRepeats / 4, kRepeats}) {
    BalTestProblem start = MakeBalTestProblem(7, 60, 3, 9);
    std::vector<size_t> of_point;
    for (size_t k = 0; k < start.point_id.size(); ++k) {
      if (start.point_id[k] == 0) {
        of_point.push_back(k);
      }
    }
    for (int k = 0; k < repeats; ++k) {
      const size_t row = of_point[static_cast<size_t>(k) % of_point.size()];
      start.camera_id.push_back(start.camera_id[row]);
      start.point_id.push_back(0);
      for (size_t i = 0; i < 2; ++i) {
        start.observations.push_back(start.observations[2 * row + i] +
                                     std::sin(k + static_cast<double>(i)));
      }
    }
    Case ours(kind, 2, start);
    ours.options.linear_solver_type = type;
    ours.options.max_num_iterations = 4;
    ours.ext_options.jacobian = jacobian;
    const Summary summary = SolveOn(device, &ours);
    ASSERT_EQ(summary.path, PATH_FULL) << summary.path_reason;
    EXPECT_EQ(summary.num_pcg_iterations, 0);
    EXPECT_NE(summary.method.find("stored"), std::string::npos)
        << summary.method;
    bytes.push_back(summary.memory_bytes);
    if (repeats == kRepeats) {
      Case stock(kind, 2, start);
      stock.options.linear_solver_type = type;
      stock.options.max_num_iterations = 4;
      if (type == ceres::SPARSE_NORMAL_CHOLESKY) {
        // Stock eliminates in another order, and the rows of one point weigh
        // more than rounding of its pivots leaves of the others.
        ExpectSameEnd(summary, SolveStock(&stock));
      } else {
        ExpectSameSteps(summary, SolveStock(&stock));
      }
    }
  }
  EXPECT_LT(bytes[1], 5 * bytes[0]);
}

// In several runs, on the host with another number of threads each, and in a
// process of its own.
TEST_P(ExactStep, HasTheSameBits) {
  const auto [kind, type, jacobian, device] = GetParam();
  SKIP_WITHOUT(device, type);
  if (kind == Kind::kViews && jacobian == JACOBIAN_RECOMPUTED) {
    GTEST_SKIP() << "Views have no Jacobian to recompute.";
  }
  const BalTestProblem start = MakeBalTestProblem(9, 700, 4, 9);
  uint64_t first = 0;
  for (int run = 0; run < kNumRuns; ++run) {
    Case solved(kind, 1, start);
    solved.options.linear_solver_type = type;
    solved.options.max_num_iterations = 4;
    solved.options.num_threads = 1 + run;
    solved.ext_options.jacobian = jacobian;
    const Summary summary = SolveOn(device, &solved);
    ASSERT_EQ(summary.path, PATH_FULL) << summary.path_reason;
    std::vector<double> bits = solved.bal.Values();
    bits.push_back(summary.final_cost);
    const uint64_t hash = HashOfBits(bits);
    if (run == 0 && IsAnotherProcess(hash)) {
      return;
    }
    first = run == 0 ? hash : first;
    EXPECT_EQ(hash, first) << "run " << run;
  }
  EXPECT_EQ(HashOfAnotherProcess(), first);
}

// Constant blocks, values held by manifolds, losses, priors on cameras and
// rows of two of them, two kinds of cameras with points in common.
void SolveAllParts(DeviceType device, const ceres::Solver::Options& of_solver) {
  for (int which = 0; which < 7; ++which) {
    SCOPED_TRACE(which);
    const auto make = [&] {
      Case made(Kind::kObservations, 1, MakeBalTestProblem(6, 50, 3, 9));
      made.options.linear_solver_type = of_solver.linear_solver_type;
      made.options.use_explicit_schur_complement =
          of_solver.use_explicit_schur_complement;
      made.options.preconditioner_type = ceres::SCHUR_JACOBI;
      made.options.eta = 1e-9;
      ceres::Problem* problem = made.problem.get();
      BalTestProblem* bal = &made.bal;
      switch (which) {
        case 0:
          for (const int i : {0, 3}) {
            problem->SetParameterBlockConstant(bal->camera(i));
          }
          break;
        case 1:
          for (const int i : {1, 4}) {
            problem->SetManifold(bal->camera(i),
                                 new ceres::SubsetManifold(9, {2, 7, 8}));
          }
          problem->SetParameterBlockConstant(bal->point(7));
          problem->SetManifold(bal->point(9),
                               new ceres::SubsetManifold(3, {1}));
          break;
        case 2:
          made.problem = BuildProblem(
              bal, Derivatives::kAnalytic, false, new ceres::HuberLoss(0.8));
          break;
        case 3: {  // priors
          const ceres::Matrix a = 0.1 * ceres::Matrix::Identity(9, 9);
          for (int i = 0; i < bal->num_cameras(); ++i) {
            problem->AddResidualBlock(
                new ceres::NormalPrior(
                    a, Eigen::Map<ceres::Vector>(bal->camera(i), 9)),
                nullptr,
                bal->camera(i));
          }
          break;
        }
        case 4:  // a chain of cameras that no point couples
          for (int i = 0; i + 1 < bal->num_cameras(); ++i) {
            AddTie(bal->num_cameras() - 1 - i, i, nullptr, bal, problem);
          }
          break;
        case 5:  // users' functors
          made.problem = BuildProblem(bal, Derivatives::kAutodiff);
          break;
        default:  // one camera is left
          for (int i = 1; i < bal->num_cameras(); ++i) {
            problem->SetParameterBlockConstant(bal->camera(i));
          }
          break;
      }
      made.options.linear_solver_ordering = nullptr;
      return made;
    };
    Case ours = make();
    Case stock = make();
    const Summary summary = SolveOn(device, &ours);
    ASSERT_EQ(summary.path, PATH_FULL) << summary.path_reason;
    if (of_solver.linear_solver_type == ceres::ITERATIVE_SCHUR) {
      ExpectSameEnd(summary, SolveStock(&stock));
    } else {
      ExpectSameSteps(summary, SolveStock(&stock));
    }
  }
}

class ExactStepProblems : public ::testing::TestWithParam<DeviceType> {};

INSTANTIATE_TEST_SUITE_P(Devices,
                         ExactStepProblems,
                         ::testing::ValuesIn(kDevices),
                         [](const auto& info) {
                           return std::string(DeviceTypeToString(info.param));
                         });

TEST_P(ExactStepProblems, OfAllParts) {
  for (const ceres::LinearSolverType type :
       {ceres::DENSE_SCHUR, ceres::SPARSE_SCHUR}) {
    SCOPED_TRACE(SolverName(type));
    SKIP_WITHOUT(GetParam(), type);
    ceres::Solver::Options options;
    options.linear_solver_type = type;
    SolveAllParts(GetParam(), options);
  }
}

// By products with S, with stock's end and that of products without it. Steps
// of PCG differ by more than rounding.
class ExplicitProducts
    : public ::testing::TestWithParam<std::tuple<Kind, DeviceType>> {};

INSTANTIATE_TEST_SUITE_P(
    Kinds,
    ExplicitProducts,
    ::testing::Combine(::testing::Values(Kind::kObservations,
                                         Kind::kViews,
                                         Kind::kGeneralRows),
                       ::testing::ValuesIn(kDevices)),
    [](const auto& info) {
      return std::string(Name(std::get<0>(info.param))) + "_" +
             DeviceTypeToString(std::get<1>(info.param));
    });

TEST_P(ExplicitProducts, EndWhereStockEnds) {
  const auto [kind, device] = GetParam();
  SKIP_WITHOUT(device, ceres::ITERATIVE_SCHUR);
  for (unsigned seed = 1; seed <= 3; ++seed) {
    SCOPED_TRACE(seed);
    for (const JacobianType jacobian : {JACOBIAN_AUTO, JACOBIAN_STORED}) {
      const BalTestProblem start = MakeBalTestProblem(7, 60, 3, 9, seed);
      const auto make = [&, kind = kind](bool is_explicit) {
        Case made(kind, 1, start);
        made.options.linear_solver_type = ceres::ITERATIVE_SCHUR;
        made.options.preconditioner_type = ceres::SCHUR_JACOBI;
        made.options.use_explicit_schur_complement = is_explicit;
        made.options.eta = 1e-9;
        made.ext_options.jacobian = jacobian;
        made.ext_options.preconditioner_blocks = PRECONDITIONER_BLOCKS_SINGLE;
        return made;
      };
      Case ours = make(true);
      Case stock = make(true);
      Case implicit = make(false);
      const Summary summary = SolveOn(device, &ours);
      ASSERT_EQ(summary.path, PATH_FULL) << summary.path_reason;
      EXPECT_NE(summary.method.find("products by S as a sparse matrix (n = "),
                std::string::npos)
          << summary.method;
      EXPECT_NE(summary.method.find("SCHUR_JACOBI"), std::string::npos)
          << summary.method;
      ExpectSameEnd(summary, SolveStock(&stock));
      const Summary by_jacobian = SolveOn(device, &implicit);
      ASSERT_EQ(by_jacobian.path, PATH_FULL) << by_jacobian.path_reason;
      EXPECT_NE(by_jacobian.method.find("implicit W"), std::string::npos);
      ExpectSameEnd(by_jacobian, summary);
    }
  }
}

TEST_P(ExactStepProblems, OfAllPartsByProducts) {
  SKIP_WITHOUT(GetParam(), ceres::ITERATIVE_SCHUR);
  ceres::Solver::Options options;
  options.linear_solver_type = ceres::ITERATIVE_SCHUR;
  options.use_explicit_schur_complement = true;
  SolveAllParts(GetParam(), options);
}

// A problem whose dense matrix does not fit, but whose sparse one does: a ring
// of cameras of which few see points in common.
TEST(ExactStepOptions, AutoIsSparseWhereDenseHasNoRoom) {
  SKIP_WITHOUT_DEVICE();
  SKIP_WITHOUT_CUDSS(ceres::SPARSE_SCHUR);
#ifdef CERES_EXT_EMULATED
  GTEST_SKIP() << "cuDSS as it is emulated takes the memory of dense matrices.";
#endif
  // Above the memory that cuDSS takes for the smallest of matrices, below the
  // columns from which on this one would be faster.
  const BalTestProblem start = MakeBalTestProblem(400, 1600, 3, 9);
  const auto solve = [&](SchurFactorizationType type, int64_t limit) {
    Case solved(Kind::kObservations, 1, start);
    solved.options.linear_solver_type = ceres::DENSE_SCHUR;
    solved.options.max_num_iterations = 2;
    solved.ext_options.schur_factorization = type;
    solved.ext_options.cuda_memory_limit_bytes = limit;
    return SolveOnDevice(&solved);
  };
  const Summary dense = solve(SCHUR_FACTORIZATION_AUTO, 0);
  ASSERT_EQ(dense.path, PATH_FULL) << dense.path_reason;
  EXPECT_NE(dense.method.find("dense matrix (n = 3600,"), std::string::npos)
      << dense.method;
  const int64_t limit = dense.memory_bytes - 1000000;
  const Summary sparse = solve(SCHUR_FACTORIZATION_AUTO, limit);
  ASSERT_EQ(sparse.path, PATH_FULL) << sparse.path_reason;
  EXPECT_NE(sparse.method.find("sparse matrix (n = 3600, "), std::string::npos)
      << sparse.method;
  EXPECT_LE(sparse.memory_bytes, limit);
  EXPECT_NEAR(sparse.final_cost, dense.final_cost, 1e-9 * dense.final_cost);
  const Summary left = solve(SCHUR_FACTORIZATION_DENSE, limit);
  EXPECT_EQ(left.path, PATH_FULL) << left.path_reason;
  EXPECT_NE(left.device.find(" (the solve takes "), std::string::npos)
      << left.device;
}

// If both fit, it is the faster one: a sparse matrix for a ring of cameras, a
// dense one if as few couplings between any cameras fill the factor.
TEST(ExactStepOptions, AutoIsTheFaster) {
  SKIP_WITHOUT_DEVICE();
  SKIP_WITHOUT_CUDSS(ceres::SPARSE_SCHUR);
  constexpr int kNumCameras = 600;
  BalTestProblem start = MakeBalTestProblem(kNumCameras, 3600, 2, 9);
  const auto method = [&](SchurFactorizationType type) {
    Case solved(Kind::kObservations, 1, start);
    solved.options.linear_solver_type = ceres::DENSE_SCHUR;
    solved.options.max_num_iterations = 0;
    solved.ext_options.schur_factorization = type;
    const Summary summary = SolveOnDevice(&solved);
    EXPECT_EQ(summary.path, PATH_FULL) << summary.path_reason;
    constexpr size_t kBegin = sizeof("Schur, Cholesky (double) of S as a") - 1;
    return summary.method.substr(kBegin, 25);
  };
  const std::string sparse = " sparse matrix (n = 5400,";
  const std::string dense = " dense matrix (n = 5400, ";
  EXPECT_EQ(method(SCHUR_FACTORIZATION_AUTO), sparse);
  EXPECT_EQ(method(SCHUR_FACTORIZATION_DENSE), dense);
  std::mt19937 random(1);
  for (size_t k = 1; k < start.camera_id.size(); k += 2) {
    const int other = static_cast<int>(random() % (kNumCameras - 1));
    start.camera_id[k] = (start.camera_id[k - 1] + 1 + other) % kNumCameras;
  }
  // With so few values it is analysed first.
  ASSERT_TRUE(solver::SparseMayBeFaster(
      5400, int64_t{81} * (kNumCameras + start.num_points()), {}));
  EXPECT_EQ(method(SCHUR_FACTORIZATION_AUTO), dense);
}

#ifndef CERES_EXT_EMULATED
// On the host too, with any number of columns: a ring of cameras against
// couplings of as many between any cameras.
TEST(ExactStepOptions, AutoIsTheFasterOnTheHost) {
  constexpr int kNumCameras = 200;
  BalTestProblem start = MakeBalTestProblem(kNumCameras, 1200, 2, 9);
  const auto solve = [&](SchurFactorizationType type) {
    Case solved(Kind::kObservations, 1, start);
    solved.options.linear_solver_type = ceres::DENSE_SCHUR;
    solved.options.max_num_iterations = 2;
    solved.ext_options.schur_factorization = type;
    Summary summary = SolveOnHost(&solved);
    EXPECT_EQ(summary.path, PATH_FULL) << summary.path_reason;
    return summary;
  };
  const Summary ring = solve(SCHUR_FACTORIZATION_AUTO);
  EXPECT_NE(ring.method.find(" sparse matrix (n = 1800,"), std::string::npos)
      << ring.method;
  const Summary dense = solve(SCHUR_FACTORIZATION_DENSE);
  EXPECT_NE(dense.method.find(" dense matrix (n = 1800,"), std::string::npos)
      << dense.method;
  EXPECT_NEAR(ring.final_cost, dense.final_cost, 1e-9 * dense.final_cost);
  std::mt19937 random(1);
  for (size_t k = 1; k < start.camera_id.size(); k += 2) {
    const int other = static_cast<int>(random() % (kNumCameras - 1));
    start.camera_id[k] = (start.camera_id[k - 1] + 1 + other) % kNumCameras;
  }
  const Summary filled = solve(SCHUR_FACTORIZATION_AUTO);
  EXPECT_NE(filled.method.find(" dense matrix (n = 1800,"), std::string::npos)
      << filled.method;
}
#endif

// A factor of float of a sparse matrix is refused by name.
TEST(ExactStepOptions, MixedPrecisionIsDense) {
  SKIP_WITHOUT_DEVICE();
  Case solved(Kind::kObservations, 1, MakeBalTestProblem(4, 20, 3, 9));
  solved.options.linear_solver_type = ceres::DENSE_SCHUR;
  solved.options.use_mixed_precision_solves = true;
  solved.ext_options.schur_factorization = SCHUR_FACTORIZATION_SPARSE;
  const Summary summary = SolveOnDevice(&solved);
  EXPECT_EQ(summary.path, PATH_CERES);
  EXPECT_EQ(summary.path_reason,
            "the sparse factorisation (schur_factorization = SPARSE) does not "
            "support use_mixed_precision_solves");
}

// The factor of float is refined to what double gives.
TEST(ExactStepOptions, MixedPrecisionSolves) {
  SKIP_WITHOUT_DEVICE();
  const BalTestProblem start = MakeBalTestProblem(6, 50, 3, 9);
  Case stock(Kind::kObservations, 1, start);
  stock.options.linear_solver_type = ceres::DENSE_SCHUR;
  const double cost = SolveStock(&stock).final_cost;
  Case ours(Kind::kObservations, 1, start);
  ours.options.linear_solver_type = ceres::DENSE_SCHUR;
  ours.options.use_mixed_precision_solves = true;
  ours.options.max_num_refinement_iterations = 4;
  const Summary summary = SolveOnDevice(&ours);
  ASSERT_EQ(summary.path, PATH_FULL) << summary.path_reason;
  EXPECT_NE(summary.method.find("Cholesky (float)"), std::string::npos)
      << summary.method;
  EXPECT_NEAR(summary.final_cost, cost, 1e-6 * cost);
}

// A camera without focal length has columns of zeros, which nothing damps: S
// has no factor until the radius is small.
TEST_P(ExactStepProblems, FailWhereStocksFail) {
  SKIP_WITHOUT(GetParam(), ceres::DENSE_SCHUR);
  const auto make = [] {
    BalTestProblem start = MakeBalTestProblem(6, 50, 3, 9);
    start.camera(2)[6] = 0.0;
    Case made(Kind::kObservations, 1, start);
    made.options.linear_solver_type = ceres::DENSE_SCHUR;
    made.options.min_lm_diagonal = 1e-300;
    made.options.initial_trust_region_radius = 1e30;
    made.options.max_trust_region_radius = 1e30;
    made.options.max_num_consecutive_invalid_steps = 3;
    made.options.jacobi_scaling = false;
    return made;
  };
  Case ours = make();
  Case stock = make();
  const Summary summary = SolveOn(GetParam(), &ours);
  const ceres::Solver::Summary of_stock = SolveStock(&stock);
  ASSERT_EQ(summary.path, PATH_FULL) << summary.path_reason;
  EXPECT_EQ(summary.termination_type, ceres::FAILURE);
  EXPECT_EQ(summary.termination_type, of_stock.termination_type);
  EXPECT_EQ(summary.iterations.size(), of_stock.iterations.size());
}

// A factor of float is Ceres's own on the host.
TEST(ExactStepFallback, IsStockCeresWithTheReason) {
  Case solved(Kind::kObservations, 1, MakeBalTestProblem(4, 20, 3, 9));
  solved.options.linear_solver_type = ceres::DENSE_SCHUR;
  solved.options.use_mixed_precision_solves = true;
  solved.options.max_num_refinement_iterations = 4;
  Summary summary = SolveOnHost(&solved);
  EXPECT_EQ(summary.path, PATH_CERES);
  EXPECT_EQ(summary.path_reason,
            "stock Ceres solves with DENSE_SCHUR on the host, because "
            "use_mixed_precision_solves needs a device");
  EXPECT_TRUE(summary.IsSolutionUsable()) << summary.message;
  solved.ext_options.fallback = FALLBACK_REFUSE;
  summary = SolveOnHost(&solved);
  EXPECT_EQ(summary.termination_type, ceres::FAILURE);
  EXPECT_NE(summary.message.find("Ceres Ext refuses the problem: stock Ceres "
                                 "solves with DENSE_SCHUR on the host, because "
                                 "use_mixed_precision_solves needs a device."),
            std::string::npos)
      << summary.message;
}

// A problem for which the device has no memory.
TEST(ExactStepFallback, WithoutMemory) {
  SKIP_WITHOUT_DEVICE();
  Case solved(Kind::kObservations, 1, MakeBalTestProblem(30, 100, 3, 9));
  solved.options.linear_solver_type = ceres::DENSE_SCHUR;
  solved.ext_options.cuda_memory_limit_bytes = 500000;
  const Summary summary = SolveOnDevice(&solved);
  EXPECT_EQ(summary.path, PATH_FULL) << summary.path_reason;
  EXPECT_NE(summary.device.find("500000"), std::string::npos) << summary.device;
  EXPECT_TRUE(summary.IsSolutionUsable()) << summary.message;
}

#ifdef CERES_EXT_EMULATED

// Libraries that report success and return something else, from one of their
// solutions on. Stock's steps are expected all the same.
class WrongSolutions
    : public ::testing::TestWithParam<std::tuple<double, int>> {
 protected:
  void TearDown() override { emulation::spoiler() = nullptr; }

  // `library`, or both where it is null, multiplies solutions by the parameter.
  static void Spoil(const char* library) {
    const auto [factor, first] = GetParam();
    emulation::spoiler() =
        [factor = factor, first = first, library, num_solutions = 0](
            const char* from, int64_t i, double x) mutable {
          if (library != nullptr && std::strcmp(from, library) != 0) {
            return x;
          }
          num_solutions += i == 0 ? 1 : 0;
          // Elements come in any order.
          return num_solutions >= first ? factor * x : x;
        };
  }

  // More columns than one block of threads factorises without a library.
  static Case Make(ceres::LinearSolverType type) {
    Case made(Kind::kObservations, 1, MakeBalTestProblem(26, 260, 4, 9));
    made.options.linear_solver_type = type;
    return made;
  }
};

INSTANTIATE_TEST_SUITE_P(
    Factors,
    WrongSolutions,
    ::testing::Combine(
        ::testing::Values(0.0, 0.5, std::numeric_limits<double>::quiet_NaN()),
        ::testing::Values(0, 3)));

TEST_P(WrongSolutions, OfCudssADenseMatrixReplaces) {
  for (const FallbackType fallback : {FALLBACK_TO_CERES, FALLBACK_REFUSE}) {
    Spoil("cuDSS");
    Case ours = Make(ceres::SPARSE_SCHUR);
    Case stock = Make(ceres::SPARSE_SCHUR);
    ours.ext_options.fallback = fallback;
    const Summary summary = SolveOnDevice(&ours);
    ASSERT_EQ(summary.path, PATH_FULL) << summary.path_reason;
    ExpectSameSteps(summary, SolveStock(&stock));
    EXPECT_NE(summary.method.find("of S as a dense matrix (n = 234, "),
              std::string::npos)
        << summary.method;
    EXPECT_NE(summary.path_reason.find(
                  "the Schur complement is a dense matrix since cuDSS 999.0.0 "
                  "reported success, but its solution of 234 equations is "),
              std::string::npos)
        << summary.path_reason;
  }
}

TEST_P(WrongSolutions, OfCusolverTheHostReplaces) {
  Spoil("cuSOLVER");
  for (const bool refined : {false, true}) {
    Case ours = Make(ceres::DENSE_SCHUR);
    Case stock = Make(ceres::DENSE_SCHUR);
    if (refined) {
      // Half of a solution may be what float gives.
      if (std::get<0>(GetParam()) == 0.5) {
        continue;
      }
      for (Case* made : {&ours, &stock}) {
        made->options.use_mixed_precision_solves = true;
        made->options.max_num_refinement_iterations = 3;
      }
    }
    const Summary summary = SolveOnDevice(&ours);
    ASSERT_EQ(summary.path, refined ? PATH_CERES : PATH_FULL)
        << summary.path_reason;
    ExpectSameEnd(summary, SolveStock(&stock));
    const std::string& reason = refined ? summary.path_reason : summary.device;
    EXPECT_NE(
        reason.find("the device failed: cuSOLVER 999.0.0 reported success, but "
                    "its solution of 234 equations is "),
        std::string::npos)
        << reason;
  }
}

TEST_P(WrongSolutions, OfBothTheHostReplaces) {
  Spoil(nullptr);
  Case ours = Make(ceres::SPARSE_SCHUR);
  Case stock = Make(ceres::SPARSE_SCHUR);
  const Summary summary = SolveOnDevice(&ours);
  ASSERT_EQ(summary.path, PATH_FULL) << summary.path_reason;
  ExpectSameSteps(summary, SolveStock(&stock));
  for (const char* library : {"cuDSS 999.0.0", "cuSOLVER 999.0.0"}) {
    EXPECT_NE(summary.device.find(library), std::string::npos)
        << summary.device;
  }
}

// If the host may not solve, the library is named and nothing has moved.
TEST_P(WrongSolutions, AreAFailureWhereTheHostMayNotSolve) {
  Spoil("cuSOLVER");
  Case ours = Make(ceres::DENSE_SCHUR);
  ours.ext_options.fallback = FALLBACK_REFUSE;
  const BalTestProblem start = ours.bal;
  const Summary summary = SolveOnDevice(&ours);
  EXPECT_EQ(summary.termination_type, ceres::FAILURE);
  EXPECT_NE(summary.message.find("cuSOLVER 999.0.0 reported success"),
            std::string::npos)
      << summary.message;
  EXPECT_EQ(ours.bal.cameras, start.cameras);
  EXPECT_EQ(ours.bal.points, start.points);
}

#endif

}  // namespace
}  // namespace ceres_ext
