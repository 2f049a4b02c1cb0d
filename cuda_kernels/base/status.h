// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The outcome of anything below ceres_ext::Solve that can fail. Nothing here
// aborts and no exception crosses the border of the kernel library:
// std::bad_alloc becomes kOutOfMemory, a CUDA error becomes kDeviceError.
#ifndef CERES_EXT_CUDA_KERNELS_BASE_STATUS_H_
#define CERES_EXT_CUDA_KERNELS_BASE_STATUS_H_

#include <string>
#include <utility>

namespace ceres_ext::kernels {

enum class StatusCode {
  kOk,
  // The caller's data breaks the contract; the message names the first place.
  kInvalidArgument,
  // Host or device memory; the message says how many bytes were asked for.
  kOutOfMemory,
  // A CUDA call failed; the message names the call and CUDA's error.
  kDeviceError,
  // A factorisation broke down or a value is not finite.
  kNumericalFailure,
  // A valid request that this build or machine does not support.
  kUnsupported,
};

struct [[nodiscard]] Status {
  Status() = default;
  Status(StatusCode code_in, std::string message_in)
      : code(code_in), message(std::move(message_in)) {}

  bool ok() const { return code == StatusCode::kOk; }

  StatusCode code = StatusCode::kOk;
  // Empty when ok, else one sentence without a final newline.
  std::string message;
};

}  // namespace ceres_ext::kernels

// Returns from the enclosing function the first Status that is not ok.
#define CERES_EXT_RETURN_IF_ERROR(expression)                      \
  do {                                                             \
    ::ceres_ext::kernels::Status ceres_ext_status_ = (expression); \
    if (!ceres_ext_status_.ok()) {                                 \
      return ceres_ext_status_;                                    \
    }                                                              \
  } while (false)

#endif  // CERES_EXT_CUDA_KERNELS_BASE_STATUS_H_
