// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Work that a machine has queued: its end, and a flag that asks for it.
//
//   QueuedWork<Machine> work(machine);
//   Status status = work.Begin();
//   ...                              // queue it; kernels read work.stop()
//   if (status.ok()) status = work.End();
//   work.IsDone(); work.Wait();
#ifndef CERES_EXT_SMALL_QUEUED_WORK_H_
#define CERES_EXT_SMALL_QUEUED_WORK_H_

#include <cstdint>
#include <vector>

#include "ceres_ext/base/machines.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/cuda_context.h"

namespace ceres_ext {

// In its place in a build without CUDA.
struct NoQueuedWork {
  template <typename Machine>
  explicit NoQueuedWork(Machine* /*machine*/) {}
};

// Machine: a device.
template <typename Machine>
class QueuedWork {
 public:
  explicit QueuedWork(Machine* machine) : machine_(machine) {}

  // Nothing may be running. The device stays current.
  ~QueuedWork() {
    // This call makes the device current.
    machine_->ForgetIfLost();
    if (!machine_->context()->IsAlive()) {
      events_.Forget();
    }
  }
  QueuedWork(const QueuedWork&) = delete;
  QueuedWork& operator=(const QueuedWork&) = delete;

  // Allocates what the others need.
  kernels::Status Setup() {
    if (stop_.data() != nullptr) {
      return {};
    }
    CERES_EXT_RETURN_IF_ERROR(events_.Setup(1));
    CERES_EXT_RETURN_IF_ERROR(machine_->Upload(std::vector<int32_t>{1}, &one_));
    CERES_EXT_RETURN_IF_ERROR(machine_->AllocateResult(&is_done_));
    return machine_->AllocateResult(&stop_);
  }

  // Before the first of it is queued.
  kernels::Status Begin() {
    CERES_EXT_RETURN_IF_ERROR(Setup());
    __atomic_store_n(stop_.data(), 0, __ATOMIC_RELAXED);
    return {};
  }
  // Page-locked: not zero after Stop.
  const int32_t* stop() const { return stop_.data(); }

  // After the last of it.
  kernels::Status End() {
    __atomic_store_n(is_done_.data(), 0, __ATOMIC_RELAXED);
    CERES_EXT_RETURN_IF_ERROR(machine_->context()->QueueCopyToHost(
        is_done_.data(), one_.data(), sizeof(int32_t)));
    return events_.Record(0, machine_->stream());
  }

  // True if it has ended or the device has failed, so that Wait returns at
  // once.
  bool IsDone() const {
    const KeepCurrentDevice<Machine> keep;
    return __atomic_load_n(is_done_.data(), __ATOMIC_ACQUIRE) != 0 ||
           !machine_->context()->IsAlive();
  }
  // The device is current.
  kernels::Status Wait() { return events_.Wait(0); }
  // Any thread may call it after Begin.
  void Stop() { __atomic_store_n(stop_.data(), 1, __ATOMIC_RELAXED); }

 private:
  Machine* const machine_;
  // Page-locked flags. The host writes stop_. At the end the device copies one_
  // to is_done_.
  typename Machine::template Result<int32_t> stop_;
  typename Machine::template Result<int32_t> is_done_;
  typename Machine::template Buffer<int32_t> one_;
  kernels::CudaEvents events_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_SMALL_QUEUED_WORK_H_
