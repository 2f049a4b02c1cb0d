// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/import/table_of_problem.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <typeinfo>

#include "ceres/parameter_block.h"
#include "ceres/residual_block.h"
#include "ceres_ext/import/batch_models.h"

namespace ceres_ext {

using ceres::internal::ParameterBlock;
using ceres::internal::ResidualBlock;

namespace {

// A problem whose residual blocks are of more kinds has a loss, or a type, for
// each of them: as arrays it would only be slow.
constexpr size_t kMostArrays = 256;

constexpr double kNoBound = std::numeric_limits<double>::max();

// True if a value of the block has a lower or an upper bound.
bool HasBounds(const ParameterBlock& block) {
  for (int e = 0; e < block.Size(); ++e) {
    if (block.LowerBound(e) > -kNoBound || block.UpperBound(e) < kNoBound) {
      return true;
    }
  }
  return false;
}

// Elements [begin, end) of more.
template <typename T>
void AppendTo(std::vector<T>* all,
              const std::vector<T>& more,
              size_t begin,
              size_t end) {
  all->insert(all->end(),
              more.begin() + static_cast<int64_t>(begin),
              more.begin() + static_cast<int64_t>(end));
}
template <typename T>
void AppendTo(std::vector<T>* all, const std::vector<T>& more) {
  AppendTo(all, more, 0, more.size());
}

}  // namespace

bool TableOfProblem::Read(const ceres::Problem& problem, std::string* reason) {
  std::vector<ceres::ResidualBlockId> rows;
  problem.GetResidualBlocks(&rows);
  places_.reserve(static_cast<size_t>(problem.NumParameterBlocks()));
  return Read(problem.options(), rows, reason);
}

bool TableOfProblem::Read(const ceres::Problem::Options& options,
                          const std::vector<ceres::ResidualBlockId>& rows,
                          std::string* reason) {
  if (options.evaluation_callback != nullptr) {
    *reason = "the problem has an evaluation callback";
    return false;
  }
  for (const ceres::ResidualBlockId row : rows) {
    if (!Add(*row, reason)) {
      return false;
    }
  }
  Finish();
  return true;
}

// Reads blocks where residual blocks refer to them: ceres::Problem would look
// each of them up for each fact.
bool TableOfProblem::Add(const ResidualBlock& row, std::string* reason) {
  const ceres::CostFunction* const cost_function = row.cost_function();
  const std::type_index type(typeid(*cost_function));
  const BatchModel* model = nullptr;
  if (has_loss_of_each_) {
    const bool is_known =
        last_rows_ != nullptr && std::get<0>(last_rows_->kind) == type;
    if (!is_known) {
      model = FindBatchModel(*cost_function);
    } else if (last_rows_->model() != nullptr) {
      model = &static_cast<const BatchableCostFunction*>(cost_function)
                   ->batch_model();
    }
  }
  Kind& kind = kind_;
  kind = {type,
          model,
          cost_function->num_residuals(),
          has_loss_of_each_ ? nullptr : row.loss_function(),
          std::move(std::get<4>(kind))};
  std::vector<int>& arrays = std::get<4>(kind);
  arrays.clear();
  numbers_.clear();
  for (int b = 0; b < row.NumParameterBlocks(); ++b) {
    ParameterBlock* const block = row.parameter_blocks()[b];
    const auto [place, is_new] = places_.try_emplace(block);
    if (is_new) {
      const auto [role, is_new_role] = array_of_role_.try_emplace(
          {type, b, block->Size()}, static_cast<int>(blocks_.size()));
      if (is_new_role) {
        blocks_.push_back(std::make_unique<Blocks>());
        blocks_.back()->size = block->Size();
      }
      Blocks& array = *blocks_[static_cast<size_t>(role->second)];
      place->second = {role->second, static_cast<int32_t>(array.places.size())};
      double* const values = block->mutable_user_state();
      array.places.push_back(values);
      array.values.insert(array.values.end(), values, values + block->Size());
      array.manifolds.push_back(block->mutable_manifold());
      array.is_constant.push_back(block->IsConstant() ? 1 : 0);
      std::vector<double> lower;
      std::vector<double> upper;
      for (int e = 0; HasBounds(*block) && e < block->Size(); ++e) {
        lower.push_back(block->LowerBound(e));
        upper.push_back(block->UpperBound(e));
      }
      array.AppendBounds(lower, upper);
    }
    arrays.push_back(place->second.array);
    numbers_.push_back(place->second.block);
  }
  Rows* const rows = RowsOf(kind);
  if (rows_.size() > kMostArrays) {
    *reason = "its residual blocks are of more than " +
              std::to_string(kMostArrays) + " types, losses and sizes";
    return false;
  }
  rows->cost_functions.push_back(
      const_cast<ceres::CostFunction*>(cost_function));
  if (has_loss_of_each_) {
    rows->losses.push_back(row.loss_function());
  }
  for (size_t b = 0; b < numbers_.size(); ++b) {
    rows->blocks[b].push_back(numbers_[b]);
  }
  return true;
}

TableOfProblem::Rows* TableOfProblem::RowsOf(const Kind& kind) {
  if (last_rows_ != nullptr && last_rows_->kind == kind) {
    return last_rows_;
  }
  const auto known = rows_of_kind_.find(kind);
  if (known != rows_of_kind_.end()) {
    return last_rows_ = known->second;
  }
  Rows* const rows = rows_.emplace_back(std::make_unique<Rows>(kind)).get();
  rows->blocks.resize(rows->arrays().size());
  rows->begin.assign(static_cast<size_t>(num_problems_) + 1, 0);
  rows_of_kind_[kind] = rows;
  return last_rows_ = rows;
}

void TableOfProblem::Blocks::Append(const Blocks& other) {
  AppendTo(&places, other.places);
  AppendTo(&values, other.values);
  AppendTo(&manifolds, other.manifolds);
  AppendTo(&is_constant, other.is_constant);
  AppendBounds(other.lower_bounds, other.upper_bounds);
}

void TableOfProblem::Blocks::AppendBounds(const std::vector<double>& lower,
                                          const std::vector<double>& upper) {
  if (lower.empty() && lower_bounds.empty()) {
    return;
  }
  // Blocks before these may have had none.
  lower_bounds.resize(values.size() - lower.size(), -kNoBound);
  upper_bounds.resize(values.size() - upper.size(), kNoBound);
  AppendTo(&lower_bounds, lower);
  AppendTo(&upper_bounds, upper);
}

void TableOfProblem::UniteArrays() {
  // The first array of those that each becomes one with.
  std::vector<int> first(blocks_.size());
  std::iota(first.begin(), first.end(), 0);
  std::map<std::pair<size_t, int>, int> array_of_role;
  for (const auto& rows : rows_) {
    for (size_t b = 0; b < rows->arrays().size(); ++b) {
      const int array = rows->arrays()[b];
      const int known =
          array_of_role.try_emplace({b, blocks_[array]->size}, array)
              .first->second;
      const auto [to, from] = std::minmax(first[known], first[array]);
      std::replace(first.begin(), first.end(), int{from}, int{to});
    }
  }
  // The array that each becomes, and the number of its first block there.
  std::vector<Place> places;
  std::vector<std::unique_ptr<Blocks>> united;
  for (size_t a = 0; a < blocks_.size(); ++a) {
    const auto to = static_cast<size_t>(first[a]);
    if (to == a) {
      places.push_back({static_cast<int>(united.size()), 0});
      united.push_back(std::move(blocks_[a]));
      continue;
    }
    Blocks& array = *united[static_cast<size_t>(places[to].array)];
    places.push_back(
        {places[to].array, static_cast<int32_t>(array.places.size())});
    array.Append(*blocks_[a]);
  }
  blocks_ = std::move(united);
  for (const auto& rows : rows_) {
    for (size_t b = 0; b < rows->arrays().size(); ++b) {
      int& array = std::get<4>(rows->kind)[b];
      const Place& place = places[static_cast<size_t>(array)];
      array = place.array;
      for (int32_t& block : rows->blocks[b]) {
        block += place.block;
      }
    }
  }
}

void TableOfProblem::PrepareToAppend() {
  UniteArrays();
  for (const auto& rows : rows_) {
    const size_t bytes =
        rows->model() == nullptr ? 0 : rows->model()->constants_bytes;
    rows->constants.resize(bytes * rows->cost_functions.size());
    for (size_t k = 0; bytes > 0 && k < rows->cost_functions.size(); ++k) {
      static_cast<const BatchableCostFunction*>(rows->cost_functions[k])
          ->CopyConstants(rows->constants.data() + bytes * k);
    }
  }
}

std::vector<const ceres::LossFunction*> TableOfProblem::Losses() const {
  std::vector<const ceres::LossFunction*> losses;
  for (const auto& rows : rows_) {
    AppendTo(&losses, rows->losses);
  }
  return losses;
}

TableOfProblem::Signature TableOfProblem::GetSignature() const {
  Signature signature;
  for (const auto& array : blocks_) {
    signature.first.push_back(array->size);
  }
  for (const auto& rows : rows_) {
    signature.second.push_back(rows->kind);
  }
  return signature;
}

const LossOfRow* TableOfProblem::Append(const TableOfProblem& one,
                                        const LossOfRow* losses) {
  std::vector<int32_t> first;  // of each array
  for (size_t a = 0; a < one.blocks_.size(); ++a) {
    if (a == blocks_.size()) {
      blocks_.push_back(std::make_unique<Blocks>());
      blocks_[a]->size = one.blocks_[a]->size;
    }
    first.push_back(static_cast<int32_t>(blocks_[a]->places.size()));
    blocks_[a]->Append(*one.blocks_[a]);
  }
  for (const auto& from : one.rows_) {
    const size_t n = from->cost_functions.size();
    const size_t bytes = from->constants.size() / n;
    Kind kind = from->kind;
    // Rows of one loss at a time.
    for (size_t k = 0, end = 0; k < n; k = end) {
      std::get<3>(kind) = losses->loss;
      Rows* const to = RowsOf(kind);
      for (end = k; end < n && losses->loss == std::get<3>(kind);
           ++end, ++losses) {
        for (size_t b = 0; b < to->blocks.size(); ++b) {
          to->blocks[b].push_back(first[to->arrays()[b]] +
                                  from->blocks[b][end]);
        }
        if (losses->weight != nullptr) {
          to->weights.push_back(*losses->weight);
        }
      }
      AppendTo(&to->cost_functions, from->cost_functions, k, end);
      AppendTo(&to->constants, from->constants, bytes * k, bytes * end);
    }
  }
  EndProblem();
  return losses;
}

void TableOfProblem::EndProblem() {
  ++num_problems_;
  for (const auto& array : blocks_) {
    array->begin.push_back(static_cast<int64_t>(array->places.size()));
  }
  for (const auto& rows : rows_) {
    rows->begin.push_back(static_cast<int64_t>(rows->cost_functions.size()));
  }
}

void TableOfProblem::Finish() {
  places_ = {};
  array_of_role_ = {};
  rows_of_kind_ = {};
  last_rows_ = nullptr;
  if (has_loss_of_each_) {
    return;
  }
  if (num_problems_ == 0) {
    EndProblem();
  }
  batch_.num_problems = num_problems_;
  for (const auto& array : blocks_) {
    ArrayProblem::Parameters parameters;
    parameters.values = array->values.data();
    parameters.num_blocks = array->begin.back();
    parameters.size = array->size;
    parameters.manifolds = array->manifolds.data();
    parameters.is_constant = array->is_constant.data();
    if (!array->lower_bounds.empty()) {
      parameters.lower_bounds = array->lower_bounds.data();
      parameters.upper_bounds = array->upper_bounds.data();
    }
    batch_.problem.AddParameters(parameters);
    batch_.parameter_begin.push_back(array->begin.data());
  }
  for (const auto& rows : rows_) {
    ArrayProblem::Residuals residuals;
    residuals.num_blocks = rows->begin.back();
    for (size_t b = 0; b < rows->blocks.size(); ++b) {
      residuals.blocks.push_back({rows->arrays()[b], rows->blocks[b].data()});
    }
    residuals.loss = const_cast<ceres::LossFunction*>(std::get<3>(rows->kind));
    residuals.weights = rows->weights.empty() ? nullptr : rows->weights.data();
    residuals.cost_functions = rows->cost_functions.data();
    if (rows->model() != nullptr) {
      residuals.constants = rows->constants.data();
      residuals.constants_bytes = rows->model()->constants_bytes;
      residuals.constants_are_of_model = true;
    }
    batch_.problem.AddResiduals(residuals);
    batch_.residual_begin.push_back(rows->begin.data());
  }
}

bool TableOfProblem::IsFirstGroup(
    int array, const ceres::ParameterBlockOrdering& ordering) const {
  if (ordering.NumGroups() < 2) {
    return false;
  }
  const auto& group = ordering.group_to_elements().begin()->second;
  const Blocks& blocks = *blocks_[static_cast<size_t>(array)];
  size_t num_found = 0;
  for (size_t i = 0; i < blocks.places.size(); ++i) {
    const bool is_found = group.count(blocks.places[i]) > 0;
    num_found += is_found ? 1 : 0;
    if (!is_found && blocks.is_constant[i] == 0) {
      return false;
    }
  }
  return num_found == group.size();
}

void TableOfProblem::Write(int64_t i) const {
  for (const auto& array : blocks_) {
    const int64_t size = array->size;
    for (int64_t b = array->begin[i]; b < array->begin[i + 1]; ++b) {
      if (array->is_constant[b] == 0) {
        std::copy_n(array->values.data() + b * size, size, array->places[b]);
      }
    }
  }
}

}  // namespace ceres_ext
