// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Launches model windows on a device.

#ifndef CERES_EXT_SMALL_MODEL_WINDOW_MODEL_LAUNCHER_H_
#define CERES_EXT_SMALL_MODEL_WINDOW_MODEL_LAUNCHER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <type_traits>
#include <vector>

#include "ceres_ext/base/machines.h"
#include "ceres_ext/batchable_cost_function.h"
#include "ceres_ext/small/manifold_table.h"
#include "ceres_ext/small/model_window/model_cuda.h"
#include "ceres_ext/small/model_window/model_window.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/cuda_fork.h"
#include "cuda_kernels/model/robust_loss.h"

namespace ceres_ext {

// The rows of a model of all windows of a piece, in the device's memory. The
// launcher has the memory of what is evaluated.
struct ModelDeviceRows {
  const BatchModel* model = nullptr;
  RowBatch batch;
};

// A template, so that a build without CUDA does not compile its body.
template <typename Machine>
class ModelLauncher {
 public:
  explicit ModelLauncher(Machine* machine) : machine_(machine) {}

  kernels::Status SetTables(const std::vector<kernels::RobustLoss>& losses,
                            const ManifoldTable& manifolds);
  const kernels::RobustLoss* losses() const { return losses_.data(); }

  // Queues the solution of the windows. *params has the options, inputs and
  // outputs. Places scratch in *records and *rows. pass_stop: called wherever
  // it has waited.
  kernels::Status Launch(std::vector<ModelWindowRecord>* records,
                         std::vector<ModelDeviceRows>* rows,
                         AdvanceModelsParams* params,
                         const std::function<void()>& pass_stop);

 private:
  kernels::Status AllocateScratch(std::vector<ModelWindowRecord>* records,
                                  std::vector<ModelDeviceRows>* rows,
                                  AdvanceModelsParams* params);
  // Queues that candidates are evaluated, rows of models if *is_wanted.
  kernels::Status QueueCandidates(const int32_t* is_wanted,
                                  std::vector<ModelDeviceRows>* rows,
                                  const AdvanceModelsParams& params);
  kernels::Status QueueOnStreams(const std::vector<ModelDeviceRows>& rows,
                                 const AdvanceModelsParams& params);
  kernels::Status QueueRows(const ModelDeviceRows& rows, void* stream);
  // Queues so many rounds of all windows. flags_[i] is set before i.
  kernels::Status QueueRounds(int n,
                              std::vector<ModelDeviceRows>* rows,
                              AdvanceModelsParams* params);

  template <typename T>
  using Buffer = typename Machine::template Buffer<T>;
  Machine* const machine_;
  Buffer<kernels::RobustLoss> losses_;
  Buffer<kernels::ManifoldFactor> factors_;
  Buffer<int32_t> factor_begin_;
  Buffer<ModelWindowRecord> records_;
  Buffer<double> scratch_;
  // 1 if a window continues, for each round that is queued.
  Buffer<int32_t> flags_;
  bool has_priors_ = false;
  using Fork =
      std::conditional_t<kIsHost<Machine>, NoDevice, kernels::CudaFork>;
  // Null: not needed so far.
  std::unique_ptr<Fork> of_other_models_;
  std::unique_ptr<Fork> of_priors_;
};

extern template class ModelLauncher<DeviceMachine>;

}  // namespace ceres_ext

#endif  // CERES_EXT_SMALL_MODEL_WINDOW_MODEL_LAUNCHER_H_
