// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "ceres_ext/solver/pcg.h"

#include <cstdarg>
#include <cstdio>

namespace ceres_ext::solver {
namespace {

#if defined(__GNUC__)
__attribute__((format(printf, 1, 2)))
#endif
std::string
Format(const char* format, ...) {
  char text[256];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  return text;
}

}  // namespace

std::string PcgMessage(const kernels::PcgScalars& s) {
  switch (s.end) {
    case kernels::PcgEnd::kRunning:
      return "Still running.";
    case kernels::PcgEnd::kBlockBreakdown:
      return "Numerical failure. A diagonal block can't be inverted.";
    case kernels::PcgEnd::kZeroRightHandSide:
      return "Convergence. |b| = 0.";
    case kernels::PcgEnd::kInitialResidual:
      return Format("Convergence. |r| = %e <= %e.", s.norm_r, s.tol_r);
    case kernels::PcgEnd::kRhoBreakdown:
      return Format("Numerical failure. rho = r'z = %e.", s.rho);
    case kernels::PcgEnd::kBetaBreakdown:
      return Format(
          "Numerical failure. beta = rho_n / rho_{n-1} = %e, rho_n = %e, "
          "rho_{n-1} = %e.",
          s.beta,
          s.rho,
          s.last_rho);
    case kernels::PcgEnd::kUnderflow:
      return Format(
          "Iteration: %d Convergence. rho_n = %e, rho_{n-1} = %e, "
          "|r| = %e.",
          s.num_iterations,
          s.rho,
          s.last_rho,
          s.norm_r);
    case kernels::PcgEnd::kIndefinite:
      return Format(
          "The matrix is not positive definite, no more progress can be made. "
          "p'q = %e, rho = %e.",
          s.pq,
          s.rho);
    case kernels::PcgEnd::kAlphaBreakdown:
      return Format(
          "Numerical failure. alpha = rho / p'q = %e, rho = %e, p'q = %e.",
          s.alpha,
          s.rho,
          s.pq);
    case kernels::PcgEnd::kQuadraticModel:
      return Format("Iteration: %d Convergence: zeta = %e < %e. |r| = %e",
                    s.num_iterations,
                    s.zeta,
                    s.zeta_tolerance,
                    s.norm_r);
    case kernels::PcgEnd::kModelCost:
      return Format(
          "Iteration: %d Convergence: zeta = %e, and %e is left of the model's "
          "cost to gain. |r| = %e",
          s.num_iterations,
          s.zeta,
          0.5 * s.num_iterations * (s.q0 - s.q1),
          s.norm_r);
    case kernels::PcgEnd::kResidual:
      return Format("Iteration: %d Convergence. |r| = %e <= %e.",
                    s.num_iterations,
                    s.norm_r,
                    s.tol_r);
    case kernels::PcgEnd::kMaxNumIterations:
      return "Maximum number of iterations reached.";
  }
  return "Unknown end.";
}

}  // namespace ceres_ext::solver
