// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#ifndef CERES_EXT_BENCHMARKS_DEVICE_RESOURCES_H_
#define CERES_EXT_BENCHMARKS_DEVICE_RESOURCES_H_

namespace ceres_ext {

// Prints a line of JSON with the resources of a CUDA device, or on standard
// error why it cannot be read.
void PrintDeviceResources(int device);

}  // namespace ceres_ext

#endif  // CERES_EXT_BENCHMARKS_DEVICE_RESOURCES_H_
