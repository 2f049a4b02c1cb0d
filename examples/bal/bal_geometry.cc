// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "examples/bal/bal_geometry.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "ceres/rotation.h"
#include "examples/bal/for_each_chunk.h"
#include "examples/bal/portable_math.h"

namespace ceres_ext::bal {
namespace {

// Of camera parameters behind the rotation: translation, f, k1, k2.
constexpr int kBehindRotation = 6;

void Rotate(const BalProblem& problem,
            const double* camera,
            const double* point,
            double* rotated) {
  if (problem.camera_size == 10) {
    ceres::QuaternionRotatePoint(camera, point, rotated);
  } else {
    ceres::AngleAxisRotatePoint(camera, point, rotated);
  }
}

// center = -R't
void Center(const BalProblem& problem, const double* camera, double* center) {
  const double* t = camera + problem.camera_size - kBehindRotation;
  if (problem.camera_size == 10) {
    const double inverse[4] = {camera[0], -camera[1], -camera[2], -camera[3]};
    ceres::QuaternionRotatePoint(inverse, t, center);
  } else {
    const double inverse[3] = {-camera[0], -camera[1], -camera[2]};
    ceres::AngleAxisRotatePoint(inverse, t, center);
  }
  for (int k = 0; k < 3; ++k) {
    center[k] = -center[k];
  }
}

void Resize(int camera_size,
            void (*convert)(const double* from, double* to),
            BalProblem* problem) {
  if (problem->camera_size == camera_size) {
    return;
  }
  const int old_size = problem->camera_size;
  const int64_t num_cameras = problem->num_cameras();
  std::vector<double> cameras(num_cameras * camera_size);
  for (int64_t i = 0; i < num_cameras; ++i) {
    const double* from = problem->cameras.data() + i * old_size;
    double* to = cameras.data() + i * camera_size;
    convert(from, to);
    std::copy_n(from + old_size - kBehindRotation,
                kBehindRotation,
                to + camera_size - kBehindRotation);
  }
  problem->cameras = std::move(cameras);
  problem->camera_size = camera_size;
}

double Median(std::vector<double>* values) {
  const auto middle = values->begin() + values->size() / 2;
  std::nth_element(values->begin(), middle, values->end());
  return *middle;
}

// X' = scale (X + shift); with t = -R c, t' = scale (t - R shift).
void Transform(double scale, const double shift[3], BalProblem* problem) {
  for (size_t i = 0; i < problem->points.size(); ++i) {
    problem->points[i] = scale * (problem->points[i] + shift[i % 3]);
  }
  for (int64_t i = 0; i < problem->num_cameras(); ++i) {
    double* camera = problem->cameras.data() + i * problem->camera_size;
    double* t = camera + problem->camera_size - kBehindRotation;
    double rotated[3];
    Rotate(*problem, camera, shift, rotated);
    for (int k = 0; k < 3; ++k) {
      t[k] = scale * (t[k] - rotated[k]);
    }
  }
}

}  // namespace

void ToQuaternions(BalProblem* problem) {
  Resize(10, ceres::AngleAxisToQuaternion<double>, problem);
}

void ToAngleAxes(BalProblem* problem) {
  Resize(9, ceres::QuaternionToAngleAxis<double>, problem);
}

std::vector<double> CameraCenters(const BalProblem& problem) {
  std::vector<double> centers(3 * static_cast<int64_t>(problem.num_cameras()));
  for (int64_t i = 0; i < problem.num_cameras(); ++i) {
    Center(problem,
           problem.cameras.data() + i * problem.camera_size,
           centers.data() + 3 * i);
  }
  return centers;
}

Similarity Normalize(BalProblem* problem) {
  const int64_t num_points = problem->num_points();
  if (num_points == 0) {
    return Similarity();
  }
  Similarity similarity;
  std::vector<double> values(num_points);
  // A thread each.
  ForEachChunk(3, 3, [&](int k, int64_t, int64_t) {
    std::vector<double> coordinates(num_points);
    for (int64_t i = 0; i < num_points; ++i) {
      coordinates[i] = problem->points[3 * i + k];
    }
    similarity.origin[k] = Median(&coordinates);
  });
  for (int64_t i = 0; i < num_points; ++i) {
    values[i] = 0.0;
    for (int k = 0; k < 3; ++k) {
      values[i] += std::abs(problem->points[3 * i + k] - similarity.origin[k]);
    }
  }
  similarity.scale = 100.0 / Median(&values);
  if (!std::isnormal(similarity.scale)) {
    return Similarity();
  }
  const double shift[3] = {
      -similarity.origin[0], -similarity.origin[1], -similarity.origin[2]};
  Transform(similarity.scale, shift, problem);
  return similarity;
}

void Undo(const Similarity& similarity, BalProblem* problem) {
  // X = (X' + scale origin) / scale
  double shift[3];
  for (int k = 0; k < 3; ++k) {
    shift[k] = similarity.scale * similarity.origin[k];
  }
  Transform(1.0 / similarity.scale, shift, problem);
}

void Perturb(double rotation_sigma,
             double translation_sigma,
             double point_sigma,
             uint32_t seed,
             BalProblem* problem) {
  enum Purpose { kPoints, kCameras };
  if (point_sigma > 0.0) {
    for (int64_t i = 0; i < problem->num_points(); ++i) {
      PortableRandom random(seed, kPoints, i);
      for (int k = 0; k < 3; ++k) {
        problem->points[3 * i + k] += point_sigma * random.Normal();
      }
    }
  }
  for (int64_t i = 0; i < problem->num_cameras(); ++i) {
    PortableRandom random(seed, kCameras, i);
    double* camera = problem->cameras.data() + i * problem->camera_size;
    double* t = camera + problem->camera_size - kBehindRotation;
    if (rotation_sigma > 0.0) {
      double center[3];
      Center(*problem, camera, center);
      double angle_axis[3];
      if (problem->camera_size == 10) {
        ceres::QuaternionToAngleAxis(camera, angle_axis);
      } else {
        std::copy_n(camera, 3, angle_axis);
      }
      for (double& component : angle_axis) {
        component += rotation_sigma * random.Normal();
      }
      if (problem->camera_size == 10) {
        ceres::AngleAxisToQuaternion(angle_axis, camera);
      } else {
        std::copy_n(angle_axis, 3, camera);
      }
      // t = -R c
      Rotate(*problem, camera, center, t);
      for (int k = 0; k < 3; ++k) {
        t[k] = -t[k];
      }
    }
    if (translation_sigma > 0.0) {
      for (int k = 0; k < 3; ++k) {
        t[k] += translation_sigma * random.Normal();
      }
    }
  }
}

}  // namespace ceres_ext::bal
