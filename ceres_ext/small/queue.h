// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The queue of small problems: the only place that chooses their device, sends
// them, waits for them, and lets the host take over.
//
//   SmallQueue queue(ext_options, num_threads, &machines, shares_device);
//   queue.ChooseDevice(num_rows, open, &error);
//   SmallLane* lane = queue.AddLane(&region_options);
//   lane->Read(...);  lane->Place();  lane->Pack(...);
//   queue.Start(may_share, lane);
//   queue.Collect(lane);
//   // Finish lane->Numbers(true), and solve lane->Numbers(false) on the host
//   if
//   // lane->refusal() is empty.

#ifndef CERES_EXT_SMALL_QUEUE_H_
#define CERES_EXT_SMALL_QUEUE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ceres/solver.h"
#include "ceres_ext/batch.h"
#include "ceres_ext/options.h"
#include "ceres_ext/plan/attempts.h"
#include "ceres_ext/small/lane.h"
#include "ceres_ext/solver/trust_region.h"
#include "cuda_kernels/base/status.h"

namespace ceres_ext {

// DEVICE_AUTO uses the host if problems have fewer residual blocks together.
inline constexpr int64_t kMinDeviceRows = 15000;

class SmallQueue {
 public:
  // shares_device: an error of one lane is one of all, and of those that come
  // later.
  SmallQueue(const Options& ext_options,
             int num_threads,
             KeptMachines* machines,
             bool shares_device);

  // Reads the devices that the options name. False, with a sentence in *error,
  // if they are not valid.
  bool FindDevices(std::string* error);
  // Calls open(&name), which opens devices, unless the options or the number of
  // residual blocks choose the host. If it fails, the host replaces the device.
  // False, with a sentence in *error, if it may not.
  bool ChooseDevice(
      int64_t num_rows,
      const std::function<kernels::Status(std::string* name)>& open,
      std::string* error);
  // Opens the device of lane l with a stream of its own. Lanes are dealt out
  // over the devices, whose names become *names.
  kernels::Status OpenDevice(size_t l,
                             std::shared_ptr<KeptMachines::Device>* device,
                             std::string* names);
  size_t num_devices() const { return devices_.size(); }
  bool has_device() const { return has_device_; }
  // The device that solves, and why not another one. Any thread may call this.
  std::string device() const;
  // The same for the problems of the lane.
  std::string DeviceOf(const SmallLane& lane) const;

  // *options outlives the object.
  SmallLane* AddLane(const TrustRegionOptions* options);
  const std::vector<std::unique_ptr<SmallLane>>& lanes() const {
    return lanes_;
  }
  // The host may solve what the device cannot.
  bool may_leave() const { return MayFallBack(ext_options_); }

  // Queues the problems of the lane's device, which are placed and packed. May
  // throw, as Collect.
  void Start(bool may_share, SmallLane* lane);
  // Waits for the device.
  void Collect(SmallLane* lane);
  // Ends each problem in flight on a device after its current iteration. Any
  // thread may call it.
  void Stop();

 private:
  void Fail(const kernels::Status& status, SmallLane* lane);

  Options ext_options_;
  const int num_threads_;
  KeptMachines* const machines_;
  const std::string host_;
  std::vector<int> devices_;
  const bool shares_device_;
  bool has_device_ = false;
  // The error of a device that lanes share, if the host may not replace it.
  std::string refusal_;
  // Guards device_, and the lanes' parts of devices.
  mutable std::mutex mutex_;
  std::string device_;
  std::vector<std::unique_ptr<SmallLane>> lanes_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_SMALL_QUEUE_H_
