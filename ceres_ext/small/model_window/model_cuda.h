// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Model windows on a device: phases of model_solve.h as kernels for all
// windows, between those of the models that evaluate the rows of all.
#ifndef CERES_EXT_SMALL_MODEL_WINDOW_MODEL_CUDA_H_
#define CERES_EXT_SMALL_MODEL_WINDOW_MODEL_CUDA_H_

#include <cstdint>

#include "ceres_ext/small/model_window/model_window.h"
#include "ceres_ext/solver/step_search.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/cuda_context.h"

namespace ceres_ext {

// All pointers are the device's.
struct AdvanceModelsParams {
  LoopOptions options;
  int64_t num_windows = 0;
  const ModelWindowRecord* records = nullptr;
  ModelTables tables;
  const unsigned char* inputs = nullptr;
  unsigned char* outputs = nullptr;
  // A ModelScratch and S of each window.
  unsigned char* scratch = nullptr;
  ModelWindow* windows = nullptr;
  // S is factorised in shared memory where it has no more bytes.
  int64_t schur_bytes = 0;
  int32_t num_models = 0;
  ModelRows rows[kMaxModels];  // of all windows; begin and end are not set
  // Set to 1 if a window continues.
  int32_t* continues = nullptr;
};

// Bytes of a block's shared memory beside S.
int64_t ModelHeadBytes();

// Queues the first candidates, the starts.
kernels::Status BeginModelWindows(const AdvanceModelsParams& params,
                                  cudaStream_t stream);
// Queues the evaluation of priors at candidates.
kernels::Status QueueModelPriors(const AdvanceModelsParams& params,
                                 cudaStream_t stream);
// Queues the next phases of windows that have not ended, from candidates that
// are evaluated on.
kernels::Status AdvanceModelWindows(const AdvanceModelsParams& params,
                                    cudaStream_t stream);

}  // namespace ceres_ext

#endif  // CERES_EXT_SMALL_MODEL_WINDOW_MODEL_CUDA_H_
