// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Surveyors' input: the readers of its files, control against a problem written
// by hand, and the frame of a generated scene against its truth.

#include "examples/colmap/survey.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "Eigen/Core"
#include "Eigen/Geometry"
#include "ceres/autodiff_cost_function.h"
#include "ceres/rotation.h"
#include "ceres_ext/photogrammetry.h"
#include "ceres_ext/solve.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "problem_io/survey_reader.h"
#include "tests/bal/bal_test_util.h"
#include "tests/bal/refusals.h"
#include "tests/colmap/colmap_test_util.h"

namespace ceres_ext::colmap {
namespace {

using bal::TempPath;
using Eigen::Vector3d;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A file that is removed with the object.
class TempFile {
 public:
  TempFile(const std::string& name, const std::string& text)
      : path_(TempPath(name)) {
    std::ofstream(path_, std::ios::binary) << text;
  }
  ~TempFile() { std::remove(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

TEST(SurveyReader, ReadsCommasTabsAndSpaces) {
  const TempFile file("points.txt",
                      "\xef\xbb\xbf# a comment\r\n"
                      "\r\n"
                      "a 1 2.5 -3e2 0.1\r\n"
                      "b b, 1,2 , 3 ,0.1, 0.2 # two\n"
                      "c c\t1\t2\t\t3\t0.1\t0\t0.3\tcheck\n"
                      "#d 1 2 3 1\n"
                      "e#1 7 8 9 0 control");
  std::vector<SurveyedPoint> points;
  std::string error;
  ASSERT_TRUE(ReadSurveyedPoints(file.path(), &points, &error)) << error;
  ASSERT_EQ(points.size(), 4u);
  EXPECT_EQ(points[0].id, "a");
  EXPECT_THAT(points[0].xyz, ElementsAre(1.0, 2.5, -300.0));
  EXPECT_THAT(points[0].sigma, ElementsAre(0.1, 0.1, 0.1));
  EXPECT_FALSE(points[0].is_check);
  EXPECT_EQ(points[0].line, 3);
  EXPECT_EQ(points[1].id, "b b");
  EXPECT_THAT(points[1].sigma, ElementsAre(0.1, 0.1, 0.2));
  EXPECT_EQ(points[2].id, "c c");
  EXPECT_THAT(points[2].xyz, ElementsAre(1.0, 2.0, 3.0));
  EXPECT_THAT(points[2].sigma, ElementsAre(0.1, 0.0, 0.3));
  EXPECT_TRUE(points[2].is_check);
  EXPECT_EQ(points[3].id, "e#1");
  EXPECT_EQ(points[3].line, 7);
  const TempFile measured("measured.txt", "a x.jpg 1 2\nb b,y 1.jpg,3,4,0.5\n");
  std::vector<SurveyMeasurement> measurements;
  ASSERT_TRUE(ReadSurveyMeasurements(measured.path(), &measurements, &error))
      << error;
  ASSERT_EQ(measurements.size(), 2u);
  EXPECT_EQ(measurements[0].sigma, 1.0);
  EXPECT_EQ(measurements[1].image, "y 1.jpg");
  EXPECT_THAT(measurements[1].xy, ElementsAre(3.0, 4.0));
  EXPECT_EQ(measurements[1].sigma, 0.5);
}

TEST(SurveyReader, NamesLineAndExpectation) {
  const auto expect_refused = [](const char* section, auto read, auto items) {
    for (const auto& row : bal::Refusals(section)) {
      const TempFile file("file.txt", row[0]);
      std::string error;
      EXPECT_FALSE(read(file.path(), &items, &error)) << row[0];
      EXPECT_THAT(error, HasSubstr(file.path() + row[1]));
    }
  };
  expect_refused(
      "surveyed points", ReadSurveyedPoints, std::vector<SurveyedPoint>());
  expect_refused("survey measurements",
                 ReadSurveyMeasurements,
                 std::vector<SurveyMeasurement>());
  std::vector<SurveyedPoint> points;
  std::string error;
  EXPECT_FALSE(ReadSurveyedPoints("/no/such/file", &points, &error));
  EXPECT_THAT(error, HasSubstr("/no/such/file: expected a readable file"));
}

// A frame of a map: x' = s R x + t.
struct Frame {
  double scale;
  Eigen::Quaterniond rotation;
  Vector3d translation;
  Vector3d operator()(const Vector3d& x) const {
    return scale * (rotation * x) + translation;
  }
};

Frame MapFrame(double far) {
  return {3.7,
          Eigen::Quaterniond(0.6, -0.2, 0.7, 0.3).normalized(),
          far * Vector3d(512345.6, 5403210.9, 312.4)};
}

std::string Line(const std::string& id, const Vector3d& x, const char* rest) {
  char text[200];
  std::snprintf(text,
                sizeof(text),
                "%s %.9f %.9f %.9f %s\n",
                id.c_str(),
                x[0],
                x[1],
                x[2],
                rest);
  return text;
}

// A scene with its truth, and points surveyed in it. Errors have the standard
// deviations that the files say: a pixel, and 0.05 or 0.1 of the map.
class Scene {
 public:
  Scene(const std::string& camera_model, const Frame& frame)
      : frame_(frame), scene_(bal::MakeScene(Options())) {
    truth = MakeModel(scene_, camera_model, 1, VALUES_OF_TRUTH);
    start = MakeModel(scene_, camera_model, 1, VALUES_AT_START);
    std::mt19937 random(3);
    std::normal_distribution<double> normal;
    std::string points;
    std::string measurements;
    for (size_t p = 20; p < truth.points.size(); p += 40) {
      const Point3D& point = truth.points[p];
      const std::string id = "p" + std::to_string(p);
      const Vector3d x(point.xyz);
      const bool is_check = p % 80 == 20;
      Vector3d given = frame_(x);
      for (int i = 0; i < 3; ++i) {
        given[i] += (i < 2 ? 0.05 : 0.1) * normal(random);
      }
      points += Line(id, given, is_check ? "0.05 0.1 check" : "0.05 0.1");
      for (int64_t k = point.track_begin; k < point.track_end; ++k) {
        const Image& image = truth.images[truth.track_elements[k].image];
        double pixel[2];
        Project(image, x, pixel);
        char text[200];
        std::snprintf(text,
                      sizeof(text),
                      "%s,%s,%.9f,%.9f\n",
                      id.c_str(),
                      image.name.c_str(),
                      pixel[0] + normal(random),
                      pixel[1] + normal(random));
        measurements += text;
      }
    }
    points_text = points;
    measurements_text = measurements;
  }

  Vector3d TrueCenter(size_t image) const {
    const std::vector<double> centers = CameraCenters(truth);
    return frame_(Vector3d(&centers[3 * image]));
  }
  Vector3d TruePoint(size_t point) const {
    return frame_(Vector3d(truth.points[point].xyz));
  }

  Model truth;
  Model start;
  std::string points_text;
  std::string measurements_text;

 private:
  static bal::SyntheticOptions Options() {
    bal::SyntheticOptions options = bal::OptionsOfSize(12, 600, 3600);
    options.pixel_noise = 1.0;
    options.outlier_fraction = 0.0;
    options.drift_rotation = 0.002;
    options.drift_translation = 0.05;
    return options;
  }
  void Project(const Image& image, const Vector3d& x, double* pixel) const {
    const Camera& camera = truth.cameras[image.camera];
    double in_camera[3];
    TransformPoint<EigenQuaternion>(
        image.pose, image.pose + 4, x.data(), in_camera);
    ForEachCameraModel([&](auto model) {
      if (model.kModelId == camera.model->id) {
        ASSERT_TRUE(
            decltype(model)::ImgFromCam(camera.params, in_camera, pixel));
      }
    });
  }

  const Frame frame_;
  const bal::SyntheticProblem scene_;
};

ceres::Solver::Options SolverOptions() {
  ceres::Solver::Options options;
  options.linear_solver_type = ceres::DENSE_SCHUR;
  options.max_num_iterations = 100;
  options.function_tolerance = 1e-14;
  options.gradient_tolerance = 0.0;
  options.parameter_tolerance = 1e-12;
  options.logging_type = ceres::SILENT;
  return options;
}

struct Files {
  explicit Files(const Scene& scene)
      : points("points.txt", scene.points_text),
        measurements("measured.txt", scene.measurements_text) {}
  SurveyFiles Paths() const {
    SurveyFiles files;
    files.points = points.path();
    files.measurements = measurements.path();
    return files;
  }
  TempFile points;
  TempFile measurements;
};

void SolveWith(const ProblemOptions& options, Model* model, Survey* survey) {
  ceres::Problem problem;
  BuildProblem(options, model, &problem);
  survey->AddTo(options, model, &problem);
  ceres_ext::Options ext;
  ext.device = DEVICE_HOST;
  ceres_ext::Summary summary;
  Solve(SolverOptions(), ext, &problem, &summary);
  ASSERT_TRUE(summary.IsSolutionUsable()) << summary.message;
  EXPECT_EQ(summary.path, PATH_FULL) << summary.path_reason;
  survey->SetResult(*model);
}

// The mean of squares of errors divided by their standard deviations. Errors of
// neighbours are correlated; of n independent ones its standard deviation would
// be sqrt(2 / n).
class Normalized {
 public:
  void Add(double error, double std_dev) {
    sum_ += error * error / (std_dev * std_dev);
    ++count_;
  }
  double mean() const { return sum_ / count_; }
  int count() const { return count_; }

 private:
  double sum_ = 0.0;
  int count_ = 0;
};

// From the model's frame, coordinates far from zero or not: cameras, points and
// check points are where the truth is in the frame of the map, within their
// standard deviations, and these are those of the covariance.
TEST(Survey, RecoversTheFrameOfTheMap) {
  for (const bool split_pose : {false, true}) {
    std::vector<double> differences;
    for (const double far : {1.0, 0.0}) {
      SCOPED_TRACE(testing::Message() << split_pose << ", " << far);
      Scene scene("SIMPLE_RADIAL", MapFrame(far));
      const Files files(scene);
      ProblemOptions options;
      options.split_pose = split_pose;
      options.fix_gauge = false;
      Model model = scene.start;
      Survey survey;
      std::string error;
      ASSERT_TRUE(survey.Read(files.Paths(), options, model, &error)) << error;
      ASSERT_TRUE(survey.has_control());
      ASSERT_TRUE(survey.Georeference(GEOREFERENCE_AUTO, &model, &error))
          << error;
      EXPECT_THAT(survey.georeference_text(), HasSubstr("a similarity of"));
      const Vector3d origin = MapFrame(far).translation;
      for (Point3D& point : model.points) {
        Eigen::Map<Vector3d>(point.xyz) -= origin;
      }
      for (Image& image : model.images) {
        MoveOrigin<EigenQuaternion>(origin.data(), image.pose);
      }
      survey.SetStart(origin.data(), model);
      SolveWith(options, &model, &survey);

      ceres::Problem problem;
      BuildProblem(options, &model, &problem);
      survey.AddTo(options, &model, &problem);
      std::vector<std::pair<const double*, const double*>> pairs =
          survey.CovariancePairs(options, model, problem);
      for (const Image& image : model.images) {
        const std::pair<const double*, const double*> of_image[] = {
            {image.pose, image.pose},
            {image.pose + 4, image.pose},
            {image.pose + 4, image.pose + 4}};
        for (int i = 0; i < (split_pose ? 3 : 1); ++i) {
          if (std::count(pairs.begin(), pairs.end(), of_image[i]) == 0) {
            pairs.push_back(of_image[i]);
          }
        }
      }
      for (const Point3D& point : model.points) {
        pairs.emplace_back(point.xyz, point.xyz);
      }
      CovarianceOptions covariance_options;
      covariance_options.scale = COVARIANCE_SCALE_A_POSTERIORI;
      covariance_options.ext.device = DEVICE_HOST;
      Covariance covariance(covariance_options);
      ASSERT_TRUE(covariance.Compute(pairs, &problem)) << covariance.error();
      ASSERT_TRUE(survey.SetStandardDeviations(options, model, covariance));
      EXPECT_EQ(covariance.summary().num_free_directions, 0);
      // The weights are right: variances of one, five standard deviations.
      EXPECT_NEAR(covariance.summary().variance_factor,
                  1.0,
                  5.0 * std::sqrt(2.0 / static_cast<double>(
                                            covariance.summary().redundancy)));

      Normalized of_points;
      for (size_t p = 0; p < model.points.size(); ++p) {
        double block[9];
        ASSERT_TRUE(covariance.GetCovarianceBlock(
            model.points[p].xyz, model.points[p].xyz, block));
        const Vector3d truth = scene.TruePoint(p) - origin;
        for (int i = 0; i < 3; ++i) {
          of_points.Add(model.points[p].xyz[i] - truth[i],
                        std::sqrt(block[4 * i]));
        }
      }
      EXPECT_GT(of_points.mean(), 0.5);
      EXPECT_LT(of_points.mean(), 2.0);
      Normalized of_check;
      Normalized of_control;
      for (const SurveyItem& point : survey.points()) {
        const size_t p = std::stoul(point.surveyed.id.substr(1));
        const Vector3d truth = scene.TruePoint(p) - origin;
        for (int i = 0; i < 3; ++i) {
          ASSERT_GT(point.std_dev[i], 0.0);
          differences.push_back(point.xyz[i] - point.given[i]);
          if (point.surveyed.is_check) {
            of_check.Add(point.xyz[i] - point.given[i],
                         std::hypot(point.std_dev[i], point.surveyed.sigma[i]));
          } else {
            // Smaller than what was given.
            EXPECT_LT(point.std_dev[i], point.surveyed.sigma[i] * 1.05);
            of_control.Add(point.xyz[i] - truth[i], point.std_dev[i]);
          }
        }
      }
      ASSERT_GE(of_check.count(), 18);
      for (const Normalized& of : {of_check, of_control}) {
        // Correlated by threes, so a third counts as independent.
        const double spread = std::sqrt(2.0 / (of.count() / 3.0));
        EXPECT_NEAR(of.mean(), 1.0, 4.0 * spread);
      }
    }
    // The origin costs some nanometres.
    const size_t half = differences.size() / 2;
    for (size_t i = 0; i < half; ++i) {
      EXPECT_NEAR(differences[i], differences[half + i], 1e-6);
    }
  }
}

// A simple camera as its formula says.
struct Projection {
  template <typename T>
  bool operator()(const T* q, const T* t, const T* x, const T* f, T* r) const {
    const T wxyz[4] = {q[3], q[0], q[1], q[2]};
    T p[3];
    ceres::QuaternionRotatePoint(wxyz, x, p);
    r[0] = (f[0] * (p[0] + t[0]) / (p[2] + t[2]) + f[1] - u) / sigma;
    r[1] = (f[0] * (p[1] + t[1]) / (p[2] + t[2]) + f[2] - v) / sigma;
    return true;
  }
  template <typename T>
  bool operator()(const T* pose, const T* x, const T* f, T* r) const {
    return (*this)(pose, pose + 4, x, f, r);
  }
  double u, v, sigma;
};
struct Distance {
  template <typename T>
  bool operator()(const T* x, T* r) const {
    for (int i = 0; i < 3; ++i) {
      r[i] = sigma[i] == 0.0 ? T(0.0) : (x[i] - given[i]) / sigma[i];
    }
    return true;
  }
  double given[3], sigma[3];
};
struct CenterDistance {
  template <typename T>
  bool operator()(const T* pose, T* r) const {
    // |R c + t| weighs the position in the camera's frame, so -R't is needed.
    const T inverse[4] = {pose[3], -pose[0], -pose[1], -pose[2]};
    T center[3];
    ceres::QuaternionRotatePoint(inverse, pose + 4, center);
    for (int i = 0; i < 3; ++i) {
      r[i] = (given[i] + center[i]) / sigma[i];
    }
    return true;
  }
  double given[3], sigma[3];
};

TEST(Survey, WeighsAsWrittenByHand) {
  Scene scene("SIMPLE_PINHOLE",
              {1.0, Eigen::Quaterniond::Identity(), {0, 0, 0}});
  Model model = scene.start;
  // Two images that see a point.
  const Point3D& seen = model.points[0];
  Image* const images[] = {
      &model.images[model.track_elements[seen.track_begin].image],
      &model.images[model.track_elements[seen.track_begin + 1].image]};
  const std::string first = images[0]->name;
  const std::string second = images[1]->name;
  const TempFile points("points.txt",
                        "a 1 2 3 0.1 0.2 0.3\n"
                        "b 4 5 6 0.5 0 0.7\n"
                        "c 0 0 0 1 check\n");
  std::string text;
  for (const char* id : {"a", "b", "c"}) {
    text += std::string(id) + " " + first + " 100 200 0.5\n";
    text += std::string(id) + " " + second + " 300 150\n";
  }
  const TempFile measurements("measured.txt", text);
  const TempFile positions(
      "positions.txt",
      first + " 7 8 9 0.2 0.3 0.4\n" + second + " 1 1 1 1 check\n");
  SurveyFiles files;
  files.points = points.path();
  files.measurements = measurements.path();
  files.positions = positions.path();
  ProblemOptions options;
  options.fix_gauge = false;
  Survey survey;
  std::string error;
  ASSERT_TRUE(survey.Read(files, options, model, &error)) << error;
  survey.SetStart(nullptr, model);
  const std::vector<double*> control = survey.ControlBlocks();
  ASSERT_EQ(control.size(), 2u);
  EXPECT_EQ(control[1][1], 5.0);  // fixed
  std::mt19937 random(5);
  for (double* block : control) {
    for (int i = 0; i < 3; ++i) {
      block[i] = seen.xyz[i] + 0.01 * static_cast<double>(random() % 100);
    }
  }

  ceres::Problem ours;
  BuildProblem(options, &model, &ours);
  survey.AddTo(options, &model, &ours);
  ceres::Problem by_hand;
  BuildProblem(options, &model, &by_hand);
  for (double* block : control) {
    for (const int image : {0, 1}) {
      by_hand.AddResidualBlock(
          new ceres::AutoDiffCostFunction<Projection, 2, 7, 3, 3>(
              image == 0 ? new Projection{100.0, 200.0, 0.5}
                         : new Projection{300.0, 150.0, 1.0}),
          nullptr,
          images[image]->pose,
          block,
          model.cameras[0].params);
    }
  }
  by_hand.AddResidualBlock(new ceres::AutoDiffCostFunction<Distance, 3, 3>(
                               new Distance{{1.0, 2.0, 3.0}, {0.1, 0.2, 0.3}}),
                           nullptr,
                           control[0]);
  by_hand.AddResidualBlock(new ceres::AutoDiffCostFunction<Distance, 3, 3>(
                               new Distance{{4.0, 5.0, 6.0}, {0.5, 0.0, 0.7}}),
                           nullptr,
                           control[1]);
  by_hand.SetManifold(control[1], new ceres::SubsetManifold(3, {1}));
  by_hand.AddResidualBlock(
      new ceres::AutoDiffCostFunction<CenterDistance, 3, 7>(
          new CenterDistance{{7.0, 8.0, 9.0}, {0.2, 0.3, 0.4}}),
      nullptr,
      images[0]->pose);
  EXPECT_EQ(ours.NumResiduals(), by_hand.NumResiduals());
  ceres::Problem::EvaluateOptions evaluate;
  by_hand.GetParameterBlocks(&evaluate.parameter_blocks);
  double costs[2];
  std::vector<double> gradients[2];
  ASSERT_TRUE(
      ours.Evaluate(evaluate, &costs[0], nullptr, &gradients[0], nullptr));
  ASSERT_TRUE(
      by_hand.Evaluate(evaluate, &costs[1], nullptr, &gradients[1], nullptr));
  EXPECT_NEAR(costs[0], costs[1], 1e-12 * costs[1]);
  ASSERT_EQ(gradients[0].size(), gradients[1].size());
  double largest = 0.0;
  for (const double value : gradients[1]) {
    largest = std::max(largest, std::abs(value));
  }
  for (size_t i = 0; i < gradients[0].size(); ++i) {
    EXPECT_NEAR(gradients[0][i], gradients[1][i], 1e-12 * largest);
  }
}

// Positions alone, one of them fixed: the model gets to them.
TEST(Survey, HoldsFixedPositions) {
  const Frame frame = MapFrame(0.0);
  Scene scene("SIMPLE_RADIAL", frame);
  Model model = scene.start;
  std::string text;
  for (size_t i = 0; i < model.images.size(); ++i) {
    text += Line(model.images[i].name,
                 scene.TrueCenter(i),
                 i == 2   ? "0"
                 : i == 5 ? "0.1 check"
                          : "0.1");
  }
  const TempFile positions("positions.txt", text);
  SurveyFiles files;
  files.positions = positions.path();
  ProblemOptions options;
  options.fix_gauge = false;
  Survey survey;
  std::string error;
  ASSERT_TRUE(survey.Read(files, options, model, &error)) << error;
  ASSERT_TRUE(survey.Georeference(GEOREFERENCE_ALWAYS, &model, &error))
      << error;
  survey.SetStart(nullptr, model);
  SolveWith(options, &model, &survey);
  const std::vector<double> centers = CameraCenters(model);
  const Vector3d fixed = scene.TrueCenter(2);
  for (int i = 0; i < 3; ++i) {
    EXPECT_NEAR(centers[6 + i], fixed[i], 1e-8);
    EXPECT_NEAR(survey.positions()[5].xyz[i], scene.TrueCenter(5)[i], 0.5);
  }
  // Now the model is there.
  ASSERT_TRUE(survey.Georeference(GEOREFERENCE_AUTO, &model, &error)) << error;
  EXPECT_THAT(survey.georeference_text(),
              HasSubstr("no similarity was applied"));
  EXPECT_EQ(CameraCenters(model), centers);
  options.split_pose = true;
  EXPECT_FALSE(survey.Read(files, options, model, &error));
  EXPECT_THAT(error,
              HasSubstr(":3: expected SIGMA of a position above 0 with"));
}

TEST(Survey, NamesWhatDoesNotFitTheModel) {
  Scene scene("SIMPLE_PINHOLE", MapFrame(0.0));
  Model model = scene.start;
  // An image that sees nothing.
  for (int64_t k = model.images[3].points2d_begin;
       k < model.images[3].points2d_end;
       ++k) {
    model.point_index[k] = -1;
  }
  const std::string first = model.images[0].name;
  const std::string blind = model.images[3].name;
  const std::string point = "a 1 2 3 1\n";
  const std::string seen = "a " + first + " 1 2\n";
  for (const auto& row : bal::Refusals("surveys of a model",
                                       {{"first", first}, {"blind", blind}})) {
    const TempFile points("points.txt", row[0]);
    const TempFile measurements("measured.txt", row[1]);
    const TempFile positions("positions.txt", row[2]);
    SurveyFiles files;
    if (row[2].empty()) {
      files.points = points.path();
      files.measurements = measurements.path();
    } else {
      files.positions = positions.path();
    }
    Survey survey;
    std::string error;
    EXPECT_FALSE(survey.Read(files, {}, model, &error));
    EXPECT_THAT(error, HasSubstr(row[3]));
  }
  // Lines of missing images are ignored if that is wanted.
  const TempFile points("points.txt", point);
  const TempFile measurements("measured.txt", "a no.jpg 1 2\n" + seen);
  SurveyFiles files;
  files.points = points.path();
  files.measurements = measurements.path();
  files.skip_missing_images = true;
  Survey survey;
  std::string error;
  ASSERT_TRUE(survey.Read(files, {}, model, &error)) << error;
  EXPECT_EQ(survey.points()[0].measurements.size(), 1u);
  // One control point in one image does not determine a frame.
  EXPECT_FALSE(survey.Georeference(GEOREFERENCE_AUTO, &model, &error));
  EXPECT_THAT(error,
              HasSubstr("found 0 control points in two images and 0 control "
                        "positions"));
  files.measurements.clear();
  EXPECT_FALSE(survey.Read(files, {}, model, &error));
  EXPECT_EQ(error, "--gcp and --gcp_observations: expected both, found one");
}

TEST(Survey, RefusesControlOnALine) {
  Scene scene("SIMPLE_PINHOLE", MapFrame(0.0));
  Model model = scene.start;
  std::string text;
  for (int i = 0; i < 4; ++i) {
    text += Line(model.images[static_cast<size_t>(i)].name,
                 Vector3d(1.0 + i, 2.0 - 3.0 * i, 5.0 * i),
                 "1");
  }
  const TempFile positions("positions.txt", text);
  SurveyFiles files;
  files.positions = positions.path();
  Survey survey;
  std::string error;
  ASSERT_TRUE(survey.Read(files, {}, model, &error)) << error;
  const std::vector<double> before = CameraCenters(model);
  for (const GeoreferenceMode mode :
       {GEOREFERENCE_AUTO, GEOREFERENCE_ALWAYS, GEOREFERENCE_NEVER}) {
    EXPECT_FALSE(survey.Georeference(mode, &model, &error));
    EXPECT_THAT(error, HasSubstr("4 control positions, all on a line"));
  }
  EXPECT_EQ(CameraCenters(model), before);
}

}  // namespace
}  // namespace ceres_ext::colmap
