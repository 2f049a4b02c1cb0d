// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/front/solve_parts.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

#include "ceres_ext/front/array_parts.h"
#include "ceres_ext/import/array_import.h"
#include "cuda_kernels/machine/communicator.h"

namespace ceres_ext {
namespace {

// That of all ranks: how many, and the worst.
void Merge(const DegenerateBlocks& of_rank, DegenerateBlocks* all) {
  const int64_t count = all->count + of_rank.count;
  if (of_rank.count > 0 && (all->count == 0 || of_rank.worst_relative_pivot <
                                                   all->worst_relative_pivot)) {
    *all = of_rank;
  }
  all->count = count;
}

}  // namespace

bool SolveParts(const ceres::Solver::Options& options,
                const std::vector<Options>& of_ranks,
                const ArrayProblem& problem,
                kernels::HostContext* context,
                const SolveRank& solve,
                Summary* summary,
                std::string* reason) {
  // A rank whose kernel hangs for so long will not come back.
  constexpr std::chrono::minutes kTimeout{10};
  const int own = FindOwnArray(problem);
  if (own < 0) {
    *reason =
        "no array of parameters can be dealt out; expected one of blocks of at "
        "most 3 values of which no residual block names two";
    return false;
  }
  ArrayParts parts(&problem, own, static_cast<int>(of_ranks.size()), context);
  const auto size = static_cast<size_t>(parts.size());
  const auto communicators =
      kernels::MakeThreadCommunicators(parts.size(), kTimeout);
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
  } catch (const std::system_error&) {
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
  *summary = std::move(summaries[0]);
  NameWorst(problem, &summary->degenerate_eliminated_blocks);
  NameWorst(problem, &summary->degenerate_other_blocks);
  return true;
}

}  // namespace ceres_ext
