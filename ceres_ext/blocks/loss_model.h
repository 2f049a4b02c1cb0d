// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The loss functions of a batch. Ceres's own (TrivialLoss, HuberLoss,
// SoftLOneLoss, CauchyLoss, ArctanLoss, TolerantLoss, TukeyLoss and what
// ComposedLoss and ScaledLoss make of them) are computed by
// model/robust_loss.h on every machine. If one is user-defined, the host calls
// the losses of all rows of the batch: |r|^2 is downloaded and rho uploaded, 32
// B per row.

#ifndef CERES_EXT_BLOCKS_LOSS_MODEL_H_
#define CERES_EXT_BLOCKS_LOSS_MODEL_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "ceres/loss_function.h"
#include "ceres_ext/base/machines.h"
#include "ceres_ext/base/type_name.h"
#include "ceres_ext/blocks/machine_problem.h"
#include "ceres_ext/summary.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/host_context.h"
#include "cuda_kernels/model/robust_loss.h"

namespace ceres_ext {

// The losses of rows (null: none) as chains, and for each row the number of the
// first of its chain (kernels::kNoLoss for none). If that makes too many, the
// scale that a row's ceres::ScaledLoss ends with is its weight instead; weights
// is empty if none is needed. Returns null, or the first loss that only the
// host can call: a user-defined one, or one too many. context: threads for many
// rows; null: on the calling thread.
const ceres::LossFunction* FindChains(
    const std::vector<const ceres::LossFunction*>& loss,
    std::vector<kernels::RobustLoss>* losses,
    std::vector<uint8_t>* ids,
    std::vector<double>* weights,
    kernels::HostContext* context = nullptr);

// The inner loss and the scale of a ceres::ScaledLoss; any other loss and 1.
std::pair<const ceres::LossFunction*, double> WithoutScale(
    const ceres::LossFunction* loss);

// Null, or the first of these losses (null for none) that is not known to be
// concave (RobustLoss::IsConcave): a user-defined one, a TolerantLoss, or one
// that contains these. On the threads of *context.
const ceres::LossFunction* FindNotConcave(
    const std::vector<const ceres::LossFunction*>& losses,
    kernels::HostContext* context);

// kNumericalFailure names the first loss, of the chains that FindChains has
// made, whose factors (ceres::ScaledLoss) are negative or NaN as a product: no
// residual can be corrected for it.
kernels::Status CheckFactors(
    const std::vector<const ceres::LossFunction*>& loss,
    const std::vector<kernels::RobustLoss>& losses,
    const std::vector<uint8_t>& ids,
    const std::vector<double>& weights);

// rho, rho' and rho'' of n rows at their squared norms, by the threads of
// *context. kNumericalFailure names the first loss that throws or, if residuals
// are to be corrected for them, has no root of rho' (LossCorrector).
kernels::Status CallLosses(const ceres::LossFunction* const* losses,
                           int64_t n,
                           const double* squared_norms,
                           bool corrects,
                           double* rho,
                           kernels::HostContext* context);

template <typename Machine>
class LossModel {
 public:
  template <typename T>
  using Buffer = typename Machine::template Buffer<T>;

  // loss: one per row in the order of the rows, null for none; or empty. Those
  // that the host calls are kept by pointer, and called by the threads of
  // *host_context; this and *machine outlive the model. All memory is taken
  // here.
  kernels::Status Setup(std::vector<const ceres::LossFunction*> loss,
                        kernels::HostContext* host_context,
                        Machine* machine) {
    host_context_ = host_context;
    machine_ = machine;
    std::vector<kernels::RobustLoss> losses;
    std::vector<uint8_t> ids;
    std::vector<double> weights;
    host_loss_ = FindChains(loss, &losses, &ids, &weights, host_context);
    if (!calls_user() && losses.empty() && weights.empty()) {
      return {};
    }
    n_ = static_cast<int64_t>(loss.size());
    if (!calls_user()) {
      factors_ = ceres_ext::CheckFactors(loss, losses, ids, weights);
      CERES_EXT_RETURN_IF_ERROR(machine->Upload(losses, &losses_));
      CERES_EXT_RETURN_IF_ERROR(machine->Upload(weights, &weights_));
      return machine->Upload(ids, &loss_id_);
    }
    host_losses_ = std::move(loss);
    CERES_EXT_RETURN_IF_ERROR(machine->Allocate(3 * n_, &rho_));
    if constexpr (!kIsHost<Machine>) {
      CERES_EXT_RETURN_IF_ERROR(kernels::AllocatePageLocked(
          4 * std::min(n_, kChunk) * static_cast<int64_t>(sizeof(double)),
          &crossing_));
    }
    return {};
  }
  // n rows of the same loss.
  kernels::Status Setup(const ceres::LossFunction& loss,
                        int64_t n,
                        kernels::HostContext* host_context,
                        Machine* machine) {
    std::vector<kernels::RobustLoss> losses;
    std::vector<uint8_t> ids;
    std::vector<double> weights;
    if (FindChains({&loss}, &losses, &ids, &weights) != nullptr) {
      return Setup(std::vector<const ceres::LossFunction*>(n, &loss),
                   host_context,
                   machine);
    }
    host_context_ = host_context;
    machine_ = machine;
    n_ = n;
    factors_ = ceres_ext::CheckFactors({&loss}, losses, ids, weights);
    CERES_EXT_RETURN_IF_ERROR(machine->Upload(losses, &losses_));
    CERES_EXT_RETURN_IF_ERROR(machine->Allocate(n, &loss_id_));
    // The first chain, by number 0.
    return machine->SetZero(n, loss_id_.data());
  }
  // loss: one per observation in the caller's order; or empty.
  kernels::Status Setup(const std::vector<const ceres::LossFunction*>& loss,
                        kernels::HostContext* host_context,
                        const ObservationBlocks<Machine>& observations) {
    const int64_t n = static_cast<int64_t>(loss.size());
    std::vector<int32_t> input_id(n);
    CERES_EXT_RETURN_IF_ERROR(observations.machine->Download(
        n, observations.index().input_id(), input_id.data()));
    std::vector<const ceres::LossFunction*> in_order(n);
    host_context->ParallelFor(n, kRowsPerTask, [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k) {
        in_order[k] = loss[input_id[k]];
      }
    });
    return Setup(std::move(in_order), host_context, observations.machine);
  }

  // After Setup: rho of the n rows, row by row, is to be multiplied by them.
  void TakeWeights(int64_t n, Buffer<double> weights) {
    n_ = n;
    weights_ = std::move(weights);
  }

  // No row has a loss or a weight.
  bool empty() const { return n_ == 0; }
  // The host calls the losses of all rows.
  bool calls_user() const { return host_loss_ != nullptr; }
  // Holds what UpdateRho has filled last.
  kernels::LossRef ref() const {
    return {losses_.data(), loss_id_.data(), rho_.data(), weights_.data()};
  }

  // kNumericalFailure if residuals can't be corrected for the losses of Ceres.
  const kernels::Status& CheckFactors() const { return factors_; }

  // With calls_user, before the view is read: calls all losses at these squared
  // norms, one per row, which are in the machine's memory. corrects: residuals
  // are corrected for them.
  kernels::Status UpdateRho(const double* squared_norms, bool corrects) {
    if constexpr (kIsHost<Machine>) {
      return CallLosses(host_losses_.data(),
                        n_,
                        squared_norms,
                        corrects,
                        rho_.data(),
                        host_context_);
    } else {
      double* const s = static_cast<double*>(crossing_.get());
      double* const rho = s + std::min(n_, kChunk);
      for (int64_t begin = 0; begin < n_; begin += kChunk) {
        const int64_t n = std::min(kChunk, n_ - begin);
        CERES_EXT_RETURN_IF_ERROR(
            machine_->Download(n, squared_norms + begin, s));
        CERES_EXT_RETURN_IF_ERROR(CallLosses(
            host_losses_.data() + begin, n, s, corrects, rho, host_context_));
        CERES_EXT_RETURN_IF_ERROR(
            machine_->Upload(3 * n, rho, rho_.data() + 3 * begin));
      }
      return {};
    }
  }

  // Adds what the host calls to the summary.
  void Report(Summary* summary) const {
    if (calls_user()) {
      summary->num_host_losses +=
          n_ - std::count(host_losses_.begin(), host_losses_.end(), nullptr);
      if (summary->host_loss_type.empty()) {
        summary->host_loss_type = TypeName(*host_loss_);
      }
    }
  }

 private:
  // Rows that cross at a time: 8 MB of page-locked memory.
  static constexpr int64_t kChunk = int64_t{1} << 18;
  static constexpr int64_t kRowsPerTask = int64_t{1} << 14;

  kernels::HostContext* host_context_ = nullptr;
  Machine* machine_ = nullptr;
  int64_t n_ = 0;  // rows; 0: none has a loss or a weight
  // Chains of losses, and the number of its first per row.
  Buffer<kernels::RobustLoss> losses_;
  Buffer<uint8_t> loss_id_;
  Buffer<double> weights_;
  kernels::Status factors_;
  // If the host calls them: the first that requires it, all losses, and their
  // results.
  const ceres::LossFunction* host_loss_ = nullptr;
  std::vector<const ceres::LossFunction*> host_losses_;
  Buffer<double> rho_;
  // On a device: |r|^2 and rho of a chunk.
  std::
      conditional_t<kIsHost<Machine>, std::monostate, kernels::PageLockedBuffer>
          crossing_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_BLOCKS_LOSS_MODEL_H_
