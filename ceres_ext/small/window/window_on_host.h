// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The solution of a window by a thread, for the processor's vectors.
#ifndef CERES_EXT_SMALL_WINDOW_WINDOW_ON_HOST_H_
#define CERES_EXT_SMALL_WINDOW_WINDOW_ON_HOST_H_

#include <cmath>
#include <cstdint>

#include "ceres_ext/small/window/loop.h"
#include "ceres_ext/small/window/window_host.h"
#include "cuda_kernels/base/simd.h"

namespace ceres_ext {

// One thread.
class HostTeam {
 public:
  // Whole blocks: the loops over a row of one are vectors.
  template <int kColumns>
  static constexpr int kTile = kColumns;

  template <int kTile>
  static constexpr int kWidth = (kTile + 3) / 4 * 4;
  template <int kColumns>
  static constexpr int kHigh = kColumns == 10 ? 5 : 3;
  template <int kColumns>
  static constexpr int kTall = kColumns;
  static constexpr int kSavedRows = 16;

  static int rank() { return 0; }
  static int size() { return 1; }
  static void Barrier() {}
  static int block() { return 0; }
  static int num_blocks() { return 1; }
  static void Join() {}
  template <typename T>
  static T* Own(T* pointer) {
    return pointer;
  }
  static constexpr int kWarp = 1;
  static void WarpBarrier() {}
  static uint64_t Ballot(bool value) { return value ? 1 : 0; }
  static constexpr bool kLoadsPairs = false;
  static void LoadPair(const double* from, double* x, double* y) {
    *x = from[0];
    *y = from[1];
  }
  static int warp_size() { return 1; }
  static double InverseSqrt(double value) { return 1.0 / std::sqrt(value); }
  static double WarpSum(double value) { return value; }
  template <int n>
  static void Sum(double (&)[n]) {}
  template <int n>
  static void SumSlices(double (&)[n], int /*num_slices*/) {}
  template <int n>
  static void BlockMax(double (&)[n]) {}
  template <int n>
  static void Max(double (&)[n]) {}
  static void Or(uint64_t bits, uint64_t* to) { *to |= bits; }
  static int FirstBit(uint64_t bits) { return __builtin_ctzll(bits); }
};

// Defines a RunWindow of a class of rows. Files that use it are compiled
// without fused operations, which gives all instruction sets the same bits.
#define CERES_EXT_RUN_WINDOW(name, Rows)                     \
  CERES_EXT_SIMD_CLONES __attribute__((flatten)) void name(  \
      const WindowRecord& record,                            \
      const unsigned char* inputs,                           \
      const Window& in,                                      \
      bool has_schur,                                        \
      const LoopOptions& options,                            \
      double* memory) {                                      \
    HostTeam team;                                           \
    window::TeamWindow<Rows, HostTeam> solve(                \
        in, Rows(record, inputs), has_schur, memory, &team); \
    window::Run(solve, options);                             \
  }

}  // namespace ceres_ext

#endif  // CERES_EXT_SMALL_WINDOW_WINDOW_ON_HOST_H_
