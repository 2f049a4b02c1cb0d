// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The problems of a batch that are model windows (model_window.h).

#ifndef CERES_EXT_SMALL_MODEL_WINDOW_MODEL_WINDOWS_H_
#define CERES_EXT_SMALL_MODEL_WINDOW_MODEL_WINDOWS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ceres_ext/batch.h"
#include "ceres_ext/batchable_cost_function.h"
#include "ceres_ext/small/kind.h"
#include "ceres_ext/small/manifold_table.h"
#include "cuda_kernels/model/robust_loss.h"

namespace ceres_ext {

class ModelWindows final : public SmallKind {
 public:
  // *batch is valid and outlives the object. Throws std::bad_alloc.
  explicit ModelWindows(const ProblemBatch* batch);

  SolvedAsType solved_as() const override { return SOLVED_AS_WINDOW; }
  bool KnowsRows() const override { return knows_rows_; }
  bool is_last_choice() const override { return true; }
  SmallLoop loop() const override { return SmallLoop::kAny; }
  const char* plural() const override { return "windows of models"; }
  std::string WhyNotOnDevice() const override;
  PieceSize piece_size() const override {
    return {int64_t{96} << 20, 4, {}, 2};
  }
  int64_t NumBytes(int64_t begin, int64_t end) const override;

  const ProblemBatch& batch() const { return *batch_; }
  const std::vector<const BatchModel*>& models() const { return models_; }
  // Columns of a row of a model, where all its blocks vary.
  int num_columns(int model) const { return num_columns_[model]; }
  // model_of an array of marginal priors (ceres_ext/marginal_prior.h).
  static constexpr int kPriors = -2;
  // The model of an array of residual blocks, or kPriors; -1: it is empty.
  int model_of(size_t residuals) const { return model_of_[residuals]; }
  // The first loss of its chain; kNoLoss: it has none.
  uint8_t loss_of(size_t residuals) const { return loss_of_[residuals]; }
  const std::vector<kernels::RobustLoss>& losses() const { return losses_; }
  const ManifoldTable& manifolds() const { return manifolds_; }

 private:
  std::string ReadResiduals();
  std::string ReadArray(const ArrayProblem::Residuals& residuals, int* model);
  // True if a marginal prior needs a manifold that is on the host alone.
  bool HasPriorOfHost() const;

  const ProblemBatch* batch_;
  bool knows_rows_ = false;
  std::vector<const BatchModel*> models_;
  std::vector<int> num_columns_;
  std::vector<int> model_of_;
  std::vector<uint8_t> loss_of_;
  std::vector<kernels::RobustLoss> losses_;
  ManifoldTable manifolds_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_SMALL_MODEL_WINDOW_MODEL_WINDOWS_H_
