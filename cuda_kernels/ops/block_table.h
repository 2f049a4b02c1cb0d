// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Between Ceres's vectors and arrays of padded blocks, and what moves blocks:
//
//   GatherTangent, ScatterTangent   Ceres's tangent vector <-> padded blocks
//   GatherState                     state -> blocks
//   GatherPairs                     measurements -> order of an index
//   CameraTangents, Plus            manifolds
//
// Vector operations (ops/vector_operation.h) without sums: the same bits on
// every machine, the sines and cosines of quaternions excepted.
#ifndef CERES_EXT_CUDA_KERNELS_OPS_BLOCK_TABLE_H_
#define CERES_EXT_CUDA_KERNELS_OPS_BLOCK_TABLE_H_

#include <cmath>
#include <cstdint>

#include "cuda_kernels/base/host_device.h"
#include "cuda_kernels/ops/vector_operation.h"

namespace ceres_ext::kernels {

// Where the blocks of one kind (cameras, or points) stand in Ceres's vectors.
// Block i has tangent_size[i] <= padded_size values at tangent_offset[i] of a
// tangent vector and ambient_size values at state_offset[i] of a state. A block
// without columns has tangent_size 0, a constant block state_offset -1 as well;
// offsets of what isn't there are not read. *Padding* are the places of a
// padded vector (num_blocks x padded_size, row-major) beyond tangent_size[i].
struct BlockTableView {
  int32_t num_blocks = 0;
  int32_t padded_size = 0;
  int32_t ambient_size = 0;
  const int32_t* tangent_offset = nullptr;  // num_blocks
  const int32_t* tangent_size = nullptr;    // num_blocks
  const int32_t* state_offset = nullptr;    // num_blocks
  // ambient_size per block, read where state_offset < 0; null: nowhere.
  const double* constant_values = nullptr;

  CERES_EXT_HOST_DEVICE int64_t num_padded_values() const {
    return int64_t{num_blocks} * padded_size;
  }
};

// padded = vector, and `padding` where the vector has no value.
// Traffic: 16 B per value, 8 B where the vector is null.
struct GatherTangentParams {
  BlockTableView table;
  const double* vector = nullptr;  // null: zero
  double padding = 0.0;
  double* padded = nullptr;

  int64_t size() const { return table.num_padded_values(); }
  CERES_EXT_HOST_DEVICE void Apply(int64_t i) const {
    const int64_t block = i / table.padded_size;
    const int element = static_cast<int>(i - block * table.padded_size);
    padded[i] = element >= table.tangent_size[block] ? padding
                : vector == nullptr
                    ? 0.0
                    : vector[table.tangent_offset[block] + element];
  }
};

// The values of `padded` that have a place in the vector go there; nothing else
// in the vector changes.
// Traffic: 16 B per value.
struct ScatterTangentParams {
  BlockTableView table;
  const double* padded = nullptr;
  double* vector = nullptr;

  int64_t size() const { return table.num_padded_values(); }
  CERES_EXT_HOST_DEVICE void Apply(int64_t i) const {
    const int64_t block = i / table.padded_size;
    const int element = static_cast<int>(i - block * table.padded_size);
    if (element < table.tangent_size[block]) {
      vector[table.tangent_offset[block] + element] = padded[i];
    }
  }
};

// ambient (num_blocks x ambient_size, row-major) = the blocks' values in
// `state`, or their constant values.
// Traffic: 16 B per value.
struct GatherStateParams {
  BlockTableView table;
  const double* state = nullptr;
  double* ambient = nullptr;

  int64_t size() const {
    return int64_t{table.num_blocks} * table.ambient_size;
  }
  CERES_EXT_HOST_DEVICE void Apply(int64_t i) const {
    const int64_t block = i / table.ambient_size;
    const int element = static_cast<int>(i - block * table.ambient_size);
    const int32_t offset = table.state_offset[block];
    ambient[i] =
        offset < 0 ? table.constant_values[i] : state[offset + element];
  }
};

// Pair k of `out` = pair source[k] of `in`.
// Traffic: 36 B per pair.
struct GatherPairsParams {
  int64_t n = 0;
  const int32_t* source = nullptr;  // n
  const double* in = nullptr;       // 2 per pair
  double* out = nullptr;            // 2 n

  CERES_EXT_HOST_DEVICE void Apply(int64_t k) const {
    const int64_t i = source[k];
    out[2 * k] = in[2 * i];
    out[2 * k + 1] = in[2 * i + 1];
  }
};

// ---------------------------------------------------------------------------
// Manifolds.

// How a block moves, with P its ambient_size x padded_size matrix, row-major.
enum class ManifoldKind : uint8_t {
  // x + P d: Euclidean, ceres::SubsetManifold, constant blocks.
  kLinear = 0,
  // Parameters 0 to 3 are a unit quaternion w x y z, moved by d_0 to d_2 as by
  // ceres::QuaternionManifold; parameter i > 3 moves by sum_j P_ij d_j, j > 2.
  // With P the identity there, P_i,i-1 = 1, that is QuaternionManifold x
  // EuclideanManifold<6>; fewer columns fix parameters.
  kQuaternion = 1,
};

// Rows 0 to 3, columns 0 to 2 of the matrices of cameras of kind kQuaternion:
// the derivative of Plus at the camera. Everything else in `tangents` is
// constant, set once by its owner: all of P for kLinear, rows 4 on for
// kQuaternion, zeros in the padding and in columns 3 on of rows 0 to 3.
// `tangents` is then what PrepareCameras calls tangent.
// Traffic: 128 B per quaternion, 1 B else.
struct CameraTangentsParams {
  int32_t num_cameras = 0;
  int32_t ambient_size = 0;  // A >= 4
  int32_t padded_size = 0;   // C >= 3
  const ManifoldKind* kind = nullptr;
  const double* cameras = nullptr;  // A per camera
  double* tangents = nullptr;       // A x C per camera, row-major

  int64_t size() const { return num_cameras; }
  CERES_EXT_HOST_DEVICE void Apply(int64_t c) const {
    if (kind[c] != ManifoldKind::kQuaternion) {
      return;
    }
    const double* q = cameras + ambient_size * c;
    double* row = tangents + int64_t{ambient_size} * padded_size * c;
    row[0] = -q[1];
    row[1] = -q[2];
    row[2] = -q[3];
    row += padded_size;
    row[0] = q[0];
    row[1] = q[3];
    row[2] = -q[2];
    row += padded_size;
    row[0] = -q[3];
    row[1] = q[0];
    row[2] = q[1];
    row += padded_size;
    row[0] = q[2];
    row[1] = -q[1];
    row[2] = q[0];
  }
};

// y = q_delta x, q_delta = (cos |d|, sin |d| d / |d|), w first. y may be x.
CERES_EXT_HOST_DEVICE inline void PlusQuaternion(const double* x,
                                                 const double* delta,
                                                 double* y) {
  // |d|, scaled by the largest element so that nothing overflows; NaN where an
  // element is.
  const double d[3] = {fabs(delta[0]), fabs(delta[1]), fabs(delta[2])};
  const double largest = fmax(d[0], fmax(d[1], d[2]));
  double norm = d[0] + d[1] + d[2];  // Zero, or NaN, where `largest` is zero.
  if (largest != 0.0) {
    const double a = d[0] / largest;
    const double b = d[1] / largest;
    const double c = d[2] / largest;
    norm = UnfusedProduct(largest,
                          sqrt(UnfusedProduct(a, a) + UnfusedProduct(b, b) +
                               UnfusedProduct(c, c)));
  }
  const double x0 = x[0];
  const double x1 = x[1];
  const double x2 = x[2];
  const double x3 = x[3];
  if (norm == 0.0) {
    y[0] = x0;
    y[1] = x1;
    y[2] = x2;
    y[3] = x3;
    return;
  }
  const double scale = sin(norm) / norm;
  const double q0 = cos(norm);
  const double q1 = UnfusedProduct(scale, delta[0]);
  const double q2 = UnfusedProduct(scale, delta[1]);
  const double q3 = UnfusedProduct(scale, delta[2]);
  y[0] = UnfusedProduct(q0, x0) - UnfusedProduct(q1, x1) -
         UnfusedProduct(q2, x2) - UnfusedProduct(q3, x3);
  y[1] = UnfusedProduct(q0, x1) + UnfusedProduct(q1, x0) +
         UnfusedProduct(q2, x3) - UnfusedProduct(q3, x2);
  y[2] = UnfusedProduct(q0, x2) - UnfusedProduct(q1, x3) +
         UnfusedProduct(q2, x0) + UnfusedProduct(q3, x1);
  y[3] = UnfusedProduct(q0, x3) + UnfusedProduct(q1, x2) -
         UnfusedProduct(q2, x1) + UnfusedProduct(q3, x0);
}

// state_plus_delta = Plus(state, delta) for the blocks that have a place in the
// state; nothing else in state_plus_delta changes. It may be `state`.
// x_i + sum_j P_ij d_j is added from the left and leaves out P_ij = 0, so that
// it is what ceres::SubsetManifold computes, bit by bit.
struct PlusParams {
  BlockTableView table;
  const ManifoldKind* kind = nullptr;  // null: all kLinear
  // P of each block, ambient_size x padded_size; columns below tangent_size are
  // read. Null: P_ii = 1 for kLinear, P_i,i-1 = 1 for kQuaternion.
  const double* linear = nullptr;
  const double* state = nullptr;
  const double* delta = nullptr;  // a tangent vector
  double* state_plus_delta = nullptr;

  int64_t size() const { return table.num_blocks; }
  CERES_EXT_HOST_DEVICE void Apply(int64_t block) const {
    const int32_t state_offset = table.state_offset[block];
    if (state_offset < 0) {
      return;
    }
    const int columns = table.tangent_size[block];
    const double* x = state + state_offset;
    const double* d =
        columns > 0 ? delta + table.tangent_offset[block] : nullptr;
    double* y = state_plus_delta + state_offset;
    int row = 0;
    int column = 0;
    if (kind != nullptr && kind[block] == ManifoldKind::kQuaternion) {
      PlusQuaternion(x, d, y);
      row = 4;
      column = 3;
    }
    const int shift = row - column;
    for (; row < table.ambient_size; ++row) {
      double sum = x[row];
      if (linear == nullptr) {
        if (row - shift < columns) {
          sum += d[row - shift];
        }
      } else {
        const double* P =
            linear + (block * table.ambient_size + row) * table.padded_size;
        for (int j = column; j < columns; ++j) {
          if (P[j] != 0.0) {
            sum += UnfusedProduct(P[j], d[j]);
          }
        }
      }
      y[row] = sum;
    }
  }
};

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_OPS_BLOCK_TABLE_H_
