// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Sums of a model window (model_solve.h).
#ifndef CERES_EXT_SMALL_MODEL_WINDOW_MODEL_SUMS_H_
#define CERES_EXT_SMALL_MODEL_WINDOW_MODEL_SUMS_H_

#include "ceres_ext/small/model_window/model_window.h"
#include "cuda_kernels/base/host_device.h"

namespace ceres_ext {

// All elements at once, of sizes that the compiler knows unless they are 0.
template <int kRows, int kColumns, typename ForEach, typename Store>
CERES_EXT_HOST_DEVICE void SumWholeCell(int given_rows,
                                        int given_columns,
                                        const ForEach& for_each,
                                        const Store& store) {
  const int num_rows = kRows > 0 ? kRows : given_rows;
  const int num_columns = kColumns > 0 ? kColumns : given_columns;
  double sum[kRows > 0 ? kRows : kMaxModelValues]
            [kColumns > 0 ? kColumns : kMaxModelValues] = {};
  for_each([&](const double* a, const double* b, const auto&...) {
    for (int r = 0; r < num_rows; ++r) {
      for (int c = 0; c < num_columns; ++c) {
        sum[r][c] += a[r] * b[c];
      }
    }
  });
  for (int r = 0; r < num_rows; ++r) {
    for (int c = 0; c < num_columns; ++c) {
      store(r, c, sum[r][c]);
    }
  }
}

// Adds what element (r, c) of H contributes, and (c, r) if is_twice.
template <int n>
CERES_EXT_HOST_DEVICE void AddHessianProducts(
    const double* const (&vectors)[n],
    int r,
    int c,
    bool is_twice,
    double value,
    double (&products)[n * (n + 1) / 2]) {
  int k = 0;
  for (int i = 0; i < n; ++i) {
    const double* const a = vectors[i];
    for (int j = i; j < n; ++j, ++k) {
      const double* const b = vectors[j];
      products[k] += value * (a[r] * b[c] + (is_twice ? a[c] * b[r] : 0.0));
    }
  }
}

}  // namespace ceres_ext

#endif  // CERES_EXT_SMALL_MODEL_WINDOW_MODEL_SUMS_H_
