// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A problem of arrays (ceres_ext/array_problem.h) as a ceres::Problem: for what
// the arrays alone can't be solved with. An object per block, as in any
// ceres::Problem.

#ifndef CERES_EXT_IMPORT_PROBLEM_OF_ARRAYS_H_
#define CERES_EXT_IMPORT_PROBLEM_OF_ARRAYS_H_

#include <memory>
#include <vector>

#include "ceres/cost_function.h"
#include "ceres/loss_function.h"
#include "ceres/ordered_groups.h"
#include "ceres/problem.h"
#include "ceres_ext/array_problem.h"

namespace ceres_ext {

class ProblemOfArrays {
 public:
  // arrays: valid; they outlive this object.
  explicit ProblemOfArrays(const ArrayProblem& arrays);

  ceres::Problem* problem() { return problem_.get(); }

  // Eliminates the blocks of the array with is_eliminated first; null if no
  // array has it or nothing in it varies.
  std::shared_ptr<ceres::ParameterBlockOrdering> MakeOrdering() const;

 private:
  const ArrayProblem& arrays_;
  // The problem owns nothing, and goes first.
  std::vector<std::unique_ptr<const ceres::CostFunction>> cost_functions_;
  std::vector<std::unique_ptr<ceres::LossFunction>> losses_;
  std::unique_ptr<ceres::Problem> problem_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_IMPORT_PROBLEM_OF_ARRAYS_H_
