// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/cuda_libraries.h"

#include <string>
#include <vector>

#include "cuda_kernels/machine/cuda_libraries.h"

namespace ceres_ext {

void SetCudaLibraryFolders(const std::vector<std::string>& folders) {
  kernels::SetCudaLibraryFolders(folders);
}

}  // namespace ceres_ext
