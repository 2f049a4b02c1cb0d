// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The folders of the CUDA libraries that exact steps on a device need:
// cuSOLVER, cuBLAS, and cuDSS with NVRTC.

#ifndef CERES_EXT_CUDA_LIBRARIES_H_
#define CERES_EXT_CUDA_LIBRARIES_H_

#include <string>
#include <vector>

namespace ceres_ext {

// Looks for the libraries in these folders, the first before the others, if the
// process has not loaded them already, and before the dynamic linker's folders
// and CUDA_HOME. A folder that is missing or lacks a library is skipped. Call
// it before the first solve: a library that was found stays in use. Without
// CUDA it has no effect. Thread safe.
void SetCudaLibraryFolders(const std::vector<std::string>& folders);

}  // namespace ceres_ext

#endif  // CERES_EXT_CUDA_LIBRARIES_H_
