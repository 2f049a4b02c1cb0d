// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/under_ceres/program_rows.h"

#include <set>

#include "ceres_ext/import/elimination.h"

namespace ceres_ext {

bool ImportProgram(const ceres::internal::Program& program,
                   const ImportOptions& options,
                   kernels::HostContext* context,
                   ProblemStructure* structure,
                   std::string* reason) {
  return ImportRows(std::make_shared<ProgramRows>(program),
                    options,
                    context,
                    structure,
                    reason);
}

bool ChooseEliminatedBlocks(const ceres::internal::Program& program,
                            const ceres::ParameterBlockOrdering* ordering,
                            int max_size,
                            kernels::HostContext* context,
                            std::vector<uint8_t>* is_eliminated,
                            std::string* reason) {
  ProgramRows rows(program);
  rows.ReadBlocks(context);
  if (ordering == nullptr || ordering->NumGroups() < 2) {
    *is_eliminated = IndependentSet(rows, max_size);
    return true;
  }
  if (ordering->NumElements() != program.NumParameterBlocks()) {
    *reason = "linear_solver_ordering has " +
              std::to_string(ordering->NumElements()) +
              " parameter blocks, and the program has " +
              std::to_string(program.NumParameterBlocks());
    return false;
  }
  const std::set<double*>& first_group =
      ordering->group_to_elements().begin()->second;
  is_eliminated->clear();
  for (const auto* block : program.parameter_blocks()) {
    auto* state = const_cast<double*>(block->user_state());
    is_eliminated->push_back(first_group.count(state) > 0 ? 1 : 0);
  }
  if (!IsIndependentSet(rows, *is_eliminated, context)) {
    *reason =
        "the first group of linear_solver_ordering is not an independent set";
    return false;
  }
  return true;
}

}  // namespace ceres_ext
