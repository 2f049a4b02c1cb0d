// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Ceres's tests take this from GoogleTest 1.14; older ones don't have it.

#ifndef TESTS_CLIENTS_SOURCE_FOLDER_H_
#define TESTS_CLIENTS_SOURCE_FOLDER_H_

#include <cstdlib>
#include <string>

namespace testing {

inline std::string SrcDir() {
  const char* const folder = std::getenv("TEST_SRCDIR");
  return folder == nullptr ? "" : folder;
}

}  // namespace testing

#endif  // TESTS_CLIENTS_SOURCE_FOLDER_H_
