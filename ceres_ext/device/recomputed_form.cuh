// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Kernels that recompute the Jacobian of a cost function: each product computes
// the blocks that it needs in registers (ceres_ext/device/cost_function.cuh).

#ifndef CERES_EXT_DEVICE_RECOMPUTED_FORM_CUH_
#define CERES_EXT_DEVICE_RECOMPUTED_FORM_CUH_

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "ceres_ext/batchable_cost_function.h"
#include "ceres_ext/device/rows_form.cuh"
#include "ceres_ext/row_evaluation.h"
#include "cuda_kernels/cuda/model_kernels.cuh"

namespace ceres_ext::internal {
namespace {

template <int... Ns>
constexpr int LargestOf(std::integer_sequence<int, Ns...>) {
  return std::max({Ns...});
}

// Columns of the block beside the point, of those that kernels exist for.
template <typename Model>
inline constexpr int kRecomputedColumns = kernels::WithStoredColumns(
    LargestOf(typename Model::BlockSizes()), [](auto f) { return int{f}; });

// Stores a row's derivatives in registers: Jc, 2 x F, and Jp, 2 x 3, row-major,
// zero before.
template <int F>
struct StoreInBlocks {
  template <typename Row>
  __device__ __forceinline__ bool operator()(const RowBatch& /*rows*/,
                                             int64_t /*i*/,
                                             const Row& row,
                                             int b,
                                             int j,
                                             const double* column) const {
    bool is_finite = true;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (!row.is_point[b]) {
        jc[F * r + j] = column[r];
      } else if (j < 3) {
        jp[3 * r + j] = column[r];
      }
      is_finite = is_finite && column[r] - column[r] == 0.0;
    }
    return is_finite;
  }
  double* jc;
  double* jp;
};

// The blocks of row i. A function of its own, that all kernels call: the model
// is compiled once, and its registers are free again when products begin. The
// 24 values that cross in a thread's own memory are few beside what it
// computes.
template <typename Model>
__device__ __noinline__ RowTerm
ComputeBlocks(const RowBatch& rows, int64_t i, double* jc, double* jp) {
  constexpr int F = kRecomputedColumns<Model>;
#pragma unroll
  for (int e = 0; e < 2 * F; ++e) {
    jc[e] = 0.0;
  }
#pragma unroll
  for (int e = 0; e < 6; ++e) {
    jp[e] = 0.0;
  }
  return RowEvaluator<Model>::template Evaluate<true>(
      rows, i, StoreInBlocks<F>{jc, jp});
}

template <typename Model>
struct ModelSource : kernels::ModelJacobian<kRecomputedColumns<Model>> {
  using Shape = kernels::BalShape<kRecomputedColumns<Model>>;
  static constexpr int F = Shape::kF;

  __device__ __forceinline__ void Load(
      int64_t k, int32_t camera, int32_t point, double* jc, double* jp) const {
    double c[2 * F];
    double p[6];
    ComputeBlocks<Model>(*static_cast<const RowBatch*>(this->rows), k, c, p);
#pragma unroll
    for (int j = 0; j < F; ++j) {
      const double scale = this->camera_scale[int64_t{F} * camera + j];
      jc[j] = c[j] * scale;
      jc[F + j] = c[F + j] * scale;
    }
#pragma unroll
    for (int j = 0; j < 3; ++j) {
      const double scale = this->point_scale[int64_t{3} * point + j];
      jp[j] = p[j] * scale;
      jp[3 + j] = p[3 + j] * scale;
    }
  }
  __device__ void LoadCamera(int64_t k,
                             int32_t camera,
                             int32_t point,
                             double* jc) const {
    double jp[6];
    Load(k, camera, point, jc, jp);
  }
  __device__ void LoadPoint(int64_t k,
                            int32_t camera,
                            int32_t point,
                            double* jp) const {
    double jc[2 * F];
    Load(k, camera, point, jc, jp);
  }
};

// An observation in the registers of its thread (cuda/stored_tiles.cuh).
template <typename Model>
struct ModelBlocks : kernels::JacobianBlocks<ModelSource<Model>> {
  // 128 registers, which a functor of BAL by Jets of 12 needs.
  static constexpr int kMinBlocks = 2;

  __device__ __forceinline__ void Load(const ModelSource<Model>& source,
                                       int64_t k) {
    const auto* const rows = static_cast<const RowBatch*>(source.rows);
    source.Load(k, source.camera_id[k], rows->point_id[k], this->jc, this->jp);
  }
};

// For EvaluateRowsKernel, with the Jacobian in registers: residuals, their
// sums, and what of derivatives isn't finite.
template <typename Model>
struct RecomputedSource {
  static constexpr int kNumParts = 1;
  __device__ __forceinline__ static RowTerm Evaluate(const RowBatch& rows,
                                                     int64_t i) {
    double jc[2 * kRecomputedColumns<Model>];
    double jp[6];
    return ComputeBlocks<Model>(rows, i, jc, jp);
  }
};

// y_k = Jc x_c + Jp x_p.
// Mapping: one thread per observation, in point order. Order: columns from 0.
template <typename Model>
__global__ void __launch_bounds__(kernels::kProductBlock)
    RecomputedRightMultiplyKernel(
        kernels::RightMultiplyParams<ModelSource<Model>> p) {
  constexpr int F = kRecomputedColumns<Model>;
  const int64_t k = int64_t{blockIdx.x} * kernels::kProductBlock + threadIdx.x;
  if (k >= p.index.num_observations) {
    return;  // No barrier follows.
  }
  const int32_t camera = p.index.camera_id[k];
  const int32_t point = p.index.point_id[k];
  double jc[2 * F];
  double jp[6];
  p.jacobian.Load(k, camera, point, jc, jp);
  const double* const camera_x = p.camera_x + int64_t{F} * camera;
  const double* const point_x = p.point_x + int64_t{3} * point;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    double sum = 0.0;
#pragma unroll
    for (int i = 0; i < F; ++i) {
      sum += jc[F * r + i] * camera_x[i];
    }
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      sum += jp[3 * r + i] * point_x[i];
    }
    p.y[2 * k + r] = p.accumulate ? p.y[2 * k + r] + sum : sum;
  }
}

template <typename ModelIn>
struct RecomputedForm {
  using Model = ModelIn;
  using Source = ModelSource<Model>;
  using Base = kernels::ModelJacobian<kRecomputedColumns<Model>>;
  using Blocks = ModelBlocks<Model>;
  static constexpr FormKind kKind = FormKind::kRecomputed;
  static constexpr int32_t kParamsSize =
      sizeof(RowBatch) + kernels::SizeOfModelParams<Source, Blocks>();
  static constexpr int32_t kColumns = kRecomputedColumns<Model>;
  static constexpr uint32_t kVarying = 0;
  static constexpr bool kIsPossible =
      Model::kNumResiduals == 2 && Model::BlockSizes::size() >= 2 &&
      LargestOf(typename Model::BlockSizes()) <= kernels::kMaxStoredColumns;
  static_assert(
      kernels::SizeOfModelParams<Source, Blocks>() ==
          kernels::SizeOfModelParams<Base, kernels::JacobianBlocks<Base>>(),
      "the library's parameters and the module's are the same bytes");
  static void CheckPossible() {
    static_assert(kIsPossible,
                  "form::Recomputed needs two residuals and two or more "
                  "parameter blocks of up to 18 values");
  }

  template <typename Function>
  static int WithKernel(int kernel, const Function& f) {
    using kernels::kDeviceLayout;
    using kernels::ModelKernel;
    switch (static_cast<ModelKernel>(kernel)) {
      case ModelKernel::kEvaluate:
        return f(&EvaluateRowsKernel<RecomputedSource<Model>>);
      case ModelKernel::kRightMultiply:
        return f(&RecomputedRightMultiplyKernel<Model>);
      case ModelKernel::kPointNorms:
        return f(&kernels::PointNormsKernel<false, Source>);
      case ModelKernel::kLongPointNorms:
        return f(&kernels::PointNormsKernel<true, Source>);
      case ModelKernel::kCameraNorms:
        return f(&kernels::CameraChunkKernel<Source,
                                             kernels::CameraNormTerm<Source>>);
      case ModelKernel::kPointBlocks:
        return f(&kernels::PointBlocksKernel<false, Source, kDeviceLayout>);
      case ModelKernel::kLongPointBlocks:
        return f(&kernels::PointBlocksKernel<true, Source, kDeviceLayout>);
      case ModelKernel::kU:
        return f(&kernels::CameraChunkKernel<Source, kernels::ModelU<Source>>);
      case ModelKernel::kSchurDiagonal:
        return f(
            &kernels::CameraChunkKernel<Source,
                                        kernels::ModelSchurDiagonal<Source>>);
      case ModelKernel::kSchurProduct:
        return f(
            &kernels::StoredTileKernel<Blocks, kernels::kSchurProductMode>);
      case ModelKernel::kEliminatedPart:
        return f(
            &kernels::StoredTileKernel<Blocks, kernels::kEliminatedPartMode>);
      case ModelKernel::kBackSubstitute:
        return f(
            &kernels::StoredTileKernel<Blocks, kernels::kBackSubstituteMode>);
      case ModelKernel::kNormalProduct:
        return f(
            &kernels::StoredTileKernel<Blocks, kernels::kNormalProductMode>);
      case ModelKernel::kLeftMultiply:
        return f(
            &kernels::StoredTileKernel<Blocks, kernels::kLeftMultiplyMode>);
      case ModelKernel::kSchurRhs:
        return f(&kernels::StoredTileKernel<Blocks, kernels::kSchurRhsMode>);
      case ModelKernel::kLongRepeats:
        return f(
            &kernels::SumLongRepeatsKernel<Source, typename Source::Shape>);
    }
    return 1;  // cudaErrorInvalidValue
  }
};

}  // namespace
}  // namespace ceres_ext::internal

namespace ceres_ext::kernels {

// The blocks of one camera's observations (cuda/camera_chunks.cuh).
template <typename Model>
class CameraJacobianReader<::ceres_ext::internal::ModelSource<Model>> {
 public:
  using Source = ::ceres_ext::internal::ModelSource<Model>;
  __device__ CameraJacobianReader(const Source& source, int32_t camera)
      : source_(source), camera_(camera) {}
  __device__ __forceinline__ void Load(int64_t k,
                                       int32_t point,
                                       double* jc,
                                       double* jp) const {
    if (jp != nullptr) {
      source_.Load(k, camera_, point, jc, jp);
    } else {
      source_.LoadCamera(k, camera_, point, jc);
    }
  }

 private:
  const Source& source_;
  const int32_t camera_;
};

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_DEVICE_RECOMPUTED_FORM_CUH_
