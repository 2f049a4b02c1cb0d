// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The Jacobian of rows of directions after their private blocks have been
// eliminated (ops/private_blocks.h): three residuals, a point and another block
// of up to three columns. J is stored with the private column a as the fourth
// one of the camera's block, and L J = J - c a (a'J) is made where it is read:
// beside J it takes c, 8 bytes a row.
//
// In *opposite* rows the derivatives by the camera are those by the point with
// the other sign, J = [G diag(s_c), a, G diag(s_p)] with factors of the blocks'
// columns. G is stored once, in place of the camera's columns, and the factors
// by camera and point.
#ifndef CERES_EXT_CUDA_KERNELS_MODEL_NESTED_JACOBIAN_H_
#define CERES_EXT_CUDA_KERNELS_MODEL_NESTED_JACOBIAN_H_

#include <cstdint>
#include <type_traits>

#include "cuda_kernels/base/block_ref.h"
#include "cuda_kernels/base/host_device.h"
#include "cuda_kernels/model/shape.h"

namespace ceres_ext::kernels {

// The rows as they are stored; kPrivateColumn of the camera's block is a.
using NestedStorage = FixedShape<3, 3, 4>;
inline constexpr int kPrivateColumn = 3;

// The factors of opposite rows.
struct OppositeFactors {
  const double* factor = nullptr;  // three per block; null: J has two blocks
  const int32_t* id = nullptr;     // of each row's block
};

// The first three columns of blocks of kStride columns, times L.
template <int kStride, BlockLayout kLayout>
struct NestedBlocks {
  static constexpr int R = NestedStorage::kNumResiduals;
  static constexpr int kColumns = 3;

  BlockRef<const double, R * kStride, kLayout> blocks;  // not of opposite rows
  BlockRef<const double, NestedStorage::kFSize, kLayout> camera_blocks;
  OppositeFactors opposite;
  const double* c = nullptr;  // one per row; null: L = I

  CERES_EXT_HOST_DEVICE double Private(int64_t k, int r) const {
    return camera_blocks(k, NestedStorage::kF * r + kPrivateColumn);
  }
  // Element (r, column) of row k's block of J.
  CERES_EXT_HOST_DEVICE double Plain(int64_t k, int r, int column) const {
    if (opposite.factor == nullptr) {
      return blocks(k, kStride * r + column);
    }
    return camera_blocks(k, NestedStorage::kF * r + column) *
           opposite.factor[kColumns * int64_t{opposite.id[k]} + column];
  }
  // Element i of row k's block.
  CERES_EXT_HOST_DEVICE double operator()(int64_t k, int i) const {
    const int r = i / kColumns;
    const int column = i - kColumns * r;
    const double value = Plain(k, r, column);
    if (c == nullptr) {
      return value;
    }
    double product = 0.0;
    for (int q = 0; q < R; ++q) {
      product += Private(k, q) * Plain(k, q, column);
    }
    return value - c[k] * product * Private(k, r);
  }
  // All elements, R x kColumns, row-major.
  CERES_EXT_HOST_DEVICE void Load(int64_t k, double* j) const {
    if (opposite.factor == nullptr) {
      for (int r = 0; r < R; ++r) {
        for (int i = 0; i < kColumns; ++i) {
          j[kColumns * r + i] = blocks(k, kStride * r + i);
        }
      }
    } else {
      const double* const factor =
          opposite.factor + kColumns * int64_t{opposite.id[k]};
      for (int r = 0; r < R; ++r) {
        for (int i = 0; i < kColumns; ++i) {
          j[kColumns * r + i] =
              camera_blocks(k, NestedStorage::kF * r + i) * factor[i];
        }
      }
    }
    if (c == nullptr) {
      return;
    }
    double a[R];
    for (int r = 0; r < R; ++r) {
      a[r] = Private(k, r);
    }
    const double factor = c[k];
    for (int i = 0; i < kColumns; ++i) {
      double product = 0.0;
      for (int r = 0; r < R; ++r) {
        product += a[r] * j[kColumns * r + i];
      }
      product *= factor;
      for (int r = 0; r < R; ++r) {
        j[kColumns * r + i] -= product * a[r];
      }
    }
  }
};

// A source (model/jacobian_source.h).
template <BlockLayout kLayoutIn>
struct NestedJacobian {
  using Value = double;
  using Shape = FixedShape<3, 3, 3>;
  static constexpr BlockLayout kLayout = kLayoutIn;

  NestedBlocks<NestedStorage::kF, kLayoutIn> camera_blocks;
  NestedBlocks<NestedStorage::kE, kLayoutIn> point_blocks;

  CERES_EXT_HOST_DEVICE void LoadCamera(int64_t k,
                                        int32_t /*camera*/,
                                        int32_t /*point*/,
                                        double* jc) const {
    camera_blocks.Load(k, jc);
  }
  CERES_EXT_HOST_DEVICE void LoadPoint(int64_t k,
                                       int32_t /*camera*/,
                                       int32_t /*point*/,
                                       double* jp) const {
    point_blocks.Load(k, jp);
  }
  CERES_EXT_HOST_DEVICE void Load(
      int64_t k, int32_t camera, int32_t point, double* jc, double* jp) const {
    LoadCamera(k, camera, point, jc);
    LoadPoint(k, camera, point, jp);
  }
};

// J itself.
template <BlockLayout kLayout>
NestedJacobian<kLayout> PlainJacobian(
    const BlockRef<const double, NestedStorage::kFSize, kLayout>& camera_blocks,
    const BlockRef<const double, NestedStorage::kESize, kLayout>& point_blocks,
    const OppositeFactors& of_cameras,
    const OppositeFactors& of_points) {
  return {{camera_blocks, camera_blocks, of_cameras},
          {point_blocks, camera_blocks, of_points}};
}

// L J.
template <BlockLayout kLayout>
NestedJacobian<kLayout> NestJacobian(NestedJacobian<kLayout> plain,
                                     const double* c) {
  plain.camera_blocks.c = c;
  plain.point_blocks.c = c;
  return plain;
}

template <typename Source>
struct IsNested : std::false_type {};
template <BlockLayout kLayout>
struct IsNested<NestedJacobian<kLayout>> : std::true_type {};

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_MODEL_NESTED_JACOBIAN_H_
