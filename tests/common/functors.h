// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The functors of tests. functors.cu, device_cost_function_functors.cu and
// recomputed_cost_function_functors.cu register them.

#ifndef CERES_EXT_TESTS_COMMON_FUNCTORS_H_
#define CERES_EXT_TESTS_COMMON_FUNCTORS_H_

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "ceres/internal/port.h"
#include "ceres/jet.h"
#include "ceres/rotation.h"
#include "ceres_ext/device_cost_function.h"
#include "tests/common/bal_test_problem.h"

namespace ceres_ext {

// x - x0, weighted.
template <int N>
struct Prior {
  template <typename T>
  CERES_HOST_DEVICE bool operator()(const T* x, T* residuals) const {
    for (int i = 0; i < N; ++i) {
      residuals[i] = weight * (x[i] - mean[i]);
    }
    return true;
  }
  double weight;
  double mean[N];

  static Prior Of(double weight, const double* mean) {
    Prior prior{weight, {}};
    std::copy_n(mean, N, prior.mean);
    return prior;
  }
};

// The first N numbers of two blocks are near to each other.
template <int N>
struct Near {
  template <typename T>
  CERES_HOST_DEVICE bool operator()(const T* a,
                                    const T* b,
                                    T* residuals) const {
    for (int i = 0; i < N; ++i) {
      residuals[i] = weight * (a[i] - b[i]);
    }
    return true;
  }
  double weight;
};

template <int N, typename T>
CERES_HOST_DEVICE void Copy(const T* from, T* to) {
  for (int i = 0; i < N; ++i) {
    to[i] = from[i];
  }
}

// The BAL model with its parameters in several blocks.
struct SplitReprojection {
  // Rotation vector and translation; f, k1, k2; point.
  template <typename T>
  CERES_HOST_DEVICE bool operator()(const T* pose,
                                    const T* intrinsics,
                                    const T* point,
                                    T* residuals) const {
    T camera[9];
    Copy<6>(pose, camera);
    Copy<3>(intrinsics, camera + 6);
    return AutodiffReprojection<3>{u, v}(camera, point, residuals);
  }
  // Quaternion; translation; f, k1, k2; point.
  template <typename T>
  CERES_HOST_DEVICE bool operator()(const T* rotation,
                                    const T* translation,
                                    const T* intrinsics,
                                    const T* point,
                                    T* residuals) const {
    T camera[10];
    Copy<4>(rotation, camera);
    Copy<3>(translation, camera + 4);
    Copy<3>(intrinsics, camera + 7);
    return AutodiffReprojection<4>{u, v}(camera, point, residuals);
  }
  double u;
  double v;
};

// The distance of a point along the camera's axis, which links the same blocks
// as an observation.
struct Depth {
  template <typename T>
  CERES_HOST_DEVICE bool operator()(const T* camera,
                                    const T* point,
                                    T* residuals) const {
    T p[3];
    ceres::AngleAxisRotatePoint(camera, point, p);
    residuals[0] = 10.0 * (p[2] + camera[5] - depth);
    return true;
  }
  double depth;
};

// The BAL model with rotation and translation in one block, x y z w first.
struct PoseReprojection {
  template <typename T>
  CERES_HOST_DEVICE bool operator()(const T* pose,
                                    const T* intrinsics,
                                    const T* point,
                                    T* residuals) const {
    const T camera[10] = {pose[3],
                          pose[0],
                          pose[1],
                          pose[2],
                          pose[4],
                          pose[5],
                          pose[6],
                          intrinsics[0],
                          intrinsics[1],
                          intrinsics[2]};
    return AutodiffReprojection<4>{u, v}(camera, point, residuals);
  }
  double u;
  double v;
};

using FunctorCost =
    DeviceAutoDiffCostFunction<AutodiffReprojection<3>, 2, 9, 3>;

// The difference of two blocks of six.
struct Between {
  template <typename T>
  CERES_HOST_DEVICE bool operator()(const T* a,
                                    const T* b,
                                    T* residuals) const {
    for (int i = 0; i < 6; ++i) {
      residuals[i] = b[i] - a[i] - difference[i];
    }
    // Not linear.
    residuals[0] += 0.1 * a[1] * b[2];
    residuals[3] += 0.1 * a[4] * a[4];
    return true;
  }
  double difference[6];
};

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
enum class FunctorFault { kNone, kFalse, kNotANumber, kDerivative, kThrows };
struct Fragile {
  template <typename T>
  CERES_HOST_DEVICE bool operator()(const T* x, T* residuals) const {
    residuals[0] = x[0] - 2.0;
    if (x[0] > limit) {
      if (fault == FunctorFault::kFalse) {
        return false;
      }
      if (fault == FunctorFault::kNotANumber) {
        residuals[0] = residuals[0] / (x[1] - x[1]);
      }
      if (fault == FunctorFault::kDerivative) {
        using std::sqrt;
        residuals[0] = residuals[0] + sqrt(x[1] - x[1]);
      }
#ifndef __CUDA_ARCH__
      if (fault == FunctorFault::kThrows) {
        throw 1;
      }
#endif
    }
    return true;
  }
  FunctorFault fault;
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

// kTag 7: types of recomputed_cost_function_test.cc alone.
using CameraPoint = Smooth<2, 9, 3, 0, 7>;
using PointPose = Smooth<2, 3, 7, 0, 7>;
using PoseCameraPoint = Smooth<2, 6, 4, 3, 7>;
// Its columns come in two passes, and so do those of one block.
using WidePoint = Smooth<2, 14, 3, 0, 7>;
// Its derivative at 0 is infinite, and its value is not.
struct Steep {
  template <typename T>
  CERES_HOST_DEVICE bool operator()(const T* camera,
                                    const T* point,
                                    T* residuals) const {
    using std::sqrt;
    residuals[0] = sqrt(camera[1]) + point[0] - offset;
    residuals[1] = camera[0] * point[1] + point[2];
    return true;
  }
  double offset;
};
// Registered without kernels that recompute.
using OnlyStored = Smooth<2, 9, 3, 0, 8>;
using NotRecomputed = Smooth<1, 2, 2, 0, 7>;

// X(functor, residuals, sizes of blocks...) for all that problems are made of.
#define CERES_EXT_FOR_EACH_TEST_FUNCTOR(X) \
  X(Prior<3>, 3, 3)                        \
  X(Prior<6>, 6, 6)                        \
  X(Prior<9>, 9, 9)                        \
  X(SplitReprojection, 2, 6, 3, 3)         \
  X(SplitReprojection, 2, 4, 3, 3, 3)      \
  X(PoseReprojection, 2, 7, 3, 3)          \
  X(Depth, 1, 9, 3)                        \
  X(Between, 6, 6, 6)

// X(functor, residuals, sizes of blocks...) for those of
// device_cost_function_test.cc.
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

#endif  // CERES_EXT_TESTS_COMMON_FUNCTORS_H_
