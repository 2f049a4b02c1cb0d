// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "cuda_kernels/machine/cuda_machine.h"

#include <utility>

namespace ceres_ext::kernels {

Status CudaMachine::Create(const CudaContextOptions& options,
                           std::unique_ptr<CudaMachine>* machine) {
  auto created = std::make_unique<CudaMachine>();
  CERES_EXT_RETURN_IF_ERROR(
      CudaContext::Create(options, &created->owned_context_));
  CERES_EXT_RETURN_IF_ERROR(created->Setup(created->owned_context_.get()));
  *machine = std::move(created);
  return {};
}

Status CudaMachine::Setup(CudaContext* context) {
  context_ = context;
  CERES_EXT_RETURN_IF_ERROR(events_.Setup(kNumMarks + kNumPublishedPcg));
  CERES_EXT_RETURN_IF_ERROR(AllocatePageLocked(
      (kNumPublishedPcg + 1) * sizeof(PcgScalars), &published_));
  CERES_EXT_RETURN_IF_ERROR(sum_partial_.Allocate(context, 2 * kMaxSumBlocks));
  CERES_EXT_RETURN_IF_ERROR(integers_.Allocate(context, 2));
  return integers_.SetZero();
}

void CudaMachine::ForgetIfLost() {
  if (!context_->IsAlive()) {
    context_->Forget();
    events_.Forget();
    static_cast<void>(published_.release());
  }
}

bool CudaMachine::ShouldPoll(int iteration) {
  const int slot = iteration % kNumPublishedPcg;
  if (!context_->TryFlush() ||
      !events_.Record(kNumMarks + slot, stream()).ok()) {
    return true;
  }
  if (iteration < kLookBehind) {
    return false;
  }
  const int past = (iteration - kLookBehind) % kNumPublishedPcg;
  return !context_->Wait(kNumMarks + past, &events_).ok() ||
         PcgHasEnded(published_scalars() + past);
}

Status CudaMachine::ReadScalars(const PcgScalars* /*scalars*/, PcgScalars* to) {
  return context_->ReadResult(
      published_scalars() + kNumPublishedPcg, sizeof(PcgScalars), to);
}

bool CudaMachine::QueueToEnd(int i,
                             int period,
                             int max_num_iterations,
                             const std::function<Status(int)>& iterate,
                             const PcgScalars* scalars,
                             PcgLoop* loop) {
  Status& status = loop_record_.status;
  // The hosts of other devices come to the same answer.
  if (period > kMaxLoopPeriod || i % period != 0 || i >= max_num_iterations ||
      max_num_iterations < (period + 1) / 2 ||
      loop->num_iterations < min_num_loop_iterations_) {
    ++loop->num_iterations;
    return false;
  }
  if (status.ok() && loop->graph.empty()) {
    ++loop_record_.num_recordings;
    status = loop->graph.RecordLoop(
        [&]() -> Status {
          for (int k = 0; k < period; ++k) {
            CERES_EXT_RETURN_IF_ERROR(iterate(k));
          }
          return {};
        },
        scalars);
    if (status.ok()) {
      status = loop->graph.Prepare(stream());
    }
  }
  const bool is_ready = status.ok() && context_->TryFlush();
  // Nothing may wait for this device from here on until those of others have
  // their graphs too, since graphs wait for each other.
  if (!context_->AllAgree(is_ready)) {
    ++loop->num_iterations;
    return false;
  }
  status = loop->graph.Launch(stream());
  static_cast<void>(context_->AllAgree(status.ok()));
  loop_record_.num_launches += status.ok() ? 1 : 0;
  return status.ok();
}

void CudaMachine::EnableLoops(int min_num_iterations) {
  loop_record_.status = {};
  context_->EnableLaunchBuffer();
  min_num_loop_iterations_ = min_num_iterations;
}

}  // namespace ceres_ext::kernels
