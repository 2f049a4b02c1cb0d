// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The loss functions of a batch. Ceres's own (TrivialLoss, HuberLoss,
// SoftLOneLoss, CauchyLoss, ArctanLoss, TolerantLoss, TukeyLoss and what
// ComposedLoss and ScaledLoss make of them) are computed by
// model/robust_loss.h on every machine. Where there is one of a user's own, the
// host calls all of them, and a device refuses.

#ifndef CERES_EXT_GLUE_LOSSES_H_
#define CERES_EXT_GLUE_LOSSES_H_

#include <cstdint>
#include <vector>

#include "ceres/loss_function.h"
#include "ceres_ext/glue/machines.h"
#include "ceres_ext/glue/program_blocks.h"
#include "cuda_kernels/base/block_view.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/model/robust_loss.h"
#include "cuda_kernels/ops/evaluate.h"
#include "cuda_kernels/ops/robust_losses.h"

namespace ceres_ext {

template <typename Machine>
class LossModel {
 public:
  // loss: one per observation in the caller's order, or empty; kept by pointer
  // where one is a user's own. kUnsupported, with the reason, for a loss that a
  // device doesn't know, or too many of them.
  kernels::Status Setup(const std::vector<const ceres::LossFunction*>& loss,
                        const ObservationBlocks<Machine>* observations);

  bool empty() const { return empty_; }

  // Sets evaluation->cost, which is in the machine's memory, to 1/2 sum rho
  // and corrects residuals and blocks (kernels::CorrectForLossParams) where
  // their data is not null.
  template <typename T, int C>
  kernels::Status Correct(
      const kernels::LossCorrection<T, kernels::BalShape<C>, Machine::kLayout>&
          correction,
      bool correct_residuals,
      double* residuals,
      kernels::Evaluation* evaluation);

  int64_t bytes() const;

 private:
  template <typename T>
  using Buffer = typename Machine::template Buffer<T>;

  const ObservationBlocks<Machine>* observations_ = nullptr;
  bool empty_ = true;
  // Chains of losses, and the number of its first per observation of the index.
  Buffer<kernels::RobustLoss> losses_;
  Buffer<uint8_t> loss_id_;
  // On the host, where one is a user's own: per observation of the index, null
  // for none.
  std::vector<const ceres::LossFunction*> user_losses_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_GLUE_LOSSES_H_
