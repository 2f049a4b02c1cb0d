// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// How the host bodies read a Jacobian source, and their loops over chunks of
// points and over cameras. Included by host/x.cc files and the study's bodies.
//
// The host works in the coordinates in which a source has its blocks at hand,
// those of its Local shape: the columns for stored blocks, the 9 local
// coordinates of a camera for recomputed ones. Camera vectors are mapped on the
// way in and sums over a camera on the way out, once per camera instead of once
// per observation:  J = J_local G  =>  J p = J_local (G p),  J'y = G'
// (J_local'y), J'J = G' (J_local' J_local) G.
#ifndef CERES_EXT_CUDA_KERNELS_HOST_HOST_JACOBIAN_H_
#define CERES_EXT_CUDA_KERNELS_HOST_HOST_JACOBIAN_H_

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "cuda_kernels/base/small_matrix.h"
#include "cuda_kernels/model/bal_model.h"
#include "cuda_kernels/model/jacobian_source.h"
#include "cuda_kernels/model/nested_jacobian.h"
#include "cuda_kernels/structure/host_workspace.h"

namespace ceres_ext::kernels::host {

// Cameras per task where a camera takes about a microsecond.
inline constexpr int64_t kCameraGrain = 16;
// Values per task of a sum, some ten microseconds of work: less is not worth a
// second thread.
inline constexpr int64_t kSumGrain = 32768;

// A kRows x N matrix as doubles: where it is, or converted into `storage`. Row
// by row, as it will be read: loads that straddle two stores would stall.
template <int kRows, int N, typename T>
inline const double* AsDouble(const T* values, double* storage) {
  if constexpr (std::is_same_v<T, double>) {
    static_cast<void>(storage);
    return values;
  } else {
    for (int row = 0; row < kRows; ++row) {
#pragma omp simd
      for (int i = 0; i < N; ++i) {
        storage[row * N + i] = static_cast<double>(values[row * N + i]);
      }
    }
    return storage;
  }
}

// q += D^2 p of one block, where D, of all blocks, may be null.
template <int N>
void AddDamping(const double* diagonal,
                int64_t block,
                const double* p,
                double* q) {
  if (diagonal != nullptr) {
    const double* d = diagonal + N * block;
    for (int i = 0; i < N; ++i) {
      q[i] += d[i] * d[i] * p[i];
    }
  }
}

// Reads a source. HostJacobian<Source>::Blocks are the two blocks of one
// observation in the Local shape, jc (R x F) and jp (R x E), row-major:
//   Load(jacobian, k, camera, point)           valid until the next Load
//   Keep(jacobian, k, camera, point, storage)  as Load, and valid as long as
//                                              the kBlocksSize values are
//   Reload(jacobian, k, storage)               what Keep left
template <typename Source>
class HostJacobian;

// The map G of cameras whose columns are those of their blocks: the identity.
template <typename Shape>
class IdentityMap {
 public:
  // local = G p for all cameras, in the workspace or p itself.
  const double* MapCameras(int32_t /*num_cameras*/, const double* p) const {
    return p;
  }
  // out = G' sum.
  void UnmapVector(int32_t /*camera*/, const double* sum, double* out) const {
    std::copy_n(sum, Shape::kF, out);
  }
  // out = G' sum G, packed.
  void UnmapMatrix(int32_t /*camera*/, const double* sum, double* out) const {
    std::copy_n(sum, Shape::kPackedF, out);
  }
};

template <typename T, typename Shape>
class HostJacobian<StoredJacobian<T, Shape, kHostLayout>>
    : public IdentityMap<Shape> {
 public:
  using Local = Shape;
  static constexpr int kBlocksSize = Local::kFSize + Local::kESize;

  HostJacobian(const StoredJacobian<T, Shape, kHostLayout>& source,
               const ObservationIndexRef& /*index*/,
               HostMachine* /*machine*/)
      : source_(source) {}

  class Blocks {
   public:
    void Load(const HostJacobian& jacobian,
              int64_t k,
              int32_t camera,
              int32_t point) {
      Keep(jacobian, k, camera, point, storage_);
    }
    void Keep(const HostJacobian& jacobian,
              int64_t k,
              int32_t /*camera*/,
              int32_t /*point*/,
              double* storage) {
      constexpr int R = Shape::kNumResiduals;
      jc = AsDouble<R, Shape::kF>(&jacobian.source_.camera_blocks(k, 0),
                                  storage);
      jp = AsDouble<R, Shape::kE>(&jacobian.source_.point_blocks(k, 0),
                                  storage + Shape::kFSize);
    }
    void Reload(const HostJacobian& jacobian, int64_t k, double* storage) {
      if constexpr (std::is_same_v<T, double>) {
        Keep(jacobian, k, 0, 0, storage);
      } else {
        jc = storage;
        jp = storage + Shape::kFSize;
      }
    }
    const double* jc;
    const double* jp;

   private:
    double storage_[kBlocksSize];
  };

 private:
  StoredJacobian<T, Shape, kHostLayout> source_;
};

// L J is made once and kept.
template <>
class HostJacobian<NestedJacobian<kHostLayout>>
    : public IdentityMap<NestedJacobian<kHostLayout>::Shape> {
 public:
  using Local = NestedJacobian<kHostLayout>::Shape;
  static constexpr int kBlocksSize = Local::kFSize + Local::kESize;

  HostJacobian(const NestedJacobian<kHostLayout>& source,
               const ObservationIndexRef& /*index*/,
               HostMachine* /*machine*/)
      : source_(source) {}

  class Blocks {
   public:
    void Load(const HostJacobian& jacobian,
              int64_t k,
              int32_t camera,
              int32_t point) {
      Keep(jacobian, k, camera, point, storage_);
    }
    void Keep(const HostJacobian& jacobian,
              int64_t k,
              int32_t camera,
              int32_t point,
              double* storage) {
      jacobian.source_.Load(k, camera, point, storage, storage + Local::kFSize);
      Reload(jacobian, k, storage);
    }
    void Reload(const HostJacobian& /*jacobian*/,
                int64_t /*k*/,
                double* storage) {
      jc = storage;
      jp = storage + Local::kFSize;
    }
    const double* jc;
    const double* jp;

   private:
    double storage_[kBlocksSize];
  };

 private:
  NestedJacobian<kHostLayout> source_;
};

template <typename T, int C, bool kScaledRows>
class HostJacobian<RecomputedJacobian<T, C, kScaledRows>> {
 public:
  using Local = BalShape<kBalLocalCameraDim>;
  static constexpr int kBlocksSize = Local::kFSize + Local::kESize;

  HostJacobian(const RecomputedJacobian<T, C, kScaledRows>& source,
               const ObservationIndexRef& index,
               HostMachine* machine)
      : source_(source),
        local_cameras_(index.host_workspace->local_cameras()),
        context_(machine->context()) {}

  class Blocks {
   public:
    void Load(const HostJacobian& jacobian,
              int64_t k,
              int32_t camera,
              int32_t point) {
      Keep(jacobian, k, camera, point, storage_);
    }
    void Keep(const HostJacobian& jacobian,
              int64_t k,
              int32_t camera,
              int32_t point,
              double* storage) {
      const RecomputedJacobian<T, C, kScaledRows>& source = jacobian.source_;
      Projection<T> projection;
      ProjectForProducts(source.cameras[camera],
                         source.points + int64_t{3} * point,
                         &projection);
      T local_jc[Local::kFSize];
      T local_jp[Local::kESize];
      CameraJacobian(source.cameras[camera], projection, local_jc);
      PointJacobian(source.cameras[camera], projection, local_jp);
      source.ScalePointBlock(point, local_jp);
      source.template ScaleRows<Local::kFSize>(k, local_jc);
      source.template ScaleRows<Local::kESize>(k, local_jp);
      std::copy_n(local_jc, Local::kFSize, storage);
      std::copy_n(local_jp, Local::kESize, storage + Local::kFSize);
      Reload(jacobian, k, storage);
    }
    void Reload(const HostJacobian& /*jacobian*/,
                int64_t /*k*/,
                double* storage) {
      jc = storage;
      jp = storage + Local::kFSize;
    }
    const double* jc;
    const double* jp;

   private:
    double storage_[kBlocksSize];
  };

  const double* MapCameras(int32_t num_cameras, const double* p) const {
    double* local = local_cameras_;
    context_->ParallelFor(
        num_cameras, kSumGrain / kMapSize, [&](int64_t begin, int64_t end) {
          for (int64_t c = begin; c < end; ++c) {
            double storage[kMapSize];
            CameraMapMultiply<C>(Map(static_cast<int32_t>(c), storage),
                                 p + C * c,
                                 local + kBalLocalCameraDim * c);
          }
        });
    return local;
  }
  void UnmapVector(int32_t camera, const double* sum, double* out) const {
    double storage[kMapSize];
    CameraMapTransposeMultiply<C>(Map(camera, storage), sum, out);
  }
  void UnmapMatrix(int32_t camera, const double* sum, double* out) const {
    double storage[kMapSize];
    const double* map = Map(camera, storage);
    for (int j = 0; j < C; ++j) {
      // Column j of G, then of sum G, then row j of G' sum G.
      double column[kBalLocalCameraDim];
      for (int i = 0; i < kBalLocalCameraDim; ++i) {
        column[i] = map[i * C + j];
      }
      double product[kBalLocalCameraDim];
      SymmetricMultiply<kBalLocalCameraDim>(sum, column, product);
      double row[C];
      CameraMapTransposeMultiply<C>(map, product, row);
      std::copy_n(row, j + 1, out + PackedIndex(j, 0));
    }
  }

 private:
  static constexpr int kMapSize = kBalLocalCameraDim * C;

  const double* Map(int32_t camera, double* storage) const {
    return AsDouble<kBalLocalCameraDim, C>(
        source_.camera_maps + int64_t{kMapSize} * camera, storage);
  }

  RecomputedJacobian<T, C, kScaledRows> source_;
  double* local_cameras_;
  HostContext* context_;
};

// y = Jc p.
template <typename Shape>
inline void MultiplyCamera(const double* jc, const double* p, double* y) {
  for (int r = 0; r < Shape::kNumResiduals; ++r) {
    double sum = 0.0;
#pragma omp simd reduction(+ : sum)
    for (int i = 0; i < Shape::kF; ++i) {
      sum += jc[Shape::kF * r + i] * p[i];
    }
    y[r] = sum;
  }
}

// q += Jc' y.
template <typename Shape>
inline void TransposeMultiplyCamera(const double* jc,
                                    const double* y,
                                    double* q) {
#pragma omp simd
  for (int i = 0; i < Shape::kF; ++i) {
    double sum = jc[i] * y[0];
    for (int r = 1; r < Shape::kNumResiduals; ++r) {
      sum += jc[Shape::kF * r + i] * y[r];
    }
    q[i] += sum;
  }
}

// y += Jp x.
template <typename Shape>
inline void MultiplyPointAndAccumulate(const double* jp,
                                       const double* x,
                                       double* y) {
  MatrixMultiplyAndAccumulate<Shape::kNumResiduals, Shape::kE>(jp, x, y);
}

// x += Jp' y.
template <typename Shape>
inline void TransposeMultiplyPoint(const double* jp,
                                   const double* y,
                                   double* x) {
  MatrixTransposeMultiplyAndAccumulate<Shape::kNumResiduals, Shape::kE>(
      jp, y, x);
}

// Calls fn(chunk, first, last, thread) for all chunks of points first ..
// last - 1, their camera sums, row_size per slot, set to zero.
template <typename Function>
void ForEachChunk(const ObservationIndexRef& index,
                  int row_size,
                  HostMachine* machine,
                  Function&& fn) {
  HostWorkspace* workspace = index.host_workspace;
  machine->context()->ParallelFor(
      workspace->num_chunks(),
      1,
      [&](int64_t chunk, int64_t /*chunk_end*/, int thread) {
        if (row_size > 0) {
          const int32_t* slot = workspace->slot_begin() + chunk;
          double* camera_sums = workspace->camera_sums();
          std::fill(camera_sums + int64_t{slot[0]} * row_size,
                    camera_sums + int64_t{slot[1]} * row_size,
                    0.0);
        }
        const int32_t* begin = workspace->chunk_begin() + chunk;
        fn(chunk, begin[0], begin[1], thread);
      });
}

// Calls fn(point, first, last, thread) for all points, where first .. last - 1
// are the point's observations; camera sums as in ForEachChunk.
template <typename Function>
void ForEachPoint(const ObservationIndexRef& index,
                  int row_size,
                  HostMachine* machine,
                  Function&& fn) {
  ForEachChunk(
      index,
      row_size,
      machine,
      [&](int64_t /*chunk*/, int32_t begin, int32_t end, int thread) {
        for (int32_t p = begin; p < end; ++p) {
          fn(p, index.point_begin[p], index.point_begin[p + 1], thread);
        }
      });
}

// The row of camera sums of observation k.
inline double* CameraSum(const ObservationIndexRef& index,
                         int row_size,
                         int64_t k) {
  HostWorkspace* workspace = index.host_workspace;
  return workspace->camera_sums() +
         int64_t{workspace->observation_slot()[k]} * row_size;
}

// Calls fn(camera, sum) for all cameras, where sum are kNumSums of the row_size
// sums that ForEachPoint left for the camera, from `offset` on.
template <int kNumSums, typename Function>
void ForEachCamera(const ObservationIndexRef& index,
                   int row_size,
                   int offset,
                   HostMachine* machine,
                   Function&& fn) {
  HostWorkspace* workspace = index.host_workspace;
  const int64_t grain = std::max<int64_t>(
      1,
      kSumGrain * index.num_cameras / (kNumSums * workspace->num_slots() + 1));
  machine->context()->ParallelFor(
      index.num_cameras, grain, [&](int64_t begin, int64_t end) {
        const int32_t* slot_begin = workspace->camera_slot_begin();
        const int32_t* camera_slot = workspace->camera_slot();
        const double* camera_sums = workspace->camera_sums();
        for (int64_t c = begin; c < end; ++c) {
          double sum[kNumSums] = {};
          for (int32_t j = slot_begin[c]; j < slot_begin[c + 1]; ++j) {
            const double* row =
                camera_sums + int64_t{camera_slot[j]} * row_size + offset;
            for (int i = 0; i < kNumSums; ++i) {
              sum[i] += row[i];
            }
          }
          fn(static_cast<int32_t>(c), static_cast<const double*>(sum));
        }
      });
}

}  // namespace ceres_ext::kernels::host

#endif  // CERES_EXT_CUDA_KERNELS_HOST_HOST_JACOBIAN_H_
