// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Owned arrays of plain values in host memory.
//
//   HostBuffer<double> values;
//   CERES_EXT_RETURN_IF_ERROR(values.Allocate(n));
//   values.data()[n - 1] = 1.0;
//
// DeviceBuffer (machine/device_buffer.h) has the same members.
#ifndef CERES_EXT_CUDA_KERNELS_BASE_BUFFER_H_
#define CERES_EXT_CUDA_KERNELS_BASE_BUFFER_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>
#include <string>
#include <type_traits>
#include <utility>

#include "cuda_kernels/base/status.h"

namespace ceres_ext::kernels {

template <typename T>
class HostBuffer {
 public:
  static_assert(std::is_trivially_copyable_v<T>);

  HostBuffer() = default;
  ~HostBuffer() { Free(); }
  HostBuffer(const HostBuffer&) = delete;
  HostBuffer& operator=(const HostBuffer&) = delete;
  HostBuffer(HostBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)) {}
  HostBuffer& operator=(HostBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }

  // Replaces the array by one of `size` values that are not initialised. On an
  // error the buffer is empty.
  Status Allocate(int64_t size) {
    Free();
    if (size < 0) {
      return {StatusCode::kInvalidArgument,
              "A buffer can't hold " + std::to_string(size) + " values."};
    }
    if (size == 0) {
      return {};
    }
    constexpr int64_t kMaxSize =
        std::numeric_limits<int64_t>::max() / static_cast<int64_t>(sizeof(T));
    void* data = size > kMaxSize
                     ? nullptr
                     : ::operator new(static_cast<size_t>(size) * sizeof(T),
                                      std::align_val_t(kAlignment),
                                      std::nothrow);
    if (data == nullptr) {
      return {StatusCode::kOutOfMemory,
              "Out of host memory: " + std::to_string(size) + " values of " +
                  std::to_string(sizeof(T)) + " bytes."};
    }
    data_ = static_cast<T*>(data);
    size_ = size;
    return {};
  }

  // As Allocate, and sets all values.
  Status Allocate(int64_t size, const T& value) {
    CERES_EXT_RETURN_IF_ERROR(Allocate(size));
    std::fill_n(data_, size_, value);
    return {};
  }

  // Keeps the array where it is large enough, else as Allocate.
  Status Reserve(int64_t size) {
    return size <= size_ ? Status() : Allocate(size);
  }

  void Free() {
    ::operator delete(data_, std::align_val_t(kAlignment));
    data_ = nullptr;
    size_ = 0;
  }

  T* data() { return data_; }
  const T* data() const { return data_; }
  int64_t size() const { return size_; }
  int64_t bytes() const { return size_ * static_cast<int64_t>(sizeof(T)); }

 private:
  // A cache line: no two buffers share one.
  static constexpr size_t kAlignment = 64;

  T* data_ = nullptr;
  int64_t size_ = 0;
};

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_BASE_BUFFER_H_
