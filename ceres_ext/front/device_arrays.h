// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Problems with arrays in the memory of a CUDA device (array_problem.h): copies
// for what only the host can read.

#ifndef CERES_EXT_FRONT_DEVICE_ARRAYS_H_
#define CERES_EXT_FRONT_DEVICE_ARRAYS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ceres_ext/array_problem.h"
#include "ceres_ext/import/array_rows.h"
#include "ceres_ext/options.h"
#include "ceres_ext/session/kept_machines.h"
#include "cuda_kernels/base/status.h"

namespace ceres_ext {

// The device that the arrays are on, whatever device the options choose for the
// solve. Without Options::cuda_stream all its work so far is done then.
// kUnsupported: there is none, or the build has no CUDA.
kernels::Status OpenDeviceOfArrays(
    const Options& options,
    int num_threads,
    KeptMachines* kept,
    std::shared_ptr<KeptMachines::Device>* device);

// The same problem with copies on the host of what is on a device.
class HostCopies {
 public:
  // Copies what *problem has; both outlive the object. Throws std::bad_alloc.
  kernels::Status Setup(const ArrayProblem& problem,
                        std::shared_ptr<KeptMachines::Device> device);
  ArrayProblem* problem() { return &copy_; }
  // The values of the parameters go back to the device.
  kernels::Status CopyBack();

 private:
  // A copy of n values at *data, which then leads to it.
  template <typename T>
  kernels::Status Copy(bool on_device, int64_t n, const T** data);

  std::shared_ptr<KeptMachines::Device> device_;
  const ArrayProblem* original_ = nullptr;
  ArrayProblem copy_;
  std::vector<std::unique_ptr<unsigned char[]>> memory_;
};

// Opens the device, checks that the arrays are there, and copies them. False,
// with a sentence in *error, if that can't be done.
bool CopyToHost(const Options& options,
                int num_threads,
                const ArrayProblem& problem,
                KeptMachines* kept,
                HostCopies* copies,
                std::string* error);

}  // namespace ceres_ext

#endif  // CERES_EXT_FRONT_DEVICE_ARRAYS_H_
