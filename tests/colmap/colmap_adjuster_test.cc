// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The program colmap_adjuster as a user runs it.

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "examples/colmap/colmap_model.h"
#include "examples/colmap/colmap_reader.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/bal/bal_test_util.h"
#include "tests/bal/program_test_util.h"
#include "tests/colmap/colmap_test_util.h"

namespace ceres_ext::colmap {
namespace {

namespace fs = std::filesystem;
using bal::Adjust;
using bal::ExpectFailure;
using bal::Outcome;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class ColmapAdjusterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = bal::TempPath("folder");
    fs::remove_all(folder_);
    ASSERT_TRUE(fs::create_directory(folder_));
    Generate("OPENCV", "input");
  }
  ~ColmapAdjusterTest() override { fs::remove_all(folder_); }

  void Generate(const std::string& camera_model, const std::string& name) {
    const Outcome outcome = bal::Execute(
        BAL_GENERATE,
        "--num_cameras=8 --num_points=200 --num_observations=1200 "
        "--outlier_fraction=0 --drift_rotation=0.001 --drift_translation=0.03 "
        "--camera_model=" +
            camera_model + " --output='" + Path(name) + "'");
    ASSERT_EQ(outcome.code, 0) << outcome.err;
  }

  std::string Path(const std::string& name) const {
    return folder_ + "/" + name;
  }

  std::string Paths(const std::string& input, const std::string& output) {
    return "--input_path='" + Path(input) + "' --output_path='" + Path(output) +
           "' ";
  }

  Model Read(const std::string& name) {
    Model model;
    std::string error;
    EXPECT_TRUE(ReadModel(Path(name), &model, &error)) << error;
    return model;
  }

  static double MeanError(const Model& model) {
    double sum = 0.0;
    for (const Point3D& point : model.points) {
      sum += point.error;
    }
    return sum / model.points.size();
  }

  // The number behind `name` at the beginning of a line.
  static double Reported(const Outcome& outcome, const std::string& name) {
    const size_t at = outcome.out.find("\n" + name + " ");
    EXPECT_NE(at, std::string::npos) << outcome.out;
    return std::strtod(outcome.out.c_str() + at + name.size() + 1, nullptr);
  }

  std::string folder_;
};

TEST_F(ColmapAdjusterTest, RefinesAModel) {
  const Outcome ours = Adjust(Paths("input", "output/") + "--eta=0.001");
  ASSERT_EQ(ours.code, 0) << ours.err;
  EXPECT_THAT(
      ours.out,
      StartsWith(Path("input") +
                 ": 8 cameras, 8 images, 200 points, 1200 2D points\n"));
  EXPECT_THAT(ours.out, HasSubstr("Path                 FULL"));
  const Model start = Read("input");
  const Model refined = Read("output");
  // Half a pixel of noise in x and y.
  EXPECT_GT(MeanError(refined), 0.4);
  EXPECT_LT(MeanError(refined), 0.7);
  // The pose of the first image and principal points stay, all else is refined.
  for (int i = 0; i < 8; ++i) {
    for (int j = 0; j < 8; ++j) {
      const bool is_constant = j == 2 || j == 3;
      EXPECT_EQ(start.cameras[i].params[j] == refined.cameras[i].params[j],
                is_constant);
    }
  }
  for (int j = 0; j < 7; ++j) {
    // But for the rounding of the quaternion's norm.
    EXPECT_NEAR(start.images[0].pose[j], refined.images[0].pose[j], 1e-15);
  }
  EXPECT_NE(start.points[0].xyz[0], refined.points[0].xyz[0]);
  EXPECT_EQ(start.points2d, refined.points2d);
  EXPECT_EQ(start.point_index, refined.point_index);

  const Outcome stock =
      Adjust(Paths("input", "stock") + "--eta=0.001 --solver=ceres");
  ASSERT_EQ(stock.code, 0) << stock.err;
  EXPECT_THAT(stock.out, HasSubstr("Path                 CERES"));
  // Both print seven digits.
  EXPECT_EQ(Reported(ours, "Initial"), Reported(stock, "Initial"));
  EXPECT_NEAR(Reported(ours, "Final"),
              Reported(stock, "Final"),
              1e-6 * Reported(stock, "Final"));
}

TEST_F(ColmapAdjusterTest, FlagsSayWhatIsRefined) {
  const Model start = Read("input");
  const struct {
    const char* flags;
    bool focal;
    bool principal;
    bool extra;
  } kCases[] = {
      {"--refine_focal_length=false", false, false, true},
      {"--refine_principal_point --split_pose", true, true, true},
      {"--refine_extra_params=false --loss_function_type=CAUCHY "
       "--loss_function_scale=2",
       true,
       false,
       false},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.flags);
    const Outcome outcome = Adjust(Paths("input", "output") +
                                   "--max_num_iterations=3 "
                                   "--settings=device=host,fallback=refuse " +
                                   c.flags);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_LT(Reported(outcome, "Final"), 0.5 * Reported(outcome, "Initial"));
    const Model refined = Read("output");
    const auto changed = [&](int j) {
      return start.cameras[1].params[j] != refined.cameras[1].params[j];
    };
    EXPECT_EQ(changed(0), c.focal);
    EXPECT_EQ(changed(1), c.focal);
    EXPECT_EQ(changed(2), c.principal);
    EXPECT_EQ(changed(3), c.principal);
    EXPECT_EQ(changed(4), c.extra);
    EXPECT_EQ(changed(7), c.extra);
  }
  // In the place of the input.
  ASSERT_EQ(Adjust(Paths("output", "output")).code, 0);
}

TEST_F(ColmapAdjusterTest, ASignalEndsTheSolveAndTheModelIsWritten) {
  // Thousands of steps along a valley.
  Generate("FULL_OPENCV", "valley");
  const Outcome outcome =
      bal::Execute("timeout",
                   std::string("--preserve-status -s TERM 5 '") +
                       BUNDLE_ADJUSTER + "' " + Paths("valley", "output") +
                       "--max_num_iterations=1000000 --gradient_tolerance=0");
  EXPECT_EQ(outcome.code, 5) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("colmap_adjuster: SIGTERM: "));
  EXPECT_LT(MeanError(Read("output")), 0.7);
}

TEST_F(ColmapAdjusterTest, SaysWhatIsWrong) {
  const std::string paths = Paths("input", "output");
  const struct {
    std::string flags;
    int code;
    std::string line;
  } kCases[] = {
      {"",
       1,
       "--input_path: expected the name of a folder, found none; see --help"},
      {"--input_path=a",
       1,
       "--output_path: expected the name of a folder, found none; see --help"},
      {paths + "--loss_function_type=HUBER",
       1,
       "--loss_function_type: expected one of TRIVIAL, CAUCHY, found 'HUBER'"},
      {paths + "--loss_function_scale=0",
       1,
       "--loss_function_scale: expected a number above 0, found 0.000000"},
      {paths + "--num_threads=0",
       1,
       "--num_threads: expected -1 or a number >= 1, found 0"},
      {paths + "--solver=colmap",
       1,
       "--solver: expected one of ceres_ext, ceres, found 'colmap'"},
      {Paths("none", "output"),
       2,
       Path("none/cameras.txt") +
           ": expected a readable file, found No such file or directory"},
      {Paths("input", "none/output"),
       4,
       Path("none/output") +
           ": expected a file that can be written, found no such folder"},
  };
  for (const auto& c : kCases) {
    ExpectFailure(c.flags, c.code, "colmap_adjuster: " + c.line);
  }
  EXPECT_THAT(Adjust(paths + "--settings=device=tpu").err,
              StartsWith("colmap_adjuster: --settings: "));
  EXPECT_EQ(Adjust(paths + "--max_num_iterations=-1").code, 1);
  EXPECT_FALSE(fs::exists(Path("output")));
}

}  // namespace
}  // namespace ceres_ext::colmap
