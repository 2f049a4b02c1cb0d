// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The loss functions of a batch. On the host every ceres::LossFunction is
// called. A device knows Ceres's TrivialLoss, HuberLoss, SoftLOneLoss,
// CauchyLoss, ArctanLoss, TolerantLoss, TukeyLoss and what ComposedLoss and
// ScaledLoss make of them; a user's own is refused there.

#ifndef CERES_EXT_GLUE_LOSSES_H_
#define CERES_EXT_GLUE_LOSSES_H_

#include <cstdint>
#include <vector>

#include "ceres/loss_function.h"
#include "ceres_ext/glue/backends.h"
#include "ceres_ext/glue/batch_shape.h"
#include "cuda_kernels/base/block_view.h"
#include "cuda_kernels/base/buffer.h"
#include "cuda_kernels/ops/evaluate.h"
#include "cuda_kernels/model/robust_loss.h"
#include "cuda_kernels/base/status.h"

namespace ceres_ext {

template <typename Backend>
class LossModel {
 public:
  // loss: one per residual block in the caller's order, or empty; kept by
  // pointer on the host. kUnsupported, with the reason, for a loss that the
  // Backend doesn't know.
  kernels::Status Setup(const std::vector<const ceres::LossFunction*>& loss,
                        const BatchShape<Backend>* shape);

  bool empty() const { return empty_; }

  // Sets evaluation->cost, which is in the Backend's memory, to 1/2 sum rho
  // and corrects residuals and blocks (kernels::CorrectForLossParams) where
  // their data is not null.
  template <typename T, int C>
  kernels::Status Correct(
      kernels::BlockView<T, 2 * C, Backend::kLayout> camera_blocks,
      kernels::BlockView<T, 6, Backend::kLayout> point_blocks,
      bool correct_residuals,
      double* residuals,
      kernels::Evaluation* evaluation);

  int64_t bytes() const;

 private:
  template <typename T>
  using Buffer = typename Backend::template Buffer<T>;

  const BatchShape<Backend>* shape_ = nullptr;
  bool empty_ = true;
  // Host: per observation of the index, null for none; and partial costs.
  std::vector<const ceres::LossFunction*> loss_;
  kernels::HostBuffer<double> partial_costs_;
  // Device.
  Buffer<kernels::RobustLoss> losses_;
  Buffer<uint8_t> loss_id_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_GLUE_LOSSES_H_
