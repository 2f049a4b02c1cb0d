// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "cuda_kernels/machine/cuda_library_handles.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "cuda_kernels/machine/cuda_launch.cuh"
#include "cuda_kernels/machine/cuda_libraries.cuh"

namespace ceres_ext::kernels {
namespace {

struct Waiting {
  std::mutex mutex;
  std::vector<std::unique_ptr<LibraryHandles>> handles;
};

// Never destroyed: CUDA may be gone when the process ends.
Waiting& waiting() {
  static auto* const all = new Waiting;
  return *all;
}

// Resources of a lost device must not be destroyed. Errors are the echo of
// earlier ones.
void Destroy(LibraryHandles* handles) {
  if (!handles->beacon.MakeCurrent() || !handles->beacon.IsThere()) {
    return;
  }
#if CERES_EXT_WITH_CUDSS
  const CudssFunctions* cudss = nullptr;
  if (handles->cudss != nullptr && LoadCudss(&cudss).ok()) {
    static_cast<void>(cudss->cudssDestroy(handles->cudss));
  }
#endif
#if CERES_EXT_WITH_CUSOLVER
  const CusolverFunctions* cusolver = nullptr;
  const CublasFunctions* cublas = nullptr;
  if (handles->cublas != nullptr && LoadCublas(&cublas).ok()) {
    static_cast<void>(cublas->cublasDestroy_v2(handles->cublas));
  }
  if (handles->cusolver != nullptr && LoadCusolver(&cusolver).ok()) {
    if (handles->params != nullptr) {
      static_cast<void>(cusolver->cusolverDnDestroyParams(handles->params));
    }
    static_cast<void>(cusolver->cusolverDnDestroy(handles->cusolver));
  }
#endif
  static_cast<void>(cudaGetLastError());
  handles->beacon.Remove();
}

}  // namespace

Status BorrowLibraryHandles(const CudaContext& context,
                            std::unique_ptr<LibraryHandles>* handles) {
  Waiting& all = waiting();
  {
    const std::lock_guard<std::mutex> lock(all.mutex);
    // A reset of the device has taken these away.
    all.handles.erase(std::remove_if(all.handles.begin(),
                                     all.handles.end(),
                                     [&](const auto& one) {
                                       return one->device == context.device() &&
                                              !one->beacon.IsThere();
                                     }),
                      all.handles.end());
    const auto found = std::find_if(
        all.handles.rbegin(), all.handles.rend(), [&](const auto& one) {
          return one->device == context.device();
        });
    if (found != all.handles.rend()) {
      *handles = std::move(*found);
      all.handles.erase(std::next(found).base());
      return {};
    }
  }
  std::unique_ptr<LibraryHandles> made(new (std::nothrow) LibraryHandles);
  if (made == nullptr) {
    return {StatusCode::kOutOfMemory, "Out of host memory."};
  }
  made->device = context.device();
  CERES_EXT_RETURN_IF_ERROR(made->beacon.Place());
  *handles = std::move(made);
  return {};
}

void ReturnLibraryHandles(std::unique_ptr<LibraryHandles> handles) {
  if (handles == nullptr) {
    return;
  }
  const KeepCurrentContext keep;
  if (!handles->beacon.MakeCurrent() || !handles->beacon.IsThere()) {
    return;
  }
  Waiting& all = waiting();
  try {
    const std::lock_guard<std::mutex> lock(all.mutex);
    all.handles.push_back(std::move(handles));
  } catch (const std::bad_alloc&) {
    Destroy(handles.get());
  }
}

void ReleaseLibraryHandles() {
  std::vector<std::unique_ptr<LibraryHandles>> handles;
  {
    Waiting& all = waiting();
    const std::lock_guard<std::mutex> lock(all.mutex);
    handles.swap(all.handles);
  }
  if (handles.empty()) {
    return;
  }
  const KeepCurrentContext keep;
  for (const auto& one : handles) {
    Destroy(one.get());
  }
}

}  // namespace ceres_ext::kernels
