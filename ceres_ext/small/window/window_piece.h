// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Windows of a batch that are packed, sent and solved together (small/kind.h).

#ifndef CERES_EXT_SMALL_WINDOW_WINDOW_PIECE_H_
#define CERES_EXT_SMALL_WINDOW_WINDOW_PIECE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ceres_ext/base/machines.h"
#include "ceres_ext/base/num_bytes.h"
#include "ceres_ext/small/kind.h"
#include "ceres_ext/small/window/window_arena.h"
#include "ceres_ext/small/window/window_bounds.h"
#include "ceres_ext/small/window/window_launcher.h"
#include "ceres_ext/small/window/window_packer.h"

namespace ceres_ext {

class WindowPiece final : public SmallPiece {
 public:
  using SmallPiece::SmallPiece;

  SmallBytes SetCapacity(const WindowCapacity& capacity) override;
  std::unique_ptr<SmallWorkspace> MakeWorkspace() const override;
  bool PacksOnHost() const override { return true; }
  ReducedSize SizeOf(int64_t i) const override;
  const char* plural() const override { return "windows"; }
  kernels::Status ReserveOnDevice(DeviceMachine* machine) override;
  kernels::Status Launch(const unsigned char* inputs,
                         unsigned char* outputs,
                         const int32_t* stop,
                         bool may_share,
                         DeviceMachine* machine) override;
  void LeaveDevice() override { launcher_.reset(); }

 private:
  struct Workspace : SmallWorkspace {
    WindowPacker::Scratch scratch;
    std::vector<double> memory;
    int64_t num_bytes() const override { return NumBytesOf(memory); }
  };
  void SetKind(SmallKind* kind) override;
  // Whatever Pack can read is a window.
  std::string WhyNot(int64_t /*i*/) override { return ""; }
  void Measure() override;
  std::string TryPack(int64_t i, SmallWorkspace* workspace) override;
  void TrySolve(int64_t i, SmallWorkspace* workspace) override;
  const char* WhyNotSolved(int64_t i) const override;
  const TrustRegion& RegionOf(int64_t i) const override {
    return ResultOf(i)->region;
  }
  double FixedCostOf(int64_t i) const override { return packed(i).fixed_cost; }
  void Unpack(int64_t i) const override {
    packer_->Unpack(i, packed(i), OutputOf(i));
  }

  const PackedWindow& packed(int64_t i) const { return packed_[i - begin_]; }
  unsigned char* OutputOf(int64_t i) const {
    return outputs_ + packed(i).record.output_begin;
  }
  WindowResult* ResultOf(int64_t i) const {
    return reinterpret_cast<WindowResult*>(OutputOf(i));
  }

  WindowPacker* packer_ = nullptr;
  std::vector<PackedWindow> packed_;
  std::unique_ptr<WindowBounds> bounds_;  // null without a capacity
  std::unique_ptr<WindowLauncher<DeviceMachine>> launcher_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_SMALL_WINDOW_WINDOW_PIECE_H_
