// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The memory of the process on CUDA devices, and the properties of a device
// before there is work for it. Devices are named by the runtime's numbers.
//
// Thread safe. Host-includable: needs no CUDA toolkit.
#ifndef CERES_EXT_CUDA_KERNELS_MACHINE_CUDA_PROCESS_H_
#define CERES_EXT_CUDA_KERNELS_MACHINE_CUDA_PROCESS_H_

#include <atomic>
#include <cstdint>
#include <string>

namespace ceres_ext::kernels {

// Bytes that all CudaContexts of the process hold on the device.
std::atomic<int64_t>& ProcessBytes(int device);

// The driver's context that is current for the calling thread; null: none, or
// the process has not loaded the driver.
void* CurrentDriverContext();
void SetCurrentDriverContext(void* context);

// Sets how strictly CUDA treats calls of this thread while any thread captures
// a stream (cuThreadExchangeStreamCaptureMode; *mode: 0 global, 1 of the
// thread, 2 relaxed), and *mode to what it was. False before the process has
// started the driver.
bool ExchangeCaptureMode(int* mode);

// The driver's number of an allocation in the current context, which no other
// of the process ever has. 0: there is none of that address (any more), or an
// error has left the context without use.
uint64_t DriverAllocationId(const void* data);

// True if the system has the device files of a driver for NVIDIA's GPUs. Takes
// microseconds and loads nothing.
bool HasDriverFiles();

// The clause that NumCudaDevices (cuda_context.h) gives without a driver.
inline constexpr char kNoCudaDriver[] = "no CUDA driver is installed";

// False only if no driver is installed, as CUDA's runtime finds it. Loads the
// driver, but does not start it.
bool HasCudaDriver();

// True if the process has the CUDA context that the runtime computes in, which
// takes time to make. Makes none and does not start the driver.
bool HasRuntimeContext(int device);

// True if the driver has a device, and supports a runtime of this major
// version. Loads and starts the driver, for callers that are about to.
bool HasDriverDevice(int runtime_major_version);

// How many times the rate of float is that of double on the device: 2 on those
// for computing, 32 or 64 on those for displays; 0 where the driver is not
// started or does not say.
int FloatToDoubleRatio(int device);

// The device's name as the driver has it, "NVIDIA H200", and the driver's
// version with the newest CUDA that it supports, "580.159.04, CUDA 13000".
// Empty where the driver is not started.
std::string DriverDeviceName(int device);
std::string DriverVersion();

// True if a profiler, sanitizer or debugger is found at the process: by what
// Nsight Systems, Nsight Compute and compute-sanitizer set in the environment
// of a process that they start, or since somebody traces the process, as
// cuda-gdb does.
bool IsUnderTool();

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_MACHINE_CUDA_PROCESS_H_
