// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The kernel of window_cuda.h for a class of rows.
#ifndef CERES_EXT_SMALL_WINDOW_WINDOW_KERNEL_CUH_
#define CERES_EXT_SMALL_WINDOW_WINDOW_KERNEL_CUH_

#include <cstdint>
#include <new>
#include <type_traits>

#include "ceres_ext/small/window/loop.h"
#include "ceres_ext/small/window/window_cuda.h"
#include "cuda_kernels/machine/cuda_cluster.cuh"
#include "cuda_kernels/machine/cuda_launch.cuh"

namespace ceres_ext {

// Largest number of threads of a block, with 128 registers each.
inline constexpr int kMaxWindowThreads = 512;

// A thread block of whole warps, or a cluster of thread blocks, with data in
// shared memory.
class BlockTeam {
 public:
  template <int kColumns>
  static constexpr int kTile = kColumns == 10 ? 5 : 3;
  template <int kTile>
  static constexpr int kWidth = kTile;
  // As many sums as fit into registers: 27 for 9 columns.
  template <int kColumns>
  static constexpr int kTall = kColumns == 10 ? 5 : kColumns;
  template <int kColumns>
  static constexpr int kHigh = kColumns == 10 ? 5 : kColumns;
  // Rows are computed again for a step, which is faster than main memory.
  static constexpr bool kKeepsRows = false;
  // A camera sees a point once.
  static constexpr bool kRepeats = false;

  // exchange: the team's, in main memory (WindowScratch).
  __device__ explicit BlockTeam(double* exchange)
      : block_(kernels::ClusterRank()),
        num_blocks_(kernels::ClusterSize()),
        exchange_(exchange) {}

  __device__ int rank() const { return static_cast<int>(threadIdx.x); }
  __device__ int size() const { return static_cast<int>(blockDim.x); }
  __device__ void Barrier() const { __syncthreads(); }
  __device__ int block() const { return block_; }
  __device__ int num_blocks() const { return num_blocks_; }
  __device__ void Join() const {
    // The same for all threads.
    if (num_blocks_ == 1) {
      __syncthreads();
    } else {
      kernels::ClusterBarrier();
    }
  }

  static constexpr int kWarp = kernels::kWarpSize;
  __device__ int warp_size() const { return kWarp; }
  __device__ void WarpBarrier() const { __syncwarp(); }
  // Bit l: the value in lane l.
  __device__ static uint64_t Ballot(bool value) {
    return __ballot_sync(kernels::kFullWarp, value ? 1 : 0);
  }
  __device__ static double InverseSqrt(double value) {
#ifdef __CUDACC__
    return rsqrt(value);
#else
    return 1.0 / sqrt(value);
#endif
  }

  static constexpr bool kHasFloat = true;
  static constexpr bool kLoadsPairs = true;
  template <typename T>
  __device__ static void LoadPair(const T* from, T* x, T* y) {
    using Pair = std::conditional_t<sizeof(T) == 8, double2, float2>;
    const Pair pair = *reinterpret_cast<const Pair*>(from);
    *x = pair.x;
    *y = pair.y;
  }

  // This lets the compiler load from shared memory without checking the
  // address.
  template <typename T>
  __device__ static T* Own(T* pointer) {
#ifdef __CUDACC__
    __builtin_assume(__isShared(pointer));
#endif
    return pointer;
  }

  // Takes the next number from a queue, the same in all blocks. Begins and ends
  // with a barrier of all blocks.
  __device__ int32_t Next(int32_t* queue) const {
    Join();
    auto* const number = reinterpret_cast<int32_t*>(exchange_);
    if (block_ == 0 && threadIdx.x == 0) {
      *number = atomicAdd(queue, 1);
    }
    Join();
    return *number;
  }

  // Valid in the first lane.
  __device__ static double WarpSum(double value) {
    return kernels::WarpSum(value);
  }
  // The value in a lane.
  __device__ static double Lane(double value, int lane) {
    return __shfl_sync(kernels::kFullWarp, value, lane);
  }
  // Sums over the lanes by a tree, then over the warps in their order.
  template <int n>
  __device__ void Sum(double (&values)[n]) {
    for (double& value : values) {
      value = kernels::WarpSum(value);
    }
    Share(values);
    for (int i = 0; i < n; ++i) {
      values[i] = 0.0;
      for (int w = 0; w < size() / kWarp; ++w) {
        values[i] += warps_[kMaxWarps * i + w];
      }
    }
    __syncthreads();
  }

  // Sums over num_slices neighbours, a power of 2, by a tree; valid in each.
  template <typename T, int n>
  __device__ static void SumSlices(T (&values)[n], int num_slices) {
    for (int offset = num_slices / 2; offset > 0; offset /= 2) {
#pragma unroll
      for (int i = 0; i < n; ++i) {
        values[i] += __shfl_xor_sync(kernels::kFullWarp, values[i], offset);
      }
    }
  }

  template <int n>
  __device__ void BlockMax(double (&values)[n]) {
    for (int offset = kWarp / 2; offset > 0; offset /= 2) {
      for (double& value : values) {
        value =
            Larger(value, __shfl_xor_sync(kernels::kFullWarp, value, offset));
      }
    }
    Share(values);
    for (int i = 0; i < n; ++i) {
      for (int w = 0; w < size() / kWarp; ++w) {
        values[i] = Larger(values[i], warps_[kMaxWarps * i + w]);
      }
    }
    __syncthreads();
  }

  template <int n>
  __device__ void Max(double (&values)[n]) {
    static_assert(n <= kValues, "room in the exchange");
    BlockMax(values);
    if (num_blocks_ == 1) {
      return;
    }
    // A barrier is between the second reading of one half and its next writing.
    double* const of_blocks = exchange_ + 1 + turn_ * kValues * kMaxBlocks;
    if (threadIdx.x == 0) {
      for (int i = 0; i < n; ++i) {
        of_blocks[kValues * block_ + i] = values[i];
      }
    }
    Join();
    for (int b = 0; b < num_blocks_; ++b) {
      for (int i = 0; i < n; ++i) {
        values[i] = Larger(values[i], of_blocks[kValues * b + i]);
      }
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      turn_ = 1 - turn_;
    }
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
  static constexpr int kMaxWarps = WindowScratch::kMaxWarps;
  static_assert(kMaxWarps == kMaxWindowThreads / kWarp, "warps of a block");
  static constexpr int kValues = WindowScratch::kValues;
  static constexpr int kMaxBlocks = WindowScratch::kMaxBlocks;

  // Values of a warp where all threads see them.
  template <int n>
  __device__ void Share(const double (&values)[n]) {
    if (threadIdx.x % kWarp == 0) {
      for (int i = 0; i < n; ++i) {
        warps_[kMaxWarps * i + threadIdx.x / kWarp] = values[i];
      }
    }
    __syncthreads();
  }
  // NaN if one is NaN.
  __device__ static double Larger(double a, double b) {
    return a != a || !(b <= a) ? (a != a ? a : b) : a;
  }

  const int block_;
  const int num_blocks_;
  double* const exchange_;
  int turn_ = 0;
  double warps_[kValues * kMaxWarps];
};

// Data of a block before the team's memory. All threads share it, which saves
// registers.
template <typename Solve>
struct Head {
  alignas(8) unsigned char team[sizeof(BlockTeam)];
  alignas(8) unsigned char solve[sizeof(Solve)];
};

// Mapping: a block, or a cluster of blocks, solves a window and takes the next.
// Only the number of the next window comes from an atomic, so a window's result
// does not depend on which blocks solve it, nor on how many.
template <typename Rows>
__global__ void
#ifdef __CUDACC__
__launch_bounds__(kMaxWindowThreads)
#endif
    SolveWindowsKernel(SolveWindowsParams params) {
  using Solve = window::TeamWindow<Rows, BlockTeam>;
  static_assert(sizeof(Head<Solve>) <= kHeadBytes, "room for the head");
  CERES_EXT_DYNAMIC_SHARED(memory);
  auto* const head = reinterpret_cast<Head<Solve>*>(memory);
  auto* const team = reinterpret_cast<BlockTeam*>(head->team);
  auto* const solve = reinterpret_cast<Solve*>(head->solve);
  double* const scratch =
      params.scratch +
      params.scratch_size * (blockIdx.x / kernels::ClusterSize());
  if (threadIdx.x == 0) {
    new (team) BlockTeam(scratch);
  }
  // Without a barrier the compiler would thread this condition into another
  // one of the loop, and thread 0 would come to the loop's barriers by itself.
  __syncthreads();
  for (;;) {
    const int32_t number = team->Next(params.queue);
    // The same for all threads.
    if (number >= params.num_windows) {
      return;
    }
    const WindowRecord record = params.records[number];
    const Window in = ViewWindow(Rows::kCamera,
                                 record,
                                 params.losses,
                                 params.inputs,
                                 params.outputs,
                                 scratch);
    CopyStart(Rows::kCamera, record, params.inputs, in, team);
    if (threadIdx.x == 0) {
      new (solve) Solve(in,
                        Rows(record, params.inputs),
                        params.has_schur,
                        params.options.is_mixed,
                        reinterpret_cast<double*>(memory + kHeadBytes),
                        team);
    }
    __syncthreads();
    window::Run(*solve, params.options);
  }
}

}  // namespace ceres_ext

#endif  // CERES_EXT_SMALL_WINDOW_WINDOW_KERNEL_CUH_
