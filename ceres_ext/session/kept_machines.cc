// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/session/kept_machines.h"

#include <utility>

#include "cuda_kernels/machine/cuda_process.h"

namespace ceres_ext {
namespace {

using kernels::Status;

template <typename Machine>
bool IsSuch(const KeptMachine<Machine>* kept,
            const Options& options,
            int num_threads) {
  return kept != nullptr && kept->num_threads == num_threads &&
         kept->options.cuda_device == options.cuda_device &&
         kept->options.cuda_stream == options.cuda_stream &&
         kept->options.cuda_memory_limit_bytes ==
             options.cuda_memory_limit_bytes &&
         kept->options.cuda_graph == options.cuda_graph;
}

template <typename Machine>
std::shared_ptr<KeptMachine<Machine>> Make(const Options& options,
                                           int num_threads) {
  auto kept = std::make_shared<KeptMachine<Machine>>();
  kept->options = options;
  kept->num_threads = num_threads;
  return kept;
}

// A template, so that a build without CUDA leaves it out.
template <typename Machine>
Status GetDeviceMachine(const Options& options,
                        int num_threads,
                        std::shared_ptr<KeptMachine<Machine>>* kept) {
  if constexpr (!kHasCuda) {
    return {kernels::StatusCode::kUnsupported, "this build has no CUDA"};
  } else {
    const kernels::KeepCurrentContext keep;
    if (IsSuch(kept->get(), options, num_threads) && (*kept)->IsAlive()) {
      return {};
    }
    kept->reset();  // Its memory first.
    kernels::CudaContextOptions context_options;
    context_options.device = options.cuda_device;
    context_options.stream = static_cast<cudaStream_t>(options.cuda_stream);
    context_options.memory_limit = options.cuda_memory_limit_bytes;
    auto made = Make<Machine>(options, num_threads);
    CERES_EXT_RETURN_IF_ERROR(Machine::Create(context_options, &made->machine));
    if (options.cuda_graph == CUDA_GRAPH_ON) {
      made->machine->EnableLoops();
    } else if (options.cuda_graph == CUDA_GRAPH_AUTO &&
               !kernels::IsUnderTool()) {
      // Making a graph takes as long as it then saves in so many iterations.
      made->machine->EnableLoops(/*min_num_iterations=*/100);
    }
    *kept = std::move(made);
    return {};
  }
}

template <typename Machine>
void RestDevice(int64_t max_bytes,
                std::shared_ptr<KeptMachine<Machine>>* kept) {
  if constexpr (!kIsHost<Machine>) {
    KeptMachine<Machine>* const device = kept->get();
    if (device == nullptr) {
      return;
    }
    if (device->options.cuda_stream != nullptr ||
        device->options.cuda_memory_limit_bytes > 0 || !device->IsAlive()) {
      kept->reset();
      return;
    }
    const KeepCurrentDevice<Machine> keep;
    device->index = {};
    device->machine->context()->ReleaseKeptMemory(max_bytes);
  }
}

}  // namespace

template <typename Machine>
std::string KeptMachine<Machine>::Name() const {
  if constexpr (kIsHost<Machine>) {
    const int n = machine->context()->num_threads();
    return "host, " + std::to_string(n) + (n == 1 ? " thread" : " threads");
  } else {
    const kernels::CudaContext& context = *machine->context();
    return context.device_name() + " (CUDA device " +
           std::to_string(context.device()) + ")";
  }
}

std::shared_ptr<KeptMachines::Host> KeptMachines::GetHost(int num_threads) {
  if (host_ == nullptr || host_->num_threads != num_threads) {
    host_ = std::make_shared<Host>();
    host_->num_threads = num_threads;
    host_->machine = std::make_unique<kernels::HostMachine>(num_threads);
    host_->host_context = host_->machine->context();
  }
  return host_;
}

void KeptMachines::Rest(int64_t max_bytes) {
  is_for_several = false;
  if (host_ != nullptr) {
    host_->index = {};
  }
  if (of_small != nullptr && of_small->num_bytes() > max_bytes) {
    of_small.reset();
  }
  const auto num_devices = static_cast<int64_t>(other_devices_.size()) + 1;
  RestDevice(max_bytes / num_devices, &device_);
  for (std::shared_ptr<Device>& device : other_devices_) {
    RestDevice(max_bytes / num_devices, &device);
  }
}

Status KeptMachines::GetDevice(const Options& options,
                               int num_threads,
                               std::shared_ptr<Device>* device) {
  CERES_EXT_RETURN_IF_ERROR(GetDeviceMachine(options, num_threads, &device_));
  if (device_ != nullptr) {
    device_->host_context = host_context(num_threads);
  }
  *device = device_;
  return {};
}

Status KeptMachines::GetOtherDevice(const Options& options,
                                    int num_threads,
                                    size_t i,
                                    std::shared_ptr<Device>* device) {
  if (other_devices_.size() <= i) {
    other_devices_.resize(i + 1);
  }
  CERES_EXT_RETURN_IF_ERROR(
      GetDeviceMachine(options, num_threads, &other_devices_[i]));
  *device = other_devices_[i];
  return {};
}

#define CERES_EXT_INSTANTIATE(Machine) \
  template std::string KeptMachine<Machine>::Name() const;
CERES_EXT_FOR_EACH_MACHINE(CERES_EXT_INSTANTIATE)
#undef CERES_EXT_INSTANTIATE

}  // namespace ceres_ext
