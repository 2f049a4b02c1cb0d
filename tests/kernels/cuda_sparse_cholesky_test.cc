// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The sparse factorisation on a device, against bounds (cholesky_test_util.h)
// that hold for any order of elimination.
#include "cuda_kernels/machine/cuda_sparse_cholesky.h"

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kernels/cholesky_test_util.h"
#include "tests/kernels/cuda_faults.h"
#include "tests/kernels/cuda_test_util.h"

#ifdef CERES_EXT_EMULATED
#include "tests/kernels/emulation/cuda_runtime.h"
#include "tests/kernels/emulation/spoiler.h"
#endif

namespace ceres_ext::kernels {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The lower triangle of a matrix in compressed sparse rows.
struct HostCsr {
  std::vector<int64_t> row_begin = {0};
  std::vector<int32_t> column;
  std::vector<double> values;

  // Those elements that are not 0, and the diagonal.
  explicit HostCsr(const Matrix& a) {
    for (int64_t i = 0; i < a.n; ++i) {
      for (int64_t j = 0; j <= i; ++j) {
        if (a(i, j) != 0.0 || i == j) {
          column.push_back(static_cast<int32_t>(j));
          values.push_back(a(i, j));
        }
      }
      row_begin.push_back(static_cast<int64_t>(column.size()));
    }
  }
  // The place of element (i, j).
  size_t Place(int64_t i, int64_t j) const {
    size_t at = static_cast<size_t>(row_begin[static_cast<size_t>(i)]);
    while (column[at] != j) {
      ++at;
    }
    return at;
  }
};

// M M' + n I, elements of M 0 or +-1, those outside of `pattern` 0. No
// eigenvalue is below n.
enum class Pattern { kDiagonal, kBand, kArrow, kRandom, kDense };
Matrix PositiveDefinite(int64_t n, Pattern pattern, unsigned seed) {
  std::mt19937 random(seed + static_cast<unsigned>(n));
  std::vector<double> m(static_cast<size_t>(n * n));
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      const unsigned number = random();
      const bool has = pattern == Pattern::kDiagonal ? i == j
                       : pattern == Pattern::kBand   ? i - j <= 2 && j <= i
                       : pattern == Pattern::kArrow  ? i == j || i == n - 1
                       : pattern == Pattern::kRandom ? number / 3 % 16 == 0
                                                     : true;
      m[static_cast<size_t>(i * n + j)] =
          has ? static_cast<double>(number % 3) - 1.0 : 0.0;
    }
  }
  return FromFactor(n, m);
}

TEST(CudaSparseCholeskyLibraries, AreThereOrMissed) {
  const Status status = CudaSparseCholesky::Available();
  // The library that CI has fetched opens without a device too.
  EXPECT_TRUE(status.ok() ||
              std::getenv("CERES_EXT_TEST_NEEDS_CUDSS") == nullptr)
      << status.message;
  if (status.ok()) {
    EXPECT_TRUE(CudaSparseCholesky::Available().ok());
  } else {
    EXPECT_EQ(status.code, StatusCode::kUnsupported);
    EXPECT_NE(status.message.find("cuDSS"), std::string::npos)
        << status.message;
    EXPECT_EQ(CudaSparseCholesky::Available().message, status.message);
  }
}

class CudaSparseCholeskyTest : public FactorizationTest<CudaSparseCholesky> {
 protected:
  // A pattern and its values on the device.
  struct DeviceCsr {
    LowerCsr csr;
    DeviceBuffer<int64_t> row_begin;
    DeviceBuffer<int32_t> column;
    DeviceBuffer<double> values;
  };
  DeviceCsr ToDevice(const HostCsr& host) {
    DeviceCsr device;
    device.row_begin = Upload(host.row_begin);
    device.column = Upload(host.column);
    device.values = Upload(host.values);
    device.csr = {static_cast<int64_t>(host.row_begin.size()) - 1,
                  static_cast<int64_t>(host.column.size()),
                  device.row_begin.data(),
                  device.column.data()};
    return device;
  }

  int64_t Factorize(const double* values, CudaSparseCholesky* cholesky) {
    int64_t failed_order = -2;
    const Status status = cholesky->Factorize(values, &failed_order);
    EXPECT_TRUE(status.ok()) << status.message;
    return failed_order;
  }
  std::vector<double> Solve(const std::vector<double>& b,
                            CudaSparseCholesky* cholesky) {
    DeviceBuffer<double> rhs = Upload(b);
    DeviceBuffer<double> x = Poisoned<double>(rhs.size());
    const Status status = cholesky->Solve(rhs.data(), x.data());
    EXPECT_TRUE(status.ok()) << status.message;
    EXPECT_TRUE(SameBits(Download(rhs), b));
    // In place.
    const Status again = cholesky->Solve(rhs.data(), rhs.data());
    EXPECT_TRUE(again.ok()) << again.message;
    EXPECT_TRUE(SameBits(Download(rhs), Download(x)));
    const Status checked = cholesky->CheckSolution();
    EXPECT_TRUE(checked.ok()) << checked.message;
    EXPECT_FALSE(cholesky->solution_is_wrong());
    return Download(x);
  }
};

TEST_F(CudaSparseCholeskyTest, SolvesToRounding) {
  CudaSparseCholesky cholesky;  // one for all
  for (const Pattern pattern : {Pattern::kDiagonal,
                                Pattern::kBand,
                                Pattern::kArrow,
                                Pattern::kRandom,
                                Pattern::kDense}) {
    for (const int64_t n : {1, 2, 31, 33, 64, 257}) {
      SCOPED_TRACE(testing::Message()
                   << n << " rows, pattern " << static_cast<int>(pattern));
      const Matrix a = PositiveDefinite(n, pattern, 1);
      const HostCsr host(a);
      const DeviceCsr device = ToDevice(host);
      // The analysis does not depend on the values.
      const DeviceBuffer<double> other =
          Poisoned<double>(device.csr.num_values);
      ASSERT_OK(cholesky.Analyze(device.csr, other.data(), machine_.get()));
      EXPECT_GE(cholesky.num_factor_values(),
                static_cast<int64_t>(host.values.size()));
      EXPECT_LE(cholesky.num_factor_values(), n * n);
      EXPECT_GE(cholesky.num_flops(), 0);
      EXPECT_LE(cholesky.num_flops(), 2 * n * n * n);
      EXPECT_GT(cholesky.device_bytes(), 0);
      EXPECT_GE(cholesky.peak_device_bytes(), cholesky.device_bytes());
      // A first time and once more.
      const std::vector<double> expected = Solution(n);
      const std::vector<double> b = RightHandSide(a, expected);
      std::vector<double> first;
      for (int run = 0; run < 2; ++run) {
        ASSERT_EQ(Factorize(device.values.data(), &cholesky), 0);
        const std::vector<double> x = Solve(b, &cholesky);
        ExpectSolves(a, b, expected, static_cast<double>(n), x);
        first = run == 0 ? x : first;
        EXPECT_TRUE(SameBits(x, first));
      }
    }
  }
}

TEST_F(CudaSparseCholeskyTest, RandomStructures) {
  CudaSparseCholesky cholesky;
  std::mt19937 random(2);
  for (int i = 0; i < 50; ++i) {
    SCOPED_TRACE(i);
    const int64_t n = static_cast<int64_t>(random() % 60) + 1;
    const Matrix a = PositiveDefinite(n, Pattern::kRandom, random());
    const DeviceCsr device = ToDevice(HostCsr(a));
    ASSERT_OK(
        cholesky.Analyze(device.csr, device.values.data(), machine_.get()));
    ASSERT_EQ(Factorize(device.values.data(), &cholesky), 0);
    const std::vector<double> expected = Solution(n);
    const std::vector<double> b = RightHandSide(a, expected);
    ExpectSolves(a, b, expected, static_cast<double>(n), Solve(b, &cholesky));
  }
}

// The check is one of the backward error, which no condition makes larger.
TEST_F(CudaSparseCholeskyTest, SolutionsOfAnyConditionAreRight) {
  CudaSparseCholesky cholesky;
  for (const Matrix& a : IllConditioned()) {
    SCOPED_TRACE(a.n);
    const DeviceCsr device = ToDevice(HostCsr(a));
    ASSERT_OK(
        cholesky.Analyze(device.csr, device.values.data(), machine_.get()));
    ASSERT_EQ(Factorize(device.values.data(), &cholesky), 0);
    for (const unsigned seed : {1, 2, 3}) {
      Solve(RandomVector(a.n, seed), &cholesky);
    }
    // A right-hand side of zero, and one next to the least double.
    for (const double value : {0.0, 1e-308}) {
      Solve(std::vector<double>(static_cast<size_t>(a.n), value), &cholesky);
    }
  }
}

TEST_F(CudaSparseCholeskyTest, ARightHandSideThatIsNotFinite) {
  constexpr int64_t n = 33;
  CudaSparseCholesky cholesky;
  const DeviceCsr device =
      ToDevice(HostCsr(PositiveDefinite(n, Pattern::kBand, 8)));
  ASSERT_OK(cholesky.Analyze(device.csr, device.values.data(), machine_.get()));
  ASSERT_EQ(Factorize(device.values.data(), &cholesky), 0);
  for (const double value : {kNaN, kInfinity}) {
    std::vector<double> b(n, 1.0);
    b[n - 1] = value;
    DeviceBuffer<double> x = Upload(b);
    ASSERT_OK(cholesky.Solve(x.data(), x.data()));
    EXPECT_EQ(cholesky.CheckSolution().code, StatusCode::kNumericalFailure);
  }
}

TEST_F(CudaSparseCholeskyTest, NoRows) {
  CudaSparseCholesky cholesky;
  ASSERT_OK(cholesky.Analyze({}, nullptr, machine_.get()));
  EXPECT_EQ(cholesky.num_factor_values(), 0);
  EXPECT_EQ(Factorize(nullptr, &cholesky), 0);
  ASSERT_OK(cholesky.Solve(nullptr, nullptr));
}

// Other values at another place, on one object and on two: the bits are those
// of the values.
TEST_F(CudaSparseCholeskyTest, SameBitsWhateverWasBefore) {
  constexpr int64_t n = 129;
  const Matrix a = PositiveDefinite(n, Pattern::kRandom, 3);
  const DeviceCsr device = ToDevice(HostCsr(a));
  HostCsr other(a);
  for (double& value : other.values) {
    value *= 3.0;
  }
  const DeviceBuffer<double> other_values = Upload(other.values);
  const std::vector<double> b = RandomVector(n, 4);
  std::vector<double> first;
  for (int object = 0; object < 2; ++object) {
    CudaSparseCholesky cholesky;
    ASSERT_OK(
        cholesky.Analyze(device.csr, device.values.data(), machine_.get()));
    for (int run = 0; run < 3; ++run) {
      ASSERT_EQ(Factorize(device.values.data(), &cholesky), 0);
      const std::vector<double> x = Solve(b, &cholesky);
      first = first.empty() ? x : first;
      EXPECT_TRUE(SameBits(x, first));
      ASSERT_EQ(Factorize(other_values.data(), &cholesky), 0);
      EXPECT_FALSE(SameBits(Solve(b, &cholesky), first));
    }
  }
}

TEST_F(CudaSparseCholeskyTest, NamesTheRowWhosePivotIsNotPositive) {
  CudaSparseCholesky cholesky;
  for (const int64_t n : {1, 2, 33, 129}) {
    const Matrix good = PositiveDefinite(n, Pattern::kRandom, 5);
    for (const int64_t k : {int64_t{0}, n / 2, n - 1}) {
      for (const double pivot : {-1.0, 0.0}) {
        SCOPED_TRACE(testing::Message()
                     << n << " rows, pivot " << k << " is " << pivot);
        // Row k has nothing but its diagonal, so that its pivot is that in any
        // order of elimination.
        Matrix a = good;
        for (int64_t i = 0; i < n; ++i) {
          if (i != k) {
            a.At(std::max(i, k), std::min(i, k)) = 0.0;
          }
        }
        HostCsr host(a);
        DeviceCsr device = ToDevice(host);
        ASSERT_OK(
            cholesky.Analyze(device.csr, device.values.data(), machine_.get()));
        // The first factorisation and a later one.
        for (int run = 0; run < 2; ++run) {
          const double bad = pivot;
          double* const diagonal = device.values.data() + host.Place(k, k);
          ASSERT_OK(machine_->Upload(1, &bad, diagonal));
          EXPECT_EQ(Factorize(device.values.data(), &cholesky), k + 1);
          EXPECT_EQ(cholesky.Solve(nullptr, nullptr).code,
                    StatusCode::kInvalidArgument);
          // It works again.
          const double value = a(k, k);
          ASSERT_OK(machine_->Upload(1, &value, diagonal));
          ASSERT_EQ(Factorize(device.values.data(), &cholesky), 0);
          const std::vector<double> expected = Solution(n);
          const std::vector<double> b = RightHandSide(a, expected);
          ExpectSolves(
              a, b, expected, static_cast<double>(n), Solve(b, &cholesky));
        }
      }
    }
  }
}

// For a matrix in one piece the reported row depends on the order.
TEST_F(CudaSparseCholeskyTest, FindsThatAMatrixIsNotPositiveDefinite) {
  CudaSparseCholesky cholesky;
  for (const int64_t n : {2, 33, 129}) {
    Matrix a = PositiveDefinite(n, Pattern::kDense, 6);
    a.At(n / 2, n / 2) = -1.0;
    const DeviceCsr device = ToDevice(HostCsr(a));
    ASSERT_OK(
        cholesky.Analyze(device.csr, device.values.data(), machine_.get()));
    const int64_t failed_order = Factorize(device.values.data(), &cholesky);
    EXPECT_NE(failed_order, 0);
    EXPECT_LE(failed_order, n);
  }
}

TEST_F(CudaSparseCholeskyTest, NamesTheRowThatIsNotFinite) {
  CudaSparseCholesky cholesky;
  for (const int64_t n : {1, 33, 129}) {
    const HostCsr host(PositiveDefinite(n, Pattern::kDense, 7));
    DeviceCsr device = ToDevice(host);
    ASSERT_OK(
        cholesky.Analyze(device.csr, device.values.data(), machine_.get()));
    for (const double value : {kNaN, kInfinity, -kInfinity}) {
      for (const auto& [i, j] : {std::pair{int64_t{0}, int64_t{0}},
                                 {n / 2, n / 2},
                                 {n / 2, n / 3},
                                 {n - 1, int64_t{0}},
                                 {n - 1, n - 1}}) {
        SCOPED_TRACE(testing::Message()
                     << n << " rows, (" << i << ", " << j << ") is " << value);
        std::vector<double> values = host.values;
        values[host.Place(i, j)] = value;
        // If there are several, the first.
        values.back() = i == n - 1 ? values.back() : kNaN;
        const DeviceBuffer<double> bad = Upload(values);
        EXPECT_EQ(Factorize(bad.data(), &cholesky), i + 1);
        EXPECT_EQ(cholesky.Solve(nullptr, nullptr).code,
                  StatusCode::kInvalidArgument);
      }
    }
    EXPECT_EQ(Factorize(device.values.data(), &cholesky), 0);
  }
}

TEST_F(CudaSparseCholeskyTest, TheLimitIsAskedBeforeTheFactorIsThere) {
  constexpr int64_t n = 129;
  const HostCsr host(PositiveDefinite(n, Pattern::kRandom, 8));
  int64_t before = 0;
  int64_t peak_bytes = 0;
  {
    const DeviceCsr device = ToDevice(host);
    before = context_->used_bytes();
    {
      CudaSparseCholesky cholesky;
      ASSERT_OK(
          cholesky.Analyze(device.csr, device.values.data(), machine_.get()));
      peak_bytes = cholesky.peak_device_bytes();
#ifdef CERES_EXT_EMULATED
      EXPECT_LT(context_->used_bytes(), before + cholesky.device_bytes());
#endif
      ASSERT_EQ(Factorize(device.values.data(), &cholesky), 0);
#ifdef CERES_EXT_EMULATED
      EXPECT_EQ(context_->used_bytes(), before + cholesky.device_bytes());
      EXPECT_EQ(context_->peak_bytes(), before + peak_bytes);
#else
      EXPECT_LE(context_->used_bytes(), before + peak_bytes);
#endif
    }
    EXPECT_EQ(context_->used_bytes(), before);
  }
  for (const int64_t less : {0, 1}) {
    CudaContextOptions options;
    options.memory_limit = before + peak_bytes - less;
    ASSERT_NO_FATAL_FAILURE(SetUpMachine(options));
    const DeviceCsr device = ToDevice(host);
    ASSERT_EQ(context_->used_bytes(), before);
    CudaSparseCholesky cholesky;
    const Status status =
        cholesky.Analyze(device.csr, device.values.data(), machine_.get());
    if (less == 0) {
      ASSERT_OK(status);
      EXPECT_EQ(Factorize(device.values.data(), &cholesky), 0);
    } else {
      EXPECT_EQ(status.code, StatusCode::kOutOfMemory);
      EXPECT_NE(status.message.find(std::to_string(before + peak_bytes)),
                std::string::npos)
          << status.message;
      EXPECT_EQ(context_->used_bytes(), before);
      int64_t failed_order = 0;
      EXPECT_EQ(cholesky.Factorize(device.values.data(), &failed_order).code,
                StatusCode::kInvalidArgument);
    }
  }
}

TEST_F(CudaSparseCholeskyTest, WrongCallsAreRefused) {
  CudaSparseCholesky cholesky;
  int64_t failed_order = 0;
  EXPECT_EQ(cholesky.Factorize(nullptr, &failed_order).code,
            StatusCode::kInvalidArgument);
  EXPECT_EQ(cholesky.Solve(nullptr, nullptr).code,
            StatusCode::kInvalidArgument);
  for (const LowerCsr& csr : {LowerCsr{-1, 0, nullptr, nullptr},
                              LowerCsr{0, 1, nullptr, nullptr},
                              LowerCsr{3, 2, nullptr, nullptr},
                              LowerCsr{int64_t{1} << 31, int64_t{1} << 32}}) {
    EXPECT_EQ(cholesky.Analyze(csr, nullptr, machine_.get()).code,
              StatusCode::kInvalidArgument);
  }
  const DeviceCsr device =
      ToDevice(HostCsr(PositiveDefinite(3, Pattern::kDense, 9)));
  ASSERT_OK(cholesky.Analyze(device.csr, device.values.data(), machine_.get()));
  EXPECT_EQ(cholesky.Solve(nullptr, nullptr).code,
            StatusCode::kInvalidArgument);
}

#ifdef CERES_EXT_EMULATED

// The output of cuDSS when it reports success.
TEST_F(CudaSparseCholeskyTest, WrongSolutionsAreSeen) {
  constexpr int64_t n = 129;
  for (const Pattern pattern :
       {Pattern::kDiagonal, Pattern::kArrow, Pattern::kRandom}) {
    const Matrix a = PositiveDefinite(n, pattern, 8);
    const DeviceCsr device = ToDevice(HostCsr(a));
    CudaSparseCholesky cholesky;
    ASSERT_OK(
        cholesky.Analyze(device.csr, device.values.data(), machine_.get()));
    ASSERT_EQ(Factorize(device.values.data(), &cholesky), 0);
    const std::vector<double> b = RightHandSide(a, Solution(n));
    for (const Spoiled& kind : SpoiledSolutions()) {
      SCOPED_TRACE(kind.name);
      DeviceBuffer<double> x = Upload(b);
      emulation::spoiler() = [&kind](
                                 const char* library, int64_t i, double value) {
        EXPECT_STREQ(library, "cuDSS");
        return kind.spoil(i, value);
      };
      ASSERT_OK(cholesky.Solve(x.data(), x.data()));
      emulation::spoiler() = nullptr;
      const Status status = cholesky.CheckSolution();
      EXPECT_EQ(status.code, StatusCode::kDeviceError);
      EXPECT_TRUE(cholesky.solution_is_wrong());
      EXPECT_EQ(status.message.find("cuDSS 999.0.0 reported success, but its "
                                    "solution of 129 equations is "),
                0)
          << status.message;
    }
    // The next one is right.
    Solve(b, &cholesky);
  }
}

TEST_F(CudaSparseCholeskyTest, NoLibraries) {
  if (std::getenv("CERES_EXT_TEST_NO_LIBRARIES") == nullptr) {
    GTEST_SKIP() << "skipped: the libraries are there; another run is of this";
  }
  const Status status = CudaSparseCholesky::Available();
  EXPECT_EQ(status.code, StatusCode::kUnsupported);
  EXPECT_NE(status.message.find("libcudss.so.999"), std::string::npos)
      << status.message;
  CudaSparseCholesky cholesky;
  EXPECT_EQ(cholesky.Analyze({}, nullptr, machine_.get()).message,
            status.message);
  int64_t failed_order = 0;
  EXPECT_EQ(cholesky.Factorize(nullptr, &failed_order).code,
            StatusCode::kInvalidArgument);
}

// The library keeps kernels on disk where the user says so, and nowhere else;
// the emulated one minds.
TEST_F(CudaSparseCholeskyTest, TheUsersCacheIsNotTakenAway) {
  const DeviceCsr device =
      ToDevice(HostCsr(PositiveDefinite(3, Pattern::kDense, 9)));
  // A handle has the folder of its first user.
  ReleaseLibraryHandles();
  ASSERT_EQ(setenv("CUDSS_JIT_CACHE_DIR", "/nowhere", 1), 0);
  {
    CudaSparseCholesky cholesky;
    const Status status =
        cholesky.Analyze(device.csr, device.values.data(), machine_.get());
    EXPECT_TRUE(status.ok()) << status.message;
  }
  unsetenv("CUDSS_JIT_CACHE_DIR");
  ReleaseLibraryHandles();
}

// Each call of CUDA and of cuDSS fails in turn, alone or with all that follow:
// an error, nothing is left behind, and the next try works.
TEST_F(CudaSparseCholeskyTest, EveryCallMayFail) {
  constexpr int64_t n = 5;
  const Matrix a = PositiveDefinite(n, Pattern::kBand, 10);
  const HostCsr host(a);
  const std::vector<double> expected = Solution(n);
  DeviceCsr device = ToDevice(host);
  DeviceBuffer<double> b = Upload(RightHandSide(a, expected));
  DeviceBuffer<double> x = Poisoned<double>(n);
  context_->ReleaseKeptMemory();
  ReleaseLibraryHandles();
  const int64_t num_held = cuda_faults().num_held();
  const int64_t used_bytes = context_->used_bytes();
  for (const bool and_all_later : {false, true}) {
    std::vector<std::string> failed_calls;
    for (int64_t i = 1;; ++i) {
      bool has_failed = false;
      {
        CudaSparseCholesky cholesky;
        const auto run = [&]() -> Status {
          CERES_EXT_RETURN_IF_ERROR(cholesky.Analyze(
              device.csr, device.values.data(), machine_.get()));
          for (int again = 0; again < 2; ++again) {
            int64_t failed_order = 0;
            CERES_EXT_RETURN_IF_ERROR(
                cholesky.Factorize(device.values.data(), &failed_order));
            EXPECT_EQ(failed_order, 0);
            CERES_EXT_RETURN_IF_ERROR(cholesky.Solve(b.data(), x.data()));
          }
          CERES_EXT_RETURN_IF_ERROR(cholesky.CheckSolution());
          return machine_->Synchronize();
        };
        cuda_faults().Start(i, and_all_later);
        const Status status = run();
        has_failed = !cuda_faults().failed_call().empty();
        failed_calls.push_back(cuda_faults().failed_call());
        cuda_faults().Stop();
        // A value returned on the way may not report a failure, and memory that
        // is kept makes room for a second try.
        if (failed_calls.back() != "cudaFree" &&
            (failed_calls.back() != "cudaMalloc" || and_all_later)) {
          EXPECT_EQ(status.ok(), !has_failed) << failed_calls.back();
        }
        if (!status.ok()) {
          EXPECT_TRUE(status.code == StatusCode::kDeviceError ||
                      status.code == StatusCode::kOutOfMemory)
              << status.message;
          EXPECT_FALSE(status.message.empty());
        }
        ASSERT_OK(run());
        EXPECT_LT(Distance(Download(x), expected), 1e-12);
      }
      context_->ReleaseKeptMemory();
      ReleaseLibraryHandles();
      EXPECT_EQ(cuda_faults().num_held(), num_held);
      EXPECT_EQ(context_->used_bytes(), used_bytes);
      if (!has_failed) {
        break;
      }
    }
    for (const char* name : {"cudaMalloc",
                             "cudssCreate",
                             "cudssSetStream",
                             "cudssSetDeviceMemHandler",
                             "cudssSetJitCacheDir",
                             "cudssConfigCreate",
                             "cudssConfigSet",
                             "cudssDataCreate",
                             "cudssDataGet",
                             "cudssMatrixCreateCsr",
                             "cudssMatrixCreateDn",
                             "cudssMatrixSetValues",
                             "cudssExecute"}) {
      EXPECT_THAT(failed_calls, testing::Contains(name));
    }
  }
}

// Memory that runs out in the middle is said with the bytes of the request.
TEST_F(CudaSparseCholeskyTest, NoMemoryForTheFactor) {
  const DeviceCsr device =
      ToDevice(HostCsr(PositiveDefinite(33, Pattern::kDense, 11)));
  CudaSparseCholesky cholesky;
  ASSERT_OK(cholesky.Analyze(device.csr, device.values.data(), machine_.get()));
  cuda_faults().TakeMemory();
  int64_t failed_order = 0;
  const Status status = cholesky.Factorize(device.values.data(), &failed_order);
  cuda_faults().Stop();
  EXPECT_EQ(status.code, StatusCode::kOutOfMemory);
  EXPECT_NE(status.message.find(std::to_string(33 * 33 * 8)), std::string::npos)
      << status.message;
  EXPECT_EQ(Factorize(device.values.data(), &cholesky), 0);
}

TEST_F(CudaSparseCholeskyTest, OfALostDeviceNothingIsFreed) {
  const int64_t num_wrong_frees = emulation::driver().num_wrong_frees;
  {
    DeviceCsr device =
        ToDevice(HostCsr(PositiveDefinite(5, Pattern::kDense, 12)));
    CudaSparseCholesky cholesky;
    ASSERT_OK(
        cholesky.Analyze(device.csr, device.values.data(), machine_.get()));
    ASSERT_EQ(Factorize(device.values.data(), &cholesky), 0);
    emulation::Reset();
    machine_->ForgetIfLost();
  }
  EXPECT_EQ(context_->used_bytes(), CudaMachine::kOwnBytes);
  machine_.reset();
  context_.reset();
  EXPECT_EQ(emulation::driver().num_wrong_frees, num_wrong_frees);
  EXPECT_EQ(cuda_faults().num_held(), 0);
}

#endif

}  // namespace
}  // namespace ceres_ext::kernels
