// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Summaries of windows, as Ceres's loop would have written them.

#ifndef CERES_EXT_FRONT_BATCH_SUMMARY_H_
#define CERES_EXT_FRONT_BATCH_SUMMARY_H_

#include "ceres_ext/batch.h"
#include "ceres_ext/solver/trust_region.h"

namespace ceres_ext {

// Of a window that has ended, with Ceres's sentences.
void Summarize(const TrustRegion& region,
               const TrustRegionOptions& options,
               double fixed_cost,
               ProblemSummary* summary);

}  // namespace ceres_ext

#endif  // CERES_EXT_FRONT_BATCH_SUMMARY_H_
