// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The pairs of an eliminated parameter block and another block that occur in a
// row together. Two batches may not have the same pair
// (ceres_ext/solver/batch.h).

#ifndef CERES_EXT_IMPORT_ELIMINATED_PAIRS_H_
#define CERES_EXT_IMPORT_ELIMINATED_PAIRS_H_

#include <cstdint>
#include <unordered_set>
#include <vector>

#include "ceres_ext/import/problem_rows.h"

namespace ceres_ext {

class EliminatedPairs {
 public:
  // Both outlive the object. rows: after ReadBlocks. is_eliminated: of the
  // blocks that vary.
  EliminatedPairs(const ProblemRows& rows,
                  const std::vector<uint8_t>& is_eliminated)
      : rows_(rows), is_eliminated_(is_eliminated) {}

  void AddPairsOf(int64_t row) {
    for (const int32_t eliminated : rows_.BlocksOf(row)) {
      if (eliminated == BlockOfRow::kConstant ||
          is_eliminated_[eliminated] != elimination::kEliminated) {
        continue;
      }
      for (const int32_t other : rows_.BlocksOf(row)) {
        if (other != BlockOfRow::kConstant && other != eliminated &&
            is_eliminated_[other] != elimination::kPrivate) {
          pairs_.insert(PairOf(other, eliminated));
        }
      }
    }
  }

  bool empty() const { return pairs_.empty(); }
  bool Has(int32_t other, int32_t eliminated) const {
    return pairs_.count(PairOf(other, eliminated)) > 0;
  }

 private:
  static uint64_t PairOf(int32_t other, int32_t eliminated) {
    return uint64_t{static_cast<uint32_t>(other)} << 32 |
           static_cast<uint32_t>(eliminated);
  }

  const ProblemRows& rows_;
  const std::vector<uint8_t>& is_eliminated_;
  std::unordered_set<uint64_t> pairs_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_IMPORT_ELIMINATED_PAIRS_H_
