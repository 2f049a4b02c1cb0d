// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/front/batch_of_problems.h"

#include <algorithm>
#include <map>
#include <utility>

#include "ceres/parameter_block.h"
#include "ceres/problem_impl.h"
#include "ceres/program.h"
#include "ceres_ext/base/memory_overlap.h"
#include "ceres_ext/blocks/loss_model.h"
#include "cuda_kernels/model/robust_loss.h"

namespace ceres_ext {

BatchOfProblems::BatchOfProblems(const std::vector<ceres::Problem*>* problems,
                                 kernels::HostContext* context)
    : problems_(*problems),
      reasons_(problems->size()),
      tables_(problems->size()),
      ranges_(problems->size()) {
  constexpr int64_t kProblemsPerTask = 4;
  context->ParallelFor(static_cast<int64_t>(problems->size()),
                       kProblemsPerTask,
                       [this](int64_t begin, int64_t end) {
                         for (int64_t i = begin; i < end; ++i) {
                           if (problems_[i] != nullptr) {
                             Read(i);
                           }
                         }
                       });
}

void BatchOfProblems::Read(int64_t i) {
  ceres::Problem& problem = *problems_[i];
  for (const ceres::internal::ParameterBlock* const block :
       problem.mutable_impl()->program().parameter_blocks()) {
    ranges_[i].push_back({block->user_state(),
                          block->user_state() + block->Size(),
                          i,
                          !block->IsConstant()});
  }
  auto table = std::make_unique<TableOfProblem>(/*has_loss_of_each=*/true);
  if (!table->Read(problem, &reasons_[i])) {
    return;
  }
  std::vector<kernels::RobustLoss> chains;
  std::vector<uint8_t> ids;
  std::vector<double> weights;
  if (problem.NumResidualBlocks() == 0) {
    reasons_[i] = "there are no residual blocks";
  } else if (FindChains(table->Losses(), &chains, &ids, &weights) != nullptr) {
    reasons_[i] = "a loss function is user-defined";
  } else {
    table->PrepareToAppend();
    tables_[i] = std::move(table);
  }
}

bool BatchOfProblems::AreApart(std::string* error) const {
  std::vector<MemoryRange> all;
  for (size_t i = 0; i < problems_.size(); ++i) {
    if (problems_[i] == nullptr) {
      *error = "problem " + std::to_string(i) + " is null";
      return false;
    }
    all.insert(all.end(), ranges_[i].begin(), ranges_[i].end());
  }
  const auto [a, b] = FindOverlap(std::move(all));
  if (a >= 0) {
    *error = "problems " + std::to_string(std::min(a, b)) + " and " +
             std::to_string(std::max(a, b)) +
             " share a parameter block that one of them would change; make it "
             "constant in both, or solve them one after the other";
  }
  return a < 0;
}

std::vector<BatchOfProblems::Part> BatchOfProblems::MakeParts() {
  std::vector<Part> parts;
  std::map<TableOfProblem::Signature, size_t> part_of;
  for (size_t i = 0; i < tables_.size(); ++i) {
    if (tables_[i] != nullptr) {
      const size_t part =
          part_of.try_emplace(tables_[i]->GetSignature(), parts.size())
              .first->second;
      parts.resize(std::max(parts.size(), part + 1));
      parts[part].numbers.push_back(static_cast<int64_t>(i));
    }
  }
  for (Part& part : parts) {
    part.table = Join(part.numbers);
    for (const int64_t i : part.numbers) {
      tables_[i].reset();
      if (part.table == nullptr) {
        reasons_[i] = "there are too many different loss functions";
      }
    }
  }
  parts.erase(
      std::remove_if(parts.begin(),
                     parts.end(),
                     [](const Part& part) { return part.table == nullptr; }),
      parts.end());
  return parts;
}

std::unique_ptr<TableOfProblem> BatchOfProblems::Join(
    const std::vector<int64_t>& numbers) const {
  // A factor is a weight of its row, and equal losses are one, whatever their
  // objects.
  std::vector<const ceres::LossFunction*> losses;
  std::vector<double> weights;
  bool has_weights = false;
  for (const int64_t i : numbers) {
    for (const ceres::LossFunction* const loss : tables_[i]->Losses()) {
      const auto [inner, weight] = WithoutScale(loss);
      losses.push_back(inner);
      weights.push_back(weight);
      has_weights |= weight != 1.0;
    }
  }
  std::vector<kernels::RobustLoss> chains;
  std::vector<uint8_t> ids;
  std::vector<double> unused;
  if (FindChains(losses, &chains, &ids, &unused) != nullptr ||
      !unused.empty()) {
    return nullptr;
  }
  std::map<uint8_t, const ceres::LossFunction*> loss_of_id;
  std::vector<LossOfRow> of_rows;
  of_rows.reserve(losses.size());
  for (size_t k = 0; k < losses.size(); ++k) {
    of_rows.push_back({loss_of_id.try_emplace(ids[k], losses[k]).first->second,
                       has_weights ? &weights[k] : nullptr});
  }
  auto table = std::make_unique<TableOfProblem>();
  const LossOfRow* next = of_rows.data();
  for (const int64_t i : numbers) {
    next = table->Append(*tables_[i], next);
  }
  table->Finish();
  return table;
}

}  // namespace ceres_ext
