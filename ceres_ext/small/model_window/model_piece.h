// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Model windows of a batch that are sent and solved together (small/kind.h).

#ifndef CERES_EXT_SMALL_MODEL_WINDOW_MODEL_PIECE_H_
#define CERES_EXT_SMALL_MODEL_WINDOW_MODEL_PIECE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ceres_ext/base/machines.h"
#include "ceres_ext/base/num_bytes.h"
#include "ceres_ext/batchable_cost_function.h"
#include "ceres_ext/small/kind.h"
#include "ceres_ext/small/model_window/model_host.h"
#include "ceres_ext/small/model_window/model_launcher.h"
#include "ceres_ext/small/model_window/model_plan.h"
#include "ceres_ext/small/model_window/model_window.h"
#include "ceres_ext/small/model_window/model_windows.h"

namespace ceres_ext {

class ModelPiece final : public SmallPiece {
 public:
  using SmallPiece::SmallPiece;

  // A WindowSolver does not have them.
  SmallBytes SetCapacity(const WindowCapacity& /*capacity*/) override {
    return {};
  }
  std::unique_ptr<SmallWorkspace> MakeWorkspace() const override {
    return std::make_unique<Workspace>();
  }
  bool PacksOnHost() const override { return true; }
  ReducedSize SizeOf(int64_t i) const override;
  const char* plural() const override { return "windows of models"; }
  // A launch for each model and one that advances the windows, iteration by
  // iteration. Waits if there may be many of these.
  kernels::Status Launch(const unsigned char* inputs,
                         unsigned char* outputs,
                         const int32_t* stop,
                         bool may_share,
                         DeviceMachine* machine) override;
  void LeaveDevice() override { launcher_.reset(); }

 private:
  struct Workspace : SmallWorkspace {
    std::vector<double> memory;
    int64_t num_bytes() const override { return NumBytesOf(memory); }
  };
  // Places in the inputs of what all rows of a model have.
  struct Rows {
    int64_t num_rows = 0;
    int64_t blocks = 0;
    int64_t constants = 0;
    int64_t loss_id = 0;
    int64_t weights = 0;
  };
  struct One {
    ModelPlan plan;
    ModelWindowRecord record;
  };

  void SetKind(SmallKind* kind) override;
  std::string WhyNot(int64_t i) override {
    return PlanModelWindow(*windows_, i, &one(i).plan);
  }
  void Measure() override;
  std::string TryPack(int64_t i, SmallWorkspace* workspace) override;
  void TrySolve(int64_t i, SmallWorkspace* workspace) override;
  const char* WhyNotSolved(int64_t i) const override;
  const TrustRegion& RegionOf(int64_t i) const override {
    return ResultOf(i)->region;
  }
  double FixedCostOf(int64_t i) const override {
    return one(i).plan.fixed_cost;
  }
  void TakeCovariance(int64_t i, BlockCovariance* covariance) const override;
  void Unpack(int64_t i) const override;

  One& one(int64_t i) { return ones_[i - begin_]; }
  const One& one(int64_t i) const { return ones_[i - begin_]; }
  ModelResult* ResultOf(int64_t i) const {
    return reinterpret_cast<ModelResult*>(outputs_ +
                                          one(i).record.output_begin);
  }
  const ModelCounts& counts_of(int64_t i) const { return one(i).record.counts; }
  void PackRows(const One& window);
  // The pointers are of the machine that evaluates.
  RowBatch RowsOf(int m,
                  int64_t begin,
                  int64_t end,
                  const kernels::RobustLoss* losses,
                  const unsigned char* inputs,
                  const unsigned char* outputs) const;

  const ModelWindows* windows_ = nullptr;
  std::vector<One> ones_;
  Rows rows_[kMaxModels];
  std::unique_ptr<ModelLauncher<DeviceMachine>> launcher_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_SMALL_MODEL_WINDOW_MODEL_PIECE_H_
