// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The computations of Ceres's trust region loop on its vectors between
// evaluations and linear solves (ceres/trust_region_vectors.h), so that the
// vectors stay on their machine. Vector operations (ops/vector_operation.h) of
// n >= 0 elements. Outputs may be inputs. Pointers may be null if n is 0.
//
// Operations without a sum give the same bits on every machine, except
// LinearCombination, which a device rounds once less.
#ifndef CERES_EXT_CUDA_KERNELS_OPS_VECTORS_H_
#define CERES_EXT_CUDA_KERNELS_OPS_VECTORS_H_

#include <cmath>
#include <cstdint>

#include "cuda_kernels/base/clamp.h"
#include "cuda_kernels/base/host_device.h"
#include "cuda_kernels/base/vector_sums.h"
#include "cuda_kernels/ops/vector_operation.h"

namespace ceres_ext::kernels {

// y = x. On a device a copy of memory.
struct CopyParams {
  int64_t n = 0;
  const double* x = nullptr;
  double* y = nullptr;

  CERES_EXT_HOST_DEVICE void Apply(int64_t i) const { y[i] = x[i]; }
};
Status Run(const CopyParams& params, CudaMachine* machine);

// x = value
template <typename T>
struct SetConstantParams {
  int64_t n = 0;
  T value = 0;
  T* x = nullptr;

  CERES_EXT_HOST_DEVICE void Apply(int64_t i) const { x[i] = value; }
};
template <typename T>
SetConstantParams(int64_t, T, T*) -> SetConstantParams<T>;

// The value of elements that were not written: Ceres's kImpossibleValue.
inline constexpr double kImpossibleValue = 1e302;

// y = -x
struct NegateParams {
  int64_t n = 0;
  const double* x = nullptr;
  double* y = nullptr;

  CERES_EXT_HOST_DEVICE void Apply(int64_t i) const { y[i] = -x[i]; }
};

// z = x + y
struct AddVectorsParams {
  int64_t n = 0;
  const double* x = nullptr;
  const double* y = nullptr;
  double* z = nullptr;

  CERES_EXT_HOST_DEVICE void Apply(int64_t i) const { z[i] = x[i] + y[i]; }
};

// z = x - y
struct SubtractVectorsParams {
  int64_t n = 0;
  const double* x = nullptr;
  const double* y = nullptr;
  double* z = nullptr;

  CERES_EXT_HOST_DEVICE void Apply(int64_t i) const { z[i] = x[i] - y[i]; }
};

// y = factor x
struct MultiplyByParams {
  int64_t n = 0;
  double factor = 0.0;
  const double* x = nullptr;
  double* y = nullptr;

  CERES_EXT_HOST_DEVICE void Apply(int64_t i) const { y[i] = factor * x[i]; }
};

// z = x .* y
struct MultiplyParams {
  int64_t n = 0;
  const double* x = nullptr;
  const double* y = nullptr;
  double* z = nullptr;

  CERES_EXT_HOST_DEVICE void Apply(int64_t i) const { z[i] = x[i] * y[i]; }
};

// z = x ./ y
struct DivideParams {
  int64_t n = 0;
  const double* x = nullptr;
  const double* y = nullptr;
  double* z = nullptr;

  CERES_EXT_HOST_DEVICE void Apply(int64_t i) const { z[i] = x[i] / y[i]; }
};

// z = a x + b y
struct LinearCombinationParams {
  int64_t n = 0;
  double a = 0.0;
  const double* x = nullptr;
  double b = 0.0;
  const double* y = nullptr;
  double* z = nullptr;

  CERES_EXT_HOST_DEVICE void Apply(int64_t i) const {
    z[i] = a * x[i] + b * y[i];
  }
};

// x = x .* y, rounded to T.
template <typename T>
struct ScaleParams {
  int64_t n = 0;
  const double* y = nullptr;
  T* x = nullptr;

  CERES_EXT_HOST_DEVICE void Apply(int64_t i) const {
    x[i] = static_cast<T>(static_cast<double>(x[i]) * y[i]);
  }
};

// y = x, rounded to T.
template <typename T>
struct CastParams {
  int64_t n = 0;
  const double* x = nullptr;
  T* y = nullptr;

  CERES_EXT_HOST_DEVICE void Apply(int64_t i) const {
    y[i] = static_cast<T>(x[i]);
  }
};

// x = 1 / (1 + sqrt(x))
struct JacobiScalingParams {
  int64_t n = 0;
  double* x = nullptr;

  CERES_EXT_HOST_DEVICE void Apply(int64_t i) const {
    x[i] = 1.0 / (1.0 + sqrt(x[i]));
  }
};

// x = min(max(x, min_value), max_value); NaN stays NaN.
struct ClampParams {
  int64_t n = 0;
  double min_value = 0.0;
  double max_value = 0.0;
  double* x = nullptr;

  CERES_EXT_HOST_DEVICE void Apply(int64_t i) const {
    const double y = x[i] < min_value ? min_value : x[i];
    x[i] = max_value < y ? max_value : y;
  }
};

// x at index[i] = Clamp(x, lower_i, upper_i). No index occurs twice.
// Traffic: 16 B per element, 4 B of index, 16 B of bounds.
struct ClampToBoundsParams {
  int64_t n = 0;
  const int32_t* index = nullptr;  // n; null: first + i
  int32_t first = 0;
  int32_t stride = 1;             // 0: all have the bounds of the first
  const double* lower = nullptr;  // n, or one
  const double* upper = nullptr;  // n, or one
  double* x = nullptr;

  CERES_EXT_HOST_DEVICE void Apply(int64_t i) const {
    double* const value = x + (index == nullptr ? first + i : index[i]);
    *value = Clamp(*value, lower[stride * i], upper[stride * i]);
  }
};

// y = sqrt(x / radius)
struct LevenbergMarquardtDiagonalParams {
  int64_t n = 0;
  double radius = 0.0;
  const double* x = nullptr;
  double* y = nullptr;

  CERES_EXT_HOST_DEVICE void Apply(int64_t i) const {
    y[i] = sqrt(x[i] / radius);
  }
};

// ---------------------------------------------------------------------------
// Sums.

// *result = x'y.
struct DotParams {
  int64_t n = 0;
  const double* x = nullptr;
  const double* y = nullptr;
  double* result = nullptr;

  CERES_EXT_HOST_DEVICE TwoSums Term(int64_t i) const {
    return {x[i] * y[i], 0.0};
  }
  CERES_EXT_HOST_DEVICE void Set(const TwoSums& sums) const {
    *result = sums.first;
  }
};

// The results of the loop's sums. It lives where the vectors live; each
// operation sets the fields it names, so that the host may read what it needs
// with one copy.
struct LoopScalars {
  double max_norm = 0.0;
  double norm = 0.0;
  double x_norm = 0.0;
  double step_norm = 0.0;
  double model_cost_change = 0.0;
  double dot = 0.0;
  double direction_max_norm = 0.0;
  int64_t num_invalid = 0;
};

// dot = x'y
struct LoopDotParams {
  int64_t n = 0;
  const double* x = nullptr;
  const double* y = nullptr;
  LoopScalars* scalars = nullptr;

  CERES_EXT_HOST_DEVICE TwoSums Term(int64_t i) const {
    return {x[i] * y[i], 0.0};
  }
  CERES_EXT_HOST_DEVICE void Set(const TwoSums& sums) const {
    scalars->dot = sums.first;
  }
};

// num_invalid = number of elements that aren't finite or are kImpossibleValue.
struct CountInvalidParams {
  int64_t n = 0;
  const double* x = nullptr;
  LoopScalars* scalars = nullptr;
  int64_t* for_device = nullptr;  // num_invalid once more; null: not wanted

  CERES_EXT_HOST_DEVICE TwoSums Term(int64_t i) const {
    return {fabs(x[i]) < INFINITY && x[i] != kImpossibleValue ? 0.0 : 1.0, 0.0};
  }
  CERES_EXT_HOST_DEVICE void Set(const TwoSums& sums) const {
    scalars->num_invalid = static_cast<int64_t>(sums.first);
    if (for_device != nullptr) {
      *for_device = scalars->num_invalid;
    }
  }
};

// x = -x where CountInvalid has found nothing.
struct NegateIfValidParams {
  int64_t n = 0;
  double* x = nullptr;
  const int64_t* num_invalid = nullptr;

  CERES_EXT_HOST_DEVICE bool Begin() const { return *num_invalid == 0; }
  CERES_EXT_HOST_DEVICE void Apply(int64_t i) const { x[i] = -x[i]; }
};

// max_norm = max |x_i - y_i| (NaN if one is NaN, 0 if n is 0),
// norm = |x - y|_2.
struct ProjectedGradientNormsParams {
  int64_t n = 0;
  const double* x = nullptr;
  const double* projected_x = nullptr;  // y
  LoopScalars* scalars = nullptr;

  using First = MaxFirst;
  CERES_EXT_HOST_DEVICE TwoSums Term(int64_t i) const {
    const double difference = x[i] - projected_x[i];
    return {fabs(difference), difference * difference};
  }
  CERES_EXT_HOST_DEVICE void Set(const TwoSums& sums) const {
    scalars->max_norm = sums.first;
    scalars->norm = sqrt(sums.second);
  }
};

// x_norm = |x|_2, step_norm = |x - y|_2
struct StepNormsParams {
  int64_t n = 0;
  const double* x = nullptr;
  const double* candidate_x = nullptr;  // y
  LoopScalars* scalars = nullptr;

  CERES_EXT_HOST_DEVICE TwoSums Term(int64_t i) const {
    const double difference = x[i] - candidate_x[i];
    return {x[i] * x[i], difference * difference};
  }
  CERES_EXT_HOST_DEVICE void Set(const TwoSums& sums) const {
    scalars->x_norm = sqrt(sums.first);
    scalars->step_norm = sqrt(sums.second);
  }
};

// model_cost_change = -m'(f + m / 2)
struct ModelCostChangeParams {
  int64_t n = 0;
  const double* residuals = nullptr;        // f
  const double* model_residuals = nullptr;  // m
  LoopScalars* scalars = nullptr;

  CERES_EXT_HOST_DEVICE TwoSums Term(int64_t i) const {
    const double m = model_residuals[i];
    return {m * (residuals[i] + 0.5 * m), 0.0};
  }
  CERES_EXT_HOST_DEVICE void Set(const TwoSums& sums) const {
    scalars->model_cost_change = -sums.first;
  }
};

// direction_max_norm = max |d_i| (NaN if one is NaN, 0 if n is 0),
// dot = g'd.
struct DirectionalDerivativeParams {
  int64_t n = 0;
  const double* gradient = nullptr;   // g
  const double* direction = nullptr;  // d
  LoopScalars* scalars = nullptr;

  using First = MaxFirst;
  CERES_EXT_HOST_DEVICE TwoSums Term(int64_t i) const {
    return {fabs(direction[i]), gradient[i] * direction[i]};
  }
  CERES_EXT_HOST_DEVICE void Set(const TwoSums& sums) const {
    scalars->direction_max_norm = sums.first;
    scalars->dot = sums.second;
  }
};

// *num_grown = number of elements of y that are not finite, or whose square is
// above 1e6 times that of x's element and 1e6 times mean_square.
struct CountGrownParams {
  int64_t n = 0;
  const double* x = nullptr;
  const double* y = nullptr;
  double mean_square = 0.0;
  int64_t* num_grown = nullptr;

  static constexpr double kMostGrowth = 1e6;

  // Written so that NaN has grown.
  CERES_EXT_HOST_DEVICE static bool HasGrown(double x,
                                             double y,
                                             double mean_square) {
    const double square = x * x > mean_square ? x * x : mean_square;
    return !(y * y <= kMostGrowth * square) || !(fabs(y) < INFINITY);
  }
  CERES_EXT_HOST_DEVICE TwoSums Term(int64_t i) const {
    return {HasGrown(x[i], y[i], mean_square) ? 1.0 : 0.0, 0.0};
  }
  CERES_EXT_HOST_DEVICE void Set(const TwoSums& sums) const {
    *num_grown = static_cast<int64_t>(sums.first);
  }
};

// Finds, for each i below n, the element among i, i + n, i + 2 n, ... below
// num_values that has grown (CountGrownParams) and where y is largest, and the
// first of several: its number, x and y. The number is -1 if none has grown.
// Elements that are not finite are the largest.
struct FindGrownParams {
  int64_t n = 0;
  int64_t num_values = 0;
  const double* x = nullptr;
  const double* y = nullptr;
  double mean_square = 0.0;
  int64_t* number = nullptr;
  double* x_there = nullptr;
  double* y_there = nullptr;

  // y is of an element that has grown.
  CERES_EXT_HOST_DEVICE static double Size(double y) {
    return fabs(y) < INFINITY ? fabs(y) : INFINITY;
  }
  CERES_EXT_HOST_DEVICE void Apply(int64_t i) const {
    int64_t worst = -1;
    for (int64_t k = i; k < num_values; k += n) {
      if (CountGrownParams::HasGrown(x[k], y[k], mean_square) &&
          (worst < 0 || Size(y[k]) > Size(y[worst]))) {
        worst = k;
      }
    }
    number[i] = worst;
    x_there[i] = worst < 0 ? 0.0 : x[worst];
    y_there[i] = worst < 0 ? 0.0 : y[worst];
  }
};

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_OPS_VECTORS_H_
