// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Pages of bundle_adjuster as a reader and a browser see them.

#ifndef TESTS_BAL_PAGE_TEST_UTIL_H_
#define TESTS_BAL_PAGE_TEST_UTIL_H_

#include <string>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/bal/program_test_util.h"

namespace ceres_ext::bal {

// The scripts lie beside this file.
inline Outcome RunPageScript(const std::string& script,
                             const std::string& page) {
  return Execute("python3",
                 "'" CERES_EXT_TEST_SOURCE_DIR "/tests/bal/" + script + "' '" +
                     page + "'");
}

inline bool HasPython() { return Execute("python3", "--version").code == 0; }

// The output of read_page.py.
inline nlohmann::json ReadPage(const std::string& page) {
  const Outcome outcome = RunPageScript("read_page.py", page);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return outcome.code == 0 ? nlohmann::json::parse(outcome.out)
                           : nlohmann::json();
}

// Skips the test where there is no browser.
inline void ExpectGoodRendering(const std::string& page) {
  const Outcome outcome = RunPageScript("render_page.py", page);
  if (outcome.code == 77) {
    GTEST_SKIP() << outcome.out;
  }
  EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
}

}  // namespace ceres_ext::bal

#endif  // TESTS_BAL_PAGE_TEST_UTIL_H_
