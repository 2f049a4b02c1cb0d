// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/session/idle_machines.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <iterator>
#include <mutex>
#include <utility>
#include <vector>

namespace ceres_ext {
namespace {

struct Idle {
  std::mutex mutex;
  const pid_t process = getpid();
  std::vector<std::unique_ptr<KeptMachines>> machines;
};

// The idle machines of this process: a fork leaves threads, locks and devices
// behind. Never destroyed: threads may solve, and CUDA may be gone, when the
// process ends.
Idle& idle() {
  static std::atomic<Idle*> last{nullptr};
  Idle* known = last;
  if (known == nullptr || known->process != getpid()) {
    auto* const made = new Idle;
    if (last.compare_exchange_strong(known, made)) {
      return *made;
    }
    delete made;
  }
  return *last;
}

}  // namespace

BorrowedMachines::BorrowedMachines(const Options& options) {
  if (options.cuda_memory_limit_bytes > 0) {
    ReleaseIdle();
  }
  Idle& all = idle();
  {
    const std::lock_guard<std::mutex> lock(all.mutex);
    // The last ones of this device, or else of none. Several devices have
    // machines of their own, beside these.
    const int wanted = options.cuda_devices.empty() ? options.cuda_device
                                                    : KeptMachines::kNoDevice;
    for (const int device : {wanted, KeptMachines::kNoDevice}) {
      const auto found = std::find_if(
          all.machines.rbegin(), all.machines.rend(), [&](const auto& m) {
            return m->device_number() == device;
          });
      if (found != all.machines.rend()) {
        machines_ = std::move(*found);
        all.machines.erase(std::next(found).base());
        break;
      }
    }
  }
  if (machines_ == nullptr) {
    machines_ = std::make_unique<KeptMachines>();
  }
}

BorrowedMachines::~BorrowedMachines() {
  try {
    machines_->Rest(kMostIdleBytes);
    Idle& all = idle();
    const std::lock_guard<std::mutex> lock(all.mutex);
    const auto num_alike = std::count_if(
        all.machines.begin(), all.machines.end(), [&](const auto& m) {
          return m->device_number() == machines_->device_number();
        });
    if (num_alike < kMostIdle) {
      all.machines.push_back(std::move(machines_));
    }
  } catch (const std::exception&) {
    // Then they are made again.
  }
}

void BorrowedMachines::ReleaseIdle() {
  // Destroyed after the lock.
  std::vector<std::unique_ptr<KeptMachines>> machines;
  Idle& all = idle();
  const std::lock_guard<std::mutex> lock(all.mutex);
  machines.swap(all.machines);
}

}  // namespace ceres_ext
