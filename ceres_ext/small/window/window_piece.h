// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Windows of a batch that are packed, sent and solved together.
//
//   WindowPiece piece(&options);
//   piece.Setup(&packer, summary, begin, end);
//   piece.SetMemory(inputs, outputs);  // of input_bytes() and output_bytes()
//   // each problem i of [begin, end), on any thread
//   piece.Pack(i, &scratch);
//   piece.ListWindows();
//   // each of windows(), by a device (device_windows.h) or
//   piece.SolveOnHost(i, &memory);
//   piece.Finish(i);

#ifndef CERES_EXT_SMALL_WINDOW_WINDOW_PIECE_H_
#define CERES_EXT_SMALL_WINDOW_WINDOW_PIECE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ceres_ext/batch.h"
#include "ceres_ext/small/window/window.h"
#include "ceres_ext/small/window/window_arena.h"
#include "ceres_ext/small/window/window_packer.h"
#include "ceres_ext/solver/trust_region.h"

namespace ceres_ext {

// Uninitialised bytes.
class Bytes {
 public:
  void Reserve(int64_t n) {
    if (n > size_) {
      data_.reset(new double[(n + 7) / 8]);
      size_ = n;
    }
  }
  unsigned char* data() {
    return reinterpret_cast<unsigned char*>(data_.get());
  }

 private:
  std::unique_ptr<double[]> data_;
  int64_t size_ = 0;
};

class WindowPiece {
 public:
  // *options outlives the object.
  explicit WindowPiece(const TrustRegionOptions* options) : options_(options) {}

  // Problems [begin, end) of the packer's batch, whose summaries are those of
  // *summary.
  void Setup(WindowPacker* packer,
             BatchSummary* summary,
             int64_t begin,
             int64_t end);
  void SetMemory(unsigned char* inputs,
                 unsigned char* outputs,
                 bool is_page_locked = false) {
    inputs_ = inputs;
    outputs_ = outputs;
    is_page_locked_ = is_page_locked;
  }

  // Reads problem i. Its summary says whether it is a window, and why not.
  // Throws nothing.
  void Pack(int64_t i, WindowPacker::Scratch* scratch);
  // Lists the problems that Pack has made windows.
  void ListWindows();
  void Clear() { windows_.clear(); }

  // If there is no memory, the window is not changed and not solved.
  void SolveOnHost(int64_t i, std::vector<double>* memory);
  // Writes the values and the summary of a window that has ended. If the window
  // had no memory or an evaluation failed, it becomes a problem for
  // ceres_ext::Solve, which reports the reason.
  void Finish(int64_t i);

  int64_t begin() const { return begin_; }
  int64_t end() const { return end_; }
  const std::vector<int64_t>& windows() const { return windows_; }
  const PackedWindow& packed(int64_t i) const { return packed_[i - begin_]; }
  const std::vector<kernels::RobustLoss>& losses() const {
    return packer_->losses();
  }
  int64_t input_bytes() const { return input_bytes_; }
  int64_t output_bytes() const { return output_bytes_; }
  const unsigned char* inputs() const { return inputs_; }
  unsigned char* outputs() { return outputs_; }
  bool is_page_locked() const { return is_page_locked_; }

 private:
  unsigned char* OutputOf(int64_t i) {
    return outputs_ + packed(i).record.output_begin;
  }
  WindowResult* ResultOf(int64_t i) {
    return reinterpret_cast<WindowResult*>(OutputOf(i));
  }
  std::string TryPack(int64_t i, WindowPacker::Scratch* scratch);

  const TrustRegionOptions* const options_;
  WindowPacker* packer_ = nullptr;
  BatchSummary* summary_ = nullptr;
  int64_t begin_ = 0;
  int64_t end_ = 0;
  std::vector<PackedWindow> packed_;
  std::vector<uint8_t> is_read_;  // of problems: Pack was called
  std::vector<int64_t> windows_;
  int64_t input_bytes_ = 0;
  int64_t output_bytes_ = 0;
  unsigned char* inputs_ = nullptr;
  unsigned char* outputs_ = nullptr;
  bool is_page_locked_ = false;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_SMALL_WINDOW_WINDOW_PIECE_H_
