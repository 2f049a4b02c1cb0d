// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#ifndef CERES_EXT_TESTS_FRONT_OTHERS_CAPTURE_H_
#define CERES_EXT_TESTS_FRONT_OTHERS_CAPTURE_H_

#include <cuda_runtime.h>

#include <future>
#include <string>
#include <thread>

#include "tests/kernels/cuda_faults.h"

#ifndef CERES_EXT_EMULATED
#include "cuda_kernels/machine/cuda_process.h"
#endif

namespace ceres_ext {

#ifdef CERES_EXT_EMULATED

// While it lives, CUDA refuses the calls that it refuses while another thread
// captures a stream.
class OthersCapture {
 public:
  OthersCapture() { cuda_faults().SetOthersCapture(true); }
  ~OthersCapture() { cuda_faults().SetOthersCapture(false); }
  OthersCapture(const OthersCapture&) = delete;
  OthersCapture& operator=(const OthersCapture&) = delete;

  // The first call that was refused, and what broke the capture; empty:
  // nothing.
  std::string End() {
    const std::string refused =
        cuda_faults().num_refused() > 0 ? cuda_faults().refused_call() : "";
    cuda_faults().SetOthersCapture(false);
    return refused;
  }
  // The calling thread's mode; 0: CUDA's default.
  static int CaptureMode() { return CudaFaults::CaptureMode(); }
};

#else

// While it lives, another thread captures a stream in CUDA's default mode,
// global. The stream waits for the legacy stream, whose use by anybody breaks
// the capture.
class OthersCapture {
 public:
  OthersCapture() : thread_([this] { Capture(); }) {
    has_begun_.get_future().wait();
  }
  ~OthersCapture() { static_cast<void>(End()); }
  OthersCapture(const OthersCapture&) = delete;
  OthersCapture& operator=(const OthersCapture&) = delete;

  std::string End() {
    if (thread_.joinable()) {
      may_end_.set_value();
      thread_.join();
    }
    return error_;
  }
  static int CaptureMode() {
    int mode = 0;
    kernels::ExchangeCaptureMode(&mode);
    int before = mode;
    kernels::ExchangeCaptureMode(&before);
    return mode;
  }

 private:
  void Check(const char* call, cudaError_t error) {
    if (error != cudaSuccess && error_.empty()) {
      error_ = std::string(call) + ": " + cudaGetErrorString(error);
    }
  }
  void Capture() {
    cudaStream_t stream = nullptr;
    void* data = nullptr;
    Check("cudaMalloc", cudaMalloc(&data, 64));
    Check("cudaStreamCreateWithFlags",
          cudaStreamCreateWithFlags(&stream, cudaStreamDefault));
    Check("cudaStreamBeginCapture",
          cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    has_begun_.set_value();
    may_end_.get_future().wait();
    Check("cudaMemsetAsync", cudaMemsetAsync(data, 0, 64, stream));
    cudaGraph_t graph = nullptr;
    Check("cudaStreamEndCapture", cudaStreamEndCapture(stream, &graph));
    size_t num_nodes = 0;
    if (graph != nullptr) {
      cuda_faults().Hold(1);  // Its destruction counts.
      Check("cudaGraphGetNodes", cudaGraphGetNodes(graph, nullptr, &num_nodes));
      cudaGraphDestroy(graph);
    }
    if (num_nodes != 1 && error_.empty()) {
      error_ = "other work is in the graph";
    }
    cudaStreamDestroy(stream);
    cudaFree(data);
    cudaGetLastError();  // Clears it.
  }

  std::promise<void> has_begun_, may_end_;
  std::string error_;
  std::thread thread_;
};

#endif

}  // namespace ceres_ext

#endif  // CERES_EXT_TESTS_FRONT_OTHERS_CAPTURE_H_
