// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/glue/device_choice.h"

#include <algorithm>
#include <cstdio>

#include "ceres/program.h"
#include "ceres_ext/batchable_cost_function.h"
#include "ceres_ext/glue/machines.h"
#include "ceres_ext/solver/factorization_cost.h"
#include "cuda_kernels/machine/cuda_context.h"
#include "cuda_kernels/machine/cuda_process.h"
#include "cuda_kernels/machine/host_processors.h"

namespace ceres_ext {
namespace {

// The unit of work is a pass: a product with S or J'J of an iteration of PCG,
// which reads the Jacobian once.

// The steps and PCG iterations that a solve is taken to need, where its options
// do not allow fewer: between those of docs/measurements/comparison.md, 14
// iterations a step (final-13682, eta 0.1) and 34 (ladybug-49, eta 0.01).
constexpr int kSteps = 10;
constexpr int kPcgIterations = 20;
// What a step takes beside PCG (evaluation, normal blocks, back-substitution),
// in passes: on the host, of the two preconditioners of dubrovnik-16 in
// docs/measurements/comparison.md; on an H200 12 to 14 (gpu.md, final-13682).
constexpr int kPassesBesidePcg = 10;

// A pass on one host thread: dubrovnik-16 there (83,718 observations of 24
// values, two threads): 0.548 s for 10 steps and 162 iterations, 0.647 for 203.
// The others of the table are within 35 % of it.
constexpr double kHostSecondsPerValue = 2.1e-9;

// A pass on an H200, docs/measurements/gpu.md: the product of stored double
// blocks is 2.73 ms an iteration with 696 M values, and an iteration with 36 k
// observations 51 us, of which 3 are due to them.
constexpr double kDeviceSecondsPerValue = 3.9e-12;
constexpr double kDeviceSecondsPerPass = 48e-6;
// Sending rows of Ceres: 108 MB took 10.7 ms (gpu.md).
constexpr double kUploadSecondsPerValue = 8e-10;
// Making a context, and the set-up of a solve with one: the first solve of a
// process took 0.2 to 0.3 s more than the next, and the smallest solves 0.013
// to 0.024 s in all (docs/measurements/comparison.md).
constexpr double kContextSeconds = 0.2;
constexpr double kDeviceSetupSeconds = 0.01;

// The share of a pass that arithmetic in double takes on an H200, where a
// double takes as long as two floats: 4 operations a stored value at 33.5e12 a
// second; about 300 an observation of 24 values where they are recomputed,
// which pass in 1.6e-12 s each (gpu.md). Where double is slower, this part
// grows.
constexpr double kStoredDoubleShare = 0.03;
constexpr double kRecomputedDoubleShare = 0.27;
constexpr double kMeasuredRatio = 2.0;
// A solve of recomputed blocks over one of stored ones there (docs/use.md).
constexpr double kRecomputedPass = 0.43;

// The step of a factorisation, in passes: S takes of the order of 1,500
// operations an observation of a point that five or six cameras see, where a
// pass has 96; on an H200 5 ms at 5 M observations, where a pass has 0.5
// (docs/measurements/gpu.md). Beside that the host has n^3 / 3 for n columns,
// 1.5e10 a second and thread by LAPACK at n = 16,002.
constexpr int kHostPassesOfSchur = 15;
constexpr int kDevicePassesOfSchur = 10;
constexpr double kHostFactorizationRate = 1.5e10;

// Columns up to which a factorisation is as fast on the host: DENSE_QR of 6 and
// DENSE_SCHUR of 138 took 0.6 to 0.8 of the time of ITERATIVE_SCHUR,
// DENSE_SCHUR of 345 and of 690 took 1.1 (docs/measurements/comparison.md).
constexpr int kMaxFactorizedColumns = 250;

double NumPasses(const SolveWork& work, int passes_of_schur) {
  return static_cast<double>(work.num_steps) *
         (kPassesBesidePcg + (work.num_factorized_columns > 0
                                  ? passes_of_schur
                                  : work.num_pcg_iterations));
}

double FactorizationFlops(const SolveWork& work) {
  const auto n = static_cast<double>(work.num_factorized_columns);
  return n * n * n / 3.0;
}

// A pass over one at the measured ratio, by the share of arithmetic in double.
double SlowerDouble(double share, int float_to_double_ratio) {
  return std::max(1.0, share * float_to_double_ratio / kMeasuredRatio);
}

// "less than 0.001 s", "about 0.02 s", "about 30 s".
std::string About(double seconds) {
  if (seconds < 1e-3) {
    return "less than 0.001 s";
  }
  char text[32];
  std::snprintf(text,
                sizeof(text),
                seconds < 9.5 ? "about %.1g s" : "about %.0f s",
                seconds);
  return text;
}

}  // namespace

// Observations of this library need none.
bool HasDeviceForm(const ceres::CostFunction& cost_function) {
  const auto* batchable =
      dynamic_cast<const BatchableCostFunction*>(&cost_function);
  return batchable != nullptr &&
         (batchable->batch_model().kind != BatchModelKind::kOther ||
          batchable->batch_model().GetDeviceForm() != nullptr);
}

SolveWork EstimateWork(const ProblemRows& rows,
                       const ceres::Solver::Options& options,
                       const Options& ext_options) {
  constexpr int64_t kSample = 4096;
  const int64_t stride = rows.size() / kSample + 1;
  int64_t all_values = 0;
  int64_t num_host_values = 0;
  for (int64_t i = 0; i < rows.size(); i += stride) {
    int64_t num_columns = 0;
    for (int j = 0; j < rows.NumBlocks(i); ++j) {
      const int32_t block = rows.Block(i, j).index;
      num_columns +=
          block == BlockOfRow::kConstant ? 0 : rows.block(block).tangent_size;
    }
    const int64_t num_values = num_columns * rows.NumResiduals(i) * stride;
    all_values += num_values;
    if (!ext_options.batch_evaluation ||
        !HasDeviceForm(rows.TypicalCostFunction(i))) {
      num_host_values += num_values;
    }
  }
  return EstimateWork(all_values, num_host_values, options, ext_options);
}

SolveWork EstimateWork(int64_t num_values,
                       int64_t num_host_values,
                       const ceres::Solver::Options& options,
                       const Options& ext_options) {
  SolveWork work;
  work.num_values = num_values;
  work.num_host_values = num_host_values;
  work.num_steps = std::min(options.max_num_iterations, kSteps);
  work.num_pcg_iterations =
      std::min(options.max_linear_solver_iterations, kPcgIterations);
  work.num_threads = options.num_threads;
  work.recomputed = ext_options.jacobian == JACOBIAN_RECOMPUTED;
  work.mixed = ext_options.precision == PRECISION_MIXED;
  return work;
}

double EstimateHostSeconds(const SolveWork& work) {
  return (NumPasses(work, kHostPassesOfSchur) * kHostSecondsPerValue *
              static_cast<double>(work.num_values) +
          work.num_steps * FactorizationFlops(work) / kHostFactorizationRate) /
         work.num_threads;
}

double EstimateDeviceSeconds(const SolveWork& work, const DeviceState& state) {
  const double share =
      work.recomputed ? kRecomputedDoubleShare : kStoredDoubleShare;
  const double slower =
      work.mixed ? 1.0 : SlowerDouble(share, state.float_to_double_ratio);
  const double pass =
      kDeviceSecondsPerPass +
      kDeviceSecondsPerValue * slower * static_cast<double>(work.num_values);
  return kDeviceSetupSeconds + (state.has_context ? 0.0 : kContextSeconds) +
         NumPasses(work, kDevicePassesOfSchur) * pass +
         work.num_steps *
             solver::DenseFactorizationSeconds(
                 work.num_factorized_columns,
                 work.float_factor ? 0 : state.float_to_double_ratio) +
         work.num_steps * kUploadSecondsPerValue *
             static_cast<double>(work.num_host_values);
}

std::string WhyHost(const SolveWork& work, const DeviceState& state) {
  const double host = EstimateHostSeconds(work);
  const double device = EstimateDeviceSeconds(work, state);
  if (device < host) {
    return "";
  }
  std::string why = "device = AUTO estimates " + About(host);
  if (!state.has_context && host < kContextSeconds) {
    char text[64];
    std::snprintf(text,
                  sizeof(text),
                  " of work, and CUDA takes %.1g s to start",
                  kContextSeconds);
    return why + text;
  }
  why += " on the host, " + About(device) + " on a device";
  if (state.float_to_double_ratio > kMeasuredRatio) {
    why += " with double at 1/" + std::to_string(state.float_to_double_ratio) +
           " of the rate of float";
  }
  return why;
}

std::string WhyHost(const SolveWork& given_work, int cuda_device) {
  DeviceState state;
  if constexpr (kHasCuda) {
    SolveWork work = given_work;
    if (work.num_threads > 1) {
      work.num_threads =
          std::min(work.num_threads, kernels::NumUsableProcessors());
    }
    state.has_context = kernels::HasRuntimeContext(cuda_device);
    const std::string why = WhyHost(work, state);
    if (!why.empty()) {
      return state.has_context || kernels::HasDriverFiles() ||
                     kernels::HasCudaDriver()
                 ? why
                 : kernels::kNoCudaDriver;
    }
    // Starts the driver, but makes no context.
    if (kernels::NumCudaDevices(nullptr) > 0) {
      state.float_to_double_ratio = kernels::FloatToDoubleRatio(cuda_device);
      return WhyHost(work, state);
    }
  }
  return "";
}

bool RecomputedIsFaster(PrecisionType precision, int float_to_double_ratio) {
  return precision == PRECISION_MIXED ||
         kRecomputedPass *
                 SlowerDouble(kRecomputedDoubleShare, float_to_double_ratio) <
             SlowerDouble(kStoredDoubleShare, float_to_double_ratio);
}

bool IsSmallFactorization(const ceres::internal::Program& program) {
  return program.NumEffectiveParameters() <= kMaxFactorizedColumns;
}

}  // namespace ceres_ext
