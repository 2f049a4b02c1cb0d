// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include <bzlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <memory>
#include <new>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "problem_io/bal_problem.h"
#include "problem_io/bal_reader.h"
#include "problem_io/bal_text.h"
#include "problem_io/bal_writer.h"
#include "problem_io/byte_stream.h"
#include "problem_io/number_text.h"
#include "tests/bal/bal_test_util.h"
#include "tests/bal/refusals.h"

// The largest single allocation since the last reset, to show that the reader
// takes no memory on the word of a header.
namespace {
std::atomic<size_t> largest_allocation = 0;
}  // namespace

__attribute__((noinline)) void* operator new(size_t size) {
  size_t largest = largest_allocation;
  while (largest < size &&
         !largest_allocation.compare_exchange_weak(largest, size)) {
  }
  void* memory = std::malloc(size);
  if (memory == nullptr) {
    throw std::bad_alloc();
  }
  return memory;
}
__attribute__((noinline)) void operator delete(void* memory) noexcept {
  std::free(memory);
}
__attribute__((noinline)) void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}

namespace ceres_ext::bal {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

std::string Bzip2(const std::string& text) {
  std::string out(text.size() + text.size() / 100 + 600, '\0');
  unsigned size = out.size();
  EXPECT_EQ(BZ2_bzBuffToBuffCompress(out.data(),
                                     &size,
                                     const_cast<char*>(text.data()),
                                     text.size(),
                                     1,
                                     0,
                                     0),
            BZ_OK);
  out.resize(size);
  return out;
}

std::string Gzip(const std::string& text) {
  z_stream stream = {};
  EXPECT_EQ(
      deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY),
      Z_OK);
  std::string out(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = text.size();
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = out.size();
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

// Lines:        1        2               3               4 ... 21   22 ... 24
// Two cameras, one point, two observations.
std::string SmallText() {
  std::string text = "2 1 2\n0 0 1.5 -2.5\n1 0 3e2 -4.25e-1\n";
  for (int i = 0; i < 18; ++i) {
    text += std::to_string(i) + ".125\n";
  }
  return text + "7\n8\n-9\n";
}

// Blocks that end behind each character, and those of programs.
std::vector<BalReadOptions> AllOptions() {
  std::vector<BalReadOptions> all(1);
  for (const int num_threads : {1, 2, 7, 16}) {
    for (const size_t block_size : {1, 3, 17, 1 << 18}) {
      all.push_back({num_threads, block_size});
    }
  }
  return all;
}

std::string ErrorOf(const std::string& bytes) {
  return ErrorOfReading(bytes, AllOptions());
}

void ExpectSmall(const BalProblem& problem) {
  EXPECT_EQ(problem.camera_size, 9);
  EXPECT_EQ(problem.num_cameras(), 2);
  EXPECT_EQ(problem.num_points(), 1);
  EXPECT_EQ(problem.num_observations(), 2);
  EXPECT_EQ(problem.camera_index, (BalArray<int32_t>{0, 1}));
  EXPECT_EQ(problem.point_index, (BalArray<int32_t>{0, 0}));
  EXPECT_EQ(problem.observations, (BalArray<double>{1.5, -2.5, 300.0, -0.425}));
  ASSERT_EQ(problem.cameras.size(), 18u);
  for (int i = 0; i < 18; ++i) {
    EXPECT_EQ(problem.cameras[i], i + 0.125);
  }
  EXPECT_EQ(problem.points, (std::vector<double>{7, 8, -9}));
}

void ExpectReadsAsSmall(const std::string& bytes) {
  for (const BalReadOptions& options : AllOptions()) {
    BalProblem problem;
    std::string error;
    ASSERT_TRUE(ReadBalMemory(
        "f", bytes.data(), bytes.size(), &problem, &error, options))
        << error << "; " << options.num_threads << " threads, blocks of "
        << options.block_size;
    ExpectSmall(problem);
  }
}

TEST(BalReader, Text) { ExpectReadsAsSmall(SmallText()); }

TEST(BalReader, AnyWhiteSpaceAndPlusSigns) {
  std::string text = SmallText();
  std::string spaced = "\r\n\t ";
  for (const char c : text) {
    if (c == '\n') {
      spaced += "\r\n\n";
    } else if (c == ' ') {
      spaced += " \t  \v\f";
    } else {
      spaced += c;
    }
  }
  ExpectReadsAsSmall(spaced);
  ExpectReadsAsSmall(Damaged(SmallText(), "0 0 1.5 -2.5", "+0 +0 +1.5 -2.5"));
  text.pop_back();  // no end of line at the end
  ExpectReadsAsSmall(text);
}

TEST(BalReader, CompressedAlsoInSeveralStreams) {
  const std::string text = SmallText();
  const std::string head = text.substr(0, 30);
  const std::string tail = text.substr(30);
  ExpectReadsAsSmall(Gzip(text));
  ExpectReadsAsSmall(Gzip(head) + Gzip(tail));
  ExpectReadsAsSmall(Bzip2(text));
  ExpectReadsAsSmall(Bzip2(head) + Bzip2(tail));
  ExpectReadsAsSmall(Bzip2("") + Bzip2(text));
}

// Blocks of 100 kB of text, in one stream and in three, whole and damaged.
TEST(BalReader, BlocksOfBzip2OnThreads) {
  const BalProblem problem = RandomProblem(20, 300, 8000);
  const std::string path = TempPath("a.txt");
  std::string error;
  ASSERT_TRUE(WriteBalFile(path, problem, &error)) << error;
  const std::string text = ReadBytes(path);
  std::remove(path.c_str());
  ASSERT_GT(text.size(), 350000u);
  const auto read_by = [&](const std::string& bytes,
                           int num_threads,
                           std::string* error) {
    BalProblem read;
    const bool is_read = ReadBalMemory(
        "f", bytes.data(), bytes.size(), &read, error, {num_threads, 1 << 18});
    if (is_read) {
      ExpectSameProblem(read, problem);
    }
    return is_read;
  };
  const std::string one = Bzip2(text);
  const std::string three =
      Bzip2(text.substr(0, 150000)) + Bzip2("") + Bzip2(text.substr(150000));
  for (const std::string& good : {one, three}) {
    for (const int num_threads : {1, 2, 7, 16}) {
      EXPECT_TRUE(read_by(good, num_threads, &error)) << error;
    }
    // A bit of a block, of a checksum and of the end, and what comes behind.
    std::vector<std::string> bad_files = {
        good + "x", good + good, good.substr(0, good.size() / 2)};
    for (const size_t i : {size_t{4},
                           size_t{11},
                           size_t{40000},
                           good.size() / 2,
                           good.size() - 12,
                           good.size() - 3}) {
      bad_files.push_back(good);
      bad_files.back()[i] ^= 16;
    }
    for (const std::string& bad : bad_files) {
      std::string serial_error;
      ASSERT_FALSE(read_by(bad, 1, &serial_error));
      for (const int num_threads : {2, 7}) {
        EXPECT_FALSE(read_by(bad, num_threads, &error));
        EXPECT_EQ(error, serial_error);
      }
    }
  }
  // 255 times as much text as its blocks are long.
  const std::string spaces = Bzip2(std::string(8000000, ' ') + text);
  EXPECT_TRUE(read_by(spaces, 7, &error)) << error;
}

TEST(BalReader, ContentNotNameDecides) {
  const std::string path = TempPath("misnamed.txt");
  for (const std::string& bytes :
       {SmallText(), Gzip(SmallText()), Bzip2(SmallText())}) {
    WriteBytes(path, bytes);
    BalProblem problem;
    std::string error;
    ASSERT_TRUE(ReadBalFile(path, &problem, &error)) << error;
    ExpectSmall(problem);
  }
  std::remove(path.c_str());
}

TEST(BalReader, BlocksThatEndAnywhere) {
  const std::string text = SmallText();
  for (const std::string& bytes : {text, Gzip(text), Bzip2(text)}) {
    for (size_t block_size = 1; block_size <= text.size() + 2; ++block_size) {
      for (const int num_threads : {1, 3}) {
        BalProblem problem;
        std::string error;
        ASSERT_TRUE(ReadBalMemory("f",
                                  bytes.data(),
                                  bytes.size(),
                                  &problem,
                                  &error,
                                  {num_threads, block_size}))
            << error << "; blocks of " << block_size;
        ExpectSmall(problem);
      }
    }
  }
}

// A fault in each line, at each of its tokens, in a text of several blocks.
TEST(BalReader, FirstFaultInItsLineForAnyNumberOfThreads) {
  const std::string text = SmallText();
  std::vector<size_t> tokens;
  for (size_t i = 0; i < text.size(); ++i) {
    if (!std::isspace(text[i]) && (i == 0 || std::isspace(text[i - 1]))) {
      tokens.push_back(i);
    }
  }
  ASSERT_EQ(tokens.size(), 32u);
  for (size_t i = 0; i < tokens.size(); ++i) {
    std::string bad = text;
    // Later faults don't matter.
    for (size_t j = i; j < tokens.size(); j += 3) {
      bad[tokens[j]] = 'x';
    }
    const int64_t line =
        1 + std::count(text.begin(), text.begin() + tokens[i], '\n');
    const std::string error = ErrorOf(bad);
    EXPECT_THAT(error, HasSubstr("f:" + std::to_string(line) + ": expected "));
    EXPECT_THAT(error, HasSubstr("found 'x"));
  }
}

TEST(BalReader, Pipes) {
  const std::string text = SmallText();
  for (const std::string& bytes : {text, Gzip(text), Bzip2(text)}) {
    for (const BalReadOptions& options : AllOptions()) {
      int ends[2];
      ASSERT_EQ(pipe(ends), 0);
      ASSERT_EQ(write(ends[1], bytes.data(), bytes.size()),
                static_cast<ssize_t>(bytes.size()));
      close(ends[1]);
      BalProblem problem;
      std::string error;
      EXPECT_TRUE(ReadBalFile(
          "/dev/fd/" + std::to_string(ends[0]), &problem, &error, options))
          << error;
      ExpectSmall(problem);
      close(ends[0]);
    }
  }
}

// The file is as long as when it was opened, or else a fault.
TEST(BalReader, FilesThatShrinkOrGrow) {
  const std::string path = TempPath("changing.txt");
  const std::string text = SmallText();
  for (const BalReadOptions& options : AllOptions()) {
    for (const bool shrinks : {true, false}) {
      WriteBytes(path, text);
      std::string error;
      const std::unique_ptr<ByteStream> stream = OpenFile(path, &error);
      ASSERT_NE(stream, nullptr) << error;
      WriteBytes(path, shrinks ? text.substr(0, 60) : text + "10\n");
      BalProblem problem;
      EXPECT_EQ(ReadBalText(options, stream.get(), &problem, &error), !shrinks);
      if (shrinks) {
        EXPECT_THAT(error, HasSubstr("found the end of the file"));
      } else {
        ExpectSmall(problem);
      }
    }
  }
  std::remove(path.c_str());
}

TEST(BalReader, NumbersAcrossBufferBoundaries) {
  // A block has 2^18 bytes; blanks move a number across its end.
  for (int offset = -8; offset <= 8; ++offset) {
    std::string text = "2 1 2\n0 0 1.5 -2.5\n1 0 3e2";
    text += std::string((1 << 18) - text.size() + offset, ' ');
    text += "-4.25e-1\n" + SmallText().substr(SmallText().find("0.125"));
    BalProblem problem;
    std::string error;
    ASSERT_TRUE(ReadBalMemory("f", text.data(), text.size(), &problem, &error))
        << error;
    ExpectSmall(problem);
  }
}

TEST(BalReader, NumbersTooSmallForADoubleAreZero) {
  const std::string half =
      Damaged(SmallText(), "0 0 1.5 -2.5", "0 0 1e-400 -1e-400");
  BalProblem problem;
  std::string error;
  for (const char* third : {"1 0 +0.00001e-320 4.9406564584124654e-324",
                            "1 0 1e-99999999999999999999 5e-324"}) {
    const std::string text = Damaged(half, "1 0 3e2 -4.25e-1", third);
    ASSERT_TRUE(ReadBalMemory("f", text.data(), text.size(), &problem, &error))
        << error;
    EXPECT_EQ(problem.observations[0], 0.0);
    EXPECT_FALSE(std::signbit(problem.observations[0]));
    EXPECT_EQ(problem.observations[1], 0.0);
    EXPECT_TRUE(std::signbit(problem.observations[1]));
    EXPECT_EQ(problem.observations[2], 0.0);
    EXPECT_EQ(problem.observations[3],
              std::numeric_limits<double>::denorm_min());
  }
}

TEST(BalReader, MalformedText) {
  for (const auto& row : Refusals("BAL as text")) {
    const std::string text = Damaged(SmallText(), row[0], row[1]);
    EXPECT_EQ(ErrorOf(text), row[2]);
    // Compression changes nothing about it.
    EXPECT_EQ(ErrorOf(Gzip(text)), row[2]);
    EXPECT_EQ(ErrorOf(Bzip2(text)), row[2]);
  }
}

// Whatever the prefix, the reader says no, unless all numbers are there.
TEST(BalReader, EveryTruncation) {
  const std::string text = SmallText();
  for (size_t size = 0; size < text.size() - 2; ++size) {
    EXPECT_THAT(ErrorOf(text.substr(0, size)),
                AnyOf(HasSubstr("found the end of the file"),
                      HasSubstr("found '-'"),
                      HasSubstr("e'"),
                      HasSubstr("e-'")))
        << size;
  }
  const std::string gzip = Gzip(text);
  for (size_t size = 3; size < gzip.size(); ++size) {
    EXPECT_THAT(ErrorOf(gzip.substr(0, size)),
                HasSubstr("found truncated gzip data"))
        << size;
  }
  const std::string bzip2 = Bzip2(text);
  for (size_t size = 3; size < bzip2.size(); ++size) {
    EXPECT_THAT(ErrorOf(bzip2.substr(0, size)),
                HasSubstr("found truncated bzip2 data"))
        << size;
  }
}

TEST(BalReader, CorruptCompression) {
  const std::string text = SmallText();
  for (const std::string& good : {Gzip(text), Bzip2(text)}) {
    for (size_t i = 0; i < good.size(); ++i) {
      for (const unsigned char flip : {0x01, 0x80, 0xff}) {
        std::string bad = good;
        bad[i] ^= flip;
        BalProblem problem;
        std::string error;
        // A few bits are padding or of no importance (gzip's time stamp).
        if (ReadBalMemory("f", bad.data(), bad.size(), &problem, &error)) {
          ExpectSmall(problem);
        } else {
          EXPECT_THAT(error, MatchesRegex("f:[0-9]+: expected .*, found .*"));
        }
      }
    }
  }
  EXPECT_THAT(ErrorOf(Gzip(text) + "trailing"),
              HasSubstr("f:25: expected nothing after the last point, found "
                        "corrupt gzip data (incorrect header check)"));
  EXPECT_THAT(ErrorOf(Bzip2(text) + "trailing"),
              HasSubstr("f:25: expected nothing after the last point, found "
                        "corrupt bzip2 data (no bzip2 header)"));
  std::string bad_checksum = Gzip(text);
  bad_checksum[bad_checksum.size() - 5] ^= 1;
  EXPECT_THAT(ErrorOf(bad_checksum), HasSubstr("found corrupt gzip data"));
}

// How much libbz2 gives of this block before it finds it corrupt depends on how
// much is asked for at a time.
TEST(BalReader, CorruptCompressionInBlocksOfAnySize) {
  const char kBytes[] =
      "\102\132\150\071\061\101\131\046\123\131\007\276\005\147\000\000\046"
      "\131\000\000\020\100\013\162\000\002\000\040\000\110\110\201\251\010"
      "\060\223\114\115\113\000\000\304\377\377\377\377\377\377\377\377\377"
      "\377\377\377\377\377\377\377\377\377\377\377\377\377\377\377\377\377"
      "\377\377\377\377\377\377\377\377\377\377\377\377\377\377\377\377\377"
      "\377\377\377\377\377\377\377\377\377\377\377\377\377\377\377\377\377"
      "\377\120\000\000\003\375\212\264\153\262\311\150\073\012\236\112\031"
      "\030\064\150\013\102\101\101\000\240\056\212\176\344\020\000\022\112"
      "\031\030\064\150\013\102\101\012\000\240\056\212\223\114\115\113\000"
      "\000\304\120\000\000\003\375\212\264\153\262\311\150\073\012\236\112"
      "\031\030\064\150\013\102\101\101\000\240\056\212\176\344\020\000\022"
      "\112\031\030\064\150\013\102\101\012\000\240\056\212\176\176\344\020"
      "\000\022\000\143\141\155\145\162\141\137\151\156\144\145\170\377\377"
      "\377\011\027\160\171\065\331\016\000\100\000\000\000\000\000\000\000"
      "\000";
  EXPECT_THAT(ErrorOf(std::string(kBytes, sizeof(kBytes) - 1)),
              HasSubstr("found corrupt bzip2 data"));
}

TEST(BalReader, NoAllocationOnTheWordOfTheHeader) {
  for (const char* text : {"2147483647 2147483647 2147483647\n0 0 1 1\n",
                           "1 1 2147483647\n0 0 1 1\n",
                           "2147483647 1 1\n0 0 1 1\n1\n"}) {
    largest_allocation = 0;
    EXPECT_THAT(ErrorOf(text), HasSubstr("found the end of the file"));
    // The reader's own buffer.
    EXPECT_LE(largest_allocation, size_t{1} << 18);
  }
}

TEST(BalReader, FilesThatAreNone) {
  BalProblem problem;
  std::string error;
  const std::string missing = TempPath("missing");
  EXPECT_FALSE(ReadBalFile(missing, &problem, &error));
  EXPECT_EQ(
      error,
      missing + ": expected a readable file, found No such file or directory");
  EXPECT_FALSE(ReadBalFile("/", &problem, &error));
  EXPECT_EQ(error, "/: expected a readable file, found a directory");
}

TEST(BalWriter, ReadsBackAsTheSameBits) {
  const BalProblem written = RandomProblem(20, 300, 20000);
  for (const char* name :
       {"plain.txt", "compressed.gz", "compressed.bz2", "arrays.npz"}) {
    const std::string path = TempPath(name);
    std::string error;
    ASSERT_TRUE(WriteBalFile(path, written, &error)) << error;
    for (const int num_threads : {0, 1, 2, 7, 16}) {
      BalProblem read;
      ASSERT_TRUE(ReadBalFile(path, &read, &error, {num_threads, 1 << 12}))
          << error;
      ExpectSameProblem(read, written);
    }
    std::remove(path.c_str());
  }
}

// For several parts, which threads make.
TEST(BalWriter, TextIsThatOfItsNumbersInOrder) {
  const BalProblem problem = RandomProblem(20, 9000, 20000);
  std::string text = "20 9000 20000\n";
  for (int i = 0; i < 20000; ++i) {
    text += NumberText(problem.camera_index[i]) + " " +
            NumberText(problem.point_index[i]) + " " +
            NumberText(problem.observations[2 * i]) + " " +
            NumberText(problem.observations[2 * i + 1]) + "\n";
  }
  for (const std::vector<double>* values :
       {&problem.cameras, &problem.points}) {
    for (const double value : *values) {
      text += NumberText(value) + "\n";
    }
  }
  const std::string path = TempPath("a.txt");
  std::string error;
  ASSERT_TRUE(WriteBalFile(path, problem, &error)) << error;
  EXPECT_TRUE(ReadBytes(path) == text);
  std::remove(path.c_str());
}

TEST(BalWriter, SuffixChoosesCompression) {
  const BalProblem problem = RandomProblem(2, 10, 100);
  std::string error;
  const struct {
    const char* name;
    std::string magic;
  } kCases[] = {{"a.txt", "2 10 100\n"},
                {"a.gz", "\x1f\x8b"},
                {"a.bz2", "BZh"},
                {"a.npz", "PK\3\4"}};
  for (const auto& c : kCases) {
    const std::string path = TempPath(c.name);
    ASSERT_TRUE(WriteBalFile(path, problem, &error)) << error;
    EXPECT_EQ(ReadBytes(path).substr(0, c.magic.size()), c.magic);
    std::remove(path.c_str());
  }
}

TEST(BalWriter, Failures) {
  const BalProblem problem = RandomProblem(2, 10, 100);
  std::string error;
  BalProblem quaternions = problem;
  quaternions.camera_size = 10;
  for (const char* suffix : {".txt", ".npz"}) {
    const std::string nowhere = TempPath("no_such_folder") + "/a" + suffix;
    EXPECT_FALSE(WriteBalFile(nowhere, problem, &error));
    EXPECT_EQ(error,
              nowhere +
                  ": expected a file that can be written, found No such "
                  "file or directory");
    EXPECT_FALSE(WriteBalFile(TempPath("q") + suffix, quaternions, &error));
    EXPECT_THAT(error, HasSubstr("expected cameras with 9 parameters"));
  }
  EXPECT_FALSE(WriteBalFile("/", problem, &error));
  EXPECT_THAT(error, HasSubstr("found Is a directory"));
  if (access("/dev/full", W_OK) == 0) {
    EXPECT_FALSE(WriteBalFile("/dev/full", problem, &error));
    EXPECT_EQ(error,
              "/dev/full: expected a file that can be written, found No space "
              "left on device");
    for (const char* suffix : {".gz", ".bz2"}) {
      const std::string link = TempPath("full") + suffix;
      ASSERT_EQ(symlink("/dev/full", link.c_str()), 0);
      EXPECT_FALSE(WriteBalFile(link, problem, &error));
      EXPECT_THAT(error, HasSubstr("expected a file that can be written"));
      std::remove(link.c_str());
    }
  }
}

TEST(PlyWriter, CamerasGreenPointsWhite) {
  const std::string path = TempPath("a.ply");
  std::string error;
  ASSERT_TRUE(
      WritePlyFile(path, {1, 2, 3}, {0.5, -4, 1e10, 7, 8, 9}, {}, &error))
      << error;
  EXPECT_EQ(ReadBytes(path),
            "ply\n"
            "format ascii 1.0\n"
            "element vertex 3\n"
            "property float x\n"
            "property float y\n"
            "property float z\n"
            "property uchar red\n"
            "property uchar green\n"
            "property uchar blue\n"
            "end_header\n"
            "1 2 3 0 255 0\n"
            "0.5 -4 1e+10 255 255 255\n"
            "7 8 9 255 255 255\n");
  std::remove(path.c_str());
}

// Vertices on the ellipsoid, in the order x, y, z of its axes, and faces that
// close it, seen from outside with their vertices turning left.
TEST(PlyWriter, Ellipsoids) {
  const std::string path = TempPath("a.ply");
  std::string error;
  const Ellipsoid ellipsoid = {{1, 2, 3}, {2, 0, 0, 0, 3, 0, 0, 0, 4}};
  ASSERT_TRUE(WritePlyFile(path, {}, {0, 0, 0}, {ellipsoid}, &error)) << error;
  std::istringstream file(ReadBytes(path));
  std::string line;
  while (line != "end_header") {
    ASSERT_TRUE(std::getline(file, line));
  }
  std::getline(file, line);
  EXPECT_EQ(line, "0 0 0 255 255 255");
  std::vector<std::array<double, 3>> vertices(1);
  for (int i = 0; i < 18; ++i) {
    double x = 0.0;
    double y = 0.0;
    double z = 0.0;
    std::string color;
    file >> x >> y >> z;
    std::getline(file, color);
    EXPECT_EQ(color, " 255 0 0");
    vertices.push_back({(x - 1) / 2, (y - 2) / 3, (z - 3) / 4});
    EXPECT_NEAR(
        std::hypot(vertices.back()[0], vertices.back()[1], vertices.back()[2]),
        1.0,
        1e-6);
  }
  std::map<std::pair<int, int>, int> edges;
  for (int i = 0; i < 32; ++i) {
    int count = 0;
    int v[3];
    ASSERT_TRUE(file >> count >> v[0] >> v[1] >> v[2]);
    EXPECT_EQ(count, 3);
    double determinant = 0.0;
    for (int k = 0; k < 3; ++k) {
      ASSERT_GE(v[k], 1);
      ASSERT_LE(v[k], 18);
      ++edges[{v[k], v[(k + 1) % 3]}];
      const auto& a = vertices[static_cast<size_t>(v[0])];
      const auto& b = vertices[static_cast<size_t>(v[1])];
      const auto& c = vertices[static_cast<size_t>(v[2])];
      const auto j = static_cast<size_t>((k + 1) % 3);
      const auto l = static_cast<size_t>((k + 2) % 3);
      determinant += a[static_cast<size_t>(k)] * (b[j] * c[l] - b[l] * c[j]);
    }
    EXPECT_GT(determinant, 0.0);
  }
  EXPECT_EQ(edges.size(), 96u);
  for (const auto& [edge, count] : edges) {
    EXPECT_EQ(count, 1);
    EXPECT_EQ(edges.count({edge.second, edge.first}), 1u);
  }
  std::remove(path.c_str());
}

}  // namespace
}  // namespace ceres_ext::bal
