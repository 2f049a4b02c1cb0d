// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/small/window/device_windows.h"

#include <algorithm>

#include "ceres_ext/small/window/pose_windows.h"
#include "ceres_ext/small/window/window_cuda.h"
#include "cuda_kernels/machine/cuda_queue.h"

namespace ceres_ext {

using kernels::Status;

template <typename Machine>
auto WindowsOnMachine<Machine>::MakeGroups(
    const WindowPiece& piece, [[maybe_unused]] bool may_share) const
    -> std::vector<Group> {
  std::vector<Group> groups;
  for (const int64_t i : piece.windows()) {
    const PackedWindow& window = piece.packed(i);
    const WindowCounts& counts = window.record.counts;
    const int num_threads = WindowThreads(counts.num_cameras);
    auto group =
        std::find_if(groups.begin(), groups.end(), [&](const Group& g) {
          return g.kind == window.kind && g.has_schur == window.has_schur &&
                 g.num_threads == num_threads;
        });
    if (group == groups.end()) {
      group = groups.insert(group, Group());
      group->kind = window.kind;
      group->has_schur = window.has_schur;
      group->num_threads = num_threads;
    }
    const int64_t team_size = TeamLayout(window.kind.num_columns,
                                         counts.num_cameras,
                                         counts.chunk_rows,
                                         counts.chunk_words,
                                         window.has_schur)
                                  .size;
    const auto scratch_size = [&](bool is_shared) {
      return WindowScratch(window.kind.camera_size,
                           window.kind.num_columns,
                           counts,
                           window.has_schur,
                           is_shared)
          .size;
    };
    group->team_bytes = std::max<int64_t>(
        group->team_bytes, team_size * static_cast<int64_t>(sizeof(double)));
    group->scratch_size = std::max(group->scratch_size, scratch_size(false));
    group->shared_scratch_size =
        std::max(group->shared_scratch_size, scratch_size(true));
    group->max_chunks = std::max(group->max_chunks, counts.num_chunks);
    ++group->num_windows;
    group->windows.push_back(i);
  }
  // Starts the longest windows first, so that none begins when others are done.
  for (Group& group : groups) {
    std::stable_sort(
        group.windows.begin(), group.windows.end(), [&](int64_t a, int64_t b) {
          return piece.packed(a).record.counts.num_rows >
                 piece.packed(b).record.counts.num_rows;
        });
    if constexpr (!kIsHost<Machine>) {
      group.kernel = group.kind.has_own_intrinsics()
                         ? OwnIntrinsicsWindowKernel()
                     : group.kind.has_poses() ? PoseWindowKernel()
                                              : BalWindowKernel(group.kind);
      group.grid = ChooseGrid(group.kernel,
                              group,
                              machine_->context()->num_multiprocessors(),
                              may_share ? MaxSharedScratch() : -1);
    }
  }
  return groups;
}

template <typename Machine>
int64_t WindowsOnMachine<Machine>::MaxSharedScratch() const {
  int64_t size = int64_t{64} << 20;
  if constexpr (!kIsHost<Machine>) {
    if (reserved_scratch_ > 0) {
      return reserved_scratch_;
    }
    while (size > 0 &&
           !machine_->context()
                ->CheckLimit(4 * size * static_cast<int64_t>(sizeof(double)))
                .ok()) {
      size /= 2;
    }
  }
  return size;
}

template <typename Machine>
Status WindowsOnMachine<Machine>::Reserve(
    [[maybe_unused]] const WindowBounds& bounds) {
  if constexpr (kIsHost<Machine>) {
    return {kernels::StatusCode::kUnsupported, "this build has no CUDA"};
  } else {
    const CurrentMachine<Machine> current(machine_);
    CERES_EXT_RETURN_IF_ERROR(current.status());
    // Loss chains are numbered by a byte. There are at most 42 groups: 7 kinds,
    // S in one of two memories, 3 numbers of threads.
    CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(256, &losses_));
    CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(7 * 2 * 3, &queues_));
    CERES_EXT_RETURN_IF_ERROR(
        machine_->Allocate(bounds.num_problems, &records_));
    CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(bounds.input_bytes, &inputs_));
    CERES_EXT_RETURN_IF_ERROR(
        machine_->Allocate(bounds.output_bytes, &outputs_));
    const int64_t num_multiprocessors =
        machine_->context()->num_multiprocessors();
    reserved_scratch_ = std::max(
        bounds.scratch_per_multiprocessor * num_multiprocessors,
        std::min(bounds.shared_scratch *
                     std::min(bounds.num_problems, num_multiprocessors / 2),
                 MaxSharedScratch()));
    CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(reserved_scratch_, &scratch_));
    return work_.Setup();
  }
}

template <typename Machine>
Status WindowsOnMachine<Machine>::Start(const TrustRegionOptions& options,
                                        WindowPiece* piece,
                                        bool may_share) {
  Status status = Queue(options, piece, may_share);
  if (!status.ok()) {
    // Work that was queued before uses memory of the piece.
    static_cast<void>(machine_->Synchronize());
  }
  return status;
}

template <typename Machine>
Status WindowsOnMachine<Machine>::Queue(
    [[maybe_unused]] const TrustRegionOptions& options,
    [[maybe_unused]] WindowPiece* piece,
    [[maybe_unused]] bool may_share) {
  if constexpr (kIsHost<Machine>) {
    return {kernels::StatusCode::kUnsupported, "this build has no CUDA"};
  } else {
    const CurrentMachine<Machine> current(machine_);
    CERES_EXT_RETURN_IF_ERROR(current.status());
    const std::vector<Group> groups = MakeGroups(*piece, may_share);
    std::vector<WindowRecord> records;
    int64_t scratch_size = 0;
    for (const Group& group : groups) {
      for (const int64_t i : group.windows) {
        records.push_back(piece->packed(i).record);
      }
      scratch_size = std::max(scratch_size,
                              group.grid.scratch_size * group.grid.num_teams);
    }
    CERES_EXT_RETURN_IF_ERROR(machine_->Upload(piece->losses(), &losses_));
    CERES_EXT_RETURN_IF_ERROR(machine_->Upload(records, &records_));
    CERES_EXT_RETURN_IF_ERROR(
        machine_->Allocate(piece->input_bytes(), &inputs_));
    CERES_EXT_RETURN_IF_ERROR(
        piece->is_page_locked()
            ? kernels::QueueCopyToDevice(inputs_.data(),
                                         piece->inputs(),
                                         piece->input_bytes(),
                                         machine_->stream())
            : machine_->Upload(
                  piece->input_bytes(), piece->inputs(), inputs_.data()));
    CERES_EXT_RETURN_IF_ERROR(
        machine_->Allocate(piece->output_bytes(), &outputs_));
    // All bytes are copied to the host. Windows have room for blocks that do
    // not vary.
    CERES_EXT_RETURN_IF_ERROR(
        machine_->SetZero(piece->output_bytes(), outputs_.data()));
    CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(scratch_size, &scratch_));
    CERES_EXT_RETURN_IF_ERROR(
        machine_->Allocate(static_cast<int64_t>(groups.size()), &queues_));
    CERES_EXT_RETURN_IF_ERROR(
        machine_->SetZero(queues_.size(), queues_.data()));
    CERES_EXT_RETURN_IF_ERROR(work_.Begin());
    SolveWindowsParams params;
    params.options = options;
    params.options.stop = work_.stop();
    params.losses = losses_.data();
    params.inputs = inputs_.data();
    params.outputs = outputs_.data();
    params.scratch = scratch_.data();
    params.records = records_.data();
    params.queue = queues_.data();
    for (const Group& group : groups) {
      params.has_schur = group.has_schur;
      params.num_windows = group.num_windows;
      params.scratch_size = group.grid.scratch_size;
      CERES_EXT_RETURN_IF_ERROR(SolveWindows(group.kernel,
                                             params,
                                             group.grid,
                                             group.num_threads,
                                             group.team_bytes,
                                             machine_->stream()));
      params.records += group.windows.size();
      ++params.queue;
    }
    if (piece->is_page_locked()) {
      CERES_EXT_RETURN_IF_ERROR(machine_->context()->QueueCopyToHost(
          piece->outputs(), outputs_.data(), piece->output_bytes()));
    }
    return work_.End();
  }
}

template <typename Machine>
bool WindowsOnMachine<Machine>::IsDone() const {
  if constexpr (kIsHost<Machine>) {
    return true;
  } else {
    return work_.IsDone();
  }
}

template <typename Machine>
Status WindowsOnMachine<Machine>::Wait([[maybe_unused]] WindowPiece* piece) {
  if constexpr (kIsHost<Machine>) {
    return {};
  } else {
    const CurrentMachine<Machine> current(machine_);
    CERES_EXT_RETURN_IF_ERROR(current.status());
    CERES_EXT_RETURN_IF_ERROR(work_.Wait());
    return piece->is_page_locked()
               ? Status()
               : machine_->Download(
                     piece->output_bytes(), outputs_.data(), piece->outputs());
  }
}

template <typename Machine>
void WindowsOnMachine<Machine>::Stop() {
  if constexpr (!kIsHost<Machine>) {
    work_.Stop();
  }
}

template class WindowsOnMachine<DeviceMachine>;

}  // namespace ceres_ext
