// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The device body of NormalBlocks for any source and layout. Included by .cu.cc
// files that instantiate it.
#ifndef CERES_EXT_CUDA_KERNELS_CUDA_NORMAL_BLOCKS_IMPL_CUH_
#define CERES_EXT_CUDA_KERNELS_CUDA_NORMAL_BLOCKS_IMPL_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda_kernels/base/block_ref.h"
#include "cuda_kernels/base/small_matrix.h"
#include "cuda_kernels/cuda/camera_chunks.cuh"
#include "cuda_kernels/cuda/point_tasks.cuh"
#include "cuda_kernels/cuda/stored_tiles.cuh"
#include "cuda_kernels/machine/cuda_launch.cuh"
#include "cuda_kernels/machine/cuda_machine.h"
#include "cuda_kernels/ops/jacobian_products.h"
#include "cuda_kernels/ops/normal_blocks.h"

namespace ceres_ext::kernels {

inline constexpr int kPointBlock = kPointTaskBlock;

// V, g_p, Vi and Vi g_p.
// Mapping: one thread per point that is not long; kLong: one warp per long
// point. Order: the point's observations in their order; kLong: every 32nd of
// them, then a tree over the lanes. Traffic per observation: 6 values of
// Jacobian (stored) or a camera state (recomputed, L2), 16 B of b, 4 B of id;
// 72 to 168 B per point.
template <bool kLong, typename Source, BlockLayout kLayout>
__global__ void __launch_bounds__(kPointBlock)
    PointBlocksKernel(NormalBlocksParams<Source, kLayout> p,
                      PointTasks tasks,
                      PointRecord<Source::Shape::kE>* records) {
  using T = typename Source::Value;
  using Shape = typename Source::Shape;
  constexpr int R = Shape::kNumResiduals;
  constexpr int E = Shape::kE;
  const PointTask task = MakePointTask<kLong>(p.index, tasks);
  const int64_t point = task.point;
  if (point < 0) {
    return;  // The whole warp leaves; no barrier follows.
  }
  double v[Shape::kPackedE] = {};
  double g[E] = {};
  for (int64_t k = task.begin; k < task.end; k += task.stride) {
    T jp[Shape::kESize];
    p.jacobian.LoadPoint(
        k, p.index.camera_id[k], static_cast<int32_t>(point), jp);
    double j[Shape::kESize];
#pragma unroll
    for (int i = 0; i < Shape::kESize; ++i) {
      j[i] = static_cast<double>(jp[i]);
    }
#pragma unroll
    for (int i = 0; i < E; ++i) {
#pragma unroll
      for (int e = 0; e <= i; ++e) {
        double sum = j[i] * j[e];
#pragma unroll
        for (int r = 1; r < R; ++r) {
          sum += j[E * r + i] * j[E * r + e];
        }
        v[PackedIndex(i, e)] += sum;
      }
    }
    if (p.b != nullptr) {
      double b[R];
#pragma unroll
      for (int r = 0; r < R; ++r) {
        b[r] = p.b[R * k + r];
      }
      MatrixTransposeMultiplyAndAccumulate<R, E>(j, b, g);
    }
  }
  if constexpr (kLong) {
#pragma unroll
    for (double& value : v) {
      value = WarpSum(value);
    }
#pragma unroll
    for (double& value : g) {
      value = WarpSum(value);
    }
    if (threadIdx.x % kWarpSize != 0) {
      return;  // No barrier follows.
    }
  }
  if (p.v.data != nullptr) {
#pragma unroll
    for (int i = 0; i < Shape::kPackedE; ++i) {
      p.v(point, i) = v[i];
    }
  }
  if (p.point_gradient != nullptr) {
#pragma unroll
    for (int i = 0; i < E; ++i) {
      p.point_gradient[E * point + i] = g[i];
    }
  }
  if (p.v_inverse.data == nullptr) {
    return;  // No barrier follows.
  }
  if (p.point_diagonal != nullptr) {
    AddSquaredDiagonal<E>(p.point_diagonal + E * point, v);
  }
  if (!InvertSymmetric<E>(v, E, /*is_definite=*/p.point_diagonal != nullptr)) {
    // A minimum of integers: the order of the atomics does not matter.
    atomicMin(&p.breakdown->first_block, static_cast<int32_t>(point));
  }
#pragma unroll
  for (int i = 0; i < Shape::kPackedE; ++i) {
    p.v_inverse(point, i) = v[i];
  }
  PointRecord<E> record;
  record.values[PointRecord<E>::kSize - 1] = 0.0;
#pragma unroll
  for (int i = 0; i < Shape::kPackedE; ++i) {
    record.v_inverse()[i] = v[i];
  }
  SymmetricMultiply<E>(v, g, record.step());
  records[point] = record;
}

// Queues it. A source of a module is an overload.
template <typename Source, BlockLayout kLayout>
Status PointBlocks(const NormalBlocksParams<Source, kLayout>& params,
                   PointRecord<Source::Shape::kE>* records,
                   CudaMachine* machine) {
  return LaunchPointTasks("PointBlocks",
                          PointBlocksKernel<false, Source, kLayout>,
                          PointBlocksKernel<true, Source, kLayout>,
                          params.index,
                          machine,
                          params,
                          records);
}

// The records of points whose Vi is given.
// Mapping: one thread per point.
template <int E, BlockLayout kLayout>
__global__ void __launch_bounds__(kPointBlock)
    RecordPointsKernel(BlockRef<const double, PackedSize(E), kLayout> v_inverse,
                       PointRecord<E>* records) {
  const int64_t point = int64_t{blockIdx.x} * kPointBlock + threadIdx.x;
  if (point >= v_inverse.num_blocks) {
    return;  // No barrier follows.
  }
  PointRecord<E> record = {};
#pragma unroll
  for (int i = 0; i < PackedSize(E); ++i) {
    record.v_inverse()[i] = v_inverse(point, i);
  }
  records[point] = record;
}

template <bool kMatrix, bool kEliminated, typename Source, BlockLayout kLayout>
Status CameraBlocks(const NormalBlocksParams<Source, kLayout>& params,
                    BlockRef<double, Source::Shape::kPackedF, kLayout> matrix,
                    double* vector,
                    CudaMachine* machine) {
  using Local = typename CameraCoordinates<Source>::Local;
  static_assert(PointRecord<Local::kE>::kSize <= CudaWorkspace::kPointRecord);
  const CudaWorkspaceRef& workspace = *params.index.cuda_workspace;
  if (Local::kF > workspace.max_columns) {
    return Status(StatusCode::kInvalidArgument,
                  "The workspace has scratch for fewer columns.");
  }
  NormalTerm<typename Source::Value, Local, kMatrix, kEliminated> term;
  term.b = vector == nullptr ? nullptr : params.b;
  term.points =
      reinterpret_cast<const PointRecord<Local::kE>*>(workspace.point_records);
  if constexpr (kMatrix && kEliminated) {
    term.repeats = workspace.long_repeats;
    CERES_EXT_RETURN_IF_ERROR(
        SumLongRepeats<Local>(params.index, params.jacobian, machine));
  }
  CERES_EXT_RETURN_IF_ERROR(
      SumCameraChunks(params.index, params.jacobian, term, machine));
  return Launch("FinishCameraBlocks",
                FinishCameraBlocksKernel<Source, kMatrix, kLayout>,
                {params.index.num_cameras, 64},
                machine->stream(),
                params.jacobian,
                workspace.camera_chunk_begin,
                static_cast<const double*>(workspace.partial),
                matrix,
                vector);
}

template <typename Source, BlockLayout kLayout>
Status Run(const NormalBlocksParams<Source, kLayout>& params,
           CudaMachine* machine) {
  const ObservationIndexRef& index = params.index;
  const CudaWorkspaceRef& workspace = *index.cuda_workspace;
  // Reading stored blocks in the order of the cameras costs 4 times their
  // bytes, so vectors go by tiles, which read them in their own order.
  const bool by_tiles =
      !IsRecomputed<Source>::value && workspace.stored_tiles.header != nullptr;
  if (params.breakdown != nullptr) {
    CERES_EXT_RETURN_IF_ERROR(SetValue(
        "ResetBreakdown", params.breakdown, Breakdown(), machine->stream()));
  }
  const bool gradient_by_tiles =
      by_tiles && params.u.data == nullptr && params.camera_gradient != nullptr;
  if (gradient_by_tiles) {
    // Before the records of points, whose memory this takes.
    LeftMultiplyParams<Source> gradient;
    gradient.index = index;
    gradient.jacobian = params.jacobian;
    gradient.y = params.b;
    gradient.camera_x = params.camera_gradient;
    CERES_EXT_RETURN_IF_ERROR(Run(gradient, machine));
  }
  if (params.v_inverse_is_given) {
    CERES_EXT_RETURN_IF_ERROR(
        Launch("RecordPoints",
               RecordPointsKernel<Source::Shape::kE, kLayout>,
               {CeilDivide(index.num_points, kPointBlock), kPointBlock},
               machine->stream(),
               params.v_inverse,
               reinterpret_cast<PointRecord<Source::Shape::kE>*>(
                   workspace.point_records)));
  } else if (params.v.data != nullptr || params.v_inverse.data != nullptr ||
             params.point_gradient != nullptr) {
    CERES_EXT_RETURN_IF_ERROR(
        PointBlocks(params,
                    reinterpret_cast<PointRecord<Source::Shape::kE>*>(
                        workspace.point_records),
                    machine));
  }
  if (params.u.data != nullptr) {
    CERES_EXT_RETURN_IF_ERROR((CameraBlocks<true, false>(
        params, params.u, params.camera_gradient, machine)));
  } else if (params.camera_gradient != nullptr && !gradient_by_tiles) {
    CERES_EXT_RETURN_IF_ERROR((CameraBlocks<false, false>(
        params, {}, params.camera_gradient, machine)));
  }
  if (params.schur_diagonal.data != nullptr) {
    return CameraBlocks<true, true>(
        params, params.schur_diagonal, params.schur_rhs, machine);
  }
  if (params.schur_rhs != nullptr) {
    if constexpr (!IsRecomputed<Source>::value) {
      if (by_tiles) {
        TileOperands<Source::Shape::kE, kLayout> operands;
        operands.b = params.b;
        operands.v_inverse = params.v_inverse;
        CameraSumTerms terms;
        terms.out = params.schur_rhs;
        return TileOperation<kUseB | kEliminate | kCameraOut>(
            index, params.jacobian, nullptr, operands, terms, machine);
      }
    }
    return CameraBlocks<false, true>(params, {}, params.schur_rhs, machine);
  }
  return Status();
}

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_CUDA_NORMAL_BLOCKS_IMPL_CUH_
