// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The device memory of solves against the forecast of their set-up and the
// count under a limit: rows of each kind, stored and recomputed Jacobians,
// losses, manifolds, constant blocks. How to run more cases: random_cases.h.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "ceres/autodiff_cost_function.h"
#include "ceres/ceres.h"
#include "ceres/manifold.h"
#include "ceres/normal_prior.h"
#include "ceres/product_manifold.h"
#include "ceres_ext/bal_cost_functions.h"
#include "ceres_ext/solve.h"
#include "gtest/gtest.h"
#include "tests/common/bal_test_problem.h"
#include "tests/common/has_device.h"
#include "tests/common/random_cases.h"
#include "tests/common/row_kinds.h"

namespace ceres_ext {
namespace {

constexpr int kNumCases = 40;
void ExpectForecast(const Summary& summary) {
  if (summary.device.find("cuDSS") != std::string::npos) {
    return;  // A build without cuDSS leaves a sparse factor to the host.
  }
  ASSERT_EQ(summary.path, PATH_FULL) << summary.path_reason;
  ASSERT_NE(summary.device.find("CUDA device 0"), std::string::npos)
      << summary.device;
  ASSERT_GT(summary.memory_bytes, 0);
  // cuDSS says at most a quarter too much of its factor.
  const bool is_sparse =
      summary.method.find("sparse matrix") != std::string::npos;
  EXPECT_GE(summary.memory_forecast_bytes, summary.memory_bytes);
  EXPECT_LE(
      static_cast<double>(summary.memory_forecast_bytes),
      (is_sparse ? 1.25 : 1.0) * static_cast<double>(summary.memory_bytes))
      << summary.method << "; " << summary.path_reason;
  EXPECT_NE(summary.FullReport().find(", forecast "), std::string::npos);
}

// The number behind `text` in a sentence.
int64_t NumberBehind(const std::string& text, const std::string& sentence) {
  const size_t at = sentence.find(text);
  return at == std::string::npos
             ? -1
             : std::atoll(sentence.c_str() + at + text.size());
}

Options OnDevice() {
  Options options;
  options.device = DEVICE_CUDA;
  options.fallback = FALLBACK_TO_CERES;
  return options;
}

ceres::LossFunction* RandomLoss(Random* random) {
  switch (random->Below(5)) {
    case 0:
      return new ceres::HuberLoss(random->OneOf({0.5, 1.0, 2.0}));
    case 1:
      return new ceres::CauchyLoss(2.0);
    case 2:
      return new ceres::TolerantLoss(2.0, 1.0);
    case 3:
      return new ceres::ScaledLoss(
          new ceres::HuberLoss(1.0), 0.5, ceres::TAKE_OWNERSHIP);
    default:
      return nullptr;
  }
}

// Rows of the kind, of which now and then one has no batched form.
void AddRows(Random* random,
             Kind kind,
             BalTestProblem* bal,
             ceres::Problem* problem) {
  const double own_loss = random->OneOf({0.0, 0.0, 0.5});
  const double autodiff = random->OneOf({0.0, 0.0, 0.3});
  ceres::LossFunction* const shared =
      own_loss == 0.0 && random->Chance(0.5) ? RandomLoss(random) : nullptr;
  for (size_t k = 0; k < bal->camera_id.size(); ++k) {
    const double u = bal->observations[2 * k];
    const double v = bal->observations[2 * k + 1];
    double* const camera = bal->camera(bal->camera_id[k]);
    double* const point = bal->point(bal->point_id[k]);
    ceres::LossFunction* const loss =
        random->Chance(own_loss) ? RandomLoss(random) : shared;
    if (kind == Kind::kViews) {
      problem->AddResidualBlock(
          new ceres::AutoDiffCostFunction<SplitReprojection, 2, 6, 3, 3>(
              new SplitReprojection{u, v}),
          loss,
          camera,
          bal->camera(0) + 6,
          point);
    } else if (random->Chance(autodiff) && bal->camera_size == 9) {
      problem->AddResidualBlock(
          new ceres::AutoDiffCostFunction<AutodiffReprojection<3>, 2, 9, 3>(
              new AutodiffReprojection<3>{u, v}),
          loss,
          camera,
          point);
    } else {
      problem->AddResidualBlock(
          bal->camera_size == 9 ? CreateBalReprojectionError(u, v)
                                : CreateBalReprojectionErrorQuaternion(u, v),
          loss,
          camera,
          point);
    }
  }
}

// Rows of other shapes, manifolds and constant blocks.
void AddOthers(Random* random,
               Kind kind,
               BalTestProblem* bal,
               ceres::Problem* problem) {
  if (kind == Kind::kGeneralRows && bal->camera_size == 9) {
    for (int i = 1; i < bal->num_cameras(); ++i) {
      problem->AddResidualBlock(
          new ceres::AutoDiffCostFunction<Near<4>, 4, 9, 9>(new Near<4>{0.01}),
          nullptr,
          bal->camera(i - 1),
          bal->camera(i));
    }
  }
  const double priors = random->OneOf({0.0, 0.0, 0.5});
  const double constants = random->OneOf({0.0, 0.0, 0.3});
  const double subsets = random->OneOf({0.0, 0.0, 0.5});
  for (int i = 0; i < bal->num_points(); ++i) {
    if (!problem->HasParameterBlock(bal->point(i))) {
      continue;
    }
    if (random->Chance(priors)) {
      problem->AddResidualBlock(
          new ceres::NormalPrior(ceres::Matrix::Identity(3, 3),
                                 ceres::Vector::Constant(3, 0.25)),
          nullptr,
          bal->point(i));
    }
    if (random->Chance(subsets)) {
      problem->SetManifold(bal->point(i),
                           new ceres::SubsetManifold(3, {random->Below(3)}));
    }
    if (random->Chance(constants)) {
      problem->SetParameterBlockConstant(bal->point(i));
    }
  }
  for (int i = 0; i < bal->num_cameras(); ++i) {
    if (!problem->HasParameterBlock(bal->camera(i))) {
      continue;
    }
    if (bal->camera_size == 10 && random->Chance(0.7)) {
      problem->SetManifold(
          bal->camera(i),
          new ceres::ProductManifold<ceres::QuaternionManifold,
                                     ceres::EuclideanManifold<6>>());
    }
    if (i > 0 && random->Chance(constants)) {
      problem->SetParameterBlockConstant(bal->camera(i));
    }
  }
}

// A solve that has all memory says what it takes. With a limit of just that it
// is counted, fits and takes the same; with a byte less the host solves, and
// says the number that it takes, unless the index alone doesn't fit.
TEST(DeviceMemory, IsWhatIsCounted) {
  if (!HasDevice()) {
    GTEST_SKIP() << "skipped: no CUDA device";
  }
  int num_solved = 0;
  int num_counted = 0;
  ForEachCase(kNumCases, [&](Random* random) {
    const int num_cameras = 2 + random->Below(random->OneOf({3, 30, 200}));
    const int num_points = 1 + random->Below(random->OneOf({5, 100, 1000}));
    const int rows_per_point = 1 + random->Below(std::min(num_cameras, 8));
    const int camera_size = random->Chance(0.7) ? 9 : 10;
    const auto seed = static_cast<unsigned>(random->Below(1 << 30));
    Kind kind =
        random->OneOf({Kind::kObservations, Kind::kViews, Kind::kGeneralRows});
    if (camera_size != 9 && kind == Kind::kViews) {
      kind = Kind::kObservations;
    }
    ceres::Solver::Options options;
    options.num_threads = 2;
    options.max_num_iterations = 1;
    options.linear_solver_type = random->OneOf({ceres::ITERATIVE_SCHUR,
                                                ceres::CGNR,
                                                ceres::DENSE_SCHUR,
                                                ceres::SPARSE_SCHUR});
    options.preconditioner_type =
        options.linear_solver_type == ceres::CGNR
            ? random->OneOf({ceres::IDENTITY, ceres::JACOBI})
            : random->OneOf({ceres::IDENTITY,
                             ceres::JACOBI,
                             ceres::SCHUR_JACOBI,
                             ceres::SCHUR_POWER_SERIES_EXPANSION});
    options.use_explicit_schur_complement =
        options.linear_solver_type == ceres::ITERATIVE_SCHUR &&
        options.preconditioner_type == ceres::SCHUR_JACOBI &&
        random->Chance(0.5);
    options.update_state_every_iteration = random->Chance(0.2);
    Options ext_options = OnDevice();
    ext_options.precision = random->OneOf({PRECISION_DOUBLE, PRECISION_MIXED});
    ext_options.jacobian = random->OneOf({JACOBIAN_AUTO, JACOBIAN_STORED});
    ext_options.schur_factorization =
        options.linear_solver_type == ceres::SPARSE_SCHUR
            ? SCHUR_FACTORIZATION_SPARSE
            : SCHUR_FACTORIZATION_AUTO;
    const Random start = *random;
    const auto solve = [&](int64_t limit) {
      Random same = start;
      BalTestProblem bal = MakeBalTestProblem(
          num_cameras, num_points, rows_per_point, camera_size, seed);
      ceres::Problem problem;
      AddRows(&same, kind, &bal, &problem);
      AddOthers(&same, kind, &bal, &problem);
      ext_options.cuda_memory_limit_bytes = limit;
      Summary summary;
      Solve(options, ext_options, &problem, &summary);
      return summary;
    };
    const Summary free = solve(0);
    if (free.path != PATH_FULL) {
      return;  // All is constant, for one.
    }
    ++num_solved;
    SCOPED_TRACE(free.method);
    ExpectForecast(free);
    const bool has_matrix =
        free.method.find(" of S as ") != std::string::npos ||
        free.method.find("products by S") != std::string::npos;
    if (has_matrix) {
      return;  // It is checked by itself (exact_step_test).
    }
    const Summary room = solve(free.memory_bytes);
    ExpectForecast(room);
    EXPECT_EQ(room.memory_bytes, free.memory_bytes);
    const Summary declined = solve(free.memory_bytes - 1);
    EXPECT_EQ(declined.device.rfind("host", 0), 0u) << declined.device;
    EXPECT_EQ(declined.memory_forecast_bytes, 0);
    const int64_t counted = NumberBehind("the solve takes ", declined.device);
    if (counted >= 0) {
      ++num_counted;
      EXPECT_EQ(counted, free.memory_bytes);
      EXPECT_EQ(NumberBehind("the limit is ", declined.device),
                free.memory_bytes - 1);
    } else {
      EXPECT_NE(declined.device.find("would exceed the limit of"),
                std::string::npos)
          << declined.device;
    }
  });
  EXPECT_GT(num_solved, 0);
  EXPECT_GT(num_counted, 0);
}

}  // namespace
}  // namespace ceres_ext
