// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The factorisation of S of a model window (model_solve.h) by a team, and the
// step of F.
//
//   per block of F  the rows below its diagonal, a thread each
//                   what is behind it, a warp two columns, and meanwhile the
//                   next diagonal by the first warp, a row in a lane's
//                   registers
//
// A thread of the host takes whole columns, by vectors. On a device functions
// know the number of a block's columns, or it is 0.
#ifndef CERES_EXT_SMALL_MODEL_WINDOW_MODEL_FACTOR_H_
#define CERES_EXT_SMALL_MODEL_WINDOW_MODEL_FACTOR_H_

#include <cmath>
#include <cstdint>

#include "ceres_ext/small/model_window/model_window.h"
#include "ceres_ext/small/window/window_function.h"
#include "cuda_kernels/base/host_device.h"

namespace ceres_ext {

template <typename Team>
class ModelFactor {
 public:
  CERES_EXT_HOST_DEVICE ModelFactor(const ModelWindow& window, Team* team)
      : w_(window),
        team_(team),
        schur_(window.schur),
        size_(window.counts.num_columns) {}

  // S = L L', with the inverse of L's diagonal; its last row becomes L^-1 b.
  // False if S is not positive definite. *verdict: a number that all threads
  // see.
  CERES_EXT_HOST_DEVICE bool Factorize(int32_t* verdict) const {
    if (rank() == 0) {
      *verdict = 1;
    }
    team_->Barrier();
    const int num_blocks = w_.counts.num_others;
    if constexpr (kWarp > 1) {
      if (rank() < kWarp && num_blocks > 0) {
        FactorizeNext(w_.other(0), nullptr, verdict);
      }
      team_->Barrier();
    }
    for (int b = 0; b < num_blocks; ++b) {
      const ModelBlock block = w_.other(b);
      const Runs runs = {w_.runs, w_.run_begin[b], w_.run_begin[b + 1]};
      if constexpr (kWarp > 1) {
        const ModelBlock* const next =
            b + 1 < num_blocks ? &w_.other(b + 1) : nullptr;
        if (block.num_columns == 6) {
          EliminateBlock<6>(block, runs, next, verdict);
        } else if (block.num_columns == 9) {
          EliminateBlock<9>(block, runs, next, verdict);
        } else {
          EliminateBlock<0>(block, runs, next, verdict);
        }
      } else {
        EliminateByColumns(block, runs, verdict);
      }
    }
    const bool is_definite = *verdict != 0;
    team_->Barrier();
    return is_definite;
  }

  // L' s = L^-1 b. On a device S's last row becomes s too.
  CERES_EXT_HOST_DEVICE void Solve(double* s) const {
    if constexpr (kWarp > 1) {
      SolveByBlocks(s);
    } else {
      SolveByColumns(s);
    }
  }

 private:
  static constexpr int kWarp = Team::kWarp;

  // Runs of rows that are behind a block.
  struct Runs {
    const ModelRun* all;
    int begin;
    int end;
  };

  CERES_EXT_HOST_DEVICE int rank() const { return team_->rank(); }
  CERES_EXT_HOST_DEVICE int num_threads() const { return team_->size(); }
  CERES_EXT_HOST_DEVICE int lane() const { return rank() % kWarp; }

  // Row r of column c is Column(c)[r].
  CERES_EXT_HOST_DEVICE double* Column(int c) const {
    return schur_ + (c * size_ - c * (c - 1) / 2);
  }
  // From column c to the next one.
  CERES_EXT_HOST_DEVICE int Stride(int c) const { return size_ - c; }

  // By a thread of the host.
  CERES_EXT_HOST_DEVICE void EliminateByColumns(const ModelBlock& block,
                                                const Runs& runs,
                                                int32_t* verdict) const {
    if (!FactorizeInPlace(block)) {
      *verdict = 0;
    }
    for (int k = runs.begin; k < runs.end; ++k) {
      SolveRunByColumns(block, runs.all[k]);
    }
    for (int k = runs.begin; k < runs.end; ++k) {
      for (int c = runs.all[k].begin; c < runs.all[k].end && c < size_; ++c) {
        for (int l = k; l < runs.end; ++l) {
          const ModelRun& run = runs.all[l];
          UpdateColumn(block, c, l == k ? c : run.begin, run.end);
        }
      }
    }
  }

  // False if it is not positive definite.
  CERES_EXT_HOST_DEVICE bool FactorizeInPlace(const ModelBlock& block) const {
    using std::sqrt;
    bool is_definite = true;
    const int end = block.column + block.num_columns;
    for (int c = block.column; c < end; ++c) {
      double* const column = Column(c);
      is_definite = is_definite && column[c] > 0.0;
      const double inverse = 1.0 / sqrt(column[c]);
      column[c] = inverse;
      for (int r = c + 1; r < end; ++r) {
        column[r] *= inverse;
      }
      for (int t = c + 1; t < end; ++t) {
        double* const to = Column(t);
        for (int r = t; r < end; ++r) {
          to[r] -= column[r] * column[t];
        }
      }
    }
    return is_definite;
  }

  CERES_EXT_HOST_DEVICE void SolveRunByColumns(const ModelBlock& block,
                                               const ModelRun& run) const {
    const int end = block.column + block.num_columns;
    for (int c = block.column; c < end; ++c) {
      double* const to = Column(c);
      for (int t = block.column; t < c; ++t) {
        const double* const from = Column(t);
        const double factor = from[c];
        for (int r = run.begin; r < run.end; ++r) {
          to[r] -= factor * from[r];
        }
      }
      const double inverse = to[c];
      for (int r = run.begin; r < run.end; ++r) {
        to[r] *= inverse;
      }
    }
  }

  // Rows [begin, end) of column c.
  CERES_EXT_HOST_DEVICE void UpdateColumn(const ModelBlock& block,
                                          int c,
                                          int begin,
                                          int end) const {
    double* const to = Column(c);
    const int last = block.column + block.num_columns;
    int t = block.column;
    for (; t + 3 <= last; t += 3) {
      const double* const p = Column(t);
      const double* const q = Column(t + 1);
      const double* const s = Column(t + 2);
      const double of_p = p[c];
      const double of_q = q[c];
      const double of_s = s[c];
      for (int r = begin; r < end; ++r) {
        to[r] -= of_p * p[r] + of_q * q[r] + of_s * s[r];
      }
    }
    for (; t < last; ++t) {
      const double* const p = Column(t);
      const double of_p = p[c];
      for (int r = begin; r < end; ++r) {
        to[r] -= of_p * p[r];
      }
    }
  }

  CERES_EXT_HOST_DEVICE void SolveByColumns(double* s) const {
    for (int c = size_ - 1; c >= 0; --c) {
      const double* const column = Column(c);
      double sum = 0.0;
      for (int r = c + 1; r < size_; ++r) {
        sum += column[r] * s[r];
      }
      s[c] = (column[size_] - sum) * column[c];
    }
  }

  // A block's columns in registers, kMost at most.
  template <int kN>
  static constexpr int kMost = kN > 0 ? kN : kMaxModelValues;

  // Rows and columns behind a block whose diagonal has its factor, and the
  // factor of the next one.
  template <int kN>
  CERES_EXT_WINDOW_PHASE void EliminateBlock(const ModelBlock& block,
                                             const Runs& runs,
                                             const ModelBlock* next,
                                             int32_t* verdict) const {
    const int n = kN > 0 ? kN : block.num_columns;
    // Column t of the block is at first + offset[t].
    double* const first = Column(block.column);
    int offset[kMost<kN>];
    offset[0] = 0;
    CERES_EXT_WINDOW_UNROLL
    for (int t = 1; t < kMost<kN>; ++t) {
      offset[t] = offset[t - 1] + Stride(block.column + t - 1);
    }
    // The rows of all runs are dealt out to threads one after the other.
    int dealt = rank();
    for (int k = runs.begin; k < runs.end; ++k) {
      const ModelRun run = runs.all[k];
      int r = run.begin + dealt;
      for (; r < run.end; r += num_threads()) {
        SolveRow<kN>(block.column, n, r, first, offset);
      }
      dealt = r - run.end;
    }
    team_->Barrier();
    if (rank() < kWarp) {
      if (next != nullptr) {
        FactorizeNext(*next, &block, verdict);
      }
    } else {
      const int from =
          next != nullptr ? next->column + next->num_columns : size_;
      const int num_warps = num_threads() / kWarp - 1;
      int turn = rank() / kWarp - 1;
      for (int k = runs.begin; k < runs.end; ++k) {
        const int begin = runs.all[k].begin;
        const int end = runs.all[k].end < size_ ? runs.all[k].end : size_;
        int c = begin + 2 * turn;
        for (; c < end; c += 2 * num_warps) {
          UpdateTwoColumns<kN>(n, c, c + 1 < end, from, k, runs, first, offset);
        }
        turn = (c - begin) / 2 - (end - begin + 1) / 2;
      }
    }
    team_->Barrier();
  }

  // The factor of a block's diagonal by a warp, after the columns of the block
  // before it are subtracted.
  CERES_EXT_HOST_DEVICE void FactorizeNext(const ModelBlock& block,
                                           const ModelBlock* before,
                                           int32_t* verdict) const {
    const bool is_definite =
        block.num_columns == 6   ? FactorizeDiagonal<6>(block, before)
        : block.num_columns == 9 ? FactorizeDiagonal<9>(block, before)
                                 : FactorizeDiagonal<0>(block, before);
    if (!is_definite && rank() == 0) {
      *verdict = 0;
    }
  }

  // A lane has a row. The part above the diagonal is not used.
  template <int kN>
  CERES_EXT_WINDOW_PHASE bool FactorizeDiagonal(
      const ModelBlock& block, const ModelBlock* before) const {
    const int n = kN > 0 ? kN : block.num_columns;
    const int r = lane();
    double* const first = Column(block.column) + block.column;
    int offset[kMost<kN>];
    double row[kMost<kN>];
    offset[0] = 0;
    CERES_EXT_WINDOW_UNROLL
    for (int c = 0; c < kMost<kN>; ++c) {
      if (c > 0) {
        offset[c] = offset[c - 1] + Stride(block.column + c - 1);
      }
      row[c] = c <= r && r < n ? first[offset[c] + r] : 0.0;
    }
    if (before != nullptr) {
      const double* column = Column(before->column) + block.column;
      for (int t = 0; t < before->num_columns; ++t) {
        const double mine = column[r < n ? r : 0];
        CERES_EXT_WINDOW_UNROLL
        for (int c = 0; c < kMost<kN>; ++c) {
          if (c < n) {
            row[c] -= mine * column[c];
          }
        }
        column += Stride(before->column + t);
      }
    }
    bool is_definite = true;
    CERES_EXT_WINDOW_UNROLL
    for (int c = 0; c < kMost<kN>; ++c) {
      if (c < n) {
        const double pivot = team_->Lane(row[c], c);
        is_definite = is_definite && pivot > 0.0;
        const double inverse = team_->InverseSqrt(pivot);
        row[c] = r == c ? inverse : row[c] * inverse;
        CERES_EXT_WINDOW_UNROLL
        for (int t = c + 1; t < kMost<kN>; ++t) {
          if (t < n) {
            row[t] -= row[c] * team_->Lane(row[c], t);
          }
        }
      }
    }
    CERES_EXT_WINDOW_UNROLL
    for (int c = 0; c < kMost<kN>; ++c) {
      if (c <= r && r < n) {
        first[offset[c] + r] = row[c];
      }
    }
    return is_definite;
  }

  // Row r, times L^-T of the diagonal block.
  template <int kN>
  CERES_EXT_HOST_DEVICE void SolveRow(int column,
                                      int n,
                                      int r,
                                      double* first,
                                      const int (&offset)[kMost<kN>]) const {
    double row[kMost<kN>];
    CERES_EXT_WINDOW_UNROLL
    for (int c = 0; c < kMost<kN>; ++c) {
      row[c] = c < n ? first[offset[c] + r] : 0.0;
    }
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
    CERES_EXT_WINDOW_UNROLL
    for (int c = 0; c < kMost<kN>; ++c) {
      if (c < n) {
        first[offset[c] + r] = row[c];
      }
    }
  }

  // Columns c and c + 1, of run k, or c alone, by a warp. A lane has rows, of
  // columns before `from` those from there on.
  template <int kN>
  CERES_EXT_HOST_DEVICE void UpdateTwoColumns(
      int n,
      int c,
      bool has_two,
      int from,
      int k,
      const Runs& runs,
      const double* first,
      const int (&offset)[kMost<kN>]) const {
    double of_c[kMost<kN>];
    double of_next[kMost<kN>];
    CERES_EXT_WINDOW_UNROLL
    for (int t = 0; t < kMost<kN>; ++t) {
      of_c[t] = t < n ? first[offset[t] + c] : 0.0;
      of_next[t] = t < n && has_two ? first[offset[t] + c + 1] : 0.0;
    }
    double* const to = Column(c);
    double* const to_next = to + Stride(c);
    const int begin = c < from ? from : c;
    for (int l = k; l < runs.end; ++l) {
      const ModelRun run = runs.all[l];
      for (int r = (l == k ? begin : run.begin) + lane(); r < run.end;
           r += kWarp) {
        double sum = 0.0;
        double sum_next = 0.0;
        CERES_EXT_WINDOW_UNROLL
        for (int t = 0; t < kMost<kN>; ++t) {
          if (t < n) {
            const double value = first[offset[t] + r];
            sum += of_c[t] * value;
            sum_next += of_next[t] * value;
          }
        }
        to[r] -= sum;
        if (has_two && r > c) {
          to_next[r] -= sum_next;
        }
      }
    }
  }

  // From the last block on: its own columns by the first warp, and what they
  // are of the rest of b, a thread an element.
  CERES_EXT_WINDOW_PHASE void SolveByBlocks(double* s) const {
    for (int b = w_.counts.num_others - 1; b >= 0; --b) {
      const int begin = w_.other(b).column;
      const int end = begin + w_.other(b).num_columns;
      if (rank() < kWarp) {
        // A lane has an element of the block.
        const int r = begin + lane();
        const double* const of_r = Column(r < end ? r : begin);
        double rest = r < end ? of_r[size_] : 0.0;
        const double inverse = r < end ? of_r[r] : 0.0;
        for (int c = end - 1; c >= begin; --c) {
          const double value = team_->Lane(rest * inverse, c - begin);
          if (r < c) {
            rest -= of_r[c] * value;
          } else if (r == c) {
            rest = value;
          }
        }
        if (r < end) {
          Column(r)[size_] = rest;
          s[r] = rest;
        }
      }
      team_->Barrier();
      for (int r = rank(); r < begin; r += num_threads()) {
        double* const of_r = Column(r);
        double sum = 0.0;
        const double* last = Column(begin) + size_;
        for (int c = begin; c < end; ++c) {
          sum += of_r[c] * *last;
          last += Stride(c);
        }
        of_r[size_] -= sum;
      }
      team_->Barrier();
    }
  }

  const ModelWindow& w_;
  Team* const team_;
  double* const schur_;
  const int size_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_SMALL_MODEL_WINDOW_MODEL_FACTOR_H_
