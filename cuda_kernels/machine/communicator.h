// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The ranks of a solve: processes, or threads of one, that solve a problem
// together. Each has a Communicator, and all call the same functions in the
// same order with the same sizes.
//
// Only host memory is exchanged here; cuda_communicator.h has sums of devices.
// Sums are taken in the order of the ranks, so that all ranks have the same
// bits, in every run with as many ranks.
#ifndef CERES_EXT_CUDA_KERNELS_MACHINE_COMMUNICATOR_H_
#define CERES_EXT_CUDA_KERNELS_MACHINE_COMMUNICATOR_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cuda_kernels/base/status.h"

namespace ceres_ext::kernels {

class CudaCommunicator;

// One rank's end. One thread at a time calls it, except Abort.
//
// A call that fails returns false, with one sentence in *error, and all later
// calls fail with the same sentence. It fails on a rank if another one aborted,
// has ended, or does not call within the time-out of the kind.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;  // 0 <= rank() < size()
  virtual int size() const = 0;

  // all: size() times `bytes`, those of rank 0 first.
  virtual bool AllGather(const void* mine,
                         int64_t bytes,
                         void* all,
                         std::string* error) = 0;
  // Part i of `to` becomes part rank() of `from` of rank i; parts are of
  // `bytes` bytes, size() in each array.
  virtual bool AllToAll(const void* from,
                        int64_t bytes,
                        void* to,
                        std::string* error) = 0;
  // Makes calls fail on all ranks, those that wait now included. `message`: one
  // sentence without the rank, which is put before it. May be called from any
  // thread, and more than once; the first message counts.
  virtual void Abort(const std::string& message) = 0;

  // True, with its sentence, if a rank is known to have aborted or ended. Asked
  // by a rank that waits for work of all devices. Not collective.
  virtual bool HasFailed(std::string* /*error*/) { return false; }
  // How long a rank waits for the others.
  virtual std::chrono::milliseconds timeout() const {
    return std::chrono::minutes(10);
  }

 private:
  friend class CudaCommunicator;

  // The devices keep it from one solve to the next.
  std::shared_ptr<CudaCommunicator> of_device_;
};

// x = the sum of x over all ranks, in their order. Moves 2 n doubles to and
// from each rank, whatever the number of ranks. scratch: memory that is kept
// between calls.
Status SumOverRanks(int64_t n,
                    double* x,
                    std::vector<double>* scratch,
                    Communicator* communicator);

// Communicators of `size` threads of this process. timeout: how long a rank
// waits for the others.
std::vector<std::unique_ptr<Communicator>> MakeThreadCommunicators(
    int size, std::chrono::milliseconds timeout);

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_MACHINE_COMMUNICATOR_H_
