// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Writes summaries of windows as Ceres's loop would.

#ifndef CERES_EXT_FRONT_BATCH_SUMMARY_H_
#define CERES_EXT_FRONT_BATCH_SUMMARY_H_

#include <string>

#include "ceres/solver.h"
#include "ceres_ext/batch.h"
#include "ceres_ext/front/window_packer.h"
#include "ceres_ext/solver/trust_region.h"
#include "ceres_ext/summary.h"

namespace ceres_ext {

// Summarizes a window that has ended, with Ceres's sentences.
void Summarize(const TrustRegion& region,
               const TrustRegionOptions& options,
               double fixed_cost,
               ProblemSummary* summary);

// Sets the members of *full_summary that a window has; of the sizes only those
// of blocks that vary. input: the packed window.
void SummarizeInFull(const ProblemSummary& summary,
                     const PackedWindow& window,
                     const unsigned char* input,
                     const ceres::Solver::Options& options,
                     const std::string& device,
                     Summary* full_summary);

}  // namespace ceres_ext

#endif  // CERES_EXT_FRONT_BATCH_SUMMARY_H_
