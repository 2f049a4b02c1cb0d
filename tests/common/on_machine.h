// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// For tests of one part that run on the host, on an emulated device
// (CERES_EXT_EMULATED) and on a GPU (CERES_EXT_TEST_ON_CUDA): a machine, and a
// problem as it is imported.

#ifndef CERES_EXT_TESTS_COMMON_ON_MACHINE_H_
#define CERES_EXT_TESTS_COMMON_ON_MACHINE_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "ceres/problem_impl.h"
#include "ceres/program.h"
#include "ceres_ext/base/machines.h"
#include "ceres_ext/blocks/machine_problem.h"
#include "ceres_ext/import/import_rows.h"
#include "ceres_ext/under_ceres/program_rows.h"
#include "gtest/gtest.h"

namespace ceres_ext {

inline constexpr double kEpsilon = std::numeric_limits<double>::epsilon();

#ifdef CERES_EXT_TEST_ON_CUDA
using TestMachine = kernels::CudaMachine;
#else
using TestMachine = kernels::HostMachine;
#endif

class OnMachine : public testing::Test {
 protected:
  template <typename T>
  using Buffer = TestMachine::Buffer<T>;

  void SetUp() override {
#ifdef CERES_EXT_TEST_ON_CUDA
    const kernels::Status status = TestMachine::Create({}, &machine_);
    if (!status.ok()) {
      GTEST_SKIP() << "No device: " << status.message;
    }
#else
    machine_ = std::make_unique<TestMachine>(3);
#endif
  }

  template <typename T>
  Buffer<T> Upload(const std::vector<T>& values) {
    Buffer<T> buffer;
    const kernels::Status status = machine_->Upload(
        static_cast<int64_t>(values.size()), values.data(), &buffer);
    EXPECT_TRUE(status.ok()) << status.message;
    return buffer;
  }
  template <typename T>
  std::vector<T> Download(int64_t n, const T* data) {
    std::vector<T> values(n);
    const kernels::Status status = machine_->Download(n, data, values.data());
    EXPECT_TRUE(status.ok()) << status.message;
    return values;
  }

  // The results of the preprocessor and the import for a problem.
  void Import(ceres::internal::ProblemImpl* problem) {
    double fixed_cost = 0.0;
    std::string error;
    program_ =
        problem->program().CreateReducedProgram(&removed_, &fixed_cost, &error);
    ASSERT_NE(program_, nullptr) << error;
    program_->SetParameterOffsetsAndIndex();
    ASSERT_TRUE(
        ImportProgram(*program_, {}, &host_context_, &structure_, &error))
        << error;
    const kernels::Status status = blocks_.Setup(/*merge_blocks=*/false,
                                                 &structure_,
                                                 /*recomputed=*/false,
                                                 /*mixed=*/false,
                                                 /*kept_index=*/nullptr,
                                                 &host_context_,
                                                 machine_.get());
    ASSERT_TRUE(status.ok()) << status.message;
  }

  std::unique_ptr<TestMachine> machine_;
  kernels::HostContext host_context_{3};
  std::vector<double*> removed_;
  std::unique_ptr<ceres::internal::Program> program_;
  ProblemStructure structure_;
  MachineProblem<TestMachine> blocks_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_TESTS_COMMON_ON_MACHINE_H_
