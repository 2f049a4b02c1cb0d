// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Decide as a table: what is asked for and what there is against the plan, or
// the refusal.

#include "ceres_ext/plan/solve_plan.h"

#include <chrono>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <variant>

#include "ceres_ext/communicator.h"
#include "ceres_ext/plan/solver_choice.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ceres_ext {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A test's facts about rows and machines. Counts what it is asked.
class Facts final : public MachineFacts {
 public:
  bool build_has_cuda = true;
  std::string no_device;
  std::string why_host;
  std::string why_no_factorization;
  std::string why_no_sparse;
  kernels::MachineRates rates;
  std::string why_not_recomputed;
  mutable int num_asked_for_host = 0;
  mutable int num_asked_for_rows = 0;
  mutable SolveWork work;

  bool BuildHasCuda() const final { return build_has_cuda; }
  std::string WhyNoDevice() const final { return no_device; }
  std::string WhyHost(const SolveWork& given) const final {
    ++num_asked_for_host;
    work = given;
    return why_host;
  }
  std::string WhyNoFactorization(SchurFactorizationType type) const final {
    return type == SCHUR_FACTORIZATION_SPARSE ? why_no_sparse
                                              : why_no_factorization;
  }
  kernels::MachineRates Rates() const final { return rates; }
  kernels::MachineRates HostRates(double /*host_seconds*/) const final {
    return rates;
  }
  std::string WhyNotRecomputed() const final {
    ++num_asked_for_rows;
    return why_not_recomputed;
  }
};

class SolvePlanTest : public ::testing::Test {
 protected:
  SolvePlanTest() {
    request_.solver_options.linear_solver_type = ceres::ITERATIVE_SCHUR;
    request_.solver_options.preconditioner_type = ceres::SCHUR_JACOBI;
    rows_.num_observations = 1000;
    rows_.num_observation_kinds = 1;
    rows_.num_other_columns = 90;
    rows_.num_couplings = 3000;
    rows_.num_residuals = 2000;
    rows_.num_values = 24000;
  }
  SolvePlan Plan() const {
    const auto decision = Decide(request_, rows_, facts_);
    const auto* plan = std::get_if<SolvePlan>(&decision);
    EXPECT_NE(plan, nullptr) << std::get<Refusal>(decision).reason;
    return plan == nullptr ? SolvePlan() : *plan;
  }
  Refusal Refused() const {
    const auto decision = Decide(request_, rows_, facts_);
    const auto* refusal = std::get_if<Refusal>(&decision);
    EXPECT_NE(refusal, nullptr);
    return refusal == nullptr ? Refusal() : *refusal;
  }
  Options& options() { return request_.options; }

  PlanRequest request_;
  RowFacts rows_;
  Facts facts_;
};

TEST_F(SolvePlanTest, TakesTheDeviceThatThereIs) {
  for (const DeviceType device : {DEVICE_AUTO, DEVICE_CUDA}) {
    options().device = device;
    const SolvePlan plan = Plan();
    EXPECT_TRUE(plan.on_device);
    EXPECT_EQ(plan.why_host, "");
    EXPECT_THAT(plan.notes, IsEmpty());
  }
  EXPECT_EQ(facts_.num_asked_for_host, 1);  // by AUTO
  EXPECT_EQ(facts_.work.num_values, 24000);
}

// PCG in place of a factorisation of a graph takes long to be accurate.
TEST_F(SolvePlanTest, TheMachineIsChosenByAccuratePcg) {
  options().linear_solver = LINEAR_SOLVER_AUTO;
  rows_.num_observations = rows_.num_observation_kinds = 0;
  rows_.num_other_rows = rows_.num_general_rows = 1000;
  Plan();
  const int inaccurate = facts_.work.num_pcg_iterations;
  request_.replaces_factorization = true;
  Plan();
  EXPECT_GT(facts_.work.num_pcg_iterations, 5 * inaccurate);
  request_.solver_options.max_linear_solver_iterations = 7;
  Plan();
  EXPECT_EQ(facts_.work.num_pcg_iterations, 7);
}

// The device alone is chosen, by the number of residual blocks.
TEST_F(SolvePlanTest, ChoosesTheDeviceOfSmallProblems) {
  request_.purpose = Purpose::kSmall;
  rows_ = RowFacts();
  rows_.num_other_rows = 14999;
  options().jacobian = JACOBIAN_RECOMPUTED;  // has no meaning here
  EXPECT_FALSE(Plan().on_device);
  EXPECT_EQ(Plan().why_host, "fewer than 15000 residual blocks");
  rows_.num_other_rows = 15000;
  EXPECT_TRUE(Plan().on_device);
  EXPECT_EQ(facts_.num_asked_for_host, 0);
  // A host of a quarter of the rate.
  facts_.rates.host_values_per_second /= 4.0;
  rows_.num_other_rows = 3749;
  EXPECT_EQ(Plan().why_host, "fewer than 3750 residual blocks");
  rows_.num_other_rows = 3750;
  EXPECT_TRUE(Plan().on_device);
  facts_.rates = {};
  rows_.num_other_rows = 1;
  options().device = DEVICE_CUDA;
  EXPECT_TRUE(Plan().on_device);
  // They need no library.
  request_.solver_options.linear_solver_type = ceres::DENSE_SCHUR;
  facts_.why_no_factorization = "cuSOLVER is missing";
  EXPECT_TRUE(Plan().on_device);
  facts_.no_device = "there is none";
  EXPECT_EQ(Plan().why_host, "there is none");
  options().fallback = FALLBACK_REFUSE;
  EXPECT_EQ(Refused().reason,
            "device = CUDA is not available, because there is none");
  // A device that could not be set up.
  facts_.no_device.clear();
  request_.attempt.why_host = "the device failed: CUDA says no";
  EXPECT_EQ(Refused().reason,
            "device = CUDA is not available, because the device failed: CUDA "
            "says no");
  options().device = DEVICE_HOST;
  request_.attempt.why_host.clear();
  EXPECT_FALSE(Plan().on_device);
  EXPECT_EQ(Plan().why_host, "");
}

TEST_F(SolvePlanTest, TakesTheHostWhereItIsAskedForOrFaster) {
  options().device = DEVICE_HOST;
  EXPECT_FALSE(Plan().on_device);
  EXPECT_EQ(Plan().why_host, "");
  options().device = DEVICE_AUTO;
  facts_.why_host = "it is small";
  EXPECT_FALSE(Plan().on_device);
  EXPECT_EQ(Plan().why_host, "it is small");
  // If the host must solve, the faster machine is not asked for.
  facts_.num_asked_for_host = 0;
  request_.attempt.why_host = "the device failed: it is hot";
  EXPECT_EQ(Plan().why_host, "the device failed: it is hot");
  EXPECT_EQ(facts_.num_asked_for_host, 0);
}

TEST_F(SolvePlanTest, TakesTheHostForMatricesOfWideBlocks) {
  options().device = DEVICE_CUDA;
  rows_.max_block_columns = 128;
  EXPECT_TRUE(Plan().on_device);
  rows_.max_block_columns = 129;
  EXPECT_FALSE(Plan().on_device);
  EXPECT_EQ(Plan().why_host,
            "a parameter block has 129 tangent dimensions, and SCHUR_JACOBI "
            "inverts its matrix; a device inverts those of at most 128");
  options().fallback = FALLBACK_REFUSE;
  EXPECT_THAT(Refused().reason, HasSubstr("inverts its matrix"));
  // Nothing is inverted.
  request_.solver_options.preconditioner_type = ceres::IDENTITY;
  EXPECT_TRUE(Plan().on_device);
  request_.solver_options.preconditioner_type = ceres::SCHUR_JACOBI;
  request_.solver_options.linear_solver_type = ceres::DENSE_SCHUR;
  EXPECT_TRUE(Plan().on_device);
}

TEST_F(SolvePlanTest, ChoosesExactStepsOfFewColumns) {
  options().linear_solver = LINEAR_SOLVER_AUTO;
  for (const DeviceType device : {DEVICE_HOST, DEVICE_CUDA}) {
    options().device = device;
    SolvePlan plan = Plan();
    EXPECT_EQ(plan.linear_solver_type, ceres::DENSE_SCHUR);
    EXPECT_TRUE(plan.step.factorizes());
    EXPECT_FALSE(plan.merge_blocks);
    EXPECT_THAT(plan.notes,
                ElementsAre("linear_solver = auto takes exact steps, which "
                            "should be faster than PCG"));
    // A factor of 1e6 columns takes hours.
    rows_.num_other_columns = 1000000;
    plan = Plan();
    EXPECT_EQ(plan.linear_solver_type, ceres::ITERATIVE_SCHUR);
    EXPECT_FALSE(plan.step.may_factorize());
    EXPECT_TRUE(plan.merge_blocks);
    EXPECT_THAT(plan.notes, IsEmpty());
    // There are no exact steps where they have failed before, or where all
    // columns are eliminated.
    rows_.num_other_columns = 90;
    request_.attempt.why_pcg = "there is no memory";
    EXPECT_FALSE(Plan().step.may_factorize());
    EXPECT_THAT(Plan().notes,
                ElementsAre("PCG takes all steps since there is no memory"));
    request_.attempt.why_pcg.clear();
    rows_.num_other_columns = 0;
    EXPECT_FALSE(Plan().step.may_factorize());
    rows_.num_other_columns = 90;
  }
}

// A graph of poses with a small factor has exact steps where a device has a
// library for sparse ones and may use it.
TEST_F(SolvePlanTest, ChoosesExactStepsOfASparseFactor) {
  options().device = DEVICE_CUDA;
  rows_.num_observations = rows_.num_observation_kinds = 0;
  rows_.num_other_rows = rows_.num_general_rows = 5000;
  rows_.num_values = 72 * 5000;
  rows_.num_other_columns = 20000;
  rows_.factor = {{6e5, 1e8}, 200.0, 400.0};
  options().linear_solver = LINEAR_SOLVER_AUTO;
  EXPECT_TRUE(Plan().step.factorizes());
  facts_.why_no_sparse = "cuDSS is not there";
  EXPECT_FALSE(Plan().step.factorizes());
  facts_.why_no_sparse.clear();
  options().schur_factorization = SCHUR_FACTORIZATION_DENSE;
  EXPECT_FALSE(Plan().step.factorizes());
  options().schur_factorization = SCHUR_FACTORIZATION_AUTO;
  // A factor that takes as long as a dense one.
  rows_.factor = {{2e8, 2.7e12}, 200.0, 400.0};
  EXPECT_FALSE(Plan().step.factorizes());
  // A machine is chosen by what a device may have, in double alone.
  options().device = DEVICE_AUTO;
  Plan();
  EXPECT_TRUE(facts_.work.may_be_sparse);
  request_.solver_options.linear_solver_type = ceres::DENSE_SCHUR;
  request_.solver_options.use_mixed_precision_solves = true;
  Plan();
  EXPECT_FALSE(facts_.work.may_be_sparse);
}

// Arrays that a device has no room for may stay on the host.
TEST_F(SolvePlanTest, ArraysMayStayOnTheHost) {
  rows_.num_observations = 100000;
  rows_.num_values = 2400000;
  for (const DeviceType device : {DEVICE_CUDA, DEVICE_AUTO}) {
    options().device = device;
    const int64_t most = Plan().most_page_locked_bytes;
    EXPECT_GT(most, 0);
    EXPECT_LT(most, int64_t{1} << 40);
  }
  // The host is not to solve it.
  options().device = DEVICE_CUDA;
  options().fallback = FALLBACK_REFUSE;
  EXPECT_EQ(Plan().most_page_locked_bytes, std::numeric_limits<int64_t>::max());
  // Not what exact steps, or products with S, are taken of.
  request_.solver_options.use_explicit_schur_complement = true;
  EXPECT_EQ(Plan().most_page_locked_bytes, 0);
  request_.solver_options.use_explicit_schur_complement = false;
  request_.solver_options.linear_solver_type = ceres::DENSE_SCHUR;
  EXPECT_EQ(Plan().most_page_locked_bytes, 0);
  options().device = DEVICE_HOST;
  EXPECT_EQ(Plan().most_page_locked_bytes, 0);
}

// The set-up of S with pairs is shared out among ten steps: it costs 250,000
// values of 1e-8 s and 2 ms, 90 iterations of 5e-5 s, which pays on a device;
// that of 5 million does not.
TEST_F(SolvePlanTest, SetsUpExactStepsWhereItPays) {
  options().linear_solver = LINEAR_SOLVER_AUTO;
  options().device = DEVICE_CUDA;
  rows_.has_pairs = true;
  rows_.num_values = 250000;
  EXPECT_TRUE(Plan().step.factorizes());
  rows_.num_values = 5000000;
  EXPECT_FALSE(Plan().step.factorizes());
  EXPECT_TRUE(Plan().step.is_mixture());
}

// Between few columns and too many, PCG takes the steps that it can take in the
// time of an exact one.
TEST_F(SolvePlanTest, MixesPcgAndExactSteps) {
  options().linear_solver = LINEAR_SOLVER_AUTO;
  options().device = DEVICE_HOST;
  rows_.num_other_columns = 400;
  SolvePlan plan = Plan();
  EXPECT_EQ(plan.linear_solver_type, ceres::ITERATIVE_SCHUR);
  EXPECT_TRUE(plan.step.is_mixture());
  EXPECT_FALSE(plan.step.factorizes());
  EXPECT_TRUE(plan.merge_blocks);
  EXPECT_THAT(plan.notes, IsEmpty());
  // n^3 / 3 operations of 2.4e-11 s against 24,000 values of 1e-9 s.
  EXPECT_NEAR(plan.step.exact_step_cost, 5.1e-4 / 2.4e-5, 5);
  EXPECT_NEAR(plan.step.exact_setup_cost, plan.step.exact_step_cost, 1);
  // The same for any number of threads.
  request_.num_threads = 16;
  EXPECT_EQ(Plan().step.exact_step_cost, plan.step.exact_step_cost);
  // Rows that S can't be formed of keep their recomputed Jacobian, and PCG.
  options().device = DEVICE_CUDA;
  options().jacobian = JACOBIAN_RECOMPUTED;
  rows_.num_other_columns = 3000;
  EXPECT_TRUE(Plan().step.is_mixture());
  rows_.num_other_rows = 10;
  plan = Plan();
  EXPECT_TRUE(plan.recomputed);
  EXPECT_FALSE(plan.step.may_factorize());
  options().jacobian = JACOBIAN_STORED;
  EXPECT_TRUE(Plan().step.is_mixture());
}

// A second level replaces exact steps that cost more than its set-up, unless
// another preconditioner is asked for.
TEST_F(SolvePlanTest, HasASecondLevelWhereExactStepsAreDearer) {
  options().linear_solver = LINEAR_SOLVER_AUTO;
  for (const DeviceType device : {DEVICE_HOST, DEVICE_CUDA}) {
    options().device = device;
    // On the host 4e9 operations, of 2.4e-11 s each, take 4,000 times the
    // 2.4e-5 s of an iteration; a device takes 0.3 s, or 6,000 iterations.
    rows_.num_other_columns = device == DEVICE_HOST ? 2290 : 35000;
    SolvePlan plan = Plan();
    EXPECT_FALSE(plan.step.may_factorize());
    EXPECT_GT(plan.step.coarse_after, 0);
    EXPECT_THAT(plan.notes, IsEmpty());
    options().preconditioner = PRECONDITIONER_AUTO;
    EXPECT_EQ(Plan().step.coarse_after, plan.step.coarse_after);
    options().preconditioner = PRECONDITIONER_SCHUR_JACOBI;
    EXPECT_FALSE(Plan().step.may_be_coarse());
    EXPECT_TRUE(Plan().step.is_mixture());
    options().preconditioner = PRECONDITIONER_AS_GIVEN;
    // Nor is there one where the program's choice is kept.
    options().linear_solver = LINEAR_SOLVER_ITERATIVE_SCHUR;
    EXPECT_FALSE(Plan().step.may_be_coarse());
    options().linear_solver = LINEAR_SOLVER_AUTO;
    // With other rows each step would form S, and it has to be asked for.
    rows_.num_other_rows = 10;
    plan = Plan();
    EXPECT_FALSE(plan.step.may_be_coarse());
    EXPECT_THAT(plan.notes, IsEmpty());
    options().preconditioner = PRECONDITIONER_AUTO;
    EXPECT_TRUE(Plan().step.may_be_coarse());
    options().preconditioner = PRECONDITIONER_AS_GIVEN;
    rows_.num_other_rows = 0;
    // Views alone need no S, unless they share too many columns. Each of these
    // costs an iteration, and the second level comes after a third of its cost.
    const RowFacts observations = rows_;
    rows_.num_other_rows = std::exchange(rows_.num_observations, 0);
    rows_.num_observation_kinds = 0;
    rows_.has_pairs = true;
    plan = Plan();
    ASSERT_TRUE(plan.step.may_be_coarse());
    rows_.num_shared_columns = 9;
    EXPECT_EQ(Plan().step.coarse_again, plan.step.coarse_again + 9);
    EXPECT_EQ(Plan().step.coarse_after, plan.step.coarse_after + 3);
    // Even if they could be recomputed.
    rows_.has_models = true;
    EXPECT_FALSE(Plan().recomputed);
    EXPECT_TRUE(Plan().step.may_be_coarse());
    rows_.num_shared_columns = 1000;
    EXPECT_FALSE(Plan().step.may_be_coarse());
    // General rows, as those of a graph of poses, have none to make it of.
    rows_.num_shared_columns = 0;
    rows_.num_general_rows = rows_.num_other_rows;
    options().preconditioner = PRECONDITIONER_AUTO;
    EXPECT_FALSE(Plan().step.may_be_coarse());
    EXPECT_TRUE(Plan().step.is_mixture());
    options().preconditioner = PRECONDITIONER_AS_GIVEN;
    rows_ = observations;
  }
  // On a device a part of the set-up does not depend on the number of rows.
  rows_.num_values = 16000000;
  const int of_few = Plan().step.coarse_after;
  rows_.num_values = 700000000;
  EXPECT_GT(of_few, Plan().step.coarse_after + 70);
}

// Ten exact steps cost more than a second level, though the first of them costs
// less than its set-up, 100 iterations.
TEST_F(SolvePlanTest, HasASecondLevelIfTenExactStepsAreDearer) {
  options().linear_solver = LINEAR_SOLVER_AUTO;
  options().device = DEVICE_HOST;
  // 4.1e7 operations take 41 times the 2.4e-5 s of an iteration.
  rows_.num_other_columns = 497;
  const SolvePlan plan = Plan();
  EXPECT_FALSE(plan.step.may_factorize());
  EXPECT_TRUE(plan.step.may_be_coarse());
  options().preconditioner = PRECONDITIONER_SCHUR_JACOBI;
  const solver::StepOptions of_exact = Plan().step;
  EXPECT_TRUE(of_exact.is_mixture());
  EXPECT_GT(of_exact.exact_step_cost, 35);
  EXPECT_LT(of_exact.exact_setup_cost + of_exact.exact_step_cost, 100);
}

// Ranks have no exact steps, but the same second level.
TEST_F(SolvePlanTest, GivesRanksASecondLevel) {
  options().linear_solver = LINEAR_SOLVER_AUTO;
  options().device = DEVICE_HOST;
  rows_.num_other_columns = 2290;
  const SolvePlan of_one = Plan();
  EXPECT_GT(of_one.step.coarse_after, 0);
  const auto ranks =
      kernels::MakeThreadCommunicators(1, std::chrono::milliseconds(1));
  options().communicator = ranks[0].get();
  const SolvePlan plan = Plan();
  EXPECT_EQ(plan.step.coarse_after, of_one.step.coarse_after);
  EXPECT_EQ(plan.step.num_first_steps, of_one.step.num_first_steps);
  EXPECT_THAT(plan.notes, IsEmpty());
  // One rank would take these exactly, or beside PCG.
  for (const int64_t columns : {90, 270}) {
    rows_.num_other_columns = columns;
    EXPECT_FALSE(Plan().step.may_factorize());
    EXPECT_EQ(Plan().step.may_be_coarse(), columns == 270);
    options().communicator = nullptr;
    EXPECT_TRUE(Plan().step.may_factorize());
    options().communicator = ranks[0].get();
  }
}

// The first steps decide in which valley a solve ends, and a program's own
// choice takes Ceres's steps.
TEST_F(SolvePlanTest, TakesFirstStepsWithCare) {
  options().linear_solver = LINEAR_SOLVER_AUTO;
  rows_.num_other_columns = 3000;
  EXPECT_GT(Plan().step.num_first_steps, 0);
  EXPECT_GT(Plan().step.min_num_first_iterations, 0);
  EXPECT_EQ(Plan().step.min_num_iterations, 0);
  options().linear_solver = LINEAR_SOLVER_ITERATIVE_SCHUR;
  EXPECT_EQ(Plan().step.num_first_steps, 0);
}

// A Jacobian of which S can be formed is stored if S may be wanted.
TEST_F(SolvePlanTest, StoresRowsForSAsAMatrix) {
  options().linear_solver = LINEAR_SOLVER_AUTO;
  options().device = DEVICE_CUDA;
  EXPECT_TRUE(RecomputedIsFaster(PRECISION_DOUBLE, facts_.rates));
  rows_.num_other_rows = 10;
  rows_.num_other_columns = 3000;
  EXPECT_TRUE(Plan().step.is_mixture());
  EXPECT_FALSE(Plan().recomputed);
  // An exact step that PCG's own limit comes before is not.
  request_.solver_options.max_linear_solver_iterations = 5;
  EXPECT_TRUE(Plan().recomputed);
  EXPECT_FALSE(Plan().step.may_factorize());
  options().preconditioner = PRECONDITIONER_TWO_LEVEL;
  SolvePlan plan = Plan();
  EXPECT_FALSE(plan.recomputed);
  EXPECT_EQ(plan.step.coarse_after, 0);
  options().jacobian = JACOBIAN_RECOMPUTED;
  plan = Plan();
  EXPECT_TRUE(plan.recomputed);
  EXPECT_FALSE(plan.step.may_be_coarse());
  EXPECT_THAT(plan.notes, ElementsAre(HasSubstr("PCG has no second level")));
}

// A device without cuSOLVER has PCG.
TEST_F(SolvePlanTest, ChoosesPcgWithoutALibrary) {
  options().linear_solver = LINEAR_SOLVER_AUTO;
  options().device = DEVICE_CUDA;
  facts_.why_no_factorization = "cuSOLVER is not there";
  EXPECT_TRUE(Plan().on_device);
  EXPECT_FALSE(Plan().step.may_factorize());
}

// A given choice is kept.
TEST_F(SolvePlanTest, ChoosesNothingUnasked) {
  options().device = DEVICE_HOST;
  EXPECT_FALSE(Plan().step.may_factorize());
  options().linear_solver = LINEAR_SOLVER_AUTO;
  request_.solver_options.use_explicit_schur_complement = true;
  EXPECT_EQ(Plan().linear_solver_type, ceres::ITERATIVE_SCHUR);
}

TEST_F(SolvePlanTest, GoesOnOnTheHostWithoutADevice) {
  facts_.no_device = "there is no device";
  for (const DeviceType device : {DEVICE_AUTO, DEVICE_CUDA}) {
    options().device = device;
    EXPECT_FALSE(Plan().on_device);
    EXPECT_EQ(Plan().why_host, "there is no device");
  }
  facts_.no_device.clear();
  request_.attempt.why_host = "the device failed: CUDA says no";
  EXPECT_EQ(Plan().why_host, "the device failed: CUDA says no");
  facts_.build_has_cuda = false;
  EXPECT_NE(Plan().why_host, "");
  options().device = DEVICE_AUTO;
  EXPECT_EQ(Plan().why_host, "");
  options().device = DEVICE_CUDA;
  options().fallback = FALLBACK_REFUSE;
  EXPECT_EQ(Refused().reason,
            "device = CUDA is not available, because the device failed: CUDA "
            "says no");
  EXPECT_FALSE(Refused().is_final);
}

TEST_F(SolvePlanTest, FormsMatricesOnTheHostToo) {
  request_.solver_options.linear_solver_type = ceres::DENSE_SCHUR;
  EXPECT_TRUE(Plan().on_device);
  EXPECT_EQ(facts_.work.num_factorized_columns, 90);
  facts_.why_no_factorization = "cuSOLVER is missing";
  EXPECT_FALSE(Plan().on_device);
  EXPECT_EQ(Plan().why_host, "cuSOLVER is missing");
  EXPECT_TRUE(Plan().step.factorizes());
  request_.solver_options.linear_solver_type = ceres::ITERATIVE_SCHUR;
  EXPECT_TRUE(Plan().on_device);  // It needs no factorisation.
  request_.solver_options.use_explicit_schur_complement = true;
  EXPECT_TRUE(Plan().on_device);
  facts_.why_host = "it is small";
  EXPECT_FALSE(Plan().on_device);
  EXPECT_TRUE(Plan().step.use_explicit_schur_complement);
}

TEST_F(SolvePlanTest, LeavesFactorsOfFloatOnTheHostToCeres) {
  request_.solver_options.linear_solver_type = ceres::DENSE_SCHUR;
  request_.solver_options.use_mixed_precision_solves = true;
  EXPECT_TRUE(Plan().on_device);
  facts_.why_host = "it is small";
  EXPECT_EQ(Refused().reason,
            "stock Ceres solves with DENSE_SCHUR on the host, because "
            "use_mixed_precision_solves needs a device (it is small)");
  EXPECT_TRUE(Refused().is_final);
  options().device = DEVICE_HOST;
  EXPECT_EQ(Refused().reason,
            "stock Ceres solves with DENSE_SCHUR on the host, because "
            "use_mixed_precision_solves needs a device");
}

TEST_F(SolvePlanTest, RecomputesWhereThatIsFasterAndCanBe) {
  EXPECT_TRUE(Plan().recomputed);
  facts_.why_not_recomputed = "no manifolds on points";
  EXPECT_FALSE(Plan().recomputed);
  EXPECT_THAT(Plan().notes, IsEmpty());
  // If double is slow it is not faster, and no rows are read.
  facts_.why_not_recomputed.clear();
  facts_.num_asked_for_rows = 0;
  facts_.rates = kernels::RatesOfRatio(64);
  EXPECT_FALSE(Plan().recomputed);
  options().jacobian = JACOBIAN_STORED;
  facts_.rates = kernels::RatesOfRatio(2);
  EXPECT_FALSE(Plan().recomputed);
  options().jacobian = JACOBIAN_AUTO;
  options().device = DEVICE_HOST;
  EXPECT_FALSE(Plan().recomputed);
  EXPECT_EQ(facts_.num_asked_for_rows, 0);
  options().jacobian = JACOBIAN_RECOMPUTED;
  EXPECT_TRUE(Plan().recomputed);
  facts_.why_not_recomputed = "no manifolds on points";
  EXPECT_EQ(Refused().reason,
            "jacobian RECOMPUTED supports no manifolds on points");
}

TEST_F(SolvePlanTest, StoresWhatAMatrixIsFormedOf) {
  request_.solver_options.linear_solver_type = ceres::SPARSE_SCHUR;
  options().jacobian = JACOBIAN_RECOMPUTED;
  EXPECT_TRUE(Plan().recomputed);
  rows_.num_other_rows = 1;
  EXPECT_FALSE(Plan().recomputed);
  EXPECT_THAT(Plan().notes,
              ElementsAre(HasSubstr("the Jacobian is stored, since")));
  EXPECT_FALSE(Plan().step.sums_pairs);
  rows_.num_other_rows = 0;
  rows_.rows_repeat = true;
  EXPECT_FALSE(Plan().recomputed);
  EXPECT_TRUE(Plan().step.sums_pairs);
  EXPECT_THAT(Plan().notes,
              ElementsAre(HasSubstr("observations of a point have the same")));
  rows_.rows_repeat = false;
  rows_.num_observation_kinds = 2;
  EXPECT_FALSE(Plan().recomputed);
  options().jacobian = JACOBIAN_AUTO;
  EXPECT_FALSE(Plan().recomputed);
  EXPECT_THAT(Plan().notes, IsEmpty());
}

TEST_F(SolvePlanTest, NeedsRowsThatCanBeRecomputed) {
  options().jacobian = JACOBIAN_RECOMPUTED;
  rows_.num_observations = 0;
  rows_.num_observation_kinds = 0;
  rows_.num_other_rows = 5;
  EXPECT_THAT(Refused().reason, HasSubstr("this library's cost functions"));
  rows_.has_models = true;
  EXPECT_TRUE(Plan().recomputed);
}

TEST_F(SolvePlanTest, SaysHowStepsAreComputed) {
  options().precision = PRECISION_MIXED;
  request_.solver_options.max_linear_solver_iterations = 7;
  SolvePlan plan = Plan();
  EXPECT_TRUE(plan.mixed);
  EXPECT_TRUE(plan.step.use_schur);
  EXPECT_EQ(plan.step.preconditioner, solver::PreconditionerType::kSchurJacobi);
  EXPECT_EQ(plan.step.max_num_iterations, 7);
  EXPECT_EQ(plan.preconditioner_name, "SCHUR_JACOBI");
  EXPECT_EQ(plan.merge_blocks,
            options().preconditioner_blocks == PRECONDITIONER_BLOCKS_MERGED);
  EXPECT_EQ(plan.forcing_sequence, FORCING_SEQUENCE_AUTO);
  request_.replaces_factorization = true;
  EXPECT_EQ(Plan().forcing_sequence, FORCING_SEQUENCE_MODEL_COST);
  options().forcing_sequence = FORCING_SEQUENCE_CONSTANT;
  EXPECT_EQ(Plan().forcing_sequence, FORCING_SEQUENCE_CONSTANT);
  options().device = DEVICE_HOST;
  EXPECT_FALSE(Plan().mixed);  // The host computes in double.
  request_.solver_options.linear_solver_type = ceres::CGNR;
  request_.solver_options.preconditioner_type = ceres::JACOBI;
  plan = Plan();
  EXPECT_FALSE(plan.step.use_schur);
  EXPECT_FALSE(plan.merge_blocks);
}

TEST_F(SolvePlanTest, PrefersAFactorOfFloatWhereDoubleIsSlow) {
  request_.solver_options.linear_solver_type = ceres::DENSE_SCHUR;
  rows_.num_other_columns = 9000;
  facts_.rates = kernels::RatesOfRatio(64);
  EXPECT_FALSE(Plan().step.prefers_float_factor);
  options().precision = PRECISION_MIXED;
  EXPECT_TRUE(Plan().step.prefers_float_factor);
  rows_.num_other_columns = 90;
  EXPECT_FALSE(Plan().step.prefers_float_factor);
  rows_.num_other_columns = 9000;
  request_.purpose = Purpose::kCovariance;
  EXPECT_FALSE(Plan().step.prefers_float_factor);
  request_.purpose = Purpose::kSolve;
  request_.solver_options.use_mixed_precision_solves = true;
  EXPECT_FALSE(Plan().step.prefers_float_factor);
  EXPECT_TRUE(Plan().step.use_mixed_precision_solves);
  request_.solver_options.use_mixed_precision_solves = false;
  facts_.rates = {};
  EXPECT_FALSE(Plan().step.prefers_float_factor);
}

TEST_F(SolvePlanTest, KeepsTheBestStateWhereCeresDoesNot) {
  for (const bool on_device : {false, true}) {
    for (const bool has_ceres_state : {false, true}) {
      for (const bool update_state : {false, true}) {
        options().device = on_device ? DEVICE_CUDA : DEVICE_HOST;
        request_.has_ceres_state = has_ceres_state;
        request_.solver_options.update_state_every_iteration = update_state;
        EXPECT_EQ(Plan().keeps_best,
                  (on_device || !has_ceres_state) && !update_state);
      }
    }
  }
}

// Which linear solvers are replaced.
TEST(SolverChoice, SaysWhatIsLeftToCeres) {
  struct Row {
    ceres::LinearSolverType type;
    ceres::PreconditionerType preconditioner;
    const char* why;  // "": it is replaced
  };
  for (const Row& row :
       {Row{ceres::ITERATIVE_SCHUR, ceres::SCHUR_JACOBI, ""},
        Row{ceres::ITERATIVE_SCHUR, ceres::IDENTITY, ""},
        Row{ceres::ITERATIVE_SCHUR, ceres::SCHUR_POWER_SERIES_EXPANSION, ""},
        Row{ceres::CGNR, ceres::JACOBI, ""},
        Row{ceres::DENSE_SCHUR, ceres::CLUSTER_JACOBI, ""},
        Row{ceres::SPARSE_SCHUR, ceres::JACOBI, ""},
        Row{ceres::SPARSE_NORMAL_CHOLESKY, ceres::JACOBI, ""},
        Row{ceres::DENSE_NORMAL_CHOLESKY, ceres::SUBSET, ""},
        Row{ceres::ITERATIVE_SCHUR, ceres::CLUSTER_JACOBI, "CLUSTER_JACOBI"},
        Row{ceres::CGNR, ceres::SUBSET, "SUBSET"},
        Row{ceres::DENSE_QR, ceres::JACOBI, "DENSE_QR"}}) {
    ceres::Solver::Options solver_options;
    solver_options.linear_solver_type = row.type;
    solver_options.preconditioner_type = row.preconditioner;
    const std::string why = WhyLeftToCeres({}, solver_options);
    EXPECT_EQ(why.empty(), row.why[0] == '\0') << why;
    EXPECT_THAT(why, HasSubstr(row.why));
  }
  ceres::Solver::Options sparse;
  sparse.linear_solver_type = ceres::SPARSE_SCHUR;
  sparse.dynamic_sparsity = true;
  EXPECT_THAT(WhyLeftToCeres({}, sparse), HasSubstr("dynamic_sparsity"));
  sparse.linear_solver_type = ceres::SPARSE_NORMAL_CHOLESKY;
  EXPECT_THAT(WhyLeftToCeres({}, sparse), HasSubstr("dynamic_sparsity"));
  sparse.linear_solver_type = ceres::SPARSE_SCHUR;
  sparse.dynamic_sparsity = false;
  sparse.use_mixed_precision_solves = true;
  EXPECT_EQ(WhyLeftToCeres({}, sparse), "");
  Options options;
  options.schur_factorization = SCHUR_FACTORIZATION_SPARSE;
  EXPECT_THAT(WhyLeftToCeres(options, sparse),
              HasSubstr("does not support use_mixed_precision_solves"));
}

// Cholesky of J'J as given is stock's if nothing is gained, unless this library
// is asked for.
TEST_F(SolvePlanTest, LeavesFewRowsOfNormalEquationsToCeres) {
  request_.solver_options.linear_solver_type = ceres::SPARSE_NORMAL_CHOLESKY;
  options().device = DEVICE_HOST;
  rows_ = {};
  rows_.num_other_rows = rows_.num_general_rows = 20;
  rows_.num_residuals = 60;
  rows_.num_columns = 30;
  rows_.num_other_columns = 15;
  rows_.num_couplings = 30;
  rows_.num_values = 300;
  EXPECT_THAT(Refused().reason,
              HasSubstr("SPARSE_NORMAL_CHOLESKY of stock Ceres is as fast"));
  EXPECT_TRUE(Refused().is_final);
  options().fallback = FALLBACK_REFUSE;
  EXPECT_TRUE(Plan().step.factorizes());
  options().fallback = FALLBACK_TO_CERES;
  options().schur_factorization = SCHUR_FACTORIZATION_DENSE;
  EXPECT_TRUE(Plan().step.factorizes());
  options().schur_factorization = SCHUR_FACTORIZATION_AUTO;
  request_.solver_options.sparse_linear_algebra_library_type =
      ceres::CUDA_SPARSE;  // which stock does not have
  EXPECT_TRUE(Plan().step.factorizes());
  request_.solver_options.sparse_linear_algebra_library_type =
      ceres::SUITE_SPARSE;
  options().device = DEVICE_CUDA;
  EXPECT_TRUE(Plan().on_device);
  options().device = DEVICE_HOST;
  request_.has_ceres_state = false;  // arrays
  EXPECT_TRUE(Plan().step.factorizes());
  request_.has_ceres_state = true;
  request_.solver_options.linear_solver_type = ceres::SPARSE_SCHUR;
  EXPECT_TRUE(Plan().step.factorizes());
  request_.solver_options.linear_solver_type = ceres::SPARSE_NORMAL_CHOLESKY;
  rows_.num_columns = 15000;
  rows_.num_other_columns = 7800;
  rows_.num_couplings = 12000;
  rows_.num_values = 360000;
  EXPECT_TRUE(Plan().step.factorizes());
  EXPECT_EQ(Plan().linear_solver_type, ceres::SPARSE_NORMAL_CHOLESKY);
}

// Dogleg steps are exact.
TEST(SolverChoice, AutoIsExactWithDogleg) {
  Options options;
  options.linear_solver = LINEAR_SOLVER_AUTO;
  for (const auto given : {ceres::DENSE_QR,
                           ceres::DENSE_SCHUR,
                           ceres::SPARSE_SCHUR,
                           ceres::SPARSE_NORMAL_CHOLESKY}) {
    ceres::Solver::Options solver_options;
    solver_options.trust_region_strategy_type = ceres::DOGLEG;
    solver_options.linear_solver_type = given;
    const bool is_exact = given != ceres::DENSE_QR;
    EXPECT_EQ(ChooseLinearSolver(options, &solver_options), !is_exact);
    EXPECT_EQ(solver_options.linear_solver_type,
              is_exact ? given : ceres::DENSE_SCHUR);
    // Which only a device, or only stock, has.
    solver_options.linear_solver_type = given;
    solver_options.use_mixed_precision_solves = true;
    EXPECT_TRUE(ChooseLinearSolver(options, &solver_options));
    EXPECT_EQ(solver_options.linear_solver_type, ceres::DENSE_SCHUR);
    EXPECT_FALSE(solver_options.use_mixed_precision_solves);
  }
}

TEST(SolverChoice, ChoosesOnlyAnother) {
  ceres::Solver::Options given;
  given.linear_solver_type = ceres::DENSE_SCHUR;
  given.use_mixed_precision_solves = true;
  Options options;
  EXPECT_FALSE(ChooseLinearSolver(options, &given));
  options.linear_solver = LINEAR_SOLVER_ITERATIVE_SCHUR;
  ceres::Solver::Options chosen = given;
  EXPECT_TRUE(ChooseLinearSolver(options, &chosen));
  EXPECT_EQ(chosen.linear_solver_type, ceres::ITERATIVE_SCHUR);
  EXPECT_FALSE(chosen.use_mixed_precision_solves);
  EXPECT_EQ(LinearSolverName(given), "DENSE_SCHUR");
  EXPECT_EQ(LinearSolverName(chosen), "ITERATIVE_SCHUR with JACOBI");
  EXPECT_FALSE(ChooseLinearSolver(options, &chosen));
}

}  // namespace
}  // namespace ceres_ext
