// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Jacobians of users' cost functions that are recomputed in each operation,
// against stored ones: operation by operation, in whole solves, and in cases
// that are not supported.

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "Eigen/Core"
#include "ceres/autodiff_cost_function.h"
#include "ceres/evaluator.h"
#include "ceres/linear_solver.h"
#include "ceres/loss_function.h"
#include "ceres/manifold.h"
#include "ceres/parameter_block.h"
#include "ceres/preprocessor.h"
#include "ceres/problem_impl.h"
#include "ceres/program.h"
#include "ceres/sparse_matrix.h"
#include "ceres_ext/device_cost_function.h"
#include "ceres_ext/import/import_rows.h"
#include "ceres_ext/plan/solver_choice.h"
#include "ceres_ext/session/kept_machines.h"
#include "ceres_ext/solve.h"
#include "ceres_ext/under_ceres/machine_solve.h"
#include "ceres_ext/under_ceres/program_rows.h"
#include "cuda_kernels/machine/host_context.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/functors.h"
#include "tests/common/has_device.h"
#include "tests/common/own_loss.h"
#include "tests/common/random_cases.h"
#include "tests/common/random_rows.h"

#ifdef CERES_EXT_EMULATED
#include "tests/front/recomputed_cost_function_functors.cu"
#endif

namespace ceres_ext {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kEps = std::numeric_limits<double>::epsilon();

// How far a recomputed Jacobian may be from a stored one, in units of the
// largest value of a vector. On an emulated device both are the same operations
// in the same order. nvcc may contract the functor's products and sums
// differently in two kernels: a few dozen operations an entry, as in
// jacobian_test.cc.
#ifdef CERES_EXT_EMULATED
constexpr double kOfEntries = 0.0;
#else
constexpr double kOfEntries = 500 * kEps;
#endif

enum class Kind {
  kCameraPoint,
  kHeldColumns,      // of all cameras, so that stored blocks have fewer columns
  kPointPose,        // the point first, a manifold on poses
  kPoseCameraPoint,  // cameras are constant
  kWidePoint,
  kWritten,
};

struct Case {
  const char* name;
  Kind kind = Kind::kCameraPoint;
  bool losses = false;
  bool priors = false;
  bool constants = false;
};

// Tracks at the edges of warps, of points that a warp sums and of tiles, and
// short ones; rows of one camera and point repeat in the long ones.
std::vector<int> TrackLengths() {
  std::vector<int> lengths = {1, 31, 32, 33, 64, 65, 300, 256, 257};
  for (int i = 0; i < 60; ++i) {
    lengths.push_back(2 + i % 7);
  }
  return lengths;
}

// The same numbers for the same arguments. Problem: ceres::Problem or
// ProblemImpl.
struct RandomProblem {
  template <typename Problem>
  RandomProblem(const Case& c, int num_cameras, Problem* problem)
      : kind(c.kind) {
    Random random(5);
    const std::vector<int> tracks = TrackLengths();
    const int camera_size = c.kind == Kind::kPointPose         ? 7
                            : c.kind == Kind::kPoseCameraPoint ? 6
                            : c.kind == Kind::kWidePoint       ? 14
                            : c.kind == Kind::kWritten         ? 4
                                                               : 9;
    points = RandomBlocks(static_cast<int>(tracks.size()), 3, &random);
    cameras = RandomBlocks(num_cameras, camera_size, &random);
    fixed = RandomBlocks(3, 4, &random);
    for (auto& point : points) {
      problem->AddParameterBlock(point.data(), 3);
    }
    const auto loss = [&](int k) -> ceres::LossFunction* {
      if (!c.losses) {
        return nullptr;
      }
      switch (k % 4) {
        case 0:
          return new ceres::HuberLoss(0.5);
        case 1:
          return new ceres::TukeyLoss(4.0);
        case 2:
          return new ceres::TolerantLoss(1.0, 0.5);
        default:
          return nullptr;
      }
    };
    for (size_t p = 0; p < tracks.size(); ++p) {
      double* const x = points[p].data();
      for (int k = 0; k < tracks[p]; ++k) {
        double* const camera = cameras[random.Below(num_cameras)].data();
        const double a = Normal(&random);
        const double b = Normal(&random);
        const auto add = [&](ceres::CostFunction* cost,
                             std::vector<double*> blocks) {
          problem->AddResidualBlock(
              cost, loss(k), blocks.data(), static_cast<int>(blocks.size()));
        };
        switch (c.kind) {
          case Kind::kCameraPoint:
          case Kind::kHeldColumns:
            add(new DeviceAutoDiffCostFunction<CameraPoint, 2, 9, 3>(
                    CameraPoint{a, b}),
                {camera, x});
            break;
          case Kind::kPointPose:
            add(new DeviceAutoDiffCostFunction<PointPose, 2, 3, 7>(
                    PointPose{a, b}),
                {x, camera});
            break;
          case Kind::kPoseCameraPoint:
            add(new DeviceAutoDiffCostFunction<PoseCameraPoint, 2, 6, 4, 3>(
                    PoseCameraPoint{a, b}),
                {camera, fixed[k % fixed.size()].data(), x});
            break;
          case Kind::kWidePoint:
            add(new DeviceAutoDiffCostFunction<WidePoint, 2, 14, 3>(
                    WidePoint{a, b}),
                {camera, x});
            break;
          case Kind::kWritten:
            add(new DeviceCostFunction<Written>({1.0 + 0.1 * a}), {camera, x});
            break;
        }
      }
      if (c.priors && p % 2 == 0) {
        problem->AddResidualBlock(
            // Which makes the points those of two batches.
            new ceres::AutoDiffCostFunction<Prior<3>, 3, 3>(
                new Prior<3>{0.3, {0.1, 0.1, 0.1}}),
            nullptr,
            &x,
            1);
      }
    }
    for (size_t i = 0; i < cameras.size(); ++i) {
      double* const camera = cameras[i].data();
      if (c.kind == Kind::kPointPose) {
        MakePose(camera, problem);
      } else if (c.kind == Kind::kHeldColumns) {
        problem->SetManifold(camera,
                             new ceres::SubsetManifold(9, {0, 3, 6, 7}));
      } else if (c.kind == Kind::kWidePoint && i % 2 == 0) {
        problem->SetManifold(camera, new ceres::SubsetManifold(14, {2, 8}));
      }
    }
    if (c.kind == Kind::kPoseCameraPoint) {
      for (auto& block : fixed) {
        problem->SetParameterBlockConstant(block.data());
      }
    }
    if (c.constants) {
      problem->SetParameterBlockConstant(cameras[1].data());
      problem->SetParameterBlockConstant(points[3].data());
      problem->SetManifold(points[10].data(),
                           new ceres::SubsetManifold(3, {1}));
    }
  }

  std::shared_ptr<ceres::ParameterBlockOrdering> Ordering() {
    auto ordering = std::make_shared<ceres::ParameterBlockOrdering>();
    for (auto& block : points) {
      ordering->AddElementToGroup(block.data(), 0);
    }
    for (auto& block : cameras) {
      ordering->AddElementToGroup(block.data(), 1);
    }
    for (auto& block : fixed) {
      if (kind == Kind::kPoseCameraPoint) {
        ordering->AddElementToGroup(block.data(), 1);
      }
    }
    return ordering;
  }
  // Every value that varies by as little as rounding does; 0: by nothing.
  void Perturb(int seed) {
    std::mt19937 generator(seed);
    std::uniform_real_distribution<double> uniform(-kEps, kEps);
    for (auto* blocks : {&points, &cameras}) {
      for (auto& block : *blocks) {
        for (double& value : block) {
          value *= 1.0 + (seed == 0 ? 0.0 : uniform(generator));
        }
      }
    }
  }
  std::vector<double> State() const {
    std::vector<double> state;
    for (const auto* blocks : {&points, &cameras}) {
      for (const auto& block : *blocks) {
        state.insert(state.end(), block.begin(), block.end());
      }
    }
    return state;
  }

  Kind kind;
  Blocks points, cameras, fixed;
};

// ---------------------------------------------------------------------------
// Operations.

// The options that Ceres gets for a problem, on the device.
class Objects {
 public:
  Objects(const Case& c,
          JacobianType jacobian,
          ceres::PreconditionerType type) {
    auto* impl = new ceres::internal::ProblemImpl();
    pp_.gradient_checking_problem.reset(impl);  // owned by the pp
    pp_.problem = impl;
    problem_ = std::make_unique<RandomProblem>(c, 12, impl);
    std::string error;
    pp_.reduced_program = impl->program().CreateReducedProgram(
        &pp_.removed_parameter_blocks, &pp_.fixed_cost, &error);
    EXPECT_NE(pp_.reduced_program, nullptr) << error;
    auto* const program = pp_.reduced_program.get();
    program->SetParameterOffsetsAndIndex();
    pp_.options.linear_solver_type = ceres::ITERATIVE_SCHUR;
    pp_.options.preconditioner_type = type;
    pp_.options.min_linear_solver_iterations = 4;
    pp_.options.max_linear_solver_iterations = 4;
    pp_.options.num_threads = 2;
    ImportOptions import_options;
    import_options.num_eliminate_blocks = 0;
    for (const auto* block : program->parameter_blocks()) {
      import_options.num_eliminate_blocks += block->Size() == 3 ? 1 : 0;
    }
    kernels::HostContext context(2);
    ProblemStructure structure;
    EXPECT_TRUE(
        ImportProgram(*program, import_options, &context, &structure, &error))
        << error;
    EXPECT_GT(structure.views.size(), 0);
    std::shared_ptr<KeptMachines::Device> device;
    kernels::Status status = kept_.GetDevice({}, 2, &device);
    EXPECT_TRUE(status.ok()) << status.message;
    solve_ = CreateMachineSolve(device);
    SolvePlan plan;
    plan.on_device = true;
    plan.recomputed = jacobian == JACOBIAN_RECOMPUTED;
    plan.step = ToStepOptions({}, pp_.options);
    plan.keeps_best = true;
    status =
        solve_->Setup(plan, &structure, &pp_, &failure_, &summary_, &objects_);
    EXPECT_TRUE(status.ok()) << status.message;
    EXPECT_THAT(solve_->notes(), ::testing::IsEmpty());
    EXPECT_THAT(summary_.method,
                HasSubstr(jacobian == JACOBIAN_RECOMPUTED
                              ? "recomputed Jacobian (double)"
                              : "stored Jacobian (double)"));
    jacobian_ = objects_.evaluator->CreateJacobian();
    state_.resize(program->NumParameters());
    program->ParameterBlocksToStateVector(state_.data());
  }

  struct Result {
    std::string what;
    Eigen::VectorXd values;
    // 1: entries of J; more: sums of as many of them, or results of these.
    double terms;
  };

  // Everything that evaluator, Jacobian and linear solver give at a state, then
  // with scaled columns, the cost elsewhere having been asked for between.
  std::vector<Result> Everything() {
    std::vector<Result> results;
    const int num_rows = jacobian_->num_rows();
    const int num_columns = jacobian_->num_cols();
    std::mt19937 random(9);
    std::normal_distribution<double> normal;
    const auto any = [&](int n) {
      return Eigen::VectorXd::NullaryExpr(n, [&] { return normal(random); });
    };
    for (int round = 0; round < 2; ++round) {
      Vector state(this, state_);
      Vector residuals(this, Eigen::VectorXd::Zero(num_rows));
      Vector gradient(this, Eigen::VectorXd::Zero(num_columns));
      double cost = 0.0;
      EXPECT_TRUE(objects_.evaluator->Evaluate(state.data(),
                                               &cost,
                                               residuals.data(),
                                               gradient.data(),
                                               jacobian_.get()));
      results.push_back({"cost", Eigen::VectorXd::Constant(1, cost), 1.0});
      results.push_back({"residuals", residuals.Get(), 1.0});
      results.push_back({"gradient", gradient.Get(), 1e3});
      // A step that is not taken.
      Vector elsewhere(this, state_ + 0.1 * any(state_.size()));
      EXPECT_TRUE(objects_.evaluator->Evaluate(
          elsewhere.data(), &cost, nullptr, nullptr, nullptr));
      const Eigen::VectorXd scale = any(num_columns).cwiseAbs();
      const Eigen::VectorXd x = any(num_columns);
      const Eigen::VectorXd y = any(num_rows);
      const Eigen::VectorXd damping = 0.5 + any(num_columns).cwiseAbs().array();
      for (const bool scaled : {false, true}) {
        if (scaled) {
          Vector device_scale(this, scale);
          jacobian_->ScaleColumns(device_scale.data());
        }
        ceres::Matrix dense;
        jacobian_->ToDenseMatrix(&dense);
        results.push_back(
            {"J", Eigen::Map<Eigen::VectorXd>(dense.data(), dense.size()), 1});
        Vector device_x(this, x);
        Vector device_y(this, y);
        jacobian_->RightMultiplyAndAccumulate(device_x.data(), device_y.data());
        results.push_back({"J x", device_y.Get(), 20.0});
        jacobian_->LeftMultiplyAndAccumulate(residuals.data(), device_x.data());
        results.push_back({"J'r", device_x.Get(), 1e3});
        jacobian_->SquaredColumnNorm(device_x.data());
        results.push_back({"norms", device_x.Get(), 1e3});
        Vector device_damping(this, damping);
        ceres::internal::LinearSolver::PerSolveOptions per_solve;
        per_solve.D = device_damping.data();
        per_solve.r_tolerance = 0.0;
        per_solve.q_tolerance = 0.0;
        Vector step(this, Eigen::VectorXd::Zero(num_columns));
        const auto summary = objects_.linear_solver->Solve(
            jacobian_.get(), residuals.data(), per_solve, step.data());
        EXPECT_NE(summary.termination_type,
                  ceres::internal::LinearSolverTerminationType::FATAL_ERROR)
            << summary.message;
        results.push_back({"step", step.Get(), 1e6});
      }
      state_ += 0.05 * any(state_.size());
    }
    return results;
  }

 private:
  // A vector of Ceres's loop, which is in the memory of the device.
  class Vector {
   public:
    Vector(Objects* objects, const Eigen::VectorXd& values)
        : vectors_(objects->objects_.vectors.get()), size_(values.size()) {
      values_ = vectors_->Allocate(static_cast<int>(size_));
      vectors_->CopyFromHost(static_cast<int>(size_), values.data(), values_);
    }
    ~Vector() { vectors_->Free(values_); }
    double* data() { return values_; }
    Eigen::VectorXd Get() {
      Eigen::VectorXd values(size_);
      vectors_->CopyToHost(static_cast<int>(size_), values_, values.data());
      return values;
    }

   private:
    ceres::internal::TrustRegionVectors* vectors_;
    Eigen::Index size_;
    double* values_;
  };

  std::unique_ptr<RandomProblem> problem_;
  ceres::internal::PreprocessedProblem pp_;
  Summary summary_;
  KeptMachines kept_;
  Failure failure_;
  std::unique_ptr<MachineSolve> solve_;
  ProgramObjects objects_;
  std::unique_ptr<ceres::internal::SparseMatrix> jacobian_;
  Eigen::VectorXd state_;
};

// With other columns other rows of cameras are added first, and rows of more
// than ten columns are added by other kernels.
bool HasOtherSums(Kind kind) {
  return kind == Kind::kHeldColumns || kind == Kind::kWidePoint;
}

using Operations =
    ::testing::TestWithParam<std::tuple<Case, ceres::PreconditionerType>>;
class RecomputedOperations : public Operations {};

TEST_P(RecomputedOperations, GiveWhatStoredOnesGive) {
  if (!HasDevice()) {
    GTEST_SKIP() << "skipped: no CUDA device";
  }
  const auto& [c, type] = GetParam();
  const auto stored = Objects(c, JACOBIAN_STORED, type).Everything();
  const auto recomputed = Objects(c, JACOBIAN_RECOMPUTED, type).Everything();
  ASSERT_EQ(recomputed.size(), stored.size());
  for (size_t i = 0; i < stored.size(); ++i) {
    SCOPED_TRACE(stored[i].what + ", " + std::to_string(i));
    const Eigen::VectorXd& a = recomputed[i].values;
    const Eigen::VectorXd& b = stored[i].values;
    ASSERT_EQ(a.size(), b.size());
    const double largest = b.lpNorm<Eigen::Infinity>();
    EXPECT_TRUE(std::isfinite(largest));
    EXPECT_GT(largest, 0.0);
    const double of_sums = HasOtherSums(c.kind) ? kEps : 0.0;
    EXPECT_LE((a - b).lpNorm<Eigen::Infinity>(),
              stored[i].terms * (kOfEntries + of_sums) * largest);
  }
}

const Case kCases[] = {
    {"CameraPoint"},
    {"Losses", Kind::kCameraPoint, /*losses=*/true},
    {"SharedPoints", Kind::kCameraPoint, true, /*priors=*/true},
    {"Constants", Kind::kCameraPoint, false, false, /*constants=*/true},
    {"HeldColumns", Kind::kHeldColumns},
    {"PointPose", Kind::kPointPose, true, false, true},
    {"PoseCameraPoint", Kind::kPoseCameraPoint, true},
    {"WidePoint", Kind::kWidePoint, true},
    {"Written", Kind::kWritten, true, false, true},
};

INSTANTIATE_TEST_SUITE_P(
    Jacobian,
    RecomputedOperations,
    ::testing::Combine(::testing::ValuesIn(kCases),
                       ::testing::Values(ceres::IDENTITY,
                                         ceres::JACOBI,
                                         ceres::SCHUR_JACOBI,
                                         ceres::SCHUR_POWER_SERIES_EXPANSION)),
    [](const auto& info) {
      return std::string(std::get<0>(info.param).name) + "_" +
             ceres::PreconditionerTypeToString(std::get<1>(info.param));
    });

// ---------------------------------------------------------------------------
// Solves.

struct Solved {
  Summary summary;
  std::vector<double> state;
};

Solved SolveCase(const Case& c,
                 const Options& ext_options,
                 ceres::LossFunction* loss_of_first = nullptr,
                 int perturbation = 0) {
  ceres::Problem problem;
  RandomProblem random(c, 12, &problem);
  random.Perturb(perturbation);
  if (loss_of_first != nullptr) {
    problem.AddResidualBlock(
        new DeviceAutoDiffCostFunction<CameraPoint, 2, 9, 3>(CameraPoint{1, 2}),
        loss_of_first,
        random.cameras[0].data(),
        random.points[0].data());
  }
  ceres::Solver::Options options;
  options.linear_solver_type = ceres::ITERATIVE_SCHUR;
  options.preconditioner_type = ceres::SCHUR_JACOBI;
  options.linear_solver_ordering = random.Ordering();
  options.logging_type = ceres::SILENT;
  options.num_threads = 2;
  options.max_num_iterations = 12;
  // Steps that go too far, so that some are rejected.
  options.initial_trust_region_radius = 1e6;
  Solved solved;
  Solve(options, ext_options, &problem, &solved.summary);
  solved.state = random.State();
  return solved;
}

Options ExtOptions(JacobianType jacobian) {
  Options options;
  options.device = DEVICE_CUDA;
  options.fallback = FALLBACK_REFUSE;
  options.jacobian = jacobian;
  return options;
}

class RecomputedSolves : public ::testing::TestWithParam<Case> {};

TEST_P(RecomputedSolves, TakeTheStepsOfStoredOnes) {
  if (!HasDevice()) {
    GTEST_SKIP() << "skipped: no CUDA device";
  }
  const Solved stored = SolveCase(GetParam(), ExtOptions(JACOBIAN_STORED));
  const Options options = ExtOptions(JACOBIAN_RECOMPUTED);
  const Solved recomputed = SolveCase(GetParam(), options);
  const Solved again = SolveCase(GetParam(), options);
  const Summary& a = recomputed.summary;
  const Summary& b = stored.summary;
  ASSERT_EQ(a.path, PATH_FULL) << a.path_reason;
  EXPECT_THAT(a.method, HasSubstr("recomputed Jacobian (double)"));
  EXPECT_THAT(a.path_reason, Not(HasSubstr("stored")));
  EXPECT_EQ(a.method.find("other rows stored (double)") != std::string::npos,
            GetParam().priors || GetParam().constants);
  EXPECT_GT(a.num_successful_steps, 1);
  EXPECT_EQ(again.state, recomputed.state) << "other bits";
  // The same steps, as far as rounding goes where nvcc or the columns differ: a
  // product of PCG differs by eps times the condition of S, and a step that
  // differs by 1e-7 changes the cost by as much of itself where it still falls.
  // As long as PCG takes as many iterations, costs agree to 1e-6 (the bound of
  // solve_test.cc, whose reasoning this is), and the ends as well; or, where
  // the problem is worse conditioned, to ten times what stored solves differ by
  // whose starts differ by as little as rounding.
  const bool same = kOfEntries == 0.0 && !HasOtherSums(GetParam().kind);
  std::vector<Summary> nearby;
  for (int seed = 1; !same && seed <= 4; ++seed) {
    nearby.push_back(
        SolveCase(GetParam(), ExtOptions(JACOBIAN_STORED), nullptr, seed)
            .summary);
  }
  const auto bound = [&](double relative, auto&& cost) {
    double most = 0.0;
    for (const Summary& summary : nearby) {
      most = std::max(most, std::abs(cost(summary) - cost(b)));
    }
    return same ? 0.0 : std::max(relative * cost(b), 10.0 * most);
  };
  if (same) {
    EXPECT_EQ(recomputed.state, stored.state);
    ASSERT_EQ(a.iterations.size(), b.iterations.size());
  }
  for (size_t i = 0; i < std::min(a.iterations.size(), b.iterations.size());
       ++i) {
    if (a.iterations[i].linear_solver_iterations !=
        b.iterations[i].linear_solver_iterations) {
      EXPECT_GE(i, 3u) << "PCG iteration counts part too early to compare.";
      break;
    }
    EXPECT_NEAR(
        a.iterations[i].cost,
        b.iterations[i].cost,
        bound(1e-6, [i](const Summary& s) {
          return s.iterations[std::min(i, s.iterations.size() - 1)].cost;
        }));
  }
  EXPECT_NEAR(a.final_cost, b.final_cost, bound(1e-5, [](const Summary& s) {
                return s.final_cost;
              }));
  // 12 columns and more of two residuals, less the copy of a state.
  EXPECT_LT(a.memory_bytes, b.memory_bytes);
}

INSTANTIATE_TEST_SUITE_P(Jacobian,
                         RecomputedSolves,
                         ::testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

TEST(RecomputedSolves, RejectSteps) {
  if (!HasDevice()) {
    GTEST_SKIP() << "skipped: no CUDA device";
  }
  const Solved solved = SolveCase({"", Kind::kCameraPoint, true},
                                  ExtOptions(JACOBIAN_RECOMPUTED));
  EXPECT_GT(solved.summary.num_unsuccessful_steps, 0)
      << "what the tests above are to see";
}

#ifndef CERES_EXT_EMULATED
TEST(RecomputedSolves, TakeTheSameStepsAsAGraph) {
  if (!HasDevice()) {
    GTEST_SKIP() << "skipped: no CUDA device";
  }
  Options options = ExtOptions(JACOBIAN_RECOMPUTED);
  const Solved one_by_one = SolveCase(kCases[1], options);
  options.cuda_graph = CUDA_GRAPH_ON;
  const Solved graph = SolveCase(kCases[1], options);
  EXPECT_EQ(graph.summary.path, PATH_FULL) << graph.summary.path_reason;
  EXPECT_EQ(graph.state, one_by_one.state);
}
#endif

// Blocks are double whatever the precision.
TEST(RecomputedSolves, AreInDoubleWithMixedPrecision) {
  if (!HasDevice()) {
    GTEST_SKIP() << "skipped: no CUDA device";
  }
  Options options = ExtOptions(JACOBIAN_RECOMPUTED);
  const Solved in_double = SolveCase(kCases[0], options);
  options.precision = PRECISION_MIXED;
  const Solved mixed = SolveCase(kCases[0], options);
  EXPECT_THAT(mixed.summary.method, HasSubstr("recomputed Jacobian (double)"));
  EXPECT_EQ(mixed.state, in_double.state);
}

// ---------------------------------------------------------------------------
// Solves that use a stored Jacobian instead.

void ExpectStored(const Solved& solved, const std::string& why) {
  EXPECT_EQ(solved.summary.path, PATH_FULL) << solved.summary.path_reason;
  EXPECT_TRUE(solved.summary.IsSolutionUsable());
  EXPECT_THAT(solved.summary.method, HasSubstr("stored Jacobian"));
  EXPECT_THAT(
      solved.summary.path_reason,
      HasSubstr("the Jacobian of users' cost functions is stored, since "));
  EXPECT_THAT(solved.summary.path_reason, HasSubstr(why));
}

TEST(StoredInstead, OnTheHost) {
  Options options = ExtOptions(JACOBIAN_RECOMPUTED);
  options.device = DEVICE_HOST;
  ExpectStored(SolveCase(kCases[0], options), "the host stores it");
}

TEST(StoredInstead, OfALossOfAUsersOwn) {
  if (!HasDevice()) {
    GTEST_SKIP() << "skipped: no CUDA device";
  }
  ExpectStored(
      SolveCase(kCases[0], ExtOptions(JACOBIAN_RECOMPUTED), new OwnLoss),
      "some have a user-defined loss");
}

// One point seen by four cameras in rows that `add` adds.
template <typename Add>
Solved SolveRows(const Add& add) {
  double points[2][3] = {{0.1, 0.2, 0.3}, {0.3, 0.2, 0.1}};
  double cameras[2][9] = {{0.5}, {0.6}};
  double others[4] = {0.3, 0.4, 0.5, 0.6};
  ceres::Problem problem;
  ceres::Solver::Options options;
  options.linear_solver_ordering =
      std::make_shared<ceres::ParameterBlockOrdering>();
  for (auto& point : points) {
    for (auto& camera : cameras) {
      for (int k = 0; k < 4; ++k) {
        add(k, point, camera, others, &problem);
      }
    }
  }
  std::vector<double*> blocks;
  problem.GetParameterBlocks(&blocks);
  for (double* block : blocks) {
    options.linear_solver_ordering->AddElementToGroup(
        block, problem.ParameterBlockSize(block) == 3 ? 0 : 1);
  }
  options.linear_solver_type = ceres::ITERATIVE_SCHUR;
  options.preconditioner_type = ceres::SCHUR_JACOBI;
  options.logging_type = ceres::SILENT;
  options.max_num_iterations = 3;
  Solved solved;
  Solve(options, ExtOptions(JACOBIAN_RECOMPUTED), &problem, &solved.summary);
  return solved;
}

template <typename Functor, int... Ns>
using Cost = DeviceAutoDiffCostFunction<Functor, 2, Ns...>;

TEST(StoredInstead, OfTypesWithoutKernels) {
  if (!HasDevice()) {
    GTEST_SKIP() << "skipped: no CUDA device";
  }
  const Solved solved = SolveRows(
      [](int k, double* point, double* camera, double*, auto* problem) {
        problem->AddResidualBlock(
            new Cost<OnlyStored, 9, 3>(OnlyStored{0.1 * k, 0.2}),
            nullptr,
            camera,
            point);
      });
  ExpectStored(solved, "form::Recomputed in CERES_EXT_COST_FUNCTION");
  EXPECT_THAT(solved.summary.path_reason, HasSubstr("Smooth<2, 9, 3, 0, 8>"));
}

// recomputed_cost_function_functors.cu registers these types.
TEST(Forms, AreThoseThatTheSizesAllow) {
  if (!HasDevice()) {
    GTEST_SKIP() << "skipped: no CUDA device";
  }
  const auto forms = [](const BatchModel& model) {
    std::string names;
    names += model.GetForm(FormKind::kRows) != nullptr ? "rows " : "";
    names +=
        model.GetForm(FormKind::kRecomputed) != nullptr ? "recomputed " : "";
    names += model.GetForm(FormKind::kFits) != nullptr ? "fits" : "";
    return names;
  };
  EXPECT_EQ(forms(Cost<CameraPoint, 9, 3>({0.1, 0.2}).batch_model()),
            "rows recomputed ");
  EXPECT_EQ(forms(Cost<OnlyStored, 9, 3>({0.1, 0.2}).batch_model()), "rows ");
  // 17 values; two residuals; one residual.
  EXPECT_EQ(forms(Cost<WidePoint, 14, 3>({0.1, 0.2}).batch_model()),
            "rows recomputed ");
  EXPECT_EQ(forms(DeviceCostFunction<Written>({1.0}).batch_model()),
            "rows recomputed fits");
  EXPECT_EQ(forms(DeviceAutoDiffCostFunction<NotRecomputed, 1, 2, 2>({0.1, 0.2})
                      .batch_model()),
            "rows fits");
}

TEST(StoredInstead, OfSeveralTypes) {
  if (!HasDevice()) {
    GTEST_SKIP() << "skipped: no CUDA device";
  }
  ExpectStored(
      SolveRows(
          [](int k, double* point, double* camera, double*, auto* problem) {
            problem->AddResidualBlock(
                k == 0 ? static_cast<ceres::CostFunction*>(
                             new Cost<OnlyStored, 9, 3>(OnlyStored{0.1, 0.2}))
                       : new Cost<CameraPoint, 9, 3>(CameraPoint{0.1 * k, 0.2}),
                nullptr,
                camera,
                point);
          }),
      "not all are of one type that the device evaluates");
}

TEST(StoredInstead, OfSeveralBlocksBesideThePoint) {
  if (!HasDevice()) {
    GTEST_SKIP() << "skipped: no CUDA device";
  }
  ExpectStored(
      SolveRows([](int k, double* point, double* camera, double* x, auto* p) {
        p->AddResidualBlock(
            new Cost<PoseCameraPoint, 6, 4, 3>(PoseCameraPoint{0.1 * k, 0.2}),
            nullptr,
            camera,
            x,
            point);
      }),
      "some have several blocks beside the point that vary");
}

TEST(StoredInstead, WithoutAPointToEliminate) {
  if (!HasDevice()) {
    GTEST_SKIP() << "skipped: no CUDA device";
  }
  ceres::Problem problem;
  RandomProblem random(kCases[0], 12, &problem);
  ceres::Solver::Options options;
  options.linear_solver_type = ceres::CGNR;
  options.preconditioner_type = ceres::JACOBI;
  options.logging_type = ceres::SILENT;
  options.max_num_iterations = 3;
  Solved solved;
  Solve(options, ExtOptions(JACOBIAN_RECOMPUTED), &problem, &solved.summary);
  ExpectStored(solved, "an eliminated point and one other block");
}

TEST(StoredInstead, OfKernelsThatDoNotFit) {
  if (!HasDevice()) {
    GTEST_SKIP() << "skipped: no CUDA device";
  }
  using Form = kernels::ModelForm;
  auto& form = internal::BatchForms<
      DeviceAutoDiffCostFunction<CameraPoint, 2, 9, 3>::Model>::forms
      [static_cast<int>(FormKind::kRecomputed)];
  const Form* const good = form;
  ASSERT_NE(good, nullptr);
  const auto expect = [&](const Form& other, const std::string& why) {
    form = &other;
    ExpectStored(SolveCase(kCases[0], ExtOptions(JACOBIAN_RECOMPUTED)), why);
    form = good;
  };
  const std::string version =
      "has kernels for that of another version of this library";
  Form old = *good;
  old.version += 1;
  expect(old, version);
  Form other_params = *good;
  other_params.params_size -= 8;
  expect(other_params, version);
  Form other_device = *good;
  other_device.get_facts = [](int, Form::Facts*) { return 209; };
  other_device.error_string = [](int) { return "no kernel image"; };
  expect(other_device, "has no code for this device: no kernel image");
  Form failing = *good;
  failing.launch = [](const kernels::ModelLaunch&) { return 2; };
  failing.error_string = [](int) { return "out of luck"; };
  expect(failing,
         "can't be launched: Launch of a cost function failed: out of luck");
}

// A row whose derivative is not finite where its residual is.
TEST(RecomputedSolves, SeeDerivativesThatAreNotFinite) {
  if (!HasDevice()) {
    GTEST_SKIP() << "skipped: no CUDA device";
  }
  ::testing::internal::CaptureStderr();
  const Solved solved = SolveRows(
      [](int k, double* point, double* camera, double*, auto* problem) {
        camera[1] = k == 0 ? 0.0 : camera[1];
        problem->AddResidualBlock(
            new Cost<Steep, 9, 3>(Steep{0.1 * k}), nullptr, camera, point);
      });
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("16 of its 16 residual blocks"));
  EXPECT_THAT(solved.summary.method, HasSubstr("recomputed Jacobian"));
  EXPECT_EQ(solved.summary.termination_type, ceres::FAILURE);
}

}  // namespace
}  // namespace ceres_ext
