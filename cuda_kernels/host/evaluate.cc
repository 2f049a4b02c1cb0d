// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include <algorithm>
#include <string>

#include "cuda_kernels/ops/evaluate.h"
#include "cuda_kernels/host/host_jacobian.h"
#include "cuda_kernels/structure/host_workspace.h"

namespace ceres_ext::kernels::host {
namespace {

// map = L T diag(s); local: L, 9 x A; tangent: T, A x C, null: [I 0].
template <int A, int C>
void ComposeCameraMap(const double* local,
                      const double* tangent,
                      const double* scale,
                      double* map) {
  for (int i = 0; i < kBalLocalCameraDim; ++i) {
    for (int j = 0; j < C; ++j) {
      double sum = 0.0;
      if (tangent == nullptr) {
        sum = j < A ? local[i * A + j] : 0.0;
      } else {
        for (int a = 0; a < A; ++a) {
          sum += local[i * A + a] * tangent[a * C + j];
        }
      }
      map[i * C + j] = scale == nullptr ? sum : sum * scale[j];
    }
  }
}

template <CameraParameters kParameters>
CameraState<double> PrepareCamera(const double* camera, double* local) {
  constexpr int kRotationDim = static_cast<int>(kParameters) - 6;
  double rotation_map[3 * kRotationDim];
  CameraState<double> state;
  if constexpr (kParameters == CameraParameters::kAngleAxis) {
    state = PrepareAngleAxisCamera(camera, rotation_map);
  } else {
    state = PrepareQuaternionCamera(camera, rotation_map);
  }
  ExpandCameraMap<kRotationDim>(rotation_map, local);
  return state;
}

template <CameraParameters kParameters, typename T, int C>
void PrepareAllCameras(const PrepareCamerasParams<T, C>& params,
                       HostContext* context) {
  constexpr int A = static_cast<int>(kParameters);
  constexpr int kMapSize = kBalLocalCameraDim * C;
  context->ParallelFor(
      params.num_cameras, kCameraGrain, [&](int64_t begin, int64_t end) {
        for (int64_t c = begin; c < end; ++c) {
          double local[kBalLocalCameraDim * A];
          params.states[c] = CameraStateCast<T>(
              PrepareCamera<kParameters>(params.cameras + A * c, local));
          if (params.maps == nullptr) {
            continue;
          }
          double map[kMapSize];
          ComposeCameraMap<A, C>(
              local,
              params.tangent == nullptr ? nullptr : params.tangent + A * C * c,
              params.camera_scale == nullptr ? nullptr
                                             : params.camera_scale + C * c,
              map);
          for (int i = 0; i < kMapSize; ++i) {
            params.maps[kMapSize * c + i] = static_cast<T>(map[i]);
          }
        }
      });
}

// The sums of one chunk of points, and their sum in the order of the chunks.
class EvaluationSums {
 public:
  explicit EvaluationSums(HostWorkspace* workspace)
      : num_chunks_(workspace->num_chunks()),
        partial_sums_(workspace->partial_sums()) {}

  void Set(int64_t chunk, double squared_norm, int64_t num_not_finite) {
    partial_sums_[2 * chunk] = squared_norm;
    partial_sums_[2 * chunk + 1] = static_cast<double>(num_not_finite);
  }

  Evaluation Sum() const {
    double squared_norm = 0.0;
    double num_not_finite = 0.0;
    for (int64_t i = 0; i < num_chunks_; ++i) {
      squared_norm += partial_sums_[2 * i];
      num_not_finite += partial_sums_[2 * i + 1];
    }
    return {0.5 * squared_norm, static_cast<int64_t>(num_not_finite)};
  }

 private:
  int64_t num_chunks_;
  double* partial_sums_;
};

// Whether every map is [A 0 0; 0 B 0], A 3 x 3 and B 6 x 6 diagonal: cameras
// without a manifold, or with a full one for the rotation, scaled or constant.
template <int C>
bool MapsAreBlockDiagonal(int32_t num_cameras, const double* maps) {
  bool others_are_zero = true;
  for (int64_t c = 0; c < num_cameras; ++c) {
    const double* map = maps + kBalLocalCameraDim * C * c;
    for (int i = 0; i < kBalLocalCameraDim; ++i) {
      for (int j = 0; j < C; ++j) {
        const bool in_block = (i < 3 && j < 3) || i == j;
        others_are_zero &= in_block || map[i * C + j] == 0.0;
      }
    }
  }
  return others_are_zero;
}

// jc = local map, 2 x C = 2 x 9 times 9 x C.
template <int C>
void MapJacobian(bool block_diagonal,
                 const double* local,
                 const double* map,
                 double* jc) {
  if (block_diagonal) {
    for (int i = 0; i < 2; ++i) {
      const double* l = local + kBalLocalCameraDim * i;
      double* row = jc + C * i;
      for (int j = 0; j < 3; ++j) {
        row[j] = l[0] * map[j] + l[1] * map[C + j] + l[2] * map[2 * C + j];
      }
      for (int j = 3; j < C; ++j) {
        row[j] = j < kBalLocalCameraDim ? l[j] * map[j * C + j] : 0.0;
      }
    }
    return;
  }
  double row0[C] = {};
  double row1[C] = {};
  for (int i = 0; i < kBalLocalCameraDim; ++i) {
    const double a = local[i];
    const double b = local[kBalLocalCameraDim + i];
#pragma omp simd
    for (int j = 0; j < C; ++j) {
      row0[j] += a * map[i * C + j];
      row1[j] += b * map[i * C + j];
    }
  }
  std::copy_n(row0, C, jc);
  std::copy_n(row1, C, jc + C);
}

// J_p diag(s), s may be null.
void ScalePointJacobian(const double* scale, double* jp) {
  if (scale != nullptr) {
    for (int i = 0; i < 6; ++i) {
      jp[i] *= scale[i % 3];
    }
  }
}

// Converts and stores; false where a stored value is not finite.
template <int N, typename T>
bool StoreBlock(const double* from, T* to) {
  // 0 * value is zero or, where the value is not finite, not a number.
  T zero = 0;
  for (int i = 0; i < N; ++i) {
    to[i] = static_cast<T>(from[i]);
  }
#pragma omp simd reduction(+ : zero)
  for (int i = 0; i < N; ++i) {
    zero += T(0) * to[i];
  }
  return zero == T(0);
}

}  // namespace

template <typename T, int C>
Status PrepareCameras(const PrepareCamerasParams<T, C>& params,
                      HostContext* context) {
  const int num_parameters = static_cast<int>(params.parameters);
  if (params.tangent == nullptr && params.maps != nullptr &&
      C < num_parameters) {
    return {StatusCode::kInvalidArgument,
            "Cameras of " + std::to_string(num_parameters) +
                " parameters need tangent matrices for " + std::to_string(C) +
                " columns."};
  }
  if (params.parameters == CameraParameters::kAngleAxis) {
    PrepareAllCameras<CameraParameters::kAngleAxis>(params, context);
  } else {
    PrepareAllCameras<CameraParameters::kQuaternion>(params, context);
  }
  return {};
}

void EvaluateCost(const EvaluateCostParams& params, HostWorkspace* workspace) {
  const ObservationIndexView& index = params.index;
  EvaluationSums sums(workspace);
  ForEachChunk(0,
               workspace,
               [&](int64_t chunk, int32_t begin, int32_t end, int /*thread*/) {
                 double squared_norm = 0.0;
                 int64_t num_not_finite = 0;
                 for (int32_t p = begin; p < end; ++p) {
                   for (int64_t k = index.point_begin[p];
                        k < index.point_begin[p + 1];
                        ++k) {
                     const CameraState<double>& camera =
                         params.cameras[index.camera_id[k]];
                     double residual[2];
                     Residual(camera,
                              Project(camera, params.points + int64_t{3} * p),
                              params.observations + 2 * k,
                              residual);
                     squared_norm +=
                         residual[0] * residual[0] + residual[1] * residual[1];
                     num_not_finite += AllFinite(residual, 2) ? 0 : 1;
                     if (params.residuals != nullptr) {
                       std::copy_n(residual, 2, params.residuals + 2 * k);
                     }
                   }
                 }
                 sums.Set(chunk, squared_norm, num_not_finite);
               });
  *params.evaluation = sums.Sum();
}

template <typename T, int C>
void EvaluateJacobian(const EvaluateJacobianParams<T, C, kHostLayout>& params,
                      HostWorkspace* workspace) {
  const ObservationIndexView& index = params.index;
  const int row_size = params.camera_gradient == nullptr ? 0 : C;
  const bool block_diagonal =
      MapsAreBlockDiagonal<C>(index.num_cameras, params.camera_maps);
  EvaluationSums sums(workspace);
  ForEachChunk(
      row_size,
      workspace,
      [&](int64_t chunk, int32_t begin, int32_t end, int /*thread*/) {
        double squared_norm = 0.0;
        int64_t num_not_finite = 0;
        for (int32_t p = begin; p < end; ++p) {
          const double* point = params.points + int64_t{3} * p;
          const double* point_scale = params.point_scale == nullptr
                                          ? nullptr
                                          : params.point_scale + int64_t{3} * p;
          double point_gradient[3] = {};
          for (int64_t k = index.point_begin[p]; k < index.point_begin[p + 1];
               ++k) {
            const int64_t c = index.camera_id[k];
            double residual[2];
            double jc[2 * C];
            double jp[6];
            const CameraState<double>& camera = params.cameras[c];
            const Projection<double> projection = Project(camera, point);
            Residual(camera, projection, params.observations + 2 * k, residual);
            double local[2 * kBalLocalCameraDim];
            CameraJacobian(camera, projection, local);
            MapJacobian<C>(block_diagonal,
                           local,
                           params.camera_maps + kBalLocalCameraDim * C * c,
                           jc);
            PointJacobian(camera, projection, jp);
            ScalePointJacobian(point_scale, jp);
            squared_norm +=
                residual[0] * residual[0] + residual[1] * residual[1];
            const bool jc_finite =
                StoreBlock<2 * C>(jc, &params.camera_blocks(k, 0));
            const bool jp_finite =
                StoreBlock<6>(jp, &params.point_blocks(k, 0));
            const bool finite =
                AllFinite(residual, 2) && jc_finite && jp_finite;
            num_not_finite += finite ? 0 : 1;
            if (params.residuals != nullptr) {
              std::copy_n(residual, 2, params.residuals + 2 * k);
            }
            TransposeMultiplyPoint(jp, residual, point_gradient);
            if (row_size > 0) {
              TransposeMultiplyCamera<C>(
                  jc, residual, CameraSum(workspace, C, k));
            }
          }
          if (params.point_gradient != nullptr) {
            std::copy_n(
                point_gradient, 3, params.point_gradient + int64_t{3} * p);
          }
        }
        sums.Set(chunk, squared_norm, num_not_finite);
      });
  *params.evaluation = sums.Sum();
  if (row_size > 0) {
    ForEachCamera<C>(index, C, 0, workspace, [&](int32_t c, const double* sum) {
      std::copy_n(sum, C, params.camera_gradient + int64_t{C} * c);
    });
  }
}

#define CERES_EXT_INSTANTIATE(T, C)                                 \
  template Status PrepareCameras(const PrepareCamerasParams<T, C>&, \
                                 HostContext*);                     \
  template void EvaluateJacobian(                                   \
      const EvaluateJacobianParams<T, C, kHostLayout>&, HostWorkspace*)

CERES_EXT_INSTANTIATE(double, 9);
CERES_EXT_INSTANTIATE(double, 10);
CERES_EXT_INSTANTIATE(float, 9);
CERES_EXT_INSTANTIATE(float, 10);

}  // namespace ceres_ext::kernels::host
