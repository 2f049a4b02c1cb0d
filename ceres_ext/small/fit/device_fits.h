// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Solves the fits of a piece on a device: one copy, a launch for each number of
// lanes, one copy back.

#ifndef CERES_EXT_SMALL_FIT_DEVICE_FITS_H_
#define CERES_EXT_SMALL_FIT_DEVICE_FITS_H_

#include <cstdint>
#include <type_traits>

#include "ceres_ext/base/machines.h"
#include "ceres_ext/small/fit/fit_piece.h"
#include "ceres_ext/small/queued_work.h"
#include "cuda_kernels/base/status.h"

namespace ceres_ext {

// A template, so that a build without CUDA does not compile its body; see
// DeviceFits.
template <typename Machine>
class FitsOnMachine {
 public:
  explicit FitsOnMachine(Machine* machine)
      : machine_(machine), work_(machine) {}

  // Allocates memory for pieces of so many bytes.
  kernels::Status Reserve(int64_t input_bytes, int64_t output_bytes);

  // Queues the copies of a piece in page-locked memory and the solution,
  // without waiting for it. If it fails, nothing of it runs. The model has a
  // form (ceres_ext/small/fit/fit.h).
  kernels::Status Start(FitPiece* piece);
  // True if they are solved or the device has failed, so that Wait returns at
  // once.
  bool IsDone() const;
  kernels::Status Wait();
  // Ends each fit after its current iteration. Any thread may call it after
  // Start, if TrustRegionOptions::stop is not null.
  void Stop();

 private:
  kernels::Status Queue(FitPiece* piece);

  template <typename T>
  using Buffer = typename Machine::template Buffer<T>;

  Machine* const machine_;
  Buffer<unsigned char> inputs_;
  Buffer<unsigned char> outputs_;
  std::conditional_t<kIsHost<Machine>, NoQueuedWork, QueuedWork<Machine>> work_;
};

using DeviceFits = FitsOnMachine<DeviceMachine>;
extern template class FitsOnMachine<DeviceMachine>;

}  // namespace ceres_ext

#endif  // CERES_EXT_SMALL_FIT_DEVICE_FITS_H_
