// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/glue/jacobian.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "ceres_ext/glue/machines.h"
#include "cuda_kernels/ops/jacobian_products.h"
#include "cuda_kernels/ops/vectors.h"
#include "glog/logging.h"

namespace ceres_ext {

using kernels::Status;

namespace {

// Rows of a camera map.
constexpr int kLocalSize = kernels::kBalLocalCameraDim;

// Ceres's matrices can't report an error.
void LogIfError(const Status& status) {
  LOG_IF(ERROR, !status.ok()) << status.message;
}

}  // namespace

template <typename Machine, typename T, int C>
std::unique_ptr<BatchJacobian<Machine, T, C>>
BatchJacobian<Machine, T, C>::Create(JacobianType type,
                                     const BatchShape<Machine>* shape,
                                     Status* status) {
  std::unique_ptr<BatchJacobian> jacobian(new BatchJacobian(type, shape));
  *status = jacobian->Allocate();
  return status->ok() ? std::move(jacobian) : nullptr;
}

template <typename Machine, typename T, int C>
Status BatchJacobian<Machine, T, C>::Allocate() {
  Machine* machine = shape_->machine();
  const int64_t num_cameras = shape_->cameras().size();
  const int64_t num_points = shape_->points().size();
  if (type_ == JACOBIAN_STORED) {
    const int64_t n = shape_->index().num_observations;
    CERES_EXT_RETURN_IF_ERROR(machine->Allocate(2 * C * n, &camera_blocks_));
    CERES_EXT_RETURN_IF_ERROR(machine->Allocate(6 * n, &point_blocks_));
  } else {
    const int64_t ambient = shape_->cameras().ambient_size;
    CERES_EXT_RETURN_IF_ERROR(
        machine->Allocate(ambient * num_cameras, &cameras_));
    CERES_EXT_RETURN_IF_ERROR(
        machine->Allocate(ambient * C * num_cameras, &tangents_));
    CERES_EXT_RETURN_IF_ERROR(
        machine->Allocate(C * num_cameras, &camera_scale_));
    CERES_EXT_RETURN_IF_ERROR(machine->Allocate(3 * num_points, &point_scale_));
    CERES_EXT_RETURN_IF_ERROR(machine->Allocate(num_cameras, &camera_states_));
    CERES_EXT_RETURN_IF_ERROR(
        machine->Allocate(kLocalSize * C * num_cameras, &camera_maps_));
    CERES_EXT_RETURN_IF_ERROR(machine->Allocate(3 * num_points, &points_));
    CERES_EXT_RETURN_IF_ERROR(
        machine->Allocate(3 * num_points, &point_scale_in_t_));
  }
  CERES_EXT_RETURN_IF_ERROR(
      machine->Allocate(shape_->cameras().padded_values(), &camera_x_));
  CERES_EXT_RETURN_IF_ERROR(
      machine->Allocate(shape_->points().padded_values(), &point_x_));
  return CountNonzeros();
}

template <typename Machine, typename T, int C>
Status BatchJacobian<Machine, T, C>::CountNonzeros() {
  // The sum over observations of the columns of their blocks, from the number
  // of observations of every camera and point.
  const kernels::ObservationIndexView& index = shape_->index();
  const auto count = [this](const BlockTable& table,
                            const int64_t* begin,
                            int64_t* sum) -> Status {
    std::vector<int64_t> host_begin(table.size() + 1);
    CERES_EXT_RETURN_IF_ERROR(shape_->machine()->Download(
        table.size() + 1, begin, host_begin.data()));
    for (int32_t i = 0; i < table.size(); ++i) {
      *sum += 2 * table.tangent_size[i] * (host_begin[i + 1] - host_begin[i]);
    }
    return {};
  };
  int64_t sum = 0;
  CERES_EXT_RETURN_IF_ERROR(count(shape_->cameras(), index.camera_begin, &sum));
  CERES_EXT_RETURN_IF_ERROR(count(shape_->points(), index.point_begin, &sum));
  num_nonzeros_ =
      static_cast<int>(std::min<int64_t>(sum, std::numeric_limits<int>::max()));
  return {};
}

template <typename Machine, typename T, int C>
Status BatchJacobian<Machine, T, C>::SetState(const BatchState& state) {
  Machine* machine = shape_->machine();
  state_ = state;
  CERES_EXT_RETURN_IF_ERROR(kernels::Run(
      kernels::CopyParams{cameras_.size(), state.cameras, cameras_.data()},
      machine));
  state_.cameras = cameras_.data();
  if (state.tangents != nullptr) {
    CERES_EXT_RETURN_IF_ERROR(kernels::Run(
        kernels::CopyParams{tangents_.size(), state.tangents, tangents_.data()},
        machine));
    state_.tangents = tangents_.data();
  }
  if (state.point_scale != nullptr) {
    CERES_EXT_RETURN_IF_ERROR(kernels::Run(
        kernels::CopyParams{
            point_scale_.size(), state.point_scale, point_scale_.data()},
        machine));
  } else {
    CERES_EXT_RETURN_IF_ERROR(kernels::Run(
        kernels::SetConstantParams{
            point_scale_.size(), 1.0, point_scale_.data()},
        machine));
  }
  CERES_EXT_RETURN_IF_ERROR(kernels::Run(
      kernels::SetConstantParams{
          camera_scale_.size(), 1.0, camera_scale_.data()},
      machine));
  CERES_EXT_RETURN_IF_ERROR(kernels::Run(
      kernels::CastParams<T>{points_.size(), state.points, points_.data()},
      machine));
  return PrepareRecomputed();
}

template <typename Machine, typename T, int C>
Status BatchJacobian<Machine, T, C>::PrepareRecomputed() {
  Machine* machine = shape_->machine();
  kernels::PrepareCamerasParams<T, C> params;
  params.num_cameras = shape_->cameras().size();
  params.parameters = state_.parameters;
  params.cameras = state_.cameras;
  params.tangent = state_.tangents;
  params.camera_scale = camera_scale_.data();
  params.states = camera_states_.data();
  params.maps = camera_maps_.data();
  CERES_EXT_RETURN_IF_ERROR(kernels::Run(params, machine));
  return kernels::Run(
      kernels::CastParams<T>{
          point_scale_.size(), point_scale_.data(), point_scale_in_t_.data()},
      machine);
}

template <typename Machine, typename T, int C>
typename BatchJacobian<Machine, T, C>::Stored
BatchJacobian<Machine, T, C>::stored() const {
  const int64_t n = shape_->index().num_observations;
  return {{camera_blocks_.data(), n}, {point_blocks_.data(), n}};
}

template <typename Machine, typename T, int C>
typename BatchJacobian<Machine, T, C>::Recomputed
BatchJacobian<Machine, T, C>::recomputed() const {
  return {camera_states_.data(),
          camera_maps_.data(),
          points_.data(),
          point_scale_in_t_.data()};
}

// y += J x
template <typename Machine, typename T, int C>
void BatchJacobian<Machine, T, C>::RightMultiplyAndAccumulate(const double* x,
                                                              double* y) const {
  LogIfError(shape_->Gather(x, 0.0, camera_x_.data(), point_x_.data()));
  WithSource([&](auto source) {
    kernels::RightMultiplyParams<decltype(source)> params;
    params.index = shape_->index();
    params.jacobian = source;
    params.camera_x = camera_x_.data();
    params.point_x = point_x_.data();
    params.y = y;
    params.accumulate = true;
    LogIfError(kernels::Run(params, shape_->machine()));
  });
}

// x += J' y
template <typename Machine, typename T, int C>
void BatchJacobian<Machine, T, C>::LeftMultiplyAndAccumulate(const double* y,
                                                             double* x) const {
  LogIfError(shape_->Gather(x, 0.0, camera_x_.data(), point_x_.data()));
  WithSource([&](auto source) {
    kernels::LeftMultiplyParams<decltype(source)> params;
    params.index = shape_->index();
    params.jacobian = source;
    params.y = y;
    params.camera_x = camera_x_.data();
    params.point_x = point_x_.data();
    params.accumulate = true;
    LogIfError(kernels::Run(params, shape_->machine()));
  });
  LogIfError(shape_->Scatter(camera_x_.data(), point_x_.data(), x));
}

template <typename Machine, typename T, int C>
void BatchJacobian<Machine, T, C>::SquaredColumnNorm(double* x) const {
  WithSource([&](auto source) {
    kernels::SquaredColumnNormsParams<decltype(source)> params;
    params.index = shape_->index();
    params.jacobian = source;
    params.camera_x = camera_x_.data();
    params.point_x = point_x_.data();
    LogIfError(kernels::Run(params, shape_->machine()));
  });
  LogIfError(shape_->Scatter(camera_x_.data(), point_x_.data(), x));
}

// J = J diag(scale)
template <typename Machine, typename T, int C>
void BatchJacobian<Machine, T, C>::ScaleColumns(const double* scale) {
  Machine* machine = shape_->machine();
  LogIfError(shape_->Gather(scale, 1.0, camera_x_.data(), point_x_.data()));
  if (type_ == JACOBIAN_STORED) {
    kernels::ScaleColumnsParams<T, kernels::BalShape<C>, kLayout> params;
    params.index = shape_->index();
    params.camera_blocks = camera_blocks();
    params.point_blocks = point_blocks();
    params.camera_scale = camera_x_.data();
    params.point_scale = point_x_.data();
    LogIfError(kernels::Run(params, machine));
    return;
  }
  LogIfError(kernels::Run(kernels::MultiplyParams{camera_scale_.size(),
                                                  camera_scale_.data(),
                                                  camera_x_.data(),
                                                  camera_scale_.data()},
                          machine));
  LogIfError(kernels::Run(kernels::MultiplyParams{point_scale_.size(),
                                                  point_scale_.data(),
                                                  point_x_.data(),
                                                  point_scale_.data()},
                          machine));
  LogIfError(PrepareRecomputed());
}

template <typename Machine, typename T, int C>
void BatchJacobian<Machine, T, C>::SetZero() {
  Machine* machine = shape_->machine();
  if (type_ == JACOBIAN_STORED) {
    LogIfError(machine->SetZero(camera_blocks_.size(), camera_blocks_.data()));
    LogIfError(machine->SetZero(point_blocks_.size(), point_blocks_.data()));
    return;
  }
  LogIfError(machine->SetZero(camera_scale_.size(), camera_scale_.data()));
  LogIfError(machine->SetZero(point_scale_.size(), point_scale_.data()));
  LogIfError(machine->SetZero(camera_maps_.size(), camera_maps_.data()));
  LogIfError(
      machine->SetZero(point_scale_in_t_.size(), point_scale_in_t_.data()));
}

template <typename Machine, typename T, int C>
template <typename Visit>
Status BatchJacobian<Machine, T, C>::ForEachValue(Visit&& visit) const {
  const BlockTable& cameras = shape_->cameras();
  const BlockTable& points = shape_->points();
  const kernels::ObservationIndexView& index = shape_->index();
  const int64_t n = index.num_observations;
  const auto download = [this](int64_t size, const auto* from, auto* to) {
    to->resize(size);
    return shape_->machine()->Download(size, from, to->data());
  };
  std::vector<int32_t> camera_id;
  std::vector<int32_t> point_id;
  CERES_EXT_RETURN_IF_ERROR(download(n, index.camera_id, &camera_id));
  CERES_EXT_RETURN_IF_ERROR(download(n, index.point_id, &point_id));
  const auto for_each = [&](const auto& source) {
    for (int64_t k = 0; k < n; ++k) {
      const int32_t camera = camera_id[k];
      const int32_t point = point_id[k];
      T jc[2 * C];
      T jp[6];
      source.Load(k, camera, point, jc, jp);
      for (int row = 0; row < 2; ++row) {
        for (int j = 0; j < points.tangent_size[point]; ++j) {
          visit(2 * k + row, points.tangent_offset[point] + j, jp[3 * row + j]);
        }
        for (int j = 0; j < cameras.tangent_size[camera]; ++j) {
          visit(
              2 * k + row, cameras.tangent_offset[camera] + j, jc[C * row + j]);
        }
      }
    }
  };
  if (type_ == JACOBIAN_STORED) {
    std::vector<T> jc;
    std::vector<T> jp;
    CERES_EXT_RETURN_IF_ERROR(
        download(camera_blocks_.size(), camera_blocks_.data(), &jc));
    CERES_EXT_RETURN_IF_ERROR(
        download(point_blocks_.size(), point_blocks_.data(), &jp));
    for_each(Stored{{jc.data(), n}, {jp.data(), n}});
  } else {
    std::vector<kernels::CameraState<T>> states;
    std::vector<T> maps;
    std::vector<T> xyz;
    std::vector<T> scale;
    CERES_EXT_RETURN_IF_ERROR(
        download(camera_states_.size(), camera_states_.data(), &states));
    CERES_EXT_RETURN_IF_ERROR(
        download(camera_maps_.size(), camera_maps_.data(), &maps));
    CERES_EXT_RETURN_IF_ERROR(download(points_.size(), points_.data(), &xyz));
    CERES_EXT_RETURN_IF_ERROR(
        download(point_scale_in_t_.size(), point_scale_in_t_.data(), &scale));
    for_each(Recomputed{states.data(), maps.data(), xyz.data(), scale.data()});
  }
  return {};
}

template <typename Machine, typename T, int C>
void BatchJacobian<Machine, T, C>::ToDenseMatrix(
    ceres::Matrix* dense_matrix) const {
  *dense_matrix = ceres::Matrix::Zero(num_rows(), num_cols());
  LogIfError(ForEachValue([&](int64_t row, int column, double value) {
    (*dense_matrix)(row, column) = value;
  }));
}

template <typename Machine, typename T, int C>
void BatchJacobian<Machine, T, C>::ToTextFile(FILE* file) const {
  LogIfError(ForEachValue([&](int64_t row, int column, double value) {
    std::fprintf(
        file, "% 10d % 10d %17f\n", static_cast<int>(row), column, value);
  }));
}

template <typename Machine, typename T, int C>
int64_t BatchJacobian<Machine, T, C>::bytes() const {
  return camera_blocks_.bytes() + point_blocks_.bytes() + cameras_.bytes() +
         tangents_.bytes() + camera_scale_.bytes() + point_scale_.bytes() +
         camera_states_.bytes() + camera_maps_.bytes() + points_.bytes() +
         point_scale_in_t_.bytes() + camera_x_.bytes() + point_x_.bytes();
}

#define CERES_EXT_INSTANTIATE(Machine, T, C) \
  template class BatchJacobian<Machine, T, C>;
CERES_EXT_FOR_EACH_BATCH(CERES_EXT_INSTANTIATE)
#undef CERES_EXT_INSTANTIATE

}  // namespace ceres_ext
