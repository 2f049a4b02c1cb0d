// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The marginal priors of a model window (model_solve.h).
#ifndef CERES_EXT_SMALL_MODEL_WINDOW_MODEL_PRIORS_H_
#define CERES_EXT_SMALL_MODEL_WINDOW_MODEL_PRIORS_H_

#include <cstdint>

#include "ceres_ext/blocks/quaternion_difference.h"
#include "ceres_ext/small/model_window/model_window.h"
#include "cuda_kernels/base/host_device.h"

namespace ceres_ext {

CERES_EXT_HOST_DEVICE inline void SetModelDifference(
    const ModelWindow& w, const ModelPriorBlock& block) {
  using Kind = internal::BlockDifference::Kind;
  const double* at = block.state >= 0 ? w.candidate + block.state
                                      : w.constants - 1 - block.state;
  const double* reference = w.prior_values + block.reference;
  double* d = w.differences + block.difference;
  double* by = w.by_columns + block.by_columns;
  const int n = block.num_columns;
  // Rows of P, of which there are none if the block is constant.
  const double* p = block.tangent >= 0 ? w.tangents + block.tangent : nullptr;
  int first = 0;
  for (int k = block.part; k < block.part_end; ++k) {
    const ModelPriorPart& part = w.prior_parts[k];
    const bool is_quaternion =
        part.kind == Kind::kQuaternion || part.kind == Kind::kEigenQuaternion;
    double by_values[12];
    if (is_quaternion) {
      internal::DifferenceOfQuaternions(
          part.kind, at, reference, 4, d, by_values);
    }
    const int num_rows = is_quaternion                ? 3
                         : part.kind == Kind::kValues ? part.size
                                                      : 0;
    for (int r = 0; r < num_rows; ++r) {
      if (!is_quaternion) {
        d[r] = at[r] - reference[r];
      }
      for (int c = 0; c < n; ++c) {
        double sum = 0.0;
        for (int e = is_quaternion ? 0 : r;
             e < (is_quaternion ? part.size : r + 1);
             ++e) {
          const double of_value = is_quaternion ? by_values[4 * r + e] : 1.0;
          sum += of_value * (p != nullptr     ? p[n * e + c]
                             : first + e == c ? 1.0
                                              : 0.0);
        }
        by[n * r + c] = sum;
      }
    }
    at += part.size;
    reference += part.size;
    first += part.size;
    d += num_rows;
    by += n * num_rows;
    p = p != nullptr ? p + n * part.size : nullptr;
  }
}

// d and D P of all priors, except for manifolds that are on the host alone.
template <typename Team>
CERES_EXT_HOST_DEVICE void SetModelDifferences(const ModelWindow& w,
                                               const Team& team) {
  for (int k = team.rank(); k < w.counts.num_prior_blocks; k += team.size()) {
    SetModelDifference(w, w.prior_blocks[k]);
  }
}

// The columns of residual i by a block. a: the residual's row of A.
CERES_EXT_HOST_DEVICE inline void SetModelColumns(const ModelWindow& w,
                                                  int lane,
                                                  int warp_size,
                                                  const ModelPrior& prior,
                                                  const ModelPriorBlock& block,
                                                  const double* a,
                                                  int i) {
  a += block.difference - prior.difference;
  const double* const by = w.by_columns + block.by_columns;
  double* const to = w.prior_columns + prior.columns +
                     int64_t{i} * prior.num_columns + block.column;
  for (int c = lane; c < block.num_columns; c += warp_size) {
    double sum = 0.0;
    for (int e = 0; e < block.num_differences; ++e) {
      sum += a[e] * by[block.num_columns * e + c];
    }
    to[c] = sum;
  }
}

// J P = A D P and r = A d + b. A warp has a residual, or its columns by a
// block.
template <typename Team>
CERES_EXT_HOST_DEVICE void EvaluateModelPriors(const ModelWindow& w,
                                               Team* team) {
  constexpr int kWarp = Team::kWarp;
  const int lane = team->rank() % kWarp;
  int turn = team->rank() / kWarp;
  for (int k = 0; k < w.counts.num_priors; ++k) {
    const ModelPrior& prior = w.priors[k];
    const int num_parts = prior.block_end - prior.block + 1;
    const int num_turns = num_parts * prior.num_residuals;
    for (; turn < num_turns; turn += team->size() / kWarp) {
      const int i = turn / num_parts;
      const int part = turn % num_parts;
      const double* const a =
          w.prior_values + prior.matrix + int64_t{i} * prior.num_differences;
      if (part > 0) {
        const ModelPriorBlock& block = w.prior_blocks[prior.block + part - 1];
        SetModelColumns(w, lane, kWarp, prior, block, a, i);
        continue;
      }
      const double* const d = w.differences + prior.difference;
      double sum = 0.0;
      for (int c = lane; c < prior.num_differences; c += kWarp) {
        sum += a[c] * d[c];
      }
      sum = team->WarpSum(sum);
      if (lane == 0) {
        w.prior_residuals[prior.residuals + i] =
            sum + w.prior_values[prior.offset + i];
      }
    }
    turn -= num_turns;
  }
}

// |r|^2 of each prior, a warp one.
template <typename Team>
CERES_EXT_HOST_DEVICE void SetModelPriorNorms(const ModelWindow& w,
                                              Team* team) {
  constexpr int kWarp = Team::kWarp;
  const int lane = team->rank() % kWarp;
  for (int k = team->rank() / kWarp; k < w.counts.num_priors;
       k += team->size() / kWarp) {
    const ModelPrior& prior = w.priors[k];
    const double* const r = w.prior_residuals + prior.residuals;
    double sum = 0.0;
    for (int i = lane; i < prior.num_residuals; i += kWarp) {
      sum += r[i] * r[i];
    }
    sum = team->WarpSum(sum);
    if (lane == 0) {
      w.prior_norms[k] = sum;
    }
  }
}

}  // namespace ceres_ext

#endif  // CERES_EXT_SMALL_MODEL_WINDOW_MODEL_PRIORS_H_
