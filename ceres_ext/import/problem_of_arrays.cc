// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/import/problem_of_arrays.h"

#include <cstdint>
#include <utility>

#include "ceres_ext/import/array_rows.h"

namespace ceres_ext {

ProblemOfArrays::ProblemOfArrays(const ArrayProblem& arrays) : arrays_(arrays) {
  ceres::Problem::Options options;
  options.cost_function_ownership = ceres::DO_NOT_TAKE_OWNERSHIP;
  options.loss_function_ownership = ceres::DO_NOT_TAKE_OWNERSHIP;
  options.manifold_ownership = ceres::DO_NOT_TAKE_OWNERSHIP;
  // Arrays that are valid do not overlap.
  options.disable_all_safety_checks = true;
  problem_ = std::make_unique<ceres::Problem>(options);
  for (const ArrayProblem::Parameters& parameters : arrays.parameters()) {
    for (int64_t i = 0; i < parameters.num_blocks; ++i) {
      double* const block = parameters.values + i * parameters.size;
      problem_->AddParameterBlock(
          block, parameters.size, parameters.ManifoldOf(i));
      if (parameters.is_constant != nullptr && parameters.is_constant[i] != 0) {
        problem_->SetParameterBlockConstant(block);
      }
      for (int j = 0; parameters.MayHaveBounds() && j < parameters.size; ++j) {
        problem_->SetParameterLowerBound(
            block, j, parameters.LowerBoundOf(i, j));
        problem_->SetParameterUpperBound(
            block, j, parameters.UpperBoundOf(i, j));
      }
    }
  }
  for (const ArrayProblem::Residuals& residuals : arrays.residuals()) {
    std::vector<double*> blocks(residuals.blocks.size());
    for (int64_t k = 0; k < residuals.num_blocks; ++k) {
      for (size_t b = 0; b < blocks.size(); ++b) {
        const ArrayProblem::Index& index = residuals.blocks[b];
        const ArrayProblem::Parameters& parameters =
            arrays.parameters()[index.parameters];
        blocks[b] = parameters.values + index.BlockOf(k) * parameters.size;
      }
      std::unique_ptr<const ceres::CostFunction> owner;
      // Solves do not change it.
      auto* const cost_function = const_cast<ceres::CostFunction*>(
          CostFunctionOf(residuals, k, &owner));
      if (owner != nullptr) {
        cost_functions_.push_back(std::move(owner));
      }
      ceres::LossFunction* loss = residuals.loss;
      if (residuals.weights != nullptr) {
        losses_.push_back(std::make_unique<ceres::ScaledLoss>(
            loss, residuals.weights[k], ceres::DO_NOT_TAKE_OWNERSHIP));
        loss = losses_.back().get();
      }
      problem_->AddResidualBlock(cost_function, loss, blocks);
    }
  }
}

std::shared_ptr<ceres::ParameterBlockOrdering> ProblemOfArrays::MakeOrdering()
    const {
  const int eliminated = EliminatedArray(arrays_);
  bool varies = false;
  for (int64_t i = 0;
       eliminated >= 0 && i < arrays_.parameters()[eliminated].num_blocks;
       ++i) {
    varies |= !IsConstant(arrays_.parameters()[eliminated], i);
  }
  if (!varies) {
    return nullptr;
  }
  auto ordering = std::make_shared<ceres::ParameterBlockOrdering>();
  for (const ArrayProblem::Parameters& p : arrays_.parameters()) {
    for (int64_t i = 0; i < p.num_blocks; ++i) {
      ordering->AddElementToGroup(p.values + i * p.size,
                                  p.is_eliminated ? 0 : 1);
    }
  }
  return ordering;
}

}  // namespace ceres_ext
