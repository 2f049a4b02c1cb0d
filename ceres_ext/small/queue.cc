// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/small/queue.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "ceres_ext/base/scoped_seconds.h"
#include "ceres_ext/plan/attempts.h"
#include "ceres_ext/plan/device_choice.h"
#include "ceres_ext/plan/solve_plan.h"
#include "ceres_ext/session/known_facts.h"

namespace ceres_ext {

using kernels::Status;

namespace {

// The devices that valid options name, one at least.
std::vector<int> NumbersOf(const Options& ext_options) {
  std::vector<int> numbers;
  std::string error;
  static_cast<void>(ReadDevices(ext_options.cuda_devices, &numbers, &error));
  if (numbers.empty()) {
    numbers.push_back(ext_options.cuda_device);
  } else if (ext_options.cuda_stream != nullptr) {
    numbers.resize(1);  // The stream is of one device.
  }
  return numbers;
}

std::string InBrackets(const std::string& why) {
  return why.empty() ? "" : " (" + why + ")";
}

}  // namespace

SmallQueue::SmallQueue(const Options& ext_options,
                       int num_threads,
                       KeptMachines* machines,
                       const WindowCapacity* capacity)
    : ext_options_(WithOneDevice(ext_options)),
      num_threads_(num_threads),
      machines_(machines),
      capacity_(capacity),
      context_(machines->host_context(num_threads)),
      host_(machines->GetHost(num_threads)->Name()),
      numbers_(NumbersOf(ext_options)),
      device_(host_),
      workspaces_(MemoryOfSmall(machines)->workspaces) {}

bool SmallQueue::ChooseDevice(int64_t num_rows,
                              size_t num_devices,
                              std::string* error) {
  PlanRequest request;
  request.options = ext_options_;
  request.purpose = Purpose::kSmall;
  RowFacts rows;
  rows.num_other_rows = num_rows;
  KnownFacts facts(
      ext_options_, num_threads_, /*structure=*/nullptr, machines_);
  Attempts attempts(ext_options_);
  const Outcome outcome = TryEach(&attempts, [&](const Attempt& attempt) {
    if (!attempt.why_host.empty()) {
      LeaveDevices();
      facts.DropDevice();
    }
    request.attempt = attempt;
    const auto decision = Decide(request, rows, facts);
    if (const auto* refusal = std::get_if<Refusal>(&decision)) {
      return Outcome(Outcome::kSetup, refusal->reason);
    }
    const SolvePlan& plan = std::get<SolvePlan>(decision);
    has_device_ = plan.on_device;
    device_ = plan.on_device ? "" : host_ + InBrackets(plan.why_host);
    Outcome end(Reserve(num_devices), Outcome::kSetup);
    end.on_device = plan.on_device;
    return end;
  });
  if (!outcome.status.ok()) {
    *error = outcome.status.message;
  }
  if (capacity_ != nullptr) {
    // Lanes have them.
    devices_.clear();
    machines_->ClearDevice();
  }
  return outcome.status.ok();
}

Status SmallQueue::Reserve(size_t num_devices) {
  while (has_device_ && devices_.size() < num_devices) {
    CERES_EXT_RETURN_IF_ERROR(OpenDevice());
  }
  for (size_t l = 0; l < lanes_.size(); ++l) {
    if (has_device_) {
      CERES_EXT_RETURN_IF_ERROR(lanes_[l]->Use(devices_[l], /*may_lock=*/true));
      MakeWorkspaces();
    } else {
      lanes_[l]->ReserveOnHost();
    }
  }
  return {};
}

// The next one with a stream of its own; they are dealt out over the devices
// that the options name.
Status SmallQueue::OpenDevice() {
  const size_t l = devices_.size();
  Options options = ext_options_;
  options.cuda_device = numbers_[l % numbers_.size()];
  std::shared_ptr<KeptMachines::Device> device;
  CERES_EXT_RETURN_IF_ERROR(
      l == 0
          ? machines_->GetDevice(options, num_threads_, &device)
          : machines_->GetOtherDevice(options, num_threads_, l - 1, &device));
  if (l < numbers_.size()) {
    device_ += (l > 0 ? ", " : "") + device->Name();
  }
  device->KeepMemory(capacity_ == nullptr);
  devices_.push_back(std::move(device));
  return {};
}

void SmallQueue::LeaveDevices() {
  for (const auto& lane : lanes_) {
    lane->LeaveDevice();
  }
  for (const auto& device : devices_) {
    device->KeepMemory(false);
  }
  devices_.clear();
}

std::string SmallQueue::device() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return device_;
}

std::string SmallQueue::DeviceOf(const SmallLane& lane) const {
  if (lane.host_reason().empty()) {
    return device();
  }
  const std::string host = host_ + InBrackets(lane.host_reason());
  return lane.Numbers(SmallLane::kOfDevice).empty()
             ? host
             : device() + ", " + lane.host_plural() + ": " + host;
}

SmallLane* SmallQueue::AddLane(const LoopOptions* options) {
  lanes_.push_back(std::make_unique<SmallLane>(options));
  SmallLane* const lane = lanes_.back().get();
  if (capacity_ != nullptr) {
    lane->SetCapacity(*capacity_);
  }
  return lane;
}

size_t SmallQueue::DealLanes(int64_t num_pieces,
                             int num_in_flight,
                             const LoopOptions* options) {
  size_t num_lanes = 1;
  if (has_device_) {
    // There is one stream if the caller has given it, or limits the memory.
    const bool has_streams = ext_options_.cuda_stream == nullptr &&
                             ext_options_.cuda_memory_limit_bytes == 0;
    while (has_streams && static_cast<int64_t>(devices_.size()) < num_pieces &&
           OpenDevice().ok()) {
    }
    num_lanes = std::max(
        devices_.size(),
        static_cast<size_t>(std::min<int64_t>(num_pieces, num_in_flight)));
  }
  while (lanes_.size() < num_lanes) {
    AddLane(options);
  }
  for (size_t l = 0; l < num_lanes; ++l) {
    lanes_[l]->LeaveDevice();
    if (has_device_) {
      // Allocates nothing without a capacity.
      static_cast<void>(
          lanes_[l]->Use(devices_[l % devices_.size()],
                         /*may_lock=*/num_lanes == devices_.size()));
    }
  }
  MakeWorkspaces();
  return num_lanes;
}

void SmallQueue::MakeWorkspaces() {
  while (static_cast<int>(workspaces_.size()) < context_->num_threads()) {
    workspaces_.push_back(lanes_[0]->MakeWorkspaces());
  }
}

bool SmallQueue::Submit(const SmallRange& range,
                        SmallLane* lane,
                        std::string* error) {
  {
    const ScopedSeconds time(&range.summary->pack_time_in_seconds);
    lane->Read(range.kinds,
               range.begin,
               range.end,
               range.is_taken,
               /*may_leave=*/MayFallBack(ext_options_),
               context_,
               range.summary);
    *error = lane->WhyTooLarge();
    if (!error->empty()) {
      return false;
    }
    lane->Place();
    // With a capacity, threads of the host pack its problems themselves.
    if (capacity_ == nullptr || lane->has_device()) {
      lane->Pack(context_, &workspaces_);
    }
  }
  if (!refusal_.empty()) {
    lane->Refuse(refusal_);
  } else if (lane->has_device()) {
    Try(lane, [&] { return lane->Start(range.may_share); });
  }
  return true;
}

void SmallQueue::Collect(SmallLane* lane) {
  if (lane->IsRunning()) {
    Try(lane, [&] { return lane->Wait(); });
  }
}

// A step of the lane's device, and what follows if it fails.
template <typename Step>
void SmallQueue::Try(SmallLane* lane, const Step& step) {
  Attempts attempts(ext_options_, {}, "Windows and fits are solved");
  const Outcome outcome = TryEach(&attempts, [&](const Attempt& attempt) {
    if (!attempt.why_host.empty()) {
      Fail(attempt.why_host, /*to_host=*/true, lane);
      return Outcome();
    }
    Outcome of_device(step());
    of_device.on_device = true;
    return of_device;
  });
  if (!outcome.status.ok()) {
    Fail(outcome.status.message, /*to_host=*/false, lane);
  }
}

// The problems of the lane, and of all that share its device, go to the host or
// end.
void SmallQueue::Fail(const std::string& why, bool to_host, SmallLane* lane) {
  const bool is_shared = capacity_ == nullptr;
  for (const auto& other : lanes_) {
    if (other.get() != lane && !(is_shared && other->has_device())) {
      continue;
    }
    // Work that was queued before the failure uses page-locked memory.
    static_cast<void>(other->Wait());
    if (to_host) {
      other->MoveToHost();
    } else {
      other->Refuse(why);
    }
    // Later problems may try it again if no others share it.
    if (to_host || is_shared) {
      const std::lock_guard<std::mutex> lock(mutex_);
      other->LeaveDevice();
    }
  }
  if (is_shared) {
    has_device_ = false;
    refusal_ = to_host ? "" : why;
    // It may be in any state.
    LeaveDevices();
    machines_->ClearDevice();
  }
  if (to_host || is_shared) {
    const std::lock_guard<std::mutex> lock(mutex_);
    device_ += (to_host ? ", then the host" : "") + InBrackets(why);
  }
}

void SmallQueue::SolveOnHost(SmallLane* lane) {
  const std::vector<int64_t> numbers = lane->Numbers(SmallLane::kOfHost);
  if (numbers.size() == 1) {
    for (const auto& workspace : workspaces_[0]) {
      workspace->team = context_;
    }
    lane->SolveOnHost(numbers[0], &workspaces_[0]);
    for (const auto& workspace : workspaces_[0]) {
      workspace->team = nullptr;
    }
    return;
  }
  ForEach(
      context_, static_cast<int64_t>(numbers.size()), [&](int64_t e, int slot) {
        lane->SolveOnHost(numbers[e], &workspaces_[slot]);
      });
}

void SmallQueue::Stop() {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& lane : lanes_) {
    lane->Stop();
  }
}

}  // namespace ceres_ext
