// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A piece on its way through a device: a copy of its inputs, the launches that
// solve it, a copy of its outputs, and a flag that ends it.

#ifndef CERES_EXT_SMALL_DEVICE_WORK_H_
#define CERES_EXT_SMALL_DEVICE_WORK_H_

#include <cstdint>
#include <type_traits>

#include "ceres_ext/base/machines.h"
#include "ceres_ext/small/kind.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/cuda_context.h"

namespace ceres_ext {

// A template, so that a build without CUDA does not compile its body; see
// DeviceWork.
template <typename Machine>
class WorkOnMachine {
 public:
  explicit WorkOnMachine(Machine* machine) : machine_(machine) {}
  // Nothing may be running. The device stays current.
  ~WorkOnMachine();
  WorkOnMachine(const WorkOnMachine&) = delete;
  WorkOnMachine& operator=(const WorkOnMachine&) = delete;

  // Allocates memory for pieces of so many bytes.
  kernels::Status Reserve(const SmallBytes& bytes);

  // Sends the piece, whose numbers are packed, and queues its solution, without
  // waiting for it. If its memory is page-locked, the copies are queued as
  // well. If it fails, nothing of it runs. may_share: several blocks may solve
  // a problem if there are few. They would take multiprocessors from other
  // pieces.
  kernels::Status Start(SmallPiece* piece, bool is_page_locked, bool may_share);
  // True if it has ended or the device has failed, so that Wait does not wait
  // for the kernels.
  bool IsDone() const;
  // Waits for the outputs.
  kernels::Status Wait();
  // Ends each problem after its current iteration. Any thread may call it after
  // Reserve.
  void Stop();

 private:
  kernels::Status Setup();
  kernels::Status Queue(bool may_share);

  template <typename T>
  using Buffer = typename Machine::template Buffer<T>;
  Machine* const machine_;
  SmallPiece* piece_ = nullptr;  // of Start
  bool is_page_locked_ = false;
  Buffer<unsigned char> inputs_;
  Buffer<unsigned char> outputs_;
  // Page-locked flags. The host writes stop_. At the end the device copies one_
  // to is_done_.
  struct Flags {
    typename Machine::template Result<int32_t> stop;
    typename Machine::template Result<int32_t> is_done;
    Buffer<int32_t> one;
    kernels::CudaEvents events;
  };
  std::conditional_t<kIsHost<Machine>, NoDevice, Flags> flags_;
};

using DeviceWork = WorkOnMachine<DeviceMachine>;
extern template class WorkOnMachine<DeviceMachine>;

}  // namespace ceres_ext

#endif  // CERES_EXT_SMALL_DEVICE_WORK_H_
