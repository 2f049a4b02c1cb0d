// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The main interface. Replace
//
//   ceres::Solve(options, &problem, &summary);
//
// by
//
//   ceres_ext::Solve(options, ext_options, &problem, &summary);
//
// The program keeps its ceres::Problem, its options and Ceres's trust-region
// loop. This library replaces the linear solver: ITERATIVE_SCHUR and CGNR with
// IDENTITY, JACOBI, SCHUR_JACOBI or SCHUR_POWER_SERIES_EXPANSION, or a
// two-level preconditioner, and the exact steps of DENSE_SCHUR, SPARSE_SCHUR,
// DENSE_NORMAL_CHOLESKY and SPARSE_NORMAL_CHOLESKY. It evaluates its own cost
// functions and DeviceAutoDiffCostFunction. Stock Ceres solves problems that
// this library does not support, and the summary says why; Options::fallback
// refuses them instead.
//
// Pass a problem with millions of residual blocks as arrays
// (ceres_ext/array_problem.h), which need no object per residual block:
//
//   ceres_ext::Solve(options, ext_options, &array_problem, &summary);
//
// Programs that cannot be changed use an environment variable:
//
//   CERES_SOLVER_PLUGIN=ceres_ext:jacobian=recomputed ./program
//
// The text after the colon is in the format of ParseOptions.

#ifndef CERES_EXT_SOLVE_H_
#define CERES_EXT_SOLVE_H_

#include <memory>
#include <string>
#include <vector>

#include "ceres/problem.h"
#include "ceres/solver.h"
#include "ceres_ext/array_problem.h"
#include "ceres_ext/options.h"
#include "ceres_ext/summary.h"

namespace ceres_ext {

// Solves the problem as ceres::Solve does: it updates *problem's parameters,
// and every field of *summary has Ceres's meaning.
//
// Thread safety: several threads may solve different problems at the same time.
// One call at a time may use a ceres::Problem, also to evaluate it or for
// covariances, because each call numbers the problem's blocks. Problems in use
// at the same time may share parameter blocks that none of the calls writes,
// and cost functions, losses and manifolds whose members may be called
// concurrently. The options hold for this call only. A ceres::Solve in a
// callback or on another thread stays stock.
//
// Determinism: on PATH_FULL the result is bit-identical from run to run and for
// any number of threads, except with use_inner_iterations and no
// inner_iteration_ordering, where Ceres orders by address. On PATH_CERES it
// depends on the threads (docs/determinism.md).
//
// Errors: throws nothing. Invalid options, a lack of host memory and exceptions
// of callbacks end with termination_type FAILURE, the reason in
// summary->message and unchanged parameters, or the result if it was already
// complete. An exception of a cost function, loss function or manifold counts
// as an evaluation that returned false; on PATH_CERES it ends the solve with
// FAILURE. If a device fails or has too little memory, the host solves. If
// threads cannot be created, the solve continues with fewer
// (docs/reliability.md).
void Solve(const ceres::Solver::Options& options,
           const Options& ext_options,
           ceres::Problem* problem,
           Summary* summary);

// The same for callers that keep a ceres::Solver::Summary. summary->message
// ends with the path that was taken.
void Solve(const ceres::Solver::Options& options,
           const Options& ext_options,
           ceres::Problem* problem,
           ceres::Solver::Summary* summary);

// Solves a problem of arrays with the same options, callbacks and summary, in
// Ceres's loop. Any kind of residual block is solved without a ceres::Problem.
// Features that need a ceres::Problem build one from the arrays first, which
// takes time and memory, and summary->path_reason says so: a line search,
// inner iterations, linear_solver_ordering, check_gradients, dumps, a linear
// solver or preconditioner that only stock Ceres has, arrays of which nothing
// varies, and ext_options.enabled false.
//
// A problem that is not valid (ArrayProblem::IsValid) ends with FAILURE and the
// reason in summary->message, before anything is allocated for it.
void Solve(const ceres::Solver::Options& options,
           const Options& ext_options,
           ArrayProblem* problem,
           Summary* summary);

// Starts CUDA on the device that the options name, which takes 0.2 to 0.4 s and
// otherwise happens in the first solve. Call it on a thread beside other work.
// Returns false with a message in *error if the device is not available. Thread
// safe.
bool StartDevice(const Options& ext_options, std::string* error);

// Frees what solves keep for later solves of the process: host threads, and on
// a device a stream, page-locked memory and at most 64 MiB for each of up to
// four concurrent solves. Handles of cuSOLVER, cuBLAS and cuDSS, some tens of
// megabytes each, too; their destruction waits for the whole device and breaks
// stream captures of other threads. ArraySolvers keep their resources. Thread
// safe.
void ReleaseIdle();

struct EvaluateOptions {
  // If false, losses and weights are not applied.
  bool apply_loss_function = true;
  // Number of host threads, 1 or more.
  int num_threads = 1;
};

// Evaluates a problem of arrays at their current values, without solving it.
// The arrays are not changed. Null outputs are not computed.
//
//   cost       1/2 sum rho(|r|^2) over all residual blocks
//   residuals  residuals of each residual block, array by array; corrected for
//              loss and weight as by ceres::Problem::Evaluate
//   gradient   derivatives of the cost, array by array; for each parameter
//              block as many as its manifold's TangentSize, or its size
//              without a manifold; zeros if it is constant or in no residual
//              block
//
// Cost and gradient together have the bits of the start of a solve with CGNR
// and IDENTITY on the same device. A cost alone has the bits of a trial step,
// which may differ with automatic differentiation. Residuals are computed on
// the host.
//
// Returns false with a message in *error if options or arrays are not valid,
// memory runs out, or a residual block cannot be evaluated. Throws nothing.
// Thread safety: several threads may evaluate the same arrays at the same time,
// while no solve writes them.
bool Evaluate(const EvaluateOptions& options,
              const Options& ext_options,
              const ArrayProblem& problem,
              double* cost,
              std::vector<double>* residuals,
              std::vector<double>* gradient,
              std::string* error);

// Solves problems of arrays one after the other, with the same bits as Solve.
// It keeps threads, the device and the memory of the last solve. If all index
// arrays have the same contents (compared by a hash of 64 bits), it also keeps
// the index built from them. Values, observations, constant flags, losses and
// options may change.
//
//   ceres_ext::ArraySolver solver;
//   for (...) {
//     solver.Solve(options, ext_options, &problem, &summary);
//   }
//
// Kept memory counts for Options::cuda_memory_limit_bytes. It is freed with the
// object, and after a solve that failed. Not thread safe: use one object per
// concurrent solve.
class ArraySolver {
 public:
  ArraySolver();
  ~ArraySolver();
  ArraySolver(ArraySolver&&) noexcept;
  ArraySolver& operator=(ArraySolver&&) noexcept;

  void Solve(const ceres::Solver::Options& options,
             const Options& ext_options,
             ArrayProblem* problem,
             Summary* summary);

  // The same as the function above, with the kept resources.
  bool Evaluate(const EvaluateOptions& options,
                const Options& ext_options,
                const ArrayProblem& problem,
                double* cost,
                std::vector<double>* residuals,
                std::vector<double>* gradient,
                std::string* error);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_SOLVE_H_
