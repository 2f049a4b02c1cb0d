// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The host implementation's part of the study.
#ifndef STUDIES_HOST_STUDY_H_
#define STUDIES_HOST_STUDY_H_

#include <cstdint>
#include <vector>

#include "cuda_kernels/base/status.h"
#include "studies/study_record.h"

namespace ceres_ext::bal {

// The order of the points on the device (OrderPointsByCamera,
// cuda_kernels/structure/cuda_observation_index.h): point i of the order is
// point order[i] of the problem.
std::vector<int32_t> DeviceOrder(const BalProblem& bal);

// On host_threads, points in the order of the device, nothing beside it. Rows
// are added to the record as it goes.
//
// 1 x 1 in the four configurations, the second of two where one takes less than
// five seconds.
kernels::Status TimeOneByOneOnHost(const StudyProblem& problem,
                                   StudyRecord* record);
// Whole runs with the stopping rule, each of at most host_run_seconds.
kernels::Status TimeRunsOnHost(const StudyProblem& problem,
                               StudyRecord* record);

}  // namespace ceres_ext::bal

#endif  // STUDIES_HOST_STUDY_H_
