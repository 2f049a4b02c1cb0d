// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The source of an observation's Jacobian. Operators are templates over one of
// these, passed by value.
//
// A source is a type with
//   Value              storage and arithmetic type of the blocks
//   Shape              their sizes (model/shape.h)
//   LoadCamera(k, camera, point, jc)   Jc, R x F, row-major
//   LoadPoint(k, camera, point, jp)    Jp, R x E, row-major
//   Load(k, camera, point, jc, jp)     both
// where k is the place of the observation in the index.
//
// A body may use more of a source than this: StoredJacobian's views, or
// RecomputedJacobian's states, which apply J without forming it.
#ifndef CERES_EXT_CUDA_KERNELS_MODEL_JACOBIAN_SOURCE_H_
#define CERES_EXT_CUDA_KERNELS_MODEL_JACOBIAN_SOURCE_H_

#include <cstdint>
#include <type_traits>

#include "cuda_kernels/base/block_ref.h"
#include "cuda_kernels/base/host_device.h"
#include "cuda_kernels/model/bal_model.h"
#include "cuda_kernels/model/shape.h"

namespace ceres_ext::kernels {

// Blocks kept in memory: T double or float.
template <typename T, typename ShapeIn, BlockLayout kLayoutIn>
struct StoredJacobian {
  using Value = T;
  using Shape = ShapeIn;
  static constexpr BlockLayout kLayout = kLayoutIn;

  BlockRef<const T, Shape::kFSize, kLayoutIn> camera_blocks;
  BlockRef<const T, Shape::kESize, kLayoutIn> point_blocks;

  CERES_EXT_HOST_DEVICE void LoadCamera(int64_t k,
                                        int32_t /*camera*/,
                                        int32_t /*point*/,
                                        T* jc) const {
    for (int i = 0; i < Shape::kFSize; ++i) {
      jc[i] = camera_blocks(k, i);
    }
  }

  CERES_EXT_HOST_DEVICE void LoadPoint(int64_t k,
                                       int32_t /*camera*/,
                                       int32_t /*point*/,
                                       T* jp) const {
    for (int i = 0; i < Shape::kESize; ++i) {
      jp[i] = point_blocks(k, i);
    }
  }

  CERES_EXT_HOST_DEVICE void Load(
      int64_t k, int32_t camera, int32_t point, T* jc, T* jp) const {
    LoadCamera(k, camera, point, jc);
    LoadPoint(k, camera, point, jp);
  }
};

// Blocks of the BAL model, computed each time from camera and point, in T: Jc =
// J_c map_c, Jp = J_p diag(s_p), both times s_k if kScaledRows; otherwise
// nothing is kept per observation. Cameras and points may have an origin of
// their own (PrepareCamerasParams). That is a type of its own, since a test of
// row_scale takes registers of kernels that have none left.
template <typename T, int C, bool kScaledRows = false>
struct RecomputedJacobian {
  using Value = T;
  using Shape = BalShape<C>;

  const CameraState<T>* cameras = nullptr;  // one per camera
  const double* camera_maps = nullptr;      // 9 x C per camera, scaled by s_c
  const T* points = nullptr;                // 3 per point
  const T* point_scale = nullptr;           // s_p, 3 per point; null: one
  const T* row_scale = nullptr;  // s_k, one per observation, of kScaledRows

  CERES_EXT_HOST_DEVICE void LoadCamera(int64_t k,
                                        int32_t camera,
                                        int32_t point,
                                        T* jc) const {
    Projection<T> projection;
    ProjectForProducts(
        cameras[camera], points + int64_t{3} * point, &projection);
    T local[2 * kBalLocalCameraDim];
    CameraJacobian(cameras[camera], projection, local);
    double wide[2 * kBalLocalCameraDim];
    for (int i = 0; i < 2 * kBalLocalCameraDim; ++i) {
      wide[i] = static_cast<double>(local[i]);
    }
    double mapped[2 * C];
    MapCameraJacobian<C>(
        wide, camera_maps + int64_t{kBalLocalCameraDim * C} * camera, mapped);
    for (int i = 0; i < 2 * C; ++i) {
      jc[i] = static_cast<T>(mapped[i]);
    }
    ScaleRows<Shape::kFSize>(k, jc);
  }

  CERES_EXT_HOST_DEVICE void LoadPoint(int64_t k,
                                       int32_t camera,
                                       int32_t point,
                                       T* jp) const {
    Projection<T> projection;
    ProjectForProducts(
        cameras[camera], points + int64_t{3} * point, &projection);
    PointJacobian(cameras[camera], projection, jp);
    ScalePointBlock(point, jp);
    ScaleRows<Shape::kESize>(k, jp);
  }

  CERES_EXT_HOST_DEVICE void Load(
      int64_t k, int32_t camera, int32_t point, T* jc, T* jp) const {
    LoadCamera(k, camera, point, jc);
    LoadPoint(k, camera, point, jp);
  }

  CERES_EXT_HOST_DEVICE void ScalePointBlock(int32_t point, T* jp) const {
    if (point_scale != nullptr) {
      const T* s = point_scale + int64_t{3} * point;
      for (int i = 0; i < 6; ++i) {
        jp[i] *= s[i % 3];
      }
    }
  }

  // N values of a block of observation k.
  template <int N>
  CERES_EXT_HOST_DEVICE void ScaleRows([[maybe_unused]] int64_t k,
                                       [[maybe_unused]] T* block) const {
    if constexpr (kScaledRows) {
      const T s = row_scale[k];
      for (int i = 0; i < N; ++i) {
        block[i] *= s;
      }
    }
  }
};

// The recomputed Jacobians of a device: X(T, C) and X(T, C, true).
#define CERES_EXT_FOR_EACH_RECOMPUTED(X) \
  X(double, 9)                           \
  X(double, 10)                          \
  X(double, 9, true)                     \
  X(double, 10, true)                    \
  X(float, 9) X(float, 10) X(float, 9, true) X(float, 10, true)

// CERES_EXT_INSTANTIATE(Source), which the file that has the bodies defines, of
// the stored and the recomputed Jacobians of a machine.
#define CERES_EXT_INSTANTIATE_STORED(layout, F)                      \
  CERES_EXT_INSTANTIATE(StoredJacobian<double, BalShape<F>, layout>) \
  CERES_EXT_INSTANTIATE(StoredJacobian<float, BalShape<F>, layout>)
#define CERES_EXT_INSTANTIATE_RECOMPUTED(...) \
  CERES_EXT_INSTANTIATE(RecomputedJacobian<__VA_ARGS__>)
#define CERES_EXT_INSTANTIATE_HOST_STORED(F) \
  CERES_EXT_INSTANTIATE_STORED(kHostLayout, F)
#define CERES_EXT_INSTANTIATE_DEVICE_STORED(F) \
  CERES_EXT_INSTANTIATE_STORED(kDeviceLayout, F)
// The host recomputes in double alone.
#define CERES_EXT_INSTANTIATE_ON_HOST()                                \
  CERES_EXT_FOR_EACH_STORED_COLUMNS(CERES_EXT_INSTANTIATE_HOST_STORED) \
  CERES_EXT_INSTANTIATE_RECOMPUTED(double, 9)                          \
  CERES_EXT_INSTANTIATE_RECOMPUTED(double, 10)                         \
  CERES_EXT_INSTANTIATE_RECOMPUTED(double, 9, true)                    \
  CERES_EXT_INSTANTIATE_RECOMPUTED(double, 10, true)
#define CERES_EXT_INSTANTIATE_ON_DEVICE()                                \
  CERES_EXT_FOR_EACH_STORED_COLUMNS(CERES_EXT_INSTANTIATE_DEVICE_STORED) \
  CERES_EXT_FOR_EACH_RECOMPUTED(CERES_EXT_INSTANTIATE_RECOMPUTED)

template <typename Source>
struct IsRecomputed : std::false_type {};
template <typename T, int C, bool kScaledRows>
struct IsRecomputed<RecomputedJacobian<T, C, kScaledRows>> : std::true_type {};

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_MODEL_JACOBIAN_SOURCE_H_
