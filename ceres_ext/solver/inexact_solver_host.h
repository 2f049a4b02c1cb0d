// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The step solver on the host, and batches for each Jacobian source, compiled
// once.
#ifndef CERES_EXT_SOLVER_INEXACT_SOLVER_HOST_H_
#define CERES_EXT_SOLVER_INEXACT_SOLVER_HOST_H_

#include "ceres_ext/solver/inexact_solver.h"
#include "cuda_kernels/machine/host_machine.h"
#include "cuda_kernels/model/jacobian_source.h"

namespace ceres_ext::solver {

template <typename T, int C>
using HostStoredJacobian =
    kernels::StoredJacobian<T, kernels::BalShape<C>, kernels::kHostLayout>;

extern template class StepSolver<kernels::HostMachine>;
extern template class ObservationBatch<kernels::HostMachine,
                                       HostStoredJacobian<double, 9>>;
extern template class ObservationBatch<kernels::HostMachine,
                                       HostStoredJacobian<double, 10>>;
extern template class ObservationBatch<kernels::HostMachine,
                                       HostStoredJacobian<float, 9>>;
extern template class ObservationBatch<kernels::HostMachine,
                                       HostStoredJacobian<float, 10>>;
extern template class ObservationBatch<kernels::HostMachine,
                                       kernels::RecomputedJacobian<double, 9>>;
extern template class ObservationBatch<kernels::HostMachine,
                                       kernels::RecomputedJacobian<double, 10>>;

}  // namespace ceres_ext::solver

#endif  // CERES_EXT_SOLVER_INEXACT_SOLVER_HOST_H_
