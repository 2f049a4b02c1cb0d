// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Sums over ranks whose devices can use each other's memory, such as those of
// one computer with NVLink. On each device one kernel writes its values where
// the others see them, waits for theirs, and adds all in the order of the
// ranks. No host takes part, so that such sums can be recorded (cuda_graph.h).
//
// Host-includable.
#ifndef CERES_EXT_CUDA_KERNELS_MACHINE_CUDA_PEER_SUM_H_
#define CERES_EXT_CUDA_KERNELS_MACHINE_CUDA_PEER_SUM_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/communicator.h"
#include "cuda_kernels/machine/cuda_context.h"

typedef struct CUmemPoolHandle_st* cudaMemPool_t;

namespace ceres_ext::kernels {

// The memory of a rank that the others use; all zero at first.
struct PeerWindow {
  static constexpr int kMaxRanks = 8;
  static constexpr int kMaxBlocks = 128;
  static constexpr int64_t kMaxValues = int64_t{1} << 19;

  // By block: the sums that have been taken.
  uint64_t num_sums[kMaxBlocks];
  // By rank and block: the sum for which that rank's values are there.
  uint64_t arrived[kMaxRanks][kMaxBlocks];
  // Values of this sum, and of the last one, which others may still read.
  double values[2][kMaxValues];
};

struct PeerSumParams {
  int64_t n = 0;  // at most kMaxValues
  double* x = nullptr;
  int rank = 0;
  int size = 1;
  // As many on all ranks, in all sums; all of them run at once.
  int num_blocks = 1;
  PeerWindow* windows[PeerWindow::kMaxRanks] = {};
  // Not 0: no rank is waited for, and sums are NaN. May change at any time.
  const int32_t* stop = nullptr;
};

// x = the sum of x over all ranks.
Status QueuePeerSum(const PeerSumParams& params, CudaContext* context);

// One rank's end. One thread at a time uses it, except Stop.
class CudaPeerSum {
 public:
  // All ranks call this, and all get the same status. kUnsupported: they are
  // on several computers, or more than kMaxRanks, a device can't use the memory
  // of another one, or NCCL_P2P_DISABLE says that none should.
  static Status Connect(Communicator* ranks,
                        CudaContext* context,
                        std::unique_ptr<CudaPeerSum>* result);
  // Others have ended their sums.
  ~CudaPeerSum();
  CudaPeerSum(const CudaPeerSum&) = delete;
  CudaPeerSum& operator=(const CudaPeerSum&) = delete;

  // x = the sum of x over all ranks, of device memory, n <= kMaxValues; queued
  // on the context's stream, or recorded.
  Status Sum(int64_t n, double* x, CudaContext* context);
  // Ends sums that wait, and all later ones.
  void Stop();
  // False after a reset of the device.
  bool IsAlive() const;

 private:
  explicit CudaPeerSum(int device) : device_(device) {}
  // pool_of: the devices that may use it, if all are of this process; empty: it
  // can be opened by other processes.
  Status MakeWindow(const std::vector<int>& pool_of, CudaContext* context);
  // Sums of known values.
  Status Try(CudaContext* context);

  const int device_;
  PeerSumParams params_;
  // An allocation of this device, and its number, by which a reset shows.
  CudaBeacon beacon_;
  cudaMemPool_t pool_ = nullptr;  // null: the window is in none
  std::vector<void*> opened_;     // windows of other processes
  PageLockedBuffer stop_;
};

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_MACHINE_CUDA_PEER_SUM_H_
