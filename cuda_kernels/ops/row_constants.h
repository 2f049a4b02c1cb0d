// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// GatherWords: constants of rows, from the order of the caller into that of an
// index. A vector operation (ops/vector_operation.h).
#ifndef CERES_EXT_CUDA_KERNELS_OPS_ROW_CONSTANTS_H_
#define CERES_EXT_CUDA_KERNELS_OPS_ROW_CONSTANTS_H_

#include <cstdint>

#include "cuda_kernels/base/host_device.h"
#include "cuda_kernels/ops/vector_operation.h"

namespace ceres_ext::kernels {

// Word w of row k, out[row k + word w], = word w of row source[k] of `in`,
// where rows have num_words words one after the other.
// Traffic: 4 + 16 num_words B per row.
struct GatherWordsParams {
  int64_t n = 0;  // rows
  int64_t num_words = 0;
  const int32_t* source = nullptr;  // n
  const uint64_t* in = nullptr;
  uint64_t* out = nullptr;
  int64_t row = 0;
  int64_t word = 0;

  CERES_EXT_HOST_DEVICE void Apply(int64_t k) const {
    const uint64_t* from = in + num_words * source[k];
    for (int64_t w = 0; w < num_words; ++w) {
      out[row * k + word * w] = from[w];
    }
  }
};

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_OPS_ROW_CONSTANTS_H_
