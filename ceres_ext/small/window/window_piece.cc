// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/small/window/window_piece.h"

#include "ceres_ext/base/failure.h"
#include "ceres_ext/small/batch_summary.h"
#include "ceres_ext/small/window/pose_windows.h"
#include "ceres_ext/small/window/window_host.h"

namespace ceres_ext {

void WindowPiece::Setup(WindowPacker* packer,
                        BatchSummary* summary,
                        int64_t begin,
                        int64_t end) {
  packer_ = packer;
  summary_ = summary;
  begin_ = begin;
  end_ = end;
  packed_.resize(end - begin);
  is_read_.assign(end - begin, 0);
  windows_.clear();
  windows_.reserve(end - begin);
  input_bytes_ = packer->input_begin(end) - packer->input_begin(begin);
  output_bytes_ = packer->output_begin(end) - packer->output_begin(begin);
}

std::string WindowPiece::TryPack(int64_t i, WindowPacker::Scratch* scratch) {
  PackedWindow& window = packed_[i - begin_];
  WindowRecord& record = window.record;
  record.input_begin = packer_->input_begin(i) - packer_->input_begin(begin_);
  record.output_begin =
      packer_->output_begin(i) - packer_->output_begin(begin_);
  std::string reason =
      packer_->Pack(i, scratch, inputs_ + record.input_begin, &window);
  if (reason.empty()) {
    // The result if the window is not solved.
    *ResultOf(i) = WindowResult();
  }
  return reason;
}

void WindowPiece::Pack(int64_t i, WindowPacker::Scratch* scratch) {
  ProblemSummary& summary = summary_->problems[i];
  Failure failure;
  is_read_[i - begin_] = 1;
  summary.is_window = failure.Guard(false, [&] {
    summary.path_reason = TryPack(i, scratch);
    return summary.path_reason.empty();
  });
  if (failure.has_happened()) {
    AssignOrShorten(failure.sentence(), &summary.path_reason);
  }
}

void WindowPiece::ListWindows() {
  windows_.clear();
  for (int64_t i = begin_; i < end_; ++i) {
    if (is_read_[i - begin_] != 0 && summary_->problems[i].is_window) {
      windows_.push_back(i);
    }
  }
}

void WindowPiece::SolveOnHost(int64_t i, std::vector<double>* memory) {
  const PackedWindow& window = packed(i);
  Failure failure;
  failure.Guard(false, [&] {
    SolveWindowOnHost(window.kind.has_own_intrinsics() ? &RunOwnIntrinsicsWindow
                      : window.kind.has_poses()        ? &RunPoseWindow
                                                : RunBalWindow(window.kind),
                      window.kind,
                      window.has_schur,
                      *options_,
                      window.record,
                      losses().data(),
                      inputs_,
                      outputs_,
                      memory);
    return true;
  });
}

void WindowPiece::Finish(int64_t i) {
  ProblemSummary& summary = summary_->problems[i];
  const TrustRegion& region = ResultOf(i)->region;
  Failure failure;
  if (region.end() <= TrustRegionEnd::kEvaluation) {
    // ceres_ext::Solve reports which observations failed.
    summary.is_window = false;
    AssignOrShorten(region.end() == TrustRegionEnd::kNone
                        ? "there was no memory for the window"
                        : "an evaluation of the window failed",
                    &summary.path_reason);
    return;
  }
  failure.Guard(false, [&] {
    Summarize(region, *options_, packed(i).fixed_cost, &summary);
    return true;
  });
  if (summary.IsSolutionUsable()) {
    packer_->Unpack(i, packed(i), OutputOf(i));
  }
}

}  // namespace ceres_ext
