// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// How a problem is solved: on which machine, by which step solver, with which
// Jacobian, and why. A value, decided before anything of the problem is
// allocated, and the only place where that is decided:
//
//   std::variant<SolvePlan, Refusal> decision = Decide(request, rows,
//   machines);
//
// Decide is pure: it reads its arguments alone. If a plan fails, the next one
// is that of the same request without the part that has failed
// (plan/attempts.h). The kinds of rows that a device can evaluate, or
// recompute, are known when their kernels have been launched, in the set-up;
// the plan has no say in that.

#ifndef CERES_EXT_PLAN_SOLVE_PLAN_H_
#define CERES_EXT_PLAN_SOLVE_PLAN_H_

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "ceres/solver.h"
#include "ceres_ext/options.h"
#include "ceres_ext/plan/attempts.h"
#include "ceres_ext/plan/device_choice.h"
#include "ceres_ext/solver/step_options.h"
#include "cuda_kernels/base/machine_rates.h"

namespace ceres_ext {

// The use of a problem that is set up.
enum class Purpose {
  kSolve,
  kEvaluation,  // one of cost and gradient, without steps
  kCovariance,  // factors of S, or PCG, without a loop
  kSmall,       // small problems, each by a team of threads
};

// The request.
struct PlanRequest {
  Options options;
  ceres::Solver::Options solver_options;  // of a solver that is replaced
  int num_threads = 1;
  Attempt attempt;
  Purpose purpose = Purpose::kSolve;
  // PCG replaces a factorisation (ChooseLinearSolver).
  bool replaces_factorization = false;
  // The solve reads and writes its state in Ceres's own memory where that is
  // the host's.
  bool has_ceres_state = true;
};

// Facts about the rows after the import.
struct RowFacts {
  int64_t num_observations = 0;
  int num_observation_kinds = 0;
  int64_t num_other_rows = 0;
  int64_t num_general_rows = 0;  // of these, of any shape
  bool has_private = false;      // blocks that are eliminated within a row
  bool has_models = false;       // of users' cost functions
  int64_t num_columns = 0;
  // Columns that are not eliminated.
  int64_t num_other_columns = 0;
  // Columns of blocks that many views share, as intrinsics
  // (solver/preconditioner/coarse_units.h).
  int64_t num_shared_columns = 0;
  // The columns of the widest block that is not eliminated.
  int max_block_columns = 0;
  int64_t num_residuals = 0;
  // For an estimate of exact steps: pairs of rows of an eliminated block, each
  // with itself included, over all of them, and rows without one; and whether S
  // as a matrix is summed of pairs of blocks (solver/explicit_schur.h).
  double num_couplings = 0.0;
  bool has_pairs = false;
  // Many rows of an eliminated block have the same other block, so that pairs
  // of rows are far more than pairs of blocks. S as a matrix is then summed of
  // pairs of blocks, which num_couplings counts.
  bool rows_repeat = false;
  // The factors of S of general rows; 0 tiles: not counted.
  solver::FactorWork factor;
  // Values of the Jacobian (residuals times columns), and those in rows that
  // the host evaluates if there is a device.
  int64_t num_values = 0;
  int64_t num_host_values = 0;
};

// The facts beside those of a structure that a decision may depend on. Each
// takes a pass over the rows.
struct FactsWanted {
  bool values = false;     // num_values, num_host_values
  bool repeats = false;    // rows_repeat
  bool couplings = false;  // num_couplings, has_pairs, factor
};
FactsWanted FactsFor(const PlanRequest& request);

// Questions to rows and machines, asked only when a decision depends on them:
// an answer may take a pass over the rows, or start a driver.
class MachineFacts {
 public:
  virtual ~MachineFacts() = default;

  virtual bool BuildHasCuda() const = 0;
  // The reason why the device of the options can't be used, a clause; empty if
  // it can. Asked before anything of a device.
  virtual std::string WhyNoDevice() const = 0;
  // DEVICE_AUTO: why the host is the better choice for so much work, a clause;
  // empty: it isn't.
  virtual std::string WhyHost(const SolveWork& work) const = 0;
  // The reason why the device can't factorise as asked, a clause; empty if it
  // can.
  virtual std::string WhyNoFactorization(SchurFactorizationType type) const = 0;
  // The rates of the device that is used, and of the host (plan/kept_rates.h).
  virtual kernels::MachineRates Rates() const = 0;
  // The rates of the host alone, which is estimated to take so long by the
  // default ones: HostRatesOf.
  virtual kernels::MachineRates HostRates(double host_seconds) const = 0;
  // The reason why the Jacobian of the observations can't be recomputed, as the
  // end of "jacobian RECOMPUTED supports"; empty if it can.
  virtual std::string WhyNotRecomputed() const = 0;
};

struct SolvePlan {
  // The type of the request, or DENSE_SCHUR by LINEAR_SOLVER_AUTO.
  ceres::LinearSolverType linear_solver_type = ceres::ITERATIVE_SCHUR;
  bool on_device = false;
  // The reason against a device, a clause; empty if no device was requested.
  std::string why_host;
  solver::StepOptions step;
  // F blocks that occur only together have one block of the preconditioner.
  bool merge_blocks = false;
  // Ceres's name of the preconditioner, for Summary::method.
  std::string preconditioner_name;
  // AUTO: ForcingSequenceOf knows.
  ForcingSequenceType forcing_sequence = FORCING_SEQUENCE_AUTO;
  // PCG is at least so accurate, whatever Ceres asks for.
  double most_q_tolerance = 1.0;
  // The part of the model's cost that PCG may leave, relative to the cost.
  double model_cost_tolerance = 0.0;
  // For observations. For views it is a request (WhyStored).
  bool recomputed = false;
  bool mixed = false;
  // The most bytes of arrays that may stay on the host where a device has no
  // room for all.
  int64_t most_page_locked_bytes = 0;
  // The loop keeps its best state in a vector of its own.
  bool keeps_best = false;
  // The ranks that solve; null: there is one.
  kernels::Communicator* communicator = nullptr;
  // Additional information for the user beside the path.
  std::vector<std::string> notes;
};

// This library doesn't solve the problem, and why, a clause.
struct Refusal {
  std::string reason;
  // Another order of elimination has no answer to it either.
  bool is_final = false;
};

std::variant<SolvePlan, Refusal> Decide(const PlanRequest& request,
                                        const RowFacts& rows,
                                        const MachineFacts& machines);

// The plan's forcing sequence, where blocks are merged or not.
ForcingSequenceType ForcingSequenceOf(const SolvePlan& plan, bool are_merged);

// "stock Ceres solves with DENSE_SCHUR on the host, because device = HOST"
std::string SolvedByCeres(const ceres::Solver::Options& options,
                          const std::string& why_host);

// A sentence as a part of another one. Names such as CUDA keep their capitals.
std::string AsClause(const std::string& sentence);
std::string WithoutPeriod(std::string text);

}  // namespace ceres_ext

#endif  // CERES_EXT_PLAN_SOLVE_PLAN_H_
