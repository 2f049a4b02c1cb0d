// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Handles of cuSOLVER, cuBLAS and cuDSS, which wait in the process for the next
// user of the device:
//
//   handles = BorrowLibraryHandles(context);
//   ReturnLibraryHandles(std::move(handles));
//
// cusolverDnDestroy, cublasDestroy and cudssDestroy wait for the whole device,
// which breaks stream captures of other threads, and making the handles takes
// milliseconds. The handles of cuSOLVER and cuBLAS keep some tens of megabytes.
//
// Thread safe. Host-includable: needs no CUDA toolkit.
#ifndef CERES_EXT_CUDA_KERNELS_MACHINE_CUDA_LIBRARY_HANDLES_H_
#define CERES_EXT_CUDA_KERNELS_MACHINE_CUDA_LIBRARY_HANDLES_H_

#include <memory>

#include "cuda_kernels/machine/cuda_context.h"

typedef struct cublasContext* cublasHandle_t;
typedef struct cusolverDnContext* cusolverDnHandle_t;
typedef struct cusolverDnParams* cusolverDnParams_t;
typedef struct cudssContext* cudssHandle_t;

namespace ceres_ext::kernels {

// Those that are null are made by their user. Streams are those of earlier
// users.
struct LibraryHandles {
  int device = 0;
  CudaBeacon beacon;
  cusolverDnHandle_t cusolver = nullptr;
  cusolverDnParams_t params = nullptr;
  cublasHandle_t cublas = nullptr;
  // Its memory handler, which can be set once alone, gets the address of
  // memory_owner, the object of its user. It waits without memory of a user.
  cudssHandle_t cudss = nullptr;
  void* memory_owner = nullptr;
};

// The context's device is current. Gets the handles returned last, or new ones.
Status BorrowLibraryHandles(const CudaContext& context,
                            std::unique_ptr<LibraryHandles>* handles);

// After all work with them. Handles of a device that was reset are lost.
void ReturnLibraryHandles(std::unique_ptr<LibraryHandles> handles);

// Destroys those that wait.
void ReleaseLibraryHandles();

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_MACHINE_CUDA_LIBRARY_HANDLES_H_
