// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/small/model_window/model_plan.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <tuple>
#include <utility>

#include "ceres_ext/base/sentence.h"
#include "ceres_ext/import/array_rows.h"
#include "ceres_ext/small/model_window/block_set.h"

namespace ceres_ext {
namespace {

// Most pairs of neighbours of blocks of E, of eight bytes each.
constexpr int64_t kMaxPairs = int64_t{1} << 22;
// Most values of A of a marginal prior.
constexpr int64_t kMaxPriorValues = int64_t{1} << 26;

class ModelPlanner {
 public:
  ModelPlanner(const ModelWindows& windows, int64_t i, ModelPlan* plan)
      : windows_(windows),
        batch_(windows.batch()),
        problem_(windows.batch().problem),
        i_(i),
        plan_(*plan) {}

  std::string Run() {
    plan_ = ModelPlan();
    std::string reason = ListRows();
    if (reason.empty()) {
      reason = ListBlocks();
    }
    if (!reason.empty()) {
      return reason;
    }
    PlaceRows();
    Order();
    PlaceBlocks();
    PlaceWanted();
    reason = AddFixedRows();
    if (!reason.empty()) {
      return reason;
    }
    reason = NumberCells();
    if (!reason.empty()) {
      return reason;
    }
    FillEntries();
    FillSchur();
    FindRuns();
    Count();
    return "";
  }

 private:
  // ceres_ext::Solve says which.
  static constexpr char kTwice[] =
      "a residual block has the same parameter block twice";
  // Before ListBlocks. Blocks that a prior has, or whose covariance is wanted,
  // are not eliminated.
  enum : int32_t { kUnused = -1, kUsed = -2, kOfPrior = -3 };
  struct SortedRow {
    std::array<uint16_t, kMaxModelSlots> blocks{};
    ModelPlan::Row row;
  };
  static_assert(kMaxModelRows <= 1 << 16);
  struct SortedPrior {
    std::vector<int32_t> blocks;
    const BlockMarginalPrior* prior;
    ModelPlan::Row row;
  };
  // A block of a row that varies.
  struct Part {
    int32_t block;  // of E, or num_eliminated + that of F
    int32_t column;
  };

  const ArrayProblem::Parameters& parameters(size_t a) const {
    return problem_.parameters()[a];
  }
  const ArrayProblem::Residuals& residuals(size_t r) const {
    return problem_.residuals()[r];
  }
  int num_eliminated() const { return plan_.counts.num_eliminated; }
  int num_others() const { return plan_.counts.num_others; }

  static bool IsActive(const std::vector<const uint8_t*>& flags,
                       size_t array,
                       int64_t number) {
    return flags.empty() || flags[array] == nullptr ||
           flags[array][number] != 0;
  }

  // Calls function(s, place) for the blocks of a row, where place is that of
  // its block.
  template <typename Function>
  void ForEachSlot(const ModelPlan::Row& row, const Function& function) {
    const auto& blocks = residuals(row.array).blocks;
    for (size_t s = 0; s < blocks.size(); ++s) {
      const int a = blocks[s].parameters;
      const int64_t block = blocks[s].BlockOf(row.number);
      function(static_cast<int>(s),
               place_[first_[a] + block - batch_.parameter_begin[a][i_]]);
    }
  }

  // Lists the active rows, model by model, and marks the blocks that they have.
  std::string ListRows() {
    int64_t num_blocks = 0;
    for (size_t a = 0; a < problem_.parameters().size(); ++a) {
      first_.push_back(num_blocks);
      num_blocks +=
          batch_.parameter_begin[a][i_ + 1] - batch_.parameter_begin[a][i_];
    }
    int64_t num_rows = 0;
    for (size_t r = 0; r < problem_.residuals().size(); ++r) {
      num_rows +=
          batch_.residual_begin[r][i_ + 1] - batch_.residual_begin[r][i_];
    }
    if (num_rows > kMaxModelRows || num_blocks > kMaxModelRows) {
      return Sentence("a window of models has more than ",
                      kMaxModelRows,
                      " residual blocks or parameter blocks");
    }
    place_.assign(num_blocks, kUnused);
    plan_.rows.reserve(num_rows);
    for (size_t m = 0; m < windows_.models().size(); ++m) {
      rows_.clear();
      for (size_t r = 0; r < problem_.residuals().size(); ++r) {
        if (windows_.model_of(r) != static_cast<int>(m)) {
          continue;
        }
        for (int64_t k = batch_.residual_begin[r][i_];
             k < batch_.residual_begin[r][i_ + 1];
             ++k) {
          std::string reason = ListRow(r, k);
          if (!reason.empty()) {
            return reason;
          }
        }
      }
      SortRows();
    }
    const std::string reason = ListPriors();
    return reason.empty() && !MarkWanted()
               ? "the covariance of a block is wanted that no residual block "
                 "depends on"
               : reason;
  }

  bool IsWanted(size_t a, int64_t block) const {
    const auto& flags = batch_.covariance_is_wanted;
    return !flags.empty() && flags[a] != nullptr && flags[a][block] != 0;
  }

  // Calls function(array, block, place) for the blocks whose covariance is
  // wanted.
  template <typename Function>
  void ForEachWanted(const Function& function) {
    for (size_t a = 0; a < problem_.parameters().size(); ++a) {
      const int64_t begin = batch_.parameter_begin[a][i_];
      for (int64_t b = begin; b < batch_.parameter_begin[a][i_ + 1]; ++b) {
        if (IsWanted(a, b)) {
          function(a, b, &place_[first_[a] + b - begin]);
        }
      }
    }
  }

  // They are not eliminated. False if one is not used.
  bool MarkWanted() {
    bool are_used = true;
    ForEachWanted([&](size_t a, int64_t b, int32_t* place) {
      are_used &= *place != kUnused || IsConstant(parameters(a), b);
      *place = *place == kUsed ? kOfPrior : *place;
    });
    return are_used;
  }

  void PlaceWanted() {
    ForEachWanted([&](size_t a, int64_t b, const int32_t* place) {
      if (*place < 0) {
        return;
      }
      const ModelBlock& block =
          plan_.blocks[num_eliminated() + position_[*place - num_eliminated()]];
      for (int c = 0; c < block.num_columns; ++c) {
        plan_.wanted.push_back(block.column + c);
      }
      plan_.of_wanted.push_back({static_cast<int32_t>(a), b});
    });
    plan_.counts.num_wanted = static_cast<int32_t>(plan_.wanted.size());
  }

  // In an order that does not depend on the batch.
  std::string ListPriors() {
    std::vector<SortedPrior> priors;
    for (size_t r = 0; r < problem_.residuals().size(); ++r) {
      if (windows_.model_of(r) != ModelWindows::kPriors) {
        continue;
      }
      for (int64_t k = batch_.residual_begin[r][i_];
           k < batch_.residual_begin[r][i_ + 1];
           ++k) {
        std::string reason = ListPrior(r, k, &priors);
        if (!reason.empty()) {
          return reason;
        }
      }
    }
    if (priors.size() > static_cast<size_t>(kMaxModelPriors)) {
      return Sentence("a window of models has more than ",
                      kMaxModelPriors,
                      " marginal priors");
    }
    std::sort(priors.begin(),
              priors.end(),
              [](const SortedPrior& a, const SortedPrior& b) {
                return std::tie(
                           a.blocks, a.prior->offset(), a.prior->matrix()) <
                       std::tie(b.blocks, b.prior->offset(), b.prior->matrix());
              });
    for (const SortedPrior& prior : priors) {
      plan_.rows.push_back(prior.row);
      for (const int32_t block : prior.blocks) {
        place_[block] = kOfPrior;
      }
    }
    return "";
  }

  std::string ListPrior(size_t r, int64_t k, std::vector<SortedPrior>* priors) {
    const ArrayProblem::Residuals& of = residuals(r);
    std::string reason;
    if (!TakesPart(r, k, &reason)) {
      return reason;
    }
    SortedPrior one;
    one.row = {static_cast<int32_t>(r), k};
    one.prior = dynamic_cast<const BlockMarginalPrior*>(of.cost_functions[k]);
    bool fits = one.prior != nullptr &&
                one.prior->parameter_block_sizes().size() == of.blocks.size();
    for (size_t s = 0; fits && s < of.blocks.size(); ++s) {
      const ArrayProblem::Parameters& p = parameters(of.blocks[s].parameters);
      fits = p.size == one.prior->parameter_block_sizes()[s] &&
             p.values != nullptr;
      one.blocks.push_back(BlockOf(of.blocks[s], k));
    }
    if (!fits) {
      return "a marginal prior does not fit its parameter blocks";
    }
    std::vector<int32_t> sorted = one.blocks;
    std::sort(sorted.begin(), sorted.end());
    if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) {
      return kTwice;
    }
    if (WeightOf(of, k) != 1.0) {
      return "a marginal prior of a window has a weight";
    }
    if (one.prior->num_residuals() > kMaxModelRows ||
        static_cast<int64_t>(one.prior->matrix().size()) > kMaxPriorValues) {
      return Sentence("a marginal prior has more than ",
                      kMaxModelRows,
                      " residuals or ",
                      kMaxPriorValues,
                      " values");
    }
    priors->push_back(std::move(one));
    return "";
  }
  const BlockMarginalPrior& PriorOf(const ModelPlan::Row& row) const {
    return *static_cast<const BlockMarginalPrior*>(
        residuals(row.array).cost_functions[row.number]);
  }
  bool IsPrior(const ModelPlan::Row& row) const {
    return windows_.model_of(row.array) == ModelWindows::kPriors;
  }

  // In an order that does not depend on the batch, whose arrays depend on the
  // losses of all problems.
  void SortRows() {
    std::sort(rows_.begin(),
              rows_.end(),
              [&](const SortedRow& a, const SortedRow& b) {
                if (a.blocks != b.blocks) {
                  return a.blocks < b.blocks;
                }
                const auto& of_a = residuals(a.row.array);
                const auto& of_b = residuals(b.row.array);
                const int order = std::memcmp(ConstantsOf(a.row),
                                              ConstantsOf(b.row),
                                              of_a.constants_bytes);
                return order != 0 ? order < 0
                                  : WeightOf(of_a, a.row.number) <
                                        WeightOf(of_b, b.row.number);
              });
    for (const SortedRow& row : rows_) {
      plan_.rows.push_back(row.row);
    }
  }
  const char* ConstantsOf(const ModelPlan::Row& row) const {
    const ArrayProblem::Residuals& of = residuals(row.array);
    return static_cast<const char*>(of.constants) +
           row.number * of.constants_bytes;
  }
  static double WeightOf(const ArrayProblem::Residuals& of, int64_t k) {
    return of.weights != nullptr ? of.weights[k] : 1.0;
  }

  // The number of residual block k's block in the window.
  int32_t BlockOf(const ArrayProblem::Index& index, int64_t k) const {
    const int a = index.parameters;
    return static_cast<int32_t>(first_[a] + index.BlockOf(k) -
                                batch_.parameter_begin[a][i_]);
  }

  // False, with a reason unless it is not active, if row k takes no part.
  bool TakesPart(size_t r, int64_t k, std::string* reason) const {
    bool is_active = IsActive(batch_.residual_is_active, r, k);
    for (const ArrayProblem::Index& index : residuals(r).blocks) {
      const int a = index.parameters;
      const int64_t block = index.BlockOf(k);
      if (block < batch_.parameter_begin[a][i_] ||
          block >= batch_.parameter_begin[a][i_ + 1]) {
        *reason = "an index is not valid";
        return false;
      }
      is_active = is_active && IsActive(batch_.parameter_is_active, a, block);
    }
    return is_active;
  }

  std::string ListRow(size_t r, int64_t k) {
    const ArrayProblem::Residuals& of = residuals(r);
    std::string reason;
    if (!TakesPart(r, k, &reason)) {
      return reason;
    }
    if (of.weights != nullptr &&
        !(of.weights[k] >= 0.0 && std::isfinite(of.weights[k]))) {
      return "a weight is not valid";
    }
    SortedRow row;
    row.row = {static_cast<int32_t>(r), k};
    for (size_t s = 0; s < of.blocks.size(); ++s) {
      row.blocks[s] = static_cast<uint16_t>(BlockOf(of.blocks[s], k));
      place_[row.blocks[s]] = kUsed;
      if (std::find(row.blocks.begin(),
                    row.blocks.begin() + s,
                    row.blocks[s]) != row.blocks.begin() + s) {
        return kTwice;
      }
    }
    rows_.push_back(row);
    return "";
  }

  // Small blocks, of which there are several and a row has one: the most first.
  void ChooseEliminated() {
    const size_t num_arrays = problem_.parameters().size();
    std::vector<int64_t> num_varying(num_arrays, 0);
    std::vector<size_t> order;
    for (size_t a = 0; a < num_arrays; ++a) {
      const int64_t begin = batch_.parameter_begin[a][i_];
      for (int64_t b = begin; b < batch_.parameter_begin[a][i_ + 1]; ++b) {
        num_varying[a] += place_[first_[a] + b - begin] == kUsed &&
                                  !IsConstant(parameters(a), b)
                              ? 1
                              : 0;
      }
      if (parameters(a).size <= kMaxEliminatedColumns && num_varying[a] > 1) {
        order.push_back(a);
      }
    }
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return num_varying[a] > num_varying[b];
    });
    is_eliminated_.assign(num_arrays, 0);
    for (const size_t a : order) {
      is_eliminated_[a] = 1;
      for (size_t r = 0; r < problem_.residuals().size(); ++r) {
        if (HasTwoEliminated(r)) {
          is_eliminated_[a] = 0;
        }
      }
    }
  }

  // True if a row of a model may have two blocks to eliminate.
  bool HasTwoEliminated(size_t r) const {
    const auto& blocks = residuals(r).blocks;
    const auto is_of_eliminated = [&](const ArrayProblem::Index& b) {
      return is_eliminated_[b.parameters] != 0;
    };
    if (windows_.model_of(r) < 0 ||
        std::count_if(blocks.begin(), blocks.end(), is_of_eliminated) < 2) {
      return false;
    }
    for (int64_t k = batch_.residual_begin[r][i_];
         k < batch_.residual_begin[r][i_ + 1];
         ++k) {
      const auto n = std::count_if(
          blocks.begin(), blocks.end(), [&](const ArrayProblem::Index& b) {
            return is_of_eliminated(b) && place_[BlockOf(b, k)] == kUsed;
          });
      if (n > 1) {
        return true;
      }
    }
    return false;
  }

  // Finds which blocks vary, and numbers those of E, of F in the batch's order,
  // and the values of constant ones.
  std::string ListBlocks() {
    ChooseEliminated();
    std::vector<ModelPlan::Place> others;
    int num_columns = 0;
    for (size_t a = 0; a < problem_.parameters().size(); ++a) {
      const ArrayProblem::Parameters& p = parameters(a);
      const int64_t begin = batch_.parameter_begin[a][i_];
      for (int64_t b = begin; b < batch_.parameter_begin[a][i_ + 1]; ++b) {
        int32_t& place = place_[first_[a] + b - begin];
        const bool is_eliminated = is_eliminated_[a] != 0 && place == kUsed;
        if (place == kUnused) {
          continue;
        }
        for (int j = 0; j < p.size; ++j) {
          if (!std::isfinite(p.values[p.size * b + j])) {
            return "a value is not valid";
          }
          if (p.MayHaveBounds() && p.IsBounded(b, j)) {
            return "a window of models has bounds";
          }
        }
        const ModelPlan::Place of_batch{static_cast<int32_t>(a), b};
        if (IsConstant(p, b)) {
          place = -1 - plan_.counts.num_constants;
          plan_.constant.push_back(of_batch);
          plan_.counts.num_constants += p.size;
          continue;
        }
        if (p.size > kMaxModelValues) {
          return Sentence(
              "a parameter block has more than ", kMaxModelValues, " values");
        }
        if (windows_.manifolds().NumberOf(p, b) == ManifoldTable::kUnknown) {
          return "a manifold is user-defined";
        }
        if (is_eliminated) {
          place = static_cast<int32_t>(plan_.varying.size());
          plan_.varying.push_back(of_batch);
        } else {
          others.push_back(of_batch);
          num_columns += TangentSize(p, b);
        }
      }
    }
    plan_.counts.num_eliminated = static_cast<int32_t>(plan_.varying.size());
    plan_.counts.num_others = static_cast<int32_t>(others.size());
    plan_.counts.num_columns = num_columns;
    for (const ModelPlan::Place& of_batch : others) {
      place_[first_[of_batch.array] + of_batch.block -
             batch_.parameter_begin[of_batch.array][i_]] =
          static_cast<int32_t>(plan_.varying.size());
      plan_.varying.push_back(of_batch);
    }
    if (plan_.varying.empty()) {
      return "no residual block depends on a parameter block that varies";
    }
    if (num_others() > kMaxModelBlocks || num_columns > kMaxModelColumns ||
        num_eliminated() > kMaxEliminated) {
      return Sentence("a window of models has more than ",
                      kMaxModelBlocks,
                      " blocks that vary, ",
                      kMaxModelColumns,
                      " columns of them, or ",
                      kMaxEliminated,
                      " blocks to eliminate");
    }
    return "";
  }

  // Rows without a block that varies are set apart. Rows are sorted by model.
  void PlaceRows() {
    size_t n = 0;
    for (const ModelPlan::Row& row : plan_.rows) {
      const int first_part = static_cast<int>(parts_.size());
      int column = 0;
      ForEachSlot(row, [&](int /*s*/, int32_t place) {
        if (place >= 0) {
          parts_.push_back({place, column});
          const ModelPlan::Place& of = plan_.varying[place];
          column += TangentSize(parameters(of.array), of.block);
        }
      });
      if (static_cast<int>(parts_.size()) == first_part) {
        fixed_.push_back(row);
        continue;
      }
      part_begin_.push_back(first_part);
      const int m = windows_.model_of(row.array);
      if (IsPrior(row)) {
        plan_.marginals.push_back(&PriorOf(row));
        plan_.priors.emplace_back();
        plan_.priors.back().num_columns = column;
        plan_.num_residuals += PriorOf(row).num_residuals();
      } else {
        ++plan_.num_rows[m];
        plan_.num_residuals += windows_.models()[m]->num_residuals;
      }
      plan_.rows[n++] = row;
    }
    part_begin_.push_back(static_cast<int>(parts_.size()));
    plan_.rows.resize(n);
  }

  // Orders F so that each block that is next has the fewest neighbours.
  void Order() {
    std::vector<BlockSet> of_eliminated(num_eliminated());
    std::vector<BlockSet> neighbours(num_others());
    ForEachRowsBlocks([&](int e, const BlockSet& set) {
      if (e >= 0) {
        of_eliminated[e].Add(set);
      } else {
        set.ForEach([&](int b) { neighbours[b].Add(set); });
      }
    });
    for (const BlockSet& set : of_eliminated) {
      set.ForEach([&](int b) { neighbours[b].Add(set); });
    }
    // Columns of a block and its neighbours that are left.
    const auto weight = [&](int b, const std::vector<uint8_t>& is_left) {
      int sum = 0;
      neighbours[b].ForEach([&](int k) {
        const ModelPlan::Place& of = plan_.varying[num_eliminated() + k];
        sum += is_left[k] != 0 && k != b
                   ? TangentSize(parameters(of.array), of.block)
                   : 0;
      });
      return sum;
    };
    std::vector<uint8_t> is_left(num_others(), 1);
    std::vector<int> weights;
    for (int b = 0; b < num_others(); ++b) {
      neighbours[b].Add(b);
      weights.push_back(weight(b, is_left));
    }
    std::vector<ModelPlan::Place> ordered;
    position_.resize(num_others());
    for (int n = 0; n < num_others(); ++n) {
      int next = -1;
      for (int b = 0; b < num_others(); ++b) {
        if (is_left[b] != 0 && (next < 0 || weights[b] < weights[next])) {
          next = b;
        }
      }
      position_[next] = n;
      ordered.push_back(plan_.varying[num_eliminated() + next]);
      is_left[next] = 0;
      neighbours[next].ForEach([&](int b) {
        if (is_left[b] != 0) {
          neighbours[b].Add(neighbours[next]);
          weights[b] = weight(b, is_left);
        }
      });
    }
    std::copy(ordered.begin(),
              ordered.end(),
              plan_.varying.begin() + num_eliminated());
    for (Part& part : parts_) {
      if (part.block >= num_eliminated()) {
        part.block =
            num_eliminated() + position_[part.block - num_eliminated()];
      }
    }
  }

  // Calls function(row, parts, number of parts).
  template <typename Function>
  void ForEachRow(const Function& function) const {
    for (size_t k = 0; k + 1 < part_begin_.size(); ++k) {
      function(static_cast<int>(k),
               parts_.data() + part_begin_[k],
               part_begin_[k + 1] - part_begin_[k]);
    }
  }

  // Calls function(its eliminated block or -1, its others) for each row.
  template <typename Function>
  void ForEachRowsBlocks(const Function& function) const {
    ForEachRow([&](int, const Part* parts, int n) {
      BlockSet set;
      int e = -1;
      for (int p = 0; p < n; ++p) {
        if (parts[p].block < num_eliminated()) {
          e = parts[p].block;
        } else {
          set.Add(parts[p].block - num_eliminated());
        }
      }
      function(e, set);
    });
  }

  void PlaceBlocks() {
    ModelCounts& counts = plan_.counts;
    int column = 0;
    for (size_t b = 0; b < plan_.varying.size(); ++b) {
      const ModelPlan::Place& of = plan_.varying[b];
      const ArrayProblem::Parameters& p = parameters(of.array);
      ModelBlock block;
      block.size = static_cast<int16_t>(p.size);
      block.num_columns = static_cast<int16_t>(TangentSize(p, of.block));
      block.manifold = windows_.manifolds().NumberOf(p, of.block);
      block.state = counts.num_values;
      counts.num_values += block.size;
      if (static_cast<int>(b) < num_eliminated()) {
        block.column = kMaxEliminatedColumns * static_cast<int>(b);
      } else {
        block.column = column;
        column += block.num_columns;
      }
      if (block.manifold != 0) {
        block.tangent = counts.num_tangents;
        counts.num_tangents += block.size * block.num_columns;
      }
      plan_.blocks.push_back(block);
    }
    const size_t num_of_models = plan_.rows.size() - plan_.priors.size();
    plan_.row_blocks.resize(kMaxModelSlots * num_of_models);
    for (size_t k = 0; k < plan_.rows.size(); ++k) {
      if (k >= num_of_models) {
        PlacePrior(k, &plan_.priors[k - num_of_models]);
        continue;
      }
      RowBlock* const of_row = plan_.row_blocks.data() + kMaxModelSlots * k;
      ForEachPlaced(k, [&](int s, const RowBlock& of) { of_row[s] = of; });
    }
  }

  // Calls function(s, its block) for the blocks of row k.
  template <typename Function>
  void ForEachPlaced(size_t k, const Function& function) {
    int part = part_begin_[k];
    ForEachSlot(plan_.rows[k], [&](int s, int32_t place) {
      RowBlock of;
      of.state = place;
      if (place >= 0) {
        const ModelBlock& block = plan_.blocks[parts_[part].block];
        of = {
            block.state, block.tangent, parts_[part].column, block.num_columns};
        ++part;
      }
      function(s, of);
    });
  }

  void PlacePrior(size_t row, ModelPrior* prior) {
    ModelCounts& counts = plan_.counts;
    const BlockMarginalPrior& of = PriorOf(plan_.rows[row]);
    prior->num_residuals = of.num_residuals();
    prior->num_differences = of.num_columns();
    prior->block = counts.num_prior_blocks;
    prior->difference = counts.num_differences;
    prior->columns = counts.num_prior_columns;
    prior->residuals = counts.num_prior_residuals;
    ForEachPlaced(row, [&](int s, const RowBlock& placed) {
      const internal::BlockDifference& difference = of.difference(s);
      ModelPriorBlock block;
      block.state = placed.state;
      block.tangent = placed.tangent;
      block.column = placed.column;
      block.num_columns = placed.size;
      block.size = difference.size();
      block.reference = counts.num_prior_values + of.reference_begin(s);
      block.difference = counts.num_differences + of.column_begin(s);
      block.num_differences = difference.num_columns();
      block.by_columns = counts.num_by_columns;
      block.part = static_cast<int32_t>(plan_.prior_parts.size());
      for (const auto& part : difference.parts()) {
        plan_.prior_parts.push_back({part.kind, part.size});
      }
      block.part_end = static_cast<int32_t>(plan_.prior_parts.size());
      counts.num_by_columns += block.num_differences * block.num_columns;
      plan_.prior_blocks.push_back(block);
    });
    counts.num_prior_blocks = static_cast<int32_t>(plan_.prior_blocks.size());
    counts.num_prior_parts = static_cast<int32_t>(plan_.prior_parts.size());
    prior->block_end = counts.num_prior_blocks;
    prior->matrix =
        counts.num_prior_values + static_cast<int32_t>(of.references().size());
    prior->offset =
        prior->matrix + prior->num_residuals * prior->num_differences;
    counts.num_prior_values = prior->offset + prior->num_residuals;
    counts.num_differences += prior->num_differences;
    counts.num_prior_columns += prior->num_residuals * prior->num_columns;
    counts.num_prior_residuals += prior->num_residuals;
    ++counts.num_priors;
  }

  // Adds up the cost of rows that no block can change, as Ceres does.
  std::string AddFixedRows() {
    std::vector<double> values;
    if (!fixed_.empty()) {
      for (const ModelPlan::Place& of : plan_.constant) {
        const ArrayProblem::Parameters& p = parameters(of.array);
        values.insert(values.end(),
                      p.values + p.size * of.block,
                      p.values + p.size * (of.block + 1));
      }
    }
    for (const ModelPlan::Row& row : fixed_) {
      const ArrayProblem::Residuals& of = residuals(row.array);
      if (IsPrior(row)) {
        if (!AddFixedPrior(row, values)) {
          return "an evaluation of the window failed";
        }
        continue;
      }
      std::array<RowBlock, kMaxModelSlots> blocks;
      ForEachSlot(row, [&](int s, int32_t place) { blocks[s].state = place; });
      std::vector<uint64_t> constants((of.constants_bytes + 7) / 8);
      std::memcpy(constants.data(), ConstantsOf(row), of.constants_bytes);
      const uint8_t loss = windows_.loss_of(row.array);
      RowBatch one;
      one.num_rows = 1;
      one.blocks = blocks.data();
      one.constant_state = values.data();
      one.constants = constants.data();
      one.constant_word = 1;
      one.loss.losses = windows_.losses().data();
      one.loss.loss_id = &loss;
      one.loss.weights =
          of.weights != nullptr ? of.weights + row.number : nullptr;
      one.apply_loss = true;
      const RowTerm term =
          windows_.models()[windows_.model_of(row.array)]->evaluate_row(
              one, /*jacobian=*/false, 0);
      if (term.second != 0.0) {
        return "an evaluation of the window failed";
      }
      plan_.fixed_cost += 0.5 * term.first;
    }
    return "";
  }

  bool AddFixedPrior(const ModelPlan::Row& row,
                     const std::vector<double>& values) {
    std::vector<const double*> blocks;
    ForEachSlot(row, [&](int /*s*/, int32_t place) {
      blocks.push_back(values.data() - 1 - place);
    });
    std::vector<double> residuals(PriorOf(row).num_residuals());
    if (!PriorOf(row).Evaluate(blocks.data(), residuals.data(), nullptr)) {
      return false;
    }
    for (const double residual : residuals) {
      plan_.fixed_cost += 0.5 * residual * residual;
    }
    return std::isfinite(plan_.fixed_cost);
  }

  // Numbers the cells of EF and FF.
  std::string NumberCells() {
    ModelCounts& counts = plan_.counts;
    of_eliminated_.resize(num_eliminated());
    behind_.resize(num_others());
    const int nf = num_others();
    ForEachRowsBlocks([&](int e, const BlockSet& set) {
      if (e >= 0) {
        of_eliminated_[e].Add(set);
      }
      set.ForEach([&](int b) { behind_[b].Add(set); });
    });
    plan_.diagonal_cells.resize(num_eliminated() + 1);
    eliminated_cell_.assign(int64_t{num_eliminated()} * nf, -1);
    for (int e = 0; e < num_eliminated(); ++e) {
      plan_.diagonal_cells[e].a = e;
      ModelEliminated of;
      of.w = counts.num_w;
      of.cell = static_cast<int32_t>(plan_.eliminated_cells.size());
      of_eliminated_[e].ForEach([&](int b) {
        eliminated_cell_[int64_t{e} * nf + b] =
            static_cast<int32_t>(plan_.eliminated_cells.size());
        ModelCell cell;
        cell.a = e;
        cell.b = b;
        cell.values = of.width;
        plan_.eliminated_cells.push_back(cell);
        of.width += plan_.blocks[num_eliminated() + b].num_columns;
      });
      counts.num_w += of.width * plan_.blocks[e].num_columns;
      plan_.eliminated.push_back(of);
      of_eliminated_[e].ForEach(
          [&](int b) { behind_[b].Add(of_eliminated_[e]); });
    }
    ModelEliminated end;
    end.w = counts.num_w;
    end.cell = static_cast<int32_t>(plan_.eliminated_cells.size());
    plan_.eliminated.push_back(end);
    plan_.eliminated_cells.emplace_back();
    cell_.assign(int64_t{nf} * nf, -1);
    for (int a = 0; a < nf; ++a) {
      behind_[a].ForEach([&](int b) {
        if (b > a) {
          return;
        }
        cell_[a * nf + b] = static_cast<int32_t>(plan_.cells.size());
        ModelCell cell;
        cell.a = a;
        cell.b = b;
        cell.values = counts.num_u;
        counts.num_u += plan_.blocks[num_eliminated() + a].num_columns *
                        plan_.blocks[num_eliminated() + b].num_columns;
        plan_.cells.push_back(cell);
      });
    }
    plan_.cells.emplace_back();
    int64_t num_pairs = 0;
    for (int e = 0; e < num_eliminated(); ++e) {
      const int64_t n = plan_.eliminated[e + 1].cell - plan_.eliminated[e].cell;
      num_pairs += n * (n + 1) / 2;
    }
    return num_pairs <= kMaxPairs
               ? ""
               : "blocks to eliminate are beside too many others";
  }

  // Calls function(cell, a, b) for the pairs of a row's blocks: the cell that
  // they add to, and its rows' and columns' part.
  template <typename Function>
  void ForEachPair(const Part* parts, int n, const Function& function) {
    const int ne = num_eliminated();
    const int nf = num_others();
    for (int p = 0; p < n; ++p) {
      for (int q = 0; q <= p; ++q) {
        const bool is_before = parts[q].block <= parts[p].block;
        const Part& a = parts[is_before ? q : p];
        const Part& b = parts[is_before ? p : q];
        const int f = b.block - ne;
        if (f < 0) {
          function(&plan_.diagonal_cells[b.block], a, b);
        } else if (a.block < ne) {
          const int64_t k = int64_t{a.block} * nf + f;
          function(&plan_.eliminated_cells[eliminated_cell_[k]], a, b);
        } else {
          function(&plan_.cells[cell_[f * nf + a.block - ne]], b, a);
        }
      }
    }
  }

  void FillEntries() {
    ForEachRow([&](int, const Part* parts, int n) {
      ForEachPair(parts, n, [](ModelCell* cell, const Part&, const Part&) {
        ++cell->begin;
      });
    });
    int32_t total = 0;
    std::vector<ModelCell>* const all[] = {
        &plan_.diagonal_cells, &plan_.eliminated_cells, &plan_.cells};
    int32_t first[3];
    for (int l = 0; l < 3; ++l) {
      first[l] = total;
      ToBegins(all[l], &ModelCell::begin, &total);
    }
    plan_.entries.resize(total);
    ForEachRow([&](int row, const Part* parts, int n) {
      ForEachPair(parts, n, [&](ModelCell* cell, const Part& a, const Part& b) {
        plan_.entries[cell->begin++] = {row,
                                        static_cast<uint16_t>(a.column),
                                        static_cast<uint16_t>(b.column)};
      });
    });
    for (int l = 0; l < 3; ++l) {
      StepBack(all[l], &ModelCell::begin);
      all[l]->front().begin = first[l];
    }
  }

  // Calls function(cell, e, a, b) for the pairs of neighbours of blocks of E.
  template <typename Function>
  void ForEachSchurPair(const Function& function) {
    for (int e = 0; e < num_eliminated(); ++e) {
      const ModelCell* const begin =
          plan_.eliminated_cells.data() + plan_.eliminated[e].cell;
      const ModelCell* const end =
          plan_.eliminated_cells.data() + plan_.eliminated[e + 1].cell;
      for (const ModelCell* p = begin; p < end; ++p) {
        for (const ModelCell* q = begin; q <= p; ++q) {
          function(&plan_.cells[cell_[p->b * num_others() + q->b]],
                   e,
                   p->values,
                   q->values);
        }
      }
    }
  }

  void FillSchur() {
    ForEachSchurPair([](ModelCell* cell, int, int, int) { ++cell->schur; });
    int32_t total = 0;
    ToBegins(&plan_.cells, &ModelCell::schur, &total);
    plan_.schur_entries.resize(total);
    ForEachSchurPair([&](ModelCell* cell, int e, int a, int b) {
      plan_.schur_entries[cell->schur++] = {
          e, static_cast<uint16_t>(a), static_cast<uint16_t>(b)};
    });
    StepBack(&plan_.cells, &ModelCell::schur);
    plan_.cells.front().schur = 0;
  }

  // The rows of L behind each block, with what is filled in and the last one.
  void FindRuns() {
    for (int b = 0; b < num_others(); ++b) {
      plan_.run_begin.push_back(static_cast<int32_t>(plan_.runs.size()));
      const auto add = [&](int begin, int end) {
        if (static_cast<int32_t>(plan_.runs.size()) > plan_.run_begin.back() &&
            plan_.runs.back().end == begin) {
          plan_.runs.back().end = end;
        } else {
          plan_.runs.push_back({begin, end});
        }
      };
      int next = -1;
      behind_[b].ForEach([&](int k) {
        if (k > b) {
          next = next < 0 ? k : next;
          const ModelBlock& block = plan_.blocks[num_eliminated() + k];
          add(block.column, block.column + block.num_columns);
        }
      });
      add(plan_.counts.num_columns, plan_.counts.num_columns + 1);
      // The first block behind fills in for all others.
      for (int k = 0; next >= 0 && k <= b; ++k) {
        behind_[b].Remove(k);
      }
      if (next >= 0) {
        behind_[next].Add(behind_[b]);
      }
    }
    plan_.run_begin.push_back(static_cast<int32_t>(plan_.runs.size()));
  }

  void Count() {
    ModelCounts& counts = plan_.counts;
    counts.num_rows = static_cast<int32_t>(plan_.rows.size());
    counts.num_eliminated_cells =
        static_cast<int32_t>(plan_.eliminated_cells.size()) - 1;
    counts.num_cells = static_cast<int32_t>(plan_.cells.size()) - 1;
    counts.num_entries = static_cast<int32_t>(plan_.entries.size());
    counts.num_schur_entries = static_cast<int32_t>(plan_.schur_entries.size());
    counts.num_runs = static_cast<int32_t>(plan_.runs.size());
  }

  const ModelWindows& windows_;
  const ProblemBatch& batch_;
  const ArrayProblem& problem_;
  const int64_t i_;
  ModelPlan& plan_;
  std::vector<int64_t> first_;  // block of each array
  // A block's number among those that vary, or -1 - the place of its values
  // among constants.
  std::vector<int32_t> place_;
  std::vector<SortedRow> rows_;         // of a model
  std::vector<uint8_t> is_eliminated_;  // of parameter arrays
  // The blocks of each row that vary.
  std::vector<Part> parts_;
  std::vector<int> part_begin_;
  std::vector<ModelPlan::Row> fixed_;
  std::vector<int> position_;  // of blocks of F
  std::vector<BlockSet> of_eliminated_;
  std::vector<BlockSet> behind_;  // in S, those before included
  std::vector<int32_t> eliminated_cell_;
  std::vector<int32_t> cell_;
};

}  // namespace

std::string PlanModelWindow(const ModelWindows& windows,
                            int64_t i,
                            ModelPlan* plan) {
  return ModelPlanner(windows, i, plan).Run();
}

}  // namespace ceres_ext
