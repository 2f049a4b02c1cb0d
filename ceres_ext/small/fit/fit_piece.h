// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Fits of a batch that are sent and solved together. They are not packed: their
// ranges of the caller's arrays are copied as they are.
//
//   FitPiece piece(&options);
//   piece.Setup(&fits, summary, begin, end);
//   piece.Read(i);          // each problem i of [begin, end), on any thread
//   piece.ListFits();
//   piece.SetMemory(inputs, outputs);  // of input_bytes() and output_bytes()
//   // a device (device_fits.h), after
//   piece.Fill(task);       // each of num_tasks(), on any thread
//   // or the host
//   piece.SolveOnHost(i, &workspace);  // each of fits()
//   piece.Finish(i);

#ifndef CERES_EXT_SMALL_FIT_FIT_PIECE_H_
#define CERES_EXT_SMALL_FIT_FIT_PIECE_H_

#include <cstdint>
#include <type_traits>
#include <vector>

#include "ceres_ext/batch.h"
#include "ceres_ext/small/fit/fit.h"
#include "ceres_ext/small/fit/fit_batch.h"
#include "ceres_ext/small/fit/fit_host.h"
#include "ceres_ext/solver/trust_region.h"

namespace ceres_ext {

class FitPiece {
 public:
  // *options outlives the object.
  explicit FitPiece(const TrustRegionOptions* options) : options_(options) {}

  // Problems [begin, end) of the batch, whose summaries are those of *summary.
  void Setup(const FitBatch* fits,
             BatchSummary* summary,
             int64_t begin,
             int64_t end);
  // The summary of problem i says whether it is a fit, and why not. Throws
  // nothing.
  void Read(int64_t i);
  // Lists the fits, and the ranges of arrays that they need.
  void ListFits();
  void Clear() { fit_numbers_.clear(); }

  void SetMemory(unsigned char* inputs, unsigned char* outputs) {
    inputs_ = inputs;
    outputs_ = outputs;
  }
  // Copies a part of the ranges to `inputs`.
  int64_t num_tasks() const { return static_cast<int64_t>(tasks_.size()); }
  void Fill(int64_t task);

  // The fits with so many lanes, with inputs and outputs in the memory of a
  // device.
  FitParams ParamsOnDevice(int lanes,
                           const unsigned char* inputs,
                           unsigned char* outputs) const;

  // If there is no memory, the fit is not changed and not solved.
  void SolveOnHost(int64_t i, FitWorkspace* workspace);
  // Writes the values and the summary of a fit that has ended. If it is not
  // valid or an evaluation failed, it becomes a problem for ceres_ext::Solve,
  // which reports the reason.
  void Finish(int64_t i);

  int64_t begin() const { return begin_; }
  int64_t end() const { return end_; }
  // Numbers of the problems that are fits.
  const std::vector<int64_t>& fit_numbers() const { return fit_numbers_; }
  const FitRecord& record(int64_t i) const { return records_[i - begin_]; }
  int32_t num_rows(int64_t i) const { return ResultOf(i)->num_rows; }
  const FitBatch& fits() const { return *fits_; }
  int64_t input_bytes() const { return input_bytes_; }
  int64_t output_bytes() const { return output_bytes_; }
  const unsigned char* inputs() const { return inputs_; }
  unsigned char* outputs() { return outputs_; }

 private:
  // A range of an array, and its place in the inputs.
  struct Range {
    const void* from = nullptr;  // null: There is no array.
    int64_t num_bytes = 0;
    int64_t at = 0;
  };
  struct Array {  // of parameters
    int array = -1;
    Range values;
    Range begin;
    Range is_active;
    int64_t result_at = 0;  // in the outputs
  };
  struct Rows {
    Range constants;
    Range block[kMaxFitSlots];
    Range weights;
    Range is_active;
    Range begin;
  };
  struct Task {
    int64_t to = 0;  // in the inputs
    const unsigned char* from = nullptr;
    int64_t num_bytes = 0;
  };

  // The range of elements [first, last) of an array.
  template <typename T>
  Range Take(const T* array, int64_t first, int64_t last, int64_t size = 1);
  void TakeArrays();
  const Array& ArrayOf(int s) const;
  // `place` returns where a range is.
  template <typename Place>
  FitParams MakeParams(const Place& place, unsigned char* outputs) const;
  FitResult* ResultOf(int64_t i) const {
    return reinterpret_cast<FitResult*>(outputs_) + (i - begin_);
  }

  const TrustRegionOptions* const options_;
  const FitBatch* fits_ = nullptr;
  BatchSummary* summary_ = nullptr;
  int64_t begin_ = 0;
  int64_t end_ = 0;
  std::vector<FitRecord> records_;  // of all problems
  std::vector<int64_t> fit_numbers_;
  std::vector<FitRecord> listed_[2];  // with 8 and with 32 lanes
  std::vector<Array> arrays_;
  Rows rows_[kMaxFitArrays];
  Range losses_;
  Range factors_;
  Range factor_begin_;
  Range records_of_[2];
  std::vector<Range> ranges_;
  std::vector<Task> tasks_;
  int64_t input_bytes_ = 0;
  int64_t output_bytes_ = 0;
  unsigned char* inputs_ = nullptr;
  unsigned char* outputs_ = nullptr;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_SMALL_FIT_FIT_PIECE_H_
