// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// J'J + D^2 as batches apply it, unknowns of F before those of E.
#ifndef CERES_EXT_SOLVER_OPERATOR_NORMAL_MATRIX_H_
#define CERES_EXT_SOLVER_OPERATOR_NORMAL_MATRIX_H_

#include <cstdint>
#include <vector>

#include "ceres_ext/solver/operator/linear_operator.h"
#include "cuda_kernels/base/pcg_scalars.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/base/vector_space.h"
#include "cuda_kernels/ops/vectors.h"

namespace ceres_ext::solver {

template <typename Machine>
class NormalMatrix final : public LinearOperator<Machine> {
 public:
  kernels::VectorSpace space() const final {
    return {blocks_.f.num_values(), blocks_.e.num_values()};
  }

  kernels::Status Update(const LinearSystem& system,
                         const NormalBlocksRequest& wanted,
                         double* rhs) final {
    system_ = system;
    NormalBlocksRequest request = wanted;
    request.eliminate = false;
    // rhs = J'b
    request.f_gradient = rhs;
    request.e_gradient = rhs + blocks_.f.num_values();
    CERES_EXT_RETURN_IF_ERROR(this->SetSharedToZero(request));
    CERES_EXT_RETURN_IF_ERROR(this->Ask(&Batch::EliminatedBlocks, &request));
    return this->Ask(&Batch::OtherBlocks, &request);
  }

  kernels::Status Multiply(const double* p,
                           double* q,
                           const kernels::PcgScalars* scalars) final {
    ProductRequest request;
    request.eliminate = false;
    request.e_diagonal = system_.e_diagonal;
    request.f_diagonal = system_.f_diagonal;
    request.f_p = p;
    request.e_p = p + blocks_.f.num_values();
    request.f_q = q;
    request.e_q = q + blocks_.f.num_values();
    request.scalars = scalars;
    CERES_EXT_RETURN_IF_ERROR(this->SetShared(this->shared_f_,
                                              system_.f_diagonal,
                                              request.f_p,
                                              request.f_q,
                                              scalars));
    CERES_EXT_RETURN_IF_ERROR(this->SetShared(this->shared_e_,
                                              system_.e_diagonal,
                                              request.e_p,
                                              request.e_q,
                                              scalars));
    for (Batch* batch : this->batches_) {
      CERES_EXT_RETURN_IF_ERROR(batch->Multiply(request));
    }
    return {};
  }

  kernels::Status Finish(const double* x,
                         double* e_step,
                         double* f_step) final {
    const int64_t num_f = blocks_.f.num_values();
    CERES_EXT_RETURN_IF_ERROR(
        Run(kernels::CopyParams{num_f, x, f_step}, machine_));
    return Run(kernels::CopyParams{blocks_.e.num_values(), x + num_f, e_step},
               machine_);
  }

 private:
  using Base = LinearOperator<Machine>;
  using Base::blocks_;
  using Base::machine_;
  using Base::system_;
};

}  // namespace ceres_ext::solver

#endif  // CERES_EXT_SOLVER_OPERATOR_NORMAL_MATRIX_H_
