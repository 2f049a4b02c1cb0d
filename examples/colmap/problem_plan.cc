// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "examples/colmap/problem_plan.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "Eigen/Core"
#include "Eigen/QR"
#include "ceres/product_manifold.h"
#include "ceres_ext/photogrammetry.h"

namespace ceres_ext::colmap {
namespace {

bool IsSet(const std::vector<bool>& flags, size_t index) {
  return !flags.empty() && flags[index];
}

// Points until three of them do not lie in a plane with the origin.
class ThreePoints {
 public:
  // True if the point is one of the three.
  bool Add(const double* point) {
    points_.col(size_) = Eigen::Map<const Eigen::Vector3d>(point);
    if (points_.colPivHouseholderQr().rank() > size_) {
      ++size_;
      return true;
    }
    points_.col(size_).setZero();
    return false;
  }
  bool IsFull() const { return size_ == 3; }

 private:
  Eigen::Index size_ = 0;
  Eigen::Matrix3d points_ = Eigen::Matrix3d::Zero();
};

// A quaternion that has been normalised keeps its bits. With u = epsilon / 2:
// norm and quotient leave 3 u + u in each component and twice that in the
// square of the length, and summing that square adds up to 4 u.
void Normalize(double* q) {
  const double norm2 = q[0] * q[0] + q[1] * q[1] + q[2] * q[2] + q[3] * q[3];
  if (std::abs(norm2 - 1.0) <= 6 * std::numeric_limits<double>::epsilon()) {
    return;
  }
  const double norm = std::sqrt(norm2);
  for (int i = 0; i < 4; ++i) {
    q[i] /= norm;
  }
}

}  // namespace

ProblemPlan::ProblemPlan(const ProblemOptions& options,
                         const ProblemSelection& selection,
                         Model* model,
                         PositionPriors* positions)
    : options_(options),
      selection_(selection),
      model_(model),
      points_(model->points.size()),
      poses_(model->images.size() + model->frames.size()),
      cameras_(model->cameras.size()) {
  for (Rig& rig : model->rigs) {
    first_sensor_.push_back(static_cast<int32_t>(sensors_.size()));
    for (RigSensor& sensor : rig.sensors) {
      sensors_.push_back({sensor.pose});
    }
  }
  AddImages();
  PlanPoses();
  PlanPoints();
  if (options_.fix_gauge) {
    if (options_.gauge == GAUGE_THREE_POINTS || !FixTwoCameras()) {
      FixThreePoints();
    }
  }
  PlanCameras();
  if (positions != nullptr) {
    PlanPositions(positions);
  }
}

int32_t ProblemPlan::PoseOf(const Image& image, ImageKind kind) const {
  if (kind == IMAGE_OF_POSE || image.sensor < 0) {
    return static_cast<int32_t>(&image - model_->images.data());
  }
  for (const int32_t other : model_->frames[image.frame].images) {
    if (model_->images[other].sensor < 0) {
      return other;
    }
  }
  return static_cast<int32_t>(model_->images.size()) + image.frame;
}

bool ProblemPlan::IsInProblem(int32_t point, bool is_selected) const {
  if (point < 0 || (!is_selected && !IsSet(selection_.added_points, point))) {
    return false;
  }
  const Point3D& p = model_->points[point];
  return p.track_end - p.track_begin >= options_.min_track_length;
}

bool ProblemPlan::IsPoseConstant(const Image& image) const {
  return !options_.refine_rig_from_world ||
         IsSet(selection_.constant_poses, &image - model_->images.data());
}

bool ProblemPlan::IsSensorConstant(const Image& image) const {
  return !options_.refine_sensor_from_rig ||
         IsSet(selection_.constant_sensors, image.camera);
}

void ProblemPlan::AddImages() {
  for (size_t i = 0; i < model_->images.size(); ++i) {
    const Image& image = model_->images[i];
    int64_t num_observations = 0;
    ForEachObservation(image, [&](const double* /*pixel*/, int32_t point) {
      ++points_[point].num_observations;
      ++num_observations;
    });
    if (num_observations == 0) {
      continue;
    }
    // cam_from_world of images that are not selected is constant, in one block.
    const bool is_selected = IsSelected(image);
    const ImageKind kind = image.sensor < 0 || !is_selected ? IMAGE_OF_POSE
                           : IsSensorConstant(image) ? IMAGE_OF_CONSTANT_SENSOR
                                                     : IMAGE_OF_SENSOR;
    Pose& pose = poses_[PoseOf(image, kind)];
    pose.is_used = true;
    cameras_[image.camera].is_used = true;
    if (kind == IMAGE_OF_SENSOR) {
      sensors_[SensorOf(image)].is_used = true;
    }
    if (is_selected) {
      images_.push_back(&image);
    } else {
      Normalize(PoseBlock(i));
      pose.is_constant = true;
    }
    const int id = model_->cameras[image.camera].model->id;
    auto group =
        std::find_if(groups_.begin(), groups_.end(), [&](const Group& g) {
          return g.camera_model_id == id && g.kind == kind;
        });
    if (group == groups_.end()) {
      group = groups_.insert(group, {id, kind});
    }
    group->images.push_back(static_cast<int32_t>(i));
    group->num_observations += num_observations;
  }
  // COLMAP takes images in the order of their ids.
  std::sort(images_.begin(), images_.end(), [](const Image* a, const Image* b) {
    return a->id < b->id;
  });
}

void ProblemPlan::PlanPoses() {
  std::vector<bool> has_reference(model_->rigs.size(), false);
  for (const Image* image : images_) {
    Normalize(PoseBlockOfFrame(*image));
    Pose* const pose = PoseOfFrame(*image);
    (IsPoseConstant(*image) ? pose->is_constant : pose->has_manifold) = true;
    if (image->sensor >= 0) {
      Normalize(sensors_[SensorOf(*image)].pose);
    } else if (image->frame >= 0) {
      has_reference[model_->frames[image->frame].rig] = true;
    }
  }
  // Without images of the reference sensor all poses of the rig may move
  // against those of its frames.
  for (const Image* image : images_) {
    if (image->sensor >= 0 &&
        !has_reference[model_->frames[image->frame].rig]) {
      sensors_[SensorOf(*image)].is_constant = true;
    }
  }
}

void ProblemPlan::PlanPoints() {
  for (size_t i = 0; i < points_.size(); ++i) {
    const Point3D& point = model_->points[i];
    points_[i].is_constant =
        points_[i].num_observations > 0 &&
        (!options_.refine_points3D ||
         point.track_end - point.track_begin > points_[i].num_observations ||
         IsSet(selection_.constant_points, i));
  }
}

bool ProblemPlan::FixTwoCameras() {
  if (!options_.refine_rig_from_world || images_.empty()) {
    return true;
  }
  // The frames of images whose pose in the frame is constant.
  std::vector<const Image*> images;
  for (const Image* image : images_) {
    if (image->sensor < 0 || IsSensorConstant(*image) ||
        sensors_[SensorOf(*image)].is_constant) {
      images.push_back(image);
    }
  }
  const Image* first = nullptr;
  for (const Image* image : images) {
    if (!IsPoseConstant(*image)) {
      continue;
    }
    if (first != nullptr && PoseOfFrame(*first) != PoseOfFrame(*image)) {
      return true;
    }
    first = image;
  }
  for (const Image* image : images) {
    if (first == nullptr) {
      first = image;
    }
    if (PoseOfFrame(*image) == PoseOfFrame(*first)) {
      continue;
    }
    const double* const first_pose = PoseBlockOfFrame(*first);
    // Position of the frame in the coordinates of the first one.
    double center[3];
    double baseline[3];
    CameraCenter(PoseBlockOfFrame(*image), center);
    TransformPoint<EigenQuaternion>(
        first_pose, first_pose + 4, center, baseline);
    const auto* largest =
        std::max_element(baseline, baseline + 3, [](double a, double b) {
          return std::abs(a) < std::abs(b);
        });
    // COLMAP's threshold.
    if (std::abs(*largest) <= 1e-9) {
      continue;
    }
    PoseOfFrame(*first)->is_constant = true;
    if (!IsPoseConstant(*image)) {
      PoseOfFrame(*image)->constant_component =
          static_cast<int>(largest - baseline);
    }
    return true;
  }
  return false;
}

void ProblemPlan::FixThreePoints() {
  ThreePoints fixed;
  for (const bool is_constant : {true, false}) {
    for (size_t i = 0; i < points_.size() && !fixed.IsFull(); ++i) {
      if (points_[i].num_observations > 0 &&
          points_[i].is_constant == is_constant &&
          fixed.Add(model_->points[i].xyz)) {
        points_[i].is_constant = true;
      }
    }
  }
}

void ProblemPlan::PlanCameras() {
  std::vector<bool> has_image(cameras_.size(), false);
  for (const Image* image : images_) {
    has_image[image->camera] = true;
  }
  for (size_t k = 0; k < cameras_.size(); ++k) {
    const CameraModelInfo& info = *model_->cameras[k].model;
    Camera& camera = cameras_[k];
    for (int i = 0; i < info.num_params; ++i) {
      // The parameters of a panorama are its size.
      if (!(info.num_focal_lengths == 0      ? false
            : i < info.num_focal_lengths     ? options_.refine_focal_length
            : i < info.num_focal_lengths + 2 ? options_.refine_principal_point
                                             : options_.refine_extra_params)) {
        camera.constants.push_back(i);
      }
    }
    camera.is_constant =
        static_cast<int>(camera.constants.size()) == info.num_params ||
        !has_image[k] || IsSet(selection_.constant_cameras, k);
    if (camera.is_used && !camera.is_constant) {
      camera.has_prior = options_.intrinsics_prior_weights.HasAny();
      SetBounds(k);
    }
  }
}

void ProblemPlan::PlanPositions(PositionPriors* positions) {
  if (positions->has_antenna) {
    sensors_.push_back({positions->antenna_from_rig,
                        /*is_used=*/true,
                        /*is_constant=*/positions->antenna_sigma == 0.0,
                        /*is_antenna=*/true});
    return;
  }
  for (const PositionPriors::Prior& prior : positions->priors) {
    const Image& image = model_->images[prior.image];
    if (image.sensor >= 0) {
      Sensor& sensor = sensors_[SensorOf(image)];
      if (!sensor.is_used) {
        // Observations have its pose as a constant.
        Normalize(sensor.pose);
        sensor.is_used = true;
        sensor.is_constant = true;
      }
    }
  }
}

void ProblemPlan::SetBounds(size_t k) {
  if (!options_.bound_intrinsics) {
    return;
  }
  const colmap::Camera& of_model = model_->cameras[k];
  Camera& camera = cameras_[k];
  constexpr double kNone = std::numeric_limits<double>::infinity();
  const auto size = static_cast<size_t>(of_model.model->num_params);
  camera.lower_bounds.resize(size);
  camera.upper_bounds.resize(size);
  ForEachCameraModel([&](auto camera_model) {
    if (camera_model.kModelId == of_model.model->id) {
      SetIntrinsicsBounds<decltype(camera_model)>(
          options_.intrinsics_limits,
          static_cast<double>(of_model.width),
          static_cast<double>(of_model.height),
          camera.lower_bounds.data(),
          camera.upper_bounds.data());
    }
  });
  for (const int i : camera.constants) {
    camera.lower_bounds[i] = -kNone;
    camera.upper_bounds[i] = kNone;
  }
}

std::unique_ptr<ceres::Manifold> MakePoseManifold(bool constant_rotation,
                                                  int component) {
  if (constant_rotation) {
    std::vector<int> constants = {0, 1, 2, 3};
    if (component >= 0) {
      constants.push_back(4 + component);
    }
    return std::make_unique<ceres::SubsetManifold>(7, constants);
  }
  if (component >= 0) {
    return std::make_unique<
        ceres::ProductManifold<ceres::EigenQuaternionManifold,
                               ceres::SubsetManifold>>(
        ceres::EigenQuaternionManifold(),
        ceres::SubsetManifold(3, {component}));
  }
  return std::make_unique<
      ceres::ProductManifold<ceres::EigenQuaternionManifold,
                             ceres::EuclideanManifold<3>>>();
}

std::unique_ptr<ceres::LossFunction> MakeLoss(const ProblemOptions& options) {
  switch (options.loss) {
    case LOSS_SOFT_L1:
      return std::make_unique<ceres::SoftLOneLoss>(options.loss_scale);
    case LOSS_CAUCHY:
      return std::make_unique<ceres::CauchyLoss>(options.loss_scale);
    case LOSS_HUBER:
      return std::make_unique<ceres::HuberLoss>(options.loss_scale);
    case LOSS_TRIVIAL:
      break;
  }
  return nullptr;
}

}  // namespace ceres_ext::colmap
