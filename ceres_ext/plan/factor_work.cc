// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/plan/factor_work.h"

#include <algorithm>
#include <limits>

#include "Eigen/OrderingMethods"
#include "Eigen/SparseCore"
#include "cuda_kernels/machine/host_cholesky.h"

namespace ceres_ext {

// By the rows of L: row k has the columns on the ways in the elimination tree
// from the columns of A in row k up to k (Davis, Direct Methods for Sparse
// Linear Systems, section 4.4).
solver::FactorSize SizeOfFactor(const BlockPattern& pattern) {
  const int num_blocks = static_cast<int>(pattern.size.size());
  std::vector<Eigen::Triplet<char>> cells;
  // Eigen orders a block without a cell of the diagonal last, as a dense row.
  for (int i = 0; i < num_blocks; ++i) {
    cells.emplace_back(i, i, char{1});
  }
  for (const auto& [i, j] : pattern.cells) {
    cells.emplace_back(i, j, char{1});
  }
  Eigen::SparseMatrix<char> graph(num_blocks, num_blocks);
  graph.setFromTriplets(cells.begin(), cells.end());
  Eigen::PermutationMatrix<Eigen::Dynamic, Eigen::Dynamic, int> ordered;
  Eigen::AMDOrdering<int>()(graph, ordered);
  std::vector<int> place(num_blocks);
  for (int k = 0; k < num_blocks; ++k) {
    place[ordered.indices()[k]] = k;
  }
  std::vector<std::vector<int>> columns(num_blocks);  // of A, by row
  for (const auto& cell : pattern.cells) {
    const auto [j, k] = std::minmax(place[cell.first], place[cell.second]);
    columns[k].push_back(j);
  }
  std::vector<int> parent(num_blocks, -1);
  std::vector<int> last_row(num_blocks, -1);
  std::vector<double> height(num_blocks, 0.0);  // rows below the block
  for (int k = 0; k < num_blocks; ++k) {
    last_row[k] = k;
    for (int j : columns[k]) {
      for (; last_row[j] != k; j = parent[j]) {
        last_row[j] = k;
        height[j] += pattern.size[ordered.indices()[k]];
        if (parent[j] < 0) {
          parent[j] = k;
        }
      }
    }
  }
  solver::FactorSize size;
  for (int k = 0; k < num_blocks; ++k) {
    // Column c of a block of s columns has height + s - c rows.
    const double s = pattern.size[ordered.indices()[k]];
    const double rows = height[k] + 0.5 * (s + 1.0);
    size.num_values += s * rows;
    size.num_flops += s * rows * rows;
  }
  return size;
}

solver::FactorWork CountFactorWork(const BlockPattern& pattern) {
  using kernels::HostDenseCholesky;
  constexpr int64_t kTile = HostDenseCholesky::kTile;
  std::vector<int64_t> begin = {0};
  for (const int32_t size : pattern.size) {
    begin.push_back(begin.back() + size);
  }
  const int64_t num_tiles = HostDenseCholesky::NumTiles(begin.back());
  HostDenseCholesky::Tiles tiles(static_cast<size_t>(num_tiles * num_tiles), 0);
  for (const auto& [i, j] : pattern.cells) {
    for (int64_t row = begin[i] / kTile; kTile * row < begin[i + 1]; ++row) {
      for (int64_t column = begin[j] / kTile;
           column <= row && kTile * column < begin[j + 1];
           ++column) {
        tiles[static_cast<size_t>(num_tiles * row + column)] = 1;
      }
    }
  }
  solver::FactorWork work;
  work.sparse = SizeOfFactor(pattern);
  work.num_tile_products = static_cast<double>(
      HostDenseCholesky::AddFill(std::numeric_limits<int64_t>::max(), &tiles));
  work.num_tiles = static_cast<double>(
      std::count(tiles.begin(), tiles.end(), static_cast<unsigned char>(1)));
  return work;
}

}  // namespace ceres_ext
