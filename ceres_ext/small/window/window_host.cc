// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/small/window/window_host.h"

#include <algorithm>
#include <cstdint>

#include "ceres_ext/small/window/bal_rows.h"
#include "ceres_ext/small/window/window_on_host.h"
#include "cuda_kernels/base/simd.h"

namespace ceres_ext {
namespace {

// Rows for which one more thread pays off.
constexpr int32_t kRowsPerThread = 512;

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
  const int num_threads =
      context == nullptr
          ? 1
          : std::min({context->num_threads(),
                      1 + record.counts.num_rows / kRowsPerThread,
                      static_cast<int>(WindowScratch::kMaxBlocks)});
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
  };
  if (num_threads == 1) {
    solve(0, 1);
  } else {
    context->RunTogether(num_threads, solve);
  }
}

}  // namespace ceres_ext
