// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "cuda_kernels/machine/cuda_fork.h"

#include "cuda_kernels/machine/cuda_launch.cuh"
#include "cuda_kernels/machine/cuda_launch_buffer.h"

namespace ceres_ext::kernels {
namespace {

// The error of a caller that can't report is not left behind for the next one.
void IgnoreError(cudaError_t error) {
  if (error != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
  }
}

}  // namespace

CudaFork::~CudaFork() {
  if (num_made_ == 0 || !context_->IsAlive()) {
    return;  // CUDA has destroyed them.
  }
  for (int event = 0; event < num_made_ - 1; ++event) {
    IgnoreError(cudaEventDestroy(events_[event]));
  }
  IgnoreError(cudaStreamDestroy(stream_));
}

Status CudaFork::Setup() {
  if (num_made_ == 0) {
    CERES_EXT_RETURN_IF_CUDA_ERROR(
        cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    ++num_made_;
  }
  for (; num_made_ <= kNumEvents; ++num_made_) {
    CERES_EXT_RETURN_IF_CUDA_ERROR(cudaEventCreate(&events_[num_made_ - 1]));
  }
  return Status();
}

Status CudaFork::Begin() {
  CERES_EXT_RETURN_IF_ERROR(Setup());
  CERES_EXT_RETURN_IF_ERROR(FlushLaunches());
  CERES_EXT_RETURN_IF_CUDA_ERROR(
      cudaEventRecord(events_[kBegin], context_->stream()));
  CERES_EXT_RETURN_IF_CUDA_ERROR(
      cudaStreamWaitEvent(stream_, events_[kBegin], 0));
  return Status();
}

Status CudaFork::Join() {
  CERES_EXT_RETURN_IF_ERROR(FlushLaunches());
  CERES_EXT_RETURN_IF_CUDA_ERROR(cudaEventRecord(events_[kJoin], stream_));
  CERES_EXT_RETURN_IF_CUDA_ERROR(
      cudaStreamWaitEvent(context_->stream(), events_[kJoin], 0));
  return Status();
}

void CudaFork::Wait() {
  if (num_made_ > 0) {
    IgnoreError(cudaStreamSynchronize(stream_));
  }
}

}  // namespace ceres_ext::kernels
