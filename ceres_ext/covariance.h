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
// J is the Jacobian at the current values of the parameters; no solve is
// needed. The covariance is (J'J)^-1 if residuals have unit variance
// (CovarianceOptions::scale). The Schur complement of the eliminated blocks is
// factorised as in a solve, on the host or on a device. Only the blocks of its
// inverse that are asked for are computed (docs/covariance.md). The residual
// blocks, losses, manifolds and constant blocks that DENSE_SCHUR supports in
// ceres_ext::Solve are supported.
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

// Treatment of directions that no residual determines, such as a similarity
// motion of all cameras and points.
enum CovarianceGauge {
  // Free directions are an error. Its message says how many there are and which
  // blocks they move.
  COVARIANCE_GAUGE_AS_GIVEN,
  // Inner constraints, as in a free network adjustment: the pseudo-inverse of
  // J'J, for at most seven free directions (a similarity motion has seven).
  // More are an error. Without free directions the result is that of AS_GIVEN.
  // The pseudo-inverse depends on the units of the parameters.
  COVARIANCE_GAUGE_INNER,
  // (J'J + D^2)^-1, D = CovarianceOptions::damping. Free directions are not
  // counted.
  COVARIANCE_GAUGE_DAMPED,
};

enum CovarianceScale {
  // The variance of residuals is 1: the caller has divided them by their
  // standard deviations.
  COVARIANCE_SCALE_A_PRIORI,
  // All blocks are multiplied by 2 cost / redundancy. This estimates the
  // variance of residuals that all have the same weight.
  COVARIANCE_SCALE_A_POSTERIORI,
};

enum CovarianceMethod {
  // FACTORIZATION. If it has no memory or a library is missing, PCG, for at
  // most 200 different right blocks of wanted pairs.
  COVARIANCE_METHOD_AUTO,
  // Cholesky factor of the Schur complement. All wanted blocks cost as much as
  // a few exact steps of a solve.
  COVARIANCE_METHOD_FACTORIZATION,
  // Conjugate gradients solve for each column of each right block of a pair,
  // preconditioned by the diagonal blocks of the Schur complement, without
  // forming that matrix. Use it for a few blocks of a large problem. The rank
  // is not determined: if directions are free, PCG does not reach
  // pcg_tolerance, which is an error. Does not support gauge = INNER.
  COVARIANCE_METHOD_PCG,
};

struct CovarianceOptions {
  int num_threads = 1;  // of the host, 1 or more
  CovarianceMethod method = COVARIANCE_METHOD_AUTO;
  // For PCG: residual of each solution relative to its right-hand side, above 0
  // and below 1, and largest number of iterations per solution, 1 or more. The
  // relative error is at most the condition number times the tolerance.
  double pcg_tolerance = 1e-10;
  int max_num_pcg_iterations = 10000;
  // False: the Jacobian and the cost leave out losses and weights.
  bool apply_loss_function = true;
  CovarianceGauge gauge = COVARIANCE_GAUGE_AS_GIVEN;
  // For gauge = DAMPED: D, for all parameter blocks in the order in which they
  // were added, or for all arrays. Each block has as many values as its tangent
  // space has dimensions. Constant blocks have values too, which are ignored.
  // Values are finite and 0 or more. Must be empty with other gauges.
  std::vector<double> damping;
  CovarianceScale scale = COVARIANCE_SCALE_A_PRIORI;
  // device, cuda_device, cuda_memory_limit_bytes, schur_factorization,
  // batch_evaluation and fallback have the meaning that they have in a solve,
  // except that stock Ceres is never used. The Jacobian is stored in double
  // precision. All other options are ignored.
  Options ext;
};

struct CovarianceSummary {
  // "host, 16 threads", or the name of the device; with the reason if the host
  // replaces a device.
  std::string device;
  // For the residual blocks that depend on a block that varies.
  double cost = 0.0;
  int64_t num_residuals = 0;
  // Tangent dimensions of the blocks that vary and have a residual block.
  int64_t num_columns = 0;
  // Directions that no residual determines; at most 16 are counted.
  int num_free_directions = 0;
  // num_residuals - (num_columns - num_free_directions). With DAMPED, each
  // nonzero value of D of a column adds one.
  int64_t redundancy = 0;
  // Factor of the blocks: 1, or 2 cost / redundancy.
  double variance_factor = 1.0;
  // Smallest eigenvalue of the scaled Schur complement, apart from those of
  // free directions. It is scaled to the unit diagonal that it would have if
  // nothing were eliminated. -1 with DAMPED, with PCG and if there is none.
  // Rounding changes the blocks by at most the number of columns times 1e-16
  // divided by this value.
  double smallest_eigenvalue = -1.0;
  // With PCG: iterations of all solutions.
  int64_t num_pcg_iterations = 0;
  // Peak bytes of device memory, and their forecast before the factorisation: a
  // covariance that does not fit into Options::cuda_memory_limit_bytes or the
  // device is computed elsewhere, or refused. 0 on the host and with PCG.
  int64_t memory_bytes = 0;
  int64_t memory_forecast_bytes = 0;
  double total_time_in_seconds = 0.0;
  double evaluation_time_in_seconds = 0.0;
  // Includes the decision on the rank.
  double factorization_time_in_seconds = 0.0;
  double blocks_time_in_seconds = 0.0;
};

// Thread safety: const member functions may be called from any thread while no
// thread is in Compute of the same object. One call at a time may use a
// ceres::Problem, in Compute, in a solve or in a function of Ceres, because
// each call numbers the problem's blocks. Several threads may compute
// covariances of one ArrayProblem at the same time, each with its own object,
// while no solve writes the arrays. Determinism: on the same machine, the same
// input gives the same bits for any number of threads. Throws nothing.
class Covariance {
 public:
  explicit Covariance(const CovarianceOptions& options);
  ~Covariance();
  Covariance(Covariance&&) noexcept;
  Covariance& operator=(Covariance&&) noexcept;

  // Computes the blocks of these pairs of parameter blocks. The values,
  // residual blocks and constant blocks of the problem stay as they are, but
  // Ceres's numbers of its blocks are written (see thread safety above). False,
  // with a sentence in error(), if options are not valid, a block is unknown or
  // has no residual block, directions are free (CovarianceGauge), a residual
  // block cannot be evaluated, values are not finite, or memory runs out.
  // Earlier results are lost in that case.
  bool Compute(const std::vector<std::pair<const double*, const double*>>&
                   covariance_blocks,
               ceres::Problem* problem);
  // Computes the blocks of all pairs of these parameter blocks.
  bool Compute(const std::vector<const double*>& parameter_blocks,
               ceres::Problem* problem);
  // Computes the covariance of a problem of arrays. Block i of an array p is
  // p.values + i * p.size.
  bool Compute(const std::vector<std::pair<const double*, const double*>>&
                   covariance_blocks,
               const ArrayProblem& problem);
  bool Compute(const std::vector<const double*>& parameter_blocks,
               const ArrayProblem& problem);
  // Computes the diagonal blocks of all blocks of these parameter arrays, and
  // the pairs of covariance_blocks.
  bool ComputeDiagonals(
      const std::vector<int>& arrays,
      const std::vector<std::pair<const double*, const double*>>&
          covariance_blocks,
      const ArrayProblem& problem);

  const std::string& error() const;
  const CovarianceSummary& summary() const;

  // Gets a computed block or its transpose, row-major, size of block 1 x size
  // of block 2. The derivatives of the manifolds lift it from the tangent
  // spaces. It is zero if one of the parameter blocks is constant. False if it
  // was not computed.
  bool GetCovarianceBlock(const double* parameter_block1,
                          const double* parameter_block2,
                          double* covariance_block) const;
  bool GetCovarianceBlockInTangentSpace(const double* parameter_block1,
                                        const double* parameter_block2,
                                        double* covariance_block) const;
  // Gets the matrix of several blocks, row-major. All their pairs must be
  // computed.
  bool GetCovarianceMatrix(const std::vector<const double*>& parameter_blocks,
                           double* covariance_matrix) const;
  bool GetCovarianceMatrixInTangentSpace(
      const std::vector<const double*>& parameter_blocks,
      double* covariance_matrix) const;
  // Gets the diagonal blocks of an array after ComputeDiagonals, num_blocks x
  // size x size. Constant blocks are zero; blocks without residual blocks are
  // NaN.
  bool GetDiagonalBlocks(int array, double* covariance_blocks) const;

  // Gets the covariance of a function of several blocks: G C G', where G is its
  // Jacobian at the values of the blocks. The result is num_residuals x
  // num_residuals, row-major. All pairs of the blocks must be computed. Use it
  // for the relative pose of two cameras, for example. Also false if the
  // function cannot be evaluated.
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
