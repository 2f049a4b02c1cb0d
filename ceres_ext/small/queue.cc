// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/small/queue.h"

#include <utility>

#include "ceres_ext/plan/device_choice.h"

namespace ceres_ext {

using kernels::Status;

SmallQueue::SmallQueue(const Options& ext_options,
                       int num_threads,
                       KeptMachines* machines,
                       bool shares_device)
    : ext_options_(ext_options),
      num_threads_(num_threads),
      machines_(machines),
      host_(machines->GetHost(num_threads)->Name()),
      shares_device_(shares_device),
      device_(host_) {}

bool SmallQueue::FindDevices(std::string* error) {
  if (!ReadDevices(ext_options_.cuda_devices, &devices_, error)) {
    return false;
  }
  if (devices_.empty()) {
    devices_.push_back(ext_options_.cuda_device);
  } else if (ext_options_.cuda_stream != nullptr) {
    devices_.resize(1);  // The stream is of one device.
  }
  return true;
}

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

Status SmallQueue::OpenDevice(size_t l,
                              std::shared_ptr<KeptMachines::Device>* device,
                              std::string* names) {
  ext_options_.cuda_device = devices_[l % devices_.size()];
  CERES_EXT_RETURN_IF_ERROR(
      l == 0 ? machines_->GetDevice(ext_options_, num_threads_, device)
             : machines_->GetOtherDevice(
                   ext_options_, num_threads_, l - 1, device));
  if (l < devices_.size()) {
    *names += (l > 0 ? ", " : "") + (*device)->Name();
  }
  return {};
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
