// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Model windows on the host: a thread solves one.
#ifndef CERES_EXT_SMALL_MODEL_WINDOW_MODEL_HOST_H_
#define CERES_EXT_SMALL_MODEL_WINDOW_MODEL_HOST_H_

#include <vector>

#include "ceres_ext/batchable_cost_function.h"
#include "ceres_ext/marginal_prior.h"
#include "ceres_ext/small/model_window/model_window.h"
#include "ceres_ext/solver/step_search.h"

namespace ceres_ext {

// The window's rows of a model.
struct ModelHostRows {
  const BatchModel* model = nullptr;
  RowBatch batch;
};

// Solves the window of a record in `inputs`. marginals: its priors. *memory is
// the thread's, for this and later windows. Throws std::bad_alloc where it
// can't grow.
void SolveModelWindowOnHost(
    const ModelWindowRecord& record,
    const ModelTables& tables,
    const LoopOptions& options,
    const unsigned char* inputs,
    unsigned char* outputs,
    const std::vector<const BlockMarginalPrior*>& marginals,
    std::vector<ModelHostRows>* rows,
    std::vector<double>* memory);

}  // namespace ceres_ext

#endif  // CERES_EXT_SMALL_MODEL_WINDOW_MODEL_HOST_H_
