// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/solver/preconditioner/coarse_vectors.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "cuda_kernels/machine/host_cholesky.h"
#include "cuda_kernels/machine/host_machine.h"
#include "cuda_kernels/ops/cluster_vectors.h"

namespace ceres_ext::solver {
namespace {

using kernels::HostDenseCholesky;

// Two steps do as well as eigenvectors, one nearly.
constexpr int kNumSteps = 2;
constexpr double kShift = 1e-10;
// The rest of a column, squared, below which it is a combination of those
// before it.
constexpr double kLeast = 1e-12;

// y = B x
void MultiplyByBlocks(const ClusterSystem& system, const double* x, double* y) {
  const double* block = system.blocks.data();
  for (const int32_t size : system.block_size) {
    for (int32_t i = 0; i < size; ++i) {
      double sum = 0.0;
      for (int32_t j = 0; j < size; ++j) {
        sum += block[int64_t{size} * j + i] * x[j];
      }
      y[i] = sum;
    }
    block += int64_t{size} * size;
    x += size;
    y += size;
  }
}

double Dot(int64_t n, const double* x, const double* y) {
  double sum = 0.0;
  for (int64_t i = 0; i < n; ++i) {
    sum += x[i] * y[i];
  }
  return sum;
}

// Makes the columns x B-orthonormal, twice by Gram and Schmidt's modified
// procedure; bx = B x.
void Orthonormalize(const ClusterSystem& system,
                    int32_t m,
                    std::vector<double>* x,
                    std::vector<double>* bx) {
  const int64_t n = system.n;
  for (int32_t a = 0; a < m; ++a) {
    double* const column = x->data() + n * a;
    double* const of_b = bx->data() + n * a;
    MultiplyByBlocks(system, column, of_b);
    double norm = Dot(n, column, of_b);
    bool is_there = norm > 0.0 && std::isfinite(norm);
    for (int pass = 0; pass < 2 && is_there; ++pass) {
      for (int32_t b = 0; b < a; ++b) {
        const double projection = Dot(n, bx->data() + n * b, column);
        for (int64_t i = 0; i < n; ++i) {
          column[i] -= projection * (*x)[n * b + i];
        }
      }
      MultiplyByBlocks(system, column, of_b);
      const double left = Dot(n, column, of_b);
      is_there = left > kLeast * norm;
      norm = left;
    }
    const double scale = is_there ? 1.0 / std::sqrt(norm) : 0.0;
    for (int64_t i = 0; i < n; ++i) {
      column[i] = is_there ? scale * column[i] : 0.0;
      of_b[i] = is_there ? scale * of_b[i] : 0.0;
    }
  }
}

}  // namespace

kernels::Status FindCoarseVectors(int32_t m,
                                  uint64_t seed,
                                  ClusterSystem* system,
                                  std::vector<double>* vectors) {
  const int64_t n = system->n;
  const int64_t stride = HostDenseCholesky::Stride(n);
  vectors->assign(static_cast<size_t>(n * m), 0.0);
  kernels::HostMachine machine(1);
  HostDenseCholesky cholesky;
  CERES_EXT_RETURN_IF_ERROR(cholesky.Setup(n, &machine));
  const std::vector<double> given = system->matrix;
  int64_t failed_order = 0;
  for (const double shift : {0.0, kShift}) {
    system->matrix = given;
    for (int64_t i = 0; i < n; ++i) {
      system->matrix[stride * i + i] *= 1.0 + shift;
    }
    CERES_EXT_RETURN_IF_ERROR(
        cholesky.QueueFactorization(system->matrix.data()));
    CERES_EXT_RETURN_IF_ERROR(cholesky.ReadFailedOrder(&failed_order));
    if (failed_order == 0) {
      break;
    }
  }
  if (failed_order != 0) {
    return {};
  }
  const auto num_columns =
      static_cast<int32_t>(std::min(n, static_cast<int64_t>(m)));
  std::vector<double> x(static_cast<size_t>(n * num_columns));
  std::vector<double> bx(x.size());
  for (size_t k = 0; k < x.size(); ++k) {
    x[k] = kernels::CoarseRandom(seed, k);
  }
  for (int step = 0; step < kNumSteps; ++step) {
    for (int32_t a = 0; a < num_columns; ++a) {
      double* const column = x.data() + n * a;
      double* const of_b = bx.data() + n * a;
      MultiplyByBlocks(*system, column, of_b);
      CERES_EXT_RETURN_IF_ERROR(cholesky.Solve(of_b, column));
    }
    Orthonormalize(*system, num_columns, &x, &bx);
  }
  for (int64_t i = 0; i < n; ++i) {
    for (int32_t a = 0; a < num_columns; ++a) {
      (*vectors)[static_cast<size_t>(m * i + a)] = x[n * a + i];
    }
  }
  return {};
}

}  // namespace ceres_ext::solver
