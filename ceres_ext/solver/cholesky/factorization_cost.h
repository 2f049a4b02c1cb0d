// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// About how long a factorisation of S and a solve with it take: for a choice
// between a dense one and a sparse one, and between device and host. Times on
// devices were fitted to an H200 (docs/measurements/study_exact.md); those of
// another one are in the proportion of its rates (machine_rates.h).
#ifndef CERES_EXT_SOLVER_CHOLESKY_FACTORIZATION_COST_H_
#define CERES_EXT_SOLVER_CHOLESKY_FACTORIZATION_COST_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ceres_ext/solver/cholesky/sparse_factorization.h"
#include "cuda_kernels/base/machine_rates.h"
#include "cuda_kernels/machine/cuda_sparse_cholesky.h"
#include "cuda_kernels/machine/host_cholesky.h"

namespace ceres_ext::solver {

// n^3 / 3 operations in products of matrices, and columns one after the other.
inline constexpr double kDeviceSecondsPerFactorFlop = 2.2e-14;
inline double DenseFactorizationSeconds(int64_t n,
                                        const kernels::MachineRates& rates,
                                        bool float_factor = false) {
  const auto columns = static_cast<double>(n);
  return 0.56e-6 * columns +
         kDeviceSecondsPerFactorFlop *
             (float_factor ? SlowerFloat(rates) : SlowerDouble(rates)) *
             columns * columns * columns / 3.0;
}

// True if a factor of float with some ten iterations of conjugate gradients
// (CudaDenseCholesky) is faster. An iteration substitutes with the factor, as a
// solution does, and multiplies by S in double.
inline bool FloatFactorIsFaster(int64_t n, const kernels::MachineRates& rates) {
  constexpr double kIterations = 10.0;
  const auto columns = static_cast<double>(n);
  const double iteration = 0.3e-6 * columns + kDeviceSecondsPerFactorFlop *
                                                  kernels::SlowerDouble(rates) *
                                                  columns * columns;
  return DenseFactorizationSeconds(n, rates, /*float_factor=*/true) +
             kIterations * iteration <
         DenseFactorizationSeconds(n, rates);
}

// By the values of the factor, which are moved more often than multiplied.
inline double SparseFactorizationSeconds(int64_t num_factor_values,
                                         int64_t num_flops,
                                         const kernels::MachineRates& rates) {
  return 1.0e-3 + std::max(1.05e-9 * SlowerMemory(rates) *
                               static_cast<double>(num_factor_values),
                           kDeviceSecondsPerFactorFlop * SlowerDouble(rates) *
                               static_cast<double>(num_flops));
}

// True if a sparse factorisation is faster by more than its share of the
// analysis, which takes 40 ms and more per solve of about 20 steps.
inline bool SparseIsFaster(int64_t n,
                           int64_t num_factor_values,
                           int64_t num_flops,
                           const kernels::MachineRates& rates) {
  constexpr double kShareOfAnalysis = 2.0e-3;
  return SparseFactorizationSeconds(num_factor_values, num_flops, rates) +
             kShareOfAnalysis <
         DenseFactorizationSeconds(n, rates);
}
// The same before the analysis, from the values of S: the factors of streets of
// cameras have had 1.6 to 5.3 times as many.
inline bool SparseMayBeFaster(int64_t n,
                              int64_t num_values,
                              const kernels::MachineRates& rates) {
  return SparseIsFaster(n, num_values * 3 / 2, 0, rates);
}

// On the host a dense factorisation (kernels::HostDenseCholesky) leaves out
// tiles of the factor that are zero in the order of the columns; a sparse one
// has its own order and one thread. Seconds in which S is set to zero,
// factorised and solved with, fitted to the processor time of 178 matrices of
// 300 to 3,000 columns in blocks of 3, 6 and 9 on one thread of an AMD EPYC
// with AVX-512: bands, arrows, grids and random graphs, also shuffled. Nine of
// ten are within 0.67 to 1.2 of it.
inline constexpr double kHostSecondsPerDenseValue = 2.6e-9;  // in tiles
inline constexpr double kHostSecondsPerFactorValue = 1.3e-8;
inline constexpr double kHostSecondsPerSparseFlop = 3.5e-10;

// With its share, of some ten steps, of listing the pattern and its order.
inline double HostSparseSeconds(const FactorSize& size) {
  constexpr double kShareOfAnalysis = 5e-5;
  return kShareOfAnalysis + kHostSecondsPerFactorValue * size.num_values +
         kHostSecondsPerSparseFlop * size.num_flops;
}
// A product of tiles of a matrix of n columns, which caches hold less well
// the larger it is. The number of threads must not choose, since the bits would
// depend on it: this is between one thread and two.
inline double HostSecondsPerTileProduct(int64_t n) {
  constexpr double kThreads = 1.3;
  return (1e-5 + 2.5e-9 * static_cast<double>(std::min(n, int64_t{3000}))) /
         kThreads;
}
// The address space of all values is taken, 2.1 GB of so many columns. Beyond
// that they cost as much as if they were touched.
inline double HostAddressSeconds(int64_t n) {
  constexpr int64_t kMostColumns = 16384;
  const auto columns = static_cast<double>(n);
  return n > kMostColumns ? 0.5 * kHostSecondsPerDenseValue * columns * columns
                          : 0.0;
}
inline double HostTileSeconds(int64_t n,
                              double num_products,
                              double num_tiles) {
  constexpr int64_t kTile = kernels::HostDenseCholesky::kTile;
  return HostAddressSeconds(n) + HostSecondsPerTileProduct(n) * num_products +
         kHostSecondsPerDenseValue * static_cast<double>(kTile * kTile) *
             num_tiles;
}
// The factors of a matrix: a sparse one in an order of its own, and a dense one
// in the order of the matrix, by tiles that are set and their products.
struct FactorWork {
  FactorSize sparse;
  double num_tiles = 0.0;
  double num_tile_products = 0.0;
};
// The time of the faster one.
inline double HostFactorizationSeconds(int64_t n, const FactorWork& work) {
  return std::min(HostTileSeconds(n, work.num_tile_products, work.num_tiles),
                  HostSparseSeconds(work.sparse));
}
// If it takes longer than `enough`, some number from that on; otherwise *tiles
// are those of S and its factor.
inline double HostDenseSeconds(const kernels::LowerCsr& lower,
                               double enough,
                               kernels::HostDenseCholesky::Tiles* tiles) {
  using kernels::HostDenseCholesky;
  constexpr int64_t kTile = HostDenseCholesky::kTile;
  const double of_all = HostAddressSeconds(lower.n);
  if (of_all >= enough) {
    return of_all;
  }
  const int64_t num_tiles = HostDenseCholesky::NumTiles(lower.n);
  tiles->assign(static_cast<size_t>(num_tiles * num_tiles), 0);
  for (int64_t row = 0; row < lower.n; ++row) {
    for (int64_t k = lower.row_begin[row]; k < lower.row_begin[row + 1]; ++k) {
      (*tiles)[static_cast<size_t>(num_tiles * (row / kTile) +
                                   lower.column[k] / kTile)] = 1;
    }
  }
  constexpr double kMostProducts = 1e15;
  const double per_product = HostSecondsPerTileProduct(lower.n);
  const int64_t num_products = HostDenseCholesky::AddFill(
      static_cast<int64_t>(std::min(enough / per_product, kMostProducts)) + 1,
      tiles);
  const auto num_set = static_cast<double>(
      std::count(tiles->begin(), tiles->end(), static_cast<unsigned char>(1)));
  return HostTileSeconds(lower.n, static_cast<double>(num_products), num_set);
}

// True if a sparse factorisation may be faster, from about how many values S
// has, before its pattern is listed and ordered: a factor has at least these.
inline bool SparseMayBeFasterOnHost(int64_t n, int64_t num_values) {
  const auto columns = static_cast<double>(n);
  const auto values = static_cast<double>(num_values);
  const double tiles = columns / kernels::HostDenseCholesky::kTile;
  return HostSparseSeconds({values, values * values / columns}) <
         0.5 * kHostSecondsPerDenseValue * columns * columns +
             HostSecondsPerTileProduct(n) * tiles * tiles * tiles / 6.0;
}
}  // namespace ceres_ext::solver

#endif  // CERES_EXT_SOLVER_CHOLESKY_FACTORIZATION_COST_H_
