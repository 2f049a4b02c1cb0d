// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Batches of small dense problems of user-defined models against stock Ceres,
// problem by problem; the same bits wherever in a batch a problem is; bad
// problems beside good ones. With CERES_EXT_TEST_ON_CUDA on a device.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "batch_cases.h"
#include "bounded_batches.h"
#include "ceres/loss_function.h"
#include "ceres/manifold.h"
#include "ceres/problem.h"
#include "ceres/product_manifold.h"
#include "ceres/solver.h"
#include "ceres/sphere_manifold.h"
#include "ceres_ext/batch.h"
#include "ceres_ext/solve.h"
#include "fit_functors.h"
#include "gtest/gtest.h"
#include "tests/common/own_loss.h"
#include "tests/common/random_cases.h"
#ifdef CERES_EXT_EMULATED
#include "tests/front/fit_functors.cu"
#endif

namespace ceres_ext {
namespace {

// Blocks of one slot of a problem.
struct SlotOfOne {
  std::vector<double> values;
  bool is_constant = false;
};

// A problem: its blocks by slot, and its rows.
template <typename Constants>
struct One {
  std::vector<SlotOfOne> slots;
  std::vector<Constants> constants;
  // The block of each row in each slot.
  std::vector<std::vector<int32_t>> block;
  std::vector<double> weights;
  std::vector<uint8_t> is_active;

  void AddRow(const Constants& of_row,
              const std::vector<int32_t>& blocks,
              double weight = 1.0,
              bool is_used = true) {
    constants.push_back(of_row);
    block.resize(blocks.size());
    for (size_t s = 0; s < blocks.size(); ++s) {
      block[s].push_back(blocks[s]);
    }
    weights.push_back(weight);
    is_active.push_back(is_used ? 1 : 0);
  }
};

template <typename Cost>
class Fits {
 public:
  using Constants = typename Cost::Model::Constants;
  using OneFit = One<Constants>;

  // manifolds: of each slot, or null.
  Fits(std::vector<OneFit> ones,
       const std::vector<ceres::Manifold*>& manifolds,
       ceres::LossFunction* loss)
      : ones_(std::move(ones)), manifolds_(manifolds), loss_(loss) {
    const size_t num_slots = ones_[0].slots.size();
    values_.resize(num_slots);
    is_constant_.resize(num_slots);
    block_.resize(num_slots);
    begin_.assign(num_slots, {0});
    row_begin_.push_back(0);
    for (const OneFit& one : ones_) {
      for (size_t s = 0; s < num_slots; ++s) {
        const auto first = static_cast<int32_t>(begin_[s].back());
        const SlotOfOne& slot = one.slots[s];
        values_[s].insert(
            values_[s].end(), slot.values.begin(), slot.values.end());
        const auto num_blocks =
            static_cast<int64_t>(slot.values.size()) / size(s);
        is_constant_[s].resize(first + num_blocks, slot.is_constant ? 1 : 0);
        begin_[s].push_back(first + num_blocks);
        for (const int32_t block : one.block[s]) {
          block_[s].push_back(first + block);
        }
      }
      constants_.insert(
          constants_.end(), one.constants.begin(), one.constants.end());
      weights_.insert(weights_.end(), one.weights.begin(), one.weights.end());
      is_active_.insert(
          is_active_.end(), one.is_active.begin(), one.is_active.end());
      row_begin_.push_back(static_cast<int64_t>(constants_.size()));
    }
    std::vector<ArrayProblem::Index> blocks;
    for (size_t s = 0; s < num_slots; ++s) {
      ArrayProblem::Parameters parameters;
      parameters.values = values_[s].data();
      parameters.num_blocks = begin_[s].back();
      parameters.size = size(s);
      parameters.manifold = manifolds_[s];
      parameters.is_constant = is_constant_[s].data();
      blocks.push_back(
          {batch_.problem.AddParameters(parameters), block_[s].data()});
      batch_.parameter_begin.push_back(begin_[s].data());
    }
    batch_.problem.template AddResiduals<Cost>(
        row_begin_.back(), constants_.data(), blocks, loss, weights_.data());
    batch_.num_problems = static_cast<int64_t>(ones_.size());
    batch_.residual_begin = {row_begin_.data()};
    batch_.residual_is_active = {is_active_.data()};
  }
  Fits(const Fits&) = delete;
  Fits& operator=(const Fits&) = delete;

  ProblemBatch* batch() { return &batch_; }
  const std::vector<OneFit>& ones() const { return ones_; }

  std::vector<double> ValuesOf(size_t i) const {
    std::vector<double> values;
    for (size_t s = 0; s < values_.size(); ++s) {
      values.insert(values.end(),
                    values_[s].begin() + begin_[s][i] * size(s),
                    values_[s].begin() + begin_[s][i + 1] * size(s));
    }
    return values;
  }

  // A problem of the values of *one.
  std::unique_ptr<ceres::Problem> MakeProblem(OneFit* one) const {
    ceres::Problem::Options of_problem;
    of_problem.manifold_ownership = ceres::DO_NOT_TAKE_OWNERSHIP;
    auto problem = std::make_unique<ceres::Problem>(of_problem);
    for (size_t k = 0; k < one->constants.size(); ++k) {
      if (one->is_active[k] == 0) {
        continue;
      }
      std::vector<double*> blocks;
      for (size_t s = 0; s < one->slots.size(); ++s) {
        blocks.push_back(one->slots[s].values.data() +
                         size(s) * one->block[s][k]);
      }
      problem->AddResidualBlock(
          Make(one->constants[k]),
          new ceres::ScaledLoss(
              loss_, one->weights[k], ceres::DO_NOT_TAKE_OWNERSHIP),
          blocks);
      for (size_t s = 0; s < blocks.size(); ++s) {
        if (manifolds_[s] != nullptr) {
          problem->SetManifold(blocks[s], manifolds_[s]);
        }
        if (one->slots[s].is_constant) {
          problem->SetParameterBlockConstant(blocks[s]);
        }
      }
    }
    return problem;
  }

  // Problem i from its start, solved by stock Ceres; *values gets the result.
  ceres::Solver::Summary SolveByStock(size_t i,
                                      const ceres::Solver::Options& options,
                                      std::vector<double>* values) const {
    OneFit one = ones_[i];
    const auto problem = MakeProblem(&one);
    ceres::Solver::Summary summary;
    ceres::Solve(options, problem.get(), &summary);
    values->clear();
    for (const SlotOfOne& slot : one.slots) {
      values->insert(values->end(), slot.values.begin(), slot.values.end());
    }
    return summary;
  }

 private:
  static int size(size_t s) {
    return internal::BatchForms<typename Cost::Model>::kBlockSizes[s];
  }
  static ceres::CostFunction* Make(const Constants& constants) {
    if constexpr (std::is_constructible_v<Cost, const Constants&>) {
      return new Cost(constants);
    } else {
      return new Cost(typename Cost::Model::Functor(constants));
    }
  }

  const std::vector<OneFit> ones_;
  const std::vector<ceres::Manifold*> manifolds_;
  ceres::LossFunction* const loss_;
  std::vector<std::vector<double>> values_;
  std::vector<std::vector<uint8_t>> is_constant_;
  std::vector<std::vector<int64_t>> begin_;
  std::vector<std::vector<int32_t>> block_;
  std::vector<Constants> constants_;
  std::vector<double> weights_;
  std::vector<uint8_t> is_active_;
  std::vector<int64_t> row_begin_;
  ProblemBatch batch_;
};

// Compares a batch with stock Ceres: the same start to rounding, a final cost
// that is not higher, and the same steps where rounding does not decide.
template <typename Cost>
void ExpectAsCeres(std::vector<typename Fits<Cost>::OneFit> ones,
                   const std::vector<ceres::Manifold*>& manifolds,
                   ceres::LossFunction* loss,
                   ceres::Solver::Options options) {
  Fits<Cost> fits(std::move(ones), manifolds, loss);
  BatchSummary summary;
  std::vector<Summary> full;
  std::string error;
  ASSERT_TRUE(
      SolveBatch(options, OnMachine(), fits.batch(), &summary, &error, &full))
      << error;
  const auto n = static_cast<int64_t>(fits.ones().size());
  EXPECT_EQ(summary.num_windows, n);
  int num_decided = 0;
  for (int64_t i = 0; i < n; ++i) {
    SCOPED_TRACE(i);
    const ProblemSummary& ours = summary.problems[i];
    ASSERT_EQ(ours.solved_as, SOLVED_AS_FIT) << ours.path_reason;
    std::vector<double> values;
    const ceres::Solver::Summary ceres = fits.SolveByStock(i, options, &values);
    ASSERT_TRUE(ceres.IsSolutionUsable()) << ceres.message;
    ASSERT_TRUE(ours.IsSolutionUsable()) << ours.message;
    EXPECT_LE(ours.final_cost,
              ceres.final_cost * (1.0 + 1e-6) + 1e-12 * ceres.initial_cost);
    EXPECT_EQ(full[i].path_reason, "solved as a fit of a batch");
    EXPECT_EQ(full[i].method, "fit, exact steps (double)");
    EXPECT_EQ(full[i].num_parameters_reduced, ceres.num_parameters_reduced);
    EXPECT_EQ(full[i].num_effective_parameters_reduced,
              ceres.num_effective_parameters_reduced);
    EXPECT_EQ(full[i].num_residuals_reduced, ceres.num_residuals_reduced);
    if (!ExpectSameDecisions(ours, ceres, options)) {
      continue;
    }
    ++num_decided;
    // Steps agree to rounding times the condition of H.
    const std::vector<double> mine = fits.ValuesOf(i);
    for (size_t e = 0; e < values.size(); ++e) {
      EXPECT_NEAR(mine[e], values[e], 1e-6 * (1.0 + std::abs(values[e])));
    }
  }
  EXPECT_GT(num_decided, n / 2);
}

One<PeakError> MakePeak(unsigned seed, int num_rows) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  One<PeakError> one;
  const double height = 5.0 + normal(random);
  const double centre = 0.3 * normal(random);
  for (int k = 0; k < num_rows; ++k) {
    const double x = -3.0 + 6.0 * (k + 0.5) / num_rows;
    const double u = (x - centre) / 0.8;
    one.AddRow(
        {x, height * std::exp(-0.5 * u * u) + 1.0 + 0.1 * normal(random)},
        {0},
        k % 3 == 0 ? 0.5 : 1.0,
        k % 7 != 6);
  }
  one.slots = {{{4.0, 0.0, 1.2, 0.5}}};
  return one;
}

ceres::Solver::Options FitOptions() {
  ceres::Solver::Options options = SomeOptions();
  options.linear_solver_type = ceres::DENSE_QR;
  return options;
}

// Rows around the numbers of lanes, and more than those of one pass.
TEST(SolveFits, FitsCurvesAsCeres) {
  std::vector<One<PeakError>> ones;
  unsigned seed = 0;
  for (const int num_rows :
       {6, 7, 8, 9, 20, 31, 32, 33, 63, 64, 65, 200, 777}) {
    ones.push_back(MakePeak(++seed, num_rows));
    ones.push_back(MakePeak(++seed, num_rows));
  }
  ExpectAsCeres<PeakCost>(ones, {nullptr}, nullptr, FitOptions());
  ceres::CauchyLoss cauchy(0.1);
  ExpectAsCeres<PeakCost>(ones, {nullptr}, &cauchy, FitOptions());
  ceres::SubsetManifold width_is_constant(4, {2});
  ExpectAsCeres<PeakCost>(ones, {&width_is_constant}, nullptr, FitOptions());
  ceres::Solver::Options options = FitOptions();
  options.jacobi_scaling = false;
  options.initial_trust_region_radius = 1e-2;
  ExpectAsCeres<PeakCost>(ones, {nullptr}, nullptr, options);
}

TEST(SolveFits, FitsBoundedCurvesAsCeres) {
  BoundedCounts counts;
  ceres::CauchyLoss cauchy(0.1);
  ceres::SubsetManifold width_is_constant(4, {2});
  ForEachCase(30, [&](Random* random) {
    std::vector<One<PeakError>> ones;
    for (int i = 0; i < 12; ++i) {
      ones.push_back(MakePeak(static_cast<unsigned>(random->Below(1 << 30)),
                              random->OneOf({6, 9, 33, 65, 100})));
      for (double& value : ones.back().slots[0].values) {
        value += random->Uniform(-0.3, 0.3);
      }
    }
    ceres::Solver::Options options = RandomSearch(FitOptions(), random);
    options.max_num_iterations = random->OneOf({1, 4, 20});
    options.jacobi_scaling = random->Chance(0.8);
    options.initial_trust_region_radius = random->OneOf({1.0, 1e4, 1e8});
    Fits<PeakCost> fits(std::move(ones),
                        {random->Chance(0.3) ? &width_is_constant : nullptr},
                        random->Chance(0.3)
                            ? static_cast<ceres::LossFunction*>(&cauchy)
                            : nullptr);
    const RandomBounds bounds(fits.batch(), random);
    ExpectBoundedAsCeres(options, fits.batch(), &counts);
  });
  ExpectCompared(counts);
}

TEST(SolveFits, SolvesAListOfProblems) {
  ceres::CauchyLoss cauchy(0.1);
  const Fits<PeakCost> fits(
      {MakePeak(1, 20), MakePeak(2, 33), MakePeak(3, 64)}, {nullptr}, &cauchy);
  std::vector<One<PeakError>> ones = fits.ones();
  std::vector<std::unique_ptr<ceres::Problem>> owned;
  std::vector<ceres::Problem*> problems;
  for (One<PeakError>& one : ones) {
    owned.push_back(fits.MakeProblem(&one));
    problems.push_back(owned.back().get());
  }
  BatchSummary summary;
  std::string error;
  ASSERT_TRUE(SolveBatch(FitOptions(), OnMachine(), problems, &summary, &error))
      << error;
  for (size_t i = 0; i < ones.size(); ++i) {
    EXPECT_EQ(summary.problems[i].solved_as, SOLVED_AS_FIT)
        << summary.problems[i].path_reason;
    std::vector<double> expected;
    const ceres::Solver::Summary stock =
        fits.SolveByStock(i, FitOptions(), &expected);
    EXPECT_NEAR(summary.problems[i].final_cost,
                stock.final_cost,
                1e-6 * stock.final_cost);
    for (size_t e = 0; e < expected.size(); ++e) {
      EXPECT_NEAR(ones[i].slots[0].values[e],
                  expected[e],
                  1e-3 * (1.0 + std::abs(expected[e])));
    }
  }
}

TEST(SolveFits, RefinesSeveralBlocksAsCeres) {
  for (const bool slope_is_constant : {false, true}) {
    std::vector<One<OffsetLineError>> ones;
    for (unsigned seed = 0; seed < 12; ++seed) {
      std::mt19937 random(seed);
      std::normal_distribution<double> normal;
      One<OffsetLineError> one;
      for (int k = 0; k < 30; ++k) {
        const double x = normal(random);
        one.AddRow({x, 2.0 + 0.7 * x + 0.1 * normal(random)}, {0, 0, k % 2});
      }
      one.slots = {{{0.1 + 0.1 * seed}, slope_is_constant},
                   {{1.0, 0.5}},
                   {{1.0, 2.0}, true}};
      ones.push_back(one);
    }
    ExpectAsCeres<OffsetLineCost>(
        ones, {nullptr, nullptr, nullptr}, nullptr, FitOptions());
  }
}

One<PoseError> MakePose(unsigned seed, int num_rows) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  const std::vector<double> params = {
      600.0, 610.0, 320.0, 240.0, -0.05, 0.01, 1e-3, -1e-3};
  const double pose[7] = {
      0.1, -0.2, 0.05, std::sqrt(1.0 - 0.0525), 0.3, 0.1, 5};
  One<PoseError> one;
  std::vector<double> points;
  for (int k = 0; k < num_rows; ++k) {
    const double point[3] = {normal(random), normal(random), normal(random)};
    double residual[2];
    PoseError{0.0, 0.0}(point, pose, params.data(), residual);
    points.insert(points.end(), point, point + 3);
    one.AddRow({residual[0] + 0.5 * normal(random),
                residual[1] + 0.5 * normal(random)},
               {num_rows - 1 - k, 0, 0});
  }
  // Row k names block num_rows - 1 - k, whose point is that of the row.
  std::vector<double> in_blocks;
  for (int k = num_rows - 1; k >= 0; --k) {
    in_blocks.insert(
        in_blocks.end(), points.begin() + 3 * k, points.begin() + 3 * k + 3);
  }
  std::vector<double> start(pose, pose + 7);
  const double turn[3] = {
      0.02 * normal(random), 0.02 * normal(random), 0.02 * normal(random)};
  ceres::EigenQuaternionManifold().Plus(pose, turn, start.data());
  for (int e = 4; e < 7; ++e) {
    start[e] += 0.05 * normal(random);
  }
  one.slots = {{in_blocks, true}, {start}, {params, true}};
  return one;
}

using PoseManifold = ceres::ProductManifold<ceres::EigenQuaternionManifold,
                                            ceres::EuclideanManifold<3>>;

TEST(SolveFits, RefinesPosesOfCamerasAsCeres) {
  PoseManifold manifold;
  std::vector<One<PoseError>> ones;
  unsigned seed = 0;
  for (const int num_rows : {4, 20, 64, 65, 200}) {
    ones.push_back(MakePose(++seed, num_rows));
  }
  ExpectAsCeres<PoseCost>(
      ones, {nullptr, &manifold, nullptr}, nullptr, FitOptions());
  ceres::HuberLoss huber(0.7);
  ExpectAsCeres<PoseCost>(
      ones, {nullptr, &manifold, nullptr}, &huber, FitOptions());
}

TEST(SolveFits, RefinesDirectionsAsCeres) {
  ceres::SphereManifold<3> sphere;
  std::vector<One<BearingError::Constants>> ones;
  for (unsigned seed = 0; seed < 10; ++seed) {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal;
    One<BearingError::Constants> one;
    for (int k = 0; k < 10; ++k) {
      one.AddRow({{0.3 * normal(random), 2.0 + normal(random), normal(random)}},
                 {0});
    }
    one.slots = {{{0.6, 0.0, 0.8}}};
    ones.push_back(one);
  }
  ExpectAsCeres<BearingCost>(ones, {&sphere}, nullptr, FitOptions());
}

TEST(SolveFits, EndsAsCeresForEachReason) {
  std::vector<One<PeakError>> ones = {MakePeak(1, 20), MakePeak(2, 100)};
  for (const int num_iterations : {0, 1, 50}) {
    ceres::Solver::Options options = FitOptions();
    options.max_num_iterations = num_iterations;
    ExpectAsCeres<PeakCost>(ones, {nullptr}, nullptr, options);
  }
  ceres::Solver::Options options = FitOptions();
  options.gradient_tolerance = 1.0;
  ExpectAsCeres<PeakCost>(ones, {nullptr}, nullptr, options);
  options = FitOptions();
  options.parameter_tolerance = 1e-2;
  ExpectAsCeres<PeakCost>(ones, {nullptr}, nullptr, options);
}

TEST(SolveFits, HasTheSameBitsInAnyBatch) {
  const int kDistinct = 5;
  const auto make = [](int n, int first) {
    std::vector<One<PeakError>> ones;
    for (int i = 0; i < n; ++i) {
      ones.push_back(
          MakePeak((first + i) % kDistinct, (first + i) % 2 == 0 ? 20 : 90));
    }
    return ones;
  };
  // Problem i of the batches is problem (first + i) % 10 of this one.
  Fits<PeakCost> all(make(10, 0), {nullptr}, nullptr);
  BatchSummary of_all;
  ASSERT_TRUE(SolveBatch(FitOptions(), OnMachine(), all.batch(), &of_all));
  for (const int n : {1, 7, 130}) {
    for (const int num_threads : {1, 3}) {
      ceres::Solver::Options options = FitOptions();
      options.num_threads = num_threads;
      Fits<PeakCost> fits(make(n, 3), {nullptr}, nullptr);
      BatchSummary summary;
      ASSERT_TRUE(SolveBatch(options, OnMachine(), fits.batch(), &summary));
      for (int i = 0; i < n; ++i) {
        EXPECT_EQ(fits.ValuesOf(i), all.ValuesOf((3 + i) % 10));
        EXPECT_EQ(summary.problems[i].final_cost,
                  of_all.problems[(3 + i) % 10].final_cost);
      }
    }
  }
}

// Bad problems end as by themselves and leave the others alone.
TEST(SolveFits, KeepsBadProblemsToThemselves) {
  std::vector<One<PeakError>> ones;
  for (unsigned i = 0; i < 8; ++i) {
    ones.push_back(MakePeak(i, 20));
  }
  Fits<PeakCost> good(ones, {nullptr}, nullptr);
  ones[1].slots[0].values[2] = std::numeric_limits<double>::quiet_NaN();
  ones[2].constants[3].y = std::numeric_limits<double>::infinity();
  ones[3].is_active.assign(20, 0);
  ones[4].slots[0].is_constant = true;
  ones[5].weights[4] = -1.0;
  ones[6].slots[0].values[2] = 0.0;  // A width that divides by zero.
  Fits<PeakCost> fits(ones, {nullptr}, nullptr);
  BatchSummary summary;
  BatchSummary of_good;
  ASSERT_TRUE(SolveBatch(FitOptions(), OnMachine(), fits.batch(), &summary));
  ASSERT_TRUE(SolveBatch(FitOptions(), OnMachine(), good.batch(), &of_good));
  EXPECT_EQ(summary.num_windows, 2);
  for (int i = 0; i < 8; ++i) {
    SCOPED_TRACE(i);
    const ProblemSummary& ours = summary.problems[i];
    EXPECT_EQ(ours.IsSolvedWhole(), i == 0 || i == 7) << ours.path_reason;
    EXPECT_NE(ours.IsSolvedWhole(), !ours.path_reason.empty());
    if (ours.IsSolvedWhole()) {
      EXPECT_EQ(fits.ValuesOf(i), good.ValuesOf(i));
    } else if (ours.termination_type == ceres::FAILURE) {
      EXPECT_EQ(ours.initial_cost, -1.0);
    }
  }
  // A row that names no block of the arrays.
  for (const int32_t block : {-10, 1 << 20}) {
    std::vector<One<PeakError>> three = {
        MakePeak(0, 20), MakePeak(1, 20), MakePeak(2, 20)};
    three[1].block[0][7] = block;
    Fits<PeakCost> with_one(three, {nullptr}, nullptr);
    ASSERT_TRUE(
        SolveBatch(FitOptions(), OnMachine(), with_one.batch(), &summary));
    EXPECT_FALSE(summary.problems[1].IsSolvedWhole());
    EXPECT_EQ(summary.problems[1].termination_type, ceres::FAILURE);
    EXPECT_EQ(with_one.ValuesOf(0), good.ValuesOf(0));
    EXPECT_EQ(with_one.ValuesOf(2), good.ValuesOf(2));
  }
}

// A functor that fails at a candidate makes a step that is rejected.
TEST(SolveFits, RejectsStepsThatCanNotBeEvaluated) {
  One<OffsetLineError> one;
  for (int k = 0; k < 20; ++k) {
    one.AddRow({1.0 * k, 2e3 * k}, {0, 0, 0});
  }
  one.slots = {{{999.0}}, {{0.0, 0.0}}, {{1.0}, true}};
  Fits<OffsetLineCost> fits({one}, {nullptr, nullptr, nullptr}, nullptr);
  BatchSummary summary;
  ASSERT_TRUE(SolveBatch(FitOptions(), OnMachine(), fits.batch(), &summary));
  const ProblemSummary& ours = summary.problems[0];
  ASSERT_EQ(ours.solved_as, SOLVED_AS_FIT) << ours.path_reason;
  EXPECT_GT(ours.num_unsuccessful_steps, 0);
  EXPECT_LT(fits.ValuesOf(0)[0], 1e3);
}

// Problems that are not fits say why, and ceres_ext::Solve solves them.
TEST(SolveFits, SaysWhyAProblemIsNone) {
  const auto reason_of = [](std::vector<One<PeakError>> ones,
                            ceres::Manifold* manifold,
                            ceres::LossFunction* loss) {
    Fits<PeakCost> fits(std::move(ones), {manifold}, loss);
    BatchSummary summary;
    EXPECT_TRUE(SolveBatch(FitOptions(), OnMachine(), fits.batch(), &summary));
    EXPECT_FALSE(summary.problems[0].IsSolvedWhole());
    EXPECT_TRUE(summary.problems[0].IsSolutionUsable());
    return summary.problems[0].path_reason;
  };
  const auto contains = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  };
  One<PeakError> two_blocks = MakePeak(1, 20);
  two_blocks.slots[0].values.insert(two_blocks.slots[0].values.end(),
                                    {4.0, 0.0, 1.2, 0.5});
  two_blocks.block[0][3] = 1;
  two_blocks.slots[0].values.resize(4 * 200, 1.0);
  for (int k = 0; k < 200; ++k) {
    two_blocks.AddRow({0.1 * k, 1.0}, {k});
  }
  EXPECT_TRUE(contains(reason_of({two_blocks}, nullptr, nullptr), "several"));
  EXPECT_TRUE(
      contains(reason_of({MakePeak(1, 20000)}, nullptr, nullptr), "more than"));
  OwnLoss own;
  EXPECT_TRUE(contains(reason_of({MakePeak(1, 20)}, nullptr, &own), "loss"));
}

// Several pieces, and both numbers of lanes in each.
TEST(SolveFits, SolvesInPieces) {
  std::vector<One<PeakError>> ones;
  for (unsigned i = 0; i < 300; ++i) {
    ones.push_back(MakePeak(i % 7, i % 2 == 0 ? 20 : 70));
  }
  Options ext_options = OnMachine();
  ext_options.cuda_memory_limit_bytes = int64_t{1} << 18;
  Fits<PeakCost> fits(ones, {nullptr}, nullptr);
  BatchSummary summary;
  ASSERT_TRUE(SolveBatch(FitOptions(), ext_options, fits.batch(), &summary));
  EXPECT_EQ(summary.num_windows, 300);
  Fits<PeakCost> whole(ones, {nullptr}, nullptr);
  ASSERT_TRUE(SolveBatch(FitOptions(), OnMachine(), whole.batch(), &summary));
  for (int i = 0; i < 300; ++i) {
    EXPECT_EQ(fits.ValuesOf(i), whole.ValuesOf(i));
  }
}

// Sets a flag when it has been evaluated `last` times.
struct StoppingError {
  template <typename T>
  CERES_HOST_DEVICE bool operator()(const T* p, T* residuals) const {
#ifndef __CUDA_ARCH__
    if (++num_calls == last) {
      stop.Stop();
    }
#endif
    using std::exp;
    residuals[0] = exp(p[0] * x) - y;
    return true;
  }
  double x;
  double y;

  static int num_calls;
  static int last;
  static StopFlag stop;
};
int StoppingError::num_calls = 0;
int StoppingError::last = 0;
StopFlag StoppingError::stop;
using StoppingCost = DeviceAutoDiffCostFunction<StoppingError, 1, 1>;

// The flag is set while the host, which has its only kernels, solves the second
// fit. The rest of the piece ends with iteration zero; later pieces keep their
// start.
TEST(SolveFits, StopsOnTheHost) {
  constexpr int kFits = 200;
  constexpr int kRows = 10;
  One<StoppingError> one;
  for (int k = 0; k < kRows; ++k) {
    one.AddRow({0.1 * k, std::exp(0.2 * k)}, {0});
  }
  one.slots = {{{0.0}}};
  const std::vector<One<StoppingError>> ones(kFits, one);
  ceres::Solver::Options options = FitOptions();
  options.num_threads = 1;
  Options ext_options = OnMachine();
  ext_options.cuda_memory_limit_bytes = int64_t{1} << 18;
  const auto solve = [&](Fits<StoppingCost>* fits, const StopFlag* stop) {
    StoppingError::num_calls = 0;
    BatchSummary summary;
    EXPECT_TRUE(SolveBatch(
        options, ext_options, fits->batch(), &summary, nullptr, nullptr, stop));
    return summary;
  };
  Fits<StoppingCost> whole(ones, {nullptr}, nullptr);
  const BatchSummary of_whole = solve(&whole, nullptr);
  ASSERT_EQ(of_whole.num_windows, kFits);
  const int calls_per_fit = StoppingError::num_calls / kFits;
  StoppingError::last = calls_per_fit + calls_per_fit / 2;
  Fits<StoppingCost> stopped(ones, {nullptr}, nullptr);
  const BatchSummary summary = solve(&stopped, &StoppingError::stop);
  EXPECT_EQ(stopped.ValuesOf(0), whole.ValuesOf(0));
  EXPECT_EQ(summary.problems[0].message, of_whole.problems[0].message);
  const ProblemSummary& second = summary.problems[1];
  EXPECT_EQ(second.message, "Stopped from another thread.");
  EXPECT_GT(second.num_successful_steps, 1);
  EXPECT_LT(second.num_successful_steps,
            of_whole.problems[1].num_successful_steps);
  EXPECT_LT(second.final_cost, second.initial_cost);
  int num_unbegun = 0;
  for (int i = 2; i < kFits; ++i) {
    const ProblemSummary& problem = summary.problems[i];
    EXPECT_EQ(stopped.ValuesOf(i), std::vector<double>({0.0}));
    if (problem.termination_type == ceres::USER_FAILURE) {
      EXPECT_FALSE(problem.IsSolvedWhole());
      ++num_unbegun;
    } else {
      EXPECT_EQ(problem.termination_type, ceres::USER_SUCCESS);
      EXPECT_EQ(problem.final_cost, problem.initial_cost);
      EXPECT_EQ(problem.num_successful_steps, 1);  // iteration zero
      EXPECT_EQ(num_unbegun, 0) << "pieces follow each other";
    }
  }
  EXPECT_GT(num_unbegun, 0);
  EXPECT_LT(num_unbegun, kFits - 2);
}

}  // namespace
}  // namespace ceres_ext
