// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Solves the windows of a piece on a device. Windows of one kind are a group
// with one launch, whose blocks take them from a queue.

#ifndef CERES_EXT_SMALL_WINDOW_DEVICE_WINDOWS_H_
#define CERES_EXT_SMALL_WINDOW_DEVICE_WINDOWS_H_

#include <cstdint>
#include <type_traits>
#include <vector>

#include "ceres_ext/base/machines.h"
#include "ceres_ext/small/queued_work.h"
#include "ceres_ext/small/window/window.h"
#include "ceres_ext/small/window/window_arena.h"
#include "ceres_ext/small/window/window_bounds.h"
#include "ceres_ext/small/window/window_cuda.h"
#include "ceres_ext/small/window/window_piece.h"
#include "ceres_ext/solver/trust_region.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/model/robust_loss.h"

namespace ceres_ext {

// A template, so that a build without CUDA does not compile its body; see
// DeviceWindows.
template <typename Machine>
class WindowsOnMachine {
 public:
  explicit WindowsOnMachine(Machine* machine)
      : machine_(machine), work_(machine) {}

  // Allocates all memory that windows within the bounds need.
  kernels::Status Reserve(const WindowBounds& bounds);

  // Sends the windows and queues their solution, without waiting for it. If the
  // piece has page-locked memory, the copy of the results is queued as well. If
  // it fails, nothing of it runs.
  // may_share: several blocks may solve a window if there are few. They would
  // take multiprocessors from other pieces.
  kernels::Status Start(const TrustRegionOptions& options,
                        WindowPiece* piece,
                        bool may_share = true);
  // True if they are solved or the device has failed, so that Wait does not
  // wait for the kernels.
  bool IsDone() const;
  // Waits for the solution and downloads it.
  kernels::Status Wait(WindowPiece* piece);
  // Ends each window after its current iteration. Any thread may call it after
  // Start.
  void Stop();

 private:
  // The windows of one launch. They have the same kind, the same number of
  // threads per block, and S in the same memory.
  struct Group : WindowGroup {
    WindowKind kind;
    WindowKernel kernel = nullptr;
    bool has_schur = false;
    std::vector<int64_t> windows;
    WindowGrid grid;
  };

  kernels::Status Queue(const TrustRegionOptions& options,
                        WindowPiece* piece,
                        bool may_share);
  std::vector<Group> MakeGroups(const WindowPiece& piece, bool may_share) const;

  // Maximum scratch of windows that several blocks share, in doubles: what
  // Reserve has taken, otherwise 512 MB or a quarter of the machine's limit.
  int64_t MaxSharedScratch() const;

  template <typename T>
  using Buffer = typename Machine::template Buffer<T>;
  Machine* const machine_;
  Buffer<kernels::RobustLoss> losses_;
  Buffer<WindowRecord> records_;
  Buffer<unsigned char> inputs_;
  Buffer<unsigned char> outputs_;
  int64_t reserved_scratch_ = 0;  // in doubles; 0 without Reserve
  Buffer<double> scratch_;
  Buffer<int32_t> queues_;
  std::conditional_t<kIsHost<Machine>, NoQueuedWork, QueuedWork<Machine>> work_;
};

using DeviceWindows = WindowsOnMachine<DeviceMachine>;
extern template class WindowsOnMachine<DeviceMachine>;

}  // namespace ceres_ext

#endif  // CERES_EXT_SMALL_WINDOW_DEVICE_WINDOWS_H_
