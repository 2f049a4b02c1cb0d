// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The machines that the glue runs on: the Backends of the solver with what the
// glue needs beside them — the index, evaluation, products with the Jacobian,
// the vectors of the loop, and the way to host memory and back.

#ifndef CERES_EXT_GLUE_BACKENDS_H_
#define CERES_EXT_GLUE_BACKENDS_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "ceres_ext/solver/host_backend.h"
#include "cuda_kernels/ops/evaluate.h"
#include "cuda_kernels/machine/host_context.h"
#include "cuda_kernels/ops/jacobian_products.h"
#include "cuda_kernels/ops/loop.h"
#include "cuda_kernels/structure/observation_index.h"
#include "cuda_kernels/base/status.h"

#ifdef CERES_EXT_WITH_CUDA
#include "ceres_ext/solver/cuda_backend.h"
#include "cuda_kernels/structure/cuda_observation_index.h"
#endif

namespace ceres_ext {

class HostMachine : public solver::HostBackend {
 public:
  using SolverBackend = solver::HostBackend;

  explicit HostMachine(int num_threads) : context_(num_threads) {}

  // Builds the index from unsorted pairs. *point_order stays empty: points keep
  // their numbers.
  kernels::Status SetupIndex(int32_t num_cameras,
                             int32_t num_points,
                             int64_t num_observations,
                             const int32_t* camera_ids,
                             const int32_t* point_ids,
                             std::vector<int32_t>* point_order);
  // Of the index and of scratch.
  int64_t bytes() { return index_storage_.bytes() + workspace()->bytes(); }
  kernels::HostContext* host_context() { return &context_; }

  using solver::HostBackend::Run;
  template <typename T, int C>
  kernels::Status Run(const kernels::PrepareCamerasParams<T, C>& params) {
    return kernels::host::PrepareCameras(params, &context_);
  }
  kernels::Status Run(const kernels::EvaluateCostParams& params) {
    kernels::host::EvaluateCost(params, workspace());
    return {};
  }
  template <typename T, int C>
  kernels::Status Run(
      const kernels::EvaluateJacobianParams<T, C, kLayout>& params) {
    kernels::host::EvaluateJacobian(params, workspace());
    return {};
  }
  template <typename Source>
  kernels::Status Run(const kernels::RightMultiplyParams<Source>& params) {
    kernels::host::RightMultiply(params, workspace());
    return {};
  }
  template <typename Source>
  kernels::Status Run(const kernels::LeftMultiplyParams<Source>& params) {
    kernels::host::LeftMultiply(params, workspace());
    return {};
  }
  template <typename Source>
  kernels::Status Run(const kernels::SquaredColumnNormsParams<Source>& params) {
    kernels::host::SquaredColumnNorms(params, workspace());
    return {};
  }
  template <typename T, int C>
  kernels::Status Run(
      const kernels::ScaleColumnsParams<T, C, kLayout>& params) {
    kernels::host::ScaleColumns(params, workspace());
    return {};
  }
#define CERES_EXT_RUN(Operation)                                  \
  kernels::Status Run(const kernels::Operation##Params& params) { \
    kernels::host::Operation(params, &context_);             \
    return {};                                                    \
  }
  CERES_EXT_RUN(GatherTangent)
  CERES_EXT_RUN(ScatterTangent)
  CERES_EXT_RUN(GatherState)
  CERES_EXT_RUN(SetPadding)
  CERES_EXT_RUN(GatherPairs)
  CERES_EXT_RUN(Copy)
  CERES_EXT_RUN(SetConstant)
  CERES_EXT_RUN(Negate)
  CERES_EXT_RUN(AddVectors)
  CERES_EXT_RUN(Multiply)
  CERES_EXT_RUN(JacobiScaling)
  CERES_EXT_RUN(Clamp)
  CERES_EXT_RUN(LevenbergMarquardtDiagonal)
  CERES_EXT_RUN(Invalidate)
  CERES_EXT_RUN(NegateIfValid)
  CERES_EXT_RUN(ProjectedGradientNorms)
  CERES_EXT_RUN(StepNorms)
  CERES_EXT_RUN(ModelCostChange)
#undef CERES_EXT_RUN
  template <typename T>
  kernels::Status Run(const kernels::CastParams<T>& params) {
    kernels::host::Cast(params, &context_);
    return {};
  }

  template <typename T>
  kernels::Status Upload(int64_t n, const T* host, T* to) {
    std::copy_n(host, n, to);
    return {};
  }
  template <typename T>
  kernels::Status Download(int64_t n, const T* from, T* host) {
    std::copy_n(from, n, host);
    return {};
  }
  template <typename T>
  kernels::Status SetZero(int64_t n, T* x) {
    if (n > 0) {
      std::memset(static_cast<void*>(x), 0, n * sizeof(T));
    }
    return {};
  }

 private:
  kernels::HostContext context_;
  kernels::ObservationIndex index_storage_;
};

#ifdef CERES_EXT_WITH_CUDA

// A base, so that it is destroyed after the buffers of the backend, which it
// frees.
struct CudaContextOwner {
  std::unique_ptr<kernels::CudaContext> owned_context;
};

class CudaMachine : private CudaContextOwner, public solver::CudaBackend {
 public:
  using SolverBackend = solver::CudaBackend;

  // num_threads: of the host, for what is put in order there.
  CudaMachine(const kernels::CudaWorkspace::Options& workspace_options,
              int num_threads,
              std::unique_ptr<kernels::CudaContext> context)
      : CudaContextOwner{std::move(context)},
        host_context_(num_threads),
        workspace_options_(workspace_options) {}

  // Points are numbered anew, so that neighbours are seen by the same cameras:
  // point i of the index is point (*point_order)[i] of the caller.
  kernels::Status SetupIndex(int32_t num_cameras,
                             int32_t num_points,
                             int64_t num_observations,
                             const int32_t* camera_ids,
                             const int32_t* point_ids,
                             std::vector<int32_t>* point_order);
  kernels::HostContext* host_context() { return &host_context_; }
  // Bytes copied between host and device so far.
  int64_t copied_bytes() const { return owned_context->copied_bytes(); }
  // All that was taken on the device.
  int64_t bytes() { return owned_context->used_bytes(); }

  using solver::CudaBackend::Run;
  template <typename T, int C>
  kernels::Status Run(const kernels::PrepareCamerasParams<T, C>& params) {
    return kernels::cuda::PrepareCameras(params, context()->stream());
  }
  kernels::Status Run(const kernels::EvaluateCostParams& params) {
    return kernels::cuda::EvaluateCost(
        params, workspace(), context()->stream());
  }
  template <typename T, int C>
  kernels::Status Run(
      const kernels::EvaluateJacobianParams<T, C, kLayout>& params) {
    return kernels::cuda::EvaluateJacobian(
        params, workspace(), context()->stream());
  }
  template <typename Source>
  kernels::Status Run(const kernels::RightMultiplyParams<Source>& params) {
    return kernels::cuda::RightMultiply(
        params, workspace(), context()->stream());
  }
  template <typename Source>
  kernels::Status Run(const kernels::LeftMultiplyParams<Source>& params) {
    return kernels::cuda::LeftMultiply(
        params, workspace(), context()->stream());
  }
  template <typename Source>
  kernels::Status Run(const kernels::SquaredColumnNormsParams<Source>& params) {
    return kernels::cuda::SquaredColumnNorms(
        params, workspace(), context()->stream());
  }
  template <typename T, int C>
  kernels::Status Run(
      const kernels::ScaleColumnsParams<T, C, kLayout>& params) {
    return kernels::cuda::ScaleColumns(params, context()->stream());
  }
#define CERES_EXT_RUN(Operation)                                  \
  kernels::Status Run(const kernels::Operation##Params& params) { \
    return kernels::cuda::Operation(params, context()->stream()); \
  }
#define CERES_EXT_RUN_WITH_SUM(Operation)                                      \
  kernels::Status Run(const kernels::Operation##Params& params) {              \
    return kernels::cuda::Operation(params, workspace(), context()->stream()); \
  }
  CERES_EXT_RUN(GatherTangent)
  CERES_EXT_RUN(ScatterTangent)
  CERES_EXT_RUN(GatherState)
  CERES_EXT_RUN(SetPadding)
  CERES_EXT_RUN(GatherPairs)
  CERES_EXT_RUN(CameraTangents)
  CERES_EXT_RUN(Plus)
  CERES_EXT_RUN(Copy)
  CERES_EXT_RUN(SetConstant)
  CERES_EXT_RUN(Negate)
  CERES_EXT_RUN(AddVectors)
  CERES_EXT_RUN(Multiply)
  CERES_EXT_RUN(JacobiScaling)
  CERES_EXT_RUN(Clamp)
  CERES_EXT_RUN(LevenbergMarquardtDiagonal)
  CERES_EXT_RUN(Invalidate)
  CERES_EXT_RUN_WITH_SUM(NegateIfValid)
  CERES_EXT_RUN_WITH_SUM(ProjectedGradientNorms)
  CERES_EXT_RUN_WITH_SUM(StepNorms)
  CERES_EXT_RUN_WITH_SUM(ModelCostChange)
#undef CERES_EXT_RUN
#undef CERES_EXT_RUN_WITH_SUM
  template <typename T>
  kernels::Status Run(const kernels::CastParams<T>& params) {
    return kernels::cuda::Cast(params, context()->stream());
  }
  template <typename T, int C>
  kernels::Status Run(
      const kernels::CorrectForLossParams<T, C, kLayout>& params) {
    return kernels::cuda::CorrectForLoss(
        params, workspace(), context()->stream());
  }

  template <typename T>
  kernels::Status Upload(int64_t n, const T* host, T* to) {
    return context()->CopyToDevice(
        to, host, n * static_cast<int64_t>(sizeof(T)));
  }
  template <typename T>
  kernels::Status Download(int64_t n, const T* from, T* host) {
    return context()->CopyToHost(
        host, from, n * static_cast<int64_t>(sizeof(T)));
  }
  template <typename T>
  kernels::Status SetZero(int64_t n, T* x) {
    return context()->SetBytes(x, 0, n * static_cast<int64_t>(sizeof(T)));
  }

 private:
  kernels::HostContext host_context_;
  kernels::CudaWorkspace::Options workspace_options_;
  kernels::CudaIndexScratch scratch_;
  kernels::CudaObservationIndex index_storage_;
};

#endif  // CERES_EXT_WITH_CUDA

// Calls X(machine, type of stored blocks, columns of a camera) for every
// combination that is compiled.
#define CERES_EXT_FOR_EACH_HOST_MACHINE(X) \
  X(HostMachine, double, 9)                \
  X(HostMachine, double, 10)
#ifdef CERES_EXT_WITH_CUDA
#define CERES_EXT_FOR_EACH_MACHINE(X) \
  CERES_EXT_FOR_EACH_HOST_MACHINE(X)  \
  X(CudaMachine, double, 9)           \
  X(CudaMachine, double, 10)          \
  X(CudaMachine, float, 9)            \
  X(CudaMachine, float, 10)
#else
#define CERES_EXT_FOR_EACH_MACHINE(X) CERES_EXT_FOR_EACH_HOST_MACHINE(X)
#endif

}  // namespace ceres_ext

#endif  // CERES_EXT_GLUE_BACKENDS_H_
