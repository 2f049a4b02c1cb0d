// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// bal_convert, and arrays in place of text for bundle_adjuster and
// bal_generate.

#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "problem_io/bal_problem.h"
#include "problem_io/bal_reader.h"
#include "tests/bal/bal_test_util.h"
#include "tests/bal/program_test_util.h"

namespace ceres_ext::bal {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class BalConvertTest : public BundleAdjusterTest {
 protected:
  static Outcome Convert(const std::string& input, const std::string& output) {
    return Execute(BAL_CONVERT,
                   "--input='" + input + "' --output='" + output + "'");
  }

  static void ExpectConverted(const std::string& input,
                              const std::string& output) {
    const Outcome outcome = Convert(input, output);
    EXPECT_EQ(outcome.code, 0);
    EXPECT_EQ(outcome.out, "");
    EXPECT_EQ(outcome.err, "");
  }
};

TEST_F(BalConvertTest, AllFormatsInAllDirections) {
  const std::string text = ReadBytes(input_);
  const char* const kNames[] = {"a.txt", "a.gz", "a.bz2", "a.npz"};
  for (const char* name : kNames) {
    ExpectConverted(input_, File(name));
  }
  EXPECT_EQ(ReadBytes(File(kNames[0])), text);
  for (const char* from : kNames) {
    for (const char* to : kNames) {
      const std::string converted = File(std::string("b_") + to);
      ExpectConverted(File(from), converted);
      EXPECT_EQ(ReadBytes(converted), ReadBytes(File(to)))
          << from << ", " << to;
      // In its own place.
      ExpectConverted(converted, converted);
      EXPECT_EQ(ReadBytes(converted), ReadBytes(File(to)))
          << from << ", " << to;
    }
  }
}

TEST_F(BalConvertTest, Failures) {
  EXPECT_EQ(Execute(BAL_CONVERT, "--no_such_flag").code, 1);
  EXPECT_EQ(Execute(BAL_CONVERT, "--help").code, 0);
  const std::string output = File("out.npz");
  ExpectRefusals(
      BAL_CONVERT,
      "bal_convert",
      {{"input", input_}, {"missing", File("missing")}, {"output", output}});
  // A damaged input leaves the output as it was.
  ExpectConverted(input_, output);
  const std::string good = ReadBytes(output);
  std::string bad = good;
  bad[bad.size() / 2] ^= 1;
  const std::string damaged = File("damaged.npz");
  WriteBytes(damaged, bad);
  ExpectFails(BAL_CONVERT,
              "--input='" + damaged + "' --output='" + output + "'",
              2,
              damaged +
                  ": observations.npy: expected an undamaged array, found a "
                  "wrong CRC-32");
  EXPECT_EQ(ReadBytes(output), good);
}

TEST_F(BalConvertTest, BundleAdjusterReadsAndWritesArrays) {
  const std::string arrays = File("input.npz");
  ExpectConverted(input_, arrays);
  const std::string of_text = File("of_text.txt");
  const std::string of_arrays = File("of_arrays.npz");
  for (const auto& [input, output] :
       {std::pair(input_, of_text), std::pair(arrays, of_arrays)}) {
    const Outcome outcome =
        Adjust("--input='" + input + "' --output='" + output + "'");
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(
        outcome.out,
        StartsWith(input + ": 8 cameras, 200 points, 900 observations"));
  }
  const std::string back = File("back.txt");
  ExpectConverted(of_arrays, back);
  EXPECT_EQ(ReadBytes(back), ReadBytes(of_text));
  WriteBytes(arrays, ReadBytes(arrays).substr(0, 1000));
  const Outcome outcome = Adjust("--input='" + arrays + "'");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err,
              HasSubstr(arrays + ": expected an .npz file that ends in"));
}

TEST_F(BalConvertTest, BalGenerateWritesArrays) {
  const std::string arrays = File("generated.npz");
  const std::string truth = File("truth.npz");
  const Outcome outcome =
      Execute(BAL_GENERATE,
              "--num_cameras=8 --num_points=200 --num_observations=900 "
              "--output='" +
                  arrays + "' --truth='" + truth + "'");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  BalProblem of_text;
  BalProblem of_arrays;
  std::string error;
  ASSERT_TRUE(ReadBalFile(input_, &of_text, &error)) << error;
  ASSERT_TRUE(ReadBalFile(arrays, &of_arrays, &error)) << error;
  ExpectSameProblem(of_arrays, of_text);
  ASSERT_TRUE(ReadBalFile(truth, &of_arrays, &error)) << error;
  ExpectSameBits(of_arrays.observations, of_text.observations);
  EXPECT_NE(of_arrays.points, of_text.points);
}

}  // namespace
}  // namespace ceres_ext::bal
