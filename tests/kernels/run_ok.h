// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#ifndef CERES_EXT_TESTS_KERNELS_RUN_OK_H_
#define CERES_EXT_TESTS_KERNELS_RUN_OK_H_

#include "cuda_kernels/base/status.h"
#include "gtest/gtest.h"

namespace ceres_ext::kernels {

// Runs an operation that must not fail. In a test, Run alone would be
// testing::Test::Run.
template <typename Params, typename Machine>
void RunOk(const Params& params, Machine* machine) {
  const Status status = Run(params, machine);
  EXPECT_TRUE(status.ok()) << status.message;
}

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_TESTS_KERNELS_RUN_OK_H_
