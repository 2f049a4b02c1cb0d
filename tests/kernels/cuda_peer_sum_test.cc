// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Sums over ranks by one kernel, one rank after the other: the windows of the
// others are such that their values are there. That devices wait for each
// other is tested where there are several (several_devices_test).

#include "cuda_kernels/machine/cuda_peer_sum.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "cuda_kernels/machine/device_buffer.h"
#include "gtest/gtest.h"
#include "tests/kernels/cuda_test_util.h"

namespace ceres_ext::kernels {
namespace {

constexpr int64_t kBytes = sizeof(PeerWindow);

class CudaPeerSumTest : public testing::Test {
 protected:
  void SetUp() override {
    if (NumCudaDevices(nullptr) == 0) {
      GTEST_SKIP() << "skipped: no CUDA device";
    }
    ASSERT_OK(CudaContext::Create({}, &context_));
  }
  void TearDown() override {
    windows_.clear();
    context_.reset();
  }

  // All ranks are about to take sum `sum` for which all but `rank` have come,
  // with values[r] of rank r.
  void Prepare(int rank,
               int num_blocks,
               uint64_t sum,
               const std::vector<std::vector<double>>& values,
               PeerSumParams* params) {
    const auto size = static_cast<int>(values.size());
    params->rank = rank;
    params->size = size;
    params->num_blocks = num_blocks;
    params->n = static_cast<int64_t>(values[0].size());
    windows_.clear();
    auto window = std::make_unique<PeerWindow>();
    for (int r = 0; r < size; ++r) {
      *window = PeerWindow();
      for (int b = 0; b < num_blocks; ++b) {
        window->num_sums[b] = sum - 1;
        for (int other = 0; other < size; ++other) {
          window->arrived[other][b] = other == rank ? sum - 1 : sum;
        }
      }
      for (size_t i = 0; i < values[r].size(); ++i) {
        // The kernel writes its own, and does not read those of the last sum.
        window->values[sum % 2][i] = r == rank ? NAN : values[r][i];
        window->values[(sum + 1) % 2][i] = NAN;
      }
      windows_.push_back(std::make_unique<DeviceBuffer<char>>());
      ASSERT_OK(windows_.back()->Allocate(context_.get(), kBytes));
      ASSERT_OK(context_->CopyToDevice(
          windows_.back()->data(), window.get(), kBytes));
      params->windows[r] =
          reinterpret_cast<PeerWindow*>(windows_.back()->data());
    }
  }
  void Download(const PeerSumParams& params, int rank, PeerWindow* window) {
    ASSERT_OK(
        context_->CopyToHost(window, params.windows[rank], sizeof(*window)));
  }

  std::unique_ptr<CudaContext> context_;
  std::vector<std::unique_ptr<DeviceBuffer<char>>> windows_;
};

TEST_F(CudaPeerSumTest, SumsInTheOrderOfTheRanks) {
  std::mt19937_64 random(17);
  // Values whose sums depend on the order.
  std::uniform_real_distribution<double> exponent(-40.0, 40.0);
  const auto last = std::make_unique<PeerWindow>();
  for (const int size : {1, 2, 3, PeerWindow::kMaxRanks}) {
    for (const int64_t n : {1, 2, 511, 1025, 5000}) {
      for (const int num_blocks : {1, 7, PeerWindow::kMaxBlocks}) {
        SCOPED_TRACE(testing::Message()
                     << size << " ranks, " << n << " values, " << num_blocks
                     << " blocks");
        std::vector<std::vector<double>> values(size);
        for (std::vector<double>& of_rank : values) {
          for (int64_t i = 0; i < n; ++i) {
            of_rank.push_back(std::exp2(exponent(random)) *
                              (random() % 2 == 0 ? 1.0 : -1.0));
          }
        }
        std::vector<double> expected = values[0];
        for (int r = 1; r < size; ++r) {
          for (int64_t i = 0; i < n; ++i) {
            expected[i] += values[r][i];
          }
        }
        const auto rank = static_cast<int>(random() % size);
        const uint64_t sum = 1 + random() % 5;
        PeerSumParams params;
        ASSERT_NO_FATAL_FAILURE(
            Prepare(rank, num_blocks, sum, values, &params));
        DeviceBuffer<double> x;
        ASSERT_OK(x.Allocate(context_.get(), n));
        ASSERT_OK(context_->CopyToDevice(
            x.data(), values[rank].data(), n * sizeof(double)));
        params.x = x.data();
        ASSERT_OK(QueuePeerSum(params, context_.get()));
        std::vector<double> found(n);
        ASSERT_OK(
            context_->CopyToHost(found.data(), x.data(), n * sizeof(double)));
        EXPECT_EQ(found, expected);
        // The others see that this rank has come, with its values.
        for (int r = 0; r < size; ++r) {
          ASSERT_NO_FATAL_FAILURE(Download(params, r, last.get()));
          for (int b = 0; b < num_blocks; ++b) {
            if (r == rank) {
              ASSERT_EQ(last->num_sums[b], sum);
            } else {
              ASSERT_EQ(last->arrived[rank][b], sum);
              ASSERT_EQ(last->num_sums[b], sum - 1);
            }
          }
          if (r == rank) {
            for (int64_t i = 0; i < n; ++i) {
              ASSERT_EQ(last->values[sum % 2][i], values[rank][i]);
            }
          }
        }
      }
    }
  }
}

TEST_F(CudaPeerSumTest, IsStoppedWhereARankDoesNotCome) {
  const std::vector<std::vector<double>> values(3,
                                                std::vector<double>(100, 1.0));
  PeerSumParams params;
  ASSERT_NO_FATAL_FAILURE(Prepare(1, 4, 1, values, &params));
  // Rank 2 has not come to block 3.
  const auto window = std::make_unique<PeerWindow>();
  ASSERT_NO_FATAL_FAILURE(Download(params, 1, window.get()));
  window->arrived[2][3] = 0;
  ASSERT_OK(context_->CopyToDevice(params.windows[1], window.get(), kBytes));
  PageLockedBuffer stop;
  ASSERT_OK(AllocatePageLocked(sizeof(int32_t), &stop));
  *static_cast<int32_t*>(stop.get()) = 1;
  params.stop = static_cast<const int32_t*>(stop.get());
  DeviceBuffer<double> x;
  ASSERT_OK(x.Allocate(context_.get(), params.n));
  ASSERT_OK(context_->CopyToDevice(
      x.data(), values[1].data(), params.n * sizeof(double)));
  params.x = x.data();
  ASSERT_OK(QueuePeerSum(params, context_.get()));
  std::vector<double> found(100);
  ASSERT_OK(
      context_->CopyToHost(found.data(), x.data(), params.n * sizeof(double)));
  for (int i = 0; i < 100; ++i) {
    if (i < 75) {
      EXPECT_EQ(found[i], 3.0);
    } else {
      EXPECT_TRUE(std::isnan(found[i])) << i;
    }
  }
}

}  // namespace
}  // namespace ceres_ext::kernels
