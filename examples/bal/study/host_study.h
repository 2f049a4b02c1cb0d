// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#ifndef EXAMPLES_BAL_STUDY_HOST_STUDY_H_
#define EXAMPLES_BAL_STUDY_HOST_STUDY_H_

#include "cuda_kernels/status.h"
#include "examples/bal/study/study_record.h"

namespace ceres_ext::bal {

// The host implementation on one problem, four configurations, double, stored
// Jacobians: 1 x 1 and, where it is expected to fit in run_seconds, the full
// number of iterations. Adds to record->Size(problem).
kernels::Status StudyOnHost(const StudyProblem& problem, StudyRecord* record);

}  // namespace ceres_ext::bal

#endif  // EXAMPLES_BAL_STUDY_HOST_STUDY_H_
