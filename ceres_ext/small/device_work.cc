// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/small/device_work.h"

#include <vector>

#include "cuda_kernels/machine/cuda_queue.h"

namespace ceres_ext {

using kernels::Status;

template <typename Machine>
WorkOnMachine<Machine>::~WorkOnMachine() {
  if constexpr (!kIsHost<Machine>) {
    // This call makes the device current.
    machine_->ForgetIfLost();
    if (!machine_->context()->IsAlive()) {
      flags_.events.Forget();
    }
  }
}

template <typename Machine>
Status WorkOnMachine<Machine>::Setup() {
  if constexpr (!kIsHost<Machine>) {
    if (flags_.stop.data() != nullptr) {
      return {};
    }
    CERES_EXT_RETURN_IF_ERROR(flags_.events.Setup(1));
    CERES_EXT_RETURN_IF_ERROR(
        machine_->Upload(std::vector<int32_t>{1}, &flags_.one));
    CERES_EXT_RETURN_IF_ERROR(machine_->AllocateResult(&flags_.is_done));
    return machine_->AllocateResult(&flags_.stop);
  }
  return {kernels::StatusCode::kUnsupported, "this build has no CUDA"};
}

template <typename Machine>
Status WorkOnMachine<Machine>::Reserve(const SmallBytes& bytes) {
  const CurrentMachine<Machine> current(machine_);
  CERES_EXT_RETURN_IF_ERROR(current.status());
  CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(bytes.inputs, &inputs_));
  CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(bytes.outputs, &outputs_));
  return Setup();
}

template <typename Machine>
Status WorkOnMachine<Machine>::Start(SmallPiece* piece,
                                     bool is_page_locked,
                                     bool may_share) {
  piece_ = piece;
  is_page_locked_ = is_page_locked;
  Status status = Queue(may_share);
  if (!status.ok()) {
    // Work that was queued before uses memory of the piece.
    static_cast<void>(machine_->Synchronize());
  }
  return status;
}

template <typename Machine>
Status WorkOnMachine<Machine>::Queue([[maybe_unused]] bool may_share) {
  CERES_EXT_RETURN_IF_ERROR(Reserve(piece_->bytes()));
  if constexpr (!kIsHost<Machine>) {
    const SmallBytes& bytes = piece_->bytes();
    const CurrentMachine<Machine> current(machine_);
    CERES_EXT_RETURN_IF_ERROR(current.status());
    CERES_EXT_RETURN_IF_ERROR(
        is_page_locked_
            ? kernels::QueueCopyToDevice(inputs_.data(),
                                         piece_->inputs(),
                                         bytes.inputs,
                                         machine_->stream())
            : machine_->Upload(bytes.inputs, piece_->inputs(), inputs_.data()));
    // All bytes are copied to the host, and not every one is written: problems
    // of other kinds, blocks that do not vary, and gaps between arrays.
    CERES_EXT_RETURN_IF_ERROR(
        machine_->SetZero(bytes.outputs, outputs_.data()));
    __atomic_store_n(flags_.stop.data(), 0, __ATOMIC_RELAXED);
    CERES_EXT_RETURN_IF_ERROR(piece_->Launch(inputs_.data(),
                                             outputs_.data(),
                                             flags_.stop.data(),
                                             may_share,
                                             machine_));
    if (is_page_locked_) {
      CERES_EXT_RETURN_IF_ERROR(machine_->context()->QueueCopyToHost(
          piece_->outputs(), outputs_.data(), bytes.outputs));
    }
    __atomic_store_n(flags_.is_done.data(), 0, __ATOMIC_RELAXED);
    CERES_EXT_RETURN_IF_ERROR(machine_->context()->QueueCopyToHost(
        flags_.is_done.data(), flags_.one.data(), sizeof(int32_t)));
    return flags_.events.Record(0, machine_->stream());
  }
  return {};
}

template <typename Machine>
bool WorkOnMachine<Machine>::IsDone() const {
  if constexpr (!kIsHost<Machine>) {
    const KeepCurrentDevice<Machine> keep;
    return __atomic_load_n(flags_.is_done.data(), __ATOMIC_ACQUIRE) != 0 ||
           !machine_->context()->IsAlive();
  }
  return true;
}

template <typename Machine>
Status WorkOnMachine<Machine>::Wait() {
  if constexpr (!kIsHost<Machine>) {
    const CurrentMachine<Machine> current(machine_);
    CERES_EXT_RETURN_IF_ERROR(current.status());
    CERES_EXT_RETURN_IF_ERROR(flags_.events.Wait(0));
    if (!is_page_locked_) {
      return machine_->Download(
          piece_->bytes().outputs, outputs_.data(), piece_->outputs());
    }
  }
  return {};
}

template <typename Machine>
void WorkOnMachine<Machine>::Stop() {
  if constexpr (!kIsHost<Machine>) {
    if (flags_.stop.data() != nullptr) {
      __atomic_store_n(flags_.stop.data(), 1, __ATOMIC_RELAXED);
    }
  }
}

template class WorkOnMachine<DeviceMachine>;

}  // namespace ceres_ext
