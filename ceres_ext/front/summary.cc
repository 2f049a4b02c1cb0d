// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/summary.h"

#include <cstdio>
#include <string>

#include "ceres_ext/plan/solver_choice.h"

namespace ceres_ext {
namespace {

std::string Line(const char* label, const std::string& value) {
  return std::string(label).append(21 - std::string(label).size(), ' ') +
         value + "\n";
}

std::string Number(const char* format, double value) {
  char text[32];
  std::snprintf(text, sizeof(text), format, value);
  return text;
}

std::string Seconds(double seconds) { return Number("%.6f", seconds); }

std::string Megabytes(int64_t bytes) {
  return Number("%.1f MB", static_cast<double>(bytes) * 1e-6);
}

std::string DegenerateText(const DegenerateBlocks& blocks, const char* role) {
  std::string worst = "block " + std::to_string(blocks.worst_block);
  if (blocks.worst_parameters >= 0) {
    worst += " of array " + std::to_string(blocks.worst_parameters);
  }
  return std::to_string(blocks.count) + role + ", the worst " + worst +
         ", relative pivot " + Number("%.1e", blocks.worst_relative_pivot);
}

std::string RunawayText(const RunawayResidual& residual) {
  std::string text = Number("%.1e", residual.trial) + " in the trial, " +
                     Number("%.1e", residual.value) + " before it";
  const char* separator = ", of ";
  for (const RunawayResidual::Block& block : residual.blocks) {
    text += separator + std::string("block ") + std::to_string(block.block);
    if (block.parameters >= 0) {
      text += " of array " + std::to_string(block.parameters);
    }
    text += block.is_eliminated ? " (eliminated)" : "";
    separator = " and ";
  }
  return text;
}

}  // namespace

const char* SolvePathToString(SolvePath path) {
  switch (path) {
    case PATH_CERES:
      return "CERES";
    case PATH_FULL:
      return "FULL";
  }
  return "UNKNOWN";
}

std::string Summary::FullReport() const {
  std::string report = ceres::Solver::Summary::FullReport();
  report += "\nCeres Ext\n";
  report += Line("Path", SolvePathToString(path));
  report += Line("Reason", path_reason);
  if (!no_minimum.empty()) {
    report += Line("No minimum", no_minimum);
  }
  for (const RunawayResidual& residual : runaway_residuals) {
    report += Line("Runaway residual", RunawayText(residual));
  }
  if (path == PATH_CERES) {
    return report;
  }
  report += Line("Device", device);
  report += Line("Method", method);
  if (num_host_losses > 0) {
    report += Line("Losses on the host",
                   std::to_string(num_host_losses) + " residual blocks, " +
                       host_loss_type);
  }
  const bool is_factorized = IsFactorized(linear_solver_type_used);
  if (!is_factorized) {
    report += Line("PCG iterations", std::to_string(num_pcg_iterations));
    if (num_solves_at_pcg_limit > 0) {
      report += Line("PCG at its limit",
                     std::to_string(num_solves_at_pcg_limit) +
                         " steps are less accurate than eta asks; use "
                         "DENSE_SCHUR or SPARSE_SCHUR, or raise "
                         "max_linear_solver_iterations");
    }
    if (num_exact_steps > 0) {
      report += Line("Exact steps", std::to_string(num_exact_steps));
    }
    if (num_coarse_columns > 0) {
      report +=
          Line("Second level",
               std::to_string(num_coarse_columns) + " columns of " +
                   std::to_string(num_clusters) + " clusters, " +
                   std::to_string(num_coarse_iterations) + " PCG iterations");
    }
  }
  report += Line("Memory",
                 Megabytes(memory_bytes) +
                     (memory_forecast_bytes > 0
                          ? ", forecast " + Megabytes(memory_forecast_bytes)
                          : ""));
  if (transfer_bytes > 0) {
    report += Line("Host <-> device", Megabytes(transfer_bytes));
  }
  if (num_host_manifolds > 0) {
    report += Line("Manifolds on host",
                   std::to_string(num_host_manifolds) + " blocks, the first " +
                       host_manifold_type);
  }
  if (degenerate_eliminated_blocks.count > 0) {
    report += Line("Degenerate blocks",
                   DegenerateText(degenerate_eliminated_blocks, " eliminated"));
  }
  if (degenerate_other_blocks.count > 0) {
    report += Line("Degenerate blocks",
                   DegenerateText(degenerate_other_blocks, " not eliminated"));
  }
  report += "\nTime (in seconds):\n";
  if (context_time_in_seconds > 0.0) {
    report += Line("Start of CUDA", Seconds(context_time_in_seconds));
  }
  report += Line("Set-up", Seconds(setup_time_in_seconds));
  if (import_time_in_seconds > 0.0) {
    report += Line("Upload of rows", Seconds(import_time_in_seconds));
  }
  report += Line("Normal blocks", Seconds(normal_blocks_time_in_seconds));
  if (is_factorized) {
    report += Line("Schur complement", Seconds(schur_time_in_seconds));
    report += Line("Factorization", Seconds(factorization_time_in_seconds));
  } else {
    report += Line("PCG", Seconds(pcg_time_in_seconds));
  }
  report +=
      Line("Back-substitution", Seconds(back_substitution_time_in_seconds));
  return report;
}

}  // namespace ceres_ext
