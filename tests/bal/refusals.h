// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The table of what readers and programs refuse, refusals.txt.

#ifndef TESTS_BAL_REFUSALS_H_
#define TESTS_BAL_REFUSALS_H_

#include <algorithm>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "problem_io/bal_problem.h"
#include "problem_io/bal_reader.h"
#include "tests/bal/bal_test_util.h"

namespace ceres_ext::bal {

using Values = std::map<std::string, std::string>;

// "01 ff" as bytes.
inline std::string FromHex(const std::string& hex) {
  std::istringstream digits(hex);
  std::string bytes;
  for (std::string byte; digits >> byte;) {
    bytes += static_cast<char>(std::stoi(byte, nullptr, 16));
  }
  return bytes;
}

// A field of the table with its escapes and values.
inline std::string Expand(const std::string& field, const Values& values) {
  std::string text;
  for (size_t i = 0; i < field.size(); ++i) {
    if (field[i] == '\\') {
      const char c = field[++i];
      text += c == 'n'   ? "\n"
              : c == 't' ? "\t"
              : c == 'r' ? "\r"
              : c == 'x' ? FromHex(field.substr(i + 1, 2))
                         : std::string(1, c);
      i += c == 'x' ? 2 : 0;
    } else if (field[i] == '{') {
      const size_t end = field.find('}', i);
      const std::string name = field.substr(i + 1, end - i - 1);
      const size_t times = name.find(" x ");
      if (times != std::string::npos) {
        text += std::string(std::stoul(name.substr(times + 3)),
                            Expand(name.substr(0, times), {}).at(0));
      } else {
        EXPECT_EQ(values.count(name), 1u) << name;
        text += values.at(name);
      }
      i = end;
    } else {
      text += field[i];
    }
  }
  return text;
}

// The rows of a section of the table.
inline std::vector<std::vector<std::string>> Refusals(
    const std::string& section, const Values& values = {}) {
  std::istringstream table(
      ReadBytes(CERES_EXT_TEST_SOURCE_DIR "/tests/bal/refusals.txt"));
  std::vector<std::vector<std::string>> rows;
  bool is_here = false;
  for (std::string line; std::getline(table, line);) {
    if (line.empty() || line[0] == '#') {
      continue;
    }
    if (line[0] == '[') {
      is_here = line == "[" + section + "]";
    } else if (is_here) {
      rows.emplace_back();
      for (size_t begin = 0; begin <= line.size();) {
        const size_t end = std::min(line.find('|', begin), line.size());
        rows.back().push_back(Expand(line.substr(begin, end - begin), values));
        begin = end + 1;
      }
      EXPECT_EQ(rows.back().size(), rows.front().size()) << line;
    }
  }
  EXPECT_FALSE(rows.empty()) << section;
  return rows;
}

// The error of reading these bytes, one printable line in all of these ways.
inline std::string ErrorOfReading(const std::string& bytes,
                                  const std::vector<BalReadOptions>& ways) {
  std::string error;
  for (const BalReadOptions& way : ways) {
    BalProblem problem;
    std::string other;
    EXPECT_FALSE(
        ReadBalMemory("f", bytes.data(), bytes.size(), &problem, &other, way));
    EXPECT_EQ(problem.num_observations(), 0);
    EXPECT_TRUE(problem.cameras.empty());
    EXPECT_THAT(other, ::testing::MatchesRegex("f:.*expected .*, found .*"));
    EXPECT_TRUE(std::all_of(other.begin(), other.end(), [](char c) {
      return c >= ' ' && c <= '~';
    })) << other;
    EXPECT_TRUE(&way == &ways.front() || other == error)
        << error << "; " << other << "; " << way.num_threads
        << " threads, blocks of " << way.block_size;
    error = other;
  }
  return error;
}

// `text` where `from` is replaced by `to`, as the table says.
inline std::string Damaged(std::string text,
                           const std::string& from,
                           const std::string& to) {
  if (from == "*") {
    return to;
  }
  if (from[0] == '@') {
    char* plus = nullptr;
    size_t at = std::strtoul(from.c_str() + 1, &plus, 10);
    at += std::strtoul(plus, nullptr, 10);
    const std::string bytes = FromHex(to);
    return text.replace(at, to.empty() ? text.npos : bytes.size(), bytes);
  }
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

}  // namespace ceres_ext::bal

#endif  // TESTS_BAL_REFUSALS_H_
