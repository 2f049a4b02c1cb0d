// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/under_ceres/program_rows.h"

#include <iterator>
#include <limits>
#include <set>
#include <typeinfo>
#include <utility>

#include "ceres/loss_function.h"
#include "ceres_ext/import/elimination.h"

namespace ceres_ext {
namespace {

void AddBounds(const ceres::internal::ParameterBlock& block,
               StateBounds* bounds) {
  constexpr double kMost = std::numeric_limits<double>::max();
  for (int i = 0; i < block.Size(); ++i) {
    const double lower = block.LowerBoundForParameter(i);
    const double upper = block.UpperBoundForParameter(i);
    if (lower > -kMost || upper < kMost) {
      bounds->Add(block.state_offset() + i, lower, upper);
    }
  }
}

StateBounds BoundsOf(const ceres::internal::Program& program,
                     kernels::HostContext* context) {
  constexpr int64_t kBlocksPerTask = 1 << 14;
  const auto& blocks = program.parameter_blocks();
  const auto n = static_cast<int64_t>(blocks.size());
  std::vector<StateBounds> parts(n / kBlocksPerTask + 1);
  context->ParallelFor(n, kBlocksPerTask, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      AddBounds(*blocks[i], &parts[begin / kBlocksPerTask]);
    }
  });
  StateBounds bounds;
  for (const StateBounds& part : parts) {
    bounds.Append(part);
  }
  return bounds;
}

}  // namespace

// The losses of Ceres have roots of rho'.
bool ProgramRows::HasObject(int64_t row) const {
  const ceres::LossFunction* const loss = At(row).loss_function();
  if (loss == nullptr) {
    return true;
  }
  const std::type_info& type = typeid(*loss);
  return type == typeid(ceres::HuberLoss) ||
         type == typeid(ceres::CauchyLoss) ||
         type == typeid(ceres::SoftLOneLoss) ||
         type == typeid(ceres::TrivialLoss);
}

bool ImportProgram(const ceres::internal::Program& program,
                   const ImportOptions& options,
                   kernels::HostContext* context,
                   ProblemStructure* structure,
                   std::string* reason) {
  if (!ImportRows(std::make_shared<ProgramRows>(program),
                  options,
                  context,
                  structure,
                  reason)) {
    return false;
  }
  structure->is_constrained = program.IsBoundsConstrained();
  structure->bounds =
      structure->is_constrained ? BoundsOf(program, context) : StateBounds();
  return true;
}

namespace {

// True for the blocks of the program that are in the group.
std::vector<uint8_t> IsInGroup(const ceres::internal::Program& program,
                               const std::set<double*>& group,
                               kernels::HostContext* context) {
  constexpr int64_t kBlocksPerTask = 1 << 10;
  const auto& blocks = program.parameter_blocks();
  std::vector<uint8_t> is_in(blocks.size());
  context->ParallelFor(static_cast<int64_t>(blocks.size()),
                       kBlocksPerTask,
                       [&](int64_t begin, int64_t end) {
                         for (int64_t i = begin; i < end; ++i) {
                           auto* state =
                               const_cast<double*>(blocks[i]->user_state());
                           is_in[i] = group.count(state) > 0 ? 1 : 0;
                         }
                       });
  return is_in;
}

}  // namespace

bool ChooseEliminatedBlocks(const ceres::internal::Program& program,
                            const ceres::ParameterBlockOrdering* ordering,
                            int max_size,
                            bool takes_private,
                            kernels::HostContext* context,
                            std::vector<uint8_t>* is_eliminated,
                            std::string* note,
                            std::string* reason) {
  ProgramRows rows(program);
  rows.ReadBlocks(context);
  const bool has_groups = ordering != nullptr && ordering->NumGroups() >= 2;
  if (has_groups && ordering->NumElements() != program.NumParameterBlocks()) {
    *reason = "linear_solver_ordering has " +
              std::to_string(ordering->NumElements()) +
              " parameter blocks, and the program has " +
              std::to_string(program.NumParameterBlocks());
    return false;
  }
  is_eliminated->clear();
  // All groups but the last.
  std::vector<std::vector<uint8_t>> groups;
  if (has_groups) {
    const auto& all = ordering->group_to_elements();
    for (auto group = all.begin(); std::next(group) != all.end(); ++group) {
      groups.push_back(IsInGroup(program, group->second, context));
      if (!takes_private || groups.size() == 2) {
        break;
      }
    }
  }
  if (takes_private) {
    *is_eliminated = ChooseBesidePrivate(rows, groups, context);
    if (!is_eliminated->empty()) {
      return true;
    }
  }
  if (!has_groups) {
    *is_eliminated = ChooseIndependentSet(rows, max_size);
    return true;
  }
  *is_eliminated = std::move(groups[0]);
  if (!IsIndependentSet(rows, *is_eliminated, context)) {
    *reason =
        "the first group of linear_solver_ordering is not an independent set";
    return false;
  }
  const auto& blocks = program.parameter_blocks();
  int64_t num_wide = 0;
  for (size_t i = 0; i < blocks.size(); ++i) {
    if ((*is_eliminated)[i] != 0 && blocks[i]->TangentSize() > max_size) {
      (*is_eliminated)[i] = 0;
      ++num_wide;
    }
  }
  if (num_wide > 0) {
    *note = std::to_string(num_wide) +
            " parameter blocks of the first group of linear_solver_ordering "
            "have more than " +
            std::to_string(max_size) +
            " tangent dimensions and are not eliminated";
  }
  return true;
}

}  // namespace ceres_ext
