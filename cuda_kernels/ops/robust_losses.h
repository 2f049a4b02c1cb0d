// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Robust losses (model/robust_loss.h) after an evaluation.
#ifndef CERES_EXT_CUDA_KERNELS_OPS_ROBUST_LOSSES_H_
#define CERES_EXT_CUDA_KERNELS_OPS_ROBUST_LOSSES_H_

#include <cmath>
#include <cstdint>

#include "cuda_kernels/base/block_ref.h"
#include "cuda_kernels/base/host_device.h"
#include "cuda_kernels/base/vector_sums.h"
#include "cuda_kernels/model/robust_loss.h"
#include "cuda_kernels/model/shape.h"
#include "cuda_kernels/ops/evaluate.h"
#include "cuda_kernels/ops/vector_operation.h"

namespace ceres_ext::kernels {

// s_k = |r_k|^2, for losses that the host calls: the same bits on all machines.
struct SquaredNormsParams {
  int64_t n = 0;  // rows
  int num_residuals = 2;
  const double* residuals = nullptr;  // num_residuals per row
  double* squared_norms = nullptr;

  CERES_EXT_HOST_DEVICE void Apply(int64_t k) const {
    double s = 0.0;
    for (int i = 0; i < num_residuals; ++i) {
      const double r = residuals[num_residuals * k + i];
      s += UnfusedProduct(r, r);
    }
    squared_norms[k] = s;
  }
};

// With rho = rho_k(s), rho_k'(s), rho_k''(s) at s = |r_k|^2, replaces residual
// and blocks of observation k by those of a plain problem (LossCorrector).
// Blocks are computed in double and rounded to T once.
template <typename T, typename Shape, BlockLayout kLayout>
struct LossCorrection {
  BlockRef<T, Shape::kFSize, kLayout> camera_blocks;  // in place; null: none
  BlockRef<T, Shape::kESize, kLayout> point_blocks;   // in place; null: none

  CERES_EXT_HOST_DEVICE void Correct(int64_t k,
                                     double s,
                                     const double* rho,
                                     double* residual) const {
    if (!LossCorrector::IsIdentity(rho)) {
      const LossCorrector corrector(s, rho);
      CorrectBlock(corrector, residual, k, camera_blocks);
      CorrectBlock(corrector, residual, k, point_blocks);
      corrector.template CorrectResidual<Shape::kNumResiduals>(residual);
    }
  }

 private:
  template <int N>
  CERES_EXT_HOST_DEVICE static void CorrectBlock(
      const LossCorrector& corrector,
      const double* residual,
      int64_t k,
      const BlockRef<T, N, kLayout>& blocks) {
    if (blocks.data == nullptr) {
      return;
    }
    double jacobian[N];
    for (int i = 0; i < N; ++i) {
      jacobian[i] = blocks(k, i);
    }
    constexpr int R = Shape::kNumResiduals;
    corrector.template CorrectJacobian<R, N / R>(residual, jacobian);
    for (int i = 0; i < N; ++i) {
      blocks(k, i) = static_cast<T>(jacobian[i]);
    }
  }
};

// After EvaluateCost or EvaluateJacobian: with rho_k the loss of observation k
// (s without one) and s_k = |r_k|^2,
//   cost = 1/2 sum rho_k(s_k)
// and, where wanted, residuals and blocks corrected as Ceres does.
// Leaves evaluation->num_not_finite alone. Residuals that aren't finite give
// values without meaning, but no error.
// A vector operation (ops/vector_operation.h). T is double or float, Shape
// BalShape<9 or 10>. Traffic per observation: 8 R + 1 B, or 8 R + 24 B where
// rho has been filled; where rho' isn't 1, 8 R B of corrected residual and 2 R
// (F + E) sizeof(T) B of blocks.
template <typename T, typename Shape, BlockLayout kLayout>
struct CorrectForLossParams {
  int64_t n = 0;  // observations
  LossRef loss;
  const double* residuals = nullptr;  // R per observation
  // R per observation; null: not wanted. May be `residuals`, nothing else.
  double* corrected_residuals = nullptr;
  LossCorrection<T, Shape, kLayout> correction;
  Evaluation* evaluation = nullptr;  // cost is set

  static constexpr int kUnroll = 1;
  // Without the bound it would be one, of up to 210 registers a thread.
  static constexpr int kMinBlocks = 2;

  CERES_EXT_HOST_DEVICE TwoSums Term(int64_t k) const {
    constexpr int R = Shape::kNumResiduals;
    double residual[R];
    double s = 0.0;
    for (int i = 0; i < R; ++i) {
      residual[i] = residuals[R * k + i];
      s += residual[i] * residual[i];
    }
    double rho[3];
    loss.Evaluate(k, s, rho);
    correction.Correct(k, s, rho, residual);
    if (corrected_residuals != nullptr) {
      for (int i = 0; i < R; ++i) {
        corrected_residuals[R * k + i] = residual[i];
      }
    }
    return {rho[0], 0.0};
  }
  CERES_EXT_HOST_DEVICE void Set(const TwoSums& sums) const {
    evaluation->cost = 0.5 * sums.first;
  }
};

// After EvaluateCost, where the blocks are recomputed and all losses concave
// (RobustLoss::IsConcave), so that Ceres corrects residual and blocks by one
// factor: with rho_k as in CorrectForLoss,
//   cost = 1/2 sum rho_k(s_k)
//   row_scale_k = sqrt(rho_k'), rounded to T
//   residual_k = rho_k' r_k, which J' that isn't scaled takes to the gradient
// A vector operation. Traffic per observation: 32 + sizeof(T) + 1 B.
template <typename T>
struct ScaleRowsForLossParams {
  int64_t n = 0;  // observations
  LossRef loss;
  double* residuals = nullptr;  // 2 per observation, in place
  T* row_scale = nullptr;
  Evaluation* evaluation = nullptr;  // cost is set

  static constexpr int kUnroll = 1;

  CERES_EXT_HOST_DEVICE TwoSums Term(int64_t k) const {
    using std::sqrt;
    double* const r = residuals + 2 * k;
    double rho[3];
    loss.Evaluate(k, r[0] * r[0] + r[1] * r[1], rho);
    row_scale[k] = static_cast<T>(sqrt(rho[1]));
    r[0] *= rho[1];
    r[1] *= rho[1];
    return {rho[0], 0.0};
  }
  CERES_EXT_HOST_DEVICE void Set(const TwoSums& sums) const {
    evaluation->cost = 0.5 * sums.first;
  }
};

// After ScaleRowsForLoss: residual_k = rho_k' r_k / row_scale_k, so that the
// scaled J' takes it to the gradient whatever row_scale was rounded to; zero
// where row_scale is.
// A vector operation. Traffic per observation: 32 + sizeof(T) B.
template <typename T>
struct UnscaleResidualsParams {
  int64_t n = 0;                 // observations
  const T* row_scale = nullptr;  // n
  double* residuals = nullptr;   // 2 per observation, in place

  CERES_EXT_HOST_DEVICE void Apply(int64_t k) const {
    const double s = static_cast<double>(row_scale[k]);
    for (int i = 0; i < 2; ++i) {
      double& r = residuals[2 * k + i];
      r = s == 0.0 ? 0.0 : r / s;
    }
  }
};

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_OPS_ROBUST_LOSSES_H_
