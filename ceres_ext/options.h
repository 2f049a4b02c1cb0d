// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Options of the solver that replaces Ceres's.
//
//   ceres_ext::Options ext_options;
//   ext_options.jacobian = ceres_ext::JACOBIAN_RECOMPUTED;
//   std::string error;
//   if (!ext_options.IsValid(&error)) { ... }
//   ceres_ext::Solve(options, ext_options, &problem, &summary);
//
// All other options (tolerances, iterations, threads, eta, and the linear
// solver and preconditioner unless they are set here) come from
// ceres::Solver::Options and keep their meaning.

#ifndef CERES_EXT_OPTIONS_H_
#define CERES_EXT_OPTIONS_H_

#include <cstdint>
#include <string>

namespace ceres_ext {

namespace kernels {
class Communicator;
}

// The machine of the linear solver, of the vectors of the loop and of the
// evaluation. A device evaluates this library's cost functions, and each
// DeviceAutoDiffCostFunction or DeviceCostFunction with a device form. Ceres
// evaluates all other cost functions on the host.
enum DeviceType {
  // The device or the host, by an estimate of the work and of the time to start
  // a device (docs/options.md). Summary::device has the choice and the reason.
  DEVICE_AUTO,
  // The host, with ceres::Solver::Options::num_threads threads.
  DEVICE_HOST,
  // The CUDA device Options::cuda_device. If it cannot be used, the host solves
  // and Summary::device says why, or the solve is refused (Options::fallback).
  DEVICE_CUDA,
};

// The type of the data stored per observation: blocks of the Jacobian and of W,
// rows of windows, and their products. State, residuals, cost, the scalars of
// PCG and covariances are always double (docs/options.md).
enum PrecisionType {
  PRECISION_DOUBLE,
  // float on a device. The host computes in double, and Summary::method says
  // so.
  PRECISION_MIXED,
};

// The source of the Jacobian of this library's cost functions, and of
// user-defined ones with kernels for it
// (ceres_ext/device/cost_function.cuh). The Jacobian of all others is
// stored.
enum JacobianType {
  // RECOMPUTED for this library's cost functions on a device, if their losses
  // and the manifolds of their points allow it. STORED on the host, for
  // user-defined cost functions, and with PRECISION_DOUBLE if double is slow on
  // the device (less than 1/16 of the rate of float). Summary::method says
  // which.
  JACOBIAN_AUTO,
  // Blocks are computed once per successful step and stored (24 doubles per
  // observation with 9 camera columns, 26 with 10).
  JACOBIAN_STORED,
  // Blocks are computed from camera and point in every product. Losses on this
  // library's cost functions must then be Ceres's with rho'' <= 0 (not
  // TolerantLoss), and manifolds on points SubsetManifolds (docs/options.md).
  // User-defined cost functions are recomputed on a device if all with an
  // eliminated point are of one type; otherwise they are stored, and
  // Summary::path_reason says why.
  JACOBIAN_RECOMPUTED,
};

// The diagonal blocks of JACOBI and SCHUR_JACOBI, over the parameter blocks
// that are not eliminated (F).
enum PreconditionerBlocksType {
  // One block per parameter block, as in Ceres.
  PRECONDITIONER_BLOCKS_SINGLE,
  // Parameter blocks that occur only together are one block. Two are merged if
  // every residual block that depends on an eliminated block and on one of them
  // depends on the other too, such as the pose and the intrinsics of one image.
  // Residual blocks without an eliminated block (priors) do not prevent this.
  // Blocks that would have more than 32 tangent columns are not merged, and
  // with CGNR none are. Summary::method says how many are merged.
  PRECONDITIONER_BLOCKS_MERGED,
};

// The linear solver that replaces ceres::Solver::Options::linear_solver_type,
// for programs that cannot be changed.
enum LinearSolverChoice {
  LINEAR_SOLVER_AS_GIVEN,
  LINEAR_SOLVER_ITERATIVE_SCHUR,
  LINEAR_SOLVER_CGNR,
  // The exact steps of DENSE_SCHUR if these should be faster, otherwise
  // ITERATIVE_SCHUR with SCHUR_JACOBI, and exact steps, or TWO_LEVEL if that is
  // cheaper, when PCG takes too many iterations. Estimates use counts only
  // (docs/options.md), so each run has the same steps. Summary::method has the
  // choice and num_exact_steps the number of exact steps.
  LINEAR_SOLVER_AUTO,
};

// The preconditioner that replaces
// ceres::Solver::Options::preconditioner_type.
enum PreconditionerChoice {
  PRECONDITIONER_AS_GIVEN,
  PRECONDITIONER_IDENTITY,
  PRECONDITIONER_JACOBI,
  PRECONDITIONER_SCHUR_JACOBI,
  PRECONDITIONER_SCHUR_POWER_SERIES_EXPANSION,
  // SCHUR_JACOBI and a second level of vectors of clusters of blocks, for
  // ITERATIVE_SCHUR: a few iterations instead of hundreds (docs/options.md).
  PRECONDITIONER_TWO_LEVEL,
  // SCHUR_JACOBI, and the second level once steps take so many iterations that
  // it pays off.
  PRECONDITIONER_AUTO,
};

// Launches as CUDA graphs, with the same results: sequences of a step that come
// again, and PCG's iterations, which repeat on the device. The latter save, on
// an H200, 5 to 11 % of the minimizer's time with 380,000 observations and 215
// iterations, and 1 % with 5 million and 84
// (docs/measurements/gpu_tuning.md). They require CUDA 12.4; older versions
// queue iterations one by one.
enum CudaGraphType {
  // Sequences from their third time on, and PCG after a hundred iterations
  // without a graph, unless a profiler, sanitizer or debugger started or traces
  // the process: these may not support such a graph (docs/options.md).
  CUDA_GRAPH_AUTO,
  CUDA_GRAPH_ON,
  CUDA_GRAPH_OFF,
};

// The rates of host and device by which solves and their solvers are chosen:
// memory, launches, arithmetic in float and double.
enum MachineRatesType {
  // Measured in about 0.3 s when first needed, and kept in the user's cache
  // folder (docs/options.md). If they can't be kept they are BUILT_IN, so that
  // every run has the same ones, and so they are in a solve by several devices
  // or ranks.
  MACHINE_RATES_MEASURED,
  // The rates of an H200 and its host, on which the constants were measured,
  // with double as slow as CUDA says of the device.
  MACHINE_RATES_BUILT_IN,
};

// The accuracy of PCG.
enum ForcingSequenceType {
  // MODEL_COST if PCG replaces a factorisation (linear_solver) or has merged
  // blocks (preconditioner_blocks), because its steps then differ from Ceres's;
  // otherwise CONSTANT.
  FORCING_SEQUENCE_AUTO,
  // ceres::Solver::Options::eta in every step, as in Ceres: PCG stops when the
  // possible gain is less than eta times the gain so far.
  FORCING_SEQUENCE_CONSTANT,
  // The possible gain must also be less than eta times the rest of the linear
  // model's cost. This makes PCG more accurate, by a factor of up to 1e4, in
  // steps that remove more than half of that cost, such as the first ones far
  // from the minimum (docs/options.md).
  FORCING_SEQUENCE_MODEL_COST,
  // Follows the decrease of the gradient, from eta down to eta / 100: Eisenstat
  // and Walker 1996 (cuda_kernels/base/pcg_scalars.h).
  FORCING_SEQUENCE_EISENSTAT_WALKER,
};

// The factorisation of the Schur complement S by DENSE_SCHUR, SPARSE_SCHUR,
// DENSE_NORMAL_CHOLESKY and SPARSE_NORMAL_CHOLESKY, which all take the exact
// step. S has n columns: those that vary and are not eliminated.
enum SchurFactorizationType {
  // The one that should be faster, of those that fit into memory.
  SCHUR_FACTORIZATION_AUTO,
  // A dense matrix of n^2 doubles, by cuSOLVER on a device.
  SCHUR_FACTORIZATION_DENSE,
  // A sparse matrix. On a device by cuDSS, which must be available when this
  // library is built and when it runs (docs/options.md); on the host by
  // ceres::Solver::Options::sparse_linear_algebra_library_type.
  SCHUR_FACTORIZATION_SPARSE,
};

// The handling of problems and options that this library does not support.
enum FallbackType {
  // Stock Ceres solves; Summary::path and Summary::path_reason say so.
  FALLBACK_TO_CERES,
  // The solve ends at once with FAILURE and the reason in Summary::message.
  FALLBACK_REFUSE,
};

struct Options {
  // If false, the call is a plain ceres::Solve.
  bool enabled = true;

  DeviceType device = DEVICE_AUTO;

  // If true, this library evaluates residual blocks of its cost functions in
  // batches. If false, Ceres evaluates all residual blocks.
  bool batch_evaluation = true;

  JacobianType jacobian = JACOBIAN_AUTO;
  PrecisionType precision = PRECISION_DOUBLE;
  // MERGED reaches the same cost in half the PCG iterations if poses have
  // separate intrinsics (docs/measurements/shapes.md).
  PreconditionerBlocksType preconditioner_blocks = PRECONDITIONER_BLOCKS_MERGED;
  ForcingSequenceType forcing_sequence = FORCING_SEQUENCE_AUTO;

  // If above 0, and eta is below its default 0.1, PCG stops with 0.1 once the
  // possible gain is less than this times the cost. A tenth of
  // function_tolerance is a good value. The solve may end in another minimum
  // than Ceres's. Values of 0 and below turn this off (docs/options.md).
  double model_cost_tolerance = -1.0;

  // Used for exact steps.
  SchurFactorizationType schur_factorization = SCHUR_FACTORIZATION_AUTO;

  FallbackType fallback = FALLBACK_TO_CERES;

  // The solve runs as if the program had asked Ceres for this linear solver and
  // preconditioner. Options that only a factorisation has (dynamic_sparsity,
  // use_mixed_precision_solves) are then ignored. Summary::path_reason names
  // what was replaced, or says why the program's choice is used: this one is
  // not available, or with DEVICE_AUTO does not pay off.
  LinearSolverChoice linear_solver = LINEAR_SOLVER_AS_GIVEN;
  PreconditionerChoice preconditioner = PRECONDITIONER_AS_GIVEN;

  // The path of a file, created if necessary, to which each solve appends a
  // line, a JSON object; or "stderr"; or empty for no report. Lines of
  // concurrent solves, in one process or several, do not mix. A file that
  // cannot be written is logged as an error and does not affect the solve.
  std::string report;

  // The number of the device, 0 or more, for DEVICE_AUTO and DEVICE_CUDA.
  int cuda_device = 0;
  // Several devices that solve a problem together, each a part of its points,
  // or a batch, each some of its problems: "0+1", or "all". Empty: cuda_device
  // alone. Everything else is solved by the first, and Summary::path_reason
  // says why (docs/scale.md).
  // Callbacks are called by the calling thread.
  std::string cuda_devices;

  // Maximum bytes that all solves of the process together may hold on the
  // device; 0 for no limit. If a problem needs more, which is forecast before
  // most of it is allocated (Summary::memory_forecast_bytes), its largest
  // arrays stay in page-locked memory of the host, and Summary::device says so.
  // The host solves it where that is estimated to be faster, unless fallback is
  // REFUSE, if steps are exact or S is a matrix, and if that is not enough.
  int64_t cuda_memory_limit_bytes = 0;

  // The caller's cudaStream_t for all work, which must outlive the solve; if
  // null, the solve creates one. Not a key of ParseOptions.
  void* cuda_stream = nullptr;

  CudaGraphType cuda_graph = CUDA_GRAPH_AUTO;

  // If there is a device, for DEVICE_AUTO and the other choices of AUTO on it.
  MachineRatesType machine_rates = MACHINE_RATES_MEASURED;

  // The ranks that solve a problem of arrays together (communicator.h,
  // docs/scale.md): this one's end, which outlives the solve. Null: this
  // process solves alone. Not a key of ParseOptions.
  kernels::Communicator* communicator = nullptr;

  // True if the fields can be used together. Otherwise false, and *error (if
  // not null) names the field, its value and what was expected.
  bool IsValid(std::string* error) const;
};

// Sets *options from "key=value[,key=value...]", where the keys are the names
// of the fields above and the values true/false, a decimal number, a path
// without commas or the lower-case enum name without its prefix:
// "jacobian=recomputed,cuda_device=1".
// Fields that are not named keep their value. An unknown key, an unknown value,
// a key given twice or a result that is not valid returns false, leaves
// *options as it was and describes the first fault in *error.
bool ParseOptions(const std::string& settings,
                  Options* options,
                  std::string* error);

// Enum values and the strings that ParseOptions takes. StringTo... is case
// insensitive, like Ceres's own, and returns false for any other string.
const char* DeviceTypeToString(DeviceType type);
bool StringToDeviceType(std::string value, DeviceType* type);
const char* JacobianTypeToString(JacobianType type);
bool StringToJacobianType(std::string value, JacobianType* type);
const char* PrecisionTypeToString(PrecisionType type);
bool StringToPrecisionType(std::string value, PrecisionType* type);
const char* PreconditionerBlocksTypeToString(PreconditionerBlocksType type);
bool StringToPreconditionerBlocksType(std::string value,
                                      PreconditionerBlocksType* type);
const char* LinearSolverChoiceToString(LinearSolverChoice choice);
bool StringToLinearSolverChoice(std::string value, LinearSolverChoice* choice);
const char* PreconditionerChoiceToString(PreconditionerChoice choice);
bool StringToPreconditionerChoice(std::string value,
                                  PreconditionerChoice* choice);
const char* ForcingSequenceTypeToString(ForcingSequenceType type);
bool StringToForcingSequenceType(std::string value, ForcingSequenceType* type);
const char* CudaGraphTypeToString(CudaGraphType type);
bool StringToCudaGraphType(std::string value, CudaGraphType* type);
const char* MachineRatesTypeToString(MachineRatesType type);
bool StringToMachineRatesType(std::string value, MachineRatesType* type);
const char* SchurFactorizationTypeToString(SchurFactorizationType type);
bool StringToSchurFactorizationType(std::string value,
                                    SchurFactorizationType* type);
const char* FallbackTypeToString(FallbackType type);
bool StringToFallbackType(std::string value, FallbackType* type);

}  // namespace ceres_ext

#endif  // CERES_EXT_OPTIONS_H_
