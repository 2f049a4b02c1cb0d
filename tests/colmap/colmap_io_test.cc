// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "problem_io/colmap_model.h"
#include "problem_io/colmap_reader.h"
#include "problem_io/colmap_writer.h"
#include "problem_io/safe_file.h"
#include "tests/bal/bal_test_util.h"
#include "tests/colmap/colmap_test_util.h"

namespace ceres_ext::colmap {
namespace {

namespace fs = std::filesystem;
using bal::ReadBytes;
using bal::WriteBytes;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

// Two cameras, three images and two points, as other programs may write them:
// ids of any order, comments, empty lines, line ends of Windows, names with
// spaces, 2D points that see nothing, an image without 2D points.
constexpr const char kCameras[] =
    "# cameras\n"
    "\n"
    "7 SIMPLE_RADIAL 640 480 500.5 320 240 -0.125\r\n"
    "  2\tPINHOLE 800 600 +700 701 4e2 300 \n";
constexpr const char kImages[] =
    "# images\n"
    "30 1 0 0 0 0.5 -1 2e-3 7 first image.jpg\n"
    "10 20 101 30.5 40 -1 50 60 100\n"
    "4 0.5 0.5 -0.5 0.5 1 2 3 2 b.png\n"
    "\n"
    "9 0 2 0 0 1 2 3 2 c.png\r\n"
    "1.5 2.5 100";
constexpr const char kPoints[] =
    "# points\n"
    "101 1 2 3 255 0 17 0.25 30 0\n"
    "100 -1 -2 -3 1 2 3 -1 9 0 30 2\n"
    "5 0 0 0 0 0 0 -1\n";

class ColmapIoTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = bal::TempPath("model");
    fs::remove_all(folder_);
    ASSERT_TRUE(fs::create_directory(folder_));
    WriteModelFiles();
  }
  ~ColmapIoTest() override { fs::remove_all(folder_); }

  void WriteModelFiles() {
    WriteBytes(Path("cameras.txt"), kCameras);
    WriteBytes(Path("images.txt"), kImages);
    WriteBytes(Path("points3D.txt"), kPoints);
  }

  std::string Path(const std::string& name) const {
    return folder_ + "/" + name;
  }

  Model Read(const std::string& folder) {
    Model model;
    std::string error;
    EXPECT_TRUE(ReadModel(folder, &model, &error)) << error;
    return model;
  }

  std::string ErrorOfReading() {
    Model model;
    std::string error;
    EXPECT_FALSE(ReadModel(folder_, &model, &error));
    EXPECT_TRUE(model.cameras.empty() && model.images.empty() &&
                model.points.empty() && model.points2d.empty());
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
    return error;
  }

  std::string ErrorOfWriting(const std::string& folder, const Model& model) {
    std::string error;
    EXPECT_FALSE(WriteModel(folder, model, &error));
    return error;
  }

  std::vector<std::string> Files(const std::string& folder) {
    std::vector<std::string> names;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
      names.push_back(entry.path().filename().string());
    }
    return names;
  }

  std::string folder_;
};

TEST_F(ColmapIoTest, ReadsWhatIsThere) {
  const Model model = Read(folder_);
  ASSERT_EQ(model.cameras.size(), 2u);
  EXPECT_EQ(model.cameras[0].id, 7u);
  EXPECT_STREQ(model.cameras[0].model->name, "SIMPLE_RADIAL");
  EXPECT_EQ(model.cameras[0].width, 640);
  EXPECT_EQ(model.cameras[0].height, 480);
  EXPECT_EQ(model.cameras[0].params[3], -0.125);
  EXPECT_EQ(model.cameras[1].id, 2u);
  EXPECT_EQ(model.cameras[1].params[0], 700.0);
  EXPECT_EQ(model.cameras[1].params[2], 400.0);
  ASSERT_EQ(model.images.size(), 3u);
  EXPECT_EQ(model.images[0].id, 30u);
  EXPECT_EQ(model.images[0].camera, 0);
  EXPECT_EQ(model.images[0].name, "first image.jpg");
  EXPECT_THAT(model.images[0].pose, ElementsAre(0, 0, 0, 1, 0.5, -1, 2e-3));
  EXPECT_EQ(model.images[1].points2d_begin, 3);
  EXPECT_EQ(model.images[1].points2d_end, 3);
  EXPECT_THAT(model.images[1].pose, ElementsAre(0.5, -0.5, 0.5, 0.5, 1, 2, 3));
  EXPECT_EQ(model.images[2].name, "c.png");
  EXPECT_EQ(model.images[2].camera, 1);
  EXPECT_THAT(model.images[2].pose, ElementsAre(2, 0, 0, 0, 1, 2, 3));
  EXPECT_THAT(model.points2d, ElementsAre(10, 20, 30.5, 40, 50, 60, 1.5, 2.5));
  EXPECT_THAT(model.point_index, ElementsAre(0, -1, 1, 1));
  ASSERT_EQ(model.points.size(), 3u);
  EXPECT_EQ(model.points[0].id, 101);
  EXPECT_THAT(model.points[0].xyz, ElementsAre(1, 2, 3));
  EXPECT_THAT(model.points[0].color, ElementsAre(255, 0, 17));
  EXPECT_EQ(model.points[0].error, 0.25);
  EXPECT_EQ(model.points[1].track_begin, 1);
  EXPECT_EQ(model.points[1].track_end, 3);
  EXPECT_EQ(model.track_elements[1].image, 2);
  EXPECT_EQ(model.track_elements[1].point2d, 0);
  EXPECT_EQ(model.track_elements[2].image, 0);
  EXPECT_EQ(model.track_elements[2].point2d, 2);
  EXPECT_EQ(model.points[2].id, 5);
  EXPECT_EQ(model.points[2].track_begin, model.points[2].track_end);
}

TEST_F(ColmapIoTest, WritesWhatItReads) {
  const Model model = Read(folder_);
  const std::string copy = Path("copy");
  std::string error;
  ASSERT_TRUE(WriteModel(copy, model, &error)) << error;
  EXPECT_THAT(
      Files(copy),
      UnorderedElementsAre("cameras.txt", "images.txt", "points3D.txt"));
  ExpectSame(Read(copy), model);
  // Single spaces, which COLMAP's own reader needs.
  EXPECT_EQ(ReadBytes(copy + "/cameras.txt"),
            "# CAMERA_ID MODEL WIDTH HEIGHT PARAMS[]\n"
            "7 SIMPLE_RADIAL 640 480 500.5 320 240 -0.125\n"
            "2 PINHOLE 800 600 700 701 400 300\n");
  EXPECT_EQ(ReadBytes(copy + "/images.txt"),
            "# IMAGE_ID QW QX QY QZ TX TY TZ CAMERA_ID NAME\n"
            "# POINTS2D[] as X Y POINT3D_ID\n"
            "30 1 0 0 0 0.5 -1 0.002 7 first image.jpg\n"
            "10 20 101 30.5 40 -1 50 60 100\n"
            "4 0.5 0.5 -0.5 0.5 1 2 3 2 b.png\n"
            "\n"
            "9 0 2 0 0 1 2 3 2 c.png\n"
            "1.5 2.5 100\n");
  EXPECT_EQ(ReadBytes(copy + "/points3D.txt"),
            "# POINT3D_ID X Y Z R G B ERROR TRACK[] as IMAGE_ID POINT2D_IDX\n"
            "101 1 2 3 255 0 17 0.25 30 0\n"
            "100 -1 -2 -3 1 2 3 -1 9 0 30 2\n"
            "5 0 0 0 0 0 0 -1\n");
  // Also over existing files.
  ASSERT_TRUE(WriteModel(copy, model, &error)) << error;
  ExpectSame(Read(copy), model);
}

TEST_F(ColmapIoTest, AllBitsAndLongLinesSurvive) {
  bal::SyntheticOptions options = bal::OptionsOfSize(3, 9000, 20000);
  const bal::SyntheticProblem scene = MakeScene(options);
  const Model model = MakeModel(scene, "FULL_OPENCV", 2, VALUES_OF_TRUTH);
  std::string error;
  ASSERT_TRUE(WriteModel(folder_, model, &error)) << error;
  // Longer than what is read at a time.
  EXPECT_GT(fs::file_size(Path("images.txt")), 3 * (1 << 18));
  ExpectSame(Read(folder_), model);
}

TEST_F(ColmapIoTest, SaysWhatIsWrongAndWhere) {
  const struct {
    const char* file;
    // The first occurrence of `from` becomes `to`.
    const char* from;
    const char* to;
    const char* error;
  } kCases[] = {
      {"cameras.txt",
       "7 SIMPLE",
       "x SIMPLE",
       "3: expected CAMERA_ID, an integer from 0 to 4294967294, found 'x'"},
      {"cameras.txt",
       "7 SIMPLE",
       "4294967295 SIMPLE",
       "3: expected CAMERA_ID, an integer from 0 to 4294967294, found "
       "'4294967295'"},
      {"cameras.txt",
       "PINHOLE",
       "EQUIRECTANGULAR",
       "4: expected MODEL, one of SIMPLE_PINHOLE, PINHOLE, SIMPLE_RADIAL, "
       "RADIAL, OPENCV, OPENCV_FISHEYE, FULL_OPENCV, FOV, "
       "SIMPLE_RADIAL_FISHEYE, RADIAL_FISHEYE, THIN_PRISM_FISHEYE, "
       "RAD_TAN_THIN_PRISM_FISHEYE, SIMPLE_DIVISION, DIVISION, "
       "SIMPLE_FISHEYE, FISHEYE, EUCM, found 'EQUIRECTANGULAR'"},
      {"cameras.txt",
       "2\t",
       "7 ",
       "4: expected a CAMERA_ID of its own, found 7 again"},
      {"cameras.txt",
       "640",
       "0",
       "3: expected WIDTH, an integer from 1 on, found '0'"},
      {"cameras.txt",
       "480",
       "4.5",
       "3: expected HEIGHT, an integer from 1 on, found '4.5'"},
      {"cameras.txt",
       " -0.125",
       "",
       "3: expected 4 finite PARAMS for SIMPLE_RADIAL, found the end of the "
       "line"},
      {"cameras.txt",
       "-0.125",
       "nan",
       "3: expected 4 finite PARAMS for SIMPLE_RADIAL, found 'nan'"},
      {"cameras.txt",
       "-0.125",
       "-0.125 0",
       "3: expected 4 finite PARAMS for SIMPLE_RADIAL, found '0'"},
      {"images.txt",
       "30 1",
       "-30 1",
       "2: expected IMAGE_ID, an integer from 0 to 4294967294, found '-30'"},
      {"images.txt",
       "4 0.5",
       "30 0.5",
       "4: expected an IMAGE_ID of its own, found 30 again"},
      {"images.txt",
       "2e-3",
       "1e999",
       "2: expected QW QX QY QZ TX TY TZ, seven finite numbers, found "
       "'1e999'"},
      {"images.txt",
       "30 1 0",
       "30 0 0",
       "2: expected QW QX QY QZ with a norm, about 1, found one of 0 or "
       "infinity"},
      {"images.txt",
       "7 first",
       "8 first",
       "2: expected a CAMERA_ID of cameras.txt, found 8"},
      {"images.txt",
       "7 first",
       "seven first",
       "2: expected CAMERA_ID, an integer, found 'seven'"},
      {"images.txt",
       "10 20",
       "inf 20",
       "3: expected X of a 2D point, a finite number, found 'inf'"},
      {"images.txt",
       "30.5 40",
       "30.5 4O",
       "3: expected Y of a 2D point, a finite number, found '4O'"},
      {"images.txt",
       "60 100",
       "60",
       "3: expected POINT3D_ID of a 2D point, an integer from -1 on, found "
       "the end of the line"},
      {"images.txt",
       "40 -1",
       "40 5",
       ": points3D.txt: expected 2D point 1 of image 30 in the track of "
       "point 5, found it in none"},
      {"points3D.txt",
       "101 1",
       "-1 1",
       "2: expected POINT3D_ID, an integer from 0 on, found '-1'"},
      {"points3D.txt",
       "100 -1",
       "101 -1",
       "3: expected a POINT3D_ID of its own, found 101 again"},
      {"points3D.txt",
       "-2 -3",
       "-2 -x",
       "3: expected X Y Z, three finite numbers, found '-x'"},
      {"points3D.txt",
       "255",
       "256",
       "2: expected R G B, three integers from 0 to 255, found '256'"},
      {"points3D.txt",
       "0.25",
       "\x01",
       "2: expected ERROR, a finite number, found '\\x01'"},
      {"points3D.txt",
       "30 0",
       "31 0",
       "2: expected an IMAGE_ID of images.txt, found 31"},
      {"points3D.txt",
       "30 0",
       "30",
       "2: expected POINT2D_IDX of a track, an integer from 0 on, found the "
       "end of the line"},
      {"points3D.txt",
       "30 0",
       "30 1",
       "2: expected IMAGE_ID POINT2D_IDX of a 2D point that images.txt gives "
       "to this point, found 30 1"},
      {"points3D.txt",
       "30 0",
       "30 3",
       "2: expected IMAGE_ID POINT2D_IDX of a 2D point that images.txt gives "
       "to this point, found 30 3"},
      {"points3D.txt",
       "30 0",
       "30 0 30 0",
       "2: expected each 2D point once, found 30 0 again"},
      {"points3D.txt",
       "9 0 30 2",
       "9 0",
       ": expected 2D point 2 of image 30 in the track of point 100, found it "
       "in none"},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(std::string(c.file) + " " + c.to);
    WriteModelFiles();
    std::string text = ReadBytes(Path(c.file));
    const size_t at = text.find(c.from);
    ASSERT_NE(at, std::string::npos);
    WriteBytes(Path(c.file),
               text.replace(at, std::string(c.from).size(), c.to));
    const std::string error = c.error;
    const std::string expected = error.rfind(": points3D.txt", 0) == 0
                                     ? Path(error.substr(2))
                                 : error[0] == ':' ? Path(c.file) + error
                                                   : Path(c.file) + ":" + error;
    EXPECT_EQ(ErrorOfReading(), expected);
  }
}

TEST_F(ColmapIoTest, FilesThatAreNotThere) {
  for (const char* name : {"cameras.txt", "images.txt", "points3D.txt"}) {
    WriteModelFiles();
    fs::remove(Path(name));
    EXPECT_EQ(ErrorOfReading(),
              Path(name) +
                  ": expected a readable file, found No such file or "
                  "directory");
  }
}

// Rigs and frames of kCameras and kImages.
constexpr const char kRigs[] =
    "# rigs\n"
    "3 1 CAMERA 7\n"
    "4 0\n"
    "1 1 CAMERA 2\n";
constexpr const char kFrames[] =
    "# frames\n"
    "90 1 2 0 0 0 -1 -2 -3 1 CAMERA 2 9\n"
    "20 3 0.5 0.5 0.5 0.5 4 5 6 1 CAMERA 7 30\n"
    "40 1 0.5 0.5 -0.5 0.5 1 2 3 1 CAMERA 2 4\n";

TEST_F(ColmapIoTest, RigsOfOneSensorAreKept) {
  WriteBytes(Path("rigs.txt"), kRigs);
  WriteBytes(Path("frames.txt"), kFrames);
  Model model = Read(folder_);
  ASSERT_EQ(model.rigs.size(), 3u);
  EXPECT_EQ(model.rigs[0].id, 3u);
  EXPECT_EQ(model.rigs[0].camera, 0);
  EXPECT_EQ(model.rigs[1].camera, -1);
  ASSERT_EQ(model.frames.size(), 3u);
  EXPECT_EQ(model.frames[0].id, 90u);
  EXPECT_EQ(model.frames[0].rig, 2);
  EXPECT_THAT(model.frames[0].images, ElementsAre(2));
  EXPECT_EQ(model.images[2].frame, 0);
  EXPECT_EQ(model.images[2].sensor, -1);
  // The poses of frames are those that count.
  EXPECT_THAT(model.images[0].pose, ElementsAre(0.5, 0.5, 0.5, 0.5, 4, 5, 6));
  EXPECT_THAT(model.images[2].pose, ElementsAre(0, 0, 0, 2, -1, -2, -3));
  model.images[2].pose[6] = 7.0;
  for (const ModelFormat format : {MODEL_TEXT, MODEL_BINARY}) {
    model.format = format;
    const std::string copy = Path(std::string("copy") + Suffix(format));
    std::string error;
    for (int i = 0; i < 2; ++i) {  // into its own place too
      ASSERT_TRUE(WriteModel(copy, model, &error)) << error;
      EXPECT_EQ(Files(copy).size(), 5u);
      ExpectSame(Read(copy), model);
    }
  }
  EXPECT_EQ(
      ReadBytes(Path("copy.txt/rigs.txt")),
      "# RIG_ID NUM_SENSORS SENSOR_TYPE SENSOR_ID\n"
      "# and for each other sensor: SENSOR_TYPE SENSOR_ID HAS_POSE [QW QX "
      "QY QZ TX TY TZ]\n"
      "3 1 CAMERA 7\n"
      "4 0\n"
      "1 1 CAMERA 2\n");
  EXPECT_EQ(ReadBytes(Path("copy.txt/frames.txt")),
            "# FRAME_ID RIG_ID QW QX QY QZ TX TY TZ NUM_DATA_IDS "
            "DATA_IDS[] as SENSOR_TYPE SENSOR_ID DATA_ID\n"
            "90 1 2 0 0 0 -1 -2 7 1 CAMERA 2 9\n"
            "20 3 0.5 0.5 0.5 0.5 4 5 6 1 CAMERA 7 30\n"
            "40 1 0.5 0.5 -0.5 0.5 1 2 3 1 CAMERA 2 4\n");
  // None is as good as no file.
  WriteBytes(Path("rigs.txt"), "# none\n");
  WriteBytes(Path("frames.txt"), "");
  EXPECT_THAT(Read(folder_).images[0].pose,
              ElementsAre(0, 0, 0, 1, 0.5, -1, 2e-3));
}

TEST_F(ColmapIoTest, RigsOfSeveralSensorsAreKept) {
  // Camera 7 stands 10 ahead of camera 2 and looks along its x axis. Frame 90
  // has both, frame 40 camera 7 alone, of which image 4 is not.
  std::string images = kImages;
  images.replace(images.find("3 2 b.png"), 9, "3 7 b.png");
  WriteBytes(Path("images.txt"), images);
  const std::string rigs =
      "1 2 CAMERA 2 CAMERA 7 1 0.5 -0.5 -0.5 -0.5 1 2 3\n"
      "3 3 CAMERA 7 CAMERA 2 0 CAMERA 8 1 1 0 0 0 4 5 6\n";
  WriteBytes(Path("cameras.txt"),
             std::string(kCameras) + "8 PINHOLE 4 3 1 1 2 2\n");
  const std::string frames =
      "90 1 1 0 0 0 -1 -2 -3 2 CAMERA 2 9 CAMERA 7 30\n"
      "40 1 2 0 0 0 10 20 30 1 CAMERA 7 4\n";
  WriteBytes(Path("rigs.txt"), rigs);
  WriteBytes(Path("frames.txt"), frames);
  Model model = Read(folder_);
  ASSERT_EQ(model.rigs.size(), 2u);
  ASSERT_EQ(model.rigs[0].sensors.size(), 1u);
  EXPECT_EQ(model.rigs[0].sensors[0].camera, 0);
  EXPECT_TRUE(model.rigs[0].sensors[0].has_pose);
  EXPECT_THAT(model.rigs[0].sensors[0].pose,
              ElementsAre(-0.5, -0.5, -0.5, 0.5, 1, 2, 3));
  ASSERT_EQ(model.rigs[1].sensors.size(), 2u);
  EXPECT_FALSE(model.rigs[1].sensors[0].has_pose);
  EXPECT_EQ(model.rigs[1].sensors[1].camera, 2);
  ASSERT_EQ(model.frames.size(), 2u);
  EXPECT_THAT(model.frames[0].images, ElementsAre(2, 0));
  EXPECT_EQ(model.images[2].sensor, -1);
  EXPECT_EQ(model.images[0].sensor, 0);
  EXPECT_EQ(model.images[1].frame, 1);
  EXPECT_EQ(FramePose(&model, 0), model.images[2].pose);
  EXPECT_EQ(FramePose(&model, 1), model.frames[1].pose);
  EXPECT_EQ(SensorPose(&model, model.images[1]), model.rigs[0].sensors[0].pose);
  // The quaternion (1, -1, -1, -1) / 2 takes (x, y, z) to (y, z, x).
  EXPECT_THAT(model.images[2].pose, ElementsAre(0, 0, 0, 1, -1, -2, -3));
  EXPECT_THAT(model.images[0].pose,
              ElementsAre(-0.5, -0.5, -0.5, 0.5, -1, -1, 2));
  EXPECT_THAT(model.images[1].pose,
              ElementsAre(-0.5, -0.5, -0.5, 0.5, 21, 32, 13));
  // The poses of the images follow from what a solve changes.
  FramePose(&model, 1)[6] = 31.0;
  SensorPose(&model, model.images[0])[4] = 5.0;
  SetPosesOfSensors(&model);
  EXPECT_EQ(model.images[0].pose[4], 3.0);
  EXPECT_EQ(model.images[1].pose[4], 25.0);
  EXPECT_EQ(model.images[1].pose[5], 33.0);
  for (const ModelFormat format : {MODEL_TEXT, MODEL_BINARY}) {
    model.format = format;
    const std::string copy = Path(std::string("copy") + Suffix(format));
    std::string error;
    ASSERT_TRUE(WriteModel(copy, model, &error)) << error;
    ExpectSame(Read(copy), model);
  }
  // One line of the rigs or of the frames that does not fit the other file.
  const struct {
    const char* rig;
    const char* frame;
    const char* error;
  } kCases[] = {
      {"1 2 CAMERA 2 CAMERA 7 0\n",
       "90 1 1 0 0 0 1 2 3 2 CAMERA 2 9 CAMERA 7 30\n",
       "1: expected a SENSOR_ID with a pose in rig 1, found 7"},
      {"1 3 CAMERA 2 CAMERA 7 0 CAMERA 8 0\n",
       "90 1 1 0 0 0 1 2 3 2 CAMERA 2 9 CAMERA 2 9\n",
       "1: expected each image in one frame, found 9 again"},
      {"1 2 CAMERA 2 CAMERA 7 1 1 0 0 0 0 0 0\n",
       "90 1 1 0 0 0 1 2 3 2 CAMERA 7 30 CAMERA 7 4\n",
       "1: expected each SENSOR_ID of a frame once, found 7 again"},
  };
  for (const auto& c : kCases) {
    WriteBytes(Path("rigs.txt"), c.rig);
    WriteBytes(Path("frames.txt"), c.frame);
    EXPECT_EQ(ErrorOfReading(), Path("frames.txt") + ":" + c.error);
  }
}

TEST_F(ColmapIoTest, SaysWhatIsWrongWithRigs) {
  const struct {
    const char* file;
    const char* from;
    const char* to;
    const char* error;
  } kCases[] = {
      {"rigs",
       "1 CAMERA 7",
       "2 CAMERA 7 CAMERA 7 0",
       ":2: expected each SENSOR_ID of a rig once, found 7 again"},
      {"rigs",
       "1 CAMERA 7",
       "2 CAMERA 7 CAMERA 2 2",
       ":2: expected HAS_POSE, 0 or 1, found '2'"},
      {"rigs",
       "1 CAMERA 7",
       "2 CAMERA 7 CAMERA 2 1 0 0 0 0 1 2 3",
       ":2: expected QW QX QY QZ with a norm, about 1, found one of 0 or "
       "infinity"},
      {"rigs",
       "1 CAMERA 7",
       "2 CAMERA 7",
       ":2: expected SENSOR_TYPE, CAMERA (others are not supported), found "
       "''"},
      {"rigs",
       "CAMERA 7",
       "IMU 7",
       ":2: expected SENSOR_TYPE, CAMERA (others are not supported), found "
       "'IMU'"},
      {"rigs",
       "CAMERA 7",
       "CAMERA 8",
       ":2: expected a SENSOR_ID of cameras.txt, found 8"},
      {"rigs", "4 0", "3 0", ":3: expected a RIG_ID of its own, found 3 again"},
      {"rigs",
       "4 0",
       "4 0 1",
       ":3: expected no more fields of this rig, found '1'"},
      {"frames",
       "90 1",
       "20 1",
       ":3: expected a FRAME_ID of its own, found 20 again"},
      {"frames", "90 1", "90 9", ":2: expected a RIG_ID of rigs.txt, found 9"},
      {"frames",
       "90 1 2",
       "90 1 0",
       ":2: expected QW QX QY QZ with a norm, about 1, found one of 0 or "
       "infinity"},
      {"frames",
       "1 CAMERA 2 9",
       "2 CAMERA 2 9 CAMERA 2 4",
       ":2: expected NUM_DATA_IDS, an integer from 1 to the number of sensors "
       "of the rig, found '2'"},
      {"frames",
       "CAMERA 2 9",
       "CAMERA 7 9",
       ":2: expected a SENSOR_ID of rig 1, found 7"},
      {"frames", "90 1", "90 4", ":2: expected a SENSOR_ID of rig 4, found 2"},
      {"frames",
       "CAMERA 2 9",
       "CAMERA 2 8",
       ":2: expected a DATA_ID of images.txt, found 8"},
      {"frames",
       "CAMERA 2 9",
       "CAMERA 2 -9",
       ":2: expected a DATA_ID of images.txt, found -9"},
      {"frames",
       "CAMERA 2 9",
       "CAMERA 2 4294967305",
       ":2: expected a DATA_ID of images.txt, found 4294967305"},
      {"frames",
       "CAMERA 2 9",
       "CAMERA 2 30",
       ":2: expected a DATA_ID of an image of camera 2, found 30"},
      {"frames",
       "CAMERA 2 9",
       "CAMERA 2 9 0",
       ":2: expected no more fields of this frame, found '0'"},
      {"frames",
       "CAMERA 2 4",
       "CAMERA 2 9",
       ":4: expected each image in one frame, found 9 again"},
      {"frames",
       "40 1 0.5 0.5 -0.5 0.5 1 2 3 1 CAMERA 2 4\n",
       "",
       ": expected a frame of image 4, found none"},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(std::string(c.file) + " " + c.to);
    for (const auto& [file, contents] :
         {std::pair("rigs", std::string(kRigs)),
          std::pair("frames", std::string(kFrames))}) {
      std::string text = contents;
      if (std::string(file) == c.file) {
        const size_t at = text.find(c.from);
        ASSERT_NE(at, std::string::npos);
        text.replace(at, std::string(c.from).size(), c.to);
      }
      WriteBytes(Path(file + std::string(".txt")), text);
    }
    EXPECT_EQ(ErrorOfReading(), Path(c.file) + ".txt" + c.error);
  }
  for (const char* file : {"rigs.txt", "frames.txt"}) {
    WriteBytes(Path("rigs.txt"), kRigs);
    WriteBytes(Path("frames.txt"), kFrames);
    fs::remove(Path(file));
    EXPECT_EQ(ErrorOfReading(),
              Path(file) +
                  ": expected a readable file, found No such file or "
                  "directory");
  }
}

TEST_F(ColmapIoTest, FoldersThatCannotBeWritten) {
  const Model model = Read(folder_);
  EXPECT_EQ(ErrorOfWriting(Path("none/folder"), model),
            Path("none/folder") +
                ": expected a file that can be written, found no such folder");
  EXPECT_EQ(ErrorOfWriting(Path("images.txt"), model),
            Path("images.txt") + ": expected a folder, found a file");
  for (const char* name : {"cameras.bin", "rigs.txt", "frames.txt"}) {
    WriteBytes(Path(name), "");
    EXPECT_EQ(ErrorOfWriting(folder_, model),
              folder_ +
                  ": expected a folder without other files of a model, "
                  "found " +
                  name);
    fs::remove(Path(name));
  }
  fs::remove(Path("points3D.txt"));
  fs::create_directory(Path("points3D.txt"));
  EXPECT_EQ(ErrorOfWriting(folder_, model),
            Path("points3D.txt") +
                ": expected a file that can be written, found a directory");
  EXPECT_EQ(ReadBytes(Path("images.txt")), kImages);
}

// The disk fills up with the last of the three files: none replaces its target.
TEST_F(ColmapIoTest, NoFileTakesItsPlaceBeforeAllAreThere) {
  if (access("/dev/full", W_OK) != 0) {
    GTEST_SKIP() << "skipped: no /dev/full";
  }
  const Model model = Read(folder_);
  fs::remove(Path("points3D.txt"));
  fs::create_symlink("/dev/full", Path("points3D.txt"));
  EXPECT_THAT(ErrorOfWriting(folder_, model),
              HasSubstr(Path("points3D.txt") +
                        ": expected a file that can be written, found No "
                        "space left"));
  EXPECT_EQ(ReadBytes(Path("cameras.txt")), kCameras);
  EXPECT_EQ(ReadBytes(Path("images.txt")), kImages);
  EXPECT_THAT(
      Files(folder_),
      UnorderedElementsAre("cameras.txt", "images.txt", "points3D.txt"));
}

// The action of a signal handler while several files are written.
TEST_F(ColmapIoTest, TemporaryFilesOfSeveralFilesAreRemoved) {
  std::vector<std::unique_ptr<bal::SafeFile>> files;
  std::string error;
  for (const char* name : {"a", "b", "c", "e", "cameras.txt"}) {
    files.push_back(bal::SafeFile::Create(Path(name), &error));
    ASSERT_NE(files.back(), nullptr) << error;
  }
  EXPECT_EQ(Files(folder_).size(), 3u + 5u);
  EXPECT_EQ(bal::SafeFile::Create(Path("d"), &error), nullptr);
  EXPECT_EQ(error, "Too many open files");
  // A file that is already in its place is not one of them.
  ASSERT_TRUE(files[1]->Finish(&error)) << error;
  ASSERT_TRUE(files[1]->Commit(&error)) << error;
  bal::RemoveTemporaryFiles();
  EXPECT_THAT(
      Files(folder_),
      UnorderedElementsAre("b", "cameras.txt", "images.txt", "points3D.txt"));
  files.clear();
  EXPECT_NE(bal::SafeFile::Create(Path("d"), &error), nullptr);
  EXPECT_EQ(ReadBytes(Path("cameras.txt")), kCameras);
}

TEST_F(ColmapIoTest, AFolderThatCannotBeFilledGoesAway) {
  const Model model = Read(folder_);
  struct rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  const struct rlimit small = {64, limit.rlim_max};
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string error = ErrorOfWriting(Path("new"), model);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  signal(SIGXFSZ, handler);
  EXPECT_EQ(error,
            Path("new/cameras.txt") +
                ": expected a file that can be written, found File too large");
  EXPECT_FALSE(fs::exists(Path("new")));
}

}  // namespace
}  // namespace ceres_ext::colmap
