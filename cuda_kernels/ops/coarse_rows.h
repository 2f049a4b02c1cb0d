// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The parts of a second level of PCG (coarse_space.h) without S, if rows have
// one eliminated block ("point") and one other ("camera"), and the points to
// themselves. A *part* is the rows of one point by the cameras of one cluster.
// With Vi = C C',
//
//   T_p  = sum over the rows k of part p of (P_k' Jc_k') Jp_k C     m x E
//   E_IJ = [I = J] sum over cameras i of I of P_i'(U_i + D_i^2) P_i
//          - sum over points that both see of T_I T_J'
//
// Parts are coupled as observations of a point by two cameras are, clusters in
// place of cameras (structure/coupling_index.h). Vector operations
// (ops/vector_operation.h) without sums over elements: the same order on every
// machine.
#ifndef CERES_EXT_CUDA_KERNELS_OPS_COARSE_ROWS_H_
#define CERES_EXT_CUDA_KERNELS_OPS_COARSE_ROWS_H_

#include <cmath>
#include <cstdint>

#include "cuda_kernels/base/block_ref.h"
#include "cuda_kernels/base/host_device.h"
#include "cuda_kernels/base/small_matrix.h"
#include "cuda_kernels/model/bal_model.h"
#include "cuda_kernels/model/jacobian_source.h"
#include "cuda_kernels/ops/block_rows.h"
#include "cuda_kernels/ops/coarse_space.h"
#include "cuda_kernels/ops/vector_operation.h"
#include "cuda_kernels/structure/block_families.h"
#include "cuda_kernels/structure/coupling_index.h"
#include "cuda_kernels/structure/observation_index.h"

namespace ceres_ext::kernels {

// Columns of a point.
inline constexpr int kPartColumns = 3;

// out[i] = in[source[i]], -1 where the source is.
struct GatherIdsParams {
  int64_t n = 0;
  const int32_t* source = nullptr;
  const int32_t* in = nullptr;
  int32_t* out = nullptr;

  CERES_EXT_HOST_DEVICE void Apply(int64_t i) const {
    out[i] = source[i] < 0 ? -1 : in[source[i]];
  }
};

// The rows in the order of (point, cluster) that are the first of a part.
struct FirstOfPartParams {
  int64_t n = 0;
  ObservationIndexRef index;  // clusters in place of cameras
  int32_t* is_first = nullptr;

  CERES_EXT_HOST_DEVICE void Apply(int64_t k) const {
    is_first[k] = k == 0 || index.point_id[k] != index.point_id[k - 1] ||
                          index.camera_id[k] != index.camera_id[k - 1]
                      ? 1
                      : 0;
  }
};

// The parts, by their first rows.
struct ListPartsParams {
  int64_t n = 0;
  ObservationIndexRef index;  // as above
  const int32_t* input_id = nullptr;
  const int32_t* number = nullptr;  // inclusive sums of is_first
  int32_t* row = nullptr;           // n: the place of each row in the input
  int32_t* part_begin = nullptr;    // of each part, and the end
  int32_t* part_cluster = nullptr;  // of each part
  int32_t* part_point = nullptr;    // of each part

  CERES_EXT_HOST_DEVICE void Apply(int64_t k) const {
    row[k] = input_id[k];
    const int32_t part = number[k] - 1;
    if (k == n - 1) {
      part_begin[part + 1] = static_cast<int32_t>(n);
    }
    if (k == 0 || number[k - 1] == part) {
      part_begin[part] = static_cast<int32_t>(k);
      part_cluster[part] = index.camera_id[k];
      part_point[part] = index.point_id[k];
    }
  }
};

// The blocks of a row in coordinates of the camera in which they are cheap: Jc
// times G is that of the source.
template <typename Source>
struct LocalRows {
  static constexpr int kF = Source::Shape::kF;
  CERES_EXT_HOST_DEVICE static double Map(const Source& /*source*/,
                                          int64_t /*camera*/,
                                          int i,
                                          int j) {
    return i == j ? 1.0 : 0.0;
  }
  CERES_EXT_HOST_DEVICE static void Load(const Source& source,
                                         int64_t k,
                                         int32_t camera,
                                         int32_t point,
                                         typename Source::Value* jc,
                                         typename Source::Value* jp) {
    source.Load(k, camera, point, jc, jp);
  }
};
template <typename T, int C, bool kScaledRows>
struct LocalRows<RecomputedJacobian<T, C, kScaledRows>> {
  using Source = RecomputedJacobian<T, C, kScaledRows>;
  static constexpr int kF = kBalLocalCameraDim;
  CERES_EXT_HOST_DEVICE static double Map(const Source& source,
                                          int64_t camera,
                                          int i,
                                          int j) {
    return source.camera_maps[(camera * kF + i) * C + j];
  }
  CERES_EXT_HOST_DEVICE static void Load(const Source& source,
                                         int64_t k,
                                         int32_t camera,
                                         int32_t point,
                                         T* jc,
                                         T* jp) {
    Projection<T> projection;
    ProjectForProducts(source.cameras[camera],
                       source.points + int64_t{3} * point,
                       &projection);
    CameraJacobian(source.cameras[camera], projection, jc);
    PointJacobian(source.cameras[camera], projection, jp);
    source.ScalePointBlock(point, jp);
    source.template ScaleRows<2 * kF>(k, jc);
    source.template ScaleRows<Source::Shape::kESize>(k, jp);
  }
};

// G P of each camera, kF x m: q[(kF camera + i) m + a].
template <typename Source>
struct CameraVectorsParams {
  static constexpr int kUnroll = 1;
  static constexpr int kF = LocalRows<Source>::kF;
  static constexpr int kColumns = Source::Shape::kF;
  int64_t num_cameras = 0;
  Source jacobian;
  // For each column of each camera its place in the order of P; -1 if it is not
  // an unknown.
  const int32_t* place = nullptr;
  const double* p = nullptr;  // m of each in the order
  double* q = nullptr;

  CERES_EXT_HOST_DEVICE int64_t size() const {
    return num_cameras * kF * kCoarseVectors;
  }
  CERES_EXT_HOST_DEVICE void Apply(int64_t at) const {
    const int64_t row = at / kCoarseVectors;
    const int64_t a = at - row * kCoarseVectors;
    const int64_t camera = row / kF;
    const auto i = static_cast<int>(row - camera * kF);
    double sum = 0.0;
    for (int j = 0; j < kColumns; ++j) {
      const int64_t t = place[kColumns * camera + j];
      if (t >= 0) {
        sum += LocalRows<Source>::Map(jacobian, camera, i, j) *
               p[kCoarseVectors * t + a];
      }
    }
    q[at] = sum;
  }
};

// T of all parts, m x E row-major each.
// Mapping: kLanes threads a part, which share its vectors. Order: the rows of
// the part. Traffic per row: its blocks, 8 B of ids, kF m values of q from
// caches; per part E(E+1)/2 values of Vi, m E of T.
template <typename Source, BlockLayout kLayout>
struct PartVectorsParams {
  using Shape = typename Source::Shape;
  static constexpr int kUnroll = 1;
  static constexpr int kLanes = 4;
  static constexpr int kColumns = kCoarseVectors / kLanes;
  static_assert(Shape::kE == kPartColumns);
  int64_t num_parts = 0;
  Source jacobian;
  ObservationIndexRef index;            // of the source
  const int32_t* row = nullptr;         // of each row in the order of parts
  const int32_t* part_begin = nullptr;  // num_parts + 1
  const int32_t* part_point = nullptr;  // num_parts
  BlockRef<const double, Shape::kPackedE, kLayout> v_inverse;
  const double* q = nullptr;  // CameraVectorsParams
  double* t = nullptr;

  CERES_EXT_HOST_DEVICE int64_t size() const { return num_parts * kLanes; }
  CERES_EXT_HOST_DEVICE void Apply(int64_t at) const {
    constexpr int R = Shape::kNumResiduals;
    constexpr int E = Shape::kE;
    constexpr int F = LocalRows<Source>::kF;
    const int64_t part = at / kLanes;
    const int64_t first = kColumns * (at - part * kLanes);
    const int32_t point = part_point[part];
    double sum[kColumns * E] = {};
    for (int64_t k = part_begin[part]; k < part_begin[part + 1]; ++k) {
      const int32_t from = row[k];
      const int32_t camera = index.camera_id[from];
      typename Source::Value jc[R * F];
      typename Source::Value jp[R * E];
      LocalRows<Source>::Load(jacobian, from, camera, point, jc, jp);
      const double* const of_camera =
          q + int64_t{F} * camera * kCoarseVectors + first;
      double y[R * kColumns] = {};
      for (int f = 0; f < F; ++f) {
        for (int a = 0; a < kColumns; ++a) {
          const double value = of_camera[kCoarseVectors * f + a];
          for (int r = 0; r < R; ++r) {
            y[kColumns * r + a] += static_cast<double>(jc[F * r + f]) * value;
          }
        }
      }
      for (int r = 0; r < R; ++r) {
        for (int a = 0; a < kColumns; ++a) {
          for (int e = 0; e < E; ++e) {
            sum[E * a + e] +=
                y[kColumns * r + a] * static_cast<double>(jp[E * r + e]);
          }
        }
      }
    }
    double c[Shape::kPackedE];
    FactorOfInverse(point, c);
    double* const to = t + (kCoarseVectors * part + first) * E;
    for (int a = 0; a < kColumns; ++a) {
      for (int j = 0; j < E; ++j) {
        double value = 0.0;
        for (int i = j; i < E; ++i) {
          value += sum[E * a + i] * c[PackedIndex(i, j)];
        }
        to[E * a + j] = value;
      }
    }
  }

 private:
  // C of Vi = C C', lower. Zeros where Vi is not positive definite.
  CERES_EXT_HOST_DEVICE void FactorOfInverse(int32_t point, double* c) const {
    for (int i = 0; i < Shape::kE; ++i) {
      for (int j = 0; j <= i; ++j) {
        double value = v_inverse(point, PackedIndex(i, j));
        for (int l = 0; l < j; ++l) {
          value -= c[PackedIndex(i, l)] * c[PackedIndex(j, l)];
        }
        if (i == j) {
          c[PackedIndex(i, i)] = value > 0.0 ? std::sqrt(value) : 0.0;
        } else {
          const double pivot = c[PackedIndex(j, j)];
          c[PackedIndex(i, j)] = pivot > 0.0 ? value / pivot : 0.0;
        }
      }
    }
  }
};

// Elements of E are summed by square tiles, so that several elements use a
// value of T.
inline constexpr int kCoarseTile = 3;
inline constexpr int kCoarseTiles = kCoarseVectors / kCoarseTile;
inline constexpr int kCoarseTileSize = kCoarseTile * kCoarseTile;

// sum += rows of a times rows of b, kCoarseTile rows of kPartColumns each.
CERES_EXT_HOST_DEVICE inline void AddPartProduct(const double* a,
                                                 const double* b,
                                                 double* sum) {
  for (int i = 0; i < kCoarseTile; ++i) {
    for (int j = 0; j < kCoarseTile; ++j) {
      double value = a[kPartColumns * i] * b[kPartColumns * j];
      for (int e = 1; e < kPartColumns; ++e) {
        value += a[kPartColumns * i + e] * b[kPartColumns * j + e];
      }
      sum[kCoarseTile * i + j] += value;
    }
  }
}

// Couplings of parts.
struct PartCouplings {
  CouplingIndexRef couplings;
  const double* t = nullptr;

  CERES_EXT_HOST_DEVICE void AddTile(
      int64_t begin, int64_t end, int row, int column, double* sum) const {
    constexpr int kSize = kCoarseVectors * kPartColumns;
    constexpr int kOfTile = kCoarseTile * kPartColumns;
    for (int64_t c = begin; c < end; ++c) {
      const int64_t coupling = couplings.coupling[c];
      AddPartProduct(t + kSize * FirstOfCoupling(coupling) + kOfTile * row,
                     t + kSize * SecondOfCoupling(coupling) + kOfTile * column,
                     sum);
    }
  }
};

// The sums over chunks of the blocks of E that are cut, a tile after the other.
// Mapping: a thread takes a tile. Traffic: 8 B a coupling, and T of its parts.
struct PartChunksParams {
  static constexpr int kUnroll = 1;
  static constexpr int kOfBlock = kCoarseTiles * kCoarseTiles;
  PartCouplings of;
  double* partial = nullptr;  // kCoarseVectors^2 per chunk

  CERES_EXT_HOST_DEVICE int64_t size() const {
    return of.couplings.num_chunks * kOfBlock;
  }
  CERES_EXT_HOST_DEVICE void Apply(int64_t at) const {
    const int64_t c = at / kOfBlock;
    const auto tile = static_cast<int>(at - c * kOfBlock);
    const CouplingChunk chunk = of.couplings.chunk[c];
    const int64_t end = of.couplings.coupling_begin[chunk.block + 1];
    const int64_t chunk_size = of.couplings.chunk_size();
    double sum[kCoarseTileSize] = {};
    of.AddTile(chunk.begin,
               end - chunk.begin < chunk_size ? end : chunk.begin + chunk_size,
               tile / kCoarseTiles,
               tile % kCoarseTiles,
               sum);
    for (int i = 0; i < kCoarseTileSize; ++i) {
      partial[kCoarseTileSize * at + i] = sum[i];
    }
  }
};

// The blocks of E beside the diagonal.
// Mapping: a thread takes a tile. Order: couplings, or chunks of them,
// ascending.
struct OtherCoarseBlocksParams {
  static constexpr int kUnroll = 1;
  static constexpr int kOfBlock = PartChunksParams::kOfBlock;
  PartCouplings of;
  const double* partial = nullptr;
  int64_t stride = 0;
  double* e = nullptr;

  CERES_EXT_HOST_DEVICE int64_t size() const {
    return of.couplings.num_blocks * kOfBlock;
  }
  CERES_EXT_HOST_DEVICE void Apply(int64_t at) const {
    const int64_t block = at / kOfBlock;
    const auto tile = static_cast<int>(at - block * kOfBlock);
    const int32_t row = of.couplings.row[block];
    const int32_t column = of.couplings.column[block];
    if (row == column) {
      return;
    }
    const int tile_row = tile / kCoarseTiles;
    const int tile_column = tile % kCoarseTiles;
    const int64_t begin = of.couplings.coupling_begin[block];
    const int64_t end = of.couplings.coupling_begin[block + 1];
    const int64_t chunk_size = of.couplings.chunk_size();
    double sum[kCoarseTileSize] = {};
    if (end - begin <= chunk_size) {
      of.AddTile(begin, end, tile_row, tile_column, sum);
    } else {
      int64_t chunk = FirstChunk(of.couplings, block);
      for (int64_t c = begin; c < end; c += chunk_size, ++chunk) {
        for (int i = 0; i < kCoarseTileSize; ++i) {
          sum[i] += partial[kCoarseTileSize * (kOfBlock * chunk + tile) + i];
        }
      }
    }
    for (int i = 0; i < kCoarseTile; ++i) {
      for (int j = 0; j < kCoarseTile; ++j) {
        const int64_t a =
            int64_t{kCoarseVectors} * row + kCoarseTile * tile_row + i;
        const int64_t b =
            int64_t{kCoarseVectors} * column + kCoarseTile * tile_column + j;
        e[b * stride + a] = -sum[kCoarseTile * i + j];
      }
    }
  }
};

// Terms of the diagonal blocks of E, which kLanes threads share, by the tiles
// on and below the diagonal of a block. partial[((cluster kLanes + lane) kTiles
// + tile) kCoarseTileSize + element]. Traffic: T once for each row of tiles,
// from caches, U and P.
struct CoarseDiagonalParams {
  static constexpr int kUnroll = 1;
  static constexpr int kLanes = 128;
  static constexpr int kTiles = PackedSize(kCoarseTiles);
  int64_t num_clusters = 0;
  const int64_t* part_begin = nullptr;  // num_clusters + 1, in part
  const int32_t* part = nullptr;        // the parts of each cluster
  const double* t = nullptr;
  const int32_t* camera_begin = nullptr;  // num_clusters + 1, in camera
  const int32_t* camera = nullptr;        // the cameras of each cluster
  int32_t columns = 0;                    // of a camera
  const int32_t* place = nullptr;         // CameraVectorsParams
  const double* p = nullptr;
  BlockArray<const double> u;        // packed
  const double* diagonal = nullptr;  // D of the cameras; null: zero
  double* partial = nullptr;

  CERES_EXT_HOST_DEVICE int64_t size() const {
    return num_clusters * kLanes * kTiles;
  }
  CERES_EXT_HOST_DEVICE void Apply(int64_t at) const {
    const int64_t owner = at / kTiles;
    const auto tile = static_cast<int>(at - owner * kTiles);
    const int64_t cluster = owner / kLanes;
    const int64_t lane = owner - cluster * kLanes;
    const int row = PackedRow(tile);
    const int column = tile - PackedIndex(row, 0);
    constexpr int kSize = kCoarseVectors * kPartColumns;
    constexpr int kOfTile = kCoarseTile * kPartColumns;
    double sum[kCoarseTileSize] = {};
    for (int64_t i = part_begin[cluster] + lane; i < part_begin[cluster + 1];
         i += kLanes) {
      const double* const of_part = t + int64_t{kSize} * part[i];
      AddPartProduct(of_part + kOfTile * row, of_part + kOfTile * column, sum);
    }
    for (double& value : sum) {
      value = -value;
    }
    for (int64_t i = camera_begin[cluster] + lane;
         i < camera_begin[cluster + 1];
         i += kLanes) {
      AddCamera(camera[i], kCoarseTile * row, kCoarseTile * column, sum);
    }
    for (int i = 0; i < kCoarseTileSize; ++i) {
      partial[kCoarseTileSize * at + i] = sum[i];
    }
  }

 private:
  // sum += P'(U + D^2) P
  CERES_EXT_HOST_DEVICE void AddCamera(int64_t c,
                                       int row,
                                       int column,
                                       double* sum) const {
    const int32_t* const of_camera = place + columns * c;
    for (int i = 0; i < columns; ++i) {
      if (of_camera[i] < 0) {
        continue;
      }
      double product[kCoarseTile] = {};  // a row of (U + D^2) P
      for (int j = 0; j < columns; ++j) {
        if (of_camera[j] < 0) {
          continue;
        }
        double value = u(c, i >= j ? PackedIndex(i, j) : PackedIndex(j, i));
        if (i == j && diagonal != nullptr) {
          const double d = diagonal[columns * c + i];
          value += d * d;
        }
        const double* const right =
            p + int64_t{kCoarseVectors} * of_camera[j] + column;
        for (int b = 0; b < kCoarseTile; ++b) {
          product[b] += value * right[b];
        }
      }
      const double* const left =
          p + int64_t{kCoarseVectors} * of_camera[i] + row;
      for (int a = 0; a < kCoarseTile; ++a) {
        for (int b = 0; b < kCoarseTile; ++b) {
          sum[kCoarseTile * a + b] += left[a] * product[b];
        }
      }
    }
  }
};

// The diagonal blocks of E from these, their lower halves.
struct FinishCoarseDiagonalParams {
  static constexpr int kUnroll = 1;
  static constexpr int kOfCluster =
      CoarseDiagonalParams::kTiles * kCoarseTileSize;
  int64_t num_clusters = 0;
  int64_t stride = 0;
  const double* partial = nullptr;
  double* e = nullptr;

  CERES_EXT_HOST_DEVICE int64_t size() const {
    return num_clusters * kOfCluster;
  }
  CERES_EXT_HOST_DEVICE void Apply(int64_t at) const {
    const int64_t cluster = at / kOfCluster;
    const auto element = static_cast<int>(at - cluster * kOfCluster);
    const int tile = element / kCoarseTileSize;
    const int of_tile = element - kCoarseTileSize * tile;
    const int row = PackedRow(tile);
    const int a = kCoarseTile * row + of_tile / kCoarseTile;
    const int b =
        kCoarseTile * (tile - PackedIndex(row, 0)) + of_tile % kCoarseTile;
    if (b > a) {
      return;
    }
    double sum = 0.0;
    for (int64_t lane = 0; lane < CoarseDiagonalParams::kLanes; ++lane) {
      sum +=
          partial[(cluster * CoarseDiagonalParams::kLanes + lane) * kOfCluster +
                  element];
    }
    e[(kCoarseVectors * cluster + b) * stride + kCoarseVectors * cluster + a] =
        sum;
  }
};

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_OPS_COARSE_ROWS_H_
