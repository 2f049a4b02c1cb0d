// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Cholesky's factorisation A = L L' of a dense symmetric matrix on the host, by
// tiles on all threads. The members are those of CudaDenseCholesky.
//
//   HostDenseCholesky cholesky;
//   Status status = cholesky.Setup(n, &machine);
//   if (status.ok()) status = cholesky.QueueFactorization(a);
//   if (status.ok()) status = cholesky.Solve(b, x);
//   int64_t failed_order = 0;
//   if (status.ok()) status = cholesky.ReadFailedOrder(&failed_order);
//   if (status.ok()) status = cholesky.Invert();  // a = A^-1
//
// A matrix is n x n doubles, column-major with Stride(n) from column to column;
// what is above its diagonal has no meaning, zeros are behind its columns.
// Tiles of the factor that are zero cost nothing: a matrix whose columns are in
// a good order, such as that of a camera's path, is factorised like a banded
// one. If Setup gets a list of the others, those that are zero are neither read
// nor written.
//
// Right-looking, panels of kTile columns (Golub and Van Loan, Matrix
// Computations, algorithm 4.2.7). The machine code for AVX-512, AVX2 or SSE2 is
// chosen when the library is loaded, without fused multiply-add, so that bits
// depend neither on that nor on the number of threads.
// Thread safety: one thread at a time, as the machine, which must outlive the
// object.
#ifndef CERES_EXT_CUDA_KERNELS_MACHINE_HOST_CHOLESKY_H_
#define CERES_EXT_CUDA_KERNELS_MACHINE_HOST_CHOLESKY_H_

#include <cstdint>
#include <vector>

#include "cuda_kernels/base/buffer.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/host_machine.h"

namespace ceres_ext::kernels {

class HostDenseCholesky {
 public:
  static constexpr int64_t kTile = 64;
  // Values from column to column: whole vectors of 8.
  static constexpr int64_t Stride(int64_t n) { return (n + 15) / 16 * 16; }

  // The tiles of A that may be set, and of its factor: NumTiles(n) a row, row
  // by row, those above the diagonal 0. Empty: any.
  using Tiles = std::vector<unsigned char>;
  static constexpr int64_t NumTiles(int64_t n) {
    return (n + kTile - 1) / kTile;
  }
  // Marks the tiles that the factor has beside those of A. Returns the number
  // of products of tiles that the factorisation takes; stops at the first
  // column where there are more than `enough`.
  static int64_t AddFill(int64_t enough, Tiles* tiles);

  // Takes all memory. May be called again, for another size or machine.
  // tiles: with fill.
  Status Setup(int64_t n, HostMachine* machine, Tiles tiles = {});
  // The tiles of Setup.
  const Tiles& tiles() const { return may_be_set_; }

  // a: the lower triangle of A, whose place L takes and which belongs to this
  // object until the last Solve.
  Status QueueFactorization(double* a);
  // *failed_order: 0, or k where the leading minor of order k is not positive
  // or not finite. There is no factor then, and solutions are none either.
  Status ReadFailedOrder(int64_t* failed_order) const {
    *failed_order = failed_order_;
    return {};
  }
  // x = A^-1 b, n values each; x may be b.
  Status Solve(const double* b, double* x);
  // x = A^-1 x, n x num_columns values, column-major without gaps. Columns that
  // begin with zeros, next to each other, take less time. only_from_first: of a
  // column only what is from its first value on that is not zero is wanted; the
  // rest is of no meaning. After Invert all is computed.
  Status SolveColumns(int64_t num_columns, bool only_from_first, double* x);
  // Replaces the factor by A^-1, both triangles of it, symmetric to the bit.
  // After that SolveColumns alone may be called, until the next factorisation.
  // Takes no memory. 2/3 n^3 flops, fewer where tiles of the factor are zero.
  Status Invert();

 private:
  // Replaces L in the columns of the panel that begins with column k by those
  // of Z = A^-1, where all of Z behind the panel is there.
  void InvertPanel(int64_t k);
  // x = Z x
  Status MultiplyByInverse(int64_t num_columns, double* x);
  // The same for as many columns as are solved for at once, row by row.
  void SolveGroup(bool only_from_first, double* x) const;
  // Factorises the columns of the panel that begins with column k.
  void FactorPanel(int64_t k);
  // Subtracts the panel's products from all columns behind it.
  void UpdateRest(int64_t k);
  // The tiles of L that are not zero in the panel that begins with column k,
  // below its own, by number of their row of tiles.
  std::vector<int32_t>& TilesBelow(int64_t k) {
    return tiles_below_[static_cast<size_t>(k / kTile)];
  }
  const std::vector<int32_t>& TilesBelow(int64_t k) const {
    return tiles_below_[static_cast<size_t>(k / kTile)];
  }

  HostMachine* machine_ = nullptr;
  int64_t n_ = 0;
  int64_t stride_ = 0;
  double* a_ = nullptr;  // the caller's; null too if n is 0
  int64_t failed_order_ = 0;
  bool is_inverted_ = false;
  // Rows of the panel in strips of 8 rows, each column by column, from its
  // first column on that is not zero. Solve: for
  // each tile of the panel, products of its columns. Invert: tiles of rows in
  // strips of 8 columns, each row by row.
  HostBuffer<double> panel_;
  HostBuffer<double> diagonal_;  // L of the panel's own rows, row by row
  Tiles may_be_set_;
  // The first column of each strip of the panel that is not zero; kTile: none.
  std::vector<int32_t> first_column_;
  std::vector<std::vector<int32_t>> tiles_below_;
};

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_MACHINE_HOST_CHOLESKY_H_
