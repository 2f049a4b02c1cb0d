// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The macros that the headers of Ceres use, for cost functions that
// ceres_ext.compile_cost_function compiles: they check nothing, as those of
// Ceres in a release build, and need no library.

#ifndef PYTHON_INCLUDE_GLOG_LOGGING_H_
#define PYTHON_INCLUDE_GLOG_LOGGING_H_

#include <iostream>

#define CERES_EXT_NO_CHECK(condition) \
  while (false && (condition)) std::cerr << ""

#define CHECK(condition) CERES_EXT_NO_CHECK(condition)
#define CHECK_EQ(a, b) CERES_EXT_NO_CHECK((a) == (b))
#define CHECK_NE(a, b) CERES_EXT_NO_CHECK((a) != (b))
#define CHECK_GE(a, b) CERES_EXT_NO_CHECK((a) >= (b))
#define CHECK_GT(a, b) CERES_EXT_NO_CHECK((a) > (b))
#define CHECK_LE(a, b) CERES_EXT_NO_CHECK((a) <= (b))
#define CHECK_LT(a, b) CERES_EXT_NO_CHECK((a) < (b))
#define DCHECK(condition) CHECK(condition)
#define DCHECK_EQ(a, b) CHECK_EQ(a, b)
#define DCHECK_NE(a, b) CHECK_NE(a, b)
#define DCHECK_GE(a, b) CHECK_GE(a, b)
#define DCHECK_GT(a, b) CHECK_GT(a, b)
#define DCHECK_LE(a, b) CHECK_LE(a, b)
#define DCHECK_LT(a, b) CHECK_LT(a, b)
#define LOG(severity) CERES_EXT_NO_CHECK(true)
#define VLOG(level) CERES_EXT_NO_CHECK(true)

#endif  // PYTHON_INCLUDE_GLOG_LOGGING_H_
