// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "examples/colmap/colmap_covariance.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "ceres/autodiff_cost_function.h"
#include "ceres/problem.h"
#include "ceres/rotation.h"
#include "ceres_ext/photogrammetry.h"

namespace ceres_ext::colmap {
namespace {

using Blocks = std::vector<const double*>;

// Functions of a pose, of one block or two.
template <typename Function>
struct OfPose {
  template <typename T>
  bool operator()(const T* pose, T* out) const {
    return function(pose, pose + 4, out);
  }
  template <typename T>
  bool operator()(const T* rotation, const T* translation, T* out) const {
    return function(rotation, translation, out);
  }
  Function function;
};

struct Center {
  static constexpr int kSize = 3;
  template <typename T>
  bool operator()(const T* rotation, const T* translation, T* center) const {
    ProjectionCenter<EigenQuaternion>(rotation, translation, center);
    return true;
  }
};

// w and t of a pose near `rotation`.
struct RotationAndTranslation {
  static constexpr int kSize = 6;
  template <typename T>
  bool operator()(const T* q, const T* t, T* out) const {
    T turned[4];
    T back[4];
    T change[4];
    EigenQuaternion::ToQuaternion(q, turned);
    const T conjugate[4] = {
        T(rotation[3]), T(-rotation[0]), T(-rotation[1]), T(-rotation[2])};
    std::copy_n(conjugate, 4, back);
    ceres::QuaternionProduct(turned, back, change);
    // X is origin + what the problem has.
    const T o[3] = {T(-origin[0]), T(-origin[1]), T(-origin[2])};
    TransformPoint<EigenQuaternion>(q, t, o, out + 3);
    for (int i = 0; i < 3; ++i) {
      out[i] = 2.0 * change[i + 1];
    }
    return true;
  }
  double rotation[4];
  double origin[3];
};

template <typename Function>
std::unique_ptr<ceres::CostFunction> MakeFunction(const Function& function,
                                                  bool split_pose) {
  using Functor = OfPose<Function>;
  auto* const functor = new Functor{function};
  if (split_pose) {
    return std::make_unique<
        ceres::AutoDiffCostFunction<Functor, Function::kSize, 4, 3>>(functor);
  }
  return std::make_unique<
      ceres::AutoDiffCostFunction<Functor, Function::kSize, 7>>(functor);
}

}  // namespace

bool ComputeModelCovariance(const CovarianceOptions& options,
                            const ProblemOptions& problem_options,
                            const double* origin,
                            Model* model,
                            Survey* survey,
                            bal::CovarianceReport* report,
                            std::string* error) {
  ceres::Problem problem;
  BuildProblem(problem_options, model, &problem);
  if (survey != nullptr) {
    survey->AddTo(problem_options, model, &problem);
  }
  const bool is_split = problem_options.split_pose;
  std::vector<std::pair<const double*, const double*>> pairs;
  std::vector<Blocks> poses;
  std::vector<int64_t> pose_ids;
  for (const Image& image : model->images) {
    if (problem.HasParameterBlock(image.pose)) {
      poses.push_back(is_split ? Blocks{image.pose, image.pose + 4}
                               : Blocks{image.pose});
      pose_ids.push_back(image.id);
      for (size_t i = 0; i < poses.back().size(); ++i) {
        for (size_t j = 0; j <= i; ++j) {
          pairs.emplace_back(poses.back()[i], poses.back()[j]);
        }
      }
    }
  }
  std::vector<const Point3D*> points;
  for (const Point3D& point : model->points) {
    if (problem.HasParameterBlock(point.xyz)) {
      points.push_back(&point);
      pairs.emplace_back(point.xyz, point.xyz);
    }
  }
  std::map<std::string, std::vector<const Camera*>> cameras;
  for (const Camera& camera : model->cameras) {
    if (problem.HasParameterBlock(camera.params)) {
      cameras[camera.model->name].push_back(&camera);
      pairs.emplace_back(camera.params, camera.params);
    }
  }
  if (survey != nullptr) {
    const std::set<std::pair<const double*, const double*>> earlier(
        pairs.begin(), pairs.end());
    for (const auto& pair :
         survey->CovariancePairs(problem_options, *model, problem)) {
      if (earlier.count(pair) == 0) {
        pairs.push_back(pair);
      }
    }
  }
  Covariance covariance(options);
  const bool is_done = covariance.Compute(pairs, &problem);
  report->arrays.clear();
  report->summary = covariance.summary();
  if (!is_done) {
    *error = covariance.error();
    return false;
  }

  const auto add = [&](const std::string& name, int size, int64_t num_blocks) {
    bal::CovarianceArray array;
    array.name = name;
    array.size = size;
    array.num_blocks = num_blocks;
    array.values.resize(static_cast<size_t>(num_blocks * size * size));
    report->arrays.push_back(std::move(array));
    return &report->arrays.back();
  };
  bal::CovarianceArray* array =
      add("images", 6, static_cast<int64_t>(poses.size()));
  bool is_there = true;
  for (size_t i = 0; i < poses.size(); ++i) {
    RotationAndTranslation function = {};
    std::copy_n(poses[i][0], 4, function.rotation);
    if (origin != nullptr) {
      std::copy_n(origin, 3, function.origin);
    }
    is_there = is_there && covariance.GetCovarianceOfFunction(
                               *MakeFunction(function, is_split),
                               poses[i],
                               array->values.data() + 36 * i);
  }
  array->ids = pose_ids;
  if (!bal::AddFunctionArray("centers",
                             covariance,
                             *MakeFunction(Center(), is_split),
                             poses,
                             report,
                             error)) {
    return false;
  }
  report->arrays.back().ids = pose_ids;
  array = add("points", 3, static_cast<int64_t>(points.size()));
  for (size_t i = 0; i < points.size(); ++i) {
    is_there =
        is_there &&
        covariance.GetCovarianceBlock(
            points[i]->xyz, points[i]->xyz, array->values.data() + 9 * i);
    array->ids.push_back(points[i]->id);
  }
  for (const auto& [name, of_model] : cameras) {
    const int size = of_model[0]->model->num_params;
    array = add("cameras_" + name, size, static_cast<int64_t>(of_model.size()));
    double* values = array->values.data();
    for (const Camera* camera : of_model) {
      is_there = is_there && covariance.GetCovarianceBlock(
                                 camera->params, camera->params, values);
      values += size * size;
      array->ids.push_back(camera->id);
    }
  }
  if (survey != nullptr) {
    is_there = is_there && survey->SetStandardDeviations(
                               problem_options, *model, covariance);
  }
  if (!is_there) {
    *error = "a covariance that was asked for is missing";
  }
  return is_there;
}

void SetPositions(const Model& model, bal::CovarianceReport* report) {
  std::map<std::pair<bool, int64_t>, const double*> places;
  const std::vector<double> centers = CameraCenters(model);
  for (size_t i = 0; i < model.images.size(); ++i) {
    places[{false, model.images[i].id}] = &centers[3 * i];
  }
  for (const Point3D& point : model.points) {
    places[{true, point.id}] = point.xyz;
  }
  for (bal::CovarianceArray& array : report->arrays) {
    if (array.name != "centers" && array.name != "points") {
      continue;
    }
    array.positions.clear();
    for (const int64_t id : array.ids) {
      const double* const xyz = places.at({array.name == "points", id});
      array.positions.insert(array.positions.end(), xyz, xyz + 3);
    }
  }
}

}  // namespace ceres_ext::colmap
