// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/glue/batch_jacobian.h"

#include <algorithm>
#include <limits>

#include "cuda_kernels/jacobian_products_kernels.h"

namespace ceres_ext {

using kernels::Status;

namespace {

// Rows of a camera map.
constexpr int kLocalSize = kernels::kBalLocalCameraDim;

}  // namespace

template <int C>
std::unique_ptr<BatchJacobian<C>> BatchJacobian<C>::Create(JacobianType type,
                                                           BatchShape* shape,
                                                           Status* status) {
  std::unique_ptr<BatchJacobian> jacobian(new BatchJacobian(type, shape));
  *status = jacobian->Allocate();
  return status->ok() ? std::move(jacobian) : nullptr;
}

template <int C>
Status BatchJacobian<C>::Allocate() {
  if (type_ == JACOBIAN_STORED) {
    const int64_t num_observations = shape_->index.view().num_observations;
    CERES_EXT_RETURN_IF_ERROR(
        camera_blocks_.Allocate(2 * C * num_observations, 0.0));
    CERES_EXT_RETURN_IF_ERROR(
        point_blocks_.Allocate(6 * num_observations, 0.0));
  } else {
    const int64_t num_cameras = shape_->cameras.size();
    const int64_t num_points = shape_->points.size();
    CERES_EXT_RETURN_IF_ERROR(cameras_.Allocate(num_cameras));
    CERES_EXT_RETURN_IF_ERROR(
        camera_maps_.Allocate(kLocalSize * C * num_cameras, 0.0));
    CERES_EXT_RETURN_IF_ERROR(points_.Allocate(3 * num_points, 0.0));
    CERES_EXT_RETURN_IF_ERROR(point_scale_.Allocate(3 * num_points, 1.0));
  }
  CERES_EXT_RETURN_IF_ERROR(
      camera_x_.Allocate(shape_->cameras.padded_values()));
  return point_x_.Allocate(shape_->points.padded_values());
}

template <int C>
kernels::BlockView<double, 2 * C, kernels::kHostLayout>
BatchJacobian<C>::camera_blocks() {
  return {camera_blocks_.data(), shape_->index.view().num_observations};
}

template <int C>
kernels::BlockView<double, 6, kernels::kHostLayout>
BatchJacobian<C>::point_blocks() {
  return {point_blocks_.data(), shape_->index.view().num_observations};
}

template <int C>
void BatchJacobian<C>::SetState(const kernels::CameraState<double>* cameras,
                                const double* camera_maps,
                                const double* points,
                                const double* point_scale) {
  std::copy_n(cameras, cameras_.size(), cameras_.data());
  std::copy_n(camera_maps, camera_maps_.size(), camera_maps_.data());
  std::copy_n(points, points_.size(), points_.data());
  if (point_scale != nullptr) {
    std::copy_n(point_scale, point_scale_.size(), point_scale_.data());
  } else {
    std::fill_n(point_scale_.data(), point_scale_.size(), 1.0);
  }
}

template <int C>
typename BatchJacobian<C>::Stored BatchJacobian<C>::stored() const {
  const int64_t num_observations = shape_->index.view().num_observations;
  return {{camera_blocks_.data(), num_observations},
          {point_blocks_.data(), num_observations}};
}

template <int C>
typename BatchJacobian<C>::Recomputed BatchJacobian<C>::recomputed() const {
  return {cameras_.data(),
          camera_maps_.data(),
          points_.data(),
          point_scale_.data()};
}

// y += J x
template <int C>
void BatchJacobian<C>::RightMultiplyAndAccumulate(const double* x,
                                                  double* y) const {
  shape_->cameras.Gather(x, 0.0, camera_x_.data(), shape_->context);
  shape_->points.Gather(x, 0.0, point_x_.data(), shape_->context);
  WithSource([&](auto source) {
    kernels::RightMultiplyParams<decltype(source)> params;
    params.index = shape_->index.view();
    params.jacobian = source;
    params.camera_x = camera_x_.data();
    params.point_x = point_x_.data();
    params.y = y;
    params.accumulate = true;
    kernels::reference::RightMultiply(params, shape_->backend.workspace());
  });
}

// x += J' y
template <int C>
void BatchJacobian<C>::LeftMultiplyAndAccumulate(const double* y,
                                                 double* x) const {
  shape_->cameras.Gather(x, 0.0, camera_x_.data(), shape_->context);
  shape_->points.Gather(x, 0.0, point_x_.data(), shape_->context);
  WithSource([&](auto source) {
    kernels::LeftMultiplyParams<decltype(source)> params;
    params.index = shape_->index.view();
    params.jacobian = source;
    params.y = y;
    params.camera_x = camera_x_.data();
    params.point_x = point_x_.data();
    params.accumulate = true;
    kernels::reference::LeftMultiply(params, shape_->backend.workspace());
  });
  shape_->cameras.Scatter(camera_x_.data(), x, shape_->context);
  shape_->points.Scatter(point_x_.data(), x, shape_->context);
}

template <int C>
void BatchJacobian<C>::SquaredColumnNorm(double* x) const {
  WithSource([&](auto source) {
    kernels::SquaredColumnNormsParams<decltype(source)> params;
    params.index = shape_->index.view();
    params.jacobian = source;
    params.camera_x = camera_x_.data();
    params.point_x = point_x_.data();
    kernels::reference::SquaredColumnNorms(params, shape_->backend.workspace());
  });
  shape_->cameras.Scatter(camera_x_.data(), x, shape_->context);
  shape_->points.Scatter(point_x_.data(), x, shape_->context);
}

// J = J diag(scale)
template <int C>
void BatchJacobian<C>::ScaleColumns(const double* scale) {
  shape_->cameras.Gather(scale, 1.0, camera_x_.data(), shape_->context);
  shape_->points.Gather(scale, 1.0, point_x_.data(), shape_->context);
  if (type_ == JACOBIAN_STORED) {
    kernels::ScaleColumnsParams<double, C, kernels::kHostLayout> params;
    params.index = shape_->index.view();
    params.camera_blocks = camera_blocks();
    params.point_blocks = point_blocks();
    params.camera_scale = camera_x_.data();
    params.point_scale = point_x_.data();
    kernels::reference::ScaleColumns(params, shape_->backend.workspace());
    return;
  }
  for (int64_t c = 0; c < shape_->cameras.size(); ++c) {
    for (int i = 0; i < kLocalSize * C; ++i) {
      camera_maps_.data()[kLocalSize * C * c + i] *=
          camera_x_.data()[C * c + i % C];
    }
  }
  for (int64_t i = 0; i < point_scale_.size(); ++i) {
    point_scale_.data()[i] *= point_x_.data()[i];
  }
}

template <int C>
void BatchJacobian<C>::SetZero() {
  std::fill_n(camera_blocks_.data(), camera_blocks_.size(), 0.0);
  std::fill_n(point_blocks_.data(), point_blocks_.size(), 0.0);
  std::fill_n(camera_maps_.data(), camera_maps_.size(), 0.0);
  std::fill_n(point_scale_.data(), point_scale_.size(), 0.0);
}

template <int C>
template <typename Visit>
void BatchJacobian<C>::ForEachValue(Visit&& visit) const {
  const BlockTable& cameras = shape_->cameras;
  const BlockTable& points = shape_->points;
  const kernels::ObservationIndexView& index = shape_->index.view();
  for (int64_t k = 0; k < index.num_observations; ++k) {
    const int32_t camera = index.camera_id[k];
    const int32_t point = index.point_id[k];
    double jc[2 * C];
    double jp[6];
    WithSource(
        [&](const auto& source) { source.Load(k, camera, point, jc, jp); });
    for (int row = 0; row < 2; ++row) {
      for (int j = 0; j < points.tangent_size[point]; ++j) {
        visit(2 * k + row, points.tangent_offset[point] + j, jp[3 * row + j]);
      }
      for (int j = 0; j < cameras.tangent_size[camera]; ++j) {
        visit(2 * k + row, cameras.tangent_offset[camera] + j, jc[C * row + j]);
      }
    }
  }
}

template <int C>
void BatchJacobian<C>::ToDenseMatrix(ceres::Matrix* dense_matrix) const {
  *dense_matrix = ceres::Matrix::Zero(num_rows(), num_cols());
  ForEachValue([&](int64_t row, int column, double value) {
    (*dense_matrix)(row, column) = value;
  });
}

template <int C>
void BatchJacobian<C>::ToTextFile(FILE* file) const {
  ForEachValue([&](int64_t row, int column, double value) {
    std::fprintf(
        file, "% 10d % 10d %17f\n", static_cast<int>(row), column, value);
  });
}

template <int C>
double* BatchJacobian<C>::mutable_values() {
  return type_ == JACOBIAN_STORED ? camera_blocks_.data() : camera_maps_.data();
}

template <int C>
const double* BatchJacobian<C>::values() const {
  return type_ == JACOBIAN_STORED ? camera_blocks_.data() : camera_maps_.data();
}

template <int C>
int BatchJacobian<C>::num_rows() const {
  return static_cast<int>(2 * shape_->index.view().num_observations);
}

template <int C>
int BatchJacobian<C>::num_nonzeros() const {
  const kernels::ObservationIndexView& index = shape_->index.view();
  int64_t num_nonzeros = 0;
  for (int64_t k = 0; k < index.num_observations; ++k) {
    num_nonzeros += 2 * (shape_->cameras.tangent_size[index.camera_id[k]] +
                         shape_->points.tangent_size[index.point_id[k]]);
  }
  return static_cast<int>(
      std::min<int64_t>(num_nonzeros, std::numeric_limits<int>::max()));
}

template <int C>
int64_t BatchJacobian<C>::memory_bytes() const {
  return camera_blocks_.bytes() + point_blocks_.bytes() + cameras_.bytes() +
         camera_maps_.bytes() + points_.bytes() + point_scale_.bytes() +
         camera_x_.bytes() + point_x_.bytes();
}

template class BatchJacobian<9>;
template class BatchJacobian<10>;

}  // namespace ceres_ext
