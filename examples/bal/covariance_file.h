// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Covariances of the blocks of a program's result: as a file, in its reports
// and as ellipsoids.

#ifndef EXAMPLES_BAL_COVARIANCE_FILE_H_
#define EXAMPLES_BAL_COVARIANCE_FILE_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ceres_ext/covariance.h"
#include "examples/bal/solve_bal.h"
#include "problem_io/bal_problem.h"
#include "problem_io/bal_writer.h"

namespace ceres_ext::bal {

// Diagonal blocks of parameter blocks of one kind.
struct CovarianceArray {
  std::string name;  // "cameras"
  int64_t num_blocks = 0;
  int size = 0;
  std::vector<double> values;  // num_blocks x size x size
  // The number of each block in tables; empty: its place.
  std::vector<int64_t> ids;
  // The position of each block, 3 values, if blocks are points in space;
  // otherwise empty.
  std::vector<double> positions;
};

struct CovarianceReport {
  std::vector<CovarianceArray> arrays;
  CovarianceSummary summary;
};

// Adds an array with the covariance of `function` at each element of `blocks`,
// the parameter blocks of the function. `covariance` has computed all pairs of
// them. False with *error.
bool AddFunctionArray(const std::string& name,
                      const Covariance& covariance,
                      const ceres::CostFunction& function,
                      const std::vector<std::vector<const double*>>& blocks,
                      CovarianceReport* report,
                      std::string* error);

// Computes all blocks of cameras and points at the values of *problem, whose
// cameras have 9 parameters, and of "centers", the positions of the cameras,
// with inner constraints. False with *error.
bool ComputeBalCovariance(const SolveBalOptions& options,
                          CovarianceScale scale,
                          BalProblem* problem,
                          CovarianceReport* report,
                          std::string* error);

// Writes arrays, each (num_blocks, size, size), and ids as NAME_id if the name
// ends in .npz. Otherwise it writes a table of standard deviations, one line
// per block: name, number, `size` values.
bool WriteCovarianceFile(const std::string& path,
                         const CovarianceReport& report,
                         std::string* error);

// "Standard deviations of points: median 0.00123, largest 1.5 (number 7)", of
// the largest of each block, a line each array.
std::string CovarianceText(const CovarianceReport& report);
// A JSON object: the summary, and the median and ten largest of each array.
std::string CovarianceJson(const CovarianceReport& report);

// The ellipsoids of the thousand least accurate blocks of each array with
// positions. Semi-axes are num_sigmas standard deviations.
std::vector<Ellipsoid> Ellipsoids(const CovarianceReport& report,
                                  double num_sigmas);

}  // namespace ceres_ext::bal

#endif  // EXAMPLES_BAL_COVARIANCE_FILE_H_
