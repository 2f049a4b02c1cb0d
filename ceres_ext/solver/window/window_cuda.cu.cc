// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/solver/window/window_cuda.h"

#include <cstdint>
#include <new>

#include "ceres_ext/solver/window/window_solve.h"
#include "cuda_kernels/machine/cuda_launch.cuh"

namespace ceres_ext {
namespace {

using kernels::kWarpSize;

// The most threads of a block: 128 registers each.
constexpr int kMaxThreads = 512;

// A thread block of whole warps.
class BlockTeam {
 public:
  // Of 9 columns a tile takes 18 values for 9 sums, in registers.
  template <int kColumns>
  static constexpr int kTile = kColumns == 10 ? 5 : 3;

  template <int kTile>
  static constexpr int kWidth = kTile;
  static constexpr bool kPairs = true;
  // In registers it has none, and computing is faster than main memory.
  static constexpr int kSavedRows = 0;

  __device__ explicit BlockTeam(double* warps) : warps_(warps) {}

  __device__ int rank() const { return static_cast<int>(threadIdx.x); }
  __device__ int size() const { return static_cast<int>(blockDim.x); }
  __device__ void Barrier() const { __syncthreads(); }

  __device__ bool IsInFirstWarp() const { return threadIdx.x < kWarpSize; }
  __device__ int warp_size() const { return kWarpSize; }
  __device__ void WarpBarrier() const { __syncwarp(); }
  __device__ static double InverseSqrt(double value) {
#ifdef __CUDACC__
    return rsqrt(value);
#else
    return 1.0 / sqrt(value);
#endif
  }

  // Over the lanes by a tree, then over the warps in their order.
  __device__ double Sum(double value) const {
    Share(kernels::WarpSum(value));
    double sum = 0.0;
    for (int w = 0; w < size() / kWarpSize; ++w) {
      sum += warps_[w];
    }
    __syncthreads();
    return sum;
  }
  __device__ double Max(double value) const {
    for (int offset = kWarpSize / 2; offset > 0; offset /= 2) {
      value = Larger(value, __shfl_xor_sync(kernels::kFullWarp, value, offset));
    }
    Share(value);
    double largest = 0.0;
    for (int w = 0; w < size() / kWarpSize; ++w) {
      largest = Larger(largest, warps_[w]);
    }
    __syncthreads();
    return largest;
  }
  __device__ bool All(bool value) const {
    return Max(value ? 0.0 : 1.0) == 0.0;
  }
  // Bits that are set are the same in any order.
  __device__ static void Or(uint64_t bits, uint64_t* to) {
    using Word = unsigned long long;  // NOLINT: as atomicOr
    atomicOr(reinterpret_cast<Word*>(to), static_cast<Word>(bits));
  }
  __device__ static int FirstBit(uint64_t bits) {
#ifdef __CUDACC__
    return __ffsll(static_cast<long long>(bits)) - 1;
#else
    return __builtin_ctzll(bits);
#endif
  }

 private:
  // A warp's value where all threads see it.
  __device__ void Share(double value) const {
    if (threadIdx.x % kWarpSize == 0) {
      warps_[threadIdx.x / kWarpSize] = value;
    }
    __syncthreads();
  }
  // NaN where one is.
  __device__ static double Larger(double a, double b) {
    return a != a || !(b <= a) ? (a != a ? a : b) : a;
  }

  double* warps_;
};

// Mapping: a block solves a window and takes the next. Only the number of the
// next window is taken by an atomic; what a window's result is does not depend
// on which block solves it.
template <int kRotation, int kColumns>
__global__ void
#ifdef __CUDACC__
__launch_bounds__(kMaxThreads)
#endif
    SolveWindowsKernel(SolveWindowsParams params) {
  CERES_EXT_DYNAMIC_SHARED(memory);
  __shared__ double warps[kMaxThreads / kWarpSize];
  __shared__ int32_t next;
  // The same for all threads, so that none holds it in registers of its own.
  using Solve = WindowSolve<kRotation, kColumns, BlockTeam>;
  __shared__ double team_storage[(sizeof(BlockTeam) + 7) / 8];
  __shared__ double solve_storage[(sizeof(Solve) + 7) / 8];
  auto* const team = reinterpret_cast<BlockTeam*>(team_storage);
  auto* const solve = reinterpret_cast<Solve*>(solve_storage);
  if (threadIdx.x == 0) {
    new (team) BlockTeam(warps);
  }
  // Without it the compiler threads this condition into the loop's, which is
  // the same, and thread 0 comes to the barriers of the loop by itself: its
  // warp does not meet again.
  __syncthreads();
  for (;;) {
    if (threadIdx.x == 0) {
      next = atomicAdd(params.queue, 1);
    }
    __syncthreads();
    const int32_t number = next;
    __syncthreads();
    // The same for all threads.
    if (number >= params.num_windows) {
      return;
    }
    const WindowRecord record = params.records[number];
    const Window window =
        ViewWindow(kRotation + 6,
                   record,
                   params.losses,
                   params.inputs,
                   params.outputs,
                   params.scratch + params.scratch_size * blockIdx.x);
    CopyStart(kRotation + 6, record, params.inputs, window, team);
    if (threadIdx.x == 0) {
      new (solve) Solve(
          window, params.has_schur, reinterpret_cast<double*>(memory), team);
    }
    __syncthreads();
    // Ends with a barrier.
    solve->Run(params.options);
  }
}

}  // namespace

kernels::Status SolveWindows(const WindowKind& kind,
                             const SolveWindowsParams& params,
                             int64_t num_blocks,
                             int num_threads,
                             int64_t team_bytes,
                             cudaStream_t stream) {
  auto* const kernel = kind.camera_size == 9
                           ? (kind.num_columns == 9 ? &SolveWindowsKernel<3, 9>
                                                    : &SolveWindowsKernel<3, 6>)
                       : kind.num_columns == 10 ? &SolveWindowsKernel<4, 10>
                       : kind.num_columns == 9  ? &SolveWindowsKernel<4, 9>
                                                : &SolveWindowsKernel<4, 6>;
  return kernels::Launch("SolveWindowsKernel",
                         kernel,
                         num_blocks,
                         num_threads,
                         team_bytes,
                         stream,
                         params);
}

}  // namespace ceres_ext
