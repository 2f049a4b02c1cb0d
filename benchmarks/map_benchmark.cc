// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The problems that surround bundle adjustment where maps are made, as a
// program has them: a ceres::Problem of AutoDiffCostFunctions, with the
// program's own options. By stock Ceres and by this library, in turns.
//
//   map_benchmark --problem=pose --size=2500
//   map_benchmark --problem=rotation --size=1000
//   map_benchmark --problem=position --size=1000
//   map_benchmark --problem=position --size=1000 --cost=model
//   map_benchmark --problem=positions --size=1000 --rows=1500000
//   map_benchmark --problem=bounds --like=ladybug-73
//   map_benchmark --problem=bundle --like=ladybug-73 --strategy=dogleg
//   map_benchmark --problem=windows --size=150 --functions=device
//
// pose: a graph of poses, quaternion and position in one block of 7, on a
// sphere, with loop closures; SPARSE_NORMAL_CHOLESKY.
// robust: the same with Cauchy's loss on the closures, of which 10 % are wrong.
// rotation: averaging of rotations by pairs, of which 3 % are wrong; Huber's
// loss, SPARSE_NORMAL_CHOLESKY.
// position: centres of images and points by directions, a scale of its own in
// each row, which is bounded and first in the ordering; Huber's loss,
// SPARSE_SCHUR, 30 iterations. --cost=model: by DirectionCost.
// positions: the same of --rows directions, which this library alone solves: an
// ArrayProblem of DirectionCost, six rows a point, from 40 images around it.
// bounds: bundle adjustment of BAL's model with f, k1 and k2 between bounds
// that hold some of them, beside the same without bounds; ITERATIVE_SCHUR.
// windows: twelve windows of inertial odometry, of eleven keyframes with speed
// and biases and that many points of inverse depth; Huber's loss, DENSE_SCHUR,
// ten iterations. Their costs, steps and seconds are summed.
//
// A line of JSON per solve: seconds, steps, rejected steps, final cost, the
// device, the method and the reason of the path; bytes that the solver holds on
// its machine, and the most that the process has had in host memory.
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "Eigen/Geometry"
#include "benchmarks/benchmark.h"
#include "ceres/ceres.h"
#include "ceres/rotation.h"
#include "ceres_ext/array_problem.h"
#include "ceres_ext/bal_cost_functions.h"
#include "ceres_ext/device_cost_function.h"
#include "ceres_ext/direction_cost_functions.h"
#include "ceres_ext/solve.h"
#include "gflags/gflags.h"
#include "problem_io/bal_synthetic.h"

DEFINE_string(problem,
              "pose",
              "pose, robust, rotation, position, positions, bounds, bundle or "
              "windows.");
DEFINE_int32(size, 1000, "Poses, rotations, images, or points of a window.");
DEFINE_int64(rows, 1500000, "positions: directions.");
DEFINE_string(functions,
              "autodiff",
              "The cost functions of windows: autodiff, device "
              "(DeviceAutoDiffCostFunction).");
DEFINE_string(cost,
              "functor",
              "position: functor (AutoDiffCostFunction) or model "
              "(DirectionCost).");
DEFINE_string(like,
              "ladybug-73",
              "The BAL problem whose size bounds and bundle have.");
DEFINE_string(solver, "stock,ext", "stock, ext.");
DEFINE_string(settings, "", "Options of this library: name=value,...");
DEFINE_string(strategy, "lm", "lm, dogleg or subspace_dogleg.");
DEFINE_int32(iterations, 0, "Steps at most; 0: what the program has.");
DEFINE_int32(threads, 2, "Threads.");
DEFINE_int32(rounds, 2, "Solves by each solver.");
DEFINE_uint64(seed, 5, "Seed of the random numbers.");

namespace ceres_ext {
namespace {

using Random = std::mt19937_64;
using Vector3 = Eigen::Vector3d;
using Quaternion = Eigen::Quaterniond;

double Normal(Random* random) {
  return std::normal_distribution<double>()(*random);
}
double Uniform(Random* random) {
  return std::uniform_real_distribution<double>(0.0, 1.0)(*random);
}
Vector3 NormalVector(Random* random) {
  const double x = Normal(random);
  const double y = Normal(random);
  return {x, y, Normal(random)};
}
Quaternion Rotation(const Vector3& angle_axis) {
  const double angle = angle_axis.norm();
  return angle == 0.0
             ? Quaternion::Identity()
             : Quaternion(Eigen::AngleAxisd(angle, angle_axis / angle));
}

// Pose b seen from pose a. A pose is a position and a quaternion x, y, z, w.
struct RelativePose {
  static constexpr double kPositionWeight = 20.0;
  static constexpr double kRotationWeight = 100.0;
  Vector3 position;
  Quaternion rotation;

  template <typename T>
  bool operator()(const T* a, const T* b, T* residuals) const {
    using Vector3T = Eigen::Matrix<T, 3, 1>;
    const Eigen::Map<const Vector3T> position_a(a);
    const Eigen::Map<const Vector3T> position_b(b);
    const Eigen::Map<const Eigen::Quaternion<T>> rotation_a(a + 3);
    const Eigen::Map<const Eigen::Quaternion<T>> rotation_b(b + 3);
    const Eigen::Quaternion<T> to_a = rotation_a.conjugate();
    Eigen::Map<Eigen::Matrix<T, 6, 1>> e(residuals);
    e.template head<3>() =
        T(kPositionWeight) *
        (to_a * (position_b - position_a) - position.cast<T>());
    e.template tail<3>() =
        T(2.0 * kRotationWeight) *
        (rotation.conjugate().cast<T>() * (to_a * rotation_b)).vec();
    return true;
  }
};

// Rotation b after the inverse of rotation a.
struct RelativeRotation {
  static constexpr double kWeight = 100.0;
  Eigen::Matrix3d rotation;

  template <typename T>
  bool operator()(const T* a, const T* b, T* residuals) const {
    using Matrix3T = Eigen::Matrix<T, 3, 3>;
    Matrix3T rotation_a;
    Matrix3T rotation_b;
    ceres::AngleAxisToRotationMatrix(a, rotation_a.data());
    ceres::AngleAxisToRotationMatrix(b, rotation_b.data());
    const Matrix3T error =
        rotation.transpose().cast<T>() * (rotation_b * rotation_a.transpose());
    ceres::RotationMatrixToAngleAxis(error.data(), residuals);
    for (int i = 0; i < 3; ++i) {
      residuals[i] *= T(kWeight);
    }
    return true;
  }
};

struct Direction {
  Vector3 direction;

  template <typename T>
  bool operator()(const T* center,
                  const T* point,
                  const T* scale,
                  T* residuals) const {
    for (int i = 0; i < 3; ++i) {
      residuals[i] = T(direction[i]) - scale[0] * (point[i] - center[i]);
    }
    return true;
  }
};

constexpr double kGravity = 9.81;
constexpr double kFrameSeconds = 0.2;

// Pose, speed and biases of two frames. Position, speed and rotation between
// them are integrated. A speed block has the biases of acceleration and turning
// behind the speed.
struct Inertial {
  double position[3];
  double speed[3];
  double rotation[4];

  template <typename T>
  bool operator()(const T* pose_a,
                  const T* speed_a,
                  const T* pose_b,
                  const T* speed_b,
                  T* residuals) const {
    using Vector3T = Eigen::Matrix<T, 3, 1>;
    using QuaternionT = Eigen::Quaternion<T>;
    const Eigen::Map<const Vector3T> p_a(pose_a);
    const Eigen::Map<const Vector3T> p_b(pose_b);
    const Eigen::Map<const QuaternionT> q_a(pose_a + 3);
    const Eigen::Map<const QuaternionT> q_b(pose_b + 3);
    const Eigen::Map<const Vector3T> v_a(speed_a);
    const Eigen::Map<const Vector3T> v_b(speed_b);
    const Eigen::Map<const Vector3T> acceleration_a(speed_a + 3);
    const Eigen::Map<const Vector3T> turning_a(speed_a + 6);
    const Eigen::Map<const Vector3T> acceleration_b(speed_b + 3);
    const Eigen::Map<const Vector3T> turning_b(speed_b + 6);
    const Vector3T gravity(T(0.0), T(0.0), T(kGravity));
    const T dt(kFrameSeconds);
    const T half(0.5);
    const QuaternionT to_a = q_a.conjugate();
    const Vector3T turn = half * dt * turning_a;
    QuaternionT corrected(T(1.0), -turn[0], -turn[1], -turn[2]);
    corrected.normalize();
    corrected = Eigen::Map<const Quaternion>(rotation).cast<T>() * corrected;
    Eigen::Map<Eigen::Matrix<T, 15, 1>> e(residuals);
    e.template segment<3>(0) =
        T(500.0) * (to_a * (p_b - p_a - v_a * dt + half * gravity * dt * dt) -
                    (Eigen::Map<const Vector3>(position).cast<T>() -
                     half * dt * dt * acceleration_a));
    e.template segment<3>(3) =
        T(2000.0) * (corrected.conjugate() * (to_a * q_b)).vec();
    e.template segment<3>(6) =
        T(100.0) *
        (to_a * (v_b - v_a + gravity * dt) -
         (Eigen::Map<const Vector3>(speed).cast<T>() - dt * acceleration_a));
    e.template segment<3>(9) = T(200.0) * (acceleration_b - acceleration_a);
    e.template segment<3>(12) = T(2000.0) * (turning_b - turning_a);
    return true;
  }
};

// A point on the ray of its first image, by the inverse of its depth, in
// another one. camera: its pose on the body.
struct RayError {
  double first[2];
  double other[2];

  template <typename T>
  bool operator()(const T* pose_a,
                  const T* pose_b,
                  const T* camera,
                  const T* inverse_depth,
                  T* residuals) const {
    using Vector3T = Eigen::Matrix<T, 3, 1>;
    const Eigen::Map<const Vector3T> p_a(pose_a);
    const Eigen::Map<const Vector3T> p_b(pose_b);
    const Eigen::Map<const Vector3T> p_c(camera);
    const Eigen::Map<const Eigen::Quaternion<T>> q_a(pose_a + 3);
    const Eigen::Map<const Eigen::Quaternion<T>> q_b(pose_b + 3);
    const Eigen::Map<const Eigen::Quaternion<T>> q_c(camera + 3);
    const Vector3T ray = {T(first[0]), T(first[1]), T(1.0)};
    const Vector3T world = q_a * (q_c * (ray / inverse_depth[0]) + p_c) + p_a;
    const Vector3T seen =
        q_c.conjugate() * (q_b.conjugate() * (world - p_b) - p_c);
    for (int i = 0; i < 2; ++i) {
      residuals[i] = T(460.0 / 1.5) * (seen[i] / seen[2] - T(other[i]));
    }
    return true;
  }
};

struct PosePrior {
  double pose[7];
  double weight;

  template <typename T>
  bool operator()(const T* x, T* residuals) const {
    const Eigen::Map<const Eigen::Quaternion<T>> q(x + 3);
    const Eigen::Matrix<T, 3, 1> turn =
        (Eigen::Map<const Quaternion>(pose + 3).conjugate().cast<T>() * q)
            .vec();
    for (int i = 0; i < 3; ++i) {
      residuals[i] = T(weight) * (x[i] - T(pose[i]));
      residuals[3 + i] = T(2.0 * weight) * turn[i];
    }
    return true;
  }
};

struct SpeedPrior {
  double speed[9];

  template <typename T>
  bool operator()(const T* x, T* residuals) const {
    for (int i = 0; i < 9; ++i) {
      residuals[i] = T(50.0) * (x[i] - T(speed[i]));
    }
    return true;
  }
};

// The parameters and what they began as.
class Program {
 public:
  virtual ~Program() = default;
  ceres::Problem* problem() { return &problem_; }
  // Null: the problem is problem().
  const std::unique_ptr<ArrayProblem>& arrays() const { return arrays_; }
  ArrayProblem* MakeArrays() {
    arrays_ = std::make_unique<ArrayProblem>();
    return arrays_.get();
  }
  int64_t NumRows() const {
    return arrays_ == nullptr ? problem_.NumResidualBlocks()
                              : arrays_->residuals()[0].num_blocks;
  }
  ceres::Solver::Options options;

  double* Add(const std::vector<double>& values) {
    values_.push_back(std::make_unique<std::vector<double>>(values));
    start_.push_back(values);
    return values_.back()->data();
  }
  void Restart() {
    for (size_t i = 0; i < values_.size(); ++i) {
      std::copy(start_[i].begin(), start_[i].end(), values_[i]->begin());
    }
  }

 private:
  std::vector<std::unique_ptr<std::vector<double>>> values_;
  std::vector<std::vector<double>> start_;
  ceres::Problem problem_;
  std::unique_ptr<ArrayProblem> arrays_;
};

void MakePoses(int n, bool is_robust, Random* random, Program* program) {
  constexpr int kRing = 50;
  std::vector<Vector3> position(n);
  std::vector<Quaternion> rotation(n);
  for (int i = 0; i < n; ++i) {
    const double around = 2.0 * M_PI * i / kRing;
    const double height = M_PI * (0.1 + 0.8 * i / n);
    position[i] = 20.0 * Vector3(std::sin(height) * std::cos(around),
                                 std::sin(height) * std::sin(around),
                                 std::cos(height));
    rotation[i] = Rotation(around * Vector3::UnitZ()) *
                  Rotation(height * Vector3::UnitY());
  }
  const auto measure = [&](int i, int j) {
    const Quaternion to_i = rotation[i].conjugate();
    RelativePose edge;
    edge.rotation = (to_i * rotation[j] * Rotation(0.01 * NormalVector(random)))
                        .normalized();
    edge.position =
        to_i * (position[j] - position[i]) + 0.05 * NormalVector(random);
    return edge;
  };
  ceres::Problem* const problem = program->problem();
  std::vector<double*> blocks;
  Vector3 at = position[0];
  Quaternion turned = rotation[0];
  const auto add_edge =
      [&](int i, int j, const RelativePose& edge, ceres::LossFunction* loss) {
        problem->AddResidualBlock(
            new ceres::AutoDiffCostFunction<RelativePose, 6, 7, 7>(
                new RelativePose(edge)),
            loss,
            blocks[i],
            blocks[j]);
      };
  for (int i = 0; i < n; ++i) {
    RelativePose edge;
    if (i > 0) {
      edge = measure(i - 1, i);
      at += turned * edge.position;
      turned = (turned * edge.rotation).normalized();
    }
    blocks.push_back(program->Add({at.x(),
                                   at.y(),
                                   at.z(),
                                   turned.x(),
                                   turned.y(),
                                   turned.z(),
                                   turned.w()}));
    problem->AddParameterBlock(
        blocks[i],
        7,
        new ceres::ProductManifold<ceres::EuclideanManifold<3>,
                                   ceres::EigenQuaternionManifold>());
    if (i > 0) {
      add_edge(i - 1, i, edge, nullptr);
    }
  }
  for (int i = 0; i + kRing < n; ++i) {
    RelativePose edge = measure(i, i + kRing);
    if (is_robust && Uniform(random) < 0.1) {
      edge.position += 3.0 * NormalVector(random);
      edge.rotation = edge.rotation * Rotation(0.5 * NormalVector(random));
    }
    add_edge(
        i, i + kRing, edge, is_robust ? new ceres::CauchyLoss(3.0) : nullptr);
  }
  problem->SetParameterBlockConstant(blocks[0]);
  program->options.linear_solver_type = ceres::SPARSE_NORMAL_CHOLESKY;
}

void MakeRotations(int n, Random* random, Program* program) {
  ceres::Problem* const problem = program->problem();
  std::vector<Quaternion> rotation;
  std::vector<double*> blocks;
  for (int i = 0; i < n; ++i) {
    const Vector3 truth = 0.8 * NormalVector(random);
    const Vector3 start = truth + 0.1 * NormalVector(random);
    rotation.push_back(Rotation(truth));
    blocks.push_back(program->Add({start.x(), start.y(), start.z()}));
  }
  // Eight neighbours and four others.
  for (int i = 0; i < n; ++i) {
    for (int k = 1; k <= 12; ++k) {
      const int j = k <= 8 ? i + k : static_cast<int>(Uniform(random) * n);
      if (j >= n || j == i) {
        continue;
      }
      const bool is_wrong = Uniform(random) < 0.03;
      const Vector3 noise = (is_wrong ? 1.0 : 0.01) * NormalVector(random);
      const Quaternion measured =
          rotation[j] * rotation[i].conjugate() * Rotation(noise);
      problem->AddResidualBlock(
          new ceres::AutoDiffCostFunction<RelativeRotation, 3, 3, 3>(
              new RelativeRotation{measured.toRotationMatrix()}),
          new ceres::HuberLoss(2.0),
          blocks[i],
          blocks[j]);
    }
  }
  problem->SetParameterBlockConstant(blocks[0]);
  program->options.linear_solver_type = ceres::SPARSE_NORMAL_CHOLESKY;
}

void MakePositions(int n, Random* random, Program* program) {
  constexpr int kPointsPerImage = 40;
  constexpr int kRowsPerPoint = 4;
  const auto anywhere = [random, program] {
    std::vector<double> start;
    for (int i = 0; i < 3; ++i) {
      start.push_back(100.0 * (Uniform(random) - 0.5));
    }
    return program->Add(start);
  };
  ceres::Problem* const problem = program->problem();
  auto ordering = std::make_shared<ceres::ParameterBlockOrdering>();
  std::vector<Vector3> center(n);
  std::vector<double*> center_block(n);
  for (int i = 0; i < n; ++i) {
    center[i] = {0.5 * i, 3.0 * std::sin(0.05 * i), 0.5 * Normal(random)};
    center_block[i] = anywhere();
  }
  for (int p = 0; p < kPointsPerImage * n; ++p) {
    const double home = static_cast<double>(p) / kPointsPerImage;
    const Vector3 point =
        Vector3(0.5 * home, 8.0, 0.0) + 3.0 * NormalVector(random);
    double* block = nullptr;
    for (int k = 0; k < kRowsPerPoint; ++k) {
      const int i =
          static_cast<int>(home) + static_cast<int>(8.0 * Uniform(random)) - 4;
      if (i < 0 || i >= n) {
        continue;
      }
      const Vector3 direction =
          ((point - center[i]).normalized() + 0.002 * NormalVector(random))
              .normalized();
      block = block == nullptr ? anywhere() : block;
      double* const scale = program->Add({1.0});
      ceres::CostFunction* cost = nullptr;
      if (FLAGS_cost == "model") {
        cost = new DirectionCost({direction[0], direction[1], direction[2]});
      } else {
        cost = new ceres::AutoDiffCostFunction<Direction, 3, 3, 3, 1>(
            new Direction{direction});
      }
      problem->AddResidualBlock(
          cost, new ceres::HuberLoss(0.1), center_block[i], block, scale);
      problem->SetParameterLowerBound(scale, 0, 1e-5);
      ordering->AddElementToGroup(scale, 0);
      ordering->AddElementToGroup(block, 1);
      ordering->AddElementToGroup(center_block[i], 2);
    }
  }
  program->options.linear_solver_type = ceres::SPARSE_SCHUR;
  program->options.linear_solver_ordering = ordering;
  program->options.max_num_iterations = 30;
}

template <int kNumResiduals, int... Ns, typename Functor>
ceres::CostFunction* CostOf(const Functor& functor) {
  if (FLAGS_functions == "device") {
    return new DeviceAutoDiffCostFunction<Functor, kNumResiduals, Ns...>(
        functor);
  }
  return new ceres::AutoDiffCostFunction<Functor, kNumResiduals, Ns...>(
      new Functor(functor));
}

// The truth of a window's frames and of the camera on the body.
struct Path {
  static constexpr int kFrames = 11;
  Vector3 position[kFrames];
  Vector3 speed[kFrames];
  Quaternion rotation[kFrames];
  Quaternion camera_rotation = Rotation({-M_PI / 2.0, 0.0, 0.0});
  Vector3 camera_position = {0.05, 0.02, -0.01};

  Path() {
    for (int i = 0; i < kFrames; ++i) {
      const double t = kFrameSeconds * i;
      position[i] = {4.0 * std::sin(0.5 * t),
                     2.0 * std::sin(0.8 * t),
                     0.4 * std::sin(1.1 * t)};
      speed[i] = {2.0 * std::cos(0.5 * t),
                  1.6 * std::cos(0.8 * t),
                  0.44 * std::cos(1.1 * t)};
      rotation[i] = Rotation({0.0, 0.0, 0.3 * std::sin(0.7 * t)}) *
                    Rotation({0.1 * std::sin(0.9 * t), 0.0, 0.0});
    }
  }
  Vector3 ToCamera(int i, const Vector3& world) const {
    return camera_rotation.conjugate() *
           (rotation[i].conjugate() * (world - position[i]) - camera_position);
  }
  Vector3 ToWorld(int i, const Vector3& in_camera) const {
    return rotation[i] * (camera_rotation * in_camera + camera_position) +
           position[i];
  }
};

std::vector<double> PoseValues(const Vector3& position,
                               const Quaternion& rotation) {
  return {position.x(),
          position.y(),
          position.z(),
          rotation.x(),
          rotation.y(),
          rotation.z(),
          rotation.w()};
}

double* AddPose(const Vector3& position,
                const Quaternion& rotation,
                Program* program) {
  double* const block = program->Add(PoseValues(position, rotation));
  program->problem()->AddParameterBlock(
      block,
      7,
      new ceres::ProductManifold<ceres::EuclideanManifold<3>,
                                 ceres::EigenQuaternionManifold>());
  return block;
}

void AddPrior(const Vector3& position,
              const Quaternion& rotation,
              double weight,
              double* block,
              Program* program) {
  PosePrior prior{};
  const std::vector<double> values = PoseValues(position, rotation);
  std::copy(values.begin(), values.end(), prior.pose);
  prior.weight = weight;
  program->problem()->AddResidualBlock(CostOf<6, 7>(prior), nullptr, block);
}

// The points of a window, each with the rest of its track.
void AddRays(int num_points,
             const Path& path,
             const std::vector<double*>& poses,
             double* camera,
             Random* random,
             Program* program) {
  constexpr double kPixel = 1.0 / 460.0;
  auto* const huber = new ceres::HuberLoss(1.0);
  for (int p = 0; p < num_points; ++p) {
    const int a = static_cast<int>(Uniform(random) * (Path::kFrames - 2));
    const double depth = 4.0 + 12.0 * Uniform(random);
    const double x = 1.2 * (Uniform(random) - 0.5);
    const double y = 0.9 * (Uniform(random) - 0.5);
    const Vector3 world = path.ToWorld(a, depth * Vector3(x, y, 1.0));
    double* const inverse_depth =
        program->Add({(1.0 + 0.1 * Normal(random)) / depth});
    for (int b = a + 1; b < std::min(Path::kFrames, a + 7); ++b) {
      const Vector3 seen = path.ToCamera(b, world);
      if (seen.z() < 0.5) {
        continue;
      }
      const double noise = kPixel * (Uniform(random) < 0.02 ? 30.0 : 1.0);
      RayError ray{{x, y}, {}};
      for (int i = 0; i < 2; ++i) {
        ray.other[i] = seen[i] / seen.z() + noise * Normal(random);
      }
      program->problem()->AddResidualBlock(CostOf<2, 7, 7, 7, 1>(ray),
                                           huber,
                                           poses[a],
                                           poses[b],
                                           camera,
                                           inverse_depth);
    }
  }
}

void MakeWindow(int num_points, Random* random, Program* program) {
  const Path path;
  ceres::Problem* const problem = program->problem();
  std::vector<double*> poses;
  std::vector<double*> speeds;
  for (int i = 0; i < Path::kFrames; ++i) {
    poses.push_back(
        AddPose(path.position[i] + 0.03 * NormalVector(random),
                path.rotation[i] * Rotation(0.02 * NormalVector(random)),
                program));
    std::vector<double> speed(9);
    for (int k = 0; k < 9; ++k) {
      speed[k] = k < 3 ? path.speed[i][k] + 0.05 * Normal(random)
                       : (k < 6 ? 0.01 : 0.002) * Normal(random);
    }
    speeds.push_back(program->Add(speed));
    problem->AddParameterBlock(speeds[i], 9);
  }
  double* const camera =
      AddPose(path.camera_position, path.camera_rotation, program);
  const Vector3 gravity(0.0, 0.0, kGravity);
  for (int i = 0; i + 1 < Path::kFrames; ++i) {
    const Quaternion to_i = path.rotation[i].conjugate();
    Inertial inertial{};
    Eigen::Map<Vector3>(inertial.position) =
        to_i * (path.position[i + 1] - path.position[i] -
                kFrameSeconds * path.speed[i] +
                0.5 * kFrameSeconds * kFrameSeconds * gravity) +
        0.002 * NormalVector(random);
    Eigen::Map<Vector3>(inertial.speed) =
        to_i * (path.speed[i + 1] - path.speed[i] + kFrameSeconds * gravity) +
        0.01 * NormalVector(random);
    Eigen::Map<Quaternion>(inertial.rotation) =
        (to_i * path.rotation[i + 1] * Rotation(0.001 * NormalVector(random)))
            .normalized();
    problem->AddResidualBlock(CostOf<15, 7, 9, 7, 9>(inertial),
                              nullptr,
                              poses[i],
                              speeds[i],
                              poses[i + 1],
                              speeds[i + 1]);
  }
  AddPrior(path.position[0], path.rotation[0], 200.0, poses[0], program);
  AddPrior(path.camera_position, path.camera_rotation, 300.0, camera, program);
  SpeedPrior prior{};
  std::copy_n(path.speed[0].data(), 3, prior.speed);
  problem->AddResidualBlock(CostOf<9, 9>(prior), nullptr, speeds[0]);
  AddRays(num_points, path, poses, camera, random, program);
  program->options.linear_solver_type = ceres::DENSE_SCHUR;
  program->options.max_num_iterations = 10;
}

// The data that the arrays of a program refer to.
struct Directions {
  std::vector<double> constants;  // 3 a row
  std::vector<int32_t> image;
  std::vector<int32_t> point;
  const double least_scale = 1e-5;
  ceres::HuberLoss loss{0.1};
};

void MakeArraysOfPositions(int n,
                           int64_t num_rows,
                           Random* random,
                           Directions* directions,
                           Program* program) {
  constexpr int kRowsPerPoint = 6;
  constexpr int kImagesAround = 40;
  const int64_t num_points = (num_rows + kRowsPerPoint - 1) / kRowsPerPoint;
  const auto anywhere = [&](int64_t num_blocks) {
    std::vector<double> start(static_cast<size_t>(3 * num_blocks));
    for (double& value : start) {
      value = 100.0 * (Uniform(random) - 0.5);
    }
    return program->Add(start);
  };
  std::vector<Vector3> center(n);
  for (int i = 0; i < n; ++i) {
    center[i] = {0.5 * i, 3.0 * std::sin(0.05 * i), 0.5 * Normal(random)};
  }
  for (int64_t p = 0; p < num_points; ++p) {
    const double home =
        static_cast<double>(p) * n / static_cast<double>(num_points);
    const Vector3 point =
        Vector3(0.5 * home, 8.0, 0.0) + 3.0 * NormalVector(random);
    for (int k = 0; k < kRowsPerPoint && p * kRowsPerPoint + k < num_rows;
         ++k) {
      const int image = std::clamp(
          static_cast<int>(home + kImagesAround * (Uniform(random) - 0.5)),
          0,
          n - 1);
      const Vector3 direction =
          ((point - center[image]).normalized() + 0.002 * NormalVector(random))
              .normalized();
      directions->constants.insert(directions->constants.end(),
                                   {direction[0], direction[1], direction[2]});
      directions->image.push_back(image);
      directions->point.push_back(static_cast<int32_t>(p));
    }
  }
  ArrayProblem* const problem = program->MakeArrays();
  const int centers = problem->AddParameters({anywhere(n), n, 3});
  ArrayProblem::Parameters points{anywhere(num_points), num_points, 3};
  points.is_eliminated = true;
  const int point_array = problem->AddParameters(points);
  ArrayProblem::Parameters scales{
      program->Add(std::vector<double>(static_cast<size_t>(num_rows), 1.0)),
      num_rows,
      1};
  scales.lower_bound = &directions->least_scale;
  const int scale_array = problem->AddParameters(scales);
  problem->AddResiduals<DirectionCost>(num_rows,
                                       directions->constants.data(),
                                       {{centers, directions->image.data()},
                                        {point_array, directions->point.data()},
                                        {scale_array, nullptr}},
                                       &directions->loss);
  program->options.linear_solver_type = ceres::SPARSE_SCHUR;
  program->options.max_num_iterations = 30;
}

// has_bounds: f within 0.5 % of the start, k1 and k2 within 0.01 of it. The
// truth is outside for many images.
bool MakeBundle(const std::string& like,
                bool has_bounds,
                Program* program,
                std::string* error) {
  bal::SyntheticOptions options;
  bal::SyntheticProblem synthetic;
  if (!bal::FindBalSize(like, &options)) {
    *error = "--like: expected the name of a BAL problem, found " + like;
    return false;
  }
  if (!bal::GenerateSynthetic(options, &synthetic, error)) {
    return false;
  }
  const bal::BalProblem& start = synthetic.start;
  ceres::Problem* const problem = program->problem();
  double* const cameras =
      program->Add({start.cameras.begin(), start.cameras.end()});
  double* const points =
      program->Add({start.points.begin(), start.points.end()});
  for (int64_t i = 0; i < start.num_observations(); ++i) {
    problem->AddResidualBlock(
        new BalReprojectionError(start.observations[2 * i],
                                 start.observations[2 * i + 1]),
        nullptr,
        cameras + 9 * int64_t{start.camera_index[i]},
        points + 3 * int64_t{start.point_index[i]});
  }
  constexpr double kRooms[] = {0.005, 0.01, 0.01};
  for (int64_t c = 0; has_bounds && c < options.num_cameras; ++c) {
    double* const camera = cameras + 9 * c;
    for (int i = 6; i < 9; ++i) {
      const double room = kRooms[i - 6] * (i == 6 ? camera[i] : 1.0);
      problem->SetParameterLowerBound(camera, i, camera[i] - room);
      problem->SetParameterUpperBound(camera, i, camera[i] + room);
    }
  }
  program->options.linear_solver_type =
      FLAGS_problem == "bundle" ? ceres::DENSE_SCHUR : ceres::ITERATIVE_SCHUR;
  program->options.preconditioner_type = ceres::SCHUR_JACOBI;
  program->options.max_num_iterations = 20;
  return true;
}

bool IsBundle() {
  return FLAGS_problem == "bounds" || FLAGS_problem == "bundle";
}

bool Make(bool has_bounds,
          uint64_t seed,
          Program* program,
          std::string* error) {
  Random random(seed);
  program->options.max_num_iterations = 50;
  if (FLAGS_problem == "pose" || FLAGS_problem == "robust") {
    MakePoses(FLAGS_size, FLAGS_problem == "robust", &random, program);
  } else if (FLAGS_problem == "rotation") {
    MakeRotations(FLAGS_size, &random, program);
  } else if (FLAGS_problem == "position") {
    MakePositions(FLAGS_size, &random, program);
  } else if (FLAGS_problem == "windows") {
    MakeWindow(FLAGS_size, &random, program);
  } else if (FLAGS_problem == "positions") {
    static Directions directions;
    MakeArraysOfPositions(
        FLAGS_size, FLAGS_rows, &random, &directions, program);
  } else if (IsBundle()) {
    if (!MakeBundle(FLAGS_like, has_bounds, program, error)) {
      return false;
    }
  } else {
    *error =
        "--problem: expected pose, robust, rotation, position, positions, "
        "bounds, bundle or windows, found " +
        FLAGS_problem;
    return false;
  }
  ceres::Solver::Options& options = program->options;
  options.num_threads = FLAGS_threads;
  options.logging_type = ceres::SILENT;
  if (FLAGS_iterations > 0) {
    options.max_num_iterations = FLAGS_iterations;
  }
  if (FLAGS_strategy != "lm") {
    options.trust_region_strategy_type = ceres::DOGLEG;
    options.dogleg_type = FLAGS_strategy == "dogleg" ? ceres::TRADITIONAL_DOGLEG
                                                     : ceres::SUBSPACE_DOGLEG;
  }
  return true;
}

// The programs of a line: one, or several windows.
using Programs = std::vector<std::unique_ptr<Program>>;

Json SolveOnce(const std::string& solver,
               const Options& ext_options,
               const Programs& programs) {
  double seconds = 0.0;
  double cost = 0.0;
  int steps = 0;
  int rejected = 0;
  Summary summary;
  for (const auto& program : programs) {
    program->Restart();
    summary = Summary();
    const double start = Seconds();
    if (program->arrays() != nullptr) {
      Solve(program->options, ext_options, program->arrays().get(), &summary);
    } else if (solver == "stock") {
      ceres::Solve(program->options, program->problem(), &summary);
    } else {
      Solve(program->options, ext_options, program->problem(), &summary);
    }
    seconds += Seconds() - start;
    cost += summary.final_cost;
    steps += summary.num_successful_steps;
    rejected += summary.num_unsuccessful_steps;
  }
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return {{"seconds", Rounded(seconds)},
          {"steps", steps},
          {"rejected", rejected},
          {"cost", cost},
          {"end", ceres::TerminationTypeToString(summary.termination_type)},
          {"device", summary.device},
          {"memory_bytes", summary.memory_bytes},
          {"host_peak_bytes", int64_t{1024} * usage.ru_maxrss},
          {"method", summary.method},
          {"reason", summary.path_reason}};
}

int Run() {
  Options ext_options;
  std::string error;
  if (!ParseOptions(FLAGS_settings, &ext_options, &error)) {
    std::fprintf(stderr, "--settings: %s\n", error.c_str());
    return 1;
  }
  if (FLAGS_problem == "positions" && FLAGS_solver != "ext") {
    std::fprintf(
        stderr,
        "--problem=positions is made of arrays, which stock Ceres does "
        "not read; choose --solver=ext\n");
    return 1;
  }
  constexpr int kWindows = 12;
  std::vector<std::pair<std::string, Programs>> of_lines;
  const auto add = [&](const std::string& name, bool has_bounds) {
    Programs& programs = of_lines.emplace_back(name, Programs()).second;
    const int num_programs = FLAGS_problem == "windows" ? kWindows : 1;
    bool is_made = true;
    for (int i = 0; is_made && i < num_programs; ++i) {
      programs.push_back(std::make_unique<Program>());
      is_made = Make(has_bounds, FLAGS_seed + i, programs.back().get(), &error);
    }
    return is_made;
  };
  const std::string name =
      FLAGS_problem == "windows" ? "windows, " + FLAGS_functions
      : FLAGS_problem == "position" && FLAGS_cost == "model" ? "position, model"
                                                             : FLAGS_problem;
  if (!add(name, FLAGS_problem == "bounds") ||
      (FLAGS_problem == "bounds" && !add("no bounds", false))) {
    std::fprintf(stderr, "%s\n", error.c_str());
    return 1;
  }
  for (int round = 0; round < FLAGS_rounds; ++round) {
    for (const std::string& solver : SplitAtCommas(FLAGS_solver)) {
      for (const auto& [problem, programs] : of_lines) {
        Json line = {{"problem", problem},
                     {"size", IsBundle() ? Json(FLAGS_like) : Json(FLAGS_size)},
                     {"rows", programs[0]->NumRows()},
                     {"threads", FLAGS_threads},
                     {"strategy", FLAGS_strategy},
                     {"solver", solver},
                     {"settings", FLAGS_settings},
                     {"round", round}};
        line.update(SolveOnce(solver, ext_options, programs));
        PrintLine(line);
      }
    }
  }
  return 0;
}

}  // namespace
}  // namespace ceres_ext

int main(int argc, char** argv) {
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  return ceres_ext::Run();
}
