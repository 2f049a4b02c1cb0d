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
#include <memory>
#include <new>
#include <string>
#include <type_traits>

#include "cuda_kernels/base/status.h"

namespace ceres_ext::kernels {

template <typename T>
class HostBuffer {
 public:
  static_assert(std::is_trivially_copyable_v<T>);

  // Replaces the array by one of `size` values that are not initialised. On an
  // error the buffer is empty. *account, which outlives the buffer: where its
  // bytes are counted as long as it holds them; null: nowhere.
  Status Allocate(int64_t size, int64_t* account = nullptr) {
    data_.reset();
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
    const int64_t num_bytes = size * static_cast<int64_t>(sizeof(T));
    data_ = {static_cast<T*>(data), Delete{account, num_bytes}};
    size_ = size;
    if (account != nullptr) {
      *account += num_bytes;
    }
    return {};
  }

  // As Allocate, and sets all values.
  Status Allocate(int64_t size, const T& value) {
    CERES_EXT_RETURN_IF_ERROR(Allocate(size));
    std::fill_n(data_.get(), size_, value);
    return {};
  }

  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  int64_t size() const { return data_ == nullptr ? 0 : size_; }

 private:
  // A cache line: no two buffers share one.
  static constexpr size_t kAlignment = 64;
  struct Delete {
    int64_t* account = nullptr;
    int64_t num_bytes = 0;
    void operator()(T* data) const {
      if (account != nullptr) {
        *account -= num_bytes;
      }
      ::operator delete(data, std::align_val_t(kAlignment));
    }
  };

  std::unique_ptr<T, Delete> data_;
  int64_t size_ = 0;  // where there is data
};

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_BASE_BUFFER_H_
