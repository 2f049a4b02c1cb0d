// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/solve.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ceres_ext/array_problem.h"
#include "ceres_ext/base/failure.h"
#include "ceres_ext/base/machines.h"
#include "ceres_ext/front/array_parts.h"
#include "ceres_ext/front/device_arrays.h"
#include "ceres_ext/front/evaluate_arrays.h"
#include "ceres_ext/front/ranks.h"
#include "ceres_ext/front/solve_parts.h"
#include "ceres_ext/import/array_import.h"
#include "ceres_ext/import/problem_of_arrays.h"
#include "ceres_ext/import/table_of_problem.h"
#include "ceres_ext/plan/attempts.h"
#include "ceres_ext/plan/device_choice.h"
#include "ceres_ext/session/idle_machines.h"
#include "ceres_ext/session/kept_machines.h"
#include "ceres_ext/under_ceres/no_minimum.h"
#include "ceres_ext/under_ceres/solve_once.h"
#include "cuda_kernels/machine/communicator.h"

namespace ceres_ext {
namespace {

// In seconds.
double Now() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// The time of a solve beside what Ceres has counted is its preprocessor's.
void CountTimeSince(double start, ceres::Solver::Summary* summary) {
  const double rest =
      Now() - start - std::max(0.0, summary->total_time_in_seconds);
  summary->preprocessor_time_in_seconds =
      std::max(0.0, summary->preprocessor_time_in_seconds) + rest;
  summary->total_time_in_seconds =
      std::max(0.0, summary->total_time_in_seconds) + rest;
}

// By rank, for the next solve.
using MachinesOfRanks = std::vector<std::unique_ptr<KeptMachines>>;

// A solve of arrays, beside its problem.
struct ArraySolve {
  const ceres::Solver::Options& options;
  const Options& ext_options;
  KeptMachines* kept;
  // Null: machines come from those that are idle.
  MachinesOfRanks* of_ranks;
  Summary* summary;
};

void SolveArraysOrProblem(const ArraySolve& solve, const ArrayProblem* problem);

// False, with a sentence, if a solve can't begin. *facts: of arrays on *device,
// which may be null.
bool CanSolveArrays(const ArraySolve& solve,
                    const ArrayProblem* problem,
                    DeviceMachine* device,
                    std::vector<DeviceArrayFacts>* facts,
                    std::string* error) {
  const ceres::Solver::Options& options = solve.options;
  if (!CanSolve(options, solve.ext_options, /*problem=*/nullptr, error)) {
    return false;
  }
  if (problem == nullptr) {
    *error = "problem is null; expected a ceres_ext::ArrayProblem";
    return false;
  }
  return options.IsValid(error) &&
         IsValidProblem(*problem,
                        solve.kept->host_context(options.num_threads),
                        error,
                        device,
                        facts);
}

// An attempt by the devices of cuda_devices.
Outcome SolveByDevices(const ArraySolve& solve, const ArrayProblem& problem) {
  MachinesOfRanks* const of_ranks = solve.of_ranks;
  std::vector<Options> of_devices;
  std::string reason =
      WhyOneDevice(solve.ext_options, HasDeviceArrays(problem), &of_devices);
  if (!reason.empty()) {
    return Outcome::NotBySeveral(reason);
  }
  while (of_ranks != nullptr && of_ranks->size() < of_devices.size()) {
    of_ranks->push_back(std::make_unique<KeptMachines>());
    of_ranks->back()->is_for_several = true;
  }
  const auto solve_part = [&](const ceres::Solver::Options& of_rank,
                              const Options& ext_of_rank,
                              ArrayProblem* part,
                              Summary* of_part) {
    if (of_ranks == nullptr) {
      ceres_ext::Solve(of_rank, ext_of_rank, part, of_part);
      return;
    }
    const auto rank = static_cast<size_t>(ext_of_rank.communicator->rank());
    SolveArraysOrProblem({of_rank,
                          ext_of_rank,
                          (*of_ranks)[rank].get(),
                          /*of_ranks=*/nullptr,
                          of_part},
                         part);
  };
  if (!SolveParts(solve.options,
                  of_devices,
                  problem,
                  solve.kept->host_context(solve.options.num_threads),
                  solve_part,
                  solve.summary,
                  &reason)) {
    return Outcome::NotBySeveral(reason);
  }
  Outcome outcome;
  if (solve.summary->termination_type == ceres::FAILURE) {
    outcome.status = {kernels::StatusCode::kNumericalFailure,
                      solve.summary->message};
    outcome.by_several = true;
    // Callbacks are called once for an iteration.
    outcome.may_repeat =
        solve.options.callbacks.empty() || solve.summary->iterations.empty();
    if (of_ranks != nullptr) {
      of_ranks->clear();  // One device needs their memory.
    }
  }
  return outcome;
}

// Solves arrays on the host, whose *problem is valid.
void SolveHostArrays(const ArraySolve& solve, const ArrayProblem& problem) {
  Summary* const summary = solve.summary;
  std::optional<ProblemOfArrays> of_arrays;
  ceres::Solver::Options with_ordering = solve.options;
  Attempts attempts(solve.ext_options);
  TryEach(&attempts, [&](const Attempt& attempt) {
    if (attempts.by_several()) {
      return SolveByDevices(solve, problem);
    }
    if (attempt.why_problem.empty()) {
      return SolveArraysOnce(solve.options,
                             solve.ext_options,
                             attempt,
                             problem,
                             /*device_facts=*/{},
                             solve.kept,
                             summary);
    }
    if (!of_arrays.has_value()) {
      of_arrays.emplace(problem);
      if (with_ordering.linear_solver_ordering == nullptr &&
          ceres::IsSchurType(with_ordering.linear_solver_type)) {
        with_ordering.linear_solver_ordering = of_arrays->MakeOrdering();
      }
    }
    return SolveOnce(with_ordering,
                     solve.ext_options,
                     attempt,
                     of_arrays->problem(),
                     summary,
                     summary);
  });
  const std::string& reason = attempts.now().why_problem;
  if (reason.empty()) {
    return;
  }
  NameWorst(problem, &summary->degenerate_eliminated_blocks);
  NameWorst(problem, &summary->degenerate_other_blocks);
  NameBlocks([&](DegenerateBlocks* one) { NameWorst(problem, one); },
             &summary->runaway_residuals);
  const bool is_said = summary->path_reason.find(reason) != std::string::npos;
  summary->path_reason += "; a ceres::Problem was built from the arrays" +
                          (is_said ? " for that" : ", because " + reason);
}

// False, with a sentence, if a solve can't begin or can't end.
bool SolveDeviceArrays(const ArraySolve& solve,
                       const ArrayProblem& problem,
                       std::string* error) {
  const int num_threads = solve.options.num_threads;
  Summary* const summary = solve.summary;
  std::shared_ptr<KeptMachines::Device> device;
  const auto open = [&] {
    return OpenDeviceOfArrays(
        solve.ext_options, num_threads, solve.kept, &device);
  };
  kernels::Status status = open();
  if (!status.ok()) {
    *error =
        "Arrays are on a CUDA device, which can't be used: " + status.message;
    return false;
  }
  std::vector<DeviceArrayFacts> facts;
  {
    const CurrentMachine<DeviceMachine> current(device->machine.get());
    if (!CanSolveArrays(
            solve, &problem, device->machine.get(), &facts, error)) {
      return false;
    }
  }
  std::string reason = "device = host solves";
  if (solve.ext_options.device != DEVICE_HOST) {
    Options on_device = solve.ext_options;
    on_device.device = DEVICE_CUDA;
    // One that has failed is not used again.
    device.reset();
    Attempts attempts(on_device);
    const Outcome outcome = TryEach(&attempts, [&](const Attempt& attempt) {
      // The host can't read them.
      const std::string& why =
          attempt.why_problem.empty() ? attempt.why_host : attempt.why_problem;
      return why.empty() ? SolveArraysOnce(solve.options,
                                           on_device,
                                           attempt,
                                           problem,
                                           facts,
                                           solve.kept,
                                           summary)
                         : Outcome(Outcome::kNeedsProblem, why);
    });
    if (outcome.stage != Outcome::kNeedsProblem) {
      return true;
    }
    reason = outcome.status.message;
    *summary = Summary();
    status = open();
  }
  HostCopies copies;
  if (status.ok()) {
    status = copies.Setup(problem, device);
  }
  if (status.ok()) {
    device.reset();
    SolveHostArrays(solve, *copies.problem());
    summary->path_reason +=
        "; arrays on the device were copied to the host and back, because " +
        reason;
    if (summary->IsSolutionUsable()) {
      status = copies.CopyBack();
    }
  }
  if (!status.ok()) {
    *error = "Arrays on the device can't be copied to the host or back (" +
             reason + "): " + status.message;
  }
  return status.ok();
}

// A solve by several ranks, of which each calls this. False, with a sentence,
// if it can't begin. Whatever happens on a rank, no other waits for it for
// longer than the communicator's time-out.
bool SolveByRanks(const ArraySolve& solve,
                  const ArrayProblem* problem,
                  std::string* error) {
  // Aborts the other ranks where an exception leaves the solve.
  auto abort_others = [](kernels::Communicator* communicator) {
    communicator->Abort("an exception ended its solve.");
  };
  std::unique_ptr<kernels::Communicator, decltype(abort_others)> guard(
      solve.ext_options.communicator, abort_others);
  std::string mine;
  if (problem == nullptr || !HasDeviceArrays(*problem)) {
    CanSolveArrays(
        solve, problem, /*device=*/nullptr, /*facts=*/nullptr, &mine);
  }
  RankSolve of_rank;
  if (!PrepareRanks(solve.options,
                    solve.ext_options,
                    problem,
                    std::move(mine),
                    solve.kept,
                    &of_rank,
                    error)) {
    static_cast<void>(guard.release());
    return false;
  }
  const Outcome outcome = SolveArraysOnce(of_rank.options,
                                          of_rank.ext_options,
                                          of_rank.attempt,
                                          *problem,
                                          /*device_facts=*/{},
                                          solve.kept,
                                          solve.summary);
  static_cast<void>(guard.release());
  *error = outcome.status.message;
  return outcome.stage != Outcome::kNeedsProblem;
}

void SolveArraysOrProblem(const ArraySolve& solve,
                          const ArrayProblem* problem) {
  const double start = Now();
  Summary* const summary = solve.summary;
  Failure failure;
  failure.Guard(false, [&] {
    *summary = Summary();
    std::string error;
    bool ok = false;
    if (solve.ext_options.communicator != nullptr) {
      ok = SolveByRanks(solve, problem, &error);
    } else if (problem != nullptr && HasDeviceArrays(*problem)) {
      const Options applied = Attempt().Apply(solve.ext_options);
      ok = SolveDeviceArrays({solve.options,
                              applied,
                              solve.kept,
                              /*of_ranks=*/nullptr,
                              summary},
                             *problem,
                             &error);
    } else {
      ok = CanSolveArrays(
          solve, problem, /*device=*/nullptr, /*facts=*/nullptr, &error);
      if (ok) {
        SolveHostArrays(solve, *problem);
      }
    }
    if (!ok) {
      failure.Set(error);
      return false;
    }
    // Checking the arrays, and making a ceres::Problem of them, is part of the
    // solve.
    CountTimeSince(start, summary);
    return true;
  });
  if (failure.has_happened()) {
    solve.kept->Clear();
    summary->termination_type = ceres::FAILURE;
    AssignOrShorten(failure.sentence(), &summary->message);
    AssignOrShorten(failure.sentence(), &summary->path_reason);
  }
}

// SolveWhole by the devices of cuda_devices.
Outcome SolveWholeByDevices(const ceres::Solver::Options& options,
                            const Options& ext_options,
                            TableOfProblem* arrays,
                            Summary* summary) {
  if (options.update_state_every_iteration) {
    return Outcome::NotBySeveral("update_state_every_iteration is true");
  }
  // Arrays have no ordering, and these blocks are eliminated anyway.
  ceres::Solver::Options of_arrays = options;
  const int own = FindOwnArray(arrays->arrays());
  if (own >= 0 && options.linear_solver_ordering != nullptr &&
      arrays->IsFirstGroup(own, *options.linear_solver_ordering)) {
    of_arrays.linear_solver_ordering.reset();
  }
  BorrowedMachines machines(ext_options);
  Outcome outcome = SolveByDevices(
      {of_arrays, ext_options, machines.get(), /*of_ranks=*/nullptr, summary},
      arrays->arrays());
  if (summary->IsSolutionUsable()) {
    arrays->Write();
  }
  return outcome;
}

// The same of a ceres::Problem.
Outcome SolveProblemByDevices(const ceres::Solver::Options& options,
                              const Options& ext_options,
                              ceres::Problem* problem,
                              Summary* summary) {
  std::string reason;
  TableOfProblem arrays;
  // The solve by one says what is not valid.
  return CanSolve(options, ext_options, problem, &reason) &&
                 options.IsValid(&reason) && problem != nullptr &&
                 arrays.Read(*problem, &reason)
             ? SolveWholeByDevices(options, ext_options, &arrays, summary)
             : Outcome::NotBySeveral(reason);
}

void Solve(const ceres::Solver::Options& options,
           const Options& ext_options,
           ceres::Problem* problem,
           ceres::Solver::Summary* summary,
           Summary* ext_summary) {
  const double start = Now();
  Failure ignored;  // Then what there is stands.
  ignored.Guard(false, [&] {
    std::string error;
    if (!HasNoRanks(ext_options, "a ceres::Problem", &error)) {
      summary->termination_type = ceres::FAILURE;
      summary->message = error;
      return false;
    }
    // Without several devices nothing here takes memory.
    Attempts attempts(ext_options);
    TryEach(&attempts, [&](const Attempt& attempt) {
      if (!attempts.by_several()) {
        return SolveOnce(
            options, ext_options, attempt, problem, summary, ext_summary);
      }
      Summary of_devices;
      Outcome outcome =
          SolveProblemByDevices(options, ext_options, problem, &of_devices);
      if (ext_summary != nullptr) {
        *ext_summary = std::move(of_devices);
      } else {
        *summary = std::move(of_devices);
      }
      return outcome;
    });
    if (!attempts.is_first() || attempts.by_several()) {
      CountTimeSince(start, summary);
    }
    return true;
  });
}

}  // namespace

void Solve(const ceres::Solver::Options& options,
           const Options& ext_options,
           ceres::Problem* problem,
           Summary* summary) {
  Solve(options, ext_options, problem, summary, summary);
}

void Solve(const ceres::Solver::Options& options,
           const Options& ext_options,
           ceres::Problem* problem,
           ceres::Solver::Summary* summary) {
  Solve(options, ext_options, problem, summary, nullptr);
}

bool StartDevice(const Options& ext_options, std::string* error) {
  Failure failure;
  failure.Guard(false, [&] {
    if (!ext_options.IsValid(error)) {
      failure.Set("ceres_ext::Options is not valid: " + *error);
      return false;
    }
    const BorrowedMachines kept(ext_options);
    std::shared_ptr<KeptMachines::Device> device;
    const kernels::Status status =
        kept->GetDevice(ext_options, /*num_threads=*/1, &device);
    if (!status.ok()) {
      failure.Set(status);
    }
    return status.ok();
  });
  AssignOrShorten(failure.sentence(), error);
  return !failure.has_happened();
}

void ReleaseIdle() {
  BorrowedMachines::ReleaseIdle();
  ReleaseIdleCommunicators();
  ReleaseLibraryHandles();
}

bool Evaluate(const EvaluateOptions& options,
              const Options& ext_options,
              const ArrayProblem& problem,
              double* cost,
              std::vector<double>* residuals,
              std::vector<double>* gradient,
              std::string* error) {
  const BorrowedMachines kept(ext_options);
  return EvaluateArrays(options,
                        ext_options,
                        problem,
                        kept.get(),
                        cost,
                        residuals,
                        gradient,
                        error);
}

struct ArraySolver::Impl {
  KeptMachines kept;
  MachinesOfRanks of_ranks;
};

ArraySolver::ArraySolver() : impl_(std::make_unique<Impl>()) {
  impl_->kept.is_for_several = true;
}
ArraySolver::~ArraySolver() = default;
ArraySolver::ArraySolver(ArraySolver&&) noexcept = default;
ArraySolver& ArraySolver::operator=(ArraySolver&&) noexcept = default;

void ArraySolver::Solve(const ceres::Solver::Options& options,
                        const Options& ext_options,
                        ArrayProblem* problem,
                        Summary* summary) {
  SolveArraysOrProblem(
      {options, ext_options, &impl_->kept, &impl_->of_ranks, summary}, problem);
}

bool ArraySolver::Evaluate(const EvaluateOptions& options,
                           const Options& ext_options,
                           const ArrayProblem& problem,
                           double* cost,
                           std::vector<double>* residuals,
                           std::vector<double>* gradient,
                           std::string* error) {
  return EvaluateArrays(options,
                        ext_options,
                        problem,
                        &impl_->kept,
                        cost,
                        residuals,
                        gradient,
                        error);
}

void Solve(const ceres::Solver::Options& options,
           const Options& ext_options,
           ArrayProblem* problem,
           Summary* summary) {
  const BorrowedMachines kept(ext_options);
  SolveArraysOrProblem(
      {options, ext_options, kept.get(), /*of_ranks=*/nullptr, summary},
      problem);
}

}  // namespace ceres_ext

// Ceres looks this up when CERES_SOLVER_PLUGIN names this library. Returns null
// with a message of at most error_size - 1 characters in `error` when the
// settings are not valid.
extern "C" __attribute__((visibility("default"))) ceres::internal::SolverPlugin*
CeresCreateSolverPlugin(int abi_version,
                        const char* settings,
                        char* error,
                        int error_size) {
  return ceres_ext::CreatePluginOfEnvironment(
      abi_version, settings, ceres_ext::SolveWholeByDevices, error, error_size);
}
