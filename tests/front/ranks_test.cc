// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Problems of arrays that several ranks, threads of this process, solve
// together, against the same problem solved alone; and ranks that fail,
// disagree, stop or go.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <new>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "ceres/ceres.h"
#include "ceres/normal_prior.h"
#include "ceres_ext/array_problem.h"
#include "ceres_ext/bal_cost_functions.h"
#include "ceres_ext/base/ceres_version.h"
#include "ceres_ext/batch.h"
#include "ceres_ext/communicator.h"
#include "ceres_ext/covariance.h"
#include "ceres_ext/front/array_parts.h"
#include "ceres_ext/front/solve_parts.h"
#include "ceres_ext/import/problem_of_arrays.h"
#include "ceres_ext/import/table_of_problem.h"
#include "ceres_ext/solve.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/random_arrays.h"
#include "tests/common/random_cases.h"
#include "tests/common/same_summary.h"
#include "tests/front/rank_problem.h"

namespace ceres_ext {
namespace {

using ::testing::HasSubstr;

const bool kIsQuiet = [] {
  SetQuiet(true);
  return true;
}();

constexpr std::chrono::milliseconds kLong{60000};

class RanksTest : public testing::Test, public RankProblem {
 protected:
  RanksTest() = default;
  RanksTest(int num_cameras, int num_points)
      : RankProblem(num_cameras, num_points) {}
  using Parts = std::vector<std::unique_ptr<Part>>;
  Parts MakeAll(const Case& c, int size) const {
    Parts parts;
    for (int rank = 0; rank < size; ++rank) {
      parts.push_back(std::make_unique<Part>());
      Make(c, rank, size, parts.back().get());
    }
    return parts;
  }

  using Communicators = std::vector<std::unique_ptr<Communicator>>;
  // Solves the parts on a thread each; prepare may change a rank's options.
  using Prepare = std::function<void(
      int rank, ceres::Solver::Options* options, Options* ext_options)>;
  static void Solve(const Case& c,
                    const Communicators& communicators,
                    const Prepare& prepare,
                    Parts* parts) {
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < parts->size(); ++rank) {
      threads.emplace_back([&, rank] {
        ceres::Solver::Options options = SomeOptions(c);
        Options ext_options = OnHost();
        ext_options.communicator = communicators[rank].get();
        if (prepare) {
          prepare(static_cast<int>(rank), &options, &ext_options);
        }
        Part* const part = (*parts)[rank].get();
        ceres_ext::Solve(options, ext_options, &part->problem, &part->summary);
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
  }
  Parts SolveBy(const Case& c, int size, const Prepare& prepare = {}) const {
    Parts parts = MakeAll(c, size);
    const Communicators communicators =
        kernels::MakeThreadCommunicators(size, kLong);
    Solve(c, communicators, prepare, &parts);
    return parts;
  }
  Part* Alone(const Case& c) {
    alone_ = std::make_unique<Part>();
    Make(c, 0, 1, alone_.get());
    ceres_ext::Solve(
        SomeOptions(c), OnHost(), &alone_->problem, &alone_->summary);
    return alone_.get();
  }

  // All ranks end with this sentence, and with their start.
  void ExpectRefused(const Case& c,
                     const Parts& parts,
                     const std::string& sentence) const {
    const Parts start = MakeAll(c, static_cast<int>(parts.size()));
    for (size_t rank = 0; rank < parts.size(); ++rank) {
      const Summary& summary = parts[rank]->summary;
      EXPECT_EQ(summary.termination_type, ceres::FAILURE) << rank;
      EXPECT_THAT(summary.message, HasSubstr(sentence)) << rank;
      EXPECT_EQ(parts[rank]->values.cameras, start[rank]->values.cameras);
      EXPECT_EQ(parts[rank]->values.points, start[rank]->values.points);
    }
  }

  std::unique_ptr<Part> alone_;
};

TEST_F(RanksTest, SolveAsOneDoes) {
  for (const Case& c : AllCases()) {
    SCOPED_TRACE(testing::Message()
                 << "split " << (c.rows == Rows::kSplit) << " preconditioner "
                 << c.preconditioner << " loss " << c.has_loss << " priors "
                 << c.has_priors);
    const Part* const alone = Alone(c);
    ASSERT_TRUE(alone->summary.IsSolutionUsable()) << alone->summary.message;
    for (const int size : {1, 3, 7}) {
      SCOPED_TRACE(size);
      const Parts parts = SolveBy(c, size);
      for (const auto& part : parts) {
        const Summary& summary = part->summary;
        ASSERT_EQ(summary.path, PATH_FULL) << summary.message;
        EXPECT_THAT(summary.path_reason,
                    HasSubstr(std::to_string(size) + " ranks solve"));
        ASSERT_EQ(summary.iterations.size(), alone->summary.iterations.size());
        ExpectAsAlone(summary, alone->summary);
        // The same bits on all ranks.
        EXPECT_EQ(summary.final_cost, parts[0]->summary.final_cost);
        EXPECT_EQ(part->values.cameras, parts[0]->values.cameras);
        EXPECT_EQ(part->values.intrinsics, parts[0]->values.intrinsics);
      }
    }
  }
}

// Enough cameras for several clusters.
class RanksTwoLevelTest : public RanksTest {
 protected:
  RanksTwoLevelTest() : RanksTest(60, 500) {}
  static void TakeTwoLevels(int /*rank*/,
                            ceres::Solver::Options* /*options*/,
                            Options* ext_options) {
    ext_options->preconditioner = PRECONDITIONER_TWO_LEVEL;
  }
  // one: the same by one rank. alone: without a second level, which takes more
  // than `factor` times the iterations.
  static void ExpectSecondLevel(const Parts& parts,
                                const Parts& one,
                                const Summary& alone,
                                double factor) {
    for (size_t rank = 0; rank < parts.size(); ++rank) {
      SCOPED_TRACE(rank);
      const Summary& summary = parts[rank]->summary;
      ASSERT_EQ(summary.path, PATH_FULL) << summary.message;
      EXPECT_EQ(summary.num_coarse_iterations, summary.num_pcg_iterations)
          << summary.path_reason;
      EXPECT_GE(summary.num_clusters, 2);
      // The samples of points are others than those of one.
      EXPECT_LT(summary.num_pcg_iterations,
                1.3 * one[0]->summary.num_pcg_iterations);
      EXPECT_LT(factor * static_cast<double>(summary.num_pcg_iterations),
                static_cast<double>(alone.num_pcg_iterations));
      EXPECT_NEAR(
          summary.final_cost, alone.final_cost, 1e-8 * alone.final_cost);
      EXPECT_EQ(parts[rank]->values.cameras, parts[0]->values.cameras);
      EXPECT_EQ(parts[rank]->values.intrinsics, parts[0]->values.intrinsics);
    }
  }
};

TEST_F(RanksTwoLevelTest, EndAsOneDoesInFewerIterations) {
  Case c;
  c.is_shuffled = true;
  const Part* const alone = Alone(c);
  const Parts one = SolveBy(c, 1, TakeTwoLevels);
  ExpectSecondLevel(one, one, alone->summary, 2.0);
  for (const int size : {2, 5}) {
    SCOPED_TRACE(size);
    const Parts parts = SolveBy(c, size, TakeTwoLevels);
    ExpectSecondLevel(parts, one, alone->summary, 2.0);
    const Parts again = SolveBy(c, size, TakeTwoLevels);
    for (size_t rank = 0; rank < parts.size(); ++rank) {
      EXPECT_EQ(parts[rank]->values.cameras, again[rank]->values.cameras);
      EXPECT_EQ(parts[rank]->values.points, again[rank]->values.points);
    }
  }
}

// Views, which ranks number by their own rows, and priors, which one rank has,
// so that S is formed. Four images share their intrinsics, and all of a unit.
TEST_F(RanksTwoLevelTest, HaveItOfAllRows) {
  for (const bool has_priors : {false, true}) {
    for (const Rows rows : {Rows::kSplit, Rows::kBal}) {
      SCOPED_TRACE(testing::Message() << "priors " << has_priors << " split "
                                      << (rows == Rows::kSplit));
      Case c;
      c.rows = rows;
      c.has_priors = has_priors;
      c.has_constants = c.is_shuffled = true;
      const Part* const alone = Alone(c);
      const Parts one = SolveBy(c, 1, TakeTwoLevels);
      // Images are not a street, which priors hold: 1.18 to 1.85 times.
      constexpr double kFewer = 1.1;
      ExpectSecondLevel(one, one, alone->summary, kFewer);
      ExpectSecondLevel(
          SolveBy(c, 3, TakeTwoLevels), one, alone->summary, kFewer);
    }
  }
}

// As one device does; all ranks take the same steps.
TEST_F(RanksTwoLevelTest, HaveItByDefault) {
  const Case c;
  const Prepare choose_nothing =
      [](int /*rank*/, ceres::Solver::Options* options, Options* ext_options) {
        options->linear_solver_type = ceres::SPARSE_SCHUR;
        ext_options->linear_solver = LINEAR_SOLVER_AUTO;
      };
  const Part* const alone = Alone(c);
  const Parts parts = SolveBy(c, 3, choose_nothing);
  for (const auto& part : parts) {
    const Summary& summary = part->summary;
    ASSERT_EQ(summary.path, PATH_FULL) << summary.message;
    EXPECT_GT(summary.num_coarse_iterations, 0) << summary.path_reason;
    // Steps begin without it.
    EXPECT_LT(summary.num_coarse_iterations, summary.num_pcg_iterations);
    EXPECT_EQ(summary.num_exact_steps, 0);
    EXPECT_LT(summary.num_pcg_iterations, alone->summary.num_pcg_iterations);
    EXPECT_NEAR(summary.final_cost,
                alone->summary.final_cost,
                1e-8 * alone->summary.final_cost);
    EXPECT_EQ(part->values.cameras, parts[0]->values.cameras);
  }
}

// Ten times the same bits, by any number of threads.
TEST_F(RanksTest, SameBitsEveryTime) {
  Case c;
  c.rows = Rows::kSplit;
  c.has_loss = c.has_priors = true;
  const Parts first = SolveBy(c, 3);
  for (int run = 0; run < 10; ++run) {
    const Parts again = SolveBy(c,
                                3,
                                [run](int rank,
                                      ceres::Solver::Options* options,
                                      Options* /*ext_options*/) {
                                  options->num_threads = 1 + (run + rank) % 3;
                                });
    for (size_t rank = 0; rank < 3; ++rank) {
      ASSERT_EQ(again[rank]->values.cameras, first[rank]->values.cameras);
      ASSERT_EQ(again[rank]->values.intrinsics, first[rank]->values.intrinsics);
      ASSERT_EQ(again[rank]->values.points, first[rank]->values.points);
      ASSERT_EQ(again[rank]->summary.final_cost,
                first[rank]->summary.final_cost);
    }
  }
}

// A communicator is of use for one solve after the other, also after a refusal.
TEST_F(RanksTest, OneSolveAfterTheOther) {
  const Case c;
  const Communicators communicators =
      kernels::MakeThreadCommunicators(2, kLong);
  Parts refused = MakeAll(c, 2);
  Solve(
      c,
      communicators,
      [](int rank, ceres::Solver::Options* options, Options* /*ext_options*/) {
        options->eta = rank == 0 ? 0.1 : 0.2;
      },
      &refused);
  ExpectRefused(c, refused, "Rank 1 and rank 0 disagree about eta");
  for (int i = 0; i < 2; ++i) {
    Parts parts = MakeAll(c, 2);
    Solve(c, communicators, {}, &parts);
    EXPECT_TRUE(parts[0]->summary.IsSolutionUsable())
        << parts[0]->summary.message;
    EXPECT_TRUE(parts[1]->summary.IsSolutionUsable());
  }
}

TEST_F(RanksTest, DisagreementsAreNamed) {
  const Case c;
  {
    Parts parts = MakeAll(c, 3);
    parts[2]->values.cameras[5] += 1e-9;
    const std::vector<double> cameras = parts[2]->values.cameras;
    const Communicators communicators =
        kernels::MakeThreadCommunicators(3, kLong);
    Solve(c, communicators, {}, &parts);
    for (const auto& part : parts) {
      EXPECT_EQ(part->summary.message,
                "Rank 2 and rank 0 disagree about the values of parameters 0");
    }
    EXPECT_EQ(parts[2]->values.cameras, cameras);
  }
  ExpectRefused(
      c,
      SolveBy(c,
              3,
              [](int rank, ceres::Solver::Options* options, Options* /*ext*/) {
                if (rank == 1) {
                  options->linear_solver_type = ceres::DENSE_SCHUR;
                }
              }),
      "Rank 1: linear_solver_type DENSE_SCHUR is not supported by several "
      "ranks");
  ExpectRefused(
      c,
      SolveBy(c,
              2,
              [](int rank, ceres::Solver::Options* /*options*/, Options* ext) {
                ext->device = rank == 1 ? DEVICE_CUDA : DEVICE_HOST;
                ext->cuda_device = 1000;
                ext->fallback = FALLBACK_REFUSE;
              }),
      "Rank 1: device = CUDA is not available");
  {
    Parts parts = MakeAll(c, 2);
    parts[1]->problem = ArrayProblem();
    parts[1]->problem.AddParameters({parts[1]->values.cameras.data(), 12, 9});
    const Communicators communicators =
        kernels::MakeThreadCommunicators(2, kLong);
    Solve(c, communicators, {}, &parts);
    for (const auto& part : parts) {
      EXPECT_THAT(part->summary.message,
                  HasSubstr("Rank 1: expected one array of parameters with "
                            "is_own, found 0"));
    }
  }
}

TEST_F(RanksTest, WhatHasNoRanksSaysSo) {
  const Communicators communicators =
      kernels::MakeThreadCommunicators(1, kLong);
  Options ext_options = OnHost();
  ext_options.communicator = communicators[0].get();
  ceres::Problem problem;
  Summary summary;
  ceres_ext::Solve(ceres::Solver::Options(), ext_options, &problem, &summary);
  EXPECT_EQ(summary.termination_type, ceres::FAILURE);
  EXPECT_THAT(summary.message, HasSubstr("a ceres::Problem is not solved by"));
  ProblemBatch batch;
  BatchSummary of_batch;
  std::string error;
  EXPECT_FALSE(SolveBatch(
      ceres::Solver::Options(), ext_options, &batch, &of_batch, &error));
  EXPECT_THAT(error, HasSubstr("a batch is not solved by several ranks"));
  double cost = 0.0;
  EXPECT_FALSE(Evaluate(EvaluateOptions(),
                        ext_options,
                        ArrayProblem(),
                        &cost,
                        nullptr,
                        nullptr,
                        &error));
  EXPECT_THAT(error, HasSubstr("an evaluation is not solved by"));
  CovarianceOptions covariance_options;
  covariance_options.ext = ext_options;
  Covariance covariance(covariance_options);
  EXPECT_FALSE(covariance.Compute(std::vector<const double*>(), &problem));
  EXPECT_THAT(covariance.error(),
              HasSubstr("a covariance is not computed by several ranks"));
}

// Counts calls and ends the solve with one of them.
class Stop final : public ceres::IterationCallback {
 public:
  explicit Stop(int last) : last_(last) {}
  ceres::CallbackReturnType operator()(
      const ceres::IterationSummary& /*summary*/) override {
    if (throws) {
      throw std::runtime_error("a callback that throws");
    }
    return ++num_calls < last_ ? ceres::SOLVER_CONTINUE
                               : ceres::SOLVER_TERMINATE_SUCCESSFULLY;
  }
  int num_calls = 0;
  bool throws = false;

 private:
  const int last_;
};

TEST_F(RanksTest, CallbacksAreThoseOfTheFirst) {
  std::vector<std::unique_ptr<Stop>> stops;
  for (int rank = 0; rank < 3; ++rank) {
    stops.push_back(std::make_unique<Stop>(rank == 0 ? 3 : 1));
  }
  const Parts parts =
      SolveBy(Case(),
              3,
              [&](int rank, ceres::Solver::Options* options, Options* /*ext*/) {
                options->callbacks.push_back(stops[rank].get());
              });
  EXPECT_EQ(stops[0]->num_calls, 3);
  EXPECT_EQ(stops[1]->num_calls, 0);
  for (const auto& part : parts) {
    EXPECT_EQ(part->summary.termination_type, ceres::USER_SUCCESS);
    EXPECT_EQ(part->summary.iterations.size(), 3u);
    EXPECT_EQ(part->values.cameras, parts[0]->values.cameras);
  }
}

TEST_F(RanksTest, TheTimeOfTheFirstCounts) {
  const Parts parts =
      SolveBy(Case(),
              2,
              [](int rank, ceres::Solver::Options* options, Options* /*ext*/) {
                options->max_solver_time_in_seconds = rank == 0 ? 1e-9 : 1e9;
              });
  for (const auto& part : parts) {
    EXPECT_EQ(part->summary.termination_type, ceres::NO_CONVERGENCE);
    EXPECT_THAT(part->summary.message,
                HasSubstr("Maximum solver time reached."));
    EXPECT_EQ(part->summary.iterations.size(), 1u);
  }
}

TEST_F(RanksTest, AnExceptionOnOneEndsAll) {
  const Case c;
  Stop stop(100);
  stop.throws = true;
  const Parts parts = SolveBy(
      c, 3, [&](int rank, ceres::Solver::Options* options, Options* /*ext*/) {
        if (rank == 0) {
          options->callbacks.push_back(&stop);
        }
      });
  ExpectRefused(c, parts, "a callback that throws");
  EXPECT_THAT(parts[1]->summary.message, HasSubstr("Rank 0: "));
}

// A point at the optical centre of a camera, which one rank has.
TEST_F(RanksTest, ARowThatCantBeEvaluatedFailsAll) {
  const Case c;
  Parts parts = MakeAll(c, 3);
  std::fill_n(
      parts[1]->values.points.begin(), 3, std::numeric_limits<double>::max());
  const std::vector<double> points = parts[1]->values.points;
  const Communicators communicators =
      kernels::MakeThreadCommunicators(3, kLong);
  Solve(c, communicators, {}, &parts);
  for (const auto& part : parts) {
    EXPECT_EQ(part->summary.termination_type, ceres::FAILURE);
    EXPECT_THAT(part->summary.message,
                HasSubstr("Rank 1: Residual or Jacobian"));
  }
  EXPECT_EQ(parts[1]->values.points, points);
}

// Finds no memory at an evaluation in the middle of a solve.
class ThrowingLoss final : public ceres::LossFunction {
 public:
  void Evaluate(double s, double rho[3]) const override {
    if (++num_calls_ == 700) {
      throw std::bad_alloc();
    }
    rho[0] = s;
    rho[1] = 1.0;
    rho[2] = 0.0;
  }

 private:
  mutable std::atomic<int> num_calls_{0};
};

// A rank that fails alone, while the others continue, is named by all.
TEST_F(RanksTest, NoMemoryOnOneEndsAll) {
  const Case c;
  Parts parts = MakeAll(c, 3);
  ThrowingLoss loss;
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    parts[rank]->problem.mutable_residuals(0)->loss =
        rank == 1 ? &loss : nullptr;
  }
  const Communicators communicators =
      kernels::MakeThreadCommunicators(3, kLong);
  Solve(c, communicators, {}, &parts);
  ExpectRefused(c, parts, "memory");
  for (const int rank : {0, 2}) {
    EXPECT_THAT(parts[rank]->summary.message, HasSubstr("Rank 1: "));
  }
}

// A rank that never comes, and one that goes.
TEST_F(RanksTest, NobodyWaitsForEver) {
  const Case c;
  Parts parts = MakeAll(c, 2);
  Communicators communicators =
      kernels::MakeThreadCommunicators(3, std::chrono::milliseconds(50));
  Solve(c, communicators, {}, &parts);
  ExpectRefused(c, parts, "waited 50 ms for 1 of 3 ranks");

  parts = MakeAll(c, 2);
  communicators = kernels::MakeThreadCommunicators(3, kLong);
  communicators[2].reset();
  Solve(c, communicators, {}, &parts);
  ExpectRefused(c, parts, "Rank 2 has ended");
}

// Fails from its n-th call on.
class Failing final : public Communicator {
 public:
  Failing(Communicator* other, int n) : other_(other), n_(n) {}
  int rank() const final { return other_->rank(); }
  int size() const final { return other_->size(); }
  bool AllGather(const void* mine,
                 int64_t bytes,
                 void* all,
                 std::string* error) final {
    return IsAlive(error) && other_->AllGather(mine, bytes, all, error);
  }
  bool AllToAll(const void* from,
                int64_t bytes,
                void* to,
                std::string* error) final {
    return IsAlive(error) && other_->AllToAll(from, bytes, to, error);
  }
  void Abort(const std::string& message) final { other_->Abort(message); }
  int num_calls() const { return num_calls_; }

 private:
  bool IsAlive(std::string* error) {
    if (++num_calls_ < n_) {
      return true;
    }
    *error = "Rank 1: the cable was cut.";
    other_->Abort("the cable was cut.");
    return false;
  }

  Communicator* const other_;
  const int n_;
  int num_calls_ = 0;
};

// Whenever one loses its connection, all end with a sentence that names it,
// with their start or with a state that they all have.
TEST_F(RanksTest, ARankThatFailsAtAnyMoment) {
  Case c;
  c.rows = Rows::kSplit;
  int num_calls = 0;
  for (int n = std::numeric_limits<int>::max(); n > 0;
       n = n > num_calls ? num_calls : n - 1 - num_calls / 60) {
    Parts parts = MakeAll(c, 2);
    const Communicators communicators =
        kernels::MakeThreadCommunicators(2, kLong);
    Failing failing(communicators[1].get(), n);
    Solve(
        c,
        communicators,
        [&](int rank, ceres::Solver::Options* /*options*/, Options* ext) {
          if (rank == 1) {
            ext->communicator = &failing;
          }
        },
        &parts);
    if (num_calls == 0) {
      num_calls = failing.num_calls();
      ASSERT_GT(num_calls, 60);
      ASSERT_TRUE(parts[0]->summary.IsSolutionUsable());
      // The last two are of the summary's counts, which fail nothing.
      num_calls -= 2;
      continue;
    }
    for (const auto& part : parts) {
      ASSERT_EQ(part->summary.termination_type, ceres::FAILURE) << n;
      ASSERT_THAT(part->summary.message,
                  HasSubstr("Rank 1: the cable was cut."))
          << n;
      ASSERT_EQ(part->values.cameras, parts[0]->values.cameras) << n;
    }
  }
}

// A caller sees the same of a solve by parts as of one alone.
TEST_F(RanksTest, PartsAreSolvedInTheirPlace) {
  kernels::HostContext context(2);
  for (const bool is_shuffled : {false, true}) {
    for (Case c : AllCases()) {
      if (c.preconditioner != ceres::SCHUR_JACOBI) {
        continue;
      }
      c.is_shuffled = is_shuffled;
      const Part* const alone = Alone(c);
      for (const size_t num_parts : {1, 2, 5}) {
        Part all;
        Make(c, 0, 1, &all);
        ceres::Solver::Options options = SomeOptions(c);
        Stop stop(100);
        options.callbacks.push_back(&stop);
        std::string reason;
        ASSERT_TRUE(SolveParts(
            options,
            std::vector<Options>(num_parts, OnHost()),
            all.problem,
            &context,
            [](const ceres::Solver::Options& of_rank,
               const Options& ext_options,
               ArrayProblem* problem,
               Summary* summary) {
              ceres_ext::Solve(of_rank, ext_options, problem, summary);
            },
            &all.summary,
            &reason))
            << reason;
        ASSERT_TRUE(all.summary.IsSolutionUsable()) << all.summary.message;
        EXPECT_EQ(stop.num_calls,
                  static_cast<int>(all.summary.iterations.size()));
        EXPECT_NEAR(all.summary.final_cost,
                    alone->summary.final_cost,
                    std::sqrt(kEta) * alone->summary.initial_cost);
        ExpectSameSizes(all.summary, alone->summary);
        EXPECT_EQ(all.summary.degenerate_eliminated_blocks.count,
                  alone->summary.degenerate_eliminated_blocks.count);
        // The state is where the cost says.
        double cost = 0.0;
        std::string error;
        ASSERT_TRUE(Evaluate(EvaluateOptions(),
                             OnHost(),
                             all.problem,
                             &cost,
                             nullptr,
                             nullptr,
                             &error))
            << error;
        EXPECT_NEAR(cost, all.summary.final_cost, 1e-12 * cost);
      }
    }
  }
}

// Points of two halves, each seen by cameras of its own array, so that each of
// two ranks has rows of one camera array alone; of one kind or two.
TEST_F(RanksTest, EachHasCamerasOfItsOwn) {
  kernels::HostContext context(2);
  for (const int second_size : {9, 10}) {
    SCOPED_TRACE(second_size);
    BalTestProblem halves[2] = {MakeBalTestProblem(5, 60, 4, 9, 1),
                                MakeBalTestProblem(7, 60, 4, second_size, 2)};
    std::vector<double> points = halves[0].points;
    points.insert(
        points.end(), halves[1].points.begin(), halves[1].points.end());
    for (int32_t& id : halves[1].point_id) {
      id += 60;
    }
    ArrayProblem problem;
    const int of_points = problem.AddParameters({points.data(), 120, 3});
    for (BalTestProblem& half : halves) {
      const int cameras = problem.AddParameters(
          {half.cameras.data(), half.num_cameras(), half.camera_size});
      const auto n = static_cast<int64_t>(half.point_id.size());
      const std::vector<ArrayProblem::Index> blocks = {
          {cameras, half.camera_id.data()}, {of_points, half.point_id.data()}};
      if (half.camera_size == 9) {
        problem.AddResiduals<BalReprojectionError>(
            n, half.observations.data(), blocks);
      } else {
        problem.AddResiduals<BalQuaternionReprojectionError>(
            n, half.observations.data(), blocks);
      }
    }
    const auto start =
        std::make_tuple(halves[0].cameras, halves[1].cameras, points);
    Case c;
    c.preconditioner = ceres::JACOBI;
    const ceres::Solver::Options options = SomeOptions(c);
    Summary alone;
    ceres_ext::Solve(options, OnHost(), &problem, &alone);
    ASSERT_TRUE(alone.IsSolutionUsable()) << alone.message;
    std::tie(halves[0].cameras, halves[1].cameras, points) = start;
    Summary summary;
    std::string reason;
    ASSERT_TRUE(SolveParts(
        options,
        std::vector<Options>(2, OnHost()),
        problem,
        &context,
        [](const ceres::Solver::Options& of_rank,
           const Options& ext_options,
           ArrayProblem* part,
           Summary* of_part) {
          ceres_ext::Solve(of_rank, ext_options, part, of_part);
        },
        &summary,
        &reason))
        << reason;
    EXPECT_EQ(summary.path, PATH_FULL) << summary.message;
    EXPECT_EQ(summary.num_effective_parameters_reduced,
              alone.num_effective_parameters_reduced);
    EXPECT_NEAR(
        summary.initial_cost, alone.initial_cost, 1e-12 * alone.initial_cost);
    EXPECT_NEAR(summary.final_cost,
                alone.final_cost,
                std::sqrt(kEta) * alone.initial_cost);
    EXPECT_LT(summary.final_cost, 0.5 * summary.initial_cost);
  }
}

// Rows by their numbers: each part has those of its points, in their order.
TEST_F(RanksTest, PartsAreCutByRows) {
  kernels::HostContext context(2);
  std::mt19937 random(3);
  for (int i = 0; i < 200; ++i) {
    const int num_points = 1 + static_cast<int>(random() % 40);
    const int num_rows = 1 + static_cast<int>(random() % 100);
    const int num_parts = 1 + static_cast<int>(random() % 6);
    // Few points with most rows, at times.
    const int num_seen =
        1 + static_cast<int>(random() % static_cast<unsigned>(num_points));
    std::vector<double> cameras(9, 1.0);
    std::vector<double> points(3 * num_points, 2.0);
    std::vector<int32_t> camera(num_rows, 0);
    std::vector<int32_t> point;
    std::vector<double> observations;
    for (int k = 0; k < num_rows; ++k) {
      point.push_back(static_cast<int32_t>(random() % num_seen));
      observations.push_back(k);
      observations.push_back(-k);
    }
    if (i % 2 == 0) {
      std::sort(point.begin(), point.end());
    }
    ArrayProblem problem;
    const int c = problem.AddParameters({cameras.data(), 1, 9});
    const int p = problem.AddParameters({points.data(), num_points, 3});
    problem.AddResiduals<BalReprojectionError>(
        num_rows, observations.data(), {{c, camera.data()}, {p, point.data()}});
    ASSERT_EQ(FindOwnArray(problem), p);
    int64_t most_rows = 0;  // of a point
    for (int32_t b = 0; b < num_points; ++b) {
      most_rows = std::max<int64_t>(most_rows,
                                    std::count(point.begin(), point.end(), b));
    }
    ArrayParts parts(&problem, p, num_parts, &context);
    ASSERT_LE(parts.size(), num_parts);
    std::vector<int> seen(num_rows, 0);
    int64_t next_point = 0;
    for (int part = 0; part < parts.size(); ++part) {
      const ArrayProblem& one = *parts.part(part);
      const ArrayProblem::Parameters& own = one.parameters()[p];
      EXPECT_TRUE(own.is_own);
      EXPECT_EQ(own.values, points.data() + 3 * next_point);
      ASSERT_EQ(one.residuals().size(), 1u);
      const ArrayProblem::Residuals& rows = one.residuals()[0];
      ASSERT_GT(rows.num_blocks, 0);
      // A part ends with the point that fills it.
      EXPECT_LT(rows.num_blocks * num_parts, num_rows + num_parts * most_rows);
      int last = -1;
      for (int64_t k = 0; k < rows.num_blocks; ++k) {
        const auto number =
            static_cast<int>(static_cast<const double*>(rows.constants)[2 * k]);
        EXPECT_GT(number, last);
        last = number;
        ++seen[number];
        EXPECT_EQ(rows.blocks[1].BlockOf(k) + next_point, point[number]);
        EXPECT_EQ(rows.blocks[0].BlockOf(k), 0);
      }
      next_point += own.num_blocks;
    }
    EXPECT_EQ(next_point, num_points);
    EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), num_rows);
  }
}

// Problems of all kinds, by 1 to 5 ranks. The steps are those of one rank up to
// sqrt(eta), whatever is eliminated; where a problem is ill-posed they differ
// in directions that change no cost.
TEST(RandomRanks, SolveAsOneDoes) {
  constexpr double kRest = 1e-3;
  int num_close = 0;
  kernels::HostContext context(2);
  int num_solved = 0;
  ForEachCase(150, [&](Random* random) {
    RandomArrays arrays(random);
    ceres::Solver::Options options;
    if (random->Chance(0.3)) {
      arrays.AddBounds();
      options.max_num_line_search_step_size_iterations = random->OneOf({0, 20});
    }
    SCOPED_TRACE(arrays.Describe());
    options.linear_solver_type = ceres::ITERATIVE_SCHUR;
    options.preconditioner_type =
        random->Chance(0.5) ? ceres::SCHUR_JACOBI : ceres::JACOBI;
    options.max_num_iterations = 1;
    options.max_linear_solver_iterations = 2000;
    options.eta = 1e-14;
    options.logging_type = ceres::SILENT;
    Options ext_options = RankProblem::OnHost();
    ext_options.batch_evaluation = random->Chance(0.85);
    const auto num_parts = static_cast<size_t>(1 + random->Below(5));
    const auto start = arrays.Values();
    Summary alone;
    ceres_ext::Solve(options, ext_options, arrays.problem(), &alone);
    if (alone.path != PATH_FULL || !alone.IsSolutionUsable() ||
        FindOwnArray(*arrays.problem()) < 0 ||
        alone.path_reason.find("a ceres::Problem was built") !=
            std::string::npos) {
      return;
    }
    arrays.SetValues(start);
    Summary summary;
    std::string reason;
    ASSERT_TRUE(SolveParts(
        options,
        std::vector<Options>(num_parts, ext_options),
        *arrays.problem(),
        &context,
        [](const ceres::Solver::Options& of_rank,
           const Options& ext_of_rank,
           ArrayProblem* problem,
           Summary* of_part) {
          ceres_ext::Solve(of_rank, ext_of_rank, problem, of_part);
        },
        &summary,
        &reason))
        << reason;
    ASSERT_EQ(summary.path, PATH_FULL) << summary.message;
    ++num_solved;
    ASSERT_EQ(summary.iterations.size(), alone.iterations.size());
    EXPECT_NEAR(
        summary.initial_cost, alone.initial_cost, 1e-12 * alone.initial_cost);
    EXPECT_EQ(summary.num_residuals_reduced, alone.num_residuals_reduced);
    EXPECT_EQ(summary.num_effective_parameters_reduced,
              alone.num_effective_parameters_reduced);
    EXPECT_NEAR(
        summary.final_cost, alone.final_cost, kRest * alone.initial_cost);
    num_close += std::abs(summary.final_cost - alone.final_cost) <
                         1e-7 * alone.initial_cost
                     ? 1
                     : 0;
  });
  // With CERES_EXT_NUM_CASES there may be few.
  EXPECT_GE(num_close, num_solved - num_solved / 20 - 1);
}

// A ceres::Problem of any kind as arrays: the same cost where both start, and
// where a solve of the arrays ends.
TEST(TableOfProblem, SayTheSame) {
  int num_read = 0;
  ForEachCase(100, [&](Random* random) {
    RandomArrays given(random);
    const bool has_bounds = random->Chance(0.3);
    if (has_bounds) {
      given.AddBounds();
    }
    SCOPED_TRACE(given.Describe());
    ProblemOfArrays of_given(*given.problem());
    ceres::Problem* const problem = of_given.problem();
    double cost = 0.0;
    if (!problem->Evaluate({}, &cost, nullptr, nullptr, nullptr)) {
      return;
    }
    TableOfProblem arrays;
    std::string reason;
    if (!arrays.Read(*problem, &reason)) {
      // Each weight is a loss.
      EXPECT_THAT(reason, HasSubstr("types, losses and sizes"));
      return;
    }
    ceres::Solver::Options options;
    options.max_num_iterations = 2;
    options.logging_type = ceres::SILENT;
    ArrayProblem read = arrays.arrays();
    Summary summary;
    ceres_ext::Solve(options, RankProblem::OnHost(), &read, &summary);
    if (!summary.IsSolutionUsable()) {
      return;
    }
    ++num_read;
    // Sums of residual blocks in another order.
    const double rounding = 1e-13 * problem->NumResidualBlocks();
    if (!has_bounds) {  // A start outside is moved.
      EXPECT_NEAR(summary.initial_cost, cost, rounding * cost);
    }
    EXPECT_EQ(summary.num_residuals, problem->NumResiduals());
    arrays.Write();
    ASSERT_TRUE(problem->Evaluate({}, &cost, nullptr, nullptr, nullptr));
    // The final cost of Ceres may be that of a step that was rejected, since it
    // gained less than the model expected.
    if (summary.num_unsuccessful_steps == 0) {
      EXPECT_NEAR(summary.final_cost, cost, rounding * cost);
    }
    std::vector<double*> blocks;
    problem->GetParameterBlocks(&blocks);
    for (const double* block : blocks) {
      for (int j = 0; summary.is_constrained &&
                      !problem->IsParameterBlockConstant(block) &&
                      j < problem->ParameterBlockSize(block);
           ++j) {
        std::vector<ceres::ResidualBlockId> rows;
        problem->GetResidualBlocksForParameterBlock(block, &rows);
        EXPECT_TRUE(rows.empty() ||
                    (problem->GetParameterLowerBound(block, j) <= block[j] &&
                     block[j] <= problem->GetParameterUpperBound(block, j)));
      }
    }
  });
  EXPECT_GT(num_read, 0);
}

class NoCallback final : public ceres::EvaluationCallback {
 public:
  void PrepareForEvaluation(bool /*jacobians*/, bool /*new_point*/) final {}
};

TEST(TableOfProblem, SaysWhatArraysCannot) {
  double x[2] = {1.0, 2.0};
  NoCallback callback;
  ceres::Problem::Options problem_options;
  problem_options.evaluation_callback = &callback;
  ceres::Problem problem(problem_options);
  problem.AddResidualBlock(new ceres::NormalPrior(ceres::Matrix::Identity(2, 2),
                                                  ceres::Vector::Zero(2)),
                           nullptr,
                           x);
  std::string reason;
  EXPECT_FALSE(TableOfProblem().Read(problem, &reason));
  EXPECT_EQ(reason, "the problem has an evaluation callback");
}

TEST_F(RanksTest, DevicesAreNamed) {
  Options options;
  std::string error;
  for (const char* const wrong : {"0+", "+1", "a", "0,1", "-1", "0+x", "0 1"}) {
    options.cuda_devices = wrong;
    EXPECT_FALSE(options.IsValid(&error));
    EXPECT_THAT(error,
                HasSubstr("cuda_devices: expected all, or numbers such as 0+1, "
                          "found '" +
                          std::string(wrong) + "'"));
  }
  options.cuda_devices = "2+0+2";
  EXPECT_FALSE(options.IsValid(&error));
  EXPECT_THAT(error, HasSubstr("device 2 is named twice"));
  options = Options();
  EXPECT_TRUE(ParseOptions("device=cuda,cuda_devices=0+3", &options, &error))
      << error;
  EXPECT_EQ(options.cuda_devices, "0+3");

  // The host solves, and says why.
  Part part;
  Make(Case(), 0, 1, &part);
  options.device = DEVICE_HOST;
  ceres_ext::Solve(SomeOptions(Case()), options, &part.problem, &part.summary);
  EXPECT_TRUE(part.summary.IsSolutionUsable());
  EXPECT_THAT(part.summary.path_reason,
              HasSubstr("cuda_devices is not used, because device = HOST"));
  options.device = DEVICE_AUTO;
  options.cuda_devices = "1000+1001";
  ceres_ext::Solve(SomeOptions(Case()), options, &part.problem, &part.summary);
  EXPECT_TRUE(part.summary.IsSolutionUsable());
  EXPECT_THAT(part.summary.path_reason,
              HasSubstr("because there is no CUDA device 1000"));

  // So does that of a ceres::Problem, and of a batch.
  ProblemOfArrays of_arrays(part.problem);
  ceres_ext::Solve(
      SomeOptions(Case()), options, of_arrays.problem(), &part.summary);
  EXPECT_TRUE(part.summary.IsSolutionUsable());
  EXPECT_THAT(part.summary.path_reason,
              HasSubstr("because there is no CUDA device 1000"));
}

}  // namespace
}  // namespace ceres_ext
