// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "examples/colmap/colmap_problem.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "ceres/loss_function.h"
#include "ceres/manifold.h"
#include "ceres/ordered_groups.h"
#include "ceres/rotation.h"
#include "ceres/types.h"
#include "ceres_ext/camera_models.h"
#include "ceres_ext/photogrammetry.h"
#include "examples/colmap/problem_plan.h"
#include "examples/colmap/reprojection_costs.h"

namespace ceres_ext::colmap {
namespace {

class ProblemBuilder {
 public:
  ProblemBuilder(const ProblemOptions& options,
                 const ProblemSelection& selection,
                 Model* model,
                 ceres::Problem* problem)
      : options_(options),
        plan_(options, selection, model),
        split_pose_(options.split_pose && !HasOtherSensors(*model)),
        model_(model),
        problem_(problem),
        loss_(MakeLoss(options).release()) {}

  // In the order of ModelArrays.
  void Run() {
    AddPoints();
    for (size_t i = 0; i < plan_.poses().size(); ++i) {
      if (plan_.poses()[i].is_used) {
        AddPose(plan_.poses()[i], plan_.PoseBlock(i));
      }
    }
    for (const ProblemPlan::Sensor& sensor : plan_.sensors()) {
      if (sensor.is_used) {
        problem_->AddParameterBlock(
            sensor.pose, 7, PoseManifold(/*component=*/-1));
        if (sensor.is_constant) {
          problem_->SetParameterBlockConstant(sensor.pose);
        }
      }
    }
    for (int size = 1; size <= kMaxCameraParams; ++size) {
      AddCameras(size);
    }
    for (const ProblemPlan::Group& group : plan_.groups()) {
      for (const int32_t image : group.images) {
        AddImage(group, model_->images[image]);
      }
    }
    AddPriors();
  }

 private:
  void AddPoints() {
    for (size_t i = 0; i < plan_.points().size(); ++i) {
      double* const xyz = model_->points[i].xyz;
      if (plan_.points()[i].num_observations > 0) {
        problem_->AddParameterBlock(xyz, 3);
        if (plan_.points()[i].is_constant) {
          problem_->SetParameterBlockConstant(xyz);
        }
      }
    }
  }

  // All poses without a constant component have the same.
  ceres::Manifold* PoseManifold(int component) {
    if (component >= 0) {
      return MakePoseManifold(/*constant_rotation=*/false, component).release();
    }
    if (pose_manifold_ == nullptr) {
      pose_manifold_ =
          MakePoseManifold(/*constant_rotation=*/false, component).release();
    }
    return pose_manifold_;
  }

  void AddPose(const ProblemPlan::Pose& plan, double* pose) {
    if (split_pose_) {
      AddSplitPose(plan, pose);
      return;
    }
    ceres::Manifold* manifold = nullptr;
    if (plan.has_manifold) {
      manifold = options_.constant_rig_from_world_rotation
                     ? MakePoseManifold(/*constant_rotation=*/true,
                                        plan.constant_component)
                           .release()
                     : PoseManifold(plan.constant_component);
    }
    problem_->AddParameterBlock(pose, 7, manifold);
    if (plan.is_constant) {
      problem_->SetParameterBlockConstant(pose);
    }
  }

  void AddSplitPose(const ProblemPlan::Pose& plan, double* pose) {
    if (quaternion_manifold_ == nullptr) {
      quaternion_manifold_ = new ceres::EigenQuaternionManifold;
    }
    problem_->AddParameterBlock(pose, 4, quaternion_manifold_);
    problem_->AddParameterBlock(pose + 4, 3);
    if (plan.is_constant || options_.constant_rig_from_world_rotation) {
      problem_->SetParameterBlockConstant(pose);
    }
    if (plan.is_constant) {
      problem_->SetParameterBlockConstant(pose + 4);
    } else if (plan.constant_component >= 0) {
      problem_->SetManifold(
          pose + 4, new ceres::SubsetManifold(3, {plan.constant_component}));
    }
  }

  void AddCameras(int size) {
    for (size_t k = 0; k < plan_.cameras().size(); ++k) {
      const ProblemPlan::Camera& plan = plan_.cameras()[k];
      Camera& camera = model_->cameras[k];
      if (!plan.is_used || camera.model->num_params != size) {
        continue;
      }
      problem_->AddParameterBlock(camera.params, size);
      if (plan.is_constant) {
        problem_->SetParameterBlockConstant(camera.params);
      } else if (!plan.constants.empty()) {
        problem_->SetManifold(camera.params,
                              new ceres::SubsetManifold(size, plan.constants));
      }
      for (size_t i = 0; i < plan.lower_bounds.size(); ++i) {
        const int number = static_cast<int>(i);
        problem_->SetParameterLowerBound(
            camera.params, number, plan.lower_bounds[i]);
        problem_->SetParameterUpperBound(
            camera.params, number, plan.upper_bounds[i]);
      }
    }
  }

  void AddPriors() {
    plan_.ForEachPrior([&](auto camera_model, size_t k, const auto& error) {
      problem_->AddResidualBlock(MakersOf(camera_model.kModelId).prior(&error),
                                 nullptr,
                                 model_->cameras[k].params);
    });
  }

  void AddImage(const ProblemPlan::Group& group, const Image& image) {
    ForEachCameraModel([&](auto camera_model) {
      if (camera_model.kModelId == group.camera_model_id) {
        const ReprojectionCostMakers makers = MakersOf(group.camera_model_id);
        plan_.ForEachObservation(image,
                                 [&](const double* pixel, int32_t point) {
                                   AddObservation(camera_model,
                                                  makers,
                                                  pixel,
                                                  model_->points[point].xyz,
                                                  group.kind,
                                                  image);
                                 });
      }
    });
  }

  template <typename CameraModel>
  void AddObservation(CameraModel /*tag*/,
                      const ReprojectionCostMakers& makers,
                      const double* pixel,
                      double* point,
                      ImageKind kind,
                      const Image& image) {
    double* const params = model_->cameras[image.camera].params;
    double* const pose = plan_.PoseBlock(plan_.PoseOf(image, kind));
    const double x = pixel[0];
    const double y = pixel[1];
    if (kind == IMAGE_OF_POSE) {
      const typename ReprojectionCosts<CameraModel>::Error error{x, y};
      if (split_pose_) {
        problem_->AddResidualBlock(
            makers.split(&error), loss_, pose, pose + 4, point, params);
      } else {
        problem_->AddResidualBlock(
            makers.one_block(&error), loss_, point, pose, params);
      }
      return;
    }
    double* const sensor = plan_.sensors()[plan_.SensorOf(image)].pose;
    if (kind == IMAGE_OF_CONSTANT_SENSOR) {
      const typename RigReprojectionCosts<CameraModel>::ConstantError error(
          x, y, sensor);
      problem_->AddResidualBlock(
          makers.constant_rig(&error), loss_, point, pose, params);
    } else {
      const typename RigReprojectionCosts<CameraModel>::Error error{x, y};
      problem_->AddResidualBlock(
          makers.rig(&error), loss_, point, sensor, pose, params);
    }
  }

  const ProblemOptions& options_;
  const ProblemPlan plan_;
  const bool split_pose_;
  Model* model_;
  ceres::Problem* problem_;
  // *problem_ owns these and deletes each once.
  ceres::LossFunction* loss_;
  ceres::Manifold* pose_manifold_ = nullptr;
  ceres::Manifold* quaternion_manifold_ = nullptr;
};

void PointInCamera(const Image& image, const double* xyz, double* in_camera) {
  const double wxyz[4] = {
      image.pose[3], image.pose[0], image.pose[1], image.pose[2]};
  ceres::QuaternionRotatePoint(wxyz, xyz, in_camera);
  for (int i = 0; i < 3; ++i) {
    in_camera[i] += image.pose[4 + i];
  }
}

}  // namespace

std::string FindPole(const Model& model, int min_track_length) {
  for (const Image& image : model.images) {
    const Camera& camera = model.cameras[image.camera];
    if (camera.model->id != EquirectangularCamera::kModelId) {
      continue;
    }
    for (int64_t k = image.points2d_begin; k < image.points2d_end; ++k) {
      if (model.point_index[k] < 0) {
        continue;
      }
      const Point3D& point = model.points[model.point_index[k]];
      if (point.track_end - point.track_begin < min_track_length) {
        continue;
      }
      double in_camera[3];
      double pixel[2];
      PointInCamera(image, point.xyz, in_camera);
      if (std::isfinite(in_camera[0] + in_camera[1] + in_camera[2]) &&
          !EquirectangularCamera::ImgFromCam(camera.params, in_camera, pixel)) {
        return "point " + std::to_string(point.id) + " in image " +
               std::to_string(image.id) + " (" + image.name +
               "): expected a point off the vertical axis of its "
               "EQUIRECTANGULAR camera " +
               std::to_string(camera.id) +
               ", found one at a pole, where x has no derivative";
      }
    }
  }
  return "";
}

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

std::vector<RunawayObservation> FindRunawayObservations(
    const ceres_ext::Summary& summary,
    const std::function<
        const double*(const ceres_ext::RunawayResidual::Block&)>& place_of,
    const Model& model) {
  std::vector<RunawayObservation> runaways;
  for (const ceres_ext::RunawayResidual& residual : summary.runaway_residuals) {
    std::vector<const double*> places;
    for (const auto& block : residual.blocks) {
      places.push_back(place_of(block));
    }
    const auto has = [&places](const double* place) {
      return std::find(places.begin(), places.end(), place) != places.end();
    };
    const auto point = std::find_if(
        model.points.begin(), model.points.end(), [&](const Point3D& p) {
          return has(p.xyz);
        });
    if (point == model.points.end()) {
      continue;
    }
    // Images of one frame have its pose, and one camera may have taken many.
    const Image* found = nullptr;
    int most = 0;
    for (int64_t k = point->track_begin; k < point->track_end; ++k) {
      const Image& image = model.images[model.track_elements[k].image];
      const double* const pose =
          image.frame < 0 ? image.pose : FramePose(model, image.frame);
      const int fits = (has(pose) ? 2 : 0) +
                       (has(model.cameras[image.camera].params) ? 1 : 0);
      if (fits > most) {
        most = fits;
        found = &image;
      }
    }
    if (found == nullptr) {
      continue;
    }
    double in_camera[3];
    PointInCamera(*found, point->xyz, in_camera);
    runaways.push_back({point->id, found->id, in_camera[2], residual.trial});
  }
  return runaways;
}

std::string RunawayText(const std::vector<RunawayObservation>& runaways) {
  std::string text;
  for (const RunawayObservation& runaway : runaways) {
    char line[200];
    std::snprintf(line,
                  sizeof(line),
                  "point %lld in image %u: its depth is %.3g, and a rejected "
                  "step made its error %.1e pixels\n",
                  static_cast<long long>(runaway.point_id),
                  runaway.image_id,
                  runaway.depth,
                  std::abs(runaway.trial));
    text += line;
  }
  return text;
}

void CameraCenter(const double* pose, double* center) {
  const double inverse[4] = {pose[3], -pose[0], -pose[1], -pose[2]};
  ceres::QuaternionRotatePoint(inverse, pose + 4, center);
  for (int i = 0; i < 3; ++i) {
    center[i] = -center[i];
  }
}

std::vector<double> CameraCenters(const Model& model) {
  std::vector<double> centers(3 * model.images.size());
  for (size_t i = 0; i < model.images.size(); ++i) {
    CameraCenter(model.images[i].pose, &centers[3 * i]);
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
        double error[2];
        TransformPoint<EigenQuaternion>(
            image.pose, image.pose + 4, model->points[index].xyz, in_camera);
        if (decltype(camera_model)::ImgFromCam(
                camera.params, in_camera, error)) {
          error[0] -= model->points2d[2 * k];
          error[1] -= model->points2d[2 * k + 1];
          if (camera.model->id == EquirectangularCamera::kModelId) {
            EquirectangularCamera::TakeShorterWay(camera.params, error);
          }
          model->points[index].error += std::hypot(error[0], error[1]);
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
