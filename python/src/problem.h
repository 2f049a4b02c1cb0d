// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// ceres_ext.ArrayProblem: a ceres_ext::ArrayProblem with all that it refers to.

#ifndef PYTHON_SRC_PROBLEM_H_
#define PYTHON_SRC_PROBLEM_H_

#include <memory>
#include <string>
#include <vector>

#include "ceres/manifold.h"
#include "ceres_ext/array_problem.h"
#include "nanobind/nanobind.h"

namespace ceres_ext::python {

class Problem {
 public:
  Problem() = default;
  Problem(const Problem&) = delete;
  Problem& operator=(const Problem&) = delete;

  int AddParameters(nanobind::object values,
                    nanobind::object constant,
                    nanobind::object manifold);
  void AddResiduals(const std::string& cost_function,
                    nanobind::object observations,
                    nanobind::object blocks,
                    nanobind::object loss,
                    nanobind::object weights);

  ArrayProblem* arrays() { return &arrays_; }
  const ArrayProblem& arrays() const { return arrays_; }

  // Marks the problem as being solved, in which it may not be changed nor be
  // solved by another thread; throws ValueError where it is.
  class Lock {
   public:
    explicit Lock(Problem* problem);
    ~Lock() { problem_->is_being_solved_ = false; }
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

   private:
    Problem* problem_;
  };

 private:
  void CheckUnlocked() const;

  ArrayProblem arrays_;
  // The arrays, losses and manifolds.
  std::vector<nanobind::object> kept_;
  // A manifold for each block, of the parameters that have several.
  std::vector<std::unique_ptr<ceres::Manifold*[]>> manifolds_;
  bool is_being_solved_ = false;
};

}  // namespace ceres_ext::python

#endif  // PYTHON_SRC_PROBLEM_H_
