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
//
// With EnableLoops PCG is a graph that repeats as many iterations as there are
// to a reset of the residual, until the scalars have ended; less than that many
// that do nothing follow the end. Measurements, and why it is not the default:
// docs/gpu.md.
#ifndef CERES_EXT_SOLVER_CUDA_BACKEND_H_
#define CERES_EXT_SOLVER_CUDA_BACKEND_H_

#include <cstdint>

#include "cuda_kernels/base/block_view.h"
#include "cuda_kernels/machine/device_buffer.h"
#include "cuda_kernels/machine/cuda_context.h"
#include "cuda_kernels/machine/cuda_graph.h"
#include "cuda_kernels/ops/cuda_operations.h"
#include "cuda_kernels/structure/cuda_workspace.h"
#include "cuda_kernels/structure/observation_index.h"
#include "cuda_kernels/base/status.h"

namespace ceres_ext::solver {

// Serves one solve at a time. Index and context must outlive it. Run takes any
// layout that cuda_operations.h has instances of; a class derived from this one
// may set its own kLayout.
class CudaBackend {
 public:
  static constexpr kernels::BlockLayout kLayout = kernels::kDeviceLayout;
  static constexpr int kNumMarks = 4;
  static constexpr int kLookBehind = 3;
  // Most iterations in a graph. 10 are recorded in 0.3 ms; where residuals are
  // reset less often than this, a graph is not used.
  static constexpr int kMaxLoopPeriod = 20;
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

  template <typename Source, kernels::BlockLayout L>
  kernels::Status Run(const kernels::NormalBlocksParams<Source, L>& params) {
    return kernels::cuda::NormalBlocks(params, workspace(), stream());
  }
  template <typename Source, kernels::BlockLayout L>
  kernels::Status Run(
      const kernels::SchurProductImplicitWParams<Source, L>& params) {
    return kernels::cuda::SchurProductImplicitW(params, workspace(), stream());
  }
  template <typename T, int C, kernels::BlockLayout L>
  kernels::Status Run(
      const kernels::SchurProductExplicitWParams<T, C, L>& params) {
    return kernels::cuda::SchurProductExplicitW(params, workspace(), stream());
  }
  template <typename Source, kernels::BlockLayout L>
  kernels::Status Run(
      const kernels::BackSubstituteImplicitWParams<Source, L>& params) {
    return kernels::cuda::BackSubstituteImplicitW(
        params, workspace(), stream());
  }
  template <typename T, int C, kernels::BlockLayout L>
  kernels::Status Run(
      const kernels::BackSubstituteExplicitWParams<T, C, L>& params) {
    return kernels::cuda::BackSubstituteExplicitW(
        params, workspace(), stream());
  }
  template <typename Source>
  kernels::Status Run(
      const kernels::NormalProductImplicitWParams<Source>& params) {
    return kernels::cuda::NormalProductImplicitW(params, workspace(), stream());
  }
  template <typename T, int C, kernels::BlockLayout L>
  kernels::Status Run(
      const kernels::NormalProductExplicitWParams<T, C, L>& params) {
    return kernels::cuda::NormalProductExplicitW(params, workspace(), stream());
  }
  template <int N, kernels::BlockLayout L>
  kernels::Status Run(const kernels::InvertBlockDiagonalParams<N, L>& params) {
    return kernels::cuda::InvertBlockDiagonal(params, stream());
  }
  template <int N, kernels::BlockLayout L>
  kernels::Status Run(const kernels::ApplyBlockDiagonalParams<N, L>& params) {
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

  // The iterations of PCG on some operands as a graph. Reset where it is to
  // serve others.
  struct PcgLoop {
    void Reset() {
      graph.Clear();
      was_queued = false;
    }
    kernels::CudaGraph graph;
    // One by one: a graph is for more than a few iterations.
    bool was_queued = false;
  };

  // Queues iterations i, i + 1, ... until the scalars have ended, as a graph of
  // iterate(0) .. iterate(period - 1). False: nothing is queued, and iteration
  // i is to be queued by itself:
  //   - loops are not enabled;
  //   - the first time for a loop;
  //   - i is not a multiple of period, which is at most kMaxLoopPeriod;
  //   - less than half a period is allowed: 5 iterations in a graph of 10 took
  //     227 us against 299 us one by one (trafalgar-21), 425 against 489
  //     (venice-245), 1478 against 1526 (venice-1778), 9.01 against 8.95 ms
  //     (final-13682) on an H200;
  //   - CUDA has refused a graph, from then on.
  template <typename Iterate>
  bool QueueToEnd(int i,
                  int period,
                  int max_num_iterations,
                  const Iterate& iterate,
                  PcgLoop* loop) {
    kernels::Status& status = loop_record_.status;
    if (!status.ok() || period > kMaxLoopPeriod || i % period != 0 ||
        i >= max_num_iterations || max_num_iterations < (period + 1) / 2) {
      return false;
    }
    if (!loop->was_queued) {
      loop->was_queued = true;
      return false;
    }
    if (loop->graph.empty()) {
      ++loop_record_.num_recordings;
      status = loop->graph.RecordLoop(
          [&]() -> kernels::Status {
            for (int k = 0; k < period; ++k) {
              CERES_EXT_RETURN_IF_ERROR(iterate(k));
            }
            return {};
          },
          scalars_);
    }
    if (status.ok()) {
      status = loop->graph.Launch(stream());
    }
    loop_record_.num_launches += status.ok() ? 1 : 0;
    return status.ok();
  }

  // What has become of graphs so far.
  struct LoopRecord {
    // Why there are none, where not ok.
    kernels::Status status{kernels::StatusCode::kUnsupported, "Not enabled."};
    int64_t num_recordings = 0;
    int64_t num_launches = 0;
  };
  const LoopRecord& loop_record() const { return loop_record_; }
  // Off until asked for. Everything that an operation does in PCG's iterations
  // must go through kernels::Launch or Copy.
  void EnableLoops() { loop_record_.status = {}; }

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
  LoopRecord loop_record_;
};

}  // namespace ceres_ext::solver

#endif  // CERES_EXT_SOLVER_CUDA_BACKEND_H_
