// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Ceres's host vectors with the one sum that its threads would reorder, the
// change of the model cost, in a fixed order.

#ifndef CERES_EXT_GLUE_ORDERED_VECTORS_H_
#define CERES_EXT_GLUE_ORDERED_VECTORS_H_

#include <vector>

#include "ceres/trust_region_vectors.h"
#include "cuda_kernels/host_context.h"

namespace ceres_ext {

class OrderedVectors final : public ceres::internal::HostTrustRegionVectors {
 public:
  // max_size: the largest n of ModelCostChange.
  OrderedVectors(ceres::internal::ContextImpl* ceres_context,
                 int num_threads,
                 int max_size,
                 kernels::HostContext* context);

  // -(J step)'(f + J step / 2), summed over chunks of fixed size and then over
  // the chunks in their order.
  bool ModelCostChange(int n,
                       const double* residuals,
                       const double* model_residuals,
                       double* model_cost_change) override;

 private:
  kernels::HostContext* context_;
  std::vector<double> partial_sums_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_GLUE_ORDERED_VECTORS_H_
