// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/small/window/window_host.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "ceres_ext/small/window/bal_rows.h"
#include "ceres_ext/small/window/window_on_host.h"
#include "cuda_kernels/base/simd.h"

namespace ceres_ext {
namespace {

// Rows for which one more thread pays off.
constexpr int32_t kRowsPerThread = 512;

// Threads of a window wait long for each other if other programs have their
// processors. Then one thread alone is faster. So after a window whose threads
// waited long, one thread solves each of the next ones, the more of them the
// more often that happens in succession. Bits are the same.
class Crowding {
 public:
  // True if the threads may solve the next window together.
  bool MayTry() {
    return num_alone_.fetch_sub(1, std::memory_order_relaxed) <= 0;
  }

  void Note(std::chrono::steady_clock::duration wait,
            std::chrono::steady_clock::duration total) {
    constexpr int kMostAlone = 1024;
    const int before = penalty_.load(std::memory_order_relaxed);
    const bool is_crowded = wait > total / 3;
    const int penalty =
        is_crowded ? std::min(2 * before, kMostAlone) : std::max(before / 2, 8);
    penalty_.store(penalty, std::memory_order_relaxed);
    num_alone_.store(is_crowded ? penalty : 0, std::memory_order_relaxed);
  }

 private:
  std::atomic<int> num_alone_{0};
  std::atomic<int> penalty_{8};
};

Crowding& CrowdingOfProcess() {
  static Crowding crowding;
  return crowding;
}

using Rows9Of9 = BalRows<3, 9>;
using Rows6Of9 = BalRows<3, 6>;
using Rows10Of10 = BalRows<4, 10>;
using Rows9Of10 = BalRows<4, 9>;
using Rows6Of10 = BalRows<4, 6>;
CERES_EXT_RUN_WINDOW(Run9Of9, Rows9Of9)
CERES_EXT_RUN_WINDOW(Run6Of9, Rows6Of9)
CERES_EXT_RUN_WINDOW(Run10Of10, Rows10Of10)
CERES_EXT_RUN_WINDOW(Run9Of10, Rows9Of10)
CERES_EXT_RUN_WINDOW(Run6Of10, Rows6Of10)

}  // namespace

RunWindow RunBalWindow(const WindowKind& kind) {
  return kind.camera_size == 9 ? (kind.num_columns == 9 ? &Run9Of9 : &Run6Of9)
         : kind.num_columns == 10 ? &Run10Of10
         : kind.num_columns == 9  ? &Run9Of10
                                  : &Run6Of10;
}

void SolveWindowOnHost(RunWindow run,
                       const WindowKind& kind,
                       bool has_schur,
                       const LoopOptions& options,
                       const WindowRecord& record,
                       const kernels::RobustLoss* losses,
                       const unsigned char* inputs,
                       unsigned char* outputs,
                       kernels::HostContext* context,
                       std::vector<double>* memory) {
  int num_threads =
      context == nullptr
          ? 1
          : std::min({context->num_threads(),
                      1 + record.counts.num_rows / kRowsPerThread,
                      static_cast<int>(WindowScratch::kMaxBlocks)});
  if (num_threads > 1 && !CrowdingOfProcess().MayTry()) {
    num_threads = 1;
  }
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
                                             /*is_shared=*/num_threads > 1)
                                   .size;
  const int64_t of_threads = size * num_threads;
  const int64_t of_rows =
      int64_t{WindowRowSize(kind.num_columns)} * record.counts.num_rows;
  const int64_t of_all = of_threads + scratch_size + of_rows;
  if (static_cast<int64_t>(memory->size()) < of_all) {
    memory->resize(of_all);
  }
  const Window window = ViewWindow(kind.camera_size,
                                   record,
                                   losses,
                                   inputs,
                                   outputs,
                                   memory->data() + of_threads);
  double* const rows = memory->data() + of_threads + scratch_size;
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  Clock::duration wait{0};  // of the first block
  HostMeeting meeting;
  const auto solve = [&](int64_t block, int64_t /*end*/) {
    HostTeam team(static_cast<int>(block), num_threads, rows, &meeting);
    CopyStart(kind.camera_size, record, inputs, window, &team);
    run(record,
        inputs,
        window,
        has_schur,
        options,
        memory->data() + size * block,
        &team);
    if (block == 0) {
      wait = team.wait();
    }
  };
  if (num_threads == 1) {
    solve(0, 1);
  } else {
    context->RunTogether(num_threads, solve);
    CrowdingOfProcess().Note(wait, Clock::now() - start);
  }
}

}  // namespace ceres_ext
