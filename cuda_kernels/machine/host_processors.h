// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// How many threads of the host can run at once, and how much memory they can
// take.
//
//   options.num_threads = NumUsableProcessors();
//
// std::thread::hardware_concurrency() counts the processors of the machine,
// also in a container that may use two of them. Thread safety: any thread may
// call.
#ifndef CERES_EXT_CUDA_KERNELS_MACHINE_HOST_PROCESSORS_H_
#define CERES_EXT_CUDA_KERNELS_MACHINE_HOST_PROCESSORS_H_

#include <cstdint>
#include <string>

namespace ceres_ext::kernels {

// Processors in the affinity mask of the calling thread, or fewer where a
// control group of the process has a smaller CPU quota, which is rounded up. At
// least 1. The first call reads the quota, which takes about 0.1 ms.
int NumUsableProcessors();

// The smallest CPU quota of the control groups of the process and of their
// parents, in processors: cpu.max of version 2, cpu.cfs_quota_us over
// cpu.cfs_period_us of version 1. Infinity where there is none. The files are
// read below `root`, "" for those of the system.
double ControlGroupQuota(const std::string& root);

// Bytes that the process can take without swapping: what the machine has left,
// or the control groups of the process and their parents (memory.max and
// memory.current of version 2, memory.limit_in_bytes and
// memory.usage_in_bytes of version 1). 0 where the machine does not say.
int64_t FreeHostMemory(const std::string& root);

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_MACHINE_HOST_PROCESSORS_H_
