// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/small/marginal.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
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
  Marginalization(const ProblemBatch& batch, int64_t problem)
      : batch_(batch), problem_(problem), drop_(batch.drop) {}

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
  // Rows of J and r over some blocks, row-major, [J r].
  struct Group {
    std::vector<int> blocks;  // ascending
    int64_t num_rows = 0;
    int64_t num_columns = 0;  // without r
    std::vector<double> values;
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
    CeresRow evaluation;
    FirstEstimates estimates;
    for (const Row& row : rows_) {
      Group group;
      if (!Evaluate(row, &evaluation, &estimates, &group, error)) {
        return false;
      }
      if (group.blocks.empty()) {
        // A row of constants, which a constant dropped block is among.
        for (const double r : group.values) {
          marginal->least_cost += 0.5 * r * r;
        }
        continue;
      }
      AddGroup(std::move(group));
    }
    for (Block& block : blocks_) {
      for (double& norm : block.norms) {
        norm = std::sqrt(norm);
      }
    }
    return true;
  }

  bool Evaluate(const Row& row,
                CeresRow* evaluation,
                FirstEstimates* estimates,
                Group* group,
                std::string* error) {
    const ArrayProblem::Residuals& residuals = arrays().residuals()[row.array];
    const size_t num_slots = residuals.blocks.size();
    std::unique_ptr<const ceres::CostFunction> owner;
    const ceres::CostFunction* cost_function =
        CostFunctionOf(residuals, row.number, &owner);
    const int m = cost_function->num_residuals();
    std::vector<const double*> references;
    std::vector<int32_t> places;
    bool is_moved = false;
    evaluation->Clear();
    for (const ArrayProblem::Index& index : residuals.blocks) {
      const int64_t number = index.BlockOf(row.number);
      const int size = parameters(index.parameters).size;
      const double* const values = ValuesOf(index.parameters, number);
      places.push_back(PlaceOf(index.parameters, number));
      if (places.back() == kConstant) {
        references.push_back(values);
        evaluation->Add(values, size, size, nullptr);
        continue;
      }
      const Block& block = blocks_[places.back()];
      references.push_back(block.reference);
      is_moved |= !block.shift.empty();
      evaluation->Add(
          values,
          size,
          block.num_columns,
          block.plus_jacobian.empty() ? nullptr : block.plus_jacobian.data());
    }
    if (is_moved) {
      estimates->Set(cost_function, references.data());
      cost_function = estimates;
    }
    std::vector<std::vector<double>> values(num_slots);
    std::vector<double*> jacobians(num_slots, nullptr);
    for (size_t b = 0; b < num_slots; ++b) {
      if (places[b] != kConstant) {
        values[b].resize(size_t(m) * blocks_[places[b]].num_columns);
        jacobians[b] = values[b].data();
      }
    }
    LossOfRow loss;
    loss.loss = residuals.loss;
    loss.weight =
        residuals.weights == nullptr ? nullptr : residuals.weights + row.number;
    std::vector<double> r(m);
    double cost = 0.0;
    std::string what;
    if (!Succeeds(
            [&] {
              return evaluation->Evaluate(*cost_function,
                                          loss,
                                          /*apply_loss=*/true,
                                          &cost,
                                          r.data(),
                                          jacobians.data());
            },
            &what)) {
      *error = Sentence("residuals[",
                        row.array,
                        "]: residual block ",
                        row.number,
                        " can't be evaluated: ",
                        evaluation->loss_fault().empty()
                            ? "its cost function " + what
                            : evaluation->loss_fault());
      return false;
    }
    SetGroup(places, values, &r, group);
    return true;
  }

  // [J, r - J shift], since the model is r + J (d - shift).
  void SetGroup(const std::vector<int32_t>& places,
                const std::vector<std::vector<double>>& jacobians,
                std::vector<double>* r,
                Group* group) {
    group->num_rows = static_cast<int64_t>(r->size());
    for (const int32_t place : places) {
      if (place != kConstant) {
        group->blocks.push_back(place);
        group->num_columns += blocks_[place].num_columns;
      }
    }
    std::sort(group->blocks.begin(), group->blocks.end());
    const std::vector<int64_t> begin = BeginOf(group->blocks);
    const int64_t stride = group->num_columns + 1;
    group->values.assign(group->num_rows * stride, 0.0);
    for (size_t b = 0; b < places.size(); ++b) {
      if (places[b] == kConstant) {
        continue;
      }
      Block& block = blocks_[places[b]];
      for (int64_t i = 0; i < group->num_rows; ++i) {
        const double* const from = &jacobians[b][i * block.num_columns];
        double* const to = &group->values[i * stride + begin[places[b]]];
        for (int c = 0; c < block.num_columns; ++c) {
          to[c] = from[c];
          block.norms[c] += from[c] * from[c];
          (*r)[i] -= block.shift.empty() ? 0.0 : from[c] * block.shift[c];
        }
      }
    }
    for (int64_t i = 0; i < group->num_rows; ++i) {
      group->values[i * stride + stride - 1] = (*r)[i];
    }
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

  void AddGroup(Group group) {
    for (const int b : group.blocks) {
      if (b < num_dropped_) {
        groups_of_[b].push_back(groups_.size());
      }
    }
    groups_.push_back(std::move(group));
  }

  // The rows of these groups, which are used up, as one matrix of blocks, whose
  // first num_pivots columns are pivots; rows with large elements first.
  // Returns the rank, the matrix and its shape.
  struct Front {
    std::vector<int> blocks;
    int64_t num_rows = 0;
    int64_t num_columns = 0;  // without r
    int64_t rank = 0;
    std::vector<double> values;  // column-major, [J r]
    std::vector<int64_t> order;  // of the pivots
  };
  Front Factorize(const std::vector<size_t>& numbers, int last_pivot) {
    Front front;
    for (const size_t g : numbers) {
      std::vector<int> both;
      std::set_union(front.blocks.begin(),
                     front.blocks.end(),
                     groups_[g].blocks.begin(),
                     groups_[g].blocks.end(),
                     std::back_inserter(both));
      front.blocks = std::move(both);
      front.num_rows += groups_[g].num_rows;
    }
    const std::vector<int64_t>& begin = BeginOf(front.blocks);
    std::vector<double> norms;
    int64_t num_pivots = 0;
    for (const int b : front.blocks) {
      const Block& block = blocks_[b];
      norms.insert(norms.end(), block.norms.begin(), block.norms.end());
      num_pivots += b <= last_pivot ? block.num_columns : 0;
    }
    front.num_columns = static_cast<int64_t>(norms.size());
    struct Place {
      double size;  // of the largest element, in proportion to its column
      const Group* group;
      int64_t row;
    };
    std::vector<Place> places;
    for (const size_t g : numbers) {
      const Group& group = groups_[g];
      for (int64_t i = 0; i < group.num_rows; ++i) {
        const double* value = &group.values[i * (group.num_columns + 1)];
        double size = 0.0;
        for (const int b : group.blocks) {
          for (const double norm : blocks_[b].norms) {
            size = std::max(size, norm > 0.0 ? std::fabs(*value) / norm : 0.0);
            ++value;
          }
        }
        places.push_back({size, &group, i});
      }
    }
    std::stable_sort(
        places.begin(), places.end(), [](const Place& a, const Place& b) {
          return a.size > b.size;
        });
    front.values.assign(front.num_rows * (front.num_columns + 1), 0.0);
    for (size_t i = 0; i < places.size(); ++i) {
      const Group& group = *places[i].group;
      const double* value =
          &group.values[places[i].row * (group.num_columns + 1)];
      for (const int b : group.blocks) {
        for (int c = 0; c < blocks_[b].num_columns; ++c) {
          front.values[front.num_rows * (begin[b] + c) + i] = *value++;
        }
      }
      front.values[front.num_rows * front.num_columns + i] = *value;
    }
    for (const size_t g : numbers) {
      groups_[g] = Group();
    }
    front.rank = solver::EliminateColumns(front.num_rows,
                                          front.num_columns + 1,
                                          num_pivots,
                                          norms.data(),
                                          drop_.rank_tolerance,
                                          front.values.data(),
                                          &front.order);
    return front;
  }

  // The groups among these that still are.
  std::vector<size_t> Alive(const std::vector<size_t>& numbers) const {
    std::vector<size_t> alive;
    for (const size_t g : numbers) {
      if (!groups_[g].blocks.empty()) {
        alive.push_back(g);
      }
    }
    return alive;
  }

  // Leaves out the rows of dropped block e. False if a value is not finite.
  bool Eliminate(int e, Marginal* marginal) {
    const Front front = Factorize(Alive(groups_of_[e]), e);
    if (front.rank < 0) {
      return false;
    }
    marginal->dropped_rank += static_cast<int>(front.rank);
    const int64_t first = blocks_[e].num_columns;
    Group rest;
    if (!front.blocks.empty()) {
      rest.blocks.assign(front.blocks.begin() + 1, front.blocks.end());
    }
    rest.num_rows = front.num_rows - front.rank;
    rest.num_columns = front.num_columns - first;
    if (rest.blocks.empty()) {
      AddCost(front, front.rank, marginal);
      return true;
    }
    if (rest.num_rows == 0) {
      return true;
    }
    rest.values.resize(rest.num_rows * (rest.num_columns + 1));
    double* value = rest.values.data();
    for (int64_t i = front.rank; i < front.num_rows; ++i) {
      for (int64_t c = first; c <= front.num_columns; ++c) {
        *value++ = front.values[front.num_rows * c + i];
      }
    }
    AddGroup(std::move(rest));
    if (groups_.back().num_rows > 2 * groups_.back().num_columns) {
      return Compress(marginal);
    }
    return true;
  }

  // Adds the cost of rows from `first` on, which have r alone.
  static void AddCost(const Front& front, int64_t first, Marginal* marginal) {
    for (int64_t i = first; i < front.num_rows; ++i) {
      const double r = front.values[front.num_rows * front.num_columns + i];
      marginal->least_cost += 0.5 * r * r;
    }
  }

  // Replaces the last group by as many rows as it has rank. False if a value is
  // not finite.
  bool Compress(Marginal* marginal) {
    Front front =
        Factorize({groups_.size() - 1}, std::numeric_limits<int>::max());
    if (front.rank < 0) {
      return false;
    }
    AddCost(front, front.rank, marginal);
    Group group;
    group.blocks = std::move(front.blocks);
    group.num_rows = front.rank;
    group.num_columns = front.num_columns;
    group.values.resize(group.num_rows * (group.num_columns + 1));
    for (int64_t i = 0; i < front.rank; ++i) {
      double* const row = &group.values[i * (group.num_columns + 1)];
      for (int64_t c = 0; c < front.num_columns; ++c) {
        row[front.order[c]] = front.values[front.num_rows * c + i];
      }
      row[group.num_columns] =
          front.values[front.num_rows * front.num_columns + i];
    }
    if (group.num_rows == 0) {
      group = Group();
    }
    groups_.back() = std::move(group);
    return true;
  }

  // All that is left becomes the prior.
  bool Finish(Marginal* marginal, std::string* error) {
    std::vector<size_t> numbers(groups_.size());
    std::iota(numbers.begin(), numbers.end(), 0);
    numbers = Alive(numbers);
    Group last;
    if (!numbers.empty()) {
      // One group of all, with its blocks in the order of the arrays.
      Front front = Factorize(numbers, -1);
      last.blocks = std::move(front.blocks);
      last.num_rows = front.num_rows;
      last.num_columns = front.num_columns;
      last.values.resize(front.values.size());
      const int64_t stride = front.num_columns + 1;
      for (int64_t i = 0; i < front.num_rows; ++i) {
        for (int64_t c = 0; c < stride; ++c) {
          last.values[i * stride + c] = front.values[front.num_rows * c + i];
        }
      }
      AddGroup(std::move(last));
      if (!Compress(marginal)) {
        *error = kNotFinite;
        return false;
      }
      last = std::move(groups_.back());
    }
    if (last.num_rows == 0) {
      return true;
    }
    return MakePrior(last, marginal, error);
  }

  bool MakePrior(const Group& group,
                 Marginal* marginal,
                 std::string* error) const {
    std::vector<BlockMarginalPrior::Block> blocks;
    std::vector<double> references;
    for (const int b : group.blocks) {
      const Block& block = blocks_[b];
      const ArrayProblem::Parameters& p = parameters(block.array);
      marginal->blocks.push_back({static_cast<int>(block.array), block.number});
      blocks.push_back({p.size, p.ManifoldOf(block.number)});
      references.insert(
          references.end(), block.reference, block.reference + p.size);
    }
    std::vector<double> a;
    std::vector<double> offset;
    for (int64_t i = 0; i < group.num_rows; ++i) {
      const double* const row = &group.values[i * (group.num_columns + 1)];
      a.insert(a.end(), row, row + group.num_columns);
      offset.push_back(row[group.num_columns]);
    }
    marginal->prior =
        BlockMarginalPrior::Create(blocks,
                                   references.data(),
                                   static_cast<int>(group.num_rows),
                                   a.data(),
                                   offset.data(),
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
  std::vector<std::vector<size_t>> groups_of_;  // of dropped blocks
  std::vector<int64_t> begin_;
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
                        Marginal* marginal,
                        std::string* error) {
  return Marginalization(batch, i).Run(marginal, error);
}

void MarginalizeSolved(const ProblemBatch& batch,
                       int64_t i,
                       const ProblemSummary& summary,
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
    if (MarginalizeProblem(batch, i, &made, &error)) {
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
