// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Results of a test here and in a process of its own, compared bit by bit:
//
//   const uint64_t hash = HashOfBits(Solve());
//   if (!IsAnotherProcess(hash)) {
//     EXPECT_EQ(HashOfAnotherProcess(), hash);
//   }
#ifndef CERES_EXT_TESTS_COMMON_BITS_H_
#define CERES_EXT_TESTS_COMMON_BITS_H_

#include <unistd.h>

#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace ceres_ext {

inline constexpr char kPrintBits[] = "CERES_EXT_TEST_PRINT_BITS";

// FNV-1a.
inline uint64_t HashOfBits(const std::vector<double>& values) {
  uint64_t hash = 14695981039346656037u;
  for (const double value : values) {
    unsigned char bytes[sizeof(value)];
    std::memcpy(bytes, &value, sizeof(value));
    for (const unsigned char byte : bytes) {
      hash = (hash ^ byte) * 1099511628211u;
    }
  }
  return hash;
}

// True if HashOfAnotherProcess has started this one, which then tells its hash.
inline bool IsAnotherProcess(uint64_t hash) {
  if (std::getenv(kPrintBits) == nullptr) {
    return false;
  }
  std::printf("bits %llu\n", static_cast<unsigned long long>(hash));
  return true;
}

// The hash of the running test in a new process; 0 if there is none.
inline uint64_t HashOfAnotherProcess() {
  char program[PATH_MAX] = "";
  if (readlink("/proc/self/exe", program, sizeof(program) - 1) <= 0) {
    return 0;
  }
  const ::testing::TestInfo* test =
      ::testing::UnitTest::GetInstance()->current_test_info();
  const std::string command = std::string(kPrintBits) + "=1 '" + program +
                              "' --gtest_filter=" + test->test_suite_name() +
                              "." + test->name() + " 2>/dev/null";
  FILE* output = popen(command.c_str(), "r");
  if (output == nullptr) {
    return 0;
  }
  unsigned long long hash = 0;
  for (char line[256]; std::fgets(line, sizeof(line), output) != nullptr;) {
    std::sscanf(line, "bits %llu", &hash);
  }
  pclose(output);
  return hash;
}

}  // namespace ceres_ext

#endif  // CERES_EXT_TESTS_COMMON_BITS_H_
