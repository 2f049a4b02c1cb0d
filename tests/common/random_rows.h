// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Blocks of random values, and cost functions of rows among them.
#ifndef CERES_EXT_TESTS_COMMON_RANDOM_ROWS_H_
#define CERES_EXT_TESTS_COMMON_RANDOM_ROWS_H_

#include <random>
#include <vector>

#include "ceres/autodiff_cost_function.h"
#include "ceres/cost_function.h"
#include "ceres/internal/eigen.h"
#include "ceres/manifold.h"
#include "ceres/product_manifold.h"
#include "ceres_ext/device_cost_function.h"
#include "tests/common/random_cases.h"

namespace ceres_ext {

using Blocks = std::vector<std::vector<double>>;

inline double Normal(Random* random) {
  return std::normal_distribution<double>()(random->generator());
}

inline Blocks RandomBlocks(int count, int size, Random* random) {
  Blocks blocks(count, std::vector<double>(size));
  for (auto& block : blocks) {
    for (double& value : block) {
      value = 0.5 * Normal(random);
    }
  }
  return blocks;
}

// Makes the first four values of a block of seven a rotation, with the manifold
// of a pose.
template <typename Problem>
void MakePose(double* block, Problem* problem) {
  Eigen::Map<Eigen::Vector4d>(block).normalize();
  problem->SetManifold(
      block,
      new ceres::ProductManifold<ceres::QuaternionManifold,
                                 ceres::EuclideanManifold<3>>());
}

// A functor's cost function, by this library's template or by Ceres's.
template <int kNumResiduals, int... Ns, typename Functor>
ceres::CostFunction* CostOf(bool batched, const Functor& functor) {
  if (batched) {
    return new DeviceAutoDiffCostFunction<Functor, kNumResiduals, Ns...>(
        functor);
  }
  return new ceres::AutoDiffCostFunction<Functor, kNumResiduals, Ns...>(
      new Functor(functor));
}

}  // namespace ceres_ext

#endif  // CERES_EXT_TESTS_COMMON_RANDOM_ROWS_H_
