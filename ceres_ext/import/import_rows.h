// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Reads from a problem (problem_rows.h), once per solve, the facts that this
// library needs: the residual blocks that are observations and that it
// evaluates, those that Ceres evaluates, the eliminated parameter blocks, and
// the places of blocks in Ceres's vectors.

#ifndef CERES_EXT_IMPORT_IMPORT_ROWS_H_
#define CERES_EXT_IMPORT_IMPORT_ROWS_H_

#include <memory>
#include <string>

#include "ceres_ext/import/problem_rows.h"
#include "ceres_ext/import/problem_structure.h"
#include "cuda_kernels/machine/host_context.h"

namespace ceres_ext {

struct ImportOptions {
  // False: Ceres evaluates all residual blocks.
  bool batch_evaluation = true;
  // False: it evaluates those with cost functions of users, which may read what
  // an EvaluationCallback prepares.
  bool batch_users_functions = true;
  // False: observations are rows like those of users' cost functions.
  bool takes_observations = true;
  // True if E is eliminated, or only the part of the unknowns that the points
  // of observations are.
  bool use_schur = true;
  // The first so many parameter blocks are eliminated, as Ceres has ordered
  // them. kPoints: just the points of observations are.
  static constexpr int kPoints = -1;
  int num_eliminate_blocks = kPoints;
  // A problem of at most so many residuals, without observations, has general
  // rows alone.
  int64_t most_small_residuals = 0;
  // With use_schur, true: of the others, private blocks are eliminated too.
  bool takes_private = false;
};

// Fills *structure, the same for any number of threads. Returns false with a
// sentence in *reason where the problem is not one this library can solve or
// the ordering has to be Ceres's. Throws std::bad_alloc where memory runs out.
bool ImportRows(const std::shared_ptr<ProblemRows>& rows,
                const ImportOptions& options,
                kernels::HostContext* context,
                ProblemStructure* structure,
                std::string* reason);

}  // namespace ceres_ext

#endif  // CERES_EXT_IMPORT_IMPORT_ROWS_H_
