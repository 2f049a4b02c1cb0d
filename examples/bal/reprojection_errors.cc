// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "examples/bal/reprojection_errors.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "ceres/rotation.h"
#include "cuda_kernels/machine/host_context.h"

namespace ceres_ext::bal {
namespace {

constexpr int64_t kGrain = 4096;
constexpr double kUnitRoundoff = 0.5 * std::numeric_limits<double>::epsilon();

struct Error {
  double squared_norm;
  double rounding;  // |dr|
};

Error ErrorOf(const BalProblem& problem, int64_t i) {
  const double* camera = problem.cameras.data() +
                         int64_t{problem.camera_index[i]} * problem.camera_size;
  const double* X = problem.points.data() + int64_t{problem.point_index[i]} * 3;
  const double* t = camera + problem.camera_size - 6;
  const double f = t[3];
  const double k1 = t[4];
  const double k2 = t[5];
  double P[3];
  if (problem.camera_size == 10) {
    ceres::QuaternionRotatePoint(camera, X, P);
  } else {
    ceres::AngleAxisRotatePoint(camera, X, P);
  }
  for (int k = 0; k < 3; ++k) {
    P[k] += t[k];
  }
  const double p[2] = {-P[0] / P[2], -P[1] / P[2]};
  const double p2 = p[0] * p[0] + p[1] * p[1];
  const double scale = f * (1.0 + p2 * (k1 + p2 * k2));
  const double* observed = problem.observations.data() + 2 * i;
  const double r[2] = {scale * p[0] - observed[0], scale * p[1] - observed[1]};
  const double r2 = r[0] * r[0] + r[1] * r[1];

  constexpr double u = kUnitRoundoff;
  const double size =
      std::hypot(X[0], X[1], X[2]) + std::hypot(t[0], t[1], t[2]);
  const double p_norm = std::sqrt(p2);
  const double dp = 32.0 * u * size * (1.0 + p_norm) / std::abs(P[2]);
  const double slope =
      std::abs(f) * (1.0 + p2 * (3.0 * std::abs(k1) + 5.0 * p2 * std::abs(k2)));
  return {r2,
          slope * (dp + 8.0 * u * p_norm) +
              8.0 * u * (std::sqrt(r2) + std::hypot(observed[0], observed[1]))};
}

double Rho(double s, bool robustify) {
  return robustify && s > 1.0 ? 2.0 * std::sqrt(s) - 1.0 : s;
}

}  // namespace

ReprojectionErrors ComputeReprojectionErrors(const BalProblem& problem,
                                             bool robustify,
                                             int num_threads) {
  const int64_t n = problem.num_observations();
  ReprojectionErrors errors;
  errors.squared_norms.resize(n);
  std::vector<double> costs((n + kGrain - 1) / kGrain);
  std::vector<double> tolerances(costs.size());
  kernels::HostContext context(num_threads);
  context.ParallelFor(n, kGrain, [&](int64_t begin, int64_t end) {
    double cost = 0.0;
    double tolerance = 0.0;
    for (int64_t i = begin; i < end; ++i) {
      const Error error = ErrorOf(problem, i);
      errors.squared_norms[i] = error.squared_norm;
      cost += 0.5 * Rho(error.squared_norm, robustify);
      tolerance += std::sqrt(error.squared_norm) * error.rounding +
                   0.5 * error.rounding * error.rounding;
    }
    costs[begin / kGrain] = cost;
    tolerances[begin / kGrain] = tolerance;
  });
  errors.cost = 0.0;
  errors.tolerance = 0.0;
  for (size_t chunk = 0; chunk < costs.size(); ++chunk) {
    errors.cost += costs[chunk];
    errors.tolerance += tolerances[chunk];
  }
  errors.tolerance = 2.0 * (errors.tolerance + static_cast<double>(n) *
                                                   kUnitRoundoff * errors.cost);
  return errors;
}

}  // namespace ceres_ext::bal
