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

#include "ceres/ceres.h"
#include "ceres_ext/solve.h"
#include "gtest/gtest.h"
#include "tests/common/bal_test_problem.h"
#include "tests/common/has_device.h"
#include "tests/common/random_cases.h"
#include "tests/common/random_problem.h"
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

// A solve that has all memory says what it takes. With a limit of just that it
// is counted, fits and takes the same. With a byte less, and no host to solve
// it, its largest arrays are on the host, and it ends at the same bits, or it
// is refused; otherwise the host solves, which is faster for such problems, and
// says the number that it takes, unless the index alone doesn't fit.
TEST(DeviceMemory, IsWhatIsCounted) {
  if (!HasDevice()) {
    GTEST_SKIP() << "skipped: no CUDA device";
  }
  int num_solved = 0;
  int num_counted = 0;
  int num_page_locked = 0;
  ForEachCase(kNumCases, [&](Random* random) {
    const int num_cameras = 2 + random->Below(random->OneOf({3, 30, 200}));
    const int num_points = 1 + random->Below(random->OneOf({5, 100, 1000}));
    const int rows_per_point = 1 + random->Below(std::min(num_cameras, 8));
    const int camera_size = random->Chance(0.7) ? 9 : 10;
    const auto seed = static_cast<unsigned>(random->Below(1 << 30));
    RandomRows rows;
    rows.kind =
        random->OneOf({Kind::kObservations, Kind::kViews, Kind::kGeneralRows});
    if (camera_size != 9 && rows.kind == Kind::kViews) {
      rows.kind = Kind::kObservations;
    }
    rows.ties = rows.kind == Kind::kGeneralRows ? 1.0 : 0.0;
    rows.turns = 0.7;
    ceres::Solver::Options options;
    options.num_threads = 2;
    options.max_num_iterations = 1;
    SetRandomSolver({ceres::ITERATIVE_SCHUR,
                     ceres::CGNR,
                     ceres::DENSE_SCHUR,
                     ceres::SPARSE_SCHUR},
                    random,
                    &options);
    options.update_state_every_iteration = random->Chance(0.2);
    Options ext_options = OnDevice();
    ext_options.precision = random->OneOf({PRECISION_DOUBLE, PRECISION_MIXED});
    ext_options.jacobian = random->OneOf({JACOBIAN_AUTO, JACOBIAN_STORED});
    ext_options.schur_factorization =
        options.linear_solver_type == ceres::SPARSE_SCHUR
            ? SCHUR_FACTORIZATION_SPARSE
            : SCHUR_FACTORIZATION_AUTO;
    const Random start = *random;
    std::vector<std::vector<double>> parameters;  // of the last solve
    const auto solve = [&](int64_t limit) {
      Random same = start;
      BalTestProblem bal = MakeBalTestProblem(
          num_cameras, num_points, rows_per_point, camera_size, seed);
      ceres::Problem problem;
      AddRandomRows(rows, &same, &bal, &problem);
      ext_options.cuda_memory_limit_bytes = limit;
      Summary summary;
      Solve(options, ext_options, &problem, &summary);
      parameters = {bal.cameras, bal.points};
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
    const std::vector<std::vector<double>> expected = parameters;
    ext_options.fallback = FALLBACK_REFUSE;
    const Summary kept = solve(free.memory_bytes - 1);
    ext_options.fallback = FALLBACK_TO_CERES;
    if (kept.device.find("in page-locked memory of the host") !=
        std::string::npos) {
      ++num_page_locked;
      EXPECT_EQ(kept.device.rfind(free.device, 0), 0u) << kept.device;
      EXPECT_LT(kept.memory_bytes, free.memory_bytes);
      EXPECT_EQ(kept.final_cost, free.final_cost);
      EXPECT_EQ(parameters, expected);
    } else if (kept.termination_type == ceres::FAILURE) {
      EXPECT_NE(kept.message.find("memory"), std::string::npos) << kept.message;
    } else {
      // In another precision, which takes less.
      EXPECT_LT(kept.memory_bytes, free.memory_bytes);
    }
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
  EXPECT_GT(num_page_locked, 0);
}

}  // namespace
}  // namespace ceres_ext
