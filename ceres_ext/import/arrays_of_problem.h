// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A ceres::Problem as a problem of arrays (ceres_ext/array_problem.h), which
// can be cut into parts. Values are copied, cost functions, losses and
// manifolds are referred to.

#ifndef CERES_EXT_IMPORT_ARRAYS_OF_PROBLEM_H_
#define CERES_EXT_IMPORT_ARRAYS_OF_PROBLEM_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <typeindex>
#include <unordered_map>
#include <vector>

#include "ceres/cost_function.h"
#include "ceres/loss_function.h"
#include "ceres/manifold.h"
#include "ceres/ordered_groups.h"
#include "ceres/problem.h"
#include "ceres_ext/array_problem.h"

namespace ceres_ext {

// True if a value of the block has a lower or an upper bound.
bool HasBounds(const ceres::Problem& problem, const double* block);

class ArraysOfProblem {
 public:
  ArraysOfProblem() = default;
  ArraysOfProblem(const ArraysOfProblem&) = delete;
  ArraysOfProblem& operator=(const ArraysOfProblem&) = delete;

  // Once. Parameter blocks of one size that take the same place in their first
  // residual block, of the same type, become an array; residual blocks of one
  // type, loss and choice of arrays do. Blocks without a residual block are
  // left out. False, with a clause in *reason, if arrays can't say what the
  // problem does. The problem outlives this object. Throws std::bad_alloc.
  bool Read(const ceres::Problem& problem, std::string* reason);

  // In place of Read: each residual block of a problem, then Finish.
  // facts_of(b): of blocks[b].
  struct BlockFacts {
    int size = 0;
    bool has_bounds = false;
    bool is_constant = false;
    const ceres::Manifold* manifold = nullptr;
  };
  bool Add(const ceres::CostFunction* cost_function,
           const ceres::LossFunction* loss,
           const std::vector<double*>& blocks,
           const std::function<BlockFacts(size_t)>& facts_of,
           std::string* reason);
  void Finish();

  const ArrayProblem& arrays() const { return arrays_; }

  // True if the first group of two or more has all blocks of this array that
  // vary, and no others.
  bool IsFirstGroup(int array,
                    const ceres::ParameterBlockOrdering& ordering) const;

  // Copies the values of blocks that vary to the problem.
  void Write() const;

 private:
  struct Blocks {
    int size = 0;
    std::vector<double*> places;  // in the problem
    std::vector<double> values;
    std::vector<ceres::Manifold*> manifolds;
    std::vector<uint8_t> is_constant;
  };
  struct Rows {
    std::vector<int> arrays;
    ceres::LossFunction* loss = nullptr;
    std::vector<std::vector<int32_t>> blocks;  // by place
    std::vector<ceres::CostFunction*> cost_functions;
  };

  // An array and a block of it.
  struct Place {
    int array = 0;
    int32_t block = 0;
  };
  using Role = std::tuple<std::type_index, int, int>;
  using Kind = std::
      tuple<std::type_index, int, const ceres::LossFunction*, std::vector<int>>;

  // Until Finish.
  std::unordered_map<const double*, Place> places_;
  std::map<Role, int> array_of_role_;
  std::map<Kind, size_t> rows_of_kind_;
  // Objects that arrays_ refers to.
  std::vector<std::unique_ptr<Blocks>> blocks_;
  std::vector<std::unique_ptr<Rows>> rows_;
  ArrayProblem arrays_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_IMPORT_ARRAYS_OF_PROBLEM_H_
