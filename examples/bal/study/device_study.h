// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The part of the study that needs a CUDA device.
#ifndef EXAMPLES_BAL_STUDY_DEVICE_STUDY_H_
#define EXAMPLES_BAL_STUDY_DEVICE_STUDY_H_

#include "cuda_kernels/cuda_context.h"
#include "cuda_kernels/status.h"
#include "examples/bal/study/study_record.h"

namespace ceres_ext::bal {

// GPU, driver, run time and the measured copy bandwidth, into
// record->json()["machine"].
kernels::Status StudyDevice(kernels::CudaContext* context, StudyRecord* record);

// The kernels of this project on one problem: index structures, the timed PCG
// iteration and the runs of all configurations and Jacobian sources; the same
// iteration of the naive variant and of cuSPARSE, with how far their steps are
// from ours; each kernel alone where with_kernels.
kernels::Status StudyOnDevice(const StudyProblem& problem,
                              bool with_kernels,
                              kernels::CudaContext* context,
                              StudyRecord* record);

// The naive variant, all iterations, where it is expected to fit in
// run_seconds.
kernels::Status StudyNaive(const StudyProblem& problem,
                           kernels::CudaContext* context,
                           StudyRecord* record);

// For a profiler: evaluation and solves of one PCG iteration, in the four
// configurations, of the kernels of this project and of the naive variant in
// both layouts, between cudaProfilerStart and cudaProfilerStop.
kernels::Status RunForProfiler(const StudyProblem& problem,
                               kernels::CudaContext* context);

}  // namespace ceres_ext::bal

#endif  // EXAMPLES_BAL_STUDY_DEVICE_STUDY_H_
