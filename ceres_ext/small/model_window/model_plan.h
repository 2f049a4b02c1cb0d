// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A problem of a batch as a model window: its blocks in order, its rows model
// by model, and lists of the rows that each part of H is a sum of.

#ifndef CERES_EXT_SMALL_MODEL_WINDOW_MODEL_PLAN_H_
#define CERES_EXT_SMALL_MODEL_WINDOW_MODEL_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ceres_ext/batchable_cost_function.h"
#include "ceres_ext/marginal_prior.h"
#include "ceres_ext/small/batch_summary.h"
#include "ceres_ext/small/model_window/model_window.h"
#include "ceres_ext/small/model_window/model_windows.h"

namespace ceres_ext {

struct ModelPlan {
  // A block of the batch.
  struct Place {
    int32_t array = 0;
    int64_t block = 0;
  };
  // A residual block of the batch that depends on a block that varies.
  struct Row {
    int32_t array = 0;
    int64_t number = 0;
  };

  ModelCounts counts;
  std::vector<Place> varying;         // in the order of `blocks`
  std::vector<Place> constant;        // whose values are end to end
  std::vector<Row> rows;              // of models, then priors
  int32_t num_rows[kMaxModels] = {};  // of each model
  // kMaxModelSlots of each row of a model. state and tangent count from the
  // window's.
  std::vector<RowBlock> row_blocks;
  std::vector<const BlockMarginalPrior*> marginals;
  double fixed_cost = 0.0;
  int32_t num_residuals = 0;

  // As in ModelInput.
  std::vector<ModelBlock> blocks;
  std::vector<ModelEliminated> eliminated;
  std::vector<ModelCell> diagonal_cells;
  std::vector<ModelCell> eliminated_cells;
  std::vector<ModelCell> cells;
  std::vector<ModelEntry> entries;
  std::vector<ModelEntry> schur_entries;
  std::vector<int32_t> run_begin;
  std::vector<ModelRun> runs;
  std::vector<ModelPrior> priors;  // of marginals
  std::vector<ModelPriorBlock> prior_blocks;
  std::vector<ModelPriorPart> prior_parts;
  std::vector<int32_t> wanted;
  std::vector<Place> of_wanted;  // their blocks
};

// Returns why problem i is not a model window, or an empty string. Thread safe.
// Throws std::bad_alloc.
std::string PlanModelWindow(const ModelWindows& windows,
                            int64_t i,
                            ModelPlan* plan);

}  // namespace ceres_ext

#endif  // CERES_EXT_SMALL_MODEL_WINDOW_MODEL_PLAN_H_
