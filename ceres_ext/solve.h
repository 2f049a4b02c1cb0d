// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The front door. Where a program says
//
//   ceres::Solve(options, &problem, &summary);
//
// it says
//
//   ceres_ext::Solve(options, ext_options, &problem, &summary);
//
// and keeps its ceres::Problem, its options and Ceres's trust-region loop. This
// library replaces the linear solver: ITERATIVE_SCHUR and CGNR with IDENTITY,
// JACOBI, SCHUR_JACOBI or SCHUR_POWER_SERIES_EXPANSION, and the exact steps of
// DENSE_SCHUR and SPARSE_SCHUR. It evaluates its own cost
// functions and DeviceAutoDiffCostFunction. Stock Ceres solves what this
// library does not support, and the summary says why (or the solve is refused,
// see Options::fallback).
//
// A problem of millions of residual blocks is better given as arrays
// (ceres_ext/array_problem.h), which take no object for each:
//
//   ceres_ext::Solve(options, ext_options, &array_problem, &summary);
//
// Programs that can't be changed are served through an environment variable:
//
//   CERES_SOLVER_PLUGIN=ceres_ext:jacobian=recomputed ./program
//
// where the text after the colon is what ParseOptions takes.

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

// Solves the problem as ceres::Solve does, with the same effect on *problem's
// parameters and the same meaning of every field of *summary. Thread safe for
// different problems: settings hold for this call alone, and a ceres::Solve
// called from a callback, or at the same time on another thread, stays stock.
// On PATH_FULL the result is bit-identical from run to run and for any number
// of threads, but with use_inner_iterations and no inner_iteration_ordering,
// for which Ceres orders by address; on PATH_CERES its sums depend on its
// threads (docs/determinism.md).
//
// Throws nothing. Invalid options, host memory that runs out and what a
// callback throws end with termination_type FAILURE, the reason in
// summary->message and the parameters as they were, or the result's where it
// was there already. What a cost function, loss function or manifold throws
// makes that evaluation fail, as if it had returned false; in stock Ceres
// (PATH_CERES) it ends the solve with FAILURE, on whichever thread. A device
// error or too little memory on a device leaves the host. Threads that the
// system refuses are done without. docs/reliability.md has it all.
void Solve(const ceres::Solver::Options& options,
           const Options& ext_options,
           ceres::Problem* problem,
           Summary* summary);

// For callers that keep a ceres::Solver::Summary. summary->message ends with
// the path that was taken.
void Solve(const ceres::Solver::Options& options,
           const Options& ext_options,
           ceres::Problem* problem,
           ceres::Solver::Summary* summary);

// Solves a problem of arrays, with the same options, callbacks and summary and
// Ceres's own loop. No ceres::Problem is made, whatever the residual blocks
// are. Some features work on a ceres::Problem. One is then made of the arrays,
// which takes time and memory, and summary->path_reason says why: a line
// search, dogleg steps, inner iterations, linear_solver_ordering,
// check_gradients, dumps, a linear solver or preconditioner that stock Ceres
// solves with, arrays of which nothing varies, and ext_options.enabled false.
//
// A problem that is not valid (ArrayProblem::IsValid) ends with FAILURE and the
// reason in summary->message, before anything is allocated for it.
void Solve(const ceres::Solver::Options& options,
           const Options& ext_options,
           ArrayProblem* problem,
           Summary* summary);

// Starts CUDA on the device that the options name, as the first solve there
// else does, in 0.2 to 0.4 s: by a thread beside other work, say. False with a
// sentence in *error where it can't be had. Thread safe.
bool StartDevice(const Options& ext_options, std::string* error);

// Frees what solves have left for the next ones of the process: threads of the
// host, and of a device a stream, page-locked memory and at most 64 MiB for
// each of up to four solves that ran at once. ArraySolvers keep theirs. Thread
// safe.
void ReleaseIdle();

struct EvaluateOptions {
  // False: without losses and weights.
  bool apply_loss_function = true;
  // Of the host, 1 or more.
  int num_threads = 1;
};

// Evaluates a problem of arrays at their values, without solving it; null: not
// wanted. Nothing is written to the arrays.
//
//   cost       1/2 sum rho(|r|^2) over all residual blocks
//   residuals  of each residual block, array by array; multiplied, as by
//              ceres::Problem::Evaluate, by what its loss and weight make of
//              them
//   gradient   derivatives of the cost, array by array: of each parameter block
//              as many as its manifold's TangentSize, its size without one;
//              zeros where it is constant or in no residual block
//
// Cost and gradient together have the bits of the start of a solve with CGNR
// and IDENTITY on the same device; a cost alone those of a step on trial, which
// automatic differentiation may change. Residuals are computed on the host.
// False with a sentence in *error where options or arrays are not valid, memory
// runs out or a residual block can't be evaluated. Throws nothing.
bool Evaluate(const EvaluateOptions& options,
              const Options& ext_options,
              const ArrayProblem& problem,
              double* cost,
              std::vector<double>* residuals,
              std::vector<double>* gradient,
              std::string* error);

// Solves problems of arrays one after the other, as Solve does and with the
// same bits, and keeps in between what the next may use: threads, the device
// with the memory that the last solve had, and, where all index arrays hold
// what they held (a hash of 64 bits says so), the index that was made of them.
// Values, observations, constant flags, losses and options may change.
//
//   ceres_ext::ArraySolver solver;
//   for (...) {
//     solver.Solve(options, ext_options, &problem, &summary);
//   }
//
// What is kept counts for Options::cuda_memory_limit_bytes; it goes with the
// object, and after a solve that failed. Not thread safe; solves at once have
// an object each.
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

  // As the function above.
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
