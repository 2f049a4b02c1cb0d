// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/small/fit/fit_piece.h"

#include <algorithm>
#include <cstring>

#include "ceres_ext/base/failure.h"
#include "ceres_ext/small/batch_summary.h"

namespace ceres_ext {
namespace {

// Ranges begin at multiples of this, which suits all constants.
constexpr int64_t kAlignment = 256;
constexpr int64_t kTaskBytes = int64_t{256} << 10;

int64_t Aligned(int64_t n) {
  return (n + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

void FitPiece::Setup(const FitBatch* fits,
                     BatchSummary* summary,
                     int64_t begin,
                     int64_t end) {
  fits_ = fits;
  summary_ = summary;
  begin_ = begin;
  end_ = end;
  records_.resize(end - begin);
  fit_numbers_.clear();
  fit_numbers_.reserve(end - begin);
}

void FitPiece::Read(int64_t i) {
  ProblemSummary& summary = summary_->problems[i];
  FitRecord& record = records_[i - begin_];
  Failure failure;
  summary.is_window = failure.Guard(false, [&] {
    summary.path_reason = fits_->Read(i, &record);
    record.number = static_cast<int32_t>(i - begin_);
    return summary.path_reason.empty();
  });
  if (failure.has_happened()) {
    AssignOrShorten(failure.sentence(), &summary.path_reason);
  }
}

void FitPiece::ListFits() {
  fit_numbers_.clear();
  listed_[0].clear();
  listed_[1].clear();
  for (int64_t i = begin_; i < end_; ++i) {
    if (summary_->problems[i].is_window) {
      fit_numbers_.push_back(i);
      listed_[FitLanes(fits_->NumRows(i)) == 8 ? 0 : 1].push_back(record(i));
    }
  }
  input_bytes_ = 0;
  output_bytes_ = 0;
  if (!fit_numbers_.empty()) {
    TakeArrays();
  }
}

template <typename T>
FitPiece::Range FitPiece::Take(const T* array,
                               int64_t first,
                               int64_t last,
                               int64_t size) {
  Range range;
  if (array != nullptr && last > first) {
    range.from = array + first * size;
    range.num_bytes = (last - first) * size * static_cast<int64_t>(sizeof(T));
    range.at = input_bytes_;
    input_bytes_ = Aligned(input_bytes_ + range.num_bytes);
    ranges_.push_back(range);
  }
  return range;
}

void FitPiece::TakeArrays() {
  const ProblemBatch& batch = fits_->batch();
  const auto size_of = [](const auto& vector) {
    return static_cast<int64_t>(vector.size());
  };
  ranges_.clear();
  arrays_.clear();
  output_bytes_ =
      Aligned((end_ - begin_) * static_cast<int64_t>(sizeof(FitResult)));
  for (int s = 0; s < fits_->num_slots(); ++s) {
    const int a = fits_->array_of(s);
    const bool is_known =
        std::any_of(arrays_.begin(), arrays_.end(), [a](const Array& array) {
          return array.array == a;
        });
    const auto& parameters = batch.problem.parameters()[a];
    const int64_t* const begin = batch.parameter_begin[a];
    const int64_t num_blocks = begin[end_] - begin[begin_];
    if (!is_known) {
      Array array;
      array.array = a;
      array.values =
          Take(parameters.values, begin[begin_], begin[end_], parameters.size);
      array.begin = Take(begin, begin_, end_ + 1);
      if (!batch.parameter_is_active.empty()) {
        array.is_active =
            Take(batch.parameter_is_active[a], begin[begin_], begin[end_]);
      }
      arrays_.push_back(array);
    }
    if ((fits_->may_vary() >> s & 1) != 0) {
      auto& array =
          *std::find_if(arrays_.begin(), arrays_.end(), [a](const Array& one) {
            return one.array == a;
          });
      array.result_at = output_bytes_;
      output_bytes_ =
          Aligned(output_bytes_ + num_blocks * parameters.size *
                                      static_cast<int64_t>(sizeof(double)));
    }
  }
  for (size_t e = 0; e < fits_->residuals().size(); ++e) {
    const int r = fits_->residuals()[e];
    const auto& residuals = batch.problem.residuals()[r];
    const int64_t* const begin = batch.residual_begin[r];
    const int64_t first = begin[begin_];
    const int64_t last = begin[end_];
    Rows& rows = rows_[e];
    rows = Rows();
    rows.constants =
        Take(static_cast<const unsigned char*>(residuals.constants),
             first,
             last,
             residuals.constants_bytes);
    for (int s = 0; s < fits_->num_slots(); ++s) {
      rows.block[s] = Take(residuals.blocks[s].block, first, last);
    }
    rows.weights = Take(residuals.weights, first, last);
    if (!batch.residual_is_active.empty()) {
      rows.is_active = Take(batch.residual_is_active[r], first, last);
    }
    rows.begin = Take(begin, begin_, end_ + 1);
  }
  losses_ = Take(fits_->losses().data(), 0, size_of(fits_->losses()));
  factors_ = Take(fits_->factors().data(), 0, size_of(fits_->factors()));
  factor_begin_ =
      Take(fits_->factor_begin().data(), 0, size_of(fits_->factor_begin()));
  for (int l = 0; l < 2; ++l) {
    records_of_[l] = Take(listed_[l].data(), 0, size_of(listed_[l]));
  }
  tasks_.clear();
  for (const Range& range : ranges_) {
    for (int64_t at = 0; at < range.num_bytes; at += kTaskBytes) {
      tasks_.push_back({range.at + at,
                        static_cast<const unsigned char*>(range.from) + at,
                        std::min(kTaskBytes, range.num_bytes - at)});
    }
  }
}

void FitPiece::Fill(int64_t task) {
  const Task& one = tasks_[task];
  std::memcpy(inputs_ + one.to, one.from, static_cast<size_t>(one.num_bytes));
}

const FitPiece::Array& FitPiece::ArrayOf(int s) const {
  return *std::find_if(arrays_.begin(), arrays_.end(), [&](const Array& array) {
    return array.array == fits_->array_of(s);
  });
}

template <typename Place>
FitParams FitPiece::MakeParams(const Place& place,
                               unsigned char* outputs) const {
  const auto set = [&place](const Range& range, auto** to) {
    using T = std::remove_pointer_t<std::remove_pointer_t<decltype(to)>>;
    *to = range.from == nullptr ? nullptr : static_cast<T*>(place(range));
  };
  const ProblemBatch& batch = fits_->batch();
  FitParams params;
  params.options = *options_;
  params.results = reinterpret_cast<FitResult*>(outputs);
  params.num_arrays = static_cast<int32_t>(fits_->residuals().size());
  set(losses_, &params.losses);
  set(factors_, &params.factors);
  set(factor_begin_, &params.factor_begin);
  for (int s = 0; s < fits_->num_slots(); ++s) {
    const Array& array = ArrayOf(s);
    FitSlot& slot = params.slots[s];
    set(array.values, &slot.values);
    set(array.begin, &slot.begin);
    set(array.is_active, &slot.is_active);
    slot.first = batch.parameter_begin[array.array][begin_];
    slot.results = reinterpret_cast<double*>(outputs + array.result_at);
  }
  for (int e = 0; e < params.num_arrays; ++e) {
    FitRows& rows = params.rows[e];
    set(rows_[e].constants, &rows.constants);
    for (int s = 0; s < kMaxFitSlots; ++s) {
      set(rows_[e].block[s], &rows.block[s]);
    }
    set(rows_[e].weights, &rows.weights);
    set(rows_[e].is_active, &rows.is_active);
    set(rows_[e].begin, &rows.begin);
    rows.first = batch.residual_begin[fits_->residuals()[e]][begin_];
    rows.loss = fits_->loss(e);
  }
  return params;
}

FitParams FitPiece::ParamsOnDevice(int lanes,
                                   const unsigned char* inputs,
                                   unsigned char* outputs) const {
  const auto place = [inputs](const Range& range) -> const void* {
    return inputs + range.at;
  };
  const int l = lanes == 8 ? 0 : 1;
  FitParams params = MakeParams(place, outputs);
  params.num_fits = static_cast<int64_t>(listed_[l].size());
  params.records =
      reinterpret_cast<const FitRecord*>(inputs + records_of_[l].at);
  return params;
}

void FitPiece::SolveOnHost(int64_t i, FitWorkspace* workspace) {
  Failure failure;
  *ResultOf(i) = FitResult();
  failure.Guard(false, [&] {
    const auto place = [](const Range& range) { return range.from; };
    SolveFitOnHost(*fits_, MakeParams(place, outputs_), record(i), workspace);
    return true;
  });
}

void FitPiece::Finish(int64_t i) {
  ProblemSummary& summary = summary_->problems[i];
  const FitResult& result = *ResultOf(i);
  Failure failure;
  if (result.status != FitResult::kSolved ||
      result.region.end() <= TrustRegionEnd::kEvaluation) {
    // ceres_ext::Solve reports what is not valid.
    summary.is_window = false;
    AssignOrShorten(
        result.status == FitResult::kEmpty
            ? "no residual block depends on a parameter block that varies"
        : result.status == FitResult::kNotValid
            ? "a value or an index is not valid"
        : result.status == FitResult::kNone
            ? "there was no memory for the dense problem"
            : "an evaluation of the dense problem failed",
        &summary.path_reason);
    return;
  }
  failure.Guard(false, [&] {
    Summarize(result.region, *options_, /*fixed_cost=*/0.0, &summary);
    return true;
  });
  if (!summary.IsSolutionUsable()) {
    return;
  }
  for (int s = 0; s < fits_->num_slots(); ++s) {
    if ((record(i).varying >> s & 1) == 0) {
      continue;
    }
    const Array& array = ArrayOf(s);
    const auto& parameters = fits_->batch().problem.parameters()[array.array];
    const int64_t* const begin = fits_->batch().parameter_begin[array.array];
    const auto* const results =
        reinterpret_cast<const double*>(outputs_ + array.result_at);
    std::copy_n(results + parameters.size * (begin[i] - begin[begin_]),
                parameters.size,
                parameters.values + parameters.size * begin[i]);
  }
}

}  // namespace ceres_ext
