// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The part of the study that needs a CUDA device.
//
//   DeviceStudy study(&problem, &context, &record);
//   Status status = study.Setup();
//   study.TimeIterations();
//
// Failed measurements are noted in the record, with the reason, and the next
// one is taken.
#ifndef STUDIES_DEVICE_STUDY_H_
#define STUDIES_DEVICE_STUDY_H_

#include <memory>

#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/cuda_context.h"
#include "studies/study_record.h"

namespace ceres_ext::bal {

// GPU, driver, run time and the measured copy bandwidth, into
// record->json()["machine"].
kernels::Status StudyDevice(kernels::CudaContext* context, StudyRecord* record);

// One problem on the device, where it stays until this is gone: index and
// inputs, 95 bytes per observation. Each measurement allocates its memory and
// frees it.
class DeviceStudy {
 public:
  // All three must outlive it.
  DeviceStudy(const StudyProblem* problem,
              kernels::CudaContext* context,
              StudyRecord* record);
  ~DeviceStudy();
  DeviceStudy(const DeviceStudy&) = delete;
  DeviceStudy& operator=(const DeviceStudy&) = delete;

  // Brings the problem to the device and times its index structures. If it
  // fails, nothing else is measured.
  kernels::Status Setup();

  // Normal equation and one PCG iteration, and 1 x 1, of every variant and
  // configuration; how far each step is from that of the kernels of this
  // project in double.
  void TimeIterations();
  // Each kernel alone, in both layouts.
  void TimeKernels();
  // Whole runs with the stopping rule: our kernels with stored Jacobians in
  // double, the reference; our other kernels and the paper's two forms, and the
  // distance of their final projections from those of the reference.
  void TimeReference();
  void TimeRuns();
  // Those with blocks in float.
  void TimeFloatRuns();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// For a profiler: evaluation and, unless it is to see Jacobians only, solves of
// one PCG iteration, in the four
// configurations, of the kernels of this project and of the paper's two forms,
// in both layouts and in double and float, between cudaProfilerStart and
// cudaProfilerStop.
kernels::Status RunForProfiler(const StudyProblem& problem,
                               bool jacobians_only,
                               kernels::CudaContext* context);

}  // namespace ceres_ext::bal

#endif  // STUDIES_DEVICE_STUDY_H_
