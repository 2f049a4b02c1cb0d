// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// DEVICE_AUTO: whether a solve goes to a device or stays on the host, by an
// estimate of its time on both. Wrong by a factor of two or so, which matters
// near the crossover alone, where both take about as long.

#ifndef CERES_EXT_PLAN_DEVICE_CHOICE_H_
#define CERES_EXT_PLAN_DEVICE_CHOICE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ceres/solver.h"
#include "ceres_ext/import/problem_rows.h"
#include "ceres_ext/options.h"
#include "ceres_ext/solver/cholesky/factorization_cost.h"
#include "cuda_kernels/base/machine_rates.h"

namespace ceres_ext {

struct SolveWork {
  // Values of the Jacobian: residuals times columns, summed over the rows.
  int64_t num_values = 0;
  // The part of these in rows that Ceres evaluates, on threads of the host
  // whichever machine solves: they are sent to a device in each step.
  int64_t num_host_values = 0;
  int64_t num_general_rows = 0;  // RowFacts
  int num_steps = 0;
  int num_pcg_iterations = 0;  // of a step
  // For DENSE_SCHUR and SPARSE_SCHUR the columns that are not eliminated; 0 for
  // PCG.
  int64_t num_factorized_columns = 0;
  // Products of columns that S is summed from: for each pair of rows of an
  // eliminated block (RowFacts::num_couplings), the columns of one row that are
  // not eliminated, squared; 0: unknown.
  double num_coupling_products = 0.0;
  // The factors of S; 0 tiles: unknown.
  solver::FactorWork factor;
  // A device may have a sparse factor of S, which is counted.
  bool may_be_sparse = false;
  bool has_pairs = false;  // RowFacts
  // LINEAR_SOLVER_AUTO: PCG or the factorisation, whichever is faster.
  bool is_auto = false;
  bool float_factor = false;  // use_mixed_precision_solves
  int num_threads = 1;
  bool recomputed = false;
  bool mixed = false;
};

struct DeviceState {
  // Bytes that the process holds on the device.
  bool has_context = false;
  // The rates of the device and the host (plan/kept_rates.h).
  kernels::MachineRates rates;
};

// If there are many rows, an evenly spaced part represents all: reading each
// row would take longer than the estimate saves.
SolveWork EstimateWork(const ProblemRows& rows,
                       const ceres::Solver::Options& options,
                       const Options& ext_options);

// The same for a problem of so many values of the Jacobian.
SolveWork EstimateWork(int64_t num_values,
                       int64_t num_host_values,
                       const ceres::Solver::Options& options,
                       const Options& ext_options);

double EstimateHostSeconds(const SolveWork& work,
                           const kernels::MachineRates& rates);
double EstimateDeviceSeconds(const SolveWork& work, const DeviceState& state);
// The most bytes of arrays that may stay in page-locked memory of the host
// before its solve is as fast, if each of them passes over the bus in each
// iteration of PCG and some times more in each step.
int64_t MostPageLockedBytes(const SolveWork& work, const DeviceState& state);
// The costs of exact steps, in PCG iterations: of each step, and of S as a
// matrix once. On the host the same for any number of threads and any rates.
struct ExactStepCost {
  double step = 0.0;
  double setup = 0.0;
};
ExactStepCost EstimateExactStepCost(const SolveWork& work,
                                    const kernels::MachineRates& rates,
                                    bool on_device);
// The costs of a second level of PCG, in iterations: of the set-up, and of each
// step that uses it. by_rows: without S (solver/preconditioner/coarse_parts.h).
struct CoarseCost {
  int setup = 0;
  int step = 0;
};
CoarseCost EstimateCoarseCost(const SolveWork& work,
                              bool by_rows,
                              const kernels::MachineRates& rates,
                              bool on_device);

// A step by Ceres's Cholesky factorisation of J'J + D^2.
struct NormalWork {
  bool is_dense = false;
  int64_t num_rows = 0;  // residual blocks
  int64_t num_residuals = 0;
  int64_t num_columns = 0;
  // SolveWork::num_coupling_products; below 0: unknown, as many as there may
  // be.
  double num_coupling_products = -1.0;
  int num_threads = 1;
};
// True if the factorisation takes stock Ceres no longer than the host takes
// here for rows and set-up in addition.
bool StockNormalIsAsFast(const NormalWork& work);

// The reason why the host should solve, as a clause: "device = AUTO estimates
// about 0.01 s of work, and CUDA takes 0.2 s to start". Empty where the device
// is faster.
std::string WhyHost(const SolveWork& work, const DeviceState& state);

// The same with the state of the options' device, or kNoCudaDriver, and no more
// threads than processors that the process may use. If the host is faster in
// any case, it does not start CUDA and does not load a driver. Adds to
// *start_seconds how long it takes to start the driver and find the device's
// rates, once in a process; it may be null.
std::string WhyHost(const SolveWork& work,
                    const Options& options,
                    double* start_seconds = nullptr);

// The reason why a device can't factorise in the way that is asked for, for
// want of a library, a clause; empty if it can.
std::string WhyNoFactorization(SchurFactorizationType type);

// JACOBIAN_AUTO of this library's cost functions on a device with such rates:
// whether they are recomputed.
bool RecomputedIsFaster(PrecisionType precision,
                        const kernels::MachineRates& rates);

// True if a factorisation of a whole problem of so many columns takes no longer
// than PCG on the host.
bool IsSmallFactorization(int num_columns);

// The options with the first device of cuda_devices in place of cuda_device, if
// there is one.
Options WithOneDevice(Options options);

// The reason why not several devices solve a problem, a part of a sentence;
// empty if they do, each by the options in *of_devices. on_device: arrays are
// on a device.
std::string WhyOneDevice(const Options& options,
                         bool on_device,
                         std::vector<Options>* of_devices);

// The devices that Options::cuda_devices names, in its order; "all": those of
// the computer. False with a sentence in *error where it can't be read.
bool ReadDevices(const std::string& text,
                 std::vector<int>* devices,
                 std::string* error);

}  // namespace ceres_ext

#endif  // CERES_EXT_PLAN_DEVICE_CHOICE_H_
