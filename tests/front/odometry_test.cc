// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Windows of simulated odometry, whose truth a solve finds, on the host and on
// a device, real or emulated.

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "Eigen/Core"
#include "Eigen/Geometry"
#include "ceres/ceres.h"
#include "ceres_ext/odometry_cost_functions.h"
#include "ceres_ext/solve.h"
#include "gtest/gtest.h"
#include "problem_io/inertial_trajectory.h"
#include "tests/common/has_device.h"

namespace ceres_ext {
namespace {

using PoseManifold = ceres::ProductManifold<ceres::EigenQuaternionManifold,
                                            ceres::EuclideanManifold<3>>;
using Pose = std::array<double, 7>;
using Speed = std::array<double, 9>;
using Eigen::Vector2d;
using Eigen::Vector3d;

constexpr double kBias[6] = {0.01, -0.02, 0.015, 0.1, -0.2, 0.05};
constexpr InertialNoise kNoise = {2e-4, 2e-3, 2e-5, 3e-4};
// Seconds between keyframes, and the steps of the samples there.
constexpr double kInterval = 0.2;
constexpr int kSteps = 40;
// The images are that late, in seconds.
constexpr double kOffset = 0.005;
constexpr double kPixel = 1.0 / 460;

Pose PoseOf(const Eigen::Quaterniond& q, const Vector3d& p) {
  return {q.x(), q.y(), q.z(), q.w(), p[0], p[1], p[2]};
}

Eigen::Isometry3d Transform(const Pose& pose) {
  return Eigen::Translation3d(Eigen::Map<const Vector3d>(&pose[4])) *
         Eigen::Map<const Eigen::Quaterniond>(pose.data());
}

Pose Moved(const Pose& pose, double size, std::mt19937* generator) {
  std::normal_distribution<double> normal(0.0, size);
  double delta[6];
  for (double& d : delta) {
    d = normal(*generator);
  }
  Pose moved;
  PoseManifold().Plus(pose.data(), delta, moved.data());
  return moved;
}

// W with W'W = C^-1 for a diagonal C.
template <typename Error>
WhitenedError<Error> Whitened(const Error& error, double sigma) {
  WhitenedError<Error> whitened{error, {}};
  for (int i = 0; i < Error::kNumResiduals; ++i) {
    whitened.sqrt_information[i * (Error::kNumResiduals + 1)] = 1.0 / sigma;
  }
  return whitened;
}

// Keyframes with inertial rows between neighbours.
struct Window {
  // generator: of the noise, or null for none. The increments are computed with
  // biases that are wrong by bias_error of the true ones.
  Window(int num_keyframes, double bias_error, std::mt19937* generator) {
    double bias[6];
    std::copy_n(kBias, 6, bias);
    poses.resize(num_keyframes);
    speeds.resize(num_keyframes);
    for (int i = 0; i < num_keyframes; ++i) {
      truth.emplace_back(i * kInterval);
      poses[i] = truth[i].Pose();
      speeds[i] = truth[i].Speed(bias);
      problem.AddParameterBlock(poses[i].data(), 7, new PoseManifold());
      problem.AddParameterBlock(speeds[i].data(), 9);
      if (i + 1 == num_keyframes) {
        break;
      }
      double integrated_with[6];
      for (int k = 0; k < 6; ++k) {
        integrated_with[k] = (1.0 + bias_error) * bias[k];
      }
      const double begin = i * kInterval;
      const auto samples = SimulateSamples(
          begin, kInterval / kSteps, kSteps + 1, kNoise, generator, bias);
      Preintegration increment(kNoise, integrated_with);
      std::string error;
      EXPECT_TRUE(increment.AddSamples(
          kSteps + 1, samples.data(), begin, samples.back().time, &error))
          << error;
      InertialError<EigenQuaternion> row;
      EXPECT_TRUE(row.Set(increment, kGravity, &error)) << error;
      problem.AddResidualBlock(new InertialCost(row),
                               nullptr,
                               poses[i].data(),
                               speeds[i].data(),
                               poses[i + 1].data(),
                               speeds[i + 1].data());
    }
    true_speeds = speeds;
  }

  // Moves all blocks that may vary.
  virtual void Disturb(double size, std::mt19937* generator) {
    std::normal_distribution<double> normal;
    for (size_t i = 0; i < poses.size(); ++i) {
      if (!problem.IsParameterBlockConstant(poses[i].data())) {
        poses[i] = Moved(poses[i], size, generator);
      }
      if (!problem.IsParameterBlockConstant(speeds[i].data())) {
        for (double& value : speeds[i]) {
          value += size * normal(*generator);
        }
      }
    }
  }

  struct Errors {
    double position = 0.0;
    double rotation = 0.0;
    double velocity = 0.0;
    double bias = 0.0;
  };
  // The largest of all keyframes.
  Errors LargestErrors() const {
    Errors errors;
    for (size_t i = 0; i < poses.size(); ++i) {
      const Eigen::Map<const Eigen::Quaterniond> q(poses[i].data());
      const Eigen::Map<const Vector3d> p(&poses[i][4]);
      errors.position =
          std::max(errors.position, (p - truth[i].position).norm());
      errors.rotation =
          std::max(errors.rotation, q.angularDistance(truth[i].rotation));
      for (int k = 0; k < 9; ++k) {
        double* const of = k < 3 ? &errors.velocity : &errors.bias;
        *of = std::max(*of, std::abs(speeds[i][k] - true_speeds[i][k]));
      }
    }
    return errors;
  }
  virtual ~Window() = default;

  std::vector<TrueState> truth;
  std::vector<Pose> poses;
  std::vector<Speed> speeds;
  std::vector<Speed> true_speeds;
  ceres::Problem problem;
};

// The same with two cameras that see points, and a GNSS antenna.
struct VisualWindow : Window {
  VisualWindow(int num_keyframes, int num_points, std::mt19937* generator)
      : Window(num_keyframes, 0.1, generator), noise(generator) {
    // Cameras look along the body's y axis.
    const Eigen::Quaterniond forward(
        Eigen::AngleAxisd(-0.5 * M_PI, Vector3d::UnitX()));
    true_cameras = {PoseOf(forward, Vector3d(0.05, 0.02, -0.01)),
                    PoseOf(forward, Vector3d(0.25, 0.03, -0.02))};
    cameras = true_cameras;
    depths.reserve(num_points);
    std::mt19937 scene(5);
    for (int n = 0; n < num_points; ++n) {
      AddPoint(&scene);
    }
    for (size_t c = 0; c < 2; ++c) {
      problem.SetManifold(cameras[c].data(), new PoseManifold());
    }
    for (size_t i = 0; i < poses.size(); ++i) {
      const Vector3d l(true_antenna.data());
      const Vector3d at = truth[i].rotation * l + truth[i].position +
                          0.02 * Vector3d(Draw(), Draw(), Draw());
      problem.AddResidualBlock(
          new GnssPositionCost(Whitened(
              GnssPositionError<EigenQuaternion>{{at[0], at[1], at[2]}}, 0.02)),
          nullptr,
          poses[i].data(),
          antenna.data());
    }
    SpeedAndBiasPrior prior{};
    for (int k = 0; k < 9; ++k) {
      prior.measured[k] = speeds[0][k] + 0.02 * Draw();
    }
    problem.AddResidualBlock(new SpeedAndBiasPriorCost(Whitened(prior, 0.02)),
                             nullptr,
                             speeds[0].data());
    problem.SetParameterBlockConstant(poses[0].data());
    problem.SetParameterBlockConstant(antenna.data());
  }

  void Disturb(double size, std::mt19937* generator) override {
    Window::Disturb(size, generator);
    std::normal_distribution<double> normal;
    for (Pose& camera : cameras) {
      camera = Moved(camera, 0.2 * size, generator);
    }
    for (double& depth : depths) {
      depth *= std::exp(3 * size * normal(*generator));
    }
    offset = 0.0;
  }

  double Draw() {
    return noise == nullptr ? 0.0 : std::normal_distribution<double>()(*noise);
  }

  // The point in the frame of camera c.
  Vector3d See(const TrueState& state, int c, const Vector3d& point) const {
    const Vector3d in_body =
        state.rotation.conjugate() * (point - state.position);
    return Transform(true_cameras[c]).inverse() * in_body;
  }

  // The image and its velocity, whose line meets the image of keyframe i at
  // its time, in front of the camera.
  bool Measure(int i, int c, const Vector3d& point, double* xy, double* speed) {
    const Vector3d at_pose = See(truth[i], c, point);
    const Vector3d late = See(TrueState(i * kInterval + kOffset), c, point);
    const Vector2d image = late.hnormalized();
    const Vector2d velocity = (image - at_pose.hnormalized().eval()) / kOffset;
    for (int k = 0; k < 2; ++k) {
      xy[k] = image[k] + kPixel * Draw();
      speed[k] = velocity[k];
    }
    return at_pose[2] > 0.5 && image.cwiseAbs().maxCoeff() < 1.0;
  }

  void AddPoint(std::mt19937* scene) {
    std::uniform_real_distribution<double> uniform(-0.5, 0.5);
    const int n = static_cast<int>(poses.size());
    const int anchor = static_cast<int>((0.5 + uniform(*scene)) * (n - 2));
    const double depth = 8.0 + 8.0 * uniform(*scene);
    const Vector3d ray(uniform(*scene), uniform(*scene), 1.0);
    const Vector3d point =
        truth[anchor].rotation * (Transform(true_cameras[0]) * (depth * ray)) +
        truth[anchor].position;
    depths.push_back(1.0 / depth);
    true_depths.push_back(1.0 / depth);
    // An anchor is a measurement without an error: its ray is the point's.
    std::mt19937* const kept = noise;
    noise = nullptr;
    double xy[2];
    double speed[2];
    EXPECT_TRUE(Measure(anchor, 0, point, xy, speed));
    noise = kept;
    const auto set = [&](auto* error) {
      std::copy_n(xy, 2, error->anchor);
      std::copy_n(speed, 2, error->anchor_velocity);
      error->weight = 1.0 / kPixel;
    };
    for (int j = anchor; j < n; ++j) {
      if (j == anchor) {
        AnchorStereoInverseDepthError<EigenQuaternion> error;
        set(&error);
        if (Measure(j, 1, point, error.image, error.velocity)) {
          problem.AddResidualBlock(new AnchorStereoInverseDepthCost(error),
                                   nullptr,
                                   cameras[0].data(),
                                   cameras[1].data(),
                                   &depths.back(),
                                   &offset);
        }
        continue;
      }
      InverseDepthError<EigenQuaternion> error;
      set(&error);
      if (Measure(j, 0, point, error.image, error.velocity)) {
        problem.AddResidualBlock(new InverseDepthCost(error),
                                 nullptr,
                                 poses[anchor].data(),
                                 poses[j].data(),
                                 cameras[0].data(),
                                 &depths.back(),
                                 &offset);
      }
      StereoInverseDepthError<EigenQuaternion> stereo;
      set(&stereo);
      if (Measure(j, 1, point, stereo.image, stereo.velocity)) {
        problem.AddResidualBlock(new StereoInverseDepthCost(stereo),
                                 nullptr,
                                 poses[anchor].data(),
                                 poses[j].data(),
                                 cameras[0].data(),
                                 cameras[1].data(),
                                 &depths.back(),
                                 &offset);
      }
    }
  }

  std::mt19937* noise;
  std::array<Pose, 2> true_cameras;
  std::array<Pose, 2> cameras;
  std::vector<double> depths;
  std::vector<double> true_depths;
  double offset = kOffset;
  std::array<double, 3> true_antenna = {-0.3, 0.1, 0.4};
  std::array<double, 3> antenna = true_antenna;
};

Summary SolveOn(DeviceType device,
                int max_num_iterations,
                ceres::Problem* problem) {
  ceres::Solver::Options options;
  options.linear_solver_type = ceres::DENSE_SCHUR;
  options.max_num_iterations = max_num_iterations;
  options.function_tolerance = 1e-14;
  options.gradient_tolerance = 1e-14;
  options.parameter_tolerance = 1e-14;
  options.logging_type = ceres::SILENT;
  Options ext_options;
  ext_options.device = device;
  ext_options.fallback = FALLBACK_REFUSE;
  Summary summary;
  Solve(options, ext_options, problem, &summary);
  EXPECT_TRUE(summary.IsSolutionUsable()) << summary.message;
  EXPECT_EQ(summary.path, PATH_FULL) << summary.path_reason;
  return summary;
}

// Batches have the cost of Ceres, row by row: sums of n rows of n_r squares.
void ExpectCostOfCeres(DeviceType device, ceres::Problem* problem) {
  double cost = 0.0;
  ASSERT_TRUE(problem->Evaluate({}, &cost, nullptr, nullptr, nullptr));
  const Summary summary = SolveOn(device, 0, problem);
  // Residuals of 1e4 that are differences of values 1e4 times larger.
  EXPECT_NEAR(summary.initial_cost, cost, 1e-11 * cost);
}

std::vector<DeviceType> Devices() {
  std::vector<DeviceType> devices;
  for (const DeviceType device : kDevices) {
    if (device == DEVICE_HOST || HasDevice()) {
      devices.push_back(device);
    }
  }
  return devices;
}

// Inertial rows alone and a constant first keyframe: dead reckoning, with a
// correction of all of the biases in first order.
TEST(Odometry, InertialRowsFindTheTrajectory) {
  for (const DeviceType device : Devices()) {
    Window window(11, -1.0, nullptr);
    window.problem.SetParameterBlockConstant(window.poses[0].data());
    window.problem.SetParameterBlockConstant(window.speeds[0].data());
    std::mt19937 generator(3);
    window.Disturb(0.05, &generator);
    ExpectCostOfCeres(device, &window.problem);
    const Summary summary = SolveOn(device, 50, &window.problem);
    EXPECT_LT(summary.final_cost, 1e-12);
    // The second order of a bias of 0.03 rad/s times 0.2 s turns forces of 10
    // by 2e-5, which is 4e-5 m/s an interval, 4e-4 m/s in ten and at most 8e-4
    // m in two seconds, more than the second order of 5 ms steps.
    const Window::Errors errors = window.LargestErrors();
    EXPECT_LT(errors.position, 8e-4);
    EXPECT_LT(errors.rotation, 2e-4);
    EXPECT_LT(errors.velocity, 4e-4);
    EXPECT_LT(errors.bias, 1e-9);
  }
}

// Without noise only the errors of the increments are left, 1e-5 m/s and less.
// Directions of cameras and biases that the window hardly sees make 1e-3 of
// them at most.
TEST(Odometry, WindowsFindTheTruth) {
  for (const DeviceType device : Devices()) {
    VisualWindow window(8, 40, nullptr);
    std::mt19937 generator(3);
    window.Disturb(0.02, &generator);
    ExpectCostOfCeres(device, &window.problem);
    const Summary summary = SolveOn(device, 100, &window.problem);
    const Window::Errors errors = window.LargestErrors();
    EXPECT_LT(summary.final_cost, 1e-2);
    EXPECT_LT(errors.position, 1e-3);
    EXPECT_LT(errors.rotation, 1e-3);
    EXPECT_LT(errors.velocity, 1e-3);
    EXPECT_LT(errors.bias, 1e-3);
    EXPECT_NEAR(window.offset, kOffset, 1e-4);
    for (size_t n = 0; n < window.depths.size(); ++n) {
      EXPECT_NEAR(window.depths[n] / window.true_depths[n], 1.0, 1e-3);
    }
    for (int c = 0; c < 2; ++c) {
      for (int k = 0; k < 7; ++k) {
        EXPECT_NEAR(window.cameras[c][k], window.true_cameras[c][k], 1e-3);
      }
    }
  }
}

// With noise twice the cost is the sum of the squares of as many normal numbers
// as the window is redundant by.
TEST(Odometry, CostsAreThoseOfTheNoise) {
  for (const DeviceType device : Devices()) {
    double sum = 0.0;
    int redundancy = 0;
    for (unsigned seed = 1; seed <= 4; ++seed) {
      std::mt19937 generator(seed);
      VisualWindow window(8, 40, &generator);
      const Summary summary = SolveOn(device, 100, &window.problem);
      sum += 2 * summary.final_cost;
      redundancy +=
          summary.num_residuals - summary.num_effective_parameters_reduced;
      const Window::Errors errors = window.LargestErrors();
      EXPECT_LT(errors.position, 0.1);
      EXPECT_LT(errors.rotation, 0.02);
    }
    EXPECT_NEAR(sum / redundancy, 1.0, 4 * std::sqrt(2.0 / redundancy));
  }
}

// A body on a plane whose tilts and heights two antennas alone would find less
// well: poses follow from positions and the plane.
TEST(Odometry, PlanarMotionHoldsTiltAndHeight) {
  for (const DeviceType device : Devices()) {
    ceres::Problem problem;
    std::vector<Pose> poses(10);
    std::vector<Pose> truth(10);
    double antennas[2][3] = {{0.5, 0.0, 1.0}, {-0.5, 0.0, 1.0}};
    std::mt19937 generator(9);
    const Vector3d axis(0.0, 0.0, 1.0);
    for (int i = 0; i < 10; ++i) {
      const Eigen::Quaterniond q(Eigen::AngleAxisd(0.3 * i, axis));
      const Vector3d p(1.0 * i, std::sin(0.5 * i), 0.7);
      truth[i] = PoseOf(q, p);
      poses[i] = Moved(truth[i], 0.1, &generator);
      problem.AddParameterBlock(poses[i].data(), 7, new PoseManifold());
      // The wheels are 0.2 below the body, on the plane z = 0.5.
      const PlanarMotionError<EigenQuaternion> planar = {
          {{1.0, 0.0, 0.0}, {0.0, 1.0, 0.0}},
          {0.0, 0.0, -0.2},
          {0.0, 0.0, 1.0},
          0.5};
      problem.AddResidualBlock(new PlanarMotionCost(Whitened(planar, 1e-3)),
                               nullptr,
                               poses[i].data());
      for (double* antenna : antennas) {
        const Vector3d at = q * Vector3d(antenna) + p;
        problem.AddResidualBlock(
            new GnssPositionCost(Whitened(
                GnssPositionError<EigenQuaternion>{{at[0], at[1], at[2]}},
                0.01)),
            nullptr,
            poses[i].data(),
            antenna);
      }
    }
    for (double* antenna : antennas) {
      problem.SetParameterBlockConstant(antenna);
    }
    const Summary summary = SolveOn(device, 50, &problem);
    EXPECT_LT(summary.final_cost, 1e-20);
    for (int i = 0; i < 10; ++i) {
      // A cost of 1e-20 is errors of 1.4e-10 in units of 1e-2.
      const double sign = poses[i][3] * truth[i][3] < 0 ? -1.0 : 1.0;
      for (int k = 0; k < 7; ++k) {
        EXPECT_NEAR(poses[i][k], (k < 4 ? sign : 1.0) * truth[i][k], 1e-11)
            << i << " " << k;
      }
    }
  }
}

}  // namespace
}  // namespace ceres_ext
