// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "examples/colmap/colmap_problem.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "Eigen/Core"
#include "Eigen/QR"
#include "ceres/loss_function.h"
#include "ceres/manifold.h"
#include "ceres/ordered_groups.h"
#include "ceres/product_manifold.h"
#include "ceres/rotation.h"
#include "ceres/types.h"
#include "ceres_ext/camera_models.h"
#include "ceres_ext/photogrammetry.h"
#include "examples/colmap/reprojection_costs.h"

namespace ceres_ext::colmap {
namespace {

// -R't, whatever the length of the quaternion.
void Center(const double* pose, double* center) {
  const double inverse[4] = {pose[3], -pose[0], -pose[1], -pose[2]};
  ceres::QuaternionRotatePoint(inverse, pose + 4, center);
  for (int i = 0; i < 3; ++i) {
    center[i] = -center[i];
  }
}

bool IsSet(const std::vector<bool>& flags, size_t index) {
  return !flags.empty() && flags[index];
}

ceres::LossFunction* MakeLoss(const ProblemOptions& options) {
  switch (options.loss) {
    case LOSS_SOFT_L1:
      return new ceres::SoftLOneLoss(options.loss_scale);
    case LOSS_CAUCHY:
      return new ceres::CauchyLoss(options.loss_scale);
    case LOSS_HUBER:
      return new ceres::HuberLoss(options.loss_scale);
    case LOSS_TRIVIAL:
      break;
  }
  return nullptr;
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

class ProblemBuilder {
 public:
  ProblemBuilder(const ProblemOptions& options,
                 const ProblemSelection& selection,
                 Model* model,
                 ceres::Problem* problem)
      : options_(options),
        selection_(selection),
        split_pose_(options.split_pose && !HasOtherSensors(*model)),
        model_(model),
        problem_(problem),
        loss_(MakeLoss(options)),
        num_observations_(model->points.size(), 0) {}

  void Run() {
    for (size_t i = 0; i < model_->images.size(); ++i) {
      const Image& image = model_->images[i];
      ForEachCameraModel([&](auto camera_model) {
        if (camera_model.kModelId == model_->cameras[image.camera].model->id) {
          AddImage(camera_model, i);
        }
      });
    }
    // COLMAP takes images in the order of their ids.
    std::sort(images_.begin(), images_.end(), [](Image* a, Image* b) {
      return a->id < b->id;
    });
    ParameterizePoses();
    HoldPoints();
    if (options_.fix_gauge) {
      if (options_.gauge == GAUGE_THREE_POINTS || !FixTwoCameras()) {
        FixThreePoints();
      }
    }
    ParameterizeCameras();
  }

 private:
  // A quaternion that has been normalised keeps its bits. With u = epsilon / 2:
  // norm and quotient leave 3 u + u in each component and twice that in the
  // square of the length, and summing that square adds up to 4 u.
  static void Normalize(double* q) {
    const double norm2 = q[0] * q[0] + q[1] * q[1] + q[2] * q[2] + q[3] * q[3];
    if (std::abs(norm2 - 1.0) <= 6 * std::numeric_limits<double>::epsilon()) {
      return;
    }
    const double norm = std::sqrt(norm2);
    for (int i = 0; i < 4; ++i) {
      q[i] /= norm;
    }
  }

  double* PoseOfFrame(Image* image) {
    return image->frame < 0 ? image->pose : FramePose(model_, image->frame);
  }

  bool IsPoseConstant(const Image& image) const {
    return !options_.refine_rig_from_world ||
           IsSet(selection_.constant_poses, &image - model_->images.data());
  }

  // As far as options and selection say.
  bool IsSensorConstant(const Image& image) const {
    return !options_.refine_sensor_from_rig ||
           IsSet(selection_.constant_sensors, image.camera);
  }

  bool IsInProblem(int32_t point, bool is_selected) const {
    if (point < 0 || (!is_selected && !IsSet(selection_.added_points, point))) {
      return false;
    }
    const Point3D& p = model_->points[point];
    return p.track_end - p.track_begin >= options_.min_track_length;
  }

  template <typename CameraModel>
  void AddImage(CameraModel tag, size_t index) {
    Image* image = &model_->images[index];
    const ReprojectionCostMakers makers = MakersOf(tag.kModelId);
    const bool is_selected =
        selection_.images.empty() || selection_.images[index];
    bool is_observed = false;
    for (int64_t k = image->points2d_begin; k < image->points2d_end; ++k) {
      const int32_t point = model_->point_index[k];
      if (IsInProblem(point, is_selected)) {
        AddObservation(
            tag, makers, &model_->points2d[2 * k], point, is_selected, image);
        is_observed = true;
      }
    }
    if (is_observed && is_selected) {
      images_.push_back(image);
    } else if (is_observed) {
      Normalize(image->pose);
      problem_->SetParameterBlockConstant(image->pose);
      if (split_pose_) {
        problem_->SetParameterBlockConstant(image->pose + 4);
      }
    }
  }

  template <typename CameraModel>
  void AddObservation(CameraModel /*tag*/,
                      const ReprojectionCostMakers& makers,
                      const double* pixel,
                      int32_t point_index,
                      bool is_selected,
                      Image* image) {
    double* params = model_->cameras[image->camera].params;
    double* point = model_->points[point_index].xyz;
    ++num_observations_[point_index];
    const double x = pixel[0];
    const double y = pixel[1];
    // cam_from_world of images that are not selected is constant, in one block.
    if (image->sensor < 0 || !is_selected) {
      const typename ReprojectionCosts<CameraModel>::Error error{x, y};
      if (split_pose_) {
        problem_->AddResidualBlock(makers.split(&error),
                                   loss_,
                                   image->pose,
                                   image->pose + 4,
                                   point,
                                   params);
      } else {
        problem_->AddResidualBlock(
            makers.one_block(&error), loss_, point, image->pose, params);
      }
    } else if (IsSensorConstant(*image)) {
      const typename RigReprojectionCosts<CameraModel>::ConstantError error(
          x, y, SensorPose(model_, *image));
      problem_->AddResidualBlock(makers.constant_rig(&error),
                                 loss_,
                                 point,
                                 PoseOfFrame(image),
                                 params);
    } else {
      const typename RigReprojectionCosts<CameraModel>::Error error{x, y};
      problem_->AddResidualBlock(makers.rig(&error),
                                 loss_,
                                 point,
                                 SensorPose(model_, *image),
                                 PoseOfFrame(image),
                                 params);
    }
  }

  // The manifold of a pose in one block whose rotation is constant or not, and
  // a component of the translation, or none (-1).
  ceres::Manifold* MakePoseManifold(bool constant_rotation, int component) {
    if (constant_rotation) {
      std::vector<int> constants = {0, 1, 2, 3};
      if (component >= 0) {
        constants.push_back(4 + component);
      }
      return new ceres::SubsetManifold(7, constants);
    }
    if (component >= 0) {
      return new ceres::ProductManifold<ceres::EigenQuaternionManifold,
                                        ceres::SubsetManifold>(
          ceres::EigenQuaternionManifold(),
          ceres::SubsetManifold(3, {component}));
    }
    if (pose_manifold_ == nullptr) {
      pose_manifold_ =
          new ceres::ProductManifold<ceres::EigenQuaternionManifold,
                                     ceres::EuclideanManifold<3>>;
    }
    return pose_manifold_;
  }

  void ParameterizePoses() {
    std::vector<bool> has_reference(model_->rigs.size(), false);
    for (Image* image : images_) {
      double* const pose = PoseOfFrame(image);
      Normalize(pose);
      ParameterizePose(*image, pose);
      if (image->sensor >= 0) {
        double* const sensor = SensorPose(model_, *image);
        Normalize(sensor);
        if (problem_->HasParameterBlock(sensor)) {
          problem_->SetManifold(sensor, MakePoseManifold(false, -1));
        }
      } else if (image->frame >= 0) {
        has_reference[model_->frames[image->frame].rig] = true;
      }
    }
    // Without images of the reference sensor all poses of the rig may move
    // against those of its frames.
    for (Image* image : images_) {
      if (image->sensor >= 0 &&
          !has_reference[model_->frames[image->frame].rig] &&
          problem_->HasParameterBlock(SensorPose(model_, *image))) {
        problem_->SetParameterBlockConstant(SensorPose(model_, *image));
      }
    }
  }

  void ParameterizePose(const Image& image, double* pose) {
    const bool is_constant = IsPoseConstant(image);
    if (!split_pose_) {
      if (is_constant) {
        problem_->SetParameterBlockConstant(pose);
      } else {
        problem_->SetManifold(
            pose,
            MakePoseManifold(options_.constant_rig_from_world_rotation, -1));
      }
      return;
    }
    if (quaternion_manifold_ == nullptr) {
      quaternion_manifold_ = new ceres::EigenQuaternionManifold;
    }
    problem_->SetManifold(pose, quaternion_manifold_);
    if (is_constant || options_.constant_rig_from_world_rotation) {
      problem_->SetParameterBlockConstant(pose);
    }
    if (is_constant) {
      problem_->SetParameterBlockConstant(pose + 4);
    }
  }

  void HoldPoints() {
    for (size_t i = 0; i < model_->points.size(); ++i) {
      Point3D& point = model_->points[i];
      if (num_observations_[i] > 0 &&
          (!options_.refine_points3D ||
           point.track_end - point.track_begin > num_observations_[i] ||
           IsSet(selection_.constant_points, i))) {
        problem_->SetParameterBlockConstant(point.xyz);
      }
    }
  }

  // False if there are no two cameras for it.
  bool FixTwoCameras() {
    if (!options_.refine_rig_from_world || images_.empty()) {
      return true;
    }
    // The frames of images whose pose in the frame is constant.
    std::vector<Image*> images;
    for (Image* image : images_) {
      if (image->sensor < 0 || IsSensorConstant(*image) ||
          problem_->IsParameterBlockConstant(SensorPose(model_, *image))) {
        images.push_back(image);
      }
    }
    Image* first = nullptr;
    for (Image* image : images) {
      if (!IsPoseConstant(*image)) {
        continue;
      }
      if (first != nullptr && PoseOfFrame(first) != PoseOfFrame(image)) {
        return true;
      }
      first = image;
    }
    for (Image* image : images) {
      if (first == nullptr) {
        first = image;
      }
      double* const first_pose = PoseOfFrame(first);
      double* const pose = PoseOfFrame(image);
      if (pose == first_pose) {
        continue;
      }
      // Position of the frame in the coordinates of the first one.
      double center[3];
      double baseline[3];
      Center(pose, center);
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
      problem_->SetParameterBlockConstant(first_pose);
      if (split_pose_) {
        problem_->SetParameterBlockConstant(first_pose + 4);
      }
      HoldComponent(*image, pose, static_cast<int>(largest - baseline));
      return true;
    }
    return false;
  }

  void HoldComponent(const Image& image, double* pose, int component) {
    if (IsPoseConstant(image)) {
      return;
    }
    if (split_pose_) {
      problem_->SetManifold(pose + 4,
                            new ceres::SubsetManifold(3, {component}));
    } else {
      problem_->SetManifold(
          pose,
          MakePoseManifold(options_.constant_rig_from_world_rotation,
                           component));
    }
  }

  void FixThreePoints() {
    ThreePoints fixed;
    for (const bool is_constant : {true, false}) {
      for (size_t i = 0; i < model_->points.size() && !fixed.IsFull(); ++i) {
        double* const point = model_->points[i].xyz;
        if (num_observations_[i] > 0 &&
            problem_->IsParameterBlockConstant(point) == is_constant &&
            fixed.Add(point)) {
          problem_->SetParameterBlockConstant(point);
        }
      }
    }
  }

  void ParameterizeCameras() {
    std::vector<bool> has_image(model_->cameras.size(), false);
    for (const Image* image : images_) {
      has_image[image->camera] = true;
    }
    for (size_t k = 0; k < model_->cameras.size(); ++k) {
      Camera& camera = model_->cameras[k];
      if (!problem_->HasParameterBlock(camera.params)) {
        continue;
      }
      const int num_params = camera.model->num_params;
      const int num_focals = camera.model->num_focal_lengths;
      std::vector<int> constants;
      for (int i = 0; i < num_params; ++i) {
        if (!(i < num_focals       ? options_.refine_focal_length
              : i < num_focals + 2 ? options_.refine_principal_point
                                   : options_.refine_extra_params)) {
          constants.push_back(i);
        }
      }
      if (static_cast<int>(constants.size()) == num_params || !has_image[k] ||
          IsSet(selection_.constant_cameras, k)) {
        problem_->SetParameterBlockConstant(camera.params);
      } else if (!constants.empty()) {
        problem_->SetManifold(camera.params,
                              new ceres::SubsetManifold(num_params, constants));
      }
    }
  }

  const ProblemOptions& options_;
  const ProblemSelection& selection_;
  const bool split_pose_;
  Model* model_;
  ceres::Problem* problem_;
  // *problem_ owns these and deletes each once.
  ceres::LossFunction* loss_;
  ceres::Manifold* pose_manifold_ = nullptr;
  ceres::Manifold* quaternion_manifold_ = nullptr;
  std::vector<int32_t> num_observations_;  // by point
  // The selected images that have observations.
  std::vector<Image*> images_;
};

}  // namespace

void BuildProblem(const ProblemOptions& options,
                  Model* model,
                  ceres::Problem* problem,
                  const ProblemSelection& selection) {
  ProblemBuilder(options, selection, model, problem).Run();
}

void OrderPointsFirst(const ceres::Problem& problem,
                      const Model& model,
                      const std::vector<double*>& control,
                      ceres::Solver::Options* options) {
  // With more points images do not see most of them, and an ordering takes a
  // second per million points.
  constexpr size_t kMaxOrderedPoints = 50000;
  if (!ceres::IsSchurType(options->linear_solver_type) ||
      model.points.size() > kMaxOrderedPoints) {
    return;
  }
  auto ordering = std::make_shared<ceres::ParameterBlockOrdering>();
  std::vector<double*> blocks;
  problem.GetParameterBlocks(&blocks);
  std::set<const double*> points(control.begin(), control.end());
  for (const Point3D& point : model.points) {
    points.insert(point.xyz);
  }
  for (double* block : blocks) {
    ordering->AddElementToGroup(block, points.count(block) > 0 ? 0 : 1);
  }
  options->linear_solver_ordering = ordering;
}

bool HasOtherSensors(const Model& model) {
  return std::any_of(model.images.begin(),
                     model.images.end(),
                     [](const Image& image) { return image.sensor >= 0; });
}

std::vector<RunawayFocalLength> FindRunawayFocalLengths(
    const std::vector<Camera>& start, const Model& model) {
  std::vector<RunawayFocalLength> runaways;
  for (size_t i = 0; i < start.size(); ++i) {
    for (int k = 0; k < start[i].model->num_focal_lengths; ++k) {
      const double from = start[i].params[k];
      const double to = model.cameras[i].params[k];
      if (to != from && !(to > 0.1 * from && to < 10.0 * from && to > 0.0)) {
        runaways.push_back({start[i].id, k, from, to});
      }
    }
  }
  return runaways;
}

std::string RunawayText(const std::vector<RunawayFocalLength>& runaways) {
  std::string text;
  for (const RunawayFocalLength& runaway : runaways) {
    char line[200];
    std::snprintf(line,
                  sizeof(line),
                  "camera %u: the observations do not determine its focal "
                  "length%s, which went from %.6g to %.6g pixels\n",
                  runaway.camera_id,
                  runaway.index == 1 ? " fy" : "",
                  runaway.start,
                  runaway.end);
    text += line;
  }
  return text;
}

std::vector<double> CameraCenters(const Model& model) {
  std::vector<double> centers(3 * model.images.size());
  for (size_t i = 0; i < model.images.size(); ++i) {
    Center(model.images[i].pose, &centers[3 * i]);
  }
  return centers;
}

void UpdateErrors(Model* model) {
  std::vector<int32_t> counts(model->points.size(), 0);
  for (Point3D& point : model->points) {
    point.error = 0.0;
  }
  for (const Image& image : model->images) {
    const Camera& camera = model->cameras[image.camera];
    ForEachCameraModel([&](auto camera_model) {
      if (camera_model.kModelId != camera.model->id) {
        return;
      }
      for (int64_t k = image.points2d_begin; k < image.points2d_end; ++k) {
        const int32_t index = model->point_index[k];
        if (index < 0) {
          continue;
        }
        double in_camera[3];
        double pixel[2];
        TransformPoint<EigenQuaternion>(
            image.pose, image.pose + 4, model->points[index].xyz, in_camera);
        if (decltype(camera_model)::ImgFromCam(
                camera.params, in_camera, pixel)) {
          model->points[index].error +=
              std::hypot(pixel[0] - model->points2d[2 * k],
                         pixel[1] - model->points2d[2 * k + 1]);
          ++counts[index];
        }
      }
    });
  }
  for (size_t i = 0; i < counts.size(); ++i) {
    double& error = model->points[i].error;
    error = counts[i] > 0 ? error / counts[i] : -1.0;
  }
}

}  // namespace ceres_ext::colmap
