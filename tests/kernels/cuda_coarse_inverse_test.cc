// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "cuda_kernels/machine/cuda_machine.h"
#include "cuda_kernels/ops/coarse_inverse.h"
#include "tests/kernels/cuda_test_util.h"
#include "tests/kernels/random_vector.h"
#include "tests/kernels/run_ok.h"

namespace ceres_ext::kernels {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

class CoarseInverseTest : public CudaTest {};

// B'B / n + 0.1 I, B random.
std::vector<double> RandomMatrix(int64_t n) {
  const std::vector<double> b = RandomVector(n * n, 17);
  std::vector<double> a(static_cast<size_t>(n * n));
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = 0; i < n; ++i) {
      double sum = 0.0;
      for (int64_t k = 0; k < n; ++k) {
        sum += b[n * i + k] * b[n * j + k];
      }
      a[n * j + i] = sum / static_cast<double>(n) + (i == j ? 0.1 : 0.0);
    }
  }
  return a;
}

double MaxAbs(const std::vector<double>& x) {
  double max = 0.0;
  for (const double value : x) {
    max = std::max(max, std::fabs(value));
  }
  return max;
}

// Both triangles, and A X = I. Each element of X is the sum of at most n
// products of elements of L^-1, each of which has rounded n times; all are
// below the norms of A and X, which are at most n times their largest elements.
TEST_F(CoarseInverseTest, IsTheInverse) {
  constexpr double kEps = std::numeric_limits<double>::epsilon();
  for (const int64_t n : {1, 2, 31, 32, 33, 64, 131}) {
    for (const int64_t stride : {n, n + 3}) {
      SCOPED_TRACE(testing::Message() << n << ' ' << stride);
      const std::vector<double> a = RandomMatrix(n);
      // Values above the diagonal and behind the columns have no meaning.
      std::vector<double> given(static_cast<size_t>(n * stride), kNaN);
      for (int64_t j = 0; j < n; ++j) {
        std::copy(a.begin() + n * j + j,
                  a.begin() + n * (j + 1),
                  given.begin() + stride * j + j);
      }
      DeviceBuffer<double> matrix = Upload(given);
      DeviceBuffer<double> panel = Upload(std::vector<double>(
          static_cast<size_t>(CoarseInverseParams::kTile * n), kNaN));
      DeviceBuffer<int32_t> failed = Upload(std::vector<int32_t>{0});
      RunOk(
          CoarseInverseParams{
              n, stride, matrix.data(), panel.data(), failed.data()},
          machine_.get());
      EXPECT_EQ(Download(failed), std::vector<int32_t>{0});
      const std::vector<double> inverse = Download(matrix);
      std::vector<double> x;
      for (int64_t j = 0; j < n; ++j) {
        x.insert(x.end(),
                 inverse.begin() + stride * j,
                 inverse.begin() + stride * j + n);
      }
      const auto size = static_cast<double>(n);
      const double tolerance =
          kEps * size * size * size * MaxAbs(a) * MaxAbs(x);
      for (int64_t j = 0; j < n; ++j) {
        for (int64_t i = 0; i < n; ++i) {
          ASSERT_EQ(x[n * j + i], x[n * i + j]);
          double sum = i == j ? -1.0 : 0.0;
          for (int64_t k = 0; k < n; ++k) {
            sum += a[n * k + i] * x[n * j + k];
          }
          ASSERT_LE(std::fabs(sum), tolerance) << i << ' ' << j;
        }
      }
    }
  }
}

TEST_F(CoarseInverseTest, NamesTheMinorThatIsNotPositiveDefinite) {
  constexpr int64_t kSize = 70;
  for (const int64_t bad : {0, 31, 32, 69}) {
    SCOPED_TRACE(bad);
    std::vector<double> a = RandomMatrix(kSize);
    a[(kSize + 1) * bad] = -1.0;
    DeviceBuffer<double> matrix = Upload(a);
    DeviceBuffer<double> panel = Upload(std::vector<double>(
        static_cast<size_t>(CoarseInverseParams::kTile * kSize), 0.0));
    DeviceBuffer<int32_t> failed = Upload(std::vector<int32_t>{0});
    RunOk(
        CoarseInverseParams{
            kSize, kSize, matrix.data(), panel.data(), failed.data()},
        machine_.get());
    EXPECT_EQ(Download(failed),
              std::vector<int32_t>{static_cast<int32_t>(bad) + 1});
  }
}

}  // namespace
}  // namespace ceres_ext::kernels
