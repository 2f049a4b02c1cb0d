// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Blocks of (J'J + D^2)^-1 of a session, at the current values of the
// parameters, in the tangent space of the blocks.
//
// S = F'F + D_f^2 - F'E (E'E + D_e^2)^-1 E'F is factorised once. Columns of its
// inverse are computed in chunks, and give the blocks of eliminated parameters
// (cuda_kernels/ops/covariance.h). This avoids an array of the size of the
// inverse.
//
// If the session has PCG instead of a factor, each wanted column of the inverse
// is one solution of the whole system.
//
// Rank. H is S scaled by the squares of the columns of F, which removes the
// units. Its smallest eigenvalue is at most the pivot that any column has when
// it comes last (cuda_kernels/base/relative_pivot.h), and at least 1/n of the
// smallest such pivot. Rounding of n unknowns and m residuals moves it by some
// sqrt(n m) u, as the norm of a symmetric matrix of independent errors of
// sqrt(m) u each. So S counts as singular if that eigenvalue is at most
// max(kDegeneratePivot, sqrt(n m) u). Inverse iteration with the factor finds
// it.
//
// The free directions are the eigenvectors below that bound. Inverse iteration
// with S + sigma diag(F'F) finds them. Gauge::kInner supports at most seven of
// them. N is an orthonormal basis of them in all tangent columns, and
//
//   (J'J)^+ = P B P,   P = I - N N',   B = (J'J + D^2)^-1
//
// where D is nonzero in as many columns as N has, chosen by pivoting so that N
// is regular there. B is a generalised inverse of J'J, because rank(J'J + D^2)
// = rank(J'J) + rank(D^2), and P B P is the pseudo-inverse for any generalised
// inverse B (inner constraints: Blaha 1971; Baarda 1973).

#ifndef CERES_EXT_SESSION_COVARIANCE_BLOCKS_H_
#define CERES_EXT_SESSION_COVARIANCE_BLOCKS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ceres_ext/covariance.h"
#include "ceres_ext/session/session.h"
#include "ceres_ext/summary.h"
#include "cuda_kernels/base/status.h"

namespace ceres_ext {

struct CovarianceWanted {
  bool apply_loss = true;
  // Computes the pseudo-inverse if at most seven directions are free; more are
  // an error.
  bool inner_constraints = false;
  // For sessions that solve by PCG instead of a factor: the residual of each
  // solution, relative to its right-hand side. The rank is not determined then.
  double pcg_tolerance = 1e-10;
  // D of each tangent column; empty: zero. If it is not empty, the rank is not
  // determined.
  std::vector<double> diagonal;
  // The state; empty: the session's CallerState contains it.
  std::vector<double> state;
  // Blocks by the tangent offsets of their two parameter blocks.
  struct Block {
    int32_t left = 0;
    int32_t right = 0;
  };
  std::vector<Block> blocks;
};

// device, redundancy, variance_factor and the total time are the caller's.
struct CovarianceFound : CovarianceSummary {
  // Offset of each block in values, row-major, left tangent size x right
  // tangent size.
  std::vector<int64_t> begin;
  std::vector<double> values;
  // If as many directions are free, there may be more.
  static constexpr int kMostDirections = 16;
  // If directions are free: how many blocks of F they move, and the caller's
  // values of the first ones. Blocks that move most come first.
  int64_t num_moved_blocks = 0;
  std::vector<const double*> moved_blocks;
};

// Fills *found, a new one. kNumericalFailure: an evaluation failed, or the
// wanted result does not exist. *found or the session's record
// (FindDegenerateBlocks) lists the blocks then.
template <typename Machine>
kernels::Status ComputeCovarianceBlocks(const CovarianceWanted& wanted,
                                        const Summary& record,
                                        Session<Machine>* session,
                                        CovarianceFound* found);

}  // namespace ceres_ext

#endif  // CERES_EXT_SESSION_COVARIANCE_BLOCKS_H_
