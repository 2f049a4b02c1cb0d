// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// CUDA that fails when a test says so, and what a program holds of it. Every
// replacement of CUDA's functions asks here: the emulated runtime
// (emulation/cuda_runtime.h), and on a GPU the functions that the linker puts
// between a test and the runtime (tests/front/cuda_faults_calls.cc).
#ifndef CERES_EXT_TESTS_KERNELS_CUDA_FAULTS_H_
#define CERES_EXT_TESTS_KERNELS_CUDA_FAULTS_H_

#include <atomic>
#include <cstdint>
#include <string>

namespace ceres_ext {

class CudaFaults {
 public:
  // From now on the n-th call fails, or it and all later ones, counted from 1
  // over all threads; n = 0: none, they are counted alone.
  void Start(int64_t n, bool and_all_later) {
    n_ = n;
    and_all_later_ = and_all_later;
    count_ = 0;
    failed_call_ = "";
    is_on_ = true;
  }
  // From now on there is no memory.
  void TakeMemory() { has_memory_ = false; }
  // While on, as if another thread captured a stream in CUDA's global mode:
  // calls of threads whose mode is not relaxed fail, and are counted.
  void SetOthersCapture(bool on) {
    others_capture_ = on;
    num_refused_ = 0;
  }
  int64_t num_refused() const { return num_refused_; }
  std::string refused_call() const { return refused_call_.load(); }
  // The calling thread's mode: 0 global, 1 of the thread, 2 relaxed.
  static int& CaptureMode() {
    thread_local int mode = 0;
    return mode;
  }
  // Everything works again.
  void Stop() {
    is_on_ = false;
    has_memory_ = true;
    last_error_ = 0;
  }
  // Since Start.
  int64_t num_calls() const { return count_; }
  // The first that failed, or empty.
  std::string failed_call() const { return failed_call_.load(); }

  // How many allocations, streams, events and graphs there are.
  int64_t num_held() const { return num_held_; }

  // For the replacements. The result of this call of CUDA: `error`, or 0 if it
  // is to work.
  int Next(const char* call, int error) {
    constexpr int kMemoryAllocation = 2;
    constexpr int kStreamCaptureUnsupported = 900;
    constexpr int kRelaxed = 2;
    if (others_capture_ && CaptureMode() != kRelaxed && !IsSafe(call)) {
      ++num_refused_;
      refused_call_ = call;
      return last_error_ = kStreamCaptureUnsupported;
    }
    if (!has_memory_ && error == kMemoryAllocation) {
      last_error_ = error;
      return error;
    }
    if (!is_on_) {
      return 0;
    }
    const int64_t i = ++count_;
    if (n_ == 0 || i < n_ || (i > n_ && !and_all_later_)) {
      return 0;
    }
    if (i == n_) {
      failed_call_ = call;
    }
    last_error_ = error;
    return error;
  }
  // The results of cudaGetLastError and, without clear, cudaPeekAtLastError for
  // the errors from here, 0 if there is none. If all calls fail the error
  // stays, as that of a kernel does.
  int LastError(bool clear) {
    return clear && !(is_on_ && and_all_later_) ? last_error_.exchange(0)
                                                : last_error_.load();
  }
  void Hold(int change) { num_held_ += change; }

 private:
  // True if CUDA allows the call during a capture of another thread.
  static bool IsSafe(const std::string& call) {
    return call == "cudaDriverGetVersion" || call == "cudaGetDeviceCount" ||
           call == "cudaGetDevice" || call == "cudaSetDevice" ||
           call == "cudaGetDeviceProperties" ||
           call == "cudaDeviceGetAttribute";
  }

  std::atomic<bool> is_on_{false};
  std::atomic<bool> others_capture_{false};
  std::atomic<int64_t> num_refused_{0};
  std::atomic<const char*> refused_call_{""};
  std::atomic<bool> has_memory_{true};
  std::atomic<int64_t> count_{0};
  std::atomic<int64_t> n_{0};
  std::atomic<bool> and_all_later_{false};
  std::atomic<const char*> failed_call_{""};
  std::atomic<int> last_error_{0};
  std::atomic<int64_t> num_held_{0};
};

inline CudaFaults& cuda_faults() {
  static CudaFaults faults;
  return faults;
}

}  // namespace ceres_ext

#endif  // CERES_EXT_TESTS_KERNELS_CUDA_FAULTS_H_
