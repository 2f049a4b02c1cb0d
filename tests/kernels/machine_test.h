// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The machine that a program tests. A source of tests is compiled for the host
// and, with CERES_EXT_TEST_ON_CUDA, for a device, real or emulated
// (ceres_ext_add_machine_test).
#ifndef CERES_EXT_TESTS_KERNELS_MACHINE_TEST_H_
#define CERES_EXT_TESTS_KERNELS_MACHINE_TEST_H_

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "cuda_kernels/base/buffer.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/cuda_machine.h"
#include "cuda_kernels/machine/host_machine.h"
#include "gtest/gtest.h"
#include "tests/kernels/cuda_test_util.h"
#include "tests/kernels/run_ok.h"

namespace ceres_ext::kernels {

class HostMemoryTest : public ::testing::Test {
 protected:
  static constexpr BlockLayout kLayout = kHostLayout;
  static constexpr int kNumRuns = 2;
  template <typename T>
  using Buffer = HostBuffer<T>;

  template <typename T>
  HostBuffer<T> Upload(const std::vector<T>& values) {
    HostBuffer<T> buffer;
    EXPECT_TRUE(machine_.Upload(values, &buffer).ok());
    return buffer;
  }
  // Every byte 0xff, NaN for floating point.
  template <typename T>
  HostBuffer<T> Poisoned(int64_t n) {
    HostBuffer<T> buffer;
    EXPECT_TRUE(machine_.Allocate(n, &buffer).ok());
    if (n > 0) {
      std::memset(static_cast<void*>(buffer.data()), 0xff, n * sizeof(T));
    }
    return buffer;
  }
  template <typename T>
  std::vector<T> Download(const HostBuffer<T>& buffer) {
    return {buffer.data(), buffer.data() + buffer.size()};
  }
  template <typename Function>
  Status RunInWay(int /*run*/, Function&& fn) {
    return fn();
  }
  HostMachine* machine() { return &machine_; }

 private:
  HostMachine machine_{3};
};

#ifdef CERES_EXT_TEST_ON_CUDA
using Machine = CudaMachine;
using MemoryTest = CudaTest;
#else
using Machine = HostMachine;
using MemoryTest = RepeatingTest<HostMemoryTest>;
#endif
inline constexpr bool kOnHost = std::is_same_v<Machine, HostMachine>;

class MachineTest : public MemoryTest {
 protected:
  // Block arrays in the layout of the machine, from and to that of the host.
  template <typename T>
  static std::vector<T> InLayout(const std::vector<T>& blocks, int block_size) {
    return kOnHost ? blocks : ToDeviceLayout<T>(blocks, block_size);
  }
  template <typename T>
  static std::vector<T> FromLayout(const std::vector<T>& blocks,
                                   int block_size) {
    if (kOnHost) {
      return blocks;
    }
    const std::vector<double> host = ToHostLayout(blocks, block_size);
    return {host.begin(), host.end()};
  }

  template <typename Params>
  void RunOk(const Params& params) {
    kernels::RunOk(params, machine());
  }
  template <typename Params, typename On>
  void RunOk(const Params& params, On* on) {
    kernels::RunOk(params, on);
  }
};

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_TESTS_KERNELS_MACHINE_TEST_H_
