// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Priors and marginal priors of a window.
#ifndef CERES_EXT_SMALL_WINDOW_PRIORS_H_
#define CERES_EXT_SMALL_WINDOW_PRIORS_H_

#include <cstdint>

#include "ceres_ext/small/window/team_window.h"
#include "cuda_kernels/model/bal_model.h"
#include "cuda_kernels/model/robust_loss.h"

namespace ceres_ext {
namespace window {

// Returns |r|^2 of a prior, and rho of it.
template <typename W>
CERES_EXT_WINDOW double EvaluateLoss(const W& w,
                                     const WindowPrior& prior,
                                     const double* r,
                                     double* rho) {
  double squared_norm = 0.0;
  for (int e = 0; e < WindowPrior::kSize; ++e) {
    squared_norm += r[e] * r[e];
  }
  rho[0] = squared_norm;
  rho[1] = 1.0;
  rho[2] = 0.0;
  if (prior.loss != kernels::kNoLoss) {
    kernels::RobustLoss::EvaluateChain(
        w.loss.losses, prior.loss, squared_norm, rho);
  }
  for (int e = 0; e < 3; ++e) {
    rho[e] *= prior.weight;
  }
  return squared_norm;
}

// Writes the record of prior k at x. False if a value is not finite. If x is
// that of before, another block may still read; it finds the same values.
template <typename W>
CERES_EXT_WINDOW_PHASE bool EvaluatePrior(W& w, int k) {
  constexpr int kSize = WindowPrior::kSize;
  const WindowPrior& prior = w.model.prior(k);
  double* const record = w.PriorRecord(k);
  const double* const x[2] = {w.PoseOf(prior.camera[0], w.cameras),
                              w.PoseOf(prior.camera[1], w.cameras)};
  double r[kSize];
  bool is_finite = w.model.EvaluatePrior(prior, x, r);
  double rho[3];
  const double squared_norm = EvaluateLoss(w, prior, r, rho);
  const bool is_corrected = !kernels::LossCorrector::IsIdentity(rho);
  const kernels::LossCorrector corrector =
      is_corrected ? kernels::LossCorrector(squared_norm, rho)
                   : kernels::LossCorrector();
  for (int side = 0; side < 2; ++side) {
    double jacobian[kPriorElements] = {};
    const int camera = prior.camera[side];
    if (w.IsVarying(camera)) {
      is_finite &= w.model.DifferentiatePrior(prior, x, side, jacobian);
      for (int e = 0; e < kPriorElements; ++e) {
        if (!w.Varies(camera, e % kPoseColumns)) {
          jacobian[e] = 0.0;
        }
      }
      if (is_corrected) {
        corrector.template CorrectJacobian<kSize, kPoseColumns>(r, jacobian);
      }
    }
    for (int e = 0; e < kPriorElements; ++e) {
      record[kPriorJacobian + kPriorElements * side + e] = jacobian[e];
    }
  }
  if (is_corrected) {
    corrector.template CorrectResidual<kSize>(r);
  }
  for (int e = 0; e < kSize; ++e) {
    record[e] = r[e];
  }
  record[kPriorCost] = 0.5 * rho[0];
  return is_finite;
}

// a'b of columns ca and cb of two Jacobians of a prior.
CERES_EXT_WINDOW double ColumnProduct(const double* a,
                                      int ca,
                                      const double* b,
                                      int cb) {
  double sum = 0.0;
  for (int e = 0; e < WindowPrior::kSize; ++e) {
    sum += a[kPoseColumns * e + ca] * b[kPoseColumns * e + cb];
  }
  return sum;
}

// Adds the priors to gradient and squared norms in each block, and to S and
// the right-hand side in the first one.
template <typename W>
CERES_EXT_WINDOW_PHASE void AddPriors(W& w, bool is_last) {
  if (w.counts.num_priors == 0) {
    return;  // The same for all threads.
  }
  const bool has_system = !is_last && w.block() == 0;
  // Other threads may have written the sums before.
  w.team->Barrier();
  for (int c = w.rank(); c < w.n; c += w.size()) {
    double gradient = 0.0;
    double squared_norm = 0.0;
    const int column = c % W::kColumns;
    if (column >= kPoseColumns) {
      continue;
    }
    w.model.ForEachSide(c / W::kColumns, [&](int side_of_prior) {
      const double* const record = w.PriorRecord(side_of_prior / 2);
      const double* const jacobian =
          record + kPriorJacobian + kPriorElements * (side_of_prior % 2);
      for (int e = 0; e < WindowPrior::kSize; ++e) {
        gradient += jacobian[kPoseColumns * e + column] * record[e];
      }
      squared_norm += ColumnProduct(jacobian, column, jacobian, column);
    });
    w.gradient[c] += gradient;
    w.squared_norms[c] += squared_norm;
    if (has_system) {
      w.right_hand_side[c] -= gradient;
    }
  }
  // The diagonal blocks.
  constexpr int kTriangle = static_cast<int>(PackedTriangle(kPoseColumns));
  for (int t = w.rank(); has_system && t < kTriangle * w.counts.num_cameras;
       t += w.size()) {
    const int camera = t / kTriangle;
    const int r = TriangularRoot(t % kTriangle);
    const int c = t % kTriangle - static_cast<int>(PackedTriangle(r));
    double sum = 0.0;
    w.model.ForEachSide(camera, [&](int side_of_prior) {
      const double* const jacobian = w.PriorRecord(side_of_prior / 2) +
                                     kPriorJacobian +
                                     kPriorElements * (side_of_prior % 2);
      sum += ColumnProduct(jacobian, r, jacobian, c);
    });
    w.schur[At(W::kColumns * camera + r, W::kColumns * camera + c)] += sum;
  }
  // The blocks of two cameras.
  constexpr int kSquare = kPoseColumns * kPoseColumns;
  for (int t = w.rank(); has_system && t < kSquare * w.counts.num_priors;
       t += w.size()) {
    const WindowPrior& prior = w.model.prior(t / kSquare);
    if (prior.is_first == 0) {
      continue;
    }
    const int r = t % kSquare / kPoseColumns;
    const int c = t % kPoseColumns;
    const int high = prior.camera[0] > prior.camera[1] ? 0 : 1;
    const int i = prior.camera[high];
    const int j = prior.camera[1 - high];
    double sum = 0.0;
    for (int k = t / kSquare; k >= 0; k = w.model.prior(k).next) {
      const double* const jacobians = w.PriorRecord(k) + kPriorJacobian;
      const int high_of_k = w.model.prior(k).camera[0] == i ? 0 : 1;
      sum += ColumnProduct(jacobians + kPriorElements * high_of_k,
                           r,
                           jacobians + kPriorElements * (1 - high_of_k),
                           c);
    }
    w.schur[At(W::kColumns * i + r, W::kColumns * j + c)] += sum;
  }
  w.team->Barrier();
}

// The first two items of prior k's step. False if its error at the candidate
// is not finite.
template <typename W>
CERES_EXT_WINDOW_PHASE bool StepOfPrior(W& w, int k) {
  const WindowPrior& prior = w.model.prior(k);
  double* const record = w.PriorRecord(k);
  double model = 0.0;
  for (int e = 0; e < WindowPrior::kSize; ++e) {
    double change = 0.0;
    for (int side = 0; side < 2; ++side) {
      const int camera = prior.camera[side];
      const double* const row =
          record + kPriorJacobian + kPriorElements * side + kPoseColumns * e;
      for (int c = 0; w.IsVarying(camera) && c < kPoseColumns; ++c) {
        change += row[c] * w.step[W::kColumns * camera + c];
      }
    }
    model -= change * (record[e] + 0.5 * change);
  }
  const double* const x[2] = {w.PoseOf(prior.camera[0], w.new_cameras),
                              w.PoseOf(prior.camera[1], w.new_cameras)};
  double r[WindowPrior::kSize];
  const bool is_finite = w.model.EvaluatePrior(prior, x, r);
  double rho[3];
  EvaluateLoss(w, prior, r, rho);
  record[kPriorItem] = model;
  record[kPriorItem + 1] = 0.5 * rho[0];
  return is_finite;
}

// Writes the differences of poses at constant values and at `varying`, every
// num_threads-th one, and if there are columns the derivatives.
template <typename W>
CERES_EXT_WINDOW void TakeDifferences(W& w,
                                      const double* varying,
                                      bool has_columns,
                                      int thread,
                                      int num_threads) {
  for (int e = thread; e < w.counts.num_marginal_poses; e += num_threads) {
    const WindowMarginalPose& pose = w.model.marginal_pose(e);
    double* const difference = w.DifferenceOf(e);
    w.model.Difference(w.PoseOf(pose.camera, varying),
                       pose.reference,
                       difference,
                       has_columns ? difference + kPoseColumns : nullptr);
  }
}

// Calls function(prior, i) for the rows of all marginal priors by turns of
// warps. All threads of a warp call it.
template <typename W, typename Function>
CERES_EXT_WINDOW void ForEachMarginalRow(const W& w,
                                         int warp,
                                         int num_warps,
                                         const Function& function) {
  for (int k = 0; k < w.counts.num_marginals; ++k) {
    const WindowMarginal prior = w.model.marginal(k);
    const int first =
        (warp + num_warps - prior.row_begin % num_warps) % num_warps;
    for (int i = first; i < prior.num_rows; i += num_warps) {
      function(prior, i);
    }
  }
}

// A d + b of row i, valid in the first thread of a warp. All its threads call
// it.
template <typename W>
CERES_EXT_WINDOW double MarginalResidual(const W& w,
                                         const WindowMarginal& prior,
                                         int i) {
  const int num_columns = prior.num_columns();
  const double* const row = w.model.marginal_row(prior, i);
  double sum = 0.0;
  for (int c = w.rank() % w.warp_size(); c < num_columns; c += w.warp_size()) {
    sum += row[c] * w.DifferenceOf(prior.pose_begin +
                                   c / kPoseColumns)[c % kPoseColumns];
  }
  return w.team->WarpSum(sum) + row[num_columns];
}

// Writes [J r] of the marginal priors at x, and the costs of its rows. False
// if a value is not finite.
template <typename W>
CERES_EXT_WINDOW_PHASE bool EvaluateMarginals(W& w) {
  TakeDifferences(
      w, w.cameras, /*has_columns=*/true, w.Member(), w.NumMembers());
  w.team->Join();
  const int lane = w.rank() % w.warp_size();
  bool is_finite = true;
  const auto evaluate_row = [&](const WindowMarginal& prior, int i) {
    const double* const a = w.model.marginal_row(prior, i);
    double* const row = w.MarginalRow(prior, i);
    for (int c = lane; c < kPoseColumns * prior.num_varying;
         c += w.warp_size()) {
      const int pose = prior.pose_begin + c / kPoseColumns;
      const int column = c % kPoseColumns;
      double value = a[c];
      if (column < 3) {
        const double* const of_turn = a + (c - column);
        const double* const by_turn =
            w.DifferenceOf(pose) + kPoseColumns + column;
        value = of_turn[0] * by_turn[0] + of_turn[1] * by_turn[3] +
                of_turn[2] * by_turn[6];
      }
      is_finite &= kernels::AllFinite(&value, 1);
      row[c] =
          w.Varies(w.model.marginal_pose(pose).camera, column) ? value : 0.0;
    }
    const double r = MarginalResidual(w, prior, i);
    if (lane == 0) {
      row[prior.num_columns()] = r;
      w.MarginalItem(prior.row_begin + i)[1] = 0.5 * r * r;
      is_finite &= kernels::AllFinite(&r, 1);
    }
  };
  ForEachMarginalRow(w,
                     w.Member() / w.warp_size(),
                     w.NumMembers() / w.warp_size(),
                     evaluate_row);
  return is_finite;
}

// Adds a tile of J'J to S.
template <typename W>
CERES_EXT_WINDOW void AddMarginalTile(W& w,
                                      const WindowMarginal& prior,
                                      int t) {
  const int p = TriangularRoot(t / W::kPoseTiles);
  const int q = t / W::kPoseTiles - static_cast<int>(PackedTriangle(p));
  const int r0 =
      kPoseColumns * p + W::kPoseTall * (t % W::kPoseTiles / W::kPoseSide);
  const int c0 = kPoseColumns * q + W::kPoseTile * (t % W::kPoseSide);
  double sum[W::kPoseTall * W::kPoseWidth] = {};
  double y[W::kPoseWidth] = {};
  for (int i = 0; i < prior.num_rows; ++i) {
    const double* const row = w.MarginalRow(prior, i);
    for (int c = 0; c < W::kPoseTile; ++c) {
      y[c] = row[c0 + c];
    }
    CERES_EXT_WINDOW_UNROLL
    for (int r = 0; r < W::kPoseTall; ++r) {
      for (int c = 0; c < W::kPoseWidth; ++c) {
        sum[W::kPoseWidth * r + c] += row[r0 + r] * y[c];
      }
    }
  }
  CERES_EXT_WINDOW_UNROLL
  for (int r = 0; r < W::kPoseTall; ++r) {
    double* const to =
        w.schur + At(w.ColumnOf(prior, r0 + r), w.ColumnOf(prior, c0));
    for (int c = 0; c < W::kPoseTile; ++c) {
      if (c0 + c <= r0 + r) {
        to[c] += sum[W::kPoseWidth * r + c];
      }
    }
  }
}

// Adds the marginal priors as AddPriors adds priors.
template <typename W>
CERES_EXT_WINDOW_PHASE void AddMarginals(W& w, bool is_last) {
  const bool has_system = !is_last && w.block() == 0;
  for (int k = 0; k < w.counts.num_marginals; ++k) {
    const WindowMarginal prior = w.model.marginal(k);
    const int num_columns = prior.num_columns();
    const int num_tiles =
        W::kPoseTiles * static_cast<int>(PackedTriangle(prior.num_varying));
    // Other threads may have written the sums before.
    w.team->Barrier();
    for (int c = w.rank(); c < kPoseColumns * prior.num_varying;
         c += w.size()) {
      double gradient = 0.0;
      double squared_norm = 0.0;
      for (int i = 0; i < prior.num_rows; ++i) {
        const double* const row = w.MarginalRow(prior, i);
        gradient += row[c] * row[num_columns];
        squared_norm += row[c] * row[c];
      }
      const int column = w.ColumnOf(prior, c);
      w.gradient[column] += gradient;
      w.squared_norms[column] += squared_norm;
      if (has_system) {
        w.right_hand_side[column] -= gradient;
      }
    }
    for (int t = w.rank(); has_system && t < num_tiles; t += w.size()) {
      AddMarginalTile(w, prior, t);
    }
  }
  w.team->Barrier();
}

// The first two items of the rows of the marginal priors. False if a residual
// at the candidate is not finite. All threads of the first block call it.
template <typename W>
CERES_EXT_WINDOW_PHASE bool StepOfMarginals(W& w) {
  TakeDifferences(w, w.new_cameras, /*has_columns=*/false, w.rank(), w.size());
  w.team->Barrier();
  const int lane = w.rank() % w.warp_size();
  bool is_finite = true;
  const auto step_of_row = [&](const WindowMarginal& prior, int i) {
    const double* const row = w.MarginalRow(prior, i);
    double sum = 0.0;
    for (int c = lane; c < kPoseColumns * prior.num_varying;
         c += w.warp_size()) {
      sum += row[c] * w.step[w.ColumnOf(prior, c)];
    }
    const double change = w.team->WarpSum(sum);
    const double r = MarginalResidual(w, prior, i);
    if (lane == 0) {
      double* const item = w.MarginalItem(prior.row_begin + i);
      item[0] = -change * (row[prior.num_columns()] + 0.5 * change);
      item[1] = 0.5 * r * r;
      is_finite &= kernels::AllFinite(&r, 1);
    }
  };
  ForEachMarginalRow(
      w, w.rank() / w.warp_size(), w.size() / w.warp_size(), step_of_row);
  return is_finite;
}

}  // namespace window
}  // namespace ceres_ext

#endif  // CERES_EXT_SMALL_WINDOW_PRIORS_H_
