// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Cost, residuals and gradient of a problem of arrays, by a session without a
// loop.

#ifndef CERES_EXT_FRONT_EVALUATE_ARRAYS_H_
#define CERES_EXT_FRONT_EVALUATE_ARRAYS_H_

#include <string>
#include <vector>

#include "ceres_ext/array_problem.h"
#include "ceres_ext/options.h"
#include "ceres_ext/session/kept_machines.h"
#include "ceres_ext/solve.h"

namespace ceres_ext {

// As Evaluate (ceres_ext/solve.h). *kept is cleared where that fails.
bool EvaluateArrays(const EvaluateOptions& options,
                    const Options& ext_options,
                    const ArrayProblem& problem,
                    KeptMachines* kept,
                    double* cost,
                    std::vector<double>* residuals,
                    std::vector<double>* gradient,
                    std::string* error);

}  // namespace ceres_ext

#endif  // CERES_EXT_FRONT_EVALUATE_ARRAYS_H_
