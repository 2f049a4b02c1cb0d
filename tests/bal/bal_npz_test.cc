// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "problem_io/bal_npz.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <limits>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "problem_io/bal_problem.h"
#include "problem_io/bal_reader.h"
#include "problem_io/bal_writer.h"
#include "problem_io/byte_stream.h"
#include "problem_io/npz_file.h"
#include "tests/bal/bal_test_util.h"
#include "tests/bal/refusals.h"

namespace ceres_ext::bal {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

// Three cameras, four points, five observations.
BalProblem SmallProblem() { return RandomProblem(3, 4, 5); }

template <typename Array>
std::string_view Bytes(const Array& values) {
  return {reinterpret_cast<const char*>(values.data()),
          values.size() * sizeof(values[0])};
}

std::vector<NpyArray> Arrays(const BalProblem& problem) {
  const int64_t n = problem.num_observations();
  return {
      {"camera_index", "<i4", {n}, Bytes(problem.camera_index)},
      {"point_index", "<i4", {n}, Bytes(problem.point_index)},
      {"observations", "<f8", {n, 2}, Bytes(problem.observations)},
      {"cameras", "<f8", {problem.num_cameras(), 9}, Bytes(problem.cameras)},
      {"points", "<f8", {problem.num_points(), 3}, Bytes(problem.points)}};
}

class BalNpz : public ::testing::Test {
 protected:
  ~BalNpz() override { std::remove(path_.c_str()); }

  std::string FileOf(const std::vector<NpyArray>& arrays,
                     uint32_t zip64_from = 0xffffffff) {
    std::string error;
    EXPECT_TRUE(WriteNpz(path_, arrays, &error, zip64_from)) << error;
    return ReadBytes(path_);
  }

  const std::string path_ = TempPath("a.npz");
};

std::string ErrorOf(const std::string& bytes) {
  return ErrorOfReading(bytes, {{1, 16}, {2, 16}, {7, 16}, {16, 16}});
}

void ExpectReadsAs(const BalProblem& problem, const std::string& bytes) {
  for (const int num_threads : {1, 2, 7, 16}) {
    for (const size_t block_size : {1, 24, 1 << 18}) {
      BalProblem read;
      std::string error;
      ASSERT_TRUE(ReadBalMemory("f",
                                bytes.data(),
                                bytes.size(),
                                &read,
                                &error,
                                {num_threads, block_size}))
          << error;
      ExpectSameProblem(read, problem);
    }
  }
}

TEST_F(BalNpz, IsTheSameBytesEachTime) {
  const BalProblem written = RandomProblem(20, 300, 20000);
  const std::string expected = FileOf(Arrays(written));
  std::string error;
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(WriteBalFile(path_, written, &error)) << error;
    EXPECT_TRUE(ReadBytes(path_) == expected);
  }
  ExpectReadsAs(SmallProblem(), FileOf(Arrays(SmallProblem())));
}

// The parts of a file, as arrays or text, are all of it: points one part after
// the other, observations in the order of the file, and about as many in each.
TEST_F(BalNpz, Parts) {
  // Points in any order, and in that of the observations.
  for (const bool is_sorted : {false, true}) {
    BalProblem all = RandomProblem(5, 30, 500);
    if (is_sorted) {
      std::sort(all.point_index.begin(), all.point_index.end());
    }
    std::vector<int> num_of_point(30, 0);
    for (const int32_t point : all.point_index) {
      ++num_of_point[point];
    }
    const int most =
        *std::max_element(num_of_point.begin(), num_of_point.end());
    for (const char* suffix : {"", ".txt"}) {
      const std::string path = path_ + suffix;
      std::string error;
      ASSERT_TRUE(WriteBalFile(path, all, &error)) << error;
      for (const int num_parts : {1, 2, 3, 7, 40}) {
        std::vector<int> part_of_point;
        std::vector<BalProblem> parts(num_parts);
        for (int i = 0; i < num_parts; ++i) {
          BalPart part;
          ASSERT_TRUE(ReadBalPart(
              path, i, num_parts, &parts[i], &part, &error, {2, 64}))
              << error;
          EXPECT_EQ(part.first_point, part_of_point.size());
          EXPECT_EQ(part.num_observations, parts[i].num_observations());
          EXPECT_LE(std::abs(part.num_observations - 500 / num_parts),
                    most + 1);
          EXPECT_EQ(parts[i].cameras, all.cameras);
          EXPECT_EQ(parts[i].points, all.points);
          for (int32_t& point : parts[i].point_index) {
            EXPECT_GE(point, 0);
            EXPECT_LT(point, part.num_points);
            point += part.first_point;
          }
          part_of_point.resize(part_of_point.size() + part.num_points, i);
        }
        ASSERT_EQ(part_of_point.size(), 30);
        std::vector<int64_t> next(num_parts, 0);
        for (int64_t k = 0; k < all.num_observations(); ++k) {
          const int of = part_of_point[all.point_index[k]];
          const BalProblem& part = parts[of];
          const int64_t at = next[of]++;
          ASSERT_LT(at, part.num_observations());
          EXPECT_EQ(part.camera_index[at], all.camera_index[k]);
          EXPECT_EQ(part.point_index[at], all.point_index[k]);
          EXPECT_EQ(part.observations[2 * at], all.observations[2 * k]);
          EXPECT_EQ(part.observations[2 * at + 1], all.observations[2 * k + 1]);
        }
      }
      std::remove(path.c_str());
    }
  }
}

// A fault is that of the parts which read it; an index of a point is read by
// all.
TEST_F(BalNpz, PartsOfABadFile) {
  BalProblem problem = RandomProblem(3, 4, 64);
  std::sort(problem.point_index.begin(), problem.point_index.end());
  const auto error_of = [this](int part) {
    BalProblem read;
    BalPart of_part;
    std::string error;
    if (ReadBalPart(path_, part, 2, &read, &of_part, &error, {1, 8})) {
      return std::string();
    }
    EXPECT_EQ(read.num_observations(), 0);
    return error;
  };
  BalProblem bad = problem;
  bad.observations[127] = NAN;
  FileOf(Arrays(bad));
  EXPECT_EQ(error_of(0), "");
  EXPECT_THAT(error_of(1),
              HasSubstr("observations.npy: expected finite numbers, found nan "
                        "at [63, 1]"));
  bad = problem;
  bad.point_index[63] = 4;
  FileOf(Arrays(bad));
  for (const int part : {0, 1}) {
    EXPECT_THAT(error_of(part),
                HasSubstr("point_index.npy: expected integers from 0 to 3, "
                          "found 4 at [63]"));
  }
}

// Written in the background, a file has the same bytes, whether it is mapped
// (64 MB and more) or not; without Finish nothing has changed.
TEST_F(BalNpz, WritesWhileASolveRuns) {
  for (const int64_t num_observations : {5, 3000000}) {
    BalProblem problem = SmallProblem();
    problem.camera_index.resize(num_observations);
    problem.point_index.resize(num_observations);
    problem.observations.resize(2 * num_observations);
    for (int64_t k = 0; k < num_observations; ++k) {
      problem.camera_index[k] = static_cast<int32_t>(k % 3);
      problem.point_index[k] = static_cast<int32_t>(k / 3 % 4);
      problem.observations[2 * k] = 0.1 * static_cast<double>(k % 1000);
    }
    std::string error;
    ASSERT_TRUE(WriteTextFile(path_, "what was there", &error)) << error;
    { BalNpzWriter unfinished(path_, problem); }
    EXPECT_EQ(ReadBytes(path_), "what was there");

    BalNpzWriter writer(path_, problem);
    problem.cameras = std::vector<double>(27, 1.25);
    problem.points = std::vector<double>(12, -2.5);
    ASSERT_TRUE(writer.Finish(problem, &error)) << error;
    const std::string bytes = ReadBytes(path_);
    EXPECT_TRUE(bytes == FileOf(Arrays(problem))) << num_observations;
    BalProblem read;
    ASSERT_TRUE(ReadBalFile(path_, &read, &error)) << error;
    ExpectSameProblem(read, problem);
  }
  const std::string nowhere = TempPath("no_folder") + "/a.npz";
  const BalProblem problem = SmallProblem();
  std::string error;
  EXPECT_FALSE(BalNpzWriter(nowhere, problem).Finish(problem, &error));
  EXPECT_THAT(error, HasSubstr(nowhere + ": expected a file that can be"));
}

TEST_F(BalNpz, ValuesStartAtMultiplesOf64Bytes) {
  for (const uint32_t zip64_from : {0u, 300u, 0xffffffffu}) {
    const std::string bytes = FileOf(Arrays(SmallProblem()), zip64_from);
    std::vector<NpyMember> members;
    std::string error;
    ASSERT_TRUE(ReadNpzMembers(
        *OpenMemory(bytes.data(), bytes.size()), &members, &error))
        << error;
    ASSERT_EQ(members.size(), 5u);
    for (const NpyMember& member : members) {
      EXPECT_EQ(member.begin % 64, 0) << member.name;
    }
    EXPECT_EQ(members[3].name, "cameras.npy");
    EXPECT_EQ(members[3].dtype, "<f8");
    EXPECT_EQ(members[3].shape, (std::vector<int64_t>{3, 9}));
    EXPECT_EQ(members[3].size, 3 * 9 * 8);
    EXPECT_EQ(std::memcmp(bytes.data() + members[3].begin,
                          SmallProblem().cameras.data(),
                          members[3].size),
              0);
  }
}

// Sizes, offsets and the end record of 64 bits: for all, from the third member
// on, for the directory alone.
TEST_F(BalNpz, Zip64) {
  const BalProblem problem = SmallProblem();
  const std::string plain = FileOf(Arrays(problem));
  for (const uint32_t zip64_from : {0u, 1u, 200u, 500u, 1000u, 1400u}) {
    const std::string bytes = FileOf(Arrays(problem), zip64_from);
    EXPECT_GT(bytes.size(), plain.size());
    ExpectReadsAs(problem, bytes);
  }
}

TEST_F(BalNpz, IndicesOf64BitsAndAnyOrderOfMembers) {
  const BalProblem problem = SmallProblem();
  std::vector<NpyArray> arrays = Arrays(problem);
  const std::vector<int64_t> cameras(problem.camera_index.begin(),
                                     problem.camera_index.end());
  arrays[0].dtype = "<i8";
  arrays[0].values = Bytes(cameras);
  std::reverse(arrays.begin(), arrays.end());
  ExpectReadsAs(problem, FileOf(arrays));

  const std::string kExpected =
      "f: camera_index.npy: expected integers from 0 to 2, found ";
  for (const int64_t bad : {int64_t{3},
                            int64_t{-1},
                            int64_t{1} << 32,
                            std::numeric_limits<int64_t>::min(),
                            std::numeric_limits<int64_t>::max()}) {
    std::vector<int64_t> wrong = cameras;
    wrong[3] = bad;
    wrong[4] = -7;
    arrays[4].values = Bytes(wrong);
    EXPECT_EQ(ErrorOf(FileOf(arrays)),
              kExpected + std::to_string(bad) + " at [3]");
  }
}

TEST_F(BalNpz, Values) {
  BalProblem problem = SmallProblem();
  problem.point_index[2] = 4;
  EXPECT_EQ(ErrorOf(FileOf(Arrays(problem))),
            "f: point_index.npy: expected integers from 0 to 3, found 4 at "
            "[2]");
  problem.camera_index[4] = -1;
  EXPECT_EQ(ErrorOf(FileOf(Arrays(problem))),
            "f: camera_index.npy: expected integers from 0 to 2, found -1 at "
            "[4]");
  const double kNan = std::numeric_limits<double>::quiet_NaN();
  const double kInfinity = std::numeric_limits<double>::infinity();
  problem = SmallProblem();
  problem.points[11] = kInfinity;
  EXPECT_EQ(ErrorOf(FileOf(Arrays(problem))),
            "f: points.npy: expected finite numbers, found inf at [3, 2]");
  problem.cameras[10] = -kInfinity;
  EXPECT_EQ(ErrorOf(FileOf(Arrays(problem))),
            "f: cameras.npy: expected finite numbers, found -inf at [1, 1]");
  problem.observations[4] = kNan;
  EXPECT_EQ(ErrorOf(FileOf(Arrays(problem))),
            "f: observations.npy: expected finite numbers, found nan at [2, "
            "0]");
}

TEST_F(BalNpz, Arrays) {
  const BalProblem problem = SmallProblem();
  const std::vector<NpyArray> good = Arrays(problem);
  const auto error_with = [&](size_t i, const NpyArray& array) {
    std::vector<NpyArray> arrays = good;
    arrays[i] = array;
    return ErrorOf(FileOf(arrays));
  };
  const std::string_view cameras = good[3].values;
  for (const auto& row : Refusals("arrays of .npz")) {
    const size_t i = std::stoul(row[0]);
    std::istringstream sizes(row[3]);
    const std::vector<int64_t> shape{std::istream_iterator<int64_t>(sizes), {}};
    EXPECT_EQ(error_with(i,
                         {row[1],
                          row[2],
                          shape,
                          good[i].values.substr(0, std::stoul(row[4]))}),
              row[5]);
  }
  EXPECT_THAT(error_with(3, {"../../cameras", "<f8", {3, 9}, cameras}),
              HasSubstr("found the member '../../cameras.npy'"));
  // 8 x 2^61 x 27 is 216 x 2^61, of which 64 bits hold 0.
  EXPECT_THAT(
      error_with(3, {"cameras", "<f8", {int64_t{1} << 61, 27}, cameras}),
      HasSubstr("expected as many bytes as dtype and shape need"));
  EXPECT_THAT(error_with(3, {"cameras", "<f8", {-3, 9}, cameras}),
              HasSubstr("expected an .npy header with"));
  for (size_t i = 0; i < good.size(); ++i) {
    std::vector<NpyArray> arrays = good;
    arrays.erase(arrays.begin() + i);
    EXPECT_EQ(ErrorOf(FileOf(arrays)),
              "f: " + good[i].name +
                  ".npy: expected this array, found none of this name");
  }
  EXPECT_EQ(ErrorOf(FileOf({})),
            "f: camera_index.npy: expected this array, found none of this "
            "name");
}

// Headers of other writers, with the same length, instead of ours.
TEST_F(BalNpz, NpyHeaders) {
  const std::string good = FileOf(Arrays(SmallProblem()));
  const std::string ours =
      "{'descr': '<f8', 'fortran_order': False, 'shape': (3, 9), }          ";
  const size_t begin = good.find(ours);
  ASSERT_NE(begin, std::string::npos);
  const auto with = [&](std::string header) {
    header.resize(ours.size(), ' ');
    return good.substr(0, begin) + header + good.substr(begin + ours.size());
  };
  // Correct except for the checksum.
  for (const char* header :
       {"{\"shape\":(3,9),\"descr\":\"<f8\",\"fortran_order\":False}",
        "{ 'fortran_order' : False , 'shape' : ( 3 , 9 , ) , 'descr':'<f8'}"}) {
    EXPECT_EQ(ErrorOf(with(header)),
              "f: cameras.npy: expected an undamaged array, found a wrong "
              "CRC-32");
  }
  EXPECT_EQ(ErrorOf(with(
                "{'descr': '<f8', 'fortran_order': True, 'shape': (3, 9), }")),
            "f: cameras.npy: expected C order (numpy.ascontiguousarray), found "
            "Fortran's");
  for (const char* header :
       {"",
        "{}",
        "{'descr': '<f8', 'fortran_order': False}",
        "{'descr': '<f8', 'descr': '<f8', 'shape': (3, 9), }",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (3, 9",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (27)}",
        "{'descr': '<f8', 'fortran_order': False, 'shape': 27}",
        "{'descr': '<f8', 'fortran_order': Maybe, 'shape': (3, 9)}",
        "{'descr': '<f8', 'fortran_order': 0, 'shape': (3, 9), 'x': 1}",
        "{'descr': [('x', '<f8')], 'shape': (3, 9)}",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (1e9,)}",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (,)}",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (9,)} x",
        "{'descr: <f8"}) {
    EXPECT_THAT(ErrorOf(with(header)),
                HasSubstr("f: cameras.npy: expected an .npy header with "
                          "'descr', 'fortran_order' and 'shape', found '"))
        << header;
  }
  std::string bad = good;
  bad[begin - 4] = 9;  // version
  EXPECT_THAT(ErrorOf(bad),
              HasSubstr("f: cameras.npy: expected an .npy file of version"));
  bad = good;
  bad[begin - 1] = '\xff';  // length
  EXPECT_THAT(ErrorOf(bad),
              HasSubstr("f: cameras.npy: expected an .npy header of at most"));
}

// Fields of the directory and of local headers, one at a time.
TEST_F(BalNpz, ZipFields) {
  const std::string good = FileOf(Arrays(SmallProblem()));
  const size_t end = good.size() - 22;
  const size_t entry = good.find("PK\1\2");  // that of camera_index
  const size_t second = good.find("PK\1\2", entry + 1);
  const size_t local = good.find("PK\3\4", 1);  // that of point_index
  const Values values = {
      {"entry", std::to_string(entry)},
      {"second", std::to_string(second)},
      {"local", std::to_string(local)},
      {"end", std::to_string(end)},
      {"size", std::to_string(good.size())},
      {"local+30", std::to_string(local + 30)},
      {"size-local-30", std::to_string(good.size() - local - 30)},
      {"end-entry", std::to_string(end - entry)},
      {"tail", good.substr(end)}};
  for (const auto& row : Refusals("fields of .npz", values)) {
    EXPECT_EQ(ErrorOf(Damaged(good, row[0], row[1])), row[2]);
  }
}

// Two entries of one local header, and a member within another one.
TEST_F(BalNpz, MembersThatShareBytes) {
  BalProblem problem = SmallProblem();
  std::vector<NpyArray> arrays = Arrays(problem);
  std::string bytes = FileOf(arrays);
  // The values of cameras hold a whole archive; its entry for points leads
  // there.
  const size_t inner = bytes.find("PK\3\4", bytes.find("points.npy") - 40);
  const size_t inner_end = bytes.find("PK\1\2");
  std::string hidden = bytes.substr(inner, inner_end - inner);
  hidden.resize((hidden.size() + 71) / 72 * 72, '\0');
  arrays[3] = {
      "cameras", "<f8", {static_cast<int64_t>(hidden.size() / 72), 9}, hidden};
  bytes = FileOf(arrays);
  const size_t first = bytes.find("points.npy") - 30;
  ASSERT_EQ(bytes.substr(first, 4), "PK\3\4");
  const size_t entry = bytes.rfind("points.npy") - 46;
  ASSERT_EQ(bytes.substr(entry, 4), "PK\1\2");
  const auto offset = static_cast<uint32_t>(first);
  std::memcpy(bytes.data() + entry + 42, &offset, 4);
  EXPECT_EQ(ErrorOf(bytes),
            "f: expected members that share no bytes, found cameras.npy and "
            "points.npy that do");
}

TEST_F(BalNpz, Zip64Fields) {
  const std::string good = FileOf(Arrays(SmallProblem()), 0);
  const size_t end_64 = good.size() - 22 - 20 - 56;
  ASSERT_EQ(good.substr(end_64, 4), "PK\6\6");
  const uint64_t kHuge = 0xfffffffffffffff0u;
  for (const size_t offset : {4u, 24u, 32u, 40u, 48u, 64u}) {
    for (const uint64_t value : {uint64_t{1}, kHuge, uint64_t{0xffffffff}}) {
      std::string bad = good;
      std::memcpy(bad.data() + end_64 + offset, &value, 8);
      EXPECT_NE(ErrorOf(bad), "") << offset;
    }
  }
  // Sizes and offset of the directory's first entry and of its local header.
  const size_t entry = good.find("PK\1\2");
  const size_t entry_extra = entry + 46 + std::strlen("camera_index.npy");
  const size_t local_extra = 30 + std::strlen("camera_index.npy");
  for (const size_t extra : {entry_extra, local_extra}) {
    ASSERT_EQ(good.substr(extra, 2), std::string("\1\0", 2));
    for (const size_t offset : {4u, 12u, 20u}) {
      for (const uint64_t value : {uint64_t{1} << 40, kHuge}) {
        std::string bad = good;
        std::memcpy(bad.data() + extra + offset, &value, 8);
        if (extra == local_extra && offset == 20) {
          continue;  // the padding
        }
        EXPECT_THAT(ErrorOf(bad), HasSubstr("camera_index.npy: expected "));
      }
    }
    // A field that is too short or too long for the rest.
    for (const uint16_t size : {0, 8, 0xffff}) {
      std::string bad = good;
      std::memcpy(bad.data() + extra + 2, &size, 2);
      EXPECT_THAT(ErrorOf(bad), HasSubstr("camera_index.npy"));
    }
  }
}

TEST_F(BalNpz, EveryTruncation) {
  for (const uint32_t zip64_from : {0u, 0xffffffffu}) {
    const std::string good = FileOf(Arrays(SmallProblem()), zip64_from);
    for (size_t size = 4; size < good.size(); ++size) {
      BalProblem problem;
      std::string error;
      ASSERT_FALSE(
          ReadBalMemory("f", good.data(), size, &problem, &error, {1, 64}));
      EXPECT_THAT(error, MatchesRegex("f: .*expected .*, found .*"));
    }
  }
}

// A damaged file says so or reads as the same problem (a date, a version).
TEST_F(BalNpz, EveryByteDamaged) {
  const BalProblem problem = SmallProblem();
  for (const uint32_t zip64_from : {0u, 0xffffffffu}) {
    const std::string good = FileOf(Arrays(problem), zip64_from);
    int num_harmless = 0;
    for (size_t i = 4; i < good.size(); ++i) {
      for (const unsigned char flip : {0x01, 0x80, 0xff}) {
        std::string bad = good;
        bad[i] ^= flip;
        BalProblem read;
        std::string error;
        if (ReadBalMemory(
                "f", bad.data(), bad.size(), &read, &error, {1, 64})) {
          ExpectSameProblem(read, problem);
          ++num_harmless;
        } else {
          EXPECT_THAT(error, MatchesRegex("f: .*expected .*, found .*"));
        }
      }
    }
    // Versions, dates, attributes and padding: 3 x 10 members and entries of at
    // most 20 such bytes and 63 of padding.
    EXPECT_LT(num_harmless, 3 * 10 * (20 + 63));
  }
}

TEST_F(BalNpz, Pipes) {
  const BalProblem problem = SmallProblem();
  const std::string good = FileOf(Arrays(problem));
  for (const std::string& bytes : {good, good.substr(0, 1000)}) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    ASSERT_EQ(write(ends[1], bytes.data(), bytes.size()),
              static_cast<ssize_t>(bytes.size()));
    close(ends[1]);
    BalProblem read;
    std::string error;
    const bool is_read =
        ReadBalFile("/dev/fd/" + std::to_string(ends[0]), &read, &error);
    close(ends[0]);
    EXPECT_EQ(is_read, bytes == good) << error;
    if (is_read) {
      ExpectSameProblem(read, problem);
    }
  }
}

TEST_F(BalNpz, FilesThatShrink) {
  const std::string good = FileOf(Arrays(SmallProblem()));
  for (const size_t size : {size_t{0}, size_t{40}, good.size() - 30}) {
    WriteBytes(path_, good);
    std::string error;
    const std::unique_ptr<ByteStream> stream = OpenFile(path_, &error);
    ASSERT_NE(stream, nullptr) << error;
    WriteBytes(path_, good.substr(0, size));
    BalProblem problem;
    EXPECT_FALSE(ReadBalNpz(BalReadOptions(), *stream, &problem, &error));
    EXPECT_THAT(error, MatchesRegex(".*expected .*, found .*"));
  }
}

TEST_F(BalNpz, NoAllocationOnTheWordOfTheFile) {
  // 2^31 - 1 observations would take 51 GB.
  const BalProblem problem = SmallProblem();
  std::vector<NpyArray> arrays = Arrays(problem);
  arrays[0].shape = arrays[1].shape = {2147483647};
  arrays[2].shape = {2147483647, 2};
  EXPECT_EQ(ErrorOf(FileOf(arrays)),
            "f: camera_index.npy: expected as many bytes as dtype and shape "
            "need, found 20");
}

// Reads what this library writes and writes it again as others would.
constexpr const char kPythonScript[] = R"(
import sys
import numpy as np
path, out = sys.argv[1:]
a = dict(np.load(path))
assert list(a) == ['camera_index', 'point_index', 'observations', 'cameras',
                   'points'], list(a)
assert [v.dtype.str for v in a.values()] == ['<i4', '<i4', '<f8', '<f8', '<f8']
assert a['observations'].shape == (len(a['camera_index']), 2)
assert a['cameras'].shape[1:] == (9,) and a['points'].shape[1:] == (3,)
np.savez(out + '.plain.npz', **a)
a['camera_index'] = a['camera_index'].astype(np.int64)
np.savez(out + '.wide.npz', **dict(reversed(a.items())))
np.savez_compressed(out + '.compressed.npz', **a)
a['cameras'] = np.asfortranarray(a['cameras'])
np.savez(out + '.fortran.npz', **a)
)";

TEST_F(BalNpz, NumPyReadsAndWritesTheSameBits) {
  if (std::system("python3 -c 'import numpy' 2>/dev/null") != 0) {
    GTEST_SKIP() << "skipped: no python3 with numpy";
  }
  const std::string script = TempPath("script.py");
  WriteBytes(script, kPythonScript);
  const BalProblem problem = RandomProblem(20, 300, 2000);
  for (const uint32_t zip64_from : {0u, 0xffffffffu}) {
    FileOf(Arrays(problem), zip64_from);
    ASSERT_EQ(
        std::system(("python3 '" + script + "' '" + path_ + "' '" + path_ + "'")
                        .c_str()),
        0);
    std::string error;
    for (const char* name : {"", ".plain.npz", ".wide.npz"}) {
      BalProblem read;
      ASSERT_TRUE(ReadBalFile(path_ + name, &read, &error)) << error;
      ExpectSameProblem(read, problem);
    }
    BalProblem read;
    EXPECT_FALSE(ReadBalFile(path_ + ".compressed.npz", &read, &error));
    EXPECT_THAT(error, HasSubstr("numpy.savez_compressed"));
    EXPECT_FALSE(ReadBalFile(path_ + ".fortran.npz", &read, &error));
    EXPECT_THAT(error, HasSubstr("cameras.npy: expected C order"));
    for (const char* name : {"plain", "wide", "compressed", "fortran"}) {
      std::remove((path_ + "." + name + ".npz").c_str());
    }
  }
  std::remove(script.c_str());
}

}  // namespace
}  // namespace ceres_ext::bal
