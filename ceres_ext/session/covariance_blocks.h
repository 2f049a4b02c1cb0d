// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Blocks of (J'J + D^2)^-1 of a session, at the values of the parameters as
// they are, in the tangent space of the blocks.
//
// S = F'F + D_f^2 - F'E (E'E + D_e^2)^-1 E'F is factorised once. Columns of its
// inverse come in chunks; blocks of eliminated parameters are formed of them
// (cuda_kernels/ops/covariance.h), so that nothing of the size of the inverse
// is kept.
//
// Where the session has no factor but PCG, a wanted column of the inverse is
// one solution of the whole system.
//
// Rank. H is S scaled by the squares of the columns of F, so that units don't
// matter. Its smallest eigenvalue is at most the pivot that any column has when
// it comes last (cuda_kernels/base/relative_pivot.h), and at least 1/n of the
// smallest such pivot. Rounding of n unknowns and m residuals moves it by some
// sqrt(n m) u, as the norm of a symmetric matrix of independent errors of
// sqrt(m) u each. So S counts as singular where that eigenvalue is at most
// max(kDegeneratePivot, sqrt(n m) u). It is found by inverse iteration with
// the factor.
//
// What nothing holds is the space of the eigenvectors below that, found by
// inverse iteration with S + sigma diag(F'F). With Gauge::kInner, where it has
// at most seven dimensions, N is an orthonormal basis of it in all tangent
// columns, and
//
//   (J'J)^+ = P B P,   P = I - N N',   B = (J'J + D^2)^-1
//
// where D is not zero in as many columns as N has, chosen by pivoting so that N
// is regular there. B is a generalised inverse of J'J, since then
// rank(J'J + D^2) = rank(J'J) + rank(D^2), and P B P is the pseudo-inverse for
// any B of that kind (inner constraints: Blaha 1971; Baarda 1973).

#ifndef CERES_EXT_SESSION_COVARIANCE_BLOCKS_H_
#define CERES_EXT_SESSION_COVARIANCE_BLOCKS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ceres_ext/session/session.h"
#include "ceres_ext/summary.h"
#include "cuda_kernels/base/status.h"

namespace ceres_ext {

struct CovarianceWanted {
  bool apply_loss = true;
  // The pseudo-inverse where at most seven directions are free; else they are
  // an error.
  bool inner_constraints = false;
  // Of PCG, where its steps are what the session has in place of a factor: the
  // residual of each solution, relative to its right-hand side. Nothing is said
  // of the rank then.
  double pcg_tolerance = 1e-10;
  // D of each tangent column; empty: zero. Then nothing is said of the rank.
  std::vector<double> diagonal;
  // The state; empty: the session's CallerState has it.
  std::vector<double> state;
  // Blocks by the tangent offsets of their two parameter blocks.
  struct Block {
    int32_t left = 0;
    int32_t right = 0;
  };
  std::vector<Block> blocks;
};

struct CovarianceFound {
  // Of each block, row-major, left tangent size x right tangent size.
  std::vector<int64_t> begin;
  std::vector<double> values;
  double cost = 0.0;
  int64_t num_residuals = 0;
  int64_t num_columns = 0;
  // Directions that nothing holds. kMostDirections: there may be more.
  static constexpr int kMostDirections = 16;
  int num_free = 0;
  // Where there are some: how many blocks of F they move, and the caller's
  // values of the first ones, those that move most first.
  int64_t num_moved_blocks = 0;
  std::vector<const double*> moved_blocks;
  // Smallest eigenvalue of the scaled S beside those of free directions; -1:
  // there is none, or nobody asks.
  double smallest_eigenvalue = -1.0;
  int64_t num_pcg_iterations = 0;
  double evaluation_seconds = 0.0;
  double factorization_seconds = 0.0;
  double blocks_seconds = 0.0;
};

// kNumericalFailure: an evaluation failed, or what is wanted does not exist:
// *found or the session's record (FindDegenerateBlocks) has the blocks then.
template <typename Machine>
kernels::Status ComputeCovarianceBlocks(const CovarianceWanted& wanted,
                                        const Summary& record,
                                        Session<Machine>* session,
                                        CovarianceFound* found);

}  // namespace ceres_ext

#endif  // CERES_EXT_SESSION_COVARIANCE_BLOCKS_H_
