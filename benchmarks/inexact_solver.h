// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The step solver (step_solver.h) on one batch of observations, for those who
// have nothing else: benchmarks, the study, tests.
//
//   InexactSolver<HostMachine, RecomputedJacobian<double, 9>> solver;
//   Status status = solver.Setup(options, index.ref(), &machine);
//   system.jacobian = ...; system.b = ...;
//   StepSummary summary =
//       solver.Solve(system, per_solve, camera_step, point_step);
#ifndef CERES_EXT_BENCHMARKS_INEXACT_SOLVER_H_
#define CERES_EXT_BENCHMARKS_INEXACT_SOLVER_H_

#include <cstdint>

#include "ceres_ext/solver/batch.h"
#include "ceres_ext/solver/observation_batch.h"
#include "ceres_ext/solver/step_options.h"
#include "ceres_ext/solver/step_solver.h"
#include "cuda_kernels/base/block_ref.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/model/jacobian_source.h"
#include "cuda_kernels/model/shape.h"
#include "cuda_kernels/structure/observation_index.h"

namespace ceres_ext::solver {

// Arrays in the memory of the machine, in the order of the observation index.
template <typename Source>
struct ObservationSystem {
  Source jacobian;
  const double* b = nullptr;                // R per observation
  const double* camera_diagonal = nullptr;  // D_f, F per camera; null: zero
  const double* point_diagonal = nullptr;   // D_e, E per point; null: zero
};

template <typename T, int C>
using HostStoredJacobian =
    kernels::StoredJacobian<T, kernels::BalShape<C>, kernels::kHostLayout>;

// BatchType: ObservationBatch, or one that is set up as it is.
template <typename Machine,
          typename Source,
          typename BatchType = ObservationBatch<Machine, Source>>
class InexactSolver {
 public:
  using Shape = typename Source::Shape;

  // As StepSolver::Setup. The views of the index and the machine must outlive
  // the solver.
  kernels::Status Setup(const StepOptions& options,
                        const kernels::ObservationIndexRef& index,
                        Machine* machine) {
    batch_.Setup(index, 0, 0, machine);
    ProblemBlocks blocks;
    blocks.e.Add(Shape::kE, index.num_points);
    blocks.f.Add(Shape::kF, index.num_cameras);
    blocks.e_owner = {0};
    blocks.f_owner = {0};
    return solver_.Setup(options, blocks, {&batch_}, machine);
  }

  // Judges the Jacobian as it is: StepSolver::FindDegenerateBlocks.
  kernels::Status FindDegenerateBlocks(const ObservationSystem<Source>& system,
                                       const double* point_padding,
                                       const double* camera_padding,
                                       DegenerateBlocks* points,
                                       DegenerateBlocks* cameras) {
    batch_.SetJacobian(system.jacobian);
    return solver_.FindDegenerateBlocks(
        point_padding, camera_padding, points, cameras);
  }

  // camera_step: F per camera; point_step: E per point.
  StepSummary Solve(const ObservationSystem<Source>& system,
                    const StepPerSolveOptions& per_solve,
                    double* camera_step,
                    double* point_step) {
    batch_.SetJacobian(system.jacobian);
    return solver_.Solve(
        {system.b, system.point_diagonal, system.camera_diagonal},
        per_solve,
        point_step,
        camera_step);
  }

 private:
  BatchType batch_;
  StepSolver<Machine> solver_;
};

}  // namespace ceres_ext::solver

#endif  // CERES_EXT_BENCHMARKS_INEXACT_SOLVER_H_
