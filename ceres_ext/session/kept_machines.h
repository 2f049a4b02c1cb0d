// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Resources that consecutive sessions share: host threads, machines with the
// device memory of the last one, and the index of its observations. Not thread
// safe. To be cleared after a session that failed, which may have left a device
// in any state.

#ifndef CERES_EXT_SESSION_KEPT_MACHINES_H_
#define CERES_EXT_SESSION_KEPT_MACHINES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "ceres_ext/base/machines.h"
#include "ceres_ext/blocks/machine_problem.h"
#include "ceres_ext/options.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/host_context.h"

namespace ceres_ext {

// Page-locked memory of the host, so that copies are queued. None without CUDA.
template <typename Machine>
class LockedMemory {
 public:
  // Makes room for as many bytes; what was there may be lost.
  kernels::Status Reserve([[maybe_unused]] int64_t num_bytes) {
    if constexpr (!kIsHost<Machine>) {
      if (num_bytes > num_bytes_) {
        num_bytes_ = 0;
        data_.reset();
        CERES_EXT_RETURN_IF_ERROR(
            kernels::AllocatePageLocked(num_bytes, &data_));
        num_bytes_ = num_bytes;
      }
    }
    return {};
  }
  // CUDA has freed it.
  void Forget() {
    if constexpr (!kIsHost<Machine>) {
      static_cast<void>(data_.release());
    }
    num_bytes_ = 0;
  }
  unsigned char* data() const {
    if constexpr (kIsHost<Machine>) {
      return nullptr;
    } else {
      return static_cast<unsigned char*>(data_.get());
    }
  }

 private:
  std::conditional_t<kIsHost<Machine>, NoDevice, kernels::PageLockedBuffer>
      data_;
  int64_t num_bytes_ = 0;
};

// Memory of the host that a session leaves for the next.
class KeptMemory {
 public:
  virtual ~KeptMemory() = default;
  virtual int64_t num_bytes() const = 0;
};

// A machine, and the index that it has made of observations. The machine goes
// last.
template <typename Machine>
struct KeptMachine {
  KeptMachine() = default;
  KeptMachine(const KeptMachine&) = delete;
  KeptMachine& operator=(const KeptMachine&) = delete;
  // A device may have been reset since.
  ~KeptMachine() {
    [[maybe_unused]] const KeepCurrentDevice<Machine> keep;
    if constexpr (!kIsHost<Machine>) {
      if (machine != nullptr) {
        machine->ForgetIfLost();
        if (!machine->context()->IsAlive()) {
          locked_inputs.Forget();
          locked_outputs.Forget();
        }
      }
    }
    index = {};
    locked_inputs = {};
    locked_outputs = {};
    machine.reset();
  }

  // "host, 16 threads", "NVIDIA H200 (CUDA device 0)"
  std::string Name() const;
  // True if what was made on it can still be used: user code may have reset or
  // broken a device.
  bool IsAlive() const {
    [[maybe_unused]] const KeepCurrentDevice<Machine> keep;
    if constexpr (!kIsHost<Machine>) {
      return machine->context()->IsAlive();
    }
    return true;
  }

  // If true, freed memory stays with the device for the next request of as many
  // bytes.
  void KeepMemory([[maybe_unused]] bool keep) {
    if constexpr (!kIsHost<Machine>) {
      machine->context()->KeepMemory(keep);
    }
  }

  // The inputs that it was made for.
  Options options;
  int num_threads = 0;
  // Threads for what is put in order on the host.
  kernels::HostContext* host_context = nullptr;
  std::unique_ptr<Machine> machine;
  KeptIndex<Machine> index;
  // Copies of a batch's arrays.
  LockedMemory<Machine> locked_inputs;
  LockedMemory<Machine> locked_outputs;
};

class KeptMachines {
 public:
  using Host = KeptMachine<kernels::HostMachine>;
  using Device = KeptMachine<DeviceMachine>;

  // The host, and its threads.
  std::shared_ptr<Host> GetHost(int num_threads);
  kernels::HostContext* host_context(int num_threads) {
    return GetHost(num_threads)->machine->context();
  }
  // The device of the options. kUnsupported where the build or the computer has
  // no CUDA.
  kernels::Status GetDevice(const Options& options,
                            int num_threads,
                            std::shared_ptr<Device>* device);
  // Number i, from 0 on, of the same device with other streams, for work beside
  // that of the first.
  kernels::Status GetOtherDevice(const Options& options,
                                 int num_threads,
                                 size_t i,
                                 std::shared_ptr<Device>* device);

  void Clear() {
    host_.reset();
    ClearDevice();
  }
  void ClearDevice() {
    other_devices_.clear();
    device_.reset();
  }
  // Frees what idle machines do not keep: the index, a device that is not
  // alive, works on a stream of the caller's or has a limit of memory, of its
  // memory all but max_bytes, and the host's if there is more of it.
  void Rest(int64_t max_bytes);
  // Small problems have it (small/lane.h), or it is null.
  std::unique_ptr<KeptMemory> of_small;
  // True if there may be a next session.
  bool is_for_several = false;

  // The number of the device; kNoDevice: there is none.
  static constexpr int kNoDevice = -1;
  int device_number() const {
    return device_ == nullptr ? kNoDevice : device_->options.cuda_device;
  }

 private:
  std::shared_ptr<Host> host_;
  std::shared_ptr<Device> device_;
  std::vector<std::shared_ptr<Device>> other_devices_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_SESSION_KEPT_MACHINES_H_
