// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/glue/block_table.h"

#include <algorithm>

namespace ceres_ext {
namespace {

// Blocks that a thread handles at a time: a few microseconds of copying.
constexpr int64_t kGrain = 4096;

}  // namespace

int BlockTable::NumVarying() const {
  return static_cast<int>(std::count_if(
      tangent_size.begin(), tangent_size.end(), [](int n) { return n > 0; }));
}

int BlockTable::MaxTangentSize() const {
  return tangent_size.empty()
             ? 0
             : *std::max_element(tangent_size.begin(), tangent_size.end());
}

bool BlockTable::HasManifold() const {
  return std::any_of(manifold.begin(),
                     manifold.end(),
                     [](const ceres::Manifold* m) { return m != nullptr; });
}

bool BlockTable::HasPadding() const {
  return std::any_of(tangent_size.begin(), tangent_size.end(), [this](int n) {
    return n != padded_size;
  });
}

void BlockTable::Gather(const double* vector,
                        double padding,
                        double* padded,
                        kernels::HostContext* context) const {
  context->ParallelFor(size(), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      double* block = padded + i * padded_size;
      std::copy_n(
          vector + std::max(tangent_offset[i], 0), tangent_size[i], block);
      std::fill(block + tangent_size[i], block + padded_size, padding);
    }
  });
}

void BlockTable::Scatter(const double* padded,
                         double* vector,
                         kernels::HostContext* context) const {
  context->ParallelFor(size(), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      std::copy_n(padded + i * padded_size,
                  tangent_size[i],
                  vector + std::max(tangent_offset[i], 0));
    }
  });
}

void BlockTable::GatherState(const double* state,
                             double* ambient,
                             kernels::HostContext* context) const {
  context->ParallelFor(size(), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const double* value = constant_value[i] != nullptr
                                ? constant_value[i]
                                : state + state_offset[i];
      std::copy_n(value, ambient_size, ambient + i * ambient_size);
    }
  });
}

int64_t BlockTable::MemoryBytes() const {
  return int64_t{size()} * (3 * sizeof(int32_t) + 2 * sizeof(void*));
}

}  // namespace ceres_ext
