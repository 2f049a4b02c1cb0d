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
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/base/vector_sums.h"
#include "cuda_kernels/model/robust_loss.h"
#include "cuda_kernels/ops/evaluate.h"
#include "cuda_kernels/ops/robust_losses.h"

namespace ceres_ext {

// The losses of residual blocks (null: none) as chains, and for each block the
// number of the first of its chain (kernels::kNoLoss for none). kUnsupported,
// with the reason, where one is a user's own or there are too many.
kernels::Status FindChains(const std::vector<const ceres::LossFunction*>& loss,
                           std::vector<kernels::RobustLoss>* losses,
                           std::vector<uint8_t>* ids);

// As kernels::CorrectForLossParams, with losses that only Ceres can call; a
// vector operation of the host.
template <typename T, typename Shape>
struct CorrectForUserLossParams
    : public kernels::CorrectForLossParams<T, Shape, kernels::kHostLayout> {
  const ceres::LossFunction* const* user_losses = nullptr;  // n; null: none

  kernels::TwoSums Term(int64_t k) const {
    const double* r = this->residuals + 2 * k;
    double residual[2] = {r[0], r[1]};
    const double s = r[0] * r[0] + r[1] * r[1];
    double rho[3] = {s, 1.0, 0.0};
    if (user_losses[k] != nullptr) {
      user_losses[k]->Evaluate(s, rho);
      this->correction.Correct(k, s, rho, residual);
    }
    if (this->corrected_residuals != nullptr) {
      this->corrected_residuals[2 * k] = residual[0];
      this->corrected_residuals[2 * k + 1] = residual[1];
    }
    return {rho[0], 0.0};
  }
};

template <typename Machine>
class LossModel {
 public:
  // loss: one per observation in the caller's order, or empty; kept by pointer
  // where one is a user's own. kUnsupported, with the reason, for a loss that a
  // device doesn't know, or too many of them.
  kernels::Status Setup(const std::vector<const ceres::LossFunction*>& loss,
                        const ObservationBlocks<Machine>* observations) {
    machine_ = observations->machine;
    if (loss.empty()) {
      return {};
    }
    n_ = observations->index().num_observations;
    std::vector<int32_t> input_id(n_);
    CERES_EXT_RETURN_IF_ERROR(machine_->Download(
        n_, observations->index().input_id(), input_id.data()));
    const auto in_order = [&](const auto& from, auto* to) {
      to->resize(n_);
      for (int64_t k = 0; k < n_; ++k) {
        (*to)[k] = from[input_id[k]];
      }
    };
    std::vector<kernels::RobustLoss> losses;
    std::vector<uint8_t> input_ids;
    const kernels::Status status = FindChains(loss, &losses, &input_ids);
    if (!status.ok()) {
      if (!kIsHost<Machine>) {
        return status;
      }
      in_order(loss, &user_losses_);
      return {};
    }
    std::vector<uint8_t> ids;
    in_order(input_ids, &ids);
    CERES_EXT_RETURN_IF_ERROR(machine_->Upload(losses, &losses_));
    return machine_->Upload(ids, &loss_id_);
  }

  bool empty() const { return n_ == 0; }

  // Sets evaluation->cost, which is in the machine's memory, to 1/2 sum rho
  // and corrects residuals and blocks (kernels::CorrectForLossParams) where
  // their data is not null.
  template <typename T, typename Shape>
  kernels::Status Correct(
      const kernels::LossCorrection<T, Shape, Machine::kLayout>& correction,
      bool correct_residuals,
      double* residuals,
      kernels::Evaluation* evaluation) {
    const auto run = [&](auto params) {
      params.n = n_;
      params.residuals = residuals;
      params.corrected_residuals = correct_residuals ? residuals : nullptr;
      params.correction = correction;
      params.evaluation = evaluation;
      return kernels::Run(params, machine_);
    };
    if constexpr (kIsHost<Machine>) {
      if (!user_losses_.empty()) {
        CorrectForUserLossParams<T, Shape> params;
        params.user_losses = user_losses_.data();
        return run(params);
      }
    }
    kernels::CorrectForLossParams<T, Shape, Machine::kLayout> params;
    params.losses = losses_.data();
    params.loss_id = loss_id_.data();
    return run(params);
  }

 private:
  template <typename T>
  using Buffer = typename Machine::template Buffer<T>;

  Machine* machine_ = nullptr;
  int64_t n_ = 0;  // observations; 0: none has a loss
  // Chains of losses, and the number of its first per observation of the index.
  Buffer<kernels::RobustLoss> losses_;
  Buffer<uint8_t> loss_id_;
  // On the host, where one is a user's own: per observation of the index, null
  // for none.
  std::vector<const ceres::LossFunction*> user_losses_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_GLUE_LOSSES_H_
