// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Sums over ranks that each have a CUDA device: by one kernel where the devices
// can use each other's memory (cuda_peer_sum.h), else by NCCL. NCCL only
// copies: sums are taken in the order of the ranks, so that the bits are those
// of SumOverRanks of host memory.
// NCCL is opened at run time (cuda_libraries.h). Host-includable.
#ifndef CERES_EXT_CUDA_KERNELS_MACHINE_CUDA_COMMUNICATOR_H_
#define CERES_EXT_CUDA_KERNELS_MACHINE_CUDA_COMMUNICATOR_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/communicator.h"
#include "cuda_kernels/machine/cuda_context.h"

namespace ceres_ext::kernels {

class CudaPeerSum;

// One rank's end. One thread at a time uses it.
class CudaCommunicator {
 public:
  // Gets the one that the communicator keeps for later calls; it is made if
  // there is none, or none for this device. All ranks call this, and all get
  // the same status. kUnsupported: the devices can't use each other's memory,
  // and a rank has no NCCL, or NCCL can't connect them, for example because two
  // ranks have the same one.
  static Status Get(Communicator* ranks,
                    CudaContext* context,
                    std::shared_ptr<CudaCommunicator>* communicator);
  ~CudaCommunicator();
  CudaCommunicator(const CudaCommunicator&) = delete;
  CudaCommunicator& operator=(const CudaCommunicator&) = delete;

  // The most values of a sum.
  int64_t MaxValues() const;
  // Doubles of scratch for a sum of n values.
  int64_t ScratchSize(int64_t n) const;
  // x = the sum of x over all ranks, of device memory; queued on the context's
  // stream.
  Status Sum(int64_t n, double* x, double* scratch, CudaContext* context);
  // True if sums can be recorded (cuda_graph.h). Ranks meet (AllAgree) before
  // they launch what they have recorded.
  bool CanRecord() const { return peers_ != nullptr; }
  // Waits until all ranks call this: whether all say yes. False after an error.
  bool AllAgree(bool mine);

  // For CudaContext::SetWatch: fails if another rank has aborted or ended, NCCL
  // has failed, or a wait is longer than the ranks' time-out. Work that is
  // queued then ends, and later calls fail.
  Status Watch();
  // A wait begins.
  void BeginWait() { wait_begin_ = Clock::now(); }

 private:
  using Clock = std::chrono::steady_clock;
  class Handle;

  CudaCommunicator(Communicator* ranks, int device);
  Status ConnectByNccl();
  Status SumByNccl(int64_t n, double* x, double* scratch, CudaContext* context);
  // Until all ranks are here.
  Status Meet();
  // Until NCCL has done what it was asked for, or has failed.
  Status WaitForNccl(const char* call, int result);
  // The errors of work that has begun.
  Status NcclStatus();
  void StopNccl();
  Status Fail(const std::string& message);

  Communicator* const ranks_;
  const int device_;
  std::unique_ptr<CudaPeerSum> peers_;  // null: NCCL
  std::unique_ptr<Handle> handle_;
  std::string error_;
  std::vector<char> all_;
  Clock::time_point wait_begin_ = Clock::now();
  Clock::time_point failure_seen_ = Clock::time_point::max();
};

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_MACHINE_CUDA_COMMUNICATOR_H_
