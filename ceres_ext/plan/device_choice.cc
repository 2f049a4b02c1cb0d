// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/plan/device_choice.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <numeric>

#include "ceres_ext/base/ceres_version.h"
#include "ceres_ext/base/machines.h"
#include "ceres_ext/base/scoped_seconds.h"
#include "ceres_ext/import/batch_models.h"
#include "ceres_ext/plan/kept_rates.h"
#include "ceres_ext/solver/cholesky/factorization_cost.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/cuda_cholesky.h"
#include "cuda_kernels/machine/cuda_context.h"
#include "cuda_kernels/machine/cuda_process.h"
#include "cuda_kernels/machine/cuda_sparse_cholesky.h"
#include "cuda_kernels/machine/host_processors.h"

namespace ceres_ext {
namespace {

using kernels::MachineRates;

// Times of a device are those of an H200, and of the host those of its host;
// another machine's are in the proportion of its rates (machine_rates.h).

// The unit of work is a pass: a product with S or J'J of an iteration of PCG,
// which reads the Jacobian once.

// The steps and PCG iterations that a solve is taken to need, where its options
// do not allow fewer: between those of docs/measurements/comparison.md, 14
// iterations a step (final-13682, eta 0.1) and 34 (ladybug-49, eta 0.01).
constexpr int kSteps = 10;
constexpr int kPcgIterations = 20;
// Time of a step without PCG (evaluation, normal blocks, back-substitution), in
// passes: on the host from the two preconditioners of dubrovnik-16 in
// docs/measurements/comparison.md. On an H200 12 to 14 for final-13682
// (gpu.md), of which the launches take less: seven everyday models take 0.35 ms
// a step beside the factorisation (docs/measurements/everyday.md), 0.25 of
// which are kDeviceSecondsPerExactStep.
constexpr int kPassesBesidePcg = 10;
constexpr int kDevicePassesBesidePcg = 12;
constexpr int kDeviceLaunchesBesidePcg = 2;

// A pass on one host thread with AVX-512: 0.9e-9 to 1.2e-9 on ten models of
// 1,029 to 46,122 observations (docs/measurements/everyday.md).
constexpr double kHostSecondsPerValue = 1.0e-9;
// A row of any shape takes longer by this: 0.15 us for 21 values (directions)
// and 0.22 us for 72 (poses of a graph), one thread of the same kind.
constexpr double kHostSecondsPerGeneralRow = 1.3e-7;
// A Jacobian by Ceres, with the costs of a step: 2.4e-8 for the same, by
// AutoDiffCostFunction and HuberLoss.
constexpr double kCeresSecondsPerValue = 2.4e-8;
// Threads share it out less well the more there are: 16 take a ninth. Waking
// them, and what one does alone, a step, by the root of their number: on 16
// threads ten models of everyday sizes took 1 ms a step more than that.
constexpr double kHostThreadsExponent = 0.8;
constexpr double kHostSecondsPerStep = 2.5e-4;

// A pass on an H200, docs/measurements/gpu.md: the product of stored double
// blocks is 2.73 ms an iteration with 696 M values, and an iteration with 36 k
// observations 51 us, of which 3 are due to them.
constexpr double kDeviceSecondsPerValue = 3.9e-12;
constexpr double kDeviceSecondsPerPass = 48e-6;
// Sending rows of Ceres: 108 MB took 10.7 ms (gpu.md).
constexpr double kUploadSecondsPerValue = 8e-10;
// Making a context, and the set-up of a solve with one: the first solve of a
// process took 0.2 to 0.3 s more than the next
// (docs/measurements/comparison.md), and that of everyday models takes 3 to 7
// ms with that of S (kDeviceSecondsOfSetup) on 16 threads
// (docs/measurements/everyday.md).
constexpr double kContextSeconds = 0.2;
constexpr double kDeviceSetupSeconds = 0.001;

// The share of a pass that arithmetic in double takes on an H200, where a
// double takes as long as two floats: 4 operations a stored value at 33.5e12 a
// second; about 300 an observation of 24 values where they are recomputed,
// which pass in 1.6e-12 s each (gpu.md). If double is slower, this part grows.
// A product that S is summed of is one fused operation.
constexpr double kStoredDoubleShare = 0.03;
constexpr double kRecomputedDoubleShare = 0.27;
constexpr double kCouplingDoubleShare = 0.024;
// The ratio of the rates of float and double on cards for computing.
constexpr double kRatioOfComputing = 2.0;
// A solve of recomputed blocks over one of stored ones there (docs/use.md).
constexpr double kRecomputedPass = 0.43;

// An exact step on one host thread: blocks of the pairs are formed of the
// Jacobian where there are any, S is summed of products, then factorised by
// n^3 / 3 operations. Fitted to the same models, 0.6 to 1.8 times of what they
// take (docs/measurements/everyday.md). Setting up S takes about as long as an
// exact step.
constexpr double kHostPassesOfPairs = 5.0;
constexpr double kHostPassesWithoutPairs = 1.0;
constexpr double kHostSecondsPerCouplingProduct = 3.0e-10;
constexpr double kHostSecondsPerFlop = 2.4e-11;
constexpr double kHostSetupsPerStep = 1.0;

// The same on an H200: a product takes 3.5e-12 s where S takes 5 ms at 5 M
// observations of 9 columns and tracks of 6 (docs/measurements/gpu.md), and
// 1.4e-12 for 177 images and tracks of 31. Launches and the set-up of everyday
// models, on an H200: 0.49 ms a step of 177 columns in all, 2 ms, and where
// there are pairs, which the host lists, 3 ms for 280 k values and 47 ms for 5
// M.
constexpr double kDeviceSecondsPerCouplingProduct = 2.5e-12;
constexpr double kDeviceSecondsPerExactStep = 0.25e-3;
constexpr double kDeviceSecondsOfSetup = 2e-3;
constexpr double kDeviceSetupSecondsPerValueOfPairs = 1e-8;
// The host's analysis of a sparse S, by the values of its factor: the set-ups
// of six streets took 0.82 to 1.24 times of this
// (docs/measurements/study_exact_tuning.md).
constexpr double kSecondsPerAnalysis = 0.04;
constexpr double kSecondsPerAnalyzedValue = 1.4e-8;

// Rows of an eliminated block and columns of the rest of a row, if they were
// not counted.
constexpr double kTrackLength = 6.0;
constexpr double kColumns = 9.0;

// Columns up to which a factorisation is as fast on the host: DENSE_QR of 6 and
// DENSE_SCHUR of 138 took 0.6 to 0.8 of the time of ITERATIVE_SCHUR,
// DENSE_SCHUR of 345 and of 690 took 1.1 (docs/measurements/comparison.md).
constexpr int kMaxFactorizedColumns = 250;

double CouplingProducts(const SolveWork& work) {
  return work.num_coupling_products > 0.0
             ? work.num_coupling_products
             : 0.5 * (kTrackLength + 1.0) * kColumns * kColumns *
                   static_cast<double>(work.num_values) /
                   (2.0 * (kColumns + 3.0));
}

double HostSpeedup(const SolveWork& work) {
  return std::pow(work.num_threads, kHostThreadsExponent);
}
// On one thread. All threads together read no more than the memory gives.
double HostPassSeconds(const SolveWork& work, const MachineRates& rates) {
  const auto values = static_cast<double>(work.num_values);
  const double seconds =
      SlowerHost(rates) *
      (kHostSecondsPerValue * values +
       kHostSecondsPerGeneralRow * static_cast<double>(work.num_general_rows));
  return rates.host_bytes_per_second > 0.0
             ? std::max(seconds,
                        HostSpeedup(work) * sizeof(double) * values /
                            rates.host_bytes_per_second)
             : seconds;
}
// The values of a sparse factor of S for each product that S is summed of.
constexpr double kFactorValues = 3.0;

// If its factors were not counted, S has at most as many values as there are
// products, and a sparse factor of it some three times as many.
double HostFactorizationSeconds(const SolveWork& work) {
  if (work.factor.num_tiles > 0.0) {
    return solver::HostFactorizationSeconds(work.num_factorized_columns,
                                            work.factor);
  }
  const auto n = static_cast<double>(work.num_factorized_columns);
  const double dense = kHostSecondsPerFlop * n * n * n / 3.0;
  const double values = kFactorValues * CouplingProducts(work);
  return n > 0.0 && values < 0.5 * n * n
             ? std::min(
                   dense,
                   solver::HostSparseSeconds({values, values * values / n}))
             : dense;
}
double HostExactStepSeconds(const SolveWork& work, const MachineRates& rates) {
  return (work.has_pairs ? kHostPassesOfPairs : kHostPassesWithoutPairs) *
             HostPassSeconds(work, rates) +
         SlowerHost(rates) *
             (kHostSecondsPerCouplingProduct * CouplingProducts(work) +
              HostFactorizationSeconds(work));
}
// All steps on all threads of the host, beside either machine.
double CeresSeconds(const SolveWork& work, const MachineRates& rates) {
  return (work.num_steps + 1) * kCeresSecondsPerValue * SlowerHost(rates) *
         static_cast<double>(work.num_host_values) / HostSpeedup(work);
}

// A pass over one on an H200: stored blocks are read, and what is done with
// recomputed ones takes issue slots, by the rate of float. In double, by its
// share of the arithmetic.
double SlowerPass(bool recomputed, bool mixed, const MachineRates& rates) {
  const double slower = recomputed ? SlowerFloat(rates) : SlowerMemory(rates);
  const double share = recomputed ? kRecomputedDoubleShare : kStoredDoubleShare;
  return mixed ? slower : std::max(slower, share * SlowerDouble(rates));
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

double DeviceLaunchSeconds(const MachineRates& rates) {
  return kDeviceSecondsPerPass * SlowerLaunch(rates);
}
double DevicePassSeconds(const SolveWork& work, const MachineRates& rates) {
  return DeviceLaunchSeconds(rates) +
         kDeviceSecondsPerValue *
             SlowerPass(work.recomputed, work.mixed, rates) *
             static_cast<double>(work.num_values);
}
double DeviceCouplingSeconds(const SolveWork& work, const MachineRates& rates) {
  return kDeviceSecondsPerCouplingProduct * CouplingProducts(work) *
         std::max(SlowerMemory(rates),
                  kCouplingDoubleShare * SlowerDouble(rates));
}

// Exact steps: each, and what they take once.
struct ExactSeconds {
  double step = 0.0;
  double setup = 0.0;
};
// S is factorised in the faster way, as Options::schur_factorization AUTO does.
ExactSeconds DeviceExactSeconds(const SolveWork& work,
                                const MachineRates& rates) {
  const double launches = kDeviceSecondsPerExactStep * SlowerLaunch(rates);
  const double of_pairs =
      work.has_pairs ? kDeviceSetupSecondsPerValueOfPairs * SlowerHost(rates) *
                           static_cast<double>(work.num_values)
                     : 0.0;
  ExactSeconds exact = {launches + DeviceCouplingSeconds(work, rates),
                        kDeviceSecondsOfSetup + of_pairs};
  const int64_t n = work.num_factorized_columns;
  const auto num_values = static_cast<int64_t>(work.factor.sparse.num_values);
  const auto num_flops = static_cast<int64_t>(work.factor.sparse.num_flops);
  if (work.may_be_sparse &&
      solver::SparseIsFaster(n, num_values, num_flops, rates)) {
    exact.step +=
        solver::SparseFactorizationSeconds(num_values, num_flops, rates);
    exact.setup += SlowerHost(rates) *
                   (kSecondsPerAnalysis +
                    kSecondsPerAnalyzedValue * static_cast<double>(num_values));
  } else {
    const bool in_float = work.float_factor ||
                          (work.mixed && solver::FloatFactorIsFaster(n, rates));
    exact.step += solver::DenseFactorizationSeconds(n, rates, in_float);
  }
  return exact;
}

// All steps, less what Ceres evaluates and what is sent.
double StepsSeconds(const SolveWork& work,
                    double seconds_beside_pcg,
                    double pass_seconds,
                    const ExactSeconds& exact_seconds) {
  const double by_pcg = work.num_steps * work.num_pcg_iterations * pass_seconds;
  const double exact =
      exact_seconds.setup + work.num_steps * exact_seconds.step;
  const double linear = work.is_auto ? std::min(by_pcg, exact)
                        : work.num_factorized_columns > 0 ? exact
                                                          : by_pcg;
  return work.num_steps * seconds_beside_pcg + linear;
}

}  // namespace

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

double EstimateHostSeconds(const SolveWork& work, const MachineRates& rates) {
  const double pass = HostPassSeconds(work, rates);
  const double exact_step = HostExactStepSeconds(work, rates);
  return work.num_steps * kHostSecondsPerStep * std::sqrt(work.num_threads) +
         CeresSeconds(work, rates) +
         StepsSeconds(work,
                      kPassesBesidePcg * pass,
                      pass,
                      {exact_step, kHostSetupsPerStep * exact_step}) /
             HostSpeedup(work);
}

double EstimateDeviceSeconds(const SolveWork& work, const DeviceState& state) {
  const MachineRates& rates = state.rates;
  const double pass = DevicePassSeconds(work, rates);
  const double launches = DeviceLaunchSeconds(rates);
  const double beside_pcg = kDeviceLaunchesBesidePcg * launches +
                            kDevicePassesBesidePcg * (pass - launches);
  return kDeviceSetupSeconds + (state.has_context ? 0.0 : kContextSeconds) +
         CeresSeconds(work, rates) +
         StepsSeconds(work, beside_pcg, pass, DeviceExactSeconds(work, rates)) +
         work.num_steps * kUploadSecondsPerValue *
             static_cast<double>(work.num_host_values);
}

int64_t MostPageLockedBytes(const SolveWork& work, const DeviceState& state) {
  // PCI Express 3 with 16 lanes; 5 had 3e10 with this number of passes, and
  // page-locking took so long (docs/measurements/scaling.md).
  constexpr double kBusBytesPerSecond = 1.2e10;
  constexpr double kSecondsPerByte = 4.2e-10;
  constexpr double kPassesOfStep = 10.0;
  const double gain = EstimateHostSeconds(work, state.rates) -
                      EstimateDeviceSeconds(work, state);
  const double passes =
      work.num_steps *
      (kPassesOfStep + (work.recomputed ? 0.0 : work.num_pcg_iterations));
  return gain > 0.0 ? static_cast<int64_t>(gain / (kSecondsPerByte +
                                                   passes / kBusBytesPerSecond))
                    : 0;
}

ExactStepCost EstimateExactStepCost(const SolveWork& work,
                                    const MachineRates& rates,
                                    bool on_device) {
  if (!on_device) {
    // Threads and rates must not choose, since the bits would depend on them.
    const MachineRates of_constants;
    const double step = HostExactStepSeconds(work, of_constants) /
                        HostPassSeconds(work, of_constants);
    return {step, kHostSetupsPerStep * step};
  }
  const double pass = DevicePassSeconds(work, rates);
  const ExactSeconds exact = DeviceExactSeconds(work, rates);
  return {exact.step / pass, exact.setup / pass};
}

// Chains of 50 to 200 blocks of 3 columns with rows of one and two blocks, one
// thread, took stock's SPARSE_NORMAL_CHOLESKY 0.23 to 10.4 ms in 5 to 11
// iterations and the same here 0.61 to 18.3: 0.16 us a row and step more, and
// 0.15 ms in some ten steps. DENSE_NORMAL_CHOLESKY took 2.0 to 3,300
// ms: 6.1e-11 s for each residual and pair of columns, 3.3e-11 for each of n^3
// / 3 operations, which is 0.4 of the time here or less from 60 columns and 400
// rows on. A factorisation of at least three times what is added gains here:
// poses of a graph (2,500 of them, 5,000 rows: 0.1 s a step by stock) and
// rotations (1,000, 12,000 rows: 0.9 s).
bool StockNormalIsAsFast(const NormalWork& work) {
  constexpr double kSecondsPerRow = 1.6e-7;
  constexpr double kSecondsPerStep = 1.5e-5;
  constexpr double kSecondsPerDenseProduct = 6.1e-11;
  constexpr double kSecondsPerDenseFlop = 3.3e-11;
  constexpr double kLeastGain = 3.0;
  const double n = static_cast<double>(std::max(work.num_columns, int64_t{1}));
  double factorization = 0.0;
  if (work.is_dense) {
    factorization = kSecondsPerDenseProduct *
                        static_cast<double>(work.num_residuals) * n * n +
                    kSecondsPerDenseFlop * n * n * n / 3.0;
  } else {
    const double most = 0.5 * n * n;
    const double values =
        work.num_coupling_products < 0.0
            ? most
            : std::min(most, kFactorValues * work.num_coupling_products);
    factorization = solver::kHostSecondsPerFactorValue * values +
                    solver::kHostSecondsPerSparseFlop * values * values / n;
  }
  const double added =
      kSecondsPerStep + kSecondsPerRow * static_cast<double>(work.num_rows) /
                            std::pow(work.num_threads, kHostThreadsExponent);
  return factorization < kLeastGain * added;
}

CoarseCost EstimateCoarseCost(const SolveWork& work,
                              bool by_rows,
                              const MachineRates& rates,
                              bool on_device) {
  // docs/measurements/preconditioners.md. On a device a part of the set-up does
  // not depend on the number of rows.
  constexpr int kStep = 15;
  constexpr double kDeviceSeconds = 0.035;
  const double pass = on_device ? DevicePassSeconds(work, rates)
                                : HostPassSeconds(work, MachineRates());
  const int setup =
      on_device ? 150 + static_cast<int>(kDeviceSeconds / pass) : 100;
  if (by_rows) {
    return {setup, kStep};
  }
  // S is formed in each step, and of parts of it vectors are made.
  constexpr double kTimesS = 4.0;
  constexpr double kMost = 1e6;
  const double s_seconds =
      on_device ? DeviceCouplingSeconds(work, rates)
                : kHostSecondsPerCouplingProduct * CouplingProducts(work);
  const double s = std::min(s_seconds / pass, kMost);
  return {setup + static_cast<int>(kTimesS * s), kStep + static_cast<int>(s)};
}

std::string WhyHost(const SolveWork& work, const DeviceState& state) {
  const double host = EstimateHostSeconds(work, state.rates);
  const double device = EstimateDeviceSeconds(work, state);
  // Read by scripts/everyday.
  VLOG(1) << "device = AUTO: host " << host << " s, device " << device << " s"
          << (state.has_context ? "" : " with its start") << " for "
          << work.num_values << " values, " << work.num_host_values
          << " of Ceres, " << work.num_general_rows << " rows of any shape, "
          << work.num_factorized_columns << " factorized columns, "
          << work.num_coupling_products << " products, " << work.num_threads
          << " threads";
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
  const double ratio = std::round(FloatToDouble(state.rates));
  if (ratio > kRatioOfComputing) {
    why += " with double at 1/" + std::to_string(static_cast<int>(ratio)) +
           " of the rate of float";
  }
  return why;
}

std::string WhyHost(const SolveWork& given_work,
                    const Options& options,
                    double* start_seconds) {
  if constexpr (kHasCuda) {
    SolveWork work = given_work;
    if (work.num_threads > 1) {
      work.num_threads =
          std::min(work.num_threads, kernels::NumUsableProcessors());
    }
    DeviceState state;
    state.has_context = kernels::HasRuntimeContext(options.cuda_device);
    if (!state.has_context) {
      state.rates =
          HostRatesOf(options, EstimateHostSeconds(work, state.rates));
      const std::string why = WhyHost(work, state);
      if (!why.empty()) {
        return kernels::HasDriverFiles() || kernels::HasCudaDriver()
                   ? why
                   : kernels::kNoCudaDriver;
      }
    }
    // Starts the driver, but makes no context.
    const Clock clock;
    if (kernels::NumCudaDevices(nullptr) > 0) {
      state.rates = RatesOf(options);
      work.may_be_sparse =
          work.may_be_sparse && kernels::CudaSparseCholesky::Available().ok();
      static std::atomic<bool> is_started{false};
      if (!is_started.exchange(true) && start_seconds != nullptr) {
        *start_seconds += clock.seconds();
      }
      return WhyHost(work, state);
    }
  }
  return "";
}

std::string WhyNoFactorization([[maybe_unused]] SchurFactorizationType type) {
  if constexpr (!kHasCuda) {
    return "this build has no CUDA";
  } else {
    const auto why = [](const kernels::Status& status) {
      return status.message.substr(
          0, status.message.size() - (status.message.empty() ? 0 : 1));
    };
    std::string dense = type == SCHUR_FACTORIZATION_SPARSE
                            ? ""
                            : why(kernels::CudaDenseCholesky::Available());
    if (type == SCHUR_FACTORIZATION_DENSE ||
        (type == SCHUR_FACTORIZATION_AUTO && dense.empty())) {
      return dense;
    }
    const std::string sparse = why(kernels::CudaSparseCholesky::Available());
    return sparse.empty() || dense.empty() ? sparse : dense + "; " + sparse;
  }
}

bool RecomputedIsFaster(PrecisionType precision, const MachineRates& rates) {
  const bool mixed = precision == PRECISION_MIXED;
  return kRecomputedPass * SlowerPass(/*recomputed=*/true, mixed, rates) <
         SlowerPass(/*recomputed=*/false, mixed, rates);
}

bool IsSmallFactorization(int num_columns) {
  return num_columns <= kMaxFactorizedColumns;
}

bool ReadDevices(const std::string& text,
                 std::vector<int>* devices,
                 std::string* error) {
  devices->clear();
  if (text == "all") {
    if constexpr (kHasCuda) {
      devices->resize(
          static_cast<size_t>(kernels::NumCudaDevices(/*why_none=*/nullptr)));
      std::iota(devices->begin(), devices->end(), 0);
    }
    return true;
  }
  for (size_t begin = 0; begin < text.size() || !devices->empty();) {
    const size_t end = std::min(text.find('+', begin), text.size());
    int device = -1;
    const auto [next, code] =
        std::from_chars(text.data() + begin, text.data() + end, device);
    if (code != std::errc() || next != text.data() + end || device < 0) {
      *error = "cuda_devices: expected all, or numbers such as 0+1, found '" +
               text + "'";
      return false;
    }
    if (std::count(devices->begin(), devices->end(), device) > 0) {
      *error = "cuda_devices: device " + std::to_string(device) +
               " is named twice in '" + text + "'";
      return false;
    }
    devices->push_back(device);
    if (end == text.size()) {
      break;
    }
    begin = end + 1;
  }
  return true;
}

std::string WhyOneDevice(const Options& options,
                         bool on_device,
                         std::vector<Options>* of_devices) {
  std::vector<int> devices;
  std::vector<int> all;
  std::string error;
  if (!ReadDevices(options.cuda_devices, &devices, &error) ||
      !ReadDevices("all", &all, &error)) {
    return error;
  }
  if (options.device == DEVICE_HOST) {
    return "device = HOST";
  }
  if (on_device) {
    return "arrays are on a device";
  }
  for (const int device : devices) {
    if (std::find(all.begin(), all.end(), device) == all.end()) {
      return "there is no CUDA device " + std::to_string(device);
    }
    of_devices->push_back(options);
    of_devices->back().device = DEVICE_CUDA;
    of_devices->back().cuda_devices.clear();
    of_devices->back().cuda_device = device;
  }
  if (devices.size() < 2) {
    return devices.empty() ? "there is no CUDA device" : "it names one";
  }
  return options.cuda_stream != nullptr ? "cuda_stream is of one device" : "";
}

Options WithOneDevice(Options options) {
  std::vector<int> devices;
  std::string error;
  if (ReadDevices(options.cuda_devices, &devices, &error) && !devices.empty()) {
    options.cuda_device = devices[0];
  }
  options.cuda_devices.clear();
  return options;
}

}  // namespace ceres_ext
