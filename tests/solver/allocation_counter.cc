// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "tests/solver/allocation_counter.h"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

std::atomic<size_t> largest_allocation{0};

void* Allocate(size_t size, size_t alignment) {
  size_t seen = largest_allocation;
  while (seen < size && !largest_allocation.compare_exchange_weak(seen, size)) {
  }
  return std::aligned_alloc(alignment,
                            (size + alignment - 1) / alignment * alignment);
}

}  // namespace

namespace ceres_ext {

size_t LargestAllocation() { return largest_allocation; }
void ResetLargestAllocation() { largest_allocation = 0; }

}  // namespace ceres_ext

// The forms that the standard library and HostBuffer use.
void* operator new(size_t size) {
  void* memory = Allocate(size, alignof(std::max_align_t));
  if (memory == nullptr) {
    throw std::bad_alloc();
  }
  return memory;
}
void* operator new(size_t size,
                   std::align_val_t alignment,
                   const std::nothrow_t&) noexcept {
  return Allocate(size, static_cast<size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
