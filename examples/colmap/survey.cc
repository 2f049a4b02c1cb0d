// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "examples/colmap/survey.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <sstream>

#include "Eigen/Cholesky"
#include "Eigen/Core"
#include "Eigen/Eigenvalues"
#include "Eigen/Geometry"
#include "Eigen/SVD"
#include "ceres/autodiff_cost_function.h"
#include "ceres/autodiff_manifold.h"
#include "ceres/jet.h"
#include "ceres/manifold.h"
#include "ceres/rotation.h"
#include "ceres/solver.h"
#include "ceres_ext/camera_models.h"
#include "ceres_ext/photogrammetry.h"

namespace ceres_ext::colmap {
namespace {

using Eigen::Matrix3d;
using Eigen::MatrixXd;
using Eigen::Vector3d;
using Measurement = SurveyItem::Measurement;

using Matrix3X = Eigen::Matrix<double, 3, Eigen::Dynamic>;

// Points on a line: their second extent is at most this part of the first.
constexpr double kOnALine = 1e-3;
// A model is in the frame of the control if it is as near as this, in extents
// of the control.
constexpr double kInFrame = 0.05;

// Coordinates of different sizes for readers.
std::string Text(double value) {
  std::ostringstream text;
  text.precision(4);
  text << value;
  return text.str();
}

// The reprojection error of a measurement by its standard deviation, with the
// blocks of BuildProblem.
std::unique_ptr<ceres::CostFunction> MakeCost(const Camera& camera,
                                              const Measurement& measurement,
                                              bool split_pose) {
  std::unique_ptr<ceres::CostFunction> cost;
  ForEachCameraModel([&](auto camera_model) {
    if (camera_model.kModelId != camera.model->id) {
      return;
    }
    using Error = WeightedError<
        ReprojectionError<decltype(camera_model), EigenQuaternion>>;
    auto* const error = new Error{{measurement.xy[0], measurement.xy[1]},
                                  1.0 / measurement.sigma};
    if (split_pose) {
      cost = std::make_unique<CostFunctionFor<ceres::AutoDiffCostFunction,
                                              Error,
                                              typename Error::SplitBlockSizes>>(
          error);
    } else {
      cost =
          std::make_unique<CostFunctionFor<ceres::AutoDiffCostFunction, Error>>(
              error);
    }
  });
  return cost;
}

// The blocks of MakeCost.
template <typename T>
std::vector<T*> BlocksOf(T* pose, T* point, T* params, bool split_pose) {
  return split_pose ? std::vector<T*>{pose, pose + 4, point, params}
                    : std::vector<T*>{point, pose, params};
}
int PlaceOfPoint(bool split_pose) { return split_pose ? 2 : 0; }

// The direction that EQUIRECTANGULAR projects to the pixel.
Vector3d DirectionInPanorama(const double* size, const double* pixel) {
  const double longitude = 2.0 * EIGEN_PI * (pixel[0] / size[0] - 0.5);
  const double latitude = EIGEN_PI * (pixel[1] / size[1] - 0.5);
  return {std::cos(latitude) * std::sin(longitude),
          std::sin(latitude),
          std::cos(latitude) * std::cos(longitude)};
}

// A direction whose image is the pixel, other than of a panorama (x, y, 1) by
// Newton's method. False if it does not converge.
bool FindDirection(const Camera& camera,
                   const double* pixel,
                   Vector3d* direction) {
  if (camera.model->id == EquirectangularCamera::kModelId) {
    *direction = DirectionInPanorama(camera.params, pixel);
    return direction->allFinite();
  }
  double* const xy = direction->data();
  xy[2] = 1.0;
  bool is_found = false;
  ForEachCameraModel([&](auto camera_model) {
    using CameraModel = decltype(camera_model);
    if (CameraModel::kModelId != camera.model->id) {
      return;
    }
    using Jet = ceres::Jet<double, 2>;
    Jet params[CameraModel::kNumParams];
    for (int i = 0; i < CameraModel::kNumParams; ++i) {
      params[i] = Jet(camera.params[i]);
    }
    const int num_focals = camera.model->num_focal_lengths;
    for (int i = 0; i < 2; ++i) {
      xy[i] = (pixel[i] - camera.params[num_focals + i]) /
              camera.params[i * (num_focals - 1)];
    }
    constexpr int kMostIterations = 50;
    for (int k = 0; k < kMostIterations && !is_found; ++k) {
      const Jet in_camera[3] = {Jet(xy[0], 0), Jet(xy[1], 1), Jet(1.0)};
      Jet image[2];
      if (!CameraModel::ImgFromCam(params, in_camera, image)) {
        return;
      }
      const double a = image[0].v[0];
      const double b = image[0].v[1];
      const double c = image[1].v[0];
      const double d = image[1].v[1];
      const double r0 = pixel[0] - image[0].a;
      const double r1 = pixel[1] - image[1].a;
      const double determinant = a * d - b * c;
      xy[0] += (d * r0 - b * r1) / determinant;
      xy[1] += (a * r1 - c * r0) / determinant;
      constexpr double kNear = 1e-9;  // pixels
      is_found = std::hypot(r0, r1) < kNear;
    }
  });
  return is_found && direction->allFinite();
}

Eigen::Quaterniond Rotation(const Image& image) {
  return Eigen::Quaterniond(
             image.pose[3], image.pose[0], image.pose[1], image.pose[2])
      .normalized();
}
Vector3d CenterOf(const Image& image) {
  return -(Rotation(image).conjugate() *
           Vector3d(image.pose[4], image.pose[5], image.pose[6]));
}

// The point that is nearest to the rays of its measurements, then that with the
// least reprojection errors. False if there are less than two rays, or if they
// are parallel.
bool Intersect(const Model& model,
               const std::vector<Measurement>& measurements,
               double* xyz) {
  Matrix3d normal = Matrix3d::Zero();
  Vector3d right = Vector3d::Zero();
  int num_rays = 0;
  for (const Measurement& measurement : measurements) {
    const Image& image = model.images[measurement.image];
    Vector3d in_camera;
    if (!FindDirection(
            model.cameras[image.camera], measurement.xy, &in_camera)) {
      continue;
    }
    const Vector3d direction =
        (Rotation(image).conjugate() * in_camera).normalized();
    const Matrix3d across =
        Matrix3d::Identity() - direction * direction.transpose();
    normal += across;
    right += across * CenterOf(image);
    ++num_rays;
  }
  const Eigen::SelfAdjointEigenSolver<Matrix3d> eigen(normal);
  // Rays at an angle of a radians have a ratio of a^2 / 4: here 0.0006 radians,
  // a pixel of many cameras.
  constexpr double kParallel = 1e-7;
  if (num_rays < 2 ||
      !(eigen.eigenvalues()(0) > kParallel * eigen.eigenvalues()(2))) {
    return false;
  }
  Eigen::Map<Vector3d> point(xyz);
  point = normal.ldlt().solve(right);
  ceres::Problem problem;
  std::vector<std::vector<double>> constants;
  for (const Measurement& measurement : measurements) {
    const Image& image = model.images[measurement.image];
    const Camera& camera = model.cameras[image.camera];
    constants.emplace_back(image.pose, image.pose + 7);
    double* const pose = constants.back().data();
    constants.emplace_back(camera.params,
                           camera.params + camera.model->num_params);
    double* const params = constants.back().data();
    problem.AddResidualBlock(
        MakeCost(camera, measurement, /*split_pose=*/false).release(),
        nullptr,
        {xyz, pose, params});
    problem.SetParameterBlockConstant(pose);
    problem.SetParameterBlockConstant(params);
  }
  ceres::Solver::Options options;
  options.linear_solver_type = ceres::DENSE_QR;
  options.logging_type = ceres::SILENT;
  options.function_tolerance = 0.0;
  options.gradient_tolerance = 0.0;
  options.parameter_tolerance = 1e-14;
  ceres::Solver::Summary summary;
  ceres::Solve(options, &problem, &summary);
  return summary.IsSolutionUsable() && point.allFinite();
}

// The place of a check point as a function of the cameras that see it:
//
//   dX = -N^-1 sum_i A_i'B_i dp,   N = sum_i A_i'A_i
//
// of the derivatives A_i by X and B_i by the cameras of the weighted
// reprojection errors. N^-1 is the covariance of X for known cameras.
class CheckPointFunction final : public ceres::CostFunction {
 public:
  CheckPointFunction(const Model& model,
                     const SurveyItem& point,
                     bool split_pose)
      : point_(point), split_pose_(split_pose) {
    set_num_residuals(3);
    std::map<const double*, int> place_of;
    for (const Measurement& measurement : point.measurements) {
      const Image& image = model.images[measurement.image];
      const Camera& camera = model.cameras[image.camera];
      costs_.push_back(MakeCost(camera, measurement, split_pose));
      const auto& sizes = costs_.back()->parameter_block_sizes();
      std::vector<int>& places = places_.emplace_back();
      const std::vector<const double*> of_cost = BlocksOf<const double>(
          image.pose, point.xyz, camera.params, split_pose);
      for (size_t i = 0; i < of_cost.size(); ++i) {
        if (of_cost[i] == point.xyz) {
          places.push_back(-1);
          continue;
        }
        const auto [place, is_new] =
            place_of.emplace(of_cost[i], static_cast<int>(blocks_.size()));
        if (is_new) {
          blocks_.push_back(of_cost[i]);
          mutable_parameter_block_sizes()->push_back(sizes[i]);
        }
        places.push_back(place->second);
      }
    }
  }

  const std::vector<const double*>& blocks() const { return blocks_; }

  bool Evaluate(double const* const* parameters,
                double* residuals,
                double** jacobians) const final {
    Matrix3d normal;
    std::vector<MatrixXd> sums;
    if (!Sum(parameters, &normal, &sums)) {
      return false;
    }
    std::copy_n(point_.xyz, 3, residuals);
    const Eigen::LDLT<Matrix3d> factor(normal);
    for (size_t b = 0; jacobians != nullptr && b < blocks_.size(); ++b) {
      if (jacobians[b] != nullptr) {
        Eigen::Map<Eigen::Matrix<double, 3, Eigen::Dynamic, Eigen::RowMajor>>
            jacobian(jacobians[b], 3, sums[b].cols());
        jacobian = -factor.solve(sums[b]);
      }
    }
    return true;
  }
  // N^-1
  Matrix3d OwnCovariance() const {
    Matrix3d normal;
    std::vector<MatrixXd> sums;
    return Sum(blocks_.data(), &normal, &sums)
               ? Matrix3d(normal.inverse())
               : Matrix3d::Constant(SurveyItem::kNone);
  }

 private:
  bool Sum(double const* const* parameters,
           Matrix3d* normal,
           std::vector<MatrixXd>* sums) const {
    normal->setZero();
    for (const int32_t size : parameter_block_sizes()) {
      sums->push_back(MatrixXd::Zero(3, size));
    }
    for (size_t i = 0; i < costs_.size(); ++i) {
      using RowMajor = Eigen::
          Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
      std::vector<const double*> values;
      std::vector<RowMajor> derivatives;
      for (size_t k = 0; k < places_[i].size(); ++k) {
        const int place = places_[i][k];
        values.push_back(place < 0 ? point_.xyz : parameters[place]);
        derivatives.emplace_back(2, costs_[i]->parameter_block_sizes()[k]);
      }
      std::vector<double*> pointers;
      pointers.reserve(derivatives.size());
      for (RowMajor& derivative : derivatives) {
        pointers.push_back(derivative.data());
      }
      double residuals[2];
      if (!costs_[i]->Evaluate(values.data(), residuals, pointers.data())) {
        return false;
      }
      const RowMajor& by_point =
          derivatives[static_cast<size_t>(PlaceOfPoint(split_pose_))];
      *normal += by_point.transpose() * by_point;
      for (size_t k = 0; k < places_[i].size(); ++k) {
        if (places_[i][k] >= 0) {
          (*sums)[static_cast<size_t>(places_[i][k])] +=
              by_point.transpose() * derivatives[k];
        }
      }
    }
    return true;
  }

  const SurveyItem& point_;
  const bool split_pose_;
  std::vector<std::unique_ptr<ceres::CostFunction>> costs_;
  std::vector<std::vector<int>> places_;  // of each cost's blocks in blocks_
  std::vector<const double*> blocks_;
};

// Rotations of a camera about its position: R becomes exp([w]x) R, and t = -R
// c.
struct RotationAboutCenter {
  template <typename T>
  bool Plus(const T* x, const T* delta, T* x_plus_delta) const {
    const T wxyz[4] = {x[3], x[0], x[1], x[2]};
    T change[4];
    ceres::AngleAxisToQuaternion(delta, change);
    T turned[4];
    ceres::QuaternionProduct(change, wxyz, turned);
    const T c[3] = {T(-center[0]), T(-center[1]), T(-center[2])};
    ceres::UnitQuaternionRotatePoint(turned, c, x_plus_delta + 4);
    for (int i = 0; i < 4; ++i) {
      x_plus_delta[i] = turned[(i + 1) % 4];
    }
    return true;
  }
  template <typename T>
  bool Minus(const T* y, const T* x, T* y_minus_x) const {
    const T of_y[4] = {y[3], y[0], y[1], y[2]};
    const T inverse_of_x[4] = {x[3], T(-x[0]), T(-x[1]), T(-x[2])};
    T change[4];
    ceres::QuaternionProduct(of_y, inverse_of_x, change);
    ceres::QuaternionToAngleAxis(change, y_minus_x);
    return true;
  }
  double center[3];
};

// The diagonal matrix of 1 / sigma; 0 where the coordinate is fixed.
void SetWeights(const double* sigma, double* sqrt_information) {
  std::fill_n(sqrt_information, 9, 0.0);
  for (int i = 0; i < 3; ++i) {
    sqrt_information[4 * i] = sigma[i] > 0.0 ? 1.0 / sigma[i] : 0.0;
  }
}

std::string At(const std::string& path, int64_t line) {
  return path + ":" + std::to_string(line);
}

// Places of a file's images in a model.
class ImageFinder {
 public:
  explicit ImageFinder(const Model& model) {
    for (size_t i = 0; i < model.images.size(); ++i) {
      const Image& image = model.images[i];
      const auto begin = model.point_index.begin();
      images_[image.name] = {
          static_cast<int32_t>(i),
          std::any_of(begin + image.points2d_begin,
                      begin + image.points2d_end,
                      [](int32_t point) { return point >= 0; })};
    }
  }
  // *image: -1 if the line is to be skipped.
  bool Find(const std::string& where,
            const std::string& name,
            bool skip_missing,
            int32_t* image,
            std::string* error) const {
    const auto found = images_.find(name);
    *image = -1;
    if (found == images_.end()) {
      *error = where + ": expected the name of an image of the model, found '" +
               name + "' (--skip_missing_images ignores such lines)";
      return skip_missing;
    }
    if (!found->second.second) {
      *error = where + ": expected an image that sees points of the model, " +
               "found '" + name + "', which sees none";
      return skip_missing;
    }
    *image = found->second.first;
    return true;
  }

 private:
  std::map<std::string, std::pair<int32_t, bool>> images_;
};

double Rms(const Matrix3X& differences) {
  return std::sqrt(differences.squaredNorm() /
                   static_cast<double>(differences.cols()));
}
Matrix3X Centered(const Matrix3X& points) {
  return points.colwise() - points.rowwise().mean();
}
bool AreOnALine(const Matrix3X& points) {
  const Eigen::JacobiSVD<MatrixXd> svd(Centered(points));
  return !(svd.singularValues()(1) > kOnALine * svd.singularValues()(0));
}

}  // namespace

bool Survey::Read(const SurveyFiles& files,
                  const ProblemOptions& options,
                  const Model& model,
                  std::string* error) {
  points_.clear();
  positions_.clear();
  if (files.points.empty() != files.measurements.empty()) {
    *error = "--gcp and --gcp_observations: expected both, found one";
    return false;
  }
  return ReadPoints(files, model, error) &&
         ReadPositions(files, options, model, error);
}

bool Survey::ReadPoints(const SurveyFiles& files,
                        const Model& model,
                        std::string* error) {
  if (files.points.empty()) {
    return true;
  }
  std::vector<SurveyedPoint> surveyed;
  std::vector<SurveyMeasurement> measurements;
  if (!ReadSurveyedPoints(files.points, &surveyed, error) ||
      !ReadSurveyMeasurements(files.measurements, &measurements, error)) {
    return false;
  }
  std::map<std::string, size_t> place_of;
  for (SurveyedPoint& point : surveyed) {
    place_of[point.id] = points_.size();
    points_.emplace_back().surveyed = std::move(point);
  }
  const ImageFinder finder(model);
  for (const SurveyMeasurement& measurement : measurements) {
    const std::string where = At(files.measurements, measurement.line);
    const auto place = place_of.find(measurement.point);
    if (place == place_of.end()) {
      *error = where + ": expected the ID of a point in " + files.points +
               ", found '" + measurement.point + "'";
      return false;
    }
    int32_t image = -1;
    if (!finder.Find(where,
                     measurement.image,
                     files.skip_missing_images,
                     &image,
                     error)) {
      return false;
    }
    if (image >= 0) {
      points_[place->second].measurements.push_back(
          {image, {measurement.xy[0], measurement.xy[1]}, measurement.sigma});
    }
  }
  for (const SurveyItem& point : points_) {
    const size_t least = point.surveyed.is_check ? 2 : 1;
    if (point.measurements.size() < least) {
      *error = At(files.points, point.surveyed.line) + ": expected a " +
               (point.surveyed.is_check
                    ? "check point with measurements in at least 2 images of "
                    : "point with measurements in ") +
               files.measurements + ", found '" + point.surveyed.id +
               "' with " + std::to_string(point.measurements.size());
      return false;
    }
  }
  error->clear();
  return true;
}

bool Survey::ReadPositions(const SurveyFiles& files,
                           const ProblemOptions& options,
                           const Model& model,
                           std::string* error) {
  if (files.positions.empty()) {
    return true;
  }
  std::vector<SurveyedPoint> surveyed;
  if (!ReadSurveyedPoints(files.positions, &surveyed, error)) {
    return false;
  }
  const ImageFinder finder(model);
  for (SurveyedPoint& position : surveyed) {
    const std::string where = At(files.positions, position.line);
    SurveyItem item;
    if (!finder.Find(where,
                     position.id,
                     files.skip_missing_images,
                     &item.image,
                     error)) {
      return false;
    }
    if (item.image < 0) {
      continue;
    }
    item.surveyed = std::move(position);
    const double* const sigma = item.surveyed.sigma;
    const bool has_zero = std::count(sigma, sigma + 3, 0.0) > 0;
    if (has_zero && !item.surveyed.is_check) {
      if (!item.is_fixed()) {
        *error = where +
                 ": expected SIGMA of a position above 0, or 0 of all three "
                 "coordinates, found 0 of some";
        return false;
      }
      if (options.split_pose) {
        *error = where +
                 ": expected SIGMA of a position above 0 with --split_pose, "
                 "found 0";
        return false;
      }
    }
    positions_.push_back(std::move(item));
  }
  error->clear();
  if (positions_.empty()) {
    *error = files.positions + ": expected an image of the model, found none";
  }
  return !positions_.empty();
}

bool Survey::has_control() const {
  const auto is_control = [](const SurveyItem& item) {
    return !item.surveyed.is_check;
  };
  return std::any_of(points_.begin(), points_.end(), is_control) ||
         std::any_of(positions_.begin(), positions_.end(), is_control);
}

bool Survey::Georeference(GeoreferenceMode mode,
                          Model* model,
                          std::string* error) {
  text_.clear();
  if (!has_control()) {
    return true;
  }
  std::vector<Vector3d> places;
  std::vector<Vector3d> targets;
  int64_t num_points = 0;
  for (const SurveyItem& point : points_) {
    Vector3d place;
    if (!point.surveyed.is_check &&
        Intersect(*model, point.measurements, place.data())) {
      places.push_back(place);
      targets.emplace_back(point.surveyed.xyz);
      ++num_points;
    }
  }
  for (const SurveyItem& position : positions_) {
    if (!position.surveyed.is_check) {
      places.push_back(CenterOf(model->images[position.image]));
      targets.emplace_back(position.surveyed.xyz);
    }
  }
  const auto count = static_cast<Eigen::Index>(places.size());
  Matrix3X from(3, count);
  Matrix3X to(3, count);
  for (Eigen::Index i = 0; i < count; ++i) {
    from.col(i) = places[static_cast<size_t>(i)];
    to.col(i) = targets[static_cast<size_t>(i)];
  }
  const std::string found =
      std::to_string(num_points) + " control points in two images and " +
      std::to_string(count - num_points) + " control positions";
  if (count < 3 || AreOnALine(from) || AreOnALine(to)) {
    *error =
        "the control does not determine the frame of the model: expected "
        "at least 3 control points, each in 2 images, or control "
        "positions that are not on a line, found " +
        found + (count < 3 ? "" : ", all on a line");
    return false;
  }
  const double extent = Rms(Centered(to));
  const double before = Rms(from - to);
  const std::string before_text =
      "RMS distance of the model to " + found + ": " + Text(before);
  if (mode == GEOREFERENCE_NEVER ||
      (mode == GEOREFERENCE_AUTO && before <= kInFrame * extent)) {
    text_ = before_text + ", in " +
            (mode == GEOREFERENCE_AUTO ? "the frame of the control"
                                       : "the model's frame") +
            "; no similarity was applied";
    return true;
  }
  // About the middle of both, since the coordinates of maps are large.
  const Vector3d middle = to.rowwise().mean();
  const Eigen::Matrix4d similarity =
      Eigen::umeyama(from, to.colwise() - middle, /*with_scaling=*/true);
  const Matrix3d scaled = similarity.topLeftCorner<3, 3>();
  const double scale = std::cbrt(scaled.determinant());
  const Eigen::Quaterniond rotation(Matrix3d(scaled / scale));
  const Vector3d shift = similarity.topRightCorner<3, 1>();
  for (Point3D& point : model->points) {
    Eigen::Map<Vector3d> xyz(point.xyz);
    xyz = (scaled * xyz + shift + middle).eval();
  }
  for (Image& image : model->images) {
    // s (R_c X + t) = R_c R' (X' - T) + s t
    const Eigen::Quaterniond turned = Rotation(image) * rotation.conjugate();
    const Vector3d translation =
        scale * Vector3d(image.pose[4], image.pose[5], image.pose[6]) -
        turned * (shift + middle);
    image.pose[0] = turned.x();
    image.pose[1] = turned.y();
    image.pose[2] = turned.z();
    image.pose[3] = turned.w();
    std::copy_n(translation.data(), 3, image.pose + 4);
  }
  const Matrix3X moved = (scaled * from).colwise() + (shift + middle);
  text_ = before_text + "; a similarity of scale " + Text(scale) +
          " brought the model into the frame of the control, RMS distance " +
          Text(Rms(moved - to));
  return true;
}

void Survey::SetStart(const double* origin, const Model& model) {
  for (int i = 0; i < 3; ++i) {
    origin_[i] = origin == nullptr ? 0.0 : origin[i];
  }
  for (auto* items : {&points_, &positions_}) {
    for (SurveyItem& item : *items) {
      for (int i = 0; i < 3; ++i) {
        item.given[i] = item.surveyed.xyz[i] - origin_[i];
      }
      std::copy_n(item.given, 3, item.xyz);
    }
  }
  for (SurveyItem& point : points_) {
    double xyz[3];
    if (!Intersect(model, point.measurements, xyz)) {
      continue;
    }
    for (int i = 0; i < 3; ++i) {
      if (point.surveyed.is_check || point.surveyed.sigma[i] > 0.0) {
        point.xyz[i] = xyz[i];
      }
    }
  }
}

void Survey::AddTo(const ProblemOptions& options,
                   Model* model,
                   ceres::Problem* problem) {
  for (SurveyItem& point : points_) {
    if (point.surveyed.is_check) {
      continue;
    }
    for (const Measurement& measurement : point.measurements) {
      Image& image = model->images[measurement.image];
      Camera& camera = model->cameras[image.camera];
      problem->AddResidualBlock(
          MakeCost(camera, measurement, options.split_pose).release(),
          nullptr,
          BlocksOf(image.pose, point.xyz, camera.params, options.split_pose));
    }
    if (point.is_fixed()) {
      problem->SetParameterBlockConstant(point.xyz);
      continue;
    }
    using Error = WhitenedError<PointPrior>;
    auto* const error = new Error();
    std::copy_n(point.given, 3, error->position);
    SetWeights(point.surveyed.sigma, error->sqrt_information);
    problem->AddResidualBlock(
        new CostFunctionFor<ceres::AutoDiffCostFunction, Error>(error),
        nullptr,
        point.xyz);
    std::vector<int> fixed;
    for (int i = 0; i < 3; ++i) {
      if (point.surveyed.sigma[i] == 0.0) {
        fixed.push_back(i);
      }
    }
    if (!fixed.empty()) {
      problem->SetManifold(point.xyz, new ceres::SubsetManifold(3, fixed));
    }
  }
  for (const SurveyItem& position : positions_) {
    if (position.surveyed.is_check) {
      continue;
    }
    double* const pose = model->images[position.image].pose;
    if (position.is_fixed()) {
      auto* const rotation = new RotationAboutCenter();
      std::copy_n(position.given, 3, rotation->center);
      const double zero[3] = {0.0, 0.0, 0.0};
      double moved[7];
      rotation->Plus(pose, zero, moved);
      std::copy_n(moved + 4, 3, pose + 4);
      problem->SetManifold(
          pose,
          new ceres::AutoDiffManifold<RotationAboutCenter, 7, 3>(rotation));
      continue;
    }
    using Error = WhitenedError<PositionPrior<EigenQuaternion>>;
    auto* const error = new Error();
    std::copy_n(position.given, 3, error->position);
    SetWeights(position.surveyed.sigma, error->sqrt_information);
    if (options.split_pose) {
      problem->AddResidualBlock(
          new CostFunctionFor<ceres::AutoDiffCostFunction,
                              Error,
                              Error::SplitBlockSizes>(error),
          nullptr,
          pose,
          pose + 4);
    } else {
      problem->AddResidualBlock(
          new CostFunctionFor<ceres::AutoDiffCostFunction, Error>(error),
          nullptr,
          pose);
    }
  }
}

std::vector<double*> Survey::ControlBlocks() {
  std::vector<double*> blocks;
  for (SurveyItem& point : points_) {
    if (!point.surveyed.is_check) {
      blocks.push_back(point.xyz);
    }
  }
  return blocks;
}

void Survey::SetResult(const Model& model) {
  for (SurveyItem& position : positions_) {
    const Vector3d center = CenterOf(model.images[position.image]);
    std::copy_n(center.data(), 3, position.xyz);
  }
  for (SurveyItem& point : points_) {
    if (point.surveyed.is_check &&
        !Intersect(model, point.measurements, point.xyz)) {
      std::fill_n(point.xyz, 3, SurveyItem::kNone);
    }
    double sum = 0.0;
    for (const Measurement& measurement : point.measurements) {
      const Image& image = model.images[measurement.image];
      const Camera& camera = model.cameras[image.camera];
      Measurement in_pixels = measurement;
      in_pixels.sigma = 1.0;
      double residuals[2] = {SurveyItem::kNone, SurveyItem::kNone};
      MakeCost(camera, in_pixels, /*split_pose=*/false)
          ->Evaluate(BlocksOf<const double>(
                         image.pose, point.xyz, camera.params, false)
                         .data(),
                     residuals,
                     nullptr);
      sum += residuals[0] * residuals[0] + residuals[1] * residuals[1];
    }
    point.rms_in_pixels =
        std::sqrt(sum / static_cast<double>(point.measurements.size()));
  }
}

std::vector<std::pair<const double*, const double*>> Survey::CovariancePairs(
    const ProblemOptions& options,
    const Model& model,
    const ceres::Problem& problem) const {
  std::set<std::pair<const double*, const double*>> pairs;
  for (const SurveyItem& point : points_) {
    if (!point.surveyed.is_check) {
      pairs.emplace(point.xyz, point.xyz);
      continue;
    }
    if (!point.has_result()) {
      continue;
    }
    const CheckPointFunction function(model, point, options.split_pose);
    const auto& blocks = function.blocks();
    for (size_t i = 0; i < blocks.size(); ++i) {
      for (size_t j = 0; j <= i; ++j) {
        if (problem.HasParameterBlock(blocks[i]) &&
            problem.HasParameterBlock(blocks[j])) {
          pairs.emplace(blocks[i], blocks[j]);
        }
      }
    }
  }
  return {pairs.begin(), pairs.end()};
}

bool Survey::SetStandardDeviations(const ProblemOptions& options,
                                   const Model& model,
                                   const Covariance& covariance) {
  const auto set = [](const Matrix3d& matrix, SurveyItem* item) {
    for (int i = 0; i < 3; ++i) {
      item->std_dev[i] = std::sqrt(matrix(i, i));
    }
  };
  for (SurveyItem& point : points_) {
    Matrix3d matrix;
    if (!point.has_result()) {
      continue;
    }
    if (!point.surveyed.is_check) {
      if (!covariance.GetCovarianceBlock(point.xyz, point.xyz, matrix.data())) {
        return false;
      }
    } else {
      const CheckPointFunction function(model, point, options.split_pose);
      if (!covariance.GetCovarianceOfFunction(
              function, function.blocks(), matrix.data())) {
        return false;
      }
      matrix += covariance.summary().variance_factor * function.OwnCovariance();
    }
    set(matrix, &point);
  }
  // The covariance of a prior's residual is that of the position.
  using Position = PositionPrior<EigenQuaternion>;
  const CostFunctionFor<ceres::AutoDiffCostFunction, Position> whole(
      new Position());
  const CostFunctionFor<ceres::AutoDiffCostFunction,
                        Position,
                        Position::SplitBlockSizes>
      split(new Position());
  for (SurveyItem& position : positions_) {
    const double* const pose = model.images[position.image].pose;
    Matrix3d matrix;
    if (!(options.split_pose ? covariance.GetCovarianceOfFunction(
                                   split, {pose, pose + 4}, matrix.data())
                             : covariance.GetCovarianceOfFunction(
                                   whole, {pose}, matrix.data()))) {
      return false;
    }
    set(matrix, &position);
  }
  return true;
}

}  // namespace ceres_ext::colmap
