// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// ceres_ext.ArrayProblem: a ceres_ext::ArrayProblem with all that it refers to.

#ifndef PYTHON_SRC_PROBLEM_H_
#define PYTHON_SRC_PROBLEM_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ceres/cost_function.h"
#include "ceres/manifold.h"
#include "ceres_ext/array_problem.h"
#include "ceres_ext/marginalize.h"
#include "nanobind/nanobind.h"
#include "python/src/residuals.h"

namespace ceres_ext::python {

// A type of residual blocks, by name or compiled.
struct ResidualType {
  std::string name;
  int num_residuals = 0;
  int64_t num_columns = 0;         // of `observations`
  std::vector<std::string> roles;  // what each block is; may be empty
  std::vector<int> block_sizes;
  // constants_bytes, make_cost_function and constants_are_of_model.
  ArrayProblem::Residuals form;
  const NamedResidual* named = nullptr;  // null: compiled

  // Throws ValueError or TypeError. num_blocks: of a residual block.
  static ResidualType Find(nanobind::handle cost_function,
                           nanobind::handle camera_model,
                           nanobind::handle rotation,
                           size_t num_blocks);
  // True if the observations are not the constants.
  bool IsConverted() const {
    return num_columns == 0 || (named != nullptr && named->convert != nullptr);
  }
  // The constants of rows that are converted. Throws ValueError.
  std::unique_ptr<double[]> Convert(const double* rows,
                                    int64_t num_rows,
                                    nanobind::handle covariances) const;
  // Throws ValueError if there are covariances that a row has no use for.
  void CheckCovariances(nanobind::handle covariances) const;
};

class Problem {
 public:
  Problem() = default;
  Problem(const Problem&) = delete;
  Problem& operator=(const Problem&) = delete;

  int AddParameters(nanobind::object values,
                    nanobind::object constant,
                    nanobind::object manifold,
                    nanobind::object lower,
                    nanobind::object upper,
                    bool own);
  void AddResiduals(nanobind::object cost_function,
                    nanobind::object observations,
                    nanobind::object blocks,
                    nanobind::object camera_model,
                    nanobind::object rotation,
                    nanobind::object covariances,
                    nanobind::object loss,
                    nanobind::object weights);
  void AddMarginalPriors(nanobind::object references,
                         nanobind::object a,
                         nanobind::object b,
                         nanobind::object blocks,
                         nanobind::object rotation,
                         nanobind::object weights);
  void AddMarginal(const Marginal& marginal, nanobind::object blocks);

  ArrayProblem* arrays() { return &arrays_; }
  const ArrayProblem& arrays() const { return arrays_; }
  // Residuals of a residual block of each array.
  const std::vector<int>& num_residuals() const { return num_residuals_; }

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
  // The parameter arrays; the index arrays go to *kept.
  std::vector<ArrayProblem::Index> ReadBlocks(
      nanobind::handle blocks, std::vector<nanobind::object>* kept) const;
  // roles: what each block is, or empty.
  void CheckBlocks(const std::string& name,
                   const std::vector<std::string>& roles,
                   const std::vector<int>& sizes,
                   const std::vector<ArrayProblem::Index>& blocks) const;
  // Sets the numbers of the blocks of each residual block from index arrays,
  // which are the last ones kept.
  static void ReadIndices(const std::vector<nanobind::object>& kept,
                          std::vector<int64_t> shape,
                          ArrayProblem::Residuals* residuals);
  // Sets the weights from an array of that shape, or None.
  static void ReadWeights(nanobind::handle weights,
                          std::vector<int64_t> shape,
                          ArrayProblem::Residuals* residuals);

  ArrayProblem arrays_;
  std::vector<int> num_residuals_;
  std::vector<std::unique_ptr<double[]>> owned_;
  std::vector<std::unique_ptr<ceres::CostFunction>> cost_functions_;
  std::vector<std::unique_ptr<ceres::CostFunction*[]>> cost_function_lists_;
  std::vector<std::shared_ptr<BlockMarginalPrior>> priors_;
  std::vector<std::unique_ptr<int32_t[]>> numbers_;  // of their blocks
  // The arrays, losses and manifolds.
  std::vector<nanobind::object> kept_;
  // A manifold for each block, of the parameters that have several.
  std::vector<std::unique_ptr<ceres::Manifold*[]>> manifolds_;
  bool is_being_solved_ = false;
};

}  // namespace ceres_ext::python

#endif  // PYTHON_SRC_PROBLEM_H_
