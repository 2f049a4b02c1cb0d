// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "studies/explicit_w_impl.cuh"

namespace ceres_ext::bal {

using kernels::BalShape;
using kernels::CudaMachine;
using kernels::kDeviceLayout;
using kernels::RecomputedJacobian;
using kernels::Status;
using kernels::StoredJacobian;

#define CERES_EXT_INSTANTIATE(T)                                            \
  template Status Run(const ExplicitBlocksParams<                           \
                          StoredJacobian<T, BalShape<9>, kDeviceLayout>,    \
                          kDeviceLayout>&,                                  \
                      CudaMachine*);                                        \
  template Status Run(                                                      \
      const ExplicitBlocksParams<RecomputedJacobian<T, 9>, kDeviceLayout>&, \
      CudaMachine*);                                                        \
  template Status Run(                                                      \
      const SchurProductExplicitWParams<T, BalShape<9>, kDeviceLayout>&,    \
      CudaMachine*);                                                        \
  template Status Run(                                                      \
      const BackSubstituteExplicitWParams<T, BalShape<9>, kDeviceLayout>&,  \
      CudaMachine*);                                                        \
  template Status Run(                                                      \
      const NormalProductExplicitWParams<T, BalShape<9>, kDeviceLayout>&,   \
      CudaMachine*);

CERES_EXT_INSTANTIATE(double)
CERES_EXT_INSTANTIATE(float)
#undef CERES_EXT_INSTANTIATE

}  // namespace ceres_ext::bal
