// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A CUDA device as a machine for the solvers of this folder; what a Backend is:
// host_backend.h.
//
//   CudaBackend backend;
//   Status status = backend.Setup(index.view(), {}, &scratch, &context);
//
// Everything is queued on the context's stream. PCG is issued ahead: the
// scalars of each iteration are copied to the host behind it, and the host
// looks at those of kLookBehind iterations ago, so the device never waits for
// the host, and at most kLookBehind iterations that do nothing follow the end.
#ifndef CERES_EXT_SOLVER_CUDA_BACKEND_H_
#define CERES_EXT_SOLVER_CUDA_BACKEND_H_

#include <cstdint>

#include "cuda_kernels/block_view.h"
#include "cuda_kernels/cuda_buffer.h"
#include "cuda_kernels/cuda_context.h"
#include "cuda_kernels/cuda_operations.h"
#include "cuda_kernels/cuda_workspace.h"
#include "cuda_kernels/observation_index.h"
#include "cuda_kernels/status.h"

namespace ceres_ext::solver {

// Serves one solve at a time. Index and context must outlive it.
class CudaBackend {
 public:
  static constexpr kernels::BlockLayout kLayout = kernels::kDeviceLayout;
  static constexpr int kNumMarks = 4;
  static constexpr int kLookBehind = 3;
  template <typename T>
  using Buffer = kernels::DeviceBuffer<T>;

  // index: in device memory. The tiles of the sources in use are enough.
  kernels::Status Setup(const kernels::ObservationIndexView& index,
                        const kernels::CudaWorkspace::Options& options,
                        kernels::CudaIndexScratch* scratch,
                        kernels::CudaContext* context) {
    index_ = index;
    context_ = context;
    CERES_EXT_RETURN_IF_ERROR(events_.Setup(kNumMarks + kNumSlots));
    CERES_EXT_RETURN_IF_ERROR(
        seen_.Allocate(kNumSlots * sizeof(kernels::PcgScalars)));
    return workspace_.Setup(index, options, scratch, context);
  }

  const kernels::ObservationIndexView& index() const { return index_; }
  const kernels::CudaWorkspaceView& workspace() const {
    return workspace_.view();
  }
  kernels::CudaContext* context() const { return context_; }

  template <typename T>
  kernels::Status Allocate(int64_t n, kernels::DeviceBuffer<T>* buffer) {
    return buffer->Allocate(context_, n);
  }
  // The workspace has them.
  kernels::Status ReserveCameraSums(int /*num_sums*/) { return {}; }
  kernels::Status ReserveVectors(int64_t /*n*/) { return {}; }

  template <typename Source>
  kernels::Status Run(
      const kernels::NormalBlocksParams<Source, kLayout>& params) {
    return kernels::cuda::NormalBlocks(params, workspace(), stream());
  }
  template <typename Source>
  kernels::Status Run(
      const kernels::SchurProductImplicitWParams<Source, kLayout>& params) {
    return kernels::cuda::SchurProductImplicitW(params, workspace(), stream());
  }
  template <typename T, int C>
  kernels::Status Run(
      const kernels::SchurProductExplicitWParams<T, C, kLayout>& params) {
    return kernels::cuda::SchurProductExplicitW(params, workspace(), stream());
  }
  template <typename Source>
  kernels::Status Run(
      const kernels::BackSubstituteImplicitWParams<Source, kLayout>& params) {
    return kernels::cuda::BackSubstituteImplicitW(
        params, workspace(), stream());
  }
  template <typename T, int C>
  kernels::Status Run(
      const kernels::BackSubstituteExplicitWParams<T, C, kLayout>& params) {
    return kernels::cuda::BackSubstituteExplicitW(
        params, workspace(), stream());
  }
  template <typename Source>
  kernels::Status Run(
      const kernels::NormalProductImplicitWParams<Source>& params) {
    return kernels::cuda::NormalProductImplicitW(params, workspace(), stream());
  }
  template <typename T, int C>
  kernels::Status Run(
      const kernels::NormalProductExplicitWParams<T, C, kLayout>& params) {
    return kernels::cuda::NormalProductExplicitW(params, workspace(), stream());
  }
  template <int N>
  kernels::Status Run(
      const kernels::InvertBlockDiagonalParams<N, kLayout>& params) {
    return kernels::cuda::InvertBlockDiagonal(params, stream());
  }
  template <int N>
  kernels::Status Run(
      const kernels::ApplyBlockDiagonalParams<N, kLayout>& params) {
    return kernels::cuda::ApplyBlockDiagonal(params, stream());
  }
  kernels::Status Run(const kernels::PcgStartParams& params) {
    scalars_ = params.scalars;
    return kernels::cuda::PcgStart(params, workspace(), stream());
  }
  kernels::Status Run(const kernels::PcgDirectionParams& params) {
    return kernels::cuda::PcgDirection(params, workspace(), stream());
  }
  kernels::Status Run(const kernels::PcgAdvanceParams& params) {
    return kernels::cuda::PcgAdvance(params, workspace(), stream());
  }
  kernels::Status Run(const kernels::PcgResidualParams& params) {
    return kernels::cuda::PcgResidual(params, workspace(), stream());
  }
  kernels::Status Run(const kernels::DotParams& params) {
    return kernels::cuda::Dot(params, workspace(), stream());
  }

  kernels::Status Copy(int64_t n, const double* from, double* to) {
    return context_->CopyOnDevice(
        to, from, n * static_cast<int64_t>(sizeof(double)));
  }
  template <typename T>
  kernels::Status Read(const T* from, T* to) {
    return context_->CopyToHost(to, from, sizeof(T));
  }

  // An error here shows again, as a Status, at the Read that true asks for.
  bool ShouldPoll(int iteration) {
    auto* seen = static_cast<kernels::PcgScalars*>(seen_.data());
    const int slot = iteration % kNumSlots;
    if (!context_->QueueCopyToHost(seen + slot, scalars_, sizeof(*seen)).ok() ||
        !events_.Record(kNumMarks + slot, stream()).ok()) {
      return true;
    }
    if (iteration < kLookBehind) {
      return false;
    }
    const int past = (iteration - kLookBehind) % kNumSlots;
    return !events_.Wait(kNumMarks + past).ok() ||
           seen[past].end != kernels::PcgEnd::kRunning;
  }

  kernels::Status RecordMark(int mark) {
    return events_.Record(mark, stream());
  }
  // After a Read that follows the last mark.
  double SecondsBetweenMarks(int first, int last) {
    return events_.SecondsBetween(first, last);
  }

 private:
  static constexpr int kNumSlots = kLookBehind + 1;

  cudaStream_t stream() const { return context_->stream(); }

  kernels::ObservationIndexView index_;
  kernels::CudaContext* context_ = nullptr;
  kernels::CudaWorkspace workspace_;
  kernels::CudaEvents events_;
  kernels::PageLockedBuffer seen_;
  const kernels::PcgScalars* scalars_ = nullptr;
};

}  // namespace ceres_ext::solver

#endif  // CERES_EXT_SOLVER_CUDA_BACKEND_H_
