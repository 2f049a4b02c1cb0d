// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The programs bundle_adjuster and bal_generate as a user runs them: exit
// codes, messages and files.

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "examples/bal/bal_geometry.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "problem_io/bal_problem.h"
#include "problem_io/bal_reader.h"
#include "problem_io/bal_writer.h"
#include "tests/bal/bal_test_util.h"
#include "tests/bal/program_test_util.h"

namespace ceres_ext::bal {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::StartsWith;

TEST_F(BundleAdjusterTest, SolvesAndReports) {
  const Outcome outcome =
      Adjust("--num_iterations=20 --input='" + input_ + "'");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  EXPECT_THAT(outcome.out,
              StartsWith(input_ + ": 8 cameras, 200 points, 900 observations"));
  EXPECT_THAT(outcome.out, HasSubstr("iter      cost      cost_change"));
  EXPECT_THAT(outcome.out, HasSubstr("Solver Summary"));
  EXPECT_THAT(outcome.out, HasSubstr("Ceres Ext"));
}

// Any problem is solved about the median of its points, also one in coordinates
// as of ECEF.
TEST_F(BundleAdjusterTest, FarProblemsEndWhereNearOnesDo) {
  BalProblem problem;
  std::string error;
  ASSERT_TRUE(ReadBalFile(input_, &problem, &error)) << error;
  Undo({1.0, {3.9e6, -4.4e6, 2.5e6}}, &problem);
  EXPECT_GT(problem.points[0], 3e6);
  const std::string far = File("far.txt");
  ASSERT_TRUE(WriteBalFile(far, problem, &error)) << error;
  double costs[2];
  for (int i = 0; i < 2; ++i) {
    const std::string report = File("far.json");
    const Outcome outcome =
        Adjust("--num_iterations=10 --input='" + (i == 0 ? input_ : far) +
               "' --report_json='" + report + "'");
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    costs[i] =
        nlohmann::json::parse(ReadBytes(report))["summary"]["final_cost"];
  }
  // Points and translations are rounded by 5e-10 where depths are 1 or more and
  // focal lengths 1000: by 1e-6 pixels. Half the squares of residuals of 0.3
  // pixels change by 7e-6 of themselves at most.
  EXPECT_NEAR(costs[1], costs[0], 1e-5 * costs[0]);
}

TEST_F(BundleAdjusterTest, HelpAndVersion) {
  for (const char* flag : {"--help", "-help", "--helpshort"}) {
    const Outcome outcome = Adjust(flag);
    EXPECT_EQ(outcome.code, 0);
    EXPECT_EQ(outcome.err, "");
    EXPECT_THAT(outcome.out, StartsWith("bundle_adjuster --input=FILE"));
    EXPECT_THAT(outcome.out, HasSubstr("Exit codes:"));
    // Each flag is in a group, and none of the logging library's is here.
    EXPECT_THAT(outcome.out, Not(HasSubstr("Other:")));
    EXPECT_THAT(outcome.out, Not(HasSubstr("--logtostderr")));
    EXPECT_THAT(outcome.out, HasSubstr("--eta (double, default 0.01)"));
    EXPECT_THAT(outcome.out,
                HasSubstr("--spse_tolerance (double, default 0.1)"));
    std::istringstream lines(outcome.out);
    for (std::string line; std::getline(lines, line);) {
      EXPECT_LE(line.size(), 80u) << line;
    }
  }
  EXPECT_EQ(Adjust("--helpfull").code, 1);  // gflags' own
  EXPECT_EQ(Adjust("--version").code, 0);
  EXPECT_EQ(Execute(BAL_GENERATE, "--help").code, 0);
  EXPECT_THAT(Execute(BAL_GENERATE, "--help").out, Not(HasSubstr("Other:")));
}

// The flags of Ceres's own bundle_adjuster are all here.
TEST_F(BundleAdjusterTest, KnowsTheFlagsOfCeres) {
  const std::string help = Adjust("--help").out;
  for (const char* flag : {"input",
                           "trust_region_strategy",
                           "dogleg",
                           "inner_iterations",
                           "blocks_for_inner_iterations",
                           "linear_solver",
                           "explicit_schur_complement",
                           "preconditioner",
                           "visibility_clustering",
                           "use_spse_initialization",
                           "sparse_linear_algebra_library",
                           "dense_linear_algebra_library",
                           "ordering_type",
                           "linear_solver_ordering",
                           "use_quaternions",
                           "use_manifolds",
                           "robustify",
                           "eta",
                           "num_threads",
                           "num_iterations",
                           "max_linear_solver_iterations",
                           "spse_tolerance",
                           "max_num_spse_iterations",
                           "max_solver_time",
                           "nonmonotonic_steps",
                           "rotation_sigma",
                           "translation_sigma",
                           "point_sigma",
                           "random_seed",
                           "line_search",
                           "mixed_precision_solves",
                           "max_num_refinement_iterations",
                           "initial_ply",
                           "final_ply"}) {
    EXPECT_THAT(help, HasSubstr(std::string("  --") + flag + " ("));
  }
}

TEST_F(BundleAdjusterTest, Refusals) {
  const std::string input = "--input='" + input_ + "' ";
  const std::string name = "bundle_adjuster: ";
  const std::string model = File("model");
  ASSERT_EQ(Execute(BAL_GENERATE,
                    "--num_cameras=8 --num_points=200 --num_observations=900 "
                    "--camera_model=OPENCV --output='" +
                        model + "'")
                .code,
            0);
  const std::string bad = File("bad.txt");
  const std::string empty = File("empty.txt");
  WriteBytes(bad, "1 1 1\n0 1 2 3\n");
  WriteBytes(empty, "");
  ExpectRefusals(
      BUNDLE_ADJUSTER,
      "bundle_adjuster",
      {{"input", input_}, {"model", model}, {"bad", bad}, {"empty", empty}});
  std::filesystem::remove_all(model);
  // The nearest flag, also of COLMAP's form of a name.
  for (const auto& [unknown, nearest] :
       {std::pair("--num_iteration=3", "num_iterations"),
        std::pair("-num_theads 2", "num_threads"),
        std::pair("--nouse_manifold", "use_manifolds"),
        std::pair("--BundleAdjustment.function_tolerance=0",
                  "function_tolerance")}) {
    const Outcome outcome = Adjust(input + unknown);
    EXPECT_EQ(outcome.code, 1);
    EXPECT_THAT(outcome.err,
                EndsWith(std::string(" is not a flag; did you mean --") +
                         nearest + "? see --help\n"));
  }
  // Refused by Ceres.
  for (const char* flags :
       {"--num_iterations=-1",
        "--eta=nan",
        "--function_tolerance=-1",
        "--max_linear_solver_iterations=-1",
        "--linear_solver=cgnr --preconditioner=schur_jacobi"}) {
    const Outcome outcome = Adjust(input + flags);
    EXPECT_EQ(outcome.code, 1) << flags;
    EXPECT_THAT(outcome.err, StartsWith(name)) << flags;
  }
}

// Solves the files of a folder as one batch; some are not valid problems.
TEST_F(BundleAdjusterTest, SolvesAFolder) {
  BalProblem problem;
  std::string error;
  ASSERT_TRUE(ReadBalFile(input_, &problem, &error)) << error;
  const std::string folder = File("batch");
  const std::string refined = File("batch_refined");
  const std::string report = File("batch.json");
  const std::string same_flags =
      " --num_iterations=6 --robustify --device=host "
      "--linear_solver=dense_schur";
  std::filesystem::create_directories(folder + "/no_file");
  for (const char* name : {"b.txt", "a.npz", "c.txt.gz"}) {
    problem.points[0] += 0.01;
    ASSERT_TRUE(WriteBalFile(folder + "/" + name, problem, &error)) << error;
  }
  WriteBytes(folder + "/.hidden", "no problem");
  Outcome outcome = Adjust("--batch='" + folder + "' --output='" + refined +
                           "' --report_json='" + report + "'" + same_flags);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  EXPECT_THAT(outcome.out,
              StartsWith("a.npz: 8 cameras, 200 points, 900 observations; "));
  EXPECT_THAT(outcome.out, HasSubstr("; window\n"));
  EXPECT_THAT(outcome.out,
              HasSubstr("3 problems, 3 with a usable solution, 3 solved as "
                        "windows or fits on host"));
  const auto json = nlohmann::json::parse(ReadBytes(report));
  ASSERT_EQ(json["problems"].size(), 3u);
  EXPECT_EQ(json["windows"], 3);
  EXPECT_GT(json["latency_p99_seconds"].get<double>(), 0.0);
  // Each as by itself.
  for (const auto& one : json["problems"]) {
    const std::string name = one["name"];
    const std::string alone = File("alone.txt");
    outcome = Adjust("--input='" + folder + "/" + name + "' --output='" +
                     alone + "'" + same_flags);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    BalProblem a;
    BalProblem b;
    ASSERT_TRUE(ReadBalFile(alone, &a, &error)) << error;
    ASSERT_TRUE(ReadBalFile(refined + "/" + name, &b, &error)) << error;
    ASSERT_EQ(a.points.size(), b.points.size());
    for (size_t e = 0; e < a.points.size(); ++e) {
      EXPECT_NEAR(
          a.points[e], b.points[e], 1e-5 * (1.0 + std::abs(a.points[e])));
    }
  }
  // One file is not a valid problem, and another cannot be solved.
  WriteBytes(folder + "/bad.txt", "1 1 1\n");
  WriteBytes(folder + "/center.txt",
             "1 1 1\n0 0 1 2\n0\n0\n0\n0\n0\n0\n1\n0\n0\n0\n0\n0\n");
  outcome = Adjust("--batch='" + folder + "'" + same_flags);
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr(folder + "/bad.txt:"));
  EXPECT_THAT(outcome.err, HasSubstr(folder + "/center.txt: the solve failed"));
  EXPECT_THAT(outcome.out, HasSubstr("4 problems, 3 with a usable solution"));
  ExpectFailure(
      "--batch='" + folder + "' --report_problem",
      1,
      "bundle_adjuster: --report_problem: not available with --batch");
  ExpectFailure("--batch=/no/such/folder",
                2,
                "bundle_adjuster: /no/such/folder: cannot list the folder: No "
                "such file or directory");
  ExpectFailure("--batch='" + folder + "/no_file'",
                2,
                "bundle_adjuster: " + folder +
                    "/no_file: expected files of BAL problems, found none");
}

TEST_F(BundleAdjusterTest, SolveFailures) {
  // A point at the optical center: the cost is not defined at the start.
  const std::string center = File("center.txt");
  WriteBytes(center, "1 1 1\n0 0 1 2\n0\n0\n0\n0\n0\n0\n1\n0\n0\n0\n0\n0\n");
  for (const char* solver : {"ceres_ext", "ceres"}) {
    const Outcome outcome =
        Adjust("--input='" + center + "' --solver=" + std::string(solver));
    EXPECT_EQ(outcome.code, 3) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("bundle_adjuster: the solve failed: "));
  }
  // Not supported by ceres_ext, without a fallback.
  const Outcome outcome = Adjust(
      "--input='" + input_ + "' --linear_solver=dense_qr --fallback=refuse");
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.err, HasSubstr("bundle_adjuster: the solve failed: "));
}

TEST_F(BundleAdjusterTest, OutputErrors) {
  const std::string nowhere = TempPath("no_such_folder") + "/file";
  for (const char* flag :
       {"output", "report_json", "initial_ply", "final_ply"}) {
    const Outcome outcome =
        Adjust("--input='" + input_ + "' --" + flag + "='" + nowhere + "'");
    EXPECT_EQ(outcome.code, 4);
    EXPECT_EQ(outcome.err,
              "bundle_adjuster: " + nowhere +
                  ": expected a file that can be written, found no such "
                  "folder\n");
    // Said before the solve.
    EXPECT_EQ(outcome.out, "");
    if (access("/dev/full", W_OK) == 0) {
      const Outcome full =
          Adjust("--input='" + input_ + "' --" + flag + "=/dev/full");
      EXPECT_EQ(full.code, 4);
      EXPECT_THAT(full.err, HasSubstr("No space left on device"));
    }
  }
}

TEST_F(BundleAdjusterTest, OutputIsTheSolution) {
  for (const char* flags : {"", "--use_quaternions --use_manifolds"}) {
    const std::string output = File("output.bz2");
    const std::string report = File("report.json");
    const std::string final_ply = File("final.ply");
    const std::string initial_ply = File("initial.ply");
    std::ostringstream arguments;
    arguments << "--input='" << input_ << "' --num_iterations=20 --output='"
              << output << "' --report_json='" << report << "' --final_ply='"
              << final_ply << "' --initial_ply='" << initial_ply << "' "
              << flags;
    const Outcome outcome = Adjust(arguments.str());
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const auto json = nlohmann::json::parse(ReadBytes(report));
    BalProblem input;
    BalProblem solution;
    std::string error;
    ASSERT_TRUE(ReadBalFile(input_, &input, &error)) << error;
    ASSERT_TRUE(ReadBalFile(output, &solution, &error)) << error;
    EXPECT_EQ(solution.camera_index, input.camera_index);
    EXPECT_EQ(solution.point_index, input.point_index);
    EXPECT_EQ(solution.observations, input.observations);
    // In the frame of the input, with the final cost: rounding of a change of
    // frame, some 10 eps of 100 m in 10 m.
    EXPECT_NEAR(PlainCost(solution),
                json["summary"]["final_cost"].get<double>(),
                1e-10 * PlainCost(solution));
    EXPECT_NEAR(PlainCost(input),
                json["summary"]["initial_cost"].get<double>(),
                1e-10 * PlainCost(input));
    // In another frame half of the points would be tens of metres away.
    std::vector<double> moved;
    for (size_t i = 0; i < input.points.size(); ++i) {
      moved.push_back(std::abs(solution.points[i] - input.points[i]));
    }
    std::sort(moved.begin(), moved.end());
    EXPECT_LT(moved[moved.size() / 2], 2.0);
    EXPECT_GT(moved[moved.size() / 2], 0.0);
    for (const std::string& ply : {initial_ply, final_ply}) {
      const std::string text = ReadBytes(ply);
      EXPECT_THAT(text,
                  StartsWith("ply\nformat ascii 1.0\nelement vertex 208"));
      EXPECT_THAT(text, EndsWith(" 255 255 255\n"));
    }
  }
}

std::vector<std::string> Keys(const nlohmann::ordered_json& json) {
  std::vector<std::string> keys;
  for (const auto& item : json.items()) {
    keys.push_back(item.key());
  }
  return keys;
}

TEST_F(BundleAdjusterTest, ReportHasTheDocumentedFields) {
  const std::string report = File("report.json");
  const Outcome outcome = Adjust("--input='" + input_ +
                                 "' --num_iterations=7 --eta=0.125 "
                                 "--report_json='" +
                                 report + "'");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto json = nlohmann::ordered_json::parse(ReadBytes(report));
  EXPECT_THAT(Keys(json),
              ElementsAre("format",
                          "problem",
                          "flags",
                          "summary",
                          "ceres_ext",
                          "recomputed_costs",
                          "iterations"));
  EXPECT_EQ(json["format"], "ceres_ext.bundle_adjuster.1");
  EXPECT_THAT(Keys(json["recomputed_costs"]),
              ElementsAre("initial_cost",
                          "initial_cost_tolerance",
                          "final_cost",
                          "final_cost_tolerance"));
  EXPECT_THAT(Keys(json["problem"]),
              ElementsAre("input",
                          "num_cameras",
                          "num_points",
                          "num_observations",
                          "camera_size",
                          "read_time_in_seconds",
                          "build_time_in_seconds"));
  EXPECT_EQ(json["problem"]["input"], input_);
  EXPECT_EQ(json["problem"]["num_observations"], 900);
  EXPECT_EQ(json["flags"]["eta"], "0.125");
  EXPECT_EQ(json["flags"]["solver"], "ceres_ext");
  EXPECT_EQ(json["flags"].count("logtostderr"), 0u);
  EXPECT_THAT(Keys(json["summary"]),
              ElementsAre("termination_type",
                          "is_solution_usable",
                          "message",
                          "initial_cost",
                          "final_cost",
                          "num_successful_steps",
                          "num_unsuccessful_steps",
                          "num_linear_solves",
                          "num_residual_evaluations",
                          "num_jacobian_evaluations",
                          "linear_solver_type_used",
                          "preconditioner_type_used",
                          "num_threads_used",
                          "preprocessor_time_in_seconds",
                          "minimizer_time_in_seconds",
                          "residual_evaluation_time_in_seconds",
                          "jacobian_evaluation_time_in_seconds",
                          "linear_solver_time_in_seconds",
                          "inner_iteration_time_in_seconds",
                          "postprocessor_time_in_seconds",
                          "total_time_in_seconds"));
  EXPECT_EQ(json["summary"]["is_solution_usable"], true);
  EXPECT_THAT(Keys(json["ceres_ext"]),
              ElementsAre("path",
                          "path_reason",
                          "device",
                          "method",
                          "num_pcg_iterations",
                          "num_exact_steps",
                          "num_coarse_iterations",
                          "num_clusters",
                          "num_coarse_columns",
                          "coarse_time_in_seconds",
                          "num_solves_at_pcg_limit",
                          "context_time_in_seconds",
                          "setup_time_in_seconds",
                          "import_time_in_seconds",
                          "normal_blocks_time_in_seconds",
                          "schur_time_in_seconds",
                          "factorization_time_in_seconds",
                          "pcg_time_in_seconds",
                          "back_substitution_time_in_seconds",
                          "num_runaway_trials",
                          "num_runaway_residuals",
                          "no_minimum",
                          "memory_bytes",
                          "memory_forecast_bytes",
                          "transfer_bytes",
                          "degenerate_eliminated_blocks",
                          "degenerate_other_blocks"));
  EXPECT_THAT(Keys(json["ceres_ext"]["degenerate_other_blocks"]),
              ElementsAre("count"));
  EXPECT_NE(json["ceres_ext"]["path_reason"], "");
  ASSERT_EQ(json["iterations"].size(), 8u);
  EXPECT_THAT(Keys(json["iterations"][0]),
              ElementsAre("iteration",
                          "step_is_valid",
                          "step_is_successful",
                          "cost",
                          "cost_change",
                          "gradient_max_norm",
                          "step_norm",
                          "relative_decrease",
                          "trust_region_radius",
                          "linear_solver_iterations",
                          "iteration_time_in_seconds",
                          "step_solver_time_in_seconds",
                          "cumulative_time_in_seconds"));
}

TEST_F(BundleAdjusterTest, ThreadsAndNoiseAreHonoured) {
  const std::string report = File("report.json");
  double costs[3];
  const char* const kFlags[] = {"--point_sigma=0.1 --random_seed=1",
                                "--point_sigma=0.1 --random_seed=1",
                                "--point_sigma=0.1 --random_seed=2"};
  for (int i = 0; i < 3; ++i) {
    const Outcome outcome =
        Adjust("--input='" + input_ + "' --num_threads=1 --report_json='" +
               report + "' " + kFlags[i]);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const auto json = nlohmann::json::parse(ReadBytes(report));
    EXPECT_EQ(json["summary"]["num_threads_used"], 1);
    costs[i] = json["summary"]["initial_cost"];
  }
  EXPECT_EQ(costs[0], costs[1]);
  EXPECT_NE(costs[0], costs[2]);
}

// Every choice of the flags that ends in another solver.
TEST_F(BundleAdjusterTest, EveryChoiceSolves) {
  for (const char* flags :
       {"--solver=ceres",
        "--solver=CERES_EXT",
        "--cost_function=autodiff",
        "--cost_function=device_autodiff",
        "--robustify",
        "--use_quaternions",
        "--use_quaternions --use_manifolds --cost_function=autodiff",
        "--jacobian=recomputed",
        "--jacobian=recomputed --robustify --fallback=refuse",
        "--batch_evaluation=false",
        "--device=host",
        "--linear_solver=cgnr",
        "--linear_solver=cgnr --preconditioner=identity",
        "--preconditioner=jacobi",
        "--preconditioner=identity",
        "--preconditioner_blocks=single",
        "--preconditioner=schur_power_series_expansion",
        "--linear_solver=dense_schur",
        "--linear_solver=dense_qr",
        "--linear_solver=dense_normal_cholesky",
        "--explicit_schur_complement",
        "--use_spse_initialization --spse_tolerance=0.2",
        "--linear_solver_ordering=automatic",
        "--trust_region_strategy=dogleg --linear_solver=dense_schur",
        "--nonmonotonic_steps",
        "--line_search",
        "--inner_iterations",
        "--inner_iterations --blocks_for_inner_iterations=cameras",
        "--inner_iterations --blocks_for_inner_iterations=points,cameras",
        "--rotation_sigma=0.001 --translation_sigma=0.01"}) {
    const Outcome outcome = Adjust("--input='" + input_ + "' " + flags);
    EXPECT_EQ(outcome.code, 0) << flags << "\n" << outcome.err;
  }
}

TEST_F(BundleAdjusterTest, SolvesOnOneThreadWhereTheSystemRefusesOthers) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "skipped: the sanitizer has its own pthread_create";
#endif
  const std::string output = File("output.txt");
  const std::string flags =
      "--input='" + input_ + "' --output='" + output + "' --num_threads=";
  // OpenBLAS, where Ceres's is that one, ends the process without its threads.
  // By name, as LD_PRELOAD ends a path at a space.
  const std::string without = std::string("OPENBLAS_NUM_THREADS=1 ") +
                              "LD_LIBRARY_PATH='" + NO_THREADS_FOLDER + "' " +
                              "LD_PRELOAD=" + NO_THREADS + " '" +
                              BUNDLE_ADJUSTER + "' " + flags;
  ASSERT_EQ(Adjust(flags + "1").code, 0);
  const std::string bytes = ReadBytes(output);
  const Outcome outcome = Execute("env", without + "4");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(ReadBytes(output), bytes);
  const Outcome stock = Execute("env", without + "4 --solver=ceres");
  EXPECT_EQ(stock.code, 0) << stock.err;
}

TEST(BalGenerateTest, WritesTheSameBytesAndRefuses) {
  const std::string path = TempPath("a.txt");
  const std::string truth = TempPath("truth.txt");
  const std::string flags =
      "--num_cameras=10 --num_points=100 --num_observations=400 --output='" +
      path + "' --truth='" + truth + "' ";
  ASSERT_EQ(Execute(BAL_GENERATE, flags + "--num_threads=1").code, 0);
  const std::string bytes = ReadBytes(path);
  EXPECT_THAT(bytes, StartsWith("10 100 400\n"));
  ASSERT_EQ(Execute(BAL_GENERATE, flags + "--num_threads=3").code, 0);
  EXPECT_EQ(ReadBytes(path), bytes);
  BalProblem problem;
  std::string error;
  ASSERT_TRUE(ReadBalFile(truth, &problem, &error)) << error;
  // Mean squared noise of 0.5 pixels and 1 % of outliers up to 20 pixels, far
  // below a start that has drifted.
  EXPECT_LT(PlainCost(problem), 10.0 * 400);
  ASSERT_EQ(Execute(BAL_GENERATE, flags + "--seed=2").code, 0);
  EXPECT_NE(ReadBytes(path), bytes);
  std::remove(path.c_str());
  std::remove(truth.c_str());

  ExpectRefusals(BAL_GENERATE, "bal_generate");
  const Outcome list = Execute(BAL_GENERATE, "--list");
  EXPECT_EQ(list.code, 0);
  EXPECT_THAT(list.out,
              HasSubstr("final-13682: 13682 cameras, 4456117 points, 28987644 "
                        "observations\n"));
}

}  // namespace
}  // namespace ceres_ext::bal
