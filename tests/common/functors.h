// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The functors of which tests of whole solves make problems.

#ifndef CERES_EXT_TESTS_COMMON_FUNCTORS_H_
#define CERES_EXT_TESTS_COMMON_FUNCTORS_H_

#include <algorithm>

#include "ceres/internal/port.h"
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

}  // namespace ceres_ext

#endif  // CERES_EXT_TESTS_COMMON_FUNCTORS_H_
