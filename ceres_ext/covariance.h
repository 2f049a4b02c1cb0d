// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Covariances of parameter blocks, in the form of ceres::Covariance:
//
//   ceres_ext::CovarianceOptions options;
//   ceres_ext::Covariance covariance(options);
//   if (covariance.Compute({{camera, camera}, {camera, point}}, &problem)) {
//     double block[6 * 6];
//     covariance.GetCovarianceBlock(camera, camera, block);
//   }
//
// With J the Jacobian at the values of the parameters as they are, no solve
// needed, the covariance is (J'J)^-1, if residuals have unit variance
// (CovarianceOptions::scale). The Schur complement of the blocks that are
// eliminated, as in a solve, is factorised, on the host or on a device, and of
// its inverse only what is asked for is computed (docs/covariance.md). Residual
// blocks, losses, manifolds and constant blocks are those that
// DENSE_SCHUR takes in ceres_ext::Solve.
//
// Source: Triggs, McLauchlan, Hartley and Fitzgibbon, Bundle Adjustment - A
// Modern Synthesis, 2000, sections 6.3, 8 and 9.

#ifndef CERES_EXT_COVARIANCE_H_
#define CERES_EXT_COVARIANCE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ceres/cost_function.h"
#include "ceres/problem.h"
#include "ceres_ext/array_problem.h"
#include "ceres_ext/options.h"

namespace ceres_ext {

// What becomes of directions that no residual holds, such as a similarity
// motion of all cameras and points.
enum CovarianceGauge {
  // They are an error, which says how many there are and which blocks they
  // move.
  COVARIANCE_GAUGE_AS_GIVEN,
  // Inner constraints, as in a free network adjustment: the pseudo-inverse of
  // J'J, where at most seven directions are free, as many as similarity motions
  // have. Else an error. Where none is free the same as AS_GIVEN. The
  // pseudo-inverse depends on the units of the parameters.
  COVARIANCE_GAUGE_INNER,
  // (J'J + D^2)^-1, D = CovarianceOptions::damping. Nothing is said of free
  // directions.
  COVARIANCE_GAUGE_DAMPED,
};

enum CovarianceScale {
  // Residuals have unit variance: the caller has divided them by their standard
  // deviations.
  COVARIANCE_SCALE_A_PRIORI,
  // All blocks are multiplied by 2 cost / redundancy, an estimate of the
  // variance of residuals of the same weight.
  COVARIANCE_SCALE_A_POSTERIORI,
};

enum CovarianceMethod {
  // FACTORIZATION, or PCG where that has no memory, or a library is missing,
  // and at most 200 parameter blocks are the right ones of wanted pairs.
  COVARIANCE_METHOD_AUTO,
  // The Schur complement as a matrix and its Cholesky factor: all blocks that
  // are wanted at the price of a few exact steps of a solve.
  COVARIANCE_METHOD_FACTORIZATION,
  // Each column of each right block of a pair is a solution by conjugate
  // gradients, preconditioned by the diagonal blocks of the Schur complement,
  // which is no matrix then: for a few blocks of a large problem. Nothing is
  // said of the rank; where directions are free PCG does not get to
  // pcg_tolerance, which is an error. Not with gauge = INNER.
  COVARIANCE_METHOD_PCG,
};

struct CovarianceOptions {
  int num_threads = 1;  // of the host, 1 or more
  CovarianceMethod method = COVARIANCE_METHOD_AUTO;
  // Of PCG: residual of each solution, relative to the right-hand side, above 0
  // and below 1; and iterations for each at most, 1 or more. The relative error
  // is up to the condition number times the tolerance.
  double pcg_tolerance = 1e-10;
  int max_num_pcg_iterations = 10000;
  // False: J is that without losses and weights, as is the cost.
  bool apply_loss_function = true;
  CovarianceGauge gauge = COVARIANCE_GAUGE_AS_GIVEN;
  // With DAMPED: D, of all parameter blocks in the order in which they were
  // added, or of all arrays, as many values each as its tangent space has
  // dimensions, those of constant blocks included, which have no effect.
  // Finite, 0 or more. Empty with other gauges.
  std::vector<double> damping;
  CovarianceScale scale = COVARIANCE_SCALE_A_PRIORI;
  // device, cuda_device, cuda_memory_limit_bytes, schur_factorization,
  // batch_evaluation and fallback have their meaning in a solve, except that
  // nothing is left to stock Ceres. The Jacobian is stored, in double; all
  // other options have no meaning here.
  Options ext;
};

struct CovarianceSummary {
  // "host, 16 threads", or the device; with the reason where the host computes
  // in place of one.
  std::string device;
  // Of residual blocks that depend on a block that varies.
  double cost = 0.0;
  int64_t num_residuals = 0;
  // Tangent dimensions of the blocks that vary and are in a residual block.
  int64_t num_columns = 0;
  // Directions that no residual holds; at most 16 are counted.
  int num_free_directions = 0;
  // num_residuals - (num_columns - num_free_directions), and with DAMPED one
  // more for each value of D of a column that is not zero.
  int64_t redundancy = 0;
  // What the blocks are multiplied by: 1, or 2 cost / redundancy.
  double variance_factor = 1.0;
  // Smallest eigenvalue of the Schur complement, scaled to the unit diagonal
  // that it would have if nothing were eliminated, beside those of free
  // directions; -1 with DAMPED, with PCG and where there is none. Its inverse
  // times 1e-16 and the number of columns bounds what rounding makes of the
  // blocks.
  double smallest_eigenvalue = -1.0;
  // With PCG: of all solutions.
  int64_t num_pcg_iterations = 0;
  double total_time_in_seconds = 0.0;
  double evaluation_time_in_seconds = 0.0;
  // With the decision on the rank.
  double factorization_time_in_seconds = 0.0;
  double blocks_time_in_seconds = 0.0;
};

// Thread safety: const member functions may be called from any thread. The same
// input gives the same bits for any number of threads, on the same machine.
// Throws nothing.
class Covariance {
 public:
  explicit Covariance(const CovarianceOptions& options);
  ~Covariance();
  Covariance(Covariance&&) noexcept;
  Covariance& operator=(Covariance&&) noexcept;

  // Computes the blocks of these pairs of parameter blocks. The problem is as
  // it was afterwards. False, with a sentence in error(), where options are not
  // valid, a block is not in the problem or in no residual block, directions
  // are free (CovarianceGauge), a residual block can't be evaluated, values are
  // not finite, or memory runs out. What was computed before is lost then.
  bool Compute(const std::vector<std::pair<const double*, const double*>>&
                   covariance_blocks,
               ceres::Problem* problem);
  // Those of all pairs of these.
  bool Compute(const std::vector<const double*>& parameter_blocks,
               ceres::Problem* problem);
  // Of problems of arrays; block i of an array p is p.values + i * p.size.
  bool Compute(const std::vector<std::pair<const double*, const double*>>&
                   covariance_blocks,
               const ArrayProblem& problem);
  bool Compute(const std::vector<const double*>& parameter_blocks,
               const ArrayProblem& problem);
  // The diagonal blocks of all blocks of these parameter arrays, and the pairs
  // of covariance_blocks.
  bool ComputeDiagonals(
      const std::vector<int>& arrays,
      const std::vector<std::pair<const double*, const double*>>&
          covariance_blocks,
      const ArrayProblem& problem);

  const std::string& error() const;
  const CovarianceSummary& summary() const;

  // A block that was computed, or its transpose, row-major, size of block 1 x
  // size of block 2: lifted from the tangent spaces by the derivatives of the
  // manifolds. Zero where one of both is constant. False: it was not computed.
  bool GetCovarianceBlock(const double* parameter_block1,
                          const double* parameter_block2,
                          double* covariance_block) const;
  bool GetCovarianceBlockInTangentSpace(const double* parameter_block1,
                                        const double* parameter_block2,
                                        double* covariance_block) const;
  // The matrix of several blocks, all pairs of which were computed, row-major.
  bool GetCovarianceMatrix(const std::vector<const double*>& parameter_blocks,
                           double* covariance_matrix) const;
  bool GetCovarianceMatrixInTangentSpace(
      const std::vector<const double*>& parameter_blocks,
      double* covariance_matrix) const;
  // After ComputeDiagonals: those of an array, num_blocks x size x size.
  // Blocks that are constant have zeros, those in no residual block NaN.
  bool GetDiagonalBlocks(int array, double* covariance_blocks) const;

  // That of a function of several blocks, all pairs of which were computed:
  // G C G', G its Jacobian at the values of the blocks, num_residuals x
  // num_residuals, row-major. The relative pose of two cameras is one such
  // function. False also where it can't be evaluated.
  bool GetCovarianceOfFunction(
      const ceres::CostFunction& function,
      const std::vector<const double*>& parameter_blocks,
      double* covariance_matrix) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_COVARIANCE_H_
