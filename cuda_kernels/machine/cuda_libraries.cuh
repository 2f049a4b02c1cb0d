// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The functions of cuSOLVER, cuBLAS, cuDSS and NCCL, which are loaded at the
// first call for them (cuda_libraries.h):
//
//   const CusolverFunctions* cusolver = nullptr;
//   Status status = LoadCusolver(&cusolver);
//   if (status.ok()) cusolver->cusolverDnCreate(&handle);
//
// A library is looked for by the name that has the major version of its header
// here, then in the folder of the toolkit, or for cuDSS of the package, that
// this was compiled with. The result of the first call, even an error, holds
// for the process. Thread safe.
//
// Without headers of cuSOLVER and cuBLAS, CERES_EXT_WITH_CUSOLVER is 0 and
// nothing of them is declared here; the same holds for NCCL and
// CERES_EXT_WITH_NCCL, and for cuDSS and CERES_EXT_WITH_CUDSS, or if
// CERES_EXT_WITHOUT_CUDSS is defined. The functions of cuDSS before 1.0 have
// other parameters.
#ifndef CERES_EXT_CUDA_KERNELS_MACHINE_CUDA_LIBRARIES_CUH_
#define CERES_EXT_CUDA_KERNELS_MACHINE_CUDA_LIBRARIES_CUH_

#include <string>

#include "cuda_kernels/base/status.h"

#if __has_include(<cublas_v2.h>) && __has_include(<cusolverDn.h>)
#include <cublas_v2.h>
#include <cusolverDn.h>
#define CERES_EXT_WITH_CUSOLVER 1
#else
#define CERES_EXT_WITH_CUSOLVER 0
#endif

#if !defined(CERES_EXT_WITHOUT_CUDSS) && __has_include(<cudss.h>)
#include <cudss.h>
#endif
#if defined(CUDSS_VERSION_MAJOR) && CUDSS_VERSION_MAJOR >= 1
#define CERES_EXT_WITH_CUDSS 1
#else
#define CERES_EXT_WITH_CUDSS 0
#endif

#if __has_include(<nccl.h>)
#include <nccl.h>
#define CERES_EXT_WITH_NCCL 1
#else
#define CERES_EXT_WITH_NCCL 0
#endif

#define CERES_EXT_MEMBER(name) decltype(&::name) name = nullptr;

#if CERES_EXT_WITH_CUSOLVER
namespace ceres_ext::kernels {

#define CERES_EXT_FOR_EACH_CUSOLVER_FUNCTION(F) \
  F(cusolverDnCreate)                           \
  F(cusolverDnCreateParams)                     \
  F(cusolverDnDestroy)                          \
  F(cusolverDnDestroyParams)                    \
  F(cusolverDnSetStream)                        \
  F(cusolverDnXpotrf)                           \
  F(cusolverDnXpotrf_bufferSize)                \
  F(cusolverDnXpotrs)

// By the names that the library has, most of which are macros without "_v2".
#define CERES_EXT_FOR_EACH_CUBLAS_FUNCTION(F) \
  F(cublasCreate_v2)                          \
  F(cublasDestroy_v2)                         \
  F(cublasDgemmStridedBatched_64)             \
  F(cublasDsymv_v2_64)                        \
  F(cublasDtrmm_v2_64)                        \
  F(cublasSetAtomicsMode)                     \
  F(cublasSetStream_v2)

struct CusolverFunctions {
  std::string library;  // name and version, in messages
  CERES_EXT_FOR_EACH_CUSOLVER_FUNCTION(CERES_EXT_MEMBER)
};
struct CublasFunctions {
  std::string library;
  CERES_EXT_FOR_EACH_CUBLAS_FUNCTION(CERES_EXT_MEMBER)
};

// kUnsupported: the library is missing or is not as expected. On success the
// table is there as long as the process runs.
Status LoadCusolver(const CusolverFunctions** functions);
Status LoadCublas(const CublasFunctions** functions);

}  // namespace ceres_ext::kernels
#endif

#if CERES_EXT_WITH_CUDSS
namespace ceres_ext::kernels {

#define CERES_EXT_FOR_EACH_CUDSS_FUNCTION(F) \
  F(cudssConfigCreate)                       \
  F(cudssConfigDestroy)                      \
  F(cudssConfigSet)                          \
  F(cudssCreate)                             \
  F(cudssDataCreate)                         \
  F(cudssDataDestroy)                        \
  F(cudssDataGet)                            \
  F(cudssDataSet)                            \
  F(cudssDestroy)                            \
  F(cudssExecute)                            \
  F(cudssMatrixCreateCsr)                    \
  F(cudssMatrixCreateDn)                     \
  F(cudssMatrixDestroy)                      \
  F(cudssMatrixSetValues)                    \
  F(cudssSetDeviceMemHandler)                \
  F(cudssSetJitCacheDir)                     \
  F(cudssSetStream)

struct CudssFunctions {
  std::string library;
  CERES_EXT_FOR_EACH_CUDSS_FUNCTION(CERES_EXT_MEMBER)
};
Status LoadCudss(const CudssFunctions** functions);

}  // namespace ceres_ext::kernels
#endif

#if CERES_EXT_WITH_NCCL
namespace ceres_ext::kernels {

#define CERES_EXT_FOR_EACH_NCCL_FUNCTION(F) \
  F(ncclAllGather)                          \
  F(ncclCommAbort)                          \
  F(ncclCommGetAsyncError)                  \
  F(ncclCommInitRankConfig)                 \
  F(ncclGetErrorString)                     \
  F(ncclGetUniqueId)                        \
  F(ncclGroupEnd)                           \
  F(ncclGroupStart)                         \
  F(ncclRecv)                               \
  F(ncclSend)

struct NcclFunctions {
  std::string library;
  CERES_EXT_FOR_EACH_NCCL_FUNCTION(CERES_EXT_MEMBER)
};
Status LoadNccl(const NcclFunctions** functions);

}  // namespace ceres_ext::kernels
#endif

#undef CERES_EXT_MEMBER

#endif  // CERES_EXT_CUDA_KERNELS_MACHINE_CUDA_LIBRARIES_CUH_
