// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "examples/colmap/colmap_problem.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "ceres/loss_function.h"
#include "ceres/manifold.h"
#include "ceres/product_manifold.h"
#include "ceres/rotation.h"
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

class ProblemBuilder {
 public:
  ProblemBuilder(const ProblemOptions& options,
                 Model* model,
                 ceres::Problem* problem)
      : options_(options), model_(model), problem_(problem) {
    if (options.loss == LOSS_CAUCHY) {
      loss_ = new ceres::CauchyLoss(options.loss_scale);
    }
  }

  void Run() {
    for (Image& image : model_->images) {
      ForEachCameraModel([&](auto camera_model) {
        if (camera_model.kModelId == model_->cameras[image.camera].model->id) {
          AddImage(camera_model, &image);
        }
      });
    }
    ParameterizePoses();
    if (options_.fix_gauge) {
      FixGauge();
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

  template <typename CameraModel>
  void AddImage(CameraModel /*tag*/, Image* image) {
    using Costs = ReprojectionCosts<CameraModel>;
    double* params = model_->cameras[image->camera].params;
    for (int64_t k = image->points2d_begin; k < image->points2d_end; ++k) {
      if (model_->point_index[k] < 0) {
        continue;
      }
      double* point = model_->points[model_->point_index[k]].xyz;
      auto* error = new typename Costs::Error{model_->points2d[2 * k],
                                              model_->points2d[2 * k + 1]};
      if (options_.split_pose) {
        problem_->AddResidualBlock(new typename Costs::Split(error),
                                   loss_,
                                   image->pose,
                                   image->pose + 4,
                                   point,
                                   params);
      } else {
        problem_->AddResidualBlock(new typename Costs::OneBlock(error),
                                   loss_,
                                   point,
                                   image->pose,
                                   params);
      }
    }
  }

  bool IsObserved(const Image& image) const {
    return problem_->HasParameterBlock(image.pose);
  }

  void ParameterizePoses() {
    ceres::Manifold* manifold = nullptr;
    for (Image& image : model_->images) {
      if (!IsObserved(image)) {
        continue;
      }
      Normalize(image.pose);
      if (manifold == nullptr) {
        if (options_.split_pose) {
          manifold = new ceres::EigenQuaternionManifold;
        } else {
          manifold = new ceres::ProductManifold<ceres::EigenQuaternionManifold,
                                                ceres::EuclideanManifold<3>>;
        }
      }
      problem_->SetManifold(image.pose, manifold);
    }
  }

  void FixGauge() {
    std::vector<Image*> images;
    for (Image& image : model_->images) {
      if (IsObserved(image)) {
        images.push_back(&image);
      }
    }
    std::sort(images.begin(), images.end(), [](Image* a, Image* b) {
      return a->id < b->id;
    });
    if (images.empty()) {
      return;
    }
    double* first = images[0]->pose;
    problem_->SetParameterBlockConstant(first);
    if (options_.split_pose) {
      problem_->SetParameterBlockConstant(first + 4);
    }
    for (size_t i = 1; i < images.size(); ++i) {
      // Position of the image in the coordinates of the first one.
      double* pose = images[i]->pose;
      double center[3];
      double baseline[3];
      Center(pose, center);
      TransformPoint<EigenQuaternion>(first, first + 4, center, baseline);
      const auto* largest =
          std::max_element(baseline, baseline + 3, [](double a, double b) {
            return std::abs(a) < std::abs(b);
          });
      // COLMAP's threshold.
      if (std::abs(*largest) <= 1e-9) {
        continue;
      }
      const ceres::SubsetManifold fixed(3,
                                        {static_cast<int>(largest - baseline)});
      if (options_.split_pose) {
        problem_->SetManifold(pose + 4, new ceres::SubsetManifold(fixed));
      } else {
        problem_->SetManifold(
            pose,
            new ceres::ProductManifold<ceres::EigenQuaternionManifold,
                                       ceres::SubsetManifold>(
                ceres::EigenQuaternionManifold(), fixed));
      }
      return;
    }
  }

  void ParameterizeCameras() {
    for (Camera& camera : model_->cameras) {
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
      if (static_cast<int>(constants.size()) == num_params) {
        problem_->SetParameterBlockConstant(camera.params);
      } else if (!constants.empty()) {
        problem_->SetManifold(camera.params,
                              new ceres::SubsetManifold(num_params, constants));
      }
    }
  }

  const ProblemOptions& options_;
  Model* model_;
  ceres::Problem* problem_;
  // *problem_ owns it and deletes it once.
  ceres::LossFunction* loss_ = nullptr;
};

}  // namespace

void BuildProblem(const ProblemOptions& options,
                  Model* model,
                  ceres::Problem* problem) {
  ProblemBuilder(options, model, problem).Run();
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
