// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Problems of many shapes by the full path against stock Ceres's exact step:
// priors, shared intrinsics, poses in two blocks with manifolds, several kinds
// of observations, frames that are eliminated, rows without eliminated blocks.
// On the host and, where there is one, on a device, real or emulated.

#include <cmath>
#include <functional>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "ceres/autodiff_cost_function.h"
#include "ceres/ceres.h"
#include "ceres/manifold.h"
#include "ceres/product_manifold.h"
#include "ceres_ext/bal_cost_functions.h"
#include "ceres_ext/solve.h"
#include "gtest/gtest.h"
#include "tests/common/bal_test_problem.h"
#include "tests/common/functors.h"
#include "tests/common/has_device.h"
#include "tests/common/own_manifold.h"
#include "tests/common/random_rows.h"

#ifdef CERES_EXT_EMULATED
#include "tests/common/functors.cu"
#endif

namespace ceres_ext {
namespace {

// The evaluators of functors.
enum class Evaluator { kCeres, kCeresExt };

// The data of one problem: where its blocks live as long as it.
struct Case {
  explicit Case(Evaluator evaluator_in = Evaluator::kCeres)
      : evaluator(evaluator_in) {}

  template <int kNumResiduals, int... Ns, typename Functor>
  ceres::CostFunction* Cost(const Functor& functor) const {
    return CostOf<kNumResiduals, Ns...>(evaluator == Evaluator::kCeresExt,
                                        functor);
  }

  Evaluator evaluator;
  BalTestProblem bal;
  std::vector<double> intrinsics;
  std::vector<double> others;
  std::unique_ptr<ceres::Problem> problem;
  ceres::Solver::Options options;
};

struct Shape {
  const char* name;
  // Fills a case; the same numbers each time.
  void (*make)(Case*);
  // The report on who evaluates.
  const char* reason;
};

void SetOptions(Case* c) {
  c->options = TestOptions(&c->bal, 2);
  c->options.linear_solver_ordering = nullptr;
  c->options.max_num_iterations = 100;
  c->options.function_tolerance = 1e-14;
  c->options.gradient_tolerance = 1e-14;
  c->options.parameter_tolerance = 1e-14;
  c->options.eta = 1e-4;
}

void MakeObservations(Case* c, int camera_size = 9) {
  c->bal = MakeBalTestProblem(8, 80, 5, camera_size);
  c->problem = BuildProblem(&c->bal, Derivatives::kAnalytic);
  SetOptions(c);
}

void PriorOnACamera(Case* c) {
  MakeObservations(c);
  c->problem->AddResidualBlock(
      c->Cost<9, 9>(Prior<9>::Of(3.0, c->bal.camera(2))),
      nullptr,
      c->bal.camera(2));
}

// Points that rows of two batches see are eliminated in two steps.
void PriorsOnPoints(Case* c) {
  MakeObservations(c);
  for (int i = 0; i < c->bal.num_points(); i += 3) {
    c->problem->AddResidualBlock(
        c->Cost<3, 3>(Prior<3>::Of(0.5 + i, c->bal.point(i))),
        nullptr,
        c->bal.point(i));
  }
}

void DepthsOfObservations(Case* c) {
  MakeObservations(c);
  for (size_t k = 0; k < c->bal.camera_id.size(); k += 4) {
    c->problem->AddResidualBlock(c->Cost<1, 9, 3>(Depth{-4.0}),
                                 new ceres::CauchyLoss(1.0),
                                 c->bal.camera(c->bal.camera_id[k]),
                                 c->bal.point(c->bal.point_id[k]));
  }
}

// Half of the observations by cameras of ten parameters.
void TwoKindsOfCameras(Case* c) {
  MakeObservations(c);
  const BalTestProblem other = MakeBalTestProblem(8, 80, 5, 10);
  c->others = other.cameras;
  std::mt19937 random(3);
  std::normal_distribution<double> noise;
  for (size_t k = 0; k < other.camera_id.size(); k += 2) {
    double* camera = &c->others[10 * other.camera_id[k]];
    double prediction[2];
    AutodiffReprojection<4>{0.0, 0.0}(
        camera, c->bal.point(other.point_id[k]), prediction);
    c->problem->AddResidualBlock(
        CreateBalReprojectionErrorQuaternion(prediction[0] + noise(random),
                                             prediction[1] + noise(random)),
        nullptr,
        camera,
        c->bal.point(other.point_id[k]));
    if (c->problem->GetManifold(camera) == nullptr) {
      c->problem->SetManifold(camera, new BalCameraManifold());
    }
  }
}

void SharedIntrinsics(Case* c) {
  c->bal = MakeBalTestProblem(8, 80, 5, 9);
  c->intrinsics.assign(c->bal.camera(0) + 6, c->bal.camera(0) + 9);
  c->problem = std::make_unique<ceres::Problem>();
  SetOptions(c);
  for (size_t k = 0; k < c->bal.camera_id.size(); ++k) {
    // The measurements are those of cameras that differ a little.
    c->problem->AddResidualBlock(
        c->Cost<2, 6, 3, 3>(SplitReprojection{c->bal.observations[2 * k],
                                              c->bal.observations[2 * k + 1]}),
        nullptr,
        c->bal.camera(c->bal.camera_id[k]),
        c->intrinsics.data(),
        c->bal.point(c->bal.point_id[k]));
  }
  c->problem->SetParameterBlockConstant(c->bal.camera(0));
}

// As COLMAP up to 3.13 has it: first pose constant, one intrinsic constant, a
// robust loss, a prior on each position.
void SplitPoses(Case* c) {
  c->bal = MakeBalTestProblem(8, 80, 5, 10);
  c->intrinsics.assign(c->bal.camera(0) + 7, c->bal.camera(0) + 10);
  c->problem = std::make_unique<ceres::Problem>();
  SetOptions(c);
  auto* loss = new ceres::CauchyLoss(3.0);
  for (size_t k = 0; k < c->bal.camera_id.size(); ++k) {
    double* camera = c->bal.camera(c->bal.camera_id[k]);
    c->problem->AddResidualBlock(
        c->Cost<2, 4, 3, 3, 3>(SplitReprojection{
            c->bal.observations[2 * k], c->bal.observations[2 * k + 1]}),
        loss,
        camera,
        camera + 4,
        c->intrinsics.data(),
        c->bal.point(c->bal.point_id[k]));
  }
  for (int i = 0; i < c->bal.num_cameras(); ++i) {
    double* camera = c->bal.camera(i);
    c->problem->SetManifold(camera, new ceres::QuaternionManifold());
    c->problem->AddResidualBlock(
        c->Cost<3, 3>(Prior<3>::Of(10.0, camera + 4)), nullptr, camera + 4);
  }
  c->problem->SetParameterBlockConstant(c->bal.camera(0));
  c->problem->SetParameterBlockConstant(c->bal.camera(0) + 4);
  c->problem->SetManifold(c->intrinsics.data(),
                          new ceres::SubsetManifold(3, {2}));
}

// Points on spheres and planes, and one with a user-defined manifold.
void SetPointManifolds(Case* c) {
  for (int j = 0; j < c->bal.num_points(); ++j) {
    if (j % 3 == 0) {
      c->problem->SetManifold(c->bal.point(j), new ceres::SphereManifold<3>());
    } else if (j % 3 == 1) {
      c->problem->SetManifold(c->bal.point(j),
                              new ceres::SubsetManifold(3, {j % 2}));
    }
  }
  c->problem->SetManifold(c->bal.point(8), new OwnManifold(3));
  c->problem->SetParameterBlockConstant(c->bal.point(9));
}

// Observations that this library evaluates.
void ManifoldsOfObservations(Case* c) {
  MakeObservations(c);
  SetPointManifolds(c);
  const auto set = [c](int camera, ceres::Manifold* manifold) {
    c->problem->SetManifold(c->bal.camera(camera), manifold);
  };
  using ceres::EuclideanManifold;
  using ceres::LineManifold;
  using ceres::ProductManifold;
  using ceres::SphereManifold;
  using ceres::SubsetManifold;
  const SubsetManifold focal_length(3, {1, 2});
  set(0,
      new ProductManifold<EuclideanManifold<6>, SubsetManifold>(
          EuclideanManifold<6>(), focal_length));
  set(1, new OwnManifold(9));
  set(2,
      new ProductManifold<LineManifold<3>, SubsetManifold>(LineManifold<3>(),
                                                           focal_length));
  set(3,
      new ProductManifold<EuclideanManifold<3>,
                          ProductManifold<SphereManifold<ceres::DYNAMIC>,
                                          EuclideanManifold<ceres::DYNAMIC>>>(
          EuclideanManifold<3>(),
          ProductManifold<SphereManifold<ceres::DYNAMIC>,
                          EuclideanManifold<ceres::DYNAMIC>>(
              SphereManifold<ceres::DYNAMIC>(3),
              EuclideanManifold<ceres::DYNAMIC>(3))));
  set(5, new SubsetManifold(9, {0, 4}));
  set(6,
      new ProductManifold<OwnManifold, SphereManifold<3>>(OwnManifold(6),
                                                          SphereManifold<3>()));
  c->problem->SetParameterBlockConstant(c->bal.camera(7));
}

// Rows that Ceres evaluates, as COLMAP from 4 on has it.
void ManifoldsOfPoses(Case* c) {
  c->bal = MakeBalTestProblem(8, 80, 5, 10);
  c->intrinsics.assign(c->bal.camera(0) + 7, c->bal.camera(0) + 10);
  c->problem = std::make_unique<ceres::Problem>();
  SetOptions(c);
  for (int i = 0; i < c->bal.num_cameras(); ++i) {
    const double* camera = c->bal.camera(i);
    for (const int j : {1, 2, 3, 0, 4, 5, 6}) {
      c->others.push_back(camera[j]);
    }
  }
  for (size_t k = 0; k < c->bal.camera_id.size(); ++k) {
    c->problem->AddResidualBlock(
        c->Cost<2, 7, 3, 3>(PoseReprojection{c->bal.observations[2 * k],
                                             c->bal.observations[2 * k + 1]}),
        nullptr,
        &c->others[7 * c->bal.camera_id[k]],
        c->intrinsics.data(),
        c->bal.point(c->bal.point_id[k]));
  }
  SetPointManifolds(c);
  using ceres::EigenQuaternionManifold;
  using Pose = ceres::ProductManifold<EigenQuaternionManifold,
                                      ceres::EuclideanManifold<3>>;
  using Half =
      ceres::ProductManifold<EigenQuaternionManifold, ceres::SubsetManifold>;
  using Own = ceres::ProductManifold<EigenQuaternionManifold, OwnManifold>;
  auto* pose = new Pose;
  for (int i = 1; i < c->bal.num_cameras(); ++i) {
    ceres::Manifold* manifold = pose;
    if (i == 2) {
      manifold =
          new Half(EigenQuaternionManifold(), ceres::SubsetManifold(3, {0}));
    } else if (i == 3) {
      manifold = new Own(EigenQuaternionManifold(), OwnManifold(3));
    }
    c->problem->SetManifold(&c->others[7 * i], manifold);
  }
  c->problem->SetParameterBlockConstant(c->others.data());
}

// Few points, many frames: the frames' six columns are eliminated.
void FramesEliminated(Case* c) {
  c->bal = MakeBalTestProblem(40, 12, 40, 9);
  c->intrinsics.assign(c->bal.camera(0) + 6, c->bal.camera(0) + 9);
  c->problem = std::make_unique<ceres::Problem>();
  SetOptions(c);
  auto ordering = std::make_shared<ceres::ParameterBlockOrdering>();
  for (size_t k = 0; k < c->bal.camera_id.size(); ++k) {
    double* camera = c->bal.camera(c->bal.camera_id[k]);
    double* point = c->bal.point(c->bal.point_id[k]);
    c->problem->AddResidualBlock(
        c->Cost<2, 6, 3, 3>(SplitReprojection{c->bal.observations[2 * k],
                                              c->bal.observations[2 * k + 1]}),
        nullptr,
        camera,
        c->intrinsics.data(),
        point);
    ordering->AddElementToGroup(camera, 0);
    ordering->AddElementToGroup(point, 1);
  }
  ordering->AddElementToGroup(c->intrinsics.data(), 1);
  c->options.linear_solver_ordering = ordering;
  for (int i = 0; i < 2; ++i) {
    c->problem->AddResidualBlock(
        c->Cost<3, 3>(Prior<3>::Of(100.0, c->bal.point(i))),
        nullptr,
        c->bal.point(i));
  }
}

// A chain with loops; every other block is independent of all others.
void PoseGraph(Case* c) {
  constexpr int kNumPoses = 40;
  c->bal = MakeBalTestProblem(3, 3, 3, 9);  // For its options alone.
  SetOptions(c);
  std::mt19937 random(5);
  std::normal_distribution<double> normal;
  c->others.resize(6 * kNumPoses);
  for (double& value : c->others) {
    value = normal(random);
  }
  c->problem = std::make_unique<ceres::Problem>();
  const auto add = [&](int a, int b) {
    Between between;
    for (double& value : between.difference) {
      value = normal(random);
    }
    c->problem->AddResidualBlock(c->Cost<6, 6, 6>(between),
                                 nullptr,
                                 &c->others[6 * a],
                                 &c->others[6 * b]);
  };
  for (int i = 0; i + 1 < kNumPoses; ++i) {
    add(i, i + 1);
    if (i % 3 == 0 && i + 7 < kNumPoses) {
      add(i, i + 7);
    }
  }
  c->problem->SetParameterBlockConstant(c->others.data());
}

void OneBlock(Case* c) {
  c->bal = MakeBalTestProblem(3, 3, 3, 9);
  SetOptions(c);
  c->others = {1.0, -2.0, 3.0, 0.5, 0.25, 4.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0};
  c->problem = std::make_unique<ceres::Problem>();
  c->problem->AddResidualBlock(
      c->Cost<6, 6>(Prior<6>::Of(2.0, c->others.data())),
      nullptr,
      &c->others[6]);
}

const Shape kShapes[] = {
    {"PriorOnACamera", PriorOnACamera, "1 by Ceres"},
    {"PriorsOnPoints", PriorsOnPoints, "27 by Ceres"},
    {"DepthsOfObservations", DepthsOfObservations, "100 by Ceres"},
    {"TwoKindsOfCameras", TwoKindsOfCameras, "by this library"},
    {"SharedIntrinsics",
     SharedIntrinsics,
     "all residual blocks are evaluated "
     "by Ceres"},
    {"SplitPoses", SplitPoses, "by Ceres"},
    {"ManifoldsOfObservations", ManifoldsOfObservations, "by this library"},
    {"ManifoldsOfPoses", ManifoldsOfPoses, "by Ceres"},
    {"FramesEliminated", FramesEliminated, "by Ceres"},
    {"PoseGraph", PoseGraph, "by Ceres"},
    {"OneBlock", OneBlock, "by Ceres"},
};

class AnyProblem : public ::testing::TestWithParam<
                       std::tuple<Shape, DeviceType, Evaluator>> {
 protected:
  Case MakeOurs() const {
    Case ours(std::get<2>(GetParam()));
    std::get<0>(GetParam()).make(&ours);
    return ours;
  }
  void SetUp() override {
    if (std::get<1>(GetParam()) == DEVICE_CUDA && !HasDevice()) {
      GTEST_SKIP() << "skipped: no CUDA device";
    }
  }
  Options ExtOptions() const {
    Options ext_options;
    ext_options.device = std::get<1>(GetParam());
    ext_options.fallback = FALLBACK_REFUSE;
    return ext_options;
  }
};

TEST_P(AnyProblem, EndsWhereStockEnds) {
  const Shape& shape = std::get<0>(GetParam());
  Case stock;
  shape.make(&stock);
  stock.options.linear_solver_type = ceres::SPARSE_SCHUR;
  ceres::Solver::Summary expected;
  ceres::Solve(stock.options, stock.problem.get(), &expected);
  ASSERT_TRUE(expected.IsSolutionUsable()) << expected.message;

  std::vector<double> first;
  for (int run = 0; run < 2; ++run) {
    Case ours = MakeOurs();
    Summary summary;
    Solve(ours.options, ExtOptions(), ours.problem.get(), &summary);
    ASSERT_EQ(summary.path, PATH_FULL) << summary.path_reason;
    EXPECT_NE(summary.path_reason.find(
                  ours.evaluator == Evaluator::kCeresExt
                      ? "all residual blocks are evaluated by this library"
                      : shape.reason),
              std::string::npos)
        << summary.path_reason;
    if (summary.linear_solver_type_used == ceres::ITERATIVE_SCHUR) {
      EXPECT_EQ(summary.schur_structure_given, expected.schur_structure_given);
    }
    ASSERT_TRUE(summary.IsSolutionUsable()) << summary.message;
    EXPECT_NEAR(summary.initial_cost,
                expected.initial_cost,
                1e-12 * expected.initial_cost);
    // A cost of zero is reached to the rounding of the residuals.
    EXPECT_NEAR(summary.final_cost,
                expected.final_cost,
                1e-6 * expected.final_cost + 1e-20 * expected.initial_cost);
    std::vector<double> all = ours.bal.cameras;
    for (const auto* values :
         {&ours.bal.points, &ours.intrinsics, &ours.others}) {
      all.insert(all.end(), values->begin(), values->end());
    }
    if (run == 0) {
      first = all;
    } else {
      EXPECT_EQ(all, first) << "other bits in the second run";
    }
  }
}

TEST_P(AnyProblem, EveryConfigurationEndsThere) {
  const Shape& shape = std::get<0>(GetParam());
  Case stock;
  shape.make(&stock);
  stock.options.linear_solver_type = ceres::SPARSE_SCHUR;
  ceres::Solver::Summary expected;
  ceres::Solve(stock.options, stock.problem.get(), &expected);
  constexpr auto kSingle = PRECONDITIONER_BLOCKS_SINGLE;
  constexpr auto kMerged = PRECONDITIONER_BLOCKS_MERGED;
  constexpr auto kSchur = ceres::ITERATIVE_SCHUR;
  constexpr auto kSeries = ceres::SCHUR_POWER_SERIES_EXPANSION;
  for (const auto& [type,
                    preconditioner,
                    blocks,
                    recomputed,
                    use_spse_initialization] :
       {std::tuple{kSchur, ceres::JACOBI, kSingle, false, false},
        std::tuple{kSchur, ceres::SCHUR_JACOBI, kSingle, false, true},
        std::tuple{kSchur, ceres::SCHUR_JACOBI, kMerged, false, false},
        std::tuple{kSchur, ceres::SCHUR_JACOBI, kMerged, false, true},
        std::tuple{kSchur, ceres::SCHUR_JACOBI, kSingle, true, false},
        std::tuple{kSchur, kSeries, kSingle, true, true},
        std::tuple{ceres::CGNR, ceres::JACOBI, kSingle, false, true}}) {
    Case ours = MakeOurs();
    ours.options.linear_solver_type = type;
    ours.options.preconditioner_type = preconditioner;
    ours.options.use_spse_initialization = use_spse_initialization;
    ours.options.max_linear_solver_iterations = 2000;
    Options ext_options = ExtOptions();
    ext_options.preconditioner_blocks = blocks;
    ext_options.jacobian = recomputed ? JACOBIAN_RECOMPUTED : JACOBIAN_STORED;
    Summary summary;
    Solve(ours.options, ext_options, ours.problem.get(), &summary);
    SCOPED_TRACE(summary.method);
    if (summary.path != PATH_FULL) {
      EXPECT_TRUE(recomputed) << summary.path_reason;
      EXPECT_NE(summary.path_reason.find("RECOMPUTED"), std::string::npos)
          << summary.path_reason;
      continue;
    }
    EXPECT_NEAR(summary.final_cost,
                expected.final_cost,
                1e-6 * expected.final_cost + 1e-20 * expected.initial_cost)
        << summary.message;
  }
}

// Wherever memory ends, large arrays stay on the host, or it solves the
// problem.
TEST_P(AnyProblem, OutOfDeviceMemoryIsTheHosts) {
  if (std::get<1>(GetParam()) != DEVICE_CUDA) {
    GTEST_SKIP() << "skipped: of devices alone";
  }
  constexpr int kNumLimits = 16;
  Summary whole;
  for (int i = kNumLimits; i > 0; --i) {
    Case ours = MakeOurs();
    Options ext_options = ExtOptions();
    ext_options.fallback = FALLBACK_TO_CERES;
    ext_options.cuda_memory_limit_bytes =
        i == kNumLimits ? 0 : whole.memory_bytes * i / kNumLimits;
    Summary summary;
    Solve(ours.options, ext_options, ours.problem.get(), &summary);
    ASSERT_EQ(summary.path, PATH_FULL) << summary.path_reason;
    ASSERT_TRUE(summary.IsSolutionUsable()) << summary.message;
    if (i == kNumLimits) {
      ASSERT_GT(summary.memory_bytes, kNumLimits);
      whole = summary;
      continue;
    }
    const bool is_on_host = summary.device.rfind("host", 0) == 0;
    if (i == 1) {
      EXPECT_TRUE(is_on_host) << summary.device;  // There is no index.
    }
    EXPECT_NE(summary.device.find(is_on_host ? "memory"
                                             : " in page-locked memory of "
                                               "the host"),
              std::string::npos)
        << summary.device;
    EXPECT_NEAR(summary.final_cost,
                whole.final_cost,
                1e-6 * whole.final_cost + 1e-20 * whole.initial_cost);
  }
}

// F'F has blocks beside its diagonal where rows have several blocks of F: the
// power series is then not that of S, but stock's.
TEST_P(AnyProblem, PowerSeriesTakesStocksSteps) {
  for (const bool use_spse_initialization : {false, true}) {
    SCOPED_TRACE(use_spse_initialization);
    ceres::Solver::Summary stock;
    Summary ours;
    for (const bool is_stock : {true, false}) {
      Case c(is_stock ? Evaluator::kCeres : std::get<2>(GetParam()));
      std::get<0>(GetParam()).make(&c);
      c.options.preconditioner_type = ceres::SCHUR_POWER_SERIES_EXPANSION;
      c.options.use_spse_initialization = use_spse_initialization;
      c.options.eta = 0.1;
      c.options.max_num_iterations = 3;
      if (is_stock) {
        ceres::Solve(c.options, c.problem.get(), &stock);
      } else {
        Solve(c.options, ExtOptions(), c.problem.get(), &ours);
      }
    }
    ASSERT_EQ(ours.path, PATH_FULL) << ours.path_reason;
    ASSERT_EQ(ours.iterations.size(), stock.iterations.size());
    for (size_t i = 0; i < stock.iterations.size(); ++i) {
      EXPECT_EQ(ours.iterations[i].linear_solver_iterations,
                stock.iterations[i].linear_solver_iterations);
      EXPECT_NEAR(
          ours.iterations[i].cost,
          stock.iterations[i].cost,
          1e-6 * stock.iterations[i].cost + 1e-20 * stock.iterations[0].cost);
    }
  }
}

std::string CaseName(
    const ::testing::TestParamInfo<std::tuple<Shape, DeviceType, Evaluator>>&
        info) {
  return std::string(std::get<0>(info.param).name) +
         (std::get<2>(info.param) == Evaluator::kCeres ? "_Ceres"
                                                       : "_CeresExt") +
         (std::get<1>(info.param) == DEVICE_CUDA ? "_Device" : "_Host");
}

INSTANTIATE_TEST_SUITE_P(
    Shapes,
    AnyProblem,
    ::testing::Combine(::testing::ValuesIn(kShapes),
                       ::testing::Values(DEVICE_HOST, DEVICE_CUDA),
                       ::testing::Values(Evaluator::kCeres,
                                         Evaluator::kCeresExt)),
    CaseName);

// More rows than go to a device at a time.
TEST(ManyRows, TakeTheSameStepsAsStock) {
#ifdef CERES_EXT_EMULATED
  GTEST_SKIP() << "skipped: takes too long on an emulated device";
#endif
  ceres::Solver::Summary stock;
  for (const bool ours : {false, true}) {
    Case c;
    c.bal = MakeBalTestProblem(30, 25000, 6, 9);
    c.intrinsics.assign(c.bal.camera(0) + 6, c.bal.camera(0) + 9);
    c.problem = std::make_unique<ceres::Problem>();
    SetOptions(&c);
    c.options.max_num_iterations = 3;
    for (size_t k = 0; k < c.bal.camera_id.size(); ++k) {
      c.problem->AddResidualBlock(
          c.Cost<2, 6, 3, 3>(SplitReprojection{c.bal.observations[2 * k],
                                               c.bal.observations[2 * k + 1]}),
          nullptr,
          c.bal.camera(c.bal.camera_id[k]),
          c.intrinsics.data(),
          c.bal.point(c.bal.point_id[k]));
    }
    if (!ours) {
      ceres::Solve(c.options, c.problem.get(), &stock);
      continue;
    }
    Options ext_options;
    ext_options.device = DEVICE_CUDA;
    Summary summary;
    Solve(c.options, ext_options, c.problem.get(), &summary);
    ASSERT_EQ(summary.path, PATH_FULL) << summary.path_reason;
    ASSERT_EQ(summary.iterations.size(), stock.iterations.size());
    for (size_t i = 0; i < stock.iterations.size(); ++i) {
      // PCG may end an iteration earlier or later.
      EXPECT_NEAR(summary.iterations[i].linear_solver_iterations,
                  stock.iterations[i].linear_solver_iterations,
                  1);
      EXPECT_NEAR(summary.iterations[i].cost,
                  stock.iterations[i].cost,
                  1e-4 * stock.iterations[i].cost);
    }
  }
}

// A cost function that returns false, or throws, somewhere away from the start.
struct Fragile : public ceres::SizedCostFunction<1, 3> {
  explicit Fragile(bool throws_exception) : throws(throws_exception) {}
  bool Evaluate(double const* const* x,
                double* residuals,
                double** jacobians) const override {
    if (x[0][0] > 1.0 || fail) {
      if (throws) {
        throw std::runtime_error("x is too large");
      }
      return false;
    }
    residuals[0] = x[0][0] - 2.0;
    if (jacobians != nullptr && jacobians[0] != nullptr) {
      jacobians[0][0] = 1.0;
      jacobians[0][1] = jacobians[0][2] = 0.0;
    }
    return true;
  }
  bool throws;
  bool fail = false;
};

TEST(FragileCostFunctions, FailASmallerStepIsTaken) {
  for (const DeviceType device : {DEVICE_HOST, DEVICE_CUDA}) {
    if (device == DEVICE_CUDA && !HasDevice()) {
      continue;
    }
    for (const bool throws : {false, true}) {
      double x[3] = {0.0, 0.0, 0.0};
      ceres::Problem problem;
      problem.AddResidualBlock(new Fragile(throws), nullptr, x);
      ceres::Solver::Options options;
      options.linear_solver_type = ceres::ITERATIVE_SCHUR;
      options.preconditioner_type = ceres::SCHUR_JACOBI;
      options.num_threads = 2;
      options.logging_type = ceres::SILENT;
      Options ext_options;
      ext_options.device = device;
      Summary summary;
      Solve(options, ext_options, &problem, &summary);
      EXPECT_EQ(summary.path, PATH_FULL) << summary.path_reason;
      EXPECT_GT(summary.num_unsuccessful_steps, 0);
      EXPECT_GT(x[0], 0.0);
      EXPECT_LE(x[0], 1.0);
    }
  }
}

// A manifold that can't make the first three steps. Before them Ceres needs one
// along the gradient, which it cannot omit.
class FragileManifold final : public OwnManifold {
 public:
  explicit FragileManifold(bool throws)
      : OwnManifold(9, &fault_),
        step_fault_(throws ? Fault::kThrows : Fault::kFails) {}
  bool Plus(const double* x, const double* delta, double* y) const override {
    ++num_calls_;
    fault_ = num_calls_ > 1 && num_calls_ < 5 ? step_fault_ : Fault::kNone;
    struct Reset {
      Fault* fault;
      ~Reset() { *fault = Fault::kNone; }
    } reset{&fault_};
    return OwnManifold::Plus(x, delta, y);
  }

 private:
  const Fault step_fault_;
  mutable Fault fault_ = Fault::kNone;
  mutable int num_calls_ = 0;
};

TEST(FragileManifolds, ASmallerStepIsTaken) {
  for (const bool throws : {false, true}) {
    for (const auto derivatives :
         {Derivatives::kAnalytic, Derivatives::kAutodiff}) {
      for (const DeviceType device : {DEVICE_HOST, DEVICE_CUDA}) {
        if (device == DEVICE_CUDA && !HasDevice()) {
          continue;
        }
        BalTestProblem bal = MakeBalTestProblem(8, 60, 4, 9);
        auto problem = BuildProblem(&bal, derivatives);
        problem->SetManifold(bal.camera(1), new FragileManifold(throws));
        ceres::Solver::Options options = TestOptions(&bal, 2);
        options.max_num_iterations = 50;
        Options ext_options;
        ext_options.device = device;
        Summary summary;
        Solve(options, ext_options, problem.get(), &summary);
        EXPECT_EQ(summary.path, PATH_FULL) << summary.path_reason;
        EXPECT_EQ(summary.device.find("host") == 0, device == DEVICE_HOST);
        EXPECT_GE(summary.num_unsuccessful_steps, 3);
        EXPECT_LT(summary.final_cost, 0.5 * summary.initial_cost);
      }
    }
  }
}

TEST(FragileCostFunctions, FailAtTheStart) {
  double x[3] = {0.0, 0.0, 0.0};
  ceres::Problem problem;
  auto* cost = new Fragile(true);
  cost->fail = true;
  problem.AddResidualBlock(cost, nullptr, x);
  ceres::Solver::Options options;
  options.linear_solver_type = ceres::CGNR;
  options.preconditioner_type = ceres::JACOBI;
  options.logging_type = ceres::SILENT;
  Summary summary;
  ::testing::internal::CaptureStderr();
  Solve(options, Options(), &problem, &summary);
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(summary.termination_type, ceres::FAILURE);
  for (const std::string& text : {log, summary.message}) {
    EXPECT_NE(text.find("residual block 0 threw: x is too large"),
              std::string::npos)
        << text;
  }
}

}  // namespace
}  // namespace ceres_ext
