// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// About how long a factorisation of S and a solve with it take on a device: for
// a choice between a dense one and a sparse one, and between device and host.
// Fitted to an H200 (docs/measurements/study_exact.md), where a double takes
// as long as two floats. If it takes longer, operations cost as much more.
#ifndef CERES_EXT_SOLVER_CHOLESKY_FACTORIZATION_COST_H_
#define CERES_EXT_SOLVER_CHOLESKY_FACTORIZATION_COST_H_

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
  return 1.0e-3 + std::max(1.05e-9 * static_cast<double>(num_factor_values),
                           FactorizationFlopSeconds(float_to_double_ratio) *
                               static_cast<double>(num_flops));
}

// True if a sparse factorisation is faster by more than its share of the
// analysis, which takes 40 ms and more per solve of about 20 steps.
inline bool SparseIsFaster(int64_t n,
                           int64_t num_factor_values,
                           int64_t num_flops,
                           int float_to_double_ratio) {
  constexpr double kShareOfAnalysis = 2.0e-3;
  return SparseFactorizationSeconds(
             num_factor_values, num_flops, float_to_double_ratio) +
             kShareOfAnalysis <
         DenseFactorizationSeconds(n, float_to_double_ratio);
}
// The same before the analysis, from the values of S: the factors of streets of
// cameras have had 1.6 to 5.3 times as many.
inline bool SparseMayBeFaster(int64_t n,
                              int64_t num_values,
                              int float_to_double_ratio) {
  return SparseIsFaster(n, num_values * 3 / 2, 0, float_to_double_ratio);
}

// The same on the host, from the values of S. A dense factorisation leaves out
// tiles that are zero, so that a sparse one, whose factor has some three times
// the values of S, has to be much smaller. The rates are guesses.
inline constexpr double kHostDenseFlops = 1.0e10;  // a second and thread
inline constexpr double kHostSparseFlops = 1.0e9;  // a second
inline bool SparseIsFasterOnHost(int64_t n,
                                 int64_t num_values,
                                 int num_threads) {
  constexpr int64_t kAlwaysDense = 2000;
  const auto columns = static_cast<double>(n);
  const double values = 3.0 * static_cast<double>(num_values);
  return n > kAlwaysDense && values * values / columns / kHostSparseFlops <
                                 columns * columns * columns / 3.0 /
                                     (kHostDenseFlops * num_threads);
}

}  // namespace ceres_ext::solver

#endif  // CERES_EXT_SOLVER_CHOLESKY_FACTORIZATION_COST_H_
