// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// ceres_ext.solve_batch and ceres_ext.WindowSolver.

#include "ceres_ext/batch.h"

#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "ceres_ext/marginalize.h"
#include "ceres_ext/window_solver.h"
#include "nanobind/nanobind.h"
#include "nanobind/stl/pair.h"
#include "nanobind/stl/string.h"
#include "nanobind/stl/vector.h"
#include "python/src/array.h"
#include "python/src/module.h"
#include "python/src/options.h"
#include "python/src/problem.h"

namespace nb = nanobind;
using namespace nanobind::literals;

namespace ceres_ext::python {
namespace {

// A batch with the arrays that it refers to.
struct Batch {
  ProblemBatch batch;
  std::vector<nb::object> kept;
  // Offsets of a problem by itself.
  std::vector<std::vector<int64_t>> whole;
};

nb::list ListOf(const std::string& name, nb::handle object, size_t n) {
  if (!nb::isinstance<nb::list>(object) && !nb::isinstance<nb::tuple>(object)) {
    throw TypeError(name + ": expected a list of arrays, found " +
                    Repr(object));
  }
  nb::list list(object);
  if (list.size() != n) {
    throw ValueError(name + ": expected " + std::to_string(n) +
                     " arrays, found " + std::to_string(list.size()));
  }
  return list;
}

// Offsets of arrays with these numbers of blocks; None: there is one problem.
void ReadOffsets(const std::string& name,
                 nb::handle offsets,
                 const std::vector<int64_t>& num_blocks,
                 Batch* batch,
                 std::vector<const int64_t*>* begin) {
  if (offsets.is_none()) {
    for (const int64_t n : num_blocks) {
      batch->whole.push_back({0, n});
      begin->push_back(batch->whole.back().data());
    }
    batch->batch.num_problems = 1;
    return;
  }
  const nb::list list = ListOf(name, offsets, num_blocks.size());
  for (size_t a = 0; a < num_blocks.size(); ++a) {
    const std::string of_array = name + "[" + std::to_string(a) + "]";
    int64_t& n = batch->batch.num_problems;
    std::vector<int64_t> shape = {n < 0 ? kAnyLength : n + 1};
    begin->push_back(static_cast<const int64_t*>(
        ReadArray(of_array, list[a], "int64", ARRAY_READ, &shape)));
    if (shape[0] == 0) {
      throw ValueError(of_array + ": expected at least one number, found none");
    }
    n = shape[0] - 1;
    batch->kept.push_back(nb::borrow(list[a]));
  }
}

void ReadFlags(const std::string& name,
               nb::handle flags,
               const std::vector<int64_t>& num_blocks,
               Batch* batch,
               std::vector<const uint8_t*>* active) {
  if (flags.is_none()) {
    return;
  }
  const nb::list list = ListOf(name, flags, num_blocks.size());
  for (size_t a = 0; a < num_blocks.size(); ++a) {
    const nb::object array = list[a];
    if (array.is_none()) {
      active->push_back(nullptr);
      continue;
    }
    std::vector<int64_t> shape = {num_blocks[a]};
    active->push_back(static_cast<const uint8_t*>(
        ReadArray(name + "[" + std::to_string(a) + "]",
                  array,
                  "bool",
                  ARRAY_READ,
                  &shape)));
    batch->kept.push_back(array);
  }
}

// parameter_is_dropped, residual_is_cut: as parameter_is_active.
std::unique_ptr<Batch> MakeBatch(const Problem& problem,
                                 nb::handle parameter_begin,
                                 nb::handle residual_begin,
                                 nb::handle parameter_is_active,
                                 nb::handle residual_is_active,
                                 nb::handle parameter_is_dropped,
                                 nb::handle residual_is_cut) {
  auto batch = std::make_unique<Batch>();
  ProblemBatch& arrays = batch->batch;
  arrays.problem = problem.arrays();
  if (parameter_begin.is_none() != residual_begin.is_none()) {
    throw ValueError(
        "parameter_begin and residual_begin: expected both or none");
  }
  std::vector<int64_t> num_blocks;
  for (const auto& parameters : arrays.problem.parameters()) {
    num_blocks.push_back(parameters.num_blocks);
  }
  std::vector<int64_t> num_rows;
  for (const auto& residuals : arrays.problem.residuals()) {
    num_rows.push_back(residuals.num_blocks);
  }
  batch->whole.reserve(num_blocks.size() + num_rows.size());
  arrays.num_problems = -1;
  ReadOffsets("parameter_begin",
              parameter_begin,
              num_blocks,
              batch.get(),
              &arrays.parameter_begin);
  ReadOffsets("residual_begin",
              residual_begin,
              num_rows,
              batch.get(),
              &arrays.residual_begin);
  arrays.num_problems = arrays.num_problems < 0 ? 0 : arrays.num_problems;
  ReadFlags("parameter_is_active",
            parameter_is_active,
            num_blocks,
            batch.get(),
            &arrays.parameter_is_active);
  ReadFlags("residual_is_active",
            residual_is_active,
            num_rows,
            batch.get(),
            &arrays.residual_is_active);
  ReadFlags("parameter_is_dropped",
            parameter_is_dropped,
            num_blocks,
            batch.get(),
            &arrays.drop.parameter_is_dropped);
  ReadFlags("residual_is_cut",
            residual_is_cut,
            num_rows,
            batch.get(),
            &arrays.drop.residual_is_cut);
  return batch;
}

// Calls solve(flag) on another thread. Meanwhile the calling thread, which has
// the GIL, notes signals, as Ctrl-C, and asks `stop`, an event or None. These
// set the flag; an exception of either is thrown when the solve has ended.
template <typename Function>
void SolveUntilStopped(nb::handle stop, const Function& solve) {
  constexpr auto kInterval = std::chrono::milliseconds(10);
  if (!stop.is_none() && !nb::hasattr(stop, "is_set")) {
    throw TypeError("stop: expected a threading.Event, found " + Repr(stop));
  }
  const auto is_set = [&] {
    if (PyErr_CheckSignals() != 0) {
      nb::raise_python_error();
    }
    return !stop.is_none() && nb::cast<bool>(stop.attr("is_set")());
  };
  StopFlag flag;
  if (is_set()) {
    flag.Stop();
  }
  std::exception_ptr raised;
  {
    const nb::gil_scoped_release no_gil;
    std::mutex mutex;
    std::condition_variable done;
    bool is_done = false;
    std::thread thread;
    try {
      thread = std::thread([&] {
        solve(&flag);
        const std::lock_guard<std::mutex> lock(mutex);
        is_done = true;
        done.notify_one();
      });
    } catch (const std::system_error&) {
      // No thread is available: signals wait for the end.
      solve(&flag);
      return;
    }
    std::unique_lock<std::mutex> lock(mutex);
    // By the system's clock, since older C libraries can't wait by a steady
    // one.
    while (!done.wait_until(lock,
                            std::chrono::system_clock::now() + kInterval,
                            [&] { return is_done; })) {
      lock.unlock();
      if (!flag.IsStopped()) {
        const nb::gil_scoped_acquire gil;
        try {
          if (is_set()) {
            flag.Stop();
          }
        } catch (...) {
          raised = std::current_exception();
          flag.Stop();
        }
      }
      lock.lock();
    }
    lock.unlock();
    thread.join();
  }
  if (raised != nullptr) {
    std::rethrow_exception(raised);
  }
}

BatchSummary SolveProblems(Problem* problem,
                           nb::object parameter_begin,
                           nb::object residual_begin,
                           const SolverOptions* given,
                           nb::object parameter_is_active,
                           nb::object residual_is_active,
                           nb::object parameter_is_dropped,
                           nb::object residual_is_cut,
                           nb::object covariance_is_wanted,
                           nb::object stop,
                           const nb::kwargs& values) {
  const SolverOptions options = OptionsOf(given, values);
  const Problem::Lock lock(problem);
  const auto batch = MakeBatch(*problem,
                               parameter_begin,
                               residual_begin,
                               parameter_is_active,
                               residual_is_active,
                               parameter_is_dropped,
                               residual_is_cut);
  std::vector<int64_t> num_blocks;
  for (const auto& parameters : problem->arrays()->parameters()) {
    num_blocks.push_back(parameters.num_blocks);
  }
  ReadFlags("covariance_is_wanted",
            covariance_is_wanted,
            num_blocks,
            batch.get(),
            &batch->batch.covariance_is_wanted);
  BatchSummary summary;
  std::string error;
  bool is_done = false;
  SolveUntilStopped(stop, [&](const StopFlag* flag) {
    is_done = SolveBatch(options,
                         options,
                         &batch->batch,
                         &summary,
                         &error,
                         /*full_summaries=*/nullptr,
                         flag);
  });
  if (!is_done) {
    throw ValueError(error);
  }
  return summary;
}

Marginal MarginalizeBlocks(Problem* problem,
                           nb::object parameter_is_dropped,
                           nb::object residual_is_cut,
                           double rank_tolerance) {
  const Problem::Lock lock(problem);
  const auto batch = MakeBatch(*problem,
                               nb::none(),
                               nb::none(),
                               nb::none(),
                               nb::none(),
                               parameter_is_dropped,
                               residual_is_cut);
  batch->batch.drop.rank_tolerance = rank_tolerance;
  Marginal marginal;
  std::string error;
  bool is_done = false;
  {
    const nb::gil_scoped_release no_gil;
    is_done =
        Marginalize(*problem->arrays(), batch->batch.drop, &marginal, &error);
  }
  if (!is_done) {
    throw ValueError(error);
  }
  return marginal;
}

// Batches in flight keep their arrays.
class Solver {
 public:
  Solver(int64_t num_cameras,
         int64_t num_points,
         int64_t num_rows,
         int64_t num_problems,
         int num_submissions,
         int64_t num_priors,
         int64_t num_marginal_poses,
         int64_t num_marginal_rows,
         const SolverOptions* given,
         const nb::kwargs& values) {
    WindowCapacity capacity;
    capacity.num_cameras = num_cameras;
    capacity.num_points = num_points;
    capacity.num_rows = num_rows;
    capacity.num_priors = num_priors;
    capacity.num_marginal_poses = num_marginal_poses;
    capacity.num_marginal_rows = num_marginal_rows;
    capacity.num_problems = num_problems;
    capacity.num_submissions = num_submissions;
    const SolverOptions options = OptionsOf(given, values);
    std::string error;
    {
      const nb::gil_scoped_release no_gil;
      solver_ = WindowSolver::Create(options, options, capacity, &error);
    }
    if (solver_ == nullptr) {
      throw ValueError(error);
    }
  }
  ~Solver() {
    const nb::gil_scoped_release no_gil;
    solver_.reset();
  }
  Solver(const Solver&) = delete;
  Solver& operator=(const Solver&) = delete;

  int64_t Submit(nb::handle_t<Problem> problem,
                 nb::object parameter_begin,
                 nb::object residual_begin,
                 nb::object parameter_is_active,
                 nb::object residual_is_active,
                 nb::object parameter_is_dropped,
                 nb::object residual_is_cut) {
    auto* const of_problem = nb::cast<Problem*>(problem);
    auto flight = std::make_unique<Flight>();
    flight->problem = nb::borrow(problem);
    flight->lock = std::make_unique<Problem::Lock>(of_problem);
    flight->batch = MakeBatch(*of_problem,
                              parameter_begin,
                              residual_begin,
                              parameter_is_active,
                              residual_is_active,
                              parameter_is_dropped,
                              residual_is_cut);
    std::string error;
    int64_t ticket = 0;
    {
      const nb::gil_scoped_release no_gil;
      ticket = solver_->Submit(flight->batch->batch, &error);
    }
    if (ticket == 0) {
      throw ValueError(error);
    }
    flights_[ticket] = std::move(flight);
    return ticket;
  }

  nb::object Poll(int64_t ticket) {
    Flights::node_type flight = Take(ticket);
    BatchSummary summary;
    WindowSolver::State state = WindowSolver::State::kUnknown;
    {
      const nb::gil_scoped_release no_gil;
      state = solver_->Poll(ticket, &summary);
    }
    if (state != WindowSolver::State::kDone) {
      flights_.insert(std::move(flight));
      return nb::none();
    }
    return nb::cast(std::move(summary));
  }

  BatchSummary Wait(int64_t ticket) {
    const Flights::node_type flight = Take(ticket);
    BatchSummary summary;
    {
      const nb::gil_scoped_release no_gil;
      solver_->Wait(ticket, &summary);
    }
    return summary;
  }

  std::vector<std::pair<int64_t, double>> MeasureRates(
      Problem* problem,
      nb::object parameter_begin,
      nb::object residual_begin,
      double seconds,
      nb::object parameter_is_active,
      nb::object residual_is_active) {
    const Problem::Lock lock(problem);
    const auto batch = MakeBatch(*problem,
                                 parameter_begin,
                                 residual_begin,
                                 parameter_is_active,
                                 residual_is_active,
                                 nb::none(),
                                 nb::none());
    std::vector<SubmissionRate> rates;
    std::string error;
    bool is_done = false;
    {
      const nb::gil_scoped_release no_gil;
      is_done = solver_->MeasureRates(batch->batch, seconds, &rates, &error);
    }
    if (!is_done) {
      throw ValueError(error);
    }
    std::vector<std::pair<int64_t, double>> pairs;
    for (const SubmissionRate& rate : rates) {
      pairs.emplace_back(rate.num_problems, rate.problems_per_second);
    }
    return pairs;
  }

  void Stop() { solver_->Stop(); }
  std::string device() const { return solver_->device(); }

 private:
  struct Flight {
    nb::object problem;
    std::unique_ptr<Problem::Lock> lock;
    std::unique_ptr<Batch> batch;
  };
  using Flights = std::map<int64_t, std::unique_ptr<Flight>>;

  // For one thread alone: others do not find it until it is put back.
  Flights::node_type Take(int64_t ticket) {
    Flights::node_type flight = flights_.extract(ticket);
    if (flight.empty()) {
      throw ValueError(
          "ticket: expected a submission in flight that no other "
          "thread waits for, found " +
          std::to_string(ticket));
    }
    return flight;
  }

  Flights flights_;
  std::unique_ptr<WindowSolver> solver_;
};

// Values of the prior of a Marginal, which may have none.
template <typename Function>
nb::object OfPrior(const Marginal& marginal, const Function& function) {
  return marginal.prior == nullptr ? nb::none() : function(*marginal.prior);
}

void AddMarginal(nb::module_* module) {
  nb::class_<BlockCovariance>(
      *module,
      "BlockCovariance",
      "The covariance of blocks at the solution of a problem of a batch.")
      .def_prop_ro(
          "blocks",
          [](const BlockCovariance& self) {
            std::vector<std::pair<int, int64_t>> blocks;
            for (const Marginal::Block& block : self.blocks) {
              blocks.emplace_back(block.parameters, block.block);
            }
            return blocks;
          },
          "Pairs (parameters, block); constant blocks are left out.")
      .def_prop_ro(
          "matrix",
          [](const BlockCovariance& self) {
            const auto n =
                static_cast<size_t>(std::lround(std::sqrt(self.values.size())));
            return MakeArray(std::vector<double>(self.values), n);
          },
          nb::sig("def matrix(self) -> numpy.typing.NDArray[numpy.float64]"),
          "(n, n), n the tangent sizes of the blocks together.")
      .def_ro("message",
              &BlockCovariance::message,
              "The reason if there is none; empty otherwise.");
  nb::class_<Marginal>(
      *module,
      "Marginal",
      "The prior |A d + b|^2 / 2 that dropped blocks leave on other blocks,\n"
      "d their difference from x_0 (docs/batch.md).")
      .def_prop_ro(
          "blocks",
          [](const Marginal& self) {
            std::vector<std::pair<int, int64_t>> blocks;
            for (const Marginal::Block& block : self.blocks) {
              blocks.emplace_back(block.parameters, block.block);
            }
            return blocks;
          },
          "Pairs (parameters, block) that the prior is on; empty if there is "
          "none.")
      .def_prop_ro(
          "references",
          [](const Marginal& self) {
            return OfPrior(self, [](const BlockMarginalPrior& prior) {
              return MakeArray(std::vector<double>(prior.references()), 0);
            });
          },
          "x_0: the values of all its blocks, one after the other; None if "
          "there is no prior.")
      .def_prop_ro(
          "a",
          [](const Marginal& self) {
            return OfPrior(self, [](const BlockMarginalPrior& prior) {
              return MakeArray(std::vector<double>(prior.matrix()),
                               static_cast<size_t>(prior.num_columns()));
            });
          },
          "A: (m, tangent sizes of all blocks), float64; None if there is no "
          "prior.")
      .def_prop_ro(
          "b",
          [](const Marginal& self) {
            return OfPrior(self, [](const BlockMarginalPrior& prior) {
              return MakeArray(std::vector<double>(prior.offset()), 0);
            });
          },
          "b: (m,), float64; None if there is no prior.")
      .def_ro("num_rows",
              &Marginal::num_rows,
              "Number of residual blocks in the prior.")
      .def_ro("num_dropped_columns",
              &Marginal::num_dropped_columns,
              "Number of columns of the dropped blocks.")
      .def_ro("dropped_rank",
              &Marginal::dropped_rank,
              "Number of them that are independent.")
      .def_ro("least_cost",
              &Marginal::least_cost,
              "Cost of the minimum over all blocks.")
      .def_ro("message",
              &Marginal::message,
              "In a batch, the reason why there is none; otherwise empty.");
  module->def(
      "marginalize",
      &MarginalizeBlocks,
      "problem"_a,
      "parameter_is_dropped"_a,
      "residual_is_cut"_a.none() = nb::none(),
      nb::kw_only(),
      "rank_tolerance"_a = BlocksToDrop().rank_tolerance,
      "Drops blocks and returns the Marginal that they leave, at the current\n"
      "values of the arrays (ceres_ext/marginalize.h).\n\n"
      "parameter_is_dropped: for each call of add_parameters, a bool array,\n"
      "true for blocks to drop, or None.\n"
      "residual_is_cut: for each call of add_residuals, a bool array, true\n"
      "for residual blocks that the prior leaves out, or None.\n"
      "rank_tolerance: a column is dependent if what others leave of it is at\n"
      "most this part of its norm.\n\n"
      "    marginal = ceres_ext.marginalize(problem, [is_old, point_is_old])\n"
      "    rest.add_marginal(marginal)  # without the blocks and their rows\n\n"
      "ValueError: a residual block cannot be evaluated, or a value is not\n"
      "finite.");
}

void AddSummaries(nb::module_* module) {
  nb::class_<ProblemSummary> of_problem(
      *module, "ProblemSummary", "Result of one problem of a batch.");
  AddSummaryMethods(&of_problem, {"is_solution_usable"});
  of_problem
      .def_prop_ro(
          "termination_type",
          [](const ProblemSummary& self) {
            return std::string(
                ceres::TerminationTypeToString(self.termination_type));
          },
          "CONVERGENCE, NO_CONVERGENCE, FAILURE, USER_SUCCESS if it was "
          "stopped, or USER_FAILURE if it was stopped before it began.")
      .def_ro("message",
              &ProblemSummary::message,
              "The reason why the solve ended.")
      .def_ro(
          "initial_cost", &ProblemSummary::initial_cost, "1/2 sum rho(|r|^2)")
      .def_ro("final_cost", &ProblemSummary::final_cost, "1/2 sum rho(|r|^2)")
      .def_ro("fixed_cost", &ProblemSummary::fixed_cost)
      .def_ro("num_successful_steps", &ProblemSummary::num_successful_steps)
      .def_ro("num_unsuccessful_steps", &ProblemSummary::num_unsuccessful_steps)
      .def_ro("latency_in_seconds",
              &ProblemSummary::latency_in_seconds,
              "Seconds from the call to the result.")
      .def_prop_ro(
          "solved_as",
          [](const ProblemSummary& summary) {
            return summary.solved_as == SOLVED_AS_WINDOW ? "window"
                   : summary.solved_as == SOLVED_AS_FIT  ? "fit"
                                                         : "problem";
          },
          "'window', 'fit', or 'problem' if ceres_ext.solve solved it; then "
          "path_reason is the reason.")
      .def_ro("path_reason", &ProblemSummary::path_reason)
      .def("is_solution_usable",
           &ProblemSummary::IsSolutionUsable,
           "True if the arrays hold a solution; otherwise they are unchanged.");
  nb::class_<BatchSummary> of_batch(
      *module, "BatchSummary", "Result of a batch. Times are in seconds.");
  AddSummaryMethods(&of_batch, {"brief_report"});
  of_batch
      .def_ro("problems",
              &BatchSummary::problems,
              "One ProblemSummary per problem.")
      .def_ro("marginals",
              &BatchSummary::marginals,
              "One Marginal per problem if blocks were dropped.")
      .def_ro("covariances",
              &BatchSummary::covariances,
              "One BlockCovariance per problem if covariance_is_wanted has "
              "flags.")
      .def_ro("device",
              &BatchSummary::device,
              "Device for windows and fits; empty if no problem could be one.")
      .def_ro("num_windows", &BatchSummary::num_windows)
      .def_ro("total_time_in_seconds", &BatchSummary::total_time_in_seconds)
      .def_ro("pack_time_in_seconds", &BatchSummary::pack_time_in_seconds)
      .def_ro("window_time_in_seconds", &BatchSummary::window_time_in_seconds)
      .def_ro("other_time_in_seconds", &BatchSummary::other_time_in_seconds)
      .def_prop_ro("problems_per_second", &BatchSummary::problems_per_second)
      .def("latency_percentile",
           &BatchSummary::LatencyPercentile,
           "percent"_a,
           "Latency in seconds that `percent` of the problems do not exceed.")
      .def("brief_report", &BatchSummary::BriefReport)
      .def("__repr__", [](const BatchSummary& self) {
        return "<ceres_ext.BatchSummary: " + self.BriefReport() + ">";
      });
}

}  // namespace

void AddBatch(nb::module_* module) {
  AddMarginal(module);
  AddSummaries(module);
  module->def(
      "solve_batch",
      &SolveProblems,
      "problem"_a,
      "parameter_begin"_a,
      "residual_begin"_a,
      "options"_a.none() = nb::none(),
      nb::kw_only(),
      "parameter_is_active"_a.none() = nb::none(),
      "residual_is_active"_a.none() = nb::none(),
      "parameter_is_dropped"_a.none() = nb::none(),
      "residual_is_cut"_a.none() = nb::none(),
      "covariance_is_wanted"_a.none() = nb::none(),
      "stop"_a.none() = nb::none(),
      "values"_a,
      "Solves many small problems at once (docs/batch.md).\n\n"
      "problem: the arrays of all problems, one after the other.\n"
      "parameter_begin, residual_begin: for each call of add_parameters and\n"
      "add_residuals, an int64 array with the first block of each problem,\n"
      "then the number of blocks.\n"
      "options, values: as for solve(), for each problem.\n"
      "parameter_is_active, residual_is_active: for each call, a bool array,\n"
      "true for blocks that take part, or None if all do.\n"
      "parameter_is_dropped, residual_is_cut: as for marginalize(), at the\n"
      "solution; summary.marginals has the result.\n"
      "covariance_is_wanted: for each call of add_parameters, a bool array,\n"
      "or None; summary.covariances has the covariance at the solution.\n"
      "stop: a threading.Event; if another thread sets it, problems in flight\n"
      "end with their current iteration, USER_SUCCESS and its values, and\n"
      "others keep their start and end with USER_FAILURE. Ctrl-C does the "
      "same\n"
      "if the main thread called; then KeyboardInterrupt is raised.\n\n"
      "TypeError, ValueError: an array has another type or shape, or options,\n"
      "arrays and offsets do not fit together. A problem that fails raises\n"
      "nothing; its summary says why.\n\n"
      "    summary = ceres_ext.solve_batch(\n"
      "        problem, [camera_begin, point_begin], [row_begin])\n"
      "    print(summary.num_windows, summary.problems_per_second)");
  module->def(
      "choose_submission_size",
      [](const std::vector<std::pair<int64_t, double>>& rates,
         double problems_per_second) {
        std::vector<SubmissionRate> all;
        for (const auto& [num_problems, rate] : rates) {
          all.push_back({num_problems, rate});
        }
        return ChooseSubmissionSize(all, problems_per_second);
      },
      "rates"_a,
      "problems_per_second"_a,
      "Number of problems per submission of a WindowSolver for problems that\n"
      "arrive at a rate (docs/batch.md).\n\n"
      "rates: pairs of problems per submission and problems per second, as\n"
      "measure_rates() returns. The result is the smallest size with 10/9 of\n"
      "the wanted rate, otherwise the fastest, or 0 without rates.");
  nb::class_<Solver>(*module,
                     "WindowSolver",
                     "Solves small problems as they arrive, in memory that is "
                     "allocated once (docs/batch.md).")
      .def(nb::init<int64_t,
                    int64_t,
                    int64_t,
                    int64_t,
                    int,
                    int64_t,
                    int64_t,
                    int64_t,
                    const SolverOptions*,
                    const nb::kwargs&>(),
           "num_cameras"_a,
           "num_points"_a,
           "num_rows"_a,
           "num_problems"_a = 1,
           "num_submissions"_a = 2,
           "num_priors"_a = 0,
           "num_marginal_poses"_a = 0,
           "num_marginal_rows"_a = 0,
           "options"_a.none() = nb::none(),
           "values"_a,
           "num_cameras, num_points, num_rows: largest numbers per problem.\n"
           "num_priors: the same of priors on poses, which are not rows.\n"
           "num_marginal_poses, num_marginal_rows: the same of all poses and "
           "residuals of marginal priors.\n"
           "num_problems: largest number per submission.\n"
           "num_submissions: largest number in flight.\n"
           "options, values: as for solve().")
      .def("submit",
           &Solver::Submit,
           "problem"_a,
           "parameter_begin"_a.none() = nb::none(),
           "residual_begin"_a.none() = nb::none(),
           nb::kw_only(),
           "parameter_is_active"_a.none() = nb::none(),
           "residual_is_active"_a.none() = nb::none(),
           "parameter_is_dropped"_a.none() = nb::none(),
           "residual_is_cut"_a.none() = nb::none(),
           "Begins to solve a batch and returns its ticket.\n"
           "Arguments are those of solve_batch(). Without offsets the\n"
           "arrays are one problem. The solver uses the arrays until the\n"
           "result is taken.")
      .def("poll",
           &Solver::Poll,
           "ticket"_a,
           nb::sig("def poll(self, ticket: int) -> BatchSummary | None"),
           "The result, or None if it is not available yet.\n"
           "ValueError: the ticket is not in flight, or another thread waits\n"
           "for it.")
      .def("wait",
           &Solver::Wait,
           "ticket"_a,
           "Waits for the result and returns it.\n"
           "ValueError: the ticket is not in flight, or another thread waits\n"
           "for it.")
      .def("measure_rates",
           &Solver::MeasureRates,
           "problem"_a,
           "parameter_begin"_a,
           "residual_begin"_a,
           "seconds"_a = 1.0,
           nb::kw_only(),
           "parameter_is_active"_a.none() = nb::none(),
           "residual_is_active"_a.none() = nb::none(),
           "Problems per second of submissions of 1, 2, 4, ... and all "
           "problems\n"
           "of a typical submission, as pairs for choose_submission_size().\n"
           "Takes about `seconds`, in which nothing else may be in flight.\n"
           "The arrays are not changed.")
      .def(
          "stop",
          &Solver::Stop,
          "Ends each problem in flight after its iteration, with USER_SUCCESS.")
      .def_prop_ro("device", &Solver::device, "Device that solves windows.");
}

}  // namespace ceres_ext::python
