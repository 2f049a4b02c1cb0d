// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The residuals that ArrayProblem.add_residuals knows by name: those of
// ceres_ext/bal_cost_functions.h, ceres_ext/photogrammetry.h and
// ceres_ext/odometry_cost_functions.h.

#ifndef PYTHON_SRC_RESIDUALS_H_
#define PYTHON_SRC_RESIDUALS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ceres/cost_function.h"

namespace ceres_ext::python {

// A cost function with its parameter blocks in one of the forms of its name.
struct NamedResidual {
  const char* name;
  const char* camera_model;  // null: it has no camera, or one of BAL
  const char* rotation;      // null: it has no pose, or one of BAL
  int num_residuals;
  int num_columns;  // of `observations`
  std::vector<std::string> roles;
  std::vector<int> block_sizes;

  int64_t constants_bytes;
  ceres::CostFunction* (*make_cost_function)(const void* constants);
  // Writes the constants of a row, and returns false if they are not finite.
  // Null: the row is the constants.
  bool (*convert)(const double* row, void* constants) = nullptr;
  // Doubles from the beginning of the constants to the square root information
  // (num_residuals x num_residuals), which convert leaves to the caller; 0:
  // there is none.
  int64_t information_begin = 0;
  // ArrayProblem::Residuals::constants_are_of_model.
  bool constants_are_of_model = true;
};

const std::vector<NamedResidual>& NamedResiduals();

// The square root information A of a covariance C, A'A = C^-1, both n x n with
// n of 3, 6 or 9; null: that of the identity. Returns false and says why if
// there is none.
bool SetInformation(int n,
                    const double* covariance,
                    double* information,
                    std::string* error);

}  // namespace ceres_ext::python

#endif  // PYTHON_SRC_RESIDUALS_H_
