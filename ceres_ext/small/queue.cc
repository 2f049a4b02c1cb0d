// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/small/queue.h"

namespace ceres_ext {

using kernels::Status;

bool SmallQueue::ChooseDevice(
    int64_t num_rows,
    const std::function<Status(std::string* name)>& open,
    std::string* error) {
  if (ext_options_.device == DEVICE_HOST) {
    return true;
  }
  if (ext_options_.device == DEVICE_AUTO && num_rows < kMinDeviceRows) {
    device_ +=
        " (fewer than " + std::to_string(kMinDeviceRows) + " residual blocks)";
    return true;
  }
  std::string name;
  const Status status = open(&name);
  has_device_ = status.ok();
  if (has_device_) {
    device_ = std::move(name);
    return true;
  }
  if (ext_options_.device == DEVICE_CUDA && !may_leave()) {
    *error = status.message;
    return false;
  }
  device_ += " (" + status.message + ")";
  return true;
}

std::string SmallQueue::device() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return device_;
}

std::string SmallQueue::DeviceOf(const SmallLane& lane) const {
  if (lane.host_reason().empty()) {
    return device();
  }
  const std::string host = host_ + " (" + lane.host_reason() + ")";
  return lane.Numbers(/*of_device=*/true).empty()
             ? host
             : device() + ", fits: " + host;
}

SmallLane* SmallQueue::AddLane(const TrustRegionOptions* options) {
  lanes_.push_back(std::make_unique<SmallLane>(options));
  return lanes_.back().get();
}

void SmallQueue::Start(bool may_share, SmallLane* lane) {
  if (!refusal_.empty()) {
    lane->Refuse(refusal_);
  } else if (lane->has_device()) {
    const Status status = lane->Start(may_share);
    if (!status.ok()) {
      Fail(status, lane);
    }
  }
}

void SmallQueue::Collect(SmallLane* lane) {
  if (lane->IsRunning()) {
    const Status status = lane->Wait();
    if (!status.ok()) {
      Fail(status, lane);
    }
  }
}

// The host solves the problems of the lane, and of all that share its device,
// if it may.
void SmallQueue::Fail(const Status& status, SmallLane* lane) {
  for (const auto& other : lanes_) {
    if (other.get() != lane && !(shares_device_ && other->has_device())) {
      continue;
    }
    // Work that was queued before the failure uses page-locked memory.
    static_cast<void>(other->Wait());
    if (may_leave()) {
      other->MoveToHost();
    } else {
      other->Refuse(status.message);
    }
    // Later problems may try it again if no others share it.
    if (may_leave() || shares_device_) {
      const std::lock_guard<std::mutex> lock(mutex_);
      other->LeaveDevice();
    }
  }
  if (shares_device_) {
    has_device_ = false;
    refusal_ = may_leave() ? "" : status.message;
  }
  if (may_leave() || shares_device_) {
    const std::lock_guard<std::mutex> lock(mutex_);
    device_ +=
        (may_leave() ? ", then the host (" : " (") + status.message + ")";
  }
}

void SmallQueue::Stop() {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& lane : lanes_) {
    lane->Stop();
  }
}

}  // namespace ceres_ext
