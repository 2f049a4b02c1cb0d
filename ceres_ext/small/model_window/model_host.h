// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Model windows on the host: a thread solves one.
#ifndef CERES_EXT_SMALL_MODEL_WINDOW_MODEL_HOST_H_
#define CERES_EXT_SMALL_MODEL_WINDOW_MODEL_HOST_H_

#include <vector>

#include "ceres_ext/batchable_cost_function.h"
#include "ceres_ext/marginal_prior.h"
#include "ceres_ext/small/model_window/model_window.h"
#include "ceres_ext/solver/trust_region.h"

namespace ceres_ext {

// The window's rows of a model.
struct ModelHostRows {
  const BatchModel* model = nullptr;
  RowBatch batch;
};

// A marginal prior of the window.
struct ModelHostPrior {
  // A block that varies has columns of the derivative by it, and null or P.
  struct Block {
    const double* tangent = nullptr;
    int32_t column = 0;
    int32_t num_columns = 0;
  };
  const BlockMarginalPrior* prior = nullptr;
  int32_t num_columns = 0;
  std::vector<const double*> values;  // of each block
  std::vector<Block> blocks;
  // Set by the solve: J P, r and |r|^2, and J block by block.
  double* columns = nullptr;
  double* residuals = nullptr;
  double* squared_norm = nullptr;
  double* jacobians = nullptr;

  int32_t num_residuals() const { return prior->num_residuals(); }
  // Values of J.
  int64_t num_derivatives() const {
    return int64_t{num_residuals()} *
           static_cast<int64_t>(prior->references().size());
  }
};

// Solves the window of a record in `inputs`. *memory is the thread's, for this
// and later windows. Throws std::bad_alloc where it can't grow.
void SolveModelWindowOnHost(const ModelWindowRecord& record,
                            const ModelTables& tables,
                            const TrustRegionOptions& options,
                            const unsigned char* inputs,
                            unsigned char* outputs,
                            std::vector<ModelHostRows>* rows,
                            std::vector<ModelHostPrior>* priors,
                            std::vector<double>* memory);

}  // namespace ceres_ext

#endif  // CERES_EXT_SMALL_MODEL_WINDOW_MODEL_HOST_H_
