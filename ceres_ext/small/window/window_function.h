// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// How the functions of a window's solve are compiled.
//
// On the host everything is one function, compiled for the processor's vectors.
// On a device each phase is a function, and has all registers. Values that do
// not fit go to main memory, because S leaves no room in the first cache.
// CERES_EXT_WINDOW_PART is a part of a phase, inlined on both.
// CERES_EXT_WINDOW_CALL is a function by itself on both.
#ifndef CERES_EXT_SMALL_WINDOW_WINDOW_FUNCTION_H_
#define CERES_EXT_SMALL_WINDOW_WINDOW_FUNCTION_H_

#ifdef __CUDACC__
#define CERES_EXT_WINDOW __host__ __device__ inline
#define CERES_EXT_WINDOW_PART __host__ __device__ __forceinline__
#define CERES_EXT_WINDOW_PHASE __host__ __device__ __noinline__
#define CERES_EXT_WINDOW_CALL __host__ __device__ __noinline__
#define CERES_EXT_WINDOW_UNROLL _Pragma("unroll")
#else
#define CERES_EXT_WINDOW_UNROLL
#define CERES_EXT_WINDOW inline __attribute__((always_inline))
#define CERES_EXT_WINDOW_PART CERES_EXT_WINDOW
#define CERES_EXT_WINDOW_PHASE CERES_EXT_WINDOW
#define CERES_EXT_WINDOW_CALL __attribute__((noinline))
#endif

#endif  // CERES_EXT_SMALL_WINDOW_WINDOW_FUNCTION_H_
