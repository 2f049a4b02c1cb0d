// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// There is no cuSPARSE on the host: setting it up fails, so the study must
// continue without it.
#include "studies/cusparse_products.h"

namespace ceres_ext::bal {

using kernels::Status;
using kernels::StatusCode;

struct CusparseProducts::Impl {};

CusparseProducts::CusparseProducts() = default;
CusparseProducts::~CusparseProducts() = default;

Status CusparseProducts::Setup(const kernels::ObservationIndexRef& /*index*/,
                               CusparseForm form,
                               kernels::CudaContext* /*context*/) {
  return form == CusparseForm::kBsr
             ? Status(StatusCode::kUnsupported, "no BSR")
             : Status(StatusCode::kOutOfMemory, "no memory");
}
Status CusparseProducts::SetJacobian(const Source& /*jacobian*/) { return {}; }
Status CusparseProducts::SetBlocks(
    const ExplicitBlocksParams<Source, kernels::kDeviceLayout>&
    /*blocks*/) {
  return {};
}
Status CusparseProducts::Multiply(
    const kernels::NormalProductImplicitWParams<Source>& /*params*/) {
  return {};
}
Status CusparseProducts::Multiply(
    const NormalProductExplicitWParams<double,
                                       kernels::BalShape<9>,
                                       kernels::kDeviceLayout>&
    /*params*/) {
  return {};
}
int64_t CusparseProducts::bytes() const { return 0; }

}  // namespace ceres_ext::bal
