// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Schur and normal products, back-substitution and J'y with recomputed
// Jacobians.
#include "cuda_kernels/cuda/schur_products_impl.cuh"

namespace ceres_ext::kernels {

#define CERES_EXT_INSTANTIATE(...)                                          \
  template Status Run(                                                      \
      const SchurProductImplicitWParams<RecomputedJacobian<__VA_ARGS__>,    \
                                        kDeviceLayout>&,                    \
      CudaMachine*);                                                        \
  template Status Run(                                                      \
      const BackSubstituteImplicitWParams<RecomputedJacobian<__VA_ARGS__>,  \
                                          kDeviceLayout>&,                  \
      CudaMachine*);                                                        \
  template Status Run(                                                      \
      const NormalProductImplicitWParams<RecomputedJacobian<__VA_ARGS__>>&, \
      CudaMachine*);                                                        \
  template Status Run(                                                      \
      const LeftMultiplyParams<RecomputedJacobian<__VA_ARGS__>>&,           \
      CudaMachine*);
CERES_EXT_FOR_EACH_RECOMPUTED(CERES_EXT_INSTANTIATE)
#undef CERES_EXT_INSTANTIATE

}  // namespace ceres_ext::kernels
