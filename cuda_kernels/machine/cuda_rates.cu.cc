// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "cuda_kernels/machine/cuda_rates.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>

#include "cuda_kernels/machine/cuda_launch.cuh"
#include "cuda_kernels/machine/device_buffer.h"

namespace ceres_ext::kernels {
namespace {

using RatesClock = std::chrono::steady_clock;

double RatesSecondsSince(RatesClock::time_point begin) {
  return std::chrono::duration<double>(RatesClock::now() - begin).count();
}

// 32 warps of a multiprocessor, each thread with eight chains of its own: more
// than the latency of a product hides, on every card.
constexpr int kRatesBlock = 256;
constexpr int kRatesBlocksPerMultiprocessor = 4;
constexpr int kRatesChains = 8;

__global__ void RatesEmptyKernel(int /*number*/) {}

// x = a x + b, `num_steps` times for each chain of a thread. Mapping: all
// threads do the same; none writes unless the sum is `never`, so that the
// products are not left out. Traffic: none.
template <typename T>
__global__ void __launch_bounds__(kRatesBlock)
    RatesProductsKernel(int num_steps, T a, T b, T never, T* out) {
  T x[kRatesChains];
#pragma unroll
  for (int k = 0; k < kRatesChains; ++k) {
    x[k] = static_cast<T>(threadIdx.x + k);
  }
#pragma unroll 16
  for (int i = 0; i < num_steps; ++i) {
#pragma unroll
    for (int k = 0; k < kRatesChains; ++k) {
      x[k] = a * x[k] + b;
    }
  }
  T sum = T(0);
#pragma unroll
  for (int k = 0; k < kRatesChains; ++k) {
    sum += x[k];
  }
  if (sum == never) {
    *out = sum;
  }
}

class RatesMeter {
 public:
  explicit RatesMeter(CudaContext* context) : context_(context) {}

  Status Setup() {
    CERES_EXT_RETURN_IF_ERROR(events_.Setup(2));
    CERES_EXT_RETURN_IF_ERROR(from_.Allocate(context_, kBytesForRates / 2));
    CERES_EXT_RETURN_IF_ERROR(to_.Allocate(context_, kBytesForRates / 2));
    return context_->SetBytes(from_.data(), 0, from_.bytes());
  }

  // The rate of a queued work that does so much. At least three times, and for
  // so many seconds: the fastest counts.
  template <typename Queue>
  Status Fastest(double work,
                 double seconds,
                 const Queue& queue,
                 double* rate) {
    constexpr int kFewest = 3;
    const RatesClock::time_point begin = RatesClock::now();
    double fastest = 0.0;
    for (int i = 0; i < kFewest || RatesSecondsSince(begin) < seconds; ++i) {
      double took = 0.0;
      CERES_EXT_RETURN_IF_ERROR(Time(queue, &took));
      if (took > 0.0 && (fastest == 0.0 || took < fastest)) {
        fastest = took;
      }
    }
    if (fastest == 0.0) {
      return {StatusCode::kDeviceError, "The device's clock stands still."};
    }
    *rate = work / fastest;
    return {};
  }

  Status MeasureCopy(double* rate) {
    return Fastest(
        2.0 * static_cast<double>(from_.bytes()),
        /*seconds=*/0.01,
        [&] {
          return context_->CopyOnDevice(
              to_.data(), from_.data(), from_.bytes());
        },
        rate);
  }

  template <typename T>
  Status MeasureProducts(double seconds, double* rate) {
    // Half a millisecond each, which launches do not shorten.
    constexpr double kLongEnough = 5e-4;
    constexpr int kMostSteps = 1 << 20;
    int num_steps = 64;
    for (double took = 0.0; took < kLongEnough && num_steps < kMostSteps;) {
      num_steps *= 2;
      CERES_EXT_RETURN_IF_ERROR(
          Time([&] { return QueueProducts<T>(num_steps); }, &took));
    }
    const double products = static_cast<double>(kRatesChains) * num_steps *
                            kRatesBlock * static_cast<double>(NumBlocks());
    return Fastest(
        products, seconds, [&] { return QueueProducts<T>(num_steps); }, rate);
  }

  Status MeasureLaunches(double* seconds) {
    constexpr int kLaunches = 200;
    constexpr int kRounds = 8;
    double fastest = 0.0;
    for (int round = 0; round < kRounds; ++round) {
      const RatesClock::time_point begin = RatesClock::now();
      for (int i = 0; i < kLaunches; ++i) {
        CERES_EXT_RETURN_IF_ERROR(Launch("RatesEmptyKernel",
                                         RatesEmptyKernel,
                                         {1, kRatesBlock},
                                         context_->stream(),
                                         i));
      }
      CERES_EXT_RETURN_IF_ERROR(context_->Synchronize());
      const double took = RatesSecondsSince(begin) / kLaunches;
      if (round == 0 || took < fastest) {
        fastest = took;
      }
    }
    *seconds = fastest;
    return {};
  }

 private:
  int64_t NumBlocks() const {
    return int64_t{kRatesBlocksPerMultiprocessor} *
           context_->num_multiprocessors();
  }
  template <typename T>
  Status QueueProducts(int num_steps) {
    return Launch("RatesProductsKernel",
                  RatesProductsKernel<T>,
                  {NumBlocks(), kRatesBlock},
                  context_->stream(),
                  num_steps,
                  T(0.5),
                  T(1.0),
                  T(-1.0),
                  reinterpret_cast<T*>(to_.data()));
  }
  template <typename Queue>
  Status Time(const Queue& queue, double* seconds) {
    CERES_EXT_RETURN_IF_ERROR(events_.Record(0, context_->stream()));
    CERES_EXT_RETURN_IF_ERROR(queue());
    CERES_EXT_RETURN_IF_ERROR(events_.Record(1, context_->stream()));
    CERES_EXT_RETURN_IF_ERROR(events_.Wait(1));
    *seconds = events_.SecondsBetween(0, 1);
    return {};
  }

  CudaContext* const context_;
  CudaEvents events_;
  DeviceBuffer<unsigned char> from_;
  DeviceBuffer<unsigned char> to_;
};

}  // namespace

Status MeasureDeviceRates(CudaContext* context, MachineRates* rates) {
  // The first wakes the card.
  constexpr double kSecondsToWake = 0.05;
  constexpr double kSeconds = 0.02;
  RatesMeter meter(context);
  MachineRates found = *rates;
  CERES_EXT_RETURN_IF_ERROR(meter.Setup());
  CERES_EXT_RETURN_IF_ERROR(meter.MeasureProducts<float>(
      kSecondsToWake, &found.float_fmas_per_second));
  CERES_EXT_RETURN_IF_ERROR(
      meter.MeasureProducts<double>(kSeconds, &found.double_fmas_per_second));
  CERES_EXT_RETURN_IF_ERROR(meter.MeasureCopy(&found.bytes_per_second));
  CERES_EXT_RETURN_IF_ERROR(meter.MeasureLaunches(&found.launch_seconds));
  *rates = found;
  return {};
}

}  // namespace ceres_ext::kernels
