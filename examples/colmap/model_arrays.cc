// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "examples/colmap/model_arrays.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "ceres/autodiff_cost_function.h"
#include "ceres_ext/camera_models.h"
#include "examples/colmap/reprojection_costs.h"

namespace ceres_ext::colmap {

ModelArrays::ModelArrays(const ProblemOptions& options,
                         const ProblemSelection& selection,
                         Model* model,
                         PositionPriors* positions)
    : model_(model), loss_(MakeLoss(options)) {
  const ProblemPlan plan(options, selection, model, positions);
  point_at_.assign(plan.points().size(), -1);
  points_.values.reserve(3 * plan.points().size());
  for (size_t i = 0; i < plan.points().size(); ++i) {
    if (plan.points()[i].num_observations > 0) {
      point_at_[i] = Add(model->points[i].xyz,
                         plan.points()[i].is_constant,
                         nullptr,
                         &points_);
    }
  }
  AddToProblem(/*is_eliminated=*/true, &points_);
  AddPoses(options, plan);
  AddCameras(plan);
  for (const ProblemPlan::Group& group : plan.groups()) {
    AddRows(plan, group);
  }
  AddPriors(plan);
  if (positions != nullptr) {
    AddPositions(plan, *positions);
  }
}

int32_t ModelArrays::Add(double* place,
                         bool is_constant,
                         ceres::Manifold* manifold,
                         Blocks* blocks) {
  blocks->places.push_back(place);
  blocks->values.insert(blocks->values.end(), place, place + blocks->size);
  blocks->is_constant.push_back(is_constant ? 1 : 0);
  blocks->manifolds.push_back(manifold);
  return static_cast<int32_t>(blocks->num_blocks()) - 1;
}

ceres::Manifold* ModelArrays::Own(std::unique_ptr<ceres::Manifold> manifold) {
  manifolds_.push_back(std::move(manifold));
  return manifolds_.back().get();
}

void ModelArrays::AddPoses(const ProblemOptions& options,
                           const ProblemPlan& plan) {
  const bool constant_rotation = options.constant_rig_from_world_rotation;
  ceres::Manifold* const of_frames =
      Own(MakePoseManifold(constant_rotation, /*component=*/-1));
  pose_at_.assign(plan.poses().size(), -1);
  for (size_t i = 0; i < plan.poses().size(); ++i) {
    const ProblemPlan::Pose& pose = plan.poses()[i];
    if (pose.is_used) {
      ceres::Manifold* const manifold =
          !pose.has_manifold ? nullptr
          : pose.constant_component < 0
              ? of_frames
              : Own(MakePoseManifold(constant_rotation,
                                     pose.constant_component));
      pose_at_[i] = Add(plan.PoseBlock(i), pose.is_constant, manifold, &poses_);
    }
  }
  AddToProblem(/*is_eliminated=*/false, &poses_);
  ceres::Manifold* const of_sensors =
      Own(MakePoseManifold(/*constant_rotation=*/false, /*component=*/-1));
  sensor_at_.assign(plan.sensors().size(), -1);
  for (size_t i = 0; i < plan.sensors().size(); ++i) {
    const ProblemPlan::Sensor& sensor = plan.sensors()[i];
    if (sensor.is_used) {
      ceres::Manifold* const manifold =
          sensor.is_antenna ? Own(MakePoseManifold(/*constant_rotation=*/true,
                                                   /*component=*/-1))
                            : of_sensors;
      sensor_at_[i] = Add(sensor.pose, sensor.is_constant, manifold, &sensors_);
    }
  }
  AddToProblem(/*is_eliminated=*/false, &sensors_);
}

void ModelArrays::AddCameras(const ProblemPlan& plan) {
  camera_at_.assign(plan.cameras().size(), -1);
  cameras_.reserve(kMaxCameraParams + 1);
  for (int size = 0; size <= kMaxCameraParams; ++size) {
    Blocks& blocks = cameras_.emplace_back(size);
    for (size_t k = 0; k < plan.cameras().size(); ++k) {
      const ProblemPlan::Camera& camera = plan.cameras()[k];
      if (camera.is_used && model_->cameras[k].model->num_params == size) {
        ceres::Manifold* const manifold =
            camera.is_constant || camera.constants.empty()
                ? nullptr
                : Own(std::make_unique<ceres::SubsetManifold>(
                      size, camera.constants));
        camera_at_[k] = Add(
            model_->cameras[k].params, camera.is_constant, manifold, &blocks);
        if (!camera.lower_bounds.empty()) {
          constexpr double kNone = std::numeric_limits<double>::infinity();
          const size_t before =
              blocks.values.size() - camera.lower_bounds.size();
          blocks.lower_bounds.resize(before, -kNone);
          blocks.upper_bounds.resize(before, kNone);
          blocks.lower_bounds.insert(blocks.lower_bounds.end(),
                                     camera.lower_bounds.begin(),
                                     camera.lower_bounds.end());
          blocks.upper_bounds.insert(blocks.upper_bounds.end(),
                                     camera.upper_bounds.begin(),
                                     camera.upper_bounds.end());
        }
      }
    }
    AddToProblem(/*is_eliminated=*/false, &blocks);
  }
}

void ModelArrays::AddToProblem(bool is_eliminated, Blocks* blocks) {
  if (blocks->places.empty()) {
    return;
  }
  ArrayProblem::Parameters parameters;
  parameters.values = blocks->values.data();
  parameters.num_blocks = blocks->num_blocks();
  parameters.size = blocks->size;
  parameters.is_eliminated = is_eliminated;
  if (!blocks->lower_bounds.empty()) {
    // Blocks after the last with bounds have none.
    constexpr double kNone = std::numeric_limits<double>::infinity();
    blocks->lower_bounds.resize(blocks->values.size(), -kNone);
    blocks->upper_bounds.resize(blocks->values.size(), kNone);
    parameters.lower_bounds = blocks->lower_bounds.data();
    parameters.upper_bounds = blocks->upper_bounds.data();
  }
  // Blocks of which all vary in the same way are faster to read.
  if (std::count(blocks->is_constant.begin(), blocks->is_constant.end(), 1) >
      0) {
    parameters.is_constant = blocks->is_constant.data();
  }
  parameters.manifold = blocks->manifolds[0];
  if (std::count(blocks->manifolds.begin(),
                 blocks->manifolds.end(),
                 blocks->manifolds[0]) < blocks->num_blocks()) {
    parameters.manifolds = blocks->manifolds.data();
  }
  blocks->number = problem_.AddParameters(parameters);
}

namespace {

template <typename Error>
Error OfPixel(const double* pixel, const Image& /*image*/) {
  return Error{pixel[0], pixel[1]};
}

}  // namespace

template <typename Error, typename MakeError>
void ModelArrays::SetConstantsOf(const ProblemPlan& plan,
                                 const ProblemPlan::Group& group,
                                 const MakeError& make_error,
                                 Rows* rows,
                                 ArrayProblem::Residuals* residuals) {
  static_assert(std::is_trivially_copyable_v<Error> &&
                sizeof(Error) % sizeof(double) == 0);
  constexpr size_t kNumValues = sizeof(Error) / sizeof(double);
  rows->constants.resize(static_cast<size_t>(group.num_observations) *
                         kNumValues);
  double* next = rows->constants.data();
  for (const int32_t i : group.images) {
    const Image& image = model_->images[i];
    plan.ForEachObservation(image, [&](const double* pixel, int32_t /*point*/) {
      const Error error = make_error(pixel, image);
      std::memcpy(next, &error, sizeof(error));
      next += kNumValues;
    });
  }
  residuals->constants = rows->constants.data();
  residuals->constants_bytes = sizeof(Error);
  residuals->constants_are_of_model = true;
}

void ModelArrays::SetConstants(const ProblemPlan& plan,
                               const ProblemPlan::Group& group,
                               Rows* rows,
                               ArrayProblem::Residuals* residuals) {
  const ReprojectionCostMakers makers = MakersOf(group.camera_model_id);
  ForEachCameraModel([&](auto camera_model) {
    using CameraModel = decltype(camera_model);
    using Rig = RigReprojectionCosts<CameraModel>;
    if (camera_model.kModelId != group.camera_model_id) {
      return;
    }
    if (group.kind == IMAGE_OF_POSE) {
      using Error = typename ReprojectionCosts<CameraModel>::Error;
      SetConstantsOf<Error>(plan, group, OfPixel<Error>, rows, residuals);
      residuals->make_cost_function = makers.one_block;
    } else if (group.kind == IMAGE_OF_CONSTANT_SENSOR) {
      using Error = typename Rig::ConstantError;
      SetConstantsOf<Error>(
          plan,
          group,
          [&plan](const double* pixel, const Image& image) {
            return Error(
                pixel[0], pixel[1], plan.sensors()[plan.SensorOf(image)].pose);
          },
          rows,
          residuals);
      residuals->make_cost_function = makers.constant_rig;
    } else {
      using Error = typename Rig::Error;
      SetConstantsOf<Error>(plan, group, OfPixel<Error>, rows, residuals);
      residuals->make_cost_function = makers.rig;
    }
  });
}

void ModelArrays::AddRows(const ProblemPlan& plan,
                          const ProblemPlan::Group& group) {
  rows_.push_back(std::make_unique<Rows>());
  Rows& rows = *rows_.back();
  const auto n = static_cast<size_t>(group.num_observations);
  ArrayProblem::Residuals residuals;
  SetConstants(plan, group, &rows, &residuals);
  rows.blocks.assign(group.kind == IMAGE_OF_SENSOR ? 4 : 3,
                     std::vector<int32_t>(n));
  size_t row = 0;
  for (const int32_t i : group.images) {
    const Image& image = model_->images[i];
    const int32_t pose = pose_at_[plan.PoseOf(image, group.kind)];
    const int32_t sensor =
        group.kind == IMAGE_OF_SENSOR ? sensor_at_[plan.SensorOf(image)] : -1;
    const size_t begin = row;
    plan.ForEachObservation(image, [&](const double* /*pixel*/, int32_t point) {
      rows.blocks[0][row++] = point_at_[point];
    });
    const auto fill = [&](size_t slot, int32_t block) {
      std::fill(rows.blocks[slot].begin() + static_cast<std::ptrdiff_t>(begin),
                rows.blocks[slot].begin() + static_cast<std::ptrdiff_t>(row),
                block);
    };
    size_t slot = 1;
    if (group.kind == IMAGE_OF_SENSOR) {
      fill(slot++, sensor);
    }
    fill(slot++, pose);
    fill(slot, camera_at_[image.camera]);
  }
  const int camera_size = FindCameraModel(group.camera_model_id)->num_params;
  residuals.num_blocks = group.num_observations;
  residuals.blocks.push_back({points_.number, rows.blocks[0].data()});
  if (group.kind == IMAGE_OF_SENSOR) {
    residuals.blocks.push_back({sensors_.number, rows.blocks[1].data()});
  }
  const size_t slot = rows.blocks.size() - 2;
  residuals.blocks.push_back({poses_.number, rows.blocks[slot].data()});
  residuals.blocks.push_back(
      {cameras_[camera_size].number, rows.blocks[slot + 1].data()});
  residuals.loss = loss_.get();
  problem_.AddResiduals(residuals);
}

void ModelArrays::AddPriors(const ProblemPlan& plan) {
  int model_id = -1;  // of the residual blocks that are being added
  ArrayProblem::Residuals residuals;
  Rows* rows = nullptr;
  const auto add = [&] {
    if (rows != nullptr) {
      residuals.constants = rows->constants.data();
      residuals.num_blocks = static_cast<int64_t>(rows->blocks[0].size());
      residuals.blocks[0].block = rows->blocks[0].data();
      problem_.AddResiduals(residuals);
    }
  };
  plan.ForEachPrior([&](auto camera_model, size_t k, const auto& error) {
    using CameraModel = decltype(camera_model);
    if (camera_model.kModelId != model_id) {
      add();
      model_id = camera_model.kModelId;
      rows = rows_.emplace_back(std::make_unique<Rows>()).get();
      rows->blocks.resize(1);
      residuals = {};
      residuals.blocks.push_back(
          {cameras_[CameraModel::kNumParams].number, nullptr});
      residuals.constants_bytes =
          sizeof(typename PriorCosts<CameraModel>::Error);
      residuals.constants_are_of_model = true;
      residuals.make_cost_function = MakersOf(model_id).prior;
    }
    for (const double* values : {error.measured, error.weights}) {
      rows->constants.insert(
          rows->constants.end(), values, values + CameraModel::kNumParams);
    }
    rows->blocks[0].push_back(camera_at_[k]);
  });
  add();
}

void ModelArrays::AddPositions(const ProblemPlan& plan,
                               const PositionPriors& positions) {
  using OfPose = WhitenedError<PositionPrior<EigenQuaternion>>;
  using OfSensor = WhitenedError<SensorPositionPrior>;
  static_assert(sizeof(OfPose) == 12 * sizeof(double) &&
                sizeof(OfSensor) == sizeof(OfPose));
  const auto add_row = [](const double* position,
                          const double* sqrt_information,
                          const std::vector<int32_t>& blocks,
                          Rows* rows) {
    auto& constants = rows->constants;
    constants.insert(constants.end(), position, position + 3);
    constants.insert(constants.end(), sqrt_information, sqrt_information + 9);
    rows->blocks.resize(blocks.size());
    for (size_t i = 0; i < blocks.size(); ++i) {
      rows->blocks[i].push_back(blocks[i]);
    }
  };
  const auto add = [this](const std::vector<int>& parameters,
                          CostMaker maker,
                          ceres::LossFunction* loss,
                          Rows* rows) {
    if (rows->blocks.empty()) {
      return;
    }
    ArrayProblem::Residuals residuals;
    residuals.num_blocks = static_cast<int64_t>(rows->blocks[0].size());
    residuals.constants = rows->constants.data();
    residuals.constants_bytes = sizeof(OfPose);
    residuals.make_cost_function = maker;
    residuals.loss = loss;
    for (size_t i = 0; i < parameters.size(); ++i) {
      residuals.blocks.push_back({parameters[i], rows->blocks[i].data()});
    }
    problem_.AddResiduals(residuals);
  };
  const auto new_rows = [this] {
    return rows_.emplace_back(std::make_unique<Rows>()).get();
  };
  // Ceres evaluates them on the host: they are few.
  const CostMaker of_pose =
      &MakeCostFunction<OfPose,
                        CostFunctionFor<ceres::AutoDiffCostFunction, OfPose>>;
  const CostMaker of_sensor =
      &MakeCostFunction<OfSensor,
                        CostFunctionFor<ceres::AutoDiffCostFunction, OfSensor>>;
  Rows* const poses = new_rows();
  Rows* const sensors = new_rows();
  for (const PositionPriors::Prior& prior : positions.priors) {
    const Image& image = model_->images[prior.image];
    const int32_t pose = pose_at_[plan.PoseOf(image, IMAGE_OF_SENSOR)];
    if (pose < 0) {
      continue;  // Its frame has no observations.
    }
    if (positions.has_antenna || image.sensor >= 0) {
      const int32_t sensor = positions.has_antenna
                                 ? sensor_at_.back()
                                 : sensor_at_[plan.SensorOf(image)];
      add_row(prior.position, prior.sqrt_information, {sensor, pose}, sensors);
    } else {
      add_row(prior.position, prior.sqrt_information, {pose}, poses);
    }
  }
  if (positions.loss_scale > 0.0) {
    position_loss_ = std::make_unique<ceres::CauchyLoss>(positions.loss_scale);
  }
  add({poses_.number}, of_pose, position_loss_.get(), poses);
  add({sensors_.number, poses_.number},
      of_sensor,
      position_loss_.get(),
      sensors);
  if (positions.antenna_sigma > 0.0) {
    Rows* const antenna = new_rows();
    const double weight = 1.0 / positions.antenna_sigma;
    const double weights[9] = {weight, 0, 0, 0, weight, 0, 0, 0, weight};
    add_row(positions.expected_place, weights, {sensor_at_.back()}, antenna);
    add({sensors_.number}, of_pose, nullptr, antenna);
  }
}

void ModelArrays::Store() const {
  const auto store = [](const Blocks& blocks) {
    for (size_t i = 0; i < blocks.places.size(); ++i) {
      if (blocks.is_constant[i] == 0) {
        std::copy_n(&blocks.values[i * static_cast<size_t>(blocks.size)],
                    blocks.size,
                    blocks.places[i]);
      }
    }
  };
  store(points_);
  store(poses_);
  store(sensors_);
  std::for_each(cameras_.begin(), cameras_.end(), store);
}

const double* ModelArrays::PlaceOf(const RunawayResidual::Block& block) const {
  const double* place = nullptr;
  const auto find = [&](const Blocks& blocks) {
    if (blocks.number >= 0 && blocks.number == block.parameters) {
      place = blocks.places[block.block];
    }
  };
  find(points_);
  find(poses_);
  find(sensors_);
  std::for_each(cameras_.begin(), cameras_.end(), find);
  return place;
}

std::unordered_set<const double*> ModelArrays::FindVarying() const {
  std::unordered_set<const double*> varying;
  const auto find = [&varying](const Blocks& blocks) {
    for (size_t i = 0; i < blocks.places.size(); ++i) {
      if (blocks.is_constant[i] == 0) {
        varying.insert(blocks.places[i]);
      }
    }
  };
  find(points_);
  find(poses_);
  find(sensors_);
  std::for_each(cameras_.begin(), cameras_.end(), find);
  return varying;
}

}  // namespace ceres_ext::colmap
