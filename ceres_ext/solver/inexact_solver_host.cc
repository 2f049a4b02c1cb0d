// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "ceres_ext/solver/inexact_solver_host.h"

namespace ceres_ext::solver {

template class StepSolver<kernels::HostMachine>;
template class ObservationBatch<kernels::HostMachine,
                                HostStoredJacobian<double, 9>>;
template class ObservationBatch<kernels::HostMachine,
                                HostStoredJacobian<double, 10>>;
template class ObservationBatch<kernels::HostMachine,
                                HostStoredJacobian<float, 9>>;
template class ObservationBatch<kernels::HostMachine,
                                HostStoredJacobian<float, 10>>;
template class ObservationBatch<kernels::HostMachine,
                                kernels::RecomputedJacobian<double, 9>>;
template class ObservationBatch<kernels::HostMachine,
                                kernels::RecomputedJacobian<double, 10>>;

}  // namespace ceres_ext::solver
