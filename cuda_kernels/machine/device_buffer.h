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
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/cuda_context.h"

namespace ceres_ext::kernels {

template <typename T>
class DeviceBuffer {
  static_assert(std::is_trivially_copyable_v<T>, "copied as bytes");

 public:
  DeviceBuffer() = default;
  ~DeviceBuffer() { Release(); }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  DeviceBuffer(DeviceBuffer&& other) noexcept { Swap(other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    Swap(other);
    return *this;
  }

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
    if (context == context_ && size <= capacity_) {
      size_ = size;
      return Status();
    }
    Release();
    void* data = nullptr;
    CERES_EXT_RETURN_IF_ERROR(
        context->Allocate(size * static_cast<int64_t>(sizeof(T)), &data));
    context_ = context;
    data_ = static_cast<T*>(data);
    size_ = capacity_ = size;
    return Status();
  }

  void Release() {
    if (data_ != nullptr) {
      context_->Free(data_, capacity_ * static_cast<int64_t>(sizeof(T)));
    }
    context_ = nullptr;
    data_ = nullptr;
    size_ = capacity_ = 0;
  }

  // Allocates for `size` elements and copies them from the host.
  Status Assign(CudaContext* context, const T* host, int64_t size) {
    CERES_EXT_RETURN_IF_ERROR(Allocate(context, size));
    return context->CopyToDevice(data_, host, bytes());
  }
  Status Assign(CudaContext* context, const std::vector<T>& host) {
    return Assign(context, host.data(), static_cast<int64_t>(host.size()));
  }

  Status CopyToHost(T* host) const {
    return size_ == 0 ? Status() : context_->CopyToHost(host, data_, bytes());
  }
  Status CopyToHost(std::vector<T>* host) const {
    host->resize(static_cast<size_t>(size_));
    return CopyToHost(host->data());
  }

  // Every byte, queued on the context's stream.
  Status SetZero() {
    return size_ == 0 ? Status() : context_->SetBytes(data_, 0, bytes());
  }

  T* data() { return data_; }
  const T* data() const { return data_; }
  int64_t size() const { return size_; }
  int64_t bytes() const { return size_ * static_cast<int64_t>(sizeof(T)); }

 private:
  void Swap(DeviceBuffer& other) {
    std::swap(context_, other.context_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
  }

  CudaContext* context_ = nullptr;
  T* data_ = nullptr;
  int64_t size_ = 0;
  int64_t capacity_ = 0;
};

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_MACHINE_DEVICE_BUFFER_H_
