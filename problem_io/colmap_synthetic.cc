// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "problem_io/colmap_synthetic.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <new>
#include <string>
#include <vector>

#include "ceres_ext/camera_models.h"
#include "problem_io/bal_problem.h"
#include "problem_io/portable_math.h"

namespace ceres_ext::colmap {
namespace {

// A double whose functions are those of portable_math.h. Being known to this
// file alone, it also keeps the camera models that are compiled here, without
// fused operations, apart from those of other files.
struct Portable {
  Portable() = default;
  Portable(double v) : value(v) {}  // NOLINT(google-explicit-constructor)
  double value = 0.0;
};
Portable operator+(Portable a, Portable b) { return a.value + b.value; }
Portable operator-(Portable a, Portable b) { return a.value - b.value; }
Portable operator*(Portable a, Portable b) { return a.value * b.value; }
Portable operator/(Portable a, Portable b) { return a.value / b.value; }
bool operator<(Portable a, Portable b) { return a.value < b.value; }
bool operator>(Portable a, Portable b) { return a.value > b.value; }
bool operator>=(Portable a, Portable b) { return a.value >= b.value; }
Portable sqrt(Portable a) { return std::sqrt(a.value); }
// For values that are not negative.
Portable atan(Portable a) { return bal::PortableAtan2(a.value, 1.0); }
// For x that is not negative: the scene is in front of the cameras.
Portable atan2(Portable y, Portable x) {
  return y.value < 0.0 ? -bal::PortableAtan2(-y.value, x.value)
                       : bal::PortableAtan2(y.value, x.value);
}
Portable tan(Portable a) {
  double sine;
  double cosine;
  bal::PortableSinCos(a.value, &sine, &cosine);
  return sine / cosine;
}

// Behind the purposes of bal_synthetic.cc.
constexpr uint64_t kForIntrinsics = 64;

// The part of the image that bal_synthetic.cc can see, 0.8 f and 0.6 f from the
// middle, grows by distortion and noise to 0.9 f and 0.68 f.
constexpr double kHalfHeight = 0.75;  // f; the half width is f

// Without distortion, except if the derivatives there are 0.
double StartCoefficient(const CameraModelInfo& model, int k) {
  if (model.id == FovCamera::kModelId) {
    return 0.6;
  }
  if (model.id == EucmCamera::kModelId) {
    return k == 0 ? 0.5 : 1.0;
  }
  return 0.0;
}

// Quaternion w, x, y, z.
void QuaternionOfAngleAxis(const double* w, double* q) {
  const double angle = std::sqrt(w[0] * w[0] + w[1] * w[1] + w[2] * w[2]);
  double s = 0.0;
  double c = 1.0;
  if (angle > 0.0) {
    bal::PortableSinCos(0.5 * angle, &s, &c);
    s = s / angle;
  }
  q[0] = c;
  for (int i = 0; i < 3; ++i) {
    q[1 + i] = s * w[i];
  }
}

// The BAL camera looks along -z, with y up: what is seen along z, with y down,
// is turned by pi about x, (0, 1, 0, 0) q.
void PoseOfBalCamera(const double* camera, double* pose) {
  double q[4];
  QuaternionOfAngleAxis(camera, q);
  const double values[7] = {
      q[0], -q[3], q[2], -q[1], camera[3], -camera[4], -camera[5]};
  std::copy_n(values, 7, pose);
}

// p + 2 w (v x p) + 2 v x (v x p), plus t
void Transform(const double* pose, const double* p, double* result) {
  const double* v = pose;
  const double w = pose[3];
  const double a[3] = {v[1] * p[2] - v[2] * p[1],
                       v[2] * p[0] - v[0] * p[2],
                       v[0] * p[1] - v[1] * p[0]};
  const double b[3] = {v[1] * a[2] - v[2] * a[1],
                       v[2] * a[0] - v[0] * a[2],
                       v[0] * a[1] - v[1] * a[0]};
  for (int i = 0; i < 3; ++i) {
    result[i] = p[i] + 2.0 * (w * a[i] + b[i]) + pose[4 + i];
  }
}

class ModelMaker {
 public:
  ModelMaker(const bal::SyntheticProblem& scene,
             uint64_t seed,
             const SyntheticModelOptions& options)
      : scene_(scene), seed_(seed), options_(options) {}

  void Run(SyntheticValues values, Model* model) const {
    const bool truth = values == VALUES_OF_TRUTH;
    const bal::BalProblem& start = scene_.start;
    const int32_t num_images = start.num_cameras();
    const int32_t num_cameras = options_.num_shared_cameras > 0
                                    ? options_.num_shared_cameras
                                    : num_images;
    std::vector<Camera> true_cameras(num_cameras);
    for (int32_t i = 0; i < num_cameras; ++i) {
      true_cameras[i] = MakeCamera(i, /*truth=*/true);
    }
    model->images.resize(num_images);
    std::vector<int64_t> next(num_images + 1, 0);
    for (const int32_t camera : start.camera_index) {
      ++next[camera + 1];
    }
    std::vector<double> true_poses(7 * int64_t{num_images});
    for (int32_t i = 0; i < num_images; ++i) {
      next[i + 1] += next[i];
      Image& image = model->images[i];
      image.id = i + 1;
      image.camera = i % num_cameras;
      image.name = "image" + std::to_string(i + 1) + ".png";
      image.points2d_begin = next[i];
      image.points2d_end = next[i + 1];
      double* true_pose = &true_poses[7 * int64_t{i}];
      PoseOfBalCamera(&scene_.true_cameras[9 * int64_t{i}], true_pose);
      PoseOfBalCamera(&start.cameras[9 * int64_t{i}], image.pose);
      if (truth) {
        std::copy_n(true_pose, 7, image.pose);
      }
    }
    const std::vector<double>& points =
        truth ? scene_.true_points : start.points;
    model->points.resize(start.num_points());
    for (int64_t i = 0; i < start.num_points(); ++i) {
      model->points[i] = {i + 1,
                          {points[3 * i], points[3 * i + 1], points[3 * i + 2]},
                          /*error=*/-1.0,
                          {128, 128, 128},
                          /*track_begin=*/0,
                          /*track_end=*/0};
    }
    model->points2d.resize(2 * start.num_observations());
    model->point_index.resize(start.num_observations());
    ForEachCameraModel([&](auto camera_model) {
      if (camera_model.kModelId == options_.camera_model->id) {
        Observe(camera_model, true_cameras, true_poses, &next, model);
      }
    });
    SetTracks(model);
    if (truth) {
      model->cameras = std::move(true_cameras);
    } else {
      for (int32_t i = 0; i < num_cameras; ++i) {
        model->cameras.push_back(MakeCamera(i, /*truth=*/false));
      }
    }
  }

 private:
  Camera MakeCamera(int32_t i, bool truth) const {
    const CameraModelInfo& info = *options_.camera_model;
    const double* bal = &scene_.true_cameras[9 * int64_t{i}];
    const double true_f = bal[6];
    const double start_f = scene_.start.cameras[9 * int64_t{i} + 6];
    Camera camera = {};
    camera.id = i + 1;
    camera.model = &info;
    camera.width = 2 * static_cast<int64_t>(std::ceil(true_f));
    camera.height = 2 * static_cast<int64_t>(std::ceil(kHalfHeight * true_f));
    if (info.num_focal_lengths == 0) {
      // A panorama with the focal length in its middle.
      camera.height = static_cast<int64_t>(std::ceil(bal::kPi * true_f));
      camera.width = 2 * camera.height;
      camera.params[0] = static_cast<double>(camera.width);
      camera.params[1] = static_cast<double>(camera.height);
      return camera;
    }
    bal::PortableRandom random(seed_, kForIntrinsics, i);
    const double aspect = 1.0 + random.Uniform(-0.02, 0.02);
    double* params = camera.params;
    *params++ = truth ? true_f : start_f;
    if (info.num_focal_lengths == 2) {
      *params++ = aspect * (truth ? true_f : start_f);
    }
    *params++ = 0.5 * static_cast<double>(camera.width);
    *params++ = 0.5 * static_cast<double>(camera.height);
    const int num_coefficients = info.num_params - info.num_focal_lengths - 2;
    for (int k = 0; k < num_coefficients; ++k) {
      params[k] = StartCoefficient(info, k);
      if (truth) {
        params[k] += k < 2 ? bal[7 + k] : random.Uniform(-0.001, 0.001);
      }
    }
    return camera;
  }

  // The true cameras' images of the true points, with the error of the BAL
  // camera's observation.
  template <typename CameraModel>
  void Observe(CameraModel /*tag*/,
               const std::vector<Camera>& true_cameras,
               const std::vector<double>& true_poses,
               std::vector<int64_t>* next,
               Model* model) const {
    std::vector<Portable> params(CameraModel::kNumParams * true_cameras.size());
    for (size_t i = 0; i < true_cameras.size(); ++i) {
      std::copy_n(true_cameras[i].params,
                  CameraModel::kNumParams,
                  &params[CameraModel::kNumParams * i]);
    }
    const bal::BalProblem& start = scene_.start;
    for (int64_t i = 0; i < start.num_observations(); ++i) {
      const int64_t camera = start.camera_index[i];
      const int64_t point = start.point_index[i];
      double p[3];
      Transform(&true_poses[7 * camera], &scene_.true_points[3 * point], p);
      // The same point seen by the BAL camera, with y down as well.
      const Portable in_camera[3] = {p[0], p[1], p[2]};
      const double* bal = &scene_.true_cameras[9 * camera];
      const Portable bal_params[5] = {bal[6], 0.0, 0.0, bal[7], bal[8]};
      Portable seen_by_bal[2];
      Portable pixel[2];
      const int32_t shared = model->images[camera].camera;
      // The scene has no points behind a camera.
      RadialCamera::ImgFromCam(bal_params, in_camera, seen_by_bal);
      CameraModel::ImgFromCam(
          &params[CameraModel::kNumParams * shared], in_camera, pixel);
      const int64_t to = (*next)[camera]++;
      model->points2d[2 * to] =
          pixel[0].value + (start.observations[2 * i] - seen_by_bal[0].value);
      model->points2d[2 * to + 1] =
          pixel[1].value -
          (start.observations[2 * i + 1] + seen_by_bal[1].value);
      model->point_index[to] = static_cast<int32_t>(point);
    }
  }

  const bal::SyntheticProblem& scene_;
  const uint64_t seed_;
  const SyntheticModelOptions& options_;
};

}  // namespace

bool MakeModel(const bal::SyntheticProblem& scene,
               uint64_t seed,
               const SyntheticModelOptions& options,
               SyntheticValues values,
               Model* model,
               std::string* error) {
  *model = Model();
  try {
    ModelMaker(scene, seed, options).Run(values, model);
    return true;
  } catch (const std::bad_alloc&) {
    *error =
        "num_observations: expected a problem that fits in memory, found " +
        std::to_string(scene.start.num_observations());
  }
  *model = Model();
  return false;
}

}  // namespace ceres_ext::colmap
