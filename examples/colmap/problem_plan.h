// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The problem of a model before it has a form: which observations are in it,
// which blocks they depend on, and what is constant. BuildProblem makes a
// ceres::Problem of it and ModelArrays arrays, with the same blocks in the same
// order.

#ifndef CERES_EXT_EXAMPLES_COLMAP_PROBLEM_PLAN_H_
#define CERES_EXT_EXAMPLES_COLMAP_PROBLEM_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "ceres/loss_function.h"
#include "ceres/manifold.h"
#include "ceres_ext/camera_intrinsics.h"
#include "ceres_ext/camera_models.h"
#include "examples/colmap/colmap_problem.h"
#include "examples/colmap/position_priors.h"
#include "problem_io/colmap_model.h"

namespace ceres_ext::colmap {

// The residual blocks of an image.
enum ImageKind {
  // They depend on cam_from_world.
  IMAGE_OF_POSE,
  // On rig_from_world and sensor_from_rig, which is constant or varies.
  IMAGE_OF_CONSTANT_SENSOR,
  IMAGE_OF_SENSOR,
};

class ProblemPlan {
 public:
  // A pose in the problem.
  struct Pose {
    bool is_used = false;
    bool is_constant = false;
    // Its images are selected, and options and selection let it vary.
    bool has_manifold = false;
    int constant_component = -1;  // of the translation; -1: none
  };
  struct Sensor {
    double* pose;
    bool is_used = false;
    bool is_constant = false;
    bool is_antenna = false;  // The rotation is constant.
  };
  struct Camera {
    bool is_used = false;
    bool is_constant = false;
    std::vector<int> constants;  // numbers of constant parameters
    // Bounds of the parameters; empty if it has none.
    std::vector<double> lower_bounds;
    std::vector<double> upper_bounds;
    bool has_prior = false;
  };
  struct Point {
    int32_t num_observations = 0;  // in the problem
    bool is_constant = false;
  };
  // Images with observations in the problem, of one camera model and one kind.
  struct Group {
    int camera_model_id;
    ImageKind kind;
    std::vector<int32_t> images = {};
    int64_t num_observations = 0;
  };

  // The arguments outlive this object. Normalises quaternions of *model.
  // positions: may be null.
  ProblemPlan(const ProblemOptions& options,
              const ProblemSelection& selection,
              Model* model,
              PositionPriors* positions = nullptr);

  const std::vector<Group>& groups() const { return groups_; }
  const std::vector<Point>& points() const { return points_; }
  // Poses of the images, then those of the frames.
  const std::vector<Pose>& poses() const { return poses_; }
  const std::vector<Sensor>& sensors() const { return sensors_; }
  const std::vector<Camera>& cameras() const { return cameras_; }

  double* PoseBlock(size_t pose) const {
    const size_t num_images = model_->images.size();
    return pose < num_images ? model_->images[pose].pose
                             : model_->frames[pose - num_images].pose;
  }
  // The pose that the residual blocks of an image depend on.
  int32_t PoseOf(const Image& image, ImageKind kind) const;
  int32_t SensorOf(const Image& image) const {
    return first_sensor_[model_->frames[image.frame].rig] + image.sensor;
  }

  // fn(camera model, number of the camera, prior) for each that has one, one
  // model after the other.
  template <typename Function>
  void ForEachPrior(Function&& fn) const {
    ForEachCameraModel([&](auto camera_model) {
      for (size_t k = 0; k < cameras_.size(); ++k) {
        if (cameras_[k].has_prior &&
            model_->cameras[k].model->id == camera_model.kModelId) {
          const colmap::Camera& camera = model_->cameras[k];
          const auto& all = options_.expected_intrinsics;
          const auto found = all.find(camera.id);
          fn(camera_model,
             k,
             MakeIntrinsicsPrior<decltype(camera_model)>(
                 found == all.end() ? camera.params : found->second.data(),
                 options_.intrinsics_prior_weights));
        }
      }
    });
  }

  // fn(pixel, point) for each observation of an image that is in the problem.
  template <typename Function>
  void ForEachObservation(const Image& image, Function&& fn) const {
    const bool is_selected = IsSelected(image);
    for (int64_t k = image.points2d_begin; k < image.points2d_end; ++k) {
      const int32_t point = model_->point_index[k];
      if (IsInProblem(point, is_selected)) {
        fn(&model_->points2d[2 * k], point);
      }
    }
  }

 private:
  bool IsSelected(const Image& image) const {
    return selection_.images.empty() ||
           selection_.images[&image - model_->images.data()];
  }
  bool IsInProblem(int32_t point, bool is_selected) const;
  // As far as options and selection say.
  bool IsPoseConstant(const Image& image) const;
  bool IsSensorConstant(const Image& image) const;
  Pose* PoseOfFrame(const Image& image) {
    return &poses_[PoseOf(image, IMAGE_OF_SENSOR)];
  }
  double* PoseBlockOfFrame(const Image& image) const {
    return PoseBlock(PoseOf(image, IMAGE_OF_SENSOR));
  }

  void AddImages();
  void PlanPoses();
  void PlanPoints();
  void PlanCameras();
  // Sensors whose positions were measured, and the antenna as the last sensor.
  void PlanPositions(PositionPriors* positions);
  void SetBounds(size_t k);
  // False if there are no two cameras for it.
  bool FixTwoCameras();
  void FixThreePoints();

  const ProblemOptions& options_;
  const ProblemSelection& selection_;
  Model* const model_;
  std::vector<Group> groups_;
  std::vector<Point> points_;
  std::vector<Pose> poses_;
  std::vector<Sensor> sensors_;
  std::vector<int32_t> first_sensor_;  // of each rig
  std::vector<Camera> cameras_;
  // The selected images that have observations, in the order of their ids.
  std::vector<const Image*> images_;
};

// The manifold of a pose in one block whose rotation is constant or not, and a
// component of the translation, or none (-1).
std::unique_ptr<ceres::Manifold> MakePoseManifold(bool constant_rotation,
                                                  int component);

// Null for LOSS_TRIVIAL.
std::unique_ptr<ceres::LossFunction> MakeLoss(const ProblemOptions& options);

}  // namespace ceres_ext::colmap

#endif  // CERES_EXT_EXAMPLES_COLMAP_PROBLEM_PLAN_H_
