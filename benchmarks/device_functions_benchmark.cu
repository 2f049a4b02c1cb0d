// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The batched evaluation of cost functions on a device, kernel by kernel:
//
//   device_functions_benchmark [NUM_ROWS]
//
// For each functor of photogrammetry.h, the BAL model written by hand and a
// functor of the same model: registers, bytes of stack, time of residuals and
// Jacobian of NUM_ROWS rows in the layout of view batches, and that time over
// the time of a copy, on the device, of as many bytes as are written. Values
// are compared with those of the host; the program ends with 1 where a value
// differs by more than 1e-10 of the largest in its column, or is not finite.
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/doors_functors.h"
#include "benchmarks/photogrammetry_errors.h"
#include "ceres_ext/bal_cost_functions.h"
#include "ceres_ext/device/cost_function.cuh"

namespace ceres_ext {
namespace {

constexpr int kNumCameras = 1000;
constexpr int kViews = 7;  // rows of a point

void Check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) {
    std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
    std::exit(2);
  }
}

// Freed at the end of the process.
template <typename T>
class DeviceArray {
 public:
  void Resize(int64_t n) {
    if (n > capacity_) {
      cudaFree(data_);
      Check(cudaMalloc(&data_, n * sizeof(T)), "cudaMalloc");
      capacity_ = n;
    }
  }
  T* Set(const std::vector<T>& values) {
    Resize(static_cast<int64_t>(values.size()));
    Check(cudaMemcpy(data_,
                     values.data(),
                     values.size() * sizeof(T),
                     cudaMemcpyHostToDevice),
          "cudaMemcpy");
    return data_;
  }
  T* data() const { return data_; }

 private:
  T* data_ = nullptr;
  int64_t capacity_ = 0;
};

struct Arrays {
  DeviceArray<RowBlock> blocks, points;
  DeviceArray<int32_t> combination, point_id;
  DeviceArray<double> state, tangents, residuals, e, f, partial, copy;
  DeviceArray<uint64_t> constants;
  DeviceArray<int32_t> ticket;
  DeviceArray<RowSums> sums;
};

// The least of some times of f, in seconds.
template <typename Function>
double Time(Function&& f) {
  cudaEvent_t begin;
  cudaEvent_t end;
  Check(cudaEventCreate(&begin), "cudaEventCreate");
  Check(cudaEventCreate(&end), "cudaEventCreate");
  float least = 1e30f;
  for (int i = 0; i < 10; ++i) {
    Check(cudaEventRecord(begin), "cudaEventRecord");
    f();
    Check(cudaEventRecord(end), "cudaEventRecord");
    Check(cudaEventSynchronize(end), "a kernel");
    float milliseconds = 0.0f;
    Check(cudaEventElapsedTime(&milliseconds, begin, end), "the time");
    least = std::min(least, milliseconds);
  }
  return 1e-3 * least;
}

// The input on which a model is measured. parameters: of its blocks, one after
// the other.
template <typename Cost, typename... Forms>
bool Measure(const std::string& name,
             const typename Cost::Model::Constants& constants,
             const std::vector<double>& parameters,
             int64_t n,
             Arrays* arrays) {
  internal::RegisterForms<Cost, Forms...>();
  const BatchModel& model = internal::BatchForms<typename Cost::Model>::model;
  const int num_blocks = model.num_parameter_blocks;
  const int num_residuals = model.num_residuals;
  // The point is the first block of three values of a row of two residuals.
  int point = -1;
  int f_columns = 0;
  std::vector<int> begin{0};
  for (int b = 0; b < num_blocks; ++b) {
    const int size = model.parameter_block_sizes[b];
    if (size == 3 && point < 0 && num_residuals == 2 && num_blocks > 1) {
      point = b;
    } else {
      f_columns += size;
    }
    begin.push_back(begin.back() + size);
  }
  const int64_t num_points = n / kViews + 1;
  std::vector<double> state;
  std::vector<RowBlock> blocks;
  std::vector<double> tangents;
  for (int c = 0; c < kNumCameras; ++c) {
    int32_t column = 0;
    for (int b = 0; b < num_blocks; ++b) {
      RowBlock block;
      const int size = model.parameter_block_sizes[b];
      block.column = b == point ? RowBlock::kPoint : column;
      if (b != point) {
        block.state = static_cast<int32_t>(state.size());
        block.size = size;
        for (int i = 0; i < size; ++i) {
          state.push_back(parameters[begin[b] + i]);
        }
        // Tens of thousands of cameras have tenths of a percent in common.
        state.back() *= 1.0 + 1e-4 * c;
        // A pose of seven values moves as by a manifold.
        if (size == 7) {
          block.tangent = static_cast<int32_t>(tangents.size());
          block.size = 6;
          for (int i = 0; i < 42; ++i) {
            tangents.push_back(0.1 * ((5 * i + c) % 7));
          }
        }
        column += block.size;
      }
      blocks.push_back(block);
    }
  }
  std::vector<RowBlock> points(point < 0 ? 0 : num_points);
  for (RowBlock& block : points) {
    block.state = static_cast<int32_t>(state.size());
    block.size = 3;
    for (int i = 0; i < 3; ++i) {
      state.push_back(parameters[begin[point] + i] +
                      1e-6 * (&block - points.data()));
    }
  }
  std::vector<int32_t> combination(n);
  std::vector<int32_t> point_id(n);
  const int num_words = (model.constants_bytes + 7) / 8;
  std::vector<uint64_t> constant(num_words);
  std::memcpy(constant.data(), &constants, sizeof(constants));
  std::vector<uint64_t> all_constants(num_words * n);
  for (int64_t i = 0; i < n; ++i) {
    const int64_t p = i / kViews;
    point_id[i] = static_cast<int32_t>(p);
    combination[i] =
        static_cast<int32_t>((p * 17 / 40 + i % kViews) % kNumCameras);
    for (int w = 0; w < num_words; ++w) {
      all_constants[w * n + i] = constant[w];
    }
  }

  RowBatch rows;
  rows.num_rows = n;
  rows.blocks = arrays->blocks.Set(blocks);
  rows.combination = arrays->combination.Set(combination);
  rows.points = points.empty() ? nullptr : arrays->points.Set(points);
  rows.point_id = arrays->point_id.Set(point_id);
  rows.state = arrays->state.Set(state);
  rows.tangents = tangents.empty() ? nullptr : arrays->tangents.Set(tangents);
  rows.constants = arrays->constants.Set(all_constants);
  rows.constant_row = 1;
  rows.constant_word = n;
  const int64_t f_values = int64_t{num_residuals} * f_columns * n;
  const int64_t e_values = point < 0 ? 0 : 3 * num_residuals * n;
  arrays->residuals.Resize(num_residuals * n);
  arrays->f.Resize(f_values);
  arrays->e.Resize(e_values + 1);
  arrays->copy.Resize(f_values + e_values + num_residuals * n);
  rows.residuals = arrays->residuals.data();
  rows.f = {arrays->f.data(), 1, f_columns * n, n};
  rows.e = {arrays->e.data(), 1, 3 * n, n};
  Check(cudaMemset(arrays->f.data(), 0, f_values * sizeof(double)), "memset");

  const kernels::ModelForm& form = *model.GetForm(FormKind::kRows);
  const auto launch = [&](bool jacobian) {
    Check(static_cast<cudaError_t>(kernels::LaunchForm(form,
                                                       jacobian ? 1 : 0,
                                                       0,
                                                       nullptr,
                                                       kernels::NumSumBlocks(n),
                                                       kernels::kSumLanes,
                                                       rows,
                                                       arrays->partial.data(),
                                                       arrays->ticket.data(),
                                                       arrays->sums.data())),
          name.c_str());
  };
  kernels::ModelForm::Facts facts[2];
  for (int kernel = 0; kernel < 2; ++kernel) {
    Check(static_cast<cudaError_t>(form.get_facts(kernel, &facts[kernel])),
          name.c_str());
  }
  const double cost_seconds = Time([&] { launch(false); });
  const double seconds = Time([&] { launch(true); });
  const int64_t written = static_cast<int64_t>(sizeof(double)) *
                          (f_values + e_values + num_residuals * n);
  const double copy_seconds = Time([&] {
    Check(cudaMemcpyAsync(arrays->copy.data(),
                          arrays->copy.data() + written / 16,
                          written / 2,
                          cudaMemcpyDeviceToDevice),
          "copy");
  });

  // The first rows again on the host.
  const int64_t num_compared = std::min<int64_t>(n, 5000);
  std::vector<double> host_residuals(num_residuals * num_compared);
  std::vector<double> host_f(num_residuals * f_columns * num_compared, 0.0);
  std::vector<double> host_e(3 * num_residuals * num_compared, 0.0);
  RowBatch on_host = rows;
  on_host.num_rows = num_compared;
  on_host.blocks = blocks.data();
  on_host.combination = combination.data();
  on_host.points = points.data();
  on_host.point_id = point_id.data();
  on_host.state = state.data();
  on_host.tangents = tangents.data();
  on_host.constants = all_constants.data();
  on_host.residuals = host_residuals.data();
  on_host.f = {host_f.data(), 1, f_columns * num_compared, num_compared};
  on_host.e = {host_e.data(), 1, 3 * num_compared, num_compared};
  for (int64_t i = 0; i < num_compared; ++i) {
    model.evaluate_row(on_host, /*jacobian=*/true, i);
  }
  double worst = 0.0;
  // num_columns columns of `stride` values each, of which the first are
  // compared.
  const auto compare = [&](const std::vector<double>& expected,
                           const double* device,
                           int num_columns,
                           int64_t stride) {
    const int64_t count = static_cast<int64_t>(expected.size()) / num_columns;
    double largest = 1e-300;
    double difference = 0.0;
    std::vector<double> found(count);
    for (int j = 0; j < num_columns; ++j) {
      Check(cudaMemcpy(found.data(),
                       device + j * stride,
                       count * sizeof(double),
                       cudaMemcpyDeviceToHost),
            "copy back");
      for (int64_t i = 0; i < count; ++i) {
        const double value = expected[j * count + i];
        largest = std::max(largest, std::abs(value));
        difference = std::isfinite(found[i])
                         ? std::max(difference, std::abs(value - found[i]))
                         : INFINITY;
      }
    }
    worst = std::max(worst, difference / largest);
  };
  compare(host_residuals, rows.residuals, 1, 0);
  compare(host_f, arrays->f.data(), num_residuals * f_columns, n);
  if (point >= 0) {
    compare(host_e, arrays->e.data(), 3 * num_residuals, n);
  }
  // As many bytes written, and as many read.
  const double share = seconds / (2.0 * copy_seconds);
  std::printf(
      "| %s | %d x %d | %d, %lld | %d, %lld | %.3f | %.3f | %.2f | "
      "%.0e |\n",
      name.c_str(),
      num_residuals,
      begin.back(),
      facts[0].num_registers,
      static_cast<long long>(facts[0].local_bytes),
      facts[1].num_registers,
      static_cast<long long>(facts[1].local_bytes),
      1e3 * cost_seconds,
      1e3 * seconds,
      share,
      worst);
  std::fflush(stdout);
  return worst < 1e-10;
}

template <typename Error, typename Sizes>
struct CostFor;
template <typename Error, int... Ns>
struct CostFor<Error, std::integer_sequence<int, Ns...>> {
  using Type = DeviceAutoDiffCostFunction<Error, Error::kNumResiduals, Ns...>;
};

bool Run(int64_t n) {
  Arrays arrays;
  arrays.partial.Set(std::vector<double>(2 * kernels::kMaxSumBlocks));
  arrays.ticket.Set({0});
  arrays.sums.Set({RowSums()});
  std::printf(
      "%lld rows\n\n| functor | residuals x values | cost: registers, stack B |"
      " Jacobian: registers, stack B | cost ms | Jacobian ms | over a copy of "
      "what it writes | largest difference from the host |\n"
      "|---|---|---|---|---|---|---|---|\n",
      static_cast<long long>(n));
  bool ok = true;
  const std::vector<double> bal = {
      0.2, 0.4, 0.4, 0.1, -0.2, -5.0, 900.0, 0.01, 0.01, 0.3, -0.4, 0.5};
  using Snavely = DeviceAutoDiffCostFunction<bal::SnavelyError, 2, 9, 3>;
  ok = Measure<Snavely, form::Recomputed>(
           "BAL, a functor", {3.0, 4.0}, bal, n, &arrays) &&
       ok;
  ok = Measure<BalReprojectionError, form::Rows>(
           "BAL, written", {3.0, 4.0}, bal, n, &arrays) &&
       ok;
  ForEachPhotogrammetryCase([&](const auto& c) {
    using Case = std::decay_t<decltype(c)>;
    using Cost =
        typename CostFor<typename Case::Error, typename Case::BlockSizes>::Type;
    ok = Measure<Cost, form::Rows>(c.name, c.error, c.parameters, n, &arrays) &&
         ok;
  });
  return ok;
}

}  // namespace
}  // namespace ceres_ext

int main(int argc, char** argv) {
  const int64_t n = argc > 1 ? std::atoll(argv[1]) : 5000000;
  if (n < 1) {
    std::fprintf(stderr, "A number of rows was expected.\n");
    return 2;
  }
  return ceres_ext::Run(n) ? 0 : 1;
}
