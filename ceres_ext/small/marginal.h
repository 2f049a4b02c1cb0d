// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The prior that is left of a problem of a batch when blocks are dropped
// (ceres_ext/marginalize.h), by QR block by block: the rows of a dropped block
// are taken together, R's rows of it are left out, and the rest is a row of the
// blocks beside it. Since each step takes the rows that have the block and no
// others, the points of a window cost as much as they have rows.

#ifndef CERES_EXT_SMALL_MARGINAL_H_
#define CERES_EXT_SMALL_MARGINAL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ceres_ext/base/num_bytes.h"
#include "ceres_ext/batch.h"
#include "ceres_ext/marginalize.h"

namespace ceres_ext {

// True if batch.drop has flags of as many arrays as the batch, and a tolerance
// within its range. Otherwise false, with a sentence in *error.
bool IsValidDrop(const ProblemBatch& batch, std::string* error);

// True if blocks of problem i are to be dropped.
bool DropsBlocks(const ProblemBatch& batch, int64_t i);

// Memory of a thread, for one problem after the other.
struct MarginalMemory {
  std::vector<double> values;  // of rows that are left
  std::vector<double> front;   // of those that are taken together

  int64_t num_bytes() const { return NumBytesOf(values) + NumBytesOf(front); }
};

// Drops batch.drop of problem i, at the values of the arrays, which are in host
// memory. False, with a sentence in *error, if a residual block cannot be
// evaluated or a value is not finite. May throw.
bool MarginalizeProblem(const ProblemBatch& batch,
                        int64_t i,
                        MarginalMemory* memory,
                        Marginal* marginal,
                        std::string* error);

// The same of a problem that has ended with this summary, if batch.drop has
// blocks of it. Throws nothing: *marginal has the message.
void MarginalizeSolved(const ProblemBatch& batch,
                       int64_t i,
                       const ProblemSummary& summary,
                       MarginalMemory* memory,
                       Marginal* marginal) noexcept;

}  // namespace ceres_ext

#endif  // CERES_EXT_SMALL_MARGINAL_H_
