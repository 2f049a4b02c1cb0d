// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// An exchange of values with all ranks, whose failure ends the import.

#ifndef CERES_EXT_IMPORT_GATHER_H_
#define CERES_EXT_IMPORT_GATHER_H_

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "cuda_kernels/machine/communicator.h"

namespace ceres_ext {

// The n values of each rank, in the order of the ranks; n is the same on all.
// Throws std::runtime_error if the ranks can't talk.
template <typename T>
std::vector<T> Gather(const T* mine,
                      size_t n,
                      kernels::Communicator* communicator) {
  std::vector<T> all(n * static_cast<size_t>(communicator->size()));
  std::string error;
  if (!communicator->AllGather(
          mine, static_cast<int64_t>(n * sizeof(T)), all.data(), &error)) {
    throw std::runtime_error(error);
  }
  return all;
}

}  // namespace ceres_ext

#endif  // CERES_EXT_IMPORT_GATHER_H_
