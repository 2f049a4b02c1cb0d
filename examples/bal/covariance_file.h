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
  // Of points in space where they are, 3 values a block; else empty.
  std::vector<double> positions;
};

struct CovarianceReport {
  std::vector<CovarianceArray> arrays;
  CovarianceSummary summary;
};

// Adds an array of a function of each of the blocks, all of which `covariance`
// has computed: `function` has one parameter block and `size` residuals.
// False with *error.
bool AddFunctionArray(const std::string& name,
                      const Covariance& covariance,
                      const ceres::CostFunction& function,
                      const std::vector<const double*>& blocks,
                      CovarianceReport* report,
                      std::string* error);

// All blocks of cameras and points at the values of *problem, whose cameras
// have 9 parameters, and "centers", the positions of the cameras, with inner
// constraints. False with *error.
bool ComputeBalCovariance(const SolveBalOptions& options,
                          CovarianceScale scale,
                          BalProblem* problem,
                          CovarianceReport* report,
                          std::string* error);

// A name that ends in .npz: the arrays, each (num_blocks, size, size), and ids
// as NAME_id. Else a table of standard deviations, one line a block: name,
// number, `size` values.
bool WriteCovarianceFile(const std::string& path,
                         const CovarianceReport& report,
                         std::string* error);

// "Standard deviations of points: median 0.00123, largest 1.5 (number 7)", of
// the largest of each block, a line each array.
std::string CovarianceText(const CovarianceReport& report);
// A JSON object: the summary, and of each array the median and the ten largest.
std::string CovarianceJson(const CovarianceReport& report);
// The same as a section of a page.
std::string CovarianceSection(const CovarianceReport& report);

// Of arrays with positions: those of the thousand blocks with the largest
// standard deviations. Semi-axes are num_sigmas standard deviations.
std::vector<Ellipsoid> Ellipsoids(const CovarianceReport& report,
                                  double num_sigmas);

}  // namespace ceres_ext::bal

#endif  // EXAMPLES_BAL_COVARIANCE_FILE_H_
