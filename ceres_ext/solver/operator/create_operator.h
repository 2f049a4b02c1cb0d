// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The operator that options ask for.
#ifndef CERES_EXT_SOLVER_OPERATOR_CREATE_OPERATOR_H_
#define CERES_EXT_SOLVER_OPERATOR_CREATE_OPERATOR_H_

#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "ceres_ext/solver/operator/explicit_schur_complement.h"
#include "ceres_ext/solver/operator/linear_operator.h"
#include "ceres_ext/solver/operator/normal_matrix.h"
#include "ceres_ext/solver/operator/schur_complement.h"
#include "ceres_ext/solver/step_options.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/cuda_machine.h"
#include "cuda_kernels/machine/host_machine.h"

namespace ceres_ext::solver {

// f_varies: of each value of F whether it is an unknown, for S as a matrix.
// *schur: the operator, or null if it is not of S. kUnsupported: S as a
// matrix of a machine that replaces operations of the device.
template <typename Machine>
kernels::Status CreateOperator(
    const StepOptions& options,
    const std::vector<unsigned char>& f_varies,
    std::unique_ptr<LinearOperator<Machine>>* created,
    SchurComplement<Machine>** schur) {
  *schur = nullptr;
  if (!options.use_schur) {
    *created = std::make_unique<NormalMatrix<Machine>>();
    return {};
  }
  std::unique_ptr<SchurComplement<Machine>> result;
  if (!options.use_explicit_schur_complement) {
    result = std::make_unique<SchurComplement<Machine>>();
  } else if constexpr (std::is_same_v<Machine, kernels::HostMachine> ||
                       std::is_same_v<Machine, kernels::CudaMachine>) {
    result = std::make_unique<ExplicitSchurComplement<Machine>>(f_varies);
  } else {
    return {kernels::StatusCode::kUnsupported,
            "This machine has no Schur complement as a matrix."};
  }
  *schur = result.get();
  *created = std::move(result);
  return {};
}

}  // namespace ceres_ext::solver

#endif  // CERES_EXT_SOLVER_OPERATOR_CREATE_OPERATOR_H_
