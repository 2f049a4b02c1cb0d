// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The manifolds of parameter arrays that a device knows, by number.

#ifndef CERES_EXT_SMALL_MANIFOLD_TABLE_H_
#define CERES_EXT_SMALL_MANIFOLD_TABLE_H_

#include <cstdint>
#include <map>
#include <typeindex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ceres/manifold.h"
#include "ceres_ext/array_problem.h"
#include "cuda_kernels/model/manifold.h"

namespace ceres_ext {

class ManifoldTable {
 public:
  static constexpr int16_t kUnknown = -1;

  // Numbers the manifolds of an array. Throws std::bad_alloc.
  void Read(const ArrayProblem::Parameters& parameters);
  // Number of the manifold of a block of an array that was read, or kUnknown.
  int16_t NumberOf(const ArrayProblem::Parameters& parameters,
                   int64_t block) const {
    const ceres::Manifold* const manifold = parameters.ManifoldOf(block);
    return manifold == nullptr ? int16_t{0} : numbers_.find(manifold)->second;
  }

  // Manifold i has factors factor_begin()[i] to factor_begin()[i + 1]. Number 0
  // has none and is Euclidean.
  const std::vector<kernels::ManifoldFactor>& factors() const {
    return factors_;
  }
  const std::vector<int32_t>& factor_begin() const { return factor_begin_; }

 private:
  void ReadOne(int size, const ceres::Manifold* manifold);
  int16_t FindNumber(int size, const ceres::Manifold& manifold);

  std::vector<kernels::ManifoldFactor> factors_;
  std::vector<int32_t> factor_begin_{0, 0};
  std::unordered_map<const ceres::Manifold*, int16_t> numbers_;
  // Blocks may have an object each. All of some types are the same manifold.
  std::unordered_map<std::type_index, int16_t> number_of_type_;
  std::map<std::vector<std::pair<kernels::ManifoldKind, int32_t>>, int16_t>
      number_of_factors_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_SMALL_MANIFOLD_TABLE_H_
