// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "cuda_kernels/cuda/preconditioner_impl.cuh"

namespace ceres_ext::kernels {

#define CERES_EXT_INSTANTIATE(N)                                          \
  template Status Run(const InvertBlockDiagonalParams<N, kDeviceLayout>&, \
                      CudaMachine*);                                      \
  template Status Run(const ApplyBlockDiagonalParams<N, kDeviceLayout>&,  \
                      CudaMachine*)

CERES_EXT_INSTANTIATE(3);
CERES_EXT_INSTANTIATE(9);
CERES_EXT_INSTANTIATE(10);
#undef CERES_EXT_INSTANTIATE

}  // namespace ceres_ext::kernels
