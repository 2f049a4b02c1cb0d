// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/small/marginal.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <memory>
#include <numeric>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ceres_ext/base/failure.h"
#include "ceres_ext/base/sentence.h"
#include "ceres_ext/blocks/block_manifolds.h"
#include "ceres_ext/import/array_rows.h"
#include "ceres_ext/import/ceres_row.h"
#include "ceres_ext/solver/rank_revealing_qr.h"

namespace ceres_ext {
namespace {

using Flags = std::vector<const uint8_t*>;

bool IsFlagged(const Flags& flags, size_t array, int64_t k, bool otherwise) {
  return flags.empty() || flags[array] == nullptr ? otherwise
                                                  : flags[array][k] != 0;
}

// r at the values, and J at first estimates.
class FirstEstimates final : public ceres::CostFunction {
 public:
  void Set(const ceres::CostFunction* inner, const double* const* references) {
    inner_ = inner;
    references_ = references;
    set_num_residuals(inner->num_residuals());
    *mutable_parameter_block_sizes() = inner->parameter_block_sizes();
    at_references_.resize(inner->num_residuals());
  }
  bool Evaluate(double const* const* values,
                double* residuals,
                double** jacobians) const override {
    return inner_->Evaluate(values, residuals, nullptr) &&
           (jacobians == nullptr ||
            inner_->Evaluate(references_, at_references_.data(), jacobians));
  }

 private:
  const ceres::CostFunction* inner_ = nullptr;
  const double* const* references_ = nullptr;
  mutable std::vector<double> at_references_;
};

class Marginalization {
 public:
  Marginalization(const ProblemBatch& batch,
                  int64_t problem,
                  MarginalMemory* memory)
      : batch_(batch),
        problem_(problem),
        drop_(batch.drop),
        values_(memory->values),
        front_values_(memory->front) {
    values_.clear();
  }

  bool Run(Marginal* marginal, std::string* error) {
    *marginal = Marginal();
    if (!FindRows(error) || !MakeBlocks(error) ||
        !EvaluateRows(marginal, error)) {
      return false;
    }
    marginal->num_rows = static_cast<int64_t>(rows_.size());
    for (int e = 0; e < num_dropped_; ++e) {
      marginal->num_dropped_columns += blocks_[e].num_columns;
      if (!Eliminate(e, marginal)) {
        *error = kNotFinite;
        return false;
      }
    }
    return Finish(marginal, error);
  }

 private:
  static constexpr char kNotFinite[] =
      "a value of the Jacobian that is left is not finite";
  static constexpr int32_t kUnused = -2;
  static constexpr int32_t kConstant = -1;

  // A residual block of the prior.
  struct Row {
    size_t array = 0;
    int64_t number = 0;
  };
  // A block that varies and that such a row has. Dropped ones come first, in
  // the order in which they are eliminated.
  struct Block {
    size_t array = 0;
    int64_t number = 0;
    bool is_dropped = false;
    int num_columns = 0;
    const double* values = nullptr;
    const double* reference = nullptr;  // `values`, or that of a prior
    std::vector<double> plus_jacobian;  // at the reference; empty: none
    std::vector<double> shift;          // values (-) reference; empty: zero
    std::vector<double> norms;          // of the columns of J
  };
  // Rows of J and r over some blocks, column-major, [J r].
  struct Group {
    size_t first_block = 0;  // in blocks_of_groups_, ascending
    size_t num_blocks = 0;   // 0: used up
    int64_t num_rows = 0;
    int64_t num_columns = 0;  // without r
    int64_t begin = 0;        // in values_
  };
  // A matrix that rows of groups are taken together in, in front_values_,
  // column-major, [J r].
  struct Front {
    std::vector<int> blocks;
    int64_t num_rows = 0;
    int64_t num_columns = 0;  // without r
    int64_t rank = 0;
    std::vector<int64_t> order;  // of the pivots
  };

  const ArrayProblem& arrays() const { return batch_.problem; }
  const ArrayProblem::Parameters& parameters(size_t a) const {
    return arrays().parameters()[a];
  }
  const double* ValuesOf(size_t array, int64_t block) const {
    return parameters(array).values + block * parameters(array).size;
  }
  int64_t FirstOf(size_t array) const {
    return batch_.parameter_begin[array][problem_];
  }
  // The place of a block in blocks_, kConstant or kUnused.
  int32_t& PlaceOf(size_t array, int64_t block) {
    return places_[array][block - FirstOf(array)];
  }

  // Calls function(residuals, k) for the residual blocks that take part in the
  // solve.
  template <typename Function>
  bool ForEachActiveRow(std::string* error, const Function& function) {
    const auto& all = arrays().residuals();
    for (size_t r = 0; r < all.size(); ++r) {
      for (int64_t k = batch_.residual_begin[r][problem_];
           k < batch_.residual_begin[r][problem_ + 1];
           ++k) {
        bool is_active = IsFlagged(batch_.residual_is_active, r, k, true);
        for (size_t b = 0; is_active && b < all[r].blocks.size(); ++b) {
          const size_t array = all[r].blocks[b].parameters;
          const int64_t block = all[r].blocks[b].BlockOf(k);
          if (block < FirstOf(array) ||
              block >= batch_.parameter_begin[array][problem_ + 1]) {
            *error = Sentence("residuals ",
                              r,
                              ", blocks[",
                              b,
                              "]: residual block ",
                              k,
                              " names block ",
                              block,
                              " of parameters ",
                              array,
                              ", which the problem does not have");
            return false;
          }
          is_active = IsFlagged(batch_.parameter_is_active, array, block, true);
        }
        if (is_active) {
          function(r, k);
        }
      }
    }
    return true;
  }

  // Lists the rows, and the references of blocks that priors have.
  bool FindRows(std::string* error) {
    const size_t num_arrays = arrays().parameters().size();
    places_.resize(num_arrays);
    references_.resize(num_arrays);
    for (size_t a = 0; a < num_arrays; ++a) {
      const int64_t n = batch_.parameter_begin[a][problem_ + 1] - FirstOf(a);
      places_[a].assign(n, kUnused);
      references_[a].assign(n, nullptr);
    }
    return ForEachActiveRow(error, [&](size_t r, int64_t k) {
      const ArrayProblem::Residuals& residuals = arrays().residuals()[r];
      const auto* const prior = residuals.cost_functions == nullptr
                                    ? nullptr
                                    : dynamic_cast<const BlockMarginalPrior*>(
                                          residuals.cost_functions[k]);
      bool has_dropped = false;
      for (size_t b = 0; b < residuals.blocks.size(); ++b) {
        const size_t array = residuals.blocks[b].parameters;
        const int64_t block = residuals.blocks[b].BlockOf(k);
        has_dropped |=
            IsFlagged(drop_.parameter_is_dropped, array, block, false);
        const double*& reference = references_[array][block - FirstOf(array)];
        if (prior != nullptr && reference == nullptr) {
          reference =
              &prior->references()[prior->reference_begin(static_cast<int>(b))];
        }
      }
      if (!has_dropped || IsFlagged(drop_.residual_is_cut, r, k, false)) {
        return;
      }
      rows_.push_back({r, k});
      for (const ArrayProblem::Index& index : residuals.blocks) {
        PlaceOf(index.parameters, index.BlockOf(k)) = kConstant;
      }
    });
  }

  bool MakeBlocks(std::string* error) {
    for (size_t a = 0; a < places_.size(); ++a) {
      const ArrayProblem::Parameters& p = parameters(a);
      for (size_t n = 0; n < places_[a].size(); ++n) {
        Block block;
        block.array = a;
        block.number = FirstOf(a) + static_cast<int64_t>(n);
        if (places_[a][n] == kUnused || IsConstant(p, block.number)) {
          continue;
        }
        block.is_dropped =
            IsFlagged(drop_.parameter_is_dropped, a, block.number, false);
        block.num_columns = TangentSize(p, block.number);
        block.values = ValuesOf(a, block.number);
        block.reference =
            references_[a][n] == nullptr ? block.values : references_[a][n];
        block.norms.assign(block.num_columns, 0.0);
        if (!SetDifference(&block, error)) {
          return false;
        }
        num_dropped_ += block.is_dropped ? 1 : 0;
        blocks_.push_back(std::move(block));
      }
    }
    // Small dropped blocks first, such as points, which have few rows.
    std::stable_sort(
        blocks_.begin(), blocks_.end(), [](const Block& a, const Block& b) {
          return a.is_dropped != b.is_dropped
                     ? a.is_dropped
                     : a.is_dropped && a.num_columns < b.num_columns;
        });
    for (size_t i = 0; i < blocks_.size(); ++i) {
      PlaceOf(blocks_[i].array, blocks_[i].number) = static_cast<int32_t>(i);
    }
    return true;
  }

  // The tangent at the reference, and the difference of the values from it.
  bool SetDifference(Block* block, std::string* error) {
    const ArrayProblem::Parameters& p = parameters(block->array);
    const ceres::Manifold* const manifold = p.ManifoldOf(block->number);
    const auto fail = [&](const std::string& what) {
      *error = Sentence("parameters ",
                        block->array,
                        ": the manifold of block ",
                        block->number,
                        " ",
                        what);
      return false;
    };
    if (manifold != nullptr) {
      BlockManifold of_block;
      of_block.manifold = manifold;
      of_block.ambient_size = p.size;
      of_block.tangent_size = block->num_columns;
      block->plus_jacobian.resize(size_t(p.size) * block->num_columns);
      const kernels::Status status = CallPlusJacobian(
          of_block, block->reference, block->plus_jacobian.data());
      if (!status.ok()) {
        return fail("has no derivative: " + status.message);
      }
    }
    if (std::equal(block->values, block->values + p.size, block->reference)) {
      return true;
    }
    if (manifold == nullptr) {
      for (int e = 0; e < p.size; ++e) {
        block->shift.push_back(block->values[e] - block->reference[e]);
      }
      return true;
    }
    // Blocks usually share one object, and reading it takes microseconds.
    const internal::BlockDifference& difference =
        differences_.try_emplace(manifold, p.size, manifold).first->second;
    block->shift.resize(difference.num_columns());
    if (difference.num_columns() != block->num_columns ||
        !difference.Evaluate(
            block->values, block->reference, block->shift.data(), nullptr)) {
      return fail("has no difference of its values from a prior's reference");
    }
    return true;
  }

  bool EvaluateRows(Marginal* marginal, std::string* error) {
    groups_of_.resize(num_dropped_);
    for (const Row& row : rows_) {
      if (!Evaluate(row, error)) {
        return false;
      }
      if (!AddRow()) {
        // A row of constants, which a constant dropped block is among.
        for (const double r : residuals_) {
          marginal->least_cost += 0.5 * r * r;
        }
      }
    }
    for (Block& block : blocks_) {
      for (double& norm : block.norms) {
        norm = std::sqrt(norm);
      }
    }
    return true;
  }

  // Sets row_places_, jacobians_ and residuals_.
  bool Evaluate(const Row& row, std::string* error) {
    const ArrayProblem::Residuals& residuals = arrays().residuals()[row.array];
    std::unique_ptr<const ceres::CostFunction> owner;
    const ceres::CostFunction* cost_function =
        CostFunctionOf(residuals, row.number, &owner);
    const int m = cost_function->num_residuals();
    row_places_.clear();
    row_references_.clear();
    bool is_moved = false;
    int64_t num_values = 0;
    evaluation_.Clear();
    for (const ArrayProblem::Index& index : residuals.blocks) {
      const int64_t number = index.BlockOf(row.number);
      const int size = parameters(index.parameters).size;
      const double* const values = ValuesOf(index.parameters, number);
      row_places_.push_back(PlaceOf(index.parameters, number));
      if (row_places_.back() == kConstant) {
        row_references_.push_back(values);
        evaluation_.Add(values, size, size, nullptr);
        continue;
      }
      const Block& block = blocks_[row_places_.back()];
      row_references_.push_back(block.reference);
      is_moved |= !block.shift.empty();
      num_values += int64_t{m} * block.num_columns;
      evaluation_.Add(
          values,
          size,
          block.num_columns,
          block.plus_jacobian.empty() ? nullptr : block.plus_jacobian.data());
    }
    if (is_moved) {
      estimates_.Set(cost_function, row_references_.data());
      cost_function = &estimates_;
    }
    jacobian_values_.assign(num_values, 0.0);
    double* next = jacobian_values_.data();
    jacobians_.clear();
    for (const int32_t place : row_places_) {
      jacobians_.push_back(place == kConstant ? nullptr : next);
      next += place == kConstant ? 0 : m * blocks_[place].num_columns;
    }
    LossOfRow loss;
    loss.loss = residuals.loss;
    loss.weight =
        residuals.weights == nullptr ? nullptr : residuals.weights + row.number;
    residuals_.assign(m, 0.0);
    double cost = 0.0;
    std::string what;
    if (!Succeeds(
            [&] {
              return evaluation_.Evaluate(*cost_function,
                                          loss,
                                          /*apply_loss=*/true,
                                          &cost,
                                          residuals_.data(),
                                          jacobians_.data());
            },
            &what)) {
      *error = Sentence("residuals[",
                        row.array,
                        "]: residual block ",
                        row.number,
                        " can't be evaluated: ",
                        evaluation_.loss_fault().empty()
                            ? "its cost function " + what
                            : evaluation_.loss_fault());
      return false;
    }
    return true;
  }

  // The row that was evaluated as [J, r - J shift], since the model is
  // r + J (d - shift). False if no block of it varies.
  bool AddRow() {
    std::vector<int>& blocks = sorted_blocks_;
    blocks.clear();
    for (const int32_t place : row_places_) {
      if (place != kConstant) {
        blocks.push_back(place);
      }
    }
    if (blocks.empty()) {
      return false;
    }
    std::sort(blocks.begin(), blocks.end());
    const auto m = static_cast<int64_t>(residuals_.size());
    const std::vector<int64_t>& begin = BeginOf(blocks);
    double* const group = AddGroup(blocks, m);
    for (size_t b = 0; b < row_places_.size(); ++b) {
      if (row_places_[b] == kConstant) {
        continue;
      }
      Block& block = blocks_[row_places_[b]];
      double* const to = group + m * begin[row_places_[b]];
      for (int64_t i = 0; i < m; ++i) {
        const double* const from = jacobians_[b] + i * block.num_columns;
        for (int c = 0; c < block.num_columns; ++c) {
          to[m * c + i] = from[c];
          block.norms[c] += from[c] * from[c];
          residuals_[i] -= block.shift.empty() ? 0.0 : from[c] * block.shift[c];
        }
      }
    }
    std::copy(residuals_.begin(),
              residuals_.end(),
              group + m * groups_.back().num_columns);
    return true;
  }

  // The first column of each of these blocks in a matrix of them; the numbers
  // of other blocks mean nothing.
  const std::vector<int64_t>& BeginOf(const std::vector<int>& blocks) {
    begin_.resize(blocks_.size());
    int64_t next = 0;
    for (const int b : blocks) {
      begin_[b] = next;
      next += blocks_[b].num_columns;
    }
    return begin_;
  }

  // A group of zeros over these blocks; its values, until the next one.
  double* AddGroup(const std::vector<int>& blocks, int64_t num_rows) {
    Group group;
    group.first_block = blocks_of_groups_.size();
    group.num_blocks = blocks.size();
    group.num_rows = num_rows;
    group.begin = static_cast<int64_t>(values_.size());
    for (const int b : blocks) {
      group.num_columns += blocks_[b].num_columns;
      if (b < num_dropped_) {
        groups_of_[b].push_back(groups_.size());
      }
    }
    blocks_of_groups_.insert(
        blocks_of_groups_.end(), blocks.begin(), blocks.end());
    values_.resize(group.begin + num_rows * (group.num_columns + 1), 0.0);
    groups_.push_back(group);
    num_alive_ = groups_.size();
    return values_.data() + group.begin;
  }

  // Calls function(b) for the blocks of a group.
  template <typename Function>
  void ForEachBlock(const Group& group, const Function& function) const {
    for (size_t k = 0; k < group.num_blocks; ++k) {
      function(blocks_of_groups_[group.first_block + k]);
    }
  }

  // The rows of these groups, which are used up, as one matrix of blocks, whose
  // columns of blocks up to last_pivot are pivots; rows with large elements
  // first.
  Front Factorize(const std::vector<size_t>& numbers, int last_pivot) {
    Front front;
    std::vector<uint8_t> has_block(blocks_.size(), 0);
    for (const size_t g : numbers) {
      ForEachBlock(groups_[g], [&](int b) { has_block[b] = 1; });
      front.num_rows += groups_[g].num_rows;
    }
    std::vector<double> norms;
    int64_t num_pivots = 0;
    for (size_t b = 0; b < has_block.size(); ++b) {
      if (has_block[b] != 0) {
        const Block& block = blocks_[b];
        front.blocks.push_back(static_cast<int>(b));
        norms.insert(norms.end(), block.norms.begin(), block.norms.end());
        num_pivots += static_cast<int>(b) <= last_pivot ? block.num_columns : 0;
      }
    }
    front.num_columns = static_cast<int64_t>(norms.size());
    PlaceRows(numbers, front);
    front.rank = solver::EliminateColumns(front.num_rows,
                                          front.num_columns + 1,
                                          num_pivots,
                                          norms.data(),
                                          drop_.rank_tolerance,
                                          front_values_.data(),
                                          &front.order);
    return front;
  }

  void PlaceRows(const std::vector<size_t>& numbers, const Front& front) {
    // The largest element of each row, in proportion to its column.
    std::vector<double> sizes(front.num_rows, 0.0);
    double* size = sizes.data();
    for (const size_t g : numbers) {
      const Group& group = groups_[g];
      const double* value = values_.data() + group.begin;
      ForEachBlock(group, [&](int b) {
        for (const double norm : blocks_[b].norms) {
          const double inverse = norm > 0.0 ? 1.0 / norm : 0.0;
          for (int64_t i = 0; i < group.num_rows; ++i) {
            size[i] = std::max(size[i], std::fabs(value[i]) * inverse);
          }
          value += group.num_rows;
        }
      });
      size += group.num_rows;
    }
    std::vector<int64_t> rows(front.num_rows);
    std::iota(rows.begin(), rows.end(), 0);
    std::stable_sort(rows.begin(), rows.end(), [&](int64_t a, int64_t b) {
      return sizes[a] > sizes[b];
    });
    std::vector<int64_t> places(front.num_rows);
    for (int64_t i = 0; i < front.num_rows; ++i) {
      places[rows[i]] = i;
    }
    const std::vector<int64_t>& begin = BeginOf(front.blocks);
    front_values_.assign(front.num_rows * (front.num_columns + 1), 0.0);
    const int64_t* place = places.data();
    for (const size_t g : numbers) {
      Group& group = groups_[g];
      const double* from = values_.data() + group.begin;
      const auto copy_column = [&](int64_t column) {
        double* const to = front_values_.data() + front.num_rows * column;
        for (int64_t i = 0; i < group.num_rows; ++i) {
          to[place[i]] = from[i];
        }
        from += group.num_rows;
      };
      ForEachBlock(group, [&](int b) {
        for (int c = 0; c < blocks_[b].num_columns; ++c) {
          copy_column(begin[b] + c);
        }
      });
      copy_column(front.num_columns);
      place += group.num_rows;
      group = Group();
    }
    while (num_alive_ > 0 && groups_[num_alive_ - 1].num_blocks == 0) {
      --num_alive_;
    }
    const Group last = num_alive_ > 0 ? groups_[num_alive_ - 1] : Group();
    values_.resize(last.begin + last.num_rows * (last.num_columns + 1));
  }

  // The groups among these that still are.
  std::vector<size_t> Alive(const std::vector<size_t>& numbers) const {
    std::vector<size_t> alive;
    for (const size_t g : numbers) {
      if (groups_[g].num_blocks > 0) {
        alive.push_back(g);
      }
    }
    return alive;
  }

  // Leaves out the rows of dropped block e. False if a value is not finite.
  bool Eliminate(int e, Marginal* marginal) {
    Front front = Factorize(Alive(groups_of_[e]), e);
    if (front.rank < 0) {
      return false;
    }
    marginal->dropped_rank += static_cast<int>(front.rank);
    if (front.blocks.size() <= 1) {
      AddCost(front, marginal);
      return true;
    }
    const int64_t num_rows = front.num_rows - front.rank;
    if (num_rows == 0) {
      return true;
    }
    front.blocks.erase(front.blocks.begin());
    double* to = AddGroup(front.blocks, num_rows);
    for (int64_t c = blocks_[e].num_columns; c <= front.num_columns; ++c) {
      to = std::copy_n(
          front_values_.data() + front.num_rows * c + front.rank, num_rows, to);
    }
    const size_t last = groups_.size() - 1;
    return groups_[last].num_rows <= 2 * groups_[last].num_columns ||
           Compress({last}, marginal);
  }

  // Adds the cost of rows behind the rank, which have r alone.
  void AddCost(const Front& front, Marginal* marginal) const {
    const double* const r =
        front_values_.data() + front.num_rows * front.num_columns;
    for (int64_t i = front.rank; i < front.num_rows; ++i) {
      marginal->least_cost += 0.5 * r[i] * r[i];
    }
  }

  // Replaces these groups by the last one, of as many rows as they have rank,
  // if any. False if a value is not finite.
  bool Compress(const std::vector<size_t>& numbers, Marginal* marginal) {
    const Front front = Factorize(numbers, std::numeric_limits<int>::max());
    if (front.rank < 0) {
      return false;
    }
    AddCost(front, marginal);
    if (front.rank == 0) {
      return true;
    }
    double* const to = AddGroup(front.blocks, front.rank);
    for (int64_t c = 0; c <= front.num_columns; ++c) {
      std::copy_n(
          front_values_.data() + front.num_rows * c,
          front.rank,
          to + front.rank * (c < front.num_columns ? front.order[c] : c));
    }
    return true;
  }

  // All that is left becomes the prior.
  bool Finish(Marginal* marginal, std::string* error) {
    std::vector<size_t> numbers(groups_.size());
    std::iota(numbers.begin(), numbers.end(), 0);
    numbers = Alive(numbers);
    if (!numbers.empty() && !Compress(numbers, marginal)) {
      *error = kNotFinite;
      return false;
    }
    return groups_.empty() || groups_.back().num_blocks == 0 ||
           MakePrior(groups_.back(), marginal, error);
  }

  bool MakePrior(const Group& group,
                 Marginal* marginal,
                 std::string* error) const {
    std::vector<BlockMarginalPrior::Block> blocks;
    std::vector<double> references;
    ForEachBlock(group, [&](int b) {
      const Block& block = blocks_[b];
      const ArrayProblem::Parameters& p = parameters(block.array);
      marginal->blocks.push_back({static_cast<int>(block.array), block.number});
      blocks.push_back({p.size, p.ManifoldOf(block.number)});
      references.insert(
          references.end(), block.reference, block.reference + p.size);
    });
    const double* const values = values_.data() + group.begin;
    std::vector<double> a(group.num_rows * group.num_columns);
    for (int64_t i = 0; i < group.num_rows; ++i) {
      for (int64_t c = 0; c < group.num_columns; ++c) {
        a[group.num_columns * i + c] = values[group.num_rows * c + i];
      }
    }
    const double* const offset = values + group.num_rows * group.num_columns;
    marginal->prior =
        BlockMarginalPrior::Create(blocks,
                                   references.data(),
                                   static_cast<int>(group.num_rows),
                                   a.data(),
                                   offset,
                                   error);
    return marginal->prior != nullptr;
  }

  const ProblemBatch& batch_;
  const int64_t problem_;
  const BlocksToDrop& drop_;
  std::vector<Row> rows_;
  std::vector<std::vector<int32_t>> places_;  // of blocks, by array
  std::vector<std::vector<const double*>> references_;
  std::vector<Block> blocks_;
  int num_dropped_ = 0;
  std::vector<Group> groups_;
  size_t num_alive_ = 0;  // all behind these are used up
  std::vector<int> blocks_of_groups_;
  std::vector<double>& values_;                 // of groups
  std::vector<std::vector<size_t>> groups_of_;  // of dropped blocks
  std::vector<double>& front_values_;
  std::vector<int64_t> begin_;
  // The row that is evaluated.
  CeresRow evaluation_;
  FirstEstimates estimates_;
  std::vector<int32_t> row_places_;
  std::vector<const double*> row_references_;
  std::vector<double> residuals_;
  std::vector<double> jacobian_values_;
  std::vector<double*> jacobians_;  // null for constants
  std::vector<int> sorted_blocks_;
  std::unordered_map<const ceres::Manifold*, internal::BlockDifference>
      differences_;
};

}  // namespace

bool IsValidDrop(const ProblemBatch& batch, std::string* error) {
  const BlocksToDrop& drop = batch.drop;
  const auto has_size = [error](const char* name, size_t n, size_t expected) {
    if (n != 0 && n != expected) {
      *error = Sentence(name, " has ", n, " arrays, expected ", expected);
      return false;
    }
    return true;
  };
  if (!(drop.rank_tolerance > 0.0 && drop.rank_tolerance < 1.0)) {
    *error = Sentence("rank_tolerance is ",
                      drop.rank_tolerance,
                      ", expected 0 < rank_tolerance < 1");
    return false;
  }
  return has_size("parameter_is_dropped",
                  drop.parameter_is_dropped.size(),
                  batch.problem.parameters().size()) &&
         has_size("residual_is_cut",
                  drop.residual_is_cut.size(),
                  batch.problem.residuals().size());
}

bool DropsBlocks(const ProblemBatch& batch, int64_t i) {
  const Flags& flags = batch.drop.parameter_is_dropped;
  for (size_t a = 0; a < flags.size(); ++a) {
    const int64_t* const begin = batch.parameter_begin[a];
    if (flags[a] != nullptr &&
        std::any_of(flags[a] + begin[i],
                    flags[a] + begin[i + 1],
                    [](uint8_t flag) { return flag != 0; })) {
      return true;
    }
  }
  return false;
}

bool MarginalizeProblem(const ProblemBatch& batch,
                        int64_t i,
                        MarginalMemory* memory,
                        Marginal* marginal,
                        std::string* error) {
  return Marginalization(batch, i, memory).Run(marginal, error);
}

void MarginalizeSolved(const ProblemBatch& batch,
                       int64_t i,
                       const ProblemSummary& summary,
                       MarginalMemory* memory,
                       Marginal* marginal) noexcept {
  if (!DropsBlocks(batch, i)) {
    return;
  }
  if (!summary.IsSolutionUsable()) {
    AssignOrShorten("the problem has no usable solution", &marginal->message);
    return;
  }
  Failure failure;
  failure.Guard(false, [&] {
    std::string error;
    Marginal made;
    if (MarginalizeProblem(batch, i, memory, &made, &error)) {
      *marginal = std::move(made);
    } else {
      marginal->message = std::move(error);
    }
    return true;
  });
  if (failure.has_happened()) {
    AssignOrShorten(failure.sentence(), &marginal->message);
  }
}

}  // namespace ceres_ext
