// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/small/fit/device_fits.h"

#include <string>

#include "ceres_ext/small/fit/fit.h"
#include "cuda_kernels/machine/cuda_queue.h"

namespace ceres_ext {

using kernels::Status;
using kernels::StatusCode;

template <typename Machine>
Status FitsOnMachine<Machine>::Reserve([[maybe_unused]] int64_t input_bytes,
                                       [[maybe_unused]] int64_t output_bytes) {
  if constexpr (kIsHost<Machine>) {
    return {StatusCode::kUnsupported, "this build has no CUDA"};
  } else {
    const CurrentMachine<Machine> current(machine_);
    CERES_EXT_RETURN_IF_ERROR(current.status());
    CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(input_bytes, &inputs_));
    CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(output_bytes, &outputs_));
    return work_.Setup();
  }
}

template <typename Machine>
Status FitsOnMachine<Machine>::Start(FitPiece* piece) {
  Status status = Queue(piece);
  if (!status.ok()) {
    // Work that was queued before uses memory of the piece.
    static_cast<void>(machine_->Synchronize());
  }
  return status;
}

template <typename Machine>
Status FitsOnMachine<Machine>::Queue([[maybe_unused]] FitPiece* piece) {
  if constexpr (kIsHost<Machine>) {
    return {StatusCode::kUnsupported, "this build has no CUDA"};
  } else {
    CERES_EXT_RETURN_IF_ERROR(
        Reserve(piece->input_bytes(), piece->output_bytes()));
    const CurrentMachine<Machine> current(machine_);
    CERES_EXT_RETURN_IF_ERROR(current.status());
    const FitForm& form = *piece->fits().model().GetFitForm();
    CERES_EXT_RETURN_IF_ERROR(kernels::QueueCopyToDevice(inputs_.data(),
                                                         piece->inputs(),
                                                         piece->input_bytes(),
                                                         machine_->stream()));
    // Not every byte that is copied back is written: problems that are not
    // fits, and gaps between arrays.
    CERES_EXT_RETURN_IF_ERROR(
        machine_->SetZero(piece->output_bytes(), outputs_.data()));
    CERES_EXT_RETURN_IF_ERROR(work_.Begin());
    for (const int lanes : {8, 32}) {
      FitParams params =
          piece->ParamsOnDevice(lanes, inputs_.data(), outputs_.data());
      if (params.options.stop != nullptr) {
        params.options.stop = work_.stop();
      }
      if (params.num_fits == 0) {
        continue;
      }
      const int error = form.launch(
          machine_->context()->device(), machine_->stream(), lanes, params);
      if (error != 0) {
        return {StatusCode::kDeviceError,
                std::string("Launch of SolveFitsKernel failed: ") +
                    form.error_string(error) + "."};
      }
    }
    CERES_EXT_RETURN_IF_ERROR(machine_->context()->QueueCopyToHost(
        piece->outputs(), outputs_.data(), piece->output_bytes()));
    return work_.End();
  }
}

template <typename Machine>
bool FitsOnMachine<Machine>::IsDone() const {
  if constexpr (kIsHost<Machine>) {
    return true;
  } else {
    return work_.IsDone();
  }
}

template <typename Machine>
Status FitsOnMachine<Machine>::Wait() {
  if constexpr (kIsHost<Machine>) {
    return {};
  } else {
    const CurrentMachine<Machine> current(machine_);
    CERES_EXT_RETURN_IF_ERROR(current.status());
    return work_.Wait();
  }
}

template <typename Machine>
void FitsOnMachine<Machine>::Stop() {
  if constexpr (!kIsHost<Machine>) {
    work_.Stop();
  }
}

template class FitsOnMachine<DeviceMachine>;

}  // namespace ceres_ext
