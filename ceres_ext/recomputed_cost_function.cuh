// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// User-defined cost functions whose Jacobian is not stored: each product
// computes the blocks that it needs in registers. Instead of
// CERES_EXT_DEVICE_COST_FUNCTION (ceres_ext/device_cost_function.cuh), which
// this includes, write
//
//   CERES_EXT_RECOMPUTED_COST_FUNCTION(MyCostFunction)
//
// for a type of two residuals, a point (a block of which at most three columns
// vary) and a block of up to 18 values, and
//
//   ceres_ext::Options::jacobian = ceres_ext::JACOBIAN_RECOMPUTED
//
// Any other blocks of a residual block must be constant. The functor or model
// has no further requirements; one with an analytic Jacobian is faster.
// docs/options.md says which problems are supported. In all others the Jacobian
// is stored, and Summary::path_reason says why.

#ifndef CERES_EXT_RECOMPUTED_COST_FUNCTION_CUH_
#define CERES_EXT_RECOMPUTED_COST_FUNCTION_CUH_

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>

#include "ceres_ext/batchable_cost_function.h"
#include "ceres_ext/device_cost_function.cuh"
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

// As EvaluateRowsKernel of device_cost_function.cuh, with the Jacobian in
// registers: residuals, their sums, and what of derivatives isn't finite.
template <typename Model>
__global__ void __launch_bounds__(kernels::kVectorBlock, 2)
    EvaluateRecomputedKernel(const __grid_constant__ RowBatch rows,
                             double* partial,
                             int32_t* ticket,
                             RowSums* sums) {
  kernels::TwoSums value;
#pragma unroll 1
  for (int64_t i = int64_t{blockIdx.x} * kernels::kVectorBlock + threadIdx.x;
       i < rows.num_rows;
       i += int64_t{gridDim.x} * kernels::kVectorBlock) {
    double jc[2 * kRecomputedColumns<Model>];
    double jp[6];
    const RowTerm term = ComputeBlocks<Model>(rows, i, jc, jp);
    value.first += term.first;
    value.second += term.second;
  }
  kernels::TwoSums sum;
  if (kernels::SumOverBlocks<kernels::AddFirst>(value, partial, ticket, &sum)) {
    sums->cost = 0.5 * sum.first;
    sums->num_not_finite = static_cast<int64_t>(sum.second);
  }
}

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

template <typename Model>
struct RecomputedForms {
  using Source = ModelSource<Model>;
  using Base = kernels::ModelJacobian<kRecomputedColumns<Model>>;
  using Blocks = ModelBlocks<Model>;
  static_assert(Model::kNumResiduals == 2,
                "a recomputed cost function has two residuals");
  static_assert(LargestOf(typename Model::BlockSizes()) <=
                    kernels::kMaxStoredColumns,
                "a recomputed cost function has blocks of up to 18 values");
  static_assert(
      kernels::SizeOfModelParams<Source, Blocks>() ==
          kernels::SizeOfModelParams<Base, kernels::JacobianBlocks<Base>>(),
      "the library's parameters and the module's are the same bytes");

  // Returns f(the kernel).
  template <typename Function>
  static int WithKernel(kernels::ModelKernel kernel, Function&& f) {
    using kernels::kDeviceLayout;
    using kernels::ModelKernel;
    switch (kernel) {
      case ModelKernel::kEvaluate:
        return f(&EvaluateRecomputedKernel<Model>);
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
        return f(&kernels::SumLongRepeatsKernel<Source,
                                                typename Source::Shape>);
    }
    return 1;  // cudaErrorInvalidValue
  }

  static int GetFacts(int kernel, DeviceForm::Facts* facts) {
    return WithKernel(
        static_cast<kernels::ModelKernel>(kernel), [&](auto* function) -> int {
          return GetKernelFacts(reinterpret_cast<const void*>(function), facts);
        });
  }

  template <typename... Parameters>
  static int LaunchKernel(const kernels::ModelLaunch& launch,
                          void (*kernel)(Parameters...)) {
#ifdef __CUDACC__
    return OnDevice(launch.device, [&]() -> cudaError_t {
      const auto* const function = reinterpret_cast<const void*>(kernel);
      const dim3 grid(static_cast<unsigned>(launch.num_blocks));
      const dim3 block(static_cast<unsigned>(launch.block_size));
      // Shared memory that fits without a request, and what the kernels declare
      // statically.
      constexpr int64_t kNotAsked = 40 * 1024;
      if (launch.shared_bytes > kNotAsked) {
        const cudaError_t error =
            cudaFuncSetAttribute(function,
                                 cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 static_cast<int>(launch.shared_bytes));
        if (error != cudaSuccess) {
          return error;
        }
      }
      if (launch.graph == nullptr) {
        return cudaLaunchKernel(function,
                                grid,
                                block,
                                launch.arguments,
                                static_cast<size_t>(launch.shared_bytes),
                                static_cast<cudaStream_t>(launch.stream));
      }
      cudaKernelNodeParams node = {};
      node.func = const_cast<void*>(function);
      node.gridDim = grid;
      node.blockDim = block;
      node.sharedMemBytes = static_cast<unsigned>(launch.shared_bytes);
      node.kernelParams = launch.arguments;
      const auto previous = static_cast<cudaGraphNode_t>(*launch.last);
      cudaGraphNode_t added = nullptr;
      const cudaError_t error =
          cudaGraphAddKernelNode(&added,
                                 static_cast<cudaGraph_t>(launch.graph),
                                 &previous,
                                 previous == nullptr ? 0 : 1,
                                 &node);
      *launch.last = added;
      return error;
    });
#else
    std::tuple<Parameters...> values;
    int at = 0;
    const auto copy = [&](auto& value) {
      static_assert(std::is_trivially_copyable_v<
                    std::remove_reference_t<decltype(value)>>);
      std::memcpy(
          static_cast<void*>(&value), launch.arguments[at++], sizeof(value));
    };
    std::apply([&](auto&... value) { (copy(value), ...); }, values);
    return ::emulation::Launch(
        launch.num_blocks, launch.block_size, launch.shared_bytes, [&] {
          std::apply(kernel, values);
        });
#endif
  }

  static int Launch(const kernels::ModelLaunch& launch) {
    return WithKernel(launch.kernel, [&](auto* function) {
      return LaunchKernel(launch, function);
    });
  }

  static bool Register() {
    static const RecomputedForm kForm = {
        kBatchModelVersion,
        sizeof(RowBatch),
        kernels::SizeOfModelParams<Source, Blocks>(),
        kRecomputedColumns<Model>,
        &GetFacts,
        {&Launch, &DeviceForms<Model>::ErrorString}};
    BatchForms<Model>::recomputed_form = &kForm;
    return DeviceForms<Model>::Register();
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

// The type may have commas.
#define CERES_EXT_RECOMPUTED_COST_FUNCTION(...)                           \
  [[maybe_unused]] static const bool CERES_EXT_DEVICE_COST_FUNCTION_NAME( \
      __COUNTER__) =                                                      \
      ::ceres_ext::internal::RecomputedForms<__VA_ARGS__::Model>::Register();

#endif  // CERES_EXT_RECOMPUTED_COST_FUNCTION_CUH_
