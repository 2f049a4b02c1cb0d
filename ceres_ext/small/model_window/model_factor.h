// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The factorisation of S of a model window (model_solve.h) by a thread of the
// host, and the step of F: whole columns, by vectors.
#ifndef CERES_EXT_SMALL_MODEL_WINDOW_MODEL_FACTOR_H_
#define CERES_EXT_SMALL_MODEL_WINDOW_MODEL_FACTOR_H_

#include <cmath>
#include <cstdint>

#include "ceres_ext/small/model_window/model_window.h"

namespace ceres_ext {

class ModelFactor {
 public:
  explicit ModelFactor(const ModelWindow& window)
      : w_(window), schur_(window.schur), size_(window.counts.num_columns) {}

  // S = L L', with the inverse of L's diagonal; its last row becomes L^-1 b.
  // False if S is not positive definite.
  bool Factorize() const {
    bool is_definite = true;
    for (int b = 0; b < w_.counts.num_others; ++b) {
      const Runs runs = {w_.runs, w_.run_begin[b], w_.run_begin[b + 1]};
      is_definite = Eliminate(w_.other(b), runs) && is_definite;
    }
    return is_definite;
  }

  // L' s = L^-1 b.
  void Solve(double* s) const {
    for (int c = size_ - 1; c >= 0; --c) {
      const double* const column = Column(c);
      double sum = 0.0;
      for (int r = c + 1; r < size_; ++r) {
        sum += column[r] * s[r];
      }
      s[c] = (column[size_] - sum) * column[c];
    }
  }

 private:
  // Runs of rows that are behind a block.
  struct Runs {
    const ModelRun* all;
    int begin;
    int end;
  };

  // Row r of column c is Column(c)[r].
  double* Column(int c) const { return schur_ + (c * size_ - c * (c - 1) / 2); }

  // False if its diagonal is not positive definite.
  bool Eliminate(const ModelBlock& block, const Runs& runs) const {
    const bool is_definite = FactorizeInPlace(block);
    for (int k = runs.begin; k < runs.end; ++k) {
      SolveRun(block, runs.all[k]);
    }
    for (int k = runs.begin; k < runs.end; ++k) {
      for (int c = runs.all[k].begin; c < runs.all[k].end && c < size_; ++c) {
        for (int l = k; l < runs.end; ++l) {
          const ModelRun& run = runs.all[l];
          UpdateColumn(block, c, l == k ? c : run.begin, run.end);
        }
      }
    }
    return is_definite;
  }

  bool FactorizeInPlace(const ModelBlock& block) const {
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

  void SolveRun(const ModelBlock& block, const ModelRun& run) const {
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
  void UpdateColumn(const ModelBlock& block, int c, int begin, int end) const {
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

  const ModelWindow& w_;
  double* const schur_;
  const int size_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_SMALL_MODEL_WINDOW_MODEL_FACTOR_H_
