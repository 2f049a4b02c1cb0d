// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The problems of a batch that are fits (small/fit/fit.h). Rows are checked
// where they are evaluated.

#ifndef CERES_EXT_SMALL_FIT_FIT_BATCH_H_
#define CERES_EXT_SMALL_FIT_FIT_BATCH_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ceres_ext/batch.h"
#include "ceres_ext/batchable_cost_function.h"
#include "ceres_ext/small/fit/fit.h"
#include "ceres_ext/small/kind.h"
#include "ceres_ext/small/manifold_table.h"
#include "cuda_kernels/model/robust_loss.h"

namespace ceres_ext {

class FitBatch final : public SmallKind {
 public:
  // *batch is valid and outlives the object. Throws std::bad_alloc.
  explicit FitBatch(const ProblemBatch* batch);

  SolvedAsType solved_as() const override { return SOLVED_AS_FIT; }
  // True if residual blocks have a model that is not BAL's.
  bool KnowsRows() const override {
    return model_ != nullptr && model_->kind == BatchModelKind::kOther;
  }
  const char* plural() const override { return "fits"; }
  std::string WhyNotOnDevice() const override {
    return HasKernels()
               ? ""
               : "the cost function has no kernels of this version for "
                 "dense problems (CERES_EXT_COST_FUNCTION)";
  }
  // Buffers of all pieces stay with the process
  // (BorrowedMachines::kMostIdleBytes). Memory of the size of most pieces is
  // allocated once for all.
  PieceSize piece_size() const override {
    constexpr int64_t kBytes = int64_t{8} << 20;
    return {kBytes, 8, {kBytes + (int64_t{1} << 20), kBytes / 2}, 1};
  }
  // On a device, apart from what does not depend on the number of problems.
  int64_t NumBytes(int64_t begin, int64_t end) const override;

  // Describes problem i, except for record->number. Returns the reason if it is
  // not a fit, or an empty string. Any thread may call it.
  std::string Read(int64_t i, FitRecord* record) const;

  const ProblemBatch& batch() const { return *batch_; }
  const BatchModel& model() const { return *model_; }
  int num_slots() const { return model_->num_parameter_blocks; }
  int slot_size(int s) const { return model_->parameter_block_sizes[s]; }
  // The parameter array of a slot, and the arrays of residual blocks.
  int array_of(int s) const { return arrays_[s]; }
  const std::vector<int>& residuals() const { return residuals_; }
  // Bit s: slot s varies in some fit.
  uint32_t may_vary() const { return may_vary_; }
  // Rows of problem i, active or not.
  int64_t NumRows(int64_t i) const;

  const std::vector<kernels::RobustLoss>& losses() const { return losses_; }
  // The first loss of the chain of residuals()[e]; -1 for none.
  int32_t loss(int e) const;
  const ManifoldTable& manifolds() const { return manifolds_; }
  FitManifold ManifoldOf(const FitRecord& record, int s) const {
    const int32_t* const begin =
        manifolds_.factor_begin().data() + record.manifold[s];
    return {manifolds_.factors().data() + begin[0],
            begin[1] - begin[0],
            slot_size(s)};
  }

 private:
  const ArrayProblem::Parameters& parameters(int array) const {
    return batch_->problem.parameters()[array];
  }
  // True if the model has kernels of this version.
  bool HasKernels() const;
  std::string ReadResiduals();
  std::string CheckSlots() const;

  const ProblemBatch* batch_;
  const BatchModel* model_ = nullptr;
  std::vector<int> arrays_;
  std::vector<int> residuals_;
  uint32_t may_vary_ = 0;
  std::vector<kernels::RobustLoss> losses_;
  std::vector<uint8_t> loss_id_;
  ManifoldTable manifolds_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_SMALL_FIT_FIT_BATCH_H_
