// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/glue/observation_jacobian.h"

#include <utility>
#include <vector>

#include "ceres_ext/glue/machines.h"
#include "cuda_kernels/ops/jacobian_products.h"
#include "cuda_kernels/ops/vectors.h"

namespace ceres_ext {

using kernels::Status;

namespace {

// Rows of a camera map.
constexpr int kLocalSize = kernels::kBalLocalCameraDim;

}  // namespace

template <typename Machine, typename T, int C>
std::unique_ptr<ObservationJacobian<Machine, T, C>>
ObservationJacobian<Machine, T, C>::Create(
    JacobianType type,
    const ObservationBlocks<Machine>* observations,
    const solver::ProblemBlocks& blocks,
    Status* status) {
  std::unique_ptr<ObservationJacobian> jacobian(
      new ObservationJacobian(type, observations));
  *status = jacobian->Setup(blocks);
  return status->ok() ? std::move(jacobian) : nullptr;
}

template <typename Machine, typename T, int C>
Status ObservationJacobian<Machine, T, C>::Setup(
    const solver::ProblemBlocks& blocks) {
  Machine* machine = observations_->machine;
  // Points are the first family (program_import.h).
  e_begin_ = blocks.e[0].value_begin;
  f_begin_ = blocks.f[observations_->camera_family].value_begin;
  const int64_t num_cameras = observations_->cameras().size();
  const int64_t num_points = observations_->points().size();
  if (type_ == JACOBIAN_STORED) {
    const int64_t n = observations_->index().num_observations;
    CERES_EXT_RETURN_IF_ERROR(machine->Allocate(2 * C * n, &camera_blocks_));
    CERES_EXT_RETURN_IF_ERROR(machine->Allocate(6 * n, &point_blocks_));
  } else {
    const int64_t ambient = observations_->cameras().ambient_size;
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
  const auto setup_batch = [&](const auto& source, auto* batch) {
    batch->Setup(
        observations_->index(), 0, observations_->camera_family, machine);
    batch->SetJacobian(source);
    return batch->SetBlocks(blocks);
  };
  CERES_EXT_RETURN_IF_ERROR(
      type_ == JACOBIAN_STORED ? setup_batch(stored(), &stored_batch_)
                               : setup_batch(recomputed(), &recomputed_batch_));
  return CountNonzeros();
}

template <typename Machine, typename T, int C>
Status ObservationJacobian<Machine, T, C>::CountNonzeros() {
  // The sum over observations of the columns of their blocks, from the number
  // of observations of every camera and point.
  const kernels::ObservationIndexView& index = observations_->index();
  const auto count = [this](const BlockTable& table,
                            const int64_t* begin,
                            int64_t* sum) -> Status {
    std::vector<int64_t> host_begin(table.size() + 1);
    CERES_EXT_RETURN_IF_ERROR(observations_->machine->Download(
        table.size() + 1, begin, host_begin.data()));
    for (int32_t i = 0; i < table.size(); ++i) {
      *sum += 2 * table.tangent_size[i] * (host_begin[i + 1] - host_begin[i]);
    }
    return {};
  };
  num_nonzeros_ = 0;
  CERES_EXT_RETURN_IF_ERROR(
      count(observations_->cameras(), index.camera_begin, &num_nonzeros_));
  return count(observations_->points(), index.point_begin, &num_nonzeros_);
}

template <typename Machine, typename T, int C>
Status ObservationJacobian<Machine, T, C>::SetState(const BatchState& state) {
  Machine* machine = observations_->machine;
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
Status ObservationJacobian<Machine, T, C>::PrepareRecomputed() {
  Machine* machine = observations_->machine;
  kernels::PrepareCamerasParams<T, C> params;
  params.num_cameras = observations_->cameras().size();
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
typename ObservationJacobian<Machine, T, C>::Stored
ObservationJacobian<Machine, T, C>::stored() const {
  const int64_t n = observations_->index().num_observations;
  return {{camera_blocks_.data(), n}, {point_blocks_.data(), n}};
}

template <typename Machine, typename T, int C>
typename ObservationJacobian<Machine, T, C>::Recomputed
ObservationJacobian<Machine, T, C>::recomputed() const {
  return {camera_states_.data(),
          camera_maps_.data(),
          points_.data(),
          point_scale_in_t_.data()};
}

// J = J diag(scale)
template <typename Machine, typename T, int C>
Status ObservationJacobian<Machine, T, C>::ScaleColumns(const double* e,
                                                        const double* f) {
  Machine* machine = observations_->machine;
  const double* const point_scale = e + e_begin_;
  const double* const camera_scale = f + f_begin_;
  if (type_ == JACOBIAN_STORED) {
    kernels::ScaleColumnsParams<T, kernels::BalShape<C>, kLayout> params;
    params.index = observations_->index();
    params.camera_blocks = camera_blocks();
    params.point_blocks = point_blocks();
    params.camera_scale = camera_scale;
    params.point_scale = point_scale;
    return kernels::Run(params, machine);
  }
  CERES_EXT_RETURN_IF_ERROR(
      kernels::Run(kernels::MultiplyParams{camera_scale_.size(),
                                           camera_scale_.data(),
                                           camera_scale,
                                           camera_scale_.data()},
                   machine));
  CERES_EXT_RETURN_IF_ERROR(
      kernels::Run(kernels::MultiplyParams{point_scale_.size(),
                                           point_scale_.data(),
                                           point_scale,
                                           point_scale_.data()},
                   machine));
  return PrepareRecomputed();
}

template <typename Machine, typename T, int C>
Status ObservationJacobian<Machine, T, C>::SetZero() {
  Machine* machine = observations_->machine;
  const auto set_zero = [machine](auto* buffer) {
    return machine->SetZero(buffer->size(), buffer->data());
  };
  // Those of the other type are empty.
  CERES_EXT_RETURN_IF_ERROR(set_zero(&camera_blocks_));
  CERES_EXT_RETURN_IF_ERROR(set_zero(&point_blocks_));
  CERES_EXT_RETURN_IF_ERROR(set_zero(&camera_scale_));
  CERES_EXT_RETURN_IF_ERROR(set_zero(&point_scale_));
  CERES_EXT_RETURN_IF_ERROR(set_zero(&camera_maps_));
  return set_zero(&point_scale_in_t_);
}

template <typename Machine, typename T, int C>
Status ObservationJacobian<Machine, T, C>::ForEachValue(
    const Visit& visit) const {
  const BlockTable& cameras = observations_->cameras();
  const BlockTable& points = observations_->points();
  const kernels::ObservationIndexView& index = observations_->index();
  const int64_t n = index.num_observations;
  const auto download = [this](int64_t size, const auto* from, auto* to) {
    to->resize(size);
    return observations_->machine->Download(size, from, to->data());
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
int64_t ObservationJacobian<Machine, T, C>::bytes() const {
  return camera_blocks_.bytes() + point_blocks_.bytes() + cameras_.bytes() +
         tangents_.bytes() + camera_scale_.bytes() + point_scale_.bytes() +
         camera_states_.bytes() + camera_maps_.bytes() + points_.bytes() +
         point_scale_in_t_.bytes();
}

#define CERES_EXT_INSTANTIATE(Machine, T, C) \
  template class ObservationJacobian<Machine, T, C>;
CERES_EXT_FOR_EACH_BATCH(CERES_EXT_INSTANTIATE)
#undef CERES_EXT_INSTANTIATE

}  // namespace ceres_ext
