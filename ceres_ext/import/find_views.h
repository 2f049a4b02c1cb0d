// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Finds the rows that are not observations but are seen from views
// (cuda_kernels/structure/views.h).

#ifndef CERES_EXT_IMPORT_FIND_VIEWS_H_
#define CERES_EXT_IMPORT_FIND_VIEWS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ceres_ext/import/problem_rows.h"
#include "ceres_ext/import/problem_structure.h"
#include "cuda_kernels/machine/host_context.h"

namespace ceres_ext {

// The rows that are not observations: all, or those of a list, which may be
// empty.
struct OtherRows {
  bool are_all = true;
  int64_t size = 0;
  const int32_t* rows = nullptr;

  int32_t operator[](int64_t k) const {
    return are_all ? static_cast<int32_t>(k) : rows[k];
  }
};

// The uniform rows that may have the most views; null: none may.
const UniformRows* FindUniformViews(const ProblemRows& problem,
                                    const std::vector<uint8_t>& is_eliminated,
                                    bool use_schur);

// Puts rows that have two residuals, a point and few columns beside it into
// *views, if these have several rows each and no pair of their blocks occurs in
// another row (eliminated_pairs.h), and the rest into *general_rows. If all
// rows are those of directions (ViewStructure::has_private), they are put
// there. Otherwise, and without use_schur, none has a view. point_id is the
// index of the point among the blocks that vary, or uniform_points has it.
// After ProblemRows::ReadBlocks, which may skip FindUniformViews if rows are
// all rows; if views->uniform is not what was skipped, some general rows were.
// False with a sentence in *reason where this library can't take a row: it
// depends on two eliminated blocks. Throws std::bad_alloc.
bool FindViews(const ProblemRows& problem,
               const OtherRows& rows,
               const std::vector<uint8_t>& is_eliminated,
               bool use_schur,
               kernels::HostContext* context,
               std::vector<int32_t>* general_rows,
               ViewStructure* views,
               std::string* reason);

}  // namespace ceres_ext

#endif  // CERES_EXT_IMPORT_FIND_VIEWS_H_
