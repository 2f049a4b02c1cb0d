// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/small/manifold_table.h"

#include <algorithm>
#include <limits>
#include <string>
#include <typeinfo>
#include <utility>

#include "ceres_ext/base/type_name.h"
#include "ceres_ext/blocks/block_manifolds.h"

namespace ceres_ext {

void ManifoldTable::Read(const ArrayProblem::Parameters& parameters) {
  if (parameters.manifolds == nullptr) {
    ReadOne(parameters.size, parameters.manifold);
    return;
  }
  const ceres::Manifold* last = nullptr;
  for (int64_t b = 0; b < parameters.num_blocks; ++b) {
    if (parameters.manifolds[b] != last) {
      last = parameters.manifolds[b];
      ReadOne(parameters.size, last);
    }
  }
}

void ManifoldTable::ReadOne(int size, const ceres::Manifold* manifold) {
  if (manifold == nullptr || numbers_.count(manifold) > 0) {
    return;
  }
  const std::type_index type(typeid(*manifold));
  const auto known = number_of_type_.find(type);
  if (known != number_of_type_.end() && manifold->AmbientSize() == size) {
    numbers_.emplace(manifold, known->second);
    return;
  }
  const int16_t number = FindNumber(size, *manifold);
  numbers_.emplace(manifold, number);
  // Subsets, sizes that are not of the type, and parts of a product by pointer
  // are the object's own.
  const std::string name = TypeName(*manifold);
  const auto has = [&name](const char* part) {
    return name.find(part) != std::string::npos;
  };
  if (number != kUnknown && !has("Subset") && !has("-1") && !has("*") &&
      !has("_ptr")) {
    number_of_type_.emplace(type, number);
  }
}

int16_t ManifoldTable::FindNumber(int size, const ceres::Manifold& manifold) {
  std::vector<kernels::ManifoldFactor> factors;
  if (manifold.AmbientSize() != size || !ReadManifold(manifold, &factors)) {
    return kUnknown;
  }
  if (std::all_of(factors.begin(), factors.end(), [](const auto& factor) {
        return factor.kind == kernels::ManifoldKind::kEuclidean;
      })) {
    return 0;
  }
  std::vector<std::pair<kernels::ManifoldKind, int32_t>> key;
  for (const kernels::ManifoldFactor& factor : factors) {
    key.emplace_back(factor.kind, factor.size);
  }
  const auto known = number_of_factors_.find(key);
  if (known != number_of_factors_.end()) {
    return known->second;
  }
  if (factor_begin_.size() >= std::numeric_limits<int16_t>::max()) {
    return kUnknown;
  }
  const auto number = static_cast<int16_t>(factor_begin_.size() - 1);
  number_of_factors_.emplace(std::move(key), number);
  factors_.insert(factors_.end(), factors.begin(), factors.end());
  factor_begin_.push_back(static_cast<int32_t>(factors_.size()));
  return number;
}

}  // namespace ceres_ext
