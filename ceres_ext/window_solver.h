// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Small problems as they come: a SLAM system's local window several times a
// second, the windows of many robots on one GPU.
//
//   ceres_ext::WindowCapacity capacity;
//   capacity.num_cameras = 20;
//   capacity.num_points = 2000;
//   capacity.num_rows = 10000;
//   std::string error;
//   auto solver = ceres_ext::WindowSolver::Create(
//       options, ext_options, capacity, &error);
//   const auto ticket = solver->Submit(batch, &error);  // does not wait
//   ...
//   ceres_ext::BatchSummary summary;
//   solver->Wait(ticket, &summary);
//
// What is submitted is a batch of one problem or several (ceres_ext/batch.h),
// and is solved with the same bits as by SolveBatch. Memory of the device,
// page-locked memory and that of windows is taken by Create, for the capacity,
// and none later; a submission takes a few bytes a block for its own.

#ifndef CERES_EXT_WINDOW_SOLVER_H_
#define CERES_EXT_WINDOW_SOLVER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "ceres/solver.h"
#include "ceres_ext/batch.h"
#include "ceres_ext/options.h"

namespace ceres_ext {

// All 1 or more.
struct WindowCapacity {
  // Of a problem: cameras and points, constant ones included, and residual
  // blocks.
  int64_t num_cameras = 1;
  int64_t num_points = 1;
  int64_t num_rows = 1;
  // Of a submission.
  int64_t num_problems = 1;
  // In flight at once: submitted and not yet waited for.
  int num_submissions = 2;
};

// Thread safety: all members may be called from any thread, each ticket's Poll
// and Wait from one at a time. Solvers are independent of each other and of
// solves elsewhere.
class WindowSolver {
 public:
  // From 1 on, in the order of submission; 0: none.
  using Ticket = int64_t;

  // Options as for SolveBatch; options.num_threads threads are made. All work
  // is queued on Options::cuda_stream where it is given, else on a stream for
  // each submission in flight. Null, with a sentence in *error (may be null),
  // where options or capacity are not valid, no window is solved with the
  // options (callbacks, for example), a thread or memory is refused, or a
  // device can't be used and the host may not replace it.
  static std::unique_ptr<WindowSolver> Create(
      const ceres::Solver::Options& options,
      const Options& ext_options,
      const WindowCapacity& capacity,
      std::string* error);
  // Stops what is in flight, whose arrays must be there still, and waits for it
  // in the order of submission. What nobody has waited for keeps its start, or
  // is as an iteration has left it.
  ~WindowSolver();
  WindowSolver(const WindowSolver&) = delete;
  WindowSolver& operator=(const WindowSolver&) = delete;

  // Begins to solve a batch. Its arrays are read, and the parameters written,
  // until Poll or Wait hands the result over; they are the caller's again then.
  // Other batches in flight have parameters of their own. 0, with a sentence in
  // *error (may be null), where SolveBatch would return false, the batch
  // exceeds the capacity or as many submissions are in flight as there may be:
  // then nothing has happened. A problem that is no window is solved by
  // ceres_ext::Solve, with one thread, on the solver's threads.
  Ticket Submit(const ProblemBatch& batch, std::string* error);

  enum class State {
    kUnknown,  // no ticket of this solver, or its result was taken before
    kRunning,
    kDone,  // *summary is set and the ticket is not valid any more
  };
  // Does not wait, except for writing the values.
  State Poll(Ticket ticket, BatchSummary* summary);
  // False: kUnknown.
  bool Wait(Ticket ticket, BatchSummary* summary);

  // Ends what is in flight: each problem with the iteration it is in, at least
  // iteration zero, and USER_SUCCESS, as a callback would end it. What is
  // submitted later is not affected.
  void Stop();

  // Where windows are solved, as BatchSummary::device.
  std::string device() const;

 private:
  class Impl;
  explicit WindowSolver(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_WINDOW_SOLVER_H_
