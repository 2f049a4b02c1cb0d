// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/glue/linear_solver.h"

#include <type_traits>
#include <utility>

namespace ceres_ext {

using kernels::Status;

template <typename Machine, typename T, int C>
std::unique_ptr<BatchLinearSolver<Machine, T, C>>
BatchLinearSolver<Machine, T, C>::Create(const ceres_ext::Options& ext_options,
                                         const LinearSolver::Options& options,
                                         const BatchShape<Machine>* shape,
                                         SolveRecord* record,
                                         Status* status) {
  std::unique_ptr<BatchLinearSolver> linear_solver(
      new BatchLinearSolver(shape, record));
  record->method = MethodName(ext_options, options);
  const auto setup = [&]() -> Status {
    CERES_EXT_RETURN_IF_ERROR(linear_solver->vectors_.Allocate(shape));
    const auto solver_options = ToInexactSolverOptions(ext_options, options);
    return ext_options.jacobian == JACOBIAN_STORED
               ? linear_solver->stored_solver_.Setup(
                     solver_options, shape->index(), shape->machine())
               : linear_solver->recomputed_solver_.Setup(
                     solver_options, shape->index(), shape->machine());
  };
  *status = setup();
  return status->ok() ? std::move(linear_solver) : nullptr;
}

template <typename Machine, typename T, int C>
ceres::internal::LinearSolver::Summary
BatchLinearSolver<Machine, T, C>::SolveImpl(
    Jacobian* A,
    const double* b,
    const LinearSolver::PerSolveOptions& per_solve_options,
    double* x) {
  Status status = vectors_.SetDiagonal(per_solve_options.D);
  if (!status.ok()) {
    return FatalError(status);
  }
  const solver::InexactSolverPerSolveOptions per_solve{
      per_solve_options.q_tolerance, per_solve_options.r_tolerance};
  const solver::InexactSolverSummary summary = A->WithSource([&](auto source) {
    using Source = decltype(source);
    const solver::ObservationSystem<Source> system{
        source, b, vectors_.camera_diagonal(), vectors_.point_diagonal()};
    if constexpr (std::is_same_v<Source, typename Jacobian::Stored>) {
      return stored_solver_.Solve(
          system, per_solve, vectors_.camera_step(), vectors_.point_step());
    } else {
      return recomputed_solver_.Solve(
          system, per_solve, vectors_.camera_step(), vectors_.point_step());
    }
  });
  const auto result = ToCeresSummary(summary, record_);
  status = vectors_.GetStep(x);
  return status.ok() ? result : FatalError(status);
}

template <typename Machine, typename T, int C>
int64_t BatchLinearSolver<Machine, T, C>::bytes() const {
  return vectors_.bytes() + stored_solver_.bytes() + recomputed_solver_.bytes();
}

#define CERES_EXT_INSTANTIATE(Machine, T, C) \
  template class BatchLinearSolver<Machine, T, C>;
CERES_EXT_FOR_EACH_BATCH(CERES_EXT_INSTANTIATE)
#undef CERES_EXT_INSTANTIATE

}  // namespace ceres_ext
