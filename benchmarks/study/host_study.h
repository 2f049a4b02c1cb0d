// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The host implementation's part of the study.
#ifndef BENCHMARKS_STUDY_HOST_STUDY_H_
#define BENCHMARKS_STUDY_HOST_STUDY_H_

#include <vector>

#include "benchmarks/study/study_record.h"
#include "cuda_kernels/base/status.h"

namespace ceres_ext::bal {

// 1 x 1 in the four configurations, the second of two. Adds rows to the record
// as it goes.
kernels::Status TimeOneByOneOnHost(const StudyProblem& problem,
                                   StudyRecord* record);

// All iterations, after 1 x 1: from the first problem to the last, those that
// are expected to fit in host_run_seconds. With host_jobs above one, so many
// runs at once, from the last problem that fits to the first: the longest run
// decides how long they take. Saves the record after each.
void TimeRunsOnHost(const std::vector<StudyProblem>& problems,
                    StudyRecord* record);

}  // namespace ceres_ext::bal

#endif  // BENCHMARKS_STUDY_HOST_STUDY_H_
