// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The inexact-step solver as the Ceres linear solver of PATH_LINEAR_SOLVER: it
// copies the Jacobian that Ceres evaluated into padded blocks in point order,
// on the machine that solves, once per linear solve. Ceres's vectors are in
// host memory.
//
// Structure is read once, at the first solve: all matrices of one object have
// the same, as for every Ceres linear solver.

#ifndef CERES_EXT_GLUE_ROW_LINEAR_SOLVER_H_
#define CERES_EXT_GLUE_ROW_LINEAR_SOLVER_H_

#include <memory>
#include <string>

#include "ceres/linear_solver.h"
#include "ceres/program.h"
#include "ceres_ext/glue/machines.h"
#include "ceres_ext/glue/program_import.h"
#include "ceres_ext/glue/solve_record.h"
#include "ceres_ext/options.h"
#include "cuda_kernels/machine/host_context.h"
#include "cuda_kernels/structure/row_index.h"

namespace ceres_ext {

// Null, with the reason, for a program that ImportRows refuses or for which
// there is no memory. *host_context, *machine and *record outlive the solver.
template <typename Machine>
std::unique_ptr<ceres::internal::LinearSolver> CreateRowLinearSolver(
    const Options& ext_options,
    const ceres::internal::LinearSolver::Options& options,
    const ceres::internal::Program& program,
    const typename kernels::RowIndex<Machine>::Options& index_options,
    kernels::HostContext* host_context,
    Machine* machine,
    SolveRecord* record,
    std::string* reason);

}  // namespace ceres_ext

#endif  // CERES_EXT_GLUE_ROW_LINEAR_SOLVER_H_
