// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Solves on a system whose n-th allocation, or n-th and all later ones, or
// whose n-th thread fails: for every n of a small problem of each path.
//
// The solves are in another process, so that one which aborts is counted and
// the next one continues in a new process. None may abort, throw, leak or leave
// other parameters than it started with where it fails; none may end worse than
// it started. (Stock Ceres, which PATH_CERES is, may leak.)

#include "tests/common/scarce_system.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "ceres_ext/base/ceres_version.h"
#include "ceres_ext/solve.h"
#include "gtest/gtest.h"
#include "tests/common/bal_test_problem.h"
#include "tests/common/has_device.h"
#include "tests/common/row_kinds.h"

namespace ceres_ext {
namespace {

#ifdef CERES_EXT_EMULATED
// A solve takes a tenth of a second.
constexpr int64_t kMaxNumFailures = 25;
#else
constexpr int64_t kMaxNumFailures = 10000;
#endif

struct Parameter {
  Kind kind;
  int num_threads;
  // A plain ceres::Solve, with the plugin of the environment.
  bool is_plugin = false;
};

Case MakeCase(const Parameter& parameter) {
  if (parameter.is_plugin) {
    setenv("CERES_SOLVER_PLUGIN", CERES_EXT_TEST_LIBRARY ":device=host", 1);
  }
  Case small(
      parameter.kind, parameter.num_threads, MakeBalTestProblem(3, 8, 3, 9));
  small.options.max_num_iterations = 3;
  small.ext_options.device = kDevice;
  return small;
}

// How a solve ended; codes of its process. From kFaults on it broke a promise.
enum Outcome {
  kSolved,
  kFailed,
  kFailedAtEnd,
  kFaults,
  kThrew = kFaults,
  kNoSentence,
  kOtherPath,
  kUsableFailure,
  kWorse,
  kOtherBits,
  kLeak,
  kNotUsableAgain,
  kAborted,
  kNumOutcomes,
};
const char* const kOutcomeNames[kNumOutcomes] = {
    "solved",
    "failed with a sentence",
    "failed with a sentence when the result was there",
    "threw",
    "failed without a sentence",
    "took another path",
    "failed, but usable",
    "ended worse than it started",
    "solved, with other bits",
    "leaked",
    "left a problem that can't be solved",
    "ended the process"};

Outcome OutcomeOf(const Case& start,
                  Case* solved,
                  const Summary& summary,
                  SolvePath path,
                  double start_cost) {
  const double cost = solved->Cost();
  if (!(cost <= start_cost * (1.0 + 1e-12))) {
    return kWorse;
  }
  if (summary.termination_type != ceres::FAILURE) {
    // Stock Ceres needs more memory than what there was none for.
    return summary.path == path ? kSolved : kOtherPath;
  }
  if (summary.IsSolutionUsable()) {
    return kUsableFailure;
  }
  if (summary.message.find("emory") == std::string::npos &&
      summary.message.find("hread") == std::string::npos) {
    return kNoSentence;
  }
  if (summary.path_reason.empty()) {
    return kNoSentence;
  }
  return solved->bal.cameras != start.bal.cameras ||
                 solved->bal.points != start.bal.points
             ? kFailedAtEnd
             : kFailed;
}

// False if a plain ceres::Solve throws, as it does without the plugin.
bool SolveCase(const Parameter& parameter, Case* solved, Summary* summary) {
  if (!parameter.is_plugin) {
    Solve(solved->options, solved->ext_options, solved->problem.get(), summary);
    return true;
  }
  try {
    ceres::Solver::Summary& of_ceres = *summary;
    ceres::Solve(solved->options, solved->problem.get(), &of_ceres);
    summary->path =
        of_ceres.message.find("Ceres Ext: path CERES") == std::string::npos
            ? PATH_FULL
            : PATH_CERES;
    summary->path_reason = of_ceres.message;
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

Outcome SolveScarce(const Parameter& parameter,
                    const Scarcity& allocations,
                    const Scarcity& threads) {
  const Kind kind = parameter.kind;
  const Case start = MakeCase(parameter);
  BalTestProblem plenty;
  Outcome outcome;
  // Memory that is kept for good, for example by streams, is allocated by a
  // first solve.
  for (const bool is_scarce : {false, true}) {
    const int64_t num_live_blocks = NumLiveBlocks();
    {
      Case solved = MakeCase(parameter);
      const double start_cost = solved.Cost();
      {
        Summary summary;
        if (is_scarce) {
          MakeScarce(allocations, threads);
        }
        bool has_ended = false;
        try {
          has_ended = SolveCase(parameter, &solved, &summary);
        } catch (...) {
          MakePlentiful();
          return kThrew;
        }
        MakePlentiful();
        if (!has_ended) {
          summary.termination_type = ceres::FAILURE;
          summary.message = summary.path_reason = "Ceres has no memory.";
        }
        outcome = OutcomeOf(start,
                            &solved,
                            summary,
                            kind == Kind::kStock ? PATH_CERES : PATH_FULL,
                            start_cost);
      }
      if (outcome >= kFaults) {
        return outcome;
      }
      if (!is_scarce) {
        plenty = solved.bal;
      } else if (outcome == kSolved && allocations.n == 0 &&
                 kind != Kind::kStock &&
                 (solved.bal.cameras != plenty.cameras ||
                  solved.bal.points != plenty.points)) {
        return kOtherBits;
      }
      // The problem, and the process, are as good as before.
      Summary again;
      Solve(solved.options, solved.ext_options, solved.problem.get(), &again);
      if (!again.IsSolutionUsable()) {
        return kNotUsableAgain;
      }
    }
    if (is_scarce && NumLiveBlocks() > num_live_blocks) {
      return kLeak;
    }
  }
  return outcome;
}

// fn(i) of each i in [0, num_values), in another process; kAborted where that
// process ends.
template <typename Function>
std::vector<int64_t> InProcess(int64_t num_values, Function&& fn) {
  std::vector<int64_t> values;
  while (static_cast<int64_t>(values.size()) < num_values) {
    int pipes[2];
    if (pipe(pipes) != 0) {
      break;
    }
    const pid_t child = fork();
    if (child == 0) {
      LOG(INFO) << "What the log takes for good, it takes now.";
      for (int64_t i = static_cast<int64_t>(values.size()); i < num_values;
           ++i) {
        alarm(60);
        const int64_t value = fn(i);
        if (write(pipes[1], &value, sizeof(value)) != sizeof(value)) {
          break;
        }
      }
      _exit(0);
    }
    close(pipes[1]);
    int64_t value = 0;
    while (read(pipes[0], &value, sizeof(value)) == sizeof(value)) {
      values.push_back(value);
    }
    close(pipes[0]);
    int status = 0;
    waitpid(child, &status, 0);
    if (!WIFEXITED(status)) {
      values.push_back(kAborted);
    }
  }
  return values;
}

#if defined(CERES_EXT_CERES_HAS_ABSEIL)
// Abseil formats the messages of Ceres's loop in a destructor, which ends the
// process where there is no memory for one.
constexpr int kMostAborted = 1;
constexpr int kMostAbortedOfStock = 3;
#else
constexpr int kMostAborted = 0;
constexpr int kMostAbortedOfStock = 0;
#endif

class ScarceSystem : public ::testing::TestWithParam<Parameter> {
 protected:
  void SetUp() override {
    if (!CanBeScarce()) {
      GTEST_SKIP() << "skipped: the sanitizer has its own malloc";
    }
  }

  // How many allocations and threads a solve asks for.
  static std::pair<int64_t, int64_t> Count() {
    const std::vector<int64_t> counts = InProcess(2, [](int64_t i) {
      const Parameter parameter = GetParam();
      Case solved = MakeCase(parameter);
      Summary summary;
      MakeScarce({}, {});
      SolveCase(parameter, &solved, &summary);
      MakePlentiful();
      return i == 0 ? NumAllocations() : NumThreads();
    });
    return {counts[0], counts[1]};
  }

  // The worst outcome may be `worst`. Says how many there were of each.
  static void ExpectOutcomes(const std::string& what,
                             const std::vector<Scarcity>& allocations,
                             const std::vector<Scarcity>& threads,
                             Outcome worst) {
    const int64_t n = std::max(allocations.size(), threads.size());
    const std::vector<int64_t> outcomes = InProcess(n, [&](int64_t i) {
      const Parameter parameter = GetParam();
      return SolveScarce(parameter,
                         allocations.empty() ? Scarcity() : allocations[i],
                         threads.empty() ? Scarcity() : threads[i]);
    });
    ASSERT_EQ(static_cast<int64_t>(outcomes.size()), n);
    std::array<int, kNumOutcomes> counts = {};
    for (int64_t i = 0; i < n; ++i) {
      ++counts[outcomes[i]];
      if (outcomes[i] == kLeak && GetParam().kind == Kind::kStock) {
        // Stock Ceres forgets some of what it has where it throws.
        continue;
      }
      if (outcomes[i] == kAborted &&
          counts[kAborted] <= (GetParam().kind == Kind::kStock
                                   ? kMostAbortedOfStock
                                   : kMostAborted)) {
        continue;
      }
      EXPECT_LE(outcomes[i], worst)
          << what << " " << (threads.empty() ? allocations[i] : threads[i]).n
          << ": " << kOutcomeNames[outcomes[i]];
    }
    std::string text;
    for (int i = 0; i < kNumOutcomes; ++i) {
      if (counts[i] > 0) {
        text += (text.empty() ? "" : ", ") + std::to_string(counts[i]) + " " +
                kOutcomeNames[i];
      }
    }
    std::printf("%s: %s\n", what.c_str(), text.c_str());
  }
};

using ScarceMemory = ScarceSystem;

TEST_P(ScarceMemory, AllocationFails) {
  const int64_t num_allocations = Count().first;
  ASSERT_GT(num_allocations, 100);
  for (const bool and_all_later : {false, true}) {
    std::vector<Scarcity> allocations;
    const int64_t step = num_allocations / kMaxNumFailures + 1;
    for (int64_t n = 1; n <= num_allocations + 5; n += step) {
      allocations.push_back({n, and_all_later});
    }
    ExpectOutcomes(and_all_later ? "allocation and all later" : "allocation",
                   allocations,
                   {},
                   kFailedAtEnd);
  }
}

using ScarceThreads = ScarceSystem;

TEST_P(ScarceThreads, ThreadDoesNotStart) {
  const int64_t num_threads = Count().second;
  EXPECT_GT(num_threads, 0);
  std::vector<Scarcity> threads;
  for (int64_t n = 1; n <= num_threads; ++n) {
    threads.push_back({n, false});
    threads.push_back({n, true});
  }
  // Fewer threads, same results.
  ExpectOutcomes("thread", {}, threads, kSolved);
}

std::string NameOf(const ::testing::TestParamInfo<Parameter>& info) {
  return std::string(Name(info.param.kind)) +
         (info.param.is_plugin ? "_Plugin_" : "_") +
         std::to_string(info.param.num_threads) + "threads";
}

INSTANTIATE_TEST_SUITE_P(All,
                         ScarceMemory,
                         ::testing::Values(Parameter{Kind::kObservations, 1},
                                           Parameter{Kind::kViews, 1},
                                           Parameter{Kind::kGeneralRows, 1}),
                         NameOf);
// The emulated device has one thread and is not a shared library.
#ifndef CERES_EXT_EMULATED
// Ceres's own solver, and its own threads.
INSTANTIATE_TEST_SUITE_P(OfCeres,
                         ScarceMemory,
                         ::testing::Values(Parameter{Kind::kStock, 1},
                                           Parameter{Kind::kStock, 3},
                                           Parameter{Kind::kObservations, 3},
                                           Parameter{Kind::kGeneralRows, 3}),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(Environment,
                         ScarceMemory,
                         ::testing::Values(Parameter{
                             Kind::kObservations, 1, /*is_plugin=*/true}),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(All,
                         ScarceThreads,
                         ::testing::Values(Parameter{Kind::kObservations, 3},
                                           Parameter{Kind::kViews, 3},
                                           Parameter{Kind::kGeneralRows, 3},
                                           Parameter{Kind::kStock, 3}),
                         NameOf);
#else
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ScarceThreads);
#endif

}  // namespace
}  // namespace ceres_ext
