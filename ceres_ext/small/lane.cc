// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/small/lane.h"

#include <algorithm>
#include <utility>

namespace ceres_ext {

using kernels::Status;

namespace {

constexpr int8_t kNoKind = -1;

int64_t Count(const std::vector<int64_t>& numbers) {
  return static_cast<int64_t>(numbers.size());
}

// Pieces begin at multiples of what suits all types.
int64_t Aligned(int64_t n) { return (n + 255) / 256 * 256; }

}  // namespace

int64_t SmallMemory::num_bytes() const {
  int64_t sum = 0;
  for (const SmallWorkspaces& of_thread : workspaces) {
    for (const auto& workspace : of_thread) {
      sum += workspace->num_bytes();
    }
  }
  for (const MarginalMemory& of_thread : of_marginals) {
    sum += of_thread.num_bytes();
  }
  return sum;
}

SmallMemory* MemoryOfSmall(KeptMachines* machines) {
  if (machines->of_small == nullptr) {
    machines->of_small = std::make_unique<SmallMemory>();
  }
  return static_cast<SmallMemory*>(machines->of_small.get());
}

SmallLane::SmallLane(const LoopOptions* options) {
  for (int k = 0; k < kNumSmallKinds; ++k) {
    parts_[k].piece = MakeSmallPiece(k, options);
  }
}

void SmallLane::SetCapacity(const WindowCapacity& capacity) {
  has_capacity_ = true;
  for (Part& part : parts_) {
    part.capacity = part.piece->SetCapacity(capacity);
  }
}

Status SmallLane::Use(std::shared_ptr<KeptMachines::Device> device,
                      bool may_lock) {
  device_ = std::move(device);
  may_lock_ = may_lock;
  SmallBytes all;
  for (Part& part : parts_) {
    part.work = std::make_unique<DeviceWork>(device_->machine.get());
    if (has_capacity_) {
      CERES_EXT_RETURN_IF_ERROR(part.work->Reserve(part.capacity));
      CERES_EXT_RETURN_IF_ERROR(
          part.piece->ReserveOnDevice(device_->machine.get()));
      all.inputs += Aligned(part.capacity.inputs);
      all.outputs += Aligned(part.capacity.outputs);
    }
  }
  return Lock(all);
}

Status SmallLane::Lock(const SmallBytes& bytes) {
  const CurrentMachine<DeviceMachine> current(device_->machine.get());
  CERES_EXT_RETURN_IF_ERROR(current.status());
  CERES_EXT_RETURN_IF_ERROR(device_->locked_inputs.Reserve(bytes.inputs));
  return device_->locked_outputs.Reserve(bytes.outputs);
}

void SmallLane::ReserveOnHost() {
  for (Part& part : parts_) {
    if (part.piece->PacksOnHost()) {
      part.inputs.Reserve(part.capacity.inputs);
    }
    part.outputs.Reserve(part.capacity.outputs);
  }
}

SmallWorkspaces SmallLane::MakeWorkspaces() const {
  SmallWorkspaces workspaces;
  for (int k = 0; k < kNumSmallKinds; ++k) {
    workspaces[k] = parts_[k].piece->MakeWorkspace();
  }
  return workspaces;
}

void SmallLane::LeaveDevice() {
  if (device_ == nullptr) {
    return;
  }
  [[maybe_unused]] const KeepCurrentDevice<DeviceMachine> keep;
  // Work may be running if there was no memory for another piece.
  static_cast<void>(device_->machine->Synchronize());
  for (Part& part : parts_) {
    part.is_running = false;
    part.work.reset();  // First, since it finds out whether the device is lost.
    part.piece->LeaveDevice();
  }
  device_.reset();
}

void SmallLane::Read(const SmallKinds& kinds,
                     int64_t begin,
                     int64_t end,
                     const std::vector<uint8_t>* is_taken,
                     bool may_leave,
                     kernels::HostContext* context,
                     BatchSummary* summary) {
  Clear();
  begin_ = begin;
  kind_of_.assign(end - begin, kNoKind);
  for (int k = 0; k < kNumSmallKinds; ++k) {
    if (kinds[k] == nullptr || !kinds[k]->reason().empty()) {
      continue;
    }
    Part& part = parts_[k];
    size_ = kinds[k]->piece_size();
    part.where = has_device() ? kOfDevice : kOfHost;
    part.piece->Setup(kinds[k], summary, begin, end);
    ForEach(context, end - begin, [&](int64_t e, int /*slot*/) {
      const int64_t i = begin + e;
      if (kind_of_[e] == kNoKind &&
          (is_taken == nullptr || (*is_taken)[i] == 0)) {
        part.piece->Read(i);
      }
    });
    part.piece->List();
    const std::string reason = has_device() && !part.piece->numbers().empty()
                                   ? kinds[k]->WhyNotOnDevice()
                                   : "";
    if (!reason.empty()) {
      part.where = kOfHost;
      if (may_leave) {
        host_reason_ = reason;
        host_plural_ = kinds[k]->plural();
      } else {
        for (const int64_t i : part.piece->numbers()) {
          summary->problems[i].solved_as = SOLVED_AS_PROBLEM;
          summary->problems[i].path_reason = reason;
        }
        part.piece->Clear();
      }
    }
    for (const int64_t i : part.piece->numbers()) {
      kind_of_[i - begin] = static_cast<int8_t>(k);
    }
  }
}

std::string SmallLane::WhyTooLarge() const {
  if (!has_capacity_) {
    return "";
  }
  for (const Part& part : parts_) {
    const auto exceeds = [&](int64_t n, int64_t most, const std::string& what) {
      return part.piece->numbers().empty() || n <= most
                 ? std::string()
                 : what + " of the batch take " + std::to_string(n) +
                       " bytes, but the capacity has " + std::to_string(most);
    };
    const SmallBytes& bytes = part.piece->bytes();
    std::string reason = exceeds(bytes.inputs,
                                 part.capacity.inputs,
                                 std::string("the ") + part.piece->plural());
    if (reason.empty()) {
      reason = exceeds(bytes.outputs, part.capacity.outputs, "the results");
    }
    if (!reason.empty()) {
      return reason;
    }
  }
  return "";
}

void SmallLane::PlaceOnHost(Part* part) {
  const bool has_inputs =
      part->where == kOfDevice || part->piece->PacksOnHost();
  if (has_inputs) {
    part->inputs.Reserve(part->piece->bytes().inputs);
  }
  part->outputs.Reserve(part->piece->bytes().outputs);
  part->piece->SetMemory(has_inputs ? part->inputs.data() : nullptr,
                         part->outputs.data(),
                         /*is_for_device=*/part->where == kOfDevice);
}

void SmallLane::Place() {
  SmallBytes all;
  for (const Part& part : parts_) {
    if (part.where == kOfDevice && !part.piece->numbers().empty()) {
      all.inputs += Aligned(part.piece->bytes().inputs);
      all.outputs += Aligned(part.piece->bytes().outputs);
    }
  }
  if (!has_capacity_ && device_ != nullptr) {
    all.inputs = std::max(all.inputs, size_.reserved.inputs);
    all.outputs = std::max(all.outputs, size_.reserved.outputs);
  }
  // Without page-locked memory copies pass through stages.
  is_locked_ = may_lock_ && has_device() && Lock(all).ok();
  all = {};
  for (Part& part : parts_) {
    part.is_packed = false;
    if (part.piece->numbers().empty()) {
      continue;
    }
    if (!is_locked_ || part.where != kOfDevice) {
      PlaceOnHost(&part);
      continue;
    }
    part.piece->SetMemory(device_->locked_inputs.data() + all.inputs,
                          device_->locked_outputs.data() + all.outputs,
                          /*is_for_device=*/true);
    all.inputs += Aligned(part.piece->bytes().inputs);
    all.outputs += Aligned(part.piece->bytes().outputs);
  }
}

void SmallLane::Pack(kernels::HostContext* context,
                     std::vector<SmallWorkspaces>* workspaces) {
  for (int k = 0; k < kNumSmallKinds; ++k) {
    SmallPiece* const piece = parts_[k].piece.get();
    if (piece->numbers().empty()) {
      continue;
    }
    if (parts_[k].where == kOfDevice) {
      ForEach(context, piece->num_copies(), [&](int64_t task, int /*slot*/) {
        piece->Copy(task);
      });
    }
    if (piece->PacksOnHost()) {
      ForEach(context, Count(piece->numbers()), [&](int64_t e, int slot) {
        piece->Pack(piece->numbers()[e], (*workspaces)[slot][k].get());
      });
      piece->DropUnpacked();
    }
    parts_[k].is_packed = true;
  }
}

Status SmallLane::Start(bool may_share) {
  [[maybe_unused]] const KeepCurrentDevice<DeviceMachine> keep;
  for (Part& part : parts_) {
    if (part.where != kOfDevice || part.piece->numbers().empty()) {
      continue;
    }
    if (!has_capacity_ && device_->options.cuda_memory_limit_bytes == 0 &&
        size_.reserved.inputs > 0) {
      CERES_EXT_RETURN_IF_ERROR(part.work->Reserve(size_.reserved));
    }
    CERES_EXT_RETURN_IF_ERROR(
        part.work->Start(part.piece.get(), is_locked_, may_share));
    part.is_running = true;
  }
  return {};
}

bool SmallLane::IsRunning() const {
  return std::any_of(std::begin(parts_),
                     std::end(parts_),
                     [](const Part& part) { return part.is_running; });
}

bool SmallLane::IsDone() const {
  return std::all_of(
      std::begin(parts_), std::end(parts_), [](const Part& part) {
        return !part.is_running || part.work->IsDone();
      });
}

Status SmallLane::Wait() {
  [[maybe_unused]] const KeepCurrentDevice<DeviceMachine> keep;
  Status status;
  for (Part& part : parts_) {
    if (part.is_running) {
      const Status of_part = part.work->Wait();
      status = status.ok() ? of_part : status;
      part.is_running = false;
    }
  }
  return status;
}

void SmallLane::Stop() {
  for (Part& part : parts_) {
    if (part.work != nullptr) {
      part.work->Stop();
    }
  }
}

void SmallLane::MoveToHost() {
  for (Part& part : parts_) {
    if (part.where == kOfDevice && !part.piece->numbers().empty()) {
      part.where = kOfHost;
      part.is_packed = false;
      PlaceOnHost(&part);
    }
  }
}

void SmallLane::Refuse(const std::string& error) {
  refusal_ = error;
  for (Part& part : parts_) {
    if (!has_device() || part.where == kOfDevice) {
      part.where = kRefused;
    }
  }
}

void SmallLane::Clear() {
  host_reason_.clear();
  refusal_.clear();
  kind_of_.clear();
  for (Part& part : parts_) {
    part.where = kOfHost;
    part.piece->Clear();
  }
}

SmallPiece* SmallLane::PieceOf(int64_t i) const {
  const auto e = static_cast<size_t>(i - begin_);
  return e >= kind_of_.size() || kind_of_[e] == kNoKind
             ? nullptr
             : parts_[kind_of_[e]].piece.get();
}

void SmallLane::SolveOnHost(int64_t i, SmallWorkspaces* workspaces) {
  const int8_t k = kind_of_[i - begin_];
  Part& part = parts_[k];
  SmallWorkspace* const workspace = (*workspaces)[k].get();
  if (part.piece->PacksOnHost() && !part.is_packed) {
    part.piece->Pack(i, workspace);
  }
  if (part.piece->Has(i)) {
    part.piece->SolveOnHost(i, workspace);
  }
}

void SmallLane::Finish(int64_t i) {
  SmallPiece* const piece = PieceOf(i);
  // SolveOnHost may not have had the memory to pack it.
  if (piece->Has(i)) {
    piece->Finish(i);
  }
}

std::vector<int64_t> SmallLane::Numbers(Where where) const {
  std::vector<int64_t> numbers;
  for (const Part& part : parts_) {
    if (part.where == where) {
      numbers.insert(numbers.end(),
                     part.piece->numbers().begin(),
                     part.piece->numbers().end());
    }
  }
  return numbers;
}

}  // namespace ceres_ext
