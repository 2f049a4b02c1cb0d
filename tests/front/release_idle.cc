// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Frees what solves keep when all tests have run, so that what is left then is
// a leak.
#include "ceres_ext/solve.h"
#include "gtest/gtest.h"

namespace ceres_ext {
namespace {

class ReleaseAtTheEnd : public ::testing::Environment {
 public:
  void TearDown() override { ReleaseIdle(); }
};

::testing::Environment* const environment =
    ::testing::AddGlobalTestEnvironment(new ReleaseAtTheEnd);

}  // namespace
}  // namespace ceres_ext
