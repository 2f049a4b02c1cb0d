// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Solves small problems as they arrive: a SLAM system's local window several
// times per second, or the windows of many robots on one GPU.
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
// Submit takes a batch of one or more problems (ceres_ext/batch.h). The result
// has the same bits as that of SolveBatch. Create allocates all memory of the
// device, page-locked memory and memory of windows, for the capacity. A
// submission allocates only a few bytes per block.

#ifndef CERES_EXT_WINDOW_SOLVER_H_
#define CERES_EXT_WINDOW_SOLVER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ceres/solver.h"
#include "ceres_ext/batch.h"
#include "ceres_ext/options.h"

namespace ceres_ext {

// All values are 1 or more, except those of priors: 0 or more.
struct WindowCapacity {
  // Per problem: cameras or poses and points, constant ones included, residual
  // blocks except priors, and priors on poses except marginal priors. All
  // blocks of intrinsics of a submission have room if each problem has at most
  // num_cameras.
  int64_t num_cameras = 1;
  int64_t num_points = 1;
  int64_t num_rows = 1;
  int64_t num_priors = 0;
  // Poses and residuals of all marginal priors of a problem together
  // (marginal_prior.h). Each prior counts its own poses. Memory is allocated
  // for a matrix of so many residuals by 6 columns a pose.
  int64_t num_marginal_poses = 0;
  int64_t num_marginal_rows = 0;
  // Per submission.
  int64_t num_problems = 1;
  // Submissions in flight: submitted and not yet waited for.
  int num_submissions = 2;
};

// Problems per second that submissions of one size solve, with as many of them
// in flight as the capacity has.
struct SubmissionRate {
  int64_t num_problems = 1;  // per submission
  double problems_per_second = 0.0;
};

// The number of problems per submission for problems that arrive at
// `problems_per_second`, because larger submissions solve more per second, but
// a problem waits until its submission is full. Returns the smallest size that
// solves 10/9 of the wanted rate or more; problems that arrive at random wait
// for 4.5 submissions on average if a device is busy for 9/10 of the time. If
// no size is so fast, returns the fastest, or 0 if `rates` is empty. The order
// of `rates` does not matter. After Nourazar, Booth and Goossens 2023, Figure 8
// (docs/batch.md).
int64_t ChooseSubmissionSize(const std::vector<SubmissionRate>& rates,
                             double problems_per_second);

// Thread safety: all members may be called from any thread, but Poll and Wait
// of one ticket only from one thread at a time. Solvers are independent of each
// other and of other solves.
class WindowSolver {
 public:
  // Tickets count from 1, in the order of submission; 0 is not a ticket.
  using Ticket = int64_t;

  // Takes the options of SolveBatch and starts options.num_threads threads. All
  // work is queued on Options::cuda_stream if it is given, otherwise on one
  // stream per submission in flight. Returns null, with a sentence in *error
  // (may be null), if options or capacity are not valid, windows do not support
  // the options (callbacks, for example), a thread or memory is not available,
  // or the device cannot be used and the host may not replace it.
  static std::unique_ptr<WindowSolver> Create(
      const ceres::Solver::Options& options,
      const Options& ext_options,
      const WindowCapacity& capacity,
      std::string* error);
  // Stops all submissions in flight, whose arrays must still exist, and waits
  // for them, in the order of submission. Their results are dropped: parameters
  // keep their start, or the values that an iteration has left.
  ~WindowSolver();
  WindowSolver(const WindowSolver&) = delete;
  WindowSolver& operator=(const WindowSolver&) = delete;

  // Begins to solve a batch and returns its ticket. The solver reads the arrays
  // and writes the parameters until Poll or Wait returns the result. Batches in
  // flight must not share parameters. Returns 0, with a sentence in *error (may
  // be null) and nothing changed, if SolveBatch would return false, the batch
  // exceeds the capacity, or num_submissions are in flight already. A problem
  // that is not a window is solved by ceres_ext::Solve, with one thread, on the
  // solver's threads.
  Ticket Submit(const ProblemBatch& batch, std::string* error);

  enum class State {
    kUnknown,  // no ticket of this solver, or its result was taken before
    kRunning,
    kDone,  // *summary is set and the ticket is not valid any more
  };
  // Does not wait, except to write the values.
  State Poll(Ticket ticket, BatchSummary* summary);
  // Waits for the result. Returns false if the ticket is unknown.
  bool Wait(Ticket ticket, BatchSummary* summary);

  // Ends each problem in flight with its current iteration, at least iteration
  // zero, and with USER_SUCCESS, as a callback would. Later submissions are not
  // affected.
  void Stop();

  // Measures the rates of submissions of 1, 2, 4, ... and all problems of the
  // batch, which is a typical submission, for ChooseSubmissionSize. Solves each
  // size from the start for `seconds` (more than 0) divided by the number of
  // sizes, but at least as many submissions as the capacity has in flight.
  // Parameters are copied, and not changed. Returns false, with a sentence in
  // *error (may be null), if seconds is not valid, the batch is empty or Submit
  // refuses it. Nothing else may be in flight or submitted meanwhile.
  bool MeasureRates(const ProblemBatch& batch,
                    double seconds,
                    std::vector<SubmissionRate>* rates,
                    std::string* error);

  // Device that solves windows, as BatchSummary::device.
  std::string device() const;
  const WindowCapacity& capacity() const;

 private:
  class Impl;
  explicit WindowSolver(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_WINDOW_SOLVER_H_
