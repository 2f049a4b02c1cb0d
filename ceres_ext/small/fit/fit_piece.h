// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Fits of a batch that are sent and solved together (small/kind.h). They are
// not packed: their ranges of the caller's arrays are copied as they are.

#ifndef CERES_EXT_SMALL_FIT_FIT_PIECE_H_
#define CERES_EXT_SMALL_FIT_FIT_PIECE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "ceres_ext/base/machines.h"
#include "ceres_ext/small/fit/fit.h"
#include "ceres_ext/small/fit/fit_batch.h"
#include "ceres_ext/small/fit/fit_host.h"
#include "ceres_ext/small/kind.h"

namespace ceres_ext {

class FitPiece final : public SmallPiece {
 public:
  using SmallPiece::SmallPiece;

  int64_t num_copies() const override {
    return static_cast<int64_t>(tasks_.size());
  }
  // Copies a part of the ranges to the inputs.
  void Copy(int64_t task) override;
  SmallBytes SetCapacity(const WindowCapacity& capacity) override;
  std::unique_ptr<SmallWorkspace> MakeWorkspace() const override {
    return std::make_unique<FitWorkspace>();
  }
  // The host reads the caller's arrays.
  bool PacksOnHost() const override { return false; }
  ReducedSize SizeOf(int64_t i) const override;
  const char* plural() const override { return "problems without points"; }
  // A launch of each kernel.
  kernels::Status Launch(const unsigned char* inputs,
                         unsigned char* outputs,
                         const int32_t* stop,
                         bool may_share,
                         DeviceMachine* machine) override;

 private:
  // A range of an array, and its place in the inputs.
  struct Range {
    const void* from = nullptr;  // null: There is no array.
    int64_t num_bytes = 0;
    int64_t at = 0;
  };
  struct Array {  // of parameters
    int array = -1;
    Range values;
    Range begin;
    Range is_active;
    Range lower;
    Range upper;
    int64_t result_at = 0;  // in the outputs
  };
  struct Rows {
    Range constants;
    Range block[kMaxFitSlots];
    Range weights;
    Range is_active;
    Range begin;
  };
  struct Task {
    int64_t to = 0;  // in the inputs
    const unsigned char* from = nullptr;
    int64_t num_bytes = 0;
  };

  void SetKind(SmallKind* kind) override;
  std::string WhyNot(int64_t i) override;
  // Lists the ranges of arrays that the fits need.
  void Measure() override;
  void TrySolve(int64_t i, SmallWorkspace* workspace) override;
  const char* WhyNotSolved(int64_t i) const override;
  const TrustRegion& RegionOf(int64_t i) const override {
    return ResultOf(i)->region;
  }
  void Unpack(int64_t i) const override;
  const FitRecord& record(int64_t i) const { return records_[i - begin_]; }

  // The range of elements [first, last) of an array.
  template <typename T>
  Range Take(const T* array, int64_t first, int64_t last, int64_t size = 1);
  void TakeArrays();
  const Array& ArrayOf(int s) const;
  // `place` returns where a range is.
  template <typename Place>
  FitParams MakeParams(const Place& place, unsigned char* outputs) const;
  FitResult* ResultOf(int64_t i) const {
    return reinterpret_cast<FitResult*>(outputs_) + (i - begin_);
  }

  const FitBatch* fits_ = nullptr;
  std::vector<FitRecord> records_;                 // of all problems
  std::vector<FitRecord> listed_[kNumFitKernels];  // of each kernel
  std::vector<Array> arrays_;
  Rows rows_[kMaxFitArrays];
  Range losses_;
  Range factors_;
  Range factor_begin_;
  Range records_of_[kNumFitKernels];
  std::vector<Range> ranges_;
  std::vector<Task> tasks_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_SMALL_FIT_FIT_PIECE_H_
