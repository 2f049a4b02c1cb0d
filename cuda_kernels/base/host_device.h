// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Marks functions that exist on the host and on the device.
#ifndef CERES_EXT_CUDA_KERNELS_BASE_HOST_DEVICE_H_
#define CERES_EXT_CUDA_KERNELS_BASE_HOST_DEVICE_H_

#ifdef __CUDACC__
#define CERES_EXT_HOST_DEVICE __host__ __device__
#else
#define CERES_EXT_HOST_DEVICE
#endif

#endif  // CERES_EXT_CUDA_KERNELS_BASE_HOST_DEVICE_H_
