// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "problem_io/colmap_model.h"
#include "problem_io/colmap_reader.h"
#include "problem_io/colmap_writer.h"
#include "problem_io/little_endian.h"
#include "tests/bal/bal_test_util.h"
#include "tests/colmap/colmap_test_util.h"

namespace ceres_ext::colmap {
namespace {

namespace fs = std::filesystem;
using bal::ReadBytes;
using bal::WriteBytes;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

// "01 ff" as bytes.
std::string Bytes(const std::string& hex) {
  std::istringstream digits(hex);
  std::string bytes;
  for (std::string byte; digits >> byte;) {
    bytes += static_cast<char>(std::stoi(byte, nullptr, 16));
  }
  return bytes;
}

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
       Bytes("01 00 00 00 00 00 00 00 "   // 1 camera
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
       Bytes("02 00 00 00 00 00 00 00 "   // 2 images
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
       Bytes("02 00 00 00 00 00 00 00 "   // 2 points
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
       Bytes("01 00 00 00 00 00 00 00 "  // 1 rig
             "03 00 00 00 "              // RIG_ID 3
             "01 00 00 00 "              // 1 sensor
             "00 00 00 00 "              // a camera
             "07 00 00 00"),             // SENSOR_ID 7
       "3 1 CAMERA 7\n"},
      {"frames",
       Bytes("02 00 00 00 00 00 00 00 "   // 2 frames
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

class ColmapBinaryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = bal::TempPath("model");
    fs::remove_all(folder_);
    ASSERT_TRUE(fs::create_directory(folder_));
    WriteFiles();
  }
  ~ColmapBinaryTest() override { fs::remove_all(folder_); }

  void WriteFiles() {
    for (const ModelFile& file : files_) {
      WriteBytes(Path(file.name), file.binary);
    }
  }

  void WriteTexts(const std::string& folder) {
    fs::create_directory(folder);
    for (const ModelFile& file : files_) {
      WriteBytes(folder + "/" + file.name + ".txt", file.text);
    }
  }

  const std::string& BytesOf(const std::string& name) const {
    size_t i = 0;
    while (files_[i].name != name) {
      ++i;
    }
    return files_[i].binary;
  }

  std::string Path(const std::string& name) const {
    return folder_ + "/" + name + ".bin";
  }

  static Model Read(const std::string& folder) {
    Model model;
    std::string error;
    EXPECT_TRUE(ReadModel(folder, &model, &error)) << error;
    return model;
  }

  // Faults of the model with one of its files in another form. Empty if it can
  // be read.
  std::string ErrorWith(const std::string& name, const std::string& bytes) {
    WriteBytes(Path(name), bytes);
    Model model;
    std::string error;
    const bool read = ReadModel(folder_, &model, &error);
    EXPECT_EQ(read, error.empty());
    if (!read) {
      EXPECT_TRUE(model.cameras.empty() && model.images.empty() &&
                  model.points.empty() && model.points2d.empty());
      EXPECT_THAT(error, StartsWith(folder_));
      for (const char* part : {": expected ", ", found "}) {
        EXPECT_NE(error.find(part), std::string::npos) << error;
      }
      for (const char c : error) {
        EXPECT_TRUE(c >= ' ' && c <= '~') << error;
      }
    }
    WriteBytes(Path(name), BytesOf(name));
    return error;
  }

  const std::vector<ModelFile> files_ = Files();
  std::string folder_;
};

TEST(LittleEndian, BytesAreThoseOfTheFormat) {
  char bytes[8];
  StoreLittleEndian(uint64_t{0x0102030405060708}, bytes);
  EXPECT_EQ(std::string(bytes, 8), Bytes("08 07 06 05 04 03 02 01"));
  EXPECT_EQ(LoadLittleEndian<uint64_t>(bytes), 0x0102030405060708u);
  EXPECT_EQ(LoadLittleEndian<uint8_t>(bytes), 8);
  StoreLittleEndian(int32_t{-2}, bytes);
  EXPECT_EQ(std::string(bytes, 4), Bytes("fe ff ff ff"));
  EXPECT_EQ(LoadLittleEndian<int32_t>(bytes), -2);
  StoreLittleEndian(-0.0, bytes);
  EXPECT_EQ(std::string(bytes, 8), Bytes("00 00 00 00 00 00 00 80"));
  StoreLittleEndian(0.1, bytes);
  EXPECT_EQ(std::string(bytes, 8), Bytes("9a 99 99 99 99 99 b9 3f"));
  EXPECT_EQ(LoadLittleEndian<double>(bytes), 0.1);
}

TEST_F(ColmapBinaryTest, ReadsAndWritesTheBytesOfColmap) {
  const Model model = Read(folder_);
  EXPECT_EQ(model.format, MODEL_BINARY);
  const std::string texts = folder_ + "/texts";
  WriteTexts(texts);
  const Model same = Read(texts);
  EXPECT_EQ(same.format, MODEL_TEXT);
  ExpectSame(model, same);
  EXPECT_EQ(model.images[0].name, "b c.png");
  EXPECT_EQ(model.rigs.size(), 1u);

  const std::string copy = folder_ + "/copy";
  std::string error;
  for (int i = 0; i < 2; ++i) {  // into its own place too
    ASSERT_TRUE(WriteModel(copy, model, &error)) << error;
    for (const ModelFile& file : files_) {
      EXPECT_EQ(ReadBytes(copy + "/" + file.name + ".bin"), file.binary)
          << file.name;
    }
  }
}

TEST_F(ColmapBinaryTest, WithoutRigsThereAreThreeFiles) {
  fs::remove(Path("rigs"));
  fs::remove(Path("frames"));
  const Model model = Read(folder_);
  EXPECT_TRUE(model.rigs.empty());
  const std::string copy = folder_ + "/copy";
  std::string error;
  ASSERT_TRUE(WriteModel(copy, model, &error)) << error;
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(copy)) {
    names.push_back(entry.path().filename().string());
  }
  EXPECT_THAT(
      names, UnorderedElementsAre("cameras.bin", "images.bin", "points3D.bin"));
}

// Text -> binary -> text, of all models of cameras and lists that are longer
// than what is read at a time.
TEST_F(ColmapBinaryTest, FormatsHoldTheSame) {
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
      const std::string folder = folder_ + "/text";
      ASSERT_TRUE(WriteModel(folder, read, &error)) << error;
      for (const std::string& path : ModelFiles(folder, read)) {
        text += ReadBytes(path);
      }
      read = Read(folder);
      ExpectSame(read, model);
      read.format = MODEL_BINARY;
      const std::string binary = folder_ + "/binary";
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
TEST_F(ColmapBinaryTest, ARealModelSurvives) {
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
    const std::string to = folder_ + "/copy" + std::to_string(format);
    std::string error;
    ASSERT_TRUE(WriteModel(to, copy, &error)) << error;
    copy = Read(to);
    ExpectSame(copy, model);
  }
}

TEST_F(ColmapBinaryTest, BinaryFilesComeFirst) {
  for (const ModelFile& file : files_) {
    WriteBytes(folder_ + "/" + file.name + ".txt", "damaged");
  }
  EXPECT_EQ(Read(folder_).format, MODEL_BINARY);
  // The possible numbers of missing files of an incomplete model.
  fs::remove(Path("images"));
  EXPECT_EQ(ErrorWith("points3D", BytesOf("points3D")),
            folder_ +
                "/cameras.txt:1: expected CAMERA_ID, an integer from 0 to "
                "4294967294, found 'damaged'");
  fs::remove(folder_ + "/cameras.txt");
  fs::remove(folder_ + "/images.txt");
  EXPECT_EQ(ErrorWith("points3D", BytesOf("points3D")),
            Path("images") +
                ": expected a readable file, found No such file or directory");
}

std::string Replaced(std::string bytes,
                     size_t at,
                     const std::string& replacement) {
  return bytes.replace(at, replacement.size(), replacement);
}

TEST_F(ColmapBinaryTest, SaysWhatIsWrongAndWhere) {
  const std::string nan = "00 00 00 00 00 00 f8 7f";
  const std::string infinity = "00 00 00 00 00 00 f0 7f";
  const std::string huge = "00 00 00 00 00 00 00 80";  // 2^63
  const struct {
    const char* file;
    size_t at;
    std::string hex;  // replaces existing files
    const char* error;
  } kCases[] = {
      {"cameras",
       0,
       huge,
       "64: expected 9223372036854775808 cameras, found the end of the file "
       "after 1"},
      {"cameras", 0, "00", "8: expected the end of the file, found more bytes"},
      {"cameras",
       8,
       "ff ff ff ff",
       "8: expected CAMERA_ID, an integer from 0 to 4294967294, found "
       "4294967295"},
      {"cameras",
       12,
       "11",
       "12: expected MODEL_ID, one of 0 (SIMPLE_PINHOLE), 1 (PINHOLE), 2 "
       "(SIMPLE_RADIAL), 3 (RADIAL), 4 (OPENCV), 5 (OPENCV_FISHEYE), 6 "
       "(FULL_OPENCV), 7 (FOV), 8 (SIMPLE_RADIAL_FISHEYE), 9 "
       "(RADIAL_FISHEYE), 10 (THIN_PRISM_FISHEYE), 11 "
       "(RAD_TAN_THIN_PRISM_FISHEYE), 12 (SIMPLE_DIVISION), 13 (DIVISION), 14 "
       "(SIMPLE_FISHEYE), 15 (FISHEYE), 16 (EUCM), found "
       "17 (EQUIRECTANGULAR)"},
      {"cameras",
       12,
       "63",
       "12: expected MODEL_ID, one of 0 (SIMPLE_PINHOLE), 1 (PINHOLE), 2 "
       "(SIMPLE_RADIAL), 3 (RADIAL), 4 (OPENCV), 5 (OPENCV_FISHEYE), 6 "
       "(FULL_OPENCV), 7 (FOV), 8 (SIMPLE_RADIAL_FISHEYE), 9 "
       "(RADIAL_FISHEYE), 10 (THIN_PRISM_FISHEYE), 11 "
       "(RAD_TAN_THIN_PRISM_FISHEYE), 12 (SIMPLE_DIVISION), 13 (DIVISION), 14 "
       "(SIMPLE_FISHEYE), 15 (FISHEYE), 16 (EUCM), found "
       "99"},
      {"cameras",
       16,
       "00 00",
       "16: expected WIDTH, an integer from 1 on, found 0"},
      {"cameras",
       24,
       huge,
       "24: expected HEIGHT, an integer from 1 on, found "
       "-9223372036854775808"},
      {"cameras",
       56,
       nan,
       "56: expected 4 finite PARAMS for SIMPLE_RADIAL, found nan"},
      {"images",
       160,
       "09",
       "160: expected an IMAGE_ID of its own, found 9 again"},
      {"images",
       12,
       "00 00 00 00 00 00 00 00",
       "36: expected QW QX QY QZ with a norm, about 1, found one of 0 or "
       "infinity"},
      {"images",
       44,
       infinity,
       "44: expected QW QX QY QZ TX TY TZ, seven finite numbers, found inf"},
      {"images", 68, "08", "68: expected a CAMERA_ID of cameras.bin, found 8"},
      {"images",
       88,
       nan,
       "88: expected X of a 2D point, a finite number, found nan"},
      {"images",
       96,
       nan,
       "96: expected Y of a 2D point, a finite number, found nan"},
      {"images",
       104,
       "fe ff ff ff ff ff ff ff",
       "104: expected POINT3D_ID of a 2D point, an integer from -1 on, found "
       "-2"},
      {"images",
       230,
       huge,
       "262: expected 9223372036854775808 2D points, found the end of the "
       "file after 1"},
      {"points3D",
       8,
       huge,
       "8: expected POINT3D_ID, an integer from 0 on, found "
       "-9223372036854775808"},
      {"points3D",
       75,
       "01",
       "75: expected a POINT3D_ID of its own, found 1 again"},
      {"points3D",
       24,
       infinity,
       "24: expected X Y Z, three finite numbers, found inf"},
      {"points3D", 43, nan, "43: expected ERROR, a finite number, found nan"},
      {"points3D",
       118,
       huge,
       "134: expected 9223372036854775808 elements of the track, found the end "
       "of the file after 1"},
      {"points3D", 59, "05", "59: expected an IMAGE_ID of images.bin, found 5"},
      {"points3D",
       63,
       "01",
       "63: expected IMAGE_ID POINT2D_IDX of a 2D point that images.bin gives "
       "to this point, found 9 1"},
      {"points3D",
       63,
       "ff ff ff ff",
       "63: expected IMAGE_ID POINT2D_IDX of a 2D point that images.bin gives "
       "to this point, found 9 4294967295"},
      {"points3D",
       67,
       "09 00 00 00 02",
       "71: expected each 2D point once, found 9 2 again"},
      {"rigs",
       12,
       "02",
       "24: expected SENSOR_TYPE, 0, a camera (others are not supported), "
       "found the end of the file"},
      {"rigs",
       16,
       "01",
       "16: expected SENSOR_TYPE, 0, a camera (others are not supported), "
       "found 1"},
      {"rigs", 20, "08", "20: expected a SENSOR_ID of cameras.bin, found 8"},
      {"frames", 12, "04", "12: expected a RIG_ID of rigs.bin, found 4"},
      {"frames",
       72,
       "00",
       "72: expected NUM_DATA_IDS, an integer from 1 to the number of sensors "
       "of the rig, found 0"},
      {"frames",
       84,
       "09 00 00 00 01",
       "84: expected a DATA_ID of images.bin, found 4294967305"},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(std::string(c.file) + " " + std::to_string(c.at));
    EXPECT_EQ(ErrorWith(c.file, Replaced(BytesOf(c.file), c.at, Bytes(c.hex))),
              Path(c.file) + ": byte " + c.error);
  }
  EXPECT_EQ(ErrorWith("images", BytesOf("images").substr(0, 77)),
            Path("images") +
                ": byte 72: expected NAME with a zero byte behind it, found "
                "the end of the file");
  EXPECT_EQ(ErrorWith("images", BytesOf("images").substr(0, 160)),
            Path("images") +
                ": byte 160: expected 2 images, found the end of the file "
                "after 1");
  EXPECT_EQ(ErrorWith("points3D", BytesOf("points3D").substr(0, 7)),
            Path("points3D") +
                ": byte 0: expected the number of points, found the end of the "
                "file");
  // A name without end that is longer than what is read at a time.
  EXPECT_EQ(
      ErrorWith("images",
                BytesOf("images").substr(0, 72) + std::string(1 << 20, 'x')),
      Path("images") +
          ": byte 72: expected NAME with a zero byte behind it, found "
          "the end of the file");
}

// Cut anywhere, a file is reported; damaged anywhere, it is reported or read.
TEST_F(ColmapBinaryTest, NoDamageGoesUntold) {
  for (const ModelFile& file : files_) {
    for (size_t size = 0; size < file.binary.size(); ++size) {
      EXPECT_NE(ErrorWith(file.name, file.binary.substr(0, size)), "")
          << file.name << " " << size;
    }
    EXPECT_EQ(ErrorWith(file.name, file.binary + std::string(1, '\0')),
              Path(file.name) + ": byte " + std::to_string(file.binary.size()) +
                  ": expected the end of the file, found more bytes");
    for (size_t at = 0; at < file.binary.size(); ++at) {
      for (const unsigned char byte : {0x01, 0xff}) {
        ErrorWith(
            file.name,
            Replaced(file.binary, at, std::string(1, static_cast<char>(byte))));
      }
    }
  }
}

TEST_F(ColmapBinaryTest, NamesThatAFormatCannotHold) {
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
  Model model = Read(folder_);
  const std::string copy = folder_ + "/copy";
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

// The disk fills up with the last of the five files: none replaces its target.
TEST_F(ColmapBinaryTest, NoFileTakesItsPlaceBeforeAllAreThere) {
  if (access("/dev/full", W_OK) != 0) {
    GTEST_SKIP() << "skipped: no /dev/full";
  }
  Model model = Read(folder_);
  model.cameras[0].params[0] = 1.0;
  model.images[0].pose[4] = 1.0;
  fs::remove(Path("frames"));
  fs::create_symlink("/dev/full", Path("frames"));
  std::string error;
  EXPECT_FALSE(WriteModel(folder_, model, &error));
  EXPECT_THAT(error,
              StartsWith(Path("frames") +
                         ": expected a file that can be written, found No "
                         "space left"));
  fs::remove(Path("frames"));
  for (const char* name : {"cameras", "images", "points3D", "rigs"}) {
    EXPECT_EQ(ReadBytes(Path(name)), BytesOf(name));
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 4);
}

TEST_F(ColmapBinaryTest, FilesOfTheOtherFormAreInTheWay) {
  Model model = Read(folder_);
  std::string error;
  model.format = MODEL_TEXT;
  EXPECT_FALSE(WriteModel(folder_, model, &error));
  EXPECT_EQ(error,
            folder_ +
                ": expected a folder without other files of a model, found "
                "cameras.bin");
  model.format = MODEL_BINARY;
  WriteBytes(folder_ + "/frames.txt", "");
  EXPECT_FALSE(WriteModel(folder_, model, &error));
  EXPECT_EQ(error,
            folder_ +
                ": expected a folder without other files of a model, found "
                "frames.txt");
  // So are rigs beside a model that has none.
  fs::remove(folder_ + "/frames.txt");
  model.rigs.clear();
  model.frames.clear();
  EXPECT_FALSE(WriteModel(folder_, model, &error));
  EXPECT_EQ(error,
            folder_ +
                ": expected a folder without other files of a model, found "
                "rigs.bin");
}

}  // namespace
}  // namespace ceres_ext::colmap
