// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/session/method_name.h"

#include <cstdio>

namespace ceres_ext {

std::string MatrixName(const solver::SchurMatrixSize& size) {
  const auto n = static_cast<long long>(size.num_unknowns);  // NOLINT
  const double megabytes = 8e-6 * static_cast<double>(size.num_values);
  std::string name = ", products by S";
  if (size.is_factorized) {
    name = std::string(", Cholesky (") + (size.is_float ? "float" : "double") +
           ") of S";
  }
  char text[160];
  if (!size.is_sparse) {
    std::snprintf(text,
                  sizeof(text),
                  " as a dense matrix (n = %lld, %.3g MB)",
                  n,
                  megabytes);
    return name + text;
  }
  const double triangle =
      0.5 * static_cast<double>(n) * static_cast<double>(n + 1);
  std::snprintf(
      text,
      sizeof(text),
      " as a sparse matrix (n = %lld, %lld blocks, %.2g %% of its "
      "elements, %.3g MB",
      n,
      static_cast<long long>(size.num_blocks),  // NOLINT
      n == 0 ? 0.0 : 100.0 * static_cast<double>(size.num_values) / triangle,
      megabytes);
  name += text;
  if (size.is_factorized) {
    std::snprintf(text,
                  sizeof(text),
                  ", factor %.3g MB",
                  8e-6 * static_cast<double>(size.num_factor_values));
    name += text;
  }
  return name + ")";
}

std::string MethodName(const SolvePlan& plan,
                       const RowKinds& rows,
                       int num_merged_blocks,
                       const solver::SchurMatrixSize* matrix) {
  const bool recomputed_observations = rows.observations && plan.recomputed;
  const bool stored_views = rows.views && !rows.recomputed_views;
  const auto in = [](bool is_mixed) { return is_mixed ? "mixed)" : "double)"; };
  std::string name = plan.step.use_schur ? "Schur" : "without Schur";
  name += matrix != nullptr ? MatrixName(*matrix) : ", implicit W";
  if (recomputed_observations || rows.recomputed_views) {
    name += ", recomputed Jacobian (";
    name += in(plan.mixed && recomputed_observations);
    if (stored_views || rows.general) {
      name += ", other rows stored (";
      name += in(plan.mixed && stored_views);
    }
  } else {
    name += ", stored Jacobian (";
    name += in(plan.mixed && (rows.observations || rows.views));
    if ((rows.observations || rows.views) && rows.general) {
      name += ", other rows stored (double)";
    }
  }
  if (plan.step.factorizes()) {
    return name;
  }
  name += ", ";
  name += plan.preconditioner_name;
  if (num_merged_blocks > 0) {
    name += " with " + std::to_string(num_merged_blocks) + " merged blocks";
  }
  if (plan.step.may_be_coarse()) {
    name += plan.step.coarse_after == 0
                ? " and a second level"
                : ", a second level after " +
                      std::to_string(plan.step.coarse_after) + " iterations";
  }
  if (plan.step.is_mixture()) {
    name += "; exact steps where PCG takes more than " +
            std::to_string(plan.step.exact_step_cost) + " iterations";
  }
  return name;
}

}  // namespace ceres_ext
