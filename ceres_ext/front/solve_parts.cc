// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/front/solve_parts.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "ceres_ext/front/array_parts.h"
#include "ceres_ext/import/array_import.h"
#include "cuda_kernels/machine/communicator.h"

namespace ceres_ext {
namespace {

// Adds the blocks of a rank to those of all: how many, and the worst.
void Merge(const DegenerateBlocks& of_rank, DegenerateBlocks* all) {
  const int64_t count = all->count + of_rank.count;
  if (of_rank.count > 0 && (all->count == 0 || of_rank.worst_relative_pivot <
                                                   all->worst_relative_pivot)) {
    *all = of_rank;
  }
  all->count = count;
}

using Communicators = std::vector<std::unique_ptr<kernels::Communicator>>;

// Communicators of ranks on devices that no solve has now, of the last solves:
// to connect devices takes longer than many a solve.
class IdleCommunicators {
 public:
  // Those that ranks on these devices had; new ones where there are none.
  static Communicators Take(const std::vector<int>& devices, int size) {
    // A rank whose kernel hangs for so long will not come back.
    constexpr std::chrono::minutes kTimeout{10};
    IdleCommunicators& all = Get();
    const std::lock_guard<std::mutex> lock(all.mutex_);
    const auto found = all.idle_.find({devices, size});
    if (found == all.idle_.end()) {
      return kernels::MakeThreadCommunicators(size, kTimeout);
    }
    Communicators communicators = std::move(found->second);
    all.idle_.erase(found);
    return communicators;
  }
  static void Return(const std::vector<int>& devices,
                     Communicators communicators) {
    IdleCommunicators& all = Get();
    const std::lock_guard<std::mutex> lock(all.mutex_);
    const auto size = static_cast<int>(communicators.size());
    all.idle_[{devices, size}] = std::move(communicators);
  }
  static void Release() {
    IdleCommunicators& all = Get();
    const std::lock_guard<std::mutex> lock(all.mutex_);
    all.idle_.clear();
  }

 private:
  // Never destroyed, since solves may run while the process exits.
  static IdleCommunicators& Get() {
    static IdleCommunicators* const all = new IdleCommunicators;
    return *all;
  }

  std::mutex mutex_;
  std::map<std::pair<std::vector<int>, int>, Communicators> idle_;
};

}  // namespace

void ReleaseIdleCommunicators() { IdleCommunicators::Release(); }

bool SolveParts(const ceres::Solver::Options& options,
                const std::vector<Options>& of_ranks,
                const ArrayProblem& problem,
                kernels::HostContext* context,
                const SolveRank& solve,
                Summary* summary,
                std::string* reason) {
  const int own = FindOwnArray(problem);
  if (own < 0) {
    *reason =
        "no array of parameters can be dealt out; expected one of blocks of at "
        "most 3 values of which no residual block names two";
    return false;
  }
  ArrayParts parts(&problem, own, static_cast<int>(of_ranks.size()), context);
  const auto size = static_cast<size_t>(parts.size());
  std::vector<int> devices;
  for (size_t rank = 0; rank < size; ++rank) {
    if (of_ranks[rank].device != DEVICE_HOST) {
      devices.push_back(of_ranks[rank].cuda_device);
    }
  }
  Communicators communicators = IdleCommunicators::Take(devices, parts.size());
  std::vector<Summary> summaries(size);
  const auto solve_rank = [&](size_t rank) {
    ceres::Solver::Options of_rank = options;
    of_rank.num_threads =
        std::max(1, options.num_threads / static_cast<int>(size));
    Options ext_options = of_ranks[rank];
    ext_options.communicator = communicators[rank].get();
    solve(of_rank,
          ext_options,
          parts.part(static_cast<int>(rank)),
          &summaries[rank]);
  };
  std::vector<std::thread> threads;
  bool has_threads = true;
  try {
    threads.reserve(size);
    for (size_t rank = 1; rank < size; ++rank) {
      threads.emplace_back(solve_rank, rank);
    }
  } catch (const std::exception&) {
    has_threads = false;
    communicators[0]->Abort("the system refuses threads.");
  }
  if (has_threads) {
    solve_rank(0);
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  if (!has_threads) {
    *reason = "the system refuses threads";
    return false;
  }
  for (size_t rank = 1; rank < size; ++rank) {
    Merge(summaries[rank].degenerate_eliminated_blocks,
          &summaries[0].degenerate_eliminated_blocks);
  }
  if (!devices.empty() &&
      std::all_of(summaries.begin(), summaries.end(), [](const Summary& s) {
        return s.IsSolutionUsable();
      })) {
    IdleCommunicators::Return(devices, std::move(communicators));
  }
  *summary = std::move(summaries[0]);
  NameWorst(problem, &summary->degenerate_eliminated_blocks);
  NameWorst(problem, &summary->degenerate_other_blocks);
  return true;
}

}  // namespace ceres_ext
