// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// What a caller can choose about the solver that replaces Ceres's own.
//
//   ceres_ext::Options ext_options;
//   ext_options.jacobian = ceres_ext::JACOBIAN_RECOMPUTED;
//   std::string error;
//   if (!ext_options.IsValid(&error)) { ... }
//   ceres_ext::Solve(options, ext_options, &problem, &summary);
//
// Everything else (tolerances, iterations, threads, eta, and linear solver and
// preconditioner where they are not chosen here) is taken from
// ceres::Solver::Options, which keeps its meaning.

#ifndef CERES_EXT_OPTIONS_H_
#define CERES_EXT_OPTIONS_H_

#include <cstdint>
#include <string>

namespace ceres_ext {

// Where the linear solver, the vectors of the loop and the evaluation run: of
// this library's cost functions, and of a DeviceAutoDiffCostFunction or
// DeviceCostFunction with a device form. Ceres evaluates other cost functions
// on the host.
enum DeviceType {
  // The device or the host, by an estimate of the work and of what a device
  // takes to start (docs/options.md). Summary::device says which one it was
  // and, of the host, why.
  DEVICE_AUTO,
  // The host's processors, with ceres::Solver::Options::num_threads threads.
  DEVICE_HOST,
  // The CUDA device Options::cuda_device. Where it can't be used, the host is,
  // and Summary::device says why, or the solve is refused (Options::fallback).
  DEVICE_CUDA,
};

// The type of what is kept per observation: blocks of the Jacobian and of W,
// and their products. State, cost, gradient, sums and the scalars of PCG are
// double in any case.
enum PrecisionType {
  PRECISION_DOUBLE,
  // float, on a device; the host computes in double, and Summary::method says
  // so.
  PRECISION_MIXED,
};

// Where the linear solver takes the Jacobian of this library's cost functions
// from, and of users' own that bring kernels for it
// (ceres_ext/recomputed_cost_function.cuh); that of all others is stored.
enum JacobianType {
  // RECOMPUTED for this library's cost functions on a device, where it takes
  // their loss functions and the manifolds of their points, unless
  // PRECISION_DOUBLE is used where double is slow (at less than 1/16 of the
  // rate of float).
  // Else STORED, also of users' own.
  // Summary::method says which.
  JACOBIAN_AUTO,
  // Blocks are computed once per successful step and kept (24 doubles per
  // observation with 9 camera columns, 26 with 10).
  JACOBIAN_STORED,
  // Blocks are computed again from camera and point in every product. Losses on
  // this library's cost functions are Ceres's with rho'' <= 0 (no TolerantLoss)
  // and manifolds on points SubsetManifolds then (docs/options.md). Users' own
  // are recomputed on a device where all with an eliminated point are of one
  // type; else they are stored, and Summary::path_reason says why.
  JACOBIAN_RECOMPUTED,
};

// The blocks of F, the parameters that are not eliminated, whose diagonal
// blocks JACOBI and SCHUR_JACOBI are made of.
enum PreconditionerBlocksType {
  // Parameter blocks one by one, as Ceres defines these preconditioners.
  PRECONDITIONER_BLOCKS_SINGLE,
  // Parameter blocks that occur only together are one block: two are merged
  // where every residual block that depends on an eliminated block and on one
  // of them depends on the other too, as on an image's pose and its own
  // intrinsics, or on rotation and translation of one pose. Residual blocks
  // without an eliminated block (priors) count for nothing, and what would have
  // more than 32 tangent columns stays single. With CGNR, which eliminates
  // nothing, all stay single. Summary::method says how many are merged.
  PRECONDITIONER_BLOCKS_MERGED,
};

// The linear solver in place of ceres::Solver::Options::linear_solver_type, for
// programs that can't be changed.
enum LinearSolverChoice {
  LINEAR_SOLVER_AS_GIVEN,
  LINEAR_SOLVER_ITERATIVE_SCHUR,
  LINEAR_SOLVER_CGNR,
  // The exact steps of DENSE_SCHUR where these should be faster, else
  // ITERATIVE_SCHUR with SCHUR_JACOBI and exact steps where PCG takes too many
  // iterations. By an estimate from counts (docs/options.md), so that each run
  // has the same steps. Summary::method says which, and num_exact_steps how
  // many of its steps were exact.
  LINEAR_SOLVER_AUTO,
};

// The preconditioner in place of ceres::Solver::Options::preconditioner_type.
enum PreconditionerChoice {
  PRECONDITIONER_AS_GIVEN,
  PRECONDITIONER_IDENTITY,
  PRECONDITIONER_JACOBI,
  PRECONDITIONER_SCHUR_JACOBI,
  PRECONDITIONER_SCHUR_POWER_SERIES_EXPANSION,
  // SCHUR_JACOBI and a second level of vectors of clusters of blocks, where
  // ITERATIVE_SCHUR can have S as a matrix: a few iterations in place of
  // hundreds (docs/options.md).
  PRECONDITIONER_TWO_LEVEL,
  // SCHUR_JACOBI, and the second level once steps take so many iterations that
  // it pays.
  PRECONDITIONER_AUTO,
};

// PCG's iterations as a CUDA graph that repeats itself on the device, with the
// same results. On an H200 5 to 11 % less time of the minimizer with 380 k
// observations and 215 iterations, 1 % with 5 M and 84; with 84 k and 81
// between 8 % less and 8 % more (docs/measurements/gpu.md). CUDA before 12.4
// does without.
enum CudaGraphType {
  // When a hundred iterations have gone without one, unless a profiler,
  // sanitizer or debugger is found at the process, which may not follow such a
  // graph and stop the program (docs/options.md).
  CUDA_GRAPH_AUTO,
  CUDA_GRAPH_ON,
  CUDA_GRAPH_OFF,
};

// How accurate PCG is to be.
enum ForcingSequenceType {
  // MODEL_COST where PCG replaces a factorisation (linear_solver) or has merged
  // blocks (preconditioner_blocks), so that its steps are not Ceres's anyway;
  // else CONSTANT.
  FORCING_SEQUENCE_AUTO,
  // ceres::Solver::Options::eta in every step, as in Ceres: PCG ends when what
  // it can still gain is less than eta times what it has gained.
  FORCING_SEQUENCE_CONSTANT,
  // The same, and less than eta times what is left of the linear model's cost.
  // The two differ in steps that take more than half of that cost away, as the
  // first ones of a problem that starts far from its minimum: there PCG is more
  // accurate, by a factor of up to 1e4 (docs/options.md).
  FORCING_SEQUENCE_MODEL_COST,
  // As fast as the gradient falls, from eta down to eta / 100: Eisenstat and
  // Walker 1996 (cuda_kernels/base/pcg_scalars.h).
  FORCING_SEQUENCE_EISENSTAT_WALKER,
};

// How DENSE_SCHUR and SPARSE_SCHUR, which both ask for the exact step,
// factorise the Schur complement S. n: its columns, those that vary and are not
// eliminated.
enum SchurFactorizationType {
  // Of those that have room the one that should take less time.
  SCHUR_FACTORIZATION_AUTO,
  // As a dense matrix of n^2 doubles, by cuSOLVER on a device.
  SCHUR_FACTORIZATION_DENSE,
  // As a sparse one. On a device by cuDSS, which this library has to be built
  // with and finds when it runs (docs/options.md); on the host by
  // ceres::Solver::Options::sparse_linear_algebra_library_type.
  SCHUR_FACTORIZATION_SPARSE,
};

// What happens to a problem or an option that this library does not support.
enum FallbackType {
  // Ceres's own code solves it; Summary::path and Summary::path_reason say so.
  FALLBACK_TO_CERES,
  // The solve ends at once with FAILURE and the reason in Summary::message.
  FALLBACK_REFUSE,
};

struct Options {
  // False: the call is a plain ceres::Solve.
  bool enabled = true;

  DeviceType device = DEVICE_AUTO;

  // Evaluate residual blocks made of this library's cost functions in batches.
  // False: Ceres evaluates all residual blocks.
  bool batch_evaluation = true;

  JacobianType jacobian = JACOBIAN_AUTO;
  PrecisionType precision = PRECISION_DOUBLE;
  // Merged gets to the same cost in half the iterations of PCG where poses have
  // intrinsics of their own (docs/measurements/shapes.md).
  PreconditionerBlocksType preconditioner_blocks = PRECONDITIONER_BLOCKS_MERGED;
  ForcingSequenceType forcing_sequence = FORCING_SEQUENCE_AUTO;

  // Above 0: with eta below 0.1, its default, PCG ends with 0.1 where what it
  // can still gain, by the estimate that eta is compared with, is less than
  // this times the cost, say a tenth of function_tolerance. The minimum may be
  // another one than Ceres's. 0 or below: never (docs/options.md).
  double model_cost_tolerance = -1.0;

  // With DENSE_SCHUR and SPARSE_SCHUR.
  SchurFactorizationType schur_factorization = SCHUR_FACTORIZATION_AUTO;

  FallbackType fallback = FALLBACK_TO_CERES;

  // The solve runs as if the program had asked Ceres for this linear solver and
  // preconditioner, each where it is chosen; options that only a factorisation
  // has (dynamic_sparsity, use_mixed_precision_solves) are then ignored.
  // Summary::path_reason names what was replaced, or says why the program's own
  // is used: the choice can't be had, or with DEVICE_AUTO gains nothing.
  LinearSolverChoice linear_solver = LINEAR_SOLVER_AS_GIVEN;
  PreconditionerChoice preconditioner = PRECONDITIONER_AS_GIVEN;

  // Where one line about each solve is appended, as a JSON object: the path of
  // a file, which is made where there is none, or "stderr". Empty: nowhere.
  // Lines of solves at once, in one process or several, do not mix. A file that
  // can't be written is logged as an error, and the solve is not affected.
  std::string report;

  // DEVICE_AUTO and DEVICE_CUDA. The number of the device, from 0 on.
  int cuda_device = 0;

  // Most bytes that all solves of the process may hold on the device at once;
  // 0: what the device has. A problem that needs more is solved on the host,
  // which is counted before most of it is taken
  // (Summary::memory_forecast_bytes).
  int64_t cuda_memory_limit_bytes = 0;

  // A cudaStream_t of the caller's that all work is queued on, and which must
  // outlive the solve; null: the solve makes one. Not a key of ParseOptions.
  void* cuda_stream = nullptr;

  CudaGraphType cuda_graph = CUDA_GRAPH_AUTO;

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
const char* SchurFactorizationTypeToString(SchurFactorizationType type);
bool StringToSchurFactorizationType(std::string value,
                                    SchurFactorizationType* type);
const char* FallbackTypeToString(FallbackType type);
bool StringToFallbackType(std::string value, FallbackType* type);

}  // namespace ceres_ext

#endif  // CERES_EXT_OPTIONS_H_
