// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/small/model_window/model_windows.h"

#include <algorithm>
#include <memory>
#include <numeric>

#include "ceres_ext/base/sentence.h"
#include "ceres_ext/blocks/loss_model.h"
#include "ceres_ext/marginal_prior.h"
#include "ceres_ext/small/model_window/model_window.h"
#include "ceres_ext/small/window/window_rows.h"

namespace ceres_ext {

ModelWindows::ModelWindows(const ProblemBatch* batch) : batch_(batch) {
  reason_ = ReadResiduals();
  if (!reason_.empty()) {
    return;
  }
  for (const ArrayProblem::Parameters& p : batch->problem.parameters()) {
    manifolds_.Read(p);
  }
}

std::string ModelWindows::ReadResiduals() {
  const auto& all = batch_->problem.residuals();
  std::vector<const ceres::LossFunction*> losses;
  bool are_of_bal = true;
  for (const ArrayProblem::Residuals& residuals : all) {
    model_of_.push_back(-1);
    losses.push_back(residuals.num_blocks > 0 ? residuals.loss : nullptr);
    if (residuals.num_blocks == 0) {
      continue;
    }
    std::string reason = ReadArray(residuals, &model_of_.back());
    if (!reason.empty()) {
      return reason;
    }
    const int model = model_of_.back();
    are_of_bal &=
        model != kPriors && models_[model]->kind != BatchModelKind::kOther;
  }
  if (are_of_bal) {
    return "all residual blocks are BAL's";
  }
  knows_rows_ = true;
  if (models_.size() > static_cast<size_t>(kMaxModels)) {
    return Sentence(
        "there are more than ", kMaxModels, " models of residual blocks");
  }
  std::vector<double> weights;
  if (FindChains(losses, &losses_, &loss_of_, &weights) != nullptr ||
      !weights.empty()) {
    return "a loss function is user-defined";
  }
  loss_of_.resize(all.size(), kernels::kNoLoss);
  return "";
}

std::string ModelWindows::ReadArray(const ArrayProblem::Residuals& residuals,
                                    int* number) {
  std::unique_ptr<const ceres::CostFunction> owner;
  if (residuals.cost_functions != nullptr &&
      dynamic_cast<const BlockMarginalPrior*>(
          FirstCostFunction(residuals, &owner)) != nullptr) {
    *number = kPriors;
    return residuals.loss == nullptr
               ? ""
               : "a marginal prior of a window has a loss function";
  }
  const BatchModel* model = nullptr;
  std::string reason = ReadModel(batch_->problem, residuals, &model);
  if (!reason.empty()) {
    return reason;
  }
  const int num_slots = model->num_parameter_blocks;
  if (num_slots > kMaxModelSlots) {
    return Sentence(
        "a residual block has more than ", kMaxModelSlots, " parameter blocks");
  }
  const auto known = std::find(models_.begin(), models_.end(), model);
  *number = static_cast<int>(known - models_.begin());
  if (known == models_.end()) {
    models_.push_back(model);
    num_columns_.push_back(
        std::accumulate(model->parameter_block_sizes,
                        model->parameter_block_sizes + num_slots,
                        0));
  }
  return "";
}

std::string ModelWindows::WhyNotOnDevice() const {
  for (const BatchModel* const model : models_) {
    const kernels::ModelForm* const form = model->GetForm(FormKind::kRows);
    if (form == nullptr || form->version != kBatchModelVersion ||
        form->params_size != static_cast<int32_t>(sizeof(RowBatch))) {
      return "a cost function has no kernels of this version that evaluate "
             "rows (CERES_EXT_COST_FUNCTION)";
    }
  }
  return HasPriorOfHost() ? "a marginal prior has a manifold that is on the "
                            "host alone"
                          : "";
}

bool ModelWindows::HasPriorOfHost() const {
  const auto& all = batch_->problem.residuals();
  for (size_t r = 0; r < all.size(); ++r) {
    for (int64_t k = 0; model_of_[r] == kPriors && k < all[r].num_blocks; ++k) {
      const auto* const prior =
          dynamic_cast<const BlockMarginalPrior*>(all[r].cost_functions[k]);
      for (int b = 0; prior != nullptr && b < prior->num_blocks(); ++b) {
        for (const auto& part : prior->difference(b).parts()) {
          if (part.kind == internal::BlockDifference::Kind::kManifold) {
            return true;
          }
        }
      }
    }
  }
  return false;
}

// With the entries of cells of an eliminated block that has as many rows as
// others, S of blocks that are too wide to be eliminated, and the derivatives
// of rows of a device; pieces take what their problems need.
int64_t ModelWindows::NumBytes(int64_t begin, int64_t end) const {
  const auto& parameters = batch_->problem.parameters();
  const auto& residuals = batch_->problem.residuals();
  int64_t num_bytes = 1024 * (end - begin);
  for (size_t a = 0; a < parameters.size(); ++a) {
    const int64_t* const of_array = batch_->parameter_begin[a];
    num_bytes += (of_array[end] - of_array[begin]) *
                 (128 + 8 * parameters[a].size * (3 + parameters[a].size));
  }
  for (int64_t i = begin; i < end; ++i) {
    int64_t num_columns = 0;
    for (size_t a = 0; a < parameters.size(); ++a) {
      const int64_t* const of_array = batch_->parameter_begin[a];
      num_columns += parameters[a].size > kMaxEliminatedColumns
                         ? parameters[a].size * (of_array[i + 1] - of_array[i])
                         : 0;
    }
    num_bytes += int64_t{sizeof(double)} *
                 ModelSchurSize(static_cast<int>(
                     std::min<int64_t>(num_columns, kMaxModelColumns)));
  }
  for (size_t r = 0; r < residuals.size(); ++r) {
    const int64_t* const of_array = batch_->residual_begin[r];
    const auto num_slots = static_cast<int64_t>(residuals[r].blocks.size());
    int64_t of_row = residuals[r].constants_bytes + 32 +
                     num_slots * (16 + 8 * (num_slots + 1));
    if (model_of_[r] >= 0) {
      of_row += int64_t{8} * models_[model_of_[r]]->num_residuals *
                (num_columns_[model_of_[r]] + 2);
    }
    num_bytes += (of_array[end] - of_array[begin]) * of_row;
  }
  return num_bytes;
}

}  // namespace ceres_ext
