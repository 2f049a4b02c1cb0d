// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/small/window/window_launcher.h"

#include <algorithm>

#include "ceres_ext/small/window/pose_windows.h"

namespace ceres_ext {

using kernels::Status;

template <typename Machine>
auto WindowLauncher<Machine>::MakeGroups(
    const std::vector<const PackedWindow*>& windows,
    [[maybe_unused]] bool may_share) const -> std::vector<Group> {
  std::vector<Group> groups;
  for (const PackedWindow* const window : windows) {
    const WindowCounts& counts = window->record.counts;
    const int num_threads = WindowClassOf(counts.num_cameras).num_threads;
    auto group =
        std::find_if(groups.begin(), groups.end(), [&](const Group& g) {
          return g.kind == window->kind && g.has_schur == window->has_schur &&
                 g.num_threads == num_threads;
        });
    if (group == groups.end()) {
      group = groups.insert(group, Group());
      group->kind = window->kind;
      group->has_schur = window->has_schur;
      group->num_threads = num_threads;
    }
    const int64_t team_size = TeamLayout(window->kind.num_columns,
                                         counts.num_cameras,
                                         counts.chunk_rows,
                                         counts.chunk_words,
                                         window->has_schur)
                                  .size;
    const auto scratch_size = [&](bool is_shared) {
      return WindowScratch(window->kind.camera_size,
                           window->kind.num_columns,
                           counts,
                           window->has_schur,
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
    group->windows.push_back(window);
  }
  // Starts the longest windows first, so that none begins when others are done.
  for (Group& group : groups) {
    std::stable_sort(group.windows.begin(),
                     group.windows.end(),
                     [](const PackedWindow* a, const PackedWindow* b) {
                       return a->record.counts.num_rows >
                              b->record.counts.num_rows;
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
int64_t WindowLauncher<Machine>::MaxSharedScratch() const {
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
Status WindowLauncher<Machine>::Reserve(
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
    const int64_t num_multiprocessors =
        machine_->context()->num_multiprocessors();
    reserved_scratch_ = std::max(
        bounds.scratch_per_multiprocessor * num_multiprocessors,
        std::min(bounds.shared_scratch *
                     std::min(bounds.num_problems, num_multiprocessors / 2),
                 MaxSharedScratch()));
    return machine_->Allocate(reserved_scratch_, &scratch_);
  }
}

template <typename Machine>
Status WindowLauncher<Machine>::Launch(
    [[maybe_unused]] const std::vector<const PackedWindow*>& windows,
    [[maybe_unused]] const std::vector<kernels::RobustLoss>& losses,
    [[maybe_unused]] bool may_share,
    [[maybe_unused]] SolveWindowsParams* params) {
  if constexpr (kIsHost<Machine>) {
    return {kernels::StatusCode::kUnsupported, "this build has no CUDA"};
  } else {
    const std::vector<Group> groups = MakeGroups(windows, may_share);
    std::vector<WindowRecord> records;
    int64_t scratch_size = 0;
    for (const Group& group : groups) {
      for (const PackedWindow* const window : group.windows) {
        records.push_back(window->record);
      }
      scratch_size = std::max(scratch_size,
                              group.grid.scratch_size * group.grid.num_teams);
    }
    CERES_EXT_RETURN_IF_ERROR(machine_->Upload(losses, &losses_));
    CERES_EXT_RETURN_IF_ERROR(machine_->Upload(records, &records_));
    CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(scratch_size, &scratch_));
    CERES_EXT_RETURN_IF_ERROR(
        machine_->Allocate(static_cast<int64_t>(groups.size()), &queues_));
    CERES_EXT_RETURN_IF_ERROR(
        machine_->SetZero(queues_.size(), queues_.data()));
    params->losses = losses_.data();
    params->scratch = scratch_.data();
    params->records = records_.data();
    params->queue = queues_.data();
    for (const Group& group : groups) {
      params->has_schur = group.has_schur;
      params->num_windows = group.num_windows;
      params->scratch_size = group.grid.scratch_size;
      CERES_EXT_RETURN_IF_ERROR(SolveWindows(group.kernel,
                                             *params,
                                             group.grid,
                                             group.num_threads,
                                             group.team_bytes,
                                             machine_->stream()));
      params->records += group.windows.size();
      ++params->queue;
    }
    return {};
  }
}

template class WindowLauncher<DeviceMachine>;

}  // namespace ceres_ext
