// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The factorisation of S of a model window (model_solve.h) by a team, and the
// step of F.
//
//   per block of F  its diagonal by the first warp, a row in a lane's registers
//                   the rows below, a thread each
//                   what is behind it, a warp two columns
//
// A thread of the host takes whole columns, by vectors.
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
      : w_(window), team_(team) {}

  // S = L L', with the inverse of L's diagonal; its last row becomes L^-1 b.
  // False if S is not positive definite. *verdict: a number that all threads
  // see.
  CERES_EXT_HOST_DEVICE bool Factorize(int32_t* verdict) const {
    if (rank() == 0) {
      *verdict = 1;
    }
    team_->Barrier();
    for (int b = 0; b < w_.counts.num_others; ++b) {
      const ModelBlock& block = w_.other(b);
      if (rank() < kWarp && !FactorizeDiagonal(block) && rank() == 0) {
        *verdict = 0;
      }
      team_->Barrier();
      SolveRows(block, w_.run_begin[b], w_.run_begin[b + 1]);
      team_->Barrier();
      UpdateBehind(block, w_.run_begin[b], w_.run_begin[b + 1]);
      team_->Barrier();
    }
    const bool is_definite = *verdict != 0;
    team_->Barrier();
    return is_definite;
  }

  // L' s = L^-1 b.
  CERES_EXT_HOST_DEVICE void Solve(double* s) const {
    if constexpr (kWarp > 1) {
      SolveByBlocks(s);
    } else {
      SolveByColumns(s);
    }
  }

 private:
  static constexpr int kWarp = Team::kWarp;
  static constexpr int kMost = kMaxModelValues;  // columns of a block

  CERES_EXT_HOST_DEVICE int rank() const { return team_->rank(); }
  CERES_EXT_HOST_DEVICE int size() const { return team_->size(); }
  CERES_EXT_HOST_DEVICE int lane() const { return rank() % kWarp; }

  // False if it is not positive definite.
  CERES_EXT_HOST_DEVICE bool FactorizeDiagonal(const ModelBlock& block) const {
    if constexpr (kWarp > 1) {
      return FactorizeInRegisters(block);
    } else {
      return FactorizeInPlace(block);
    }
  }

  CERES_EXT_HOST_DEVICE bool FactorizeInPlace(const ModelBlock& block) const {
    using std::sqrt;
    bool is_definite = true;
    const int end = block.column + block.num_columns;
    for (int c = block.column; c < end; ++c) {
      double* const column = w_.SchurColumn(c);
      is_definite = is_definite && column[0] > 0.0;
      const double inverse = 1.0 / sqrt(column[0]);
      column[0] = inverse;
      for (int r = 1; r < end - c; ++r) {
        column[r] *= inverse;
      }
      for (int t = c + 1; t < end; ++t) {
        double* const to = w_.SchurColumn(t);
        for (int r = t; r < end; ++r) {
          to[r - t] -= column[r - c] * column[t - c];
        }
      }
    }
    return is_definite;
  }

  // A lane has a row. What is above the diagonal is not used.
  CERES_EXT_HOST_DEVICE bool FactorizeInRegisters(
      const ModelBlock& block) const {
    const int n = block.num_columns;
    const int r = lane();
    double row[kMost];
    CERES_EXT_WINDOW_UNROLL
    for (int c = 0; c < kMost; ++c) {
      row[c] = c <= r && r < n ? w_.SchurColumn(block.column + c)[r - c] : 0.0;
    }
    bool is_definite = true;
    CERES_EXT_WINDOW_UNROLL
    for (int c = 0; c < kMost; ++c) {
      if (c < n) {
        const double pivot = team_->Lane(row[c], c);
        is_definite = is_definite && pivot > 0.0;
        const double inverse = team_->InverseSqrt(pivot);
        row[c] = r == c ? inverse : row[c] * inverse;
        CERES_EXT_WINDOW_UNROLL
        for (int t = c + 1; t < kMost; ++t) {
          if (t < n) {
            row[t] -= row[c] * team_->Lane(row[c], t);
          }
        }
      }
    }
    CERES_EXT_WINDOW_UNROLL
    for (int c = 0; c < kMost; ++c) {
      if (c <= r && r < n) {
        w_.SchurColumn(block.column + c)[r - c] = row[c];
      }
    }
    return is_definite;
  }

  // Rows of the runs, times L^-T of the diagonal block.
  CERES_EXT_HOST_DEVICE void SolveRows(const ModelBlock& block,
                                       int first_run,
                                       int end_run) const {
    if constexpr (kWarp > 1) {
      // The rows of all runs, dealt out to threads one after the other.
      int first = 0;
      for (int k = first_run; k < end_run; ++k) {
        const ModelRun& run = w_.runs[k];
        for (int r = run.begin + (rank() + size() - first) % size();
             r < run.end;
             r += size()) {
          SolveRow(block, r);
        }
        first = (first + run.end - run.begin) % size();
      }
    } else {
      for (int k = first_run; k < end_run; ++k) {
        SolveRunByColumns(block, w_.runs[k]);
      }
    }
  }

  CERES_EXT_HOST_DEVICE void SolveRunByColumns(const ModelBlock& block,
                                               const ModelRun& run) const {
    const int end = block.column + block.num_columns;
    for (int c = block.column; c < end; ++c) {
      double* const to = w_.SchurColumn(c) - c;
      for (int t = block.column; t < c; ++t) {
        const double* const from = w_.SchurColumn(t) - t;
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

  CERES_EXT_HOST_DEVICE void SolveRow(const ModelBlock& block, int r) const {
    const int n = block.num_columns;
    double row[kMost];
    CERES_EXT_WINDOW_UNROLL
    for (int c = 0; c < kMost; ++c) {
      if (c < n) {
        row[c] = (w_.SchurColumn(block.column + c) - block.column - c)[r];
      }
    }
    CERES_EXT_WINDOW_UNROLL
    for (int t = 0; t < kMost; ++t) {
      if (t < n) {
        double* const column = w_.SchurColumn(block.column + t);
        row[t] *= column[0];
        (column - block.column - t)[r] = row[t];
        CERES_EXT_WINDOW_UNROLL
        for (int c = t + 1; c < kMost; ++c) {
          if (c < n) {
            row[c] -= column[c - t] * row[t];
          }
        }
      }
    }
  }

  // Subtracts the block's columns from those behind it.
  CERES_EXT_HOST_DEVICE void UpdateBehind(const ModelBlock& block,
                                          int first_run,
                                          int end_run) const {
    constexpr int kColumns = kWarp > 1 ? 2 : 1;
    const int warp = rank() / kWarp;
    const int num_warps = size() / kWarp;
    int turn = 0;
    for (int k = first_run; k < end_run; ++k) {
      const int end = w_.runs[k].end < w_.counts.num_columns
                          ? w_.runs[k].end
                          : w_.counts.num_columns;
      for (int c = w_.runs[k].begin; c < end; c += kColumns, ++turn) {
        if (turn % num_warps != warp) {
          continue;
        }
        if constexpr (kWarp > 1) {
          UpdateTwoColumns(block, c, c + 1 < end, k, end_run);
        } else {
          for (int l = k; l < end_run; ++l) {
            UpdateColumn(
                block, c, l == k ? c : w_.runs[l].begin, w_.runs[l].end);
          }
        }
      }
    }
  }

  // Rows [begin, end) of column c.
  CERES_EXT_HOST_DEVICE void UpdateColumn(const ModelBlock& block,
                                          int c,
                                          int begin,
                                          int end) const {
    double* const to = w_.SchurColumn(c) - c;
    const int last = block.column + block.num_columns;
    int t = block.column;
    for (; t + 3 <= last; t += 3) {
      const double* const p = w_.SchurColumn(t) - t;
      const double* const q = w_.SchurColumn(t + 1) - (t + 1);
      const double* const s = w_.SchurColumn(t + 2) - (t + 2);
      const double of_p = p[c];
      const double of_q = q[c];
      const double of_s = s[c];
      for (int r = begin; r < end; ++r) {
        to[r] -= of_p * p[r] + of_q * q[r] + of_s * s[r];
      }
    }
    for (; t < last; ++t) {
      const double* const p = w_.SchurColumn(t) - t;
      const double of_p = p[c];
      for (int r = begin; r < end; ++r) {
        to[r] -= of_p * p[r];
      }
    }
  }

  // Columns c and c + 1, of run k, or c alone. A lane has rows.
  CERES_EXT_HOST_DEVICE void UpdateTwoColumns(
      const ModelBlock& block, int c, bool has_two, int k, int end_run) const {
    const int n = block.num_columns;
    double first[kMost];
    double second[kMost];
    CERES_EXT_WINDOW_UNROLL
    for (int t = 0; t < kMost; ++t) {
      if (t < n) {
        const double* const p =
            w_.SchurColumn(block.column + t) - block.column - t;
        first[t] = p[c];
        second[t] = has_two ? p[c + 1] : 0.0;
      }
    }
    double* const to = w_.SchurColumn(c) - c;
    double* const to_second = w_.SchurColumn(c + 1) - (c + 1);
    for (int l = k; l < end_run; ++l) {
      const ModelRun& run = w_.runs[l];
      for (int r = (l == k ? c : run.begin) + lane(); r < run.end; r += kWarp) {
        double of_first = 0.0;
        double of_second = 0.0;
        CERES_EXT_WINDOW_UNROLL
        for (int t = 0; t < kMost; ++t) {
          if (t < n) {
            const double p =
                (w_.SchurColumn(block.column + t) - block.column - t)[r];
            of_first += first[t] * p;
            of_second += second[t] * p;
          }
        }
        to[r] -= of_first;
        if (has_two && r > c) {
          to_second[r] -= of_second;
        }
      }
    }
  }

  CERES_EXT_HOST_DEVICE void SolveByColumns(double* s) const {
    const int n = w_.counts.num_columns;
    for (int c = n - 1; c >= 0; --c) {
      const double* const column = w_.SchurColumn(c) - c;
      double sum = 0.0;
      for (int r = c + 1; r < n; ++r) {
        sum += column[r] * s[r];
      }
      s[c] = (column[n] - sum) * column[c];
    }
  }

  // From the last block on: its own columns by the first warp, and what they
  // are of the rest of b, a thread an element. S's last row becomes s.
  CERES_EXT_HOST_DEVICE void SolveByBlocks(double* s) const {
    const int n = w_.counts.num_columns;
    for (int b = w_.counts.num_others - 1; b >= 0; --b) {
      const int begin = w_.other(b).column;
      const int end = begin + w_.other(b).num_columns;
      for (int c = end - 1; c >= begin && rank() < kWarp; --c) {
        const double value = *w_.Schur(n, c) * *w_.Schur(c, c);
        team_->WarpBarrier();  // All lanes have read it.
        if (lane() == 0) {
          *w_.Schur(n, c) = value;
          s[c] = value;
        }
        for (int r = begin + lane(); r < c; r += kWarp) {
          *w_.Schur(n, r) -= *w_.Schur(c, r) * value;
        }
        team_->WarpBarrier();
      }
      team_->Barrier();
      for (int r = rank(); r < begin; r += size()) {
        double sum = 0.0;
        for (int c = begin; c < end; ++c) {
          sum += *w_.Schur(c, r) * *w_.Schur(n, c);
        }
        *w_.Schur(n, r) -= sum;
      }
      team_->Barrier();
    }
  }

  const ModelWindow& w_;
  Team* const team_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_SMALL_MODEL_WINDOW_MODEL_FACTOR_H_
