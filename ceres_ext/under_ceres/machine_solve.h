// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// One session and what Ceres is given of it for one solve.

#ifndef CERES_EXT_UNDER_CERES_MACHINE_SOLVE_H_
#define CERES_EXT_UNDER_CERES_MACHINE_SOLVE_H_

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "ceres/evaluator.h"
#include "ceres/linear_solver.h"
#include "ceres/preprocessor.h"
#include "ceres/trust_region_vectors.h"
#include "ceres_ext/base/failure.h"
#include "ceres_ext/import/problem_structure.h"
#include "ceres_ext/plan/solve_plan.h"
#include "ceres_ext/session/covariance_blocks.h"
#include "ceres_ext/session/kept_machines.h"
#include "ceres_ext/summary.h"
#include "cuda_kernels/base/status.h"

namespace ceres_ext {

// Until Ceres takes them.
struct ProgramObjects {
  std::unique_ptr<ceres::internal::Evaluator> evaluator;
  std::unique_ptr<ceres::internal::LinearSolver> linear_solver;
  std::shared_ptr<ceres::internal::TrustRegionVectors> vectors;
};

// Outlives everything that it makes.
class MachineSolve {
 public:
  virtual ~MachineSolve() = default;

  // Makes evaluator, linear solver and vectors of *pp; null objects: nothing of
  // the kind, for a covariance. All memory of the solve is taken here. As
  // Session::Setup.
  virtual kernels::Status Setup(const SolvePlan& plan,
                                ProblemStructure* structure,
                                ceres::internal::PreprocessedProblem* pp,
                                Failure* failure,
                                Summary* record,
                                ProgramObjects* objects) = 0;

  // After Setup, with exact steps.
  virtual kernels::Status ComputeCovariance(const CovarianceWanted& wanted,
                                            CovarianceFound* found) = 0;

  // At the end of a solve: Session::FindRunawayResiduals.
  virtual kernels::Status FindRunawayResiduals(
      std::vector<RunawayResidual>* worst) = 0;

  // The result of Session.
  virtual int64_t copied_bytes() const = 0;
  virtual bool IsAlive() const = 0;
  virtual bool has_float_blocks() const = 0;
  virtual const std::set<std::string>& notes() const = 0;
  virtual std::vector<int> NumBlocks() const = 0;
  virtual int64_t num_host_rows() const = 0;
};

template <typename Machine>
std::unique_ptr<MachineSolve> CreateMachineSolve(
    std::shared_ptr<KeptMachine<Machine>> kept);

}  // namespace ceres_ext

#endif  // CERES_EXT_UNDER_CERES_MACHINE_SOLVE_H_
