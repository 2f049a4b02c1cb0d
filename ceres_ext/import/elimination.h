// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Which blocks ITERATIVE_SCHUR eliminates, in a program that Ceres does not
// order for it.

#ifndef CERES_EXT_IMPORT_ELIMINATION_H_
#define CERES_EXT_IMPORT_ELIMINATION_H_

#include <cstdint>
#include <vector>

#include "ceres_ext/import/problem_rows.h"
#include "cuda_kernels/machine/host_context.h"

namespace ceres_ext {

// For each block that varies, true if it is in the independent set of Ceres's
// ComputeStableSchurOrdering, which libceres does not export; of blocks with
// equally many neighbours those of at most kPointSize tangent dimensions come
// first. After ProblemRows::ReadBlocks. Without those of more than max_size
// tangent dimensions. is_left_out: of the blocks, those that count for nothing;
// empty: none.
std::vector<uint8_t> IndependentSet(
    const ProblemRows& rows,
    int max_size,
    const std::vector<uint8_t>& is_left_out = {});

// The products of forming S and of its dense factor, if blocks are eliminated
// that are an independent set: those of the rows, m k^2 / 2 for m residuals of
// k columns, and those of the set, s (s^2 / 3 + s c + c^2) for s columns whose
// neighbours have c, and n^3 / 3 for n columns of S. columns: those of each
// block and of its neighbours. After ProblemRows::ReadBlocks.
double FlopsOfRows(const ProblemRows& rows);
double FlopsOfSet(const ProblemRows& rows,
                  const std::vector<int64_t>& columns,
                  const std::vector<uint8_t>& is_eliminated);

// The set to eliminate where the user has not said: IndependentSet, or blocks
// whose neighbours have the fewest columns for each of their own, if these take
// much fewer flops. Poses of a chain with two columns each beside:
// every other pose and the columns of the rest, where IndependentSet has these
// columns alone.
std::vector<uint8_t> ChooseIndependentSet(const ProblemRows& rows,
                                          int max_size);

// The private blocks (problem_rows.h) among those that are not marked, of each
// row the first one; empty if there are none. After ProblemRows::ReadBlocks.
std::vector<uint8_t> FindPrivateBlocks(const ProblemRows& rows,
                                       const std::vector<uint8_t>& is_marked,
                                       kernels::HostContext* context);

// The blocks to eliminate beside private blocks, if many rows have one: the
// preferred set that is independent and has most other blocks, or, if these
// have none, an independent set of blocks of at most kPointSize tangent
// dimensions. Empty if few rows have one, or if there is no other block to
// eliminate.
std::vector<uint8_t> ChooseBesidePrivate(
    const ProblemRows& rows,
    const std::vector<std::vector<uint8_t>>& preferred,
    kernels::HostContext* context);

// True if no row has two of the blocks that are marked, by index. After
// ProblemRows::ReadBlocks.
bool IsIndependentSet(const ProblemRows& rows,
                      const std::vector<uint8_t>& is_marked,
                      kernels::HostContext* context);

}  // namespace ceres_ext

#endif  // CERES_EXT_IMPORT_ELIMINATION_H_
