// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/solver/preconditioner/clusters.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <utility>

namespace ceres_ext::solver {
namespace {

// Strongest couplings of a block that are looked at; the others are of its
// neighbours' clusters, too.
constexpr size_t kStrongest = 12;

// Those that are among the strongest of one of their blocks.
void Prune(size_t num_blocks, std::vector<Coupling>* couplings) {
  std::vector<size_t> begin(num_blocks + 1, 0);
  for (const Coupling& c : *couplings) {
    ++begin[c.i + 1];
    ++begin[c.j + 1];
  }
  std::partial_sum(begin.begin(), begin.end(), begin.begin());
  std::vector<size_t> of_blocks(begin.back());
  std::vector<size_t> next(begin.begin(), begin.end() - 1);
  for (size_t c = 0; c < couplings->size(); ++c) {
    of_blocks[next[(*couplings)[c].i]++] = c;
    of_blocks[next[(*couplings)[c].j]++] = c;
  }
  std::vector<char> is_kept(couplings->size(), 0);
  for (size_t b = 0; b < num_blocks; ++b) {
    const auto first =
        of_blocks.begin() + static_cast<std::ptrdiff_t>(begin[b]);
    const auto last =
        of_blocks.begin() + static_cast<std::ptrdiff_t>(begin[b + 1]);
    const size_t n = std::min(kStrongest, begin[b + 1] - begin[b]);
    const auto end = first + static_cast<std::ptrdiff_t>(n);
    if (end != last) {
      std::nth_element(first, end, last, [&](size_t x, size_t y) {
        const double of_x = (*couplings)[x].weight;
        const double of_y = (*couplings)[y].weight;
        return of_x != of_y ? of_x > of_y : x < y;
      });
    }
    for (auto c = first; c != end; ++c) {
      is_kept[*c] = 1;
    }
  }
  size_t to = 0;
  for (size_t c = 0; c < couplings->size(); ++c) {
    if (is_kept[c] != 0) {
      (*couplings)[to++] = (*couplings)[c];
    }
  }
  couplings->resize(to);
}

// Sorts by block i or j, below num_blocks, and keeps the order of equals.
void SortByBlock(size_t num_blocks,
                 int32_t Coupling::*block,
                 std::vector<Coupling>* couplings) {
  std::vector<size_t> next(num_blocks + 1, 0);
  for (const Coupling& c : *couplings) {
    ++next[c.*block + 1];
  }
  std::partial_sum(next.begin(), next.end(), next.begin());
  std::vector<Coupling> sorted(couplings->size());
  for (const Coupling& c : *couplings) {
    sorted[next[c.*block]++] = c;
  }
  couplings->swap(sorted);
}

// Couplings of clusters in place of those of what they are made of.
void Contract(const std::vector<int32_t>& number,
              size_t num_clusters,
              std::vector<Coupling>* couplings) {
  size_t to = 0;
  for (const Coupling& c : *couplings) {
    const int32_t i = number[c.i];
    const int32_t j = number[c.j];
    if (i != j) {
      (*couplings)[to++] = {std::min(i, j), std::max(i, j), c.weight};
    }
  }
  couplings->resize(to);
  SortByBlock(num_clusters, &Coupling::j, couplings);
  SortByBlock(num_clusters, &Coupling::i, couplings);
  to = 0;
  for (const Coupling& c : *couplings) {
    if (to > 0 && (*couplings)[to - 1].i == c.i &&
        (*couplings)[to - 1].j == c.j) {
      (*couplings)[to - 1].weight += c.weight;
    } else {
      (*couplings)[to++] = c;
    }
  }
  couplings->resize(to);
}

}  // namespace

std::vector<int32_t> MakeClusters(const std::vector<int32_t>& size,
                                  std::vector<Coupling> couplings,
                                  int32_t mean_size,
                                  int32_t max_neighbors,
                                  int32_t* num_clusters) {
  const size_t num_blocks = size.size();
  std::vector<int32_t> num_neighbors(num_blocks, 0);
  for (const Coupling& c : couplings) {
    ++num_neighbors[c.i];
    ++num_neighbors[c.j];
  }
  int64_t num_matched_columns = 0;
  int32_t num_matched = 0;
  for (size_t b = 0; b < num_blocks; ++b) {
    if (num_neighbors[b] > 0 && num_neighbors[b] <= max_neighbors) {
      num_matched_columns += size[b];
      ++num_matched;
    }
  }
  couplings.erase(std::remove_if(couplings.begin(),
                                 couplings.end(),
                                 [&](const Coupling& c) {
                                   return num_neighbors[c.i] > max_neighbors ||
                                          num_neighbors[c.j] > max_neighbors;
                                 }),
                  couplings.end());
  Prune(num_blocks, &couplings);
  std::vector<int32_t> cluster(num_blocks);
  for (size_t b = 0; b < num_blocks; ++b) {
    cluster[b] = static_cast<int32_t>(b);
  }
  std::vector<int32_t> columns = size;  // of each cluster
  Contract(cluster, num_blocks, &couplings);
  while (num_matched_columns < int64_t{num_matched} * mean_size * 3 / 4) {
    std::vector<std::pair<double, size_t>> order;
    order.reserve(couplings.size());
    for (size_t c = 0; c < couplings.size(); ++c) {
      const double of_both = static_cast<double>(columns[couplings[c].i]) *
                             static_cast<double>(columns[couplings[c].j]);
      order.emplace_back(-couplings[c].weight / std::sqrt(of_both), c);
    }
    std::sort(order.begin(), order.end());
    std::vector<int32_t> mate(columns.size(), -1);
    int32_t num_merged = 0;
    for (const auto& [weight, c] : order) {
      const int32_t i = couplings[c].i;
      const int32_t j = couplings[c].j;
      if (mate[i] < 0 && mate[j] < 0 &&
          columns[i] + columns[j] <= 2 * mean_size) {
        mate[i] = j;
        mate[j] = i;
        ++num_merged;
      }
    }
    if (num_merged == 0) {
      break;
    }
    num_matched -= num_merged;
    // Numbered by their first parts.
    std::vector<int32_t> number(columns.size(), -1);
    std::vector<int32_t> sums;
    for (size_t c = 0; c < columns.size(); ++c) {
      if (number[c] < 0) {
        number[c] = static_cast<int32_t>(sums.size());
        sums.push_back(columns[c]);
        if (mate[c] >= 0) {
          number[mate[c]] = number[c];
          sums.back() += columns[mate[c]];
        }
      }
    }
    for (int32_t& of_block : cluster) {
      of_block = number[of_block];
    }
    columns.swap(sums);
    Contract(number, columns.size(), &couplings);
  }
  *num_clusters = static_cast<int32_t>(columns.size());
  return cluster;
}

}  // namespace ceres_ext::solver
