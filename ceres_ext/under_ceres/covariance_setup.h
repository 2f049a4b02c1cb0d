// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Computes a covariance of a ceres::Problem or of arrays. The problem is set up
// (solve_setup.h) as for a solve with DENSE_SCHUR, or with ITERATIVE_SCHUR for
// PCG. Its session computes the blocks (session/covariance_blocks.h).

#ifndef CERES_EXT_UNDER_CERES_COVARIANCE_SETUP_H_
#define CERES_EXT_UNDER_CERES_COVARIANCE_SETUP_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ceres/problem.h"
#include "ceres_ext/array_problem.h"
#include "ceres_ext/covariance.h"
#include "ceres_ext/options.h"
#include "ceres_ext/session/covariance_blocks.h"
#include "ceres_ext/session/kept_machines.h"

namespace ceres_ext {

struct CovarianceRequest {
  CovarianceOptions asked;
  Options options;  // of asked.ext, those that a covariance supports
  // If there is no factorisation, PCG may replace it.
  bool may_use_pcg = false;
  // Different parameter blocks, and pairs of them by number, left <= right.
  std::vector<const double*> parameter_blocks;
  std::vector<std::pair<int32_t, int32_t>> pairs;
  // True: blocks without residual blocks are an error; false: their covariances
  // are NaN.
  bool refuses_unused = true;
  // For an ArrayProblem: parameter arrays without manifolds whose diagonal
  // blocks are wanted too.
  std::vector<int> arrays;
};

struct CovarianceResult {
  // Sizes of a parameter block.
  struct Block {
    int size = 0;
    int tangent_size = 0;
    // size x tangent_size, row-major; empty: the identity.
    std::vector<double> plus_jacobian;
  };
  std::vector<Block> blocks;
  static constexpr int kZero = -1;
  static constexpr int kUnknown = -2;
  // Number of each pair in `found`, or kZero, or kUnknown for NaN.
  std::vector<int64_t> place;
  // The same for the blocks of each array.
  std::vector<std::vector<int64_t>> place_in_array;
  CovarianceFound found;
  // Number of nonzero values of D that have an effect.
  int64_t num_damped = 0;
};

// False with a sentence in *error. Throws std::bad_alloc and the exceptions of
// user-defined code. Clears *kept if a machine has failed.
bool ComputeCovariance(const CovarianceRequest& request,
                       ceres::Problem* problem,
                       KeptMachines* kept,
                       CovarianceResult* result,
                       std::string* error);
bool ComputeCovariance(const CovarianceRequest& request,
                       const ArrayProblem& problem,
                       KeptMachines* kept,
                       CovarianceResult* result,
                       std::string* error);

}  // namespace ceres_ext

#endif  // CERES_EXT_UNDER_CERES_COVARIANCE_SETUP_H_
