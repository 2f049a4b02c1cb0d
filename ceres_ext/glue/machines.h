// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The machines of this build. The only file of the glue that asks whether there
// is CUDA.

#ifndef CERES_EXT_GLUE_MACHINES_H_
#define CERES_EXT_GLUE_MACHINES_H_

#include <type_traits>

#include "cuda_kernels/machine/cuda_machine.h"
#include "cuda_kernels/machine/host_machine.h"

// X(machine), and X(machine, type of stored blocks, columns of a camera), for
// every combination that is compiled.
#define CERES_EXT_FOR_EACH_HOST_BATCH(X)          \
  X(::ceres_ext::kernels::HostMachine, double, 9) \
  X(::ceres_ext::kernels::HostMachine, double, 10)
#ifdef CERES_EXT_WITH_CUDA
#define CERES_EXT_FOR_EACH_MACHINE(X)  \
  X(::ceres_ext::kernels::HostMachine) \
  X(::ceres_ext::kernels::CudaMachine)
#define CERES_EXT_FOR_EACH_BATCH(X)                \
  CERES_EXT_FOR_EACH_HOST_BATCH(X)                 \
  X(::ceres_ext::kernels::CudaMachine, double, 9)  \
  X(::ceres_ext::kernels::CudaMachine, double, 10) \
  X(::ceres_ext::kernels::CudaMachine, float, 9)   \
  X(::ceres_ext::kernels::CudaMachine, float, 10)
#else
#define CERES_EXT_FOR_EACH_MACHINE(X) X(::ceres_ext::kernels::HostMachine)
#define CERES_EXT_FOR_EACH_BATCH(X) CERES_EXT_FOR_EACH_HOST_BATCH(X)
#endif

namespace ceres_ext {

#ifdef CERES_EXT_WITH_CUDA
inline constexpr bool kHasCuda = true;
#else
inline constexpr bool kHasCuda = false;
#endif

template <typename Machine>
inline constexpr bool kIsHost = std::is_same_v<Machine, kernels::HostMachine>;

}  // namespace ceres_ext

#endif  // CERES_EXT_GLUE_MACHINES_H_
