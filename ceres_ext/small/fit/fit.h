// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A fit: a small dense least squares problem, such as the refinement of a pose,
// a calibration or a curve fit. All its residual blocks are of one model, and
// each depends on the same parameter blocks that vary, besides constant ones.
// Fits are read from the arrays of the caller as they are.
//
// An array is known by a *range* of its elements, from number `first` on, that
// lives where it is used.
#ifndef CERES_EXT_SMALL_FIT_FIT_H_
#define CERES_EXT_SMALL_FIT_FIT_H_

#include <cmath>
#include <cstdint>

#include "ceres_ext/solver/step_search.h"
#include "ceres_ext/solver/trust_region.h"
#include "cuda_kernels/base/clamp.h"
#include "cuda_kernels/base/host_device.h"
#include "cuda_kernels/model/manifold.h"
#include "cuda_kernels/model/robust_loss.h"

namespace ceres_ext {

// Largest number of values of the parameter blocks that vary.
inline constexpr int kMaxFitColumns = 16;
// Largest number of parameter blocks of a residual block, the *slots* of a row.
inline constexpr int kMaxFitSlots = 8;
// Largest number of arrays of residual blocks.
inline constexpr int kMaxFitArrays = 4;
// Largest number of rows, active or not: one warp of a device solves a fit.
inline constexpr int64_t kMaxFitRows = 4096;

// Lanes of a warp that solve a fit: a property of the fit alone, since its sums
// depend on it.
inline int FitLanes(int64_t num_rows) { return num_rows <= 64 ? 8 : 32; }
// Threads of a block of the kernels that solve fits. Kernel 0 has 8 lanes per
// fit, kernel 1 has 32, and so has kernel 2, for fits with bounds: the search
// along their steps takes registers that the others do not.
inline constexpr int kFitBlock = 128;
inline constexpr int kNumFitKernels = 3;

// Parameter blocks of one slot. `values` has all values of the range.
struct FitSlot {
  const double* values = nullptr;
  double* results = nullptr;           // as `values`; if the slot may vary
  const int64_t* begin = nullptr;      // first block of each fit, and the end
  const uint8_t* is_active = nullptr;  // of each block; null: all are
  int64_t first = 0;
  // Bounds of the values, `values` of each block or the same of all; null: none
  const double* lower = nullptr;
  const double* upper = nullptr;
  bool has_lower_of_blocks = false;
  bool has_upper_of_blocks = false;

  // Moves x, `size` values of a block, onto its bounds.
  CERES_EXT_HOST_DEVICE void Bound(int64_t block, int size, double* x) const {
    const int64_t at = (block - first) * size;
    for (int e = 0; e < size; ++e) {
      x[e] = kernels::Clamp(
          x[e],
          lower == nullptr ? -INFINITY
                           : lower[has_lower_of_blocks ? at + e : e],
          upper == nullptr ? INFINITY
                           : upper[has_upper_of_blocks ? at + e : e]);
    }
  }
};

// Residual blocks of one array.
struct FitRows {
  const void* constants = nullptr;          // Model::Constants of each row
  const int32_t* block[kMaxFitSlots] = {};  // of each row; null: its number
  const double* weights = nullptr;          // of each row; null: 1
  const uint8_t* is_active = nullptr;       // of each row; null: all are
  const int64_t* begin = nullptr;  // first row of each fit, and the end
  int64_t first = 0;
  int32_t loss = -1;  // the first of its chain in FitParams::losses; -1: none
};

// A fit among those of the ranges.
struct FitRecord {
  int32_t number = 0;  // in `begin` and FitParams::results
  // Bit s: slot s varies.
  uint32_t varying = 0;
  // Slot s has factors factor_begin[manifold[s]] to factor_begin[manifold[s] +
  // 1]. Linear manifolds without constant values have no factors.
  int16_t manifold[kMaxFitSlots] = {};
  bool is_bounded = false;  // Some value that varies has bounds.
};

struct FitResult {
  enum Status : int32_t {
    kNone,  // It was not solved.
    kSolved,
    kNotValid,  // A value is not finite, or an index is out of its range.
    kEmpty,     // No row is active.
  };
  TrustRegion region;
  Status status = kNone;
  int32_t num_rows = 0;  // that are active
};

// Fits that are solved together, by value to a kernel.
struct FitParams {
  LoopOptions options;
  int64_t num_fits = 0;
  const FitRecord* records = nullptr;
  const kernels::RobustLoss* losses = nullptr;
  const kernels::ManifoldFactor* factors = nullptr;
  const int32_t* factor_begin = nullptr;
  FitResult* results = nullptr;
  int32_t num_arrays = 0;
  FitSlot slots[kMaxFitSlots];
  FitRows rows[kMaxFitArrays];
};

// The manifold of a slot.
struct FitManifold {
  const kernels::ManifoldFactor* factors = nullptr;
  int32_t num_factors = 0;
  int32_t size = 0;  // values

  CERES_EXT_HOST_DEVICE int tangent_size() const {
    if (num_factors == 0) {
      return size;
    }
    int sum = 0;
    for (int f = 0; f < num_factors; ++f) {
      sum += factors[f].tangent_size();
    }
    return sum;
  }
  CERES_EXT_HOST_DEVICE void Plus(const double* x,
                                  const double* delta,
                                  double* moved) const {
    if (num_factors == 0) {
      for (int e = 0; e < size; ++e) {
        moved[e] = x[e] + delta[e];
      }
    }
    for (int f = 0; f < num_factors; ++f) {
      kernels::Plus(factors[f], x, delta, moved);
      x += factors[f].size;
      moved += factors[f].size;
      delta += factors[f].tangent_size();
    }
  }
  // The derivative of Plus, in rows of `stride` values that were zero.
  CERES_EXT_HOST_DEVICE void PlusJacobian(const double* x,
                                          int stride,
                                          double* jacobian) const {
    for (int e = 0; e < size && num_factors == 0; ++e) {
      jacobian[e * stride + e] = 1.0;
    }
    for (int f = 0; f < num_factors; ++f) {
      kernels::PlusJacobian(factors[f], x, stride, jacobian);
      x += factors[f].size;
      jacobian += factors[f].size * stride + factors[f].tangent_size();
    }
  }
};

}  // namespace ceres_ext

#endif  // CERES_EXT_SMALL_FIT_FIT_H_
