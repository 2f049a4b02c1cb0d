// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "cuda_kernels/machine/cuda_solution_check.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include "cuda_kernels/machine/cuda_launch.cuh"

namespace ceres_ext::kernels {
namespace {

// Threads per block of the kernels of a thread or a warp a row.
constexpr int kCheckBlock = 256;
// Threads of the block that sums a vector, and of the blocks of a dense
// product: a warp for each of the warps' rows.
constexpr int kWideBlock = 1024;
static_assert(kWideBlock == kWarpSize * kWarpSize, "warps are lanes");

// +-1, the last bit of MurmurHash3's finaliser.
__device__ __forceinline__ double Sign(int64_t i) {
  auto h = static_cast<uint32_t>(i) + 1u;
  h = (h ^ (h >> 16)) * 0x85ebca6bu;
  h = (h ^ (h >> 13)) * 0xc2b2ae35u;
  return ((h ^ (h >> 16)) & 1u) == 0 ? 1.0 : -1.0;
}

// w = A v of the lower triangle of A, column-major. A block has 32 rows. Lane l
// of warp k sums elements k, k + 32, ... of row l up to the diagonal; the warps
// meet; and warp k sums what is below the diagonal of column k, which is row k
// of the transpose. Lane 0 writes. Traffic: 16 B an element of the triangle.
__global__ void __launch_bounds__(kWideBlock) DenseProduct(
    int64_t n, int64_t stride, const double* a, const double* v, double* w) {
  __shared__ double left[kWarpSize][kWarpSize + 1];
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int64_t begin = int64_t{blockIdx.x} * kWarpSize;
  const int64_t row = begin + lane;
  double sum = 0.0;
  if (row < n) {
    for (int64_t j = warp; j <= row; j += kWarpSize) {
      sum += a[j * stride + row] * v[j];
    }
  }
  left[warp][lane] = sum;
  const int64_t column = begin + warp;
  double below = 0.0;
  if (column < n) {
    for (int64_t i = column + 1 + lane; i < n; i += kWarpSize) {
      below += a[column * stride + i] * v[i];
    }
  }
  below = WarpSum(below);
  __syncthreads();  // Warp k reads what all warps have of row k.
  const double before = WarpSum(left[lane][warp]);
  if (lane == 0 && column < n) {
    w[column] = before + below;
  }
}

// product_i = v_i sum_j a_ij x_j + x_i sum_j a_ij v_j, j <= i and j < i, whose
// sum over i is v'A x. A warp per row. Traffic: 12 B a value, and 16 B of the
// vectors where no cache has them.
__global__ void __launch_bounds__(kCheckBlock)
    SparseProduct(int64_t n,
                  const int64_t* row_begin,
                  const int32_t* column,
                  const double* values,
                  const double* v,
                  const double* x,
                  double* product) {
  constexpr int kNumWarps = kCheckBlock / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int64_t row = int64_t{blockIdx.x} * kNumWarps + threadIdx.x / kWarpSize;
  if (row >= n) {
    return;  // The whole warp, and there is no barrier.
  }
  double of_x = 0.0;
  double of_v = 0.0;
  for (int64_t k = row_begin[row] + lane; k < row_begin[row + 1];
       k += kWarpSize) {
    const int64_t j = column[k];
    of_x += values[k] * x[j];
    of_v += j == row ? 0.0 : values[k] * v[j];
  }
  of_x = WarpSum(of_x);
  of_v = WarpSum(of_v);
  if (lane == 0) {
    product[row] = v[row] * of_x + x[row] * of_v;
  }
}

// sums->rhs = v'b, by one block.
__global__ void __launch_bounds__(kWideBlock)
    SumRhs(int64_t n, const double* v, const double* b, SolutionSums* sums) {
  double sum = 0.0;
  for (int64_t i = threadIdx.x; i < n; i += kWideBlock) {
    sum += v[i] * b[i];
  }
  sum = BlockSum<kWideBlock>(sum);
  if (threadIdx.x == 0) {
    sums->rhs = sum;
  }
}

// The other sums, by one block. is_of_rows: product has terms, else A v.
// correction: null: none.
__global__ void __launch_bounds__(kWideBlock)
    SumSolution(int64_t n,
                bool is_of_rows,
                const double* v,
                const double* product,
                const double* x,
                const float* correction,
                SolutionSums* sums) {
  double of_product = 0.0;
  double of_x = 0.0;
  double of_correction = 0.0;
  for (int64_t i = threadIdx.x; i < n; i += kWideBlock) {
    of_product += is_of_rows ? product[i] : product[i] * x[i];
    of_x += fabs(x[i] / v[i]);
    if (correction != nullptr) {
      of_correction += fabs(static_cast<double>(correction[i]) / v[i]);
    }
  }
  of_product = BlockSum<kWideBlock>(of_product);
  of_x = BlockSum<kWideBlock>(of_x);
  of_correction = BlockSum<kWideBlock>(of_correction);
  if (threadIdx.x == 0) {
    sums->product = of_product;
    sums->solution = of_x;
    sums->correction = of_correction;
  }
}

std::string Short(double x) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.2g", x);
  return text;
}

}  // namespace

Status CheckSolution(const std::string& library,
                     int64_t n,
                     bool mixed_precision,
                     const SolutionSums& sums) {
  const std::string system = std::to_string(n) + " equations";
  if (!std::isfinite(sums.rhs)) {
    return {
        StatusCode::kNumericalFailure,
        "The right-hand side or the diagonal of " + system + " is not finite."};
  }
  if (!std::isfinite(sums.product) || !std::isfinite(sums.solution)) {
    return {StatusCode::kDeviceError,
            library + " reported success, but its solution of " + system +
                " is not finite."};
  }
  const auto size = static_cast<double>(n);
  const auto allowed = [&](double u, double y) {
    return std::min(size, 8.0 * std::sqrt(size)) *
           (3.0 * size + 7.0 + std::cbrt(1.0 / u)) * u * y;
  };
  constexpr double kDouble = std::numeric_limits<double>::epsilon() / 2.0;
  constexpr double kFloat = std::numeric_limits<float>::epsilon() / 2.0;
  // Numbers near the least that there are have less digits.
  double bound = size * std::numeric_limits<double>::min() +
                 size * (size / 32.0 + 30.0) * kDouble * sums.solution +
                 allowed(kDouble, sums.solution);
  if (mixed_precision) {
    bound += allowed(kFloat, sums.correction);
  }
  const double residual = std::fabs(sums.product - sums.rhs);
  if (residual <= bound || residual <= std::fabs(sums.rhs) / 1024.0) {
    return {};
  }
  return {StatusCode::kDeviceError,
          library + " reported success, but its solution of " + system +
              " is wrong: with random signs its residual is " +
              Short(residual) + ", the right-hand side " +
              Short(std::fabs(sums.rhs)) + "."};
}

Status CudaSolutionCheck::Setup(int64_t n, CudaMachine* machine) {
  machine_ = machine;
  n_ = n;
  for (DeviceBuffer<double>* buffer : {&v_, &product_}) {
    if (buffer->size() != n) {
      buffer->Release();
    }
    if (n > 0) {
      CERES_EXT_RETURN_IF_ERROR(machine->Allocate(n, buffer));
    }
  }
  return {};
}

void CudaSolutionCheck::Release() {
  v_.Release();
  product_.Release();
}

// v_i = s_i / sqrt(a_ii)
Status CudaSolutionCheck::QueueDenseMatrix(int64_t stride, const double* a) {
  double* const v = v_.data();
  CERES_EXT_RETURN_IF_ERROR(
      ForEach("DenseProbe", n_, machine_->stream(), [=] __device__(int64_t i) {
        v[i] = Sign(i) / sqrt(a[i * stride + i]);
      }));
  return Launch("DenseProduct",
                DenseProduct,
                {CeilDivide(n_, kWarpSize), kWideBlock},
                machine_->stream(),
                n_,
                stride,
                a,
                v,
                product_.data());
}

Status CudaSolutionCheck::QueueSparseMatrix(const int64_t* row_begin,
                                            const double* values) {
  double* const v = v_.data();
  return ForEach(
      "SparseProbe", n_, machine_->stream(), [=] __device__(int64_t i) {
        v[i] = Sign(i) / sqrt(values[row_begin[i + 1] - 1]);
      });
}

Status CudaSolutionCheck::QueueRhs(const double* b, SolutionSums* sums) {
  return Launch("SumRhs",
                SumRhs,
                {1, kWideBlock},
                machine_->stream(),
                n_,
                v_.data(),
                b,
                sums);
}

Status CudaSolutionCheck::QueueDenseSolution(const double* x,
                                             const float* correction,
                                             SolutionSums* sums) {
  return Launch("SumSolution",
                SumSolution,
                {1, kWideBlock},
                machine_->stream(),
                n_,
                false,
                v_.data(),
                product_.data(),
                x,
                correction,
                sums);
}

Status CudaSolutionCheck::QueueSparseSolution(const int64_t* row_begin,
                                              const int32_t* column,
                                              const double* values,
                                              const double* x,
                                              SolutionSums* sums) {
  CERES_EXT_RETURN_IF_ERROR(
      Launch("SparseProduct",
             SparseProduct,
             {CeilDivide(n_, kCheckBlock / kWarpSize), kCheckBlock},
             machine_->stream(),
             n_,
             row_begin,
             column,
             values,
             v_.data(),
             x,
             product_.data()));
  const float* const no_correction = nullptr;
  return Launch("SumSolution",
                SumSolution,
                {1, kWideBlock},
                machine_->stream(),
                n_,
                true,
                v_.data(),
                product_.data(),
                x,
                no_correction,
                sums);
}

}  // namespace ceres_ext::kernels
