// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A ceres::Problem, or several of them end to end, as a table: a problem of
// arrays (ceres_ext/array_problem.h), which can be cut into parts, or a batch
// (ceres_ext/batch.h). Values are copied, cost functions, losses and manifolds
// are referred to.

#ifndef CERES_EXT_IMPORT_TABLE_OF_PROBLEM_H_
#define CERES_EXT_IMPORT_TABLE_OF_PROBLEM_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <typeindex>
#include <typeinfo>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ceres/cost_function.h"
#include "ceres/loss_function.h"
#include "ceres/manifold.h"
#include "ceres/ordered_groups.h"
#include "ceres/problem.h"
#include "ceres_ext/array_problem.h"
#include "ceres_ext/batch.h"
#include "ceres_ext/batchable_cost_function.h"
#include "ceres_ext/import/problem_rows.h"

namespace ceres_ext {

class TableOfProblem {
 public:
  // has_loss_of_each: the table is to be appended to another one, which says
  // the loss of each residual block; an array may have many.
  explicit TableOfProblem(bool has_loss_of_each = false)
      : has_loss_of_each_(has_loss_of_each) {}
  TableOfProblem(const TableOfProblem&) = delete;
  TableOfProblem& operator=(const TableOfProblem&) = delete;

  // Once. Parameter blocks of one size that take the same place in their first
  // residual block, of the same type, become an array; residual blocks of one
  // type, loss and choice of arrays do. Blocks without a residual block are
  // left out. False, with a clause in *reason, if arrays can't say what the
  // problem does. The problem outlives this object. Throws std::bad_alloc.
  bool Read(const ceres::Problem& problem, std::string* reason);
  // The same of a problem with these residual blocks.
  bool Read(const ceres::Problem::Options& options,
            const std::vector<ceres::ResidualBlockId>& rows,
            std::string* reason);

  // Before Append, of a table that has been read with has_loss_of_each.
  // Parameter arrays of one size that take the same place in some residual
  // blocks become one, and the constants of models are copied.
  void PrepareToAppend();
  // The losses of all residual blocks, array by array.
  std::vector<const ceres::LossFunction*> Losses() const;
  // Equal of tables that one table can have.
  using Signature = std::pair<std::vector<int>,
                              std::vector<std::tuple<std::type_index,
                                                     const BatchModel*,
                                                     int,
                                                     const ceres::LossFunction*,
                                                     std::vector<int>>>>;
  Signature GetSignature() const;
  // In place of Read: problems of one signature, then Finish. losses: as Losses
  // has them, where equal ones are one object; returns their end.
  const LossOfRow* Append(const TableOfProblem& one, const LossOfRow* losses);

  // Completes arrays() and batch().
  void Finish();

  const ArrayProblem& arrays() const { return batch_.problem; }
  const ProblemBatch& batch() const { return batch_; }

  // True if the first group of two or more has all blocks of this array that
  // vary, and no others.
  bool IsFirstGroup(int array,
                    const ceres::ParameterBlockOrdering& ordering) const;

  // The values of a block in the problem.
  double* PlaceOf(int array, int64_t block) const {
    return blocks_[array]->places[block];
  }
  int64_t NumBlocks(int array) const {
    return static_cast<int64_t>(blocks_[array]->places.size());
  }
  // Copies the values of blocks that vary to the problem, or problem i.
  void Write(int64_t i = 0) const;

 private:
  // Type, model (null: none), residuals, loss of a residual block, and the
  // parameter arrays of its blocks.
  using Kind = Signature::second_type::value_type;
  struct Blocks {
    int size = 0;
    std::vector<double*> places;  // in the problem
    std::vector<double> values;
    std::vector<ceres::Manifold*> manifolds;
    std::vector<uint8_t> is_constant;
    // One bound per value, or empty if no value has one.
    std::vector<double> lower_bounds;
    std::vector<double> upper_bounds;
    std::vector<int64_t> begin{0};  // of each problem

    void Append(const Blocks& other);
    // The bounds of blocks that have been appended since the last call.
    void AppendBounds(const std::vector<double>& lower,
                      const std::vector<double>& upper);
  };
  struct Rows {
    explicit Rows(const Kind& its_kind) : kind(its_kind) {}

    Kind kind;
    std::vector<std::vector<int32_t>> blocks;  // by place
    std::vector<ceres::CostFunction*> cost_functions;
    std::vector<const ceres::LossFunction*> losses;  // with has_loss_of_each
    std::vector<double> weights;                     // empty: 1
    std::vector<char> constants;                     // of the model, or empty
    std::vector<int64_t> begin;                      // of each problem

    const BatchModel* model() const { return std::get<1>(kind); }
    const std::vector<int>& arrays() const { return std::get<4>(kind); }
  };
  // An array and a block of it.
  struct Place {
    int array = 0;
    int32_t block = 0;
  };
  // A type of residual blocks, a place in these, and the size of the block.
  using Role = std::tuple<std::type_index, int, int>;

  bool Add(const ceres::internal::ResidualBlock& row, std::string* reason);
  Rows* RowsOf(const Kind& kind);
  void UniteArrays();
  void EndProblem();

  const bool has_loss_of_each_;
  int64_t num_problems_ = 0;
  // Until Finish.
  std::unordered_map<const void*, Place> places_;  // of parameter blocks
  std::map<Role, int> array_of_role_;
  std::map<Kind, Rows*> rows_of_kind_;
  Rows* last_rows_ = nullptr;
  // The residual block that is added: its kind and its blocks' numbers.
  Kind kind_{typeid(void), nullptr, 0, nullptr, {}};
  std::vector<int32_t> numbers_;
  // Objects that batch_ refers to.
  std::vector<std::unique_ptr<Blocks>> blocks_;
  std::vector<std::unique_ptr<Rows>> rows_;
  ProblemBatch batch_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_IMPORT_TABLE_OF_PROBLEM_H_
