// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/small/fit/fit_batch.h"

#include <algorithm>

#include "ceres_ext/blocks/loss_model.h"
#include "ceres_ext/import/array_rows.h"
#include "ceres_ext/small/kind.h"
#include "ceres_ext/small/window/window_rows.h"

namespace ceres_ext {

using Parameters = ArrayProblem::Parameters;
using Residuals = ArrayProblem::Residuals;

FitBatch::FitBatch(const ProblemBatch* batch) : batch_(batch) {
  reason_ = ReadResiduals();
  if (reason_.empty()) {
    reason_ = CheckSlots();
  }
  if (!reason_.empty()) {
    return;
  }
  for (int s = 0; s < num_slots(); ++s) {
    manifolds_.Read(parameters(arrays_[s]));
  }
  may_vary_ = (1U << num_slots()) - 1;
  if (HasKernels()) {
    may_vary_ = model_->GetForm(FormKind::kFits)->varying;
  } else if (model_->kind != BatchModelKind::kOther) {
    may_vary_ = 1;  // As the form of this library; points are of windows.
  }
}

std::string FitBatch::ReadResiduals() {
  const auto& all = batch_->problem.residuals();
  std::vector<const ceres::LossFunction*> losses;
  for (size_t r = 0; r < all.size(); ++r) {
    const Residuals& residuals = all[r];
    if (residuals.num_blocks == 0) {
      continue;
    }
    const BatchModel* model = nullptr;
    const std::string reason = ReadModel(batch_->problem, residuals, &model);
    if (!reason.empty()) {
      return reason;
    }
    if (model_ != nullptr && model != model_) {
      return "there are several models of residual blocks";
    }
    model_ = model;
    for (size_t s = 0; s < residuals.blocks.size(); ++s) {
      const int array = residuals.blocks[s].parameters;
      if (s == arrays_.size()) {
        arrays_.push_back(array);
      } else if (arrays_[s] != array) {
        return "residual blocks have parameter blocks of different arrays";
      }
    }
    residuals_.push_back(static_cast<int>(r));
    losses.push_back(residuals.loss);
  }
  if (residuals_.empty()) {
    return "there are no residual blocks";
  }
  if (residuals_.size() > kMaxFitArrays) {
    return "there are more than " + std::to_string(kMaxFitArrays) +
           " arrays of residual blocks";
  }
  std::vector<double> weights;
  if (FindChains(losses, &losses_, &loss_id_, &weights) != nullptr ||
      !weights.empty()) {
    return "a loss function is user-defined";
  }
  return "";
}

std::string FitBatch::CheckSlots() const {
  if (num_slots() > kMaxFitSlots) {
    return "a residual block has more than " + std::to_string(kMaxFitSlots) +
           " parameter blocks";
  }
  return "";
}

bool FitBatch::HasKernels() const {
  const kernels::ModelForm* const form = model_->GetForm(FormKind::kFits);
  return form != nullptr && form->version == kBatchModelVersion &&
         form->params_size == static_cast<int32_t>(sizeof(FitParams));
}

int64_t FitBatch::NumRows(int64_t i) const {
  int64_t num_rows = 0;
  for (const int r : residuals_) {
    num_rows += batch_->residual_begin[r][i + 1] - batch_->residual_begin[r][i];
  }
  return num_rows;
}

int64_t FitBatch::NumBytes(int64_t begin, int64_t end) const {
  // Values come back too. Beside them: flags, and where a problem begins.
  int64_t num_bytes =
      (end - begin) *
      static_cast<int64_t>(sizeof(FitResult) + sizeof(FitRecord) +
                           8 * (arrays_.size() + residuals_.size()));
  for (int s = 0; s < num_slots(); ++s) {
    const int64_t* const of_array = batch_->parameter_begin[arrays_[s]];
    const int64_t values = (may_vary_ >> s & 1) != 0 ? 16 : 8;
    const Parameters& p = parameters(arrays_[s]);
    const int64_t bounds = (p.lower_bounds != nullptr ? 8 : 0) +
                           (p.upper_bounds != nullptr ? 8 : 0);
    num_bytes += (of_array[end] - of_array[begin]) *
                 ((values + bounds) * slot_size(s) + 1);
  }
  // Constants, indices, a weight and a flag.
  const int64_t of_row = model_->constants_bytes + 4 * num_slots() + 9;
  for (const int r : residuals_) {
    const int64_t* const of_array = batch_->residual_begin[r];
    num_bytes += (of_array[end] - of_array[begin]) * of_row;
  }
  return num_bytes;
}

int32_t FitBatch::loss(int e) const {
  return losses_.empty() || loss_id_[e] == kernels::kNoLoss ? -1 : loss_id_[e];
}

std::string FitBatch::Read(int64_t i, FitRecord* record) const {
  *record = FitRecord();
  // Constant blocks are numbered by 32 bits.
  constexpr int64_t kMostBlocks = int64_t{1} << 20;
  std::string bad_bounds = WhyBadBounds(*batch_, i);
  if (!bad_bounds.empty()) {
    return bad_bounds;
  }
  if (NumRows(i) > kMaxFitRows) {
    return "a dense problem has more than " + std::to_string(kMaxFitRows) +
           " residual blocks";
  }
  int num_columns = 0;
  for (int s = 0; s < num_slots(); ++s) {
    const int array = arrays_[s];
    const Parameters& p = parameters(array);
    const int64_t begin = batch_->parameter_begin[array][i];
    const int64_t end = batch_->parameter_begin[array][i + 1];
    if (end - begin > kMostBlocks) {
      return "there are more than " + std::to_string(kMostBlocks) +
             " parameter blocks";
    }
    bool all_are_constant = true;
    for (int64_t b = begin; b < end && all_are_constant; ++b) {
      all_are_constant = IsConstant(p, b);
    }
    if (all_are_constant) {
      continue;
    }
    if (end - begin > 1) {
      return "several blocks of a parameter array vary or may vary";
    }
    if ((may_vary_ >> s & 1) == 0) {
      return "parameter block " + std::to_string(s) +
             " of residual blocks varies, which the kernels of the cost "
             "function do not support";
    }
    for (int t = 0; t < s; ++t) {
      if (arrays_[t] == array) {
        return "a residual block has the same parameter block twice";
      }
    }
    record->manifold[s] = manifolds_.NumberOf(p, begin);
    if (record->manifold[s] == ManifoldTable::kUnknown) {
      return "a manifold is user-defined";
    }
    record->varying |= 1U << s;
    for (int j = 0; p.MayHaveBounds() && j < p.size; ++j) {
      record->is_bounded |= p.IsBounded(begin, j);
    }
    num_columns += slot_size(s);
  }
  if (num_columns == 0) {
    return "no residual block depends on a parameter block that varies";
  }
  if (num_columns > kMaxFitColumns) {
    return "more than " + std::to_string(kMaxFitColumns) +
           " values of parameter blocks vary";
  }
  return "";
}

}  // namespace ceres_ext
