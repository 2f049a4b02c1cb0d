// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// DEVICE_AUTO: whether a solve goes to a device or stays on the host, by an
// estimate of its time on both. Wrong by a factor of two or so, which matters
// near the crossover alone, where both take about as long.

#ifndef CERES_EXT_PLAN_DEVICE_CHOICE_H_
#define CERES_EXT_PLAN_DEVICE_CHOICE_H_

#include <cstdint>
#include <string>

#include "ceres/solver.h"
#include "ceres_ext/import/problem_rows.h"
#include "ceres_ext/options.h"

namespace ceres_ext {

struct SolveWork {
  // Of the Jacobian: residuals times columns, summed over the rows.
  int64_t num_values = 0;
  // Of these, those of rows that Ceres evaluates: they are sent to a device in
  // each step.
  int64_t num_host_values = 0;
  int num_steps = 0;
  int num_pcg_iterations = 0;  // of a step
  // Of DENSE_SCHUR and SPARSE_SCHUR, which have no such iterations, the columns
  // that are not eliminated; 0: PCG.
  int64_t num_factorized_columns = 0;
  // Products of columns that S is summed from: for each pair of rows of an
  // eliminated block (RowFacts::num_couplings), the columns of one row that are
  // not eliminated, squared; 0: unknown.
  double num_coupling_products = 0.0;
  bool has_pairs = false;  // RowFacts
  // LINEAR_SOLVER_AUTO: PCG or the factorisation, whichever is faster.
  bool is_auto = false;
  bool float_factor = false;  // use_mixed_precision_solves
  int num_threads = 1;
  bool recomputed = false;
  bool mixed = false;
};

struct DeviceState {
  // Of the process, on the device.
  bool has_context = false;
  // How many times the rate of float is that of double; 0: not known.
  int float_to_double_ratio = 0;
};

// Of many rows a part, evenly spaced, stands for all: reaching each in memory
// would take longer than the estimate is worth.
SolveWork EstimateWork(const ProblemRows& rows,
                       const ceres::Solver::Options& options,
                       const Options& ext_options);

// The same for a problem of so many values of the Jacobian.
SolveWork EstimateWork(int64_t num_values,
                       int64_t num_host_values,
                       const ceres::Solver::Options& options,
                       const Options& ext_options);

double EstimateHostSeconds(const SolveWork& work);
double EstimateDeviceSeconds(const SolveWork& work, const DeviceState& state);
// What exact steps cost, in the time of an iteration of PCG: each of them, and
// S as a matrix once. The same for any number of threads.
struct ExactStepCost {
  double step = 0.0;
  double setup = 0.0;
};
ExactStepCost EstimateExactStepCost(const SolveWork& work, bool on_device);
// What a second level of PCG costs, in iterations: to set up, and for each step
// that has it. by_rows: without S (solver/preconditioner/coarse_parts.h).
struct CoarseCost {
  int setup = 0;
  int step = 0;
};
CoarseCost EstimateCoarseCost(const SolveWork& work,
                              bool by_rows,
                              bool on_device);

// Why the host should solve, as a clause: "device = AUTO estimates about 0.01 s
// of work, and CUDA takes 0.2 s to start". Empty where the device is faster.
std::string WhyHost(const SolveWork& work, const DeviceState& state);

// The same with the state of a device, or kNoCudaDriver, and no more threads
// than processors that the process may use. Where the host is faster in any
// case it does not start CUDA, nor load a driver that is likely there.
std::string WhyHost(const SolveWork& work, int cuda_device);

// Why a device can't factorise in the way that is asked for, for want of a
// library, a clause; empty: it can.
std::string WhyNoFactorization(SchurFactorizationType type);

// JACOBIAN_AUTO of this library's cost functions on a device with such a rate:
// whether they are recomputed.
bool RecomputedIsFaster(PrecisionType precision, int float_to_double_ratio);

// Whether a factorisation of a whole problem of so many columns takes no longer
// than PCG on the host.
bool IsSmallFactorization(int num_columns);

}  // namespace ceres_ext

#endif  // CERES_EXT_PLAN_DEVICE_CHOICE_H_
