// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Windows that slide: the bits of windows that are submitted whole, and
// arguments that are not valid. With CERES_EXT_TEST_ON_CUDA on a device.

#include "ceres_ext/sliding_window.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "Eigen/Core"
#include "ceres/ceres.h"
#include "ceres_ext/odometry_cost_functions.h"
#include "gtest/gtest.h"
#include "problem_io/simulated_odometry.h"
#include "tests/common/exact_covariance.h"
#include "tests/front/batch_cases.h"

namespace ceres_ext {
namespace {

using PoseManifold = ceres::ProductManifold<ceres::EigenQuaternionManifold,
                                            ceres::EuclideanManifold<3>>;

// Keyframes of a window before the oldest is dropped.
constexpr int kLength = 6;
constexpr int kPoints = 8;  // that are new in each

ceres::Manifold* OfPoses() {
  static auto* const manifold = new PoseManifold;
  return manifold;
}
ceres::LossFunction* Huber() {
  static auto* const loss = new ceres::HuberLoss(1.5);
  return loss;
}

ceres::Solver::Options OdometryOptions() {
  ceres::Solver::Options options = SomeOptions();
  options.max_num_iterations = 8;
  return options;
}

// The kinds of an odometry.
struct Kinds {
  int poses = -1;
  int speeds = -1;
  int depths = -1;
  int cameras = -1;
  int offsets = -1;
  int inertial = -1;
  int sights = -1;
};

Kinds AddKinds(SlidingWindow* window) {
  std::string error;
  Kinds kinds;
  kinds.poses = window->AddBlockKind(7, OfPoses(), &error);
  kinds.speeds = window->AddBlockKind(9, nullptr, &error);
  kinds.depths = window->AddBlockKind(1, nullptr, &error);
  kinds.cameras = window->AddBlockKind(7, OfPoses(), &error);
  kinds.offsets = window->AddBlockKind(1, nullptr, &error);
  kinds.inertial = window->AddResidualKind<InertialCost>(
      {kinds.poses, kinds.speeds, kinds.poses, kinds.speeds}, nullptr, &error);
  kinds.sights = window->AddResidualKind<InverseDepthCost>(
      {kinds.poses, kinds.poses, kinds.cameras, kinds.depths, kinds.offsets},
      Huber(),
      &error);
  const auto camera = SimulatedOdometry::Camera();
  const double offset = 0.0;
  EXPECT_TRUE(window->AddBlock(kinds.cameras, 0, camera.data(), &error) &&
              window->SetConstant(kinds.cameras, 0, true, &error) &&
              window->AddBlock(kinds.offsets, 0, &offset, &error) &&
              window->SetConstant(kinds.offsets, 0, true, &error))
      << error;
  return kinds;
}

// Adds a keyframe, and marks what is too old.
void AddKeyframe(const Kinds& kinds,
                 const SimulatedOdometry::Keyframe& frame,
                 int64_t k,
                 SlidingWindow* window) {
  std::string error;
  ASSERT_TRUE(window->AddBlock(kinds.poses, k, frame.pose.data(), &error) &&
              window->AddBlock(kinds.speeds, k, frame.speed.data(), &error))
      << error;
  // The gauge.
  ASSERT_TRUE(window->SetConstant(kinds.poses, k, k == 0, &error)) << error;
  if (k > 0) {
    ASSERT_TRUE(window->AddResidual(
        kinds.inertial, frame.row, {k - 1, k - 1, k, k}, &error))
        << error;
  }
  for (const SimulatedOdometry::Sight& sight : frame.sights) {
    if (window->Values(kinds.poses, sight.anchor) == nullptr) {
      continue;
    }
    if (window->Values(kinds.depths, sight.point) == nullptr) {
      ASSERT_TRUE(window->AddBlock(
          kinds.depths, sight.point, &sight.inverse_depth, &error))
          << error;
    }
    ASSERT_TRUE(window->AddResidual(
        kinds.sights, sight.row, {sight.anchor, k, 0, sight.point, 0}, &error))
        << error;
  }
  if (k < kLength) {
    return;
  }
  ASSERT_TRUE(window->Drop(kinds.poses, k - kLength, &error)) << error;
  ASSERT_TRUE(window->Drop(kinds.speeds, k - kLength, &error)) << error;
  // Its points: every other one without a trace.
  for (const int64_t point : window->Numbers(kinds.depths)) {
    if (point / kPoints == k - kLength) {
      ASSERT_TRUE(point % 2 == 0 ? window->Drop(kinds.depths, point, &error)
                                 : window->Cut(kinds.depths, point, &error))
          << error;
    }
  }
}

// The same as lists, which are submitted whole each time.
class WholeWindow {
 public:
  struct Block {
    int64_t number;
    std::vector<double> values;
    bool is_constant = false;
    bool is_dropped = false;
  };
  template <typename Row>
  struct Residual {
    Row row;
    std::vector<int64_t> numbers;
  };
  struct Prior {
    std::shared_ptr<BlockMarginalPrior> prior;
    std::vector<std::pair<int, int64_t>> blocks;  // kind and number
  };

  WholeWindow() {
    const auto camera = SimulatedOdometry::Camera();
    kinds_[3].push_back({0, {camera.begin(), camera.end()}, true});
    kinds_[4].push_back({0, {0.0}, true});
  }

  void Add(const SimulatedOdometry::Keyframe& frame, int64_t k) {
    kinds_[0].push_back({k, {frame.pose.begin(), frame.pose.end()}, k == 0});
    kinds_[1].push_back({k, {frame.speed.begin(), frame.speed.end()}});
    if (k > 0) {
      inertial_.push_back({frame.row, {k - 1, k - 1, k, k}});
    }
    for (const SimulatedOdometry::Sight& sight : frame.sights) {
      if (PlaceOf(0, sight.anchor) < 0) {
        continue;
      }
      if (PlaceOf(2, sight.point) < 0) {
        kinds_[2].push_back({sight.point, {sight.inverse_depth}});
      }
      sights_.push_back({sight.row, {sight.anchor, k, 0, sight.point, 0}});
    }
    if (k < kLength) {
      return;
    }
    for (int kind = 0; kind < 2; ++kind) {
      kinds_[kind][PlaceOf(kind, k - kLength)].is_dropped = true;
    }
    const auto is_old = [&](int64_t point, int rest) {
      return point / kPoints == k - kLength && point % 2 == rest;
    };
    Erase(&sights_, [&](const auto& row) { return is_old(row.numbers[3], 1); });
    Erase(&kinds_[2],
          [&](const Block& block) { return is_old(block.number, 1); });
    for (Block& block : kinds_[2]) {
      block.is_dropped = is_old(block.number, 0);
    }
  }

  // A problem of Ceres that refers to the values.
  std::unique_ptr<ceres::Problem> Problem() {
    ceres::Problem::Options of_problem;
    of_problem.manifold_ownership = ceres::DO_NOT_TAKE_OWNERSHIP;
    of_problem.loss_function_ownership = ceres::DO_NOT_TAKE_OWNERSHIP;
    of_problem.cost_function_ownership = ceres::DO_NOT_TAKE_OWNERSHIP;
    auto problem = std::make_unique<ceres::Problem>(of_problem);
    const auto add = [&](ceres::CostFunction* cost_function,
                         ceres::LossFunction* loss,
                         const std::vector<std::pair<int, int64_t>>& blocks) {
      std::vector<double*> values;
      for (const auto& [kind, number] : blocks) {
        values.push_back(ValuesOf(kind, number));
      }
      problem->AddResidualBlock(cost_function, loss, values);
    };
    cost_functions_.clear();
    for (const auto& row : inertial_) {
      const auto& n = row.numbers;
      cost_functions_.push_back(std::make_unique<InertialCost>(row.row));
      add(cost_functions_.back().get(),
          nullptr,
          {{0, n[0]}, {1, n[1]}, {0, n[2]}, {1, n[3]}});
    }
    for (const auto& row : sights_) {
      const auto& n = row.numbers;
      cost_functions_.push_back(std::make_unique<InverseDepthCost>(row.row));
      add(cost_functions_.back().get(),
          Huber(),
          {{0, n[0]}, {0, n[1]}, {3, n[2]}, {2, n[3]}, {4, n[4]}});
    }
    for (const Prior& prior : priors_) {
      add(prior.prior.get(), nullptr, prior.blocks);
    }
    for (auto& kind : kinds_) {
      for (Block& block : kind) {
        double* const values = block.values.data();
        if (block.values.size() == 7) {
          problem->SetManifold(values, OfPoses());
        }
        if (block.is_constant) {
          problem->SetParameterBlockConstant(values);
        }
      }
    }
    return problem;
  }
  double* ValuesOf(int kind, int64_t number) {
    return kinds_[kind][PlaceOf(kind, number)].values.data();
  }

  // Solves arrays, and drops what is marked.
  BatchSummary Solve() {
    BatchSummary summary = SolveAndKeep();
    DropKept();
    return summary;
  }
  void DropKept() {
    if (kept_.has_value()) {
      DropMarked(*kept_);
      kept_.reset();
    }
  }
  // The blocks that are marked stay until DropKept.
  BatchSummary SolveAndKeep() {
    ProblemBatch batch;
    batch.num_problems = 1;
    std::vector<std::vector<double>> values(5);
    std::vector<std::vector<uint8_t>> is_constant(5);
    std::vector<std::vector<uint8_t>> is_dropped(5);
    std::vector<std::array<int64_t, 2>> begins(7 + priors_.size());
    bool drops_any = false;
    for (int a = 0; a < 5; ++a) {
      for (const Block& block : kinds_[a]) {
        values[a].insert(
            values[a].end(), block.values.begin(), block.values.end());
        is_constant[a].push_back(block.is_constant ? 1 : 0);
        is_dropped[a].push_back(block.is_dropped ? 1 : 0);
        drops_any |= block.is_dropped;
      }
      ArrayProblem::Parameters parameters{
          values[a].data(), static_cast<int64_t>(kinds_[a].size()), Size(a)};
      parameters.manifold = Size(a) == 7 ? OfPoses() : nullptr;
      parameters.is_constant = is_constant[a].data();
      batch.problem.AddParameters(parameters);
      begins[a] = {0, parameters.num_blocks};
      batch.parameter_begin.push_back(begins[a].data());
    }
    for (int a = 0; a < 5 && drops_any; ++a) {
      batch.drop.parameter_is_dropped.push_back(is_dropped[a].data());
    }
    std::vector<std::vector<int32_t>> places;
    places.reserve(1000);
    std::vector<InertialError<EigenQuaternion>> inertial;
    std::vector<InverseDepthError<EigenQuaternion>> sights;
    const auto indices = [&](const auto& rows, const std::vector<int>& kinds) {
      std::vector<ArrayProblem::Index> all;
      for (size_t s = 0; s < kinds.size(); ++s) {
        places.emplace_back();
        for (const auto& row : rows) {
          places.back().push_back(
              static_cast<int32_t>(PlaceOf(kinds[s], row.numbers[s])));
        }
        all.push_back({kinds[s], places.back().data()});
      }
      return all;
    };
    for (const auto& row : inertial_) {
      inertial.push_back(row.row);
    }
    for (const auto& row : sights_) {
      sights.push_back(row.row);
    }
    batch.problem.AddResiduals<InertialCost>(
        static_cast<int64_t>(inertial.size()),
        inertial.data(),
        indices(inertial_, {0, 1, 0, 1}));
    batch.problem.AddResiduals<InverseDepthCost>(
        static_cast<int64_t>(sights.size()),
        sights.data(),
        indices(sights_, {0, 0, 3, 2, 4}),
        Huber());
    begins[5] = {0, static_cast<int64_t>(inertial.size())};
    begins[6] = {0, static_cast<int64_t>(sights.size())};
    std::vector<ceres::CostFunction*> of_priors;
    for (const Prior& prior : priors_) {
      of_priors.push_back(prior.prior.get());
    }
    for (size_t k = 0; k < priors_.size(); ++k) {
      ArrayProblem::Residuals residuals;
      residuals.num_blocks = 1;
      residuals.cost_functions = &of_priors[k];
      for (const auto& [kind, number] : priors_[k].blocks) {
        places.push_back({static_cast<int32_t>(PlaceOf(kind, number))});
        residuals.blocks.push_back({kind, places.back().data()});
      }
      batch.problem.AddResiduals(residuals);
      begins[7 + k] = {0, 1};
    }
    for (size_t k = 5; k < begins.size(); ++k) {
      batch.residual_begin.push_back(begins[k].data());
    }
    BatchSummary summary;
    std::string error;
    EXPECT_TRUE(
        SolveBatch(OdometryOptions(), OnMachine(), &batch, &summary, &error))
        << error;
    for (int a = 0; a < 5; ++a) {
      auto at = values[a].begin();
      for (Block& block : kinds_[a]) {
        std::copy_n(at, Size(a), block.values.begin());
        at += Size(a);
      }
    }
    if (drops_any) {
      kept_ = summary.marginals.at(0);
    }
    return summary;
  }

  const std::vector<Block>& blocks(int kind) const { return kinds_[kind]; }

 private:
  static int Size(int kind) { return std::array<int, 5>{7, 9, 1, 7, 1}[kind]; }
  int64_t PlaceOf(int kind, int64_t number) const {
    for (size_t i = 0; i < kinds_[kind].size(); ++i) {
      if (kinds_[kind][i].number == number) {
        return static_cast<int64_t>(i);
      }
    }
    return -1;
  }
  bool IsDropped(int kind, int64_t number) const {
    return kinds_[kind][PlaceOf(kind, number)].is_dropped;
  }
  template <typename T, typename Predicate>
  static void Erase(std::vector<T>* from, const Predicate& predicate) {
    from->erase(std::remove_if(from->begin(), from->end(), predicate),
                from->end());
  }

  void DropMarked(const Marginal& marginal) {
    EXPECT_EQ(marginal.message, "");
    Prior prior{marginal.prior, {}};
    for (const Marginal::Block& block : marginal.blocks) {
      prior.blocks.emplace_back(block.parameters,
                                kinds_[block.parameters][block.block].number);
    }
    Erase(&inertial_, [&](const auto& row) {
      const auto& n = row.numbers;
      return IsDropped(0, n[0]) || IsDropped(0, n[2]);
    });
    Erase(&sights_, [&](const auto& row) {
      const auto& n = row.numbers;
      return IsDropped(0, n[0]) || IsDropped(0, n[1]) || IsDropped(2, n[3]);
    });
    Erase(&priors_, [&](const Prior& of) {
      return std::any_of(
          of.blocks.begin(), of.blocks.end(), [&](const auto& block) {
            return IsDropped(block.first, block.second);
          });
    });
    for (auto& kind : kinds_) {
      Erase(&kind, [](const Block& block) { return block.is_dropped; });
    }
    priors_.push_back(prior);
  }

  std::array<std::vector<Block>, 5> kinds_;
  std::vector<Residual<InertialError<EigenQuaternion>>> inertial_;
  std::vector<Residual<InverseDepthError<EigenQuaternion>>> sights_;
  std::vector<Prior> priors_;
  std::vector<std::unique_ptr<ceres::CostFunction>> cost_functions_;
  std::optional<Marginal> kept_;
};

TEST(SlidingWindow, HasTheBitsOfAWholeWindow) {
  SimulatedOdometry odometry(kPoints);
  SlidingWindow window(OdometryOptions(), OnMachine());
  const Kinds kinds = AddKinds(&window);
  WholeWindow whole;
  for (int64_t k = 0; k < 16; ++k) {
    SCOPED_TRACE(k);
    const SimulatedOdometry::Keyframe frame = odometry.Next();
    ASSERT_NO_FATAL_FAILURE(AddKeyframe(kinds, frame, k, &window));
    whole.Add(frame, k);
    if (k == 0) {
      continue;
    }
    BatchSummary summary;
    std::string error;
    ASSERT_TRUE(window.Solve(&summary, &error)) << error;
    const BatchSummary expected = whole.Solve();
    EXPECT_EQ(summary.problems[0].solved_as, SOLVED_AS_WINDOW)
        << summary.problems[0].path_reason;
    EXPECT_EQ(summary.problems[0].final_cost, expected.problems[0].final_cost);
    EXPECT_LT(summary.problems[0].final_cost, summary.problems[0].initial_cost);
    const int all[] = {kinds.poses, kinds.speeds, kinds.depths};
    for (int kind = 0; kind < 3; ++kind) {
      ASSERT_EQ(window.NumBlocks(all[kind]),
                static_cast<int64_t>(whole.blocks(kind).size()));
      for (const WholeWindow::Block& block : whole.blocks(kind)) {
        const double* const values = window.Values(all[kind], block.number);
        ASSERT_NE(values, nullptr);
        EXPECT_EQ(std::vector<double>(values, values + block.values.size()),
                  block.values);
      }
    }
  }
  EXPECT_EQ(window.NumBlocks(kinds.poses), kLength);
  EXPECT_EQ(window.NumPriors(), 1);
}

// The newest pose, the speed before it and a depth have one.
TEST(SlidingWindow, HasTheCovarianceOfItsBlocks) {
  SimulatedOdometry odometry(kPoints, 11);
  SlidingWindow window(OdometryOptions(), OnMachine());
  const Kinds kinds = AddKinds(&window);
  WholeWindow whole;
  for (int64_t k = 0; k < 14; ++k) {
    SCOPED_TRACE(k);
    const SimulatedOdometry::Keyframe frame = odometry.Next();
    ASSERT_NO_FATAL_FAILURE(AddKeyframe(kinds, frame, k, &window));
    whole.Add(frame, k);
    if (k < 3) {
      continue;  // Not all is observed.
    }
    const int64_t depth = window.Numbers(kinds.depths).back();
    const std::vector<std::pair<int, int64_t>> wanted = {
        {0, k}, {1, k - 1}, {2, depth}};
    const int of_kind[] = {kinds.poses, kinds.speeds, kinds.depths};
    std::string error;
    for (const auto& [kind, number] : wanted) {
      ASSERT_TRUE(window.WantCovariance(of_kind[kind], number, true, &error))
          << error;
    }
    // Constant blocks have none.
    ASSERT_TRUE(window.WantCovariance(kinds.cameras, 0, true, &error)) << error;
    BatchSummary summary;
    ASSERT_TRUE(window.Solve(&summary, &error)) << error;
    ASSERT_EQ(summary.covariances.size(), 1u);
    const BlockCovariance& found = summary.covariances[0];
    EXPECT_EQ(summary.problems[0].solved_as, SOLVED_AS_WINDOW);
    ASSERT_EQ(found.message, "");
    ASSERT_EQ(found.blocks.size(), wanted.size());
    whole.SolveAndKeep();
    std::vector<double*> blocks;
    for (size_t b = 0; b < wanted.size(); ++b) {
      EXPECT_EQ(found.blocks[b].parameters, of_kind[wanted[b].first]);
      EXPECT_EQ(found.blocks[b].block, wanted[b].second);
      blocks.push_back(whole.ValuesOf(wanted[b].first, wanted[b].second));
    }
    double tolerance = 0.0;
    const Eigen::MatrixXd expected =
        CovarianceOf(blocks, whole.Problem().get(), &tolerance);
    ASSERT_EQ(static_cast<int64_t>(found.values.size()), expected.size());
    // The tolerance means something.
    ASSERT_LT(tolerance, 1e-3);
    const auto n = expected.rows();
    for (Eigen::Index a = 0; a < n; ++a) {
      for (Eigen::Index b = 0; b < n; ++b) {
        EXPECT_NEAR(found.values[n * a + b],
                    expected(a, b),
                    tolerance * std::sqrt(expected(a, a) * expected(b, b)))
            << a << ", " << b;
      }
    }
    whole.DropKept();
    for (const auto& [kind, number] : wanted) {
      ASSERT_TRUE(window.WantCovariance(of_kind[kind], number, false, &error))
          << error;
    }
  }
}

// Nothing holds a window without its first keyframe.
TEST(SlidingWindow, SaysWhereThereIsNoCovariance) {
  SimulatedOdometry odometry(kPoints, 13);
  SlidingWindow window(OdometryOptions(), OnMachine());
  const Kinds kinds = AddKinds(&window);
  std::string error;
  for (int64_t k = 0; k < 4; ++k) {
    ASSERT_NO_FATAL_FAILURE(AddKeyframe(kinds, odometry.Next(), k, &window));
  }
  ASSERT_TRUE(window.SetConstant(kinds.poses, 0, false, &error)) << error;
  ASSERT_TRUE(window.WantCovariance(kinds.poses, 3, true, &error)) << error;
  BatchSummary summary;
  ASSERT_TRUE(window.Solve(&summary, &error)) << error;
  EXPECT_NE(summary.covariances[0].message.find("nothing holds"),
            std::string::npos)
      << summary.covariances[0].message;
  EXPECT_TRUE(summary.covariances[0].values.empty());
}

// A window that has run for long has as many blocks as at first, and the prior
// holds the path: a keyframe is within 0.2 m of the truth, where integration
// alone has lost it.
TEST(SlidingWindow, FollowsAPath) {
  constexpr int64_t kKeyframes = 60;
  SimulatedOdometry odometry(kPoints, 7);
  SlidingWindow window(OdometryOptions(), OnMachine());
  const Kinds kinds = AddKinds(&window);
  for (int64_t k = 0; k < kKeyframes; ++k) {
    ASSERT_NO_FATAL_FAILURE(AddKeyframe(kinds, odometry.Next(), k, &window));
    BatchSummary summary;
    std::string error;
    ASSERT_TRUE(k == 0 || window.Solve(&summary, &error)) << k << ": " << error;
  }
  EXPECT_EQ(window.NumBlocks(kinds.poses), kLength);
  EXPECT_EQ(window.NumPriors(), 1);
  EXPECT_LE(window.NumBlocks(kinds.depths), kPoints * kLength);
  const TrueState truth(SimulatedOdometry::kInterval * (kKeyframes - 1));
  const double* const pose = window.Values(kinds.poses, kKeyframes - 1);
  EXPECT_LT(std::hypot(pose[4] - truth.position[0],
                       pose[5] - truth.position[1],
                       pose[6] - truth.position[2]),
            0.2);
}

TEST(SlidingWindow, RefusesWhatIsNotValid) {
  SlidingWindow window(OdometryOptions(), OnMachine());
  std::string error;
  const auto says = [&](bool success, const char* what) {
    EXPECT_FALSE(success);
    EXPECT_NE(error.find(what), std::string::npos) << error;
    error.clear();
  };
  says(window.AddBlockKind(0, nullptr, &error) >= 0, "size is 0");
  says(window.AddBlockKind(9, OfPoses(), &error) >= 0, "AmbientSize 7");
  const Kinds kinds = AddKinds(&window);
  says(window.AddResidualKind<InertialCost>({0, 9}, nullptr, &error) >= 0,
       "kind is 9");
  const SimulatedOdometry::Keyframe frame = SimulatedOdometry(4).Next();
  const double* const pose = frame.pose.data();
  says(window.AddBlock(-1, 1, pose, &error), "kind is -1");
  ASSERT_TRUE(window.AddBlock(kinds.poses, 1, pose, &error)) << error;
  says(window.AddBlock(kinds.poses, 1, pose, &error), "is there already");
  // The values of a block of the same kind, which moves.
  for (int64_t number = 10; number < 20; ++number) {
    ASSERT_TRUE(window.AddBlock(
        kinds.poses, number, window.Values(kinds.poses, 1), &error));
    EXPECT_EQ(*window.Values(kinds.poses, number), pose[0]);
  }
  const double bad = std::numeric_limits<double>::quiet_NaN();
  says(window.AddBlock(kinds.depths, 1, &bad, &error), "is nan");
  says(window.SetConstant(kinds.poses, 5, true, &error), "no block 5");
  says(window.Drop(kinds.speeds, 5, &error), "no block 5");
  says(window.Cut(kinds.speeds, 5, &error), "no block 5");
  says(window.CutResiduals(9, kinds.poses, 1, &error), "is 9, expected");
  says(window.AddResidual(kinds.inertial, frame.row, {1, 1}, &error),
       "2 numbers of blocks");
  says(window.AddResidual(kinds.inertial, 1.0, {1, 1, 1, 1}, &error),
       "8 bytes");
  says(window.AddResidual(kinds.inertial, frame.row, {1, 1, 2, 2}, &error),
       "block 1: kind 1 has no block 1");
  EXPECT_EQ(window.NumResiduals(kinds.inertial), 0);
  EXPECT_EQ(window.Values(kinds.poses, 3), nullptr);
  EXPECT_EQ(window.Values(17, 3), nullptr);
  // A kind whose blocks are of other sizes than the cost function's.
  const int wrong = window.AddResidualKind<InertialCost>(
      {kinds.speeds, kinds.poses, kinds.poses, kinds.speeds}, nullptr, &error);
  ASSERT_GE(wrong, 0) << error;
  ASSERT_TRUE(window.AddBlock(kinds.speeds, 1, frame.speed.data(), &error) &&
              window.AddBlock(kinds.poses, 2, pose, &error) &&
              window.AddBlock(kinds.speeds, 2, frame.speed.data(), &error))
      << error;
  says(window.AddResidual(wrong, frame.row, {1, 1, 2, 2}, &error),
       "has size 7, but its kind has 9");
  says(window.AddResidual(kinds.inertial, frame.row, {1, 1, 1, 2}, &error),
       "has block 1 of kind 0 twice");
  EXPECT_EQ(window.NumResiduals(kinds.inertial), 0);
}

// A failed solve drops nothing, and the window can be solved afterwards.
TEST(SlidingWindow, StaysWhereASolveFails) {
  SimulatedOdometry odometry(kPoints, 5);
  SlidingWindow window(OdometryOptions(), OnMachine());
  const Kinds kinds = AddKinds(&window);
  BatchSummary summary;
  std::string error;
  for (int64_t k = 0; k <= kLength; ++k) {
    ASSERT_NO_FATAL_FAILURE(AddKeyframe(kinds, odometry.Next(), k, &window));
    ASSERT_TRUE(k == 0 || k == kLength || window.Solve(&summary, &error))
        << error;
  }
  double* const value = window.Values(kinds.speeds, 3);
  const double kept = *value;
  *value = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(window.Solve(&summary, &error));
  EXPECT_NE(error, "");
  EXPECT_EQ(window.NumBlocks(kinds.poses), kLength + 1);
  EXPECT_EQ(window.NumPriors(), 0);
  *window.Values(kinds.speeds, 3) = kept;
  ASSERT_TRUE(window.Solve(&summary, &error)) << error;
  EXPECT_EQ(window.NumBlocks(kinds.poses), kLength);
  EXPECT_EQ(window.NumPriors(), 1);
  // The prior is on the next keyframe.
  EXPECT_FALSE(window.Cut(kinds.poses, 1, &error));
  EXPECT_NE(error.find("dropped but not cut"), std::string::npos) << error;
  const int64_t num_sights = window.NumResiduals(kinds.sights);
  ASSERT_TRUE(window.CutResiduals(kinds.sights, kinds.poses, 4, &error))
      << error;
  EXPECT_LT(window.NumResiduals(kinds.sights), num_sights);
  ASSERT_TRUE(window.Solve(&summary, &error)) << error;
}

}  // namespace
}  // namespace ceres_ext
