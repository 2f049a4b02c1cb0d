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

#define CERES_EXT_INSTANTIATE_STORED(C) \
  CERES_EXT_INSTANTIATE(double, C)      \
  CERES_EXT_INSTANTIATE(float, C)
CERES_EXT_FOR_EACH_STORED_COLUMNS(CERES_EXT_INSTANTIATE_STORED)
#undef CERES_EXT_INSTANTIATE_STORED
#undef CERES_EXT_INSTANTIATE

}  // namespace ceres_ext::kernels
