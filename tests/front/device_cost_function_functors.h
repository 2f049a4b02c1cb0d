// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The models of tests/front/device_cost_function_test.cc.

#ifndef CERES_EXT_TESTS_FRONT_DEVICE_COST_FUNCTION_FUNCTORS_H_
#define CERES_EXT_TESTS_FRONT_DEVICE_COST_FUNCTION_FUNCTORS_H_

#include <cmath>
#include <utility>
#include <vector>

#include "ceres/internal/port.h"
#include "ceres/jet.h"
#include "ceres_ext/device_cost_function.h"

namespace ceres_ext {

// R smooth residuals of one to three blocks of A, B and C values, none of which
// is left out. kTag: tells types apart.
template <int R, int A, int B = 0, int C = 0, int kTag = 0>
struct Smooth {
  template <typename T>
  CERES_HOST_DEVICE bool operator()(const T* a, T* residuals) const {
    Start(residuals);
    Add<A>(a, 1, residuals);
    return true;
  }
  template <typename T>
  CERES_HOST_DEVICE bool operator()(const T* a,
                                    const T* b,
                                    T* residuals) const {
    Start(residuals);
    Add<A>(a, 1, residuals);
    Add<B>(b, 2, residuals);
    return true;
  }
  template <typename T>
  CERES_HOST_DEVICE bool operator()(const T* a,
                                    const T* b,
                                    const T* c,
                                    T* residuals) const {
    Start(residuals);
    Add<A>(a, 1, residuals);
    Add<B>(b, 2, residuals);
    Add<C>(c, 3, residuals);
    return true;
  }

  template <typename T>
  CERES_HOST_DEVICE void Start(T* residuals) const {
    for (int r = 0; r < R; ++r) {
      residuals[r] = T(offset + 0.1 * r);
    }
  }
  template <int N, typename T>
  CERES_HOST_DEVICE void Add(const T* x, int block, T* residuals) const {
    using std::sin;
    for (int r = 0; r < R; ++r) {
      for (int j = 0; j < N; ++j) {
        const double weight = 0.3 + 0.7 * ((5 * r + 3 * j + block) % 7);
        residuals[r] = residuals[r] + weight * sin(x[j] + factor * (r + j)) +
                       0.05 * x[j] * x[(j + 1) % N];
      }
    }
  }

  double offset;
  double factor;
};

// Not trivially copyable, with constants that are. Their size is not a multiple
// of eight bytes.
struct WithConstants {
  struct Constants {
    float target[3];
  };
  explicit WithConstants(std::vector<float> target_in)
      : target(std::move(target_in)) {}
  CERES_HOST_DEVICE explicit WithConstants(const Constants& constants)
      : fixed(constants) {}
  Constants constants() const { return {{target[0], target[1], target[2]}}; }

  template <typename T>
  CERES_HOST_DEVICE bool operator()(const T* x, T* residuals) const {
#ifdef __CUDA_ARCH__
    const Constants& k = fixed;
#else
    const Constants k = target.empty() ? fixed : constants();
#endif
    for (int i = 0; i < 3; ++i) {
      residuals[i] =
          x[i] + 0.1 * x[(i + 1) % 6] * x[i + 3] - double{k.target[i]};
    }
    return true;
  }

  std::vector<float> target;
  Constants fixed = {};
};

// A Jacobian by hand: r = w (a_0 p + (p_1, p_2) - (a_1, a_2)).
struct Written {
  static constexpr int kNumResiduals = 2;
  using BlockSizes = std::integer_sequence<int, 4, 3>;
  struct Constants {
    double w;
  };
  CERES_HOST_DEVICE static bool Evaluate(const Constants& constants,
                                         const double* const* parameters,
                                         double* residuals,
                                         double* const* jacobians) {
    const double* const a = parameters[0];
    const double* const p = parameters[1];
    const double w = constants.w;
    for (int r = 0; r < 2; ++r) {
      residuals[r] = w * (a[0] * p[r] + p[r + 1] - a[r + 1] + 0.1 * a[3]);
    }
    if (jacobians != nullptr) {
      for (int r = 0; r < 2; ++r) {
        double* const ja = jacobians[0] + 4 * r;
        double* const jp = jacobians[1] + 3 * r;
        for (int j = 0; j < 4; ++j) {
          ja[j] = j == 0 ? w * p[r] : j == r + 1 ? -w : j == 3 ? 0.1 * w : 0.0;
        }
        for (int j = 0; j < 3; ++j) {
          jp[j] = j == r ? w * a[0] : j == r + 1 ? w : 0.0;
        }
      }
    }
    return true;
  }
};

// The faults with x[0] > 1.
enum class Fault { kNone, kFalse, kNotANumber, kDerivative, kThrows };
struct Fragile {
  template <typename T>
  CERES_HOST_DEVICE bool operator()(const T* x, T* residuals) const {
    residuals[0] = x[0] - 2.0;
    if (x[0] > limit) {
      if (fault == Fault::kFalse) {
        return false;
      }
      if (fault == Fault::kNotANumber) {
        residuals[0] = residuals[0] / (x[1] - x[1]);
      }
      if (fault == Fault::kDerivative) {
        using std::sqrt;
        residuals[0] = residuals[0] + sqrt(x[1] - x[1]);
      }
#ifndef __CUDA_ARCH__
      if (fault == Fault::kThrows) {
        throw 1;
      }
#endif
    }
    return true;
  }
  Fault fault;
  double limit;
};

// One of each reason not to be evaluated on a device.
template <int kReason>
struct Unwilling {
  template <typename T>
  CERES_HOST_DEVICE bool operator()(const T* x, T* residuals) const {
    residuals[0] = x[0] - target;
    return true;
  }
  double target;
};

// X(functor, residuals, sizes of blocks...) for all functors with a device
// form.
#define CERES_EXT_FOR_EACH_MODEL_FUNCTOR(X) \
  X(Smooth<2, 6, 4, 3>, 2, 6, 4, 3)         \
  X(Smooth<2, 3, 7, 4>, 2, 3, 7, 4)         \
  X(Smooth<2, 3, 3>, 2, 3, 3)               \
  X(Smooth<2, 12, 3>, 2, 12, 3)             \
  X(Smooth<3, 6>, 3, 6)                     \
  X(Smooth<1, 6, 6>, 1, 6, 6)               \
  X(Smooth<5, 3, 12>, 5, 3, 12)             \
  X(Smooth<2, 6, 3, 0, 1>, 2, 6, 3)         \
  X(WithConstants, 3, 6)                    \
  X(Fragile, 1, 3)

}  // namespace ceres_ext

#endif  // CERES_EXT_TESTS_FRONT_DEVICE_COST_FUNCTION_FUNCTORS_H_
