// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Windows of user-defined models against stock Ceres, window by window; the
// same bits alone, in batches and with any number of threads; windows that are
// not valid beside others. With CERES_EXT_TEST_ON_CUDA on a device.

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "Eigen/Core"
#include "Eigen/Dense"
#include "ceres/autodiff_cost_function.h"
#include "ceres/loss_function.h"
#include "ceres/manifold.h"
#include "ceres/problem.h"
#include "ceres/product_manifold.h"
#include "ceres/solver.h"
#include "ceres_ext/batch.h"
#include "ceres_ext/marginal_prior.h"
#include "ceres_ext/sliding_window.h"
#include "gtest/gtest.h"
#include "tests/common/has_device.h"
#include "tests/common/own_loss.h"
#include "tests/common/random_cases.h"
#include "tests/front/batch_cases.h"
#include "tests/front/model_window_functors.h"
#ifdef CERES_EXT_EMULATED
#include "tests/front/model_window_functors.cu"
#endif

namespace ceres_ext {
namespace {

using namespace model_windows;  // NOLINT

// The shape of a window.
struct WindowShape {
  int num_frames = 4;
  int num_depths = 12;
  int num_points = 0;
  bool has_speeds = true;
  bool has_smooth = false;
  bool has_prior = true;
  double constants = 0.0;  // probability that a block is constant
  int64_t seed = 0;
  int num_marginals = 0;
};

// A window with values of its own. They are one allocation, so their addresses
// have the same order in each run: Ceres lists blocks by their addresses.
class OdometryWindow {
 public:
  explicit OdometryWindow(const WindowShape& shape)
      : shape_(shape), random_(shape.seed) {
    ceres::Problem::Options options;
    options.manifold_ownership = ceres::DO_NOT_TAKE_OWNERSHIP;
    options.loss_function_ownership = ceres::DO_NOT_TAKE_OWNERSHIP;
    problem_ = std::make_unique<ceres::Problem>(options);
    values_.resize(8 + 16 * shape.num_frames + shape.num_depths +
                   3 * shape.num_points);
    *delay() = 0.002;
    for (int i = 0; i < shape.num_frames; ++i) {
      const double t = 0.3 * i;
      const std::array<double, 7> truth = {4.0 * std::sin(0.5 * t),
                                           2.0 * std::sin(0.8 * t),
                                           0.4 * std::sin(1.1 * t),
                                           std::cos(0.1 * t),
                                           0.0,
                                           0.0,
                                           std::sin(0.1 * t)};
      truth_.push_back(truth);
      std::copy_n(truth.data(), 7, pose(i));
      Disturb(0.02, pose(i));
      const std::array<double, 9> of_path = {2.0 * std::cos(0.5 * t),
                                             1.6 * std::cos(0.8 * t),
                                             0.44 * std::cos(1.1 * t)};
      for (int k = 0; k < 9; ++k) {
        speed(i)[k] = of_path[k] + Noise(0.02);
      }
    }
    const std::array<double, 7> camera_start = {
        0.05, 0.02, -0.01, std::sqrt(0.5), -std::sqrt(0.5), 0.0, 0.0};
    std::copy_n(camera_start.data(), 7, camera());
    Disturb(0.003, camera());
    AddFrames();
    for (int k = 0; k < shape.num_depths; ++k) {
      AddDepth(depth(k));
    }
    for (int p = 0; p < shape.num_points; ++p) {
      AddPoint(point(p));
    }
    SetManifolds();
    for (int k = 0; k < shape.num_marginals; ++k) {
      AddMarginal();
    }
  }

  ceres::Problem* problem() { return problem_.get(); }
  double* camera() { return values_.data(); }
  double* delay() { return camera() + 7; }
  double* pose(int i) { return delay() + 1 + 16 * i; }
  double* speed(int i) { return pose(i) + 7; }
  double* depth(int k) { return pose(shape_.num_frames) + k; }
  double* point(int p) { return depth(shape_.num_depths) + 3 * p; }

  const std::vector<double>& Values() const { return values_; }

 private:
  double Noise(double size) { return size * random_.Uniform(-1.0, 1.0); }
  void Disturb(double size, double* pose) {
    double norm = 0.0;
    for (int i = 0; i < 7; ++i) {
      pose[i] += Noise(i < 3 ? size : 0.3 * size);
      norm += i < 3 ? 0.0 : pose[i] * pose[i];
    }
    for (int i = 3; i < 7; ++i) {
      pose[i] /= std::sqrt(norm);
    }
  }

  // One of several losses, sometimes scaled, or none.
  ceres::LossFunction* Loss() {
    static auto* const losses = new std::vector<ceres::LossFunction*>{
        nullptr,
        new ceres::HuberLoss(1.0),
        new ceres::CauchyLoss(2.0),
        new ceres::SoftLOneLoss(0.5),
        new ceres::ScaledLoss(
            new ceres::HuberLoss(0.7), 1.5, ceres::TAKE_OWNERSHIP),
        new ceres::ScaledLoss(nullptr, 0.5, ceres::TAKE_OWNERSHIP)};
    return (*losses)[random_.Below(static_cast<int>(losses->size()))];
  }

  void AddFrames() {
    const int n = shape_.num_frames;
    for (int i = 0; i + 1 < n && shape_.has_speeds; ++i) {
      InertialError error;
      error.dt = 0.3;
      for (int k = 0; k < 3; ++k) {
        error.dp[k] = truth_[i + 1][k] - truth_[i][k] + Noise(0.01) -
                      0.3 * speed(i)[k] + (k == 2 ? 0.44 : 0.0);
        error.dv[k] = speed(i + 1)[k] - speed(i)[k] + Noise(0.01) +
                      (k == 2 ? 2.943 : 0.0);
        error.turn[k] = Noise(0.001) + (k == 2 ? 0.06 : 0.0);
      }
      problem_->AddResidualBlock(new InertialCost(error),
                                 nullptr,
                                 pose(i),
                                 speed(i),
                                 pose(i + 1),
                                 speed(i + 1));
    }
    for (int i = 0; i + 2 < n && shape_.has_smooth; ++i) {
      problem_->AddResidualBlock(new SmoothCost({0.2}),
                                 Loss(),
                                 pose(i),
                                 speed(i),
                                 pose(i + 1),
                                 speed(i + 1),
                                 pose(i + 2),
                                 speed(i + 2));
    }
    if (shape_.has_prior) {
      AddPosePrior(200.0, pose(0));
      problem_->AddResidualBlock(
          new DelayPriorCost(DelayPriorError{0.0}), nullptr, delay());
    }
    AddPosePrior(50.0, camera());
  }

  void AddPosePrior(double weight, double* pose) {
    PosePriorError error;
    error.weight = weight;
    std::copy_n(pose, 7, error.p);
    error.p[1] += 0.001;
    problem_->AddResidualBlock(new PosePriorCost(error), nullptr, pose);
  }

  // The world's point on a ray of frame a, where the camera is at its start.
  std::array<double, 3> See(int a, const double* u, double distance) {
    const double ray[3] = {u[0] * distance, u[1] * distance, distance};
    double x[3];
    std::array<double, 3> y;
    ceres::UnitQuaternionRotatePoint(camera() + 3, ray, x);
    for (int k = 0; k < 3; ++k) {
      x[k] += camera()[k];
    }
    ceres::UnitQuaternionRotatePoint(truth_[a].data() + 3, x, y.data());
    for (int k = 0; k < 3; ++k) {
      y[k] += truth_[a][k];
    }
    return y;
  }
  bool Project(int b, const std::array<double, 3>& point, double* v) {
    double x[3];
    double y[3];
    for (int k = 0; k < 3; ++k) {
      x[k] = point[k] - truth_[b][k];
    }
    RotateBack(truth_[b].data() + 3, x, y);
    for (int k = 0; k < 3; ++k) {
      x[k] = y[k] - camera()[k];
    }
    RotateBack(camera() + 3, x, y);
    const double size = random_.Chance(0.03) ? 0.1 : 0.004;
    v[0] = y[0] / y[2] + Noise(size);
    v[1] = y[1] / y[2] + Noise(size);
    return y[2] > 0.5;
  }

  void AddDepth(double* inverse_depth) {
    const int a = random_.Below(std::max(1, shape_.num_frames - 1));
    const double distance = random_.Uniform(4.0, 16.0);
    *inverse_depth = (1.0 + Noise(0.2)) / distance;
    InverseDepthError error;
    for (int k = 0; k < 2; ++k) {
      error.u[k] = Noise(0.5);
      error.flow[k] = Noise(0.3);
    }
    const std::array<double, 3> point = See(a, error.u, distance);
    ceres::LossFunction* const loss = Loss();
    for (int b = a + 1; b < std::min(shape_.num_frames, a + 6); ++b) {
      if (Project(b, point, error.v)) {
        problem_->AddResidualBlock(new InverseDepthCost(error),
                                   loss,
                                   pose(a),
                                   pose(b),
                                   camera(),
                                   inverse_depth,
                                   delay());
      }
    }
  }

  void AddPoint(double* point) {
    const double u[2] = {Noise(0.5), Noise(0.5)};
    const int a = random_.Below(shape_.num_frames);
    const std::array<double, 3> truth = See(a, u, random_.Uniform(4.0, 16.0));
    for (int k = 0; k < 3; ++k) {
      point[k] = truth[k] + Noise(0.2);
    }
    LandmarkError error;
    for (int b = 0; b < shape_.num_frames; ++b) {
      if (random_.Chance(0.7) && Project(b, truth, error.v)) {
        problem_->AddResidualBlock(
            new LandmarkCost(error), Loss(), pose(b), camera(), point);
      }
    }
  }

  std::vector<double*> Blocks() {
    std::vector<double*> blocks = {camera(), delay()};
    for (int i = 0; i < shape_.num_frames; ++i) {
      blocks.push_back(pose(i));
      blocks.push_back(speed(i));
    }
    for (int k = 0; k < shape_.num_depths; ++k) {
      blocks.push_back(depth(k));
    }
    for (int p = 0; p < shape_.num_points; ++p) {
      blocks.push_back(point(p));
    }
    return blocks;
  }

  void SetManifolds() {
    static auto* const of_poses =
        new ceres::ProductManifold<ceres::EuclideanManifold<3>,
                                   ceres::QuaternionManifold>;
    static auto* const of_flat_poses =
        new ceres::ProductManifold<ceres::SubsetManifold,
                                   ceres::QuaternionManifold>(
            ceres::SubsetManifold(3, {2}), ceres::QuaternionManifold());
    static auto* const of_speeds = new ceres::SubsetManifold(9, {3, 4, 5});
    static auto* const of_points = new ceres::SubsetManifold(3, {1});
    for (double* const block : Blocks()) {
      if (!problem_->HasParameterBlock(block)) {
        continue;
      }
      const int size = problem_->ParameterBlockSize(block);
      if (size == 7) {
        problem_->SetManifold(block,
                              random_.Chance(0.9)
                                  ? static_cast<ceres::Manifold*>(of_poses)
                                  : of_flat_poses);
      } else if (size == 9 && random_.Chance(0.2)) {
        problem_->SetManifold(block, of_speeds);
      } else if (size == 3 && random_.Chance(0.1)) {
        problem_->SetManifold(block, of_points);
      }
      if (random_.Chance(shape_.constants)) {
        problem_->SetParameterBlockConstant(block);
      }
    }
  }

  // A prior on blocks of all kinds, with references beside their values.
  void AddMarginal() {
    std::vector<double*> all = Blocks();
    std::vector<double*> blocks;
    std::vector<BlockMarginalPrior::Block> sizes;
    std::vector<double> references;
    int num_columns = 0;
    for (double* const block : all) {
      if (!problem_->HasParameterBlock(block) || !random_.Chance(0.4)) {
        continue;
      }
      const int size = problem_->ParameterBlockSize(block);
      blocks.push_back(block);
      sizes.push_back({size, problem_->GetManifold(block)});
      references.insert(references.end(), block, block + size);
      num_columns += problem_->ParameterBlockTangentSize(block);
      for (int e = 0; e < size; ++e) {
        references[references.size() - 1 - e] += Noise(0.003);
      }
    }
    if (blocks.empty()) {
      return;
    }
    const int num_residuals = 1 + random_.Below(num_columns + 4);
    std::vector<double> a(static_cast<size_t>(num_columns * num_residuals));
    std::vector<double> b(static_cast<size_t>(num_residuals));
    for (double& value : a) {
      value = Noise(30.0);
    }
    for (double& value : b) {
      value = Noise(1.0);
    }
    std::string error;
    auto prior = BlockMarginalPrior::Create(
        sizes, references.data(), num_residuals, a.data(), b.data(), &error);
    ASSERT_NE(prior, nullptr) << error;
    problem_->AddResidualBlock(prior.release(), nullptr, blocks);
  }

  const WindowShape shape_;
  Random random_;
  std::vector<std::array<double, 7>> truth_;
  // Camera, delay, pose and speed of each frame, depths, points.
  std::vector<double> values_;
  std::unique_ptr<ceres::Problem> problem_;
};

WindowShape RandomShape(Random* random) {
  WindowShape shape;
  shape.num_frames = 2 + random->Below(7);
  shape.num_depths = random->Chance(0.2) ? 0 : random->Below(40);
  shape.num_points = random->Chance(0.6) ? 0 : random->Below(30);
  shape.has_speeds = random->Chance(0.7);
  shape.has_smooth = shape.num_frames > 2 && random->Chance(0.4);
  shape.has_prior = random->Chance(0.9);
  shape.constants = random->OneOf({0.0, 0.0, 0.1, 0.5});
  shape.seed = static_cast<int64_t>(random->generator()() >> 1);
  shape.num_marginals = random->Chance(0.7) ? 0 : 1 + random->Below(2);
  return shape;
}

using Windows = std::vector<std::unique_ptr<OdometryWindow>>;

Windows MakeWindows(const std::vector<WindowShape>& shapes) {
  Windows windows;
  for (const WindowShape& shape : shapes) {
    windows.push_back(std::make_unique<OdometryWindow>(shape));
  }
  return windows;
}

BatchSummary SolveWindows(const ceres::Solver::Options& options,
                          const Windows& windows,
                          const Options& ext_options = OnMachine()) {
  std::vector<ceres::Problem*> problems;
  for (const auto& window : windows) {
    problems.push_back(window->problem());
  }
  BatchSummary summary;
  std::string error;
  EXPECT_TRUE(SolveBatch(options, ext_options, problems, &summary, &error))
      << error;
  // Not by the host in place of a device.
  EXPECT_EQ(summary.device.find("host") == std::string::npos,
            ext_options.device == DEVICE_CUDA)
      << summary.device;
  return summary;
}

// By DENSE_QR, since the elimination of DENSE_SCHUR alone loses up to eight
// digits of a cost where few rows see a point. By one thread, since more add up
// in an order that changes from run to run.
ceres::Solver::Summary SolveByStock(ceres::Solver::Options options,
                                    OdometryWindow* window) {
  options.linear_solver_type = ceres::DENSE_QR;
  options.num_threads = 1;
  ceres::Solver::Summary summary;
  ceres::Solve(options, window->problem(), &summary);
  return summary;
}

std::vector<WindowShape> SomeShapes() {
  std::vector<WindowShape> shapes(5);
  shapes[1].num_depths = 0;
  shapes[1].num_points = 20;
  shapes[2].has_speeds = false;
  shapes[3].num_frames = 9;
  shapes[3].num_depths = 40;
  shapes[3].num_points = 10;
  shapes[4].constants = 0.3;
  shapes[4].num_marginals = 2;
  for (size_t k = 0; k < shapes.size(); ++k) {
    shapes[k].seed = 100 + static_cast<int64_t>(k);
  }
  return shapes;
}

void ExpectSameBitsInAnyBatch(ceres::Solver::Options options) {
  const std::vector<WindowShape> shapes = SomeShapes();
  std::vector<std::vector<double>> alone;
  for (const WindowShape& shape : shapes) {
    const Windows one = MakeWindows({shape});
    const BatchSummary summary = SolveWindows(options, one);
    EXPECT_EQ(summary.problems[0].solved_as, SOLVED_AS_WINDOW)
        << summary.problems[0].path_reason;
    alone.push_back(one[0]->Values());
  }
  for (const int num_threads : {1, 2, 3, 16}) {
    options.num_threads = num_threads;
    std::vector<WindowShape> many;
    many.reserve(12);
    for (int k = 0; k < 12; ++k) {
      many.push_back(shapes[(k * 3 + num_threads) % shapes.size()]);
    }
    const Windows windows = MakeWindows(many);
    SolveWindows(options, windows);
    for (size_t k = 0; k < many.size(); ++k) {
      EXPECT_EQ(windows[k]->Values(), alone[(k * 3 + num_threads) % 5]) << k;
    }
  }
}

void SkipWithoutDevice() {
#ifdef CERES_EXT_TEST_ON_CUDA
  if (!HasDevice()) {
    GTEST_SKIP() << "skipped: no CUDA device";
  }
#endif
}

class ModelWindows : public testing::Test {
 protected:
  void SetUp() override { SkipWithoutDevice(); }
};

TEST_F(ModelWindows, HaveTheSameBitsInAnyBatch) {
  ExpectSameBitsInAnyBatch(SomeOptions());
}

// Windows that were compared with stock Ceres, those with the same decisions,
// and the steps that stock Ceres has rejected.
struct Compared {
  int64_t num_windows = 0;
  int64_t num_same = 0;
  int64_t num_rejected = 0;
};

void ExpectAsStock(const ProblemSummary& one,
                   const ceres::Solver::Summary& expected,
                   double tolerance,
                   OdometryWindow* window,
                   Compared* compared) {
  if (one.solved_as != SOLVED_AS_WINDOW) {
    // It has one model, or nothing that varies.
    EXPECT_TRUE(one.solved_as == SOLVED_AS_FIT ||
                expected.num_parameter_blocks_reduced == 0)
        << one.path_reason;
    return;
  }
  ++compared->num_windows;
  compared->num_rejected += expected.num_unsuccessful_steps;
  compared->num_same +=
      one.num_successful_steps == expected.num_successful_steps &&
              one.num_unsuccessful_steps == expected.num_unsuccessful_steps &&
              one.termination_type == expected.termination_type
          ? 1
          : 0;
  EXPECT_NEAR(
      one.initial_cost, expected.initial_cost, 1e-12 * expected.initial_cost);
  EXPECT_NEAR(one.final_cost, expected.final_cost, tolerance);
  double cost = 0.0;
  window->problem()->Evaluate({}, &cost, nullptr, nullptr, nullptr);
  // The least cost may be that of a step that was rejected, which is lower by
  // min_relative_decrease, 1e-3, of the model's fall at most.
  EXPECT_GE(cost, one.final_cost - 1e-12 * expected.initial_cost);
  EXPECT_LE(cost, 1.001001 * one.final_cost + 1e-12 * expected.initial_cost);
}

// set_options(random, &options); tolerance(expected) of the final cost.
template <typename SetOptions, typename Tolerance>
Compared CompareWithStock(const SetOptions& set_options,
                          const Tolerance& tolerance) {
  Compared compared;
  // A phase of an emulated device is slow: each barrier is waited for.
#ifdef CERES_EXT_EMULATED
  constexpr int kNumCases = 20;
#else
  constexpr int kNumCases = 40;
#endif
  ForEachCase(kNumCases, [&](Random* random) {
    std::vector<WindowShape> shapes;
    shapes.reserve(4);
    for (int k = 0; k < 4; ++k) {
      shapes.push_back(RandomShape(random));
    }
    ceres::Solver::Options options = SomeOptions();
    options.max_num_iterations = random->OneOf({0, 1, 4, 8});
    options.jacobi_scaling = random->Chance(0.8);
    set_options(random, &options);
    const Windows ours = MakeWindows(shapes);
    const Windows stock = MakeWindows(shapes);
    const BatchSummary summary = SolveWindows(options, ours);
    for (size_t k = 0; k < shapes.size(); ++k) {
      SCOPED_TRACE(k);
      const ceres::Solver::Summary expected =
          SolveByStock(options, stock[k].get());
      ExpectAsStock(summary.problems[k],
                    expected,
                    tolerance(expected),
                    ours[k].get(),
                    &compared);
    }
  });
  EXPECT_GT(compared.num_windows, 0);
  // A decision may differ where a cost hardly changes.
  EXPECT_GE(compared.num_same,
            0.98 * static_cast<double>(compared.num_windows));
  return compared;
}

TEST_F(ModelWindows, OfRandomShapesEndAsStockCeres) {
  // Products of J'J lose 1e-16 times the square of the condition of J; 2e-11
  // was seen. Residuals that vanish agree to 2e-9 of those at the start.
  CompareWithStock([](Random*, ceres::Solver::Options*) {},
                   [](const ceres::Solver::Summary& expected) {
                     double tolerance = 1e-10 * expected.final_cost;
                     if (expected.final_cost < 1e-6 * expected.initial_cost) {
                       tolerance += 4e-9 * std::sqrt(expected.final_cost *
                                                     expected.initial_cost) +
                                    4e-18 * expected.initial_cost;
                     }
                     return tolerance;
                   });
}

void SetDogleg(ceres::DoglegType type, ceres::Solver::Options* options) {
  options->trust_region_strategy_type = ceres::DOGLEG;
  options->dogleg_type = type;
}

class DoglegWindows : public ::testing::TestWithParam<ceres::DoglegType> {
 protected:
  void SetUp() override { SkipWithoutDevice(); }
};

TEST_P(DoglegWindows, OfRandomShapesEndAsStockCeres) {
  const Compared compared = CompareWithStock(
      [](Random* random, ceres::Solver::Options* options) {
        SetDogleg(GetParam(), options);
        // Both points are within the region, or one is, or none.
        options->initial_trust_region_radius =
            random->OneOf({1e4, 30.0, 3.0, 0.3});
        // Scaled columns have a norm of about 1.
        options->min_lm_diagonal = random->OneOf({1e-6, 1e-6, 0.9});
      },
      [](const ceres::Solver::Summary& expected) {
        // H + mu E^2 has a condition of n / mu at most, so rounding changes
        // J d by n 1e-16 / mu of |r|, and costs by that part of the first.
        return expected.num_effective_parameters_reduced *
               std::numeric_limits<double>::epsilon() / 1e-8 *
               expected.initial_cost;
      });
  EXPECT_GT(compared.num_rejected, 0);
}

TEST_P(DoglegWindows, HaveTheSameBitsInAnyBatch) {
  ceres::Solver::Options options = SomeOptions();
  SetDogleg(GetParam(), &options);
  options.initial_trust_region_radius = 3.0;
  ExpectSameBitsInAnyBatch(options);
}

INSTANTIATE_TEST_SUITE_P(Both,
                         DoglegWindows,
                         ::testing::Values(ceres::TRADITIONAL_DOGLEG,
                                           ceres::SUBSPACE_DOGLEG));

TEST_F(ModelWindows, ThatAreNotValidLeaveOthersAlone) {
  const std::vector<WindowShape> shapes(8, SomeShapes()[0]);
  const Windows windows = MakeWindows(shapes);
  const Windows expected = MakeWindows({shapes[0]});
  ceres::Solver::Options options = SomeOptions();
  SolveWindows(options, expected);
  *windows[1]->depth(3) = std::numeric_limits<double>::quiet_NaN();
  // Its functor fails.
  *windows[2]->depth(4) = 2e3;
  const std::vector<double> start = windows[2]->Values();
  windows[3]->problem()->SetParameterLowerBound(windows[3]->depth(0), 0, 1e-3);
  static OwnLoss own_loss;
  PosePriorError error{1.0, {0, 0, 0, 1, 0, 0, 0}};
  windows[4]->problem()->AddResidualBlock(
      new PosePriorCost(error), &own_loss, windows[4]->pose(1));
  windows[5]->problem()->AddResidualBlock(
      new ceres::AutoDiffCostFunction<PosePriorError, 6, 7>(
          new PosePriorError(error)),
      nullptr,
      windows[5]->pose(1));
  const BatchSummary summary = SolveWindows(options, windows);
  const std::vector<std::string> reasons = {"",
                                            "a value is not valid",
                                            "an evaluation of the window",
                                            "bounds",
                                            "user-defined",
                                            "model",
                                            "",
                                            ""};
  for (size_t k = 0; k < windows.size(); ++k) {
    SCOPED_TRACE(k);
    const ProblemSummary& one = summary.problems[k];
    EXPECT_NE(one.path_reason.find(reasons[k]), std::string::npos)
        << one.path_reason;
    EXPECT_EQ(one.solved_as,
              reasons[k].empty() ? SOLVED_AS_WINDOW : SOLVED_AS_PROBLEM);
    if (reasons[k].empty()) {
      EXPECT_EQ(windows[k]->Values(), expected[0]->Values());
    }
  }
  EXPECT_EQ(summary.problems[1].termination_type, ceres::FAILURE);
  EXPECT_EQ(summary.problems[2].termination_type, ceres::FAILURE);
  EXPECT_EQ(windows[2]->Values(), start);
}

// Nothing is seen of a depth, a pose or a direction: D alone holds them.
TEST_F(ModelWindows, OfDependentColumnsEndAsStockCeres) {
  WindowShape shape;
  shape.has_prior = false;
  shape.has_speeds = false;
  shape.num_frames = 2;
  shape.num_depths = 1;
  shape.num_points = 1;
  for (int64_t seed = 1; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    shape.seed = seed;
    const Windows ours = MakeWindows({shape});
    const Windows stock = MakeWindows({shape});
    ceres::Solver::Options options = SomeOptions();
    const BatchSummary summary = SolveWindows(options, ours);
    const ceres::Solver::Summary expected =
        SolveByStock(options, stock[0].get());
    EXPECT_EQ(summary.problems[0].solved_as, SOLVED_AS_WINDOW)
        << summary.problems[0].path_reason;
    EXPECT_NEAR(summary.problems[0].final_cost,
                expected.final_cost,
                1e-9 * expected.initial_cost);
  }
}

TEST_F(ModelWindows, AreSummarizedInFull) {
  const Windows windows = MakeWindows(SomeShapes());
  const Windows stock = MakeWindows(SomeShapes());
  std::vector<ceres::Problem*> problems;
  for (const auto& window : windows) {
    problems.push_back(window->problem());
  }
  BatchSummary summary;
  std::vector<Summary> full;
  std::string error;
  ASSERT_TRUE(
      SolveBatch(SomeOptions(), OnMachine(), problems, &summary, &error, &full))
      << error;
  EXPECT_EQ(summary.num_windows, 5);
  for (size_t k = 0; k < windows.size(); ++k) {
    const ceres::Solver::Summary expected =
        SolveByStock(SomeOptions(), stock[k].get());
    EXPECT_EQ(full[k].num_effective_parameters_reduced,
              expected.num_effective_parameters_reduced);
    EXPECT_EQ(full[k].num_residual_blocks_reduced,
              expected.num_residual_blocks_reduced);
    EXPECT_EQ(full[k].num_residuals_reduced, expected.num_residuals_reduced);
    EXPECT_EQ(full[k].num_parameter_blocks_reduced,
              expected.num_parameter_blocks_reduced);
    EXPECT_NEAR(
        full[k].fixed_cost, expected.fixed_cost, 1e-12 * expected.initial_cost);
  }
}

// More iterations than are queued at once, and a stop before the first.
TEST_F(ModelWindows, RunAsLongAsTheyMay) {
  ceres::Solver::Options options = SomeOptions();
  options.max_num_iterations = 200;
  options.function_tolerance = 0.0;
  options.gradient_tolerance = 0.0;
  options.parameter_tolerance = 0.0;
  const Windows windows = MakeWindows({SomeShapes()[0]});
  const BatchSummary summary = SolveWindows(options, windows);
  EXPECT_EQ(summary.problems[0].solved_as, SOLVED_AS_WINDOW);
  EXPECT_GT(summary.problems[0].num_successful_steps +
                summary.problems[0].num_unsuccessful_steps,
            20);
  const Windows stopped = MakeWindows({SomeShapes()[0]});
  StopFlag stop;
  stop.Stop();
  BatchSummary of_stopped;
  std::string error;
  ASSERT_TRUE(SolveBatch(options,
                         OnMachine(),
                         {stopped[0]->problem()},
                         &of_stopped,
                         &error,
                         nullptr,
                         &stop));
  EXPECT_EQ(of_stopped.problems[0].termination_type, ceres::USER_FAILURE);
}

// A covariance is right to a hundredth, or there is none: random matrices whose
// least singular value comes near to what rounding leaves of it.
TEST_F(ModelWindows, HaveNoCovarianceOfRounding) {
  using Matrix = Eigen::Matrix<long double, 12, 12>;
  int num_found = 0;
  int num_none = 0;
  ForEachCase(200, [&](Random* random) {
    Eigen::Matrix<double, 12, 12> a;
    for (int e = 0; e < 144; ++e) {
      a(e / 12, e % 12) = random->Uniform(-1.0, 1.0);
    }
    const Eigen::JacobiSVD<Eigen::MatrixXd> svd(
        a, Eigen::ComputeFullU | Eigen::ComputeFullV);
    Eigen::VectorXd sizes = svd.singularValues();
    sizes[11] = sizes[0] * std::pow(10.0, random->Uniform(-8.5, -5.0));
    a = svd.matrixU() * sizes.asDiagonal() * svd.matrixV().transpose();
    LinearError error;
    for (int e = 0; e < 144; ++e) {
      error.matrix[e] = a(e / 12, e % 12);
    }
    SlidingWindow window(SomeOptions(), OnMachine());
    std::string what;
    const int kind = window.AddBlockKind(3, nullptr, &what);
    const int rows = window.AddResidualKind<LinearCost>(
        {kind, kind, kind, kind}, nullptr, &what);
    // Beside one model alone it would be a fit.
    const int depths = window.AddBlockKind(1, nullptr, &what);
    const int others =
        window.AddResidualKind<DelayPriorCost>({depths}, nullptr, &what);
    const double ones[3] = {1.0, 1.0, 1.0};
    for (int64_t k = 0; k < 4; ++k) {
      ASSERT_TRUE(window.AddBlock(kind, k, ones, &what)) << what;
      ASSERT_TRUE(window.WantCovariance(kind, k, true, &what)) << what;
    }
    ASSERT_TRUE(window.AddBlock(depths, 0, ones, &what)) << what;
    ASSERT_TRUE(window.AddResidual(others, DelayPriorError{0.0}, {0}, &what) &&
                window.AddResidual(rows, error, {0, 1, 2, 3}, &what))
        << what;
    BatchSummary summary;
    ASSERT_TRUE(window.Solve(&summary, &what)) << what;
    EXPECT_EQ(summary.problems[0].solved_as, SOLVED_AS_WINDOW);
    const BlockCovariance& found = summary.covariances[0];
    if (found.values.empty()) {
      EXPECT_NE(found.message, "");
      ++num_none;
      return;
    }
    ++num_found;
    const Matrix inverse = a.cast<long double>().fullPivLu().inverse();
    const Matrix expected = inverse * inverse.transpose();
    for (int i = 0; i < 12; ++i) {
      for (int j = 0; j < 12; ++j) {
        EXPECT_NEAR(found.values[12 * i + j],
                    static_cast<double>(expected(i, j)),
                    0.01 * std::sqrt(static_cast<double>(expected(i, i)) *
                                     static_cast<double>(expected(j, j))));
      }
    }
  });
  // With CERES_EXT_NUM_CASES there may be few.
  if (num_found + num_none >= 200) {
    EXPECT_GT(num_found, 20);
    EXPECT_GT(num_none, 20);
  }
}

// Stopped in flight, far behind the iterations that are queued at once.
TEST_F(ModelWindows, StopWhileTheyRun) {
  ceres::Solver::Options options = SomeOptions();
  options.max_num_iterations = 1000000;
  options.function_tolerance = 0.0;
  options.gradient_tolerance = 0.0;
  options.parameter_tolerance = 0.0;
  // Steps are so short that the cost falls as long as this runs.
  options.initial_trust_region_radius = 1e-9;
  options.max_trust_region_radius = 1e-9;
  options.min_trust_region_radius = 1e-300;
  WindowShape shape;
  shape.num_frames = 2;
  shape.num_depths = 1;
  const Windows windows = MakeWindows({shape});
  StopFlag stop;
  BatchSummary summary;
  std::string error;
  std::thread thread([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    stop.Stop();
  });
  EXPECT_TRUE(SolveBatch(options,
                         OnMachine(),
                         {windows[0]->problem()},
                         &summary,
                         &error,
                         nullptr,
                         &stop))
      << error;
  thread.join();
  const ProblemSummary& one = summary.problems[0];
  EXPECT_EQ(one.termination_type, ceres::USER_SUCCESS) << one.message;
  EXPECT_LT(one.num_successful_steps + one.num_unsuccessful_steps, 1000000);
  EXPECT_LT(one.final_cost, one.initial_cost);
}

// Long loops of steps that are small or rejected.
ceres::Solver::Options SlowOptions() {
  ceres::Solver::Options options = SomeOptions();
  options.max_num_iterations = 100000;
  options.initial_trust_region_radius = 1e-6;
  options.max_trust_region_radius = 1e-6;
  options.function_tolerance = 0.0;
  options.gradient_tolerance = 0.0;
  options.parameter_tolerance = 0.0;
  return options;
}

TEST_F(ModelWindows, WithoutTimeEndAtTheStart) {
  for (const auto strategy : {ceres::LEVENBERG_MARQUARDT, ceres::DOGLEG}) {
    ceres::Solver::Options options = SomeOptions();
    options.trust_region_strategy_type = strategy;
    options.max_solver_time_in_seconds = 0.0;
    const Windows windows = MakeWindows(SomeShapes());
    const Windows stock = MakeWindows(SomeShapes());
    const BatchSummary summary = SolveWindows(options, windows);
    for (size_t k = 0; k < windows.size(); ++k) {
      SCOPED_TRACE(k);
      const ceres::Solver::Summary expected =
          SolveByStock(options, stock[k].get());
      const ProblemSummary& one = summary.problems[k];
      EXPECT_EQ(one.solved_as, SOLVED_AS_WINDOW) << one.path_reason;
      EXPECT_EQ(one.termination_type, expected.termination_type);
      EXPECT_EQ(one.num_successful_steps, expected.num_successful_steps);
      EXPECT_EQ(one.num_unsuccessful_steps, expected.num_unsuccessful_steps);
      EXPECT_EQ(one.final_cost, one.initial_cost);
      EXPECT_EQ(windows[k]->Values(), MakeWindows(SomeShapes())[k]->Values());
      EXPECT_EQ(one.message.find("Maximum solver time reached. Total solver "
                                 "time: "),
                0u)
          << one.message;
    }
  }
}

// With so many iterations and no limit of time it ends at the same values.
TEST_F(ModelWindows, KeepTheBestStateOfTheirTime) {
  ceres::Solver::Options options = SlowOptions();
  const WindowShape shape = SomeShapes()[3];
  Windows windows;
  ProblemSummary one;
  // The first iterations take longer on some machines.
  for (double seconds = 1e-3;
       one.num_successful_steps < 3 && seconds < 100.0 && !HasFailure();
       seconds *= 2.0) {
    windows = MakeWindows({shape});
    options.max_solver_time_in_seconds = seconds;
    one = SolveWindows(options, windows).problems[0];
    EXPECT_EQ(one.solved_as, SOLVED_AS_WINDOW) << one.path_reason;
    EXPECT_EQ(one.termination_type, ceres::NO_CONVERGENCE) << one.message;
    EXPECT_NE(one.message.find("Maximum solver time"), std::string::npos)
        << one.message;
  }
  ASSERT_GE(one.num_successful_steps, 3);
  EXPECT_LT(one.final_cost, one.initial_cost);
  options.max_solver_time_in_seconds = 1e9;
  options.max_num_iterations =
      one.num_successful_steps + one.num_unsuccessful_steps - 1;
  const Windows expected = MakeWindows({shape});
  const BatchSummary summary = SolveWindows(options, expected);
  EXPECT_EQ(windows[0]->Values(), expected[0]->Values());
  EXPECT_EQ(one.final_cost, summary.problems[0].final_cost);
}

// Other kinds do not take these options.
TEST_F(ModelWindows, AloneTakeDoglegStepsAndLimitsOfTime) {
  const auto reason_of = [](const ceres::Solver::Options& options) {
    std::vector<Case> cases = {MakeCase(3, 30, 3, 9, 1)};
    Batch batch(cases, nullptr);
    BatchSummary summary;
    EXPECT_TRUE(SolveBatch(options, OnMachine(), &batch.batch, &summary));
    EXPECT_EQ(summary.num_windows, 0);
    return summary.problems[0].path_reason;
  };
  ceres::Solver::Options options = SomeOptions();
  SetDogleg(ceres::SUBSPACE_DOGLEG, &options);
  EXPECT_EQ(reason_of(options), "trust_region_strategy_type is DOGLEG");
  options = SomeOptions();
  options.max_solver_time_in_seconds = 100.0;
  EXPECT_EQ(reason_of(options), "max_solver_time_in_seconds is limited");
}

}  // namespace
}  // namespace ceres_ext
