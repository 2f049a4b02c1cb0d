// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Steps of a loop that lead to a state whose cost is not finite, or many times
// as high as before: a point that a step throws to the plane of a camera has
// residuals of 1e30 pixels there. Which residuals these are is evaluated beside
// the loop, so a solve without such a step does nothing here.
//
//   RunawayTrials<Machine> trials;
//   trials.BorrowResiduals(scratch);
//   trials.NoteState(residuals, cost);  // where the Jacobian was evaluated
//   Status status = trials.NoteTrial(wanted, is_finite, cost, &evaluator, ...);
//   status = trials.FindWorst(5, linearization, problem, values_at, &worst);

#ifndef CERES_EXT_SESSION_RUNAWAY_TRIALS_H_
#define CERES_EXT_SESSION_RUNAWAY_TRIALS_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <vector>

#include "ceres_ext/blocks/machine_problem.h"
#include "ceres_ext/session/linearization.h"
#include "ceres_ext/session/problem_evaluator.h"
#include "ceres_ext/summary.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/ops/vectors.h"

namespace ceres_ext {

template <typename Machine>
class RunawayTrials {
 public:
  // residuals: memory for those of a trial; null: trials are not looked at.
  void BorrowResiduals(double* residuals) { trial_ = residuals; }

  // residuals: on the machine, as they are until the next call.
  void NoteState(const double* residuals, double cost) {
    residuals_ = residuals;
    cost_ = cost;
    num_careful_steps_ = std::max(0, num_careful_steps_ - 1);
  }

  // True after a runaway trial, until so many steps have succeeded.
  bool IsCareful() const { return num_careful_steps_ > 0; }

  // After an evaluation of the cost alone. is_finite: it has succeeded. Takes
  // memory when a trial first runs away; where there is none, nothing is
  // counted. Counts in *record.
  kernels::Status NoteTrial(const EvaluationWanted<Machine>& of_trial,
                            bool is_finite,
                            double cost,
                            ProblemEvaluator<Machine>* evaluator,
                            const MachineProblem<Machine>& problem,
                            Summary* record) {
    if (residuals_ == nullptr || trial_ == nullptr ||
        (is_finite && cost <= kMostCost * cost_)) {
      return {};
    }
    num_careful_steps_ = kCarefulSteps;
    Machine* const machine = problem.machine();
    const CurrentMachine<Machine> current(machine);
    CERES_EXT_RETURN_IF_ERROR(current.status());
    const int64_t n = problem.num_residuals();
    const kernels::Status has_room = Allocate(machine);
    if (!has_room.ok()) {
      return has_room.code == kernels::StatusCode::kOutOfMemory
                 ? kernels::Status()
                 : has_room;
    }
    // Residuals of a cost function that fails stay NaN. Ceres also leaves out
    // rows behind one that fails, so these stay as they were.
    if (evaluator->num_host_rows() > 0) {
      CERES_EXT_RETURN_IF_ERROR(
          Run(kernels::CopyParams{n, residuals_, trial_}, machine));
    } else {
      CERES_EXT_RETURN_IF_ERROR(Run(
          kernels::SetConstantParams{
              n, std::numeric_limits<double>::quiet_NaN(), trial_},
          machine));
    }
    EvaluationWanted<Machine> wanted = of_trial;
    wanted.is_new_point = false;
    wanted.residuals = trial_;
    double ignored = 0.0;
    kernels::Status status = evaluator->Evaluate(wanted, &ignored);
    if (!status.ok() && status.code != kernels::StatusCode::kNumericalFailure) {
      return status;
    }
    const double mean_square = 2.0 * cost_ / static_cast<double>(n);
    CERES_EXT_RETURN_IF_ERROR(Run(
        kernels::CountGrownParams{
            n, residuals_, trial_, mean_square, num_grown_.data()},
        machine));
    CERES_EXT_RETURN_IF_ERROR(Run(kernels::FindGrownParams{kSlices,
                                                           n,
                                                           residuals_,
                                                           trial_,
                                                           mean_square,
                                                           rows_.data(),
                                                           value_.data(),
                                                           trial_value_.data()},
                                  machine));
    ++record->num_runaway_trials;
    return machine->ReadResult(num_grown_, &record->num_runaway_residuals);
  }

  // The residuals of the last runaway trial that cost most, at most `most`,
  // each of another eliminated block, if it has one. Only the worst counts of
  // residuals whose numbers are a multiple of kSlices apart. values_at: the
  // caller's values of the block at this offset of the state. Once, at the end.
  kernels::Status FindWorst(
      int most,
      const Linearization<Machine>& linearization,
      const MachineProblem<Machine>& problem,
      const std::function<const double*(int state_offset)>& values_at,
      std::vector<RunawayResidual>* worst) {
    worst->clear();
    if (rows_.size() == 0) {
      return {};
    }
    Machine* const machine = problem.machine();
    const CurrentMachine<Machine> current(machine);
    CERES_EXT_RETURN_IF_ERROR(current.status());
    std::vector<int64_t> row(kSlices);
    std::vector<double> value(kSlices);
    std::vector<double> trial(kSlices);
    CERES_EXT_RETURN_IF_ERROR(
        machine->Download(kSlices, rows_.data(), row.data()));
    CERES_EXT_RETURN_IF_ERROR(
        machine->Download(kSlices, value_.data(), value.data()));
    CERES_EXT_RETURN_IF_ERROR(
        machine->Download(kSlices, trial_value_.data(), trial.data()));
    std::vector<int> slices;
    for (int i = 0; i < kSlices; ++i) {
      if (row[i] >= 0) {
        slices.push_back(i);
      }
    }
    const auto size = [&](int i) {
      return kernels::FindGrownParams::Size(trial[i]);
    };
    std::sort(slices.begin(), slices.end(), [&](int a, int b) {
      return size(a) != size(b) ? size(a) > size(b) : row[a] < row[b];
    });
    // Several residuals of each block are among these.
    constexpr int64_t kCandidates = 64;
    slices.resize(std::min<size_t>(slices.size(), kCandidates));
    std::map<int64_t, std::vector<int>> columns;
    for (const int i : slices) {
      columns[row[i]];
    }
    CERES_EXT_RETURN_IF_ERROR(linearization.ForEachEntry(
        [&](int64_t at, int column, double /*value*/) {
          const auto found = columns.find(at);
          if (found != columns.end()) {
            found->second.push_back(column);
          }
        }));
    for (const int i : slices) {
      RunawayResidual residual;
      residual.value = value[i];
      residual.trial = trial[i];
      AddBlocks(columns[row[i]], problem, values_at, &residual.blocks);
      const bool is_new = std::none_of(
          worst->begin(), worst->end(), [&](const RunawayResidual& other) {
            return !other.blocks.empty() && !residual.blocks.empty() &&
                   other.blocks[0].values == residual.blocks[0].values;
          });
      if (is_new && static_cast<int>(worst->size()) < most) {
        worst->push_back(std::move(residual));
      }
    }
    return {};
  }

 private:
  template <typename T>
  using Buffer = typename Machine::template Buffer<T>;

  // Times the cost before it, from which a trial is looked at. A residual that
  // grows to 1e3 times the root mean square of n makes it 1e6 / n times.
  static constexpr double kMostCost = 10.0;
  static constexpr int kCarefulSteps = 10;

  // Enough that neighbours, which are of the same block, and most others are in
  // different ones, and that a device is busy: 8,192 took 3.3 ms of 58 million
  // residuals.
  static constexpr int kSlices = 1 << 16;

  kernels::Status Allocate(Machine* machine) {
    if (rows_.size() > 0) {
      return {};
    }
    CERES_EXT_RETURN_IF_ERROR(machine->AllocateResult(&num_grown_));
    CERES_EXT_RETURN_IF_ERROR(machine->Allocate(kSlices, &value_));
    CERES_EXT_RETURN_IF_ERROR(machine->Allocate(kSlices, &trial_value_));
    return machine->Allocate(kSlices, &rows_);
  }

  static void AddBlocks(
      const std::vector<int>& columns,
      const MachineProblem<Machine>& problem,
      const std::function<const double*(int state_offset)>& values_at,
      std::vector<RunawayResidual::Block>* blocks) {
    for (const auto* families : {&problem.e(), &problem.f()}) {
      for (const auto& family : *families) {
        const BlockTable& table = family.table();
        for (int32_t i = 0; i < table.size(); ++i) {
          const int begin = table.tangent_offset(i);
          const int end = begin + table.tangent_size(i);
          if (begin < 0 || table.state_offset(i) < 0 ||
              std::none_of(columns.begin(), columns.end(), [&](int column) {
                return begin <= column && column < end;
              })) {
            continue;
          }
          RunawayResidual::Block block;
          block.values = values_at(table.state_offset(i));
          block.is_eliminated = families == &problem.e();
          blocks->push_back(block);
        }
      }
    }
  }

  const double* residuals_ = nullptr;
  double cost_ = 0.0;
  int num_careful_steps_ = 0;
  double* trial_ = nullptr;
  // The worst residual of each slice in the last runaway trial: its row, or -1,
  // and its value before and in the trial. Empty: there was no such trial.
  Buffer<int64_t> rows_;
  Buffer<double> value_;
  Buffer<double> trial_value_;
  typename Machine::template Result<int64_t> num_grown_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_SESSION_RUNAWAY_TRIALS_H_
