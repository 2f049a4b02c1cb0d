// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The machines that the study compares with those of the project:
//
//   BlockContiguousMachine    the same code with block-contiguous arrays
//   PaperMachine              the paper's kernels (paper_kernels.h)
//   CusparseMachine           CudaMachine with (J'J + D^2) p by cuSPARSE
//
// Each is a CudaMachine with overloads of Run for what it does its own way.
#ifndef STUDIES_STUDY_MACHINES_H_
#define STUDIES_STUDY_MACHINES_H_

#include <cstdint>

#include "cuda_kernels/machine/cuda_machine.h"
#include "cuda_kernels/model/jacobian_source.h"
#include "cuda_kernels/ops/evaluate.h"
#include "cuda_kernels/ops/normal_blocks.h"
#include "cuda_kernels/ops/schur_products.h"
#include "studies/cusparse_products.h"
#include "studies/explicit_w.h"
#include "studies/paper_kernels.h"

namespace ceres_ext::bal {

// For StoredJacobian<double, kernels::BalShape<9>, kBlockContiguous>, whose
// instances are in block_contiguous_kernels.cu.cc.
class BlockContiguousMachine : public kernels::CudaMachine {
 public:
  static constexpr kernels::BlockLayout kLayout =
      kernels::BlockLayout::kBlockContiguous;
  using Source = kernels::StoredJacobian<double, kernels::BalShape<9>, kLayout>;
};

// Without Schur complement only: implicit W for the CSR forms, explicit for
// BSR.
class CusparseMachine : public kernels::CudaMachine {
 public:
  using Source = CusparseProducts::Source;

  kernels::Status SetupProducts(const kernels::ObservationIndexRef& index,
                                CusparseForm form) {
    form_ = form;
    return products_.Setup(index, form, context());
  }
  CusparseForm form() const { return form_; }
  CusparseProducts* products() { return &products_; }

 private:
  CusparseForm form_ = CusparseForm::kCsr;
  CusparseProducts products_;
};

inline kernels::Status Run(
    const kernels::EvaluateJacobianParams<double, 9, kernels::kDeviceLayout>&
        params,
    CusparseMachine* machine) {
  kernels::CudaMachine* cuda = machine;
  CERES_EXT_RETURN_IF_ERROR(Run(params, cuda));
  if (machine->form() == CusparseForm::kBsr) {
    return {};
  }
  return machine->products()->SetJacobian(
      {params.camera_blocks, params.point_blocks});
}
inline kernels::Status Run(
    const ExplicitBlocksParams<CusparseMachine::Source, kernels::kDeviceLayout>&
        params,
    CusparseMachine* machine) {
  kernels::CudaMachine* cuda = machine;
  CERES_EXT_RETURN_IF_ERROR(Run(params, cuda));
  return machine->form() == CusparseForm::kBsr
             ? machine->products()->SetBlocks(params)
             : kernels::Status();
}
inline kernels::Status Run(const kernels::NormalProductImplicitWParams<
                               CusparseMachine::Source>& params,
                           CusparseMachine* machine) {
  return machine->products()->Multiply(params);
}
inline kernels::Status Run(
    const NormalProductExplicitWParams<double,
                                       kernels::BalShape<9>,
                                       kernels::kDeviceLayout>& params,
    CusparseMachine* machine) {
  return machine->products()->Multiply(params);
}

}  // namespace ceres_ext::bal

#endif  // STUDIES_STUDY_MACHINES_H_
