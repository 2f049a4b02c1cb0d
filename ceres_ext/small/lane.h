// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A range of a batch on its way: its problems of each kind, their memory, and a
// part of a device. SmallQueue (queue.h) has several.

#ifndef CERES_EXT_SMALL_LANE_H_
#define CERES_EXT_SMALL_LANE_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ceres_ext/base/machines.h"
#include "ceres_ext/batch.h"
#include "ceres_ext/session/kept_machines.h"
#include "ceres_ext/small/device_work.h"
#include "ceres_ext/small/kind.h"
#include "ceres_ext/small/marginal.h"
#include "ceres_ext/solver/step_search.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/host_context.h"

namespace ceres_ext {

// Uninitialised bytes.
class Bytes {
 public:
  void Reserve(int64_t n) {
    if (n > size_) {
      data_.reset(new double[(n + 7) / 8]);
      size_ = n;
    }
  }
  unsigned char* data() {
    return reinterpret_cast<unsigned char*>(data_.get());
  }

 private:
  std::unique_ptr<double[]> data_;
  int64_t size_ = 0;
};

// The memory of a host thread, for each kind.
using SmallWorkspaces =
    std::array<std::unique_ptr<SmallWorkspace>, kNumSmallKinds>;

// The memory of all threads of the host, one problem after the other.
struct SmallMemory final : KeptMemory {
  std::vector<SmallWorkspaces> workspaces;
  std::vector<MarginalMemory> of_marginals;

  int64_t num_bytes() const override;
};
// The memory that the machines have kept, or new memory.
SmallMemory* MemoryOfSmall(KeptMachines* machines);

// Calls function(i, slot) for i in [0, n) on all threads.
template <typename Function>
void ForEach(kernels::HostContext* context,
             int64_t n,
             const Function& function) {
  // Few tasks if problems are many, and all threads have one if they are few.
  const int64_t per_task =
      std::clamp<int64_t>(n / (16 * context->num_threads()), 1, 64);
  context->ParallelFor(n, per_task, [&](int64_t begin, int64_t end, int slot) {
    for (int64_t e = begin; e < end; ++e) {
      function(e, slot);
    }
  });
}

class SmallLane {
 public:
  // The place of a problem: the host, the device, or neither.
  enum Where { kOfHost, kOfDevice, kRefused };

  // *options outlives the object.
  explicit SmallLane(const LoopOptions* options);
  ~SmallLane() { LeaveDevice(); }

  // All memory for submissions within the capacity is allocated by Use, or by
  // ReserveOnHost. Throws std::bad_alloc, as the others.
  void SetCapacity(const WindowCapacity& capacity);
  // Works on a device from now on. may_lock: its page-locked memory is of this
  // lane alone.
  kernels::Status Use(std::shared_ptr<KeptMachines::Device> device,
                      bool may_lock);
  void ReserveOnHost();
  SmallWorkspaces MakeWorkspaces() const;
  // Waits, and frees what the lane has on the device.
  void LeaveDevice();
  bool has_device() const { return device_ != nullptr; }

  // Finds the problems [begin, end) of the kinds. is_taken:
  // 1 for each problem that another lane has; null: none. may_leave: the host
  // may solve a kind that the device cannot.
  void Read(const SmallKinds& kinds,
            int64_t begin,
            int64_t end,
            const std::vector<uint8_t>* is_taken,
            bool may_leave,
            kernels::HostContext* context,
            BatchSummary* summary);
  // Returns what exceeds the capacity, if there is one, or an empty string.
  std::string WhyTooLarge() const;
  // Places the problems of the device, or of the host, in memory.
  void Place();
  // Packs them.
  void Pack(kernels::HostContext* context,
            std::vector<SmallWorkspaces>* workspaces);
  // Queues the problems of the device. may_share: as DeviceWork::Start.
  kernels::Status Start(bool may_share);
  bool IsRunning() const;
  // True if Wait does not wait for the device.
  bool IsDone() const;
  // Waits for the device.
  kernels::Status Wait();
  void Stop();
  // Moves the device's problems to memory of the host, where SolveOnHost packs
  // them again.
  void MoveToHost();
  // Forgets all problems.
  void Clear();

  // Any thread may call these, for different problems of numbers().
  void SolveOnHost(int64_t i, SmallWorkspaces* workspaces);
  void Finish(int64_t i);

  // The piece that has problem i, or null.
  SmallPiece* PieceOf(int64_t i) const;
  std::vector<int64_t> Numbers(Where where) const;
  // The device's problems end with this error; all do if it has no device.
  void Refuse(const std::string& error);
  const std::string& refusal() const { return refusal_; }
  // The reason why the host solves a kind although there is a device.
  const std::string& host_reason() const { return host_reason_; }
  // The problems of that kind in a sentence.
  const std::string& host_plural() const { return host_plural_; }

 private:
  struct Part {
    std::unique_ptr<SmallPiece> piece;
    SmallBytes capacity;
    Where where = kOfHost;
    bool is_packed = false;
    bool is_running = false;
    std::unique_ptr<DeviceWork> work;
    Bytes inputs;
    Bytes outputs;
  };
  void PlaceOnHost(Part* part);
  kernels::Status Lock(const SmallBytes& bytes);

  Part parts_[kNumSmallKinds];
  PieceSize size_;  // of the kinds that were read
  std::shared_ptr<KeptMachines::Device> device_;
  bool may_lock_ = false;
  bool is_locked_ = false;
  bool has_capacity_ = false;
  std::string host_reason_;
  std::string host_plural_;
  std::string refusal_;
  int64_t begin_ = 0;
  std::vector<int8_t> kind_of_;  // -1: none
};

}  // namespace ceres_ext

#endif  // CERES_EXT_SMALL_LANE_H_
