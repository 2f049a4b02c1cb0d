// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// About how long a factorisation of S and a solve with it take on a device: for
// a choice between a dense one and a sparse one, and between device and host.
// Fitted to an H200 (docs/measurements/study_exact.md), where a double takes
// as long as two floats. Where it takes longer, operations cost as much more.
#ifndef CERES_EXT_SOLVER_FACTORIZATION_COST_H_
#define CERES_EXT_SOLVER_FACTORIZATION_COST_H_

#include <algorithm>
#include <cstdint>

namespace ceres_ext::solver {

// n^3 / 3 operations in products of matrices, and columns one after the other.
// float_to_double_ratio: kernels::FloatToDoubleRatio; 0: unknown.
inline double FactorizationFlopSeconds(int float_to_double_ratio) {
  return 2.2e-14 * std::max(1.0, float_to_double_ratio / 2.0);
}
inline double DenseFactorizationSeconds(int64_t n, int float_to_double_ratio) {
  const auto columns = static_cast<double>(n);
  return 0.56e-6 * columns + FactorizationFlopSeconds(float_to_double_ratio) *
                                 columns * columns * columns / 3.0;
}

// By the values of the factor, which are moved more often than multiplied.
inline double SparseFactorizationSeconds(int64_t num_factor_values,
                                         int64_t num_flops,
                                         int float_to_double_ratio) {
  return 2.5e-3 + std::max(0.95e-9 * static_cast<double>(num_factor_values),
                           FactorizationFlopSeconds(float_to_double_ratio) *
                               static_cast<double>(num_flops));
}

// Whether a sparse S of so many values may be faster before its factor is
// known, which has had 2.6 to 5.3 times as many on streets of cameras. Its
// analysis takes as long as some factorisations.
inline bool SparseMayBeFaster(int64_t n,
                              int64_t num_values,
                              int float_to_double_ratio) {
  const int64_t num_factor_values = num_values * 5 / 2;
  return SparseFactorizationSeconds(
             num_factor_values, 0, float_to_double_ratio) <
         DenseFactorizationSeconds(n, float_to_double_ratio);
}

}  // namespace ceres_ext::solver

#endif  // CERES_EXT_SOLVER_FACTORIZATION_COST_H_
