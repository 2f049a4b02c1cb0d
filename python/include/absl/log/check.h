// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// As glog/logging.h of this folder, for the headers of the next Ceres.

#ifndef PYTHON_INCLUDE_ABSL_LOG_CHECK_H_
#define PYTHON_INCLUDE_ABSL_LOG_CHECK_H_

#include "glog/logging.h"

#endif  // PYTHON_INCLUDE_ABSL_LOG_CHECK_H_
