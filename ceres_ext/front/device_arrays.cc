// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/front/device_arrays.h"

#include <algorithm>
#include <utility>

#include "ceres_ext/base/machines.h"
#include "ceres_ext/import/array_import.h"

namespace ceres_ext {

using kernels::Status;

namespace {

template <typename Machine>
Status SynchronizeDevice([[maybe_unused]] Machine* machine) {
  if constexpr (!kIsHost<Machine>) {
    return machine->context()->SynchronizeDevice();
  }
  return {};
}

}  // namespace

Status OpenDeviceOfArrays(const Options& options,
                          int num_threads,
                          KeptMachines* kept,
                          std::shared_ptr<KeptMachines::Device>* device) {
  Options on_device = options;
  on_device.device = DEVICE_CUDA;
  CERES_EXT_RETURN_IF_ERROR(kept->GetDevice(on_device, num_threads, device));
  DeviceMachine* const machine = (*device)->machine.get();
  const CurrentMachine<DeviceMachine> current(machine);
  CERES_EXT_RETURN_IF_ERROR(current.status());
  return options.cuda_stream == nullptr ? SynchronizeDevice(machine) : Status();
}

template <typename T>
Status HostCopies::Copy(bool on_device, int64_t n, const T** data) {
  if (!on_device || *data == nullptr || n == 0) {
    return {};
  }
  memory_.emplace_back(new unsigned char[n * sizeof(T)]);
  T* const to = reinterpret_cast<T*>(memory_.back().get());
  const T* const from = std::exchange(*data, to);
  return device_->machine->Download(n, from, to);
}

Status HostCopies::Setup(const ArrayProblem& problem,
                         std::shared_ptr<KeptMachines::Device> device) {
  device_ = std::move(device);
  original_ = &problem;
  const CurrentMachine<DeviceMachine> current(device_->machine.get());
  CERES_EXT_RETURN_IF_ERROR(current.status());
  for (ArrayProblem::Parameters p : problem.parameters()) {
    const double* values = p.values;
    CERES_EXT_RETURN_IF_ERROR(Copy(
        std::exchange(p.on_device, false), p.num_blocks * p.size, &values));
    p.values = const_cast<double*>(values);
    copy_.AddParameters(p);
  }
  for (ArrayProblem::Residuals r : problem.residuals()) {
    for (ArrayProblem::Index& index : r.blocks) {
      CERES_EXT_RETURN_IF_ERROR(Copy(
          std::exchange(index.on_device, false), r.num_blocks, &index.block));
    }
    CERES_EXT_RETURN_IF_ERROR(Copy(
        std::exchange(r.weights_on_device, false), r.num_blocks, &r.weights));
    auto constants = static_cast<const unsigned char*>(r.constants);
    CERES_EXT_RETURN_IF_ERROR(Copy(std::exchange(r.constants_on_device, false),
                                   r.num_blocks * r.constants_bytes,
                                   &constants));
    r.constants = constants;
    copy_.AddResiduals(r);
  }
  return {};
}

Status HostCopies::CopyBack() {
  DeviceMachine* const machine = device_->machine.get();
  const CurrentMachine<DeviceMachine> current(machine);
  CERES_EXT_RETURN_IF_ERROR(current.status());
  for (size_t i = 0; i < copy_.parameters().size(); ++i) {
    const ArrayProblem::Parameters& p = original_->parameters()[i];
    if (p.on_device) {
      CERES_EXT_RETURN_IF_ERROR(machine->Upload(
          p.num_blocks * p.size, copy_.parameters()[i].values, p.values));
    }
  }
  // The caller may look at them on another stream.
  return machine->Synchronize();
}

bool CopyToHost(const Options& options,
                int num_threads,
                const ArrayProblem& problem,
                KeptMachines* kept,
                HostCopies* copies,
                std::string* error) {
  std::shared_ptr<KeptMachines::Device> device;
  Status status = OpenDeviceOfArrays(options, num_threads, kept, &device);
  if (status.ok()) {
    const CurrentMachine<DeviceMachine> current(device->machine.get());
    if (!IsValidProblem(problem,
                        kept->host_context(num_threads),
                        error,
                        device->machine.get())) {
      return false;
    }
    status = copies->Setup(problem, std::move(device));
  }
  if (!status.ok()) {
    *error = "Arrays on a CUDA device can't be copied to the host: " +
             status.message;
  }
  return status.ok();
}

}  // namespace ceres_ext
