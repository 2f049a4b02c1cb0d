// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Windows as they come: the bits of SolveBatch, what exceeds the capacity, and
// what is stopped, left alone or submitted by several threads. With
// CERES_EXT_TEST_ON_CUDA on a device.

#include "ceres_ext/window_solver.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "batch_cases.h"
#include "ceres/iteration_callback.h"
#include "ceres_ext/batch.h"
#include "ceres_ext/solve.h"
#include "gtest/gtest.h"
#include "tests/solver/allocation_counter.h"
#ifdef CERES_EXT_TEST_ON_CUDA
#include "cuda_kernels/machine/cuda_context.h"
#endif

namespace ceres_ext {
namespace {

WindowCapacity SomeCapacity() {
  WindowCapacity capacity;
  capacity.num_cameras = 30;
  capacity.num_points = 300;
  capacity.num_rows = 1500;
  capacity.num_problems = 9;
  capacity.num_submissions = 3;
  return capacity;
}

std::unique_ptr<WindowSolver> Make(const WindowCapacity& capacity,
                                   const Options& ext_options = OnMachine()) {
  std::string error;
  ceres::Solver::Options options = SomeOptions();
#ifdef CERES_EXT_EMULATED
  // The solver's threads use the device too for problems that are not windows,
  // and an emulated device supports one thread.
  options.num_threads = 1;
#endif
  auto solver = WindowSolver::Create(options, ext_options, capacity, &error);
  EXPECT_NE(solver, nullptr) << error;
  return solver;
}

void ExpectSame(const BatchSummary& ours, const BatchSummary& expected) {
  SCOPED_TRACE(ours.device + " beside " + expected.device);
  EXPECT_EQ(ours.num_windows, expected.num_windows);
  ASSERT_EQ(ours.problems.size(), expected.problems.size());
  for (size_t i = 0; i < ours.problems.size(); ++i) {
    SCOPED_TRACE(i);
    const ProblemSummary& a = ours.problems[i];
    const ProblemSummary& b = expected.problems[i];
    EXPECT_EQ(a.termination_type, b.termination_type);
    EXPECT_EQ(a.message, b.message);
    EXPECT_EQ(a.initial_cost, b.initial_cost);
    EXPECT_EQ(a.final_cost, b.final_cost);
    EXPECT_EQ(a.fixed_cost, b.fixed_cost);
    EXPECT_EQ(a.num_successful_steps, b.num_successful_steps);
    EXPECT_EQ(a.num_unsuccessful_steps, b.num_unsuccessful_steps);
    EXPECT_EQ(a.IsSolvedWhole(), b.IsSolvedWhole());
    EXPECT_EQ(a.path_reason, b.path_reason);
    EXPECT_GT(a.latency_in_seconds, 0.0);
  }
}

TEST(WindowSolver, HasTheBitsOfSolveBatch) {
  for (const int camera_size : {9, 10}) {
    const std::vector<Case> cases = SomeCases(camera_size);
    Batch expected(cases, nullptr);
    BatchSummary of_batch;
    ASSERT_TRUE(
        SolveBatch(SomeOptions(), OnMachine(), &expected.batch, &of_batch));
    const auto solver = Make(SomeCapacity());
    // More than are in flight at once, one after the other in each place.
    for (int round = 0; round < 3; ++round) {
      std::vector<std::unique_ptr<Batch>> batches;
      std::vector<WindowSolver::Ticket> tickets;
      for (int k = 0; k < 3; ++k) {
        batches.push_back(std::make_unique<Batch>(cases, nullptr));
        std::string error;
        tickets.push_back(solver->Submit(batches[k]->batch, &error));
        EXPECT_EQ(tickets[k], 3 * round + k + 1) << error;
      }
      // Results are taken in any order, by Wait or Poll.
      for (const int k : {1, 2, 0}) {
        BatchSummary summary;
        if (k == 2) {
          while (solver->Poll(tickets[k], &summary) ==
                 WindowSolver::State::kRunning) {
            std::this_thread::yield();
          }
        } else {
          ASSERT_TRUE(solver->Wait(tickets[k], &summary));
        }
        ExpectSame(summary, of_batch);
        EXPECT_EQ(batches[k]->cameras, expected.cameras);
        EXPECT_EQ(batches[k]->points, expected.points);
        EXPECT_FALSE(solver->Wait(tickets[k], &summary));
        EXPECT_EQ(solver->Poll(tickets[k], &summary),
                  WindowSolver::State::kUnknown);
      }
    }
  }
}

TEST(WindowSolver, KeepsBadProblemsToThemselves) {
  std::vector<Case> cases;
  for (int i = 0; i < 7; ++i) {
    cases.push_back(MakeCase(3, 30, 3, 9, 400 + i));
    cases.back().camera_is_constant[0] = 1;
  }
  cases[1].problem.observations[4] = std::numeric_limits<double>::quiet_NaN();
  cases[2].row_is_active.assign(cases[2].row_is_active.size(), 0);
  cases[3].camera_is_constant.assign(3, 1);
  cases[3].point_is_constant.assign(30, 1);
  cases[4].problem.camera_id[1] = cases[4].problem.camera_id[0];
  // A point at the optical centre of camera 0.
  std::fill_n(cases[5].problem.cameras.begin(), 6, 0.0);
  std::fill_n(cases[5].problem.points.begin(), 3, 0.0);
  Batch expected(cases, nullptr);
  BatchSummary of_batch;
  ASSERT_TRUE(
      SolveBatch(SomeOptions(), OnMachine(), &expected.batch, &of_batch));
  Batch batch(cases, nullptr);
  const auto solver = Make(SomeCapacity());
  BatchSummary summary;
  ASSERT_TRUE(solver->Wait(solver->Submit(batch.batch, nullptr), &summary));
  ExpectSame(summary, of_batch);
  EXPECT_EQ(batch.cameras, expected.cameras);
}

// Rows are left out after a first solve, and the next one needs no set-up.
TEST(WindowSolver, LeavesOutWhatIsNotActiveAnyMore) {
  std::vector<Case> cases = {MakeCase(4, 40, 4, 9, 1),
                             MakeCase(4, 40, 4, 9, 2)};
  const auto solver = Make(SomeCapacity());
  Batch batch(cases, nullptr);
  BatchSummary summary;
  ASSERT_TRUE(solver->Wait(solver->Submit(batch.batch, nullptr), &summary));
  for (size_t k = 0; k < batch.row_is_active.size(); k += 7) {
    batch.row_is_active[k] = 0;
  }
  Batch expected(cases, nullptr);
  expected.cameras = batch.cameras;
  expected.points = batch.points;
  std::copy(batch.cameras.begin(),
            batch.cameras.end(),
            expected.batch.problem.parameters()[0].values);
  std::copy(batch.row_is_active.begin(),
            batch.row_is_active.end(),
            expected.row_is_active.begin());
  BatchSummary of_batch;
  ASSERT_TRUE(
      SolveBatch(SomeOptions(), OnMachine(), &expected.batch, &of_batch));
  ASSERT_TRUE(solver->Wait(solver->Submit(batch.batch, nullptr), &summary));
  ExpectSame(summary, of_batch);
}

TEST(WindowSolver, RefusesWhatExceedsTheCapacity) {
  // Outlive the solver, in which they are in flight at the end.
  std::vector<std::unique_ptr<Batch>> batches;
  const auto solver = Make(SomeCapacity());
  const auto expect_refused = [&](const std::vector<Case>& cases,
                                  const std::string& sentence) {
    Batch batch(cases, nullptr);
    std::string error;
    EXPECT_EQ(solver->Submit(batch.batch, &error), 0);
    EXPECT_EQ(error, sentence);
  };
  const Case good = MakeCase(3, 30, 3, 9, 1);
  expect_refused({good, MakeCase(31, 40, 3, 9, 2)},
                 "problem 1 has 31 cameras, but the capacity is 30");
  expect_refused({MakeCase(3, 301, 3, 9, 2), good},
                 "problem 0 has 301 points, but the capacity is 300");
  expect_refused({good, MakeCase(6, 300, 6, 9, 2)},
                 "problem 1 has 1800 residual blocks, but the capacity is "
                 "1500");
  expect_refused(std::vector<Case>(10, good),
                 "the batch has 10 problems, but the capacity is 9");
  Batch wanted({good}, nullptr);
  wanted.batch.covariance_is_wanted = {nullptr, nullptr};
  std::string why;
  EXPECT_EQ(solver->Submit(wanted.batch, &why), 0);
  EXPECT_NE(why.find("covariance_is_wanted"), std::string::npos) << why;
  Batch foreign({good, good}, nullptr);
  foreign.camera_id[0] = 3;
  std::string error;
  EXPECT_EQ(solver->Submit(foreign.batch, &error), 0);
  EXPECT_NE(error.find("another problem's"), std::string::npos);
  // All submissions are still available.
  for (int k = 0; k < 4; ++k) {
    batches.push_back(
        std::make_unique<Batch>(std::vector<Case>{good}, nullptr));
    EXPECT_EQ(solver->Submit(batches[k]->batch, &error) != 0, k < 3);
  }
  EXPECT_NE(error.find("in flight"), std::string::npos);
}

TEST(WindowSolver, RefusesOptionsAndCapacitiesThatCanNotBe) {
  const auto expect_refused = [](const ceres::Solver::Options& options,
                                 const WindowCapacity& capacity,
                                 const std::string& part) {
    std::string error;
    EXPECT_EQ(WindowSolver::Create(options, OnMachine(), capacity, &error),
              nullptr);
    EXPECT_NE(error.find(part), std::string::npos) << error;
  };
  ceres::Solver::Options options = SomeOptions();
  options.trust_region_strategy_type = ceres::DOGLEG;
  expect_refused(options, SomeCapacity(), "DOGLEG");
  options = SomeOptions();
  options.max_num_iterations = -1;
  expect_refused(options, SomeCapacity(), "max_num_iterations");
  WindowCapacity capacity = SomeCapacity();
  capacity.num_points = 0;
  expect_refused(SomeOptions(), capacity, "num_points is 0, expected 1 to");
  capacity = SomeCapacity();
  capacity.num_submissions = 0;
  expect_refused(SomeOptions(), capacity, "num_submissions is 0");
}

TEST(WindowSolver, GivesBackAnEmptyBatch) {
  const auto solver = Make(SomeCapacity());
  Batch batch({}, nullptr);
  BatchSummary summary;
  ASSERT_TRUE(solver->Wait(solver->Submit(batch.batch, nullptr), &summary));
  EXPECT_TRUE(summary.problems.empty());
  EXPECT_EQ(solver->Poll(0, &summary), WindowSolver::State::kUnknown);
  EXPECT_FALSE(solver->Wait(17, &summary));
}

// Stopped submissions end with an iteration; later ones do not.
TEST(WindowSolver, StopsWhatIsInFlight) {
  const std::vector<Case> cases(8, MakeCase(20, 300, 5, 9, 1));
  Batch stopped(cases, nullptr);
  Batch others(std::vector<Case>(1, MakeCase(3, 30, 3, 9, 1)), nullptr);
  const auto solver = Make(SomeCapacity());
  const auto ticket = solver->Submit(stopped.batch, nullptr);
  std::thread([&] { solver->Stop(); }).join();
  const auto later = solver->Submit(others.batch, nullptr);
  BatchSummary summary;
  ASSERT_TRUE(solver->Wait(ticket, &summary));
  int num_stopped = 0;
  for (size_t i = 0; i < cases.size(); ++i) {
    const ProblemSummary& problem = summary.problems[i];
    EXPECT_TRUE(problem.IsSolvedWhole()) << problem.path_reason;
    EXPECT_TRUE(problem.IsSolutionUsable()) << problem.message;
    EXPECT_LE(problem.final_cost, problem.initial_cost);
    if (problem.termination_type == ceres::USER_SUCCESS) {
      EXPECT_EQ(problem.message, "Stopped from another thread.");
      ++num_stopped;
    }
  }
#ifndef CERES_EXT_TEST_ON_CUDA
  EXPECT_GT(num_stopped, 0);
#endif
  ASSERT_TRUE(solver->Wait(later, &summary));
  EXPECT_EQ(summary.problems[0].termination_type, ceres::CONVERGENCE);
}

// Table 3 of the paper for a Jetson Xavier: it takes 4 frames at once for 50
// thousand a second. Rates of docs/batch.md for W10.
TEST(WindowSolver, ChoosesTheSizeOfSubmissions) {
  const std::vector<SubmissionRate> paper = {
      {1, 22e3}, {2, 33e3}, {4, 56e3}, {8, 87e3}, {16, 106e3}, {32, 106e3}};
  EXPECT_EQ(ChooseSubmissionSize(paper, 50e3), 4);
  EXPECT_EQ(ChooseSubmissionSize(paper, 10e3), 1);
  EXPECT_EQ(ChooseSubmissionSize(paper, 22e3), 2);
  EXPECT_EQ(ChooseSubmissionSize(paper, 90e3), 16);
  EXPECT_EQ(ChooseSubmissionSize(paper, 200e3), 16);
  const std::vector<SubmissionRate> w10 = {
      {132, 40000.0}, {1, 6165.0}, {16, 19958.0}};
  for (const double rate : {0.0, 200.0, 1000.0, 5000.0}) {
    EXPECT_EQ(ChooseSubmissionSize(w10, rate), 1) << rate;
  }
  EXPECT_EQ(ChooseSubmissionSize(w10, 6000.0), 16);
  EXPECT_EQ(ChooseSubmissionSize(w10, 17000.0), 16);
  EXPECT_EQ(ChooseSubmissionSize(w10, 20000.0), 132);
  EXPECT_EQ(ChooseSubmissionSize(w10, 40000.0), 132);
  EXPECT_EQ(ChooseSubmissionSize(w10, 1e9), 132);
  EXPECT_EQ(ChooseSubmissionSize({}, 100.0), 0);
  // The limit itself, and larger sizes that are slower.
  EXPECT_EQ(ChooseSubmissionSize({{1, 10.0}, {2, 8.0}}, 9.0), 1);
  EXPECT_EQ(ChooseSubmissionSize({{1, 10.0}, {2, 8.0}}, 9.1), 1);
}

TEST(WindowSolver, MeasuresRates) {
  const std::vector<Case> cases(3, MakeCase(3, 30, 3, 9, 1));
  Batch batch(cases, nullptr);
  const Batch start(cases, nullptr);
  WindowCapacity capacity = SomeCapacity();
  capacity.num_submissions = 2;
  const auto solver = Make(capacity);
  std::vector<SubmissionRate> rates;
  std::string error;
  ASSERT_TRUE(solver->MeasureRates(batch.batch, 1e-3, &rates, &error)) << error;
  ASSERT_EQ(rates.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(rates[i].num_problems, std::vector<int64_t>({1, 2, 3})[i]);
    EXPECT_GT(rates[i].problems_per_second, 0.0);
  }
  EXPECT_EQ(batch.cameras, start.cameras);
  EXPECT_EQ(batch.points, start.points);
  // Nothing is in flight: as many submissions as before fit.
  BatchSummary summary;
  const auto ticket = solver->Submit(batch.batch, &error);
  ASSERT_TRUE(solver->Wait(ticket, &summary));
  EXPECT_EQ(summary.num_windows, 3);

  const auto expect_refused = [&](const ProblemBatch& refused,
                                  double seconds,
                                  const std::string& part) {
    error.clear();
    EXPECT_FALSE(solver->MeasureRates(refused, seconds, &rates, &error));
    EXPECT_NE(error.find(part), std::string::npos) << error;
    EXPECT_TRUE(rates.empty());
  };
  expect_refused(batch.batch, 0.0, "seconds is 0");
  ProblemBatch null = batch.batch;
  null.problem = ArrayProblem();
  for (size_t a = 0; a < batch.batch.problem.parameters().size(); ++a) {
    ArrayProblem::Parameters array = batch.batch.problem.parameters()[a];
    if (a == 0) {
      array.values = nullptr;
    }
    null.problem.AddParameters(array);
  }
  null.problem.AddResiduals(batch.batch.problem.residuals()[0]);
  // Not windows: ceres_ext::Solve says so in the summaries.
  EXPECT_TRUE(solver->MeasureRates(null, 1e-3, &rates, &error)) << error;
  expect_refused(
      batch.batch, std::numeric_limits<double>::quiet_NaN(), "seconds is");
  expect_refused(Batch({}, nullptr).batch, 1.0, "no problems");
  expect_refused(Batch(std::vector<Case>(10, cases[0]), nullptr).batch,
                 1e-3,
                 "10 problems");
  batch.row_begin[1] = -1;
  expect_refused(batch.batch, 1.0, "residual_begin[0]");
}

TEST(WindowSolver, EndsWhatIsInFlightWithItself) {
  const std::vector<Case> cases(8, MakeCase(20, 300, 5, 9, 1));
  std::vector<std::unique_ptr<Batch>> batches;
  for (int k = 0; k < 3; ++k) {
    batches.push_back(std::make_unique<Batch>(cases, nullptr));
  }
  const auto solver = Make(SomeCapacity());
  for (const auto& batch : batches) {
    EXPECT_NE(solver->Submit(batch->batch, nullptr), 0);
  }
}

// Two of them, each by two threads, and large solves.
TEST(WindowSolver, SolvesOnSeveralThreadsAtOnce) {
  const std::vector<Case> cases = SomeCases(9);
  Batch expected(cases, nullptr);
  BatchSummary of_batch;
  ASSERT_TRUE(
      SolveBatch(SomeOptions(), OnMachine(), &expected.batch, &of_batch));
  const std::unique_ptr<WindowSolver> solvers[] = {Make(SomeCapacity()),
                                                   Make(SomeCapacity())};
  std::vector<std::thread> threads;
  threads.reserve(5);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int k = 0; k < 5; ++k) {
        Batch batch(cases, nullptr);
        BatchSummary summary;
        std::string error;
        const auto ticket = solvers[t % 2]->Submit(batch.batch, &error);
        EXPECT_TRUE(solvers[t % 2]->Wait(ticket, &summary)) << error;
        EXPECT_EQ(summary.num_windows, of_batch.num_windows);
        EXPECT_EQ(summary.device, of_batch.device);
        for (size_t i = 0; i < expected.cameras.size(); ++i) {
          ASSERT_EQ(batch.cameras[i], expected.cameras[i]) << i;
        }
      }
    });
  }
  threads.emplace_back([] {
    for (int k = 0; k < 2; ++k) {
      Batch large({MakeCase(100, 2000, 8, 9, 7)}, nullptr);
      Summary summary;
      Solve(SomeOptions(), OnMachine(), &large.batch.problem, &summary);
      EXPECT_TRUE(summary.IsSolutionUsable()) << summary.message;
    }
  });
  for (std::thread& thread : threads) {
    thread.join();
  }
}

// A submission allocates no memory of the size of a window's arrays.
TEST(WindowSolver, TakesItsMemoryAtOnce) {
  const Case one = MakeCase(20, 300, 5, 9, 1);
  const auto solver = Make(SomeCapacity());
  Batch batch(std::vector<Case>(8, one), nullptr);
  BatchSummary summary;
  ResetLargestAllocation();
  ASSERT_TRUE(solver->Wait(solver->Submit(batch.batch, nullptr), &summary));
  EXPECT_EQ(summary.num_windows, 8);
  // Numbers of blocks: 4 bytes each.
  EXPECT_LE(LargestAllocation(), 4u * 8 * 300);
}

#ifdef CERES_EXT_TEST_ON_CUDA
TEST(WindowSolver, WorksOnTheCallersStream) {
  if (kernels::NumCudaDevices(nullptr) == 0) {
    GTEST_SKIP() << "skipped: no CUDA device";
  }
  const std::vector<Case> cases = SomeCases(9);
  Batch expected(cases, nullptr);
  Batch batch(cases, nullptr);
  BatchSummary of_batch;
  ASSERT_TRUE(
      SolveBatch(SomeOptions(), OnMachine(), &expected.batch, &of_batch));
  std::unique_ptr<kernels::CudaContext> context;
  ASSERT_TRUE(kernels::CudaContext::Create({}, &context).ok());
  Options ext_options = OnMachine();
  ext_options.cuda_stream = context->stream();
  const auto solver = Make(SomeCapacity(), ext_options);
  BatchSummary summary;
  ASSERT_TRUE(solver->Wait(solver->Submit(batch.batch, nullptr), &summary));
  ExpectSame(summary, of_batch);
  EXPECT_EQ(batch.cameras, expected.cameras);
}
#endif

}  // namespace
}  // namespace ceres_ext
