// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#ifndef CERES_EXT_TESTS_KERNELS_RANDOM_VECTOR_H_
#define CERES_EXT_TESTS_KERNELS_RANDOM_VECTOR_H_

#include <cstdint>
#include <random>
#include <vector>

namespace ceres_ext::kernels {

// Normal numbers; the same for the same arguments.
inline std::vector<double> RandomVector(int64_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  std::vector<double> x(static_cast<size_t>(n));
  for (double& value : x) {
    value = normal(random);
  }
  return x;
}

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_TESTS_KERNELS_RANDOM_VECTOR_H_
