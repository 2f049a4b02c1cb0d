// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Machines that solves of this process have left for the next: threads of the
// host, a stream, page-locked memory and small buffers of a device. Making them
// takes as long as a solve of a few thousand residual blocks.
//
//   BorrowedMachines machines(options);
//   machines->GetDevice(...);
//   machines.Discard();  // after a failure; else they are given back

#ifndef CERES_EXT_SESSION_IDLE_MACHINES_H_
#define CERES_EXT_SESSION_IDLE_MACHINES_H_

#include <cstdint>
#include <memory>

#include "ceres_ext/options.h"
#include "ceres_ext/session/kept_machines.h"

namespace ceres_ext {

// Thread safety: each object is used by one thread at a time; machines change
// hands under a lock.
class BorrowedMachines {
 public:
  // Machines of one device that were given back; what is kept of each device.
  static constexpr int kMostIdle = 4;
  static constexpr int64_t kMostIdleBytes = int64_t{64} << 20;

  // Borrows the machines of the options' device that were given back last, or
  // new ones if none are idle or the process was forked. With a limit of memory
  // none stay idle: it is the process's.
  explicit BorrowedMachines(const Options& options);
  // Returns them, except devices with a memory limit or with a caller's stream,
  // and at most kMostIdleBytes of memory.
  ~BorrowedMachines();
  BorrowedMachines(const BorrowedMachines&) = delete;
  BorrowedMachines& operator=(const BorrowedMachines&) = delete;

  KeptMachines* get() const { return machines_.get(); }
  KeptMachines* operator->() const { return machines_.get(); }
  // They go. A failure may have left a device in any state.
  void Discard() { machines_->Clear(); }

  // Destroys those that are idle now.
  static void ReleaseIdle();

 private:
  std::unique_ptr<KeptMachines> machines_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_SESSION_IDLE_MACHINES_H_
