// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// That bundle_adjuster and bal_generate lose nothing: outputs that fail, full
// disks, outputs on inputs and signals.

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <iterator>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "problem_io/bal_problem.h"
#include "problem_io/bal_reader.h"
#include "problem_io/safe_file.h"
#include "tests/bal/bal_test_util.h"
#include "tests/bal/child_test_util.h"
#include "tests/bal/program_test_util.h"

namespace ceres_ext::bal {
namespace {

namespace fs = std::filesystem;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

// Programs run in a folder of their own, with a problem in it.
class OutputsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = TempPath("folder");
    fs::remove_all(folder_);
    ASSERT_TRUE(fs::create_directory(folder_));
    Generate("input.txt", 8, 200, 900);
  }

  ~OutputsTest() override { fs::remove_all(folder_); }

  void Generate(const std::string& name,
                int num_cameras,
                int num_points,
                int num_observations) {
    const Outcome outcome =
        Execute(BAL_GENERATE,
                "--num_cameras=" + std::to_string(num_cameras) +
                    " --num_points=" + std::to_string(num_points) +
                    " --num_observations=" + std::to_string(num_observations) +
                    " --output='" + Path(name) + "'");
    ASSERT_EQ(outcome.code, 0) << outcome.err;
  }

  // Iterations of half a second each, and all points seen often enough for a
  // quick descent.
  void GenerateSlow() { Generate("slow.txt", 60, 24000, 300000); }
  std::vector<std::string> SlowArguments(int num_iterations) const {
    return {"--input=" + Path("slow.txt"),
            "--num_threads=1",
            "--eta=1e-6",
            "--num_iterations=" + std::to_string(num_iterations)};
  }

  std::string Path(const std::string& name) const {
    return folder_ + "/" + name;
  }

  std::string Flag(const std::string& flag, const std::string& name) const {
    return " --" + flag + "='" + Path(name) + "'";
  }

  std::string Input() const { return Flag("input", "input.txt"); }

  std::set<std::string> Files() const {
    std::set<std::string> files;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      files.insert(entry.path().filename().string());
    }
    return files;
  }

  double CostOf(const std::string& name) const {
    BalProblem problem;
    std::string error;
    EXPECT_TRUE(ReadBalFile(Path(name), &problem, &error)) << error;
    return PlainCost(problem);
  }

  nlohmann::json Report(const std::string& name) const {
    return nlohmann::json::parse(ReadBytes(Path(name)));
  }

  std::string folder_;
};

const char* const kOutputFlags[] = {
    "output", "final_ply", "report_json", "initial_ply"};

TEST_F(OutputsTest, OneThatFailsTakesNoOtherWithIt) {
  if (access("/dev/full", W_OK) != 0) {
    GTEST_SKIP() << "skipped: no /dev/full";
  }
  for (const std::string failing : kOutputFlags) {
    SCOPED_TRACE(failing);
    std::string arguments = Input() + " --" + failing + "=/dev/full";
    std::set<std::string> expected = {"input.txt"};
    for (const char* flag : kOutputFlags) {
      if (flag != failing) {
        arguments += Flag(flag, flag);
        expected.insert(flag);
      }
    }
    const Outcome outcome = Adjust(arguments);
    EXPECT_EQ(outcome.code, 4);
    EXPECT_EQ(outcome.err,
              "bundle_adjuster: /dev/full: expected a file that can be "
              "written, found No space left on device\n");
    EXPECT_EQ(Files(), expected);
    for (const std::string& name : expected) {
      EXPECT_GT(fs::file_size(Path(name)), 0u) << name;
      if (name != "input.txt") {
        fs::remove(Path(name));
      }
    }
  }
  // Each is named.
  fs::create_symlink("/dev/full", Path("full"));
  const Outcome outcome =
      Adjust(Input() + Flag("output", "o.txt") + " --final_ply=/dev/full" +
             Flag("report_json", "full"));
  EXPECT_EQ(outcome.code, 4);
  EXPECT_THAT(outcome.err, HasSubstr("bundle_adjuster: /dev/full: "));
  EXPECT_THAT(outcome.err, HasSubstr("bundle_adjuster: " + Path("full: ")));
  EXPECT_LT(CostOf("o.txt"), CostOf("input.txt"));
}

// `ulimit -f` stands for a full disk: no file may have more than so many blocks
// of 1024 bytes (512 in some shells).
std::string WithSmallFiles(const std::string& program) {
  return "sh -c 'ulimit -f 16; exec \"$0\" \"$@\"' '" + program + "'";
}

Outcome ExecuteWithSmallFiles(const std::string& program,
                              const std::string& arguments) {
  // Execute puts quotes around the first word.
  return Execute("env", WithSmallFiles(program) + " " + arguments);
}

TEST_F(OutputsTest, AFullDiskKeepsWhatWasThere) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer needs files larger than the limit.";
#endif
  const std::string input = ReadBytes(Path("input.txt"));
  Outcome outcome = ExecuteWithSmallFiles(
      BUNDLE_ADJUSTER, Input() + Flag("output", "input.txt"));
  EXPECT_EQ(outcome.code, 4);
  EXPECT_EQ(outcome.err,
            "bundle_adjuster: " + Path("input.txt") +
                ": expected a file that can be written, found File too "
                "large\n");
  EXPECT_EQ(ReadBytes(Path("input.txt")), input);
  EXPECT_THAT(Files(), ElementsAre("input.txt"));

  for (const char* name : {"o.txt", "o.gz", "o.bz2"}) {
    WriteBytes(Path(name), "older");
    outcome =
        ExecuteWithSmallFiles(BUNDLE_ADJUSTER, Input() + Flag("output", name));
    EXPECT_EQ(outcome.code, 4) << name;
    EXPECT_THAT(outcome.err, HasSubstr("expected a file that can be written"));
    EXPECT_EQ(ReadBytes(Path(name)), "older");
    outcome = ExecuteWithSmallFiles(BAL_GENERATE, Flag("output", name));
    EXPECT_EQ(outcome.code, 4) << name;
    EXPECT_EQ(ReadBytes(Path(name)), "older");
  }
  WriteBytes(Path("t.txt"), "older");
  outcome = ExecuteWithSmallFiles(
      BAL_GENERATE, Flag("output", "o.txt") + Flag("truth", "t.txt"));
  EXPECT_EQ(outcome.code, 4);
  EXPECT_THAT(outcome.err, HasSubstr(Path("o.txt: ")));
  EXPECT_THAT(outcome.err, HasSubstr(Path("t.txt: ")));
  EXPECT_EQ(ReadBytes(Path("t.txt")), "older");
  // A new file does not exist in part either.
  outcome = ExecuteWithSmallFiles(BAL_GENERATE, Flag("output", "new.txt"));
  EXPECT_EQ(outcome.code, 4);
  EXPECT_EQ(
      Files(),
      (std::set<std::string>{"input.txt", "o.txt", "o.gz", "o.bz2", "t.txt"}));
}

TEST_F(OutputsTest, ReplacedFilesKeepPermissionsAndLinksStayLinks) {
  const double initial_cost = CostOf("input.txt");
  // More than the usual umask leaves.
  ASSERT_EQ(chmod(Path("input.txt").c_str(), 0666), 0);
  ASSERT_TRUE(fs::create_directory(Path("links")));
  fs::create_symlink("../input.txt", Path("links/a"));
  fs::create_symlink("links/a", Path("b"));
  const Outcome outcome = Adjust(Input() + Flag("output", "b"));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_LT(CostOf("input.txt"), initial_cost);
  EXPECT_TRUE(fs::is_symlink(Path("b")));
  EXPECT_TRUE(fs::is_symlink(Path("links/a")));
  EXPECT_FALSE(fs::is_symlink(Path("input.txt")));
  struct stat status;
  ASSERT_EQ(stat(Path("input.txt").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0666u);
  EXPECT_THAT(Files(), UnorderedElementsAre("b", "input.txt", "links"));

  // A link to a missing file; a new file's permissions.
  fs::create_symlink("new.txt", Path("dangling"));
  const mode_t mask = umask(027);
  EXPECT_EQ(Adjust(Input() + Flag("output", "dangling")).code, 0);
  umask(mask);
  EXPECT_TRUE(fs::is_symlink(Path("dangling")));
  ASSERT_EQ(stat(Path("new.txt").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0640u);
}

// The last word on a file that took the place of a folder, say.
// As much as several threads write, and a byte too little for that, onto an
// existing file.
TEST_F(OutputsTest, LargeFilesHaveAllTheirBytes) {
  for (const size_t size : {size_t{64} << 20, (size_t{64} << 20) - 1}) {
    std::string bytes(size, '\0');
    for (size_t i = 0; i < size; ++i) {
      bytes[i] = static_cast<char>(i * 2654435761u >> 13);
    }
    const std::string_view all = bytes;
    std::string error;
    ASSERT_TRUE(WriteFile(
        Path("large"),
        {all.substr(0, 1001), all.substr(1001, 40000000), all.substr(40001001)},
        &error))
        << error;
    EXPECT_TRUE(ReadBytes(Path("large")) == bytes);
  }
}

TEST_F(OutputsTest, WhatCantTakeItsPlaceIsNotLost) {
  std::string error;
  std::unique_ptr<SafeFile> file = SafeFile::Create(Path("a"), &error);
  ASSERT_NE(file, nullptr) << error;
  ASSERT_TRUE(WriteFully(file->fd(), "all", 3));
  fs::create_directory(Path("a"));
  EXPECT_FALSE(file->Commit(&error));
  file = nullptr;
  ASSERT_THAT(error, HasSubstr("Is a directory, and left it all in "));
  EXPECT_EQ(ReadBytes(error.substr(error.rfind(' ') + 1)), "all");
}

TEST_F(OutputsTest, PipesAndDevicesAreWrittenStraight) {
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
  const Outcome outcome =
      Execute("sh",
              "-c 'cat \"$1\" >\"$2\" & \"$0\" \"$3\" \"$4\"; code=$?; wait; "
              "exit $code' '" BUNDLE_ADJUSTER "' '" +
                  Path("pipe") + "' '" + Path("copy.txt") + "'" + Input() +
                  Flag("output", "pipe"));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_LT(CostOf("copy.txt"), CostOf("input.txt"));
  struct stat status;
  ASSERT_EQ(stat(Path("pipe").c_str(), &status), 0);
  EXPECT_TRUE(S_ISFIFO(status.st_mode));

  // Standard output, here a file, several times and behind existing text.
  const Outcome all = Adjust(
      Input() +
      " --output=/dev/stdout --report_json=/dev/stdout --final_ply=/dev/null "
      "--initial_ply=/dev/null");
  EXPECT_EQ(all.code, 0) << all.err;
  EXPECT_THAT(all.out, StartsWith(Path("input.txt: 8 cameras")));
  EXPECT_THAT(all.out, HasSubstr("\n8 200 900\n"));
  // With no line about seconds behind.
  EXPECT_THAT(all.out, EndsWith("\n}\n"));
  EXPECT_THAT(
      Adjust(Input() + Flag("output", "seconds.txt")).out,
      ContainsRegex("\nSeconds: read [^,]*, build 0, start of CUDA [^,]*, "
                    "set-up [^,]*, solve [^,]*, return [^,]*, write [^;]*; in "
                    "all [^\n]*\n$"));
}

// A reader that leaves ends one output and no other.
TEST_F(OutputsTest, APipeThatNobodyReadsIsAnError) {
  const Outcome outcome = Execute("sh",
                                  "-c '{ \"$0\" \"$1\" \"$2\"; echo $? "
                                  ">\"$3\"; } | true' '" BUNDLE_ADJUSTER "'" +
                                      Input() + Flag("output", "o.txt") + " '" +
                                      Path("code") + "'");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(ReadBytes(Path("code")), "4\n");
  EXPECT_EQ(outcome.err,
            "bundle_adjuster: standard output: expected that all of it can be "
            "written, found that some of it was not\n");
  EXPECT_LT(CostOf("o.txt"), CostOf("input.txt"));
}

TEST_F(OutputsTest, AFullStandardOutputIsAnError) {
  if (access("/dev/full", W_OK) != 0) {
    GTEST_SKIP() << "skipped: no /dev/full";
  }
  const struct {
    const char* program;
    std::string arguments;
  } kCases[] = {
      {BUNDLE_ADJUSTER, Input() + Flag("output", "o.txt")},
      {BUNDLE_ADJUSTER, "--help"},
      {BAL_GENERATE, "--list"},
      {BAL_GENERATE, "--help"},
  };
  for (const auto& c : kCases) {
    const Outcome outcome =
        Execute("sh",
                "-c 'exec \"$0\" \"$@\" >/dev/full' '" +
                    std::string(c.program) + "' " + c.arguments);
    EXPECT_EQ(outcome.code, 4) << c.arguments;
    EXPECT_EQ(outcome.err,
              fs::path(c.program).filename().string() +
                  ": standard output: expected that all of it can be written, "
                  "found that some of it was not\n");
  }
  EXPECT_LT(CostOf("o.txt"), CostOf("input.txt"));
}

TEST_F(OutputsTest, NoOutputTakesThePlaceOfAnInput) {
  const std::string input = ReadBytes(Path("input.txt"));
  fs::create_symlink("input.txt", Path("symbolic"));
  fs::create_hard_link(Path("input.txt"), Path("hard"));
  const auto expect_refused = [this](const std::string& flag,
                                     const std::string& name) {
    ExpectFailure(Input() + Flag(flag, name),
                  1,
                  "bundle_adjuster: --" + flag +
                      ": expected another file than that of --input, found the "
                      "same, " +
                      Path(name));
  };
  for (const char* name : {"input.txt", "./input.txt", "symbolic", "hard"}) {
    for (const char* flag : {"final_ply", "report_json", "initial_ply"}) {
      expect_refused(flag, name);
    }
  }
  EXPECT_EQ(ReadBytes(Path("input.txt")), input);
}

TEST_F(OutputsTest, NoTwoOutputsOnOnePath) {
  fs::create_symlink("new", Path("link"));
  ASSERT_TRUE(fs::create_directory(Path("folder")));
  fs::create_symlink("folder", Path("other"));
  const std::vector<std::pair<std::string, std::string>> kSame = {
      {"new", "new"},
      {"new", "folder/../new"},
      {"new", "link"},
      {"folder/a", "other/a"}};
  size_t k = 0;
  for (size_t i = 0; i < std::size(kOutputFlags); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const std::string first = kOutputFlags[j];
      const std::string second = kOutputFlags[i];
      std::string message = "bundle_adjuster: --";
      message.append(second)
          .append(": expected another file than that of --")
          .append(first)
          .append(", found the same, ");
      const auto& [a, b] = kSame[k++ % kSame.size()];
      ExpectFailure(
          Input() + Flag(first, a) + Flag(second, b), 1, message + Path(b));
    }
  }
  EXPECT_THAT(Files(),
              UnorderedElementsAre("input.txt", "link", "folder", "other"));

  const Outcome outcome =
      Execute(BAL_GENERATE, Flag("output", "new") + Flag("truth", "link"));
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(outcome.err,
            "bal_generate: --truth: expected another file than that of "
            "--output, found the same, " +
                Path("link") + "\n");
  // Both are looked at before the work.
  EXPECT_EQ(
      Execute(BAL_GENERATE, Flag("output", "new") + Flag("truth", "none/a"))
          .code,
      4);
  EXPECT_THAT(Files(),
              UnorderedElementsAre("input.txt", "link", "folder", "other"));
  EXPECT_EQ(Execute(BAL_GENERATE, "--output=/dev/null --truth=/dev/null").code,
            0);
}

TEST_F(OutputsTest, ASignalEndsTheSolveAndAllIsWritten) {
  GenerateSlow();
  const double initial_cost = CostOf("slow.txt");
  const struct {
    int number;
    const char* name;
  } kSignals[] = {{SIGINT, "SIGINT"}, {SIGTERM, "SIGTERM"}, {SIGHUP, "SIGHUP"}};
  for (const auto& s : kSignals) {
    SCOPED_TRACE(s.name);
    std::vector<std::string> arguments = SlowArguments(1000);
    for (const char* flag : kOutputFlags) {
      arguments.push_back(std::string("--") + flag + "=" + Path(flag));
    }
    Child child(folder_, BUNDLE_ADJUSTER, arguments);
    child.WaitForOutput("\n   1 ");
    child.Send(s.number);
    EXPECT_TRUE(IsExit(5, child.Wait())) << child.err();
    // A slow machine says behind it how far it is.
    EXPECT_THAT(
        child.err(),
        StartsWith(std::string("bundle_adjuster: ") + s.name +
                   ": the solve stops after this iteration and the results are "
                   "written; a second signal kills\n"));
    const auto report = Report("report_json");
    const double final_cost = report["summary"]["final_cost"];
    EXPECT_LT(final_cost, 0.1 * initial_cost);
    EXPECT_NEAR(CostOf("output"), final_cost, 1e-10 * final_cost);
    EXPECT_EQ(report["summary"]["termination_type"], "NO_CONVERGENCE");
    const int last = report["iterations"].back()["iteration"];
    EXPECT_LT(last, 20);
    EXPECT_EQ(report["summary"]["message"],
              "Interrupted after iteration " + std::to_string(last) + ".");
    for (const char* flag : kOutputFlags) {
      EXPECT_TRUE(fs::remove(Path(flag))) << flag;
    }
  }
}

TEST_F(OutputsTest, ASecondSignalKills) {
  // Writing waits for a reader that does not come.
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
  GenerateSlow();
  std::vector<std::string> arguments = SlowArguments(1000);
  arguments.push_back("--output=" + Path("pipe"));
  arguments.push_back("--report_json=" + Path("report"));
  Child child(folder_, BUNDLE_ADJUSTER, arguments);
  child.WaitForOutput("\n   1 ");
  child.Send(SIGTERM);
  child.WaitForError("a second signal kills");
  child.Send(SIGINT);
  EXPECT_TRUE(IsKilledBy(SIGINT, child.Wait()));
  EXPECT_FALSE(fs::exists(Path("report")));
}

TEST_F(OutputsTest, AFirstSignalWhileWritingCostsNothing) {
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
  Child child(folder_,
              BUNDLE_ADJUSTER,
              {"--input=" + Path("input.txt"),
               "--output=" + Path("pipe"),
               "--report_json=" + Path("report")});
  child.WaitForOutput("Termination:");
  child.Send(SIGTERM);
  child.WaitForError("SIGTERM: the results are being written; a second ");
  WriteBytes(Path("copy.txt"), ReadBytes(Path("pipe")));
  EXPECT_TRUE(IsExit(0, child.Wait())) << child.err();
  EXPECT_LT(CostOf("copy.txt"), CostOf("input.txt"));
  EXPECT_EQ(Report("report")["summary"]["is_solution_usable"], true);
}

TEST_F(OutputsTest, ASignalWhileReadingKills) {
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
  Child child(folder_,
              BUNDLE_ADJUSTER,
              {"--input=" + Path("pipe"), "--output=" + Path("o.txt")});
  // The program has the other end open, so it reads.
  const int pipe = open(Path("pipe").c_str(), O_WRONLY);
  child.Send(SIGTERM);
  EXPECT_TRUE(IsKilledBy(SIGTERM, child.Wait()));
  close(pipe);
}

TEST_F(OutputsTest, AKillWhileWritingKeepsTheOldFile) {
  WriteBytes(Path("o.txt"), "older");
  Child child(folder_,
              BAL_GENERATE,
              {"--num_cameras=1000",
               "--num_points=300000",
               "--num_observations=1500000",
               "--output=" + Path("o.txt")});
  const auto has_temporary = [this] {
    for (const std::string& name : Files()) {
      if (name.find(".o.txt.") == 0) {
        return true;
      }
    }
    return false;
  };
  ASSERT_TRUE(Child::WaitUntil(has_temporary));
  child.Send(SIGTERM);
  EXPECT_TRUE(IsKilledBy(SIGTERM, child.Wait()));
  EXPECT_EQ(ReadBytes(Path("o.txt")), "older");
  EXPECT_FALSE(has_temporary());
}

}  // namespace
}  // namespace ceres_ext::bal
