// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "cuda_kernels/machine/cuda_libraries.cuh"

#include <string>
#include <vector>

#include "cuda_kernels/machine/cuda_libraries.h"

#if CERES_EXT_WITH_CUSOLVER
namespace ceres_ext::kernels {
namespace {

// A table of functions, or why there is none.
template <typename Functions>
struct Loaded {
  Status status;
  Functions functions;
};

std::vector<std::string> FilesOf(const std::string& name, int major_version) {
  const std::string file =
      "lib" + name + ".so." + std::to_string(major_version);
  std::vector<std::string> files = {file};
#ifdef CERES_EXT_CUDA_LIBRARY_FOLDER
  files.push_back(CERES_EXT_CUDA_LIBRARY_FOLDER "/" + file);
#endif
  return files;
}

#define CERES_EXT_NAME(name) #name,
#define CERES_EXT_SET(name) \
  loaded->functions.name =  \
      reinterpret_cast<decltype(&::name)>(addresses[next++]);

Loaded<CusolverFunctions>* OpenCusolver() {
  auto* const loaded = new Loaded<CusolverFunctions>;
  std::vector<void*> addresses;
  loaded->status = OpenSharedLibrary(
      {"cuSOLVER",
       CUSOLVER_VER_MAJOR,
       "cusolverGetProperty",
       {CERES_EXT_FOR_EACH_CUSOLVER_FUNCTION(CERES_EXT_NAME)}},
      FilesOf("cusolver", CUSOLVER_VER_MAJOR),
      &addresses);
  if (loaded->status.ok()) {
    size_t next = 0;
    CERES_EXT_FOR_EACH_CUSOLVER_FUNCTION(CERES_EXT_SET)
  }
  return loaded;
}

Loaded<CublasFunctions>* OpenCublas() {
  auto* const loaded = new Loaded<CublasFunctions>;
  std::vector<void*> addresses;
  loaded->status =
      OpenSharedLibrary({"cuBLAS",
                         CUBLAS_VER_MAJOR,
                         "cublasGetProperty",
                         {CERES_EXT_FOR_EACH_CUBLAS_FUNCTION(CERES_EXT_NAME)}},
                        FilesOf("cublas", CUBLAS_VER_MAJOR),
                        &addresses);
  if (loaded->status.ok()) {
    size_t next = 0;
    CERES_EXT_FOR_EACH_CUBLAS_FUNCTION(CERES_EXT_SET)
  }
  return loaded;
}

#undef CERES_EXT_SET
#undef CERES_EXT_NAME

template <typename Functions>
Status Get(const Loaded<Functions>& loaded, const Functions** functions) {
  *functions = loaded.status.ok() ? &loaded.functions : nullptr;
  return loaded.status;
}

}  // namespace

// Never destroyed, since solves may run while the process exits.
Status LoadCusolver(const CusolverFunctions** functions) {
  static const Loaded<CusolverFunctions>* const loaded = OpenCusolver();
  return Get(*loaded, functions);
}

Status LoadCublas(const CublasFunctions** functions) {
  static const Loaded<CublasFunctions>* const loaded = OpenCublas();
  return Get(*loaded, functions);
}

}  // namespace ceres_ext::kernels
#endif
