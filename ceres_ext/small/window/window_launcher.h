// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Launches windows on a device. Windows of one kind are a group with one
// launch, whose blocks take them from a queue.

#ifndef CERES_EXT_SMALL_WINDOW_WINDOW_LAUNCHER_H_
#define CERES_EXT_SMALL_WINDOW_WINDOW_LAUNCHER_H_

#include <cstdint>
#include <vector>

#include "ceres_ext/base/machines.h"
#include "ceres_ext/small/window/window.h"
#include "ceres_ext/small/window/window_arena.h"
#include "ceres_ext/small/window/window_bounds.h"
#include "ceres_ext/small/window/window_cuda.h"
#include "ceres_ext/small/window/window_packer.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/model/robust_loss.h"

namespace ceres_ext {

// A template, so that a build without CUDA does not compile its body.
template <typename Machine>
class WindowLauncher {
 public:
  explicit WindowLauncher(Machine* machine) : machine_(machine) {}

  // Allocates all memory that windows within the bounds need beside their
  // inputs and outputs.
  kernels::Status Reserve(const WindowBounds& bounds);
  // Queues the solution of the windows. *params has the options, inputs and
  // outputs. may_share: several blocks may solve a window if there are few.
  kernels::Status Launch(const std::vector<const PackedWindow*>& windows,
                         const std::vector<kernels::RobustLoss>& losses,
                         bool may_share,
                         SolveWindowsParams* params);

 private:
  // The windows of one launch. They have the same kind, the same number of
  // threads per block, and S in the same memory.
  struct Group : WindowGroup {
    WindowKind kind;
    WindowKernel kernel = nullptr;
    bool has_schur = false;
    std::vector<const PackedWindow*> windows;
    WindowGrid grid;
  };

  std::vector<Group> MakeGroups(const std::vector<const PackedWindow*>& windows,
                                bool may_share) const;
  // Maximum scratch of windows that several blocks share, in doubles: what
  // Reserve has taken, otherwise 512 MB or a quarter of the machine's limit.
  int64_t MaxSharedScratch() const;

  template <typename T>
  using Buffer = typename Machine::template Buffer<T>;
  Machine* const machine_;
  Buffer<kernels::RobustLoss> losses_;
  Buffer<WindowRecord> records_;
  int64_t reserved_scratch_ = 0;  // in doubles; 0 without Reserve
  Buffer<double> scratch_;
  Buffer<int32_t> queues_;
};

extern template class WindowLauncher<DeviceMachine>;

}  // namespace ceres_ext

#endif  // CERES_EXT_SMALL_WINDOW_WINDOW_LAUNCHER_H_
