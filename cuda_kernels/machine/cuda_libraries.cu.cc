// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "cuda_kernels/machine/cuda_libraries.cuh"

#include <dlfcn.h>

#include <string>
#include <vector>

#include "cuda_kernels/machine/cuda_libraries.h"

namespace ceres_ext::kernels {
namespace {

// A table of functions, or why there is none.
template <typename Functions>
struct Loaded {
  Status status;
  Functions functions;
};

// The libraries of the compiler's toolkit, and a package of cuDSS.
#ifndef CERES_EXT_CUDA_LIBRARY_FOLDER
#define CERES_EXT_CUDA_LIBRARY_FOLDER ""
#endif
#ifndef CERES_EXT_CUDSS_LIBRARY_FOLDER
#define CERES_EXT_CUDSS_LIBRARY_FOLDER ""
#endif

#define CERES_EXT_NAME(name) #name,
#define CERES_EXT_SET(name) \
  loaded->functions.name =  \
      reinterpret_cast<decltype(&::name)>(addresses[next++]);

// Opens a library whose functions are those of a table, and whose version the
// function `property` or `get_version` says; the other one is "".
#define CERES_EXT_OPEN(                                                      \
    FOR_EACH, Functions, name, version, file, folder, property, get_version) \
  Loaded<Functions>* Open##Functions() {                                     \
    std::vector<void*> addresses;                                            \
    std::string library;                                                     \
    auto* const loaded = new Loaded<Functions>{                              \
        OpenSharedLibrary({name,                                             \
                           version,                                          \
                           property,                                         \
                           {FOR_EACH(CERES_EXT_NAME)},                       \
                           get_version},                                     \
                          CudaLibraryFiles(#file, version, folder),          \
                          &addresses,                                        \
                          &library),                                         \
        {}};                                                                 \
    loaded->functions.library = library;                                     \
    if (loaded->status.ok()) {                                               \
      size_t next = 0;                                                       \
      FOR_EACH(CERES_EXT_SET)                                                \
    }                                                                        \
    return loaded;                                                           \
  }

#if CERES_EXT_WITH_CUSOLVER
CERES_EXT_OPEN(CERES_EXT_FOR_EACH_CUSOLVER_FUNCTION,
               CusolverFunctions,
               "cuSOLVER",
               CUSOLVER_VER_MAJOR,
               cusolver,
               CERES_EXT_CUDA_LIBRARY_FOLDER,
               "cusolverGetProperty",
               "")
CERES_EXT_OPEN(CERES_EXT_FOR_EACH_CUBLAS_FUNCTION,
               CublasFunctions,
               "cuBLAS",
               CUBLAS_VER_MAJOR,
               cublas,
               CERES_EXT_CUDA_LIBRARY_FOLDER,
               "cublasGetProperty",
               "")
#endif

#if CERES_EXT_WITH_CUDSS
CERES_EXT_OPEN(CERES_EXT_FOR_EACH_CUDSS_FUNCTION,
               CudssFunctions,
               "cuDSS",
               CUDSS_VERSION_MAJOR,
               cudss,
               CERES_EXT_CUDSS_LIBRARY_FOLDER,
               "cudssGetProperty",
               "")

// cuDSS needs two libraries of the toolkit, which the dynamic linker may not
// find by itself. It reports what is missing.
void OpenWhatCudssNeeds() {
#if CERES_EXT_WITH_CUSOLVER
  const CublasFunctions* cublas = nullptr;
  static_cast<void>(LoadCublas(&cublas));
#endif
#ifdef CUDART_VERSION
  for (const std::string& file : CudaLibraryFiles(
           "nvrtc", CUDART_VERSION / 1000, CERES_EXT_CUDA_LIBRARY_FOLDER)) {
    if (dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL) != nullptr) {
      break;
    }
  }
#endif
}
#endif

#if CERES_EXT_WITH_NCCL
CERES_EXT_OPEN(CERES_EXT_FOR_EACH_NCCL_FUNCTION,
               NcclFunctions,
               "NCCL",
               NCCL_MAJOR,
               nccl,
               CERES_EXT_CUDA_LIBRARY_FOLDER,
               "",
               "ncclGetVersion")
#endif

#undef CERES_EXT_OPEN
#undef CERES_EXT_SET
#undef CERES_EXT_NAME

template <typename Functions>
Status Get(const Loaded<Functions>& loaded, const Functions** functions) {
  *functions = loaded.status.ok() ? &loaded.functions : nullptr;
  return loaded.status;
}

}  // namespace

// Never destroyed, since solves may run while the process exits.
#if CERES_EXT_WITH_CUSOLVER
Status LoadCusolver(const CusolverFunctions** functions) {
  static const Loaded<CusolverFunctions>* const loaded =
      OpenCusolverFunctions();
  return Get(*loaded, functions);
}

Status LoadCublas(const CublasFunctions** functions) {
  static const Loaded<CublasFunctions>* const loaded = OpenCublasFunctions();
  return Get(*loaded, functions);
}
#endif

#if CERES_EXT_WITH_CUDSS
Status LoadCudss(const CudssFunctions** functions) {
  static const Loaded<CudssFunctions>* const loaded = [] {
    OpenWhatCudssNeeds();
    return OpenCudssFunctions();
  }();
  return Get(*loaded, functions);
}
#endif

#if CERES_EXT_WITH_NCCL
Status LoadNccl(const NcclFunctions** functions) {
  static const Loaded<NcclFunctions>* const loaded = OpenNcclFunctions();
  return Get(*loaded, functions);
}
#endif

}  // namespace ceres_ext::kernels
