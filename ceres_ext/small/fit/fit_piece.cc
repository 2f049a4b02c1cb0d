// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/small/fit/fit_piece.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace ceres_ext {

using kernels::Status;

namespace {

// Ranges begin at multiples of this, which suits all constants.
constexpr int64_t kAlignment = 256;
constexpr int64_t kTaskBytes = int64_t{256} << 10;

int64_t Aligned(int64_t n) {
  return (n + kAlignment - 1) / kAlignment * kAlignment;
}

// Queues the solution of fits by a kernel of the model's form. A template,
// so that a build without CUDA does not compile its body.
template <typename Machine>
Status LaunchFits([[maybe_unused]] const kernels::ModelForm& form,
                  [[maybe_unused]] int kernel,
                  [[maybe_unused]] const FitParams& params,
                  [[maybe_unused]] Machine* machine) {
  if constexpr (!kIsHost<Machine>) {
    const int num_teams = kFitBlock / (kernel == 0 ? 8 : 32);
    const int error =
        kernels::LaunchForm(form,
                            kernel,
                            machine->context()->device(),
                            machine->stream(),
                            (params.num_fits + num_teams - 1) / num_teams,
                            kFitBlock,
                            params);
    if (error != 0) {
      return {kernels::StatusCode::kDeviceError,
              std::string("Launch of SolveFitsKernel failed: ") +
                  form.error_string(error) + "."};
    }
  }
  return {};
}

}  // namespace

void FitPiece::SetKind(SmallKind* kind) {
  fits_ = static_cast<const FitBatch*>(kind);
  records_.resize(end_ - begin_);
}

std::string FitPiece::WhyNot(int64_t i) {
  FitRecord& record = records_[i - begin_];
  std::string reason = fits_->Read(i, &record);
  record.number = static_cast<int32_t>(i - begin_);
  return reason;
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
    range.at = bytes_.inputs;
    bytes_.inputs = Aligned(bytes_.inputs + range.num_bytes);
    ranges_.push_back(range);
  }
  return range;
}

void FitPiece::Measure() {
  for (std::vector<FitRecord>& listed : listed_) {
    listed.clear();
  }
  for (const int64_t i : numbers()) {
    const int kernel = record(i).is_bounded               ? 2
                       : FitLanes(fits_->NumRows(i)) == 8 ? 0
                                                          : 1;
    listed_[kernel].push_back(record(i));
  }
  const ProblemBatch& batch = fits_->batch();
  const auto size_of = [](const auto& vector) {
    return static_cast<int64_t>(vector.size());
  };
  ranges_.clear();
  arrays_.clear();
  bytes_.outputs =
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
      const auto take_bounds = [&](const double* of_all,
                                   const double* of_each) {
        return of_each != nullptr
                   ? Take(of_each, begin[begin_], begin[end_], parameters.size)
                   : Take(of_all, 0, 1, parameters.size);
      };
      if (!listed_[2].empty()) {
        array.lower =
            take_bounds(parameters.lower_bound, parameters.lower_bounds);
        array.upper =
            take_bounds(parameters.upper_bound, parameters.upper_bounds);
      }
      array.result_at = bytes_.outputs;
      bytes_.outputs =
          Aligned(bytes_.outputs + num_blocks * parameters.size *
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
  const ManifoldTable& manifolds = fits_->manifolds();
  factors_ = Take(manifolds.factors().data(), 0, size_of(manifolds.factors()));
  factor_begin_ = Take(
      manifolds.factor_begin().data(), 0, size_of(manifolds.factor_begin()));
  for (int l = 0; l < kNumFitKernels; ++l) {
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

void FitPiece::Copy(int64_t task) {
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
    const auto& parameters = batch.problem.parameters()[array.array];
    set(array.lower, &slot.lower);
    set(array.upper, &slot.upper);
    slot.has_lower_of_blocks = parameters.lower_bounds != nullptr;
    slot.has_upper_of_blocks = parameters.upper_bounds != nullptr;
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

Status FitPiece::Launch([[maybe_unused]] const unsigned char* inputs,
                        [[maybe_unused]] unsigned char* outputs,
                        [[maybe_unused]] const int32_t* stop,
                        bool /*may_share*/,
                        [[maybe_unused]] DeviceMachine* machine) {
  const auto place = [inputs](const Range& range) -> const void* {
    return inputs + range.at;
  };
  for (int l = 0; l < kNumFitKernels; ++l) {
    if (listed_[l].empty()) {
      continue;
    }
    FitParams params = MakeParams(place, outputs);
    params.num_fits = static_cast<int64_t>(listed_[l].size());
    params.records =
        reinterpret_cast<const FitRecord*>(inputs + records_of_[l].at);
    if (params.options.stop != nullptr) {
      params.options.stop = stop;
    }
    CERES_EXT_RETURN_IF_ERROR(LaunchFits(
        *fits_->model().GetForm(FormKind::kFits), l, params, machine));
  }
  return {};
}

SmallBytes FitPiece::SetCapacity(const WindowCapacity& capacity) {
  // Ranges with paddings, values with bounds. Constants of rows may have 40
  // bytes: an observation and the coordinates of its point.
  const auto clamp = [](int64_t n) {
    return std::min<int64_t>(n, std::numeric_limits<int32_t>::max() / 2);
  };
  const int64_t num_cameras = clamp(capacity.num_cameras);
  constexpr int64_t kCameraSize = 11;  // at most
  constexpr int64_t kOfEach =
      sizeof(FitRecord) + 8 * (kMaxFitSlots + kMaxFitArrays);
  return {
      (int64_t{1} << 16) + capacity.num_problems *
                               (kOfEach + num_cameras * (24 * kCameraSize + 1) +
                                clamp(capacity.num_points) * (3 * 8 + 1) +
                                clamp(capacity.num_rows) * (40 + 3 * 4 + 9)),
      (int64_t{1} << 12) +
          capacity.num_problems * (static_cast<int64_t>(sizeof(FitResult)) +
                                   num_cameras * 8 * kCameraSize)};
}

ReducedSize FitPiece::SizeOf(int64_t i) const {
  ReducedSize size;
  size.linear_solver_type = ceres::DENSE_NORMAL_CHOLESKY;
  size.is_constrained = record(i).is_bounded;
  for (int s = 0; s < fits_->num_slots(); ++s) {
    if ((record(i).varying >> s & 1) != 0) {
      ++size.num_parameter_blocks;
      size.num_parameters += fits_->slot_size(s);
      size.num_effective_parameters +=
          fits_->ManifoldOf(record(i), s).tangent_size();
    }
  }
  size.num_residual_blocks = ResultOf(i)->num_rows;
  size.num_residuals = size.num_residual_blocks * fits_->model().num_residuals;
  return size;
}

void FitPiece::TrySolve(int64_t i, SmallWorkspace* workspace) {
  *ResultOf(i) = FitResult();
  const auto place = [](const Range& range) { return range.from; };
  SolveFitOnHost(*fits_,
                 MakeParams(place, outputs_),
                 record(i),
                 static_cast<FitWorkspace*>(workspace));
}

const char* FitPiece::WhyNotSolved(int64_t i) const {
  // ceres_ext::Solve reports what is not valid.
  switch (ResultOf(i)->status) {
    case FitResult::kNone:
      return "there was no memory for the dense problem";
    case FitResult::kEmpty:
      return "no residual block depends on a parameter block that varies";
    case FitResult::kNotValid:
      return "a value or an index is not valid";
    case FitResult::kSolved:
      break;
  }
  return RegionOf(i).end() <= TrustRegionEnd::kEvaluation
             ? "an evaluation of the dense problem failed"
             : nullptr;
}

void FitPiece::Unpack(int64_t i) const {
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
