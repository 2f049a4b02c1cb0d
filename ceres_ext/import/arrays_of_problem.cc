// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/import/arrays_of_problem.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <typeinfo>
#include <utility>

namespace ceres_ext {
namespace {

// A problem whose residual blocks are of more kinds has a loss, or a type, for
// each of them: as arrays it would only be slow.
constexpr size_t kMostArrays = 256;

}  // namespace

bool HasBounds(const ceres::Problem& problem, const double* block) {
  const int size = problem.ParameterBlockSize(block);
  for (int e = 0; e < size; ++e) {
    if (problem.GetParameterLowerBound(block, e) >
            -std::numeric_limits<double>::max() ||
        problem.GetParameterUpperBound(block, e) <
            std::numeric_limits<double>::max()) {
      return true;
    }
  }
  return false;
}

bool ArraysOfProblem::Read(const ceres::Problem& problem, std::string* reason) {
  if (problem.options().evaluation_callback != nullptr) {
    *reason = "the problem has an evaluation callback";
    return false;
  }
  std::vector<ceres::ResidualBlockId> all;
  problem.GetResidualBlocks(&all);
  places_.reserve(static_cast<size_t>(problem.NumParameterBlocks()));
  std::vector<double*> blocks;
  for (const ceres::ResidualBlockId row : all) {
    problem.GetParameterBlocksForResidualBlock(row, &blocks);
    if (!Add(
            problem.GetCostFunctionForResidualBlock(row),
            problem.GetLossFunctionForResidualBlock(row),
            blocks,
            [&](size_t b) {
              return BlockFacts{problem.ParameterBlockSize(blocks[b]),
                                HasBounds(problem, blocks[b]),
                                problem.IsParameterBlockConstant(blocks[b]),
                                problem.GetManifold(blocks[b])};
            },
            reason)) {
      return false;
    }
  }
  Finish();
  return true;
}

bool ArraysOfProblem::Add(const ceres::CostFunction* cost_function,
                          const ceres::LossFunction* loss,
                          const std::vector<double*>& blocks,
                          const std::function<BlockFacts(size_t)>& facts_of,
                          std::string* reason) {
  const std::type_index type(typeid(*cost_function));
  Kind kind(type, cost_function->num_residuals(), loss, {});
  std::vector<int32_t> numbers;
  numbers.reserve(blocks.size());
  for (size_t b = 0; b < blocks.size(); ++b) {
    const auto [place, is_new] = places_.try_emplace(blocks[b]);
    if (is_new) {
      const BlockFacts facts = facts_of(b);
      if (facts.has_bounds) {
        *reason = "a parameter block has bounds";
        return false;
      }
      const auto [role, is_new_role] =
          array_of_role_.try_emplace({type, static_cast<int>(b), facts.size},
                                     static_cast<int>(blocks_.size()));
      if (is_new_role) {
        blocks_.push_back(std::make_unique<Blocks>());
        blocks_.back()->size = facts.size;
      }
      Blocks& array = *blocks_[static_cast<size_t>(role->second)];
      place->second = {role->second, static_cast<int32_t>(array.places.size())};
      array.places.push_back(blocks[b]);
      array.values.insert(
          array.values.end(), blocks[b], blocks[b] + facts.size);
      // Solves call functions that do not change them.
      array.manifolds.push_back(const_cast<ceres::Manifold*>(facts.manifold));
      array.is_constant.push_back(facts.is_constant ? 1 : 0);
    }
    std::get<3>(kind).push_back(place->second.array);
    numbers.push_back(place->second.block);
  }
  const auto [known, is_new] = rows_of_kind_.try_emplace(kind, rows_.size());
  if (is_new) {
    if (rows_.size() == kMostArrays) {
      *reason = "its residual blocks are of more than " +
                std::to_string(kMostArrays) + " types, losses and sizes";
      return false;
    }
    rows_.push_back(std::make_unique<Rows>());
    rows_.back()->arrays = std::get<3>(kind);
    rows_.back()->loss = const_cast<ceres::LossFunction*>(loss);
    rows_.back()->blocks.resize(blocks.size());
  }
  Rows& rows = *rows_[known->second];
  rows.cost_functions.push_back(
      const_cast<ceres::CostFunction*>(cost_function));
  for (size_t b = 0; b < blocks.size(); ++b) {
    rows.blocks[b].push_back(numbers[b]);
  }
  return true;
}

void ArraysOfProblem::Finish() {
  places_ = {};
  array_of_role_ = {};
  rows_of_kind_ = {};
  for (const auto& array : blocks_) {
    ArrayProblem::Parameters parameters;
    parameters.values = array->values.data();
    parameters.num_blocks = static_cast<int64_t>(array->places.size());
    parameters.size = array->size;
    parameters.manifolds = array->manifolds.data();
    parameters.is_constant = array->is_constant.data();
    arrays_.AddParameters(parameters);
  }
  for (const auto& rows : rows_) {
    ArrayProblem::Residuals residuals;
    residuals.num_blocks = static_cast<int64_t>(rows->cost_functions.size());
    for (size_t b = 0; b < rows->arrays.size(); ++b) {
      residuals.blocks.push_back({rows->arrays[b], rows->blocks[b].data()});
    }
    residuals.loss = rows->loss;
    residuals.cost_functions = rows->cost_functions.data();
    arrays_.AddResiduals(residuals);
  }
}

bool ArraysOfProblem::IsFirstGroup(
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

void ArraysOfProblem::Write() const {
  for (const auto& array : blocks_) {
    const auto size = static_cast<size_t>(array->size);
    for (size_t i = 0; i < array->places.size(); ++i) {
      if (array->is_constant[i] == 0) {
        std::copy_n(array->values.data() + i * size, size, array->places[i]);
      }
    }
  }
}

}  // namespace ceres_ext
