// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The solution of a window by one or several threads, for the processor's
// vectors.
#ifndef CERES_EXT_SMALL_WINDOW_WINDOW_ON_HOST_H_
#define CERES_EXT_SMALL_WINDOW_WINDOW_ON_HOST_H_

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <thread>

#include "ceres_ext/small/window/loop.h"
#include "ceres_ext/small/window/window_host.h"
#include "cuda_kernels/base/simd.h"

namespace ceres_ext {

// A place where the threads of a window wait for each other.
struct HostMeeting {
  std::atomic<int> num_waiting{0};
  std::atomic<int> round{0};
  // Values that the threads exchange, in two sets that are used in turns.
  double values[2][WindowScratch::kMaxBlocks][WindowScratch::kValues];
};

// One thread. Several that solve a window are blocks of one thread each.
class HostTeam {
 public:
  // rows: memory of all rows of the window. *meeting outlives the object.
  HostTeam(int block, int num_blocks, double* rows, HostMeeting* meeting)
      : block_(block),
        num_blocks_(num_blocks),
        rows_(rows),
        meeting_(meeting) {}

  // Whole blocks: the loops over a row of one are vectors.
  template <int kColumns>
  static constexpr int kTile = kColumns;

  template <int kTile>
  static constexpr int kWidth = (kTile + 3) / 4 * 4;
  template <int kColumns>
  static constexpr int kHigh = kColumns == 10 ? 5 : 3;
  template <int kColumns>
  static constexpr int kTall = kColumns;
  // All rows of the window stay in memory until the step is taken.
  static constexpr bool kKeepsRows = true;
  double* rows() const { return rows_; }
  static constexpr bool kRepeats = true;
  uint16_t* earlier() { return earlier_; }

  static int rank() { return 0; }
  static int size() { return 1; }
  static void Barrier() {}
  int block() const { return block_; }
  int num_blocks() const { return num_blocks_; }
  void Join() {
    if (num_blocks_ == 1) {
      return;
    }
    const int round = meeting_->round.load(std::memory_order_relaxed);
    if (meeting_->num_waiting.fetch_add(1, std::memory_order_acq_rel) ==
        num_blocks_ - 1) {
      meeting_->num_waiting.store(0, std::memory_order_relaxed);
      meeting_->round.store(round + 1, std::memory_order_release);
      return;
    }
    const auto is_over = [&] {
      return meeting_->round.load(std::memory_order_acquire) != round;
    };
    constexpr int kNumSpins = 100;
    for (int i = 0; i < kNumSpins; ++i) {
      if (is_over()) {
        return;
      }
      Pause();
    }
    const auto start = std::chrono::steady_clock::now();
    while (!is_over()) {
      // The others may have no processor.
      std::this_thread::yield();
    }
    wait_ += std::chrono::steady_clock::now() - start;
  }
  // How long this thread has waited for others.
  std::chrono::steady_clock::duration wait() const { return wait_; }
  template <typename T>
  static T* Own(T* pointer) {
    return pointer;
  }
  static constexpr int kWarp = 1;
  static void WarpBarrier() {}
  static uint64_t Ballot(bool value) { return value ? 1 : 0; }
  static constexpr bool kHasFloat = false;
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
  void Max(double (&values)[n]) {
    static_assert(n <= WindowScratch::kValues, "room in the exchange");
    if (num_blocks_ == 1) {
      return;
    }
    auto* const of_blocks = meeting_->values[turn_];
    turn_ = 1 - turn_;
    for (int i = 0; i < n; ++i) {
      of_blocks[block_][i] = values[i];
    }
    Join();
    for (int b = 0; b < num_blocks_; ++b) {
      for (int i = 0; i < n; ++i) {
        values[i] = Larger(values[i], of_blocks[b][i]);
      }
    }
  }
  static void Or(uint64_t bits, uint64_t* to) { *to |= bits; }
  static int FirstBit(uint64_t bits) { return __builtin_ctzll(bits); }

 private:
  static void Pause() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
  }
  // NaN if one is NaN.
  static double Larger(double a, double b) {
    return a != a || !(b <= a) ? (a != a ? a : b) : a;
  }

  const int block_;
  const int num_blocks_;
  double* const rows_;
  HostMeeting* const meeting_;
  int turn_ = 0;
  std::chrono::steady_clock::duration wait_{0};
  uint16_t earlier_[kMaxChunkRows];
};

// Defines a RunWindow of a class of rows. Files that use it are compiled
// without fused operations, which gives all instruction sets the same bits.
#define CERES_EXT_RUN_WINDOW(name, Rows)                           \
  CERES_EXT_SIMD_CLONES __attribute__((flatten)) void name(        \
      const WindowRecord& record,                                  \
      const unsigned char* inputs,                                 \
      const Window& in,                                            \
      bool has_schur,                                              \
      const LoopOptions& options,                                  \
      double* memory,                                              \
      HostTeam* team) {                                            \
    window::TeamWindow<Rows, HostTeam> solve(in,                   \
                                             Rows(record, inputs), \
                                             has_schur,            \
                                             /*is_mixed=*/false,   \
                                             memory,               \
                                             team);                \
    window::Run(solve, options);                                   \
  }

}  // namespace ceres_ext

#endif  // CERES_EXT_SMALL_WINDOW_WINDOW_ON_HOST_H_
