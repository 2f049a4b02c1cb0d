// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The models of tests/front/recomputed_cost_function_test.cc.

#ifndef CERES_EXT_TESTS_FRONT_RECOMPUTED_COST_FUNCTION_FUNCTORS_H_
#define CERES_EXT_TESTS_FRONT_RECOMPUTED_COST_FUNCTION_FUNCTORS_H_

#include <cmath>

#include "ceres_ext/device_cost_function.h"
#include "tests/front/device_cost_function_functors.h"

namespace ceres_ext {

// kTag 7: types of this test alone.
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
// Without kernels that recompute.
using OnlyStored = Smooth<2, 9, 3, 0, 8>;
using NotRecomputed = Smooth<1, 2, 2, 0, 7>;

}  // namespace ceres_ext

#endif  // CERES_EXT_TESTS_FRONT_RECOMPUTED_COST_FUNCTION_FUNCTORS_H_
