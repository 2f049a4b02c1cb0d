// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Schur and normal products, back-substitution and J'y with recomputed
// Jacobians.
#include "cuda_kernels/cuda/schur_products_impl.cuh"

namespace ceres_ext::kernels {

#define CERES_EXT_INSTANTIATE CERES_EXT_INSTANTIATE_PRODUCTS
CERES_EXT_FOR_EACH_RECOMPUTED(CERES_EXT_INSTANTIATE_RECOMPUTED)
#undef CERES_EXT_INSTANTIATE

}  // namespace ceres_ext::kernels
