// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The machines of this build. The only file of ceres_ext/ that asks whether
// there is CUDA.

#ifndef CERES_EXT_BASE_MACHINES_H_
#define CERES_EXT_BASE_MACHINES_H_

#include <optional>
#include <type_traits>

#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/cuda_context.h"
#include "cuda_kernels/machine/cuda_launch_buffer.h"
#include "cuda_kernels/machine/cuda_library_handles.h"
#include "cuda_kernels/machine/cuda_machine.h"
#include "cuda_kernels/machine/host_machine.h"

// X(machine) for every machine that is compiled.
#ifdef CERES_EXT_WITH_CUDA
#define CERES_EXT_FOR_EACH_MACHINE(X)  \
  X(::ceres_ext::kernels::HostMachine) \
  X(::ceres_ext::kernels::CudaMachine)
#else
#define CERES_EXT_FOR_EACH_MACHINE(X) X(::ceres_ext::kernels::HostMachine)
#endif

namespace ceres_ext {

#ifdef CERES_EXT_WITH_CUDA
inline constexpr bool kHasCuda = true;
#else
inline constexpr bool kHasCuda = false;
#endif

// The machine of a device; without CUDA none is ever made.
#ifdef CERES_EXT_WITH_CUDA
using DeviceMachine = kernels::CudaMachine;
#else
using DeviceMachine = kernels::HostMachine;
#endif

template <typename Machine>
inline constexpr bool kIsHost = std::is_same_v<Machine, kernels::HostMachine>;

// The destructor restores what was current for the calling thread. On the host
// nothing is.
struct NoDevice {};
template <typename Machine>
using KeepCurrentDevice = std::conditional_t<kHasCuda && !kIsHost<Machine>,
                                             kernels::KeepCurrentContext,
                                             NoDevice>;

template <typename Machine>
using BufferLaunches = std::conditional_t<kHasCuda && !kIsHost<Machine>,
                                          kernels::BufferLaunches,
                                          NoDevice>;

// Destroys the handles of CUDA's libraries that wait for the next user.
inline void ReleaseLibraryHandles() {
#ifdef CERES_EXT_WITH_CUDA
  kernels::ReleaseLibraryHandles();
#endif
}

// Makes a machine's device current for the calling thread until the object
// goes; then what the caller had is so again. Wherever Ceres calls has one, so
// that callbacks and cost functions find what their program left. Launches may
// wait for each other (cuda_launch_buffer.h).
template <typename Machine>
class CurrentMachine {
 public:
  explicit CurrentMachine(Machine* machine) {
    if constexpr (!kIsHost<Machine>) {
      status_ = machine->context()->Activate();
      launches_.emplace(*machine->context());
    }
  }
  const kernels::Status& status() const { return status_; }

 private:
  KeepCurrentDevice<Machine> keep_;
  std::optional<BufferLaunches<Machine>> launches_;
  kernels::Status status_;
};

// Returns fn(value), value being of the type of stored blocks. The host stores
// double.
template <typename Machine, typename Function>
auto WithBlockType(bool mixed_precision, Function&& fn) {
  if constexpr (!kIsHost<Machine>) {
    if (mixed_precision) {
      return fn(float());
    }
  }
  return fn(double());
}

// Returns fn(columns), a std::integral_constant of those of a camera, 9 or 10.
template <typename Function>
auto WithCameraColumns(int columns, Function&& fn) {
  return columns == 9 ? fn(std::integral_constant<int, 9>())
                      : fn(std::integral_constant<int, 10>());
}

}  // namespace ceres_ext

#endif  // CERES_EXT_BASE_MACHINES_H_
