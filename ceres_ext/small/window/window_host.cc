// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/small/window/window_host.h"

#include <cstdint>

#include "ceres_ext/small/window/bal_rows.h"
#include "ceres_ext/small/window/window_on_host.h"
#include "cuda_kernels/base/simd.h"

namespace ceres_ext {
namespace {

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
  run(record, inputs, window, has_schur, options, memory->data());
}

}  // namespace ceres_ext
