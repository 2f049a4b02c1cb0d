// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include <cuda_runtime_api.h>

#include <cstdio>

#include "benchmarks/device_resources.h"

namespace ceres_ext {

void PrintDeviceResources(int device) {
  cudaDeviceProp properties;
  int clock_khz = 0;
  int memory_clock_khz = 0;
  int driver = 0;
  cudaError_t error = cudaGetDeviceProperties(&properties, device);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&clock_khz, cudaDevAttrClockRate, device);
  }
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(
        &memory_clock_khz, cudaDevAttrMemoryClockRate, device);
  }
  if (error == cudaSuccess) {
    error = cudaDriverGetVersion(&driver);
  }
  if (error != cudaSuccess) {
    std::fprintf(stderr, "no resources: %s\n", cudaGetErrorString(error));
    return;
  }
  // Two transfers per clock; 128 bytes per clock and multiprocessor.
  const double memory_gb_per_second =
      2e3 * memory_clock_khz * properties.memoryBusWidth / 8.0 / 1e9;
  const double shared_gb_per_second =
      1e3 * clock_khz * 128.0 * properties.multiProcessorCount / 1e9;
  std::printf(
      "{\"mode\": \"resources\", \"device\": \"%s\", "
      "\"compute_capability\": \"%d.%d\", \"cuda_driver\": %d, "
      "\"multiprocessors\": %d, \"threads_per_multiprocessor\": %d, "
      "\"registers_per_block\": %d, \"shared_kb_per_multiprocessor\": %.0f, "
      "\"shared_kb_per_block\": %.0f, \"l2_mb\": %.1f, \"memory_gb\": %.1f, "
      "\"memory_gb_per_second\": %.1f, \"shared_gb_per_second\": %.0f}\n",
      properties.name,
      properties.major,
      properties.minor,
      driver,
      properties.multiProcessorCount,
      properties.maxThreadsPerMultiProcessor,
      properties.regsPerBlock,
      static_cast<double>(properties.sharedMemPerMultiprocessor) / 1024.0,
      static_cast<double>(properties.sharedMemPerBlockOptin) / 1024.0,
      properties.l2CacheSize / 1048576.0,
      static_cast<double>(properties.totalGlobalMem) / 1e9,
      memory_gb_per_second,
      shared_gb_per_second);
  std::fflush(stdout);
}

}  // namespace ceres_ext
