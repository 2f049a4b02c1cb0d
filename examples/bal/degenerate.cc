// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "examples/bal/degenerate.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "ceres_ext/bal_cost_functions.h"
#include "cuda_kernels/base/relative_pivot.h"
#include "cuda_kernels/base/small_matrix.h"

namespace ceres_ext::bal {
namespace {

constexpr int32_t kGone = -1;

// The blocks of one kind.
class Blocks {
 public:
  Blocks(bool is_camera, int size, std::vector<double>* values)
      : is_camera_(is_camera),
        size_(size),
        values_(values),
        id_(values->size() / size) {
    std::iota(id_.begin(), id_.end(), 0);
  }

  const double* values(int32_t i) const {
    return values_->data() + int64_t{size_} * i;
  }
  // Before the observations of a round.
  void Begin() {
    matrices_.assign(id_.size() * kernels::PackedSize(size_), 0.0);
    num_observations_.assign(id_.size(), 0);
  }
  // The error of an observation; jacobian: 2 x size.
  void Add(int32_t i, const double* jacobian) {
    double* const a = Matrix(i);
    for (int r = 0; r < size_; ++r) {
      for (int c = 0; c <= r; ++c) {
        a[kernels::PackedIndex(r, c)] +=
            jacobian[r] * jacobian[c] +
            jacobian[size_ + r] * jacobian[size_ + c];
      }
    }
  }
  void Count(int32_t i) { ++num_observations_[i]; }

  // Takes degenerate blocks out, and appends them to *removed.
  void Remove(int32_t round, std::vector<DegenerateBlock>* removed) {
    place_.assign(id_.size(), kGone);
    int32_t n = 0;
    for (int32_t i = 0; i < static_cast<int32_t>(id_.size()); ++i) {
      const double pivot = kernels::RelativePivot(Matrix(i), size_);
      if (pivot <= kernels::kDegeneratePivot) {
        removed->push_back(
            {is_camera_, id_[i], round, num_observations_[i], pivot});
        continue;
      }
      if (n < i) {
        std::copy_n(values(i), size_, values_->data() + int64_t{size_} * n);
      }
      id_[n] = id_[i];
      place_[i] = n++;
    }
    id_.resize(n);
    values_->resize(int64_t{size_} * n);
  }
  // The new number of block i after Remove, or kGone.
  int32_t place(int32_t i) const { return place_[i]; }

 private:
  double* Matrix(int32_t i) {
    return matrices_.data() + int64_t{kernels::PackedSize(size_)} * i;
  }

  const bool is_camera_;
  const int size_;
  std::vector<double>* const values_;
  std::vector<int32_t> id_;
  std::vector<int32_t> place_;
  std::vector<double> matrices_;  // packed
  std::vector<int64_t> num_observations_;
};

}  // namespace

std::vector<DegenerateBlock> RemoveDegenerate(BalProblem* problem) {
  constexpr int kCameraSize = 9;
  constexpr int kPointSize = 3;
  Blocks cameras(/*is_camera=*/true, kCameraSize, &problem->cameras);
  Blocks points(/*is_camera=*/false, kPointSize, &problem->points);
  std::vector<DegenerateBlock> removed;
  size_t num_removed = 0;
  for (int32_t round = 1; round == 1 || removed.size() > num_removed; ++round) {
    num_removed = removed.size();
    cameras.Begin();
    points.Begin();
    const int64_t n = problem->num_observations();
    for (int64_t k = 0; k < n; ++k) {
      const int32_t c = problem->camera_index[k];
      const int32_t p = problem->point_index[k];
      const double* const parameters[] = {cameras.values(c), points.values(p)};
      double residuals[2];
      double jc[2 * kCameraSize];
      double jp[2 * kPointSize];
      double* jacobians[] = {jc, jp};
      cameras.Count(c);
      points.Count(p);
      if (BalReprojectionError(problem->observations[2 * k],
                               problem->observations[2 * k + 1])
              .Evaluate(parameters, residuals, jacobians)) {
        cameras.Add(c, jc);
      } else {
        std::fill(std::begin(jp),
                  std::end(jp),
                  std::numeric_limits<double>::quiet_NaN());
      }
      points.Add(p, jp);
    }
    cameras.Remove(round, &removed);
    points.Remove(round, &removed);
    int64_t left = 0;
    for (int64_t k = 0; k < n; ++k) {
      const int32_t c = cameras.place(problem->camera_index[k]);
      const int32_t p = points.place(problem->point_index[k]);
      if (c != kGone && p != kGone) {
        problem->camera_index[left] = c;
        problem->point_index[left] = p;
        for (int j = 0; j < 2; ++j) {
          problem->observations[2 * left + j] =
              problem->observations[2 * k + j];
        }
        ++left;
      }
    }
    problem->camera_index.resize(left);
    problem->point_index.resize(left);
    problem->observations.resize(2 * left);
  }
  return removed;
}

}  // namespace ceres_ext::bal
