// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// An owned array of plain values in device memory; HostBuffer (buffer.h) for
// the device. Its context must outlive it.
//
//   DeviceBuffer<double> values;
//   CERES_EXT_RETURN_IF_ERROR(values.Allocate(&context, n));
#ifndef CERES_EXT_CUDA_KERNELS_MACHINE_DEVICE_BUFFER_H_
#define CERES_EXT_CUDA_KERNELS_MACHINE_DEVICE_BUFFER_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <type_traits>
#include <vector>

#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/cuda_context.h"

namespace ceres_ext::kernels {

template <typename T>
class DeviceBuffer {
  static_assert(std::is_trivially_copyable_v<T>, "copied as bytes");

 public:
  // Makes the buffer hold `size` elements of unknown value. Memory is taken
  // only where what is held is too small, so a second call with the same size
  // allocates nothing and keeps the pointer.
  Status Allocate(CudaContext* context, int64_t size) {
    if (size < 0 || size > std::numeric_limits<int64_t>::max() /
                               static_cast<int64_t>(sizeof(T))) {
      return Status(StatusCode::kInvalidArgument,
                    "A buffer of " + std::to_string(size) +
                        " elements can't be addressed.");
    }
    const int64_t num_bytes = size * static_cast<int64_t>(sizeof(T));
    const Free& held = data_.get_deleter();
    if (data_ == nullptr || context != held.context ||
        num_bytes > held.num_bytes) {
      Release();
      void* data = nullptr;
      CERES_EXT_RETURN_IF_ERROR(context->Allocate(num_bytes, &data));
      data_ = {static_cast<T*>(data), Free{context, num_bytes}};
    }
    size_ = size;
    return Status();
  }

  void Release() { data_.reset(); }

  // Allocates for `size` elements and copies them from the host.
  Status Assign(CudaContext* context, const T* host, int64_t size) {
    CERES_EXT_RETURN_IF_ERROR(Allocate(context, size));
    return context->CopyToDevice(data(), host, bytes());
  }
  Status Assign(CudaContext* context, const std::vector<T>& host) {
    return Assign(context, host.data(), static_cast<int64_t>(host.size()));
  }

  Status CopyToHost(T* host) const {
    return size() == 0 ? Status()
                       : context()->CopyToHost(host, data(), bytes());
  }
  Status CopyToHost(std::vector<T>* host) const {
    host->resize(static_cast<size_t>(size()));
    return CopyToHost(host->data());
  }

  // Every byte, queued on the context's stream.
  Status SetZero() {
    return size() == 0 ? Status() : context()->SetBytes(data(), 0, bytes());
  }

  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  int64_t size() const { return data_ == nullptr ? 0 : size_; }
  int64_t bytes() const { return size() * static_cast<int64_t>(sizeof(T)); }

 private:
  struct Free {
    CudaContext* context = nullptr;
    int64_t num_bytes = 0;
    void operator()(T* data) const { context->Free(data, num_bytes); }
  };
  CudaContext* context() const { return data_.get_deleter().context; }

  std::unique_ptr<T, Free> data_;
  int64_t size_ = 0;  // where there is data
};

// One record that kernels write and the host reads
// (CudaContext::AllocateResult).
template <typename T>
class DeviceResult {
  static_assert(std::is_trivially_copyable_v<T>, "copied as bytes");
  static_assert(sizeof(T) <= CudaContext::kResultBytes, "room for it");

 public:
  Status Allocate(CudaContext* context) {
    data_.reset();
    void* data = nullptr;
    CERES_EXT_RETURN_IF_ERROR(context->AllocateResult(&data));
    data_ = {new (data) T(), Free{context}};
    return Status();
  }

  // For kernels.
  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }

 private:
  struct Free {
    CudaContext* context = nullptr;
    void operator()(T* data) const { context->FreeResult(data); }
  };

  std::unique_ptr<T, Free> data_;
};

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_MACHINE_DEVICE_BUFFER_H_
