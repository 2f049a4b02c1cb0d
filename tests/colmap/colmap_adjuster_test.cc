// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The program colmap_adjuster as a user runs it.

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "ceres_ext/photogrammetry.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "problem_io/colmap_model.h"
#include "problem_io/colmap_reader.h"
#include "problem_io/colmap_writer.h"
#include "tests/bal/bal_test_util.h"
#include "tests/bal/child_test_util.h"
#include "tests/bal/program_test_util.h"
#include "tests/colmap/colmap_test_util.h"

namespace ceres_ext::colmap {
namespace {

namespace fs = std::filesystem;
using bal::Adjust;
using bal::ExpectFailure;
using bal::Outcome;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
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

  // solve_page.py makes the page of this report.
  void ExpectOnPage(const std::string& report, const std::string& text) {
    const Outcome outcome = bal::Execute(
        "python3",
        "'" CERES_EXT_TEST_SOURCE_DIR "/examples/bal/solve_page.py' '" +
            Path(report) + "' '" + Path("page.html") + "'");
    if (outcome.code == 127) {
      GTEST_SKIP() << "skipped: no python3";
    }
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(bal::ReadBytes(Path("page.html")), HasSubstr(text));
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
                 ": 8 cameras, 8 images, 200 points, 1200 2D points, as text, "
                 "read in "));
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
    EXPECT_EQ(start.images[0].pose[j], refined.images[0].pose[j]);
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
                                   "--device=host --fallback=refuse " +
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
  // The output replaces the input.
  ASSERT_EQ(Adjust(Paths("output", "output")).code, 0);
}

// The same bits from and to either form; binary files stay binary.
TEST_F(ColmapAdjusterTest, TakesAndWritesBothForms) {
  const std::string flags = "--max_num_iterations=3";
  ASSERT_EQ(Adjust(Paths("input", "text") + flags).code, 0);
  ASSERT_EQ(Adjust(Paths("input", "mixed") + "--output_type=bin " + flags).code,
            0);
  Model input = Read("input");
  input.format = MODEL_BINARY;
  for (int i = 0; i < 8; ++i) {
    input.rigs.push_back({10u + i, i});
    input.frames.push_back({20u + i, i, {i}});
  }
  std::string error;
  ASSERT_TRUE(WriteModel(Path("binary"), input, &error)) << error;
  const Outcome outcome = Adjust(Paths("binary", "binary") + flags);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr(", as binary, read in "));
  Model refined = Read("binary");
  EXPECT_EQ(refined.format, MODEL_BINARY);
  EXPECT_EQ(refined.rigs.size(), 8u);
  EXPECT_EQ(refined.frames[7].id, 27u);
  refined.rigs.clear();
  refined.frames.clear();
  ExpectSame(refined, Read("text"));
  ExpectSame(refined, Read("mixed"));
  EXPECT_EQ(Read("mixed").format, MODEL_BINARY);
}

// Data that is not refined keeps its bits: an image and a point without
// observations, including quaternions of a length other than 1.
TEST_F(ColmapAdjusterTest, WhatIsNotSeenStays) {
  Model model = Read("input");
  Image& unseen = model.images[3];
  for (double& value : unseen.pose) {
    value *= 3.0;
  }
  std::fill(model.point_index.begin() + unseen.points2d_begin,
            model.point_index.begin() + unseen.points2d_end,
            -1);
  SetTracks(&model);
  model.points.push_back({12345, {1, 2, 3}, 0.5, {4, 5, 6}, 0, 0});
  std::string error;
  ASSERT_TRUE(WriteModel(Path("unseen"), model, &error)) << error;
  ASSERT_EQ(Adjust(Paths("unseen", "output") + "--max_num_iterations=3").code,
            0);
  const Model refined = Read("output");
  for (int j = 0; j < 7; ++j) {
    EXPECT_EQ(refined.images[3].pose[j], unseen.pose[j]);
  }
  for (int j = 0; j < 8; ++j) {
    EXPECT_EQ(refined.cameras[3].params[j], model.cameras[3].params[j]);
  }
  const Point3D& point = refined.points.back();
  EXPECT_EQ(point.id, 12345);
  EXPECT_THAT(point.xyz, ::testing::ElementsAre(1, 2, 3));
  EXPECT_THAT(point.color, ::testing::ElementsAre(4, 5, 6));
  EXPECT_EQ(refined.points2d, model.points2d);
  EXPECT_EQ(refined.point_index, model.point_index);
}

// A model in coordinates as of ECEF is refined about its centre and ends where
// the same model near zero does.
TEST_F(ColmapAdjusterTest, FarModelsEndWhereNearOnesDo) {
  const double origin[3] = {3.9e6, -4.4e6, 2.5e6};
  const double back[3] = {-3.9e6, 4.4e6, -2.5e6};
  Model far = Read("input");
  for (Point3D& point : far.points) {
    for (int k = 0; k < 3; ++k) {
      point.xyz[k] += origin[k];
    }
  }
  for (Image& image : far.images) {
    MoveOrigin<EigenQuaternion>(back, image.pose);
  }
  // A point that no image sees.
  far.points.push_back({12345, {1.25, -2.1, 3.7}, 0.5, {4, 5, 6}, 0, 0});
  std::string error;
  ASSERT_TRUE(WriteModel(Path("far"), far, &error)) << error;
  // A model that converges in a few exact steps.
  const std::string flags =
      "--linear_solver=dense_schur --refine_focal_length=false "
      "--refine_extra_params=false --max_num_iterations=20 ";
  const Outcome near = Adjust(Paths("input", "output") + flags);
  ASSERT_EQ(near.code, 0) << near.err;
  EXPECT_THAT(near.out, Not(HasSubstr("(--origin)")));
  const double cost = Reported(near, "Final");
  const double mean_error = MeanError(Read("output"));
  for (const std::string poses : {"", "--split_pose "}) {
    SCOPED_TRACE(poses);
    const Outcome outcome = Adjust(Paths("far", "output_far") + flags + poses);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr(": solved with the origin at "));
    // Six digits are printed.
    EXPECT_NEAR(Reported(outcome, "Final"), cost, 2e-6 * cost);
    Model refined = Read("output_far");
    // The image that the gauge fixes, and data without observations.
    for (int j = 4; j < 7; ++j) {
      EXPECT_EQ(refined.images[0].pose[j], far.images[0].pose[j]);
    }
    EXPECT_THAT(refined.points.back().xyz,
                ::testing::ElementsAre(1.25, -2.1, 3.7));
    // All points are far, and have moved.
    EXPECT_NE(refined.points[0].xyz[0], far.points[0].xyz[0]);
    EXPECT_NEAR(refined.points[0].xyz[0], far.points[0].xyz[0], 100.0);
    // At a minimum residuals change by the root of what the cost changes by.
    refined.points.pop_back();
    EXPECT_NEAR(MeanError(refined), mean_error, 1.5e-3 * mean_error);
  }
  // Any origin near the scene leads there, zero does not.
  EXPECT_NEAR(Reported(Adjust(Paths("far", "output_far") + flags +
                              "--origin=3.9e6,-44e5,2.5e6"),
                       "Final"),
              cost,
              2e-6 * cost);
  const Outcome none =
      Adjust(Paths("far", "output_far") + flags + "--origin=none");
  EXPECT_GT(Reported(none, "Final"), 1.01 * cost);
  EXPECT_THAT(none.out, Not(HasSubstr("(--origin)")));
}

TEST_F(ColmapAdjusterTest, WritesReportAndPly) {
  const Outcome outcome =
      Adjust(Paths("input", "output") +
             "--max_num_iterations=3 --linear_solver=dense_schur "
             "--solver=ceres --report_json='" +
             Path("report.json") + "' --initial_ply='" + Path("initial.ply") +
             "' --final_ply='" + Path("final.ply") + "'");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  ExpectOnPage("report.json", "<h3>Trust-region radius</h3>");
  const auto json =
      nlohmann::ordered_json::parse(bal::ReadBytes(Path("report.json")));
  EXPECT_EQ(json["format"], "ceres_ext.colmap_adjuster.1");
  std::vector<std::string> keys;
  for (const auto& item : json["problem"].items()) {
    keys.push_back(item.key());
  }
  EXPECT_THAT(keys,
              ::testing::ElementsAre("input",
                                     "num_cameras",
                                     "num_images",
                                     "num_points",
                                     "num_observations",
                                     "num_runaway_focal_lengths",
                                     "read_time_in_seconds",
                                     "build_time_in_seconds"));
  EXPECT_EQ(json["problem"]["input"], Path("input"));
  EXPECT_EQ(json["problem"]["num_images"], 8);
  EXPECT_EQ(json["problem"]["num_observations"], 1200);
  EXPECT_EQ(json["problem"]["num_runaway_focal_lengths"], 0);
  EXPECT_EQ(json["flags"]["max_num_iterations"], "3");
  EXPECT_EQ(json["flags"]["linear_solver"], "dense_schur");
  // COLMAP's default, not that of bundle_adjuster.
  EXPECT_EQ(json["flags"]["max_linear_solver_iterations"], "200");
  EXPECT_EQ(json["summary"]["linear_solver_type_used"], "DENSE_SCHUR");
  EXPECT_EQ(json["iterations"].size(), 4u);

  // The first vertex is the centre of the first camera, -R't, which stays.
  const Model input = Read("input");
  const double* pose = input.images[0].pose;
  double q[4];
  double t[3];
  std::copy_n(pose, 4, q);
  std::copy_n(pose + 4, 3, t);
  const double rotation[9] = {1 - 2 * (q[1] * q[1] + q[2] * q[2]),
                              2 * (q[0] * q[1] - q[2] * q[3]),
                              2 * (q[0] * q[2] + q[1] * q[3]),
                              2 * (q[0] * q[1] + q[2] * q[3]),
                              1 - 2 * (q[0] * q[0] + q[2] * q[2]),
                              2 * (q[1] * q[2] - q[0] * q[3]),
                              2 * (q[0] * q[2] - q[1] * q[3]),
                              2 * (q[1] * q[2] + q[0] * q[3]),
                              1 - 2 * (q[0] * q[0] + q[1] * q[1])};
  std::string plys[2];
  for (int i = 0; i < 2; ++i) {
    plys[i] = bal::ReadBytes(Path(i == 0 ? "initial.ply" : "final.ply"));
    EXPECT_THAT(plys[i], HasSubstr("element vertex 208\n"));
    std::istringstream vertices(
        plys[i].substr(plys[i].find("end_header\n") + 11));
    for (int j = 0; j < 3; ++j) {
      double coordinate;
      ASSERT_TRUE(vertices >> coordinate);
      const double expected = -(rotation[j] * t[0] + rotation[3 + j] * t[1] +
                                rotation[6 + j] * t[2]);
      // Eight digits are written.
      const double size = std::abs(t[0]) + std::abs(t[1]) + std::abs(t[2]);
      EXPECT_NEAR(coordinate, expected, 1e-7 * size);
    }
  }
  EXPECT_NE(plys[0], plys[1]);
}

// The outputs agree. Standard deviations do not depend on the form of the poses
// or of the file, and those of cameras not on the origin.
TEST_F(ColmapAdjusterTest, WritesCovariances) {
  const auto table = [&](const std::string& name) {
    std::map<std::pair<std::string, int64_t>, std::vector<double>> rows;
    std::istringstream lines(bal::ReadBytes(Path(name)));
    std::string line;
    while (std::getline(lines, line)) {
      std::istringstream words(line);
      std::string kind;
      int64_t id = 0;
      words >> kind >> id;
      double value = 0.0;
      auto& row = rows[{kind, id}];
      while (words >> value) {
        row.push_back(value);
      }
    }
    return rows;
  };
  const Outcome outcome =
      Adjust(Paths("input", "output") + "--covariance='" + Path("sigmas.txt") +
             "' --report_json='" + Path("report.json") + "' --final_ply='" +
             Path("final.ply") + "'");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("7 free directions"));
  EXPECT_THAT(outcome.out, HasSubstr("Standard deviations of centers: median"));
  const auto expected = table("sigmas.txt");
  const Model model = Read("output");
  EXPECT_EQ(expected.size(), 2 * 8 + 200 + 8u);
  for (const auto& [key, row] : expected) {
    EXPECT_EQ(row.size(),
              key.first == "images"           ? 6u
              : key.first == "cameras_OPENCV" ? 8u
                                              : 3u);
  }
  // Principal points are not refined.
  const auto& camera = expected.at({"cameras_OPENCV", model.cameras[0].id});
  EXPECT_EQ(camera[2], 0.0);
  EXPECT_GT(camera[0], 0.0);

  const auto json =
      nlohmann::ordered_json::parse(bal::ReadBytes(Path("report.json")));
  const auto& of_points = json["covariance"]["standard_deviations"]["points"];
  EXPECT_EQ(of_points["num_blocks"], 200);
  EXPECT_EQ(of_points["worst"].size(), 10u);
  const auto& worst = expected.at({"points", of_points["worst"][0]["id"]});
  EXPECT_EQ(of_points["worst"][0]["largest"],
            *std::max_element(worst.begin(), worst.end()));
  ExpectOnPage("report.json", "<h2>Standard deviations</h2>");
  // An ellipsoid each camera and point.
  EXPECT_THAT(bal::ReadBytes(Path("final.ply")),
              AllOf(HasSubstr("element vertex " +
                              std::to_string(208 + 18 * 208) + "\n"),
                    HasSubstr("element face " + std::to_string(32 * 208))));

  for (const char* const flags :
       {"--origin=10,-20,5", "--split_pose", "--device=host"}) {
    const Outcome other = Adjust(Paths("input", "other") + flags +
                                 " --covariance='" + Path("other.txt") + "'");
    ASSERT_EQ(other.code, 0) << other.err;
    const auto found = table("other.txt");
    ASSERT_EQ(found.size(), expected.size());
    for (const auto& [key, row] : expected) {
      // Inner constraints depend on the origin, but not for intrinsics.
      if (flags[2] == 'o' && key.first != "cameras_OPENCV") {
        continue;
      }
      for (size_t i = 0; i < row.size(); ++i) {
        // Solutions differ by what ends a solve.
        EXPECT_NEAR(found.at(key)[i], row[i], 1e-3 * row[i])
            << flags << ", " << key.first << " " << key.second;
      }
    }
  }

  const Outcome solved =
      Adjust(Paths("input", "output") + "--covariance_gauge=as_solved " +
             "--covariance='" + Path("sigmas.npz") + "'");
  ASSERT_EQ(solved.code, 0) << solved.err;
  EXPECT_THAT(solved.out, HasSubstr("0 free directions"));
  ExpectFailure(Paths("input", "output") + "--covariance_sigmas=0",
                1,
                "colmap_adjuster: --covariance_sigmas: expected a number above "
                "0, found 0");
}

// Positions of cameras in a map's frame, twice as large and far from zero.
TEST_F(ColmapAdjusterTest, PositionsGiveTheFrame) {
  const Model start = Read("input");
  const double far[3] = {512345.6, 5403210.9, 312.4};
  std::ostringstream lines;
  lines.precision(15);
  std::map<std::string, std::vector<double>> given;
  for (const Image& image : start.images) {
    double center[3];
    ProjectionCenter<EigenQuaternion>(image.pose, image.pose + 4, center);
    lines << image.name;
    for (int i = 0; i < 3; ++i) {
      given[image.name].push_back(far[i] + 2.0 * center[i]);
      lines << "," << given[image.name].back();
    }
    lines << (image.id == 4 ? ",0.5,check\n" : ",0.5\n");
  }
  const std::string positions = Path("positions.csv");
  bal::WriteBytes(positions, lines.str());
  const std::string flags = "--positions='" + positions + "' ";
  const Outcome outcome =
      Adjust(Paths("input", "output") + flags + "--covariance='" +
             Path("c.npz") + "' --report_json='" + Path("r.json") + "'");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("solved with the origin at "));
  EXPECT_THAT(outcome.out, HasSubstr("a similarity of scale 2 brought"));
  EXPECT_THAT(outcome.out, HasSubstr("\nRMS of control positions (7): X "));
  EXPECT_THAT(outcome.out, HasSubstr("\nRMS of check positions (1): X "));
  EXPECT_THAT(outcome.out, HasSubstr("0 free directions"));
  const Model refined = Read("output");
  for (const Image& image : refined.images) {
    double center[3];
    ProjectionCenter<EigenQuaternion>(image.pose, image.pose + 4, center);
    for (int i = 0; i < 3; ++i) {
      EXPECT_NEAR(center[i], given[image.name][i], 2.0);
    }
  }
  const auto json = nlohmann::json::parse(bal::ReadBytes(Path("r.json")));
  const auto& survey = json["survey"];
  EXPECT_EQ(json["flags"]["positions"], positions);
  ASSERT_EQ(survey["positions"].size(), 8u);
  EXPECT_EQ(survey["points"].size(), 0u);
  for (const auto& position : survey["positions"]) {
    const bool is_check = position["id"] == start.images[3].name;
    EXPECT_EQ(position["role"], is_check ? "check" : "control");
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(position["sigma"][i], 0.5);
      EXPECT_NEAR(position["adjusted"][i].get<double>(),
                  position["given"][i].get<double>() +
                      position["difference"][i].get<double>(),
                  1e-8);
      EXPECT_GT(position["standard_deviations"][i], 0.0);
      EXPECT_LT(position["standard_deviations"][i], 1.0);
    }
  }
  EXPECT_EQ(survey["rms"]["control_positions"]["count"], 7);
  EXPECT_EQ(survey["rms"]["check_positions"]["count"], 1);
  ExpectOnPage("r.json", "<h2>Survey</h2>");

  // The result is in the frame.
  const Outcome again =
      Adjust(Paths("output", "again") + flags + "--max_num_iterations=0");
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_THAT(again.out, HasSubstr("no similarity was applied"));

  const std::string paths = Paths("input", "other");
  ExpectFailure(paths + "--gcp='" + positions + "'",
                2,
                "colmap_adjuster: --gcp and --gcp_observations: expected both, "
                "found one");
  ExpectFailure(
      paths + flags + "--georeference=maybe",
      1,
      "colmap_adjuster: --georeference: expected one of auto, always, "
      "never, found 'maybe'");
  ExpectFailure(paths + "--positions=/no/such/file",
                2,
                "colmap_adjuster: /no/such/file: expected a readable file, "
                "found No such file or directory");
  const Outcome overwrites =
      Adjust(paths + flags + "--report_json='" + positions + "'");
  EXPECT_EQ(overwrites.code, 1);
  EXPECT_THAT(overwrites.err, HasSubstr("--positions"));
}

// Four control points put a block of a drone into UTM; the fifth tells how
// well.
TEST_F(ColmapAdjusterTest, ADroneBlockGetsToItsMap) {
  std::string folder =
      std::string(CERES_EXT_TEST_SOURCE_DIR) + "/../shared/data/real/uav_gcp_1";
  if (const char* given = std::getenv("CERES_EXT_REAL_DIR")) {
    folder = std::string(given) + "/uav_gcp_1";
  }
  if (!fs::exists(folder)) {
    GTEST_SKIP() << "skipped: no uav_gcp_1 (set CERES_EXT_REAL_DIR to a folder "
                    "that has it)";
  }
  Model model;
  std::string error;
  ASSERT_TRUE(ReadModel(folder + "/local", &model, &error)) << error;
  std::map<std::string, std::string> names;
  for (const Image& image : model.images) {
    names[std::to_string(image.id)] = image.name;
  }
  std::istringstream lines(bal::ReadBytes(folder + "/gcp.txt"));
  std::string points;
  std::string measurements;
  std::string line;
  std::string id;
  while (std::getline(lines, line)) {
    std::istringstream fields(line);
    std::string kind;
    std::string name;
    std::string numbers;
    fields >> kind >> name;
    std::getline(fields, numbers);
    if (kind == "GCP") {
      id = name;
      points +=
          id + numbers + (id == "3" ? " 0.02 0.03 check\n" : " 0.02 0.03\n");
    } else if (kind == "OBS") {
      measurements += id + " " + names.at(name) + numbers + "\n";
    }
  }
  bal::WriteBytes(Path("points.txt"), points);
  bal::WriteBytes(Path("measured.txt"), measurements);
  const Outcome outcome = Adjust(
      "--input_path='" + folder + "/local' --output_path='" + Path("output") +
      "' --gcp='" + Path("points.txt") + "' --gcp_observations='" +
      Path("measured.txt") + "' --max_num_iterations=15 --covariance='" +
      Path("c.npz") + "' --report_json='" + Path("r.json") + "'");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("similarity of scale 1 brought"));
  const auto survey =
      nlohmann::json::parse(bal::ReadBytes(Path("r.json")))["survey"];
  EXPECT_EQ(survey["rms"]["control_points"]["count"], 4);
  EXPECT_LT(survey["rms"]["control_points"]["xyz"], 0.03);
  for (const auto& point : survey["points"]) {
    EXPECT_LT(point["rms_in_pixels"], 1.0);
    for (int i = 0; i < 3; ++i) {
      const double sigma = point["sigma"][i];
      const double of_result = point["standard_deviations"][i];
      EXPECT_LT(of_result, sigma);
      EXPECT_LT(std::abs(point["difference"][i].get<double>()),
                4.0 * std::hypot(sigma, of_result))
          << point["id"];
    }
  }
}

// All flags of the solver are those of bundle_adjuster.
TEST_F(ColmapAdjusterTest, HelpHasAllFlagsInGroups) {
  const Outcome outcome = Adjust("--help");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.out, Not(HasSubstr("Other:")));
  for (const char* flag : {"device",
                           "precision",
                           "preconditioner_blocks",
                           "linear_solver",
                           "num_threads",
                           "report_json"}) {
    EXPECT_THAT(outcome.out, HasSubstr(std::string("\n  --") + flag + " ("));
  }
  EXPECT_THAT(outcome.out,
              HasSubstr("--gradient_tolerance (double, default "
                        "0.0001)"));
}

TEST_F(ColmapAdjusterTest, ASignalEndsTheSolveAndTheModelIsWritten) {
  // Thousands of steps along a valley.
  Generate("FULL_OPENCV", "valley");
  bal::Child child(folder_,
                   BUNDLE_ADJUSTER,
                   {"--input_path=" + Path("valley"),
                    "--output_path=" + Path("output"),
                    "--linear_solver=iterative_schur",
                    "--max_num_iterations=1000000",
                    "--gradient_tolerance=0"});
  child.WaitForOutput("\n  30 ");
  child.Send(SIGTERM);
  EXPECT_TRUE(bal::IsExit(5, child.Wait())) << child.err();
  EXPECT_THAT(child.err(), StartsWith("colmap_adjuster: SIGTERM: "));
  EXPECT_LT(MeanError(Read("output")), 0.7);
}

TEST_F(ColmapAdjusterTest, SaysWhatIsWrong) {
  const std::string paths = Paths("input", "output");
  for (const char* name : {"bal.txt", "bal.npz"}) {
    ASSERT_EQ(bal::Execute(BAL_GENERATE,
                           "--num_cameras=8 --num_points=200 "
                           "--num_observations=1200 --output='" +
                               Path(name) + "'")
                  .code,
              0);
  }
  bal::ExpectRefusals(BUNDLE_ADJUSTER,
                      "colmap_adjuster",
                      {{"folder", folder_}, {"paths", paths}});
  EXPECT_THAT(Adjust(paths + "--device=tpu").err,
              StartsWith("colmap_adjuster: "));
  EXPECT_EQ(Adjust(paths + "--device=tpu").code, 1);
  EXPECT_EQ(Adjust(paths + "--max_num_iterations=-1").code, 1);
  EXPECT_FALSE(fs::exists(Path("output")));
}

}  // namespace
}  // namespace ceres_ext::colmap
