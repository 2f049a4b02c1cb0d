// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/solver/window/window_host.h"

#include <cmath>
#include <cstdint>

#include "ceres_ext/solver/window/window_solve.h"
#include "cuda_kernels/base/simd.h"

namespace ceres_ext {
namespace {

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

template <int kRotation, int kColumns>
CERES_EXT_SIMD_INLINE void Run(const Window& window,
                               bool has_schur,
                               const TrustRegionOptions& options,
                               double* memory) {
  HostTeam team;
  WindowSolve<kRotation, kColumns, HostTeam>(window, has_schur, memory, &team)
      .Run(options);
}

// A function for each kind, for the processor's vectors.
#define CERES_EXT_RUN_WINDOW(name, rotation, columns)           \
  CERES_EXT_SIMD_CLONES __attribute__((flatten)) void name(     \
      const Window& window,                                     \
      bool has_schur,                                           \
      const TrustRegionOptions& options,                        \
      double* memory) {                                         \
    Run<rotation, columns>(window, has_schur, options, memory); \
  }
CERES_EXT_RUN_WINDOW(Run9Of9, 3, 9)
CERES_EXT_RUN_WINDOW(Run6Of9, 3, 6)
CERES_EXT_RUN_WINDOW(Run10Of10, 4, 10)
CERES_EXT_RUN_WINDOW(Run9Of10, 4, 9)
CERES_EXT_RUN_WINDOW(Run6Of10, 4, 6)
#undef CERES_EXT_RUN_WINDOW

}  // namespace

void SolveWindowOnHost(const WindowKind& kind,
                       bool has_schur,
                       const TrustRegionOptions& options,
                       const WindowRecord& record,
                       const kernels::RobustLoss* losses,
                       const unsigned char* inputs,
                       unsigned char* outputs,
                       std::vector<double>* memory) {
  const int64_t size = TeamLayout(kind.num_columns,
                                  record.counts.num_cameras,
                                  record.counts.chunk_rows,
                                  record.counts.chunk_words,
                                  has_schur)
                           .size;
  const int64_t scratch_size = WindowScratch(kind.camera_size,
                                             kind.num_columns,
                                             record.counts,
                                             has_schur,
                                             /*is_shared=*/false)
                                   .size;
  if (static_cast<int64_t>(memory->size()) < size + scratch_size) {
    memory->resize(size + scratch_size);
  }
  const Window window = ViewWindow(
      kind.camera_size, record, losses, inputs, outputs, memory->data() + size);
  HostTeam team;
  CopyStart(kind.camera_size, record, inputs, window, &team);
  auto* const run = kind.camera_size == 9
                        ? (kind.num_columns == 9 ? &Run9Of9 : &Run6Of9)
                    : kind.num_columns == 10 ? &Run10Of10
                    : kind.num_columns == 9  ? &Run9Of10
                                             : &Run6Of10;
  run(window, has_schur, options, memory->data());
}

}  // namespace ceres_ext
