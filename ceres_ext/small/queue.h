// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The queue of small problems: reads, packs and sends ranges of a batch, and
// waits for them. plan/ chooses their machine, and the next one after a
// failure.
//
//   SmallQueue queue(ext_options, num_threads, &machines, capacity);
//   queue.ChooseDevice(num_rows, num_devices, &error);
//   SmallLane* lane = queue.AddLane(&region_options);
//   queue.Submit(range, lane, &error);  // does not wait
//   queue.Collect(lane);
//   // Finish lane->Numbers(kOfDevice), solve lane->Numbers(kOfHost), and end
//   // lane->Numbers(kRefused) with lane->refusal().

#ifndef CERES_EXT_SMALL_QUEUE_H_
#define CERES_EXT_SMALL_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ceres_ext/batch.h"
#include "ceres_ext/options.h"
#include "ceres_ext/session/kept_machines.h"
#include "ceres_ext/small/lane.h"
#include "ceres_ext/solver/step_search.h"
#include "ceres_ext/window_solver.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/host_context.h"

namespace ceres_ext {

// Problems [begin, end) of a batch.
struct SmallRange {
  SmallKinds kinds{};  // null: not wanted
  int64_t begin = 0;
  int64_t end = 0;
  // 1 for each problem that another lane has; null: none.
  const std::vector<uint8_t>* is_taken = nullptr;
  bool may_share = false;  // SmallLane::Start
  BatchSummary* summary = nullptr;
};

class SmallQueue {
 public:
  // capacity: each lane has a stream and memory for it to itself, allocated
  // when the device is chosen, and a device that fails fails for one lane.
  // Null: lanes share devices, take memory as they need it, and all leave a
  // device that fails. *machines and *capacity outlive the object.
  SmallQueue(const Options& ext_options,
             int num_threads,
             KeptMachines* machines,
             const WindowCapacity* capacity);
  ~SmallQueue() { LeaveDevices(); }
  SmallQueue(const SmallQueue&) = delete;
  SmallQueue& operator=(const SmallQueue&) = delete;

  // Chooses the machine for so many residual blocks, opens so many devices, and
  // allocates the memory of the lanes that there are. False, with a sentence in
  // *error, if there is none.
  bool ChooseDevice(int64_t num_rows, size_t num_devices, std::string* error);
  // The devices that the options name.
  size_t num_devices() const { return numbers_.size(); }
  bool has_device() const { return has_device_; }
  // The device that solves, and why not another one. Any thread may call this.
  std::string device() const;
  // The same for the problems of the lane.
  std::string DeviceOf(const SmallLane& lane) const;

  // *options outlives the object.
  SmallLane* AddLane(const LoopOptions* options);
  // Without a capacity: makes lanes for so many pieces, and deals them out over
  // the devices, with streams so that they run at once. Returns how many take
  // turns. num_in_flight: with one stream.
  size_t DealLanes(int64_t num_pieces,
                   int num_in_flight,
                   const LoopOptions* options);
  const std::vector<std::unique_ptr<SmallLane>>& lanes() const {
    return lanes_;
  }

  // Finds the problems of the range, packs them and queues the device's. False,
  // with a sentence in *error, if they exceed the capacity. May throw, as the
  // next ones.
  bool Submit(const SmallRange& range, SmallLane* lane, std::string* error);
  // Waits for the device.
  void Collect(SmallLane* lane);
  // Solves the host's problems on all threads, without a capacity.
  void SolveOnHost(SmallLane* lane);
  // Ends each problem in flight on a device after its current iteration. Any
  // thread may call it.
  void Stop();

 private:
  kernels::Status Reserve(size_t num_devices);
  kernels::Status OpenDevice();
  void LeaveDevices();
  void MakeWorkspaces();
  template <typename Step>
  void Try(SmallLane* lane, const Step& step);
  void Fail(const std::string& why, bool to_host, SmallLane* lane);

  const Options ext_options_;
  const int num_threads_;
  KeptMachines* const machines_;
  const WindowCapacity* const capacity_;
  kernels::HostContext* const context_;
  const std::string host_;
  std::vector<int> numbers_;  // of devices
  // With a stream each.
  std::vector<std::shared_ptr<KeptMachines::Device>> devices_;
  bool has_device_ = false;
  // The error of a device that lanes share, if the host may not replace it.
  std::string refusal_;
  // Guards device_, and the lanes' parts of devices.
  mutable std::mutex mutex_;
  std::string device_;
  std::vector<std::unique_ptr<SmallLane>> lanes_;
  std::vector<SmallWorkspaces>& workspaces_;  // of context_'s threads
};

}  // namespace ceres_ext

#endif  // CERES_EXT_SMALL_QUEUE_H_
