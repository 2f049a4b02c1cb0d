// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The factorisation of S of a model window (model_solve.h) by a block of
// threads, and the step of F.
//
//   per block of F  the rows behind it, a thread each
//                   what is behind it, a warp some columns, and meanwhile the
//                   next diagonal by the first warp, all of it in each lane
//
// Rows have places among those behind a block, since S has zeros elsewhere.
// Functions know the number of a block's columns, or it is 0. All are inlined;
// with kIsShared the compiler knows that S is at Team::OwnSchur().
#ifndef CERES_EXT_SMALL_MODEL_WINDOW_MODEL_TEAM_FACTOR_H_
#define CERES_EXT_SMALL_MODEL_WINDOW_MODEL_TEAM_FACTOR_H_

#include <cmath>
#include <cstdint>

#include "ceres_ext/small/model_window/model_window.h"
#include "ceres_ext/small/window/window_function.h"
#include "cuda_kernels/base/host_device.h"

namespace ceres_ext {

// Data that a block of threads shares.
struct ModelShared {
  int32_t verdict;
  // The row of each place behind a block, and that of b.
  uint16_t rows[kMaxModelColumns + 1];
};

template <typename Team, bool kIsShared>
class ModelTeamFactor {
 public:
  CERES_EXT_HOST_DEVICE ModelTeamFactor(const ModelWindow& window,
                                        ModelShared* shared,
                                        Team* team)
      : w_(window),
        shared_(shared),
        team_(team),
        schur_(window.schur),
        size_(window.counts.num_columns),
        rank_(team->rank()),
        num_threads_(team->size()) {}

  // S = L L', with the inverse of L's diagonal; its last row becomes L^-1 b.
  // False if S is not positive definite.
  CERES_EXT_WINDOW_PART bool Factorize() const {
    if (rank_ == 0) {
      shared_->verdict = 1;
    }
    team_->Barrier();
    const int num_blocks = w_.counts.num_others;
    if (rank_ < kWarp && num_blocks > 0) {
      FactorizeDiagonal(Block(w_.other(0)));
    }
    team_->Barrier();
    for (int b = 0; b < num_blocks; ++b) {
      const Block block(w_.other(b));
      const Block next = b + 1 < num_blocks ? Block(w_.other(b + 1)) : Block();
      if (block.size == 6) {
        Eliminate<6>(b, block, next);
      } else if (block.size == 9) {
        Eliminate<9>(b, block, next);
      } else {
        Eliminate<0>(b, block, next);
      }
    }
    const bool is_definite = shared_->verdict != 0;
    team_->Barrier();
    return is_definite;
  }

  // L' s = L^-1 b; S's last row becomes s too. From the last block on: its own
  // columns by the first warp, without those of the block behind it, and
  // meanwhile these of the rest of b by others, a thread an element.
  CERES_EXT_WINDOW_PART void Solve(double* s) const {
    Block behind;
    for (int b = w_.counts.num_others - 1; b >= 0; --b) {
      const Block block(w_.other(b));
      if (rank_ < kWarp) {
        SolveBlock(block, behind, s);
      } else {
        for (int r = rank_ - kWarp; r < block.column;
             r += num_threads_ - kWarp) {
          Column(r)[size_] -= Product(r, behind);
        }
      }
      behind = block;
      team_->Barrier();
    }
  }

 private:
  static constexpr int kWarp = Team::kWarp;
  // A block's columns in registers.
  template <int kN>
  static constexpr int kMost = kN > 0 ? kN : kMaxModelValues;
  // Columns that a warp updates at once.
  template <int kN>
  static constexpr int kWide = kN > 0 ? 4 : 2;

  struct Block {
    CERES_EXT_HOST_DEVICE Block() = default;
    CERES_EXT_HOST_DEVICE explicit Block(const ModelBlock& block)
        : column(block.column), size(block.num_columns) {}
    int column = 0;
    int size = 0;
  };

  CERES_EXT_HOST_DEVICE int lane() const { return rank_ % kWarp; }

  // Row r of column c is Column(c)[r].
  CERES_EXT_HOST_DEVICE double* Column(int c) const {
    return (kIsShared ? Team::OwnSchur() : schur_) +
           (c * size_ - c * (c - 1) / 2);
  }
  // From column c to the next one.
  CERES_EXT_HOST_DEVICE int Stride(int c) const { return size_ - c; }

  // Rows and columns behind block b, whose diagonal has its factor, and the
  // factor of the next one.
  template <int kN>
  CERES_EXT_WINDOW_PART void Eliminate(int b,
                                       const Block& block,
                                       const Block& next) const {
    const int n = kN > 0 ? kN : block.size;
    // Column t of the block is at first + offset[t].
    double* const first = Column(block.column);
    int offset[kMost<kN>];
    offset[0] = 0;
    CERES_EXT_WINDOW_UNROLL
    for (int t = 1; t < kMost<kN>; ++t) {
      offset[t] = offset[t - 1] + Stride(block.column + t - 1);
    }
    int num_places = 0;
    for (int k = w_.run_begin[b]; k < w_.run_begin[b + 1]; ++k) {
      num_places += w_.runs[k].end - w_.runs[k].begin;
    }
    for (int place = rank_; place < num_places; place += num_threads_) {
      const int r = RowBehind(b, place);
      shared_->rows[place] = static_cast<uint16_t>(r);
      SolveRow<kN>(block.column, n, r, first, offset);
    }
    team_->Barrier();
    if (rank_ < kWarp) {
      if (next.size > 0) {
        SubtractBefore<kN>(next, n, first, offset);
        FactorizeDiagonal(next);
      }
    } else {
      // The last row is b's, which is not a column.
      const int warp = rank_ / kWarp - 1;
      const int num_warps = num_threads_ / kWarp - 1;
      for (int p = kWide<kN> * warp; p < num_places - 1;
           p += kWide<kN> * num_warps) {
        UpdateColumns<kN>(
            n, p, num_places, next.column + next.size, first, offset);
      }
    }
    team_->Barrier();
  }

  CERES_EXT_WINDOW_PART int RowBehind(int b, int place) const {
    int k = w_.run_begin[b];
    int row = w_.runs[k].begin + place;
    while (row >= w_.runs[k].end) {
      row += w_.runs[k + 1].begin - w_.runs[k].end;
      ++k;
    }
    return row;
  }

  // Row r, times L^-T of the diagonal block.
  template <int kN>
  CERES_EXT_WINDOW_PART void SolveRow(int column,
                                      int n,
                                      int r,
                                      double* first,
                                      const int (&offset)[kMost<kN>]) const {
    double row[kMost<kN>];
    CERES_EXT_WINDOW_UNROLL
    for (int c = 0; c < kMost<kN>; ++c) {
      row[c] = c < n ? first[offset[c] + r] : 0.0;
    }
    if constexpr (kN > 0) {
      // All loads come before the first product that waits for one.
      double l[kN][kN];
      CERES_EXT_WINDOW_UNROLL
      for (int t = 0; t < kN; ++t) {
        CERES_EXT_WINDOW_UNROLL
        for (int c = t; c < kN; ++c) {
          l[t][c] = first[offset[t] + column + c];
        }
      }
      CERES_EXT_WINDOW_UNROLL
      for (int t = 0; t < kN; ++t) {
        row[t] *= l[t][t];
        CERES_EXT_WINDOW_UNROLL
        for (int c = t + 1; c < kN; ++c) {
          row[c] -= l[t][c] * row[t];
        }
      }
    } else {
      CERES_EXT_WINDOW_UNROLL
      for (int t = 0; t < kMost<kN>; ++t) {
        if (t < n) {
          const double* const of_t = first + offset[t] + column;
          row[t] *= of_t[t];
          CERES_EXT_WINDOW_UNROLL
          for (int c = t + 1; c < kMost<kN>; ++c) {
            if (c < n) {
              row[c] -= of_t[c] * row[t];
            }
          }
        }
      }
    }
    CERES_EXT_WINDOW_UNROLL
    for (int c = 0; c < kMost<kN>; ++c) {
      if (c < n) {
        first[offset[c] + r] = row[c];
      }
    }
  }

  // The columns of places p, p + 1, ... by a warp, whose lanes have rows. In
  // columns before `from` only those from there on: the rest is the next
  // diagonal.
  template <int kN>
  CERES_EXT_WINDOW_PART void UpdateColumns(
      int n,
      int p,
      int num_places,
      int from,
      const double* first,
      const int (&offset)[kMost<kN>]) const {
    constexpr int kW = kWide<kN>;
    const uint16_t* const rows = shared_->rows;
    double factors[kW][kMost<kN>];
    double* to[kW];
    int begin[kW];  // the first row
    CERES_EXT_WINDOW_UNROLL
    for (int j = 0; j < kW; ++j) {
      const bool is_any = p + j < num_places - 1;
      const int c = rows[is_any ? p + j : p];
      to[j] = Column(c);
      begin[j] = !is_any ? size_ + 1 : c < from ? from : c;
      CERES_EXT_WINDOW_UNROLL
      for (int t = 0; t < kMost<kN>; ++t) {
        factors[j][t] = t < n ? first[offset[t] + c] : 0.0;
      }
    }
    for (int q = p + lane(); q < num_places; q += kWarp) {
      const int r = rows[q];
      double sums[kW] = {};
      CERES_EXT_WINDOW_UNROLL
      for (int t = 0; t < kMost<kN>; ++t) {
        if (t < n) {
          const double value = first[offset[t] + r];
          CERES_EXT_WINDOW_UNROLL
          for (int j = 0; j < kW; ++j) {
            sums[j] += factors[j][t] * value;
          }
        }
      }
      CERES_EXT_WINDOW_UNROLL
      for (int j = 0; j < kW; ++j) {
        if (r >= begin[j]) {
          to[j][r] -= sums[j];
        }
      }
    }
  }

  // The columns of the block before it from a diagonal block, whose elements
  // the lanes of a warp have.
  template <int kN>
  CERES_EXT_WINDOW_PART void SubtractBefore(
      const Block& block,
      int n,
      const double* first,
      const int (&offset)[kMost<kN>]) const {
    const int num_elements = block.size * (block.size + 1) / 2;
    for (int k = lane(); k < num_elements; k += kWarp) {
      // k = r (r + 1) / 2 + c, and the root is off by less than 1 / 2.
      const auto row = static_cast<int>(
          (sqrtf(static_cast<float>(8 * k + 1)) - 1.0F) * 0.5F + 1e-3F);
      const int r = block.column + row;
      const int c = block.column + k - row * (row + 1) / 2;
      double sum = 0.0;
      CERES_EXT_WINDOW_UNROLL
      for (int t = 0; t < kMost<kN>; ++t) {
        if (t < n) {
          sum += first[offset[t] + r] * first[offset[t] + c];
        }
      }
      Column(c)[r] -= sum;
    }
    team_->WarpBarrier();
  }

  // The factor of a block's diagonal by a warp.
  CERES_EXT_WINDOW_PART void FactorizeDiagonal(const Block& block) const {
    const bool is_definite = block.size == 6   ? FactorizeTriangle<6>(block)
                             : block.size == 9 ? FactorizeTriangle<9>(block)
                                               : FactorizeRows(block);
    if (!is_definite && rank_ == 0) {
      shared_->verdict = 0;
    }
    team_->WarpBarrier();
  }

  // Each lane has all elements, so that none waits for another.
  template <int n>
  CERES_EXT_WINDOW_PART bool FactorizeTriangle(const Block& block) const {
    double* const first = Column(block.column) + block.column;
    double l[n][n];
    int offset = 0;
    CERES_EXT_WINDOW_UNROLL
    for (int c = 0; c < n; ++c) {
      CERES_EXT_WINDOW_UNROLL
      for (int r = c; r < n; ++r) {
        l[r][c] = first[offset + r];
      }
      offset += Stride(block.column + c);
    }
    bool is_definite = true;
    CERES_EXT_WINDOW_UNROLL
    for (int c = 0; c < n; ++c) {
      is_definite = is_definite && l[c][c] > 0.0;
      l[c][c] = Team::InverseSqrt(l[c][c]);
      CERES_EXT_WINDOW_UNROLL
      for (int r = c + 1; r < n; ++r) {
        l[r][c] *= l[c][c];
      }
      CERES_EXT_WINDOW_UNROLL
      for (int t = c + 1; t < n; ++t) {
        CERES_EXT_WINDOW_UNROLL
        for (int r = t; r < n; ++r) {
          l[r][t] -= l[r][c] * l[t][c];
        }
      }
    }
    team_->WarpBarrier();
    if (rank_ == 0) {
      offset = 0;
      CERES_EXT_WINDOW_UNROLL
      for (int c = 0; c < n; ++c) {
        CERES_EXT_WINDOW_UNROLL
        for (int r = c; r < n; ++r) {
          first[offset + r] = l[r][c];
        }
        offset += Stride(block.column + c);
      }
    }
    return is_definite;
  }

  // The same of any size, column by column.
  CERES_EXT_WINDOW_PART bool FactorizeRows(const Block& block) const {
    const int n = block.size;
    double* column = Column(block.column) + block.column;
    bool is_definite = true;
    for (int c = 0; c < n; ++c) {
      const double pivot = column[c];
      is_definite = is_definite && pivot > 0.0;
      const double inverse = Team::InverseSqrt(pivot);
      team_->WarpBarrier();  // All lanes have read it.
      const int r = lane();
      if (r >= c && r < n) {
        column[r] = r == c ? inverse : column[r] * inverse;
      }
      team_->WarpBarrier();
      double* to = column;
      for (int t = c + 1; t < n; ++t) {
        to += Stride(block.column + t - 1);
        if (r >= t && r < n) {
          to[r] -= column[r] * column[t];
        }
      }
      column += Stride(block.column + c);
      team_->WarpBarrier();
    }
    return is_definite;
  }

  // A lane has an element of the block.
  CERES_EXT_WINDOW_PART void SolveBlock(const Block& block,
                                        const Block& behind,
                                        double* s) const {
    if (block.size == 6) {
      SolveBlock<6>(block, behind, s);
    } else if (block.size == 9) {
      SolveBlock<9>(block, behind, s);
    } else {
      SolveBlock<0>(block, behind, s);
    }
  }
  template <int kN>
  CERES_EXT_WINDOW_PART void SolveBlock(const Block& block,
                                        const Block& behind,
                                        double* s) const {
    const int n = kN > 0 ? kN : block.size;
    const int own = lane() < n ? lane() : 0;
    double* const of_row = Column(block.column + own);
    const double inverse = of_row[block.column + own];
    // Row `own` of L' behind its diagonal, over that.
    double l[kMost<kN>];
    CERES_EXT_WINDOW_UNROLL
    for (int c = 0; c < kMost<kN>; ++c) {
      l[c] = c > own && c < n ? of_row[block.column + c] * inverse : 0.0;
    }
    double rest =
        (of_row[size_] - Product(block.column + own, behind)) * inverse;
    CERES_EXT_WINDOW_UNROLL
    for (int c = kMost<kN> - 1; c > 0; --c) {
      if (c < n) {
        rest -= l[c] * team_->Lane(rest, c);
      }
    }
    team_->WarpBarrier();  // All lanes have read it.
    if (lane() < n) {
      of_row[size_] = rest;
      s[block.column + own] = rest;
    }
  }

  // Row r of L' of a block's columns times what has been solved of them.
  CERES_EXT_WINDOW_PART double Product(int r, const Block& behind) const {
    return behind.size == 6   ? Product<6>(r, behind)
           : behind.size == 9 ? Product<9>(r, behind)
                              : Product<0>(r, behind);
  }
  template <int kN>
  CERES_EXT_WINDOW_PART double Product(int r, const Block& behind) const {
    const int n = kN > 0 ? kN : behind.size;
    const double* const of_row = Column(r) + behind.column;
    const double* solved = Column(behind.column) + size_;
    double sum = 0.0;
    CERES_EXT_WINDOW_UNROLL
    for (int c = 0; c < kMost<kN>; ++c) {
      if (c < n) {
        sum += of_row[c] * *solved;
        solved += Stride(behind.column + c);
      }
    }
    return sum;
  }

  const ModelWindow& w_;
  ModelShared* const shared_;
  Team* const team_;
  double* const schur_;
  const int size_;
  const int rank_;
  const int num_threads_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_SMALL_MODEL_WINDOW_MODEL_TEAM_FACTOR_H_
