// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Covariances of blocks of a program's result, as a file.

#ifndef EXAMPLES_BAL_COVARIANCE_FILE_H_
#define EXAMPLES_BAL_COVARIANCE_FILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ceres_ext/covariance.h"
#include "examples/bal/solve_bal.h"
#include "problem_io/bal_problem.h"

namespace ceres_ext::bal {

// Diagonal blocks of parameter blocks of one kind.
struct CovarianceArray {
  std::string name;  // "cameras"
  int64_t num_blocks = 0;
  int size = 0;
  std::vector<double> values;  // num_blocks x size x size
  // Of each block what a table calls it; empty: its number.
  std::vector<int64_t> ids;
};

// All blocks of cameras and points at the values of *problem, whose cameras
// have 9 parameters, with inner constraints. False with *error.
bool ComputeBalCovariance(const SolveBalOptions& options,
                          CovarianceScale scale,
                          BalProblem* problem,
                          std::vector<CovarianceArray>* arrays,
                          CovarianceSummary* summary,
                          std::string* error);

// A name that ends in .npz: the arrays, each (num_blocks, size, size).
// Otherwise a table of standard deviations, one line per block: name, number,
// `size` values.
bool WriteCovarianceFile(const std::string& path,
                         const std::vector<CovarianceArray>& arrays,
                         std::string* error);

// "Standard deviations of points: median 0.00123, largest 1.5 (number 7)", of
// the largest of each block, a line each array.
std::string CovarianceText(const std::vector<CovarianceArray>& arrays,
                           const CovarianceSummary& summary);

}  // namespace ceres_ext::bal

#endif  // EXAMPLES_BAL_COVARIANCE_FILE_H_
