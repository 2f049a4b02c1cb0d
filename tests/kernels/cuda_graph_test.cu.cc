// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// On a GPU only: launches, settings and copies of a launch buffer on the
// caller's stream, against the same on the host. Operations are tested in
// graphs and from a launch buffer where they are tested otherwise
// (RunInWay, cuda_test_util.h).
#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "cuda_kernels/machine/cuda_launch.cuh"
#include "cuda_kernels/machine/cuda_launch_buffer.h"
#include "tests/kernels/cuda_test_util.h"

namespace ceres_ext::kernels {
namespace {

class CudaGraphTest : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped()) {
      return;
    }
    // A caller's stream.
    ASSERT_EQ(cudaStreamCreate(&stream_), cudaSuccess);
    CudaContextOptions options;
    options.stream = stream_;
    SetUpMachine(options);
  }
  void TearDown() override {
    CudaTest::TearDown();
    machine_.reset();
    context_.reset();
    if (stream_ != nullptr) {
      EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
    }
  }

  cudaStream_t stream_ = nullptr;
};

// x[i] = factor x[i] + y[i]
__global__ void MultiplyAddKernel(int64_t n,
                                  double factor,
                                  double* x,
                                  const double* y) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < n) {
    x[i] = factor * x[i] + y[i];
  }
}

// Sequences of kernels, settings and copies of bytes at any alignment, whose
// sizes, addresses and numbers change from one time to the next, against the
// same on the host. All values are integers, so that sums are exact.
TEST_F(CudaGraphTest, LaunchBuffer) {
  constexpr int64_t n = 5000;
  std::vector<double> x(n), y(n);
  for (int64_t i = 0; i < n; ++i) {
    x[i] = static_cast<double>(i);
    y[i] = static_cast<double>(n - i);
  }
  auto device_x = Upload(x);
  auto device_y = Upload(y);
  context_->EnableLaunchBuffer();
  context_->SetBuffersLaunches(true);
  for (int round = 0; round < 24; ++round) {
    const BufferLaunches scope(*context_);
    const bool swapped = round % 2 == 1;
    std::vector<double>& a = swapped ? y : x;
    std::vector<double>& b = swapped ? x : y;
    double* const device_a = swapped ? device_y.data() : device_x.data();
    double* const device_b = swapped ? device_x.data() : device_y.data();
    // Beyond the threads of a block, and of other sizes from round 10 on.
    const int64_t m = round < 10 ? n : n - 700;
    const auto multiply_add = [&](double factor) {
      for (int64_t i = 0; i < m; ++i) {
        a[i] = factor * a[i] + b[i];
      }
      ASSERT_OK(Launch("MultiplyAdd",
                       MultiplyAddKernel,
                       {CeilDivide(m, 128), 128},
                       context_->stream(),
                       m,
                       factor,
                       device_a,
                       device_b));
    };
    const auto set = [&](double* values,
                         double* device_values,
                         int value,
                         int64_t begin,
                         int64_t num_bytes) {
      std::memset(reinterpret_cast<char*>(values) + begin,
                  value,
                  static_cast<size_t>(num_bytes));
      ASSERT_OK(context_->SetBytes(
          reinterpret_cast<char*>(device_values) + begin, value, num_bytes));
    };
    const auto copy = [&](int64_t to, int64_t from, int64_t num_bytes) {
      std::memcpy(reinterpret_cast<char*>(a.data()) + to,
                  reinterpret_cast<char*>(b.data()) + from,
                  static_cast<size_t>(num_bytes));
      ASSERT_OK(context_->CopyOnDevice(reinterpret_cast<char*>(device_a) + to,
                                       reinterpret_cast<char*>(device_b) + from,
                                       num_bytes));
    };
    ASSERT_OK(machine_->RecordMark(0));
    multiply_add(round);
    // Many settings, some on top of each other: the last one holds.
    for (int k = 0; k < 20; ++k) {
      set(a.data(), device_a, k % 2, 8 * (7 * k + round), 8 * (k + 5));
    }
    set(a.data(), device_a, 0, 0, 8 * 200);
    set(b.data(), device_b, 0, 0, 8 * 3000);
    multiply_add(2.0);
    copy(8 * 11, 8 * (13 + round), 8 * 2000);
    ASSERT_OK(machine_->RecordMark(1));
    // Odd addresses and sizes. The bytes of a number are all the same before.
    set(a.data(), device_a, 0, 8 * 40, 16);
    set(a.data(), device_a, 1, 8 * 40 + 3, 5);
    copy(8 * 44 + 1, 8 * 50 + 1, 13);
    set(a.data(), device_a, 0, 8 * 40, 8 * 10);
    multiply_add(-1.0);
    if (round % 3 == 0) {
      ASSERT_OK(context_->Synchronize());
      EXPECT_GE(machine_->SecondsBetweenMarks(0, 1), 0.0);
    }
  }
  EXPECT_FALSE(context_->launch_buffer()->empty());
  const LaunchBuffer::Record record = context_->launch_buffer()->record();
  // Outside a scope whatever asks for the stream starts what waits.
  EXPECT_TRUE(SameBits(Download(device_x), x));
  EXPECT_TRUE(SameBits(Download(device_y), y));
  EXPECT_TRUE(context_->launch_buffer()->empty());
  EXPECT_GT(record.num_graphs, 0);
  EXPECT_GT(record.num_graph_launches, record.num_graphs);
  EXPECT_GT(record.num_changed_kernels, 0);
  context_->SetBuffersLaunches(false);
}

// A launch that fails is reported by what starts it, once.
TEST_F(CudaGraphTest, LaunchBufferReportsFailures) {
  auto x = Upload(std::vector<double>(8, 1.0));
  context_->EnableLaunchBuffer();
  context_->SetBuffersLaunches(true);
  const auto launch = [&](int block_size) {
    const BufferLaunches scope(*context_);
    return Launch("MultiplyAdd",
                  MultiplyAddKernel,
                  {1, block_size},
                  context_->stream(),
                  int64_t{8},
                  2.0,
                  x.data(),
                  x.data());
  };
  EXPECT_TRUE(launch(1 << 20).ok());  // No block is so large.
  const Status status = context_->Synchronize();
  EXPECT_EQ(status.code, StatusCode::kDeviceError);
  EXPECT_NE(status.message.find("MultiplyAdd"), std::string::npos)
      << status.message;
  EXPECT_TRUE(context_->Synchronize().ok());
  // By somebody who can't report: the next one does.
  EXPECT_TRUE(launch(1 << 20).ok());
  static_cast<void>(context_->stream());
  EXPECT_EQ(context_->Synchronize().code, StatusCode::kDeviceError);
  EXPECT_TRUE(launch(8).ok());
  EXPECT_TRUE(context_->Synchronize().ok());
  EXPECT_EQ(Download(x), std::vector<double>(8, 3.0));
}

}  // namespace
}  // namespace ceres_ext::kernels
