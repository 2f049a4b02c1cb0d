// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/marginalize.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <unordered_set>

#include "ceres/cost_function.h"
#include "ceres_ext/base/failure.h"
#include "ceres_ext/base/sentence.h"
#include "ceres_ext/batch.h"
#include "ceres_ext/import/array_rows.h"
#include "ceres_ext/import/table_of_problem.h"
#include "ceres_ext/small/marginal.h"

namespace ceres_ext {
namespace {

// Calls run(&sentence), which returns false for an error.
template <typename Function>
bool MarginalizeSafely(const Function& run, std::string* error) {
  Failure failure;
  const bool is_done = failure.Guard(false, [&] {
    std::string sentence;
    if (!run(&sentence)) {
      failure.Set(sentence);
      return false;
    }
    return true;
  });
  if (!is_done && error != nullptr) {
    AssignOrShorten(failure.sentence(), error);
  }
  return is_done;
}

bool MarginalizeArrays(const ArrayProblem& problem,
                       const BlocksToDrop& drop,
                       Marginal* marginal,
                       std::string* error) {
  if (HasDeviceArrays(problem)) {
    *error = "an array of the problem is on a device, expected host memory";
    return false;
  }
  ProblemBatch batch;
  batch.problem = problem;
  batch.num_problems = 1;
  batch.drop = drop;
  if (!IsValidDrop(batch, error) ||
      !problem.IsValid(/*num_threads=*/1, error)) {
    return false;
  }
  std::vector<std::vector<int64_t>> offsets;
  offsets.reserve(problem.parameters().size() + problem.residuals().size());
  for (const ArrayProblem::Parameters& parameters : problem.parameters()) {
    offsets.push_back({0, parameters.num_blocks});
    batch.parameter_begin.push_back(offsets.back().data());
  }
  for (const ArrayProblem::Residuals& residuals : problem.residuals()) {
    offsets.push_back({0, residuals.num_blocks});
    batch.residual_begin.push_back(offsets.back().data());
  }
  MarginalMemory memory;
  return MarginalizeProblem(batch, 0, &memory, marginal, error);
}

// The residual blocks of the blocks to drop, and the priors, which have the
// references of others.
bool FindResidualBlocks(const ceres::Problem& problem,
                        const std::vector<double*>& to_drop,
                        std::vector<ceres::ResidualBlockId>* found,
                        std::string* error) {
  std::unordered_set<ceres::ResidualBlockId> of_dropped;
  for (size_t i = 0; i < to_drop.size(); ++i) {
    if (!problem.HasParameterBlock(to_drop[i])) {
      *error = Sentence("block ", i, " to drop is not in the problem");
      return false;
    }
    std::vector<ceres::ResidualBlockId> of_block;
    problem.GetResidualBlocksForParameterBlock(to_drop[i], &of_block);
    of_dropped.insert(of_block.begin(), of_block.end());
  }
  std::vector<ceres::ResidualBlockId> all;
  problem.GetResidualBlocks(&all);
  std::copy_if(all.begin(),
               all.end(),
               std::back_inserter(*found),
               [&](ceres::ResidualBlockId id) {
                 return of_dropped.count(id) > 0 ||
                        dynamic_cast<const BlockMarginalPrior*>(
                            problem.GetCostFunctionForResidualBlock(id)) !=
                            nullptr;
               });
  return true;
}

}  // namespace

bool Marginalize(const ArrayProblem& problem,
                 const BlocksToDrop& drop,
                 Marginal* marginal,
                 std::string* error) {
  return MarginalizeSafely(
      [&](std::string* sentence) {
        return MarginalizeArrays(problem, drop, marginal, sentence);
      },
      error);
}

bool Marginalize(const ceres::Problem& problem,
                 const std::vector<double*>& to_drop,
                 Marginal* marginal,
                 std::vector<double*>* blocks,
                 std::string* error) {
  return MarginalizeSafely(
      [&](std::string* sentence) {
        blocks->clear();
        std::vector<ceres::ResidualBlockId> rows;
        if (!FindResidualBlocks(problem, to_drop, &rows, sentence)) {
          return false;
        }
        TableOfProblem table;
        std::string reason;
        if (!table.Read(problem.options(), rows, &reason)) {
          *sentence = "the problem cannot be marginalized: " + reason;
          return false;
        }
        const std::unordered_set<const double*> dropped(to_drop.begin(),
                                                        to_drop.end());
        const auto num_arrays =
            static_cast<int>(table.arrays().parameters().size());
        std::vector<std::vector<uint8_t>> flags(num_arrays);
        BlocksToDrop drop;
        for (int a = 0; a < num_arrays; ++a) {
          for (int64_t b = 0; b < table.NumBlocks(a); ++b) {
            flags[a].push_back(
                static_cast<uint8_t>(dropped.count(table.PlaceOf(a, b))));
          }
          drop.parameter_is_dropped.push_back(flags[a].data());
        }
        if (!MarginalizeArrays(table.arrays(), drop, marginal, sentence)) {
          return false;
        }
        for (const Marginal::Block& block : marginal->blocks) {
          blocks->push_back(table.PlaceOf(block.parameters, block.block));
        }
        marginal->blocks.clear();
        return true;
      },
      error);
}

}  // namespace ceres_ext
