// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Schur and normal products, back-substitution and J'y with stored
// Jacobians.
#include "cuda_kernels/cuda/schur_products_impl.cuh"

namespace ceres_ext::kernels {

#define CERES_EXT_INSTANTIATE(T, C)                                        \
  template Status Run(const SchurProductImplicitWParams<                   \
                          StoredJacobian<T, BalShape<C>, kDeviceLayout>,   \
                          kDeviceLayout>&,                                 \
                      CudaMachine*);                                       \
  template Status Run(const BackSubstituteImplicitWParams<                 \
                          StoredJacobian<T, BalShape<C>, kDeviceLayout>,   \
                          kDeviceLayout>&,                                 \
                      CudaMachine*);                                       \
  template Status Run(const NormalProductImplicitWParams<                  \
                          StoredJacobian<T, BalShape<C>, kDeviceLayout>>&, \
                      CudaMachine*);                                       \
  template Status Run(const LeftMultiplyParams<                            \
                          StoredJacobian<T, BalShape<C>, kDeviceLayout>>&, \
                      CudaMachine*);

CERES_EXT_INSTANTIATE(double, 9)
CERES_EXT_INSTANTIATE(double, 10)
CERES_EXT_INSTANTIATE(float, 9)
CERES_EXT_INSTANTIATE(float, 10)
#undef CERES_EXT_INSTANTIATE

}  // namespace ceres_ext::kernels
