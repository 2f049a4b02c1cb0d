// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Windows that marginalise their oldest keyframe again and again: what they do
// not observe stays unobserved, and rounding adds no drift.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "Eigen/Dense"
#include "Eigen/Geometry"
#include "ceres/autodiff_cost_function.h"
#include "ceres/ceres.h"
#include "ceres/rotation.h"
#include "ceres_ext/marginalize.h"
#include "gtest/gtest.h"
#include "tests/common/random_cases.h"
#include "tests/front/marginal_windows.h"

namespace ceres_ext {
namespace {

using Vector3 = Eigen::Vector3d;

// X_c = R (X - c) of a pose x y z w, c. With R X + t a prior far from the
// origin would be on a narrow curved valley of R and t, in which solves
// converge slowly, and end elsewhere after the least change.
template <typename T>
void ToCamera(const T* pose, const T* point, T* in_camera) {
  const T wxyz[4] = {pose[3], pose[0], pose[1], pose[2]};
  const T from_center[3] = {
      point[0] - pose[4], point[1] - pose[5], point[2] - pose[6]};
  ceres::UnitQuaternionRotatePoint(wxyz, from_center, in_camera);
}

// The image of a point.
struct Image {
  template <typename T>
  bool operator()(const T* pose, const T* point, T* r) const {
    T x[3];
    ToCamera(pose, point, x);
    r[0] = weight * (x[0] / x[2] - measured[0]);
    r[1] = weight * (x[1] / x[2] - measured[1]);
    return true;
  }
  double measured[2];
  double weight;
};

// A point in the frame of a camera, as of a stereo camera.
struct Position {
  template <typename T>
  bool operator()(const T* pose, const T* point, T* r) const {
    ToCamera(pose, point, r);
    for (int e = 0; e < 3; ++e) {
      r[e] = weight * (r[e] - measured[e]);
    }
    return true;
  }
  double measured[3];
  double weight;
};

// The direction of gravity, -z of the world, in the frame of a camera.
struct Gravity {
  template <typename T>
  bool operator()(const T* pose, T* r) const {
    const T wxyz[4] = {pose[3], pose[0], pose[1], pose[2]};
    const T down[3] = {T(0.0), T(0.0), T(-1.0)};
    ceres::UnitQuaternionRotatePoint(wxyz, down, r);
    for (int e = 0; e < 3; ++e) {
      r[e] = weight * (r[e] - measured[e]);
    }
    return true;
  }
  double measured[3];
  double weight;
};

std::vector<double> ToPose(const Eigen::Quaterniond& q, const Vector3& center) {
  return {q.x(), q.y(), q.z(), q.w(), center[0], center[1], center[2]};
}
Eigen::Quaterniond Rotation(const double* pose) {
  return {pose[3], pose[0], pose[1], pose[2]};
}
Vector3 Center(const double* pose) { return {pose[4], pose[5], pose[6]}; }

enum class Kind {
  kMono,     // images: 7 degrees of freedom
  kStereo,   // positions: 6
  kGravity,  // positions and gravity: yaw and position, 4
};

// A walk of keyframes. Each has points of its own, seen by it and the next two.
struct Walk {
  static constexpr int kPoints = 5;

  Walk(Kind kind, int n, double noise, int seed)
      : kind(kind), noise(noise), random(seed) {
    for (int i = 0; i < n; ++i) {
      const double turn = 0.02 * i;
      const Eigen::Quaterniond q =
          Eigen::AngleAxisd(0.1 * std::sin(0.3 * i), Vector3::UnitX()) *
          Eigen::AngleAxisd(turn, Vector3::UnitY());
      const Vector3 center(0.1 * i, 0.1 * std::sin(0.5 * i), 0.05 * i);
      poses.push_back(ToPose(q, center));
      for (int k = 0; k < kPoints; ++k) {
        const Vector3 in_camera(random.Uniform(-2.0, 2.0),
                                random.Uniform(-1.0, 1.0),
                                random.Uniform(4.0, 8.0));
        const Vector3 x = q.conjugate() * in_camera + center;
        points.push_back({x[0], x[1], x[2]});
      }
    }
  }

  double Noise() { return noise * random.Uniform(-1.0, 1.0); }

  // The row of a keyframe and a point, with noise.
  std::shared_ptr<ceres::CostFunction> Row(int i, int point) {
    double x[3];
    ToCamera(poses[i].data(), points[point].data(), x);
    if (kind == Kind::kMono) {
      return std::make_shared<ceres::AutoDiffCostFunction<Image, 2, 7, 3>>(
          new Image{{x[0] / x[2] + Noise(), x[1] / x[2] + Noise()}, 500.0});
    }
    return std::make_shared<ceres::AutoDiffCostFunction<Position, 3, 7, 3>>(
        new Position{{x[0] + Noise(), x[1] + Noise(), x[2] + Noise()},
                     1.0 / noise});
  }
  std::shared_ptr<ceres::CostFunction> GravityRow(int i) {
    const Vector3 down = Rotation(poses[i].data()) * Vector3(0.0, 0.0, -1.0);
    return std::make_shared<ceres::AutoDiffCostFunction<Gravity, 3, 7>>(
        new Gravity{{down[0] + Noise(), down[1] + Noise(), down[2] + Noise()},
                    300.0});
  }

  const Kind kind;
  const double noise;
  Random random;
  std::vector<std::vector<double>> poses;  // the truth
  std::vector<std::vector<double>> points;
};

// The window of keyframes first .. first + kFrames - 1 and their points. Blocks
// and rows have numbers within the window.
struct Sliding {
  static constexpr int kFrames = 5;
  static constexpr int kPoints = Walk::kPoints;

  explicit Sliding(Walk* walk) : walk(walk) {
    window.blocks = {{7, &manifold, {}, {}, {}}, {3, nullptr, {}, {}, {}}};
    for (int i = 0; i < kFrames; ++i) {
      AddFrame(walk->poses[i], i);
    }
  }
  int64_t num_frames() const { return window.blocks[0].n(); }

  // A pose that starts at these values, and its rows.
  void AddFrame(const std::vector<double>& pose, int i) {
    Window::Blocks& poses = window.blocks[0];
    Window::Blocks& points = window.blocks[1];
    const auto frame = static_cast<int32_t>(poses.n());
    poses.values.insert(poses.values.end(), pose.begin(), pose.end());
    poses.is_constant.push_back(0);
    poses.is_dropped.push_back(0);
    for (int k = 0; k < kPoints; ++k) {
      const auto& x = walk->points[kPoints * i + k];
      points.values.insert(points.values.end(), x.begin(), x.end());
      points.is_constant.push_back(0);
      points.is_dropped.push_back(0);
    }
    frames.push_back(i);
    for (int before = 0; before < 3; ++before) {
      if (frame < before) {
        continue;
      }
      for (int k = 0; k < kPoints; ++k) {
        const int32_t point = kPoints * (frame - before) + k;
        observations.push_back(
            {frame, point, walk->Row(i, kPoints * frames[frame - before] + k)});
      }
    }
    gravity.push_back(walk->kind == Kind::kGravity ? walk->GravityRow(i)
                                                   : nullptr);
  }

  // The pose of the frame after the last one by odometry: the true motion, with
  // an error, from the estimated pose.
  std::vector<double> Predict(int i) const {
    const double* const to = walk->poses[i].data();
    const double* const from = walk->poses[i - 1].data();
    const double* const last = &*(window.blocks[0].values.end() - 7);
    const Eigen::Quaterniond turn = Rotation(last).conjugate() * Rotation(from);
    return ToPose(Rotation(to) * turn.conjugate(),
                  Center(last) + turn * (Center(to) - Center(from)) +
                      Vector3(0.01, 0.0, 0.0));
  }

  // Moves the points of the last frame to where it sees them.
  void PlacePoints() {
    const double* const p = &*(window.blocks[0].values.end() - 7);
    double* x = &*(window.blocks[1].values.end() - 3 * kPoints);
    for (int k = 0; k < kPoints; ++k, x += 3) {
      double in_camera[3];
      ToCamera(walk->poses[frames.back()].data(), x, in_camera);
      const Vector3 moved =
          Rotation(p).conjugate() * Vector3(in_camera) + Center(p);
      std::copy_n(moved.data(), 3, x);
    }
  }

  // The arrays of rows, with the prior on the first frames.
  void MakeRows() {
    window.rows.clear();
    Window::Rows images;
    images.arrays = {0, 1};
    for (const auto& [frame, point, row] : observations) {
      window.AddRow(&images, {frame, point}, row);
    }
    window.rows.push_back(std::move(images));
    Window::Rows down;
    down.arrays = {0};
    for (size_t i = 0; i < gravity.size(); ++i) {
      if (gravity[i] != nullptr) {
        window.AddRow(&down, {static_cast<int32_t>(i)}, gravity[i]);
      }
    }
    if (!down.cost_functions.empty()) {
      window.rows.push_back(std::move(down));
    }
    if (prior != nullptr) {
      Window::Rows of_prior;
      std::vector<int32_t> blocks;
      for (int k = 0; k < prior->num_blocks(); ++k) {
        of_prior.arrays.push_back(0);
        blocks.push_back(k);
      }
      window.AddRow(&of_prior, blocks, prior);
      window.rows.push_back(std::move(of_prior));
    }
  }

  // Marks the oldest frame and its points.
  void MarkOldest() {
    window.blocks[0].is_dropped[0] = 1;
    std::fill_n(window.blocks[1].is_dropped.begin(), kPoints, 1);
  }

  // Drops the oldest frame. The prior is on the next ones, now 0, 1, ...
  void Leave(std::shared_ptr<BlockMarginalPrior> next) {
    prior = std::move(next);
    Window::Blocks& poses = window.blocks[0];
    Window::Blocks& points = window.blocks[1];
    poses.values.erase(poses.values.begin(), poses.values.begin() + 7);
    points.values.erase(points.values.begin(),
                        points.values.begin() + 3 * kPoints);
    poses.is_constant.pop_back();
    poses.is_dropped.assign(poses.is_dropped.size() - 1, 0);
    points.is_constant.resize(points.is_constant.size() - kPoints);
    points.is_dropped.assign(points.is_dropped.size() - kPoints, 0);
    frames.erase(frames.begin());
    gravity.erase(gravity.begin());
    std::vector<Observation> left;
    for (const Observation& one : observations) {
      if (one.point >= kPoints && one.frame > 0) {
        left.push_back({one.frame - 1, one.point - kPoints, one.row});
      }
    }
    observations = std::move(left);
  }

  struct Observation {
    int32_t frame;
    int32_t point;
    std::shared_ptr<ceres::CostFunction> row;
  };
  Walk* const walk;
  PoseManifold manifold;
  Window window;
  std::vector<int> frames;
  std::vector<Observation> observations;
  std::vector<std::shared_ptr<ceres::CostFunction>> gravity;
  std::shared_ptr<BlockMarginalPrior> prior;
};

// The motions of the world that the rows of a kind do not see, as columns over
// the tangents of poses at these values. With X' = X + phi x X + tau + s X:
// R' = R - [R phi] R, which is half of R phi in the tangent of a quaternion,
// and c moves as points do.
Eigen::MatrixXd Unobserved(Kind kind, const std::vector<double>& poses) {
  const auto n = static_cast<Eigen::Index>(poses.size() / 7);
  Eigen::MatrixXd motions = Eigen::MatrixXd::Zero(6 * n, 7);
  for (Eigen::Index k = 0; k < n; ++k) {
    const double* const p = &poses[7 * k];
    const Eigen::Matrix3d r = Rotation(p).toRotationMatrix();
    motions.block<3, 3>(6 * k + 3, 0).setIdentity();
    // The yaw, the turn around z, comes first.
    for (int e = 0; e < 3; ++e) {
      const Vector3 axis = Vector3::Unit((e + 2) % 3);
      motions.block<3, 1>(6 * k, 3 + e) = -0.5 * r * axis;
      motions.block<3, 1>(6 * k + 3, 3 + e) = axis.cross(Center(p));
    }
    motions.block<3, 1>(6 * k + 3, 6) = Center(p);
  }
  const int num = kind == Kind::kMono ? 7 : kind == Kind::kStereo ? 6 : 4;
  return motions.leftCols(num);
}

using RowMajor =
    Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

// The largest |A n| / (|A| |n|).
double LargestObserved(const BlockMarginalPrior& prior,
                       const Eigen::MatrixXd& motions) {
  const Eigen::Map<const RowMajor> a(
      prior.matrix().data(), prior.num_residuals(), prior.num_columns());
  double most = 0.0;
  for (Eigen::Index c = 0; c < motions.cols(); ++c) {
    most = std::max(
        most, (a * motions.col(c)).norm() / a.norm() / motions.col(c).norm());
  }
  return most;
}

// Forty times the values move, as if each window were solved, and the oldest
// keyframe is marginalised.
void ExpectUnobserved(Kind kind) {
  Walk walk(kind, 50, 1e-3, 11);
  Sliding sliding(&walk);
  double most_at_values = 0.0;
  for (int step = 0; step < 40; ++step) {
    for (Window::Blocks& b : sliding.window.blocks) {
      for (int64_t i = 0; i < b.n(); ++i) {
        double delta[6];
        for (double& d : delta) {
          d = 1e-2 * walk.random.Uniform(-1.0, 1.0);
        }
        const std::vector<double> x(&b.values[b.size * i],
                                    &b.values[b.size * i] + b.size);
        if (b.manifold != nullptr) {
          b.manifold->Plus(x.data(), delta, &b.values[b.size * i]);
        } else {
          for (int e = 0; e < 3; ++e) {
            b.values[3 * i + e] += delta[e];
          }
        }
      }
    }
    sliding.MakeRows();
    sliding.MarkOldest();
    Marginal marginal;
    std::string error;
    ASSERT_TRUE(Marginalize(
        sliding.window.MakeArrays(), sliding.window.Drop(), &marginal, &error))
        << error;
    ASSERT_NE(marginal.prior, nullptr);
    const BlockMarginalPrior& prior = *marginal.prior;
    const Eigen::MatrixXd motions = Unobserved(kind, prior.references());
    EXPECT_EQ(prior.num_residuals(), prior.num_columns() - motions.cols());
    EXPECT_LE(LargestObserved(prior, motions), 1e-9) << "step " << step;
    // Points of the oldest frame are seen by the next two.
    ASSERT_EQ(prior.num_blocks(), 2);
    std::vector<double> values;
    for (const Marginal::Block& block : marginal.blocks) {
      const double* const x = &sliding.window.blocks[0].values[7 * block.block];
      values.insert(values.end(), x, x + 7);
    }
    most_at_values = std::max(most_at_values,
                              LargestObserved(prior, Unobserved(kind, values)));
    sliding.Leave(marginal.prior);
    const int next = Sliding::kFrames + step;
    sliding.AddFrame(walk.poses[next], next);
  }
  // At other values than its references a prior sees them.
  EXPECT_GE(most_at_values, 1e-6);
}

TEST(MarginalDrift, GaugeAndScaleOfImagesStayUnobserved) {
  ExpectUnobserved(Kind::kMono);
}
TEST(MarginalDrift, GaugeOfPositionsStaysUnobserved) {
  ExpectUnobserved(Kind::kStereo);
}
TEST(MarginalDrift, YawAndPositionStayUnobservedBesideGravity) {
  ExpectUnobserved(Kind::kGravity);
}

// The prior of QR in quadruple precision, in double. Its columns are changed by
// at most `change` times their norms, at random.
std::shared_ptr<BlockMarginalPrior> MarginalizeInQuad(const Sliding& sliding,
                                                      double change,
                                                      Random* random) {
  std::map<BlockName, std::vector<double>> references;
  if (sliding.prior != nullptr) {
    for (int k = 0; k < sliding.prior->num_blocks(); ++k) {
      const double* const x =
          &sliding.prior->references()[sliding.prior->reference_begin(k)];
      references[{0, k}].assign(x, x + 7);
    }
  }
  const Expected expected(sliding.window, references);
  QuadMatrix a = expected.marginal->rest;
  std::vector<size_t> order;
  const size_t n = a.size() - 1;
  const size_t rank = TriangulariseInQuad(n, &a, &order);
  std::vector<double> matrix(rank * n, 0.0);
  std::vector<double> offset;
  for (size_t i = 0; i < rank; ++i) {
    for (size_t c = i; c < n; ++c) {
      matrix[n * i + order[c]] = static_cast<double>(a[c][i]);
    }
    offset.push_back(static_cast<double>(a[n][i]));
  }
  // The norms are those of columns of J, as in the theorem.
  for (size_t c = 0; c <= n && change > 0.0; ++c) {
    const size_t column = c < n ? c : n;
    const double norm = expected.marginal->column_norms[column];
    for (size_t i = 0; i < rank; ++i) {
      (c < n ? matrix[n * i + c] : offset[i]) +=
          change * norm * random->Uniform(-1.0, 1.0) /
          std::sqrt(static_cast<double>(rank));
    }
  }
  std::vector<BlockMarginalPrior::Block> blocks;
  std::vector<double> x_0;
  for (const BlockName& name : expected.kept) {
    blocks.push_back({7, sliding.window.blocks[0].manifold});
    const auto found = references.find(name);
    const double* const x =
        found != references.end()
            ? found->second.data()
            : &sliding.window.blocks[0].values[7 * name.second];
    x_0.insert(x_0.end(), x, x + 7);
  }
  std::string error;
  std::shared_ptr<BlockMarginalPrior> prior =
      BlockMarginalPrior::Create(blocks,
                                 x_0.data(),
                                 static_cast<int>(rank),
                                 matrix.data(),
                                 offset.data(),
                                 &error);
  EXPECT_NE(prior, nullptr) << error;
  return prior;
}

enum class Qr { kDouble, kQuad, kChangedQuad };

// QR in double is that of a matrix whose columns differ by at most gamma, a
// small multiple of m n eps, times their norms (quad_marginal.h).
constexpr double kRows = 3.0 * 3 * Sliding::kPoints + 12;
constexpr double kColumns = 3.0 * Sliding::kPoints + 18 + 1;
constexpr double kGamma = 10.0 * kRows * kColumns * 2.2e-16;

// Solves a window after the other. Returns the poses when they are dropped.
std::vector<std::vector<double>> Follow(Walk walk, int num_frames, Qr qr) {
  Random changes(17);
  Sliding sliding(&walk);
  // The first pose is known to some 1e-4.
  std::vector<double> a(36, 0.0);
  for (int e = 0; e < 6; ++e) {
    a[7 * e] = 1e4;
  }
  const std::vector<double> b(6, 0.0);
  sliding.prior = BlockMarginalPrior::Create({{7, &sliding.manifold}},
                                             walk.poses[0].data(),
                                             6,
                                             a.data(),
                                             b.data(),
                                             nullptr);
  std::vector<std::vector<double>> path;
  for (int next = Sliding::kFrames; next < num_frames; ++next) {
    sliding.MakeRows();
    ceres::Problem::Options problem_options;
    problem_options.cost_function_ownership = ceres::DO_NOT_TAKE_OWNERSHIP;
    problem_options.manifold_ownership = ceres::DO_NOT_TAKE_OWNERSHIP;
    ceres::Problem problem(problem_options);
    for (const Window::Rows& r : sliding.window.rows) {
      for (size_t k = 0; k < r.cost_functions.size(); ++k) {
        std::vector<double*> blocks;
        for (size_t s = 0; s < r.arrays.size(); ++s) {
          Window::Blocks& of_slot = sliding.window.blocks[r.arrays[s]];
          blocks.push_back(&of_slot.values[of_slot.size * r.blocks[s][k]]);
        }
        problem.AddResidualBlock(r.cost_functions[k], nullptr, blocks);
      }
    }
    for (int64_t i = 0; i < sliding.num_frames(); ++i) {
      problem.SetManifold(&sliding.window.blocks[0].values[7 * i],
                          &sliding.manifold);
    }
    ceres::Solver::Options options;
    // Gauss-Newton steps to the end. Ceres would otherwise reject the last
    // ones, which change the cost by less than its rounding, and so end 1e-8
    // away from the minimum, in directions of which a prior says little.
    options.linear_solver_type = ceres::DENSE_SCHUR;
    options.initial_trust_region_radius = 1e20;
    options.max_trust_region_radius = 1e32;
    options.use_nonmonotonic_steps = true;
    options.max_consecutive_nonmonotonic_steps = 100;
    options.max_num_iterations = 10;
    options.function_tolerance = 1e-300;
    options.gradient_tolerance = 1e-300;
    options.parameter_tolerance = 1e-14;
    options.logging_type = ceres::SILENT;
    ceres::Solver::Summary summary;
    ceres::Solve(options, &problem, &summary);
    EXPECT_TRUE(summary.IsSolutionUsable()) << summary.message;
    const double* const oldest = sliding.window.blocks[0].values.data();
    path.emplace_back(oldest, oldest + 7);
    sliding.MarkOldest();
    if (qr != Qr::kDouble) {
      sliding.Leave(
          MarginalizeInQuad(sliding, qr == Qr::kQuad ? 0.0 : kGamma, &changes));
    } else {
      Marginal marginal;
      std::string error;
      EXPECT_TRUE(Marginalize(sliding.window.MakeArrays(),
                              sliding.window.Drop(),
                              &marginal,
                              &error))
          << error;
      sliding.Leave(marginal.prior);
    }
    sliding.AddFrame(sliding.Predict(next), next);
    sliding.PlacePoints();
  }
  return path;
}

// The largest distance of positions of two paths.
double Deviation(const std::vector<std::vector<double>>& a,
                 const std::vector<std::vector<double>>& b) {
  double most = 0.0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    most = std::max(most, (Center(a[i].data()) - Center(b[i].data())).norm());
  }
  return most;
}

// A corridor of 1,000 keyframes is followed three times, with the same
// measurements: with Marginalize, with QR in quadruple precision, whose result
// is rounded to double, and with this one changed by the most that QR in double
// may change its columns. The first may deviate from the second by ten times
// the largest deviation of the third, because both are sums of random errors,
// to which the solves add theirs. Drift that noise makes is 1e4 times as large.
TEST(MarginalDrift, ACorridorDriftsNoMoreThanInQuadruplePrecision) {
  constexpr int kFrames = 1000;
  const Walk walk(Kind::kStereo, kFrames, 3e-4, 5);
  const auto path = Follow(walk, kFrames, Qr::kDouble);
  const auto of_quad = Follow(walk, kFrames, Qr::kQuad);
  const double bound =
      10.0 * Deviation(Follow(walk, kFrames, Qr::kChangedQuad), of_quad);
  ASSERT_EQ(path.size(), kFrames - Sliding::kFrames);
  ASSERT_EQ(of_quad.size(), path.size());
  const double deviation = Deviation(path, of_quad);
  const double drift = Deviation(path, walk.poses);
  const double drift_of_quad = Deviation(of_quad, walk.poses);
  std::printf(
      "drift %.9f m, in quadruple %.9f m; deviation %.2e m, bound %.2e m\n",
      drift,
      drift_of_quad,
      deviation,
      bound);
  EXPECT_LE(deviation, bound);
  EXPECT_LE(drift, drift_of_quad + bound);
  EXPECT_LE(bound, 1e-4 * drift_of_quad);
}

}  // namespace
}  // namespace ceres_ext
