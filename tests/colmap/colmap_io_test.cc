// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Models of COLMAP as text and as binary files.

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "problem_io/colmap_model.h"
#include "problem_io/colmap_reader.h"
#include "problem_io/colmap_writer.h"
#include "problem_io/little_endian.h"
#include "problem_io/safe_file.h"
#include "tests/bal/bal_test_util.h"
#include "tests/bal/refusals.h"
#include "tests/colmap/colmap_test_util.h"

namespace ceres_ext::colmap {
namespace {

namespace fs = std::filesystem;
using bal::FromHex;
using bal::ReadBytes;
using bal::WriteBytes;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;
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

struct ModelFile {
  const char* name;
  std::string binary;
  const char* text;
};

// One model in both forms: the bytes are those that COLMAP 4.2.1 writes, found
// once and spelled field by field; the text is the same to be read.
std::vector<ModelFile> Files() {
  return {
      {"cameras",
       FromHex("01 00 00 00 00 00 00 00 "   // 1 camera
               "07 00 00 00 "               // CAMERA_ID 7
               "02 00 00 00 "               // SIMPLE_RADIAL
               "80 02 00 00 00 00 00 00 "   // 640
               "e0 01 00 00 00 00 00 00 "   // 480
               "00 00 00 00 00 48 7f 40 "   // 500.5
               "00 00 00 00 00 00 74 40 "   // 320
               "00 00 00 00 00 00 6e 40 "   // 240
               "00 00 00 00 00 00 c0 bf"),  // -0.125
       "7 SIMPLE_RADIAL 640 480 500.5 320 240 -0.125\n"},
      {"images",
       FromHex("02 00 00 00 00 00 00 00 "   // 2 images
               "09 00 00 00 "               // IMAGE_ID 9
               "00 00 00 00 00 00 f0 3f "   // 1
               "00 00 00 00 00 00 00 00 "   // 0
               "00 00 00 00 00 00 00 00 "   // 0
               "00 00 00 00 00 00 00 00 "   // 0
               "00 00 00 00 00 00 e0 3f "   // 0.5
               "00 00 00 00 00 00 f0 bf "   // -1
               "00 00 00 00 00 00 00 40 "   // 2
               "07 00 00 00 "               // CAMERA_ID 7
               "62 20 63 2e 70 6e 67 00 "   // "b c.png"
               "03 00 00 00 00 00 00 00 "   // 3 2D points
               "00 00 00 00 00 00 24 40 "   // 10
               "00 00 00 00 00 00 34 40 "   // 20
               "02 00 00 00 00 00 00 00 "   // POINT3D_ID 2
               "00 00 00 00 00 80 3e 40 "   // 30.5
               "00 00 00 00 00 00 44 40 "   // 40
               "ff ff ff ff ff ff ff ff "   // POINT3D_ID -1
               "00 00 00 00 00 00 49 40 "   // 50
               "00 00 00 00 00 00 4e 40 "   // 60
               "01 00 00 00 00 00 00 00 "   // POINT3D_ID 1
               "04 00 00 00 "               // IMAGE_ID 4
               "00 00 00 00 00 00 e0 3f "   // 0.5
               "00 00 00 00 00 00 e0 3f "   // 0.5
               "00 00 00 00 00 00 e0 bf "   // -0.5
               "00 00 00 00 00 00 e0 3f "   // 0.5
               "00 00 00 00 00 00 f0 3f "   // 1
               "00 00 00 00 00 00 00 40 "   // 2
               "00 00 00 00 00 00 08 40 "   // 3
               "07 00 00 00 "               // CAMERA_ID 7
               "61 2e 70 6e 67 00 "         // "a.png"
               "01 00 00 00 00 00 00 00 "   // 1 2D point
               "00 00 00 00 00 00 f8 3f "   // 1.5
               "00 00 00 00 00 00 04 40 "   // 2.5
               "01 00 00 00 00 00 00 00"),  // POINT3D_ID 1
       "9 1 0 0 0 0.5 -1 2 7 b c.png\n"
       "10 20 2 30.5 40 -1 50 60 1\n"
       "4 0.5 0.5 -0.5 0.5 1 2 3 7 a.png\n"
       "1.5 2.5 1\n"},
      {"points3D",
       FromHex("02 00 00 00 00 00 00 00 "   // 2 points
               "01 00 00 00 00 00 00 00 "   // POINT3D_ID 1
               "00 00 00 00 00 00 f0 bf "   // -1
               "00 00 00 00 00 00 00 c0 "   // -2
               "00 00 00 00 00 00 08 c0 "   // -3
               "01 02 ff "                  // 1 2 255
               "00 00 00 00 00 00 d0 3f "   // 0.25
               "02 00 00 00 00 00 00 00 "   // 2 elements of the track
               "09 00 00 00 02 00 00 00 "   // 9 2
               "04 00 00 00 00 00 00 00 "   // 4 0
               "02 00 00 00 00 00 00 00 "   // POINT3D_ID 2
               "00 00 00 00 00 00 f0 3f "   // 1
               "00 00 00 00 00 00 00 40 "   // 2
               "00 00 00 00 00 00 08 40 "   // 3
               "ff 00 11 "                  // 255 0 17
               "00 00 00 00 00 00 f0 bf "   // -1
               "01 00 00 00 00 00 00 00 "   // 1 element of the track
               "09 00 00 00 00 00 00 00"),  // 9 0
       "1 -1 -2 -3 1 2 255 0.25 9 2 4 0\n"
       "2 1 2 3 255 0 17 -1 9 0\n"},
      {"rigs",
       FromHex("01 00 00 00 00 00 00 00 "  // 1 rig
               "03 00 00 00 "              // RIG_ID 3
               "01 00 00 00 "              // 1 sensor
               "00 00 00 00 "              // a camera
               "07 00 00 00"),             // SENSOR_ID 7
       "3 1 CAMERA 7\n"},
      {"frames",
       FromHex("02 00 00 00 00 00 00 00 "   // 2 frames
               "15 00 00 00 "               // FRAME_ID 21
               "03 00 00 00 "               // RIG_ID 3
               "00 00 00 00 00 00 f0 3f "   // 1
               "00 00 00 00 00 00 00 00 "   // 0
               "00 00 00 00 00 00 00 00 "   // 0
               "00 00 00 00 00 00 00 00 "   // 0
               "00 00 00 00 00 00 e0 3f "   // 0.5
               "00 00 00 00 00 00 f0 bf "   // -1
               "00 00 00 00 00 00 00 40 "   // 2
               "01 00 00 00 "               // 1 of DATA_IDS
               "00 00 00 00 "               // a camera
               "07 00 00 00 "               // SENSOR_ID 7
               "09 00 00 00 00 00 00 00 "   // DATA_ID 9
               "16 00 00 00 "               // FRAME_ID 22
               "03 00 00 00 "               // RIG_ID 3
               "00 00 00 00 00 00 e0 3f "   // 0.5
               "00 00 00 00 00 00 e0 3f "   // 0.5
               "00 00 00 00 00 00 e0 bf "   // -0.5
               "00 00 00 00 00 00 e0 3f "   // 0.5
               "00 00 00 00 00 00 f0 3f "   // 1
               "00 00 00 00 00 00 00 40 "   // 2
               "00 00 00 00 00 00 08 40 "   // 3
               "01 00 00 00 "               // 1 of DATA_IDS
               "00 00 00 00 "               // a camera
               "07 00 00 00 "               // SENSOR_ID 7
               "04 00 00 00 00 00 00 00"),  // DATA_ID 4
       "21 3 1 0 0 0 0.5 -1 2 1 CAMERA 7 9\n"
       "22 3 0.5 0.5 -0.5 0.5 1 2 3 1 CAMERA 7 4\n"},
  };
}

using Contents = std::map<std::string, std::string>;

Contents TextFiles() {
  return {{"cameras.txt", kCameras},
          {"images.txt", kImages},
          {"points3D.txt", kPoints}};
}

Contents TextFilesWithRigs() {
  Contents files = TextFiles();
  files["rigs.txt"] = kRigs;
  files["frames.txt"] = kFrames;
  return files;
}

// The model of Files in one of its forms.
Contents FilesAs(ModelFormat format) {
  Contents files;
  for (const ModelFile& file : Files()) {
    files[std::string(file.name) + Suffix(format)] =
        format == MODEL_BINARY ? file.binary : file.text;
  }
  return files;
}

class ColmapIoTest : public ::testing::Test {
 protected:
  void SetUp() override { Fill(TextFiles()); }
  ~ColmapIoTest() override { fs::remove_all(folder_); }

  // The folder has these files alone.
  void Fill(const Contents& files) {
    fs::remove_all(folder_);
    ASSERT_TRUE(fs::create_directory(folder_));
    for (const auto& [name, bytes] : files) {
      WriteBytes(Path(name), bytes);
    }
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

  // "" if the model can be read.
  std::string ErrorOfReading() {
    Model model;
    std::string error;
    const bool is_read = ReadModel(folder_, &model, &error);
    EXPECT_EQ(is_read, error.empty());
    if (!is_read) {
      EXPECT_TRUE(model.cameras.empty() && model.images.empty() &&
                  model.points.empty() && model.points2d.empty());
      EXPECT_THAT(error, StartsWith(folder_));
      EXPECT_THAT(error, HasSubstr(": expected "));
      EXPECT_THAT(error, HasSubstr(", found "));
      for (const char c : error) {
        EXPECT_TRUE(c >= ' ' && c <= '~') << error;
      }
    }
    return error;
  }

  // With other bytes in one of the files.
  std::string ErrorWith(const std::string& name, const std::string& bytes) {
    const std::string before = ReadBytes(Path(name));
    WriteBytes(Path(name), bytes);
    const std::string error = ErrorOfReading();
    WriteBytes(Path(name), before);
    return error;
  }

  void Write(const std::string& folder, const Model& model) {
    std::string error;
    ASSERT_TRUE(WriteModel(folder, model, &error)) << error;
  }

  std::string ErrorOfWriting(const std::string& folder, const Model& model) {
    std::string error;
    EXPECT_FALSE(WriteModel(folder, model, &error));
    return error;
  }

  std::set<std::string> FilesIn(const std::string& folder) {
    std::set<std::string> names;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
      names.insert(entry.path().filename().string());
    }
    return names;
  }

  const std::string folder_ = bal::TempPath("model");
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
      FilesIn(copy),
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
  for (const auto& [section, files] :
       {std::pair("COLMAP as text", TextFiles()),
        std::pair("COLMAP as text with rigs", TextFilesWithRigs()),
        std::pair("COLMAP as binary", FilesAs(MODEL_BINARY))}) {
    Fill(files);
    for (const auto& row : bal::Refusals(section)) {
      SCOPED_TRACE(row[0] + " " + row[2]);
      EXPECT_EQ(
          ErrorWith(row[0], bal::Damaged(files.at(row[0]), row[1], row[2])),
          Path(row[3]));
    }
  }
  // A name without end that is longer than what is read at a time.
  EXPECT_EQ(ErrorWith("images.bin",
                      ReadBytes(Path("images.bin")).substr(0, 72) +
                          std::string(1 << 20, 'x')),
            Path("images.bin") +
                ": byte 72: expected NAME with a zero byte behind it, found "
                "the end of the file");
}

TEST_F(ColmapIoTest, MissingFiles) {
  for (const Contents& files : {TextFiles(), TextFilesWithRigs()}) {
    for (const auto& file : files) {
      Fill(files);
      fs::remove(Path(file.first));
      EXPECT_EQ(ErrorOfReading(),
                Path(file.first) +
                    ": expected a readable file, found No such file or "
                    "directory");
    }
  }
}

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
      EXPECT_EQ(FilesIn(copy).size(), 5u);
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

TEST_F(ColmapIoTest, FoldersThatCannotBeWritten) {
  const Model model = Read(folder_);
  EXPECT_EQ(ErrorOfWriting(Path("none/folder"), model),
            Path("none/folder") +
                ": expected a file that can be written, found no such folder");
  EXPECT_EQ(ErrorOfWriting(Path("images.txt"), model),
            Path("images.txt") + ": expected a folder, found a file");
  // Files of the other form, and rigs beside a model that has none.
  const auto expect_in_the_way = [this](const std::string& name,
                                        const Model& model) {
    EXPECT_EQ(ErrorOfWriting(folder_, model),
              folder_ +
                  ": expected a folder without other files of a model, found " +
                  name);
  };
  for (const char* name : {"cameras.bin", "rigs.txt", "frames.txt"}) {
    WriteBytes(Path(name), "");
    expect_in_the_way(name, model);
    fs::remove(Path(name));
  }
  fs::remove(Path("points3D.txt"));
  fs::create_directory(Path("points3D.txt"));
  EXPECT_EQ(ErrorOfWriting(folder_, model),
            Path("points3D.txt") +
                ": expected a file that can be written, found a directory");
  EXPECT_EQ(ReadBytes(Path("images.txt")), kImages);

  Fill(FilesAs(MODEL_BINARY));
  Model binary = Read(folder_);
  binary.format = MODEL_TEXT;
  expect_in_the_way("cameras.bin", binary);
  binary.format = MODEL_BINARY;
  WriteBytes(Path("frames.txt"), "");
  expect_in_the_way("frames.txt", binary);
  fs::remove(Path("frames.txt"));
  binary.rigs.clear();
  binary.frames.clear();
  expect_in_the_way("rigs.bin", binary);
}

// The disk fills up with the last file: none replaces its target.
TEST_F(ColmapIoTest, AFullDiskKeepsAllFiles) {
  if (access("/dev/full", W_OK) != 0) {
    GTEST_SKIP() << "skipped: no /dev/full";
  }
  for (const auto& [last, files] :
       {std::pair("points3D.txt", TextFiles()),
        std::pair("frames.bin", FilesAs(MODEL_BINARY))}) {
    Fill(files);
    Model model = Read(folder_);
    model.cameras[0].params[0] = 1.0;
    model.images[0].pose[4] = 1.0;
    fs::remove(Path(last));
    fs::create_symlink("/dev/full", Path(last));
    EXPECT_THAT(ErrorOfWriting(folder_, model),
                StartsWith(Path(last) +
                           ": expected a file that can be written, found No "
                           "space left"));
    EXPECT_EQ(FilesIn(folder_).size(), files.size());
    EXPECT_TRUE(fs::is_symlink(Path(last)));
    for (const auto& [name, bytes] : files) {
      if (name != last) {
        EXPECT_EQ(ReadBytes(Path(name)), bytes);
      }
    }
  }
}

// The action of a signal handler while several files are written.
TEST_F(ColmapIoTest, TemporaryFilesOfSeveralFilesAreRemoved) {
  std::vector<std::unique_ptr<bal::SafeFile>> files;
  std::string error;
  for (const char* name : {"a", "b", "c", "e", "cameras.txt"}) {
    files.push_back(bal::SafeFile::Create(Path(name), &error));
    ASSERT_NE(files.back(), nullptr) << error;
  }
  EXPECT_EQ(FilesIn(folder_).size(), 3u + 5u);
  EXPECT_EQ(bal::SafeFile::Create(Path("d"), &error), nullptr);
  EXPECT_EQ(error, "Too many open files");
  // A file that is already in its place is not one of them.
  ASSERT_TRUE(files[1]->Finish(&error)) << error;
  ASSERT_TRUE(files[1]->Commit(&error)) << error;
  bal::RemoveTemporaryFiles();
  EXPECT_THAT(
      FilesIn(folder_),
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

TEST(LittleEndian, BytesAreThoseOfTheFormat) {
  char bytes[8];
  StoreLittleEndian(uint64_t{0x0102030405060708}, bytes);
  EXPECT_EQ(std::string(bytes, 8), FromHex("08 07 06 05 04 03 02 01"));
  EXPECT_EQ(LoadLittleEndian<uint64_t>(bytes), 0x0102030405060708u);
  EXPECT_EQ(LoadLittleEndian<uint8_t>(bytes), 8);
  StoreLittleEndian(int32_t{-2}, bytes);
  EXPECT_EQ(std::string(bytes, 4), FromHex("fe ff ff ff"));
  EXPECT_EQ(LoadLittleEndian<int32_t>(bytes), -2);
  StoreLittleEndian(-0.0, bytes);
  EXPECT_EQ(std::string(bytes, 8), FromHex("00 00 00 00 00 00 00 80"));
  StoreLittleEndian(0.1, bytes);
  EXPECT_EQ(std::string(bytes, 8), FromHex("9a 99 99 99 99 99 b9 3f"));
  EXPECT_EQ(LoadLittleEndian<double>(bytes), 0.1);
}

TEST_F(ColmapIoTest, ReadsAndWritesTheBytesOfColmap) {
  Fill(FilesAs(MODEL_TEXT));
  const Model same = Read(folder_);
  EXPECT_EQ(same.format, MODEL_TEXT);
  const Contents files = FilesAs(MODEL_BINARY);
  Fill(files);
  Model model = Read(folder_);
  EXPECT_EQ(model.format, MODEL_BINARY);
  ExpectSame(model, same);
  EXPECT_EQ(model.images[0].name, "b c.png");
  EXPECT_EQ(model.rigs.size(), 1u);

  for (int i = 0; i < 2; ++i) {  // into its own place too
    Write(Path("copy"), model);
    for (const auto& [name, bytes] : files) {
      EXPECT_EQ(ReadBytes(Path("copy/" + name)), bytes) << name;
    }
  }
  // Without rigs there are three files.
  fs::remove(Path("rigs.bin"));
  fs::remove(Path("frames.bin"));
  model = Read(folder_);
  EXPECT_TRUE(model.rigs.empty());
  Write(Path("three"), model);
  EXPECT_THAT(
      FilesIn(Path("three")),
      UnorderedElementsAre("cameras.bin", "images.bin", "points3D.bin"));
}

// Text -> binary -> text, of all models of cameras and lists that are longer
// than what is read at a time.
TEST_F(ColmapIoTest, FormatsHoldTheSame) {
  bal::SyntheticOptions options = bal::OptionsOfSize(3, 20000, 40000);
  const bal::SyntheticProblem scene = MakeScene(options);
  for (const char* name : kCameraModels) {
    SCOPED_TRACE(name);
    const Model model = MakeModel(scene, name, 2, VALUES_OF_TRUTH);
    std::string error;
    std::string texts[2];
    Model read = model;
    for (std::string& text : texts) {
      read.format = MODEL_TEXT;
      const std::string folder = Path("text");
      ASSERT_TRUE(WriteModel(folder, read, &error)) << error;
      for (const std::string& path : ModelFiles(folder, read)) {
        text += ReadBytes(path);
      }
      read = Read(folder);
      ExpectSame(read, model);
      read.format = MODEL_BINARY;
      const std::string binary = Path("binary");
      ASSERT_TRUE(WriteModel(binary, read, &error)) << error;
      EXPECT_GT(fs::file_size(binary + "/images.bin"), 3 * (1 << 18));
      EXPECT_GT(fs::file_size(binary + "/points3D.bin"), 3 * (1 << 18));
      read = Read(binary);
      ExpectSame(read, model);
    }
    EXPECT_EQ(texts[0], texts[1]);
  }
}

// The real model, where it is.
TEST_F(ColmapIoTest, ARealModelSurvives) {
  std::string folder = std::string(CERES_EXT_TEST_SOURCE_DIR) +
                       "/../shared/data/colmap/crane_mast";
  if (const char* given = std::getenv("CERES_EXT_COLMAP_DIR")) {
    folder = std::string(given) + "/crane_mast";
  }
  if (!fs::exists(folder)) {
    GTEST_SKIP() << "skipped: no crane_mast (set CERES_EXT_COLMAP_DIR to a "
                    "folder that has it)";
  }
  const Model model = Read(folder);
  EXPECT_EQ(model.images.size(), 8u);
  EXPECT_EQ(model.points.size(), 2122u);
  EXPECT_EQ(model.track_elements.size(), 6037u);
  Model copy = model;
  for (const ModelFormat format : {MODEL_BINARY, MODEL_TEXT}) {
    copy.format = format;
    const std::string to = Path("copy") + std::to_string(format);
    std::string error;
    ASSERT_TRUE(WriteModel(to, copy, &error)) << error;
    copy = Read(to);
    ExpectSame(copy, model);
  }
}

TEST_F(ColmapIoTest, BinaryFilesComeFirst) {
  Contents files = FilesAs(MODEL_BINARY);
  for (const auto& file : FilesAs(MODEL_TEXT)) {
    files[file.first] = "damaged";
  }
  Fill(files);
  EXPECT_EQ(Read(folder_).format, MODEL_BINARY);
  // The possible numbers of missing files of an incomplete model.
  fs::remove(Path("images.bin"));
  EXPECT_EQ(ErrorOfReading(),
            Path("cameras.txt") +
                ":1: expected CAMERA_ID, an integer from 0 to 4294967294, "
                "found 'damaged'");
  fs::remove(Path("cameras.txt"));
  fs::remove(Path("images.txt"));
  EXPECT_EQ(ErrorOfReading(),
            Path("images.bin") +
                ": expected a readable file, found No such file or directory");
}

// Cut anywhere, a file is reported; damaged anywhere, it is reported or read.
TEST_F(ColmapIoTest, AllDamageIsFound) {
  const Contents files = FilesAs(MODEL_BINARY);
  Fill(files);
  for (const auto& [name, bytes] : files) {
    for (size_t size = 0; size < bytes.size(); ++size) {
      EXPECT_NE(ErrorWith(name, bytes.substr(0, size)), "")
          << name << " " << size;
    }
    EXPECT_EQ(ErrorWith(name, bytes + std::string(1, '\0')),
              Path(name) + ": byte " + std::to_string(bytes.size()) +
                  ": expected the end of the file, found more bytes");
    for (size_t at = 0; at < bytes.size(); ++at) {
      for (const char byte : {'\x01', '\xff'}) {
        std::string damaged = bytes;
        damaged[at] = byte;
        ErrorWith(name, damaged);
      }
    }
  }
}

TEST_F(ColmapIoTest, NamesThatAFormatCannotHold) {
  const struct {
    ModelFormat format;
    std::string name;
    const char* expected;
  } kCases[] = {
      {MODEL_BINARY, std::string("a\0b", 3), "no zero byte"},
      {MODEL_TEXT, "a\nb", "no line end"},
      {MODEL_TEXT, " a", "no white space at its ends"},
      {MODEL_TEXT, "a\r", "no white space at its ends"},
  };
  Fill(FilesAs(MODEL_BINARY));
  Model model = Read(folder_);
  const std::string copy = Path("copy");
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.expected);
    model.images[1].name = c.name;
    model.format = c.format;
    std::string error;
    EXPECT_FALSE(CanWriteModel(copy, model, &error));
    EXPECT_EQ(error,
              copy + "/images" + Suffix(c.format) + ": expected " + c.expected +
                  " in the NAME of image 4, found one");
    EXPECT_FALSE(WriteModel(copy, model, &error));
    EXPECT_FALSE(fs::exists(copy));
    // The other form holds it.
    model.format = c.format == MODEL_TEXT ? MODEL_BINARY : MODEL_TEXT;
    ASSERT_TRUE(WriteModel(copy, model, &error)) << error;
    EXPECT_EQ(Read(copy).images[1].name, c.name);
    fs::remove_all(copy);
  }
}

}  // namespace
}  // namespace ceres_ext::colmap
