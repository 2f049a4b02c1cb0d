// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/glue/batch_linear_solver.h"

#include <type_traits>

namespace ceres_ext {

using kernels::Status;

template <int C>
std::unique_ptr<BatchLinearSolver<C>> BatchLinearSolver<C>::Create(
    const Options& ext_options,
    const LinearSolver::Options& options,
    BatchShape* shape,
    SolveRecord* record,
    Status* status) {
  std::unique_ptr<BatchLinearSolver> linear_solver(
      new BatchLinearSolver(shape, record));
  record->method = MethodName(ext_options, options);
  const auto setup = [&]() -> Status {
    CERES_EXT_RETURN_IF_ERROR(linear_solver->vectors_.Allocate(
        &shape->cameras, &shape->points, shape->context));
    const auto solver_options = ToInexactSolverOptions(ext_options, options);
    return ext_options.jacobian == JACOBIAN_STORED
               ? linear_solver->stored_solver_.Setup(solver_options,
                                                     &shape->backend)
               : linear_solver->recomputed_solver_.Setup(solver_options,
                                                         &shape->backend);
  };
  *status = setup();
  return status->ok() ? std::move(linear_solver) : nullptr;
}

template <int C>
ceres::internal::LinearSolver::Summary BatchLinearSolver<C>::SolveImpl(
    BatchJacobian<C>* A,
    const double* b,
    const LinearSolver::PerSolveOptions& per_solve_options,
    double* x) {
  vectors_.SetDiagonal(per_solve_options.D);
  const solver::InexactSolverPerSolveOptions per_solve{
      per_solve_options.q_tolerance, per_solve_options.r_tolerance};
  const solver::InexactSolverSummary summary = A->WithSource([&](auto source) {
    using Source = decltype(source);
    const solver::LinearSystem<Source> system{
        source, b, vectors_.camera_diagonal(), vectors_.point_diagonal()};
    if constexpr (std::is_same_v<Source, typename BatchJacobian<C>::Stored>) {
      return stored_solver_.Solve(
          system, per_solve, vectors_.camera_step(), vectors_.point_step());
    } else {
      return recomputed_solver_.Solve(
          system, per_solve, vectors_.camera_step(), vectors_.point_step());
    }
  });
  vectors_.GetStep(x);
  return ToCeresSummary(summary, record_);
}

template <int C>
int64_t BatchLinearSolver<C>::memory_bytes() const {
  return vectors_.memory_bytes() + stored_solver_.bytes() +
         recomputed_solver_.bytes();
}

template class BatchLinearSolver<9>;
template class BatchLinearSolver<10>;

}  // namespace ceres_ext
