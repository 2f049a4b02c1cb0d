// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// For comparison only: q = (J'J + D^2) p by cuSPARSE, from a Jacobian of
// StoredJacobian<double, kernels::BalShape<9>, kDeviceLayout>. Columns:
// cameras, then points.
//
//   kCsr           CSR of J, q = op_T(J) (op_N(J) p): what Ceres 2.2.0 does on
//                  CUDA (cuda_sparse_matrix.cc), the same algorithm choice
//   kCsrTransposed CSR of J and CSR of J', both op_N, analysed beforehand
//   kBsr           BSR of J'J in 3 x 3 blocks, filled from U, V and W
//
// BSR needs square blocks of one size, so it does not apply to J itself, whose
// blocks are 2 x 9 and 2 x 3.
#ifndef STUDIES_CUSPARSE_PRODUCTS_H_
#define STUDIES_CUSPARSE_PRODUCTS_H_

#include <cstdint>
#include <memory>

#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/cuda_context.h"
#include "cuda_kernels/model/jacobian_source.h"
#include "cuda_kernels/ops/normal_blocks.h"
#include "cuda_kernels/ops/schur_products.h"
#include "studies/explicit_w.h"

namespace ceres_ext::bal {

enum class CusparseForm { kCsr, kCsrTransposed, kBsr };

class CusparseProducts {
 public:
  using Source = kernels::
      StoredJacobian<double, kernels::BalShape<9>, kernels::kDeviceLayout>;

  CusparseProducts();
  ~CusparseProducts();

  // Structure; takes all memory. kUnsupported where an offset needs more than
  // 32 bits.
  kernels::Status Setup(const kernels::ObservationIndexRef& index,
                        CusparseForm form,
                        kernels::CudaContext* context);

  // Values of J, for the two CSR forms.
  kernels::Status SetJacobian(const Source& jacobian);
  // Values of J'J, for kBsr.
  kernels::Status SetBlocks(
      const ExplicitBlocksParams<Source, kernels::kDeviceLayout>& blocks);

  // camera_p and point_p must be one vector, camera_q and point_q as well.
  kernels::Status Multiply(
      const kernels::NormalProductImplicitWParams<Source>& params);
  kernels::Status Multiply(
      const NormalProductExplicitWParams<double,
                                         kernels::BalShape<9>,
                                         kernels::kDeviceLayout>& params);

  // Matrix bytes that one product reads.
  int64_t bytes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ceres_ext::bal

#endif  // STUDIES_CUSPARSE_PRODUCTS_H_
