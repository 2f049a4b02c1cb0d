// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "cuda_kernels/machine/host_rates.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <exception>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "cuda_kernels/base/simd.h"
#include "cuda_kernels/machine/host_processors.h"

namespace ceres_ext::kernels {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Rows of two residuals, a camera of nine columns and a point of three, as a
// product with J'J reads them.
constexpr size_t kRateColumns = 12;
constexpr size_t kRateRowValues = 2 * kRateColumns;

// y += J'(J x): four operations a value, in the order of the rows.
CERES_EXT_SIMD_CLONES void PassOverRows(size_t num_rows,
                                        const double* j,
                                        const double* x,
                                        double* y) {
  for (size_t row = 0; row < num_rows; ++row, j += kRateRowValues) {
    double first = 0.0;
    double second = 0.0;
    for (size_t c = 0; c < kRateColumns; ++c) {
      first += j[c] * x[c];
      second += j[kRateColumns + c] * x[c];
    }
    for (size_t c = 0; c < kRateColumns; ++c) {
      y[c] += j[c] * first + j[kRateColumns + c] * second;
    }
  }
}

// The seconds of the fastest of some runs that take about 10 ms together.
template <typename Run>
double FastestSeconds(const Run& run) {
  constexpr int kFewestRuns = 3;
  constexpr double kEnough = 0.01;
  const Clock::time_point begin = Clock::now();
  double fastest = 1e300;
  for (int i = 0; i < kFewestRuns || SecondsSince(begin) < kEnough; ++i) {
    const Clock::time_point start = Clock::now();
    run();
    fastest = std::min(fastest, SecondsSince(start));
  }
  return fastest;
}

// In 400 KB, which the second level of caches has.
double ValuesPerSecond() {
  constexpr size_t kRows = 2048;
  const std::vector<double> j(kRows * kRateRowValues, 1e-3);
  const std::vector<double> x(kRateColumns, 1.0);
  std::vector<double> y(kRateColumns, 0.0);
  const double seconds = FastestSeconds(
      [&] { PassOverRows(kRows, j.data(), x.data(), y.data()); });
  return static_cast<double>(j.size()) / seconds;
}

CERES_EXT_SIMD_CLONES double SumOfLanes(size_t n, const double* x) {
  SimdDoubles sums[4] = {};
  for (size_t i = 0; i + 4 * kSimdLanes <= n; i += 4 * kSimdLanes) {
    for (size_t k = 0; k < 4; ++k) {
      sums[k] += *reinterpret_cast<const SimdDoubles*>(x + i + k * kSimdLanes);
    }
  }
  double sum = 0.0;
  for (int lane = 0; lane < kSimdLanes; ++lane) {
    sum += sums[0][lane] + sums[1][lane] + sums[2][lane] + sums[3][lane];
  }
  return sum;
}

// Each thread reads a part of its own, which it has written before.
double BytesPerSecond() {
  constexpr size_t kBytes = size_t{64} << 20;
  const auto num_threads = static_cast<size_t>(NumUsableProcessors());
  const size_t n = kBytes / sizeof(double) / num_threads;
  std::vector<double> seconds(num_threads, 0.0);
  std::vector<double> sums(num_threads, 0.0);
  std::vector<char> has_failed(num_threads, 0);
  const auto read = [&](size_t t) {
    try {
      const std::vector<double> x(n, 1.0);
      seconds[t] = FastestSeconds([&] { sums[t] += SumOfLanes(n, x.data()); });
    } catch (const std::exception&) {
      has_failed[t] = 1;
    }
  };
  std::vector<std::thread> threads;
  try {
    for (size_t t = 1; t < num_threads; ++t) {
      threads.emplace_back(read, t);
    }
  } catch (const std::system_error&) {
    // Fewer threads read less.
  }
  read(0);
  double rate = 0.0;
  for (size_t t = 0; t <= threads.size(); ++t) {
    if (t > 0) {
      threads[t - 1].join();
    }
    if (has_failed[t] == 0) {
      rate += static_cast<double>(n * sizeof(double)) / seconds[t];
    }
  }
  return rate;
}

}  // namespace

bool MeasureHostRates(MachineRates* rates) {
  try {
    const double values = ValuesPerSecond();
    const double bytes = BytesPerSecond();
    if (!(values > 0.0 && bytes > 0.0)) {
      return false;
    }
    rates->host_values_per_second = values;
    rates->host_bytes_per_second = bytes;
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace ceres_ext::kernels
