// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// bundle_adjuster --compare as a user runs it, and what it makes of runs.

#include "examples/bal/comparison.h"

#include <signal.h>
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "examples/bal/comparison_page.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/bal/bal_test_util.h"
#include "tests/bal/child_test_util.h"
#include "tests/bal/page_test_util.h"
#include "tests/bal/program_test_util.h"

namespace ceres_ext::bal {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

// Those that every machine has.
const std::vector<std::pair<std::string, std::string>> kHostSolvers = {
    {"ceres:sparse_schur", "--solver=ceres --linear_solver=sparse_schur"},
    {"ceres:dense_schur", "--solver=ceres --linear_solver=dense_schur"},
    {"ceres:iterative_schur", "--solver=ceres --linear_solver=iterative_schur"},
    {"ceres:iterative_schur+jacobi",
     "--solver=ceres --linear_solver=iterative_schur --preconditioner=jacobi"},
    {"ceres:cgnr", "--solver=ceres --linear_solver=cgnr"},
    {"ceres_ext:host", "--device=host --linear_solver=iterative_schur"}};

std::string HostSolvers() {
  std::string names = " --compare_solvers=";
  for (const auto& [name, flags] : kHostSolvers) {
    names += (&name == &kHostSolvers[0].first ? "" : ",") + name;
  }
  return names;
}

class CompareTest : public BundleAdjusterTest {
 protected:
  void SetUp() override {
    BundleAdjusterTest::SetUp();
    json_ = File("comparison.json");
  }

  Outcome Compare(const std::string& flags) const {
    return Adjust("--compare --input='" + input_ + "' --compare_json='" +
                  json_ + "' " + flags);
  }

  Json Runs() const { return Json::parse(ReadBytes(json_))["runs"]; }

  void ExpectFault(const std::string& flags,
                   int code,
                   const std::string& error) const {
    const Outcome outcome = Compare(flags);
    EXPECT_EQ(outcome.code, code);
    EXPECT_EQ(outcome.err, "bundle_adjuster: " + error + "\n");
  }

  // Runs of a second or more, so that a signal can come before they end.
  void GenerateSlow() {
    ASSERT_EQ(Execute(BAL_GENERATE,
                      "--num_cameras=60 --num_points=24000 "
                      "--num_observations=300000 --output='" +
                          input_ + "'")
                  .code,
              0);
  }

  // The program as a child, writing to a folder of its own.
  Child StartCompare(const std::vector<std::string>& flags) {
    const std::string folder = File("child");
    fs::create_directories(folder);
    std::vector<std::string> arguments = {
        "--compare", "--input=" + input_, "--compare_json=" + json_};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    return Child(folder, BUNDLE_ADJUSTER, arguments);
  }

  // True if it ends while somebody waits for it.
  static bool Ends(int process) {
    return Child::WaitUntil([process] {
      return kill(process, 0) != 0 ||
             // Not yet waited for by the process that inherits it.
             ReadBytes("/proc/" + std::to_string(process) + "/stat")
                     .find(") Z") != std::string::npos;
    });
  }

  // The process that solves for `solver`, once it runs.
  static int WaitForProcess(Child* child, const std::string& solver) {
    const std::string begin = solver + ", run 1 of 1 (process ";
    child->WaitForOutput(begin);
    EXPECT_TRUE(Child::WaitUntil([&] {
      return child->out().find(") ", child->out().find(begin)) !=
             std::string::npos;
    }));
    return std::stoi(
        child->out().substr(child->out().find(begin) + begin.size()));
  }

  std::string json_;
};

// Each solver gets where bundle_adjuster gets by itself with its flags, to the
// bit, from the same start with the same noise.
TEST_F(CompareTest, RunsAreThoseOfSingleSolves) {
  const std::string flags =
      " --num_iterations=6 --num_threads=1 --point_sigma=0.01 --robustify";
  const Outcome outcome =
      Compare(flags + HostSolvers() + " --compare_repetitions=2");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  const Json runs = Runs();
  ASSERT_EQ(runs.size(), 2 * kHostSolvers.size());
  const std::string report_path = File("report.json");
  const std::string common = "--input='" + input_ + "' --report_json='" +
                             report_path + "' " + flags + " ";
  for (size_t i = 0; i < runs.size(); ++i) {
    // All of one repetition, then all of the next.
    const auto& [name, solver_flags] = kHostSolvers[i % kHostSolvers.size()];
    SCOPED_TRACE(name);
    const Json& run = runs[i];
    EXPECT_EQ(run["solver"], name);
    EXPECT_EQ(run["repetition"], i / kHostSolvers.size());
    EXPECT_EQ(run["ending"], "solved");
    EXPECT_EQ(run["message"], "");
    EXPECT_THAT(outcome.out, HasSubstr(name + ", run 2 of 2 (process "));
    if (i >= kHostSolvers.size()) {
      EXPECT_EQ(
          run["report"]["summary"]["final_cost"],
          runs[i - kHostSolvers.size()]["report"]["summary"]["final_cost"]);
      continue;
    }
    ASSERT_EQ(Adjust(common + solver_flags).code, 0);
    const Json single = Json::parse(ReadBytes(report_path));
    const Json& report = run["report"];
    EXPECT_EQ(report["recomputed_costs"], single["recomputed_costs"]);
    EXPECT_EQ(report["summary"]["linear_solver_type_used"],
              single["summary"]["linear_solver_type_used"]);
    EXPECT_EQ(report["summary"]["preconditioner_type_used"],
              single["summary"]["preconditioner_type_used"]);
    ASSERT_EQ(report["iterations"].size(), single["iterations"].size());
    for (size_t k = 0; k < single["iterations"].size(); ++k) {
      EXPECT_EQ(report["iterations"][k]["cost"],
                single["iterations"][k]["cost"]);
      EXPECT_EQ(report["iterations"][k]["linear_solver_iterations"],
                single["iterations"][k]["linear_solver_iterations"]);
    }
    EXPECT_EQ(report["recomputed_costs"]["initial_cost"],
              runs[0]["report"]["recomputed_costs"]["initial_cost"]);
  }
  EXPECT_THAT(outcome.out, HasSubstr("The best cost is "));
}

TEST_F(CompareTest, SaysWhatIsLeftOut) {
  const Outcome outcome = Compare(
      "--compare_dry_run --cost_function=autodiff --num_iterations=3 "
      "--sparse_linear_algebra_library=accelerate_sparse");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_FALSE(fs::exists(json_));
  EXPECT_THAT(outcome.out,
              HasSubstr("ceres_ext:cuda+recomputed: left out: a recomputed "
                        "Jacobian needs --cost_function=analytic\n"));
  EXPECT_THAT(outcome.out,
              HasSubstr("ceres:sparse_schur: left out: Can't use SPARSE_SCHUR "
                        "sparse_linear_algebra_library_type = "
                        "ACCELERATE_SPARSE"));
  EXPECT_THAT(outcome.out, HasSubstr("ceres_ext:host: 1 of 1 to run"));
  EXPECT_THAT(outcome.out, HasSubstr(" s each\n"));
  EXPECT_THAT(outcome.out, HasSubstr(" s, at most "));
}

// Existing runs count in a dry run, and are not run again; solvers and
// repetitions may be added.
TEST_F(CompareTest, GoesOnWhereItStopped) {
  ASSERT_EQ(Compare("--compare_solvers=ceres_ext:host").code, 0);
  const Json first = Runs();
  ASSERT_EQ(first.size(), 1u);
  const std::string flags =
      "--compare_solvers=ceres_ext:host,ceres:dense_schur "
      "--compare_repetitions=2";
  Outcome outcome = Compare(flags + " --compare_dry_run");
  EXPECT_THAT(outcome.out, HasSubstr("ceres_ext:host: 1 of 2 to run"));
  EXPECT_THAT(outcome.out, HasSubstr("ceres:dense_schur: 2 of 2 to run"));
  EXPECT_THAT(outcome.out, HasSubstr("\n3 runs: about "));
  EXPECT_EQ(Runs(), first);
  outcome = Compare(flags);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out,
              HasSubstr("ceres_ext:host, run 1 of 2: in " + json_ + "\n"));
  const Json second = Runs();
  ASSERT_EQ(second.size(), 4u);
  EXPECT_EQ(second[0], first[0]);
  outcome = Compare(flags);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, Not(HasSubstr("(process ")));
  EXPECT_EQ(Runs(), second);
}

// A solve of minutes ends with the program, however it is killed.
TEST_F(CompareTest, NothingRunsOn) {
  GenerateSlow();
  for (const int number : {SIGINT, SIGKILL}) {
    Child child = StartCompare({"--compare_solvers=ceres_ext:host",
                                "--num_iterations=1000000",
                                "--eta=1e-10"});
    const int process = WaitForProcess(&child, "ceres_ext:host");
    ASSERT_GT(process, 1);
    child.Send(number);
    child.Wait();
    EXPECT_TRUE(Ends(process));
  }
}

// SIGINT ends the current run, SIGKILL the program without a word: the finished
// runs are kept, and the next call continues.
TEST_F(CompareTest, InterruptedAndKilled) {
  GenerateSlow();
  const std::vector<std::string> flags = {
      "--compare_solvers=ceres:dense_schur,ceres_ext:host",
      "--num_iterations=3"};
  for (const int number : {SIGINT, SIGKILL}) {
    Child child = StartCompare(flags);
    WaitForProcess(&child, "ceres_ext:host");
    child.Send(number);
    const int status = child.Wait();
    if (number == SIGINT) {
      EXPECT_TRUE(IsExit(5, status)) << status;
      EXPECT_THAT(child.err(), HasSubstr("SIGINT: the comparison stops"));
      EXPECT_THAT(child.out(), HasSubstr("interrupted\n"));
      EXPECT_THAT(child.out(), HasSubstr("The best cost is "));
    } else {
      EXPECT_TRUE(IsKilledBy(SIGKILL, status));
    }
    ASSERT_EQ(Runs().size(), 1u);
    EXPECT_EQ(Runs()[0]["solver"], "ceres:dense_schur");
  }
  const Outcome outcome = Compare(flags[0] + (" " + flags[1]));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("ceres:dense_schur, run 1 of 1: in "));
  EXPECT_THAT(Runs(), SizeIs(2));
}

// One solver crashes, as memory is used up or a pointer is wrong, and one does
// not end; the others are not touched.
TEST_F(CompareTest, CrashesAndDelaysAreResults) {
  GenerateSlow();
  Child child =
      StartCompare({"--compare_solvers=ceres:dense_schur,"
                    "ceres:iterative_schur,ceres:cgnr,ceres_ext:host",
                    "--num_iterations=2",
                    "--compare_max_seconds=1"});
  EXPECT_EQ(kill(WaitForProcess(&child, "ceres:dense_schur"), SIGABRT), 0);
  EXPECT_EQ(kill(WaitForProcess(&child, "ceres:iterative_schur"), SIGKILL), 0);
  EXPECT_EQ(kill(WaitForProcess(&child, "ceres:cgnr"), SIGSTOP), 0);
  EXPECT_TRUE(IsExit(0, child.Wait())) << child.err();
  const Json runs = Runs();
  ASSERT_EQ(runs.size(), 4u);
  EXPECT_EQ(runs[0]["ending"], "crashed");
  EXPECT_EQ(runs[0]["message"], "ended by a signal: Aborted");
  EXPECT_TRUE(runs[0]["report"].is_null());
  EXPECT_EQ(runs[1]["ending"], "crashed");
  EXPECT_EQ(runs[1]["message"],
            "ended by a signal: Killed, as where memory runs out");
  EXPECT_EQ(runs[2]["ending"], "out_of_time");
  EXPECT_THAT(runs[2]["message"].get<std::string>(),
              StartsWith("killed after "));
  EXPECT_EQ(runs[3]["ending"], "solved");
  EXPECT_THAT(child.out(), HasSubstr("ceres:dense_schur, run 1: ended by"));
  EXPECT_THAT(child.out(), HasSubstr("ceres:cgnr, run 1: killed after "));
}

// A solve ends behind its iteration where its time is over.
TEST_F(CompareTest, TimeLimitsEndSolves) {
  const Outcome outcome = Compare(
      "--num_iterations=1000000 --compare_max_seconds=1e-9 "
      "--compare_solvers=ceres_ext:host");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  ASSERT_THAT(Runs(), SizeIs(1));
  EXPECT_THAT(Runs()[0]["report"]["summary"]["message"].get<std::string>(),
              StartsWith("Maximum solver time reached."));
  EXPECT_THAT(
      outcome.out,
      HasSubstr("\nceres_ext:host, run 1: Maximum solver time reached."));
}

TEST_F(CompareTest, FailuresHaveReasons) {
  // A point at the optical center: the cost is not defined at the start.
  WriteBytes(input_, "1 1 1\n0 0 1 2\n0\n0\n0\n0\n0\n0\n1\n0\n0\n0\n0\n0\n");
  const Outcome outcome =
      Compare("--compare_solvers=ceres_ext:host,ceres:dense_schur");
  EXPECT_EQ(outcome.code, 3);
  EXPECT_EQ(outcome.err,
            "bundle_adjuster: expected a solver that solves the problem, found "
            "none\n");
  for (const Json& run : Runs()) {
    EXPECT_EQ(run["ending"], "failed");
    EXPECT_THAT(run["message"].get<std::string>(),
                StartsWith("the solve failed: "));
  }
  // If one has a solution, the others do not matter.
  fs::remove(json_);
  SetUp();
  const Outcome mixed = Compare(
      "--line_search --compare_solvers=ceres_ext:host,ceres:dense_schur");
  EXPECT_EQ(mixed.code, 0) << mixed.err;
  EXPECT_EQ(Runs()[0]["ending"], "solved");
  EXPECT_EQ(Runs()[1]["ending"], "failed");
  EXPECT_THAT(Runs()[1]["message"].get<std::string>(),
              StartsWith("Ceres alone solved it: minimizer_type LINE_SEARCH "
                         "has no linear solver"));
}

TEST_F(CompareTest, UsageErrors) {
  ExpectFault("--compare_solvers=nobody",
              1,
              "--compare_solvers: expected some of automatic, "
              "ceres:sparse_schur, ceres:dense_schur, ceres:iterative_schur, "
              "ceres:iterative_schur+jacobi, ceres:cgnr, "
              "ceres:dense_schur+cuda, ceres:cgnr+cuda, ceres_ext:host, "
              "ceres_ext:cuda, ceres_ext:cuda+recomputed, "
              "ceres_ext:cuda+mixed, ceres_ext:cuda+dense_schur, found "
              "'nobody'");
  ExpectFault("--compare_repetitions=0",
              1,
              "--compare_repetitions: expected a number >= 1, found 0");
  ExpectFault("--compare_max_seconds=-1",
              1,
              "--compare_max_seconds: expected a number > 0, found -1");
  for (const char* flag : {"solver=ceres",
                           "linear_solver=cgnr",
                           "preconditioner=jacobi",
                           "device=host",
                           "jacobian=stored",
                           "precision=double",
                           "fallback=refuse"}) {
    const std::string name(flag);
    ExpectFault("--" + name,
                1,
                "--" + name.substr(0, name.find('=')) +
                    ": expected none with --compare, whose solvers have their "
                    "own, found one");
  }
  for (const std::string flag :
       {"output", "report_json", "initial_ply", "final_ply"}) {
    ExpectFault("--" + flag + "=x",
                1,
                "--" + flag +
                    ": expected none with --compare, which has many solves, "
                    "found one");
  }
  for (const std::string flag : {"compare_solvers=automatic",
                                 "compare_repetitions=2",
                                 "compare_max_seconds=2",
                                 "compare_dry_run",
                                 "compare_json=x"}) {
    ExpectFailure("--input='" + input_ + "' --" + flag,
                  1,
                  "bundle_adjuster: --" + flag.substr(0, flag.find('=')) +
                      ": expected --compare too, found none");
  }
  ExpectFault("--report_html='" + json_ + "'",
              1,
              "--report_html: expected another file than that of "
              "--compare_json, found the same, " +
                  json_);
  ExpectFailure("--compare --input=/dev/stdin",
                1,
                "bundle_adjuster: --input: expected a file that can be read "
                "many times with --compare, found /dev/stdin");
  EXPECT_FALSE(fs::exists(json_));
}

TEST_F(CompareTest, RefusesFilesOfOthers) {
  const std::string flags = "--compare_solvers=ceres_ext:host ";
  ASSERT_EQ(Compare(flags).code, 0);
  const std::string good = ReadBytes(json_);
  const auto expect_refused = [&](const std::string& more,
                                  const std::string& expected) {
    const std::string before = ReadBytes(json_);
    const Outcome outcome = Compare(flags + more);
    EXPECT_EQ(outcome.code, 2);
    EXPECT_THAT(
        outcome.err,
        StartsWith("bundle_adjuster: " + json_ + ": expected " + expected));
    EXPECT_THAT(outcome.out, Not(HasSubstr("(process")));
    EXPECT_EQ(ReadBytes(json_), before);
  };
  expect_refused("--num_iterations=7",
                 "a comparison with flags.num_iterations \"7\", found \"5\"\n");
  expect_refused("--point_sigma=1", "a comparison with flags.point_sigma ");
  expect_refused("--compare_max_seconds=7",
                 "a comparison with flags.compare_max_seconds \"7\", found "
                 "\"600\"\n");
  const std::string kind = "a comparison of bundle_adjuster, found ";
  for (const std::string& bytes : {std::string(),
                                   std::string("[]"),
                                   std::string("{}"),
                                   std::string("{\"format\": 1}"),
                                   good.substr(0, good.size() / 2),
                                   ReadBytes(input_),
                                   std::string(100000, '[')}) {
    WriteBytes(json_, bytes);
    expect_refused("", kind + "another kind of file\n");
  }
  // Whole, but not what it says.
  Json json = Json::parse(good);
  for (const std::string field : {"solver", "ending", "report"}) {
    Json bad = json;
    bad["runs"][0].erase(field);
    WriteBytes(json_, bad.dump());
    expect_refused("", kind);
    bad = json;
    bad["runs"][0][field] = 7;
    WriteBytes(json_, bad.dump());
    expect_refused("", kind);
  }
  json["runs"][0]["report"]["iterations"][2].erase("cost");
  WriteBytes(json_, json.dump());
  expect_refused("", kind);
  fs::remove(json_);
  fs::create_symlink("/dev/null", json_);
  expect_refused("", "a regular file, found another kind\n");
  fs::remove(json_);
  // Runs of another problem: points moved, and observations.
  WriteBytes(json_, good);
  std::string moved = ReadBytes(input_);
  const size_t last_digit = moved.find_last_of("0123456789");
  moved[last_digit] = moved[last_digit] == '1' ? '2' : '1';
  WriteBytes(input_, moved);
  expect_refused("", "a comparison with problem.parameters_crc32 ");
  const size_t digit = moved.find('.') + 1;
  moved[digit] = moved[digit] == '1' ? '2' : '1';
  WriteBytes(input_, moved);
  expect_refused("", "a comparison with problem.observations_crc32 ");
}

// A cost that is not that of the parameters is an error, from any solver.
TEST_F(CompareTest, WrongCostsAreNotHidden) {
  const std::string flags =
      "--compare_solvers=ceres_ext:host,ceres:dense_schur";
  ASSERT_EQ(Compare(flags).code, 0);
  Json json = Json::parse(ReadBytes(json_));
  const double best = json["runs"][0]["report"]["summary"]["final_cost"];
  for (const std::string cost : {"initial_cost", "final_cost"}) {
    Json bad = json;
    Json& summary = bad["runs"][1]["report"]["summary"];
    summary[cost] = summary[cost].get<double>() * (1.0 - 1e-6);
    WriteBytes(json_, bad.dump());
    const Outcome outcome = Compare(flags);
    EXPECT_EQ(outcome.code, 3);
    EXPECT_THAT(outcome.err,
                StartsWith("bundle_adjuster: ceres_ext:host, run 1: expected " +
                           cost + " "));
    EXPECT_THAT(outcome.out,
                HasSubstr("ceres_ext:host, run 1: expected " + cost));
    const std::string words = "The best cost is ";
    EXPECT_EQ(
        std::stod(outcome.out.substr(outcome.out.find(words) + words.size())),
        best);
  }
}

TEST_F(CompareTest, OutputErrors) {
  const std::string nowhere = TempPath("no_such_folder") + "/file";
  const std::string found =
      nowhere + ": expected a file that can be written, found no such folder";
  ExpectFault("--report_html='" + nowhere + "'", 4, found);
  ExpectFailure(
      "--compare --input='" + input_ + "' --compare_json='" + nowhere + "'",
      4,
      "bundle_adjuster: " + found);
  if (access("/dev/full", W_OK) == 0) {
    const Outcome outcome =
        Compare("--compare_solvers=ceres_ext:host --report_html=/dev/full");
    EXPECT_EQ(outcome.code, 4);
    EXPECT_THAT(outcome.err, HasSubstr("No space left on device"));
    EXPECT_THAT(Runs(), SizeIs(1));
  }
}

TEST_F(CompareTest, Page) {
  if (!HasPython()) {
    GTEST_SKIP() << "skipped: no python3";
  }
  const std::string html = File("page.html");
  ASSERT_EQ(Compare(HostSolvers() +
                    " --num_iterations=15 --compare_repetitions=2 "
                    "--report_html='" +
                    html + "'")
                .code,
            0);
  const nlohmann::json page = ReadPage(html);
  EXPECT_EQ(page["title"], "Comparison on " + input_);
  EXPECT_EQ(page["external"], nlohmann::json::array());
  EXPECT_EQ(page["figures"].size(), 6u);
  const Json runs = Runs();
  const size_t n = kHostSolvers.size();
  double best = std::numeric_limits<double>::infinity();
  for (const Json& run : runs) {
    best = std::fmin(best, run["report"]["summary"]["final_cost"]);
  }
  EXPECT_EQ(page["numbers"]["best_cost"], best);
  for (size_t i = 0; i < n; ++i) {
    const Json& first = runs[i]["report"]["summary"];
    const Json& second = runs[i + n]["report"]["summary"];
    const std::string& name = kHostSolvers[i].first;
    EXPECT_EQ(page["numbers"][name + ".final_cost"].get<double>(),
              first["final_cost"].get<double>());
    EXPECT_DOUBLE_EQ(page["numbers"][name + ".total"].get<double>(),
                     0.5 * (first["total_time_in_seconds"].get<double>() +
                            second["total_time_in_seconds"].get<double>()));
  }
  ExpectGoodRendering(html);
}

// A run of a solver with these times and costs, whose last cost is final.
ComparedRun MadeUpRun(const std::string& solver,
                      int repetition,
                      const std::vector<std::pair<double, double>>& progress) {
  ComparedRun run;
  run.solver = solver;
  run.repetition = repetition;
  run.ending = RUN_SOLVED;
  run.report["iterations"] = Json::array();
  for (const auto& [seconds, cost] : progress) {
    run.report["iterations"].push_back({{"cumulative_time_in_seconds", seconds},
                                        {"cost", cost},
                                        {"step_is_successful", true},
                                        {"linear_solver_iterations", 7}});
  }
  const double initial = progress.front().second;
  const double final = progress.back().second;
  run.report["summary"] = {{"initial_cost", initial},
                           {"final_cost", final},
                           {"total_time_in_seconds", progress.back().first},
                           {"linear_solver_type_used", "CGNR"}};
  run.report["recomputed_costs"] = {{"initial_cost", initial},
                                    {"initial_cost_tolerance", 0.0},
                                    {"final_cost", final},
                                    {"final_cost_tolerance", 0.0}};
  return run;
}

TEST(Comparison, Evaluate) {
  Comparison comparison;
  // To the best cost, 100, in three runs; times to 1 %: 2, 4 and 3; the bounds
  // themselves count, and no time between two iterations does.
  comparison.runs = {
      MadeUpRun("a", 0, {{1, 500}, {2, 101}, {3, 100.1}, {4, 100}}),
      MadeUpRun("a", 1, {{1, 500}, {3, 101.001}, {4, 100.5}, {9, 100}}),
      MadeUpRun("a", 2, {{1, 500}, {3, 100.9}, {5, 100.001}, {6, 100}}),
      MadeUpRun("b", 0, {{1, 500}, {2, 100.5}}),
      MadeUpRun("b", 1, {{1, 500}, {2, 102}})};
  // A step that was rejected does not count, and neither does a cost that is
  // wrong, nor one of a run that was not solved.
  Json& iterations = comparison.runs[0].report["iterations"];
  Json rejected;
  rejected["cumulative_time_in_seconds"] = 1.5;
  rejected["cost"] = 1.0;
  rejected["step_is_successful"] = false;
  rejected["linear_solver_iterations"] = 3;
  iterations.insert(iterations.begin() + 1, rejected);
  comparison.runs.push_back(MadeUpRun("c", 0, {{1, 500}, {2, 50}}));
  comparison.runs.back().report["recomputed_costs"]["final_cost"] = 51.0;
  comparison.runs.push_back(MadeUpRun("d", 0, {{1, 500}, {2, 50}}));
  comparison.runs.back().ending = RUN_CRASHED;
  comparison.runs.back().message = "gone";

  const ComparisonResult result =
      Evaluate(comparison, {"d", "c", "b", "a", "nobody"});
  EXPECT_EQ(result.best_cost, 100.0);
  ASSERT_EQ(result.solvers.size(), 4u);
  const SolverResult& a = result.solvers[3];
  EXPECT_EQ(a.solver, "a");
  EXPECT_EQ(a.num_solved, 3);
  const auto values = [](const Spread& spread) {
    return std::vector<double>{spread.lowest, spread.median, spread.highest};
  };
  EXPECT_THAT(values(a.seconds_to[0]), ElementsAre(2, 3, 4));
  EXPECT_THAT(values(a.seconds_to[1]), ElementsAre(3, 5, 9));
  EXPECT_THAT(values(a.seconds_to[2]), ElementsAre(4, 5, 9));
  EXPECT_THAT(values(a.total_seconds), ElementsAre(4, 6, 9));
  EXPECT_EQ(a.final_cost, 100.0);
  EXPECT_EQ(a.iterations, 4.0);
  EXPECT_EQ(a.linear_iterations, 31.0);
  EXPECT_THAT(a.faults, IsEmpty());
  const SolverResult& b = result.solvers[2];
  EXPECT_TRUE(std::isnan(b.seconds_to[0].median));  // one run did not get there
  EXPECT_THAT(values(b.total_seconds), ElementsAre(2, 2, 2));
  EXPECT_THAT(
      result.solvers[1].faults,
      ElementsAre("c, run 1: expected final_cost 51 (recomputed) within "
                  "0, found 50"));
  EXPECT_THAT(result.solvers[0].faults, ElementsAre("d, run 1: gone"));
  EXPECT_EQ(result.solvers[0].num_solved, 0);
  const std::string table = ComparisonTable(result);
  EXPECT_THAT(table, HasSubstr("The best cost is 100.\n"));
  EXPECT_THAT(table, HasSubstr("d, run 1: gone\n"));
  EXPECT_TRUE(std::isnan(Evaluate({}, {"a"}).best_cost));
}

TEST(Comparison, CostFault) {
  ComparedRun run = MadeUpRun("a", 0, {{1, 500}, {2, 100}});
  EXPECT_EQ(CostFault(run), "");
  Json& costs = run.report["recomputed_costs"];
  costs["final_cost"] = 100.5;
  EXPECT_NE(CostFault(run), "");
  costs["final_cost_tolerance"] = 0.5;
  EXPECT_EQ(CostFault(run), "");
  run.report["summary"]["initial_cost"] = nullptr;
  EXPECT_NE(CostFault(run), "");
  run.report.erase("recomputed_costs");
  EXPECT_NE(CostFault(run), "");
}

// Twelve solvers with ten thousand iterations each.
TEST_F(CompareTest, PagesStaySmall) {
  if (!HasPython()) {
    GTEST_SKIP() << "skipped: no python3";
  }
  Comparison comparison;
  comparison.input = "<input>";
  comparison.identity["problem"]["text"] = "<&>";
  std::vector<std::string> solvers;
  std::vector<std::pair<double, double>> progress;
  progress.reserve(10000);
  for (int i = 0; i < 10000; ++i) {
    progress.emplace_back(1 + 0.01 * i, 1e6 / (1 + i));
  }
  for (char c = 'a'; c < 'm'; ++c) {
    solvers.push_back(std::string(1, c) + "_solver_with_a_long_name");
    comparison.runs.push_back(MadeUpRun(solvers.back(), 0, progress));
    progress.back().second *= 1.01;
  }
  const std::string page = ComparisonPage(
      comparison, Evaluate(comparison, solvers), {{"z", "<reason>"}});
  EXPECT_LT(page.size(), 500000u);
  const std::string html = File("page.html");
  WriteBytes(html, page);
  EXPECT_EQ(ReadPage(html)["title"], "Comparison on <input>");
  ExpectGoodRendering(html);
}

}  // namespace
}  // namespace ceres_ext::bal
