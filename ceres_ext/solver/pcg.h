// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Preconditioned conjugate gradients, on any machine. When it stops:
// cuda_kernels/base/pcg_scalars.h.
//
// Memory traffic of one iteration, vectors of n doubles:
//   z = M^-1 r        1x preconditioner
//   direction         5n    r, z, z, p -> p
//   q = A p           1x operator
//   advance           5n    p, q, p, x -> x
//   residual          5n    q, r, b, x -> r
// Every residual_reset_period-th iteration has one operator more, and so has
// the start from an x that is given.
#ifndef CERES_EXT_SOLVER_PCG_H_
#define CERES_EXT_SOLVER_PCG_H_

#include <cstdint>
#include <string>

#include "ceres_ext/solver/step_options.h"
#include "cuda_kernels/base/breakdown.h"
#include "cuda_kernels/base/pcg_scalars.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/base/vector_space.h"
#include "cuda_kernels/ops/pcg.h"

namespace ceres_ext::solver {

// Vectors of n elements and the scalars, in the memory of the machine.
struct PcgVectors {
  kernels::VectorSpace space;
  const double* rhs = nullptr;
  double* x = nullptr;  // the solution
  double* p = nullptr;
  double* r = nullptr;
  double* z = nullptr;  // also q
  // True if PCG starts from x; otherwise it starts from zero.
  bool x_is_given = false;
  // The operator meets other ranks on the host.
  bool waits_for_ranks = false;
  // It does not where it is recorded.
  bool can_record = true;
  // model_constant is read where per_solve.use_model_cost.
  kernels::PcgScalars* scalars = nullptr;
};

// Solves A x = rhs. multiply(p, q) is q = A p, precondition(r, z) is
// z = M^-1 r; both return a Status and may be asked to work on scalars that
// have ended, when their result is not used. Leaves the scalars of the end in
// *scalars: where one of `breakdowns` is a block, no iteration is worked on.
// finish() queues what is made of x, behind the last iteration and whatever its
// end: the host need not know this before.
// *loop: of one solve after the other with the same vectors, operators and
// reset period; Reset it where they are others. The inputs of the operators may
// change.
template <typename Machine,
          typename Multiply,
          typename Precondition,
          typename Finish>
kernels::Status ConjugateGradients(const StepOptions& options,
                                   const StepPerSolveOptions& per_solve,
                                   const kernels::PcgForcing& forcing,
                                   const kernels::BreakdownArrays& breakdowns,
                                   const PcgVectors& v,
                                   Multiply&& multiply,
                                   Precondition&& precondition,
                                   Finish&& finish,
                                   typename Machine::PcgLoop* loop,
                                   Machine* machine,
                                   kernels::PcgScalars* scalars) {
  // x = 0, r = b, Q_0 = 0
  kernels::PcgStartParams start;
  start.x_is_given = v.x_is_given;
  start.n = v.space.size();
  start.q_tolerance = per_solve.q_tolerance;
  start.r_tolerance = per_solve.r_tolerance;
  start.model_cost_tolerance = per_solve.model_cost_tolerance;
  start.forcing = forcing;
  start.has_model_constant = per_solve.use_model_cost;
  start.min_num_iterations = options.min_num_iterations;
  start.max_num_iterations = options.max_num_iterations;
  start.rhs = v.rhs;
  start.x = v.x;
  start.r = v.r;
  start.scalars = v.scalars;
  start.published = machine->published_scalars();
  start.breakdowns = breakdowns;
  CERES_EXT_RETURN_IF_ERROR(Run(start, machine));

  double* q = v.z;
  kernels::PcgResidualParams residual{
      v.space.size(), /*reset=*/false, v.rhs, q, v.x, v.r, v.scalars};
  if (v.x_is_given) {
    // r = b - A x, Q_0 = -x'(b + r)
    CERES_EXT_RETURN_IF_ERROR(multiply(v.x, q));
    residual.reset = true;
    CERES_EXT_RETURN_IF_ERROR(Run(residual, machine));
  }

  const int period = options.residual_reset_period;
  // The queued work depends only on i modulo the period.
  const auto iterate = [&](int i) -> kernels::Status {
    // z = M^-1 r
    CERES_EXT_RETURN_IF_ERROR(precondition(v.r, v.z));
    // rho = r'z, p = z + (rho / last rho) p
    CERES_EXT_RETURN_IF_ERROR(RunInOrder(
        machine,
        kernels::PcgRhoParams{v.space.size(), v.r, v.z, v.scalars},
        kernels::PcgDirectionParams{v.space.size(), v.z, v.p, v.scalars}));
    // q = A p
    CERES_EXT_RETURN_IF_ERROR(multiply(v.p, q));
    // x = x + (rho / p'q) p, r = r - (rho / p'q) q
    const kernels::PcgAlphaParams alpha{v.space.size(), v.p, q, v.scalars};
    const kernels::PcgAdvanceParams advance{
        v.space.size(), v.p, v.x, v.scalars};
    residual.reset = (i + 1) % period == 0;
    if (!residual.reset) {
      return RunInOrder(machine, alpha, advance, residual);
    }
    // That r drifts from b - A x by rounding, so now and then q = A x,
    // r = b - q.
    CERES_EXT_RETURN_IF_ERROR(RunInOrder(machine, alpha, advance));
    CERES_EXT_RETURN_IF_ERROR(multiply(v.x, q));
    return Run(residual, machine);
  };

  const auto should_poll = [&](int i) {
    const bool may_have_ended = machine->ShouldPoll(i);
    const kernels::PcgScalars* const published = machine->published_scalars();
    if (!v.waits_for_ranks || published == nullptr) {
      return may_have_ended;
    }
    // All ranks queue as many iterations, so they look at an iteration that is
    // over on all of them: that behind the event that ShouldPoll waits for, not
    // one that may just be over.
    return i >= kernels::kNumPublishedPcg - 1 &&
           PcgHasEnded(published + i % kernels::kNumPublishedPcg);
  };
  for (int i = 0;; ++i) {
    if (v.can_record && machine->QueueToEnd(i,
                                            period,
                                            options.max_num_iterations,
                                            std::cref(iterate),
                                            v.scalars,
                                            loop)) {
      CERES_EXT_RETURN_IF_ERROR(finish());
      return machine->ReadScalars(v.scalars, scalars);
    }
    // Steps after the end do nothing, and max_num_iterations is an end.
    if (i >= options.max_num_iterations || should_poll(i)) {
      CERES_EXT_RETURN_IF_ERROR(machine->ReadScalars(v.scalars, scalars));
      if (scalars->end != kernels::PcgEnd::kRunning) {
        return finish();
      }
    }
    CERES_EXT_RETURN_IF_ERROR(iterate(i));
  }
}

// Ceres's meaning of the end of a solve.
inline Termination PcgTermination(kernels::PcgEnd end) {
  switch (end) {
    case kernels::PcgEnd::kZeroRightHandSide:
    case kernels::PcgEnd::kInitialResidual:
    case kernels::PcgEnd::kQuadraticModel:
    case kernels::PcgEnd::kModelCost:
    case kernels::PcgEnd::kResidual:
    case kernels::PcgEnd::kUnderflow:
      return Termination::kSuccess;
    case kernels::PcgEnd::kIndefinite:
    case kernels::PcgEnd::kMaxNumIterations:
      return Termination::kNoConvergence;
    case kernels::PcgEnd::kBlockBreakdown:
    case kernels::PcgEnd::kRhoBreakdown:
    case kernels::PcgEnd::kBetaBreakdown:
    case kernels::PcgEnd::kAlphaBreakdown:
      return Termination::kFailure;
    case kernels::PcgEnd::kRunning:
      break;
  }
  return Termination::kFatalError;
}

// The end in a sentence with the numbers that decided it.
std::string PcgMessage(const kernels::PcgScalars& scalars);

}  // namespace ceres_ext::solver

#endif  // CERES_EXT_SOLVER_PCG_H_
