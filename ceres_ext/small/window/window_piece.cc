// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/small/window/window_piece.h"

#include "ceres_ext/small/window/pose_windows.h"
#include "ceres_ext/small/window/window_host.h"

namespace ceres_ext {

void WindowPiece::SetKind(SmallKind* kind) {
  packer_ = static_cast<WindowPacker*>(kind);
  packed_.resize(end_ - begin_);
  bytes_ = packer_->BytesOf(begin_, end_);
}

void WindowPiece::Measure() { bytes_ = packer_->BytesOf(begin_, end_); }

SmallBytes WindowPiece::SetCapacity(const WindowCapacity& capacity) {
  bounds_ = std::make_unique<WindowBounds>(capacity);
  return bounds_->bytes;
}

std::unique_ptr<SmallWorkspace> WindowPiece::MakeWorkspace() const {
  auto workspace = std::make_unique<Workspace>();
  if (bounds_ != nullptr && launcher_ == nullptr) {
    workspace->memory.resize(bounds_->host_size);
  }
  return workspace;
}

std::string WindowPiece::TryPack(int64_t i, SmallWorkspace* workspace) {
  PackedWindow& window = packed_[i - begin_];
  WindowRecord& record = window.record;
  record.input_begin = packer_->BytesOf(begin_, i).inputs;
  record.output_begin = packer_->BytesOf(begin_, i).outputs;
  std::string reason =
      packer_->Pack(i,
                    /*may_repeat=*/!is_for_device_,
                    &static_cast<Workspace*>(workspace)->scratch,
                    inputs_ + record.input_begin,
                    &window);
  if (reason.empty()) {
    // The result if the window is not solved.
    *ResultOf(i) = WindowResult();
  }
  return reason;
}

void WindowPiece::TrySolve(int64_t i, SmallWorkspace* workspace) {
  const PackedWindow& window = packed(i);
  SolveWindowOnHost(window.kind.has_own_intrinsics() ? &RunOwnIntrinsicsWindow
                    : window.kind.has_poses()        ? &RunPoseWindow
                                              : RunBalWindow(window.kind),
                    window.kind,
                    window.has_schur,
                    *options_,
                    window.record,
                    packer_->losses().data(),
                    inputs_,
                    outputs_,
                    workspace->team,
                    &static_cast<Workspace*>(workspace)->memory);
}

const char* WindowPiece::WhyNotSolved(int64_t i) const {
  const TrustRegionEnd end = RegionOf(i).end();
  return end > TrustRegionEnd::kEvaluation ? nullptr
         : end == TrustRegionEnd::kNone
             ? "there was no memory for the window"
             // ceres_ext::Solve reports which observations failed.
             : "an evaluation of the window failed";
}

ReducedSize WindowPiece::SizeOf(int64_t i) const {
  const PackedWindow& window = packed(i);
  const WindowCounts& counts = window.record.counts;
  const unsigned char* const input = inputs_ + window.record.input_begin;
  const WindowInput at(window.kind.camera_size,
                       counts,
                       window.record.has_weights,
                       window.record.has_losses);
  const auto* const mask =
      reinterpret_cast<const uint16_t*>(input + at.column_mask);
  ReducedSize size;
  size.linear_solver_type = ceres::DENSE_SCHUR;
  size.is_constrained = counts.has_bounds != 0;
  size.is_mixed = is_for_device_ && options_->is_mixed;
  size.num_parameter_blocks = window.num_camera_blocks + counts.num_points;
  size.num_parameters = window.num_camera_values + 3 * counts.num_points;
  size.num_effective_parameters = 3 * counts.num_points;
  for (int32_t c = 0; c < counts.num_cameras; ++c) {
    size.num_effective_parameters += __builtin_popcount(mask[c]);
  }
  size.num_residual_blocks =
      counts.num_rows + counts.num_priors + counts.num_marginals;
  size.num_residuals = 2 * counts.num_rows + counts.num_marginal_rows;
  const auto* const priors =
      reinterpret_cast<const WindowPrior*>(input + at.priors);
  for (int32_t k = 0; k < counts.num_priors; ++k) {
    size.num_residuals += priors[k].kind == PriorKind::kPosition ? 3 : 6;
  }
  return size;
}

kernels::Status WindowPiece::ReserveOnDevice(DeviceMachine* machine) {
  launcher_ = std::make_unique<WindowLauncher<DeviceMachine>>(machine);
  return launcher_->Reserve(*bounds_);
}

kernels::Status WindowPiece::Launch(const unsigned char* inputs,
                                    unsigned char* outputs,
                                    const int32_t* stop,
                                    bool may_share,
                                    DeviceMachine* machine) {
  if (launcher_ == nullptr) {
    launcher_ = std::make_unique<WindowLauncher<DeviceMachine>>(machine);
  }
  std::vector<const PackedWindow*> windows;
  windows.reserve(numbers().size());
  for (const int64_t i : numbers()) {
    windows.push_back(&packed(i));
  }
  SolveWindowsParams params;
  params.options = *options_;
  params.options.stop = stop;
  params.inputs = inputs;
  params.outputs = outputs;
  return launcher_->Launch(windows, packer_->losses(), may_share, &params);
}

}  // namespace ceres_ext
