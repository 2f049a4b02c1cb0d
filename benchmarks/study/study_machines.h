// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The machines that the study compares. Each is a Backend
// (ceres_ext/solver/host_backend.h) that also evaluates, damps and moves:
//
//   HostMachine               the sequential or threaded host implementation
//   CudaMachine               the device kernels of this project
//   BlockContiguousMachine    the same code with block-contiguous arrays
//   NaiveMachine<kLayout>     naive_kernels.h on the device
//   CusparseMachine           CudaMachine with (J'J + D^2) p by cuSPARSE
//
// Beyond a Backend, a machine has
//   Run(PrepareCamerasParams / EvaluateCostParams / EvaluateJacobianParams /
//       SquaredColumnNormsParams), and of the loop ClampParams /
//       LevenbergMarquardtDiagonalParams / NegateParams / AddVectorsParams /
//       CastParams<float>
//   Upload(host, n, &buffer), Download(n, data, host)
//   RecordStage(s), StageSeconds(s, t), s < kNumStages: marks of the driver
//   Synchronize()
#ifndef BENCHMARKS_STUDY_STUDY_MACHINES_H_
#define BENCHMARKS_STUDY_STUDY_MACHINES_H_

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "ceres_ext/solver/host_backend.h"
#include "cuda_kernels/ops/evaluate.h"
#include "cuda_kernels/structure/host_workspace.h"
#include "cuda_kernels/ops/loop.h"

#ifdef CERES_EXT_WITH_CUDA
#include "ceres_ext/solver/cuda_backend.h"
#include "benchmarks/study/cusparse_products.h"
#include "benchmarks/study/naive_kernels.h"
#endif

namespace ceres_ext::bal {

inline constexpr int kNumStages = 4;

class HostMachine : public solver::HostBackend {
 public:
  using solver::HostBackend::Run;

  template <typename T>
  kernels::Status Run(const kernels::PrepareCamerasParams<T, 9>& params) {
    return kernels::host::PrepareCameras(params, workspace()->context());
  }
  kernels::Status Run(const kernels::EvaluateCostParams& params) {
    kernels::host::EvaluateCost(params, workspace());
    return {};
  }
  template <typename T>
  kernels::Status Run(
      const kernels::EvaluateJacobianParams<T, 9, kLayout>& params) {
    kernels::Evaluation evaluation;
    kernels::EvaluateJacobianParams<T, 9, kLayout> with_evaluation = params;
    with_evaluation.evaluation = &evaluation;
    kernels::host::EvaluateJacobian(with_evaluation, workspace());
    return {};
  }
  template <typename Source>
  kernels::Status Run(const kernels::SquaredColumnNormsParams<Source>& params) {
    kernels::host::SquaredColumnNorms(params, workspace());
    return {};
  }
#define BAL_STUDY_RUN(Operation)                                   \
  kernels::Status Run(const kernels::Operation##Params& params) {  \
    kernels::host::Operation(params, workspace()->context()); \
    return {};                                                     \
  }
  BAL_STUDY_RUN(Clamp)
  BAL_STUDY_RUN(LevenbergMarquardtDiagonal)
  BAL_STUDY_RUN(Negate)
  BAL_STUDY_RUN(AddVectors)
#undef BAL_STUDY_RUN
  kernels::Status Run(const kernels::CastParams<float>& params) {
    kernels::host::Cast(params, workspace()->context());
    return {};
  }

  template <typename T>
  kernels::Status Upload(const T* host,
                         int64_t n,
                         kernels::HostBuffer<T>* buffer) {
    CERES_EXT_RETURN_IF_ERROR(buffer->Allocate(n));
    std::copy_n(host, n, buffer->data());
    return {};
  }
  template <typename T>
  kernels::Status Download(int64_t n, const T* data, T* host) {
    std::copy_n(data, n, host);
    return {};
  }

  kernels::Status RecordStage(int stage) {
    stages_[stage] = std::chrono::steady_clock::now();
    return {};
  }
  double StageSeconds(int first, int last) {
    return std::chrono::duration<double>(stages_[last] - stages_[first])
        .count();
  }
  kernels::Status Synchronize() { return {}; }

 private:
  std::chrono::steady_clock::time_point stages_[kNumStages];
};

#ifdef CERES_EXT_WITH_CUDA

class CudaMachine : public solver::CudaBackend {
 public:
  using solver::CudaBackend::Run;

  // As CudaBackend::Setup, with room for the stages.
  kernels::Status Setup(const kernels::ObservationIndexView& index,
                        const kernels::CudaWorkspace::Options& options,
                        kernels::CudaIndexScratch* scratch,
                        kernels::CudaContext* context) {
    CERES_EXT_RETURN_IF_ERROR(stages_.Setup(kNumStages));
    CERES_EXT_RETURN_IF_ERROR(evaluation_.Allocate(context, 1));
    return solver::CudaBackend::Setup(index, options, scratch, context);
  }

  template <typename T>
  kernels::Status Run(const kernels::PrepareCamerasParams<T, 9>& params) {
    return kernels::cuda::PrepareCameras(params, stream());
  }
  kernels::Status Run(const kernels::EvaluateCostParams& params) {
    return kernels::cuda::EvaluateCost(params, workspace(), stream());
  }
  template <typename T, kernels::BlockLayout L>
  kernels::Status Run(const kernels::EvaluateJacobianParams<T, 9, L>& params) {
    kernels::EvaluateJacobianParams<T, 9, L> with_evaluation = params;
    with_evaluation.evaluation = evaluation_.data();
    return kernels::cuda::EvaluateJacobian(
        with_evaluation, workspace(), stream());
  }
  template <typename Source>
  kernels::Status Run(const kernels::SquaredColumnNormsParams<Source>& params) {
    return kernels::cuda::SquaredColumnNorms(params, workspace(), stream());
  }
  template <typename Source>
  kernels::Status Run(const kernels::RightMultiplyParams<Source>& params) {
    return kernels::cuda::RightMultiply(params, workspace(), stream());
  }
  template <typename Source>
  kernels::Status Run(const kernels::LeftMultiplyParams<Source>& params) {
    return kernels::cuda::LeftMultiply(params, workspace(), stream());
  }
#define BAL_STUDY_RUN(Operation)                                  \
  kernels::Status Run(const kernels::Operation##Params& params) { \
    return kernels::cuda::Operation(params, stream());            \
  }
  BAL_STUDY_RUN(Clamp)
  BAL_STUDY_RUN(LevenbergMarquardtDiagonal)
  BAL_STUDY_RUN(Negate)
  BAL_STUDY_RUN(AddVectors)
#undef BAL_STUDY_RUN
  kernels::Status Run(const kernels::CastParams<float>& params) {
    return kernels::cuda::Cast(params, stream());
  }

  template <typename T>
  kernels::Status Upload(const T* host,
                         int64_t n,
                         kernels::DeviceBuffer<T>* buffer) {
    return buffer->Assign(context(), host, n);
  }
  template <typename T>
  kernels::Status Download(int64_t n, const T* data, T* host) {
    return context()->CopyToHost(
        host, data, n * static_cast<int64_t>(sizeof(T)));
  }

  kernels::Status RecordStage(int stage) {
    return stages_.Record(stage, stream());
  }
  // After a Synchronize or Read that follows the stages.
  double StageSeconds(int first, int last) {
    return stages_.SecondsBetween(first, last);
  }
  kernels::Status Synchronize() { return context()->Synchronize(); }

 protected:
  cudaStream_t stream() const { return context()->stream(); }

 private:
  kernels::CudaEvents stages_;
  kernels::DeviceBuffer<kernels::Evaluation> evaluation_;
};

// For StoredJacobian<double, 9, kBlockContiguous>, whose instances are in
// block_contiguous_kernels.cu.cc.
class BlockContiguousMachine : public CudaMachine {
 public:
  static constexpr kernels::BlockLayout kLayout =
      kernels::BlockLayout::kBlockContiguous;
  using Source = kernels::StoredJacobian<double, 9, kLayout>;
};

// Vector steps, cameras and cost are those of CudaMachine.
template <kernels::BlockLayout kLayoutIn>
class NaiveMachine : public CudaMachine {
 public:
  static constexpr kernels::BlockLayout kLayout = kLayoutIn;
  using Source = naive::Source<kLayout>;
  using CudaMachine::Run;

  kernels::Status Setup(const kernels::ObservationIndexView& index,
                        const kernels::CudaWorkspace::Options& options,
                        kernels::CudaIndexScratch* scratch,
                        kernels::CudaContext* context) {
    CERES_EXT_RETURN_IF_ERROR(
        CudaMachine::Setup(index, options, scratch, context));
    const int64_t num_points = index.num_points;
    CERES_EXT_RETURN_IF_ERROR(v_.Allocate(context, 6 * num_points));
    CERES_EXT_RETURN_IF_ERROR(gradient_.Allocate(context, 3 * num_points));
    return vector_.Allocate(context, 3 * num_points);
  }

  kernels::Status Run(
      const kernels::EvaluateJacobianParams<double, 9, kLayoutIn>& params) {
    return naive::EvaluateJacobian(params, stream());
  }
  kernels::Status Run(const kernels::SquaredColumnNormsParams<Source>& params) {
    return naive::SquaredColumnNorms(params, stream());
  }
  kernels::Status Run(
      const kernels::NormalBlocksParams<Source, kLayoutIn>& params) {
    return naive::NormalBlocks(params, scratch(), stream());
  }
  kernels::Status Run(
      const kernels::SchurProductImplicitWParams<Source, kLayoutIn>& params) {
    return naive::SchurProductImplicitW(params, scratch(), stream());
  }
  kernels::Status Run(
      const kernels::SchurProductExplicitWParams<double, 9, kLayoutIn>&
          params) {
    return naive::SchurProductExplicitW(params, scratch(), stream());
  }
  kernels::Status Run(
      const kernels::BackSubstituteImplicitWParams<Source, kLayoutIn>& params) {
    return naive::BackSubstituteImplicitW(params, scratch(), stream());
  }
  kernels::Status Run(
      const kernels::BackSubstituteExplicitWParams<double, 9, kLayoutIn>&
          params) {
    return naive::BackSubstituteExplicitW(params, scratch(), stream());
  }
  kernels::Status Run(
      const kernels::NormalProductImplicitWParams<Source>& params) {
    return naive::NormalProductImplicitW(params, stream());
  }
  kernels::Status Run(
      const kernels::NormalProductExplicitWParams<double, 9, kLayoutIn>&
          params) {
    return naive::NormalProductExplicitW(params, stream());
  }
  kernels::Status Run(
      const kernels::InvertBlockDiagonalParams<9, kLayoutIn>& params) {
    return naive::InvertBlockDiagonal(params, stream());
  }
  kernels::Status Run(
      const kernels::InvertBlockDiagonalParams<3, kLayoutIn>& params) {
    return naive::InvertBlockDiagonal(params, stream());
  }
  kernels::Status Run(
      const kernels::ApplyBlockDiagonalParams<9, kLayoutIn>& params) {
    return naive::ApplyBlockDiagonal(params, stream());
  }
  kernels::Status Run(
      const kernels::ApplyBlockDiagonalParams<3, kLayoutIn>& params) {
    return naive::ApplyBlockDiagonal(params, stream());
  }

 private:
  naive::Scratch scratch() {
    return {v_.data(), gradient_.data(), vector_.data()};
  }

  kernels::DeviceBuffer<double> v_;
  kernels::DeviceBuffer<double> gradient_;
  kernels::DeviceBuffer<double> vector_;
};

// Without Schur complement only: implicit W for the CSR forms, explicit for
// BSR.
class CusparseMachine : public CudaMachine {
 public:
  using Source = CusparseProducts::Source;
  using CudaMachine::Run;

  kernels::Status SetupProducts(CusparseForm form) {
    form_ = form;
    return products_.Setup(index(), form, context());
  }
  int64_t matrix_bytes() const { return products_.bytes(); }

  kernels::Status Run(
      const kernels::EvaluateJacobianParams<double, 9, kLayout>& params) {
    CERES_EXT_RETURN_IF_ERROR(CudaMachine::Run(params));
    if (form_ == CusparseForm::kBsr) {
      return {};
    }
    Source source;
    source.camera_blocks = params.camera_blocks;
    source.point_blocks = params.point_blocks;
    return products_.SetJacobian(source);
  }
  kernels::Status Run(
      const kernels::NormalBlocksParams<Source, kLayout>& params) {
    CERES_EXT_RETURN_IF_ERROR(CudaMachine::Run(params));
    return form_ == CusparseForm::kBsr ? products_.SetBlocks(params)
                                       : kernels::Status();
  }
  kernels::Status Run(
      const kernels::NormalProductImplicitWParams<Source>& params) {
    return products_.Multiply(params);
  }
  kernels::Status Run(
      const kernels::NormalProductExplicitWParams<double, 9, kLayout>& params) {
    return products_.Multiply(params);
  }

 private:
  CusparseForm form_ = CusparseForm::kCsr;
  CusparseProducts products_;
};

#endif  // CERES_EXT_WITH_CUDA

}  // namespace ceres_ext::bal

#endif  // BENCHMARKS_STUDY_STUDY_MACHINES_H_
