// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The machines of this build. The only file of the glue that asks whether there
// is CUDA.

#ifndef CERES_EXT_GLUE_MACHINES_H_
#define CERES_EXT_GLUE_MACHINES_H_

#include <type_traits>

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

template <typename Machine>
inline constexpr bool kIsHost = std::is_same_v<Machine, kernels::HostMachine>;

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

#endif  // CERES_EXT_GLUE_MACHINES_H_
